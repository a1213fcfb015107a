/* The device's side of the conversation that envelope.h describes. */
#include "common/clock.h"
#include "common/envelope.h"
#include "common/message.h"
#include "proto/wire.pb-c.h"

#include <stdlib.h>
#include <string.h>

struct tacit_caller {
    tacit_caller_setup setup;
    uint8_t device[TACIT_DEVICE_BYTES];
    uint8_t server_key[TACIT_SIGN_KEY_BYTES];
    bool has_server_key;
    uint8_t nonce[TACIT_NONCE_BYTES];
    bool has_nonce;
    uint32_t protocol;
    uint64_t counter; /* in memory, where nothing stores it */
};

tacit_status tacit_caller_new(tacit_caller **out, const tacit_caller_setup *setup, tacit_error *err)
{
    *out = NULL;
    if (!setup->link || (setup->device && !setup->identity))
        return tacit_fail(err, TACIT_USAGE, "a caller needs a link, and with a device its keys");
    tacit_caller *c = calloc(1, sizeof *c);
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a caller");
    c->setup = *setup;
    c->protocol = TACIT_PROTOCOL_MAX;
    c->counter = setup->first_counter ? setup->first_counter - 1 : 0;
    if (setup->device)
        memcpy(c->device, setup->device, sizeof c->device);
    if (setup->server_key) {
        memcpy(c->server_key, setup->server_key, sizeof c->server_key);
        c->has_server_key = true;
    }
    *out = c;
    return TACIT_OK;
}

void tacit_caller_free(tacit_caller *c)
{
    free(c);
}

const uint8_t *tacit_caller_server_key(const tacit_caller *c)
{
    return c->has_server_key ? c->server_key : NULL;
}

/* One request with its reply, checked as far as the server's key is known. `raw` keeps the bytes of
 * the reply for HELLO, whose key comes with it. */
static tacit_status exchange(tacit_caller *c, const tacit_request *request,
                             const tacit_identity *signer, uint64_t deadline_ms, tacit_buffer *raw,
                             tacit_answer *answer, tacit_error *err)
{
    tacit_buffer out = {0};
    uint8_t hash[TACIT_DIGEST_BYTES];
    uint64_t now = tacit_clock_monotonic_ms();
    tacit_status status;
    TACIT_TRY(tacit_request_build(request, signer, &out, hash, err), done);
    TACIT_TRY(tacit_link_call_patiently(c->setup.link, out.data, out.size,
                                        deadline_ms > now ? deadline_ms - now : 0, raw, err),
              done);
    TACIT_TRY(tacit_reply_parse(answer, raw->data, raw->size, request, hash,
                                c->has_server_key ? c->server_key : NULL, err),
              done);
    if (answer->reply.has_nonce) {
        memcpy(c->nonce, answer->reply.nonce, sizeof c->nonce);
        c->has_nonce = true;
    }
done:
    tacit_buffer_free(&out);
    return status;
}

static tacit_status fail_reply(const tacit_answer *answer, tacit_error *err)
{
    return tacit_fail(err, answer->reply.status, "server: %s", answer->reply.message);
}

/* Versions, and the server's key where none is pinned: the reply must then be signed by the key
 * that it brings, and TLS says that the server is the one with the trusted root. */
static tacit_status take_hello(tacit_caller *c, const tacit_buffer *raw, const tacit_answer *answer,
                               tacit_error *err)
{
    Tacit__HelloReply *hello = NULL;
    tacit_span body = answer->reply.body;
    tacit_status status;
    if (answer->reply.status != TACIT_OK)
        return fail_reply(answer, err);
    TACIT_TRY(
        TACIT_UNPACK(&hello, tacit__hello_reply, body.data, body.size, TACIT_MESSAGE_MAX, err),
        done);
    TACIT_TRY(tacit_protocol_agree(hello->min_protocol, hello->max_protocol, hello->version,
                                   &c->protocol, err),
              done);
    if (!c->has_nonce || !tacit_bytes_are(hello->server_key, TACIT_SIGN_KEY_BYTES)) {
        status = tacit_fail(err, TACIT_BAD_INPUT, "server: HELLO without a nonce or a key");
        goto done;
    }
    if (!c->has_server_key) {
        TACIT_TRY(tacit_reply_verify(raw->data, raw->size, hello->server_key.data, err), done);
        memcpy(c->server_key, hello->server_key.data, sizeof c->server_key);
        c->has_server_key = true;
    }
done:
    tacit_message_free(hello);
    return status;
}

