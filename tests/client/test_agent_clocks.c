/* The agent and time: deadlines, clocks that are wrong, certificates that run out, and what the
 * time of a message tells. Against the server of test_agent.c, by a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_scene.h"
#include "client/round_state_store.h"
#include "common/clock.h"
#include "common/tls.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t shifted_ms;

static uint64_t shifted_clock(void *ctx)
{
    struct timespec now;
    (void)ctx;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + atomic_load(&shifted_ms);
}

static void a_round_that_ended_is_given_up_by_the_clock(void **state)
{
    scene s;
    (void)state;
    fake_deadline_ms = tacit_clock_wall_ms() + 3600000;
    begin(&s, 3);
    s.server.offer_plan = true;
    s.server.lie.drop_method = TACIT__METHOD__METHOD_RESERVE;
    s.server.lie.drop_count = 1000;
    assert_int_equal(run_once(&s, 300), TACIT_UNREACHABLE);
    s.server.lie.drop_count = 0;
    tacit_clock_inject(shifted_clock, NULL);
    atomic_store(&shifted_ms, 3 * 3600000);
    expect_run(&s, TACIT_OK);
    tacit_account_status a = account_of(&s);
    assert_int_equal(a.abandons, 1);
    assert_true(a.epsilon > 0);
    assert_int_equal(CALLS(UPLOAD_BEGIN), 0);
    assert_false(fake_device_has(&s.device, "rounds", ""));
    atomic_store(&shifted_ms, 0);
    tacit_clock_inject(NULL, NULL);
    tacit_tls_reset_time_floor();
    fake_deadline_ms = 4000000000000;
    end(&s);
}

/* A device whose clock is an hour ahead finds the deadline passed and takes part all the same. */
static void a_clock_an_hour_ahead_takes_part(void **state)
{
    scene s;
    (void)state;
    fake_deadline_ms = tacit_clock_wall_ms() + 600000;
    begin(&s, 3);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    tacit_clock_inject(shifted_clock, NULL);
    atomic_store(&shifted_ms, 3600000);
    expect_run(&s, TACIT_OK);
    assert_int_equal(account_of(&s).spends, 1);
    assert_int_equal(account_of(&s).abandons, 0);
    assert_int_equal(CALLS(UPLOAD_COMMIT), 1);
    atomic_store(&shifted_ms, 0);
    tacit_clock_inject(NULL, NULL);
    tacit_tls_reset_time_floor();
    fake_deadline_ms = 4000000000000;
    end(&s);
}

/* A clock that is set back ten years wins no budget. It finds the certificate not yet valid and
 * takes no part; where the log has shown a later time, by which certificates are judged then, it
 * does, and what it reserves comes on top of what was reserved before, as does the next round by
 * the right time. */
static void a_clock_set_back_ten_years_wins_nothing(void **state)
{
    scene s;
    double spent[3];
    (void)state;
    begin(&s, 3);
    uint64_t now = tacit_clock_wall_ms();
    tacit_clock_inject(shifted_clock, NULL);
    for (int round = 0; round < 3; round++) {
        atomic_store(&shifted_ms, round == 1 ? (uint64_t)-315576000000ll : 0);
        fake_publish(&s.server, (uint64_t)round + 1, 0.01f);
        if (round)
            fake_next_plan(&s.server, round);
        s.server.offer_plan = true;
        if (round == 1) {
            assert_int_equal(run_once(&s, 300), TACIT_UNREACHABLE);
            assert_int_equal(account_of(&s).reserves, 1);
            assert_true(account_of(&s).epsilon == spent[0]);
            tacit_tls_raise_time_floor(now);
        }
        expect_run(&s, TACIT_OK);
        spent[round] = account_of(&s).epsilon;
        assert_int_equal(account_of(&s).reserves, round + 1);
        assert_true(round == 0 || spent[round] > spent[round - 1]);
    }
    /* The same three rounds by a clock that stood right. */
    scene right;
    begin(&right, 3);
    for (int round = 0; round < 3; round++) {
        fake_publish(&right.server, (uint64_t)round + 1, 0.01f);
        if (round)
            fake_next_plan(&right.server, round);
        right.server.offer_plan = true;
        expect_run(&right, TACIT_OK);
        assert_true(account_of(&right).epsilon == spent[round]);
    }
    end(&right);
    tacit_clock_inject(NULL, NULL);
    tacit_tls_reset_time_floor();
    end(&s);
}

