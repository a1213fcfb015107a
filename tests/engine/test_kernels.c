#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/kernels.h"
#include "numbers.h"

#include <string.h>

static const char *const names[] = {"generic", "avx2", "avx512", "amx", "neon", "i8mm"};
static const size_t lengths[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 128, 257};
#define NAMES (sizeof names / sizeof names[0])
#define LENGTHS (sizeof lengths / sizeof lengths[0])
#define MOST 257

/* Runs `check` on every variant that this machine can run and on every length. */
static void on_every_variant(void (*check)(const tacit_kernels *k, size_t n))
{
    size_t ran = 0;
    for (size_t v = 0; v < NAMES; v++) {
        const tacit_kernels *k = kernels_by_name(names[v]);
        if (!k)
            continue;
        assert_string_equal(k->name, names[v]);
        for (size_t i = 0; i < LENGTHS; i++)
            check(k, lengths[i]);
        ran++;
    }
    assert_true(ran >= 1);
}

static void assert_near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("found %.9g, expected %.9g", found, expected);
}

static void check_sums(const tacit_kernels *k, size_t n)
{
    float a[MOST], b[MOST], c[MOST];
    numbers_fill(a, MOST, 1, 1);
    numbers_fill(b, MOST, 1, 2);
    numbers_fill(c, MOST, 1, 3);
    double dot = 0, dot3 = 0, max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * b[i];
        dot3 += (double)a[i] * b[i] * c[i];
        max = a[i] > max ? a[i] : max;
    }
    assert_near(k->dot(a, b, n), dot, 2e-6);
    assert_near(k->dot3(a, b, c, n), dot3, 2e-6);
    assert_true(k->max(a, n) == (float)max);
}

static void test_sums(void **state)
{
    (void)state;
    on_every_variant(check_sums);
}

static void check_exp(const tacit_kernels *k, size_t n)
{
    float x[MOST], y[MOST + 1];
    numbers_fill(x, MOST, 80, 4);
    y[n] = 12345;
    float shift = 3.25f;
    float sum = k->exp_sum(y, x, shift, n);
    double expected = 0;
    for (size_t i = 0; i < n; i++) {
        double e = exp((double)(x[i] - shift));
        assert_true(fabs(y[i] - e) <= 2.5e-7 * e);
        expected += e;
    }
    assert_true(fabs(sum - expected) <= 1e-5 * expected);
    assert_true(y[n] == 12345);
}

static void test_exp(void **state)
{
    (void)state;
    on_every_variant(check_exp);
}

static void check_exp_limits(const tacit_kernels *k, size_t n)
{
    const float x[6] = {-INFINITY, -88, 0, 89, INFINITY, NAN};
    if (n != 1)
        return;
    float y[6];
    k->exp_sum(y, x, 0, 6);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 1);
    assert_true(isinf(y[3]) && isinf(y[4]) && isnan(y[5]));
    float high[2] = {88.7f, -87.2f};
    k->exp_sum(y, high, 0, 2);
    assert_near(y[0] / exp(88.7f), 1, 3e-7);
    assert_near(y[1] / exp(-87.2f), 1, 3e-7);
}

