/* Rounds from schedule to publication against an independent sum, and every way in which a round
 * ends otherwise; a restart in every state. Devices are tests/server/fleet.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

#include "privacy/audit.h"
#include "privacy/gaussian.h"
#include "privacy/published.h"

#define START                                                                                      \
    "round start", "rounds", "2", "steps", "4", "q", "0.5", "noise-multiplier", "2", "unit",       \
        "record", "cohort", "2", "quorum", "2", "deadline-seconds", "600", "pad-seconds", "0",     \
        "norm-bound", "1000"

static fleet f;
static fleet_device one, two;

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, true);
    fleet_join_two(&one, &two, &f);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_end_two(&one, &two, &f);
    return 0;
}

static void expect_clean_audit(bool allow_non_private)
{
    fleet_expect_clean_audit(&f, allow_non_private);
}

static json_t *adapter_list(void)
{
    return FLEET_ASK(&f, "adapter list");
}

/* The values of a published adapter file, by its digest. */
static void read_published(size_t at, float *values, size_t *count, const fleet_task *like)
{
    char path[320];
    tacit_trainable_spec spec;
    tacit_error err;
    json_t *list = adapter_list();
    json_t *row = json_array_get(list, at);
    snprintf(path, sizeof path, "%s/adapters/%s.gguf", f.dir,
             json_string_value(json_object_get(row, "file_digest")));
    fleet_must(tacit_trainable_spec_from_message(&spec, like->plan->adapter, &err), &err, "spec");
    *count = like->layout.values;
    fleet_must(tacit_adapter_read_values(path, f.server->model, &spec, values, &err), &err,
               "values");
    json_decref(list);
}

static void serve_second(double value, fleet_task *kept)
{
    fleet_take(&two, kept);
    fleet_must(fleet_reserve_locally(&two, kept), &two.err, "reserve");
    fleet_must(fleet_send_reserve(&two, kept), &two.err, "send reserve");
    fleet_seal_value(&two, kept, value);
    assert_string_equal(fleet_upload(&two, kept), "");
}

/* Both devices through a round; the task of the second is kept for its layout. */
static void serve_both(double first, double second, fleet_task *kept)
{
    fleet_serve_round(&one, first);
    serve_second(second, kept);
}

static void test_two_rounds(void **state)
{
    (void)state;
    fleet_task kept, again;
    float *values;
    size_t count;
    json_decref(FLEET_ASK(&f, START));
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    serve_both(0.25, 0.75, &kept);
    values = malloc(kept.layout.values * sizeof *values);
    fleet_step(&f);
    fleet_expect_round(&f, "aggregating", "");
    fleet_step(&f);
    fleet_expect_round(&f, "evaluating", "");
    fleet_step(&f);
    fleet_expect_round(&f, "published", "");
    read_published(0, values, &count, &kept);
    for (size_t i = 0; i < count;
         i++) /* the mean, exact: powers of two at a power of two's scale */
        assert_true(values[i] == 0.5f);
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    /* The second round starts from the first one's adapter. */
    serve_both(-0.125, -0.375, &again);
    assert_int_equal(again.plan->parent_version, 1);
    fleet_work(&f);
    read_published(1, values, &count, &again);
    for (size_t i = 0; i < count; i++)
        assert_true(values[i] == 0.25f);
    json_t *list = adapter_list();
    assert_int_equal(json_array_size(list), 2);
    double e1 = json_real_value(json_object_get(json_array_get(list, 0), "epsilon_published"));
    double e2 = json_real_value(json_object_get(json_array_get(list, 1), "epsilon_published"));
    assert_true(e1 > 0 && e2 > e1);
    json_t *budgets = FLEET_ASK(&f, "budget show");
    /* The manifest's number is what each device was charged for both rounds. */
    for (size_t i = 0; i < 2; i++)
        assert_true(fabs(json_real_value(json_object_get(json_array_get(budgets, i), "epsilon")) -
                         e2) <= 1e-9 * e2);
    json_decref(budgets);
    json_decref(list);
    expect_clean_audit(false);
    fleet_task_free(&kept);
    fleet_task_free(&again);
    free(values);
}

/* --- how collecting ends --- */

static void start(const char *option, const char *value)
{
    json_decref(FLEET_ASK(&f, START, option, value));
    fleet_work(&f);
}

static void nan_scale(Tacit__Update *u, uint8_t *values)
{
    (void)values;
    u->scale = NAN;
}

static void huge_value(Tacit__Update *u, uint8_t *values)
{
    (void)u;
    tacit_store_u32(values, INT32_MAX);
}

