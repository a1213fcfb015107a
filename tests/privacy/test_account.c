/* A device's account: what it reserves and what that costs, how lineages share the cap, what the
 * policy refuses, and how a reserve ends. (test_account_durable.c kills it and races for it,
 * test_account_lost.c loses it, test_account_log.c puts it before a server's log.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "account_fixture.h"

static void test_a_reserve_is_signed_charged_and_stored(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    tacit_entry e;
    start(f);
    assert_true(status_of(f).epsilon == 0);
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        double expected = alone(10 * (unsigned)(round + 1));
        OK(reserve(f, round, &r));
        assert_true(fabs(r.epsilon_after - expected) < 1e-6 * expected);
        OK(tacit_entry_open(&e, r.entry, r.entry_size, &f->err));
        assert_int_equal(e.entry->sequence, round + 1);
        assert_int_equal(e.entry->reserve->steps, 10);
        assert_int_equal(e.entry->reserve->b, 100000);
        assert_int_equal(e.entry->reserve->values, WORLD_VALUES);
        assert_true(e.entry->reserve->epsilon_cap == 3);
        assert_memory_equal(e.entry->reserve->plan_hash.data, f->w.plan_hash[round], 32);
        tacit_entry_close(&e);
        tacit_reservation_free(&r);
        reopen(f);
        assert_true(fabs(status_of(f).epsilon - expected) < 1e-6 * expected);
    }
    assert_false(status_of(f).lost);
    assert_int_equal(status_of(f).reserves, WORLD_ROUNDS);
}

/* The clip norm adapts: a round costs what gradients and count cost together, the reserve says so,
 * and what is stored adds up to it again. */
static void test_an_adaptive_clip_is_charged(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    tacit_entry e;
    f->w.edit_schedule = world_adapt_schedule;
    f->w.edit_plan = world_adapt_plan;
    start(f);
    double z = 1 / sqrt(1 / pow(tacit_noise_multiplier(100000), 2) +
                        1 / pow(tacit_noise_multiplier(400000), 2));
    tacit_event event = {TACIT_ADD_REMOVE, z, tacit_sampling_rate(TACIT_Q_ONE / 20), 10};
    OK(reserve(f, 0, &r));
    double stated = r.epsilon_after;
    assert_true(is_cost_of(stated, event, 1e-5));
    assert_true(r.epsilon_after > alone(10) * 1.01);
    OK(tacit_entry_open(&e, r.entry, r.entry_size, &f->err));
    assert_int_equal(e.entry->reserve->b, 100000);
    assert_int_equal(e.entry->reserve->quantile_b, 400000);
    tacit_entry_close(&e);
    tacit_reservation_free(&r);
    reopen(f);
    assert_false(status_of(f).lost);
    assert_true(status_of(f).epsilon == stated);
}

static void test_the_same_plan_spends_once(void **state)
{
    fixture *f = *state;
    tacit_reservation a, b;
    start(f);
    OK(reserve(f, 0, &a));
    double epsilon = status_of(f).epsilon;
    OK(reserve(f, 0, &b));
    assert_true(b.existed && !a.existed);
    assert_int_equal(a.entry_size, b.entry_size);
    assert_memory_equal(a.entry, b.entry, a.entry_size);
    assert_true(status_of(f).epsilon == epsilon);
    tacit_reservation_free(&b);
    OK(tacit_account_find(f->account, f->w.plan_hash[0], &b, &f->err));
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
    tacit_reservation_free(&a);
    tacit_reservation_free(&b);
    assert_int_equal(tacit_account_find(f->account, f->w.plan_hash[1], &b, &f->err),
                     TACIT_NOT_FOUND);
}

static void test_a_schedule_over_the_cap_reserves_nothing(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    f->w.policy.epsilon_cap = alone(30) * 0.999;
    start(f);
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "plan's schedule"));
    assert_non_null(strstr(f->err.message, "in all at delta 1e-05"));
    assert_null(r.entry);
    reopen(f);
    assert_true(status_of(f).epsilon == 0);
    assert_int_equal(status_of(f).next_sequence, 1);
}

static void test_a_schedule_at_the_cap_fits(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    f->w.policy.epsilon_cap = alone(30) * (1 + 1e-6);
    start(f);
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        OK(reserve(f, round, &r));
        tacit_reservation_free(&r);
    }
}

