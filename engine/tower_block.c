#include "engine/tower_block.h"

#include "engine/matrix_block.h"
#include "engine/ops.h"

#include <math.h>

/* ---- the arena ---- */

float *tower_piece(tower_planner *a, size_t floats)
{
    float *at = a->base ? a->base + a->used : NULL;
    a->used += (floats + 15) / 16 * 16;
    return at;
}

/* Training keeps every activation apart; inference lets later ones overwrite earlier ones. */
void tower_block_plan(tower_block *b, tower_planner *a, size_t rows, size_t width, size_t ff,
                      bool train)
{
    size_t n = rows * width, wide = rows * ff;
    b->norm1 = tower_piece(a, n);
    b->q = tower_piece(a, n);
    b->k = tower_piece(a, n);
    b->v = tower_piece(a, n);
    b->up = tower_piece(a, wide);
    b->mixed = train ? tower_piece(a, n) : b->norm1;
    b->middle = train ? tower_piece(a, n) : b->q;
    b->norm2 = train ? tower_piece(a, n) : b->norm1;
    b->act = train ? tower_piece(a, wide) : b->up;
}

/* ---- attention ---- */

/* One side of a product of a head. */
typedef struct head_matrix {
    const float *at;
    size_t stride;
    bool transpose;
} head_matrix;

static void head_product(float *y, size_t y_stride, head_matrix x, head_matrix w, size_t m,
                         size_t n, size_t k, bool accumulate)
{
    matrix_block product = {.y = y,
                            .y_stride = y_stride,
                            .x = x.at,
                            .x_stride = x.stride,
                            .w = w.at,
                            .w_stride = w.stride,
                            .m = m,
                            .n = n,
                            .k = k,
                            .transpose_x = x.transpose,
                            .transpose_w = w.transpose,
                            .accumulate = accumulate};
    matrix_block_run(&product);
}

static size_t queries_at(const tower_heads *t, size_t first)
{
    size_t left = t->rows - first;
    return left < t->queries ? left : t->queries;
}

/* scores[n, rows] = softmax(q k^T / sqrt(head width)) of head h for the rows [first, first + n). */
static void attend(const tower_heads *t, size_t h, size_t first, size_t n, float *scores)
{
    size_t head = t->width / t->heads, at = h * head;
    head_product(scores, t->rows, (head_matrix){t->b->q + first * t->width + at, t->width, false},
                 (head_matrix){t->b->k + at, t->width, true}, n, t->rows, head, false);
    ops_scale(scores, 1.0f / sqrtf((float)head), n * t->rows);
    ops_softmax_forward(scores, scores, n, t->rows);
}

static void mix_queries(void *ctx, size_t i, size_t thread)
{
    const tower_heads *t = ctx;
    size_t head = t->width / t->heads, at = i % t->heads * head;
    size_t first = i / t->heads * t->queries, n = queries_at(t, first);
    float *scores = t->scores + thread * t->scores_stride;
    attend(t, i % t->heads, first, n, scores);
    head_product(t->b->mixed + first * t->width + at, t->width,
                 (head_matrix){scores, t->rows, false},
                 (head_matrix){t->b->v + at, t->width, false}, n, head, t->rows, false);
}

void tower_heads_forward(tacit_pool *pool, const tower_heads *t)
{
    size_t cuts = (t->rows + t->queries - 1) / t->queries;
    tacit_pool_run(pool, t->heads * cuts, mix_queries, (void *)(uintptr_t)t);
}

typedef struct backward_job {
    const tower_heads *t;
    const tower_heads_gradient *d;
} backward_job;

/* With P the attention of head h and dY the gradient of its output: dV = P^T dY, dS = softmax'(dY
 * V^T) / sqrt(head), dQ = dS K, dK = dS^T Q, some queries after the others. */
static void head_backward(void *ctx, size_t h, size_t thread)
{
    const backward_job *job = ctx;
    const tower_heads *t = job->t;
    const tower_heads_gradient *d = job->d;
    size_t rows = t->rows, width = t->width, head = width / t->heads, at = h * head;
    float *attention = t->scores + thread * t->scores_stride;
    float *ds = attention + t->scores_stride / 2;
    for (size_t first = 0; first < rows; first += t->queries) {
        size_t n = queries_at(t, first), row = first * width + at;
        bool more = first > 0;
        const head_matrix dy = {d->mixed + row, width, false};
        attend(t, h, first, n, attention);
        head_product(d->v + at, width, (head_matrix){attention, rows, true}, dy, rows, head, n,
                     more);
        head_product(ds, rows, dy, (head_matrix){t->b->v + at, width, true}, n, rows, head, false);
        ops_softmax_backward(ds, ds, attention, n, rows);
        ops_scale(ds, 1.0f / sqrtf((float)head), n * rows);
        head_product(d->q + row, width, (head_matrix){ds, rows, false},
                     (head_matrix){t->b->k + at, width, false}, n, head, rows, false);
        head_product(d->k + at, width, (head_matrix){ds, rows, true},
                     (head_matrix){t->b->q + row, width, false}, rows, head, n, more);
    }
}

void tower_heads_backward(tacit_pool *pool, const tower_heads *t, const tower_heads_gradient *d)
{
    backward_job job = {t, d};
    tacit_pool_run(pool, t->heads, head_backward, &job);
}
