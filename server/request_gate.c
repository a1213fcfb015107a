#include "server/request_gate.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "proto/wire.pb-c.h"

#include <stdlib.h>
#include <string.h>

/* What the first look at a request said. */
typedef struct gate_entry {
    gate_call *call;
    tacit_verdict verdict;
    tacit_status stored_status; /* of a repeat */
    char stored_message[TACIT_ERROR_MAX];
} gate_entry;

typedef struct gate_step {
    gate_call *call;
    const gate_method *method;
} gate_step;

tacit_status gate_reply_with(gate_call *call, const void *message, tacit_error *err)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    tacit_status status = tacit_message_pack(message, TACIT_BODY_MAX, &bytes, &size, err);
    if (status == TACIT_OK && tacit_buffer_append(&call->body, bytes, size) != TACIT_OK)
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for a reply of %zu bytes", size);
    free(bytes);
    return status;
}

static const gate_method *find_method(uint32_t method, gate_listener listener)
{
    for (const gate_method *m = gate_methods; m->method; m++)
        if (m->method == method && (m->listeners & listener))
            return m;
    return NULL;
}

static tacit_status refuse_frozen(tacit_error *err)
{
    return tacit_fail(err, TACIT_REFUSED,
                      "this device is frozen as a suspected clone; ask the operator");
}

static tacit_status refuse_ended_device(const device_row *device, tacit_error *err)
{
    if (device->revoked)
        return tacit_fail(err, TACIT_REFUSED,
                          "this device is revoked, for good; enrol it anew with a purged store");
    return device->frozen ? refuse_frozen(err) : TACIT_OK;
}

