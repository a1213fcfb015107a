#include "client/canary_set.h"

#include "privacy/drbg.h"
#include "privacy/release.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIMES_THE_CLIP 1024.0
enum { STATE_BYTES = 1 + 8 }; /* of a canary: the coin, the score's bits */

struct canary_set {
    tacit_canary_scores scores;
    size_t *in; /* [n_in] numbers of those that are in */
    size_t n_in;
    float *grad;    /* [scores.values] zeros but for `at` */
    size_t at;      /* the value that was set last */
    float gradient; /* what is set there */
};

static size_t value_of(const canary_set *c, size_t canary)
{
    return (size_t)(canary * c->scores.values / c->scores.count);
}

/* Lists those that are in. */
static void count_in(canary_set *c)
{
    c->n_in = 0;
    for (size_t i = 0; i < c->scores.count; i++)
        if (c->scores.included[i])
            c->in[c->n_in++] = i;
}

static tacit_status toss(canary_set *c, const uint8_t *test_seed, tacit_error *err)
{
    static const uint8_t no_nonce[TACIT_DRBG_NONCE_BYTES];
    tacit_drbg *g = NULL;
    tacit_status status = tacit_drbg_new(&g, "canaries", no_nonce, test_seed, err);
    for (size_t i = 0; i < c->scores.count && status == TACIT_OK; i++) {
        uint8_t byte;
        tacit_drbg_bytes(g, &byte, 1);
        c->scores.included[i] = byte & 1;
    }
    tacit_drbg_free(g);
    return status;
}

static tacit_status make_claim(tacit_canary_scores *s, const tacit_mechanism *m, size_t values,
                               double delta, tacit_error *err)
{
    if (m->kind == TACIT_MECHANISM_NONE)
        return tacit_fail(err, TACIT_USAGE,
                          "canaries: mechanism none claims no epsilon that they could refute");
    if (m->kind == TACIT_MECHANISM_TREE_GAUSSIAN)
        return tacit_fail(
            err, TACIT_USAGE,
            "canaries: tree noise deals units to steps by who they are, which canaries "
            "are not; measure with mechanism gaussian");
    if (s->count > values)
        return tacit_fail(
            err, TACIT_USAGE,
            "canaries: each needs a trainable value of its own: expected at most %zu, "
            "found %zu; ask for fewer, or for a higher --rank",
            values, s->count);
    s->mechanism = *m;
    s->values = values;
    s->delta = delta;
    tacit_status status = tacit_canary_claim(&s->epsilon, m, values, delta, err);
    if (status == TACIT_OK && !isfinite(s->epsilon))
        status = tacit_fail(err, TACIT_USAGE,
                            "canaries: this mechanism has no finite epsilon at delta %g that they "
                            "could refute; ask for more noise",
                            delta);
    return status;
}

tacit_status canary_set_new(canary_set **out, size_t count, const tacit_mechanism *m, size_t values,
                            double delta, const uint8_t *test_seed, tacit_error *err)
{
    tacit_status status;
    *out = NULL;
    if (tacit_mechanism_releases_whole(m))
        return tacit_fail(err, TACIT_USAGE,
                          "canaries: expected unit record or subject, found device: it is one unit "
                          "and has no others beside it");
    if (m->quantile_b)
        return tacit_fail(err, TACIT_USAGE,
                          "canaries: expected a fixed clip norm, found one that adapts: what a "
                          "released mean says of them changes with it; leave out --quantile");
    canary_set *c = calloc(1, sizeof *c);
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "canaries: no memory");
    TACIT_TRY(tacit_canary_scores_new(&c->scores, count, err), fail);
    TACIT_TRY(make_claim(&c->scores, m, values, delta, err), fail);
    c->gradient = (float)(TIMES_THE_CLIP * m->clip_norm);
    c->in = malloc(count * sizeof *c->in);
    c->grad = calloc(values, sizeof *c->grad);
    if (!c->in || !c->grad) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "canaries: no memory for %zu values", values);
        goto fail;
    }
    TACIT_TRY(toss(c, test_seed, err), fail);
    count_in(c);
    *out = c;
    return TACIT_OK;
fail:
    canary_set_free(c);
    return status;
}

void canary_set_free(canary_set *c)
{
    if (!c)
        return;
    tacit_canary_scores_free(&c->scores);
    free(c->in);
    free(c->grad);
    free(c);
}

size_t canary_set_units(const canary_set *c)
{
    return c ? c->n_in : 0;
}

const float *canary_set_gradient(canary_set *c, size_t unit)
{
    c->grad[c->at] = 0;
    c->at = value_of(c, c->in[unit]);
    c->grad[c->at] = c->gradient;
    return c->grad;
}

void canary_set_observe(canary_set *c, const float *mean)
{
    for (size_t i = 0; i < c->scores.count; i++)
        c->scores.score[i] += (double)mean[value_of(c, i)];
}

const tacit_canary_scores *canary_set_scores(const canary_set *c)
{
    return &c->scores;
}

tacit_status canary_set_save(const canary_set *c, tacit_buffer *out, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; c && i < c->scores.count && status == TACIT_OK; i++) {
        uint8_t state[STATE_BYTES] = {c->scores.included[i]};
        uint64_t bits;
        memcpy(&bits, &c->scores.score[i], sizeof bits);
        tacit_store_u64(state + 1, bits);
        status = tacit_buffer_append(out, state, sizeof state);
    }
    return status == TACIT_OK ? TACIT_OK : tacit_fail(err, status, "canaries: no memory");
}

tacit_status canary_set_restore(canary_set *c, tacit_span state, const char *path, tacit_error *err)
{
    size_t count = c ? c->scores.count : 0;
    if (state.size != count * STATE_BYTES)
        return tacit_fail(err, TACIT_USAGE,
                          "%s: the training that was interrupted has %zu canaries, this one %zu: "
                          "give the same --canaries as before",
                          path, state.size / STATE_BYTES, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = tacit_load_u64(state.data + i * STATE_BYTES + 1);
        memcpy(&c->scores.score[i], &bits, sizeof bits);
        c->scores.included[i] = state.data[i * STATE_BYTES] != 0;
    }
    if (c)
        count_in(c);
    return TACIT_OK;
}
