/* The proofs that go with a reply: an entry's inclusion in the commit's checkpoint, and that this
 * checkpoint follows the one that the device holds. */
#ifndef TACIT_SERVER_LOG_PROOF_H
#define TACIT_SERVER_LOG_PROOF_H

#include "privacy/receipt.h"
#include "server/server.h"

/* The fields point into the proofs; the struct must not be copied. */
typedef struct log_proof {
    tacit_proof proof;
    ProtobufCBinaryData fields[TACIT_PROOF_MAX];
} log_proof;

tacit_status log_proof_inclusion(log_proof *out, const server *s, uint64_t index,
                                 const writer_point *point, tacit_error *err) TACIT_MUST_CHECK;

/* From the checkpoint of `known_size` entries (0: none is held, no proof). TACIT_INTEGRITY when the
 * device holds a larger one than this log has. */
tacit_status log_proof_consistency(log_proof *out, const server *s, uint64_t known_size,
                                   const writer_point *point, tacit_error *err) TACIT_MUST_CHECK;

/* Both of one entry. */
typedef struct log_proofs {
    log_proof inclusion, consistency;
} log_proofs;

tacit_status log_proofs_make(log_proofs *out, const server *s, uint64_t index, uint64_t known_size,
                             const writer_point *point, tacit_error *err) TACIT_MUST_CHECK;

/* Puts them, the entry's index and the checkpoint into a reply, of whichever message has the fields
 * index, checkpoint, inclusion and consistency. The proofs outlive the reply. */
#define LOG_PROOFS_TELL(reply, proofs, entry_index, point)                                         \
    do {                                                                                           \
        (reply)->index = (entry_index);                                                            \
        (reply)->checkpoint = tacit_field_of((point)->checkpoint, strlen((point)->checkpoint));    \
        (reply)->inclusion = (proofs)->inclusion.fields;                                           \
        (reply)->n_inclusion = (proofs)->inclusion.proof.count;                                    \
        (reply)->consistency = (proofs)->consistency.fields;                                       \
        (reply)->n_consistency = (proofs)->consistency.proof.count;                                \
    } while (0)

#endif
