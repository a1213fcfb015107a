#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/fast.h"
#include "engine/kernels.h"
#include "numbers.h"
#include "tile_checks.h"

#include <string.h>

static const char *const names[] = {"generic", "avx2", "avx512", "amx", "neon", "i8mm"};
/* Every type that has a form; blocks of 256 values need eight blocks of activations. */
static const tacit_type types[] = {
    TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0, TACIT_TYPE_Q4_1, TACIT_TYPE_Q5_0,
    TACIT_TYPE_Q5_1, TACIT_TYPE_Q4_K, TACIT_TYPE_Q5_K, TACIT_TYPE_Q6_K,
};
#define VARIANTS (sizeof names / sizeof names[0])
#define TYPES (sizeof types / sizeof types[0])
#define MAX_BLOCKS 16
#define MAX_ROWS 14
#define MAX_COLS 35

static void on_every_variant(void (*check)(const fast_kernels *k))
{
    size_t ran = 0;
    for (size_t v = 0; v < VARIANTS; v++) {
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
    numbers_fill(x, MAX_BLOCKS * 32, 3, 1);
    memset(x + 32, 0, 32 * sizeof *x);
    x[64] = -100;
    k->quantize(q, meta, x, MAX_BLOCKS);
    for (size_t b = 0; b < MAX_BLOCKS; b++) {
        scale[b] = meta[2 * b];
        float most = 0;
        int32_t sum = 0;
        for (size_t i = 0; i < 32; i++) {
            float v = x[b * 32 + i];
            most = fabsf(v) > most ? fabsf(v) : most;
            sum += q[b * 32 + i];
            assert_true(fabs(v - (double)scale[b] * q[b * 32 + i]) <= 0.5001 * (double)scale[b]);
        }
        assert_true(fabsf(scale[b] - most / 127) <= 1e-6f * most);
        assert_true(meta[2 * b + 1] == scale[b] * (float)sum);
    }
    assert_int_equal(q[64], -127);
    assert_true(meta[2] == 0 && meta[3] == 0);
    const float strange[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 4; i++) {
        x[40] = strange[i];
        k->quantize(q, meta, x, 3);
        assert_true(isnan(meta[2]) && isnan(meta[3]) && !isnan(meta[0]) && !isnan(meta[4]));
    }
}

static void test_quantize(void **state)
{
    (void)state;
    on_every_variant(check_quantize);
}

typedef struct operands {
    size_t blocks, row_bytes;
    tacit_linear l;
    uint8_t *weight; /* MAX_COLS rows */
    float *value;    /* the same, dequantized */
    double largest;  /* magnitude of them */
    int8_t q[MAX_ROWS * MAX_BLOCKS * 32];
    float meta[2 * MAX_ROWS * MAX_BLOCKS];
} operands;

/* Where the quanta of a block begin, and where they end. */
static void quanta_of(tacit_type type, size_t block_bytes, size_t *from, size_t *to)
{
    const size_t heads[] = {
        [TACIT_TYPE_Q8_0] = 2, [TACIT_TYPE_Q4_0] = 2, [TACIT_TYPE_Q4_1] = 4, [TACIT_TYPE_Q5_0] = 2,
        [TACIT_TYPE_Q5_1] = 4, [TACIT_TYPE_Q4_K] = 4, [TACIT_TYPE_Q5_K] = 4, [TACIT_TYPE_Q6_K] = 0};
    *from = heads[type];
    *to = type == TACIT_TYPE_Q6_K ? block_bytes - 2 : block_bytes;
}

/* With `extreme` all bytes of weights and activations are drawn, all bits set, none or (of 8 bits)
 * -128 among them, against activations of +-127: the largest sums that integers must hold. */
static void make(operands *o, tacit_type type, size_t blocks, bool extreme)
{
    const tacit_type_traits *t = tacit_type_find(type);
    uint64_t seed = 5 + blocks;
    size_t n_in = blocks * 32, from, to;
    o->blocks = blocks;
    o->row_bytes = n_in / t->block_values * t->block_bytes;
    o->weight = malloc(MAX_COLS * o->row_bytes);
    o->value = numbers_new(MAX_COLS * n_in, 1, 6);
    quanta_of(type, t->block_bytes, &from, &to);
    for (size_t r = 0; r < MAX_COLS; r++) {
        uint8_t *row = o->weight + r * o->row_bytes;
        t->from_f32(row, o->value + r * n_in, n_in);
        for (size_t b = 0; extreme && b < n_in / t->block_values; b++)
            for (size_t i = from; i < to; i++)
                row[b * t->block_bytes + i] = r % 3 == 0 ? (uint8_t)numbers_next(&seed)
                                              : r % 3 == 1
                                                  ? 0
                                                  : (type == TACIT_TYPE_Q8_0 ? 0x80 : 0xff);
        t->to_f32(o->value + r * n_in, row, n_in);
    }
    o->largest = 0;
    for (size_t i = 0; i < MAX_COLS * n_in; i++)
        if (fabsf(o->value[i]) > (float)o->largest)
            o->largest = fabsf(o->value[i]);
    o->l = (tacit_linear){.weight = o->weight, .type = t, .row_bytes = o->row_bytes, .n_in = n_in};
    for (size_t i = 0; i < MAX_ROWS * blocks; i++) {
        float scale = 0.01f + (float)(numbers_next(&seed) % 100) / 100;
        int32_t total = 0;
        for (size_t j = 0; j < 32; j++) {
            int8_t v = extreme ? (i % 2 ? 127 : -127) : (int8_t)(numbers_next(&seed) % 255 - 127);
            o->q[i * 32 + j] = v;
            total += v;
        }
        o->meta[2 * i] = scale;
        o->meta[2 * i + 1] = scale * (float)total;
    }
}

/* A block whose scale, or offset, is the product of a half and an integer that no half holds. */
static void check_scales_beyond_a_half(const fast_kernels *k)
{
    static const struct {
        tacit_type type;
        size_t half, integers, count;
        uint8_t most;
    } cases[] = {{TACIT_TYPE_Q4_K, 0, 4, 12, 0xff},
                 {TACIT_TYPE_Q4_K, 2, 4, 12, 0xff},
                 {TACIT_TYPE_Q5_K, 0, 4, 12, 0xff},
                 {TACIT_TYPE_Q5_K, 2, 4, 12, 0xff},
                 {TACIT_TYPE_Q6_K, 208, 192, 16, 0x7f}};
    enum { ROW = 20 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        operands o;
        fast_weight w;
        make(&o, cases[i].type, 8, false);
        o.l.n_out = MAX_COLS;
        uint8_t *panels = aligned_alloc(64, fast_weight_plan(&w, k, &o.l));
        uint8_t *block = o.weight + ROW * o.row_bytes;
        size_t panel = ROW / k->width * k->width, next = panel + k->width;
        assert_true(fast_weight_pack(NULL, &w, k, &o.l, panels, 0, MAX_COLS));
        memset(block + cases[i].integers, cases[i].most, cases[i].count);
        memcpy(block + cases[i].half, "\xff\x7b", 2); /* 65504 */
        assert_false(fast_weight_pack(NULL, &w, k, &o.l, panels, 0, MAX_COLS));
        assert_true(fast_weight_pack(NULL, &w, k, &o.l, panels, 0, panel));
        assert_true(fast_weight_pack(NULL, &w, k, &o.l, panels, next, MAX_COLS));
        free(panels);
        free(o.weight);
        free(o.value);
    }
}

static void test_scales_beyond_a_half(void **state)
{
    (void)state;
    on_every_variant(check_scales_beyond_a_half);
}

/* In two parts where there are enough rows. */
static bool pack_all(tacit_pool *pool, fast_weight *w, const fast_kernels *k, const tacit_linear *l,
                     uint8_t *panels)
{
    size_t middle = l->n_out / 2 / k->width * k->width;
    w->panels = panels;
    return fast_weight_pack(pool, w, k, l, panels, 0, middle) &&
           fast_weight_pack(pool, w, k, l, panels, middle, l->n_out);
}

static void unmake(operands *o)
{
    free(o->weight);
    free(o->value);
}

/* The product in double, and the size of its terms, to which rounding is relative: of terms with
 * the largest weights that the type's quanta make, since d u + m is rounded relative to its parts.
 */
static double expected(const operands *o, size_t row, size_t c, double *size)
{
    double sum = 0, magnitudes = 0;
    for (size_t i = 0; i < o->blocks * 32; i++) {
        double a = (double)o->meta[2 * (row * o->blocks + i / 32)] * o->q[row * o->blocks * 32 + i];
        sum += o->value[c * o->blocks * 32 + i] * a;
        magnitudes += fabs(a);
    }
    *size = o->largest * magnitudes;
    return sum;
}

/* Rows at `step` as the kernel is told, each alone or with the next one added. */
static void check_rows(const operands *o, const fast_kernels *k, const fast_weight *w, size_t rows,
                       size_t cols, size_t step, bool paired, double tolerance)
{
    static float y[MAX_ROWS + 1][MAX_COLS + 3];
    const fast_rows a = {o->q, o->meta, o->blocks, step, paired};
    for (size_t r = 0; r <= rows; r++)
        for (size_t c = 0; c < MAX_COLS + 3; c++)
            y[r][c] = 4321;
    k->multiply[w->form](y[0], MAX_COLS + 3, cols, w->panels, &a, rows);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            double size, other = 0, e = expected(o, r * step, c, &size);
            if (paired)
                e += expected(o, r * step + 1, c, &other);
            if (!(fabs(y[r][c] - e) <= tolerance * (1 + size + other)))
                fail_msg("%s, row %zu of %zu, column %zu of %zu: found %.9g, expected %.9g (of %g)",
                         o->l.type->name, r, rows, c, cols, (double)y[r][c], e, size + other);
        }
        assert_true(y[r][cols] == 4321 && y[rows][0] == 4321);
    }
}

