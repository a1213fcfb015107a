#include "server/own_entry.h"

#include <string.h>

static bool is_own(const gate_call *call, const tacit_entry *e)
{
    return tacit_bytes_are(e->entry->device, TACIT_DEVICE_BYTES) &&
           memcmp(e->entry->device.data, call->device.device, TACIT_DEVICE_BYTES) == 0 &&
           memcmp(e->envelope->signer.data, call->device.identity_key, TACIT_SIGN_KEY_BYTES) == 0;
}

tacit_status own_entry_open(gate_call *call, ProtobufCBinaryData bytes, uint64_t kinds,
                            tacit_entry *out, tacit_error *err)
{
    tacit_status status = tacit_entry_open(out, bytes.data, bytes.len, err);
    if (status == TACIT_INTEGRITY)
        return tacit_fail(err, TACIT_BAD_INPUT, "the entry's signature does not hold");
    if (status != TACIT_OK)
        return status;
    Tacit__Entry__BodyCase found = out->entry->body_case;
    bool own = is_own(call, out);
    if (own && kinds >> found & 1)
        return TACIT_OK;
    tacit_entry_close(out);
    return tacit_fail(err, TACIT_BAD_INPUT, "%s entry '%s' is not what this request may bring",
                      own ? "the device's" : "another's", tacit_entry_kind_name(found));
}

tacit_status own_entry_append(gate_call *call, const tacit_entry *entry, ProtobufCBinaryData bytes,
                              uint64_t *index, tacit_error *err)
{
    tacit_status status =
        tacit_ledger_append_opened(call->server->ledger, entry, bytes.data, bytes.len, index, err);
    if (status == TACIT_INTEGRITY) /* own, signed, and not the chain's next: a fork */
        call->clone_evidence = "the chain of its entries forks";
    return status;
}
