#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/sensor_csv.h"
#include "engine/sensor_lowpass.h"
#include "engine/sensor_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a step of the grid: what rounded times and rates may be off by. */
#define TOLERANCE 1e-3

typedef struct grid {
    const sensor_shape *shape;
    const sensor_series *series;
    size_t samples;
    double slack; /* seconds */
} grid;

static double time_of(const grid *g, size_t k)
{
    return g->series->time[0] + (double)k / g->shape->rate;
}

/* The next line from `at` on that has a reading in a column; count where none has. */
static size_t next_reading(const sensor_series *s, size_t column, size_t at)
{
    while (at < s->count && isnan(s->value[at * s->columns + column]))
        at++;
    return at;
}

/* The value at time t between readings a and b of a column, or NaN. */
static double between(const grid *g, size_t column, size_t a, size_t b, double t, double max_gap)
{
    const sensor_series *s = g->series;
    double t_a = s->time[a], v_a = s->value[a * s->columns + column];
    if (fabs(t - t_a) <= g->slack)
        return v_a;
    if (b == s->count || t < t_a)
        return (double)NAN;
    double t_b = s->time[b], v_b = s->value[b * s->columns + column];
    if (fabs(t - t_b) <= g->slack)
        return v_b;
    if (t > t_b || t_b - t_a > max_gap + g->slack)
        return (double)NAN;
    return v_a + (v_b - v_a) * ((t - t_a) / (t_b - t_a));
}

static float normalise(double v, const sensor_channel *c)
{
    double x = (v - c->mean) / c->std;
    x = x > SENSOR_LIMIT ? SENSOR_LIMIT : x;
    return (float)(x < -SENSOR_LIMIT ? -SENSOR_LIMIT : x);
}

/* One channel of every patch. `values` is zero before; `filter` may be NULL. */
static void fill_channel(float *values, const grid *g, const sensor_channel *channel, size_t index,
                         sensor_lowpass *filter)
{
    const sensor_series *s = g->series;
    size_t length = g->shape->patch_length, column = s->column[index];
    size_t a = next_reading(s, column, 0);
    size_t b = a < s->count ? next_reading(s, column, a + 1) : a;
    for (size_t k = 0; k < g->samples && a < s->count; k++) {
        double t = time_of(g, k);
        while (b < s->count && s->time[b] <= t) {
            a = b;
            b = next_reading(s, column, b + 1);
        }
        double v = between(g, column, a, b, t, channel->max_gap);
        if (isnan(v))
            continue;
        if (filter)
            (void)sensor_lowpass_at(filter, t, &v);
        float *patch = values + k / length * g->shape->patch_values + 2 * index * length;
        patch[k % length] = normalise(v, channel);
        patch[length + k % length] = 1;
    }
}

static tacit_status add_channel(sensor_window *out, const grid *g, const sensor_channel *channel,
                                size_t index, tacit_error *err)
{
    sensor_lowpass filter;
    size_t column = g->series->column[index];
    if (column == SENSOR_CSV_ABSENT)
        return TACIT_OK;
    if (!g->shape->lowpass) {
        fill_channel(out->values, g, channel, index, NULL);
        return TACIT_OK;
    }
    tacit_status status =
        sensor_lowpass_init(&filter, g->series, column, g->shape->rate, channel->max_gap, err);
    if (status == TACIT_OK)
        fill_channel(out->values, g, channel, index, &filter);
    sensor_lowpass_fini(&filter);
    return status;
}

/* Samples of the grid from the first time to the last. */
static tacit_status measure(grid *g, const char *name, tacit_error *err)
{
    const sensor_series *s = g->series;
    const sensor_shape *shape = g->shape;
    double seconds = s->time[s->count - 1] - s->time[0];
    double most = (double)shape->max_patches * shape->patch_length;
    double samples = floor(seconds * shape->rate + TOLERANCE) + 1;
    if (!(samples <= most))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: %g seconds of readings: expected at most %g; cut the window", name,
                          seconds, (most - 1) / shape->rate);
    g->samples = (size_t)samples;
    g->slack = TOLERANCE / shape->rate;
    return TACIT_OK;
}

static tacit_status lay_on_grid(sensor_window *out, const tacit_sensor *s, grid *g,
                                const char *name, tacit_error *err)
{
    const sensor_shape *shape = &s->shape;
    char what[320];
    void *values;
    tacit_status status = measure(g, name, err);
    if (status != TACIT_OK)
        return status;
    out->patches = (g->samples + shape->patch_length - 1) / shape->patch_length;
    out->start = g->series->time[0];
    out->patch_seconds = shape->patch_length / shape->rate;
    snprintf(what, sizeof what, "%.256s: a window of %zu patches of %u values", name, out->patches,
             shape->patch_values);
    status = tacit_memory_alloc(&values, out->patches, shape->patch_values * sizeof *out->values,
                                what, "give a shorter window", err);
    out->values = values;
    for (size_t i = 0; i < shape->channels && status == TACIT_OK; i++) {
        status = add_channel(out, g, &s->channel[i], i, err);
        if (status != TACIT_OK)
            tacit_fail_context(err, "%s", name);
    }
    if (status != TACIT_OK) {
        tacit_wipe_free(out->values);
        *out = (sensor_window){0};
    }
    return status;
}

tacit_status sensor_prepare(sensor_window *out, const tacit_sensor *s, const void *bytes,
                            size_t size, const char *name, tacit_error *err)
{
    sensor_series series;
    grid g = {.shape = &s->shape, .series = &series};
    *out = (sensor_window){0};
    tacit_status status =
        sensor_csv_read(&series, s->channel, s->shape.channels, bytes, size, name, err);
    if (status != TACIT_OK)
        return status;
    status = lay_on_grid(out, s, &g, name, err);
    sensor_series_free(&series);
    return status;
}
