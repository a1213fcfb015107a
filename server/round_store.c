#include "server/round_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const round_sql[] = {
    "CREATE TABLE round_lineage ("
    "  lineage BLOB PRIMARY KEY, state INTEGER NOT NULL, schedule BLOB NOT NULL,"
    "  schedule_hash BLOB NOT NULL, common BLOB NOT NULL, deadline_s INTEGER NOT NULL,"
    "  next_round INTEGER NOT NULL, rounds INTEGER NOT NULL, created_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE round_round ("
    "  round_id BLOB PRIMARY KEY, lineage BLOB NOT NULL REFERENCES round_lineage,"
    "  position INTEGER NOT NULL, state INTEGER NOT NULL, plan BLOB NOT NULL,"
    "  plan_hash BLOB NOT NULL, plan_index INTEGER NOT NULL, opened_ms INTEGER NOT NULL,"
    "  deadline_ms INTEGER NOT NULL, closed_ms INTEGER NOT NULL DEFAULT 0,"
    "  reason TEXT NOT NULL DEFAULT '', result_digest BLOB, loss REAL, accuracy REAL,"
    "  secret BLOB) STRICT;"
    "CREATE INDEX round_open ON round_round (closed_ms) WHERE closed_ms = 0;"
    "CREATE TABLE round_member ("
    "  round_id BLOB NOT NULL REFERENCES round_round, device BLOB NOT NULL,"
    "  PRIMARY KEY (round_id, device)) STRICT;"
    "CREATE TABLE round_update ("
    "  reserve_hash BLOB PRIMARY KEY, round_id BLOB NOT NULL REFERENCES round_round,"
    "  device BLOB NOT NULL, state INTEGER NOT NULL, size INTEGER NOT NULL DEFAULT 0,"
    "  digest BLOB, reason TEXT NOT NULL DEFAULT '', entry_index INTEGER NOT NULL DEFAULT 0,"
    "  nonce BLOB NOT NULL, UNIQUE (round_id, device)) STRICT;",
};

tacit_status round_store_open(tacit_database *db, tacit_error *err)
{
    static const tacit_migrations migrations = {"round", round_sql,
                                                sizeof round_sql / sizeof round_sql[0]};
    return tacit_database_migrate(db, &migrations, err);
}

static const char *const round_state_names[] = {
    [ROUND_COLLECTING] = "collecting", [ROUND_AGGREGATING] = "aggregating",
    [ROUND_EVALUATING] = "evaluating", [ROUND_PUBLISHED] = "published",
    [ROUND_FAILED] = "failed",
};

const char *round_state_name(round_state state)
{
    return state >= ROUND_COLLECTING && state <= ROUND_FAILED ? round_state_names[state]
                                                              : "unknown";
}

bool round_state_is_final(round_state state)
{
    return state == ROUND_PUBLISHED || state == ROUND_FAILED;
}

const char *lineage_state_name(lineage_state state)
{
    static const char *const names[] = {
        [LINEAGE_RUNNING] = "running", [LINEAGE_DONE] = "done", [LINEAGE_CANCELLED] = "cancelled"};
    return state >= LINEAGE_RUNNING && state <= LINEAGE_CANCELLED ? names[state] : "unknown";
}

/* A malloc'ed copy of a blob column. */
static tacit_status copy_blob(tacit_statement *s, int at, uint8_t **out, size_t *size,
                              tacit_error *err)
{
    tacit_span blob = tacit_column_blob(s, at);
    *out = malloc(blob.size + 1);
    if (!*out)
        return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory for %zu bytes", blob.size);
    if (blob.size)
        memcpy(*out, blob.data, blob.size);
    *size = blob.size;
    return TACIT_OK;
}

/* --- lineages --- */

void lineage_row_free(lineage_row *row)
{
    free(row->schedule);
    free(row->common);
    row->schedule = row->common = NULL;
}

#define LINEAGE_COLUMNS                                                                            \
    "lineage, state, schedule, schedule_hash, common, deadline_s, next_round, rounds, created_ms"

tacit_status lineage_insert(tacit_database *db, const lineage_row *row, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(db, &s,
                                                "INSERT INTO round_lineage (" LINEAGE_COLUMNS
                                                ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                                                err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, row->lineage, sizeof row->lineage);
    tacit_bind_i64(s, 2, row->state);
    tacit_bind_blob(s, 3, row->schedule, row->schedule_size);
    tacit_bind_blob(s, 4, row->schedule_hash, sizeof row->schedule_hash);
    tacit_bind_blob(s, 5, row->common, row->common_size);
    tacit_bind_u64(s, 6, row->deadline_s);
    tacit_bind_u64(s, 7, row->next_round);
    tacit_bind_u64(s, 8, row->rounds);
    tacit_bind_u64(s, 9, row->created_ms);
    return tacit_statement_finish(s, err);
}

