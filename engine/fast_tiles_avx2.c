/* Tiles of integers on AVX2. Products of bytes are summed in pairs to 16 bits there, which few fit
 * into: fast_avx2.c takes a weight of 8 bits as two halves of 4, about as slow as fp32. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#define WIDTH 8  /* of a panel */
#define GROUP 32 /* bytes of four columns in a panel */
#define ROWS 6   /* of a register tile, by two panels */

#include "engine/fast_integer_tiles.h"

/* Like SETTLE, and without the copies that the compiler makes of sums. */
#define ADD_IN_PLACE(sum, v) __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(v))

/* A group: columns 0 and 1 of eight rows of W to `quanta`, 2 and 3 to the next pair. */
ALWAYS void widen_group(int16_t *quanta, const uint8_t *w)
{
    const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i offset = _mm256_set1_epi16(128);
    __m256i bytes = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load_bytes(w), pairs), 0xd8);
    __m256i first = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes));
    __m256i second = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1));
    __m256i *to = (__m256i *)(void *)quanta;
    _mm256_storeu_si256(to, _mm256_sub_epi16(first, offset));
    _mm256_storeu_si256(to + 2, _mm256_sub_epi16(second, offset));
}

ALWAYS void widen_block(int16_t *quanta, float *scale, const uint8_t *w)
{
    for (size_t g = 0; g < 8; g++)
        widen_group(quanta + g * 4 * STRIP_COLS, w + g * GROUP);
    __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(w + block_bytes(GROUP, FAST_8)));
    _mm256_storeu_ps(scale, _mm256_cvtph_ps(d));
}

ALWAYS void sum_block(__m256i sum[][2], const int16_t *a, const int16_t *w, const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    for (size_t p = 0; p < FAST_BLOCK / 2; p++, a += 2, w += 2 * STRIP_COLS) {
        __m256i left = load_bytes(w), right = load_bytes(w + STRIP_COLS);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            int32_t two;
            memcpy(&two, a + r * FAST_BLOCK, sizeof two);
            __m256i pair = _mm256_set1_epi32(two);
            ADD_IN_PLACE(sum[r][0], _mm256_madd_epi16(left, pair));
            ADD_IN_PLACE(sum[r][1], _mm256_madd_epi16(right, pair));
        }
    }
}

ALWAYS void multiply_strip(float *y, size_t y_stride, const strip *s, bool accumulate,
                           const size_t rows)
{
    __m256 total[ROWS][2];
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (size_t i = 0; i < 2; i++) total[r][i] =
        accumulate ? _mm256_loadu_ps(y + r * y_stride + i * WIDTH) : _mm256_setzero_ps();
    for (size_t b = 0; b < s->steps; b++) {
        __m256i sum[ROWS][2];
        sum_block(sum, s->a + b * FAST_TILE_VALUES, s->w + b * BLOCK_QUANTA, rows);
        __m256 left = _mm256_loadu_ps(s->w_scale + b * STRIP_COLS);
        __m256 right = _mm256_loadu_ps(s->w_scale + b * STRIP_COLS + WIDTH);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            __m256 scale = _mm256_broadcast_ss(s->a_scale + r * s->blocks + b);
            total[r][0] = _mm256_fmadd_ps(_mm256_mul_ps(scale, left), _mm256_cvtepi32_ps(sum[r][0]),
                                          total[r][0]);
            total[r][1] = _mm256_fmadd_ps(_mm256_mul_ps(scale, right),
                                          _mm256_cvtepi32_ps(sum[r][1]), total[r][1]);
        }
    }
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (size_t i = 0; i < 2; i++)
        _mm256_storeu_ps(y + r * y_stride + i * WIDTH, total[r][i]);
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
static strip_function *const strips[ROWS] = {strip_1, strip_2, strip_3, strip_4, strip_5, strip_6};

#include "engine/fast_integer_strips.h"

const fast_tiles fast_tiles_avx2 = {INTEGER_TILES, .from_rows = 24};
#endif
