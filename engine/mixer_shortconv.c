/* A gated short convolution as a kind of layer (text_mixer.h), of D = embedding values and a kernel
 * w [D, K]; Liquid AI 2025, arXiv 2511.23404, section 2:
 *   (b, c, x) = conv_in(h); s = b x;  mixed = conv_out(c y),
 *   y of row r = sum over k < K of w[:, k] times s of row r - (K - 1) + k, zero before the sequence
 * Rows are those of the sequence whatever their positions. The state are the last K - 1 rows of s.
 */
#include "engine/kv_cache.h"
#include "engine/text_forward.h"
#include "engine/text_train_parts.h"

#include <string.h>

static tacit_status load(text_loader *t, size_t layer)
{
    size_t d = t->m->embedding;
    tacit_status status;
    TACIT_TRY(text_load_linear(t, layer, TEXT_CONV_IN, d, 3 * d), done);
    TACIT_TRY(text_load_linear(t, layer, TEXT_CONV_OUT, d, d), done);
    TACIT_TRY(text_load_norm(t, layer, TEXT_CONV_KERNEL), done);
done:
    return status;
}

/* s = b x of rows of bcx [n, 3, d]. */
static void gate_rows(float *s, const float *bcx, size_t n, size_t d)
{
    for (size_t r = 0; r < n; r++, bcx += 3 * d, s += d)
        for (size_t i = 0; i < d; i++)
            s[i] = bcx[i] * bcx[2 * d + i];
}

/* y [d] of the row of which s [1 - width .. 0, d] are the values before and its own. */
static void convolve(float *y, const float *s, const float *w, size_t width, size_t d)
{
    memset(y, 0, d * sizeof *y);
    for (size_t k = 0; k < width; k++)
        for (size_t i = 0; i < d; i++)
            y[i] += w[i * width + k] * s[k * d + i];
}

/* ---- inference ---- */

/* bcx [rows, 3 d], s [width - 1 + rows, d], y [rows, d] */
static size_t forward_floats(const tacit_text_model *m, size_t layer, size_t rows)
{
    (void)layer;
    return (5 * rows + m->conv_width) * m->embedding;
}

static size_t scratch_floats(const tacit_text_model *m, size_t layer, size_t threads)
{
    (void)m, (void)layer, (void)threads;
    return 0;
}

static void forward(text_forward *f, size_t layer, kv_cache *cache, size_t first, size_t rows)
{
    static const text_linear output[] = {TEXT_CONV_OUT};
    const text_mixer *kind = f->m->layer[layer].mixer;
    const float *w = f->m->layer[layer].norm[TEXT_CONV_KERNEL];
    size_t d = f->m->embedding, width = f->m->conv_width;
    float *bcx = f->mix, *s = bcx + 3 * rows * d, *own = s + (width - 1) * d, *y = own + rows * d;
    text_forward_multiply(f, layer, kind->input, kind->inputs, (float *const[]){bcx}, f->h, rows);
    gate_rows(own, bcx, rows, d);
    kv_state_before(cache, layer, first, s);
    kv_state_store(cache, layer, first, rows, own);
    for (size_t r = 0; r < rows; r++) {
        convolve(y + r * d, s + r * d, w, width, d);
        for (size_t i = 0; i < d; i++)
            y[r * d + i] *= bcx[(3 * r + 1) * d + i];
    }
    text_forward_apply(f, layer, output, 1, (float *const[]){f->h}, y, rows);
}

/* ---- training ---- */

/* bcx [n, 3 d], and what conv_out reads [m, d] */
static size_t kept_floats(const tacit_text_model *m, size_t layer)
{
    (void)layer;
    return 4 * m->embedding;
}

/* s with zeros before it [width - 1 + n, d] and its gradient; gradients of bcx and of what conv_out
 * reads; y of one row and its gradient. */
static size_t work_floats(const tacit_text_model *m, size_t layer, size_t rows)
{
    (void)layer;
    return (2 * (m->conv_width - 1 + rows) + 4 * rows + 2) * m->embedding;
}

static size_t train_scratch_floats(const tacit_text_model *m, size_t layer, size_t rows,
                                   size_t threads)
{
    (void)m, (void)layer, (void)rows, (void)threads;
    return 0;
}

typedef struct conv_visit {
    size_t d, width;
    const float *w;     /* [d, width] */
    float *bcx, *gated; /* kept */
    float *s, *ds;      /* begin at row 1 - width */
    float *d_bcx, *d_gated, *y, *dy;
} conv_visit;

