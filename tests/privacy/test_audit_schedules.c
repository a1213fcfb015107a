/* The auditor on accounts with more than one schedule: priced at the one order that was fixed when
 * the account was opened. Expected epsilons are computed here from the definitions: rho by a fine
 * midpoint rule in long double, the conversion and the choice of the order from their formulas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "golden_rows.h"

#define DELTA_OF_ALL 1e-5
#define DEVICE 1

/* --- the oracle --- */

typedef struct ran {
    uint64_t b, q_num;
    uint32_t steps;
} ran;

#define RAN_MAX 8

/* log of E over x ~ N(0, s^2) of (1 + q (e^((2x - 1) / (2 s^2)) - 1))^a, over a - 1. */
static long double rho_of(long double a, const ran *r)
{
    long double s = (long double)r->b / sqrtl(2 * logl(2)) / 65536, q = r->q_num * 0x1p-32L;
    long double step = (s < 1 ? s * s : s) / 40, sum = 0;
    for (long double x = -20 * s; x < a + 20 * s; x += step)
        sum += expl(a * log1pl(q * expm1l((2 * x - 1) / (2 * s * s))) - x * x / (2 * s * s));
    return logl(sum * step / (s * sqrtl(2 * acosl(-1)))) / (a - 1);
}

static long double epsilon_of(long double a, long double rho, long double delta)
{
    if (!(delta > 0))
        return INFINITY; /* the sampler took it all */
    long double epsilon = rho + log1pl(-1 / a) - logl(delta * a) / (a - 1);
    return epsilon > 0 ? epsilon : 0;
}

/* At one order, or the least over all; the noise sampler takes (1 + e^epsilon) 2^-80 of delta for
 * every value that it drew. */
static double expected(const ran *list, size_t n, double order)
{
    double best = INFINITY;
    FILE *file = golden_open("rdp_orders.txt");
    char line[64];
    while (fgets(line, sizeof line, file)) {
        long double a = strtod(line, NULL), rho = 0, values = 0, epsilon = 0;
        if (order != 0 ? a != order : a > 30)
            continue; /* the best of these small accounts lies lower */
        for (size_t i = 0; i < n; i++) {
            rho += list[i].steps * rho_of(a, &list[i]);
            values += (long double)list[i].steps * WORLD_VALUES;
        }
        for (int i = 0; i < 20; i++)
            epsilon = epsilon_of(a, rho, DELTA_OF_ALL - (1 + expl(epsilon)) * values * 0x1p-80L);
        best = fmin(best, (double)epsilon);
    }
    fclose(file);
    return best;
}

/* One schedule of these rounds, by the budget that everybody has: what its parts are is held
 * against other programs elsewhere, here it is only not what RDP says. */
static double alone(const ran *list, size_t n)
{
    tacit_budget b;
    tacit_error err;
    tacit_budget_open(&b, 8, DELTA_OF_ALL);
    for (size_t i = 0; i < n; i++) {
        tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(list[i].b),
                             tacit_sampling_rate(list[i].q_num), list[i].steps};
        OK(tacit_budget_add(&b, &event, WORLD_VALUES, i == 0, &err));
    }
    assert_true(budget_epsilon(&b) < expected(list, n, 0));
    return budget_epsilon(&b);
}

/* The order under which the most plain Gaussian noise, rho = a / (2 s^2), fits below the cap. */
static double fixed_order(double cap)
{
    double best = 0;
    long double most = -INFINITY;
    FILE *file = golden_open("rdp_orders.txt");
    char line[64];
    while (fgets(line, sizeof line, file)) {
        long double a = strtod(line, NULL);
        long double rate = (cap - log1pl(-1 / a) + logl(DELTA_OF_ALL * a) / (a - 1)) / a;
        if (rate > most) {
            most = rate;
            best = (double)a;
        }
    }
    fclose(file);
    return best;
}

/* --- two schedules in one log --- */

static const ran *rounds_now; /* [WORLD_ROUNDS] of the schedule being made */
static uint8_t lineage_now, round_now;
static double state_epsilon; /* what DEVICE's next reserve states */

static void set_round(Tacit__Mechanism *m, int round)
{
    m->b = rounds_now[round].b;
    m->q_num = rounds_now[round].q_num;
    m->steps = rounds_now[round].steps;
}

static void edit_schedule(Tacit__Schedule *s)
{
    memset(s->lineage.data, lineage_now, 16);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        set_round(s->rounds[r]->mechanism, r);
}

