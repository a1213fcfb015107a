/* Integer kernels for 64-bit ARM with matrix products (FEAT_I8MM): one instruction multiplies two
 * rows of eight bytes by two columns of eight, twice what dot products do. Two rows of activations
 * go together; sums, scales and results keep the order (row 0: columns 0 1, row 1: columns 0 1) to
 * the end of a panel. A last row without a partner is computed by dot products: to the same bits,
 * since sums of quanta are exact and the steps after them are the same. */
#include "engine/fast_kernels.h"

#if defined(__aarch64__)
#include "engine/fast_arm.h"

#define PAIRS 2 /* of rows of activations in a register tile */
#define QUADS 4 /* registers of two columns and two rows, for the columns of a panel */

typedef struct quads {
    float32x4_t v[QUADS];
} quads;

typedef struct quad_sums {
    int32x4_t v[QUADS];
} quad_sums;

/* The weights of 16 columns of a block: of two columns, eight at a time. */
typedef struct quad_weights {
    int8x16_t v[2][QUADS];
} quad_weights;

ALWAYS int8x16_t zip_low(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}

ALWAYS int8x16_t zip_high(int8x16_t a, int8x16_t b)
{
    return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}

ALWAYS quad_weights load_quads(const uint8_t *w, const int high, const fast_form form)
{
    half_block half = load_half(w, high, form);
    quad_weights o;
    UNROLL for (int k = 0; k < 2; k++) UNROLL for (int i = 0; i < 2; i++)
    {
        o.v[k][2 * i] = zip_low(half.v[2 * k][i], half.v[2 * k + 1][i]);
        o.v[k][2 * i + 1] = zip_high(half.v[2 * k][i], half.v[2 * k + 1][i]);
    }
    return o;
}

/* Of eight columns, each value for both rows. */
ALWAYS quads spread(wide a)
{
    quads o;
    UNROLL for (int i = 0; i < 2; i++)
    {
        float64x2_t v = vreinterpretq_f64_f32(a.v[i]);
        o.v[2 * i] = vreinterpretq_f32_f64(vzip1q_f64(v, v));
        o.v[2 * i + 1] = vreinterpretq_f32_f64(vzip2q_f64(v, v));
    }
    return o;
}

/* (a, a, b, b) */
ALWAYS float32x4_t of_rows(float a, float b)
{
    return vcombine_f32(vdup_n_f32(a), vdup_n_f32(b));
}

/* sum += the products with 16 quanta of two rows. */
ALWAYS void add_products(quad_sums *sum, const quad_weights *w, const int8_t *q, size_t q_stride)
{
    UNROLL for (int k = 0; k < 2; k++)
    {
        int8x16_t a = vcombine_s8(vld1_s8(q + 8 * k), vld1_s8(q + q_stride + 8 * k));
        UNROLL for (int i = 0; i < QUADS; i++) sum->v[i] = vmmlaq_s32(sum->v[i], a, w->v[k][i]);
    }
}

/* y += d (scale integer) */
ALWAYS void add_scaled(quads *y, const quad_sums *sum, const quads *d, float32x4_t scale)
{
    UNROLL for (int i = 0; i < QUADS; i++) y->v[i] =
        vfmaq_f32(y->v[i], d->v[i], vmulq_f32(vcvtq_f32_s32(sum->v[i]), scale));
}

ALWAYS void clear(quad_sums *sum)
{
    UNROLL for (int i = 0; i < QUADS; i++) sum->v[i] = vdupq_n_s32(0);
}

/* What the quanta of a block are moved by, times the sums of two rows. */
ALWAYS void add_offset(quads *y, const quads *m, const float *meta, size_t meta_stride)
{
    float32x4_t sums = of_rows(meta[1], meta[meta_stride + 1]);
    UNROLL for (int i = 0; i < QUADS; i++) y->v[i] = vfmaq_f32(y->v[i], m->v[i], sums);
}

/* A block of a panel times `pairs` pairs of rows, added to y. */
ALWAYS void add_block(quads *y, const uint8_t *w, const int8_t *q, size_t q_stride,
                      const float *meta, size_t meta_stride, const size_t pairs,
                      const fast_form form)
{
    const uint8_t *scales = w + block_bytes(form);
    quad_sums sum[PAIRS];
    wide halves = load_halves(scales);
    quads d = spread(halves);
    for (int high = 0; high < 2; high++) {
        quad_weights weights = load_quads(w, high, form);
        if (form == FAST_6 && high == 1)
            d = spread(load_halves(scales + 2 * WIDTH));
        UNROLL for (size_t r = 0; r < pairs; r++)
        {
            const float *scale = meta + 2 * r * meta_stride;
            if (high == 0 || form == FAST_6)
                clear(&sum[r]);
            add_products(&sum[r], &weights, q + 2 * r * q_stride + 16 * high, q_stride);
            if (high == 1 || form == FAST_6)
                add_scaled(&y[r], &sum[r], &d, of_rows(scale[0], scale[meta_stride]));
        }
    }
    if (form == FAST_8 || form == FAST_6)
        return;
    quads m = spread(form == FAST_4   ? times(halves, -8)
                     : form == FAST_5 ? times(halves, -16)
                                      : load_halves(scales + 2 * WIDTH));
    UNROLL for (size_t r = 0; r < pairs; r++)
        add_offset(&y[r], &m, meta + 2 * r * meta_stride, meta_stride);
}

