/* Oracle: the portable conversions, bit for bit, on random bytes with every scale but NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/dequant.h"

#include <stdlib.h>
#include <string.h>

static uint8_t next_byte(void)
{
    static uint32_t state = 99;
    state = state * 1664525u + 1013904223u;
    return (uint8_t)(state >> 24);
}

/* Where the halves that scale a block lie; -1 ends the list. */
static const struct {
    tacit_type type;
    int half[3];
} scales[] = {
    {TACIT_TYPE_F32, {-1}},        {TACIT_TYPE_F16, {0, -1}},     {TACIT_TYPE_BF16, {0, -1}},
    {TACIT_TYPE_Q4_0, {0, -1}},    {TACIT_TYPE_Q4_1, {0, 2, -1}}, {TACIT_TYPE_Q8_0, {0, -1}},
    {TACIT_TYPE_Q5_0, {0, -1}},    {TACIT_TYPE_Q5_1, {0, 2, -1}}, {TACIT_TYPE_Q4_K, {0, 2, -1}},
    {TACIT_TYPE_Q5_K, {0, 2, -1}}, {TACIT_TYPE_Q6_K, {208, -1}},
};

/* No exponent of all ones in those halves: NaN has many encodings. */
static void fill_blocks(uint8_t *bytes, const tacit_type_traits *t, const int *half, size_t n)
{
    size_t size = n / t->block_values * t->block_bytes;
    for (size_t i = 0; i < size; i++)
        bytes[i] = next_byte();
    for (size_t at = 0; at < size; at += t->block_bytes)
        for (const int *h = half; *h >= 0; h++)
            bytes[at + (size_t)*h + 1] &= t->type == TACIT_TYPE_BF16 ? 0xbf : 0xbb;
}

static void rows_equal_the_portable_conversion(void **state)
{
    (void)state;
    enum { MOST = 1024 };
    static uint8_t bytes[MOST * 4 + 1];
    static float found[MOST + 1], expected[MOST];
    size_t types = 0;
    while (tacit_type_at(types))
        types++;
    assert_int_equal(types, sizeof scales / sizeof scales[0]);
    for (size_t i = 0; i < types; i++) {
        const tacit_type_traits *t = tacit_type_find(scales[i].type);
        size_t step = t->block_values > 1 ? t->block_values : 13;
        for (size_t n = step; n <= MOST; n += step) {
            fill_blocks(bytes + 1, t, scales[i].half, n); /* at an odd address */
            found[n] = 42;
            dequant_row(t, found, bytes + 1, n);
            t->to_f32(expected, bytes + 1, n);
            assert_memory_equal(found, expected, n * sizeof *expected);
            assert_true(found[n] == 42);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_equal_the_portable_conversion)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
