#include "common/bytes.h"
#include "common/text.h"
#include "engine/sensor_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "tacit.sensor."
#define MAX_PATCH_LENGTH 4096
#define MAX_PATCHES 4096
#define MAX_WIDTH 8192
#define MAX_OUT 65536
#define MAX_WINDOW_VALUES ((size_t)4 << 20)
#define MAX_STATES ((size_t)16 << 20)  /* max_patches * width */
#define CACHE_VALUES ((size_t)4 << 20) /* smaller weights keep fp32 copies */

typedef struct sensor_loader {
    tacit_sensor *s;
    const gguf_file *file;
    tacit_error *err;
} sensor_loader;

static tacit_status missing(const sensor_loader *l, const char *key)
{
    return tacit_fail(l->err, TACIT_BAD_INPUT, "%s: key %s is missing", gguf_name(l->file), key);
}

static tacit_status get_size(sensor_loader *l, const char *key, uint32_t max, uint32_t *out)
{
    uint64_t v = 0;
    tacit_status status = gguf_get_u64(l->file, key, 1, max, &v, l->err);
    *out = (uint32_t)v;
    return status == TACIT_NOT_FOUND ? missing(l, key) : status;
}

/* ---- channels ---- */

static tacit_status copy_text(const sensor_loader *l, const char *key, size_t i, char *out)
{
    gguf_string s = gguf_array_string(l->file, key, i);
    if (!s.data || s.size > SENSOR_MAX_NAME || !tacit_text_is_plain(s.data, s.size))
        return tacit_fail(l->err, TACIT_BAD_INPUT,
                          "%s: %s[%zu] is no text of at most %d bytes without control characters",
                          gguf_name(l->file), key, i, SENSOR_MAX_NAME);
    memcpy(out, s.data, s.size);
    out[s.size] = '\0';
    return TACIT_OK;
}

static tacit_status check_name(const sensor_loader *l, size_t i)
{
    const sensor_channel *c = l->s->channel;
    bool usable = c[i].name[0] && strcmp(c[i].name, "time") != 0 && strcmp(c[i].name, "t") != 0;
    for (size_t j = 0; j < i; j++)
        usable = usable && strcmp(c[i].name, c[j].name) != 0;
    if (usable)
        return TACIT_OK;
    return tacit_fail(l->err, TACIT_BAD_INPUT,
                      "%s: channel %zu is '%s': expected a name of its own, not time or t",
                      gguf_name(l->file), i, c[i].name);
}

static tacit_status read_names(sensor_loader *l)
{
    const char *key = PREFIX "channels";
    size_t count = 0;
    tacit_status status = gguf_get_array(l->file, key, GGUF_STRING, &count, l->err);
    if (status == TACIT_NOT_FOUND)
        return missing(l, key);
    if (status != TACIT_OK)
        return status;
    if (count < 1 || count > SENSOR_MAX_CHANNELS)
        return tacit_fail(l->err, TACIT_BAD_INPUT, "%s: %s has %zu names: expected 1 to %d",
                          gguf_name(l->file), key, count, SENSOR_MAX_CHANNELS);
    l->s->shape.channels = (uint32_t)count;
    for (size_t i = 0; i < count && status == TACIT_OK; i++) {
        status = copy_text(l, key, i, l->s->channel[i].name);
        if (status == TACIT_OK)
            status = check_name(l, i);
    }
    return status;
}

static tacit_status expect_count(const sensor_loader *l, const char *key, gguf_value_type element)
{
    size_t count = 0;
    tacit_status status = gguf_get_array(l->file, key, element, &count, l->err);
    if (status != TACIT_OK)
        return status;
    if (count == l->s->shape.channels)
        return TACIT_OK;
    return tacit_fail(l->err, TACIT_BAD_INPUT,
                      "%s: %s has %zu values: expected one for each of %u "
                      "channels",
                      gguf_name(l->file), key, count, l->s->shape.channels);
}

static tacit_status read_units(sensor_loader *l)
{
    const char *key = PREFIX "units";
    tacit_status status = expect_count(l, key, GGUF_STRING);
    if (status == TACIT_NOT_FOUND)
        return TACIT_OK;
    for (size_t i = 0; i < l->s->shape.channels && status == TACIT_OK; i++)
        status = copy_text(l, key, i, l->s->channel[i].unit);
    return status;
}

static const struct {
    const char *key;
    bool positive;
    size_t offset;
} constants[] = {
    {PREFIX "mean", false, offsetof(sensor_channel, mean)},
    {PREFIX "std", true, offsetof(sensor_channel, std)},
    {PREFIX "max_gap", true, offsetof(sensor_channel, max_gap)},
};

