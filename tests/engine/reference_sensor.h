/* The sensor encoder once more, in double, one number at a time, from the description in sensor.h
 * alone: gridding by looking at every reading for every grid time, and the forward. Also a small
 * encoder whose weights are a formula that make_sensor.py knows too. */
#ifndef TACIT_TESTS_REFERENCE_SENSOR_H
#define TACIT_TESTS_REFERENCE_SENSOR_H

#include "engine/sensor_new.h"

#include "reference_vision.h"

/* Numbers of the tensors in reference_uniform, away from the vision tower's. */
enum { REFERENCE_SENSOR_TENSORS = 700 };

static const sensor_channel reference_channels[] = {
    {"speed", "km/h", 60, 20, 0.3},
    {"rpm", "1/min", 2000, 500, 0.3},
    {"temp", "C", 90, 5, 2.5},
};

static inline sensor_spec reference_sensor_spec(tacit_type type, uint32_t out)
{
    return (sensor_spec){.channel = reference_channels,
                         .channels = 3,
                         .rate = 10,
                         .patch_length = 4,
                         .max_patches = 5,
                         .width = 8,
                         .out_width = out,
                         .type = type};
}

/* The file of a spec, its weights by formula. */
static inline void reference_put_sensor(gguf_writer *w, const sensor_spec *s)
{
    uint32_t t = REFERENCE_SENSOR_TENSORS;
    const uint64_t in = (uint64_t)2 * s->channels * s->patch_length, d = s->width,
                   patch[] = {in, d}, vector[] = {d}, positions[] = {d, s->max_patches},
                   fc[] = {d, s->out_width}, out[] = {s->out_width};
    sensor_put_keys(w, s);
    reference_put(w, t++, "s.patch_embd.weight", 2, patch, s->type, 1, 0);
    reference_put(w, t++, "s.patch_embd.bias", 1, vector, TACIT_TYPE_F32, 0.5f, 0);
    reference_put(w, t++, "s.position_embd.weight", 2, positions, TACIT_TYPE_F32, 1, 0);
    reference_put(w, t++, "mm.s.fc.weight", 2, fc, s->type, 0.5f, 0);
    reference_put(w, t++, "mm.s.fc.bias", 1, out, TACIT_TYPE_F32, 0.5f, 0);
}

/* rows[patches, out_width] of a window's values; t: the five tensors in layout order. */
static inline void reference_sensor(const sensor_shape *s, double *const *t, const float *values,
                                    size_t patches, double *rows)
{
    double *x = calloc(s->patch_values, sizeof *x), *h = calloc(s->width, sizeof *h);
    for (size_t p = 0; p < patches; p++) {
        for (size_t i = 0; i < s->patch_values; i++)
            x[i] = (double)values[p * s->patch_values + i];
        reference_linear(h, t[0], t[1], x, s->width, s->patch_values);
        for (size_t i = 0; i < s->width; i++)
            h[i] = reference_gelu(h[i]) + t[2][p * s->width + i];
        reference_linear(rows + p * s->out_width, t[3], t[4], h, s->out_width, s->width);
    }
    free(x), free(h);
}

/* One channel's value at grid time t from n readings (NaN: none), or NaN: the readings nearest
 * below and above are found by looking at all of them. */
static inline double reference_reading(const double *time, const double *value, size_t n, double t,
                                       double gap, double step)
{
    double below = -INFINITY, above = INFINITY, v_below = 0, v_above = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(value[i]))
            continue;
        if (fabs(time[i] - t) <= step / 1000)
            return value[i];
        if (time[i] < t && time[i] > below)
            below = time[i], v_below = value[i];
        if (time[i] > t && time[i] < above)
            above = time[i], v_above = value[i];
    }
    if (isinf(below) || isinf(above) || above - below > gap + step / 1000)
        return (double)NAN;
    return v_below + (v_above - v_below) * (t - below) / (above - below);
}

#endif
