/* The forward pass of inference over a range of layers: state in, state out.
 *
 * What enters and leaves is x [rows, embedding], the residual stream between layers, so that a
 * range of layers is also a checkpoint, an early exit or one half of a split model. */
#ifndef TACIT_ENGINE_TEXT_FORWARD_H
#define TACIT_ENGINE_TEXT_FORWARD_H

#include "engine/context.h"
#include "engine/fast.h"
#include "engine/kv_cache.h"

typedef struct text_forward {
    const tacit_text_model *m;
    tacit_pool *pool;
    const text_pairs *pairs; /* NULL: none */
    const tacit_tap *tap;    /* NULL: none */
    tacit_precision precision;
    size_t max_rows; /* of one call */
    float *memory;   /* everything below */
    float *h, *q, *k, *v, *attended, *gate, *up, *turn, *scratch;
    fast_input fast;
} text_forward;

/* Plans the memory for calls of at most max_rows rows and pairs of at most max_rank. */
tacit_status text_forward_init(text_forward *f, const tacit_text_model *m, tacit_pool *pool,
                               tacit_precision precision, size_t max_rows, size_t max_rank,
                               tacit_error *err) TACIT_MUST_CHECK;
void text_forward_fini(text_forward *f);
/* Bytes that text_forward_init would take. */
size_t text_forward_bytes(const tacit_text_model *m, tacit_pool *pool, tacit_precision precision,
                          size_t max_rows, size_t max_rank);

/* Runs layers [from, to) on x in place. Its rows are rows first .. of the sequence in `cache`,
 * which has room for them and holds the ones before; position[rows] are their positions. */
void text_forward_layers(text_forward *f, size_t from, size_t to, kv_cache *cache, size_t first,
                         float *x, const uint32_t *position, size_t rows);

/* logits[rows, vocab] of x after the last layer. */
void text_forward_logits(text_forward *f, float *logits, const float *x, size_t rows);

#endif
