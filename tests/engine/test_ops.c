#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../golden/mrope_transformers.h"
#include "engine/ops.h"
#include "numbers.h"

#include <string.h>

#define ROWS 3
#define N 37
#define STEP 1e-6
#define EPS 1e-5

/* Naive forwards in double: the oracle of the forwards, and by central differences of
 * L = sum(dy y) of the backwards. Parameters: x [ROWS, N], w [N], b [N]. */
typedef void naive_op(double *y, const double *x, const double *w, const double *b);

static void naive_rms(double *y, const double *x, const double *w, const double *b)
{
    (void)b;
    for (size_t r = 0; r < ROWS; r++) {
        double squares = 0;
        for (size_t i = 0; i < N; i++)
            squares += x[r * N + i] * x[r * N + i];
        for (size_t i = 0; i < N; i++)
            y[r * N + i] = x[r * N + i] / sqrt(squares / N + EPS) * w[i];
    }
}

static void naive_layer(double *y, const double *x, const double *w, const double *b)
{
    for (size_t r = 0; r < ROWS; r++) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < N; i++)
            mean += x[r * N + i] / N;
        for (size_t i = 0; i < N; i++)
            variance += (x[r * N + i] - mean) * (x[r * N + i] - mean) / N;
        for (size_t i = 0; i < N; i++)
            y[r * N + i] = (x[r * N + i] - mean) / sqrt(variance + EPS) * w[i] + b[i];
    }
}

static void naive_softmax(double *y, const double *x, const double *w, const double *b)
{
    (void)w;
    (void)b;
    for (size_t r = 0; r < ROWS; r++) {
        double sum = 0;
        for (size_t i = 0; i < N; i++)
            sum += exp(x[r * N + i]);
        for (size_t i = 0; i < N; i++)
            y[r * N + i] = exp(x[r * N + i]) / sum;
    }
}

typedef struct values {
    float x[ROWS * N], w[N], b[N], dy[ROWS * N];
    double dx64[ROWS * N], w64[N], b64[N], x64[ROWS * N];
} values;

static void fill(values *v)
{
    numbers_fill(v->x, ROWS * N, 2, 1);
    numbers_fill(v->w, N, 1.5f, 2);
    numbers_fill(v->b, N, 1, 3);
    numbers_fill(v->dy, ROWS * N, 1, 4);
    for (size_t i = 0; i < ROWS * N; i++)
        v->x64[i] = v->x[i];
    for (size_t i = 0; i < N; i++) {
        v->w64[i] = v->w[i];
        v->b64[i] = v->b[i];
    }
}

static double loss(const values *v, naive_op *op)
{
    double y[ROWS * N], sum = 0;
    op(y, v->x64, v->w64, v->b64);
    for (size_t i = 0; i < ROWS * N; i++)
        sum += v->dy[i] * y[i];
    return sum;
}

/* out[i] = start + dL/dparameter[i], where `parameter` points into v. */
static void differences(values *v, naive_op *op, double *parameter, size_t n, double start,
                        double *out)
{
    for (size_t i = 0; i < n; i++) {
        double at = parameter[i];
        parameter[i] = at + STEP;
        double high = loss(v, op);
        parameter[i] = at - STEP;
        double low = loss(v, op);
        parameter[i] = at;
        out[i] = start + (high - low) / (2 * STEP);
    }
}

static void assert_close(const float *found, const double *expected, size_t n, double tolerance)
{
    double d = numbers_distance_to(found, expected, n);
    if (!(d < tolerance))
        fail_msg("relative distance %g, allowed %g", d, tolerance);
}

