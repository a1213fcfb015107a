/* Enrolled devices: keys, the newest request and its reply, states that end a device. Tables
 * `server_device` and `server_token`. Everything here runs on the writer's thread. */
#ifndef TACIT_SERVER_DEVICE_STORE_H
#define TACIT_SERVER_DEVICE_STORE_H

#include "common/database.h"
#include "common/digest.h"
#include "common/identity.h"

#define DEVICE_NAME_MAX 64 /* bytes of the operator's name for a device, NUL not counted */

#define DEVICE_LINEAGE_BYTES 16

/* Creates or migrates the tables. */
tacit_status device_store_open(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;

typedef struct device_row {
    uint8_t device[TACIT_DEVICE_BYTES];
    char name[DEVICE_NAME_MAX + 1]; /* for the operator alone: never in the ledger */
    uint8_t identity_key[TACIT_SIGN_KEY_BYTES];
    uint8_t
        enrolment[TACIT_DIGEST_BYTES];  /* of keys and policy: what makes an enrolment the same */
    uint64_t entry_index;               /* of the Enrol entry */
    uint64_t counter;                   /* of the newest request that changed state */
    uint8_t action[TACIT_DIGEST_BYTES]; /* what it asked for */
    uint64_t enrolled_ms, seen_ms, certificate_until_ms;
    uint64_t active_version;        /* of the adapter that it fetched last */
    uint64_t certificates_since_ms; /* begin of the hour in which it got this many: */
    uint32_t certificates;
    bool revoked, frozen;
    bool has_declined; /* it says that its policy or account refuses the plans of this lineage: */
    uint8_t declined[DEVICE_LINEAGE_BYTES];
} device_row;

/* How messages call it: its name, or the beginning of its pseudonym when it has none. */
typedef struct device_label {
    char text[DEVICE_NAME_MAX + 1];
} device_label;
device_label device_called(const device_row *row);

/* TACIT_REFUSED "unknown device" when there is none. */
tacit_status device_get(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                        device_row *out, tacit_error *err) TACIT_MUST_CHECK;
tacit_status device_insert(tacit_database *db, const device_row *row,
                           tacit_error *err) TACIT_MUST_CHECK;
tacit_status device_seen(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                         uint64_t now_ms, uint64_t active_version,
                         tacit_error *err) TACIT_MUST_CHECK;

/* Certificates of one device that are issued within an hour, the enrolment's own included: enough
 * for lost replies and for restarts in the middle of a renewal, too few to keep the issuer busy or
 * to fill the log. The hour begins with its first one. */
#define DEVICE_CERTIFICATES_AN_HOUR 4

/* TACIT_AGAIN, with the minutes to wait, when it got as many already. */
tacit_status device_may_certify(const device_row *row, uint64_t now_ms,
                                tacit_error *err) TACIT_MUST_CHECK;
/* Notes one that was issued at `now_ms`; `row` is the device's as stored. */
tacit_status device_set_certificate(tacit_database *db, const device_row *row, uint64_t until_ms,
                                    uint64_t now_ms, tacit_error *err) TACIT_MUST_CHECK;

/* `lineage` NULL: it declines nothing any more. */
tacit_status device_set_declined(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                                 const uint8_t *lineage, tacit_error *err) TACIT_MUST_CHECK;

tacit_status device_freeze(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                           tacit_error *err) TACIT_MUST_CHECK;
tacit_status device_revoke(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                           tacit_error *err) TACIT_MUST_CHECK;

/* Calls `each` for every device in the order of enrolment. */
tacit_status device_each(tacit_database *db,
                         tacit_status (*each)(void *ctx, const device_row *row, tacit_error *err),
                         void *ctx, tacit_error *err) TACIT_MUST_CHECK;

/* The reply to the newest state-changing request, for a repeat of it. */
tacit_status device_store_reply(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                                uint64_t counter, const uint8_t action[TACIT_DIGEST_BYTES],
                                tacit_status reply, const char *message, tacit_span body,
                                tacit_error *err) TACIT_MUST_CHECK;
tacit_status device_stored_reply(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                                 tacit_status *reply, char message[TACIT_ERROR_MAX],
                                 tacit_buffer *body, tacit_error *err) TACIT_MUST_CHECK;

/* --- One-time tokens: only BLAKE2b-256 of the 16 secret bytes is kept --- */

#define TOKEN_BYTES 16
#define TOKEN_ID_TEXT 17 /* 16 hex digits of the hash and a NUL: how the operator names one */

typedef struct token_row {
    char id[TOKEN_ID_TEXT];
    uint64_t created_ms, expires_ms, used_ms; /* used 0: not yet */
    bool revoked;
} token_row;

/* Stores the hash of a fresh token. `id` receives its name. */
tacit_status token_insert(tacit_database *db, const uint8_t token[TOKEN_BYTES], uint64_t now_ms,
                          uint64_t expires_ms, char id[TOKEN_ID_TEXT],
                          tacit_error *err) TACIT_MUST_CHECK;
/* Marks it used by the device. TACIT_REFUSED, always with the same words, when it is unknown,
 * expired, revoked or used. */
tacit_status token_consume(tacit_database *db, const uint8_t token[TOKEN_BYTES], uint64_t now_ms,
                           const uint8_t device[TACIT_DEVICE_BYTES],
                           tacit_error *err) TACIT_MUST_CHECK;
/* Whether it was used, while it is neither expired nor revoked, and by whom. */
tacit_status token_used_by(tacit_database *db, const uint8_t token[TOKEN_BYTES], uint64_t now_ms,
                           uint8_t device[TACIT_DEVICE_BYTES], bool *used,
                           tacit_error *err) TACIT_MUST_CHECK;
tacit_status token_revoke(tacit_database *db, const char *id, tacit_error *err) TACIT_MUST_CHECK;
/* Those that nobody used, as far as this database knows. */
tacit_status token_revoke_all(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;
tacit_status token_each(tacit_database *db,
                        tacit_status (*each)(void *ctx, const token_row *row, tacit_error *err),
                        void *ctx, tacit_error *err) TACIT_MUST_CHECK;

#endif
