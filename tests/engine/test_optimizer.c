/* Oracle: PyTorch in float64 (tests/golden/make_optimizers.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/optimizer.h"

#include "../golden/optimizer_steps.h"

#include <math.h>
#include <string.h>

static float gradient(int step, int i)
{
    return (float)((7 * step + 5 * i) % 11 - 5) / 8.0f * (i != 4 ? 1.0f : 0x1p-12f);
}

static void follows_pytorch(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof optimizer_cases / sizeof optimizer_cases[0]; c++) {
        tacit_optimizer o;
        float w[OPTIMIZER_VALUES], g[OPTIMIZER_VALUES];
        memcpy(w, optimizer_start, sizeof w);
        assert_int_equal(tacit_optimizer_init(&o, &optimizer_cases[c].spec, OPTIMIZER_VALUES, NULL),
                         TACIT_OK);
        for (int step = 1; step <= OPTIMIZER_STEPS; step++) {
            for (int i = 0; i < OPTIMIZER_VALUES; i++)
                g[i] = gradient(step, i);
            tacit_optimizer_step(&o, w, g, 1.0);
            for (int i = 0; i < OPTIMIZER_VALUES; i++) {
                double expected = optimizer_cases[c].after[step - 1][i];
                if (fabs((double)w[i] - expected) > 2e-6 * (0.1 + fabs(expected)))
                    fail_msg("%s, step %d, value %d: %.9g, expected %.9g", optimizer_cases[c].name,
                             step, i, (double)w[i], expected);
            }
        }
        assert_int_equal(o.step, OPTIMIZER_STEPS);
        tacit_optimizer_fini(&o);
    }
}

static void rate_scale_multiplies_the_rate(void **state)
{
    (void)state;
    tacit_optimizer a, b;
    tacit_optimizer_spec spec = {TACIT_ADAMW,         0.02, 0, 0.9, 0.999, 1e-8, 0.1,
                                 TACIT_RATE_CONSTANT, 0},
                         half = spec;
    half.learning_rate = 0.01;
    float wa[2] = {1, -1}, wb[2] = {1, -1};
    const float g[2] = {0.5f, 0.25f};
    assert_int_equal(tacit_optimizer_init(&a, &spec, 2, NULL), TACIT_OK);
    assert_int_equal(tacit_optimizer_init(&b, &half, 2, NULL), TACIT_OK);
    tacit_optimizer_step(&a, wa, g, 0.5);
    tacit_optimizer_step(&b, wb, g, 1.0);
    assert_memory_equal(wa, wb, sizeof wa);
    assert_true(wa[0] < 1);
    tacit_optimizer_fini(&a);
    tacit_optimizer_fini(&b);
}

/* Gradients whose squares are zero in single precision, down to none at all, with the least epsilon
 * and the slowest second moment that a plan may have: a constant gradient moves a value by at most
 * the learning rate a step (section 2.1 of the paper), and zero by nothing. */
static void tiny_gradients_move_little(void **state)
{
    (void)state;
    static const float gradients[] = {1e-10f, 1e-18f, 1e-20f, 1e-22f, 1e-25f, 1e-38f, 1e-45f, 0};
    const size_t n = sizeof gradients / sizeof gradients[0];
    const tacit_optimizer_spec spec = {.kind = TACIT_ADAM,
                                       .learning_rate = 0.125,
                                       .beta1 = 0.9,
                                       .beta2 = 0.999999,
                                       .epsilon = TACIT_ADAM_EPSILON_MIN};
    tacit_optimizer o;
    float w[sizeof gradients / sizeof gradients[0]] = {0};
    assert_int_equal(tacit_optimizer_init(&o, &spec, n, NULL), TACIT_OK);
    for (int step = 1; step <= 5; step++) {
        tacit_optimizer_step(&o, w, gradients, 1.0);
        for (size_t i = 0; i < n; i++)
            if (!(w[i] <= 0 && w[i] >= -0.125f * (float)step * 1.01f))
                fail_msg("gradient %g, step %d: %g", (double)gradients[i], step, (double)w[i]);
    }
    assert_true(w[0] < -0.5f && w[n - 1] == 0);
    tacit_optimizer_fini(&o);
}

static void impossible_specs_are_refused(void **state)
{
    (void)state;
    static const tacit_optimizer_spec bad[] = {
        {TACIT_SGD, 0, 0, 0, 0, 0, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_SGD, -1, 0, 0, 0, 0, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_SGD, NAN, 0, 0, 0, 0, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_SGD, INFINITY, 0, 0, 0, 0, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_SGD, 0.1, 1, 0, 0, 0, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_SGD, 0.1, 0, 0, 0, 0, -1, TACIT_RATE_CONSTANT, 0},
        {TACIT_ADAM, 0.1, 0, 1, 0.9, 1e-8, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_ADAM, 0.1, 0, 0.9, -0.1, 1e-8, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_ADAM, 0.1, 0, 0.9, NAN, 1e-8, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_ADAMW, 0.1, 0, 0.9, 0.9, 0, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_ADAM, 0.1, 0, 0.9, 0.9, 9e-17, 0, TACIT_RATE_CONSTANT, 0},
        {TACIT_ADAM, 0.1, 0, 0.9, 0.9, 1e-46, 0, TACIT_RATE_CONSTANT,
         0}, /* zero in single precision */
        {(tacit_optimizer_kind)9, 0.1, 0, 0.9, 0.9, 1e-8, 0, TACIT_RATE_CONSTANT, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tacit_optimizer o;
        tacit_error err = {0};
        assert_int_equal(tacit_optimizer_init(&o, &bad[i], 1, &err), TACIT_USAGE);
        assert_true(strlen(err.message) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_pytorch),
        cmocka_unit_test(rate_scale_multiplies_the_rate),
        cmocka_unit_test(tiny_gradients_move_little),
        cmocka_unit_test(impossible_specs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
