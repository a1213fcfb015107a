/* The answering side. Each context of nng's REP socket is a slot that goes round:
 *
 *   receiving --(callback)--> queued --(worker)--> handling --> sending --(callback)--> receiving
 *
 * nng's callbacks only move slots between states; handlers run on the listener's own threads. Every
 * connection is in a table from the moment nng has it. The watch thread asks those whose handshake
 * was not seen finished, and closes the ones that take too long; see tls_engine.h for why nng does
 * not do that by itself. It closes those as well that send no request for long: a device that lost
 * its power or its network never says so, and anybody can finish the handshake of the enrolment. */
#include "common/clock.h"
#include "common/link.h"
#include "common/link_address.h"
#include "common/link_local.h"
#include "common/tls_engine.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTEXTS = 64,
    WORKERS = 2,
    CONNECTIONS = 1024,
    HANDSHAKE_MS = 10000,
    IDLE_MS = 60000,
    SEND_MS = 10000, /* of a reply whose peer does not read */
    REQ_PROTOCOL = 0x30
};

typedef struct slot {
    tacit_listener *listener;
    nng_ctx ctx;
    nng_aio *aio;
    bool has_ctx;
    bool sending;
    nng_msg *request;
    struct slot *next;
} slot;

typedef struct connection {
    nng_pipe pipe;
    uint64_t since_ms; /* of its arrival, its handshake's end or its last request */
    size_t requests;   /* of it that are queued or handled now */
    bool ready;        /* its handshake is done */
} connection;

struct tacit_listener {
    tacit_handler handler;
    void *ctx;
    link_address address;
    uint16_t port;
    local_server *local; /* ipc: everything below is unused then */
    bool has_socket;
    nng_socket socket;
    nng_listener nng;
    nng_tls_config *config; /* NULL: none yet */
    tls_gate *gate;         /* of config */
    uint32_t handshake_ms, idle_ms;

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work;
    slot *slots, *first, *last; /* queue of slots with a request */
    size_t slot_count;
    pthread_t *workers;
    size_t worker_count;
    bool stopping;

    pthread_mutex_t table_lock;
    pthread_cond_t table_changed;
    connection *table, *doubtful; /* `doubtful`: the watch thread's own copy */
    size_t open, most;
    size_t fresh; /* not ready as far as is known */
    pthread_t watch;
    bool has_watch, watch_stops;
    tacit_listener_counts counts;
};

/* --- Connections --- */

static void count(tacit_listener *l, uint64_t *counter)
{
    pthread_mutex_lock(&l->table_lock);
    (*counter)++;
    pthread_mutex_unlock(&l->table_lock);
}

static bool admit(tacit_listener *l, nng_pipe pipe)
{
    pthread_mutex_lock(&l->table_lock);
    bool room = l->open < l->most;
    if (room) {
        l->table[l->open++] = (connection){pipe, tacit_clock_monotonic_ms(), 0, false};
        l->counts.accepted++;
        l->fresh++;
        pthread_cond_signal(&l->table_changed);
    } else {
        l->counts.turned_away++;
    }
    pthread_mutex_unlock(&l->table_lock);
    return room;
}

/* With the table's lock held. */
static connection *find_connection(tacit_listener *l, nng_pipe pipe)
{
    for (size_t i = 0; i < l->open; i++)
        if (l->table[i].pipe.id == pipe.id)
            return &l->table[i];
    return NULL;
}

static void forget(tacit_listener *l, nng_pipe pipe)
{
    pthread_mutex_lock(&l->table_lock);
    connection *found = find_connection(l, pipe);
    if (found) {
        l->fresh -= !found->ready;
        *found = l->table[--l->open];
    }
    pthread_mutex_unlock(&l->table_lock);
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    tacit_listener *l = arg;
    if (event == NNG_PIPE_EV_REM_POST)
        forget(l, pipe);
    else if (!admit(l, pipe))
        nng_pipe_close(pipe);
}

