/* Which names there are already: the numbers of names that the caller keeps, found by name. Open
 * addressing, and keyed at random (SipHash, Aumasson and Bernstein 2012), so that no names can be
 * made that all fall into one slot. One thread at a time. */
#ifndef TACIT_COMMON_NAME_SET_H
#define TACIT_COMMON_NAME_SET_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TACIT_NAME_UNKNOWN SIZE_MAX

/* Name number `number` of `owner`. */
typedef const char *tacit_name_at(const void *owner, size_t number);

typedef struct tacit_name_set {
    tacit_name_at *name_at;
    const void *owner;
    size_t *slot; /* number + 1, 0: empty */
    size_t size;  /* a power of two, more than twice `count`; 0: nothing there yet */
    size_t count;
    uint8_t key[16];
} tacit_name_set;

/* Empty; takes no memory before the first name. */
void tacit_name_set_init(tacit_name_set *s, tacit_name_at *name_at, const void *owner);
void tacit_name_set_fini(tacit_name_set *s);

/* The number that was added under this name, or TACIT_NAME_UNKNOWN. */
size_t tacit_name_set_find(const tacit_name_set *s, const char *name);
/* Adds a number whose name is there and was not found; names that were added keep their numbers.
 * False when there is no memory: nothing was added. */
bool tacit_name_set_add(tacit_name_set *s, size_t number) TACIT_MUST_CHECK;

#endif
