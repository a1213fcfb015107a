/* The scores file: what is written is read back, and one edit of a good file for each refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "privacy/accountant.h"
#include "privacy/canary_scores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) assert_int_equal((call), TACIT_OK)

static const tacit_mechanism mechanism = {.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                                          .unit = TACIT_UNIT_SUBJECT,
                                          .neighbours = TACIT_ADD_REMOVE,
                                          .clip_norm = 0.75,
                                          .b = 111461,
                                          .q_num = 214748364,
                                          .steps = 100,
                                          .divisor = 32,
                                          .unit_examples = 8};

static tacit_canary_scores make_scores(void)
{
    static const double score[] = {0.1, -1e-300, 0, 123456.789, -0.0};
    tacit_canary_scores s;
    tacit_error err;
    OK(tacit_canary_scores_new(&s, 5, &err));
    s.mechanism = mechanism;
    s.values = 4096;
    s.delta = 1e-5;
    memset(s.reserve, 0xc3, sizeof s.reserve);
    memcpy(s.score, score, sizeof score);
    s.included[1] = s.included[4] = true;
    OK(tacit_canary_claim(&s.epsilon, &s.mechanism, s.values, s.delta, &err));
    return s;
}

static char *write_text(const tacit_canary_scores *s)
{
    tacit_buffer b = {.cap = TACIT_CANARY_FILE_MAX};
    tacit_error err;
    OK(tacit_canary_scores_write(&b, s, &err));
    OK(tacit_buffer_append(&b, "", 1));
    return (char *)b.data;
}

/* The claim is the accountant's: within what the sampler's inexactness takes of delta, and what
 * the accounts' grid rounds up. */
static void test_the_claim_is_the_accountants(void **state)
{
    const tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(mechanism.b),
                               tacit_sampling_rate(mechanism.q_num), mechanism.steps};
    const tacit_accountant *pld;
    tacit_mechanism none = mechanism;
    double claim, expected;
    tacit_error err;
    (void)state;
    OK(tacit_accountant_find(&pld, "pld", &err));
    OK(tacit_accountant_epsilon(pld, &event, 1, 1e-5, &expected, NULL, &err));
    OK(tacit_canary_claim(&claim, &mechanism, 4096, 1e-5, &err));
    assert_true(claim >= expected && claim < expected * (1 + 3e-4));
    assert_true(fabs(claim - 1.7757) < 1e-3);
    none.kind = TACIT_MECHANISM_NONE;
    none.clip_norm = 0;
    none.b = 0;
    assert_int_equal(tacit_canary_claim(&claim, &none, 4096, 1e-5, &err), TACIT_REFUSED);
}

static void test_what_is_written_is_read(void **state)
{
    tacit_canary_scores s = make_scores(), back;
    char *text = write_text(&s);
    tacit_error err;
    (void)state;
    OK(tacit_canary_scores_read(&back, text, strlen(text), &err));
    assert_memory_equal(back.reserve, s.reserve, sizeof s.reserve);
    assert_true(tacit_mechanism_equal(&back.mechanism, &s.mechanism));
    assert_int_equal(back.values, 4096);
    assert_true(back.delta == s.delta && back.epsilon == s.epsilon);
    assert_int_equal(back.count, 5);
    assert_memory_equal(back.score, s.score, 5 * sizeof *s.score); /* every bit */
    assert_memory_equal(back.included, s.included, 5 * sizeof *s.included);
    tacit_canary_scores_free(&back);
    tacit_canary_scores_free(&s);
    free(text);
}

static void test_what_is_not_finite_is_not_written(void **state)
{
    tacit_canary_scores s = make_scores();
    tacit_buffer b = {.cap = 0};
    tacit_error err;
    (void)state;
    s.score[3] = NAN;
    assert_int_equal(tacit_canary_scores_write(&b, &s, &err), TACIT_USAGE);
    tacit_buffer_free(&b);
    tacit_canary_scores_free(&s);
}

