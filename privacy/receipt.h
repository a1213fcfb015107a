/* A receipt: one entry, proof that a signed checkpoint covers it. Devices keep them; an auditor
 * holds them against an export. File format: one Receipt message of proto/receipt.proto. */
#ifndef TACIT_PRIVACY_RECEIPT_H
#define TACIT_PRIVACY_RECEIPT_H

#include "common/message.h"
#include "privacy/merkle.h"
#include "privacy/note.h"

#define TACIT_RECEIPT_MAX ((size_t)256 * 1024)

typedef struct tacit_receipt {
    tacit_span entry; /* SignedEntry bytes */
    uint64_t index;
    tacit_proof inclusion; /* in the checkpoint's tree */
    tacit_span checkpoint; /* note text */
} tacit_receipt;

/* From proof hashes as they travel (ReserveReply.inclusion and the like): each 32 bytes, at most
 * TACIT_PROOF_MAX. */
tacit_status tacit_proof_from_fields(tacit_proof *out, const ProtobufCBinaryData *fields,
                                     size_t count, tacit_error *err) TACIT_MUST_CHECK;

/* Points fields[TACIT_PROOF_MAX] at the proof's hashes, for packing into a reply. */
void tacit_proof_to_fields(const tacit_proof *proof, ProtobufCBinaryData *fields);

/* Checkpoint signed by `log`, entry included. *checkpoint (may be NULL) receives it. The entry's
 * own signature is tacit_entry_open's business. TACIT_INTEGRITY when it does not hold. */
tacit_status tacit_receipt_verify(const tacit_receipt *receipt, const tacit_note_key *log,
                                  tacit_checkpoint *checkpoint, tacit_error *err) TACIT_MUST_CHECK;

tacit_status tacit_receipt_pack(const tacit_receipt *receipt, uint8_t **bytes, size_t *size,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Views into *message, which the caller frees with tacit_message_free. Proves nothing. */
tacit_status tacit_receipt_unpack(tacit_receipt *out, void **message, const void *bytes,
                                  size_t size, tacit_error *err) TACIT_MUST_CHECK;

#endif