static tacit_status say_hello(tacit_caller *c, uint64_t deadline_ms, tacit_error *err)
{
    Tacit__HelloRequest hello = TACIT__HELLO_REQUEST__INIT;
    char version[] = TACIT_VERSION;
    tacit_buffer raw = {0};
    tacit_answer answer = {0};
    uint8_t *body = NULL;
    tacit_status status;
    tacit_request request = {.protocol = TACIT_PROTOCOL_MIN,
                             .method = TACIT__METHOD__METHOD_HELLO,
                             .has_device = c->setup.device != NULL};
    memcpy(request.device, c->device, sizeof request.device);
    hello.min_protocol = TACIT_PROTOCOL_MIN;
    hello.max_protocol = TACIT_PROTOCOL_MAX;
    hello.version = version;
    TACIT_TRY(tacit_message_pack(&hello, TACIT_BODY_MAX, &body, &request.body.size, err), done);
    request.body.data = body;
    TACIT_TRY(exchange(c, &request, NULL, deadline_ms, &raw, &answer, err), done);
    TACIT_TRY(take_hello(c, &raw, &answer, err), done);
done:
    if (status != TACIT_OK)
        c->has_nonce = false;
    tacit_answer_free(&answer);
    tacit_buffer_free(&raw);
    free(body);
    return status;
}

static tacit_status next_counter(tacit_caller *c, uint64_t *counter, tacit_error *err)
{
    if (!c->setup.device)
        *counter = 0;
    else if (c->setup.next_counter)
        return c->setup.next_counter(c->setup.ctx, counter, err);
    else
        *counter = ++c->counter;
    return TACIT_OK;
}

/* Sends with the newest nonce; once more where the server says that it was stale. The counter and
 * the body stay, so a server that did execute the first one repeats its reply. */
static tacit_status send_fresh(tacit_caller *c, tacit_request *request, uint64_t deadline_ms,
                               tacit_answer *answer, tacit_error *err)
{
    tacit_buffer raw = {0};
    tacit_status status = TACIT_OK;
    const tacit_identity *signer = c->setup.device ? c->setup.identity : NULL;
    for (int attempt = 0; attempt < 2; attempt++) {
        request->has_nonce = c->has_nonce;
        memcpy(request->nonce, c->nonce, sizeof request->nonce);
        tacit_answer_free(answer);
        status = exchange(c, request, signer, deadline_ms, &raw, answer, err);
        bool stale = status == TACIT_OK && answer->reply.status == TACIT_AGAIN &&
                     answer->reply.has_nonce &&
                     memcmp(c->nonce, request->nonce, sizeof c->nonce) != 0;
        if (!stale)
            break;
    }
    tacit_buffer_free(&raw);
    return status;
}

static uint64_t deadline_of(const tacit_caller *c)
{
    uint64_t deadline_ms;
    if (!tacit_add_u64(tacit_clock_monotonic_ms(), c->setup.patience_ms, &deadline_ms))
        deadline_ms = UINT64_MAX;
    return deadline_ms;
}

tacit_status tacit_caller_nonce(tacit_caller *c, uint8_t out[TACIT_NONCE_BYTES], tacit_error *err)
{
    tacit_status status = c->has_nonce ? TACIT_OK : say_hello(c, deadline_of(c), err);
    if (status == TACIT_OK)
        memcpy(out, c->nonce, sizeof c->nonce);
    return status;
}

tacit_status tacit_caller_call(tacit_caller *c, uint32_t method, tacit_span body,
                               tacit_answer *answer, tacit_error *err)
{
    uint64_t deadline_ms = deadline_of(c);
    tacit_request request = {.method = method, .has_device = c->setup.device != NULL, .body = body};
    tacit_status status = TACIT_OK;
    *answer = (tacit_answer){0};
    memcpy(request.device, c->device, sizeof request.device);
    if (!c->setup.control && !c->has_nonce)
        status = say_hello(c, deadline_ms, err);
    if (status == TACIT_OK)
        status = next_counter(c, &request.counter, err);
    if (status != TACIT_OK)
        return status;
    request.protocol = c->protocol;
    status = send_fresh(c, &request, deadline_ms, answer, err);
    if (status == TACIT_OK && answer->reply.status != TACIT_OK)
        status = fail_reply(answer, err);
    return status;
}
