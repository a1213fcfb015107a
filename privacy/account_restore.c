#include "privacy/account_internal.h"

#include <stdlib.h>
#include <string.h>

/* Where an account stands on its way from one origin to the next. */
typedef struct following {
    tacit_account *account;
    const uint8_t *operator_key;
    tacit_note_key log;
    uint32_t generation;
    uint64_t least; /* the smallest size that a statement takes over */
    tacit_checkpoint held, now;
    tacit_restore restore[TACIT_RESTORES_MAX];
} following;

tacit_status tacit_account_held_before(tacit_account *account, uint64_t most, uint64_t *size,
                                       tacit_error *err)
{
    return account_checkpoint_at_most(account->db, most, size, err);
}

/* One size of one origin has one root: what the old origin is said to have signed last, against
 * what this account saw of it. */
static tacit_status last_agrees(const following *f, const tacit_checkpoint *last, tacit_error *err)
{
    tacit_checkpoint seen;
    bool found;
    tacit_status status =
        account_checkpoint_read(f->account->db, last->size, false, &seen, NULL, &found, err);
    if (status == TACIT_OK && found && memcmp(seen.root, last->root, sizeof seen.root) != 0)
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "log: '%.60s' signed two trees of %llu entries: the log was split",
                            last->origin, (unsigned long long)last->size);
    return status;
}

static tacit_status statement_follows(const following *f, const tacit_entry *e, tacit_restore *r,
                                      tacit_error *err)
{
    if (e->entry->body_case != TACIT__ENTRY__BODY_RESTORED ||
        memcmp(e->envelope->signer.data, f->log.key, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "log: a restore is no such entry of the log's");
    tacit_status status = tacit_restore_open(r, e->entry->restored, f->operator_key, err);
    if (status != TACIT_OK)
        return status == TACIT_BAD_INPUT ? tacit_fail_context(err, "log") : status;
    if (r->generation != f->generation + 1 || strcmp(r->old_origin, f->log.name) != 0 ||
        memcmp(r->log_key, f->log.key, sizeof r->log_key) != 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "log: a restore leads from '%.60s' to generation %u; this device follows "
                          "'%.60s' in generation %u: it was restored twice from one copy, or hides "
                          "a restore",
                          r->old_origin, r->generation, f->log.name, f->generation);
    return TACIT_OK;
}

static tacit_status follow_step(following *f, const tacit_restore_step *step, tacit_restore *r,
                                tacit_error *err)
{
    tacit_entry e = {0};
    tacit_status status = tacit_entry_open(&e, step->entry.entry.data, step->entry.entry.size, err);
    if (status == TACIT_OK)
        status = statement_follows(f, &e, r, err);
    tacit_entry_close(&e);
    if (status != TACIT_OK)
        return status;
    f->generation = r->generation;
    memcpy(f->log.name, r->new_origin, sizeof f->log.name);
    if (r->size < f->least)
        f->least = r->size;
    return TACIT_OK;
}

/* The checkpoint of the newest origin, and everything in it. */
static tacit_status proofs_hold(following *f, const tacit_restore_proof *p, tacit_error *err)
{
    tacit_status status =
        tacit_checkpoint_verify(&f->now, p->checkpoint.data, p->checkpoint.size, &f->log, err);
    for (size_t i = 0; i < p->count && status == TACIT_OK; i++) {
        const tacit_restore_step *s = &p->step[i];
        uint8_t leaf[TACIT_HASH_BYTES];
        tacit_merkle_leaf(leaf, s->entry.entry.data, s->entry.entry.size);
        status = tacit_merkle_verify_inclusion(leaf, s->entry.index, f->now.size,
                                               &s->entry.inclusion, f->now.root, err);
        if (status == TACIT_OK && f->restore[i].size > s->entry.index)
            status = tacit_fail(err, TACIT_INTEGRITY, "log: a restore takes over what follows it");
        if (status == TACIT_OK)
            status = tacit_merkle_verify_consistency(f->restore[i].size, f->restore[i].root,
                                                     f->now.size, f->now.root, &s->growth, err);
    }
    return status;
}

/* The newest checkpoint that the copy must continue is held, and it does. */
static tacit_status copy_continues(following *f, const tacit_restore_proof *p, tacit_error *err)
{
    uint64_t size;
    bool found;
    tacit_status status = account_checkpoint_at_most(f->account->db, f->least, &size, err);
    if (status == TACIT_OK && (size == 0 || size != p->held_size))
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "log: the copy that it goes on from, of %llu entries, is older than "
                            "all that this device holds of it, or proves something else; a device "
                            "that is not in the copy enrols anew",
                            (unsigned long long)f->least);
    if (status == TACIT_OK)
        status = account_checkpoint_read(f->account->db, size, false, &f->held, NULL, &found, err);
    return status == TACIT_OK
               ? tacit_merkle_verify_consistency(f->held.size, f->held.root, f->now.size,
                                                 f->now.root, &p->consistency, err)
               : status;
}

