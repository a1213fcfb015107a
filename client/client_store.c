#include "client/client_store.h"

#include "client/round_state_store.h"

#include <stdio.h>
#include <string.h>

static const char *const migration_sql[] = {
    "CREATE TABLE client_enrolment (id INTEGER PRIMARY KEY CHECK (id = 1), device BLOB NOT NULL,"
    " server_key BLOB NOT NULL, log_name TEXT NOT NULL, log_key BLOB NOT NULL,"
    " operator_key BLOB, entry_index INTEGER NOT NULL, tls_generation INTEGER NOT NULL,"
    " policy BLOB NOT NULL) STRICT;"
    "CREATE TABLE client_number (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;"
    "CREATE TABLE client_base (fingerprint BLOB PRIMARY KEY, digest BLOB NOT NULL) STRICT;"
    "CREATE TABLE client_adapter (id INTEGER PRIMARY KEY, file_digest BLOB NOT NULL UNIQUE,"
    " lineage BLOB NOT NULL, version INTEGER NOT NULL, epsilon REAL, delta REAL NOT NULL,"
    " accuracy REAL, loss REAL) STRICT;"
    "CREATE TABLE client_round (id INTEGER PRIMARY KEY, round_id BLOB NOT NULL UNIQUE,"
    " local INTEGER NOT NULL, plan BLOB NOT NULL, schedule BLOB NOT NULL,"
    " reserve_hash BLOB NOT NULL, state INTEGER NOT NULL, reserved_ms INTEGER NOT NULL,"
    " upload_ms INTEGER NOT NULL, sealed_bytes INTEGER NOT NULL, sealed_digest BLOB,"
    " reason TEXT NOT NULL) STRICT;",
    "CREATE TABLE client_refusal (id INTEGER PRIMARY KEY CHECK (id = 1), reason TEXT NOT NULL,"
    " time_ms INTEGER NOT NULL) STRICT;",
    "ALTER TABLE client_enrolment ADD COLUMN policy_key BLOB;"
    "CREATE TABLE client_signed_policy (id INTEGER PRIMARY KEY CHECK (id = 1),"
    " bytes BLOB NOT NULL, serial INTEGER NOT NULL, over BLOB NOT NULL, pending INTEGER NOT NULL)"
    " STRICT;",
    "ALTER TABLE client_enrolment ADD COLUMN log_generation INTEGER NOT NULL DEFAULT 1;",
    "CREATE TABLE client_declared (id INTEGER PRIMARY KEY, policy BLOB NOT NULL UNIQUE) STRICT;"
    "INSERT INTO client_declared (policy) SELECT policy FROM client_enrolment;",
};

static const tacit_migrations migrations = {"client", migration_sql,
                                            sizeof migration_sql / sizeof migration_sql[0]};

tacit_status client_store_open(tacit_database *db, tacit_error *err)
{
    return tacit_database_migrate(db, &migrations, err);
}

/* Steps a SELECT once; TACIT_NOT_FOUND without a row. */
static tacit_status step_one(tacit_statement *s, const char *what, tacit_error *err)
{
    bool row = false;
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "%s: nothing is stored", what);
    return status;
}

/* Ends a SELECT; a column that did not fit is an error even after a good step. */
static tacit_status end_one(tacit_statement *s, tacit_status status, tacit_error *err)
{
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}

/* --- enrolment --- */

static tacit_status take_enrolment(tacit_statement *s, client_enrolment *out, tacit_error *err)
{
    uint8_t log_key[TACIT_SIGN_KEY_BYTES];
    tacit_column_bytes(s, 0, out->device, sizeof out->device);
    tacit_column_bytes(s, 1, out->server_key, sizeof out->server_key);
    tacit_column_bytes(s, 3, log_key, sizeof log_key);
    out->has_operator_key = !tacit_column_is_null(s, 4);
    if (out->has_operator_key)
        tacit_column_bytes(s, 4, out->operator_key, sizeof out->operator_key);
    out->entry_index = tacit_column_u64(s, 5);
    out->tls_generation = tacit_column_u64(s, 6);
    out->has_policy_key = !tacit_column_is_null(s, 8);
    if (out->has_policy_key)
        tacit_column_bytes(s, 8, out->policy_key, sizeof out->policy_key);
    tacit_span policy = tacit_column_blob(s, 7);
    if (policy.size > sizeof out->policy)
        return tacit_fail(err, TACIT_BAD_INPUT, "enrolment: the stored policy is damaged");
    out->policy_size = policy.size;
    memcpy(out->policy, policy.data, policy.size);
    out->log_generation = (uint32_t)tacit_column_u64(s, 9);
    return tacit_note_key_make(&out->log, tacit_column_text(s, 2), log_key, err);
}

