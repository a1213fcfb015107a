#include "common/file.h"
#include "privacy/export_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH_BYTES 4 /* of log.bin */

/* --- exports of before: log.bin --- */

tacit_status tacit_export_split(const uint8_t *log, size_t size, tacit_span **entries,
                                uint64_t *count, tacit_error *err)
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
                              EXPORT_OLD_LOG_NAME
                              ": entry %zu at byte %zu: expected 1 to %zu bytes, found %u "
                              "with %zu left",
                              n, at, TACIT_MESSAGE_ENTRY_MAX, length,
                              size - at < LENGTH_BYTES ? 0 : size - at - LENGTH_BYTES);
        n++;
    }
    tacit_span *views = calloc(n ? n : 1, sizeof *views);
    if (!views)
        return tacit_fail(err, TACIT_NO_MEMORY, EXPORT_OLD_LOG_NAME ": no memory for %zu entries",
                          n);
    c = tacit_cursor_over(log, size);
    for (size_t i = 0; i < n; i++)
        views[i] = tacit_cursor_take(&c, tacit_cursor_u32(&c));
    *entries = views;
    *count = n;
    return TACIT_OK;
}

/* --- keys.txt --- */

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
    char path[EXPORT_PATH_BYTES];
    uint8_t *text;
    size_t size;
    tacit_status status = tacit_file_join(path, sizeof path, dir, EXPORT_KEYS_NAME, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, EXPORT_KEYS_MAX, &text, &size, err);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(err, status,
                          "%s: cannot open: no such file, so %s is no export; 'tacit-server ledger "
                          "export' writes one",
                          path, dir);
    if (status != TACIT_OK)
        return status;
    status = keys_parse(out, (char *)text, size, path, err);
    free(text);
    return status;
}

/* --- an export --- */

static tacit_status checkpoint_read(tacit_export *out, const char *dir, const char *name,
                                    tacit_error *err)
{
    char path[EXPORT_PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, dir, name, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, TACIT_NOTE_MAX, (uint8_t **)&out->checkpoint,
                                 &out->checkpoint_size, err);
    return status;
}

static tacit_status cosigned_read(tacit_export *out, const char *dir, tacit_error *err)
{
    char path[EXPORT_PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, dir, EXPORT_COSIGNED_NAME, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, TACIT_NOTE_MAX, (uint8_t **)&out->cosigned,
                                 &out->cosigned_size, err);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

/* How many bundles there are, and how long the last one is, stands in the checkpoint alone. */
static tacit_status tiles_open(tacit_export *out, const char *dir, tacit_error *err)
{
    tacit_checkpoint stated;
    tacit_status status =
        tacit_checkpoint_parse(&stated, out->checkpoint, out->checkpoint_size, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "%s/" EXPORT_CHECKPOINT_NAME, dir);
    out->count = stated.size;
    out->dir = strdup(dir);
    return out->dir ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", dir);
}

static tacit_status old_log_read(tacit_export *out, const char *dir, tacit_error *err)
{
    char path[EXPORT_PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, dir, EXPORT_OLD_LOG_NAME, err);
    if (status == TACIT_OK)
        status = tacit_file_read(path, TACIT_EXPORT_LOG_MAX, &out->log, &out->log_size, err);
    if (status == TACIT_OK)
        status = tacit_export_split(out->log, out->log_size, &out->entries, &out->count, err);
    return status;
}

static bool is_old(const char *dir)
{
    char path[EXPORT_PATH_BYTES];
    return tacit_file_join(path, sizeof path, dir, EXPORT_OLD_CHECKPOINT_NAME, NULL) == TACIT_OK &&
           access(path, F_OK) == 0;
}

tacit_status tacit_export_read(tacit_export *out, const char *dir, tacit_error *err)
{
    *out = (tacit_export){0};
    tacit_status status = keys_read(out, dir, err);
    if (status == TACIT_OK)
        status = checkpoint_read(out, dir, EXPORT_CHECKPOINT_NAME, err);
    if (status == TACIT_OK) {
        status = tiles_open(out, dir, err);
        if (status == TACIT_OK)
            status = cosigned_read(out, dir, err);
    } else if (status == TACIT_NOT_FOUND && out->log_key.name[0] && is_old(dir)) {
        status = checkpoint_read(out, dir, EXPORT_OLD_CHECKPOINT_NAME, err);
        if (status == TACIT_OK)
            status = old_log_read(out, dir, err);
    }
    if (status != TACIT_OK)
        tacit_export_free(out);
    return status;
}

void tacit_export_free(tacit_export *e)
{
    free(e->dir);
    free(e->log);
    free(e->entries);
    free(e->checkpoint);
    free(e->cosigned);
    *e = (tacit_export){0};
}

/* --- its entries, a bundle at a time --- */

tacit_export_cursor tacit_export_cursor_over(const tacit_export *log)
{
    return (tacit_export_cursor){.log = log};
}

void tacit_export_cursor_free(tacit_export_cursor *c)
{
    free(c->bytes);
    *c = (tacit_export_cursor){0};
}

/* Reads a file of the export; TACIT_NOT_FOUND when it is not there. */
static tacit_status tile_read(const tacit_export *log, const char *tile_path, size_t cap,
                              uint8_t **data, size_t *size, tacit_error *err)
{
    char path[EXPORT_PATH_BYTES];
    tacit_status status = tacit_file_join(path, sizeof path, log->dir, tile_path, err);
    return status == TACIT_OK ? tacit_file_read(path, cap, data, size, err) : status;
}

static uint32_t take_length(tacit_cursor *c, bool wide)
{
    tacit_span bytes = tacit_cursor_take(c, wide ? 4 : 2);
    uint32_t length = 0;
    for (size_t i = 0; i < bytes.size; i++)
        length = length << 8 | bytes.data[i];
    return length;
}

/* The first `wanted` entries of a bundle that has `stored`. */
static tacit_status bundle_split(tacit_export_cursor *c, const char *path, size_t size,
                                 unsigned stored, bool wide, tacit_error *err)
{
    tacit_cursor at = tacit_cursor_over(c->bytes, size);
    for (unsigned i = 0; i < stored; i++) {
        size_t from = at.at;
        uint32_t length = take_length(&at, wide);
        c->entry[i] = tacit_cursor_take(&at, length);
        if (at.failed || length == 0 || length > TACIT_MESSAGE_ENTRY_MAX)
            return tacit_fail(
                err, TACIT_BAD_INPUT,
                "%s: entry %u at byte %zu states %u bytes: expected 1 to %zu that end "
                "within the file's %zu",
                path, i, from, length, TACIT_MESSAGE_ENTRY_MAX, size);
    }
    if (tacit_cursor_left(&at))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected %u entries, found %zu bytes more",
                          path, stored, tacit_cursor_left(&at));
    return TACIT_OK;
}

