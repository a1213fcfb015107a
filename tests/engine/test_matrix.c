#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/linear.h"
#include "engine/matrix.h"
#include "numbers.h"

#include <string.h>

typedef void multiply_function(tacit_pool *pool, float *y, const float *x, const float *w, size_t m,
                               size_t n, size_t k, bool accumulate);
typedef void naive_function(float *y, const float *x, const float *w, size_t m, size_t n, size_t k,
                            bool accumulate);

static tacit_pool *new_pool(size_t threads)
{
    tacit_pool *p = NULL;
    tacit_error err = {0};
    assert_int_equal(tacit_pool_new(&p, threads, &err), TACIT_OK);
    return p;
}

static void compare(multiply_function *fast, naive_function *naive, size_t m, size_t n, size_t k,
                    bool accumulate)
{
    float *x = numbers_new(m * k, 1, 1), *w = numbers_new(n * k, 1, 2);
    float *start = numbers_new(m * n, 1, 3), *expected = numbers_new(m * n, 1, 3);
    float *first = malloc(m * n * sizeof *first), *y = malloc(m * n * sizeof *y);
    assert_true(x && w && start && expected && first && y);
    naive(expected, x, w, m, n, k, accumulate);
    for (size_t threads = 0; threads <= 3; threads++) {
        tacit_pool *p = threads ? new_pool(threads) : NULL;
        memcpy(y, start, m * n * sizeof *y);
        fast(p, y, x, w, m, n, k, accumulate);
        assert_true(numbers_distance(y, expected, m * n) < 3e-6);
        if (threads == 0)
            memcpy(first, y, m * n * sizeof *y);
        assert_memory_equal(y, first, m * n * sizeof *y);
        tacit_pool_free(p);
    }
    free(y);
    free(first);
    free(expected);
    free(start);
    free(w);
    free(x);
}

static void test_products(void **state)
{
    (void)state;
    const size_t shape[][3] = {{1, 1, 1},     {1, 70, 33},   {2, 128, 64}, {3, 5, 7},
                               {40, 128, 8},  {40, 8, 128},  {7, 200, 65}, {300, 70, 20},
                               {5, 600, 300}, {250, 250, 40}};
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            size_t m = shape[i][0], n = shape[i][1], k = shape[i][2];
            compare(matrix_mul_nt, matrix_naive_nt, m, n, k, accumulate);
            compare(matrix_mul_nn, matrix_naive_nn, m, n, k, accumulate);
            compare(matrix_mul_tn, matrix_naive_tn, m, n, k, accumulate);
        }
}

/* No terms: zero, or what was there. */
static void test_empty_sum(void **state)
{
    (void)state;
    float y[4] = {1, 2, 3, 4}, none[1] = {0};
    matrix_mul_nn(NULL, y, none, none, 2, 2, 0, true);
    assert_true(y[0] == 1 && y[3] == 4);
    matrix_mul_nn(NULL, y, none, none, 2, 2, 0, false);
    assert_true(y[0] == 0 && y[3] == 0);
    matrix_mul_nt(NULL, y, none, none, 0, 2, 2, false);
}

static const tacit_type types[] = {TACIT_TYPE_F32,  TACIT_TYPE_F16,  TACIT_TYPE_BF16,
                                   TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0, TACIT_TYPE_Q4_1,
                                   TACIT_TYPE_Q5_0, TACIT_TYPE_Q5_1, TACIT_TYPE_Q4_K,
                                   TACIT_TYPE_Q5_K, TACIT_TYPE_Q6_K};
#define TYPES (sizeof types / sizeof types[0])

/* A linear of each type with its dequantized values, a bias and a low-rank pair. */
typedef struct fixture {
    size_t rows, n_in, n_out, rank;
    uint8_t *weight;
    float *w, *bias, *a, *b, *core, *x, *dy;
    tacit_linear l;
    tacit_low_rank pair;
} fixture;

