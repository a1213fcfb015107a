/* Signed requests and replies: every altered byte is noticed, replies answer one request alone, and
 * the rules of counters and nonces as a table. The conversation runs against a server of this test
 * over a real socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/envelope.h"
#include "common/message.h"
#include "proto/wire.pb-c.h"

#include <nng/nng.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOUR_MS 3600000ull

static tacit_identity *device, *server, *stranger;
static const uint8_t device_id[16] = {9, 8, 7, 6};
static const uint8_t nonce_key[32] = {42};

static int setup(void **state)
{
    tacit_error err;
    (void)state;
    return tacit_identity_ephemeral(&device, &err) != TACIT_OK ||
           tacit_identity_ephemeral(&server, &err) != TACIT_OK ||
           tacit_identity_ephemeral(&stranger, &err) != TACIT_OK;
}

static int teardown(void **state)
{
    (void)state;
    tacit_identity_free(device);
    tacit_identity_free(server);
    tacit_identity_free(stranger);
    nng_fini();
    return 0;
}

static tacit_request sample(uint64_t counter, const char *body)
{
    tacit_request request = {.protocol = 1,
                             .method = TACIT__METHOD__METHOD_RESERVE,
                             .has_device = true,
                             .counter = counter,
                             .has_nonce = true,
                             .body = {(const uint8_t *)body, strlen(body)}};
    memcpy(request.device, device_id, 16);
    tacit_nonce_make(nonce_key, device_id, 10 * HOUR_MS, request.nonce);
    return request;
}

static void build(const tacit_request *request, const tacit_identity *signer, tacit_buffer *out,
                  uint8_t hash[32])
{
    tacit_error err;
    assert_int_equal(tacit_request_build(request, signer, out, hash, &err), TACIT_OK);
}

/* The bytes against the schema and libsodium alone. */
static void request_is_what_the_schema_says(void **state)
{
    tacit_request request = sample(7, "body");
    tacit_buffer bytes = {0};
    uint8_t hash[32], expected[32], joined[4096] = "tacit-request-1";
    (void)state;
    build(&request, device, &bytes, hash);
    Tacit__SignedRequest *outer = tacit__signed_request__unpack(NULL, bytes.size, bytes.data);
    assert_non_null(outer);
    memcpy(joined + 16, outer->request.data, outer->request.len);
    assert_int_equal(crypto_sign_verify_detached(outer->signature.data, joined,
                                                 16 + outer->request.len,
                                                 tacit_identity_sign_key(device)),
                     0);
    crypto_hash_sha256(expected, outer->request.data, outer->request.len);
    assert_memory_equal(hash, expected, 32);
    Tacit__Request *inner = tacit__request__unpack(NULL, outer->request.len, outer->request.data);
    assert_int_equal(inner->counter, 7);
    assert_int_equal(inner->method, TACIT__METHOD__METHOD_RESERVE);
    assert_memory_equal(inner->body.data, "body", 4);
    tacit__request__free_unpacked(inner, NULL);
    tacit__signed_request__free_unpacked(outer, NULL);
    tacit_buffer_free(&bytes);
}

static void request_survives_the_trip(void **state)
{
    tacit_request request = sample(7, "body");
    tacit_buffer bytes = {0};
    uint8_t hash[32];
    tacit_received r;
    tacit_error err;
    (void)state;
    build(&request, device, &bytes, hash);
    assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_OK);
    assert_memory_equal(r.hash, hash, 32);
    assert_int_equal(r.request.counter, 7);
    assert_true(r.request.has_device && r.request.has_nonce);
    assert_memory_equal(r.request.device, device_id, 16);
    assert_memory_equal(r.request.nonce, request.nonce, 32);
    assert_int_equal(r.request.body.size, 4);
    assert_int_equal(tacit_request_verify(&r, tacit_identity_sign_key(device), &err), TACIT_OK);
    assert_int_equal(tacit_request_verify(&r, tacit_identity_sign_key(stranger), &err),
                     TACIT_INTEGRITY);
    tacit_received_free(&r);
    build(&request, NULL, &bytes, hash);
    assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_OK);
    assert_int_equal(tacit_request_verify(&r, tacit_identity_sign_key(device), &err),
                     TACIT_INTEGRITY);
    assert_non_null(strstr(err.message, "missing"));
    tacit_received_free(&r);
    tacit_buffer_free(&bytes);
}

