#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/text.h"
#include "engine/types.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The oracle of the half conversions is arithmetic on the definition, in double. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static void test_every_half_has_its_value(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = tacit_f16_to_f32((uint16_t)h);
        if ((h >> 10 & 31) == 31) {
            assert_true((h & 1023) ? isnan(f) : isinf(f));
            assert_int_equal(!!signbit(f), h >> 15);
        } else {
            assert_true((double)f == half_value((uint16_t)h));
            assert_int_equal(!!signbit(f), h >> 15);
        }
    }
}

static void test_f32_to_half_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) { /* between h and h + 1, both finite */
        float low = (float)half_value((uint16_t)h), high = (float)half_value((uint16_t)(h + 1));
        float middle = (low + high) / 2; /* exact: one more bit than a half has */
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(tacit_f32_to_f16(low), h);
        assert_int_equal(tacit_f32_to_f16(middle), even);
        assert_int_equal(tacit_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(tacit_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(tacit_f32_to_f16(-middle), even | 0x8000);
    }
    assert_int_equal(tacit_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(tacit_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(tacit_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(tacit_f32_to_f16(1e-30f), 0);
    assert_int_equal(tacit_f32_to_f16(-0.0f), 0x8000);
    uint16_t nan_half = tacit_f32_to_f16(NAN);
    assert_true((nan_half & 0x7c00) == 0x7c00 && (nan_half & 0x3ff));
}

static void test_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f7f; h++) {
        float low = tacit_bf16_to_f32((uint16_t)h), high = tacit_bf16_to_f32((uint16_t)(h + 1));
        float middle = (float)(((double)low + (double)high) / 2);
        assert_int_equal(tacit_f32_to_bf16(low), h);
        assert_int_equal(tacit_f32_to_bf16(-low), h | 0x8000);
        assert_int_equal(tacit_f32_to_bf16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(tacit_f32_to_bf16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(tacit_f32_to_bf16(nextafterf(middle, 0)), h);
    }
    assert_int_equal(tacit_f32_to_bf16(INFINITY), 0x7f80);
    uint16_t nan_bf16 = tacit_f32_to_bf16(NAN);
    assert_true((nan_bf16 & 0x7f80) == 0x7f80 && (nan_bf16 & 0x7f));
}

/* Blocks written down by hand from the format's description. */
static void test_blocks_by_hand(void **state)
{
    (void)state;
    float in[32], out[32];
    uint8_t block[34];

    for (int j = 0; j < 32; j++)
        in[j] = (float)(j - 16);
    in[0] = -127; /* d = 1: every integer is exact */
    tacit_type_find(TACIT_TYPE_Q8_0)->from_f32(block, in, 32);
    assert_int_equal(block[0] | block[1] << 8, 0x3c00);
    assert_int_equal((int8_t)block[2], -127);
    for (int j = 1; j < 32; j++)
        assert_int_equal((int8_t)block[2 + j], j - 16);

    for (int j = 0; j < 32; j++)
        in[j] = (float)(j % 16 - 8) * 0.5f; /* largest magnitude -4: d = 0.5, q = value / d + 8 */
    tacit_type_find(TACIT_TYPE_Q4_0)->from_f32(block, in, 32);
    assert_int_equal(block[0] | block[1] << 8, 0x3800);
    for (int j = 0; j < 16; j++)
        assert_int_equal(block[2 + j], j | j << 4);
    tacit_type_find(TACIT_TYPE_Q4_0)->to_f32(out, block, 32);
    assert_memory_equal(out, in, sizeof in);

    for (int j = 0; j < 32; j++)
        in[j] = 2 + (float)(j < 16 ? j : 31 - j) * 0.25f; /* m = 2, d = 0.25 */
    tacit_type_find(TACIT_TYPE_Q4_1)->from_f32(block, in, 32);
    assert_int_equal(block[0] | block[1] << 8, 0x3400);
    assert_int_equal(block[2] | block[3] << 8, 0x4000);
    for (int j = 0; j < 16; j++)
        assert_int_equal(block[4 + j], j | (15 - j) << 4);
    tacit_type_find(TACIT_TYPE_Q4_1)->to_f32(out, block, 32);
    assert_memory_equal(out, in, sizeof in);
}

/* q8_0 rounds to nearest: no value is further from its quantum than half a step (and the f16
 * rounding of the step); q4 types follow from the ranges of their quanta. */
static void test_quantization_error_is_bounded(void **state)
{
    (void)state;
    static const struct {
        tacit_type type;
        double steps_of_range, worst_in_steps;
    } cases[] = {{TACIT_TYPE_Q8_0, 127, 0.5},
                 {TACIT_TYPE_Q4_0, 8, 1.0},
                 {TACIT_TYPE_Q4_1, 7.5, 0.5},
                 {TACIT_TYPE_Q5_0, 16, 1.0},
                 {TACIT_TYPE_Q5_1, 15.5, 0.5}};
    float in[96], out[96];
    uint8_t bytes[3 * 34];
    srand(7);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const tacit_type_traits *traits = tacit_type_find(cases[c].type);
        for (int trial = 0; trial < 200; trial++) {
            for (int i = 0; i < 96; i++)
                in[i] = ((float)rand() / (float)RAND_MAX - 0.5f) * 4;
            traits->from_f32(bytes, in, 96);
            traits->to_f32(out, bytes, 96);
            for (int i = 0; i < 96; i++) {
                double step = 2.0 / cases[c].steps_of_range;
                assert_true(fabs((double)(out[i] - in[i])) <=
                            step * cases[c].worst_in_steps + 2.0 * 0x1p-9);
            }
        }
    }
}

/* Quantizing what was dequantized gives the same bytes (scales here are exact halves). */
static void test_quantization_is_idempotent_on_exact_scales(void **state)
{
    (void)state;
    static const tacit_type types[] = {TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0, TACIT_TYPE_Q4_1};
    float values[32];
    uint8_t first[34], second[34];
    for (size_t c = 0; c < 3; c++) {
        const tacit_type_traits *traits = tacit_type_find(types[c]);
        for (int j = 0; j < 32; j++)
            values[j] = (float)((j * 7) % 16 - 8) * 0.125f;
        values[5] = types[c] == TACIT_TYPE_Q8_0 ? 127 * 0.125f : values[5];
        traits->from_f32(first, values, 32);
        traits->to_f32(values, first, 32);
        traits->from_f32(second, values, 32);
        assert_memory_equal(first, second, traits->block_bytes);
    }
}

/* The sanitizers are one oracle; the other: blocks read back finite, and of all values but the odd
 * one, zeros, nothing becomes more than the block's own step allows. */
static void check_odd_value(const tacit_type_traits *t, float odd, bool fit)
{
    float in[256], out[256];
    uint8_t bytes[1024];
    for (int j = 0; j < 256; j++)
        in[j] = j % 32 == 3 ? odd : 0;
    if (fit)
        t->fit(bytes, in, NULL, 256);
    else
        t->from_f32(bytes, in, 256);
    t->to_f32(out, bytes, 256);
    for (int j = 0; j < 256 && t->block_values > 1; j++)
        if (!isfinite(out[j]))
            fail_msg("%s of %g reads as %g at %d", t->name, (double)odd, (double)out[j], j);
    if (isfinite(odd) && fabsf(odd) < 60000 && t->block_values > 1)
        for (int j = 0; j < 256; j++)
            assert_true(fabsf(out[j] - in[j]) <= fabsf(odd) * 0.13f + 1e-7f);
}

static void test_odd_values_do_no_harm(void **state)
{
    (void)state;
    static const float odd[] = {NAN,    INFINITY, -INFINITY, 0.0f,  -0.0f, 3e38f,
                                -3e38f, 1e-42f,   1e-7f,     59999, -7};
    for (size_t i = 0; tacit_type_at(i); i++)
        for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++) {
            check_odd_value(tacit_type_at(i), odd[o], false);
            if (tacit_type_at(i)->fit)
                check_odd_value(tacit_type_at(i), odd[o], true);
        }
}

/* Blocks of one value: zeros stay zeros, others stay within the scales' rounding. */
static void test_blocks_of_one_value(void **state)
{
    (void)state;
    static const float values[] = {0, 1, -0.75f, 1234.5f};
    float in[256], out[256];
    uint8_t bytes[1024];
    for (size_t i = 0; tacit_type_at(i); i++)
        for (size_t v = 0; v < 4; v++)
            for (int fit = 0; fit < (tacit_type_at(i)->fit ? 2 : 1); fit++) {
                const tacit_type_traits *t = tacit_type_at(i);
                for (int j = 0; j < 256; j++)
                    in[j] = values[v];
                if (fit)
                    t->fit(bytes, in, NULL, 256);
                else
                    t->from_f32(bytes, in, 256);
                t->to_f32(out, bytes, 256);
                for (int j = 0; j < 256; j++)
                    assert_true(fabsf(out[j] - in[j]) <= fabsf(in[j]) * 0.01f);
            }
}

static size_t read_hex(uint8_t *out, size_t most, const json_t *text)
{
    size_t size = json_string_length(text) / 2;
    assert_true(size > 0 && size <= most);
    assert_true(tacit_unhex(out, size, json_string_value(text)));
    return size;
}

/* Bytes and values are those of the ggml project's Python package. */
static void test_goldens_of_the_ggml_project(void **state)
{
    (void)state;
    static const char *const names[] = {"f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"};
    float values[256], expected[256], found[256];
    uint8_t bytes[1024], quantized[1024];
    json_t *golden = json_load_file(TACIT_SOURCE_DIR "/tests/golden/types.json", 0, NULL);
    assert_non_null(golden);
    size_t n = read_hex((uint8_t *)values, sizeof values, json_object_get(golden, "values")) / 4;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tacit_type_traits *traits = tacit_type_by_name(names[i]);
        const json_t *row = json_object_get(golden, names[i]);
        size_t size = read_hex(bytes, sizeof bytes, json_object_get(row, "bytes"));
        assert_int_equal(size, n / traits->block_values * traits->block_bytes);
        traits->from_f32(quantized, values, n);
        assert_memory_equal(quantized, bytes, size);
        read_hex((uint8_t *)expected, sizeof expected, json_object_get(row, "values"));
        traits->to_f32(found, bytes, n);
        for (size_t k = 0; k < n; k++)
            assert_true(found[k] == expected[k]);
    }
    json_decref(golden);
}

/* Random bytes, scales at the ends of what a half holds among them, read as that package does. */
static void test_random_blocks_read_as_the_ggml_project_does(void **state)
{
    (void)state;
    static float expected[6 * 256], found[6 * 256];
    static uint8_t bytes[6 * 256];
    json_t *golden = json_load_file(TACIT_SOURCE_DIR "/tests/golden/types.json", 0, NULL);
    const char *name;
    json_t *row;
    size_t types = 0;
    assert_non_null(golden);
    json_object_foreach(json_object_get(golden, "random"), name, row)
    {
        const tacit_type_traits *traits = tacit_type_by_name(name);
        assert_non_null(traits);
        size_t size = read_hex(bytes, sizeof bytes, json_object_get(row, "bytes"));
        size_t n = size / traits->block_bytes * traits->block_values;
        assert_int_equal(
            read_hex((uint8_t *)expected, sizeof expected, json_object_get(row, "values")),
            n * sizeof *expected);
        traits->to_f32(found, bytes, n);
        assert_memory_equal(found, expected, n * sizeof *found);
        types++;
    }
    assert_int_equal(types, 8);
    json_decref(golden);
}

static void test_the_tables_agree(void **state)
{
    (void)state;
    size_t values, bytes, known = 0;
    for (uint32_t type = 0; type < 64; type++) {
        const tacit_type_traits *traits = tacit_type_find(type);
        bool listed = tacit_type_ggml_block(type, &values, &bytes);
        assert_true(listed == (tacit_type_ggml_name(type) != NULL));
        if (!traits)
            continue;
        known++;
        assert_true(listed);
        assert_int_equal(traits->block_values, values);
        assert_int_equal(traits->block_bytes, bytes);
        assert_string_equal(traits->name, tacit_type_ggml_name(type));
        assert_ptr_equal(tacit_type_by_name(traits->name), traits);
    }
    assert_int_equal(known, 11);
    assert_null(tacit_type_by_name("q9_9"));
    assert_null(tacit_type_find(UINT32_MAX));
    assert_null(tacit_type_ggml_name(4)); /* removed from the format */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_half_has_its_value),
        cmocka_unit_test(test_f32_to_half_rounds_to_nearest_even),
        cmocka_unit_test(test_bf16_rounds_to_nearest_even),
        cmocka_unit_test(test_blocks_by_hand),
        cmocka_unit_test(test_quantization_error_is_bounded),
        cmocka_unit_test(test_quantization_is_idempotent_on_exact_scales),
        cmocka_unit_test(test_odd_values_do_no_harm),
        cmocka_unit_test(test_blocks_of_one_value),
        cmocka_unit_test(test_goldens_of_the_ggml_project),
        cmocka_unit_test(test_random_blocks_read_as_the_ggml_project_does),
        cmocka_unit_test(test_the_tables_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
