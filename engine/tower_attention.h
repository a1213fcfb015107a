/* Bidirectional attention of an encoder's inference, block by block of keys: no matrix of scores is
 * held (Dao et al. 2022, arXiv 2205.14135). fp32. A row's result depends neither on the number of
 * threads nor on which rows are computed beside it. */
#ifndef TACIT_ENGINE_TOWER_ATTENTION_H
#define TACIT_ENGINE_TOWER_ATTENTION_H

#include "common/pool.h"

#include <stddef.h>

typedef struct tower_attention {
    const float *q, *k, *v; /* [rows, width]: heads side by side */
    float *out;             /* [rows, width]; may be q */
    size_t rows, width, heads;
} tower_attention;

/* Floats of scratch for up to `rows` rows and `threads` threads. */
size_t tower_attention_scratch(size_t rows, size_t width, size_t heads, size_t threads);

/* out = softmax(q k^T / sqrt(width / heads)) v, head by head. */
void tower_attend(tacit_pool *pool, const tower_attention *a, float *scratch);

#endif
