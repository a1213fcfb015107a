#include "common/database.h"

#include "common/clock.h"
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "TACI": other programs' databases are refused by it. */
#define DATABASE_APPLICATION_ID 0x54414349
/* Layout of tacit_schema itself, in PRAGMA user_version. */
#define DATABASE_LAYOUT 1
#define DATABASE_BUSY_MS 10000
#define DATABASE_PARAMETERS 16

struct tacit_statement {
    tacit_database *db;
    tacit_statement *next;
    const char *sql; /* identity of the cache row: the literal's address */
    sqlite3_stmt *prepared;
    int parameter[DATABASE_PARAMETERS]; /* of $1, $2, ...: SQLite numbers them as they appear */
    bool out;                           /* a caller has it */
    int failed; /* SQLite code of a failed binding, or -1 for a column of another kind */
    char complaint[96];
};

struct tacit_database {
    sqlite3 *handle;
    char *path;
    tacit_statement *statements;
    bool transaction; /* begun by us; SQLite may have dropped it already */
    bool marked;
};

static const struct {
    int code;
    tacit_status status;
    const char *hint;
} sqlite_codes[] = {
    {SQLITE_FULL, TACIT_IO, "; free space on that disk and try again"},
    {SQLITE_IOERR, TACIT_IO, "; free space on that disk or replace it, and try again"},
    {SQLITE_READONLY, TACIT_IO, "; check the permissions of the file and its folder"},
    {SQLITE_CANTOPEN, TACIT_IO, "; check that the folder exists, is writable and has free space"},
    {SQLITE_PERM, TACIT_IO, "; check the permissions of the file and its folder"},
    {SQLITE_BUSY, TACIT_AGAIN, "; another process holds the database, try again"},
    {SQLITE_LOCKED, TACIT_AGAIN, "; another statement holds the table, try again"},
    {SQLITE_CONSTRAINT, TACIT_CONFLICT, ""},
    {SQLITE_CORRUPT, TACIT_BAD_INPUT, "; the file is damaged, restore it from a backup"},
    {SQLITE_NOTADB, TACIT_BAD_INPUT, "; the file is not a database of Tacit"},
    {SQLITE_NOMEM, TACIT_NO_MEMORY, ""},
};

static tacit_status fail_sqlite(const tacit_database *db, const char *what, tacit_error *err)
{
    int extended = sqlite3_extended_errcode(db->handle);
    tacit_status status = TACIT_FAILED;
    const char *hint = "";
    for (size_t i = 0; i < sizeof sqlite_codes / sizeof sqlite_codes[0]; i++) {
        if (sqlite_codes[i].code != (extended & 0xff))
            continue;
        status = sqlite_codes[i].status;
        hint = sqlite_codes[i].hint;
    }
    return tacit_fail(err, status, "%s: %.200s: %s (SQLite %d/%d)%s", db->path, what,
                      sqlite3_errmsg(db->handle), extended & 0xff, extended, hint);
}

tacit_status tacit_database_run(tacit_database *db, const char *sql, tacit_error *err)
{
    if (db->transaction && sqlite3_get_autocommit(db->handle))
        return tacit_fail(
            err, TACIT_IO,
            "%s: the transaction was dropped by an earlier error; see to it, then try again",
            db->path);
    if (sqlite3_exec(db->handle, sql, NULL, NULL, NULL) != SQLITE_OK)
        return fail_sqlite(db, sql, err);
    return TACIT_OK;
}

/* --- statements --- */

static tacit_status statement_prepare(tacit_database *db, tacit_statement **s, const char *sql,
                                      tacit_error *err)
{
    tacit_statement *made = calloc(1, sizeof *made);
    if (!made)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for a statement", db->path);
    if (sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &made->prepared, NULL) !=
        SQLITE_OK) {
        free(made);
        return fail_sqlite(db, sql, err);
    }
    for (int i = 0; i < DATABASE_PARAMETERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "$%d", i + 1);
        made->parameter[i] = sqlite3_bind_parameter_index(made->prepared, name);
    }
    made->db = db;
    made->sql = sql;
    made->next = db->statements;
    db->statements = made;
    *s = made;
    return TACIT_OK;
}

