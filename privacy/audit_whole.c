#include "privacy/audit_internal.h"

#include <stdlib.h>
#include <string.h>

/* --- what is to be remembered of the walk --- */

static int by_place(const void *a, const void *b)
{
    uint64_t x = ((const audit_mark *)a)->at, y = ((const audit_mark *)b)->at;
    return x < y ? -1 : x > y;
}

/* The sizes of the checkpoint and of each receipt's, and the places of the receipts' entries. */
static tacit_status marks_make(audit_work *w)
{
    size_t most = 2 + 2 * w->options->receipt_count, n = 0;
    tacit_checkpoint stated;
    w->marks = calloc(most, sizeof *w->marks);
    if (!w->marks)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for receipts");
    if (tacit_checkpoint_parse(&stated, w->log->checkpoint, w->log->checkpoint_size, NULL) ==
        TACIT_OK)
        w->marks[n++].at = stated.size;
    if (w->log->cosigned &&
        tacit_checkpoint_parse(&stated, w->log->cosigned, w->log->cosigned_size, NULL) == TACIT_OK)
        w->marks[n++].at = stated.size;
    for (size_t i = 0; i < w->options->receipt_count; i++) {
        w->marks[n++].at = w->receipts[i].checkpoint.size;
        w->marks[n++].at = w->receipts[i].receipt.index;
    }
    qsort(w->marks, n, sizeof *w->marks, by_place);
    for (size_t i = 0; i < n; i++)
        if (w->mark_count == 0 || w->marks[w->mark_count - 1].at != w->marks[i].at)
            w->marks[w->mark_count++].at = w->marks[i].at;
    return TACIT_OK;
}

static const audit_mark *mark_at(const audit_work *w, uint64_t at)
{
    const audit_mark key = {.at = at};
    return bsearch(&key, w->marks, w->mark_count, sizeof *w->marks, by_place);
}

/* The mark at the place where the walk is, if there is one. */
static audit_mark *mark_here(audit_work *w)
{
    bool here = w->mark_at < w->mark_count && w->marks[w->mark_at].at == w->tree.size;
    return here ? &w->marks[w->mark_at++] : NULL;
}

static void mark_root(audit_work *w, audit_mark *mark)
{
    mark->has_root = true;
    tacit_merkle_frontier_root(&w->tree, mark->root);
}

static tacit_status receipts_read(audit_work *w)
{
    const tacit_audit_options *o = w->options;
    w->receipts = calloc(o->receipt_count ? o->receipt_count : 1, sizeof *w->receipts);
    if (!w->receipts)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for receipts");
    for (size_t i = 0; i < o->receipt_count; i++) {
        audit_receipt *r = &w->receipts[i];
        tacit_status status = tacit_receipt_unpack(&r->receipt, &r->message, o->receipts[i].data,
                                                   o->receipts[i].size, w->err);
        if (status != TACIT_OK)
            return tacit_fail_context(w->err, "%s", o->receipt_names[i]);
        tacit_merkle_leaf(r->leaf, r->receipt.entry.data, r->receipt.entry.size);
        bool added; /* one of several receipts of an entry stands for all */
        status = audit_map_add(&w->wanted, r->leaf, sizeof r->leaf, i, &added, w->err);
        if (status != TACIT_OK)
            return status;
        if (tacit_checkpoint_parse(&r->checkpoint, r->receipt.checkpoint.data,
                                   r->receipt.checkpoint.size, NULL) != TACIT_OK)
            r->checkpoint.size = 0; /* receipt_hold says why */
    }
    return TACIT_OK;
}

tacit_status audit_whole_begin(audit_work *w)
{
    w->tiles = calloc(1, sizeof *w->tiles);
    if (!w->tiles)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for tiles");
    tacit_status status = receipts_read(w);
    return status == TACIT_OK ? marks_make(w) : status;
}

void audit_whole_free(audit_work *w)
{
    for (size_t i = 0; w->receipts && i < w->options->receipt_count; i++)
        tacit_message_free(w->receipts[i].message);
    audit_map_free(&w->wanted);
    free(w->receipts);
    free(w->marks);
    free(w->tiles);
}

/* --- entry by entry --- */

/* One complaint is enough: whatever hangs on a wrong tile is wrong as well. */
static tacit_status compare_tile(void *ctx, const tacit_tile *tile, tacit_error *err)
{
    audit_work *w = ctx;
    tacit_error reason;
    (void)err;
    if (w->tile_complained || tacit_export_has_tile(w->log, tile, &reason))
        return TACIT_OK;
    w->tile_complained = true;
    return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "tile_mismatch", "%s", reason.message);
}

