#include "engine/safetensors.h"

#include "common/bytes.h"
#include "common/file.h"
#include "common/memory_limit.h"
#include "common/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 8 }; /* of the data, by spaces behind the JSON */

static tacit_status refuse(const char *path, const safetensors_new *t, const char *what,
                           tacit_error *err)
{
    return tacit_fail(err, TACIT_USAGE, "%s: tensor '%.64s': %s; nothing was written", path,
                      t->name, what);
}

static tacit_status add_entry(json_t *header, const char *path, const safetensors_new *t,
                              size_t *end, tacit_error *err)
{
    size_t size = strlen(t->name), bytes, from = *end;
    if (size < 1 || size > SAFETENSORS_MAX_NAME || !tacit_text_is_plain(t->name, size) ||
        json_object_get(header, t->name))
        return refuse(path, t, "expected a plain name that no other tensor has", err);
    if (t->shape[0] < 1 || t->shape[1] < 1 || !tacit_mul_size(t->shape[0], t->shape[1], &bytes) ||
        !tacit_mul_size(bytes, sizeof(float), &bytes) || !tacit_add_size(from, bytes, end) ||
        *end > INT64_MAX)
        return refuse(path, t, "expected a shape whose values can be counted", err);
    json_t *entry =
        json_pack("{s:s,s:[I,I],s:[I,I]}", "dtype", "F32", "shape", (json_int_t)t->shape[0],
                  (json_int_t)t->shape[1], "data_offsets", (json_int_t)from, (json_int_t)*end);
    return entry && json_object_set_new(header, t->name, entry) == 0
               ? TACIT_OK
               : tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for its header", path);
}

static json_t *make_metadata(const char *const (*metadata)[2], size_t keys)
{
    json_t *object = json_pack("{s:s}", "format", "pt");
    for (size_t i = 0; i < keys && object; i++)
        if (json_object_set_new(object, metadata[i][0], json_string(metadata[i][1])) != 0) {
            json_decref(object);
            object = NULL;
        }
    return object;
}

/* The JSON as text, padded; free it. */
static tacit_status make_header(char **out, const char *path, const safetensors_new *tensor,
                                size_t count, const char *const (*metadata)[2], size_t keys,
                                tacit_error *err)
{
    size_t end = 0;
    json_t *header = json_object();
    tacit_status status = TACIT_OK;
    *out = NULL;
    if (json_object_set_new(header, "__metadata__", make_metadata(metadata, keys)) != 0)
        status = tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for its metadata", path);
    for (size_t i = 0; i < count && status == TACIT_OK; i++)
        status = add_entry(header, path, &tensor[i], &end, err);
    char *text = status == TACIT_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    if (status != TACIT_OK)
        return status;
    size_t size = text ? strlen(text) : 0;
    *out = text ? realloc(text, size + ALIGNMENT + 1) : NULL;
    if (!*out) {
        free(text);
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for its header", path);
    }
    while (size % ALIGNMENT != 0)
        (*out)[size++] = ' ';
    (*out)[size] = '\0';
    if (size <= SAFETENSORS_MAX_HEADER)
        return TACIT_OK;
    return tacit_fail(err, TACIT_USAGE, "%s: a header of %zu bytes for %zu tensors; at most %zu",
                      path, size, count, SAFETENSORS_MAX_HEADER);
}

typedef struct new_file {
    const char *path, *header;
    const safetensors_new *tensor;
    size_t count;
} new_file;

static tacit_status write_tensor(const new_file *f, const safetensors_new *t, int fd,
                                 tacit_error *err)
{
    void *values;
    size_t count = (size_t)(t->shape[0] * t->shape[1]);
    tacit_status status = tacit_memory_alloc(&values, count, sizeof(float), t->name,
                                             "write it where that much is", err);
    if (status != TACIT_OK)
        return status;
    status = t->fill(t->ctx, values, count * sizeof(float), err);
    if (status == TACIT_OK && !tacit_file_write_all(fd, values, count * sizeof(float)))
        status = tacit_file_fail(err, f->path, "write");
    free(values);
    return status;
}

static tacit_status write_file(void *ctx, int fd, tacit_error *err)
{
    const new_file *f = ctx;
    uint8_t length[8];
    size_t size = strlen(f->header);
    tacit_store_u64(length, size);
    if (!tacit_file_write_all(fd, length, sizeof length) ||
        !tacit_file_write_all(fd, f->header, size))
        return tacit_file_fail(err, f->path, "write");
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < f->count && status == TACIT_OK; i++)
        status = write_tensor(f, &f->tensor[i], fd, err);
    return status;
}

tacit_status safetensors_write(const char *path, const safetensors_new *tensor, size_t count,
                               const char *const (*metadata)[2], size_t keys, tacit_error *err)
{
    char *header;
    tacit_status status = make_header(&header, path, tensor, count, metadata, keys, err);
    new_file f = {path, header, tensor, count};
    if (status == TACIT_OK)
        status = tacit_file_publish(path, 0644, write_file, &f, err);
    free(header);
    return status;
}
