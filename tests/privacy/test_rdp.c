#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../golden/rdp_margin.h"
#include "golden_rows.h"
#include "privacy/accountant.h"
#include "privacy/rdp.h"

/* Relative to the larger of |expected| and what the golden column resolves. */
static void assert_close(const char *what, double found, double expected, double relative,
                         double absolute)
{
    double allowed = fmax(relative * fabs(expected), absolute);
    if (!(fabs(found - expected) <= allowed))
        fail_msg("%s: expected %.17g, found %.17g, off by %g", what, expected, found,
                 found - expected);
}

static double row_epsilon(const golden_row *row, double sigma, tacit_rdp_mode mode)
{
    tacit_error err;
    tacit_event events[GOLDEN_EVENTS];
    tacit_rdp account = {0};
    size_t n = golden_events(row, events, sigma);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++)
        if (tacit_rdp_add(&account, &events[i], mode, &err) != TACIT_OK)
            return NAN;
    return tacit_rdp_epsilon(&account, golden_number(row, DELTA), NULL);
}

static void test_orders_are_the_golden_list(void **state)
{
    (void)state;
    FILE *file = golden_open("rdp_orders.txt");
    assert_non_null(file);
    char line[64];
    size_t n = 0;
    while (fgets(line, sizeof line, file)) {
        assert_true(n < TACIT_RDP_ORDERS);
        assert_true(tacit_rdp_orders[n++] == strtod(line, NULL));
    }
    assert_int_equal(n, TACIT_RDP_ORDERS);
    fclose(file);
}

/* Every row of the golden file to which a column applies. */
static void test_golden_epsilons(void **state)
{
    (void)state;
    FILE *file = golden_open("dp_accounting.csv");
    assert_non_null(file);
    golden_row row;
    int true_rows = 0, compat_rows = 0;
    assert_true(golden_next(file, &row)); /* the names of the columns */
    while (golden_next(file, &row)) {
        bool calibration = strcmp(row.cell[KIND], "calibration") == 0;
        double sigma = calibration ? golden_number(&row, SIGMA_RDP) : NAN;
        double compat = golden_number(&row, EPS_RDP), exact = golden_number(&row, EPS_RDP_TRUE);
        bool replace_one = strcmp(row.cell[RELATION], "REPLACE_ONE") == 0;
        if (!isnan(compat)) {
            assert_close(row.cell[CASE_ID], row_epsilon(&row, sigma, TACIT_RDP_COMPAT), compat,
                         1e-9, compat < 1e-2 ? 1e-10 : 0);
            compat_rows++;
        }
        if (!isnan(exact) && !replace_one) {
            assert_close(row.cell[CASE_ID], row_epsilon(&row, sigma, TACIT_RDP_TRUE), exact, 1e-9,
                         exact < 1e-2 ? 1e-10 : 0);
            true_rows++;
        }
    }
    fclose(file);
    print_message("rows: true orders %d, compat %d\n", true_rows, compat_rows);
    assert_int_equal(true_rows, 810);
    assert_int_equal(compat_rows, 841);
}

static double calibrated(tacit_rdp_mode mode, const tacit_event *shape, double epsilon,
                         double delta)
{
    tacit_error err;
    const tacit_accountant *a;
    double sigma;
    assert_int_equal(tacit_accountant_find(&a, mode == TACIT_RDP_TRUE ? "rdp" : "rdp-compat", &err),
                     TACIT_OK);
    assert_int_equal(tacit_accountant_calibrate(a, shape, epsilon, delta, &sigma, &err), TACIT_OK);
    return sigma;
}