/* Sealed bytes that the server never takes: tried as long as the round may still run, and given up
 * an hour after its deadline. The log hears of the spend all the same, and the next round runs. Or
 * the server accepted them and only its answer never came: nothing is said against that. */
static void an_update_that_cannot_be_sent_is_given_up(void **state)
{
    (void)state;
    for (int accepted = 0; accepted < 2; accepted++) {
        scene s;
        tacit_status failure = accepted ? TACIT_UNREACHABLE : TACIT_FAILED;
        fake_deadline_ms = tacit_clock_wall_ms() + 3600000;
        begin(&s, 3);
        tacit_clock_inject(shifted_clock, NULL);
        s.server.offer_plan = true;
        s.server.lie.fail_method = TACIT__METHOD__METHOD_UPLOAD_BEGIN;
        s.server.lie.fail_status = accepted ? TACIT_OK : TACIT_FAILED;
        s.server.lie.drop_method = TACIT__METHOD__METHOD_UPLOAD_COMMIT;
        s.server.lie.drop_count = accepted ? 1000 : 0;
        assert_int_equal(run_once(&s, 300), failure);
        atomic_store(&shifted_ms, 7000000); /* less than the deadline and an hour */
        assert_int_equal(run_once(&s, 300), failure);
        assert_true(fake_device_has(&s.device, "rounds", ".sealed"));
        atomic_store(&shifted_ms, 7300000);
        assert_int_equal(run_once(&s, 300), TACIT_OK);
        assert_false(fake_device_has(&s.device, "rounds", ""));
        tacit_account_status a = account_of(&s);
        assert_int_equal(a.spends, 1);
        assert_true(a.epsilon > 0);
        s.server.lie.fail_status = TACIT_OK;
        s.server.lie.drop_count = 0;
        s.server.n_calls = 0;
        fake_publish(&s.server, 1, 0.01f);
        fake_next_plan(&s.server, 1);
        expect_run(&s, TACIT_OK);
        assert_int_equal(account_of(&s).spends, 2);
        assert_int_equal(account_of(&s).abandons, 0);
        assert_true(fake_device_has(&s.device, "receipts", "000002-spend.receipt"));
        assert_true(fake_device_has(&s.device, "receipts", "000003-reserve.receipt"));
        assert_int_equal(CALLS(UPLOAD_COMMIT), 1);
        atomic_store(&shifted_ms, 0);
        tacit_clock_inject(NULL, NULL);
        end(&s);
    }
    tacit_tls_reset_time_floor();
    fake_deadline_ms = 4000000000000;
}

/* From the moment that the sealed bytes are there the clock shows 16 days later, so that the
 * certificate is due; it also looks at what the server sees of the device. */
static struct {
    char sealed[160];
    tacit_listener *listener;
    _Atomic bool seen;
    uint64_t connections;
} watch;

static uint64_t watching_clock(void *ctx)
{
    if (access(watch.sealed, F_OK) == 0 && !atomic_exchange(&watch.seen, true)) {
        for (int i = 0; i < 200; i++) {
            watch.connections = tacit_listener_count(watch.listener).connections;
            if (watch.connections == 0)
                break;
            tacit_clock_sleep_ms(10);
        }
        /* A second past a multiple of the pad: the upload has to wait for most of another. */
        atomic_store(&shifted_ms, 16 * 86400000 + 1000);
    }
    return shifted_clock(ctx);
}

static tacit_status take_upload_time(void *ctx, const round_state *r, tacit_error *err)
{
    (void)err;
    *(uint64_t *)ctx = r->upload_ms;
    return TACIT_OK;
}

static uint64_t upload_ms_of(scene *s)
{
    uint64_t ms = 0;
    fake_device_open(&s->device, CLIENT_READS);
    OK(round_state_each(s->device.client->db, 1, take_upload_time, &ms, &s->device.err));
    fake_device_close(&s->device);
    return ms;
}

/* Neither a renewal nor a connection that closes or opens marks the end of training: after the
 * reserve nothing is heard of the device before the time of its upload. */