tacit_status client_enrolment_get(tacit_database *db, client_enrolment *out, tacit_error *err)
{
    tacit_statement *s;
    *out = (client_enrolment){0};
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT device, server_key, log_name, log_key, operator_key, entry_index, tls_generation,"
        " policy, policy_key, log_generation FROM client_enrolment",
        err);
    if (status != TACIT_OK)
        return status;
    status = step_one(s, "enrolment", err);
    if (status == TACIT_OK)
        status = take_enrolment(s, out, err);
    return end_one(s, status, err);
}

static tacit_status remember_declared(tacit_database *db, const client_enrolment *e,
                                      tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT OR IGNORE INTO client_declared (policy) VALUES ($1)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, e->policy, e->policy_size);
    return tacit_statement_finish(s, err);
}

tacit_status client_declared_next(tacit_database *db, uint64_t after, client_declared *out,
                                  tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT id, policy FROM client_declared WHERE id > $1 ORDER BY id LIMIT 1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, after);
    status = step_one(s, "declared policy", err);
    if (status == TACIT_OK) {
        tacit_span policy = tacit_column_blob(s, 1);
        out->id = tacit_column_u64(s, 0);
        out->size = policy.size;
        if (policy.size > sizeof out->policy)
            status = tacit_fail(err, TACIT_BAD_INPUT, "a stored policy is damaged");
        else
            memcpy(out->policy, policy.data, policy.size);
    }
    return end_one(s, status, err);
}

