/* hostile_client URL ENROL_URL TOKEN MODEL FOLDER WORD...: enrols as a device would and then breaks
 * the rules, over TLS, against a real server. For each WORD it prints what the server said:
 *
 *   unknown    a request of a device that nobody enrolled
 *   replay     a recorded request once more, after a later one
 *   token      the token a second time, with other keys
 *   round, base, shape, nan, huge
 *              an update of the open round that is wrong in this, and the decision on it
 *   clone      one counter with two bodies, and what the device hears afterwards */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../server/fleet.h"

#define TRIES 600 /* of 50 ms, for a plan: for broken runs only */

static fleet f;
static fleet_device device;
static uint8_t token_secret[TACIT_TOKEN_SECRET_BYTES];

static void say(const char *word, tacit_status status, const char *message)
{
    printf("%s: %d %s\n", word, (int)status, message);
    fflush(stdout);
}

/* --- getting in --- */

static void connect_enrolment(const char *url, const tacit_enrol_token *token)
{
    tacit_error err;
    tacit_link_setup setup = {.url = url, .root_pin = token->root};
    fleet_must(tacit_link_open(&f.link[GATE_ENROLMENT], &setup, &err), &err, "enrolment link");
    tacit_caller *caller;
    tacit_caller_setup asks = {.link = f.link[GATE_ENROLMENT]};
    uint8_t nonce[TACIT_NONCE_BYTES];
    fleet_must(tacit_caller_new(&caller, &asks, &err), &err, "caller");
    fleet_must(tacit_caller_nonce(caller, nonce, &err), &err, "first hello");
    memcpy(f.server_key, tacit_caller_server_key(caller), sizeof f.server_key);
    tacit_caller_free(caller);
}

static void connect_device(const char *url, const Tacit__EnrolReply *reply)
{
    char path[224];
    uint8_t *key;
    size_t size;
    tacit_error err;
    char *chain = strndup((char *)reply->certificate.data, reply->certificate.len),
         *root = strndup((char *)reply->root.data, reply->root.len);
    snprintf(path, sizeof path, "%s.tls", device.path);
    fleet_must(tacit_file_read(path, 65536, &key, &size, &err), &err, "key");
    tacit_link_setup setup = {
        .url = url, .certificate_pem = chain, .key_pem = (char *)key, .roots_pem = root};
    fleet_must(tacit_link_open(&f.link[GATE_DEVICES], &setup, &err), &err, "device link");
    free(chain);
    free(root);
    free(key);
}

/* HELLO of one who is not enrolled goes to the enrolment listener. */
static void enrol(const char *url)
{
    Tacit__EnrolReply *reply = NULL;
    tacit_proof none = {0};
    f.unit = TACIT_UNIT_SUBJECT; /* as the other devices have it */
    fleet_device_new(&device, &f, "hostile");
    fleet_device_open_account(&device);
    f.link[GATE_DEVICES] = f.link[GATE_ENROLMENT];
    fleet_must(fleet_enrol(&device, "hostile", token_secret, &reply), &device.err, "enrol");
    connect_device(url, reply);
    snprintf(f.origin, sizeof f.origin, "%s", reply->log_origin);
    fleet_must(tacit_note_key_make(&device.log, f.origin, f.server_key, &device.err), &device.err,
               "log key");
    fleet_must(tacit_account_checkpoint(device.account, tacit_span_of(reply->checkpoint), &none,
                                        &device.log, &device.err),
               &device.err, "checkpoint");
    tacit_message_free(reply);
    fleet_hello(&device);
}

/* --- breaking the rules --- */

static tacit_status check_in(fleet_device *d, uint64_t counter, uint64_t active)
{
    Tacit__CheckInRequest r = TACIT__CHECK_IN_REQUEST__INIT;
    tacit_answer answer = {0};
    uint8_t *bytes;
    size_t size;
    r.active_version = active;
    fleet_must(tacit_message_pack(&r, TACIT_BODY_MAX, &bytes, &size, &d->err), &d->err, "pack");
    tacit_status status = fleet_send(d, GATE_DEVICES, TACIT__METHOD__METHOD_CHECK_IN, counter,
                                     (tacit_span){bytes, size}, &answer);
    tacit_answer_free(&answer);
    free(bytes);
    return status;
}

static void do_unknown(const char *word)
{
    fleet_device stranger;
    fleet_device_new(&stranger, &f, "stranger");
    memset(stranger.device, 0x5a, sizeof stranger.device);
    fleet_hello(&stranger);
    tacit_status status = check_in(&stranger, 1, 0);
    say(word, status, stranger.err.message);
    fleet_device_free(&stranger);
}

