/* A folder that was restored from an older copy: the log has entries of this device that the folder
 * lacks. By an act of the owner the account takes them, so that it holds the union of what either
 * knew; without it the agent stops before it signs anything. */
#ifndef TACIT_CLIENT_RECOVERY_H
#define TACIT_CLIENT_RECOVERY_H

#include "client/session.h"

/* Fetches what is missed, from the newest entry of the chain backwards, and merges it
 * (tacit_account_merge); gives up a round that the copy held open; goes on with counters above
 * those that the server has seen. *taken: how many entries came. TACIT_INTEGRITY when the log's
 * chain does not continue the folder's: two copies have signed, and nothing can join them. */
tacit_status client_recover(client *c, client_session *s, size_t *taken,
                            tacit_error *err) TACIT_MUST_CHECK;

#endif
