#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/stop_text.h"

#include <string.h>

static const char *const stops[] = {"\n\n", "END", "ENOUGH", "\xe2\x82\xac"};
#define STOPS 4

static size_t find(const char *text, size_t from)
{
    return stop_text_find(stops, STOPS, text, strlen(text), from);
}

static size_t pending(const char *text)
{
    return stop_text_pending(stops, STOPS, text, strlen(text));
}

static void test_finds_the_first(void **state)
{
    (void)state;
    assert_true(find("", 0) == STOP_TEXT_NONE && find("one\ntwo", 0) == STOP_TEXT_NONE);
    assert_int_equal(find("one\n\ntwo", 0), 3);
    assert_int_equal(find("ENENOUGH END", 0), 2);
    assert_int_equal(find("x END \n\n", 0), 2);
    assert_int_equal(find("5 \xe2\x82\xac", 3), 2);
    assert_int_equal(find("END", 0), 0);
}

/* What ended before is not found again, what began before and ends now is. */
static void test_across_pieces(void **state)
{
    (void)state;
    assert_int_equal(find("a END b", 4), 2);
    assert_true(find("a END b", 5) == STOP_TEXT_NONE);
    assert_int_equal(find("ENOUGH", 5), 0);
    assert_int_equal(find("END END", 3), 4);
}

static void test_holds_back_what_may_become_one(void **state)
{
    (void)state;
    assert_int_equal(pending(""), 0);
    assert_int_equal(pending("word"), 0);
    assert_int_equal(pending("word\n"), 1);
    assert_int_equal(pending("wordE"), 1);
    assert_int_equal(pending("wordEN"), 2);
    assert_int_equal(pending("ENOUG"), 5);
    assert_int_equal(pending("ENOUGE"), 1);
    assert_int_equal(pending("\xe2\x82"), 2);
    assert_int_equal(stop_text_pending(NULL, 0, "E", 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_first),
        cmocka_unit_test(test_across_pieces),
        cmocka_unit_test(test_holds_back_what_may_become_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
