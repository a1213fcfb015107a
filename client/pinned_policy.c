#include "client/pinned_policy.h"

#include "client/declaration.h"
#include "common/file.h"
#include "common/log.h"
#include "common/message.h"
#include "privacy/receipt.h"

#include <stdlib.h>
#include <string.h>

/* --- what is stored --- */

static tacit_status is_as_it_was(const client *c, const client_signed_policy *stored, bool *same,
                                 tacit_error *err)
{
    uint8_t *bytes;
    size_t size;
    tacit_status status = tacit_policy_pack(&c->yaml_policy, &bytes, &size, err);
    if (status != TACIT_OK)
        return status;
    *same = stored->over_size == size && memcmp(stored->over, bytes, size) == 0;
    free(bytes);
    return TACIT_OK;
}

tacit_status pinned_policy_stand_in(client *c, tacit_error *err)
{
    client_signed_policy stored;
    tacit_signed_policy opened;
    bool same = false;
    tacit_status status = client_signed_policy_get(c->db, &stored, err);
    if (status == TACIT_OK && stored.over_size)
        status = is_as_it_was(c, &stored, &same, err);
    if (status != TACIT_OK || !same)
        return status;
    status = tacit_signed_policy_open(&opened, stored.bytes, stored.size, err);
    if (status != TACIT_OK)
        return status;
    c->config.policy = opened.policy;
    tacit_message_free(opened.message);
    return TACIT_OK;
}

tacit_status pinned_policy_is_pending(client *c, bool *pending, tacit_error *err)
{
    client_signed_policy stored;
    tacit_status status = client_signed_policy_get(c->db, &stored, err);
    *pending = stored.pending;
    return status;
}

/* --- taking one --- */

static tacit_status check_signature(const client *c, const tacit_signed_policy *p, tacit_error *err)
{
    Tacit__PolicyChanged change;
    if (!c->enrolled || !c->enrolment.has_policy_key)
        return tacit_fail(
            err, TACIT_REFUSED,
            "%s: this device pinned no policy key when it enrolled; its owner changes "
            "client.yaml and declares it ('tacit-client budget --declare')",
            c->dir);
    if (memcmp(p->message->identity_key.data, tacit_identity_sign_key(c->identity),
               TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_REFUSED,
                          "signed policy: it is for another device; 'tacit-client status' prints "
                          "the device key that it must be signed for");
    tacit_signed_policy_change(p->message, &change);
    if (tacit_policy_change_signer(&change, p->policy.serial, tacit_identity_sign_key(c->identity),
                                   c->enrolment.policy_key) != TACIT_POLICY_BY_KEY)
        return tacit_fail(err, TACIT_REFUSED,
                          "signed policy: it is not signed by the policy key that this device "
                          "pinned, or was altered");
    return TACIT_OK;
}

static tacit_status fill_stored(const client *c, tacit_span bytes, uint64_t serial, bool pending,
                                client_signed_policy *out, tacit_error *err)
{
    uint8_t *over;
    size_t size;
    tacit_status status = tacit_policy_pack(&c->yaml_policy, &over, &size, err);
    if (status != TACIT_OK)
        return status;
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, bytes.data, bytes.size);
    out->size = bytes.size;
    out->serial = serial;
    memcpy(out->over, over, size);
    out->over_size = size;
    out->pending = pending;
    free(over);
    return TACIT_OK;
}

/* What this device declares from now on is that policy. */
static tacit_status put_in_force(client *c, const tacit_signed_policy *p,
                                 const client_signed_policy *stored, tacit_error *err)
{
    client_enrolment enrolment = c->enrolment;
    memcpy(enrolment.policy, p->message->policy.data, p->message->policy.len);
    enrolment.policy_size = p->message->policy.len;
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_account_set_policy(c->account, &p->policy, err), done);
    TACIT_TRY(client_enrolment_put(c->db, &enrolment, err), done);
    TACIT_TRY(client_owner_cap_put(c->db, p->policy.epsilon_cap, err), done);
    TACIT_TRY(client_refusal_put(c->db, NULL, 0, err), done);
    TACIT_TRY(client_signed_policy_put(c->db, stored, err), done);
    TACIT_TRY(tacit_database_commit(c->db, err), done);
    c->enrolment = enrolment;
    c->config.policy = p->policy;
