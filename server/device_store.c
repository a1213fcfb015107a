#include "server/device_store.h"

#include "common/text.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const char *const device_sql[] = {
    "CREATE TABLE server_device ("
    "  device BLOB PRIMARY KEY, name TEXT NOT NULL, identity_key BLOB NOT NULL UNIQUE,"
    "  enrolment BLOB NOT NULL, entry_index INTEGER NOT NULL DEFAULT 0,"
    "  counter INTEGER NOT NULL DEFAULT 0, action BLOB NOT NULL,"
    "  reply_status INTEGER NOT NULL DEFAULT 0, reply_message TEXT NOT NULL DEFAULT '',"
    "  reply_body BLOB NOT NULL DEFAULT x'',"
    "  enrolled_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL DEFAULT 0,"
    "  certificate_until_ms INTEGER NOT NULL, active_version INTEGER NOT NULL DEFAULT 0,"
    "  revoked INTEGER NOT NULL DEFAULT 0, frozen INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE TABLE server_token ("
    "  hash BLOB PRIMARY KEY, created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL,"
    "  used_ms INTEGER NOT NULL DEFAULT 0, used_by BLOB,"
    "  revoked INTEGER NOT NULL DEFAULT 0) STRICT;",
    "ALTER TABLE server_device ADD COLUMN certificates_since_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE server_device ADD COLUMN certificates INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE server_device ADD COLUMN declined BLOB;",
};

tacit_status device_store_open(tacit_database *db, tacit_error *err)
{
    static const tacit_migrations migrations = {"server", device_sql,
                                                sizeof device_sql / sizeof device_sql[0]};
    return tacit_database_migrate(db, &migrations, err);
}

#define DEVICE_COLUMNS                                                                             \
    "device, name, identity_key, counter, action, enrolled_ms, seen_ms, certificate_until_ms, "    \
    "active_version, revoked, frozen, enrolment, entry_index, certificates_since_ms, "             \
    "certificates, "                                                                               \
    "declined"

static void read_device(tacit_statement *s, device_row *out)
{
    *out = (device_row){0};
    tacit_column_bytes(s, 0, out->device, sizeof out->device);
    snprintf(out->name, sizeof out->name, "%s", tacit_column_text(s, 1));
    tacit_column_bytes(s, 2, out->identity_key, sizeof out->identity_key);
    out->counter = tacit_column_u64(s, 3);
    tacit_column_bytes(s, 4, out->action, sizeof out->action);
    out->enrolled_ms = tacit_column_u64(s, 5);
    out->seen_ms = tacit_column_u64(s, 6);
    out->certificate_until_ms = tacit_column_u64(s, 7);
    out->active_version = tacit_column_u64(s, 8);
    out->revoked = tacit_column_i64(s, 9) != 0;
    out->frozen = tacit_column_i64(s, 10) != 0;
    tacit_column_bytes(s, 11, out->enrolment, sizeof out->enrolment);
    out->entry_index = tacit_column_u64(s, 12);
    out->certificates_since_ms = tacit_column_u64(s, 13);
    out->certificates = (uint32_t)tacit_column_u64(s, 14);
    out->has_declined = !tacit_column_is_null(s, 15);
    if (out->has_declined)
        tacit_column_bytes(s, 15, out->declined, sizeof out->declined);
}

device_label device_called(const device_row *row)
{
    device_label label;
    if (row->name[0])
        memcpy(label.text, row->name, sizeof label.text);
    else
        tacit_hex(label.text, row->device, 4);
    return label;
}

tacit_status device_get(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                        device_row *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " DEVICE_COLUMNS " FROM server_device WHERE device = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, device, TACIT_DEVICE_BYTES);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row) {
        read_device(s, out);
        status = tacit_statement_check(s, err);
    } else if (status == TACIT_OK) {
        status =
            tacit_fail(err, TACIT_REFUSED, "unknown device; enrol it with a token of this server");
    }
    tacit_statement_end(s);
    return status;
}

tacit_status device_insert(tacit_database *db, const device_row *row, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "INSERT INTO server_device (device, name, identity_key, action, enrolled_ms, "
        "certificate_until_ms, enrolment, entry_index, certificates_since_ms, certificates) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $5, 1)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, row->device, sizeof row->device);
    tacit_bind_text(s, 2, row->name);
    tacit_bind_blob(s, 3, row->identity_key, sizeof row->identity_key);
    tacit_bind_blob(s, 4, row->action, sizeof row->action);
    tacit_bind_u64(s, 5, row->enrolled_ms);
    tacit_bind_u64(s, 6, row->certificate_until_ms);
    tacit_bind_blob(s, 7, row->enrolment, sizeof row->enrolment);
    tacit_bind_u64(s, 8, row->entry_index);
    return tacit_statement_finish(s, err);
}

