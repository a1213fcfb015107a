#include "engine/text_attention.h"

#include "engine/matrix_block.h"
#include "engine/ops.h"

#include <string.h>

#define ATTENTION_BLOCK 64 /* query rows whose scores exist at a time */

typedef struct attention_call {
    text_attention s;
    float *out, *dq, *dk, *dv;
    const float *dout, *q, *k, *v;
    float *scratch;
} attention_call;

/* One block of query rows of one head, with its own column offsets into q and k/v, whose first row
 * is the first key that any of the block sees. */
typedef struct attention_block {
    size_t first, rows, first_key, keys;
    size_t q_at, kv_at, q_stride, kv_stride;
    float *scores, *d_scores; /* [rows, keys] */
} attention_block;

size_t text_attention_scratch(size_t keys, size_t threads)
{
    return keys * threads * 2 * ATTENTION_BLOCK;
}

static attention_block block_at(const attention_call *c, size_t head, size_t first, size_t thread)
{
    const text_attention *s = &c->s;
    attention_block b = {.first = first};
    b.rows = s->queries - first < ATTENTION_BLOCK ? s->queries - first : ATTENTION_BLOCK;
    b.first_key = s->span[first].first;
    b.keys = s->span[first + b.rows - 1].end - b.first_key;
    b.q_stride = s->n_heads * s->head_dim;
    b.kv_stride = s->n_kv_heads * s->head_dim;
    b.q_at = first * b.q_stride + head * s->head_dim;
    b.kv_at = b.first_key * b.kv_stride + head / (s->n_heads / s->n_kv_heads) * s->head_dim;
    b.scores = c->scratch + thread * 2 * ATTENTION_BLOCK * s->keys;
    b.d_scores = b.scores + ATTENTION_BLOCK * s->keys;
    return b;
}

/* The operands of the products of a block: its rows of q, out and their gradients, the head's
 * columns of k and v. */
typedef struct attention_operand {
    const float *data;
    size_t stride;
} attention_operand;

static attention_operand of_queries(const attention_block *b, const float *data)
{
    return (attention_operand){data + b->q_at, b->q_stride};
}

static attention_operand of_keys(const attention_block *b, const float *data)
{
    return (attention_operand){data + b->kv_at, b->kv_stride};
}

/* to[rows, keys] = x[rows, dim] w[keys, dim]^T */
static void multiply_to_scores(const attention_call *c, const attention_block *b, float *to,
                               attention_operand x, attention_operand w)
{
    matrix_block p = {.y = to, .y_stride = b->keys, .x = x.data, .x_stride = x.stride};
    p.w = w.data;
    p.w_stride = w.stride;
    p.m = b->rows;
    p.n = b->keys;
    p.k = c->s.head_dim;
    p.transpose_w = true;
    matrix_block_run(&p);
}

/* to[rows, dim] of the block = scores[rows, keys] w[keys, dim] */
static void multiply_to_queries(const attention_call *c, const attention_block *b, float *to,
                                const float *scores, attention_operand w)
{
    matrix_block p = {.y = to + b->q_at, .y_stride = b->q_stride, .x = scores};
    p.x_stride = b->keys;
    p.w = w.data;
    p.w_stride = w.stride;
    p.m = b->rows;
    p.n = c->s.head_dim;
    p.k = b->keys;
    matrix_block_run(&p);
}

/* to[keys, dim] of the head += scores[rows, keys]^T w[rows, dim] */
static void multiply_to_keys(const attention_call *c, const attention_block *b, float *to,
                             const float *scores, attention_operand w)
{
    matrix_block p = {.y = to + b->kv_at, .y_stride = b->kv_stride, .x = scores};
    p.x_stride = b->keys;
    p.w = w.data;
    p.w_stride = w.stride;
    p.m = b->keys;
    p.n = c->s.head_dim;
    p.k = b->rows;
    p.transpose_x = true;
    p.accumulate = true;
    matrix_block_run(&p);
}

/* The scores of row r of a block that it sees: where they begin, and how many they are. */
static float *seen_scores(const attention_call *c, const attention_block *b, float *scores,
                          size_t r, size_t *seen)
{
    text_span span = c->s.span[b->first + r];
    *seen = span.end - span.first;
    return scores + r * b->keys + (span.first - b->first_key);
}

/* Zero where row r of a block sees nothing. */
static void clear_unseen(const attention_call *c, const attention_block *b, float *scores, size_t r)
{
    text_span span = c->s.span[b->first + r];
    float *row = scores + r * b->keys;
    size_t end = span.end - b->first_key;
    memset(row, 0, (span.first - b->first_key) * sizeof *row);
    memset(row + end, 0, (b->keys - end) * sizeof *row);
}

/* scores = softmax(scale q k^T) over the keys that are seen, zero elsewhere. */
static void block_scores(const attention_call *c, const attention_block *b)
{
    multiply_to_scores(c, b, b->scores, of_queries(b, c->q), of_keys(b, c->k));
    for (size_t r = 0; r < b->rows; r++) {
        size_t seen;
        float *row = seen_scores(c, b, b->scores, r, &seen);
        ops_scale(row, c->s.scale, seen);
        ops_softmax_forward(row, row, 1, seen);
        clear_unseen(c, b, b->scores, r);
    }
}

static void forward_head(void *ctx, size_t head, size_t thread)
{
    const attention_call *c = ctx;
    for (size_t first = 0; first < c->s.queries; first += ATTENTION_BLOCK) {
        attention_block b = block_at(c, head, first, thread);
        block_scores(c, &b);
        multiply_to_queries(c, &b, c->out, b.scores, of_keys(&b, c->v));
    }
}

/* dk and dv of this head's columns grow by the block; dq of the block is written last, since it may
 * be the memory of dout. */
static void backward_block(const attention_call *c, const attention_block *b)
{
    block_scores(c, b);
    multiply_to_scores(c, b, b->d_scores, of_queries(b, c->dout), of_keys(b, c->v));
    multiply_to_keys(c, b, c->dv, b->scores, of_queries(b, c->dout));
    for (size_t r = 0; r < b->rows; r++) {
        size_t seen;
        float *row = seen_scores(c, b, b->d_scores, r, &seen);
        ops_softmax_backward(row, row, seen_scores(c, b, b->scores, r, &seen), 1, seen);
        ops_scale(row, c->s.scale, seen);
        clear_unseen(c, b, b->d_scores, r);
    }
    multiply_to_keys(c, b, c->dk, b->d_scores, of_queries(b, c->q));
    multiply_to_queries(c, b, c->dq, b->d_scores, of_keys(b, c->k));
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
    tacit_pool_run(pool, s->n_heads, forward_head, &c);
}

void text_attention_backward(tacit_pool *pool, const text_attention *s, float *dq, float *dk,
                             float *dv, const float *dout, const float *q, const float *k,
                             const float *v, float *scratch)
{
    attention_call c = {.s = *s, .dq = dq, .dk = dk, .dv = dv, .dout = dout, .q = q, .k = k};
    c.v = v;
    c.scratch = scratch;
    tacit_pool_run(pool, s->n_kv_heads, backward_kv_head, &c);
}
