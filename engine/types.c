#include "engine/types.h"

#include <math.h>
#include <string.h>

/* One block of 32 values: f16 scales first, then the quanta (layouts of the ggml project). */
enum { BLOCK = 32, HALF_BLOCK = BLOCK / 2 };

float tacit_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff, bits;
    float f;
    if (exponent == 0) {
        f = (float)mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000 | mantissa << 13;
    else
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Drops `shift` low bits of `v`, rounding to nearest, ties to even. */
static uint32_t shift_to_even(uint32_t v, unsigned shift)
{
    uint32_t odd = v >> shift & 1;
    return (v + (1u << (shift - 1)) - 1 + odd) >> shift;
}

uint16_t tacit_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) /* NaN stays one: quiet, upper payload kept */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) /* normal: exponent bias 127 becomes 15 */
        return (uint16_t)(sign | shift_to_even(magnitude - (112u << 23), 13));
    if (magnitude <= 0x33000000) /* 2^-25 and below round to zero */
        return (uint16_t)sign;
    unsigned exponent = magnitude >> 23;
    return (uint16_t)(sign | shift_to_even((magnitude & 0x7fffff) | 0x800000, 126 - exponent));
}

float tacit_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t tacit_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float load_f16(const uint8_t *from)
{
    return tacit_f16_to_f32((uint16_t)(from[0] | from[1] << 8));
}

static void store_f16(uint8_t *to, float f)
{
    uint16_t h = tacit_f32_to_f16(f);
    to[0] = (uint8_t)h;
    to[1] = (uint8_t)(h >> 8);
}

static void f32_copy_out(float *out, const void *in, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static void f32_copy_in(void *out, const float *in, size_t n)
{
    memcpy(out, in, n * sizeof *in);
}

static void f16_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *from = in;
    for (size_t i = 0; i < n; i++)
        out[i] = load_f16(from + 2 * i);
}

static void f16_from_f32(void *out, const float *in, size_t n)
{
    uint8_t *to = out;
    for (size_t i = 0; i < n; i++)
        store_f16(to + 2 * i, in[i]);
}

static void bf16_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *from = in;
    for (size_t i = 0; i < n; i++)
        out[i] = tacit_bf16_to_f32((uint16_t)(from[2 * i] | from[2 * i + 1] << 8));
}

static void bf16_from_f32(void *out, const float *in, size_t n)
{
    uint8_t *to = out;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = tacit_f32_to_bf16(in[i]);
        to[2 * i] = (uint8_t)h;
        to[2 * i + 1] = (uint8_t)(h >> 8);
    }
}

/* q8_0: f16 d, 32 signed bytes; value = q * d. */
static void q8_0_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + BLOCK) {
        float d = load_f16(block);
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

/* The inverse of a scale as the ecosystem takes it: of the fp32 scale, before it becomes f16. */
static float inverse_or_zero(float d)
{
    return d != 0 ? 1.0f / d : 0;
}

static void q8_0_from_f32(void *out, const float *in, size_t n)
{
    uint8_t *block = out;
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + BLOCK) {
        float largest = 0;
        for (size_t j = 0; j < BLOCK; j++)
            largest = fmaxf(largest, fabsf(in[i + j]));
        float d = largest / 127, inverse = inverse_or_zero(d);
        store_f16(block, d);
        for (size_t j = 0; j < BLOCK; j++)
            block[2 + j] = (uint8_t)round_within(in[i + j] * inverse, 127);
    }
}

/* q4_0 and q4_1: byte j of a block holds value j in its low nibble, value j + 16 in its high one.
 */
static void unpack_nibbles(float *out, const uint8_t *quanta, float d, float add)
{
    for (size_t j = 0; j < HALF_BLOCK; j++) {
        out[j] = (float)(quanta[j] & 15) * d + add;
        out[j + HALF_BLOCK] = (float)(quanta[j] >> 4) * d + add;
    }
}

/* Truncates into [0, 15]; NaN becomes 0. */
static unsigned nibble_of(float v)
{
    if (!(v > 0))
        return 0;
    return v < 15 ? (unsigned)v : 15;
}

static void pack_nibbles(uint8_t *quanta, const float *in, float from, float inverse, float offset)
{
    for (size_t j = 0; j < HALF_BLOCK; j++) {
        unsigned low = nibble_of((in[j] - from) * inverse + offset);
        unsigned high = nibble_of((in[j + HALF_BLOCK] - from) * inverse + offset);
        quanta[j] = (uint8_t)(low | high << 4);
    }
}

/* q4_0: f16 d, 16 bytes; value = (q - 8) * d, exact in fp32 whatever the order. */
static void q4_0_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + HALF_BLOCK) {
        float d = load_f16(block);
        for (size_t j = 0; j < HALF_BLOCK; j++) {
            out[i + j] = (float)((block[2 + j] & 15) - 8) * d;
            out[i + j + HALF_BLOCK] = (float)((block[2 + j] >> 4) - 8) * d;
        }
    }
}