/* A round in which the second device's update is spoilt before it is sealed. */
static void serve_with_a_bad_one(void (*change)(Tacit__Update *, uint8_t *), const char *word,
                                 fleet_task *bad)
{
    Tacit__Update u;
    fleet_work(&f);
    fleet_serve_round(&one, 0.25);
    fleet_take(&two, bad);
    uint8_t *values = malloc(4 * bad->layout.values);
    assert_non_null(values);
    fleet_must(fleet_reserve_locally(&two, bad), &two.err, "reserve");
    fleet_must(fleet_send_reserve(&two, bad), &two.err, "send reserve");
    fleet_fill(&two, bad, &u, values, 0.75);
    change(&u, values);
    fleet_seal(&two, bad, &u);
    assert_string_equal(fleet_upload(&two, bad), word);
    free(values);
}

/* One update of NaN, one that is huge: each is left out alone, and the mean is exactly that of the
 * others, divided by their number. */
static void test_a_bad_update_is_left_out_alone(void **state)
{
    (void)state;
    static const struct {
        void (*change)(Tacit__Update *, uint8_t *);
        const char *word;
    } rows[] = {{nan_scale, "finite"}, {huge_value, "norm"}};
    json_decref(FLEET_ASK(&f, START, "quorum", "1"));
    for (size_t round = 0; round < 2; round++) {
        fleet_task bad;
        size_t count;
        serve_with_a_bad_one(rows[round].change, rows[round].word, &bad);
        float *values = malloc(bad.layout.values * sizeof *values);
        for (int step = 0; step < 3; step++)
            fleet_step(&f);
        fleet_expect_round(&f, "published", "");
        read_published(round, values, &count, &bad);
        for (size_t i = 0; i < count; i++) /* each round adds the first device's quarter */
            assert_true(values[i] == 0.25f * (float)(round + 1));
        free(values);
        fleet_task_free(&bad);
    }
    expect_clean_audit(false);
}

/* No upload would leave before the round is over. */
static void test_a_pad_as_long_as_the_round_is_refused(void **state)
{
    tacit_error err;
    (void)state;
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "round start", "deadline-seconds", "60"),
                     TACIT_USAGE);
    assert_non_null(strstr(err.message, "pad-seconds 60"));
    assert_int_equal(
        FLEET_VERB(&f, NULL, &err, "round start", "deadline-seconds", "600", "pad-seconds", "600"),
        TACIT_USAGE);
}

static void test_waits_for_devices(void **state)
{
    (void)state;
    json_decref(FLEET_ASK(&f, START, "cohort", "3"));
    fleet_work(&f);
    json_t *list = FLEET_ASK(&f, "round list");
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    fleet_device three;
    fleet_join(&three, &f, "three");
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    fleet_device_free(&three);
}

/* A device whose declared policy refuses the plan is not asked. */
static void test_unwilling_devices_are_not_asked(void **state)
{
    (void)state;
    json_decref(FLEET_ASK(&f, START, "mechanism", "none"));
    fleet_work(&f);
    json_t *list = FLEET_ASK(&f, "round list");
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    json_t *events = server_events_since(f.server->events, 0, 0);
    json_t *event = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(json_string_value(json_object_get(event, "kind")), "waiting");
    assert_int_equal(json_integer_value(json_object_get(event, "unwilling")), 2);
    json_decref(events);
}

static void test_quorum_missed_at_deadline(void **state)
{
    (void)state;
    start("target", "2");
    fleet_serve_round(&one, 0.5);
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    fleet_task t;
    fleet_take(&two, &t); /* reserves and is never heard of again */
    fleet_must(fleet_reserve_locally(&two, &t), &two.err, "reserve");
    fleet_must(fleet_send_reserve(&two, &t), &two.err, "send");
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    atomic_fetch_add(&fleet_now, 600 * 1000);
    fleet_step(&f);
    json_t *row = fleet_round(&f);
    assert_string_equal(json_string_value(json_object_get(row, "state")), "failed");
    assert_string_equal(json_string_value(json_object_get(row, "reason")), "quorum");
    json_decref(row);
    /* The sealed bytes of the failed round are gone, and the late one hears so. */
    fleet_seal_value(&two, &t, 1);
    assert_string_equal(fleet_upload(&two, &t), "late");
    char path[SERVER_PATH_MAX];
    tacit_error err;
    fleet_must(round_upload_path(f.server, t.reserve.hash, path, &err), &err, "path");
    assert_int_not_equal(access(path, F_OK), 0);
    fleet_task_free(&t);
    expect_clean_audit(false);
}

static void test_quorum_reached_at_deadline(void **state)
{
    (void)state;
    start("quorum", "1");
    fleet_serve_round(&one, 0.5);
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", "");
    atomic_fetch_add(&fleet_now, 600 * 1000);
    fleet_step(&f);
    fleet_step(&f);
    fleet_step(&f);
    fleet_expect_round(&f, "published", "");
    expect_clean_audit(false);
}