/* --- what changes --- */

/* Whether the stored receipt of an own entry is for a place that the checkpoint held proves. */
static tacit_status is_proved(following *f, uint64_t sequence, bool *proved, tacit_error *err)
{
    account_row row;
    tacit_receipt receipt;
    uint8_t *bytes = NULL;
    void *message = NULL;
    size_t size;
    bool found;
    *proved = false;
    tacit_status status = account_entry_read(f->account->db, NULL, sequence, &row, &found, err);
    free(row.bytes);
    if (status != TACIT_OK || !found || !row.acknowledged)
        return status;
    status = account_entry_receipt(f->account->db, row.leaf, &bytes, &size, err);
    if (status == TACIT_OK)
        status = tacit_receipt_unpack(&receipt, &message, bytes, size, err);
    if (status == TACIT_OK)
        *proved = receipt.index < f->held.size;
    tacit_message_free(message);
    free(bytes);
    return status;
}

/* Entries are logged in their order: those before one that is proved are, too. */
static tacit_status first_again(following *f, uint64_t *again, tacit_error *err)
{
    account_terms terms;
    bool proved = false;
    tacit_status status = account_terms_need(f->account, &terms, err);
    *again = terms.sequence + 1;
    while (status == TACIT_OK && *again > 1 && !proved) {
        status = is_proved(f, *again - 1, &proved, err);
        *again -= status == TACIT_OK && !proved;
    }
    return status;
}

static tacit_status keep_evidence(following *f, const tacit_restore_proof *p, uint32_t from,
                                  tacit_error *err)
{
    tacit_checkpoint last;
    char *note = NULL;
    bool found;
    tacit_status status =
        account_checkpoint_read(f->account->db, 0, true, &last, &note, &found, err);
    for (size_t i = 0; i < p->count && status == TACIT_OK; i++) {
        tacit_span left = {(const uint8_t *)note, i == 0 ? strlen(note) : 0};
        status = account_origin_insert(f->account->db, from + (uint32_t)i, left,
                                       p->step[i].entry.entry, err);
    }
    free(note);
    return status;
}

static tacit_status change(following *f, const tacit_restore_proof *p, uint32_t from,
                           uint64_t *again, tacit_error *err)
{
    tacit_status status = first_again(f, again, err);
    if (status == TACIT_OK)
        status = keep_evidence(f, p, from, err);
    if (status == TACIT_OK)
        status = account_entry_forget_receipts(f->account->db, *again, err);
    if (status == TACIT_OK)
        status = account_checkpoint_drop_above(f->account->db, f->held.size, err);
    return status == TACIT_OK
               ? account_checkpoint_insert(f->account->db, &f->now, p->checkpoint, err)
               : status;
}

static tacit_status follow(following *f, const tacit_restore_proof *p, uint64_t *again,
                           tacit_error *err)
{
    uint32_t from = f->generation;
    tacit_status status = TACIT_OK;
    if (p->count == 0 || p->count > TACIT_RESTORES_MAX)
        return tacit_fail(err, TACIT_INTEGRITY, "log: it is another one, and no restore led there");
    for (size_t i = 0; i < p->count && status == TACIT_OK; i++)
        status = follow_step(f, &p->step[i], &f->restore[i], err);
    if (status == TACIT_OK)
        status = last_agrees(f, &f->restore[0].last, err);
    if (status == TACIT_OK)
        status = proofs_hold(f, p, err);
    if (status == TACIT_OK)
        status = copy_continues(f, p, err);
    return status == TACIT_OK ? change(f, p, from, again, err) : status;
}

tacit_status tacit_account_follow_restore(tacit_account *account, const tacit_restore_proof *proof,
                                          const uint8_t operator_key[TACIT_SIGN_KEY_BYTES],
                                          tacit_note_key *log, uint32_t *generation,
                                          uint64_t *again, tacit_error *err)
{
    bool own;
    following *f = calloc(1, sizeof *f);
    if (!f)
        return tacit_fail(err, TACIT_NO_MEMORY, "account: no memory to follow its log");
    f->account = account;
    f->operator_key = operator_key;
    f->log = *log;
    f->generation = *generation;
    f->least = UINT64_MAX;
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status == TACIT_OK) {
        status = follow(f, proof, again, err);
        status = account_change_end(account->db, own, status, err);
    }
    if (status == TACIT_OK) {
        *log = f->log;
        *generation = f->generation;
    }
    free(f);
    return status;
}
