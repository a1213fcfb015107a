#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "golden_rows.h"
#include "privacy/accountant.h"
#include "privacy/gaussian.h"

/* Every accountant over a grid of parameters up to the edges of what an event may hold: an epsilon
 * is a number or +inf, never below the exact one where that is known, and never falls where the
 * mechanism reveals more. TACIT_GOLDEN_STRIDE=1 takes pld through the whole grid (minutes). */

/* Under sanitizers pld takes every second point: neighbours are compared without them. */
#ifdef TACIT_SANITIZED
enum { LEAST_ASKED = 70, LEAST_KNOWN = 30 };
#else
enum { LEAST_ASKED = 140, LEAST_KNOWN = 60 };
#endif

#define SIGMAS 7
#define RATES 6
#define STEPS 3
#define DELTAS 3

/* Each list from the least to the most that is revealed. */
static const double sigmas[SIGMAS] = {1e3, 8, 1, 0.3, 0.05, 0.01, 1e-3};
static const double rates[RATES] = {0, 1e-9, 1e-4, 0.01, 0.5, 1};
static const uint64_t steps[STEPS] = {1, 100, 1000000};
static const double deltas[DELTAS] = {0.1, 1e-5, 1e-15};

typedef struct point {
    int sigma, rate, steps, delta;
} point;

typedef struct surface {
    double epsilon[SIGMAS][RATES][STEPS][DELTAS]; /* NAN: not asked, or refused */
} surface;

static double *at(surface *s, point p)
{
    return &s->epsilon[p.sigma][p.rate][p.steps][p.delta];
}

static tacit_event event_at(point p, tacit_neighbours neighbours)
{
    return (tacit_event){neighbours, sigmas[p.sigma], rates[p.rate], steps[p.steps]};
}

static const tacit_accountant *find(const char *name)
{
    const tacit_accountant *a;
    tacit_error err;
    assert_int_equal(tacit_accountant_find(&a, name, &err), TACIT_OK);
    return a;
}

static bool next(point *p)
{
    int *digit[] = {&p->delta, &p->steps, &p->rate, &p->sigma};
    const int most[] = {DELTAS, STEPS, RATES, SIGMAS};
    for (int i = 0; i < 4; i++) {
        if (++*digit[i] < most[i])
            return true;
        *digit[i] = 0;
    }
    return false;
}

static bool everything(point p)
{
    (void)p;
    return true;
}

/* What pld takes by default: the corners, for its grids have millions of points below sigma 0.3. */
static bool pld_sample(point p)
{
#ifdef TACIT_SANITIZED
    if ((p.sigma + p.rate + p.steps + p.delta) % 2)
        return false;
#endif
    if (getenv("TACIT_GOLDEN_STRIDE") || rates[p.rate] == 1 || rates[p.rate] == 0)
        return true;
    if (sigmas[p.sigma] < 0.3)
        return sigmas[p.sigma] == 0.01 && rates[p.rate] == 0.01 && p.steps == 0 && p.delta == 1;
    if (sigmas[p.sigma] == 1 && rates[p.rate] == 0.01)
        return true;
    return sigmas[p.sigma] != 8 && p.steps != 1 && p.delta == 2;
}

/* Asks at every point that `wanted` names; what is refused says so by its status and in words. */
static size_t fill(surface *s, const char *name, tacit_neighbours neighbours,
                   bool (*wanted)(point p))
{
    size_t asked = 0;
    point p = {0, 0, 0, 0};
    do {
        tacit_error err = {.message = ""};
        const tacit_event e = event_at(p, neighbours);
        double epsilon = -1;
        *at(s, p) = NAN;
        if (!wanted(p))
            continue;
        tacit_status status =
            tacit_accountant_epsilon(find(name), &e, 1, deltas[p.delta], &epsilon, NULL, &err);
        if (status == TACIT_REFUSED && strlen(err.message) > 20)
            continue;
        assert_int_equal(status, TACIT_OK);
        if (!(epsilon >= 0))
            fail_msg("%s: sigma %g q %g steps %g delta %g: %g", name, e.sigma, e.q, (double)e.count,
                     deltas[p.delta], epsilon);
        assert_true(e.q > 0 || epsilon == 0);
        *at(s, p) = epsilon;
        asked++;
    } while (next(&p));
    return asked;
}

