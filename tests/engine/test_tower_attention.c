#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/pool.h"
#include "engine/kernels.h"
#include "engine/tower_attention.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    size_t rows, heads, dim;
    float reach; /* of queries: large ones make the weights steep */
} shape;

/* Fewer and more rows than a block of keys or of queries, heads of no whole vectors. */
static const shape shapes[] = {
    {1, 1, 1, 1},    {1, 2, 64, 1},   {5, 3, 7, 1},     {48, 2, 16, 1},
    {127, 2, 33, 3}, {128, 1, 64, 3}, {129, 3, 20, 30}, {300, 2, 72, 10},
};

static float value(uint32_t i, float reach)
{
    uint32_t x = i * 0x9e3779b9u;
    x = (x ^ x >> 15) * 0x846ca68bu;
    x ^= x >> 16;
    return reach * ((float)(x >> 8) / 8388608.0f - 1);
}

/* By the definition, in double. */
static void attend_naively(double *out, const tower_attention *a, size_t row, size_t head)
{
    size_t dim = a->width / a->heads;
    double *weight = calloc(a->rows, sizeof *weight), most = -INFINITY, total = 0;
    const float *q = a->q + row * a->width + head * dim;
    for (size_t j = 0; j < a->rows; j++) {
        for (size_t c = 0; c < dim; c++)
            weight[j] += (double)q[c] * (double)a->k[j * a->width + head * dim + c];
        weight[j] /= sqrt((double)dim);
        most = fmax(most, weight[j]);
    }
    for (size_t j = 0; j < a->rows; j++)
        total += weight[j] = exp(weight[j] - most);
    for (size_t c = 0; c < dim; c++) {
        out[c] = 0;
        for (size_t j = 0; j < a->rows; j++)
            out[c] += weight[j] / total * (double)a->v[j * a->width + head * dim + c];
    }
    free(weight);
}

static void check(const shape *s, size_t threads)
{
    size_t width = s->heads * s->dim, n = s->rows * width;
    float *memory = malloc(4 * n * sizeof *memory), *out = malloc(n * sizeof *out);
    float *q = memory, *k = q + n, *v = k + n, *over = v + n;
    double *expected = malloc(s->dim * sizeof *expected);
    tacit_pool *pool;
    assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
    for (size_t i = 0; i < n; i++) {
        q[i] = over[i] = value((uint32_t)i, s->reach);
        k[i] = value((uint32_t)(i + n), 1);
        v[i] = value((uint32_t)(i + 2 * n), 1);
    }
    float *scratch =
        malloc(tower_attention_scratch(s->rows, width, s->heads, threads) * sizeof *scratch);
    tower_attention a = {q, k, v, out, s->rows, width, s->heads};
    tower_attend(pool, &a, scratch);
    for (size_t row = 0; row < s->rows; row++)
        for (size_t h = 0; h < s->heads; h++) {
            attend_naively(expected, &a, row, h);
            for (size_t c = 0; c < s->dim; c++)
                if (fabs((double)out[row * width + h * s->dim + c] - expected[c]) > 2e-5)
                    fail_msg("%s, %zu rows, heads of %zu: row %zu is off by %g", kernels()->name,
                             s->rows, s->dim, row,
                             (double)out[row * width + h * s->dim + c] - expected[c]);
        }
    /* The result may lie over the queries. */
    tower_attention in_place = {over, k, v, over, s->rows, width, s->heads};
    tower_attend(NULL, &in_place, scratch);
    assert_memory_equal(over, out, n * sizeof *out);
    free(scratch), free(memory), free(out), free(expected);
    tacit_pool_free(pool);
}

static void test_agrees_with_the_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t threads = 1; threads <= 3; threads += 2)
            check(&shapes[i], threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
