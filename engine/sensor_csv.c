#include "engine/sensor_csv.h"

#include "common/memory_limit.h"
#include "common/secret.h"
#include "common/text.h"

#include <csv.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS (SENSOR_MAX_CHANNELS + 1)
#define MAX_CELL 256
#define BUFFER_BYTES ((size_t)1024) /* of libcsv: a cell and what it adds */
#define STEP_BYTES ((size_t)4096)   /* read between two looks at the status */
#define TIME_COLUMN SIZE_MAX
#define SHORTER "give a shorter window"

typedef struct reader {
    sensor_series *out;
    const sensor_channel *channel;
    sensor_channel *grows; /* the same ones, where new names are welcome; else NULL */
    size_t channels;
    const char *name;
    tacit_error *err;
    tacit_status status;       /* of the first failure; later calls do nothing */
    size_t place[MAX_COLUMNS]; /* of a column: its index in `value`, or TIME_COLUMN */
    size_t model[MAX_COLUMNS]; /* of a column: the model's channel */
    size_t n_columns, cell;    /* columns of the file; cells of the line so far */
    size_t line, capacity;     /* lines of data so far */
    bool has_time, header_done;
} reader;

#define REFUSE(r, ...) ((r)->status = tacit_fail((r)->err, TACIT_BAD_INPUT, __VA_ARGS__))

/* ---- the header ---- */

/* "speed, rpm": the channels of the model. */
static void list_channels(const reader *r, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < r->channels && used + SENSOR_MAX_NAME + 8 < size; i++)
        used +=
            (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", r->channel[i].name);
    if (used + SENSOR_MAX_NAME + 8 >= size)
        snprintf(out + used, size - used, ", ...");
}

static void name_time(reader *r)
{
    if (r->has_time)
        REFUSE(r, "%s: two columns of time: expected 'time' or 't' once", r->name);
    r->has_time = true;
    r->place[r->n_columns++] = TIME_COLUMN;
}

/* False where the name cannot be one more channel's. */
static bool add_channel(reader *r, const char *text)
{
    size_t size = strlen(text);
    if (!r->grows || r->channels == SENSOR_MAX_CHANNELS || size == 0 || size > SENSOR_MAX_NAME ||
        !tacit_text_is_plain(text, size))
        return false;
    sensor_channel *c = &r->grows[r->channels++];
    *c = (sensor_channel){0};
    memcpy(c->name, text, size);
    return true;
}

static void name_channel(reader *r, const char *text)
{
    char known[512];
    size_t i = 0;
    while (i < r->channels && strcmp(r->channel[i].name, text) != 0)
        i++;
    if (i == r->channels && add_channel(r, text))
        i = r->channels - 1;
    if (i == r->channels) {
        list_channels(r, known, sizeof known);
        REFUSE(r, "%s: column %zu is '%.64s': expected time or a channel of the model: %s", r->name,
               r->n_columns + 1, text, known);
        return;
    }
    if (r->out->column[i] != SENSOR_CSV_ABSENT) {
        REFUSE(r, "%s: two columns for channel '%s': expected one", r->name, text);
        return;
    }
    r->model[r->n_columns] = i;
    r->out->column[i] = r->out->columns;
    r->place[r->n_columns++] = r->out->columns++;
}

static void take_name(reader *r, const char *text, size_t size)
{
    if (r->n_columns == MAX_COLUMNS)
        REFUSE(r, "%s: more than %d columns", r->name, MAX_COLUMNS);
    else if (size > SENSOR_MAX_NAME)
        REFUSE(r, "%s: the name of column %zu has %zu bytes: expected at most %d", r->name,
               r->n_columns + 1, size, SENSOR_MAX_NAME);
    else if (strcmp(text, "time") == 0 || strcmp(text, "t") == 0)
        name_time(r);
    else
        name_channel(r, text);
}