/* `from` of the good file becomes `to`. */
static const struct edit {
    const char *from, *to;
    tacit_status status;
    const char *says;
} edits[] = {
    {"\"version\":1", "\"version\":2", TACIT_BAD_INPUT, "version 2"},
    {"tacit-canary-scores", "tacit-scores", TACIT_BAD_INPUT, "found tacit-scores"},
    {"\"canaries\":5", "\"canaries\":6", TACIT_BAD_INPUT, "line 7"},
    {"\"canaries\":5", "\"canaries\":4", TACIT_BAD_INPUT, "line 6: expected the end"},
    {"\"canaries\":5", "\"canaries\":0", TACIT_BAD_INPUT, "1 to 100000, found 0"},
    {"\"canaries\":5", "\"canaries\":-1", TACIT_BAD_INPUT, "found -1"},
    {"\"canaries\":5", "\"canaries\":9223372036854775807", TACIT_BAD_INPUT, "1 to 100000"},
    {"\"canaries\":5", "\"canaries\":99999999999999999999", TACIT_BAD_INPUT, "line 1"},
    {"\"canaries\":5", "\"canaries\":5.0", TACIT_BAD_INPUT, "line 1"},
    {"\"canaries\":5", "\"canaries\":5,\"canaries\":5", TACIT_BAD_INPUT, "duplicate"},
    {"\"canaries\":5", "\"canaries\":5,\"more\":5", TACIT_BAD_INPUT, "more"},
    {"\"canaries\":5,", "", TACIT_BAD_INPUT, "canaries"},
    {"\"values\":4096", "\"values\":4", TACIT_BAD_INPUT, "values: expected 5"},
    {"\"values\":4096", "\"values\":4294967296", TACIT_BAD_INPUT, "values"},
    {"c3c3c3c3", "c3c3c3cx", TACIT_BAD_INPUT, "reserve"},
    {"c3c3c3c3", "c3c3c3", TACIT_BAD_INPUT, "reserve"},
    {"\"delta\":", "\"delta\":-", TACIT_BAD_INPUT, "delta"},
    {"\"delta\":1", "\"delta\":1e9,\"delta\":1", TACIT_BAD_INPUT, "duplicate"},
    {"\"epsilon\":1", "\"epsilon\":3", TACIT_INTEGRITY, "claims epsilon 3"},
    {"\"epsilon\":1", "\"epsilon\":0", TACIT_INTEGRITY, "its mechanism costs 1.77"},
    {"\"epsilon\":1", "\"epsilon\":-1", TACIT_BAD_INPUT, "epsilon at least 0"},
    {"\"b\":111461", "\"b\":111462", TACIT_INTEGRITY, "costs"},
    {"\"b\":111461", "\"b\":0", TACIT_BAD_INPUT, "b"},
    {"\"steps\":100", "\"steps\":4294967396", TACIT_BAD_INPUT, "steps"},
    {"\"q_num\":214748364", "\"q_num\":0", TACIT_BAD_INPUT, "q_num"},
    {"\"clip_norm\":0.75", "\"clip_norm\":0", TACIT_BAD_INPUT, "clip_norm"},
    {"subsampled_gaussian", "none", TACIT_BAD_INPUT, "kind"},
    {"add-remove", "replace-one", TACIT_BAD_INPUT, "neighbours"},
    {"\"unit\":\"subject\"", "\"unit\":\"person\"", TACIT_BAD_INPUT, "unit"},
    {"\"unit\":\"subject\"", "\"unit\":\"device\"", TACIT_BAD_INPUT, "device unit"},
    {"{\"included\":false,\"score\":0.1", "{\"included\":0,\"score\":0.1", TACIT_BAD_INPUT,
     "line 2"},
    {"\"score\":123456.789", "\"score\":1e999", TACIT_BAD_INPUT, "line 5"},
    {"\"score\":123456.789", "\"score\":NaN", TACIT_BAD_INPUT, "line 5"},
    {"\"score\":123456.789", "\"score\":\"1\"", TACIT_BAD_INPUT, "line 5"},
    {"\"score\":123456.789", "\"score\":1,\"name\":2", TACIT_BAD_INPUT, "line 5"},
    {"\n{\"included\":true", "\n\n{\"included\":true", TACIT_BAD_INPUT, "line 3"},
    {"\n{\"included\":true", "\n{} {\"included\":true", TACIT_BAD_INPUT, "line 3"},
};

static void test_each_edit_is_refused(void **state)
{
    tacit_canary_scores s = make_scores(), back;
    char *text = write_text(&s);
    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        const struct edit *e = &edits[i];
        char edited[4096];
        tacit_error err = {0};
        const char *at = strstr(text, e->from);
        if (!at)
            fail_msg("edit %zu: '%s' is not in the file", i, e->from);
        snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, e->to,
                 at + strlen(e->from));
        tacit_status found = tacit_canary_scores_read(&back, edited, strlen(edited), &err);
        if (found != e->status || !strstr(err.message, e->says))
            fail_msg("edit %zu ('%s'): status %d: %s", i, e->to, found, err.message);
        assert_null(back.included);
    }
    free(text);
    tacit_canary_scores_free(&s);
}

/* The device unit has no units beside it that could be canaries. */
static void test_the_device_unit_is_refused(void **state)
{
    tacit_canary_scores s = make_scores(), back;
    tacit_error err;
    (void)state;
    s.mechanism.unit = TACIT_UNIT_DEVICE;
    s.mechanism.q_num = TACIT_Q_ONE;
    s.mechanism.steps = 1;
    s.mechanism.divisor = 1;
    OK(tacit_canary_claim(&s.epsilon, &s.mechanism, s.values, s.delta, &err));
    char *text = write_text(&s);
    assert_int_equal(tacit_canary_scores_read(&back, text, strlen(text), &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "expected record or subject"));
    free(text);
    tacit_canary_scores_free(&s);
}

static void test_cut_anywhere(void **state)
{
    tacit_canary_scores s = make_scores(), back;
    char *text = write_text(&s);
    tacit_error err;
    (void)state;
    for (size_t size = 0; size < strlen(text); size++)
        assert_int_equal(tacit_canary_scores_read(&back, text, size, &err), TACIT_BAD_INPUT);
    free(text);
    tacit_canary_scores_free(&s);
}

/* Scores that other programs write as whole numbers. */
static void test_whole_numbers_are_numbers(void **state)
{
    tacit_canary_scores s = make_scores(), back;
    char *text = write_text(&s);
    tacit_error err;
    (void)state;
    char *at = strstr(text, "123456.789");
    memcpy(at, "1234567890", 10);
    OK(tacit_canary_scores_read(&back, text, strlen(text), &err));
    assert_true(back.score[3] == 1234567890);
    tacit_canary_scores_free(&back);
    tacit_canary_scores_free(&s);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_claim_is_the_accountants),
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_what_is_not_finite_is_not_written),
        cmocka_unit_test(test_each_edit_is_refused),
        cmocka_unit_test(test_the_device_unit_is_refused),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_whole_numbers_are_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