static void every_altered_byte_is_noticed(void **state)
{
    tacit_request request = sample(7, "the body of a reserve");
    tacit_buffer bytes = {0};
    uint8_t hash[32];
    tacit_received r;
    tacit_error err;
    (void)state;
    build(&request, device, &bytes, hash);
    for (size_t i = 0; i < bytes.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes.data[i] ^= (uint8_t)(1 << bit);
            tacit_status status = tacit_request_parse(&r, bytes.data, bytes.size, &err);
            if (status == TACIT_OK) {
                status = tacit_request_verify(&r, tacit_identity_sign_key(device), &err);
                tacit_received_free(&r);
            }
            assert_int_not_equal(status, TACIT_OK);
            bytes.data[i] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t cut = 0; cut < bytes.size; cut++) {
        tacit_status status = tacit_request_parse(&r, bytes.data, cut, &err);
        if (status == TACIT_OK) {
            status = tacit_request_verify(&r, tacit_identity_sign_key(device), &err);
            tacit_received_free(&r);
        }
        assert_int_not_equal(status, TACIT_OK);
    }
    tacit_buffer_free(&bytes);
}

static void hostile_requests_are_refused(void **state)
{
    tacit_received r;
    tacit_error err;
    uint8_t hash[32];
    tacit_buffer bytes = {0};
    (void)state;
    uint8_t *noise = malloc(TACIT_MESSAGE_MAX + 1);
    for (int round = 0; round < 200; round++) {
        uint8_t seed[randombytes_SEEDBYTES] = {(uint8_t)round};
        size_t size = (size_t)round * 37;
        randombytes_buf_deterministic(noise, size, seed);
        if (tacit_request_parse(&r, noise, size, &err) == TACIT_OK)
            tacit_received_free(&r);
    }
    memset(noise, 0, TACIT_MESSAGE_MAX + 1);
    assert_int_equal(tacit_request_parse(&r, noise, TACIT_MESSAGE_MAX + 1, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_request_parse(&r, noise, 0, &err), TACIT_BAD_INPUT);
    free(noise);
    tacit_request request = sample(1, "x");
    request.method = 99; /* not in the schema */
    build(&request, device, &bytes, hash);
    assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_BAD_INPUT);
    request.method = 0;
    build(&request, device, &bytes, hash);
    assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_BAD_INPUT);
    uint8_t *huge = calloc(1, TACIT_BODY_MAX + 1);
    request = sample(1, "x");
    request.body = (tacit_span){huge, TACIT_BODY_MAX + 1};
    assert_int_equal(tacit_request_build(&request, device, &bytes, hash, &err), TACIT_USAGE);
    request.body.size--;
    build(&request, device, &bytes, hash); /* the largest body fits into a message */
    assert_true(bytes.size <= TACIT_MESSAGE_MAX);
    assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_OK);
    tacit_received_free(&r);
    free(huge);
    tacit_buffer_free(&bytes);
}

static void nonces_live_for_two_hours(void **state)
{
    uint8_t nonce[32], other[32];
    static const uint8_t another[16] = {1};
    (void)state;
    tacit_nonce_make(nonce_key, device_id, 10 * HOUR_MS + 5, nonce);
    assert_true(tacit_nonce_holds(nonce_key, device_id, 10 * HOUR_MS, nonce));
    assert_true(tacit_nonce_holds(nonce_key, device_id, 12 * HOUR_MS - 1, nonce));
    assert_false(tacit_nonce_holds(nonce_key, device_id, 12 * HOUR_MS, nonce));
    assert_false(tacit_nonce_holds(nonce_key, device_id, 9 * HOUR_MS, nonce));
    assert_false(tacit_nonce_holds(nonce_key, another, 10 * HOUR_MS, nonce));
    assert_false(tacit_nonce_holds(nonce_key, NULL, 10 * HOUR_MS, nonce));
    uint8_t other_key[32] = {43};
    assert_false(tacit_nonce_holds(other_key, device_id, 10 * HOUR_MS, nonce));
    static const uint8_t zeros[16] = {0};
    tacit_nonce_make(nonce_key, NULL, 10 * HOUR_MS, other);
    assert_false(tacit_nonce_holds(nonce_key, zeros, 10 * HOUR_MS, other));
}