static void edit_plan(Tacit__Plan *p, int round)
{
    memset(p->lineage.data, lineage_now, 16);
    memset(p->round_id.data, round_now + round, 16);
    set_round(p->mechanism, round);
}

static bool state_it(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    if (device == DEVICE && e->body_case == TACIT__ENTRY__BODY_RESERVE && state_epsilon != 0)
        e->reserve->epsilon_after = state_epsilon;
    return true;
}

/* A log with the whole of a first schedule's round 0, each device at its own order. */
static void first_schedule(world *w, double cap, const ran rounds[WORLD_ROUNDS])
{
    rounds_now = rounds;
    lineage_now = 0x11;
    round_now = 0xa0;
    state_epsilon = 0;
    world_init(w);
    w->policy.epsilon_cap = cap;
    w->policy.minimum_noise_multiplier = 0.5;
    w->edit_schedule = edit_schedule;
    w->edit_plan = edit_plan;
    w->hook = state_it;
    w->last_round = 1;
    world_plan_all(w);
    world_log(w);
}

/* DEVICE reserves round 0 of a second one. */
static void second_schedule(world *w, const ran rounds[WORLD_ROUNDS], double stated)
{
    rounds_now = rounds;
    lineage_now = 0x22;
    round_now = 0x60;
    free(w->schedule);
    world_schedule(w);
    for (int r = 0; r < WORLD_ROUNDS; r++) {
        free(w->plan[r]);
        world_plan(w, r);
    }
    world_log_schedule(w);
    world_log_plan(w, 0);
    state_epsilon = stated;
    world_reserve(w, 0, DEVICE);
}

static void audit_world(world *w, tacit_audit *audit, exported *x)
{
    export_of(w, x);
    run(x, NULL, audit);
}

static void done(world *w, tacit_audit *audit, exported *x)
{
    tacit_audit_free(audit);
    export_done(x);
    world_free(w);
}

#define Q(x) ((uint64_t)(4294967296.0 * (x)))

static const ran plain[WORLD_ROUNDS] = {
    {100000, Q(0.05), 10}, {100000, Q(0.05), 10}, {100000, Q(0.05), 10}};
static const ran quiet[WORLD_ROUNDS] = {
    {150000, Q(0.03), 20}, {150000, Q(0.03), 20}, {150000, Q(0.03), 20}};
static const ran loud[WORLD_ROUNDS] = {
    {150000, Q(0.03), 20}, {90000, Q(0.05), 150}, {90000, Q(0.05), 150}};
/* Cheap at low orders, dear at the one that suits plain Gaussian noise; round 0 costs nearly none.
 */
static const ran dear[WORLD_ROUNDS] = {
    {1000000000, Q(0.01), 10}, {54014, Q(0.01), 10}, {54014, Q(0.01), 10}};

static void assert_same(double found, double wanted)
{
    if (!(fabs(found - wanted) <= 1e-9 * wanted))
        fail_msg("expected %.15g, found %.15g", wanted, found);
}

static void test_a_second_schedule_is_read_at_the_fixed_order(void **state)
{
    (void)state;
    static const double caps[] = {2.2, 3, 8};
    for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
        world w;
        exported x;
        tacit_audit audit;
        const ran one[] = {plain[0]}, both[] = {plain[0], quiet[0]};
        double order = fixed_order(caps[i]), wanted = expected(both, 2, order);
        first_schedule(&w, caps[i], plain);
        second_schedule(&w, quiet, wanted);
        audit_world(&w, &audit, &x);
        if (audit.violation_count)
            print_all("second schedule", &audit);
        assert_int_equal(audit.violation_count, 0);
        assert_same(find_device(&audit, &w, DEVICE).epsilon, wanted);
        assert_same(find_device(&audit, &w, 0).epsilon, alone(one, 1));
        done(&w, &audit, &x);
    }
}

/* What a schedule alone would cost is not what a second one costs. */
static void test_the_best_order_is_refused_for_a_second_schedule(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    const ran both[] = {plain[0], quiet[0]};
    double best = alone(both, 2);
    assert_true(best < 0.5 * expected(both, 2, fixed_order(8)));
    first_schedule(&w, 8, plain);
    second_schedule(&w, quiet, best);
    audit_world(&w, &audit, &x);
    assert_int_equal(audit.violation_count, 1);
    assert_string_equal(audit.violations[0].kind, "epsilon_mismatch");
    done(&w, &audit, &x);
}

