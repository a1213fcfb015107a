/* Both views of a published adapter. Oracles: the Renyi divergence of a Gaussian and its conversion
 * written out in long double, the exact Gaussian, and an attack on two noised local steps that an
 * epsilon by the rule for sums would forbid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "privacy/budget.h"
#include "privacy/dp_step.h"
#include "privacy/gaussian.h"
#include "privacy/noise.h"
#include "privacy/published.h"
#include "privacy/release.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 4, VALUES = 1000 };
#define DELTA 1e-5

/* A schedule of equal rounds; the caller changes the mechanism. */
typedef struct planned {
    Tacit__Mechanism mechanism;
    Tacit__ScheduledRound round, *rounds[ROUNDS];
    Tacit__Schedule schedule;
    tacit_mechanism m;
} planned;

static void plan(planned *p, Tacit__Unit unit, uint32_t steps, double z)
{
    tacit_error err;
    *p = (planned){.mechanism = TACIT__MECHANISM__INIT,
                   .round = TACIT__SCHEDULED_ROUND__INIT,
                   .schedule = TACIT__SCHEDULE__INIT};
    p->mechanism.kind = TACIT__MECHANISM_KIND__MECHANISM_SUBSAMPLED_GAUSSIAN;
    p->mechanism.unit = unit;
    p->mechanism.neighbours = TACIT__NEIGHBOURS__NEIGHBOURS_ADD_REMOVE;
    p->mechanism.clip_norm = 0.5;
    p->mechanism.q_num = TACIT_Q_ONE;
    p->mechanism.steps = steps;
    p->mechanism.divisor = 1;
    p->mechanism.unit_examples = 4;
    assert_int_equal(tacit_b_for_noise_multiplier(&p->mechanism.b, z, &err), TACIT_OK);
    assert_int_equal(tacit_mechanism_from_message(&p->m, &p->mechanism, &err), TACIT_OK);
    p->round.mechanism = &p->mechanism;
    for (int i = 0; i < ROUNDS; i++)
        p->rounds[i] = &p->round;
    p->schedule.rounds = p->rounds;
    p->schedule.n_rounds = ROUNDS;
    p->schedule.delta = DELTA;
}

static void fill(tacit_summed_round summed[ROUNDS], const planned *p, uint64_t accepted)
{
    for (uint32_t i = 0; i < ROUNDS; i++)
        summed[i] = (tacit_summed_round){i, accepted, 0, tacit_release_norm_bound(&p->m, VALUES)};
}

static tacit_published views(const planned *p, const tacit_summed_round *summed, size_t n)
{
    tacit_published out;
    tacit_error err;
    if (tacit_published_epsilon(&out, &p->schedule, ROUNDS, VALUES, summed, n, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return out;
}

/* Exactly, of Gaussians whose mu^2 add up to 2 rho. */
static double expected_epsilon(double rho)
{
    return tacit_gaussian_epsilon(DELTA, sqrt(2 * rho));
}

/* Up to what the sampler takes of delta. */
static void expect_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-5 * expected))
        fail_msg("expected %.10g, found %.10g", expected, found);
}

/* --- the device unit --- */

/* n updates, one of them the recipient's: noise of sigma sqrt(n - 1) hides a device. */
static void sums_hide_by_the_noise_of_all(void **state)
{
    planned p;
    tacit_summed_round summed[ROUNDS];
    (void)state;
    plan(&p, TACIT__UNIT__UNIT_DEVICE, 1, 4);
    const double z = (double)p.m.b / sqrt(2 * log(2)) / 65536;
    for (uint64_t n = 3; n < 3000; n = 3 * n + 1) {
        fill(summed, &p, n);
        tacit_published v = views(&p, summed, ROUNDS);
        assert_string_equal(v.rule, "summed-noise");
        expect_near(v.epsilon_server, expected_epsilon(ROUNDS / (2 * z * z)));
        expect_near(v.epsilon_published, expected_epsilon(ROUNDS / (2 * z * z * (double)(n - 1))));
        /* Never less than what holds exactly. */
        double exact = tacit_gaussian_epsilon(DELTA, sqrt(ROUNDS / (double)(n - 1)) / z);
        assert_true(v.epsilon_published >= exact);
    }
}

