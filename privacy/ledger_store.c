#include "privacy/ledger_internal.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

static const char *const ledger_sql[] = {
    "CREATE TABLE ledger_origin (id INTEGER PRIMARY KEY CHECK (id = 1), origin TEXT NOT NULL,"
    " log_key BLOB NOT NULL) STRICT;"
    "CREATE TABLE ledger_entry (idx INTEGER PRIMARY KEY, leaf BLOB NOT NULL UNIQUE,"
    " bytes BLOB NOT NULL) STRICT;"
    "CREATE TABLE ledger_node (level INTEGER NOT NULL, idx INTEGER NOT NULL, hash BLOB NOT NULL,"
    " PRIMARY KEY (level, idx)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE ledger_checkpoint (size INTEGER PRIMARY KEY, note TEXT NOT NULL) STRICT;"
    "CREATE TABLE ledger_account (identity_key BLOB PRIMARY KEY, sequence INTEGER NOT NULL,"
    " head BLOB NOT NULL, policy BLOB NOT NULL, policy_key BLOB NOT NULL, budget BLOB NOT NULL)"
    " STRICT;"
    "CREATE TABLE ledger_device (device BLOB PRIMARY KEY, identity_key BLOB NOT NULL"
    " REFERENCES ledger_account (identity_key), revoked INTEGER NOT NULL, frozen INTEGER NOT NULL)"
    " STRICT;"
    "CREATE INDEX ledger_device_key ON ledger_device (identity_key);"
    "CREATE TABLE ledger_schedule (hash BLOB PRIMARY KEY, lineage BLOB NOT NULL UNIQUE,"
    " bytes BLOB NOT NULL) STRICT;"
    "CREATE TABLE ledger_plan (hash BLOB PRIMARY KEY, round_id BLOB NOT NULL UNIQUE,"
    " lineage BLOB NOT NULL, round_index INTEGER NOT NULL, idx INTEGER NOT NULL,"
    " bytes BLOB NOT NULL, UNIQUE (lineage, round_index)) STRICT;"
    "CREATE TABLE ledger_reserve (leaf BLOB PRIMARY KEY, idx INTEGER NOT NULL,"
    " device BLOB NOT NULL, identity_key BLOB NOT NULL, plan_hash BLOB NOT NULL,"
    " lineage BLOB NOT NULL, update_digest BLOB UNIQUE, abandoned INTEGER NOT NULL,"
    " decided INTEGER NOT NULL, accepted INTEGER NOT NULL, UNIQUE (identity_key, plan_hash))"
    " STRICT;"
    "CREATE INDEX ledger_reserve_lineage ON ledger_reserve (identity_key, lineage);",
    "CREATE TABLE ledger_policy (identity_key BLOB NOT NULL, policy BLOB NOT NULL,"
    " PRIMARY KEY (identity_key, policy)) STRICT;"
    "INSERT INTO ledger_policy SELECT identity_key, policy FROM ledger_account;",
    /* Logs of before hold no such reserve: it was refused. */
    "ALTER TABLE ledger_reserve ADD COLUMN outdated INTEGER NOT NULL DEFAULT 0;",
    "CREATE TABLE ledger_cosigned (size INTEGER PRIMARY KEY"
    " REFERENCES ledger_checkpoint (size)) STRICT;",
    "CREATE TABLE ledger_signed_policy (identity_key BLOB PRIMARY KEY"
    " REFERENCES ledger_account (identity_key), serial INTEGER NOT NULL, idx INTEGER NOT NULL)"
    " STRICT;",
    "CREATE TABLE ledger_enrolment (identity_key BLOB NOT NULL, policy_key BLOB NOT NULL,"
    " policy BLOB NOT NULL, PRIMARY KEY (identity_key, policy_key, policy)) STRICT;"
    "INSERT INTO ledger_enrolment SELECT identity_key, policy_key, policy FROM ledger_account;",
    /* ledger_origin.origin is the log's first name; a device's idx is that of its enrolment, 0 in
     * logs of before, which were never restored. */
    "CREATE TABLE ledger_restored (generation INTEGER PRIMARY KEY, idx INTEGER NOT NULL,"
    " old_origin TEXT NOT NULL UNIQUE, size INTEGER NOT NULL) STRICT;"
    "ALTER TABLE ledger_origin ADD COLUMN operator_key BLOB;"
    "ALTER TABLE ledger_device ADD COLUMN idx INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE ledger_reserve ADD COLUMN lost_plan INTEGER NOT NULL DEFAULT 0;",
};
const tacit_migrations ledger_migrations = {"ledger", ledger_sql,
                                            sizeof ledger_sql / sizeof ledger_sql[0]};

