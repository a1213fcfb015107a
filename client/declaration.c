#include "client/declaration.h"

#include "common/log.h"
#include "common/message.h"
#include "privacy/receipt.h"

#include <stdlib.h>
#include <string.h>

/* --- into the log --- */

static tacit_status ask(client *c, client_session *s, const declared_policy *d,
                        Tacit__DeclarePolicyReply **reply, tacit_error *err)
{
    Tacit__DeclarePolicyRequest request = TACIT__DECLARE_POLICY_REQUEST__INIT;
    bool own = d->signed_policy.size == 0;
    char *note = NULL;
    tacit_status status =
        tacit_account_last_checkpoint(c->account, &note, &request.checkpoint_size, err);
    free(note);
    if (status != TACIT_OK)
        return status;
    if (own) {
        request.policy = tacit_field_of(d->policy.data, d->policy.size);
        request.signature = tacit_field_of(d->signature.data, d->signature.size);
    } else {
        request.signed_policy = tacit_field_of(d->signed_policy.data, d->signed_policy.size);
    }
    return client_session_call(s, TACIT__METHOD__METHOD_DECLARE_POLICY, &request,
                               &tacit__declare_policy_reply__descriptor, reply, err);
}

static bool field_is(ProtobufCBinaryData field, tacit_span expected)
{
    return field.len == expected.size && memcmp(field.data, expected.data, expected.size) == 0;
}

/* The entry says what was signed, about this device, by the log. */
static tacit_status check_entry(const client *c, const declared_policy *d, const tacit_entry *e,
                                tacit_error *err)
{
    const Tacit__PolicyChanged *p = e->entry->policy_changed;
    if (e->entry->body_case == TACIT__ENTRY__BODY_POLICY_CHANGED &&
        memcmp(e->envelope->signer.data, c->enrolment.log.key, TACIT_SIGN_KEY_BYTES) == 0 &&
        memcmp(e->entry->device.data, c->enrolment.device, TACIT_DEVICE_BYTES) == 0 &&
        field_is(p->policy, d->policy) && field_is(p->signature, d->signature))
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY, "server: it logged another policy than was declared");
}

static tacit_status check_reply(client *c, const declared_policy *d,
                                const Tacit__DeclarePolicyReply *r, tacit_error *err)
{
    tacit_receipt receipt = {.entry = tacit_span_of(r->entry),
                             .index = r->index,
                             .checkpoint = tacit_span_of(r->checkpoint)};
    tacit_proof consistency;
    tacit_entry e = {0};
    tacit_status status;
    TACIT_TRY(tacit_entry_open(&e, r->entry.data, r->entry.len, err), done);
    TACIT_TRY(check_entry(c, d, &e, err), done);
    TACIT_TRY(tacit_proof_from_fields(&receipt.inclusion, r->inclusion, r->n_inclusion, err), done);
    TACIT_TRY(tacit_proof_from_fields(&consistency, r->consistency, r->n_consistency, err), done);
    TACIT_TRY(tacit_receipt_verify(&receipt, &c->enrolment.log, NULL, err), done);
    status = tacit_account_checkpoint(c->account, receipt.checkpoint, &consistency,
                                      &c->enrolment.log, err);
done:
    tacit_entry_close(&e);
    return status;
}

tacit_status declaration_log(client *c, client_session *s, const declared_policy *d,
                             uint64_t *index, tacit_error *err)
{
    Tacit__DeclarePolicyReply *reply = NULL;
    tacit_status status = ask(c, s, d, &reply, err);
    if (status == TACIT_OK)
        status = check_reply(c, d, reply, err);
    if (status == TACIT_OK)
        *index = reply->index;
    tacit_message_free(reply);
    return status;
}

/* --- the owner's --- */

typedef struct declaring {
    client *client;
    tacit_policy policy;
    uint8_t *bytes;
    size_t size;
} declaring;

