/* Integer kernels for AVX2: eight columns at a time, products of bytes summed in pairs to 16 bits.
 *
 * Pairs cannot overflow, nor can sums of several where weights have fewer bits; activations are at
 * most 127 in magnitude. 4 bits: 8 groups of 2 * 15 * 127 make 30480, a whole block. 5 bits: 4
 * groups of 2 * 31 * 127 make 31496. 6 bits are signed, multiplied by magnitude with the weight's
 * sign given to the activation: 4 groups of 2 * 32 * 127 make 32512. 8 bits are taken as two times
 * 4, whose sums in 16 bits cost less than one product of 8 bits that must be widened each time and
 * has signs to move: on Zen 3 signs, magnitudes and products share two of the four pipes. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#include "engine/fast_x86.h"

#define WIDTH 8
#define GROUP 32 /* bytes of four columns in a panel */
#define ROWS 4   /* of activations in a register tile */

ALWAYS __m256 load_halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Both halves of the bytes are used: each would be read from memory by itself. */
ALWAYS __m256i load_once(const uint8_t *w)
{
    __m256i both = load_bytes(w);
    SETTLE(both);
    return both;
}

ALWAYS __m256i sum_pairs(__m256i pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* integer[r] += the products of unsigned weights with row r, 16 bits a pair. */
ALWAYS void add_unsigned(__m256i *pairs, __m256i w, const int8_t *q, size_t q_stride,
                         const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++)
    {
        __m256i products = _mm256_maddubs_epi16(w, load_four(q + r * q_stride));
        pairs[r] = _mm256_add_epi16(pairs[r], products);
        SETTLE(pairs[r]);
    }
}

ALWAYS void add_signed(__m256i *pairs, __m256i w, const int8_t *q, size_t q_stride,
                       const size_t rows)
{
    __m256i size = _mm256_abs_epi8(w);
    UNROLL for (size_t r = 0; r < rows; r++)
    {
        __m256i a = _mm256_sign_epi8(load_four(q + r * q_stride), w);
        pairs[r] = _mm256_add_epi16(pairs[r], _mm256_maddubs_epi16(size, a));
        SETTLE(pairs[r]);
    }
}

ALWAYS void clear(__m256i *v, const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++) v[r] = _mm256_setzero_si256();
}

ALWAYS __m256i low_nibbles(__m256i bytes)
{
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

ALWAYS __m256i high_nibbles(__m256i bytes)
{
    return low_nibbles(_mm256_srli_epi16(bytes, 4));
}

/* Bit `j` of every byte as its fifth bit. */
ALWAYS __m256i fifth_bit(__m256i bits, const int j)
{
    __m256i there = j < 4 ? _mm256_slli_epi16(bits, 4 - (j & 3)) : _mm256_srli_epi16(bits, j & 3);
    return _mm256_and_si256(there, _mm256_set1_epi8(16));
}

/* Bits 2 j and 2 j + 1 of every byte as the fifth and sixth. */
ALWAYS __m256i upper_bits(__m256i bits, const int j)
{
    __m256i there = j == 0   ? _mm256_slli_epi16(bits, 4)
                    : j == 1 ? _mm256_slli_epi16(bits, 2)
                    : j == 2 ? bits
                             : _mm256_srli_epi16(bits, 2);
    return _mm256_and_si256(there, _mm256_set1_epi8(0x30));
}

/* The integer sums of one block, of 8 bits. */
ALWAYS void block_8(__m256i *sum, const uint8_t *w, const int8_t *q, size_t q_stride,
                    const size_t rows)
{
    __m256i high[ROWS];
    clear(sum, rows);
    clear(high, rows);
    UNROLL for (size_t g = 0; g < 8; g++)
    {
        __m256i both = load_once(w + g * GROUP);
        __m256i l = low_nibbles(both), h = high_nibbles(both);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            __m256i a = load_four(q + r * q_stride + 4 * g);
            sum[r] = _mm256_add_epi16(sum[r], _mm256_maddubs_epi16(l, a));
            high[r] = _mm256_add_epi16(high[r], _mm256_maddubs_epi16(h, a));
            SETTLE(sum[r]);
            SETTLE(high[r]);
        }
    }
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] =
        _mm256_add_epi32(sum_pairs(sum[r]), _mm256_madd_epi16(high[r], _mm256_set1_epi16(16)));
}

ALWAYS void block_4(__m256i *sum, const uint8_t *w, const int8_t *q, size_t q_stride,
                    const size_t rows)
{
    clear(sum, rows);
    UNROLL for (size_t g = 0; g < 4; g++)
    {
        __m256i both = load_once(w + g * GROUP);
        add_unsigned(sum, low_nibbles(both), q + 4 * g, q_stride, rows);
        add_unsigned(sum, high_nibbles(both), q + 16 + 4 * g, q_stride, rows);
    }
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = sum_pairs(sum[r]);
}