/* A device that is revoked while it is asked can never answer: nobody waits for it until the
 * deadline. One whose update is in the sum already is not counted twice. */
static void test_revoked_devices_are_not_awaited(void **state)
{
    (void)state;
    fleet_task t;
    start("quorum", "1");
    fleet_serve_round(&one, 0.5);
    json_decref(FLEET_ASK(&f, "device revoke", "=one"));
    fleet_work(&f);
    fleet_expect_round(&f, "collecting", ""); /* two is still to come */
    fleet_take(&two, &t);
    fleet_must(fleet_reserve_locally(&two, &t), &two.err, "reserve");
    fleet_must(fleet_send_reserve(&two, &t), &two.err, "send");
    json_decref(FLEET_ASK(&f, "device revoke", "=two"));
    fleet_step(&f);
    fleet_expect_round(&f, "aggregating", "");
    fleet_step(&f);
    fleet_step(&f);
    fleet_expect_round(&f, "published", "");
    fleet_task_free(&t);
    expect_clean_audit(false);
}

/* Ids are taken as the operator's tables print them: cut to eight digits. */
static void test_shown_ids_are_taken(void **state)
{
    (void)state;
    tacit_error err;
    char word[16];
    start("quorum", "1");
    json_t *row = fleet_round(&f);
    const char *id = json_string_value(json_object_get(row, "round_id"));
    snprintf(word, sizeof word, "=%.8s", id);
    json_t *shown = FLEET_ASK(&f, "round show", word);
    assert_string_equal(json_string_value(json_object_get(shown, "round_id")), id);
    json_decref(shown);
    snprintf(word, sizeof word, "=%.7s", id);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "round show", word), TACIT_NOT_FOUND);
    json_decref(row);
}

static void test_target_ends_collecting(void **state)
{
    (void)state;
    json_decref(FLEET_ASK(&f, START, "quorum", "1", "target", "1"));
    fleet_work(&f);
    fleet_serve_round(&one, 0.5);
    fleet_step(&f);
    fleet_expect_round(&f, "aggregating", "");
}

static tacit_status abandon(fleet_device *d, fleet_task *t)
{
    Tacit__AbandonRequest r = TACIT__ABANDON_REQUEST__INIT;
    tacit_reservation entry = {0};
    fleet_must(tacit_account_abandon(d->account, t->reserve.hash, "cancelled", &entry, &d->err),
               &d->err, "abandon");
    r.entry = tacit_field_of(entry.entry, entry.entry_size);
    tacit_status status = fleet_call(d, TACIT__METHOD__METHOD_ABANDON, &r, NULL, NULL);
    tacit_reservation_free(&entry);
    return status;
}

/* Nobody is waited for once the quorum cannot be reached any more. */
static void test_abandoned_below_quorum(void **state)
{
    (void)state;
    fleet_task t;
    start("quorum", "2");
    fleet_take(&one, &t);
    fleet_must(fleet_reserve_locally(&one, &t), &one.err, "reserve");
    fleet_must(fleet_send_reserve(&one, &t), &one.err, "send");
    assert_int_equal(abandon(&one, &t), TACIT_OK);
    fleet_step(&f);
    fleet_expect_round(&f, "failed", "quorum");
    fleet_task_free(&t);
    expect_clean_audit(false);
}

static void test_cancel(void **state)
{
    (void)state;
    tacit_error err;
    start("target", "2");
    fleet_serve_round(&one, 0.5);
    json_decref(FLEET_ASK(&f, "round cancel"));
    fleet_expect_round(&f, "failed", "cancelled");
    fleet_work(&f);
    fleet_expect_round(&f, "failed", "cancelled"); /* the second round never opens */
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "round cancel"), TACIT_CONFLICT);
    json_decref(FLEET_ASK(&f, START));
    assert_int_equal(FLEET_VERB(&f, NULL, &err, START), TACIT_CONFLICT);
    expect_clean_audit(false);
}

static void test_cancel_while_evaluating(void **state)
{
    (void)state;
    fleet_task kept;
    start("target", "2");
    serve_both(0.5, 0.5, &kept);
    fleet_step(&f);
    fleet_step(&f);
    fleet_expect_round(&f, "evaluating", "");
    json_decref(FLEET_ASK(&f, "round cancel"));
    fleet_expect_round(&f, "failed", "cancelled");
    json_t *list = adapter_list();
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    fleet_task_free(&kept);
    expect_clean_audit(false);
}

/* What the operator is told before a lineage costs anything is what the log then says; a long one
 * is described at once. */
