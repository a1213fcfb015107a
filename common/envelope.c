#include "common/envelope.h"

#include "common/message.h"
#include "common/text.h"
#include "proto/wire.pb-c.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char request_domain[] = "tacit-request-1";
static const char reply_domain[] = "tacit-reply-1";
enum { MESSAGE_BYTES = 900, HOUR_MS = 3600000 };

/* --- Both directions --- */

/* What a received message keeps until it is freed. */
typedef struct envelope_memory {
    void *outer, *inner;
} envelope_memory;

static void free_memory(void *memory)
{
    envelope_memory *m = memory;
    if (!m)
        return;
    tacit_message_free(m->inner);
    tacit_message_free(m->outer);
    free(m);
}

static tacit_status put_message(const void *message, tacit_buffer *out, tacit_error *err)
{
    uint8_t *bytes;
    size_t size;
    tacit_status status = tacit_message_pack(message, TACIT_MESSAGE_MAX, &bytes, &size, err);
    if (status != TACIT_OK)
        return status;
    out->size = 0;
    out->cap = TACIT_MESSAGE_MAX;
    status = tacit_buffer_append(out, bytes, size);
    free(bytes);
    return status == TACIT_OK ? status : tacit_fail(err, status, "no memory for a message");
}

static bool is_empty_or(ProtobufCBinaryData field, size_t size)
{
    return field.len == 0 || field.len == size;
}

static void copy_field(uint8_t *to, bool *has, ProtobufCBinaryData field)
{
    *has = field.len != 0;
    if (*has)
        memcpy(to, field.data, field.len);
}

/* --- Requests --- */

static tacit_status pack_request(const tacit_request *request, uint8_t **bytes, size_t *size,
                                 tacit_error *err)
{
    Tacit__Request message = TACIT__REQUEST__INIT;
    if (request->body.size > TACIT_BODY_MAX)
        return tacit_fail(err, TACIT_USAGE, "request body of %zu bytes: at most %u can be sent",
                          request->body.size, TACIT_BODY_MAX);
    message.protocol = request->protocol;
    message.method = (Tacit__Method)request->method;
    message.device = tacit_field_of(request->device, request->has_device ? TACIT_DEVICE_BYTES : 0);
    message.counter = request->counter;
    message.server_nonce =
        tacit_field_of(request->nonce, request->has_nonce ? TACIT_NONCE_BYTES : 0);
    message.body = tacit_field_of(request->body.data, request->body.size);
    return tacit_message_pack(&message, TACIT_MESSAGE_MAX, bytes, size, err);
}

tacit_status tacit_request_build(const tacit_request *request, const tacit_identity *signer,
                                 tacit_buffer *out, uint8_t hash[TACIT_DIGEST_BYTES],
                                 tacit_error *err)
{
    uint8_t *bytes = NULL, signature[TACIT_SIGNATURE_BYTES];
    size_t size;
    Tacit__SignedRequest message = TACIT__SIGNED_REQUEST__INIT;
    tacit_status status;
    TACIT_TRY(pack_request(request, &bytes, &size, err), done);
    tacit_digest(hash, bytes, size);
    message.request = tacit_field_of(bytes, size);
    if (signer) {
        TACIT_TRY(tacit_identity_sign(signer, request_domain, bytes, size, signature, err), done);
        message.signature = tacit_field_of(signature, sizeof signature);
    }
    TACIT_TRY(put_message(&message, out, err), done);
done:
    free(bytes);
    return status;
}

static tacit_status take_request(tacit_received *out, const Tacit__SignedRequest *outer,
                                 const Tacit__Request *inner, tacit_error *err)
{
    if (!is_empty_or(outer->signature, TACIT_SIGNATURE_BYTES) ||
        !is_empty_or(inner->device, TACIT_DEVICE_BYTES) ||
        !is_empty_or(inner->server_nonce, TACIT_NONCE_BYTES))
        return tacit_fail(err, TACIT_BAD_INPUT, "request: a field has the wrong size");
    if (inner->method == TACIT__METHOD__METHOD_UNSPECIFIED || inner->protocol == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "request: no method or protocol in it");
    uint8_t method[4];
    out->request.protocol = inner->protocol;
    out->request.method = (uint32_t)inner->method;
    out->request.counter = inner->counter;
    out->request.body = tacit_span_of(inner->body);
    copy_field(out->request.device, &out->request.has_device, inner->device);
    copy_field(out->request.nonce, &out->request.has_nonce, inner->server_nonce);
    tacit_digest(out->hash, outer->request.data, outer->request.len);
    tacit_store_u32(method, out->request.method);
    tacit_span parts[] = {{method, sizeof method}, out->request.body};
    tacit_digest_parts(out->action, "tacit-action-1", parts, 2);
    return TACIT_OK;
}

