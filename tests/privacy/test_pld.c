#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "golden_rows.h"
#include "privacy/accountant.h"
#include "privacy/gaussian.h"
#include "privacy/loss_grid.h"
#include "privacy/pld.h"
#include "privacy/rdp.h"

static void assert_close(const char *what, double found, double expected, double relative,
                         double absolute)
{
    double allowed = fmax(relative * fabs(expected), absolute);
    if (!(fabs(found - expected) <= allowed))
        fail_msg("%s: expected %.17g, found %.17g, off by %g", what, expected, found,
                 found - expected);
}

/* A grid of that step. */
#define AT(step) (&(const tacit_pld_grid){step, 0})

static double phi(double x)
{
    return exp(tacit_log_normal_cdf(x));
}

/* --- One event's grid. --- */

#define TAIL (exp(-50) / 2)

/* The exact delta(epsilon) of the three pairs, from the half-line x < x0 where the loss exceeds
 * epsilon; x0 by bisection of the loss written as in the definition. */
static double definition_loss(loss_pair pair, double x, double s, double q)
{
    double s2 = s * s, left = log1p(q * expm1((-0.5 - x) / s2));
    double right = log1p(q * expm1((x - 0.5) / s2));
    return pair == LOSS_REMOVE ? left : pair == LOSS_ADD ? -right : left - right;
}

static double definition_delta(loss_pair pair, double epsilon, double s, double q)
{
    double low = -40 * s, high = 40 * s;
    for (int i = 0; i < 200; i++) {
        double x = (low + high) / 2;
        *(definition_loss(pair, x, s, q) > epsilon ? &low : &high) = x;
    }
    double plain = phi(low / s);
    double upper = pair == LOSS_ADD ? plain : (1 - q) * plain + q * phi((low + 1) / s);
    double lower = pair == LOSS_REMOVE ? plain : (1 - q) * plain + q * phi((low - 1) / s);
    return fmax(0, upper - exp(epsilon) * lower);
}

/* Keeping the mass under both distributions keeps delta exactly at every grid point. */
static void test_grid_keeps_delta_at_its_points(void **state)
{
    (void)state;
    const double settings[][3] = {
        {1, 0.1, 0.05}, {0.5, 0.3, 0.2}, {2, 0.01, 0.001}, {4, 0.9, 0.01}, {0.8, 0.001, 0.1}};
    tacit_error err;
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++)
        for (int pair = LOSS_REMOVE; pair <= LOSS_REPLACE; pair++) {
            double s = settings[k][0], q = settings[k][1], step = settings[k][2];
            const loss_shape shape = {(loss_pair)pair, s, q, step, TAIL};
            loss_grid g;
            assert_int_equal(loss_grid_init(&g, &shape, &err), TACIT_OK);
            assert_true(loss_grid_points(&shape) == (double)g.n);
            double total = g.infinite, above = g.infinite, tail = 0, shrink = exp(-step);
            for (size_t i = g.n; i-- > 0;) {
                double epsilon = step * (double)(g.lowest + (int64_t)i);
                double exact = definition_delta((loss_pair)pair, epsilon, s, q);
                if (i > 0 && epsilon > -2)
                    assert_close("delta", above - tail, exact, 1e-9, 1e-15);
                assert_true(g.mass[i] >= 0);
                above += g.mass[i];
                tail = (tail + g.mass[i]) * shrink;
                total += g.mass[i];
            }
            assert_close("mass", total, 1, 1e-12, 0);
            loss_grid_fini(&g);
        }
}

