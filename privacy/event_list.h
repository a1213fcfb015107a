/* The distinct events of an account, each with how often it ran, in one order: equal lists have
 * equal bytes, however they came about. At most TACIT_EVENT_LIST_MAX; a list of more forgets them
 * all and says so, which does not depend on the order of arrival either.
 *
 * Pure functions on the caller's memory; zero-initialised: nothing ran. */
#ifndef TACIT_PRIVACY_EVENT_LIST_H
#define TACIT_PRIVACY_EVENT_LIST_H

#include "common/bytes.h"
#include "privacy/event.h"

#include <stdbool.h>

#define TACIT_EVENT_LIST_MAX 16

typedef struct tacit_event_list {
    uint32_t n;
    bool too_many; /* n is 0: more distinct events, or more runs of one, than are kept */
    tacit_event item[TACIT_EVENT_LIST_MAX];
} tacit_event_list;

void tacit_event_list_add(tacit_event_list *list, const tacit_event *event);
void tacit_event_list_join(tacit_event_list *list, const tacit_event_list *other);

/* As if everything had run `times` times; times >= 1. */
void tacit_event_list_repeat(tacit_event_list *list, uint32_t times);

bool tacit_event_list_equal(const tacit_event_list *a, const tacit_event_list *b);

/* The stored form: fixed size, little-endian, checked when read back: false unless it is a list
 * that tacit_event_list_write made. */
#define TACIT_EVENT_LIST_BYTES (4 + TACIT_EVENT_LIST_MAX * (4 + 8 + 8 + 8))
void tacit_event_list_write(const tacit_event_list *list, uint8_t out[TACIT_EVENT_LIST_BYTES]);
bool tacit_event_list_read(tacit_event_list *out, tacit_cursor *from) TACIT_MUST_CHECK;

#endif
