#include "engine/matrix.h"
#include "engine/matrix_block.h"
#include "engine/ops.h"
#include "engine/vision_parts.h"

#include <math.h>
#include <string.h>

typedef struct backward {
    vision_pass *p;
    float *const *grads;
    vision_block *b;
} backward;

static size_t plane(const backward *w)
{
    return (size_t)w->p->v->shape.patches * w->p->v->shape.width;
}

/* The gradients of one linear of a block: dx is written, or added to. */
static void linear_part(backward *w, size_t l, vision_part part, float *dx, const float *dy,
                        const float *x, bool accumulate)
{
    vision_pass *p = w->p;
    size_t i = vision_block_tensor(p->v, l, part), rows = p->v->shape.patches;
    tacit_linear linear = vision_linear(p, i, true);
    if (w->grads[i])
        linear_backward_weight(p->pool, &linear, w->grads[i], dy, x, rows);
    if (w->grads[i + 1])
        linear_backward_bias(&linear, w->grads[i + 1], dy, rows);
    linear_backward_input(p->pool, &linear, NULL, dx, dy, rows, accumulate, p->scratch);
}

/* dx += the gradient through the norm that tensors i and i + 1 scale and shift. */
static void norm_part(backward *w, size_t i, float *dx, const float *dy, const float *x)
{
    const vision_shape *s = &w->p->v->shape;
    ops_layer_norm_backward(dx, w->grads[i], w->grads[i + 1], dy, x, vision_values(w->p, i),
                            s->patches, s->width, s->epsilon);
}

/* One strided product of a head: which sides are [patches, width] and which [patches, patches]
 * follows from the strides. */
static void head_product(float *y, size_t y_stride, const float *x, size_t x_stride,
                         bool transpose_x, const float *v, bool transpose_w, size_t n, size_t cols,
                         size_t k, size_t width)
{
    matrix_block product = {.y = y,
                            .y_stride = y_stride,
                            .x = x,
                            .x_stride = x_stride,
                            .w = v,
                            .w_stride = width,
                            .m = n,
                            .n = cols,
                            .k = k,
                            .transpose_x = transpose_x,
                            .transpose_w = transpose_w};
    matrix_block_run(&product);
}

/* With P the attention of head h and dY the gradient of its output: dV = P^T dY, dS = softmax'(dY
 * V^T) / sqrt(head), dQ = dS K, dK = dS^T Q. P is computed again, bit for bit. */
static void head_backward(void *ctx, size_t h, size_t thread)
{
    backward *w = ctx;
    vision_pass *p = w->p;
    const vision_shape *s = &p->v->shape;
    size_t n = s->patches, width = s->width, head = width / s->heads, at = h * head;
    float *attention = p->scores + thread * 2 * n * n;
    float *ds = attention + n * n;
    vision_attend(s, w->b, h, attention);
    head_product(p->dv + at, width, attention, n, true, p->dmixed + at, false, n, head, n, width);
    head_product(ds, n, p->dmixed + at, width, false, w->b->v + at, true, n, n, head, width);
    ops_softmax_backward(ds, ds, attention, n, n);
    ops_scale(ds, 1.0f / sqrtf((float)head), n * n);
    head_product(p->dq + at, width, ds, n, false, w->b->k + at, false, n, head, n, width);
    head_product(p->dk + at, width, ds, n, true, w->b->q + at, false, n, head, n, width);
}

/* dx holds the gradient of the block's output and becomes that of its input x. */
static void block_backward(backward *w, size_t l, const float *x)
{
    vision_pass *p = w->p;
    const vision_block *b = w->b;
    size_t wide = (size_t)p->v->shape.patches * p->v->shape.ff;
    linear_part(w, l, VISION_DOWN, p->dact, p->dx, b->act, false);
    memset(p->dup, 0, wide * sizeof *p->dup);
    ops_gelu_backward(p->dup, p->dact, b->up, wide);
    linear_part(w, l, VISION_UP, p->dnorm, p->dup, b->norm2, false);
    norm_part(w, vision_block_tensor(p->v, l, VISION_LN2), p->dx, p->dnorm, b->middle);
    linear_part(w, l, VISION_OUT, p->dmixed, p->dx, b->mixed, false);
    tacit_pool_run(p->pool, p->v->shape.heads, head_backward, w);
    linear_part(w, l, VISION_Q, p->dnorm, p->dq, b->norm1, false);
    linear_part(w, l, VISION_K, p->dnorm, p->dk, b->norm1, true);
    linear_part(w, l, VISION_V, p->dnorm, p->dv, b->norm1, true);
    norm_part(w, vision_block_tensor(p->v, l, VISION_LN1), p->dx, p->dnorm, x);
}

