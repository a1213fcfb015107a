/* The integer path of the linear operator ("fast" precision): weights as the file has them times
 * activations quantized to blocks of 32 signed bytes with one scale (the ggml project's Q8 blocks).
 * Q8_0, Q4_0 and Q4_1 are multiplied so; other types take the exact path. Integer sums are exact,
 * so the only error is that of rounding activations: about 0.4 % of a block's largest value. A
 * refined product adds that of the rounding's remainder, quantized in the same way: twice the work,
 * and the error all but gone. */
#ifndef TACIT_ENGINE_FAST_H
#define TACIT_ENGINE_FAST_H

#include "engine/linear.h"

#include <stdbool.h>

#define FAST_BLOCK 32

/* Rows of quantized values. Row r, block b: quanta at q + r * n_in + 32 b, meta[2 (r * blocks + b)]
 * = scale and scale times the sum of the quanta, total = that sum. */
typedef struct fast_values {
    int8_t *q;
    float *meta;
    int32_t *total;
} fast_values;

/* Activations of up to max_rows rows, and what their rounding left. */
typedef struct fast_input {
    fast_values value, remainder;
    size_t rows, n_in, blocks;
    size_t max_rows, max_n_in;
    bool refined; /* the remainder is there */
} fast_input;

/* False when there is no memory. */
bool fast_input_init(fast_input *in, size_t max_rows, size_t max_n_in);
void fast_input_fini(fast_input *in);
size_t fast_input_bytes(size_t max_rows, size_t max_n_in);

/* Quantizes x [rows, n_in], with `refined` also the remainder; where n_in is no multiple of 32
 * nothing is quantized and linears of that width take the exact path. */
void fast_input_set(tacit_pool *pool, fast_input *in, const float *x, size_t rows, size_t n_in,
                    bool refined);

/* As linear_forward, with `in` made from x; `refined` needs the remainder. scratch: linear_scratch
 * floats. */
void fast_linear_forward(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                         float *y, const fast_input *in, bool refined, const float *x, size_t rows,
                         float *scratch);

#endif