/* DEVICE trains alone: the reserve, chained, that states `stated`. */
static void local_reserve(world *w, const ran *what, double stated)
{
    static char version[] = TACIT_ACCOUNTANT_VERSION;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    uint8_t lineage[16], plan[TACIT_HASH_BYTES], leaf[TACIT_HASH_BYTES];
    e.body_case = TACIT__ENTRY__BODY_RESERVE;
    e.reserve = &r;
    r.lineage = filled(lineage, sizeof lineage, 0x33);
    r.plan_hash = filled(plan, sizeof plan, 0x34);
    r.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN;
    r.unit = TACIT_UNIT_RECORD;
    r.neighbours = TACIT_ADD_REMOVE;
    r.b = what->b;
    r.q_num = what->q_num;
    r.steps = what->steps;
    r.clip_norm = 1;
    r.values = WORLD_VALUES;
    r.delta = DELTA_OF_ALL;
    r.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    r.accountant_version = version;
    r.epsilon_cap = w->policy.epsilon_cap;
    r.epsilon_after = stated;
    state_epsilon = 0;
    world_own(w, &e, -1, DEVICE, leaf);
}

/* Local training beside a server's schedule is a second schedule. */
static void test_local_training_is_a_second_schedule(void **state)
{
    (void)state;
    const ran both[] = {plain[0], quiet[1]};
    for (int fixed = 0; fixed < 2; fixed++) {
        world w;
        exported x;
        tacit_audit audit;
        double wanted = fixed ? expected(both, 2, fixed_order(8)) : alone(both, 2);
        first_schedule(&w, 8, plain);
        local_reserve(&w, &quiet[1], wanted);
        audit_world(&w, &audit, &x);
        assert_int_equal(audit.violation_count, fixed ? 0 : 1);
        if (fixed)
            assert_same(find_device(&audit, &w, DEVICE).epsilon, wanted);
        else
            assert_string_equal(audit.violations[0].kind, "epsilon_mismatch");
        done(&w, &audit, &x);
    }
}

/* Exactly one finding, of a schedule that does not fit, with the number in its text. */
static void assert_over_cap(const tacit_audit *audit, const char *text, double number)
{
    char found[64];
    if (audit->violation_count != 1)
        print_all("over the cap", audit);
    assert_int_equal(audit->violation_count, 1);
    assert_string_equal(audit->violations[0].kind, "schedule_over_cap");
    snprintf(found, sizeof found, "%s %.6g of", text, number);
    if (!strstr(audit->violations[0].detail, found))
        fail_msg("expected '%s' in '%s'", found, audit->violations[0].detail);
}

static void refused(double cap, const ran first[WORLD_ROUNDS], const ran second[WORLD_ROUNDS],
                    const char *text, double number)
{
    world w;
    exported x;
    tacit_audit audit;
    const ran reserved[] = {first[0], second[0]};
    double stated = expected(reserved, 2, fixed_order(cap));
    assert_true(stated <= cap); /* so far; what is refused is what it would come to */
    first_schedule(&w, cap, first);
    second_schedule(&w, second, stated);
    audit_world(&w, &audit, &x);
    assert_over_cap(&audit, text, number);
    done(&w, &audit, &x);
}

static void test_a_second_schedule_must_fit_as_a_whole(void **state)
{
    (void)state;
    const ran all[] = {plain[0], loud[0], loud[1], loud[2]};
    double whole = expected(all, 4, fixed_order(3));
    assert_true(whole > 3);
    refused(3, plain, loud, "brings epsilon to", whole);
}

/* The first fits at its own best order and not at the fixed one: that a second may follow would be
 * a choice between two bounds. */
static void test_the_first_schedule_must_fit_at_the_fixed_order(void **state)
{
    (void)state;
    double whole = expected(dear, 3, fixed_order(3.2));
    assert_true(alone(dear, 3) <= 3.2 && whole > 3.2);
    refused(3.2, dear, quiet, "brings epsilon to", whole);
}

/* Without sampling the fixed order is near the best one, so that both lineages fit it together
 * although each alone takes more than half of the cap. */
static void test_the_lineages_must_fit_together(void **state)
{
    (void)state;
    static const ran first[WORLD_ROUNDS] = {{1000000, Q(1), 1},
                                            {1000000, Q(1), 1},
                                            {1000000, Q(1), 1}},
                     second[WORLD_ROUNDS] = {
                         {900000, Q(1), 1}, {1000000, Q(1), 1}, {1100000, Q(1), 1}};
    const double cap = 0.85, order = fixed_order(cap);
    const ran all[] = {first[0], first[1], first[2], second[0], second[1], second[2]};
    double sum = alone(first, 3) + alone(second, 3);
    assert_true(sum > cap && expected(all, 6, order) <= cap && expected(first, 3, order) <= cap);
    refused(cap, first, second, "the lineages need", sum);
}

