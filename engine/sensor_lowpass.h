/* The low-pass filter between readings and a grid that is slower than they are. Private to the
 * sensor encoder.
 *
 * A tone above half the grid's rate would come back as a slower one that the sensor never saw. The
 * value at a grid time is therefore a mean of the readings around it, weighted by a sinc under a
 * Kaiser window (Kaiser 1974; Oppenheim and Schafer, Discrete-Time Signal Processing, 7.5): flat
 * within 0.13 % up to 0.38 of the rate, down by 59 dB from 0.5 of the rate on, symmetric (nothing
 * is delayed), 16 steps of the grid to either side. A window sinc and no recursive filter, because
 * readings come at any times and have gaps: each counts by the time that it stands for, and the
 * weights are divided by their sum, so that a level passes unchanged whatever is missing. Where too
 * few readings are near, values are interpolated as without a filter.
 *
 * A run is what lies between two gaps wider than max_gap; nothing is averaged over one, and within
 * 16 steps of its ends the mean is one-sided (a tone is attenuated less there). Runs whose readings
 * are on average no faster than the grid (within 2 %, what clocks are off by) are left alone. */
#ifndef TACIT_ENGINE_SENSOR_LOWPASS_H
#define TACIT_ENGINE_SENSOR_LOWPASS_H

#include "engine/sensor_csv.h"

#define SENSOR_LOWPASS_STEPS 16 /* to either side */

typedef struct sensor_lowpass {
    double *time, *value; /* [count]: the readings of one channel */
    size_t count;
    size_t first, end; /* the run at hand */
    size_t from;       /* the first reading that still counts */
    double rate, max_gap;
    bool is_faster; /* the run's readings than the grid */
} sensor_lowpass;

/* Of a column of `series`, which may be freed afterwards. TACIT_NO_MEMORY. */
tacit_status sensor_lowpass_init(sensor_lowpass *l, const sensor_series *series, size_t column,
                                 double rate, double max_gap, tacit_error *err) TACIT_MUST_CHECK;
void sensor_lowpass_fini(sensor_lowpass *l);

/* The mean around time t, which never falls from call to call; false where nothing is filtered. */
bool sensor_lowpass_at(sensor_lowpass *l, double t, double *mean);

#endif