static void check_products_of(const fast_kernels *k, tacit_type type, size_t blocks, bool extreme)
{
    static operands o;
    const bool rounds = tacit_type_find(type)->block_values > 32; /* scales to fp16 */
    fast_weight w;
    make(&o, type, blocks, extreme);
    for (size_t cols = MAX_COLS; cols > 0; cols /= 3) {
        o.l.n_out = cols;
        size_t bytes = fast_weight_plan(&w, k, &o.l);
        uint8_t *panels = aligned_alloc(64, bytes);
        assert_true(bytes > 0 && pack_all(NULL, &w, k, &o.l, panels));
        double tolerance = rounds ? 2e-3 : 2e-6;
        for (size_t rows = 1; rows <= MAX_ROWS; rows++)
            check_rows(&o, k, &w, rows, cols, 1, false, tolerance);
        for (size_t rows = 1; rows <= MAX_ROWS / 2; rows++) {
            check_rows(&o, k, &w, rows, cols, 2, false, tolerance);
            check_rows(&o, k, &w, rows, cols, 2, true, tolerance);
        }
        free(panels);
    }
    unmake(&o);
}

static void check_products(const fast_kernels *k)
{
    for (size_t t = 0; t < TYPES; t++) {
        size_t unit = tacit_type_find(types[t])->block_values / 32;
        for (size_t blocks = unit; blocks <= MAX_BLOCKS && blocks <= 3 * unit; blocks += unit)
            for (int extreme = 0; extreme < 2; extreme++)
                check_products_of(k, types[t], blocks, extreme);
    }
}

