/* What the server does about accounts beside rounds: caps that their device raises again, devices
 * whose account or window is full, what a start says of accounts, entries for a device whose folder
 * is older than the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"
#include "privacy/window.h"

#define START                                                                                      \
    "round start", "rounds", "3", "steps", "2", "q", "0.25", "noise-multiplier", "8", "unit",      \
        "record", "cohort", "1", "quorum", "1", "deadline-seconds", "600", "pad-seconds", "0",     \
        "norm-bound", "32"

/* At the scale that the order of a cap of 8 suits. */
#define DEAR START, "noise-multiplier", "1.8", "steps", "3"

static fleet f;
static fleet_device one, two;

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, false);
    fleet_join_two(&one, &two, &f);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_end_two(&one, &two, &f);
    return 0;
}

/* --- declared policies --- */

static double told_cap(fleet_device *d)
{
    Tacit__CheckInReply *told = NULL;
    fleet_must(fleet_check_in(d, &told), &d->err, "check-in");
    double cap = told->epsilon_cap;
    tacit_message_free(told);
    return cap;
}

static tacit_status declare(fleet_device *d, const tacit_policy *policy,
                            const tacit_identity *signer)
{
    Tacit__DeclarePolicyRequest r = TACIT__DECLARE_POLICY_REQUEST__INIT;
    Tacit__DeclarePolicyReply *reply = NULL;
    uint8_t *bytes, signature[TACIT_SIGNATURE_BYTES];
    size_t size;
    fleet_must(tacit_policy_pack(policy, &bytes, &size, &d->err), &d->err, "policy");
    fleet_must(tacit_policy_sign(bytes, size, signer, signature, &d->err), &d->err, "policy");
    r.policy = tacit_field_of(bytes, size);
    r.signature = tacit_field_of(signature, sizeof signature);
    tacit_status status = fleet_call(d, TACIT__METHOD__METHOD_DECLARE_POLICY, &r,
                                     &tacit__declare_policy_reply__descriptor, &reply);
    if (status == TACIT_OK) {
        tacit_receipt receipt = {.entry = tacit_span_of(reply->entry),
                                 .index = reply->index,
                                 .checkpoint = tacit_span_of(reply->checkpoint)};
        fleet_must(tacit_proof_from_fields(&receipt.inclusion, reply->inclusion, reply->n_inclusion,
                                           &d->err),
                   &d->err, "inclusion");
        fleet_must(tacit_receipt_verify(&receipt, &d->log, NULL, &d->err), &d->err, "receipt");
    }
    tacit_message_free(reply);
    free(bytes);
    return status;
}

static void lower(const char *epsilon)
{
    json_decref(FLEET_ASK(&f, "budget set", "=one", "epsilon", epsilon));
}

static void test_a_device_raises_its_cap_again(void **state)
{
    (void)state;
    tacit_policy policy = one.policy;
    lower("5");
    assert_true(told_cap(&one) == 5);
    /* What it declared when it enrolled is an old word; a new serial makes it a new one. */
    assert_int_equal(declare(&one, &policy, one.id), TACIT_REFUSED);
    assert_non_null(strstr(one.err.message, "logged before"));
    policy.serial = 1;
    assert_int_equal(declare(&one, &policy, two.id), TACIT_REFUSED);
    assert_true(told_cap(&one) == 5);
    assert_int_equal(declare(&one, &policy, one.id), TACIT_OK);
    assert_true(told_cap(&one) == 8);
    fleet_restart(&f);
    assert_true(told_cap(&one) == 8);
    /* Lowered once more: the same signed bytes, kept by somebody, raise nothing. */
    lower("4");
    atomic_fetch_add(&fleet_now, 1000); /* an entry of the same moment would be the same entry */
    assert_int_equal(declare(&one, &policy, one.id), TACIT_REFUSED);
    assert_true(told_cap(&one) == 4);
    policy.serial = 2;
    policy.epsilon_cap = 9.5;
    assert_int_equal(declare(&one, &policy, one.id), TACIT_OK);
    assert_true(told_cap(&one) == 9.5);
    policy.serial = 3;
    policy.delta = 1e-6;
    assert_int_equal(declare(&one, &policy, one.id), TACIT_REFUSED);
    assert_true(told_cap(&two) == 8);
    fleet_expect_clean_audit(&f, false);
}

/* --- exhausted devices --- */

