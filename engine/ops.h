/* The small operations of the layers, forward and backward, over rows of fp32.
 *
 * Every function is serial over its rows, and rows do not influence each other: callers cut rows
 * across the pool. In backward functions `dx`, `dw`, ... are ADDED to and `dy` is read, unless the
 * comment says otherwise; weight gradients are summed in row order; an output may be NULL when it
 * is not wanted. x and y may be the same memory in the element-wise forwards. Vectors go through
 * the kernel table (kernels.h); each operation has its naive twin in the tests. */
#ifndef TACIT_ENGINE_OPS_H
#define TACIT_ENGINE_OPS_H

#include <stddef.h>
#include <stdint.h>

/* RMSNorm (Zhang and Sennrich 2019): y[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + eps) * w. */
void ops_rms_norm_forward(float *y, const float *x, const float *w, size_t rows, size_t n,
                          float eps);
/* dx[rows, n], dw[n] from x as the forward saw it. */
void ops_rms_norm_backward(float *dx, float *dw, const float *dy, const float *x, const float *w,
                           size_t rows, size_t n, float eps);

/* LayerNorm (Ba et al. 2016): y = (x - mean) / sqrt(variance + eps) * w + b. */
void ops_layer_norm_forward(float *y, const float *x, const float *w, const float *b, size_t rows,
                            size_t n, float eps);
void ops_layer_norm_backward(float *dx, float *dw, float *db, const float *dy, const float *x,
                             const float *w, size_t rows, size_t n, float eps);

/* SwiGLU (Shazeer 2020): y = silu(gate) * up, with silu(x) = x / (1 + exp(-x)). */
void ops_swiglu_forward(float *y, const float *gate, const float *up, size_t n);
/* dgate and dup are WRITTEN; they may be the memory of gate and up. */
void ops_swiglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                         const float *up, size_t n);

/* GeGLU: the same with GELU in its tanh form, as below. */
void ops_geglu_forward(float *y, const float *gate, const float *up, size_t n);
void ops_geglu_backward(float *dgate, float *dup, const float *dy, const float *gate,
                        const float *up, size_t n);

/* Such a pair, for what takes either. */
typedef struct ops_gated {
    void (*forward)(float *y, const float *gate, const float *up, size_t n);
    void (*backward)(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                     size_t n);
} ops_gated;

extern const ops_gated ops_swiglu, ops_geglu;

/* GELU, tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
void ops_gelu_forward(float *y, const float *x, size_t n);
void ops_gelu_backward(float *dx, const float *dy, const float *x, size_t n);

/* y[r, :] = softmax(x[r, :]), with the maximum subtracted. In place is fine. */
void ops_softmax_forward(float *y, const float *x, size_t rows, size_t n);
/* dx[r, :] is WRITTEN: y (dy - sum(dy y)). dx may be dy. */
void ops_softmax_backward(float *dx, const float *dy, const float *y, size_t rows, size_t n);

/* Rotary embedding (Su et al. 2021). Pair i of a head of `head_dim` values turns by position times
 * frequency[i]; which two values are a pair is a matter of the files: */
typedef enum ops_rope_form {
    OPS_ROPE_PAIRS, /* (2i, 2i + 1): llama's files */
    OPS_ROPE_HALVES /* (i, i + head_dim / 2): as Hugging Face and NeoX have it */
} ops_rope_form;

/* Numbers of a row's position. Pictures stand in time, height and width (M-RoPE, Wang et al. 2024,
 * arXiv 2409.12191, section 2.1); of text, and of other models' rows, all are one number. */
#define OPS_ROPE_AXES 4

typedef struct ops_rope {
    ops_rope_form form;
    size_t head_dim;         /* even */
    const double *frequency; /* [head_dim / 2], radians per position */
    const uint8_t *axis;     /* [head_dim / 2]: by which number each pair turns; NULL: the first */
    double magnitude;        /* what turned values are multiplied by: 1 but for YaRN */
} ops_rope;

/* table[rows, head_dim] = magnitude * (cos, sin) of position * frequency[i], where the form has the
 * pair: at (2i, 2i + 1) or at (i, i + head_dim / 2). The numbers of row r begin at
 * position[r * stride]. Angles are computed in double. */
void ops_rope_table(float *table, const ops_rope *rope, const uint32_t *position, size_t stride,
                    size_t rows);
/* Turns x[rows, heads, head_dim] in place; `stride` is the distance of rows in floats. */
void ops_rope_forward(float *x, const float *table, const ops_rope *rope, size_t rows, size_t heads,
                      size_t stride);
/* The transpose in place: turns the gradient of the output into that of the input. */
void ops_rope_backward(float *dx, const float *table, const ops_rope *rope, size_t rows,
                       size_t heads, size_t stride);

/* y += x; y *= factor. */
void ops_add(float *y, const float *x, size_t n);
void ops_scale(float *y, float factor, size_t n);

#endif
