/* The one thread that owns the server's database. Everybody else hands it jobs and waits.
 *
 * Jobs that wait are committed together: each acts within a mark of its own (a failed one is undone
 * alone), then the log's checkpoint is signed, then every job that acted may read what its reply
 * needs at that checkpoint, then one commit makes all of it durable, and only then do the callers
 * wake. */
#ifndef TACIT_SERVER_WRITER_H
#define TACIT_SERVER_WRITER_H

#include "common/database.h"
#include "common/status.h"
#include "privacy/note.h"

typedef struct server_writer server_writer;

typedef struct writer_point {
    const char *checkpoint; /* note that covers everything of this commit */
    uint64_t size;          /* its tree size */
} writer_point;

/* Changes the database. A status other than TACIT_OK undoes what the job wrote. */
typedef tacit_status (*writer_act)(void *ctx, tacit_error *err);
/* Reads what the reply needs. A failure fails the job alone, whose writes are kept: it must only
 * fail where a retry of the caller finds the same state. */
typedef tacit_status (*writer_finish)(void *ctx, const writer_point *point, tacit_error *err);
/* Signs the checkpoint of the open transaction. */
typedef tacit_status (*writer_sign)(void *ctx, char note[TACIT_CHECKPOINT_MAX], uint64_t *size,
                                    tacit_error *err);

tacit_status writer_start(server_writer **out, tacit_database *db, writer_sign sign, void *sign_ctx,
                          tacit_error *err) TACIT_MUST_CHECK;

/* Any thread but the writer's; blocks until the commit. `finish` may be NULL. After writer_stop:
 * TACIT_AGAIN. */
tacit_status writer_run(server_writer *w, writer_act act, writer_finish finish, void *ctx,
                        tacit_error *err) TACIT_MUST_CHECK;

/* From a job: once its group is committed, the write-ahead log is written back and truncated, so
 * that what was overwritten in the database does not live on there. */
void writer_tidy(server_writer *w);

/* Serves what waits, then ends the thread. NULL is fine. */
void writer_stop(server_writer *w);

#endif
