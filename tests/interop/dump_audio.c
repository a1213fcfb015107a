/* What the audio tower makes of a sound file, for check_audio.py: dump_audio MMPROJ SOUND [THREADS]
 * A line of JSON with the sizes and times, then frames and rows as fp32 in the machine's order. */
#include "common/file.h"
#include "common/pool.h"
#include "common/secret.h"
#include "engine/audio.h"
#include "engine/audio_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct dump {
    gguf_file *file;
    tacit_audio *audio;
    tacit_pool *pool;
    uint8_t *bytes;
    size_t size, n_frames;
    float *frames, *rows;
    audio_pass *pass;
} dump;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tacit_status run(dump *d, char **argv, size_t threads, pass_use use, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(gguf_open(&d->file, argv[1], err), done);
    TACIT_TRY(audio_load(&d->audio, d->file, err), done);
    TACIT_TRY(tacit_pool_new(&d->pool, threads, err), done);
    TACIT_TRY(tacit_file_read(argv[2], AUDIO_FILE_MAX_BYTES, &d->bytes, &d->size, err), done);
    double start = now();
    TACIT_TRY(audio_prepare(&d->frames, &d->n_frames, d->audio, d->bytes, d->size, argv[2], err),
              done);
    double prepared = now();
    const audio_shape *s = audio_get_shape(d->audio);
    size_t rows = audio_rows(d->audio, d->n_frames);
    d->rows = calloc(rows * s->out_width, sizeof *d->rows);
    if (!d->rows)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu rows", rows);
    TACIT_TRY(audio_pass_new(&d->pass, d->audio, 1, use, d->pool, err), done);
    audio_clip clip = {d->frames, d->n_frames};
    double passed = now();
    audio_forward(d->pass, NULL, &clip, 1, &d->rows);
    printf("{\"n_frames\":%zu,\"n_mel\":%u,\"rows\":%zu,\"out_width\":%u,\"prepare_ms\":%.1f,"
           "\"forward_ms\":%.1f}\n",
           d->n_frames, s->n_mel, rows, s->out_width, 1e3 * (prepared - start),
           1e3 * (now() - passed));
    fwrite(d->frames, sizeof(float), d->n_frames * s->n_mel, stdout);
    fwrite(d->rows, sizeof(float), rows * s->out_width, stdout);
done:
    return status;
}

int main(int argc, char **argv)
{
    dump d = {0};
    tacit_error err = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: dump_audio MMPROJ SOUND [THREADS [fast]]\n");
        return 2;
    }
    tacit_status status = run(&d, argv, argc > 3 ? strtoul(argv[3], NULL, 10) : 0,
                              argc > 4 ? PASS_FAST : PASS_EXACT, &err);
    if (status != TACIT_OK)
        fprintf(stderr, "dump_audio: %s\n", err.message);
    audio_pass_free(d.pass);
    tacit_pool_free(d.pool);
    tacit_wipe_free(d.frames);
    free(d.rows), free(d.bytes);
    audio_free(d.audio);
    gguf_close(d.file);
    return tacit_exit_code(status);
}
