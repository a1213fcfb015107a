/* What the round machine does in each state; every step is one or more jobs of the writer and may
 * be repeated after a crash at any point. Called on the machine's thread. */
#ifndef TACIT_SERVER_ROUND_STEPS_H
#define TACIT_SERVER_ROUND_STEPS_H

#include "server/round_terms.h"

/* round_opening.c: logs the plan of the lineage's next round and asks its cohort, in one
 * transaction. *opened stays false while fewer devices than the cohort are active. */
tacit_status round_open_next(server *s, const lineage_row *lineage, bool *opened,
                             tacit_error *err) TACIT_MUST_CHECK;

/* round_closing.c: the sum over the accepted set, its log entry and the candidate's file. */
tacit_status round_aggregate(server *s, const round_row *round, tacit_error *err) TACIT_MUST_CHECK;
/* Evaluates the candidate and publishes it, or fails the round. */
tacit_status round_evaluate(server *s, const round_row *round, const atomic_bool *stop,
                            tacit_error *err) TACIT_MUST_CHECK;
/* Ends a round without a result and logs why: "quorum", "cancelled", "gate", "restored". */
tacit_status round_fail(server *s, const round_row *round, const char *reason,
                        tacit_error *err) TACIT_MUST_CHECK;

/* The same from within a job of the writer, whose commit decides; nobody is told. */
tacit_status round_fail_here(server *s, const uint8_t round_id[ROUND_ID_BYTES], const char *reason,
                             tacit_error *err) TACIT_MUST_CHECK;

/* Removes the sealed updates and candidates of rounds that have ended, whose keys are erased: after
 * each round, and at the start for what a crash left. */
void round_sweep(server *s);

/* The event that `watch` prints for a round as it stands. */
void round_announce(server *s, const round_row *round);
/* That a lineage began, or has no further round. */
void round_announce_lineage(server *s, const lineage_row *lineage);

#endif
