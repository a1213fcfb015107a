/* A log that goes on from an older copy of itself. What was logged after that copy is lost there,
 * and devices have seen it: to them such a log is one that was cut, and they refuse it. So it goes
 * on as a new *origin*: the copy's entries stay its beginning, an entry `restored` follows, and
 * checkpoints from then on are signed under the origin's next name (ORIGIN, ORIGIN/2, ORIGIN/3: its
 * *generation*). The statement in that entry is signed by the operator key, which devices pinned at
 * enrolment and the log named at its start, and which the server does not have: whoever holds the
 * server alone moves nobody to another origin.
 *
 * The log's own key stays: it says which server signs, the origin says which history. A server of
 * the old origin that is still alive somewhere convinces no device that has moved.
 *
 * Pure, any thread. */
#ifndef TACIT_PRIVACY_RESTORE_H
#define TACIT_PRIVACY_RESTORE_H

#include "common/bytes.h"
#include "common/identity.h"
#include "privacy/note.h"
#include "proto/ledger.pb-c.h"

#define TACIT_RESTORE_DOMAIN "tacit-restore-1"
#define TACIT_RESTORE_STATEMENT_MAX 4096 /* bytes */
#define TACIT_RESTORES_MAX 64            /* that a device catches up with at once */

typedef struct tacit_restore {
    uint32_t generation; /* of the new origin, from 2 */
    char old_origin[TACIT_NOTE_NAME_MAX + 1], new_origin[TACIT_NOTE_NAME_MAX + 1];
    uint64_t size; /* entries that the new origin takes over */
    uint8_t root[TACIT_HASH_BYTES];
    uint8_t log_key[TACIT_SIGN_KEY_BYTES];
    tacit_checkpoint last; /* newest known of the old origin; `size` entries or more */
} tacit_restore;

/* The name of a log's origin in a generation (from 1), given its first name. TACIT_BAD_INPUT when
 * it is too long. */
tacit_status tacit_restore_origin(char out[TACIT_NOTE_NAME_MAX + 1], const char *first,
                                  uint32_t generation, tacit_error *err) TACIT_MUST_CHECK;

/* Packs and signs a statement. `last_note` is what `last` was read from. *statement is malloc'ed,
 * the caller's. */
tacit_status tacit_restore_sign(const tacit_restore *r, tacit_span last_note,
                                const tacit_identity *operator_id, uint8_t **statement,
                                size_t *size, uint8_t signature[TACIT_SIGNATURE_BYTES],
                                tacit_error *err) TACIT_MUST_CHECK;

/* What the statement of an entry says, whoever signed it. TACIT_BAD_INPUT when it is malformed,
 * TACIT_INTEGRITY when its last checkpoint is not signed by the log's key for the old origin, or
 * contradicts the statement; *out holds the rest even then. */
tacit_status tacit_restore_read(tacit_restore *out, const Tacit__Restored *body,
                                tacit_error *err) TACIT_MUST_CHECK;

/* The same when the operator key signed it. TACIT_INTEGRITY also when it did not, or is the log's
 * key too: then the server alone would move devices. Whether it follows the log at hand is the
 * caller's to see. */
tacit_status tacit_restore_open(tacit_restore *out, const Tacit__Restored *body,
                                const uint8_t operator_key[TACIT_SIGN_KEY_BYTES],
                                tacit_error *err) TACIT_MUST_CHECK;

#endif
