#include "common/file.h"
#include "common/memory_limit.h"
#include "engine/gguf_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least that one entry can take, so that a count is checked against the file's size before
 * anything is allocated: a key is length, one byte, type and one byte of value; a tensor is
 * length, one byte, n_dims, one dimension, type and offset. */
enum { KEY_LEAST = 8 + 1 + 4 + 1, TENSOR_LEAST = 8 + 1 + 4 + 8 + 4 + 8 };
enum { MOST_KEYS = 1 << 14, MOST_TENSORS = 1 << 18 };
enum { LEAST_ALIGNMENT = 8, MOST_ALIGNMENT = 1 << 16 };

typedef struct gguf_key {
    char *name;
    gguf_value_type type;
    gguf_value_type element; /* of an array */
    size_t count;            /* elements of an array; 1 otherwise */
    const uint8_t *value;    /* numbers: the first one, in the map */
    gguf_string *string;     /* strings: `count` views */
    tacit_span encoded;
} gguf_key;

struct gguf_file {
    char *name;
    tacit_file_map map; /* empty when opened over memory */
    tacit_span bytes;   /* the whole file */
    gguf_key *key;
    size_t n_keys;
    gguf_tensor *tensor;
    size_t n_tensors;
    const gguf_key **keys_by_name;
    const gguf_tensor **tensors_by_name;
    uint64_t alignment;
    bool any_type; /* opened to be listed */
};

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct gguf_reader {
    gguf_file *file;
    tacit_cursor at;
    uint64_t *offset; /* of each tensor, within the data section */
    tacit_error *err;
} gguf_reader;

static tacit_status fail_truncated(gguf_reader *r, const char *what)
{
    return tacit_fail(r->err, TACIT_BAD_INPUT,
                      "%s: byte %zu: the file ends within %s; it is truncated, copy it again",
                      r->file->name, r->at.at, what);
}

static tacit_status fail_memory(gguf_reader *r)
{
    return tacit_fail(r->err, TACIT_NO_MEMORY, "%s: no memory for its keys and tensors",
                      r->file->name);
}

/* A length-prefixed string; `what` names it in errors. */
static tacit_status read_string(gguf_reader *r, const char *what, gguf_string *out)
{
    uint64_t size = tacit_cursor_u64(&r->at);
    if (r->at.failed)
        return fail_truncated(r, what);
    if (size > tacit_cursor_left(&r->at))
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: byte %zu: %s has a length of %llu bytes, the file has %zu left",
                          r->file->name, r->at.at, what, (unsigned long long)size,
                          tacit_cursor_left(&r->at));
    tacit_span span = tacit_cursor_take(&r->at, size);
    *out = (gguf_string){(const char *)span.data, span.size};
    return TACIT_OK;
}

static tacit_status read_name(gguf_reader *r, const char *what, size_t most, char **out)
{
    gguf_string text = {NULL, 0};
    tacit_error reason;
    tacit_status status = read_string(r, what, &text);
    if (status != TACIT_OK)
        return status;
    status = gguf_check_name(what, text.data, text.size, most, &reason);
    if (status != TACIT_OK)
        return tacit_fail(r->err, status, "%s: byte %zu: %s", r->file->name, r->at.at,
                          reason.message);
    *out = strndup(text.data, text.size);
    return *out ? TACIT_OK : fail_memory(r);
}

/* An empty string takes more here than in the file, and the zeros of a sparse file are empty
 * strings that take nothing there. */
static tacit_status take_strings(gguf_reader *r, gguf_key *key)
{
    char what[GGUF_MAX_KEY + 320];
    void *memory;
    if (key->count <= 1) {
        key->string = calloc(1, sizeof *key->string);
        return key->string ? TACIT_OK : fail_memory(r);
    }
    snprintf(what, sizeof what, "%.256s: the %zu strings of key '%s'", r->file->name, key->count,
             key->name);
    tacit_status status = tacit_memory_alloc(&memory, key->count, sizeof *key->string, what,
                                             "give a smaller file", r->err);
    key->string = memory;
    return status;
}

static tacit_status read_strings(gguf_reader *r, gguf_key *key)
{
    char what[GGUF_MAX_KEY + 32];
    tacit_status status = take_strings(r, key);
    snprintf(what, sizeof what, "a string of key '%s'", key->name);
    for (size_t i = 0; i < key->count && status == TACIT_OK; i++)
        status = read_string(r, what, &key->string[i]);
    return status;
}

