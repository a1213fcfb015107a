/* The agent against a server that answers over real loopback TLS and lies on request
 * (fake_server.h). What the device keeps and sends is looked at from outside: its folder, the
 * requests that arrived, and the sealed bytes opened with the round's key. Where time is the
 * subject: test_agent_clocks.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_scene.h"
#include "client/snapshot.h"
#include "common/memory_limit.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

/* --- enrolment --- */

static void enrolment_pins_the_tokens_server(void **state)
{
    scene s;
    (void)state;
    fake_start(&s.server);
    fake_device_make(&s.device, &s.server.tiny, 1);
    s.server.token.root[3] ^= 1; /* a token of another server */
    assert_int_not_equal(fake_device_try_enrol(&s.device, &s.server), TACIT_OK);
    assert_false(s.server.enrolled);
    assert_int_equal(s.server.n_calls, 0); /* the token's secret did not leave */
    s.server.token.root[3] ^= 1;
    fake_device_enrol(&s.device, &s.server);
    assert_int_equal(fake_device_try_enrol(&s.device, &s.server), TACIT_CONFLICT);
    fake_device_open(&s.device, CLIENT_FEDERATES);
    assert_memory_equal(s.device.client->enrolment.device, s.server.device, TACIT_DEVICE_BYTES);
    assert_memory_equal(s.device.client->enrolment.log.key, tacit_identity_sign_key(s.server.w.log),
                        TACIT_SIGN_KEY_BYTES);
    end(&s);
}

/* The answer is lost: the server knows the keys, the device knows nothing. */
static void a_lost_enrolment_is_repeated_with_new_keys(void **state)
{
    scene s;
    uint8_t first[TACIT_SIGN_KEY_BYTES];
    (void)state;
    fake_start(&s.server);
    fake_device_make(&s.device, &s.server.tiny, 1);
    fake_device_open(&s.device, CLIENT_WORKS);
    OK(client_make_account(s.device.client, &s.device.err));
    memcpy(first, tacit_identity_sign_key(s.device.client->identity), sizeof first);
    OK(client_replace_identity(s.device.client, &s.device.err));
    assert_memory_not_equal(first, tacit_identity_sign_key(s.device.client->identity),
                            sizeof first);
    fake_device_close(&s.device);
    fake_device_enrol(&s.device, &s.server);
    assert_memory_not_equal(first, s.server.key, sizeof first);
    end(&s);
}

/* --- a whole round --- */

static void open_upload(scene *s, Tacit__Update **out)
{
    fake_server *f = &s->server;
    tacit_buffer plain = {.cap = 1 << 20};
    uint8_t reserve[TACIT_HASH_BYTES];
    tacit_merkle_leaf(reserve, f->reserve, f->reserve_size);
    tacit_seal_binding binding = {f->device, f->w.plan_hash[0], reserve};
    OK(tacit_seal_open(&plain, f->upload, f->upload_size, &binding, f->key, &f->seal_secret,
                       &f->err));
    OK(TACIT_UNPACK(out, tacit__update, plain.data, plain.size, plain.cap, &f->err));
    tacit_buffer_free(&plain);
}

static void a_round_is_reserved_trained_and_sent(void **state)
{
    scene s;
    Tacit__Update *u;
    (void)state;
    begin(&s, 6);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    open_upload(&s, &u);
    assert_memory_equal(u->plan_hash.data, s.server.w.plan_hash[0], TACIT_DIGEST_BYTES);
    assert_int_equal(u->values.len, 4 * fake_values);
    double norm = 0;
    for (size_t i = 0; i < fake_values; i++) {
        double v = (int32_t)tacit_load_u32(u->values.data + 4 * i);
        norm += v * v;
    }
    norm = sqrt(norm) / u->scale;
    assert_true(norm > 1e-6 && norm <= 3 + 1e-3);
    tacit_message_free(u);
    tacit_account_status a = account_of(&s);
    assert_int_equal(a.reserves, 1);
    assert_int_equal(a.spends, 1);
    assert_int_equal(active_version(&s), 1);
    assert_false(fake_device_has(&s.device, "rounds", "")); /* snapshot and checkpoint are gone */
    assert_true(fake_device_has(&s.device, "receipts", "-reserve.receipt"));
    end(&s);
}

/* What leaves the device is the same on every data set: methods, their order, sizes of bodies,
 * those of the upload among them (test_blind.c compares what they say). */
