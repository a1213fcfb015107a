#include "privacy/receipt.h"

#include "proto/receipt.pb-c.h"

#include <string.h>

#define RECEIPT_FORMAT 1

tacit_status tacit_proof_from_fields(tacit_proof *out, const ProtobufCBinaryData *fields,
                                     size_t count, tacit_error *err)
{
    out->count = 0;
    if (count > TACIT_PROOF_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "proof: expected at most %d hashes, found %zu",
                          TACIT_PROOF_MAX, count);
    for (size_t i = 0; i < count; i++) {
        if (fields[i].len != TACIT_HASH_BYTES)
            return tacit_fail(err, TACIT_BAD_INPUT, "proof: hash %zu has %zu bytes, expected %d", i,
                              fields[i].len, TACIT_HASH_BYTES);
        memcpy(out->hash[i], fields[i].data, TACIT_HASH_BYTES);
    }
    out->count = count;
    return TACIT_OK;
}

void tacit_proof_to_fields(const tacit_proof *proof, ProtobufCBinaryData *fields)
{
    for (size_t i = 0; i < proof->count; i++)
        fields[i] = tacit_field_of(proof->hash[i], TACIT_HASH_BYTES);
}

tacit_status tacit_receipt_verify(const tacit_receipt *receipt, const tacit_note_key *log,
                                  tacit_checkpoint *checkpoint, tacit_error *err)
{
    tacit_checkpoint signed_head;
    uint8_t leaf[TACIT_HASH_BYTES];
    tacit_status status = tacit_checkpoint_verify(&signed_head, receipt->checkpoint.data,
                                                  receipt->checkpoint.size, log, err);
    if (status != TACIT_OK)
        return status;
    tacit_merkle_leaf(leaf, receipt->entry.data, receipt->entry.size);
    status = tacit_merkle_verify_inclusion(leaf, receipt->index, signed_head.size,
                                           &receipt->inclusion, signed_head.root, err);
    if (status == TACIT_OK && checkpoint)
        *checkpoint = signed_head;
    return status;
}

tacit_status tacit_receipt_pack(const tacit_receipt *receipt, uint8_t **bytes, size_t *size,
                                tacit_error *err)
{
    ProtobufCBinaryData hashes[TACIT_PROOF_MAX];
    Tacit__Receipt m = TACIT__RECEIPT__INIT;
    tacit_proof_to_fields(&receipt->inclusion, hashes);
    m.format = RECEIPT_FORMAT;
    m.entry = tacit_field_of(receipt->entry.data, receipt->entry.size);
    m.index = receipt->index;
    m.inclusion = hashes;
    m.n_inclusion = receipt->inclusion.count;
    m.checkpoint = tacit_field_of(receipt->checkpoint.data, receipt->checkpoint.size);
    return tacit_message_pack(&m, TACIT_RECEIPT_MAX, bytes, size, err);
}

tacit_status tacit_receipt_unpack(tacit_receipt *out, void **message, const void *bytes,
                                  size_t size, tacit_error *err)
{
    Tacit__Receipt *m;
    *message = NULL;
    tacit_status status = TACIT_UNPACK(&m, tacit__receipt, bytes, size, TACIT_RECEIPT_MAX, err);
    if (status != TACIT_OK)
        return status;
    *out = (tacit_receipt){
        .entry = tacit_span_of(m->entry),
        .index = m->index,
        .checkpoint = tacit_span_of(m->checkpoint),
    };
    if (m->format != RECEIPT_FORMAT)
        status = tacit_fail(err, TACIT_BAD_INPUT, "receipt: expected format %d, found %u",
                            RECEIPT_FORMAT, m->format);
    if (status == TACIT_OK)
        status = tacit_proof_from_fields(&out->inclusion, m->inclusion, m->n_inclusion, err);
    if (status == TACIT_OK)
        *message = m;
    else
        tacit_message_free(m);
    return status;
}
