/* A server that was restored from an older copy: its log goes on as another origin, which this
 * device follows when the operator key that it pinned at enrolment vouches for that
 * (privacy/restore.h). */
#ifndef TACIT_CLIENT_RESTORATION_H
#define TACIT_CLIENT_RESTORATION_H

#include "client/session.h"

/* Asks what led from the origin that this device follows to the server's, and follows, in one
 * transaction: account and enrolment name the new origin, own entries that it may lack are to be
 * brought again (receipts_sync), and an open round is given up: the state that it began in is gone
 * there. That signs an entry, so it is left to the caller unless `newest` says that this folder is
 * no older copy (recovery.h). Receipts of the old origin stay in DIR/receipts; nothing of the
 * account is released.
 *
 * TACIT_INTEGRITY when it is not vouched for, or does not continue what this device saw. */
tacit_status client_follow_restore(client *c, client_session *s, bool newest,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Whether a note that the server showed is of another origin than this device follows. */
bool client_is_elsewhere(const client *c, ProtobufCBinaryData note);

/* After that, before own entries are brought again: the policies that this device declared since
 * its enrolment, which they may rest on, are declared again in their order where the last one was
 * not that of the enrolment (*done). One that the log does not take is let be. One that the policy
 * key signed since follows it (pinned_policy.h). */
tacit_status client_redeclare(client *c, client_session *s, bool *done,
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