static tacit_status make(declaring *d, tacit_error *err)
{
    client *c = d->client;
    tacit_account_status now;
    tacit_status status = tacit_account_status_get(c->account, &now, err);
    d->policy = c->yaml_policy;
    if (status == TACIT_OK && d->policy.delta != now.policy.delta)
        status = tacit_fail(err, TACIT_REFUSED,
                            "%s/client.yaml: the account's delta is %.6g for life, the policy says "
                            "%.6g; write it back",
                            c->dir, now.policy.delta, d->policy.delta);
    if (status == TACIT_OK && d->policy.unit != now.policy.unit && now.reserves)
        status = tacit_fail(err, TACIT_REFUSED,
                            "%s/client.yaml: the account's unit is %s for life, the policy says "
                            "%s; write it back",
                            c->dir, tacit_privacy_unit_name(now.policy.unit),
                            tacit_privacy_unit_name(d->policy.unit));
    if (status == TACIT_OK)
        status = client_policy_serial_next(c->db, &d->policy.serial, err);
    return status == TACIT_OK ? tacit_policy_pack(&d->policy, &d->bytes, &d->size, err) : status;
}

/* One that the policy key signed stands in for client.yaml no more; its serial stays. */
static tacit_status end_stand_in(client *c, tacit_error *err)
{
    client_signed_policy p;
    tacit_status status = client_signed_policy_get(c->db, &p, err);
    if (status != TACIT_OK || p.size == 0)
        return status;
    p.over_size = 0;
    return client_signed_policy_put(c->db, &p, err);
}

static tacit_status put_in_force(declaring *d, uint64_t index, tacit_error *err)
{
    client *c = d->client;
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    memcpy(c->enrolment.policy, d->bytes, d->size);
    c->enrolment.policy_size = d->size;
    TACIT_TRY(client_enrolment_put(c->db, &c->enrolment, err), done);
    TACIT_TRY(tacit_account_set_policy(c->account, &d->policy, err), done);
    TACIT_TRY(client_owner_cap_put(c->db, d->policy.epsilon_cap, err), done);
    TACIT_TRY(end_stand_in(c, err), done);
    TACIT_TRY(client_redeclare_put(c->db, false, err), done);
    TACIT_TRY(client_declared_end_put(c->db, index + 1, err), done);
    TACIT_TRY(client_refusal_put(c->db, NULL, 0, err), done);
    TACIT_TRY(tacit_database_commit(c->db, err), done);
    c->config.policy = c->yaml_policy;
done:
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

tacit_status client_declare_policy(client *c, client_session *s, tacit_error *err)
{
    declaring d = {.client = c};
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    uint64_t index;
    tacit_status status;
    TACIT_TRY(make(&d, err), done);
    TACIT_TRY(tacit_policy_sign(d.bytes, d.size, c->identity, signature, err), done);
    const declared_policy declared = {.policy = {d.bytes, d.size},
                                      .signature = {signature, sizeof signature}};
    TACIT_TRY(declaration_log(c, s, &declared, &index, err), done);
    TACIT_TRY(put_in_force(&d, index, err), done);
    tacit_log_info(
        "policy declared: epsilon %.6g, noise at least %.6g are in force now; entry %llu",
        d.policy.epsilon_cap, d.policy.minimum_noise_multiplier, (unsigned long long)index);
done:
    free(d.bytes);
    return status;
}

tacit_status client_declare_again(client *c, client_session *s, tacit_span policy, uint64_t *index,
                                  tacit_error *err)
{
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    const declared_policy declared = {.policy = policy, .signature = {signature, sizeof signature}};
    tacit_status status = tacit_policy_sign(policy.data, policy.size, c->identity, signature, err);
    if (status == TACIT_OK)
        status = declaration_log(c, s, &declared, index, err);
    if (status == TACIT_OK)
        tacit_log_info("the policy that was declared is in the log again; entry %llu",
                       (unsigned long long)*index);
    return status;
}
