/* Integer kernels for AVX-512 VNNI: four products of unsigned by signed bytes a lane and step. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#define FAST_FLIP 0x80
#include "engine/fast_pack.h"

#define ROWS 6

static inline __m128i load_half_block(const uint8_t *q)
{
    return _mm_loadu_si128((const __m128i *)(const void *)q);
}

/* Two blocks of quanta, the first in the lower half. */
static inline __m512i nibbles_of_two(const uint8_t *first, const uint8_t *second)
{
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                           0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i v = _mm512_broadcast_i32x4(load_half_block(first));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, load_half_block(second));
    return _mm512_and_si512(_mm512_srlv_epi16(v, shift), _mm512_set1_epi8(15));
}

static inline __m512i bytes_of_two(const uint8_t *first, const uint8_t *second)
{
    __m512i v =
        _mm512_inserti64x4(_mm512_castsi256_si512(load_bytes(first)), load_bytes(second), 1);
    return _mm512_xor_si512(v, _mm512_set1_epi8((char)FAST_FLIP));
}

/* The form of a dot product. Blocks go in pairs, one in each half of a register; a last single one
 * is paired with itself against zero quanta. */
typedef struct dot_form {
    size_t bytes, quanta_at;
    __m512i (*load)(const uint8_t *first, const uint8_t *second);
    __m128 (*factors)(const uint8_t *block, const float *meta);
    float rest; /* what lane 1 of the factors counts: minus the offset, or 1 for m */
} dot_form;

typedef struct dot_sums {
    __m512 sum;
    __m128 rest;
} dot_sums;

static inline __attribute__((always_inline)) void add_pair(dot_sums *s, const dot_form *form,
                                                           const uint8_t *first, const int8_t *q,
                                                           const float *meta)
{
    const __m512i halves = _mm512_set_epi32(16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0);
    const uint8_t *second = first + form->bytes;
    __m512i w = form->load(first + form->quanta_at, second + form->quanta_at);
    __m512i integer =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_loadu_si512((const void *)q));
    __m128 f0 = form->factors(first, meta), f1 = form->factors(second, meta + 2);
    s->rest = _mm_add_ps(s->rest, _mm_add_ps(f0, f1));
    __m512 factor =
        _mm512_permutex2var_ps(_mm512_castps128_ps512(f0), halves, _mm512_castps128_ps512(f1));
    s->sum = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(integer), s->sum);
}

static inline __attribute__((always_inline)) void add_single(dot_sums *s, const dot_form *form,
                                                             const uint8_t *block, const int8_t *q,
                                                             const float *meta)
{
    __m512i w = form->load(block + form->quanta_at, block + form->quanta_at);
    __m512i integer =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_maskz_loadu_epi64(0x0f, q));
    __m128 f = form->factors(block, meta);
    s->rest = _mm_add_ps(s->rest, f);
    s->sum = _mm512_fmadd_ps(_mm512_broadcastss_ps(f), _mm512_cvtepi32_ps(integer), s->sum);
}

static inline __attribute__((always_inline)) float
dot_of(const dot_form form, const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    dot_sums s0 = {_mm512_setzero_ps(), _mm_setzero_ps()}, s1 = s0;
    size_t b = 0;
    for (; b + 4 <= blocks; b += 4) {
        add_pair(&s0, &form, row + b * form.bytes, q + b * BLOCK, meta + 2 * b);
        add_pair(&s1, &form, row + (b + 2) * form.bytes, q + (b + 2) * BLOCK, meta + 2 * b + 4);
    }
    if (b + 2 <= blocks) {
        add_pair(&s0, &form, row + b * form.bytes, q + b * BLOCK, meta + 2 * b);
        b += 2;
    }
    if (b < blocks)
        add_single(&s0, &form, row + b * form.bytes, q + b * BLOCK, meta + 2 * b);
    float rest = lane_one(_mm_add_ps(s0.rest, s1.rest));
    return _mm512_reduce_add_ps(_mm512_add_ps(s0.sum, s1.sum)) + form.rest * rest;
}

static float dot_q8_0(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    const dot_form form = {BYTES_Q8_0, 2, bytes_of_two, factors_d, -128};
    return dot_of(form, row, q, meta, blocks);
}

static float dot_q4_0(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    const dot_form form = {BYTES_Q4_0, 2, nibbles_of_two, factors_d, -8};
    return dot_of(form, row, q, meta, blocks);
}

static float dot_q4_1(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    const dot_form form = {BYTES_Q4_1, 4, nibbles_of_two, factors_d_m, 1};
    return dot_of(form, row, q, meta, blocks);
}

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
        const float *meta = a->meta + 2 * (row * a->blocks + b);
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
            __m512 s = _mm512_set1_ps(meta[2 * r * a->blocks]);
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
            __m512 t = _mm512_set1_ps(meta[2 * r * a->blocks + 1]);
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
