/* The answering side. Each connection does one thing at a time and goes round:
 *
 *   reading --(whole request)--> queued --(worker)--> handled --> writing --(all sent)--> reading
 *
 * It belongs to whoever moves it: nng while an operation is under way, then the callback, the
 * queue, the worker. So only what others look at needs a lock: the table's, and `closing`, which
 * says that no further operation may begin. nng moves bytes; its callbacks decrypt and put requests
 * together; handlers run on the listener's own threads.
 *
 * Every connection is in the table from its arrival until it is over. The watch thread closes the
 * ones that take too long: a handshake that does not end, no request for long (a device that lost
 * its power or its network never says so, and anybody can finish the handshake of the enrolment).
 * It frees those that are over too, because nng frees no operation from its own callback. */
#include "common/clock.h"
#include "common/link.h"
#include "common/link_address.h"
#include "common/link_channel.h"
#include "common/link_local.h"
#include "common/log.h"

#include <nng/nng.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORKERS = 2,
    CONNECTIONS = 1024,
    HANDSHAKE_MS = 10000,
    IDLE_MS = 60000,
    SEND_MS = 30000,       /* without a byte of a reply taken by the peer */
    ACCEPT_PAUSE_MS = 100, /* after accepting failed: no files, no memory */
};

typedef struct connection {
    tacit_listener *listener;
    nng_stream *stream;
    nng_aio *aio;
    link_channel channel;
    bool lingers;   /* TLS failed: whatever comes is thrown away until the peer hangs up */
    bool answering; /* `reply` is being sent */
    tacit_buffer reply;
    uint8_t wire[CHANNEL_WIRE_BYTES];
    size_t arrived;              /* bytes of the peer since its time was last taken */
    size_t wire_size, wire_sent; /* of a piece that is being sent; 0: reading */
    struct connection *next;     /* queue of requests, then list of those that are over */

    pthread_mutex_t lock;
    bool closing; /* under lock */

    uint64_t from; /* its peer's address, see address_of */

    /* Under the table's lock. */
    size_t place;      /* in the table */
    uint64_t since_ms; /* of its arrival, its handshake's end or its last request */
    bool busy;         /* a request of it is queued, handled or answered */
    bool ready;        /* its handshake is done */
} connection;

struct tacit_listener {
    tacit_handler handler;
    void *ctx;
    link_address address;
    uint16_t port;
    local_server *local; /* ipc: everything below is unused then */
    nng_stream_listener *nng;
    nng_aio *accepting;
    bool pauses;  /* `accepting` sleeps */
    bool failing; /* the last connection could not be accepted */
    tacit_tls *tls;
    uint32_t handshake_ms, idle_ms;
    size_t max_request, max_per_address;

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work;
    connection *first, *last; /* queue of those with a request */
    pthread_t *workers;
    size_t worker_count;
    bool stopping;

    pthread_mutex_t table_lock; /* before a connection's lock */
    pthread_cond_t table_changed;
    connection **table, *over;
    size_t open, most;
    size_t fresh; /* in the table and not ready */
    pthread_t watch;
    bool has_watch, watch_stops;
    tacit_listener_counts counts;
};

static void count(tacit_listener *l, uint64_t *counter)
{
    pthread_mutex_lock(&l->table_lock);
    (*counter)++;
    pthread_mutex_unlock(&l->table_lock);
}

/* --- A connection's life --- */

static void on_moved(void *arg);

