#include "common/file.h"
#include "common/json_print.h"
#include "common/log.h"
#include "common/options.h"
#include "engine/commands.h"
#include "engine/model.h"
#include "engine/sensor_new.h"
#include "engine/sensor_stats.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct settings {
    const char *model, *data, *out, *channels;
    double rate, seconds, gap;
    uint64_t patch, width, seed;
    bool raw, json;
} settings;

static tacit_status name_channel(sensor_stats *s, const char *text, size_t size, tacit_error *err)
{
    const char *colon = memchr(text, ':', size);
    size_t name = colon ? (size_t)(colon - text) : size, unit = size - name - (colon ? 1 : 0);
    if (s->channels == SENSOR_MAX_CHANNELS || name == 0 || name > SENSOR_MAX_NAME ||
        unit > SENSOR_MAX_NAME)
        return tacit_fail(
            err, TACIT_USAGE,
            "--channels '%.*s': expected at most %d names of 1 to %d bytes, each with "
            "':unit' behind it or not, and commas between",
            (int)(size < 64 ? size : 64), text, SENSOR_MAX_CHANNELS, SENSOR_MAX_NAME);
    sensor_channel *c = &s->channel[s->channels++];
    memcpy(c->name, text, name);
    if (colon)
        memcpy(c->unit, colon + 1, unit);
    return TACIT_OK;
}

/* "speed:km/h,rpm": without the option the data names the channels. */
static tacit_status read_channels(sensor_stats *s, const char *list, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    s->takes_new = list == NULL;
    for (const char *at = list; at && status == TACIT_OK;) {
        size_t size = strcspn(at, ",");
        status = name_channel(s, at, size, err);
        at = at[size] ? at + size + 1 : NULL;
    }
    return status;
}

static tacit_status read_data(sensor_stats *s, const settings *o, tacit_error *err)
{
    tacit_dataset data;
    tacit_status status = read_channels(s, o->channels, err);
    if (status == TACIT_OK)
        status = tacit_status_of_input(tacit_dataset_load(&data, o->data, false, err), err);
    if (status != TACIT_OK)
        return status;
    status = sensor_stats_add_dataset(s, &data, err);
    tacit_dataset_free(&data);
    for (size_t i = 0; i < s->channels && status == TACIT_OK; i++) {
        s->channel[i].max_gap = o->gap > 0 ? o->gap : 5 / o->rate;
        if (s->readings[i] == 0)
            tacit_log_warn("%s: channel '%s' has no reading: its mean is 0, its deviation 1",
                           o->data, s->channel[i].name);
    }
    return status;
}

/* The vocabulary's marks around a window, where it has them. */
static const char *mark_of(const tacit_model *m, const char *mark)
{
    return tacit_tokenizer_find(tacit_model_tokenizer(m), mark) >= 0 ? mark : NULL;
}

static tacit_status write_file(const sensor_stats *s, const settings *o, tacit_error *err)
{
    tacit_model *m;
    tacit_status status = tacit_model_load(&m, o->model, NULL, 0, NULL, err);
    if (status != TACIT_OK)
        return tacit_status_of_input(status, err);
    double seconds = o->seconds > 0 ? o->seconds : s->longest;
    double patches = floor((floor(seconds * o->rate) + (double)o->patch) / (double)o->patch);
    const sensor_spec spec = {.channel = s->channel,
                              .channels = (uint32_t)s->channels,
                              .rate = o->rate,
                              .patch_length = (uint32_t)o->patch,
                              .max_patches = patches < 1e9 ? (uint32_t)patches : UINT32_MAX,
                              .width = (uint32_t)o->width,
                              .lowpass = !o->raw,
                              .out_width = (uint32_t)tacit_model_embedding(m),
                              .begin = mark_of(m, "<sensor>"),
                              .end = mark_of(m, "</sensor>"),
                              .type = TACIT_TYPE_F32,
                              .seed = o->seed};
    status = sensor_write_new(o->out, &spec, err);
    tacit_model_free(m);
    return status;
}

