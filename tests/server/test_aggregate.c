/* The sum of updates against a naive twin in double, in every order, and the evaluation gate's
 * judgement and parser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "server/aggregate.h"
#include "server/gate_evaluation.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VALUES 37
#define UPDATES 9

/* Any fixed sequence that fills the range of int32. */
static uint32_t next_word(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state;
}

static void fill(uint8_t update[UPDATES][4 * VALUES], uint32_t seed)
{
    for (size_t u = 0; u < UPDATES; u++)
        for (size_t i = 0; i < VALUES; i++)
            tacit_store_u32(update[u] + 4 * i, next_word(&seed));
}

static void sum_up(aggregate_sum *s, const uint8_t update[UPDATES][4 * VALUES], const size_t *order,
                   size_t n)
{
    tacit_error err;
    assert_int_equal(aggregate_init(s, VALUES, &err), TACIT_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(aggregate_add(s, update[order[i]], &err), TACIT_OK);
}

static void test_mean_against_double(void **state)
{
    (void)state;
    static uint8_t update[UPDATES][4 * VALUES];
    static const size_t order[UPDATES] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    const double scale = 4194304;
    float parent[VALUES], mean[VALUES];
    tacit_error err;
    fill(update, 7);
    for (size_t n = 1; n <= UPDATES; n++) {
        aggregate_sum s;
        sum_up(&s, update, order, n);
        for (size_t i = 0; i < VALUES; i++)
            parent[i] = (float)i / 3 - 5;
        assert_int_equal(aggregate_mean(&s, scale, parent, mean, &err), TACIT_OK);
        for (size_t i = 0; i < VALUES; i++) {
            double naive = 0;
            for (size_t u = 0; u < n; u++)
                naive += (int32_t)tacit_load_u32(update[u] + 4 * i) / scale / (double)n;
            naive += parent[i];
            assert_true(fabs(mean[i] - naive) <= 1e-6 * fmax(1, fabs(naive)));
        }
        aggregate_fini(&s);
    }
}

static void test_order_does_not_matter(void **state)
{
    (void)state;
    static uint8_t update[UPDATES][4 * VALUES];
    static const size_t orders[][UPDATES] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8}, {8, 7, 6, 5, 4, 3, 2, 1, 0}, {4, 0, 8, 2, 6, 1, 7, 3, 5}};
    uint8_t digest[3][TACIT_DIGEST_BYTES];
    fill(update, 11);
    for (size_t o = 0; o < 3; o++) {
        aggregate_sum s;
        sum_up(&s, update, orders[o], UPDATES);
        aggregate_digest(&s, digest[o]);
        aggregate_fini(&s);
    }
    assert_memory_equal(digest[0], digest[1], TACIT_DIGEST_BYTES);
    assert_memory_equal(digest[0], digest[2], TACIT_DIGEST_BYTES);
}

/* The digest is SHA-256 of the sums as int64 LE: -1 and 258, by hashlib. */
static void test_digest_of_known_sums(void **state)
{
    (void)state;
    static const uint8_t expected[TACIT_DIGEST_BYTES] = {
        0xdf, 0x76, 0x5f, 0x38, 0xc3, 0x75, 0x1f, 0x99, 0x31, 0x49, 0x7f,
        0x9b, 0x23, 0x67, 0xaf, 0xc6, 0x56, 0x9a, 0x36, 0x5d, 0x07, 0xcb,
        0x4e, 0xe0, 0x98, 0xed, 0x45, 0x91, 0xcb, 0xee, 0xd4, 0xb7};
    uint8_t update[8], digest[TACIT_DIGEST_BYTES];
    aggregate_sum s;
    tacit_error err;
    tacit_store_u32(update, (uint32_t)-1);
    tacit_store_u32(update + 4, 258);
    assert_int_equal(aggregate_init(&s, 2, &err), TACIT_OK);
    assert_int_equal(aggregate_add(&s, update, &err), TACIT_OK);
    aggregate_digest(&s, digest);
    assert_memory_equal(digest, expected, sizeof digest);
    aggregate_fini(&s);
}

static void test_extremes(void **state)
{
    (void)state;
    aggregate_sum s;
    tacit_error err;
    uint8_t update[8];
    float mean[2];
    tacit_store_u32(update, (uint32_t)INT32_MIN);
    tacit_store_u32(update + 4, (uint32_t)INT32_MAX);
    assert_int_equal(aggregate_init(&s, 2, &err), TACIT_OK);
    assert_int_equal(aggregate_mean(&s, 1, NULL, mean, &err), TACIT_CONFLICT);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(aggregate_add(&s, update, &err), TACIT_OK);
    assert_true(s.value[0] == -2147483648000ll && s.value[1] == 2147483647000ll);
    assert_int_equal(aggregate_mean(&s, 1, NULL, mean, &err), TACIT_OK);
    assert_true(mean[0] == -2147483648.0f && mean[1] == (float)2147483647);
    s.updates = UINT32_MAX;
    assert_int_equal(aggregate_add(&s, update, &err), TACIT_REFUSED);
    aggregate_fini(&s);
}

/* --- the evaluation gate --- */

