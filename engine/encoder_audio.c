/* Clips of sound: one medium each. Ultravox has nothing around its rows; "[BEGIN_AUDIO]" stands
 * before them where the vocabulary has that token, as the peers write it. */
#include "common/digest.h"
#include "engine/audio.h"
#include "engine/audio_file.h"
#include "engine/encoder_kind.h"

#include <stdlib.h>

static tacit_status audio_kind_load(void **self, const gguf_file *file, tacit_error *err)
{
    tacit_audio *a = NULL;
    tacit_status status = audio_load(&a, file, err);
    *self = a;
    return status;
}

static void audio_kind_free(void *self)
{
    audio_free(self);
}

static size_t audio_kind_width(const void *self)
{
    return audio_get_shape(self)->out_width;
}

static size_t audio_kind_tensor_count(const void *self)
{
    return audio_tensor_count(self);
}

static encoder_tensor audio_kind_tensor_at(const void *self, size_t i)
{
    return *audio_tensor_at(self, i);
}

/* The mel frames hold all that the encoder sees of the file and of the front end. */
static void set_digest(tacit_media *media)
{
    size_t values = (size_t)media->dim[1] * media->dim[2];
    const tacit_span parts[] = {{(const uint8_t *)media->dim, sizeof media->dim},
                                {(const uint8_t *)media->values, values * sizeof *media->values}};
    tacit_digest_parts(media->digest, "tacit-clip-1", parts, 2);
}

static tacit_status audio_kind_lay_out(const void *self, const media_request *request,
                                       const media_sink *sink, tacit_error *err)
{
    const audio_shape *shape = audio_get_shape(self);
    float *frames = NULL;
    size_t n_frames = 0;
    tacit_status status =
        audio_prepare(&frames, &n_frames, self, request->data, request->size, request->name, err);
    if (status != TACIT_OK)
        return status;
    /* A chunk's last row may be shorter than the others: times are off by less than a row a chunk.
     */
    tacit_media media = {.modality = TACIT_MODALITY_AUDIO,
                         .dim = {1, (uint32_t)n_frames, shape->n_mel},
                         .values = frames,
                         .n_rows = audio_rows(self, n_frames),
                         .row_seconds = 2.0 * shape->stack * AUDIO_HOP / AUDIO_RATE};
    set_digest(&media);
    return sink->media(sink->ctx, &media);
}

static tacit_status audio_kind_check(const void *self, const tacit_media *media, tacit_error *err)
{
    const audio_shape *s = audio_get_shape(self);
    bool fits = media->dim[0] == 1 && media->dim[1] >= 1 && media->dim[1] <= s->max_frames &&
                media->dim[2] == s->n_mel;
    if (fits && media->n_rows == audio_rows(self, media->dim[1]))
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "expected a clip of 1 to %u frames of %u mel bins and its rows, found %u of "
                      "%u for %zu rows",
                      s->max_frames, s->n_mel, media->dim[1], media->dim[2], media->n_rows);
}

typedef struct audio_kind_pass {
    audio_pass *pass;
    audio_clip *clip; /* [max_media] */
} audio_kind_pass;

static void audio_kind_pass_free(void *pass)
{
    audio_kind_pass *p = pass;
    audio_pass_free(p->pass);
    free(p->clip);
    free(p);
}

static tacit_status audio_kind_pass_new(void **out, const void *self, size_t max_media,
                                        pass_use use, tacit_pool *pool, tacit_error *err)
{
    audio_kind_pass *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p || !(p->clip = calloc(max_media, sizeof *p->clip))) {
        free(p);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu clips", max_media);
    }
    tacit_status status = audio_pass_new(&p->pass, self, max_media, use, pool, err);
    if (status != TACIT_OK)
        audio_kind_pass_free(p);
    else
        *out = p;
    return status;
}

static uint64_t audio_kind_pass_bytes(const void *self, size_t max_media, pass_use use,
                                      tacit_pool *pool)
{
    return audio_pass_bytes(self, max_media, use == PASS_TRAIN, pool);
}

static tacit_status audio_kind_pass_adapt(void *pass, const encoder_adapter *adapter,
                                          tacit_error *err)
{
    audio_kind_pass *p = pass;
    return audio_adapt(p->pass, adapter, err);
}

static void audio_kind_forward(void *pass, const float *const *weights,
                               const tacit_media *const *media, size_t n, float *const *rows)
{
    audio_kind_pass *p = pass;
    for (size_t i = 0; i < n; i++)
        p->clip[i] = (audio_clip){.mel = media[i]->values, .n_frames = media[i]->dim[1]};
    audio_forward(p->pass, weights, p->clip, n, rows);
}

static void audio_kind_backward(void *pass, const float *const *d_rows, float *const *grads)
{
    audio_kind_pass *p = pass;
    audio_backward(p->pass, d_rows, grads);
}

const encoder_kind encoder_audio = {
    .modality = TACIT_MODALITY_AUDIO,
    .content = TACIT_CONTENT_AUDIO,
    .word = "audio",
    .claim = "clip.has_audio_encoder",
    .begin = "[BEGIN_AUDIO]",
    .max_file = AUDIO_FILE_MAX_BYTES,
    .load = audio_kind_load,
    .free = audio_kind_free,
    .width = audio_kind_width,
    .tensor_count = audio_kind_tensor_count,
    .tensor_at = audio_kind_tensor_at,
    .lay_out = audio_kind_lay_out,
    .check = audio_kind_check,
    .pass_new = audio_kind_pass_new,
    .pass_free = audio_kind_pass_free,
    .pass_bytes = audio_kind_pass_bytes,
    .pass_adapt = audio_kind_pass_adapt,
    .forward = audio_kind_forward,
    .backward = audio_kind_backward,
};