tacit_status tacit_request_parse(tacit_received *out, const uint8_t *bytes, size_t size,
                                 tacit_error *err)
{
    Tacit__SignedRequest *outer = NULL;
    Tacit__Request *inner = NULL;
    tacit_status status;
    *out = (tacit_received){0};
    envelope_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a request");
    TACIT_TRY(TACIT_UNPACK(&outer, tacit__signed_request, bytes, size, TACIT_MESSAGE_MAX, err),
              done);
    TACIT_TRY(TACIT_UNPACK(&inner, tacit__request, outer->request.data, outer->request.len,
                           TACIT_MESSAGE_MAX, err),
              done);
    TACIT_TRY(take_request(out, outer, inner, err), done);
done:
    *memory = (envelope_memory){outer, inner};
    if (status != TACIT_OK) {
        free_memory(memory);
        *out = (tacit_received){0};
        return status;
    }
    out->memory = memory;
    return TACIT_OK;
}

void tacit_received_free(tacit_received *r)
{
    free_memory(r->memory);
    *r = (tacit_received){0};
}

tacit_status tacit_request_verify(const tacit_received *r, const uint8_t key[TACIT_SIGN_KEY_BYTES],
                                  tacit_error *err)
{
    const envelope_memory *memory = r->memory;
    const Tacit__SignedRequest *outer = memory->outer;
    if (outer->signature.len == TACIT_SIGNATURE_BYTES &&
        tacit_signature_holds(key, request_domain, outer->request.data, outer->request.len,
                              outer->signature.data))
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY, "request: the device's signature %s",
                      outer->signature.len ? "does not hold" : "is missing");
}

tacit_status tacit_request_check_protocol(const tacit_received *r, tacit_error *err)
{
    uint32_t agreed, spoken = r->request.protocol;
    if (r->request.method == TACIT__METHOD__METHOD_HELLO)
        return TACIT_OK;
    return tacit_protocol_agree(spoken, spoken, "", &agreed, err);
}

/* --- Nonces --- */

static void nonce_of_hour(const uint8_t key[TACIT_NONCE_KEY_BYTES], const uint8_t *device,
                          uint64_t hour, uint8_t out[TACIT_NONCE_BYTES])
{
    static const char domain[] = "tacit-nonce-1";
    uint8_t input[sizeof domain + 1 + TACIT_DEVICE_BYTES + 8] = {0};
    memcpy(input, domain, sizeof domain);
    input[sizeof domain] = device != NULL;
    if (device)
        memcpy(input + sizeof domain + 1, device, TACIT_DEVICE_BYTES);
    tacit_store_u64(input + sizeof domain + 1 + TACIT_DEVICE_BYTES, hour);
    crypto_auth_hmacsha256(out, input, sizeof input, key);
}

void tacit_nonce_make(const uint8_t key[TACIT_NONCE_KEY_BYTES], const uint8_t *device,
                      uint64_t now_ms, uint8_t out[TACIT_NONCE_BYTES])
{
    nonce_of_hour(key, device, now_ms / HOUR_MS, out);
}

bool tacit_nonce_holds(const uint8_t key[TACIT_NONCE_KEY_BYTES], const uint8_t *device,
                       uint64_t now_ms, const uint8_t nonce[TACIT_NONCE_BYTES])
{
    uint8_t expected[TACIT_NONCE_BYTES];
    bool holds = false;
    for (uint64_t back = 0; back < 2; back++) {
        nonce_of_hour(key, device, now_ms / HOUR_MS - back, expected);
        holds |= sodium_memcmp(expected, nonce, sizeof expected) == 0;
    }
    return holds;
}

