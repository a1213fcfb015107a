/* What the fast passes of the image and the audio tower share: products of packed weights and rows
 * quantized once per input, attention without a matrix of scores, and where rows may be rounded.
 * A row's result depends neither on the number of threads nor on which rows are computed beside it.
 * Private to the towers. */
#ifndef TACIT_ENGINE_TOWER_FAST_H
#define TACIT_ENGINE_TOWER_FAST_H

#include "engine/fast.h"
#include "engine/fast_tower.h"
#include "engine/tower_block.h"

/* A tensor of a tower, in the order of its linears. */
typedef struct tower_part {
    bool product; /* the weight of one */
    size_t rows;  /* of its input, at most */
} tower_part;

/* Whether rows with remainders take less time than fp32 on this weight: where one instruction adds
 * products of bytes, and where tiles take them. */
bool tower_refines(const tacit_linear *l);

/* The fast side of a pass. */
typedef struct tower_fast {
    const fast_weight *packed; /* [count]; NULL: the pass is exact */
    bool *refined;             /* [count]; else fp32 */
    fast_input input;
    tacit_pool *pool;
    float *attention; /* tower_attention_scratch, of the pass's arena */
    float *scratch;   /* linear_scratch of every linear, of the pass's arena */
} tower_fast;

/* Which tower: linear[count] and part[count], rows `width` wide. */
typedef struct tower_fast_spec {
    fast_tower *packing;
    const tacit_linear *linear;
    const tower_part *part;
    size_t count, width;
    const gguf_file *file;
    const char *what; /* "pictures", of messages */
} tower_fast_spec;

/* Packs at the tower's first pass. What `attention` and `scratch` point to is set by the caller.
 * TACIT_NO_MEMORY. */
tacit_status tower_fast_init(tower_fast *f, const tower_fast_spec *spec, tacit_pool *pool,
                             tacit_error *err) TACIT_MUST_CHECK;
void tower_fast_fini(tower_fast *f);

/* One product of a pass: `linear` of tensor i, with its bias if it has one; `stands_in`: its weight
 * are other values than the file's, which nothing is rounded for. */
typedef struct tower_product {
    tacit_linear linear;
    const tacit_low_rank *pair; /* NULL, unless the caller puts one here */
    const fast_weight *packed;
    bool refined;
} tower_product;

tower_product tower_product_of(const tower_fast *f, size_t i, tacit_linear linear, bool stands_in);

/* y[rows, n_out], as linear_forward. */
void tower_multiply(tower_fast *f, const tower_product *p, float *y, const float *x, size_t rows);

/* A block with pre-norms, as it is in one pass. */
typedef struct tower_fast_block {
    size_t rows, width, ff, heads;
    float epsilon;
    const float *norm1, *norm1_bias, *norm2, *norm2_bias; /* [width] */
    void (*activate)(float *y, const float *x, size_t n);
    tower_product qkv[3], out, up, down;
} tower_fast_block;

/* x[rows, width] = the block of x, filling b. */
void tower_fast_forward(tower_fast *f, const tower_fast_block *block, tower_block *b, float *x);

#endif
