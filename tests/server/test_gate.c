/* Who gets in and what is answered: tokens, enrolment, replays, clones, revoked and unknown
 * devices, nonces, versions, hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "common/text.h"
#include "server/writer.h"

#include <pthread.h>
#include <semaphore.h>

static fleet f;

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_end(&f);
    atomic_store(&fleet_now, FLEET_START_MS);
    return 0;
}

static size_t count_devices(void)
{
    json_t *list = FLEET_ASK(&f, "device list");
    size_t n = json_array_size(list);
    json_decref(list);
    return n;
}

static void expect_state(const char *name, const char *state)
{
    char argument[80];
    snprintf(argument, sizeof argument, "=%s", name);
    json_t *device = FLEET_ASK(&f, "device show", argument);
    assert_string_equal(json_string_value(json_object_get(device, "state")), state);
    json_decref(device);
}

/* Entries of the log of one kind. */
static size_t count_entries(Tacit__Entry__BodyCase kind)
{
    size_t n = 0;
    char out[160], argument[170];
    tacit_export log;
    tacit_error err;
    snprintf(out, sizeof out, "%s/export", f.folder);
    snprintf(argument, sizeof argument, "=%s", out);
    json_decref(FLEET_ASK(&f, "ledger export", argument));
    fleet_must(tacit_export_read(&log, out, &err), &err, "export");
    tacit_export_cursor c = tacit_export_cursor_over(&log);
    for (fleet_must(tacit_export_next(&c, &err), &err, "bundle"); c.count;
         fleet_must(tacit_export_next(&c, &err), &err, "bundle")) {
        for (size_t i = 0; i < c.count; i++) {
            tacit_entry e;
            fleet_must(tacit_entry_open(&e, c.entry[i].data, c.entry[i].size, &err), &err, "entry");
            n += e.entry->body_case == kind;
            tacit_entry_close(&e);
        }
    }
    tacit_export_cursor_free(&c);
    tacit_export_free(&log);
    return n;
}

/* --- exports --- */

typedef struct busy {
    sem_t started, release;
    tacit_status status;
} busy;

static tacit_status hold(void *ctx, tacit_error *err)
{
    busy *b = ctx;
    (void)err;
    sem_post(&b->started);
    sem_wait(&b->release);
    return TACIT_OK;
}

static void *hold_writer(void *ctx)
{
    busy *b = ctx;
    tacit_error err;
    b->status = writer_run(f.server->writer, hold, NULL, b, &err);
    return NULL;
}

/* An export of a long log takes minutes: it waits for nobody and nobody for it. */
static void test_an_export_needs_no_writer(void **state)
{
    (void)state;
    fleet_device d;
    pthread_t thread;
    busy b;
    fleet_join(&d, &f, "");
    sem_init(&b.started, 0, 0);
    sem_init(&b.release, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, hold_writer, &b), 0);
    sem_wait(&b.started);
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_ENROL), 1); /* exports */
    sem_post(&b.release);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(b.status, TACIT_OK);
    sem_destroy(&b.started);
    sem_destroy(&b.release);
    fleet_device_free(&d);
}

/* --- naming a device --- */

static void show_device(const char *word, const uint8_t expected[TACIT_DEVICE_BYTES])
{
    char argument[80], hex[2 * TACIT_DEVICE_BYTES + 1];
    snprintf(argument, sizeof argument, "=%s", word);
    json_t *shown = FLEET_ASK(&f, "device show", argument);
    tacit_hex(hex, expected, TACIT_DEVICE_BYTES);
    assert_string_equal(json_string_value(json_object_get(shown, "device")), hex);
    json_decref(shown);
}

/* A pseudonym as the tables show it, cut to eight digits, names its device. Devices choose their
 * names: one that takes another's pseudonym for its name is never taken for it. */
