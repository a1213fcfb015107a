/* Exports on disk. With a folder as argument the program writes there what tests/e2e needs: a clean
 * export, one whose log a device's own epsilon contradicts, and a receipt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "common/file.h"
#include "privacy/audit.h"
#include "privacy/export.h"
#include "privacy/receipt.h"
#include "world.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    world w;
    char dir[96], out[128];
    tacit_database *db;
    tacit_ledger *ledger;
    tacit_error err;
} fixture;

static void fill(fixture *f)
{
    char path[160], note[TACIT_CHECKPOINT_MAX];
    uint64_t index, size;
    uint8_t leaf[TACIT_HASH_BYTES];
    snprintf(path, sizeof path, "%s/server.db", f->dir);
    OK(tacit_database_open(&f->db, path, &f->err));
    OK(tacit_ledger_open(&f->ledger, f->db, WORLD_ORIGIN, f->w.log, &f->err));
    world_plan_all(&f->w);
    world_log(&f->w);
    OK(tacit_database_begin(f->db, &f->err));
    for (size_t i = 0; i < f->w.count; i++)
        OK(tacit_ledger_append(f->ledger, f->w.entry[i].bytes, f->w.entry[i].size, &index, leaf,
                               &f->err));
    OK(tacit_ledger_checkpoint(f->ledger, note, &size, &f->err));
    OK(tacit_database_commit(f->db, &f->err));
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-export-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->out, sizeof f->out, "%s/export", f->dir);
    world_init(&f->w);
    fill(f);
    *state = f;
    return 0;
}

static void close_all(fixture *f)
{
    tacit_ledger_close(f->ledger);
    tacit_database_close(f->db);
    world_free(&f->w);
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[160];
    close_all(f);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static void test_an_export_is_the_log(void **state)
{
    fixture *f = *state;
    tacit_export e;
    tacit_audit audit;
    tacit_audit_options options = {0};
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    OK(tacit_export_read(&e, f->out, &f->err));
    assert_int_equal(e.count, f->w.count);
    for (size_t i = 0; i < e.count; i++) {
        assert_int_equal(e.entries[i].size, f->w.entry[i].size);
        assert_memory_equal(e.entries[i].data, f->w.entry[i].bytes, e.entries[i].size);
    }
    assert_false(e.has_operator_key);
    OK(tacit_audit_run(&audit, &e, &options, &f->err));
    assert_int_equal(audit.violation_count, 0);
    tacit_audit_free(&audit);
    tacit_export_free(&e);
}

static void test_an_export_replaces_an_export_and_nothing_else(void **state)
{
    fixture *f = *state;
    tacit_export e;
    tacit_note_key operator_key;
    char path[160], slashed[160];
    struct stat st;
    OK(tacit_note_key_make(&operator_key, "operator", tacit_identity_sign_key(f->w.stranger),
                           &f->err));
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    snprintf(slashed, sizeof slashed, "%s/", f->out);
    OK(tacit_export_write(f->ledger, &operator_key, slashed, &f->err));
    OK(tacit_export_read(&e, f->out, &f->err));
    assert_true(e.has_operator_key);
    assert_string_equal(e.operator_key.name, "operator");
    tacit_export_free(&e);
    assert_int_equal(stat(f->out, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    snprintf(path, sizeof path, "%s/diary.txt", f->out);
    OK(tacit_file_write(path, "mine", 4, 0600, &f->err));
    assert_int_equal(tacit_export_write(f->ledger, NULL, f->out, &f->err), TACIT_CONFLICT);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/file", f->dir);
    OK(tacit_file_write(path, "mine", 4, 0600, &f->err));
    assert_int_equal(tacit_export_write(f->ledger, NULL, path, &f->err), TACIT_CONFLICT);
}

/* A killed export leaves a folder beside its target, which the next one takes over. What is not of
 * an export stays. */
