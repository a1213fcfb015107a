/* Tree noise: its cost against brute force over a tree written out, its sums against their nodes,
 * and what it is for: the error of sums over many steps at equal epsilon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "privacy/event.h"
#include "privacy/gaussian.h"
#include "privacy/tree_noise.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t seed[32] = {4, 2};

/* --- what it costs --- */

/* The whole binary tree over 1 .. n by recursion over halves of a power of two; a node counts when
 * the sum up to some t <= n is made of it. */
typedef struct brute {
    uint32_t n;
    bool takes_part[64 + 1];
    bool used[64 + 1][64 + 1]; /* [first][last] */
} brute;

/* The fewest whole blocks that make up 1 .. t, from the left. */
static void mark_prefix(brute *b, uint32_t t, uint32_t first, uint32_t size)
{
    if (t < first)
        return;
    if (t >= first + size - 1) {
        b->used[first][first + size - 1] = true;
        return;
    }
    mark_prefix(b, t, first, size / 2);
    mark_prefix(b, t, first + size / 2, size / 2);
}

static uint64_t brute_cost(const brute *b)
{
    uint64_t total = 0;
    for (uint32_t first = 1; first <= b->n; first++)
        for (uint32_t last = first; last <= b->n; last++) {
            uint64_t c = 0;
            for (uint32_t t = first; t <= last; t++)
                c += b->takes_part[t];
            total += b->used[first][last] ? c * c : 0;
        }
    return total;
}

/* The most over every offset of steps that are `k` apart. */
static uint64_t brute_runs(uint32_t n, uint32_t k)
{
    uint64_t most = 0;
    brute *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->n = n;
    for (uint32_t t = 1; t <= n; t++)
        mark_prefix(b, t, 1, 64);
    for (uint32_t s = 1; s <= k; s++) {
        memset(b->takes_part, 0, sizeof b->takes_part);
        for (uint32_t t = s; t <= n; t += k)
            b->takes_part[t] = true;
        uint64_t cost = brute_cost(b);
        most = cost > most ? cost : most;
    }
    free(b);
    return most;
}

static void runs_are_those_of_brute_force(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 40; n++)
        for (uint32_t k = 1; k <= n; k++)
            if (tacit_tree_runs(n, k) != brute_runs(n, k))
                fail_msg("%u steps, separation %u: expected %llu, found %llu", n, k,
                         (unsigned long long)brute_runs(n, k),
                         (unsigned long long)tacit_tree_runs(n, k));
}

/* Once a round: the first step is in a node of every size up to n. Every step: the squares of the
 * sizes of all nodes. */
static void runs_at_the_ends_are_known(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 4096; n = 2 * n + 1)
        assert_int_equal(tacit_tree_runs(n, n), (uint64_t)floor(log2(n)) + 1);
    assert_int_equal(tacit_tree_runs(4, 1), 1 + 4 + 1 + 16);
    assert_int_equal(tacit_tree_runs(8, 1), 4 * 1 + 2 * 4 + 16 + 64);
    assert_int_equal(tacit_tree_runs(8, 4), 2 + 2 + 1 + 4); /* steps 1 and 5 */
}

/* --- its sums --- */

enum { VALUES = 300 };

static tacit_tree_noise *tree_of(size_t values, const uint8_t *from)
{
    tacit_tree_noise *t;
    tacit_error err;
    assert_int_equal(tacit_tree_noise_new(&t, 77163, values, from, &err), TACIT_OK);
    return t;
}

static void step_of(tacit_tree_noise *t, uint32_t step, int64_t *out)
{
    tacit_error err;
    assert_int_equal(tacit_tree_noise_step(t, step, out, &err), TACIT_OK);
}

/* At powers of two the sum is one node: independent of every other, and of the full sigma. */
static void sums_are_made_of_few_nodes(void **state)
{
    enum { STEPS = 64 };
    const double sigma = 77163 / sqrt(2 * log(2));
    tacit_tree_noise *t = tree_of(VALUES, seed);
    double sum[STEPS + 1][VALUES] = {{0}};
    int64_t noise[VALUES];
    (void)state;
    for (uint32_t s = 1; s <= STEPS; s++) {
        double squares = 0;
        step_of(t, s, noise);
        for (size_t i = 0; i < VALUES; i++) {
            sum[s][i] = sum[s - 1][i] + (double)noise[i];
            squares += sum[s][i] * sum[s][i];
        }
        double nodes = __builtin_popcount(s), found = squares / (VALUES * sigma * sigma);
        assert_true(fabs(found / nodes - 1) < 5 * sqrt(2.0 / VALUES));
    }
    for (uint32_t a = 1; a <= STEPS; a *= 2)
        for (uint32_t b = 2 * a; b <= STEPS; b *= 2) {
            double dot = 0;
            for (size_t i = 0; i < VALUES; i++)
                dot += sum[a][i] * sum[b][i];
            assert_true(fabs(dot) < 5 * sigma * sigma * sqrt(VALUES));
        }
    /* Sums that share a node share its noise: 12 = 8 + 4. */
    double shared = 0;
    for (size_t i = 0; i < VALUES; i++)
        shared += sum[12][i] * sum[8][i];
    assert_true(fabs(shared / (VALUES * sigma * sigma) - 1) < 5 * sqrt(3.0 / VALUES));
    tacit_tree_noise_free(t);
}