tacit_status tacit_statement_begin(tacit_database *db, tacit_statement **s, const char *sql,
                                   tacit_error *err)
{
    *s = NULL;
    tacit_statement *found = db->statements;
    while (found && (found->sql != sql || found->out))
        found = found->next;
    if (!found) {
        tacit_status status = statement_prepare(db, &found, sql, err);
        if (status != TACIT_OK)
            return status;
    }
    found->out = true;
    found->failed = 0;
    *s = found;
    return TACIT_OK;
}

void tacit_statement_end(tacit_statement *s)
{
    if (!s)
        return;
    sqlite3_reset(s->prepared);
    sqlite3_clear_bindings(s->prepared);
    s->out = false;
}

static void keep_complaint(tacit_statement *s, int code, const char *where, int at,
                           const char *what)
{
    if (s->failed)
        return;
    s->failed = code;
    snprintf(s->complaint, sizeof s->complaint, "%s %d: %s", where, at, what);
}

static void keep_binding(tacit_statement *s, int code, int at)
{
    if (code != SQLITE_OK)
        keep_complaint(s, code, "parameter", at, sqlite3_errstr(code));
}

/* SQLite's index of $at; 0, which no binding accepts, when the statement has none. */
static int place(const tacit_statement *s, int at)
{
    return at >= 1 && at <= DATABASE_PARAMETERS ? s->parameter[at - 1] : 0;
}

void tacit_bind_i64(tacit_statement *s, int at, int64_t v)
{
    keep_binding(s, sqlite3_bind_int64(s->prepared, place(s, at), v), at);
}

void tacit_bind_u64(tacit_statement *s, int at, uint64_t v)
{
    if (v > INT64_MAX)
        keep_binding(s, SQLITE_RANGE, at);
    else
        tacit_bind_i64(s, at, (int64_t)v);
}

void tacit_bind_f64(tacit_statement *s, int at, double v)
{
    keep_binding(s, sqlite3_bind_double(s->prepared, place(s, at), v), at);
}

void tacit_bind_text(tacit_statement *s, int at, const char *text)
{
    keep_binding(s, sqlite3_bind_text(s->prepared, place(s, at), text, -1, SQLITE_TRANSIENT), at);
}

void tacit_bind_blob(tacit_statement *s, int at, const void *data, size_t size)
{
    /* A NULL pointer would bind SQL NULL; an empty view is an empty blob all the same. */
    if (data && size == 0)
        keep_binding(s, sqlite3_bind_zeroblob(s->prepared, place(s, at), 0), at);
    else
        keep_binding(
            s, sqlite3_bind_blob64(s->prepared, place(s, at), data, size, SQLITE_TRANSIENT), at);
}

void tacit_bind_null(tacit_statement *s, int at)
{
    keep_binding(s, sqlite3_bind_null(s->prepared, place(s, at)), at);
}

tacit_status tacit_statement_check(tacit_statement *s, tacit_error *err)
{
    if (!s->failed)
        return TACIT_OK;
    tacit_status status = s->failed == -1 ? TACIT_BAD_INPUT : TACIT_FAILED;
    return tacit_fail(err, status, "%s: %.200s: %s", s->db->path, s->sql, s->complaint);
}

tacit_status tacit_statement_step(tacit_statement *s, bool *row, tacit_error *err)
{
    *row = false;
    tacit_status status = tacit_statement_check(s, err);
    if (status != TACIT_OK)
        return status;
    if (s->db->transaction && sqlite3_get_autocommit(s->db->handle))
        return tacit_fail(
            err, TACIT_IO,
            "%s: the transaction was dropped by an earlier error; see to it, then try again",
            s->db->path);
    int code = sqlite3_step(s->prepared);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return fail_sqlite(s->db, s->sql, err);
    *row = code == SQLITE_ROW;
    return TACIT_OK;
}

tacit_status tacit_statement_finish(tacit_statement *s, tacit_error *err)
{
    bool row;
    tacit_status status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && row)
        status = tacit_fail(err, TACIT_USAGE, "%s: %.200s: expected no row, found one", s->db->path,
                            s->sql);
    tacit_statement_end(s);
    return status;
}

/* True when the column has this type; a NULL reads as the zero value, anything else is kept. */
static bool column_is(tacit_statement *s, int at, int type, const char *what)
{
    int found = sqlite3_column_type(s->prepared, at);
    if (found == type)
        return true;
    if (found != SQLITE_NULL)
        keep_complaint(s, -1, "wrong type in column", at, what);
    return false;
}

bool tacit_column_is_null(tacit_statement *s, int at)
{
    return sqlite3_column_type(s->prepared, at) == SQLITE_NULL;
}