static const char *state_in(const char *verb, const char *name)
{
    static char state[16];
    size_t i;
    json_t *row, *list = fleet_ask(&f, (const char *const[]){verb, NULL});
    state[0] = '\0';
    json_array_foreach(list, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
            snprintf(state, sizeof state, "%s", json_string_value(json_object_get(row, "state")));
    }
    json_decref(list);
    return state;
}

static bool is_offered(fleet_device *d)
{
    Tacit__CheckInReply *told = NULL;
    fleet_must(fleet_check_in(d, &told), &d->err, "check-in");
    bool offered = told->plan.len > 0;
    tacit_message_free(told);
    return offered;
}

static void expect_waiting(json_int_t devices, json_int_t exhausted)
{
    json_t *events = server_events_since(f.server->events, 0, 0);
    json_t *event = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(json_string_value(json_object_get(event, "kind")), "waiting");
    assert_int_equal(json_integer_value(json_object_get(event, "devices")), devices);
    assert_int_equal(json_integer_value(json_object_get(event, "exhausted")), exhausted);
    json_decref(events);
}

/* The first round is served by whoever is asked; then one device's cap sinks to what it has spent.
 * It is shown as exhausted in both lists and asked for no further round; a lineage that needs both
 * waits and says why; once the device raises its cap it is asked again. */
static void test_exhausted_devices_are_left_alone(void **state)
{
    (void)state;
    tacit_ledger_device logged;
    char spent[32];
    json_decref(FLEET_ASK(&f, START, "cohort", "2", "quorum", "2"));
    fleet_work(&f);
    fleet_serve_round(&one, 0.25);
    fleet_serve_round(&two, 0.25);
    assert_string_equal(state_in("device list", "one"), "active");
    fleet_must(tacit_ledger_device_get(f.server->ledger, one.device, &logged, &one.err), &one.err,
               "device");
    snprintf(spent, sizeof spent, "%.17g", logged.epsilon * 1.0001);
    lower(spent);
    fleet_work(&f);
    expect_waiting(1, 1);
    assert_string_equal(state_in("device list", "one"), "exhausted");
    assert_string_equal(state_in("budget show", "one"), "exhausted");
    assert_string_equal(state_in("device list", "two"), "active");
    assert_false(is_offered(&one));
    tacit_policy policy = one.policy;
    policy.serial = 1;
    assert_int_equal(declare(&one, &policy, one.id), TACIT_OK);
    fleet_work(&f);
    assert_string_equal(state_in("device list", "one"), "active");
    assert_true(is_offered(&one));
    assert_true(is_offered(&two));
}

static void hash_offer(fleet_device *d, uint8_t hash[TACIT_DIGEST_BYTES])
{
    Tacit__CheckInReply *told = NULL;
    fleet_must(fleet_check_in(d, &told), &d->err, "check-in");
    tacit_digest(hash, told->plan.data, told->plan.len);
    tacit_message_free(told);
}

/* A device says that its own policy or account, sub-caps for instance, refuses the plan: its round
 * goes on without it, the lineage's next one waits for it unasked, and it is shown, until it says
 * so no more. */
static void test_devices_that_decline_are_left_alone(void **state)
{
    (void)state;
    uint8_t hash[TACIT_DIGEST_BYTES], other[TACIT_DIGEST_BYTES] = {7};
    json_decref(FLEET_ASK(&f, START, "cohort", "2", "quorum", "1"));
    fleet_work(&f);
    hash_offer(&one, hash);
    one.declined = other; /* of no round: says nothing */
    assert_true(is_offered(&one));
    assert_string_equal(state_in("budget show", "one"), "active");
    one.declined = hash;
    assert_true(is_offered(&one)); /* it may still come to another mind */
    assert_string_equal(state_in("budget show", "one"), "declined");
    assert_string_equal(state_in("device list", "one"), "declined");
    assert_string_equal(state_in("device list", "two"), "active");
    fleet_serve_round(&two, 0.25);
    fleet_step(&f);
    fleet_expect_round(&f, "aggregating", "");
    fleet_work(&f);
    expect_waiting(1, 0);
    assert_false(is_offered(&one));
    fleet_restart(&f);
    assert_string_equal(state_in("budget show", "one"), "declined");
    one.declined = NULL;
    assert_false(is_offered(&one));
    fleet_work(&f);
    assert_string_equal(state_in("budget show", "one"), "active");
    assert_true(is_offered(&one) && is_offered(&two));
    one.declined = hash; /* of the round before */
    assert_true(is_offered(&one));
    assert_string_equal(state_in("budget show", "one"), "active");
}

