/* Signals by measurement: beats and breaths are counted in the samples, motion is held against
 * kinematics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sensor_csv.h"
#include "scenes/scene_signal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 60

static double value[SCENE_SIGNAL_MAX];

static int channel_of(const char *name)
{
    for (int c = 0; c < SCENE_CHANNELS; c++)
        if (strcmp(scene_channels[c].name, name) == 0)
            return c;
    fail_msg("no channel %s", name);
    return -1;
}

static scene_signal any_signal(scene_kind kind, uint64_t seed)
{
    scene_prng prng = scene_prng_make(seed, "test-signal", 0);
    scene_signal s = {.kind = kind, .rate = 72, .breaths = 15, .speed = 90};
    s.detail = scene_prng_u64(&prng);
    s.motion = SCENE_MOTION_CRUISING;
    scene_draw_probe(&s.probe, kind, (scene_split)(seed % 3), &prng);
    s.probe.silent = -1;
    s.probe.noise = 0.01;
    s.probe.sharp = 1;
    return s;
}

/* Instants of local maxima above `level`. */
static size_t find_peaks(size_t n, double hertz, double level, double *at)
{
    size_t count = 0;
    for (size_t i = 1; i + 1 < n; i++)
        if (value[i] > level && value[i] >= value[i - 1] && value[i] > value[i + 1])
            at[count++] = (double)i / hertz;
    return count;
}

static size_t find_beats(const scene_signal *s, const char *channel, double *at)
{
    size_t n = scene_signal_render(s, channel_of(channel), value);
    return find_peaks(n, s->probe.hertz, 0.6 * s->probe.gain, at);
}

/* Deviation of the distances over their mean. */
static double variation(const double *at, size_t n)
{
    double mean = (at[n - 1] - at[0]) / (double)(n - 1), sum = 0;
    for (size_t i = 1; i < n; i++)
        sum += pow(at[i] - at[i - 1] - mean, 2);
    return sqrt(sum / (double)(n - 1)) / mean;
}

static void pulse_has_its_rate_and_rhythm(void **state)
{
    static const char *const channels[] = {"ecg", "pleth"};
    double at[SCENE_SIGNAL_MAX];
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        static const int rates[] = {40, 55, 72, 90, 120};
        scene_signal s = any_signal(SCENE_MONITOR, seed);
        const char *channel = channels[seed % 2];
        s.rate = rates[seed % 5];
        /* The pulse wave keeps one maximum a beat; the narrow R may fall between two samples. */
        s.probe.hertz = seed % 2 ? s.probe.hertz : 50;
        size_t n = find_beats(&s, channel, at);
        assert_in_range(n, s.rate * SCENE_SIGNAL_SECONDS / 60 - 1,
                        s.rate * SCENE_SIGNAL_SECONDS / 60 + 1);
        assert_true(fabs(60 / ((at[n - 1] - at[0]) / (double)(n - 1)) - s.rate) < 0.05 * s.rate);
        assert_true(variation(at, n) < 0.07);
        s.rhythm = SCENE_RHYTHM_IRREGULAR;
        s.rate = s.rate < 72 ? 72 : s.rate; /* enough beats to judge by */
        s.probe.hertz = 50;
        n = find_beats(&s, "ecg", at);
        assert_true(n >= 3 && variation(at, n) > 0.1);
        s.rhythm = SCENE_RHYTHM_ABSENT;
        assert_int_equal(find_beats(&s, channel, at), 0);
    }
}

static void breathing_has_its_rate(void **state)
{
    double at[SCENE_SIGNAL_MAX];
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        scene_signal s = any_signal(SCENE_MONITOR, seed);
        s.breaths = 24 + (int)(seed % 3) * 6;
        s.probe.noise = 0;
        size_t n = scene_signal_render(&s, channel_of("resp"), value);
        n = find_peaks(n, s.probe.hertz, 0.5 * s.probe.gain, at);
        assert_true(n >= 2);
        assert_true(fabs((at[n - 1] - at[0]) / (double)(n - 1) - 60.0 / s.breaths) < 0.1);
        s.breaths = 0;
        n = scene_signal_render(&s, channel_of("resp"), value);
        assert_int_equal(find_peaks(n, s.probe.hertz, 0.1, at), 0);
    }
}

/* The acceleration integrates to the change of speed; the last speed is the scene's. */
static void motion_obeys_kinematics(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        scene_signal s = any_signal(SCENE_CLUSTER, seed);
        s.motion = (scene_motion)(seed / 3 % SCENE_MOTIONS);
        s.speed = s.motion == SCENE_MOTION_STANDING ? 0 : 90;
        s.probe.noise = 0;
        size_t n = scene_signal_render(&s, channel_of("speed"), value);
        double first = value[0], last = value[n - 1], sum = 0,
               seconds = (double)(n - 1) / s.probe.hertz;
        assert_true(fabs(last - s.speed) < 2.5);
        scene_signal_render(&s, channel_of("accel"), value);
        for (size_t i = 0; i + 1 < n; i++)
            sum += 0.5 * (value[i] + value[i + 1]) / s.probe.hertz;
        assert_true(fabs(3.6 * sum - (last - first)) < 0.5);
        double mean = (last - first) / 3.6 / seconds;
        scene_signal_render(&s, channel_of("brake"), value);
        if (s.motion == SCENE_MOTION_ACCELERATING)
            assert_true(mean > 0.7 && value[n / 2] < 0.1);
        else if (s.motion == SCENE_MOTION_BRAKING)
            assert_true(mean < -0.7 && value[n / 2] > 5);
        else
            assert_true(fabs(mean) < 0.1);
    }
}

