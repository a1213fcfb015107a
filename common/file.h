/* Files: capped reads, read-only maps, durable publication.
 * Errors name the path, errno's text, and what to do. */
#ifndef TACIT_COMMON_FILE_H
#define TACIT_COMMON_FILE_H

#include "common/bytes.h"
#include "common/status.h"

#include <stdbool.h>

/* TACIT_IO with "PATH: cannot WHAT: errno's text; next step". */
tacit_status tacit_file_fail(tacit_error *err, const char *path, const char *what);

/* What to do about an errno, to stand behind its text: "; free space on that disk and try again"
 * and the like, or "". */
const char *tacit_file_hint(int code);

/* Reads a whole regular file of at most `cap` bytes. *data is malloc'ed, has one NUL after
 * `*size` bytes, and is the caller's to free. */
tacit_status tacit_file_read(const char *path, size_t cap, uint8_t **data, size_t *size,
                             tacit_error *err) TACIT_MUST_CHECK;

/* What is appended to a name while its new content is written. */
#define TACIT_FILE_UNFINISHED ".tacit-new"

/* Publishes `size` bytes under `path` durably and atomically: a temporary file beside it (`path`
 * and TACIT_FILE_UNFINISHED, 0600), fsync, rename, fsync of the folder. Afterwards the old content
 * or the new one is there, never a part. `mode` as for open(2), for instance 0600. A killed writer
 * leaves the temporary file at most, which the next one of that path takes over; writers of one
 * path wait for each other. TACIT_CONFLICT when another's file stands in its place; TACIT_USAGE
 * when `path` is a folder, a device, a pipe or a socket, also through a link. */
tacit_status tacit_file_write(const char *path, const void *data, size_t size, unsigned mode,
                              tacit_error *err) TACIT_MUST_CHECK;

/* The same for content that is not in memory as a whole: write(ctx, fd, err) puts it into the open
 * file. What it returns ends the writing: on failure nothing is published and the temporary file is
 * removed. */
tacit_status tacit_file_publish(const char *path, unsigned mode,
                                tacit_status (*write)(void *ctx, int fd, tacit_error *err),
                                void *ctx, tacit_error *err) TACIT_MUST_CHECK;

/* Before long work, or anything that is paid for: whether each of the n `result` files can be
 * published when it is done. TACIT_USAGE where one is one of the m `source` files or another result,
 * by whatever name (a link, another path), or where something stands that is no regular file;
 * otherwise that its folder is not there or cannot be written, as the publication would say. NULLs
 * among both are passed over. */
tacit_status tacit_file_check_results(const char *const *result, size_t n,
                                      const char *const *source, size_t m,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* Creates `path` and missing parents with `mode`, each name durably; an existing folder is fine. */
tacit_status tacit_file_make_dir(const char *path, unsigned mode,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* One process a folder: takes the advisory lock `path`, which is made (0600) where it is not there.
 * It goes with the process, or when *fd is closed. TACIT_CONFLICT where another process has it:
 * what that means is the caller's to say. *fd is -1 on failure. */
tacit_status tacit_file_lock(const char *path, int *fd, tacit_error *err) TACIT_MUST_CHECK;

tacit_status tacit_file_sync_dir(const char *path, tacit_error *err) TACIT_MUST_CHECK;
/* The same of the folder that holds `path`: a new name must survive a power cut as its bytes do. */
tacit_status tacit_file_sync_parent(const char *path, tacit_error *err) TACIT_MUST_CHECK;

/* A read-only private map of a regular file. The whole size is checked at opening; a file that
 * another process truncates later ends this one with a line that names it (map_guard.h). */
typedef struct tacit_file_map {
    const uint8_t *data;
    size_t size;
} tacit_file_map;

tacit_status tacit_file_map_open(tacit_file_map *map, const char *path,
                                 tacit_error *err) TACIT_MUST_CHECK;
void tacit_file_map_close(tacit_file_map *map);
/* Takes the pages that lie wholly in [data, data + size) out of this process's memory; they are
 * read again when they are touched. */
void tacit_file_map_forget(const tacit_file_map *map, const void *data, size_t size);

/* All `size` bytes of an open file, at its position or at `offset`, whatever interrupts. False with
 * errno set; reading fails with ENODATA where the file ends. */
bool tacit_file_write_all(int fd, const void *data, size_t size);
bool tacit_file_write_at(int fd, const void *data, size_t size, uint64_t offset);
bool tacit_file_read_at(int fd, void *data, size_t size, uint64_t offset);

/* Writes "dir/name" into `out`; TACIT_BAD_INPUT when it does not fit. */
tacit_status tacit_file_join(char *out, size_t out_size, const char *dir, const char *name,
                             tacit_error *err) TACIT_MUST_CHECK;

/* True when `path` is relative, without "..", ".", empty parts or a NUL: safe below a folder. */
int tacit_file_path_is_inside(const char *path);

#endif
