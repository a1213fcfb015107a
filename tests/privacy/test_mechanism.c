#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/event.h"
#include "privacy/mechanism.h"

#include <math.h>
#include <string.h>

static Tacit__Mechanism good_message(void)
{
    Tacit__Mechanism m = TACIT__MECHANISM__INIT;
    m.kind = TACIT__MECHANISM_KIND__MECHANISM_SUBSAMPLED_GAUSSIAN;
    m.unit = TACIT__UNIT__UNIT_RECORD;
    m.neighbours = TACIT__NEIGHBOURS__NEIGHBOURS_ADD_REMOVE;
    m.clip_norm = 0.5;
    m.b = 77163;
    m.q_num = 343597383;
    m.steps = 20;
    m.divisor = 48;
    m.unit_examples = 8;
    return m;
}

static void test_every_field_is_carried(void **state)
{
    (void)state;
    Tacit__Mechanism m = good_message();
    Tacit__Plan plan = TACIT__PLAN__INIT;
    tacit_mechanism out, again;
    tacit_error err;
    plan.mechanism = &m;
    assert_int_equal(tacit_mechanism_from_plan(&out, &plan, &err), TACIT_OK);
    assert_int_equal(out.kind, TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN);
    assert_int_equal(out.unit, TACIT_UNIT_RECORD);
    assert_int_equal(out.neighbours, TACIT_ADD_REMOVE);
    assert_true(out.clip_norm == 0.5 && out.divisor == 48);
    assert_true(out.b == 77163 && out.q_num == 343597383);
    assert_int_equal(out.steps, 20);
    assert_int_equal(out.unit_examples, 8);
    again = out;
    assert_true(tacit_mechanism_equal(&out, &again));
    again.q_num++;
    assert_false(tacit_mechanism_equal(&out, &again));
    plan.mechanism = NULL;
    assert_int_equal(tacit_mechanism_from_plan(&out, &plan, &err), TACIT_BAD_INPUT);
}

#define REFUSED(field, bad, name)                                                                  \
    do {                                                                                           \
        Tacit__Mechanism m = good_message();                                                       \
        tacit_mechanism out;                                                                       \
        tacit_error err = {0};                                                                     \
        m.field = (bad);                                                                           \
        assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_BAD_INPUT);           \
        assert_non_null(strstr(err.message, name));                                                \
    } while (0)

static void test_every_field_is_checked(void **state)
{
    (void)state;
    REFUSED(kind, TACIT__MECHANISM_KIND__MECHANISM_UNSPECIFIED, "kind");
    REFUSED(kind, (Tacit__MechanismKind)4, "kind");
    REFUSED(minimum_separation, 1, "minimum_separation");
    REFUSED(kind, TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN, "samples nothing");
    REFUSED(kind, (Tacit__MechanismKind)-1, "kind");
    REFUSED(unit, TACIT__UNIT__UNIT_UNSPECIFIED, "unit");
    REFUSED(unit, (Tacit__Unit)4, "unit");
    REFUSED(neighbours, TACIT__NEIGHBOURS__NEIGHBOURS_UNSPECIFIED, "neighbours");
    REFUSED(neighbours, (Tacit__Neighbours)3, "neighbours");
    const double reals[] = {0, -1, NAN, INFINITY, -INFINITY, 1e-300, 1e300};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        REFUSED(clip_norm, reals[i], "clip_norm");
        REFUSED(divisor, reals[i], "divisor");
    }
    REFUSED(b, 0, "mechanism.b");
    REFUSED(b, TACIT_B_MIN - 1, "mechanism.b");
    REFUSED(b, TACIT_B_MAX + 1, "mechanism.b");
    REFUSED(b, UINT64_MAX, "mechanism.b");
    REFUSED(q_num, 0, "q_num");
    REFUSED(q_num, TACIT_Q_ONE + 1, "q_num");
    REFUSED(steps, 0, "steps");
    REFUSED(steps, TACIT_STEPS_MAX + 1, "steps");
    REFUSED(unit_examples, 0, "unit_examples");
    REFUSED(unit_examples, UINT32_MAX, "unit_examples");
    REFUSED(unit, TACIT__UNIT__UNIT_DEVICE, "device unit");
    /* none with noise parameters, and noise parameters with none */
    REFUSED(kind, TACIT__MECHANISM_KIND__MECHANISM_NONE, "none");
}

/* Each of these, alone, is not what a whole device releases once. */
static void refuse_device_unit(Tacit__Mechanism good)
{
    tacit_mechanism out;
    tacit_error err;
    for (int i = 0; i < 5; i++) {
        Tacit__Mechanism m = good;
        m.q_num -= i == 0;
        m.steps += i == 1;
        m.divisor *= i == 2 ? 2 : 1;
        if (i == 3)
            m.neighbours = TACIT__NEIGHBOURS__NEIGHBOURS_REPLACE_ONE;
        if (i == 4)
            m.b = TACIT_B_WHOLE_MAX + 1;
        assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_BAD_INPUT);
    }
}