static void connection_free(connection *c)
{
    nng_aio_free(c->aio); /* waits for its callback */
    pthread_mutex_lock(&c->lock);
    pthread_mutex_unlock(&c->lock); /* whoever began its last operation is out */
    nng_stream_close(c->stream);
    nng_stream_free(c->stream);
    channel_close(&c->channel);
    tacit_buffer_free(&c->reply);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* The connection owns the stream when this succeeds. */
static connection *connection_new(tacit_listener *l, nng_stream *stream)
{
    connection *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    if (nng_aio_alloc(&c->aio, on_moved, c) != 0) {
        free(c);
        return NULL;
    }
    if (channel_open(&c->channel, l->tls, true, l->max_request) != TACIT_OK) {
        nng_aio_free(c->aio);
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->listener = l;
    c->stream = stream;
    c->since_ms = tacit_clock_monotonic_ms();
    c->reply.cap = TACIT_MESSAGE_MAX;
    return c;
}

static void admit(tacit_listener *l, connection *c)
{
    pthread_mutex_lock(&l->table_lock);
    c->place = l->open;
    l->table[l->open++] = c;
    l->counts.accepted++;
    l->fresh++;
    pthread_cond_broadcast(&l->table_changed);
    pthread_mutex_unlock(&l->table_lock);
}

/* By the one who owns it, when no operation is under way. */
static void end(connection *c)
{
    tacit_listener *l = c->listener;
    pthread_mutex_lock(&l->table_lock);
    l->fresh -= !c->ready;
    l->table[c->place] = l->table[--l->open];
    l->table[c->place]->place = c->place;
    c->next = l->over;
    l->over = c;
    pthread_cond_broadcast(&l->table_changed);
    pthread_mutex_unlock(&l->table_lock);
}

/* With the table's lock held. Its operation ends soon, with an error, and no other begins. */
static void hang_up(connection *c)
{
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    nng_stream_close(c->stream);
    pthread_mutex_unlock(&c->lock);
}

static void mark(connection *c, bool busy)
{
    tacit_listener *l = c->listener;
    pthread_mutex_lock(&l->table_lock);
    c->busy = busy;
    c->since_ms = tacit_clock_monotonic_ms();
    pthread_mutex_unlock(&l->table_lock);
}

static void mark_ready(connection *c)
{
    tacit_listener *l = c->listener;
    pthread_mutex_lock(&l->table_lock);
    c->ready = true;
    c->since_ms = tacit_clock_monotonic_ms();
    l->fresh--;
    pthread_mutex_unlock(&l->table_lock);
}

/* --- Moving --- */

/* Begins to send what is left of `wire`, or to read into it. */
static void begin(connection *c)
{
    bool writes = c->wire_sent < c->wire_size;
    nng_iov iov = {c->wire + c->wire_sent, writes ? c->wire_size - c->wire_sent : sizeof c->wire};
    nng_aio_set_iov(c->aio, 1, &iov);
    nng_aio_set_timeout(c->aio, writes ? SEND_MS : NNG_DURATION_INFINITE);
    pthread_mutex_lock(&c->lock);
    bool closing = c->closing;
    if (!closing && writes)
        nng_stream_send(c->stream, c->aio);
    else if (!closing)
        nng_stream_recv(c->stream, c->aio);
    pthread_mutex_unlock(&c->lock); /* nng may have moved it on: it is not ours now */
    if (closing)
        end(c);
}

/* False when the listener stops. */
static bool enqueue(tacit_listener *l, connection *c)
{
    pthread_mutex_lock(&l->lock);
    bool taken = !l->stopping;
    if (taken) {
        c->next = NULL;
        if (l->last)
            l->last->next = c;
        else
            l->first = c;
        l->last = c;
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
    return taken;
}

/* True when an answer was on its way, which is all sent now: what the peer sent behind its request
 * may follow. */
static bool finish_answer(connection *c)
{
    if (!c->answering || c->channel.state == CHANNEL_BROKEN)
        return false;
    c->answering = false;
    tacit_buffer_free(&c->reply);
    mark(c, false);
    channel_next(&c->channel);
    return true;
}

/* What there is to say goes first; then the channel's state decides. */
static void go_on(connection *c)
{
    if (c->channel.ready && !c->ready)
        mark_ready(c);
    do {
        c->wire_sent = 0;
        c->wire_size = channel_output(&c->channel, c->wire);
    } while (c->wire_size == 0 && finish_answer(c));
    if (c->wire_size > 0 || c->channel.state == CHANNEL_MORE) {
        begin(c);
    } else if (c->channel.state == CHANNEL_REFUSED) {
        c->lingers = true;
        begin(c);
    } else if (c->channel.state == CHANNEL_MESSAGE) {
        mark(c, true);
        if (!enqueue(c->listener, c))
            end(c);
    } else {
        end(c);
    }
}

/* A server that closes at once while the peer still sends makes the kernel reset the connection,
 * and the peer never reads the alert that says what is wrong with its certificate. So a connection
 * whose TLS failed reads on and throws away until the peer hangs up or the watch ends it. */
static void on_moved(void *arg)
{
    connection *c = arg;
    size_t n = nng_aio_count(c->aio);
    if (nng_aio_result(c->aio) != 0) {
        end(c);
        return;
    }
    bool wrote = c->wire_size > 0;
    c->arrived += wrote ? 0 : n;
    if (c->arrived >= sizeof c->wire && c->ready) { /* a slow sender, but it goes on */
        c->arrived = 0;
        mark(c, c->busy);
    }
    c->wire_sent += wrote ? n : 0;
    if (c->wire_sent < c->wire_size) {
        begin(c);
        return;
    }
    if (!wrote && !c->lingers)
        channel_input(&c->channel, c->wire, n);
    go_on(c);
}

/* --- Accepting --- */

/* An IPv4 address, also one that came as IPv6 does (::ffff:a.b.c.d), or the network of an IPv6
 * address: its upper half, which one subscriber has whole. */
static uint64_t address_of(nng_stream *stream)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    nng_sockaddr peer;
    uint64_t upper;
    uint32_t v4;
    if (nng_stream_get_addr(stream, NNG_OPT_REMADDR, &peer) != 0)
        return 0;
    if (peer.s_family == NNG_AF_INET)
        return peer.s_in.sa_addr;
    memcpy(&upper, peer.s_in6.sa_addr, sizeof upper);
    memcpy(&v4, peer.s_in6.sa_addr + sizeof mapped, sizeof v4);
    return memcmp(peer.s_in6.sa_addr, mapped, sizeof mapped) == 0 ? v4 : upper;
}

static bool has_room(tacit_listener *l, uint64_t from)
{
    size_t same = 0;
    pthread_mutex_lock(&l->table_lock);
    for (size_t i = 0; i < l->open; i++)
        same += l->table[i]->from == from;
    for (const connection *c = l->over; c; c = c->next)
        same += c->from == from;
    bool room = l->open < l->most && same < l->max_per_address;
    l->counts.turned_away += !room;
    pthread_mutex_unlock(&l->table_lock);
    return room;
}

/* Only this adds to the table, and one runs at a time. */
static void take_in(tacit_listener *l, nng_stream *stream)
{
    uint64_t from = address_of(stream);
    connection *c = has_room(l, from) ? connection_new(l, stream) : NULL;
    if (c) {
        c->from = from;
        admit(l, c);
        go_on(c);
    } else {
        nng_stream_close(stream);
        nng_stream_free(stream);
    }
}

static void on_accepted(void *arg)
{
    tacit_listener *l = arg;
    int rv = nng_aio_result(l->accepting);
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED)
        return; /* the listener stops */
    if (rv != 0) {
        if (!l->failing)
            tacit_log_warn("%s: cannot accept connections: %s; it goes on trying", l->address.url,
                           nng_strerror(rv));
        l->failing = l->pauses = true;
        nng_sleep_aio(ACCEPT_PAUSE_MS, l->accepting);
        return;
    }
    l->failing = l->failing && l->pauses;
    if (!l->pauses)
        take_in(l, nng_aio_get_output(l->accepting, 0));
    l->pauses = false;
    nng_stream_listener_accept(l->nng, l->accepting);
}

/* --- Handling --- */

static void handle(tacit_listener *l, connection *c)
{
    tacit_span request = channel_message_body(&c->channel);
    count(l, &l->counts.requests);
    c->reply.cap = TACIT_MESSAGE_MAX;
    if (!l->handler(l->ctx, request.data, request.size, &c->reply)) {
        count(l, &l->counts.dropped);
        end(c);
        return;
    }
    c->answering = true;
    channel_write(&c->channel, channel_message_id(&c->channel), c->reply.data, c->reply.size);
    go_on(c);
}

/* With the lock held. */
static connection *pop(tacit_listener *l)
{
    connection *c = l->first;
    if (c)
        l->first = c->next;
    if (!l->first)
        l->last = NULL;
    return c;
}

static connection *take(tacit_listener *l)
{
    pthread_mutex_lock(&l->lock);
    while (!l->first && !l->stopping)
        pthread_cond_wait(&l->work, &l->lock);
    connection *c = l->stopping ? NULL : pop(l);
    pthread_mutex_unlock(&l->lock);
    return c;
}

static void *work(void *arg)
{
    tacit_listener *l = arg;
    for (connection *c = take(l); c; c = take(l))
        handle(l, c);
    return NULL;
}

/* --- The watch. All of it with the table's lock held, except while it frees. --- */

static void free_over(tacit_listener *l)
{
    connection *c = l->over;
    l->over = NULL;
    pthread_mutex_unlock(&l->table_lock);
    while (c) {
        connection *next = c->next;
        connection_free(c);
        c = next;
    }
    pthread_mutex_lock(&l->table_lock);
}

/* Hangs up on those that take too long; they may take less when few places are left. */
static void hang_up_on_late(tacit_listener *l)
{
    bool crowded = l->open >= l->most - l->most / 4;
    uint64_t handshake_ms = crowded ? l->handshake_ms / 10 : l->handshake_ms;
    uint64_t idle_ms = crowded ? l->idle_ms / 4 : l->idle_ms;
    uint64_t now = tacit_clock_monotonic_ms();
    for (size_t i = 0; i < l->open; i++) {
        connection *c = l->table[i];
        uint64_t limit = c->ready ? idle_ms : handshake_ms;
        if (c->closing || c->busy || now - c->since_ms < limit)
            continue;
        l->counts.idled += c->ready;
        l->counts.timed_out += !c->ready;
        hang_up(c);
    }
}

/* Until it is time to look again, or something is to be freed. */
static void sleep_on_table(tacit_listener *l)
{
    bool handshakes = l->fresh > 0;
    uint64_t pause_ms = (handshakes ? l->handshake_ms : l->idle_ms) / 20 + 1;
    struct timespec until = tacit_clock_after_ms(pause_ms);
    while (!l->watch_stops && !l->over && (handshakes || l->fresh == 0) &&
           pthread_cond_timedwait(&l->table_changed, &l->table_lock, &until) == 0)
        continue;
}

static void *watch(void *arg)
{
    tacit_listener *l = arg;
    pthread_mutex_lock(&l->table_lock);
    while (!l->watch_stops || l->open > 0 || l->over) {
        if (l->over) {
            free_over(l);
        } else if (l->watch_stops || l->open == 0) {
            pthread_cond_wait(&l->table_changed, &l->table_lock);
        } else {
            hang_up_on_late(l);
            sleep_on_table(l);
        }
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
    l->most = setup->max_connections ? setup->max_connections : CONNECTIONS;
    size_t workers = setup->workers ? setup->workers : WORKERS;
    l->table = calloc(l->most, sizeof *l->table);
    l->workers = calloc(workers, sizeof *l->workers);
    if (!l->table || !l->workers)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for %zu connections", l->address.url,
                          l->most);
    return TACIT_OK;
}

static tacit_status set_tls(tacit_listener *l, const tacit_listener_setup *setup, tacit_error *err)
{
    tacit_tls_setup tls = {.server = true,
                           .certificate_pem = setup->certificate_pem,
                           .key_pem = setup->key_pem,
                           .roots_pem = setup->roots_pem};
    tacit_status status = tacit_tls_new(&l->tls, &tls, err);
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "%s", l->address.url);
}

