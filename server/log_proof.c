#include "server/log_proof.h"

tacit_status log_proof_inclusion(log_proof *out, const server *s, uint64_t index,
                                 const writer_point *point, tacit_error *err)
{
    tacit_status status = tacit_ledger_inclusion(s->ledger, index, point->size, &out->proof, err);
    if (status == TACIT_OK)
        tacit_proof_to_fields(&out->proof, out->fields);
    return status;
}

tacit_status log_proof_consistency(log_proof *out, const server *s, uint64_t known_size,
                                   const writer_point *point, tacit_error *err)
{
    out->proof.count = 0;
    if (known_size == 0)
        return TACIT_OK;
    if (known_size > point->size)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "the device holds a checkpoint of %llu entries, this log has %llu: the "
                          "server was restored from an older copy, and nobody vouched for that",
                          (unsigned long long)known_size, (unsigned long long)point->size);
    tacit_status status =
        tacit_ledger_consistency(s->ledger, known_size, point->size, &out->proof, err);
    if (status == TACIT_OK)
        tacit_proof_to_fields(&out->proof, out->fields);
    return status;
}

tacit_status log_proofs_make(log_proofs *out, const server *s, uint64_t index, uint64_t known_size,
                             const writer_point *point, tacit_error *err)
{
    tacit_status status = log_proof_inclusion(&out->inclusion, s, index, point, err);
    return status == TACIT_OK ? log_proof_consistency(&out->consistency, s, known_size, point, err)
                              : status;
}