static void test_golden_calibrations(void **state)
{
    (void)state;
    FILE *file = golden_open("dp_accounting.csv");
    assert_non_null(file);
    golden_row row;
    int rows = 0;
    while (golden_next(file, &row)) {
        if (strcmp(row.cell[KIND], "calibration") != 0)
            continue;
        double target = golden_number(&row, TARGET_EPS), delta = golden_number(&row, DELTA), sigma;
        tacit_event e[GOLDEN_EVENTS];
        assert_int_equal(golden_events(&row, e, 1), 1);
        for (int mode = TACIT_RDP_TRUE; mode <= TACIT_RDP_COMPAT; mode++) {
            sigma = calibrated((tacit_rdp_mode)mode, &e[0], target, delta);
            if (mode == TACIT_RDP_COMPAT)
                assert_close(row.cell[CASE_ID], sigma, golden_number(&row, SIGMA_RDP), 0, 1.1e-6);
            assert_true(row_epsilon(&row, sigma, (tacit_rdp_mode)mode) <= target);
            assert_true(row_epsilon(&row, sigma * (1 - 1e-8), (tacit_rdp_mode)mode) > target);
        }
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, 15);
}

/* Independent oracle: the definition, E over N(0, s^2) of the likelihood ratio to the power a, in
 * long double by a fine midpoint rule. */
static double naive_rho(double a, double s, double q)
{
    long double sum = 0, step = (s < 1 ? s * s : s) / 100.0L;
    for (long double x = -20 * s; x < a + 20 * s; x += step) {
        long double z = (2 * x - 1) / (2 * (long double)s * s);
        sum += expl(a * log1pl(q * expm1l(z)) - x * x / (2 * (long double)s * s));
    }
    long double log_a = logl(sum * step / (s * sqrtl(2 * 3.14159265358979323846264338L)));
    return (double)(log_a / (a - 1));
}

static void test_orders_against_the_definition(void **state)
{
    (void)state;
    const double sigmas[] = {0.5, 0.8, 1, 1.7, 4}, rates[] = {0.01, 0.1, 0.5, 0.9};
    const double orders[] = {1.1, 1.5, 1.9, 2, 2.5, 3.7, 5, 7.7, 10.9, 24, 33.3};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 4; j++)
            for (size_t k = 0; k < 11; k++) {
                double expected = naive_rho(orders[k], sigmas[i], rates[j]);
                double found = tacit_rdp_one(orders[k], sigmas[i], rates[j], TACIT_RDP_TRUE);
                assert_close("rho", found, expected, 1e-11, 1e-16);
                double compat = tacit_rdp_one(orders[k], sigmas[i], rates[j], TACIT_RDP_COMPAT);
                assert_true(compat >= found * (1 - 1e-10));
            }
}

/* Small q: rho tends to a q^2 (e^(1/s^2) - 1) / 2 (second-order expansion), which double summation
 * around 1 would lose. */
static void test_tiny_rates_keep_their_digits(void **state)
{
    (void)state;
    for (double q = 1e-5; q > 1e-12; q /= 10)
        for (double a = 1.1; a < 11; a += 1.1)
            assert_close("rho", tacit_rdp_one(a, 2, q, TACIT_RDP_TRUE), a * q * q * expm1(0.25) / 2,
                         50 * q + 1e-12, 0);
}

static unsigned __int128 golden_rho(size_t i)
{
    return (unsigned __int128)golden_rdp_margin[i].high << 64 | golden_rdp_margin[i].low;
}

static size_t order_index(double order)
{
    size_t i = 0;
    while (i < TACIT_RDP_ORDERS && tacit_rdp_orders[i] != order)
        i++;
    assert_true(i < TACIT_RDP_ORDERS);
    return i;
}

/* What an account holds is never below the true divergence, at the orders and rates where the
 * arithmetic loses most too, and above it by no more than the margin and the same again. */
static void test_an_account_never_understates(void **state)
{
    (void)state;
    size_t n = sizeof golden_rdp_margin / sizeof golden_rdp_margin[0], at_1024 = 0;
    for (size_t i = 0; i < n; i++) {
        tacit_error err;
        tacit_rdp account = {0};
        tacit_event e = {TACIT_ADD_REMOVE, golden_rdp_margin[i].sigma, golden_rdp_margin[i].q, 1};
        unsigned __int128 exact = golden_rho(i);
        assert_int_equal(tacit_rdp_add(&account, &e, TACIT_RDP_TRUE, &err), TACIT_OK);
        unsigned __int128 found = account.rho[order_index(golden_rdp_margin[i].order)];
        if (found < exact || found - exact > (exact >> 32) + 2)
            fail_msg("order %g, sigma %.17g, q %.17g: off by %g of %g", golden_rdp_margin[i].order,
                     e.sigma, e.q,
                     found < exact ? -(double)(exact - found) : (double)(found - exact),
                     (double)exact);
        at_1024 += golden_rdp_margin[i].order == 1024;
    }
    assert_true(n > 400 && at_1024 > 40);
}

