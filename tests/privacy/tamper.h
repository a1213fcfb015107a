/* An export while it is tampered with: its entries one by one, to be dropped, moved, changed and
 * signed again by whoever tampers; then its files, in both layouts, and whether the auditor finds
 * what a row says. The log is the one of fleet_log.h. Each test program includes this once, after
 * cmocka.h. */
#ifndef TACIT_TESTS_TAMPER_H
#define TACIT_TESTS_TAMPER_H

#include "audit_run.h"
#include "common/file.h"
#include "fleet_log.h"
#include "privacy/receipt.h"

#include <unistd.h>

#define ENTRIES_MAX 128

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

/* An export while it is tampered with. */
typedef struct tamper {
    world w;
    bytes entry[ENTRIES_MAX];
    size_t count;
    bytes receipt;
    const tacit_identity *signer; /* of the new checkpoint; NULL: the old one stays */
    size_t covered;               /* entries that it covers; 0: all */
    char checkpoint[TACIT_CHECKPOINT_MAX];
    char keys[512];
    size_t cut, junk; /* bytes taken off the end of log.bin, and zeros put there */
} tamper;

/* --- entries as they are read and written --- */

static inline bytes copy_of(const void *data, size_t size)
{
    bytes b = {malloc(size), size};
    assert_non_null(b.data);
    memcpy(b.data, data, size);
    return b;
}

static inline void leaf_of(const tamper *t, size_t i, uint8_t leaf[TACIT_HASH_BYTES])
{
    tacit_merkle_leaf(leaf, t->entry[i].data, t->entry[i].size);
}

/* The n-th entry of a kind, of a device where it is not -1. */
static inline size_t find(tamper *t, Tacit__Entry__BodyCase kind, int device, int n)
{
    for (size_t i = 0; i < t->count; i++) {
        tacit_entry e;
        OK(tacit_entry_read(&e, t->entry[i].data, t->entry[i].size, &t->w.err));
        bool hit =
            e.entry->body_case == kind &&
            (device < 0 || (e.entry->device.len &&
                            memcmp(e.entry->device.data, t->w.device[device].name, 16) == 0));
        tacit_entry_close(&e);
        if (hit && n-- == 0)
            return i;
    }
    fail_msg("no such entry");
    return 0;
}
#define FIND(kind, device, n) find(t, TACIT__ENTRY__BODY_##kind, device, n)

static inline tacit_entry open_entry(tamper *t, size_t i)
{
    tacit_entry e;
    OK(tacit_entry_read(&e, t->entry[i].data, t->entry[i].size, &t->w.err));
    return e;
}

/* Signs what `e` holds now, whatever it says. */
static inline bytes signed_bytes(tamper *t, const Tacit__Entry *e, const tacit_identity *key)
{
    Tacit__SignedEntry envelope = TACIT__SIGNED_ENTRY__INIT;
    uint8_t *inner, *outer, signature[TACIT_SIGNATURE_BYTES];
    size_t inner_size, outer_size;
    OK(tacit_message_pack(e, TACIT_MESSAGE_ENTRY_MAX, &inner, &inner_size, &t->w.err));
    OK(tacit_identity_sign(key, TACIT_ENTRY_DOMAIN, inner, inner_size, signature, &t->w.err));
    envelope.entry = tacit_field_of(inner, inner_size);
    envelope.signer = tacit_field_of(tacit_identity_sign_key(key), TACIT_SIGN_KEY_BYTES);
    envelope.signature = tacit_field_of(signature, sizeof signature);
    OK(tacit_message_pack(&envelope, TACIT_MESSAGE_ENTRY_MAX, &outer, &outer_size, &t->w.err));
    free(inner);
    return (bytes){outer, outer_size};
}

static inline void put(tamper *t, size_t i, const Tacit__Entry *e, const tacit_identity *key)
{
    bytes made = signed_bytes(t, e, key);
    free(t->entry[i].data);
    t->entry[i] = made;
}

/* The device signs it anew, and what it signed after it. */
static inline void put_own(tamper *t, size_t i, const Tacit__Entry *e, int d)
{
    uint8_t old[TACIT_HASH_BYTES], new[TACIT_HASH_BYTES];
    leaf_of(t, i, old);
    put(t, i, e, t->w.device[d].id);
    leaf_of(t, i, new);
    for (size_t k = i + 1; k < t->count; k++) {
        tacit_entry next = open_entry(t, k);
        if (next.device_signed && next.entry->previous.len == TACIT_HASH_BYTES &&
            memcmp(next.entry->previous.data, old, sizeof old) == 0) {
            memcpy(next.entry->previous.data, new, sizeof new);
            leaf_of(t, k, old);
            put(t, k, next.entry, t->w.device[d].id);
            leaf_of(t, k, new);
        }
        tacit_entry_close(&next);
    }
}