/* The columns of one of the two rows. */
ALWAYS wide row_of(const quads *y, const int row)
{
    wide o;
    UNROLL for (int i = 0; i < 2; i++)
    {
        float64x2_t a = vreinterpretq_f64_f32(y->v[2 * i]);
        float64x2_t b = vreinterpretq_f64_f32(y->v[2 * i + 1]);
        o.v[i] = vreinterpretq_f32_f64(row ? vzip2q_f64(a, b) : vzip1q_f64(a, b));
    }
    return o;
}

ALWAYS void store_pair(float *y, size_t y_stride, size_t cols, const quads *sum, const bool paired)
{
    wide a = row_of(sum, 0), b = row_of(sum, 1);
    if (paired) {
        UNROLL for (int i = 0; i < 2; i++) a.v[i] = vaddq_f32(a.v[i], b.v[i]);
        store_part(y, a, cols);
        return;
    }
    store_part(y, a, cols);
    store_part(y + y_stride, b, cols);
}

/* One panel times `pairs` pairs of rows of quanta, from row `row` on. */
ALWAYS void multiply_tile(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                          const fast_rows *a, size_t row, const size_t pairs, const bool paired,
                          const fast_form form)
{
    size_t step = paired ? 1 : a->step;
    size_t q_stride = step * a->blocks * FAST_BLOCK, meta_stride = 2 * step * a->blocks;
    const int8_t *q = a->q + row * q_stride;
    const float *meta = a->meta + row * meta_stride;
    quads sum[PAIRS];
    UNROLL for (size_t r = 0; r < pairs; r++) UNROLL for (int i = 0; i < QUADS; i++) sum[r].v[i] =
        vdupq_n_f32(0);
    for (size_t b = 0; b < a->blocks; b++)
        add_block(sum, panel + b * block_stride(form), q + b * FAST_BLOCK, q_stride, meta + 2 * b,
                  meta_stride, pairs, form);
    size_t outputs = paired ? 1 : 2; /* of a pair */
    y += (paired ? row / 2 : row) * y_stride;
    UNROLL for (size_t r = 0; r < pairs; r++)
        store_pair(y + r * outputs * y_stride, y_stride, cols, &sum[r], paired);
}

ALWAYS void multiply_rows(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                          const fast_rows *a, size_t row, const size_t pairs, const fast_form form)
{
    size_t part = cols < WIDTH ? cols : WIDTH;
    if (a->paired)
        multiply_tile(y, y_stride, part, panel, a, row, pairs, true, form);
    else
        multiply_tile(y, y_stride, part, panel, a, row, pairs, false, form);
}

/* Tiles of rows by all panels, so that the rows' quanta stay in the nearest cache. */
ALWAYS void multiply(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                     const fast_rows *a, size_t rows, const fast_form form)
{
    size_t n = a->paired ? 2 * rows : rows, even = n / 2 * 2, done;
    for (size_t row = 0; row < even; row += done) {
        done = even - row >= 2 * PAIRS ? 2 * PAIRS : 2;
        for (size_t c = 0; c < cols; c += WIDTH) {
            const uint8_t *p = panel + c / WIDTH * fast_panel_bytes(form, WIDTH, a->blocks);
            if (done == 2 * PAIRS)
                multiply_rows(y + c, y_stride, cols - c, p, a, row, PAIRS, form);
            else
                multiply_rows(y + c, y_stride, cols - c, p, a, row, 1, form);
        }
    }
    if (even == n)
        return;
    fast_rows last = *a;
    last.q += even * a->step * a->blocks * FAST_BLOCK;
    last.meta += even * a->step * a->blocks * 2;
    fast_kernels_neon.multiply[form](y + even * y_stride, y_stride, cols, panel, &last, 1);
}

#include "engine/fast_multiply_forms.h"

const fast_kernels fast_kernels_i8mm = {
    .width = WIDTH,
    .sums_bytes = true,
    .quantize = fast_quantize_neon,
    .multiply = MULTIPLY_FORMS,
};
#endif