tacit_verdict tacit_request_judge(const tacit_received *r, uint64_t last_counter,
                                  const uint8_t last_action[TACIT_DIGEST_BYTES],
                                  const uint8_t nonce_key[TACIT_NONCE_KEY_BYTES], uint64_t now_ms)
{
    const tacit_request *request = &r->request;
    const uint8_t *device = request->has_device ? request->device : NULL;
    if (request->counter == 0 || request->counter < last_counter)
        return TACIT_VERDICT_OLD;
    if (request->counter == last_counter)
        return sodium_memcmp(r->action, last_action, TACIT_DIGEST_BYTES) == 0 ? TACIT_VERDICT_REPEAT
                                                                              : TACIT_VERDICT_CLONE;
    if (!request->has_nonce || !tacit_nonce_holds(nonce_key, device, now_ms, request->nonce))
        return TACIT_VERDICT_STALE;
    return TACIT_VERDICT_FRESH;
}

/* --- Replies --- */

/* Strings of protobuf are UTF-8; an error's line may hold a path that is not. */
static void clean_message(char out[MESSAGE_BYTES + 1], const char *message)
{
    size_t size = strnlen(message, MESSAGE_BYTES);
    memcpy(out, message, size);
    out[size] = 0;
    if (tacit_utf8_valid((const uint8_t *)out, size))
        return;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)out[i] >= 0x80)
            out[i] = '?';
}

static tacit_status pack_reply(const tacit_received *r, tacit_status result, char *message,
                               const uint8_t *nonce, tacit_span body, uint8_t **bytes, size_t *size,
                               tacit_error *err)
{
    Tacit__Reply reply = TACIT__REPLY__INIT;
    const tacit_request *request = &r->request;
    if (body.size > TACIT_BODY_MAX)
        return tacit_fail(err, TACIT_USAGE, "reply body of %zu bytes: at most %u can be sent",
                          body.size, TACIT_BODY_MAX);
    reply.device = tacit_field_of(request->device, request->has_device ? TACIT_DEVICE_BYTES : 0);
    reply.counter = request->counter;
    reply.request_hash = tacit_field_of(r->hash, TACIT_DIGEST_BYTES);
    reply.status = (uint32_t)result;
    reply.message = message;
    reply.server_nonce = tacit_field_of(nonce, nonce ? TACIT_NONCE_BYTES : 0);
    reply.body = tacit_field_of(body.data, body.size);
    return tacit_message_pack(&reply, TACIT_MESSAGE_MAX, bytes, size, err);
}

tacit_status tacit_reply_build(const tacit_received *r, tacit_status result, const char *message,
                               const uint8_t *nonce, tacit_span body, const tacit_identity *signer,
                               tacit_buffer *out, tacit_error *err)
{
    char line[MESSAGE_BYTES + 1];
    uint8_t *bytes = NULL, signature[TACIT_SIGNATURE_BYTES];
    size_t size;
    Tacit__SignedReply outer = TACIT__SIGNED_REPLY__INIT;
    tacit_status status;
    clean_message(line, message ? message : "");
    TACIT_TRY(pack_reply(r, result, line, nonce, body, &bytes, &size, err), done);
    outer.reply = tacit_field_of(bytes, size);
    if (signer) {
        TACIT_TRY(tacit_identity_sign(signer, reply_domain, bytes, size, signature, err), done);
        outer.signature = tacit_field_of(signature, sizeof signature);
    }
    TACIT_TRY(put_message(&outer, out, err), done);
done:
    free(bytes);
    return status;
}

static bool is_known_status(uint32_t status)
{
    return status <= TACIT_INTEGRITY || (status >= TACIT_NO_MEMORY && status <= TACIT_CONFLICT);
}

static tacit_status check_signature(const Tacit__SignedReply *outer, const uint8_t *key,
                                    tacit_error *err)
{
    if (outer->signature.len == TACIT_SIGNATURE_BYTES &&
        tacit_signature_holds(key, reply_domain, outer->reply.data, outer->reply.len,
                              outer->signature.data))
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY,
                      "reply: the server's signature %s; this is not the server that enrolled "
                      "this device",
                      outer->signature.len ? "does not hold" : "is missing");
}

