/* Readings of sensors as CSV (RFC 4180; LF, CRLF or CR; a byte order mark may stand before it):
 *
 *   time,speed,rpm
 *   0.0,51.5,1802
 *   0.1,,1810
 *
 * The first line names the columns: "time" or "t" once, in seconds of any origin, strictly
 * ascending, and channels of the model, each at most once, in any order; a channel may be absent.
 * Every line has a cell a column. A cell is a decimal number ('.' whatever the locale) or empty: no
 * reading. Hostile bytes are refused, never guessed at: another number of cells, text, NaN, inf, a
 * number that a double cannot hold, broken quotes, NUL, a cell above 256 bytes. */
#ifndef TACIT_ENGINE_SENSOR_CSV_H
#define TACIT_ENGINE_SENSOR_CSV_H

#include "engine/sensor.h"

#define SENSOR_CSV_ABSENT SIZE_MAX

typedef struct sensor_series {
    size_t count;                       /* of times, at least 1 */
    size_t columns;                     /* channels of the file, at least 1 */
    double *time;                       /* [count] */
    double *value;                      /* [count, columns]; NaN: no reading */
    size_t column[SENSOR_MAX_CHANNELS]; /* of each channel of the model, or SENSOR_CSV_ABSENT */
} sensor_series;

/* TACIT_BAD_INPUT names file, line of data and column. Free with sensor_series_free. */
tacit_status sensor_csv_read(sensor_series *out, const sensor_channel *channel, size_t channels,
                             const void *bytes, size_t size, const char *name,
                             tacit_error *err) TACIT_MUST_CHECK;
/* As sensor_csv_read, but a column that is no channel yet becomes one behind channel[*channels],
 * which has room for SENSOR_MAX_CHANNELS. */
tacit_status sensor_csv_discover(sensor_series *out, sensor_channel *channel, size_t *channels,
                                 const void *bytes, size_t size, const char *name,
                                 tacit_error *err) TACIT_MUST_CHECK;
void sensor_series_free(sensor_series *s);

#endif
