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
#include <stdlib.h>
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

/* --- Properties that hold for any input whatever, in integers. --- */

typedef void fill(float *g, size_t n, uint64_t *seed);

/* Any 32 bits: a quarter of a percent are NaN or infinite, most huge or subnormal. */
static void any_bits(float *g, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)mix(seed);
        memcpy(&g[i], &bits, sizeof g[i]);
    }
}

static void any_finite_bits(float *g, size_t n, uint64_t *seed)
{
    any_bits(g, n, seed);
    for (size_t i = 0; i < n; i++)
        g[i] = isfinite(g[i]) ? g[i] : -0.0f;
}

static void subnormal(float *g, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        g[i] = uniform(seed) * FLT_MIN;
}

static void enormous(float *g, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        g[i] = uniform(seed) * FLT_MAX;
}

/* One value of every size beside the others: sums of squares lose the small ones. */
static void every_size(float *g, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        g[i] = ldexpf(uniform(seed), (int)(i * 37 % 276) - 148);
}

/* All of one size, so that every value is scaled to the same fraction of the grid. */
static void all_equal(float *g, size_t n, uint64_t *seed)
{
    float value = ldexpf(1 + uniform(seed) / 2, (int)(mix(seed) % 200) - 100);
    for (size_t i = 0; i < n; i++)
        g[i] = mix(seed) & 1 ? value : -value;
}

/* One value carries the norm, the others are an ulp of it: rounding has the most to add. */
static void one_and_ulps(float *g, size_t n, uint64_t *seed)
{
    float value = 1 + uniform(seed) / 2;
    for (size_t i = 0; i < n; i++)
        g[i] = value * 0x1p-24f;
    g[mix(seed) % n] = value;
}

static fill *const fills[] = {any_bits,   any_finite_bits, subnormal,   enormous,
                              every_size, all_equal,       one_and_ulps};
enum { FILLS = sizeof fills / sizeof fills[0], LONGEST = 3000 };

/* Norms to clip to: fixed ones, and those next to the vector's own, where min(1, C / norm) turns.
 */
static double clip_for(const float *g, size_t n, uint64_t *seed)
{
    const double fixed[] = {TACIT_CLIP_NORM_MIN, 0.003, 1.0 / 3, 1, TACIT_CLIP_NORM_MAX};
    uint64_t choice = mix(seed) % 8;
    if (choice < 5)
        return fixed[choice];
    long double square = 0;
    for (size_t i = 0; i < n; i++)
        square += (long double)g[i] * g[i];
    double own = (double)sqrtl(square);
    if (!(own > TACIT_CLIP_NORM_MIN && own < TACIT_CLIP_NORM_MAX))
        return 1;
    return choice == 5 ? own : nextafter(own, choice == 6 ? 0 : INFINITY);
}

/* The norm is at most C, no coordinate grows or changes sign, and a vector that is not finite is
 * zero. A coordinate may be a double's rounding above its exact place and then reach the integer
 * there: 2^-50 of it at most. */
static void assert_bounded(const int32_t *q, const float *g, size_t n, double clip_norm)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite = finite && isfinite(g[i]);
    assert_true(within_norm(q, n));
    for (size_t i = 0; i < n; i++) {
        long double place = finite ? (long double)g[i] / (long double)clip_norm * 65536 : 0;
        assert_true(fabsl((long double)q[i]) <= fabsl(place) * (1 + 0x1p-50L));
        assert_true(q[i] == 0 || (q[i] < 0) == (g[i] < 0));
    }
}

static void test_bounds_hold_for_any_vector(void **state)
{
    (void)state;
    static float g[LONGEST];
    static int32_t q[LONGEST];
    uint64_t seed = 17;
    for (int round = 0; round < 400; round++)
        for (size_t f = 0; f < FILLS; f++) {
            size_t n = round % 2 ? 1 + mix(&seed) % 20 : 1 + mix(&seed) % LONGEST;
            fills[f](g, n, &seed);
            double clip_norm = clip_for(g, n, &seed);
            tacit_grid_clip(q, g, n, clip_norm);
            assert_bounded(q, g, n, clip_norm);
        }
}

/* Parts of two vectors of any kind side by side: a subnormal next to FLT_MAX, a NaN in either. */
static void test_bounds_hold_for_mixed_vectors(void **state)
{
    (void)state;
    static float g[2 * LONGEST];
    static int32_t q[2 * LONGEST];
    uint64_t seed = 23;
    for (size_t f = 0; f < FILLS; f++)
        for (size_t k = 0; k < FILLS; k++)
            for (int round = 0; round < 10; round++) {
                size_t n = 1 + mix(&seed) % LONGEST, m = 1 + mix(&seed) % LONGEST;
                fills[f](g, n, &seed);
                fills[k](g + n, m, &seed);
                double clip_norm = clip_for(g, n + m, &seed);
                tacit_grid_clip(q, g, n + m, clip_norm);
                assert_bounded(q, g, n + m, clip_norm);
            }
}

/* Longer than any adapter's block sums: 2^22 values whose norm is the clip exactly. */
static void test_bounds_hold_for_long_vectors(void **state)
{
    (void)state;
    const size_t n = (size_t)1 << 22;
    float *g = malloc(n * sizeof *g);
    int32_t *q = malloc(n * sizeof *q);
    assert_true(g && q);
    for (size_t i = 0; i < n; i++)
        g[i] = i % 3 ? 0x1p-11f : -0x1p-11f; /* norm 1: 32 units each */
    tacit_grid_clip(q, g, n, 1);
    assert_bounded(q, g, n, 1);
    assert_true(q[0] == -32 && q[n - 1] == (((n - 1) % 3) ? 32 : -32));
    g[5] = FLT_MAX;
    tacit_grid_clip(q, g, n, 1);
    assert_bounded(q, g, n, 1);
    assert_int_equal(q[5], 65536);
    free(g);
    free(q);
}

/* Cutting off at C leaves everything within C as it is: clipping is not shrinking. */
static void test_within_the_norm_nothing_is_scaled(void **state)
{
    (void)state;
    static float g[LONGEST];
    static int32_t q[LONGEST];
    uint64_t seed = 29;
    for (int round = 0; round < 100; round++) {
        size_t n = 1 + mix(&seed) % LONGEST;
        for (size_t i = 0; i < n; i++) /* multiples of 2^-16, norm below 1 */
            g[i] = truncf(uniform(&seed) * 65536 / sqrtf((float)n)) * 0x1p-16f;
        tacit_grid_clip(q, g, n, 1);
        for (size_t i = 0; i < n; i++)
            assert_true((float)q[i] == g[i] * 65536);
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
        cmocka_unit_test(test_bounds_hold_for_any_vector),
        cmocka_unit_test(test_bounds_hold_for_mixed_vectors),
        cmocka_unit_test(test_bounds_hold_for_long_vectors),
        cmocka_unit_test(test_within_the_norm_nothing_is_scaled),
        cmocka_unit_test(test_exact_cases),
        cmocka_unit_test(test_not_finite_becomes_zero),
        cmocka_unit_test(test_extreme_magnitudes),
        cmocka_unit_test(test_norm_is_enforced_in_integers),
        cmocka_unit_test(test_sums_do_not_depend_on_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
