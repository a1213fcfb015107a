/* Windows of sensor readings: one medium each, its rows between "<sensor>" and "</sensor>". */
#include "common/digest.h"
#include "engine/encoder_kind.h"
#include "engine/sensor.h"

#include <stdlib.h>

static tacit_status sensor_kind_load(void **self, const gguf_file *file, tacit_error *err)
{
    tacit_sensor *s;
    tacit_status status = sensor_load(&s, file, err);
    *self = s;
    return status;
}

static void sensor_kind_free(void *self)
{
    sensor_free(self);
}

static size_t sensor_kind_width(const void *self)
{
    return sensor_get_shape(self)->out_width;
}

static size_t sensor_kind_tensor_count(const void *self)
{
    return sensor_tensor_count(self);
}

static encoder_tensor sensor_kind_tensor_at(const void *self, size_t i)
{
    return *sensor_tensor_at(self, i);
}

/* The prepared values hold all that the encoder sees of file and constants; the start is that of
 * the rows' times. */
static void set_digest(tacit_media *media)
{
    size_t values = (size_t)media->dim[1] * media->dim[2];
    const tacit_span parts[] = {{(const uint8_t *)media->dim, sizeof media->dim},
                                {(const uint8_t *)&media->start, sizeof media->start},
                                {(const uint8_t *)media->values, values * sizeof *media->values}};
    tacit_digest_parts(media->digest, "tacit-window-1", parts, 3);
}

static tacit_status sensor_kind_lay_out(const void *self, const media_request *request,
                                        const media_sink *sink, tacit_error *err)
{
    sensor_window window;
    tacit_status status =
        sensor_prepare(&window, self, request->data, request->size, request->name, err);
    if (status != TACIT_OK)
        return status;
    tacit_media media = {.modality = TACIT_MODALITY_SENSOR,
                         .dim = {1, (uint32_t)window.patches, sensor_get_shape(self)->patch_values},
                         .values = window.values,
                         .n_rows = window.patches,
                         .start = window.start,
                         .row_seconds = window.patch_seconds};
    set_digest(&media);
    return sink->media(sink->ctx, &media);
}

static tacit_status sensor_kind_check(const void *self, const tacit_media *media, tacit_error *err)
{
    const sensor_shape *s = sensor_get_shape(self);
    if (media->dim[0] == 1 && media->dim[1] >= 1 && media->dim[1] <= s->max_patches &&
        media->dim[2] == s->patch_values && media->n_rows == media->dim[1])
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "expected a window of 1 to %u patches of %u values and as many rows, found "
                      "%u of %u for %zu",
                      s->max_patches, s->patch_values, media->dim[1], media->dim[2], media->n_rows);
}

typedef struct sensor_kind_pass {
    sensor_pass *pass;
    sensor_window *window; /* [max_media] */
} sensor_kind_pass;

static void sensor_kind_pass_free(void *pass)
{
    sensor_kind_pass *p = pass;
    sensor_pass_free(p->pass);
    free(p->window);
    free(p);
}

static tacit_status sensor_kind_pass_new(void **out, const void *self, size_t max_media,
                                         pass_use use, tacit_pool *pool, tacit_error *err)
{
    sensor_kind_pass *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p || !(p->window = calloc(max_media, sizeof *p->window))) {
        free(p);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu windows", max_media);
    }
    tacit_status status = sensor_pass_new(&p->pass, self, max_media, use == PASS_TRAIN, pool, err);
    if (status != TACIT_OK)
        sensor_kind_pass_free(p);
    else
        *out = p;
    return status;
}

static uint64_t sensor_kind_pass_bytes(const void *self, size_t max_media, pass_use use,
                                       tacit_pool *pool)
{
    (void)max_media;
    return sensor_pass_bytes(self, use == PASS_TRAIN, pool);
}

static tacit_status sensor_kind_pass_adapt(void *pass, const encoder_adapter *adapter,
                                           tacit_error *err)
{
    sensor_kind_pass *p = pass;
    return sensor_adapt(p->pass, adapter, err);
}

static void sensor_kind_forward(void *pass, const float *const *weights,
                                const tacit_media *const *media, size_t n, float *const *rows)
{
    sensor_kind_pass *p = pass;
    for (size_t i = 0; i < n; i++)
        p->window[i] = (sensor_window){.values = media[i]->values, .patches = media[i]->dim[1]};
    sensor_forward(p->pass, weights, p->window, n, rows);
}

static void sensor_kind_backward(void *pass, const float *const *d_rows, float *const *grads)
{
    sensor_kind_pass *p = pass;
    sensor_backward(p->pass, d_rows, grads);
}

const encoder_kind encoder_sensor = {
    .modality = TACIT_MODALITY_SENSOR,
    .content = TACIT_CONTENT_SENSOR,
    .word = "sensor",
    .begin = "<sensor>",
    .end = "</sensor>",
    .max_file = SENSOR_MAX_FILE,
    .load = sensor_kind_load,
    .free = sensor_kind_free,
    .width = sensor_kind_width,
    .tensor_count = sensor_kind_tensor_count,
    .tensor_at = sensor_kind_tensor_at,
    .lay_out = sensor_kind_lay_out,
    .check = sensor_kind_check,
    .pass_new = sensor_kind_pass_new,
    .pass_free = sensor_kind_pass_free,
    .pass_bytes = sensor_kind_pass_bytes,
    .pass_adapt = sensor_kind_pass_adapt,
    .forward = sensor_kind_forward,
    .backward = sensor_kind_backward,
};
