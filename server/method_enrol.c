/* HELLO, ENROL and RENEW. */
#include "server/methods.h"

#include "common/clock.h"
#include "common/enrolment.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "privacy/entry.h"
#include "privacy/policy.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

tacit_status method_hello(gate_call *call, tacit_error *err)
{
    Tacit__HelloRequest *asked = NULL;
    Tacit__HelloReply reply = TACIT__HELLO_REPLY__INIT;
    char version[] = TACIT_VERSION;
    uint32_t protocol;
    tacit_status status =
        TACIT_UNPACK(&asked, tacit__hello_request, call->received.request.body.data,
                     call->received.request.body.size, 4096, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_protocol_agree(asked->min_protocol, asked->max_protocol, asked->version,
                                  &protocol, err);
    tacit_message_free(asked);
    if (status != TACIT_OK)
        return status;
    reply.min_protocol = TACIT_PROTOCOL_MIN;
    reply.max_protocol = TACIT_PROTOCOL_MAX;
    reply.version = version;
    reply.server_key =
        tacit_field_of(tacit_identity_sign_key(call->server->key), TACIT_SIGN_KEY_BYTES);
    return gate_reply_with(call, &reply, err);
}

/* --- enrolment --- */

typedef struct enrolment {
    Tacit__EnrolRequest *request;
    uint8_t device[TACIT_DEVICE_BYTES];
    char *chain; /* the device's certificate */
    uint64_t index;
} enrolment;

static tacit_status check_fields(const Tacit__EnrolRequest *r, tacit_error *err)
{
    if (!tacit_bytes_are(r->token, TACIT_TOKEN_SECRET_BYTES) ||
        !tacit_bytes_are(r->identity_key, TACIT_SIGN_KEY_BYTES) ||
        !tacit_bytes_are(r->exchange_key, TACIT_EXCHANGE_BYTES) ||
        !tacit_bytes_are(r->policy_signature, TACIT_SIGNATURE_BYTES) ||
        !tacit_bytes_are(r->signature, TACIT_SIGNATURE_BYTES) ||
        (r->policy_key.len && !tacit_bytes_are(r->policy_key, TACIT_SIGN_KEY_BYTES)))
        return tacit_fail(err, TACIT_BAD_INPUT, "enrolment: a field has the wrong size");
    if (strlen(r->name) > DEVICE_NAME_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "enrolment: the name is longer than %d bytes",
                          DEVICE_NAME_MAX);
    if (!tacit_text_is_plain(r->name, strlen(r->name)))
        return tacit_fail(err, TACIT_BAD_INPUT, "enrolment: the name holds a control character");
    return TACIT_OK;
}

/* The keys are the sender's, it holds the token's secret now, and its policy is its own. */
static tacit_status check_signatures(gate_call *call, const Tacit__EnrolRequest *r,
                                     tacit_error *err)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    tacit_policy policy;
    const tacit_request *request = &call->received.request;
    if (!request->has_nonce ||
        !tacit_nonce_holds(call->server->nonce_key, NULL, call->now_ms, request->nonce))
        return tacit_fail(err, TACIT_AGAIN, "the nonce is stale; repeat with the one given here");
    tacit_enrol_digest(digest, r, request->nonce);
    if (!tacit_signature_holds(r->identity_key.data, TACIT_ENROL_DOMAIN, digest, sizeof digest,
                               r->signature.data))
        return tacit_fail(err, TACIT_INTEGRITY, "enrolment: the identity key's signature is wrong");
    if (!tacit_policy_enrol_holds(r->identity_key.data, r->policy, r->policy_key,
                                  r->policy_signature.data))
        return tacit_fail(err, TACIT_INTEGRITY, "enrolment: the policy's signature is wrong");
    return tacit_policy_unpack(&policy, r->policy.data, r->policy.len, err);
}

tacit_status method_enrol_prepare(gate_call *call, tacit_error *err)
{
    enrolment *e = calloc(1, sizeof *e);
    if (!e)
        return tacit_fail(err, TACIT_NO_MEMORY, "enrolment: no memory");
    call->own = e;
    tacit_status status =
        TACIT_UNPACK(&e->request, tacit__enrol_request, call->received.request.body.data,
                     call->received.request.body.size, 32768, err);
    if (status == TACIT_OK)
        status = check_fields(e->request, err);
    return status == TACIT_OK ? check_signatures(call, e->request, err) : status;
}

