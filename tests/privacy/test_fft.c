#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/fft.h"

#include <math.h>
#include <stdlib.h>

static double value(size_t k)
{
    return sin(1.7 * (double)k + 0.3 * (double)(k * k % 101)) + 0.1;
}

/* Where X_f stands, as fft.h says. */
static size_t reversed(size_t f, size_t n)
{
    size_t j = 0, third = n % 3 ? 0 : f % 3, m = n % 3 ? n : n / 3;
    f = n % 3 ? f : f / 3;
    for (size_t bit = 1; bit < m; bit *= 2, f /= 2)
        j = j * 2 + f % 2;
    return third * m + j;
}

static tacit_fft *plan(size_t n)
{
    tacit_fft *fft;
    tacit_error err;
    assert_int_equal(tacit_fft_new(&fft, n, &err), TACIT_OK);
    return fft;
}

/* Naive transform in long double. */
static void test_against_the_definition(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 1024; n = tacit_fft_length(n + 1)) {
        double re[1024], im[1024];
        tacit_fft *fft = plan(n);
        for (size_t k = 0; k < n; k++) {
            re[k] = value(k);
            im[k] = value(3 * k + 1);
        }
        tacit_fft_forward(fft, re, im);
        for (size_t f = 0; f < n; f++) {
            long double r = 0, i = 0;
            for (size_t k = 0; k < n; k++) {
                long double angle =
                    -2 * 3.14159265358979323846264338L * (long double)(f * k % n) / (long double)n;
                r += value(k) * cosl(angle) - value(3 * k + 1) * sinl(angle);
                i += value(k) * sinl(angle) + value(3 * k + 1) * cosl(angle);
            }
            size_t j = reversed(f, n);
            assert_true(fabs(re[j] - (double)r) < 1e-13 * (double)n);
            assert_true(fabs(im[j] - (double)i) < 1e-13 * (double)n);
            assert_int_equal(tacit_fft_partner(fft, j), reversed((n - f) % n, n));
        }
        tacit_fft_free(fft);
    }
}

static void test_inverse_returns_the_input(void **state)
{
    (void)state;
    for (size_t n = 2; n <= (size_t)1 << 17; n = tacit_fft_length(5 * n)) {
        double *re = malloc(n * sizeof *re), *im = malloc(n * sizeof *im);
        tacit_fft *fft = plan(n);
        assert_true(re && im);
        for (size_t k = 0; k < n; k++) {
            re[k] = value(k);
            im[k] = value(k + 7);
        }
        tacit_fft_forward(fft, re, im);
        tacit_fft_inverse(fft, re, im);
        for (size_t k = 0; k < n; k++)
            assert_true(fabs(re[k] - value(k)) < 1e-13 && fabs(im[k] - value(k + 7)) < 1e-13);
        free(re);
        free(im);
        tacit_fft_free(fft);
    }
}

/* Long transforms: one spike is a pure wave, exact at every frequency. */
static void test_long_spike(void **state)
{
    (void)state;
    const size_t lengths[] = {(size_t)1 << 16, (size_t)3 << 15}, at = 12345;
    for (size_t i = 0; i < 2; i++) {
        size_t n = lengths[i];
        double *re = calloc(n, sizeof *re), *im = calloc(n, sizeof *im);
        tacit_fft *fft = plan(n);
        assert_true(re && im);
        re[at] = 1;
        tacit_fft_forward(fft, re, im);
        for (size_t f = 0; f < n; f++) {
            double angle = -2 * M_PI * (double)(f * at % n) / (double)n;
            size_t j = reversed(f, n);
            assert_true(fabs(re[j] - cos(angle)) < 1e-14 && fabs(im[j] - sin(angle)) < 1e-14);
        }
        free(re);
        free(im);
        tacit_fft_free(fft);
    }
}

static void test_lengths_are_checked(void **state)
{
    (void)state;
    const size_t bad[] = {0, 1, 3, 5, 9, 1000, 3000, TACIT_FFT_MAX / 2 * 3, TACIT_FFT_MAX * 2};
    tacit_error err;
    tacit_fft *fft;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tacit_fft_new(&fft, bad[i], &err), TACIT_USAGE);
    const size_t asked[] = {0, 2, 3, 5, 6, 7, 9, 13, 1025, 1537};
    const size_t given[] = {2, 2, 4, 6, 6, 8, 12, 16, 1536, 2048};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++)
        assert_int_equal(tacit_fft_length(asked[i]), given[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_definition),
        cmocka_unit_test(test_inverse_returns_the_input),
        cmocka_unit_test(test_long_spike),
        cmocka_unit_test(test_lengths_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
