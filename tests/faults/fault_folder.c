#include "fault_folder.h"

#include "common/bytes.h"
#include "common/digest.h"
#include "common/file.h"
#include "common/text.h"

#include <dirent.h>
#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, FILE_BYTES = 1 << 26 };

typedef struct lines {
    char **line;
    size_t count, room;
} lines;

static void add(lines *l, char *line)
{
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->line = realloc(l->line, l->room * sizeof *l->line);
    }
    if (!line || !l->line)
        abort();
    l->line[l->count++] = line;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* --- databases --- */

static tacit_status add_table(lines *l, sqlite3 *db, const char *name, const char *table,
                              tacit_error *err)
{
    sqlite3_stmt *rows;
    char *sql = sqlite3_mprintf("SELECT * FROM \"%w\"", table);
    int code = sqlite3_prepare_v2(db, sql, -1, &rows, NULL);
    sqlite3_free(sql);
    while (code == SQLITE_OK && (code = sqlite3_step(rows)) == SQLITE_ROW) {
        char *line = sqlite3_mprintf("%s %s:", name, table), *kept;
        for (int i = 0; i < sqlite3_column_count(rows); i++) {
            sqlite3_value *v = sqlite3_column_value(rows, i);
            char hex[2 * 4096 + 1] = "";
            if (sqlite3_value_type(v) == SQLITE_BLOB && sqlite3_value_bytes(v) <= 4096)
                tacit_hex(hex, sqlite3_value_blob(v), (size_t)sqlite3_value_bytes(v));
            char *longer = sqlite3_mprintf(
                "%z %s", line,
                sqlite3_value_type(v) == SQLITE_BLOB ? hex : (const char *)sqlite3_value_text(v));
            line = longer;
        }
        kept = strdup(line);
        sqlite3_free(line);
        add(l, kept);
        code = SQLITE_OK;
    }
    sqlite3_finalize(rows);
    return code == SQLITE_DONE ? TACIT_OK
                               : tacit_fail(err, TACIT_FAILED, "%s: %s", name, sqlite3_errmsg(db));
}

static tacit_status add_tables(lines *l, sqlite3 *db, const char *name, tacit_error *err)
{
    sqlite3_stmt *tables;
    tacit_status status = TACIT_OK;
    if (sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type = 'table'", -1, &tables,
                           NULL) != SQLITE_OK)
        return tacit_fail(err, TACIT_FAILED, "%s: %s", name, sqlite3_errmsg(db));
    while (status == TACIT_OK && sqlite3_step(tables) == SQLITE_ROW)
        status = add_table(l, db, name, (const char *)sqlite3_column_text(tables, 0), err);
    sqlite3_finalize(tables);
    return status;
}

static tacit_status add_database(lines *l, const char *path, const char *name, tacit_error *err)
{
    sqlite3 *db;
    tacit_status status = TACIT_OK;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        status = tacit_fail(err, TACIT_FAILED, "%s: %s", name, sqlite3_errmsg(db));
    if (status == TACIT_OK)
        status = add_tables(l, db, name, err);
    sqlite3_close(db);
    return status;
}

/* --- files --- */

static tacit_status add_file(lines *l, const char *path, const char *name, unsigned mode,
                             tacit_error *err)
{
    uint8_t *bytes, digest[TACIT_DIGEST_BYTES];
    char hex[2 * TACIT_DIGEST_BYTES + 1], *line;
    size_t size;
    tacit_status status = tacit_file_read(path, FILE_BYTES, &bytes, &size, err);
    if (status != TACIT_OK)
        return status;
    tacit_digest(digest, bytes, size);
    tacit_hex(hex, digest, sizeof digest);
    free(bytes);
    if (asprintf(&line, "%s %o %s", name, mode, hex) < 0)
        abort();
    add(l, line);
    return TACIT_OK;
}

static tacit_status add_folder(lines *l, const char *path, const char *name, tacit_error *err);

static tacit_status add_name(lines *l, const char *path, const char *name, tacit_error *err)
{
    struct stat st;
    size_t n = strlen(name);
    char *line;
    if (lstat(path, &st) != 0)
        return TACIT_OK; /* the -wal of a database that was read meanwhile */
    if (S_ISDIR(st.st_mode))
        return add_folder(l, path, name, err);
    if (n > 4 && (strcmp(name + n - 4, "-wal") == 0 || strcmp(name + n - 4, "-shm") == 0))
        return TACIT_OK;
    if (n > 3 && strcmp(name + n - 3, ".db") == 0)
        return add_database(l, path, name, err);
    if (S_ISREG(st.st_mode))
        return add_file(l, path, name, st.st_mode & 07777, err);
    if (asprintf(&line, "%s", name) < 0)
        abort();
    add(l, line);
    return TACIT_OK;
}

static tacit_status add_folder(lines *l, const char *path, const char *name, tacit_error *err)
{
    char below[PATH_BYTES], full[PATH_BYTES];
    tacit_status status = TACIT_OK;
    DIR *listing = opendir(path);
    if (!listing)
        return tacit_fail(err, TACIT_FAILED, "%s: cannot be listed", path);
    for (struct dirent *e; status == TACIT_OK && (e = readdir(listing));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        snprintf(below, sizeof below, "%s%s%s", name, *name ? "/" : "", e->d_name);
        status = add_name(l, full, below, err);
    }
    closedir(listing);
    return status;
}

tacit_status fault_folder_text(char **text, const char *dir, tacit_error *err)
{
    lines l = {0};
    tacit_buffer b = {0};
    tacit_status status = add_folder(&l, dir, "", err);
    if (l.count)
        qsort(l.line, l.count, sizeof *l.line, by_text);
    for (size_t i = 0; i < l.count; i++) {
        if (tacit_buffer_append(&b, l.line[i], strlen(l.line[i])) != TACIT_OK ||
            tacit_buffer_append(&b, "\n", 1) != TACIT_OK)
            abort();
        free(l.line[i]);
    }
    free(l.line);
    if (tacit_buffer_append(&b, "", 1) != TACIT_OK)
        abort();
    *text = (char *)b.data;
    if (status != TACIT_OK) {
        free(b.data);
        *text = NULL;
    }
    return status;
}

tacit_status fault_folder_differ(const char *expected, const char *found, tacit_error *err)
{
    size_t line = 0;
    for (size_t i = 0; expected[i] && expected[i] == found[i]; i++)
        if (expected[i] == '\n')
            line = i + 1;
    return tacit_fail(err, TACIT_FAILED, "expected '%.*s', found '%.*s'",
                      (int)strcspn(expected + line, "\n"), expected + line,
                      (int)strcspn(found + line, "\n"), found + line);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void fault_folder_remove(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
