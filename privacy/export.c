#include "privacy/export.h"

#include "common/file.h"
#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_NAME "log.bin"
#define CHECKPOINT_NAME "checkpoint.txt"
#define KEYS_NAME "keys.txt"
#define KEYS_MAX 4096
#define LENGTH_BYTES 4
#define OLD_ENDING ".tacit-old"
#define PATH_BYTES 4096

static const char *const export_files[] = {LOG_NAME, CHECKPOINT_NAME, KEYS_NAME};

/* --- writing --- */

/* The log streams to its file: a long log is never held in memory. */
static tacit_status log_stream(tacit_ledger *ledger, uint64_t count, FILE *file, const char *path,
                               tacit_error *err)
{
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *bytes, length[LENGTH_BYTES];
        size_t size;
        tacit_status status = tacit_ledger_entry(ledger, i, &bytes, &size, err);
        if (status != TACIT_OK)
            return status;
        tacit_store_u32(length, (uint32_t)size);
        bool written = fwrite(length, 1, sizeof length, file) == sizeof length &&
                       fwrite(bytes, 1, size, file) == size;
        free(bytes);
        if (!written)
            return tacit_file_fail(err, path, "write");
    }
    return TACIT_OK;
}

static tacit_status log_write(tacit_ledger *ledger, uint64_t count, const char *dir,
                              tacit_error *err)
{
    char path[PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, dir, LOG_NAME, err);
    if (status != TACIT_OK)
        return status;
    FILE *file = fopen(path, "wbe");
    if (!file)
        return tacit_file_fail(err, path, "create");
    status = log_stream(ledger, count, file, path, err);
    if (status == TACIT_OK && (fflush(file) != 0 || fsync(fileno(file)) != 0))
        status = tacit_file_fail(err, path, "write");
    if (fclose(file) != 0 && status == TACIT_OK)
        status = tacit_file_fail(err, path, "write");
    return status;
}

static tacit_status text_write(const char *dir, const char *name, const char *text,
                               tacit_error *err)
{
    char path[PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, dir, name, err);
    return status == TACIT_OK ? tacit_file_write(path, text, strlen(text), 0644, err) : status;
}

static tacit_status keys_write(tacit_ledger *ledger, const tacit_note_key *operator_key,
                               const char *dir, tacit_error *err)
{
    char log[TACIT_VKEY_MAX], operator_text[TACIT_VKEY_MAX], text[KEYS_MAX];
    tacit_note_key_write(tacit_ledger_key(ledger), log);
    int n = snprintf(text, sizeof text, "log %s\n", log);
    if (operator_key) {
        tacit_note_key_write(operator_key, operator_text);
        snprintf(text + n, sizeof text - (size_t)n, "operator %s\n", operator_text);
    }
    return text_write(dir, KEYS_NAME, text, err);
}

/* What an export may hold, and what a killed one left. */
static void export_empty(const char *dir)
{
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof export_files / sizeof export_files[0]; i++) {
        if (tacit_file_join(path, sizeof path, dir, export_files[i], NULL) != TACIT_OK)
            continue;
        unlink(path);
        strncat(path, TACIT_FILE_UNFINISHED, sizeof path - strlen(path) - 1);
        unlink(path);
    }
}

/* Removes a folder that holds an export and nothing else. */
static void export_remove(const char *dir)
{
    export_empty(dir);
    rmdir(dir);
}

static bool is_export_file(const char *name)
{
    bool known = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    for (size_t i = 0; i < sizeof export_files / sizeof export_files[0]; i++)
        known = known || strcmp(name, export_files[i]) == 0;
    return known;
}