static tacit_status check_bools(gguf_reader *r, const gguf_key *key)
{
    for (size_t i = 0; i < key->count; i++)
        if (key->value[i] > 1)
            return tacit_fail(r->err, TACIT_BAD_INPUT,
                              "%s: key '%s': expected a bool of 0 or 1, found %u", r->file->name,
                              key->name, key->value[i]);
    return TACIT_OK;
}

/* `key->count` values of type `type`, which is no array. */
static tacit_status read_values(gguf_reader *r, gguf_key *key, gguf_value_type type)
{
    size_t each = gguf_value_bytes(type), bytes;
    size_t least = type == GGUF_STRING ? 8 : each; /* an empty string is its length */
    if (!tacit_mul_size(key->count, least, &bytes) || bytes > tacit_cursor_left(&r->at))
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: key '%s': %zu values of type %s do not fit into the %zu bytes left",
                          r->file->name, key->name, key->count, gguf_value_type_name(type),
                          tacit_cursor_left(&r->at));
    if (type == GGUF_STRING)
        return read_strings(r, key);
    key->value = tacit_cursor_take(&r->at, bytes).data;
    return type == GGUF_BOOL ? check_bools(r, key) : TACIT_OK;
}

static tacit_status fail_value_type(gguf_reader *r, const gguf_key *key, const char *what,
                                    uint32_t type)
{
    return tacit_fail(r->err, TACIT_BAD_INPUT, "%s: key '%s': %s %u is unknown (expected 0 to %d)",
                      r->file->name, key->name, what, type, GGUF_F64);
}

static tacit_status read_array(gguf_reader *r, gguf_key *key)
{
    uint32_t element = tacit_cursor_u32(&r->at);
    uint64_t count = tacit_cursor_u64(&r->at);
    if (r->at.failed)
        return fail_truncated(r, key->name);
    if (element == GGUF_ARRAY)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: key '%s': arrays within arrays are not supported", r->file->name,
                          key->name);
    if (element > GGUF_F64)
        return fail_value_type(r, key, "element type", element);
    if (count > tacit_cursor_left(&r->at))
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: key '%s': %llu elements do not fit into the %zu bytes left",
                          r->file->name, key->name, (unsigned long long)count,
                          tacit_cursor_left(&r->at));
    key->element = (gguf_value_type)element;
    key->count = (size_t)count;
    return read_values(r, key, key->element);
}

static tacit_status read_key(gguf_reader *r, gguf_key *key)
{
    tacit_status status = read_name(r, "key name", GGUF_MAX_KEY, &key->name);
    if (status != TACIT_OK)
        return status;
    size_t start = r->at.at;
    uint32_t type = tacit_cursor_u32(&r->at);
    if (r->at.failed)
        return fail_truncated(r, key->name);
    if (type > GGUF_F64)
        return fail_value_type(r, key, "type", type);
    key->type = (gguf_value_type)type;
    key->count = 1;
    status = type == GGUF_ARRAY ? read_array(r, key) : read_values(r, key, key->type);
    key->encoded = (tacit_span){r->at.data + start, r->at.at - start};
    return status;
}

static tacit_status read_tensor(gguf_reader *r, gguf_tensor *t, uint64_t *offset)
{
    char *name, what[GGUF_MAX_NAME + 16];
    tacit_error reason;
    tacit_status status = read_name(r, "tensor name", GGUF_MAX_NAME, &name);
    if (status != TACIT_OK)
        return status;
    t->name = name;
    t->n_dims = tacit_cursor_u32(&r->at);
    for (uint32_t d = 0; d < t->n_dims && d < GGUF_MAX_DIMS; d++)
        t->ne[d] = tacit_cursor_u64(&r->at);
    if (t->n_dims <= GGUF_MAX_DIMS) { /* else gguf_measure refuses it */
        t->type = tacit_cursor_u32(&r->at);
        *offset = tacit_cursor_u64(&r->at);
    }
    snprintf(what, sizeof what, "tensor '%s'", name);
    if (r->at.failed)
        return fail_truncated(r, what);
    status = gguf_measure(t, what, r->file->any_type, &reason);
    if (status != TACIT_OK)
        return tacit_fail(r->err, status, "%s: %s", r->file->name, reason.message);
    return TACIT_OK;
}

