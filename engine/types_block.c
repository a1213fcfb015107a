#include "engine/types_fit.h"
#include "engine/types_parts.h"

#include <math.h>
#include <string.h>

/* One block of 32 values: f16 scales first, then the quanta (layouts of the ggml project).
 *
 * from_f32 gives the bytes that the ecosystem's reference gives. Every block reads back finite: a
 * scale beyond a half's range becomes the largest half, NaN counts as 0. */
enum { BLOCK = 32, HALF_BLOCK = BLOCK / 2 };

static void store_scale(uint8_t *to, float f)
{
    types_store_f16(to, isnan(f) ? 0 : types_as_f16(f));
}

/* q8_0: f16 d, 32 signed bytes; value = q * d. */
void q8_0_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + BLOCK) {
        float d = types_load_f16(block);
        for (size_t j = 0; j < BLOCK; j++)
            out[i + j] = (float)(int8_t)block[2 + j] * d;
    }
}

/* Rounds half away from zero within [-limit, limit]; NaN becomes 0. */
static int round_within(float v, float limit)
{
    if (!(v > -limit))
        return isnan(v) ? 0 : (int)-limit;
    return v < limit ? (int)roundf(v) : (int)limit;
}

/* Inverses of scales are taken as the ecosystem does: of fp32, before the scale becomes f16. */
void q8_0_from_f32(void *out, const float *in, size_t n)
{
    uint8_t *block = out;
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + BLOCK) {
        float largest = 0;
        for (size_t j = 0; j < BLOCK; j++)
            largest = fmaxf(largest, fabsf(in[i + j]));
        float d = largest / 127, inverse = types_inverse(d);
        store_scale(block, d);
        for (size_t j = 0; j < BLOCK; j++)
            block[2 + j] = (uint8_t)round_within(in[i + j] * inverse, 127);
    }
}

/* ---- 4 and 5 bits ----
 *
 * Byte j of the 16 holds value j in its low nibble and value j + 16 in its high one; with five bits
 * a little-endian u32 before them holds the fifth bit of value j in bit j. */

static void unpack_4(uint8_t q[BLOCK], const uint8_t *nibbles)
{
    for (size_t j = 0; j < HALF_BLOCK; j++) {
        q[j] = nibbles[j] & 15;
        q[j + HALF_BLOCK] = nibbles[j] >> 4;
    }
}

static void pack_4(uint8_t *nibbles, const uint8_t q[BLOCK])
{
    for (size_t j = 0; j < HALF_BLOCK; j++)
        nibbles[j] = (uint8_t)((q[j] & 15) | q[j + HALF_BLOCK] << 4);
}

static void unpack_5(uint8_t q[BLOCK], const uint8_t *bits)
{
    unpack_4(q, bits + 4);
    for (size_t j = 0; j < BLOCK; j++)
        q[j] = (uint8_t)(q[j] | (bits[j / 8] >> j % 8 & 1) << 4);
}

static void pack_5(uint8_t *bits, const uint8_t q[BLOCK])
{
    memset(bits, 0, 4);
    for (size_t j = 0; j < BLOCK; j++)
        bits[j / 8] = (uint8_t)(bits[j / 8] | (q[j] >> 4 & 1) << j % 8);
    pack_4(bits + 4, q);
}

/* What the four types differ in. `middle`: value = (q - middle) * d; without it q * d + m. */
typedef struct small_type {
    size_t bytes;
    float high, middle;
    void (*unpack)(uint8_t q[BLOCK], const uint8_t *packed);
    void (*pack)(uint8_t *packed, const uint8_t q[BLOCK]);
} small_type;

static const small_type q4_0 = {18, 15, 8, unpack_4, pack_4};
static const small_type q4_1 = {20, 15, 0, unpack_4, pack_4};
static const small_type q5_0 = {22, 31, 16, unpack_5, pack_5};
static const small_type q5_1 = {24, 31, 0, unpack_5, pack_5};

/* Exact in fp32 but for the last addition: a quantum times a half has at most 16 bits. */
static void read_blocks(const small_type *t, float *out, const uint8_t *block, size_t n)
{
    size_t scales = t->middle != 0 ? 2 : 4;
    uint8_t q[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK, block += t->bytes) {
        float d = types_load_f16(block), m = scales == 4 ? types_load_f16(block + 2) : 0;
        t->unpack(q, block + scales);
        for (size_t j = 0; j < BLOCK; j++)
            out[i + j] = scales == 4 ? (float)q[j] * d + m : ((float)q[j] - t->middle) * d;
    }
}

