#include "engine/mmproj_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

tacit_status mmproj_missing(const gguf_file *file, const char *key, tacit_error *err)
{
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: key %s is missing", gguf_name(file), key);
}

tacit_status mmproj_get_size(const gguf_file *file, const char *key, uint32_t max, uint32_t *out,
                             tacit_error *err)
{
    uint64_t v = 0;
    tacit_status status = gguf_get_u64(file, key, 1, max, &v, err);
    if (status == TACIT_NOT_FOUND)
        return mmproj_missing(file, key, err);
    *out = (uint32_t)v;
    return status;
}

tacit_status mmproj_get_epsilon(const gguf_file *file, const char *key, float *out,
                                tacit_error *err)
{
    double v = 0;
    tacit_status status = gguf_get_f64(file, key, &v, err);
    if (status != TACIT_OK)
        return status == TACIT_NOT_FOUND ? mmproj_missing(file, key, err) : status;
    if (!(v > 0 && v <= 0.1))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s is %g: expected above 0, at most 0.1",
                          gguf_name(file), key, v);
    *out = (float)v;
    return TACIT_OK;
}

tacit_status mmproj_expect_string(const gguf_file *file, const char *key, const char *expected,
                                  const char *hint, tacit_error *err)
{
    gguf_string s = {"", 0};
    tacit_status status = gguf_get_string(file, key, &s, err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (s.size == strlen(expected) && memcmp(s.data, expected, s.size) == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s is '%.*s': expected '%s'; %s", gguf_name(file),
                      key, (int)(s.size > 64 ? 64 : s.size), s.data, expected, hint);
}

tacit_status mmproj_find_tensor(const gguf_file *file, const char *name,
                                const uint64_t ne[GGUF_MAX_DIMS], const gguf_tensor **out,
                                tacit_error *err)
{
    const gguf_tensor *g = gguf_tensor_find(file, name);
    *out = g;
    if (!g)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s is missing; incomplete file",
                          gguf_name(file), name);
    if (memcmp(g->ne, ne, sizeof g->ne) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s: expected shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64
                          ", %" PRIu64 "], found [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                          "]",
                          gguf_name(file), name, ne[0], ne[1], ne[2], ne[3], g->ne[0], g->ne[1],
                          g->ne[2], g->ne[3]);
    if (g->traits)
        return TACIT_OK;
    return tacit_type_refuse(gguf_name(file), name, g->type, err);
}

tacit_status mmproj_get_extent(const gguf_file *file, const char *name, int axis, uint64_t max,
                               uint32_t *out, tacit_error *err)
{
    const gguf_tensor *g = gguf_tensor_find(file, name);
    if (g && (g->ne[axis] < 1 || g->ne[axis] > max))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s has %" PRIu64 " along axis %d: expected 1 to %" PRIu64,
                          gguf_name(file), name, g->ne[axis], axis, max);
    *out = g ? (uint32_t)g->ne[axis] : 1;
    return TACIT_OK;
}

#define SCORE_PRODUCTS 16 /* what an exponential costs */
#define ALWAYS_PRODUCTS 2e10
#define BYTE_PRODUCTS 2

tacit_status mmproj_check_attention(const gguf_file *file, const mmproj_attention *a,
                                    tacit_error *err)
{
    double tokens = (double)a->tokens * (double)a->sets, bytes = 0;
    double products =
        tokens * a->tokens * a->layers * ((double)a->width + SCORE_PRODUCTS * (double)a->heads);
    for (size_t i = 0; i < gguf_tensor_count(file); i++)
        bytes += (double)gguf_tensor_at(file, i)->bytes;
    double most = BYTE_PRODUCTS * tokens * bytes;
    most = most > ALWAYS_PRODUCTS ? most : ALWAYS_PRODUCTS;
    if (products <= most)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: %s of %zu times %u tokens takes %.2g products in the attention of %u "
                      "blocks with %u heads: expected at most %.2g for tensors of %.0f bytes; the "
                      "file is damaged or made to waste time",
                      gguf_name(file), a->medium, a->sets, a->tokens, products, a->layers, a->heads,
                      most, bytes);
}

tacit_status mmproj_plain_values(const gguf_file *file, const gguf_tensor *tensor,
                                 const float **out, float **owned, tacit_error *err)
{
    *owned = NULL;
    *out = (const float *)(const void *)tensor->data;
    if (tensor->type == TACIT_TYPE_F32 && (uintptr_t)tensor->data % sizeof(float) == 0)
        return TACIT_OK;
    tacit_status status = gguf_tensor_values(file, tensor, owned, err);
    *out = *owned;
    return status;
}
