/* Pictures: idefics3's frames between the tokens of media_layout.h, each a medium of its own; of an
 * mlp tower all frames of a picture as one medium, without tokens around. */
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/encoder_kind.h"
#include "engine/media_frames.h"
#include "engine/vision.h"

#include <stdlib.h>
#include <string.h>

static tacit_status image_load(void **self, const gguf_file *file, tacit_error *err)
{
    tacit_vision *v;
    tacit_status status = vision_load(&v, file, err);
    *self = v;
    return status;
}

static void image_free(void *self)
{
    vision_free(self);
}

static size_t image_width(const void *self)
{
    return vision_get_shape(self)->out_width;
}

static size_t image_tensor_count(const void *self)
{
    return vision_tensor_count(self);
}

static encoder_tensor image_tensor_at(const void *self, size_t i)
{
    return *vision_tensor_at(self, i);
}

static tacit_status put_steps(const media_layout *layout, const tacit_image *frame,
                              const vision_shape *shape, const media_sink *sink, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < layout->count && status == TACIT_OK; i++) {
        tacit_media media;
        if (layout->step[i].frame < 0) {
            status = sink->token(sink->ctx, layout->step[i].token);
            continue;
        }
        status = media_prepare(&media, &frame[layout->step[i].frame], shape, err);
        if (status == TACIT_OK)
            status = sink->media(sink->ctx, &media);
    }
    return status;
}

static tacit_status put_picture(const tacit_vision *vision, const tacit_image *picture,
                                const media_request *request, const media_sink *sink,
                                tacit_error *err)
{
    const vision_shape *shape = vision_get_shape(vision);
    tacit_image frame[MEDIA_MAX_FRAMES];
    media_layout layout = {0};
    media_grid grid;
    tacit_status status;
    TACIT_TRY(media_grid_for(&grid, shape, request->form, picture->width, picture->height, err),
              done);
    TACIT_TRY(
        media_layout_make(&layout, request->tokenizer, request->form, grid.rows, grid.cols, err),
        done);
    TACIT_TRY(media_frames_cut(frame, picture, grid, shape, err), done);
    status = put_steps(&layout, frame, shape, sink, err);
    for (size_t i = 0; i < layout.frames; i++)
        tacit_image_free(&frame[i]);
done:
    media_layout_free(&layout);
    return status;
}

static tacit_status put_whole(const tacit_vision *vision, const tacit_image *picture,
                              const media_request *request, const media_sink *sink,
                              tacit_error *err)
{
    tacit_media media;
    tacit_status status =
        media_prepare_picture(&media, picture, vision_get_shape(vision), !request->several, err);
    return status == TACIT_OK ? sink->media(sink->ctx, &media) : status;
}

static tacit_status image_lay_out(const void *self, const media_request *request,
                                  const media_sink *sink, tacit_error *err)
{
    tacit_image picture = {0};
    tacit_status status =
        tacit_image_decode(&picture, request->data, request->size, request->name, err);
    if (status != TACIT_OK)
        return status;
    status = (vision_get_shape(self)->cut == VISION_CUT_TILES ? put_picture : put_whole)(
        self, &picture, request, sink, err);
    if (status != TACIT_OK)
        tacit_fail_context(err, "%s", request->name);
    tacit_image_free(&picture);
    return status;
}

static vision_arrangement arrangement_of(const vision_shape *s, const tacit_media *media)
{
    vision_arrangement a;
    vision_arrange(&a, s, media->extent[0], media->extent[1]);
    return a;
}

static tacit_status image_check(const void *self, const tacit_media *media, tacit_error *err)
{
    const vision_shape *s = vision_get_shape(self);
    const vision_arrangement a = arrangement_of(s, media);
    if (media->dim[0] == 3 * a.frames && media->dim[1] == s->image_size &&
        media->dim[2] == s->image_size && media->n_rows == a.total)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "expected a picture of %zu planes of %ux%u pixels for %zu rows, found %u of "
                      "%ux%u for %zu",
                      3 * a.frames, s->image_size, s->image_size, a.total, media->dim[0],
                      media->dim[2], media->dim[1], media->n_rows);
}

