/* The portable variant: what the compiler's baseline offers, on any processor. */
#include "engine/kernels.h"

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

const tacit_kernels kernels_generic = {
    .name = "generic",
    .fast = &fast_kernels_generic,
    .multiply = multiply,
#include "engine/kernels_rows.h"
};