/* The bound that the margin rests on: the double before it is within 2^-33 of the truth. */
static void test_rounding_stays_within_its_bound(void **state)
{
    (void)state;
    double worst = 0;
    for (size_t i = 0; i < sizeof golden_rdp_margin / sizeof golden_rdp_margin[0]; i++) {
        double rho = tacit_rdp_one(golden_rdp_margin[i].order, golden_rdp_margin[i].sigma,
                                   golden_rdp_margin[i].q, TACIT_RDP_TRUE);
        unsigned __int128 exact = golden_rho(i), found = (unsigned __int128)ldexp(rho, 64);
        double off = exact < found ? (double)(found - exact) : -(double)(exact - found);
        if (exact < 0x1p40)
            continue; /* the rounding up of the golden number itself shows */
        worst = fmax(worst, fabs(off) / (double)exact);
    }
    print_message("largest relative error: 2^%.1f\n", log2(worst));
    assert_true(worst < 0x1p-33);
}

/* The conversion in long double, whose error is a thousandth of what is asked here. Parts of it
 * cancel: delta near 1, large rho at small orders. */
static void test_conversions_round_up(void **state)
{
    (void)state;
    const double deltas[] = {1e-300, 1e-12, 1e-5, 0.1, 0.999}, rhos[] = {1e-9, 1e-3, 0.3, 7, 800};
    size_t positive = 0;
    for (size_t k = 0; k < TACIT_RDP_ORDERS; k++)
        for (size_t i = 0; i < 5; i++)
            for (size_t j = 0; j < 25; j++) {
                long double a = tacit_rdp_orders[k], delta = deltas[i];
                double rho = rhos[j % 5] * (1 + (double)(j / 5) / 7);
                long double parts = 1 + rho + (1 + fabsl(logl(delta * a))) / (a - 1);
                long double exact = rho + log1pl(-1 / a) - logl(delta * a) / (a - 1);
                double found = tacit_rdp_to_epsilon((double)a, rho, (double)delta);
                if (exact <= 0 || delta * delta + expm1l(-(long double)rho) > 0)
                    continue;
                assert_true(found >= exact && found <= exact + 0x1p-48L * parts);
                positive++;
            }
    assert_true(positive > 10000);
}

/* Published values: notes of the accountants' own tests. */
static void test_published_values(void **state)
{
    (void)state;
    /* Mironov, Talwar, Zhang; true value of order 1.5. */
    assert_close("order 1.5", 50 * tacit_rdp_one(1.5, 2.5, 0.01, TACIT_RDP_TRUE), 6.50071e-4, 1e-6,
                 0);
    assert_close("order 1.5, compat", 50 * tacit_rdp_one(1.5, 2.5, 0.01, TACIT_RDP_COMPAT),
                 6.70580e-4, 1e-6, 0);
    const double orders[] = {2.5, 5, 50, 100};
    const double rhos[] = {1.0854e-3, 2.18076e-3, 2.38460e-2, 167.416};
    for (int i = 0; i < 4; i++)
        assert_close("rho", 50 * tacit_rdp_one(orders[i], 2.5, 0.01, TACIT_RDP_TRUE), rhos[i], 1e-4,
                     0);
    /* One step at order 8, from an implementation in Python integers and logarithms. */
    const double rho8[][3] = {
        {0.01, 1, 8.936439076e-4},
        {0.01, 4, 2.589912301e-5},
        {0.05, 1, 0.601268914},
        {0.1, 2, 0.0137254301},
        {1, 10, 0.04},
        {0.5, 5, 0.04321363426},
        {0.02, 0.8, 1.780124346},
        {256.0 / 60000, 1.1, 9.834106178e-5},
    };
    for (size_t i = 0; i < sizeof rho8 / sizeof rho8[0]; i++)
        assert_close("rho(8)", tacit_rdp_one(8, rho8[i][1], rho8[i][0], TACIT_RDP_TRUE), rho8[i][2],
                     1e-8, 0);
    double best = INFINITY;
    int best_order = 0;
    for (int a = 2; a <= 32; a++) { /* dp-accounting: rho = 1.1 at all of them */
        double epsilon = tacit_rdp_to_epsilon(a, 1.1, 1e-5);
        best_order = epsilon < best ? a : best_order;
        best = fmin(best, epsilon);
    }
    assert_close("conversion", best, 1.32783806176, 1e-11, 0);
    assert_int_equal(best_order, 32);
}