/* Both at once are the same as each alone. */
static void test_grids_of_both_directions(void **state)
{
    (void)state;
    tacit_error err;
    const loss_shape shapes[] = {{LOSS_REMOVE, 1, 0.1, 0.05, TAIL},
                                 {LOSS_REMOVE, 0.02, 0.3, 1, TAIL}};
    for (size_t k = 0; k < 2; k++) {
        loss_shape other = shapes[k];
        loss_grid remove, add, alone;
        assert_int_equal(loss_grid_init_both(&remove, &add, &shapes[k], &err), TACIT_OK);
        for (other.pair = LOSS_REMOVE; other.pair <= LOSS_ADD; other.pair++) {
            const loss_grid *g = other.pair == LOSS_ADD ? &add : &remove;
            assert_int_equal(loss_grid_init(&alone, &other, &err), TACIT_OK);
            assert_true(alone.n == g->n && alone.lowest == g->lowest);
            assert_memory_equal(alone.mass, g->mass, g->n * sizeof *g->mass);
            assert_true(alone.infinite == g->infinite);
            loss_grid_fini(&alone);
        }
        loss_grid_fini(&remove);
        loss_grid_fini(&add);
    }
    const loss_shape vast = {LOSS_REMOVE, 1, 0.1, 1e-9, TAIL};
    loss_grid remove, add;
    assert_int_equal(loss_grid_init_both(&remove, &add, &vast, &err), TACIT_REFUSED);
}

/* The masses that dp-accounting's own tests state for its "connect the dots" (interval 1, both ends
 * cut at 0.9 standard deviations): privacy_loss_distribution_test.py of version 0.6.0. The noise is
 * relative to the sensitivity. */
static void test_coarse_grids_are_the_published_ones(void **state)
{
    (void)state;
    const struct {
        loss_pair pair;
        double s, q;
        int lowest, n;
        double mass[9], infinite;
    } cases[] = {
        {LOSS_REMOVE,
         1,
         1,
         -2,
         5,
         {0.022697115, 0.126282046, 0.319116756, 0.343270190, 0.167710257},
         0.020923636},
        {LOSS_REMOVE,
         0.5,
         1,
         -4,
         9,
         {0.002864453, 0.008799009, 0.026438071, 0.062480239, 0.116146963, 0.169838899, 0.195352391,
          0.176732821, 0.156393834},
         0.084953319},
        {LOSS_REPLACE,
         2,
         1,
         -1,
         4,
         {0.148979161, 0.319116756, 0.343270190, 0.167710257},
         0.020923636},
        {LOSS_REPLACE,
         1,
         1,
         -2,
         7,
         {0.038101533, 0.062480239, 0.116146963, 0.169838899, 0.195352391, 0.176732821,
          0.156393834},
         0.084953319},
        {LOSS_ADD,
         1,
         0.8,
         -2,
         4,
         {0.015193708, 0.115544309, 0.398104072, 0.448021700},
         0.023136210},
        {LOSS_REMOVE,
         1,
         0.8,
         -1,
         4,
         {0.164817973, 0.398104072, 0.314081995, 0.112267164},
         0.010728796},
        {LOSS_ADD, 1, 0.6, -2, 4, {0.008521215, 0.099555157, 0.528456643, 0.363466985}, 0},
        {LOSS_REMOVE,
         1,
         0.6,
         -1,
         4,
         {0.133712031, 0.528456643, 0.270618975, 0.062963737},
         0.004248614},
        {LOSS_ADD,
         0.5,
         0.4,
         -3,
         5,
         {0.003524394, 0.012224135, 0.052519150, 0.499732772, 0.431999550},
         0},
        {LOSS_REMOVE,
         0.5,
         0.4,
         -1,
         5,
         {0.158923753, 0.499732772, 0.142761851, 0.090324817, 0.070789342},
         0.037467466},
        {LOSS_ADD,
         0.5,
         0.2,
         -3,
         5,
         {0.001232367, 0.005650510, 0.038917231, 0.738200118, 0.215999775},
         0},
        {LOSS_REMOVE,
         0.5,
         0.2,
         -1,
         5,
         {0.079461876, 0.738200118, 0.105788001, 0.041751932, 0.024752755},
         0.010045317},
        {LOSS_REPLACE,
         1,
         0.8,
         -2,
         6,
         {0.040537836, 0.094389899, 0.183992937, 0.256578347, 0.243537311, 0.152221152},
         0.028742519},
        {LOSS_REPLACE,
         1,
         0.6,
         -1,
         4,
         {0.148653245, 0.293079816, 0.332685221, 0.194074972},
         0.031506747},
        {LOSS_REPLACE,
         0.5,
         0.4,
         -1,
         6,
         {0.101421687, 0.415356732, 0.222238357, 0.111233661, 0.073288168, 0.052530086},
         0.023931308},
        {LOSS_REPLACE,
         0.5,
         0.2,
         -1,
         5,
         {0.071054043, 0.666991966, 0.171170848, 0.048971483, 0.029249326},
         0.012562334},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        tacit_error err;
        loss_grid g;
        const loss_shape shape = {cases[k].pair, cases[k].s, cases[k].q, 1, phi(-0.9)};
        assert_int_equal(loss_grid_init(&g, &shape, &err), TACIT_OK);
        assert_int_equal(g.lowest, cases[k].lowest);
        assert_int_equal(g.n, cases[k].n);
        for (int i = 0; i < cases[k].n; i++)
            assert_close("mass", g.mass[i], cases[k].mass[i], 0, 2e-9);
        assert_close("infinite mass", g.infinite, cases[k].infinite, 0, 2e-9);
        loss_grid_fini(&g);
    }
}

