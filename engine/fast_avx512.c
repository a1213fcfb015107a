/* Integer kernels for AVX-512 VNNI: sixteen columns at a time, four products of unsigned by signed
 * bytes a lane and step, summed to 32 bits: nothing can overflow. Weights are made unsigned (8 bits
 * are stored so), and m makes up for it; 6 bits take the unsigned sum of the activations away. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#include "engine/fast_x86.h"

#define WIDTH 16
#define GROUP 64 /* bytes of four columns in a panel */
#define ROWS 6   /* of activations in a register tile */

ALWAYS __m512 load_halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(load_bytes(p));
}

ALWAYS __m512i load_wide(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

ALWAYS __m512i broadcast_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

ALWAYS void clear(__m512i *v, const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++) v[r] = _mm512_setzero_si512();
}

/* sum[r] += the products of unsigned weights with row r. */
ALWAYS void add_products(__m512i *sum, __m512i w, const int8_t *q, size_t q_stride,
                         const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++)
    {
        sum[r] = _mm512_dpbusd_epi32(sum[r], w, broadcast_four(q + r * q_stride));
        __asm__ volatile("" : "+v"(sum[r])); /* as SETTLE, in any of 32 registers */
    }
}

ALWAYS __m512i low_nibbles(__m512i bytes)
{
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}

ALWAYS __m512i high_nibbles(__m512i bytes)
{
    return low_nibbles(_mm512_srli_epi16(bytes, 4));
}

/* Bit `j` of every byte as its fifth bit. */
ALWAYS __m512i fifth_bit(__m512i bits, const int j)
{
    __m512i there = j < 4 ? _mm512_slli_epi16(bits, (unsigned)(4 - (j & 3)))
                          : _mm512_srli_epi16(bits, (unsigned)(j & 3));
    return _mm512_and_si512(there, _mm512_set1_epi8(16));
}

/* Bits 2 j and 2 j + 1 of every byte as the fifth and sixth. */
ALWAYS __m512i upper_bits(__m512i bits, const int j)
{
    __m512i there = j == 0   ? _mm512_slli_epi16(bits, 4)
                    : j == 1 ? _mm512_slli_epi16(bits, 2)
                    : j == 2 ? bits
                             : _mm512_srli_epi16(bits, 2);
    return _mm512_and_si512(there, _mm512_set1_epi8(0x30));
}

/* The weights of group g of a block. */
ALWAYS __m512i load_group(const uint8_t *w, const int g, const fast_form form)
{
    if (form == FAST_8)
        return load_wide(w + g * GROUP);
    __m512i both = load_wide(w + g % 4 * GROUP);
    __m512i v = g < 4 ? low_nibbles(both) : high_nibbles(both);
    if (form == FAST_5 || form == FAST_5M)
        v = _mm512_or_si512(v, fifth_bit(load_wide(w + 4 * GROUP), g));
    if (form == FAST_6)
        v = _mm512_or_si512(v, upper_bits(load_wide(w + (4 + g / 4) * GROUP), g % 4));
    return v;
}

/* y += d (scale integer) */
ALWAYS void add_scaled(__m512 *y, const __m512i *sum, __m512 d, const float *meta, size_t stride,
                       const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++)
    {
        __m512 scale = _mm512_set1_ps(meta[r * stride]);
        y[r] = _mm512_fmadd_ps(d, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum[r])), y[r]);
    }
}

/* 16 columns each have a d of their own, but activations one sum for 32: the offset of 32 is
 * multiplied here, as weights that are all 32. */