static void test_devices_by_pseudonym(void **state)
{
    (void)state;
    fleet_device d, thief, cutter;
    tacit_error err;
    char hex[2 * TACIT_DEVICE_BYTES + 1], cut[9], argument[80];
    fleet_join(&d, &f, "");
    tacit_hex(hex, d.device, TACIT_DEVICE_BYTES);
    snprintf(cut, sizeof cut, "%s", hex);
    show_device(cut, d.device);
    snprintf(argument, sizeof argument, "=%.7s", hex);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "device show", argument), TACIT_NOT_FOUND);
    fleet_join(&thief, &f, hex);
    show_device(hex, d.device);
    fleet_join(&cutter, &f, cut);
    snprintf(argument, sizeof argument, "=%s", cut);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "device revoke", argument), TACIT_NOT_FOUND);
    assert_non_null(strstr(err.message, "names 2 devices"));
    show_device(hex, d.device);
    fleet_device_free(&cutter);
    fleet_device_free(&thief);
    fleet_device_free(&d);
}

/* --- tokens --- */

static tacit_status try_token(const uint8_t *secret, char message[TACIT_ERROR_MAX])
{
    static int serial;
    char name[16];
    fleet_device d;
    Tacit__EnrolReply *reply = NULL;
    snprintf(name, sizeof name, "try-%d", serial++);
    fleet_device_new(&d, &f, name);
    tacit_status status = fleet_enrol(&d, name, secret, &reply);
    memcpy(message, d.err.message, TACIT_ERROR_MAX);
    tacit_message_free(reply);
    fleet_device_free(&d);
    return status;
}

/* Used, expired, revoked and unknown tokens are refused with the same words. */
static void test_tokens(void **state)
{
    (void)state;
    uint8_t used[16], late[16], revoked[16], unknown[16] = {1};
    char id[17], argument[20], words[4][TACIT_ERROR_MAX], none[TACIT_ERROR_MAX];
    fleet_token(&f, used, NULL);
    fleet_token(&f, revoked, id);
    snprintf(argument, sizeof argument, "=%s", id);
    json_decref(FLEET_ASK(&f, "token revoke", argument));
    assert_int_equal(try_token(used, none), TACIT_OK);
    assert_int_equal(try_token(used, words[0]), TACIT_REFUSED);
    assert_int_equal(try_token(revoked, words[1]), TACIT_REFUSED);
    assert_int_equal(try_token(unknown, words[2]), TACIT_REFUSED);
    fleet_token(&f, late, NULL);
    atomic_fetch_add(&fleet_now, 24 * FLEET_HOUR_MS);
    assert_int_equal(try_token(late, words[3]), TACIT_REFUSED);
    for (size_t i = 1; i < 4; i++)
        assert_string_equal(words[0], words[i]);
    assert_int_equal(count_devices(), 1);
}

static void test_token_options(void **state)
{
    (void)state;
    tacit_error err;
    json_t *list = FLEET_ASK(&f, "token create", "count", "3", "hours", "1");
    assert_int_equal(json_array_size(list), 3);
    json_decref(list);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token create", "count", "0"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token create", "hours", "1.5"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token create", "horus", "1"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token create", "hours"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token revoke", "=0123"), TACIT_NOT_FOUND);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "tokens"), TACIT_USAGE);
    list = FLEET_ASK(&f, "token list"); /* ids, never the text */
    assert_int_equal(json_array_size(list), 3);
    assert_null(json_object_get(json_array_get(list, 0), "token"));
    json_decref(list);
}

/* --- enrolment --- */

