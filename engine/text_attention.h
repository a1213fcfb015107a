/* Grouped-query attention over the rows of one example, forward and backward (Vaswani et al.
 * 2017; Ainslie et al. 2023, arXiv 2305.13245). Scores exist for one block of query rows at a time;
 * the backward computes them again. Heads are tasks of the pool and the sums of a head run in a
 * fixed order, so results do not depend on the number of threads. */
#ifndef TACIT_ENGINE_TEXT_ATTENTION_H
#define TACIT_ENGINE_TEXT_ATTENTION_H

#include "common/pool.h"
#include "engine/text_place.h"

typedef struct text_attention {
    size_t n_heads, n_kv_heads, head_dim;
    size_t keys;    /* rows of k and v */
    size_t queries; /* rows of q */
    float scale;    /* of the scores */
    /* What query i sees, at least one of the keys; neither first nor end descends. */
    const text_span *span;
} text_attention;

/* Floats of scratch for `keys` rows and `threads` threads. */
size_t text_attention_scratch(size_t keys, size_t threads);

/* out[queries, n_heads * head_dim] from q of that shape and k, v [keys, n_kv_heads * head_dim]. */
void text_attention_forward(tacit_pool *pool, const text_attention *s, float *out, const float *q,
                            const float *k, const float *v, float *scratch);

/* dq, dk and dv are written. dq may be the memory of dout. */
void text_attention_backward(tacit_pool *pool, const text_attention *s, float *dq, float *dk,
                             float *dv, const float *dout, const float *q, const float *k,
                             const float *v, float *scratch);

#endif
