#include "engine/tower_attention.h"

#include "engine/kernels.h"

#include <math.h>
#include <string.h>

#define QUERIES ((size_t)48) /* of a task: a multiple of the register tiles' heights */
#define KEYS ((size_t)128)   /* of a block: a multiple of every kernel table's panel */
#define MAX_PANEL ((size_t)32)

typedef struct attend_job {
    tower_attention a;
    size_t dim, key_blocks;
    size_t panel;  /* columns that the kernels read side by side */
    float *keys;   /* [heads, key_blocks, KEYS / panel, dim, panel], zeros behind the last */
    float *values; /* [heads, value_panels, rows, panel] */
    size_t value_panels;
    float *task; /* [threads, task_floats] */
} attend_job;

static size_t task_floats(size_t dim)
{
    return QUERIES * (2 * dim + KEYS + 2);
}

static size_t blocks_of(size_t rows, size_t block)
{
    return (rows + block - 1) / block;
}

size_t tower_attention_scratch(size_t rows, size_t width, size_t heads, size_t threads)
{
    size_t dim = width / heads;
    return width * KEYS * blocks_of(rows, KEYS) +
           heads * blocks_of(dim, MAX_PANEL) * MAX_PANEL * rows + threads * task_floats(dim);
}

/* Row `row` of a panel of a head's values. */
static float *values_of(const attend_job *job, size_t head, size_t panel, size_t row)
{
    return job->values + ((head * job->value_panels + panel) * job->a.rows + row) * job->panel;
}

/* Keys and values of one head and block, put into panels. */
static void gather(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const attend_job *job = ctx;
    const tower_attention *a = &job->a;
    size_t head = i / job->key_blocks, first = i % job->key_blocks * KEYS;
    size_t n = a->rows - first < KEYS ? a->rows - first : KEYS;
    float *keys = job->keys + i * job->dim * KEYS;
    float *values = values_of(job, head, 0, first);
    if (n < KEYS)
        memset(keys, 0, job->dim * KEYS * sizeof *keys);
    for (size_t r = 0; r < n; r++) {
        size_t from = (first + r) * a->width + head * job->dim;
        float *key = keys + r / job->panel * job->panel * job->dim + r % job->panel;
        for (size_t c = 0; c < job->dim; c++)
            key[c * job->panel] = a->k[from + c];
        for (size_t c = 0; c < job->dim; c++)
            values[(c / job->panel * a->rows + r) * job->panel + c % job->panel] = a->v[from + c];
    }
}

/* Some queries of one head on their way through the keys. */
typedef struct query_block {
    size_t rows;
    float *query;       /* [rows, dim], scaled */
    float *sum;         /* [rows, dim]: weights times values */
    float *score;       /* [rows, KEYS] */
    float *max, *total; /* [rows] */
} query_block;

static query_block start(const attend_job *job, size_t head, size_t first, size_t thread)
{
    const tower_attention *a = &job->a;
    float scale = 1.0f / sqrtf((float)job->dim);
    query_block b = {.rows = a->rows - first < QUERIES ? a->rows - first : QUERIES};
    b.query = job->task + thread * task_floats(job->dim);
    b.sum = b.query + QUERIES * job->dim;
    b.score = b.sum + QUERIES * job->dim;
    b.max = b.score + QUERIES * KEYS;
    b.total = b.max + QUERIES;
    for (size_t r = 0; r < b.rows; r++) {
        const float *q = a->q + (first + r) * a->width + head * job->dim;
        for (size_t c = 0; c < job->dim; c++)
            b.query[r * job->dim + c] = q[c] * scale;
        b.max[r] = -INFINITY;
        b.total[r] = 0;
    }
    memset(b.sum, 0, b.rows * job->dim * sizeof *b.sum);
    return b;
}

/* Turns the scores of row r into weights relative to the largest so far. */
static void weigh(const query_block *b, size_t r, size_t n, size_t dim)
{
    const tacit_kernels *k = kernels();
    float *score = b->score + r * KEYS;
    float most = k->max(score, n);
    if (most > b->max[r]) {
        float shrink = expf(b->max[r] - most);
        for (size_t c = 0; c < dim; c++)
            b->sum[r * dim + c] *= shrink;
        b->total[r] *= shrink;
        b->max[r] = most;
    }
    b->total[r] += k->exp_sum(score, score, b->max[r], n);
}

static void attend_keys(const attend_job *job, const query_block *b, size_t head, size_t block)
{
    size_t first = block * KEYS, left = job->a.rows - first, n = left < KEYS ? left : KEYS;
    const float *keys = job->keys + (head * job->key_blocks + block) * job->dim * KEYS;
    for (size_t c = 0; c < n; c += job->panel)
        kernels()->multiply(b->score + c, KEYS, b->query, job->dim, 1, keys + c * job->dim,
                            job->panel, false, b->rows, job->panel, job->dim, false);
    for (size_t r = 0; r < b->rows; r++)
        weigh(b, r, n, job->dim);
    for (size_t c = 0; c < job->dim; c += job->panel)
        kernels()->multiply(b->sum + c, job->dim, b->score, KEYS, 1,
                            values_of(job, head, c / job->panel, first), job->panel, false, b->rows,
                            job->dim - c < job->panel ? job->dim - c : job->panel, n, true);
}

static void attend_task(void *ctx, size_t i, size_t thread)
{
    const attend_job *job = ctx;
    size_t cuts = blocks_of(job->a.rows, QUERIES), head = i / cuts, first = i % cuts * QUERIES;
    query_block b = start(job, head, first, thread);
    for (size_t block = 0; block < job->key_blocks; block++)
        attend_keys(job, &b, head, block);
    for (size_t r = 0; r < b.rows; r++) {
        float *out = job->a.out + (first + r) * job->a.width + head * job->dim;
        for (size_t c = 0; c < job->dim; c++)
            out[c] = b.sum[r * job->dim + c] / b.total[r];
    }
}

void tower_attend(tacit_pool *pool, const tower_attention *a, float *scratch)
{
    attend_job job = {.a = *a, .dim = a->width / a->heads, .key_blocks = blocks_of(a->rows, KEYS)};
    job.panel = kernels()->panel;
    job.value_panels = blocks_of(job.dim, job.panel);
    job.keys = scratch;
    job.values = job.keys + a->width * KEYS * job.key_blocks;
    job.task = job.values + a->heads * job.value_panels * job.panel * a->rows;
    tacit_pool_run(pool, a->heads * job.key_blocks, gather, &job);
    tacit_pool_run(pool, a->heads * blocks_of(a->rows, QUERIES), attend_task, &job);
}
