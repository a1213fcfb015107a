/* Any bytes as a sensor encoder's file: refused, or loaded and, where it is small, run on a window.
 */
#include "fuzz_target.h"

#include "engine/sensor.h"

#include <string.h>

bool fuzz_accepted;

static void run(const tacit_sensor *s)
{
    const sensor_shape *shape = sensor_get_shape(s);
    sensor_window w = {.patches = shape->max_patches};
    sensor_pass *pass;
    tacit_error err;
    float *rows = calloc((size_t)shape->max_patches * shape->out_width, sizeof *rows);
    w.values = calloc((size_t)shape->max_patches * shape->patch_values, sizeof *w.values);
    FUZZ_CHECK(rows && w.values);
    FUZZ_CHECK(sensor_pass_new(&pass, s, 1, false, NULL, &err) == TACIT_OK);
    sensor_forward(pass, NULL, &w, 1, &rows);
    sensor_pass_free(pass);
    free(w.values);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *file;
    tacit_sensor *s = NULL;
    tacit_error err;
    uint8_t *copy = malloc(size ? size : 1); /* aligned, and exactly as large */
    if (size)
        memcpy(copy, data, size);
    tacit_status status = gguf_open_memory(&file, copy, size, "fuzz", &err);
    if (status == TACIT_OK)
        status = sensor_load(&s, file, &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (s) {
        const sensor_shape *shape = sensor_get_shape(s);
        for (size_t i = 0; i < shape->channels; i++)
            FUZZ_CHECK(sensor_channels(s)[i].std > 0);
        if (shape->patch_values <= 4096 && shape->max_patches <= 64 && shape->width <= 256)
            run(s);
    }
    sensor_free(s);
    gguf_close(file);
    free(copy);
    return 0;
}