/* Numbers whose quotients stay far from what a float holds. */
static bool is_sane(double v, bool positive)
{
    return fabs(v) <= 1e12 && (!positive || v >= 1e-12);
}

static tacit_status read_constants(sensor_loader *l, size_t k)
{
    const char *key = constants[k].key;
    tacit_status status = expect_count(l, key, GGUF_F32);
    if (status == TACIT_NOT_FOUND)
        return missing(l, key);
    for (size_t i = 0; i < l->s->shape.channels && status == TACIT_OK; i++) {
        double v = gguf_array_number(l->file, key, i);
        if (!is_sane(v, constants[k].positive))
            return tacit_fail(
                l->err, TACIT_BAD_INPUT, "%s: %s[%zu] is %g: expected a %s number up to 1e12",
                gguf_name(l->file), key, i, v, constants[k].positive ? "positive" : "finite");
        *(double *)(void *)((char *)&l->s->channel[i] + constants[k].offset) = v;
    }
    return status;
}

/* ---- sizes ---- */

static tacit_status read_rate(sensor_loader *l)
{
    const char *key = PREFIX "rate";
    tacit_status status = gguf_get_f64(l->file, key, &l->s->shape.rate, l->err);
    if (status == TACIT_NOT_FOUND)
        return missing(l, key);
    if (status == TACIT_OK && !(l->s->shape.rate >= 1e-6 && l->s->shape.rate <= 1e6))
        return tacit_fail(l->err, TACIT_BAD_INPUT, "%s: %s is %g: expected 1e-6 to 1e6 a second",
                          gguf_name(l->file), key, l->s->shape.rate);
    return status;
}

static tacit_status read_lowpass(sensor_loader *l)
{
    tacit_status status = gguf_get_bool(l->file, PREFIX "lowpass", &l->s->shape.lowpass, l->err);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

static tacit_status check_sizes(const sensor_loader *l)
{
    const sensor_shape *s = &l->s->shape;
    size_t window = (size_t)s->patch_values * s->max_patches;
    if (window > MAX_WINDOW_VALUES)
        return tacit_fail(l->err, TACIT_BAD_INPUT,
                          "%s: windows of %zu values: at most %zu are supported",
                          gguf_name(l->file), window, MAX_WINDOW_VALUES);
    if ((size_t)s->width * s->max_patches > MAX_STATES)
        return tacit_fail(l->err, TACIT_BAD_INPUT,
                          "%s: %u patches of width %u: at most %zu values are supported",
                          gguf_name(l->file), s->max_patches, s->width, MAX_STATES);
    return TACIT_OK;
}

/* Widths are those of the tensors. */
static tacit_status read_width(sensor_loader *l, const char *tensor, uint32_t max, uint32_t *out)
{
    const gguf_tensor *t = gguf_tensor_find(l->file, tensor);
    if (!t)
        return tacit_fail(l->err, TACIT_BAD_INPUT, "%s: tensor %s is missing; incomplete file",
                          gguf_name(l->file), tensor);
    if (t->ne[1] < 1 || t->ne[1] > max)
        return tacit_fail(l->err, TACIT_BAD_INPUT,
                          "%s: tensor %s has %" PRIu64 " outputs: expected 1 to %u",
                          gguf_name(l->file), tensor, t->ne[1], max);
    *out = (uint32_t)t->ne[1];
    return TACIT_OK;
}

static tacit_status read_shape(sensor_loader *l)
{
    sensor_shape *s = &l->s->shape;
    tacit_status status;
    TACIT_TRY(read_names(l), done);
    TACIT_TRY(read_units(l), done);
    for (size_t k = 0; k < sizeof constants / sizeof constants[0]; k++)
        TACIT_TRY(read_constants(l, k), done);
    TACIT_TRY(read_rate(l), done);
    TACIT_TRY(read_lowpass(l), done);
    TACIT_TRY(get_size(l, PREFIX "patch_length", MAX_PATCH_LENGTH, &s->patch_length), done);
    TACIT_TRY(get_size(l, PREFIX "max_patches", MAX_PATCHES, &s->max_patches), done);
    s->patch_values = 2 * s->channels * s->patch_length;
    TACIT_TRY(read_width(l, "s.patch_embd.weight", MAX_WIDTH, &s->width), done);
    TACIT_TRY(read_width(l, "mm.s.fc.weight", MAX_OUT, &s->out_width), done);
    status = check_sizes(l);
done:
    return status;
}

/* ---- tensors ---- */

static tacit_status take(sensor_loader *l, sensor_part part, const char *name, size_t rows,
                         size_t cols)
{
    const gguf_tensor *t = gguf_tensor_find(l->file, name);
    if (!t)
        return tacit_fail(l->err, TACIT_BAD_INPUT, "%s: tensor %s is missing; incomplete file",
                          gguf_name(l->file), name);
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != 1 || t->ne[3] != 1)
        return tacit_fail(l->err, TACIT_BAD_INPUT,
                          "%s: tensor %s: expected shape [%zu, %zu], found [%" PRIu64 ", %" PRIu64
                          ", %" PRIu64 ", %" PRIu64 "]",
                          gguf_name(l->file), name, cols, rows, t->ne[0], t->ne[1], t->ne[2],
                          t->ne[3]);
    if (!t->traits)
        return tacit_type_refuse(gguf_name(l->file), name, t->type, l->err);
    l->s->tensor[part] = (encoder_tensor){.name = t->name,
                                          .data = t,
                                          .rows = rows,
                                          .cols = cols,
                                          .projector = part == SENSOR_FC || part == SENSOR_FC_BIAS,
                                          .linear = part == SENSOR_PATCH || part == SENSOR_FC};
    return TACIT_OK;
}