static void test_products(void **state)
{
    (void)state;
    on_every_variant(check_products);
}

/* Integers and scales that fp32 holds exactly: variants must agree to the last bit, whatever the
 * rows beside a row are. Scales are powers of two, so that no sum rounds. */
static void test_variants_agree_exactly(void **state)
{
    (void)state;
    static operands o;
    static float y[2][MAX_ROWS][MAX_COLS];
    const fast_kernels *variant[VARIANTS] = {NULL};
    for (size_t v = 0; v < VARIANTS; v++)
        if (kernels_by_name(names[v]))
            variant[v] = kernels_by_name(names[v])->fast;
    for (size_t t = 0; t < 5; t++) {
        make(&o, types[t], 2, true);
        for (size_t r = 0; r < MAX_COLS * 2; r++) {
            const uint16_t one = 0x3c00; /* d, and m where there is one */
            uint8_t *block = o.weight + r * tacit_type_find(types[t])->block_bytes;
            memcpy(block, &one, 2);
            if (types[t] == TACIT_TYPE_Q4_1 || types[t] == TACIT_TYPE_Q5_1)
                memcpy(block + 2, &one, 2);
        }
        for (size_t i = 0; i < MAX_ROWS * 2; i++) {
            o.meta[2 * i + 1] /= o.meta[2 * i];
            o.meta[2 * i + 1] = roundf(o.meta[2 * i + 1]) * 0.5f;
            o.meta[2 * i] = 0.5f;
        }
        o.l.n_out = MAX_COLS;
        for (size_t v = 0; v < VARIANTS; v++) {
            if (!variant[v])
                continue;
            fast_weight w;
            size_t bytes = fast_weight_plan(&w, variant[v], &o.l);
            uint8_t *panels = aligned_alloc(64, bytes);
            assert_true(pack_all(NULL, &w, variant[v], &o.l, panels));
            const fast_rows a = {o.q, o.meta, 2, 1, false};
            variant[v]->multiply[w.form](y[v > 0][0], MAX_COLS, MAX_COLS, panels, &a, MAX_ROWS);
            assert_memory_equal(y[v > 0], y[0], sizeof y[0]);
            free(panels);
        }
        unmake(&o);
    }
}