/* A request of it came (+1), or was answered (-1). */
static void note_request(tacit_listener *l, nng_pipe pipe, int change)
{
    pthread_mutex_lock(&l->table_lock);
    connection *found = find_connection(l, pipe);
    if (found) {
        found->requests += (size_t)change;
        found->since_ms = tacit_clock_monotonic_ms();
    }
    pthread_mutex_unlock(&l->table_lock);
}

static void mark_ready(tacit_listener *l, nng_pipe pipe)
{
    pthread_mutex_lock(&l->table_lock);
    connection *found = find_connection(l, pipe);
    if (found && !found->ready) {
        found->ready = true;
        found->since_ms = tacit_clock_monotonic_ms();
        l->fresh--;
    }
    pthread_mutex_unlock(&l->table_lock);
}

/* How long connections may take, less when few places are left. */
typedef struct limits {
    uint64_t handshake_ms, idle_ms;
} limits;

/* Copies the connections that are not ready or were silent for too long; returns how many. */
static size_t list_doubtful(tacit_listener *l, limits *out)
{
    size_t n = 0;
    bool crowded = l->open >= l->most - l->most / 4;
    *out = (limits){crowded ? l->handshake_ms / 10 : l->handshake_ms,
                    crowded ? l->idle_ms / 4 : l->idle_ms};
    uint64_t now = tacit_clock_monotonic_ms();
    for (size_t i = 0; i < l->open; i++) {
        const connection *c = &l->table[i];
        if (!c->ready || (c->requests == 0 && now - c->since_ms >= out->idle_ms))
            l->doubtful[n++] = *c;
    }
    return n;
}

/* Without the table's lock: nng's callbacks take it while nng holds its own. */
static void judge_doubtful(tacit_listener *l, size_t n, const limits *limit)
{
    uint64_t now = tacit_clock_monotonic_ms();
    for (size_t i = 0; i < n; i++) {
        bool done = false;
        const connection *c = &l->doubtful[i];
        if (c->ready) {
            count(l, &l->counts.idled);
            nng_pipe_close(c->pipe);
        } else if (nng_pipe_get_bool(c->pipe, NNG_OPT_TLS_VERIFIED, &done) == 0 && done) {
            mark_ready(l, c->pipe);
        } else if (now - c->since_ms >= limit->handshake_ms) {
            count(l, &l->counts.timed_out);
            nng_pipe_close(c->pipe);
        }
    }
}

/* --- Slots --- */

static void slot_receive(slot *s)
{
    s->sending = false;
    nng_aio_set_timeout(s->aio, NNG_DURATION_INFINITE);
    nng_ctx_recv(s->ctx, s->aio);
}

/* False when the listener stops: the request is then dropped. */
static bool enqueue(tacit_listener *l, slot *s)
{
    pthread_mutex_lock(&l->lock);
    bool taken = !l->stopping;
    if (taken) {
        s->next = NULL;
        if (l->last)
            l->last->next = s;
        else
            l->first = s;
        l->last = s;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return taken;
}

static void drop_request(slot *s)
{
    if (s->request)
        nng_msg_free(s->request);
    s->request = NULL;
}

static void drop_unsent(slot *s)
{
    nng_msg *left = nng_aio_get_msg(s->aio);
    if (left)
        nng_msg_free(left);
    nng_aio_set_msg(s->aio, NULL);
}

static void on_slot(void *arg)
{
    slot *s = arg;
    int rv = nng_aio_result(s->aio);
    if (s->sending && rv != 0)
        drop_unsent(s);
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED)
        return; /* the listener stops */
    if (!s->sending && rv == 0) {
        s->request = nng_aio_get_msg(s->aio);
        nng_aio_set_msg(s->aio, NULL);
        note_request(s->listener, nng_msg_get_pipe(s->request), 1);
        if (!enqueue(s->listener, s))
            drop_request(s);
        return;
    }
    slot_receive(s);
}

