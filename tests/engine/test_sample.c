#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB 6

/* Softmax at temperature 1: 0.4, 0.1, 0.2, 0.25, 0.05 and never. */
static float logits[VOCAB];

static int set_up(void **state)
{
    (void)state;
    const double p[VOCAB] = {0.4, 0.1, 0.2, 0.25, 0.05, 0};
    for (size_t i = 0; i < VOCAB; i++)
        logits[i] = (float)log(p[i]);
    logits[5] = -INFINITY;
    return 0;
}

static tacit_sampler new_sampler(double temperature, size_t top_k, double top_p, uint64_t seed)
{
    const tacit_sampler_spec spec = {temperature, top_k, top_p, 0, seed};
    tacit_sampler s;
    tacit_error err;
    assert_int_equal(tacit_sampler_init(&s, &spec, VOCAB, &err), TACIT_OK);
    return s;
}

/* Frequencies of many draws against the exact probabilities, within five standard deviations. */
static void check_frequencies(double temperature, size_t top_k, double top_p,
                              const double expected[VOCAB])
{
    enum { DRAWS = 20000 };
    tacit_sampler s = new_sampler(temperature, top_k, top_p, 42);
    size_t count[VOCAB] = {0};
    for (size_t i = 0; i < DRAWS; i++) {
        int32_t id = tacit_sampler_next(&s, logits);
        assert_in_range(id, 0, VOCAB - 1);
        count[id]++;
    }
    for (size_t i = 0; i < VOCAB; i++) {
        double p = expected[i], sd = sqrt(p * (1 - p) / DRAWS);
        if (!(fabs((double)count[i] / DRAWS - p) <= 5 * sd))
            fail_msg("token %zu: %zu of %d draws, expected %g", i, count[i], DRAWS, p);
    }
    tacit_sampler_fini(&s);
}

static void test_frequencies(void **state)
{
    (void)state;
    check_frequencies(1, 0, 1, (const double[]){0.4, 0.1, 0.2, 0.25, 0.05, 0});
    check_frequencies(1, 2, 1, (const double[]){0.4 / 0.65, 0, 0, 0.25 / 0.65, 0, 0});
    /* 0.4 + 0.25 reach 0.6; one alone reaches 0.3. */
    check_frequencies(1, 0, 0.6, (const double[]){0.4 / 0.65, 0, 0, 0.25 / 0.65, 0, 0});
    check_frequencies(1, 0, 0.3, (const double[]){1, 0, 0, 0, 0, 0});
    check_frequencies(1, 0, 0, (const double[]){1, 0, 0, 0, 0, 0});
    /* The temperature goes last: what was too unlikely stays away. */
    check_frequencies(100, 0, 0.3, (const double[]){1, 0, 0, 0, 0, 0});
    /* At temperature 1/2 probabilities are squared. */
    check_frequencies(0.5, 0, 1,
                      (const double[]){0.16 / 0.275, 0.01 / 0.275, 0.04 / 0.275, 0.0625 / 0.275,
                                       0.0025 / 0.275, 0});
}

#define MANY 60

/* The definition, in doubles: sort, keep the first k, then those that reach p together, then those
 * that are likely enough, and weigh what is left at the temperature. */
