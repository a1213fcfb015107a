/* The integer path of the linear operator ("fast" precision): packed weights (fast_pack.h) times
 * activations quantized to blocks of 32 signed bytes with one scale (the ggml project's Q8 blocks).
 * Weights that no form holds take the exact path. Integer sums are exact, so the only error is that
 * of rounding activations: about 0.4 % of a block's largest value. A refined product adds that of
 * the rounding's remainder, quantized in the same way: the error is all but gone. A row's result
 * depends neither on other rows nor on the number of threads. */
#ifndef TACIT_ENGINE_FAST_H
#define TACIT_ENGINE_FAST_H

#include "engine/fast_pack.h"

/* Activations of up to max_rows rows; the remainder of a row follows it where there is one. */
typedef struct fast_input {
    int8_t *q;
    float *meta;
    size_t rows, n_in, blocks;
    size_t max_rows, max_n_in;
    bool refined; /* the remainders are there */
} fast_input;

/* False when there is no memory. */
bool fast_input_init(fast_input *in, size_t max_rows, size_t max_n_in);
void fast_input_fini(fast_input *in);
size_t fast_input_bytes(size_t max_rows, size_t max_n_in);

/* Quantizes x [rows, n_in], with `refined` also the remainders; where n_in is no multiple of 32
 * nothing is quantized and linears of that width take the exact path. */
void fast_input_set(tacit_pool *pool, fast_input *in, const float *x, size_t rows, size_t n_in,
                    bool refined);
/* The same in parts, for callers that have their rows at hand: begin, then each row once, x[r]
 * being row first + r; different rows by any threads. */
void fast_input_begin(fast_input *in, size_t rows, size_t n_in, bool refined);
void fast_input_rows(fast_input *in, const float *x, size_t first, size_t rows);

/* One of several linears on the same input. */
typedef struct fast_product {
    const tacit_linear *l;
    const fast_weight *w; /* of l, packed for the kernels in use */
    const tacit_low_rank *pair;
    float *y;     /* [rows, n_out] */
    bool refined; /* needs the input's remainders */
} fast_product;

/* As linear_forward for each of up to FAST_MAX_PRODUCTS products, with `in` made from x
 * [rows, n_in]. scratch: the largest linear_scratch of them. */
#define FAST_MAX_PRODUCTS 3
void fast_forward(tacit_pool *pool, const fast_product *product, size_t count, const fast_input *in,
                  const float *x, float *scratch);

#endif
