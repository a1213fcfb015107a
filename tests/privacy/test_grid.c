#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/grid.h"
#include "privacy/mechanism.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A small generator of test gradients: no property under test depends on its quality. */
static uint64_t mix(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static float uniform(uint64_t *s)
{
    return (float)(mix(s) >> 40) / 16777216.0f * 2 - 1;
}

static bool within_norm(const int32_t *q, size_t n)
{
    unsigned __int128 sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (unsigned __int128)((int64_t)q[i] * q[i]);
    return sum <= (unsigned __int128)1 << 32;
}

/* Naive twin in long double: truncation of g 2^16 / max(C, |g|). Values within one part in 10^12
 * of an integer may fall on either side. */
static void assert_is_clip(const int32_t *q, const float *g, size_t n, double clip_norm)
{
    long double square = 0;
    for (size_t i = 0; i < n; i++)
        square += (long double)g[i] * g[i];
    long double factor = 65536 / fmaxl(sqrtl(square), clip_norm);
    for (size_t i = 0; i < n; i++) {
        long double exact = g[i] * factor, slack = 1e-12L * fabsl(exact) + 1e-18L;
        long double low = truncl(exact - copysignl(slack, exact)),
                    high = truncl(exact + copysignl(slack, exact));
        assert_true((long double)q[i] == low || (long double)q[i] == high);
    }
}

static void test_random_gradients(void **state)
{
    (void)state;
    static float g[1000];
    static int32_t q[1000];
    uint64_t seed = 11;
    const double clips[] = {1e-9, 0.003, 0.1, 1, 7, 1e9};
    for (int round = 0; round < 300; round++) {
        size_t n = 1 + mix(&seed) % 1000;
        float scale = ldexpf(1, (int)(mix(&seed) % 60) - 40);
        for (size_t i = 0; i < n; i++)
            g[i] = uniform(&seed) * scale;
        for (size_t c = 0; c < 6; c++) {
            tacit_grid_clip(q, g, n, clips[c]);
            assert_true(within_norm(q, n));
            assert_is_clip(q, g, n, clips[c]);
        }
    }
}

static void test_exact_cases(void **state)
{
    (void)state;
    int32_t q[4];
    const float at_the_norm[4] = {0, -0.5f, 0, 0}, inside[4] = {0.25f, -0.125f, 0, 1e-30f};
    tacit_grid_clip(q, at_the_norm, 4, 0.5);
    assert_memory_equal(q, ((int32_t[]){0, -65536, 0, 0}), sizeof q);
    tacit_grid_clip(q, inside, 4, 0.5);
    assert_memory_equal(q, ((int32_t[]){32768, -16384, 0, 0}), sizeof q);
    const float outside[4] = {3, 4, 0, 0};
    tacit_grid_clip(q, outside, 4, 0.5);
    assert_memory_equal(q, ((int32_t[]){39321, 52428, 0, 0}), sizeof q);
    const float fractions[4] = {0.99f / 65536, -0.99f / 65536, 1.5f / 65536, -1.5f / 65536};
    tacit_grid_clip(q, fractions, 4, 1);
    assert_memory_equal(q, ((int32_t[]){0, 0, 1, -1}), sizeof q);
}

static void test_not_finite_becomes_zero(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    static float g[100];
    static int32_t q[100];
    const int32_t zero[100] = {0};
    for (size_t b = 0; b < 3; b++)
        for (size_t at = 0; at < 100; at += 9) {
            for (size_t i = 0; i < 100; i++)
                g[i] = 0.5f;
            g[at] = bad[b];
            memset(q, 0x55, sizeof q);
            tacit_grid_clip(q, g, 100, 1);
            assert_memory_equal(q, zero, sizeof q);
        }
}

static void test_extreme_magnitudes(void **state)
{
    (void)state;
    static float g[1000];
    static int32_t q[1000];
    for (size_t i = 0; i < 1000; i++)
        g[i] = i % 2 ? FLT_MAX : -FLT_MAX;
    tacit_grid_clip(q, g, 1000, 1e-9);
    assert_true(within_norm(q, 1000));
    assert_int_equal(q[1], 2072); /* 65536 / sqrt(1000) = 2072.4 */
    assert_int_equal(q[0], -2072);
    for (size_t i = 0; i < 1000; i++)
        g[i] = FLT_TRUE_MIN;
    tacit_grid_clip(q, g, 1000, 1e-9);
    assert_int_equal(q[0], 0);
    memset(g, 0, sizeof g);
    tacit_grid_clip(q, g, 1000, 1);
    assert_int_equal(q[999], 0);
}

/* The integer check holds by itself, whatever the double arithmetic before it did. */
static void test_norm_is_enforced_in_integers(void **state)
{
    (void)state;
    int32_t over[3] = {65536, 0, -1};
    assert_int_equal(tacit_grid_enforce_norm(over, 3), 1);
    assert_memory_equal(over, ((int32_t[]){65535, 0, -1}), sizeof over);
    int32_t exact[2] = {0, -65536};
    assert_int_equal(tacit_grid_enforce_norm(exact, 2), 0);
    assert_int_equal(exact[1], -65536);
    static int32_t wide[5000];
    uint64_t seed = 5;
    for (int round = 0; round < 200; round++) {
        size_t n = 1 + mix(&seed) % 5000;
        for (size_t i = 0; i < n; i++)
            wide[i] = (int32_t)(uniform(&seed) * 70000 / sqrtf((float)n) * 1.8f);
        tacit_grid_enforce_norm(wide, n);
        assert_true(within_norm(wide, n));
    }
}

static void test_sums_do_not_depend_on_the_order(void **state)
{
    (void)state;
    int64_t forward[50] = {0}, backward[50] = {0};
    static int32_t q[20][50];
    uint64_t seed = 8;
    for (int u = 0; u < 20; u++)
        for (int i = 0; i < 50; i++)
            q[u][i] = (int32_t)(uniform(&seed) * 65536);
    for (int u = 0; u < 20; u++) {
        tacit_grid_add(forward, q[u], 50);
        tacit_grid_add(backward, q[19 - u], 50);
    }
    assert_memory_equal(forward, backward, sizeof forward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_gradients),
        cmocka_unit_test(test_exact_cases),
        cmocka_unit_test(test_not_finite_becomes_zero),
        cmocka_unit_test(test_extreme_magnitudes),
        cmocka_unit_test(test_norm_is_enforced_in_integers),
        cmocka_unit_test(test_sums_do_not_depend_on_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