static void the_schedule_of_messages_is_blind(void **state)
{
    static const size_t records[] = {0, 1, 40};
    uint32_t first[FAKE_CALLS_MAX];
    size_t first_size[FAKE_CALLS_MAX], n_first = 0;
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        scene s;
        begin(&s, records[k]);
        s.server.offer_plan = true;
        fake_publish(&s.server, 1, 0.01f);
        expect_run(&s, TACIT_OK);
        if (k)
            assert_int_equal(s.server.n_calls, n_first);
        for (size_t i = 0; i < s.server.n_calls; i++) {
            size_t size = s.server.call[i].size;
            if (k == 0) {
                first[i] = s.server.call[i].method;
                first_size[i] = size;
                n_first = i + 1;
            }
            assert_int_equal(s.server.call[i].method, first[i]);
            assert_int_equal(size, first_size[i]);
        }
        end(&s);
    }
}

/* The acknowledgement is lost twice: the same entry is sent again, nothing is spent twice. */
static void a_lost_acknowledgement_is_asked_for_again(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    s.server.lie.drop_method = TACIT__METHOD__METHOD_RESERVE;
    s.server.lie.drop_count = 2;
    expect_run(&s, TACIT_OK);
    assert_int_equal(s.server.reserves_equal, 2);
    assert_int_equal(s.server.reserves_other, 0);
    assert_int_equal(account_of(&s).reserves, 1);
    end(&s);
}

/* The run ends between chunks; the next one sends the rest of the same bytes. */
static void an_upload_continues_at_the_servers_offset(void **state)
{
    scene s;
    Tacit__Update *u;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.drop_method = TACIT__METHOD__METHOD_UPLOAD_CHUNK;
    s.server.lie.drop_count = 1000;
    fake_publish(&s.server, 1, 0.01f);
    assert_int_equal(run_once(&s, 300), TACIT_UNREACHABLE);
    assert_true(fake_device_has(&s.device, "rounds", ".sealed"));
    assert_false(fake_device_has(&s.device, "rounds", ".ckpt"));
    s.server.lie.drop_count = 0;
    size_t had = s.server.upload_have, sent = 0, calls = s.server.n_calls;
    assert_true(had > 0 && had < s.server.upload_size);
    expect_run(&s, TACIT_OK);
    for (size_t i = calls; i < s.server.n_calls; i++)
        if (s.server.call[i].method == TACIT__METHOD__METHOD_UPLOAD_CHUNK)
            sent += s.server.call[i].size;
    assert_true(sent < s.server.upload_size - had + 100);
    open_upload(&s, &u);
    tacit_message_free(u);
    assert_int_equal(account_of(&s).spends, 1);
    end(&s);
}

/* The server's copy was damaged: the same bytes are sent again, and only so often. */
static void a_damaged_upload_is_sent_again(void **state)
{
    scene s;
    Tacit__Update *u;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    s.server.lie.lose_upload = 3;
    expect_run(&s, TACIT_CONFLICT);
    assert_int_equal(CALLS(UPLOAD_COMMIT), 3);
    s.server.lie.lose_upload = 1;
    expect_run(&s, TACIT_OK);
    open_upload(&s, &u);
    tacit_message_free(u);
    assert_int_equal(account_of(&s).spends, 1);
    end(&s);
}

/* --- faults of this machine --- */

/* Injected by the linker's --wrap. */
static int snapshots_without_memory, sealed_without_room;
static size_t snapshot_memory; /* of the last one */

tacit_status __real_snapshot_open(client_snapshot **out, const snapshot_setup *setup,
                                  tacit_error *err);
tacit_status __wrap_snapshot_open(client_snapshot **out, const snapshot_setup *setup,
                                  tacit_error *err);
tacit_status __wrap_snapshot_open(client_snapshot **out, const snapshot_setup *setup,
                                  tacit_error *err)
{
    snapshot_memory = setup->memory;
    if (snapshots_without_memory-- <= 0)
        return __real_snapshot_open(out, setup, err);
    *out = NULL;
    return tacit_fail(err, TACIT_NO_MEMORY, "no memory, says the test");
}

tacit_status __real_tacit_file_write(const char *path, const void *data, size_t size, unsigned mode,
                                     tacit_error *err);
tacit_status __wrap_tacit_file_write(const char *path, const void *data, size_t size, unsigned mode,
                                     tacit_error *err);
tacit_status __wrap_tacit_file_write(const char *path, const void *data, size_t size, unsigned mode,
                                     tacit_error *err)
{
    if (!strstr(path, ".sealed") || sealed_without_room-- <= 0)
        return __real_tacit_file_write(path, data, size, mode, err);
    return tacit_fail(err, TACIT_IO, "%s: no room, says the test", path);
}