tacit_status audit_whole_leaf(audit_work *w, const uint8_t leaf[TACIT_HASH_BYTES])
{
    const tacit_tile_sink sink = {w, compare_tile};
    audit_mark *mark = mark_here(w);
    size_t wanted;
    if (w->wanted.count && audit_map_find(&w->wanted, leaf, TACIT_HASH_BYTES, &wanted))
        w->receipts[wanted].is_logged = true;
    if (mark) {
        mark_root(w, mark);
        mark->has_leaf = true;
        memcpy(mark->leaf, leaf, TACIT_HASH_BYTES);
    }
    tacit_merkle_frontier_append(&w->tree, leaf);
    return tacit_tiles_add(w->tiles, leaf, &sink, w->err);
}

/* --- the whole --- */

/* The name that the log has, or had before a restore. */
static bool is_origin(const audit_work *w, const char *name)
{
    return strcmp(name, w->log->log_key.name) == 0 || audit_origin_of(w, name);
}

static tacit_status whole_keys(audit_work *w)
{
    bool pinned = !w->options->log_key;
    for (size_t i = 0; i < w->log_key_count && !pinned; i++)
        pinned = memcmp(w->log_keys[i], w->options->log_key->key, TACIT_SIGN_KEY_BYTES) == 0;
    if (!pinned || (w->options->log_key && !is_origin(w, w->options->log_key->name)))
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "wrong_log_key",
                                  "the log was never under the pinned key");
    if (memcmp(w->log_key.key, w->log->log_key.key, TACIT_SIGN_KEY_BYTES) != 0 ||
        strcmp(w->log_key.name, w->log->log_key.name) != 0)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "wrong_log_key",
                                  "the entries do not lead to the key in keys.txt");
    return TACIT_OK;
}

static tacit_status whole_checkpoint(audit_work *w)
{
    tacit_error reason;
    const tacit_span note = {(const uint8_t *)w->log->checkpoint, w->log->checkpoint_size};
    tacit_checkpoint *c = &w->out->checkpoint;
    /* Under the key that is trusted, whatever the entries say. */
    if (tacit_checkpoint_verify(c, note.data, note.size, &w->log->log_key, &reason) != TACIT_OK)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "bad_checkpoint", "%s", reason.message);
    w->seen[AUDIT_SEEN_CHECKPOINT]++;
    if (c->size > w->at)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "incomplete_export",
                                  "the checkpoint covers %llu entries, the export has %llu",
                                  (unsigned long long)c->size, (unsigned long long)w->at);
    if (c->size < w->at) {
        tacit_status status = audit_violation_at(
            w, c->size, "unsigned_tail", "the checkpoint covers %llu of %llu entries",
            (unsigned long long)c->size, (unsigned long long)w->at);
        if (status != TACIT_OK)
            return status;
    }
    const audit_mark *mark = mark_at(w, c->size);
    if (mark && mark->has_root && memcmp(mark->root, c->root, sizeof mark->root) == 0)
        return TACIT_OK;
    return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "root_mismatch",
                              "the first %llu entries have another root",
                              (unsigned long long)c->size);
}

/* Verifies a note under any key that the log ever had, the newest first, for the origin that it
 * names; *left is that one when it is an earlier one. */
static tacit_status verify_by_log(const audit_work *w, tacit_span note, tacit_checkpoint *out,
                                  const audit_origin **left, tacit_error *reason)
{
    tacit_note_key key = w->log_key;
    tacit_checkpoint stated;
    *left = NULL;
    if (tacit_checkpoint_parse(&stated, note.data, note.size, NULL) == TACIT_OK)
        *left = audit_origin_of(w, stated.origin);
    if (*left)
        memcpy(key.name, stated.origin, sizeof key.name);
    tacit_status status = tacit_checkpoint_verify(out, note.data, note.size, &key, reason);
    for (size_t i = w->log_key_count; i > 0 && status == TACIT_INTEGRITY; i--) {
        tacit_error ignored;
        memcpy(key.key, w->log_keys[i - 1], TACIT_SIGN_KEY_BYTES);
        status = tacit_checkpoint_verify(out, note.data, note.size, &key, &ignored);
    }
    return status;
}

/* --- the witness --- */