static void make(fixture *f, tacit_type type, size_t rows, size_t n_in, size_t n_out, size_t rank)
{
    const tacit_type_traits *traits = tacit_type_find(type);
    size_t row_bytes = n_in / traits->block_values * traits->block_bytes;
    *f = (fixture){.rows = rows, .n_in = n_in, .n_out = n_out, .rank = rank};
    f->w = numbers_new(n_in * n_out, 0.3f, 21);
    f->bias = numbers_new(n_out, 0.5f, 22);
    f->a = numbers_new(rank * n_in, 0.5f, 23);
    f->b = numbers_new(n_out * rank, 0.5f, 24);
    f->core = numbers_new(rank * rank, 0.7f, 27);
    f->x = numbers_new(rows * n_in, 1, 25);
    f->dy = numbers_new(rows * n_out, 1, 26);
    f->weight = malloc(n_out * row_bytes);
    assert_true(f->w && f->bias && f->a && f->b && f->core && f->x && f->dy && f->weight);
    for (size_t i = 0; i < n_out; i++) {
        traits->from_f32(f->weight + i * row_bytes, f->w + i * n_in, n_in);
        traits->to_f32(f->w + i * n_in, f->weight + i * row_bytes, n_in);
    }
    f->pair = (tacit_low_rank){.a = f->a, .b = f->b, .rank = rank, .scale = 1.75f};
    gguf_tensor t = {.name = "t",
                     .n_dims = 2,
                     .ne = {n_in, n_out, 1, 1},
                     .type = type,
                     .traits = traits,
                     .rows = n_out,
                     .row_bytes = row_bytes,
                     .bytes = n_out * row_bytes,
                     .data = f->weight};
    tacit_error err = {0};
    assert_int_equal(linear_init(&f->l, &t, f->bias, n_in, n_out, &err), TACIT_OK);
}

static void unmake(fixture *f)
{
    linear_drop_cache(&f->l);
    free(f->weight);
    free(f->w);
    free(f->bias);
    free(f->a);
    free(f->b);
    free(f->core);
    free(f->x);
    free(f->dy);
}

/* B R [n_out, rank], or B without a core. */
static double half_of(const fixture *f, const tacit_low_rank *pair, size_t o, size_t k)
{
    double v = pair->core ? 0 : f->b[o * f->rank + k];
    for (size_t r = 0; pair->core && r < f->rank; r++)
        v += (double)f->b[o * f->rank + r] * pair->core[r * f->rank + k];
    return v;
}

/* The effective matrix in double: W + scale B R A. */
static double *effective(const fixture *f, const tacit_low_rank *pair)
{
    double *e = malloc(f->n_in * f->n_out * sizeof *e);
    assert_non_null(e);
    for (size_t o = 0; o < f->n_out; o++)
        for (size_t i = 0; i < f->n_in; i++) {
            double v = f->w[o * f->n_in + i];
            for (size_t r = 0; pair && r < f->rank; r++)
                v += (double)pair->scale * half_of(f, pair, o, r) * f->a[r * f->n_in + i];
            e[o * f->n_in + i] = v;
        }
    return e;
}

static void check_forward(const fixture *f, tacit_pool *p, const tacit_low_rank *pair,
                          float *scratch)
{
    double *e = effective(f, pair), *expected = malloc(f->rows * f->n_out * sizeof *e);
    float *y = malloc(f->rows * f->n_out * sizeof *y);
    assert_true(expected && y);
    for (size_t r = 0; r < f->rows; r++)
        for (size_t o = 0; o < f->n_out; o++) {
            double sum = f->bias[o];
            for (size_t i = 0; i < f->n_in; i++)
                sum += e[o * f->n_in + i] * f->x[r * f->n_in + i];
            expected[r * f->n_out + o] = sum;
        }
    linear_forward(p, &f->l, pair, y, f->x, f->rows, scratch);
    assert_true(numbers_distance_to(y, expected, f->rows * f->n_out) < 2e-6);
    free(y);
    free(expected);
    free(e);
}

static void check_backward(const fixture *f, tacit_pool *p, const tacit_low_rank *pair,
                           float *scratch)
{
    size_t n = f->rows * f->n_in;
    double *e = effective(f, pair), *expected = malloc(n * sizeof *e);
    float *dx = numbers_new(n, 1, 31);
    assert_true(expected && dx);
    for (int accumulate = 1; accumulate >= 0; accumulate--) {
        for (size_t r = 0; r < f->rows; r++)
            for (size_t i = 0; i < f->n_in; i++) {
                double sum = accumulate ? dx[r * f->n_in + i] : 0;
                for (size_t o = 0; o < f->n_out; o++)
                    sum += e[o * f->n_in + i] * f->dy[r * f->n_out + o];
                expected[r * f->n_in + i] = sum;
            }
        linear_backward_input(p, &f->l, pair, dx, f->dy, f->rows, accumulate, scratch);
        assert_true(numbers_distance_to(dx, expected, n) < 2e-6);
    }
    free(dx);
    free(expected);
    free(e);
}

