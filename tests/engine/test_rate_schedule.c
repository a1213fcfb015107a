/* The learning rate of every step, against the formulas by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/rate_schedule.h"

#include <math.h>

static void expect_rates(tacit_rate_kind kind, uint64_t warmup, uint64_t steps, const double *rates)
{
    const tacit_rate_schedule s = {kind, warmup, steps};
    for (uint64_t i = 0; i < steps; i++)
        if (fabs(tacit_rate_at(&s, i) - rates[i]) > 1e-15)
            fail_msg("kind %d, step %d: %.17g, expected %.17g", (int)kind, (int)i,
                     tacit_rate_at(&s, i), rates[i]);
}

static void rates_follow_their_formulas(void **state)
{
    (void)state;
    expect_rates(TACIT_RATE_CONSTANT, 0, 3, (const double[]){1, 1, 1});
    expect_rates(TACIT_RATE_CONSTANT, 3, 5, (const double[]){0.25, 0.5, 0.75, 1, 1});
    expect_rates(TACIT_RATE_LINEAR, 0, 4, (const double[]){1, 0.75, 0.5, 0.25});
    expect_rates(TACIT_RATE_LINEAR, 1, 5, (const double[]){0.5, 1, 0.75, 0.5, 0.25});
    expect_rates(TACIT_RATE_COSINE, 0, 4,
                 (const double[]){1, 0.5 + sqrt(0.125), 0.5, 0.5 - sqrt(0.125)});
    expect_rates(TACIT_RATE_COSINE, 2, 6,
                 (const double[]){1 / 3.0, 2 / 3.0, 1, 0.5 + sqrt(0.125), 0.5, 0.5 - sqrt(0.125)});
}

/* A longer way up than the training is long, no step at all, steps behind the last. */
static void rates_at_the_ends(void **state)
{
    (void)state;
    expect_rates(TACIT_RATE_COSINE, 9, 3, (const double[]){0.1, 0.2, 0.3});
    const tacit_rate_schedule none = {TACIT_RATE_LINEAR, 0, 0}, four = {TACIT_RATE_LINEAR, 0, 4};
    assert_true(tacit_rate_at(&none, 0) == 1);
    assert_true(tacit_rate_at(&four, 4) == 0.25 && tacit_rate_at(&four, UINT64_MAX) == 0.25);
}

static void kinds_have_names(void **state)
{
    tacit_rate_kind kind = TACIT_RATE_COSINE;
    (void)state;
    assert_true(tacit_rate_kind_find(&kind, "constant") && kind == TACIT_RATE_CONSTANT);
    assert_true(tacit_rate_kind_find(&kind, "linear") && kind == TACIT_RATE_LINEAR);
    assert_true(tacit_rate_kind_find(&kind, "cosine") && kind == TACIT_RATE_COSINE);
    assert_false(tacit_rate_kind_find(&kind, "Cosine") || tacit_rate_kind_find(&kind, ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_follow_their_formulas),
        cmocka_unit_test(rates_at_the_ends),
        cmocka_unit_test(kinds_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