static void test_a_second_lineage_is_read_at_the_fixed_order(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    f->w.policy.epsilon_cap = 8;
    start(f);
    OK(reserve(f, 0, &r));
    assert_true(fabs(r.epsilon_after - alone(10)) < 1e-6);
    tacit_reservation_free(&r);
    world_next_lineage(&f->w, 0x22, 0x60);
    OK(reserve(f, 0, &r));
    double expected = at_fixed_order(20, 8);
    assert_true(expected > alone(20));
    assert_true(fabs(r.epsilon_after - expected) < 1e-6);
    tacit_reservation_free(&r);
    reopen(f);
    assert_false(status_of(f).lost);
}

/* Round 0 costs next to nothing; the others little noise at a small rate, which is cheap at low
 * orders and dear at the order that suits plain Gaussian noise. */
static void dear_rounds(Tacit__Mechanism *m, int round)
{
    m->b = round == 0 ? 1000000000 : 54014; /* noise multiplier 0.7 */
    m->q_num = TACIT_Q_ONE / 100;
}

static void dear_schedule(Tacit__Schedule *s)
{
    for (int r = 0; r < WORLD_ROUNDS; r++)
        dear_rounds(s->rounds[r]->mechanism, r);
}

static void dear_plan(Tacit__Plan *p, int round)
{
    dear_rounds(p->mechanism, round);
}

static void cheap_other_schedule(Tacit__Schedule *s)
{
    world_other_schedule(s);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        s->rounds[r]->mechanism->b = 1000000000;
}

static void cheap_other_plan(Tacit__Plan *p, int round)
{
    world_other_plan(p, round);
    p->mechanism->b = 1000000000;
}

/* What was reserved so far and the whole second schedule would fit at the fixed order, but the
 * first, if it goes on, fits at its own order only: which of the two is read must not be chosen on
 * what came out. */
static void test_no_second_lineage_beside_one_that_only_its_own_order_admits(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    f->w.policy.epsilon_cap = 3.2;
    f->w.policy.minimum_noise_multiplier = 0.5;
    f->w.edit_schedule = dear_schedule;
    f->w.edit_plan = dear_plan;
    start(f);
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    tacit_reserve_request next = request_of(&f->w, 1);
    uint8_t *schedule = f->w.schedule, *plan = f->w.plan[1];
    f->w.schedule = f->w.plan[1] = NULL;
    world_next_lineage(&f->w, 0x22, 0x60);
    free(f->w.schedule);
    free(f->w.plan[0]);
    f->w.edit_schedule = cheap_other_schedule;
    f->w.edit_plan = cheap_other_plan;
    world_schedule(&f->w);
    world_plan(&f->w, 0);
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "another schedule beside the account's first one"));
    OK(tacit_account_reserve(f->account, &next, &r, &f->err)); /* the first goes on */
    tacit_reservation_free(&r);
    free(schedule);
    free(plan);
}

static void set_cap(fixture *f, double cap)
{
    f->w.policy.epsilon_cap = cap;
    OK(tacit_account_set_policy(f->account, &f->w.policy, &f->err));
}

/* A cap that is spent to the last bit refuses the ten-thousandth part of a spend, which a cap that
 * is larger by a thousandth takes. */
static void test_a_tiny_spend_after_exhaustion_is_refused(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    f->w.policy.epsilon_cap = 8;
    start(f);
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        OK(reserve(f, round, &r));
        tacit_reservation_free(&r);
    }
    double spent = at_fixed_order(30, 8); /* as beside another schedule */
    world_next_lineage(&f->w, 0x22, 0x60);
    free(f->w.schedule);
    free(f->w.plan[0]);
    f->w.edit_schedule = cheap_other_schedule;
    f->w.edit_plan = cheap_other_plan;
    world_schedule(&f->w);
    world_plan(&f->w, 0);
    set_cap(f, spent);
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    assert_int_equal(status_of(f).reserves, WORLD_ROUNDS);
    set_cap(f, spent * 1.001);
    OK(reserve(f, 0, &r));
    assert_true(r.epsilon_after > spent && r.epsilon_after < spent * (1 + 1e-4));
    tacit_reservation_free(&r);
}

static void test_sub_caps_add_up_to_the_cap(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    const uint8_t first[16] = {1}, second[16] = {2};
    f->w.policy.epsilon_cap = 3;
    start(f);
    OK(tacit_account_set_lineage_cap(f->account, first, 2, &f->err));
    assert_int_equal(tacit_account_set_lineage_cap(f->account, second, 1.1, &f->err),
                     TACIT_REFUSED);
    OK(tacit_account_set_lineage_cap(f->account, second, 0.2, &f->err));
    double whole = alone(30);
    assert_true(whole > 0.8 && whole < 3); /* more than what is left */
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "schedules of others hold 2.2"));
    OK(tacit_account_set_lineage_cap(f->account, first, 0.1, &f->err));
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    uint8_t own[16];
    memset(own, 0x11, 16);
    assert_int_equal(tacit_account_set_lineage_cap(f->account, own, 1, &f->err), TACIT_CONFLICT);
}

