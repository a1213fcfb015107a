/* Datasets: JSON Lines in the chat form that TRL and the OpenAI API share; media are paths
 * relative to the file. One line is one record. Once read nothing changes; threads may share it. */
#ifndef TACIT_ENGINE_DATASET_H
#define TACIT_ENGINE_DATASET_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum tacit_content_kind {
    TACIT_CONTENT_TEXT,
    TACIT_CONTENT_IMAGE, /* JPEG or PNG */
    TACIT_CONTENT_AUDIO, /* WAV or FLAC */
    TACIT_CONTENT_SENSOR /* CSV (sensor.h) */
} tacit_content_kind;

typedef struct tacit_content {
    tacit_content_kind kind;
    char *text; /* the text, or the media path resolved against the dataset's folder */
} tacit_content;

typedef enum tacit_role { TACIT_ROLE_SYSTEM, TACIT_ROLE_USER, TACIT_ROLE_ASSISTANT } tacit_role;

typedef struct tacit_message {
    tacit_role role;
    tacit_content *content;
    size_t n_content;
} tacit_message;

typedef struct tacit_record {
    char *id;
    char *subject; /* NULL: the shared subject of records without one */
    tacit_message *message;
    size_t n_messages;
    size_t line; /* from 1 */
} tacit_record;

typedef struct tacit_dataset {
    char *path;
    tacit_record *record;
    size_t count;
    size_t bad_lines;
} tacit_dataset;

/* Reads a whole file. A bad line (not JSON, unknown role or content type, a path that leaves the
 * folder, no user or assistant turn, a duplicate id, longer than 1 MiB) is logged as
 * "file:line: reason" (the first 1,000) and skipped, or with `strict` ends the reading
 * (TACIT_BAD_INPUT). TACIT_NO_MEMORY for a file whose records do not fit. */
tacit_status tacit_dataset_load(tacit_dataset *out, const char *path, bool strict,
                                tacit_error *err) TACIT_MUST_CHECK;
void tacit_dataset_free(tacit_dataset *d);

/* Parses one line; `folder` resolves media. Used by the loader, the client's store and fuzzing. */
tacit_status tacit_record_parse(tacit_record *out, const char *line, size_t size,
                                const char *folder, tacit_error *err) TACIT_MUST_CHECK;
void tacit_record_free(tacit_record *r);

#endif