static void q4_0_from_f32(void *out, const float *in, size_t n)
{
    uint8_t *block = out;
    for (size_t i = 0; i < n; i += BLOCK, block += 2 + HALF_BLOCK) {
        float largest = 0; /* the value of largest magnitude, with its sign: it becomes q = 0 */
        for (size_t j = 0; j < BLOCK; j++)
            if (fabsf(in[i + j]) > fabsf(largest))
                largest = in[i + j];
        float d = largest / -8;
        store_f16(block, d);
        pack_nibbles(block + 2, in + i, 0, inverse_or_zero(d), 8.5f);
    }
}

/* q4_1: f16 d, f16 m, 16 bytes; value = q * d + m. */
static void q4_1_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *block = in;
    for (size_t i = 0; i < n; i += BLOCK, block += 4 + HALF_BLOCK)
        unpack_nibbles(out + i, block + 4, load_f16(block), load_f16(block + 2));
}

static void q4_1_from_f32(void *out, const float *in, size_t n)
{
    uint8_t *block = out;
    for (size_t i = 0; i < n; i += BLOCK, block += 4 + HALF_BLOCK) {
        float least = in[i], most = in[i];
        for (size_t j = 1; j < BLOCK; j++) {
            least = fminf(least, in[i + j]);
            most = fmaxf(most, in[i + j]);
        }
        float d = (most - least) / 15;
        store_f16(block, d);
        store_f16(block + 2, least);
        pack_nibbles(block + 4, in + i, least, inverse_or_zero(d), 0.5f);
    }
}

static const tacit_type_traits supported[] = {
    {TACIT_TYPE_F32, "f32", 0, 1, 4, f32_copy_out, f32_copy_in},
    {TACIT_TYPE_F16, "f16", 1, 1, 2, f16_to_f32, f16_from_f32},
    {TACIT_TYPE_BF16, "bf16", 32, 1, 2, bf16_to_f32, bf16_from_f32},
    {TACIT_TYPE_Q8_0, "q8_0", 7, BLOCK, 2 + BLOCK, q8_0_to_f32, q8_0_from_f32},
    {TACIT_TYPE_Q4_0, "q4_0", 2, BLOCK, 2 + HALF_BLOCK, q4_0_to_f32, q4_0_from_f32},
    {TACIT_TYPE_Q4_1, "q4_1", 3, BLOCK, 4 + HALF_BLOCK, q4_1_to_f32, q4_1_from_f32},
};

/* Every type number of the format with a known size; a file may list them all. */
static const struct ggml_type {
    uint32_t type;
    const char *name;
    size_t values, bytes;
} ggml_types[] = {
    {0, "f32", 1, 4},         {1, "f16", 1, 2},         {2, "q4_0", 32, 18},
    {3, "q4_1", 32, 20},      {6, "q5_0", 32, 22},      {7, "q5_1", 32, 24},
    {8, "q8_0", 32, 34},      {9, "q8_1", 32, 36},      {10, "q2_k", 256, 84},
    {11, "q3_k", 256, 110},   {12, "q4_k", 256, 144},   {13, "q5_k", 256, 176},
    {14, "q6_k", 256, 210},   {15, "q8_k", 256, 292},   {16, "iq2_xxs", 256, 66},
    {17, "iq2_xs", 256, 74},  {18, "iq3_xxs", 256, 98}, {19, "iq1_s", 256, 50},
    {20, "iq4_nl", 32, 18},   {21, "iq3_s", 256, 110},  {22, "iq2_s", 256, 82},
    {23, "iq4_xs", 256, 136}, {24, "i8", 1, 1},         {25, "i16", 1, 2},
    {26, "i32", 1, 4},        {27, "i64", 1, 8},        {28, "f64", 1, 8},
    {29, "iq1_m", 256, 56},   {30, "bf16", 1, 2},       {34, "tq1_0", 256, 54},
    {35, "tq2_0", 256, 66},   {39, "mxfp4", 32, 17},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

const tacit_type_traits *tacit_type_find(uint32_t ggml_type)
{
    for (size_t i = 0; i < COUNT(supported); i++)
        if ((uint32_t)supported[i].type == ggml_type)
            return &supported[i];
    return NULL;
}

const tacit_type_traits *tacit_type_by_name(const char *name)
{
    for (size_t i = 0; i < COUNT(supported); i++)
        if (strcmp(supported[i].name, name) == 0)
            return &supported[i];
    return NULL;
}

static const struct ggml_type *find_ggml_type(uint32_t type)
{
    for (size_t i = 0; i < COUNT(ggml_types); i++)
        if (ggml_types[i].type == type)
            return &ggml_types[i];
    return NULL;
}

const char *tacit_type_ggml_name(uint32_t ggml_type)
{
    const struct ggml_type *row = find_ggml_type(ggml_type);
    return row ? row->name : NULL;
}

bool tacit_type_ggml_block(uint32_t ggml_type, size_t *values, size_t *bytes)
{
    const struct ggml_type *row = find_ggml_type(ggml_type);
    if (!row)
        return false;
    *values = row->values;
    *bytes = row->bytes;
    return true;
}