static void set_all(float *x, float value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

static void test_rms_norm(void **state)
{
    (void)state;
    values v;
    fill(&v);
    float y[ROWS * N], dx[ROWS * N], dw[N];
    double expected[ROWS * N];
    naive_rms(expected, v.x64, v.w64, NULL);
    ops_rms_norm_forward(y, v.x, v.w, ROWS, N, (float)EPS);
    assert_close(y, expected, ROWS * N, 1e-6);
    set_all(dx, 0.5f, ROWS * N);
    set_all(dw, -1, N);
    ops_rms_norm_backward(dx, dw, v.dy, v.x, v.w, ROWS, N, (float)EPS);
    differences(&v, naive_rms, v.x64, ROWS * N, 0.5, expected);
    assert_close(dx, expected, ROWS * N, 1e-6);
    differences(&v, naive_rms, v.w64, N, -1, expected);
    assert_close(dw, expected, N, 1e-6);
    ops_rms_norm_backward(NULL, NULL, v.dy, v.x, v.w, ROWS, N, (float)EPS);
    float in_place[ROWS * N];
    memcpy(in_place, v.x, sizeof in_place);
    ops_rms_norm_forward(in_place, in_place, v.w, ROWS, N, (float)EPS);
    assert_memory_equal(in_place, y, sizeof y);
}

static void test_layer_norm(void **state)
{
    (void)state;
    values v;
    fill(&v);
    float y[ROWS * N], dx[ROWS * N], dw[N], db[N];
    double expected[ROWS * N];
    naive_layer(expected, v.x64, v.w64, v.b64);
    ops_layer_norm_forward(y, v.x, v.w, v.b, ROWS, N, (float)EPS);
    assert_close(y, expected, ROWS * N, 1e-6);
    set_all(dx, 0.5f, ROWS * N);
    set_all(dw, -1, N);
    set_all(db, 2, N);
    ops_layer_norm_backward(dx, dw, db, v.dy, v.x, v.w, ROWS, N, (float)EPS);
    differences(&v, naive_layer, v.x64, ROWS * N, 0.5, expected);
    assert_close(dx, expected, ROWS * N, 1e-6);
    differences(&v, naive_layer, v.w64, N, -1, expected);
    assert_close(dw, expected, N, 1e-6);
    differences(&v, naive_layer, v.b64, N, 2, expected);
    assert_close(db, expected, N, 1e-6);
    ops_layer_norm_backward(NULL, NULL, NULL, v.dy, v.x, v.w, ROWS, N, (float)EPS);
}

static void test_softmax(void **state)
{
    (void)state;
    values v;
    fill(&v);
    float y[ROWS * N], dx[ROWS * N];
    double expected[ROWS * N];
    naive_softmax(expected, v.x64, NULL, NULL);
    ops_softmax_forward(y, v.x, ROWS, N);
    assert_close(y, expected, ROWS * N, 1e-6);
    ops_softmax_backward(dx, v.dy, y, ROWS, N);
    differences(&v, naive_softmax, v.x64, ROWS * N, 0, expected);
    assert_close(dx, expected, ROWS * N, 1e-5);
    memcpy(dx, v.dy, sizeof dx);
    ops_softmax_backward(dx, dx, y, ROWS, N);
    assert_close(dx, expected, ROWS * N, 1e-5);
    /* Adding a constant to a row changes nothing, however large it is. */
    float shifted[2] = {1000, 1001}, plain[2] = {0, 1}, a[2], b[2];
    ops_softmax_forward(a, shifted, 1, 2);
    ops_softmax_forward(b, plain, 1, 2);
    assert_memory_equal(a, b, sizeof a);
}

static void test_activations_go_through_the_table(void **state)
{
    (void)state;
    float x[5] = {-3, -0.5f, 0, 1, 20}, u[5] = {1, 2, 3, -1, 0.5f}, dy[5] = {1, -1, 2, 0.5f, 1};
    float y[5], dg[5], du[5], d2[5] = {0};
    ops_swiglu_forward(y, x, u, 5);
    ops_swiglu_backward(dg, du, dy, x, u, 5);
    for (size_t i = 0; i < 5; i++) {
        double s = 1 / (1 + exp(-(double)x[i]));
        assert_true(fabs(y[i] - x[i] * s * u[i]) < 1e-5);
        assert_true(fabs(dg[i] - dy[i] * u[i] * s * (1 + x[i] * (1 - s))) < 1e-5);
        assert_true(fabs(du[i] - dy[i] * x[i] * s) < 1e-5);
    }
    ops_geglu_forward(y, x, u, 5);
    ops_geglu_backward(dg, du, dy, x, u, 5);
    for (size_t i = 0; i < 5; i++) {
        double h = 1e-4, p[2];
        for (int side = 0; side < 2; side++) {
            double at = x[i] + (side ? h : -h);
            p[side] = 0.5 * at * (1 + tanh(0.7978845608028654 * (at + 0.044715 * at * at * at)));
        }
        assert_true(fabs(y[i] - (p[0] + p[1]) / 2 * u[i]) < 1e-5);
        assert_true(fabs(dg[i] - dy[i] * u[i] * (p[1] - p[0]) / (2 * h)) < 1e-5);
        assert_true(fabs(du[i] - dy[i] * (p[0] + p[1]) / 2) < 1e-5);
    }
    ops_gelu_forward(y, x, 5);
    ops_gelu_backward(d2, dy, x, 5);
    for (size_t i = 0; i < 5; i++) {
        double h = 1e-4, p[2];
        for (int side = 0; side < 2; side++) {
            double at = x[i] + (side ? h : -h);
            p[side] = 0.5 * at * (1 + tanh(0.7978845608028654 * (at + 0.044715 * at * at * at)));
        }
        assert_true(fabs(y[i] - (p[0] + p[1]) / 2) < 1e-5);
        assert_true(fabs(d2[i] - dy[i] * (p[1] - p[0]) / (2 * h)) < 1e-5);
    }
}

/* The textbook form: a pair is a complex number times magnitude e^(i position frequency). `second`
 * is where a head's pair i has its other half, `first` the one. */
static void check_rope(const ops_rope *rope, size_t first(size_t), size_t second(size_t))
{
    enum { HEADS = 2, TURNED = 4 };
    const size_t dim = rope->head_dim, stride = HEADS * dim + 8;
    const uint32_t position[TURNED][5] = {/* the fifth is of no use */
                                          {0, 0, 0, 0, 9},
                                          {1, 2, 3, 4, 9},
                                          {7, 7, 900, 7, 9},
                                          {100000, 5, 60000, 0, 9}};
    float *x = numbers_new(TURNED * stride, 1, 5), *start = numbers_new(TURNED * stride, 1, 5);
    float *table = numbers_new(TURNED * dim, 0, 0);
    ops_rope_table(table, rope, position[0], 5, TURNED);
    ops_rope_forward(x, table, rope, TURNED, HEADS, stride);
    for (size_t r = 0; r < TURNED; r++) {
        for (size_t i = 0; i < HEADS * dim / 2; i++) {
            size_t head = r * stride + i / (dim / 2) * dim, pair = i % (dim / 2);
            size_t at = head + first(pair), other = head + second(pair);
            uint32_t p = position[r][rope->axis ? rope->axis[pair] : 0];
            double angle = p * rope->frequency[pair], a = start[at], b = start[other];
            double c = rope->magnitude * cos(angle), d = rope->magnitude * sin(angle);
            assert_true(fabs(x[at] - (a * c - b * d)) < 1e-6);
            assert_true(fabs(x[other] - (a * d + b * c)) < 1e-6);
        }
        assert_memory_equal(x + r * stride + HEADS * dim, start + r * stride + HEADS * dim,
                            8 * sizeof *x);
    }
    /* The transpose of a rotation by `magnitude` undoes it but for the magnitude's square. */
    ops_rope_backward(x, table, rope, TURNED, HEADS, stride);
    for (size_t r = 0; r < TURNED; r++)
        ops_scale(x + r * stride, (float)(1 / rope->magnitude / rope->magnitude), HEADS * dim);
    assert_true(numbers_distance(x, start, TURNED * stride) < 1e-6);
    free(x), free(start), free(table);
}

static size_t even(size_t i)
{
    return 2 * i;
}
static size_t odd(size_t i)
{
    return 2 * i + 1;
}
static size_t lower(size_t i)
{
    return i;
}
static size_t upper_of_6(size_t i)
{
    return i + 3;
}
static size_t upper_of_70(size_t i)
{
    return i + 35;
}

/* Heads shorter than a vector, and of several vectors and a rest. */
static void test_rope(void **state)
{
    (void)state;
    double frequency[35];
    for (size_t i = 0; i < 35; i++)
        frequency[i] = pow(10000, -(double)i / 35);
    uint8_t axis[35];
    for (size_t i = 0; i < 35; i++)
        axis[i] = (uint8_t)(i * i % OPS_ROPE_AXES);
    for (int several = 0; several < 2; several++) {
        const uint8_t *by = several ? axis : NULL;
        ops_rope rope = {OPS_ROPE_PAIRS, 6, frequency, by, 1};
        check_rope(&rope, even, odd);
        rope = (ops_rope){OPS_ROPE_HALVES, 6, frequency, by, 1};
        check_rope(&rope, lower, upper_of_6);
        rope = (ops_rope){OPS_ROPE_PAIRS, 70, frequency, by, 1.1386294};
        check_rope(&rope, even, odd);
        rope = (ops_rope){OPS_ROPE_HALVES, 70, frequency, by, 1.1386294};
        check_rope(&rope, lower, upper_of_70);
    }
}

/* Hugging Face's rotation of Qwen 2 VL (tests/golden/make_mrope.py). */
static void test_rope_of_pictures(void **state)
{
    (void)state;
    double frequency[MROPE_HEAD / 2];
    uint8_t axis[MROPE_HEAD / 2];
    uint32_t position[MROPE_ROWS * 3];
    float table[MROPE_ROWS * MROPE_HEAD], x[sizeof mrope_input / sizeof mrope_input[0]];
    size_t at = 0;
    for (size_t i = 0; i < sizeof mrope_sections; i++)
        for (size_t k = 0; k < mrope_sections[i]; k++, at++) {
            axis[at] = (uint8_t)i;
            frequency[at] = pow(mrope_base, -2.0 * (double)at / MROPE_HEAD);
        }
    assert_int_equal(at, MROPE_HEAD / 2);
    for (size_t i = 0; i < MROPE_ROWS * 3; i++)
        position[i] = mrope_positions[i];
    const ops_rope rope = {OPS_ROPE_HALVES, MROPE_HEAD, frequency, axis, 1};
    memcpy(x, mrope_input, sizeof x);
    ops_rope_table(table, &rope, position, 3, MROPE_ROWS);
    ops_rope_forward(x, table, &rope, MROPE_ROWS, MROPE_HEADS, MROPE_HEADS * MROPE_HEAD);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        assert_true(fabsf(x[i] - mrope_turned[i]) < 1e-6f);
    ops_rope_backward(x, table, &rope, MROPE_ROWS, MROPE_HEADS, MROPE_HEADS * MROPE_HEAD);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        assert_true(fabsf(x[i] - mrope_input[i]) < 1e-6f);
}

static void test_add_and_scale(void **state)
{
    (void)state;
    float y[3] = {1, 2, 3};
    const float x[3] = {10, 20, 30};
    ops_add(y, x, 3);
    ops_scale(y, 2, 2);
    assert_true(y[0] == 22 && y[1] == 44 && y[2] == 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_activations_go_through_the_table),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_of_pictures),
        cmocka_unit_test(test_add_and_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
