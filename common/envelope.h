/* Signed requests and replies (proto/wire.proto). The device signs method, counter, server nonce
 * and body; the server signs device, counter and the hash of the request. Bytes are verified as
 * received and never serialised again. Order and replay are decided by counters and the nonce,
 * never by wall clocks.
 *
 *   device                                                server
 *   HELLO{min,max}            ----------------------->    versions, server key, nonce
 *   SignedRequest{Request}    ----------------------->    parse, signature, judge, act
 *            <----------------------- SignedReply{Reply{request_hash, next nonce, body}}
 *
 * HELLO is not signed; it names the device where there is one, so that the nonce is the device's.
 * ENROL carries its own signature in its body. CONTROL travels over the local socket alone.
 * All functions are pure and thread-safe except tacit_caller_*. */
#ifndef TACIT_COMMON_ENVELOPE_H
#define TACIT_COMMON_ENVELOPE_H

#include "common/bytes.h"
#include "common/digest.h"
#include "common/identity.h"
#include "common/link.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TACIT_PROTOCOL_MIN 1u
#define TACIT_PROTOCOL_MAX 1u
#define TACIT_NONCE_BYTES 32

/* The most bytes of a body, so that the whole message stays below TACIT_MESSAGE_MAX. */
#define TACIT_BODY_MAX (TACIT_MESSAGE_MAX - 2048u)

/* --- Requests --- */

/* What a request says. `method` is a Tacit__Method of proto/wire.pb-c.h. Views point into memory
 * of whoever filled the struct. */
typedef struct tacit_request {
    uint32_t protocol;
    uint32_t method;
    bool has_device; /* false: HELLO before enrolment, ENROL, CONTROL */
    uint8_t device[TACIT_DEVICE_BYTES];
    uint64_t counter;
    bool has_nonce;
    uint8_t nonce[TACIT_NONCE_BYTES];
    tacit_span body;
} tacit_request;

/* Serialises and signs; `signer` NULL leaves the signature empty (HELLO, ENROL, CONTROL). `out` is
 * emptied first; `hash` receives SHA-256 of the request bytes, which the reply must repeat.
 * TACIT_USAGE for a body above TACIT_BODY_MAX. */
tacit_status tacit_request_build(const tacit_request *request, const tacit_identity *signer,
                                 tacit_buffer *out, uint8_t hash[TACIT_DIGEST_BYTES],
                                 tacit_error *err) TACIT_MUST_CHECK;

/* A request as received, before its signature is believed. Free with tacit_received_free. */
typedef struct tacit_received {
    tacit_request request;              /* body points into `memory` */
    uint8_t hash[TACIT_DIGEST_BYTES];   /* SHA-256 of the request bytes */
    uint8_t action[TACIT_DIGEST_BYTES]; /* SHA-256 of method and body: what was asked for */
    void *memory;
} tacit_received;

/* Parses hostile bytes: bounded memory, no unknown field, method or size. TACIT_BAD_INPUT. */
tacit_status tacit_request_parse(tacit_received *out, const uint8_t *bytes, size_t size,
                                 tacit_error *err) TACIT_MUST_CHECK;
void tacit_received_free(tacit_received *r);