static void judgements_follow_the_table(void **state)
{
    static const struct {
        uint64_t counter, last;
        bool same_body, has_nonce;
        uint64_t now_hours;
        tacit_verdict verdict;
    } rows[] = {
        {1, 0, false, true, 10, TACIT_VERDICT_FRESH},
        {8, 7, false, true, 10, TACIT_VERDICT_FRESH},
        {100, 7, true, true, 11, TACIT_VERDICT_FRESH},
        {7, 7, true, true, 10, TACIT_VERDICT_REPEAT},
        {7, 7, true, true, 99, TACIT_VERDICT_REPEAT},
        {7, 7, true, false, 99, TACIT_VERDICT_REPEAT},
        {7, 7, false, true, 10, TACIT_VERDICT_CLONE},
        {7, 7, false, true, 99, TACIT_VERDICT_CLONE},
        {6, 7, true, true, 10, TACIT_VERDICT_OLD},
        {0, 0, false, true, 10, TACIT_VERDICT_OLD},
        {0, 0, true, true, 10, TACIT_VERDICT_OLD},
        {8, 7, false, true, 12, TACIT_VERDICT_STALE},
        {8, 7, false, false, 10, TACIT_VERDICT_STALE},
        {8, 7, false, true, 9, TACIT_VERDICT_STALE},
        {UINT64_MAX, 7, false, true, 10, TACIT_VERDICT_FRESH},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tacit_request request = sample(rows[i].counter, "now");
        tacit_buffer bytes = {0};
        uint8_t hash[32], last[32] = {0};
        tacit_received r;
        tacit_error err;
        request.has_nonce = rows[i].has_nonce;
        build(&request, device, &bytes, hash);
        assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_OK);
        if (rows[i].same_body)
            memcpy(last, r.action, 32);
        assert_int_equal(
            tacit_request_judge(&r, rows[i].last, last, nonce_key, rows[i].now_hours * HOUR_MS),
            rows[i].verdict);
        tacit_received_free(&r);
        tacit_buffer_free(&bytes);
    }
}

/* The action is the same whatever nonce and counter come with it, and differs by method and body.
 */
static void actions_name_method_and_body(void **state)
{
    tacit_request variants[4] = {sample(1, "a"), sample(2, "a"), sample(1, "b"), sample(1, "a")};
    uint8_t actions[4][32], hash[32];
    (void)state;
    variants[1].has_nonce = false;
    variants[3].method = TACIT__METHOD__METHOD_ABANDON;
    for (int i = 0; i < 4; i++) {
        tacit_buffer bytes = {0};
        tacit_received r;
        tacit_error err;
        build(&variants[i], device, &bytes, hash);
        assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_OK);
        memcpy(actions[i], r.action, 32);
        tacit_received_free(&r);
        tacit_buffer_free(&bytes);
    }
    assert_memory_equal(actions[0], actions[1], 32);
    assert_memory_not_equal(actions[0], actions[2], 32);
    assert_memory_not_equal(actions[0], actions[3], 32);
}

static void make_reply(const tacit_request *request, tacit_status status, const char *message,
                       tacit_buffer *out, uint8_t hash[32])
{
    tacit_buffer bytes = {0};
    tacit_received r;
    tacit_error err;
    uint8_t nonce[32] = {5};
    tacit_span body = {(const uint8_t *)"result", 6};
    build(request, device, &bytes, hash);
    assert_int_equal(tacit_request_parse(&r, bytes.data, bytes.size, &err), TACIT_OK);
    assert_int_equal(tacit_reply_build(&r, status, message, nonce, body, server, out, &err),
                     TACIT_OK);
    tacit_received_free(&r);
    tacit_buffer_free(&bytes);
}

static void replies_answer_one_request(void **state)
{
    tacit_request request = sample(7, "body"), other;
    tacit_buffer reply = {0}, bytes = {0};
    uint8_t hash[32], other_hash[32];
    tacit_answer answer;
    tacit_error err;
    const uint8_t *key = tacit_identity_sign_key(server);
    (void)state;
    make_reply(&request, TACIT_OK, NULL, &reply, hash);
    assert_int_equal(tacit_reply_parse(&answer, reply.data, reply.size, &request, hash, key, &err),
                     TACIT_OK);
    assert_int_equal(answer.reply.status, TACIT_OK);
    assert_string_equal(answer.reply.message, "");
    assert_memory_equal(answer.reply.body.data, "result", 6);
    assert_int_equal(answer.reply.nonce[0], 5);
    tacit_answer_free(&answer);
    other = request;
    other.counter++;
    assert_int_equal(tacit_reply_parse(&answer, reply.data, reply.size, &other, hash, key, &err),
                     TACIT_INTEGRITY);
    other = request;
    other.device[3] ^= 1;
    assert_int_equal(tacit_reply_parse(&answer, reply.data, reply.size, &other, hash, key, &err),
                     TACIT_INTEGRITY);
    other = sample(7, "another body");
    build(&other, device, &bytes, other_hash);
    assert_int_equal(
        tacit_reply_parse(&answer, reply.data, reply.size, &other, other_hash, key, &err),
        TACIT_INTEGRITY);
    assert_int_equal(tacit_reply_parse(&answer, reply.data, reply.size, &request, hash,
                                       tacit_identity_sign_key(stranger), &err),
                     TACIT_INTEGRITY);
    tacit_buffer_free(&reply);
    tacit_buffer_free(&bytes);
}

