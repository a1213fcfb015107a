/* 64-bit ARM with dot products, or with matrix products of bytes besides: fp32 loops as the
 * portable ones, which are NEON's there already, and integer loops of their own. */
#include "engine/kernels.h"

#if defined(__aarch64__)
#define KERNEL_WIDTH 4
#define KERNEL_ROWS 4

#include <stddef.h>

static void pack_transposed(float *panel, size_t width, const float *w, size_t w_stride,
                            size_t columns, size_t k)
{
    for (size_t c = 0; c < columns; c++)
        for (size_t j = 0; j < k; j++)
            panel[j * width + c] = w[c * w_stride + j];
}

#include "engine/kernels_body.h"

const tacit_kernels kernels_neon = {
    .name = "neon",
    .fast = &fast_kernels_neon,
    .multiply = multiply,
#include "engine/kernels_rows.h"
};

const tacit_kernels kernels_i8mm = {
    .name = "i8mm",
    .fast = &fast_kernels_i8mm,
    .multiply = multiply,
#include "engine/kernels_rows.h"
};
#endif