/* What stands at `dir` may be replaced only when it is an export (or an empty folder). */
static tacit_status target_check(const char *dir, bool *exists, tacit_error *err)
{
    struct stat st;
    *exists = lstat(dir, &st) == 0;
    if (!*exists)
        return TACIT_OK;
    DIR *folder = S_ISDIR(st.st_mode) ? opendir(dir) : NULL;
    bool ours = folder != NULL;
    for (struct dirent *item; ours && (item = readdir(folder));)
        ours = is_export_file(item->d_name);
    if (folder)
        closedir(folder);
    if (ours)
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
        export_empty(made);
    if (status == TACIT_OK)
        status = target_check(made, &exists, err);
    if (status != TACIT_OK)
        close(*lock);
    return status;
}

/* An export that stands there changes places with the new one in one step, where the file system
 * can do that. */
static tacit_status target_replace(const char *made, const char *dir, bool exists, tacit_error *err)
{
    char old[PATH_BYTES];
    if (exists && renameat2(AT_FDCWD, made, AT_FDCWD, dir, RENAME_EXCHANGE) == 0) {
        export_remove(made);
        return tacit_file_sync_parent(dir, err);
    }
    if (exists && errno != EINVAL && errno != ENOSYS)
        return tacit_file_fail(err, dir, "replace");
    snprintf(old, sizeof old, "%.4000s" OLD_ENDING, dir);
    export_remove(old);
    if (exists && rename(dir, old) != 0)
        return tacit_file_fail(err, dir, "replace");
    if (rename(made, dir) != 0) {
        tacit_status status = tacit_file_fail(err, dir, "publish");
        if (exists && rename(old, dir) != 0)
            tacit_log_warn("the previous export stays at %s", old);
        return status;
    }
    if (exists)
        export_remove(old);
    return tacit_file_sync_parent(dir, err);
}

static void strip_slashes(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
}

static tacit_status files_write(tacit_ledger *ledger, const tacit_note_key *operator_key,
                                const char *made, tacit_error *err)
{
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t count;
    tacit_status status;
    TACIT_TRY(tacit_ledger_last_checkpoint(ledger, note, &count, err), done);
    TACIT_TRY(log_write(ledger, count, made, err), done);
    TACIT_TRY(text_write(made, CHECKPOINT_NAME, note, err), done);
    TACIT_TRY(keys_write(ledger, operator_key, made, err), done);
    TACIT_TRY(tacit_file_sync_dir(made, err), done);
    if (chmod(made, 0755) != 0)
        status = tacit_file_fail(err, made, "open to readers");
done:
    return status;
}

tacit_status tacit_export_write(tacit_ledger *ledger, const tacit_note_key *operator_key,
                                const char *dir, tacit_error *err)
{
    char target[PATH_BYTES], made[PATH_BYTES];
    bool exists;
    int lock = -1, n = snprintf(target, sizeof target, "%s", dir);
    if (n <= 0 || (size_t)n + 16 >= sizeof made)
        return tacit_fail(err, TACIT_BAD_INPUT, "export: '%s' is not a usable folder name", dir);
    strip_slashes(target);
    snprintf(made, sizeof made, "%.4000s" TACIT_FILE_UNFINISHED, target);
    tacit_status status = target_check(target, &exists, err);
    if (status == TACIT_OK)
        status = made_open(made, &lock, err);
    if (status != TACIT_OK)
        return status;
    status = files_write(ledger, operator_key, made, err);
    if (status == TACIT_OK)
        status = target_replace(made, target, exists, err);
    if (status != TACIT_OK)
        export_remove(made);
    close(lock);
    return status;
}

/* --- reading --- */

