/* Checkpoints of the log that an account has seen, each the successor of the one before, and the
 * receipts of its own entries. */
#include "privacy/account_internal.h"

#include <stdlib.h>
#include <string.h>

static tacit_status checkpoint_follow(tacit_account *account, tacit_span note,
                                      const tacit_proof *consistency, const tacit_note_key *log,
                                      tacit_checkpoint *out, tacit_error *err)
{
    tacit_checkpoint held;
    bool found;
    tacit_status status = tacit_checkpoint_verify(out, note.data, note.size, log, err);
    if (status == TACIT_OK)
        status = account_checkpoint_read(account->db, 0, true, &held, NULL, &found, err);
    if (status != TACIT_OK)
        return status;
    if (!found)
        return account_checkpoint_insert(account->db, out, note, err);
    if (out->size < held.size)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "log: the checkpoint of %llu entries is older than the one of %llu that "
                          "this device holds: the log was rolled back",
                          (unsigned long long)out->size, (unsigned long long)held.size);
    static const tacit_proof nothing;
    status = tacit_merkle_verify_consistency(held.size, held.root, out->size, out->root,
                                             out->size == held.size ? &nothing : consistency, err);
    if (status == TACIT_OK && out->size > held.size)
        status = account_checkpoint_insert(account->db, out, note, err);
    return status;
}

tacit_status tacit_account_checkpoint(tacit_account *account, tacit_span note,
                                      const tacit_proof *consistency, const tacit_note_key *log,
                                      tacit_error *err)
{
    tacit_checkpoint checkpoint;
    bool own;
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = checkpoint_follow(account, note, consistency, log, &checkpoint, err);
    return account_change_end(account->db, own, status, err);
}

tacit_status tacit_account_leave_log(tacit_account *account, tacit_error *err)
{
    account_terms terms;
    bool own;
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK && terms.sequence)
        status = tacit_fail(err, TACIT_CONFLICT, "account: its chain of %llu entries is in a log",
                            (unsigned long long)terms.sequence);
    if (status == TACIT_OK)
        status = account_checkpoint_clear(account->db, err);
    return account_change_end(account->db, own, status, err);
}

tacit_status tacit_account_last_checkpoint(tacit_account *account, char **note, uint64_t *size,
                                           tacit_error *err)
{
    tacit_checkpoint held;
    bool found;
    *note = NULL;
    tacit_status status = account_checkpoint_read(account->db, 0, true, &held, note, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: no checkpoint is held yet");
    *size = held.size;
    return status;
}

/* The checkpoint of a receipt: a successor of the one held, or one that was verified earlier. */
static tacit_status receipt_checkpoint(tacit_account *account, const tacit_receipt *receipt,
                                       const tacit_proof *consistency, const tacit_note_key *log,
                                       tacit_error *err)
{
    tacit_checkpoint stated, held, seen;
    bool found;
    tacit_status status = tacit_receipt_verify(receipt, log, &stated, err);
    if (status == TACIT_OK)
        status = account_checkpoint_read(account->db, 0, true, &held, NULL, &found, err);
    if (status != TACIT_OK)
        return status;
    if (!found || stated.size >= held.size)
        return checkpoint_follow(account, receipt->checkpoint, consistency, log, &stated, err);
    status = account_checkpoint_read(account->db, stated.size, false, &seen, NULL, &found, err);
    if (status != TACIT_OK)
        return status;
    if (!found)
        return tacit_fail(err, TACIT_AGAIN,
                          "log: the receipt is of an older checkpoint than the one held; ask for a "
                          "fresh receipt");
    if (memcmp(seen.root, stated.root, sizeof seen.root) != 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "log: two checkpoints of %llu entries differ: the log is split",
                          (unsigned long long)stated.size);
    return TACIT_OK;
}

static tacit_status acknowledge_locked(tacit_account *account, const uint8_t entry_hash[32],
                                       const tacit_receipt *receipt, const tacit_proof *consistency,
                                       const tacit_note_key *log, const uint8_t *nonce,
                                       tacit_error *err)
{
    account_row row;
    bool found;
    uint8_t *packed = NULL;
    size_t packed_size;
    tacit_status status = account_entry_read(account->db, entry_hash, 0, &row, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: the receipt is of no own entry");
    if (status == TACIT_OK &&
        (row.size != receipt->entry.size || memcmp(row.bytes, receipt->entry.data, row.size) != 0))
        status = tacit_fail(err, TACIT_INTEGRITY, "log: the receipt is of other bytes");
    free(row.bytes);
    if (status == TACIT_OK)
        status = receipt_checkpoint(account, receipt, consistency, log, err);
    if (status == TACIT_OK)
        status = tacit_receipt_pack(receipt, &packed, &packed_size, err);
    if (status == TACIT_OK)
        status = account_entry_acknowledge(account->db, entry_hash,
                                           (tacit_span){packed, packed_size}, nonce, err);
    free(packed);
    return status;
}

tacit_status tacit_account_acknowledge(tacit_account *account, const uint8_t entry_hash[32],
                                       const tacit_receipt *receipt, const tacit_proof *consistency,
                                       const tacit_note_key *log, const uint8_t *nonce,
                                       tacit_error *err)
{
    bool own;
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = acknowledge_locked(account, entry_hash, receipt, consistency, log, nonce, err);
    return account_change_end(account->db, own, status, err);
}

tacit_status tacit_account_receipt(tacit_account *account, const uint8_t entry_hash[32],
                                   uint8_t **bytes, size_t *size, tacit_error *err)
{
    return account_entry_receipt(account->db, entry_hash, bytes, size, err);
}
