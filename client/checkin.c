#include "client/checkin.h"

#include "client/pinned_policy.h"
#include "client/restoration.h"
#include "common/log.h"
#include "common/message.h"
#include "privacy/receipt.h"

#include <stdlib.h>
#include <string.h>

/* Only a device that pinned a policy key says so: an older server does not know these fields. */
static tacit_status add_policy_serial(client *c, Tacit__CheckInRequest *request, tacit_error *err)
{
    client_signed_policy taken;
    if (!c->enrolment.has_policy_key)
        return TACIT_OK;
    tacit_status status = client_signed_policy_get(c->db, &taken, err);
    request->pinned_policy_key = true;
    request->policy_serial = taken.serial;
    return status;
}

static tacit_status ask(client *c, client_session *s, const uint8_t *declined,
                        Tacit__CheckInReply **reply, tacit_error *err)
{
    Tacit__CheckInRequest request = TACIT__CHECK_IN_REQUEST__INIT;
    tacit_account_status account;
    client_adapter fetched;
    uint8_t base[TACIT_DIGEST_BYTES];
    ProtobufCBinaryData bases[1];
    char *note = NULL;
    uint64_t size = 0;
    tacit_status status = tacit_account_last_checkpoint(c->account, &note, &size, err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        return status;
    TACIT_TRY(tacit_account_status_get(c->account, &account, err), done);
    status = client_adapter_last(c->db, &fetched, err);
    if (status != TACIT_OK && status != TACIT_NOT_FOUND)
        goto done;
    TACIT_TRY(client_base_digest(c, base, err), done);
    bases[0] = tacit_field_of(base, sizeof base);
    request.checkpoint = tacit_field_of(note, note ? strlen(note) : 0);
    request.active_version = fetched.version; /* what was fetched, whether used or not */
    request.next_sequence = account.next_sequence;
    request.base_digests = bases;
    request.n_base_digests = 1;
    request.wants_cosigned = c->config.policy.witness[0] != '\0';
    if (declined)
        request.declined_plan = tacit_field_of(declined, TACIT_DIGEST_BYTES);
    TACIT_TRY(add_policy_serial(c, &request, err), done);
    status = client_session_call(s, TACIT__METHOD__METHOD_CHECK_IN, &request,
                                 &tacit__check_in_reply__descriptor, reply, err);
done:
    free(note);
    return status;
}

/* The checkpoint first: everything else in the reply is judged under it. */
static tacit_status take_checkpoint(client_checkin *in, client *c, tacit_error *err)
{
    const Tacit__CheckInReply *r = in->reply;
    tacit_proof consistency;
    tacit_span note = tacit_span_of(r->checkpoint);
    tacit_status status =
        tacit_proof_from_fields(&consistency, r->consistency, r->n_consistency, err);
    if (status == TACIT_OK)
        status = tacit_account_checkpoint(c->account, note, &consistency, &c->enrolment.log, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_parse(&in->checkpoint, note.data, note.size, err);
    return status;
}

/* Whether a restored log speaks of the cap of a policy that this device declared earlier: it is to
 * hear again of the last one. Any other cap is one that the operator lowered. */
static tacit_status is_behind(client *c, double cap, bool *behind, tacit_error *err)
{
    client_declared d = {.id = 0};
    tacit_policy policy;
    tacit_status status = client_redeclare_get(c->db, behind, err);
    bool due = status == TACIT_OK && *behind;
    *behind = false;
    while (due && status == TACIT_OK && !*behind) {
        status = client_declared_next(c->db, d.id, &d, err);
        if (status == TACIT_OK)
            status = tacit_policy_unpack(&policy, d.policy, d.size, err);
        *behind = status == TACIT_OK && policy.epsilon_cap == cap;
    }
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

/* The operator may lower this device's cap in the log, and a reserve must state one that is at most
 * that. Nothing here ever raises it. A log that has not heard of a signed policy yet, or that was
 * restored and has not heard again of a declared one, speaks of the cap before it. */
static tacit_status take_cap(client *c, double cap, tacit_error *err)
{
    tacit_account_status now;
    bool pending, behind = false;
    tacit_status status = pinned_policy_is_pending(c, &pending, err);
    if (status == TACIT_OK)
        status = is_behind(c, cap, &behind, err);
    if (status != TACIT_OK || pending || behind || !(cap > 0))
        return status;
    status = tacit_account_status_get(c->account, &now, err);
    if (status != TACIT_OK || cap >= now.policy.epsilon_cap)
        return status;
    now.policy.epsilon_cap = cap;
    status = tacit_account_set_policy(c->account, &now.policy, err);
    if (status == TACIT_OK)
        tacit_log_info("the operator lowered this device's cap to epsilon %.6g", cap);
    return status;
}

/* How many entries of the checkpoint's log the policy's witness has cosigned: a cosigned checkpoint
 * of this log that this one continues. */
static tacit_status take_cosigned(client_checkin *in, const client *c, uint64_t *witnessed,
                                  tacit_error *err)
{
    const Tacit__CheckInReply *r = in->reply;
    tacit_note_key witness;
    tacit_checkpoint cosigned;
    tacit_proof proof;
    *witnessed = 0;
    if (!c->config.policy.witness[0] || r->cosigned.len == 0)
        return TACIT_OK;
    tacit_status status = tacit_witness_key_parse(&witness, c->config.policy.witness, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_verify(&cosigned, r->cosigned.data, r->cosigned.len,
                                         &c->enrolment.log, err);
    if (status == TACIT_OK)
        status = tacit_checkpoint_cosigned(r->cosigned.data, r->cosigned.len, &witness, NULL, err);
    if (status == TACIT_OK)
        status = tacit_proof_from_fields(&proof, r->cosigned_consistency, r->n_cosigned_consistency,
                                         err);
    if (status == TACIT_OK)
        status = tacit_merkle_verify_consistency(cosigned.size, cosigned.root, in->checkpoint.size,
                                                 in->checkpoint.root, &proof, err);
    if (status == TACIT_OK)
        *witnessed = cosigned.size;
    return status == TACIT_OK ? TACIT_OK : tacit_fail_context(err, "cosigned checkpoint");
}

static tacit_status take_offer(client_checkin *in, const client *c, tacit_error *err)
{
    const Tacit__CheckInReply *r = in->reply;
    in->has_plan = r->plan.len > 0;
    if (!in->has_plan)
        return TACIT_OK;
    in->offer = (plan_offer){.plan = tacit_span_of(r->plan),
                             .schedule = tacit_span_of(r->schedule),
                             .entry = tacit_span_of(r->plan_entry),
                             .index = r->plan_index,
                             .inclusion = &in->plan_proof,
                             .checkpoint = &in->checkpoint};
    tacit_status status = take_cosigned(in, c, &in->offer.witnessed, err);
    return status == TACIT_OK
               ? tacit_proof_from_fields(&in->plan_proof, r->plan_proof, r->n_plan_proof, err)
               : status;
}

static tacit_status ask_as_known(client *c, client_session *s, const uint8_t *declined,
                                 Tacit__CheckInReply **reply, tacit_error *err)
{
    tacit_status status = ask(c, s, declined, reply, err);
    if (status == TACIT_CONFLICT)
        status = tacit_fail(err, TACIT_REFUSED,
                            "server: it has served later requests of this device than %s knows: "
                            "the folder is an older copy, or another copy works; when it was "
                            "restored and no other is used, run 'tacit-client budget --recover "
                            "--dir %s'",
                            c->dir, c->dir);
    return status;
}

tacit_status client_check_in(client_checkin *out, client *c, client_session *s,
                             const uint8_t *declined, tacit_error *err)
{
    *out = (client_checkin){0};
    tacit_status status = ask_as_known(c, s, declined, &out->reply, err);
    if (status == TACIT_OK && !out->reply->revoked &&
        client_is_elsewhere(c, out->reply->checkpoint)) {
        out->followed = true;
        status = client_follow_restore(c, s, true, err);
        tacit_message_free(out->reply);
        out->reply = NULL;
        if (status == TACIT_OK)
            status = ask_as_known(c, s, declined, &out->reply, err);
    }
    if (status == TACIT_OK && out->reply->revoked)
        status = tacit_fail(err, TACIT_REFUSED, "server: this device is revoked");
    if (status == TACIT_OK)
        status = take_checkpoint(out, c, err);
    if (status == TACIT_OK)
        status = pinned_policy_take_reply(c, out->reply, &out->checkpoint, err);
    if (status == TACIT_OK)
        status = take_cap(c, out->reply->epsilon_cap, err);
    if (status == TACIT_OK)
        status = take_offer(out, c, err);
    if (status != TACIT_OK)
        client_checkin_free(out);
    return status;
}

void client_checkin_free(client_checkin *in)
{
    tacit_message_free(in->reply);
    *in = (client_checkin){0};
}