static void slot_reply(slot *s, const tacit_buffer *reply)
{
    nng_msg *msg;
    if (nng_msg_alloc(&msg, 0) != 0) {
        slot_receive(s);
        return;
    }
    if (nng_msg_append(msg, reply->data, reply->size) != 0) {
        nng_msg_free(msg);
        slot_receive(s);
        return;
    }
    s->sending = true;
    nng_aio_set_msg(s->aio, msg);
    nng_aio_set_timeout(s->aio, SEND_MS);
    nng_ctx_send(s->ctx, s->aio);
}

static void handle(tacit_listener *l, slot *s)
{
    tacit_buffer reply = {.cap = TACIT_MESSAGE_MAX};
    size_t size = nng_msg_len(s->request);
    nng_pipe pipe = nng_msg_get_pipe(s->request);
    bool answers = false;
    if (size <= TACIT_MESSAGE_MAX) {
        count(l, &l->counts.requests);
        answers = l->handler(l->ctx, nng_msg_body(s->request), size, &reply);
    }
    drop_request(s);
    note_request(l, pipe, -1);
    if (answers) {
        slot_reply(s, &reply);
    } else {
        count(l, &l->counts.dropped);
        nng_pipe_close(pipe);
        slot_receive(s);
    }
    tacit_buffer_free(&reply);
}

static slot *take(tacit_listener *l)
{
    pthread_mutex_lock(&l->lock);
    while (!l->first && !l->stopping)
        pthread_cond_wait(&l->work, &l->lock);
    slot *s = l->stopping ? NULL : l->first;
    if (s) {
        l->first = s->next;
        if (!l->first)
            l->last = NULL;
    }
    pthread_mutex_unlock(&l->lock);
    return s;
}

static void *work(void *arg)
{
    tacit_listener *l = arg;
    for (slot *s = take(l); s; s = take(l))
        handle(l, s);
    return NULL;
}

/* --- The watch --- */

static void *watch(void *arg)
{
    tacit_listener *l = arg;
    limits limit;
    pthread_mutex_lock(&l->table_lock);
    while (!l->watch_stops) {
        if (l->open == 0) {
            pthread_cond_wait(&l->table_changed, &l->table_lock);
            continue;
        }
        bool handshakes = l->fresh > 0;
        size_t n = list_doubtful(l, &limit);
        pthread_mutex_unlock(&l->table_lock);
        judge_doubtful(l, n, &limit);
        pthread_mutex_lock(&l->table_lock);
        uint64_t pause_ms = (handshakes ? l->handshake_ms : l->idle_ms) / 20 + 1;
        struct timespec until = tacit_clock_after_ms(pause_ms);
        while (!l->watch_stops && (handshakes || l->fresh == 0) &&
               pthread_cond_timedwait(&l->table_changed, &l->table_lock, &until) == 0)
            continue;
    }
    pthread_mutex_unlock(&l->table_lock);
    return NULL;
}

/* --- Start and stop --- */

static tacit_status fail_nng(tacit_listener *l, int rv, const char *what, tacit_error *err)
{
    tacit_status status = rv == NNG_EADDRINUSE ? TACIT_CONFLICT
                          : rv == NNG_ENOMEM   ? TACIT_NO_MEMORY
                                               : TACIT_FAILED;
    return tacit_fail(err, status, "%s: cannot %s: %s%s", l->address.url, what, nng_strerror(rv),
                      status == TACIT_CONFLICT ? "; is a server running there already?" : "");
}

