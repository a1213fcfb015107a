/* Reading and writing untrusted bytes: a cursor that checks every step, and overflow-checked
 * sizes. Nothing else in the tree touches offsets into bytes from outside. Little-endian. */
#ifndef TACIT_COMMON_BYTES_H
#define TACIT_COMMON_BYTES_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A view; owns nothing. */
typedef struct tacit_span {
    const uint8_t *data;
    size_t size;
} tacit_span;

/* A reader over a span. After a failed read `failed` stays true and every read yields zero, so a
 * sequence of reads may be checked once at its end. */
typedef struct tacit_cursor {
    const uint8_t *data;
    size_t size;
    size_t at;
    bool failed;
} tacit_cursor;

tacit_cursor tacit_cursor_over(const void *data, size_t size);
uint8_t tacit_cursor_u8(tacit_cursor *c);
uint16_t tacit_cursor_u16(tacit_cursor *c);
uint32_t tacit_cursor_u32(tacit_cursor *c);
uint64_t tacit_cursor_u64(tacit_cursor *c);
float tacit_cursor_f32(tacit_cursor *c);
double tacit_cursor_f64(tacit_cursor *c);
/* A view of the next `n` bytes, or {NULL, 0} and failed. */
tacit_span tacit_cursor_take(tacit_cursor *c, uint64_t n);
size_t tacit_cursor_left(const tacit_cursor *c);

/* True when the result fits; *out is written only then. */
bool tacit_mul_size(size_t a, size_t b, size_t *out);
bool tacit_add_size(size_t a, size_t b, size_t *out);
bool tacit_mul_u64(uint64_t a, uint64_t b, uint64_t *out);
bool tacit_add_u64(uint64_t a, uint64_t b, uint64_t *out);

void tacit_store_u16(uint8_t *to, uint16_t v);
void tacit_store_u32(uint8_t *to, uint32_t v);
void tacit_store_u64(uint8_t *to, uint64_t v);
void tacit_store_f64(uint8_t *to, double v);
uint32_t tacit_load_u32(const uint8_t *from);
uint64_t tacit_load_u64(const uint8_t *from);

/* A growing buffer. Zero-initialise, with cap and wiped as wanted; free with tacit_buffer_free. */
typedef struct tacit_buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
    size_t cap; /* most bytes it may hold; 0 means no limit */
    bool wiped; /* what it held is zeroed before it is freed, also while it grows */
} tacit_buffer;

/* TACIT_BAD_INPUT beyond `cap`, TACIT_NO_MEMORY; the buffer is then as it was. */
tacit_status tacit_buffer_append(tacit_buffer *b, const void *data, size_t n) TACIT_MUST_CHECK;
void tacit_buffer_free(tacit_buffer *b);

#endif