static void every_altered_byte_of_a_reply_is_noticed(void **state)
{
    tacit_request request = sample(7, "body");
    tacit_buffer reply = {0};
    uint8_t hash[32];
    tacit_answer answer;
    tacit_error err;
    const uint8_t *key = tacit_identity_sign_key(server);
    (void)state;
    make_reply(&request, TACIT_REFUSED, "no budget left", &reply, hash);
    for (size_t i = 0; i < reply.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            reply.data[i] ^= (uint8_t)(1 << bit);
            assert_int_not_equal(
                tacit_reply_parse(&answer, reply.data, reply.size, &request, hash, key, &err),
                TACIT_OK);
            assert_null(answer.memory);
            reply.data[i] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t cut = 0; cut < reply.size; cut++)
        assert_int_not_equal(tacit_reply_parse(&answer, reply.data, cut, &request, hash, key, &err),
                             TACIT_OK);
    assert_int_equal(tacit_reply_parse(&answer, reply.data, reply.size, &request, hash, key, &err),
                     TACIT_OK);
    assert_string_equal(answer.reply.message, "no budget left");
    tacit_answer_free(&answer);
    tacit_buffer_free(&reply);
}

static void messages_become_text(void **state)
{
    tacit_request request = sample(7, "body");
    tacit_buffer reply = {0};
    uint8_t hash[32];
    tacit_answer answer;
    tacit_error err;
    char message[2000];
    const uint8_t *key = tacit_identity_sign_key(server);
    (void)state;
    memset(message, 'm', sizeof message);
    message[1999] = 0;
    make_reply(&request, TACIT_FAILED, message, &reply, hash);
    assert_int_equal(tacit_reply_parse(&answer, reply.data, reply.size, &request, hash, key, &err),
                     TACIT_OK);
    assert_int_equal(strlen(answer.reply.message), 900);
    tacit_answer_free(&answer);
    make_reply(&request, TACIT_FAILED, "path \xff\xfe", &reply, hash);
    assert_int_equal(tacit_reply_parse(&answer, reply.data, reply.size, &request, hash, key, &err),
                     TACIT_OK);
    assert_string_equal(answer.reply.message, "path ??");
    tacit_answer_free(&answer);
    tacit_buffer_free(&reply);
}

static void versions_are_negotiated(void **state)
{
    uint32_t protocol;
    tacit_error err;
    (void)state;
    assert_int_equal(tacit_protocol_agree(1, 1, "0.1", &protocol, &err), TACIT_OK);
    assert_int_equal(protocol, 1);
    assert_int_equal(tacit_protocol_agree(1, 9, "9.0", &protocol, &err), TACIT_OK);
    assert_int_equal(protocol, TACIT_PROTOCOL_MAX);
    assert_int_equal(tacit_protocol_agree(5, 7, "9.0", &protocol, &err), TACIT_REFUSED);
    assert_non_null(strstr(err.message, "1 to 1"));
    assert_non_null(strstr(err.message, "5 to 7"));
    assert_non_null(strstr(err.message, "tacit 9.0"));
    assert_non_null(strstr(err.message, TACIT_VERSION));
    assert_non_null(strstr(err.message, "update this side"));
    assert_int_equal(tacit_protocol_agree(0, 0, "0.0", &protocol, &err), TACIT_REFUSED);
    assert_non_null(strstr(err.message, "update the other side"));
    assert_int_equal(tacit_protocol_agree(2, 1, "0.0", &protocol, &err), TACIT_REFUSED);
}

/* --- The conversation --- */

/* A server with one device: keeps the last counter and action, counts executions. */
typedef struct host {
    uint64_t last;
    uint8_t action[32];
    int executed, requests, hellos;
    int lose;            /* replies still to lose after executing */
    bool forgets_nonces; /* the first nonce is of a key that is gone */
    uint32_t min, max;   /* protocols */
    const tacit_identity *key;
    tacit_status answer;
} host;