static tacit_status check_count(gguf_reader *r, const char *what, uint64_t count, size_t least,
                                uint64_t most)
{
    size_t left = tacit_cursor_left(&r->at);
    if (count > left / least)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: %llu %s do not fit into the %zu bytes of the file", r->file->name,
                          (unsigned long long)count, what, left);
    if (count > most)
        return tacit_fail(r->err, TACIT_BAD_INPUT, "%s: expected at most %llu %s, found %llu",
                          r->file->name, (unsigned long long)most, what, (unsigned long long)count);
    return TACIT_OK;
}

/* What people hold for a model file, by its first bytes. */
static const struct {
    const char *magic;
    const char *what; /* and what helps */
} foreign[] = {
    {"PK\x03\x04", "a zip archive, as PyTorch saves models; convert the model to GGUF"},
    {"\x80\x02", "a pickle, as PyTorch saves models; convert the model to GGUF"},
    {"lmgg", "of the format before GGUF; convert the model anew"},
    {"tjgg", "of the format before GGUF; convert the model anew"},
    {"fmgg", "of the format before GGUF; convert the model anew"},
    {"version https://git-lfs", "a pointer of Git LFS; get the file itself with 'git lfs pull'"},
    {"<", "a page of the web; download the file itself"},
    {"{", "JSON; name the GGUF file that it is about"},
    {"\x1f\x8b", "compressed by gzip; unpack it"},
    {"\x28\xb5\x2f\xfd", "compressed by zstd; unpack it"},
};

static const char *name_foreign(const gguf_file *file)
{
    const uint8_t *data = file->bytes.data;
    static const uint8_t upper[4] = {0}; /* of a length in 64 bits, before JSON: safetensors */
    if (file->bytes.size > 8 && memcmp(data + 4, upper, 4) == 0 && data[8] == '{')
        return "a safetensors file; convert the model to GGUF";
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        size_t n = strlen(foreign[i].magic);
        if (n <= file->bytes.size && memcmp(data, foreign[i].magic, n) == 0)
            return foreign[i].what;
    }
    return "no GGUF file";
}

static tacit_status check_version(gguf_reader *r, uint32_t magic, uint32_t version)
{
    if (magic != GGUF_MAGIC)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: expected the magic 'GGUF', found bytes %02x %02x %02x %02x; this is "
                          "%s",
                          r->file->name, magic & 255, magic >> 8 & 255, magic >> 16 & 255,
                          magic >> 24, name_foreign(r->file));
    if (version && (version & 0xffff) == 0)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: expected a little-endian file, found a big-endian one; convert it",
                          r->file->name);
    if (version != 2 && version != GGUF_VERSION)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: expected GGUF version 2 or 3, found %u; convert the model anew",
                          r->file->name, version);
    return TACIT_OK;
}

static tacit_status read_header(gguf_reader *r)
{
    uint32_t magic = tacit_cursor_u32(&r->at), version = tacit_cursor_u32(&r->at);
    if (r->at.failed)
        return fail_truncated(r, "the magic and version");
    tacit_status status = check_version(r, magic, version);
    if (status != TACIT_OK)
        return status;
    uint64_t n_tensors = tacit_cursor_u64(&r->at), n_keys = tacit_cursor_u64(&r->at);
    if (r->at.failed)
        return fail_truncated(r, "the counts of tensors and keys");
    status = check_count(r, "tensors", n_tensors, TENSOR_LEAST, MOST_TENSORS);
    if (status == TACIT_OK)
        status = check_count(r, "keys", n_keys, KEY_LEAST, MOST_KEYS);
    if (status != TACIT_OK)
        return status;
    gguf_file *file = r->file;
    file->key = calloc(n_keys + 1, sizeof *file->key);
    file->tensor = calloc(n_tensors + 1, sizeof *file->tensor);
    file->keys_by_name = calloc(n_keys + 1, sizeof *file->keys_by_name);
    file->tensors_by_name = calloc(n_tensors + 1, sizeof *file->tensors_by_name);
    r->offset = calloc(n_tensors + 1, sizeof *r->offset);
    if (!file->key || !file->tensor || !file->keys_by_name || !file->tensors_by_name || !r->offset)
        return fail_memory(r);
    file->n_keys = (size_t)n_keys;
    file->n_tensors = (size_t)n_tensors;
    return TACIT_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(const gguf_key *const *)a)->name, (*(const gguf_key *const *)b)->name);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp((*(const gguf_tensor *const *)a)->name, (*(const gguf_tensor *const *)b)->name);
}

