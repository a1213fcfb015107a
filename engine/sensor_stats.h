/* What the readings of a data set say of its channels: the constants of a new sensor encoder. */
#ifndef TACIT_ENGINE_SENSOR_STATS_H
#define TACIT_ENGINE_SENSOR_STATS_H

#include "engine/dataset.h"
#include "engine/sensor.h"

typedef struct sensor_stats {
    /* Names and units; mean and std (of the population; 1 where all readings are equal or there are
     * none) are those of every reading so far. max_gap is the caller's. */
    sensor_channel channel[SENSOR_MAX_CHANNELS];
    size_t channels;
    bool takes_new; /* a column that is no channel yet becomes one */
    size_t readings[SENSOR_MAX_CHANNELS];
    double squares[SENSOR_MAX_CHANNELS]; /* sum of (value - mean)^2 */
    size_t windows;                      /* files; one that is named twice counts twice */
    double longest;                      /* window, in seconds */
} sensor_stats;

/* Adds the bytes of a CSV file. TACIT_BAD_INPUT as sensor_csv_read; `s` is of no use then. */
tacit_status sensor_stats_add(sensor_stats *s, const void *bytes, size_t size, const char *name,
                              tacit_error *err) TACIT_MUST_CHECK;

/* Adds every file of readings that the records name. */
tacit_status sensor_stats_add_dataset(sensor_stats *s, const tacit_dataset *d,
                                      tacit_error *err) TACIT_MUST_CHECK;

#endif
