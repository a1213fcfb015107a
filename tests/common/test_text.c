#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "common/file.h"
#include "common/text.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void test_hex_round_trip(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0x00, 0x7f, 0x80, 0xff};
    uint8_t back[4];
    char text[9];
    tacit_hex(text, bytes, sizeof bytes);
    assert_string_equal(text, "007f80ff");
    assert_true(tacit_unhex(back, sizeof back, "007F80ff"));
    assert_memory_equal(back, bytes, sizeof bytes);
    assert_false(tacit_unhex(back, sizeof back, "007f80f"));
    assert_false(tacit_unhex(back, sizeof back, "007f80fg"));
}

static void test_integers_are_strict(void **state)
{
    (void)state;
    tacit_error err;
    uint64_t u = 7;
    int64_t i = 7;
    assert_int_equal(tacit_parse_u64("18446744073709551615", "n", 0, UINT64_MAX, &u, &err),
                     TACIT_OK);
    assert_true(u == UINT64_MAX);
    const char *bad[] = {
        "", " 1", "1 ", "010", "0x10", "+1", "-1", "1.5", "1,5", "1e3", "99999999999999999999"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_int_equal(tacit_parse_u64(bad[k], "n", 0, UINT64_MAX, &u, &err), TACIT_USAGE);
    assert_int_equal(tacit_parse_i64("-9223372036854775808", "n", INT64_MIN, INT64_MAX, &i, &err),
                     TACIT_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(tacit_parse_i64("--1", "n", INT64_MIN, INT64_MAX, &i, &err), TACIT_USAGE);
    assert_int_equal(tacit_parse_u64("11", "rank", 1, 10, &u, &err), TACIT_USAGE);
    assert_string_equal(err.message, "rank: expected an integer from 1 to 10, found '11'");
}

static void test_reals_are_strict(void **state)
{
    (void)state;
    tacit_error err;
    double v = 0;
    assert_int_equal(tacit_parse_f64("1e-5", "delta", 0, 1, &v, &err), TACIT_OK);
    assert_true(v == 1e-5);
    const char *bad[] = {"", "nan", "inf", "0x1p3", "1,5", "1e", "1e999", "-", "1 "};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_int_equal(tacit_parse_f64(bad[k], "x", -1e300, 1e300, &v, &err), TACIT_USAGE);
}

static void test_utf8_follows_rfc3629(void **state)
{
    (void)state;
    assert_true(tacit_utf8_valid((const uint8_t *)"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    const char *bad[] = {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                         "\xe2\x82", "\x80",         "\xff"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_false(tacit_utf8_valid((const uint8_t *)bad[k], strlen(bad[k])));
}

static void test_cursor_never_leaves_its_bytes(void **state)
{
    (void)state;
    const uint8_t bytes[] = {1, 2, 3, 4, 5};
    tacit_cursor c = tacit_cursor_over(bytes, sizeof bytes);
    assert_int_equal(tacit_cursor_u32(&c), 0x04030201);
    assert_int_equal(tacit_cursor_u16(&c), 0);
    assert_true(c.failed);
    assert_int_equal(tacit_cursor_u8(&c), 0);
    c = tacit_cursor_over(bytes, sizeof bytes);
    assert_null(tacit_cursor_take(&c, UINT64_MAX).data);
}

static void test_paths_stay_inside(void **state)
{
    (void)state;
    assert_true(tacit_file_path_is_inside("img/1.jpg"));
    const char *bad[] = {"", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_false(tacit_file_path_is_inside(bad[k]));
}

static void test_errors_carry_no_control_bytes(void **state)
{
    (void)state;
    tacit_error err;
    assert_int_equal(tacit_fail(&err, TACIT_BAD_INPUT, "name '%s'", "a\x1b[31m\n"),
                     TACIT_BAD_INPUT);
    assert_string_equal(err.message, "name 'a?[31m?'");
    assert_int_equal(tacit_fail_context(&err, "file %d", 3), TACIT_BAD_INPUT);
    assert_string_equal(err.message, "file 3: name 'a?[31m?'");
}

/* By code point, from Unicode's Cc and its characters of direction; U+00A0, U+2010 and U+2065 stand
 * beside the ranges. */
static void test_what_steers_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text, *plain; /* plain NULL: it is */
    } cases[] = {
        {"", NULL},
        {"Wagen 3, \xc3\xa4\xe2\x84\x96\xf0\x9f\x9a\x91", NULL},
        {"\xc2\xa0\xe2\x80\x90\xe2\x81\xa5", NULL},
        {"a\x1b[2Jb", "a?[2Jb"},
        {"a\tb\x7f", "a?b?"},
        {"a\xc2\x9b"
         "2Jb",
         "a??2Jb"},
        {"a\xc2\x80\xc2\x9f", "a????"},
        {"\xe2\x80\xaetxt.exe", "???txt.exe"},
        {"\xd8\x9cx", "??x"},
        {"\xe2\x81\xa6x\xe2\x81\xa9", "???x???"},
        {"x\xe2\x80\xa8y", "x???y"},
        {"raw \x9b"
         "2J",
         "raw ?2J"},
        {"cut \xe2\x84", "cut ??"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        size_t size = strlen(cases[i].text);
        memcpy(text, cases[i].text, size + 1);
        assert_int_equal(tacit_text_is_plain(text, size), cases[i].plain == NULL);
        tacit_text_make_plain(text, size);
        assert_string_equal(text, cases[i].plain ? cases[i].plain : cases[i].text);
        assert_true(tacit_text_is_plain(text, size));
        tacit_error err;
        assert_int_equal(tacit_fail(&err, TACIT_FAILED, "%s", cases[i].text), TACIT_FAILED);
        assert_string_equal(err.message, text);
    }
}

static void expect_printed(const char *text, bool lines, const char *expected)
{
    char *found = NULL;
    size_t size;
    FILE *f = open_memstream(&found, &size);
    assert_non_null(f);
    tacit_text_print(f, text, strlen(text), lines);
    fclose(f);
    assert_string_equal(found, expected);
    free(found);
}

static void test_what_is_printed_for_people(void **state)
{
    (void)state;
    expect_printed("a\n\tb\x1b[2J\r", true, "a\n\tb?[2J?");
    expect_printed("a\n\tb\x1b[2J\r", false, "a??b?[2J?");
    expect_printed("\xc3\xa4\xc2\x9b\xe2\x80\xae\xff", true, "\xc3\xa4??????");
    expect_printed("", true, "");
}

static void durations_are_for_people(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0 s"},     {0.4, "0 s"},     {89.4, "89 s"},       {89.6, "1 min"},
                 {150, "2 min"}, {5369, "89 min"}, {5400, "1.5 h"},      {1e8, "27777.8 h"},
                 {1e30, "long"}, {-1, "long"},     {(double)NAN, "long"}};
    char text[TACIT_TEXT_DURATION];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_text_duration(text, cases[i].seconds);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_for_people),
        cmocka_unit_test(test_hex_round_trip),
        cmocka_unit_test(test_integers_are_strict),
        cmocka_unit_test(test_reals_are_strict),
        cmocka_unit_test(test_utf8_follows_rfc3629),
        cmocka_unit_test(test_cursor_never_leaves_its_bytes),
        cmocka_unit_test(test_paths_stay_inside),
        cmocka_unit_test(test_errors_carry_no_control_bytes),
        cmocka_unit_test(test_what_steers_a_terminal),
        cmocka_unit_test(test_what_is_printed_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
