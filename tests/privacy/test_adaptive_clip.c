#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "privacy/dp_step.h"
#include "privacy/noise.h"
#include "privacy/rdp.h"

#include <float.h>
#include <inttypes.h>

enum { VALUES = 64, UNITS = 20, STEPS = 30 };

static const uint8_t nonce[32] = {7};
static const uint8_t seed[32] = {1, 2, 3};

static tacit_mechanism adaptive(void)
{
    return (tacit_mechanism){
        .kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
        .unit = TACIT_UNIT_SUBJECT,
        .neighbours = TACIT_ADD_REMOVE,
        .clip_norm = 0.75,
        .b = 77163,
        .q_num = TACIT_Q_ONE / 2,
        .steps = STEPS,
        .divisor = 10,
        .unit_examples = 1,
        .quantile_b = 154326,
        .quantile_target = 0.5,
        .clip_rate = 0.2,
        .clip_min = 0.01,
        .clip_max = 100,
    };
}

static tacit_mechanism fixed(void)
{
    tacit_mechanism m = adaptive();
    m.quantile_b = 0;
    m.quantile_target = m.clip_rate = m.clip_min = m.clip_max = 0;
    return m;
}

static tacit_dp *dp_of(tacit_mechanism m, const uint8_t *with_seed)
{
    tacit_dp *dp;
    tacit_error err;
    if (tacit_dp_new(&dp, &m, VALUES, nonce, with_seed, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return dp;
}

/* --- A data set: the norm of every unit's gradient at a step; its direction is its own axis. ---
 */

typedef double norm_of(size_t unit, size_t step);

static double spread(size_t unit, size_t step)
{
    (void)step;
    return 0.05 * (double)(unit + 1); /* 0.05 to 1 */
}

static double zero(size_t unit, size_t step)
{
    (void)unit;
    (void)step;
    return 0;
}

static double enormous(size_t unit, size_t step)
{
    (void)unit;
    (void)step;
    return 1e30;
}

static double not_a_number(size_t unit, size_t step)
{
    (void)unit;
    (void)step;
    return NAN;
}

typedef struct trace {
    double clip[STEPS + 1]; /* before each step, and after the last */
    int64_t count[STEPS], sum[STEPS][VALUES];
    float mean[STEPS][VALUES];
    size_t n_drawn[STEPS], drawn[STEPS][UNITS];
} trace;

static void add_unit(tacit_dp *dp, size_t unit, double norm)
{
    float grad[VALUES] = {0};
    tacit_error err;
    grad[unit] = (float)norm;
    OK(tacit_dp_add(dp, grad, &err));
}

static void run_step(tacit_dp *dp, trace *t, size_t s, size_t units, norm_of *norm, norm_of *last)
{
    const size_t *drawn;
    tacit_error err;
    t->clip[s] = tacit_dp_clip_norm(dp);
    OK(tacit_dp_begin_step(dp, units, &drawn, &t->n_drawn[s], &err));
    for (size_t i = 0; i < t->n_drawn[s]; i++) {
        t->drawn[s][i] = drawn[i];
        add_unit(dp, drawn[i], (drawn[i] == units - 1 ? last : norm)(drawn[i], s));
    }
    t->count[s] = tacit_dp_noised_count(dp);
    memcpy(t->sum[s], tacit_dp_noised_sum(dp), sizeof t->sum[s]);
    OK(tacit_dp_end_step(dp, t->mean[s], &err));
    t->clip[s + 1] = tacit_dp_clip_norm(dp);
}

/* All steps, each with a seed of its own, so that a unit more shifts no later coin; the clip norm
 * is carried on as a restart would. `last` is the norm of the last unit. */
static trace *run_all(tacit_mechanism m, size_t units, norm_of *norm, norm_of *last)
{
    trace *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (size_t s = 0; s < STEPS; s++) {
        const uint8_t step_seed[32] = {(uint8_t)s, 99};
        tacit_dp *dp = dp_of(m, step_seed);
        run_step(dp, t, s, units, norm, last);
        m.clip_norm = tacit_dp_clip_norm(dp);
        tacit_dp_free(dp);
    }
    return t;
}

/* --- The step. --- */

/* The rule of dp_step.h once more, on what was released. */
static double next_clip(const tacit_mechanism *m, double clip, int64_t noised_count)
{
    double share = (double)noised_count / 131072 / m->divisor + 0.5;
    double next = clip * exp(-m->clip_rate * (share - m->quantile_target));
    return next < m->clip_min ? m->clip_min : next > m->clip_max ? m->clip_max : next;
}

/* The clip norm of step t follows from the noised counts of the steps before it and from nothing
 * else; the mean of step t is made at that clip norm, not at the one that its own count sets. */
static void test_the_clip_follows_from_earlier_noised_counts(void **state)
{
    (void)state;
    norm_of *const data[] = {spread, zero, enormous, not_a_number};
    for (size_t k = 0; k < 4; k++) {
        tacit_mechanism m = adaptive();
        trace *t = run_all(m, UNITS, data[k], data[k]);
        double clip = m.clip_norm;
        for (size_t s = 0; s < STEPS; s++) {
            assert_true(t->clip[s] == clip);
            for (size_t i = 0; i < VALUES; i++) {
                double mean = (double)t->sum[s][i] * clip / TACIT_GRID_NORM / m.divisor;
                assert_true(fabs((double)t->mean[s][i] - mean) <= 1e-6 * fabs(mean));
            }
            clip = next_clip(&m, clip, t->count[s]);
        }
        assert_true(t->clip[STEPS] == clip && t->clip[1] != t->clip[0]);
        free(t);
    }
}

/* Where only what happens within a step differs, as long as the same units are within the clip, no
 * later clip norm does. */
static double slightly_more(size_t unit, size_t step)
{
    return spread(unit, step) * (step % 2 ? 1 : 1 + 1e-7);
}

static void test_norms_matter_by_the_count_alone(void **state)
{
    (void)state;
    trace *a = run_all(adaptive(), UNITS, spread, spread);
    trace *b = run_all(adaptive(), UNITS, slightly_more, slightly_more);
    assert_memory_equal(a->count, b->count, sizeof a->count);
    assert_memory_equal(a->clip, b->clip, sizeof a->clip);
    free(a);
    free(b);
}

/* Same randomness, one unit more: as long as the clip norms agree, count and sum move by at most
 * 2^16 each and only where the unit is drawn. What comes after a different count is another clip
 * norm, which is why every step is looked at from one clip norm in both runs. */
static void neighbours_at(double clip, norm_of *last, size_t *moved)
{
    const uint8_t step_seed[32] = {(uint8_t)(clip * 50), 98};
    tacit_mechanism m = adaptive();
    trace *with = calloc(1, sizeof *with), *without = calloc(1, sizeof *without);
    m.clip_norm = clip;
    tacit_dp *a = dp_of(m, step_seed), *b = dp_of(m, step_seed);
    run_step(a, with, 0, UNITS, spread, last);
    run_step(b, without, 0, UNITS - 1, spread, spread);
    bool drawn = with->n_drawn[0] > without->n_drawn[0];
    assert_memory_equal(with->drawn[0], without->drawn[0], without->n_drawn[0] * sizeof(size_t));
    int64_t apart = with->count[0] - without->count[0], norm = 0;
    for (size_t i = 0; i < VALUES; i++) {
        int64_t d = with->sum[0][i] - without->sum[0][i];
        norm += d * d;
    }
    assert_int_equal(imaxabs(apart), drawn ? TACIT_GRID_NORM : 0);
    assert_true(norm <= (drawn ? (int64_t)TACIT_GRID_NORM * TACIT_GRID_NORM : 0));
    *moved += drawn;
    tacit_dp_free(a);
    tacit_dp_free(b);
    free(with);
    free(without);
}

static void test_sensitivity_of_sum_and_count(void **state)
{
    (void)state;
    norm_of *const worst[] = {spread, zero, enormous, not_a_number};
    size_t moved = 0, looks = 0;
    for (size_t w = 0; w < 4; w++)
        for (double clip = 0.02; clip < 2; clip *= 1.3, looks++)
            neighbours_at(clip, worst[w], &moved);
    assert_true(moved > looks / 4 && moved < looks);
}

/* At q = 1 the count is known but for its noise: within, beyond, exactly at the clip norm, and what
 * counts as a zero gradient. */
static void test_who_is_within(void **state)
{
    (void)state;
    const struct {
        double norm;
        bool none;
        int64_t side;
    } rows[] = {{0.5, false, 1}, {0.75, false, 1}, {0.7500001, false, -1}, {FLT_MAX, false, -1},
                {0, false, 1},   {NAN, false, 1},  {INFINITY, false, 1},   {0, true, 1}};
    tacit_mechanism m = adaptive();
    m.q_num = TACIT_Q_ONE;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        tacit_dp *dp = dp_of(m, seed);
        const size_t *drawn;
        size_t n;
        float mean[VALUES];
        tacit_error err;
        OK(tacit_dp_begin_step(dp, 3, &drawn, &n, &err));
        int64_t noise = tacit_dp_noised_count(dp);
        for (size_t i = 0; i < 3; i++)
            if (rows[k].none)
                OK(tacit_dp_add(dp, NULL, &err));
            else
                add_unit(dp, i, rows[k].norm);
        assert_int_equal(tacit_dp_noised_count(dp) - noise, 3 * rows[k].side * TACIT_GRID_NORM);
        OK(tacit_dp_end_step(dp, mean, &err));
        tacit_dp_free(dp);
    }
}

/* The count starts as noise of its own, drawn after the vector's, which is what it would be with a
 * fixed clip norm. */
static void test_the_count_has_its_own_noise(void **state)
{
    (void)state;
    tacit_dp *a = dp_of(adaptive(), seed), *b = dp_of(fixed(), seed);
    tacit_drbg *g;
    tacit_error err;
    const size_t *drawn;
    size_t n;
    int64_t vector[VALUES], count;
    OK(tacit_drbg_new(&g, "noise", nonce, seed, &err));
    tacit_noise_draw(g, adaptive().b, vector, VALUES);
    tacit_noise_draw(g, adaptive().quantile_b, &count, 1);
    OK(tacit_dp_begin_step(a, 0, &drawn, &n, &err));
    OK(tacit_dp_begin_step(b, 0, &drawn, &n, &err));
    assert_memory_equal(tacit_dp_noised_sum(a), vector, sizeof vector);
    assert_memory_equal(tacit_dp_noised_sum(b), vector, sizeof vector);
    assert_int_equal(tacit_dp_noised_count(a), count);
    assert_int_equal(tacit_dp_noised_count(b), 0);
    tacit_drbg_free(g);
    tacit_dp_free(a);
    tacit_dp_free(b);
}

/* Empty steps: 4,000 counts of pure noise have the variance of quantile_b's sigma. */
static void test_empty_steps_count_noise(void **state)
{
    (void)state;
    tacit_mechanism m = adaptive();
    m.steps = 4000;
    tacit_dp *dp = dp_of(m, seed);
    double sigma = (double)m.quantile_b * 0.84932180028801904, square = 0, sum = 0;
    for (uint32_t s = 0; s < m.steps; s++) {
        const size_t *drawn;
        size_t n;
        float mean[VALUES];
        tacit_error err;
        OK(tacit_dp_begin_step(dp, 0, &drawn, &n, &err));
        OK(tacit_dp_end_step(dp, mean, &err));
        double x = (double)tacit_dp_noised_count(dp) / sigma;
        sum += x;
        square += x * x;
    }
    assert_true(fabs(sum / sqrt(m.steps)) < 4);
    assert_true(fabs((square - m.steps) / sqrt(2.0 * m.steps)) < 4);
    tacit_dp_free(dp);
}

/* The clip norm is part of what a step is: with it fixed nothing of this file happens. */
static void test_a_fixed_clip_stays(void **state)
{
    (void)state;
    trace *t = run_all(fixed(), UNITS, enormous, enormous);
    for (size_t s = 0; s <= STEPS; s++)
        assert_true(t->clip[s] == 0.75);
    for (size_t s = 0; s < STEPS; s++)
        assert_int_equal(t->count[s], 0);
    free(t);
}

/* --- Where the clip norm goes. --- */

enum { MANY = 500 };

static double log_normal(size_t unit) /* quantiles (unit + 1/2) / MANY of e^(0.8 z - 1) */
{
    double p = ((double)unit + 0.5) / MANY, low = -9, high = 9;
    for (int i = 0; i < 60; i++) {
        double z = (low + high) / 2;
        if (erfc(-z / sqrt(2)) / 2 < p)
            low = z;
        else
            high = z;
    }
    return exp(0.8 * low - 1);
}

/* The mean of log C over the second half of 600 steps, from a start far off. */
static double log_clip_after(tacit_mechanism m)
{
    m.steps = 600;
    m.q_num = TACIT_Q_ONE / 5; /* 100 of the 500 a step */
    tacit_dp *dp = dp_of(m, seed);
    double sum = 0;
    for (uint32_t s = 0; s < m.steps; s++) {
        const size_t *drawn;
        size_t n;
        float mean[VALUES], grad[VALUES] = {0};
        tacit_error err;
        OK(tacit_dp_begin_step(dp, MANY, &drawn, &n, &err));
        for (size_t i = 0; i < n; i++) {
            grad[0] = (float)log_normal(drawn[i]);
            OK(tacit_dp_add(dp, grad, &err));
        }
        OK(tacit_dp_end_step(dp, mean, &err));
        sum += s >= 300 ? log(tacit_dp_clip_norm(dp)) / 300 : 0;
    }
    tacit_dp_free(dp);
    return sum;
}

static void test_the_clip_converges_to_the_quantile(void **state)
{
    (void)state;
    const struct {
        double start, target, divisor, quantile;
    } rows[] = {
        {20, 0.5, 100, 0.5},   {0.02, 0.5, 100, 0.5}, {20, 0.8, 100, 0.8},
        {0.02, 0.2, 100, 0.2}, {20, 0.5, 400, 0.5}, /* the median whatever the divisor */
        {20, 0.55, 400, 0.7},                       /* 1/2 + 0.05 400 / 100 */
    };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        tacit_mechanism m = adaptive();
        m.clip_norm = rows[k].start;
        m.divisor = rows[k].divisor;
        m.quantile_target = rows[k].target;
        m.clip_rate *= rows[k].divisor / 100;
        double wanted = log(log_normal((size_t)(rows[k].quantile * MANY)));
        double found = log_clip_after(m);
        print_message("quantile %.2f: clip %.4f, expected %.4f\n", rows[k].quantile, exp(found),
                      exp(wanted));
        assert_true(fabs(found - wanted) < 0.05);
    }
}