/* Whether the cosigned checkpoint is of this log; *size is 0 when it is not. */
static tacit_status cosigned_in_log(audit_work *w, uint64_t *size)
{
    tacit_checkpoint c;
    tacit_error reason;
    const audit_origin *left;
    const tacit_span note = {(const uint8_t *)w->log->cosigned, w->log->cosigned_size};
    *size = 0;
    if (!w->log->cosigned)
        return TACIT_OK;
    if (verify_by_log(w, note, &c, &left, &reason) != TACIT_OK)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "bad_cosignature", "%s", reason.message);
    const audit_mark *mark = mark_at(w, c.size);
    bool same = mark && mark->has_root && memcmp(mark->root, c.root, sizeof c.root) == 0;
    if (left && !same && c.size > left->restore.size)
        return TACIT_OK; /* of what a restore lost: it says nothing about this log */
    if (!mark || !mark->has_root)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "incomplete_export",
                                  "a witness cosigned %llu entries, the export has %llu",
                                  (unsigned long long)c.size, (unsigned long long)w->at);
    if (!same)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "split_view",
                                  "a witness cosigned another log with the same size %llu",
                                  (unsigned long long)c.size);
    *size = c.size;
    return TACIT_OK;
}

/* How many entries this witness has cosigned, of `size` that are of this log. */
static uint64_t cosigned_by(audit_work *w, const tacit_note_key *witness, uint64_t size)
{
    if (!size || tacit_checkpoint_cosigned(w->log->cosigned, w->log->cosigned_size, witness, NULL,
                                           NULL) != TACIT_OK)
        return 0;
    memcpy(w->out->witness, witness->name, sizeof w->out->witness);
    w->out->witnessed = size;
    return size;
}

static tacit_status device_witness(audit_work *w, size_t device, uint64_t size, const char **last,
                                   uint64_t *last_size)
{
    const audit_device *d = &w->devices[device];
    tacit_note_key witness;
    if (!d->policy.witness[0] ||
        tacit_witness_key_parse(&witness, d->policy.witness, NULL) != TACIT_OK)
        return TACIT_OK;
    if (!*last || strcmp(*last, d->policy.witness) != 0) { /* fleets have one in common */
        *last = d->policy.witness;
        *last_size = cosigned_by(w, &witness, size);
    }
    if (d->plans_end <= *last_size)
        return TACIT_OK;
    return audit_violation_at(w, d->plans_end - 1, "unwitnessed_plan",
                              "its witness %s has cosigned the first %llu entries", witness.name,
                              (unsigned long long)*last_size);
}

static tacit_status whole_witness(audit_work *w)
{
    uint64_t size, last_size = 0;
    const char *last = NULL;
    tacit_status status = cosigned_in_log(w, &size);
    for (size_t i = 0; i < w->device_count && status == TACIT_OK; i++)
        status = device_witness(w, i, size, &last, &last_size);
    const tacit_note_key *named = w->options->witness;
    if (status == TACIT_OK && named && !cosigned_by(w, named, size))
        status = audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "bad_cosignature",
                                    "'%s' has cosigned no checkpoint of it", named->name);
    return status;
}

/* --- receipts --- */

/* By itself: signed, included, an entry. */
static tacit_status receipt_hold(audit_work *w, audit_receipt *r, const char *name)
{
    tacit_error reason;
    tacit_entry e;
    tacit_status held = verify_by_log(w, r->receipt.checkpoint, &r->checkpoint, &r->left, &reason);
    if (held == TACIT_OK)
        held = tacit_merkle_verify_inclusion(r->leaf, r->receipt.index, r->checkpoint.size,
                                             &r->receipt.inclusion, r->checkpoint.root, &reason);
    if (held == TACIT_OK)
        held = tacit_entry_open(&e, r->receipt.entry.data, r->receipt.entry.size, &reason);
    if (held != TACIT_OK)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "bad_receipt", "%s: %s", name,
                                  reason.message);
    r->device_signed = e.device_signed;
    tacit_entry_close(&e);
    r->holds = true;
    return TACIT_OK;
}

static bool is_logged(const audit_work *w, const audit_receipt *r)
{
    size_t first;
    return audit_map_find(&w->wanted, r->leaf, sizeof r->leaf, &first) &&
           w->receipts[first].is_logged;
}

/* Of an origin that the log has left, later than what it took over: the tree is gone, but the entry
 * must have stayed where it was, or have been brought again by the device that signed it. */
