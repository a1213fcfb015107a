#include "engine/kv_page.h"

#include "engine/dequant.h"
#include "engine/kernels.h"

#include <math.h>
#include <string.h>

static size_t f32_bytes(size_t dim)
{
    return 2 * dim * KV_PAGE_ROWS * sizeof(float);
}

static void f32_encode(void *page, const float *keys, const float *values, size_t dim)
{
    float *to = page;
    memcpy(to, keys, f32_bytes(dim) / 2);
    memcpy(to + dim * KV_PAGE_ROWS, values, f32_bytes(dim) / 2);
}

static void f32_decode(float *keys, float *values, const void *page, size_t dim)
{
    const float *from = page;
    memcpy(keys, from, f32_bytes(dim) / 2);
    memcpy(values, from + dim * KV_PAGE_ROWS, f32_bytes(dim) / 2);
}

static size_t f16_bytes(size_t dim)
{
    return f32_bytes(dim) / 2;
}

static void f16_encode(void *page, const float *keys, const float *values, size_t dim)
{
    const tacit_type_traits *half = tacit_type_find(TACIT_TYPE_F16);
    uint16_t *to = page;
    half->from_f32(to, keys, dim * KV_PAGE_ROWS);
    half->from_f32(to + dim * KV_PAGE_ROWS, values, dim * KV_PAGE_ROWS);
}

static void f16_decode(float *keys, float *values, const void *page, size_t dim)
{
    const tacit_type_traits *half = tacit_type_find(TACIT_TYPE_F16);
    const uint16_t *from = page;
    dequant_row(half, keys, from, dim * KV_PAGE_ROWS);
    dequant_row(half, values, from + dim * KV_PAGE_ROWS, dim * KV_PAGE_ROWS);
}

/* A head's part of a page: scales and middles of the channels, scales of the tokens, quanta. */
typedef struct int8_parts {
    float *channel, *middle, *token;
    int8_t *keys, *values;
} int8_parts;

static size_t int8_bytes(size_t dim)
{
    return (2 * dim + KV_PAGE_ROWS) * sizeof(float) + 2 * dim * KV_PAGE_ROWS;
}

static int8_parts int8_at(void *page, size_t dim)
{
    float *channel = page, *middle = channel + dim, *token = middle + dim;
    int8_t *keys = (int8_t *)(token + KV_PAGE_ROWS);
    return (int8_parts){channel, middle, token, keys, keys + dim * KV_PAGE_ROWS};
}

static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return NAN;
        most = fmaxf(most, fabsf(x[i]));
    }
    return most;
}

/* The scale of a row; its quanta lie in [-127, 127]. */
static float int8_row(int8_t *q, const float *x, size_t n)
{
    float scale = largest(x, n) / 127, inverse = 1 / scale;
    bool usable = scale > 0 && isfinite(inverse);
    for (size_t i = 0; i < n; i++)
        q[i] = usable ? (int8_t)lrintf(fminf(fmaxf(x[i] * inverse, -127), 127)) : 0;
    return scale;
}

/* A channel of the keys. Many stand far to one side of zero through a page, those above all that
 * rotate slowly. */
static float int8_channel(int8_t *q, float *middle, const float *x)
{
    float moved[KV_PAGE_ROWS], low = x[0], high = x[0];
    for (size_t i = 1; i < KV_PAGE_ROWS; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    *middle = low / 2 + high / 2;
    for (size_t i = 0; i < KV_PAGE_ROWS; i++)
        moved[i] = x[i] - *middle;
    return int8_row(q, moved, KV_PAGE_ROWS);
}

static void int8_encode(void *page, const float *keys, const float *values, size_t dim)
{
    int8_parts p = int8_at(page, dim);
    for (size_t i = 0; i < dim; i++)
        p.channel[i] =
            int8_channel(p.keys + i * KV_PAGE_ROWS, &p.middle[i], keys + i * KV_PAGE_ROWS);
    for (size_t i = 0; i < KV_PAGE_ROWS; i++)
        p.token[i] = int8_row(p.values + i * dim, values + i * dim, dim);
}

static void int8_decode(float *keys, float *values, const void *page, size_t dim)
{
    const tacit_kernels *k = kernels();
    const float *channel = page, *middle = channel + dim, *token = middle + dim;
    const int8_t *key = (const int8_t *)(token + KV_PAGE_ROWS), *value = key + dim * KV_PAGE_ROWS;
    for (size_t i = 0; i < dim; i++) {
        float *to = keys + i * KV_PAGE_ROWS;
        k->widen(to, channel[i], key + i * KV_PAGE_ROWS, KV_PAGE_ROWS);
        for (size_t j = 0; j < KV_PAGE_ROWS; j++)
            to[j] += middle[i];
    }
    for (size_t i = 0; i < KV_PAGE_ROWS; i++)
        k->widen(values + i * dim, token[i], value + i * dim, dim);
}

static const kv_form forms[] = {
    {TACIT_KV_F32, "f32", f32_bytes, f32_encode, f32_decode},
    {TACIT_KV_F16, "f16", f16_bytes, f16_encode, f16_decode},
    {TACIT_KV_INT8, "int8", int8_bytes, int8_encode, int8_decode},
};

#define FORMS (sizeof forms / sizeof forms[0])

const kv_form *kv_form_of(tacit_kv_type type)
{
    size_t i = 0;
    while (i + 1 < FORMS && forms[i].type != type)
        i++;
    return &forms[i];
}

const kv_form *kv_form_by_name(const char *name)
{
    for (size_t i = 0; i < FORMS; i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}
