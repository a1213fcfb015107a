/* AVX-512 F, BW, VL, DQ and VNNI. */
#include "engine/kernels.h"

#if defined(__x86_64__)
#define KERNEL_WIDTH 16
#define KERNEL_ROWS 12

#include "engine/kernels_transpose.h"

#include "engine/kernels_body.h"

/* Half a vector of columns (low-rank pairs) is quicker in half vectors; the sums are the same. */
static void multiply_512(float *y, size_t y_stride, const float *x, size_t x_row, size_t x_col,
                         const float *w, size_t w_stride, bool transposed, size_t m, size_t n,
                         size_t k, bool accumulate)
{
    (n <= 8 ? kernels_avx2.multiply : multiply)(y, y_stride, x, x_row, x_col, w, w_stride,
                                                transposed, m, n, k, accumulate);
}
const tacit_kernels kernels_avx512 = {
    .name = "avx512",
    .fast = &fast_kernels_avx512,
    .multiply = multiply_512,
#include "engine/kernels_rows.h"
};
/* The same with AMX tiles (fast_amx.c). */
const tacit_kernels kernels_amx = {
    .name = "amx",
    .fast = &fast_kernels_amx,
    .multiply = multiply_512,
#include "engine/kernels_rows.h"
};
#endif
