/* What of a tone is left on a grid that is too slow for it, and what must not be touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/secret.h"
#include "engine/sensor_lowpass.h"

#include <stdint.h>

#include "reference_sensor.h"

enum { LENGTH = 4, PATCHES = 64, SAMPLES = LENGTH * PATCHES, EDGE = SENSOR_LOWPASS_STEPS };
#define RATE 10.0

typedef struct fixture {
    uint8_t *bytes;
    gguf_file *file;
    tacit_sensor *s;
} fixture;

static fixture open_with_gap(bool lowpass, double max_gap)
{
    const sensor_channel channel = {"speed", "", 0, 1, max_gap};
    fixture f = {0};
    size_t size;
    tacit_error err = {0};
    const sensor_spec spec = {.channel = &channel,
                              .channels = 1,
                              .rate = RATE,
                              .patch_length = LENGTH,
                              .max_patches = PATCHES,
                              .width = 8,
                              .out_width = 8,
                              .lowpass = lowpass,
                              .type = TACIT_TYPE_F32};
    gguf_writer *w = gguf_writer_new();
    sensor_put_keys(w, &spec);
    sensor_put_tensors(w, &spec);
    if (gguf_write_memory(w, &f.bytes, &size, &err) != TACIT_OK ||
        gguf_open_memory(&f.file, f.bytes, size, "sensor", &err) != TACIT_OK ||
        sensor_load(&f.s, f.file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    return f;
}

static fixture open_sensor(bool lowpass)
{
    return open_with_gap(lowpass, 0.3);
}

static void close_sensor(fixture *f)
{
    sensor_free(f->s);
    gguf_close(f->file);
    free(f->bytes);
}

/* A file of readings of `value`; `keeps` says which are there. */
typedef struct readings {
    double rate;
    double (*value)(double t, double hertz);
    double hertz;
    double jitter; /* of a step */
    bool (*keeps)(size_t i);
} readings;

static double tone(double t, double hertz)
{
    return sin(2 * M_PI * hertz * t + 0.7);
}

static double level(double t, double hertz)
{
    (void)t;
    return hertz;
}

static sensor_window prepare(const fixture *f, const readings *r)
{
    size_t n = (size_t)((SAMPLES - 1) / RATE * r->rate + 1e-9) + 1, used;
    char *text = malloc(100 * (n + 1));
    sensor_window w;
    tacit_error err = {0};
    used = (size_t)sprintf(text, "t,speed\n");
    for (size_t i = 0; i < n; i++) {
        double shift = i > 0 ? r->jitter * (double)reference_uniform(7, (uint32_t)i) : 0;
        double t = ((double)i + shift) / r->rate;
        used += (size_t)sprintf(text + used, "%.17g,", t);
        if (!r->keeps || r->keeps(i))
            used += (size_t)sprintf(text + used, "%.17g", r->value(t, r->hertz));
        used += (size_t)sprintf(text + used, "\n");
    }
    if (sensor_prepare(&w, f->s, text, used, "w.csv", &err) != TACIT_OK)
        fail_msg("%s", err.message);
    free(text);
    return w;
}

static float value_at(const sensor_window *w, size_t k)
{
    return w->values[k / LENGTH * 2 * LENGTH + k % LENGTH];
}

static bool is_there(const sensor_window *w, size_t k)
{
    return w->values[(k / LENGTH * 2 + 1) * LENGTH + k % LENGTH] == 1;
}

/* The largest difference from `gain` times the tone, away from the ends. */
static double worst(const sensor_window *w, double hertz, double gain)
{
    double most = 0;
    for (size_t k = EDGE; k < SAMPLES - EDGE; k++) {
        assert_true(is_there(w, k));
        most = fmax(most, fabs((double)value_at(w, k) - gain * tone((double)k / RATE, hertz)));
    }
    return most;
}

static void tones_above_half_the_rate_vanish(void **state)
{
    const double rates[] = {21, 40, 50, 173}, bad[] = {5.05, 5.9, 6.6, 8, 9.99};
    (void)state;
    fixture on = open_sensor(true), off = open_sensor(false);
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 5; k++) {
            readings r = {.rate = rates[i], .value = tone, .hertz = bad[k]};
            sensor_window filtered = prepare(&on, &r), raw = prepare(&off, &r);
            double left = worst(&filtered, r.hertz, 0), was = worst(&raw, r.hertz, 0);
            if (!(left < 2e-3) || !(was > 0.5))
                fail_msg("%g Hz at %g a second: %.2g left of %.2g", r.hertz, r.rate, left, was);
            tacit_wipe_free(filtered.values);
            tacit_wipe_free(raw.values);
        }
    close_sensor(&on);
    close_sensor(&off);
}

/* Jitter makes readings worth what their times say, so a little is lost there. */
static void tones_below_stay(void **state)
{
    const double rates[] = {11, 25, 40, 173}, good[] = {0.1, 1, 2.5, 3.8};
    (void)state;
    fixture on = open_sensor(true);
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 8; k++) {
            bool jitters = k >= 4;
            readings r = {
                .rate = rates[i], .value = tone, .hertz = good[k % 4], .jitter = jitters ? 0.2 : 0};
            if (jitters && r.rate < 40)
                continue;
            sensor_window w = prepare(&on, &r);
            double off = worst(&w, r.hertz, 1);
            if (!(off < (jitters ? 0.05 : 2e-3)))
                fail_msg("%g Hz at %g a second: off by %.2g", r.hertz, r.rate, off);
            tacit_wipe_free(w.values);
        }
    close_sensor(&on);
}

static bool in_pieces(size_t i)
{
    return i % 100 < 60 && i % 7 != 3;
}

