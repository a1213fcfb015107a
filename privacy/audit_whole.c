#include "privacy/audit_internal.h"

#include "privacy/receipt.h"

#include <string.h>

/* Verifies a note under any key that the log ever had, the newest first. */
static tacit_status verify_by_log(const audit_work *w, tacit_span note, tacit_checkpoint *out,
                                  tacit_error *reason)
{
    tacit_note_key key = w->log_key;
    tacit_status status = tacit_checkpoint_verify(out, note.data, note.size, &key, reason);
    for (size_t i = w->log_key_count; i > 0 && status == TACIT_INTEGRITY; i--) {
        tacit_error ignored;
        memcpy(key.key, w->log_keys[i - 1], TACIT_SIGN_KEY_BYTES);
        status = tacit_checkpoint_verify(out, note.data, note.size, &key, &ignored);
    }
    return status;
}

static tacit_status root_at(audit_work *w, uint64_t size, uint8_t root[TACIT_HASH_BYTES])
{
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    return tacit_merkle_root(&store, size, root, w->err);
}

static tacit_status whole_keys(audit_work *w)
{
    bool pinned = !w->options->log_key;
    for (size_t i = 0; i < w->log_key_count && !pinned; i++)
        pinned = memcmp(w->log_keys[i], w->options->log_key->key, TACIT_SIGN_KEY_BYTES) == 0;
    if (!pinned ||
        (w->options->log_key && strcmp(w->options->log_key->name, w->log->log_key.name) != 0))
        return audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "wrong_log_key",
                             "the log was never under the pinned key");
    if (memcmp(w->log_key.key, w->log->log_key.key, TACIT_SIGN_KEY_BYTES) != 0)
        return audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "wrong_log_key",
                             "the entries do not lead to the key in keys.txt");
    return TACIT_OK;
}

static tacit_status whole_checkpoint(audit_work *w)
{
    tacit_error reason;
    uint8_t root[TACIT_HASH_BYTES];
    const tacit_span note = {(const uint8_t *)w->log->checkpoint, w->log->checkpoint_size};
    tacit_checkpoint *c = &w->out->checkpoint;
    /* Under the key that is trusted, whatever the entries say. */
    if (tacit_checkpoint_verify(c, note.data, note.size, &w->log->log_key, &reason) != TACIT_OK)
        return audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "bad_checkpoint", "%s", reason.message);
    w->seen[AUDIT_SEEN_CHECKPOINT]++;
    if (c->size > w->log->count)
        return audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "incomplete_export",
                             "the checkpoint covers %llu entries, the export has %zu",
                             (unsigned long long)c->size, w->log->count);
    if (c->size < w->log->count) {
        tacit_status status =
            audit_note_at(w, c->size, "unsigned_tail", "the checkpoint covers %llu of %zu entries",
                          (unsigned long long)c->size, w->log->count);
        if (status != TACIT_OK)
            return status;
    }
    tacit_status status = root_at(w, c->size, root);
    if (status == TACIT_OK && memcmp(root, c->root, sizeof root) != 0)
        status =
            audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "root_mismatch",
                          "the first %llu entries have another root", (unsigned long long)c->size);
    return status;
}

static tacit_status receipt_in_log(audit_work *w, const tacit_receipt *r, const char *name,
                                   const tacit_checkpoint *c)
{
    uint8_t root[TACIT_HASH_BYTES];
    if (c->size > w->log->count)
        return audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "incomplete_export",
                             "%s is of a log of %llu entries, the export has %zu", name,
                             (unsigned long long)c->size, w->log->count);
    tacit_status status = root_at(w, c->size, root);
    if (status != TACIT_OK)
        return status;
    if (memcmp(root, c->root, sizeof root) != 0)
        return audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "split_view",
                             "%s is of another log with the same size %llu", name,
                             (unsigned long long)c->size);
    tacit_span logged = w->log->entries[r->index];
    if (logged.size != r->entry.size || memcmp(logged.data, r->entry.data, logged.size) != 0)
        return audit_note_at(w, r->index, "receipt_missing", "%s: its entry is not there", name);
    return TACIT_OK;
}

static tacit_status receipt_check(audit_work *w, const tacit_receipt *r, const char *name)
{
    tacit_checkpoint c;
    tacit_error reason;
    tacit_entry e;
    uint8_t leaf[TACIT_HASH_BYTES];
    tacit_merkle_leaf(leaf, r->entry.data, r->entry.size);
    tacit_status held = verify_by_log(w, r->checkpoint, &c, &reason);
    if (held == TACIT_OK)
        held =
            tacit_merkle_verify_inclusion(leaf, r->index, c.size, &r->inclusion, c.root, &reason);
    if (held == TACIT_OK)
        held = tacit_entry_open(&e, r->entry.data, r->entry.size, &reason);
    if (held != TACIT_OK)
        return audit_note_at(w, TACIT_AUDIT_NO_ENTRY, "bad_receipt", "%s: %s", name,
                             reason.message);
    tacit_entry_close(&e);
    return receipt_in_log(w, r, name, &c);
}

static tacit_status whole_receipts(audit_work *w)
{
    const tacit_audit_options *o = w->options;
    for (size_t i = 0; i < o->receipt_count; i++) {
        tacit_receipt r;
        void *message;
        tacit_status status =
            tacit_receipt_unpack(&r, &message, o->receipts[i].data, o->receipts[i].size, w->err);
        if (status != TACIT_OK)
            return tacit_fail_context(w->err, "%s", o->receipt_names[i]);
        status = receipt_check(w, &r, o->receipt_names[i]);
        tacit_message_free(message);
        if (status != TACIT_OK)
            return status;
        w->out->receipts++;
        w->seen[AUDIT_SEEN_RECEIPT]++;
    }
    return TACIT_OK;
}

tacit_status audit_whole(audit_work *w)
{
    tacit_status status = whole_keys(w);
    if (status == TACIT_OK)
        status = whole_checkpoint(w);
    if (status == TACIT_OK)
        status = whole_receipts(w);
    return status;
}