static tacit_status issue(server *s, const ProtobufCBinaryData *csr,
                          const uint8_t device[TACIT_DEVICE_BYTES], char **chain, tacit_error *err)
{
    pthread_mutex_lock(&s->ca_lock);
    tacit_status status = tacit_ca_issue_device(s->ca, csr->data, csr->len, device, chain, err);
    pthread_mutex_unlock(&s->ca_lock);
    return status;
}

static tacit_status log_enrolment(gate_call *call, enrolment *e, tacit_error *err)
{
    Tacit__Enrol body = TACIT__ENROL__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    body.identity_key = e->request->identity_key;
    body.exchange_key = e->request->exchange_key;
    body.policy = e->request->policy;
    body.policy_signature = e->request->policy_signature;
    body.policy_key = e->request->policy_key;
    entry.device = tacit_field_of(e->device, sizeof e->device);
    entry.body_case = TACIT__ENTRY__BODY_ENROL;
    entry.enrol = &body;
    return tacit_ledger_record(call->server->ledger, &entry, &e->index, NULL, err);
}

/* What makes two enrolments the same: keys and policy. The signature covers the nonce as well and
 * differs; a repeated request may bring another TLS key. */
static void digest_enrolment(uint8_t out[TACIT_DIGEST_BYTES], const Tacit__EnrolRequest *r)
{
    Tacit__EnrolRequest same = *r;
    static const uint8_t no_nonce[TACIT_NONCE_BYTES];
    same.csr = (ProtobufCBinaryData){0, NULL};
    tacit_enrol_digest(out, &same, no_nonce);
}

/* A device whose reply was lost asks again with the same keys and token: it is the same device. */
static tacit_status find_earlier(gate_call *call, enrolment *e, bool *found, tacit_error *err)
{
    server *s = call->server;
    uint8_t digest[TACIT_DIGEST_BYTES];
    device_row row;
    tacit_status status =
        token_used_by(s->db, e->request->token.data, call->now_ms, e->device, found, err);
    if (status != TACIT_OK || !*found)
        return status;
    status = device_get(s->db, e->device, &row, err);
    digest_enrolment(digest, e->request);
    *found = status == TACIT_OK && !row.revoked && !row.frozen &&
             memcmp(row.enrolment, digest, sizeof digest) == 0;
    e->index = row.entry_index;
    return status;
}

static tacit_status issue_first(gate_call *call, enrolment *e, tacit_certificate_info *info,
                                tacit_error *err)
{
    tacit_status status = issue(call->server, &e->request->csr, e->device, &e->chain, err);
    return status == TACIT_OK ? tacit_certificate_read(e->chain, info, err) : status;
}

static tacit_status enrol_again(gate_call *call, enrolment *e, tacit_error *err)
{
    tacit_certificate_info info;
    device_row row;
    tacit_database *db = call->server->db;
    tacit_status status = device_get(db, e->device, &row, err);
    if (status == TACIT_OK)
        status = device_may_certify(&row, call->now_ms, err);
    if (status == TACIT_OK)
        status = issue_first(call, e, &info, err);
    return status == TACIT_OK
               ? device_set_certificate(db, &row, info.not_after_ms, call->now_ms, err)
               : status;
}

/* Consumes the token first: whatever fails after it in this job is undone together with it, and
 * nothing leaves before the commit. */
static tacit_status enrol_new(gate_call *call, enrolment *e, tacit_error *err)
{
    server *s = call->server;
    tacit_certificate_info info;
    device_row row = {.enrolled_ms = call->now_ms};
    randombytes_buf(e->device, sizeof e->device);
    tacit_status status;
    TACIT_TRY(token_consume(s->db, e->request->token.data, call->now_ms, e->device, err), done);
    TACIT_TRY(issue_first(call, e, &info, err), done);
    TACIT_TRY(log_enrolment(call, e, err), done);
    memcpy(row.device, e->device, sizeof row.device);
    memcpy(row.identity_key, e->request->identity_key.data, sizeof row.identity_key);
    memcpy(row.name, e->request->name, strlen(e->request->name) + 1);
    digest_enrolment(row.enrolment, e->request);
    row.entry_index = e->index;
    row.certificate_until_ms = info.not_after_ms;
    status = device_insert(s->db, &row, err);
    if (status == TACIT_CONFLICT)
        status = tacit_fail(err, TACIT_CONFLICT,
                            "this identity key is enrolled already; a new enrolment needs new "
                            "keys");
done:
    return status;
}

