/* A policy that a device's policy key signed, on its way into the log: from the operator, who was
 * given a file, or from the device, which was. */
#ifndef TACIT_SERVER_SIGNED_ENTRY_H
#define TACIT_SERVER_SIGNED_ENTRY_H

#include "privacy/signed_policy.h"
#include "server/device_store.h"
#include "server/server.h"

/* Logs it about `device`, whom it must be for; *index is its entry's. The newest of the device
 * again gives the entry that is there. TACIT_REFUSED: it is for another device, not signed by the
 * key that this one pinned, or the log does not take it (privacy/ledger.h). On the writer's thread,
 * in its transaction. */
tacit_status signed_entry_log(server *s, const device_row *device, const tacit_signed_policy *p,
                              uint64_t *index, tacit_error *err) TACIT_MUST_CHECK;

#endif