/* The same round, later: nothing is spent anew and nothing was sent meanwhile. */
static void expect_a_second_try(scene *s, tacit_status first)
{
    s->server.offer_plan = true;
    fake_publish(&s->server, 1, 0.01f);
    expect_run(s, first);
    assert_int_equal(account_of(s).spends, 0);
    assert_int_equal(account_of(s).abandons, 0);
    assert_int_equal(count_calls(s, TACIT__METHOD__METHOD_UPLOAD_BEGIN), 0);
    assert_false(fake_device_has(&s->device, "rounds", ".sealed"));
    expect_run(s, TACIT_OK);
    assert_int_equal(account_of(s).reserves, 1);
    assert_int_equal(account_of(s).spends, 1);
    assert_int_equal(count_calls(s, TACIT__METHOD__METHOD_UPLOAD_COMMIT), 1);
}

static void a_machine_out_of_memory_tries_the_round_again(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    snapshots_without_memory = 1;
    expect_a_second_try(&s, TACIT_NO_MEMORY);
    end(&s);
}

static uint64_t fixed(void *ctx)
{
    return *(uint64_t *)ctx;
}

/* What is reserved stays spent, so a device that could not train says so before; later, with more
 * memory, it takes the same plan. */
static void a_plan_that_does_not_fit_is_refused_before_it_is_reserved(void **state)
{
    scene s;
    uint64_t there = 512 << 10;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    tacit_memory_inject(fixed, &there);
    expect_run(&s, TACIT_REFUSED);
    tacit_memory_inject(NULL, NULL);
    assert_non_null(strstr(s.device.err.message,
                           "plan does not fit into this device's memory: training needs "));
    assert_non_null(strstr(s.device.err.message, " 512.0 KiB are available: "));
    assert_int_equal(account_of(&s).reserves, 0);
    assert_int_equal(CALLS(RESERVE), 0);
    assert_false(fake_device_has(&s.device, "rounds", ""));
    expect_run(&s, TACIT_OK);
    assert_int_equal(account_of(&s).spends, 1);
    end(&s);
}

/* Examples that are kept between steps get a quarter of what the training leaves. */
static void examples_leave_room_for_the_training(void **state)
{
    scene s;
    uint64_t there = 64 << 20;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    tacit_memory_inject(fixed, &there);
    expect_run(&s, TACIT_OK);
    tacit_memory_inject(NULL, NULL);
    assert_in_range(snapshot_memory, 1 << 20, (16 << 20) - 1);
    end(&s);
}

static void sealed_bytes_without_room_are_made_again(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    sealed_without_room = 1;
    expect_a_second_try(&s, TACIT_IO);
    end(&s);
}

static bool same_files(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, "cmp -s %s %s", a, b);
    return system(command) == 0;
}

/* The data are those of the reservation; when their folder is gone afterwards the round ends like
 * any other. */
static void data_that_vanish_change_nothing(void **state)
{
    scene s;
    char copy[160], kept[96], command[256];
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    s.server.lie.drop_method = TACIT__METHOD__METHOD_RESERVE;
    s.server.lie.drop_count = 1000;
    assert_int_equal(run_once(&s, 300), TACIT_UNREACHABLE);
    s.server.lie.drop_count = 0;
    snprintf(copy, sizeof copy, "%s/rounds/a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0.jsonl", s.device.dir);
    assert_true(same_files(copy, s.device.data));
    snprintf(kept, sizeof kept, "%s/kept", s.device.folder);
    snprintf(command, sizeof command, "mv %s %s", s.device.data, kept);
    assert_int_equal(system(command), 0);
    fake_device_data(&s.device, 9); /* other data in their place, then none */
    assert_true(same_files(copy, kept));
    unlink(s.device.data);
    expect_run(&s, TACIT_OK);
    assert_int_equal(account_of(&s).spends, 1);
    assert_int_equal(CALLS(UPLOAD_COMMIT), 1);
    end(&s);
}

/* --- a server that lies about the log --- */

static void expect_lie_found(scene *s)
{
    expect_run(s, TACIT_INTEGRITY);
    assert_int_equal(account_of(s).reserves, 0);
    assert_false(fake_device_has(&s->device, "rounds", ""));
    assert_int_equal(count_calls(s, TACIT__METHOD__METHOD_RESERVE), 0);
}

static void a_shrunken_log_stops_the_device(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.shrink_log = true;
    expect_lie_found(&s);
    assert_non_null(strstr(s.device.err.message, "rolled back"));
    end(&s);
}

static void another_history_stops_the_device(void **state)
{
    scene s;
    (void)state;
    for (int grown = 0; grown < 2; grown++) {
        begin(&s, 3);
        s.server.offer_plan = true;
        if (grown)
            world_enrol(&s.server.w, 0);
        s.server.lie.fork_log = true;
        expect_lie_found(&s);
        end(&s);
    }
}

static void a_strangers_checkpoint_stops_the_device(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.stranger_signs = true;
    expect_lie_found(&s);
    end(&s);
}