static void test_lost_enrolment_reply(void **state)
{
    (void)state;
    fleet_device d;
    Tacit__EnrolReply *first = NULL, *second = NULL, *third = NULL;
    uint8_t secret[16];
    tacit_certificate_info info;
    tacit_error err;
    fleet_device_new(&d, &f, "cart");
    fleet_token(&f, secret, NULL);
    fleet_must(fleet_enrol(&d, "cart", secret, &first), &d.err, "first");
    fleet_restart(&f);
    fleet_must(fleet_enrol(&d, "cart", secret, &second), &d.err, "again");
    assert_int_equal(first->entry_index, second->entry_index);
    assert_memory_equal(first->device.data, second->device.data, TACIT_DEVICE_BYTES);
    char *pem = strndup((char *)second->certificate.data, second->certificate.len);
    fleet_must(tacit_certificate_read(pem, &info, &err), &err, "certificate");
    assert_memory_equal(info.device, d.device, TACIT_DEVICE_BYTES);
    free(pem);
    assert_int_equal(count_devices(), 1);
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_ENROL), 1);
    /* Another policy, or after revocation: the token is used. */
    d.policy.epsilon_cap = 80;
    assert_int_equal(fleet_enrol(&d, "cart", secret, &third), TACIT_REFUSED);
    d.policy.epsilon_cap = 8;
    json_decref(FLEET_ASK(&f, "device revoke", "=cart"));
    assert_int_equal(fleet_enrol(&d, "cart", secret, &third), TACIT_REFUSED);
    tacit_message_free(first);
    tacit_message_free(second);
    fleet_device_free(&d);
}

static void test_same_keys_with_another_token(void **state)
{
    (void)state;
    fleet_device d;
    Tacit__EnrolReply *reply = NULL;
    uint8_t secret[16];
    char none[TACIT_ERROR_MAX];
    fleet_join(&d, &f, "cart");
    fleet_token(&f, secret, NULL);
    assert_int_equal(fleet_enrol(&d, "cart", secret, &reply), TACIT_CONFLICT);
    assert_int_equal(try_token(secret, none), TACIT_OK); /* what failed did not use it up */
    fleet_device_free(&d);
}

static void test_bad_names(void **state)
{
    (void)state;
    fleet_device d;
    Tacit__EnrolReply *reply = NULL;
    uint8_t secret[16];
    char longer[80];
    fleet_device_new(&d, &f, "cart");
    fleet_token(&f, secret, NULL);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(fleet_enrol(&d, longer, secret, &reply), TACIT_BAD_INPUT);
    assert_int_equal(fleet_enrol(&d, "a\nb", secret, &reply), TACIT_BAD_INPUT);
    assert_int_equal(fleet_enrol(&d, "a\x1b[2J", secret, &reply), TACIT_BAD_INPUT);
    assert_int_equal(count_devices(), 0);
    fleet_device_free(&d);
}

/* --- requests --- */

static void pack_check_in(fleet_device *d, uint8_t **bytes, size_t *size, uint64_t version)
{
    Tacit__CheckInRequest r = TACIT__CHECK_IN_REQUEST__INIT;
    r.active_version = version;
    fleet_must(tacit_message_pack(&r, TACIT_BODY_MAX, bytes, size, &d->err), &d->err, "pack");
}

static tacit_status check_in_with(fleet_device *d, uint64_t counter)
{
    uint8_t *bytes;
    size_t size;
    tacit_answer answer;
    pack_check_in(d, &bytes, &size, 0);
    tacit_status status = fleet_send(d, GATE_DEVICES, TACIT__METHOD__METHOD_CHECK_IN, counter,
                                     (tacit_span){bytes, size}, &answer);
    tacit_answer_free(&answer);
    free(bytes);
    return status;
}

static tacit_status renew_with(fleet_device *d, uint64_t counter, gate_listener listener,
                               const uint8_t *csr, size_t csr_size, tacit_answer *answer)
{
    Tacit__RenewRequest r = TACIT__RENEW_REQUEST__INIT;
    uint8_t *bytes;
    size_t size;
    r.csr = tacit_field_of(csr, csr_size);
    fleet_must(tacit_message_pack(&r, TACIT_BODY_MAX, &bytes, &size, &d->err), &d->err, "pack");
    tacit_status status = fleet_send(d, listener, TACIT__METHOD__METHOD_RENEW, counter,
                                     (tacit_span){bytes, size}, answer);
    free(bytes);
    return status;
}

