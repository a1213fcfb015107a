/* Safetensors files, read and written: the form in which PEFT keeps adapters.
 *
 * Layout: u64 length N (little-endian), N bytes of JSON, data. The JSON is an object of tensors,
 * {"dtype":"F32","shape":[2,3],"data_offsets":[from,to]}, and of "__metadata__", an object of
 * strings. Offsets count from the end of the JSON. What opens is safe to read: the JSON is at most
 * SAFETENSORS_MAX_HEADER bytes (the format allows 100 MB, of which parsing would take gigabytes; an
 * adapter of 500 tensors has 60 kB), no name comes twice, shapes and bytes agree, and the tensors
 * fill the data without gap or overlap, as the format demands. Rows are C order: the last axis is
 * the fastest, the reverse of GGUF's. Immutable after opening; thread-safe. */
#ifndef TACIT_ENGINE_SAFETENSORS_H
#define TACIT_ENGINE_SAFETENSORS_H

#include "common/status.h"
#include "engine/types.h"

#define SAFETENSORS_MAX_HEADER ((size_t)4 << 20)
#define SAFETENSORS_MAX_DIMS 8
#define SAFETENSORS_MAX_NAME 1024

typedef struct safetensors_file safetensors_file;

typedef struct safetensors_tensor {
    const char *name;
    const char *dtype;               /* the format's: "F32", "BF16", "I64" */
    const tacit_type_traits *traits; /* NULL where the type cannot be computed */
    size_t n_dims;                   /* 0: a single value */
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    size_t values;
    const uint8_t *data; /* [bytes], at any address */
    size_t bytes;
} safetensors_tensor;

/* TACIT_BAD_INPUT says what of the file cannot be and where; TACIT_NOT_FOUND, TACIT_IO,
 * TACIT_NO_MEMORY. The memory of `data` outlives the file; `name` is what errors call it. */
tacit_status safetensors_open(safetensors_file **out, const char *path,
                              tacit_error *err) TACIT_MUST_CHECK;
tacit_status safetensors_open_memory(safetensors_file **out, const void *data, size_t size,
                                     const char *name, tacit_error *err) TACIT_MUST_CHECK;
void safetensors_close(safetensors_file *f);

/* In the order of their data. */
size_t safetensors_count(const safetensors_file *f);
const safetensors_tensor *safetensors_at(const safetensors_file *f, size_t i);
const safetensors_tensor *safetensors_find(const safetensors_file *f, const char *name);

/* A string of "__metadata__", or NULL. */
const char *safetensors_metadata(const safetensors_file *f, const char *key);
/* Calls each(ctx, key, value) for every string of it. */
void safetensors_each_metadata(const safetensors_file *f,
                               void (*each)(void *ctx, const char *key, const char *value),
                               void *ctx);

/* A matrix of a file to be written, F32: fill(ctx, out, bytes, err) gives its shape[0] * shape[1]
 * values when its turn comes, into memory of a float's alignment. A status other than TACIT_OK ends
 * the writing. */
typedef struct safetensors_new {
    const char *name;
    uint64_t shape[2];
    tacit_status (*fill)(void *ctx, uint8_t *out, size_t bytes, tacit_error *err);
    void *ctx;
} safetensors_new;

/* Publishes `count` matrices in their order, durably and by rename (tacit_file_publish), and `keys`
 * pairs of key and value as metadata behind "format": "pt". What safetensors_open would refuse is
 * not written: TACIT_USAGE for a name that is empty, repeated, too long or not plain, an empty
 * shape, a header beyond SAFETENSORS_MAX_HEADER. Of the tensors one is in memory at a time. */
tacit_status safetensors_write(const char *path, const safetensors_new *tensor, size_t count,
                               const char *const (*metadata)[2], size_t keys,
                               tacit_error *err) TACIT_MUST_CHECK;

#endif