tacit_status tacit_export_split(const uint8_t *log, size_t size, tacit_span **entries,
                                size_t *count, tacit_error *err)
{
    tacit_cursor c = tacit_cursor_over(log, size);
    size_t n = 0;
    *entries = NULL;
    *count = 0;
    while (tacit_cursor_left(&c)) {
        size_t at = c.at;
        uint32_t length = tacit_cursor_u32(&c);
        tacit_cursor_take(&c, length);
        if (c.failed || length == 0 || length > TACIT_MESSAGE_ENTRY_MAX ||
            n == TACIT_EXPORT_ENTRIES_MAX)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              LOG_NAME ": entry %zu at byte %zu: expected 1 to %zu bytes, found %u "
                                       "with %zu left",
                              n, at, TACIT_MESSAGE_ENTRY_MAX, length,
                              size - at < LENGTH_BYTES ? 0 : size - at - LENGTH_BYTES);
        n++;
    }
    tacit_span *views = calloc(n ? n : 1, sizeof *views);
    if (!views)
        return tacit_fail(err, TACIT_NO_MEMORY, LOG_NAME ": no memory for %zu entries", n);
    c = tacit_cursor_over(log, size);
    for (size_t i = 0; i < n; i++)
        views[i] = tacit_cursor_take(&c, tacit_cursor_u32(&c));
    *entries = views;
    *count = n;
    return TACIT_OK;
}

static tacit_status key_line(tacit_export *out, const char *line, const char *path,
                             tacit_error *err)
{
    static const char log_word[] = "log ", operator_word[] = "operator ";
    tacit_note_key *to = NULL;
    size_t skip = 0;
    if (strncmp(line, log_word, sizeof log_word - 1) == 0 && !out->log_key.name[0]) {
        to = &out->log_key;
        skip = sizeof log_word - 1;
    } else if (strncmp(line, operator_word, sizeof operator_word - 1) == 0 &&
               !out->has_operator_key) {
        to = &out->operator_key;
        out->has_operator_key = true;
        skip = sizeof operator_word - 1;
    }
    if (!to)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: expected one line \"log VKEY\" and at most one \"operator VKEY\", "
                          "found '%.80s'",
                          path, line);
    tacit_status status = tacit_note_key_parse(to, line + skip, err);
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "%s", path);
}

static tacit_status keys_parse(tacit_export *out, char *text, size_t size, const char *path,
                               tacit_error *err)
{
    if (memchr(text, '\0', size))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: holds a NUL byte", path);
    tacit_status status = TACIT_OK;
    for (char *line = text; *line && status == TACIT_OK;) {
        char *end = strchrnul(line, '\n'), *next = *end ? end + 1 : end;
        *end = '\0';
        if (*line && *line != '#')
            status = key_line(out, line, path, err);
        line = next;
    }
    if (status == TACIT_OK && !out->log_key.name[0])
        status = tacit_fail(err, TACIT_BAD_INPUT, "%s: the line \"log VKEY\" is missing", path);
    return status;
}

static tacit_status keys_read(tacit_export *out, const char *dir, tacit_error *err)
{
    char path[PATH_BYTES];
    uint8_t *text;
    size_t size;
    tacit_status status = tacit_file_join(path, sizeof path, dir, KEYS_NAME, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, KEYS_MAX, &text, &size, err);
    if (status != TACIT_OK)
        return status;
    status = keys_parse(out, (char *)text, size, path, err);
    free(text);
    return status;
}

tacit_status tacit_export_read(tacit_export *out, const char *dir, tacit_error *err)
{
    char path[PATH_BYTES];
    *out = (tacit_export){0};
    tacit_status status;
    TACIT_TRY(keys_read(out, dir, err), fail);
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, CHECKPOINT_NAME, err), fail);
    TACIT_TRY(tacit_file_read(path, TACIT_NOTE_MAX, (uint8_t **)&out->checkpoint,
                              &out->checkpoint_size, err),
              fail);
    TACIT_TRY(tacit_file_join(path, sizeof path, dir, LOG_NAME, err), fail);
    TACIT_TRY(tacit_file_read(path, TACIT_EXPORT_LOG_MAX, &out->log, &out->log_size, err), fail);
    TACIT_TRY(tacit_export_split(out->log, out->log_size, &out->entries, &out->count, err), fail);
    return TACIT_OK;
fail:
    tacit_export_free(out);
    return status;
}

void tacit_export_free(tacit_export *e)
{
    free(e->log);
    free(e->entries);
    free(e->checkpoint);
    *e = (tacit_export){0};
}