/* What is left of a lineage's budget after its last round is enough: nobody is exhausted then. */
static void test_a_lineage_that_fits_exhausts_nobody(void **state)
{
    (void)state;
    json_decref(FLEET_ASK(&f, START));
    fleet_work(&f);
    assert_string_equal(state_in("device list", "one"), "active");
    lower("0.0001");
    assert_string_equal(state_in("device list", "one"), "exhausted");
    assert_string_equal(state_in("device list", "two"), "active");
}

/* A lineage holds its whole schedule, run or not, and lineages add up: the account refuses a second
 * one for that although what was reserved and the second together are far from the cap, and the
 * server sees it by the same rule. */
static void test_lineages_that_do_not_fit_together(void **state)
{
    (void)state;
    fleet_task task;
    tacit_lineage_share *share;
    tacit_account_status now;
    size_t n;
    char cap[32];
    json_decref(FLEET_ASK(&f, DEAR));
    fleet_work(&f);
    fleet_serve_round(&one, 0.25);
    json_decref(FLEET_ASK(&f, "round cancel"));
    fleet_must(tacit_account_lineages(one.account, &share, &n, &one.err), &one.err, "lineages");
    assert_int_equal(n, 1);
    double whole = share[0].epsilon_cap;
    free(share);
    fleet_must(tacit_account_status_get(one.account, &now, &one.err), &one.err, "status");
    assert_true(now.epsilon + whole < 1.9 * whole);
    snprintf(cap, sizeof cap, "%.17g", 1.9 * whole);
    lower(cap);
    json_decref(FLEET_ASK(&f, DEAR));
    fleet_work(&f);
    assert_string_equal(state_in("device list", "one"), "lineages-full");
    assert_false(is_offered(&one));
    fleet_take(&two, &task);
    one.policy.epsilon_cap = 1.9 * whole;
    fleet_must(tacit_account_set_policy(one.account, &one.policy, &one.err), &one.err, "policy");
    assert_int_equal(fleet_reserve_locally(&one, &task), TACIT_REFUSED);
    assert_non_null(strstr(one.err.message, "the schedules of others hold"));
    fleet_task_free(&task);
}

/* --- windows that are full --- */

/* A window's epsilon over three reserves that holds two rounds of DEAR and not three. */
static double window_of_two(uint64_t values)
{
    const tacit_event event = {TACIT_ADD_REMOVE, 1.8, 0.25, 3};
    tacit_policy policy = {.delta = 1e-5, .window_epsilon = 0.5, .window_reserves = 3};
    tacit_window w = {0};
    tacit_error err;
    double worst = INFINITY;
    fleet_must(tacit_window_push(&w, &event, values, &err), &err, "window");
    fleet_must(tacit_window_push(&w, &event, values, &err), &err, "window");
    while (worst > policy.window_epsilon) {
        policy.window_epsilon *= 1.01;
        fleet_must(tacit_window_worst(&worst, &policy, &w, 0, &err), &err, "window");
    }
    fleet_must(tacit_window_push(&w, &event, values, &err), &err, "window");
    fleet_must(tacit_window_worst(&worst, &policy, &w, 0, &err), &err, "window");
    assert_true(worst > policy.window_epsilon);
    tacit_window_free(&w);
    return policy.window_epsilon;
}

static json_int_t values_of_dear(void)
{
    json_t *started = FLEET_ASK(&f, DEAR);
    json_int_t values = json_integer_value(json_object_get(started, "trainable_values"));
    json_decref(started);
    json_decref(FLEET_ASK(&f, "round cancel"));
    return values;
}

static void expect_state_of_one(const char *state)
{
    assert_string_equal(state_in("device list", "one"), state);
    assert_string_equal(state_in("budget show", "one"), state);
    assert_string_equal(state_in("device list", "two"), "active");
}

/* A window that a schedule would fill keeps the device out of it from the first round on, as its
 * own account does, and one that is full keeps it out of a cheap one. Nothing of the cap is in the
 * way, and it is not called exhausted. */
