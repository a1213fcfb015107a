#include "privacy/account_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const account_sql[] = {
    "CREATE TABLE account_terms (id INTEGER PRIMARY KEY CHECK (id = 1), policy BLOB NOT NULL,"
    " opening_cap REAL NOT NULL, budget BLOB NOT NULL, sequence INTEGER NOT NULL,"
    " head BLOB NOT NULL, lost INTEGER NOT NULL, lost_reason TEXT NOT NULL) STRICT;"
    "CREATE TABLE account_entry (sequence INTEGER PRIMARY KEY, leaf BLOB NOT NULL UNIQUE,"
    " bytes BLOB NOT NULL, receipt BLOB, nonce BLOB) STRICT;"
    "CREATE TABLE account_reserve (leaf BLOB PRIMARY KEY REFERENCES account_entry (leaf),"
    " plan_hash BLOB NOT NULL UNIQUE, device BLOB NOT NULL, lineage BLOB NOT NULL,"
    " round_index INTEGER NOT NULL, spend_leaf BLOB, abandon_leaf BLOB, update_digest BLOB UNIQUE,"
    " UNIQUE (lineage, round_index)) STRICT;"
    "CREATE TABLE account_lineage (lineage BLOB PRIMARY KEY, epsilon_cap REAL NOT NULL,"
    " schedule_hash BLOB) STRICT;"
    "CREATE TABLE account_checkpoint (size INTEGER PRIMARY KEY, root BLOB NOT NULL,"
    " note BLOB NOT NULL) STRICT;",
    "ALTER TABLE account_lineage ADD COLUMN filter_epsilon REAL NOT NULL DEFAULT 0;",
    /* Origins that the log has left: the last checkpoint held of each, and the entry that led on.
     */
    "CREATE TABLE account_origin (generation INTEGER PRIMARY KEY, note BLOB NOT NULL,"
    " entry BLOB NOT NULL) STRICT;",
};
const tacit_migrations account_migrations = {"account", account_sql,
                                             sizeof account_sql / sizeof account_sql[0]};

static tacit_status copy_blob(tacit_span from, uint8_t **to, size_t *size, tacit_error *err)
{
    *to = malloc(from.size + 1);
    if (!*to)
        return tacit_fail(err, TACIT_NO_MEMORY, "account: no memory for %zu bytes", from.size);
    if (from.size)
        memcpy(*to, from.data, from.size);
    (*to)[from.size] = 0;
    *size = from.size;
    return TACIT_OK;
}

/* --- terms --- */

static tacit_status terms_from_row(tacit_statement *s, account_terms *out, tacit_error *err)
{
    tacit_span policy = tacit_column_blob(s, 0), budget = tacit_column_blob(s, 2);
    tacit_status status = tacit_policy_unpack(&out->policy, policy.data, policy.size, err);
    if (status == TACIT_OK)
        status = tacit_budget_read(&out->budget, budget.data, budget.size, err);
    if (status != TACIT_OK)
        return status;
    out->opening_cap = tacit_column_f64(s, 1);
    out->sequence = tacit_column_u64(s, 3);
    tacit_column_bytes(s, 4, out->head, TACIT_HASH_BYTES);
    out->lost = tacit_column_i64(s, 5) != 0;
    snprintf(out->lost_reason, sizeof out->lost_reason, "%s", tacit_column_text(s, 6));
    return tacit_statement_check(s, err);
}