typedef struct known_run {
    double q, sigma;
    uint64_t steps;
    double delta, epsilon, tolerance, order; /* order: 0 where none is published */
} known_run;

static void check_known(const known_run *r, tacit_rdp_mode mode)
{
    tacit_error err;
    tacit_rdp account = {0};
    double order;
    const tacit_event e = {TACIT_ADD_REMOVE, r->sigma, r->q, r->steps};
    assert_int_equal(tacit_rdp_add(&account, &e, mode, &err), TACIT_OK);
    assert_close("epsilon", tacit_rdp_epsilon(&account, r->delta, &order), r->epsilon, r->tolerance,
                 0);
    assert_true(r->order == 0 || fabs(order - r->order) < 1e-9);
}

/* What dp-accounting, TF Privacy, JAX Privacy and Opacus print for runs that their tests state. */
static void test_published_runs(void **state)
{
    (void)state;
    const known_run either[] = {
        {150.0 / 60000, 1.3, 6000, 1e-5, 0.7242234026, 1e-9, 19},
        {100.0 / 100000, 1, 30000, 1e-7, 1.4154988495, 1e-9, 13},
        {1, 0.7, 2, 1e-5, 10.8602036, 1e-7, 0},
        {1, 0.35, 2, 1e-5, 26.2880374, 1e-7, 0},
        {1, 1, 5, 1e-6, 13.376, 5e-5, 0},
        {0.0064, 1, 782, 1e-6, 1.616, 5e-4, 0},
        {0.01, 4, 10000, 1e-5, 1.0355, 5e-5, 0}, /* Abadi et al. 2016, today's conversion */
    };
    const known_run biased[] = {
        {0.01, 0.7, 120, 1e-5, 3.2392676, 1e-7, 0},
        {0.01, 0.35, 120, 1e-5, 22.6248601, 1e-7, 0},
        {0.04, 1.5, 2250, 1e-5, 7.3293347, 1e-7, 0},
    };
    const known_run exact = {0.04, 1.5, 2250, 1e-5, 7.32911117143, 1e-10, 3.9}; /* Opacus */
    for (size_t i = 0; i < sizeof either / sizeof either[0]; i++) {
        check_known(&either[i], TACIT_RDP_TRUE);
        check_known(&either[i], TACIT_RDP_COMPAT);
    }
    for (size_t i = 0; i < sizeof biased / sizeof biased[0]; i++)
        check_known(&biased[i], TACIT_RDP_COMPAT);
    check_known(&exact, TACIT_RDP_TRUE);
    /* Opacus' sigma for epsilon 8. */
    tacit_event shape = {TACIT_ADD_REMOVE, 1, 0.04, 2250};
    assert_close("sigma", calibrated(TACIT_RDP_COMPAT, &shape, 8, 1e-5), 1.41587, 0, 6e-6);
    assert_close("sigma", calibrated(TACIT_RDP_TRUE, &shape, 8, 1e-5), 1.416, 0, 3e-4);
    shape.count = 2000;
    assert_close("sigma", calibrated(TACIT_RDP_COMPAT, &shape, 8, 1e-5), 1.35624, 0, 6e-6);
    assert_close("sigma", calibrated(TACIT_RDP_TRUE, &shape, 8, 1e-5), 1.3562, 0, 1e-4);
}

