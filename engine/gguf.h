/* GGUF v3 (v2 is read too): reading over a read-only map, and writing.
 *
 * Every byte of a file is hostile: counts, lengths, products of dimensions, offsets and alignment
 * are checked with overflow-checked arithmetic before anything is allocated or touched; duplicate
 * keys and tensor names, types without a known size and data outside the file are refused with the
 * file, the place, what was expected and what was found. Big-endian files are refused.
 * Shapes are ne[0] = row length (fastest), as GGUF stores them. */
#ifndef TACIT_ENGINE_GGUF_H
#define TACIT_ENGINE_GGUF_H

#include "common/digest.h"
#include "common/status.h"
#include "engine/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gguf_value_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12
} gguf_value_type;

#define GGUF_MAX_DIMS 4
#define GGUF_MAX_NAME 128 /* bytes of a tensor name, NUL not counted */
#define GGUF_MAX_KEY 256  /* bytes of a key */

typedef struct gguf_string {
    const char *data; /* into the map; not NUL-terminated */
    size_t size;
} gguf_string;

typedef struct gguf_tensor {
    const char *name; /* NUL-terminated */
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS];      /* dimensions beyond n_dims are 1 */
    uint32_t type;                   /* ggml type number */
    const tacit_type_traits *traits; /* NULL: listed but not computable */
    uint64_t rows;                   /* product of ne[1..] */
    size_t row_bytes;
    size_t bytes;
    const uint8_t *data;
} gguf_tensor;

typedef struct gguf_file gguf_file;

tacit_status gguf_open(gguf_file **out, const char *path, tacit_error *err) TACIT_MUST_CHECK;
/* The same for a file whose keys and tensors are to be listed: a tensor of a type without a known
 * size is there, with no bytes and no traits. */
tacit_status gguf_open_to_list(gguf_file **out, const char *path,
                               tacit_error *err) TACIT_MUST_CHECK;
/* Over bytes in memory that outlive the file and start at a multiple of 8; `name` is what errors
 * call it. */
tacit_status gguf_open_memory(gguf_file **out, const void *data, size_t size, const char *name,
                              tacit_error *err) TACIT_MUST_CHECK;
void gguf_close(gguf_file *file);

const char *gguf_name(const gguf_file *file); /* path, for errors */
/* TACIT_BAD_INPUT for one part of a model that was split into several files. */
tacit_status gguf_check_whole(const gguf_file *file, tacit_error *err) TACIT_MUST_CHECK;
/* SHA-256 of the bytes that are open here, whatever lies under the path by now. */
void gguf_digest(const gguf_file *file, uint8_t out[TACIT_DIGEST_BYTES]);
/* The bytes [data, data + size) of the file will not be read soon: their pages may leave memory,
 * and come back from the disk when they are read. */
void gguf_forget(const gguf_file *file, const void *data, size_t size);
size_t gguf_tensor_count(const gguf_file *file);
const gguf_tensor *gguf_tensor_at(const gguf_file *file, size_t i);
const gguf_tensor *gguf_tensor_find(const gguf_file *file, const char *name); /* or NULL */
/* The values of a tensor of the file whose type can be computed, [rows, ne[0]], malloc'ed; judged
 * before they are taken (common/memory_limit.h). NULL on failure. */
tacit_status gguf_tensor_values(const gguf_file *file, const gguf_tensor *t, float **out,
                                tacit_error *err) TACIT_MUST_CHECK;

size_t gguf_key_count(const gguf_file *file);
const char *gguf_key_at(const gguf_file *file, size_t i, gguf_value_type *type);
bool gguf_has_key(const gguf_file *file, const char *key);

/* Typed access. An absent key is TACIT_NOT_FOUND (err says so), a key of another type or out of
 * range TACIT_BAD_INPUT. gguf_get_u64 takes every integer type that is not negative; gguf_get_f64
 * both float types. */
