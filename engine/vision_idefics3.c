/* The idefics3 projector: scale x scale patches become one row by one matrix without bias. */
#include "engine/vision_projector.h"

#include <string.h>

static tacit_status read_keys(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    tacit_status status;
    TACIT_TRY(
        vision_get_size(t, VISION_PREFIX "projector.scale_factor", VISION_MAX_IMAGE, &s->scale),
        done);
    TACIT_TRY(vision_expect_multiple(t, "patch grid", s->grid, "scale factor", s->scale), done);
    s->rows = s->grid / s->scale * (s->grid / s->scale);
    s->cut = VISION_CUT_TILES;
    if (s->tokens != s->patches || s->features != 1 || s->feature[0] != s->layers)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s is not part of an idefics3 tower, whose projector takes the last "
                          "state of all patches",
                          gguf_name(t->file),
                          s->tokens != s->patches ? "v.class_embd" : VISION_PREFIX "feature_layer");
done:
    return status;
}

static tacit_status take(vision_loader *t)
{
    vision_shape *s = &t->v->shape;
    const char *name = "mm.model.fc.weight";
    tacit_status status;
    if (t->v->post_ln == VISION_ABSENT)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: tensor v.post_ln.weight is missing; incomplete file",
                          gguf_name(t->file));
    TACIT_TRY(vision_outputs(t, name, &s->out_width), done);
    status = vision_take_product(t, name, s->out_width, (size_t)s->scale * s->scale * s->width);
done:
    return status;
}

static size_t work(const tacit_vision *v, bool backward)
{
    return (size_t)v->shape.patches * v->shape.width * (backward ? 2 : 1);
}

/* Where patch (y, x) lies in the shuffled rows: the patches of a cell side by side, row by row. */
static size_t shuffled_at(const vision_shape *s, size_t y, size_t x)
{
    size_t cell = y / s->scale * (s->grid / s->scale) + x / s->scale;
    size_t inside = y % s->scale * s->scale + x % s->scale;
    return (cell * s->scale * s->scale + inside) * s->width;
}

static void shuffle(const vision_shape *s, float *to, const float *x)
{
    for (size_t i = 0; i < s->patches; i++)
        memcpy(to + shuffled_at(s, i / s->grid, i % s->grid), x + i * s->width,
               s->width * sizeof *to);
}

static void unshuffle(const vision_shape *s, float *x, const float *from)
{
    for (size_t i = 0; i < s->patches; i++)
        memcpy(x + i * s->width, from + shuffled_at(s, i / s->grid, i % s->grid),
               s->width * sizeof *x);
}

static void forward(vision_pass *p, float *rows, const float *features, float *work)
{
    const vision_shape *s = &p->v->shape;
    shuffle(s, work, features);
    vision_multiply(p, p->v->first_projector, false, rows, work, s->rows);
}

static void backward(vision_pass *p, float *d_features, float *const *grads, const float *d_rows,
                     const float *features, float *work)
{
    const vision_shape *s = &p->v->shape;
    tacit_linear fc = vision_linear(p, p->v->first_projector, false);
    float *d_shuffled = work + (size_t)s->patches * s->width;
    shuffle(s, work, features);
    if (grads[p->v->first_projector])
        linear_backward_weight(p->pool, &fc, grads[p->v->first_projector], d_rows, work, s->rows);
    encoder_pair_backward(p->pool, p->adapter, p->v->first_projector, &fc, d_rows, work, s->rows,
                          p->scratch);
    if (!d_features)
        return;
    linear_backward_input(p->pool, &fc, encoder_pair(p->adapter, p->v->first_projector), d_shuffled,
                          d_rows, s->rows, false, p->scratch);
    unshuffle(s, d_features, d_shuffled);
}

const vision_projector vision_idefics3 = {"idefics3", read_keys, take, work, forward, backward};
