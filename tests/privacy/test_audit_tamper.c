/* An export that was tampered with by whoever holds its files: entries, checkpoint and keys, and
 * each file of the tiles; and one that is not what a receipt of a device says. Each row changes one
 * thing in the files of one realistic log, and names every kind of violation that the auditor must
 * find, and no other. (In test_audit_tamper_server.c the server signs what it changed, in
 * test_audit_tamper_device.c a device; test_audit.c and test_audit_rounds.c build logs that are
 * wrong from the start, for every kind.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tamper.h"

/* --- whoever holds the files --- */

static void flip_signature(tamper *t)
{
    bytes *last = &t->entry[FIND(ROUND_CLOSED, -1, 2)];
    last->data[last->size - 1] ^= 1;
}

static void change_entry(tamper *t)
{
    size_t i = FIND(POLICY_CHANGED, 0, 0);
    for (size_t k = 0; k + 8 < t->entry[i].size; k++)
        if (memcmp(t->entry[i].data + k, "operator", 8) == 0)
            t->entry[i].data[k] = 'O';
}

static void drop_entry(tamper *t)
{
    drop(t, FIND(ROUND_CLOSED, -1, 2));
}

static void drop_last(tamper *t)
{
    drop(t, t->count - 1);
}

static void swap_decisions(tamper *t)
{
    move(t, FIND(UPDATE, 1, 2), FIND(UPDATE, 0, 2));
}

static void repeat_at_end(tamper *t)
{
    repeat(t, FIND(SPEND, 0, 1), t->count);
}

static void cut_in_an_entry(tamper *t)
{
    t->cut = 1;
}

static void cut_in_a_length(tamper *t)
{
    t->cut = t->entry[t->count - 1].size + 2;
}

static void empty_the_log(tamper *t)
{
    while (t->count)
        drop(t, t->count - 1);
}

static void zeros_at_the_end(tamper *t)
{
    t->junk = 9;
}

static void an_older_checkpoint(tamper *t)
{
    t->signer = t->w.log; /* it is the server's own, of three entries before */
    t->covered = t->count - 3;
}

static void another_root(tamper *t)
{
    char *root = strchr(strchr(t->checkpoint, '\n') + 1, '\n') + 1;
    root[3] = root[3] == 'A' ? 'B' : 'A';
}

static void another_size(tamper *t)
{
    strchr(t->checkpoint, '\n')[1] ^= 1;
}

static void garbage_checkpoint(tamper *t)
{
    snprintf(t->checkpoint, sizeof t->checkpoint, "nothing");
}

static void checkpoint_by_a_stranger(tamper *t)
{
    t->signer = t->w.stranger;
}

static void key_and_checkpoint_by_a_stranger(tamper *t)
{
    t->signer = t->w.stranger;
    name_key(t, WORLD_ORIGIN, t->w.stranger);
}

static void another_origin(tamper *t)
{
    name_key(t, "other.example/log", t->w.log);
}

static void no_key(tamper *t)
{
    snprintf(t->keys, sizeof t->keys, "# no key\n");
}

/* --- what a device was shown --- */

static void receipt_broken(tamper *t)
{
    t->receipt.data[t->receipt.size - 3] ^= 1;
}

/* The export ends before what the receipt covers. */
static void older_than_the_receipt(tamper *t)
{
    while (t->count > 15)
        drop(t, t->count - 1);
    server_signs(t);
}

/* Another time of the first start, in the log that the auditor gets: the server signs both. */
static void forked(tamper *t)
{
    size_t i = FIND(SERVER_START, -1, 0);
    tacit_entry e = open_entry(t, i);
    e.entry->time_ms++;
    put(t, i, e.entry, t->w.log);
    tacit_entry_close(&e);
    server_signs(t);
}

