/* Readings to windows: by hand, by a naive twin that looks at every reading, and hostile bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/secret.h"
#include "engine/sensor_csv.h"

#include <locale.h>
#include <stdint.h>

#include "reference_sensor.h"

enum { LENGTH = 4, CHANNELS = 3, PATCH = 2 * CHANNELS * LENGTH };

typedef struct fixture {
    uint8_t *bytes;
    gguf_file *file;
    tacit_sensor *s;
} fixture;

static int setup(void **state)
{
    static fixture f;
    size_t size;
    sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F32, 6);
    gguf_writer *w = gguf_writer_new();
    reference_put_sensor(w, &spec);
    if (gguf_write_memory(w, &f.bytes, &size, NULL) != TACIT_OK ||
        gguf_open_memory(&f.file, f.bytes, size, "sensor", NULL) != TACIT_OK ||
        sensor_load(&f.s, f.file, NULL) != TACIT_OK)
        return -1;
    gguf_writer_free(w);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    sensor_free(f->s);
    gguf_close(f->file);
    free(f->bytes);
    return 0;
}

static sensor_window prepare(const fixture *f, const char *text)
{
    sensor_window w;
    tacit_error err = {0};
    if (sensor_prepare(&w, f->s, text, strlen(text), "w.csv", &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return w;
}

static float value_at(const sensor_window *w, size_t channel, size_t k)
{
    return w->values[k / LENGTH * PATCH + 2 * channel * LENGTH + k % LENGTH];
}

static float mask_at(const sensor_window *w, size_t channel, size_t k)
{
    return w->values[k / LENGTH * PATCH + (2 * channel + 1) * LENGTH + k % LENGTH];
}

/* NaN expects a missing value; the others are in the channel's unit. */
static void expect_channel(const sensor_window *w, size_t channel, const double *expected, size_t n)
{
    const sensor_channel *c = &reference_channels[channel];
    for (size_t k = 0; k < w->patches * LENGTH; k++) {
        bool missing = k >= n || isnan(expected[k]);
        double x = missing ? 0 : (expected[k] - c->mean) / c->std;
        x = x > SENSOR_LIMIT ? SENSOR_LIMIT : x < -SENSOR_LIMIT ? -SENSOR_LIMIT : x;
        if (mask_at(w, channel, k) != (missing ? 0.0f : 1.0f) ||
            !(fabs((double)value_at(w, channel, k) - x) <= 1e-6 * (1 + fabs(x))))
            fail_msg("%s at %zu: %g with mask %g, expected %g%s", c->name, k,
                     (double)value_at(w, channel, k), (double)mask_at(w, channel, k), x,
                     missing ? " missing" : "");
    }
}

/* max_gap is 0.3 s of speed and rpm, 2.5 s of temp; the grid has 10 samples a second. */
static void readings_lie_on_the_grid(void **state)
{
    const double none = (double)NAN;
    sensor_window w = prepare(*state, "time,temp,speed\n"
                                      "100.0,90,40\n"
                                      "100.1,,50\n"
                                      "100.3,,70\n"   /* a gap of 0.2 is bridged */
                                      "100.7,,110\n"  /* one of 0.4 is not */
                                      "101.2,96,\n"); /* temp may be 2.5 s apart */
    const double speed[] = {40, 50, 60, 70, none, none, none, 110, none, none, none, none, none};
    const double temp[] = {90, 90.5, 91, 91.5, 92, 92.5, 93, 93.5, 94, 94.5, 95, 95.5, 96};
    assert_int_equal(w.patches, 4); /* 13 samples */
    assert_true(w.start == 100 && fabs(w.patch_seconds - 0.4) < 1e-12);
    expect_channel(&w, 0, speed, 13);
    expect_channel(&w, 1, NULL, 0);
    expect_channel(&w, 2, temp, 13);
    tacit_wipe_free(w.values);
}

/* 1000.5 - 1000.1 is less than four tenths in binary: the last reading counts all the same. */
static void times_are_rounded(void **state)
{
    sensor_window w =
        prepare(*state, "time,speed\n1000.1,1\n1000.2,2\n1000.3,3\n1000.4,4\n1000.5,5\n");
    const double speed[] = {1, 2, 3, 4, 5};
    assert_true((1000.5 - 1000.1) * 10 < 4);
    assert_int_equal(w.patches, 2);
    expect_channel(&w, 0, speed, 5);
    tacit_wipe_free(w.values);
}

static void one_reading_is_a_window(void **state)
{
    sensor_window w = prepare(*state, "rpm,t\n2500,-7.25");
    const double rpm[] = {2500};
    assert_int_equal(w.patches, 1);
    assert_true(w.start == -7.25);
    expect_channel(&w, 1, rpm, 1);
    expect_channel(&w, 0, NULL, 0);
    tacit_wipe_free(w.values);
}