static inline void insert(tamper *t, size_t at, bytes b)
{
    assert_true(t->count < ENTRIES_MAX);
    memmove(&t->entry[at + 1], &t->entry[at], (t->count - at) * sizeof t->entry[0]);
    t->entry[at] = b;
    t->count++;
}

static inline bytes take(tamper *t, size_t at)
{
    bytes b = t->entry[at];
    t->count--;
    memmove(&t->entry[at], &t->entry[at + 1], (t->count - at) * sizeof t->entry[0]);
    return b;
}

static inline void drop(tamper *t, size_t at)
{
    free(take(t, at).data);
}

/* Moves an entry to another index. */
static inline void move(tamper *t, size_t from, size_t to)
{
    bytes b = take(t, from);
    insert(t, to, b);
}

static inline void repeat(tamper *t, size_t i, size_t at)
{
    insert(t, at, copy_of(t->entry[i].data, t->entry[i].size));
}

/* What the server signs anew, or for the first time, after one change. */
static inline void server_signs(tamper *t)
{
    t->signer = t->w.log;
}

/* --- one row --- */

/* One change, and what the auditor must say of it. */
struct row {
    const char *what;
    void (*edit)(tamper *);
    const char *kinds; /* every kind that is found, and no other, sorted */
    const char *error; /* or what the refusal to read names */
};

static inline void name_key(tamper *t, const char *origin, const tacit_identity *id)
{
    tacit_note_key key;
    char text[TACIT_VKEY_MAX];
    OK(tacit_note_key_make(&key, origin, tacit_identity_sign_key(id), &t->w.err));
    tacit_note_key_write(&key, text);
    snprintf(t->keys, sizeof t->keys, "log %s\n", text);
}

static inline void receipt_of(tamper *t, uint64_t index, uint64_t size)
{
    char note[TACIT_CHECKPOINT_MAX];
    tacit_receipt r = {.entry = {t->w.entry[index].bytes, t->w.entry[index].size}, .index = index};
    tacit_merkle_store store = tacit_merkle_memory_store(&t->w.tree);
    world_checkpoint(&t->w, size, note);
    r.checkpoint = (tacit_span){(const uint8_t *)note, strlen(note)};
    OK(tacit_merkle_inclusion(&store, index, size, &r.inclusion, &t->w.err));
    OK(tacit_receipt_pack(&r, &t->receipt.data, &t->receipt.size, &t->w.err));
}

/* The log, and the receipt of the first reserve under the checkpoint of that hour. */
static inline void begin(tamper *t)
{
    *t = (tamper){.count = 0};
    world_init(&t->w);
    fleet_log(&t->w);
    for (size_t i = 0; i < t->w.count; i++)
        t->entry[t->count++] = copy_of(t->w.entry[i].bytes, t->w.entry[i].size);
    world_checkpoint(&t->w, t->w.count, t->checkpoint);
    name_key(t, WORLD_ORIGIN, t->w.log);
    receipt_of(t, FIND(RESERVE, 0, 0), FIND(ROUND_CLOSED, -1, 0) + 1);
}

static inline void end(tamper *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->entry[i].data);
    free(t->receipt.data);
    world_free(&t->w);
}

static inline void sign_checkpoint(tamper *t)
{
    tacit_merkle_memory tree = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&tree);
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = t->covered ? t->covered : t->count};
    for (size_t i = 0; i < t->count; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        leaf_of(t, i, leaf);
        OK(tacit_merkle_append(&store, i, leaf, &t->w.err));
    }
    OK(tacit_merkle_root(&store, c.size, c.root, &t->w.err));
    OK(tacit_checkpoint_sign(&c, t->signer, t->checkpoint, &t->w.err));
    tacit_merkle_memory_free(&tree);
}

static inline void write_file(const char *dir, const char *name, const void *data, size_t size)
{
    char path[256];
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(tacit_file_write(path, data, size, 0644, &err));
}

/* The layout of before: all entries in one file. */
static inline void write_one_file(tamper *t, const char *dir)
{
    tacit_buffer log = {0};
    static const uint8_t zeros[16];
    for (size_t i = 0; i < t->count; i++) {
        uint8_t length[4];
        tacit_store_u32(length, (uint32_t)t->entry[i].size);
        OK(tacit_buffer_append(&log, length, sizeof length));
        OK(tacit_buffer_append(&log, t->entry[i].data, t->entry[i].size));
    }
    log.size -= t->cut;
    OK(tacit_buffer_append(&log, zeros, t->junk));
    if (t->signer)
        sign_checkpoint(t);
    write_file(dir, "log.bin", log.data ? log.data : zeros, log.size);
    write_file(dir, "checkpoint.txt", t->checkpoint, strlen(t->checkpoint));
    write_file(dir, "keys.txt", t->keys, strlen(t->keys));
    tacit_buffer_free(&log);
}

