#include "client/enroll.h"

#include "client/tls_files.h"
#include "common/enrolment.h"
#include "common/link.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "privacy/entry.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define URL_MAX 512

typedef struct enrolling {
    client *client;
    const client_enroll_request *asked;
    tacit_enrol_token token;
    char url[URL_MAX]; /* of the enrolment listener */
    tacit_link *link;
    tacit_caller *caller;
    uint8_t *csr;
    size_t csr_size;
    uint8_t *policy;
    size_t policy_size;
    client_enrolment result;
} enrolling;

/* The enrolment listener has the main one's host and the token's port. */
static tacit_status make_url(enrolling *e, tacit_error *err)
{
    static const char scheme[] = "tls+tcp://";
    const char *server = e->asked->server, *colon = strrchr(server, ':');
    if (strncmp(server, scheme, strlen(scheme)) != 0 || colon < server + strlen(scheme) + 1 ||
        strlen(server) > URL_MAX - 16)
        return tacit_fail(err, TACIT_USAGE,
                          "--server: expected tls+tcp://HOST:PORT, found '%.200s'", server);
    if (strtoul(colon + 1, NULL, 10) == e->token.port)
        return tacit_fail(err, TACIT_USAGE,
                          "--server: port %u is for enrolment alone; give the port for devices "
                          "(7443 unless the operator changed it)",
                          e->token.port);
    snprintf(e->url, sizeof e->url, "%.*s:%u", (int)(colon - server), server, e->token.port);
    return TACIT_OK;
}

/* A device's chain in the log begins with its enrolment: keys that signed before cannot join. */
static tacit_status check_fresh(client *c, tacit_error *err)
{
    tacit_account_status now;
    if (c->enrolled)
        return tacit_fail(err, TACIT_CONFLICT,
                          "%s: this device is enrolled already with %s; another server needs "
                          "another folder",
                          c->dir, c->config.server);
    tacit_status status = tacit_account_status_get(c->account, &now, err);
    if (status != TACIT_OK)
        return status;
    if (now.lost)
        return tacit_fail(err, TACIT_REFUSED,
                          "%s: the account is lost (%s) and its budget counts as spent; purge the "
                          "folder with its data to begin anew",
                          c->dir, now.lost_reason);
    if (now.next_sequence > 1)
        return tacit_fail(err, TACIT_CONFLICT,
                          "%s: %llu reserves of local training were made before; a device enrols "
                          "before it trains, so take another folder",
                          c->dir, (unsigned long long)now.reserves);
    return TACIT_OK;
}

static tacit_status connect_to_server(enrolling *e, tacit_error *err)
{
    tacit_link_setup link = {.url = e->url, .root_pin = e->token.root};
    tacit_status status = tacit_link_open(&e->link, &link, err);
    tacit_caller_setup caller = {.link = e->link, .patience_ms = e->asked->patience_ms};
    return status == TACIT_OK ? tacit_caller_new(&e->caller, &caller, err) : status;
}

/* --- the request --- */

static tacit_status sign_request(enrolling *e, Tacit__EnrolRequest *r,
                                 uint8_t policy_signature[TACIT_SIGNATURE_BYTES],
                                 uint8_t signature[TACIT_SIGNATURE_BYTES], tacit_error *err)
{
    uint8_t nonce[TACIT_NONCE_BYTES], digest[TACIT_DIGEST_BYTES];
    const tacit_identity *id = e->client->identity;
    tacit_status status = tacit_policy_enrol_sign(e->policy, e->policy_size, e->asked->policy_key,
                                                  id, policy_signature, err);
    if (status == TACIT_OK)
        status = tacit_caller_nonce(e->caller, nonce, err);
    if (status != TACIT_OK)
        return status;
    r->policy_signature = tacit_field_of(policy_signature, TACIT_SIGNATURE_BYTES);
    tacit_enrol_digest(digest, r, nonce);
    r->signature = tacit_field_of(signature, TACIT_SIGNATURE_BYTES);
    return tacit_identity_sign(id, TACIT_ENROL_DOMAIN, digest, sizeof digest, signature, err);
}