tacit_status gguf_get_u64(const gguf_file *file, const char *key, uint64_t min, uint64_t max,
                          uint64_t *out, tacit_error *err) TACIT_MUST_CHECK;
tacit_status gguf_get_i64(const gguf_file *file, const char *key, int64_t *out,
                          tacit_error *err) TACIT_MUST_CHECK;
tacit_status gguf_get_f64(const gguf_file *file, const char *key, double *out,
                          tacit_error *err) TACIT_MUST_CHECK;
tacit_status gguf_get_bool(const gguf_file *file, const char *key, bool *out,
                           tacit_error *err) TACIT_MUST_CHECK;
tacit_status gguf_get_string(const gguf_file *file, const char *key, gguf_string *out,
                             tacit_error *err) TACIT_MUST_CHECK;
/* Arrays: the count; then elements one by one. An integer `element` takes every integer type, a
 * float one both float types. The element readers return {NULL, 0} and 0 for an absent key, another
 * type or an index beyond the end. */
tacit_status gguf_get_array(const gguf_file *file, const char *key, gguf_value_type element,
                            size_t *count, tacit_error *err) TACIT_MUST_CHECK;
/* False when `key` is no array. */
bool gguf_array_info(const gguf_file *file, const char *key, gguf_value_type *element,
                     size_t *count);
gguf_string gguf_array_string(const gguf_file *file, const char *key, size_t i);
double gguf_array_number(const gguf_file *file, const char *key, size_t i);

/* "u32": the name of a value type, for people. */
const char *gguf_value_type_name(gguf_value_type type);

/* Writing: collect, then publish atomically. Values are copied; keys and tensors keep the order in
 * which they were put; data is aligned to 32 bytes and padding is zero, so the same calls give the
 * same bytes. A key or tensor put twice is an error, as is everything that gguf_open refuses. */
typedef struct gguf_writer gguf_writer;

gguf_writer *gguf_writer_new(void);
void gguf_writer_free(gguf_writer *w);
void gguf_put_u32(gguf_writer *w, const char *key, uint32_t v);
void gguf_put_u64(gguf_writer *w, const char *key, uint64_t v);
void gguf_put_i32(gguf_writer *w, const char *key, int32_t v);
void gguf_put_f32(gguf_writer *w, const char *key, float v);
void gguf_put_bool(gguf_writer *w, const char *key, bool v);
void gguf_put_string(gguf_writer *w, const char *key, const char *data, size_t size);
void gguf_put_array(gguf_writer *w, const char *key, gguf_value_type element, const void *values,
                    size_t count); /* numbers, little-endian host layout */
void gguf_put_strings(gguf_writer *w, const char *key, const gguf_string *values, size_t count);
/* Copies every key of `from` that the writer does not hold yet (but general.alignment: the
 * writer's own is the default, 32). */
void gguf_put_keys_of(gguf_writer *w, const gguf_file *from);
/* `values` are fp32, quantized to `type` here. */
void gguf_put_tensor(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *ne,
                     tacit_type type, const float *values);
void gguf_put_tensor_bytes(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *ne,
                           uint32_t ggml_type, const void *data, size_t bytes);
/* A tensor whose data is not there yet: fill(ctx, out, bytes, err) gives it while the file is
 * written, one tensor at a time and in their order. ctx outlives the writing; a status other than
 * TACIT_OK ends it. */
typedef tacit_status (*gguf_fill)(void *ctx, uint8_t *out, size_t bytes, tacit_error *err);
void gguf_put_tensor_later(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *ne,
                           uint32_t ggml_type, gguf_fill fill, void *ctx);
/* Reports the first failure of any put since gguf_writer_new. gguf_write publishes durably and by
 * rename (tacit_file_publish). */
tacit_status gguf_write_memory(gguf_writer *w, uint8_t **data, size_t *size,
                               tacit_error *err) TACIT_MUST_CHECK;
tacit_status gguf_write(gguf_writer *w, const char *path, tacit_error *err) TACIT_MUST_CHECK;

#endif