static void test_costs_of_a_long_lineage(void **state)
{
    (void)state;
    fleet_task kept;
    json_t *started = FLEET_ASK(&f, START, "rounds", "1000", "noise-multiplier", "40");
    json_t *costs = json_object_get(started, "epsilon_after_round");
    assert_int_equal(json_array_size(costs), 1000);
    for (size_t i = 1; i < 1000; i++)
        assert_true(json_real_value(json_array_get(costs, i)) >
                    json_real_value(json_array_get(costs, i - 1)));
    double first = json_real_value(json_array_get(costs, 0));
    json_decref(started);
    fleet_work(&f);
    serve_both(0.5, 0.5, &kept);
    fleet_work(&f);
    json_t *list = adapter_list();
    double logged = json_real_value(json_object_get(json_array_get(list, 0), "epsilon_published"));
    assert_true(fabs(first - logged) <= 1e-9 * logged);
    json_decref(list);
    fleet_task_free(&kept);
}

/* What cannot be accounted for, what no policy may allow and what no enrolled device can pay is
 * refused before it is logged, with the number that is too large. */
static void test_absurd_costs(void **state)
{
    (void)state;
    static const struct {
        const char *words[16], *says[3];
    } rows[] = {
        {{"round start", "steps", "1000001"}, {"steps", "1000000", "1000001"}},
        {{"round start", "steps", "400", "q", "1", "noise-multiplier", "10"},
         {"400 steps", "the largest cap of 2 active devices is 8", "lower steps"}},
        {{"round start", "steps", "1000000", "q", "1", "noise-multiplier", "1"},
         {"1 rounds of 1000000 steps", "cannot be accounted", "infinite"}},
        {{"round start", "steps", "1000000", "rounds", "1000", "q", "0.0001", "noise-multiplier",
          "1000", "delta", "1e-12"},
         {"1000000 steps", "cannot be accounted", "infinite"}},
    };
    uint64_t before, after;
    tacit_error err;
    fleet_must(tacit_ledger_size(f.server->ledger, &before, &err), &err, "size");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(fleet_verb(&f, NULL, &err, rows[i].words), TACIT_USAGE);
        for (size_t k = 0; k < 3; k++)
            if (!strstr(err.message, rows[i].says[k]))
                fail_msg("'%s' is not in: %s", rows[i].says[k], err.message);
    }
    fleet_must(tacit_ledger_size(f.server->ledger, &after, &err), &err, "size");
    assert_true(before == after);
    json_t *started =
        FLEET_ASK(&f, "round start", "steps", "100000", "q", "0.0001", "noise-multiplier", "1");
    json_t *first = json_array_get(json_object_get(started, "epsilon_after_round"), 0);
    assert_true(json_real_value(first) > 0 && json_real_value(first) < 8);
    json_decref(started);
}

/* --- a clip norm that adapts --- */

/* The norm bound that is derived for SGD with these options; the lineage is cancelled at once. */
static double derived_bound(const char *clip, const char *quantile, const char *clip_max)
{
    const char *words[16] = {"round start",      "optimizer", "sgd",  "q",  "0.1",
                             "noise-multiplier", "4",         "clip", clip, NULL};
    if (quantile) {
        const char *const adapts[] = {"quantile", quantile, "clip-max", clip_max, NULL};
        memcpy(words + 9, adapts, sizeof adapts);
    }
    json_t *started = fleet_ask(&f, words);
    double bound = json_real_value(json_object_get(started, "norm_bound"));
    json_decref(started);
    json_decref(FLEET_ASK(&f, "round cancel"));
    return bound;
}

/* A device may honestly send what it clipped at the largest clip norm; the noise of the gradients
 * is half a percent more than with a fixed one. */
static void test_the_norm_bound_holds_at_every_clip(void **state)
{
    (void)state;
    double fixed = derived_bound("5", NULL, NULL), adaptive = derived_bound("0.5", "0.5", "5");
    assert_true(adaptive >= fixed && adaptive < 1.006 * fixed);
    assert_true(derived_bound("0.5", NULL, NULL) < 0.101 * fixed);
}

/* Both devices through a round whose clip norm adapts: reserved, summed, published and audited at
 * the cost of the step as a whole, which is that of a fixed clip norm at the same noise multiplier.
 */
static void test_a_round_with_an_adaptive_clip(void **state)
{
    (void)state;
    fleet_task kept;
    json_t *started = FLEET_ASK(&f, START, "rounds", "1", "quantile", "0.6", "clip-rate", "0.1");
    double cost =
        json_real_value(json_array_get(json_object_get(started, "epsilon_after_round"), 0));
    json_decref(started);
    fleet_work(&f);
    serve_both(0.25, 0.75, &kept);
    assert_true(kept.plan->mechanism->quantile_target == 0.6);
    assert_true(kept.plan->mechanism->clip_min == 0.1 && kept.plan->mechanism->clip_max == 10);
    fleet_work(&f);
    fleet_expect_round(&f, "published", "");
    json_t *list = adapter_list();
    double published =
        json_real_value(json_object_get(json_array_get(list, 0), "epsilon_published"));
    assert_true(fabs(published / cost - 1) < 1e-9);
    json_decref(list);
    expect_clean_audit(false);
    fleet_task_free(&kept);
    started = FLEET_ASK(&f, START, "rounds", "1");
    double fixed =
        json_real_value(json_array_get(json_object_get(started, "epsilon_after_round"), 0));
    assert_true(fabs(cost / fixed - 1) < 1e-4);
    json_decref(started);
}

