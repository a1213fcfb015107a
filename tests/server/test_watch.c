/* What happened, for somebody who begins to watch late: it comes in parts that fit one message. */
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
        cmocka_unit_test_setup_teardown(test_events_come_in_parts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