/* A restart asks for any step again; another seed has other noise. */
static void steps_follow_from_the_seed(void **state)
{
    static const uint8_t other[32] = {4, 3};
    tacit_tree_noise *a = tree_of(VALUES, seed), *b = tree_of(VALUES, seed),
                     *c = tree_of(VALUES, other);
    int64_t first[VALUES], again[VALUES];
    (void)state;
    step_of(a, 7, again);
    for (uint32_t s = 8; s > 0; s--) {
        step_of(a, s, first);
        step_of(b, 9 - s, again);
        step_of(b, s, again);
        assert_memory_equal(first, again, sizeof first);
        step_of(c, s, again);
        assert_memory_not_equal(first, again, sizeof first);
    }
    tacit_tree_noise_free(a);
    tacit_tree_noise_free(b);
    tacit_tree_noise_free(c);
}

/* --- what it is for --- */

/* The noise multiplier of `runs` Gaussians for epsilon 3. */
static double multiplier(uint64_t runs)
{
    double sigma;
    tacit_error err;
    assert_int_equal(tacit_gaussian_calibrate(&sigma, 3, 1e-5, runs, &err), TACIT_OK);
    return sigma;
}

/* The root of the mean square, over steps and values, of the noise in sums of the first t steps, in
 * clip norms, measured from the noise itself. */
static double measured_error(uint32_t steps, double z)
{
    enum { WIDTH = 64 };
    tacit_tree_noise *t = tree_of(WIDTH, seed);
    const double sigma = 77163 / sqrt(2 * log(2));
    double sum[WIDTH] = {0}, squares = 0;
    int64_t noise[WIDTH];
    for (uint32_t s = 1; s <= steps; s++) {
        step_of(t, s, noise);
        for (size_t i = 0; i < WIDTH; i++) {
            sum[i] += (double)noise[i];
            squares += sum[i] * sum[i];
        }
    }
    tacit_tree_noise_free(t);
    return z * sqrt(squares / WIDTH / steps) / sigma;
}

/* Each unit once a round, no sampling, epsilon 3: the error of sums grows like the logarithm of the
 * steps, that of independent noise like their root. */
static void errors_grow_like_the_logarithm(void **state)
{
    double before = 0;
    (void)state;
    for (uint32_t steps = 64; steps <= 4096; steps *= 4) {
        double tree = measured_error(steps, multiplier(tacit_tree_runs(steps, steps)));
        double independent = multiplier(1) * sqrt((steps + 1) / 2.0);
        print_message("%u steps: error %.2f, independent %.2f clip norms\n", steps, tree,
                      independent);
        /* sqrt of (log2 n + 1) runs times log2 n / 2 nodes. */
        double expected = multiplier(1) * sqrt((log2(steps) + 1) * log2(steps) / 2);
        assert_true(fabs(tree / expected - 1) < 0.1);
        assert_true(steps < 256 || tree < independent / 1.5);
        assert_true(before == 0 || tree - before < 3); /* four times the steps add little */
        before = tree;
    }
}

/* A unit that is in every step gains nothing, whatever the noise's correlation: the sum of n steps
 * moves by n clip norms, so its noise is n times that of one Gaussian at least, which independent
 * noise has. This is why the device unit has no tree. */
static void every_step_gains_nothing(void **state)
{
    (void)state;
    for (uint32_t steps = 16; steps <= 1024; steps *= 4) {
        double tree = measured_error(steps, multiplier(tacit_tree_runs(steps, 1)));
        double independent = multiplier(steps) * sqrt((steps + 1) / 2.0);
        assert_true(tree > 1.5 * independent);
        assert_true(fabs(multiplier(steps) * sqrt(steps) / (multiplier(1) * steps) - 1) < 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_those_of_brute_force),
        cmocka_unit_test(runs_at_the_ends_are_known),
        cmocka_unit_test(sums_are_made_of_few_nodes),
        cmocka_unit_test(steps_follow_from_the_seed),
        cmocka_unit_test(errors_grow_like_the_logarithm),
        cmocka_unit_test(every_step_gains_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