/* --- the gate --- */

static void test_gate_stops_a_worse_adapter(void **state)
{
    (void)state;
    fleet_task kept;
    start("target", "2");
    fleet_write(&f, "score", "{\"accuracy\":0.44,\"loss\":1.0}\n", 0600); /* margin is 0.05 */
    serve_both(0.5, 0.5, &kept);
    fleet_step(&f);
    fleet_step(&f);
    fleet_step(&f);
    fleet_expect_round(&f, "failed", "gate");
    json_t *row = fleet_round(&f);
    assert_true(json_real_value(json_object_get(row, "accuracy")) == 0.44);
    json_decref(row);
    fleet_task_free(&kept);
    /* The next round starts from the base again, and passes. */
    fleet_write(&f, "score", "{\"accuracy\":0.46,\"loss\":9.0}\n", 0600);
    fleet_work(&f);
    serve_both(0.5, 0.5, &kept);
    assert_int_equal(kept.plan->parent_version, 0);
    fleet_work(&f);
    fleet_expect_round(&f, "published", "");
    fleet_task_free(&kept);
    expect_clean_audit(false);
}

/* An evaluation that cannot be done publishes nothing and loses nothing. */
static void test_gate_that_fails_is_tried_again(void **state)
{
    (void)state;
    fleet_task kept;
    bool worked;
    atomic_bool stop = false;
    tacit_error err;
    start("target", "2");
    serve_both(0.5, 0.5, &kept);
    fleet_step(&f);
    fleet_step(&f);
    fleet_write(&f, "score", "killed\n", 0600);
    assert_int_equal(round_machine_step(f.server, &stop, &worked, &err), TACIT_FAILED);
    assert_non_null(strstr(err.message, "accuracy"));
    fleet_expect_round(&f, "evaluating", "");
    fleet_write(&f, "score", "{\"accuracy\":1.0,\"loss\":0.5}\n", 0600);
    fleet_step(&f);
    fleet_expect_round(&f, "published", "");
    fleet_task_free(&kept);
}

/* An accepted update that is damaged on the server's disk: nothing of the round is published. */
static void test_damaged_update(void **state)
{
    (void)state;
    fleet_task kept;
    char path[SERVER_PATH_MAX];
    tacit_error err;
    start("target", "2");
    serve_both(0.5, 0.5, &kept);
    fleet_must(round_upload_path(f.server, kept.reserve.hash, path, &err), &err, "path");
    kept.sealed.data[kept.sealed.size / 2] ^= 1;
    fleet_must(tacit_file_write(path, kept.sealed.data, kept.sealed.size, 0600, &err), &err, path);
    fleet_step(&f);
    fleet_step(&f);
    fleet_expect_round(&f, "failed", "damaged");
    json_t *list = adapter_list();
    assert_int_equal(json_array_size(list), 0); /* nor the mean of the others */
    json_decref(list);
    fleet_task_free(&kept);
    expect_clean_audit(false);
}

/* --- without noise, without a gate --- */

static int setup_whole(void **state)
{
    (void)state;
    fleet_start(&f, true);
    f.unit = TACIT_UNIT_DEVICE;
    fleet_join_two(&one, &two, &f);
    return 0;
}

static int setup_plain(void **state)
{
    (void)state;
    fleet_start(&f, false);
    f.non_private = true;
    fleet_join_two(&one, &two, &f);
    return 0;
}

/* Mechanism none: epsilon is infinite, which JSON says as null, and the auditor must allow it. */
static void test_none(void **state)
{
    (void)state;
    fleet_task kept;
    json_t *started = FLEET_ASK(&f, START, "mechanism", "none", "rounds", "1");
    assert_true(json_is_null(json_array_get(json_object_get(started, "epsilon_after_round"), 0)));
    json_decref(started);
    fleet_work(&f);
    serve_both(0.5, -0.25, &kept);
    fleet_work(&f);
    fleet_expect_round(&f, "published", "");
    json_t *list = adapter_list(), *row = json_array_get(list, 0);
    assert_true(json_is_null(json_object_get(row, "epsilon_server")));
    assert_true(json_is_null(json_object_get(row, "epsilon_published")));
    assert_true(json_is_null(json_object_get(row, "accuracy")));
    json_decref(list);
    Tacit__CheckInReply *told = NULL;
    Tacit__AdapterManifest *m = NULL;
    fleet_must(fleet_check_in(&one, &told), &one.err, "check-in");
    fleet_must(TACIT_UNPACK(&m, tacit__adapter_manifest, told->manifest.data, told->manifest.len,
                            TACIT_MESSAGE_MAX, &one.err),
               &one.err, "manifest");
    assert_true(isinf(m->epsilon_server) && isinf(m->epsilon_published) && m->delta == 0);
    assert_true(isnan(m->evaluation_accuracy) && isnan(m->evaluation_loss));
    assert_string_equal(m->epsilon_rule, "none");
    tacit_message_free(m);
    tacit_message_free(told);
    fleet_task_free(&kept);
    expect_clean_audit(true);
}

