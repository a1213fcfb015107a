/* What the ARM integer kernels share: panels of eight columns, taken apart. */
#ifndef TACIT_ENGINE_FAST_ARM_H
#define TACIT_ENGINE_FAST_ARM_H

#include "engine/fast_kernels.h"

#include <arm_neon.h>
#include <string.h>

#define WIDTH 8
#define GROUP 32 /* bytes of four columns in a panel */
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

typedef struct panel_reader {
    const uint8_t *w, *d, *m;
} panel_reader;

/* Of eight columns. */
typedef struct wide {
    float32x4_t v[2];
} wide;

/* The weights of 16 columns of a block: four groups. */
typedef struct half_block {
    int8x16_t v[4][2];
} half_block;

ALWAYS wide load_halves(const uint8_t *p)
{
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
    return (wide){{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
}

ALWAYS wide times(wide a, float x)
{
    return (wide){{vmulq_n_f32(a.v[0], x), vmulq_n_f32(a.v[1], x)}};
}

ALWAYS uint8x16_t nibbles(const uint8_t *w, const int high)
{
    uint8x16_t both = vld1q_u8(w);
    return high ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15));
}

/* Bits [from, from + count) of every byte, put at bit 4. */
ALWAYS uint8x16_t upper_bits(uint8x16_t bits, int from, int count)
{
    int8x16_t move = vdupq_n_s8((int8_t)(4 - from)); /* a negative shift is one to the right */
    uint8_t mask = (uint8_t)(((1 << count) - 1) << 4);
    return vandq_u8(vshlq_u8(bits, move), vdupq_n_u8(mask));
}

/* The weights of columns 0 to 15 (`high` 0) or 16 to 31 of a block, as they count in the sum. */
ALWAYS half_block load_half(const uint8_t *w, const int high, const fast_form form)
{
    half_block o;
    UNROLL for (int g = 0; g < 4; g++) UNROLL for (int i = 0; i < 2; i++)
    {
        if (form == FAST_8) {
            o.v[g][i] = vreinterpretq_s8_u8(vld1q_u8(w + (4 * high + g) * GROUP + 16 * i));
            continue;
        }
        uint8x16_t v = nibbles(w + g * GROUP + 16 * i, high);
        if (form == FAST_5 || form == FAST_5M)
            v = vorrq_u8(v, upper_bits(vld1q_u8(w + 4 * GROUP + 16 * i), 4 * high + g, 1));
        if (form == FAST_6)
            v = vorrq_u8(v, upper_bits(vld1q_u8(w + (4 + high) * GROUP + 16 * i), 2 * g, 2));
        o.v[g][i] = vreinterpretq_s8_u8(v);
        if (form == FAST_6)
            o.v[g][i] = vsubq_s8(o.v[g][i], vdupq_n_s8(32));
    }
    return o;
}

ALWAYS size_t block_bytes(const fast_form form)
{
    return GROUP * (form == FAST_8 ? 8u : form == FAST_6 ? 6u : form >= FAST_5 ? 5u : 4u);
}

/* Panel `i` of a product's. */
ALWAYS panel_reader read_panel(const uint8_t *panel, size_t i, const size_t width, size_t blocks,
                               const fast_form form)
{
    const uint8_t *w = panel + i * fast_panel_bytes(form, width, blocks);
    panel_reader p = {.w = w, .d = w + blocks * fast_block_bytes(form, width)};
    p.m = p.d + 2 * width * blocks * fast_forms[form].scales;
    return p;
}

ALWAYS void store_part(float *y, wide v, size_t cols)
{
    float all[WIDTH];
    vst1q_f32(all, v.v[0]);
    vst1q_f32(all + 4, v.v[1]);
    memcpy(y, all, cols * sizeof *y);
}

/* What both variants quantize with (fast_kernels.h). */
void fast_quantize_neon(int8_t *q, float *meta, const float *x, size_t blocks);

#endif