static void steering_has_its_side(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        static const double sign[] = {0, 1, -1};
        scene_signal s = any_signal(SCENE_CLUSTER, seed);
        s.steering = (scene_steering)(seed / 3 % 3);
        size_t n = scene_signal_render(&s, channel_of("steering"), value);
        double last = value[n - 1];
        assert_true(s.steering ? last * sign[s.steering] > 20 : fabs(last) < 5);
    }
}

/* Header and rows, read back with sscanf: what was rendered, to the printed digits. */
static void csv_holds_what_is_rendered(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        scene_signal s = any_signal(seed % 2 ? SCENE_MONITOR : SCENE_CLUSTER, seed);
        tacit_buffer a = {0}, b = {0};
        tacit_error err;
        s.probe.silent = seed % 2 ? channel_of("ecg") : channel_of("rpm");
        assert_int_equal(scene_signal_csv(&s, &a, &err), TACIT_OK);
        assert_int_equal(scene_signal_csv(&s, &b, &err), TACIT_OK);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        assert_int_equal(tacit_buffer_append(&a, "", 1), TACIT_OK);
        const char *header = seed % 2 ? "time,pleth,resp\n" : "time,speed,brake,accel,steering\n";
        assert_int_equal(strncmp((char *)a.data, header, strlen(header)), 0);
        const char *line = (char *)a.data + strlen(header);
        size_t n = scene_signal_render(&s, channel_of(seed % 2 ? "pleth" : "speed"), value);
        double before = -1;
        for (size_t i = 0; i < n; i++) {
            double time, first;
            assert_int_equal(sscanf(line, "%lf,%lf", &time, &first), 2);
            assert_true(time > before && fabs(first - value[i]) < 6e-4);
            before = time;
            line = strchr(line, '\n') + 1;
        }
        assert_int_equal(*line, '\0');
        tacit_buffer_free(&a);
        tacit_buffer_free(&b);
    }
}

/* The engine's reader takes it: times and values are what a window is made from. */
static void csv_is_what_the_engine_reads(void **state)
{
    sensor_channel channel[SCENE_CHANNELS] = {0};
    (void)state;
    for (int c = 0; c < SCENE_CHANNELS; c++)
        snprintf(channel[c].name, sizeof channel[c].name, "%s", scene_channels[c].name);
    for (uint64_t seed = 0; seed < 20; seed++) {
        scene_signal s = any_signal(seed % 2 ? SCENE_MONITOR : SCENE_CLUSTER, seed);
        tacit_buffer b = {0};
        sensor_series series;
        tacit_error err;
        assert_int_equal(scene_signal_csv(&s, &b, &err), TACIT_OK);
        if (sensor_csv_read(&series, channel, SCENE_CHANNELS, b.data, b.size, "scene.csv", &err) !=
            TACIT_OK)
            fail_msg("%s", err.message);
        for (int c = 0; c < SCENE_CHANNELS; c++) {
            size_t n = scene_signal_render(&s, c, value), column = series.column[c];
            assert_int_equal(column != SENSOR_CSV_ABSENT, n > 0);
            for (size_t i = 0; i < n; i++)
                assert_true(fabs(series.value[i * series.columns + column] - value[i]) < 6e-4);
            if (n)
                assert_int_equal(series.count, n);
        }
        double step = (series.time[series.count - 1] - series.time[0]) / (double)(series.count - 1);
        assert_true(fabs(step * s.probe.hertz - 1) < 1e-3);
        sensor_series_free(&series);
        tacit_buffer_free(&b);
    }
}

static void splits_share_no_probe(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        scene_prng prng = scene_prng_make(seed, "test-probe", 0);
        scene_probe probe;
        scene_draw_probe(&probe, (scene_kind)(seed / 3 % 2), (scene_split)(seed % 3), &prng);
        for (int other = 0; other < 3; other++)
            assert_int_equal(scene_probe_in_split(&probe, (scene_split)other),
                             other == (int)(seed % 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pulse_has_its_rate_and_rhythm),
        cmocka_unit_test(breathing_has_its_rate),
        cmocka_unit_test(motion_obeys_kinematics),
        cmocka_unit_test(steering_has_its_side),
        cmocka_unit_test(csv_holds_what_is_rendered),
        cmocka_unit_test(csv_is_what_the_engine_reads),
        cmocka_unit_test(splits_share_no_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