/* --- tree noise --- */

/* What a round costs is what its device is charged, and recipients' number is the same. */
static void test_tree_noise(void **state)
{
    (void)state;
    fleet_task kept;
    tacit_error err;
    assert_int_equal(FLEET_VERB(&f, NULL, &err, START, "separation", "2"), TACIT_USAGE);
    assert_int_equal(
        FLEET_VERB(&f, NULL, &err, START, "mechanism", "tree", "q", "1", "separation", "5"),
        TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, START, "mechanism", "tree"), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "samples nothing")); /* START has q 0.5 */
    json_t *started = FLEET_ASK(&f, START, "mechanism", "tree", "q", "1", "separation", "2",
                                "rounds", "1", "noise-multiplier", "9");
    double first =
        json_real_value(json_array_get(json_object_get(started, "epsilon_after_round"), 0));
    json_decref(started);
    fleet_work(&f);
    serve_both(0.5, 0.5, &kept);
    assert_int_equal(kept.plan->mechanism->minimum_separation, 2);
    fleet_work(&f);
    json_t *list = adapter_list(), *row = json_array_get(list, 0);
    double published = json_real_value(json_object_get(row, "epsilon_published"));
    assert_true(fabs(first - published) <= 1e-9 * first);
    assert_string_equal(json_string_value(json_object_get(row, "epsilon_rule")), "post-processing");
    json_decref(list);
    /* Steps 1 and 3 of 4: nodes 1, 3, 1-2, once each, and 1-4 with both: seven Gaussians. */
    double exact =
        tacit_gaussian_epsilon(1e-5, sqrt(7) / tacit_noise_multiplier(kept.plan->mechanism->b));
    assert_true(first >= exact && first < 1.3 * exact);
    fleet_task_free(&kept);
    expect_clean_audit(false);
}

/* --- the device unit --- */

#define WHOLE                                                                                      \
    "round start", "unit", "device", "local-steps", "3", "rounds", "3", "noise-multiplier", "20",  \
        "cohort", "3", "quorum", "2", "target", "3", "deadline-seconds", "600", "pad-seconds", "0"

/* The newest adapter's two numbers are those of these sums, and it names the rule. */
static void expect_views(const fleet_task *t, size_t rounds, const uint64_t *accepted,
                         const char *rule)
{
    Tacit__Schedule *schedule;
    tacit_summed_round summed[3];
    tacit_published v;
    tacit_error err;
    size_t n = 0;
    fleet_must(TACIT_UNPACK(&schedule, tacit__schedule, t->asked->schedule.data,
                            t->asked->schedule.len, TACIT_MESSAGE_MAX, &err),
               &err, "schedule");
    for (uint32_t i = 0; i < rounds; i++)
        if (accepted[i])
            summed[n++] = (tacit_summed_round){i, accepted[i], t->plan->assumed_colluders,
                                               t->plan->norm_bound};
    fleet_must(tacit_published_epsilon(&v, schedule, rounds, t->layout.values, summed, n, &err),
               &err, "views");
    json_t *list = adapter_list(), *row = json_array_get(list, json_array_size(list) - 1);
    assert_string_equal(v.rule, rule);
    assert_string_equal(json_string_value(json_object_get(row, "epsilon_rule")), rule);
    double against = json_real_value(json_object_get(row, "epsilon_server"));
    double published = json_real_value(json_object_get(row, "epsilon_published"));
    assert_true(against == v.epsilon_server && published == v.epsilon_published);
    assert_true((published < against) == (strcmp(rule, "summed-noise") == 0));
    json_decref(list);
    tacit_message_free(schedule);
}

static void serve_three(fleet_device *three, fleet_task *kept)
{
    fleet_serve_round(three, 0.75);
    serve_both(0.25, 0.5, kept);
    fleet_work(&f);
}

