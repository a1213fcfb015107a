#include "engine/audio_parts.h"
#include "engine/gelu_erf.h"
#include "engine/matrix.h"
#include "engine/ops.h"

#include <string.h>

typedef struct backward {
    audio_pass *p;
    float *const *grads;
    const audio_chunk *c;
    const tower_block *b;
} backward;

/* The gradients of linear i over `rows` rows: dx is written, or added to. */
static void linear_part(backward *w, size_t i, bool bias, float *dx, const float *dy,
                        const float *x, size_t rows, bool accumulate)
{
    audio_pass *p = w->p;
    tacit_linear linear = audio_linear(p, i, bias);
    if (w->grads[i])
        linear_backward_weight(p->pool, &linear, w->grads[i], dy, x, rows);
    if (bias && w->grads[i + 1])
        linear_backward_bias(&linear, w->grads[i + 1], dy, rows);
    encoder_pair_backward(p->pool, p->adapter, i, &linear, dy, x, rows, p->scratch);
    linear_backward_input(p->pool, &linear, encoder_pair(p->adapter, i), dx, dy, rows, accumulate,
                          p->scratch);
}

static void block_part(backward *w, size_t l, audio_part part, float *dx, const float *dy,
                       const float *x, bool accumulate)
{
    linear_part(w, audio_block_tensor(l, part), audio_has_bias(part), dx, dy, x, w->c->positions,
                accumulate);
}

/* dx += the gradient through the norm that tensors i and i + 1 scale and shift. */
static void norm_part(backward *w, size_t i, float *dx, const float *dy, const float *x)
{
    const audio_shape *s = &w->p->a->shape;
    ops_layer_norm_backward(dx, w->grads[i], w->grads[i + 1], dy, x, audio_values(w->p, i),
                            w->c->positions, s->width, s->epsilon);
}

/* dx holds the gradient of the block's output and becomes that of its input x. */
static void block_backward(backward *w, size_t l, const float *x)
{
    audio_pass *p = w->p;
    const tower_block *b = w->b;
    size_t wide = w->c->positions * p->a->shape.ff;
    const tower_heads heads = audio_heads(p, b, w->c->positions);
    const tower_heads_gradient d = {p->dmixed, p->dq, p->dk, p->dv};
    block_part(w, l, AUDIO_DOWN, p->dact, p->dx, b->act, false);
    memset(p->dup, 0, wide * sizeof *p->dup);
    ops_gelu_erf_backward(p->dup, p->dact, b->up, wide);
    block_part(w, l, AUDIO_UP, p->dnorm, p->dup, b->norm2, false);
    norm_part(w, audio_block_tensor(l, AUDIO_LN2), p->dx, p->dnorm, b->middle);
    block_part(w, l, AUDIO_OUT, p->dmixed, p->dx, b->mixed, false);
    tower_heads_backward(p->pool, &heads, &d);
    block_part(w, l, AUDIO_Q, p->dnorm, p->dq, b->norm1, false);
    block_part(w, l, AUDIO_K, p->dnorm, p->dk, b->norm1, true);
    block_part(w, l, AUDIO_V, p->dnorm, p->dv, b->norm1, true);
    norm_part(w, audio_block_tensor(l, AUDIO_LN1), p->dx, p->dnorm, x);
}

/* dx[n, channels] += what the patches of outputs `first`, first + 1, ... have of it. */
static void add_patches(float *dx, const float *dpatch, size_t n, size_t channels, size_t stride,
                        size_t first, size_t rows)
{
    for (size_t r = 0; r < rows; r++, dpatch += 3 * channels)
        for (size_t tap = 0; tap < 3; tap++) {
            size_t at = (first + r) * stride + tap;
            if (at < 1 || at > n)
                continue;
            for (size_t c = 0; c < channels; c++)
                dx[(at - 1) * channels + c] += dpatch[3 * c + tap];
        }
}

/* The gradients of a convolution from dy[rows, width]: dx is added to; NULL when not wanted. */
static void convolution_backward(backward *w, size_t kernel, float *dx, const float *dy,
                                 size_t rows, const float *x, size_t n, size_t stride)
{
    audio_pass *p = w->p;
    size_t width = p->a->shape.width, taps = p->a->tensor[kernel].cols;
    for (size_t r = 0; w->grads[kernel + 1] && r < rows; r++)
        ops_add(w->grads[kernel + 1], dy + r * width, width);
    for (size_t at = 0; at < rows; at += AUDIO_CONV_ROWS) {
        size_t m = rows - at < AUDIO_CONV_ROWS ? rows - at : AUDIO_CONV_ROWS;
        if (w->grads[kernel]) {
            audio_cut_patches(p->patch, x, n, taps / 3, stride, at, m);
            matrix_mul_tn(p->pool, w->grads[kernel], dy + at * width, p->patch, width, taps, m,
                          true);
        }
        if (!dx)
            continue;
        matrix_mul_nn(p->pool, p->dpatch, dy + at * width, audio_values(p, kernel), m, taps, width,
                      false);
        add_patches(dx, p->dpatch, n, taps / 3, stride, at, m);
    }
}