/* One UPDATE of a device by a number. */
static tacit_status set_number(tacit_database *db, const char *sql,
                               const uint8_t device[TACIT_DEVICE_BYTES], uint64_t v,
                               tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, device, TACIT_DEVICE_BYTES);
    tacit_bind_u64(s, 2, v);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) != 1)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such device; see 'device list'");
    return status;
}

tacit_status device_seen(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                         uint64_t now_ms, uint64_t active_version, tacit_error *err)
{
    tacit_status status = set_number(db, "UPDATE server_device SET seen_ms = $2 WHERE device = $1",
                                     device, now_ms, err);
    if (status != TACIT_OK)
        return status;
    return set_number(db, "UPDATE server_device SET active_version = $2 WHERE device = $1", device,
                      active_version, err);
}

#define HOUR_MS 3600000u

/* A clock that was set back opens a new hour: it must lock nobody out. */
static bool is_same_hour(const device_row *row, uint64_t now_ms)
{
    return now_ms >= row->certificates_since_ms && now_ms - row->certificates_since_ms < HOUR_MS;
}

tacit_status device_may_certify(const device_row *row, uint64_t now_ms, tacit_error *err)
{
    if (!is_same_hour(row, now_ms) || row->certificates < DEVICE_CERTIFICATES_AN_HOUR)
        return TACIT_OK;
    uint64_t left_ms = HOUR_MS - (now_ms - row->certificates_since_ms);
    return tacit_fail(err, TACIT_AGAIN,
                      "certificate: this device got %u within the hour, the most are %d; ask again "
                      "in %llu minutes",
                      row->certificates, DEVICE_CERTIFICATES_AN_HOUR,
                      (unsigned long long)(left_ms + 59999) / 60000);
}

tacit_status device_set_certificate(tacit_database *db, const device_row *row, uint64_t until_ms,
                                    uint64_t now_ms, tacit_error *err)
{
    tacit_statement *s;
    bool same = is_same_hour(row, now_ms);
    tacit_status status =
        tacit_statement_begin(db, &s,
                              "UPDATE server_device SET certificate_until_ms = $2, "
                              "certificates_since_ms = $3, certificates = $4 WHERE device = $1",
                              err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, row->device, TACIT_DEVICE_BYTES);
    tacit_bind_u64(s, 2, until_ms);
    tacit_bind_u64(s, 3, same ? row->certificates_since_ms : now_ms);
    tacit_bind_u64(s, 4, same ? row->certificates + 1 : 1);
    return tacit_statement_finish(s, err);
}

tacit_status device_set_declined(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                                 const uint8_t *lineage, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE server_device SET declined = $2 WHERE device = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, device, TACIT_DEVICE_BYTES);
    tacit_bind_blob(s, 2, lineage, DEVICE_LINEAGE_BYTES);
    return tacit_statement_finish(s, err);
}

tacit_status device_freeze(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                           tacit_error *err)
{
    return set_number(db, "UPDATE server_device SET frozen = $2 WHERE device = $1", device, 1, err);
}

tacit_status device_revoke(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                           tacit_error *err)
{
    return set_number(db, "UPDATE server_device SET revoked = $2 WHERE device = $1", device, 1,
                      err);
}

tacit_status device_each(tacit_database *db,
                         tacit_status (*each)(void *ctx, const device_row *row, tacit_error *err),
                         void *ctx, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " DEVICE_COLUMNS " FROM server_device ORDER BY rowid", err);
    if (status != TACIT_OK)
        return status;
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        device_row device;
        read_device(s, &device);
        status = each(ctx, &device, err);
        if (status != TACIT_OK)
            break;
    }
    tacit_statement_end(s);
    return status;
}

tacit_status device_store_reply(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                                uint64_t counter, const uint8_t action[TACIT_DIGEST_BYTES],
                                tacit_status reply, const char *message, tacit_span body,
                                tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "UPDATE server_device SET counter = $2, action = $3, reply_status = $4, "
        "reply_message = $5, reply_body = $6 WHERE device = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, device, TACIT_DEVICE_BYTES);
    tacit_bind_u64(s, 2, counter);
    tacit_bind_blob(s, 3, action, TACIT_DIGEST_BYTES);
    tacit_bind_i64(s, 4, reply);
    tacit_bind_text(s, 5, message);
    tacit_bind_blob(s, 6, body.data ? body.data : (const uint8_t *)"", body.size);
    return tacit_statement_finish(s, err);
}