/* Steps to the only row and reads it; ends the statement. */
static tacit_status take_lineage(tacit_statement *s, lineage_row *out, tacit_error *err)
{
    bool row = false;
    *out = (lineage_row){0};
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such lineage; see 'round list'");
    if (status != TACIT_OK)
        goto done;
    tacit_column_bytes(s, 0, out->lineage, sizeof out->lineage);
    out->state = (lineage_state)tacit_column_i64(s, 1);
    tacit_column_bytes(s, 3, out->schedule_hash, sizeof out->schedule_hash);
    out->deadline_s = tacit_column_u64(s, 5);
    out->next_round = (uint32_t)tacit_column_u64(s, 6);
    out->rounds = (uint32_t)tacit_column_u64(s, 7);
    out->created_ms = tacit_column_u64(s, 8);
    TACIT_TRY(copy_blob(s, 2, &out->schedule, &out->schedule_size, err), done);
    TACIT_TRY(copy_blob(s, 4, &out->common, &out->common_size, err), done);
    status = tacit_statement_check(s, err);
done:
    if (status != TACIT_OK)
        lineage_row_free(out);
    tacit_statement_end(s);
    return status;
}

tacit_status lineage_running(tacit_database *db, lineage_row *out, tacit_error *err)
{
    tacit_statement *s;
    *out = (lineage_row){0};
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " LINEAGE_COLUMNS " FROM round_lineage WHERE state = $1 LIMIT 1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_i64(s, 1, LINEAGE_RUNNING);
    return take_lineage(s, out, err);
}

tacit_status lineage_get(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES], lineage_row *out,
                         tacit_error *err)
{
    tacit_statement *s;
    *out = (lineage_row){0};
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " LINEAGE_COLUMNS " FROM round_lineage WHERE lineage = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, LINEAGE_BYTES);
    return take_lineage(s, out, err);
}

tacit_status lineage_set(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                         lineage_state state, uint32_t next_round, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE round_lineage SET state = $2, next_round = $3 WHERE lineage = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, LINEAGE_BYTES);
    tacit_bind_i64(s, 2, state);
    tacit_bind_u64(s, 3, next_round);
    return tacit_statement_finish(s, err);
}

/* --- rounds --- */

void round_row_free(round_row *row)
{
    free(row->plan);
    row->plan = NULL;
}

#define ROUND_COLUMNS                                                                              \
    "r.round_id, r.lineage, r.position, r.state, r.plan, r.plan_hash, r.plan_index, r.opened_ms, " \
    "r.deadline_ms, r.closed_ms, r.reason, r.result_digest, r.loss, r.accuracy, "                  \
    "(SELECT count(*) FROM round_member m WHERE m.round_id = r.round_id), "                        \
    "(SELECT count(*) FROM round_update u WHERE u.round_id = r.round_id), "                        \
    "(SELECT count(*) FROM round_update u WHERE u.round_id = r.round_id AND u.state = 3), "        \
    "(SELECT count(*) FROM round_update u WHERE u.round_id = r.round_id AND u.state = 4)"

_Static_assert(UPDATE_ACCEPTED == 3 && UPDATE_REJECTED == 4, "states that ROUND_COLUMNS counts");

static tacit_status read_round(tacit_statement *s, round_row *out, tacit_error *err)
{
    *out = (round_row){.index = (uint32_t)tacit_column_u64(s, 2),
                       .state = (round_state)tacit_column_i64(s, 3),
                       .plan_index = tacit_column_u64(s, 6),
                       .opened_ms = tacit_column_u64(s, 7),
                       .deadline_ms = tacit_column_u64(s, 8),
                       .closed_ms = tacit_column_u64(s, 9),
                       .asked = (uint32_t)tacit_column_u64(s, 14),
                       .reserved = (uint32_t)tacit_column_u64(s, 15),
                       .accepted = (uint32_t)tacit_column_u64(s, 16),
                       .rejected = (uint32_t)tacit_column_u64(s, 17)};
    tacit_column_bytes(s, 0, out->round_id, sizeof out->round_id);
    tacit_column_bytes(s, 1, out->lineage, sizeof out->lineage);
    tacit_column_bytes(s, 5, out->plan_hash, sizeof out->plan_hash);
    snprintf(out->reason, sizeof out->reason, "%s", tacit_column_text(s, 10));
    if (!tacit_column_is_null(s, 11))
        tacit_column_bytes(s, 11, out->result_digest, sizeof out->result_digest);
    out->loss = tacit_column_is_null(s, 12) ? __builtin_nan("") : tacit_column_f64(s, 12);
    out->accuracy = tacit_column_is_null(s, 13) ? __builtin_nan("") : tacit_column_f64(s, 13);
    tacit_status status = copy_blob(s, 4, &out->plan, &out->plan_size, err);
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    if (status != TACIT_OK)
        round_row_free(out);
    return status;
}