/* --- Composition. --- */

/* Naive twin: n-fold convolution by the definition, in long double, of the same grid. */
typedef struct naive_law {
    long double *mass, infinite;
    size_t size;
    int64_t lowest;
    double step;
} naive_law;

static naive_law naive_compose(loss_pair pair, double s, double q, int n, double step)
{
    tacit_error err;
    const loss_shape shape = {pair, s, q, step, TAIL};
    loss_grid g;
    assert_int_equal(loss_grid_init(&g, &shape, &err), TACIT_OK);
    size_t size = (g.n - 1) * (size_t)n + 1;
    long double *sum = calloc(size, sizeof *sum), *next = calloc(size, sizeof *next);
    assert_true(sum && next);
    sum[0] = 1;
    for (int k = 0; k < n; k++) {
        for (size_t i = 0; i < size; i++)
            next[i] = 0;
        for (size_t i = 0; i <= (g.n - 1) * (size_t)k; i++)
            for (size_t j = 0; j < g.n; j++)
                next[i + j] += sum[i] * g.mass[j];
        long double *swap = sum;
        sum = next;
        next = swap;
    }
    naive_law law = {sum, -expm1l(n * log1pl(-g.infinite)), size, n * g.lowest, step};
    free(next);
    loss_grid_fini(&g);
    return law;
}

static double naive_delta(const naive_law *law, double epsilon)
{
    long double delta = law->infinite;
    for (size_t i = 0; i < law->size; i++) {
        long double loss = law->step * (long double)(law->lowest + (int64_t)i);
        if (loss > epsilon)
            delta -= law->mass[i] * expm1l(epsilon - loss);
    }
    return (double)delta;
}

static void check_against(const tacit_event *e, double step, const naive_law *a, const naive_law *b)
{
    tacit_error err;
    for (double epsilon = 0; epsilon < 3; epsilon += 0.37) {
        double found, expected = fmax(naive_delta(a, epsilon), naive_delta(b, epsilon));
        assert_int_equal(tacit_pld_delta(e, 1, epsilon, AT(step), &found, &err), TACIT_OK);
        assert_close("delta", found, expected, 3e-9, 1e-18);
        if (!(found >= expected))
            fail_msg("sigma %g q %g epsilon %g: %.17g below %.17g", e->sigma, e->q, epsilon, found,
                     expected);
    }
}

/* Rare large losses: the law has two humps, and the epsilon sought lies in the valley between them,
 * where what a transform leaves is large beside the masses. */
static void test_valleys_are_not_undercharged(void **state)
{
    (void)state;
    tacit_error err;
    const double q = 1e-4, step = 0.01;
    for (int n = 1; n <= 3; n++) {
        const tacit_event e = {TACIT_ADD_REMOVE, 1, q, (uint64_t)n};
        naive_law remove = naive_compose(LOSS_REMOVE, 1, q, n, step);
        for (double epsilon = 0.015; epsilon < 0.4; epsilon *= 1.3) {
            double found, expected = naive_delta(&remove, epsilon);
            assert_int_equal(tacit_pld_delta(&e, 1, epsilon, AT(step), &found, &err), TACIT_OK);
            if (!(found >= expected && found <= expected * 1.01 + 2e-17))
                fail_msg("%d runs, epsilon %g: expected %.17g, found %.17g", n, epsilon, expected,
                         found);
        }
        free(remove.mass);
    }
}

