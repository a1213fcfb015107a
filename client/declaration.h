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

/* The policy that was declared last, the same bytes, into a log that may have lost them. Nothing
 * changes here. TACIT_REFUSED where the log has it and it was lowered since. */
tacit_status client_declare_again(client *c, client_session *s, tacit_error *err) TACIT_MUST_CHECK;

#endif