static void nothing_marks_the_end_of_training(void **state)
{
    scene s;
    size_t i = 0;
    (void)state;
    fake_pad_seconds = 4;
    begin(&s, 3);
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    memset(&watch, 0, sizeof watch);
    watch.listener = s.server.devices;
    watch.connections = 99;
    snprintf(watch.sealed, sizeof watch.sealed, "%s/rounds/%s.sealed", s.device.dir,
             "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0");
    tacit_clock_inject(watching_clock, NULL);
    expect_run(&s, TACIT_OK);
    assert_int_equal(watch.connections, 0);
    while (s.server.call[i].method != TACIT__METHOD__METHOD_RESERVE)
        i++;
    uint64_t upload_ms = upload_ms_of(&s);
    for (i++; i < s.server.n_calls; i++)
        assert_true(s.server.call[i].at_ms >= upload_ms);
    assert_int_equal(CALLS(RENEW), 1);
    assert_int_equal(CALLS(UPLOAD_COMMIT), 1);
    atomic_store(&shifted_ms, 0);
    tacit_clock_inject(NULL, NULL);
    tacit_tls_reset_time_floor();
    fake_pad_seconds = 0;
    end(&s);
}

/* --- certificates --- */

static uint64_t generation(scene *s)
{
    fake_device_open(&s->device, CLIENT_READS);
    uint64_t n = s->device.client->enrolment.tls_generation;
    fake_device_close(&s->device);
    return n;
}

static void certificates_are_renewed_in_time_and_after(void **state)
{
    static const struct {
        uint64_t days;
        uint64_t generation;
    } later[] = {{10, 1}, {16, 2}, {17, 2}, {16 + 16, 3}, {16 + 16 + 50, 4}};
    scene s;
    (void)state;
    begin(&s, 0);
    tacit_clock_inject(shifted_clock, NULL);
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        atomic_store(&shifted_ms, later[i].days * 86400000);
        expect_run(&s, TACIT_OK); /* the last one after the certificate had expired */
        assert_int_equal(generation(&s), later[i].generation);
    }
    assert_int_equal(CALLS(RENEW), 3);
    assert_false(fake_device_has(&s.device, "identity", "tls-1.key"));
    atomic_store(&shifted_ms, 0);
    tacit_clock_inject(NULL, NULL);
    tacit_tls_reset_time_floor();
    end(&s);
}
/* Whatever the server says to a renewal, the certificate in force is good for what it is good for.
 */
static void a_failing_renewal_holds_up_nothing(void **state)
{
    static const tacit_status answers[] = {TACIT_AGAIN, TACIT_FAILED, TACIT_REFUSED,
                                           TACIT_INTEGRITY};
    scene s;
    (void)state;
    begin(&s, 3);
    tacit_clock_inject(shifted_clock, NULL);
    atomic_store(&shifted_ms, (uint64_t)16 * 86400000);
    s.server.lie.fail_method = TACIT__METHOD__METHOD_RENEW;
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        s.server.lie.fail_status = answers[i];
        expect_run(&s, TACIT_OK);
        assert_int_equal(CALLS(RENEW), i + 1);
    }
    s.server.lie.fail_status = TACIT_OK;
    s.server.lie.drop_method = TACIT__METHOD__METHOD_RENEW; /* no answer at all */
    s.server.lie.drop_count = 1000;
    assert_int_equal(run_once(&s, 1500), TACIT_OK);
    s.server.lie.drop_count = 0;
    s.server.lie.fail_status = TACIT_FAILED;
    s.server.offer_plan = true;
    fake_publish(&s.server, 1, 0.01f);
    expect_run(&s, TACIT_OK);
    assert_int_equal(CALLS(UPLOAD_COMMIT), 1);
    assert_int_equal(active_version(&s), 1);
    assert_int_equal(generation(&s), 1);
    atomic_store(&shifted_ms, (uint64_t)31 * 86400000); /* expired: nothing goes without it */
    size_t before = CALLS(CHECK_IN);
    expect_run(&s, TACIT_FAILED);
    assert_int_equal(CALLS(CHECK_IN), before);
    s.server.lie = (fake_lies){.late = false};
    expect_run(&s, TACIT_OK);
    assert_int_equal(generation(&s), 2);
    atomic_store(&shifted_ms, 0);
    tacit_clock_inject(NULL, NULL);
    tacit_tls_reset_time_floor();
    end(&s);
}

/* Each check-in moves the clock by `step_ms`; after the last one the agent's own thread stops. */
static struct {
    uint64_t step_ms;
    _Atomic int left;
    pthread_t agent;
    volatile sig_atomic_t stop;
} stepping;

