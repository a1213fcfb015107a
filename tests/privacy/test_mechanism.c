#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "privacy/event.h"
#include "privacy/mechanism.h"
#include "privacy/tree_noise.h"

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

/* A node adds up steps, so that all of them must have one grid. */
static void test_a_tree_has_one_clip_norm(void **state)
{
    (void)state;
    Tacit__Mechanism m = good_message();
    tacit_mechanism out;
    tacit_error err;
    m.q_num = TACIT_Q_ONE;
    m.quantile_b = 400000;
    m.quantile_target = 0.5;
    m.clip_rate = 0.2;
    m.clip_min = m.clip_norm / 2;
    m.clip_max = m.clip_norm * 2;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
    m.kind = TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN;
    m.minimum_separation = 2;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "one clip norm"));
    m.quantile_b = 0;
    m.quantile_target = m.clip_rate = m.clip_min = m.clip_max = 0;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
}

/* What nobody may run is priced all the same where the price says something, and never below it. */
static void test_prices_need_no_plan(void **state)
{
    (void)state;
    tacit_mechanism m;
    tacit_event event;
    tacit_error err;
    Tacit__Mechanism good = good_message();
    assert_int_equal(tacit_mechanism_from_message(&m, &good, &err), TACIT_OK);
    m.unit = TACIT_UNIT_DEVICE; /* of several steps, sampled: not a mechanism */
    assert_int_equal(tacit_event_from_mechanism(&event, &m, 2, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_event_price(&event, &m, 2, &err), TACIT_OK);
    assert_true(event.count == 2 * m.steps && event.q == tacit_sampling_rate(m.q_num));
    m.unit = TACIT_UNIT_RECORD;
    m.kind = TACIT_MECHANISM_TREE_GAUSSIAN;
    m.minimum_separation = 1;
    assert_true(m.q_num < TACIT_Q_ONE);
    assert_int_equal(tacit_event_price(&event, &m, 2, &err), TACIT_BAD_INPUT);
    m.q_num = TACIT_Q_ONE;
    assert_int_equal(tacit_event_price(&event, &m, 2, &err), TACIT_OK);
    assert_true(event.q == 1 && event.count == 2 * tacit_tree_runs(m.steps, 1));
    m.kind = TACIT_MECHANISM_NONE;
    m.b = 0;
    assert_int_equal(tacit_event_price(&event, &m, 2, &err), TACIT_BAD_INPUT);
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

/* --- A clip norm that adapts. --- */

static Tacit__Mechanism adaptive_message(void)
{
    Tacit__Mechanism m = good_message();
    m.quantile_b = 500000;
    m.quantile_target = 0.5;
    m.clip_rate = 0.2;
    m.clip_min = 0.1;
    m.clip_max = 3;
    return m;
}

static void test_fields_of_the_quantile_are_carried(void **state)
{
    (void)state;
    Tacit__Mechanism m = adaptive_message();
    tacit_mechanism out, again;
    tacit_error err;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
    assert_true(out.quantile_b == 500000 && out.quantile_target == 0.5 && out.clip_rate == 0.2);
    assert_true(out.clip_min == 0.1 && out.clip_max == 3);
    for (int field = 0; field < 5; field++) {
        again = out;
        assert_true(tacit_mechanism_equal(&out, &again));
        again.quantile_b += field == 0;
        double *real[] = {&again.quantile_target, &again.clip_rate, &again.clip_min,
                          &again.clip_max};
        if (field)
            *real[field - 1] *= 1.01;
        assert_false(tacit_mechanism_equal(&out, &again));
    }
}

/* A fixed clip norm is the bytes that it was before there were others: encoded by hand. */
static void test_a_fixed_clip_has_the_same_bytes(void **state)
{
    (void)state;
    static const uint8_t expected[] = {
        0x08, 0x02, 0x10, 0x01, 0x18, 0x01,                         /* kind, unit, neighbours */
        0x21, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe0, 0x3f,       /* clip_norm 0.5 */
        0x28, 0xeb, 0xda, 0x04, 0x30, 0xc7, 0xc2, 0xeb, 0xa3, 0x01, /* b, q_num */
        0x38, 0x14, 0x41, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x48, 0x40, /* steps, divisor */
        0x48, 0x08,                                                       /* unit_examples */
    };
    uint8_t found[sizeof expected + 1];
    Tacit__Mechanism m = good_message();
    const tacit_clip_request none = {0};
    tacit_error err;
    assert_int_equal(tacit_mechanism_set_noise(&m, 0.5, 1, &none, &err), TACIT_OK);
    assert_int_equal(tacit__mechanism__get_packed_size(&m), sizeof expected);
    tacit__mechanism__pack(&m, found);
    assert_memory_equal(found, expected, sizeof expected);
}

static void assert_refused(const Tacit__Mechanism *m, const char *field)
{
    tacit_mechanism out;
    tacit_error err = {0};
    assert_int_equal(tacit_mechanism_from_message(&out, m, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, field));
}

#define ADAPTIVE_REFUSED(field, bad)                                                               \
    do {                                                                                           \
        Tacit__Mechanism m = adaptive_message();                                                   \
        m.field = (bad);                                                                           \
        assert_refused(&m, "mechanism." #field);                                                   \
    } while (0)

static void test_fields_of_the_quantile_are_checked(void **state)
{
    (void)state;
    const double reals[] = {-1, NAN, INFINITY, -INFINITY, 1e-300, 1e300};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        ADAPTIVE_REFUSED(quantile_target, reals[i]);
        ADAPTIVE_REFUSED(clip_rate, reals[i]);
        ADAPTIVE_REFUSED(clip_min, reals[i]);
        ADAPTIVE_REFUSED(clip_max, reals[i]);
    }
    ADAPTIVE_REFUSED(quantile_b, TACIT_B_MIN - 1);
    ADAPTIVE_REFUSED(quantile_b, TACIT_B_MAX + 1);
    ADAPTIVE_REFUSED(quantile_target, 1);
    ADAPTIVE_REFUSED(clip_min, 0.500001); /* above clip_norm */
    ADAPTIVE_REFUSED(clip_max, 0.499999); /* below it */
    Tacit__Mechanism still = adaptive_message(), whole = adaptive_message();
    still.clip_min = still.clip_max = 0.5;
    assert_refused(&still, "mechanism.clip_max");
    whole.unit = TACIT__UNIT__UNIT_DEVICE;
    whole.q_num = TACIT_Q_ONE;
    whole.steps = 1;
    whole.divisor = 1;
    assert_refused(&whole, "device unit");
}

/* All five or none: of the 32 sets of fields, two are a mechanism. With none, only the empty set.
 */
static void test_half_set_fields_are_refused(void **state)
{
    (void)state;
    for (unsigned set = 0; set < 32; set++)
        for (int none = 0; none < 2; none++) {
            Tacit__Mechanism m = adaptive_message();
            m.quantile_b *= set & 1;
            m.quantile_target *= set >> 1 & 1;
            m.clip_rate *= set >> 2 & 1;
            m.clip_min *= set >> 3 & 1;
            m.clip_max *= set >> 4 & 1;
            if (none) {
                m.kind = TACIT__MECHANISM_KIND__MECHANISM_NONE;
                m.b = 0;
                m.clip_norm = 0;
            }
            tacit_mechanism out;
            tacit_error err;
            bool good = set == 0 || (set == 31 && !none);
            assert_int_equal(tacit_mechanism_from_message(&out, &m, &err),
                             good ? TACIT_OK : TACIT_BAD_INPUT);
        }
}

/* (z^-2 + z_count^-2)^(-1/2), at most that and hardly less; the event is of that. */
static void test_step_noise_multiplier_is_rounded_down(void **state)
{
    (void)state;
    for (uint64_t b = TACIT_B_MIN; b <= TACIT_B_MAX; b = b * 7 / 3 + 1)
        for (uint64_t c = TACIT_B_MIN; c <= TACIT_B_MAX; c = c * 9 / 4 + 1) {
            long double unit = 65536 * sqrtl(2 * logl(2)), z = b / unit, w = c / unit;
            long double exact = 1 / sqrtl(1 / (z * z) + 1 / (w * w));
            long double found = tacit_step_noise_multiplier(b, c);
            assert_true(found <= exact && found >= exact * (1 - 4e-15L));
        }
    assert_true(tacit_step_noise_multiplier(77163, 0) == tacit_noise_multiplier(77163));
    assert_true(tacit_step_noise_multiplier(0, 0) == 0);
    Tacit__Mechanism m = adaptive_message();
    tacit_mechanism out;
    tacit_event event;
    tacit_error err;
    assert_int_equal(tacit_mechanism_from_message(&out, &m, &err), TACIT_OK);
    assert_int_equal(tacit_event_from_mechanism(&event, &out, 1, &err), TACIT_OK);
    assert_true(event.sigma == tacit_step_noise_multiplier(77163, 500000));
    assert_true(tacit_step_noise_values(1000, 0) == 1000);
    assert_true(tacit_step_noise_values(1000, 500000) == 1001);
}

static void test_smallest_b_beside_a_count(void **state)
{
    (void)state;
    tacit_error err;
    uint64_t b;
    for (double z = 0.05; z < 100; z *= 1.9)
        for (double ratio = 1.0001; ratio < 200; ratio *= 1.7) {
            uint64_t count;
            assert_int_equal(tacit_b_for_noise_multiplier(&count, z * ratio, &err), TACIT_OK);
            assert_int_equal(tacit_b_beside_count(&b, count, z, &err), TACIT_OK);
            assert_true(tacit_step_noise_multiplier(b, count) >= z);
            assert_true(b == TACIT_B_MIN || tacit_step_noise_multiplier(b - 1, count) < z);
        }
    assert_int_equal(tacit_b_beside_count(&b, 0, 1, &err), TACIT_OK);
    assert_true(b == 77163);
    assert_int_equal(tacit_b_beside_count(&b, 77163, 1.1, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_b_beside_count(&b, 77163, NAN, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_b_beside_count(&b, TACIT_B_MAX, 27830, &err), TACIT_BAD_INPUT);
}

static void test_noise_as_it_is_asked_for(void **state)
{
    (void)state;
    tacit_error err;
    Tacit__Mechanism m = good_message();
    const tacit_clip_request none = {0}, plain = {.quantile = 0.5},
                             full = {.quantile = 0.7,
                                     .count_noise = 3,
                                     .rate = 0.1,
                                     .min = 0.25,
                                     .max = 4};
    assert_int_equal(tacit_mechanism_set_noise(&m, 2, 1, &none, &err), TACIT_OK);
    assert_true(m.b == 77163 && m.clip_norm == 2 && m.quantile_b == 0 && m.clip_max == 0);
    assert_int_equal(tacit_mechanism_set_noise(&m, 2, 1, &plain, &err), TACIT_OK);
    assert_true(m.quantile_b == 771628 && m.quantile_target == 0.5 && m.clip_rate == 0.2);
    assert_true(m.clip_min == 0.2 && m.clip_max == 20);
    assert_true(m.b == 77552); /* 77163 / sqrt(1 - 1 / 100) */
    assert_int_equal(tacit_mechanism_set_noise(&m, 2, 1, &full, &err), TACIT_OK);
    assert_true(fabs(tacit_noise_multiplier(m.quantile_b) - 3) < 1e-5);
    assert_true(m.quantile_target == 0.7 && m.clip_rate == 0.1 && m.clip_min == 0.25);
    assert_true(tacit_step_noise_multiplier(m.b, m.quantile_b) >= 1);
    const tacit_clip_request halves[] = {
        {.count_noise = 3}, {.rate = 0.1}, {.min = 0.25}, {.max = 4}};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(tacit_mechanism_set_noise(&m, 2, 1, &halves[i], &err), TACIT_USAGE);
    const tacit_clip_request quiet = {.quantile = 0.5, .count_noise = 0.9};
    assert_int_equal(tacit_mechanism_set_noise(&m, 2, 1, &quiet, &err), TACIT_BAD_INPUT);
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
        cmocka_unit_test(test_a_tree_has_one_clip_norm),
        cmocka_unit_test(test_prices_need_no_plan),
        cmocka_unit_test(test_event_from_mechanism),
        cmocka_unit_test(test_a_fixed_clip_has_the_same_bytes),
        cmocka_unit_test(test_fields_of_the_quantile_are_carried),
        cmocka_unit_test(test_fields_of_the_quantile_are_checked),
        cmocka_unit_test(test_half_set_fields_are_refused),
        cmocka_unit_test(test_step_noise_multiplier_is_rounded_down),
        cmocka_unit_test(test_smallest_b_beside_a_count),
        cmocka_unit_test(test_noise_as_it_is_asked_for),
        cmocka_unit_test(test_noise_multiplier_is_rounded_down),
        cmocka_unit_test(test_smallest_b_for_a_multiplier),
        cmocka_unit_test(test_largest_q_num_for_a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
