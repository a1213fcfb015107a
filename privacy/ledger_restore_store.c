#include "privacy/ledger_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what the log says of itself --- */

/* Its first name, and the operator key that a start named first. */
typedef struct log_terms {
    char first[TACIT_NOTE_NAME_MAX + 1];
    uint32_t generation;
    bool has_operator_key;
    uint8_t operator_key[TACIT_SIGN_KEY_BYTES];
} log_terms;

static tacit_status terms_read(tacit_ledger *ledger, log_terms *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *out = (log_terms){.generation = 1};
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT origin, operator_key,"
        " (SELECT coalesce(max(generation), 1) FROM ledger_restored) FROM ledger_origin",
        err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_INTEGRITY, "ledger: the log has no origin");
    if (status == TACIT_OK) {
        snprintf(out->first, sizeof out->first, "%s", tacit_column_text(s, 0));
        out->has_operator_key = !tacit_column_is_null(s, 1);
        if (out->has_operator_key)
            tacit_column_bytes(s, 1, out->operator_key, sizeof out->operator_key);
        out->generation = (uint32_t)tacit_column_u64(s, 2);
        status = tacit_statement_check(s, err);
    }
    tacit_statement_end(s);
    return status;
}

tacit_status ledger_load_generation(tacit_ledger *ledger, tacit_error *err)
{
    log_terms terms;
    tacit_status status = terms_read(ledger, &terms, err);
    return status == TACIT_OK
               ? tacit_restore_origin(ledger->key.name, terms.first, terms.generation, err)
               : status;
}

/* --- server_start --- */