/* A sum that the gate held back counts for recipients, too; so does each round's own number. */
static void test_whole_devices(void **state)
{
    (void)state;
    fleet_device three;
    fleet_task kept[3];
    float values[8192];
    size_t count;
    fleet_join(&three, &f, "three");
    json_decref(FLEET_ASK(&f, WHOLE));
    fleet_work(&f);
    serve_three(&three, &kept[0]);
    assert_int_equal(kept[0].plan->local_steps, 3);
    assert_true(kept[0].plan->update_scale == 65536 && kept[0].plan->mechanism->steps == 1);
    read_published(0, values, &count, &kept[0]);
    for (size_t i = 0; i < count; i++)
        assert_true(values[i] == 0.5f);
    expect_views(&kept[0], 1, (const uint64_t[]){3}, "summed-noise");
    fleet_write(&f, "score", "{\"accuracy\":0.1,\"loss\":9.0}\n", 0600);
    serve_three(&three, &kept[1]);
    fleet_write(&f, "score", "{\"accuracy\":0.9,\"loss\":0.5}\n", 0600);
    serve_both(0.25, 0.75, &kept[2]);
    atomic_fetch_add(&fleet_now, 600 * 1000);
    fleet_work(&f);
    expect_views(&kept[2], 3, (const uint64_t[]){3, 3, 2}, "summed-noise");
    for (int i = 0; i < 3; i++)
        fleet_task_free(&kept[i]);
    fleet_device_free(&three);
    expect_clean_audit(false);
}

/* With a bound that releases do not fit, or with as many colluders, the server's number is it. */
static void test_whole_devices_without_the_rule(void **state)
{
    static const char *const options[][2] = {{"norm-bound", "2000"}, {"assumed-colluders", "1"}};
    (void)state;
    fleet_device three;
    fleet_join(&three, &f, "three");
    for (size_t i = 0; i < 2; i++) {
        fleet_task kept;
        json_decref(FLEET_ASK(&f, WHOLE, "rounds", "1", options[i][0], options[i][1], "clip",
                              i ? "1" : "1000"));
        fleet_work(&f);
        serve_three(&three, &kept);
        expect_views(&kept, 1, (const uint64_t[]){3}, "post-processing");
        fleet_task_free(&kept);
    }
    fleet_device_free(&three);
    expect_clean_audit(false);
}

static void test_whole_devices_are_released_once(void **state)
{
    tacit_error err;
    (void)state;
    assert_int_equal(FLEET_VERB(&f, NULL, &err, WHOLE, "steps", "2"), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "released once"));
    assert_int_equal(FLEET_VERB(&f, NULL, &err, WHOLE, "q", "0.5"), TACIT_BAD_INPUT);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, WHOLE, "local-steps", "0"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, START, "local-steps", "3"), TACIT_USAGE);
    assert_non_null(strstr(err.message, "local-steps: only with unit device"));
    assert_int_equal(FLEET_VERB(&f, NULL, &err, START, "assumed-colluders", "3"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, START, "unit", "person"), TACIT_USAGE);
    assert_non_null(strstr(err.message, "record, subject or device"));
}

/* --- what is current --- */

static uint64_t current_version(void)
{
    Tacit__CheckInReply *told = NULL;
    Tacit__AdapterManifest *m = NULL;
    fleet_must(fleet_check_in(&one, &told), &one.err, "check-in");
    fleet_must(TACIT_UNPACK(&m, tacit__adapter_manifest, told->manifest.data, told->manifest.len,
                            TACIT_MESSAGE_MAX, &one.err),
               &one.err, "manifest");
    tacit_receipt logged = {.entry = tacit_span_of(told->manifest_entry),
                            .index = told->manifest_index,
                            .checkpoint = tacit_span_of(told->checkpoint)};
    fleet_must(tacit_proof_from_fields(&logged.inclusion, told->manifest_proof,
                                       told->n_manifest_proof, &one.err),
               &one.err, "proof");
    fleet_must(tacit_receipt_verify(&logged, &one.log, NULL, &one.err), &one.err, "in the log");
    uint64_t version = m->version;
    tacit_message_free(m);
    tacit_message_free(told);
    return version;
}