static void end_header(reader *r)
{
    r->header_done = true;
    if (!r->has_time)
        REFUSE(r, "%s: no column 'time' (or 't') in the first line, which names the columns",
               r->name);
    else if (r->out->columns == 0)
        REFUSE(r, "%s: no channel beside the time", r->name);
}

/* ---- lines of data ---- */

/* Times and values of `capacity` lines, judged together. */
static tacit_status alloc_lines(const reader *r, size_t capacity, double **time, double **value)
{
    char what[320];
    size_t columns = r->out->columns, bytes = capacity * (1 + columns) * sizeof **time;
    snprintf(what, sizeof what, "%.256s: room for %zu lines of %zu channels", r->name, capacity,
             columns);
    tacit_status status = tacit_memory_judge(bytes, what, SHORTER, r->err);
    if (status != TACIT_OK)
        return status;
    *time = malloc(capacity * sizeof **time);
    *value = malloc(capacity * columns * sizeof **value);
    if (*time && *value)
        return TACIT_OK;
    free(*time);
    free(*value);
    return tacit_memory_fail(bytes, what, SHORTER, r->err);
}

static void make_room(reader *r)
{
    sensor_series *s = r->out;
    double *time, *value;
    if (s->count < r->capacity)
        return;
    size_t capacity = r->capacity ? 2 * r->capacity : 256;
    r->status = alloc_lines(r, capacity, &time, &value);
    if (r->status != TACIT_OK)
        return;
    if (s->count > 0) {
        memcpy(time, s->time, s->count * sizeof *time);
        memcpy(value, s->value, s->count * s->columns * sizeof *value);
    }
    tacit_wipe_free(s->time);
    tacit_wipe_free(s->value);
    s->time = time;
    s->value = value;
    r->capacity = capacity;
}

static double read_number(reader *r, const char *text, const char *column)
{
    double v = 0;
    tacit_error why;
    if (tacit_parse_f64(text, column, -1e300, 1e300, &v, &why) != TACIT_OK)
        REFUSE(r, "%s: line %zu of data: %s; leave a cell empty where there is no reading", r->name,
               r->line + 1, why.message);
    return v;
}

static void take_time(reader *r, const char *text)
{
    sensor_series *s = r->out;
    double v = read_number(r, text, "time");
    if (r->status == TACIT_OK && s->count > 0 && !(v > s->time[s->count - 1]))
        REFUSE(r, "%s: line %zu of data: time %.17g after %.17g: expected ascending", r->name,
               r->line + 1, v, s->time[s->count - 1]);
    s->time[s->count] = v;
}

static void take_cell(reader *r, const char *text, size_t size)
{
    sensor_series *s = r->out;
    if (r->cell >= r->n_columns) {
        REFUSE(r, "%s: line %zu of data has more than %zu cells", r->name, r->line + 1,
               r->n_columns);
        return;
    }
    if (r->cell == 0)
        make_room(r);
    size_t column = r->cell++, place = r->place[column];
    if (r->status != TACIT_OK)
        return;
    if (place == TIME_COLUMN) {
        take_time(r, text);
        return;
    }
    double v = size == 0 ? (double)NAN : read_number(r, text, r->channel[r->model[column]].name);
    s->value[s->count * s->columns + place] = v;
}

static void end_line(reader *r)
{
    if (r->cell != r->n_columns)
        REFUSE(r, "%s: line %zu of data has %zu cells: expected %zu", r->name, r->line + 1, r->cell,
               r->n_columns);
    r->cell = 0;
    r->line++;
    r->out->count++;
}

/* ---- libcsv ---- */

static void on_cell(void *cell, size_t size, void *ctx)
{
    reader *r = ctx;
    const char *text = cell ? cell : "";
    if (r->status != TACIT_OK)
        return;
    if (size > MAX_CELL)
        REFUSE(r, "%s: a cell of %zu bytes: expected at most %d", r->name, size, MAX_CELL);
    else if (!r->header_done)
        take_name(r, text, size);
    else
        take_cell(r, text, size);
}