static tacit_status pin_operator_key(tacit_ledger *ledger, const uint8_t *key, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(ledger->db, &s, "UPDATE ledger_origin SET operator_key = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, key, TACIT_SIGN_KEY_BYTES);
    return tacit_statement_finish(s, err);
}

tacit_status ledger_apply_server_start(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                       tacit_error *err)
{
    (void)index;
    const Tacit__ServerStart *start = e->entry->server_start;
    log_terms terms;
    if (strcmp(start->origin, ledger->key.name) != 0 ||
        memcmp(start->log_key.data, ledger->key.key, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "ledger: the server starts under another origin or key");
    if (start->operator_key.len == 0)
        return TACIT_OK;
    if (memcmp(start->operator_key.data, ledger->key.key, TACIT_SIGN_KEY_BYTES) == 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "ledger: the operator key is the log's own key; make one that the server "
                          "does not have");
    tacit_status status = terms_read(ledger, &terms, err);
    if (status != TACIT_OK)
        return status;
    if (!terms.has_operator_key)
        return pin_operator_key(ledger, start->operator_key.data, err);
    return memcmp(start->operator_key.data, terms.operator_key, sizeof terms.operator_key) == 0
               ? TACIT_OK
               : tacit_fail(err, TACIT_INTEGRITY,
                            "ledger: the log was begun with another operator key; put that one "
                            "back, devices have pinned it");
}

/* --- restored --- */

static tacit_status refuse_restore(const char *what, tacit_error *err)
{
    return tacit_fail(err, TACIT_INTEGRITY, "ledger: a restore %s", what);
}

static tacit_status is_start_or_stop(tacit_ledger *ledger, uint64_t index, bool *is,
                                     tacit_error *err)
{
    uint8_t *bytes;
    size_t size;
    tacit_entry e;
    tacit_status status = tacit_ledger_entry(ledger, index, &bytes, &size, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_entry_read(&e, bytes, size, err);
    if (status == TACIT_OK)
        *is = e.entry->body_case == TACIT__ENTRY__BODY_SERVER_START ||
              e.entry->body_case == TACIT__ENTRY__BODY_SERVER_STOP;
    tacit_entry_close(&e);
    free(bytes);
    return status;
}

/* A copy that was started before anybody restored it has starts and stops of its own at its end. */
static tacit_status kept_size(tacit_ledger *ledger, uint64_t *size, tacit_error *err)
{
    bool own = true;
    tacit_status status = tacit_ledger_size(ledger, size, err);
    while (status == TACIT_OK && own && *size > 1) {
        status = is_start_or_stop(ledger, *size - 1, &own, err);
        *size -= status == TACIT_OK && own;
    }
    if (status == TACIT_OK && *size == 0)
        status = tacit_fail(err, TACIT_CONFLICT, "ledger: the log is empty, nothing is restored");
    return status;
}

/* It must go on from this very log. */
static tacit_status restore_follows(tacit_ledger *ledger, const log_terms *terms,
                                    const tacit_restore *r, tacit_error *err)
{
    char expected[TACIT_NOTE_NAME_MAX + 1];
    uint8_t root[TACIT_HASH_BYTES];
    uint64_t kept;
    tacit_status status = tacit_restore_origin(expected, terms->first, r->generation, err);
    if (status != TACIT_OK)
        return status;
    if (r->generation != terms->generation + 1 || strcmp(r->old_origin, ledger->key.name) != 0 ||
        strcmp(r->new_origin, expected) != 0)
        return refuse_restore("does not go from this origin to its next generation", err);
    if (memcmp(r->log_key, ledger->key.key, sizeof r->log_key) != 0)
        return refuse_restore("names another log key", err);
    status = kept_size(ledger, &kept, err);
    if (status != TACIT_OK)
        return status;
    if (r->size != kept)
        return refuse_restore("keeps another number of entries", err);
    status = tacit_ledger_root(ledger, r->size, root, err);
    if (status == TACIT_OK && memcmp(root, r->root, sizeof root) != 0)
        status = refuse_restore("keeps entries of another tree", err);
    return status;
}

static tacit_status restored_insert(tacit_ledger *ledger, const tacit_restore *r, uint64_t index,
                                    tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(ledger->db, &s,
                              "INSERT INTO ledger_restored (generation, idx, old_origin, size)"
                              " VALUES ($1, $2, $3, $4)",
                              err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, r->generation);
    tacit_bind_u64(s, 2, index);
    tacit_bind_text(s, 3, r->old_origin);
    tacit_bind_u64(s, 4, r->size);
    return tacit_statement_finish(s, err);
}

tacit_status ledger_apply_restored(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                   tacit_error *err)
{
    log_terms terms;
    tacit_restore r;
    tacit_status status = terms_read(ledger, &terms, err);
    if (status == TACIT_OK && !terms.has_operator_key)
        status = tacit_fail(err, TACIT_REFUSED,
                            "ledger: this log names no operator key that could vouch for a "
                            "restore; its devices pinned none either");
    if (status == TACIT_OK)
        status = tacit_restore_open(&r, e->entry->restored, terms.operator_key, err);
    if (status == TACIT_OK)
        status = restore_follows(ledger, &terms, &r, err);
    if (status == TACIT_OK)
        status = restored_insert(ledger, &r, index, err);
    if (status == TACIT_OK)
        memcpy(ledger->key.name, r.new_origin, sizeof ledger->key.name);
    return status;
}

/* --- making one --- */

/* The last word of the old origin: what was handed in, or what is kept. */
static tacit_status last_word(tacit_ledger *ledger, const tacit_restore *r, const char *given,
                              char note[TACIT_CHECKPOINT_MAX], tacit_error *err)
{
    tacit_checkpoint kept = {.size = r->size};
    if (given && strlen(given) >= TACIT_CHECKPOINT_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "ledger: the checkpoint is too long");
    if (given) {
        memcpy(note, given, strlen(given) + 1);
        return TACIT_OK;
    }
    memcpy(kept.origin, r->old_origin, sizeof kept.origin);
    memcpy(kept.root, r->root, sizeof kept.root);
    return tacit_checkpoint_sign(&kept, ledger->log_id, note, err);
}

static tacit_status fill_restore(tacit_ledger *ledger, tacit_restore *r, tacit_error *err)
{
    log_terms terms;
    tacit_status status = terms_read(ledger, &terms, err);
    if (status != TACIT_OK)
        return status;
    *r = (tacit_restore){.generation = terms.generation + 1};
    memcpy(r->old_origin, ledger->key.name, sizeof r->old_origin);
    memcpy(r->log_key, ledger->key.key, sizeof r->log_key);
    status = tacit_restore_origin(r->new_origin, terms.first, r->generation, err);
    if (status == TACIT_OK)
        status = kept_size(ledger, &r->size, err);
    return status == TACIT_OK ? tacit_ledger_root(ledger, r->size, r->root, err) : status;
}

tacit_status tacit_ledger_restore(tacit_ledger *ledger, const tacit_identity *operator_id,
                                  const char *last_note, tacit_restore *done, uint64_t *index,
                                  tacit_error *err)
{
    tacit_restore r;
    char note[TACIT_CHECKPOINT_MAX];
    uint8_t *statement = NULL, signature[TACIT_SIGNATURE_BYTES];
    size_t size;
    uint64_t covered;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__Restored body = TACIT__RESTORED__INIT;
    tacit_status status;
    TACIT_TRY(fill_restore(ledger, &r, err), done);
    TACIT_TRY(last_word(ledger, &r, last_note, note, err), done);
    TACIT_TRY(tacit_restore_sign(&r, (tacit_span){(const uint8_t *)note, strlen(note)}, operator_id,
                                 &statement, &size, signature, err),
              done);
    body.statement = tacit_field_of(statement, size);
    body.signature = tacit_field_of(signature, sizeof signature);
    entry.body_case = TACIT__ENTRY__BODY_RESTORED;
    entry.restored = &body;
    TACIT_TRY(tacit_ledger_record(ledger, &entry, index, NULL, err), done);
    if (done)
        TACIT_TRY(tacit_restore_open(done, &body, tacit_identity_sign_key(operator_id), err), done);
    /* The newest checkpoint must be of the origin in force: sign one at once. */
    status = tacit_ledger_checkpoint(ledger, note, &covered, err);
done:
    free(statement);
    return status;
}

/* --- questions --- */

tacit_status tacit_ledger_restores_since(tacit_ledger *ledger, const char *origin,
                                         tacit_ledger_restored out[TACIT_RESTORES_MAX], size_t *n,
                                         tacit_error *err)
{
    tacit_statement *s;
    bool row = true;
    *n = 0;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT idx, size FROM ledger_restored WHERE generation >="
        " (SELECT generation FROM ledger_restored WHERE old_origin = $1) ORDER BY generation",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_text(s, 1, origin);
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        if (*n == TACIT_RESTORES_MAX) {
            status = tacit_fail(err, TACIT_REFUSED,
                                "ledger: more than %d restores lie between; enrol anew",
                                TACIT_RESTORES_MAX);
            break;
        }
        out[(*n)++] = (tacit_ledger_restored){tacit_column_u64(s, 0), tacit_column_u64(s, 1)};
    }
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    if (status == TACIT_OK && *n == 0)
        status = tacit_fail(err, TACIT_NOT_FOUND,
                            "ledger: '%.100s' is no earlier origin of this log", origin);
    return status;
}

tacit_status ledger_plan_may_be_lost(tacit_ledger *ledger, const tacit_entry *reserve, bool *may,
                                     tacit_error *err)
{
    tacit_statement *s;
    *may = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT 1 FROM ledger_device d, (SELECT max(idx) AS idx FROM ledger_restored) last"
        " WHERE d.device = $1 AND d.idx < last.idx AND NOT EXISTS (SELECT 1 FROM ledger_reserve r"
        " JOIN ledger_plan p ON p.hash = r.plan_hash"
        " WHERE r.identity_key = d.identity_key AND p.idx > last.idx)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, reserve->entry->device.data, reserve->entry->device.len);
    status = tacit_statement_step(s, may, err);
    tacit_statement_end(s);
    return status;
}
