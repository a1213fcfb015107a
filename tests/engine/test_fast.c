#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/fast.h"
#include "engine/kernels.h"
#include "numbers.h"

#include <string.h>

static const char *const names[] = {"generic", "avx2", "avx512"};
static const tacit_type types[FAST_TYPES] = {
    [FAST_Q8_0] = TACIT_TYPE_Q8_0, [FAST_Q4_0] = TACIT_TYPE_Q4_0, [FAST_Q4_1] = TACIT_TYPE_Q4_1};
#define MAX_BLOCKS 5
#define MAX_ROWS 14

static void on_every_variant(void (*check)(const fast_kernels *k))
{
    size_t ran = 0;
    for (size_t v = 0; v < 3; v++) {
        const tacit_kernels *k = kernels_by_name(names[v]);
        if (k) {
            check(k->fast);
            ran++;
        }
    }
    assert_true(ran >= 1);
}

/* Halves of the step around each value, a scale of a 127th of the largest, and their sums. */
static void check_quantize(const fast_kernels *k)
{
    float x[MAX_BLOCKS * 32];
    int8_t q[MAX_BLOCKS * 32];
    float meta[2 * MAX_BLOCKS], scale[MAX_BLOCKS];
    int32_t total[MAX_BLOCKS];
    numbers_fill(x, MAX_BLOCKS * 32, 3, 1);
    memset(x + 32, 0, 32 * sizeof *x);
    x[64] = -100;
    k->quantize(q, meta, total, x, MAX_BLOCKS);
    for (size_t b = 0; b < MAX_BLOCKS; b++) {
        scale[b] = meta[2 * b];
        assert_true(meta[2 * b + 1] == scale[b] * (float)total[b]);
        float most = 0;
        int32_t sum = 0;
        for (size_t i = 0; i < 32; i++) {
            float v = x[b * 32 + i];
            most = fabsf(v) > most ? fabsf(v) : most;
            sum += q[b * 32 + i];
            assert_true(fabs(v - (double)scale[b] * q[b * 32 + i]) <= 0.5001 * (double)scale[b]);
        }
        assert_true(fabsf(scale[b] - most / 127) <= 1e-6f * most);
        assert_int_equal(total[b], sum);
    }
    assert_int_equal(q[64], -127);
    assert_int_equal(total[1], 0);
    const float strange[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 4; i++) {
        x[40] = strange[i];
        k->quantize(q, meta, total, x, 3);
        assert_true(isnan(meta[2]) && isnan(meta[3]) && !isnan(meta[0]) && !isnan(meta[4]));
        assert_int_equal(total[1], 0);
    }
}

static void test_quantize(void **state)
{
    (void)state;
    on_every_variant(check_quantize);
}

typedef struct operands {
    size_t blocks, row_bytes;
    uint8_t *weight; /* 32 rows */
    float *value;    /* the same, dequantized */
    int8_t q[MAX_ROWS * MAX_BLOCKS * 32];
    float scale[MAX_ROWS * MAX_BLOCKS], meta[2 * MAX_ROWS * MAX_BLOCKS];
    int32_t total[MAX_ROWS * MAX_BLOCKS];
} operands;

/* With `extreme` all bytes of weights and activations are drawn, -128 and all bits set among them:
 * the largest sums that integers must hold. */
static void make(operands *o, fast_type type, size_t blocks, bool extreme)
{
    const tacit_type_traits *t = tacit_type_find(types[type]);
    uint64_t seed = 5 + blocks;
    o->blocks = blocks;
    o->row_bytes = blocks * t->block_bytes;
    o->weight = malloc(FAST_PANEL * o->row_bytes);
    o->value = numbers_new(FAST_PANEL * blocks * 32, 1, 6);
    for (size_t r = 0; r < FAST_PANEL; r++) {
        uint8_t *row = o->weight + r * o->row_bytes;
        t->from_f32(row, o->value + r * blocks * 32, blocks * 32);
        for (size_t b = 0; extreme && b < blocks; b++) {
            size_t head = t->block_bytes - (type == FAST_Q8_0 ? 32 : 16);
            for (size_t i = head; i < t->block_bytes; i++)
                row[b * t->block_bytes + i] =
                    r % 2 ? (type == FAST_Q8_0 ? 0x80 : 0xff) : (uint8_t)numbers_next(&seed);
        }
        t->to_f32(o->value + r * blocks * 32, row, blocks * 32);
    }
    for (size_t i = 0; i < MAX_ROWS * blocks; i++) {
        o->scale[i] = 0.01f + (float)(numbers_next(&seed) % 100) / 100;
        o->total[i] = 0;
        for (size_t j = 0; j < 32; j++) {
            int8_t v = extreme ? (i % 2 ? 127 : -127) : (int8_t)(numbers_next(&seed) % 255 - 127);
            o->q[i * 32 + j] = v;
            o->total[i] += v;
        }
        o->meta[2 * i] = o->scale[i];
        o->meta[2 * i + 1] = o->scale[i] * (float)o->total[i];
    }
}

static void unmake(operands *o)
{
    free(o->weight);
    free(o->value);
}