/* The tower takes frames and gives rows of frames. Where every medium is one frame, those of all
 * media lie side by side. Where a medium may be dozens, one frame at a time is computed, and for
 * the backward once more: what all of them leave behind would not fit. */
typedef struct image_pass {
    const tacit_vision *vision;
    vision_pass *pass;
    bool one_by_one;
    size_t row_values, plane_values; /* of one frame */
    const float **pixels;
    float *rows;            /* [max_media, or frames of one and one more, row_values], or NULL */
    const float **weights;  /* [tensors], of the last forward */
    vision_arrangement *at; /* [max_media], of the last forward */
    size_t n;
} image_pass;

static void image_pass_free(void *pass)
{
    image_pass *p = pass;
    if (!p)
        return;
    vision_pass_free(p->pass);
    free(p->pixels);
    free(p->weights);
    free(p->at);
    tacit_wipe_free(p->rows);
    free(p);
}

/* Frames of the largest picture. */
static size_t most_frames(const vision_shape *s)
{
    size_t most = 1;
    for (uint32_t i = 0; s->cut == VISION_CUT_ANYRES && i < s->pinpoints; i++) {
        size_t n =
            1 + (size_t)(s->pinpoint[i][0] / s->image_size) * (s->pinpoint[i][1] / s->image_size);
        most = n > most ? n : most;
    }
    return most;
}

static bool goes_one_by_one(const vision_shape *s)
{
    return s->cut == VISION_CUT_ANYRES;
}

/* Frames whose rows a pass holds; those of one frame need no copy. */
static size_t frames_held(const vision_shape *s, size_t max_media)
{
    if (goes_one_by_one(s))
        return most_frames(s) + 1;
    return s->newline || max_media > 1 ? max_media : 0;
}

static tacit_status take_rows(image_pass *p, const vision_shape *s, size_t max_media,
                              tacit_error *err)
{
    size_t frames = frames_held(s, max_media);
    void *rows = NULL;
    tacit_status status = TACIT_OK;
    if (frames > 0)
        status =
            tacit_memory_alloc(&rows, frames, p->row_values * sizeof *p->rows,
                               "the rows of a picture's frames", "take a smaller encoder", err);
    p->rows = rows;
    return status;
}

static uint64_t image_pass_bytes(const void *self, size_t max_media, pass_use use, tacit_pool *pool)
{
    const vision_shape *s = vision_get_shape(self);
    size_t images = goes_one_by_one(s) ? 1 : max_media;
    uint64_t rows = tacit_memory_product(frames_held(s, max_media), s->rows);
    return tacit_memory_sum(vision_pass_bytes(self, images, use == PASS_TRAIN, pool),
                            tacit_memory_product(rows, s->out_width * sizeof(float)));
}

static tacit_status image_pass_new(void **out, const void *self, size_t max_media, pass_use use,
                                   tacit_pool *pool, tacit_error *err)
{
    const vision_shape *s = vision_get_shape(self);
    tacit_status status = TACIT_NO_MEMORY;
    image_pass *p = calloc(1, sizeof *p);
    *out = NULL;
    if (p) {
        p->vision = self;
        p->one_by_one = goes_one_by_one(s);
        p->row_values = (size_t)s->rows * s->out_width;
        p->plane_values = (size_t)3 * s->image_size * s->image_size;
        p->pixels = calloc(max_media, sizeof *p->pixels);
        p->weights = calloc(vision_tensor_count(self), sizeof *p->weights);
        p->at = calloc(max_media, sizeof *p->at);
    }
    if (!p || !p->pixels || !p->weights || !p->at)
        tacit_fail(err, status, "no memory for %zu pictures", max_media);
    else
        status = take_rows(p, s, max_media, err);
    if (status == TACIT_OK)
        status = vision_pass_new(&p->pass, self, p->one_by_one ? 1 : max_media, use, pool, err);
    if (status != TACIT_OK)
        image_pass_free(p);
    else
        *out = p;
    return status;
}