static tacit_status read_keys(gguf_reader *r)
{
    gguf_file *file = r->file;
    for (size_t i = 0; i < file->n_keys; i++) {
        tacit_status status = read_key(r, &file->key[i]);
        if (status != TACIT_OK)
            return status;
        file->keys_by_name[i] = &file->key[i];
    }
    qsort(file->keys_by_name, file->n_keys, sizeof *file->keys_by_name, compare_keys);
    for (size_t i = 1; i < file->n_keys; i++)
        if (compare_keys(&file->keys_by_name[i - 1], &file->keys_by_name[i]) == 0)
            return tacit_fail(r->err, TACIT_BAD_INPUT, "%s: key '%s' is there twice", file->name,
                              file->keys_by_name[i]->name);
    return TACIT_OK;
}

static tacit_status read_tensors(gguf_reader *r)
{
    gguf_file *file = r->file;
    for (size_t i = 0; i < file->n_tensors; i++) {
        tacit_status status = read_tensor(r, &file->tensor[i], &r->offset[i]);
        if (status != TACIT_OK)
            return status;
        file->tensors_by_name[i] = &file->tensor[i];
    }
    qsort(file->tensors_by_name, file->n_tensors, sizeof *file->tensors_by_name, compare_tensors);
    for (size_t i = 1; i < file->n_tensors; i++)
        if (compare_tensors(&file->tensors_by_name[i - 1], &file->tensors_by_name[i]) == 0)
            return tacit_fail(r->err, TACIT_BAD_INPUT, "%s: tensor '%s' is there twice", file->name,
                              file->tensors_by_name[i]->name);
    return TACIT_OK;
}

static tacit_status read_alignment(gguf_reader *r)
{
    uint64_t alignment = GGUF_DEFAULT_ALIGNMENT;
    if (gguf_has_key(r->file, "general.alignment")) {
        tacit_status status = gguf_get_u64(r->file, "general.alignment", LEAST_ALIGNMENT,
                                           MOST_ALIGNMENT, &alignment, r->err);
        if (status != TACIT_OK)
            return status;
    }
    if (alignment & (alignment - 1))
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: key 'general.alignment': expected a power of two, found %llu",
                          r->file->name, (unsigned long long)alignment);
    r->file->alignment = alignment;
    return TACIT_OK;
}

static tacit_status place_tensor(gguf_reader *r, gguf_tensor *t, uint64_t offset, tacit_span data)
{
    if (offset % r->file->alignment)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: tensor '%s': expected an offset that is a multiple of %llu, found "
                          "%llu",
                          r->file->name, t->name, (unsigned long long)r->file->alignment,
                          (unsigned long long)offset);
    if (offset > data.size || t->bytes > data.size - offset)
        return tacit_fail(r->err, TACIT_BAD_INPUT,
                          "%s: tensor '%s': %zu bytes at offset %llu lie outside the %zu bytes of "
                          "data; the file is truncated or corrupt, copy it again",
                          r->file->name, t->name, t->bytes, (unsigned long long)offset, data.size);
    t->data = data.data + offset;
    return TACIT_OK;
}

static int compare_places(const void *a, const void *b)
{
    const uint8_t *left = (*(const gguf_tensor *const *)a)->data;
    const uint8_t *right = (*(const gguf_tensor *const *)b)->data;
    return (left > right) - (left < right);
}

static tacit_status check_overlap(gguf_reader *r)
{
    size_t n = r->file->n_tensors;
    const gguf_tensor **by_place = calloc(n + 1, sizeof *by_place);
    if (!by_place)
        return fail_memory(r);
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < n; i++)
        by_place[i] = &r->file->tensor[i];
    qsort(by_place, n, sizeof *by_place, compare_places);
    for (size_t i = 1; i < n && status == TACIT_OK; i++)
        if ((size_t)(by_place[i]->data - by_place[i - 1]->data) < by_place[i - 1]->bytes)
            status = tacit_fail(r->err, TACIT_BAD_INPUT, "%s: tensors '%s' and '%s' overlap",
                                r->file->name, by_place[i - 1]->name, by_place[i]->name);
    free(by_place);
    return status;
}

