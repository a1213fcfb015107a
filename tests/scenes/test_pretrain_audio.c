/* nano's audio pair before training: its shape and size, the same bytes everywhere, and rows that
 * training can start from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/secret.h"
#include "engine/audio.h"
#include "engine/audio_mel.h"
#include "scenes/pretrain_start_audio.h"
#include "scenes/scene_prng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES ((size_t)64000) /* 4 s */

static char folder[] = "/tmp/tacit-pretrain-audio-XXXXXX";
static char path[64], other[64];
static gguf_file *file;
static tacit_audio *audio;

static int make(void **state)
{
    tacit_error err;
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/mmproj-audio.gguf", folder);
    snprintf(other, sizeof other, "%s/other.gguf", folder);
    if (pretrain_write_start_audio(path, TACIT_TYPE_F16, 1, &err) == TACIT_OK &&
        gguf_open(&file, path, &err) == TACIT_OK && audio_load(&audio, file, &err) == TACIT_OK)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return -1;
}

static int destroy(void **state)
{
    (void)state;
    audio_free(audio);
    gguf_close(file);
    unlink(path);
    unlink(other);
    return rmdir(folder);
}

static void start_has_nanos_shape(void **state)
{
    (void)state;
    const audio_shape *s = audio_get_shape(audio);
    assert_int_equal(s->width, 64);
    assert_int_equal(s->layers, 2);
    assert_int_equal(s->out_width, 128);
    assert_int_equal(s->max_frames, 400);
    assert_true(s->unpadded);
    assert_int_equal(audio_rows(audio, 400), 25);
    assert_int_equal(audio_rows(audio, 100), 7);
}

static void expect_same(const char *first, const char *second, bool same)
{
    uint8_t *a, *b;
    size_t na, nb;
    tacit_error err;
    assert_int_equal(tacit_file_read(first, 1 << 24, &a, &na, &err), TACIT_OK);
    assert_int_equal(tacit_file_read(second, 1 << 24, &b, &nb, &err), TACIT_OK);
    assert_true(na <= 300 * 1000);
    assert_int_equal(na, nb);
    assert_true((memcmp(a, b, na) == 0) == same);
    free(a);
    free(b);
}

static void seeds_decide_the_bytes(void **state)
{
    tacit_error err;
    (void)state;
    assert_int_equal(pretrain_write_start_audio(other, TACIT_TYPE_F16, 1, &err), TACIT_OK);
    expect_same(path, other, true);
    assert_int_equal(pretrain_write_start_audio(other, TACIT_TYPE_F16, 2, &err), TACIT_OK);
    expect_same(path, other, false);
}

/* 25 rows of a sound of 4 s. */
static float *rows_of(const float *samples)
{
    const audio_shape *s = audio_get_shape(audio);
    audio_pass *pass;
    audio_clip clip = {NULL, 400};
    float *mel, *rows = calloc((size_t)25 * s->out_width, sizeof *rows);
    assert_int_equal(audio_mel(&mel, samples, SAMPLES, 1, s->n_mel, NULL), TACIT_OK);
    clip.mel = mel;
    assert_int_equal(audio_pass_new(&pass, audio, 1, PASS_EXACT, NULL, NULL), TACIT_OK);
    audio_forward(pass, NULL, &clip, 1, &rows);
    audio_pass_free(pass);
    tacit_wipe_free(mel);
    return rows;
}

/* Of the size of nano's token embeddings, and a tone is not a noise. */
static void rows_are_a_start(void **state)
{
    (void)state;
    const size_t n = (size_t)25 * audio_get_shape(audio)->out_width;
    float *tone = malloc(SAMPLES * sizeof *tone), *noise = malloc(SAMPLES * sizeof *noise);
    scene_prng prng = scene_prng_make(3, "noise", 0);
    for (size_t i = 0; i < SAMPLES; i++) {
        tone[i] = (float)(0.3 * sin(2 * M_PI * 880 * (double)i / AUDIO_RATE));
        noise[i] = (float)scene_prng_between(&prng, -0.3, 0.3);
    }
    float *a = rows_of(tone), *b = rows_of(noise);
    double size = 0, apart = 0;
    for (size_t i = 0; i < n; i++) {
        size += (double)a[i] * (double)a[i] / (double)n;
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]) / (double)n;
    }
    assert_true(sqrt(size) > 0.025 && sqrt(size) < 0.1);
    assert_true(sqrt(apart) > 0.25 * sqrt(size));
    free(tone), free(noise), free(a), free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_has_nanos_shape),
        cmocka_unit_test(seeds_decide_the_bytes),
        cmocka_unit_test(rows_are_a_start),
    };
    return cmocka_run_group_tests(tests, make, destroy);
}