tacit_status account_terms_read(tacit_database *db, account_terms *out, bool *found,
                                tacit_error *err)
{
    tacit_statement *s;
    *out = (account_terms){0};
    *found = false;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT policy, opening_cap, budget, sequence, head, lost, lost_reason FROM account_terms",
        err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, found, err);
    if (status == TACIT_OK && *found)
        status = terms_from_row(s, out, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_terms_write(tacit_database *db, const account_terms *t, tacit_error *err)
{
    tacit_statement *s;
    uint8_t *policy, budget[TACIT_BUDGET_BYTES];
    size_t policy_size;
    tacit_budget_write(&t->budget, budget);
    tacit_status status = tacit_policy_pack(&t->policy, &policy, &policy_size, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_begin(
        db, &s,
        "INSERT INTO account_terms (id, policy, opening_cap, budget, sequence, head, lost,"
        " lost_reason) VALUES (1, $1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET"
        " policy = excluded.policy, opening_cap = excluded.opening_cap, budget = excluded.budget,"
        " sequence = excluded.sequence, head = excluded.head, lost = excluded.lost,"
        " lost_reason = excluded.lost_reason",
        err);
    if (status == TACIT_OK) {
        tacit_bind_blob(s, 1, policy, policy_size);
        tacit_bind_f64(s, 2, t->opening_cap);
        tacit_bind_blob(s, 3, budget, sizeof budget);
        tacit_bind_u64(s, 4, t->sequence);
        tacit_bind_blob(s, 5, t->head, TACIT_HASH_BYTES);
        tacit_bind_i64(s, 6, t->lost);
        tacit_bind_text(s, 7, t->lost_reason);
        status = tacit_statement_finish(s, err);
    }
    free(policy);
    return status;
}

/* --- entries --- */

tacit_status account_entry_insert(tacit_database *db, const account_row *row, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT INTO account_entry (sequence, leaf, bytes) VALUES ($1, $2, $3)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, row->sequence);
    tacit_bind_blob(s, 2, row->leaf, TACIT_HASH_BYTES);
    tacit_bind_blob(s, 3, row->bytes, row->size);
    return tacit_statement_finish(s, err);
}

static tacit_status entry_from_row(tacit_statement *s, account_row *out, tacit_error *err)
{
    out->sequence = tacit_column_u64(s, 0);
    tacit_column_bytes(s, 1, out->leaf, TACIT_HASH_BYTES);
    out->acknowledged = !tacit_column_is_null(s, 3);
    if (!tacit_column_is_null(s, 4))
        tacit_column_bytes(s, 4, out->nonce, sizeof out->nonce);
    tacit_status status = tacit_statement_check(s, err);
    return status == TACIT_OK ? copy_blob(tacit_column_blob(s, 2), &out->bytes, &out->size, err)
                              : status;
}

tacit_status account_entry_read(tacit_database *db, const uint8_t *leaf, uint64_t sequence,
                                account_row *out, bool *found, tacit_error *err)
{
    tacit_statement *s;
    *out = (account_row){0};
    *found = false;
    tacit_status status = tacit_statement_begin(
        db, &s,
        leaf ? "SELECT sequence, leaf, bytes, receipt, nonce FROM account_entry WHERE leaf = $1"
             : "SELECT sequence, leaf, bytes, receipt, nonce FROM account_entry"
               " WHERE sequence = $1",
        err);
    if (status != TACIT_OK)
        return status;
    if (leaf)
        tacit_bind_blob(s, 1, leaf, TACIT_HASH_BYTES);
    else
        tacit_bind_u64(s, 1, sequence);
    status = tacit_statement_step(s, found, err);
    if (status == TACIT_OK && *found)
        status = entry_from_row(s, out, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_entry_receipt(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                   uint8_t **bytes, size_t *size, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status =
        tacit_statement_begin(db, &s, "SELECT receipt FROM account_entry WHERE leaf = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, leaf, TACIT_HASH_BYTES);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row && !tacit_column_is_null(s, 0))
        status = copy_blob(tacit_column_blob(s, 0), bytes, size, err);
    else if (status == TACIT_OK)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: no receipt is stored for that entry");
    tacit_statement_end(s);
    return status;
}

tacit_status account_entry_acknowledge(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                       tacit_span receipt, const uint8_t *nonce, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "UPDATE account_entry SET receipt = $2, nonce = coalesce(nonce, $3) WHERE leaf = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, leaf, TACIT_HASH_BYTES);
    tacit_bind_blob(s, 2, receipt.data, receipt.size);
    tacit_bind_blob(s, 3, nonce, nonce ? 32 : 0);
    return tacit_statement_finish(s, err);
}

/* --- reserves --- */

tacit_status account_reserve_insert(tacit_database *db, const account_reserve_row *row,
                                    tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT INTO account_reserve (leaf, plan_hash, device, lineage, round_index)"
        " VALUES ($1, $2, $3, $4, $5)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, row->leaf, TACIT_HASH_BYTES);
    tacit_bind_blob(s, 2, row->plan_hash, TACIT_HASH_BYTES);
    tacit_bind_blob(s, 3, row->device, TACIT_DEVICE_BYTES);
    tacit_bind_blob(s, 4, row->lineage, sizeof row->lineage);
    tacit_bind_u64(s, 5, row->round_index);
    return tacit_statement_finish(s, err);
}

static tacit_status reserve_from_row(tacit_statement *s, account_reserve_row *out, tacit_error *err)
{
    tacit_column_bytes(s, 0, out->leaf, TACIT_HASH_BYTES);
    tacit_column_bytes(s, 1, out->plan_hash, TACIT_HASH_BYTES);
    tacit_column_bytes(s, 2, out->device, TACIT_DEVICE_BYTES);
    tacit_column_bytes(s, 3, out->lineage, sizeof out->lineage);
    out->round_index = (uint32_t)tacit_column_u64(s, 4);
    out->spent = !tacit_column_is_null(s, 5);
    out->abandoned = !tacit_column_is_null(s, 6);
    if (out->spent) {
        tacit_column_bytes(s, 5, out->spend_leaf, TACIT_HASH_BYTES);
        tacit_column_bytes(s, 7, out->update_digest, TACIT_HASH_BYTES);
    }
    if (out->abandoned)
        tacit_column_bytes(s, 6, out->abandon_leaf, TACIT_HASH_BYTES);
    return tacit_statement_check(s, err);
}

#define RESERVE_SELECT                                                                             \
    "SELECT leaf, plan_hash, device, lineage, round_index, spend_leaf, abandon_leaf,"              \
    " update_digest FROM account_reserve WHERE "

static tacit_status reserve_select(tacit_database *db, const char *sql, tacit_span key,
                                   const uint32_t *round_index, account_reserve_row *out,
                                   bool *found, tacit_error *err)
{
    tacit_statement *s;
    *out = (account_reserve_row){0};
    *found = false;
    tacit_status status = tacit_statement_begin(db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, key.data, key.size);
    if (round_index)
        tacit_bind_u64(s, 2, *round_index);
    status = tacit_statement_step(s, found, err);
    if (status == TACIT_OK && *found)
        status = reserve_from_row(s, out, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_reserve_by_plan(tacit_database *db, const uint8_t plan_hash[TACIT_HASH_BYTES],
                                     account_reserve_row *out, bool *found, tacit_error *err)
{
    return reserve_select(db, RESERVE_SELECT "plan_hash = $1",
                          (tacit_span){plan_hash, TACIT_HASH_BYTES}, NULL, out, found, err);
}

tacit_status account_reserve_by_leaf(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                     account_reserve_row *out, bool *found, tacit_error *err)
{
    return reserve_select(db, RESERVE_SELECT "leaf = $1", (tacit_span){leaf, TACIT_HASH_BYTES},
                          NULL, out, found, err);
}

tacit_status account_reserve_of_round(tacit_database *db, const uint8_t lineage[16],
                                      uint32_t round_index, account_reserve_row *out, bool *found,
                                      tacit_error *err)
{
    return reserve_select(db, RESERVE_SELECT "lineage = $1 AND round_index = $2",
                          (tacit_span){lineage, 16}, &round_index, out, found, err);
}

tacit_status account_reserve_end(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                 const uint8_t ending[TACIT_HASH_BYTES], const uint8_t *digest,
                                 tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        digest ? "UPDATE account_reserve SET spend_leaf = $2, update_digest = $3 WHERE leaf = $1"
               : "UPDATE account_reserve SET abandon_leaf = $2 WHERE leaf = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, leaf, TACIT_HASH_BYTES);
    tacit_bind_blob(s, 2, ending, TACIT_HASH_BYTES);
    if (digest)
        tacit_bind_blob(s, 3, digest, TACIT_HASH_BYTES);
    return tacit_statement_finish(s, err);
}

/* --- lineages --- */

tacit_status account_lineage_read(tacit_database *db, const uint8_t lineage[16],
                                  account_lineage *out, bool *found, tacit_error *err)
{
    tacit_statement *s;
    *out = (account_lineage){0};
    *found = false;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT epsilon_cap, schedule_hash, filter_epsilon FROM account_lineage WHERE lineage = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, 16);
    status = tacit_statement_step(s, found, err);
    if (status == TACIT_OK && *found) {
        out->epsilon_cap = tacit_column_f64(s, 0);
        out->reserved = !tacit_column_is_null(s, 1);
        if (out->reserved)
            tacit_column_bytes(s, 1, out->schedule_hash, TACIT_HASH_BYTES);
        out->filter_epsilon = tacit_column_f64(s, 2);
        status = tacit_statement_check(s, err);
    }
    tacit_statement_end(s);
    return status;
}

tacit_status account_lineage_write(tacit_database *db, const uint8_t lineage[16],
                                   const account_lineage *row, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT INTO account_lineage (lineage, epsilon_cap, schedule_hash, filter_epsilon)"
        " VALUES ($1, $2, $3, $4) ON CONFLICT (lineage) DO UPDATE SET"
        " epsilon_cap = excluded.epsilon_cap, schedule_hash = excluded.schedule_hash,"
        " filter_epsilon = excluded.filter_epsilon",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, 16);
    tacit_bind_f64(s, 2, row->epsilon_cap);
    tacit_bind_blob(s, 3, row->reserved ? row->schedule_hash : NULL,
                    row->reserved ? TACIT_HASH_BYTES : 0);
    tacit_bind_f64(s, 4, row->filter_epsilon);
    return tacit_statement_finish(s, err);
}

tacit_status account_lineage_all(tacit_database *db, tacit_lineage_share **out, size_t *n,
                                 tacit_error *err)
{
    tacit_statement *s;
    bool row = true;
    size_t capacity = 0;
    *out = NULL;
    *n = 0;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT lineage, epsilon_cap, schedule_hash FROM account_lineage ORDER BY rowid",
        err);
    if (status != TACIT_OK)
        return status;
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        if (*n == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            tacit_lineage_share *grown = realloc(*out, capacity * sizeof *grown);
            if (!grown) {
                status = tacit_fail(err, TACIT_NO_MEMORY, "account: no memory for its lineages");
                break;
            }
            *out = grown;
        }
        tacit_lineage_share *l = &(*out)[(*n)++];
        tacit_column_bytes(s, 0, l->lineage, sizeof l->lineage);
        l->epsilon_cap = tacit_column_f64(s, 1);
        l->reserved = !tacit_column_is_null(s, 2);
    }
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_lineage_first(tacit_database *db, double *filter_epsilon, tacit_error *err)
{
    tacit_statement *s;
    bool row;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT coalesce(max(filter_epsilon), 0.0) FROM account_lineage", err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    *filter_epsilon = status == TACIT_OK && row ? tacit_column_f64(s, 0) : 0;
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_lineage_others(tacit_database *db, const uint8_t lineage[16], double *sum,
                                    tacit_error *err)
{
    tacit_statement *s;
    bool row;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT total(epsilon_cap) FROM account_lineage WHERE lineage <> $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, 16);
    status = tacit_statement_step(s, &row, err);
    *sum = status == TACIT_OK && row ? tacit_column_f64(s, 0) : 0;
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_lineage_seen(tacit_database *db, const uint8_t lineage[16], uint64_t sequence,
                                  bool *seen, tacit_error *err)
{
    tacit_statement *s;
    *seen = false;
    tacit_status status =
        tacit_statement_begin(db, &s,
                              "SELECT 1 FROM account_reserve r JOIN account_entry e USING (leaf)"
                              " WHERE r.lineage = $1 AND e.sequence < $2 LIMIT 1",
                              err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, 16);
    tacit_bind_u64(s, 2, sequence);
    status = tacit_statement_step(s, seen, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_window_tail(tacit_database *db, size_t most, tacit_window *out,
                                 tacit_error *err)
{
    tacit_statement *s;
    bool row = true;
    if (most == 0)
        return TACIT_OK;
    tacit_status status =
        tacit_statement_begin(db, &s,
                              "SELECT e.bytes FROM account_reserve r JOIN account_entry e USING"
                              " (leaf) ORDER BY e.sequence DESC",
                              err);
    if (status != TACIT_OK)
        return status;
    while (status == TACIT_OK && out->count < most) {
        status = tacit_statement_step(s, &row, err);
        if (status != TACIT_OK || !row)
            break;
        tacit_span bytes = tacit_column_blob(s, 0);
        status = tacit_window_push_entry(out, bytes.data, bytes.size, err);
    }
    tacit_statement_end(s);
    tacit_window_reverse(out);
    return status;
}

/* --- checkpoints and counts --- */

tacit_status account_checkpoint_read(tacit_database *db, uint64_t size, bool newest,
                                     tacit_checkpoint *out, char **note, bool *found,
                                     tacit_error *err)
{
    tacit_statement *s;
    size_t length;
    *found = false;
    *out = (tacit_checkpoint){0};
    tacit_status status = tacit_statement_begin(
        db, &s,
        newest ? "SELECT size, root, note FROM account_checkpoint WHERE size >= $1"
                 " ORDER BY size DESC LIMIT 1"
               : "SELECT size, root, note FROM account_checkpoint WHERE size = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, newest ? 0 : size);
    status = tacit_statement_step(s, found, err);
    if (status == TACIT_OK && *found) {
        out->size = tacit_column_u64(s, 0);
        tacit_column_bytes(s, 1, out->root, TACIT_HASH_BYTES);
        status = tacit_statement_check(s, err);
        if (status == TACIT_OK && note)
            status = copy_blob(tacit_column_blob(s, 2), (uint8_t **)note, &length, err);
    }
    tacit_statement_end(s);
    return status;
}

tacit_status account_checkpoint_insert(tacit_database *db, const tacit_checkpoint *checkpoint,
                                       tacit_span note, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT INTO account_checkpoint (size, root, note) VALUES ($1, $2, $3)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, checkpoint->size);
    tacit_bind_blob(s, 2, checkpoint->root, TACIT_HASH_BYTES);
    tacit_bind_blob(s, 3, note.data, note.size);
    return tacit_statement_finish(s, err);
}

tacit_status account_checkpoint_clear(tacit_database *db, tacit_error *err)
{
    return tacit_database_run(db, "DELETE FROM account_checkpoint", err);
}

tacit_status account_checkpoint_at_most(tacit_database *db, uint64_t most, uint64_t *size,
                                        tacit_error *err)
{
    tacit_statement *s;
    bool row;
    *size = 0;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT coalesce(max(size), 0) FROM account_checkpoint WHERE size <= $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, most < INT64_MAX ? most : INT64_MAX);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row)
        *size = tacit_column_u64(s, 0);
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}

tacit_status account_checkpoint_drop_above(tacit_database *db, uint64_t size, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(db, &s, "DELETE FROM account_checkpoint WHERE size > $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, size);
    return tacit_statement_finish(s, err);
}

tacit_status account_origin_insert(tacit_database *db, uint32_t generation, tacit_span note,
                                   tacit_span entry, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT INTO account_origin (generation, note, entry) VALUES ($1, $2, $3)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, generation);
    tacit_bind_blob(s, 2, note.data, note.size);
    tacit_bind_blob(s, 3, entry.data, entry.size);
    return tacit_statement_finish(s, err);
}

tacit_status account_entry_forget_receipts(tacit_database *db, uint64_t sequence, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE account_entry SET receipt = NULL WHERE sequence >= $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, sequence);
    return tacit_statement_finish(s, err);
}

tacit_status account_counts(tacit_database *db, uint64_t counts[4], tacit_error *err)
{
    tacit_statement *s;
    bool row;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT (SELECT count(*) FROM account_reserve), (SELECT count(spend_leaf) FROM"
        " account_reserve), (SELECT count(abandon_leaf) FROM account_reserve),"
        " (SELECT count(*) FROM account_entry WHERE receipt IS NULL)",
        err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    for (int i = 0; i < 4; i++)
        counts[i] = status == TACIT_OK && row ? tacit_column_u64(s, i) : 0;
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}
