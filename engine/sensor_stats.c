#include "engine/sensor_stats.h"

#include "common/file.h"
#include "common/secret.h"
#include "engine/sensor_csv.h"

#include <math.h>

/* Welford's way (1962): sums of squares would lose everything of readings far from zero. */
static void add_reading(sensor_stats *s, size_t i, double v)
{
    sensor_channel *c = &s->channel[i];
    double before = v - c->mean;
    c->mean += before / (double)++s->readings[i];
    s->squares[i] += before * (v - c->mean);
    double std = sqrt(s->squares[i] / (double)s->readings[i]);
    c->std = std > 0 ? std : 1;
}

static void add_series(sensor_stats *s, const sensor_series *series)
{
    double seconds = series->time[series->count - 1] - series->time[0];
    s->longest = seconds > s->longest ? seconds : s->longest;
    s->windows++;
    for (size_t i = 0; i < s->channels; i++)
        for (size_t k = 0; series->column[i] != SENSOR_CSV_ABSENT && k < series->count; k++) {
            double v = series->value[k * series->columns + series->column[i]];
            if (!isnan(v))
                add_reading(s, i, v);
        }
}

tacit_status sensor_stats_add(sensor_stats *s, const void *bytes, size_t size, const char *name,
                              tacit_error *err)
{
    sensor_series series;
    tacit_status status =
        s->takes_new
            ? sensor_csv_discover(&series, s->channel, &s->channels, bytes, size, name, err)
            : sensor_csv_read(&series, s->channel, s->channels, bytes, size, name, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < s->channels; i++)
        s->channel[i].std = s->readings[i] ? s->channel[i].std : 1;
    add_series(s, &series);
    sensor_series_free(&series);
    return TACIT_OK;
}

static tacit_status add_file(sensor_stats *s, const char *path, tacit_error *err)
{
    uint8_t *bytes;
    size_t size;
    tacit_status status =
        tacit_status_of_input(tacit_file_read(path, SENSOR_MAX_FILE, &bytes, &size, err), err);
    if (status != TACIT_OK)
        return status;
    status = sensor_stats_add(s, bytes, size, path, err);
    tacit_wipe_free(bytes);
    return status;
}

static tacit_status add_record(sensor_stats *s, const tacit_record *r, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t m = 0; m < r->n_messages; m++)
        for (size_t i = 0; i < r->message[m].n_content && status == TACIT_OK; i++)
            if (r->message[m].content[i].kind == TACIT_CONTENT_SENSOR)
                status = add_file(s, r->message[m].content[i].text, err);
    return status;
}

tacit_status sensor_stats_add_dataset(sensor_stats *s, const tacit_dataset *d, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < d->count && status == TACIT_OK; i++)
        status = add_record(s, &d->record[i], err);
    if (status == TACIT_OK && s->windows == 0)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "%s: no record has readings of sensors: expected contents of type "
                            "sensor",
                            d->path);
    return status;
}
