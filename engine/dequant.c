#include "engine/dequant.h"

#include "engine/kernels.h"

void dequant_row(const tacit_type_traits *type, float *out, const void *in, size_t n)
{
#if defined(__x86_64__)
    if (kernels() != &kernels_generic)
        for (size_t i = 0; i < DEQUANT_AVX2_COUNT; i++)
            if (dequant_avx2[i].type == type->type) {
                dequant_avx2[i].to_f32(out, in, n);
                return;
            }
#endif
    type->to_f32(out, in, n);
}
