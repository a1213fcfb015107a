/* Means and deviations of data sets: by hand, by the definition in two passes, and found names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/sensor_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(sensor_stats *s, const char *text)
{
    tacit_error err = {0};
    if (sensor_stats_add(s, text, strlen(text), "a.csv", &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

static void expect(const sensor_stats *s, size_t i, const char *name, size_t readings, double mean,
                   double std)
{
    assert_string_equal(s->channel[i].name, name);
    assert_int_equal(s->readings[i], readings);
    if (!(fabs(s->channel[i].mean - mean) <= 1e-12 * fabs(mean)) ||
        !(fabs(s->channel[i].std - std) <= 1e-8 * std))
        fail_msg("%s: %.17g +- %.17g, expected %.17g +- %.17g", name, s->channel[i].mean,
                 s->channel[i].std, mean, std);
}

/* Names come in the order in which files have them; a cell without a reading counts for nothing. */
static void files_add_up(void **state)
{
    (void)state;
    sensor_stats s = {.takes_new = true};
    add(&s, "time,speed,\"oil, hot\"\n0,1,7\n0.5,,7\n1,2,\n");
    add(&s, "empty,t,speed\n,10,3\n,12.5,4\n");
    assert_int_equal(s.channels, 3);
    expect(&s, 0, "speed", 4, 2.5, sqrt(1.25));
    expect(&s, 1, "oil, hot", 2, 7, 1); /* all alike */
    expect(&s, 2, "empty", 0, 0, 1);
    assert_int_equal(s.windows, 2);
    assert_true(s.longest == 2.5);
}

/* Far from zero, where a sum of squares keeps no digit of the deviation. */
static void digits_are_kept(void **state)
{
    (void)state;
    enum { N = 5000 };
    sensor_stats s = {.takes_new = true};
    double *v = malloc(N * sizeof *v), mean = 0, square = 0;
    char *text = malloc(64 * N);
    size_t used = (size_t)sprintf(text, "t,p\n");
    for (int i = 0; i < N; i++) {
        v[i] = 1e9 + (double)(i * 7919 % 101) / 64;
        used += (size_t)sprintf(text + used, "%d,%.17g\n", i, v[i]);
        mean += (v[i] - 1e9) / N;
    }
    for (int i = 0; i < N; i++)
        square += (v[i] - 1e9 - mean) * (v[i] - 1e9 - mean) / N;
    add(&s, text);
    expect(&s, 0, "p", N, 1e9 + mean, sqrt(square));
    free(v);
    free(text);
}

static void wrong_columns_are_refused(void **state)
{
    (void)state;
    tacit_error err = {0};
    sensor_stats fixed = {.channel = {{.name = "speed"}}, .channels = 1};
    const char *other = "t,rpm\n0,1\n", *nameless = "t,\n0,1\n", *twice = "t,a,a\n0,1,2\n";
    assert_int_equal(sensor_stats_add(&fixed, other, strlen(other), "b.csv", &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "'rpm'"));
    sensor_stats any = {.takes_new = true};
    assert_int_equal(sensor_stats_add(&any, nameless, strlen(nameless), "b.csv", &err),
                     TACIT_BAD_INPUT);
    assert_int_equal(sensor_stats_add(&any, twice, strlen(twice), "b.csv", &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "two columns for channel 'a'"));
}

/* No more names than a model has channels, over any number of files. */
static void names_are_bounded(void **state)
{
    (void)state;
    tacit_error err = {0};
    sensor_stats s = {.takes_new = true};
    char text[64];
    for (int i = 0; i < SENSOR_MAX_CHANNELS; i++) {
        sprintf(text, "t,c%d\n0,1\n", i);
        add(&s, text);
    }
    assert_int_equal(s.channels, SENSOR_MAX_CHANNELS);
    add(&s, "t,c63\n0,1\n");
    assert_int_equal(sensor_stats_add(&s, "t,c64\n0,1\n", 10, "b.csv", &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "'c64'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_add_up),
        cmocka_unit_test(digits_are_kept),
        cmocka_unit_test(wrong_columns_are_refused),
        cmocka_unit_test(names_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
