/* DECLARE_POLICY and OWN_ENTRY: what concerns a device's account beside its rounds. */
#include "server/methods.h"

#include "common/log.h"
#include "common/message.h"
#include "privacy/policy.h"
#include "server/log_proof.h"
#include "server/signed_entry.h"

#include <stdlib.h>
#include <string.h>

#define DECLARE_MAX (TACIT_SIGNED_POLICY_MAX + 1024)

/* An entry of the log on its way to the device, and the proof that it is there. */
typedef struct shown {
    uint64_t known_size; /* of the checkpoint that the device holds */
    uint64_t index;
    uint8_t *entry, *plan, *schedule;
    size_t entry_size, plan_size, schedule_size;
} shown;

static tacit_status new_shown(gate_call *call, shown **out, tacit_error *err)
{
    *out = calloc(1, sizeof **out);
    call->own = *out;
    return *out ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "no memory");
}

void method_account_release(gate_call *call)
{
    shown *s = call->own;
    if (!s)
        return;
    free(s->entry);
    free(s->plan);
    free(s->schedule);
    free(s);
}

/* --- a policy that the device's owner declares --- */

static tacit_status log_declared(gate_call *call, const Tacit__DeclarePolicyRequest *r,
                                 uint64_t *index, tacit_error *err)
{
    char who[] = "device", role[] = "owner of the device", meaning[] = "policy declared anew",
         reason[] = "declared by the device";
    Tacit__PolicyChanged body = TACIT__POLICY_CHANGED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    body.who = who;
    body.role = role;
    body.meaning = meaning;
    body.reason = reason;
    body.policy = r->policy;
    body.signature = r->signature;
    entry.device = tacit_field_of(call->device.device, TACIT_DEVICE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_POLICY_CHANGED;
    entry.policy_changed = &body;
    return tacit_ledger_record(call->server->ledger, &entry, index, NULL, err);
}

/* The ledger asks for a signature where the policy allows more; what a device declares is its own
 * word in any case. */
static tacit_status check_signature(const gate_call *call, const Tacit__DeclarePolicyRequest *r,
                                    tacit_error *err)
{
    tacit_ledger_device logged;
    tacit_status status =
        tacit_ledger_device_get(call->server->ledger, call->device.device, &logged, err);
    if (status != TACIT_OK)
        return status;
    if (r->signature.len == TACIT_SIGNATURE_BYTES &&
        tacit_signature_holds(logged.identity_key, TACIT_POLICY_DOMAIN, r->policy.data,
                              r->policy.len, r->signature.data))
        return TACIT_OK;
    return tacit_fail(err, TACIT_REFUSED, "policy: its signature is not this device's");
}

/* The device's own word, or one that it was given: then the ledger asks for its policy key's. */
static tacit_status log_policy(gate_call *call, const Tacit__DeclarePolicyRequest *r,
                               uint64_t *index, tacit_error *err)
{
    tacit_signed_policy p;
    tacit_status status;
    if (r->signed_policy.len == 0) {
        status = check_signature(call, r, err);
        if (status == TACIT_OK)
            status = log_declared(call, r, index, err);
        if (status == TACIT_OK)
            tacit_log_info("device %s declared another policy; entry %llu",
                           device_called(&call->device).text, (unsigned long long)*index);
        return status;
    }
    if (r->policy.len || r->signature.len)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "policy: expected one of the device or one that was signed for it, found "
                          "both");
    status = tacit_signed_policy_open(&p, r->signed_policy.data, r->signed_policy.len, err);
    if (status != TACIT_OK)
        return status;
    status = signed_entry_log(call->server, &call->device, &p, index, err);
    tacit_message_free(p.message);
    return status;
}

tacit_status method_declare_policy_act(gate_call *call, tacit_error *err)
{
    Tacit__DeclarePolicyRequest *request = NULL;
    shown *s;
    tacit_status status = new_shown(call, &s, err);
    if (status == TACIT_OK)
        status =
            TACIT_UNPACK(&request, tacit__declare_policy_request, call->received.request.body.data,
                         call->received.request.body.size, DECLARE_MAX, err);
    if (status != TACIT_OK)
        return status;
    s->known_size = request->checkpoint_size;
    status = log_policy(call, request, &s->index, err);
    if (status == TACIT_OK)
        status = tacit_ledger_entry(call->server->ledger, s->index, &s->entry, &s->entry_size, err);
    tacit_message_free(request);
    return status;
}