/* --- complete nodes in their table --- */

static tacit_status node_read(void *ctx, unsigned level, uint64_t index,
                              uint8_t out[TACIT_HASH_BYTES], tacit_error *err)
{
    tacit_ledger *ledger = ctx;
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "SELECT hash FROM ledger_node WHERE level = $1 AND idx = $2", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, level);
    tacit_bind_u64(s, 2, index);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    if (row) {
        tacit_column_bytes(s, 0, out, TACIT_HASH_BYTES);
        status = tacit_statement_check(s, err);
    } else {
        status = tacit_fail(err, TACIT_INTEGRITY, "ledger: node %llu of level %u is missing",
                            (unsigned long long)index, level);
    }
done:
    tacit_statement_end(s);
    return status;
}

static tacit_status node_write(void *ctx, unsigned level, uint64_t index,
                               const uint8_t hash[TACIT_HASH_BYTES], tacit_error *err)
{
    tacit_ledger *ledger = ctx;
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "INSERT INTO ledger_node (level, idx, hash) VALUES ($1, $2, $3)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, level);
    tacit_bind_u64(s, 2, index);
    tacit_bind_blob(s, 3, hash, TACIT_HASH_BYTES);
    return tacit_statement_finish(s, err);
}

static tacit_merkle_store node_store(tacit_ledger *ledger)
{
    return (tacit_merkle_store){ledger, node_read, node_write};
}

tacit_status tacit_ledger_root(tacit_ledger *ledger, uint64_t size, uint8_t root[TACIT_HASH_BYTES],
                               tacit_error *err)
{
    tacit_merkle_store store = node_store(ledger);
    return tacit_merkle_root(&store, size, root, err);
}

tacit_status tacit_ledger_inclusion(tacit_ledger *ledger, uint64_t index, uint64_t size,
                                    tacit_proof *proof, tacit_error *err)
{
    tacit_merkle_store store = node_store(ledger);
    return tacit_merkle_inclusion(&store, index, size, proof, err);
}

tacit_status tacit_ledger_consistency(tacit_ledger *ledger, uint64_t old_size, uint64_t size,
                                      tacit_proof *proof, tacit_error *err)
{
    tacit_merkle_store store = node_store(ledger);
    return tacit_merkle_consistency(&store, old_size, size, proof, err);
}

/* --- entries --- */

tacit_status tacit_ledger_size(tacit_ledger *ledger, uint64_t *size, tacit_error *err)
{
    tacit_statement *s;
    bool row;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "SELECT coalesce(max(idx) + 1, 0) FROM ledger_entry", err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    *size = tacit_column_u64(s, 0);
    status = tacit_statement_check(s, err);
done:
    tacit_statement_end(s);
    return status;
}

tacit_status tacit_ledger_entry(tacit_ledger *ledger, uint64_t index, uint8_t **bytes, size_t *size,
                                tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status =
        tacit_statement_begin(ledger->db, &s, "SELECT bytes FROM ledger_entry WHERE idx = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, index);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    if (!row) {
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: there is no entry %llu",
                            (unsigned long long)index);
        goto done;
    }
    tacit_buffer copy = {0};
    tacit_span found = tacit_column_blob(s, 0);
    TACIT_TRY(tacit_buffer_append(&copy, found.data, found.size), done);
    *bytes = copy.data;
    *size = copy.size;
done:
    tacit_statement_end(s);
    return status;
}

