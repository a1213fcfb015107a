/* Reserve, then spend: the round's whole cost goes into the account, durably, before anything is
 * computed; training begins when the log has acknowledged it. */
#ifndef TACIT_CLIENT_RESERVATION_H
#define TACIT_CLIENT_RESERVATION_H

#include "client/plan_check.h"
#include "client/round_state_store.h"
#include "client/session.h"

/* Takes the snapshot of the data, then stores reserve and round in one transaction. TACIT_REFUSED
 * when the budget does not allow it; TACIT_IO when the disk is full: then nothing is reserved and
 * nothing may be trained or sent. `local`: no server asks. *out is freed with round_state_free. */
tacit_status reservation_make(client *c, const checked_plan *plan, tacit_span plan_bytes,
                              tacit_span schedule_bytes, bool local, round_state *out,
                              tacit_error *err) TACIT_MUST_CHECK;

/* Sends the stored entry (the same bytes however often) and stores the log's receipt with the nonce
 * of the acknowledgement. *taken false: the log has it and it stays spent, but the round goes on
 * without this device (it came too late, or the operator lowered the cap since it was signed); the
 * round is abandoned then. TACIT_INTEGRITY: receipt or checkpoint do not hold. */
tacit_status reservation_acknowledge(client *c, client_session *s, round_state *r, bool *taken,
                                     tacit_error *err) TACIT_MUST_CHECK;

/* Ends the round without a release; nothing comes back. `reason`: a word that no data decides. The
 * log is told by an abandon entry unless the spend is signed already. */
tacit_status reservation_abandon(client *c, round_state *r, const char *reason,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* The same for the open round, if there is one, in the caller's transaction; its files stay until
 * reservation_sweep. */
tacit_status reservation_supersede(client *c, bool local, tacit_error *err) TACIT_MUST_CHECK;

/* Removes snapshot, checkpoint and sealed bytes of a round that has ended. */
void reservation_clean(const client *c, const round_state *r);

/* Removes from DIR/rounds whatever belongs to no open round: what a power cut left between a
 * snapshot and its reserve, or between a decision and the cleaning. */
tacit_status reservation_sweep(const client *c, tacit_error *err) TACIT_MUST_CHECK;

/* DIR/rounds/ID.ending. */
tacit_status round_file(const client *c, const round_state *r, const char *ending,
                        char out[CLIENT_PATH_MAX], tacit_error *err) TACIT_MUST_CHECK;

#endif
