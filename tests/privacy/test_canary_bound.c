/* Oracles: the paper's formula in exact arithmetic (golden/make_canary_bounds.py), values that the
 * paper's own code gives, closed forms, and randomized response, whose epsilon is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../golden/canary_bounds.h"
#include "privacy/canary_bound.h"

#include <math.h>
#include <stdlib.h>

#define OK(call) assert_int_equal((call), TACIT_OK)

static void test_p_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_p / sizeof golden_p[0]; i++) {
        double found = tacit_canary_p_value(golden_p[i].m, golden_p[i].r, golden_p[i].v,
                                            golden_p[i].delta, golden_p[i].epsilon);
        if (!(fabs(found - golden_p[i].p) <= 1e-9 * golden_p[i].p))
            fail_msg("row %zu: expected %.17g, found %.17g", i, golden_p[i].p, found);
    }
}

static void test_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_bounds / sizeof golden_bounds[0]; i++) {
        double found =
            tacit_canary_bound(golden_bounds[i].m, golden_bounds[i].r, golden_bounds[i].v,
                               golden_bounds[i].delta, golden_bounds[i].error);
        if (!(fabs(found - golden_bounds[i].epsilon) <= 1e-9))
            fail_msg("row %zu: expected %.12f, found %.12f", i, golden_bounds[i].epsilon, found);
    }
}

/* 95 %, delta 1e-5, as the code that came with the paper prints them. */
static void test_published_bounds(void **state)
{
    static const struct {
        size_t m, r, v;
        double epsilon;
    } rows[] = {{1000, 1000, 560, 0.134}, {1000, 1000, 600, 0.297},  {1000, 200, 180, 1.796},
                {1000, 100, 100, 3.465},  {1000, 1000, 1000, 5.782}, {200, 60, 60, 2.967}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(fabs(tacit_canary_bound(rows[i].m, rows[i].r, rows[i].v, 1e-5, 0.05) -
                         rows[i].epsilon) < 0.0011);
}

/* Without delta all right: a^r = error. As many as a file may have. */
static void test_all_right(void **state)
{
    (void)state;
    for (size_t r = 1; r <= TACIT_CANARIES_MAX; r = 10 * r) {
        double a = pow(0.01, 1 / (double)r);
        double expected = a > 0.5 ? -log(expm1(-log(a))) : 0;
        double found = tacit_canary_bound(r, r, r, 0, 0.01);
        if (!(fabs(found - expected) <= 1e-9))
            fail_msg("%zu: expected %.12g, found %.12g", r, expected, found);
    }
}

/* The refuted epsilons are an interval, for large m delta too, where single terms rise and fall. */
static void test_p_grows_until_it_counts_no_more(void **state)
{
    static const double deltas[] = {0, 1e-5, 1e-3, 0.02, 0.3};
    (void)state;
    for (size_t d = 0; d < 5; d++)
        for (size_t r = 1; r <= 200; r = 3 * r + 1)
            for (size_t v = 0; v <= r; v += 1 + r / 9) {
                double before = 0;
                for (double epsilon = 0; epsilon < 12; epsilon += 0.01) {
                    double p = tacit_canary_p_value(200, r, v, deltas[d], epsilon);
                    if (!(p >= before * (1 - 1e-12)))
                        fail_msg("r %zu v %zu delta %g epsilon %g: p falls from %.17g to %.17g", r,
                                 v, deltas[d], epsilon, before, p);
                    before = p;
                }
            }
}

/* --- from scores to guesses --- */

static uint64_t random_state;

/* SplitMix64, for data of tests alone. */
static double uniform(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static tacit_canary_scores make_scores(size_t count, double delta)
{
    tacit_canary_scores s;
    tacit_error err;
    OK(tacit_canary_scores_new(&s, count, &err));
    s.delta = delta;
    return s;
}

/* Counted by hand. Of 20: 5 and 5, 2 and 2, 5, 2. */
static void test_guesses_are_counted(void **state)
{
    static const char in[] = "11011000000000100100"; /* from the highest score to the lowest */
    tacit_canary_scores s = make_scores(20, 1e-5);
    tacit_canary_finding f;
    tacit_error err;
    (void)state;
    for (size_t rank = 0; rank < 20; rank++) {
        size_t canary = rank * 7 % 20; /* a permutation */
        s.score[canary] = 3 - (double)rank / 4;
        s.included[canary] = in[rank] == '1';
    }
    OK(tacit_canary_test(&f, &s, 0.95, &err));
    static const size_t expected[][3] = {{5, 5, 8}, {2, 2, 4}, {5, 0, 4}, {2, 0, 2}};
    for (size_t i = 0; i < TACIT_CANARY_RULES; i++) {
        assert_int_equal(f.rule[i].top, expected[i][0]);
        assert_int_equal(f.rule[i].bottom, expected[i][1]);
        assert_int_equal(f.rule[i].right, expected[i][2]);
        assert_true(f.rule[i].epsilon == tacit_canary_bound(20, expected[i][0] + expected[i][1],
                                                            expected[i][2], 1e-5, 0.05 / 4));
    }
    tacit_canary_scores_free(&s);
}

static void test_the_largest_bound_counts(void **state)
{
    tacit_canary_scores s = make_scores(1000, 1e-5);
    tacit_canary_finding f;
    tacit_error err;
    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        s.included[i] = i % 2 == 0;
        s.score[i] = i % 2 == 0 ? 1 + (double)i : -(double)i;
    }
    OK(tacit_canary_test(&f, &s, 0.95, &err));
    assert_int_equal(f.rule[0].right, 500);
    /* 1000 canaries, all of 500 guesses right, a quarter of 5 %; the paper's formula. */
    assert_true(fabs(f.epsilon - f.rule[0].epsilon) < 1e-12);
    assert_true(f.epsilon > 4.5 && f.epsilon < 5);
    tacit_canary_scores_free(&s);
}

/* One score for all: what is guessed must not depend on the coins. */
static void test_ties_tell_nothing(void **state)
{
    tacit_canary_scores s = make_scores(1000, 1e-5);
    tacit_canary_finding f;
    tacit_error err;
    (void)state;
    random_state = 1;
    for (size_t i = 0; i < 1000; i++)
        s.included[i] = uniform() < 0.5;
    OK(tacit_canary_test(&f, &s, 0.95, &err));
    assert_true(f.epsilon == 0);
    tacit_canary_scores_free(&s);
}

/* Randomized response of each coin is exactly epsilon-private. The bound may lie above in 5 % of
 * all runs at most, and comes near it from below: it is no constant. */
static void test_coverage(void **state)
{
    static const double epsilons[] = {0.1, 1, 3};
    enum { RUNS = 300, M = 200 };
    tacit_canary_finding f;
    tacit_error err;
    (void)state;
    random_state = 7;
    for (size_t e = 0; e < 3; e++) {
        double truth = 1 / (1 + exp(-epsilons[e])), sum = 0;
        int above = 0;
        for (int run = 0; run < RUNS; run++) {
            tacit_canary_scores s = make_scores(M, 0);
            for (size_t i = 0; i < M; i++) {
                s.included[i] = uniform() < 0.5;
                s.score[i] = (uniform() < truth) == s.included[i] ? 1 : -1;
                s.score[i] += uniform() / 2; /* no ties */
            }
            OK(tacit_canary_test(&f, &s, 0.95, &err));
            above += f.epsilon > epsilons[e];
            sum += f.epsilon;
            tacit_canary_scores_free(&s);
        }
        /* 5 % of 300 and three deviations */
        if (above > 26 || sum / RUNS < epsilons[e] / 2 - 0.1)
            fail_msg("epsilon %g: %d of %d above, mean %g", epsilons[e], above, RUNS, sum / RUNS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_p_values),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_published_bounds),
        cmocka_unit_test(test_all_right),
        cmocka_unit_test(test_p_grows_until_it_counts_no_more),
        cmocka_unit_test(test_guesses_are_counted),
        cmocka_unit_test(test_the_largest_bound_counts),
        cmocka_unit_test(test_ties_tell_nothing),
        cmocka_unit_test(test_coverage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