static void test_composition_against_naive_convolution(void **state)
{
    (void)state;
    const struct {
        double s, q, step;
        int n;
    } runs[] = {{1, 0.1, 0.02, 6}, {0.7, 0.5, 0.05, 4}, {2, 0.05, 0.002, 9}, {1.5, 0.9, 0.03, 3}};
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
        double s = runs[k].s, q = runs[k].q, step = runs[k].step;
        tacit_event e = {TACIT_ADD_REMOVE, s, q, (uint64_t)runs[k].n};
        naive_law remove = naive_compose(LOSS_REMOVE, s, q, runs[k].n, step);
        naive_law add = naive_compose(LOSS_ADD, s, q, runs[k].n, step);
        naive_law replace = naive_compose(LOSS_REPLACE, s, q, runs[k].n, step);
        check_against(&e, step, &remove, &add);
        e.neighbours = TACIT_REPLACE_ONE;
        check_against(&e, step, &replace, &replace);
        free(remove.mass);
        free(add.mass);
        free(replace.mass);
    }
}

/* delta(epsilon(delta)) comes back, from ordinary to very small deltas. */
static void test_epsilon_and_delta_are_inverse(void **state)
{
    (void)state;
    tacit_error err;
    tacit_event e = {TACIT_ADD_REMOVE, 1.1, 0.02, 300};
    double last = 0;
    for (double delta = 0.01; delta > 1e-17; delta /= 100) {
        double epsilon, back;
        assert_int_equal(tacit_pld_epsilon(&e, 1, delta, AT(1e-3), &epsilon, &err), TACIT_OK);
        assert_true(epsilon > last);
        last = epsilon;
        assert_int_equal(tacit_pld_delta(&e, 1, epsilon, AT(1e-3), &back, &err), TACIT_OK);
        assert_close("delta", back, delta, 1e-7, 0);
    }
}

/* What lies beyond a grid that is cut early may be infinite; the default cuts later for a small
 * delta, so that a million runs have an epsilon at any. */
static void test_tails_follow_delta(void **state)
{
    (void)state;
    tacit_error err;
    tacit_event e = {TACIT_ADD_REMOVE, 1, 0.5, 10};
    const tacit_pld_grid early = {1e-3, 1e-6}, bad = {0, 0.3};
    double epsilon, last = 0;
    assert_int_equal(tacit_pld_epsilon(&e, 1, 1e-9, &early, &epsilon, &err), TACIT_OK);
    assert_true(isinf(epsilon));
    assert_int_equal(tacit_pld_epsilon(&e, 1, 1e-4, &early, &epsilon, &err), TACIT_OK);
    assert_int_equal(tacit_pld_epsilon(&e, 1, 1e-4, AT(1e-3), &last, &err), TACIT_OK);
    assert_true(epsilon >= last * (1 - 1e-9) && epsilon < 1.1 * last);
    assert_int_equal(tacit_pld_epsilon(&e, 1, 1e-4, &bad, &epsilon, &err), TACIT_BAD_INPUT);
    e = (tacit_event){TACIT_ADD_REMOVE, 1, 0.01, 1000000};
    for (double delta = 1e-10, previous = 0; delta > 1e-60; delta *= delta, previous = epsilon) {
        assert_int_equal(tacit_pld_epsilon(&e, 1, delta, AT(1e-3), &epsilon, &err), TACIT_OK);
        assert_true(epsilon > previous && epsilon < 1000);
    }
}

/* --- Golden rows. TACIT_GOLDEN_STRIDE=1 checks every row (minutes); the default takes a sample. */

static int golden_stride(int otherwise)
{
    const char *text = getenv("TACIT_GOLDEN_STRIDE");
    return text ? atoi(text) : otherwise;
}

typedef void golden_check(const golden_row *row, const tacit_event *events, size_t n, double delta);