/* The product in double, and the size of its terms, to which rounding is relative. */
static double expected(const operands *o, size_t row, size_t c, double *size)
{
    double sum = 0;
    *size = 0;
    for (size_t i = 0; i < o->blocks * 32; i++) {
        double a = (double)o->scale[row * o->blocks + i / 32] * o->q[row * o->blocks * 32 + i];
        sum += o->value[c * o->blocks * 32 + i] * a;
        *size += fabs(o->value[c * o->blocks * 32 + i] * a);
    }
    return sum;
}

static void assert_product(const operands *o, size_t row, size_t c, float found)
{
    double size, e = expected(o, row, c, &size);
    if (!(fabs(found - e) <= 2e-6 * (1 + size)))
        fail_msg("row %zu, column %zu: found %.9g, expected %.9g", row, c, (double)found, e);
}

static void check_products_of(const fast_kernels *k, fast_type type, size_t blocks, bool extreme)
{
    static operands o;
    static uint8_t w[FAST_PANEL * MAX_BLOCKS * 32];
    static float d[FAST_PANEL * MAX_BLOCKS], m[FAST_PANEL * MAX_BLOCKS];
    float y[MAX_ROWS + 1][FAST_PANEL + 3];
    make(&o, type, blocks, extreme);
    for (size_t r = 0; r < MAX_ROWS; r++)
        for (size_t c = 0; c < FAST_PANEL; c++)
            assert_product(&o, r, c,
                           k->dot[type](o.weight + c * o.row_bytes, o.q + r * blocks * 32,
                                        o.meta + 2 * r * blocks, blocks));
    fast_panel p = {.w = w, .d = d, .m = m};
    const uint8_t *row[FAST_PANEL];
    for (size_t c = 0; c < FAST_PANEL; c++)
        row[c] = o.weight + c * o.row_bytes;
    k->pack[type](&p, row, blocks);
    const fast_rows a = {o.q, o.meta, o.total, blocks};
    for (size_t rows = 1; rows <= MAX_ROWS; rows++) {
        y[rows][0] = 4321;
        k->multiply(y[0], FAST_PANEL + 3, &p, &a, rows);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < FAST_PANEL; c++)
                assert_product(&o, r, c, y[r][c]);
        assert_true(y[rows][0] == 4321);
    }
    unmake(&o);
}

static void check_products(const fast_kernels *k)
{
    for (int type = 0; type < FAST_TYPES; type++)
        for (size_t blocks = 1; blocks <= MAX_BLOCKS; blocks++)
            for (int extreme = 0; extreme < 2; extreme++)
                check_products_of(k, (fast_type)type, blocks, extreme);
}

static void test_products(void **state)
{
    (void)state;
    on_every_variant(check_products);
}

/* The operator: outputs that fill no panel, bias, pair, types and widths that go the exact way. */
static void check_linear(tacit_type type, size_t rows, size_t n_in, size_t n_out, double tolerance)
{
    const tacit_type_traits *t = tacit_type_find(type);
    size_t row_bytes = n_in / t->block_values * t->block_bytes;
    uint8_t *weight = malloc(n_out * row_bytes);
    float *w = numbers_new(n_in * n_out, 1, 31), *x = numbers_new(rows * n_in, 1, 32);
    float *bias = numbers_new(n_out, 1, 33), *y = malloc(rows * n_out * sizeof *y);
    float *a = numbers_new(2 * n_in, 1, 34), *b = numbers_new(n_out * 2, 1, 35);
    float *exact = malloc(rows * n_out * sizeof *exact);
    const tacit_low_rank pair = {a, b, 2, 0.5f};
    for (size_t i = 0; i < n_out; i++)
        t->from_f32(weight + i * row_bytes, w + i * n_in, n_in);
    tacit_linear l = {.weight = weight, .type = t, .row_bytes = row_bytes, .bias = bias};
    l.n_in = n_in;
    l.n_out = n_out;
    tacit_pool *pool;
    tacit_error err;
    fast_input in;
    assert_int_equal(tacit_pool_new(&pool, 2, &err), TACIT_OK);
    assert_true(fast_input_init(&in, rows, n_in));
    float *scratch = malloc(linear_scratch(&l, rows, 2, 2) * sizeof *scratch);
    fast_input_set(pool, &in, x, rows, n_in, true);
    linear_forward(pool, &l, &pair, exact, x, rows, scratch);
    fast_linear_forward(pool, &l, &pair, y, &in, true, x, rows, scratch);
    assert_true(numbers_distance(y, exact, rows * n_out) <= tolerance / 100);
    fast_linear_forward(pool, &l, &pair, y, &in, false, x, rows, scratch);
    double distance = numbers_distance(y, exact, rows * n_out);
    if (!(distance <= tolerance) || (tolerance > 0 && distance == 0))
        fail_msg("type %d, %zu x %zu x %zu: %g", (int)type, rows, n_in, n_out, distance);
    fast_input_fini(&in);
    tacit_pool_free(pool);
    void *const parts[] = {weight, w, x, bias, y, a, b, exact, scratch};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

static void test_linear(void **state)
{
    (void)state;
    const size_t rows[] = {1, 3, 4, 21};
    for (size_t r = 0; r < 4; r++) {
        for (size_t t = 0; t < FAST_TYPES; t++) {
            check_linear(types[t], rows[r], 64, 32, 1e-2);
            check_linear(types[t], rows[r], 160, 135, 1e-2);
        }
        check_linear(TACIT_TYPE_F32, rows[r], 64, 33, 0);
        check_linear(TACIT_TYPE_F16, rows[r], 50, 33, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