/* Truncates into [0, high]; NaN becomes 0. */
static uint8_t truncated(float v, float high)
{
    if (!(v > 0))
        return 0;
    return (uint8_t)(v < high ? v : high);
}

static void write_block(const small_type *t, uint8_t *block, const float *in, float d, float m)
{
    float inverse = types_inverse(d), offset = t->middle + 0.5f;
    size_t scales = t->middle != 0 ? 2 : 4;
    uint8_t q[BLOCK];
    store_scale(block, d);
    if (scales == 4)
        store_scale(block + 2, m);
    for (size_t j = 0; j < BLOCK; j++)
        q[j] = truncated((in[j] - m) * inverse + offset, t->high);
    t->pack(block + scales, q);
}

/* The value of largest magnitude, with its sign, becomes q = 0. */
static void write_middle(const small_type *t, uint8_t *block, const float *in)
{
    float largest = 0;
    for (size_t j = 0; j < BLOCK; j++)
        if (fabsf(in[j]) > fabsf(largest))
            largest = in[j];
    write_block(t, block, in, largest / -t->middle, 0);
}

static void write_range(const small_type *t, uint8_t *block, const float *in)
{
    float least = in[0], most = in[0];
    for (size_t j = 1; j < BLOCK; j++) {
        least = fminf(least, in[j]);
        most = fmaxf(most, in[j]);
    }
    write_block(t, block, in, (most - least) / t->high, least);
}

static void write_blocks(const small_type *t, uint8_t *block, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK, block += t->bytes)
        if (t->middle != 0)
            write_middle(t, block, in + i);
        else
            write_range(t, block, in + i);
}

/* The quanta of what the halves d and m keep. */
static void write_fitted(const small_type *t, uint8_t *block, const float *x, float d, float m)
{
    float whole[BLOCK];
    uint8_t q[BLOCK];
    size_t scales = t->middle != 0 ? 2 : 4;
    types_fit_round(whole, x, BLOCK, d, m, -t->middle, t->high - t->middle);
    for (size_t j = 0; j < BLOCK; j++)
        q[j] = (uint8_t)(whole[j] + t->middle);
    types_store_f16(block, d);
    if (scales == 4)
        types_store_f16(block + 2, m);
    t->pack(block + scales, q);
}

static void fit_blocks(const small_type *t, uint8_t *block, const float *in,
                       const float *importance, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK, block += t->bytes) {
        float x[BLOCK], w[BLOCK], d, m = 0;
        types_take(x, w, in + i, importance ? importance + i : NULL, BLOCK);
        if (t->middle != 0)
            d = types_fit_step(x, w, BLOCK, -t->middle, t->high - t->middle);
        else
            types_fit_step_offset(x, w, BLOCK, t->high, 0, &d, &m);
        write_fitted(t, block, x, types_as_f16(d), types_as_f16(m));
    }
}

void q4_0_to_f32(float *out, const void *in, size_t n)
{
    read_blocks(&q4_0, out, in, n);
}

void q4_0_from_f32(void *out, const float *in, size_t n)
{
    write_blocks(&q4_0, out, in, n);
}

void q4_0_fit(void *out, const float *in, const float *importance, size_t n)
{
    fit_blocks(&q4_0, out, in, importance, n);
}

void q4_1_to_f32(float *out, const void *in, size_t n)
{
    read_blocks(&q4_1, out, in, n);
}

void q4_1_from_f32(void *out, const float *in, size_t n)
{
    write_blocks(&q4_1, out, in, n);
}

void q4_1_fit(void *out, const float *in, const float *importance, size_t n)
{
    fit_blocks(&q4_1, out, in, importance, n);
}

void q5_0_to_f32(float *out, const void *in, size_t n)
{
    read_blocks(&q5_0, out, in, n);
}

void q5_0_from_f32(void *out, const float *in, size_t n)
{
    write_blocks(&q5_0, out, in, n);
}

void q5_0_fit(void *out, const float *in, const float *importance, size_t n)
{
    fit_blocks(&q5_0, out, in, importance, n);
}

void q5_1_to_f32(float *out, const void *in, size_t n)
{
    read_blocks(&q5_1, out, in, n);
}

void q5_1_from_f32(void *out, const float *in, size_t n)
{
    write_blocks(&q5_1, out, in, n);
}

void q5_1_fit(void *out, const float *in, const float *importance, size_t n)
{
    fit_blocks(&q5_1, out, in, importance, n);
}
