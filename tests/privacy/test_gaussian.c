#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../golden/gaussian_exact.h"
#include "golden_rows.h"
#include "privacy/gaussian.h"
#include "privacy/rdp.h"

static void assert_close(const char *what, double found, double expected, double relative)
{
    if (!(fabs(found - expected) <= relative * fabs(expected)))
        fail_msg("%s: expected %.17g, found %.17g", what, expected, found);
}

/* Values of log Phi from mpmath at 30 digits. */
static void test_log_normal_cdf(void **state)
{
    (void)state;
    const double values[][2] = {
        {5, -2.8665161296376359338e-7},  {1, -0.17275377902344988953},
        {0, -0.69314718055994530942},    {-0.5, -1.1759117615936186089},
        {-1, -1.8410216450092635058},    {-3, -6.6077262215103495433},
        {-8, -35.013437159914549896},    {-20, -203.91715537109726394},
        {-36.5, -670.64200000031370137}, {-37.5, -707.66898931750719107},
        {-50, -1254.8313611394199013},   {-1000, -500007.82669481218431},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_close("log Phi", tacit_log_normal_cdf(values[i][0]), values[i][1], 4e-15);
}

static void test_golden_epsilons_and_calibrations(void **state)
{
    (void)state;
    FILE *file = golden_open("dp_accounting.csv");
    assert_non_null(file);
    golden_row row;
    int rows = 0, calibrations = 0;
    tacit_error err;
    assert_true(golden_next(file, &row));
    while (golden_next(file, &row)) {
        double expected = golden_number(&row, EPS_ANALYTIC), epsilon, sigma;
        double sigma_golden = golden_number(&row, SIGMA_ANALYTIC);
        tacit_event events[GOLDEN_EVENTS];
        bool calibration = strcmp(row.cell[KIND], "calibration") == 0;
        size_t n = golden_events(&row, events, calibration ? sigma_golden : NAN);
        double delta = golden_number(&row, DELTA);
        if (!isnan(expected)) {
            assert_int_equal(tacit_gaussian_compose(&epsilon, events, n, delta, &err), TACIT_OK);
            assert_close(row.cell[CASE_ID], epsilon, expected, 1e-10);
            rows++;
        }
        if (!isnan(sigma_golden)) {
            double target = golden_number(&row, TARGET_EPS);
            assert_int_equal(tacit_gaussian_calibrate(&sigma, target, delta, events[0].count, &err),
                             TACIT_OK);
            assert_true(fabs(sigma - sigma_golden) <= 1.1e-6);
            calibrations++;
        }
    }
    fclose(file);
    print_message("rows: epsilon %d, calibration %d\n", rows, calibrations);
    assert_true(rows >= 100);
    assert_true(calibrations >= 5);
}

static void test_published_values(void **state)
{
    (void)state;
    tacit_error err;
    double sigma;
    assert_int_equal(tacit_gaussian_calibrate(&sigma, 1, 1e-5, 1, &err), TACIT_OK);
    assert_close("sigma(1, 1e-5)", sigma, 3.7306316348, 1e-9);
    /* sigma sqrt 3, three times: mu = 1. */
    assert_close("delta", exp(tacit_gaussian_log_delta(1, 1)), 0.1269367, 1e-6);
    assert_int_equal(tacit_gaussian_calibrate(&sigma, 1, 0.78760074, 1, &err), TACIT_OK);
    assert_close("sigma", sigma, 1.0 / 3, 1e-7);
}

/* The central limit of Bu, Dong, Long and Su 2020: an estimate, no bound, of many subsampled steps.
 * Only its numbers are used here: they are published for Gaussians of that mu. */
static double limit_mu(double sigma, double q, double steps)
{
    return q * sqrt(steps * expm1(1 / (sigma * sigma)));
}

static void test_published_limits(void **state)
{
    (void)state;
    double epsilon = tacit_gaussian_epsilon(1e-5, limit_mu(1.5, 0.04, 2249)); /* Opacus */
    assert_true(epsilon > 6.59 && epsilon < 6.60);
    const double q = 256.0 / 60000;
    double mu = limit_mu(1.06, q, 20 / q); /* Bu et al., figure 4 */
    assert_close("mu", mu, 0.34997, 1e-4);
    assert_close("epsilon", tacit_gaussian_epsilon(1e-5, mu), 1.3413, 3e-4);
    mu = limit_mu(0.638, q, 70 / q);
    assert_close("mu", mu, 1.7849, 1e-4);
    assert_close("epsilon", tacit_gaussian_epsilon(1e-5, mu), 8.697, 3e-4);
    /* Opacus' sigma for epsilon 8 by this limit: 1.3227. */
    assert_true(tacit_gaussian_epsilon(1e-5, limit_mu(1.3228, 0.04, 2250)) < 8);
    assert_true(tacit_gaussian_epsilon(1e-5, limit_mu(1.3226, 0.04, 2250)) > 8);
}

/* A test of level 0.1 against sigma sqrt 3, three times, has power at most 0.38914: for every
 * epsilon, power <= e^epsilon level + delta(epsilon), and the least of these is attained. */
static void test_published_power(void **state)
{
    (void)state;
    double power = 1;
    for (double epsilon = 0; epsilon < 5; epsilon += 1e-3)
        power = fmin(power, exp(epsilon) * 0.1 + exp(tacit_gaussian_log_delta(epsilon, 1)));
    assert_close("power", power, 0.38914, 2e-5);
}

/* The definition by quadrature: delta = integral of max(0, p - e^eps q) for N(mu, 1) and N(0, 1).
 */
static void test_delta_against_the_definition(void **state)
{
    (void)state;
    for (double mu = 0.1; mu < 4; mu *= 1.7)
        for (double epsilon = 0; epsilon < 5; epsilon += 0.8) {
            double sum = 0, step = 1e-4;
            for (double x = -9; x < mu + 9; x += step) {
                double p = exp(-(x - mu) * (x - mu) / 2), q = exp(epsilon - x * x / 2);
                sum += fmax(0, p - q);
            }
            double expected = sum * step / 2.50662827463100050242;
            if (expected > 1e-9)
                assert_close("delta", exp(tacit_gaussian_log_delta(epsilon, mu)), expected, 1e-6);
        }
}

static void test_small_deltas_keep_their_digits(void **state)
{
    (void)state;
    for (double mu = 0.05; mu < 20; mu *= 2)
        for (double delta = 0.1; delta > 1e-300; delta *= 1e-13) {
            double epsilon = tacit_gaussian_epsilon(delta, mu);
            if (epsilon > 0)
                assert_close("log delta", tacit_gaussian_log_delta(epsilon, mu), log(delta), 1e-9);
        }
}

static void test_only_unsampled_events(void **state)
{
    (void)state;
    tacit_error err;
    double epsilon, exact;
    tacit_event e = {TACIT_ADD_REMOVE, 2, 0.5, 1};
    assert_int_equal(tacit_gaussian_compose(&epsilon, &e, 1, 1e-5, &err), TACIT_REFUSED);
    e.q = 1;
    assert_int_equal(tacit_gaussian_compose(&epsilon, &e, 1, 0, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_gaussian_compose(&exact, &e, 1, 1e-5, &err), TACIT_OK);
    tacit_rdp account = {0};
    assert_int_equal(tacit_rdp_add(&account, &e, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_true(tacit_rdp_epsilon(&account, 1e-5, NULL) > exact);
    e.neighbours = TACIT_REPLACE_ONE;
    assert_int_equal(tacit_gaussian_compose(&epsilon, &e, 1, 1e-5, &err), TACIT_OK);
    assert_close("replace-one", epsilon, tacit_gaussian_epsilon(1e-5, 1), 1e-15);
    assert_true(tacit_gaussian_epsilon(0.5, 0) == 0);
}

/* Against 80 digits: never below, and no further above than 1e-9 of the larger of it and of one
 * thousandth of mu (where delta nearly covers the mechanism, epsilon is a small difference). */
static void test_never_below_the_exact_value(void **state)
{
    (void)state;
    size_t n = sizeof golden_gaussian_exact / sizeof golden_gaussian_exact[0], positive = 0;
    for (size_t i = 0; i < n; i++) {
        tacit_error err;
        double sigma = golden_gaussian_exact[i].sigma, delta = golden_gaussian_exact[i].delta;
        double exact = golden_gaussian_exact[i].epsilon, found, least;
        uint64_t count = golden_gaussian_exact[i].count;
        const tacit_event e = {TACIT_ADD_REMOVE, sigma, 1, count};
        assert_int_equal(tacit_gaussian_compose(&found, &e, 1, delta, &err), TACIT_OK);
        double room = 1e-9 * fmax(exact, 1e-3 * sqrt((double)count) / sigma);
        if (!(found >= exact && found <= exact + room))
            fail_msg("sigma %.17g, %llu runs, delta %.17g: expected %.17g, found %.17g", sigma,
                     (unsigned long long)count, delta, exact, found);
        positive += exact > 0;
        if (exact < 1e-6 || exact >= 1e6)
            continue;
        /* The noise that the exact value was made from is enough, less of it is not: the answer
         * lies at it or just above. */
        assert_int_equal(tacit_gaussian_calibrate(&least, exact, delta, count, &err), TACIT_OK);
        assert_true(least >= sigma * (1 - 1e-15) && least <= sigma * (1 + 1e-8));
    }
    assert_true(positive > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_normal_cdf),
        cmocka_unit_test(test_golden_epsilons_and_calibrations),
        cmocka_unit_test(test_published_values),
        cmocka_unit_test(test_published_limits),
        cmocka_unit_test(test_published_power),
        cmocka_unit_test(test_delta_against_the_definition),
        cmocka_unit_test(test_small_deltas_keep_their_digits),
        cmocka_unit_test(test_only_unsampled_events),
        cmocka_unit_test(test_never_below_the_exact_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
