/* A server in this process and devices that speak its protocol by hand, for the tests of the
 * server: no client code, no network. Requests go straight to the gate as bytes; or over links to a
 * server in another process. */
#ifndef TACIT_TESTS_FLEET_H
#define TACIT_TESTS_FLEET_H

#include "common/certificate.h"
#include "common/clock.h"
#include "common/enrolment.h"
#include "common/file.h"
#include "common/link.h"
#include "common/log.h"
#include "common/message.h"
#include "common/seal.h"
#include "engine/adapter.h"
#include "engine/plan_spec.h"
#include "privacy/account.h"
#include "privacy/audit.h"
#include "privacy/export.h"
#include "proto/update.pb-c.h"
#include "server/control.h"
#include "server/request_gate.h"
#include "server/round_machine.h"
#include "server/round_steps.h"
#include "server/server_events.h"
#include "server/server_init.h"

#include <math.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../engine/tiny_model.h"

#define FLEET_START_MS 1800000000000ull
#define FLEET_HOUR_MS 3600000ull

typedef struct fleet {
    char folder[64], dir[128];
    server *server; /* NULL: devices talk to another process */
    uint8_t server_key[TACIT_SIGN_KEY_BYTES];
    char origin[TACIT_NOTE_NAME_MAX + 1]; /* of the log */
    const tacit_model *model;
    tacit_link *link[3];     /* by gate_listener, when there is no server here */
    bool has_gate;           /* gate.data is configured */
    tacit_privacy_unit unit; /* of the policies of its devices; 0: record */
    bool non_private;        /* new devices take plans without noise */
} fleet;

typedef struct fleet_device {
    fleet *fleet;
    tacit_identity *id;
    tacit_database *db;
    tacit_account *account;
    tacit_policy policy;
    tacit_note_key log;
    char path[192];
    uint8_t device[TACIT_DEVICE_BYTES];
    uint8_t nonce[TACIT_NONCE_BYTES];
    uint8_t secret[TACIT_TOKEN_SECRET_BYTES];
    uint64_t counter;
    const uint8_t *declined; /* SHA-256 of a plan, for its check-ins; NULL: none */
    tacit_error err;         /* of the last reply that was no success */
} fleet_device;

static _Atomic uint64_t fleet_now = FLEET_START_MS;

static inline uint64_t fleet_clock(void *ctx)
{
    (void)ctx;
    return atomic_load(&fleet_now);
}

static inline void fleet_must(tacit_status status, const tacit_error *err, const char *what)
{
    if (status != TACIT_OK)
        fail_msg("%s: %s", what, err->message);
}

/* --- the server --- */

static inline void fleet_open(fleet *f)
{
    tacit_error err;
    fleet_must(server_open(&f->server, f->dir, &err), &err, "server_open");
    memcpy(f->server_key, tacit_identity_sign_key(f->server->key), sizeof f->server_key);
    snprintf(f->origin, sizeof f->origin, "tacit/test");
    f->model = f->server->model;
}

static inline void fleet_close(fleet *f)
{
    server_close(f->server);
    f->server = NULL;
}

/* As a crash leaves it: nothing is said to anybody, the database is as the last commit left it. */
static inline void fleet_restart(fleet *f)
{
    fleet_close(f);
    fleet_open(f);
}

static inline void fleet_write(const fleet *f, const char *name, const char *text, unsigned mode)
{
    char path[192];
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    fleet_must(tacit_file_write(path, text, strlen(text), mode, &err), &err, name);
}

/* A program in the place of `tacit` whose evaluation prints what the file DIR/score says. */
static inline void fleet_write_gate(const fleet *f)
{
    char script[512];
    snprintf(script, sizeof script,
             "#!/bin/sh\nfor word in \"$@\"; do\n  [ \"$word\" = --adapter ] && exec cat %s/score\n"
             "done\nexec cat %s/base\n",
             f->folder, f->folder);
    fleet_write(f, "tacit", script, 0700);
    fleet_write(f, "base", "{\"accuracy\":0.5,\"loss\":2.0}\n", 0600);
    fleet_write(f, "score", "{\"accuracy\":0.75,\"loss\":1.5}\n", 0600);
    fleet_write(f, "gate.jsonl",
                "{\"id\":\"g\",\"messages\":[{\"role\":\"user\",\"content\":\"?\"},{\"role\":"
                "\"assistant\",\"content\":\"!\"}]}\n",
                0600);
}

