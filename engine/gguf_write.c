#include "common/file.h"
#include "common/memory_limit.h"
#include "common/name_set.h"
#include "engine/gguf_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_BYTES ((size_t)1 << 20) /* what a file is written in, but for larger tensors */

#define WRITE_ELSEWHERE "nothing was written; write it where that much is"

/* Names and data are owned here; data NULL: `fill` gives it when it is written. */
typedef struct put_tensor {
    gguf_tensor is;
    gguf_fill fill;
    void *ctx;
} put_tensor;

struct gguf_writer {
    tacit_buffer keys; /* encoded one after the other */
    char **key_name;
    size_t n_keys;
    put_tensor *tensor;
    size_t n_tensors;
    tacit_name_set key_names, tensor_names; /* there may be a quarter of a million */
    tacit_memory_tally taken;               /* bytes of tensors */
    tacit_error failure;                    /* the first one; status TACIT_OK while there is none */
    bool lost;                              /* the writer itself could not be allocated */
};

/* What gguf_writer_new returns without memory: it fails every put and is never freed. */
static gguf_writer without_memory = {.failure = {TACIT_NO_MEMORY, "no memory for a GGUF file"},
                                     .lost = true};

static const char *key_name_at(const void *w, size_t i)
{
    return ((const gguf_writer *)w)->key_name[i];
}

static const char *tensor_name_at(const void *w, size_t i)
{
    return ((const gguf_writer *)w)->tensor[i].is.name;
}

gguf_writer *gguf_writer_new(void)
{
    gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return &without_memory;
    tacit_name_set_init(&w->key_names, key_name_at, w);
    tacit_name_set_init(&w->tensor_names, tensor_name_at, w);
    return w;
}

void gguf_writer_free(gguf_writer *w)
{
    if (!w || w->lost)
        return;
    for (size_t i = 0; i < w->n_keys; i++)
        free(w->key_name[i]);
    for (size_t i = 0; i < w->n_tensors; i++) {
        free((void *)(uintptr_t)w->tensor[i].is.name);
        free((void *)(uintptr_t)w->tensor[i].is.data);
    }
    free(w->key_name);
    free(w->tensor);
    tacit_name_set_fini(&w->key_names);
    tacit_name_set_fini(&w->tensor_names);
    tacit_buffer_free(&w->keys);
    free(w);
}

static bool failed(const gguf_writer *w)
{
    return w->failure.status != TACIT_OK;
}

static void fail_memory(gguf_writer *w)
{
    if (!failed(w))
        tacit_fail(&w->failure, TACIT_NO_MEMORY, "no memory for a GGUF file");
}

/* Makes room for one more element of an array that grows by doubling. */
static void *grown(gguf_writer *w, void *array, size_t count, size_t each)
{
    if (count & (count - 1) || failed(w)) /* not a power of two: there is room */
        return array;
    void *more = reallocarray(array, count ? 2 * count : 1, each);
    if (!more)
        fail_memory(w);
    return more ? more : array;
}

static void append(gguf_writer *w, const void *data, size_t size)
{
    if (!failed(w) && tacit_buffer_append(&w->keys, data, size) != TACIT_OK)
        fail_memory(w);
}

static void append_u32(gguf_writer *w, uint32_t v)
{
    uint8_t bytes[4];
    tacit_store_u32(bytes, v);
    append(w, bytes, sizeof bytes);
}

static void append_u64(gguf_writer *w, uint64_t v)
{
    uint8_t bytes[8];
    tacit_store_u64(bytes, v);
    append(w, bytes, sizeof bytes);
}

static void append_string(gguf_writer *w, const char *data, size_t size)
{
    append_u64(w, size);
    append(w, data, size);
}

/* ---- names ---- */

static void note_name(gguf_writer *w, tacit_name_set *s, size_t i)
{
    if (!tacit_name_set_add(s, i))
        fail_memory(w);
}

static bool has_key(const gguf_writer *w, const char *key)
{
    return tacit_name_set_find(&w->key_names, key) != TACIT_NAME_UNKNOWN;
}

/* Checks the name and appends it; what follows is the type and value. */
static void begin_key(gguf_writer *w, const char *key)
{
    char what[GGUF_MAX_KEY + 16];
    snprintf(what, sizeof what, "key '%s'", key);
    if (failed(w) || gguf_check_name(what, key, strlen(key), GGUF_MAX_KEY, &w->failure) != TACIT_OK)
        return;
    if (has_key(w, key) || strcmp(key, "general.alignment") == 0) {
        tacit_fail(&w->failure, TACIT_USAGE, "%s is put twice or belongs to the writer", what);
        return;
    }
    w->key_name = grown(w, w->key_name, w->n_keys, sizeof *w->key_name);
    char *copy = strdup(key);
    if (!copy)
        fail_memory(w);
    if (failed(w)) {
        free(copy);
        return;
    }
    w->key_name[w->n_keys++] = copy;
    note_name(w, &w->key_names, w->n_keys - 1);
    append_string(w, key, strlen(key));
}