/* --- a server that was restored --- */

/* Whose word moves a device to another origin: nobody's but the pinned operator's. */
static void a_server_alone_moves_no_device(void **state)
{
    (void)state;
    for (int lie = 0; lie < 4; lie++) {
        scene s;
        fake_start(&s.server);
        s.server.lie.no_operator_key = lie == 3;
        fake_device_make(&s.device, &s.server.tiny, 3);
        fake_device_enrol(&s.device, &s.server);
        tacit_identity *const signers[] = {s.server.w.log, s.server.w.stranger,
                                           s.server.w.operator_id, s.server.w.operator_id};
        fake_restore(&s.server, signers[lie]);
        if (lie == 2) { /* it tells nobody how it came there */
            s.server.lie.fail_method = TACIT__METHOD__METHOD_RESTORED;
            s.server.lie.fail_status = TACIT_NOT_FOUND;
        }
        s.server.offer_plan = true;
        expect_lie_found(&s);
        assert_non_null(strstr(s.device.err.message, lie == 2 ? "vouches" : "operator key"));
        s.server.lie.fail_status = TACIT_OK;
        end(&s);
    }
}

static void a_restored_server_is_followed(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    expect_run(&s, TACIT_OK);
    fake_restore(&s.server, s.server.w.operator_id);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    assert_int_equal(CALLS(RESTORED), 2);
    assert_int_equal(account_of(&s).spends, 1);
    fake_device_open(&s.device, CLIENT_READS);
    assert_string_equal(s.device.client->enrolment.log.name, WORLD_ORIGIN "/2");
    assert_int_equal(s.device.client->enrolment.log_generation, 2);
    fake_device_close(&s.device);
    assert_true(fake_device_has(&s.device, "receipts", "-origin2.receipt"));
    end(&s);
}

/* A round that the device had reserved for when the server was lost: it is charged, brought again,
 * and given up. */
static void a_restore_ends_the_open_round(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.fail_method = TACIT__METHOD__METHOD_RESERVE;
    s.server.lie.fail_status = TACIT_AGAIN;
    assert_int_not_equal(run_once(&s, 200), TACIT_OK);
    assert_int_equal(account_of(&s).reserves, 1);
    s.server.lie.fail_status = TACIT_OK;
    s.server.offer_plan = false;
    fake_restore(&s.server, s.server.w.operator_id);
    s.server.n_calls = 0;
    expect_run(&s, TACIT_OK);
    tacit_account_status now = account_of(&s);
    assert_int_equal(now.reserves, 1);
    assert_int_equal(now.abandons, 1);
    assert_int_equal(now.spends, 0);
    assert_int_equal(now.unacknowledged, 0);
    assert_true(now.epsilon > 0);
    assert_int_equal(CALLS(RESERVE), 1);
    assert_int_equal(CALLS(ABANDON), 1);
    assert_int_equal(CALLS(UPLOAD_BEGIN), 0);
    end(&s);
}

/* An agent that runs on, while the server is restored when it hears `at`; it is stopped at the
 * second check-in under the new origin. */
static struct {
    fake_server *server;
    uint32_t at;
    bool restored;
    int check_ins; /* since */
    volatile sig_atomic_t stop;
} restoring;

static void restore_when_heard(uint32_t method)
{
    if (!restoring.restored && method == restoring.at) {
        restoring.restored = true;
        fake_restore(restoring.server, restoring.server->w.operator_id);
    }
    restoring.check_ins += restoring.restored && method == TACIT__METHOD__METHOD_CHECK_IN;
    if (restoring.check_ins >= 3) /* found elsewhere, asked again, and the next */
        restoring.stop = 1;
}

static tacit_status run_on(scene *s)
{
    agent_setup setup = {.patience_ms = 10000};
    fake_device_open(&s->device, CLIENT_FEDERATES);
    s->device.client->stop = &restoring.stop;
    tacit_status status = agent_run(s->device.client, &setup, &s->device.err);
    fake_device_close(&s->device);
    return status;
}

static void expect_followed_while_running(scene *s, uint32_t at)
{
    memset(&restoring, 0, sizeof restoring);
    restoring.server = &s->server;
    restoring.at = at;
    s->server.lie.heard = restore_when_heard;
    if (run_on(s) != TACIT_OK)
        fail_msg("%s", s->device.err.message);
    s->server.lie.heard = NULL;
    assert_true(restoring.restored);
    fake_device_open(&s->device, CLIENT_READS);
    assert_string_equal(s->device.client->enrolment.log.name, WORLD_ORIGIN "/2");
    fake_device_close(&s->device);
}