static int each_golden_row(int stride, golden_check *check)
{
    FILE *file = golden_open("dp_accounting.csv");
    assert_non_null(file);
    golden_row row;
    int index = 0, checked = 0;
    assert_true(golden_next(file, &row));
    while (golden_next(file, &row)) {
        if (isnan(golden_number(&row, EPS_PLD)) || index++ % stride != 0)
            continue;
        tacit_event events[GOLDEN_EVENTS];
        bool calibration = strcmp(row.cell[KIND], "calibration") == 0;
        size_t n = golden_events(&row, events, calibration ? golden_number(&row, SIGMA_PLD) : NAN);
        check(&row, events, n, golden_number(&row, DELTA));
        checked++;
    }
    fclose(file);
    return checked;
}

/* The exact epsilon where one is known, else -1. */
static double exact_of(const golden_row *row)
{
    if (strcmp(row->cell[KIND], "calibration") == 0)
        return -1;
    double exact = golden_number(row, EPS_EXACT_1STEP);
    exact = isnan(exact) ? golden_number(row, EPS_ANALYTIC) : exact;
    return isnan(exact) ? -1 : exact;
}

/* At delta 1e-8 the reference is off by its own rounding. Where that is more than 1e-5, this is
 * what its masses give (tests/golden/make_pld_tilted.py). */
static double reference_epsilon(const golden_row *row)
{
    if (strcmp(row->cell[CASE_ID], "G0105") == 0)
        return 3.5796419207754635;
    if (strcmp(row->cell[CASE_ID], "G0212") == 0)
        return 1.388464299688412;
    return golden_number(row, EPS_PLD);
}

/* What the reference's rounding leaves of its values. */
static double reference_rounding(double delta)
{
    return delta > 3e-6 ? 3e-7 : delta > 3e-7 ? 1e-6 : 1e-5;
}

/* At the reference's step: its values. */
static void check_reference_step(const golden_row *row, const tacit_event *events, size_t n,
                                 double delta)
{
    tacit_error err;
    double epsilon, expected = reference_epsilon(row);
    assert_int_equal(tacit_pld_epsilon(events, n, delta, AT(1e-4), &epsilon, &err), TACIT_OK);
    assert_close(row->cell[CASE_ID], epsilon, expected, reference_rounding(delta), 0);
    assert_true(epsilon >= exact_of(row));
}

static void test_golden_rows_at_the_reference_step(void **state)
{
    (void)state;
    int rows = each_golden_row(golden_stride(67), check_reference_step);
    print_message("rows: %d\n", rows);
    assert_true(rows >= 11);
}

/* By default: not above the reference (but for its own rounding), not below the exact value. */
static void check_default_step(const golden_row *row, const tacit_event *events, size_t n,
                               double delta)
{
    tacit_error err;
    double epsilon, reference = reference_epsilon(row), exact = exact_of(row);
    assert_int_equal(tacit_pld_epsilon(events, n, delta, NULL, &epsilon, &err), TACIT_OK);
    double slack = delta > 3e-6 ? 1e-8 : reference_rounding(delta);
    if (!(epsilon <= reference * (1 + slack)))
        fail_msg("%s: %.17g above the reference's %.17g", row->cell[CASE_ID], epsilon, reference);
    if (!(epsilon >= exact * (1 - 3e-14)))
        fail_msg("%s: %.17g below the exact %.17g", row->cell[CASE_ID], epsilon, exact);
    if (exact > 0)
        assert_true(epsilon <= exact * (1 + 3e-4));
}

static void test_golden_rows_at_the_default_step(void **state)
{
    (void)state;
    int rows = each_golden_row(golden_stride(71), check_default_step);
    print_message("rows: %d\n", rows);
    assert_true(rows >= 11);
}

/* Which grid gives what: every row of the reference's study of its interval. */
static void test_golden_intervals(void **state)
{
    (void)state;
    FILE *file = golden_open("disc_sensitivity.csv");
    char line[512];
    int index = 0, checked = 0, stride = golden_stride(9);
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        double c[7];
        assert_int_equal(sscanf(line, "%lf,%lf,%lf,%lf,%lf,%lf,%lf", c, c + 1, c + 2, c + 3, c + 4,
                                c + 5, c + 6),
                         7);
        if (index++ % stride != 0)
            continue;
        const tacit_event e = {TACIT_ADD_REMOVE, c[0], c[1], (uint64_t)c[2]};
        const double deltas[] = {1e-5, 1e-6, 1e-8};
        for (int i = 0; i < 3; i++) {
            tacit_error err;
            double found;
            assert_int_equal(tacit_pld_epsilon(&e, 1, deltas[i], AT(c[3]), &found, &err), TACIT_OK);
            assert_close(line, found, c[4 + i], i < 2 ? 1e-6 : 1e-5, 0);
        }
        checked++;
    }
    fclose(file);
    print_message("rows: %d\n", checked);
    assert_true(checked >= 5);
}

