#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/loss_sum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Randomized response: loss +step with probability p, else -step; `infinite` besides. Its sums have
 * a binomial law, which needs no transform. */
static loss_grid coin(double step, double p, double infinite)
{
    loss_grid g = {.step = step, .lowest = -1, .n = 3, .infinite = infinite};
    g.mass = calloc(3, sizeof *g.mass);
    assert_non_null(g.mass);
    g.mass[0] = (1 - infinite) * (1 - p);
    g.mass[2] = (1 - infinite) * p;
    return g;
}

/* Loss 0.1 or -0.1, and 6 with a probability of p. */
static loss_grid rare(double p)
{
    loss_grid g = {.step = 0.1, .lowest = -1, .n = 62};
    g.mass = calloc(62, sizeof *g.mass);
    assert_non_null(g.mass);
    g.mass[0] = (1 - p) / (1 + exp(0.1));
    g.mass[2] = (1 - p) / (1 + exp(-0.1));
    g.mass[61] = p;
    return g;
}

static double ask(loss_grid grid, uint64_t count, const loss_query *q)
{
    tacit_error err;
    loss_sum *s;
    double answer;
    assert_int_equal(loss_sum_new(&s, 1, &err), TACIT_OK);
    assert_int_equal(loss_sum_add(s, &grid, count, &err), TACIT_OK);
    double points = loss_sum_aim(s, q);
    assert_int_equal(loss_sum_solve(s, NULL, points, q, &answer, &err), TACIT_OK);
    loss_sum_free(s);
    return answer;
}

/* Sum of C(n, k) p^k (1 - p)^(n - k) (1 - e^(epsilon - step (2 k - n))) over positive terms. */
static long double binomial_delta(double step, double p, uint64_t n, double epsilon)
{
    long double delta = 0, whole = lgammal((long double)n + 1), up = logl(p), down = log1pl(-p);
    uint64_t first = (uint64_t)ceil(((double)n + epsilon / step) / 2);
    for (uint64_t k = first; k <= n; k++) {
        long double i = (long double)k, rest = (long double)(n - k);
        long double mass = expl(whole - lgammal(i + 1) - lgammal(rest + 1) + i * up + rest * down);
        delta -= mass * expm1l(epsilon - step * (i - rest));
        if (k > first + 10 && mass < delta * 1e-22L)
            break;
    }
    return delta;
}

/* From few losses to a thousand million: never below, and above by no more than the header says
 * (the oracle's own logarithms are off by 1e-19 of ln n!). */
