/* The integer path of the linear operator ("fast" precision): packed weights (fast_pack.h) times
 * activations quantized to blocks of 32 signed bytes with one scale (the ggml project's Q8 blocks).
 * Weights that no form holds take the exact path. Integer sums are exact, so the only error is that
 * of rounding activations: about 0.4 % of a block's largest value. A refined product adds that of
 * the rounding's remainder, quantized in the same way: the error is all but gone, but for what
 * packing takes from the scales of K types (fast_pack.h). A row's result depends neither on other
 * rows nor on the number of threads.
 *
 * Kernels with tiles (fast_kernels.h) take inputs of at least `from_rows` rows in 16 bits instead,
 * which rounds less; a refined product takes what that left, where it is not too little to matter.
 * With them a row's result also depends on whether that many rows come together, and still on
 * nothing else of the others: the same rows in
 * other portions may differ by rounding. */
#ifndef TACIT_ENGINE_FAST_H
#define TACIT_ENGINE_FAST_H

#include "engine/fast_pack.h"

/* Activations: quantized, the remainder of a row following it where there is one, or in tiles. */
typedef struct fast_input {
    int8_t *q;
    float *meta;     /* of tiles: a scale each block of a row */
    uint16_t *tiles; /* in the memory of q */
    uint16_t *low;   /* behind them: of tiles that are split, else NULL */
    uint8_t *room;   /* of the tiles' products: [threads, room_bytes] */
    size_t rows, n_in, blocks;
    bool refined; /* the remainders are there */
    bool tiled;   /* tiles are there, quanta are not */
} fast_input;

/* What an input of so many rows counts: its values, filled up to whole tiles. */
size_t fast_input_values(size_t rows, size_t n_in);
/* For inputs of at most so many values by fast_input_values, for a pool of `threads`. False when
 * there is no memory. */
bool fast_input_init(fast_input *in, size_t values, size_t threads);
void fast_input_fini(fast_input *in);
size_t fast_input_bytes(size_t values, size_t threads);

/* One of the weights that an input meets, and whether with remainders. */
typedef struct fast_reader {
    const fast_weight *w;
    bool refined;
} fast_reader;

/* Quantizes rows of n_in values, with the remainders if any reader wants them; where n_in is no
 * multiple of 32 nothing is quantized and linears of that width take the exact path. to[count] are
 * all that the input meets. Begin, then all rows at once, or for callers that have their rows at
 * hand each once, x[r] being row first + r; different rows by any threads. */
void fast_input_begin(fast_input *in, const fast_reader *to, size_t count, size_t rows,
                      size_t n_in);
void fast_input_fill(tacit_pool *pool, fast_input *in, const float *x);
void fast_input_rows(fast_input *in, const float *x, size_t first, size_t rows);

/* One of several linears on the same input. */
typedef struct fast_product {
    const tacit_linear *l;
    const fast_weight *w; /* of l, packed for the kernels in use */
    const tacit_low_rank *pair;
    float *y;     /* [rows, n_out] */
    bool refined; /* needs the input's remainders, where it is quantized */
} fast_product;

/* As linear_forward for each of up to FAST_MAX_PRODUCTS products, with `in` made from x
 * [rows, n_in]. scratch: the largest linear_scratch of them. */
#define FAST_MAX_PRODUCTS 3
void fast_forward(tacit_pool *pool, const fast_product *product, size_t count, const fast_input *in,
                  const float *x, float *scratch);

#endif