tacit_status method_enrol_act(gate_call *call, tacit_error *err)
{
    enrolment *e = call->own;
    bool again = false;
    tacit_status status = find_earlier(call, e, &again, err);
    if (status != TACIT_OK)
        return status;
    return again ? enrol_again(call, e, err) : enrol_new(call, e, err);
}

tacit_status method_enrol_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    enrolment *e = call->own;
    server *s = call->server;
    Tacit__EnrolReply reply = TACIT__ENROL_REPLY__INIT;
    const tacit_note_key *log = tacit_ledger_key(s->ledger);
    const char *root = tacit_ca_root_pem(s->ca);
    char origin[TACIT_NOTE_NAME_MAX + 1], hex[2 * TACIT_DEVICE_BYTES + 1];
    memcpy(origin, log->name, sizeof origin);
    reply.device = tacit_field_of(e->device, sizeof e->device);
    reply.certificate = tacit_field_of(e->chain, strlen(e->chain));
    reply.root = tacit_field_of(root, strlen(root));
    reply.server_key = tacit_field_of(tacit_identity_sign_key(s->key), TACIT_SIGN_KEY_BYTES);
    reply.log_key = tacit_field_of(log->key, TACIT_SIGN_KEY_BYTES);
    reply.log_origin = origin;
    reply.operator_key = tacit_field_of(s->operator_key.key, TACIT_SIGN_KEY_BYTES);
    reply.checkpoint = tacit_field_of(point->checkpoint, strlen(point->checkpoint));
    reply.entry_index = e->index;
    tacit_hex(hex, e->device, sizeof e->device);
    tacit_log_info("enrolled device %s%s%s", hex, e->request->name[0] ? " as " : "",
                   e->request->name);
    return gate_reply_with(call, &reply, err);
}

void method_enrol_release(gate_call *call)
{
    enrolment *e = call->own;
    if (!e)
        return;
    tacit_message_free(e->request);
    free(e->chain);
    free(e);
}

/* --- renewal: on the devices' listener in time, on the enrolment listener when expired --- */

typedef struct renewal {
    char *chain;
    tacit_certificate_info info;
} renewal;

tacit_status method_renew_prepare(gate_call *call, tacit_error *err)
{
    Tacit__RenewRequest *request = NULL;
    renewal *r = calloc(1, sizeof *r);
    if (!r)
        return tacit_fail(err, TACIT_NO_MEMORY, "renewal: no memory");
    call->own = r;
    tacit_status status =
        TACIT_UNPACK(&request, tacit__renew_request, call->received.request.body.data,
                     call->received.request.body.size, 8192, err);
    if (status == TACIT_OK)
        status = device_may_certify(&call->device, call->now_ms, err);
    if (status == TACIT_OK)
        status = issue(call->server, &request->csr, call->device.device, &r->chain, err);
    tacit_message_free(request);
    return status == TACIT_OK ? tacit_certificate_read(r->chain, &r->info, err) : status;
}

/* Notes the certificate, unless other requests used the hour up since the first look. */
static tacit_status note_renewal(gate_call *call, const renewal *r, tacit_error *err)
{
    device_row row;
    tacit_database *db = call->server->db;
    tacit_status status = device_get(db, call->device.device, &row, err);
    if (status == TACIT_OK)
        status = device_may_certify(&row, call->now_ms, err);
    return status == TACIT_OK
               ? device_set_certificate(db, &row, r->info.not_after_ms, call->now_ms, err)
               : status;
}

tacit_status method_renew_act(gate_call *call, tacit_error *err)
{
    renewal *r = call->own;
    server *s = call->server;
    Tacit__Renew body = TACIT__RENEW__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__RenewReply reply = TACIT__RENEW_REPLY__INIT;
    const char *root = tacit_ca_root_pem(s->ca);
    body.certificate_digest = tacit_field_of(r->info.fingerprint, TACIT_DIGEST_BYTES);
    entry.device = tacit_field_of(call->device.device, TACIT_DEVICE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_RENEW;
    entry.renew = &body;
    tacit_status status = note_renewal(call, r, err);
    if (status == TACIT_OK)
        status = tacit_ledger_record(s->ledger, &entry, NULL, NULL, err);
    if (status != TACIT_OK)
        return status;
    reply.certificate = tacit_field_of(r->chain, strlen(r->chain));
    reply.root = tacit_field_of(root, strlen(root));
    tacit_log_info("renewed the certificate of %s", device_called(&call->device).text);
    return gate_reply_with(call, &reply, err);
}

void method_renew_release(gate_call *call)
{
    renewal *r = call->own;
    if (!r)
        return;
    free(r->chain);
    free(r);
}