static conv_visit visit(const text_train *t, const layer_visit *v, const example_view *e)
{
    size_t d = t->model->embedding, width = t->model->conv_width;
    conv_visit c = {.d = d, .width = width, .w = v->layer->norm[TEXT_CONV_KERNEL]};
    c.bcx = e->acts.mix;
    c.gated = c.bcx + 3 * e->n * d;
    c.s = t->mix;
    c.ds = c.s + (width - 1 + e->n) * d;
    c.d_bcx = c.ds + (width - 1 + e->n) * d;
    c.d_gated = c.d_bcx + 3 * e->n * d;
    c.y = c.d_gated + e->n * d;
    c.dy = c.y + d;
    memset(c.s, 0, (width - 1) * d * sizeof *c.s);
    gate_rows(c.s + (width - 1) * d, c.bcx, e->n, d);
    return c;
}

/* The row that query i is. */
static size_t row_of(const layer_visit *v, const example_view *e, size_t i)
{
    return v->top ? e->rows->predictor[i] : i;
}

static void train_forward(text_train *t, const layer_visit *v, example_view *e, float *y)
{
    train_apply(t, v, TEXT_CONV_IN, e->acts.mix, e->acts.h, e->n);
    conv_visit c = visit(t, v, e);
    for (size_t i = 0; i < e->m; i++) {
        size_t r = row_of(v, e, i);
        float *to = c.gated + i * c.d;
        convolve(to, c.s + r * c.d, c.w, c.width, c.d);
        for (size_t k = 0; k < c.d; k++)
            to[k] *= c.bcx[(3 * r + 1) * c.d + k];
    }
    train_apply(t, v, TEXT_CONV_OUT, y, c.gated, e->m);
}

/* Of row r, from d_gated: the gradient of c, and in ds and dw what comes through its y. */
static void backward_row(const conv_visit *c, const float *d_gated, size_t r, float *dw)
{
    const float *gate = c->bcx + (3 * r + 1) * c->d;
    float *d_gate = c->d_bcx + (3 * r + 1) * c->d;
    convolve(c->y, c->s + r * c->d, c->w, c->width, c->d);
    for (size_t i = 0; i < c->d; i++) {
        d_gate[i] += d_gated[i] * c->y[i];
        c->dy[i] = d_gated[i] * gate[i];
    }
    for (size_t k = 0; k < c->width; k++)
        for (size_t i = 0; i < c->d; i++) {
            size_t at = (r + k) * c->d + i;
            c->ds[at] += c->dy[i] * c->w[i * c->width + k];
            if (dw)
                dw[i * c->width + k] += c->dy[i] * c->s[at];
        }
}

/* c->d_bcx, and the kernel's gradient. */
static void backward_rows(const conv_visit *c, const layer_visit *v, const example_view *e)
{
    float *dw = train_slot(e->rows->grad, v->plan->norm[TEXT_CONV_KERNEL]);
    memset(c->ds, 0, (c->width - 1 + e->n) * c->d * sizeof *c->ds);
    memset(c->d_bcx, 0, 3 * e->n * c->d * sizeof *c->d_bcx);
    for (size_t i = 0; i < e->m; i++)
        backward_row(c, c->d_gated + i * c->d, row_of(v, e, i), dw);
    const float *ds = c->ds + (c->width - 1) * c->d;
    for (size_t r = 0; r < e->n; r++)
        for (size_t i = 0; i < c->d; i++) {
            size_t b = 3 * r * c->d + i, x = b + 2 * c->d;
            c->d_bcx[b] = ds[r * c->d + i] * c->bcx[x];
            c->d_bcx[x] = ds[r * c->d + i] * c->bcx[b];
        }
}

static void train_backward(text_train *t, const layer_visit *v, example_view *e, const float *dy)
{
    conv_visit c = visit(t, v, e);
    train_weight_gradients(t, v, TEXT_CONV_OUT, e->rows->grad, dy, c.gated, e->m);
    if (!v->plan->need_qkv)
        return;
    train_input_gradient(t, v, TEXT_CONV_OUT, c.d_gated, dy, e->m, false);
    backward_rows(&c, v, e);
    train_weight_gradients(t, v, TEXT_CONV_IN, e->rows->grad, c.d_bcx, e->acts.h, e->n);
    if (v->plan->need_h)
        train_input_gradient(t, v, TEXT_CONV_IN, t->d_h, c.d_bcx, e->n, false);
}

const text_mixer mixer_shortconv = {
    .name = "short convolution",
    .input = {TEXT_CONV_IN},
    .inputs = 1,
    .load = load,
    .forward = forward,
    .forward_floats = forward_floats,
    .scratch_floats = scratch_floats,
    .train_forward = train_forward,
    .train_backward = train_backward,
    .kept_floats = kept_floats,
    .work_floats = work_floats,
    .train_scratch_floats = train_scratch_floats,
};