static void test_the_clip_keeps_within_its_bounds(void **state)
{
    (void)state;
    tacit_mechanism m = adaptive();
    m.clip_rate = 10;
    m.clip_min = 0.5;
    m.clip_max = 1;
    trace *up = run_all(m, UNITS, enormous, enormous), *down = run_all(m, UNITS, zero, zero);
    assert_true(up->clip[STEPS] == 1 && down->clip[STEPS] == 0.5);
    for (size_t s = 0; s <= STEPS; s++)
        assert_true(up->clip[s] >= 0.5 && up->clip[s] <= 1 && down->clip[s] >= 0.5 &&
                    down->clip[s] <= 1);
    free(up);
    free(down);
}

/* --- What it costs. --- */

/* E over x ~ N(0, s^2), y ~ N(0, c^2) of (1 - q + q L)^a, log of it over a - 1, where L is the
 * ratio of the densities shifted by 1 and 1 to these: the step as it is, one sample and two
 * Gaussians. */
static long double rho_of_both(long double a, long double s, long double c, long double q)
{
    enum { HALF = 300 };
    long double sum = 0, reach = 12;
    for (int i = -HALF; i <= 2 * HALF; i++)
        for (int k = -HALF; k <= 2 * HALF; k++) {
            long double x = reach * s * i / HALF, y = reach * c * k / HALF;
            long double loss = (2 * x - 1) / (2 * s * s) + (2 * y - 1) / (2 * c * c);
            sum += expl(a * log1pl(q * expm1l(loss)) - x * x / (2 * s * s) - y * y / (2 * c * c));
        }
    sum *= (reach / HALF) * (reach / HALF) / (2 * acosl(-1));
    return logl(sum) / (a - 1);
}

