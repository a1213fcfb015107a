/* The one SQLite connection of a program: opening, migrations, transactions, statements.
 *
 * Durability: WAL with synchronous=FULL, so a commit that returned TACIT_OK survives a power cut.
 * Rooms own the tables whose names begin with their component ("ledger_", "account_", "round_"),
 * create them as STRICT tables in migrations, and keep SQL in their `*_store.c` alone, with `$1`
 * placeholders.
 *
 * Statuses of every function here: TACIT_IO when the disk is full, failing or not writable (free
 * space and try again; the transaction is gone), TACIT_AGAIN when another process holds the write
 * lock longer than the busy time-out, TACIT_CONFLICT when a constraint refuses a row,
 * TACIT_BAD_INPUT when the file is corrupt or not a database of Tacit, TACIT_NO_MEMORY, else
 * TACIT_FAILED. Messages name the file, the statement and SQLite's result codes.
 *
 * A connection and its statements belong to one thread at a time. Several processes may open one
 * file. */
#ifndef TACIT_COMMON_DATABASE_H
#define TACIT_COMMON_DATABASE_H

#include "common/bytes.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tacit_database tacit_database;
typedef struct tacit_statement tacit_statement;

/* Opens `path`, creating it with mode 0600 when it is missing (its folder is fsynced then). Waits
 * at most 10 s for other processes' locks. */
tacit_status tacit_database_open(tacit_database **out, const char *path,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* A copy in memory of what `path` holds, an empty one when it is not there: whatever is done to it,
 * migrations included, reaches no disk. TACIT_BAD_INPUT when the file is damaged or another
 * program's. */
tacit_status tacit_database_open_copy(tacit_database **db, const char *path,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* Rolls an open transaction back and frees everything. NULL is fine. Statements that are still
 * out become invalid. */
void tacit_database_close(tacit_database *db);

/* One component's tables over time: sql[0] makes version 1, sql[1] turns version 1 into 2, ...
 * Each is a script of one or more statements. Scripts that were released never change. */
typedef struct tacit_migrations {
    const char *component; /* also the prefix of its tables */
    const char *const *sql;
    size_t count;
} tacit_migrations;

/* Brings the component to version `count`, each step in a transaction of its own. A file that is
 * already newer than this program knows is refused (TACIT_BAD_INPUT, both versions named). Not
 * inside a transaction. */
tacit_status tacit_database_migrate(tacit_database *db, const tacit_migrations *migrations,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* PRAGMA quick_check: TACIT_BAD_INPUT when the file is damaged. Reads the whole file. */
tacit_status tacit_database_check(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;

/* BEGIN IMMEDIATE takes the write lock, so that what is read after it holds until the commit.
 * Beginning twice is TACIT_CONFLICT. When a commit fails the transaction is rolled back. When the
 * disk fills in the middle, SQLite drops the transaction: every later statement and the commit
 * fail then, until tacit_database_rollback. */
tacit_status tacit_database_begin(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_database_commit(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;
void tacit_database_rollback(tacit_database *db); /* nothing happens outside a transaction */
bool tacit_database_in_transaction(const tacit_database *db);

/* One request inside a group commit: a savepoint in the open transaction. They do not nest. Undo
 * takes back what was written since the mark; keep leaves it to the commit. */
tacit_status tacit_database_mark(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_database_keep(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;
void tacit_database_undo(tacit_database *db);

/* Runs a script without results or parameters. */
tacit_status tacit_database_run(tacit_database *db, const char *sql,
                                tacit_error *err) TACIT_MUST_CHECK;

/* --- statements ---------------------------------------------------------------------------------
 *
 *     tacit_statement *s;
 *     TACIT_TRY(tacit_statement_begin(db, &s, "SELECT index FROM t WHERE hash = $1", err), done);
 *     tacit_bind_blob(s, 1, hash, 32);
 *     bool row;
 *     status = tacit_statement_step(s, &row, err);
 *     if (status == TACIT_OK && row)
 *         index = tacit_column_u64(s, 0);
 *     tacit_statement_end(s);
 *
 * Binding and reading errors (a number above INT64_MAX, a column of another type, a blob of
 * another size) are kept and returned by the next step; tacit_statement_check returns them
 * without stepping. */

/* Takes a prepared statement from the connection's cache, preparing it the first time. `sql` is
 * one statement and stays valid as long as the connection (a literal). */
tacit_status tacit_statement_begin(tacit_database *db, tacit_statement **s, const char *sql,
                                   tacit_error *err) TACIT_MUST_CHECK;
/* Gives it back; bindings are wiped. NULL is fine. */
void tacit_statement_end(tacit_statement *s);

/* Parameters count from 1. The bytes are copied. A NULL blob or text binds SQL NULL. */
void tacit_bind_i64(tacit_statement *s, int at, int64_t v);
void tacit_bind_u64(tacit_statement *s, int at, uint64_t v);
void tacit_bind_f64(tacit_statement *s, int at, double v);
void tacit_bind_text(tacit_statement *s, int at, const char *text);
void tacit_bind_blob(tacit_statement *s, int at, const void *data, size_t size);
void tacit_bind_null(tacit_statement *s, int at);

/* The next row, or *row false after the last. */
tacit_status tacit_statement_step(tacit_statement *s, bool *row, tacit_error *err) TACIT_MUST_CHECK;
/* Steps a statement without rows, then ends it whatever happened. */
tacit_status tacit_statement_finish(tacit_statement *s, tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_statement_check(tacit_statement *s, tacit_error *err) TACIT_MUST_CHECK;

/* Columns count from 0. Views live until the next step or the end. A NULL column reads as 0, ""
 * or an empty span and is no error; tacit_column_is_null tells. */
bool tacit_column_is_null(tacit_statement *s, int at);
int64_t tacit_column_i64(tacit_statement *s, int at);
uint64_t tacit_column_u64(tacit_statement *s, int at);
double tacit_column_f64(tacit_statement *s, int at);
const char *tacit_column_text(tacit_statement *s, int at);
tacit_span tacit_column_blob(tacit_statement *s, int at);
/* Copies a blob of exactly `size` bytes; on another size *out is zeroed and the error kept. */
void tacit_column_bytes(tacit_statement *s, int at, void *out, size_t size);

/* Rows that the last INSERT, UPDATE or DELETE changed. */
uint64_t tacit_database_changes(const tacit_database *db);

#endif
