#include "common/bytes.h"

#include "common/secret.h"

#include <stdlib.h>
#include <string.h>

tacit_cursor tacit_cursor_over(const void *data, size_t size)
{
    return (tacit_cursor){.data = data, .size = size};
}

size_t tacit_cursor_left(const tacit_cursor *c)
{
    return c->failed ? 0 : c->size - c->at;
}

tacit_span tacit_cursor_take(tacit_cursor *c, uint64_t n)
{
    if (c->failed || n > c->size - c->at) {
        c->failed = true;
        return (tacit_span){NULL, 0};
    }
    tacit_span span = {c->data + c->at, (size_t)n};
    c->at += (size_t)n;
    return span;
}

static uint64_t cursor_little_endian(tacit_cursor *c, unsigned width)
{
    tacit_span span = tacit_cursor_take(c, width);
    uint64_t v = 0;
    for (size_t i = span.size; i > 0; i--)
        v = v << 8 | span.data[i - 1];
    return v;
}

uint8_t tacit_cursor_u8(tacit_cursor *c)
{
    return (uint8_t)cursor_little_endian(c, 1);
}
uint16_t tacit_cursor_u16(tacit_cursor *c)
{
    return (uint16_t)cursor_little_endian(c, 2);
}
uint32_t tacit_cursor_u32(tacit_cursor *c)
{
    return (uint32_t)cursor_little_endian(c, 4);
}
uint64_t tacit_cursor_u64(tacit_cursor *c)
{
    return cursor_little_endian(c, 8);
}

float tacit_cursor_f32(tacit_cursor *c)
{
    uint32_t bits = tacit_cursor_u32(c);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

double tacit_cursor_f64(tacit_cursor *c)
{
    uint64_t bits = tacit_cursor_u64(c);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

bool tacit_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool tacit_add_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool tacit_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool tacit_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static void store_little_endian(uint8_t *to, uint64_t v, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

void tacit_store_u16(uint8_t *to, uint16_t v)
{
    store_little_endian(to, v, 2);
}
void tacit_store_u32(uint8_t *to, uint32_t v)
{
    store_little_endian(to, v, 4);
}
void tacit_store_u64(uint8_t *to, uint64_t v)
{
    store_little_endian(to, v, 8);
}

void tacit_store_f64(uint8_t *to, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    tacit_store_u64(to, bits);
}

uint32_t tacit_load_u32(const uint8_t *from)
{
    tacit_cursor c = tacit_cursor_over(from, 4);
    return tacit_cursor_u32(&c);
}

uint64_t tacit_load_u64(const uint8_t *from)
{
    tacit_cursor c = tacit_cursor_over(from, 8);
    return tacit_cursor_u64(&c);
}

static size_t buffer_next_capacity(const tacit_buffer *b, size_t need)
{
    size_t capacity = b->capacity ? b->capacity : 256;
    while (capacity < need)
        if (!tacit_mul_size(capacity, 2, &capacity))
            return need;
    return capacity;
}

static uint8_t *buffer_grow(const tacit_buffer *b, size_t capacity)
{
    if (!b->wiped)
        return realloc(b->data, capacity);
    uint8_t *grown = malloc(capacity);
    if (grown && b->size)
        memcpy(grown, b->data, b->size);
    if (grown)
        tacit_wipe_free(b->data);
    return grown;
}

tacit_status tacit_buffer_append(tacit_buffer *b, const void *data, size_t n)
{
    size_t need;
    if (!tacit_add_size(b->size, n, &need) || (b->cap && need > b->cap))
        return TACIT_BAD_INPUT;
    if (need > b->capacity) {
        size_t capacity = buffer_next_capacity(b, need);
        uint8_t *grown = buffer_grow(b, capacity);
        if (!grown)
            return TACIT_NO_MEMORY;
        b->data = grown;
        b->capacity = capacity;
    }
    if (n)
        memcpy(b->data + b->size, data, n);
    b->size = need;
    return TACIT_OK;
}

void tacit_buffer_free(tacit_buffer *b)
{
    if (b->wiped)
        tacit_wipe_free(b->data);
    else
        free(b->data);
    *b = (tacit_buffer){.cap = b->cap, .wiped = b->wiped};
}