static void test_a_lineage_keeps_its_sub_cap(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    uint8_t own[16];
    memset(own, 0x11, 16);
    start(f);
    OK(tacit_account_set_lineage_cap(f->account, own, alone(30) * 0.99, &f->err));
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "sub-cap"));
}

static void more_steps(Tacit__Schedule *s)
{
    s->rounds[2]->mechanism->steps = 11;
}

static void test_a_lineage_keeps_its_schedule(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    start(f);
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    world_next_lineage(&f->w, 0x11, 0xa0);
    f->w.edit_schedule = more_steps;
    free(f->w.schedule);
    world_schedule(&f->w);
    free(f->w.plan[1]);
    world_plan(&f->w, 1);
    assert_int_equal(reserve(f, 1, &r), TACIT_INTEGRITY);
    assert_non_null(strstr(f->err.message, "another schedule"));
}

static void other_deadline(Tacit__Plan *p, int round)
{
    (void)round;
    p->deadline_ms += 1;
}

static void test_a_round_is_reserved_under_one_plan(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    start(f);
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    f->w.edit_plan = other_deadline;
    free(f->w.plan[0]);
    world_plan(&f->w, 0);
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "another plan"));
}

/* --- the policy --- */

static void set_noise(tacit_policy *p)
{
    p->minimum_noise_multiplier = 1.5;
}
static void set_unit(tacit_policy *p)
{
    p->unit = TACIT_UNIT_SUBJECT;
}
static void set_smaller_unit(tacit_policy *p)
{
    p->unit = TACIT_UNIT_DEVICE;
}
static void set_cohort(tacit_policy *p)
{
    p->minimum_cohort = 10;
}
static void set_quorum(tacit_policy *p)
{
    p->minimum_quorum = 3;
}
static void set_delta(tacit_policy *p)
{
    p->delta = 1e-6;
}

static const struct {
    void (*edit)(tacit_policy *);
    bool none;
    const char *says;
} policy_rows[] = {
    {set_noise, false, "plan's noise multiplier 1.29596 is below this device's minimum 1.5"},
    {set_unit, false,
     "plan's unit is record, this device's is subject: an epsilon for one is none for the other; "
     "ask for plans of its unit"},
    {set_smaller_unit, false,
     "plan's unit is record, this device's is device: an epsilon for one is none for the other; "
     "ask for plans of its unit"},
    {set_cohort, false, "plan's cohort 3 is below this device's minimum 10"},
    {set_quorum, false, "plan's quorum 2 is below this device's minimum 3"},
    {set_delta, false, "plan's delta 1e-05 is above this device's 1e-06"},
    {NULL, true,
     "plan's mechanism is none, which this device refuses; set allow_non_private in "
     "its policy if nothing on it is private"},
};

static void test_the_policy_refuses_with_one_clear_line(void **state)
{
    for (size_t i = 0; i < sizeof policy_rows / sizeof policy_rows[0]; i++) {
        fixture *f = *state;
        tacit_reservation r;
        if (policy_rows[i].edit)
            policy_rows[i].edit(&f->w.policy);
        f->w.none = policy_rows[i].none;
        start(f);
        assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
        assert_string_equal(f->err.message, policy_rows[i].says);
        assert_int_equal(status_of(f).next_sequence, 1);
        tear_down(state);
        set_up(state);
    }
}

static void test_mechanism_none_is_counted_apart(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    f->w.policy.allow_non_private = true;
    start(f);
    OK(reserve(f, 0, &r));
    double epsilon = r.epsilon_after;
    tacit_reservation_free(&r);
    assert_false(status_of(f).non_private);
    f->w.none = true;
    world_next_lineage(&f->w, 0x33, 0x70);
    OK(reserve(f, 0, &r));
    assert_true(isinf(r.epsilon_after));
    tacit_reservation_free(&r);
    assert_true(status_of(f).non_private);
    assert_true(status_of(f).epsilon == epsilon);
    f->w.none = false;
    world_next_lineage(&f->w, 0x11, 0xa0);
    f->w.edit_plan = NULL;
    f->w.edit_schedule = NULL;
    reopen(f);
    assert_false(status_of(f).lost);
    OK(reserve(f, 1, &r));
    assert_true(fabs(r.epsilon_after - alone(20)) < 1e-6);
    tacit_reservation_free(&r);
}