/* The server is restored after it answered a check-in and before it answers what comes next: while
 * a run that found its round open goes on with it, and while an entry is brought into the log. */
static void a_restore_between_two_requests_is_followed(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.fail_method = TACIT__METHOD__METHOD_RESERVE;
    s.server.lie.fail_status = TACIT_AGAIN;
    assert_int_not_equal(run_once(&s, 200), TACIT_OK);
    s.server.lie.fail_status = TACIT_OK;
    s.server.offer_plan = false;
    expect_followed_while_running(&s, TACIT__METHOD__METHOD_RESERVE);
    assert_int_equal(account_of(&s).abandons, 1);
    end(&s);
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.late = true;
    expect_run(&s, TACIT_OK);
    expect_followed_while_running(&s, TACIT__METHOD__METHOD_ABANDON);
    end(&s);
}

/* One more check-in is all that a server gets whose replies contradict each other. */
static void a_server_that_contradicts_itself_is_left(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.wrong_inclusion = true;
    memset(&restoring, 0, sizeof restoring);
    assert_int_equal(run_on(&s), TACIT_INTEGRITY);
    assert_int_equal(CALLS(CHECK_IN), 2);
    assert_int_equal(account_of(&s).unacknowledged, 1);
    end(&s);
}

/* --- a witness in the policy --- */

static void name_witness(scene *s)
{
    char key[TACIT_VKEY_MAX], command[640];
    tacit_note_key witness = fake_witness(&s->server);
    tacit_witness_key_write(&witness, key);
    snprintf(command, sizeof command,
             "sed -i 's|^  epsilon: 8 |  witness_key: \"%s\"\\n  epsilon: 8 |' %s/client.yaml", key,
             s->device.dir);
    assert_int_equal(system(command), 0);
}

static void a_plan_waits_for_the_witness(void **state)
{
    static const struct {
        fake_cosigned cosigned;
        tacit_status status;
        const char *words;
    } rows[] = {{FAKE_NOT_COSIGNED, TACIT_AGAIN, "witness w has cosigned the first 0"},
                {FAKE_COSIGNED_EARLY, TACIT_AGAIN, "it is taken once"},
                {FAKE_COSIGNED_BY_STRANGER, TACIT_INTEGRITY, "cosigned checkpoint"},
                {FAKE_COSIGNED_FORK, TACIT_INTEGRITY, "cosigned checkpoint"},
                {FAKE_COSIGNED_UNPROVED, TACIT_INTEGRITY, "cosigned checkpoint"}};
    scene s;
    (void)state;
    begin(&s, 3);
    name_witness(&s);
    s.server.offer_plan = true;
    world_enrol(&s.server.w, 0); /* something after the plan, to be proved */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        s.server.lie.cosigned = rows[i].cosigned;
        expect_run(&s, rows[i].status);
        assert_non_null(strstr(s.device.err.message, rows[i].words));
        assert_int_equal(account_of(&s).reserves, 0);
    }
    s.server.lie.cosigned = FAKE_COSIGNED;
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    assert_int_equal(account_of(&s).reserves, 1);
    end(&s);
}

/* Without a receipt that holds nothing is trained, however often the agent starts. */
static void a_false_receipt_starts_no_training(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.wrong_inclusion = true;
    for (int i = 0; i < 2; i++) {
        expect_run(&s, TACIT_INTEGRITY);
        assert_int_equal(account_of(&s).unacknowledged, 1);
        assert_false(fake_device_has(&s.device, "rounds", ".ckpt"));
        assert_int_equal(CALLS(UPLOAD_BEGIN), 0);
    }
    s.server.lie.wrong_inclusion = false;
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    assert_int_equal(account_of(&s).reserves, 1);
    end(&s);
}

static void a_late_reserve_is_abandoned_and_stays_spent(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.late = true;
    expect_run(&s, TACIT_OK);
    tacit_account_status a = account_of(&s);
    assert_int_equal(a.abandons, 1);
    assert_true(a.epsilon > 0);
    assert_int_equal(CALLS(UPLOAD_BEGIN), 0);
    expect_run(&s, TACIT_OK); /* the next check-in brings the log up to date */
    assert_int_equal(CALLS(ABANDON), 1);
    expect_run(&s, TACIT_OK);
    assert_int_equal(CALLS(ABANDON), 1);
    end(&s);
}

static void a_revoked_device_ends(void **state)
{
    scene s;
    agent_setup forever = {.once = false, .patience_ms = 1000};
    (void)state;
    begin(&s, 3);
    s.server.lie.revoked = true;
    fake_device_open(&s.device, CLIENT_FEDERATES);
    assert_int_equal(agent_run(s.device.client, &forever, &s.device.err), TACIT_REFUSED);
    end(&s);
}

