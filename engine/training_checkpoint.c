#include "engine/training_checkpoint.h"

#include "common/file.h"
#include "common/log.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "TACITCK2"
enum { MAGIC_BYTES = 8, HEADER = MAGIC_BYTES + TACIT_DIGEST_BYTES + 4 + 8 + 4 + 8 + 8 };

static void store_floats(uint8_t *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        tacit_store_u32(to + 4 * i, bits);
    }
}

static void load_floats(float *to, const uint8_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tacit_load_u32(from + 4 * i);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static bool checkpoint_size(size_t count, uint32_t moments, size_t beside, size_t *size)
{
    size_t bytes;
    return tacit_mul_size(count, 4 * ((size_t)moments + 1), &bytes) &&
           tacit_add_size(bytes, beside, &bytes) &&
           tacit_add_size(bytes, HEADER + TACIT_DIGEST_BYTES, size);
}

static void write_header(uint8_t *to, const uint8_t *plan_hash, training_place place,
                         const tacit_optimizer *o, uint32_t moments)
{
    memcpy(to, MAGIC, MAGIC_BYTES);
    memcpy(to + MAGIC_BYTES, plan_hash, TACIT_DIGEST_BYTES);
    to += MAGIC_BYTES + TACIT_DIGEST_BYTES;
    tacit_store_u32(to, place.steps_done);
    tacit_store_u64(to + 4, o->count);
    tacit_store_u32(to + 12, moments);
    tacit_store_u64(to + 16, o->step);
    tacit_store_f64(to + 24, place.clip_norm);
}

tacit_status training_checkpoint_write(const char *path, const uint8_t plan_hash[32],
                                       training_place place, const float *values,
                                       const tacit_optimizer *o, tacit_span beside,
                                       tacit_error *err)
{
    uint32_t moments = o->second ? 2 : 1;
    size_t size, n = o->count;
    if (!checkpoint_size(n, moments, beside.size, &size))
        return tacit_fail(err, TACIT_USAGE, "%s: too many values", path);
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for %zu bytes", path, size);
    write_header(bytes, plan_hash, place, o, moments);
    store_floats(bytes + HEADER, values, n);
    store_floats(bytes + HEADER + 4 * n, o->first, n);
    if (moments == 2)
        store_floats(bytes + HEADER + 8 * n, o->second, n);
    if (beside.size)
        memcpy(bytes + size - TACIT_DIGEST_BYTES - beside.size, beside.data, beside.size);
    tacit_digest(bytes + size - TACIT_DIGEST_BYTES, bytes, size - TACIT_DIGEST_BYTES);
    tacit_status status = tacit_file_write(path, bytes, size, 0600, err);
    sodium_memzero(bytes, size);
    free(bytes);
    return status;
}

static bool is_whole(const uint8_t *bytes, size_t size)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    if (size < HEADER + TACIT_DIGEST_BYTES || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
        return false;
    tacit_digest(digest, bytes, size - TACIT_DIGEST_BYTES);
    return memcmp(digest, bytes + size - TACIT_DIGEST_BYTES, sizeof digest) == 0;
}

static tacit_status take(const uint8_t *bytes, size_t size, const char *path,
                         const uint8_t *plan_hash, training_place *place, float *values,
                         tacit_optimizer *o, tacit_buffer *beside, tacit_error *err)
{
    size_t n = o->count, least;
    uint32_t moments = o->second ? 2 : 1;
    tacit_cursor c = tacit_cursor_over(bytes, size);
    tacit_cursor_take(&c, MAGIC_BYTES);
    bool same =
        memcmp(tacit_cursor_take(&c, TACIT_DIGEST_BYTES).data, plan_hash, TACIT_DIGEST_BYTES) == 0;
    training_place read = {.steps_done = tacit_cursor_u32(&c)};
    same = same && tacit_cursor_u64(&c) == n && tacit_cursor_u32(&c) == moments;
    if (!same || !checkpoint_size(n, moments, 0, &least) || size < least)
        return tacit_fail(err, TACIT_INTEGRITY, "%s: it is the checkpoint of another plan", path);
    o->step = tacit_cursor_u64(&c);
    read.clip_norm = tacit_cursor_f64(&c);
    *place = read;
    load_floats(values, bytes + HEADER, n);
    load_floats(o->first, bytes + HEADER + 4 * n, n);
    if (moments == 2)
        load_floats(o->second, bytes + HEADER + 8 * n, n);
    if (tacit_buffer_append(beside, bytes + least - TACIT_DIGEST_BYTES, size - least) != TACIT_OK)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for %zu bytes", path, size - least);
    return TACIT_OK;
}

tacit_status training_checkpoint_read(const char *path, const uint8_t plan_hash[32],
                                      training_place *place, float *values, tacit_optimizer *o,
                                      tacit_buffer *beside, bool *found, tacit_error *err)
{
    tacit_file_map map;
    tacit_error none;
    *found = false;
    if (tacit_file_map_open(&map, path, &none) != TACIT_OK)
        return TACIT_OK;
    tacit_status status = TACIT_OK;
    if (is_whole(map.data, map.size)) {
        status = take(map.data, map.size, path, plan_hash, place, values, o, beside, err);
        *found = status == TACIT_OK;
    } else {
        tacit_log_warn("%s: the checkpoint is damaged; the round begins anew", path);
    }
    tacit_file_map_close(&map);
    return status;
}
