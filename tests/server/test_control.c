/* The control socket's answers when a fleet is large: lists come in pages, events in parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fleet.h"

static fleet f;

static int setup(void **state)
{
    (void)state;
    fleet_start(&f, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fleet_end(&f);
    return 0;
}

static void make_many_tokens(void)
{
    for (int i = 0; i < 4; i++)
        json_decref(FLEET_ASK(&f, "token create", "count", "1000"));
}

/* Rows of all pages; each holds as many as a page may, but for the last. */
static void test_pages_make_the_list(void **state)
{
    (void)state;
    json_t *seen = json_object();
    size_t rows = CONTROL_PAGE, total = 0, i;
    json_t *row;
    make_many_tokens();
    for (int page = 0; rows == CONTROL_PAGE; page++) {
        char number[16];
        snprintf(number, sizeof number, "%d", page);
        json_t *part = FLEET_ASK(&f, "token list", "page", number);
        rows = json_array_size(part);
        total += rows;
        json_array_foreach(part, i, row)
            json_object_set(seen, json_string_value(json_object_get(row, "id")), row);
        json_decref(part);
    }
    assert_int_equal(total, 4000);
    assert_int_equal(json_object_size(seen), 4000);
    json_decref(seen);
}

static void test_pages_are_checked(void **state)
{
    (void)state;
    tacit_error err;
    json_t *empty = FLEET_ASK(&f, "token list", "page", "4294967295");
    assert_int_equal(json_array_size(empty), 0);
    json_decref(empty);
    make_many_tokens();
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token list", "page", "-1"), TACIT_USAGE);
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token create", "page", "0"), TACIT_USAGE);
}

/* A list that is asked for at once and does not fit is refused by name; the socket stays. */
static void test_a_list_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    tacit_error err;
    make_many_tokens();
    assert_int_equal(FLEET_VERB(&f, NULL, &err, "token list"), TACIT_FAILED);
    assert_non_null(strstr(err.message, "at most"));
}

static void test_events_come_in_parts(void **state)
{
    (void)state;
    char reason[150], after[24] = "0";
    json_int_t last = 0;
    size_t asked = 0;
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    for (int i = 1; i <= 1000; i++)
        server_events_add(f.server->events, json_pack("{s:s, s:s, s:i}", "kind", "round", "reason",
                                                      reason, "round", i));
    for (; last < 1000 && asked < 1000; asked++) {
        size_t i;
        json_t *event, *part = FLEET_ASK(&f, "watch", "after", after, "wait-ms", "0");
        json_array_foreach(part, i, event)
        {
            assert_int_equal(json_integer_value(json_object_get(event, "number")), ++last);
            assert_int_equal(json_integer_value(json_object_get(event, "round")), last);
        }
        json_decref(part);
        snprintf(after, sizeof after, "%lld", (long long)last);
    }
    assert_int_equal(last, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages_make_the_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_list_that_does_not_fit_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_events_come_in_parts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