ALWAYS void block_5(__m256i *sum, const uint8_t *w, const int8_t *q, size_t q_stride,
                    const size_t rows)
{
    __m256i bits = load_bytes(w + 4 * GROUP), pairs[ROWS];
    clear(pairs, rows);
    UNROLL for (int g = 0; g < 4; g++)
    {
        __m256i v = low_nibbles(load_bytes(w + g * GROUP));
        add_unsigned(pairs, _mm256_or_si256(v, fifth_bit(bits, g)), q + 4 * g, q_stride, rows);
    }
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = sum_pairs(pairs[r]);
    clear(pairs, rows);
    UNROLL for (int g = 0; g < 4; g++)
    {
        __m256i v = high_nibbles(load_bytes(w + g * GROUP));
        add_unsigned(pairs, _mm256_or_si256(v, fifth_bit(bits, g + 4)), q + 16 + 4 * g, q_stride,
                     rows);
    }
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = _mm256_add_epi32(sum[r], sum_pairs(pairs[r]));
}

/* The sums of columns 0 to 15 (`high` 0) or 16 to 31 of a block. */
ALWAYS void half_block_6(__m256i *sum, const uint8_t *w, const int8_t *q, size_t q_stride,
                         const size_t rows, const int high)
{
    __m256i bits = load_bytes(w + (4 + high) * GROUP);
    clear(sum, rows);
    UNROLL for (int g = 0; g < 4; g++)
    {
        __m256i both = load_once(w + g * GROUP);
        __m256i v = high ? high_nibbles(both) : low_nibbles(both);
        v = _mm256_sub_epi8(_mm256_or_si256(v, upper_bits(bits, g)), _mm256_set1_epi8(32));
        add_signed(sum, v, q + 16 * high + 4 * g, q_stride, rows);
    }
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = sum_pairs(sum[r]);
}

/* y += d (scale integer) */
ALWAYS void add_scaled(__m256 *y, const __m256i *sum, __m256 d, const float *meta, size_t stride,
                       const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++)
    {
        __m256 scale = _mm256_broadcast_ss(meta + r * stride);
        y[r] = _mm256_fmadd_ps(d, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sum[r])), y[r]);
    }
}

/* A block of a panel times `rows` rows, added to y. */
ALWAYS void add_block(__m256 *y, const uint8_t *w, const int8_t *q, size_t q_stride,
                      const float *meta, size_t meta_stride, const size_t rows,
                      const fast_form form)
{
    const uint8_t *scales = w + block_bytes(GROUP, form);
    if (rows <= 2)
        fetch_ahead(w, block_stride(GROUP, form));
    __m256i sum[ROWS];
    if (form == FAST_6) {
        for (int high = 0; high < 2; high++) {
            half_block_6(sum, w, q, q_stride, rows, high);
            __m256 d = load_halves(scales + (size_t)high * 2 * WIDTH);
            add_scaled(y, sum, d, meta, meta_stride, rows);
        }
        return;
    }
    if (form == FAST_8)
        block_8(sum, w, q, q_stride, rows);
    else if (form >= FAST_5)
        block_5(sum, w, q, q_stride, rows);
    else
        block_4(sum, w, q, q_stride, rows);
    __m256 d = load_halves(scales);
    add_scaled(y, sum, d, meta, meta_stride, rows);
    __m256 m = form == FAST_8   ? _mm256_mul_ps(d, _mm256_set1_ps(-128))
               : form == FAST_4 ? _mm256_mul_ps(d, _mm256_set1_ps(-8))
               : form == FAST_5 ? _mm256_mul_ps(d, _mm256_set1_ps(-16))
                                : load_halves(scales + 2 * WIDTH);
    UNROLL for (size_t r = 0; r < rows; r++) y[r] =
        _mm256_fmadd_ps(m, _mm256_broadcast_ss(meta + r * meta_stride + 1), y[r]);
}

static void store_part(float *y, __m256 v, size_t cols)
{
    float all[WIDTH];
    _mm256_storeu_ps(all, v);
    memcpy(y, all, cols * sizeof *y);
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
    __m256 sum[ROWS];
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = _mm256_setzero_ps();
    for (size_t b = 0; b < blocks; b++)
        add_block(sum, panel + b * block_stride(GROUP, form), q + b * FAST_BLOCK, q_stride,
                  meta + 2 * b, meta_stride, rows, form);
    size_t outputs = paired ? rows / 2 : rows;
    y += (paired ? row / 2 : row) * y_stride;
    UNROLL for (size_t r = 0; r < outputs; r++)
    {
        __m256 v = paired ? _mm256_add_ps(sum[2 * r], sum[2 * r + 1]) : sum[r];
        if (cols >= WIDTH)
            _mm256_storeu_ps(y + r * y_stride, v);
        else
            store_part(y + r * y_stride, v, cols);
    }
}

#include "engine/fast_row_tiles.h"

#include "engine/fast_multiply_forms.h"

const fast_kernels fast_kernels_avx2 = {
    .width = WIDTH,
    .flips = true,
    .quantize = quantize,
    .multiply = MULTIPLY_FORMS,
    .tiles = &fast_tiles_avx2,
};
#endif