static const tacit_type tiled_types[] = {
    TACIT_TYPE_Q8_0, TACIT_TYPE_Q6_K, TACIT_TYPE_BF16, TACIT_TYPE_F16,
    TACIT_TYPE_F32,  TACIT_TYPE_Q4_0, TACIT_TYPE_Q4_1, TACIT_TYPE_Q5_0,
    TACIT_TYPE_Q5_1, TACIT_TYPE_Q4_K, TACIT_TYPE_Q5_K,
};

#define DEEP 5 /* the first: one of each way to tiles */

static bool takes_type(const fast_kernels *k, tacit_type type)
{
    const tacit_linear l = {.type = tacit_type_find(type), .n_in = 256, .n_out = 1};
    fast_weight w;
    return fast_weight_plan(&w, k, &l) > 0 && fast_takes_tiles(k, w.form);
}

static void check_tiled_type(const fast_kernels *k, tacit_type type, bool deep, bool split)
{
    check_tiled_integers(k, type, tacit_type_find(type)->block_values > 32 ? 8 : 1, split);
    if (deep)
        check_tiled_integers(k, type, 24, split); /* in two or three parts */
    check_tiled_rounding(k, type, 8, split);
    check_tiled_independence(k, type, deep ? 24 : 8, split);
}

/* Emulators of processors take a millisecond for a product of two tiles: every type alone, and
 * depths of several parts with one of each kind. */
static void check_tiles(const fast_kernels *k)
{
    if (!k->tiles)
        return;
    (tiles_are_bf16(k->tiles) ? check_put_bf16 : check_put_integers)(k->tiles);
    for (int split = 0; split <= k->tiles->splits; split++) {
        check_tiled_nan(k, split);
        for (size_t i = 0; i < sizeof tiled_types / sizeof tiled_types[0]; i++)
            if (takes_type(k, tiled_types[i]))
                check_tiled_type(k, tiled_types[i], i < DEEP, split);
        check_tiled_integers(k, TACIT_TYPE_Q8_0, 41, split); /* of 14, 14 and 13 */
    }
}

static void test_tiles(void **state)
{
    (void)state;
    on_every_variant(check_tiles);
}

/* Matrix products of bytes are another way to the bits of dot products, whatever the rows: alone,
 * odd in number, in pairs. */