static void each_round_counts_with_its_own_sum(void **state)
{
    planned p;
    tacit_summed_round summed[ROUNDS];
    (void)state;
    plan(&p, TACIT__UNIT__UNIT_DEVICE, 1, 3);
    const double z = (double)p.m.b / sqrt(2 * log(2)) / 65536;
    fill(summed, &p, 11);
    summed[1].accepted = 5;
    summed[2].assumed_colluders = 6;
    summed[3].assumed_colluders = 10; /* nobody is left: the device's own noise alone */
    tacit_published v = views(&p, summed, ROUNDS);
    expect_near(v.epsilon_published,
                expected_epsilon((1 / 10.0 + 1 / 4.0 + 1 / 4.0 + 1) / (2 * z * z)));
    /* Rounds without a sum show recipients nothing; the server saw what it saw. */
    v = views(&p, summed, 2);
    expect_near(v.epsilon_published, expected_epsilon((1 / 10.0 + 1 / 4.0) / (2 * z * z)));
    expect_near(v.epsilon_server, expected_epsilon(ROUNDS / (2 * z * z)));
    /* Rounds after the adapter's own are not in it. */
    tacit_published first;
    tacit_error err;
    assert_int_equal(tacit_published_epsilon(&first, &p.schedule, 1, VALUES, summed, ROUNDS, &err),
                     TACIT_OK);
    expect_near(first.epsilon_published, expected_epsilon(1 / 10.0 / (2 * z * z)));
}

static void expect_post_processing(const planned *p, const tacit_summed_round *summed)
{
    tacit_published v = views(p, summed, ROUNDS);
    assert_string_equal(v.rule, "post-processing");
    assert_true(v.epsilon_published == v.epsilon_server && v.epsilon_server > 0);
}

static void the_rule_needs_others_and_an_untouched_release(void **state)
{
    planned p;
    tacit_summed_round summed[ROUNDS];
    (void)state;
    plan(&p, TACIT__UNIT__UNIT_DEVICE, 1, 4);
    for (uint64_t n = 1; n <= 2; n++) { /* the recipient knows its own noise */
        fill(summed, &p, n);
        expect_post_processing(&p, summed);
    }
    fill(summed, &p, 1000);
    for (int i = 0; i < ROUNDS; i++)
        summed[i].assumed_colluders = 998;
    expect_post_processing(&p, summed);
    fill(summed, &p, 1000);
    for (int i = 0; i < ROUNDS; i++) /* the device scales its release down to it */
        summed[i].norm_bound *= 1 - 1e-9;
    expect_post_processing(&p, summed);
    tacit_published v;
    tacit_error err;
    summed[0].index = ROUNDS;
    assert_int_equal(tacit_published_epsilon(&v, &p.schedule, ROUNDS + 1, VALUES, summed, 1, &err),
                     TACIT_USAGE);
}

static void mechanism_none_has_no_view(void **state)
{
    planned p;
    tacit_summed_round summed[ROUNDS];
    (void)state;
    plan(&p, TACIT__UNIT__UNIT_DEVICE, 1, 4);
    fill(summed, &p, 1000);
    p.mechanism.kind = TACIT__MECHANISM_KIND__MECHANISM_NONE;
    p.mechanism.b = 0;
    p.mechanism.clip_norm = 0;
    tacit_published v = views(&p, summed, ROUNDS);
    assert_true(isinf(v.epsilon_server) && isinf(v.epsilon_published));
    assert_string_equal(v.rule, "none");
}

/* --- the counter-example: two noised local steps of the record unit --- */

/* The device under attack holds 1,000 records whose gradient says whether the first step's noised
 * sum was above one half, and perhaps one more record, which adds 1 to that sum. In the total of
 * 10,001 devices the noise of both steps is about 141; the answer of the 1,000 stands out of it. So
 * who sees only the total learns what the device's own noise of the first step leaves, and the
 * noise of the others hides nothing of it. */
enum { AMPLIFIERS = 1000, OTHERS = 10000, TRIALS = 400 };

static const uint8_t nonce[32] = {5};

static void take_step(tacit_dp *dp, bool with_record, float amplified, float *mean)
{
    const size_t *drawn;
    size_t n;
    tacit_error err;
    assert_int_equal(tacit_dp_begin_step(dp, AMPLIFIERS + with_record, &drawn, &n, &err), TACIT_OK);
    for (size_t i = 0; i < n; i++) {
        float grad = drawn[i] < AMPLIFIERS ? amplified : 1;
        assert_int_equal(tacit_dp_add(dp, &grad, &err), TACIT_OK);
    }
    assert_int_equal(tacit_dp_end_step(dp, mean, &err), TACIT_OK);
}

/* What one device sends: the sum of both noised steps, by plain SGD with rate 1. */
static double attacked_update(const tacit_mechanism *m, bool with_record)
{
    tacit_dp *dp;
    tacit_error err;
    float first, second;
    assert_int_equal(tacit_dp_new(&dp, m, 1, nonce, NULL, &err), TACIT_OK);
    take_step(dp, with_record, 0, &first);
    take_step(dp, false, first > 0.5f ? 1 : -1, &second);
    tacit_dp_free(dp);
    return (double)first + (double)second;
}