static tacit_status take_round(tacit_statement *s, round_row *out, tacit_error *err)
{
    bool row = false;
    *out = (round_row){0};
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such round; see 'round list'");
    if (status == TACIT_OK)
        status = read_round(s, out, err);
    tacit_statement_end(s);
    return status;
}

tacit_status round_insert(tacit_database *db, const round_row *row, const tacit_secret *secret,
                          tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT INTO round_round (round_id, lineage, position, state, plan, plan_hash, plan_index,"
        " opened_ms, deadline_ms, secret) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, row->round_id, sizeof row->round_id);
    tacit_bind_blob(s, 2, row->lineage, sizeof row->lineage);
    tacit_bind_u64(s, 3, row->index);
    tacit_bind_i64(s, 4, ROUND_COLLECTING);
    tacit_bind_blob(s, 5, row->plan, row->plan_size);
    tacit_bind_blob(s, 6, row->plan_hash, sizeof row->plan_hash);
    tacit_bind_u64(s, 7, row->plan_index);
    tacit_bind_u64(s, 8, row->opened_ms);
    tacit_bind_u64(s, 9, row->deadline_ms);
    tacit_bind_blob(s, 10, secret->data, secret->size);
    return tacit_statement_finish(s, err);
}

tacit_status round_get(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES], round_row *out,
                       tacit_error *err)
{
    tacit_statement *s;
    *out = (round_row){0};
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " ROUND_COLUMNS " FROM round_round r WHERE r.round_id = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    return take_round(s, out, err);
}

tacit_status round_current(tacit_database *db, round_row *out, tacit_error *err)
{
    tacit_statement *s;
    *out = (round_row){0};
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " ROUND_COLUMNS " FROM round_round r WHERE r.closed_ms = 0 LIMIT 1", err);
    return status == TACIT_OK ? take_round(s, out, err) : status;
}

tacit_status round_plan_get(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                            uint8_t **plan, size_t *size, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status =
        tacit_statement_begin(db, &s, "SELECT plan FROM round_round WHERE round_id = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such round; see 'round list'");
    if (status == TACIT_OK)
        status = copy_blob(s, 0, plan, size, err);
    tacit_statement_end(s);
    return status;
}

static tacit_status take_brief(tacit_statement *s, round_brief *out, tacit_error *err)
{
    bool row = false;
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such round; see 'round list'");
    if (status == TACIT_OK) {
        tacit_column_bytes(s, 0, out->round_id, sizeof out->round_id);
        out->state = (round_state)tacit_column_i64(s, 1);
        out->deadline_ms = tacit_column_u64(s, 2);
        status = tacit_statement_check(s, err);
    }
    tacit_statement_end(s);
    return status;
}

tacit_status round_brief_get(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                             round_brief *out, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT round_id, state, deadline_ms FROM round_round WHERE round_id = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    return take_brief(s, out, err);
}

tacit_status round_brief_current(tacit_database *db, round_brief *out, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT round_id, state, deadline_ms FROM round_round WHERE closed_ms = 0 LIMIT 1",
        err);
    return status == TACIT_OK ? take_brief(s, out, err) : status;
}

/* Each row of a statement that selects ROUND_COLUMNS; ends the statement. */
static tacit_status each_round(tacit_statement *s,
                               tacit_status (*each)(void *ctx, const round_row *row,
                                                    tacit_error *err),
                               void *ctx, tacit_error *err)
{
    bool row = false;
    tacit_status status;
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        round_row r;
        status = read_round(s, &r, err);
        if (status == TACIT_OK)
            status = each(ctx, &r, err);
        round_row_free(&r);
        if (status != TACIT_OK)
            break;
    }
    tacit_statement_end(s);
    return status;
}

tacit_status round_each(tacit_database *db,
                        tacit_status (*each)(void *ctx, const round_row *row, tacit_error *err),
                        void *ctx, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " ROUND_COLUMNS " FROM round_round r ORDER BY r.rowid", err);
    return status == TACIT_OK ? each_round(s, each, ctx, err) : status;
}

