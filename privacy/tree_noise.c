#include "privacy/tree_noise.h"

#include "common/bytes.h"
#include "privacy/noise.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct tacit_tree_noise {
    uint64_t b;
    size_t values;
    uint8_t *seed; /* locked */
    int64_t *node; /* [values]: one node's noise */
};

/* --- what it costs --- */

/* Sum of c^2 over the nodes of 2^level steps, for the steps s, s + k, ... up to n. Of a level only
 * every other block is a node, and only one that ends by n. */
static uint64_t level_runs(uint32_t n, uint32_t k, uint32_t s, uint32_t level)
{
    uint64_t total = 0, count = 0, block = 0;
    for (uint64_t t = s; t <= n; t += k) {
        uint64_t in = (t - 1) >> level;
        if (in != block) {
            total += count * count;
            count = 0;
            block = in;
        }
        count += (in & 1) == 0 && (in + 1) << level <= n;
    }
    return total + count * count;
}

uint64_t tacit_tree_runs(uint32_t steps, uint32_t separation)
{
    uint64_t most = 0;
    for (uint32_t s = 1; s <= separation; s++) {
        uint64_t runs = 0;
        for (uint32_t level = 0; (uint64_t)1 << level <= steps; level++)
            runs += level_runs(steps, separation, s, level);
        most = runs > most ? runs : most;
    }
    return most;
}

/* --- noise --- */

tacit_status tacit_tree_noise_new(tacit_tree_noise **out, uint64_t b, size_t values,
                                  const uint8_t seed[TACIT_TREE_SEED_BYTES], tacit_error *err)
{
    *out = NULL;
    if (sodium_init() < 0)
        return tacit_fail(err, TACIT_FAILED, "tree noise: libsodium cannot start");
    tacit_tree_noise *t = calloc(1, sizeof *t);
    if (t) {
        *t = (tacit_tree_noise){.b = b,
                                .values = values,
                                .seed = sodium_malloc(TACIT_TREE_SEED_BYTES),
                                .node = calloc(values, sizeof *t->node)};
    }
    if (!t || !t->seed || !t->node) {
        tacit_tree_noise_free(t);
        return tacit_fail(err, TACIT_NO_MEMORY, "tree noise: no memory for %zu values", values);
    }
    memcpy(t->seed, seed, TACIT_TREE_SEED_BYTES);
    *out = t;
    return TACIT_OK;
}

void tacit_tree_noise_free(tacit_tree_noise *t)
{
    if (!t)
        return;
    sodium_free(t->seed);
    if (t->node)
        sodium_memzero(t->node, t->values * sizeof *t->node);
    free(t->node);
    free(t);
}

static tacit_status draw_node(tacit_tree_noise *t, uint32_t node, int64_t *out, tacit_error *err)
{
    uint8_t nonce[TACIT_DRBG_NONCE_BYTES] = {0};
    tacit_drbg *g;
    tacit_store_u32(nonce, node);
    tacit_status status = tacit_drbg_new(&g, "tree", nonce, t->seed, err);
    if (status == TACIT_OK)
        tacit_noise_draw(g, t->b, out, t->values);
    tacit_drbg_free(g);
    return status;
}

/* v_t less the nodes of N_(t-1) that t's node takes the place of: t - 1, and on by their lowest
 * bits down to t - low(t). */
tacit_status tacit_tree_noise_step(tacit_tree_noise *t, uint32_t step, int64_t *out,
                                   tacit_error *err)
{
    uint32_t kept = step & (step - 1); /* t - low(t) */
    tacit_status status = draw_node(t, step, out, err);
    for (uint32_t e = step - 1; e > kept && status == TACIT_OK; e &= e - 1) {
        status = draw_node(t, e, t->node, err);
        for (size_t i = 0; i < t->values && status == TACIT_OK; i++)
            out[i] -= t->node[i];
    }
    sodium_memzero(t->node, t->values * sizeof *t->node);
    return status;
}