static void test_the_unit_is_for_life_from_the_first_reserve(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    tacit_policy policy;
    start(f);
    policy = f->w.policy;
    policy.unit = TACIT_UNIT_DEVICE;
    OK(tacit_account_set_policy(f->account, &policy, &f->err));
    OK(tacit_account_set_policy(f->account, &f->w.policy, &f->err));
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    assert_int_equal(tacit_account_set_policy(f->account, &policy, &f->err), TACIT_REFUSED);
    assert_non_null(strstr(f->err.message, "its unit is record for life, the policy says device"));
    assert_true(status_of(f).policy.unit == TACIT_UNIT_RECORD);
}

static void test_delta_is_for_life(void **state)
{
    fixture *f = *state;
    start(f);
    tacit_policy policy = f->w.policy;
    policy.epsilon_cap = 1;
    OK(tacit_account_set_policy(f->account, &policy, &f->err));
    assert_true(status_of(f).policy.epsilon_cap == 1);
    policy.delta = 1e-6;
    assert_int_equal(tacit_account_set_policy(f->account, &policy, &f->err), TACIT_REFUSED);
    assert_int_equal(tacit_account_create(f->db, &f->w.policy, false, f->w.device[0].id, &f->err),
                     TACIT_CONFLICT);
}

/* --- endings --- */

static void test_only_one_set_of_bytes_is_ever_sent(void **state)
{
    fixture *f = *state;
    tacit_reservation r, s, again;
    const uint8_t digest[32] = {1}, other[32] = {2};
    start(f);
    OK(reserve(f, 0, &r));
    OK(tacit_account_spend(f->account, r.hash, digest, &s, &f->err));
    OK(tacit_account_spend(f->account, r.hash, digest, &again, &f->err));
    assert_int_equal(s.entry_size, again.entry_size);
    assert_memory_equal(s.entry, again.entry, s.entry_size);
    tacit_reservation_free(&again);
    tacit_reservation_free(&s);
    assert_int_equal(tacit_account_spend(f->account, r.hash, other, &s, &f->err), TACIT_CONFLICT);
    assert_int_equal(reserve(f, 0, &s), TACIT_CONFLICT);
    tacit_reservation_free(&r);
    OK(reserve(f, 1, &r));
    assert_int_equal(tacit_account_spend(f->account, r.hash, digest, &s, &f->err), TACIT_CONFLICT);
    tacit_reservation_free(&r);
    reopen(f);
    assert_false(status_of(f).lost);
}

static void test_abandoning_gives_nothing_back(void **state)
{
    fixture *f = *state;
    tacit_reservation r, a, s;
    const uint8_t digest[32] = {1};
    start(f);
    OK(reserve(f, 0, &r));
    double epsilon = status_of(f).epsilon;
    OK(tacit_account_abandon(f->account, r.hash, "deadline", &a, &f->err));
    tacit_reservation_free(&a);
    OK(tacit_account_abandon(f->account, r.hash, "deadline", &a, &f->err));
    tacit_reservation_free(&a);
    assert_true(status_of(f).epsilon == epsilon);
    assert_int_equal(status_of(f).next_sequence, 3);
    assert_int_equal(tacit_account_spend(f->account, r.hash, digest, &s, &f->err), TACIT_CONFLICT);
    assert_int_equal(reserve(f, 0, &s), TACIT_CONFLICT);
    tacit_reservation_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_a_reserve_is_signed_charged_and_stored),
        WITH(test_an_adaptive_clip_is_charged),
        WITH(test_the_same_plan_spends_once),
        WITH(test_a_schedule_over_the_cap_reserves_nothing),
        WITH(test_a_schedule_at_the_cap_fits),
        WITH(test_a_second_lineage_is_read_at_the_fixed_order),
        WITH(test_no_second_lineage_beside_one_that_only_its_own_order_admits),
        WITH(test_a_tiny_spend_after_exhaustion_is_refused),
        WITH(test_sub_caps_add_up_to_the_cap),
        WITH(test_a_lineage_keeps_its_sub_cap),
        WITH(test_a_lineage_keeps_its_schedule),
        WITH(test_a_round_is_reserved_under_one_plan),
        WITH(test_the_policy_refuses_with_one_clear_line),
        WITH(test_mechanism_none_is_counted_apart),
        WITH(test_the_unit_is_for_life_from_the_first_reserve),
        WITH(test_delta_is_for_life),
        WITH(test_only_one_set_of_bytes_is_ever_sent),
        WITH(test_abandoning_gives_nothing_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
