/* Exports on disk. With a folder as argument the program writes there what tests/e2e needs: a clean
 * export, the same as it was written before, one whose log a device's own epsilon contradicts, and
 * a receipt. */
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

/* Reads all entries of an export into one buffer, each after its length. */
static tacit_status read_all(const tacit_export *e, tacit_buffer *out, tacit_error *err)
{
    tacit_export_cursor c = tacit_export_cursor_over(e);
    tacit_status status = tacit_export_next(&c, err);
    while (status == TACIT_OK && c.count) {
        for (size_t i = 0; i < c.count; i++) {
            OK(tacit_buffer_append(out, &c.entry[i].size, sizeof c.entry[i].size));
            OK(tacit_buffer_append(out, c.entry[i].data, c.entry[i].size));
        }
        status = tacit_export_next(&c, err);
    }
    tacit_export_cursor_free(&c);
    return status;
}

static void assert_holds(fixture *f, const char *dir, const world *w)
{
    tacit_export e;
    tacit_buffer expected = {0}, found = {0};
    for (size_t i = 0; i < w->count; i++) {
        OK(tacit_buffer_append(&expected, &w->entry[i].size, sizeof w->entry[i].size));
        OK(tacit_buffer_append(&expected, w->entry[i].bytes, w->entry[i].size));
    }
    OK(tacit_export_read(&e, dir, &f->err));
    OK(read_all(&e, &found, &f->err));
    assert_int_equal(found.size, expected.size);
    assert_memory_equal(found.data, expected.data, found.size);
    tacit_export_free(&e);
    tacit_buffer_free(&expected);
    tacit_buffer_free(&found);
}

static void test_an_export_is_the_log(void **state)
{
    fixture *f = *state;
    tacit_export e;
    tacit_audit audit;
    tacit_audit_options options = {0};
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    assert_holds(f, f->out, &f->w);
    OK(tacit_export_read(&e, f->out, &f->err));
    assert_int_equal(e.count, f->w.count);
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
        {"checkpoint", "no checkpoint\n", TACIT_BAD_INPUT},
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
    static const char *const files[] = {"keys.txt", "checkpoint"};
    for (size_t i = 0; i < 2; i++) {
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
    tacit_status status = tacit_audit_run(&audit, &e, &options, &f->err);
    bool noticed = status != TACIT_OK || audit.violation_count > 0;
    if (status == TACIT_OK)
        tacit_audit_free(&audit);
    tacit_export_free(&e);
    return noticed;
}

/* Entries are flipped in test_audit_log.c; these are the two files beside them. */
static void test_flipped_checkpoints_and_keys_are_noticed(void **state)
{
    fixture *f = *state;
    static const char *const files[] = {"checkpoint", "keys.txt"};
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

/* --- the layout --- */

static void path_of(const fixture *f, char path[224], const char *name)
{
    snprintf(path, 224, "%s/%s", f->out, name);
}

/* Entries of one byte to 611, and one that is longer than a bundle of the format may hold. */
#define ODD_ENTRIES 700
#define LONG_ENTRY 300

static size_t odd_size(size_t i)
{
    return i == LONG_ENTRY ? 70000 : 1 + i * 37 % 611;
}

static void write_odd(fixture *f, size_t count)
{
    static uint8_t bytes[70000];
    char note[TACIT_CHECKPOINT_MAX];
    tacit_note_key key = world_log_key(&f->w);
    tacit_merkle_frontier tree = {.size = 0};
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = count};
    tacit_export_writer *writer;
    OK(tacit_export_begin(&writer, f->out, &f->err));
    for (size_t i = 0; i < count; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        memset(bytes, (int)i, odd_size(i));
        tacit_merkle_leaf(leaf, bytes, odd_size(i));
        tacit_merkle_frontier_append(&tree, leaf);
        OK(tacit_export_add(writer, bytes, odd_size(i), &f->err));
    }
    tacit_merkle_frontier_root(&tree, c.root);
    OK(tacit_checkpoint_sign(&c, f->w.log, note, &f->err));
    OK(tacit_export_publish(writer, note, &key, NULL, &f->err));
    tacit_export_close(writer);
}

/* Reads a bundle as the format's text says it, with `width` bytes a length. */
static void assert_bundle(fixture *f, const char *name, size_t first, size_t count, int width)
{
    char path[224];
    uint8_t *data;
    size_t size, at = 0;
    path_of(f, path, name);
    OK(tacit_file_read(path, 1 << 20, &data, &size, &f->err));
    for (size_t i = first; i < first + count; i++) {
        size_t length = 0;
        for (int k = 0; k < width; k++)
            length = length * 256 + data[at++];
        assert_int_equal(length, odd_size(i));
        for (size_t k = 0; k < length; k++)
            assert_int_equal(data[at++], (uint8_t)i);
    }
    assert_int_equal(at, size);
    free(data);
}

static void assert_file(const fixture *f, const char *name, long size)
{
    char path[224];
    struct stat st;
    path_of(f, path, name);
    if (size < 0) {
        assert_int_equal(access(path, F_OK), -1);
        return;
    }
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, size);
}