static void test_what_a_killed_export_left_is_taken_over(void **state)
{
    fixture *f = *state;
    char made[160], path[256];
    struct stat st;
    tacit_export e;
    snprintf(made, sizeof made, "%s" TACIT_FILE_UNFINISHED, f->out);
    for (int before = 0; before < 2; before++) { /* without and with an export that is there */
        assert_int_equal(mkdir(made, 0700), 0);
        snprintf(path, sizeof path, "%s/log.bin", made);
        OK(tacit_file_write(path, "half of it", 10, 0600, &f->err));
        snprintf(path, sizeof path, "%s/keys.txt" TACIT_FILE_UNFINISHED, made);
        OK(tacit_file_write(path, "log", 3, 0600, &f->err));
        OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
        assert_int_equal(lstat(made, &st), -1);
        OK(tacit_export_read(&e, f->out, &f->err));
        assert_int_equal(e.count, f->w.count);
        tacit_export_free(&e);
    }
    assert_int_equal(mkdir(made, 0700), 0);
    snprintf(path, sizeof path, "%s/thesis.txt", made);
    OK(tacit_file_write(path, "mine", 4, 0600, &f->err));
    assert_int_equal(tacit_export_write(f->ledger, NULL, f->out, &f->err), TACIT_CONFLICT);
    assert_non_null(strstr(f->err.message, made));
    assert_int_equal(lstat(path, &st), 0);
}

static void test_missing_and_malformed_files_are_named(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *file, *text;
        tacit_status status;
    } rows[] = {
        {"keys.txt", "", TACIT_BAD_INPUT},
        {"keys.txt", "log x\n", TACIT_BAD_INPUT},
        {"keys.txt", "owner PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW\n",
         TACIT_BAD_INPUT},
        {"keys.txt",
         "log PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW\n"
         "log PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW\n",
         TACIT_BAD_INPUT},
        {"log.bin", "\x09\x01\x01\x01", TACIT_BAD_INPUT},
    };
    tacit_export e;
    char path[160];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
        snprintf(path, sizeof path, "%s/%s", f->out, rows[i].file);
        OK(tacit_file_write(path, rows[i].text, strlen(rows[i].text), 0644, &f->err));
        assert_int_equal(tacit_export_read(&e, f->out, &f->err), rows[i].status);
        assert_non_null(strstr(f->err.message, rows[i].file));
    }
    static const char *const files[] = {"keys.txt", "log.bin", "checkpoint.txt"};
    for (size_t i = 0; i < 3; i++) {
        OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
        snprintf(path, sizeof path, "%s/%s", f->out, files[i]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(tacit_export_read(&e, f->out, &f->err), TACIT_NOT_FOUND);
        assert_non_null(strstr(f->err.message, files[i]));
    }
}