static void embed_backward(backward *w)
{
    audio_pass *p = w->p;
    const audio_chunk *c = w->c;
    size_t width = p->a->shape.width, n = c->positions * width, wide = c->frames * width;
    bool below = w->grads[AUDIO_CONV1] || w->grads[AUDIO_CONV1_BIAS];
    if (w->grads[AUDIO_POSITIONS])
        ops_add(w->grads[AUDIO_POSITIONS], p->dx, n);
    memset(p->dnorm, 0, n * sizeof *p->dnorm);
    ops_gelu_erf_backward(p->dnorm, p->dx, c->slot->conv2, n);
    ops_gelu_erf_forward(p->conv, c->slot->conv1, wide);
    memset(p->dconv, 0, wide * sizeof *p->dconv);
    convolution_backward(w, AUDIO_CONV2, below ? p->dconv : NULL, p->dnorm, c->positions, p->conv,
                         c->frames, 2);
    if (!below)
        return;
    memset(p->conv, 0, wide * sizeof *p->conv);
    ops_gelu_erf_backward(p->conv, p->dconv, c->slot->conv1, wide);
    convolution_backward(w, AUDIO_CONV1, NULL, p->conv, c->frames, c->mel, c->frames, 1);
}

/* The projector; leaves the gradient of the stacked rows in dstacked. */
static void project_backward(backward *w, const float *d_rows)
{
    audio_pass *p = w->p;
    const audio_shape *s = &p->a->shape;
    const audio_slot *t = w->c->slot;
    size_t rows = w->c->rows, tail = p->a->tail, m = s->middle,
           stacked = (size_t)s->stack * s->width;
    linear_part(w, tail + AUDIO_MLP2, false, p->dmid, d_rows, t->mid, rows, false);
    memset(p->dgated, 0, rows * m * sizeof *p->dgated);
    ops_rms_norm_backward(p->dgated, w->grads[tail + AUDIO_NORM_MID], p->dmid, t->gated,
                          audio_values(p, tail + AUDIO_NORM_MID), rows, m, AUDIO_PROJECTOR_EPSILON);
    for (size_t r = 0; r < rows; r++) {
        size_t up = 2 * r * m, gate = up + m;
        ops_swiglu_backward(p->dhidden + gate, p->dhidden + up, p->dgated + r * m, t->hidden + gate,
                            t->hidden + up, m);
    }
    linear_part(w, tail + AUDIO_MLP1, false, p->dpre, p->dhidden, t->pre, rows, false);
    memset(p->dstacked, 0, rows * stacked * sizeof *p->dstacked);
    ops_rms_norm_backward(p->dstacked, w->grads[tail + AUDIO_NORM_PRE], p->dpre, t->stacked,
                          audio_values(p, tail + AUDIO_NORM_PRE), rows, stacked,
                          AUDIO_PROJECTOR_EPSILON);
}

/* The lowest stage with a gradient wanted: 0 the embedding, 1 + l block l, 1 + layers the last
 * norm, 2 + layers the projector. */
static size_t lowest_stage(const audio_pass *p, float *const *grads)
{
    const tacit_audio *a = p->a;
    size_t i = 0;
    while (i < a->count && !grads[i] && !encoder_pair_is_trained(p->adapter, i))
        i++;
    if (i < AUDIO_FIRST_BLOCK)
        return 0;
    if (i < a->tail)
        return 1 + (i - AUDIO_FIRST_BLOCK) / AUDIO_PARTS;
    return (i < a->tail + AUDIO_NORM_PRE ? 1 : 2) + (size_t)a->shape.layers;
}

static void backward_chunk(backward *w, const audio_chunk *c, size_t lowest, const float *d_rows)
{
    audio_pass *p = w->p;
    size_t layers = p->a->shape.layers;
    w->c = c;
    project_backward(w, d_rows);
    if (lowest > 1 + layers)
        return;
    memset(p->dx, 0, c->positions * p->a->shape.width * sizeof *p->dx);
    norm_part(w, p->a->tail + AUDIO_POST_LN, p->dx, p->dstacked,
              audio_layer_input(p, c->slot, layers));
    for (size_t l = layers; l-- > 0 && lowest <= 1 + l;) {
        w->b = audio_block_of(p, c->slot, l);
        /* The output is known already; dmixed is free to take it. */
        if (!p->keep_all)
            audio_block_forward(p, l, c->positions, audio_block_of(p, c->slot, l),
                                audio_layer_input(p, c->slot, l), p->dmixed);
        block_backward(w, l, audio_layer_input(p, c->slot, l));
    }
    if (lowest == 0)
        embed_backward(w);
}

void audio_backward(audio_pass *p, const float *const *d_rows, float *const *grads)
{
    backward w = {.p = p, .grads = grads};
    size_t lowest = lowest_stage(p, grads), slot = 0;
    audio_chunk c;
    for (size_t i = 0; i < p->n; i++) {
        const float *from = d_rows[i];
        for (size_t j = 0; audio_chunk_of(p->a, &p->clips[i], j, &c); j++) {
            c.slot = &p->slot[p->keep_all ? slot++ : 0];
            if (!p->keep_all)
                audio_chunk_forward(p, &c, NULL);
            backward_chunk(&w, &c, lowest, from);
            from += c.rows * p->a->shape.out_width;
        }
    }
}