static tacit_status receipt_lost(audit_work *w, const audit_receipt *r, const char *name)
{
    const tacit_restore *restore = &r->left->restore;
    const tacit_checkpoint *c = &r->checkpoint;
    const audit_mark *place = mark_at(w, r->receipt.index);
    if (c->size == restore->last.size && memcmp(c->root, restore->last.root, sizeof c->root) != 0)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "split_view",
                                  "%s: the restore's last checkpoint, of %llu entries too, is of "
                                  "another tree",
                                  name, (unsigned long long)c->size);
    if (r->receipt.index < restore->size &&
        (!place || !place->has_leaf || memcmp(place->leaf, r->leaf, sizeof r->leaf) != 0))
        return audit_violation_at(w, r->receipt.index, "receipt_missing",
                                  "%s: its entry is not there", name);
    if (is_logged(w, r) || !r->device_signed)
        return TACIT_OK;
    return audit_violation_at(w, r->left->entry, "lost_entry",
                              "%s: entry %llu of '%.60s' was lost here and never came again", name,
                              (unsigned long long)r->receipt.index, restore->old_origin);
}

/* Against the entries. Equal roots mean equal entries, so the second complaint needs a collision of
 * SHA-256 or a receipt whose place is outside its own tree, which does not hold. */
static tacit_status receipt_in_log(audit_work *w, const audit_receipt *r, const char *name)
{
    const tacit_checkpoint *c = &r->checkpoint;
    if (r->left && c->size > r->left->restore.size)
        return receipt_lost(w, r, name);
    const audit_mark *size = mark_at(w, c->size), *place = mark_at(w, r->receipt.index);
    if (c->size > w->at || !size || !place)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "incomplete_export",
                                  "%s is of a log of %llu entries, the export has %llu", name,
                                  (unsigned long long)c->size, (unsigned long long)w->at);
    if (!size->has_root || memcmp(size->root, c->root, sizeof c->root) != 0)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "split_view",
                                  "%s is of another log with the same size %llu", name,
                                  (unsigned long long)c->size);
    if (!place->has_leaf || memcmp(place->leaf, r->leaf, sizeof r->leaf) != 0)
        return audit_violation_at(w, r->receipt.index, "receipt_missing",
                                  "%s: its entry is not there", name);
    return TACIT_OK;
}

/* Against each other, whatever the export says: an origin has one root of each size and one entry
 * in each place. */
static tacit_status receipts_compare(audit_work *w, size_t i, size_t j)
{
    const audit_receipt *a = &w->receipts[i], *b = &w->receipts[j];
    const char *const *names = w->options->receipt_names;
    if (!a->holds || !b->holds || a->left != b->left)
        return TACIT_OK;
    if (a->checkpoint.size == b->checkpoint.size &&
        memcmp(a->checkpoint.root, b->checkpoint.root, TACIT_HASH_BYTES) != 0)
        return audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "split_view",
                                  "%s and %s: the log signed two trees of %llu entries", names[i],
                                  names[j], (unsigned long long)a->checkpoint.size);
    if (a->receipt.index == b->receipt.index && memcmp(a->leaf, b->leaf, TACIT_HASH_BYTES) != 0)
        return audit_violation_at(w, a->receipt.index, "split_view",
                                  "%s and %s: the log signed two entries in one place", names[i],
                                  names[j]);
    return TACIT_OK;
}

static tacit_status whole_receipts(audit_work *w)
{
    const tacit_audit_options *o = w->options;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < o->receipt_count && status == TACIT_OK; i++) {
        status = receipt_hold(w, &w->receipts[i], o->receipt_names[i]);
        if (status == TACIT_OK && w->receipts[i].holds)
            status = receipt_in_log(w, &w->receipts[i], o->receipt_names[i]);
        for (size_t j = 0; j < i && status == TACIT_OK; j++)
            status = receipts_compare(w, j, i);
        w->out->receipts++;
        w->seen[AUDIT_SEEN_RECEIPT]++;
    }
    return status;
}

tacit_status audit_whole_end(audit_work *w)
{
    const tacit_tile_sink sink = {w, compare_tile};
    audit_mark *mark = mark_here(w);
    if (mark)
        mark_root(w, mark);
    tacit_status status = tacit_tiles_end(w->tiles, &sink, w->err);
    if (status == TACIT_OK)
        status = whole_keys(w);
    if (status == TACIT_OK)
        status = whole_checkpoint(w);
    if (status == TACIT_OK)
        status = whole_witness(w);
    if (status == TACIT_OK)
        status = whole_receipts(w);
    return status;
}
