#include "server/registry_store.h"

#include <stdlib.h>
#include <string.h>

static const char *const registry_sql[] = {
    "CREATE TABLE registry_adapter ("
    "  lineage BLOB NOT NULL, version INTEGER NOT NULL, parent_version INTEGER NOT NULL,"
    "  file_digest BLOB NOT NULL, manifest BLOB NOT NULL, signature BLOB NOT NULL,"
    "  published_ms INTEGER NOT NULL, entry_index INTEGER NOT NULL, current INTEGER NOT NULL,"
    "  PRIMARY KEY (lineage, version)) STRICT;"
    "CREATE INDEX registry_by_file ON registry_adapter (file_digest);",
};

tacit_status registry_store_open(tacit_database *db, tacit_error *err)
{
    static const tacit_migrations migrations = {"registry", registry_sql,
                                                sizeof registry_sql / sizeof registry_sql[0]};
    return tacit_database_migrate(db, &migrations, err);
}

void registry_row_free(adapter_row *row)
{
    free(row->manifest);
    row->manifest = NULL;
}

#define ADAPTER_COLUMNS                                                                            \
    "lineage, version, parent_version, file_digest, manifest, signature, published_ms, "           \
    "entry_index, current"

static tacit_status read_adapter(tacit_statement *s, adapter_row *out, tacit_error *err)
{
    tacit_span manifest = tacit_column_blob(s, 4);
    *out = (adapter_row){.version = tacit_column_u64(s, 1),
                         .parent_version = tacit_column_u64(s, 2),
                         .published_ms = tacit_column_u64(s, 6),
                         .entry_index = tacit_column_u64(s, 7),
                         .current = tacit_column_i64(s, 8) != 0};
    tacit_column_bytes(s, 0, out->lineage, sizeof out->lineage);
    tacit_column_bytes(s, 3, out->file_digest, sizeof out->file_digest);
    tacit_column_bytes(s, 5, out->signature, sizeof out->signature);
    out->manifest = malloc(manifest.size + 1);
    if (!out->manifest)
        return tacit_fail(err, TACIT_NO_MEMORY, "adapter: no memory for its manifest");
    if (manifest.size)
        memcpy(out->manifest, manifest.data, manifest.size);
    out->manifest_size = manifest.size;
    tacit_status status = tacit_statement_check(s, err);
    if (status != TACIT_OK)
        registry_row_free(out);
    return status;
}

/* Steps to the only row and reads it; ends the statement. */
static tacit_status take_adapter(tacit_statement *s, adapter_row *out, tacit_error *err)
{
    bool row = false;
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && !row)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such adapter; see 'adapter list'");
    if (status == TACIT_OK)
        status = read_adapter(s, out, err);
    tacit_statement_end(s);
    return status;
}

tacit_status registry_insert(tacit_database *db, const adapter_row *row, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(db, &s,
                                                "INSERT INTO registry_adapter (" ADAPTER_COLUMNS
                                                ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)",
                                                err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, row->lineage, sizeof row->lineage);
    tacit_bind_u64(s, 2, row->version);
    tacit_bind_u64(s, 3, row->parent_version);
    tacit_bind_blob(s, 4, row->file_digest, sizeof row->file_digest);
    tacit_bind_blob(s, 5, row->manifest, row->manifest_size);
    tacit_bind_blob(s, 6, row->signature, sizeof row->signature);
    tacit_bind_u64(s, 7, row->published_ms);
    tacit_bind_u64(s, 8, row->entry_index);
    status = tacit_statement_finish(s, err);
    return status == TACIT_OK ? registry_set_current(db, row->lineage, row->version, err) : status;
}

tacit_status registry_set_current(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                                  uint64_t version, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "UPDATE registry_adapter SET current = (version = $2) WHERE lineage = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, LINEAGE_BYTES);
    tacit_bind_u64(s, 2, version);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK && tacit_database_changes(db) == 0)
        status = tacit_fail(err, TACIT_NOT_FOUND, "no such adapter; see 'adapter list'");
    return status;
}

tacit_status registry_next_version(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                                   uint64_t *version, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT coalesce(max(version), 0) + 1 FROM registry_adapter WHERE lineage = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, LINEAGE_BYTES);
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK)
        *version = tacit_column_u64(s, 0);
    tacit_statement_end(s);
    return status;
}

tacit_status registry_current(tacit_database *db, const uint8_t *lineage, adapter_row *out,
                              tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s,
        "SELECT " ADAPTER_COLUMNS " FROM registry_adapter WHERE current = 1 AND "
        "($1 IS NULL OR lineage = $1) ORDER BY published_ms DESC, rowid DESC LIMIT 1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, LINEAGE_BYTES);
    return take_adapter(s, out, err);
}

tacit_status registry_get(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                          uint64_t version, adapter_row *out, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(db, &s,
                                                "SELECT " ADAPTER_COLUMNS
                                                " FROM registry_adapter WHERE lineage = $1 AND "
                                                "version = $2",
                                                err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, lineage, LINEAGE_BYTES);
    tacit_bind_u64(s, 2, version);
    return take_adapter(s, out, err);
}

tacit_status registry_find(tacit_database *db, const uint8_t file_digest[TACIT_DIGEST_BYTES],
                           adapter_row *out, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " ADAPTER_COLUMNS " FROM registry_adapter WHERE file_digest = $1 LIMIT 1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, file_digest, TACIT_DIGEST_BYTES);
    return take_adapter(s, out, err);
}

tacit_status registry_each(tacit_database *db,
                           tacit_status (*each)(void *ctx, const adapter_row *row,
                                                tacit_error *err),
                           void *ctx, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        db, &s, "SELECT " ADAPTER_COLUMNS " FROM registry_adapter ORDER BY rowid", err);
    if (status != TACIT_OK)
        return status;
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        adapter_row a;
        status = read_adapter(s, &a, err);
        if (status == TACIT_OK)
            status = each(ctx, &a, err);
        registry_row_free(&a);
        if (status != TACIT_OK)
            break;
    }
    tacit_statement_end(s);
    return status;
}
