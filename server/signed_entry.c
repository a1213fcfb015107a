#include "server/signed_entry.h"

#include "common/log.h"
#include "common/message.h"

#include <stdlib.h>
#include <string.h>

/* Whether entry number `index` carries this signature. */
static tacit_status is_logged(server *s, uint64_t index, const Tacit__SignedPolicy *m, bool *logged,
                              tacit_error *err)
{
    tacit_entry e = {0};
    uint8_t *bytes = NULL;
    size_t size;
    tacit_status status = tacit_ledger_entry(s->ledger, index, &bytes, &size, err);
    if (status == TACIT_OK)
        status = tacit_entry_read(&e, bytes, size, err);
    if (status == TACIT_OK) {
        const Tacit__PolicyChanged *change = e.entry->policy_changed;
        *logged = e.entry->body_case == TACIT__ENTRY__BODY_POLICY_CHANGED &&
                  change->signature.len == m->signature.len &&
                  memcmp(change->signature.data, m->signature.data, m->signature.len) == 0;
    }
    tacit_entry_close(&e);
    free(bytes);
    return status;
}

static tacit_status record(server *s, const device_row *device, const tacit_signed_policy *p,
                           uint64_t *index, tacit_error *err)
{
    Tacit__PolicyChanged change;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    tacit_signed_policy_change(p->message, &change);
    entry.device = tacit_field_of(device->device, sizeof device->device);
    entry.body_case = TACIT__ENTRY__BODY_POLICY_CHANGED;
    entry.policy_changed = &change;
    tacit_ledger_signed newest;
    tacit_status status = tacit_ledger_record(s->ledger, &entry, index, NULL, err);
    if (status == TACIT_OK)
        status = tacit_ledger_signed_policy(s->ledger, device->device, &newest, err);
    /* A log takes what allows less from anybody; not so what is said in an officer's name. */
    if (status == TACIT_OK && newest.index != *index)
        status = tacit_fail(err, TACIT_REFUSED,
                            "signed policy: it is not signed by the policy key that %s pinned, or "
                            "was altered, or the device pinned none",
                            device_called(device).text);
    if (status == TACIT_OK)
        tacit_log_info("device %s: %s (%s) signed a policy, serial %llu, epsilon cap %.6g; entry "
                       "%llu",
                       device_called(device).text, change.who, change.role,
                       (unsigned long long)p->policy.serial, p->policy.epsilon_cap,
                       (unsigned long long)*index);
    return status;
}

tacit_status signed_entry_log(server *s, const device_row *device, const tacit_signed_policy *p,
                              uint64_t *index, tacit_error *err)
{
    tacit_ledger_signed newest;
    bool logged = false;
    if (memcmp(p->message->identity_key.data, device->identity_key, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_REFUSED, "signed policy: it is for another device than %s",
                          device_called(device).text);
    tacit_status status = tacit_ledger_signed_policy(s->ledger, device->device, &newest, err);
    if (status == TACIT_OK && newest.serial)
        status = is_logged(s, newest.index, p->message, &logged, err);
    if (status != TACIT_OK)
        return status;
    *index = newest.index;
    return logged ? TACIT_OK : record(s, device, p, index, err);
}