/* Along every axis epsilon does not fall, but for `slack` (relative): a grid's excess. */
static void check_monotone(surface *s, const char *name, double slack)
{
    point p = {0, 0, 0, 0};
    do {
        const point before[] = {{p.sigma - 1, p.rate, p.steps, p.delta},
                                {p.sigma, p.rate - 1, p.steps, p.delta},
                                {p.sigma, p.rate, p.steps - 1, p.delta},
                                {p.sigma, p.rate, p.steps, p.delta - 1}};
        const int index[] = {p.sigma, p.rate, p.steps, p.delta};
        for (int i = 0; i < 4; i++)
            if (index[i] > 0 && *at(s, p) < *at(s, before[i]) * (1 - slack))
                fail_msg("%s: sigma %g q %g steps %g delta %g: %.17g below its neighbour's %.17g",
                         name, sigmas[p.sigma], rates[p.rate], (double)steps[p.steps],
                         deltas[p.delta], *at(s, p), *at(s, before[i]));
    } while (next(&p));
}

/* The exact epsilon of one step: delta = q delta_Gauss(log(1 + (e^epsilon - 1) / q)). */
static double exact_one_step(double sigma, double q, double delta)
{
    double low = 0, high = 1, target = log(delta / q);
    for (int i = 0; i < 2200 && high - low > 1e-15 * high; i++) {
        double middle = low == 0 && high >= 1 && i < 60 ? high : (low + high) / 2;
        double loss = middle < 600 ? log1p(expm1(middle) / q) : middle - log(q);
        if (tacit_gaussian_log_delta(loss, 1 / sigma) > target) {
            low = middle;
            high = fmax(high, 2 * middle);
        } else {
            high = middle;
        }
    }
    return low;
}

/* NAN where no exact value is known. */
static double exact_at(point p)
{
    double sigma = sigmas[p.sigma], q = rates[p.rate], delta = deltas[p.delta];
    if (q == 1)
        return tacit_gaussian_epsilon(delta, sqrt((double)steps[p.steps]) / sigma) * (1 - 1e-9);
    if (q == 0 || steps[p.steps] != 1)
        return NAN;
    return delta >= q ? 0 : exact_one_step(sigma, q, delta) * (1 - 1e-9);
}

static size_t check_not_below_exact(surface *s, const char *name)
{
    size_t known = 0;
    point p = {0, 0, 0, 0};
    do {
        double exact = exact_at(p), found = *at(s, p);
        if (isnan(exact) || isnan(found))
            continue;
        known++;
        if (!(found >= exact))
            fail_msg("%s: sigma %g q %g steps %g delta %g: %.17g below the exact %.17g", name,
                     sigmas[p.sigma], rates[p.rate], (double)steps[p.steps], deltas[p.delta], found,
                     exact);
    } while (next(&p));
    return known;
}

static void test_the_exact_value_is_the_published_one(void **state)
{
    (void)state; /* one query at sigma 0.67379294682, q 0.01, delta 1e-5 costs 1 */
    assert_true(fabs(exact_one_step(0.67379294682, 0.01, 1e-5) - 1) < 1e-6);
    /* 60 digits: sigma 0.001, q 0.01; sigma 1000, q 1e-6. */
    assert_true(fabs(exact_one_step(1e-3, 0.01, 1e-5) / 503084.6286782528 - 1) < 1e-9);
    assert_true(fabs(exact_one_step(1e3, 1e-6, 1e-15) / 4.4351572030818308e-9 - 1) < 1e-6);
}

/* The reference's series has up to 1000 terms an order. */
static bool compat_sample(point p)
{
    return p.steps == 2 && p.delta == 1;
}

static void test_rdp(void **state)
{
    (void)state;
    static surface s, compat;
    assert_int_equal(fill(&s, "rdp", TACIT_ADD_REMOVE, everything),
                     SIGMAS * RATES * STEPS * DELTAS);
    check_monotone(&s, "rdp", 1e-12);
    assert_true(check_not_below_exact(&s, "rdp") > 100);
    fill(&compat, "rdp-compat", TACIT_ADD_REMOVE, compat_sample);
    check_monotone(&compat, "rdp-compat", 1e-9);
    point p = {0, 0, 0, 0};
    do
        if (sigmas[p.sigma] >= 0.05 && *at(&compat, p) < *at(&s, p) * (1 - 1e-9) - 1e-12)
            fail_msg("sigma %g q %g steps %g delta %g: compat %.17g below the true %.17g",
                     sigmas[p.sigma], rates[p.rate], (double)steps[p.steps], deltas[p.delta],
                     *at(&compat, p), *at(&s, p));
    while (next(&p));
}

static void test_analytic(void **state)
{
    (void)state;
    static surface s;
    assert_int_equal(fill(&s, "analytic", TACIT_ADD_REMOVE, everything),
                     SIGMAS * 2 * STEPS * DELTAS); /* q = 0 and q = 1 */
    check_monotone(&s, "analytic", 0);
}