tacit_status method_declare_policy_finish(gate_call *call, const writer_point *point,
                                          tacit_error *err)
{
    shown *s = call->own;
    Tacit__DeclarePolicyReply reply = TACIT__DECLARE_POLICY_REPLY__INIT;
    log_proofs proofs;
    tacit_status status =
        log_proofs_make(&proofs, call->server, s->index, s->known_size, point, err);
    if (status != TACIT_OK)
        return status;
    reply.entry = tacit_field_of(s->entry, s->entry_size);
    LOG_PROOFS_TELL(&reply, &proofs, s->index, point);
    return gate_reply_with(call, &reply, err);
}

/* --- entries that the device lost --- */

/* A reserve that was brought again after a restore may be of a plan that the log lacks. */
static tacit_status find_planned(gate_call *call, shown *s, const tacit_entry *e, tacit_error *err)
{
    if (e->entry->body_case != TACIT__ENTRY__BODY_RESERVE || e->entry->reserve->round_id.len == 0)
        return TACIT_OK;
    tacit_status status =
        tacit_ledger_planned(call->server->ledger, e->entry->reserve->plan_hash.data, &s->plan,
                             &s->plan_size, &s->schedule, &s->schedule_size, err);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

static tacit_status load_own(gate_call *call, shown *s, const uint8_t leaf[TACIT_HASH_BYTES],
                             tacit_error *err)
{
    tacit_entry e = {0};
    tacit_status status = tacit_ledger_find(call->server->ledger, leaf, &s->index, err);
    if (status == TACIT_OK)
        status = tacit_ledger_entry(call->server->ledger, s->index, &s->entry, &s->entry_size, err);
    if (status == TACIT_OK)
        status = tacit_entry_read(&e, s->entry, s->entry_size, err);
    if (status != TACIT_OK)
        return status;
    if (e.device_signed &&
        memcmp(e.envelope->signer.data, call->device.identity_key, TACIT_SIGN_KEY_BYTES) == 0)
        status = find_planned(call, s, &e, err);
    else
        status = tacit_fail(err, TACIT_REFUSED, "that entry is not this device's own");
    tacit_entry_close(&e);
    return status;
}

/* The newest of the chain when no entry is named. */
static tacit_status find_own(gate_call *call, shown *s, const Tacit__OwnEntryRequest *request,
                             tacit_error *err)
{
    tacit_ledger_device logged;
    if (request->leaf_hash.len) {
        if (!tacit_bytes_are(request->leaf_hash, TACIT_HASH_BYTES))
            return tacit_fail(err, TACIT_BAD_INPUT, "own entry: the hash has the wrong size");
        return load_own(call, s, request->leaf_hash.data, err);
    }
    tacit_status status =
        tacit_ledger_device_get(call->server->ledger, call->device.device, &logged, err);
    if (status != TACIT_OK || logged.next_sequence == 1)
        return status;
    return load_own(call, s, logged.head, err);
}

tacit_status method_own_entry_act(gate_call *call, tacit_error *err)
{
    Tacit__OwnEntryRequest *request = NULL;
    shown *s;
    tacit_status status = new_shown(call, &s, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&request, tacit__own_entry_request, call->received.request.body.data,
                              call->received.request.body.size, 1024, err);
    if (status != TACIT_OK)
        return status;
    s->known_size = request->checkpoint_size;
    status = find_own(call, s, request, err);
    tacit_message_free(request);
    return status;
}

tacit_status method_own_entry_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    shown *s = call->own;
    Tacit__OwnEntryReply reply = TACIT__OWN_ENTRY_REPLY__INIT;
    log_proofs proofs = {.inclusion = {.proof = {.count = 0}}};
    tacit_status status =
        log_proof_consistency(&proofs.consistency, call->server, s->known_size, point, err);
    if (status == TACIT_OK && s->entry)
        status = log_proof_inclusion(&proofs.inclusion, call->server, s->index, point, err);
    if (status != TACIT_OK)
        return status;
    reply.entry = tacit_field_of(s->entry, s->entry_size);
    LOG_PROOFS_TELL(&reply, &proofs, s->index, point);
    reply.plan = tacit_field_of(s->plan, s->plan_size);
    reply.schedule = tacit_field_of(s->schedule, s->schedule_size);
    reply.counter = call->device.counter;
    return gate_reply_with(call, &reply, err);
}