/* A request that changed state is answered again with the same body, after a restart and hours
 * later as well, and executed once. */
static void test_replay_gets_the_stored_reply(void **state)
{
    (void)state;
    fleet_device d;
    uint8_t *csr;
    size_t size;
    tacit_answer first, again;
    fleet_join(&d, &f, "cart");
    fleet_csr(&d, &csr, &size);
    fleet_must(renew_with(&d, 5, GATE_DEVICES, csr, size, &first), &d.err, "renew");
    fleet_restart(&f);
    atomic_fetch_add(&fleet_now, 5 * FLEET_HOUR_MS);
    fleet_must(renew_with(&d, 5, GATE_DEVICES, csr, size, &again), &d.err, "renew again");
    assert_int_equal(first.reply.body.size, again.reply.body.size);
    assert_memory_equal(first.reply.body.data, again.reply.body.data, first.reply.body.size);
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_RENEW), 1);
    tacit_answer_free(&first);
    tacit_answer_free(&again);
    assert_int_equal(renew_with(&d, 4, GATE_DEVICES, csr, size, &first), TACIT_CONFLICT);
    tacit_answer_free(&first);
    assert_int_equal(check_in_with(&d, 4), TACIT_CONFLICT);
    assert_int_equal(check_in_with(&d, 6), TACIT_OK);
    free(csr);
    fleet_device_free(&d);
}

/* The bytes of a request as recorded by somebody, sent again. */
static void test_recorded_bytes(void **state)
{
    (void)state;
    fleet_device d;
    uint8_t *body, hash[TACIT_DIGEST_BYTES];
    size_t size;
    tacit_buffer out = {0}, first = {0}, again = {0};
    tacit_answer answer;
    fleet_join(&d, &f, "cart");
    pack_check_in(&d, &body, &size, 0);
    tacit_request request = {.protocol = 1,
                             .method = TACIT__METHOD__METHOD_CHECK_IN,
                             .has_device = true,
                             .counter = 3,
                             .has_nonce = true,
                             .body = {body, size}};
    memcpy(request.device, d.device, sizeof request.device);
    memcpy(request.nonce, d.nonce, sizeof request.nonce);
    fleet_must(tacit_request_build(&request, d.id, &out, hash, &d.err), &d.err, "build");
    assert_true(fleet_deliver(&d, GATE_DEVICES, &out, &first));
    /* Once anything newer changed state, the old bytes are worth nothing. */
    uint8_t *csr;
    size_t csr_size;
    fleet_csr(&d, &csr, &csr_size);
    fleet_must(renew_with(&d, 4, GATE_DEVICES, csr, csr_size, &answer), &d.err, "renew");
    tacit_answer_free(&answer);
    assert_true(fleet_deliver(&d, GATE_DEVICES, &out, &again));
    fleet_must(tacit_reply_parse(&answer, again.data, again.size, &request, hash,
                                 tacit_identity_sign_key(f.server->key), &d.err),
               &d.err, "reply");
    assert_int_equal(answer.reply.status, TACIT_CONFLICT);
    tacit_answer_free(&answer);
    /* One changed byte anywhere: never served. */
    for (size_t at = 0; at < out.size; at += 7) {
        out.data[at] ^= 0x20;
        if (fleet_deliver(&d, GATE_DEVICES, &out, &again) &&
            tacit_reply_parse(&answer, again.data, again.size, &request, hash,
                              tacit_identity_sign_key(f.server->key), &d.err) == TACIT_OK) {
            assert_int_not_equal(answer.reply.status, TACIT_OK);
            tacit_answer_free(&answer);
        }
        out.data[at] ^= 0x20;
    }
    free(csr);
    free(body);
    tacit_buffer_free(&out);
    tacit_buffer_free(&first);
    tacit_buffer_free(&again);
    fleet_device_free(&d);
}

