#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/text.h"
#include "engine/text_stream.h"
#include "numbers.h"

#include <string.h>

#define R "\xef\xbf\xbd"

/* Expected outputs: one replacement for each maximal part that no character begins with, as the
 * Unicode standard (section 3.9) recommends and Python's errors="replace" does. */
static const struct {
    const char *in, *out;
} cases[] = {
    {"", ""},
    {"plain", "plain"},
    {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
    {"\xf0\x9f\x9a\x91 \xe2\x82\xac", "\xf0\x9f\x9a\x91 \xe2\x82\xac"},
    {"\x80", R},
    {"a\xff"
     "b",
     "a" R "b"},
    {"\xc3", R},
    {"\xc3(", R "("},
    {"\xe2\x82", R},
    {"\xe2\x82x", R "x"},
    {"\xe2\x82\xc3\xbc", R "\xc3\xbc"},
    {"\xc0\xaf", R R},
    {"\xed\xa0\x80", R R R},
    {"\xf4\x90\x80\x80", R R R R},
    {"\xf0\x9f\x9a", R},
    {"\xe0\x80\x80", R R R},
};

static void stream(const char *in, size_t step, tacit_buffer *out)
{
    text_stream s = {0};
    size_t n = strlen(in);
    for (size_t at = 0; at < n; at += step)
        assert_int_equal(
            text_stream_put(&s, (const uint8_t *)in + at, n - at < step ? n - at : step, out),
            TACIT_OK);
    assert_int_equal(text_stream_end(&s, out), TACIT_OK);
    assert_int_equal(text_stream_end(&s, out), TACIT_OK);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t step = 1; step <= 5; step++) {
            tacit_buffer out = {0};
            stream(cases[i].in, step, &out);
            if (out.size != strlen(cases[i].out) ||
                (out.size > 0 && memcmp(out.data, cases[i].out, out.size) != 0))
                fail_msg("case %zu, %zu bytes at a time: %zu bytes came out", i, step, out.size);
            tacit_buffer_free(&out);
        }
}

/* After every byte the output so far is whole characters. */
static void test_output_is_always_text(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 300; round++) {
        text_stream s = {0};
        tacit_buffer out = {0};
        for (int i = 0; i < 20; i++) {
            uint64_t word = numbers_next(&seed);
            uint8_t byte = (uint8_t)(word >> 8);
            byte |= word % 3 ? 0x80 : 0;
            assert_int_equal(text_stream_put(&s, &byte, 1, &out), TACIT_OK);
            assert_true(out.size == 0 || tacit_utf8_valid(out.data, out.size));
        }
        tacit_buffer_free(&out);
    }
}

/* One space, at the very start, and only when asked. */
static void test_the_tokenizers_space_is_dropped(void **state)
{
    (void)state;
    static const char *const parts[] = {"", " ", " a", " b"};
    for (int drop = 0; drop < 2; drop++) {
        text_stream s = {.drop_space = drop};
        tacit_buffer out = {0};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            assert_int_equal(text_stream_put(&s, (const uint8_t *)parts[i], strlen(parts[i]), &out),
                             TACIT_OK);
        assert_int_equal(text_stream_end(&s, &out), TACIT_OK);
        assert_int_equal(out.size, drop ? 4 : 5);
        assert_memory_equal(out.data, drop ? " a b" : "  a b", out.size);
        tacit_buffer_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_the_tokenizers_space_is_dropped),
        cmocka_unit_test(test_output_is_always_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
