/* What device and server share at enrolment: the token's text and what the device signs. */
#ifndef TACIT_COMMON_ENROLMENT_H
#define TACIT_COMMON_ENROLMENT_H

#include "common/digest.h"
#include "common/envelope.h"
#include "common/identity.h"
#include "proto/wire.pb-c.h"

#define TACIT_TOKEN_SECRET_BYTES 16
/* "tacit1-" and the base64url form (no padding) of 16 secret bytes, the enrolment port (u16 LE)
 * and the SHA-256 of the root certificate; with its NUL. */
#define TACIT_TOKEN_TEXT 75
#define TACIT_ENROL_DOMAIN "tacit-enrol-1"

typedef struct tacit_enrol_token {
    uint8_t secret[TACIT_TOKEN_SECRET_BYTES];
    uint16_t port; /* of the enrolment listener, on the host of the main one */
    uint8_t root[TACIT_DIGEST_BYTES];
} tacit_enrol_token;

void tacit_token_write(const tacit_enrol_token *token, char out[TACIT_TOKEN_TEXT]);
/* TACIT_USAGE for anything that tacit_token_write does not write; the text is not repeated in the
 * message, since a token is a secret. */
tacit_status tacit_token_read(tacit_enrol_token *out, const char *text,
                              tacit_error *err) TACIT_MUST_CHECK;

/* SHA-256 over every field of the request but its signature, and the server's nonce: what the
 * identity key signs under TACIT_ENROL_DOMAIN. */
void tacit_enrol_digest(uint8_t out[TACIT_DIGEST_BYTES], const Tacit__EnrolRequest *request,
                        const uint8_t nonce[TACIT_NONCE_BYTES]);

#endif
