/* One serial fp32 product over strided matrices: the block that matrix.c and linear.c cut their
 * work into. */
#ifndef TACIT_ENGINE_MATRIX_BLOCK_H
#define TACIT_ENGINE_MATRIX_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

typedef struct matrix_block {
    float *y; /* [m, n], rows `y_stride` apart */
    size_t y_stride;
    const float *x; /* [m, k], or [k, m] with transpose_x */
    size_t x_stride;
    const float *w; /* [k, n], or [n, k] with transpose_w */
    size_t w_stride;
    size_t m, n, k;
    bool transpose_x, transpose_w;
    bool accumulate; /* add to y */
} matrix_block;

/* y (+)= x w. Thread-safe as long as outputs differ. */
void matrix_block_run(const matrix_block *b);

#endif