static tacit_status place_tensors(gguf_reader *r)
{
    size_t alignment = (size_t)r->file->alignment;
    size_t pad = (alignment - r->at.at % alignment) % alignment;
    if (r->file->n_tensors == 0)
        return TACIT_OK;
    if (pad > tacit_cursor_left(&r->at))
        return fail_truncated(r, "the padding before the tensor data");
    tacit_cursor_take(&r->at, pad);
    tacit_span data = {r->at.data + r->at.at, tacit_cursor_left(&r->at)};
    for (size_t i = 0; i < r->file->n_tensors; i++) {
        tacit_status status = place_tensor(r, &r->file->tensor[i], r->offset[i], data);
        if (status != TACIT_OK)
            return status;
    }
    return check_overlap(r);
}

static tacit_status read_file(gguf_file *file, const void *data, size_t size, tacit_error *err)
{
    gguf_reader r = {.file = file, .at = tacit_cursor_over(data, size), .err = err};
    tacit_status status;
    file->bytes = (tacit_span){data, size};
    TACIT_TRY(read_header(&r), cleanup);
    TACIT_TRY(read_keys(&r), cleanup);
    TACIT_TRY(read_tensors(&r), cleanup);
    TACIT_TRY(read_alignment(&r), cleanup);
    TACIT_TRY(place_tensors(&r), cleanup);
cleanup:
    free(r.offset);
    return status;
}

static gguf_file *file_new(const char *name)
{
    gguf_file *file = calloc(1, sizeof *file);
    if (file && !(file->name = strdup(name))) {
        free(file);
        file = NULL;
    }
    return file;
}

tacit_status gguf_open_memory(gguf_file **out, const void *data, size_t size, const char *name,
                              tacit_error *err)
{
    *out = NULL;
    if ((uintptr_t)data % LEAST_ALIGNMENT)
        return tacit_fail(err, TACIT_USAGE, "%s: expected memory at a multiple of %d", name,
                          LEAST_ALIGNMENT);
    gguf_file *file = file_new(name);
    if (!file)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", name);
    tacit_status status = read_file(file, data, size, err);
    if (status == TACIT_OK)
        *out = file;
    else
        gguf_close(file);
    return status;
}

static tacit_status open_path(gguf_file **out, const char *path, bool any_type, tacit_error *err)
{
    *out = NULL;
    gguf_file *file = file_new(path);
    if (!file)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", path);
    file->any_type = any_type;
    tacit_status status = tacit_file_map_open(&file->map, path, err);
    if (status == TACIT_OK)
        status = read_file(file, file->map.data, file->map.size, err);
    if (status == TACIT_OK)
        *out = file;
    else
        gguf_close(file);
    return status;
}

tacit_status gguf_open(gguf_file **out, const char *path, tacit_error *err)
{
    return open_path(out, path, false, err);
}

tacit_status gguf_open_to_list(gguf_file **out, const char *path, tacit_error *err)
{
    return open_path(out, path, true, err);
}

tacit_status gguf_check_whole(const gguf_file *file, tacit_error *err)
{
    uint64_t count;
    if (gguf_get_u64(file, "split.count", 0, UINT64_MAX, &count, NULL) != TACIT_OK || count <= 1)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: one of %llu parts; join them into one file with gguf-split --merge",
                      gguf_name(file), (unsigned long long)count);
}

void gguf_forget(const gguf_file *file, const void *data, size_t size)
{
    /* Memory of others would lose its content. */
    if (file->map.data)
        tacit_file_map_forget(&file->map, data, size);
}

void gguf_close(gguf_file *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->n_keys; i++) {
        free(file->key[i].name);
        free(file->key[i].string);
    }
    for (size_t i = 0; i < file->n_tensors; i++)
        free((void *)(uintptr_t)file->tensor[i].name);
    free(file->key);
    free(file->tensor);
    free(file->keys_by_name);
    free(file->tensors_by_name);
    free(file->name);
    tacit_file_map_close(&file->map);
    free(file);
}

/* ---- asking ----------------------------------------------------------------------------- */

const char *gguf_name(const gguf_file *file)
{
    return file->name;
}

static void forget_hashed(void *ctx, const void *data, size_t size)
{
    gguf_forget(ctx, data, size);
}

/* Pages that are hashed leave memory: else a model whose weights are packed would count twice. */
void gguf_digest(const gguf_file *file, uint8_t out[TACIT_DIGEST_BYTES])
{
    tacit_digest_large(out, file->bytes.data, file->bytes.size, forget_hashed,
                       (void *)(uintptr_t)file);
}