tacit_status round_each_summed(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                               tacit_status (*each)(void *ctx, const round_row *row,
                                                    tacit_error *err),
                               void *ctx, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(db, &s,
                                                "SELECT " ROUND_COLUMNS
                                                " FROM round_round r WHERE r.lineage = $1 AND "
                                                "r.result_digest IS NOT NULL ORDER BY r.position",
                                                err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, LINEAGE_BYTES);
    return each_round(s, each, ctx, err);
}

tacit_status round_secret(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                          tacit_secret *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT secret FROM round_round WHERE round_id = $1 AND secret IS NOT NULL", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "the round is closed and its key erased");
    if (status == TACIT_OK) {
        tacit_span secret = tacit_column_blob(s, 0);
        status = tacit_secret_new(out, secret.size, err);
        if (status == TACIT_OK)
            memcpy(out->data, secret.data, secret.size);
    }
    tacit_statement_end(s);
    return status;
}

/* Overwrites the secret before it is dropped; secure_delete zeroes freed pages as well. */
static tacit_status erase_secret(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                                 uint64_t now_ms, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE round_round SET secret = zeroblob(length(secret)) WHERE round_id = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    status = tacit_statement_finish(s, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_begin(
        db, &s, "UPDATE round_round SET secret = NULL, closed_ms = $2 WHERE round_id = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_u64(s, 2, now_ms);
    return tacit_statement_finish(s, err);
}

tacit_status round_move(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                        round_state from, round_state to, const char *reason, uint64_t now_ms,
                        tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE round_round SET state = $3, reason = $4 WHERE round_id = $1 AND state = $2",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_i64(s, 2, from);
    tacit_bind_i64(s, 3, to);
    tacit_bind_text(s, 4, reason);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) != 1)
        status =
            tacit_fail(err, TACIT_CONFLICT, "the round is not %s any more", round_state_name(from));
    if (status == TACIT_OK && round_state_is_final(to))
        status = erase_secret(db, round_id, now_ms, err);
    return status;
}

tacit_status round_set_result(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                              const uint8_t digest[TACIT_DIGEST_BYTES], tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE round_round SET result_digest = $2 WHERE round_id = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_blob(s, 2, digest, TACIT_DIGEST_BYTES);
    return tacit_statement_finish(s, err);
}

tacit_status round_set_evaluation(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                                  double loss, double accuracy, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE round_round SET loss = $2, accuracy = $3 WHERE round_id = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_f64(s, 2, loss);
    tacit_bind_f64(s, 3, accuracy);
    return tacit_statement_finish(s, err);
}

/* --- cohort --- */

tacit_status round_member_insert(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                                 const uint8_t device[TACIT_DEVICE_BYTES], tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT INTO round_member (round_id, device) VALUES ($1, $2)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_blob(s, 2, device, TACIT_DEVICE_BYTES);
    return tacit_statement_finish(s, err);
}

tacit_status round_member_is(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                             const uint8_t device[TACIT_DEVICE_BYTES], bool *is, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT 1 FROM round_member WHERE round_id = $1 AND device = $2", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_blob(s, 2, device, TACIT_DEVICE_BYTES);
    status = tacit_statement_step(s, is, err);
    tacit_statement_end(s);
    return status;
}

tacit_status round_members_ended(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                                 uint32_t *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT count(*) FROM round_member m JOIN server_device d ON d.device = m.device WHERE "
        "m.round_id = $1 AND (d.revoked OR d.frozen OR d.declined = (SELECT lineage FROM "
        "round_round "
        "WHERE round_id = $1)) AND NOT EXISTS (SELECT 1 FROM round_update u WHERE u.round_id = "
        "m.round_id AND u.device = m.device AND (u.state >= $2 OR NOT (d.revoked OR d.frozen)))",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_i64(s, 2, UPDATE_ACCEPTED);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK)
        *out = (uint32_t)tacit_column_u64(s, 0);
    tacit_statement_end(s);
    return status;
}

/* --- updates --- */

#define UPDATE_COLUMNS                                                                             \
    "reserve_hash, round_id, device, state, size, digest, reason, entry_index, nonce"