/* --- budget --- */

static void a_lowered_cap_refuses_the_plan(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.epsilon_cap = 0.01;
    expect_run(&s, TACIT_REFUSED);
    assert_non_null(strstr(s.device.err.message, "0.01"));
    tacit_account_status a = account_of(&s);
    assert_int_equal(a.reserves, 0);
    assert_true(a.policy.epsilon_cap == 0.01);
    assert_false(fake_device_has(&s.device, "rounds", "")); /* no copy of the data is left */
    s.server.lie.epsilon_cap = 100; /* a server never raises it, nor does a restart */
    expect_run(&s, TACIT_REFUSED);
    char command[256];
    snprintf(command, sizeof command, "sed -i 's/^  epsilon: 8 /  epsilon: 7 /' %s/client.yaml",
             s.device.dir);
    assert_int_equal(system(command), 0); /* its owner does */
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    assert_true(account_of(&s).policy.epsilon_cap == 7);
    assert_int_equal(account_of(&s).reserves, 1);
    end(&s);
}

/* What the newest reserve in the log states as its device's cap, and where it stands in the chain.
 */
static double cap_stated(const scene *s, uint64_t *sequence)
{
    tacit_entry e;
    tacit_error err;
    OK(tacit_entry_open(&e, s->server.reserve, s->server.reserve_size, &err));
    double cap = e.entry->reserve->epsilon_cap;
    *sequence = e.entry->sequence;
    tacit_entry_close(&e);
    return cap;
}

/* The operator lowers the cap after the device signed a reserve and before the log has it: the log
 * takes the entry, without a nonce. The round is over for the device, its chain is not: it hears
 * the cap and takes part in the next round that fits. */
static void a_cap_lowered_under_a_reserve_costs_one_round(void **state)
{
    scene s;
    uint64_t sequence;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.drop_method = TACIT__METHOD__METHOD_RESERVE; /* the answer is lost once */
    s.server.lie.drop_count = 1;
    s.server.lie.late = true;
    assert_int_not_equal(run_once(&s, 1000), TACIT_REFUSED);
    expect_run(&s, TACIT_OK);
    assert_true(cap_stated(&s, &sequence) == 8 && sequence == 1);
    tacit_account_status a = account_of(&s);
    double spent = a.epsilon;
    assert_true(spent > 0 && a.policy.epsilon_cap == 8);
    assert_int_equal(a.reserves, 1);
    assert_int_equal(a.abandons, 1);
    assert_int_equal(CALLS(UPLOAD_BEGIN), 0); /* nothing was trained under it */
    assert_false(fake_device_has(&s.device, "rounds", ""));
    s.server.lie = (fake_lies){.epsilon_cap = 5};
    fake_publish(&s.server, 1, 0.01f);
    fake_next_plan(&s.server, 1);
    expect_run(&s, TACIT_OK);
    assert_true(cap_stated(&s, &sequence) == 5 && sequence == 3); /* after the abandon */
    assert_int_equal(CALLS(UPLOAD_COMMIT), 1);
    s.server.lie.epsilon_cap = 8; /* whatever the server says later, the lower cap stays */
    expect_run(&s, TACIT_OK);
    a = account_of(&s);
    assert_true(a.epsilon > spent && a.policy.epsilon_cap == 5);
    assert_int_equal(a.spends, 1);
    assert_int_equal(a.unacknowledged, 0);
    end(&s);
}

/* --- a log that does not take a reserve --- */

/* The reserve stays signed and spent, its round ends, adapters are followed, and nothing more is
 * reserved behind an entry that the log does not take. Once it does, the chain goes in in order and
 * the next round runs. */
static void a_refused_reserve_ends_its_round_alone(void **state)
{
    scene s;
    (void)state;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.fail_method = TACIT__METHOD__METHOD_RESERVE;
    s.server.lie.fail_status = TACIT_REFUSED;
    expect_run(&s, TACIT_REFUSED);
    double spent = account_of(&s).epsilon;
    assert_true(spent > 0);
    assert_int_equal(account_of(&s).abandons, 1);
    assert_false(fake_device_has(&s.device, "rounds", ""));
    fake_publish(&s.server, 1, 0.01f);
    fake_next_plan(&s.server, 1);
    expect_run(&s, TACIT_REFUSED);
    assert_non_null(strstr(s.device.err.message, "does not take entry 1"));
    assert_int_equal(active_version(&s), 1);
    assert_int_equal(account_of(&s).reserves, 1);
    assert_true(account_of(&s).epsilon == spent);
    s.server.lie.fail_status = TACIT_OK;
    expect_run(&s, TACIT_OK);
    tacit_account_status a = account_of(&s);
    assert_int_equal(a.reserves, 2);
    assert_int_equal(a.spends, 1);
    assert_true(a.epsilon > spent);
    assert_int_equal(CALLS(UPLOAD_COMMIT), 1);
    expect_run(&s, TACIT_OK);
    assert_int_equal(account_of(&s).unacknowledged, 0);
    end(&s);
}

