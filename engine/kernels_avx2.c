/* AVX2 with FMA and F16C. */
#include "engine/kernels.h"

#if defined(__x86_64__)
#define KERNEL_WIDTH 8
#define KERNEL_ROWS 6

#include "engine/kernels_transpose.h"

#include "engine/kernels_body.h"

const tacit_kernels kernels_avx2 = {
    .name = "avx2",
    .fast = &fast_kernels_avx2,
    .multiply = multiply,
#include "engine/kernels_rows.h"
};
#endif
