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

/* 0x10 in byte j where bit j of the 16 is set. */
static inline __m128i fifth_bits(uint32_t bits)
{
    const __m128i which = _mm_set1_epi64x((int64_t)0x8040201008040201);
    const __m128i spread = _mm_set_epi64x(0x0101010101010101, 0);
    __m128i q = _mm_and_si128(_mm_shuffle_epi8(_mm_set1_epi16((short)bits), spread), which);
    return _mm_and_si128(_mm_cmpeq_epi8(q, which), _mm_set1_epi8(16));
}

static inline uint32_t load_32(const uint8_t *p)
{
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

static void q5_0_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    const __m128i middle = _mm_set1_epi8(16);
    for (size_t i = 0; i < n; i += BLOCK, block += 6 + HALF_BLOCK) {
        __m256 d = load_half(block);
        uint32_t fifth = load_32(block + 2);
        __m128i q = load_16(block + 6);
        __m128i low = _mm_or_si128(low_nibbles(q), fifth_bits(fifth & 0xffff));
        __m128i high = _mm_or_si128(high_nibbles(q), fifth_bits(fifth >> 16));
        store_signed(out + i, _mm_sub_epi8(low, middle), d);
        store_signed(out + i + HALF_BLOCK, _mm_sub_epi8(high, middle), d);
    }
}

static void q5_1_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += BLOCK, block += 8 + HALF_BLOCK) {
        __m256 d = load_half(block), add = load_half(block + 2);
        uint32_t fifth = load_32(block + 4);
        __m128i q = load_16(block + 8);
        __m128i low = _mm_or_si128(low_nibbles(q), fifth_bits(fifth & 0xffff));
        __m128i high = _mm_or_si128(high_nibbles(q), fifth_bits(fifth >> 16));
        store_shifted(out + i, low, d, add);
        store_shifted(out + i + HALF_BLOCK, high, d, add);
    }
}

/* ---- 256 values; a scale or a minimum times its half, and a quantum times that, are exact ---- */

/* Scales in bytes 0 to 7, minimums in bytes 8 to 15, from the 12 bytes of q4_k and q5_k. */
static inline void spread_scales(uint8_t to[16], const uint8_t from[12])
{
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    uint32_t a = load_32(from), b = load_32(from + 4), c = load_32(from + 8);
    uint32_t words[4] = {a & six, (c & four) | (a >> 6 & two) << 4, b & six,
                         (c >> 4 & four) | (b >> 6 & two) << 4};
    memcpy(to, words, 16);
}

/* 32 values of one part: q * d - m. */
static inline void store_part(float *out, __m256i q, float d, float m)
{
    __m256 step = _mm256_set1_ps(d), add = _mm256_set1_ps(-m);
    store_shifted(out, _mm256_castsi256_si128(q), step, add);
    store_shifted(out + 16, _mm256_extracti128_si256(q, 1), step, add);
}

static inline __m256i load_bytes_32(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static inline __m256i masked(__m256i v, int bits)
{
    return _mm256_and_si256(v, _mm256_set1_epi8((char)bits));
}

/* q4_k, and q5_k whose fifth bits lie in the 32 bytes at `fifth`. */
static inline void store_lines(float *out, const uint8_t *block, const uint8_t *nibbles,
                               const uint8_t *fifth)
{
    uint8_t scale[16];
    float d = _cvtsh_ss((uint16_t)(block[0] | block[1] << 8));
    float dmin = _cvtsh_ss((uint16_t)(block[2] | block[3] << 8));
    __m256i bits = fifth ? load_bytes_32(fifth) : _mm256_setzero_si256();
    spread_scales(scale, block + 4);
    for (size_t p = 0; p < 8; p += 2, nibbles += 32, out += 64) {
        __m256i q = load_bytes_32(nibbles);
        __m256i low = masked(q, 15), high = masked(_mm256_srli_epi16(q, 4), 15);
        low = _mm256_or_si256(low, masked(_mm256_slli_epi16(bits, 4), 16));
        high = _mm256_or_si256(high, masked(_mm256_slli_epi16(bits, 3), 16));
        bits = masked(_mm256_srli_epi16(bits, 2), 63);
        store_part(out, low, d * scale[p], dmin * scale[8 + p]);
        store_part(out + 32, high, d * scale[p + 1], dmin * scale[9 + p]);
    }
}

static void q4_k_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += 256, block += 144)
        store_lines(out + i, block, block + 16, NULL);
}

static void q5_k_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += 256, block += 176)
        store_lines(out + i, block, block + 48, block + 16);
}

/* 32 values at two scales. */
static inline void store_pair(float *out, __m256i q, float d, const uint8_t *scale)
{
    q = _mm256_sub_epi8(q, _mm256_set1_epi8(32));
    store_signed(out, _mm256_castsi256_si128(q), _mm256_set1_ps(d * (float)(int8_t)scale[0]));
    store_signed(out + 16, _mm256_extracti128_si256(q, 1),
                 _mm256_set1_ps(d * (float)(int8_t)scale[1]));
}

/* One half of a block: 128 values. */
static inline void store_q6_half(float *out, const uint8_t *low, const uint8_t *high,
                                 const uint8_t *scale, float d)
{
    __m256i a = load_bytes_32(low), b = load_bytes_32(low + 32), h = load_bytes_32(high);
    __m256i h0 = masked(_mm256_slli_epi16(h, 4), 48), h1 = masked(_mm256_slli_epi16(h, 2), 48);
    __m256i h2 = masked(h, 48), h3 = masked(_mm256_srli_epi16(h, 2), 48);
    store_pair(out, _mm256_or_si256(masked(a, 15), h0), d, scale);
    store_pair(out + 32, _mm256_or_si256(masked(b, 15), h1), d, scale + 2);
    store_pair(out + 64, _mm256_or_si256(masked(_mm256_srli_epi16(a, 4), 15), h2), d, scale + 4);
    store_pair(out + 96, _mm256_or_si256(masked(_mm256_srli_epi16(b, 4), 15), h3), d, scale + 6);
}

static void q6_k_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += 256, block += 210) {
        float d = _cvtsh_ss((uint16_t)(block[208] | block[209] << 8));
        store_q6_half(out + i, block, block + 128, block + 192, d);
        store_q6_half(out + i + 128, block + 64, block + 160, block + 200, d);
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
    {TACIT_TYPE_Q5_0, q5_0_to_f32}, {TACIT_TYPE_Q5_1, q5_1_to_f32}, {TACIT_TYPE_Q4_K, q4_k_to_f32},
    {TACIT_TYPE_Q5_K, q5_k_to_f32}, {TACIT_TYPE_Q6_K, q6_k_to_f32}, {TACIT_TYPE_F16, f16_to_f32},
    {TACIT_TYPE_BF16, bf16_to_f32},
};
#endif