static void test_none_and_device_unit(void **state)
{
    (void)state;
    Tacit__Mechanism m = good_message();
    tacit_mechanism out;
    tacit_event event;
    tacit_error err;
    m.unit = TACIT__UNIT__UNIT_DEVICE;
    m.q_num = TACIT_Q_ONE;
    m.steps = 1;
    m.divisor = 1;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
    assert_int_equal(tacit_event_from_mechanism(&event, &out, 3, &err), TACIT_OK);
    assert_true(event.q == 1 && event.count == 3);
    refuse_device_unit(m);
    m.kind = TACIT__MECHANISM_KIND__MECHANISM_NONE;
    m.b = 0;
    m.clip_norm = 0;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
    refuse_device_unit(m);
    m = good_message();
    m.kind = TACIT__MECHANISM_KIND__MECHANISM_NONE;
    m.b = 0;
    m.clip_norm = 0;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
    assert_int_equal(tacit_event_from_mechanism(&event, &out, 1, &err), TACIT_REFUSED);
}

static void test_tree(void **state)
{
    (void)state;
    Tacit__Mechanism good = good_message();
    tacit_mechanism out;
    tacit_event event;
    tacit_error err;
    good.kind = TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN;
    good.q_num = TACIT_Q_ONE;
    good.steps = 8;
    good.minimum_separation = 4;
    assert_int_equal(tacit_mechanism_from_message(&out, &good, &err), TACIT_OK);
    assert_string_equal(tacit_mechanism_kind_name(out.kind), "tree_gaussian");
    assert_int_equal(tacit_event_from_mechanism(&event, &out, 3, &err), TACIT_OK);
    /* Steps 1 and 5 of 8: five nodes of one of them, one of both. */
    assert_true(event.q == 1 && event.count == 3 * 9);
    for (int i = 0; i < 6; i++) {
        Tacit__Mechanism m = good;
        m.q_num -= i == 0;
        m.minimum_separation = i == 1 ? 0 : i == 2 ? 9 : 4;
        m.steps = i == 3 ? TACIT_TREE_STEPS_MAX + 1 : 8;
        if (i == 4)
            m.unit = TACIT__UNIT__UNIT_DEVICE;
        if (i == 5)
            m.neighbours = TACIT__NEIGHBOURS__NEIGHBOURS_REPLACE_ONE;
        assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_BAD_INPUT);
    }
}

static void test_event_from_mechanism(void **state)
{
    (void)state;
    Tacit__Mechanism m = good_message();
    tacit_mechanism out;
    tacit_event event;
    tacit_error err;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
    assert_int_equal(tacit_event_from_mechanism(&event, &out, 5, &err), TACIT_OK);
    assert_true(event.sigma == tacit_noise_multiplier(77163));
    assert_true(event.q == 343597383 / 4294967296.0);
    assert_int_equal(event.count, 100);
    assert_int_equal(tacit_event_from_mechanism(&event, &out, UINT64_MAX, &err), TACIT_BAD_INPUT);
}

/* sigma in grid units is b / sqrt(2 ln 2): the accountant is told at most that, and hardly less. */
static void test_noise_multiplier_is_rounded_down(void **state)
{
    (void)state;
    for (uint64_t b = TACIT_B_MIN; b <= TACIT_B_MAX; b = b * 5 / 3 + 1) {
        long double exact = (long double)b / sqrtl(2 * logl(2)) / 65536;
        long double found = tacit_noise_multiplier(b);
        assert_true(found <= exact && found >= exact * (1 - 1e-15L));
    }
    assert_true(tacit_noise_multiplier(0) == 0);
}

static void test_smallest_b_for_a_multiplier(void **state)
{
    (void)state;
    tacit_error err;
    uint64_t b;
    for (double z = 0.0101; z < 27800; z *= 1.37) {
        assert_int_equal(tacit_b_for_noise_multiplier(&b, z, &err), TACIT_OK);
        assert_true(tacit_noise_multiplier(b) >= z && tacit_noise_multiplier(b - 1) < z);
    }
    for (uint64_t k = TACIT_B_MIN; k < TACIT_B_MIN + 1000; k++) {
        assert_int_equal(tacit_b_for_noise_multiplier(&b, tacit_noise_multiplier(k), &err),
                         TACIT_OK);
        assert_true(b == k);
    }
    assert_int_equal(tacit_b_for_noise_multiplier(&b, 1, &err), TACIT_OK);
    assert_true(b == 77163);
    assert_int_equal(tacit_b_for_noise_multiplier(&b, 1e-6, &err), TACIT_OK);
    assert_true(b == TACIT_B_MIN);
    const double bad[] = {0, -1, NAN, INFINITY, 27831};
    for (int i = 0; i < 5; i++)
        assert_int_equal(tacit_b_for_noise_multiplier(&b, bad[i], &err), TACIT_BAD_INPUT);
}

static void test_largest_q_num_for_a_rate(void **state)
{
    (void)state;
    tacit_error err;
    uint64_t q;
    assert_int_equal(tacit_q_num_for_rate(&q, 0.08, &err), TACIT_OK);
    assert_true(tacit_sampling_rate(q) <= 0.08 && tacit_sampling_rate(q + 1) > 0.08);
    assert_int_equal(tacit_q_num_for_rate(&q, 1, &err), TACIT_OK);
    assert_true(q == TACIT_Q_ONE);
    const double bad[] = {0, -0.1, 1.0001, NAN, 1e-12};
    for (int i = 0; i < 5; i++)
        assert_int_equal(tacit_q_num_for_rate(&q, bad[i], &err), TACIT_BAD_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_is_carried),
        cmocka_unit_test(test_every_field_is_checked),
        cmocka_unit_test(test_none_and_device_unit),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_event_from_mechanism),
        cmocka_unit_test(test_noise_multiplier_is_rounded_down),
        cmocka_unit_test(test_smallest_b_for_a_multiplier),
        cmocka_unit_test(test_largest_q_num_for_a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
