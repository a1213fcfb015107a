/* A check-in: the log's newest checkpoint, checked against the last one and kept, and what the
 * server has for this device. */
#ifndef TACIT_CLIENT_CHECKIN_H
#define TACIT_CLIENT_CHECKIN_H

#include "client/plan_check.h"
#include "client/session.h"

typedef struct client_checkin {
    Tacit__CheckInReply *reply;
    tacit_checkpoint checkpoint; /* verified and stored */
    bool has_plan;
    tacit_proof plan_proof;
    plan_offer offer; /* points into `reply` and here; meaningful with has_plan */
    bool followed;    /* the log had another origin, and this device follows it now (restoration.h):
                       * what it had read of its own state before is stale */
} client_checkin;

/* Follows a restored server to its log's new origin first (restoration.h).
 * `declined`: SHA-256 of the plan that this device refused last and would refuse again, NULL: none.
 * TACIT_INTEGRITY: the checkpoint is not signed by the log, older than the one held or of another
 * history; nothing that came with it may be used. TACIT_REFUSED: this device is revoked, or the
 * server has served later requests of it (recovery.h). *out does
 * not move while it is used (it points into itself). Free with client_checkin_free. */
tacit_status client_check_in(client_checkin *out, client *c, client_session *s,
                             const uint8_t *declined, tacit_error *err) TACIT_MUST_CHECK;
void client_checkin_free(client_checkin *in);

#endif