/* A bundle of the format, or one with long entries. */
static tacit_status bundle_load(tacit_export_cursor *c, uint64_t index, unsigned width,
                                tacit_error *err)
{
    static const struct {
        const char *kind;
        size_t cap;
        bool wide;
    } kinds[] = {{TACIT_ENTRIES_NAME, EXPORT_BUNDLE_MAX, false},
                 {TACIT_ENTRIES32_NAME, EXPORT_BUNDLE32_MAX, true}};
    tacit_status status = TACIT_NOT_FOUND;
    for (size_t i = 0; i < 2 && status == TACIT_NOT_FOUND; i++) {
        char path[TACIT_TILE_PATH_MAX];
        size_t size;
        tacit_tile_path(path, kinds[i].kind, index, width);
        status = tile_read(c->log, path, kinds[i].cap, &c->bytes, &size, err);
        if (status == TACIT_OK)
            status = bundle_split(c, path, size, width, kinds[i].wide, err);
    }
    return status;
}

/* A reader may find the whole bundle where a checkpoint of before asks for a part of it. */
static tacit_status bundle_next(tacit_export_cursor *c, unsigned width, tacit_error *err)
{
    uint64_t index = c->at / TACIT_TILE_WIDTH;
    free(c->bytes);
    c->bytes = NULL;
    tacit_status status = bundle_load(c, index, width, err);
    if (status == TACIT_NOT_FOUND && width < TACIT_TILE_WIDTH)
        status = bundle_load(c, index, TACIT_TILE_WIDTH, err);
    if (status == TACIT_OK)
        c->count = width;
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

tacit_status tacit_export_next(tacit_export_cursor *c, tacit_error *err)
{
    c->at += c->count;
    c->count = 0;
    uint64_t left = c->at < c->log->count ? c->log->count - c->at : 0;
    unsigned width = left < TACIT_TILE_WIDTH ? (unsigned)left : TACIT_TILE_WIDTH;
    if (width == 0)
        return TACIT_OK;
    if (c->log->dir)
        return c->at % TACIT_TILE_WIDTH ? TACIT_OK : bundle_next(c, width, err);
    memcpy(c->entry, c->log->entries + c->at, width * sizeof c->entry[0]);
    c->count = width;
    return TACIT_OK;
}

bool tacit_export_has_tile(const tacit_export *log, const tacit_tile *tile, tacit_error *err)
{
    char path[TACIT_TILE_PATH_MAX];
    uint8_t *data;
    size_t size, expected = (size_t)tile->width * TACIT_HASH_BYTES;
    if (!log->dir)
        return true;
    tacit_hash_tile_path(path, tile->level, tile->index, tile->width);
    if (tile_read(log, path, expected, &data, &size, err) != TACIT_OK)
        return false;
    bool same = size == expected && memcmp(data, tile->hash, size) == 0;
    free(data);
    if (!same)
        tacit_fail(err, TACIT_INTEGRITY, "%s: its hashes are not those of the entries", path);
    return same;
}