tacit_status client_enrolment_put(tacit_database *db, const client_enrolment *e, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT OR REPLACE INTO client_enrolment (id, device, server_key, log_name, log_key,"
        " operator_key, entry_index, tls_generation, policy, policy_key, log_generation)"
        " VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, e->device, sizeof e->device);
    tacit_bind_blob(s, 2, e->server_key, sizeof e->server_key);
    tacit_bind_text(s, 3, e->log.name);
    tacit_bind_blob(s, 4, e->log.key, sizeof e->log.key);
    tacit_bind_blob(s, 5, e->has_operator_key ? e->operator_key : NULL, sizeof e->operator_key);
    tacit_bind_u64(s, 6, e->entry_index);
    tacit_bind_u64(s, 7, e->tls_generation);
    tacit_bind_blob(s, 8, e->policy, e->policy_size);
    tacit_bind_blob(s, 9, e->has_policy_key ? e->policy_key : NULL, sizeof e->policy_key);
    tacit_bind_u64(s, 10, e->log_generation);
    status = tacit_statement_finish(s, err);
    return status == TACIT_OK ? remember_declared(db, e, err) : status;
}

/* --- numbers --- */

static tacit_status number_put(tacit_database *db, const char *name, uint64_t value,
                               tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT OR REPLACE INTO client_number (name, value) VALUES ($1, $2)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_text(s, 1, name);
    tacit_bind_u64(s, 2, value);
    return tacit_statement_finish(s, err);
}

/* 0 when it was never put. */
static tacit_status number_get(tacit_database *db, const char *name, uint64_t *value,
                               tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *value = 0;
    tacit_status status =
        tacit_statement_begin(db, &s, "SELECT value FROM client_number WHERE name = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_text(s, 1, name);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row)
        *value = tacit_column_u64(s, 0);
    return end_one(s, status, err);
}

/* The next of a number that only rises, committed. */
static tacit_status number_next(tacit_database *db, const char *name, uint64_t *value,
                                tacit_error *err)
{
    tacit_status status = tacit_database_begin(db, err);
    if (status != TACIT_OK)
        return status;
    status = number_get(db, name, value, err);
    if (status == TACIT_OK)
        status = number_put(db, name, ++*value, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(db);
    return status;
}

tacit_status client_counter_next(void *ctx, uint64_t *counter, tacit_error *err)
{
    return number_next(ctx, "counter", counter, err);
}

tacit_status client_counter_raise(tacit_database *db, uint64_t counter, tacit_error *err)
{
    uint64_t own;
    tacit_status status = number_get(db, "counter", &own, err);
    return status == TACIT_OK && counter > own ? number_put(db, "counter", counter, err) : status;
}

tacit_status client_policy_serial_next(tacit_database *db, uint64_t *serial, tacit_error *err)
{
    return number_next(db, "policy_serial", serial, err);
}

tacit_status client_receipts_get(tacit_database *db, uint64_t *sequence, tacit_error *err)
{
    return number_get(db, "receipts", sequence, err);
}

tacit_status client_receipts_put(tacit_database *db, uint64_t sequence, tacit_error *err)
{
    return number_put(db, "receipts", sequence, err);
}

tacit_status client_redeclare_get(tacit_database *db, bool *due, tacit_error *err)
{
    uint64_t value;
    tacit_status status = number_get(db, "redeclare", &value, err);
    *due = value != 0;
    return status;
}

tacit_status client_redeclare_put(tacit_database *db, bool due, tacit_error *err)
{
    return number_put(db, "redeclare", due, err);
}

tacit_status client_declared_end_get(tacit_database *db, uint64_t *end, tacit_error *err)
{
    return number_get(db, "declared_end", end, err);
}

tacit_status client_declared_end_put(tacit_database *db, uint64_t end, tacit_error *err)
{
    return number_put(db, "declared_end", end, err);
}

/* A positive double's bits are below 2^63. */
tacit_status client_owner_cap_get(tacit_database *db, double *cap, tacit_error *err)
{
    uint64_t bits;
    tacit_status status = number_get(db, "owner_cap", &bits, err);
    memcpy(cap, &bits, sizeof *cap);
    return status;
}

tacit_status client_owner_cap_put(tacit_database *db, double cap, tacit_error *err)
{
    uint64_t bits;
    memcpy(&bits, &cap, sizeof bits);
    return number_put(db, "owner_cap", bits, err);
}

/* --- a policy of the policy key --- */

static tacit_status take_signed_policy(tacit_statement *s, client_signed_policy *out,
                                       tacit_error *err)
{
    tacit_span bytes = tacit_column_blob(s, 0), over = tacit_column_blob(s, 2);
    if (bytes.size > sizeof out->bytes || over.size > sizeof out->over)
        return tacit_fail(err, TACIT_BAD_INPUT, "signed policy: the stored one is damaged");
    memcpy(out->bytes, bytes.data, bytes.size);
    out->size = bytes.size;
    out->serial = tacit_column_u64(s, 1);
    if (over.size)
        memcpy(out->over, over.data, over.size);
    out->over_size = over.size;
    out->pending = tacit_column_i64(s, 3) != 0;
    return TACIT_OK;
}

tacit_status client_signed_policy_get(tacit_database *db, client_signed_policy *out,
                                      tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    memset(out, 0, sizeof *out);
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT bytes, serial, over, pending FROM client_signed_policy", err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row)
        status = take_signed_policy(s, out, err);
    return end_one(s, status, err);
}

tacit_status client_signed_policy_put(tacit_database *db, const client_signed_policy *p,
                                      tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT OR REPLACE INTO client_signed_policy (id, bytes, serial, over, pending)"
        " VALUES (1, $1, $2, $3, $4)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, p->bytes, p->size);
    tacit_bind_u64(s, 2, p->serial);
    tacit_bind_blob(s, 3, p->over, p->over_size);
    tacit_bind_u64(s, 4, p->pending);
    return tacit_statement_finish(s, err);
}

/* --- the last refusal --- */

tacit_status client_refusal_put(tacit_database *db, const char *reason, uint64_t time_ms,
                                tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT OR REPLACE INTO client_refusal (id, reason, time_ms) VALUES (1, $1, $2)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_text(s, 1, reason ? reason : "");
    tacit_bind_u64(s, 2, time_ms);
    return tacit_statement_finish(s, err);
}

tacit_status client_refusal_get(tacit_database *db, client_refusal *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *out = (client_refusal){0};
    tacit_status status =
        tacit_statement_begin(db, &s, "SELECT reason, time_ms FROM client_refusal", err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row) {
        snprintf(out->reason, sizeof out->reason, "%s", tacit_column_text(s, 0));
        out->time_ms = tacit_column_u64(s, 1);
    }
    return end_one(s, status, err);
}

/* --- model files --- */

tacit_status client_base_get(tacit_database *db, const uint8_t fingerprint[TACIT_DIGEST_BYTES],
                             uint8_t digest[TACIT_DIGEST_BYTES], tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(db, &s, "SELECT digest FROM client_base WHERE fingerprint = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, fingerprint, TACIT_DIGEST_BYTES);
    status = step_one(s, "digest of the model", err);
    if (status == TACIT_OK)
        tacit_column_bytes(s, 0, digest, TACIT_DIGEST_BYTES);
    return end_one(s, status, err);
}

tacit_status client_base_put(tacit_database *db, const uint8_t fingerprint[TACIT_DIGEST_BYTES],
                             const uint8_t digest[TACIT_DIGEST_BYTES], tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT OR REPLACE INTO client_base (fingerprint, digest) VALUES ($1, $2)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, fingerprint, TACIT_DIGEST_BYTES);
    tacit_bind_blob(s, 2, digest, TACIT_DIGEST_BYTES);
    return tacit_statement_finish(s, err);
}

/* --- adapters --- */

/* NULL stands for infinity and not-a-number, which SQLite cannot hold as REAL. */
static void bind_number(tacit_statement *s, int at, double v)
{
    if (v - v == 0)
        tacit_bind_f64(s, at, v);
    else
        tacit_bind_null(s, at);
}

static double column_number(tacit_statement *s, int at, double otherwise)
{
    return tacit_column_is_null(s, at) ? otherwise : tacit_column_f64(s, at);
}

tacit_status client_adapter_put(tacit_database *db, const client_adapter *a, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT OR REPLACE INTO client_adapter (file_digest, lineage, version, epsilon, delta,"
        " accuracy, loss) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, a->file_digest, sizeof a->file_digest);
    tacit_bind_blob(s, 2, a->lineage, sizeof a->lineage);
    tacit_bind_u64(s, 3, a->version);
    bind_number(s, 4, a->epsilon_published);
    bind_number(s, 5, a->delta);
    bind_number(s, 6, a->accuracy);
    bind_number(s, 7, a->loss);
    return tacit_statement_finish(s, err);
}

#define ADAPTER_COLUMNS "file_digest, lineage, version, epsilon, delta, accuracy, loss"

static tacit_status take_adapter(tacit_statement *s, client_adapter *out, tacit_error *err)
{
    tacit_status status = step_one(s, "adapter", err);
    if (status == TACIT_OK) {
        tacit_column_bytes(s, 0, out->file_digest, sizeof out->file_digest);
        tacit_column_bytes(s, 1, out->lineage, sizeof out->lineage);
        out->version = tacit_column_u64(s, 2);
        out->epsilon_published = column_number(s, 3, 1.0 / 0.0);
        out->delta = column_number(s, 4, 0);
        out->accuracy = column_number(s, 5, 0.0 / 0.0);
        out->loss = column_number(s, 6, 0.0 / 0.0);
    }
    return end_one(s, status, err);
}

tacit_status client_adapter_last(tacit_database *db, client_adapter *out, tacit_error *err)
{
    tacit_statement *s;
    *out = (client_adapter){0};
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " ADAPTER_COLUMNS " FROM client_adapter ORDER BY id DESC LIMIT 1", err);
    return status == TACIT_OK ? take_adapter(s, out, err) : status;
}

tacit_status client_adapter_get(tacit_database *db, const uint8_t digest[TACIT_DIGEST_BYTES],
                                client_adapter *out, tacit_error *err)
{
    tacit_statement *s;
    *out = (client_adapter){0};
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " ADAPTER_COLUMNS " FROM client_adapter WHERE file_digest = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, digest, TACIT_DIGEST_BYTES);
    return take_adapter(s, out, err);
}
