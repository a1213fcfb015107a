#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/accountant.h"
#include "privacy/gaussian.h"

#include <math.h>
#include <string.h>

static const tacit_accountant *find(const char *name)
{
    const tacit_accountant *a;
    tacit_error err;
    assert_int_equal(tacit_accountant_find(&a, name, &err), TACIT_OK);
    assert_string_equal(tacit_accountant_name(a), name);
    return a;
}

static void test_unknown_words_are_refused(void **state)
{
    (void)state;
    const tacit_accountant *a;
    tacit_neighbours n;
    tacit_error err;
    assert_int_equal(tacit_accountant_find(&a, "RDP", &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "rdp-compat"));
    assert_int_equal(tacit_neighbours_parse(&n, "replace", &err), TACIT_USAGE);
    assert_int_equal(tacit_neighbours_parse(&n, "replace-one", &err), TACIT_OK);
    assert_int_equal(n, TACIT_REPLACE_ONE);
}

static void test_events_are_parsed_strictly(void **state)
{
    (void)state;
    tacit_event e;
    tacit_error err;
    assert_int_equal(tacit_event_parse(&e, "1.25:0.01:1000", TACIT_REPLACE_ONE, &err), TACIT_OK);
    assert_true(e.sigma == 1.25 && e.q == 0.01 && e.count == 1000);
    assert_int_equal(e.neighbours, TACIT_REPLACE_ONE);
    const char *bad[] = {"",        "1",         "1:1",      "1:1:",     ":1:1",      "1:1:1:1",
                         "0:0.1:1", "1:1e-19:1", "1:1.1:1",  "1:0.1:-1", "1:0.1:1e3", "nan:0.1:1",
                         "inf:1:1", "1:nan:1",   "1 :0.1:1", "-1:0.1:1", "1,0:0.1:1", "1:0.1:1 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tacit_event_parse(&e, bad[i], TACIT_ADD_REMOVE, &err), TACIT_USAGE);
}

static void test_delta_outside_its_range_is_refused(void **state)
{
    (void)state;
    const double bad[] = {0, 1, -1e-5, 2, NAN};
    const char *names[] = {"pld", "rdp", "rdp-compat", "analytic"};
    tacit_event e = {TACIT_ADD_REMOVE, 1, 1, 1};
    tacit_error err;
    double epsilon;
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 5; i++)
            assert_int_equal(
                tacit_accountant_epsilon(find(names[n]), &e, 1, bad[i], &epsilon, NULL, &err),
                TACIT_BAD_INPUT);
}

/* For the plain Gaussian the analytic value is exact, so no accountant may be below it. */
static void test_no_accountant_is_below_the_exact_value(void **state)
{
    (void)state;
    tacit_error err;
    for (double sigma = 0.3; sigma < 20; sigma *= 1.5)
        for (double delta = 1e-8; delta < 0.1; delta *= 10) {
            tacit_event e = {TACIT_ADD_REMOVE, sigma, 1, 7};
            double exact, rdp;
            assert_int_equal(
                tacit_accountant_epsilon(find("analytic"), &e, 1, delta, &exact, NULL, &err),
                TACIT_OK);
            assert_int_equal(tacit_accountant_epsilon(find("rdp"), &e, 1, delta, &rdp, NULL, &err),
                             TACIT_OK);
            assert_true(rdp >= exact);
        }
}

static void test_neighbours_may_not_be_mixed(void **state)
{
    (void)state;
    const tacit_event mixed[] = {{TACIT_ADD_REMOVE, 1, 1, 1}, {TACIT_REPLACE_ONE, 1, 1, 1}};
    const char *names[] = {"pld", "rdp", "rdp-compat", "analytic"};
    tacit_error err;
    double epsilon;
    for (int n = 0; n < 4; n++)
        assert_int_equal(
            tacit_accountant_epsilon(find(names[n]), mixed, 2, 1e-5, &epsilon, NULL, &err),
            TACIT_BAD_INPUT);
}