static void put_scalar(gguf_writer *w, const char *key, gguf_value_type type, uint64_t bits)
{
    uint8_t bytes[8];
    begin_key(w, key);
    append_u32(w, type);
    tacit_store_u64(bytes, bits);
    append(w, bytes, gguf_value_bytes(type));
}

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t v)
{
    put_scalar(w, key, GGUF_U32, v);
}

void gguf_put_u64(gguf_writer *w, const char *key, uint64_t v)
{
    put_scalar(w, key, GGUF_U64, v);
}

void gguf_put_i32(gguf_writer *w, const char *key, int32_t v)
{
    put_scalar(w, key, GGUF_I32, (uint32_t)v);
}

void gguf_put_f32(gguf_writer *w, const char *key, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_scalar(w, key, GGUF_F32, bits);
}

void gguf_put_bool(gguf_writer *w, const char *key, bool v)
{
    put_scalar(w, key, GGUF_BOOL, v);
}

void gguf_put_string(gguf_writer *w, const char *key, const char *data, size_t size)
{
    begin_key(w, key);
    append_u32(w, GGUF_STRING);
    append_string(w, data, size);
}

static void begin_array(gguf_writer *w, const char *key, gguf_value_type element, size_t count)
{
    begin_key(w, key);
    append_u32(w, GGUF_ARRAY);
    append_u32(w, element);
    append_u64(w, count);
}

void gguf_put_array(gguf_writer *w, const char *key, gguf_value_type element, const void *values,
                    size_t count)
{
    size_t bytes;
    begin_array(w, key, element, count);
    if (failed(w))
        return;
    if (!gguf_value_bytes(element) || !tacit_mul_size(count, gguf_value_bytes(element), &bytes))
        tacit_fail(&w->failure, TACIT_USAGE, "key '%s': expected an array of numbers, found %s",
                   key, gguf_value_type_name(element));
    else
        append(w, values, bytes);
}