static void naive_probabilities(double p[MANY], const float *x, const tacit_sampler_spec *spec)
{
    size_t order[MANY], kept = spec->top_k && spec->top_k < MANY ? spec->top_k : MANY;
    double weight[MANY], total = 0, reached = 0, sum = 0;
    for (size_t i = 0; i < MANY; i++) {
        size_t at = i;
        for (; at > 0 && x[i] > x[order[at - 1]]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        p[i] = 0;
    }
    double most = x[order[0]];
    for (size_t i = 0; i < kept; i++)
        total += weight[i] = exp(x[order[i]] - most);
    for (size_t i = 0; i < kept; i++) {
        bool enough = i > 0 && spec->top_p < 1 && reached >= spec->top_p * total;
        if (!enough && weight[i] >= spec->min_p)
            p[order[i]] = exp((x[order[i]] - most) / spec->temperature);
        reached += weight[i];
        sum += p[order[i]];
    }
    for (size_t i = 0; i < MANY; i++)
        p[i] /= sum;
}

static void test_against_the_definition(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    const tacit_sampler_spec specs[] = {
        {1, 0, 1, 0, 3},       {1, 1, 1, 0, 3},      {1, 7, 1, 0, 3},       {0.7, 20, 0.8, 0, 3},
        {1, 0, 0.9, 0, 3},     {2, 0, 1, 0.2, 3},    {1, 0, 0.95, 0.1, 3},  {1, 59, 0.5, 0.01, 3},
        {0.3, 30, 0.99, 0, 3}, {1, 60, 0.7, 1, 3},   {1, 100, 1, 0.001, 3}, {1e-30, 0, 0.5, 0, 3},
        {3, 0, 0.6, 0, 3},     {5, 40, 0.9, 0.3, 3},
    };
    float x[MANY];
    uint64_t seed = 9;
    for (size_t i = 0; i < MANY; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(seed >> 40) * 0x1p-24f * 6;
        if (i % 7 == 6)
            x[i] = x[i - 1]; /* equals: the lower id goes first */
    }
    for (size_t t = 0; t < sizeof specs / sizeof specs[0]; t++) {
        double p[MANY];
        size_t count[MANY] = {0};
        tacit_sampler s;
        tacit_error err;
        naive_probabilities(p, x, &specs[t]);
        assert_int_equal(tacit_sampler_init(&s, &specs[t], MANY, &err), TACIT_OK);
        for (size_t i = 0; i < DRAWS; i++)
            count[tacit_sampler_next(&s, x)]++;
        for (size_t i = 0; i < MANY; i++) {
            double sd = sqrt(p[i] * (1 - p[i]) / DRAWS);
            if (!(fabs((double)count[i] / DRAWS - p[i]) <= 5 * sd + 1e-12))
                fail_msg("case %zu, token %zu: %zu of %d draws, expected %g", t, i, count[i], DRAWS,
                         p[i]);
        }
        tacit_sampler_fini(&s);
    }
}

/* All of them in order, as sorting has it. */
static void test_top_of_many(void **state)
{
    (void)state;
    enum { VOCABULARY = 1000 };
    float x[VOCABULARY];
    sample_candidate best[VOCABULARY];
    tacit_sampler s;
    tacit_error err;
    const tacit_sampler_spec greedy = {0};
    for (size_t i = 0; i < VOCABULARY; i++)
        x[i] = (float)(i * 7919 % 101);
    assert_int_equal(tacit_sampler_init(&s, &greedy, VOCABULARY, &err), TACIT_OK);
    assert_int_equal(tacit_sampler_top(&s, x, VOCABULARY, best), VOCABULARY);
    for (size_t i = 0; i < VOCABULARY; i++) {
        assert_true(best[i].logit == x[best[i].id]);
        if (i > 0)
            assert_true(best[i].logit < best[i - 1].logit ||
                        (best[i].logit == best[i - 1].logit && best[i].id > best[i - 1].id));
    }
    tacit_sampler_fini(&s);
}

/* xoshiro256++ from the state 1, 2, 3, 4: the published first words, of which equal logits show the
 * upper 16 bits. */
static void test_generator(void **state)
{
    (void)state;
    enum { VOCABULARY = 65536 };
    static const uint64_t words[] = {
        41943041u,
        58720359u,
        3588806011781223u,
        3591011842654386u,
        9228616714210784205u,
        9973669472204895162u,
        14011001112246962877u,
        12406186145184390807u,
        15849039046786891736u,
        10450023813501588000u,
    };
    const tacit_sampler_spec spec = {.temperature = 1, .top_p = 1};
    float *equal = calloc(VOCABULARY, sizeof *equal);
    tacit_sampler s;
    tacit_error err;
    assert_int_equal(tacit_sampler_init(&s, &spec, VOCABULARY, &err), TACIT_OK);
    for (uint64_t i = 0; i < 4; i++)
        s.state[i] = i + 1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_int_equal(tacit_sampler_next(&s, equal), words[i] >> 48);
    tacit_sampler_fini(&s);
    free(equal);
}

/* Half of two equals is one of them; both are as likely as the first. */
static void test_edges_of_the_filters(void **state)
{
    (void)state;
    const float two[VOCAB] = {-INFINITY, 1, -INFINITY, 1, -INFINITY, -INFINITY};
    const tacit_sampler_spec half = {1, 0, 0.5, 0, 4}, as_likely = {1, 0, 1, 1, 4};
    const tacit_sampler_spec hot = {1e46, 0, 1, 0, 4};
    const tacit_sampler_spec specs[] = {half, as_likely, hot};
    const float far[VOCAB] = {-INFINITY, 3e38f, -INFINITY, -3e38f, -INFINITY, -INFINITY};
    const float infinite[VOCAB] = {-INFINITY, INFINITY, 0, 1, -3, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        tacit_sampler s;
        tacit_error err;
        size_t count[VOCAB] = {0};
        assert_int_equal(tacit_sampler_init(&s, &specs[i], VOCAB, &err), TACIT_OK);
        for (size_t k = 0; k < 400; k++)
            count[tacit_sampler_next(&s, two)]++;
        assert_int_equal(count[1] + count[3], 400);
        assert_in_range(count[3], i == 0 ? 0 : 130, i == 0 ? 0 : 270);
        tacit_sampler_fini(&s);
    }
    /* The most finite numbers can differ is nothing at such a temperature, and infinity is not. */
    for (int k = 0; k < 2; k++) {
        tacit_sampler s;
        size_t count[VOCAB] = {0};
        assert_int_equal(tacit_sampler_init(&s, &hot, VOCAB, NULL), TACIT_OK);
        for (size_t i = 0; i < 400; i++)
            count[tacit_sampler_next(&s, k ? infinite : far)]++;
        assert_int_equal(count[1] + count[3], 400);
        assert_in_range(count[3], k ? 0 : 130, k ? 0 : 270);
        tacit_sampler_fini(&s);
    }
}

static void test_seed_repeats(void **state)
{
    (void)state;
    tacit_sampler a = new_sampler(1, 0, 1, 7), b = new_sampler(1, 0, 1, 7);
    tacit_sampler c = new_sampler(1, 0, 1, 8);
    int different = 0;
    for (int i = 0; i < 200; i++) {
        int32_t id = tacit_sampler_next(&a, logits);
        assert_int_equal(tacit_sampler_next(&b, logits), id);
        different += tacit_sampler_next(&c, logits) != id;
    }
    assert_true(different > 50);
    tacit_sampler_fini(&a);
    tacit_sampler_fini(&b);
    tacit_sampler_fini(&c);
}

static void test_greedy_and_top(void **state)
{
    (void)state;
    tacit_sampler s = new_sampler(0, 0, 0, 1);
    sample_candidate best[VOCAB];
    assert_int_equal(tacit_sampler_next(&s, logits), 0);
    assert_int_equal(tacit_sampler_top(&s, logits, 3, best), 3);
    assert_int_equal(best[0].id, 0);
    assert_int_equal(best[1].id, 3);
    assert_int_equal(best[2].id, 2);
    assert_int_equal(tacit_sampler_top(&s, logits, VOCAB, best), VOCAB);
    assert_int_equal(best[VOCAB - 1].id, 5);
    const float tie[VOCAB] = {-INFINITY, 1, 3, 3, -INFINITY, 2};
    assert_int_equal(tacit_argmax(tie, VOCAB), 2);
    assert_int_equal(tacit_sampler_top(&s, tie, 2, best), 2);
    assert_int_equal(best[0].id, 2);
    assert_int_equal(best[1].id, 3);
    tacit_sampler_fini(&s);
}

/* Overflow: infinite scores are the most likely, or equally unlikely. */
static void test_infinite_logits(void **state)
{
    (void)state;
    const float above[VOCAB] = {1, INFINITY, 2, -INFINITY, INFINITY, 3};
    const float below[VOCAB] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    size_t of_above[VOCAB] = {0}, of_below[VOCAB] = {0};
    const double top_p[] = {1, 0.9};
    for (int p = 0; p < 2; p++) {
        tacit_sampler s = new_sampler(0.7, 0, top_p[p], 5);
        for (int i = 0; i < 200; i++) {
            of_above[tacit_sampler_next(&s, above)]++;
            of_below[tacit_sampler_next(&s, below)]++;
        }
        tacit_sampler_fini(&s);
    }
    assert_int_equal(of_above[1] + of_above[4], 400);
    assert_in_range(of_above[1], 100, 300);
    for (size_t i = 0; i < VOCAB; i++)
        assert_in_range(of_below[i], 30, 110);
}

/* A damaged model says nothing, even where but one score is no number. */
static void test_scores_that_are_no_numbers(void **state)
{
    (void)state;
    const double temperature[] = {0, 1}, top_p[] = {1, 0.5};
    for (size_t at = 0; at < VOCAB; at++)
        for (size_t i = 0; i < 4; i++) {
            float scores[VOCAB] = {1, 2, 3, 4, 5, 6};
            sample_candidate best[VOCAB];
            tacit_sampler s = new_sampler(temperature[i / 2], 0, top_p[i % 2], 1);
            scores[at] = NAN;
            assert_int_equal(tacit_argmax(scores, VOCAB), -1);
            assert_int_equal(tacit_sampler_next(&s, scores), -1);
            assert_int_equal(tacit_sampler_top(&s, scores, VOCAB, best), 0);
            tacit_sampler_fini(&s);
        }
}

static void test_bad_numbers(void **state)
{
    (void)state;
    const tacit_sampler_spec bad[] = {
        {.temperature = -1}, {.temperature = NAN}, {.temperature = INFINITY},
        {.top_p = 1.5},      {.top_p = NAN},       {.min_p = -0.1},
        {.min_p = NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tacit_sampler s;
        tacit_error err;
        assert_int_equal(tacit_sampler_init(&s, &bad[i], VOCAB, &err), TACIT_USAGE);
        tacit_sampler_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_definition),
        cmocka_unit_test(test_top_of_many),
        cmocka_unit_test(test_generator),
        cmocka_unit_test(test_edges_of_the_filters),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_seed_repeats),
        cmocka_unit_test(test_greedy_and_top),
        cmocka_unit_test(test_infinite_logits),
        cmocka_unit_test(test_scores_that_are_no_numbers),
        cmocka_unit_test(test_bad_numbers),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
