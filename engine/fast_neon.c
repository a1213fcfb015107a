/* Integer kernels for 64-bit ARM with dot products (FEAT_DotProd): eight columns at a time in two
 * registers, four products of signed bytes a lane and step, summed to 32 bits: nothing can
 * overflow. The weights of half a block lie in registers while the rows of a tile pass by. */
#include "engine/fast_kernels.h"

#if defined(__aarch64__)
#include "engine/fast_arm.h"

#include <math.h>

#define ROWS 4 /* of activations in a register tile */

/* Of eight columns. */
typedef struct wide_sum {
    int32x4_t v[2];
} wide_sum;

/* sum += the products with 16 quanta of one row. */
ALWAYS void add_products(wide_sum *sum, const half_block *w, const int8_t *q)
{
    int8x16_t a = vld1q_s8(q);
    UNROLL for (int i = 0; i < 2; i++)
    {
        int32x4_t s = sum->v[i];
        s = vdotq_laneq_s32(s, w->v[0][i], a, 0);
        s = vdotq_laneq_s32(s, w->v[1][i], a, 1);
        s = vdotq_laneq_s32(s, w->v[2][i], a, 2);
        s = vdotq_laneq_s32(s, w->v[3][i], a, 3);
        sum->v[i] = s;
    }
}

/* y += d (scale integer) */
ALWAYS void add_scaled(wide *y, const wide_sum *sum, wide d, float scale)
{
    UNROLL for (int i = 0; i < 2; i++)
    {
        float32x4_t scaled = vmulq_n_f32(vcvtq_f32_s32(sum->v[i]), scale);
        y->v[i] = vfmaq_f32(y->v[i], d.v[i], scaled);
    }
}

/* A block of a panel times `rows` rows, added to y. */
ALWAYS void add_block(wide *y, const uint8_t *w, const int8_t *q, size_t q_stride,
                      const float *meta, size_t meta_stride, const size_t rows,
                      const fast_form form)
{
    const uint8_t *scales = w + block_bytes(form);
    wide_sum sum[ROWS] = {{{vdupq_n_s32(0), vdupq_n_s32(0)}}};
    wide d = load_halves(scales);
    for (int high = 0; high < 2; high++) {
        half_block half = load_half(w, high, form);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            if (high == 0 || form == FAST_6)
                sum[r] = (wide_sum){{vdupq_n_s32(0), vdupq_n_s32(0)}};
            add_products(&sum[r], &half, q + r * q_stride + 16 * high);
            if (high == 1 || form == FAST_6)
                add_scaled(&y[r], &sum[r], d, meta[r * meta_stride]);
        }
        if (form == FAST_6 && high == 0)
            d = load_halves(scales + 2 * WIDTH);
    }
    if (form == FAST_8 || form == FAST_6)
        return;
    wide m = form == FAST_4   ? times(d, -8)
             : form == FAST_5 ? times(d, -16)
                              : load_halves(scales + 2 * WIDTH);
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (int i = 0; i < 2; i++) y[r].v[i] =
        vfmaq_n_f32(y[r].v[i], m.v[i], meta[r * meta_stride + 1]);
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
    wide sum[ROWS];
    UNROLL for (size_t r = 0; r < rows; r++) sum[r] = (wide){{vdupq_n_f32(0), vdupq_n_f32(0)}};
    for (size_t b = 0; b < blocks; b++)
        add_block(sum, panel + b * block_stride(form), q + b * FAST_BLOCK, q_stride, meta + 2 * b,
                  meta_stride, rows, form);
    size_t outputs = paired ? rows / 2 : rows;
    y += (paired ? row / 2 : row) * y_stride;
    UNROLL for (size_t r = 0; r < outputs; r++)
    {
        wide v = paired ? sum[2 * r] : sum[r];
        UNROLL for (int i = 0; paired && i < 2; i++) v.v[i] =
            vaddq_f32(v.v[i], sum[2 * r + 1].v[i]);
        store_part(y + r * y_stride, v, cols < WIDTH ? cols : WIDTH);
    }
}

#include "engine/fast_row_tiles.h"

static void quantize_block(int8_t *q, float *meta, const float *x)
{
    float32x4_t v[8], most = vdupq_n_f32(0);
    for (size_t i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        most = vmaxq_f32(most, vabsq_f32(v[i])); /* NaN where one is */
    }
    float largest = vmaxvq_f32(most);
    bool finite = isfinite(largest);
    /* Of values so small that the inverse is infinite nothing is left. */
    float inverse = finite && largest > 0 ? 127.0f / largest : 0;
    bool usable = finite && isfinite(inverse);
    int32_t total = 0;
    for (size_t i = 0; i < 8; i += 4) {
        int32x4_t r[4];
        for (size_t j = 0; j < 4; j++)
            r[j] = usable ? vcvtnq_s32_f32(vmulq_n_f32(v[i + j], inverse)) : vdupq_n_s32(0);
        total += vaddvq_s32(vaddq_s32(vaddq_s32(r[0], r[1]), vaddq_s32(r[2], r[3])));
        int16x8_t low = vcombine_s16(vqmovn_s32(r[0]), vqmovn_s32(r[1]));
        int16x8_t high = vcombine_s16(vqmovn_s32(r[2]), vqmovn_s32(r[3]));
        vst1q_s8(q + 4 * i, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    }
    meta[0] = finite ? largest / 127.0f : NAN;
    meta[1] = meta[0] * (float)total;
}

void fast_quantize_neon(int8_t *q, float *meta, const float *x, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        quantize_block(q + b * FAST_BLOCK, meta + 2 * b, x + b * FAST_BLOCK);
}

#include "engine/fast_multiply_forms.h"

const fast_kernels fast_kernels_neon = {
    .width = WIDTH,
    .sums_bytes = true,
    .quantize = fast_quantize_neon,
    .multiply = MULTIPLY_FORMS,
};
#endif