/* A rollback is what the next round starts from; its own version is new all the same. */
static void test_rollback_and_publish(void **state)
{
    (void)state;
    fleet_task kept;
    tacit_error err;
    json_decref(FLEET_ASK(&f, START, "rounds", "3"));
    fleet_work(&f);
    for (int round = 0; round < 2; round++) {
        serve_both(0.5, 0.5, &kept);
        fleet_task_free(&kept);
        if (round == 1) {
            fleet_step(&f);
            fleet_step(&f);
            fleet_step(&f); /* published; the third one is not open yet */
        } else {
            fleet_work(&f);
        }
    }
    assert_int_equal(current_version(), 2);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "adapter rollback", "=2"), TACIT_CONFLICT);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "adapter rollback", "=7"), TACIT_NOT_FOUND);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "adapter rollback", "=x"), TACIT_USAGE);
    json_decref(FLEET_ASK(&f, "adapter rollback", "=1", "reason", "worse in the field"));
    assert_int_equal(current_version(), 1);
    fleet_work(&f);
    serve_both(-1, -1, &kept);
    assert_int_equal(kept.plan->parent_version, 1);
    fleet_work(&f);
    assert_int_equal(current_version(), 3);
    float values[8192];
    size_t count;
    read_published(2, values, &count, &kept);
    for (size_t i = 0; i < count; i++)
        assert_true(values[i] == -0.5f); /* 0.5 of version 1, less 1 */
    json_decref(FLEET_ASK(&f, "adapter rollback", "=2"));
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "adapter publish", "=1"), TACIT_CONFLICT);
    json_decref(FLEET_ASK(&f, "adapter publish", "=3"));
    assert_int_equal(current_version(), 3);
    json_t *row = FLEET_ASK(&f, "adapter show", "=3");
    assert_true(json_is_true(json_object_get(row, "current")));
    assert_int_equal(json_integer_value(json_object_get(row, "parent_version")), 1);
    json_decref(row);
    fleet_task_free(&kept);
    expect_clean_audit(false);
}

/* --- restarts --- */

/* A restart before each step of a round; the published file is that of a run without one. */
static void test_restart_in_every_state(void **state)
{
    (void)state;
    float calm[8192], shaken[8192];
    size_t count;
    fleet_task kept, like;
    const char *seed = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    json_decref(FLEET_ASK(&f, START, "rounds", "1", "lineage-seed", seed, "noise-multiplier", "8"));
    fleet_work(&f);
    serve_both(0.25, 0.5, &kept);
    fleet_work(&f);
    read_published(0, calm, &count, &kept);
    fleet_task_free(&kept);

    json_decref(FLEET_ASK(&f, START, "rounds", "1", "lineage-seed", seed, "noise-multiplier", "8"));
    fleet_restart(&f);
    fleet_step(&f);
    fleet_restart(&f);
    fleet_expect_round(&f, "collecting", "");
    fleet_take(&one, &kept);
    fleet_must(fleet_reserve_locally(&one, &kept), &one.err, "reserve");
    fleet_restart(&f);
    fleet_must(fleet_send_reserve(&one, &kept), &one.err, "send");
    fleet_restart(&f);
    fleet_seal_value(&one, &kept, 0.25);
    uint64_t offset = 0;
    fleet_must(fleet_begin(&one, &kept, &offset), &one.err, "begin");
    fleet_must(fleet_chunk(&one, &kept, &offset, 100), &one.err, "chunk");
    fleet_restart(&f);
    fleet_must(fleet_begin(&one, &kept, &offset), &one.err, "begin");
    assert_int_equal(offset, 100);
    assert_string_equal(fleet_upload(&one, &kept), "");
    fleet_restart(&f);
    fleet_task_free(&kept);
    serve_second(0.5, &like);
    fleet_restart(&f);
    static const char *const states[] = {"collecting", "aggregating", "evaluating"};
    for (size_t i = 0; i < 3; i++) {
        fleet_expect_round(&f, states[i], "");
        fleet_restart(&f);
        fleet_step(&f);
        fleet_restart(&f);
    }
    fleet_expect_round(&f, "published", "");
    read_published(1, shaken, &count, &like);
    assert_memory_equal(calm, shaken, count * sizeof *calm);
    fleet_task_free(&like);
    expect_clean_audit(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two_rounds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_bad_update_is_left_out_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_absurd_costs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_norm_bound_holds_at_every_clip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_round_with_an_adaptive_clip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_pad_as_long_as_the_round_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_waits_for_devices, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unwilling_devices_are_not_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quorum_missed_at_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quorum_reached_at_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(test_target_ends_collecting, setup, teardown),
        cmocka_unit_test_setup_teardown(test_revoked_devices_are_not_awaited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shown_ids_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_abandoned_below_quorum, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel_while_evaluating, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gate_stops_a_worse_adapter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gate_that_fails_is_tried_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_update, setup, teardown),
        cmocka_unit_test_setup_teardown(test_costs_of_a_long_lineage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_none, setup_plain, teardown),
        cmocka_unit_test_setup_teardown(test_tree_noise, setup, teardown),
        cmocka_unit_test_setup_teardown(test_whole_devices, setup_whole, teardown),
        cmocka_unit_test_setup_teardown(test_whole_devices_without_the_rule, setup_whole, teardown),
        cmocka_unit_test_setup_teardown(test_whole_devices_are_released_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rollback_and_publish, setup, teardown),
        cmocka_unit_test_setup_teardown(test_restart_in_every_state, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