size_t gguf_tensor_count(const gguf_file *file)
{
    return file->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf_file *file, size_t i)
{
    return &file->tensor[i];
}

const gguf_tensor *gguf_tensor_find(const gguf_file *file, const char *name)
{
    const gguf_tensor sought = {.name = name}, *at = &sought;
    const gguf_tensor **found = bsearch(&at, file->tensors_by_name, file->n_tensors,
                                        sizeof *file->tensors_by_name, compare_tensors);
    return found ? *found : NULL;
}

tacit_status gguf_tensor_values(const gguf_file *file, const gguf_tensor *t, float **out,
                                tacit_error *err)
{
    char what[GGUF_MAX_NAME + 320];
    void *memory;
    size_t n = (size_t)t->ne[0];
    snprintf(what, sizeof what, "%.256s: tensor %s as fp32", file->name, t->name);
    tacit_status status = tacit_memory_alloc(&memory, (size_t)t->rows, n * sizeof **out, what,
                                             "use a smaller model", err);
    *out = memory;
    for (uint64_t row = 0; row < t->rows && status == TACIT_OK; row++)
        t->traits->to_f32(*out + row * n, t->data + row * t->row_bytes, n);
    return status;
}

size_t gguf_key_count(const gguf_file *file)
{
    return file->n_keys;
}

const char *gguf_key_at(const gguf_file *file, size_t i, gguf_value_type *type)
{
    if (type)
        *type = file->key[i].type;
    return file->key[i].name;
}

tacit_span gguf_key_encoded(const gguf_file *file, size_t i)
{
    return file->key[i].encoded;
}

static int compare_name_with_key(const void *name, const void *key)
{
    return strcmp(name, (*(const gguf_key *const *)key)->name);
}

static const gguf_key *find_key(const gguf_file *file, const char *name)
{
    const gguf_key **found = bsearch(name, file->keys_by_name, file->n_keys,
                                     sizeof *file->keys_by_name, compare_name_with_key);
    return found ? *found : NULL;
}

bool gguf_has_key(const gguf_file *file, const char *key)
{
    return find_key(file, key) != NULL;
}

/* A number of any type, in every form that it has. */
typedef struct gguf_number {
    bool is_integer, is_real;
    bool negative;
    uint64_t magnitude; /* integers: the value without its sign */
    double real;
} gguf_number;

static gguf_number integer_number(uint64_t bits, size_t width, bool is_signed)
{
    gguf_number n = {.is_integer = true, .magnitude = bits};
    n.negative = is_signed && bits >> (8 * width - 1);
    if (n.negative)
        n.magnitude = (~bits + 1) & (UINT64_MAX >> (64 - 8 * width));
    n.real = n.negative ? -(double)n.magnitude : (double)n.magnitude;
    return n;
}

static gguf_number load_number(gguf_value_type type, const uint8_t *at)
{
    size_t width = gguf_value_bytes(type);
    tacit_cursor c = tacit_cursor_over(at, width);
    uint64_t bits = 0;
    switch (type) {
    case GGUF_F32:
        return (gguf_number){.is_real = true, .real = (double)tacit_cursor_f32(&c)};
    case GGUF_F64:
        return (gguf_number){.is_real = true, .real = tacit_cursor_f64(&c)};
    case GGUF_BOOL:
        return (gguf_number){.real = *at};
    case GGUF_STRING:
    case GGUF_ARRAY:
        return (gguf_number){0};
    default:
        for (size_t i = width; i > 0; i--)
            bits = bits << 8 | at[i - 1];
        return integer_number(bits, width,
                              type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 ||
                                  type == GGUF_I64);
    }
}

static tacit_status fail_type(const gguf_file *file, const gguf_key *key, const char *expected,
                              tacit_error *err)
{
    bool array = key->type == GGUF_ARRAY;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: key '%s': expected %s, found %s%s", file->name,
                      key->name, expected, array ? "an array of " : "type ",
                      gguf_value_type_name(array ? key->element : key->type));
}

static tacit_status need_key(const gguf_file *file, const char *name, const gguf_key **out,
                             tacit_error *err)
{
    *out = find_key(file, name);
    if (!*out)
        return tacit_fail(err, TACIT_NOT_FOUND, "%s: key '%s' is missing", file->name, name);
    return TACIT_OK;
}

