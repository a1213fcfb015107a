#include "engine/matrix.h"

#include <cblas.h>
#include <pthread.h>
#include <string.h>

/* Cuts of the output. They depend on the shape alone. */
#define BLOCK_ROWS 256
#define BLOCK_COLS 128
#define SERIAL_WORK ((size_t)1 << 16) /* multiplications below which one task is quicker */

typedef struct product {
    float *y;
    const float *x, *w;
    size_t m, n, k;
    bool transpose_x, transpose_w, accumulate;
    size_t block_rows, block_cols, cols_of_blocks;
} product;

static pthread_once_t blas_once = PTHREAD_ONCE_INIT;

/* The pool is the only thread team: OpenBLAS computes in the thread that calls it. */
static void use_one_blas_thread(void)
{
    openblas_set_num_threads(1);
}

static void multiply_block(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const product *p = ctx;
    size_t row = i / p->cols_of_blocks * p->block_rows;
    size_t col = i % p->cols_of_blocks * p->block_cols;
    size_t rows = p->m - row < p->block_rows ? p->m - row : p->block_rows;
    size_t cols = p->n - col < p->block_cols ? p->n - col : p->block_cols;
    const float *x = p->x + (p->transpose_x ? row : row * p->k);
    const float *w = p->w + (p->transpose_w ? col * p->k : col);
    cblas_sgemm(CblasRowMajor, p->transpose_x ? CblasTrans : CblasNoTrans,
                p->transpose_w ? CblasTrans : CblasNoTrans, (blasint)rows, (blasint)cols,
                (blasint)p->k, 1.0f, x, (blasint)(p->transpose_x ? p->m : p->k), w,
                (blasint)(p->transpose_w ? p->k : p->n), p->accumulate ? 1.0f : 0.0f,
                p->y + row * p->n + col, (blasint)p->n);
}

static void multiply(tacit_pool *pool, product *p)
{
    if (p->m == 0 || p->n == 0)
        return;
    if (p->k == 0) {
        if (!p->accumulate)
            memset(p->y, 0, p->m * p->n * sizeof *p->y);
        return;
    }
    pthread_once(&blas_once, use_one_blas_thread);
    bool serial = p->m * p->n * p->k <= SERIAL_WORK;
    p->block_rows = serial ? p->m : BLOCK_ROWS;
    p->block_cols = serial ? p->n : BLOCK_COLS;
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
