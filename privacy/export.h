/* An exported log: a folder with
 *   log.bin         every SignedEntry in order, each preceded by its length as u32 LE
 *   checkpoint.txt  the newest signed checkpoint; it covers all of log.bin
 *   keys.txt        "log VKEY" and "operator VKEY" lines (VKEY as in privacy/note.h), '#' comments
 * Written beside the target (its name and TACIT_FILE_UNFINISHED) and renamed into place; what a
 * killed export left there is taken over by the next one. Read as hostile. */
#ifndef TACIT_PRIVACY_EXPORT_H
#define TACIT_PRIVACY_EXPORT_H

#include "privacy/ledger.h"

#define TACIT_EXPORT_LOG_MAX ((size_t)2 << 30)
#define TACIT_EXPORT_ENTRIES_MAX ((size_t)1 << 24)

/* Exports the newest stored checkpoint's tree. `operator_key` may be NULL. An existing export at
 * `dir` is replaced; anything else there is TACIT_CONFLICT. */
tacit_status tacit_export_write(tacit_ledger *ledger, const tacit_note_key *operator_key,
                                const char *dir, tacit_error *err) TACIT_MUST_CHECK;

typedef struct tacit_export {
    uint8_t *log; /* bytes of log.bin */
    size_t log_size;
    tacit_span *entries; /* views into log */
    size_t count;
    char *checkpoint; /* note, NUL-terminated */
    size_t checkpoint_size;
    tacit_note_key log_key, operator_key;
    bool has_operator_key;
} tacit_export;

/* TACIT_BAD_INPUT (TACIT_NOT_FOUND when files are missing) names the file, the offset and what was
 * expected. No hash or signature is checked here. */
tacit_status tacit_export_read(tacit_export *out, const char *dir,
                               tacit_error *err) TACIT_MUST_CHECK;
void tacit_export_free(tacit_export *e);

/* The parser of log.bin alone: entries as views, malloc'ed. */
tacit_status tacit_export_split(const uint8_t *log, size_t size, tacit_span **entries,
                                size_t *count, tacit_error *err) TACIT_MUST_CHECK;

#endif
