#include "engine/fast_tower.h"

#include "common/memory_limit.h"
#include "engine/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NO_EXACT "exact precision does without"

struct fast_tower {
    pthread_mutex_t lock;
    fast_weight *weight; /* NULL before the first use */
    uint8_t *memory;     /* all panels */
};

fast_tower *fast_tower_new(void)
{
    fast_tower *t = calloc(1, sizeof *t);
    if (t)
        pthread_mutex_init(&t->lock, NULL);
    return t;
}

void fast_tower_free(fast_tower *t)
{
    if (!t)
        return;
    free(t->weight);
    free(t->memory);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Bytes of the panels of all. */
static size_t plan(fast_weight *weight, const tacit_linear *linear, const bool *wanted,
                   size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (wanted[i])
            bytes += fast_weight_plan(&weight[i], kernels()->fast, &linear[i]);
    return bytes;
}

static void pack_all(fast_weight *weight, const tacit_linear *linear, size_t count,
                     const gguf_file *file, tacit_pool *pool, uint8_t *panels)
{
    size_t width = kernels()->fast->width;
    for (size_t i = 0; i < count; i++) {
        if (weight[i].panel_bytes == 0)
            continue;
        fast_weight_move(&weight[i], &linear[i], file, pool, panels);
        panels += (linear[i].n_out + width - 1) / width * weight[i].panel_bytes;
    }
}

static tacit_status make(fast_tower *t, const tacit_linear *linear, const bool *wanted,
                         size_t count, const gguf_file *file, tacit_pool *pool, tacit_error *err)
{
    void *memory = NULL;
    fast_weight *weight = calloc(count, sizeof *weight);
    if (!weight)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to pack an encoder");
    size_t bytes = plan(weight, linear, wanted, count);
    tacit_status status = tacit_memory_judge(bytes, "packing an encoder's weights", NO_EXACT, err);
    if (status == TACIT_OK && bytes > 0) {
        memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!memory)
            status = tacit_memory_fail(bytes, "packing an encoder's weights", NO_EXACT, err);
    }
    if (status != TACIT_OK) {
        free(weight);
        return status;
    }
    pack_all(weight, linear, count, file, pool, memory);
    t->weight = weight;
    t->memory = memory;
    return TACIT_OK;
}

tacit_status fast_tower_get(fast_tower *t, const fast_weight **out, const tacit_linear *linear,
                            const bool *wanted, size_t count, const gguf_file *file,
                            tacit_pool *pool, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    pthread_mutex_lock(&t->lock);
    if (!t->weight)
        status = make(t, linear, wanted, count, file, pool, err);
    *out = t->weight;
    pthread_mutex_unlock(&t->lock);
    return status;
}