/* --- adapters --- */

static void adapters_are_followed_up_and_down(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    static const uint64_t versions[] = {1, 2, 1, 3};
    for (size_t i = 0; i < 4; i++) {
        fake_publish(&s.server, versions[i], 0.01f * (float)versions[i]);
        expect_run(&s, TACIT_OK);
        assert_int_equal(active_version(&s), versions[i]);
    }
    end(&s);
}

static void corrupt_adapters_leave_the_old_one_active(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    fake_publish(&s.server, 2, 0.02f);
    s.server.lie.corrupt_adapter = true;
    expect_run(&s, TACIT_INTEGRITY);
    assert_int_equal(active_version(&s), 1);
    assert_false(fake_device_has(&s.device, "adapters", ".part"));
    s.server.lie.corrupt_adapter = false;
    expect_run(&s, TACIT_OK);
    assert_int_equal(active_version(&s), 2);
    end(&s);
}

static void publications_must_be_signed_and_logged(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    s.server.lie.manifest_by_stranger = true;
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_INTEGRITY);
    s.server.lie.manifest_by_stranger = false;
    fake_publish(&s.server, 2, 0.02f);
    s.server.lie.manifest_not_logged = true;
    expect_run(&s, TACIT_INTEGRITY);
    s.server.lie.manifest_not_logged = false;
    s.server.manifest_index--; /* the entry of another publication */
    expect_run(&s, TACIT_INTEGRITY);
    assert_int_equal(active_version(&s), 0);
    assert_int_equal(CALLS(ADAPTER_CHUNK), 0);
    s.server.manifest_index++;
    expect_run(&s, TACIT_OK);
    assert_int_equal(active_version(&s), 2);
    end(&s);
}

/* Nothing is fetched for a promise that no mechanism gives; an infinite epsilon is one. */
static void impossible_guarantees_are_refused(void **state)
{
    static const struct {
        double server, published, delta;
    } bad[] = {{1, 1, NAN},   {1, 1, -1e-9},        {1, 1, 1},       {NAN, 1, 1e-5}, {1, NAN, 1e-5},
               {1, -1, 1e-5}, {-INFINITY, 1, 1e-5}, {1, 1, INFINITY}};
    scene s;
    uint64_t version = 1;
    (void)state;
    begin(&s, 0);
    s.server.lie.spoils_guarantee = true;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        s.server.lie.epsilon_server = bad[i].server;
        s.server.lie.epsilon_published = bad[i].published;
        s.server.lie.delta = bad[i].delta;
        fake_publish(&s.server, version++, 0.01f);
        expect_run(&s, TACIT_BAD_INPUT);
        assert_int_equal(CALLS(ADAPTER_CHUNK), 0);
    }
    s.server.lie.epsilon_server = s.server.lie.epsilon_published = INFINITY;
    s.server.lie.delta = 0;
    fake_publish(&s.server, version, 0.01f);
    expect_run(&s, TACIT_OK);
    assert_int_equal(active_version(&s), version);
    end(&s);
}

static void an_interrupted_fetch_goes_on(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    fake_publish(&s.server, 1, 0.01f);
    size_t chunks = (s.server.adapter_size + 999) / 1000;
    assert_true(chunks >= 3);
    s.server.lie.drop_method = TACIT__METHOD__METHOD_ADAPTER_CHUNK;
    s.server.lie.drop_from = 2;
    s.server.lie.drop_count = 1000;
    assert_int_equal(run_once(&s, 300), TACIT_UNREACHABLE);
    assert_true(fake_device_has(&s.device, "adapters", ".part"));
    s.server.lie.drop_count = 0;
    s.server.n_calls = 0;
    expect_run(&s, TACIT_OK);
    assert_int_equal(active_version(&s), 1);
    assert_int_equal(CALLS(ADAPTER_CHUNK), chunks - 2);
    end(&s);
}