tacit_status device_stored_reply(tacit_database *db, const uint8_t device[TACIT_DEVICE_BYTES],
                                 tacit_status *reply, char message[TACIT_ERROR_MAX],
                                 tacit_buffer *body, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT reply_status, reply_message, reply_body FROM server_device WHERE device = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, device, TACIT_DEVICE_BYTES);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such device");
    if (status == TACIT_OK) {
        tacit_span stored = tacit_column_blob(s, 2);
        *reply = (tacit_status)tacit_column_i64(s, 0);
        snprintf(message, TACIT_ERROR_MAX, "%s", tacit_column_text(s, 1));
        status = tacit_buffer_append(body, stored.data, stored.size);
    }
    tacit_statement_end(s);
    return status;
}

static void token_hash(uint8_t hash[32], const uint8_t token[TOKEN_BYTES])
{
    crypto_generichash(hash, 32, token, TOKEN_BYTES, NULL, 0);
}

tacit_status token_insert(tacit_database *db, const uint8_t token[TOKEN_BYTES], uint64_t now_ms,
                          uint64_t expires_ms, char id[TOKEN_ID_TEXT], tacit_error *err)
{
    uint8_t hash[32];
    tacit_statement *s;
    token_hash(hash, token);
    tacit_hex(id, hash, 8);
    tacit_status status = tacit_statement_begin(
        db, &s, "INSERT INTO server_token (hash, created_ms, expires_ms) VALUES ($1, $2, $3)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, hash, sizeof hash);
    tacit_bind_u64(s, 2, now_ms);
    tacit_bind_u64(s, 3, expires_ms);
    return tacit_statement_finish(s, err);
}

static tacit_status refuse_token(tacit_error *err)
{
    return tacit_fail(err, TACIT_REFUSED,
                      "the token is not valid (unknown, used, expired or revoked); ask the "
                      "operator for a new one");
}

tacit_status token_consume(tacit_database *db, const uint8_t token[TOKEN_BYTES], uint64_t now_ms,
                           const uint8_t device[TACIT_DEVICE_BYTES], tacit_error *err)
{
    uint8_t hash[32];
    tacit_statement *s;
    token_hash(hash, token);
    tacit_status status =
        tacit_statement_begin(db, &s,
                              "UPDATE server_token SET used_ms = $2, used_by = $3 WHERE hash = $1 "
                              "AND used_ms = 0 AND revoked = 0 AND expires_ms > $2",
                              err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, hash, sizeof hash);
    tacit_bind_u64(s, 2, now_ms);
    tacit_bind_blob(s, 3, device, TACIT_DEVICE_BYTES);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) != 1)
        status = refuse_token(err);
    return status;
}

tacit_status token_used_by(tacit_database *db, const uint8_t token[TOKEN_BYTES], uint64_t now_ms,
                           uint8_t device[TACIT_DEVICE_BYTES], bool *used, tacit_error *err)
{
    uint8_t hash[32];
    tacit_statement *s;
    token_hash(hash, token);
    tacit_status status = tacit_statement_begin(db, &s,
                                                "SELECT used_by FROM server_token WHERE hash = $1 "
                                                "AND used_ms != 0 AND revoked = 0 AND "
                                                "expires_ms > $2",
                                                err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, hash, sizeof hash);
    tacit_bind_u64(s, 2, now_ms);
    status = tacit_statement_step(s, used, err);
    if (status == TACIT_OK && *used) {
        tacit_column_bytes(s, 0, device, TACIT_DEVICE_BYTES);
        status = tacit_statement_check(s, err);
    }
    tacit_statement_end(s);
    return status;
}

tacit_status token_revoke(tacit_database *db, const char *id, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE server_token SET revoked = 1 WHERE lower(hex(substr(hash, 1, 8))) = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_text(s, 1, id);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) != 1)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no token %s; see 'token list'", id);
    return status;
}

tacit_status token_revoke_all(tacit_database *db, tacit_error *err)
{
    return tacit_database_run(db, "UPDATE server_token SET revoked = 1 WHERE used_ms = 0", err);
}

tacit_status token_each(tacit_database *db,
                        tacit_status (*each)(void *ctx, const token_row *row, tacit_error *err),
                        void *ctx, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT lower(hex(substr(hash, 1, 8))), created_ms, expires_ms, used_ms, revoked "
        "FROM server_token ORDER BY rowid",
        err);
    if (status != TACIT_OK)
        return status;
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        token_row t = {.created_ms = tacit_column_u64(s, 1),
                       .expires_ms = tacit_column_u64(s, 2),
                       .used_ms = tacit_column_u64(s, 3),
                       .revoked = tacit_column_i64(s, 4) != 0};
        snprintf(t.id, sizeof t.id, "%s", tacit_column_text(s, 0));
        status = each(ctx, &t, err);
        if (status != TACIT_OK)
            break;
    }
    tacit_statement_end(s);
    return status;
}
