#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "common/file.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture {
    char dir[64];
    char path[128];
    tacit_database *db;
    tacit_error err;
} fixture;

static const char *const shop_sql[] = {
    "CREATE TABLE shop_item (id INTEGER PRIMARY KEY, name TEXT UNIQUE, weight REAL, hash BLOB)"
    " STRICT; CREATE TABLE shop_count (n INTEGER NOT NULL CHECK (n <= 100)) STRICT;"
    "INSERT INTO shop_count (n) VALUES (0)",
    "ALTER TABLE shop_item ADD COLUMN extra INTEGER",
};
static const tacit_migrations shop_first = {"shop", shop_sql, 1};
static const tacit_migrations shop = {"shop", shop_sql, 2};

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-database-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/x.db", f->dir);
    assert_int_equal(tacit_database_open(&f->db, f->path, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_migrate(f->db, &shop, &f->err), TACIT_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    tacit_database_close(f->db);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static tacit_status insert(tacit_database *db, uint64_t id, const char *name, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(db, &s, "INSERT INTO shop_item (id, name) VALUES ($1, $2)", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_u64(s, 1, id);
    tacit_bind_text(s, 2, name);
    return tacit_statement_finish(s, err);
}

static int64_t number(tacit_database *db, const char *sql)
{
    tacit_error err;
    tacit_statement *s;
    bool row;
    assert_int_equal(tacit_statement_begin(db, &s, sql, &err), TACIT_OK);
    assert_int_equal(tacit_statement_step(s, &row, &err), TACIT_OK);
    assert_true(row);
    int64_t v = tacit_column_i64(s, 0);
    assert_int_equal(tacit_statement_check(s, &err), TACIT_OK);
    tacit_statement_end(s);
    return v;
}

static void test_values_round_trip(void **state)
{
    fixture *f = *state;
    tacit_statement *s;
    const uint8_t hash[4] = {0, 1, 254, 255};
    assert_int_equal(tacit_statement_begin(
                         f->db, &s, "INSERT INTO shop_item VALUES ($1, $2, $3, $4, $5)", &f->err),
                     TACIT_OK);
    tacit_bind_i64(s, 1, INT64_MIN);
    tacit_bind_text(s, 2, "caf\xc3\xa9");
    tacit_bind_f64(s, 3, 0.1);
    tacit_bind_blob(s, 4, hash, sizeof hash);
    tacit_bind_null(s, 5);
    assert_int_equal(tacit_statement_finish(s, &f->err), TACIT_OK);
    bool row;
    assert_int_equal(tacit_statement_begin(f->db, &s, "SELECT * FROM shop_item", &f->err),
                     TACIT_OK);
    assert_int_equal(tacit_statement_step(s, &row, &f->err), TACIT_OK);
    assert_true(row);
    uint8_t back[4];
    assert_true(tacit_column_i64(s, 0) == INT64_MIN);
    assert_string_equal(tacit_column_text(s, 1), "caf\xc3\xa9");
    assert_true(tacit_column_f64(s, 2) == 0.1);
    tacit_column_bytes(s, 3, back, sizeof back);
    assert_memory_equal(back, hash, sizeof hash);
    assert_true(tacit_column_is_null(s, 4));
    assert_int_equal(tacit_statement_step(s, &row, &f->err), TACIT_OK);
    assert_false(row);
    tacit_statement_end(s);
}

/* In SQLite "$2" is a name, numbered where it first appears; here it is the second parameter. */
static void test_parameters_go_by_their_number(void **state)
{
    fixture *f = *state;
    tacit_statement *s;
    assert_int_equal(insert(f->db, 7, "seven", &f->err), TACIT_OK);
    assert_int_equal(
        tacit_statement_begin(f->db, &s, "UPDATE shop_item SET name = $2, extra = $3 WHERE id = $1",
                              &f->err),
        TACIT_OK);
    tacit_bind_u64(s, 1, 7);
    tacit_bind_text(s, 2, "other");
    tacit_bind_u64(s, 3, 5);
    assert_int_equal(tacit_statement_finish(s, &f->err), TACIT_OK);
    assert_int_equal(number(f->db, "SELECT extra FROM shop_item WHERE id = 7 AND name = 'other'"),
                     5);
    assert_int_equal(tacit_statement_begin(f->db, &s, "SELECT $1", &f->err), TACIT_OK);
    bool row;
    tacit_bind_u64(s, 2, 1);
    assert_int_equal(tacit_statement_step(s, &row, &f->err), TACIT_FAILED);
    tacit_statement_end(s);
}

static void test_wrong_types_and_ranges_are_errors(void **state)
{
    fixture *f = *state;
    tacit_statement *s;
    bool row;
    assert_int_equal(insert(f->db, UINT64_MAX, "too large", &f->err), TACIT_FAILED);
    assert_int_equal(insert(f->db, 7, "seven", &f->err), TACIT_OK);
    assert_int_equal(tacit_statement_begin(f->db, &s, "SELECT name, -1 FROM shop_item", &f->err),
                     TACIT_OK);
    assert_int_equal(tacit_statement_step(s, &row, &f->err), TACIT_OK);
    assert_int_equal(tacit_column_i64(s, 0), 0);
    assert_int_equal(tacit_statement_check(s, &f->err), TACIT_BAD_INPUT);
    tacit_statement_end(s);
    uint8_t out[4];
    assert_int_equal(tacit_statement_begin(f->db, &s, "SELECT x'0102', -1", &f->err), TACIT_OK);
    assert_int_equal(tacit_statement_step(s, &row, &f->err), TACIT_OK);
    tacit_column_bytes(s, 0, out, sizeof out);
    assert_int_equal(tacit_statement_step(s, &row, &f->err), TACIT_BAD_INPUT);
    tacit_statement_end(s);
}

static void test_constraints_are_conflicts(void **state)
{
    fixture *f = *state;
    assert_int_equal(insert(f->db, 1, "a", &f->err), TACIT_OK);
    assert_int_equal(insert(f->db, 2, "a", &f->err), TACIT_CONFLICT);
    assert_non_null(strstr(f->err.message, f->path));
    assert_non_null(strstr(f->err.message, "UNIQUE"));
    assert_int_equal(insert(f->db, 2, "b", &f->err), TACIT_OK);
}

static void test_rollback_takes_everything_back(void **state)
{
    fixture *f = *state;
    assert_int_equal(tacit_database_begin(f->db, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_begin(f->db, &f->err), TACIT_CONFLICT);
    assert_int_equal(insert(f->db, 1, "a", &f->err), TACIT_OK);
    tacit_database_rollback(f->db);
    assert_int_equal(number(f->db, "SELECT count(*) FROM shop_item"), 0);
    assert_int_equal(tacit_database_commit(f->db, &f->err), TACIT_USAGE);
}

static void test_a_mark_undoes_one_request_of_a_group(void **state)
{
    fixture *f = *state;
    assert_int_equal(tacit_database_mark(f->db, &f->err), TACIT_USAGE);
    assert_int_equal(tacit_database_begin(f->db, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_mark(f->db, &f->err), TACIT_OK);
    assert_int_equal(insert(f->db, 1, "kept", &f->err), TACIT_OK);
    assert_int_equal(tacit_database_keep(f->db, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_mark(f->db, &f->err), TACIT_OK);
    assert_int_equal(insert(f->db, 2, "undone", &f->err), TACIT_OK);
    tacit_database_undo(f->db);
    assert_int_equal(tacit_database_commit(f->db, &f->err), TACIT_OK);
    assert_int_equal(number(f->db, "SELECT sum(id) FROM shop_item"), 1);
}

static void test_migrations_continue_and_newer_files_are_refused(void **state)
{
    fixture *f = *state;
    assert_int_equal(tacit_database_migrate(f->db, &shop, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_migrate(f->db, &shop_first, &f->err), TACIT_BAD_INPUT);
    assert_non_null(strstr(f->err.message, "version 2, this program knows 1"));
    tacit_database *other;
    char path[160];
    snprintf(path, sizeof path, "%s/step.db", f->dir);
    assert_int_equal(tacit_database_open(&other, path, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_migrate(other, &shop_first, &f->err), TACIT_OK);
    assert_int_equal(insert(other, 1, "old", &f->err), TACIT_OK);
    assert_int_equal(tacit_database_migrate(other, &shop, &f->err), TACIT_OK);
    assert_int_equal(number(other, "SELECT count(*) FROM shop_item WHERE extra IS NULL"), 1);
    tacit_database_close(other);
}

static void test_a_failing_migration_leaves_nothing(void **state)
{
    fixture *f = *state;
    static const char *const sql[] = {"CREATE TABLE bad_a (x INTEGER) STRICT; NOT SQL"};
    const tacit_migrations bad = {"bad", sql, 1};
    assert_int_equal(tacit_database_migrate(f->db, &bad, &f->err), TACIT_FAILED);
    assert_int_equal(number(f->db, "SELECT count(*) FROM sqlite_schema WHERE name = 'bad_a'"), 0);
    assert_false(tacit_database_in_transaction(f->db));
}

static void test_the_file_is_private_and_durable(void **state)
{
    fixture *f = *state;
    struct stat st;
    char wal[160];
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(wal, sizeof wal, "%s-wal", f->path);
    assert_int_equal(stat(wal, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(number(f->db, "PRAGMA synchronous"), 2);
    assert_int_equal(number(f->db, "PRAGMA foreign_keys"), 1);
}

static void test_a_committed_row_survives_a_killed_process(void **state)
{
    fixture *f = *state;
    tacit_database_close(f->db);
    f->db = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tacit_database *db;
        tacit_error err;
        if (tacit_database_open(&db, f->path, &err) == TACIT_OK &&
            insert(db, 1, "kept", &err) == TACIT_OK && tacit_database_begin(db, &err) == TACIT_OK &&
            insert(db, 2, "lost", &err) == TACIT_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    assert_int_equal(tacit_database_open(&f->db, f->path, &f->err), TACIT_OK);
    assert_int_equal(number(f->db, "SELECT sum(id) FROM shop_item"), 1);
}

static void count_up(const char *path, int start)
{
    tacit_database *db;
    tacit_error err;
    char go;
    if (read(start, &go, 1) != 0 || tacit_database_open(&db, path, &err) != TACIT_OK ||
        tacit_database_migrate(db, &shop, &err) != TACIT_OK)
        _exit(1);
    for (int i = 0; i < 25; i++) {
        char sql[80];
        if (tacit_database_begin(db, &err) != TACIT_OK)
            _exit(2);
        int64_t n = number(db, "SELECT n FROM shop_count");
        snprintf(sql, sizeof sql, "UPDATE shop_count SET n = %lld", (long long)n + 1);
        if (tacit_database_run(db, sql, &err) != TACIT_OK ||
            tacit_database_commit(db, &err) != TACIT_OK)
            _exit(3);
    }
    tacit_database_close(db);
    _exit(0);
}

/* Four processes open a file that does not exist yet, all released by one closed pipe. */
static void test_processes_share_a_file_without_lost_updates(void **state)
{
    fixture *f = *state;
    char path[160];
    int barrier[2];
    snprintf(path, sizeof path, "%s/shared.db", f->dir);
    assert_int_equal(pipe(barrier), 0);
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(barrier[1]);
            count_up(path, barrier[0]);
        }
    }
    close(barrier[1]);
    close(barrier[0]);
    for (int i = 0; i < 4; i++) {
        int code;
        assert_true(wait(&code) > 0);
        assert_true(WIFEXITED(code));
        assert_int_equal(WEXITSTATUS(code), 0);
    }
    tacit_database *db;
    assert_int_equal(tacit_database_open(&db, path, &f->err), TACIT_OK);
    assert_int_equal(number(db, "SELECT n FROM shop_count"), 100);
    tacit_database_close(db);
}

static tacit_status fill(tacit_database *db, tacit_error *err)
{
    char name[1001];
    memset(name, 'x', 1000);
    tacit_status status = TACIT_OK;
    for (unsigned i = 100; i < 5000 && status == TACIT_OK; i++) {
        snprintf(name + 990, 11, "%010u", i);
        status = insert(db, i, name, err);
    }
    return status;
}

static void check_full(tacit_database *db, tacit_error *err)
{
    assert_int_equal(insert(db, 1, "before", err), TACIT_OK);
    assert_int_equal(tacit_database_begin(db, err), TACIT_OK);
    assert_int_equal(fill(db, err), TACIT_IO);
    assert_non_null(strstr(err->message, "free space"));
    assert_int_equal(insert(db, 2, "after the fault", err) == TACIT_OK &&
                         tacit_database_commit(db, err) == TACIT_OK,
                     0);
    tacit_database_rollback(db);
    assert_int_equal(number(db, "SELECT count(*) FROM shop_item"), 1);
}

static void test_a_full_database_is_an_io_error(void **state)
{
    fixture *f = *state;
    tacit_database_close(f->db);
    assert_int_equal(tacit_database_open(&f->db, f->path, &f->err), TACIT_OK);
    assert_true(number(f->db, "PRAGMA max_page_count = 64") >= 64);
    assert_int_equal(insert(f->db, 1, "before", &f->err), TACIT_OK);
    assert_int_equal(tacit_database_begin(f->db, &f->err), TACIT_OK);
    assert_int_equal(fill(f->db, &f->err), TACIT_IO);
    assert_non_null(strstr(f->err.message, "free space"));
    tacit_database_rollback(f->db);
    assert_int_equal(number(f->db, "SELECT count(*) FROM shop_item"), 1);
    assert_int_equal(insert(f->db, 2, "room again", &f->err), TACIT_OK);
}

/* A real full disk where the test may mount one. */
static void test_a_full_disk_is_an_io_error(void **state)
{
    fixture *f = *state;
    char dir[96], path[160];
    snprintf(dir, sizeof dir, "%s/small", f->dir);
    snprintf(path, sizeof path, "%s/x.db", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    if (geteuid() != 0 || mount("tacit-test", dir, "tmpfs", 0, "size=512k") != 0)
        skip();
    tacit_database *db = NULL;
    tacit_status opened = tacit_database_open(&db, path, &f->err);
    if (opened == TACIT_OK)
        opened = tacit_database_migrate(db, &shop, &f->err);
    if (opened == TACIT_OK)
        check_full(db, &f->err);
    tacit_database_close(db);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(opened, TACIT_OK);
}

static void write_bytes(const char *path, const char *bytes)
{
    tacit_error err;
    assert_int_equal(tacit_file_write(path, bytes, strlen(bytes), 0600, &err), TACIT_OK);
}

static void test_other_files_are_refused(void **state)
{
    fixture *f = *state;
    tacit_database *db;
    char path[160];
    snprintf(path, sizeof path, "%s/text.db", f->dir);
    write_bytes(path, "this is no database, only a text that is long enough to be read as one");
    assert_int_equal(tacit_database_open(&db, path, &f->err), TACIT_BAD_INPUT);
    assert_null(db);
    sqlite3 *plain;
    snprintf(path, sizeof path, "%s/foreign.db", f->dir);
    assert_int_equal(sqlite3_open(path, &plain), SQLITE_OK);
    assert_int_equal(sqlite3_exec(plain, "CREATE TABLE t (x)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(plain);
    assert_int_equal(tacit_database_open(&db, path, &f->err), TACIT_BAD_INPUT);
    assert_non_null(strstr(f->err.message, "another program"));
    snprintf(path, sizeof path, "%s/none/x.db", f->dir);
    assert_int_equal(tacit_database_open(&db, path, &f->err), TACIT_IO);
}

static void test_a_damaged_file_is_noticed(void **state)
{
    fixture *f = *state;
    for (uint64_t i = 1; i < 400; i++) {
        char name[64];
        snprintf(name, sizeof name, "some name that takes room in a page %u", (unsigned)i);
        assert_int_equal(insert(f->db, i, name, &f->err), TACIT_OK);
    }
    assert_int_equal(tacit_database_check(f->db, &f->err), TACIT_OK);
    tacit_database_close(f->db);
    FILE *file = fopen(f->path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    for (long at = 4096; at < ftell(file); at += 4096) {
        long end = ftell(file);
        fseek(file, at, SEEK_SET);
        fwrite("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1, 12, file);
        fseek(file, end, SEEK_SET);
    }
    fclose(file);
    tacit_status status = tacit_database_open(&f->db, f->path, &f->err);
    if (status == TACIT_OK)
        status = tacit_database_check(f->db, &f->err);
    assert_int_equal(status, TACIT_BAD_INPUT);
}

/* With the file open elsewhere and its last commits in the WAL; what is done to the copy stays
 * there. A file that is not there is an empty one and does not come to be. */
static void test_a_copy_reads_all_and_writes_nothing(void **state)
{
    fixture *f = *state;
    tacit_database *copy;
    char path[160];
    assert_int_equal(insert(f->db, 7, "seven", &f->err), TACIT_OK);
    assert_int_equal(tacit_database_open_copy(&copy, f->path, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_migrate(copy, &shop, &f->err), TACIT_OK);
    assert_int_equal(number(copy, "SELECT id FROM shop_item WHERE name = 'seven'"), 7);
    assert_int_equal(insert(copy, 8, "eight", &f->err), TACIT_OK);
    assert_int_equal(number(copy, "SELECT count(*) FROM shop_item"), 2);
    tacit_database_close(copy);
    assert_int_equal(number(f->db, "SELECT count(*) FROM shop_item"), 1);
    snprintf(path, sizeof path, "%s/none.db", f->dir);
    assert_int_equal(tacit_database_open_copy(&copy, path, &f->err), TACIT_OK);
    assert_int_equal(tacit_database_migrate(copy, &shop, &f->err), TACIT_OK);
    assert_int_equal(number(copy, "SELECT count(*) FROM shop_item"), 0);
    tacit_database_close(copy);
    assert_int_equal(access(path, F_OK), -1);
    write_bytes(path, "this is no database, only a text that is long enough to be read as one");
    assert_int_equal(tacit_database_open_copy(&copy, path, &f->err), TACIT_BAD_INPUT);
    assert_null(copy);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_values_round_trip),
        WITH(test_parameters_go_by_their_number),
        WITH(test_wrong_types_and_ranges_are_errors),
        WITH(test_constraints_are_conflicts),
        WITH(test_rollback_takes_everything_back),
        WITH(test_a_mark_undoes_one_request_of_a_group),
        WITH(test_migrations_continue_and_newer_files_are_refused),
        WITH(test_a_failing_migration_leaves_nothing),
        WITH(test_the_file_is_private_and_durable),
        WITH(test_a_committed_row_survives_a_killed_process),
        WITH(test_processes_share_a_file_without_lost_updates),
        WITH(test_a_full_database_is_an_io_error),
        WITH(test_a_full_disk_is_an_io_error),
        WITH(test_other_files_are_refused),
        WITH(test_a_damaged_file_is_noticed),
        WITH(test_a_copy_reads_all_and_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