static tacit_status send_request(enrolling *e, const Tacit__EnrolRequest *r,
                                 Tacit__EnrolReply **reply, tacit_error *err)
{
    uint8_t *body = NULL;
    size_t size = 0;
    tacit_answer answer = {0};
    tacit_status status = tacit_message_pack(r, TACIT_BODY_MAX, &body, &size, err);
    if (status == TACIT_OK)
        status = tacit_caller_call(e->caller, TACIT__METHOD__METHOD_ENROL, (tacit_span){body, size},
                                   &answer, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(reply, tacit__enrol_reply, answer.reply.body.data,
                              answer.reply.body.size, TACIT_MESSAGE_MAX, err);
    tacit_answer_free(&answer);
    if (body)
        sodium_memzero(body, size);
    free(body);
    return status;
}

static tacit_status ask(enrolling *e, Tacit__EnrolReply **reply, tacit_error *err)
{
    Tacit__EnrolRequest r = TACIT__ENROL_REQUEST__INIT;
    uint8_t policy_signature[TACIT_SIGNATURE_BYTES], signature[TACIT_SIGNATURE_BYTES];
    const tacit_identity *id = e->client->identity;
    char name[256];
    snprintf(name, sizeof name, "%s", e->asked->name);
    r.token = tacit_field_of(e->token.secret, sizeof e->token.secret);
    r.name = name;
    r.identity_key = tacit_field_of(tacit_identity_sign_key(id), TACIT_SIGN_KEY_BYTES);
    r.exchange_key = tacit_field_of(tacit_identity_exchange_key(id), TACIT_EXCHANGE_BYTES);
    r.csr = tacit_field_of(e->csr, e->csr_size);
    r.policy = tacit_field_of(e->policy, e->policy_size);
    if (e->asked->policy_key)
        r.policy_key = tacit_field_of(e->asked->policy_key, TACIT_SIGN_KEY_BYTES);
    tacit_status status = sign_request(e, &r, policy_signature, signature, err);
    return status == TACIT_OK ? send_request(e, &r, reply, err) : status;
}

/* An enrolment whose answer was lost leaves keys that the server knows and this device cannot use:
 * they never signed an entry, so new ones take their place. */
static tacit_status ask_with_new_keys(enrolling *e, Tacit__EnrolReply **reply, tacit_error *err)
{
    tacit_status status = ask(e, reply, err);
    if (status != TACIT_CONFLICT)
        return status;
    tacit_log_warn("the server knows these keys from an enrolment that did not finish here; making "
                   "new ones");
    status = client_replace_identity(e->client, err);
    return status == TACIT_OK ? ask(e, reply, err) : status;
}

/* --- the reply --- */

static tacit_status check_root(const enrolling *e, tacit_span root, tacit_error *err)
{
    tacit_certificate_info info;
    char text[TACIT_PEM_MAX / 4];
    if (root.size >= sizeof text)
        return tacit_fail(err, TACIT_BAD_INPUT, "server: a root of %zu bytes", root.size);
    memcpy(text, root.data, root.size);
    text[root.size] = '\0';
    tacit_status status = tacit_certificate_read(text, &info, err);
    if (status == TACIT_OK && memcmp(info.fingerprint, e->token.root, TACIT_DIGEST_BYTES) != 0)
        status = tacit_fail(err, TACIT_INTEGRITY, "server: its root is not the one of the token");
    return status;
}

static bool field_is_key(ProtobufCBinaryData field, const uint8_t key[TACIT_SIGN_KEY_BYTES])
{
    return memcmp(field.data, key, TACIT_SIGN_KEY_BYTES) == 0;
}

static tacit_status take_reply(enrolling *e, const Tacit__EnrolReply *reply, tacit_error *err)
{
    client_enrolment *out = &e->result;
    const uint8_t *key = tacit_caller_server_key(e->caller);
    bool operator_key = reply->operator_key.len != 0;
    if (!tacit_bytes_are(reply->device, TACIT_DEVICE_BYTES) ||
        !tacit_bytes_are(reply->server_key, TACIT_SIGN_KEY_BYTES) ||
        !tacit_bytes_are(reply->log_key, TACIT_SIGN_KEY_BYTES) ||
        (operator_key && !tacit_bytes_are(reply->operator_key, TACIT_SIGN_KEY_BYTES)))
        return tacit_fail(err, TACIT_BAD_INPUT, "server: a field of its answer has a wrong size");
    if (!key || memcmp(key, reply->server_key.data, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "server: it signs with another key than it names");
    if (operator_key && (field_is_key(reply->operator_key, reply->log_key.data) ||
                         field_is_key(reply->operator_key, reply->server_key.data)))
        return tacit_fail(err, TACIT_INTEGRITY,
                          "server: its operator key is one that it has itself, so that it vouches "
                          "for nothing");
    memcpy(out->device, reply->device.data, TACIT_DEVICE_BYTES);
    memcpy(out->server_key, reply->server_key.data, TACIT_SIGN_KEY_BYTES);
    out->has_operator_key = operator_key;
    if (operator_key)
        memcpy(out->operator_key, reply->operator_key.data, TACIT_SIGN_KEY_BYTES);
    out->has_policy_key = e->asked->policy_key != NULL;
    if (out->has_policy_key)
        memcpy(out->policy_key, e->asked->policy_key, TACIT_SIGN_KEY_BYTES);
    out->log_generation = 1; /* of the origin that it begins with */
    out->entry_index = reply->entry_index;
    out->tls_generation = 1;
    out->policy_size = e->policy_size;
    memcpy(out->policy, e->policy, e->policy_size);
    return tacit_note_key_make(&out->log, reply->log_origin, reply->log_key.data, err);
}

static tacit_status store(enrolling *e, const Tacit__EnrolReply *reply, tacit_error *err)
{
    client *c = e->client;
    char root_path[CLIENT_PATH_MAX];
    static const tacit_proof nothing;
    tacit_status status = client_path(c, root_path, "identity", "root.pem", err);
    if (status != TACIT_OK)
        return status;
    unlink(root_path); /* of a server that this folder did not end up with */
    TACIT_TRY(client_tls_store(c, 1, e->result.device, tacit_span_of(reply->certificate),
                               tacit_span_of(reply->root), err),
              done);
    TACIT_TRY(tacit_database_begin(c->db, err), done);
    TACIT_TRY(tacit_account_leave_log(c->account, err), done); /* of an enrolment before this one */
    TACIT_TRY(tacit_account_checkpoint(c->account, tacit_span_of(reply->checkpoint), &nothing,
                                       &e->result.log, err),
              done);
    TACIT_TRY(client_enrolment_put(c->db, &e->result, err), done);
    TACIT_TRY(tacit_database_commit(c->db, err), done);
done:
    tacit_database_rollback(c->db);
    return status;
}

tacit_status client_enroll_check(const client_enroll_request *request, tacit_error *err)
{
    enrolling e = {.asked = request};
    tacit_status status = tacit_token_read(&e.token, request->token, err);
    if (status == TACIT_OK)
        status = make_url(&e, err);
    sodium_memzero(&e.token, sizeof e.token);
    return status;
}

tacit_status client_enroll(client *c, const client_enroll_request *request, tacit_error *err)
{
    enrolling e = {.client = c, .asked = request};
    Tacit__EnrolReply *reply = NULL;
    tacit_status status;
    TACIT_TRY(tacit_token_read(&e.token, request->token, err), done);
    TACIT_TRY(make_url(&e, err), done);
    TACIT_TRY(client_make_account(c, err), done);
    TACIT_TRY(check_fresh(c, err), done);
    TACIT_TRY(tacit_policy_pack(&c->config.policy, &e.policy, &e.policy_size, err), done);
    TACIT_TRY(client_tls_new_key(c, 1, &e.csr, &e.csr_size, err), done);
    TACIT_TRY(connect_to_server(&e, err), done);
    TACIT_TRY(ask_with_new_keys(&e, &reply, err), done);
    TACIT_TRY(check_root(&e, tacit_span_of(reply->root), err), done);
    TACIT_TRY(take_reply(&e, reply, err), done);
    TACIT_TRY(client_config_set_server(c->dir, request->server, e.url, err), done);
    TACIT_TRY(store(&e, reply, err), done);
    c->enrolment = e.result;
    c->enrolled = true;
done:
    sodium_memzero(&e.token, sizeof e.token);
    tacit_message_free(reply);
    tacit_caller_free(e.caller);
    tacit_link_close(e.link);
    free(e.csr);
    free(e.policy);
    return status;
}
