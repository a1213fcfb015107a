#include "engine/text_attention.h"

#include "engine/ops.h"

#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#define ATTENTION_BLOCK 64 /* query rows whose scores exist at a time */

typedef struct attention_call {
    text_attention s;
    float *out, *dq, *dk, *dv;
    const float *dout, *q, *k, *v;
    float *scratch;
    float scale;
} attention_call;

/* One block of query rows of one head, with its own column offsets into q and k/v. */
typedef struct attention_block {
    size_t first, rows, keys;
    size_t q_at, kv_at, q_stride, kv_stride;
    float *scores, *d_scores; /* [rows, keys] */
} attention_block;

static pthread_once_t attention_blas = PTHREAD_ONCE_INIT;

static void attention_one_blas_thread(void)
{
    openblas_set_num_threads(1);
}

size_t text_attention_scratch(size_t keys, size_t threads)
{
    return 2 * ATTENTION_BLOCK * keys * threads;
}

static size_t visible_keys(const text_attention *s, size_t query)
{
    return s->visible ? s->visible[query] : query + 1;
}

static attention_block block_at(const attention_call *c, size_t head, size_t first, size_t thread)
{
    const text_attention *s = &c->s;
    attention_block b = {.first = first};
    b.rows = s->queries - first < ATTENTION_BLOCK ? s->queries - first : ATTENTION_BLOCK;
    b.keys = visible_keys(s, first + b.rows - 1);
    b.q_stride = s->n_heads * s->head_dim;
    b.kv_stride = s->n_kv_heads * s->head_dim;
    b.q_at = first * b.q_stride + head * s->head_dim;
    b.kv_at = head / (s->n_heads / s->n_kv_heads) * s->head_dim;
    b.scores = c->scratch + thread * 2 * ATTENTION_BLOCK * s->keys;
    b.d_scores = b.scores + ATTENTION_BLOCK * s->keys;
    return b;
}

/* scores = softmax(scale q k^T) over the visible keys, zero beyond. */
static void block_scores(const attention_call *c, const attention_block *b)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)b->rows, (blasint)b->keys,
                (blasint)c->s.head_dim, c->scale, c->q + b->q_at, (blasint)b->q_stride,
                c->k + b->kv_at, (blasint)b->kv_stride, 0.0f, b->scores, (blasint)b->keys);
    for (size_t r = 0; r < b->rows; r++) {
        float *row = b->scores + r * b->keys;
        size_t seen = visible_keys(&c->s, b->first + r);
        ops_softmax_forward(row, row, 1, seen);
        memset(row + seen, 0, (b->keys - seen) * sizeof *row);
    }
}

static void forward_head(void *ctx, size_t head, size_t thread)
{
    const attention_call *c = ctx;
    for (size_t first = 0; first < c->s.queries; first += ATTENTION_BLOCK) {
        attention_block b = block_at(c, head, first, thread);
        block_scores(c, &b);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)b.rows,
                    (blasint)c->s.head_dim, (blasint)b.keys, 1.0f, b.scores, (blasint)b.keys,
                    c->v + b.kv_at, (blasint)b.kv_stride, 0.0f, c->out + b.q_at,
                    (blasint)b.q_stride);
    }
}

/* dk and dv of this head's columns grow by the block; dq of the block is written last, since it may
 * be the memory of dout. */
static void backward_block(const attention_call *c, const attention_block *b)
{
    blasint rows = (blasint)b->rows, keys = (blasint)b->keys, dim = (blasint)c->s.head_dim;
    blasint q_stride = (blasint)b->q_stride, kv_stride = (blasint)b->kv_stride;
    block_scores(c, b);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, keys, dim, 1.0f, c->dout + b->q_at,
                q_stride, c->v + b->kv_at, kv_stride, 0.0f, b->d_scores, keys);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, keys, dim, rows, 1.0f, b->scores, keys,
                c->dout + b->q_at, q_stride, 1.0f, c->dv + b->kv_at, kv_stride);
    for (size_t r = 0; r < b->rows; r++) {
        float *row = b->d_scores + r * b->keys;
        size_t seen = visible_keys(&c->s, b->first + r);
        ops_softmax_backward(row, row, b->scores + r * b->keys, 1, seen);
        memset(row + seen, 0, (b->keys - seen) * sizeof *row);
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, keys, dim, rows, c->scale, b->d_scores,
                keys, c->q + b->q_at, q_stride, 1.0f, c->dk + b->kv_at, kv_stride);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, dim, keys, c->scale, b->d_scores,
                keys, c->k + b->kv_at, kv_stride, 0.0f, c->dq + b->q_at, q_stride);
}

/* All query heads that read one head of keys and values: its gradients have one writer. */
static void backward_kv_head(void *ctx, size_t kv_head, size_t thread)
{
    const attention_call *c = ctx;
    const text_attention *s = &c->s;
    size_t group = s->n_heads / s->n_kv_heads, stride = s->n_kv_heads * s->head_dim;
    for (size_t r = 0; r < s->keys; r++) {
        memset(c->dk + r * stride + kv_head * s->head_dim, 0, s->head_dim * sizeof(float));
        memset(c->dv + r * stride + kv_head * s->head_dim, 0, s->head_dim * sizeof(float));
    }
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (size_t first = 0; first < s->queries; first += ATTENTION_BLOCK) {
            attention_block b = block_at(c, head, first, thread);
            backward_block(c, &b);
        }
}

void text_attention_forward(tacit_pool *pool, const text_attention *s, float *out, const float *q,
                            const float *k, const float *v, float *scratch)
{
    attention_call c = {.s = *s, .out = out, .q = q, .k = k, .v = v, .scratch = scratch};
    c.scale = 1.0f / sqrtf((float)s->head_dim);
    pthread_once(&attention_blas, attention_one_blas_thread);
    tacit_pool_run(pool, s->n_heads, forward_head, &c);
}

void text_attention_backward(tacit_pool *pool, const text_attention *s, float *dq, float *dk,
                             float *dv, const float *dout, const float *q, const float *k,
                             const float *v, float *scratch)
{
    attention_call c = {.s = *s, .dq = dq, .dk = dk, .dv = dv, .dout = dout, .q = q, .k = k};
    c.v = v;
    c.scratch = scratch;
    c.scale = 1.0f / sqrtf((float)s->head_dim);
    pthread_once(&attention_blas, attention_one_blas_thread);
    tacit_pool_run(pool, s->n_kv_heads, backward_kv_head, &c);
}
