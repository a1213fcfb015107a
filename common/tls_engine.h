/* TLS 1.3 (RFC 8446) for nng 1.5.2, by OpenSSL 3 as nng's engine. Suites, groups and signature
 * algorithms are OpenSSL's defaults for TLS 1.3; older versions are never negotiated; there are no
 * tickets, no resumption and no early data, so that each connection checks certificates anew.
 *
 * nng 1.5.2 cannot tell the application who its TLS peer is. TLS here keeps strangers out; who
 * sent a request is decided by its signature (common/envelope.h).
 *
 * Certificates are judged at the later of the wall clock (common/clock.h) and the time floor.
 *
 * nng's own greeting (8 bytes "\0SP\0", protocol, 0) and TLS. nng 1.5.2 exchanges it as soon as a
 * TCP connection is there and gives every failure of that exchange to the one accept operation of
 * its listener: a broken pipe (EPIPE, which nng calls "closed") ends accepting for ever, other
 * failures make it sleep for 100 ms, and a peer that says nothing is never timed out, because the
 * pending write cannot be cancelled. So the engine takes nng's
 * greeting at once, keeps it until the handshake is done, and on a server gives nng the greeting
 * that the peer must send before it is there; the real one is compared when it arrives. Failures
 * then concern the one pipe alone, and the listener closes pipes that do not finish the handshake
 * in time (common/link_listener.c).
 *
 * A socket must be closed by tls_gate_close (common/tls_gate.h): nng 1.5.2 forgets connections
 * whose negotiation is going on when their socket is closed. */
#ifndef TACIT_COMMON_TLS_ENGINE_H
#define TACIT_COMMON_TLS_ENGINE_H

#include "common/digest.h"
#include "common/status.h"
#include "common/tls_gate.h"

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <stdbool.h>
#include <stdint.h>

/* Puts the engine into nng; any number of calls, from any thread. tacit_link_open and
 * tacit_listener_start call it. TACIT_FAILED when the library is not nng 1.5.x (the engine's
 * contract changed in 1.6) or when another engine is in place. After nng_fini() (tests only) the
 * next call registers it again. */
tacit_status tacit_tls_start(tacit_error *err) TACIT_MUST_CHECK;

/* Certificates are never judged at a time before `ms`: the time of the last signed checkpoint.
 * Only ever rises. */
void tacit_tls_raise_time_floor(uint64_t ms);
uint64_t tacit_tls_now_ms(void);       /* max(wall clock, floor) */
void tacit_tls_reset_time_floor(void); /* tests only */

/* What a configuration saw fail last, in words; shared with the connections that use it. */
typedef struct tacit_tls_report tacit_tls_report;

/* The reason of the newest failed handshake or alert ("the server's certificate has expired"), or
 * an empty string. Thread-safe. */
void tacit_tls_report_text(tacit_tls_report *report, char *out, size_t size);
/* True when the newest failure concerns certificates: trying again soon will not help. */
bool tacit_tls_report_is_refusal(tacit_tls_report *report);
void tacit_tls_report_clear(tacit_tls_report *report);
void tacit_tls_report_release(tacit_tls_report *report); /* NULL is fine */

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
    uint16_t sp_peer;      /* server: SP protocol of the peers (0x30: REQ) for the greeting that is
                            * given ahead; 0: none is */
} tacit_tls_setup;

/* *config is released with nng_tls_config_free, after its socket was closed by *gate, which lives
 * as long as it; *report (may be NULL) with tacit_tls_report_release. TACIT_BAD_INPUT for PEM that
 * cannot be used. */
tacit_status tacit_tls_config_new(nng_tls_config **config, tls_gate **gate,
                                  tacit_tls_report **report, const tacit_tls_setup *setup,
                                  tacit_error *err) TACIT_MUST_CHECK;

#endif