static tacit_status bind_listener(tacit_listener *l, tacit_error *err)
{
    int rv = nng_stream_listener_alloc(&l->nng, link_address_tcp(&l->address));
    if (rv == 0)
        rv = nng_stream_listener_set_bool(l->nng, NNG_OPT_TCP_NODELAY, true);
    if (rv == 0)
        rv = nng_aio_alloc(&l->accepting, on_accepted, l);
    if (rv != 0)
        return fail_nng(l, rv, "prepare a listener", err);
    rv = nng_stream_listener_listen(l->nng);
    return rv ? fail_nng(l, rv, "listen", err) : TACIT_OK;
}

static tacit_status learn_port(tacit_listener *l, tacit_error *err)
{
    int port;
    int rv = nng_stream_listener_get_int(l->nng, NNG_OPT_TCP_BOUND_PORT, &port);
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
    tacit_status status;
    TACIT_TRY(allocate(l, setup, err), done);
    TACIT_TRY(set_tls(l, setup, err), done);
    TACIT_TRY(start_threads(l, setup, err), done);
    TACIT_TRY(bind_listener(l, err), done);
    TACIT_TRY(learn_port(l, err), done);
    nng_stream_listener_accept(l->nng, l->accepting);
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
    l->max_per_address = setup->max_per_address ? setup->max_per_address : SIZE_MAX;
    l->max_request = setup->max_request ? setup->max_request : TACIT_MESSAGE_MAX;
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

static void stop_workers(tacit_listener *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < l->worker_count; i++)
        pthread_join(l->workers[i], NULL);
}

