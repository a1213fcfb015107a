#include "engine/fast_tower.h"

#include "common/memory_limit.h"
#include "engine/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_VALUES ((size_t)1 << 20) /* of a weight, widened and packed at a time */

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

/* F16 and BF16 are packed by way of F32. */
static bool is_widened(const tacit_linear *l)
{
    return l->type->block_values == 1 && l->type->type != TACIT_TYPE_F32;
}

/* Rows [first, first + rows) of `l` as a linear of its own, over `buffer` where they are widened:
 * filled later. */
static tacit_linear slice_of(const tacit_linear *l, size_t first, size_t rows, const float *buffer)
{
    tacit_linear part = {.n_in = l->n_in, .n_out = rows, .type = l->type};
    part.row_bytes = l->row_bytes;
    part.weight = (const uint8_t *)l->weight + first * l->row_bytes;
    if (is_widened(l)) {
        part.type = tacit_type_find(TACIT_TYPE_F32);
        part.row_bytes = l->n_in * sizeof(float);
        part.weight = buffer;
    }
    return part;
}

typedef struct widen_job {
    const tacit_linear *from;
    size_t first;
    float *to; /* [rows, n_in] */
} widen_job;

static void widen_row(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const widen_job *job = ctx;
    linear_row(job->from, job->first + i, job->to + i * job->from->n_in);
}

/* What packing needs beside the panels. */
typedef struct workshop {
    tacit_pool *pool;
    const gguf_file *file;
    float *buffer; /* one slice, widened */
} workshop;

/* Whole panels of at most about SLICE_VALUES. */
static size_t slice_rows(const tacit_linear *l)
{
    size_t width = kernels()->fast->width;
    return width + SLICE_VALUES / (l->n_in * width) * width;
}

/* Slice by slice, so that the file's bytes and the panels are never there both. */
static void pack_weight(fast_weight *w, const tacit_linear *l, const workshop *s, uint8_t *panels)
{
    size_t width = kernels()->fast->width, rows = slice_rows(l);
    bool holds = true;
    for (size_t first = 0; holds && first < l->n_out; first += rows) {
        size_t n = l->n_out - first < rows ? l->n_out - first : rows;
        tacit_linear part = slice_of(l, first, n, s->buffer);
        widen_job job = {l, first, s->buffer};
        fast_weight of_part;
        if (is_widened(l))
            tacit_pool_run(s->pool, n, widen_row, &job);
        holds = fast_weight_plan(&of_part, kernels()->fast, &part) > 0 &&
                fast_weight_pack(s->pool, &of_part, kernels()->fast, &part,
                                 panels + first / width * w->panel_bytes, 0, n);
    }
    w->panels = holds ? panels : NULL;
    gguf_forget(s->file, l->weight, l->n_out * l->row_bytes);
}

/* Bytes of the panels of all; of the largest slice that is widened beside them. */
static size_t plan(fast_weight *weight, const tacit_linear *linear, const bool *wanted,
                   size_t count, size_t *slice)
{
    size_t bytes = 0;
    *slice = 0;
    for (size_t i = 0; i < count; i++) {
        const tacit_linear *l = &linear[i];
        if (!wanted[i])
            continue;
        tacit_linear part = slice_of(l, 0, l->n_out, NULL);
        size_t size = slice_rows(l) * part.row_bytes;
        bytes += fast_weight_plan(&weight[i], kernels()->fast, &part);
        *slice = is_widened(l) && size > *slice ? size : *slice;
    }
    return bytes;
}

static void pack_all(fast_weight *weight, const tacit_linear *linear, size_t count,
                     const workshop *s, uint8_t *panels)
{
    for (size_t i = 0; i < count; i++) {
        const tacit_linear *l = &linear[i];
        if (weight[i].panel_bytes == 0)
            continue;
        pack_weight(&weight[i], l, s, panels);
        size_t width = kernels()->fast->width;
        panels += (l->n_out + width - 1) / width * weight[i].panel_bytes;
    }
}

static tacit_status make(fast_tower *t, const tacit_linear *linear, const bool *wanted,
                         size_t count, const gguf_file *file, tacit_pool *pool, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    size_t slice = 0;
    workshop s = {.pool = pool, .file = file};
    uint8_t *memory = NULL;
    fast_weight *weight = calloc(count, sizeof *weight);
    size_t bytes = weight ? plan(weight, linear, wanted, count, &slice) : 0;
    TACIT_TRY(tacit_memory_judge(bytes + slice, "packing an encoder's weights",
                                 "exact precision does without", err),
              done);
    if (bytes > 0) {
        s.buffer = malloc(slice ? slice : 1);
        memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    }
    if (!weight || (bytes > 0 && (!s.buffer || !memory))) {
        status = tacit_fail(err, TACIT_NO_MEMORY,
                            "no memory for %zu MiB of an encoder's packed weights; exact precision "
                            "does without",
                            bytes >> 20);
        goto done;
    }
    pack_all(weight, linear, count, &s, memory);
    t->weight = weight;
    t->memory = memory;
    weight = NULL;
    memory = NULL;
done:
    free(weight);
    free(memory);
    free(s.buffer);
    return status;
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
