/* Any bytes as readings of sensors: refused, or a window whose every value is finite and marked.
 * What is accepted is accepted again with CRLF for LF and gives the same window. */
#include "fuzz_target.h"

#include "common/secret.h"
#include "engine/sensor_new.h"

#include <math.h>
#include <string.h>

bool fuzz_accepted;

static tacit_sensor *encoder(void)
{
    static tacit_sensor *sensor;
    static const sensor_channel channel[] = {{"speed", "km/h", 60, 20, 0.3},
                                             {"rpm", "1/min", 2000, 500, 5}};
    const sensor_spec spec = {.channel = channel,
                              .channels = 2,
                              .rate = 10,
                              .patch_length = 8,
                              .max_patches = 64,
                              .width = 4,
                              .out_width = 4};
    static uint8_t *bytes; /* these three for the whole run */
    static gguf_file *file;
    size_t size;
    if (sensor)
        return sensor;
    gguf_writer *w = gguf_writer_new();
    sensor_put_keys(w, &spec);
    sensor_put_tensors(w, &spec);
    FUZZ_CHECK(gguf_write_memory(w, &bytes, &size, NULL) == TACIT_OK);
    gguf_writer_free(w);
    FUZZ_CHECK(gguf_open_memory(&file, bytes, size, "fuzz", NULL) == TACIT_OK);
    FUZZ_CHECK(sensor_load(&sensor, file, NULL) == TACIT_OK);
    return sensor;
}

static void check_patch(const float *patch, const sensor_shape *s)
{
    for (size_t c = 0; c < s->channels; c++)
        for (size_t t = 0; t < s->patch_length; t++) {
            float value = patch[2 * c * s->patch_length + t];
            float mask = patch[(2 * c + 1) * s->patch_length + t];
            FUZZ_CHECK(fabsf(value) <= (float)SENSOR_LIMIT);
            FUZZ_CHECK(mask == 1 || (mask == 0 && value == 0));
        }
}

static bool has_quotes_or_returns(const uint8_t *data, size_t size)
{
    return size > 0 && (memchr(data, '"', size) || memchr(data, '\r', size));
}

static void check_spelling(const sensor_window *w, const uint8_t *data, size_t size)
{
    const tacit_sensor *s = encoder();
    uint8_t *copy = malloc(2 * size + 1);
    sensor_window again;
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\n')
            copy[n++] = '\r';
        copy[n++] = data[i];
    }
    FUZZ_CHECK(sensor_prepare(&again, s, copy, n, "fuzz", NULL) == TACIT_OK);
    FUZZ_CHECK(again.patches == w->patches);
    FUZZ_CHECK(memcmp(again.values, w->values,
                      w->patches * sensor_get_shape(s)->patch_values * sizeof(float)) == 0);
    tacit_wipe_free(again.values);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tacit_sensor *s = encoder();
    const sensor_shape *shape = sensor_get_shape(s);
    sensor_window w;
    tacit_error err;
    uint8_t *copy = malloc(size ? size : 1); /* exactly as large */
    if (size)
        memcpy(copy, data, size);
    tacit_status status = sensor_prepare(&w, s, copy, size, "fuzz", &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (status == TACIT_OK) {
        FUZZ_CHECK(w.patches >= 1 && w.patches <= shape->max_patches);
        for (size_t p = 0; p < w.patches; p++)
            check_patch(w.values + p * shape->patch_values, shape);
        if (!has_quotes_or_returns(data, size))
            check_spelling(&w, data, size);
    }
    tacit_wipe_free(w.values);
    free(copy);
    return 0;
}
