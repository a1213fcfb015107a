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

#endif