static tacit_status entry_find(tacit_ledger *ledger, const uint8_t leaf[TACIT_HASH_BYTES],
                               bool *found, uint64_t *index, tacit_error *err)
{
    tacit_statement *s;
    *found = false;
    tacit_status status =
        tacit_statement_begin(ledger->db, &s, "SELECT idx FROM ledger_entry WHERE leaf = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, leaf, TACIT_HASH_BYTES);
    status = tacit_statement_step(s, found, err);
    if (status == TACIT_OK && *found)
        *index = tacit_column_u64(s, 0);
    tacit_statement_end(s);
    return status;
}

tacit_status tacit_ledger_find(tacit_ledger *ledger, const uint8_t leaf[TACIT_HASH_BYTES],
                               uint64_t *index, tacit_error *err)
{
    bool found;
    tacit_status status = entry_find(ledger, leaf, &found, index, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: there is no entry with that hash");
    return status;
}

static tacit_status entry_insert(tacit_ledger *ledger, uint64_t index, const void *bytes,
                                 size_t size, const uint8_t leaf[TACIT_HASH_BYTES],
                                 tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "INSERT INTO ledger_entry (idx, leaf, bytes) VALUES ($1, $2, $3)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, index);
    tacit_bind_blob(s, 2, leaf, TACIT_HASH_BYTES);
    tacit_bind_blob(s, 3, bytes, size);
    status = tacit_statement_finish(s, err);
    if (status != TACIT_OK)
        return status;
    tacit_merkle_store store = node_store(ledger);
    return tacit_merkle_append(&store, index, leaf, err);
}

/* Entry number `index` is checked against the log and added, unless these bytes are there. */
static tacit_status entry_append(tacit_ledger *ledger, const tacit_entry *entry, const void *bytes,
                                 size_t size, uint64_t *index, tacit_error *err)
{
    bool found;
    tacit_status status = entry_find(ledger, entry->leaf, &found, index, err);
    if (status != TACIT_OK || found)
        return status;
    status = tacit_ledger_size(ledger, index, err);
    if (status == TACIT_OK)
        status = ledger_apply(ledger, entry, *index, err);
    return status == TACIT_OK ? entry_insert(ledger, *index, bytes, size, entry->leaf, err)
                              : status;
}

static tacit_status check_transaction(const tacit_ledger *ledger, tacit_error *err)
{
    return tacit_database_in_transaction(ledger->db)
               ? TACIT_OK
               : tacit_fail(err, TACIT_USAGE, "ledger: an append needs an open transaction");
}

tacit_status tacit_ledger_append_opened(tacit_ledger *ledger, const tacit_entry *entry,
                                        const void *bytes, size_t size, uint64_t *index,
                                        tacit_error *err)
{
    uint64_t at;
    uint8_t hash[TACIT_HASH_BYTES];
    tacit_status status = check_transaction(ledger, err);
    if (status != TACIT_OK)
        return status;
    tacit_merkle_leaf(hash, bytes, size);
    if (!entry->signature_holds || memcmp(hash, entry->leaf, sizeof hash) != 0)
        return tacit_fail(err, TACIT_USAGE, "ledger: the entry was not opened from these bytes");
    status = entry_append(ledger, entry, bytes, size, &at, err);
    if (status == TACIT_OK && index)
        *index = at;
    return status;
}

tacit_status tacit_ledger_append(tacit_ledger *ledger, const void *bytes, size_t size,
                                 uint64_t *index, uint8_t leaf[TACIT_HASH_BYTES], tacit_error *err)
{
    bool found;
    uint64_t at;
    uint8_t hash[TACIT_HASH_BYTES];
    tacit_entry entry = {0};
    tacit_status status;
    TACIT_TRY(check_transaction(ledger, err), done);
    tacit_merkle_leaf(hash, bytes, size);
    TACIT_TRY(entry_find(ledger, hash, &found, &at, err), done);
    if (!found) {
        TACIT_TRY(tacit_entry_open(&entry, bytes, size, err), done);
        TACIT_TRY(entry_append(ledger, &entry, bytes, size, &at, err), done);
    }
    if (index)
        *index = at;
    if (leaf)
        memcpy(leaf, hash, TACIT_HASH_BYTES);
done:
    tacit_entry_close(&entry);
    return status;
}

/* Its own signature, just made, needs no check. */
tacit_status tacit_ledger_record(tacit_ledger *ledger, Tacit__Entry *entry, uint64_t *index,
                                 uint8_t leaf[TACIT_HASH_BYTES], tacit_error *err)
{
    uint8_t *bytes = NULL;
    size_t size;
    uint64_t at;
    tacit_entry made = {0};
    tacit_status status;
    entry->time_ms = tacit_clock_wall_ms();
    TACIT_TRY(check_transaction(ledger, err), done);
    TACIT_TRY(tacit_entry_sign(entry, ledger->log_id, &bytes, &size, NULL, err), done);
    TACIT_TRY(tacit_entry_read(&made, bytes, size, err), done);
    TACIT_TRY(entry_append(ledger, &made, bytes, size, &at, err), done);
    if (index)
        *index = at;
    if (leaf)
        memcpy(leaf, made.leaf, TACIT_HASH_BYTES);
done:
    tacit_entry_close(&made);
    free(bytes);
    return status;
}

/* --- checkpoints --- */

static tacit_status checkpoint_select(tacit_ledger *ledger, const char *sql, uint64_t wanted,
                                      char note[TACIT_CHECKPOINT_MAX], uint64_t *size, bool *found,
                                      tacit_error *err)
{
    tacit_statement *s;
    *found = false;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, wanted);
    TACIT_TRY(tacit_statement_step(s, found, err), done);
    if (*found) {
        const char *text = tacit_column_text(s, 1);
        *size = tacit_column_u64(s, 0);
        *found = strlen(text) < TACIT_CHECKPOINT_MAX;
        if (*found)
            memcpy(note, text, strlen(text) + 1);
        status = tacit_statement_check(s, err);
    }
done:
    tacit_statement_end(s);
    return status;
}

static tacit_status checkpoint_insert(tacit_ledger *ledger, uint64_t size, const char *note,
                                      tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "INSERT INTO ledger_checkpoint (size, note) VALUES ($1, $2)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, size);
    tacit_bind_text(s, 2, note);
    return tacit_statement_finish(s, err);
}

tacit_status tacit_ledger_last_checkpoint(tacit_ledger *ledger, char note[TACIT_CHECKPOINT_MAX],
                                          uint64_t *size, tacit_error *err)
{
    bool found;
    tacit_status status = checkpoint_select(
        ledger,
        "SELECT size, note FROM ledger_checkpoint WHERE size >= $1 ORDER BY size DESC LIMIT 1", 0,
        note, size, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: no checkpoint was signed yet");
    return status;
}

tacit_status tacit_ledger_checkpoint(tacit_ledger *ledger, char note[TACIT_CHECKPOINT_MAX],
                                     uint64_t *size, tacit_error *err)
{
    bool found;
    uint64_t stored;
    tacit_checkpoint checkpoint = {0};
    tacit_status status = tacit_ledger_size(ledger, size, err);
    if (status != TACIT_OK)
        return status;
    status = checkpoint_select(ledger, "SELECT size, note FROM ledger_checkpoint WHERE size = $1",
                               *size, note, &stored, &found, err);
    if (status != TACIT_OK || found)
        return status;
    if (!tacit_database_in_transaction(ledger->db))
        return tacit_fail(err, TACIT_USAGE, "ledger: a checkpoint needs an open transaction");
    memcpy(checkpoint.origin, ledger->key.name, sizeof checkpoint.origin);
    checkpoint.size = *size;
    status = tacit_ledger_root(ledger, *size, checkpoint.root, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_sign(&checkpoint, ledger->log_id, note, err);
    if (status == TACIT_OK)
        status = checkpoint_insert(ledger, *size, note, err);
    return status;
}

tacit_status tacit_ledger_rotate(tacit_ledger *ledger, const tacit_identity *new_key,
                                 tacit_error *err)
{
    uint8_t both[2 * TACIT_SIGN_KEY_BYTES], by_old[TACIT_SIGNATURE_BYTES],
        by_new[TACIT_SIGNATURE_BYTES];
    memcpy(both, ledger->key.key, TACIT_SIGN_KEY_BYTES);
    memcpy(both + TACIT_SIGN_KEY_BYTES, tacit_identity_sign_key(new_key), TACIT_SIGN_KEY_BYTES);
    tacit_status status =
        tacit_identity_sign(ledger->log_id, TACIT_ROTATE_DOMAIN, both, sizeof both, by_old, err);
    if (status == TACIT_OK)
        status = tacit_identity_sign(new_key, TACIT_ROTATE_DOMAIN, both, sizeof both, by_new, err);
    if (status != TACIT_OK)
        return status;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__KeyRotated rotated = TACIT__KEY_ROTATED__INIT;
    entry.body_case = TACIT__ENTRY__BODY_KEY_ROTATED;
    entry.key_rotated = &rotated;
    rotated.old_key = tacit_field_of(both, TACIT_SIGN_KEY_BYTES);
    rotated.new_key = tacit_field_of(both + TACIT_SIGN_KEY_BYTES, TACIT_SIGN_KEY_BYTES);
    rotated.signature_old = tacit_field_of(by_old, sizeof by_old);
    rotated.signature_new = tacit_field_of(by_new, sizeof by_new);
    status = tacit_ledger_record(ledger, &entry, NULL, NULL, err);
    if (status != TACIT_OK)
        return status;
    /* The newest checkpoint must verify under the key in force: sign one at once. */
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    ledger->log_id = new_key;
    memcpy(ledger->key.key, tacit_identity_sign_key(new_key), TACIT_SIGN_KEY_BYTES);
    return tacit_ledger_checkpoint(ledger, note, &size, err);
}

static tacit_status checkpoint_replace(tacit_ledger *ledger, uint64_t size, const char *note,
                                       tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "UPDATE ledger_checkpoint SET note = $2 WHERE size = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, size);
    tacit_bind_text(s, 2, note);
    status = tacit_statement_finish(s, err);
    if (status == TACIT_OK)
        status = tacit_statement_begin(
            ledger->db, &s,
            "INSERT INTO ledger_cosigned (size) VALUES ($1) ON CONFLICT (size) DO NOTHING", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, size);
    return tacit_statement_finish(s, err);
}

tacit_status tacit_ledger_cosign(tacit_ledger *ledger, const void *cosigned, size_t size,
                                 const tacit_note_key *witness, tacit_error *err)
{
    bool found;
    uint64_t stored;
    char note[TACIT_CHECKPOINT_MAX];
    tacit_checkpoint checkpoint;
    if (!tacit_database_in_transaction(ledger->db))
        return tacit_fail(err, TACIT_USAGE, "ledger: a cosignature needs an open transaction");
    tacit_status status = tacit_checkpoint_verify(&checkpoint, cosigned, size, &ledger->key, err);
    if (status == TACIT_OK)
        status =
            checkpoint_select(ledger, "SELECT size, note FROM ledger_checkpoint WHERE size = $1",
                              checkpoint.size, note, &stored, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND,
                            "ledger: no checkpoint of %llu entries was signed here",
                            (unsigned long long)checkpoint.size);
    if (status == TACIT_OK)
        status = tacit_checkpoint_add_cosignature(note, cosigned, size, witness, err);
    return status == TACIT_OK ? checkpoint_replace(ledger, checkpoint.size, note, err) : status;
}

tacit_status tacit_ledger_cosigned(tacit_ledger *ledger, char note[TACIT_CHECKPOINT_MAX],
                                   uint64_t *size, tacit_error *err)
{
    bool found;
    tacit_status status =
        checkpoint_select(ledger,
                          "SELECT size, note FROM ledger_checkpoint WHERE size >= $1 AND size ="
                          " (SELECT max(size) FROM ledger_cosigned)",
                          0, note, size, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: no checkpoint was cosigned yet");
    return status;
}

/* --- opening --- */

const tacit_note_key *tacit_ledger_key(const tacit_ledger *ledger)
{
    return &ledger->key;
}

tacit_status ledger_store_key(tacit_ledger *ledger, const uint8_t key[TACIT_SIGN_KEY_BYTES],
                              tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(ledger->db, &s,
                              "INSERT INTO ledger_origin (id, origin, log_key) VALUES (1, $1, $2) "
                              "ON CONFLICT (id) DO UPDATE SET log_key = excluded.log_key",
                              err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_text(s, 1, ledger->key.name);
    tacit_bind_blob(s, 2, key, TACIT_SIGN_KEY_BYTES);
    return tacit_statement_finish(s, err);
}

static tacit_status origin_check(tacit_ledger *ledger, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    uint8_t key[TACIT_SIGN_KEY_BYTES];
    tacit_status status =
        tacit_statement_begin(ledger->db, &s, "SELECT origin, log_key FROM ledger_origin", err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row) {
        tacit_column_bytes(s, 1, key, sizeof key);
        if (strcmp(tacit_column_text(s, 0), ledger->key.name) != 0 ||
            memcmp(key, ledger->key.key, sizeof key) != 0)
            status = tacit_fail(err, TACIT_INTEGRITY,
                                "ledger: the log in the database is '%s' of another key; start the "
                                "server with the origin and key that it began with",
                                tacit_column_text(s, 0));
    }
    tacit_statement_end(s);
    return status == TACIT_OK && !row ? ledger_store_key(ledger, ledger->key.key, err) : status;
}

static tacit_status tail_entry_check(tacit_ledger *ledger, uint64_t index, tacit_error *err)
{
    uint8_t *bytes, leaf[TACIT_HASH_BYTES], stored[TACIT_HASH_BYTES];
    size_t size;
    tacit_status status = tacit_ledger_entry(ledger, index, &bytes, &size, err);
    if (status != TACIT_OK)
        return status;
    tacit_merkle_leaf(leaf, bytes, size);
    free(bytes);
    status = node_read(ledger, 0, index, stored, err);
    if (status == TACIT_OK && memcmp(leaf, stored, sizeof leaf) != 0)
        status = tacit_fail(err, TACIT_INTEGRITY, "ledger: entry %llu does not have its leaf hash",
                            (unsigned long long)index);
    return status;
}

/* The newest checkpoint fits the tree, and the entries after it (one before it, too) their
 * leaves: what a crash or a careless restore could have torn. */
static tacit_status tail_check(tacit_ledger *ledger, tacit_error *err)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size = 0, signed_size = 0;
    uint8_t root[TACIT_HASH_BYTES];
    tacit_checkpoint checkpoint;
    tacit_status status = tacit_ledger_size(ledger, &size, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_ledger_last_checkpoint(ledger, note, &signed_size, err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    if (status == TACIT_OK) {
        TACIT_TRY(tacit_checkpoint_verify(&checkpoint, note, strlen(note), &ledger->key, err),
                  done);
        if (signed_size != checkpoint.size || signed_size > size) {
            status = tacit_fail(err, TACIT_INTEGRITY,
                                "ledger: a checkpoint of %llu entries is signed, the log has %llu",
                                (unsigned long long)checkpoint.size, (unsigned long long)size);
            goto done;
        }
        TACIT_TRY(tacit_ledger_root(ledger, signed_size, root, err), done);
        if (memcmp(root, checkpoint.root, sizeof root) != 0)
            status = tacit_fail(err, TACIT_INTEGRITY,
                                "ledger: the tree does not have the root of its checkpoint");
    } else {
        status = TACIT_OK;
    }
    for (uint64_t i = signed_size ? signed_size - 1 : 0; i < size && status == TACIT_OK; i++)
        status = tail_entry_check(ledger, i, err);
done:
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "ledger's tail");
}

tacit_status tacit_ledger_open(tacit_ledger **out, tacit_database *db, const char *origin,
                               const tacit_identity *log_key, tacit_error *err)
{
    *out = NULL;
    tacit_ledger *ledger = calloc(1, sizeof *ledger);
    if (!ledger)
        return tacit_fail(err, TACIT_NO_MEMORY, "ledger: no memory to open it");
    ledger->db = db;
    ledger->log_id = log_key;
    tacit_status status =
        tacit_note_key_make(&ledger->key, origin, tacit_identity_sign_key(log_key), err);
    if (status == TACIT_OK)
        status = tacit_database_migrate(db, &ledger_migrations, err);
    if (status == TACIT_OK)
        status = origin_check(ledger, err);
    if (status == TACIT_OK)
        status = ledger_load_generation(ledger, err);
    if (status == TACIT_OK)
        status = tail_check(ledger, err);
    if (status == TACIT_OK)
        *out = ledger;
    else
        tacit_ledger_close(ledger);
    return status;
}

tacit_status tacit_ledger_view(tacit_ledger **out, const tacit_ledger *of, tacit_database *db,
                               tacit_error *err)
{
    *out = malloc(sizeof **out);
    if (!*out)
        return tacit_fail(err, TACIT_NO_MEMORY, "ledger: no memory to open it");
    **out = *of;
    (*out)->db = db;
    return TACIT_OK;
}

void tacit_ledger_close(tacit_ledger *ledger)
{
    free(ledger);
}