static tacit_status allocate(tacit_listener *l, const tacit_listener_setup *setup, tacit_error *err)
{
    l->slot_count = setup->contexts ? setup->contexts : CONTEXTS;
    l->most = setup->max_connections ? setup->max_connections : CONNECTIONS;
    size_t workers = setup->workers ? setup->workers : WORKERS;
    l->slots = calloc(l->slot_count, sizeof *l->slots);
    l->table = calloc(l->most, sizeof *l->table);
    l->doubtful = calloc(l->most, sizeof *l->doubtful);
    l->workers = calloc(workers, sizeof *l->workers);
    if (!l->slots || !l->table || !l->doubtful || !l->workers)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for %zu connections", l->address.url,
                          l->most);
    return TACIT_OK;
}

static int open_socket(tacit_listener *l)
{
    int rv = nng_rep0_open(&l->socket);
    if (rv != 0)
        return rv;
    l->has_socket = true;
    rv = nng_socket_set_int(l->socket, NNG_OPT_MAXTTL, 1);
    if (rv == 0)
        rv = nng_pipe_notify(l->socket, NNG_PIPE_EV_ADD_PRE, on_pipe, l);
    if (rv == 0)
        rv = nng_pipe_notify(l->socket, NNG_PIPE_EV_REM_POST, on_pipe, l);
    for (size_t i = 0; i < l->slot_count && rv == 0; i++) {
        slot *s = &l->slots[i];
        s->listener = l;
        rv = nng_aio_alloc(&s->aio, on_slot, s);
        if (rv == 0)
            rv = nng_ctx_open(&s->ctx, l->socket);
        s->has_ctx = rv == 0;
    }
    return rv;
}

static tacit_status set_tls(tacit_listener *l, const tacit_listener_setup *setup, tacit_error *err)
{
    tacit_tls_setup tls = {.server = true,
                           .certificate_pem = setup->certificate_pem,
                           .key_pem = setup->key_pem,
                           .roots_pem = setup->roots_pem,
                           .sp_peer = REQ_PROTOCOL};
    tacit_status status = tacit_tls_config_new(&l->config, &l->gate, NULL, &tls, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "%s", l->address.url);
    int rv = nng_listener_set_ptr(l->nng, NNG_OPT_TLS_CONFIG, l->config);
    return rv ? fail_nng(l, rv, "use TLS", err) : TACIT_OK;
}

static tacit_status bind_listener(tacit_listener *l, const tacit_listener_setup *setup,
                                  tacit_error *err)
{
    int rv = nng_listener_create(&l->nng, l->socket, l->address.url);
    if (rv == 0)
        rv = nng_listener_set_size(l->nng, NNG_OPT_RECVMAXSZ, LINK_WIRE_MAX);
    if (rv != 0)
        return fail_nng(l, rv, "prepare a listener", err);
    tacit_status status = set_tls(l, setup, err);
    if (status != TACIT_OK)
        return status;
    rv = nng_listener_start(l->nng, 0);
    return rv ? fail_nng(l, rv, "listen", err) : TACIT_OK;
}

static tacit_status learn_port(tacit_listener *l, tacit_error *err)
{
    int port;
    int rv = nng_listener_get_int(l->nng, NNG_OPT_TCP_BOUND_PORT, &port);
    if (rv != 0)
        return fail_nng(l, rv, "learn the port", err);
    bool v6 = strchr(l->address.host, ':') != NULL;
    l->port = (uint16_t)port;
    snprintf(l->address.url, sizeof l->address.url, "tls+tcp://%s%s%s:%u", v6 ? "[" : "",
             l->address.host, v6 ? "]" : "", (unsigned)l->port);
    return TACIT_OK;
}

static tacit_status start_threads(tacit_listener *l, const tacit_listener_setup *setup,
                                  tacit_error *err)
{
    size_t workers = setup->workers ? setup->workers : WORKERS;
    for (; l->worker_count < workers; l->worker_count++)
        if (pthread_create(&l->workers[l->worker_count], NULL, work, l) != 0)
            return tacit_fail(err, TACIT_FAILED, "%s: cannot start a thread", l->address.url);
    l->has_watch = pthread_create(&l->watch, NULL, watch, l) == 0;
    if (!l->has_watch)
        return tacit_fail(err, TACIT_FAILED, "%s: cannot start a thread", l->address.url);
    return TACIT_OK;
}