static void test_exp_limits(void **state)
{
    (void)state;
    on_every_variant(check_exp_limits);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void check_activations(const tacit_kernels *k, size_t n)
{
    float x[MOST], u[MOST], y[MOST + 1];
    numbers_fill(x, MOST, 6, 5);
    numbers_fill(u, MOST, 2, 6);
    y[n] = 777;
    k->swiglu(y, x, u, n);
    for (size_t i = 0; i < n; i++)
        assert_near(y[i], x[i] * sigmoid(x[i]) * u[i], 1e-6);
    k->gelu(y, x, n);
    for (size_t i = 0; i < n; i++)
        assert_near(y[i], gelu(x[i]), 1e-6);
    numbers_fill(y, n, 1, 7);
    float before[MOST];
    memcpy(before, y, n * sizeof *y);
    k->axpy(y, -1.5f, x, n);
    for (size_t i = 0; i < n; i++)
        assert_near(y[i], before[i] - 1.5 * x[i], 1e-6);
    k->scale_by(y, 0.7f, x, u, n);
    for (size_t i = 0; i < n; i++)
        assert_near(y[i], 0.7 * x[i] * u[i], 1e-6);
    assert_true(y[n] == 777);
}

static void test_activations(void **state)
{
    (void)state;
    on_every_variant(check_activations);
}

/* Central differences in double are the oracle of the derivatives. */
static void check_slopes(const tacit_kernels *k, size_t n)
{
    float x[MOST], u[MOST], dy[MOST], dx[MOST], dg[MOST], du[MOST];
    const double h = 1e-5;
    numbers_fill(x, MOST, 5, 8);
    numbers_fill(u, MOST, 2, 9);
    numbers_fill(dy, MOST, 1, 10);
    for (size_t i = 0; i < n; i++)
        dx[i] = -0.25f;
    k->gelu_backward(dx, dy, x, n);
    for (size_t i = 0; i < n; i++)
        assert_near(dx[i], -0.25 + dy[i] * (gelu(x[i] + h) - gelu(x[i] - h)) / (2 * h), 2e-6);
    k->swiglu_backward(dg, du, dy, x, u, n);
    for (size_t i = 0; i < n; i++) {
        double a = x[i] + h, b = x[i] - h;
        double slope = (a * sigmoid(a) - b * sigmoid(b)) / (2 * h);
        assert_near(dg[i], dy[i] * u[i] * slope, 2e-6);
        assert_near(du[i], dy[i] * x[i] * sigmoid(x[i]), 2e-6);
    }
}

static void test_slopes(void **state)
{
    (void)state;
    on_every_variant(check_slopes);
}

static void check_rotation(const tacit_kernels *k, size_t n)
{
    size_t dim = n / 2 * 2;
    if (dim == 0)
        return;
    float x[2 * MOST] = {0}, turned[2 * MOST], table[MOST];
    numbers_fill(x, 2 * dim, 1, 11);
    for (size_t i = 0; i < dim; i += 2) {
        table[i] = cosf(0.3f * (float)i);
        table[i + 1] = sinf(0.3f * (float)i);
    }
    memcpy(turned, x, sizeof x);
    k->rotate(turned, table, 2, dim, 1);
    for (size_t i = 0; i < 2 * dim; i += 2) {
        double c = table[i % dim], s = table[i % dim + 1];
        assert_near(turned[i], x[i] * c - x[i + 1] * s, 1e-6);
        assert_near(turned[i + 1], x[i] * s + x[i + 1] * c, 1e-6);
    }
    k->rotate(turned, table, 2, dim, -1);
    assert_true(numbers_distance(turned, x, 2 * dim) < 1e-6);
}

static void test_rotation(void **state)
{
    (void)state;
    on_every_variant(check_rotation);
}

/* y in a larger matrix, so that writes outside it are seen. */
static void check_product_of(const tacit_kernels *k, size_t m, size_t n, size_t depth,
                             bool transposed, bool accumulate)
{
    size_t stride = n + 3;
    float *x = numbers_new(m * depth, 1, 12), *w = numbers_new(n * depth, 1, 13);
    float *y = numbers_new((m + 1) * stride, 1, 14), *one = malloc(stride * sizeof *one);
    double *expected = malloc(((m + 1) * stride) * sizeof *expected);
    assert_true(x && w && y && one && expected);
    for (size_t i = 0; i < (m + 1) * stride; i++)
        expected[i] = y[i];
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = accumulate ? y[i * stride + j] : 0;
            for (size_t d = 0; d < depth; d++)
                sum += (double)x[i * depth + d] * (transposed ? w[j * depth + d] : w[d * n + j]);
            expected[i * stride + j] = sum;
        }
    memcpy(one, y + (m - 1) * stride, stride * sizeof *one);
    k->multiply(y, stride, x, depth, 1, w, transposed ? depth : n, transposed, m, n, depth,
                accumulate);
    for (size_t i = 0; i < (m + 1) * stride; i++)
        assert_near(y[i], expected[i], 2e-5); /* a chain of up to 300 roundings */
    /* The last row alone is bitwise the same as among the others. */
    k->multiply(one, stride, x + (m - 1) * depth, depth, 1, w, transposed ? depth : n, transposed,
                1, n, depth, accumulate);
    assert_memory_equal(one, y + (m - 1) * stride, n * sizeof *one);
    free(expected);
    free(one);
    free(y);
    free(w);
    free(x);
}

static void check_product(const tacit_kernels *k, size_t n)
{
    const size_t rows[] = {1, 2, 5, 6, 13, 40}, depths[] = {1, 8, 100, 300};
    for (size_t i = 0; n > 0 && i < 6; i++)
        for (size_t d = 0; d < 4; d++)
            for (int way = 0; way < 4; way++)
                check_product_of(k, rows[i], n, depths[d], way & 1, way & 2);
}

static void test_product(void **state)
{
    (void)state;
    on_every_variant(check_product);
}

static void test_choice(void **state)
{
    (void)state;
    tacit_error err = {0};
    assert_null(kernels_by_name("vax"));
    assert_int_equal(setenv("TACIT_CPU", "vax", 1), 0);
    assert_int_equal(kernels_check(&err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "vax"));
    assert_non_null(strstr(err.message, "expected generic"));
    assert_int_equal(setenv("TACIT_CPU", "generic", 1), 0);
    assert_int_equal(kernels_check(&err), TACIT_OK);
    assert_int_equal(unsetenv("TACIT_CPU"), 0);
    assert_int_equal(kernels_check(&err), TACIT_OK);
    assert_ptr_equal(kernels(), kernels());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),       cmocka_unit_test(test_exp),
        cmocka_unit_test(test_exp_limits), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_slopes),     cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_product),    cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