static void test_the_cost_is_that_of_both_gaussians(void **state)
{
    (void)state;
    const struct {
        uint64_t b, quantile_b, q_num;
    } rows[] = {{77163, 154326, TACIT_Q_ONE / 20},
                {100000, 100000, TACIT_Q_ONE / 100},
                {77163, 771630, TACIT_Q_ONE}};
    const double orders[] = {1.5, 2, 3, 4.5, 8};
    for (size_t k = 0; k < 3; k++) {
        tacit_mechanism m = adaptive();
        tacit_event event;
        tacit_rdp rdp = {0};
        tacit_error err;
        m.b = rows[k].b;
        m.quantile_b = rows[k].quantile_b;
        m.q_num = rows[k].q_num;
        m.steps = 1;
        OK(tacit_event_from_mechanism(&event, &m, 1, &err));
        OK(tacit_rdp_add(&rdp, &event, TACIT_RDP_TRUE, &err));
        long double unit = 65536 * sqrtl(2 * logl(2)), q = (long double)m.q_num * 0x1p-32L;
        size_t compared = 0;
        for (size_t i = 0; i < TACIT_RDP_ORDERS; i++)
            for (size_t o = 0; o < 5; o++)
                if (tacit_rdp_orders[i] == orders[o]) {
                    long double wanted = rho_of_both(orders[o], m.b / unit, m.quantile_b / unit, q);
                    long double found = ldexpl((long double)rdp.rho[i], -64);
                    assert_true(found >= wanted * (1 - 1e-9L) && found <= wanted * (1 + 1e-7L));
                    compared++;
                }
        assert_int_equal(compared, 5);
    }
}

