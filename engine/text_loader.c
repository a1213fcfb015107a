#include "engine/text_loader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *text_key(text_loader *t, const char *name)
{
    snprintf(t->key, sizeof t->key, "%s.%s", t->arch->name, name);
    return t->key;
}

bool text_has_key(text_loader *t, const char *name)
{
    return gguf_has_key(t->file, text_key(t, name));
}

tacit_status text_get_size(text_loader *t, const char *name, size_t max, size_t *out)
{
    const char *key = text_key(t, name);
    uint64_t v;
    tacit_status status = gguf_get_u64(t->file, key, 1, max, &v, t->err);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: key %s is missing", gguf_name(t->file),
                          key);
    if (status == TACIT_OK)
        *out = (size_t)v;
    return status;
}

tacit_status text_get_optional_size(text_loader *t, const char *name, size_t max, size_t absent,
                                    size_t *out)
{
    const char *key = text_key(t, name);
    *out = absent;
    return gguf_has_key(t->file, key) ? text_get_size(t, name, max, out) : TACIT_OK;
}

tacit_status text_get_real(text_loader *t, const char *name, double absent, double min, double max,
                           double *out)
{
    const char *key = text_key(t, name);
    *out = absent;
    if (!gguf_has_key(t->file, key))
        return TACIT_OK;
    tacit_status status = gguf_get_f64(t->file, key, out, t->err);
    if (status == TACIT_OK && !(*out >= min && *out <= max))
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s is %g: expected %g to %g",
                          gguf_name(t->file), key, *out, min, max);
    return status;
}

static bool is_array(const gguf_file *file, const char *key)
{
    for (size_t i = 0; i < gguf_key_count(file); i++) {
        gguf_value_type type;
        if (strcmp(gguf_key_at(file, i, &type), key) == 0)
            return type == GGUF_ARRAY;
    }
    return false;
}

/* An array of one number a layer. */
static tacit_status get_array(text_loader *t, const char *key, size_t min, size_t max, size_t *out)
{
    size_t count, layers = t->m->n_layers;
    tacit_error ignored;
    tacit_status status = gguf_get_array(t->file, key, GGUF_U32, &count, &ignored);
    if (status != TACIT_OK)
        status = gguf_get_array(t->file, key, GGUF_I32, &count, t->err);
    if (status != TACIT_OK)
        return status;
    if (count != layers)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s has %zu entries: expected one for each of %zu layers",
                          gguf_name(t->file), key, count, layers);
    for (size_t i = 0; i < layers; i++) {
        double v = gguf_array_number(t->file, key, i);
        if (!(v >= (double)min && v <= (double)max))
            return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s[%zu] is %g: expected %zu to %zu",
                              gguf_name(t->file), key, i, v, min, max);
        out[i] = (size_t)v;
    }
    return TACIT_OK;
}

tacit_status text_get_per_layer(text_loader *t, const char *name, size_t min, size_t max,
                                const size_t *absent, size_t *out)
{
    const char *key = text_key(t, name);
    size_t layers = t->m->n_layers;
    if (is_array(t->file, key))
        return get_array(t, key, min, max, out);
    if (absent && !gguf_has_key(t->file, key)) {
        memcpy(out, absent, layers * sizeof *out);
        return TACIT_OK;
    }
    size_t v = 0;
    tacit_status status = text_get_size(t, name, max, &v);
    for (size_t i = 0; status == TACIT_OK && i < layers; i++)
        out[i] = v;
    return status;
}

const gguf_tensor *text_take_tensor(text_loader *t, const char *name)
{
    const gguf_tensor *tensor = gguf_tensor_find(t->file, name);
    for (size_t i = 0; tensor && i < t->n_taken; i++)
        if (t->taken[i] == tensor)
            return tensor;
    if (tensor)
        t->taken[t->n_taken++] = tensor;
    return tensor;
}

tacit_status text_missing(text_loader *t, const char *name)
{
    return tacit_fail(
        t->err, TACIT_BAD_INPUT,
        "%s: tensor %s is missing, which every file of architecture %s has; the file is "
        "incomplete",
        gguf_name(t->file), name, t->arch->name);
}

tacit_status text_own_vector(text_loader *t, const char *name, size_t rows, size_t n,
                             text_presence presence, const float **out)
{
    const gguf_tensor *tensor = presence == TEXT_ABSENT ? NULL : text_take_tensor(t, name);
    *out = NULL;
    if (!tensor)
        return presence == TEXT_REQUIRED ? text_missing(t, name) : TACIT_OK;
    if (tensor->ne[0] != n || tensor->rows != rows)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: tensor %s: expected %zu x %zu values, found %" PRIu64 " x %" PRIu64,
                          gguf_name(t->file), name, n, rows, tensor->ne[0], tensor->rows);
    if (!tensor->traits)
        return tacit_type_refuse(gguf_name(t->file), name, tensor->type, t->err);
    float *values;
    tacit_status status = gguf_tensor_values(t->file, tensor, &values, t->err);
    if (status != TACIT_OK)
        return status;
    t->m->owned[t->m->n_owned++] = values;
    *out = values;
    return TACIT_OK;
}

tacit_status text_take_linear(text_loader *t, tacit_linear *l, const char *name, const float *bias,
                              size_t n_in, size_t n_out)
{
    const gguf_tensor *tensor = text_take_tensor(t, name);
    if (!tensor)
        return text_missing(t, name);
    tacit_status status = linear_init(l, tensor, bias, n_in, n_out, t->err);
    return status == TACIT_OK ? status : tacit_fail_context(t->err, "%s", gguf_name(t->file));
}

tacit_status text_load_linear(text_loader *t, size_t layer, text_linear which, size_t n_in,
                              size_t n_out)
{
    const float *bias;
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s.bias", layer, text_linear_name(which));
    tacit_status status = text_own_vector(t, name, 1, n_out, t->arch->bias[which], &bias);
    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, text_linear_name(which));
    if (status == TACIT_OK)
        status = text_take_linear(t, &t->m->layer[layer].linear[which], name, bias, n_in, n_out);
    return status;
}

tacit_status text_load_norm(text_loader *t, size_t layer, text_norm which)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, text_norm_name(which));
    return text_own_vector(t, name, text_norm_rows(t->m, which), text_norm_size(t->m, which),
                           t->arch->norm[which], &t->m->layer[layer].norm[which]);
}

static bool was_taken(const text_loader *t, const gguf_tensor *tensor)
{
    for (size_t i = 0; i < t->n_taken; i++)
        if (t->taken[i] == tensor)
            return true;
    return false;
}

/* A tensor this forward does not know (an expert, a gate) would silently change answers. */
tacit_status text_check_all_taken(text_loader *t)
{
    size_t n = gguf_tensor_count(t->file);
    if (t->n_taken == n)
        return TACIT_OK;
    for (size_t i = 0; i < n; i++) {
        const gguf_tensor *tensor = gguf_tensor_at(t->file, i);
        if (!was_taken(t, tensor))
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: tensor %s has no place in architecture %s; the file is of "
                              "another model",
                              gguf_name(t->file), tensor->name, t->arch->name);
    }
    return TACIT_OK;
}