int64_t tacit_column_i64(tacit_statement *s, int at)
{
    return column_is(s, at, SQLITE_INTEGER, "expected an integer")
               ? sqlite3_column_int64(s->prepared, at)
               : 0;
}

uint64_t tacit_column_u64(tacit_statement *s, int at)
{
    int64_t v = tacit_column_i64(s, at);
    if (v < 0)
        keep_complaint(s, -1, "column", at, "expected no negative number");
    return v < 0 ? 0 : (uint64_t)v;
}

double tacit_column_f64(tacit_statement *s, int at)
{
    return column_is(s, at, SQLITE_FLOAT, "expected a real number")
               ? sqlite3_column_double(s->prepared, at)
               : 0;
}

const char *tacit_column_text(tacit_statement *s, int at)
{
    if (!column_is(s, at, SQLITE_TEXT, "expected text"))
        return "";
    const char *text = (const char *)sqlite3_column_text(s->prepared, at);
    return text ? text : "";
}

tacit_span tacit_column_blob(tacit_statement *s, int at)
{
    if (!column_is(s, at, SQLITE_BLOB, "expected a blob"))
        return (tacit_span){NULL, 0};
    const void *data = sqlite3_column_blob(s->prepared, at);
    return (tacit_span){data, data ? (size_t)sqlite3_column_bytes(s->prepared, at) : 0};
}

void tacit_column_bytes(tacit_statement *s, int at, void *out, size_t size)
{
    tacit_span blob = tacit_column_blob(s, at);
    memset(out, 0, size);
    if (blob.size == size && size)
        memcpy(out, blob.data, size);
    else if (blob.size != size)
        keep_complaint(s, -1, "column", at, "expected a blob of another size");
}

uint64_t tacit_database_changes(const tacit_database *db)
{
    return (uint64_t)sqlite3_changes64(db->handle);
}

/* --- transactions --- */

tacit_status tacit_database_begin(tacit_database *db, tacit_error *err)
{
    if (db->transaction)
        return tacit_fail(err, TACIT_CONFLICT, "%s: a transaction is open already", db->path);
    tacit_status status = tacit_database_run(db, "BEGIN IMMEDIATE", err);
    db->transaction = status == TACIT_OK;
    return status;
}

tacit_status tacit_database_commit(tacit_database *db, tacit_error *err)
{
    if (!db->transaction)
        return tacit_fail(err, TACIT_USAGE, "%s: no transaction to commit", db->path);
    tacit_status status = tacit_database_run(db, "COMMIT", err);
    if (status != TACIT_OK)
        tacit_database_rollback(db);
    db->transaction = false;
    db->marked = false;
    return status;
}

void tacit_database_rollback(tacit_database *db)
{
    if (!db->transaction)
        return;
    if (!sqlite3_get_autocommit(db->handle))
        sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    db->transaction = false;
    db->marked = false;
}

bool tacit_database_in_transaction(const tacit_database *db)
{
    return db->transaction;
}

tacit_status tacit_database_mark(tacit_database *db, tacit_error *err)
{
    if (!db->transaction || db->marked)
        return tacit_fail(err, TACIT_USAGE, "%s: a mark needs an open transaction without one",
                          db->path);
    tacit_status status = tacit_database_run(db, "SAVEPOINT tacit_mark", err);
    db->marked = status == TACIT_OK;
    return status;
}

tacit_status tacit_database_keep(tacit_database *db, tacit_error *err)
{
    if (!db->marked)
        return tacit_fail(err, TACIT_USAGE, "%s: no mark to keep", db->path);
    db->marked = false;
    return tacit_database_run(db, "RELEASE tacit_mark", err);
}

void tacit_database_undo(tacit_database *db)
{
    if (!db->marked)
        return;
    db->marked = false;
    if (!sqlite3_get_autocommit(db->handle))
        sqlite3_exec(db->handle, "ROLLBACK TO tacit_mark; RELEASE tacit_mark", NULL, NULL, NULL);
}

/* --- migrations --- */

static tacit_status schema_version(tacit_database *db, const char *component, uint64_t *version,
                                   tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(db, &s, "SELECT version FROM tacit_schema WHERE component = $1", err);
    if (status != TACIT_OK)
        return status;
    bool row;
    tacit_bind_text(s, 1, component);
    status = tacit_statement_step(s, &row, err);
    *version = status == TACIT_OK && row ? tacit_column_u64(s, 0) : 0;
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}