static void test_calibration_is_tight_from_above(void **state)
{
    (void)state;
    tacit_error err;
    double sigma, exact, epsilon;
    tacit_event e = {TACIT_ADD_REMOVE, 0, 1, 9};
    const tacit_accountant *a = find("analytic");
    assert_int_equal(tacit_accountant_calibrate(a, &e, 2, 1e-6, &sigma, &err), TACIT_OK);
    assert_int_equal(tacit_gaussian_calibrate(&exact, 2, 1e-6, 9, &err), TACIT_OK);
    assert_true(fabs(sigma / exact - 1) < 2e-9);
    e.sigma = sigma;
    assert_int_equal(tacit_accountant_epsilon(a, &e, 1, 1e-6, &epsilon, NULL, &err), TACIT_OK);
    assert_true(epsilon <= 2 && epsilon > 2 - 1e-7);
    assert_int_equal(tacit_accountant_calibrate(a, &e, 0, 1e-6, &sigma, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_accountant_calibrate(find("rdp"), &e, 1e-9, 1e-12, &sigma, &err),
                     TACIT_BAD_INPUT);
    e.neighbours = TACIT_REPLACE_ONE;
    assert_int_equal(tacit_accountant_calibrate(a, &e, 2, 1e-6, &sigma, &err), TACIT_OK);
    assert_true(fabs(sigma / exact - 2) < 4e-9);
    /* Published: one query at q = 0.01 for epsilon 1. */
    e = (tacit_event){TACIT_ADD_REMOVE, 0, 0.01, 1};
    assert_int_equal(tacit_accountant_calibrate(find("pld"), &e, 1, 1e-5, &sigma, &err), TACIT_OK);
    assert_true(fabs(sigma - 0.67379294682) < 1e-5);
}

/* An accountant with closed form, epsilon = sqrt(count) / sigma, which refuses above an epsilon:
 * what a grid too long for the memory does. The limit travels in the tail. */
static tacit_status limited_epsilon(const tacit_accountant_options *o, const tacit_event *events,
                                    size_t n, double delta, double *epsilon, double *order,
                                    tacit_error *err)
{
    (void)n;
    (void)delta;
    *order = 0;
    *epsilon = sqrt((double)events[0].count) / events[0].sigma;
    if (*epsilon > 1e4)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory");
    if (*epsilon > o->grid.tail)
        return tacit_fail(err, TACIT_REFUSED, "needs too many points");
    return TACIT_OK;
}

static tacit_accountant limited(double limit)
{
    return (tacit_accountant){"limited", false, true, limited_epsilon, {NULL, 0, {0, limit}}};
}

/* A refusal says nothing about the cost. Where the search meets some on its way its result is the
 * same as without; where the result would lie beside one there is none. */
static void test_calibration_passes_refusals_but_hides_none(void **state)
{
    (void)state;
    tacit_error err;
    double sigma;
    uint64_t count;
    for (double epsilon = 0.01; epsilon < 9; epsilon *= 1.7)
        for (double limit = 0.011; limit < 100; limit *= 2.3) {
            tacit_accountant a = limited(limit);
            tacit_event e = {TACIT_ADD_REMOVE, 0, 1, 400};
            tacit_status status = tacit_accountant_calibrate(&a, &e, epsilon, 1e-5, &sigma, &err);
            if (limit > epsilon * 1.01) {
                assert_int_equal(status, TACIT_OK);
                assert_true(fabs(sigma * epsilon / 20 - 1) < 2e-9 && sigma * epsilon >= 20);
            } else {
                assert_int_equal(status, TACIT_REFUSED);
                assert_non_null(strstr(err.message, "needs too many points"));
            }
            e.sigma = 500;
            status = tacit_accountant_calibrate_count(&a, &e, epsilon, 1e-5, &count, &err);
            if (limit > epsilon * 1.01) {
                assert_int_equal(status, TACIT_OK);
                assert_int_equal(count, (uint64_t)(250000 * epsilon * epsilon));
            } else {
                assert_int_equal(status, TACIT_REFUSED);
                assert_non_null(strstr(err.message, "needs too many points"));
            }
        }
    /* What never answers is refused, too, and other failures end the search at once. */
    tacit_accountant never = limited(1e-9);
    tacit_event e = {TACIT_ADD_REMOVE, 1, 1, 400};
    assert_int_equal(tacit_accountant_calibrate(&never, &e, 1, 1e-5, &sigma, &err), TACIT_REFUSED);
    assert_int_equal(tacit_accountant_calibrate_count(&never, &e, 1, 1e-5, &count, &err),
                     TACIT_REFUSED);
    e.count = (uint64_t)1 << 40;
    assert_int_equal(tacit_accountant_calibrate(&never, &e, 1, 1e-5, &sigma, &err),
                     TACIT_NO_MEMORY);
    e = (tacit_event){TACIT_ADD_REMOVE, 1, 0.5, 3};
    assert_int_equal(tacit_accountant_calibrate(find("analytic"), &e, 1, 1e-5, &sigma, &err),
                     TACIT_REFUSED);
}

/* The most steps within a budget: one more would exceed it. */
static void test_most_steps(void **state)
{
    (void)state;
    tacit_error err;
    const char *names[] = {"pld", "rdp", "rdp-compat", "analytic"};
    for (int n = 0; n < 4; n++) {
        const tacit_accountant *a = find(names[n]);
        tacit_event e = {TACIT_ADD_REMOVE, 3, n == 3 ? 1 : 0.1, 0};
        uint64_t count;
        double epsilon, more;
        assert_int_equal(tacit_accountant_calibrate_count(a, &e, 4, 1e-5, &count, &err), TACIT_OK);
        e.count = count;
        assert_int_equal(tacit_accountant_epsilon(a, &e, 1, 1e-5, &epsilon, NULL, &err), TACIT_OK);
        e.count = count + 1;
        assert_int_equal(tacit_accountant_epsilon(a, &e, 1, 1e-5, &more, NULL, &err), TACIT_OK);
        assert_true(epsilon <= 4 && more > 4);
    }
    /* The plain Gaussian in closed form: mu = sqrt(count) / sigma. */
    tacit_event e = {TACIT_ADD_REMOVE, 100, 1, 0};
    uint64_t count;
    assert_int_equal(tacit_accountant_calibrate_count(find("analytic"), &e,
                                                      tacit_gaussian_epsilon(1e-6, 2 + 1e-9), 1e-6,
                                                      &count, &err),
                     TACIT_OK);
    assert_int_equal(count, 40000);
    e.sigma = 0.5;
    assert_int_equal(tacit_accountant_calibrate_count(find("rdp"), &e, 1, 1e-5, &count, &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "one step costs"));
    e.q = 0;
    assert_int_equal(tacit_accountant_calibrate_count(find("rdp"), &e, 1, 1e-5, &count, &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "there is no most"));
}

/* An event of q = 0 changes nothing, alone or among others; what it says is checked all the same.
 */
static void test_nothing_drawn_costs_nothing(void **state)
{
    (void)state;
    tacit_error err;
    const char *names[] = {"pld", "rdp", "rdp-compat", "analytic"};
    const tacit_event with[] = {
        {TACIT_ADD_REMOVE, 1, 0, 50}, {TACIT_ADD_REMOVE, 2, 1, 3}, {TACIT_ADD_REMOVE, 9, 0, 0}};
    const tacit_event bad = {TACIT_ADD_REMOVE, 0, 0, 1};
    for (int n = 0; n < 4; n++) {
        double zero = -1, all, alone;
        const tacit_accountant *a = find(names[n]);
        assert_int_equal(tacit_accountant_epsilon(a, with, 1, 1e-5, &zero, NULL, &err), TACIT_OK);
        assert_true(zero == 0);
        assert_int_equal(tacit_accountant_epsilon(a, with, 3, 1e-5, &all, NULL, &err), TACIT_OK);
        assert_int_equal(tacit_accountant_epsilon(a, with + 1, 1, 1e-5, &alone, NULL, &err),
                         TACIT_OK);
        assert_true(all == alone && all > 0);
        assert_int_equal(tacit_accountant_epsilon(a, &bad, 1, 1e-5, &zero, NULL, &err),
                         TACIT_BAD_INPUT);
    }
    /* A mechanism of q = 0 is refused all the same: no account holds one. */
    const tacit_mechanism m = {.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                               .unit = TACIT_UNIT_RECORD,
                               .neighbours = TACIT_ADD_REMOVE,
                               .clip_norm = 1,
                               .b = 100000,
                               .q_num = 0,
                               .steps = 1,
                               .divisor = 1,
                               .unit_examples = 1};
    tacit_event e;
    assert_int_equal(tacit_event_from_mechanism(&e, &m, 1, &err), TACIT_BAD_INPUT);
    e = (tacit_event){TACIT_ADD_REMOVE, 1, 0, 1};
    assert_int_equal(tacit_event_validate(&e, &err), TACIT_BAD_INPUT);
}

static double with_options(const char *name, const tacit_accountant_options *options,
                           const tacit_event *e, double *order)
{
    tacit_error err;
    tacit_accountant a;
    double epsilon;
    assert_int_equal(tacit_accountant_with(&a, find(name), options, &err), TACIT_OK);
    assert_int_equal(tacit_accountant_epsilon(&a, e, 1, 1e-5, &epsilon, order, &err), TACIT_OK);
    return epsilon;
}

static void test_options_reach_their_accountant(void **state)
{
    (void)state;
    tacit_error err;
    const double orders[] = {4, 8};
    const tacit_event e = {TACIT_ADD_REMOVE, 4, 0.001, 1000};
    const tacit_accountant_options few = {.orders = orders, .n_orders = 2};
    const tacit_accountant_options coarse = {.grid = {.interval = 1e-2}};
    const tacit_accountant_options cut = {.grid = {.tail = 1e-9}};
    tacit_accountant refused;
    double by_default, found, order;
    assert_int_equal(tacit_accountant_epsilon(find("rdp"), &e, 1, 1e-5, &by_default, NULL, &err),
                     TACIT_OK);
    found = with_options("rdp", &few, &e, &order);
    assert_true(found > by_default && order == 8);
    assert_int_equal(tacit_accountant_epsilon(find("pld"), &e, 1, 1e-5, &by_default, NULL, &err),
                     TACIT_OK);
    found = with_options("pld", &coarse, &e, NULL);
    assert_true(found > 1.5 * by_default); /* tiny q on a coarse grid is over-charged */
    found = with_options("pld", &cut, &e, NULL);
    assert_true(found > by_default && found < 1.5 * by_default);
    const struct {
        const char *name;
        const tacit_accountant_options *options;
    } wrong[] = {{"pld", &few}, {"rdp", &coarse}, {"rdp-compat", &cut}, {"analytic", &few}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            tacit_accountant_with(&refused, find(wrong[i].name), wrong[i].options, &err),
            TACIT_USAGE);
}

static void test_orders_are_parsed_strictly(void **state)
{
    (void)state;
    tacit_error err;
    double orders[TACIT_ORDERS_PARSED];
    size_t n;
    assert_int_equal(tacit_orders_parse(orders, &n, "1.5,2,64", &err), TACIT_OK);
    assert_true(n == 3 && orders[0] == 1.5 && orders[1] == 2 && orders[2] == 64);
    const char *bad[] = {"", ",", "2,", ",2", "2,,3", "2;3", "2, 3", "nan", "0.5", "1e10"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tacit_orders_parse(orders, &n, bad[i], &err), TACIT_USAGE);
    char many[2 * TACIT_ORDERS_PARSED + 2] = "";
    for (int i = 0; i <= TACIT_ORDERS_PARSED; i++)
        memcpy(many + 2 * i, "2,", 2);
    many[2 * TACIT_ORDERS_PARSED + 1] = '\0';
    assert_int_equal(tacit_orders_parse(orders, &n, many, &err), TACIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_words_are_refused),
        cmocka_unit_test(test_events_are_parsed_strictly),
        cmocka_unit_test(test_delta_outside_its_range_is_refused),
        cmocka_unit_test(test_no_accountant_is_below_the_exact_value),
        cmocka_unit_test(test_neighbours_may_not_be_mixed),
        cmocka_unit_test(test_calibration_is_tight_from_above),
        cmocka_unit_test(test_calibration_passes_refusals_but_hides_none),
        cmocka_unit_test(test_most_steps),
        cmocka_unit_test(test_nothing_drawn_costs_nothing),
        cmocka_unit_test(test_options_reach_their_accountant),
        cmocka_unit_test(test_orders_are_parsed_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
