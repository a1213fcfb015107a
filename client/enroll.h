/* Becoming a device of a server: keys are made here, a one-time token says which server (by the
 * SHA-256 of its root) and is used up; what comes back is checked and pinned. */
#ifndef TACIT_CLIENT_ENROLL_H
#define TACIT_CLIENT_ENROLL_H

#include "client/client.h"

typedef struct client_enroll_request {
    const char *server;        /* "tls+tcp://HOST:PORT" of the main listener */
    const char *token;         /* text, common/enrolment.h */
    const char *name;          /* for the operator alone; "" for none */
    const uint8_t *policy_key; /* TACIT_SIGN_KEY_BYTES that may raise caps, pinned; NULL: none */
    uint64_t patience_ms;
} client_enroll_request;

/* TACIT_USAGE unless server and token can be meant. */
tacit_status client_enroll_check(const client_enroll_request *request,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_CONFLICT: enrolled already, or the keys signed local training before. TACIT_REFUSED: the
 * token is used up, expired or unknown. TACIT_INTEGRITY: the server is not the token's. Nothing is
 * stored on failure but the device's own new keys. */
tacit_status client_enroll(client *c, const client_enroll_request *request,
                           tacit_error *err) TACIT_MUST_CHECK;

/* Renews the certificate when more than half of its life is over: over the main listener in time,
 * over the enrolment listener once it has expired. *renewed says whether it did. */
tacit_status client_renew_if_due(client *c, uint64_t patience_ms, bool *renewed,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Renews over the enrolment listener whatever the own clock says: the server refused the
 * certificate that is in force. */
tacit_status client_renew_refused(client *c, uint64_t patience_ms,
                                  tacit_error *err) TACIT_MUST_CHECK;

#endif