static void far_values_are_limited(void **state)
{
    sensor_window w = prepare(*state, "t,speed\n0,1e300\n0.1,-1e300\n0.2,-9999\n0.3,61\n");
    const double speed[] = {1e300, -1e300, -9999, 61};
    assert_true(value_at(&w, 0, 0) == 32.0f && value_at(&w, 0, 1) == -32.0f);
    expect_channel(&w, 0, speed, 4);
    tacit_wipe_free(w.values);
}

/* Levels survive: the same shape elsewhere is another window. */
static void windows_do_not_normalise_themselves(void **state)
{
    sensor_window a = prepare(*state, "t,speed\n0,10\n0.1,20\n");
    sensor_window b = prepare(*state, "t,speed\n0,110\n0.1,120\n");
    assert_true(fabs((double)(value_at(&b, 0, 0) - value_at(&a, 0, 0)) - 100.0 / 20) < 1e-6);
    tacit_wipe_free(a.values);
    tacit_wipe_free(b.values);
}

/* Spellings of one window. */
static void spellings_are_one(void **state)
{
    static const char *const same[] = {
        "time,speed,rpm\r\n0,50,\r\n0.1,51,2000\r\n",
        "time,speed,rpm\r0,50,\r0.1,51,2000\r",
        "\xef\xbb\xbftime,speed,rpm\n0,50,\n0.1,51,2000\n",
        "\"time\",\"speed\",\"rpm\"\n\"0\",\"50\",\"\"\n0.1,\"51\",2000",
        "t,speed,rpm\n\n0,50,\n\n\n0.1,51,2000\n\n",
        "rpm,speed,time\n,50,0\n2000,51,0.1\n",
        "time , speed,\trpm\n 0.0, 5e1 ,\n+0.10,51.000,2.0e+3\n",
    };
    sensor_window first = prepare(*state, "time,speed,rpm\n0,50,\n0.1,51,2000\n");
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        sensor_window w = prepare(*state, same[i]);
        assert_int_equal(w.patches, 1);
        assert_memory_equal(w.values, first.values, PATCH * sizeof(float));
        tacit_wipe_free(w.values);
    }
    tacit_wipe_free(first.values);
}

/* Readings at random times, some empty: every sample is what the twin finds. */
static void random_readings_agree_with_the_twin(void **state)
{
    enum { MOST = 60 };
    const fixture *f = *state;
    for (uint32_t trial = 0; trial < 200; trial++) {
        double time[MOST], value[CHANNELS][MOST];
        char text[MOST * 96];
        size_t n = 1 + (trial * 7) % MOST, used = 0;
        used += (size_t)snprintf(text, sizeof text, "speed,time,rpm,temp\n");
        double at = 1e5 + trial;
        for (size_t i = 0; i < n; i++) {
            uint32_t k = (uint32_t)i * 8;
            double step =
                1.89 / (double)n * (0.1 + 1.8 * (0.5 + (double)reference_uniform(trial, k)));
            char word[3][32] = {"", "", ""};
            at = i ? at + step : at;
            time[i] = round(at * 1e4) / 1e4;
            if (i && time[i] <= time[i - 1])
                time[i] = time[i - 1] + 1e-4;
            for (uint32_t c = 0; c < CHANNELS; c++) {
                bool empty = reference_uniform(trial, k + 1 + c) < -0.1f;
                double v = round(1e3 * reference_uniform(trial, k + 4 + c)) + 60;
                value[c][i] = empty ? (double)NAN : v;
                if (!empty)
                    snprintf(word[c], sizeof word[c], "%.17g", v);
            }
            used += (size_t)snprintf(text + used, sizeof text - used, "%s,%.17g,%s,%s\n", word[0],
                                     time[i], word[1], word[2]);
        }
        double seconds = time[n - 1] - time[0];
        if (seconds > 1.9)
            continue;
        sensor_window w = prepare(f, text);
        size_t samples = (size_t)floor(seconds * 10 + 1e-3) + 1;
        double expected[64];
        assert_int_equal(w.patches, (samples + LENGTH - 1) / LENGTH);
        for (size_t c = 0; c < CHANNELS; c++) {
            for (size_t k = 0; k < samples; k++)
                expected[k] = reference_reading(time, value[c], n, time[0] + (double)k / 10,
                                                reference_channels[c].max_gap, 0.1);
            expect_channel(&w, c, expected, samples);
        }
        tacit_wipe_free(w.values);
    }
}

/* ---- refusals ---- */

