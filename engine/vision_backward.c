#include "engine/matrix.h"
#include "engine/ops.h"
#include "engine/vision_projector.h"

#include <string.h>

typedef struct backward {
    vision_pass *p;
    float *const *grads;
    tower_block *b;
} backward;

static size_t plane(const backward *w)
{
    return (size_t)w->p->v->shape.tokens * w->p->v->shape.width;
}

/* The gradients of one linear of a block: dx is written, or added to. */
static void linear_part(backward *w, size_t l, vision_part part, float *dx, const float *dy,
                        const float *x, bool accumulate)
{
    vision_pass *p = w->p;
    size_t i = vision_block_tensor(p->v, l, part), rows = p->v->shape.tokens;
    tacit_linear linear = vision_linear(p, i, true);
    if (w->grads[i])
        linear_backward_weight(p->pool, &linear, w->grads[i], dy, x, rows);
    if (w->grads[i + 1])
        linear_backward_bias(&linear, w->grads[i + 1], dy, rows);
    encoder_pair_backward(p->pool, p->adapter, i, &linear, dy, x, rows, p->scratch);
    linear_backward_input(p->pool, &linear, encoder_pair(p->adapter, i), dx, dy, rows, accumulate,
                          p->scratch);
}

/* dx[rows, width] += the gradient through the norm that tensors i and i + 1 scale and shift. */
static void norm_part(backward *w, size_t i, float *dx, const float *dy, const float *x,
                      size_t rows)
{
    const vision_shape *s = &w->p->v->shape;
    ops_layer_norm_backward(dx, w->grads[i], w->grads[i + 1], dy, x, vision_values(w->p, i), rows,
                            s->width, s->epsilon);
}

/* dx holds the gradient of the block's output and becomes that of its input x. */
static void block_backward(backward *w, size_t l, const float *x)
{
    vision_pass *p = w->p;
    const tower_block *b = w->b;
    size_t tokens = p->v->shape.tokens, wide = tokens * p->v->shape.ff;
    const tower_heads heads = vision_heads(p, b);
    const tower_heads_gradient d = {p->dmixed, p->dq, p->dk, p->dv};
    linear_part(w, l, VISION_DOWN, p->dact, p->dx, b->act, false);
    memset(p->dup, 0, wide * sizeof *p->dup);
    p->v->activation->backward(p->dup, p->dact, b->up, wide);
    linear_part(w, l, VISION_UP, p->dnorm, p->dup, b->norm2, false);
    norm_part(w, vision_block_tensor(p->v, l, VISION_LN2), p->dx, p->dnorm, b->middle, tokens);
    linear_part(w, l, VISION_OUT, p->dmixed, p->dx, b->mixed, false);
    tower_heads_backward(p->pool, &heads, &d);
    linear_part(w, l, VISION_Q, p->dnorm, p->dq, b->norm1, false);
    linear_part(w, l, VISION_K, p->dnorm, p->dk, b->norm1, true);
    linear_part(w, l, VISION_V, p->dnorm, p->dv, b->norm1, true);
    norm_part(w, vision_block_tensor(p->v, l, VISION_LN1), p->dx, p->dnorm, x, tokens);
}

static void embed_backward(backward *w, size_t image)
{
    vision_pass *p = w->p;
    const tacit_vision *v = p->v;
    const vision_shape *s = &v->shape;
    float *dx = p->dx;
    if (v->pre_ln != VISION_ABSENT) {
        memset(p->dnorm, 0, plane(w) * sizeof *p->dnorm);
        norm_part(w, v->pre_ln, p->dnorm, p->dx, p->embedded + image * plane(w), s->tokens);
        dx = p->dnorm;
    }
    const float *patches = dx + (size_t)(s->tokens - s->patches) * s->width;
    if (w->grads[v->positions])
        ops_add(w->grads[v->positions], dx, plane(w));
    if (v->class_embedding != VISION_ABSENT && w->grads[v->class_embedding])
        ops_add(w->grads[v->class_embedding], dx, s->width);
    if (v->patch_bias != VISION_ABSENT && w->grads[v->patch_bias])
        for (size_t i = 0; i < s->patches; i++)
            ops_add(w->grads[v->patch_bias], patches + i * s->width, s->width);
    if (!w->grads[v->patch_weight])
        return;
    vision_cut_patches(s, p->patch, p->pixels[image]);
    matrix_mul_tn(p->pool, w->grads[v->patch_weight], patches, p->patch, s->width,
                  v->tensor[v->patch_weight].cols, s->patches, true);
}

/* dx += what the features that are state number `state` ask of it. */
static void feature_backward(backward *w, size_t image, size_t state)
{
    vision_pass *p = w->p;
    const vision_shape *s = &p->v->shape;
    size_t slot, first = (size_t)(s->tokens - s->patches) * s->width;
    if (!vision_feature_slot(s, state, &slot))
        return;
    if (p->v->post_ln != VISION_ABSENT) {
        norm_part(w, p->v->post_ln, p->dx + first, p->dfeatures,
                  vision_layer_input(p, image, state) + first, s->patches);
        return;
    }
    for (size_t i = 0; i < s->patches; i++)
        ops_add(p->dx + first + i * s->width, p->dfeatures + (i * s->features + slot) * s->width,
                s->width);
}

/* The lowest stage with a gradient wanted: 0 the embedding, 1 + l block l, 1 + layers the last
 * norm, 2 + layers the projector alone. */
static size_t lowest_stage(const vision_pass *p, float *const *grads)
{
    const tacit_vision *v = p->v;
    size_t i = 0;
    while (i < v->count && !grads[i] && !encoder_pair_is_trained(p->adapter, i))
        i++;
    if (i < v->first_block)
        return 0;
    if (i >= v->first_projector)
        return 2 + v->shape.layers;
    size_t l = (i - v->first_block) / VISION_PARTS;
    return 1 + (l < v->shape.layers ? l : v->shape.layers);
}

static void backward_one(backward *w, size_t image, size_t lowest, const float *d_rows)
{
    vision_pass *p = w->p;
    const vision_shape *s = &p->v->shape;
    size_t last = s->feature[s->features - 1];
    const float *features = p->features + image * s->patches * (size_t)s->features * s->width;
    bool below = lowest < 2 + s->layers;
    p->v->projector->backward(p, below ? p->dfeatures : NULL, w->grads, d_rows, features, p->work);
    if (!below)
        return;
    memset(p->dx, 0, plane(w) * sizeof *p->dx);
    feature_backward(w, image, last);
    for (size_t l = last; l-- > 0 && lowest <= 1 + l;) {
        w->b = vision_block_of(p, image, l);
        /* The output is known already; dmixed is free to take it. */
        if (!p->keep_all)
            vision_block_forward(p, l, w->b, vision_layer_input(p, image, l), p->dmixed);
        block_backward(w, l, vision_layer_input(p, image, l));
        feature_backward(w, image, l);
    }
    if (lowest == 0)
        embed_backward(w, image);
}

void vision_backward(vision_pass *p, const float *d_rows, float *const *grads)
{
    backward w = {.p = p, .grads = grads};
    size_t lowest = lowest_stage(p, grads);
    for (size_t i = 0; i < p->n; i++)
        backward_one(&w, i, lowest, d_rows + i * p->v->shape.rows * p->v->shape.out_width);
}
