/* What happens, for those who watch: a bounded list of JSON objects with rising numbers. */
#ifndef TACIT_SERVER_SERVER_EVENTS_H
#define TACIT_SERVER_SERVER_EVENTS_H

#include "common/bytes.h"
#include "common/status.h"

#include <jansson.h>
#include <stdint.h>

typedef struct server_events server_events;

tacit_status server_events_new(server_events **out, tacit_error *err) TACIT_MUST_CHECK;
void server_events_free(server_events *e);

/* Adds the object with "number" and "time_ms" set; the oldest of 1,024 is dropped. Takes the
 * reference. Any thread. */
void server_events_add(server_events *e, json_t *event);

/* From now on nobody waits: server_events_since answers at once. */
void server_events_close(server_events *e);

/* Threads of the control socket, and how many of them may wait for events: the others are always
 * there for verbs. */
#define CONTROL_WORKERS 4
#define EVENTS_WAITERS_MAX 2

/* Events with a number above `after`, as an array; waits at most `wait_ms` for one, and not at all
 * while EVENTS_WAITERS_MAX others wait: an empty answer says "ask again in a moment". The caller
 * owns the reference; NULL without memory. */
json_t *server_events_since(server_events *e, uint64_t after, uint32_t wait_ms);

/* JSON has no infinity: a number that is not finite is null, in events as in answers, so that every
 * object of a kind has the same keys. */
json_t *server_json_number(double v);

#endif
