#include "common/file.h"
#include "common/log.h"
#include "privacy/export_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- what stands in an export --- */

static bool is_export_file(const char *name)
{
    static const char *const files[] = {EXPORT_CHECKPOINT_NAME, EXPORT_KEYS_NAME,
                                        EXPORT_OLD_LOG_NAME, EXPORT_OLD_CHECKPOINT_NAME};
    bool known = false;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        known = known || strcmp(name, files[i]) == 0;
    return known;
}

/* A link, a device or a folder that cannot be read is nobody's export. */
static bool item_is_ours(const FTSENT *item)
{
    bool folder = item->fts_info == FTS_D || item->fts_info == FTS_DP;
    if (item->fts_level == 0)
        return folder;
    if (!folder && item->fts_info != FTS_F)
        return false;
    if (item->fts_level == 1 && !folder)
        return is_export_file(item->fts_name);
    return tacit_tile_name_is_ours(item->fts_name, (unsigned)item->fts_level);
}

/* Walks `dir`; true when all of it is an export's. With `remove`, that goes as it is met. */
static bool walk_export(const char *dir, bool remove)
{
    char *const roots[] = {(char *)(uintptr_t)dir, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    bool ours = walk != NULL;
    for (FTSENT *item; ours && (item = fts_read(walk));) {
        ours = item_is_ours(item);
        if (ours && remove && item->fts_info == FTS_F)
            unlink(item->fts_accpath);
        if (ours && remove && item->fts_info == FTS_DP)
            rmdir(item->fts_accpath);
    }
    if (walk)
        fts_close(walk);
    return ours;
}

/* What stands at `dir` may be replaced only when it is an export (or an empty folder). */
static tacit_status target_check(const char *dir, bool *exists, tacit_error *err)
{
    struct stat st;
    *exists = lstat(dir, &st) == 0;
    if (!*exists || walk_export(dir, false))
        return TACIT_OK;
    return tacit_fail(err, TACIT_CONFLICT,
                      "%s: exists and is not an export; choose another folder or remove it", dir);
}

/* --- files --- */

/* A new file; that the folder and all in it are durable is seen to once, before it is published. */
static tacit_status file_put(const char *path, const uint8_t *data, size_t size, tacit_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return tacit_fail(err, errno == ENOENT ? TACIT_NOT_FOUND : TACIT_IO,
                          "%s: cannot create: %s", path, strerror(errno));
    bool written = tacit_file_write_at(fd, data, size, 0);
    int code = errno;
    if (close(fd) != 0 && written) {
        written = false;
        code = errno;
    }
    if (written)
        return TACIT_OK;
    return tacit_fail(err, TACIT_IO, "%s: cannot write: %s; free space on that disk", path,
                      strerror(code));
}

/* The same below `dir`, in folders that may be missing. */
static tacit_status tile_put(const char *dir, const char *tile_path, const uint8_t *data,
                             size_t size, tacit_error *err)
{
    char path[EXPORT_PATH_BYTES], folder[EXPORT_PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, dir, tile_path, err);
    if (status == TACIT_OK)
        status = file_put(path, data, size, err);
    if (status != TACIT_NOT_FOUND)
        return status;
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    status = tacit_file_make_dir(folder, 0755, err);
    return status == TACIT_OK ? file_put(path, data, size, err) : status;
}

static tacit_status text_put(const char *dir, const char *name, const char *text, tacit_error *err)
{
    return tile_put(dir, name, (const uint8_t *)text, strlen(text), err);
}

/* --- the writer --- */

struct tacit_export_writer {
    char target[EXPORT_PATH_BYTES], made[EXPORT_PATH_BYTES]; /* made: "" when it is gone */
    bool exists;                                             /* something to replace */
    tacit_tiles tiles;
    tacit_buffer bundle; /* the entries since the last whole bundle, without lengths */
    uint32_t length[TACIT_TILE_WIDTH];
    bool has_long;
};

static tacit_status take_tile(void *ctx, const tacit_tile *tile, tacit_error *err)
{
    const tacit_export_writer *w = ctx;
    char path[TACIT_TILE_PATH_MAX];
    tacit_hash_tile_path(path, tile->level, tile->index, tile->width);
    return tile_put(w->made, path, tile->hash[0], (size_t)tile->width * TACIT_HASH_BYTES, err);
}

static tacit_status append_length(tacit_buffer *b, uint32_t length, bool wide)
{
    const uint8_t bytes[4] = {(uint8_t)(length >> 24), (uint8_t)(length >> 16),
                              (uint8_t)(length >> 8), (uint8_t)length};
    return wide ? tacit_buffer_append(b, bytes, 4) : tacit_buffer_append(b, bytes + 2, 2);
}

/* Writes the bundle of the last `count` entries, of which `index` is the number. */
static tacit_status bundle_put(tacit_export_writer *w, uint64_t index, unsigned count,
                               tacit_error *err)
{
    char path[TACIT_TILE_PATH_MAX];
    tacit_buffer out = {0};
    const uint8_t *from = w->bundle.data;
    tacit_status status = TACIT_OK;
    for (unsigned i = 0; i < count && status == TACIT_OK; i++) {
        status = append_length(&out, w->length[i], w->has_long);
        if (status == TACIT_OK)
            status = tacit_buffer_append(&out, from, w->length[i]);
        from += w->length[i];
    }
    tacit_tile_path(path, w->has_long ? TACIT_ENTRIES32_NAME : TACIT_ENTRIES_NAME, index, count);
    if (status == TACIT_OK)
        status = tile_put(w->made, path, out.data, out.size, err);
    else
        tacit_fail(err, status, "%s: no memory for %s", w->made, path);
    tacit_buffer_free(&out);
    w->bundle.size = 0;
    w->has_long = false;
    return status;
}

tacit_status tacit_export_add(tacit_export_writer *w, const void *entry, size_t size,
                              tacit_error *err)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    const tacit_tile_sink sink = {w, take_tile};
    unsigned at = (unsigned)(w->tiles.size % TACIT_TILE_WIDTH);
    if (size == 0 || size > TACIT_MESSAGE_ENTRY_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "export: an entry of %zu bytes, expected 1 to %zu",
                          size, TACIT_MESSAGE_ENTRY_MAX);
    w->length[at] = (uint32_t)size;
    w->has_long = w->has_long || size > EXPORT_SHORT_MAX;
    tacit_status status = tacit_buffer_append(&w->bundle, entry, size);
    if (status != TACIT_OK)
        return tacit_fail(err, status, "%s: no memory for a bundle", w->made);
    if (at == TACIT_TILE_WIDTH - 1)
        status = bundle_put(w, w->tiles.size / TACIT_TILE_WIDTH, TACIT_TILE_WIDTH, err);
    tacit_merkle_leaf(leaf, entry, size);
    return status == TACIT_OK ? tacit_tiles_add(&w->tiles, leaf, &sink, err) : status;
}

