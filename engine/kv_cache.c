#include "engine/kv_cache.h"

#include "common/secret.h"
#include "engine/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Query rows of one task: they share the reading of a page. */
#define QUERY_ROWS 16

tacit_status kv_cache_init(kv_cache *c, const tacit_text_model *m, size_t max_rows,
                           tacit_error *err)
{
    *c = (kv_cache){.m = m, .max_rows = max_rows};
    size_t pages = (max_rows + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS;
    c->layer_at = calloc(m->n_layers, sizeof *c->layer_at);
    c->page = calloc(pages, sizeof *c->page);
    if (!c->layer_at || !c->page) {
        kv_cache_fini(c);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a cache of %zu rows", max_rows);
    }
    for (size_t i = 0; i < m->n_layers; i++) {
        c->layer_at[i] = c->page_floats;
        c->page_floats += 2 * m->layer[i].n_kv_heads * m->head_dim * KV_PAGE_ROWS;
    }
    return TACIT_OK;
}

void kv_cache_fini(kv_cache *c)
{
    size_t pages = (c->max_rows + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS;
    for (size_t i = 0; c->page && i < pages; i++)
        tacit_wipe_free(c->page[i]);
    free(c->page);
    free(c->layer_at);
    memset(c, 0, sizeof *c);
}

tacit_status kv_cache_reserve(kv_cache *c, size_t rows, tacit_error *err)
{
    for (size_t i = 0; i * KV_PAGE_ROWS < rows; i++) {
        if (!c->page[i])
            c->page[i] = calloc(c->page_floats, sizeof **c->page);
        if (!c->page[i])
            return tacit_fail(err, TACIT_NO_MEMORY,
                              "no memory for row %zu of the sequence; use a shorter one", rows);
    }
    return TACIT_OK;
}

/* K of one head in a page, [head_dim, 64]; its V, [64, head_dim], follows. */
static float *head_at(const kv_cache *c, size_t page, size_t layer, size_t head)
{
    return c->page[page] + c->layer_at[layer] + 2 * head * c->m->head_dim * KV_PAGE_ROWS;
}

void kv_cache_store(kv_cache *c, size_t layer, size_t first, size_t n, const float *k,
                    const float *v)
{
    size_t heads = c->m->layer[layer].n_kv_heads, dim = c->m->head_dim;
    for (size_t r = 0; r < n; r++) {
        size_t page = (first + r) / KV_PAGE_ROWS, slot = (first + r) % KV_PAGE_ROWS;
        for (size_t h = 0; h < heads; h++) {
            float *keys = head_at(c, page, layer, h), *values = keys + dim * KV_PAGE_ROWS;
            const float *key = k + (r * heads + h) * dim;
            for (size_t i = 0; i < dim; i++)
                keys[i * KV_PAGE_ROWS + slot] = key[i];
            memcpy(values + slot * dim, v + (r * heads + h) * dim, dim * sizeof *values);
        }
    }
}

typedef struct attend_job {
    const kv_cache *c;
    size_t layer, first, n;
    float *out;
    const float *q;
    float *scratch;
    size_t scratch_floats; /* of one thread */
    size_t blocks;         /* of query rows */
} attend_job;

/* The state of one block: all query heads that share a key-value head, for a few rows. */
typedef struct attend_block {
    size_t rows, group, dim; /* rows * group queries */
    size_t first;            /* row of the sequence of the first query */
    float *query;            /* [rows * group, dim], scaled */
    float *sum;              /* [rows * group, dim], of weights times values */
    float *score;            /* [rows * group, 64] */
    float *max, *total;      /* [rows * group] */
} attend_block;

static size_t block_floats(const tacit_text_model *m)
{
    size_t group = 1;
    for (size_t i = 0; i < m->n_layers; i++) {
        size_t g = m->layer[i].n_heads / m->layer[i].n_kv_heads;
        group = g > group ? g : group;
    }
    return QUERY_ROWS * group * (2 * m->head_dim + KV_PAGE_ROWS + 2);
}

size_t kv_cache_scratch(const tacit_text_model *m, size_t threads)
{
    return threads * block_floats(m);
}

static void place_block(attend_block *b, float *memory)
{
    size_t queries = b->rows * b->group;
    b->query = memory;
    b->sum = b->query + queries * b->dim;
    b->score = b->sum + queries * b->dim;
    b->max = b->score + queries * KV_PAGE_ROWS;
    b->total = b->max + queries;
    memset(b->sum, 0, queries * b->dim * sizeof *b->sum);
    for (size_t i = 0; i < queries; i++) {
        b->max[i] = -INFINITY;
        b->total[i] = 0;
    }
}

/* Turns the scores of one query into weights relative to the new maximum. */
static void weigh(attend_block *b, const tacit_kernels *k, size_t i, size_t seen)
{
    float *score = b->score + i * KV_PAGE_ROWS;
    if (seen > 0) {
        float most = k->max(score, seen);
        if (most > b->max[i]) {
            float shrink = expf(b->max[i] - most);
            for (size_t j = 0; j < b->dim; j++)
                b->sum[i * b->dim + j] *= shrink;
            b->total[i] *= shrink;
            b->max[i] = most;
        }
        b->total[i] += k->exp_sum(score, score, b->max[i], seen);
    }
    memset(score + seen, 0, (KV_PAGE_ROWS - seen) * sizeof *score);
}

static void attend_page(attend_block *b, const float *keys, const float *values, size_t page)
{
    const tacit_kernels *k = kernels();
    size_t queries = b->rows * b->group, start = page * KV_PAGE_ROWS;
    size_t last = b->first + b->rows - start; /* keys of this page that the last row sees */
    size_t filled = last < KV_PAGE_ROWS ? last : KV_PAGE_ROWS;
    k->multiply(b->score, KV_PAGE_ROWS, b->query, b->dim, 1, keys, KV_PAGE_ROWS, false, queries,
                KV_PAGE_ROWS, b->dim, false);
    for (size_t i = 0; i < queries; i++) {
        size_t visible = b->first + i / b->group + 1;
        size_t seen = visible > start ? visible - start : 0;
        weigh(b, k, i, seen < KV_PAGE_ROWS ? seen : KV_PAGE_ROWS);
    }
    k->multiply(b->sum, b->dim, b->score, KV_PAGE_ROWS, 1, values, b->dim, false, queries, b->dim,
                filled, true);
}

static void attend_task(void *ctx, size_t i, size_t thread)
{
    const attend_job *job = ctx;
    const kv_cache *c = job->c;
    const tacit_text_layer *layer = &c->m->layer[job->layer];
    size_t head = i / job->blocks, row = i % job->blocks * QUERY_ROWS;
    size_t left = job->n - row, dim = c->m->head_dim;
    attend_block b = {.rows = left < QUERY_ROWS ? left : QUERY_ROWS,
                      .group = layer->n_heads / layer->n_kv_heads,
                      .dim = dim,
                      .first = job->first + row};
    place_block(&b, job->scratch + thread * job->scratch_floats);
    size_t width = layer->n_heads * dim, part = b.group * dim;
    float scale = 1.0f / sqrtf((float)dim);
    for (size_t r = 0; r < b.rows; r++)
        for (size_t j = 0; j < part; j++)
            b.query[r * part + j] = job->q[(row + r) * width + head * part + j] * scale;
    for (size_t page = 0; page * KV_PAGE_ROWS < b.first + b.rows; page++) {
        const float *keys = head_at(c, page, job->layer, head);
        attend_page(&b, keys, keys + dim * KV_PAGE_ROWS, page);
    }
    for (size_t r = 0; r < b.rows; r++)
        for (size_t j = 0; j < part; j++)
            job->out[(row + r) * width + head * part + j] =
                b.sum[r * part + j] / b.total[r * b.group + j / dim];
}

void kv_cache_attend(tacit_pool *pool, const kv_cache *c, size_t layer, size_t first, size_t n,
                     float *out, const float *q, float *scratch)
{
    attend_job job = {.c = c,
                      .layer = layer,
                      .first = first,
                      .n = n,
                      .out = out,
                      .q = q,
                      .scratch = scratch,
                      .scratch_floats = block_floats(c->m),
                      .blocks = (n + QUERY_ROWS - 1) / QUERY_ROWS};
    tacit_pool_run(pool, c->m->layer[layer].n_kv_heads * job.blocks, attend_task, &job);
}