/* The conversion of the papers before 2020, rho + log(1 / delta) / (a - 1), at its best order. */
static double old_conversion(const known_run *r, double first, double step, int orders, double *at)
{
    double best = INFINITY;
    for (int i = 0; i < orders; i++) {
        double a = first + step * i;
        double rho = (double)r->steps * tacit_rdp_one(a, r->sigma, r->q, TACIT_RDP_TRUE);
        double epsilon = rho - log(r->delta) / (a - 1);
        *at = epsilon < best ? a : *at;
        best = fmin(best, epsilon);
    }
    return best;
}

static void test_values_of_older_papers(void **state)
{
    (void)state;
    double at = 0;
    const known_run abadi = {.q = 0.01, .sigma = 4, .steps = 10000, .delta = 1e-5};
    assert_close("Abadi et al. 2016", old_conversion(&abadi, 2, 1, 63, &at), 1.2586, 5e-5, 0);
    /* Bu et al. 2020, figure 4: lots of 256 of 60,000, 70 and 20 epochs. */
    known_run bu = {.q = 256.0 / 60000, .sigma = 0.7, .delta = 1e-5};
    bu.steps = (uint64_t)(70 * 60000 / 256);
    assert_close("Bu et al. 2020", old_conversion(&bu, 1.5, 0.5, 60, &at), 8.678, 2e-3, 0);
    assert_true(at == 3.5);
    bu.sigma = 1.3;
    bu.steps = (uint64_t)(20 * 60000 / 256);
    assert_close("Bu et al. 2020", old_conversion(&bu, 2, 1, 63, &at), 1.3498, 2e-3, 0);
}

/* Any rate that an event may have, at noise whose exponents are large: rho keeps growing with q. */
static void test_rates_down_to_nothing(void **state)
{
    (void)state;
    const double sigmas[] = {0.06, 0.1, 0.3, 1};
    for (int i = 0; i < 4; i++)
        for (double a = 1.1; a < 11; a += 0.7) {
            double last = 0;
            for (double q = 1e-300; q < 1; q *= 1e5) {
                double rho = tacit_rdp_one(a, sigmas[i], q, TACIT_RDP_TRUE);
                if (!(rho >= last && rho <= a / (2 * sigmas[i] * sigmas[i])))
                    fail_msg("order %g, sigma %g, q %g: %.17g after %.17g", a, sigmas[i], q, rho,
                             last);
                last = rho;
            }
            assert_true(last > 0);
        }
}

/* dp-accounting's own test: orders from 1.02 to 99.999 by 0.001, sigma 4.530877117, epsilon 1. */
static void test_orders_of_the_callers_choice(void **state)
{
    (void)state;
    tacit_error err;
    enum { N = 98980 };
    double *orders = malloc(N * sizeof *orders), epsilon, order;
    assert_non_null(orders);
    for (int i = 0; i < N; i++)
        orders[i] = 1.02 + 0.001 * i;
    const tacit_event whole = {TACIT_ADD_REMOVE, 4.530877117, 1, 1};
    assert_int_equal(
        tacit_rdp_epsilon_over(orders, N, &whole, 1, TACIT_RDP_TRUE, 1e-6, &epsilon, &order, &err),
        TACIT_OK);
    assert_close("epsilon", epsilon, 1, 1e-8, 0);
    free(orders);
    const double two[] = {2}, many[] = {3, 17, 32.5, 600.25, 1000};
    const tacit_event e = {TACIT_ADD_REMOVE, 2, 0.02, 500};
    double single[5], least = INFINITY;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tacit_rdp_epsilon_over(&many[i], 1, &e, 1, TACIT_RDP_TRUE, 1e-5,
                                                &single[i], &order, &err),
                         TACIT_OK);
        double rho = 500 * tacit_rdp_one(many[i], 2, 0.02, TACIT_RDP_TRUE);
        assert_close("one order", single[i], tacit_rdp_to_epsilon(many[i], rho, 1e-5), 1e-9, 0);
        least = fmin(least, single[i]);
    }
    assert_int_equal(
        tacit_rdp_epsilon_over(many, 5, &e, 1, TACIT_RDP_TRUE, 1e-5, &epsilon, &order, &err),
        TACIT_OK);
    assert_true(epsilon == least && order == 17);
    assert_int_equal(
        tacit_rdp_epsilon_over(two, 0, &e, 1, TACIT_RDP_TRUE, 1e-5, &epsilon, &order, &err),
        TACIT_BAD_INPUT);
    const double bad[][2] = {{1.01, 2}, {2, 2}, {3, 2}, {2, 1025}, {NAN, 2}};
    for (int i = 0; i < 5; i++)
        assert_int_equal(
            tacit_rdp_epsilon_over(bad[i], 2, &e, 1, TACIT_RDP_TRUE, 1e-5, &epsilon, &order, &err),
            TACIT_BAD_INPUT);
}