static void test_files_lie_where_the_format_says(void **state)
{
    fixture *f = *state;
    tacit_export e;
    tacit_buffer found = {0};
    write_odd(f, ODD_ENTRIES);
    assert_bundle(f, "tile/entries/000", 0, 256, 2);
    assert_bundle(f, "tile/entries32/001", 256, 256, 4);
    assert_bundle(f, "tile/entries/002.p/188", 512, 188, 2);
    assert_file(f, "tile/entries/001", -1);
    assert_file(f, "tile/entries32/000", -1);
    assert_file(f, "tile/0/000", 8192);
    assert_file(f, "tile/0/001", 8192);
    assert_file(f, "tile/0/002.p/188", 188 * 32);
    assert_file(f, "tile/1/000.p/2", 64);
    assert_file(f, "tile/2", -1);
    OK(tacit_export_read(&e, f->out, &f->err));
    OK(read_all(&e, &found, &f->err));
    size_t at = 0;
    for (size_t i = 0; i < ODD_ENTRIES; i++) {
        size_t size;
        memcpy(&size, found.data + at, sizeof size);
        assert_int_equal(size, odd_size(i));
        assert_int_equal(found.data[at + sizeof size], (uint8_t)i);
        at += sizeof size + size;
    }
    assert_int_equal(at, found.size);
    tacit_buffer_free(&found);
    tacit_export_free(&e);
    /* A shorter log leaves nothing of the longer one. */
    write_odd(f, 256);
    long bytes = 0;
    for (size_t i = 0; i < 256; i++)
        bytes += 2 + (long)odd_size(i);
    assert_file(f, "tile/entries/000", bytes);
    assert_file(f, "tile/entries32", -1);
    assert_file(f, "tile/0/001", -1);
    assert_file(f, "tile/0/002.p", -1);
}

static void test_the_same_log_gives_the_same_bytes(void **state)
{
    fixture *f = *state;
    char other[160], command[400];
    snprintf(other, sizeof other, "%s/other", f->dir);
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    OK(tacit_export_write(f->ledger, NULL, other, &f->err));
    snprintf(command, sizeof command, "diff -r %s %s", f->out, other);
    assert_int_equal(system(command), 0);
}

/* --- exports of before --- */

static void write_old(fixture *f)
{
    tacit_buffer b = {0};
    char note[TACIT_CHECKPOINT_MAX], path[224], keys[512], vkey[TACIT_VKEY_MAX];
    tacit_note_key key = world_log_key(&f->w);
    for (size_t i = 0; i < f->w.count; i++) {
        uint8_t length[4];
        tacit_store_u32(length, (uint32_t)f->w.entry[i].size);
        OK(tacit_buffer_append(&b, length, sizeof length));
        OK(tacit_buffer_append(&b, f->w.entry[i].bytes, f->w.entry[i].size));
    }
    world_checkpoint(&f->w, f->w.count, note);
    tacit_note_key_write(&key, vkey);
    snprintf(keys, sizeof keys, "# written by a test\nlog %s\n", vkey);
    OK(tacit_file_make_dir(f->out, 0755, &f->err));
    path_of(f, path, "log.bin");
    OK(tacit_file_write(path, b.data, b.size, 0644, &f->err));
    path_of(f, path, "checkpoint.txt");
    OK(tacit_file_write(path, note, strlen(note), 0644, &f->err));
    path_of(f, path, "keys.txt");
    OK(tacit_file_write(path, keys, strlen(keys), 0644, &f->err));
    tacit_buffer_free(&b);
}