void gguf_put_strings(gguf_writer *w, const char *key, const gguf_string *values, size_t count)
{
    begin_array(w, key, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        append_string(w, values[i].data, values[i].size);
}

void gguf_put_keys_of(gguf_writer *w, const gguf_file *from)
{
    size_t n = gguf_key_count(from);
    for (size_t i = 0; i < n && !failed(w); i++) {
        const char *key = gguf_key_at(from, i, NULL);
        if (has_key(w, key) || strcmp(key, "general.alignment") == 0)
            continue;
        tacit_span value = gguf_key_encoded(from, i);
        begin_key(w, key);
        append(w, value.data, value.size);
    }
}

/* Checks name and shape and fills *t; its name and data are not owned yet. */
static void describe(gguf_writer *w, gguf_tensor *t, const char *name, uint32_t n_dims,
                     const uint64_t *ne, uint32_t type)
{
    char what[GGUF_MAX_NAME + 16];
    *t = (gguf_tensor){.name = name, .n_dims = n_dims, .type = type};
    for (uint32_t d = 0; d < n_dims && d < GGUF_MAX_DIMS; d++)
        t->ne[d] = ne[d];
    snprintf(what, sizeof what, "tensor '%s'", name);
    if (failed(w) ||
        gguf_check_name(what, name, strlen(name), GGUF_MAX_NAME, &w->failure) != TACIT_OK ||
        gguf_measure(t, what, false, &w->failure) != TACIT_OK)
        return;
    if (tacit_name_set_find(&w->tensor_names, name) != TACIT_NAME_UNKNOWN)
        tacit_fail(&w->failure, TACIT_USAGE, "%s is put twice", what);
}

/* Takes `data` over, also on failure; NULL is a failure of its own unless `fill` stands for it. */
static void add_tensor(gguf_writer *w, const gguf_tensor *t, uint8_t *data, gguf_fill fill,
                       void *ctx)
{
    char *name = failed(w) ? NULL : strdup(t->name);
    if (!name || (!data && !fill))
        fail_memory(w);
    if (!failed(w))
        w->tensor = grown(w, w->tensor, w->n_tensors, sizeof *w->tensor);
    if (failed(w)) {
        free(name);
        free(data);
        return;
    }
    put_tensor *kept = &w->tensor[w->n_tensors++];
    *kept = (put_tensor){.is = *t, .fill = fill, .ctx = ctx};
    kept->is.name = name;
    kept->is.data = data;
    note_name(w, &w->tensor_names, w->n_tensors - 1);
}

/* Room for a tensor's bytes, judged with those before it; NULL is a failure. */
static uint8_t *take_bytes(gguf_writer *w, const gguf_tensor *t)
{
    char what[GGUF_MAX_NAME + 32];
    if (failed(w))
        return NULL;
    snprintf(what, sizeof what, "tensor %s of a new file", t->name);
    tacit_status status =
        tacit_memory_tally_add(&w->taken, t->bytes, what, WRITE_ELSEWHERE, &w->failure);
    uint8_t *data = status == TACIT_OK ? malloc(t->bytes) : NULL;
    if (!data && status == TACIT_OK)
        tacit_memory_fail(t->bytes, what, WRITE_ELSEWHERE, &w->failure);
    return data;
}

void gguf_put_tensor(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *ne,
                     tacit_type type, const float *values)
{
    gguf_tensor t;
    describe(w, &t, name, n_dims, ne, type);
    if (!failed(w) && !t.traits)
        tacit_fail(&w->failure, TACIT_USAGE, "tensor '%s': nothing here quantizes to %s", name,
                   tacit_type_ggml_name(t.type));
    uint8_t *data = take_bytes(w, &t);
    if (data)
        for (uint64_t row = 0; row < t.rows; row++)
            t.traits->from_f32(data + row * t.row_bytes, values + row * t.ne[0], (size_t)t.ne[0]);
    add_tensor(w, &t, data, NULL, NULL);
}

void gguf_put_tensor_bytes(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *ne,
                           uint32_t ggml_type, const void *data, size_t bytes)
{
    gguf_tensor t;
    describe(w, &t, name, n_dims, ne, ggml_type);
    if (!failed(w) && t.bytes != bytes)
        tacit_fail(&w->failure, TACIT_USAGE, "tensor '%s': expected %zu bytes, found %zu", name,
                   t.bytes, bytes);
    uint8_t *copy = take_bytes(w, &t);
    if (copy)
        memcpy(copy, data, bytes);
    add_tensor(w, &t, copy, NULL, NULL);
}

void gguf_put_tensor_later(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *ne,
                           uint32_t ggml_type, gguf_fill fill, void *ctx)
{
    gguf_tensor t;
    describe(w, &t, name, n_dims, ne, ggml_type);
    add_tensor(w, &t, NULL, fill, ctx);
}

/* Zero bytes up to the next multiple of the alignment. */
static tacit_status pad(tacit_buffer *out)
{
    static const uint8_t zero[GGUF_DEFAULT_ALIGNMENT];
    size_t over = out->size % GGUF_DEFAULT_ALIGNMENT;
    return tacit_buffer_append(out, zero, over ? GGUF_DEFAULT_ALIGNMENT - over : 0);
}

static tacit_status write_u32(tacit_buffer *out, uint32_t v)
{
    uint8_t bytes[4];
    tacit_store_u32(bytes, v);
    return tacit_buffer_append(out, bytes, sizeof bytes);
}

static tacit_status write_u64(tacit_buffer *out, uint64_t v)
{
    uint8_t bytes[8];
    tacit_store_u64(bytes, v);
    return tacit_buffer_append(out, bytes, sizeof bytes);
}

static tacit_status write_header(const gguf_writer *w, tacit_buffer *out)
{
    tacit_status status;
    TACIT_TRY(write_u32(out, GGUF_MAGIC), done);
    TACIT_TRY(write_u32(out, GGUF_VERSION), done);
    TACIT_TRY(write_u64(out, w->n_tensors), done);
    TACIT_TRY(write_u64(out, w->n_keys), done);
    TACIT_TRY(tacit_buffer_append(out, w->keys.data, w->keys.size), done);
done:
    return status;
}

static tacit_status write_info(const gguf_tensor *t, uint64_t offset, tacit_buffer *out)
{
    tacit_status status;
    TACIT_TRY(write_u64(out, strlen(t->name)), done);
    TACIT_TRY(tacit_buffer_append(out, t->name, strlen(t->name)), done);
    TACIT_TRY(write_u32(out, t->n_dims), done);
    for (uint32_t d = 0; d < t->n_dims; d++)
        TACIT_TRY(write_u64(out, t->ne[d]), done);
    TACIT_TRY(write_u32(out, t->type), done);
    TACIT_TRY(write_u64(out, offset), done);
done:
    return status;
}

/* ---- the data ---- */

/* What is written: bytes in memory, which go to the file whenever there are many. */
typedef struct gguf_sink {
    tacit_buffer held;
    int fd; /* -1: everything stays in memory */
    const char *path;
    tacit_error *err;
} gguf_sink;

static tacit_status flush(gguf_sink *out)
{
    if (!tacit_file_write_all(out->fd, out->held.data, out->held.size))
        return tacit_file_fail(out->err, out->path, "write");
    out->held.size = 0;
    return TACIT_OK;
}

static tacit_status out_of_memory(const gguf_sink *out)
{
    return tacit_fail(out->err, TACIT_NO_MEMORY, "%s: no memory for a GGUF file", out->path);
}

/* A tensor's bytes and the zeros behind them. Before and after it the sink is aligned. */
static tacit_status write_bytes(gguf_sink *out, const uint8_t *data, size_t bytes)
{
    bool directly = out->fd >= 0 && bytes >= FLUSH_BYTES;
    size_t whole = directly ? bytes / GGUF_DEFAULT_ALIGNMENT * GGUF_DEFAULT_ALIGNMENT : 0;
    if (out->fd >= 0 && (directly || out->held.size >= FLUSH_BYTES)) {
        tacit_status status = flush(out);
        if (status != TACIT_OK)
            return status;
    }
    if (whole > 0 && !tacit_file_write_all(out->fd, data, whole))
        return tacit_file_fail(out->err, out->path, "write");
    if (tacit_buffer_append(&out->held, data + whole, bytes - whole) != TACIT_OK ||
        pad(&out->held) != TACIT_OK)
        return out_of_memory(out);
    return TACIT_OK;
}

static tacit_status write_tensor(gguf_sink *out, const put_tensor *t)
{
    if (t->is.data)
        return write_bytes(out, t->is.data, t->is.bytes);
    char what[GGUF_MAX_NAME + 32];
    void *data;
    snprintf(what, sizeof what, "tensor %s of a new file", t->is.name);
    tacit_status status =
        tacit_memory_alloc(&data, 1, t->is.bytes, what, WRITE_ELSEWHERE, out->err);
    if (status == TACIT_OK)
        status = t->fill(t->ctx, data, t->is.bytes, out->err);
    if (status == TACIT_OK)
        status = write_bytes(out, data, t->is.bytes);
    free(data);
    return status;
}

static tacit_status write_front(const gguf_writer *w, tacit_buffer *out)
{
    tacit_status status;
    uint64_t offset = 0;
    TACIT_TRY(write_header(w, out), done);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const gguf_tensor *t = &w->tensor[i].is;
        TACIT_TRY(write_info(t, offset, out), done);
        offset += (t->bytes + GGUF_DEFAULT_ALIGNMENT - 1) / GGUF_DEFAULT_ALIGNMENT *
                  GGUF_DEFAULT_ALIGNMENT;
    }
    TACIT_TRY(pad(out), done);
done:
    return status;
}