static void write_plainly(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* True when the export at f->out is unreadable or does not pass. */
static bool is_noticed(fixture *f)
{
    tacit_export e;
    tacit_audit audit;
    tacit_audit_options options = {0};
    if (tacit_export_read(&e, f->out, &f->err) != TACIT_OK)
        return true;
    OK(tacit_audit_run(&audit, &e, &options, &f->err));
    bool noticed = audit.violation_count > 0;
    tacit_audit_free(&audit);
    tacit_export_free(&e);
    return noticed;
}

/* log.bin is flipped in test_audit.c; these are the two files beside it. */
static void test_flipped_checkpoints_and_keys_are_noticed(void **state)
{
    fixture *f = *state;
    static const char *const files[] = {"checkpoint.txt", "keys.txt"};
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    assert_false(is_noticed(f));
    for (size_t k = 0; k < 2; k++) {
        char path[160];
        uint8_t *bytes;
        size_t size;
        snprintf(path, sizeof path, "%s/%s", f->out, files[k]);
        OK(tacit_file_read(path, 4096, &bytes, &size, &f->err));
        for (size_t i = 0; i < size; i++) {
            uint8_t kept = bytes[i];
            bytes[i] ^= (uint8_t)(1u << i % 8);
            /* One letter of the key id in capitals is the same id. */
            bool same = k == 1 && kept >= 'a' && bytes[i] == (kept ^ 0x20) && bytes[i] <= 'F' &&
                        memchr(bytes, '+', i) && i < 4 + 17 + 1 + 8;
            write_plainly(path, bytes, size);
            if (!same && !is_noticed(f))
                fail_msg("%s: byte %zu of '%.*s'", files[k], i, (int)size, (char *)bytes);
            bytes[i] = kept;
        }
        write_plainly(path, bytes, size);
        free(bytes);
    }
    assert_false(is_noticed(f));
}

static void test_nothing_is_exported_before_a_checkpoint(void **state)
{
    fixture *f = *state;
    tacit_database *db;
    tacit_ledger *ledger;
    char path[160];
    snprintf(path, sizeof path, "%s/empty.db", f->dir);
    OK(tacit_database_open(&db, path, &f->err));
    OK(tacit_ledger_open(&ledger, db, WORLD_ORIGIN, f->w.log, &f->err));
    assert_int_equal(tacit_export_write(ledger, NULL, f->out, &f->err), TACIT_NOT_FOUND);
    assert_int_equal(access(f->out, F_OK), -1);
    tacit_ledger_close(ledger);
    tacit_database_close(db);
}

/* --- material for tests/e2e --- */

static bool lie(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (e->body_case == TACIT__ENTRY__BODY_RESERVE && round == 1 && device == 1)
        e->reserve->epsilon_after = 0.25;
    return true;
}

/* An export that no ledger would write: log.bin and checkpoint.txt replaced by the world's. */
static void write_raw(world *w, const char *dir)
{
    tacit_buffer b = {0};
    char note[TACIT_CHECKPOINT_MAX], path[256], keys[512], vkey[TACIT_VKEY_MAX];
    tacit_note_key key = world_log_key(w);
    for (size_t i = 0; i < w->count; i++) {
        uint8_t length[4];
        tacit_store_u32(length, (uint32_t)w->entry[i].size);
        OK(tacit_buffer_append(&b, length, sizeof length));
        OK(tacit_buffer_append(&b, w->entry[i].bytes, w->entry[i].size));
    }
    world_checkpoint(w, w->count, note);
    tacit_note_key_write(&key, vkey);
    snprintf(keys, sizeof keys, "# written by a test\nlog %s\n", vkey);
    OK(tacit_file_make_dir(dir, 0755, &w->err));
    snprintf(path, sizeof path, "%s/log.bin", dir);
    OK(tacit_file_write(path, b.data, b.size, 0644, &w->err));
    snprintf(path, sizeof path, "%s/checkpoint.txt", dir);
    OK(tacit_file_write(path, note, strlen(note), 0644, &w->err));
    snprintf(path, sizeof path, "%s/keys.txt", dir);
    OK(tacit_file_write(path, keys, strlen(keys), 0644, &w->err));
    tacit_buffer_free(&b);
}

static void write_receipt(fixture *f, const char *path)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    uint8_t *packed;
    size_t packed_size;
    tacit_receipt r = {.entry = {f->w.entry[7].bytes, f->w.entry[7].size}, .index = 7};
    OK(tacit_ledger_last_checkpoint(f->ledger, note, &size, &f->err));
    r.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_ledger_inclusion(f->ledger, 7, size, &r.inclusion, &f->err));
    OK(tacit_receipt_pack(&r, &packed, &packed_size, &f->err));
    OK(tacit_file_write(path, packed, packed_size, 0644, &f->err));
    free(packed);
}

static void write_variant(const char *dir, const char *name, world_hook *hook, bool none)
{
    world w;
    char path[256];
    world_init(&w);
    w.hook = hook;
    w.none = none;
    w.policy.allow_non_private = none;
    world_plan_all(&w);
    world_log(&w);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    write_raw(&w, path);
    world_free(&w);
}

static int write_material(const char *dir)
{
    fixture f = {0};
    char path[256];
    snprintf(f.dir, sizeof f.dir, "%.80s", dir);
    world_init(&f.w);
    fill(&f);
    snprintf(path, sizeof path, "%s/clean", dir);
    OK(tacit_export_write(f.ledger, NULL, path, &f.err));
    snprintf(path, sizeof path, "%s/good.receipt", dir);
    write_receipt(&f, path);
    close_all(&f);
    write_variant(dir, "lying", lie, false);
    write_variant(dir, "none", NULL, true);
    return 0;
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WITH(test_an_export_is_the_log),
        WITH(test_an_export_replaces_an_export_and_nothing_else),
        WITH(test_what_a_killed_export_left_is_taken_over),
        WITH(test_missing_and_malformed_files_are_named),
        WITH(test_flipped_checkpoints_and_keys_are_noticed),
        WITH(test_nothing_is_exported_before_a_checkpoint),
    };
    if (argc > 1)
        return write_material(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
