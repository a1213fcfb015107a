/* Any bytes as the files of an exported folder: keys, checkpoint, cosignature, bundles of entries,
 * hash tiles, and the log.bin of exports of before. They are read, audited under the witness's key
 * that may come with them, and whatever entries were read are exported anew, under a key of this
 * program's own: the tree of that must hold, and its entries be the same.
 *
 * The input is a list of files: KIND and INDEX (u8), WIDTH (u8; 0: a whole tile), SIZE (u32 LE),
 * bytes. The top two bits of a hash tile's index are its level. */
#include "fuzz_target.h"

#include "common/file.h"
#include "privacy/audit.h"
#include "privacy/export.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ORIGIN "fuzz.example/log"
#define FILES_MAX 16
#define ENTRIES_MAX 600

bool fuzz_accepted;

enum { BUNDLE = 5, BUNDLE32, HASHES, WITNESS };
static const char *const names[] = {"keys.txt", "checkpoint", "cosigned", "log.bin",
                                    "checkpoint.txt"};

static char work_dir[] = "/dev/shm/fuzz-export-XXXXXX";

static void remove_work_dir(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", work_dir);
    (void)!system(command);
}

static void make_work_dir(void)
{
    static bool made;
    if (!made)
        FUZZ_CHECK(mkdtemp(work_dir) != NULL && atexit(remove_work_dir) == 0);
    made = true;
}

/* --- the files of the input --- */

typedef struct folder {
    char dir[64], path[FILES_MAX][192];
    size_t count;
    tacit_note_key witness;
    bool has_witness;
} folder;

static void file_name(char out[TACIT_TILE_PATH_MAX], unsigned kind, unsigned index, unsigned width)
{
    if (kind == HASHES)
        tacit_hash_tile_path(out, index >> 6, index & 63, width);
    else if (kind >= BUNDLE)
        tacit_tile_path(out, kind == BUNDLE ? TACIT_ENTRIES_NAME : TACIT_ENTRIES32_NAME, index,
                        width);
    else
        snprintf(out, TACIT_TILE_PATH_MAX, "%s", names[kind]);
}

static void write_file(const char *path, tacit_span bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return; /* a folder has its name */
    FUZZ_CHECK(fwrite(bytes.data, 1, bytes.size, file) == bytes.size && fclose(file) == 0);
}

static void add_file(folder *f, unsigned kind, unsigned index, unsigned width, tacit_span bytes)
{
    char name[TACIT_TILE_PATH_MAX], path[192], parent[192];
    tacit_error err;
    file_name(name, kind, index, width);
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    memcpy(f->path[f->count++], path, sizeof path);
    memcpy(parent, path, sizeof parent);
    *strrchr(parent, '/') = '\0';
    if (tacit_file_make_dir(parent, 0700, &err) == TACIT_OK)
        write_file(path, bytes);
}

static void take_witness(folder *f, tacit_span bytes)
{
    char text[TACIT_VKEY_MAX];
    if (bytes.size >= sizeof text)
        return;
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    f->has_witness = tacit_witness_key_parse(&f->witness, text, NULL) == TACIT_OK;
}

static void unpack(folder *f, const uint8_t *data, size_t size)
{
    tacit_cursor c = tacit_cursor_over(data, size);
    while (tacit_cursor_left(&c) && f->count < FILES_MAX) {
        const uint8_t *head = tacit_cursor_take(&c, 3).data;
        uint32_t length = tacit_cursor_u32(&c);
        tacit_span bytes = tacit_cursor_take(&c, length);
        if (c.failed || head[0] > WITNESS)
            return;
        if (head[0] == WITNESS)
            take_witness(f, bytes);
        else
            add_file(f, head[0], head[1], head[2], bytes);
    }
}

static void remove_files(const folder *f)
{
    for (size_t i = 0; i < f->count; i++)
        unlink(f->path[i]);
}

/* --- what was read --- */

typedef struct entries {
    uint8_t *bytes[ENTRIES_MAX];
    size_t size[ENTRIES_MAX], count;
} entries;

/* The next entries, held to what the header promises; false at the end. */
static bool take_entries(tacit_export_cursor *c, entries *out)
{
    tacit_error err;
    if (tacit_export_next(c, &err) != TACIT_OK)
        return false;
    FUZZ_CHECK(c->count <= TACIT_TILE_WIDTH && c->at + c->count <= c->log->count);
    for (size_t i = 0; i < c->count && out->count < ENTRIES_MAX; i++) {
        size_t size = c->entry[i].size;
        FUZZ_CHECK(size > 0 && size <= TACIT_MESSAGE_ENTRY_MAX);
        uint8_t *copy = malloc(size);
        FUZZ_CHECK(copy != NULL);
        memcpy(copy, c->entry[i].data, size);
        out->bytes[out->count] = copy;
        out->size[out->count++] = size;
    }
    return c->count > 0;
}