static uint64_t fixed_clock(void *ctx)
{
    (void)ctx;
    return 10 * HOUR_MS;
}

static tacit_status answer_hello(host *h, const tacit_received *r, const uint8_t *nonce,
                                 tacit_buffer *reply, tacit_error *err)
{
    Tacit__HelloReply hello = TACIT__HELLO_REPLY__INIT;
    char version[] = "7.7";
    uint8_t *body;
    size_t size;
    h->hellos++;
    hello.min_protocol = h->min;
    hello.max_protocol = h->max;
    hello.version = version;
    hello.server_key = tacit_field_of(tacit_identity_sign_key(h->key), 32);
    tacit_status status = tacit_message_pack(&hello, 1000, &body, &size, err);
    if (status != TACIT_OK)
        return status;
    status =
        tacit_reply_build(r, TACIT_OK, NULL, nonce, (tacit_span){body, size}, h->key, reply, err);
    free(body);
    return status;
}

static tacit_status answer_request(host *h, const tacit_received *r, const uint8_t *nonce,
                                   tacit_buffer *reply, bool *lost, tacit_error *err)
{
    tacit_status status = tacit_request_verify(r, tacit_identity_sign_key(device), err);
    if (status != TACIT_OK)
        return status;
    tacit_verdict verdict =
        tacit_request_judge(r, h->last, h->action, nonce_key, tacit_clock_wall_ms());
    if (verdict == TACIT_VERDICT_STALE)
        return tacit_reply_build(r, TACIT_AGAIN, "stale nonce", nonce, (tacit_span){0}, h->key,
                                 reply, err);
    if (verdict != TACIT_VERDICT_FRESH && verdict != TACIT_VERDICT_REPEAT)
        return tacit_reply_build(r, TACIT_CONFLICT, "counter", nonce, (tacit_span){0}, h->key,
                                 reply, err);
    if (verdict == TACIT_VERDICT_FRESH) {
        h->executed++;
        h->last = r->request.counter;
        memcpy(h->action, r->action, 32);
        *lost = h->lose-- > 0;
    }
    return tacit_reply_build(r, h->answer, "says the server", nonce, r->request.body, h->key, reply,
                             err);
}

static bool serve(void *ctx, const uint8_t *request, size_t size, tacit_buffer *reply)
{
    host *h = ctx;
    tacit_received r;
    tacit_error err;
    uint8_t nonce[32], gone[32] = {1};
    bool lost = false;
    if (tacit_request_parse(&r, request, size, &err) != TACIT_OK)
        return false;
    bool is_hello = r.request.method == TACIT__METHOD__METHOD_HELLO;
    tacit_nonce_make(is_hello && h->forgets_nonces ? gone : nonce_key,
                     r.request.has_device ? r.request.device : NULL, tacit_clock_wall_ms(), nonce);
    h->requests++;
    tacit_status status = is_hello ? answer_hello(h, &r, nonce, reply, &err)
                                   : answer_request(h, &r, nonce, reply, &lost, &err);
    tacit_received_free(&r);
    return status == TACIT_OK && !lost;
}

typedef struct conversation {
    char folder[64], url[128];
    tacit_listener *listener;
    tacit_link *link;
    tacit_caller *caller;
} conversation;

static void begin(conversation *c, host *h, const uint8_t *server_key)
{
    tacit_error err;
    tacit_clock_inject(fixed_clock, NULL);
    snprintf(c->folder, sizeof c->folder, "/tmp/tacit-envelope-XXXXXX");
    assert_non_null(mkdtemp(c->folder));
    snprintf(c->url, sizeof c->url, "ipc://%s/s", c->folder);
    if (!h->key)
        h->key = server;
    if (!h->max)
        h->min = h->max = 1;
    tacit_listener_setup serving = {.url = c->url, .handler = serve, .ctx = h, .workers = 1};
    assert_int_equal(tacit_listener_start(&c->listener, &serving, &err), TACIT_OK);
    tacit_link_setup dialing = {.url = c->url};
    assert_int_equal(tacit_link_open(&c->link, &dialing, &err), TACIT_OK);
    tacit_caller_setup asking = {.link = c->link,
                                 .identity = device,
                                 .device = device_id,
                                 .server_key = server_key,
                                 .patience_ms = 60000,
                                 .first_counter = 5};
    assert_int_equal(tacit_caller_new(&c->caller, &asking, &err), TACIT_OK);
}

