#include "common/link.h"

#include "common/certificate.h"
#include "common/clock.h"
#include "common/link_address.h"
#include "common/link_local.h"
#include "common/tls_engine.h"

#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CONNECT_MS = 10000,
    REPLY_MS = 60000,
    POLL_MS = 50, /* how often a waiting call looks at the interrupt flag */
    FIRST_PAUSE_MS = 100,
    LAST_PAUSE_MS = 5000
};

struct tacit_link {
    link_address address;
    nng_tls_config *config; /* NULL: ipc */
    tls_gate *gate;         /* of config */
    tacit_tls_report *report;
    uint64_t own_expiry_ms; /* of the device's certificate; 0: none */
    uint32_t connect_ms, reply_ms;
    atomic_bool interrupted;
    bool was_refused;
    bool is_open;
    nng_socket socket;
    nng_dialer dialer;
    nng_ctx ctx;
    nng_aio *aio;
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
    return tacit_tls_config_new(&link->config, &link->gate, &link->report, &tls, err);
}

tacit_status tacit_link_open(tacit_link **out, const tacit_link_setup *setup, tacit_error *err)
{
    tacit_status status;
    *out = NULL;
    tacit_link *link = calloc(1, sizeof *link);
    if (!link)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a link");
    pthread_mutex_init(&link->lock, NULL);
    tacit_clock_condition_init(&link->done);
    atomic_init(&link->interrupted, false);
    link->connect_ms = setup->connect_ms ? setup->connect_ms : CONNECT_MS;
    link->reply_ms = setup->reply_ms ? setup->reply_ms : REPLY_MS;
    TACIT_TRY(link_address_parse(&link->address, setup->url, false, err), failed);
    if (!link->address.is_ipc)
        TACIT_TRY(link_set_tls(link, setup, err), failed);
    *out = link;
    return TACIT_OK;
failed:
    tacit_link_close(link);
    return status;
}

/* --- One connection --- */

static void hang_up(tacit_link *link)
{
    if (!link->is_open)
        return;
    nng_aio_stop(link->aio);
    nng_ctx_close(link->ctx);
    tls_gate_close(link->gate, link->socket);
    nng_aio_free(link->aio);
    link->aio = NULL;
    link->is_open = false;
}

/* Options before the dialer starts: nng applies its limit of a message to later pipes only. */
static int set_dialer(tacit_link *link)
{
    int rv = nng_dialer_create(&link->dialer, link->socket, link->address.url);
    if (rv == 0)
        rv = nng_dialer_set_ptr(link->dialer, NNG_OPT_TLS_CONFIG, link->config);
    if (rv == 0)
        rv = nng_dialer_set_size(link->dialer, NNG_OPT_RECVMAXSZ, LINK_WIRE_MAX);
    if (rv == 0)
        rv = nng_dialer_set_ms(link->dialer, NNG_OPT_RECONNMINT, 100);
    if (rv == 0)
        rv = nng_dialer_set_ms(link->dialer, NNG_OPT_RECONNMAXT, 1000);
    return rv ? rv : nng_dialer_start(link->dialer, NNG_FLAG_NONBLOCK);
}