static tacit_status write_all(const gguf_writer *w, gguf_sink *out)
{
    tacit_status status = write_front(w, &out->held) == TACIT_OK ? TACIT_OK : out_of_memory(out);
    for (size_t i = 0; i < w->n_tensors && status == TACIT_OK; i++)
        status = write_tensor(out, &w->tensor[i]);
    return status == TACIT_OK && out->fd >= 0 ? flush(out) : status;
}

tacit_status gguf_write_memory(gguf_writer *w, uint8_t **data, size_t *size, tacit_error *err)
{
    gguf_sink out = {.fd = -1, .path = "memory", .err = err};
    tacit_status status = failed(w) ? tacit_fail(err, w->failure.status, "%s", w->failure.message)
                                    : write_all(w, &out);
    *data = NULL;
    *size = 0;
    if (status != TACIT_OK) {
        tacit_buffer_free(&out.held);
        return status;
    }
    *data = out.held.data;
    *size = out.held.size;
    return TACIT_OK;
}

typedef struct file_job {
    const gguf_writer *w;
    const char *path;
} file_job;

static tacit_status write_file(void *ctx, int fd, tacit_error *err)
{
    const file_job *job = ctx;
    gguf_sink out = {.fd = fd, .path = job->path, .err = err};
    tacit_status status = write_all(job->w, &out);
    tacit_buffer_free(&out.held);
    return status;
}

tacit_status gguf_write(gguf_writer *w, const char *path, tacit_error *err)
{
    file_job job = {w, path};
    if (failed(w))
        return tacit_fail(err, w->failure.status, "%s: %s", path, w->failure.message);
    return tacit_file_publish(path, 0644, write_file, &job, err);
}
