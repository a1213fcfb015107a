/* The portable integer kernels: also the twin that the others are tested against. */
#include "engine/fast_kernels.h"
#include "engine/types.h"

#include <math.h>
#include <string.h>

#define BLOCK 32

static float load_half(const uint8_t *p)
{
    return tacit_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static void quantize_block(int8_t *q, float *meta, int32_t *total, const float *x)
{
    float most = 0;
    int finite = 1;
    for (size_t i = 0; i < BLOCK; i++) {
        finite &= isfinite(x[i]) != 0;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    float inverse = finite && most > 0 ? 127.0f / most : 0;
    *total = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        q[i] = (int8_t)(finite ? lrintf(x[i] * inverse) : 0);
        *total += q[i];
    }
    meta[0] = finite ? most / 127.0f : NAN;
    meta[1] = meta[0] * (float)*total;
}

static void quantize(int8_t *q, float *meta, int32_t *total, const float *x, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++)
        quantize_block(q + b * BLOCK, meta + 2 * b, total + b, x + b * BLOCK);
}

/* The quanta of a block as they count: minus the offset. */
typedef struct type_form {
    size_t bytes; /* of a block */
    size_t quanta_at;
    int32_t offset;
    int nibbles, has_m;
} type_form;

static const type_form forms[FAST_TYPES] = {
    [FAST_Q8_0] = {34, 2, 0, 0, 0},
    [FAST_Q4_0] = {18, 2, 8, 1, 0},
    [FAST_Q4_1] = {20, 4, 0, 1, 1},
};

static int32_t quantum(const type_form *f, const uint8_t *block, size_t i)
{
    const uint8_t *q = block + f->quanta_at;
    if (!f->nibbles)
        return (int8_t)q[i];
    return i < BLOCK / 2 ? q[i] & 15 : q[i - BLOCK / 2] >> 4;
}

static float dot_of(const type_form *f, const uint8_t *row, const int8_t *q, const float *meta,
                    size_t blocks)
{
    float sum = 0;
    for (size_t b = 0; b < blocks; b++, row += f->bytes, q += BLOCK, meta += 2) {
        int32_t integer = 0;
        for (size_t i = 0; i < BLOCK; i++)
            integer += (quantum(f, row, i) - f->offset) * q[i];
        sum += load_half(row) * meta[0] * (float)integer;
        if (f->has_m)
            sum += load_half(row + 2) * meta[1];
    }
    return sum;
}

static void pack_of(const type_form *f, fast_panel *p, const uint8_t *const *row, size_t blocks)
{
    p->offset = f->offset;
    p->is_signed = !f->nibbles;
    p->has_m = f->has_m;
    for (size_t r = 0; r < FAST_PANEL; r++)
        for (size_t b = 0; b < blocks; b++) {
            const uint8_t *block = row[r] + b * f->bytes;
            p->d[b * FAST_PANEL + r] = load_half(block);
            if (f->has_m)
                p->m[b * FAST_PANEL + r] = load_half(block + 2);
            for (size_t i = 0; i < BLOCK; i++)
                p->w[((b * BLOCK + i) / 4 * FAST_PANEL + r) * 4 + i % 4] =
                    (uint8_t)quantum(f, block, i);
        }
}

static float dot_q8_0(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    return dot_of(&forms[FAST_Q8_0], row, q, meta, blocks);
}

static float dot_q4_0(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    return dot_of(&forms[FAST_Q4_0], row, q, meta, blocks);
}

static float dot_q4_1(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks)
{
    return dot_of(&forms[FAST_Q4_1], row, q, meta, blocks);
}

static void pack_q8_0(fast_panel *p, const uint8_t *const *row, size_t blocks)
{
    pack_of(&forms[FAST_Q8_0], p, row, blocks);
}

static void pack_q4_0(fast_panel *p, const uint8_t *const *row, size_t blocks)
{
    pack_of(&forms[FAST_Q4_0], p, row, blocks);
}

static void pack_q4_1(fast_panel *p, const uint8_t *const *row, size_t blocks)
{
    pack_of(&forms[FAST_Q4_1], p, row, blocks);
}

/* integer[c] of one block: sum of the quanta of panel row c times those of the activation. */
static void multiply_block(int32_t *integer, const fast_panel *p, const int8_t *q, size_t b,
                           int32_t total)
{
    for (size_t c = 0; c < FAST_PANEL; c++)
        integer[c] = -p->offset * total;
    for (size_t i = 0; i < BLOCK; i++) {
        const uint8_t *w = p->w + (b * BLOCK + i) / 4 * FAST_PANEL * 4 + i % 4;
        for (size_t c = 0; c < FAST_PANEL; c++) {
            int32_t u = w[c * 4];
            integer[c] += (p->is_signed ? (int8_t)w[c * 4] : u) * q[i];
        }
    }
}

static void multiply(float *y, size_t y_stride, const fast_panel *p, const fast_rows *a,
                     size_t rows)
{
    for (size_t r = 0; r < rows; r++) {
        float sum[FAST_PANEL] = {0};
        for (size_t b = 0; b < a->blocks; b++) {
            size_t at = r * a->blocks + b;
            int32_t integer[FAST_PANEL];
            multiply_block(integer, p, a->q + at * BLOCK, b, a->total[at]);
            for (size_t c = 0; c < FAST_PANEL; c++) {
                sum[c] += p->d[b * FAST_PANEL + c] * a->meta[2 * at] * (float)integer[c];
                if (p->has_m)
                    sum[c] += p->m[b * FAST_PANEL + c] * a->meta[2 * at + 1];
            }
        }
        memcpy(y + r * y_stride, sum, sizeof sum);
    }
}

const fast_kernels fast_kernels_generic = {
    .quantize = quantize,
    .dot = {dot_q8_0, dot_q4_0, dot_q4_1},
    .pack = {pack_q8_0, pack_q4_0, pack_q4_1},
    .multiply = multiply,
};