static const struct row rows[] = {
    {"nothing", NULL, "", NULL},

    {"a signature flipped", flip_signature, "bad_signature root_mismatch", NULL},
    {"a word changed", change_entry, "bad_signature root_mismatch", NULL},
    {"an entry dropped", drop_entry, "incomplete_export", NULL},
    {"the end dropped", drop_last, "incomplete_export", NULL},
    {"two entries exchanged", swap_decisions, "root_mismatch", NULL},
    {"an entry repeated at the end", repeat_at_end, "duplicate_spend sequence_reused unsigned_tail",
     NULL},
    {"cut within an entry", cut_in_an_entry, NULL, "log.bin: entry"},
    {"cut within a length", cut_in_a_length, NULL, "log.bin: entry"},
    {"emptied", empty_the_log, "incomplete_export wrong_start", NULL},
    {"zeros at the end", zeros_at_the_end, NULL, "log.bin: entry"},
    {"an older checkpoint", an_older_checkpoint, "unsigned_tail", NULL},
    {"another root", another_root, "bad_checkpoint", NULL},
    {"another size", another_size, "bad_checkpoint", NULL},
    {"no checkpoint", garbage_checkpoint, "bad_checkpoint", NULL},
    {"a checkpoint by a stranger", checkpoint_by_a_stranger, "bad_checkpoint", NULL},
    {"key and checkpoint by a stranger", key_and_checkpoint_by_a_stranger, "wrong_log_key", NULL},
    {"another origin", another_origin, "bad_checkpoint bad_receipt wrong_start", NULL},
    {"no key", no_key, NULL, "keys.txt"},

    {"a receipt broken", receipt_broken, "bad_receipt", NULL},
    {"older than a receipt", older_than_the_receipt, "incomplete_export", NULL},
    {"a forked log", forked, "split_view", NULL},
};

static void test_every_change_of_files_is_found_and_named(void **state)
{
    all_are_found(rows, sizeof rows / sizeof rows[0], *state);
}

/* --- files of the tiled layout --- */

static const struct {
    const char *what, *file;
    long at; /* of the byte that changes, from the end where negative; 0: the file goes */
    const char *kinds, *error;
} tile_rows[] = {
    {"a hash changed", "tile/0/000.p/53", 7, "tile_mismatch", NULL},
    {"the hashes gone", "tile/0/000.p/53", 0, "tile_mismatch", NULL},
    {"an entry's byte changed", "tile/entries/000.p/53", -1,
     "bad_signature root_mismatch tile_mismatch", NULL},
    {"the entries gone", "tile/entries/000.p/53", 0, "incomplete_export wrong_start", NULL},
    {"a checkpoint's byte changed", "checkpoint", -3, "bad_checkpoint", NULL},
    {"the checkpoint gone", "checkpoint", 0, NULL, "checkpoint"},
    {"the keys gone", "keys.txt", 0, NULL, "keys.txt"},
};

static void change_file(const char *dir, const char *name, long at)
{
    char path[256];
    uint8_t *data;
    size_t size;
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!at) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    OK(tacit_file_read(path, 1 << 20, &data, &size, &err));
    data[at < 0 ? (long)size + at : at] ^= 1;
    OK(tacit_file_write(path, data, size, 0644, &err));
    free(data);
}

static void test_every_file_of_the_tiles_is_held_to_the_others(void **state)
{
    char tiles[128];
    size_t missed = 0;
    snprintf(tiles, sizeof tiles, "%s/tiles", (const char *)*state);
    for (size_t i = 0; i < sizeof tile_rows / sizeof tile_rows[0]; i++) {
        tamper t;
        begin(&t);
        write_tiles(&t, tiles);
        change_file(tiles, tile_rows[i].file, tile_rows[i].at);
        missed += !is_found(tile_rows[i].what, tile_rows[i].kinds, tile_rows[i].error, &t, tiles);
        remove_all(tiles);
        end(&t);
    }
    assert_int_equal(missed, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* the log as it is, for tests/e2e */
        tamper t;
        begin(&t);
        write_tiles(&t, argv[1]);
        write_file(argv[1], "../device.receipt", t.receipt.data, t.receipt.size);
        end(&t);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_change_of_files_is_found_and_named, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(test_every_file_of_the_tiles_is_held_to_the_others,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