static double noise_of_others(tacit_drbg *g, const tacit_mechanism *m)
{
    static int64_t noise[2 * OTHERS];
    double sum = 0;
    tacit_noise_draw(g, m->b, noise, 2 * OTHERS);
    for (size_t i = 0; i < 2 * OTHERS; i++)
        sum += (double)noise[i];
    return sum / TACIT_GRID_NORM;
}

/* How often the total says that the first step was above one half. */
static double rate_of(tacit_drbg *g, const tacit_mechanism *m, bool with_record)
{
    int above = 0;
    for (int t = 0; t < TRIALS; t++)
        above += attacked_update(m, with_record) + noise_of_others(g, m) > 0;
    return above / (double)TRIALS;
}

static void the_rule_would_be_wrong_for_two_local_steps(void **state)
{
    planned steps, sums;
    tacit_summed_round summed[ROUNDS], two[2];
    tacit_drbg *g;
    tacit_error err;
    (void)state;
    plan(&steps, TACIT__UNIT__UNIT_RECORD, 2, 1);
    steps.m.clip_norm = steps.mechanism.clip_norm = 1;
    assert_int_equal(tacit_drbg_new(&g, "others", nonce, NULL, &err), TACIT_OK);
    double with = rate_of(g, &steps.m, true), without = rate_of(g, &steps.m, false);
    tacit_drbg_free(g);
    /* Phi(1/2) and Phi(-1/2), each within 4 standard errors of 0.0231. */
    assert_true(fabs(with - 0.6915) < 0.0925 && fabs(without - 0.3085) < 0.0925);
    double least =
        log((with - 0.0925 - DELTA) / (without + 0.0925)); /* of any epsilon that holds */
    /* Two vectors of the same noise each, summed over as many devices: the figure that a sum of
     * independent releases would have. */
    plan(&sums, TACIT__UNIT__UNIT_DEVICE, 1, 1);
    for (uint32_t i = 0; i < 2; i++)
        two[i] = (tacit_summed_round){i, OTHERS + 1, 0, tacit_release_norm_bound(&sums.m, 1)};
    tacit_published figure;
    assert_int_equal(tacit_published_epsilon(&figure, &sums.schedule, 2, 1, two, 2, &err),
                     TACIT_OK);
    assert_string_equal(figure.rule, "summed-noise");
    if (!(figure.epsilon_published < least))
        fail_msg("the figure %g of sums is not below %g: no counter-example",
                 figure.epsilon_published, least);
    /* So the rule is not used, however many devices there are and whatever the norm bound. */
    fill(summed, &steps, OTHERS + 1);
    for (int i = 0; i < ROUNDS; i++)
        summed[i].norm_bound = 1e9;
    for (Tacit__Unit u = TACIT__UNIT__UNIT_RECORD; u <= TACIT__UNIT__UNIT_SUBJECT; u++) {
        steps.mechanism.unit = u;
        expect_post_processing(&steps, summed);
        assert_true(views(&steps, summed, 1).epsilon_published > least);
    }
}

/* At a delta so small that it shows: what is left of it covers 2^-64 for each of h touched
 * releases, (1 + e^epsilon) times as all that moves a distribution. */
static void a_touched_release_is_charged(void **state)
{
    planned p;
    tacit_summed_round summed[ROUNDS];
    const double h = 500, delta = 4e-16;
    (void)state;
    plan(&p, TACIT__UNIT__UNIT_DEVICE, 1, 100);
    p.schedule.delta = delta;
    const double z = (double)p.m.b / sqrt(2 * log(2)) / 65536, rho = ROUNDS / (2 * z * z * h);
    fill(summed, &p, (uint64_t)h + 1);
    double found = views(&p, summed, ROUNDS).epsilon_published;
    double touched = (1 + exp(found)) * ROUNDS * h * (0x1p-64 + VALUES * TACIT_NOISE_TV);
    assert_true(touched > 0.4 * delta && touched < 0.8 * delta);
    double least = tacit_gaussian_epsilon(delta - touched, sqrt(2 * rho));
    assert_true(found >= least * (1 - 1e-9) && found < least * (1 + 1e-8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_hide_by_the_noise_of_all),
        cmocka_unit_test(each_round_counts_with_its_own_sum),
        cmocka_unit_test(the_rule_needs_others_and_an_untouched_release),
        cmocka_unit_test(mechanism_none_has_no_view),
        cmocka_unit_test(the_rule_would_be_wrong_for_two_local_steps),
        cmocka_unit_test(a_touched_release_is_charged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
