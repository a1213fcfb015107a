#include "common/file.h"
#include "common/log.h"
#include "privacy/export_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define OLD_ENDING ".tacit-old"

/* --- what stands in an export --- */

static bool is_export_file(const char *name)
{
    static const char *const files[] = {EXPORT_CHECKPOINT_NAME, EXPORT_COSIGNED_NAME,
                                        EXPORT_KEYS_NAME, EXPORT_OLD_LOG_NAME,
                                        EXPORT_OLD_CHECKPOINT_NAME};
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

typedef enum walk_end { LOOK, EMPTY, REMOVE } walk_end;

/* Takes one item away. EMPTY leaves the folder itself. */
static bool take_away(const FTSENT *item, walk_end to)
{
    if (item->fts_info == FTS_F)
        return unlink(item->fts_accpath) == 0;
    if (item->fts_info == FTS_DP && (to == REMOVE || item->fts_level > 0))
        return rmdir(item->fts_accpath) == 0;
    return true;
}

/* Walks `dir`; true when all of it is an export's. Unless it only looks, that goes as it is met;
 * false, with errno, where that fails. */
static bool walk_export(const char *dir, walk_end to)
{
    char *const roots[] = {(char *)(uintptr_t)dir, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    bool ours = walk != NULL;
    for (FTSENT *item; ours && (item = fts_read(walk));)
        ours = item_is_ours(item) && (to == LOOK || take_away(item, to));
    int code = errno;
    if (walk)
        fts_close(walk);
    errno = code;
    return ours;
}

/* What stands at `dir` may be replaced only when it is an export (or an empty folder). */
static tacit_status target_check(const char *dir, bool *exists, tacit_error *err)
{
    struct stat st;
    *exists = lstat(dir, &st) == 0;
    if (!*exists || walk_export(dir, LOOK))
        return TACIT_OK;
    return tacit_fail(err, TACIT_CONFLICT,
                      "%s: exists and is not an export; choose another folder or remove it", dir);
}

/* The folder in which an export is made, beside its target: empty, and locked as long as *lock is
 * open. One that was interrupted is taken over. */
static tacit_status made_open(const char *made, int *lock, tacit_error *err)
{
    struct stat st, named;
    bool exists, same;
    do {
        if (mkdir(made, 0700) != 0 && errno != EEXIST)
            return tacit_file_fail(err, made, "create");
        *lock = open(made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (*lock < 0)
            return tacit_file_fail(err, made, "open");
        while (flock(*lock, LOCK_EX) != 0 && errno == EINTR)
            continue;
        same = fstat(*lock, &st) == 0 && lstat(made, &named) == 0 && st.st_dev == named.st_dev &&
               st.st_ino == named.st_ino;
        if (!same) /* published meanwhile by the one that had it */
            close(*lock);
    } while (!same);
    tacit_status status = TACIT_OK;
    if (st.st_uid != geteuid())
        status = tacit_fail(err, TACIT_CONFLICT, "%s: belongs to somebody else; remove it", made);
    else
        status = target_check(made, &exists, err);
    if (status == TACIT_OK && !walk_export(made, EMPTY))
        status = tacit_file_fail(err, made, "empty");
    if (status == TACIT_OK)
        return TACIT_OK;
    close(*lock);
    *lock = -1;
    return status;
}

/* --- files --- */

/* A new file; that the folder and all in it are durable is seen to once, before it is published. */
static tacit_status file_put(const char *path, const uint8_t *data, size_t size, tacit_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT)
        return tacit_fail(err, TACIT_NOT_FOUND, "%s: its folder is missing", path);
    if (fd < 0)
        return tacit_file_fail(err, path, "create");
    bool written = tacit_file_write_at(fd, data, size, 0);
    int code = errno;
    if (close(fd) != 0 && written) {
        written = false;
        code = errno;
    }
    errno = code;
    return written ? TACIT_OK : tacit_file_fail(err, path, "write");
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
    char target[EXPORT_PATH_BYTES], made[EXPORT_PATH_BYTES];
    int lock;    /* of `made`; -1: not open */
    bool exists; /* something to replace */
    bool published;
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
    w->lock = -1;
    int n = snprintf(w->target, sizeof w->target, "%s", dir);
    tacit_status status = TACIT_OK;
    if (n <= 0 || (size_t)n + TACIT_TILE_PATH_MAX + 16 >= sizeof w->target)
        status = tacit_fail(err, TACIT_BAD_INPUT, "export: '%s' is not a usable folder name", dir);
    if (status == TACIT_OK) {
        strip_slashes(w->target);
        status = target_check(w->target, &w->exists, err);
    }
    if (status == TACIT_OK) {
        snprintf(w->made, sizeof w->made, "%.4000s" TACIT_FILE_UNFINISHED, w->target);
        status = made_open(w->made, &w->lock, err);
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
    errno = code;
    if (!synced)
        return tacit_file_fail(err, dir, "write");
    return chmod(dir, 0755) == 0 ? TACIT_OK : tacit_file_fail(err, dir, "open to readers");
}

/* In two steps, where the file system cannot exchange names: between them there is no export. */
static tacit_status replace_by_renaming(tacit_export_writer *w, tacit_error *err)
{
    char old[EXPORT_PATH_BYTES];
    snprintf(old, sizeof old, "%.4000s" OLD_ENDING, w->target);
    walk_export(old, REMOVE);
    if (w->exists && rename(w->target, old) != 0)
        return tacit_file_fail(err, w->target, "replace");
    if (rename(w->made, w->target) != 0) {
        tacit_status status = tacit_file_fail(err, w->target, "publish");
        if (w->exists && rename(old, w->target) != 0)
            tacit_log_warn("the previous export stays at %s", old);
        return status;
    }
    w->published = true;
    if (w->exists)
        walk_export(old, REMOVE);
    return tacit_file_sync_parent(w->target, err);
}

/* An export that stands there changes places with the new one in one step. */
static tacit_status target_replace(tacit_export_writer *w, tacit_error *err)
{
    if (w->exists && renameat2(AT_FDCWD, w->made, AT_FDCWD, w->target, RENAME_EXCHANGE) == 0) {
        w->published = true;
        walk_export(w->made, REMOVE);
        return tacit_file_sync_parent(w->target, err);
    }
    if (w->exists && errno != EINVAL && errno != ENOSYS)
        return tacit_file_fail(err, w->target, "replace");
    return replace_by_renaming(w, err);
}

tacit_status tacit_export_add_cosigned(tacit_export_writer *w, const char *note, tacit_error *err)
{
    return text_put(w->made, EXPORT_COSIGNED_NAME, note, err);
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
    if (w->lock >= 0 && !w->published)
        walk_export(w->made, REMOVE);
    if (w->lock >= 0)
        close(w->lock);
    tacit_buffer_free(&w->bundle);
    free(w);
}

/* One that was cosigned after this export's checkpoint was looked up waits for the next export. */
static tacit_status add_cosigned(tacit_export_writer *w, tacit_ledger *ledger, uint64_t count,
                                 tacit_error *err)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t size;
    tacit_status status = tacit_ledger_cosigned(ledger, note, &size, err);
    if (status == TACIT_NOT_FOUND || (status == TACIT_OK && size > count))
        return TACIT_OK;
    return status == TACIT_OK ? tacit_export_add_cosigned(w, note, err) : status;
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
        status = add_cosigned(w, ledger, count, err);
    if (status == TACIT_OK)
        status = tacit_export_publish(w, note, tacit_ledger_key(ledger), operator_key, err);
    tacit_export_close(w);
    return status;
}