static tacit_status pick_up(tacit_link *link, tacit_error *err)
{
    if (link->is_open)
        return TACIT_OK;
    int rv = nng_req0_open(&link->socket);
    if (rv != 0)
        return tacit_fail(err, TACIT_FAILED, "%s: no socket: %s", link->address.url,
                          nng_strerror(rv));
    rv = nng_socket_set_ms(link->socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (rv == 0)
        rv = nng_ctx_open(&link->ctx, link->socket);
    if (rv == 0)
        rv = nng_aio_alloc(&link->aio, on_finished, link);
    if (rv == 0)
        rv = set_dialer(link);
    if (rv != 0) {
        tls_gate_close(link->gate, link->socket);
        nng_aio_free(link->aio);
        link->aio = NULL;
        return tacit_fail(err, TACIT_FAILED, "%s: cannot dial: %s", link->address.url,
                          nng_strerror(rv));
    }
    link->is_open = true;
    return TACIT_OK;
}

/* Waits for the aio; cancels it when the link is interrupted or a certificate is refused. */
static int wait_finished(tacit_link *link)
{
    pthread_mutex_lock(&link->lock);
    while (!link->finished) {
        struct timespec until = tacit_clock_after_ms(POLL_MS);
        pthread_cond_timedwait(&link->done, &link->lock, &until);
        bool give_up = atomic_load(&link->interrupted) || tacit_tls_report_is_refusal(link->report);
        if (link->finished || !give_up)
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

static int send_request(tacit_link *link, const void *request, size_t size)
{
    nng_msg *msg;
    int rv = nng_msg_alloc(&msg, 0);
    if (rv != 0)
        return rv;
    rv = nng_msg_append(msg, request, size);
    if (rv != 0) {
        nng_msg_free(msg);
        return rv;
    }
    nng_aio_set_msg(link->aio, msg);
    nng_aio_set_timeout(link->aio, (nng_duration)link->connect_ms);
    nng_ctx_send(link->ctx, link->aio);
    rv = wait_finished(link);
    if (rv != 0 && nng_aio_get_msg(link->aio)) {
        nng_msg_free(nng_aio_get_msg(link->aio));
        nng_aio_set_msg(link->aio, NULL);
    }
    return rv;
}

static int receive_reply(tacit_link *link, tacit_buffer *reply, tacit_status *status)
{
    nng_aio_set_timeout(link->aio, (nng_duration)link->reply_ms);
    nng_ctx_recv(link->ctx, link->aio);
    int rv = wait_finished(link);
    if (rv != 0)
        return rv;
    nng_msg *msg = nng_aio_get_msg(link->aio);
    nng_aio_set_msg(link->aio, NULL);
    *status = tacit_buffer_append(reply, nng_msg_body(msg), nng_msg_len(msg));
    nng_msg_free(msg);
    return 0;
}

/* --- Why it failed --- */

static uint64_t stat_value(nng_stat *scope, const char *name)
{
    for (nng_stat *s = nng_stat_child(scope); s; s = nng_stat_next(s))
        if (strcmp(nng_stat_name(s), name) == 0)
            return nng_stat_value(s);
    return 0;
}

/* What nng counted for this dialer, where TLS itself has nothing to say. By hand, because
 * nng_stat_find_dialer of 1.5.2 returns the first dialer of the process. */
static bool dialer_counted(tacit_link *link, const char *name)
{
    nng_stat *all;
    bool counted = false;
    if (nng_stats_get(&all) != 0)
        return false;
    for (nng_stat *s = nng_stat_child(all); s; s = nng_stat_next(s))
        if (strcmp(nng_stat_name(s), "dialer") == 0 &&
            stat_value(s, "id") == (uint64_t)nng_dialer_id(link->dialer))
            counted = stat_value(s, name) > 0;
    nng_stats_free(all);
    return counted;
}

static const char *guess_reason(tacit_link *link, int rv, bool sent)
{
    if (sent)
        return rv == NNG_ETIMEDOUT ? "no reply in time" : "the connection was lost";
    if (dialer_counted(link, "refused"))
        return "the connection is refused: is the server running, and is this its port?";
    if (dialer_counted(link, "auth") || dialer_counted(link, "disconnect"))
        return "the connection is closed before it is ready";
    return "nobody answers there: check the address and the network";
}

static tacit_status explain(tacit_link *link, int rv, bool sent, tacit_error *err)
{
    char reason[256] = "";
    bool expired = link->own_expiry_ms && link->own_expiry_ms < tacit_tls_now_ms();
    if (atomic_load(&link->interrupted))
        return tacit_fail(err, TACIT_AGAIN, "%s: interrupted", link->address.url);
    tacit_tls_report_text(link->report, reason, sizeof reason);
    link->was_refused = tacit_tls_report_is_refusal(link->report) || expired;
    return tacit_fail(err, TACIT_UNREACHABLE, "%s: %s%s", link->address.url,
                      *reason ? reason : guess_reason(link, rv, sent),
                      expired ? "; this device's certificate has expired: renew it" : "");
}

tacit_status tacit_link_call(tacit_link *link, const void *request, size_t size,
                             tacit_buffer *reply, tacit_error *err)
{
    bool sent = false;
    link->was_refused = false;
    reply->size = 0;
    reply->cap = TACIT_MESSAGE_MAX;
    if (size > TACIT_MESSAGE_MAX)
        return tacit_fail(err, TACIT_USAGE, "request of %zu bytes: at most %u can be sent", size,
                          TACIT_MESSAGE_MAX);
    if (link->address.is_ipc)
        return local_call(link->address.path, request, size, link->reply_ms, &link->interrupted,
                          reply, err);
    tacit_tls_report_clear(link->report);
    tacit_status status = pick_up(link, err);
    if (status != TACIT_OK)
        return status;
    int rv = send_request(link, request, size);
    if (rv == 0) {
        sent = true;
        rv = receive_reply(link, reply, &status);
    }
    if (rv != 0)
        status = explain(link, rv, sent, err);
    else if (status != TACIT_OK)
        status = tacit_fail(err, status, "%s: a reply above %u bytes", link->address.url,
                            TACIT_MESSAGE_MAX);
    if (status != TACIT_OK)
        hang_up(link); /* never go on with a connection on which something was cancelled */
    return status;
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

tacit_status tacit_link_call_patiently(tacit_link *link, const void *request, size_t size,
                                       uint64_t patience_ms, tacit_buffer *reply, tacit_error *err)
{
    uint64_t start = tacit_clock_monotonic_ms();
    for (uint32_t limit = 2 * FIRST_PAUSE_MS;;
         limit = limit * 2 > LAST_PAUSE_MS ? LAST_PAUSE_MS : limit * 2) {
        tacit_status status = tacit_link_call(link, request, size, reply, err);
        if (status != TACIT_UNREACHABLE || link->was_refused)
            return status;
        uint64_t pause = limit / 2 + randombytes_uniform(limit / 2);
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
    if (link->config)
        nng_tls_config_free(link->config);
    tacit_tls_report_release(link->report);
    pthread_cond_destroy(&link->done);
    pthread_mutex_destroy(&link->lock);
    free(link);
}
