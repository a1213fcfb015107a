/* The round machine: collecting -> aggregating -> evaluating -> published | failed, on a thread of
 * its own. Every transition is one job of the writer, so a restart resumes where the database says.
 *
 *   collecting   ends when `target` updates are accepted, when every asked device has answered, or
 *                at the deadline; below quorum the round fails
 *   aggregating  the accepted sealed updates are summed (aggregate.h); the Aggregate entry and the
 *                candidate's file are durable before the next state
 *   evaluating   `tacit eval` on the server's held-out set (gate_evaluation.h); a drop beyond the
 *                margin fails the round
 *   published    manifest signed and logged together with the round's end; the next round of the
 *                lineage opens */
#ifndef TACIT_SERVER_ROUND_MACHINE_H
#define TACIT_SERVER_ROUND_MACHINE_H

#include "common/status.h"

#include <stdatomic.h>
#include <stdbool.h>

struct server;
typedef struct round_machine round_machine;

tacit_status round_machine_start(round_machine **out, struct server *s,
                                 tacit_error *err) TACIT_MUST_CHECK;
/* Something changed that may end a state (an update was decided, a lineage started). Any thread;
 * NULL is fine. */
void round_machine_wake(round_machine *m);
/* What the thread does at every turn: one step of whatever is due; *worked says that there may be
 * more. An evaluation ends with TACIT_AGAIN when *stop becomes true. */
tacit_status round_machine_step(struct server *s, const atomic_bool *stop, bool *worked,
                                tacit_error *err) TACIT_MUST_CHECK;
/* Ends an evaluation that runs and waits for the thread. NULL is fine. */
void round_machine_stop(round_machine *m);

#endif
