#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/dp_step.h"
#include "privacy/noise.h"
#include "privacy/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 257, STEPS = 25, UNITS = 12 };

static const uint8_t nonce[32] = {7};
static const uint8_t seed[32] = {1, 2, 3};

static tacit_mechanism mechanism(void)
{
    return (tacit_mechanism){
        .kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
        .unit = TACIT_UNIT_RECORD,
        .neighbours = TACIT_ADD_REMOVE,
        .clip_norm = 0.75,
        .b = 77163,
        .q_num = TACIT_Q_ONE / 2,
        .steps = STEPS,
        .divisor = 6,
        .unit_examples = 1,
    };
}

static tacit_dp *dp_of(tacit_mechanism m)
{
    tacit_dp *dp;
    tacit_error err;
    if (tacit_dp_new(&dp, &m, VALUES, nonce, seed, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return dp;
}

/* --- A data set is what its units' gradients are. --- */

typedef void gradient_of(size_t unit, float grad[VALUES]);

static void ordinary(size_t unit, float grad[VALUES])
{
    for (size_t i = 0; i < VALUES; i++)
        grad[i] = 0.1f * sinf((float)(i * (unit + 3)) + (float)unit);
}

static void all_zero(size_t unit, float grad[VALUES])
{
    (void)unit;
    memset(grad, 0, VALUES * sizeof *grad);
}

static void all_nan(size_t unit, float grad[VALUES])
{
    (void)unit;
    for (size_t i = 0; i < VALUES; i++)
        grad[i] = NAN;
}

static void one_infinity(size_t unit, float grad[VALUES])
{
    ordinary(unit, grad);
    grad[17] = -INFINITY;
}

static void huge(size_t unit, float grad[VALUES])
{
    (void)unit;
    for (size_t i = 0; i < VALUES; i++)
        grad[i] = FLT_MAX;
}

static void tiny(size_t unit, float grad[VALUES])
{
    (void)unit;
    for (size_t i = 0; i < VALUES; i++)
        grad[i] = FLT_TRUE_MIN;
}

static void one_axis(size_t unit, float grad[VALUES])
{
    all_zero(unit, grad);
    grad[0] = -1e20f;
}

static void duplicate(size_t unit, float grad[VALUES])
{
    (void)unit;
    ordinary(0, grad);
}

/* What a run leaves to see: who was drawn, and the noised sums. */
typedef struct trace {
    size_t n_drawn[STEPS];
    size_t drawn[STEPS][UNITS];
    int64_t sum[STEPS][VALUES];
    float mean[STEPS][VALUES];
} trace;

static void run_step(tacit_dp *dp, trace *t, size_t s, size_t n, gradient_of *last)
{
    tacit_error err;
    const size_t *drawn;
    assert_int_equal(tacit_dp_begin_step(dp, n, &drawn, &t->n_drawn[s], &err), TACIT_OK);
    for (size_t i = 0; i < t->n_drawn[s]; i++) {
        float grad[VALUES];
        t->drawn[s][i] = drawn[i];
        (drawn[i] == n - 1 ? last : ordinary)(drawn[i], grad);
        assert_int_equal(tacit_dp_add(dp, grad, &err), TACIT_OK);
    }
    if (tacit_dp_noised_sum(dp))
        memcpy(t->sum[s], tacit_dp_noised_sum(dp), sizeof t->sum[s]);
    assert_int_equal(tacit_dp_end_step(dp, t->mean[s], &err), TACIT_OK);
}

/* Runs all steps over n units; the last one has gradient `last`, the others are ordinary. Every
 * step has a seed of its own, so that a unit more does not shift the coins of later steps. */
static trace *run(tacit_mechanism m, size_t n, gradient_of *last)
{
    trace *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (size_t s = 0; s < STEPS; s++) {
        const uint8_t step_seed[32] = {(uint8_t)s, 99};
        tacit_error err;
        tacit_dp *dp;
        assert_int_equal(tacit_dp_new(&dp, &m, VALUES, nonce, step_seed, &err), TACIT_OK);
        run_step(dp, t, s, n, last);
        tacit_dp_free(dp);
    }
    return t;
}

static unsigned __int128 squared_distance(const int64_t *a, const int64_t *b)
{
    unsigned __int128 sum = 0;
    for (size_t i = 0; i < VALUES; i++) {
        __int128 d = (__int128)a[i] - b[i];
        sum += (unsigned __int128)(d * d);
    }
    return sum;
}

static size_t drawn_below(const trace *t, size_t step, size_t n)
{
    size_t count = 0;
    while (count < t->n_drawn[step] && t->drawn[step][count] < n)
        count++;
    return count;
}

/* Grey-box sensitivity (Cebere et al. 2026): same randomness, neighbouring data. The sums, noise
 * included, may differ by at most 2^16 in L2 at steps that draw the differing unit and not at all
 * elsewhere; who else is drawn is the same. */
static void assert_neighbours(const trace *with, const trace *without, size_t n_without)
{
    const unsigned __int128 limit = (unsigned __int128)TACIT_GRID_NORM * TACIT_GRID_NORM;
    size_t steps_with_unit = 0;
    for (size_t s = 0; s < STEPS; s++) {
        size_t common = drawn_below(with, s, n_without);
        assert_int_equal(common, without->n_drawn[s]);
        assert_memory_equal(with->drawn[s], without->drawn[s], common * sizeof(size_t));
        bool drawn = with->n_drawn[s] > common;
        steps_with_unit += drawn;
        assert_true(squared_distance(with->sum[s], without->sum[s]) <= (drawn ? limit : 0));
    }
    assert_true(steps_with_unit > 0 && steps_with_unit < STEPS);
}

static void test_sensitivity_of_neighbouring_data(void **state)
{
    (void)state;
    gradient_of *const worst[] = {ordinary, all_zero, all_nan,  one_infinity,
                                  huge,     tiny,     one_axis, duplicate};
    const size_t sizes[] = {1, 2, UNITS};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        trace *without = run(mechanism(), sizes[k] - 1, ordinary);
        for (size_t w = 0; w < sizeof worst / sizeof worst[0]; w++) {
            trace *with = run(mechanism(), sizes[k], worst[w]);
            assert_neighbours(with, without, sizes[k] - 1);
            free(with);
        }
        free(without);
    }
}

/* Not vacuous: the bound is reached, and a unit that counts for nothing moves nothing. */
static void test_sensitivity_is_reached_and_zero_is_zero(void **state)
{
    (void)state;
    const unsigned __int128 limit = (unsigned __int128)TACIT_GRID_NORM * TACIT_GRID_NORM;
    trace *without = run(mechanism(), UNITS - 1, ordinary);
    trace *axis = run(mechanism(), UNITS, one_axis), *nan = run(mechanism(), UNITS, all_nan);
    for (size_t s = 0; s < STEPS; s++) {
        bool drawn = axis->n_drawn[s] > without->n_drawn[s];
        assert_true(squared_distance(axis->sum[s], without->sum[s]) == (drawn ? limit : 0));
        assert_true(squared_distance(nan->sum[s], without->sum[s]) == 0);
    }
    free(axis);
    free(nan);
    free(without);
}

/* --- Tree noise: who takes part when, and what a unit more moves. --- */

enum { SEPARATION = 4 };

static tacit_mechanism tree_mechanism(void)
{
    tacit_mechanism m = mechanism();
    m.kind = TACIT_MECHANISM_TREE_GAUSSIAN;
    m.q_num = TACIT_Q_ONE;
    m.minimum_separation = SEPARATION;
    return m;
}

static trace *run_tree(size_t n, gradient_of *last, uint32_t from)
{
    static const uint64_t tags[UNITS] = {0, 1, 2, 3, 5, 10, 23, 41, 1ull << 63, 7, 99, 0};
    trace *t = calloc(1, sizeof *t);
    tacit_error err;
    assert_non_null(t);
    tacit_dp *dp = dp_of(tree_mechanism());
    assert_int_equal(tacit_dp_set_tree(dp, seed, from, tags, n, &err), TACIT_OK);
    for (size_t s = from; s < STEPS; s++) {
        run_step(dp, t, s, n, last);
        for (size_t i = 0; i < t->n_drawn[s]; i++)
            assert_int_equal(tags[t->drawn[s][i]] % SEPARATION, s % SEPARATION);
    }
    const size_t *drawn;
    size_t count;
    assert_int_equal(tacit_dp_begin_step(dp, n, &drawn, &count, &err), TACIT_REFUSED);
    tacit_dp_free(dp);
    return t;
}

/* The sum over a node's steps of what the unit more moved. */
static double node_moved(const trace *with, const trace *without, size_t first, size_t last)
{
    double square = 0;
    for (size_t i = 0; i < VALUES; i++) {
        double d = 0;
        for (size_t s = first; s <= last; s++)
            d += (double)(with->sum[s - 1][i] - without->sum[s - 1][i]);
        square += d * d;
    }
    return square / TACIT_GRID_NORM / TACIT_GRID_NORM;
}

/* Over all nodes, squared and in clip norms, a unit moves at most what is accounted; one that has
 * the same long gradient at every step of its own reaches it at the worst offset. Steps that it is
 * not in are not moved at all. */
static void test_a_unit_moves_tree_nodes_as_accounted(void **state)
{
    gradient_of *const lasts[] = {ordinary, huge, one_axis, all_nan};
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        trace *without = run_tree(UNITS - 1, ordinary, 0), *with = run_tree(UNITS, lasts[k], 0);
        double moved = 0;
        for (size_t size = 1; size <= STEPS; size *= 2)
            for (size_t first = 1; first + size - 1 <= STEPS; first += 2 * size)
                moved += node_moved(with, without, first, first + size - 1);
        double most = (double)tacit_tree_runs(STEPS, SEPARATION);
        assert_true(moved <= most * (1 + 1e-12));
        assert_true(lasts[k] != one_axis || moved > most * (1 - 1e-12));
        assert_true((moved == 0) == (lasts[k] == all_nan));
        for (size_t s = 0; s < STEPS; s++)
            assert_true(s % SEPARATION == 0 ||
                        squared_distance(with->sum[s], without->sum[s]) == 0);
        free(with);
        free(without);
    }
}

