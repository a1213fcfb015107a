/* The policy of client.yaml, declared to the log by this device: the way in which a cap is raised
 * again, and any other term loosened. */
#ifndef TACIT_CLIENT_DECLARATION_H
#define TACIT_CLIENT_DECLARATION_H

#include "client/session.h"

/* Signs the policy with the identity key under a serial that no policy of this device had before,
 * brings it into the log, checks that it is there, and puts it in force. TACIT_REFUSED: another
 * delta than the account's, or the server does not take it. TACIT_INTEGRITY: its answer does not
 * hold; nothing is in force then that was not before. */
tacit_status client_declare_policy(client *c, client_session *s, tacit_error *err) TACIT_MUST_CHECK;

/* A policy on its way into the log. */
typedef struct declared_policy {
    tacit_span policy, signature; /* what the entry must hold */
    tacit_span signed_policy;     /* SignedPolicy of the policy key; empty: the device's own */
} declared_policy;

/* Brings it into the log and checks that it is there, about this device; the log's checkpoint is
 * taken. Nothing else changes here. */
tacit_status declaration_log(client *c, client_session *s, const declared_policy *d,
                             uint64_t *index, tacit_error *err) TACIT_MUST_CHECK;

/* A policy that was declared before, the same bytes, into a log that may have lost them. Nothing
 * changes here. *index: of the entry. TACIT_REFUSED where the log has it and it was lowered since.
 */
tacit_status client_declare_again(client *c, client_session *s, tacit_span policy, uint64_t *index,
                                  tacit_error *err) TACIT_MUST_CHECK;

#endif
