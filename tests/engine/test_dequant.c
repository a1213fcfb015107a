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

/* No exponent of all ones in the halves that scale a block: NaN has many encodings. */
static void fill_blocks(uint8_t *bytes, const tacit_type_traits *t, size_t n)
{
    size_t halves = t->type == TACIT_TYPE_Q4_1 ? 2 : 1;
    size_t size = n / t->block_values * t->block_bytes;
    for (size_t i = 0; i < size; i++)
        bytes[i] = next_byte();
    for (size_t at = 0; at < size; at += t->block_bytes)
        for (size_t h = 0; h < halves; h++)
            bytes[at + 2 * h + 1] &= t->type == TACIT_TYPE_BF16 ? 0xbf : 0xbb;
}

static void rows_equal_the_portable_conversion(void **state)
{
    (void)state;
    static const tacit_type types[] = {TACIT_TYPE_F32,  TACIT_TYPE_F16,  TACIT_TYPE_BF16,
                                       TACIT_TYPE_Q4_0, TACIT_TYPE_Q4_1, TACIT_TYPE_Q8_0};
    enum { MOST = 320 };
    uint8_t bytes[MOST * 4 + 1];
    float found[MOST + 1], expected[MOST];
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const tacit_type_traits *t = tacit_type_find(types[i]);
        size_t step = t->block_values > 1 ? t->block_values : 13;
        for (size_t n = step; n <= MOST; n += step) {
            fill_blocks(bytes + 1, t, n); /* at an odd address */
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
