#include "common/link.h"

#include "common/certificate.h"
#include "common/clock.h"
#include "common/link_address.h"
#include "common/link_channel.h"
#include "common/link_local.h"

#include <nng/nng.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_MS = 10000,
    REPLY_MS = 60000,
    POLL_MS = 50, /* how often a waiting call looks at the interrupt flag */
    FIRST_PAUSE_MS = 100,
    LAST_DIAL_PAUSE_MS = 1000,
    LAST_PAUSE_MS = 5000
};

struct tacit_link {
    link_address address;
    tacit_tls *tls; /* NULL: ipc, and everything of nng below */
    nng_stream_dialer *dialer;
    nng_aio *aio;           /* one operation at a time */
    uint64_t own_expiry_ms; /* of the device's certificate; 0: none */
    uint32_t connect_ms, reply_ms;
    atomic_bool interrupted;
    bool was_refused;
    nng_stream *stream; /* NULL: not connected */
    link_channel channel;
    uint8_t wire[CHANNEL_WIRE_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool finished; /* under lock: the aio's callback ran */
};

static void on_finished(void *arg)
{
    tacit_link *link = arg;
    pthread_mutex_lock(&link->lock);
    link->finished = true;
    pthread_cond_signal(&link->done);
    pthread_mutex_unlock(&link->lock);
}

static tacit_status link_set_tls(tacit_link *link, const tacit_link_setup *setup, tacit_error *err)
{
    tacit_certificate_info own;
    tacit_tls_setup tls = {.certificate_pem = setup->certificate_pem,
                           .key_pem = setup->key_pem,
                           .roots_pem = setup->roots_pem,
                           .root_pin = setup->root_pin,
                           .peer_name = link->address.host};
    if (setup->certificate_pem) {
        tacit_status status = tacit_certificate_read(setup->certificate_pem, &own, err);
        if (status != TACIT_OK)
            return status;
        link->own_expiry_ms = own.not_after_ms;
    }
    return tacit_tls_new(&link->tls, &tls, err);
}

static tacit_status link_set_dialer(tacit_link *link, tacit_error *err)
{
    int rv = nng_stream_dialer_alloc(&link->dialer, link_address_tcp(&link->address));
    if (rv == 0)
        rv = nng_stream_dialer_set_bool(link->dialer, NNG_OPT_TCP_NODELAY, true);
    if (rv == 0)
        rv = nng_aio_alloc(&link->aio, on_finished, link);
    if (rv != 0)
        return tacit_fail(err, TACIT_FAILED, "%s: cannot prepare to dial: %s", link->address.url,
                          nng_strerror(rv));
    return TACIT_OK;
}

tacit_status tacit_link_open(tacit_link **out, const tacit_link_setup *setup, tacit_error *err)
{
    tacit_status status;
    *out = NULL;
    if (setup->connect_ms > TACIT_LINK_WAIT_MAX_MS || setup->reply_ms > TACIT_LINK_WAIT_MAX_MS)
        return tacit_fail(err, TACIT_USAGE,
                          "%s: expected connect_ms and reply_ms of at most %u, found %u and %u",
                          setup->url, TACIT_LINK_WAIT_MAX_MS, setup->connect_ms, setup->reply_ms);
    tacit_link *link = calloc(1, sizeof *link);
    if (!link)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a link");
    pthread_mutex_init(&link->lock, NULL);
    tacit_clock_condition_init(&link->done);
    atomic_init(&link->interrupted, false);
    link->connect_ms = setup->connect_ms ? setup->connect_ms : CONNECT_MS;
    link->reply_ms = setup->reply_ms ? setup->reply_ms : REPLY_MS;
    TACIT_TRY(link_address_parse(&link->address, setup->url, false, err), failed);
    if (!link->address.is_ipc) {
        TACIT_TRY(link_set_tls(link, setup, err), failed);
        TACIT_TRY(link_set_dialer(link, err), failed);
    }
    *out = link;
    return TACIT_OK;
failed:
    tacit_link_close(link);
    return status;
}

/* --- Operations of nng, one at a time, each waited for --- */

/* Gives the operation that follows until `until` on the monotonic clock. False: it is too late. */
static bool prepare(tacit_link *link, uint64_t until)
{
    uint64_t now = tacit_clock_monotonic_ms();
    if (now >= until || atomic_load(&link->interrupted))
        return false;
    nng_aio_set_timeout(link->aio, (nng_duration)(until - now));
    return true;
}

/* Waits for the operation that was begun; cancels it when the link is interrupted. */
static int wait_finished(tacit_link *link)
{
    pthread_mutex_lock(&link->lock);
    while (!link->finished) {
        struct timespec until = tacit_clock_after_ms(POLL_MS);
        pthread_cond_timedwait(&link->done, &link->lock, &until);
        if (link->finished || !atomic_load(&link->interrupted))
            continue;
        pthread_mutex_unlock(&link->lock);
        nng_aio_cancel(link->aio);
        nng_aio_wait(link->aio);
        pthread_mutex_lock(&link->lock);
    }
    link->finished = false;
    pthread_mutex_unlock(&link->lock);
    return nng_aio_result(link->aio);
}

/* Sends what the channel has to say; each piece is given `ms`. */
static int send_output(tacit_link *link, uint64_t ms)
{
    size_t size;
    while ((size = channel_output(&link->channel, link->wire)) > 0) {
        for (size_t sent = 0; sent < size; sent += nng_aio_count(link->aio)) {
            nng_iov iov = {link->wire + sent, size - sent};
            nng_aio_set_iov(link->aio, 1, &iov);
            if (!prepare(link, tacit_clock_monotonic_ms() + ms))
                return NNG_ETIMEDOUT;
            nng_stream_send(link->stream, link->aio);
            int rv = wait_finished(link);
            if (rv != 0)
                return rv;
        }
    }
    return 0;
}

/* Gives the channel the next bytes of the peer. */
static int receive_input(tacit_link *link, uint64_t until)
{
    nng_iov iov = {link->wire, sizeof link->wire};
    nng_aio_set_iov(link->aio, 1, &iov);
    if (!prepare(link, until))
        return NNG_ETIMEDOUT;
    nng_stream_recv(link->stream, link->aio);
    int rv = wait_finished(link);
    if (rv != 0)
        return rv;
    channel_input(&link->channel, link->wire, nng_aio_count(link->aio));
    return 0;
}

/* --- One connection --- */

static void hang_up(tacit_link *link)
{
    if (!link->stream)
        return;
    nng_stream_close(link->stream);
    nng_stream_free(link->stream);
    link->stream = NULL;
    channel_close(&link->channel);
}

static int dial(tacit_link *link, uint64_t until)
{
    if (!prepare(link, until))
        return NNG_ETIMEDOUT;
    nng_stream_dialer_dial(link->dialer, link->aio);
    int rv = wait_finished(link);
    if (rv != 0)
        return rv;
    link->stream = nng_aio_get_output(link->aio, 0);
    return 0;
}

/* The handshake and the greetings. */
static int get_ready(tacit_link *link, uint64_t until)
{
    int rv = 0;
    if (channel_open(&link->channel, link->tls, false, TACIT_MESSAGE_MAX) != TACIT_OK)
        return NNG_ENOMEM;
    while (rv == 0 && !link->channel.ready) {
        uint64_t now = tacit_clock_monotonic_ms();
        rv = send_output(link, until > now ? until - now : 0);
        if (rv == 0 && link->channel.state != CHANNEL_MORE)
            return NNG_ECONNRESET;
        if (rv == 0)
            rv = receive_input(link, until);
    }
    return rv;
}

static void pause_between(tacit_link *link, uint64_t ms)
{
    uint64_t until = tacit_clock_monotonic_ms() + ms;
    for (uint64_t now = 0; !atomic_load(&link->interrupted);
         tacit_clock_sleep_ms(until - now < POLL_MS ? until - now : POLL_MS)) {
        now = tacit_clock_monotonic_ms();
        if (now >= until)
            return;
    }
}

static uint64_t random_pause(uint32_t limit)
{
    return limit / 2 + randombytes_uniform(limit / 2);
}

/* What became of dialing, for the message. */
typedef struct attempt {
    int rv;      /* of nng; 0: fine */
    bool met;    /* somebody took the TCP connection */
    bool sent;   /* the request left */
    bool reused; /* the connection was there before the call */
} attempt;

/* Dials again until it works, a certificate is refused, or connect_ms have passed. */
static void pick_up(tacit_link *link, attempt *a)
{
    uint64_t until = tacit_clock_monotonic_ms() + link->connect_ms;
    for (uint32_t limit = 2 * FIRST_PAUSE_MS;;
         limit = limit * 2 > LAST_DIAL_PAUSE_MS ? LAST_DIAL_PAUSE_MS : limit * 2) {
        a->rv = dial(link, until);
        a->met = a->rv == 0;
        if (a->met)
            a->rv = get_ready(link, until);
        if (a->rv == 0)
            return;
        hang_up(link);
        uint64_t pause = random_pause(limit);
        if (atomic_load(&link->interrupted) || tacit_tls_report_is_refusal(link->tls) ||
            tacit_clock_monotonic_ms() + pause >= until)
            return;
        pause_between(link, pause);
    }
}

/* Sends the request and waits until its reply is whole in the channel. */
static void converse(tacit_link *link, attempt *a, const void *request, size_t size)
{
    uint32_t id = 0x80000000u | randombytes_random();
    channel_write(&link->channel, id, request, size);
    a->rv = send_output(link, link->reply_ms);
    a->sent = a->rv == 0;
    uint64_t until = tacit_clock_monotonic_ms() + link->reply_ms;
    while (a->rv == 0 && link->channel.state == CHANNEL_MORE) {
        a->rv = receive_input(link, until);
        if (a->rv == 0)
            a->rv = send_output(link, link->reply_ms);
    }
    bool answered =
        link->channel.state == CHANNEL_MESSAGE && channel_message_id(&link->channel) == id;
    if (a->rv == 0 && !answered)
        a->rv = NNG_ECONNRESET;
}

/* --- Why it failed --- */

static const char *guess_reason(const attempt *a)
{
    if (a->sent)
        return a->rv == NNG_ETIMEDOUT ? "no reply in time" : "the connection was lost";
    if (a->reused)
        return "the connection was lost";
    if (a->met)
        return a->rv == NNG_ETIMEDOUT ? "the server does not finish the TLS handshake"
                                      : "the connection is closed before it is ready";
    if (a->rv == NNG_ECONNREFUSED)
        return "the connection is refused: is the server running, and is this its port?";
    if (a->rv == NNG_EADDRINVAL)
        return "this name is not known: check the address";
    return "nobody answers there: check the address and the network";
}

static tacit_status explain(tacit_link *link, const attempt *a, tacit_error *err)
{
    char reason[256] = "";
    bool expired = link->own_expiry_ms && link->own_expiry_ms < tacit_tls_now_ms();
    if (atomic_load(&link->interrupted))
        return tacit_fail(err, TACIT_AGAIN, "%s: interrupted", link->address.url);
    tacit_tls_report_text(link->tls, reason, sizeof reason);
    link->was_refused = tacit_tls_report_is_refusal(link->tls) || expired;
    return tacit_fail(err, TACIT_UNREACHABLE, "%s: %s%s", link->address.url,
                      *reason ? reason : guess_reason(a),
                      expired ? "; this device's certificate has expired: renew it" : "");
}

/* --- Calls --- */

/* A connection that was idle may have been closed by the server, which is found out by using it;
 * then a new one is tried. */
static void ask(tacit_link *link, attempt *a, const void *request, size_t size)
{
    a->reused = link->stream != NULL;
    if (a->reused) {
        converse(link, a, request, size);
        if (a->rv == 0 || a->rv == NNG_ETIMEDOUT || atomic_load(&link->interrupted))
            return;
        hang_up(link);
        *a = (attempt){0};
    }
    pick_up(link, a);
    if (a->rv == 0)
        converse(link, a, request, size);
}

tacit_status tacit_link_call(tacit_link *link, const void *request, size_t size,
                             tacit_buffer *reply, tacit_error *err)
{
    attempt a = {0};
    link->was_refused = false;
    reply->size = 0;
    reply->cap = TACIT_MESSAGE_MAX;
    if (size > TACIT_MESSAGE_MAX)
        return tacit_fail(err, TACIT_USAGE, "request of %zu bytes: at most %u can be sent", size,
                          TACIT_MESSAGE_MAX);
    if (link->address.is_ipc)
        return local_call(link->address.path, request, size, link->reply_ms, &link->interrupted,
                          reply, err);
    tacit_tls_report_clear(link->tls);
    ask(link, &a, request, size);
    if (a.rv != 0) {
        tacit_status status = explain(link, &a, err);
        hang_up(link); /* never go on with a connection on which something failed */
        return status;
    }
    tacit_span body = channel_message_body(&link->channel);
    tacit_status status = tacit_buffer_append(reply, body.data, body.size);
    channel_next(&link->channel);
    if (status != TACIT_OK)
        return tacit_fail(err, status, "%s: no memory for a reply of %zu bytes", link->address.url,
                          body.size);
    return TACIT_OK;
}

tacit_status tacit_link_call_patiently(tacit_link *link, const void *request, size_t size,
                                       uint64_t patience_ms, tacit_buffer *reply, tacit_error *err)
{
    uint64_t start = tacit_clock_monotonic_ms();
    for (uint32_t limit = 2 * FIRST_PAUSE_MS;;
         limit = limit * 2 > LAST_PAUSE_MS ? LAST_PAUSE_MS : limit * 2) {
        tacit_status status = tacit_link_call(link, request, size, reply, err);
        if (status != TACIT_UNREACHABLE || link->was_refused)
            return status;
        uint64_t pause = random_pause(limit);
        if (tacit_clock_monotonic_ms() - start + pause > patience_ms)
            return status;
        pause_between(link, pause);
    }
}

bool tacit_link_was_refused(const tacit_link *link)
{
    return link->was_refused;
}

void tacit_link_interrupt(tacit_link *link)
{
    atomic_store(&link->interrupted, true);
}

void tacit_link_close(tacit_link *link)
{
    if (!link)
        return;
    hang_up(link);
    if (link->aio)
        nng_aio_free(link->aio);
    if (link->dialer)
        nng_stream_dialer_free(link->dialer);
    tacit_tls_free(link->tls);
    pthread_cond_destroy(&link->done);
    pthread_mutex_destroy(&link->lock);
    free(link);
}