static void stop_accepting(tacit_listener *l)
{
    if (l->nng)
        nng_stream_listener_close(l->nng);
    if (l->accepting)
        nng_aio_stop(l->accepting);
}

/* Nothing arrives any more and nobody handles: what is queued is over, the others end at once. */
static void stop_connections(tacit_listener *l)
{
    for (connection *c = pop(l); c; c = pop(l))
        end(c);
    pthread_mutex_lock(&l->table_lock);
    l->watch_stops = true;
    for (size_t i = 0; i < l->open; i++)
        hang_up(l->table[i]);
    pthread_cond_broadcast(&l->table_changed);
    pthread_mutex_unlock(&l->table_lock);
    if (l->has_watch)
        pthread_join(l->watch, NULL); /* it goes when none is left */
}

void tacit_listener_stop(tacit_listener *l)
{
    if (!l)
        return;
    local_server_stop(l->local);
    stop_accepting(l);
    stop_workers(l);
    stop_connections(l);
    if (l->accepting)
        nng_aio_free(l->accepting);
    if (l->nng)
        nng_stream_listener_free(l->nng);
    tacit_tls_free(l->tls);
    pthread_cond_destroy(&l->table_changed);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->table_lock);
    pthread_mutex_destroy(&l->lock);
    free(l->workers);
    free(l->table);
    free(l);
}