tacit_status gguf_get_u64(const gguf_file *file, const char *key, uint64_t min, uint64_t max,
                          uint64_t *out, tacit_error *err)
{
    const gguf_key *found;
    tacit_status status = need_key(file, key, &found, err);
    if (status != TACIT_OK)
        return status;
    gguf_number n = load_number(found->type, found->value);
    if (!n.is_integer)
        return fail_type(file, found, "an integer", err);
    if (n.negative || n.magnitude < min || n.magnitude > max)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: key '%s': expected a value from %llu to %llu, found %s%llu",
                          file->name, key, (unsigned long long)min, (unsigned long long)max,
                          n.negative ? "-" : "", (unsigned long long)n.magnitude);
    *out = n.magnitude;
    return TACIT_OK;
}

tacit_status gguf_get_i64(const gguf_file *file, const char *key, int64_t *out, tacit_error *err)
{
    const gguf_key *found;
    tacit_status status = need_key(file, key, &found, err);
    if (status != TACIT_OK)
        return status;
    gguf_number n = load_number(found->type, found->value);
    if (!n.is_integer)
        return fail_type(file, found, "an integer", err);
    if (n.magnitude > (uint64_t)INT64_MAX + n.negative)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: key '%s': %llu is beyond the largest signed integer", file->name,
                          key, (unsigned long long)n.magnitude);
    *out = n.negative ? -(int64_t)(n.magnitude - 1) - 1 : (int64_t)n.magnitude;
    return TACIT_OK;
}

tacit_status gguf_get_f64(const gguf_file *file, const char *key, double *out, tacit_error *err)
{
    const gguf_key *found;
    tacit_status status = need_key(file, key, &found, err);
    if (status != TACIT_OK)
        return status;
    gguf_number n = load_number(found->type, found->value);
    if (!n.is_real)
        return fail_type(file, found, "a float", err);
    *out = n.real;
    return TACIT_OK;
}

tacit_status gguf_get_bool(const gguf_file *file, const char *key, bool *out, tacit_error *err)
{
    const gguf_key *found;
    tacit_status status = need_key(file, key, &found, err);
    if (status != TACIT_OK)
        return status;
    if (found->type != GGUF_BOOL)
        return fail_type(file, found, "a bool", err);
    *out = *found->value != 0;
    return TACIT_OK;
}

tacit_status gguf_get_string(const gguf_file *file, const char *key, gguf_string *out,
                             tacit_error *err)
{
    const gguf_key *found;
    tacit_status status = need_key(file, key, &found, err);
    if (status != TACIT_OK)
        return status;
    if (found->type != GGUF_STRING)
        return fail_type(file, found, "a string", err);
    *out = found->string[0];
    return TACIT_OK;
}

static bool is_integer(gguf_value_type type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

static bool is_real(gguf_value_type type)
{
    return type == GGUF_F32 || type == GGUF_F64;
}

static bool same_class(gguf_value_type a, gguf_value_type b)
{
    return a == b || (is_integer(a) && is_integer(b)) || (is_real(a) && is_real(b));
}

tacit_status gguf_get_array(const gguf_file *file, const char *key, gguf_value_type element,
                            size_t *count, tacit_error *err)
{
    const gguf_key *found;
    char expected[32];
    tacit_status status = need_key(file, key, &found, err);
    if (status != TACIT_OK)
        return status;
    snprintf(expected, sizeof expected, "an array of %s", gguf_value_type_name(element));
    if (found->type != GGUF_ARRAY || !same_class(found->element, element))
        return fail_type(file, found, expected, err);
    *count = found->count;
    return TACIT_OK;
}

bool gguf_array_info(const gguf_file *file, const char *key, gguf_value_type *element,
                     size_t *count)
{
    const gguf_key *found = find_key(file, key);
    if (!found || found->type != GGUF_ARRAY)
        return false;
    *element = found->element;
    *count = found->count;
    return true;
}

gguf_string gguf_array_string(const gguf_file *file, const char *key, size_t i)
{
    const gguf_key *found = find_key(file, key);
    if (!found || found->type != GGUF_ARRAY || !found->string || i >= found->count)
        return (gguf_string){NULL, 0};
    return found->string[i];
}

double gguf_array_number(const gguf_file *file, const char *key, size_t i)
{
    const gguf_key *found = find_key(file, key);
    if (!found || found->type != GGUF_ARRAY || found->string || i >= found->count)
        return 0;
    return load_number(found->element, found->value + i * gguf_value_bytes(found->element)).real;
}
