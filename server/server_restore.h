/* `tacit-server restore`: a folder that was restored from a backup goes on as a new origin of its
 * log (privacy/restore.h). */
#ifndef TACIT_SERVER_SERVER_RESTORE_H
#define TACIT_SERVER_SERVER_RESTORE_H

#include "server/server.h"

typedef struct server_restored {
    tacit_restore restore;
    uint64_t entry;
    bool round_closed; /* one was open in the backup */
} server_restored;

/* In one transaction: the log's `restored` entry, the end of the round that was open in the backup,
 * and of the tokens that nobody had used by then. `note`: the newest checkpoint known of the log as
 * it was, NULL: what devices showed this folder (server/ahead.h), else what the backup has. Devices
 * bring the entries that the log lacks by themselves.
 *
 * TACIT_CONFLICT: the folder is served. TACIT_INTEGRITY: `operator_id` is not the key that devices
 * pinned, or the note is not of this log or older than the backup. */
tacit_status server_restore(server_restored *out, const char *dir,
                            const tacit_identity *operator_id, const char *note,
                            tacit_error *err) TACIT_MUST_CHECK;

#endif
