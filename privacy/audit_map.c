#include "privacy/audit_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAP_FIRST 64

static void padded(uint8_t out[TACIT_HASH_BYTES], const void *key, size_t size)
{
    memset(out, 0, TACIT_HASH_BYTES);
    memcpy(out, key, size < TACIT_HASH_BYTES ? size : TACIT_HASH_BYTES);
}

/* The slot of the key, or the empty one where it belongs; the map is never full. */
static audit_slot *slot_of(const audit_map *map, const uint8_t key[TACIT_HASH_BYTES])
{
    uint8_t hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, key, TACIT_HASH_BYTES, map->secret);
    size_t at = (size_t)tacit_load_u64(hash) & (map->capacity - 1);
    while (map->slot[at].value_plus_1 && memcmp(map->slot[at].key, key, TACIT_HASH_BYTES) != 0)
        at = (at + 1) & (map->capacity - 1);
    return &map->slot[at];
}

bool audit_map_find(const audit_map *map, const void *key, size_t size, size_t *value)
{
    uint8_t full[TACIT_HASH_BYTES];
    if (!map->capacity)
        return false;
    padded(full, key, size);
    const audit_slot *slot = slot_of(map, full);
    if (!slot->value_plus_1)
        return false;
    if (value)
        *value = slot->value_plus_1 - 1;
    return true;
}

static tacit_status map_grow(audit_map *map, tacit_error *err)
{
    audit_map grown = {.capacity = map->capacity ? 2 * map->capacity : MAP_FIRST,
                       .count = map->count};
    grown.slot = calloc(grown.capacity, sizeof *grown.slot);
    if (!grown.slot)
        return tacit_fail(err, TACIT_NO_MEMORY, "audit: no memory for %zu rows", grown.capacity);
    randombytes_buf(grown.secret, sizeof grown.secret);
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slot[i].value_plus_1)
            *slot_of(&grown, map->slot[i].key) = map->slot[i];
    free(map->slot);
    *map = grown;
    return TACIT_OK;
}

tacit_status audit_map_add(audit_map *map, const void *key, size_t size, size_t value, bool *added,
                           tacit_error *err)
{
    uint8_t full[TACIT_HASH_BYTES];
    if (map->count >= map->capacity / 2) {
        tacit_status status = map_grow(map, err);
        if (status != TACIT_OK)
            return status;
    }
    padded(full, key, size);
    audit_slot *slot = slot_of(map, full);
    *added = slot->value_plus_1 == 0;
    if (*added) {
        memcpy(slot->key, full, sizeof full);
        slot->value_plus_1 = value + 1;
        map->count++;
    }
    return TACIT_OK;
}

/* What follows the emptied slot in its run moves up, so that no search stops too early. */
void audit_map_remove(audit_map *map, const void *key, size_t size)
{
    uint8_t full[TACIT_HASH_BYTES];
    if (!audit_map_find(map, key, size, NULL))
        return;
    padded(full, key, size);
    audit_slot *hole = slot_of(map, full);
    size_t at = (size_t)(hole - map->slot);
    hole->value_plus_1 = 0;
    map->count--;
    for (;;) {
        at = (at + 1) & (map->capacity - 1);
        audit_slot moved = map->slot[at];
        if (!moved.value_plus_1)
            return;
        map->slot[at].value_plus_1 = 0;
        *slot_of(map, moved.key) = moved;
    }
}

void audit_map_free(audit_map *map)
{
    free(map->slot);
    *map = (audit_map){0};
}

/* --- sets --- */

#define SET_FIRST 64

/* Where in the table a fingerprint belongs: its first 64 bits as a fraction of the capacity, so
 * that a table that grows is filled from front to back. */
static size_t set_home(const audit_set *set, const uint8_t mark[AUDIT_MARK_BYTES])
{
    return (size_t)((unsigned __int128)tacit_load_u64(mark) * set->capacity >> 64);
}

static bool mark_is_zero(const uint8_t mark[AUDIT_MARK_BYTES])
{
    static const uint8_t zero[AUDIT_MARK_BYTES];
    return memcmp(mark, zero, sizeof zero) == 0;
}

/* The fingerprint's own slot or the empty one after its run; the table is never full. */
static size_t set_slot(const audit_set *set, const uint8_t mark[AUDIT_MARK_BYTES])
{
    size_t at = set_home(set, mark);
    while (!mark_is_zero(set->slot[at]) && memcmp(set->slot[at], mark, AUDIT_MARK_BYTES) != 0)
        at = at + 1 == set->capacity ? 0 : at + 1;
    return at;
}

static void set_mark(const audit_set *set, const uint8_t key[TACIT_HASH_BYTES],
                     uint8_t mark[AUDIT_MARK_BYTES])
{
    crypto_shorthash_siphashx24(mark, key, TACIT_HASH_BYTES, set->secret);
    if (mark_is_zero(mark))
        mark[0] = 1;
}

static tacit_status set_grow(audit_set *set, tacit_error *err)
{
    audit_set grown = *set;
    grown.capacity = set->capacity ? set->capacity + set->capacity / 2 : SET_FIRST;
    if (!set->capacity)
        randombytes_buf(grown.secret, sizeof grown.secret);
    grown.slot = calloc(grown.capacity, sizeof *grown.slot);
    if (!grown.slot)
        return tacit_fail(err, TACIT_NO_MEMORY, "audit: no memory for %zu marks", grown.capacity);
    for (size_t i = 0; i < set->capacity; i++)
        if (!mark_is_zero(set->slot[i]))
            memcpy(grown.slot[set_slot(&grown, set->slot[i])], set->slot[i], AUDIT_MARK_BYTES);
    free(set->slot);
    *set = grown;
    return TACIT_OK;
}

bool audit_set_has(const audit_set *set, const uint8_t key[TACIT_HASH_BYTES])
{
    uint8_t mark[AUDIT_MARK_BYTES];
    if (!set->capacity)
        return false;
    set_mark(set, key, mark);
    return !mark_is_zero(set->slot[set_slot(set, mark)]);
}

tacit_status audit_set_add(audit_set *set, const uint8_t key[TACIT_HASH_BYTES], bool *added,
                           tacit_error *err)
{
    uint8_t mark[AUDIT_MARK_BYTES];
    if (set->count >= set->capacity / 4 * 3) {
        tacit_status status = set_grow(set, err);
        if (status != TACIT_OK)
            return status;
    }
    set_mark(set, key, mark);
    size_t at = set_slot(set, mark);
    *added = mark_is_zero(set->slot[at]);
    memcpy(set->slot[at], mark, sizeof mark);
    set->count += *added;
    return TACIT_OK;
}

void audit_set_free(audit_set *set)
{
    free(set->slot);
    *set = (audit_set){0};
}

tacit_status audit_grow(void *array_pointer, size_t *capacity, size_t count, size_t width,
                        tacit_error *err)
{
    void *array, *grown;
    if (count < *capacity)
        return TACIT_OK;
    size_t bytes, wanted = *capacity ? 2 * *capacity : 16;
    memcpy(&array, array_pointer, sizeof array);
    grown = tacit_mul_size(wanted, width, &bytes) ? realloc(array, bytes) : NULL;
    if (!grown)
        return tacit_fail(err, TACIT_NO_MEMORY, "audit: no memory for %zu elements", wanted);
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = wanted;
    return TACIT_OK;
}