static void test_a_full_window_is_told_apart(void **state)
{
    (void)state;
    fleet_task task;
    tacit_policy policy = one.policy;
    policy.serial = 1;
    policy.window_epsilon = window_of_two((uint64_t)values_of_dear());
    policy.window_reserves = 3;
    assert_int_equal(declare(&one, &policy, one.id), TACIT_OK);
    fleet_must(tacit_account_set_policy(one.account, &policy, &one.err), &one.err, "policy");
    json_decref(FLEET_ASK(&f, DEAR));
    fleet_work(&f);
    expect_state_of_one("window-full");
    assert_false(is_offered(&one));
    fleet_take(&two, &task);
    assert_int_equal(fleet_reserve_locally(&one, &task), TACIT_REFUSED);
    assert_non_null(strstr(one.err.message, "3 reserves in a row"));
    fleet_task_free(&task);
    json_decref(FLEET_ASK(&f, "round cancel"));
    json_decref(FLEET_ASK(&f, DEAR, "rounds", "2"));
    for (int round = 0; round < 2; round++) {
        fleet_work(&f);
        expect_state_of_one("active");
        fleet_serve_round(&one, 0.25);
        fleet_serve_round(&two, 0.25);
    }
    fleet_work(&f);
    json_decref(FLEET_ASK(&f, DEAR, "rounds", "1", "steps", "1"));
    fleet_work(&f);
    expect_state_of_one("window-full");
    lower("0.01");
    expect_state_of_one("exhausted");
}

/* --- what a start says of the accounts that it finds --- */

static double number_of(const json_t *object, const char *key)
{
    json_t *number = json_object_get(object, key);
    return json_is_null(number) ? NAN : json_number_value(number);
}

static double cost_of_the_whole(const json_t *started)
{
    json_t *costs = json_object_get(started, "epsilon_after_round");
    return json_real_value(json_array_get(costs, json_array_size(costs) - 1));
}

/* Starts DEAR, which finds two active devices; `fit` of them hold it. The largest epsilon. */
static double start_dear(double fit, double *alone)
{
    json_t *started = FLEET_ASK(&f, DEAR);
    assert_true(number_of(started, "active_devices") == 2);
    assert_true(number_of(started, "devices_that_fit") == fit);
    double largest = number_of(started, "epsilon_largest");
    *alone = cost_of_the_whole(started);
    json_decref(started);
    return largest;
}

static void serve_to_the_end(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        fleet_work(&f);
        fleet_serve_round(&one, 0.25);
        fleet_serve_round(&two, 0.25);
    }
    fleet_work(&f);
}

/* What a start says is what the device's own account says in the end: of an account that holds
 * nothing else the schedule's price, of one that does more. Accounts that do not hold it are not
 * in it. */
static void test_a_start_says_whom_it_finds(void **state)
{
    (void)state;
    double alone, largest;
    char cap[32];
    tacit_account_status now;
    tacit_policy policy = one.policy;
    largest = start_dear(2, &alone);
    assert_true(tacit_budget_same(largest, alone));
    fleet_work(&f);
    fleet_serve_round(&one, 0.25);
    json_decref(FLEET_ASK(&f, "round cancel"));
    largest = start_dear(2, &alone);
    assert_true(largest > 1.1 * alone);
    json_decref(FLEET_ASK(&f, "round cancel"));
    snprintf(cap, sizeof cap, "%.17g", 0.999 * largest);
    lower(cap);
    double of_two = start_dear(1, &alone);
    assert_true(tacit_budget_same(of_two, alone));
    json_decref(FLEET_ASK(&f, "round cancel"));
    policy.serial = 1;
    assert_int_equal(declare(&one, &policy, one.id), TACIT_OK);
    assert_true(start_dear(2, &alone) == largest);
    serve_to_the_end(3);
    fleet_must(tacit_account_status_get(one.account, &now, &one.err), &one.err, "status");
    assert_true(tacit_budget_same(now.epsilon, largest));
    fleet_expect_clean_audit(&f, false);
}

/* Nobody fits, or nothing is noised: there is no largest epsilon. Revoked devices are not counted.
 * A start that is refused logs nothing. */
