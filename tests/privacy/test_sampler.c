#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "privacy/mechanism.h"
#include "privacy/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tacit_drbg *seeded(uint8_t first)
{
    uint8_t seed[32] = {first}, nonce[32] = {0};
    tacit_error err;
    tacit_drbg *g;
    assert_int_equal(tacit_drbg_new(&g, "sampling", nonce, seed, &err), TACIT_OK);
    return g;
}

static void test_rate_one_draws_everyone(void **state)
{
    (void)state;
    size_t drawn[2000], n;
    tacit_drbg *g = seeded(1);
    tacit_sampler_draw(g, TACIT_Q_ONE, 2000, drawn, &n);
    assert_int_equal(n, 2000);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(drawn[i], i);
    tacit_sampler_draw(g, TACIT_Q_ONE, 0, drawn, &n);
    assert_int_equal(n, 0);
    tacit_drbg_free(g);
}

/* Replay: the draw is the integer comparison of the generator's 32-bit words, exactly. */
static void test_draw_is_an_exact_comparison(void **state)
{
    (void)state;
    enum { N = 3000 };
    static size_t drawn[N];
    static uint8_t bytes[4 * N];
    const uint64_t rates[] = {1, 343597383, 2147483648, 4294967295};
    for (size_t r = 0; r < 4; r++) {
        tacit_drbg *a = seeded(2), *b = seeded(2);
        size_t n, expected = 0;
        tacit_sampler_draw(a, rates[r], N, drawn, &n);
        tacit_drbg_bytes(b, bytes, sizeof bytes);
        for (size_t i = 0; i < N; i++)
            if (tacit_load_u32(bytes + 4 * i) < rates[r])
                assert_int_equal(drawn[expected++], i);
        assert_int_equal(n, expected);
        tacit_drbg_free(a);
        tacit_drbg_free(b);
    }
}

/* At the very boundary: a rate equal to a unit's word does not draw it, one more does. */
static void test_the_boundary_is_strict(void **state)
{
    (void)state;
    uint8_t bytes[4 * 20];
    size_t drawn[20], n;
    tacit_drbg *g = seeded(6);
    tacit_drbg_bytes(g, bytes, sizeof bytes);
    tacit_drbg_free(g);
    for (size_t unit = 0; unit < 20; unit++)
        for (uint64_t more = 0; more <= 1; more++) {
            bool found = false;
            g = seeded(6);
            tacit_sampler_draw(g, (uint64_t)tacit_load_u32(bytes + 4 * unit) + more, 20, drawn, &n);
            for (size_t i = 0; i < n; i++)
                found |= drawn[i] == unit;
            assert_int_equal(found, more);
            tacit_drbg_free(g);
        }
}

static void test_a_unit_at_the_end_changes_no_other_draw(void **state)
{
    (void)state;
    size_t with[701], without[700], n_with, n_without;
    tacit_drbg *a = seeded(3), *b = seeded(3);
    tacit_sampler_draw(a, 1u << 30, 701, with, &n_with);
    tacit_sampler_draw(b, 1u << 30, 700, without, &n_without);
    n_with -= n_with > 0 && with[n_with - 1] == 700;
    assert_int_equal(n_with, n_without);
    assert_memory_equal(with, without, n_with * sizeof *with);
    tacit_drbg_free(a);
    tacit_drbg_free(b);
}

/* What the accountant assumes: T draws of N units are N T independent coins of probability q. Each
 * unit's count is Binomial(T, q), joint counts of pairs are Binomial(T, q^2), and the batch size
 * has the binomial's variance (a fixed-size batch has none). */
enum { UNITS = 40, DRAWS = 20000 };

typedef struct inclusion {
    double unit_score, pair_score, size_ratio;
} inclusion;

static inclusion measure(void (*draw)(tacit_drbg *, uint64_t, size_t, size_t *, size_t *),
                         uint64_t q_num)
{
    static int joint[UNITS][UNITS];
    memset(joint, 0, sizeof joint);
    double q = tacit_sampling_rate(q_num), size_square = 0;
    size_t drawn[UNITS], n;
    tacit_drbg *g = seeded(5);
    for (int t = 0; t < DRAWS; t++) {
        draw(g, q_num, UNITS, drawn, &n);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k <= i; k++)
                joint[drawn[i]][drawn[k]]++;
        size_square += ((double)n - UNITS * q) * ((double)n - UNITS * q);
    }
    tacit_drbg_free(g);
    double unit = 0, pair = 0, pairs = UNITS * (UNITS - 1) / 2.0;
    for (int i = 0; i < UNITS; i++)
        for (int k = 0; k <= i; k++) {
            double p = i == k ? q : q * q, off = joint[i][k] - DRAWS * p;
            *(i == k ? &unit : &pair) += off * off / (DRAWS * p * (1 - p));
        }
    return (inclusion){(unit - UNITS) / sqrt(2.0 * UNITS), (pair - pairs) / sqrt(2 * pairs),
                       size_square / DRAWS / (UNITS * q * (1 - q))};
}

/* What must not pass: batches of fixed size, each a uniformly random subset. */
static void fixed_size_draw(tacit_drbg *g, uint64_t q_num, size_t n_units, size_t *drawn, size_t *n)
{
    size_t order[UNITS];
    *n = (size_t)lround(tacit_sampling_rate(q_num) * (double)n_units);
    for (size_t i = 0; i < n_units; i++)
        order[i] = i;
    for (size_t i = 0; i < n_units; i++) {
        uint64_t word;
        tacit_drbg_bytes(g, &word, sizeof word);
        size_t k = i + word % (n_units - i), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    char in[UNITS] = {0};
    for (size_t i = 0; i < *n; i++)
        in[order[i]] = 1;
    for (size_t i = 0, at = 0; i < n_units; i++)
        if (in[i])
            drawn[at++] = i;
}

static void test_inclusions_are_independent_coins(void **state)
{
    (void)state;
    const uint64_t rates[] = {TACIT_Q_ONE / 5, TACIT_Q_ONE / 2};
    for (int r = 0; r < 2; r++) {
        inclusion found = measure(tacit_sampler_draw, rates[r]);
        assert_true(fabs(found.unit_score) < 4);
        assert_true(fabs(found.pair_score) < 5);
        assert_true(fabs(found.size_ratio - 1) < 4 * sqrt(2.0 / DRAWS));
        inclusion fixed = measure(fixed_size_draw, rates[r]);
        assert_true(fixed.size_ratio < 0.1 && fabs(fixed.pair_score) > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_one_draws_everyone),
        cmocka_unit_test(test_draw_is_an_exact_comparison),
        cmocka_unit_test(test_the_boundary_is_strict),
        cmocka_unit_test(test_a_unit_at_the_end_changes_no_other_draw),
        cmocka_unit_test(test_inclusions_are_independent_coins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