static void expect_refusal(const fixture *f, const char *text, size_t size, const char *about)
{
    sensor_window w;
    tacit_error err = {0};
    assert_int_equal(sensor_prepare(&w, f->s, text, size, "w.csv", &err), TACIT_BAD_INPUT);
    assert_null(w.values);
    if (!strstr(err.message, about))
        fail_msg("'%s' does not say '%s'", err.message, about);
}

static void hostile_text_is_refused(void **state)
{
    static const struct {
        const char *text, *about;
    } cases[] = {
        {"", "no readings"},
        {"\n\n", "no readings"},
        {"time,speed\n", "no readings"},
        {"0,50\n0.1,51\n", "expected time or a channel of the model: speed, rpm, temp"},
        {"speed,rpm\n1,2\n", "no column 'time'"},
        {"time\n1\n", "no channel"},
        {"time,t,speed\n0,0,1\n", "two columns of time"},
        {"time,speed,speed\n0,1,1\n", "two columns for channel 'speed'"},
        {"time,Speed\n0,1\n", "'Speed'"},
        {"time,speed,\n0,1,\n", "column 3 is ''"},
        {"time,speed\n0,nan\n", "speed: expected a number"},
        {"time,speed\n0,NaN\n", "line 1 of data"},
        {"time,speed\n0,inf\n", "expected a number"},
        {"time,speed\n0,-inf\n", "expected a number"},
        {"time,speed\n0,1e999\n", "expected a number"},
        {"time,speed\n0,0x10\n", "expected a number"},
        {"time,speed\n0,\"1,5\"\n", "expected a number"},
        {"time,speed\n0,fast\n", "leave a cell empty"},
        {"time,speed\n0,1\n,2\n", "time: expected a number"},
        {"time,speed\n1,1\n0.5,2\n", "line 2 of data: time 0.5 after 1"},
        {"time,speed\n1,1\n1,2\n", "expected ascending"},
        {"time,speed\n0,1,2\n", "more than 2 cells"},
        {"time,speed\n0\n", "1 cells: expected 2"},
        {"time,speed\n0,\"1\n", "line"},
        {"time,speed\n0,1\"2\n", "line"},
        {"time,speed\n0,1\n2000000,1\n", "cut the window"},
        {"time,speed\n0,1\n1e300,1\n", "cut the window"},
        {"time,speed\n-1e300,1\n1e300,1\n", "cut the window"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refusal(*state, cases[i].text, strlen(cases[i].text), cases[i].about);
    expect_refusal(*state, "time,speed\n0,1\0\n", 16, "NUL");
}

static void the_longest_window_fits(void **state)
{
    sensor_window w = prepare(*state, "time,speed\n0,1\n1.9,1\n");
    assert_int_equal(w.patches, 5);
    tacit_wipe_free(w.values);
    const char *longer = "time,speed\n0,1\n2.0,1\n";
    expect_refusal(*state, longer, strlen(longer), "2 seconds of readings: expected at most 1.9");
}

/* Sizes that must be refused before they are stored. */
static void hostile_sizes_are_refused(void **state)
{
    size_t columns = 1000000, size = 4 * columns;
    char *text = malloc(size);
    for (size_t i = 0; i < columns; i++)
        memcpy(text + 4 * i, "abc,", 4);
    expect_refusal(*state, text, size, "column 1 is 'abc'");
    memcpy(text, "t,speed\n", 8);
    memset(text + 8, ',', size - 8);
    expect_refusal(*state, text, size, "time: expected a number");
    memset(text + 8, '1', size - 8);
    expect_refusal(*state, text, size, "longer than 256 bytes");
    memset(text, '"', size);
    expect_refusal(*state, text, size, "");
    memset(text, 'x', size);
    expect_refusal(*state, text, size, "");
    free(text);
    expect_refusal(*state, "t,speed\n", SENSOR_MAX_FILE + 1, "at most");
}

/* A decimal comma of the locale does not enter. */
static void the_locale_does_not_matter(void **state)
{
    bool other = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    readings_lie_on_the_grid(state);
    if (other)
        setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readings_lie_on_the_grid),
        cmocka_unit_test(times_are_rounded),
        cmocka_unit_test(one_reading_is_a_window),
        cmocka_unit_test(far_values_are_limited),
        cmocka_unit_test(windows_do_not_normalise_themselves),
        cmocka_unit_test(spellings_are_one),
        cmocka_unit_test(random_readings_agree_with_the_twin),
        cmocka_unit_test(hostile_text_is_refused),
        cmocka_unit_test(the_longest_window_fits),
        cmocka_unit_test(hostile_sizes_are_refused),
        cmocka_unit_test(the_locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
