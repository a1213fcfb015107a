#include "engine/matrix.h"

#include "engine/kernels.h"
#include "engine/matrix_block.h"

#include <string.h>

/* Cuts of the output. They depend on the shape alone. */
#define BLOCK_ROWS 240 /* a multiple of every register tile's height */
#define BLOCK_COLS 64
#define BLOCK_WORK ((size_t)1 << 18) /* multiplications that are worth a task */

typedef struct product {
    float *y;
    const float *x, *w;
    size_t m, n, k;
    bool transpose_x, transpose_w, accumulate;
    size_t block_rows, block_cols, cols_of_blocks;
} product;

static void clear_block(const matrix_block *b)
{
    for (size_t i = 0; i < b->m; i++)
        memset(b->y + i * b->y_stride, 0, b->n * sizeof *b->y);
}

/* So few rows do not repay the transposing of w: one dot product each. */
static void multiply_dots(const matrix_block *b)
{
    const tacit_kernels *k = kernels();
    for (size_t i = 0; i < b->m; i++)
        for (size_t j = 0; j < b->n; j++) {
            float *y = b->y + i * b->y_stride + j;
            float sum = k->dot(b->x + i * b->x_stride, b->w + j * b->w_stride, b->k);
            *y = b->accumulate ? *y + sum : sum;
        }
}

void matrix_block_run(const matrix_block *b)
{
    if (b->k == 0) {
        if (!b->accumulate)
            clear_block(b);
        return;
    }
    if (b->transpose_w && !b->transpose_x && b->m <= 2) {
        multiply_dots(b);
        return;
    }
    kernels()->multiply(b->y, b->y_stride, b->x, b->transpose_x ? 1 : b->x_stride,
                        b->transpose_x ? b->x_stride : 1, b->w, b->w_stride, b->transpose_w, b->m,
                        b->n, b->k, b->accumulate);
}

static void multiply_block(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const product *p = ctx;
    size_t row = i / p->cols_of_blocks * p->block_rows;
    size_t col = i % p->cols_of_blocks * p->block_cols;
    matrix_block b = {
        .y = p->y + row * p->n + col,
        .y_stride = p->n,
        .x = p->x + (p->transpose_x ? row : row * p->k),
        .x_stride = p->transpose_x ? p->m : p->k,
        .w = p->w + (p->transpose_w ? col * p->k : col),
        .w_stride = p->transpose_w ? p->k : p->n,
        .m = p->m - row < p->block_rows ? p->m - row : p->block_rows,
        .n = p->n - col < p->block_cols ? p->n - col : p->block_cols,
        .k = p->k,
        .transpose_x = p->transpose_x,
        .transpose_w = p->transpose_w,
        .accumulate = p->accumulate,
    };
    matrix_block_run(&b);
}

static void multiply(tacit_pool *pool, product *p)
{
    if (p->m == 0 || p->n == 0)
        return;
    p->block_rows = p->m < BLOCK_ROWS ? p->m : BLOCK_ROWS;
    p->block_cols = BLOCK_COLS;
    while (p->block_cols < p->n && p->block_rows * p->block_cols * p->k < BLOCK_WORK)
        p->block_cols *= 2;
    p->cols_of_blocks = (p->n + p->block_cols - 1) / p->block_cols;
    size_t rows_of_blocks = (p->m + p->block_rows - 1) / p->block_rows;
    tacit_pool_run(pool, rows_of_blocks * p->cols_of_blocks, multiply_block, p);
}

void matrix_mul_nt(tacit_pool *pool, float *y, const float *x, const float *w, size_t m, size_t n,
                   size_t k, bool accumulate)
{
    product p = {.y = y, .x = x, .w = w, .m = m, .n = n, .k = k, .accumulate = accumulate};
    p.transpose_w = true;
    multiply(pool, &p);
}

void matrix_mul_nn(tacit_pool *pool, float *y, const float *x, const float *w, size_t m, size_t n,
                   size_t k, bool accumulate)
{
    product p = {.y = y, .x = x, .w = w, .m = m, .n = n, .k = k, .accumulate = accumulate};
    multiply(pool, &p);
}

void matrix_mul_tn(tacit_pool *pool, float *y, const float *x, const float *w, size_t m, size_t n,
                   size_t k, bool accumulate)
{
    product p = {.y = y, .x = x, .w = w, .m = m, .n = n, .k = k, .accumulate = accumulate};
    p.transpose_x = true;
    multiply(pool, &p);
}

/* One product of strided vectors; the strides say which side is transposed. */
static float naive_dot(const float *x, size_t x_stride, const float *w, size_t w_stride, size_t k)
{
    float sum = 0;
    for (size_t i = 0; i < k; i++)
        sum += x[i * x_stride] * w[i * w_stride];
    return sum;
}

void matrix_naive_nt(float *y, const float *x, const float *w, size_t m, size_t n, size_t k,
                     bool accumulate)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            y[i * n + j] =
                (accumulate ? y[i * n + j] : 0) + naive_dot(x + i * k, 1, w + j * k, 1, k);
}

void matrix_naive_nn(float *y, const float *x, const float *w, size_t m, size_t n, size_t k,
                     bool accumulate)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            y[i * n + j] = (accumulate ? y[i * n + j] : 0) + naive_dot(x + i * k, 1, w + j, n, k);
}

void matrix_naive_tn(float *y, const float *x, const float *w, size_t m, size_t n, size_t k,
                     bool accumulate)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            y[i * n + j] = (accumulate ? y[i * n + j] : 0) + naive_dot(x + i, m, w + j, n, k);
}
