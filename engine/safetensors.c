#include "engine/safetensors.h"

#include "common/bytes.h"
#include "common/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"
#define LENGTH_BYTES 8

struct safetensors_file {
    char *name;
    tacit_file_map map;
    json_t *header;
    safetensors_tensor *tensor; /* names point into the header */
    size_t count;
    const uint8_t *data;
    size_t data_bytes;
};

/* Element types of the format and their bytes; `computed` are those of types.h. */
static const struct dtype {
    const char *name;
    size_t bytes;
    int computed;
} dtypes[] = {
    {"F64", 8, -1},
    {"F32", 4, TACIT_TYPE_F32},
    {"F16", 2, TACIT_TYPE_F16},
    {"BF16", 2, TACIT_TYPE_BF16},
    {"I64", 8, -1},
    {"U64", 8, -1},
    {"I32", 4, -1},
    {"U32", 4, -1},
    {"I16", 2, -1},
    {"U16", 2, -1},
    {"I8", 1, -1},
    {"U8", 1, -1},
    {"BOOL", 1, -1},
    {"F8_E4M3", 1, -1},
    {"F8_E5M2", 1, -1},
};

static const struct dtype *find_dtype(const char *name)
{
    for (size_t i = 0; name && i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

static tacit_status bad(const safetensors_file *f, const char *tensor, const char *what,
                        tacit_error *err)
{
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %.64s: %s; the file is damaged", f->name,
                      tensor, what);
}

/* A JSON integer that is no negative number. */
static bool get_size(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static tacit_status read_shape(const safetensors_file *f, safetensors_tensor *t,
                               const json_t *shape, tacit_error *err)
{
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_MAX_DIMS)
        return bad(f, t->name, "\"shape\" is not a list of at most 8 numbers", err);
    t->n_dims = json_array_size(shape);
    t->values = 1;
    for (size_t i = 0; i < t->n_dims; i++)
        if (!get_size(json_array_get(shape, i), &t->shape[i]) ||
            __builtin_mul_overflow(t->values, t->shape[i], &t->values))
            return bad(f, t->name, "\"shape\" is not of numbers whose product is a size", err);
    return TACIT_OK;
}

static tacit_status read_range(const safetensors_file *f, safetensors_tensor *t,
                               const json_t *range, tacit_error *err)
{
    uint64_t from, to;
    if (!json_is_array(range) || json_array_size(range) != 2 ||
        !get_size(json_array_get(range, 0), &from) || !get_size(json_array_get(range, 1), &to) ||
        from > to)
        return bad(f, t->name, "\"data_offsets\" is not two rising numbers", err);
    if (to > f->data_bytes)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %.64s ends at byte %" PRIu64
                          " of the data, which has %zu: the "
                          "file is truncated",
                          f->name, t->name, to, f->data_bytes);
    t->data = f->data + from;
    t->bytes = (size_t)(to - from);
    return TACIT_OK;
}

static tacit_status read_tensor(const safetensors_file *f, safetensors_tensor *t, const char *name,
                                const json_t *entry, tacit_error *err)
{
    t->name = name;
    if (!json_is_object(entry) || strlen(name) > SAFETENSORS_MAX_NAME)
        return bad(f, name, "expected an object, under a name of at most 1024 bytes", err);
    const struct dtype *dtype = find_dtype(json_string_value(json_object_get(entry, "dtype")));
    if (!dtype)
        return bad(f, name, "\"dtype\" is none of the format's", err);
    t->dtype = dtype->name;
    t->traits = dtype->computed < 0 ? NULL : tacit_type_find((uint32_t)dtype->computed);
    tacit_status status = read_shape(f, t, json_object_get(entry, "shape"), err);
    if (status == TACIT_OK)
        status = read_range(f, t, json_object_get(entry, "data_offsets"), err);
    size_t bytes;
    if (status == TACIT_OK &&
        (__builtin_mul_overflow(t->values, dtype->bytes, &bytes) || bytes != t->bytes))
        return tacit_fail(
            err, TACIT_BAD_INPUT,
            "%s: tensor %.64s has %zu bytes: its shape and type %s want another number; "
            "the file is damaged",
            f->name, name, t->bytes, dtype->name);
    return status;
}