/* A restart at any step goes on with the same noise and the same units. */
static void test_tree_steps_go_on_after_a_restart(void **state)
{
    (void)state;
    trace *whole = run_tree(UNITS, ordinary, 0), *rest = run_tree(UNITS, ordinary, 13);
    for (size_t s = 13; s < STEPS; s++) {
        assert_int_equal(whole->n_drawn[s], rest->n_drawn[s]);
        assert_memory_equal(whole->sum[s], rest->sum[s], sizeof whole->sum[s]);
        assert_memory_equal(whole->mean[s], rest->mean[s], sizeof whole->mean[s]);
    }
    free(whole);
    free(rest);
}

static void test_tree_noise_is_set_once_and_first(void **state)
{
    static const uint64_t tags[2] = {1, 2};
    const size_t *drawn;
    size_t n;
    tacit_error err;
    uint8_t a[32], b[32];
    (void)state;
    tacit_dp *dp = dp_of(tree_mechanism());
    assert_int_equal(tacit_dp_begin_step(dp, 2, &drawn, &n, &err), TACIT_CONFLICT);
    tacit_dp_free(dp);
    dp = dp_of(tree_mechanism());
    assert_int_equal(tacit_dp_set_tree(dp, seed, 0, tags, 2, &err), TACIT_OK);
    assert_int_equal(tacit_dp_set_tree(dp, seed, 0, tags, 2, &err), TACIT_USAGE);
    assert_int_equal(tacit_dp_begin_step(dp, 3, &drawn, &n, &err), TACIT_CONFLICT);
    tacit_dp_free(dp);
    dp = dp_of(mechanism());
    assert_int_equal(tacit_dp_set_tree(dp, seed, 0, tags, 2, &err), TACIT_USAGE);
    tacit_dp_free(dp);
    assert_int_equal(tacit_dp_tree_seed(a, nonce, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_dp_tree_seed(b, nonce, NULL, &err), TACIT_OK);
    assert_memory_not_equal(a, b, sizeof a);
}

/* --- The step. --- */

/* The sum starts as the noise of the whole vector, drawn before the sample: the same stream drawn
 * here gives the same values. */
static void test_noise_comes_first_and_is_fresh(void **state)
{
    (void)state;
    tacit_dp *dp = dp_of(mechanism());
    tacit_drbg *g;
    tacit_error err;
    int64_t expected[VALUES], before[VALUES] = {0};
    float mean[VALUES];
    assert_int_equal(tacit_drbg_new(&g, "noise", nonce, seed, &err), TACIT_OK);
    for (int s = 0; s < 3; s++) {
        const size_t *drawn;
        size_t n;
        assert_int_equal(tacit_dp_begin_step(dp, 0, &drawn, &n, &err), TACIT_OK);
        tacit_noise_draw(g, 77163, expected, VALUES);
        assert_memory_equal(tacit_dp_noised_sum(dp), expected, sizeof expected);
        assert_memory_not_equal(before, expected, sizeof expected);
        memcpy(before, expected, sizeof before);
        assert_int_equal(tacit_dp_end_step(dp, mean, &err), TACIT_OK);
    }
    assert_true(tacit_dp_insecure(dp));
    tacit_drbg_free(g);
    tacit_dp_free(dp);
}

/* The sample comes from a stream of its own: a replay of the sampler gives the same units. */
static void test_sampling_has_its_own_stream(void **state)
{
    (void)state;
    tacit_dp *dp = dp_of(mechanism());
    tacit_drbg *g;
    tacit_error err;
    const size_t *drawn;
    size_t expected[300], n, n_expected;
    assert_int_equal(tacit_drbg_new(&g, "sampling", nonce, seed, &err), TACIT_OK);
    tacit_sampler_draw(g, mechanism().q_num, 300, expected, &n_expected);
    assert_int_equal(tacit_dp_begin_step(dp, 300, &drawn, &n, &err), TACIT_OK);
    assert_int_equal(n, n_expected);
    assert_memory_equal(drawn, expected, n * sizeof *drawn);
    tacit_drbg_free(g);
    tacit_dp_free(dp);
}

/* Real seeds: never the same noise twice, and not insecure. */
static void test_real_seeds_differ(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism();
    float mean[2][VALUES];
    for (int k = 0; k < 2; k++) {
        tacit_dp *dp;
        tacit_error err;
        const size_t *drawn;
        size_t n;
        assert_int_equal(tacit_dp_new(&dp, &m, VALUES, nonce, NULL, &err), TACIT_OK);
        assert_false(tacit_dp_insecure(dp));
        assert_int_equal(tacit_dp_begin_step(dp, 0, &drawn, &n, &err), TACIT_OK);
        assert_int_equal(tacit_dp_end_step(dp, mean[k], &err), TACIT_OK);
        tacit_dp_free(dp);
    }
    assert_memory_not_equal(mean[0], mean[1], sizeof mean[0]);
}

/* An empty data set takes noised steps: sum of squares over sigma^2 is chi-square. */
static void test_empty_steps_are_noised(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism();
    trace *t = run(m, 0, ordinary);
    double sigma = tacit_noise_multiplier(m.b) * m.clip_norm / m.divisor, square = 0;
    for (size_t s = 0; s < STEPS; s++)
        for (size_t i = 0; i < VALUES; i++)
            square += pow((double)t->mean[s][i] / sigma, 2);
    double n = STEPS * VALUES;
    assert_true(fabs((square - n) / sqrt(2 * n)) < 4);
    free(t);
}

/* The divisor is the plan's, whatever was drawn; half the divisor doubles the mean exactly. */
static void test_divisor_is_constant(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism(), half = mechanism();
    half.divisor = m.divisor / 2;
    trace *a = run(m, UNITS, ordinary), *b = run(half, UNITS, ordinary);
    bool sizes_differ = false;
    for (size_t s = 0; s < STEPS; s++) {
        sizes_differ |= a->n_drawn[s] != a->n_drawn[0];
        for (size_t i = 0; i < VALUES; i++) {
            double mean = (double)a->sum[s][i] * m.clip_norm / TACIT_GRID_NORM / m.divisor;
            assert_true(fabs((double)a->mean[s][i] - mean) <= 1e-6 * fabs(mean));
            assert_true(b->mean[s][i] == 2 * a->mean[s][i]);
        }
    }
    assert_true(sizes_differ);
    free(a);
    free(b);
}

/* With the same noise on the grid, another C gives other sums: clipping is not bypassed. */
static void test_clip_norm_matters(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism(), wide = mechanism();
    wide.clip_norm = 1.5;
    trace *a = run(m, UNITS, ordinary), *b = run(wide, UNITS, ordinary);
    size_t differing = 0;
    for (size_t s = 0; s < STEPS; s++)
        differing += squared_distance(a->sum[s], b->sum[s]) > 0;
    assert_int_equal(differing, STEPS);
    free(a);
    free(b);
}

static void test_order_of_adding_does_not_matter(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism();
    m.q_num = TACIT_Q_ONE;
    float forward[VALUES], backward[VALUES], grad[VALUES];
    for (int direction = 0; direction < 2; direction++) {
        tacit_dp *dp = dp_of(m);
        tacit_error err;
        const size_t *drawn;
        size_t n;
        assert_int_equal(tacit_dp_begin_step(dp, UNITS, &drawn, &n, &err), TACIT_OK);
        assert_int_equal(n, UNITS);
        for (size_t i = 0; i < UNITS; i++) {
            ordinary(direction ? UNITS - 1 - i : i, grad);
            assert_int_equal(tacit_dp_add(dp, grad, &err), TACIT_OK);
        }
        assert_int_equal(tacit_dp_end_step(dp, direction ? backward : forward, &err), TACIT_OK);
        tacit_dp_free(dp);
    }
    assert_memory_equal(forward, backward, sizeof forward);
}

/* --- Kind NONE: the same draws, exact sums. --- */

static void test_none_is_the_same_path_without_noise(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism();
    m.kind = TACIT_MECHANISM_NONE;
    m.b = 0;
    m.clip_norm = 0;
    trace *plain = run(m, UNITS, one_infinity), *noised = run(mechanism(), UNITS, one_infinity);
    for (size_t s = 0; s < STEPS; s++) {
        double sum[VALUES] = {0};
        assert_int_equal(plain->n_drawn[s], noised->n_drawn[s]);
        assert_memory_equal(plain->drawn[s], noised->drawn[s], sizeof plain->drawn[s]);
        for (size_t k = 0; k < plain->n_drawn[s]; k++) {
            float grad[VALUES];
            ordinary(plain->drawn[s][k], grad);
            for (size_t i = 0; plain->drawn[s][k] != UNITS - 1 && i < VALUES; i++)
                sum[i] += (double)grad[i];
        }
        for (size_t i = 0; i < VALUES; i++)
            assert_true(plain->mean[s][i] == (float)(sum[i] / m.divisor));
    }
    free(plain);
    free(noised);
}

/* --- Misuse is an error and ends the round. --- */

static void test_steps_end_with_the_plan(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism();
    m.steps = 2;
    tacit_dp *dp = dp_of(m);
    tacit_error err;
    const size_t *drawn;
    size_t n;
    float mean[VALUES];
    for (int s = 0; s < 2; s++) {
        assert_int_equal(tacit_dp_begin_step(dp, 0, &drawn, &n, &err), TACIT_OK);
        assert_int_equal(tacit_dp_end_step(dp, mean, &err), TACIT_OK);
    }
    assert_int_equal(tacit_dp_begin_step(dp, 0, &drawn, &n, &err), TACIT_REFUSED);
    assert_int_equal(tacit_dp_begin_step(dp, 0, &drawn, &n, &err), TACIT_REFUSED);
    tacit_dp_free(dp);
}

enum { BEGIN, ADD, END };

static tacit_status call(tacit_dp *dp, int what)
{
    tacit_error err;
    const size_t *drawn;
    size_t n;
    float grad[VALUES];
    ordinary(0, grad);
    switch (what) {
    case BEGIN:
        return tacit_dp_begin_step(dp, 1, &drawn, &n, &err);
    case ADD:
        return tacit_dp_add(dp, grad, &err);
    default:
        return tacit_dp_end_step(dp, grad, &err);
    }
}

static void test_wrong_order_is_refused_for_good(void **state)
{
    (void)state;
    const int wrong[][4] = {
        {ADD, -1},             /* outside a step */
        {END, -1},             /* outside a step */
        {BEGIN, BEGIN, -1},    /* twice */
        {BEGIN, END, -1},      /* the drawn unit was forgotten */
        {BEGIN, ADD, ADD, -1}, /* counted twice */
    };
    tacit_mechanism m = mechanism();
    m.q_num = TACIT_Q_ONE;
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        tacit_dp *dp = dp_of(m);
        size_t i = 0;
        for (; wrong[k][i + 1] != -1 && i + 1 < 4; i++)
            assert_int_equal(call(dp, wrong[k][i]), TACIT_OK);
        assert_int_equal(call(dp, wrong[k][i]), TACIT_CONFLICT);
        for (int again = BEGIN; again <= END; again++)
            assert_int_equal(call(dp, again), TACIT_CONFLICT);
        tacit_dp_free(dp);
    }
}

