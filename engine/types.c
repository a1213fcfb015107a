#include "engine/types.h"

#include "engine/types_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Files are little-endian, whatever the machine is. */
static void f32_copy_out(float *out, const void *in, size_t n)
{
    const uint8_t *from = in;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(out, from, n * sizeof *out);
#else
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tacit_load_u32(from + 4 * i);
        memcpy(out + i, &bits, sizeof bits);
    }
#endif
}

static void f32_copy_in(void *out, const float *in, size_t n)
{
    uint8_t *to = out;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(to, in, n * sizeof *in);
#else
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, in + i, sizeof bits);
        tacit_store_u32(to + 4 * i, bits);
    }
#endif
}

static void f16_to_f32(float *out, const void *in, size_t n)
{
    const uint8_t *from = in;
    for (size_t i = 0; i < n; i++)
        out[i] = types_load_f16(from + 2 * i);
}

static void f16_from_f32(void *out, const float *in, size_t n)
{
    uint8_t *to = out;
    for (size_t i = 0; i < n; i++)
        types_store_f16(to + 2 * i, in[i]);
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

static float root_mean_square(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum / (double)n);
}

void types_take(float *x, float *w, const float *in, const float *importance, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        float v = in[i] > 65504 ? 65504 : in[i] < -65504 ? -65504 : in[i];
        x[i] = v == v ? v : 0;
    }
    float usual = importance ? 0 : root_mean_square(x, n);
    for (size_t i = 0; i < n; i++) {
        w[i] = importance ? importance[i] : usual + fabsf(x[i]);
        sum += w[i];
    }
    for (size_t i = 0; i < n; i++)
        w[i] = sum > 0 ? w[i] * ((float)n / sum) : 1;
}

static const tacit_type_traits supported[] = {
    {TACIT_TYPE_F32, "f32", 0, 1, 4, f32_copy_out, f32_copy_in, NULL},
    {TACIT_TYPE_F16, "f16", 1, 1, 2, f16_to_f32, f16_from_f32, NULL},
    {TACIT_TYPE_BF16, "bf16", 32, 1, 2, bf16_to_f32, bf16_from_f32, NULL},
    {TACIT_TYPE_Q8_0, "q8_0", 7, 32, 34, q8_0_to_f32, q8_0_from_f32, NULL},
    {TACIT_TYPE_Q6_K, "q6_k", 18, 256, 210, q6_k_to_f32, q6_k_from_f32, q6_k_fit},
    {TACIT_TYPE_Q5_K, "q5_k", 16, 256, 176, q5_k_to_f32, q5_k_from_f32, q5_k_fit},
    {TACIT_TYPE_Q5_1, "q5_1", 9, 32, 24, q5_1_to_f32, q5_1_from_f32, q5_1_fit},
    {TACIT_TYPE_Q5_0, "q5_0", 8, 32, 22, q5_0_to_f32, q5_0_from_f32, q5_0_fit},
    {TACIT_TYPE_Q4_K, "q4_k", 14, 256, 144, q4_k_to_f32, q4_k_from_f32, q4_k_fit},
    {TACIT_TYPE_Q4_1, "q4_1", 3, 32, 20, q4_1_to_f32, q4_1_from_f32, q4_1_fit},
    {TACIT_TYPE_Q4_0, "q4_0", 2, 32, 18, q4_0_to_f32, q4_0_from_f32, q4_0_fit},
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

const tacit_type_traits *tacit_type_at(size_t i)
{
    return i < COUNT(supported) ? &supported[i] : NULL;
}

const char *tacit_type_list(char *out, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < COUNT(supported) && at < size; i++) {
        const char *before = i == 0 ? "" : i + 1 < COUNT(supported) ? ", " : " or ";
        at += (size_t)snprintf(out + at, size - at, "%s%s", before, supported[i].name);
    }
    return out;
}

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

const char *tacit_type_text(char out[TACIT_TYPE_TEXT], uint32_t ggml_type)
{
    const char *name = tacit_type_ggml_name(ggml_type);
    snprintf(out, TACIT_TYPE_TEXT, "type %" PRIu32, ggml_type);
    return name ? name : out;
}

tacit_status tacit_type_refuse(const char *file, const char *tensor, uint32_t ggml_type,
                               tacit_error *err)
{
    char types[160], text[TACIT_TYPE_TEXT];
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s%stensor %s: values of %s cannot be computed; expected %s",
                      file ? file : "", file ? ": " : "", tensor, tacit_type_text(text, ggml_type),
                      tacit_type_list(types, sizeof types));
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