static tacit_status renew(uint64_t counter)
{
    Tacit__RenewRequest r = TACIT__RENEW_REQUEST__INIT;
    tacit_answer answer = {0};
    uint8_t *csr, *bytes;
    size_t csr_size, size;
    char kept[224], path[224];
    fleet_csr(&device, &csr, &csr_size);
    snprintf(path, sizeof path, "%s.tls", device.path);
    snprintf(kept, sizeof kept, "%s.used", device.path);
    r.csr = tacit_field_of(csr, csr_size);
    fleet_must(tacit_message_pack(&r, TACIT_BODY_MAX, &bytes, &size, &device.err), &device.err,
               "pack");
    tacit_status status = fleet_send(&device, GATE_DEVICES, TACIT__METHOD__METHOD_RENEW, counter,
                                     (tacit_span){bytes, size}, &answer);
    tacit_answer_free(&answer);
    free(bytes);
    free(csr);
    return status;
}

static void do_replay(const char *word)
{
    uint64_t recorded = ++device.counter;
    fleet_must(check_in(&device, recorded, 0), &device.err, "check-in");
    fleet_must(renew(++device.counter), &device.err, "renew");
    say(word, check_in(&device, recorded, 0), device.err.message);
}

static void do_token(const char *word)
{
    fleet_device second;
    Tacit__EnrolReply *reply = NULL;
    tacit_link *own = f.link[GATE_DEVICES];
    fleet_device_new(&second, &f, "second");
    f.link[GATE_DEVICES] = f.link[GATE_ENROLMENT];
    say(word, fleet_enrol(&second, "second", token_secret, &reply), second.err.message);
    f.link[GATE_DEVICES] = own;
    tacit_message_free(reply);
    fleet_device_free(&second);
}

static void await_plan(fleet_task *t)
{
    for (int i = 0; i < TRIES; i++) {
        Tacit__CheckInReply *reply = NULL;
        fleet_must(fleet_check_in(&device, &reply), &device.err, "check-in");
        bool asked = reply->plan.len > 0;
        tacit_message_free(reply);
        if (asked) {
            fleet_take(&device, t);
            return;
        }
        tacit_clock_sleep_ms(50);
    }
    fail_msg("no plan came");
}

static void spoil(Tacit__Update *u, uint8_t *values, const char *word)
{
    static uint8_t other[32] = {1, 2, 3};
    if (strcmp(word, "round") == 0)
        u->round_id = tacit_field_of(other, 16);
    else if (strcmp(word, "base") == 0)
        u->base_digest = tacit_field_of(other, 32);
    else if (strcmp(word, "shape") == 0)
        u->values.len -= 4;
    else if (strcmp(word, "nan") == 0)
        u->scale = NAN;
    else
        tacit_store_u32(values, INT32_MAX);
}

static void do_update(const char *word)
{
    fleet_task t;
    Tacit__Update u;
    await_plan(&t);
    uint8_t *values = malloc(4 * t.layout.values);
    assert_non_null(values);
    fleet_must(fleet_reserve_locally(&device, &t), &device.err, "reserve");
    fleet_must(fleet_send_reserve(&device, &t), &device.err, "send reserve");
    fleet_fill(&device, &t, &u, values, 0);
    spoil(&u, values, word);
    fleet_seal(&device, &t, &u);
    say(word, TACIT_OK, fleet_upload(&device, &t));
    fleet_task_free(&t);
    free(values);
}

static void do_clone(const char *word)
{
    fleet_must(renew(++device.counter), &device.err, "renew");
    say(word, renew(device.counter), device.err.message);
    say("frozen", check_in(&device, ++device.counter, 0), device.err.message);
}

static const struct {
    const char *word;
    void (*run)(const char *word);
} acts[] = {{"unknown", do_unknown}, {"replay", do_replay}, {"token", do_token},
            {"clone", do_clone},     {"round", do_update},  {"base", do_update},
            {"shape", do_update},    {"nan", do_update},    {"huge", do_update}};

static char **words;
static int n_words;

static void run_words(void **state)
{
    (void)state;
    tacit_enrol_token token;
    tacit_model *model;
    tacit_error err;
    snprintf(f.folder, sizeof f.folder, "%s", words[4]);
    snprintf(f.origin, sizeof f.origin, "unknown"); /* until the enrolment tells */
    fleet_must(tacit_token_read(&token, words[2], &err), &err, "token");
    memcpy(token_secret, token.secret, sizeof token_secret);
    fleet_must(tacit_model_load(&model, words[3], NULL, 0, NULL, &err), &err, "model");
    f.model = model;
    connect_enrolment(words[1], &token);
    enrol(words[0]);
    for (int i = 5; i < n_words; i++)
        for (size_t a = 0; a < sizeof acts / sizeof acts[0]; a++)
            if (strcmp(words[i], acts[a].word) == 0)
                acts[a].run(words[i]);
    fleet_device_free(&device);
    tacit_link_close(f.link[GATE_DEVICES]);
    tacit_link_close(f.link[GATE_ENROLMENT]);
    tacit_model_free(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(run_words)};
    if (argc < 7)
        return 2;
    words = argv + 1;
    n_words = argc - 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