static void test_a_start_without_a_largest_epsilon(void **state)
{
    (void)state;
    uint64_t before, after;
    tacit_error err;
    lower("0.5");
    json_decref(FLEET_ASK(&f, "budget set", "=two", "epsilon", "0.5"));
    /* One round costs less than the cap, or the start would be refused. */
    json_t *started = FLEET_ASK(&f, START, "noise-multiplier", "4", "rounds", "40");
    assert_true(cost_of_the_whole(started) > 0.5);
    assert_true(number_of(started, "active_devices") == 2);
    assert_true(number_of(started, "devices_that_fit") == 0);
    assert_true(isnan(number_of(started, "epsilon_largest")));
    json_decref(started);
    fleet_must(tacit_ledger_size(f.server->ledger, &before, &err), &err, "size");
    assert_int_equal(FLEET_VERB(&f, NULL, &err, START), TACIT_CONFLICT);
    fleet_must(tacit_ledger_size(f.server->ledger, &after, &err), &err, "size");
    assert_true(before == after);
    json_decref(FLEET_ASK(&f, "round cancel"));
    json_decref(FLEET_ASK(&f, "device revoke", "=two"));
    started = FLEET_ASK(&f, START, "mechanism", "none", "q", "1");
    assert_true(number_of(started, "active_devices") == 1);
    assert_true(number_of(started, "devices_that_fit") == 1);
    assert_true(isnan(number_of(started, "epsilon_largest")));
    json_decref(started);
}

/* --- own entries --- */

static tacit_status own_entry(fleet_device *d, const uint8_t *leaf, Tacit__OwnEntryReply **reply)
{
    Tacit__OwnEntryRequest r = TACIT__OWN_ENTRY_REQUEST__INIT;
    r.leaf_hash = tacit_field_of(leaf, leaf ? TACIT_HASH_BYTES : 0);
    return fleet_call(d, TACIT__METHOD__METHOD_OWN_ENTRY, &r, &tacit__own_entry_reply__descriptor,
                      reply);
}

/* A device that forgot its counter reads its chain backwards; it can change nothing with that
 * counter, and reads nothing of others. */
static void test_own_entries_at_any_counter(void **state)
{
    (void)state;
    fleet_task task;
    Tacit__OwnEntryReply *newest = NULL, *first = NULL, *none = NULL;
    tacit_entry e;
    assert_int_equal(own_entry(&one, NULL, &none), TACIT_OK);
    assert_int_equal(none->entry.len, 0);
    json_decref(FLEET_ASK(&f, START, "cohort", "2"));
    fleet_work(&f);
    fleet_take(&one, &task);
    fleet_must(fleet_reserve_locally(&one, &task), &one.err, "reserve");
    fleet_must(fleet_send_reserve(&one, &task), &one.err, "send");
    fleet_seal_value(&one, &task, 0.25);
    assert_string_equal(fleet_upload(&one, &task), "");
    uint64_t known = one.counter;
    one.counter = 1; /* as in an old copy */
    Tacit__CheckInReply *told = NULL;
    assert_int_equal(fleet_check_in(&one, &told), TACIT_CONFLICT);
    one.counter = 1;
    assert_int_equal(own_entry(&one, NULL, &newest), TACIT_OK);
    assert_int_equal(newest->counter, known);
    fleet_must(tacit_entry_open(&e, newest->entry.data, newest->entry.len, &one.err), &one.err,
               "entry");
    assert_int_equal(e.entry->body_case, TACIT__ENTRY__BODY_SPEND);
    assert_int_equal(own_entry(&one, e.entry->previous.data, &first), TACIT_OK);
    assert_int_equal(first->entry.len, task.reserve.entry_size);
    assert_memory_equal(first->entry.data, task.reserve.entry, task.reserve.entry_size);
    assert_int_equal(first->plan.len, task.asked->plan.len);
    assert_memory_equal(first->plan.data, task.asked->plan.data, first->plan.len);
    assert_memory_equal(first->schedule.data, task.asked->schedule.data, first->schedule.len);
    Tacit__OwnEntryReply *foreign = NULL;
    assert_int_equal(own_entry(&two, task.reserve.hash, &foreign), TACIT_REFUSED);
    memset(one.nonce, 7, sizeof one.nonce);
    assert_int_equal(own_entry(&one, NULL, &foreign), TACIT_AGAIN);
    tacit_entry_close(&e);
    tacit_message_free(none);
    tacit_message_free(newest);
    tacit_message_free(first);
    fleet_task_free(&task);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_device_raises_its_cap_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exhausted_devices_are_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_devices_that_decline_are_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lineage_that_fits_exhausts_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lineages_that_do_not_fit_together, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_window_is_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_start_says_whom_it_finds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_start_without_a_largest_epsilon, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own_entries_at_any_counter, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
