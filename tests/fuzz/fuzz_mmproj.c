/* Any bytes as an mmproj file: refused, or loaded and, where the tower is small, run on a picture.
 */
#include "fuzz_target.h"

#include "engine/encoder_kind.h"
#include "engine/vision_picture.h"

#include <string.h>

bool fuzz_accepted;

/* A picture of width x height; 0 x 0: one frame. */
static void run(tacit_vision *v, uint32_t width, uint32_t height)
{
    const vision_shape *s = vision_get_shape(v);
    vision_arrangement a;
    tacit_error err;
    void *pass;
    vision_arrange(&a, s, width, height);
    FUZZ_CHECK(a.frames >= 1 && a.frames <= MEDIA_MAX_FRAMES);
    tacit_media media = {.dim = {(uint32_t)(3 * a.frames), s->image_size, s->image_size},
                         .extent = {width, height},
                         .n_rows = a.total};
    const tacit_media *one = &media;
    media.values =
        calloc(a.frames, (size_t)3 * s->image_size * s->image_size * sizeof *media.values);
    float *rows = calloc(a.total, s->out_width * sizeof *rows);
    FUZZ_CHECK(media.values && rows);
    FUZZ_CHECK(encoder_image.check(v, &media, &err) == TACIT_OK);
    FUZZ_CHECK(encoder_image.pass_new(&pass, v, 1, PASS_EXACT, NULL, &err) == TACIT_OK);
    encoder_image.forward(pass, NULL, &one, 1, &rows);
    encoder_image.pass_free(pass);
    free(media.values);
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
        if (s->image_size <= 64 && s->patches <= 64 && s->width <= 64 && s->ff <= 256 &&
            s->out_width <= 256 && s->patches * s->features <= 256)
            run(v, size % 97, size % 89);
    }
    vision_free(v);
    gguf_close(file);
    free(copy);
    return 0;
}