/* A device gets so many certificates an hour, whichever way it asks; then it is told how long to
 * wait, nothing is issued or logged, and it stays enrolled. */
static void test_certificates_an_hour(void **state)
{
    (void)state;
    fleet_device d;
    Tacit__EnrolReply *reply = NULL;
    uint8_t *csr;
    size_t size;
    tacit_answer answer;
    fleet_join(&d, &f, "cart"); /* the first one */
    fleet_csr(&d, &csr, &size);
    fleet_must(fleet_enrol(&d, "cart", d.secret, &reply), &d.err,
               "enrol again"); /* its own token */
    tacit_message_free(reply);
    fleet_hello(&d);
    for (uint64_t counter = 1; counter <= 2; counter++) {
        atomic_fetch_add(&fleet_now, 60000);
        fleet_must(renew_with(&d, counter, GATE_DEVICES, csr, size, &answer), &d.err, "renew");
        tacit_answer_free(&answer);
    }
    static const gate_listener listeners[] = {GATE_DEVICES, GATE_ENROLMENT};
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(renew_with(&d, 3 + i, listeners[i], csr, size, &answer), TACIT_AGAIN);
        assert_non_null(strstr(d.err.message, "ask again in 58 minutes"));
        tacit_answer_free(&answer);
    }
    reply = NULL;
    assert_int_equal(fleet_enrol(&d, "cart", d.secret, &reply), TACIT_AGAIN);
    fleet_restart(&f);
    fleet_hello(&d);
    assert_int_equal(renew_with(&d, 5, GATE_DEVICES, csr, size, &answer), TACIT_AGAIN);
    tacit_answer_free(&answer);
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_RENEW), 2);
    assert_int_equal(check_in_with(&d, 6), TACIT_OK);
    expect_state("cart", "active");

    atomic_fetch_add(&fleet_now, 58 * 60000); /* the hour is over */
    fleet_hello(&d);
    fleet_must(renew_with(&d, 7, GATE_DEVICES, csr, size, &answer), &d.err, "renew");
    tacit_answer_free(&answer);
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_RENEW), 3);
    free(csr);
    fleet_device_free(&d);
}

/* A clock of the server that was set back locks nobody out. */
static void test_certificates_after_a_clock_set_back(void **state)
{
    (void)state;
    fleet_device d;
    uint8_t *csr;
    size_t size;
    tacit_answer answer;
    fleet_join(&d, &f, "cart");
    fleet_csr(&d, &csr, &size);
    for (uint64_t counter = 1; counter <= 3; counter++) {
        fleet_must(renew_with(&d, counter, GATE_DEVICES, csr, size, &answer), &d.err, "renew");
        tacit_answer_free(&answer);
    }
    atomic_fetch_sub(&fleet_now, 400 * FLEET_HOUR_MS);
    fleet_hello(&d);
    fleet_must(renew_with(&d, 4, GATE_DEVICES, csr, size, &answer), &d.err, "renew");
    tacit_answer_free(&answer);
    free(csr);
    fleet_device_free(&d);
}

static void test_clone_by_counter(void **state)
{
    (void)state;
    fleet_device d;
    uint8_t *csr, *other;
    size_t size, other_size;
    tacit_answer answer;
    fleet_join(&d, &f, "cart");
    fleet_csr(&d, &csr, &size);
    fleet_csr(&d, &other, &other_size);
    fleet_must(renew_with(&d, 2, GATE_DEVICES, csr, size, &answer), &d.err, "renew");
    tacit_answer_free(&answer);
    assert_int_equal(renew_with(&d, 2, GATE_DEVICES, other, other_size, &answer), TACIT_REFUSED);
    tacit_answer_free(&answer);
    expect_state("cart", "frozen");
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_CLONE_SUSPECTED), 1);
    assert_int_equal(check_in_with(&d, 9), TACIT_REFUSED);
    fleet_restart(&f);
    assert_int_equal(check_in_with(&d, 10), TACIT_REFUSED);
    assert_non_null(strstr(d.err.message, "frozen"));
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_CLONE_SUSPECTED), 1);
    free(csr);
    free(other);
    fleet_device_free(&d);
}