static void strip_slashes(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
}

tacit_status tacit_export_begin(tacit_export_writer **out, const char *dir, tacit_error *err)
{
    *out = NULL;
    tacit_export_writer *w = calloc(1, sizeof *w);
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "export: no memory");
    int n = snprintf(w->target, sizeof w->target, "%s", dir);
    tacit_status status = TACIT_OK;
    if (n <= 0 || (size_t)n + TACIT_TILE_PATH_MAX + 16 >= sizeof w->target)
        status = tacit_fail(err, TACIT_BAD_INPUT, "export: '%s' is not a usable folder name", dir);
    if (status == TACIT_OK) {
        strip_slashes(w->target);
        status = target_check(w->target, &w->exists, err);
    }
    if (status == TACIT_OK) {
        snprintf(w->made, sizeof w->made, "%.4000s.XXXXXX", w->target);
        if (!mkdtemp(w->made)) {
            status = tacit_fail(err, TACIT_IO, "%s: cannot create: %s", w->made, strerror(errno));
            w->made[0] = '\0';
        }
    }
    if (status == TACIT_OK)
        *out = w;
    else
        tacit_export_close(w);
    return status;
}

static tacit_status keys_put(const tacit_export_writer *w, const tacit_note_key *log_key,
                             const tacit_note_key *operator_key, tacit_error *err)
{
    char log[TACIT_VKEY_MAX], operator_text[TACIT_VKEY_MAX], text[EXPORT_KEYS_MAX];
    tacit_note_key_write(log_key, log);
    int n = snprintf(text, sizeof text, "log %s\n", log);
    if (operator_key) {
        tacit_note_key_write(operator_key, operator_text);
        snprintf(text + n, sizeof text - (size_t)n, "operator %s\n", operator_text);
    }
    return text_put(w->made, EXPORT_KEYS_NAME, text, err);
}

