/* Multiplications and additions are kept apart, as the portable code rounds them. */
#include "engine/dequant.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define BLOCK 32
#define HALF_BLOCK 16

static inline __m256 load_half(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return _mm256_set1_ps(_cvtsh_ss(bits));
}

/* out[0..16) from 16 quanta: q * d. */
static inline void store_signed(float *out, __m128i q, __m256 d)
{
    __m256i low = _mm256_cvtepi8_epi32(q), high = _mm256_cvtepi8_epi32(_mm_srli_si128(q, 8));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(low), d));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(high), d));
}

/* out[0..16) from 16 quanta: q * d + add. */
static inline void store_shifted(float *out, __m128i q, __m256 d, __m256 add)
{
    __m256i low = _mm256_cvtepu8_epi32(q), high = _mm256_cvtepu8_epi32(_mm_srli_si128(q, 8));
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(low), d), add));
    _mm256_storeu_ps(out + 8, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(high), d), add));
}

static inline __m128i low_nibbles(__m128i q)
{
    return _mm_and_si128(q, _mm_set1_epi8(15));
}

static inline __m128i high_nibbles(__m128i q)
{
    return _mm_and_si128(_mm_srli_epi16(q, 4), _mm_set1_epi8(15));
}

static inline __m128i load_16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

static void q8_0_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + BLOCK) {
        __m256 d = load_half(block);
        store_signed(out + i, load_16(block + 2), d);
        store_signed(out + i + HALF_BLOCK, load_16(block + 2 + HALF_BLOCK), d);
    }
}

static void q4_0_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    const __m128i eight = _mm_set1_epi8(8);
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + HALF_BLOCK) {
        __m256 d = load_half(block);
        __m128i q = load_16(block + 2);
        store_signed(out + i, _mm_sub_epi8(low_nibbles(q), eight), d);
        store_signed(out + i + HALF_BLOCK, _mm_sub_epi8(high_nibbles(q), eight), d);
    }
}

static void q4_1_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += BLOCK, block += 4 + HALF_BLOCK) {
        __m256 d = load_half(block), add = load_half(block + 2);
        __m128i q = load_16(block + 4);
        store_shifted(out + i, low_nibbles(q), d, add);
        store_shifted(out + i + HALF_BLOCK, high_nibbles(q), d, add);
    }
}

static void f16_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *from = in;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(load_16(from + 2 * i)));
    for (; i < n; i++)
        out[i] = _mm256_cvtss_f32(load_half(from + 2 * i));
}

static void bf16_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *from = in;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(from + 2 * i)), 16);
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(bits));
    }
    for (; i < n; i++)
        out[i] = tacit_bf16_to_f32((uint16_t)(from[2 * i] | from[2 * i + 1] << 8));
}

const dequant_kernel dequant_avx2[DEQUANT_AVX2_COUNT] = {
    {TACIT_TYPE_Q8_0, q8_0_to_f32}, {TACIT_TYPE_Q4_0, q4_0_to_f32}, {TACIT_TYPE_Q4_1, q4_1_to_f32},
    {TACIT_TYPE_F16, f16_to_f32},   {TACIT_TYPE_BF16, bf16_to_f32},
};
#endif
