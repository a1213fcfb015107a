#include "server/server_restore.h"

#include "server/ahead.h"
#include "server/device_store.h"
#include "server/round_steps.h"
#include "server/round_store.h"

#include <string.h>

typedef struct restoring {
    server *server;
    const tacit_identity *operator_id;
    const char *note; /* NULL: none is newer than the backup */
    server_restored *out;
} restoring;

/* Devices have left the state that this round was in, and its sealed updates went with the folder
 * that is lost. Its lineage goes on behind it. */
static tacit_status close_round(restoring *r, tacit_error *err)
{
    round_brief round;
    tacit_status status = round_brief_current(r->server->db, &round, err);
    if (status == TACIT_NOT_FOUND)
        return TACIT_OK;
    r->out->round_closed = status == TACIT_OK;
    return status == TACIT_OK ? round_fail_here(r->server, round.round_id, "restored", err)
                              : status;
}

/* A token that was used after the backup was taken looks unused here. */
static tacit_status restore_job(void *ctx, tacit_error *err)
{
    restoring *r = ctx;
    tacit_status status = tacit_ledger_restore(r->server->ledger, r->operator_id, r->note,
                                               &r->out->restore, &r->out->entry, err);
    if (status == TACIT_OK)
        status = close_round(r, err);
    return status == TACIT_OK ? token_revoke_all(r->server->db, err) : status;
}

static tacit_status check_key(const server *s, const tacit_identity *operator_id, tacit_error *err)
{
    if (memcmp(tacit_identity_sign_key(operator_id), s->operator_key.key, TACIT_SIGN_KEY_BYTES) ==
        0)
        return TACIT_OK;
    return tacit_fail(
        err, TACIT_INTEGRITY,
        "restore: this is not the operator key of %s/keys/operator.pub, which devices "
        "pinned when they enrolled",
        s->dir);
}

tacit_status server_restore(server_restored *out, const char *dir,
                            const tacit_identity *operator_id, const char *note, tacit_error *err)
{
    char ahead[TACIT_CHECKPOINT_MAX];
    bool found = false;
    restoring r = {.operator_id = operator_id, .note = note, .out = out};
    *out = (server_restored){.round_closed = false};
    tacit_status status = server_open_idle(&r.server, dir, err);
    if (status == TACIT_OK)
        status = check_key(r.server, operator_id, err);
    if (status == TACIT_OK && !note)
        status = ahead_read(r.server, ahead, &found, err);
    if (found)
        r.note = ahead;
    if (status == TACIT_OK)
        status = writer_run(r.server->writer, restore_job, NULL, &r, err);
    if (status == TACIT_OK)
        ahead_forget(r.server);
    server_close(r.server);
    return status;
}