static void on_line(int terminator, void *ctx)
{
    reader *r = ctx;
    (void)terminator;
    if (r->status != TACIT_OK)
        return;
    if (r->header_done)
        end_line(r);
    else
        end_header(r);
}

/* Its buffer holds readings, and a cell is no longer than we allow. */
static void *grow_buffer(void *old, size_t size)
{
    void *grown = size <= BUFFER_BYTES ? malloc(size) : NULL;
    if (grown && old) {
        size_t held = malloc_usable_size(old);
        memcpy(grown, old, held < size ? held : size);
        tacit_wipe_free(old);
    }
    return grown;
}

static tacit_status fail_parse(const reader *r, struct csv_parser *p)
{
    if (r->status != TACIT_OK)
        return r->status;
    if (csv_error(p) == CSV_ENOMEM)
        return tacit_fail(r->err, TACIT_BAD_INPUT, "%s: a cell is longer than %d bytes", r->name,
                          MAX_CELL);
    return tacit_fail(r->err, TACIT_BAD_INPUT, "%s: line %zu: %s", r->name,
                      r->line + r->header_done + 1, csv_strerror(csv_error(p)));
}

static tacit_status parse(reader *r, const char *text, size_t size)
{
    struct csv_parser p;
    bool whole = true;
    if (csv_init(&p, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL) != 0)
        return tacit_fail(r->err, TACIT_FAILED, "%s: libcsv does not start", r->name);
    csv_set_realloc_func(&p, grow_buffer);
    csv_set_free_func(&p, tacit_wipe_free);
    for (size_t at = 0; at < size && whole && r->status == TACIT_OK;) {
        size_t step = size - at < STEP_BYTES ? size - at : STEP_BYTES;
        whole = csv_parse(&p, text + at, step, on_cell, on_line, r) == step;
        at += step;
    }
    whole = whole && r->status == TACIT_OK && csv_fini(&p, on_cell, on_line, r) == 0;
    tacit_status status = whole && r->status == TACIT_OK ? TACIT_OK : fail_parse(r, &p);
    csv_free(&p);
    return status;
}

static const uint8_t mark[] = {0xef, 0xbb, 0xbf};

static tacit_status read_series(reader *r, const void *bytes, size_t size)
{
    const char *text = bytes, *name = r->name;
    tacit_error *err = r->err;
    sensor_series *out = r->out;
    *out = (sensor_series){0};
    for (size_t i = 0; i < SENSOR_MAX_CHANNELS; i++)
        out->column[i] = SENSOR_CSV_ABSENT;
    if (size > SENSOR_MAX_FILE)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %zu bytes: expected at most %zu", name, size,
                          SENSOR_MAX_FILE);
    if (size > 0 && memchr(text, 0, size))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: a NUL byte: expected text", name);
    size_t skipped = size >= sizeof mark && memcmp(text, mark, sizeof mark) == 0 ? sizeof mark : 0;
    tacit_status status = parse(r, text + skipped, size - skipped);
    if (status == TACIT_OK && out->count == 0)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "%s: no readings: expected a line of names and lines of numbers", name);
    if (status != TACIT_OK)
        sensor_series_free(out);
    return status;
}

tacit_status sensor_csv_read(sensor_series *out, const sensor_channel *channel, size_t channels,
                             const void *bytes, size_t size, const char *name, tacit_error *err)
{
    reader r = {.out = out, .channel = channel, .channels = channels, .name = name, .err = err};
    return read_series(&r, bytes, size);
}

tacit_status sensor_csv_discover(sensor_series *out, sensor_channel *channel, size_t *channels,
                                 const void *bytes, size_t size, const char *name, tacit_error *err)
{
    reader r = {.out = out,
                .channel = channel,
                .grows = channel,
                .channels = *channels,
                .name = name,
                .err = err};
    tacit_status status = read_series(&r, bytes, size);
    *channels = r.channels;
    return status;
}

void sensor_series_free(sensor_series *s)
{
    tacit_wipe_free(s->time);
    tacit_wipe_free(s->value);
    *s = (sensor_series){0};
}