static const float *newline_of(const image_pass *p)
{
    size_t i = vision_newline(p->vision);
    bool stands_in = i < vision_tensor_count(p->vision) && p->weights[i];
    return stands_in ? p->weights[i] : vision_newline_values(p->vision);
}

static void forward_one_by_one(image_pass *p, float *const *rows)
{
    const vision_shape *s = vision_get_shape(p->vision);
    for (size_t i = 0; i < p->n; i++) {
        for (size_t f = 0; f < p->at[i].frames; f++) {
            const float *frame = p->pixels[i] + f * p->plane_values;
            vision_forward(p->pass, p->weights, &frame, 1, p->rows + f * p->row_values);
        }
        vision_join(&p->at[i], s, rows[i], p->rows, newline_of(p));
    }
}

static tacit_status image_pass_adapt(void *pass, const encoder_adapter *adapter, tacit_error *err)
{
    image_pass *p = pass;
    return vision_adapt(p->pass, adapter, err);
}

static void image_forward(void *pass, const float *const *weights, const tacit_media *const *media,
                          size_t n, float *const *rows)
{
    image_pass *p = pass;
    const vision_shape *s = vision_get_shape(p->vision);
    p->n = n;
    for (size_t i = 0; i < vision_tensor_count(p->vision); i++)
        p->weights[i] = weights ? weights[i] : NULL;
    for (size_t i = 0; i < n; i++) {
        p->pixels[i] = media[i]->values;
        p->at[i] = arrangement_of(s, media[i]);
    }
    if (p->one_by_one) {
        forward_one_by_one(p, rows);
        return;
    }
    if (!p->rows) {
        vision_forward(p->pass, p->weights, p->pixels, n, rows[0]);
        return;
    }
    vision_forward(p->pass, p->weights, p->pixels, n, p->rows);
    for (size_t i = 0; i < n; i++)
        vision_join(&p->at[i], s, rows[i], p->rows + i * p->row_values, newline_of(p));
}

static float *d_newline_of(const image_pass *p, float *const *grads)
{
    size_t i = vision_newline(p->vision);
    return i < vision_tensor_count(p->vision) ? grads[i] : NULL;
}

static void backward_one_by_one(image_pass *p, const float *const *d_rows, float *const *grads)
{
    const vision_shape *s = vision_get_shape(p->vision);
    float *again = p->rows + most_frames(s) * p->row_values; /* not wanted, but written */
    for (size_t i = 0; i < p->n; i++) {
        vision_join_backward(&p->at[i], s, p->rows, d_newline_of(p, grads), d_rows[i]);
        for (size_t f = 0; f < p->at[i].frames; f++) {
            const float *frame = p->pixels[i] + f * p->plane_values;
            vision_forward(p->pass, p->weights, &frame, 1, again);
            vision_backward(p->pass, p->rows + f * p->row_values, grads);
        }
    }
}

static void image_backward(void *pass, const float *const *d_rows, float *const *grads)
{
    image_pass *p = pass;
    const vision_shape *s = vision_get_shape(p->vision);
    if (p->one_by_one) {
        backward_one_by_one(p, d_rows, grads);
        return;
    }
    if (!p->rows) {
        vision_backward(p->pass, d_rows[0], grads);
        return;
    }
    for (size_t i = 0; i < p->n; i++)
        vision_join_backward(&p->at[i], s, p->rows + i * p->row_values, d_newline_of(p, grads),
                             d_rows[i]);
    vision_backward(p->pass, p->rows, grads);
}

const encoder_kind encoder_image = {
    .modality = TACIT_MODALITY_IMAGE,
    .content = TACIT_CONTENT_IMAGE,
    .word = "image",
    .claim = "clip.has_vision_encoder",
    .max_file = TACIT_IMAGE_MAX_FILE,
    .load = image_load,
    .free = image_free,
    .width = image_width,
    .tensor_count = image_tensor_count,
    .tensor_at = image_tensor_at,
    .lay_out = image_lay_out,
    .check = image_check,
    .pass_new = image_pass_new,
    .pass_free = image_pass_free,
    .pass_bytes = image_pass_bytes,
    .pass_adapt = image_pass_adapt,
    .forward = image_forward,
    .backward = image_backward,
};
