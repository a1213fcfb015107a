/* Entries that a device signed, as they arrive in its requests: opened by a worker, whose time
 * their signatures take, then appended by the writer. */
#ifndef TACIT_SERVER_OWN_ENTRY_H
#define TACIT_SERVER_OWN_ENTRY_H

#include "privacy/entry.h"
#include "server/request_gate.h"

#define OWN_ENTRY(kind) (UINT64_C(1) << TACIT__ENTRY__BODY_##kind)

/* Worker's thread. Opens a SignedEntry of the sender's own, of one of `kinds` (OWN_ENTRY bits).
 * TACIT_BAD_INPUT for one of somebody else, of another kind, or with a wrong signature. Close it
 * with tacit_entry_close. */
tacit_status own_entry_open(gate_call *call, ProtobufCBinaryData bytes, uint64_t kinds,
                            tacit_entry *out, tacit_error *err) TACIT_MUST_CHECK;

/* Appends it, with the bytes it was opened from, on the writer's thread. A chain that forks marks
 * the call, so that the gate freezes the device once this job is undone. `index` may be NULL. */
tacit_status own_entry_append(gate_call *call, const tacit_entry *entry, ProtobufCBinaryData bytes,
                              uint64_t *index, tacit_error *err) TACIT_MUST_CHECK;

#endif