static void test_pld(void **state)
{
    (void)state;
    static surface pld, rdp;
    size_t asked = fill(&pld, "pld", TACIT_ADD_REMOVE, pld_sample);
    print_message("points: %zu\n", asked);
    assert_true(asked > LEAST_ASKED);
    check_monotone(&pld, "pld", 2e-3);
    assert_true(check_not_below_exact(&pld, "pld") > LEAST_KNOWN);
    fill(&rdp, "rdp", TACIT_ADD_REMOVE, everything);
    point p = {0, 0, 0, 0};
    do
        if (*at(&pld, p) > *at(&rdp, p) * (1 + 1e-3))
            fail_msg("sigma %g q %g steps %g delta %g: pld %.17g above rdp's %.17g",
                     sigmas[p.sigma], rates[p.rate], (double)steps[p.steps], deltas[p.delta],
                     *at(&pld, p), *at(&rdp, p));
    while (next(&p));
}

/* Replacing a unit is removing one and adding another: no cheaper than either. */
static bool replace_sample(point p)
{
    return rates[p.rate] == 1 || rates[p.rate] == 0 ||
           (p.sigma == 2 && p.delta == 2 && p.steps != 1);
}

static void test_replace_one(void **state)
{
    (void)state;
    static surface add, replace;
    fill(&add, "pld", TACIT_ADD_REMOVE, replace_sample);
    fill(&replace, "pld", TACIT_REPLACE_ONE, replace_sample);
    check_monotone(&replace, "pld", 2e-3);
    point p = {0, 0, 0, 0};
    do
        if (*at(&replace, p) < *at(&add, p) * (1 - 1e-3))
            fail_msg("sigma %g q %g steps %g delta %g: replace-one %.17g below add-remove's %.17g",
                     sigmas[p.sigma], rates[p.rate], (double)steps[p.steps], deltas[p.delta],
                     *at(&replace, p), *at(&add, p));
    while (next(&p));
    assert_int_equal(fill(&replace, "rdp", TACIT_REPLACE_ONE, everything),
                     SIGMAS * 2 * STEPS *
                         DELTAS); /* between 0 and 1 it has no bound, and says so */
}

/* Ends of the ranges: a clear error one step beyond. */
/* Rates that differ in the ninth digit, a hundred million runs: what is lost in one loss adds up.
 */
static void test_close_tiny_rates_keep_their_order(void **state)
{
    static const double close[] = {1e-9, 1.0000000272e-9, 1.0000003603e-9, 1.000001e-9};
    double before = 0;
    (void)state;
    for (size_t i = 0; i < sizeof close / sizeof close[0]; i++) {
        const tacit_event event = {TACIT_ADD_REMOVE, 1, close[i], 100000000};
        double epsilon;
        tacit_error err;
        assert_int_equal(
            tacit_accountant_epsilon(find("pld"), &event, 1, 1e-9, &epsilon, NULL, &err), TACIT_OK);
        assert_true(epsilon > before);
        before = epsilon;
    }
}

static void test_beyond_the_edges(void **state)
{
    (void)state;
    const tacit_event bad[] = {
        {TACIT_ADD_REMOVE, 9e-4, 0.1, 1},      {TACIT_ADD_REMOVE, 2e9, 0.1, 1},
        {TACIT_ADD_REMOVE, 1, -1e-9, 1},       {TACIT_ADD_REMOVE, 1, 1 + 1e-15, 1},
        {TACIT_ADD_REMOVE, 1, NAN, 1},         {TACIT_ADD_REMOVE, NAN, 0, 1},
        {TACIT_ADD_REMOVE, INFINITY, 0.1, 1},  {TACIT_ADD_REMOVE, 0, 0, 1},
        {TACIT_ADD_REMOVE, 1, 0.1, 1ull << 41}};
    const char *names[] = {"pld", "rdp", "rdp-compat", "analytic"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int n = 0; n < 4; n++) {
            tacit_error err;
            double epsilon = -1;
            assert_int_equal(
                tacit_accountant_epsilon(find(names[n]), &bad[i], 1, 1e-5, &epsilon, NULL, &err),
                TACIT_BAD_INPUT);
            assert_true(epsilon == -1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_exact_value_is_the_published_one),
        cmocka_unit_test(test_rdp),
        cmocka_unit_test(test_analytic),
        cmocka_unit_test(test_pld),
        cmocka_unit_test(test_replace_one),
        cmocka_unit_test(test_close_tiny_rates_keep_their_order),
        cmocka_unit_test(test_beyond_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