static void read_entries(const tacit_export *log, entries *out)
{
    tacit_export_cursor c = tacit_export_cursor_over(log);
    while (take_entries(&c, out))
        continue;
    tacit_export_cursor_free(&c);
}

static void free_entries(entries *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->bytes[i]);
}

/* --- the same entries, exported by this program --- */

static tacit_identity *own_key(void)
{
    static tacit_identity *key;
    tacit_error err;
    if (!key)
        FUZZ_CHECK(tacit_identity_ephemeral(&key, &err) == TACIT_OK);
    return key;
}

static void sign_tree(const entries *e, char note[TACIT_CHECKPOINT_MAX])
{
    tacit_checkpoint checkpoint = {.origin = ORIGIN, .size = e->count};
    tacit_merkle_frontier tree = {.size = 0};
    tacit_error err;
    for (size_t i = 0; i < e->count; i++) {
        uint8_t leaf[TACIT_HASH_BYTES];
        tacit_merkle_leaf(leaf, e->bytes[i], e->size[i]);
        tacit_merkle_frontier_append(&tree, leaf);
    }
    tacit_merkle_frontier_root(&tree, checkpoint.root);
    FUZZ_CHECK(tacit_checkpoint_sign(&checkpoint, own_key(), note, &err) == TACIT_OK);
}

static void write_export(const entries *e, const char *dir)
{
    tacit_export_writer *writer;
    tacit_note_key key;
    tacit_error err;
    char note[TACIT_CHECKPOINT_MAX];
    sign_tree(e, note);
    FUZZ_CHECK(tacit_note_key_make(&key, ORIGIN, tacit_identity_sign_key(own_key()), &err) ==
               TACIT_OK);
    FUZZ_CHECK(tacit_export_begin(&writer, dir, &err) == TACIT_OK);
    for (size_t i = 0; i < e->count; i++)
        FUZZ_CHECK(tacit_export_add(writer, e->bytes[i], e->size[i], &err) == TACIT_OK);
    FUZZ_CHECK(tacit_export_publish(writer, note, &key, NULL, &err) == TACIT_OK);
    tacit_export_close(writer);
}

static void assert_tree_holds(const tacit_export *log)
{
    static const tacit_audit_options options;
    static const char *const broken[] = {"bad_checkpoint", "root_mismatch", "tile_mismatch",
                                         "incomplete_export", "unsigned_tail"};
    tacit_audit audit;
    tacit_error err;
    FUZZ_CHECK(tacit_audit_run(&audit, log, &options, &err) == TACIT_OK);
    for (size_t i = 0; i < audit.violation_count; i++)
        for (size_t k = 0; k < sizeof broken / sizeof broken[0]; k++)
            FUZZ_CHECK(strcmp(audit.violations[i].kind, broken[k]) != 0);
    tacit_audit_free(&audit);
}

static void export_anew(const entries *e)
{
    char dir[64];
    tacit_export log;
    tacit_error err;
    entries again = {.count = 0};
    snprintf(dir, sizeof dir, "%s/out", work_dir);
    write_export(e, dir);
    FUZZ_CHECK(tacit_export_read(&log, dir, &err) == TACIT_OK && log.count == e->count);
    read_entries(&log, &again);
    FUZZ_CHECK(again.count == e->count);
    for (size_t i = 0; i < e->count; i++)
        FUZZ_CHECK(again.size[i] == e->size[i] &&
                   memcmp(again.bytes[i], e->bytes[i], e->size[i]) == 0);
    assert_tree_holds(&log);
    free_entries(&again);
    tacit_export_free(&log);
}

/* --- the target --- */

static void audit(const folder *f, const tacit_export *log)
{
    const tacit_audit_options options = {.witness = f->has_witness ? &f->witness : NULL};
    tacit_audit out;
    tacit_error err;
    tacit_status status = tacit_audit_run(&out, log, &options, &err);
    FUZZ_CHECK(status == TACIT_OK || (status == TACIT_BAD_INPUT && err.message[0]));
    if (status != TACIT_OK)
        return;
    fuzz_accepted = out.violation_count == 0;
    FUZZ_CHECK(out.witnessed <= out.entries);
    tacit_audit_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    folder f = {.count = 0};
    tacit_export log;
    tacit_error err;
    fuzz_accepted = false;
    make_work_dir();
    snprintf(f.dir, sizeof f.dir, "%s/in", work_dir);
    unpack(&f, data, size);
    if (tacit_export_read(&log, f.dir, &err) == TACIT_OK) {
        entries e = {.count = 0};
        read_entries(&log, &e);
        audit(&f, &log);
        if (e.count)
            export_anew(&e);
        free_entries(&e);
        tacit_export_free(&log);
    }
    remove_files(&f);
    return 0;
}
