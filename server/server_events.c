#include "server/server_events.h"

#include "common/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define EVENTS_KEPT 1024
#define EVENTS_AT_ONCE 256 /* what fits one message of the control socket */

struct server_events {
    pthread_mutex_t lock;
    pthread_cond_t more;
    json_t *kept[EVENTS_KEPT]; /* event `n` lies at n % EVENTS_KEPT */
    uint64_t last;             /* number of the newest; 0: none */
    unsigned waiters;
    bool closed;
};

tacit_status server_events_new(server_events **out, tacit_error *err)
{
    server_events *e = calloc(1, sizeof *e);
    if (!e)
        return tacit_fail(err, TACIT_NO_MEMORY, "events: no memory");
    pthread_mutex_init(&e->lock, NULL);
    tacit_clock_condition_init(&e->more);
    *out = e;
    return TACIT_OK;
}

void server_events_free(server_events *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < EVENTS_KEPT; i++)
        json_decref(e->kept[i]);
    pthread_cond_destroy(&e->more);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

void server_events_add(server_events *e, json_t *event)
{
    if (!event)
        return;
    pthread_mutex_lock(&e->lock);
    e->last++;
    json_object_set_new(event, "number", json_integer((json_int_t)e->last));
    json_object_set_new(event, "time_ms", json_integer((json_int_t)tacit_clock_wall_ms()));
    json_decref(e->kept[e->last % EVENTS_KEPT]);
    e->kept[e->last % EVENTS_KEPT] = event;
    pthread_cond_broadcast(&e->more);
    pthread_mutex_unlock(&e->lock);
}

void server_events_close(server_events *e)
{
    pthread_mutex_lock(&e->lock);
    e->closed = true;
    pthread_cond_broadcast(&e->more);
    pthread_mutex_unlock(&e->lock);
}

/* Under the lock. */
static void wait_for_more(server_events *e, uint64_t after, uint32_t wait_ms)
{
    struct timespec until = tacit_clock_after_ms(wait_ms);
    if (e->waiters >= EVENTS_WAITERS_MAX)
        return;
    e->waiters++;
    while (!e->closed && e->last <= after &&
           pthread_cond_timedwait(&e->more, &e->lock, &until) == 0)
        continue;
    e->waiters--;
}

json_t *server_events_since(server_events *e, uint64_t after, uint32_t wait_ms)
{
    json_t *list = json_array();
    pthread_mutex_lock(&e->lock);
    wait_for_more(e, after, wait_ms);
    uint64_t first = after + 1;
    if (e->last >= EVENTS_KEPT && first <= e->last - EVENTS_KEPT)
        first = e->last - EVENTS_KEPT + 1;
    for (uint64_t n = first; list && n <= e->last && n - first < EVENTS_AT_ONCE; n++)
        json_array_append_new(list, json_deep_copy(e->kept[n % EVENTS_KEPT]));
    pthread_mutex_unlock(&e->lock);
    return list;
}

json_t *server_json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}