static void check_all_ways(fixture *f)
{
    for (size_t threads = 1; threads <= 3; threads++) {
        tacit_pool *p = new_pool(threads);
        size_t n = linear_scratch(&f->l, f->rows, f->rank, threads);
        float *scratch = malloc(n * sizeof *scratch);
        assert_non_null(scratch);
        check_forward(f, p, NULL, scratch);
        check_forward(f, p, &f->pair, scratch);
        check_backward(f, p, NULL, scratch);
        check_backward(f, p, &f->pair, scratch);
        tacit_low_rank cored = f->pair;
        cored.core = f->core;
        check_forward(f, p, &cored, scratch);
        check_backward(f, p, &cored, scratch);
        free(scratch);
        tacit_pool_free(p);
    }
}

static void test_linear_of_every_type(void **state)
{
    (void)state;
    const size_t shape[][4] = {{1, 32, 3, 2}, {5, 320, 70, 4}, {40, 128, 65, 8}, {3, 544, 130, 1}};
    for (size_t t = 0; t < TYPES; t++)
        for (size_t s = 0; s < 4; s++) {
            fixture f;
            size_t block = tacit_type_find(types[t])->block_values;
            size_t n_in = (shape[s][1] + block - 1) / block * block;
            make(&f, types[t], shape[s][0], n_in, shape[s][2], shape[s][3]);
            check_all_ways(&f);
            assert_int_equal(linear_cache(&f.l), TACIT_OK);
            check_all_ways(&f);
            unmake(&f);
        }
}

static void test_expand_and_rows(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++) {
        fixture f;
        if (96 % tacit_type_find(types[t])->block_values != 0)
            continue;
        make(&f, types[t], 5, 96, 70, 1);
        float *buffer = malloc(linear_expand_floats(&f.l) * sizeof *buffer), row[96];
        float *y = calloc(2 * 5 * 96, sizeof *y), *expected = y + 5 * 96;
        assert_true(buffer && y);
        tacit_linear flat;
        linear_expand(NULL, &flat, &f.l, false, buffer);
        assert_ptr_equal(flat.bias, f.bias);
        float *scratch = malloc(linear_scratch(&f.l, 5, 1, 1) * sizeof *scratch);
        linear_forward(NULL, &flat, NULL, y, f.x, 5, scratch);
        linear_forward(NULL, &f.l, NULL, expected, f.x, 5, scratch);
        assert_memory_equal(y, expected, 5 * 70 * sizeof *y);
        linear_expand(NULL, &flat, &f.l, true, buffer);
        linear_backward_input(NULL, &flat, NULL, y, f.dy, 5, false, scratch);
        linear_backward_input(NULL, &f.l, NULL, expected, f.dy, 5, false, scratch);
        for (size_t i = 0; i < 5 * 96; i++)
            assert_float_equal(y[i], expected[i], 1e-4);
        linear_row(&f.l, 69, row);
        assert_memory_equal(row, f.w + 69 * 96, sizeof row);
        free(buffer), free(y), free(scratch);
        unmake(&f);
    }
}

/* The gradients of L = sum(dy * y): dW[o, i] = sum_r dy x, and through the pair by hand. */
static void test_weight_gradients(void **state)
{
    (void)state;
    fixture f;
    make(&f, TACIT_TYPE_Q8_0, 9, 64, 40, 3);
    float *dw = numbers_new(64 * 40, 1, 41), *db = numbers_new(40 * 3, 1, 42);
    float *da = numbers_new(3 * 64, 1, 43), dbias[40];
    float *scratch = malloc(linear_scratch(&f.l, 9, 3, 1) * sizeof *scratch);
    double edw[64 * 40], edb[40 * 3], eda[3 * 64], ebias[40];
    assert_true(dw && db && da && scratch);
    numbers_fill(dbias, 40, 1, 44);
    for (size_t o = 0; o < 40; o++) {
        ebias[o] = dbias[o];
        for (size_t r = 0; r < 9; r++)
            ebias[o] += f.dy[r * 40 + o];
        for (size_t i = 0; i < 64; i++) {
            edw[o * 64 + i] = dw[o * 64 + i];
            for (size_t r = 0; r < 9; r++)
                edw[o * 64 + i] += (double)f.dy[r * 40 + o] * f.x[r * 64 + i];
        }
    }
    /* dB = scale dW A^T and dA = scale B^T dW, with dW of this call alone. */
    for (size_t o = 0; o < 40; o++)
        for (size_t k = 0; k < 3; k++) {
            edb[o * 3 + k] = db[o * 3 + k];
            for (size_t i = 0; i < 64; i++)
                edb[o * 3 + k] += 1.75 * (edw[o * 64 + i] - dw[o * 64 + i]) * f.a[k * 64 + i];
        }
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < 64; i++) {
            eda[k * 64 + i] = da[k * 64 + i];
            for (size_t o = 0; o < 40; o++)
                eda[k * 64 + i] += 1.75 * f.b[o * 3 + k] * (edw[o * 64 + i] - dw[o * 64 + i]);
        }
    const linear_pair_gradient both = {.a = da, .b = db};
    linear_backward_pair(NULL, &f.l, &f.pair, &both, f.dy, f.x, 9, scratch);
    linear_backward_weight(NULL, &f.l, dw, f.dy, f.x, 9);
    linear_backward_bias(&f.l, dbias, f.dy, 9);
    assert_true(numbers_distance_to(dw, edw, 64 * 40) < 1e-6);
    assert_true(numbers_distance_to(db, edb, 40 * 3) < 1e-6);
    assert_true(numbers_distance_to(da, eda, 3 * 64) < 1e-6);
    assert_true(numbers_distance_to(dbias, ebias, 40) < 1e-6);
    float *again = malloc(40 * 3 * sizeof *again);
    assert_non_null(again);
    memset(again, 0, 40 * 3 * sizeof *again);
    const linear_pair_gradient alone = {.b = again};
    linear_backward_pair(NULL, &f.l, &f.pair, &alone, f.dy, f.x, 9, scratch);
    numbers_fill(db, 40 * 3, 1, 42);
    for (size_t i = 0; i < 40 * 3; i++)
        assert_true(fabs(again[i] + db[i] - edb[i]) < 1e-4);
    free(again);
    free(scratch);
    free(da);
    free(db);
    free(dw);
    unmake(&f);
}