static void test_matrix_products_keep_bits(void **state)
{
    const tacit_kernels *dot = kernels_by_name("neon"), *matrix = kernels_by_name("i8mm");
    static operands o;
    static float y[2][MAX_ROWS][MAX_COLS];
    (void)state;
    if (!dot || !matrix)
        skip();
    for (size_t t = 0; t < TYPES; t++) {
        make(&o, types[t], MAX_BLOCKS, false);
        o.l.n_out = MAX_COLS;
        fast_weight w;
        uint8_t *panels = aligned_alloc(64, fast_weight_plan(&w, dot->fast, &o.l));
        assert_true(pack_all(NULL, &w, dot->fast, &o.l, panels));
        for (size_t rows = 1; rows <= MAX_ROWS; rows++) {
            for (size_t step = 1; step <= 2 && step * rows <= MAX_ROWS; step++) {
                for (int paired = 0; paired <= (step == 2); paired++) {
                    const fast_rows a = {o.q, o.meta, MAX_BLOCKS, step, paired};
                    memset(y, 0, sizeof y);
                    dot->fast->multiply[w.form](y[0][0], MAX_COLS, MAX_COLS, panels, &a, rows);
                    matrix->fast->multiply[w.form](y[1][0], MAX_COLS, MAX_COLS, panels, &a, rows);
                    assert_memory_equal(y[1], y[0], sizeof y[0]);
                }
            }
        }
        free(panels);
        unmake(&o);
    }
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
    const tacit_low_rank pair = {.a = a, .b = b, .rank = 2, .scale = 0.5f};
    for (size_t i = 0; i < n_out; i++)
        t->from_f32(weight + i * row_bytes, w + i * n_in, n_in);
    tacit_linear l = {.weight = weight, .type = t, .row_bytes = row_bytes, .bias = bias};
    l.n_in = n_in;
    l.n_out = n_out;
    tacit_pool *pool;
    tacit_error err;
    fast_input in;
    assert_int_equal(tacit_pool_new(&pool, 2, &err), TACIT_OK);
    assert_true(fast_input_init(&in, fast_input_values(rows, n_in), 2));
    float *scratch = malloc(linear_scratch(&l, rows, 2, 2) * sizeof *scratch);
    fast_weight packed;
    uint8_t *panels = aligned_alloc(64, fast_weight_plan(&packed, kernels()->fast, &l) + 64);
    if (fast_weight_plan(&packed, kernels()->fast, &l) > 0)
        assert_true(pack_all(pool, &packed, kernels()->fast, &l, panels));
    fast_product product = {.l = &l, .w = &packed, .pair = &pair, .y = y, .refined = true};
    const fast_reader reader = {&packed, true};
    fast_input_begin(&in, &reader, 1, rows, n_in);
    fast_input_fill(pool, &in, x);
    linear_forward(pool, &l, &pair, exact, x, rows, scratch);
    fast_forward(pool, &product, 1, &in, x, scratch);
    /* Scales of K types are rounded to 11 bits. */
    double refined = t->block_values > 32 ? tolerance / 10 : tolerance / 100;
    if (!(numbers_distance(y, exact, rows * n_out) <= refined))
        fail_msg("%s, %zu x %zu x %zu, refined: %g", t->name, rows, n_in, n_out,
                 numbers_distance(y, exact, rows * n_out));
    product.refined = false;
    fast_forward(pool, &product, 1, &in, x, scratch);
    double distance = numbers_distance(y, exact, rows * n_out);
    if (!(distance <= tolerance) || (tolerance > 0 && distance == 0))
        fail_msg("type %d, %zu x %zu x %zu: %g", (int)type, rows, n_in, n_out, distance);
    fast_input_fini(&in);
    tacit_pool_free(pool);
    void *const parts[] = {weight, w, x, bias, y, a, b, exact, scratch, panels};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
}

static void test_linear(void **state)
{
    (void)state;
    const size_t rows[] = {1, 3, 4, 21, 33};
    for (size_t r = 0; r < 5; r++) {
        for (size_t t = 0; t < TYPES; t++) {
            size_t unit = tacit_type_find(types[t])->block_values / 32;
            check_linear(types[t], rows[r], unit * 64, 32, 1e-2);
            check_linear(types[t], rows[r], unit * 160, 135, 1e-2);
        }
        check_linear(TACIT_TYPE_BF16, rows[r], 64, 135,
                     fast_takes_tiles(kernels()->fast, FAST_BF16) ? 1e-2 : 0);
        check_linear(TACIT_TYPE_F32, rows[r], 64, 33,
                     fast_takes_tiles(kernels()->fast, FAST_PAIR) ? 1e-2 : 0);
        check_linear(TACIT_TYPE_F16, rows[r], 96, 135,
                     fast_takes_tiles(kernels()->fast, FAST_F16) ? 1e-2 : 0);
        check_linear(TACIT_TYPE_F16, rows[r], 50, 33, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantize), cmocka_unit_test(test_scales_beyond_a_half),
        cmocka_unit_test(test_products), cmocka_unit_test(test_variants_agree_exactly),
        cmocka_unit_test(test_tiles),    cmocka_unit_test(test_matrix_products_keep_bits),
        cmocka_unit_test(test_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
