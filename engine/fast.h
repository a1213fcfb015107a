/* The integer path of the linear operator ("fast" precision): weights as the file has them times
 * activations quantized to blocks of 32 signed bytes with one scale (the ggml project's Q8 blocks).
 * Q8_0, Q4_0 and Q4_1 are multiplied so; other types take the exact path. Integer sums are exact,
 * so the only error is that of rounding activations: about 0.4 % of a block's largest value. */
#ifndef TACIT_ENGINE_FAST_H
#define TACIT_ENGINE_FAST_H

#include "engine/linear.h"

#include <stdbool.h>

#define FAST_BLOCK 32

/* Activations of up to max_rows rows, quantized. Row r, block b: quanta at q + r * n_in + 32 b,
 * meta[2 (r * blocks + b)] = scale and scale times the sum, total = the sum of the quanta. */
typedef struct fast_input {
    int8_t *q;
    float *meta;
    int32_t *total;
    size_t rows, n_in, blocks;
    size_t max_rows, max_n_in;
} fast_input;

/* False when there is no memory. */
bool fast_input_init(fast_input *in, size_t max_rows, size_t max_n_in);
void fast_input_fini(fast_input *in);

/* Quantizes x [rows, n_in]; where n_in is no multiple of 32 nothing is quantized and linears of
 * that width take the exact path. */
void fast_input_set(tacit_pool *pool, fast_input *in, const float *x, size_t rows, size_t n_in);

/* As linear_forward, with `in` made from x. scratch: linear_scratch floats. */
void fast_linear_forward(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                         float *y, const fast_input *in, const float *x, size_t rows,
                         float *scratch);

#endif