static tacit_status schema_record(tacit_database *db, const char *component, uint64_t version,
                                  tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(db, &s,
                              "INSERT INTO tacit_schema (component, version) VALUES ($1, $2) "
                              "ON CONFLICT (component) DO UPDATE SET version = excluded.version",
                              err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_text(s, 1, component);
    tacit_bind_u64(s, 2, version);
    return tacit_statement_finish(s, err);
}

/* The version is read inside the write transaction: two processes may open a new file at once. */
static tacit_status migrate_one(tacit_database *db, const tacit_migrations *m, bool *more,
                                tacit_error *err)
{
    uint64_t version;
    tacit_status status = tacit_database_begin(db, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(schema_version(db, m->component, &version, err), undo);
    if (version > m->count) {
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "%s: its %s tables have version %llu, this program knows %zu; use a "
                            "newer Tacit",
                            db->path, m->component, (unsigned long long)version, m->count);
        goto undo;
    }
    *more = version < m->count;
    if (*more) {
        TACIT_TRY(tacit_database_run(db, m->sql[version], err), undo);
        TACIT_TRY(schema_record(db, m->component, version + 1, err), undo);
    }
    return tacit_database_commit(db, err);
undo:
    tacit_database_rollback(db);
    return status;
}

tacit_status tacit_database_migrate(tacit_database *db, const tacit_migrations *migrations,
                                    tacit_error *err)
{
    bool more = true;
    tacit_status status = TACIT_OK;
    while (more && status == TACIT_OK)
        status = migrate_one(db, migrations, &more, err);
    return status;
}

/* --- opening --- */

static tacit_status one_number(tacit_database *db, const char *sql, uint64_t *number,
                               tacit_error *err)
{
    tacit_statement *s;
    bool row;
    tacit_status status = tacit_statement_begin(db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    *number = status == TACIT_OK && row ? tacit_column_u64(s, 0) : 0;
    if (status == TACIT_OK)
        status = tacit_statement_check(s, err);
    tacit_statement_end(s);
    return status;
}

static tacit_status one_word(tacit_database *db, const char *sql, const char *expected,
                             tacit_status otherwise, tacit_error *err)
{
    tacit_statement *s;
    bool row;
    tacit_status status = tacit_statement_begin(db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_step(s, &row, err);
    if (status == TACIT_OK && (!row || strcmp(tacit_column_text(s, 0), expected) != 0))
        status = tacit_fail(err, otherwise, "%s: %s: expected '%s', found '%.200s'", db->path, sql,
                            expected, row ? tacit_column_text(s, 0) : "");
    tacit_statement_end(s);
    return status;
}

static tacit_status layout_create(tacit_database *db, tacit_error *err)
{
    static const char sql[] = "CREATE TABLE IF NOT EXISTS tacit_schema (component TEXT PRIMARY KEY,"
                              " version INTEGER NOT NULL) STRICT;"
                              "PRAGMA application_id = 1413563209; PRAGMA user_version = 1";
    _Static_assert(DATABASE_APPLICATION_ID == 1413563209 && DATABASE_LAYOUT == 1, "as in the SQL");
    uint64_t tables, id;
    tacit_status status = tacit_database_begin(db, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(one_number(db, "SELECT count(*) FROM sqlite_schema", &tables, err), undo);
    TACIT_TRY(one_number(db, "PRAGMA application_id", &id, err), undo);
    if (tables && id != DATABASE_APPLICATION_ID) {
        status = tacit_fail(err, TACIT_BAD_INPUT, "%s: it is another program's database", db->path);
        goto undo;
    }
    TACIT_TRY(tacit_database_run(db, sql, err), undo);
    return tacit_database_commit(db, err);
undo:
    tacit_database_rollback(db);
    return status;
}

static tacit_status layout_check(tacit_database *db, tacit_error *err)
{
    uint64_t id, layout;
    tacit_status status = one_number(db, "PRAGMA application_id", &id, err);
    if (status != TACIT_OK)
        return status;
    status = one_number(db, "PRAGMA user_version", &layout, err);
    if (status != TACIT_OK)
        return status;
    if (id != DATABASE_APPLICATION_ID || layout == 0)
        return layout_create(db, err);
    if (layout > DATABASE_LAYOUT)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: its layout has version %llu, this program knows %d; use a newer "
                          "Tacit",
                          db->path, (unsigned long long)layout, DATABASE_LAYOUT);
    return TACIT_OK;
}

/* SQLite would create the file with the umask's mode; ours is private from its first byte. */
static tacit_status file_create_private(const char *path, tacit_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return TACIT_OK;
    if (fd < 0)
        return tacit_file_fail(err, path, "create");
    close(fd);
    return tacit_file_sync_parent(path, err);
}

/* Turning a new file to WAL does not wait for locks: processes that open it together retry. */
static tacit_status wal_set_up(tacit_database *db, tacit_error *err)
{
    tacit_status status = TACIT_AGAIN;
    for (int waited = 0; status == TACIT_AGAIN && waited < DATABASE_BUSY_MS; waited += 10) {
        if (waited)
            tacit_clock_sleep_ms(10);
        status = one_word(db, "PRAGMA journal_mode = WAL", "wal", TACIT_IO, err);
    }
    return status;
}

static tacit_status connection_set_up(tacit_database *db, bool on_disk, tacit_error *err)
{
    int on;
    sqlite3_busy_timeout(db->handle, DATABASE_BUSY_MS);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, &on);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, &on);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DQS_DML, 0, &on);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DQS_DDL, 0, &on);
    tacit_status status = on_disk ? wal_set_up(db, err) : TACIT_OK;
    if (status != TACIT_OK)
        return status;
    return tacit_database_run(db,
                              "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
                              "PRAGMA cell_size_check = ON; PRAGMA secure_delete = ON",
                              err);
}

