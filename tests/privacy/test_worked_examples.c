/* The numbers that privacy/README.md states under "Worked examples". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/accountant.h"
#include "privacy/gaussian.h"
#include "privacy/rdp.h"

#include <math.h>

static void assert_near(double found, double expected, double off)
{
    if (!(fabs(found - expected) <= off))
        fail_msg("expected %.9g, found %.9g", expected, found);
}

static const tacit_accountant *find(const char *name)
{
    const tacit_accountant *a;
    tacit_error err;
    assert_int_equal(tacit_accountant_find(&a, name, &err), TACIT_OK);
    return a;
}

static double cost(const char *accountant, const tacit_event *events, size_t n, double delta)
{
    tacit_error err;
    double epsilon;
    assert_int_equal(
        tacit_accountant_epsilon(find(accountant), events, n, delta, &epsilon, NULL, &err),
        TACIT_OK);
    return epsilon;
}

static double rounds(const char *accountant, double q, uint64_t steps, double delta)
{
    const tacit_event e = {TACIT_ADD_REMOVE, 1.2, q, steps};
    return cost(accountant, &e, 1, delta);
}

/* --- A budget table: sigma 1.2, epsilon 2.1 at delta 1e-5 after round 1, 8.7 at 5e-5 after 5. ---
 */

/* The q at which a round of so many steps costs 2.1 at delta 1e-5, what five rounds cost then at
 * 1e-5 and 5e-5. From an independent implementation. */
typedef struct table_row {
    uint64_t steps;
    double q, at_1e5, at_5e5;
} table_row;

static void check_table(const char *accountant, const table_row *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_near(rounds(accountant, row[i].q, row[i].steps, 1e-5), 2.1, 1e-3);
        assert_near(rounds(accountant, row[i].q, 5 * row[i].steps, 1e-5), row[i].at_1e5, 2e-3);
        double after = rounds(accountant, row[i].q, 5 * row[i].steps, 5e-5);
        assert_near(after, row[i].at_5e5, 2e-3);
        assert_true(after < 8.7 / 1.8);
    }
}

static void test_the_tables_rounds(void **state)
{
    (void)state;
    const table_row pld[] = {{1, 0.27758, 3.637, 3.164},
                             {10, 0.10719, 3.943, 3.481},
                             {100, 0.04322, 4.584, 4.126},
                             {1000, 0.01548, 5.012, 4.554}};
    const table_row rdp[] = {{1, 0.20438, 3.348, 2.938},
                             {10, 0.08502, 3.564, 3.171},
                             {100, 0.03756, 4.323, 3.925},
                             {1000, 0.01414, 4.906, 4.497}};
    check_table("pld", pld, 4);
    check_table("rdp", rdp, 4);
}

/* The limit of many small steps, a Gaussian whose mu grows with the root of the rounds; and q = 1.
 */
static void test_the_tables_limits(void **state)
{
    (void)state;
    double low = 0.1, high = 2;
    for (int i = 0; i < 60; i++) {
        double mu = (low + high) / 2;
        *(tacit_gaussian_epsilon(1e-5, mu) > 2.1 ? &high : &low) = mu;
    }
    assert_near(tacit_gaussian_epsilon(1e-5, low * sqrt(5)), 5.26, 5e-3);
    assert_near(tacit_gaussian_epsilon(5e-5, low * sqrt(5)), 4.81, 5e-3);
    assert_near(rounds("analytic", 1, 1, 1e-5), 3.549, 5e-4);
    assert_near(rounds("analytic", 1, 5, 5e-5), 8.449, 5e-4);
}

/* 128 of 10,000 clients, each drawn by itself; one step a round. */
static void test_such_rounds_at_one_delta(void **state)
{
    (void)state;
    assert_near(rounds("pld", 0.0128, 1, 1e-5), 0.144, 5e-4);
    assert_near(rounds("pld", 0.0128, 5, 1e-5), 0.224, 5e-4);
    assert_near(rounds("rdp", 0.0128, 1, 1e-5), 0.676, 5e-4);
}

/* --- A fresh cap of epsilon 8 for every lineage. --- */