static tacit_status print_json(const sensor_stats *s, const settings *o, tacit_error *err)
{
    json_t *channels = json_array();
    for (size_t i = 0; i < s->channels; i++)
        json_array_append_new(
            channels, json_pack("{s:s, s:s, s:f, s:f, s:I}", "name", s->channel[i].name, "unit",
                                s->channel[i].unit, "mean", s->channel[i].mean, "std",
                                s->channel[i].std, "readings", (json_int_t)s->readings[i]));
    json_t *all =
        json_pack("{s:o, s:I, s:f, s:o}", "out", tacit_json_name(o->out), "windows",
                  (json_int_t)s->windows, "longest_seconds", s->longest, "channels", channels);
    return tacit_json_print(all, TACIT_JSON_DIGITS, err);
}

static tacit_status print_text(const sensor_stats *s, const settings *o)
{
    printf("%s: %zu channels from %zu windows of at most %g seconds\n", o->out, s->channels,
           s->windows, s->longest);
    for (size_t i = 0; i < s->channels; i++)
        printf("  %-20s mean %-12.6g deviation %-12.6g %s\n", s->channel[i].name,
               s->channel[i].mean, s->channel[i].std, s->channel[i].unit);
    return TACIT_OK;
}

tacit_status cmd_sensor_new(int argc, char **argv, tacit_error *err)
{
    static sensor_stats stats;
    settings o = {.patch = 20, .width = 128, .seed = 1};
    bool help;
    const tacit_option table[] = {
        {"model", 'm', TACIT_OPTION_TEXT, &o.model, true, "TEXT.gguf",
         "text model that the rows are for", 0, 0},
        {"data", 0, TACIT_OPTION_TEXT, &o.data, true, "D.jsonl",
         "its CSV files give channels, means and deviations", 0, 0},
        {"rate", 0, TACIT_OPTION_REAL, &o.rate, true, "HZ", "samples a second of the model's grid",
         1e-6, 1e6},
        {"out", 'o', TACIT_OPTION_TEXT, &o.out, true, "F.gguf", "the new file, for --mmproj", 0, 0},
        {"channels", 0, TACIT_OPTION_TEXT, &o.channels, false, "A:UNIT,B",
         "these, in this order, with units for people (default: the data's)", 0, 0},
        {"seconds", 0, TACIT_OPTION_REAL, &o.seconds, false, "S",
         "longest window (default: the data's)", 1e-6, 1e9},
        {"gap", 0, TACIT_OPTION_REAL, &o.gap, false, "S",
         "readings at most so far apart are bridged (default: 5 samples)", 1e-9, 1e9},
        {"patch", 0, TACIT_OPTION_U64, &o.patch, false, "N", "samples a row (20)", 1, 4096},
        {"width", 0, TACIT_OPTION_U64, &o.width, false, "N", "of the hidden layer (128)", 1, 8192},
        {"raw", 0, TACIT_OPTION_FLAG, &o.raw, false, NULL,
         "readings faster than the grid are not filtered", 0, 0},
        {"seed", 0, TACIT_OPTION_U64, &o.seed, false, "S", "of the first weights (1)", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &o.json, false, NULL,
         "one JSON object: out, windows, longest_seconds, channels", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit sensor new", NULL, 0, 0,
                               "writes a sensor encoder that training starts from"};
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), done);
    if (help)
        return TACIT_OK;
    const char *const source[] = {o.model, o.data};
    TACIT_TRY(tacit_file_check_results(&o.out, 1, source, 2, err), done);
    TACIT_TRY(read_data(&stats, &o, err), done);
    TACIT_TRY(write_file(&stats, &o, err), done);
    status = o.json ? print_json(&stats, &o, err) : print_text(&stats, &o);
done:
    return status;
}
