#include "engine/encoder.h"

#include "common/secret.h"
#include "engine/model_parts.h"
#include "engine/vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensor i of the tower is the table's entry `place[i]`, or ENCODER_FROZEN. */
#define ENCODER_FROZEN SIZE_MAX

struct encoder_train {
    const tacit_vision *vision;
    const tacit_trainable_entry *entry;
    vision_pass *pass;
    size_t n_tensors, max_media;
    size_t *place;
    const float **weight;
    float **grad;
    const float **pixels;
    float *rows; /* [max_media, shape.rows, shape.out_width], then gradients of the same shape */
};

static bool is_trained(const vision_tensor *t, bool tower)
{
    return tower || t->projector;
}

size_t encoder_entries(const tacit_model *model, bool tower, tacit_trainable_entry *entry)
{
    size_t count = 0, n = model->vision ? vision_tensor_count(model->vision) : 0;
    for (size_t i = 0; i < n; i++) {
        const vision_tensor *t = vision_tensor_at(model->vision, i);
        if (!is_trained(t, tower))
            continue;
        if (entry) {
            snprintf(entry[count].name, sizeof entry[count].name, "%s", t->name);
            entry[count].rows = t->rows;
            entry[count].cols = t->cols;
        }
        count++;
    }
    return count;
}

tacit_status encoder_initial_values(const tacit_model *model, const tacit_trainable_entry *entry,
                                    size_t count, float *values, tacit_error *err)
{
    size_t n = model->vision ? vision_tensor_count(model->vision) : 0;
    for (size_t e = 0; e < count; e++) {
        size_t i = 0;
        while (i < n && strcmp(vision_tensor_at(model->vision, i)->name, entry[e].name) != 0)
            i++;
        if (i == n)
            return tacit_fail(err, TACIT_USAGE, "encoder: no tensor '%s'", entry[e].name);
        const gguf_tensor *t = vision_tensor_at(model->vision, i)->data;
        t->traits->to_f32(values + entry[e].offset, t->data, entry[e].rows * entry[e].cols);
    }
    return TACIT_OK;
}

tacit_status encoder_train_new(encoder_train **out, const tacit_model *model, bool tower,
                               const tacit_trainable_entry *entry, size_t count, size_t max_media,
                               tacit_error *err)
{
    tacit_status status = TACIT_OK;
    const vision_shape *shape = vision_get_shape(model->vision);
    encoder_train *e = calloc(1, sizeof *e);
    if (!e)
        return tacit_fail(err, TACIT_NO_MEMORY, "encoder: no memory");
    size_t n = vision_tensor_count(model->vision);
    *e = (encoder_train){.vision = model->vision, .entry = entry, .n_tensors = n};
    e->max_media = max_media;
    e->place = calloc(n, sizeof *e->place);
    e->weight = calloc(n, sizeof *e->weight);
    e->grad = calloc(n, sizeof *e->grad);
    e->pixels = calloc(max_media, sizeof *e->pixels);
    e->rows = calloc(max_media * shape->rows, shape->out_width * sizeof *e->rows);
    if (!e->place || !e->weight || !e->grad || !e->pixels || !e->rows) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "encoder: no memory for %zu pictures", max_media);
        goto fail;
    }
    for (size_t i = 0, at = 0; i < n; i++)
        e->place[i] =
            is_trained(vision_tensor_at(e->vision, i), tower) && at < count ? at++ : ENCODER_FROZEN;
    TACIT_TRY(vision_pass_new(&e->pass, e->vision, max_media, count > 0, NULL, err), fail);
    *out = e;
    return TACIT_OK;
fail:
    encoder_train_free(e);
    return status;
}

void encoder_train_free(encoder_train *e)
{
    if (!e)
        return;
    vision_pass_free(e->pass);
    free(e->place);
    free(e->weight);
    free(e->grad);
    free(e->pixels);
    tacit_wipe_free(e->rows);
    free(e);
}

tacit_status encoder_train_forward(encoder_train *e, const float *values, const tacit_media *media,
                                   size_t n_media, float *const *rows, tacit_error *err)
{
    const vision_shape *shape = vision_get_shape(e->vision);
    size_t values_of_one = (size_t)shape->rows * shape->out_width;
    if (n_media > e->max_media)
        return tacit_fail(err, TACIT_USAGE, "encoder: %zu pictures; planned for %zu", n_media,
                          e->max_media);
    for (size_t i = 0; i < n_media; i++) {
        if (!media[i].pixels || media[i].width != shape->image_size ||
            media[i].height != shape->image_size || media[i].n_rows != shape->rows)
            return tacit_fail(
                err, TACIT_BAD_INPUT,
                "picture %zu of the example: expected %ux%u pixels for %u rows, found "
                "%ux%u%s for %zu",
                i, shape->image_size, shape->image_size, shape->rows, media[i].width,
                media[i].height, media[i].pixels ? "" : " without pixels", media[i].n_rows);
        e->pixels[i] = media[i].pixels;
    }
    for (size_t i = 0; i < e->n_tensors; i++)
        e->weight[i] = e->place[i] == ENCODER_FROZEN ? NULL : values + e->entry[e->place[i]].offset;
    vision_forward(e->pass, e->weight, e->pixels, n_media, e->rows);
    for (size_t i = 0; i < n_media; i++)
        memcpy(rows[i], e->rows + i * values_of_one, values_of_one * sizeof(float));
    return TACIT_OK;
}

void encoder_train_backward(encoder_train *e, const float *const *d_rows, size_t n_media,
                            float *grad)
{
    const vision_shape *shape = vision_get_shape(e->vision);
    size_t values_of_one = (size_t)shape->rows * shape->out_width;
    for (size_t i = 0; i < n_media; i++)
        memcpy(e->rows + i * values_of_one, d_rows[i], values_of_one * sizeof(float));
    for (size_t i = 0; i < e->n_tensors; i++)
        e->grad[i] = e->place[i] == ENCODER_FROZEN ? NULL : grad + e->entry[e->place[i]].offset;
    vision_backward(e->pass, e->rows, e->grad);
}
