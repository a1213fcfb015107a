/* Pictures: frames of the vision tower between the tokens of media_layout.h. */
#include "common/secret.h"
#include "engine/encoder_kind.h"
#include "engine/media_frames.h"
#include "engine/vision.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FRAMES (MEDIA_MAX_GRID * MEDIA_MAX_GRID + 1)

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
    const vision_tensor *t = vision_tensor_at(self, i);
    return (encoder_tensor){t->name, t->data, t->rows, t->cols, t->projector};
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
    tacit_image frame[MAX_FRAMES];
    media_layout layout = {0};
    media_grid grid;
    tacit_status status;
    TACIT_TRY(media_grid_for(&grid, shape, request->form, request->tiles, picture->width,
                             picture->height, err),
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

static tacit_status image_lay_out(const void *self, const media_request *request,
                                  const media_sink *sink, tacit_error *err)
{
    tacit_image picture = {0};
    tacit_status status =
        tacit_image_decode(&picture, request->data, request->size, request->name, err);
    if (status == TACIT_OK)
        status = put_picture(self, &picture, request, sink, err);
    tacit_image_free(&picture);
    return status;
}

static tacit_status image_check(const void *self, const tacit_media *media, tacit_error *err)
{
    const vision_shape *s = vision_get_shape(self);
    if (media->dim[0] == 3 && media->dim[1] == s->image_size && media->dim[2] == s->image_size &&
        media->n_rows == s->rows)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "expected a picture of 3 planes of %ux%u pixels for %u rows, found %u of "
                      "%ux%u for %zu",
                      s->image_size, s->image_size, s->rows, media->dim[0], media->dim[2],
                      media->dim[1], media->n_rows);
}

/* The tower takes and gives the rows of all pictures side by side; those of one need no copy. */
typedef struct image_pass {
    vision_pass *pass;
    size_t row_values; /* of one picture */
    const float **pixels;
    float *rows; /* [max_media, row_values], NULL for one */
    size_t n;
} image_pass;

static void image_pass_free(void *pass)
{
    image_pass *p = pass;
    if (!p)
        return;
    vision_pass_free(p->pass);
    free(p->pixels);
    tacit_wipe_free(p->rows);
    free(p);
}

static tacit_status image_pass_new(void **out, const void *self, size_t max_media, bool train,
                                   tacit_pool *pool, tacit_error *err)
{
    const vision_shape *s = vision_get_shape(self);
    tacit_status status = TACIT_NO_MEMORY;
    image_pass *p = calloc(1, sizeof *p);
    *out = NULL;
    if (p) {
        p->row_values = (size_t)s->rows * s->out_width;
        p->pixels = calloc(max_media, sizeof *p->pixels);
        p->rows = max_media > 1 ? calloc(max_media, p->row_values * sizeof *p->rows) : NULL;
    }
    if (!p || !p->pixels || (max_media > 1 && !p->rows))
        tacit_fail(err, status, "no memory for %zu pictures", max_media);
    else
        status = vision_pass_new(&p->pass, self, max_media, train, pool, err);
    if (status != TACIT_OK)
        image_pass_free(p);
    else
        *out = p;
    return status;
}

static void image_forward(void *pass, const float *const *weights, const tacit_media *const *media,
                          size_t n, float *const *rows)
{
    image_pass *p = pass;
    p->n = n;
    for (size_t i = 0; i < n; i++)
        p->pixels[i] = media[i]->values;
    vision_forward(p->pass, weights, p->pixels, n, n > 1 ? p->rows : rows[0]);
    for (size_t i = 0; i < n && n > 1; i++)
        memcpy(rows[i], p->rows + i * p->row_values, p->row_values * sizeof *p->rows);
}

static void image_backward(void *pass, const float *const *d_rows, float *const *grads)
{
    image_pass *p = pass;
    for (size_t i = 0; i < p->n && p->n > 1; i++)
        memcpy(p->rows + i * p->row_values, d_rows[i], p->row_values * sizeof *p->rows);
    vision_backward(p->pass, p->n > 1 ? p->rows : d_rows[0], grads);
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
    .forward = image_forward,
    .backward = image_backward,
};
