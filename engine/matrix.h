/* fp32 matrix products, row-major, on the pool. Work is cut at boundaries that do not depend on
 * the number of threads, so results are bitwise the same for 1 and for many. With `accumulate` the
 * product is added to the output. The kernels are kernels.h's `multiply`; the naive twins are
 * matrix_naive_*. */
#ifndef TACIT_ENGINE_MATRIX_H
#define TACIT_ENGINE_MATRIX_H

#include "common/pool.h"

#include <stdbool.h>
#include <stddef.h>

/* y[m, n] = x[m, k] w[n, k]^T: a linear layer forward. */
void matrix_mul_nt(tacit_pool *pool, float *y, const float *x, const float *w, size_t m, size_t n,
                   size_t k, bool accumulate);
/* y[m, n] = x[m, k] w[k, n]: gradient to a layer's input. */
void matrix_mul_nn(tacit_pool *pool, float *y, const float *x, const float *w, size_t m, size_t n,
                   size_t k, bool accumulate);
/* y[m, n] = x[k, m]^T w[k, n]: gradient to a layer's weight. */
void matrix_mul_tn(tacit_pool *pool, float *y, const float *x, const float *w, size_t m, size_t n,
                   size_t k, bool accumulate);

/* The naive twins: one product after the other in order of k, one thread. */
void matrix_naive_nt(float *y, const float *x, const float *w, size_t m, size_t n, size_t k,
                     bool accumulate);
void matrix_naive_nn(float *y, const float *x, const float *w, size_t m, size_t n, size_t k,
                     bool accumulate);
void matrix_naive_tn(float *y, const float *x, const float *w, size_t m, size_t n, size_t k,
                     bool accumulate);

#endif
