#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/database.h"
#include "privacy/account.h"
#include "privacy/ledger.h"
#include "world.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture {
    world w;
    char dir[64], path[128];
    tacit_database *db;
    tacit_account *account;
    tacit_error err;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    world_init(&f->w);
    snprintf(f->dir, sizeof f->dir, "/tmp/tacit-account-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/client.db", f->dir);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    world_free(&f->w);
    free(f);
    return 0;
}

static void start(fixture *f)
{
    world_plan_all(&f->w);
    OK(tacit_account_create(f->db, &f->w.policy, false, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
}

static void reopen(fixture *f)
{
    tacit_account_close(f->account);
    f->account = NULL;
    tacit_database_close(f->db);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
}

static tacit_reserve_request request_of(world *w, int round)
{
    return (tacit_reserve_request){.device = w->device[0].name,
                                   .plan = {w->plan[round], w->plan_size[round]},
                                   .schedule = {w->schedule, w->schedule_size}};
}

static tacit_status reserve(fixture *f, int round, tacit_reservation *out)
{
    tacit_reserve_request request = request_of(&f->w, round);
    return tacit_account_reserve(f->account, &request, out, &f->err);
}

static tacit_account_status status_of(fixture *f)
{
    tacit_account_status s;
    OK(tacit_account_status_get(f->account, &s, &f->err));
    return s;
}

static tacit_event runs_of(unsigned runs)
{
    return (tacit_event){TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), runs};
}

/* `runs` of the world's event as one schedule. */
static double alone(unsigned runs)
{
    tacit_error err;
    tacit_budget b;
    tacit_event event = runs_of(runs);
    tacit_budget_open(&b, 3, 1e-5);
    OK(tacit_budget_add(&b, &event, 1, true, &err));
    double epsilon = budget_epsilon(&b);
    assert_true(is_cost_of(epsilon, event, 1e-5));
    return epsilon;
}

/* The same at the order that an account under `cap` is read at from its second schedule on. */
static double at_fixed_order(unsigned runs, double cap)
{
    tacit_error err;
    tacit_rdp rdp = {0};
    tacit_event event = runs_of(runs);
    OK(tacit_rdp_add(&rdp, &event, TACIT_RDP_TRUE, &err));
    return tacit_rdp_epsilon_at(&rdp, tacit_rdp_filter_order(cap, 1e-5), 1e-5);
}

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

/* --- durability --- */

static void test_an_uncommitted_reserve_never_happened(void **state)
{
    fixture *f = *state;
    start(f);
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tacit_database *db;
        tacit_account *account;
        tacit_reservation r;
        tacit_error err;
        tacit_reserve_request request = request_of(&f->w, 0);
        if (tacit_database_open(&db, f->path, &err) == TACIT_OK &&
            tacit_account_open(&account, db, f->w.device[0].id, &err) == TACIT_OK &&
            tacit_database_begin(db, &err) == TACIT_OK &&
            tacit_account_reserve(account, &request, &r, &err) == TACIT_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    assert_true(status_of(f).epsilon == 0 && !status_of(f).lost);
}

static void test_a_returned_reserve_survives_a_kill(void **state)
{
    fixture *f = *state;
    start(f);
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        tacit_database *db;
        tacit_account *account;
        tacit_reservation r;
        tacit_error err;
        tacit_reserve_request request = request_of(&f->w, 0);
        if (tacit_database_open(&db, f->path, &err) == TACIT_OK &&
            tacit_account_open(&account, db, f->w.device[0].id, &err) == TACIT_OK &&
            tacit_account_reserve(account, &request, &r, &err) == TACIT_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFSIGNALED(code));
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    assert_true(fabs(status_of(f).epsilon - alone(10)) < 1e-6);
}

static void test_a_full_disk_reserves_nothing(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    char dir[96], path[160];
    snprintf(dir, sizeof dir, "%s/small", f->dir);
    snprintf(path, sizeof path, "%s/client.db", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    if (geteuid() != 0 || mount("tacit-test", dir, "tmpfs", 0, "size=1m") != 0)
        skip();
    tacit_database_close(f->db);
    OK(tacit_database_open(&f->db, path, &f->err));
    start(f);
    char fill[160];
    snprintf(fill, sizeof fill, "%s/fill", dir);
    FILE *file = fopen(fill, "w");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    char block[4096] = {1};
    while (fwrite(block, 1, sizeof block, file) == sizeof block)
        ;
    fclose(file);
    tacit_status status = reserve(f, 0, &r);
    tacit_error full = f->err;
    assert_int_equal(unlink(fill), 0);
    bool nothing = status_of(f).epsilon == 0 && status_of(f).next_sequence == 1;
    tacit_status later = reserve(f, 0, &r);
    tacit_reservation_free(&r);
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(status, TACIT_IO);
    assert_non_null(strstr(full.message, "free space"));
    assert_true(nothing);
    assert_int_equal(later, TACIT_OK);
}

/* Each of six processes has a lineage of its own; the cap holds only some of them. */
enum { RACERS = 6 };

static void race(fixture *f, int racer, int start_pipe)
{
    tacit_database *db;
    tacit_account *account;
    tacit_reservation r;
    tacit_error err;
    char go;
    world_next_lineage(&f->w, (uint8_t)(0x80 + racer), (uint8_t)(16 * racer));
    tacit_reserve_request request = request_of(&f->w, 0);
    if (tacit_database_open(&db, f->path, &err) != TACIT_OK ||
        tacit_account_open(&account, db, f->w.device[0].id, &err) != TACIT_OK ||
        read(start_pipe, &go, 1) != 0)
        _exit(9);
    tacit_status status = tacit_account_reserve(account, &request, &r, &err);
    _exit(status == TACIT_OK ? 0 : status == TACIT_REFUSED ? 4 : 9);
}

static void test_processes_never_exceed_the_cap_together(void **state)
{
    fixture *f = *state;
    int barrier[2], won = 0, refused = 0;
    double one = alone(30);
    f->w.policy.epsilon_cap = 3 * one; /* sub-caps alone allow three schedules */
    start(f);
    tacit_account_close(f->account);
    tacit_database_close(f->db);
    f->account = NULL;
    f->db = NULL;
    assert_int_equal(pipe(barrier), 0);
    for (int i = 0; i < RACERS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(barrier[1]);
            race(f, i, barrier[0]);
        }
    }
    close(barrier[1]);
    close(barrier[0]);
    for (int i = 0; i < RACERS; i++) {
        int code;
        assert_true(wait(&code) > 0);
        assert_true(WIFEXITED(code));
        won += WEXITSTATUS(code) == 0;
        refused += WEXITSTATUS(code) == 4;
    }
    assert_int_equal(won + refused, RACERS);
    assert_in_range(won, 2, 3);
    OK(tacit_database_open(&f->db, f->path, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    tacit_account_status s = status_of(f);
    assert_false(s.lost);
    assert_int_equal(s.reserves, won);
    assert_true(s.epsilon <= s.policy.epsilon_cap);
    assert_true(fabs(s.epsilon - at_fixed_order(10 * (unsigned)won, 3 * one)) < 1e-6);
}

/* --- damage --- */

static void test_damage_makes_the_account_lost(void **state)
{
    static const char *const damage[] = {
        "UPDATE account_entry SET bytes = zeroblob(200) WHERE sequence = 1",
        "DELETE FROM account_entry WHERE sequence = 3",
        "UPDATE account_entry SET sequence = 9 WHERE sequence = 2",
        "UPDATE account_terms SET sequence = 2",
        "UPDATE account_terms SET head = zeroblob(32)",
        "UPDATE account_terms SET opening_cap = 100.0",
        "UPDATE account_reserve SET leaf = zeroblob(32) WHERE round_index = 0",
        "UPDATE account_terms SET budget = zeroblob(length(budget))",
        "UPDATE account_terms SET budget = CAST(substr(budget, 1, 36) ||"
        " zeroblob(length(budget) - 36) AS BLOB)",
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        fixture *f = *state;
        tacit_reservation r, out;
        const uint8_t digest[32] = {1};
        start(f);
        OK(reserve(f, 0, &r));
        OK(tacit_account_spend(f->account, r.hash, digest, &out, &f->err));
        tacit_reservation_free(&out);
        tacit_reservation_free(&r);
        OK(reserve(f, 1, &r));
        tacit_reservation_free(&r);
        OK(tacit_database_run(f->db, "PRAGMA foreign_keys = OFF", &f->err));
        if (tacit_database_run(f->db, damage[i], &f->err) != TACIT_OK)
            fail_msg("%s: %s", damage[i], f->err.message);
        tacit_account_close(f->account);
        f->account = NULL;
        tacit_status status = tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err);
        if (status == TACIT_OK && !status_of(f).lost)
            print_error("not noticed: %s\n", damage[i]);
        if (status == TACIT_OK) {
            assert_true(status_of(f).lost);
            /* A cap that was made up counts as well: more, never less. */
            double counted = strstr(damage[i], "opening_cap") ? 100 : 3;
            assert_true(status_of(f).epsilon == counted && status_of(f).remaining == 0);
            assert_int_equal(reserve(f, 2, &r), TACIT_REFUSED);
            assert_non_null(strstr(f->err.message, "lifetime cap of 3 counts as spent"));
            reopen(f);
            assert_true(status_of(f).lost);
        } else { /* terms that cannot even be read: nothing opens, nothing is reserved */
            assert_int_equal(status, TACIT_BAD_INPUT);
        }
        tear_down(state);
        set_up(state);
    }
}

static void budget_of(fixture *f, tacit_budget *out)
{
    tacit_statement *s;
    bool row;
    OK(tacit_statement_begin(f->db, &s, "SELECT budget FROM account_terms", &f->err));
    OK(tacit_statement_step(s, &row, &f->err));
    tacit_span bytes = tacit_column_blob(s, 0);
    OK(tacit_budget_read(out, bytes.data, bytes.size, &f->err));
    tacit_statement_end(s);
}

static void set_budget(fixture *f, const tacit_budget *b)
{
    tacit_statement *s;
    uint8_t bytes[TACIT_BUDGET_BYTES];
    tacit_budget_write(b, bytes);
    OK(tacit_statement_begin(f->db, &s, "UPDATE account_terms SET budget = $1", &f->err));
    tacit_bind_blob(s, 1, bytes, sizeof bytes);
    OK(tacit_statement_finish(s, &f->err));
}

/* Another libm rounds the last bits of every rho otherwise. That is no damage: the account opens
 * and goes on with the larger; a difference that rounding cannot make is. */
static void test_another_rounding_is_no_damage(void **state)
{
    static const struct {
        int shift;
        bool up, lost;
    } changes[] = {{33, true, false},
                   {33, false, false},
                   {60, false, false},
                   {24, true, true},
                   {24, false, true}};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        fixture *f = *state;
        tacit_reservation r;
        tacit_budget made, stored, opened;
        start(f);
        OK(reserve(f, 0, &r));
        tacit_reservation_free(&r);
        budget_of(f, &made);
        stored = made;
        for (size_t k = 0; k < TACIT_RDP_ORDERS; k++) {
            unsigned __int128 by = made.spent.rho[k] >> changes[i].shift;
            stored.spent.rho[k] += changes[i].up ? by : -by;
        }
        set_budget(f, &stored);
        reopen(f);
        assert_int_equal(status_of(f).lost, changes[i].lost);
        if (!changes[i].lost) {
            budget_of(f, &opened);
            const tacit_budget *larger = changes[i].up ? &stored : &made;
            assert_memory_equal(&opened.spent, &larger->spent, sizeof opened.spent);
            OK(reserve(f, 1, &r));
            tacit_reservation_free(&r);
        }
        tear_down(state);
        set_up(state);
    }
}

static void test_another_identity_does_not_fit(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    start(f);
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    tacit_account_close(f->account);
    OK(tacit_account_open(&f->account, f->db, f->w.device[1].id, &f->err));
    assert_true(status_of(f).lost);
}

static void test_a_missing_account_starts_spent(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    tacit_entry e;
    world_plan_all(&f->w);
    assert_int_equal(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err),
                     TACIT_NOT_FOUND);
    OK(tacit_account_create(f->db, &f->w.policy, true, f->w.device[0].id, &f->err));
    OK(tacit_account_open(&f->account, f->db, f->w.device[0].id, &f->err));
    assert_int_equal(reserve(f, 0, &r), TACIT_REFUSED);
    const uint8_t head[32] = {5};
    OK(tacit_account_lost_entry(f->account, f->w.device[0].name, 7, head, &r, &f->err));
    OK(tacit_entry_open(&e, r.entry, r.entry_size, &f->err));
    assert_int_equal(e.entry->sequence, 7);
    assert_memory_equal(e.entry->previous.data, head, 32);
    assert_true(e.entry->account_lost->epsilon_counted == 3);
    tacit_entry_close(&e);
    tacit_reservation_free(&r);
}

/* What may have been spent under the cap of the opening is not taken back by a lower one. */
static void test_a_lost_account_counts_the_cap_before_it_was_lowered(void **state)
{
    fixture *f = *state;
    tacit_reservation r;
    tacit_entry e;
    start(f);
    OK(reserve(f, 0, &r));
    tacit_reservation_free(&r);
    tacit_policy lower = f->w.policy;
    lower.epsilon_cap = 0.5;
    OK(tacit_account_set_policy(f->account, &lower, &f->err));
    tacit_account_close(f->account);
    OK(tacit_account_open(&f->account, f->db, f->w.device[1].id, &f->err));
    assert_true(status_of(f).lost);
    assert_true(status_of(f).epsilon == 3);
    assert_true(status_of(f).remaining == 0);
    OK(tacit_account_lost_entry(f->account, f->w.device[1].name, 0, NULL, &r, &f->err));
    OK(tacit_entry_open(&e, r.entry, r.entry_size, &f->err));
    assert_true(e.entry->account_lost->epsilon_counted == 3);
    tacit_entry_close(&e);
    tacit_reservation_free(&r);
}

/* --- with the server's log --- */

typedef struct server {
    char path[160];
    tacit_database *db;
    tacit_ledger *ledger;
} server;

static void server_open(fixture *f, server *s)
{
    snprintf(s->path, sizeof s->path, "%s/server.db", f->dir);
    OK(tacit_database_open(&s->db, s->path, &f->err));
    OK(tacit_ledger_open(&s->ledger, s->db, WORLD_ORIGIN, f->w.log, &f->err));
    world_start(&f->w);
    world_enrol(&f->w, 0);
    world_log_schedule(&f->w);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        world_log_plan(&f->w, r);
    OK(tacit_database_begin(s->db, &f->err));
    for (size_t i = 0; i < f->w.count; i++) {
        uint64_t index;
        uint8_t leaf[32];
        OK(tacit_ledger_append(s->ledger, f->w.entry[i].bytes, f->w.entry[i].size, &index, leaf,
                               &f->err));
    }
    OK(tacit_database_commit(s->db, &f->err));
}

static void server_close(server *s)
{
    tacit_ledger_close(s->ledger);
    tacit_database_close(s->db);
}

/* What a ReserveReply carries. */
typedef struct reply {
    char note[TACIT_CHECKPOINT_MAX];
    uint64_t index, size;
    tacit_proof inclusion, consistency;
} reply;

static void server_take(fixture *f, server *s, const tacit_reservation *r, uint64_t held,
                        reply *out)
{
    uint8_t leaf[32];
    OK(tacit_database_begin(s->db, &f->err));
    OK(tacit_ledger_append(s->ledger, r->entry, r->entry_size, &out->index, leaf, &f->err));
    OK(tacit_ledger_checkpoint(s->ledger, out->note, &out->size, &f->err));
    OK(tacit_database_commit(s->db, &f->err));
    OK(tacit_ledger_inclusion(s->ledger, out->index, out->size, &out->inclusion, &f->err));
    OK(tacit_ledger_consistency(s->ledger, held, out->size, &out->consistency, &f->err));
}

static tacit_status acknowledge(fixture *f, const tacit_reservation *r, const reply *p,
                                const uint8_t *nonce)
{
    tacit_note_key key = world_log_key(&f->w);
    tacit_receipt receipt = {.entry = {r->entry, r->entry_size},
                             .index = p->index,
                             .inclusion = p->inclusion,
                             .checkpoint = {(const uint8_t *)p->note, strlen(p->note)}};
    return tacit_account_acknowledge(f->account, r->hash, &receipt, &p->consistency, &key, nonce,
                                     &f->err);
}

static void test_reserves_are_acknowledged_by_the_log(void **state)
{
    fixture *f = *state;
    server s;
    reply p;
    tacit_reservation r[WORLD_ROUNDS], again;
    const uint8_t nonce[32] = {42}, other[32] = {43};
    start(f);
    server_open(f, &s);
    for (int round = 0; round < WORLD_ROUNDS; round++) {
        OK(reserve(f, round, &r[round]));
        server_take(f, &s, &r[round], status_of(f).checkpoint_size, &p);
        assert_int_equal(status_of(f).unacknowledged, 1);
        OK(acknowledge(f, &r[round], &p, nonce));
        OK(acknowledge(f, &r[round], &p, other));
        assert_int_equal(status_of(f).unacknowledged, 0);
        assert_int_equal(status_of(f).checkpoint_size, p.size);
        OK(tacit_account_find(f->account, f->w.plan_hash[round], &again, &f->err));
        assert_true(again.acknowledged);
        assert_memory_equal(again.nonce, nonce, 32);
        tacit_reservation_free(&again);
    }
    uint8_t *bytes;
    size_t size;
    void *message;
    tacit_receipt stored;
    tacit_note_key key = world_log_key(&f->w);
    OK(tacit_account_receipt(f->account, r[1].hash, &bytes, &size, &f->err));
    OK(tacit_receipt_unpack(&stored, &message, bytes, size, &f->err));
    OK(tacit_receipt_verify(&stored, &key, NULL, &f->err));
    tacit_message_free(message);
    free(bytes);
    for (int round = 0; round < WORLD_ROUNDS; round++)
        tacit_reservation_free(&r[round]);
    server_close(&s);
}

static void test_false_acknowledgements_are_refused(void **state)
{
    fixture *f = *state;
    server s;
    reply good, p;
    tacit_reservation r, second;
    start(f);
    server_open(f, &s);
    OK(reserve(f, 0, &r));
    server_take(f, &s, &r, 0, &good);
    p = good;
    p.inclusion.hash[0][0] ^= 1;
    assert_int_equal(acknowledge(f, &r, &p, NULL), TACIT_INTEGRITY);
    p = good;
    p.index--;
    assert_int_equal(acknowledge(f, &r, &p, NULL), TACIT_INTEGRITY);
    p = good;
    p.note[strlen(WORLD_ORIGIN) + 1] ^= 1; /* the size */
    assert_int_not_equal(acknowledge(f, &r, &p, NULL), TACIT_OK);
    assert_int_equal(status_of(f).unacknowledged, 1);
    OK(acknowledge(f, &r, &good, NULL));
    OK(reserve(f, 1, &second));
    server_take(f, &s, &second, status_of(f).checkpoint_size, &p);
    p.consistency.hash[0][0] ^= 1;
    assert_int_equal(acknowledge(f, &second, &p, NULL), TACIT_INTEGRITY);
    p.consistency.hash[0][0] ^= 1;
    OK(acknowledge(f, &second, &p, NULL));
    OK(acknowledge(f, &r, &good, NULL)); /* a repeated reply with a checkpoint seen before */
    tacit_reservation_free(&r);
    tacit_reservation_free(&second);
    server_close(&s);
}

static void test_a_rolled_back_or_split_log_is_refused(void **state)
{
    fixture *f = *state;
    char older[TACIT_CHECKPOINT_MAX], newer[TACIT_CHECKPOINT_MAX], split[TACIT_CHECKPOINT_MAX];
    tacit_note_key key;
    tacit_proof proof, nothing = {.count = 0};
    start(f);
    key = world_log_key(&f->w);
    world_start(&f->w);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_enrol(&f->w, d);
    world_checkpoint(&f->w, 2, older);
    world_checkpoint(&f->w, 4, newer);
    tacit_merkle_store store = tacit_merkle_memory_store(&f->w.tree);
    OK(tacit_merkle_consistency(&store, 2, 4, &proof, &f->err));
    const tacit_span old_note = {(const uint8_t *)older, strlen(older)},
                     new_note = {(const uint8_t *)newer, strlen(newer)};
    OK(tacit_account_checkpoint(f->account, old_note, &nothing, &key, &f->err));
    assert_int_equal(tacit_account_checkpoint(f->account, new_note, &nothing, &key, &f->err),
                     TACIT_INTEGRITY);
    OK(tacit_account_checkpoint(f->account, new_note, &proof, &key, &f->err));
    OK(tacit_account_checkpoint(f->account, new_note, &nothing, &key, &f->err));
    assert_int_equal(tacit_account_checkpoint(f->account, old_note, &nothing, &key, &f->err),
                     TACIT_INTEGRITY);
    assert_non_null(strstr(f->err.message, "rolled back"));
    tacit_checkpoint c = {.origin = WORLD_ORIGIN, .size = 4, .root = {1}};
    OK(tacit_checkpoint_sign(&c, f->w.log, split, &f->err));
    assert_int_equal(tacit_account_checkpoint(f->account,
                                              (tacit_span){(const uint8_t *)split, strlen(split)},
                                              &nothing, &key, &f->err),
                     TACIT_INTEGRITY);
    char *held;
    uint64_t size;
    OK(tacit_account_last_checkpoint(f->account, &held, &size, &f->err));
    assert_string_equal(held, newer);
    free(held);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

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
        WITH(test_an_uncommitted_reserve_never_happened),
        WITH(test_a_returned_reserve_survives_a_kill),
        WITH(test_a_full_disk_reserves_nothing),
        WITH(test_processes_never_exceed_the_cap_together),
        WITH(test_damage_makes_the_account_lost),
        WITH(test_another_rounding_is_no_damage),
        WITH(test_another_identity_does_not_fit),
        WITH(test_a_missing_account_starts_spent),
        WITH(test_a_lost_account_counts_the_cap_before_it_was_lowered),
        WITH(test_reserves_are_acknowledged_by_the_log),
        WITH(test_false_acknowledgements_are_refused),
        WITH(test_a_rolled_back_or_split_log_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
