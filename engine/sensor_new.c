#include "engine/sensor_new.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POSITION_DEVIATION 0.02

static void put_text(gguf_writer *w, const char *key, const char *text)
{
    gguf_put_string(w, key, text, strlen(text));
}

static void put_names(gguf_writer *w, const sensor_spec *s)
{
    gguf_string name[SENSOR_MAX_CHANNELS], unit[SENSOR_MAX_CHANNELS];
    for (uint32_t i = 0; i < s->channels; i++) {
        name[i] = (gguf_string){s->channel[i].name, strlen(s->channel[i].name)};
        unit[i] = (gguf_string){s->channel[i].unit, strlen(s->channel[i].unit)};
    }
    gguf_put_strings(w, "tacit.sensor.channels", name, s->channels);
    gguf_put_strings(w, "tacit.sensor.units", unit, s->channels);
}

static void put_constants(gguf_writer *w, const sensor_spec *s)
{
    float mean[SENSOR_MAX_CHANNELS], std[SENSOR_MAX_CHANNELS], gap[SENSOR_MAX_CHANNELS];
    for (uint32_t i = 0; i < s->channels; i++) {
        mean[i] = (float)s->channel[i].mean;
        std[i] = (float)s->channel[i].std;
        gap[i] = (float)s->channel[i].max_gap;
    }
    gguf_put_array(w, "tacit.sensor.mean", GGUF_F32, mean, s->channels);
    gguf_put_array(w, "tacit.sensor.std", GGUF_F32, std, s->channels);
    gguf_put_array(w, "tacit.sensor.max_gap", GGUF_F32, gap, s->channels);
}

void sensor_put_keys(gguf_writer *w, const sensor_spec *s)
{
    put_text(w, "general.architecture", SENSOR_ARCHITECTURE);
    put_text(w, "general.type", "mmproj");
    if (s->channels <= SENSOR_MAX_CHANNELS) {
        put_names(w, s);
        put_constants(w, s);
    }
    gguf_put_f32(w, "tacit.sensor.rate", (float)s->rate);
    gguf_put_u32(w, "tacit.sensor.patch_length", s->patch_length);
    gguf_put_u32(w, "tacit.sensor.max_patches", s->max_patches);
    if (s->lowpass)
        gguf_put_bool(w, "tacit.sensor.lowpass", true);
    if (s->begin)
        put_text(w, "tacit.media_begin", s->begin);
    if (s->end)
        put_text(w, "tacit.media_end", s->end);
}

/* SplitMix64 (Steele et al. 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Uniform with this deviation. */
static void put_random(gguf_writer *w, const char *name, uint64_t n_in, uint64_t n_out,
                       tacit_type type, double deviation, uint64_t *state)
{
    const uint64_t ne[] = {n_in, n_out};
    const tacit_type_traits *traits = tacit_type_find(type);
    float *values = malloc(n_in * n_out * sizeof *values);
    for (uint64_t i = 0; values && i < n_in * n_out; i++) {
        double u = (double)(next_random(state) >> 11) / 9007199254740992.0;
        values[i] = (float)(sqrt(3.0) * deviation * (2 * u - 1));
    }
    if (traits && n_in % traits->block_values != 0)
        type = TACIT_TYPE_F16;
    if (values)
        gguf_put_tensor(w, name, 2, ne, type, values);
    free(values);
}

static void put_zeros(gguf_writer *w, const char *name, uint64_t n)
{
    float *values = calloc(n, sizeof *values);
    if (values)
        gguf_put_tensor(w, name, 1, &n, TACIT_TYPE_F32, values);
    free(values);
}

void sensor_put_tensors(gguf_writer *w, const sensor_spec *s)
{
    uint64_t state = s->seed;
    uint64_t n_in = (uint64_t)2 * s->channels * s->patch_length;
    put_random(w, "s.patch_embd.weight", n_in, s->width, s->type, 1 / sqrt((double)n_in), &state);
    put_zeros(w, "s.patch_embd.bias", s->width);
    put_random(w, "s.position_embd.weight", s->width, s->max_patches, TACIT_TYPE_F32,
               POSITION_DEVIATION, &state);
    put_random(w, "mm.s.fc.weight", s->width, s->out_width, s->type, 1 / sqrt((double)s->width),
               &state);
    put_zeros(w, "mm.s.fc.bias", s->out_width);
}

/* What is written can be loaded: the reader is the judge of a spec. */
static tacit_status judge(gguf_writer *w, const char *path, tacit_error *err)
{
    uint8_t *data = NULL;
    size_t size;
    gguf_file *file = NULL;
    tacit_sensor *sensor = NULL;
    tacit_status status;
    TACIT_TRY(gguf_write_memory(w, &data, &size, err), done);
    TACIT_TRY(gguf_open_memory(&file, data, size, path, err), done);
    status = sensor_load(&sensor, file, err);
done:
    sensor_free(sensor);
    gguf_close(file);
    free(data);
    return status;
}

tacit_status sensor_write_new(const char *path, const sensor_spec *spec, tacit_error *err)
{
    uint64_t values = (uint64_t)2 * spec->channels * spec->patch_length;
    bool absurd = spec->channels > SENSOR_MAX_CHANNELS || values > (1u << 24) ||
                  spec->width > (1u << 16) || spec->out_width > (1u << 17) ||
                  spec->max_patches > (1u << 16);
    if (absurd)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: a sensor encoder of impossible size", path);
    gguf_writer *w = gguf_writer_new();
    if (!w)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", path);
    sensor_put_keys(w, spec);
    sensor_put_tensors(w, spec);
    tacit_status status = judge(w, path, err);
    if (status == TACIT_OK)
        status = gguf_write(w, path, err);
    gguf_writer_free(w);
    return status;
}
