/* An exported log: a folder in the layout of c2sp.org/tlog-tiles (privacy/tiles.h),
 *   checkpoint      the newest signed checkpoint; it covers all that follows
 *   tile/...        hash tiles, and every SignedEntry in bundles of 256
 *   keys.txt        "log VKEY" and "operator VKEY" lines (VKEY as in privacy/note.h), '#' comments
 * The same log gives the same bytes. Written beside the target and renamed into place.
 *
 * Exports of before have one log.bin (every SignedEntry in order, each preceded by its length as
 * u32 LE) and checkpoint.txt instead of checkpoint and tiles; they are read and no longer written.
 *
 * Read as hostile, in bounded memory: an export of tiles streams. */
#ifndef TACIT_PRIVACY_EXPORT_H
#define TACIT_PRIVACY_EXPORT_H

#include "privacy/ledger.h"
#include "privacy/tiles.h"

#define TACIT_EXPORT_LOG_MAX ((size_t)2 << 30)     /* bytes of a log.bin */
#define TACIT_EXPORT_ENTRIES_MAX ((size_t)1 << 24) /* entries of a log.bin */

/* Exports the newest stored checkpoint's tree. `operator_key` may be NULL. An existing export at
 * `dir` is replaced; anything else there is TACIT_CONFLICT. */
tacit_status tacit_export_write(tacit_ledger *ledger, const tacit_note_key *operator_key,
                                const char *dir, tacit_error *err) TACIT_MUST_CHECK;

/* The same entry by entry, from whatever log: begin, add every entry in order, publish; close in
 * any case. What was not published is removed. Holds one bundle and 64 KiB of hashes. */
typedef struct tacit_export_writer tacit_export_writer;
tacit_status tacit_export_begin(tacit_export_writer **out, const char *dir,
                                tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_export_add(tacit_export_writer *w, const void *entry, size_t size,
                              tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_export_publish(tacit_export_writer *w, const char *checkpoint,
                                  const tacit_note_key *log_key, const tacit_note_key *operator_key,
                                  tacit_error *err) TACIT_MUST_CHECK;
void tacit_export_close(tacit_export_writer *w);

typedef struct tacit_export {
    char *dir; /* of tiles; NULL: all entries are in memory */
    uint8_t *log;
    size_t log_size;
    tacit_span *entries; /* in memory, views into log; else NULL */
    uint64_t count;      /* of them, or what the checkpoint states */
    char *checkpoint;    /* note, NUL-terminated */
    size_t checkpoint_size;
    tacit_note_key log_key, operator_key;
    bool has_operator_key;
} tacit_export;

/* Keys and checkpoint of tiles; all of an export of before. TACIT_BAD_INPUT (TACIT_NOT_FOUND when
 * files are missing) names the file, the offset and what was expected. No hash or signature is
 * checked here. */
tacit_status tacit_export_read(tacit_export *out, const char *dir,
                               tacit_error *err) TACIT_MUST_CHECK;
void tacit_export_free(tacit_export *e);

/* The parser of log.bin alone: entries as views, malloc'ed. */
tacit_status tacit_export_split(const uint8_t *log, size_t size, tacit_span **entries,
                                uint64_t *count, tacit_error *err) TACIT_MUST_CHECK;

/* Reads an export's entries in order, up to TACIT_TILE_WIDTH at a time. */
typedef struct tacit_export_cursor {
    const tacit_export *log;
    uint64_t at; /* index of entry[0] */
    size_t count;
    tacit_span entry[TACIT_TILE_WIDTH]; /* good until the next call */
    uint8_t *bytes;
} tacit_export_cursor;

/* Before the first entry; the export outlives the cursor. Free with tacit_export_cursor_free. */
tacit_export_cursor tacit_export_cursor_over(const tacit_export *log);
/* The next entries; count 0 at the end. A log ends where its next bundle is missing, which may be
 * before its checkpoint. TACIT_BAD_INPUT names bundle and entry. */
tacit_status tacit_export_next(tacit_export_cursor *c, tacit_error *err) TACIT_MUST_CHECK;
void tacit_export_cursor_free(tacit_export_cursor *c);

/* Whether the folder's hash tile is the given one. False, with the reason in `err`, when it is
 * missing or another. True where the export has no tiles. */
bool tacit_export_has_tile(const tacit_export *log, const tacit_tile *tile, tacit_error *err);

#endif