static tacit_status take_all(sensor_loader *l)
{
    const sensor_shape *s = &l->s->shape;
    const struct {
        const char *name;
        size_t rows, cols;
    } expected[SENSOR_PARTS] = {
        [SENSOR_PATCH] = {"s.patch_embd.weight", s->width, s->patch_values},
        [SENSOR_PATCH_BIAS] = {"s.patch_embd.bias", 1, s->width},
        [SENSOR_POSITION] = {"s.position_embd.weight", s->max_patches, s->width},
        [SENSOR_FC] = {"mm.s.fc.weight", s->out_width, s->width},
        [SENSOR_FC_BIAS] = {"mm.s.fc.bias", 1, s->out_width},
    };
    tacit_status status = TACIT_OK;
    for (sensor_part i = 0; i < SENSOR_PARTS && status == TACIT_OK; i++)
        status = take(l, i, expected[i].name, expected[i].rows, expected[i].cols);
    if (status == TACIT_OK && gguf_tensor_count(l->file) != SENSOR_PARTS)
        status = tacit_fail(l->err, TACIT_BAD_INPUT, "%s: %zu tensors: expected %d",
                            gguf_name(l->file), gguf_tensor_count(l->file), SENSOR_PARTS);
    return status;
}

static tacit_status make_plain(sensor_loader *l, sensor_part part)
{
    return gguf_tensor_values(l->file, l->s->tensor[part].data, &l->s->plain[part], l->err);
}

static tacit_status make_linear(sensor_loader *l, sensor_part part)
{
    tacit_linear *linear = &l->s->linear[part];
    const encoder_tensor *t = &l->s->tensor[part];
    tacit_status status =
        linear_init(linear, t->data, l->s->plain[part + 1], t->cols, t->rows, l->err);
    if (status != TACIT_OK || t->rows * t->cols > CACHE_VALUES)
        return status;
    status = linear_cache_judge(t->rows * t->cols, l->err);
    if (status != TACIT_OK)
        return status;
    status = linear_cache(linear);
    return status == TACIT_OK ? status
                              : tacit_fail(l->err, status, "%s: no memory for tensor %s",
                                           gguf_name(l->file), t->name);
}

tacit_status sensor_load(tacit_sensor **out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    sensor_loader l = {calloc(1, sizeof *l.s), file, err};
    *out = NULL;
    if (!l.s)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a sensor encoder");
    TACIT_TRY(read_shape(&l), failed);
    TACIT_TRY(take_all(&l), failed);
    TACIT_TRY(make_plain(&l, SENSOR_PATCH_BIAS), failed);
    TACIT_TRY(make_plain(&l, SENSOR_POSITION), failed);
    TACIT_TRY(make_plain(&l, SENSOR_FC_BIAS), failed);
    TACIT_TRY(make_linear(&l, SENSOR_PATCH), failed);
    TACIT_TRY(make_linear(&l, SENSOR_FC), failed);
    *out = l.s;
    return TACIT_OK;
failed:
    sensor_free(l.s);
    return status;
}

void sensor_free(tacit_sensor *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < SENSOR_PARTS; i++) {
        linear_drop_cache(&s->linear[i]);
        free(s->plain[i]);
    }
    free(s);
}

const sensor_shape *sensor_get_shape(const tacit_sensor *s)
{
    return &s->shape;
}

const sensor_channel *sensor_channels(const tacit_sensor *s)
{
    return s->channel;
}

size_t sensor_tensor_count(const tacit_sensor *s)
{
    (void)s;
    return SENSOR_PARTS;
}

const encoder_tensor *sensor_tensor_at(const tacit_sensor *s, size_t i)
{
    return &s->tensor[i];
}
