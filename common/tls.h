/* TLS 1.3 (RFC 8446) by OpenSSL 3, between bytes and bytes: what is sent and received is the
 * caller's (common/link_channel.h). Suites and signature algorithms are OpenSSL's defaults for TLS
 * 1.3, groups X25519 and P-256; older versions are never negotiated; there are no tickets, no
 * resumption and no early data, so that each connection checks certificates anew.
 *
 * TLS here keeps strangers out; who sent a request is decided by its signature
 * (common/envelope.h).
 *
 * Certificates are judged at the later of the wall clock (common/clock.h) and the time floor. */
#ifndef TACIT_COMMON_TLS_H
#define TACIT_COMMON_TLS_H

#include "common/digest.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Certificates are never judged at a time before `ms`: the time of the last signed checkpoint.
 * Only ever rises. */
void tacit_tls_raise_time_floor(uint64_t ms);
uint64_t tacit_tls_now_ms(void);       /* max(wall clock, floor) */
void tacit_tls_reset_time_floor(void); /* tests only */

/* One side's configuration. Strings are copied. */
typedef struct tacit_tls_setup {
    bool server;
    const char *certificate_pem; /* own chain; NULL: none (a device that enrols) */
    const char *key_pem;         /* of the first certificate */
    const char *roots_pem;       /* whom to trust, one or more; a server with NULL asks for no
                                  * certificate */
    const uint8_t *root_pin;     /* client only, instead of roots_pem: 32 bytes, SHA-256 of the
                                  * root that the server's chain must contain and end in */
    const char *peer_name; /* client: DNS name or IP that the server's certificate must hold */
    const char *crl_pem;   /* revocation lists of the roots, or NULL */
} tacit_tls_setup;

/* Shared by connections, which must be freed before it. */
typedef struct tacit_tls tacit_tls;

/* TACIT_BAD_INPUT for PEM that cannot be used, TACIT_USAGE when nobody could be checked. */
tacit_status tacit_tls_new(tacit_tls **out, const tacit_tls_setup *setup,
                           tacit_error *err) TACIT_MUST_CHECK;
void tacit_tls_free(tacit_tls *tls); /* NULL is fine */

/* A connection, released with SSL_free; its transport is a pair of memory BIOs (SSL_get_rbio,
 * SSL_get_wbio). NULL: no memory. */
struct ssl_st *tacit_tls_connect(tacit_tls *tls) TACIT_MUST_CHECK;

/* Takes the reason of a connection's failure from this thread's queue of OpenSSL, which is empty
 * afterwards. */
void tacit_tls_take_error(tacit_tls *tls);

/* The reason of the newest failed handshake or alert of its connections ("the server's certificate
 * has expired"), or an empty string. Thread-safe, as the two below. */
void tacit_tls_report_text(tacit_tls *tls, char *out, size_t size);
/* True when the newest failure concerns certificates: trying again soon will not help. */
bool tacit_tls_report_is_refusal(tacit_tls *tls);
void tacit_tls_report_clear(tacit_tls *tls);

#endif
