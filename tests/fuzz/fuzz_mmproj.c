/* Any bytes as an mmproj file: refused, or loaded and, where the tower is small, run on a picture.
 */
#include "fuzz_target.h"

#include "engine/vision.h"

#include <string.h>

bool fuzz_accepted;

static void run(const tacit_vision *v)
{
    const vision_shape *s = vision_get_shape(v);
    vision_pass *pass;
    tacit_error err;
    float *pixels = calloc((size_t)3 * s->image_size * s->image_size, sizeof *pixels);
    float *rows = calloc((size_t)s->rows * s->out_width, sizeof *rows);
    FUZZ_CHECK(pixels && rows);
    FUZZ_CHECK(vision_pass_new(&pass, v, 1, false, NULL, &err) == TACIT_OK);
    vision_forward(pass, NULL, (const float *const *)&pixels, 1, rows);
    vision_pass_free(pass);
    free(pixels);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *file;
    tacit_vision *v = NULL;
    tacit_error err;
    uint8_t *copy = malloc(size ? size : 1); /* aligned, and exactly as large */
    if (size)
        memcpy(copy, data, size);
    tacit_status status = gguf_open_memory(&file, copy, size, "fuzz", &err);
    if (status == TACIT_OK)
        status = vision_load(&v, file, &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (v) {
        const vision_shape *s = vision_get_shape(v);
        if (s->image_size <= 64 && s->patches <= 64 && s->width <= 64 && s->ff <= 256)
            run(v);
    }
    vision_free(v);
    gguf_close(file);
    free(copy);
    return 0;
}