static void test_exports_of_before_are_read_and_replaced(void **state)
{
    fixture *f = *state;
    tacit_export e;
    char path[224];
    write_old(f);
    assert_holds(f, f->out, &f->w);
    assert_false(is_noticed(f));
    path_of(f, path, "log.bin");
    OK(tacit_file_write(path, "\x09\x01\x01\x01", 4, 0644, &f->err));
    assert_int_equal(tacit_export_read(&e, f->out, &f->err), TACIT_BAD_INPUT);
    assert_non_null(strstr(f->err.message, "log.bin: entry 0 at byte 0"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tacit_export_read(&e, f->out, &f->err), TACIT_NOT_FOUND);
    assert_non_null(strstr(f->err.message, "log.bin"));
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    assert_file(f, "checkpoint.txt", -1);
    assert_false(is_noticed(f));
}

/* --- damage --- */

static void assert_found(fixture *f, const char *kind)
{
    tacit_export e;
    tacit_audit audit;
    tacit_audit_options options = {0};
    OK(tacit_export_read(&e, f->out, &f->err));
    OK(tacit_audit_run(&audit, &e, &options, &f->err));
    assert_int_equal(audit.violation_count, 1);
    assert_string_equal(audit.violations[0].kind, kind);
    tacit_audit_free(&audit);
    tacit_export_free(&e);
}

static void test_every_flipped_byte_of_a_tile_is_noticed(void **state)
{
    fixture *f = *state;
    char path[224], name[64];
    uint8_t *bytes;
    size_t size;
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    snprintf(name, sizeof name, "tile/0/000.p/%zu", f->w.count);
    path_of(f, path, name);
    OK(tacit_file_read(path, 8192, &bytes, &size, &f->err));
    for (size_t i = 0; i < size; i += 13) {
        bytes[i] ^= 4;
        write_plainly(path, bytes, size);
        assert_found(f, "tile_mismatch");
        bytes[i] ^= 4;
    }
    write_plainly(path, bytes, size - 1);
    assert_found(f, "tile_mismatch");
    assert_int_equal(unlink(path), 0);
    assert_found(f, "tile_mismatch");
    free(bytes);
}

static void test_bundles_that_are_missing_or_cut(void **state)
{
    fixture *f = *state;
    tacit_export e;
    tacit_audit audit;
    tacit_audit_options options = {0};
    char path[224], name[64];
    uint8_t *bytes;
    size_t size;
    OK(tacit_export_write(f->ledger, NULL, f->out, &f->err));
    snprintf(name, sizeof name, "tile/entries/000.p/%zu", f->w.count);
    path_of(f, path, name);
    OK(tacit_file_read(path, 1 << 20, &bytes, &size, &f->err));
    for (size_t n = 0; n <= size + 1; n += n + 1 < size ? 97 : 1) {
        uint8_t *longer = calloc(1, size + 1);
        memcpy(longer, bytes, size);
        write_plainly(path, longer, n);
        free(longer);
        OK(tacit_export_read(&e, f->out, &f->err));
        tacit_status status = tacit_audit_run(&audit, &e, &options, &f->err);
        assert_int_equal(status, n == size ? TACIT_OK : TACIT_BAD_INPUT);
        if (status == TACIT_OK)
            tacit_audit_free(&audit);
        else
            assert_non_null(strstr(f->err.message, name));
        tacit_export_free(&e);
    }
    assert_int_equal(unlink(path), 0);
    OK(tacit_export_read(&e, f->out, &f->err));
    OK(tacit_audit_run(&audit, &e, &options, &f->err));
    assert_true(audit.violation_count >= 2);
    assert_string_equal(audit.violations[0].kind, "wrong_start");
    assert_string_equal(audit.violations[1].kind, "incomplete_export");
    tacit_audit_free(&audit);
    tacit_export_free(&e);
    free(bytes);
}

/* --- material for tests/e2e --- */

static bool lie(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (e->body_case == TACIT__ENTRY__BODY_RESERVE && round == 1 && device == 1)
        e->reserve->epsilon_after = 0.25;
    return true;
}

/* An export that no ledger would write: of the world's entries. */
static void write_raw(world *w, const char *dir)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_note_key key = world_log_key(w);
    tacit_export_writer *writer;
    world_checkpoint(w, w->count, note);
    OK(tacit_export_begin(&writer, dir, &w->err));
    for (size_t i = 0; i < w->count; i++)
        OK(tacit_export_add(writer, w->entry[i].bytes, w->entry[i].size, &w->err));
    OK(tacit_export_publish(writer, note, &key, NULL, &w->err));
    tacit_export_close(writer);
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
    snprintf(f.out, sizeof f.out, "%.80s/old", dir);
    write_old(&f);
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
        WITH(test_missing_and_malformed_files_are_named),
        WITH(test_flipped_checkpoints_and_keys_are_noticed),
        WITH(test_nothing_is_exported_before_a_checkpoint),
        WITH(test_files_lie_where_the_format_says),
        WITH(test_the_same_log_gives_the_same_bytes),
        WITH(test_exports_of_before_are_read_and_replaced),
        WITH(test_every_flipped_byte_of_a_tile_is_noticed),
        WITH(test_bundles_that_are_missing_or_cut),
    };
    if (argc > 1)
        return write_material(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