static tacit_status take_reply(tacit_reply *out, const Tacit__Reply *inner, tacit_error *err)
{
    if (!is_empty_or(inner->device, TACIT_DEVICE_BYTES) ||
        !tacit_bytes_are(inner->request_hash, TACIT_DIGEST_BYTES) ||
        !is_empty_or(inner->server_nonce, TACIT_NONCE_BYTES))
        return tacit_fail(err, TACIT_BAD_INPUT, "reply: a field has the wrong size");
    if (!is_known_status(inner->status))
        return tacit_fail(err, TACIT_BAD_INPUT, "reply: unknown status %u", inner->status);
    copy_field(out->device, &out->has_device, inner->device);
    copy_field(out->nonce, &out->has_nonce, inner->server_nonce);
    memcpy(out->request_hash, inner->request_hash.data, TACIT_DIGEST_BYTES);
    out->counter = inner->counter;
    out->status = (tacit_status)inner->status;
    out->message = inner->message;
    out->body = tacit_span_of(inner->body);
    return TACIT_OK;
}

static tacit_status check_answers(const tacit_reply *reply, const tacit_request *request,
                                  const uint8_t request_hash[TACIT_DIGEST_BYTES], tacit_error *err)
{
    if (sodium_memcmp(reply->request_hash, request_hash, TACIT_DIGEST_BYTES) == 0 &&
        reply->counter == request->counter && reply->has_device == request->has_device &&
        (!reply->has_device ||
         sodium_memcmp(reply->device, request->device, TACIT_DEVICE_BYTES) == 0))
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY, "reply: it answers another request");
}

tacit_status tacit_reply_parse(tacit_answer *out, const uint8_t *bytes, size_t size,
                               const tacit_request *request,
                               const uint8_t request_hash[TACIT_DIGEST_BYTES],
                               const uint8_t *server_key, tacit_error *err)
{
    Tacit__SignedReply *outer = NULL;
    Tacit__Reply *inner = NULL;
    tacit_status status;
    *out = (tacit_answer){0};
    envelope_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a reply");
    TACIT_TRY(TACIT_UNPACK(&outer, tacit__signed_reply, bytes, size, TACIT_MESSAGE_MAX, err), done);
    if (server_key)
        TACIT_TRY(check_signature(outer, server_key, err), done);
    TACIT_TRY(TACIT_UNPACK(&inner, tacit__reply, outer->reply.data, outer->reply.len,
                           TACIT_MESSAGE_MAX, err),
              done);
    TACIT_TRY(take_reply(&out->reply, inner, err), done);
    TACIT_TRY(check_answers(&out->reply, request, request_hash, err), done);
done:
    *memory = (envelope_memory){outer, inner};
    out->memory = memory;
    if (status != TACIT_OK)
        tacit_answer_free(out);
    return status;
}

tacit_status tacit_reply_verify(const uint8_t *bytes, size_t size,
                                const uint8_t server_key[TACIT_SIGN_KEY_BYTES], tacit_error *err)
{
    Tacit__SignedReply *outer;
    tacit_status status =
        TACIT_UNPACK(&outer, tacit__signed_reply, bytes, size, TACIT_MESSAGE_MAX, err);
    if (status != TACIT_OK)
        return status;
    status = check_signature(outer, server_key, err);
    tacit_message_free(outer);
    return status;
}

void tacit_answer_free(tacit_answer *a)
{
    free_memory(a->memory);
    *a = (tacit_answer){0};
}

/* --- Versions --- */

tacit_status tacit_protocol_agree(uint32_t peer_min, uint32_t peer_max, const char *peer_version,
                                  uint32_t *protocol, tacit_error *err)
{
    uint32_t high = peer_max < TACIT_PROTOCOL_MAX ? peer_max : TACIT_PROTOCOL_MAX;
    uint32_t low = peer_min > TACIT_PROTOCOL_MIN ? peer_min : TACIT_PROTOCOL_MIN;
    if (peer_min <= peer_max && low <= high) {
        *protocol = high;
        return TACIT_OK;
    }
    const char *older = peer_max < TACIT_PROTOCOL_MIN ? "the other side" : "this side";
    return tacit_fail(err, TACIT_REFUSED,
                      "protocols do not meet: this side (tacit %s) speaks %u to %u, the other side "
                      "(tacit %.40s) %u to %u; update %s",
                      TACIT_VERSION, TACIT_PROTOCOL_MIN, TACIT_PROTOCOL_MAX,
                      peer_version && *peer_version ? peer_version : "of unknown version", peer_min,
                      peer_max, older);
}