/* The layout that servers write; the checkpoint is of these entries. */
static inline void write_tiles(tamper *t, const char *dir)
{
    tacit_export_writer *writer;
    tacit_note_key key = world_log_key(&t->w);
    if (t->signer)
        sign_checkpoint(t);
    OK(tacit_export_begin(&writer, dir, &t->w.err));
    for (size_t i = 0; i < t->count; i++)
        OK(tacit_export_add(writer, t->entry[i].data, t->entry[i].size, &t->w.err));
    OK(tacit_export_publish(writer, t->checkpoint, &key, NULL, &t->w.err));
    tacit_export_close(writer);
}

static inline int by_word(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The kinds found, each once, sorted. */
static inline void kinds_of(const tacit_audit *audit, char *out, size_t size)
{
    const char *kinds[64];
    size_t n = 0;
    assert_true(audit->violation_count < 64);
    for (size_t i = 0; i < audit->violation_count; i++)
        kinds[n++] = audit->violations[i].kind;
    qsort(kinds, n, sizeof kinds[0], by_word);
    *out = '\0';
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(kinds[i], kinds[i - 1]) != 0)
            snprintf(out + strlen(out), size - strlen(out), "%s%s", *out ? " " : "", kinds[i]);
}

/* The checks that fail are those of the kinds, and those alone. */
static inline bool checks_agree(const tacit_audit *audit)
{
    uint64_t failures = 0;
    for (size_t i = 0; i < audit->check_count; i++) {
        const tacit_audit_check *c = &audit->checks[i];
        failures += c->failures;
        if ((c->outcome == TACIT_AUDIT_FAIL) != (c->failures > 0) ||
            (c->outcome == TACIT_AUDIT_SKIPPED) != (c->reason != NULL))
            return false;
    }
    return failures == audit->violation_count;
}

static inline bool is_found(const char *what, const char *kinds, const char *error, tamper *t,
                            const char *dir)
{
    char found[1024];
    const char *name = "device.receipt";
    tacit_export e;
    tacit_audit audit;
    tacit_error err;
    tacit_status status = tacit_export_read(&e, dir, &err);
    if (error) {
        bool refused =
            (status == TACIT_BAD_INPUT || status == TACIT_NOT_FOUND) && strstr(err.message, error);
        if (!refused)
            print_error("%s: expected an error of '%s', found '%s'\n", what, error,
                        status == TACIT_OK ? "none" : err.message);
        if (status == TACIT_OK)
            tacit_export_free(&e);
        return refused;
    }
    assert_int_equal(status, TACIT_OK);
    const tacit_span receipt = {t->receipt.data, t->receipt.size};
    const tacit_audit_options options = {
        .receipts = &receipt, .receipt_names = &name, .receipt_count = 1};
    OK(tacit_audit_run(&audit, &e, &options, &err));
    kinds_of(&audit, found, sizeof found);
    bool good = strcmp(found, kinds) == 0 && checks_agree(&audit);
    if (!good) {
        print_error("%s: expected '%s', found '%s'\n", what, kinds, found);
        print_all(what, &audit);
    }
    tacit_audit_free(&audit);
    tacit_export_free(&e);
    return good;
}

static inline void remove_all(const char *dir)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static inline int make_folder(void **state)
{
    char dir[] = "/tmp/tacit-tamper-XXXXXX";
    *state = mkdtemp(dir) ? strdup(dir) : NULL;
    return *state == NULL;
}

static inline int remove_folder(void **state)
{
    remove_all(*state);
    free(*state);
    return 0;
}

/* A server's tampering is found in both layouts; whoever only holds files meets the tiles below. */
static inline bool row_is_found(const struct row *row, const char *dir)
{
    char tiles[128];
    tamper t;
    begin(&t);
    if (row->edit)
        row->edit(&t);
    write_one_file(&t, dir);
    bool found = is_found(row->what, row->kinds, row->error, &t, dir);
    if (!row->edit || (t.signer == t.w.log && !t.covered)) {
        snprintf(tiles, sizeof tiles, "%s/tiles", dir);
        write_tiles(&t, tiles);
        found = is_found(row->what, row->kinds, row->error, &t, tiles) && found;
        remove_all(tiles);
    }
    end(&t);
    return found;
}

/* Tampers with one log after the other; all are found, or the test fails after the last. */
static inline void all_are_found(const struct row *rows, size_t count, const char *dir)
{
    size_t missed = 0, tamperings = 0;
    for (size_t i = 0; i < count; i++) {
        missed += !row_is_found(&rows[i], dir);
        tamperings += rows[i].edit != NULL;
    }
    print_message("%zu tamperings\n", tamperings);
    assert_int_equal(missed, 0);
}

#endif
