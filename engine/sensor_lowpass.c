#include "engine/sensor_lowpass.h"

#include "common/memory_limit.h"
#include "common/secret.h"

#include <math.h>
#include <stdlib.h>

#define FASTER 0.98   /* of a step of the grid: readings further apart are no faster */
#define CUTOFF 0.4434 /* of the rate: the middle between pass band and stop band */
#define BETA 5.653    /* of the window: 60 dB */
/* Magnitudes of the weights over their sum: 1.8 where readings are close. Above, they stand where
 * weights are negative, and a mean by them would leave the range of values. */
#define MOST_GAIN 2.5
#define STEPS ((double)SENSOR_LOWPASS_STEPS)

/* The modified Bessel function of the first kind and order zero, by its power series. */
static double bessel_i0(double x)
{
    double sum = 1, term = 1;
    for (int k = 1; term > 1e-17 * sum; k++) {
        term *= x / (2 * k) * (x / (2 * k));
        sum += term;
    }
    return sum;
}

/* `x` steps of the grid from the middle, less than STEPS. */
static double weight_at(double x)
{
    double turn = 2 * M_PI * CUTOFF * x, inside = x / STEPS;
    double sinc = fabs(turn) < 1e-9 ? 1 : sin(turn) / turn;
    return sinc * bessel_i0(BETA * sqrt(1 - inside * inside));
}

tacit_status sensor_lowpass_init(sensor_lowpass *l, const sensor_series *series, size_t column,
                                 double rate, double max_gap, tacit_error *err)
{
    static const char what[] = "filtering a channel's readings", advice[] = "give a shorter window";
    size_t bytes = series->count * (sizeof *l->time + sizeof *l->value);
    *l = (sensor_lowpass){.rate = rate, .max_gap = max_gap + 1e-3 / rate};
    tacit_status status = tacit_memory_judge(bytes, what, advice, err);
    if (status != TACIT_OK)
        return status;
    l->time = malloc(series->count * sizeof *l->time);
    l->value = malloc(series->count * sizeof *l->value);
    if (!l->time || !l->value) {
        sensor_lowpass_fini(l);
        return tacit_memory_fail(bytes, what, advice, err);
    }
    for (size_t i = 0; i < series->count; i++) {
        double v = series->value[i * series->columns + column];
        if (isnan(v))
            continue;
        l->time[l->count] = series->time[i];
        l->value[l->count++] = v;
    }
    return TACIT_OK;
}

void sensor_lowpass_fini(sensor_lowpass *l)
{
    tacit_wipe_free(l->time);
    tacit_wipe_free(l->value);
    *l = (sensor_lowpass){0};
}

static void next_run(sensor_lowpass *l)
{
    l->first = l->from = l->end++;
    while (l->end < l->count && l->time[l->end] - l->time[l->end - 1] <= l->max_gap)
        l->end++;
    size_t steps = l->end - 1 - l->first;
    double seconds = l->time[l->end - 1] - l->time[l->first];
    l->is_faster = steps > 0 && seconds * l->rate < FASTER * (double)steps;
}

/* The steps of the grid that a reading of the run stands for, twice: what lies between its
 * neighbours, of a wide gap one step. */
static double share_of(const sensor_lowpass *l, size_t i)
{
    double before = i > l->first ? l->time[i] - l->time[i - 1] : 0;
    double after = i + 1 < l->end ? l->time[i + 1] - l->time[i] : 0;
    return fmin(before * l->rate, 1) + fmin(after * l->rate, 1);
}

bool sensor_lowpass_at(sensor_lowpass *l, double t, double *mean)
{
    double slack = 1e-3 / l->rate, reach = STEPS / l->rate, sum = 0, weights = 0, sizes = 0;
    while (l->end < l->count && (l->end == 0 || t > l->time[l->end - 1] + slack))
        next_run(l);
    if (l->count == 0 || !l->is_faster || t < l->time[l->first] - slack ||
        t > l->time[l->end - 1] + slack)
        return false;
    while (l->time[l->from] <= t - reach)
        l->from++;
    for (size_t i = l->from; i < l->end && l->time[i] < t + reach; i++) {
        double weight = share_of(l, i) * weight_at((l->time[i] - t) * l->rate);
        sum += weight * l->value[i];
        weights += weight;
        sizes += fabs(weight);
    }
    if (!(weights > 0) || sizes > MOST_GAIN * weights)
        return false;
    *mean = sum / weights;
    return true;
}
