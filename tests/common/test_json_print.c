#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/json_print.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a call printed, into `text`; standard output is put back. */
static tacit_status printed(json_t *object, int digits, char *text, size_t size, tacit_error *err)
{
    int ends[2], kept = dup(STDOUT_FILENO);
    fflush(stdout);
    assert_true(kept >= 0 && pipe(ends) == 0 && dup2(ends[1], STDOUT_FILENO) >= 0);
    tacit_status status = tacit_json_print(object, digits, err);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(ends[1]);
    ssize_t n = read(ends[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    close(kept);
    return status;
}

static void test_one_line(void **state)
{
    (void)state;
    char text[256];
    tacit_error err;
    json_t *object = json_pack("{s:s, s:f, s:[i,i]}", "b", "\xc2\x9b\n", "a", 0.1, "c", 1, 2);
    assert_int_equal(printed(json_incref(object), TACIT_JSON_DIGITS, text, sizeof text, &err),
                     TACIT_OK);
    assert_string_equal(text, "{\"b\":\"\xc2\x9b\\n\",\"a\":0.10000000000000001,\"c\":[1,2]}\n");
    assert_int_equal(printed(object, TACIT_JSON_FLOAT_DIGITS, text, sizeof text, &err), TACIT_OK);
    assert_string_equal(text, "{\"b\":\"\xc2\x9b\\n\",\"a\":0.1,\"c\":[1,2]}\n");
}

/* What could not be built is an error, and no line. */
static void test_nothing_to_print(void **state)
{
    (void)state;
    char text[256];
    tacit_error err;
    assert_int_equal(printed(json_pack("{s:f}", "loss", NAN), 17, text, sizeof text, &err),
                     TACIT_FAILED);
    assert_string_equal(text, "");
    assert_non_null(strstr(err.message, "not finite"));
    assert_int_equal(printed(NULL, 17, text, sizeof text, NULL), TACIT_FAILED);
    assert_int_equal(printed(json_pack("{s:s}", "out", "\xfe"), 17, text, sizeof text, &err),
                     TACIT_FAILED);
    assert_non_null(strstr(err.message, "not UTF-8"));
}

/* An output that takes no more is an error of its own, at once. */
static void test_full_output(void **state)
{
    (void)state;
    tacit_error err;
    int kept = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY);
    fflush(stdout);
    assert_true(kept >= 0 && full >= 0 && dup2(full, STDOUT_FILENO) >= 0);
    tacit_status status = tacit_json_print(json_pack("{s:i}", "a", 1), 17, &err);
    clearerr(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(full);
    close(kept);
    assert_int_equal(status, TACIT_IO);
    assert_non_null(strstr(err.message, "standard output"));
}

/* What others named comes as it is, or as digits. */
static void test_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"a/b.gguf", "a/b.gguf"}, {"", ""}, {"\xc3\xa4", "\xc3\xa4"}, {"a\xfe", "61fe"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *found = tacit_json_name(names[i][0]);
        assert_string_equal(json_string_value(found), names[i][1]);
        json_decref(found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_nothing_to_print),
        cmocka_unit_test(test_full_output),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
