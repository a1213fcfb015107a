/* Who somebody is: an Ed25519 signing key (RFC 8032) and an X25519 exchange key (RFC 7748), made
 * on the machine that keeps them and stored in one file of mode 0600. Devices have one identity,
 * the server several (replies, log), each in its own file.
 *
 * Every signature of this project is over `domain`, one NUL byte, and the message, so that bytes
 * signed for one purpose are worth nothing for another: "tacit-request-1", "tacit-reply-1",
 * "tacit-entry-1", "tacit-policy-1", "tacit-enrol-1", "tacit-update-1", ...
 *
 * A loaded identity is immutable: its functions may be called from any thread. */
#ifndef TACIT_COMMON_IDENTITY_H
#define TACIT_COMMON_IDENTITY_H

#include "common/secret.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TACIT_DEVICE_BYTES 16    /* a device's pseudonym, given by the server at enrolment */
#define TACIT_SIGN_KEY_BYTES 32  /* Ed25519 public key */
#define TACIT_EXCHANGE_BYTES 32  /* X25519 public key, secret key or shared point */
#define TACIT_SIGNATURE_BYTES 64 /* Ed25519 */

typedef struct tacit_identity tacit_identity;

/* Makes fresh keys and stores them under `path` (0600, durably) before it returns. TACIT_CONFLICT
 * when the file exists: an identity is never overwritten. Free with tacit_identity_free. */
tacit_status tacit_identity_create(tacit_identity **out, const char *path,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_NOT_FOUND, TACIT_REFUSED (others may read the file), TACIT_INTEGRITY (the checksum inside
 * does not hold). */
tacit_status tacit_identity_load(tacit_identity **out, const char *path,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Keys that live in memory alone: tests, one-off exchanges. */
tacit_status tacit_identity_ephemeral(tacit_identity **out, tacit_error *err) TACIT_MUST_CHECK;

void tacit_identity_free(tacit_identity *id); /* wipes; NULL is fine */

const uint8_t *tacit_identity_sign_key(const tacit_identity *id);     /* Ed25519 public, 32 bytes */
const uint8_t *tacit_identity_exchange_key(const tacit_identity *id); /* X25519 public, 32 bytes */

/* Ed25519 over domain, NUL, message. `domain` NULL signs the message as it stands, which only
 * formats of others need (C2SP signed notes). TACIT_NO_MEMORY. */
tacit_status tacit_identity_sign(const tacit_identity *id, const char *domain, const void *message,
                                 size_t size, uint8_t signature[TACIT_SIGNATURE_BYTES],
                                 tacit_error *err) TACIT_MUST_CHECK;

/* True when the signature holds; false also for keys of small order and when memory is short. */
bool tacit_signature_holds(const uint8_t key[TACIT_SIGN_KEY_BYTES], const char *domain,
                           const void *message, size_t size,
                           const uint8_t signature[TACIT_SIGNATURE_BYTES]) TACIT_MUST_CHECK;

/* X25519 of our secret key with `peer`. TACIT_INTEGRITY when the result is all zero (a peer's key
 * of small order). The caller wipes `shared` and never uses it as a key without hashing. */
tacit_status tacit_identity_exchange(const tacit_identity *id,
                                     const uint8_t peer[TACIT_EXCHANGE_BYTES],
                                     uint8_t shared[TACIT_EXCHANGE_BYTES],
                                     tacit_error *err) TACIT_MUST_CHECK;

#endif