done:
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

/* The owner has declared another one since it was logged, which is in force in the log as well: of
 * this one only the serial counts. Whoever holds it back brings nothing of before about. */
static tacit_status put_aside(client *c, client_signed_policy *taken, tacit_error *err)
{
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    taken->over_size = 0;
    status = client_signed_policy_put(c->db, taken, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    else
        tacit_log_info("the signed policy with serial %llu was logged before this device declared "
                       "its own, which stays in force",
                       (unsigned long long)taken->serial);
    return status;
}

/* How a policy comes here. */
typedef struct arrival {
    bool pending;    /* the log may lack it */
    bool superseded; /* by what the owner declared since */
} arrival;

static tacit_status take(client *c, tacit_span bytes, const arrival *how, tacit_error *err)
{
    tacit_signed_policy p;
    client_signed_policy stored, taken;
    tacit_status status = tacit_signed_policy_open(&p, bytes.data, bytes.size, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(check_signature(c, &p, err), done);
    TACIT_TRY(client_signed_policy_get(c->db, &stored, err), done);
    if (stored.size == bytes.size && memcmp(stored.bytes, bytes.data, bytes.size) == 0) {
        tacit_log_info("this signed policy was taken before; nothing changes");
        goto done;
    }
    if (p.policy.serial <= stored.serial) {
        status = tacit_fail(err, TACIT_REFUSED,
                            "signed policy: its serial is %llu, this device has taken serial %llu; "
                            "have one signed with a higher serial",
                            (unsigned long long)p.policy.serial, (unsigned long long)stored.serial);
        goto done;
    }
    TACIT_TRY(fill_stored(c, bytes, p.policy.serial, how->pending, &taken, err), done);
    if (how->superseded) {
        status = put_aside(c, &taken, err);
        goto done;
    }
    TACIT_TRY(put_in_force(c, &p, &taken, err), done);
    tacit_log_info("policy signed by %s (%s), serial %llu: epsilon %.6g, noise at least %.6g are "
                   "in force now; because: %s",
                   p.message->who, p.message->role, (unsigned long long)p.policy.serial,
                   p.policy.epsilon_cap, p.policy.minimum_noise_multiplier, p.message->reason);
done:
    tacit_message_free(p.message);
    return status;
}

tacit_status pinned_policy_take_file(client *c, const char *path, tacit_error *err)
{
    uint8_t *bytes = NULL;
    size_t size;
    tacit_status status = tacit_status_of_input(
        tacit_file_read(path, TACIT_SIGNED_POLICY_MAX, &bytes, &size, err), err);
    if (status == TACIT_OK) {
        status = take(c, (tacit_span){bytes, size}, &(arrival){.pending = true}, err);
        if (status == TACIT_BAD_INPUT)
            tacit_fail_context(err, "%s", path);
    }
    free(bytes);
    return status;
}

/* --- from the log --- */

static tacit_status check_entry(const client *c, const Tacit__CheckInReply *r, const tacit_entry *e,
                                const tacit_checkpoint *checkpoint, tacit_error *err)
{
    tacit_proof proof;
    if (e->entry->body_case != TACIT__ENTRY__BODY_POLICY_CHANGED ||
        memcmp(e->envelope->signer.data, c->enrolment.log.key, TACIT_SIGN_KEY_BYTES) != 0 ||
        memcmp(e->entry->device.data, c->enrolment.device, TACIT_DEVICE_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "its entry is not the log's about this device");
    tacit_status status = tacit_proof_from_fields(&proof, r->policy_proof, r->n_policy_proof, err);
    return status == TACIT_OK
               ? tacit_merkle_verify_inclusion(e->leaf, r->policy_index, checkpoint->size, &proof,
                                               checkpoint->root, err)
               : status;
}

/* The file that the entry was made of. */
static tacit_status pack_again(const client *c, const Tacit__PolicyChanged *change, uint8_t **bytes,
                               size_t *size, tacit_error *err)
{
    Tacit__SignedPolicy m = TACIT__SIGNED_POLICY__INIT;
    m.format = 1;
    m.identity_key = tacit_field_of(tacit_identity_sign_key(c->identity), TACIT_SIGN_KEY_BYTES);
    m.who = change->who;
    m.role = change->role;
    m.meaning = change->meaning;
    m.reason = change->reason;
    m.policy = change->policy;
    m.signature = change->signature;
    return tacit_message_pack(&m, TACIT_SIGNED_POLICY_MAX, bytes, size, err);
}

static tacit_status take_entry(client *c, const Tacit__CheckInReply *r,
                               const tacit_checkpoint *checkpoint, tacit_error *err)
{
    tacit_entry e = {0};
    uint8_t *bytes = NULL;
    size_t size;
    uint64_t declared_end;
    tacit_status status;
    TACIT_TRY(tacit_entry_open(&e, r->policy_entry.data, r->policy_entry.len, err), done);
    TACIT_TRY(check_entry(c, r, &e, checkpoint, err), done);
    TACIT_TRY(pack_again(c, e.entry->policy_changed, &bytes, &size, err), done);
    TACIT_TRY(client_declared_end_get(c->db, &declared_end, err), done);
    status = take(c, (tacit_span){bytes, size},
                  &(arrival){.superseded = r->policy_index < declared_end}, err);
done:
    free(bytes);
    tacit_entry_close(&e);
    return status;
}

tacit_status pinned_policy_take_reply(client *c, const Tacit__CheckInReply *reply,
                                      const tacit_checkpoint *checkpoint, tacit_error *err)
{
    if (reply->policy_entry.len == 0)
        return TACIT_OK;
    tacit_status status = take_entry(c, reply, checkpoint, err);
    if (status == TACIT_OK || status == TACIT_NO_MEMORY || status == TACIT_IO ||
        status == TACIT_AGAIN)
        return status;
    if (err)
        err->status = TACIT_INTEGRITY; /* an honest log has nothing that this device refuses */
    tacit_fail_context(err, "server: it passed on a policy for this device");
    return TACIT_INTEGRITY;
}

/* --- to the log --- */

static tacit_status mark_brought(client *c, client_signed_policy *stored, tacit_error *err)
{
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    stored->pending = false;
    status = client_signed_policy_put(c->db, stored, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}

tacit_status pinned_policy_bring(client *c, client_session *s, tacit_error *err)
{
    client_signed_policy stored;
    tacit_signed_policy p = {0};
    uint64_t index = 0;
    tacit_status status = client_signed_policy_get(c->db, &stored, err);
    if (status != TACIT_OK || !stored.pending)
        return status;
    status = tacit_signed_policy_open(&p, stored.bytes, stored.size, err);
    if (status != TACIT_OK)
        return status;
    const declared_policy declared = {.policy = tacit_span_of(p.message->policy),
                                      .signature = tacit_span_of(p.message->signature),
                                      .signed_policy = {stored.bytes, stored.size}};
    status = declaration_log(c, s, &declared, &index, err);
    tacit_message_free(p.message);
    if (status == TACIT_OK)
        tacit_log_info("the signed policy with serial %llu is in the log; entry %llu",
                       (unsigned long long)stored.serial, (unsigned long long)index);
    if (status == TACIT_REFUSED)
        tacit_log_error("the log does not take the signed policy with serial %llu: %s; if it then "
                        "refuses what was reserved under it, declare a policy that allows as much "
                        "('tacit-client budget --declare --dir %s')",
                        (unsigned long long)stored.serial, err ? err->message : "", c->dir);
    return status == TACIT_OK || status == TACIT_REFUSED ? mark_brought(c, &stored, err) : status;
}
