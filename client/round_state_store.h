/* The durable state of the rounds that this device reserved (table `client_round`). What it spent
 * stands in the account; here stands how far the work on it is:
 *
 *   RESERVED      the reserve is signed and stored; the server may not know yet
 *   ACKNOWLEDGED  the log has it; training may run, its checkpoint is rounds/ID.ckpt
 *   SEALED        rounds/ID.sealed is final and durable, the spend is signed; it may be sent
 *   DONE          decided by the server (or, in local training, written out)
 *   ABANDONED     given up for a reason that no data decides
 *
 * At most one round is open (before DONE and ABANDONED). One thread at a time. */
#ifndef TACIT_CLIENT_ROUND_STATE_STORE_H
#define TACIT_CLIENT_ROUND_STATE_STORE_H

#include "common/database.h"
#include "common/digest.h"

#define ROUND_STATE_ID_BYTES 16
#define ROUND_STATE_REASON_MAX 63

typedef enum round_state_kind {
    ROUND_RESERVED = 1,
    ROUND_ACKNOWLEDGED,
    ROUND_SEALED,
    ROUND_DONE,
    ROUND_ABANDONED
} round_state_kind;

typedef struct round_state {
    uint8_t round_id[ROUND_STATE_ID_BYTES];
    bool local; /* no server */
    uint8_t *plan, *schedule;
    size_t plan_size, schedule_size;
    uint8_t reserve_hash[TACIT_DIGEST_BYTES];
    round_state_kind state;
    uint64_t reserved_ms; /* wall clock */
    uint64_t upload_ms;   /* wall clock at which the upload leaves; 0 before SEALED */
    uint64_t sealed_bytes;
    uint8_t sealed_digest[TACIT_DIGEST_BYTES];
    char reason[ROUND_STATE_REASON_MAX + 1]; /* "accepted", the word of a rejection, ... */
} round_state;

const char *round_state_word(round_state_kind state);
void round_state_free(round_state *r);

tacit_status round_state_insert(tacit_database *db, const round_state *r,
                                tacit_error *err) TACIT_MUST_CHECK;
/* Writes everything that changes after the insert. TACIT_NOT_FOUND. */
tacit_status round_state_update(tacit_database *db, const round_state *r,
                                tacit_error *err) TACIT_MUST_CHECK;
tacit_status round_state_exists(tacit_database *db, const uint8_t round_id[ROUND_STATE_ID_BYTES],
                                bool *exists, tacit_error *err) TACIT_MUST_CHECK;
/* The open round of a server, or with `local` of local training; TACIT_NOT_FOUND. */
tacit_status round_state_open(tacit_database *db, bool local, round_state *out,
                              tacit_error *err) TACIT_MUST_CHECK;
/* The round whose reserve has this hash; TACIT_NOT_FOUND. */
tacit_status round_state_find(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                              round_state *out, tacit_error *err) TACIT_MUST_CHECK;
/* The newest first, at most `limit`. */
tacit_status round_state_each(tacit_database *db, uint32_t limit,
                              tacit_status (*each)(void *ctx, const round_state *r,
                                                   tacit_error *err),
                              void *ctx, tacit_error *err) TACIT_MUST_CHECK;

#endif