/* The whole of a first schedule is measured, run or not: one round less of it and it would fit. */
static void test_rounds_that_did_not_run_count_for_admission(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    const ran both[] = {dear[0], quiet[0]};
    ran shorter[WORLD_ROUNDS] = {dear[0], dear[0], dear[0]};
    first_schedule(&w, 3.2, shorter);
    second_schedule(&w, quiet, expected(both, 2, fixed_order(3.2)));
    audit_world(&w, &audit, &x);
    if (audit.violation_count)
        print_all("without the dear rounds", &audit);
    assert_int_equal(audit.violation_count, 0);
    done(&w, &audit, &x);
}

/* --- where a second lineage starts from --- */

static bool says_initial;
static uint8_t first_adapter[TACIT_HASH_BYTES];

static void start_schedule(Tacit__Schedule *s)
{
    edit_schedule(s);
    if (says_initial)
        s->initial_adapter = tacit_field_of(first_adapter, sizeof first_adapter);
}

static void start_plan(Tacit__Plan *p, int round)
{
    edit_plan(p, round);
    p->parent_version = 1;
    p->parent_digest = tacit_field_of(first_adapter, sizeof first_adapter);
}

static void start_manifest(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    (void)round;
    memset(m->lineage.data, lineage_now, 16);
    memset(m->round_id.data, round_now, 16);
    m->parent_version = 1;
}

/* The world numbers rounds and digests of one lineage; here they become the second one's. */
static bool move_to_second(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    (void)round;
    if (e->body_case == TACIT__ENTRY__BODY_SPEND)
        memset(e->spend->update_digest.data, 0x90 + device, TACIT_HASH_BYTES);
    if (e->body_case == TACIT__ENTRY__BODY_UPDATE)
        memset(e->update->round_id.data, round_now, 16);
    if (e->body_case == TACIT__ENTRY__BODY_AGGREGATE)
        memset(e->aggregate->round_id.data, round_now, 16);
    return true;
}

/* A second lineage publishes an adapter whose parent is version 1 of the first one. */
static void publish_second(world *w)
{
    w->edit_schedule = start_schedule;
    w->edit_plan = start_plan;
    w->edit_manifest = start_manifest;
    w->hook = move_to_second;
    memcpy(first_adapter, w->manifest_digest[0], sizeof first_adapter);
    second_schedule(w, quiet, 0);
    for (int d = 0; d < WORLD_DEVICES; d++)
        if (d != DEVICE)
            world_reserve(w, 0, d);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_spend(w, 0, d);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_decide(w, 0, d);
    world_aggregate(w, 0);
    memset(w->manifest_digest[0], 0xe0, TACIT_HASH_BYTES);
    world_publish(w, 0);
}

/* An adapter of another lineage is a parent only where the schedule says so: else a server could
 * begin again from what was published, with the epsilon of a lineage that knows nothing of it. */
static void test_a_lineage_starts_from_what_its_schedule_says(void **state)
{
    (void)state;
    for (int said = 0; said < 2; said++) {
        world w;
        exported x;
        tacit_audit audit;
        says_initial = said;
        first_schedule(&w, 8, plain);
        publish_second(&w);
        audit_world(&w, &audit, &x);
        if (audit.violation_count != (said ? 0u : 1u))
            print_all("second lineage", &audit);
        assert_int_equal(audit.violation_count, said ? 0 : 1);
        if (!said)
            assert_string_equal(audit.violations[0].kind, "manifest_chain");
        assert_int_equal(audit.note_count, said); /* its epsilon is of its own rounds alone */
        if (said)
            assert_string_equal(audit.notes[0].kind, "inherited_adapter");
        done(&w, &audit, &x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_schedule_is_read_at_the_fixed_order),
        cmocka_unit_test(test_the_best_order_is_refused_for_a_second_schedule),
        cmocka_unit_test(test_local_training_is_a_second_schedule),
        cmocka_unit_test(test_a_second_schedule_must_fit_as_a_whole),
        cmocka_unit_test(test_the_first_schedule_must_fit_at_the_fixed_order),
        cmocka_unit_test(test_the_lineages_must_fit_together),
        cmocka_unit_test(test_a_lineage_starts_from_what_its_schedule_says),
        cmocka_unit_test(test_rounds_that_did_not_run_count_for_admission),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