/* Two copies of one device: it is frozen here, and the log says why. */
static tacit_status freeze_clone(void *ctx, tacit_error *err)
{
    gate_call *call = ctx;
    server *s = call->server;
    Tacit__CloneSuspected body = TACIT__CLONE_SUSPECTED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    body.evidence = (char *)(uintptr_t)call->clone_evidence;
    entry.device = tacit_field_of(call->device.device, TACIT_DEVICE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_CLONE_SUSPECTED;
    entry.clone_suspected = &body;
    tacit_status status = device_freeze(s->db, call->device.device, err);
    if (status == TACIT_OK)
        status = tacit_ledger_record(s->ledger, &entry, NULL, NULL, err);
    if (status == TACIT_OK)
        tacit_log_warn("device %s: %s; frozen as a suspected clone",
                       device_called(&call->device).text, call->clone_evidence);
    return status;
}

/* Writer's thread: whose key is the request to be held against? */
static tacit_status find_sender(void *ctx, tacit_error *err)
{
    gate_call *call = ctx;
    return device_get(call->server->db, call->received.request.device, &call->device, err);
}

/* A method that changes nothing may be asked by a device that does not know its counter. */
static tacit_verdict judge_nonce(const gate_call *call)
{
    const tacit_request *request = &call->received.request;
    return request->has_nonce && tacit_nonce_holds(call->server->nonce_key, request->device,
                                                   call->now_ms, request->nonce)
               ? TACIT_VERDICT_FRESH
               : TACIT_VERDICT_STALE;
}

static tacit_verdict judge(const gate_call *call)
{
    return tacit_request_judge(&call->received, call->device.counter, call->device.action,
                               call->server->nonce_key, call->now_ms);
}

/* Writer's thread, for a request that is not new: by the row as it is now, since another request of
 * the device may have passed. */
static tacit_status answer_again(void *ctx, tacit_error *err)
{
    gate_entry *e = ctx;
    gate_call *call = e->call;
    server *s = call->server;
    tacit_status status = device_get(s->db, call->device.device, &call->device, err);
    if (status != TACIT_OK)
        return status;
    e->verdict = judge(call);
    if (e->verdict == TACIT_VERDICT_REPEAT)
        return device_stored_reply(s->db, call->device.device, &e->stored_status, e->stored_message,
                                   &call->body, err);
    if (e->verdict != TACIT_VERDICT_CLONE)
        return TACIT_OK;
    call->clone_evidence = "request counter used with two bodies";
    return freeze_clone(call, err);
}

/* Who is it, is it really, and is the request new? What costs time, the signature, is checked
 * here, on the worker's thread. */
static tacit_status enter(gate_entry *e, const gate_method *method, tacit_error *err)
{
    gate_call *call = e->call;
    server_writer *writer = call->server->writer;
    tacit_status status = writer_run(writer, find_sender, NULL, call, err);
    if (status == TACIT_OK)
        status = tacit_request_verify(&call->received, call->device.identity_key, err);
    if (status == TACIT_OK)
        status = refuse_ended_device(&call->device, err);
    if (status != TACIT_OK)
        return status;
    e->verdict = method->any_counter ? judge_nonce(call) : judge(call);
    return e->verdict == TACIT_VERDICT_REPEAT || e->verdict == TACIT_VERDICT_CLONE
               ? writer_run(writer, answer_again, NULL, e, err)
               : TACIT_OK;
}

static tacit_status judge_verdict(const gate_entry *e, tacit_error *err)
{
    switch (e->verdict) {
    case TACIT_VERDICT_FRESH:
        return TACIT_OK;
    case TACIT_VERDICT_REPEAT:
        return e->stored_status == TACIT_OK
                   ? TACIT_OK
                   : tacit_fail(err, e->stored_status, "%s", e->stored_message);
    case TACIT_VERDICT_STALE:
        return tacit_fail(err, TACIT_AGAIN, "the nonce is stale; repeat with the one given here");
    case TACIT_VERDICT_OLD:
        return tacit_fail(err, TACIT_CONFLICT, "a later request was served already");
    case TACIT_VERDICT_CLONE:
        break;
    }
    return refuse_frozen(err);
}

static tacit_status act_in_writer(void *ctx, tacit_error *err)
{
    gate_step *step = ctx;
    gate_call *call = step->call;
    if (!step->method->anonymous) {
        /* Between the two visits another request of the same device may have passed. */
        device_row now;
        tacit_status status = device_get(call->server->db, call->device.device, &now, err);
        if (status == TACIT_OK)
            status = refuse_ended_device(&now, err);
        if (status == TACIT_OK && !step->method->any_counter &&
            now.counter >= call->received.request.counter)
            status = tacit_fail(err, TACIT_CONFLICT, "a later request was served already");
        if (status != TACIT_OK)
            return status;
    }
    return step->method->act ? step->method->act(call, err) : TACIT_OK;
}

static tacit_status finish_in_writer(void *ctx, const writer_point *point, tacit_error *err)
{
    gate_step *step = ctx;
    gate_call *call = step->call;
    tacit_status status = step->method->finish ? step->method->finish(call, point, err) : TACIT_OK;
    if (status == TACIT_OK && step->method->changes_state && !step->method->anonymous)
        status = device_store_reply(call->server->db, call->device.device,
                                    call->received.request.counter, call->received.action, TACIT_OK,
                                    "", (tacit_span){call->body.data, call->body.size}, err);
    return status;
}

static tacit_status run_method(gate_call *call, const gate_method *method, tacit_error *err)
{
    gate_step step = {call, method};
    tacit_status status = method->prepare ? method->prepare(call, err) : TACIT_OK;
    if (status == TACIT_OK && (method->act || method->finish || method->changes_state))
        status = writer_run(call->server->writer, act_in_writer, finish_in_writer, &step, err);
    if (method->release)
        method->release(call);
    if (status == TACIT_OK || !call->clone_evidence)
        return status;
    /* What the method wrote is undone; the freeze is a job of its own. */
    status = writer_run(call->server->writer, freeze_clone, NULL, call, err);
    return status == TACIT_OK ? refuse_frozen(err) : status;
}

static tacit_status serve(gate_call *call, tacit_error *err)
{
    const gate_method *method = find_method(call->received.request.method, call->listener);
    if (!method)
        return tacit_fail(err, TACIT_USAGE, "method %u is not served on this listener",
                          call->received.request.method);
    tacit_status status = tacit_request_check_protocol(&call->received, err);
    if (status != TACIT_OK)
        return status;
    if (method->anonymous)
        return run_method(call, method, err);
    if (!call->received.request.has_device)
        return tacit_fail(err, TACIT_REFUSED, "unknown device; the request names none");
    gate_entry entry = {.call = call};
    status = enter(&entry, method, err);
    if (status == TACIT_OK)
        status = judge_verdict(&entry, err);
    if (status != TACIT_OK || entry.verdict == TACIT_VERDICT_REPEAT)
        return status;
    return run_method(call, method, err);
}

/* "UPLOAD_CHUNK", ... */
static const char *name_of(uint32_t method)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&tacit__method__descriptor, (int)method);
    return value ? value->name + strlen("METHOD_") : "a request";
}

