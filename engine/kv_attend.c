#include "engine/kernels.h"
#include "engine/kv_cache.h"

#include <math.h>
#include <string.h>

/* Query rows of one task: they share the reading of a page. A divisor of KV_PAGE_ROWS: the rows of
 * a task belong to one page. */
#define QUERY_ROWS 16

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
    size_t rows, group, dim;    /* rows * group queries */
    size_t first;               /* row of the sequence of the first query */
    text_span span[QUERY_ROWS]; /* what each row sees */
    float *query;               /* [rows * group, dim], scaled */
    float *sum;                 /* [rows * group, dim], of weights times values */
    float *score;               /* [rows * group, 64] */
    float *max, *total;         /* [rows * group] */
    float *page;                /* [2, 64, dim]: a page that is not kept as fp32 */
} attend_block;

static size_t block_floats(const tacit_text_model *m)
{
    size_t group = 1;
    for (size_t i = 0; i < m->n_layers; i++) {
        size_t kv = m->layer[i].n_kv_heads, g = kv > 0 ? m->layer[i].n_heads / kv : 1;
        group = g > group ? g : group;
    }
    return QUERY_ROWS * group * (2 * m->head_dim + KV_PAGE_ROWS + 2) +
           2 * KV_PAGE_ROWS * m->head_dim;
}

size_t kv_cache_scratch(const tacit_text_model *m, size_t threads)
{
    return threads * block_floats(m);
}

static void place_block(attend_block *b, float *memory)
{
    size_t queries = b->rows * b->group;
    b->page = memory;
    b->query = b->page + 2 * KV_PAGE_ROWS * b->dim;
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

/* Turns the scores of one query, of which it sees [from, to), into weights relative to the new
 * maximum. */
static void weigh(attend_block *b, const tacit_kernels *k, size_t i, size_t from, size_t to)
{
    float *score = b->score + i * KV_PAGE_ROWS;
    size_t n = from < to ? to - from : 0;
    if (n > 0) {
        float most = k->max(score + from, n);
        if (most > b->max[i]) {
            float shrink = expf(b->max[i] - most);
            for (size_t j = 0; j < b->dim; j++)
                b->sum[i * b->dim + j] *= shrink;
            b->total[i] *= shrink;
            b->max[i] = most;
        }
        b->total[i] += k->exp_sum(score + from, score + from, b->max[i], n);
    }
    memset(score, 0, from * sizeof *score);
    memset(score + from + n, 0, (KV_PAGE_ROWS - from - n) * sizeof *score);
}

/* Where a row of the sequence lies in the page that begins with row `start`, cut to the page. */
static size_t within_page(size_t row, size_t start)
{
    size_t at = row > start ? row - start : 0;
    return at < KV_PAGE_ROWS ? at : KV_PAGE_ROWS;
}

static void attend_page(attend_block *b, const float *keys, const float *values, size_t page)
{
    const tacit_kernels *k = kernels();
    size_t queries = b->rows * b->group, start = page * KV_PAGE_ROWS;
    size_t filled = within_page(b->span[b->rows - 1].end, start); /* keys that any row sees */
    k->multiply(b->score, KV_PAGE_ROWS, b->query, b->dim, 1, keys, KV_PAGE_ROWS, false, queries,
                KV_PAGE_ROWS, b->dim, false);
    for (size_t i = 0; i < queries; i++) {
        text_span span = b->span[i / b->group];
        weigh(b, k, i, within_page(span.first, start), within_page(span.end, start));
    }
    k->multiply(b->sum, b->dim, b->score, KV_PAGE_ROWS, 1, values, b->dim, false, queries, b->dim,
                filled, true);
}

/* Rows of the sequence that block `i` of the call computes: blocks begin at multiples of
 * QUERY_ROWS. */
static void place_rows(const attend_job *job, size_t i, size_t *from, size_t *rows)
{
    size_t block = job->first / QUERY_ROWS + i, end = job->first + job->n;
    size_t last = (block + 1) * QUERY_ROWS < end ? (block + 1) * QUERY_ROWS : end;
    *from = block * QUERY_ROWS > job->first ? block * QUERY_ROWS : job->first;
    *rows = last - *from;
}

static void read_spans(const attend_job *job, attend_block *b)
{
    for (size_t r = 0; r < b->rows; r++)
        b->span[r] =
            text_place_sees(job->c->place, b->first + r, job->c->m->layer[job->layer].window);
}

static void read_queries(const attend_job *job, attend_block *b, size_t head, size_t width)
{
    float scale = job->c->m->layer[job->layer].scale;
    size_t part = b->group * b->dim, row = b->first - job->first;
    for (size_t r = 0; r < b->rows; r++)
        for (size_t j = 0; j < part; j++)
            b->query[r * part + j] = job->q[(row + r) * width + head * part + j] * scale;
}

static void write_sums(const attend_job *job, const attend_block *b, size_t head, size_t width)
{
    size_t part = b->group * b->dim, row = b->first - job->first;
    for (size_t r = 0; r < b->rows; r++)
        for (size_t j = 0; j < part; j++)
            job->out[(row + r) * width + head * part + j] =
                b->sum[r * part + j] / b->total[r * b->group + j / b->dim];
}

static void attend_task(void *ctx, size_t i, size_t thread)
{
    const attend_job *job = ctx;
    const kv_cache *c = job->c;
    const tacit_text_layer *layer = &c->m->layer[job->layer];
    size_t head = i / job->blocks, width = layer->n_heads * c->m->head_dim;
    attend_block b = {.group = layer->n_heads / layer->n_kv_heads, .dim = c->m->head_dim};
    place_rows(job, i % job->blocks, &b.first, &b.rows);
    place_block(&b, job->scratch + thread * job->scratch_floats);
    read_spans(job, &b);
    read_queries(job, &b, head, width);
    size_t own = b.first / KV_PAGE_ROWS, last = (b.span[b.rows - 1].end - 1) / KV_PAGE_ROWS;
    for (size_t page = b.span[0].first / KV_PAGE_ROWS; page <= last; page++) {
        const float *keys, *values;
        kv_cache_read(c, job->layer, head, page, own, b.page, &keys, &values);
        attend_page(&b, keys, values, page);
    }
    write_sums(job, &b, head, width);
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
                      .blocks = (first + n - 1) / QUERY_ROWS - first / QUERY_ROWS + 1};
    tacit_pool_run(pool, c->m->layer[layer].n_kv_heads * job.blocks, attend_task, &job);
}
