/* The forward pass of inference over a range of layers: state in, state out.
 *
 * What enters and leaves is x [rows, embedding], the residual stream between layers, so that a
 * range of layers is also a checkpoint, an early exit or one half of a split model. */
#ifndef TACIT_ENGINE_TEXT_FORWARD_H
#define TACIT_ENGINE_TEXT_FORWARD_H

#include "engine/context.h"
#include "engine/fast.h"
#include "engine/fast_model.h"
#include "engine/kv_cache.h"

typedef struct text_forward {
    const tacit_text_model *m;
    tacit_pool *pool;
    const text_pairs *pairs;  /* NULL: none */
    const fast_model *packed; /* NULL: exact precision */
    const tacit_tap *tap;     /* NULL: none */
    size_t max_rows;          /* of one call */
    float *memory;            /* everything below */
    float *h, *gate, *up, *scratch;
    float *mix;              /* work of the layer's kind */
    float *turn[TEXT_ROPES]; /* of the rows at hand: ops_rope_table */
    fast_input fast;
} text_forward;

/* Plans the memory for calls of at most max_rows rows and pairs of at most max_rank. `packed` are
 * the weights of m for fast precision, which outlive this; NULL computes exactly. */
tacit_status text_forward_init(text_forward *f, const tacit_text_model *m, tacit_pool *pool,
                               const fast_model *packed, size_t max_rows, size_t max_rank,
                               tacit_error *err) TACIT_MUST_CHECK;
void text_forward_fini(text_forward *f);
/* Bytes that text_forward_init would take. */
size_t text_forward_bytes(const tacit_text_model *m, tacit_pool *pool, tacit_precision precision,
                          size_t max_rows, size_t max_rank);

/* Runs layers [from, to) on x in place. Its rows are rows first .. of the sequence in `cache`,
 * which are placed there (kv_cache_place) and follow those it holds; none is of a mask group that
 * goes on behind them. */
void text_forward_layers(text_forward *f, size_t from, size_t to, kv_cache *cache, size_t first,
                         float *x, size_t rows);

/* logits[rows, vocab] of x after the last layer. */
void text_forward_logits(text_forward *f, float *logits, const float *x, size_t rows);

/* For kinds of layers: y[i] = linear which[i] of a layer, all of the same x [rows, n_in];
 * `multiply` where x is the input made ready, as f->h is for the linears that the kind begins with.
 */
void text_forward_multiply(text_forward *f, size_t layer, const text_linear *which, size_t count,
                           float *const *y, const float *x, size_t rows);
void text_forward_apply(text_forward *f, size_t layer, const text_linear *which, size_t count,
                        float *const *y, const float *x, size_t rows);
/* x [rows, heads, head_dim] in place: each head normed by w, unless that is NULL, and turned. */
void text_forward_turn(const text_forward *f, size_t layer, float *x, const float *w, size_t heads,
                       size_t rows);

#endif