/* log A is convex in the order: at a + 1/2 it lies below the chord and above both neighbours'
 * continuations. Integer orders come from another formula. */
static void test_high_fractional_orders_fit_between(void **state)
{
    (void)state;
    const double settings[][2] = {{0.3, 0.5}, {1, 0.01}, {4, 0.1}, {0.8, 1e-5}};
    for (size_t k = 0; k < 4; k++)
        for (double a = 12; a < 1020; a *= 1.7) {
            double log_a[4], n = floor(a);
            for (int i = 0; i < 4; i++)
                log_a[i] = (n + i - 2) *
                           tacit_rdp_one(n + i - 1, settings[k][0], settings[k][1], TACIT_RDP_TRUE);
            double half =
                (n - 0.5) * tacit_rdp_one(n + 0.5, settings[k][0], settings[k][1], TACIT_RDP_TRUE);
            double slack = 1e-11 * log_a[3];
            assert_true(half <= (log_a[1] + log_a[2]) / 2 + slack);
            assert_true(half >= log_a[1] + (log_a[1] - log_a[0]) / 2 - slack);
            assert_true(half >= log_a[2] - (log_a[3] - log_a[2]) / 2 - slack);
        }
}

/* Same bits whatever the order and the grouping of events; never below the double sum. */
static void test_account_is_exact_arithmetic(void **state)
{
    (void)state;
    tacit_error err;
    tacit_event a = {TACIT_ADD_REMOVE, 1.1, 0.01, 300}, b = {TACIT_ADD_REMOVE, 2, 1, 3};
    tacit_event single = a;
    single.count = 1;
    tacit_rdp ab = {0}, ba = {0}, many = {0}, half = {0};
    assert_int_equal(tacit_rdp_add(&ab, &a, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_int_equal(tacit_rdp_add(&ab, &b, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_int_equal(tacit_rdp_add(&ba, &b, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_int_equal(tacit_rdp_add(&ba, &a, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_memory_equal(&ab, &ba, sizeof ab);
    for (int i = 0; i < 300; i++)
        assert_int_equal(tacit_rdp_add(i < 100 ? &many : &half, &single, TACIT_RDP_TRUE, &err),
                         TACIT_OK);
    tacit_rdp_join(&many, &half);
    assert_int_equal(tacit_rdp_add(&many, &b, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_memory_equal(&ab, &many, sizeof ab);
    for (size_t i = 0; i < TACIT_RDP_ORDERS; i++) {
        double o = tacit_rdp_orders[i];
        double rho = 300 * tacit_rdp_one(o, 1.1, 0.01, TACIT_RDP_TRUE) + 3 * o / 8;
        double held = ldexp((double)ab.rho[i], -64);
        assert_true(held >= rho && held <= rho * (1 + 0x1p-33) * (1 + 1e-15));
    }
}

/* One order by itself is what the account holds of it. */
static void test_one_order_alone(void **state)
{
    (void)state;
    static const tacit_event events[] = {
        {TACIT_ADD_REMOVE, 1.3, 0.05, 10},    {TACIT_ADD_REMOVE, 0.01, 0.3, 3},
        {TACIT_ADD_REMOVE, 0.7, 1, 1000000},  {TACIT_REPLACE_ONE, 2, 1, 7},
        {TACIT_ADD_REMOVE, 50, 1e-9, 100000},
    };
    for (size_t k = 0; k < sizeof events / sizeof events[0]; k++) {
        tacit_error err;
        tacit_rdp account = {0};
        assert_int_equal(tacit_rdp_add(&account, &events[k], TACIT_RDP_TRUE, &err), TACIT_OK);
        for (size_t i = 0; i < TACIT_RDP_ORDERS; i++) {
            unsigned __int128 rho = 0, of = account.rho[i];
            assert_int_equal(tacit_rdp_add_at(&rho, &events[k], i, &err), TACIT_OK);
            unsigned __int128 apart = rho > of ? rho - of : of - rho;
            bool whole = tacit_rdp_orders[i] == floor(tacit_rdp_orders[i]);
            assert_true(whole ? apart == 0 : apart <= (of >> 33) + events[k].count);
        }
    }
}

static void test_infinity_stays_infinite(void **state)
{
    (void)state;
    tacit_error err;
    tacit_rdp account = {0};
    tacit_event tiny = {TACIT_ADD_REMOVE, 1e-3, 1, (uint64_t)1 << 40};
    for (int i = 0; i < 100; i++)
        assert_int_equal(tacit_rdp_add(&account, &tiny, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_true(tacit_rdp_epsilon(&account, 1e-5, NULL) > 1e17);
    account.rho[3] = ~(unsigned __int128)0;
    tacit_rdp_join(&account, &account);
    assert_true(account.rho[3] == ~(unsigned __int128)0);
    assert_true(isinf(tacit_rdp_epsilon_at(&account, 3, 1e-5)));
}

static void test_zero_cost(void **state)
{
    (void)state;
    tacit_rdp account = {0};
    double order = -1;
    assert_true(tacit_rdp_epsilon(&account, 1e-5, &order) == 0);
    assert_true(tacit_rdp_epsilon(&account, 0, NULL) == 0);
    assert_true(tacit_rdp_delta(&account, 0) == 0);
    tacit_error err;
    tacit_event e = {TACIT_ADD_REMOVE, 1, 0.1, 1};
    assert_int_equal(tacit_rdp_add(&account, &e, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_true(isinf(tacit_rdp_epsilon(&account, 0, &order)));
    assert_true(order == 0);
}

/* delta(epsilon(delta)) comes back below delta, and more noise or fewer steps never cost more. */
static void test_conversions_are_inverse_and_monotone(void **state)
{
    (void)state;
    tacit_error err;
    double last = INFINITY;
    for (double sigma = 0.5; sigma < 6; sigma *= 1.2) {
        tacit_rdp account = {0};
        tacit_event e = {TACIT_ADD_REMOVE, sigma, 0.05, 200};
        assert_int_equal(tacit_rdp_add(&account, &e, TACIT_RDP_TRUE, &err), TACIT_OK);
        double epsilon = tacit_rdp_epsilon(&account, 1e-5, NULL);
        assert_true(epsilon < last);
        last = epsilon;
        assert_close("delta", tacit_rdp_delta(&account, epsilon), 1e-5, 1e-9, 0);
    }
}

static void test_replace_one(void **state)
{
    (void)state;
    tacit_error err;
    tacit_rdp doubled = {0}, half = {0};
    tacit_event replace = {TACIT_REPLACE_ONE, 3, 1, 10}, plain = {TACIT_ADD_REMOVE, 1.5, 1, 10};
    assert_int_equal(tacit_rdp_add(&doubled, &replace, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_int_equal(tacit_rdp_add(&half, &plain, TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_memory_equal(&doubled, &half, sizeof half);
    replace.q = 0.5;
    assert_int_equal(tacit_rdp_add(&doubled, &replace, TACIT_RDP_TRUE, &err), TACIT_REFUSED);
    assert_int_equal(tacit_rdp_add(&doubled, &replace, TACIT_RDP_COMPAT, &err), TACIT_REFUSED);
    assert_memory_equal(&doubled, &half, sizeof half);
}

static void test_bad_events_are_refused(void **state)
{
    (void)state;
    const tacit_event bad[] = {
        {TACIT_ADD_REMOVE, 0, 0.1, 1},    {TACIT_ADD_REMOVE, -1, 0.1, 1},
        {TACIT_ADD_REMOVE, NAN, 0.1, 1},  {TACIT_ADD_REMOVE, INFINITY, 0.1, 1},
        {TACIT_ADD_REMOVE, 1, 0, 1},      {TACIT_ADD_REMOVE, 1, NAN, 1},
        {TACIT_ADD_REMOVE, 1, 1.01, 1},   {TACIT_ADD_REMOVE, 1, 0.1, UINT64_MAX},
        {(tacit_neighbours)0, 1, 0.1, 1},
    };
    tacit_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tacit_rdp account = {0};
        assert_int_equal(tacit_rdp_add(&account, &bad[i], TACIT_RDP_TRUE, &err), TACIT_BAD_INPUT);
    }
}

/* The filter's order is the best single order for a plain Gaussian spent to the cap: no other order
 * allows a smaller sigma. Single-order epsilon is never below the minimum. */
static void test_filter_order(void **state)
{
    (void)state;
    tacit_error err;
    const double caps[] = {0.5, 2, 8};
    for (int c = 0; c < 3; c++) {
        size_t chosen = tacit_rdp_filter_order(caps[c], 1e-5);
        tacit_event e = {TACIT_ADD_REMOVE, 1, 1, 1};
        e.sigma = calibrated(TACIT_RDP_TRUE, &e, caps[c], 1e-5);
        tacit_rdp account = {0};
        assert_int_equal(tacit_rdp_add(&account, &e, TACIT_RDP_TRUE, &err), TACIT_OK);
        assert_close("cap", tacit_rdp_epsilon_at(&account, chosen, 1e-5), caps[c], 1e-8, 0);
        assert_true(tacit_rdp_epsilon(&account, 1e-5, NULL) <=
                    tacit_rdp_epsilon_at(&account, chosen, 1e-5));
    }
}

/* Noise multipliers too small for the quadrature get an upper bound, not a guess. */
static void test_tiny_sigma_is_bounded_from_above(void **state)
{
    (void)state;
    for (double a = 1.1; a < 6; a += 0.7) {
        double bound = tacit_rdp_one(a, 0.04999, 0.1, TACIT_RDP_TRUE);
        double near = tacit_rdp_one(a, 0.05, 0.1, TACIT_RDP_TRUE);
        assert_true(bound >= near && bound < INFINITY);
    }
    assert_true(tacit_rdp_one(1024, 1e-3, 0.1, TACIT_RDP_TRUE) < INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_are_the_golden_list),
        cmocka_unit_test(test_golden_epsilons),
        cmocka_unit_test(test_golden_calibrations),
        cmocka_unit_test(test_orders_against_the_definition),
        cmocka_unit_test(test_tiny_rates_keep_their_digits),
        cmocka_unit_test(test_an_account_never_understates),
        cmocka_unit_test(test_rounding_stays_within_its_bound),
        cmocka_unit_test(test_conversions_round_up),
        cmocka_unit_test(test_published_values),
        cmocka_unit_test(test_published_runs),
        cmocka_unit_test(test_values_of_older_papers),
        cmocka_unit_test(test_rates_down_to_nothing),
        cmocka_unit_test(test_orders_of_the_callers_choice),
        cmocka_unit_test(test_high_fractional_orders_fit_between),
        cmocka_unit_test(test_account_is_exact_arithmetic),
        cmocka_unit_test(test_one_order_alone),
        cmocka_unit_test(test_infinity_stays_infinite),
        cmocka_unit_test(test_zero_cost),
        cmocka_unit_test(test_conversions_are_inverse_and_monotone),
        cmocka_unit_test(test_replace_one),
        cmocka_unit_test(test_bad_events_are_refused),
        cmocka_unit_test(test_filter_order),
        cmocka_unit_test(test_tiny_sigma_is_bounded_from_above),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
