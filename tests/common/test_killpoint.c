#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/killpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The signal that ended a child which passed `passes` points named "b" with TACIT_KILL_AT=wanted,
 * or 0 when it lived. */
static int signal_of_child(const char *wanted, int passes)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("TACIT_KILL_AT", wanted, 1);
        for (int i = 0; i < passes; i++)
            tacit_kill_point("b");
        _exit(0);
    }
    int result = 0;
    waitpid(child, &result, 0);
    return WIFSIGNALED(result) ? WTERMSIG(result) : 0;
}

static void test_kills_where_asked(void **state)
{
    (void)state;
    assert_int_equal(signal_of_child("b", 1), SIGKILL);
    assert_int_equal(signal_of_child("b:3", 3), SIGKILL);
    assert_int_equal(signal_of_child("b:3", 2), 0);
    assert_int_equal(signal_of_child("bc", 1), 0);
    assert_int_equal(signal_of_child("a", 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kills_where_asked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