static void embed_backward(backward *w, size_t image)
{
    vision_pass *p = w->p;
    const tacit_vision *v = p->v;
    const vision_shape *s = &v->shape;
    if (w->grads[v->positions])
        ops_add(w->grads[v->positions], p->dx, plane(w));
    if (v->patch_bias != VISION_ABSENT && w->grads[v->patch_bias])
        for (size_t i = 0; i < s->patches; i++)
            ops_add(w->grads[v->patch_bias], p->dx + i * s->width, s->width);
    if (!w->grads[v->patch_weight])
        return;
    vision_cut_patches(s, p->patch, p->pixels[image]);
    matrix_mul_tn(p->pool, w->grads[v->patch_weight], p->dx, p->patch, s->width,
                  v->tensor[v->patch_weight].cols, s->patches, true);
}

/* Projector and last norm; leaves the gradient of the last block's output in dx. */
static void head_of_tower_backward(backward *w, size_t image, const float *d_rows, bool below)
{
    vision_pass *p = w->p;
    const tacit_vision *v = p->v;
    const vision_shape *s = &v->shape;
    const float *shuffled = p->shuffled + image * plane(w);
    tacit_linear projector = vision_linear(p, v->projector, false);
    if (w->grads[v->projector])
        linear_backward_weight(p->pool, &projector, w->grads[v->projector], d_rows, shuffled,
                               s->rows);
    if (!below)
        return;
    linear_backward_input(p->pool, &projector, NULL, p->dmixed, d_rows, s->rows, false, p->scratch);
    vision_unshuffle(s, p->dnorm, p->dmixed);
    memset(p->dx, 0, plane(w) * sizeof *p->dx);
    norm_part(w, v->post_ln, p->dx, p->dnorm, vision_layer_input(p, image, s->layers));
}

/* The lowest stage with a gradient wanted: 0 the embedding, 1 + l block l, 1 + layers the last
 * norm, 2 + layers the projector alone. */
static size_t lowest_stage(const tacit_vision *v, float *const *grads)
{
    size_t i = 0;
    while (i < v->count && !grads[i])
        i++;
    if (i < v->first_block)
        return 0;
    if (i < v->post_ln)
        return 1 + (i - v->first_block) / VISION_PARTS;
    return i < v->projector ? 1 + v->shape.layers : 2 + v->shape.layers;
}

static void backward_one(backward *w, size_t image, size_t lowest, const float *d_rows)
{
    vision_pass *p = w->p;
    size_t layers = p->v->shape.layers;
    head_of_tower_backward(w, image, d_rows, lowest < 2 + layers);
    for (size_t l = layers; l-- > 0 && lowest <= 1 + l;) {
        w->b = vision_block_of(p, image, l);
        /* The output is known already; dmixed is free to take it. */
        if (!p->keep_all)
            vision_block_forward(p, l, w->b, vision_layer_input(p, image, l), p->dmixed);
        block_backward(w, l, vision_layer_input(p, image, l));
    }
    if (lowest == 0)
        embed_backward(w, image);
}

void vision_backward(vision_pass *p, const float *d_rows, float *const *grads)
{
    backward w = {.p = p, .grads = grads};
    size_t lowest = lowest_stage(p->v, grads);
    for (size_t i = 0; i < p->n; i++)
        backward_one(&w, i, lowest, d_rows + i * p->v->shape.rows * p->v->shape.out_width);
}