static void test_gate_passes(void **state)
{
    (void)state;
    static const struct {
        gate_score parent, candidate;
        bool passes;
    } rows[] = {
        {{0.50, 2.0}, {0.60, 9.0}, true},  /* better answers, whatever the loss */
        {{0.50, 2.0}, {0.49, 9.0}, true},  /* within the margin */
        {{0.50, 2.0}, {0.47, 1.0}, false}, /* beyond it */
        {{0.50, 2.0}, {0.50, 2.03}, true}, /* equal answers: the loss decides */
        {{0.50, 2.0}, {0.50, 2.05}, false},     {{0.50, 2.0}, {0.50, 1.0}, true},
        {{0.50, 2.0}, {NAN, 1.0}, false},       {{0.50, 2.0}, {0.60, NAN}, false},
        {{0.50, 2.0}, {0.60, INFINITY}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(gate_passes(&rows[i].parent, &rows[i].candidate, 0.02), rows[i].passes);
}

static tacit_status parse(const char *text, gate_score *score)
{
    tacit_error err;
    return gate_score_parse(score, text, strlen(text), &err);
}

static void test_score_parse(void **state)
{
    (void)state;
    gate_score score = {0};
    assert_int_equal(parse("{\"accuracy\":0.25,\"loss\":1.5}", &score), TACIT_OK);
    assert_true(score.accuracy == 0.25 && score.loss == 1.5);
    assert_int_equal(parse("a line\n{\"accuracy\":1,\"loss\":0,\"x\":[]}\n\n", &score), TACIT_OK);
    assert_true(score.accuracy == 1 && score.loss == 0);
    static const char *const bad[] = {"",
                                      "\n",
                                      "{}",
                                      "{\"accuracy\":0.5}",
                                      "{\"accuracy\":\"1\",\"loss\":2}",
                                      "{\"accuracy\":0.5,\"loss\":null}",
                                      "[0.5,1]",
                                      "{\"accuracy\":0.5,\"loss\":1}x",
                                      "{\"accuracy\":NaN,\"loss\":1}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(parse(bad[i], &score), TACIT_FAILED);
}

/* A program in the place of `tacit`. */
static tacit_status evaluate(const char *script, uint64_t seconds, bool stop, gate_score *score,
                             tacit_error *err)
{
    char path[] = "/tmp/tacit-gate-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(dprintf(fd, "#!/bin/sh\n%s\n", script), (int)strlen(script) + 11);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
    server_config config = {
        .tacit = path, .gate_data = path, .model_text = path, .gate_seconds = seconds};
    atomic_bool stopping = stop;
    tacit_status status = gate_evaluate(score, &config, NULL, &stopping, err);
    unlink(path);
    return status;
}

static void test_evaluate(void **state)
{
    (void)state;
    gate_score score;
    tacit_error err;
    const char *good = "echo '{\"accuracy\":0.5,\"loss\":1}'";
    assert_int_equal(evaluate(good, 600, false, &score, &err), TACIT_OK);
    assert_true(score.accuracy == 0.5 && score.loss == 1);
    assert_int_equal(evaluate("exit 3", 600, false, &score, &err), TACIT_FAILED);
    assert_non_null(strstr(err.message, "exit code 3"));
    assert_int_equal(evaluate("kill -9 $$", 600, false, &score, &err), TACIT_FAILED);
    assert_non_null(strstr(err.message, "signal 9"));
    assert_int_equal(evaluate("yes", 600, false, &score, &err), TACIT_FAILED); /* endless output */
    assert_int_equal(evaluate("exec sleep 1000", 0, false, &score, &err), TACIT_FAILED);
    assert_non_null(strstr(err.message, "gate.seconds"));
    assert_int_equal(evaluate("exec sleep 1000", 600, true, &score, &err), TACIT_AGAIN);
    server_config nowhere = {.tacit = (char *)(uintptr_t) "/nonexistent/tacit",
                             .gate_data = (char *)(uintptr_t) "x",
                             .model_text = (char *)(uintptr_t) "x",
                             .gate_seconds = 1};
    atomic_bool stop = false;
    assert_int_equal(gate_evaluate(&score, &nowhere, NULL, &stop, &err), TACIT_FAILED);
    assert_non_null(strstr(err.message, "gate.tacit"));
}

/* A descriptor that does not close itself, as that of a connection just accepted. */
static void test_nothing_is_inherited(void **state)
{
    (void)state;
    gate_score score;
    tacit_error err;
    int fd = fcntl(STDERR_FILENO, F_DUPFD, 57); /* without FD_CLOEXEC */
    char script[128];
    assert_true(fd >= 57);
    snprintf(script, sizeof script,
             "test -e /proc/$$/fd/%d && exit 9\necho '{\"accuracy\":0.5,\"loss\":1}'", fd);
    tacit_status status = evaluate(script, 600, false, &score, &err);
    close(fd);
    if (status != TACIT_OK)
        fail_msg("%s", err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean_against_double),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_digest_of_known_sums),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_gate_passes),
        cmocka_unit_test(test_score_parse),
        cmocka_unit_test(test_evaluate),
        cmocka_unit_test(test_nothing_is_inherited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