static size_t count_files(const scene *s, const char *folder)
{
    char path[192];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/%s", s->device.dir, folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* A server that names a new adapter at every check-in and never finishes one, or sends other bytes,
 * leaves one file behind beside those of use: active.json and the adapter in force. */
static void unfinished_adapters_do_not_pile_up(void **state)
{
    scene s;
    (void)state;
    begin(&s, 0);
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    assert_int_equal(count_files(&s, "adapters"), 2);
    s.server.lie.drop_method = TACIT__METHOD__METHOD_ADAPTER_CHUNK;
    s.server.lie.drop_from = 2;
    s.server.lie.drop_count = 1000;
    for (uint64_t version = 2; version < 6; version++) {
        fake_publish(&s.server, version, 0.01f * (float)version);
        s.server.n_calls = 0;
        assert_int_equal(run_once(&s, 300), TACIT_UNREACHABLE);
        assert_true(fake_device_has(&s.device, "adapters", ".part"));
        assert_int_equal(count_files(&s, "adapters"), 3);
    }
    s.server.lie.drop_count = 0;
    expect_run(&s, TACIT_OK);
    assert_int_equal(active_version(&s), 5);
    assert_int_equal(count_files(&s, "adapters"), 3); /* with the one before */
    end(&s);
}

static void spoil_part(const scene *s)
{
    char command[256];
    snprintf(command, sizeof command,
             "printf XXXX | dd of=$(ls %s/adapters/*.part) bs=1 seek=700 conv=notrunc status=none",
             s->device.dir);
    assert_int_equal(system(command), 0);
}

/* What a power cut made of the chunks of an earlier run is no fault of the server: the file is
 * fetched anew, once. A server that then sends a wrong file whole is told apart. */
static void a_damaged_part_is_fetched_anew_once(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        scene s;
        begin(&s, 0);
        fake_publish(&s.server, 1, 0.01f);
        size_t chunks = (s.server.adapter_size + 999) / 1000;
        s.server.lie.drop_method = TACIT__METHOD__METHOD_ADAPTER_CHUNK;
        s.server.lie.drop_from = 2;
        s.server.lie.drop_count = 1000;
        assert_int_equal(run_once(&s, 300), TACIT_UNREACHABLE);
        spoil_part(&s);
        s.server.lie.drop_count = 0;
        s.server.lie.corrupt_adapter = wrong;
        s.server.n_calls = 0;
        expect_run(&s, wrong ? TACIT_INTEGRITY : TACIT_OK);
        assert_int_equal(CALLS(ADAPTER_CHUNK), chunks - 2 + chunks);
        assert_int_equal(active_version(&s), wrong ? 0 : 1);
        assert_false(fake_device_has(&s.device, "adapters", ".part"));
        end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enrolment_pins_the_tokens_server),
        cmocka_unit_test(a_lost_enrolment_is_repeated_with_new_keys),
        cmocka_unit_test(a_round_is_reserved_trained_and_sent),
        cmocka_unit_test(the_schedule_of_messages_is_blind),
        cmocka_unit_test(a_lost_acknowledgement_is_asked_for_again),
        cmocka_unit_test(an_upload_continues_at_the_servers_offset),
        cmocka_unit_test(a_damaged_upload_is_sent_again),
        cmocka_unit_test(a_machine_out_of_memory_tries_the_round_again),
        cmocka_unit_test(a_plan_that_does_not_fit_is_refused_before_it_is_reserved),
        cmocka_unit_test(examples_leave_room_for_the_training),
        cmocka_unit_test(sealed_bytes_without_room_are_made_again),
        cmocka_unit_test(data_that_vanish_change_nothing),
        cmocka_unit_test(a_shrunken_log_stops_the_device),
        cmocka_unit_test(another_history_stops_the_device),
        cmocka_unit_test(a_strangers_checkpoint_stops_the_device),
        cmocka_unit_test(a_server_alone_moves_no_device),
        cmocka_unit_test(a_restored_server_is_followed),
        cmocka_unit_test(a_restore_ends_the_open_round),
        cmocka_unit_test(a_restore_between_two_requests_is_followed),
        cmocka_unit_test(a_server_that_contradicts_itself_is_left),
        cmocka_unit_test(a_plan_waits_for_the_witness),
        cmocka_unit_test(a_false_receipt_starts_no_training),
        cmocka_unit_test(a_late_reserve_is_abandoned_and_stays_spent),
        cmocka_unit_test(a_revoked_device_ends),
        cmocka_unit_test(a_lowered_cap_refuses_the_plan),
        cmocka_unit_test(a_cap_lowered_under_a_reserve_costs_one_round),
        cmocka_unit_test(a_refused_reserve_ends_its_round_alone),
        cmocka_unit_test(adapters_are_followed_up_and_down),
        cmocka_unit_test(corrupt_adapters_leave_the_old_one_active),
        cmocka_unit_test(publications_must_be_signed_and_logged),
        cmocka_unit_test(impossible_guarantees_are_refused),
        cmocka_unit_test(an_interrupted_fetch_goes_on),
        cmocka_unit_test(unfinished_adapters_do_not_pile_up),
        cmocka_unit_test(a_damaged_part_is_fetched_anew_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