static void step_clock(uint32_t method)
{
    if (method != TACIT__METHOD__METHOD_CHECK_IN)
        return;
    atomic_fetch_add(&shifted_ms, stepping.step_ms);
    atomic_fetch_sub(&stepping.left, 1);
}

static uint64_t stepping_clock(void *ctx)
{
    if (pthread_equal(pthread_self(), stepping.agent) && atomic_load(&stepping.left) <= 0)
        stepping.stop = 1;
    return shifted_clock(ctx);
}

/* Lines of a file that have this text. */
static size_t lines_with(const char *path, const char *text)
{
    char line[2048];
    size_t n = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        n += strstr(line, text) != NULL;
    fclose(file);
    return n;
}

/* An agent that runs on over so many check-ins while every renewal fails; returns how often the log
 * said so. */
static size_t run_on(scene *s, uint64_t begin_ms, uint64_t step_ms, int check_ins)
{
    agent_setup setup = {.patience_ms = 10000};
    char path[128];
    fake_device *d = &s->device;
    snprintf(path, sizeof path, "%s/stderr", d->folder);
    stepping.step_ms = step_ms;
    atomic_store(&stepping.left, check_ins);
    stepping.agent = pthread_self();
    stepping.stop = 0;
    atomic_store(&shifted_ms, begin_ms);
    s->server.n_calls = 0;
    s->server.lie.heard = step_clock;
    int log = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), kept = dup(STDERR_FILENO);
    assert_true(log >= 0 && kept >= 0);
    fake_device_open(d, CLIENT_FEDERATES);
    d->client->stop = &stepping.stop;
    dup2(log, STDERR_FILENO);
    tacit_status status = agent_run(d->client, &setup, &d->err);
    dup2(kept, STDERR_FILENO);
    close(log);
    close(kept);
    fake_device_close(d);
    assert_int_equal(status, TACIT_OK);
    return lines_with(path, "cannot be renewed");
}

/* The times of the renewals that were asked for. */
static size_t renewals(const scene *s, uint64_t at_ms[FAKE_CALLS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < s->server.n_calls; i++)
        if (s->server.call[i].method == TACIT__METHOD__METHOD_RENEW)
            at_ms[n++] = s->server.call[i].at_ms;
    return n;
}

/* After 1, 2, 4, 8, 16 and 32 minutes, then every hour; one line an hour. */
static void renewals_that_fail_become_rare(void **state)
{
    const uint64_t minute = 60000, step = 2 * minute;
    uint64_t at_ms[FAKE_CALLS_MAX], wait = minute;
    scene s;
    (void)state;
    begin(&s, 0);
    tacit_clock_inject(stepping_clock, NULL);
    s.server.lie.fail_method = TACIT__METHOD__METHOD_RENEW;
    s.server.lie.fail_status = TACIT_FAILED;
    size_t lines = run_on(&s, (uint64_t)16 * 86400000, step, 70);
    size_t n = renewals(&s, at_ms);
    assert_int_equal(CALLS(CHECK_IN), 70);
    assert_int_equal(n, 8);
    for (size_t i = 1; i < n; i++) {
        assert_in_range(at_ms[i] - at_ms[i - 1], wait, wait + 2 * step);
        wait = 2 * wait < 60 * minute ? 2 * wait : 60 * minute;
    }
    assert_int_equal(lines, 3); /* 140 minutes */
    /* 40 minutes before its end a certificate cannot wait that long. */
    run_on(&s, (uint64_t)30 * 86400000 - 40 * minute, minute, 30);
    n = renewals(&s, at_ms);
    assert_true(n >= 8);
    for (size_t i = 1; i < n; i++)
        assert_true(at_ms[i] - at_ms[i - 1] <= 6 * minute);
    s.server.lie.heard = NULL;
    atomic_store(&shifted_ms, 0);
    tacit_clock_inject(NULL, NULL);
    tacit_tls_reset_time_floor();
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_that_ended_is_given_up_by_the_clock),
        cmocka_unit_test(a_clock_an_hour_ahead_takes_part),
        cmocka_unit_test(a_clock_set_back_ten_years_wins_nothing),
        cmocka_unit_test(an_update_that_cannot_be_sent_is_given_up),
        cmocka_unit_test(nothing_marks_the_end_of_training),
        cmocka_unit_test(certificates_are_renewed_in_time_and_after),
        cmocka_unit_test(a_failing_renewal_holds_up_nothing),
        cmocka_unit_test(renewals_that_fail_become_rare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
