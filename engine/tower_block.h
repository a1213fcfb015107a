/* What the exact passes of the image and the audio tower share: a pre-norm block's activations, how
 * they lie in an arena, and its attention, forward and backward. fp32; bits depend on the shape
 * alone. Private to the towers. */
#ifndef TACIT_ENGINE_TOWER_BLOCK_H
#define TACIT_ENGINE_TOWER_BLOCK_H

#include "common/pool.h"

#include <stdbool.h>
#include <stddef.h>

/* Hands out pieces of an arena; with base NULL it only counts. Pieces start at cache lines. */
typedef struct tower_planner {
    float *base;
    size_t used; /* floats */
} tower_planner;

float *tower_piece(tower_planner *a, size_t floats);

/* Activations of one block, each [rows, width] but for up and act, [rows, ff]. Without training
 * several share memory. */
typedef struct tower_block {
    float *norm1, *q, *k, *v, *mixed; /* mixed: the heads' outputs side by side */
    float *middle;                    /* x + out(mixed) */
    float *norm2, *up, *act;
} tower_block;

void tower_block_plan(tower_block *b, tower_planner *a, size_t rows, size_t width, size_t ff,
                      bool train);

/* The heads of a block: every row looks at every row, `queries` of them at a time, so that memory
 * does not grow with the square of the rows. */
typedef struct tower_heads {
    const tower_block *b;
    size_t rows, width, heads, queries;
    float *scores;        /* [threads, scores_stride] */
    size_t scores_stride; /* at least queries * rows; backward: twice that */
} tower_heads;

/* b->mixed = softmax(q k^T / sqrt(width / heads)) v, head by head. */
void tower_heads_forward(tacit_pool *pool, const tower_heads *t);

/* The gradient of mixed, and where those of q, k and v are written; all [rows, width]. */
typedef struct tower_heads_gradient {
    const float *mixed;
    float *q, *k, *v;
} tower_heads_gradient;

/* Computes the attention again, bit for bit. */
void tower_heads_backward(tacit_pool *pool, const tower_heads *t, const tower_heads_gradient *d);

#endif