static tacit_status start_nng(tacit_listener *l, const tacit_listener_setup *setup,
                              tacit_error *err)
{
    tacit_status status = allocate(l, setup, err);
    if (status != TACIT_OK)
        return status;
    int rv = open_socket(l);
    if (rv != 0)
        return fail_nng(l, rv, "open a socket", err);
    TACIT_TRY(start_threads(l, setup, err), done);
    for (size_t i = 0; i < l->slot_count; i++)
        slot_receive(&l->slots[i]);
    TACIT_TRY(bind_listener(l, setup, err), done);
    TACIT_TRY(learn_port(l, err), done);
done:
    return status;
}

tacit_status tacit_listener_start(tacit_listener **out, const tacit_listener_setup *setup,
                                  tacit_error *err)
{
    *out = NULL;
    tacit_listener *l = calloc(1, sizeof *l);
    if (!l)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a listener");
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->table_lock, NULL);
    pthread_cond_init(&l->work, NULL);
    tacit_clock_condition_init(&l->table_changed);
    l->handler = setup->handler;
    l->ctx = setup->ctx;
    l->handshake_ms = setup->handshake_ms ? setup->handshake_ms : HANDSHAKE_MS;
    l->idle_ms = setup->idle_ms ? setup->idle_ms : IDLE_MS;
    tacit_status status = link_address_parse(&l->address, setup->url, true, err);
    if (status == TACIT_OK && l->address.is_ipc)
        status = local_server_start(&l->local, l->address.path, setup, err);
    else if (status == TACIT_OK)
        status = start_nng(l, setup, err);
    if (status != TACIT_OK) {
        tacit_listener_stop(l);
        return status;
    }
    *out = l;
    return TACIT_OK;
}

const char *tacit_listener_url(const tacit_listener *l)
{
    return l->address.url;
}
uint16_t tacit_listener_port(const tacit_listener *l)
{
    return l->port;
}

tacit_listener_counts tacit_listener_count(tacit_listener *l)
{
    if (l->local)
        return local_server_count(l->local);
    pthread_mutex_lock(&l->table_lock);
    tacit_listener_counts counts = l->counts;
    counts.connections = l->open;
    pthread_mutex_unlock(&l->table_lock);
    return counts;
}

static void join_threads(tacit_listener *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < l->worker_count; i++)
        pthread_join(l->workers[i], NULL);
    pthread_mutex_lock(&l->table_lock);
    l->watch_stops = true;
    pthread_cond_broadcast(&l->table_changed);
    pthread_mutex_unlock(&l->table_lock);
    if (l->has_watch)
        pthread_join(l->watch, NULL);
}

static void close_socket(tacit_listener *l)
{
    if (l->config) {
        tls_gate_close(l->gate, l->socket);
        nng_tls_config_free(l->config);
    } else if (l->has_socket) {
        nng_close(l->socket);
    }
}

void tacit_listener_stop(tacit_listener *l)
{
    if (!l)
        return;
    local_server_stop(l->local);
    join_threads(l);
    for (size_t i = 0; l->slots && i < l->slot_count; i++) {
        if (l->slots[i].aio)
            nng_aio_stop(l->slots[i].aio);
        if (l->slots[i].has_ctx)
            nng_ctx_close(l->slots[i].ctx);
    }
    close_socket(l);
    for (size_t i = 0; l->slots && i < l->slot_count; i++) {
        drop_request(&l->slots[i]);
        nng_aio_free(l->slots[i].aio);
    }
    pthread_cond_destroy(&l->table_changed);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->table_lock);
    pthread_mutex_destroy(&l->lock);
    free(l->workers);
    free(l->doubtful);
    free(l->table);
    free(l->slots);
    free(l);
}
