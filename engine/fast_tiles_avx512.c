/* Tiles of integers on AVX-512 VNNI, in the place of remainders: one product of 16 bits is as much
 * work as two of 8, and sums are scaled once instead of twice. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#define WIDTH 16 /* of a panel: a strip is one */
#define GROUP 64 /* bytes of four columns in a panel */
#define ROWS 8   /* of a register tile */

#include "engine/fast_integer_tiles.h"

/* A group: columns 0 and 1 of 16 rows of W to `quanta`, 2 and 3 to the next pair. */
ALWAYS void widen_group(int16_t *quanta, const uint8_t *w)
{
    const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m512i offset = _mm512_set1_epi16(128);
    __m256i low = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load_bytes(w), pairs), 0xd8);
    __m256i high = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load_bytes(w + 32), pairs), 0xd8);
    __m256i first = _mm256_permute2x128_si256(low, high, 0x20);
    __m256i second = _mm256_permute2x128_si256(low, high, 0x31);
    _mm512_storeu_si512(quanta, _mm512_sub_epi16(_mm512_cvtepu8_epi16(first), offset));
    _mm512_storeu_si512(quanta + 2 * WIDTH, _mm512_sub_epi16(_mm512_cvtepu8_epi16(second), offset));
}

ALWAYS void widen_block(int16_t *quanta, float *scale, const uint8_t *w)
{
    for (size_t g = 0; g < 8; g++)
        widen_group(quanta + g * 4 * WIDTH, w + g * GROUP);
    _mm512_storeu_ps(scale, _mm512_cvtph_ps(load_bytes(w + block_bytes(GROUP, FAST_8))));
}

ALWAYS void sum_block(__m512i *sum, const int16_t *a, const int16_t *w, const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = _mm512_setzero_si512();
    for (size_t p = 0; p < FAST_BLOCK / 2; p++, a += 2, w += 2 * WIDTH) {
        __m512i quanta = _mm512_loadu_si512(w);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            int32_t two;
            memcpy(&two, a + r * FAST_BLOCK, sizeof two);
            sum[r] = _mm512_dpwssd_epi32(sum[r], quanta, _mm512_set1_epi32(two));
            __asm__ volatile("" : "+v"(sum[r])); /* as SETTLE, in any of 32 registers */
        }
    }
}

ALWAYS void multiply_strip(float *y, size_t y_stride, const strip *s, bool accumulate,
                           const size_t rows)
{
    __m512 total[ROWS];
    UNROLL for (size_t r = 0; r < rows; r++) total[r] =
        accumulate ? _mm512_loadu_ps(y + r * y_stride) : _mm512_setzero_ps();
    for (size_t b = 0; b < s->steps; b++) {
        __m512i sum[ROWS];
        sum_block(sum, s->a + b * FAST_TILE_VALUES, s->w + b * BLOCK_QUANTA, rows);
        __m512 d = _mm512_loadu_ps(s->w_scale + b * WIDTH);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(s->a_scale[r * s->blocks + b]));
            total[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum[r]), total[r]);
        }
    }
    UNROLL for (size_t r = 0; r < rows; r++) _mm512_storeu_ps(y + r * y_stride, total[r]);
}

#define DEFINE(N)                                                                                  \
    __attribute__((noinline)) static void strip_##N(float *y, size_t y_stride, const strip *s,     \
                                                    bool accumulate)                               \
    {                                                                                              \
        multiply_strip(y, y_stride, s, accumulate, N);                                             \
    }
DEFINE(1)
DEFINE(2)
DEFINE(3)
DEFINE(4)
DEFINE(5)
DEFINE(6)
DEFINE(7)
DEFINE(8)
static strip_function *const strips[ROWS] = {strip_1, strip_2, strip_3, strip_4,
                                             strip_5, strip_6, strip_7, strip_8};

#include "engine/fast_integer_strips.h"

const fast_tiles fast_tiles_avx512 = {INTEGER_TILES, .for_refined = true, .from_rows = 24};
#endif
