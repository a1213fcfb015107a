/* The low-rank pairs of an adapter that stand beside an encoder's linears, as a pass sees them. For
 * the units that compute encoders. */
#ifndef TACIT_ENGINE_ENCODER_ADAPTER_H
#define TACIT_ENGINE_ENCODER_ADAPTER_H

#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/linear.h"

/* Owns nothing; what it points to may change between calls of a pass, but for the ranks. */
typedef struct encoder_adapter {
    const tacit_low_rank *pair;           /* [tensors], of rank 0 where there is none */
    const linear_pair_gradient *gradient; /* [tensors], where the backward adds; NULL: nowhere */
    size_t max_rank;
} encoder_adapter;

/* The pair beside tensor i, or NULL; `a` may be NULL. */
static inline const tacit_low_rank *encoder_pair(const encoder_adapter *a, size_t i)
{
    return a && a->pair[i].rank > 0 ? &a->pair[i] : NULL;
}

/* Whether the backward wants something of tensor i's pair. */
static inline bool encoder_pair_is_trained(const encoder_adapter *a, size_t i)
{
    const linear_pair_gradient *g = encoder_pair(a, i) && a->gradient ? &a->gradient[i] : NULL;
    return g && (g->a || g->b || g->core);
}

/* The gradients of tensor i's pair, if there is one, from dy and x as in linear_backward_pair. */
static inline void encoder_pair_backward(tacit_pool *pool, const encoder_adapter *a, size_t i,
                                         const tacit_linear *l, const float *dy, const float *x,
                                         size_t rows, float *scratch)
{
    if (encoder_pair_is_trained(a, i))
        linear_backward_pair(pool, l, &a->pair[i], &a->gradient[i], dy, x, rows, scratch);
}

/* *wide becomes scratch of `floats` for linears with the adapter's pairs, and what was there is
 * freed; without pairs it stays. `what`: of messages. */
static inline tacit_status encoder_adapter_scratch(float **wide, const encoder_adapter *a,
                                                   size_t floats, const char *what,
                                                   tacit_error *err)
{
    void *scratch;
    if (!a || a->max_rank == 0)
        return TACIT_OK;
    tacit_status status = tacit_memory_alloc(&scratch, floats, sizeof(float), what,
                                             "take one of a smaller rank", err);
    if (status != TACIT_OK)
        return status;
    tacit_wipe_free(*wide);
    *wide = scratch;
    return TACIT_OK;
}

#endif