static void test_revoked_for_ever(void **state)
{
    (void)state;
    fleet_device d;
    uint8_t *csr;
    size_t size;
    tacit_answer answer;
    tacit_error err;
    fleet_join(&d, &f, "cart");
    fleet_csr(&d, &csr, &size);
    assert_int_equal(check_in_with(&d, 1), TACIT_OK);
    json_decref(FLEET_ASK(&f, "device revoke", "=cart", "reason", "stolen"));
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "device revoke", "=cart"), TACIT_CONFLICT);
    fleet_restart(&f);
    assert_int_equal(check_in_with(&d, 2), TACIT_REFUSED);
    assert_int_equal(renew_with(&d, 3, GATE_DEVICES, csr, size, &answer), TACIT_REFUSED);
    tacit_answer_free(&answer);
    assert_int_equal(renew_with(&d, 4, GATE_ENROLMENT, csr, size, &answer), TACIT_REFUSED);
    assert_non_null(strstr(d.err.message, "revoked"));
    tacit_answer_free(&answer);
    expect_state("cart", "revoked");
    assert_int_equal(count_entries(TACIT__ENTRY__BODY_REVOKE), 1);
    free(csr);
    fleet_device_free(&d);
}

static void test_unknown_and_impostor(void **state)
{
    (void)state;
    fleet_device d, impostor;
    fleet_join(&d, &f, "cart");
    fleet_device_new(&impostor, &f, "impostor");
    memset(impostor.device, 7, sizeof impostor.device);
    fleet_hello(&impostor);
    assert_int_equal(check_in_with(&impostor, 1), TACIT_REFUSED);
    assert_non_null(strstr(impostor.err.message, "unknown device"));
    memcpy(impostor.device, d.device, sizeof d.device); /* the name alone is worth nothing */
    fleet_hello(&impostor);
    assert_int_equal(check_in_with(&impostor, 1), TACIT_INTEGRITY);
    expect_state("cart", "active");
    fleet_device_free(&d);
    fleet_device_free(&impostor);
}

static void test_nonces(void **state)
{
    (void)state;
    fleet_device d, other;
    fleet_join(&d, &f, "cart");
    fleet_join(&other, &f, "van");
    atomic_fetch_add(&fleet_now, 2 * FLEET_HOUR_MS);
    assert_int_equal(check_in_with(&d, 1), TACIT_AGAIN); /* the reply brings a fresh one */
    assert_int_equal(check_in_with(&d, 1), TACIT_OK);
    memcpy(d.nonce, other.nonce, sizeof d.nonce);
    assert_int_equal(check_in_with(&d, 2), TACIT_AGAIN);
    memset(d.nonce, 0, sizeof d.nonce);
    assert_int_equal(check_in_with(&d, 2), TACIT_AGAIN);
    assert_int_equal(check_in_with(&d, 2), TACIT_OK);
    assert_int_equal(check_in_with(&d, 0), TACIT_CONFLICT); /* counter 0 is never fresh */
    fleet_device_free(&d);
    fleet_device_free(&other);
}

static void test_methods_and_listeners(void **state)
{
    (void)state;
    fleet_device d;
    tacit_answer answer;
    const tacit_span empty = {(const uint8_t *)"", 0};
    fleet_join(&d, &f, "cart");
    assert_int_equal(
        fleet_send(&d, GATE_ENROLMENT, TACIT__METHOD__METHOD_CHECK_IN, 1, empty, &answer),
        TACIT_USAGE);
    tacit_answer_free(&answer);
    assert_int_equal(fleet_send(&d, GATE_DEVICES, TACIT__METHOD__METHOD_ENROL, 2, empty, &answer),
                     TACIT_USAGE);
    tacit_answer_free(&answer);
    assert_int_equal(fleet_send(&d, GATE_DEVICES, TACIT__METHOD__METHOD_CONTROL, 3, empty, &answer),
                     TACIT_USAGE);
    tacit_answer_free(&answer);
    fleet_device_free(&d);
}

