/* The device unit's one release: clipped delta plus noise, exactly, and the norm that it may have.
 * Oracles: the difference of two releases under one seed, and moments of the Gaussian. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "privacy/release.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 513 };

static const uint8_t nonce[32] = {7}, seed[32] = {1, 2, 3};

static tacit_mechanism whole(double clip_norm, uint64_t b)
{
    return (tacit_mechanism){.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                             .unit = TACIT_UNIT_DEVICE,
                             .neighbours = TACIT_ADD_REMOVE,
                             .clip_norm = clip_norm,
                             .b = b,
                             .q_num = TACIT_Q_ONE,
                             .steps = 1,
                             .divisor = 1,
                             .unit_examples = 8};
}

static void make(int32_t *out, const float *delta, const tacit_mechanism *m, const uint8_t *with)
{
    tacit_error err;
    if (tacit_release_make(out, delta, VALUES, m, nonce, with, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

static void wave(float *delta, double norm)
{
    double sum = 0;
    for (size_t i = 0; i < VALUES; i++) {
        delta[i] = sinf((float)(3 * i + 1));
        sum += (double)delta[i] * (double)delta[i];
    }
    for (size_t i = 0; i < VALUES; i++)
        delta[i] = (float)((double)delta[i] * norm / sqrt(sum));
}

/* What the data adds to the noise is delta min(1, C / |delta|) in grid units, truncated toward
 * zero, and never longer than C = 2^16. */
static void data_adds_the_clipped_delta(void **state)
{
    static const double norms[] = {0, 1e-4, 0.3, 0.75, 0.7500001, 30, 1e30};
    int32_t noise[VALUES], out[VALUES];
    float delta[VALUES];
    const tacit_mechanism m = whole(0.75, 77163);
    (void)state;
    make(noise, NULL, &m, seed);
    for (size_t k = 0; k < sizeof norms / sizeof norms[0]; k++) {
        double factor = norms[k] > 0.75 ? 0.75 / norms[k] : 1, squares = 0;
        wave(delta, norms[k]);
        make(out, delta, &m, seed);
        for (size_t i = 0; i < VALUES; i++) {
            double x = (double)(out[i] - noise[i]);
            double exact = (double)delta[i] * factor * 65536 / 0.75;
            assert_true(fabs(x) <= fabs(exact) + 0.02 && fabs(x) > fabs(exact) - 2);
            squares += x * x;
        }
        assert_true(squares <= 65536.0 * 65536.0);
    }
}

static void what_is_not_finite_is_an_empty_store(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    int32_t noise[VALUES], out[VALUES];
    float delta[VALUES];
    const tacit_mechanism m = whole(2, 50000);
    (void)state;
    make(noise, NULL, &m, seed);
    for (size_t k = 0; k < 3; k++) {
        wave(delta, 1);
        delta[k * 200] = bad[k];
        make(out, delta, &m, seed);
        assert_memory_equal(out, noise, sizeof out);
    }
    wave(delta, 1);
    make(out, delta, &m, seed); /* the comparison can fail */
    assert_memory_not_equal(out, noise, sizeof out);
}

/* Noise of the full sigma, b / sqrt(2 ln 2), fresh each time. */
static void noise_is_fresh_and_full(void **state)
{
    enum { RUNS = 200 };
    const uint64_t b = 77163;
    const double sigma = (double)b / sqrt(2 * log(2)), n = (double)RUNS * VALUES;
    const tacit_mechanism m = whole(1, b);
    double sum = 0, squares = 0;
    int32_t out[VALUES], before[VALUES] = {0};
    (void)state;
    for (int r = 0; r < RUNS; r++) {
        make(out, NULL, &m, NULL);
        assert_memory_not_equal(out, before, sizeof out);
        memcpy(before, out, sizeof out);
        for (size_t i = 0; i < VALUES; i++) {
            sum += out[i];
            squares += (double)out[i] * (double)out[i];
        }
    }
    assert_true(fabs(sum / n) < 6 * sigma / sqrt(n));
    assert_true(fabs(squares / n / (sigma * sigma) - 1) < 6 * sqrt(2 / n));
}

/* The bound covers every release and is not far above what releases measure. */
static void the_norm_bound_covers_releases(void **state)
{
    const tacit_mechanism m = whole(0.25, 77163); /* z = 1 */
    const double bound = tacit_release_norm_bound(&m, VALUES), scale = tacit_release_scale(&m);
    float delta[VALUES];
    int32_t out[VALUES];
    (void)state;
    assert_true(scale == 65536 / 0.25);
    double exact = 0.25 * (1 + 77163 / sqrt(2 * log(2)) / 65536 * (sqrt(VALUES) + 9.5));
    assert_true(bound >= exact * (1 - 1e-15) && bound < exact * (1 + 1e-9));
    wave(delta, 5);
    for (int r = 0; r < 200; r++) {
        double squares = 0;
        make(out, delta, &m, NULL);
        for (size_t i = 0; i < VALUES; i++)
            squares += (double)out[i] * (double)out[i];
        double norm = sqrt(squares) / scale;
        assert_true(norm < bound && norm > 0.5 * bound);
    }
}

/* The largest noise that a plan may ask for fits 32 bits. */
static void the_largest_noise_fits(void **state)
{
    const tacit_mechanism m = whole(1, TACIT_B_WHOLE_MAX);
    int32_t out[VALUES];
    tacit_error err;
    (void)state;
    assert_int_equal(tacit_mechanism_validate(&m, &err), TACIT_OK);
    for (int r = 0; r < 50; r++) {
        make(out, NULL, &m, NULL);
        for (size_t i = 0; i < VALUES; i++)
            assert_true(out[i] != INT32_MAX && out[i] != INT32_MIN);
    }
}

static void other_units_have_no_such_release(void **state)
{
    int32_t out[VALUES];
    tacit_error err;
    tacit_mechanism m = whole(1, 77163);
    (void)state;
    m.unit = TACIT_UNIT_SUBJECT;
    assert_false(tacit_mechanism_releases_whole(&m));
    assert_int_equal(tacit_release_make(out, NULL, VALUES, &m, nonce, NULL, &err), TACIT_USAGE);
    m = whole(0, 0);
    m.kind = TACIT_MECHANISM_NONE;
    assert_false(tacit_mechanism_releases_whole(&m));
    assert_int_equal(tacit_release_make(out, NULL, VALUES, &m, nonce, NULL, &err), TACIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_adds_the_clipped_delta),
        cmocka_unit_test(what_is_not_finite_is_an_empty_store),
        cmocka_unit_test(noise_is_fresh_and_full),
        cmocka_unit_test(the_norm_bound_covers_releases),
        cmocka_unit_test(the_largest_noise_fits),
        cmocka_unit_test(other_units_have_no_such_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
