#include "client/declaration.h"

#include "common/log.h"
#include "common/message.h"
#include "privacy/receipt.h"

#include <stdlib.h>
#include <string.h>

typedef struct declaring {
    client *client;
    tacit_policy policy;
    uint8_t *bytes;
    size_t size;
    Tacit__DeclarePolicyReply *reply;
} declaring;

static tacit_status make(declaring *d, tacit_error *err)
{
    client *c = d->client;
    tacit_account_status now;
    tacit_status status = tacit_account_status_get(c->account, &now, err);
    d->policy = c->config.policy;
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

static tacit_status ask(declaring *d, client_session *s, tacit_error *err)
{
    Tacit__DeclarePolicyRequest request = TACIT__DECLARE_POLICY_REQUEST__INIT;
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    char *note = NULL;
    tacit_status status = tacit_policy_sign(d->bytes, d->size, d->client->identity, signature, err);
    if (status == TACIT_OK)
        status =
            tacit_account_last_checkpoint(d->client->account, &note, &request.checkpoint_size, err);
    free(note);
    if (status != TACIT_OK)
        return status;
    request.policy = tacit_field_of(d->bytes, d->size);
    request.signature = tacit_field_of(signature, sizeof signature);
    return client_session_call(s, TACIT__METHOD__METHOD_DECLARE_POLICY, &request,
                               &tacit__declare_policy_reply__descriptor, &d->reply, err);
}

/* The entry says what was signed, about this device, by the log. */
static tacit_status check_entry(const declaring *d, const tacit_entry *e, tacit_error *err)
{
    const client *c = d->client;
    const Tacit__PolicyChanged *p = e->entry->policy_changed;
    if (e->entry->body_case == TACIT__ENTRY__BODY_POLICY_CHANGED &&
        memcmp(e->envelope->signer.data, c->enrolment.log.key, TACIT_SIGN_KEY_BYTES) == 0 &&
        memcmp(e->entry->device.data, c->enrolment.device, TACIT_DEVICE_BYTES) == 0 &&
        p->policy.len == d->size && memcmp(p->policy.data, d->bytes, d->size) == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY, "server: it logged another policy than was declared");
}

static tacit_status check_reply(const declaring *d, tacit_error *err)
{
    const Tacit__DeclarePolicyReply *r = d->reply;
    tacit_receipt receipt = {.entry = tacit_span_of(r->entry),
                             .index = r->index,
                             .checkpoint = tacit_span_of(r->checkpoint)};
    tacit_proof consistency;
    tacit_entry e = {0};
    tacit_status status;
    TACIT_TRY(tacit_entry_open(&e, r->entry.data, r->entry.len, err), done);
    TACIT_TRY(check_entry(d, &e, err), done);
    TACIT_TRY(tacit_proof_from_fields(&receipt.inclusion, r->inclusion, r->n_inclusion, err), done);
    TACIT_TRY(tacit_proof_from_fields(&consistency, r->consistency, r->n_consistency, err), done);
    TACIT_TRY(tacit_receipt_verify(&receipt, &d->client->enrolment.log, NULL, err), done);
    status = tacit_account_checkpoint(d->client->account, receipt.checkpoint, &consistency,
                                      &d->client->enrolment.log, err);
done:
    tacit_entry_close(&e);
    return status;
}

static tacit_status put_in_force(declaring *d, tacit_error *err)
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
    TACIT_TRY(client_refusal_put(c->db, NULL, 0, err), done);
    TACIT_TRY(tacit_database_commit(c->db, err), done);
done:
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

tacit_status client_declare_policy(client *c, client_session *s, tacit_error *err)
{
    declaring d = {.client = c};
    tacit_status status;
    TACIT_TRY(make(&d, err), done);
    TACIT_TRY(ask(&d, s, err), done);
    TACIT_TRY(check_reply(&d, err), done);
    TACIT_TRY(put_in_force(&d, err), done);
    tacit_log_info(
        "policy declared: epsilon %.6g, noise at least %.6g are in force now; entry %llu",
        d.policy.epsilon_cap, d.policy.minimum_noise_multiplier,
        (unsigned long long)d.reply->index);
done:
    tacit_message_free(d.reply);
    free(d.bytes);
    return status;
}

tacit_status client_declare_again(client *c, client_session *s, tacit_error *err)
{
    declaring d = {.client = c, .size = c->enrolment.policy_size};
    tacit_status status = TACIT_OK;
    d.bytes = malloc(d.size + 1);
    if (!d.bytes)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory");
    memcpy(d.bytes, c->enrolment.policy, d.size);
    TACIT_TRY(ask(&d, s, err), done);
    TACIT_TRY(check_reply(&d, err), done);
    tacit_log_info("the policy that was declared is in the log again; entry %llu",
                   (unsigned long long)d.reply->index);
done:
    tacit_message_free(d.reply);
    free(d.bytes);
    return status;
}