static int by_place(const void *a, const void *b)
{
    const safetensors_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes) /* empty ones first: they end where the next begins */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static tacit_status check_places(const safetensors_file *f, tacit_error *err)
{
    const uint8_t *at = f->data;
    for (size_t i = 0; i < f->count; i++) {
        if (f->tensor[i].data != at)
            return bad(f, f->tensor[i].name,
                       f->tensor[i].data < at ? "its data overlap another's"
                                              : "there is a gap before its data",
                       err);
        at += f->tensor[i].bytes;
    }
    if (at != f->data + f->data_bytes)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: %zu bytes follow the last tensor; the file is "
                          "damaged",
                          f->name, (size_t)(f->data + f->data_bytes - at));
    return TACIT_OK;
}

static tacit_status check_metadata(const safetensors_file *f, tacit_error *err)
{
    json_t *metadata = json_object_get(f->header, METADATA), *value;
    const char *key;
    if (metadata && !json_is_object(metadata))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: \"" METADATA "\" is no object", f->name);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: \"" METADATA "\": %.64s is no string",
                              f->name, key);
    }
    return TACIT_OK;
}

static tacit_status read_tensors(safetensors_file *f, tacit_error *err)
{
    const char *name;
    json_t *entry;
    f->tensor = calloc(json_object_size(f->header) + 1, sizeof *f->tensor);
    if (!f->tensor)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for its tensors", f->name);
    json_object_foreach(f->header, name, entry)
    {
        if (strcmp(name, METADATA) == 0)
            continue;
        tacit_status status = read_tensor(f, &f->tensor[f->count], name, entry, err);
        if (status != TACIT_OK)
            return status;
        f->count++;
    }
    qsort(f->tensor, f->count, sizeof *f->tensor, by_place);
    tacit_status status = check_places(f, err);
    return status == TACIT_OK ? check_metadata(f, err) : status;
}

static tacit_status read_header(safetensors_file *f, const uint8_t *bytes, size_t size,
                                tacit_error *err)
{
    if (size < LENGTH_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s has %zu bytes: expected at least 8; it is no safetensors file",
                          f->name, size);
    uint64_t length = 0;
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    if (length > SAFETENSORS_MAX_HEADER || length > size - LENGTH_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: a header of %" PRIu64
                          " bytes in a file of %zu: expected at most %zu; "
                          "it is truncated or no safetensors file",
                          f->name, length, size, SAFETENSORS_MAX_HEADER);
    json_error_t json;
    const char *text = (const char *)bytes + LENGTH_BYTES;
    f->header = length > 0 && text[0] == '{'
                    ? json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &json)
                    : NULL;
    if (!json_is_object(f->header))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: its header is no JSON object without repeated names; it is damaged "
                          "or no safetensors file",
                          f->name);
    f->data = bytes + LENGTH_BYTES + length;
    f->data_bytes = size - LENGTH_BYTES - (size_t)length;
    return read_tensors(f, err);
}

static safetensors_file *file_new(const char *name)
{
    safetensors_file *f = calloc(1, sizeof *f);
    if (f && !(f->name = strdup(name))) {
        free(f);
        f = NULL;
    }
    return f;
}

tacit_status safetensors_open_memory(safetensors_file **out, const void *data, size_t size,
                                     const char *name, tacit_error *err)
{
    *out = NULL;
    safetensors_file *f = file_new(name);
    if (!f)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", name);
    tacit_status status = read_header(f, data, size, err);
    if (status == TACIT_OK)
        *out = f;
    else
        safetensors_close(f);
    return status;
}

tacit_status safetensors_open(safetensors_file **out, const char *path, tacit_error *err)
{
    *out = NULL;
    safetensors_file *f = file_new(path);
    if (!f)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", path);
    tacit_status status = tacit_file_map_open(&f->map, path, err);
    if (status == TACIT_OK)
        status = read_header(f, f->map.data, f->map.size, err);
    if (status == TACIT_OK)
        *out = f;
    else
        safetensors_close(f);
    return status;
}

void safetensors_close(safetensors_file *f)
{
    if (!f)
        return;
    free(f->tensor);
    json_decref(f->header);
    tacit_file_map_close(&f->map);
    free(f->name);
    free(f);
}

size_t safetensors_count(const safetensors_file *f)
{
    return f->count;
}

const safetensors_tensor *safetensors_at(const safetensors_file *f, size_t i)
{
    return &f->tensor[i];
}

const safetensors_tensor *safetensors_find(const safetensors_file *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    return NULL;
}

const char *safetensors_metadata(const safetensors_file *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, METADATA), key));
}

void safetensors_each_metadata(const safetensors_file *f,
                               void (*each)(void *ctx, const char *key, const char *value),
                               void *ctx)
{
    json_t *metadata = json_object_get(f->header, METADATA), *value;
    const char *key;
    json_object_foreach(metadata, key, value)
    {
        each(ctx, key, json_string_value(value));
    }
}