static void read_update(tacit_statement *s, update_row *out)
{
    *out = (update_row){.state = (update_state)tacit_column_i64(s, 3),
                        .size = tacit_column_u64(s, 4),
                        .entry_index = tacit_column_u64(s, 7)};
    tacit_column_bytes(s, 0, out->reserve_hash, sizeof out->reserve_hash);
    tacit_column_bytes(s, 1, out->round_id, sizeof out->round_id);
    tacit_column_bytes(s, 2, out->device, sizeof out->device);
    if (!tacit_column_is_null(s, 5))
        tacit_column_bytes(s, 5, out->digest, sizeof out->digest);
    snprintf(out->reason, sizeof out->reason, "%s", tacit_column_text(s, 6));
    tacit_column_bytes(s, 8, out->nonce, sizeof out->nonce);
}

static tacit_status take_update(tacit_statement *s, update_row *out, tacit_error *err)
{
    bool row = false;
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such reserve in a round of this server");
    if (status == TACIT_OK) {
        read_update(s, out);
        status = tacit_statement_check(s, err);
    }
    tacit_statement_end(s);
    return status;
}

tacit_status update_insert(tacit_database *db, const update_row *row, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT INTO round_update (reserve_hash, round_id, device, state, nonce) "
        "VALUES ($1, $2, $3, $4, $5)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, row->reserve_hash, sizeof row->reserve_hash);
    tacit_bind_blob(s, 2, row->round_id, sizeof row->round_id);
    tacit_bind_blob(s, 3, row->device, sizeof row->device);
    tacit_bind_i64(s, 4, UPDATE_RESERVED);
    tacit_bind_blob(s, 5, row->nonce, sizeof row->nonce);
    return tacit_statement_finish(s, err);
}

tacit_status update_get(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                        update_row *out, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " UPDATE_COLUMNS " FROM round_update WHERE reserve_hash = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, reserve_hash, TACIT_DIGEST_BYTES);
    return take_update(s, out, err);
}

tacit_status update_of_device(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                              const uint8_t device[TACIT_DEVICE_BYTES], update_row *out,
                              tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " UPDATE_COLUMNS " FROM round_update WHERE round_id = $1 AND device = $2",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_blob(s, 2, device, TACIT_DEVICE_BYTES);
    return take_update(s, out, err);
}

tacit_status update_begin(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                          uint64_t size, const uint8_t digest[TACIT_DIGEST_BYTES], tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "UPDATE round_update SET state = $2, size = $3, digest = $4 WHERE reserve_hash = $1 AND "
        "state = $5",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, reserve_hash, TACIT_DIGEST_BYTES);
    tacit_bind_i64(s, 2, UPDATE_RECEIVING);
    tacit_bind_u64(s, 3, size);
    tacit_bind_blob(s, 4, digest, TACIT_DIGEST_BYTES);
    tacit_bind_i64(s, 5, UPDATE_RESERVED);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) != 1)
        status = tacit_fail(err, TACIT_CONFLICT, "an upload for this reserve was begun before");
    return status;
}

tacit_status update_end(tacit_database *db, const uint8_t reserve_hash[TACIT_DIGEST_BYTES],
                        update_state state, const char *reason, uint64_t entry_index,
                        tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "UPDATE round_update SET state = $2, reason = $3, entry_index = $4 WHERE "
        "reserve_hash = $1 AND state IN (1, 2)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, reserve_hash, TACIT_DIGEST_BYTES);
    tacit_bind_i64(s, 2, state);
    tacit_bind_text(s, 3, reason);
    tacit_bind_u64(s, 4, entry_index);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) != 1)
        status = tacit_fail(err, TACIT_CONFLICT, "this update was decided before");
    return status;
}

static tacit_status grow_updates(update_row **rows, size_t count, tacit_error *err)
{
    if (count & (count - 1)) /* grows at powers of two */
        return TACIT_OK;
    update_row *grown = realloc(*rows, (count ? 2 * count : 1) * sizeof **rows);
    if (!grown)
        return tacit_fail(err, TACIT_NO_MEMORY, "round: no memory for %zu updates", count);
    *rows = grown;
    return TACIT_OK;
}

tacit_status update_list(tacit_database *db, const uint8_t round_id[ROUND_ID_BYTES],
                         update_state state, update_row **out, size_t *count, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *out = NULL;
    *count = 0;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT " UPDATE_COLUMNS " FROM round_update WHERE round_id = $1 AND ($2 = 0 OR "
        "state = $2) ORDER BY reserve_hash",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, round_id, ROUND_ID_BYTES);
    tacit_bind_i64(s, 2, state);
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        status = grow_updates(out, *count, err);
        if (status != TACIT_OK)
            break;
        read_update(s, &(*out)[(*count)++]);
    }
    tacit_statement_end(s);
    if (status != TACIT_OK) {
        free(*out);
        *out = NULL;
        *count = 0;
    }
    return status;
}