/* What is missing stays so, and a level passes whatever is missing, up to the ends. */
static void gaps_stay_and_levels_pass(void **state)
{
    (void)state;
    fixture on = open_sensor(true), off = open_sensor(false);
    size_t missing = 0;
    readings r = {.rate = 40, .value = level, .hertz = 17.25, .jitter = 0.3, .keeps = in_pieces};
    sensor_window a = prepare(&on, &r), b = prepare(&off, &r);
    for (size_t k = 0; k < SAMPLES; k++) {
        assert_true(is_there(&a, k) == is_there(&b, k));
        missing += !is_there(&a, k);
        if (is_there(&a, k))
            assert_true(fabs((double)value_at(&a, k) - 17.25) < 1e-5);
        else
            assert_true(value_at(&a, k) == 0);
    }
    assert_true(missing > 30 && missing < SAMPLES / 2);
    tacit_wipe_free(a.values);
    tacit_wipe_free(b.values);
    close_sensor(&on);
    close_sensor(&off);
}

/* At the grid's rate, however the clock trembles, and below it nothing changes by a bit. */
static void slow_readings_are_left_alone(void **state)
{
    const struct {
        double rate, jitter;
    } slow[] = {{RATE, 0}, {RATE, 0.8}, {RATE * 1.015, 0.1}, {RATE * 0.99, 0}, {7, 0.5}, {4, 0}};
    (void)state;
    fixture on = open_sensor(true), off = open_sensor(false);
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++) {
        readings r = {slow[i].rate, tone, 4.7, slow[i].jitter, NULL};
        sensor_window a = prepare(&on, &r), b = prepare(&off, &r);
        assert_int_equal(a.patches, b.patches);
        assert_memory_equal(a.values, b.values, a.patches * 2 * LENGTH * sizeof *a.values);
        tacit_wipe_free(a.values);
        tacit_wipe_free(b.values);
    }
    close_sensor(&on);
    close_sensor(&off);
}

static uint32_t pattern;

/* Bursts and pauses of 1 to 64 readings. */
static bool in_bursts(size_t i)
{
    uint32_t shift = pattern % 7;
    return reference_uniform(pattern, (uint32_t)(i >> shift)) < 0.1f;
}

/* Where pauses of any length are bridged, no mean leaves the range of values by much. */
static void bursts_stay_in_bounds(void **state)
{
    (void)state;
    fixture on = open_with_gap(true, 100), off = open_with_gap(false, 100);
    size_t filtered = 0;
    for (pattern = 0; pattern < 70; pattern++) {
        readings r = {.rate = 90, .value = tone, .hertz = 6.3, .jitter = 0.9, .keeps = in_bursts};
        sensor_window a = prepare(&on, &r), b = prepare(&off, &r);
        for (size_t k = 0; k < SAMPLES; k++) {
            assert_true(is_there(&a, k) == is_there(&b, k));
            filtered += value_at(&a, k) != value_at(&b, k);
            if (!(fabs((double)value_at(&a, k)) <= 2.5))
                fail_msg("pattern %u: %g at %zu", pattern, (double)value_at(&a, k), k);
        }
        tacit_wipe_free(a.values);
        tacit_wipe_free(b.values);
    }
    assert_true(filtered > 1000);
    close_sensor(&on);
    close_sensor(&off);
}

static bool before_and_after(size_t i)
{
    return i <= 1000 || i >= 1100;
}

static double spike(double t, double hertz)
{
    return fabs(t - hertz) < 1e-9 ? 1 : 0;
}

/* A reading at the edge of a gap stands for half of its way into the gap, and for one step of the
 * grid at most. Ten readings are a step; the weights of those before sum to half of 1 / (2 CUTOFF)
 * steps, so that at its own time the last one, with 1.1 of 2, has nearly half of the mean. By the
 * ten steps of the gap it would have nine tenths. */
static void gaps_do_not_enlarge_a_reading(void **state)
{
    (void)state;
    fixture f = open_with_gap(true, 3);
    const readings r = {.rate = 10 * RATE, .value = spike, .hertz = 10, .keeps = before_and_after};
    sensor_window w = prepare(&f, &r);
    assert_true(is_there(&w, 100) && is_there(&w, 105));
    assert_true(value_at(&w, 100) > 0.4f && value_at(&w, 100) < 0.6f);
    tacit_wipe_free(w.values);
    close_sensor(&f);
}

static bool fast_then_slow(size_t i)
{
    return i < 400 || (i > 440 && i % 6 == 0);
}

/* Each run by itself: nothing leaks over a gap, and slow readings behind fast ones are left alone.
 */
static void runs_are_apart(void **state)
{
    (void)state;
    fixture on = open_sensor(true), off = open_sensor(false);
    readings r = {.rate = 40, .value = tone, .hertz = 6, .keeps = fast_then_slow};
    sensor_window a = prepare(&on, &r), b = prepare(&off, &r);
    for (size_t k = EDGE; k + EDGE < 100; k++)
        assert_true(fabs((double)value_at(&a, k)) < 2e-3);
    for (size_t k = 112; k < SAMPLES; k++)
        assert_true(value_at(&a, k) == value_at(&b, k));
    tacit_wipe_free(a.values);
    tacit_wipe_free(b.values);
    close_sensor(&on);
    close_sensor(&off);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tones_above_half_the_rate_vanish), cmocka_unit_test(tones_below_stay),
        cmocka_unit_test(gaps_stay_and_levels_pass),        cmocka_unit_test(bursts_stay_in_bounds),
        cmocka_unit_test(slow_readings_are_left_alone),     cmocka_unit_test(runs_are_apart),
        cmocka_unit_test(gaps_do_not_enlarge_a_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