ALWAYS void add_block_6(__m512 *y, const uint8_t *w, const int8_t *q, size_t q_stride,
                        const float *meta, size_t meta_stride, const size_t rows)
{
    for (int half = 0; half < 2; half++) {
        __m512i sum[ROWS], offset[ROWS];
        clear(sum, rows);
        clear(offset, rows);
        UNROLL for (int g = 0; g < 4; g++)
        {
            const int8_t *four = q + 16 * half + 4 * g;
            __m512i v = half ? load_group(w, g + 4, FAST_6) : load_group(w, g, FAST_6);
            add_products(sum, v, four, q_stride, rows);
            add_products(offset, _mm512_set1_epi8(32), four, q_stride, rows);
        }
        UNROLL for (size_t r = 0; r < rows; r++) sum[r] = _mm512_sub_epi32(sum[r], offset[r]);
        __m512 d = load_halves(w + block_bytes(GROUP, FAST_6) + (size_t)half * 2 * WIDTH);
        add_scaled(y, sum, d, meta, meta_stride, rows);
    }
}

/* A block of a panel times `rows` rows, added to y. */
ALWAYS void add_block(__m512 *y, const uint8_t *w, const int8_t *q, size_t q_stride,
                      const float *meta, size_t meta_stride, const size_t rows,
                      const fast_form form)
{
    const uint8_t *scales = w + block_bytes(GROUP, form);
    if (rows <= 2)
        fetch_ahead(w, block_stride(GROUP, form));
    if (form == FAST_6) {
        add_block_6(y, w, q, q_stride, meta, meta_stride, rows);
        return;
    }
    __m512i sum[ROWS];
    clear(sum, rows);
    UNROLL for (int g = 0; g < 8; g++)
        add_products(sum, load_group(w, g, form), q + 4 * g, q_stride, rows);
    __m512 d = load_halves(scales);
    add_scaled(y, sum, d, meta, meta_stride, rows);
    __m512 m = form == FAST_8   ? _mm512_mul_ps(d, _mm512_set1_ps(-128))
               : form == FAST_4 ? _mm512_mul_ps(d, _mm512_set1_ps(-8))
               : form == FAST_5 ? _mm512_mul_ps(d, _mm512_set1_ps(-16))
                                : load_halves(scales + 2 * WIDTH);
    UNROLL for (size_t r = 0; r < rows; r++) y[r] =
        _mm512_fmadd_ps(m, _mm512_set1_ps(meta[r * meta_stride + 1]), y[r]);
}

/* One panel times `rows` rows of quanta, those of a pair summed. */
ALWAYS void multiply_tile(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                          const fast_rows *a, size_t row, const size_t rows, const bool paired,
                          const fast_form form)
{
    size_t blocks = a->blocks, step = paired ? 1 : a->step;
    size_t q_stride = step * blocks * FAST_BLOCK, meta_stride = 2 * step * blocks;
    const int8_t *q = a->q + row * q_stride;
    const float *meta = a->meta + row * meta_stride;
    __m512 sum[ROWS];
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = _mm512_setzero_ps();
    for (size_t b = 0; b < blocks; b++)
        add_block(sum, panel + b * block_stride(GROUP, form), q + b * FAST_BLOCK, q_stride,
                  meta + 2 * b, meta_stride, rows, form);
    size_t outputs = paired ? rows / 2 : rows;
    __mmask16 lanes = (__mmask16)(cols >= WIDTH ? 0xffff : (1u << cols) - 1);
    y += (paired ? row / 2 : row) * y_stride;
    UNROLL for (size_t r = 0; r < outputs; r++) _mm512_mask_storeu_ps(
        y + r * y_stride, lanes, paired ? _mm512_add_ps(sum[2 * r], sum[2 * r + 1]) : sum[r]);
}

#include "engine/fast_row_tiles.h"

#include "engine/fast_multiply_forms.h"

#define ROWS_OF_BOTH                                                                               \
    .width = WIDTH, .flips = true, .sums_bytes = true, .quantize = quantize,                       \
    .multiply = MULTIPLY_FORMS

const fast_kernels fast_kernels_avx512 = {ROWS_OF_BOTH, .tiles = &fast_tiles_avx512};
/* Few rows are multiplied alike on processors with tiles. */
const fast_kernels fast_kernels_amx = {ROWS_OF_BOTH, .tiles = &fast_tiles_amx};
#endif
