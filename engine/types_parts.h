/* The conversions behind the table of types.h, by family. Private to the types.
 *
 * to_f32 and from_f32 are those of tacit_type_traits. `_fit` chooses scales and quanta so that
 * sum importance[i] (value[i] - read[i])^2 is small; importance [n] may be NULL (types_take). */
#ifndef TACIT_ENGINE_TYPES_PARTS_H
#define TACIT_ENGINE_TYPES_PARTS_H

#include "common/bytes.h"
#include "engine/types.h"

/* Halves in files are little-endian at any address. */
static inline float types_load_f16(const uint8_t *from)
{
    return tacit_f16_to_f32((uint16_t)(from[0] | from[1] << 8));
}

static inline void types_store_f16(uint8_t *to, float f)
{
    uint16_t h = tacit_f32_to_f16(f);
    to[0] = (uint8_t)h;
    to[1] = (uint8_t)(h >> 8);
}

/* What a half keeps of a scale; one that is too large becomes the largest. */
static inline float types_as_f16(float f)
{
    f = f > 65504 ? 65504 : f < -65504 ? -65504 : f;
    return tacit_f16_to_f32(tacit_f32_to_f16(f));
}

static inline float types_inverse(float d)
{
    return d != 0 ? 1.0f / d : 0;
}

/* Copies n values to fit: NaN becomes 0, magnitudes end at 65504. The weights w are importance
 * scaled to a mean of 1. Without it a value weighs its magnitude plus the block's root mean square:
 * on a real model in q4_0 that gave a divergence of 0.36, equal weights 0.43 (with importance:
 * 0.22; importance times such a factor: 0.24). Where all is 0 the weights are 1. */
void types_take(float *x, float *w, const float *in, const float *importance, size_t n);

/* types_block.c: 32 values a block */
void q8_0_to_f32(float *out, const void *in, size_t n);
void q8_0_from_f32(void *out, const float *in, size_t n);
void q4_0_to_f32(float *out, const void *in, size_t n);
void q4_0_from_f32(void *out, const float *in, size_t n);
void q4_0_fit(void *out, const float *in, const float *importance, size_t n);
void q4_1_to_f32(float *out, const void *in, size_t n);
void q4_1_from_f32(void *out, const float *in, size_t n);
void q4_1_fit(void *out, const float *in, const float *importance, size_t n);
void q5_0_to_f32(float *out, const void *in, size_t n);
void q5_0_from_f32(void *out, const float *in, size_t n);
void q5_0_fit(void *out, const float *in, const float *importance, size_t n);
void q5_1_to_f32(float *out, const void *in, size_t n);
void q5_1_from_f32(void *out, const float *in, size_t n);
void q5_1_fit(void *out, const float *in, const float *importance, size_t n);

/* types_k.c: 256 values a block, scales quantized too */
void q4_k_to_f32(float *out, const void *in, size_t n);
void q4_k_from_f32(void *out, const float *in, size_t n);
void q4_k_fit(void *out, const float *in, const float *importance, size_t n);
void q5_k_to_f32(float *out, const void *in, size_t n);
void q5_k_from_f32(void *out, const float *in, size_t n);
void q5_k_fit(void *out, const float *in, const float *importance, size_t n);
void q6_k_to_f32(float *out, const void *in, size_t n);
void q6_k_from_f32(void *out, const float *in, size_t n);
void q6_k_fit(void *out, const float *in, const float *importance, size_t n);

#endif
