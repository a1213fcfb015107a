#include "common/name_set.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SIZE ((size_t)64)

_Static_assert(sizeof(((tacit_name_set *)0)->key) == crypto_shorthash_KEYBYTES, "a key of SipHash");

void tacit_name_set_init(tacit_name_set *s, tacit_name_at *name_at, const void *owner)
{
    *s = (tacit_name_set){.name_at = name_at, .owner = owner};
    randombytes_buf(s->key, sizeof s->key);
}

void tacit_name_set_fini(tacit_name_set *s)
{
    free(s->slot);
    memset(s, 0, sizeof *s);
}

/* The slot of the name, or the empty one where it would go. */
static size_t *slot_of(const tacit_name_set *s, const char *name)
{
    uint64_t hash;
    crypto_shorthash((uint8_t *)&hash, (const uint8_t *)name, strlen(name), s->key);
    size_t i = hash & (s->size - 1);
    while (s->slot[i] && strcmp(s->name_at(s->owner, s->slot[i] - 1), name) != 0)
        i = (i + 1) & (s->size - 1);
    return &s->slot[i];
}

size_t tacit_name_set_find(const tacit_name_set *s, const char *name)
{
    /* An empty slot's 0 becomes the largest number. */
    return s->size > 0 ? *slot_of(s, name) - 1 : TACIT_NAME_UNKNOWN;
}

static bool grow(tacit_name_set *s)
{
    tacit_name_set wider = *s;
    wider.size = s->size ? 2 * s->size : FIRST_SIZE;
    wider.slot = calloc(wider.size, sizeof *wider.slot);
    if (!wider.slot)
        return false;
    for (size_t i = 0; i < s->size; i++)
        if (s->slot[i])
            *slot_of(&wider, s->name_at(s->owner, s->slot[i] - 1)) = s->slot[i];
    free(s->slot);
    *s = wider;
    return true;
}

bool tacit_name_set_add(tacit_name_set *s, size_t number)
{
    if (2 * (s->count + 1) >= s->size && !grow(s))
        return false;
    *slot_of(s, s->name_at(s->owner, number)) = number + 1;
    s->count++;
    return true;
}
