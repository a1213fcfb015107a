/* Requests and replies: TLS 1.3 over TCP, moved by nng's streams, between device and server
 * ("tls+tcp://HOST:PORT"; link_channel.h says what is on the wire); a local socket for the operator
 * ("ipc:///DIR/control.sock", mode 0600, no TLS, no nng: see link_local.h). A message is at most
 * TACIT_MESSAGE_MAX bytes in either direction.
 *
 * Trying again is the application's, with the same bytes: every request must be idempotent. A
 * request that failed may still have been executed by the server, and a call whose connection
 * turns out to be closed sends its request once more on a new one. */
#ifndef TACIT_COMMON_LINK_H
#define TACIT_COMMON_LINK_H

#include "common/bytes.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TACIT_MESSAGE_MAX 262144u          /* 256 KiB */
#define TACIT_LINK_WAIT_MAX_MS 0x7fffffffu /* of connect_ms and reply_ms: 24 days */

/* --- Asking --- */

typedef struct tacit_link tacit_link;

typedef struct tacit_link_setup {
    const char *url;             /* "tls+tcp://HOST:PORT", IPv6 in brackets; or "ipc:///PATH" */
    const char *certificate_pem; /* device's chain and key; NULL to enrol and to renew an expired */
    const char *key_pem;         /*   certificate (the listener without client certificates) */
    const char *roots_pem;       /* trusted roots, or */
    const uint8_t *root_pin;     /* 32 bytes: SHA-256 of the server's root, from the token */
    uint32_t connect_ms;         /* wait for a connection; 0: 10,000 */
    uint32_t reply_ms;           /* wait for the reply once sent, and for the network to take each
                                  * 16 KiB of the request; 0: 60,000 */
} tacit_link_setup;

/* Checks the setup; connects when the first request is sent. The server's certificate must hold
 * the HOST of the url. TACIT_BAD_INPUT for a malformed url or PEM, TACIT_USAGE for a wait above
 * TACIT_LINK_WAIT_MAX_MS. Strings are copied. */
tacit_status tacit_link_open(tacit_link **out, const tacit_link_setup *setup,
                             tacit_error *err) TACIT_MUST_CHECK;

/* Sends one request and waits for its reply. It dials again while nobody is there, for connect_ms.
 * `reply` is emptied first and receives the bytes (its cap is set to TACIT_MESSAGE_MAX).
 * TACIT_UNREACHABLE with the reason where it is known ("... the server's certificate has
 * expired"); TACIT_AGAIN after tacit_link_interrupt; TACIT_USAGE for a request above the cap.
 * After a failure the connection is made anew. One thread at a time. */
tacit_status tacit_link_call(tacit_link *link, const void *request, size_t size,
                             tacit_buffer *reply, tacit_error *err) TACIT_MUST_CHECK;

/* The same with retries of the same bytes while the peer is unreachable, with growing random
 * pauses (0.1 s up to 5 s), for at most `patience_ms`; at least one attempt. A refusal that
 * concerns certificates ends it at once. */
tacit_status tacit_link_call_patiently(tacit_link *link, const void *request, size_t size,
                                       uint64_t patience_ms, tacit_buffer *reply,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* True when the last call failed because a certificate was refused by either side. */
bool tacit_link_was_refused(const tacit_link *link);

/* From any thread: the call that runs, and every later one, returns TACIT_AGAIN soon. Only sets a
 * flag, so a signal handler may call it. */
void tacit_link_interrupt(tacit_link *link);

void tacit_link_close(tacit_link *link); /* NULL is fine */

/* --- Answering --- */

/* Called by worker threads, several at a time. `reply` is empty with cap TACIT_MESSAGE_MAX.
 * Returns true to send what `reply` holds; false to close the connection without an answer (bytes
 * that are not a request). */
typedef bool (*tacit_handler)(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply);

typedef struct tacit_listener tacit_listener;

typedef struct tacit_listener_setup {
    const char *url;             /* port 0 takes a free port */
    const char *certificate_pem; /* server's chain (certificate, root) and key; ipc: NULL */
    const char *key_pem;
    const char *roots_pem;  /* roots of device certificates; NULL: none is asked for
                             * (enrolment and renewal of expired ones) */
    size_t workers;         /* threads that call the handler; 0: 2 */
    size_t max_request;     /* bytes; who announces more is hung up on; 0 (and ipc): the most */
    size_t max_connections; /* further ones are closed as they arrive (ipc: wait);
                             * 0: 1,024 (ipc: 64) */
    size_t max_per_address; /* of them from one IPv4 address or one /64 of IPv6; further ones are
                             * closed as they arrive; 0 (and ipc): no such limit */
    uint32_t handshake_ms;  /* a connection whose TLS handshake and greeting are not finished is
                             * closed after this long, after a tenth of it when few places are
                             * left; 0: 10,000 */
    uint32_t idle_ms;       /* one that sends no request for this long is closed, after a quarter of
                             * it when few places are left (never while a request of it waits or is
                             * handled); 0: 60,000. Who asks again connects again. */
    tacit_handler handler;
    void *ctx;
} tacit_listener_setup;

/* Binds and serves until stopped. One request of a connection is taken at a time. Handlers run on
 * the listener's own threads, never on nng's. An existing stale socket file of an ipc url is
 * replaced; one that is served is TACIT_CONFLICT, as is a port in use. */
tacit_status tacit_listener_start(tacit_listener **out, const tacit_listener_setup *setup,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* The url with the real port; valid as long as the listener. */
const char *tacit_listener_url(const tacit_listener *l);
uint16_t tacit_listener_port(const tacit_listener *l); /* 0 for ipc */

typedef struct tacit_listener_counts {
    uint64_t connections; /* open now */
    uint64_t accepted;    /* ever; their handshake may still fail */
    uint64_t turned_away; /* closed because of max_connections or max_per_address */
    uint64_t timed_out;   /* closed because the handshake took too long */
    uint64_t idled;       /* closed because no request came for too long */
    uint64_t requests;    /* given to the handler */
    uint64_t dropped;     /* connections closed because the handler returned false */
} tacit_listener_counts;

tacit_listener_counts tacit_listener_count(tacit_listener *l); /* any thread */

/* Takes no further request, waits for the handlers that run, hands their replies to the
 * connections, closes everything and frees. A peer that misses a reply asks again with the same
 * bytes. NULL is fine. */
void tacit_listener_stop(tacit_listener *l);

#endif
