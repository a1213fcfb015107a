#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/text_place.h"

#include <string.h>

static const uint8_t axes[2] = {0, 1};

static tacit_status check(const tacit_row *row, tacit_error *err)
{
    const tacit_text_model m = {
        .architecture = "turning", .vocab = 4, .context_length = 10, .rope = {{.axis = axes}}};
    return text_rows_check(&m, row, 1, NULL, 0, NULL, err);
}

/* Inference and training ask here: every number of a position lies within the context. */
static void test_positions_within_the_context(void **state)
{
    tacit_error err;
    (void)state;
    assert_int_equal(check(&(tacit_row){.position = 9}, &err), TACIT_OK);
    assert_int_equal(check(&(tacit_row){.position = 3, .shift = {6, -3, 0}}, &err), TACIT_OK);
    assert_int_equal(check(&(tacit_row){.position = 10}, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "position 10 is beyond the model's context of 10"));
    assert_int_equal(check(&(tacit_row){.position = 3, .shift = {0, 7, 0}}, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "position 10 is beyond the model's context of 10"));
    assert_int_equal(check(&(tacit_row){.position = 3, .shift = {0, 0, -4}}, &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "expected a sum of at least 0"));
    assert_int_equal(check(&(tacit_row){.position = UINT32_MAX, .shift = {INT32_MAX}}, &err),
                     TACIT_BAD_INPUT);
}

/* A token stands behind every axis of what is before it, as after a picture that is wider or higher
 * than it is long in time. */
static void test_what_follows(void **state)
{
    (void)state;
    assert_int_equal(text_place_next(&(text_place){.position = {7, 7, 7}}), 8);
    assert_int_equal(text_place_next(&(text_place){.position = {3, 9, 5}}), 10);
    assert_int_equal(text_place_next(&(text_place){.position = {3, 5, 9}}), 10);
    assert_int_equal(text_place_next(&(text_place){.position = {0, 0, 0}}), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions_within_the_context),
        cmocka_unit_test(test_what_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
