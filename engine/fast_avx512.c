/* Integer kernels for AVX-512 VNNI: four products of unsigned by signed bytes a lane and step. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#define FAST_FLIP 0x80
#include "engine/fast_pack.h"

#define ROWS 6

/* The first block's value in the lower eight lanes, the second's in the upper eight. */
static inline __m512 two_scales(float low, float high)
{
    return _mm512_insertf32x8(_mm512_set1_ps(low), _mm256_set1_ps(high), 1);
}

static inline __m512i two_blocks(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline __m512i load_quanta(const int8_t *q)
{
    return _mm512_loadu_si512(q);
}

/* Defines a dot product: blocks in pairs, a last single one against zeros. Lanes hold partial sums
 * of one block each; what the offset and m contribute is summed beside. */
#define DEFINE_DOT(NAME, BYTES, AT, LOAD, FLIP, REST)                                              \
    static float NAME(const uint8_t *row, const int8_t *q, const float *scale,                     \
                      const int32_t *total, size_t blocks)                                         \
    {                                                                                              \
        __m512 sum = _mm512_setzero_ps();                                                          \
        const __m512i flip = _mm512_set1_epi8((char)(FLIP));                                       \
        float rest = 0;                                                                            \
        size_t b = 0;                                                                              \
        for (; b + 2 <= blocks; b += 2, row += 2 * (BYTES)) {                                      \
            const uint8_t *next = row + (BYTES);                                                   \
            float f0 = load_half(row) * scale[b], f1 = load_half(next) * scale[b + 1];             \
            __m512i w = two_blocks(LOAD(row + (AT)), LOAD(next + (AT)));                           \
            w = _mm512_xor_si512(w, flip);                                                         \
            __m512i integer =                                                                      \
                _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, load_quanta(q + b * BLOCK));        \
            sum = _mm512_fmadd_ps(two_scales(f0, f1), _mm512_cvtepi32_ps(integer), sum);           \
            rest += REST(row, f0, b) + REST(next, f1, b + 1);                                      \
        }                                                                                          \
        if (b < blocks) {                                                                          \
            float f0 = load_half(row) * scale[b];                                                  \
            __m512i w = two_blocks(LOAD(row + (AT)), _mm256_setzero_si256());                      \
            __m512i a =                                                                            \
                two_blocks(_mm256_loadu_si256((const __m256i *)(const void *)(q + b * BLOCK)),     \
                           _mm256_setzero_si256());                                                \
            w = _mm512_xor_si512(w, flip);                                                         \
            __m512i integer = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, a);                   \
            sum = _mm512_fmadd_ps(_mm512_set1_ps(f0), _mm512_cvtepi32_ps(integer), sum);           \
            rest += REST(row, f0, b);                                                              \
        }                                                                                          \
        return _mm512_reduce_add_ps(sum) + rest;                                                   \
    }

#define REST_Q8_0(block, factor, b) ((factor) * (float)(-128 * total[b]))
#define REST_Q4_0(block, factor, b) ((factor) * (float)(-8 * total[b]))
#define REST_Q4_1(block, factor, b) (load_half((block) + 2) * scale[b] * (float)total[b])

DEFINE_DOT(dot_q8_0, BYTES_Q8_0, 2, load_bytes, 0x80, REST_Q8_0)
DEFINE_DOT(dot_q4_0, BYTES_Q4_0, 2, load_nibbles, 0, REST_Q4_0)
DEFINE_DOT(dot_q4_1, BYTES_Q4_1, 4, load_nibbles, 0, REST_Q4_1)

static inline __m512i broadcast_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* All 32 rows of the panel times `rows` (a constant up to ROWS) rows of activations. */
static inline __attribute__((always_inline)) void multiply_tile(float *y, size_t y_stride,
                                                                const fast_panel *p,
                                                                const fast_rows *a, size_t row,
                                                                const size_t rows)
{
    __m512 sum[ROWS][2];
    const int8_t *q = a->q + row * a->blocks * BLOCK;
    size_t q_stride = a->blocks * BLOCK;
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    for (size_t b = 0; b < a->blocks; b++) {
        __m512i integer[ROWS][2];
        const int32_t *total = a->total + row * a->blocks + b;
        const float *scale = a->scale + row * a->blocks + b;
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++)
            integer[r][0] = integer[r][1] = _mm512_set1_epi32(-p->offset * total[r * a->blocks]);
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++) {
            const uint8_t *w = p->w + (b * 8 + j) * FAST_PANEL * 4;
            __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++) {
                __m512i four = broadcast_four(q + r * q_stride + b * BLOCK + 4 * j);
                integer[r][0] = _mm512_dpbusd_epi32(integer[r][0], w0, four);
                integer[r][1] = _mm512_dpbusd_epi32(integer[r][1], w1, four);
            }
        }
        __m512 d0 = _mm512_loadu_ps(p->d + b * FAST_PANEL);
        __m512 d1 = _mm512_loadu_ps(p->d + b * FAST_PANEL + 16);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            __m512 s = _mm512_set1_ps(scale[r * a->blocks]);
            sum[r][0] =
                _mm512_fmadd_ps(_mm512_mul_ps(d0, s), _mm512_cvtepi32_ps(integer[r][0]), sum[r][0]);
            sum[r][1] =
                _mm512_fmadd_ps(_mm512_mul_ps(d1, s), _mm512_cvtepi32_ps(integer[r][1]), sum[r][1]);
        }
        if (!p->has_m)
            continue;
        __m512 m0 = _mm512_loadu_ps(p->m + b * FAST_PANEL);
        __m512 m1 = _mm512_loadu_ps(p->m + b * FAST_PANEL + 16);
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++) {
            __m512 t = _mm512_set1_ps(scale[r * a->blocks] * (float)total[r * a->blocks]);
            sum[r][0] = _mm512_fmadd_ps(m0, t, sum[r][0]);
            sum[r][1] = _mm512_fmadd_ps(m1, t, sum[r][1]);
        }
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
        _mm512_storeu_ps(y + (row + r) * y_stride, sum[r][0]);
        _mm512_storeu_ps(y + (row + r) * y_stride + 16, sum[r][1]);
    }
}

static void multiply(float *y, size_t y_stride, const fast_panel *p, const fast_rows *a,
                     size_t rows)
{
    size_t row = 0;
    for (; row + ROWS <= rows; row += ROWS)
        multiply_tile(y, y_stride, p, a, row, ROWS);
    for (; row + 2 <= rows; row += 2)
        multiply_tile(y, y_stride, p, a, row, 2);
    if (row < rows)
        multiply_tile(y, y_stride, p, a, row, 1);
}

const fast_kernels fast_kernels_avx512 = {
    .quantize = quantize,
    .dot = {dot_q8_0, dot_q4_0, dot_q4_1},
    .pack = {pack_q8_0, pack_q4_0, pack_q4_1},
    .multiply = multiply,
};
#endif