static void test_versions(void **state)
{
    (void)state;
    fleet_device d;
    uint8_t hash[TACIT_DIGEST_BYTES];
    tacit_buffer out = {0}, reply = {0};
    tacit_answer answer;
    fleet_join(&d, &f, "cart");
    tacit_request request = {.protocol = 7,
                             .method = TACIT__METHOD__METHOD_CHECK_IN,
                             .has_device = true,
                             .counter = 1,
                             .has_nonce = true,
                             .body = {(const uint8_t *)"", 0}};
    memcpy(request.device, d.device, sizeof request.device);
    memcpy(request.nonce, d.nonce, sizeof request.nonce);
    fleet_must(tacit_request_build(&request, d.id, &out, hash, &d.err), &d.err, "build");
    assert_true(fleet_deliver(&d, GATE_DEVICES, &out, &reply));
    fleet_must(tacit_reply_parse(&answer, reply.data, reply.size, &request, hash,
                                 tacit_identity_sign_key(f.server->key), &d.err),
               &d.err, "reply");
    assert_int_equal(answer.reply.status, TACIT_REFUSED);
    assert_non_null(strstr(answer.reply.message, "7"));
    tacit_answer_free(&answer);
    tacit_buffer_free(&out);
    tacit_buffer_free(&reply);
    fleet_device_free(&d);
}

/* Bytes that are no request close the connection; bodies that are no message are an error. */
static void test_hostile_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } rows[] = {{"", 0},
                {"\x00", 1},
                {"\xff\xff\xff\xff\xff\xff\xff\xff", 8},
                {"\x0a\xff\xff\xff\xff\x0f", 6},
                {"GET / HTTP/1.1\r\n\r\n", 18}};
    fleet_device d;
    tacit_answer answer;
    fleet_join(&d, &f, "cart");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tacit_buffer bytes = {.data = (uint8_t *)(uintptr_t)rows[i].bytes, .size = rows[i].size},
                     reply = {0};
        assert_false(fleet_deliver(&d, GATE_DEVICES, &bytes, &reply));
        assert_false(fleet_deliver(&d, GATE_ENROLMENT, &bytes, &reply));
        tacit_buffer_free(&reply);
        for (uint32_t method = TACIT__METHOD__METHOD_RENEW; method <= TACIT__METHOD__METHOD_RECEIPT;
             method++) {
            tacit_span body = {bytes.data, bytes.size};
            tacit_status status = fleet_send(&d, GATE_DEVICES, method, ++d.counter, body, &answer);
            bool is_empty_check_in = method == TACIT__METHOD__METHOD_CHECK_IN && rows[i].size == 0;
            assert_int_equal(status, is_empty_check_in ? TACIT_OK : TACIT_BAD_INPUT);
            tacit_answer_free(&answer);
        }
    }
    fleet_device_free(&d);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_tokens),
        T(test_token_options),
        T(test_lost_enrolment_reply),
        T(test_same_keys_with_another_token),
        T(test_bad_names),
        T(test_replay_gets_the_stored_reply),
        T(test_recorded_bytes),
        T(test_certificates_an_hour),
        T(test_certificates_after_a_clock_set_back),
        T(test_clone_by_counter),
        T(test_revoked_for_ever),
        T(test_devices_by_pseudonym),
        T(test_an_export_needs_no_writer),
        T(test_unknown_and_impostor),
        T(test_nonces),
        T(test_methods_and_listeners),
        T(test_versions),
        T(test_hostile_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