static inline void fleet_write_config(const fleet *f)
{
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "listen:\n  host: 127.0.0.1\n  port: 0\n  enrol_port: 0\n  names:\n"
                     "    - 127.0.0.1\nmodel:\n  text: ../text.gguf\npoll_ms: 1000\n");
    if (f->has_gate)
        snprintf(text + n, sizeof text - (size_t)n,
                 "gate:\n  data: ../gate.jsonl\n  margin: 0.05\n  tacit: ../tacit\n");
    fleet_write(f, "s/server.yaml", text, 0600);
}

static inline void fleet_start(fleet *f, bool has_gate)
{
    char model[128];
    const char *names[] = {"127.0.0.1"};
    tacit_error err;
    *f = (fleet){.has_gate = has_gate};
    tacit_log_init("test", TACIT_LOG_ERROR);
    tacit_clock_inject(fleet_clock, NULL);
    /* In memory where that is possible: what is tested is the order of writes, not the disk. */
    snprintf(f->folder, sizeof f->folder, "%s/tacit-fleet-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->dir, sizeof f->dir, "%s/s", f->folder);
    snprintf(model, sizeof model, "%s/text.gguf", f->folder);
    gguf_writer *w = gguf_writer_new();
    tiny_put_text_model(w);
    tiny_put_vocabulary(w);
    fleet_must(gguf_write(w, model, &err), &err, "model");
    gguf_writer_free(w);
    server_config_choice choice = {"127.0.0.1", 0, 0, names, 1, model, NULL, 0, NULL};
    fleet_must(server_init(f->dir, "tacit/test", NULL, &choice, &err), &err, "init");
    fleet_write_gate(f);
    fleet_write_config(f);
    fleet_open(f);
}

static inline void fleet_end(fleet *f)
{
    char command[160];
    fleet_close(f);
    tacit_clock_inject(NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    assert_int_equal(system(command), 0);
}

/* One operator's verb; words as they travel: name, "=argument", option, value, ... NULL. */
static inline tacit_status fleet_verb(fleet *f, json_t **result, tacit_error *err,
                                      const char *const *words)
{
    Tacit__ControlRequest body = TACIT__CONTROL_REQUEST__INIT;
    tacit_buffer out = {0}, reply = {.cap = TACIT_MESSAGE_MAX};
    uint8_t hash[TACIT_DIGEST_BYTES], *bytes;
    tacit_answer answer = {0};
    size_t size;
    while (words[body.n_words])
        body.n_words++;
    body.words = (char **)(uintptr_t)words;
    fleet_must(tacit_message_pack(&body, TACIT_BODY_MAX, &bytes, &size, err), err, "control");
    tacit_request request = {
        .protocol = 1, .method = TACIT__METHOD__METHOD_CONTROL, .body = {bytes, size}};
    fleet_must(tacit_request_build(&request, NULL, &out, hash, err), err, "control");
    assert_true(control_serve(f->server, out.data, out.size, &reply));
    fleet_must(tacit_reply_parse(&answer, reply.data, reply.size, &request, hash, NULL, err), err,
               "control reply");
    tacit_status status = answer.reply.status;
    if (status != TACIT_OK)
        status = tacit_fail(err, status, "%s", answer.reply.message);
    else if (result)
        *result = json_loadb((const char *)answer.reply.body.data, answer.reply.body.size, 0, NULL);
    tacit_answer_free(&answer);
    tacit_buffer_free(&out);
    tacit_buffer_free(&reply);
    free(bytes);
    return status;
}

#define FLEET_VERB(f, result, err, ...)                                                            \
    fleet_verb(f, result, err, (const char *const[]){__VA_ARGS__, NULL})

static inline json_t *fleet_ask(fleet *f, const char *const *words)
{
    json_t *result = NULL;
    tacit_error err;
    fleet_must(fleet_verb(f, &result, &err, words), &err, words[0]);
    assert_non_null(result);
    return result;
}

#define FLEET_ASK(f, ...) fleet_ask(f, (const char *const[]){__VA_ARGS__, NULL})

/* An auditor's view of the server's log. */
static inline void fleet_expect_clean_audit(fleet *f, bool allow_non_private)
{
    char out[192], argument[200];
    tacit_export log;
    tacit_audit audit;
    tacit_error err;
    tacit_audit_options options = {.allow_non_private = allow_non_private};
    snprintf(out, sizeof out, "%s/export", f->folder);
    snprintf(argument, sizeof argument, "=%s", out);
    json_decref(FLEET_ASK(f, "ledger export", argument));
    fleet_must(tacit_export_read(&log, out, &err), &err, "export");
    fleet_must(tacit_audit_run(&audit, &log, &options, &err), &err, "audit");
    for (size_t i = 0; i < audit.violation_count; i++)
        print_error("%s: %s\n", audit.violations[i].kind, audit.violations[i].detail);
    assert_int_equal(audit.violation_count, 0);
    tacit_audit_free(&audit);
    tacit_export_free(&log);
}

/* Runs the machine until nothing is due. */
static inline void fleet_work(fleet *f)
{
    bool worked = true;
    atomic_bool stop = false;
    tacit_error err;
    for (int turn = 0; worked && turn < 20; turn++)
        fleet_must(round_machine_step(f->server, &stop, &worked, &err), &err, "round machine");
}

/* One step alone. */
static inline void fleet_step(fleet *f)
{
    bool worked = false;
    atomic_bool stop = false;
    tacit_error err;
    fleet_must(round_machine_step(f->server, &stop, &worked, &err), &err, "round machine");
    assert_true(worked);
}

/* The newest round of the list. */
static inline json_t *fleet_round(fleet *f)
{
    json_t *list = FLEET_ASK(f, "round list");
    assert_true(json_array_size(list) > 0);
    json_t *row = json_incref(json_array_get(list, json_array_size(list) - 1));
    json_decref(list);
    return row;
}

static inline void fleet_expect_round(fleet *f, const char *state, const char *reason)
{
    json_t *row = fleet_round(f);
    assert_string_equal(json_string_value(json_object_get(row, "state")), state);
    assert_string_equal(json_string_value(json_object_get(row, "reason")), reason);
    json_decref(row);
}

/* --- devices --- */

static inline void fleet_device_new(fleet_device *d, fleet *f, const char *name)
{
    tacit_error err;
    *d = (fleet_device){.fleet = f,
                        .policy = {.epsilon_cap = 8,
                                   .delta = 1e-5,
                                   .unit = f->unit ? f->unit : TACIT_UNIT_RECORD,
                                   .minimum_noise_multiplier = 0.5,
                                   .minimum_cohort = 1,
                                   .minimum_quorum = 1,
                                   .devices_per_subject = 1}};
    d->policy.allow_non_private = f->non_private;
    snprintf(d->path, sizeof d->path, "%s/%s.db", f->folder, name);
    fleet_must(tacit_identity_ephemeral(&d->id, &err), &err, "identity");
    fleet_must(tacit_database_open(&d->db, d->path, &err), &err, "database");
    fleet_must(tacit_note_key_make(&d->log, f->origin, f->server_key, &err), &err, "log key");
}

static inline void fleet_device_open_account(fleet_device *d)
{
    fleet_must(tacit_account_create(d->db, &d->policy, false, d->id, &d->err), &d->err, "account");
    fleet_must(tacit_account_open(&d->account, d->db, d->id, &d->err), &d->err, "account");
}

static inline void fleet_device_free(fleet_device *d)
{
    tacit_account_close(d->account);
    tacit_database_close(d->db);
    tacit_identity_free(d->id);
}

/* Sends bytes to the gate; false when it closes the connection. */
static inline bool fleet_deliver(fleet_device *d, gate_listener listener, const tacit_buffer *bytes,
                                 tacit_buffer *reply)
{
    reply->size = 0;
    reply->cap = TACIT_MESSAGE_MAX;
    if (d->fleet->server)
        return gate_serve(d->fleet->server, listener, bytes->data, bytes->size, reply);
    return tacit_link_call(d->fleet->link[listener], bytes->data, bytes->size, reply, &d->err) ==
           TACIT_OK;
}

/* One signed request with this counter; the reply is checked and its nonce kept. */
static inline tacit_status fleet_send(fleet_device *d, gate_listener listener, uint32_t method,
                                      uint64_t counter, tacit_span body, tacit_answer *answer)
{
    tacit_buffer out = {0}, reply = {0};
    uint8_t hash[TACIT_DIGEST_BYTES];
    tacit_request request = {
        .protocol = 1, .method = method, .counter = counter, .has_nonce = true, .body = body};
    bool known = !sodium_is_zero(d->device, sizeof d->device);
    bool is_signed = known && method != TACIT__METHOD__METHOD_HELLO;
    request.has_device = known;
    memcpy(request.device, d->device, sizeof d->device);
    memcpy(request.nonce, d->nonce, sizeof d->nonce);
    fleet_must(tacit_request_build(&request, is_signed ? d->id : NULL, &out, hash, &d->err),
               &d->err, "request");
    assert_true(fleet_deliver(d, listener, &out, &reply));
    fleet_must(tacit_reply_parse(answer, reply.data, reply.size, &request, hash,
                                 d->fleet->server_key, &d->err),
               &d->err, "reply");
    if (answer->reply.has_nonce)
        memcpy(d->nonce, answer->reply.nonce, sizeof d->nonce);
    tacit_buffer_free(&out);
    tacit_buffer_free(&reply);
    tacit_status status = answer->reply.status;
    return status == TACIT_OK ? TACIT_OK : tacit_fail(&d->err, status, "%s", answer->reply.message);
}

static inline void fleet_hello(fleet_device *d)
{
    Tacit__HelloRequest hello = TACIT__HELLO_REQUEST__INIT;
    tacit_answer answer;
    uint8_t *bytes;
    size_t size;
    char version[] = "test";
    hello.min_protocol = hello.max_protocol = 1;
    hello.version = version;
    fleet_must(tacit_message_pack(&hello, TACIT_BODY_MAX, &bytes, &size, &d->err), &d->err,
               "hello");
    fleet_must(fleet_send(d, GATE_DEVICES, TACIT__METHOD__METHOD_HELLO, 0,
                          (tacit_span){bytes, size}, &answer),
               &d->err, "hello");
    tacit_answer_free(&answer);
    free(bytes);
}

/* Packs, sends with the next counter, unpacks the reply's body into *reply when it is given. */
static inline tacit_status fleet_call(fleet_device *d, uint32_t method, const void *message,
                                      const ProtobufCMessageDescriptor *descriptor, void *reply)
{
    tacit_answer answer = {0};
    uint8_t *bytes;
    size_t size;
    fleet_must(tacit_message_pack(message, TACIT_BODY_MAX, &bytes, &size, &d->err), &d->err,
               "message");
    tacit_status status =
        fleet_send(d, GATE_DEVICES, method, ++d->counter, (tacit_span){bytes, size}, &answer);
    if (status == TACIT_OK && descriptor)
        fleet_must(tacit_message_unpack((ProtobufCMessage **)reply, descriptor,
                                        answer.reply.body.data, answer.reply.body.size,
                                        TACIT_MESSAGE_MAX, &d->err),
                   &d->err, "reply body");
    tacit_answer_free(&answer);
    free(bytes);
    return status;
}

/* --- enrolment --- */

static inline void fleet_token(fleet *f, uint8_t secret[TACIT_TOKEN_SECRET_BYTES], char id[17])
{
    json_t *list = FLEET_ASK(f, "token create");
    json_t *row = json_array_get(list, 0);
    tacit_enrol_token token;
    tacit_error err;
    fleet_must(tacit_token_read(&token, json_string_value(json_object_get(row, "token")), &err),
               &err, "token");
    memcpy(secret, token.secret, sizeof token.secret);
    if (id)
        snprintf(id, 17, "%s", json_string_value(json_object_get(row, "id")));
    json_decref(list);
}

/* A request for a certificate by a TLS key of this device. */
static inline void fleet_csr(fleet_device *d, uint8_t **der, size_t *size)
{
    char path[224];
    tacit_secret pem = {0};
    snprintf(path, sizeof path, "%s.tls", d->path);
    fleet_must(tacit_tls_key_create(path, &d->err), &d->err, "tls key");
    fleet_must(tacit_tls_key_load(&pem, path, &d->err), &d->err, "tls key");
    fleet_must(tacit_csr_create((const char *)pem.data, der, size, &d->err), &d->err, "csr");
    tacit_secret_free(&pem);
}

/* Enrols with a token's secret; on success d->device is set and `reply` is the caller's. */
static inline tacit_status fleet_enrol(fleet_device *d, const char *name,
                                       const uint8_t secret[TACIT_TOKEN_SECRET_BYTES],
                                       Tacit__EnrolReply **reply)
{
    Tacit__EnrolRequest r = TACIT__ENROL_REQUEST__INIT;
    uint8_t *csr, *policy, *bytes, digest[TACIT_DIGEST_BYTES];
    uint8_t signature[TACIT_SIGNATURE_BYTES], policy_signature[TACIT_SIGNATURE_BYTES];
    size_t csr_size, policy_size, size;
    tacit_answer answer = {0};
    uint8_t before[TACIT_DEVICE_BYTES];
    memcpy(before, d->device, sizeof before);
    memset(d->device, 0, sizeof d->device);
    fleet_hello(d);
    fleet_csr(d, &csr, &csr_size);
    fleet_must(tacit_policy_pack(&d->policy, &policy, &policy_size, &d->err), &d->err, "policy");
    fleet_must(tacit_policy_sign(policy, policy_size, d->id, policy_signature, &d->err), &d->err,
               "policy");
    r.token = tacit_field_of(secret, TACIT_TOKEN_SECRET_BYTES);
    r.name = (char *)(uintptr_t)name;
    r.identity_key = tacit_field_of(tacit_identity_sign_key(d->id), TACIT_SIGN_KEY_BYTES);
    r.exchange_key = tacit_field_of(tacit_identity_exchange_key(d->id), TACIT_EXCHANGE_BYTES);
    r.csr = tacit_field_of(csr, csr_size);
    r.policy = tacit_field_of(policy, policy_size);
    r.policy_signature = tacit_field_of(policy_signature, sizeof policy_signature);
    tacit_enrol_digest(digest, &r, d->nonce);
    fleet_must(
        tacit_identity_sign(d->id, TACIT_ENROL_DOMAIN, digest, sizeof digest, signature, &d->err),
        &d->err, "sign");
    r.signature = tacit_field_of(signature, sizeof signature);
    fleet_must(tacit_message_pack(&r, TACIT_BODY_MAX, &bytes, &size, &d->err), &d->err, "enrol");
    tacit_status status = fleet_send(d, GATE_ENROLMENT, TACIT__METHOD__METHOD_ENROL, 0,
                                     (tacit_span){bytes, size}, &answer);
    if (status == TACIT_OK) {
        fleet_must(TACIT_UNPACK(reply, tacit__enrol_reply, answer.reply.body.data,
                                answer.reply.body.size, TACIT_MESSAGE_MAX, &d->err),
                   &d->err, "enrol reply");
        memcpy(d->device, (*reply)->device.data, sizeof d->device);
    } else {
        memcpy(d->device, before, sizeof before);
    }
    tacit_answer_free(&answer);
    free(bytes);
    free(policy);
    free(csr);
    return status;
}

/* A device with an account, enrolled, with its first nonce. */
static inline void fleet_join(fleet_device *d, fleet *f, const char *name)
{
    Tacit__EnrolReply *reply = NULL;
    tacit_proof none = {0};
    fleet_device_new(d, f, name);
    fleet_device_open_account(d);
    fleet_token(f, d->secret, NULL);
    fleet_must(fleet_enrol(d, name, d->secret, &reply), &d->err, "enrol");
    fleet_must(tacit_account_checkpoint(d->account, tacit_span_of(reply->checkpoint), &none,
                                        &d->log, &d->err),
               &d->err, "first checkpoint");
    tacit_message_free(reply);
    fleet_hello(d);
}

/* --- a round, step by step --- */

/* Most tests have two devices. */
static inline void fleet_join_two(fleet_device *one, fleet_device *two, fleet *f)
{
    fleet_join(one, f, "one");
    fleet_join(two, f, "two");
}

static inline void fleet_end_two(fleet_device *one, fleet_device *two, fleet *f)
{
    fleet_device_free(one);
    fleet_device_free(two);
    fleet_end(f);
    atomic_store(&fleet_now, FLEET_START_MS);
}

static inline void fleet_follow(fleet_device *d, ProtobufCBinaryData note,
                                ProtobufCBinaryData *fields, size_t count)
{
    tacit_proof proof;
    fleet_must(tacit_proof_from_fields(&proof, fields, count, &d->err), &d->err, "proof");
    fleet_must(tacit_account_checkpoint(d->account, tacit_span_of(note), &proof, &d->log, &d->err),
               &d->err, "checkpoint");
}

static inline tacit_status fleet_check_in(fleet_device *d, Tacit__CheckInReply **reply)
{
    Tacit__CheckInRequest r = TACIT__CHECK_IN_REQUEST__INIT;
    char *note = NULL;
    uint64_t size;
    fleet_must(tacit_account_last_checkpoint(d->account, &note, &size, &d->err), &d->err, "note");
    r.checkpoint = tacit_field_of(note, strlen(note));
    if (d->declined)
        r.declined_plan = tacit_field_of(d->declined, TACIT_DIGEST_BYTES);
    tacit_status status = fleet_call(d, TACIT__METHOD__METHOD_CHECK_IN, &r,
                                     &tacit__check_in_reply__descriptor, reply);
    if (status == TACIT_OK)
        fleet_follow(d, (*reply)->checkpoint, (*reply)->consistency, (*reply)->n_consistency);
    free(note);
    return status;
}

/* What a device knows of a round it takes part in. */
typedef struct fleet_task {
    Tacit__CheckInReply *asked;
    Tacit__Plan *plan;
    tacit_layout layout;
    tacit_reservation reserve, spend;
    tacit_buffer sealed;
    uint8_t plan_hash[TACIT_DIGEST_BYTES];
    uint8_t nonce[32];
    bool takes_part;
} fleet_task;

static inline void fleet_task_free(fleet_task *t)
{
    tacit_message_free(t->asked);
    tacit_message_free(t->plan);
    tacit_layout_free(&t->layout);
    tacit_reservation_free(&t->reserve);
    tacit_reservation_free(&t->spend);
    tacit_buffer_free(&t->sealed);
    *t = (fleet_task){0};
}

/* Checks in and takes the plan that it must bring. */
static inline void fleet_take(fleet_device *d, fleet_task *t)
{
    tacit_trainable_spec spec;
    *t = (fleet_task){0};
    fleet_must(fleet_check_in(d, &t->asked), &d->err, "check-in");
    assert_true(t->asked->plan.len > 0);
    tacit_receipt logged = {.entry = tacit_span_of(t->asked->plan_entry),
                            .index = t->asked->plan_index,
                            .checkpoint = tacit_span_of(t->asked->checkpoint)};
    fleet_must(tacit_proof_from_fields(&logged.inclusion, t->asked->plan_proof,
                                       t->asked->n_plan_proof, &d->err),
               &d->err, "plan proof");
    fleet_must(tacit_receipt_verify(&logged, &d->log, NULL, &d->err), &d->err, "plan in the log");
    fleet_must(TACIT_UNPACK(&t->plan, tacit__plan, t->asked->plan.data, t->asked->plan.len,
                            TACIT_MESSAGE_MAX, &d->err),
               &d->err, "plan");
    tacit_digest(t->plan_hash, t->asked->plan.data, t->asked->plan.len);
    fleet_must(tacit_trainable_spec_from_message(&spec, t->plan->adapter, &d->err), &d->err,
               "spec");
    fleet_must(tacit_layout_make(&t->layout, d->fleet->model, &spec, &d->err), &d->err, "layout");
}

/* Reserves in the own account; nothing is sent. */
static inline tacit_status fleet_reserve_locally(fleet_device *d, fleet_task *t)
{
    tacit_reserve_request r = {.device = d->device,
                               .plan = tacit_span_of(t->asked->plan),
                               .schedule = tacit_span_of(t->asked->schedule)};
    return tacit_account_reserve(d->account, &r, &t->reserve, &d->err);
}

static inline tacit_status fleet_send_reserve(fleet_device *d, fleet_task *t)
{
    Tacit__ReserveRequest r = TACIT__RESERVE_REQUEST__INIT;
    Tacit__ReserveReply *reply = NULL;
    tacit_account_status now;
    fleet_must(tacit_account_status_get(d->account, &now, &d->err), &d->err, "account");
    r.entry = tacit_field_of(t->reserve.entry, t->reserve.entry_size);
    r.checkpoint_size = now.checkpoint_size;
    tacit_status status =
        fleet_call(d, TACIT__METHOD__METHOD_RESERVE, &r, &tacit__reserve_reply__descriptor, &reply);
    if (status != TACIT_OK)
        return status;
    tacit_receipt receipt = {.entry = {t->reserve.entry, t->reserve.entry_size},
                             .index = reply->index,
                             .checkpoint = tacit_span_of(reply->checkpoint)};
    tacit_proof consistency;
    fleet_must(
        tacit_proof_from_fields(&receipt.inclusion, reply->inclusion, reply->n_inclusion, &d->err),
        &d->err, "inclusion");
    fleet_must(
        tacit_proof_from_fields(&consistency, reply->consistency, reply->n_consistency, &d->err),
        &d->err, "consistency");
    t->takes_part = reply->nonce.len == sizeof t->nonce;
    if (t->takes_part)
        memcpy(t->nonce, reply->nonce.data, sizeof t->nonce);
    fleet_must(tacit_account_acknowledge(d->account, t->reserve.hash, &receipt, &consistency,
                                         &d->log, t->takes_part ? t->nonce : NULL, &d->err),
               &d->err, "acknowledge");
    tacit_message_free(reply);
    return TACIT_OK;
}

/* An honest update whose every value is `value`; the caller may change it before sealing. */
static inline void fleet_fill(const fleet_device *d, const fleet_task *t, Tacit__Update *u,
                              uint8_t *values, double value)
{
    *u = (Tacit__Update)TACIT__UPDATE__INIT;
    for (size_t i = 0; i < t->layout.values; i++)
        tacit_store_u32(values + 4 * i, (uint32_t)(int32_t)lrint(value * t->plan->update_scale));
    u->format = 1;
    u->device = tacit_field_of(d->device, TACIT_DEVICE_BYTES);
    u->round_id = t->plan->round_id;
    u->plan_hash = tacit_field_of(t->plan_hash, TACIT_DIGEST_BYTES);
    u->reserve_hash = tacit_field_of(t->reserve.hash, TACIT_HASH_BYTES);
    u->base_digest = t->plan->base_digest;
    u->parent_version = t->plan->parent_version;
    u->layout_hash = tacit_field_of(t->layout.hash, TACIT_DIGEST_BYTES);
    u->scale = t->plan->update_scale;
    u->values = tacit_field_of(values, 4 * t->layout.values);
}

static inline void fleet_seal(fleet_device *d, fleet_task *t, const Tacit__Update *u)
{
    tacit_seal_binding binding = {d->device, t->plan_hash, t->reserve.hash};
    uint8_t *bytes;
    size_t size;
    fleet_must(tacit_message_pack(u, TACIT_MESSAGE_ENTRY_MAX, &bytes, &size, &d->err), &d->err,
               "update");
    t->sealed.cap = SERVER_UPLOAD_MAX;
    t->sealed.size = 0;
    fleet_must(
        tacit_seal(&t->sealed, bytes, size, &binding, d->id, t->plan->aggregator_key.data, &d->err),
        &d->err, "seal");
    free(bytes);
}

static inline void fleet_seal_value(fleet_device *d, fleet_task *t, double value)
{
    Tacit__Update u;
    uint8_t *values = malloc(4 * t->layout.values);
    assert_non_null(values);
    fleet_fill(d, t, &u, values, value);
    fleet_seal(d, t, &u);
    free(values);
}

static inline tacit_status fleet_begin(fleet_device *d, fleet_task *t, uint64_t *offset)
{
    Tacit__UploadBeginRequest r = TACIT__UPLOAD_BEGIN_REQUEST__INIT;
    Tacit__UploadBeginReply *reply = NULL;
    uint8_t digest[TACIT_DIGEST_BYTES];
    tacit_digest(digest, t->sealed.data, t->sealed.size);
    if (!t->spend.entry)
        fleet_must(tacit_account_spend(d->account, t->reserve.hash, digest, &t->spend, &d->err),
                   &d->err, "spend");
    r.reserve_hash = tacit_field_of(t->reserve.hash, TACIT_HASH_BYTES);
    r.size = t->sealed.size;
    r.digest = tacit_field_of(digest, sizeof digest);
    r.spend_entry = tacit_field_of(t->spend.entry, t->spend.entry_size);
    tacit_status status = fleet_call(d, TACIT__METHOD__METHOD_UPLOAD_BEGIN, &r,
                                     &tacit__upload_begin_reply__descriptor, &reply);
    if (status == TACIT_OK)
        *offset = reply->offset;
    tacit_message_free(reply);
    return status;
}

static inline tacit_status fleet_chunk(fleet_device *d, fleet_task *t, uint64_t *offset,
                                       size_t size)
{
    Tacit__UploadChunkRequest r = TACIT__UPLOAD_CHUNK_REQUEST__INIT;
    Tacit__UploadChunkReply *reply = NULL;
    r.reserve_hash = tacit_field_of(t->reserve.hash, TACIT_HASH_BYTES);
    r.offset = *offset;
    r.data = tacit_field_of(t->sealed.data + *offset, size);
    tacit_status status = fleet_call(d, TACIT__METHOD__METHOD_UPLOAD_CHUNK, &r,
                                     &tacit__upload_chunk_reply__descriptor, &reply);
    if (status == TACIT_OK)
        *offset = reply->offset;
    tacit_message_free(reply);
    return status;
}

/* The decision: "" when accepted, else the reason's word. */
static inline tacit_status fleet_commit(fleet_device *d, fleet_task *t, char reason[32])
{
    Tacit__UploadCommitRequest r = TACIT__UPLOAD_COMMIT_REQUEST__INIT;
    Tacit__UploadCommitReply *reply = NULL;
    r.reserve_hash = tacit_field_of(t->reserve.hash, TACIT_HASH_BYTES);
    tacit_status status = fleet_call(d, TACIT__METHOD__METHOD_UPLOAD_COMMIT, &r,
                                     &tacit__upload_commit_reply__descriptor, &reply);
    if (status == TACIT_OK) {
        snprintf(reason, 32, "%s", reply->reason);
        assert_int_equal(reply->accepted, reason[0] == '\0');
    }
    tacit_message_free(reply);
    return status;
}

/* The whole upload of what is sealed; returns the decision's word. */
static inline const char *fleet_upload(fleet_device *d, fleet_task *t)
{
    static char reason[32];
    uint64_t offset = 0;
    fleet_must(fleet_begin(d, t, &offset), &d->err, "begin");
    while (offset < t->sealed.size) {
        size_t rest = t->sealed.size - (size_t)offset;
        fleet_must(fleet_chunk(d, t, &offset, rest < 1000 ? rest : 1000), &d->err, "chunk");
    }
    fleet_must(fleet_commit(d, t, reason), &d->err, "commit");
    return reason;
}

/* From check-in to the accepted update of `value` everywhere. */
static inline void fleet_serve_round(fleet_device *d, double value)
{
    fleet_task t;
    fleet_take(d, &t);
    fleet_must(fleet_reserve_locally(d, &t), &d->err, "reserve");
    fleet_must(fleet_send_reserve(d, &t), &d->err, "send reserve");
    assert_true(t.takes_part);
    fleet_seal_value(d, &t, value);
    assert_string_equal(fleet_upload(d, &t), "");
    fleet_task_free(&t);
}

#endif