/* A long log is many small files: one flush of their file system instead of one each. */
static tacit_status make_durable(const char *dir, tacit_error *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && syncfs(fd) == 0;
    int code = errno;
    if (fd >= 0)
        close(fd);
    if (!synced)
        return tacit_fail(err, TACIT_IO, "%s: cannot write: %s; free space on that disk", dir,
                          strerror(code));
    if (chmod(dir, 0755) != 0)
        return tacit_fail(err, TACIT_IO, "%s: cannot open to readers: %s", dir, strerror(errno));
    return TACIT_OK;
}

static tacit_status target_replace(tacit_export_writer *w, tacit_error *err)
{
    char old[EXPORT_PATH_BYTES];
    int n = snprintf(old, sizeof old, "%s.old", w->made);
    if (n < 0 || (size_t)n >= sizeof old)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: path is too long", w->target);
    if (w->exists && rename(w->target, old) != 0)
        return tacit_fail(err, TACIT_IO, "%s: cannot replace: %s", w->target, strerror(errno));
    if (rename(w->made, w->target) != 0) {
        tacit_status status =
            tacit_fail(err, TACIT_IO, "%s: cannot publish: %s", w->target, strerror(errno));
        if (w->exists && rename(old, w->target) != 0)
            tacit_log_warn("the previous export stays at %s", old);
        return status;
    }
    w->made[0] = '\0';
    if (w->exists)
        walk_export(old, true);
    return TACIT_OK;
}

tacit_status tacit_export_publish(tacit_export_writer *w, const char *checkpoint,
                                  const tacit_note_key *log_key, const tacit_note_key *operator_key,
                                  tacit_error *err)
{
    const tacit_tile_sink sink = {w, take_tile};
    unsigned rest = (unsigned)(w->tiles.size % TACIT_TILE_WIDTH);
    tacit_status status = TACIT_OK;
    if (rest)
        status = bundle_put(w, w->tiles.size / TACIT_TILE_WIDTH, rest, err);
    if (status == TACIT_OK)
        status = tacit_tiles_end(&w->tiles, &sink, err);
    if (status == TACIT_OK)
        status = text_put(w->made, EXPORT_CHECKPOINT_NAME, checkpoint, err);
    if (status == TACIT_OK)
        status = keys_put(w, log_key, operator_key, err);
    if (status == TACIT_OK)
        status = make_durable(w->made, err);
    return status == TACIT_OK ? target_replace(w, err) : status;
}

void tacit_export_close(tacit_export_writer *w)
{
    if (!w)
        return;
    if (w->made[0])
        walk_export(w->made, true);
    tacit_buffer_free(&w->bundle);
    free(w);
}

tacit_status tacit_export_write(tacit_ledger *ledger, const tacit_note_key *operator_key,
                                const char *dir, tacit_error *err)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t count = 0;
    tacit_export_writer *w;
    tacit_status status = tacit_export_begin(&w, dir, err);
    if (status == TACIT_OK)
        status = tacit_ledger_last_checkpoint(ledger, note, &count, err);
    for (uint64_t i = 0; i < count && status == TACIT_OK; i++) {
        uint8_t *bytes;
        size_t size;
        status = tacit_ledger_entry(ledger, i, &bytes, &size, err);
        if (status != TACIT_OK)
            break;
        status = tacit_export_add(w, bytes, size, err);
        free(bytes);
    }
    if (status == TACIT_OK)
        status = tacit_export_publish(w, note, tacit_ledger_key(ledger), operator_key, err);
    tacit_export_close(w);
    return status;
}
