/* The one linear operator of every model: y = x W^T + bias + scale (x A^T) R^T B^T.
 *
 * W [n_out, n_in] stays in the file's type and is dequantized tile by tile while it is used; a
 * tiny model may hold an fp32 copy of it (and of its transpose), and a trainable weight is a linear
 * whose type is F32. Everything here computes in fp32 ("exact"): the integer path is in fast.h.
 * Rows are independent of each other up to rounding; work is cut at boundaries that do not depend
 * on the number of threads, so results are bitwise the same for 1 and for many. Functions are
 * thread-safe as long as outputs and scratch differ; one thread drives a pool at a time. */
#ifndef TACIT_ENGINE_LINEAR_H
#define TACIT_ENGINE_LINEAR_H

#include "common/pool.h"
#include "engine/gguf.h"

#include <stdbool.h>

/* A low-rank pair (Hu et al. 2021, arXiv 2106.09685), with or without a core between its halves.
 * Owns nothing. */
typedef struct tacit_low_rank {
    const float *a; /* [rank, n_in] */
    const float *b; /* [n_out, rank] */
    size_t rank;    /* 0: no pair */
    float scale;
    const float *core; /* R [rank, rank], or NULL: the identity */
} tacit_low_rank;

/* Columns of a panel: the widest register tile. The last panel is filled with zeros. */
#define LINEAR_PANEL 32

typedef struct tacit_linear {
    const void *weight; /* [n_out, n_in]: n_out rows of row_bytes; the map's or the caller's */
    const tacit_type_traits *type;
    size_t row_bytes;
    const float *bias; /* [n_out], or NULL */
    size_t n_in, n_out;
    float *expanded;   /* fp32 [n_out, n_in], or NULL; see linear_cache */
    float *panels;     /* fp32 W in panels of LINEAR_PANEL columns: [panel][n_out][LINEAR_PANEL] */
    float *transposed; /* fp32 W^T in panels: [panel][n_in][LINEAR_PANEL] */
} tacit_linear;

/* Over a tensor of shape [n_in, n_out] (GGUF order); refused with TACIT_BAD_INPUT when the shape
 * is another or the type cannot be computed. `bias` may be NULL. Allocates nothing. */
tacit_status linear_init(tacit_linear *l, const gguf_tensor *weight, const float *bias, size_t n_in,
                         size_t n_out, tacit_error *err) TACIT_MUST_CHECK;
/* Over fp32 values [n_out, n_in] that the caller keeps (trainable weights, tests). */
void linear_init_f32(tacit_linear *l, const float *weight, const float *bias, size_t n_in,
                     size_t n_out);

/* Keeps fp32 copies of W (12 bytes a value), plain and in the panels that the products read, so
 * that no later call dequantizes or packs: for models small enough. The linear owns them;
 * linear_drop_cache releases them. */
tacit_status linear_cache(tacit_linear *l) TACIT_MUST_CHECK;
void linear_drop_cache(tacit_linear *l);
/* TACIT_NO_MEMORY where copies of so many values do not fit: asked once, before those of a model or
 * a tower are made. */
tacit_status linear_cache_judge(size_t values, tacit_error *err) TACIT_MUST_CHECK;

/* Dequantizes the whole weight into `buffer` [linear_expand_floats] and makes `out` a linear over
 * it, for linear_forward alone or with `backward` for linear_backward_input alone: one visit of a
 * layer then serves many products. The buffer outlives `out`, which owns nothing. */
void linear_expand(tacit_pool *pool, tacit_linear *out, const tacit_linear *l, bool backward,
                   float *buffer);
size_t linear_expand_floats(const tacit_linear *l);

/* Row `i` of W as fp32 [n_in]: token embeddings. i < n_out. */
void linear_row(const tacit_linear *l, size_t i, float *out);

/* Floats of scratch that every function below may use for this linear, `rows` rows, a pair of at
 * most `rank` and `threads` threads. Grows with each argument. */
size_t linear_scratch(const tacit_linear *l, size_t rows, size_t rank, size_t threads);

/* y[rows, n_out] = x[rows, n_in] W^T + bias + scale (x A^T) R^T B^T. `pair` may be NULL. */
void linear_forward(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair, float *y,
                    const float *x, size_t rows, float *scratch);

/* y += scale (x A^T) R^T B^T alone. `pair` may be NULL. */
void linear_add_pair(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair, float *y,
                     const float *x, size_t rows, float *scratch);

/* dx[rows, n_in] (+)= dy[rows, n_out] W + scale (dy B) R A. With `accumulate` it is added to dx. */
void linear_backward_input(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                           float *dx, const float *dy, size_t rows, bool accumulate,
                           float *scratch);

/* dx += scale (dy B) R A alone. `pair` may be NULL. */
void linear_add_pair_input(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                           float *dx, const float *dy, size_t rows, float *scratch);

/* dw[n_out, n_in] += dy^T x. */
void linear_backward_weight(tacit_pool *pool, const tacit_linear *l, float *dw, const float *dy,
                            const float *x, size_t rows);
/* dbias[n_out] += the sum of dy over the rows, in row order. */
void linear_backward_bias(const tacit_linear *l, float *dbias, const float *dy, size_t rows);
/* Where the gradients of a pair are added; NULL: that part is frozen. A pair with a core has
 * nothing else trained. */
typedef struct linear_pair_gradient {
    float *a, *b, *core;
} linear_pair_gradient;

/* da[rank, n_in] += scale (dy B)^T x; db[n_out, rank] += scale dy^T (x A^T);
 * dcore[rank, rank] += scale (dy B)^T (x A^T). */
void linear_backward_pair(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                          const linear_pair_gradient *d, const float *dy, const float *x,
                          size_t rows, float *scratch);

#endif
