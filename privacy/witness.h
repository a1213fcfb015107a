/* A witness: somebody who is not the log's server, keeps the newest checkpoint of each log that he
 * cosigned, and cosigns another only when its tree continues that one (c2sp.org/tlog-witness, from
 * exported folders instead of requests). Two views of a log cannot both have his cosignature.
 *
 * DIR holds witness.key (0600), name, lock, and for every log, named by the hash of its origin, the
 * log's key and the last cosigned checkpoint. The lock is held from opening to closing and the new
 * checkpoint is durable before the cosignature is given away: no two callers can be answered from
 * one state. */
#ifndef TACIT_PRIVACY_WITNESS_H
#define TACIT_PRIVACY_WITNESS_H

#include "privacy/export.h"
#include "privacy/note.h"

typedef struct tacit_witness tacit_witness;

/* Makes DIR with a fresh key. TACIT_CONFLICT when it holds one. */
tacit_status tacit_witness_create(const char *dir, const char *name,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_AGAIN when another process has it open. */
tacit_status tacit_witness_open(tacit_witness **out, const char *dir,
                                tacit_error *err) TACIT_MUST_CHECK;
void tacit_witness_close(tacit_witness *w); /* NULL is fine */

const tacit_note_key *tacit_witness_key(const tacit_witness *w);

/* Cosigns the checkpoint of an export whose entries were all read and hashed. A log that is seen
 * for the first time must be named by its key; `log_key` may be NULL later, and must be the same
 * key otherwise. `note` receives the checkpoint with both signatures.
 *
 * TACIT_USAGE: an unknown log without a key. TACIT_INTEGRITY: the checkpoint is not signed by the
 * log's key, is not of these entries, or does not continue the last one; nothing changes then. */
tacit_status tacit_witness_cosign(tacit_witness *w, const tacit_export *log,
                                  const tacit_note_key *log_key, char note[TACIT_CHECKPOINT_MAX],
                                  tacit_error *err) TACIT_MUST_CHECK;

#endif
