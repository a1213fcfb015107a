/* Rows of a file's type as fp32, with the instructions of the kernel table in use (kernels.h). The
 * values are those of tacit_type_traits.to_f32 bit for bit. Thread-safe. */
#ifndef TACIT_ENGINE_DEQUANT_H
#define TACIT_ENGINE_DEQUANT_H

#include "engine/types.h"

/* n is a multiple of type->block_values. */
void dequant_row(const tacit_type_traits *type, float *out, const void *in, size_t n);

typedef struct dequant_kernel {
    tacit_type type;
    void (*to_f32)(float *out, const void *in, size_t n);
} dequant_kernel;

#if defined(__x86_64__)
#define DEQUANT_AVX2_COUNT 10
extern const dequant_kernel dequant_avx2[DEQUANT_AVX2_COUNT];
#endif

#endif
