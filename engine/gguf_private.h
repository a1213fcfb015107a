/* What reading and writing GGUF share. Private to the engine room. */
#ifndef TACIT_ENGINE_GGUF_PRIVATE_H
#define TACIT_ENGINE_GGUF_PRIVATE_H

#include "common/bytes.h"
#include "engine/gguf.h"

#define GGUF_MAGIC 0x46554747u /* "GGUF" read as a little-endian u32 */
#define GGUF_VERSION 3
#define GGUF_DEFAULT_ALIGNMENT 32

/* Bytes of one value; 0 for strings, arrays and numbers that are no type. */
size_t gguf_value_bytes(uint32_t type);

/* A key or tensor name: 1 to `most` bytes of UTF-8 without control characters. `what` begins the
 * error. */
tacit_status gguf_check_name(const char *what, const char *data, size_t size, size_t most,
                             tacit_error *err) TACIT_MUST_CHECK;

/* Fills traits, rows, row_bytes and bytes from n_dims, ne and type, or refuses the shape. Entries
 * of ne beyond n_dims become 1. With `any_type` a type of no known size takes no bytes. */
tacit_status gguf_measure(gguf_tensor *t, const char *what, bool any_type,
                          tacit_error *err) TACIT_MUST_CHECK;

/* The bytes of key `i` after its name: u32 type and value. The same in versions 2 and 3. */
tacit_span gguf_key_encoded(const gguf_file *file, size_t i);

#endif