/* 1000 Gaussians: the search meets noise so small that its grid is refused. */
#define BEGINS_REFUSED "C0008"

/* The least noise for a target epsilon, at the reference's step, to its tolerance of 1e-6 in sigma;
 * by default never more than that. */
static void test_golden_calibrations(void **state)
{
    (void)state;
    const tacit_accountant *a;
    tacit_accountant reference;
    const tacit_accountant_options options = {.grid = {1e-4, 0}};
    tacit_error err;
    FILE *file = golden_open("dp_accounting.csv");
    golden_row row;
    int index = 0, checked = 0, stride = golden_stride(5);
    assert_non_null(file);
    assert_int_equal(tacit_accountant_find(&a, "pld", &err), TACIT_OK);
    assert_int_equal(tacit_accountant_with(&reference, a, &options, &err), TACIT_OK);
    while (golden_next(file, &row)) {
        double expected = golden_number(&row, SIGMA_PLD), sigma, least;
        if (strcmp(row.cell[KIND], "calibration") != 0)
            continue;
        if (index++ % stride != 0 && strcmp(row.cell[CASE_ID], BEGINS_REFUSED) != 0)
            continue;
        double target = golden_number(&row, TARGET_EPS), delta = golden_number(&row, DELTA);
        tacit_event e[GOLDEN_EVENTS];
        assert_int_equal(golden_events(&row, e, 1), 1);
        assert_int_equal(tacit_accountant_calibrate(&reference, &e[0], target, delta, &sigma, &err),
                         TACIT_OK);
        assert_close(row.cell[CASE_ID], sigma, expected, 0, 1.1e-6);
        assert_int_equal(tacit_accountant_calibrate(a, &e[0], target, delta, &least, &err),
                         TACIT_OK);
        assert_true(least <= sigma * (1 + 1e-8));
        checked++;
    }
    fclose(file);
    print_message("rows: %d\n", checked);
    assert_true(checked >= 4);
}

static void test_published_values(void **state)
{
    (void)state;
    tacit_error err;
    double found;
    tacit_event e = {TACIT_ADD_REMOVE, 0.5, 0.2, 3};
    assert_int_equal(tacit_pld_delta(&e, 1, 1, NULL, &found, &err), TACIT_OK);
    assert_close("delta(1)", found, 0.155933, 1e-5, 0);
    const struct {
        double sigma, q;
        uint64_t steps;
        double delta, epsilon, tolerance;
    } runs[] = {
        {0.7, 1, 2, 1e-5, 10.1224946, 1e-7},     {0.35, 1, 2, 1e-5, 24.7160779, 1e-7},
        {0.7, 0.01, 120, 1e-5, 2.4612381, 1e-7}, {0.35, 0.01, 120, 1e-5, 18.6977407, 1e-7},
        {0.67379294682, 0.01, 1, 1e-5, 1, 1e-6}, {3.20956502598 / 6, 0.001, 25, 1e-5, 1, 1e-5},
        {1, 1, 5, 1e-6, 12.595, 1e-4},           {1, 0.0064, 782, 1e-6, 1.199, 1e-3},
        {4, 0.01, 10000, 1e-5, 0.9470, 1e-3},
    };
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        e = (tacit_event){TACIT_ADD_REMOVE, runs[i].sigma, runs[i].q, runs[i].steps};
        assert_int_equal(tacit_pld_epsilon(&e, 1, runs[i].delta, NULL, &found, &err), TACIT_OK);
        assert_close("epsilon", found, runs[i].epsilon, runs[i].tolerance, 0);
    }
}

/* Merging is sound: k events at once, one by one, or split differ by rounding alone; the tight
 * accountant is not above the Renyi one. */
