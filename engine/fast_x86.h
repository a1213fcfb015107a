/* What the x86 kernels share: unrolling, reading of panels, and quantizing of activations. */
#ifndef TACIT_ENGINE_FAST_X86_H
#define TACIT_ENGINE_FAST_X86_H

#include "engine/fast_kernels.h"

#include <immintrin.h>
#include <string.h>

/* What checks addresses and undefined behaviour checks every access of every copy: unrolled, these
 * files took minutes to compile. There the same source is compiled as plain functions and loops. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_CHECKED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_CHECKED
#endif
#endif
#ifdef IS_CHECKED
#define ALWAYS __attribute__((unused)) static
#define UNROLL
#else
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Done here and not later: the compiler would put off the sums of a whole block, and run out of
 * registers for what they are made of. */
#define SETTLE(v) __asm__ volatile("" : "+x"(v))

/* fast_block_bytes where the form is a constant, and then one itself: tables are read at run time.
 * A `group` are the bytes of four columns. */
ALWAYS size_t block_bytes(const size_t group, const fast_form form)
{
    return group * (form == FAST_8 ? 8u : form == FAST_6 ? 6u : form >= FAST_5 ? 5u : 4u);
}

/* fast_block_stride, likewise. */
ALWAYS size_t block_stride(const size_t group, const fast_form form)
{
    const bool two = form == FAST_6 || form == FAST_4M || form == FAST_5M;
    return block_bytes(group, form) + group / 2 * (two ? 2 : 1);
}

#define AHEAD 4096 /* bytes; one page and 64 cache lines */

/* With few rows the weights come from memory. Intel's processors look less far ahead than what is
 * computed on a block needs (Emerald Rapids decoded 1.15 to 1.4 times as fast when it asked early,
 * with scales apart); AMD's do it themselves (Zen 4 loses 6 %). A line asked for twice costs little. */
ALWAYS void fetch_ahead(const uint8_t *block, const size_t stride)
{
    const char *from = (const char *)block + AHEAD;
    if (__builtin_cpu_is("intel"))
        UNROLL for (size_t i = 0; i < stride; i += 64) _mm_prefetch(from + i, _MM_HINT_T0);
}

ALWAYS __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

ALWAYS __m256i load_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Rounds a block to integers of at most `most` and returns the scale; the block's largest magnitude
 * is found by its bits: NaN and inf are above every finite number. */
static inline float round_block(__m256i r[4], const float *x, float most)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256 v[4];
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + (size_t)8 * i);
        top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
    }
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    int32_t bits = _mm_cvtsi128_si32(m);
    float largest = _mm_cvtss_f32(_mm_castsi128_ps(m));
    int finite = bits < 0x7f800000;
    /* Of values so small that the inverse is infinite nothing is left. */
    float inverse = finite && largest > 0 ? most / largest : 0;
    int usable = finite && inverse < __builtin_inff();
    for (int i = 0; i < 4; i++)
        r[i] = usable ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)))
                      : _mm256_setzero_si256();
    return finite ? largest / most : __builtin_nanf("");
}

static inline void quantize_block(int8_t *q, float *meta, const float *x)
{
    __m256i r[4];
    meta[0] = round_block(r, x, 127.0f);
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(r[0], r[1]), _mm256_add_epi32(r[2], r[3]));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    meta[1] = meta[0] * (float)_mm_cvtsi128_si32(s);
    /* Packing works within 128-bit halves: put the groups of four back in order. */
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
}

static inline void quantize(int8_t *q, float *meta, const float *x, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        quantize_block(q + b * FAST_BLOCK, meta + 2 * b, x + b * FAST_BLOCK);
}

#endif