/* A line for the operator about a request that was not served. */
static void log_refusal(const gate_call *call, tacit_status status, const tacit_error *err)
{
    char device[2 * TACIT_DEVICE_BYTES + 1] = "somebody";
    if (call->received.request.has_device)
        tacit_hex(device, call->received.request.device, TACIT_DEVICE_BYTES);
    const char *name = name_of(call->received.request.method);
    bool is_news = status != TACIT_AGAIN && status != TACIT_NOT_FOUND; /* a receipt not there yet */
    if (status == TACIT_IO || status == TACIT_NO_MEMORY || status == TACIT_FAILED)
        tacit_log_error("%s of %s failed here: %s", name, device, err->message);
    else if (is_news)
        tacit_log_warn("refused %s of %s: %s", name, device, err->message);
}

/* What a device is told of a failure: where this server keeps its files is the operator's business,
 * and stands in its log. */
static void tell(const gate_call *call, tacit_status status, tacit_error *err)
{
    const char *why = status == TACIT_IO          ? "its disk is full or fails"
                      : status == TACIT_NO_MEMORY ? "it is out of memory"
                      : status == TACIT_AGAIN     ? "it is busy"
                                                  : "of a fault of its own";
    if (strstr(err->message, call->server->dir))
        (void)!tacit_fail(err, status,
                          "%s was not carried out by the server, because %s; its log says more",
                          name_of(call->received.request.method), why);
}

bool gate_serve(server *s, gate_listener listener, const uint8_t *bytes, size_t size,
                tacit_buffer *reply)
{
    gate_call call = {.server = s,
                      .listener = listener,
                      .now_ms = tacit_clock_wall_ms(),
                      .body = {.cap = TACIT_BODY_MAX}};
    tacit_error err = {0};
    uint8_t nonce[TACIT_NONCE_BYTES];
    if (tacit_request_parse(&call.received, bytes, size, &err) != TACIT_OK) {
        tacit_log_warn("closed a connection: %s", err.message);
        return false;
    }
    tacit_status status = serve(&call, &err);
    if (status != TACIT_OK) {
        log_refusal(&call, status, &err);
        tell(&call, status, &err);
        call.body.size = 0;
    }
    const tacit_request *request = &call.received.request;
    tacit_nonce_make(s->nonce_key, request->has_device ? request->device : NULL, call.now_ms,
                     nonce);
    tacit_error build = {0};
    bool built = tacit_reply_build(&call.received, status, status == TACIT_OK ? "" : err.message,
                                   nonce, (tacit_span){call.body.data, call.body.size}, s->key,
                                   reply, &build) == TACIT_OK;
    if (!built)
        tacit_log_error("cannot build a reply: %s", build.message);
    tacit_buffer_free(&call.body);
    tacit_received_free(&call.received);
    return built;
}