static void test_grouping_and_order_do_not_matter(void **state)
{
    (void)state;
    tacit_error err;
    double whole, split;
    const tacit_event once[] = {{TACIT_ADD_REMOVE, 1, 0.02, 60}, {TACIT_ADD_REMOVE, 3, 1, 2}};
    const tacit_event parts[] = {{TACIT_ADD_REMOVE, 3, 1, 1},
                                 {TACIT_ADD_REMOVE, 1, 0.02, 25},
                                 {TACIT_ADD_REMOVE, 3, 1, 1},
                                 {TACIT_ADD_REMOVE, 1, 0.02, 35},
                                 {TACIT_ADD_REMOVE, 1, 0.5, 0}};
    assert_int_equal(tacit_pld_epsilon(once, 2, 1e-5, AT(1e-3), &whole, &err), TACIT_OK);
    assert_int_equal(tacit_pld_epsilon(parts, 5, 1e-5, AT(1e-3), &split, &err), TACIT_OK);
    assert_close("epsilon", split, whole, 1e-8, 0);
    assert_int_equal(tacit_pld_epsilon(once, 1, 1e-5, AT(1e-3), &whole, &err), TACIT_OK);
    const tacit_event mixed[] = {parts[3], parts[4], parts[1]};
    assert_int_equal(tacit_pld_epsilon(mixed, 3, 1e-5, AT(1e-3), &split, &err), TACIT_OK);
    assert_true(split == whole);
    assert_int_equal(tacit_pld_epsilon(once, 2, 1e-5, AT(1e-3), &whole, &err), TACIT_OK);
    tacit_rdp account = {0};
    assert_int_equal(tacit_rdp_add(&account, &once[0], TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_int_equal(tacit_rdp_add(&account, &once[1], TACIT_RDP_TRUE, &err), TACIT_OK);
    assert_true(whole < tacit_rdp_epsilon(&account, 1e-5, NULL));
}

static void test_edges(void **state)
{
    (void)state;
    tacit_error err;
    double found;
    tacit_event e = {TACIT_ADD_REMOVE, 1, 0.1, 0};
    assert_int_equal(tacit_pld_epsilon(NULL, 0, 1e-5, NULL, &found, &err), TACIT_OK);
    assert_true(found == 0);
    assert_int_equal(tacit_pld_epsilon(&e, 1, 1e-5, NULL, &found, &err), TACIT_OK);
    assert_true(found == 0);
    assert_int_equal(tacit_pld_delta(&e, 1, 1, NULL, &found, &err), TACIT_OK);
    assert_true(found == 0);
    e.count = 1;
    assert_int_equal(tacit_pld_epsilon(&e, 1, 1e-5, AT(2), &found, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_pld_epsilon(&e, 1, 1e-5, AT(1e-9), &found, &err), TACIT_REFUSED);
    assert_int_equal(tacit_pld_epsilon(&e, 1, 0, NULL, &found, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_pld_delta(&e, 1, -1, NULL, &found, &err), TACIT_BAD_INPUT);
    const tacit_event mixed[] = {{TACIT_ADD_REMOVE, 1, 0.1, 1}, {TACIT_REPLACE_ONE, 1, 0.1, 1}};
    assert_int_equal(tacit_pld_epsilon(mixed, 2, 1e-5, NULL, &found, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_pld_epsilon(&e, 1, 0.5, NULL, &found, &err), TACIT_OK);
    assert_true(found == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid_keeps_delta_at_its_points),
        cmocka_unit_test(test_grids_of_both_directions),
        cmocka_unit_test(test_coarse_grids_are_the_published_ones),
        cmocka_unit_test(test_composition_against_naive_convolution),
        cmocka_unit_test(test_valleys_are_not_undercharged),
        cmocka_unit_test(test_epsilon_and_delta_are_inverse),
        cmocka_unit_test(test_tails_follow_delta),
        cmocka_unit_test(test_golden_rows_at_the_reference_step),
        cmocka_unit_test(test_golden_rows_at_the_default_step),
        cmocka_unit_test(test_golden_intervals),
        cmocka_unit_test(test_golden_calibrations),
        cmocka_unit_test(test_published_values),
        cmocka_unit_test(test_grouping_and_order_do_not_matter),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