/* dR = scale B^T dW A^T, with dW = dy^T x. */
static void test_core_gradient(void **state)
{
    (void)state;
    fixture f;
    make(&f, TACIT_TYPE_Q8_0, 9, 64, 40, 3);
    float *scratch = malloc(linear_scratch(&f.l, 9, 3, 1) * sizeof *scratch);
    float *dr = numbers_new(9, 1, 45);
    double expected[9];
    assert_true(scratch && dr);
    for (size_t k = 0; k < 3; k++)
        for (size_t j = 0; j < 3; j++) {
            double sum = 0;
            for (size_t o = 0; o < 40; o++)
                for (size_t i = 0; i < 64; i++)
                    for (size_t r = 0; r < 9; r++)
                        sum += (double)f.b[o * 3 + k] * f.dy[r * 40 + o] * f.x[r * 64 + i] *
                               f.a[j * 64 + i];
            expected[3 * k + j] = dr[3 * k + j] + 1.75 * sum;
        }
    f.pair.core = f.core; /* on which its own gradient does not depend */
    const linear_pair_gradient d = {.core = dr};
    linear_backward_pair(NULL, &f.l, &f.pair, &d, f.dy, f.x, 9, scratch);
    assert_true(numbers_distance_to(dr, expected, 9) < 1e-6);
    free(dr);
    free(scratch);
    unmake(&f);
}

static void test_refusals(void **state)
{
    (void)state;
    fixture f;
    make(&f, TACIT_TYPE_Q8_0, 1, 32, 4, 1);
    gguf_tensor t = {.name = "blk.0.attn_q.weight",
                     .n_dims = 2,
                     .ne = {32, 4, 1, 1},
                     .type = TACIT_TYPE_Q8_0,
                     .traits = f.l.type,
                     .rows = 4,
                     .row_bytes = 34,
                     .bytes = 4 * 34,
                     .data = f.weight};
    tacit_linear l;
    tacit_error err = {0};
    assert_int_equal(linear_init(&l, &t, NULL, 32, 4, &err), TACIT_OK);
    assert_int_equal(linear_init(&l, &t, NULL, 4, 32, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "blk.0.attn_q.weight"));
    assert_non_null(strstr(err.message, "[4, 32]"));
    t.ne[2] = 2;
    t.rows = 8;
    t.n_dims = 3;
    assert_int_equal(linear_init(&l, &t, NULL, 32, 4, &err), TACIT_BAD_INPUT);
    t.ne[2] = 1;
    t.rows = 4;
    t.traits = NULL;
    t.type = 14;
    assert_int_equal(linear_init(&l, &t, NULL, 32, 4, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "q6_k"));
    unmake(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_empty_sum),
        cmocka_unit_test(test_linear_of_every_type),
        cmocka_unit_test(test_expand_and_rows),
        cmocka_unit_test(test_weight_gradients),
        cmocka_unit_test(test_core_gradient),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