/* TACIT_INTEGRITY when the signature is not by `key`, or is missing. */
tacit_status tacit_request_verify(const tacit_received *r, const uint8_t key[TACIT_SIGN_KEY_BYTES],
                                  tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_REFUSED with both versions when the request speaks a protocol that this program does not;
 * HELLO always passes. Answer with it, signed, so that the device can say what to do. */
tacit_status tacit_request_check_protocol(const tacit_received *r,
                                          tacit_error *err) TACIT_MUST_CHECK;

/* --- Server's nonce: HMAC-SHA-256 over device and hour, nothing is stored --- */

#define TACIT_NONCE_KEY_BYTES 32

/* `device` NULL: somebody not enrolled yet. `now_ms` is the server's clock. */
void tacit_nonce_make(const uint8_t key[TACIT_NONCE_KEY_BYTES], const uint8_t *device,
                      uint64_t now_ms, uint8_t out[TACIT_NONCE_BYTES]);

/* True for the nonce of this hour or of the one before. */
bool tacit_nonce_holds(const uint8_t key[TACIT_NONCE_KEY_BYTES], const uint8_t *device,
                       uint64_t now_ms, const uint8_t nonce[TACIT_NONCE_BYTES]) TACIT_MUST_CHECK;

/* --- What to do with a request whose signature holds --- */

typedef enum tacit_verdict {
    TACIT_VERDICT_FRESH,  /* execute; store counter, action and reply if the method changes state */
    TACIT_VERDICT_REPEAT, /* send the stored status, message and body again, signed anew */
    TACIT_VERDICT_STALE,  /* answer TACIT_AGAIN with a new nonce; the counter is not used up */
    TACIT_VERDICT_OLD,    /* answer TACIT_CONFLICT: a counter below the stored one */
    TACIT_VERDICT_CLONE   /* the stored counter with another body: freeze the device */
} tacit_verdict;

/* `last_counter` and `last_action` are what was stored for the device (0 and zeros at first). A
 * repeat is recognised before the nonce is looked at, so that a reply lost for hours can still be
 * fetched. Counter 0 is never fresh. */
tacit_verdict tacit_request_judge(const tacit_received *r, uint64_t last_counter,
                                  const uint8_t last_action[TACIT_DIGEST_BYTES],
                                  const uint8_t nonce_key[TACIT_NONCE_KEY_BYTES], uint64_t now_ms);

/* --- Replies --- */

typedef struct tacit_reply {
    bool has_device;
    uint8_t device[TACIT_DEVICE_BYTES];
    uint64_t counter;
    uint8_t request_hash[TACIT_DIGEST_BYTES];
    tacit_status status;
    const char *message; /* the error's line; "" when status is TACIT_OK */
    bool has_nonce;
    uint8_t nonce[TACIT_NONCE_BYTES];
    tacit_span body;
} tacit_reply;

/* A reply to `r`: device, counter and request hash are taken from it. `signer` NULL only on the
 * control socket. A message is cut at 900 bytes. */
tacit_status tacit_reply_build(const tacit_received *r, tacit_status result, const char *message,
                               const uint8_t *nonce, tacit_span body, const tacit_identity *signer,
                               tacit_buffer *out, tacit_error *err) TACIT_MUST_CHECK;

typedef struct tacit_answer {
    tacit_reply reply; /* message and body point into `memory` */
    void *memory;
} tacit_answer;

/* Parses a reply and checks that it answers exactly this request: device, counter, request hash,
 * and the signature by `server_key` (NULL only on the control socket and for the first HELLO,
 * whose body carries the key; call tacit_reply_verify then). TACIT_INTEGRITY or TACIT_BAD_INPUT.
 * A reply with an error status is TACIT_OK here: look at reply.status. */
tacit_status tacit_reply_parse(tacit_answer *out, const uint8_t *bytes, size_t size,
                               const tacit_request *request,
                               const uint8_t request_hash[TACIT_DIGEST_BYTES],
                               const uint8_t *server_key, tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_reply_verify(const uint8_t *bytes, size_t size,
                                const uint8_t server_key[TACIT_SIGN_KEY_BYTES],
                                tacit_error *err) TACIT_MUST_CHECK;
void tacit_answer_free(tacit_answer *a);

/* --- Versions --- */

/* The highest common version, or TACIT_REFUSED with both ranges, both programs' versions and what
 * to do. */
tacit_status tacit_protocol_agree(uint32_t peer_min, uint32_t peer_max, const char *peer_version,
                                  uint32_t *protocol, tacit_error *err) TACIT_MUST_CHECK;

/* --- The device's side of the conversation --- */

/* One peer over one link: says HELLO by itself, numbers, signs, retries with the same bytes,
 * fetches a new nonce when the server asks, checks replies. One thread at a time. */
typedef struct tacit_caller tacit_caller;

typedef struct tacit_caller_setup {
    tacit_link *link;               /* outlives the caller */
    const tacit_identity *identity; /* outlives the caller; NULL: enrolment, control socket */
    const uint8_t *device;          /* 16 bytes; NULL before enrolment and on the control socket */
    const uint8_t *server_key;      /* pinned at enrolment; NULL: learnt from HELLO */
    bool control;                   /* control socket: no HELLO, no signatures */
    uint64_t patience_ms;           /* of one call, retries included */
    /* Gives the next counter, higher than every one before, durably stored before it returns. NULL
     * with a device: counters start at `first_counter` and live in memory (read-only methods). */
    tacit_status (*next_counter)(void *ctx, uint64_t *counter, tacit_error *err);
    void *ctx;
    uint64_t first_counter;
} tacit_caller_setup;

tacit_status tacit_caller_new(tacit_caller **out, const tacit_caller_setup *setup,
                              tacit_error *err) TACIT_MUST_CHECK;
void tacit_caller_free(tacit_caller *c); /* does not close the link */

/* Sends `body` for `method` and waits. On TACIT_OK `answer` holds the checked reply, whose status
 * is TACIT_OK too. A reply with another status is returned as that status with its message in
 * `err` ("server: ..."). TACIT_UNREACHABLE when patience ran out. Free the answer in any case. */
tacit_status tacit_caller_call(tacit_caller *c, uint32_t method, tacit_span body,
                               tacit_answer *answer, tacit_error *err) TACIT_MUST_CHECK;

/* The nonce that the next request will carry, for a body that is signed over it (ENROL); says
 * HELLO when there is none yet. */
tacit_status tacit_caller_nonce(tacit_caller *c, uint8_t out[TACIT_NONCE_BYTES],
                                tacit_error *err) TACIT_MUST_CHECK;

/* After the first successful call: the server's key, pinned or learnt. NULL before. */
const uint8_t *tacit_caller_server_key(const tacit_caller *c);

#endif
