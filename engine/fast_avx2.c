/* Integer kernels for AVX2: 16-bit products of unsigned by signed bytes, summed in pairs. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#define FAST_FLIP 0
#include "engine/fast_pack.h"

#define ROWS 4

static inline float sum_of(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Sums of four products, for weights that are signed: |w| times the activation with w's sign. */
static inline __m256i products_signed(__m256i w, __m256i a)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

static inline __m256i products_unsigned(__m256i w, __m256i a)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1));
}

static inline __m256i load_quanta(const int8_t *q)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)q);
}

/* The form of a dot product: one block a step. */
typedef struct dot_form {
    size_t bytes, quanta_at;
    __m256i (*load)(const uint8_t *q);
    __m256i (*products)(__m256i w, __m256i a);
    __m128 (*factors)(const uint8_t *block, const float *meta);
    float rest; /* what lane 1 of the factors counts: minus the offset, or 1 for m */
} dot_form;

static inline __attribute__((always_inline)) void add_block(__m256 *sum, __m128 *rest,
                                                            const dot_form *form,
                                                            const uint8_t *block, const int8_t *q,
                                                            const float *meta)
{
    __m256i integer = form->products(form->load(block + form->quanta_at), load_quanta(q));
    __m128 f = form->factors(block, meta);
    *rest = _mm_add_ps(*rest, f);
    *sum = _mm256_fmadd_ps(_mm256_broadcastss_ps(f), _mm256_cvtepi32_ps(integer), *sum);
}

static inline __attribute__((always_inline)) float
dot_of(const dot_form form, const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0;
    __m128 r0 = _mm_setzero_ps(), r1 = r0;
    size_t b = 0;
    for (; b + 2 <= blocks; b += 2) {
        add_block(&s0, &r0, &form, row + b * form.bytes, q + b * BLOCK, meta + 2 * b);
        add_block(&s1, &r1, &form, row + (b + 1) * form.bytes, q + (b + 1) * BLOCK,
                  meta + 2 * b + 2);
    }
    if (b < blocks)
        add_block(&s0, &r0, &form, row + b * form.bytes, q + b * BLOCK, meta + 2 * b);
    return sum_of(_mm256_add_ps(s0, s1)) + form.rest * lane_one(_mm_add_ps(r0, r1));
}

static float dot_q8_0(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    const dot_form form = {BYTES_Q8_0, 2, load_bytes, products_signed, factors_d, 0};
    return dot_of(form, row, q, meta, blocks);
}

static float dot_q4_0(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    const dot_form form = {BYTES_Q4_0, 2, load_nibbles, products_unsigned, factors_d, -8};
    return dot_of(form, row, q, meta, blocks);
}

static float dot_q4_1(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    const dot_form form = {BYTES_Q4_1, 4, load_nibbles, products_unsigned, factors_d_m, 1};
    return dot_of(form, row, q, meta, blocks);
}

static inline __m256i broadcast_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Eight rows of the panel from `c` on times ROWS (or fewer) rows of activations. */
static inline __attribute__((always_inline)) void
multiply_tile(float *y, size_t y_stride, const fast_panel *p, const fast_rows *a, size_t row,
              size_t rows, size_t c, int is_signed)
{
    __m256 sum[ROWS];
    for (size_t r = 0; r < ROWS; r++)
        sum[r] = _mm256_setzero_ps();
    for (size_t b = 0; b < a->blocks; b++) {
        __m256i integer[ROWS];
        for (size_t r = 0; r < rows; r++)
            integer[r] = _mm256_set1_epi32(-p->offset * a->total[(row + r) * a->blocks + b]);
        for (size_t j = 0; j < 8; j++) {
            __m256i w = load_bytes(p->w + ((b * 8 + j) * FAST_PANEL + c) * 4);
            for (size_t r = 0; r < rows; r++) {
                __m256i q = broadcast_four(a->q + ((row + r) * a->blocks + b) * BLOCK + 4 * j);
                integer[r] = _mm256_add_epi32(integer[r], is_signed ? products_signed(w, q)
                                                                    : products_unsigned(w, q));
            }
        }
        __m256 d = _mm256_loadu_ps(p->d + b * FAST_PANEL + c);
        for (size_t r = 0; r < rows; r++) {
            size_t at = (row + r) * a->blocks + b;
            __m256 factor = _mm256_mul_ps(d, _mm256_set1_ps(a->meta[2 * at]));
            sum[r] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(integer[r]), sum[r]);
            if (p->has_m)
                sum[r] = _mm256_fmadd_ps(_mm256_loadu_ps(p->m + b * FAST_PANEL + c),
                                         _mm256_set1_ps(a->meta[2 * at + 1]), sum[r]);
        }
    }
    for (size_t r = 0; r < rows; r++)
        _mm256_storeu_ps(y + (row + r) * y_stride + c, sum[r]);
}

static void multiply(float *y, size_t y_stride, const fast_panel *p, const fast_rows *a,
                     size_t rows)
{
    for (size_t row = 0; row < rows; row += ROWS)
        for (size_t c = 0; c < FAST_PANEL; c += 8) {
            size_t n = rows - row;
            if (n >= ROWS && p->is_signed)
                multiply_tile(y, y_stride, p, a, row, ROWS, c, 1);
            else if (n >= ROWS)
                multiply_tile(y, y_stride, p, a, row, ROWS, c, 0);
            else
                multiply_tile(y, y_stride, p, a, row, n, c, p->is_signed);
        }
}

const fast_kernels fast_kernels_avx2 = {
    .quantize = quantize,
    .dot = {dot_q8_0, dot_q4_0, dot_q4_1},
    .pack = {pack_q8_0, pack_q4_0, pack_q4_1},
    .multiply = multiply,
};
#endif