static void test_lineages_on_the_same_records_add_up(void **state)
{
    (void)state;
    tacit_error err;
    tacit_event e = {TACIT_ADD_REMOVE, 0, 0.1, 350};
    const double together[] = {8, 11.8, 17.8, 27.6};
    assert_int_equal(tacit_accountant_calibrate(find("rdp"), &e, 8, 1e-5, &e.sigma, &err),
                     TACIT_OK);
    assert_near(e.sigma, 1.43394, 1e-5);
    for (int i = 0; i < 4; i++, e.count *= 2)
        assert_near(cost("rdp", &e, 1, 1e-5), together[i], 0.05);
    const double plain[] = {8, 12.3, 19.1, 30.5}; /* one release with noise on everything */
    e = (tacit_event){TACIT_ADD_REMOVE, 0, 1, 1};
    assert_int_equal(tacit_gaussian_calibrate(&e.sigma, 8, 1e-5, 1, &err), TACIT_OK);
    for (int i = 0; i < 4; i++, e.count *= 2)
        assert_near(cost("analytic", &e, 1, 1e-5), plain[i], 0.05);
}

/* --- A choice made on what came out. --- */

#define FIRST 3.0  /* noise of the first release */
#define PLAIN 2.67 /* of the follow-up that takes everybody */
#define RARE 0.388 /* of the one that draws with RARE_Q */
#define RARE_Q 0.001

/* Exact delta of either follow-up for any real epsilon: the mass of the upper distribution less
 * e^epsilon times that of the lower one where the loss exceeds epsilon ("remove"). */
static double phi(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

static double plain_delta(double epsilon)
{
    return phi(0.5 / PLAIN - epsilon * PLAIN) - exp(epsilon) * phi(-0.5 / PLAIN - epsilon * PLAIN);
}

static double rare_delta(double epsilon)
{
    double ratio = 1 + expm1(epsilon) / RARE_Q;
    if (ratio <= 0)
        return -expm1(epsilon);
    double x = -0.5 - RARE * RARE * log(ratio), out = phi(x / RARE), in = phi((x + 1) / RARE);
    return (1 - RARE_Q) * out + RARE_Q * in - exp(epsilon) * out;
}

static double better_delta(double epsilon)
{
    return fmax(plain_delta(epsilon), rare_delta(epsilon));
}

/* Delta of the first release and of what follows, by a midpoint rule over the first one's loss. */
static double both_delta(double epsilon, double (*follow)(double epsilon))
{
    double sum = 0, step = 1e-4;
    for (double x = -12; x < 12; x += step) {
        double loss = 0.5 / (FIRST * FIRST) + x / FIRST;
        sum += exp(-x * x / 2) * follow(epsilon - loss);
    }
    return sum * step / sqrt(2 * M_PI);
}

static void test_pld_is_no_filter(void **state)
{
    (void)state;
    const tacit_event plain[] = {{TACIT_ADD_REMOVE, FIRST, 1, 1}, {TACIT_ADD_REMOVE, PLAIN, 1, 1}};
    const tacit_event rare[] = {{TACIT_ADD_REMOVE, FIRST, 1, 1},
                                {TACIT_ADD_REMOVE, RARE, RARE_Q, 1}};
    /* Whichever follow-up is fixed beforehand, both together stay within (2, 1e-5). */
    double a = cost("pld", plain, 2, 1e-5), b = cost("pld", rare, 2, 1e-5);
    assert_true(a <= 2 && a > 1.99 && b <= 2 && b > 1.99);
    assert_near(both_delta(a, plain_delta), 1e-5, 2e-9);
    assert_near(both_delta(b, rare_delta), 1e-5, 2e-9);
    /* Who chooses on the first release does not. */
    assert_near(both_delta(2, better_delta), 1.81e-5, 2e-8);
    assert_near(both_delta(2.16, better_delta), 1e-5, 1e-7);
    /* RDP at one order covers the choice, whatever it depends on. */
    const double order[] = {4};
    const tacit_accountant_options options = {.orders = order, .n_orders = 1};
    tacit_accountant fixed;
    tacit_error err;
    double first, second;
    assert_int_equal(tacit_accountant_with(&fixed, find("rdp"), &options, &err), TACIT_OK);
    assert_int_equal(tacit_accountant_epsilon(&fixed, plain, 2, 1e-5, &first, NULL, &err),
                     TACIT_OK);
    assert_int_equal(tacit_accountant_epsilon(&fixed, rare, 2, 1e-5, &second, NULL, &err),
                     TACIT_OK);
    assert_true(both_delta(fmax(first, second), better_delta) < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_tables_rounds),
        cmocka_unit_test(test_the_tables_limits),
        cmocka_unit_test(test_such_rounds_at_one_delta),
        cmocka_unit_test(test_lineages_on_the_same_records_add_up),
        cmocka_unit_test(test_pld_is_no_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
