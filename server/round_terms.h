/* A round's plan in the forms that intake and aggregation need, loaded from the database. */
#ifndef TACIT_SERVER_ROUND_TERMS_H
#define TACIT_SERVER_ROUND_TERMS_H

#include "engine/adapter.h"
#include "server/intake.h"
#include "server/server.h"

typedef struct round_terms {
    round_row round;
    Tacit__Plan *plan;
    tacit_secret secret;
    tacit_trainable_spec spec; /* points into plan */
    tacit_layout layout;
} round_terms;

/* On the writer's thread. TACIT_NOT_FOUND when the round's key is erased. */
tacit_status round_terms_load(round_terms *out, server *s, const uint8_t round_id[ROUND_ID_BYTES],
                              tacit_error *err) TACIT_MUST_CHECK;
/* TACIT_INTEGRITY, naming both, when the plan is of another base than the server's model. */
tacit_status round_check_base(const server *s, const Tacit__Plan *plan,
                              tacit_error *err) TACIT_MUST_CHECK;
/* TACIT_USAGE, naming numbers and key, when an update of the plan is larger than the server takes,
 * or all that may be asked for do not fit uploads.max_mib. So what devices announce is bounded
 * before they are asked: nobody can fill the disk with uploads. */
tacit_status round_check_room(const server *s, const Tacit__Plan *plan,
                              tacit_error *err) TACIT_MUST_CHECK;
/* Devices that a round with this cohort asks when that many are there. */
size_t round_asks(uint32_t cohort);
void round_terms_free(round_terms *t);

/* The intake gate's view of the terms for one device. */
intake_terms round_terms_for(const round_terms *t, const uint8_t *signer_key);

/* DIR/uploads/HEX.sealed of a reserve. */
tacit_status round_upload_path(const server *s, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                               char out[SERVER_PATH_MAX], tacit_error *err) TACIT_MUST_CHECK;
/* DIR/adapters/HEX.gguf of a file's digest. */
tacit_status round_adapter_path(const server *s, const uint8_t digest[TACIT_DIGEST_BYTES],
                                char out[SERVER_PATH_MAX], tacit_error *err) TACIT_MUST_CHECK;

/* What the next round of the running lineage costs a device; *has is false when there is none, and
 * *out is the caller's to free when it is true. On the writer's thread. */
tacit_status round_next_price(const server *s, tacit_ledger_price *out, bool *has,
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
