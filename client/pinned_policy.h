/* Policies that the policy key signed which this device pinned at enrolment
 * (privacy/signed_policy.h). One arrives by file, for a device without a server at hand, or from
 * the log at a check-in. It is in force at once and stands in for the policy of client.yaml until
 * the owner edits that or declares it. The log has it before anything that was reserved under it:
 * one that came by file goes there at the next contact, ahead of the device's own entries. */
#ifndef TACIT_CLIENT_PINNED_POLICY_H
#define TACIT_CLIENT_PINNED_POLICY_H

#include "client/session.h"

/* When the folder is opened: the stored one takes the place of config.policy while client.yaml is
 * as it was when it came. */
tacit_status pinned_policy_stand_in(client *c, tacit_error *err) TACIT_MUST_CHECK;

/* Takes a file. TACIT_REFUSED: this device pinned no key, the key did not sign these bytes for this
 * device, a policy with this or a higher serial was taken before, or the account's delta or unit,
 * which are for life, are others. TACIT_BAD_INPUT: not such a file. The same file again is fine.
 * A lost account stays lost under any policy. */
tacit_status pinned_policy_take_file(client *c, const char *path,
                                     tacit_error *err) TACIT_MUST_CHECK;

/* Takes the entry that a check-in brought, if it brought one. TACIT_INTEGRITY: it is not in the log
 * of `checkpoint`, not about this device, not signed by the policy key, or not newer than what was
 * taken. One that the log has before what the owner declared last counts by its serial alone: in
 * the log the newest is in force, and so it is here, whenever a server passes it on. */
tacit_status pinned_policy_take_reply(client *c, const Tacit__CheckInReply *reply,
                                      const tacit_checkpoint *checkpoint,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* Whether one waits to be brought into the log. */
tacit_status pinned_policy_is_pending(client *c, bool *pending, tacit_error *err) TACIT_MUST_CHECK;

/* Brings it there; TACIT_OK without one. A log that refuses it is told no second time: it has a
 * newer one, which the next check-in brings. */
tacit_status pinned_policy_bring(client *c, client_session *s, tacit_error *err) TACIT_MUST_CHECK;

#endif