/* Opens `file` (":memory:" or the path itself); `path` names it in errors. Close it even after a
 * failure: *out is NULL then only without memory. */
static tacit_status handle_open(tacit_database **out, const char *file, const char *path,
                                tacit_error *err)
{
    tacit_database *db = calloc(1, sizeof *db);
    *out = db;
    if (!db || !(db->path = strdup(path)))
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to open it", path);
    if (sqlite3_open_v2(file, &db->handle,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                        NULL) == SQLITE_OK)
        return TACIT_OK;
    return db->handle ? fail_sqlite(db, "open", err)
                      : tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to open it", path);
}

/* What commits of others have not reached the file itself yet (its WAL) is copied as well. */
static tacit_status copy_file(tacit_database *to, const char *path, tacit_error *err)
{
    tacit_database *from;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return TACIT_OK;
    tacit_status status = handle_open(&from, path, path, err);
    if (status == TACIT_OK) {
        sqlite3_busy_timeout(from->handle, DATABASE_BUSY_MS);
        sqlite3_backup *backup = sqlite3_backup_init(to->handle, "main", from->handle, "main");
        if (backup)
            sqlite3_backup_step(backup, -1);
        if (!backup || sqlite3_backup_finish(backup) != SQLITE_OK)
            status = fail_sqlite(to, "copy", err);
    }
    tacit_database_close(from);
    return status;
}

tacit_status tacit_database_open_copy(tacit_database **out, const char *path, tacit_error *err)
{
    tacit_database *db;
    *out = NULL;
    tacit_status status = handle_open(&db, ":memory:", path, err);
    if (status == TACIT_OK)
        status = copy_file(db, path, err);
    if (status == TACIT_OK)
        status = connection_set_up(db, false, err);
    if (status == TACIT_OK)
        status = layout_check(db, err);
    if (status == TACIT_OK)
        *out = db;
    else
        tacit_database_close(db);
    return status;
}

tacit_status tacit_database_open(tacit_database **out, const char *path, tacit_error *err)
{
    tacit_database *db = NULL;
    *out = NULL;
    tacit_status status = file_create_private(path, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(handle_open(&db, path, path, err), fail);
    TACIT_TRY(connection_set_up(db, true, err), fail);
    TACIT_TRY(layout_check(db, err), fail);
    *out = db;
    return TACIT_OK;
fail:
    tacit_database_close(db);
    return status;
}

tacit_status tacit_database_check(tacit_database *db, tacit_error *err)
{
    return one_word(db, "PRAGMA quick_check(1)", "ok", TACIT_BAD_INPUT, err);
}

void tacit_database_close(tacit_database *db)
{
    if (!db)
        return;
    if (db->handle)
        tacit_database_rollback(db);
    for (tacit_statement *s = db->statements, *next; s; s = next) {
        next = s->next;
        sqlite3_finalize(s->prepared);
        free(s);
    }
    sqlite3_close(db->handle);
    free(db->path);
    free(db);
}
