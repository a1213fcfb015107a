/* Any bytes as an audio mmproj file: refused, or loaded and, where the tower is small, run on a
 * clip of a little more than one chunk, forward and backward. */
#include "fuzz_target.h"

#include "engine/audio.h"

#include <string.h>

bool fuzz_accepted;

static void run(const tacit_audio *a)
{
    const audio_shape *s = audio_get_shape(a);
    size_t frames = 2 * (size_t)s->positions + 3, tensors = audio_tensor_count(a);
    frames = frames < s->max_frames ? frames : s->max_frames;
    size_t values = audio_rows(a, frames) * s->out_width;
    audio_pass *pass;
    tacit_error err;
    float *mel = calloc(frames * s->n_mel, sizeof *mel), *rows = calloc(values, sizeof *rows);
    float **grads = calloc(tensors, sizeof *grads);
    audio_clip clip = {mel, frames};
    FUZZ_CHECK(mel && rows && grads);
    for (size_t i = 0; i < tensors; i++) {
        grads[i] = calloc(audio_tensor_at(a, i)->rows * audio_tensor_at(a, i)->cols, sizeof(float));
        FUZZ_CHECK(grads[i]);
    }
    FUZZ_CHECK(audio_pass_new(&pass, a, 1, PASS_TRAIN, NULL, &err) == TACIT_OK);
    audio_forward(pass, NULL, &clip, 1, &rows);
    audio_backward(pass, (const float *const *)&rows, grads);
    audio_pass_free(pass);
    for (size_t i = 0; i < tensors; i++)
        free(grads[i]);
    free(grads), free(mel), free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *file;
    tacit_audio *a = NULL;
    tacit_error err;
    uint8_t *copy = malloc(size ? size : 1); /* aligned, and exactly as large */
    if (size)
        memcpy(copy, data, size);
    tacit_status status = gguf_open_memory(&file, copy, size, "fuzz", &err);
    if (status == TACIT_OK)
        status = audio_load(&a, file, &err);
    FUZZ_CHECK(status == TACIT_OK || status == TACIT_BAD_INPUT);
    fuzz_accepted = status == TACIT_OK;
    if (a) {
        const audio_shape *s = audio_get_shape(a);
        if (s->positions <= 64 && s->width <= 64 && s->ff <= 256 && s->middle <= 256 &&
            s->out_width <= 256 && s->layers <= 8)
            run(a);
    }
    audio_free(a);
    gguf_close(file);
    free(copy);
    return 0;
}