static void test_null_gradient_counts_as_zero(void **state)
{
    (void)state;
    tacit_mechanism m = mechanism();
    m.q_num = TACIT_Q_ONE;
    tacit_dp *dp = dp_of(m);
    tacit_error err;
    const size_t *drawn;
    size_t n;
    int64_t before[VALUES];
    float mean[VALUES];
    assert_int_equal(tacit_dp_begin_step(dp, 1, &drawn, &n, &err), TACIT_OK);
    memcpy(before, tacit_dp_noised_sum(dp), sizeof before);
    assert_int_equal(tacit_dp_add(dp, NULL, &err), TACIT_OK);
    assert_memory_equal(before, tacit_dp_noised_sum(dp), sizeof before);
    assert_int_equal(tacit_dp_end_step(dp, mean, &err), TACIT_OK);
    tacit_dp_free(dp);
}

static void test_bad_construction_is_refused(void **state)
{
    (void)state;
    tacit_error err;
    tacit_dp *dp;
    tacit_mechanism m = mechanism();
    assert_int_equal(tacit_dp_new(&dp, &m, 0, nonce, NULL, &err), TACIT_USAGE);
    m.b = 0;
    assert_int_equal(tacit_dp_new(&dp, &m, 5, nonce, NULL, &err), TACIT_BAD_INPUT);
    assert_null(dp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sensitivity_of_neighbouring_data),
        cmocka_unit_test(test_sensitivity_is_reached_and_zero_is_zero),
        cmocka_unit_test(test_a_unit_moves_tree_nodes_as_accounted),
        cmocka_unit_test(test_tree_steps_go_on_after_a_restart),
        cmocka_unit_test(test_tree_noise_is_set_once_and_first),
        cmocka_unit_test(test_noise_comes_first_and_is_fresh),
        cmocka_unit_test(test_sampling_has_its_own_stream),
        cmocka_unit_test(test_real_seeds_differ),
        cmocka_unit_test(test_empty_steps_are_noised),
        cmocka_unit_test(test_divisor_is_constant),
        cmocka_unit_test(test_clip_norm_matters),
        cmocka_unit_test(test_order_of_adding_does_not_matter),
        cmocka_unit_test(test_none_is_the_same_path_without_noise),
        cmocka_unit_test(test_steps_end_with_the_plan),
        cmocka_unit_test(test_wrong_order_is_refused_for_good),
        cmocka_unit_test(test_null_gradient_counts_as_zero),
        cmocka_unit_test(test_bad_construction_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