/* In an account: the reserves of a whole log state what the two Gaussians cost, more than without
 * the count, and the auditor agrees. */
static double epsilon_after(double sigma, uint64_t steps)
{
    tacit_budget b;
    tacit_error err;
    tacit_event event = {TACIT_ADD_REMOVE, sigma, tacit_sampling_rate(TACIT_Q_ONE / 20), steps};
    tacit_budget_open(&b, 3, 1e-5);
    OK(tacit_budget_add(&b, &event, 1, true, &err));
    assert_true(is_cost_of(budget_epsilon(&b), event, 1e-5));
    return budget_epsilon(&b);
}

static double step_sigma(double b, double quantile_b)
{
    return b * quantile_b / hypot(b, quantile_b) / sqrt(2 * log(2)) / 65536;
}

static void adaptive_world(world *w)
{
    world_init(w);
    w->edit_schedule = world_adapt_schedule;
    w->edit_plan = world_adapt_plan;
    w->last_round = WORLD_ROUNDS;
}

static void test_the_auditor_finds_the_whole_cost(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    adaptive_world(&w);
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    if (audit.violation_count)
        print_all("an adaptive clip", &audit);
    assert_int_equal(audit.violation_count, 0);
    double found = find_device(&audit, &w, 1).epsilon;
    double wanted = epsilon_after(step_sigma(100000, 400000), 10 * WORLD_ROUNDS);
    assert_true(fabs(found / wanted - 1) < 1e-8);
    assert_true(found > epsilon_after(step_sigma(100000, 1e12), 10 * WORLD_ROUNDS) * 1.01);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

/* A reserve that leaves out the count, as if clipping were fixed, or states another noise of it. */
static bool without_count(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (e->body_case == TACIT__ENTRY__BODY_RESERVE && round == 2 && device == 1)
        e->reserve->quantile_b = 0;
    return true;
}

static bool other_count(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (e->body_case == TACIT__ENTRY__BODY_RESERVE && round == 2 && device == 1)
        e->reserve->quantile_b += 1000;
    return true;
}

static void test_a_count_that_is_left_out_is_found(void **state)
{
    (void)state;
    world_hook *const hooks[] = {without_count, other_count};
    for (size_t k = 0; k < 2; k++) {
        world w;
        exported x;
        tacit_audit audit;
        adaptive_world(&w);
        w.hook = hooks[k];
        world_plan_all(&w);
        world_log(&w);
        export_of(&w, &x);
        run(&x, NULL, &audit);
        bool mismatch = false;
        for (size_t i = 0; i < audit.violation_count; i++)
            mismatch |= strstr(audit.violations[i].detail, "quantile_b") != NULL;
        assert_true(mismatch && has(&audit, "epsilon_mismatch"));
        tacit_audit_free(&audit);
        export_done(&x);
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_clip_follows_from_earlier_noised_counts),
        cmocka_unit_test(test_norms_matter_by_the_count_alone),
        cmocka_unit_test(test_sensitivity_of_sum_and_count),
        cmocka_unit_test(test_who_is_within),
        cmocka_unit_test(test_the_count_has_its_own_noise),
        cmocka_unit_test(test_empty_steps_count_noise),
        cmocka_unit_test(test_a_fixed_clip_stays),
        cmocka_unit_test(test_the_clip_converges_to_the_quantile),
        cmocka_unit_test(test_the_clip_keeps_within_its_bounds),
        cmocka_unit_test(test_the_cost_is_that_of_both_gaussians),
        cmocka_unit_test(test_the_auditor_finds_the_whole_cost),
        cmocka_unit_test(test_a_count_that_is_left_out_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