static void end(conversation *c)
{
    tacit_caller_free(c->caller);
    tacit_link_close(c->link);
    tacit_listener_stop(c->listener);
    rmdir(c->folder);
    tacit_clock_inject(NULL, NULL);
}

static tacit_status ask(conversation *c, const char *text, tacit_error *err)
{
    tacit_answer answer;
    tacit_span body = {(const uint8_t *)text, strlen(text)};
    tacit_status status =
        tacit_caller_call(c->caller, TACIT__METHOD__METHOD_RESERVE, body, &answer, err);
    if (status == TACIT_OK) {
        assert_int_equal(answer.reply.body.size, strlen(text));
        assert_memory_equal(answer.reply.body.data, text, strlen(text));
    }
    tacit_answer_free(&answer);
    return status;
}

static void conversation_says_hello_once(void **state)
{
    host h = {0};
    conversation c;
    tacit_error err;
    (void)state;
    begin(&c, &h, NULL);
    assert_null(tacit_caller_server_key(c.caller));
    assert_int_equal(ask(&c, "one", &err), TACIT_OK);
    assert_int_equal(ask(&c, "two", &err), TACIT_OK);
    assert_memory_equal(tacit_caller_server_key(c.caller), tacit_identity_sign_key(server), 32);
    assert_int_equal(h.hellos, 1);
    assert_int_equal(h.executed, 2);
    assert_int_equal(h.last, 6);
    end(&c);
}

static void lost_reply_executes_once(void **state)
{
    host h = {.lose = 1};
    conversation c;
    tacit_error err;
    (void)state;
    begin(&c, &h, tacit_identity_sign_key(server));
    assert_int_equal(ask(&c, "spend", &err), TACIT_OK);
    assert_int_equal(h.executed, 1);
    assert_int_equal(h.requests, 3); /* hello, the lost one, its repeat */
    end(&c);
}

static void stale_nonce_is_renewed(void **state)
{
    host h = {.forgets_nonces = true};
    conversation c;
    tacit_error err;
    (void)state;
    begin(&c, &h, tacit_identity_sign_key(server));
    assert_int_equal(ask(&c, "spend", &err), TACIT_OK);
    assert_int_equal(h.executed, 1);
    assert_int_equal(h.last, 5); /* the counter was not used up by the stale attempt */
    assert_int_equal(h.requests, 3);
    end(&c);
}

static void errors_of_the_server_are_returned(void **state)
{
    host h = {.answer = TACIT_REFUSED};
    conversation c;
    tacit_error err;
    (void)state;
    begin(&c, &h, tacit_identity_sign_key(server));
    assert_int_equal(ask(&c, "spend", &err), TACIT_REFUSED);
    assert_string_equal(err.message, "server: says the server");
    end(&c);
}

static void another_server_is_noticed(void **state)
{
    host h = {.key = stranger};
    conversation c;
    tacit_error err;
    (void)state;
    begin(&c, &h, tacit_identity_sign_key(server));
    assert_int_equal(ask(&c, "spend", &err), TACIT_INTEGRITY);
    assert_int_equal(h.executed, 0);
    end(&c);
}

static void other_versions_are_named(void **state)
{
    host h = {.min = 3, .max = 4};
    conversation c;
    tacit_error err;
    (void)state;
    begin(&c, &h, tacit_identity_sign_key(server));
    assert_int_equal(ask(&c, "spend", &err), TACIT_REFUSED);
    assert_non_null(strstr(err.message, "3 to 4"));
    assert_non_null(strstr(err.message, "7.7"));
    assert_int_equal(h.executed, 0);
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_is_what_the_schema_says),
        cmocka_unit_test(request_survives_the_trip),
        cmocka_unit_test(every_altered_byte_is_noticed),
        cmocka_unit_test(hostile_requests_are_refused),
        cmocka_unit_test(nonces_live_for_two_hours),
        cmocka_unit_test(judgements_follow_the_table),
        cmocka_unit_test(actions_name_method_and_body),
        cmocka_unit_test(replies_answer_one_request),
        cmocka_unit_test(every_altered_byte_of_a_reply_is_noticed),
        cmocka_unit_test(messages_become_text),
        cmocka_unit_test(versions_are_negotiated),
        cmocka_unit_test(conversation_says_hello_once),
        cmocka_unit_test(lost_reply_executes_once),
        cmocka_unit_test(stale_nonce_is_renewed),
        cmocka_unit_test(errors_of_the_server_are_returned),
        cmocka_unit_test(another_server_is_noticed),
        cmocka_unit_test(other_versions_are_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