static void test_binomial_sums(void **state)
{
    (void)state;
    const uint64_t counts[] = {1, 10, 1000, 1000000, 1000000000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (double spread = 0.5; spread < 8; spread += 1.5) {
            double n = (double)counts[i], step = 1 / sqrt(n), p = 1 / (1 + exp(-step));
            double epsilon = n * step * tanh(step / 2) + spread;
            const loss_query q = {.epsilon = epsilon};
            long double exact = binomial_delta(step, p, counts[i], epsilon);
            double oracle = 1e-12 + 1e-18 * n * log(n), room = 2 * (1e-9 + 0x1p-44 * n);
            double found = ask(coin(step, p, 0), counts[i], &q);
            if (!(found >= exact * (1 - oracle) && found <= exact * (1 + room + oracle) + 1e-20L))
                fail_msg("%g losses, epsilon %g: expected %.17Lg, found %.17g, off by %Lg", n,
                         epsilon, exact, found, found / exact - 1);
            if (exact == 0)
                continue;
            const loss_query back = {.for_epsilon = true, .delta = (double)exact};
            double again = ask(coin(step, p, 0), counts[i], &back);
            assert_true(again >= epsilon * (1 - oracle) && again <= epsilon * (1 + room + 1e-8));
        }
}

/* Theorem 3.3 of Kairouz, Oh and Viswanath 2015: k mechanisms of (epsilon, delta) at best. */
static double optimal_delta(int k, int i, double epsilon, double delta)
{
    double sum = 0;
    for (int l = 0; l < i; l++)
        sum += exp(lgamma(k + 1) - lgamma(l + 1) - lgamma(k - l + 1) + (k - l) * epsilon) *
               -expm1((2 * l - 2 * i) * epsilon);
    return 1 - pow(1 - delta, k) * (1 - sum / pow(1 + exp(epsilon), k));
}

/* 30 times (1, 0.001): the published 22 for a total delta of 0.06 and 20 for 0.1. */
static void test_optimal_composition(void **state)
{
    (void)state;
    const double p = 1 / (1 + exp(-1));
    for (int i = 0; i <= 15; i++) {
        const loss_query q = {.epsilon = 30 - 2 * i};
        double found = ask(coin(1, p, 0.001), 30, &q), exact = optimal_delta(30, i, 1, 0.001);
        assert_true(found >= exact * (1 - 1e-13) && found <= exact * (1 + 1e-8));
    }
    const loss_query some = {.for_epsilon = true, .delta = 0.06};
    const loss_query more = {.for_epsilon = true, .delta = 0.1};
    double epsilon = ask(coin(1, p, 0.001), 30, &some);
    assert_true(epsilon > 20 && epsilon <= 22);
    epsilon = ask(coin(1, p, 0.001), 30, &more);
    assert_true(epsilon > 18 && epsilon <= 20);
    const loss_query impossible = {.for_epsilon = true, .delta = 0.029}; /* 1 - 0.999^30 = 0.0296 */
    assert_true(isinf(ask(coin(1, p, 0.001), 30, &impossible)));
}

/* Rare large losses: a window made for a guessed epsilon gives what one without gives, or says that
 * the guess was wrong. */
static void test_a_wrong_guess_is_noticed(void **state)
{
    (void)state;
    tacit_error err;
    int wrong = 0, right = 0;
    for (uint64_t count = 1; count <= 41; count += 20)
        for (double delta = 0.3; delta > 1e-12; delta /= 1.7) {
            const loss_query careful = {.for_epsilon = true, .delta = delta};
            const loss_query guess = {.for_epsilon = true, .guess = true, .delta = delta};
            loss_sum *s;
            loss_grid grid = rare(1e-3);
            double expected = ask(rare(1e-3), count, &careful), found;
            assert_int_equal(loss_sum_new(&s, 1, &err), TACIT_OK);
            assert_int_equal(loss_sum_add(s, &grid, count, &err), TACIT_OK);
            double points = loss_sum_aim(s, &guess);
            assert_int_equal(loss_sum_solve(s, NULL, points, &guess, &found, &err), TACIT_OK);
            *(isnan(found) ? &wrong : &right) += 1;
            if (!isnan(found) && !(fabs(found - expected) <= 1e-8 * expected))
                fail_msg("delta %g: expected %.17g, found %.17g", delta, expected, found);
            loss_sum_free(s);
        }
    assert_true(wrong > 0 && right > 0);
}

/* A law that is no number counts for the worst: the highest loss that there is, or delta 1. Alone
 * and convolved. */
static void test_no_number_is_the_worst(void **state)
{
    static const double bad[] = {NAN, INFINITY};
    (void)state;
    for (size_t i = 0; i < 8; i++) {
        tacit_error err;
        loss_sum *sound, *broken;
        double answer;
        uint64_t count = i & 1 ? 40 : 1;
        const loss_query q = {.for_epsilon = i & 2, .delta = 1e-3, .epsilon = i & 2 ? 0 : 0.05};
        loss_grid good = coin(0.1, 0.6, 0), spoilt = coin(0.1, 0.6, 0);
        spoilt.mass[2] = bad[i / 4];
        assert_int_equal(loss_sum_new(&sound, 1, &err), TACIT_OK);
        assert_int_equal(loss_sum_new(&broken, 1, &err), TACIT_OK);
        assert_int_equal(loss_sum_add(sound, &good, count, &err), TACIT_OK);
        assert_int_equal(loss_sum_add(broken, &spoilt, count, &err), TACIT_OK);
        double points = loss_sum_aim(sound, &q);
        (void)loss_sum_aim(broken, &q);
        assert_int_equal(loss_sum_solve(sound, broken, points, &q, &answer, &err), TACIT_OK);
        double worst = q.for_epsilon ? 0.1 * (double)count : 1;
        assert_true(fabs(answer - worst) < 1e-12);
        loss_sum_free(sound);
        loss_sum_free(broken);
    }
}

static double whole_mass(const loss_grid *g)
{
    double sum = g->infinite;
    for (size_t i = 0; i < g->n; i++)
        sum += g->mass[i];
    return sum;
}

/* Steps as wide as losses far apart make them: numbers up to the widest, refused beyond. */
static void test_the_widest_steps(void **state)
{
    (void)state;
    tacit_error err;
    loss_grid remove, add;
    loss_shape shape = {LOSS_REMOVE, 1e-3, 0.5, LOSS_STEP_MAX, 1e-22};
    assert_int_equal(loss_grid_init_both(&remove, &add, &shape, &err), TACIT_OK);
    assert_true(fabs(whole_mass(&remove) - 1) < 1e-12);
    assert_true(fabs(whole_mass(&add) - 1) < 1e-12);
    loss_grid_fini(&remove);
    loss_grid_fini(&add);
    shape.step = 1.001 * LOSS_STEP_MAX;
    assert_int_equal(loss_grid_init_both(&remove, &add, &shape, &err), TACIT_REFUSED);
    assert_non_null(strstr(err.message, "use rdp"));
}

/* Two sums in one transform do not touch: the answer is the worse of the two alone. */
static void test_the_worse_of_two_sums(void **state)
{
    (void)state;
    tacit_error err;
    loss_sum *a, *b;
    double both;
    const loss_query q = {.epsilon = 0.7};
    loss_grid first = coin(0.1, 0.6, 0), second = coin(0.1, 0.55, 0);
    assert_int_equal(loss_sum_new(&a, 1, &err), TACIT_OK);
    assert_int_equal(loss_sum_new(&b, 1, &err), TACIT_OK);
    assert_int_equal(loss_sum_add(a, &first, 40, &err), TACIT_OK);
    assert_int_equal(loss_sum_add(b, &second, 40, &err), TACIT_OK);
    double points = fmax(loss_sum_aim(a, &q), loss_sum_aim(b, &q));
    double worse = ask(coin(0.1, 0.6, 0), 40, &q);
    assert_true(ask(coin(0.1, 0.55, 0), 40, &q) < worse);
    assert_int_equal(loss_sum_solve(a, b, points, &q, &both, &err), TACIT_OK);
    assert_true(fabs(both - worse) < 1e-9 * worse);
    assert_int_equal(loss_sum_solve(b, a, points, &q, &both, &err), TACIT_OK);
    assert_true(fabs(both - worse) < 1e-9 * worse);
    loss_grid other_step = coin(0.2, 0.6, 0);
    assert_int_equal(loss_sum_add(a, &other_step, 1, &err), TACIT_USAGE);
    assert_int_equal(loss_sum_solve(a, b, 1e9, &q, &both, &err), TACIT_REFUSED);
    loss_sum_free(a);
    loss_sum_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_binomial_sums),
        cmocka_unit_test(test_optimal_composition),
        cmocka_unit_test(test_the_worse_of_two_sums),
        cmocka_unit_test(test_a_wrong_guess_is_noticed),
        cmocka_unit_test(test_no_number_is_the_worst),
        cmocka_unit_test(test_the_widest_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
