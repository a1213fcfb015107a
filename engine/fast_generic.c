/* The portable integer kernels: also the twin that the others are tested against. */
#include "engine/fast_kernels.h"
#include "engine/types.h"

#include <math.h>
#include <string.h>

#define WIDTH 8

static float load_half(const uint8_t *p)
{
    return tacit_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static void quantize_block(int8_t *q, float *meta, const float *x)
{
    float most = 0;
    int finite = 1;
    int32_t total = 0;
    for (size_t i = 0; i < FAST_BLOCK; i++) {
        finite &= isfinite(x[i]) != 0;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    float inverse = finite && most > 0 ? 127.0f / most : 0;
    for (size_t i = 0; i < FAST_BLOCK; i++) {
        q[i] = (int8_t)(finite && isfinite(inverse) ? lrintf(x[i] * inverse) : 0);
        total += q[i];
    }
    meta[0] = finite ? most / 127.0f : NAN;
    meta[1] = meta[0] * (float)total;
}

static void quantize(int8_t *q, float *meta, const float *x, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        quantize_block(q + b * FAST_BLOCK, meta + 2 * b, x + b * FAST_BLOCK);
}

/* Value i of column c from the quanta of a block, as it counts in the integer sum. */
static int32_t quantum(const uint8_t *w, fast_form form, size_t c, size_t i)
{
    size_t group = i / 4, at = 4 * c + i % 4, stride = 4 * WIDTH;
    unsigned bits = fast_forms[form].bits;
    if (bits == 8)
        return (int8_t)w[group * stride + at];
    int32_t u = w[group % 4 * stride + at] >> (group < 4 ? 0 : 4) & 15;
    if (bits == 5)
        u |= (w[4 * stride + at] >> group & 1) << 4;
    if (bits == 6)
        u |= (w[(4 + group / 4) * stride + at] >> 2 * (group % 4) & 3) << 4;
    return form == FAST_6 ? u - fast_forms[form].offset : u;
}

/* The sum over one column of a panel times one row of activations. */
static float column(const uint8_t *panel, fast_form form, size_t c, const int8_t *q,
                    const float *meta, size_t blocks)
{
    const fast_form_traits *t = &fast_forms[form];
    size_t stride = fast_block_stride(form, WIDTH), part = FAST_BLOCK / t->scales;
    float sum = 0;
    for (size_t b = 0; b < blocks; b++) {
        const uint8_t *w = panel + b * stride, *d = w + fast_block_bytes(form, WIDTH) + 2 * c;
        float scale = 0;
        for (size_t s = 0; s < t->scales; s++) {
            int32_t integer = 0;
            for (size_t i = s * part; i < (s + 1) * part; i++)
                integer += quantum(w, form, c, i) * q[b * FAST_BLOCK + i];
            scale = load_half(d + 2 * s * WIDTH);
            sum += scale * meta[2 * b] * (float)integer;
        }
        if (t->has_m)
            sum += load_half(d + 2 * WIDTH * t->scales) * meta[2 * b + 1];
        else if (t->scales == 1)
            sum -= (float)t->offset * scale * meta[2 * b + 1];
    }
    return sum;
}

static void multiply(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                     const fast_rows *a, size_t rows, fast_form form)
{
    size_t panel_bytes = fast_panel_bytes(form, WIDTH, a->blocks);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            const uint8_t *p = panel + c / WIDTH * panel_bytes;
            size_t at = r * a->step * a->blocks;
            float sum =
                column(p, form, c % WIDTH, a->q + at * FAST_BLOCK, a->meta + 2 * at, a->blocks);
            at += a->blocks;
            if (a->paired)
                sum +=
                    column(p, form, c % WIDTH, a->q + at * FAST_BLOCK, a->meta + 2 * at, a->blocks);
            y[r * y_stride + c] = sum;
        }
}

#include "engine/fast_multiply_forms.h"

const fast_kernels fast_kernels_generic = {
    .width = WIDTH,
    .quantize = quantize,
    .multiply = MULTIPLY_FORMS,
};
