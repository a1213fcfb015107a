#include "engine/text_train_parts.h"

#include "common/memory_limit.h"
#include "engine/kernels.h"
#include "engine/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of logits that exist at a time; the chunk depends on the vocabulary alone. */
#define LOGIT_BYTES ((size_t)8 << 20)
#define VOCAB_WHOLE 4096 /* rows of the output layer whose gradients are summed at once */
#define VOCAB_SLICE 128  /* rows of the output layer whose gradients are summed by themselves */
#define SHORTER "shorten the examples"
#define SUM_BLOCK 128 /* exponentials that are summed in single precision */

/* ---- memory ---- */

/* Hands out parts of the arena; with a NULL base it only counts. Parts are 64-byte aligned. */
typedef struct train_cursor {
    float *base;
    size_t used;
} train_cursor;

static float *take(train_cursor *c, size_t floats)
{
    float *part = c->base ? c->base + c->used : NULL;
    c->used += (floats + 15) / 16 * 16;
    return part;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void take_acts(train_cursor *c, train_acts *a, const text_train *t)
{
    const tacit_text_model *m = t->model;
    size_t rows = t->max_rows, width = rows * m->embedding, ff = rows * m->max_ff;
    train_acts parts = {0};
    parts.h = take(c, width);
    parts.mix = take(c, rows * t->mix_floats);
    if (text_has_norm(m, TEXT_ATTN_POST_NORM))
        parts.mixed = take(c, width);
    parts.mid = take(c, width);
    parts.h2 = take(c, width);
    parts.gate = take(c, ff);
    parts.up = take(c, ff);
    parts.act = take(c, ff);
    if (text_has_norm(m, TEXT_FFN_POST_NORM))
        parts.fed = take(c, width);
    if (a)
        *a = parts;
}

static bool fits_acts(const text_train *t)
{
    train_cursor c = {0};
    take_acts(&c, NULL, t);
    return c.used * t->model->n_layers * sizeof(float) <= TEXT_TRAIN_KEEP;
}

static bool is_plain(const tacit_linear *l)
{
    return l->expanded || l->type->type == TACIT_TYPE_F32;
}

static size_t expanded_floats(const tacit_text_model *m)
{
    size_t most = 0;
    for (size_t i = 0; i < m->n_layers; i++) {
        size_t layer = 0;
        for (int k = 0; k < TEXT_LINEARS; k++) {
            const tacit_linear *l = &m->layer[i].linear[k];
            layer += is_plain(l) ? 0 : linear_expand_floats(l);
        }
        most = layer > most ? layer : most;
    }
    return most;
}

static size_t scratch_floats(const train_plan *p, size_t rows, size_t threads)
{
    const tacit_text_model *m = p->model;
    size_t rank = p->pairs.max_rank, n = linear_scratch(&m->output, rows, rank, threads);
    for (size_t i = 0; i < m->n_layers; i++) {
        n = most(n, m->layer[i].mixer->train_scratch_floats(m, i, rows, threads));
        for (int k = 0; k < TEXT_LINEARS; k++)
            n = most(n, linear_scratch(&m->layer[i].linear[k], rows, rank, threads));
    }
    return n;
}

static size_t logit_chunk(const tacit_text_model *m)
{
    size_t rows = LOGIT_BYTES / sizeof(float) / m->vocab;
    return rows > 0 ? rows : 1;
}

static void take_all(train_cursor *c, text_train *t)
{
    const tacit_text_model *m = t->model;
    size_t rows = t->max_rows, width = m->embedding, chunk = t->chunk < rows ? t->chunk : rows;
    for (size_t i = 0; i < m->n_layers; i++) {
        float *x = take(c, rows * width);
        if (t->x)
            t->x[i] = x;
    }
    for (size_t i = 0; i < (t->keep ? m->n_layers : 1); i++)
        take_acts(c, t->acts ? &t->acts[i] : NULL, t);
    t->queries = take(c, rows * width);
    t->y = take(c, rows * width);
    t->normed = take(c, rows * width);
    t->stream = take(c, rows * width);
    t->top = take(c, rows * width);
    t->d_act = take(c, rows * m->max_ff);
    t->mix = take(c, t->work_floats);
    t->d_h = take(c, rows * width);
    t->d_queries = take(c, rows * width);
    for (size_t i = 0; i < m->n_ropes; i++) {
        t->rope[i] = take(c, rows * m->head_dim);
        t->rope_queries[i] = take(c, rows * m->head_dim);
    }
    t->logits = take(c, chunk * m->vocab);
    t->slice = take(c, chunk * (VOCAB_SLICE + width));
    t->dx_sum = (double *)(void *)take(c, 2 * chunk * width);
    t->scratch = take(c, scratch_floats(t->plan, rows, t->threads));
    t->expanded = take(c, expanded_floats(m));
}

static text_train plan_memory(const train_plan *plan, const text_train_options *options,
                              size_t threads)
{
    const tacit_text_model *m = plan->model;
    text_train t = {.plan = plan,
                    .model = m,
                    .max_rows = options->max_rows,
                    .threads = threads,
                    .chunk = options->logit_rows ? options->logit_rows : logit_chunk(m)};
    for (size_t i = 0; i < m->n_layers; i++) {
        t.mix_floats = most(t.mix_floats, m->layer[i].mixer->kept_floats(m, i));
        t.work_floats = most(t.work_floats, m->layer[i].mixer->work_floats(m, i, t.max_rows));
    }
    t.keep = !options->recompute && fits_acts(&t);
    return t;
}

size_t text_train_bytes(const train_plan *plan, const text_train_options *options, size_t threads)
{
    train_cursor c = {0};
    text_train t = plan_memory(plan, options, threads);
    take_all(&c, &t);
    return c.used * sizeof(float);
}

tacit_status text_train_new(text_train **out, const train_plan *plan,
                            const text_train_options *options, tacit_pool *pool, tacit_error *err)
{
    const tacit_text_model *m = plan->model;
    size_t threads = pool ? tacit_pool_threads(pool) : 1;
    size_t bytes = text_train_bytes(plan, options, threads);
    char what[64];
    snprintf(what, sizeof what, "the activations of %zu rows", options->max_rows);
    tacit_status status = tacit_memory_judge(bytes, what, SHORTER, err);
    if (status != TACIT_OK)
        return status;
    text_train *t = calloc(1, sizeof *t);
    if (!t)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory");
    *t = plan_memory(plan, options, threads);
    t->pool = pool;
    t->x = calloc(m->n_layers, sizeof *t->x);
    t->acts = calloc(m->n_layers, sizeof *t->acts);
    t->span = calloc(options->max_rows, sizeof *t->span);
    t->arena = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!t->x || !t->acts || !t->span || !t->arena) {
        text_train_free(t);
        return tacit_memory_fail(bytes, what, SHORTER, err);
    }
    train_cursor c = {.base = t->arena};
    take_all(&c, t);
    *out = t;
    return TACIT_OK;
}

void text_train_free(text_train *t)
{
    if (!t)
        return;
    free(t->x);
    free(t->acts);
    free(t->span);
    free(t->arena);
    free(t);
}

float *text_train_input(text_train *t)
{
    return t->x[0];
}

const float *text_train_input_gradient(const text_train *t)
{
    return t->stream;
}

/* ---- views ---- */

typedef enum visit_form { VISIT_FORWARD, VISIT_BACKWARD } visit_form;

/* Weights are dequantized once for all products of the visit, in the form that they read. */
static layer_visit visit_layer(text_train *t, size_t index, visit_form form)
{
    layer_visit v = {.index = index};
    v.layer = &t->model->layer[index];
    v.plan = &t->plan->layer[index];
    v.top = index + 1 == t->model->n_layers;
    float *buffer = t->expanded;
    for (int i = 0; i < TEXT_LINEARS; i++) {
        const tacit_linear *l = &v.layer->linear[i];
        v.linear[i] = *l;
        if (is_plain(l))
            continue;
        linear_expand(t->pool, &v.linear[i], l, form == VISIT_BACKWARD, buffer);
        buffer += linear_expand_floats(l);
    }
    return v;
}

static float *from_row(float *x, size_t floats)
{
    return x ? x + floats : NULL;
}

static train_acts acts_from(const train_acts *a, const text_train *t, size_t row)
{
    size_t x = row * t->model->embedding, ff = row * t->model->max_ff;
    return (train_acts){.h = a->h + x,
                        .mix = a->mix + row * t->mix_floats,
                        .mixed = from_row(a->mixed, x),
                        .fed = from_row(a->fed, x),
                        .mid = a->mid + x,
                        .h2 = a->h2 + x,
                        .gate = a->gate + ff,
                        .up = a->up + ff,
                        .act = a->act + ff};
}

/* The part of `example`, whose rows begin at row `first` of the run. */
static example_view view_of(const text_train *t, const layer_visit *v,
                            const text_train_rows *example, size_t first)
{
    const tacit_text_model *m = t->model;
    size_t x = first * m->embedding, rope = first * m->head_dim;
    example_view e = {.rows = example, .n = example->count};
    e.acts = acts_from(&t->acts[t->keep ? v->index : 0], t, first);
    e.m = v->top ? example->n_predicted : example->count;
    e.x = t->x[v->index] + x;
    e.y = v->top ? t->y + x : t->x[v->index + 1] + x;
    e.dx = t->stream + x;
    e.dy = v->top ? t->top + x : e.dx;
    e.queries = t->queries + x;
    e.normed = t->normed + x;
    for (size_t i = 0; i < m->n_ropes; i++) {
        e.rope[i] = t->rope[i] + rope;
        e.rope_queries[i] = t->rope_queries[i] + rope;
    }
    return e;
}

/* Calls `work` for every example of a run. */
static void for_each(text_train *t, const layer_visit *v, text_train_rows *example, size_t n,
                     void (*work)(text_train *t, const layer_visit *v, example_view *e))
{
    for (size_t i = 0, first = 0; i < n; first += example[i++].count) {
        example_view e = view_of(t, v, &example[i], first);
        work(t, v, &e);
    }
}

/* ---- forward ---- */

static const text_pairs *pairs_of(const text_train *t)
{
    return t->plan->pairs.pair ? &t->plan->pairs : NULL;
}

static const tacit_low_rank *pair_of(const text_train *t, const layer_visit *v, text_linear which)
{
    return text_pair(pairs_of(t), v->index, which);
}

void train_apply(text_train *t, const layer_visit *v, text_linear which, float *y, const float *x,
                 size_t rows)
{
    linear_forward(t->pool, &v->linear[which], pair_of(t, v, which), y, x, rows, t->scratch);
}

/* to[i, :] = from[row[i], :] */
static void gather_rows(float *to, const float *from, const size_t *row, size_t count, size_t width)
{
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * width, from + row[i] * width, width * sizeof *to);
}

void train_scatter_rows(float *to, const float *from, const size_t *row, size_t count, size_t width)
{
    for (size_t i = 0; i < count; i++)
        ops_add(to + row[i] * width, from + i * width, width);
}

/* Angles of all rows, and of the predicting ones. */
static void prepare_rows(text_train *t, const layer_visit *v, example_view *e)
{
    const tacit_text_model *m = t->model;
    const text_train_rows *rows = e->rows;
    (void)v;
    for (size_t i = 0; i < m->n_ropes; i++) {
        ops_rope_table(e->rope[i], &m->rope[i], rows->place->position, TEXT_PLACE_STRIDE, e->n);
        gather_rows(e->rope_queries[i], e->rope[i], rows->predictor, rows->n_predicted,
                    m->head_dim);
    }
}

/* to [m, embedding] = from, by way of the layer's norm `post` where it has one. */
static void post_norm(const text_train *t, const layer_visit *v, const example_view *e,
                      text_norm post, float *to, const float *from)
{
    const tacit_text_model *m = t->model;
    if (v->layer->norm[post])
        ops_rms_norm_forward(to, from, v->layer->norm[post], e->m, m->embedding, m->rms_eps);
}

/* mid = x + post_norm(mix(norm(x))) */
static void forward_mixing(text_train *t, const layer_visit *v, example_view *e)
{
    const tacit_text_model *m = t->model;
    const tacit_text_layer *l = v->layer;
    train_acts *a = &e->acts;
    size_t width = m->embedding;
    ops_rms_norm_forward(a->h, e->x, l->norm[TEXT_ATTN_NORM], e->n, width, m->rms_eps);
    if (v->top)
        gather_rows(e->queries, a->h, e->rows->predictor, e->m, width);
    l->mixer->train_forward(t, v, e, l->norm[TEXT_ATTN_POST_NORM] ? a->mixed : a->mid);
    post_norm(t, v, e, TEXT_ATTN_POST_NORM, a->mid, a->mixed);
    for (size_t i = 0; i < e->m; i++)
        ops_add(a->mid + i * width, e->x + (v->top ? e->rows->predictor[i] : i) * width, width);
}

/* Everything up to the input of down, and up to that of the norm behind it. */
static void forward_acts(text_train *t, const layer_visit *v, example_view *e)
{
    const tacit_text_layer *l = v->layer;
    train_acts *a = &e->acts;
    forward_mixing(t, v, e);
    ops_rms_norm_forward(a->h2, a->mid, l->norm[TEXT_FFN_NORM], e->m, t->model->embedding,
                         t->model->rms_eps);
    train_apply(t, v, TEXT_GATE, a->gate, a->h2, e->m);
    train_apply(t, v, TEXT_UP, a->up, a->h2, e->m);
    l->activation->forward(a->act, a->gate, a->up, e->m * l->n_ff);
    if (l->norm[TEXT_FFN_POST_NORM])
        train_apply(t, v, TEXT_DOWN, a->fed, a->act, e->m);
}

static void forward_layer(text_train *t, const layer_visit *v, example_view *e)
{
    forward_acts(t, v, e);
    if (v->layer->norm[TEXT_FFN_POST_NORM])
        post_norm(t, v, e, TEXT_FFN_POST_NORM, e->y, e->acts.fed);
    else
        train_apply(t, v, TEXT_DOWN, e->y, e->acts.act, e->m);
    ops_add(e->y, e->acts.mid, e->m * t->model->embedding);
}

/* ---- loss ---- */

/* Negative log-likelihood of `target`; turns the logits into their probabilities times `scale`,
 * which are their gradient but for the target's, `scale` less. The sum over a large vocabulary is
 * taken in blocks and then in double: where the model is sure, the gradient is a small difference,
 * and an error of the sum would dominate it. */
static double row_loss(float *logits, size_t vocab, int32_t target, float scale)
{
    const tacit_kernels *k = kernels();
    float most = k->max(logits, vocab), wanted = logits[target];
    double sum = 0;
    for (size_t at = 0; at < vocab; at += SUM_BLOCK) {
        size_t n = vocab - at < SUM_BLOCK ? vocab - at : SUM_BLOCK;
        sum += (double)k->exp_sum(logits + at, logits + at, most, n);
    }
    ops_scale(logits, (float)((double)scale / sum), vocab);
    return log(sum) + ((double)most - (double)wanted);
}

/* Rows first .. first + count - 1 of a linear's weight. */
static tacit_linear linear_slice(const tacit_linear *l, size_t first, size_t count)
{
    tacit_linear slice = *l;
    if (l->expanded)
        linear_init_f32(&slice, l->expanded + first * l->n_in, NULL, l->n_in, count);
    slice.weight = l->expanded ? slice.weight : (const uint8_t *)l->weight + first * l->row_bytes;
    slice.n_out = count;
    return slice;
}

static void subtract_targets(text_train *t, const int32_t *target, float scale, size_t count)
{
    for (size_t i = 0; i < count; i++)
        t->logits[i * t->model->vocab + (size_t)target[i]] -= scale;
}

/* What the targets add to the gradient, in double. `row` has room for one of the layer's. */
static void begin_with_targets(text_train *t, const int32_t *target, float scale, size_t count,
                               float *row)
{
    const tacit_linear *l = &t->model->output;
    for (size_t i = 0; i < count; i++) {
        double d = (double)t->logits[i * l->n_out + (size_t)target[i]] - (double)scale;
        linear_row(l, (size_t)target[i], row);
        for (size_t k = 0; k < l->n_in; k++)
            t->dx_sum[i * l->n_in + k] = d * (double)row[k];
    }
}

/* Columns at .. at + n - 1 of the logits, without the targets'. */
static void take_slice(const text_train *t, float *dy, size_t at, size_t n, const int32_t *target,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(dy + i * n, t->logits + i * t->model->vocab + at, n * sizeof *dy);
        if ((size_t)target[i] - at < n)
            dy[i * n + (size_t)target[i] - at] = 0;
    }
}

/* dx = dy W of the output layer, `count` rows, and the logits' gradient. That of a large vocabulary
 * is what is left when many small terms and the target's, as large as all of them, cancel: slices
 * are summed in double, and so is the target's term, to whose size the sum of its slice would
 * round. */
static void output_input_gradient(text_train *t, float *dx, const int32_t *target, float scale,
                                  size_t count)
{
    const tacit_linear *l = &t->model->output;
    size_t n_dx = count * l->n_in;
    float *dy = t->slice, *part = dy + count * VOCAB_SLICE;
    if (l->n_out <= VOCAB_WHOLE) {
        subtract_targets(t, target, scale, count);
        linear_backward_input(t->pool, l, NULL, dx, t->logits, count, false, t->scratch);
        return;
    }
    begin_with_targets(t, target, scale, count, part);
    for (size_t at = 0; at < l->n_out; at += VOCAB_SLICE) {
        size_t n = l->n_out - at < VOCAB_SLICE ? l->n_out - at : VOCAB_SLICE;
        tacit_linear slice = linear_slice(l, at, n);
        take_slice(t, dy, at, n, target, count);
        linear_backward_input(t->pool, &slice, NULL, part, dy, count, false, t->scratch);
        for (size_t i = 0; i < n_dx; i++)
            t->dx_sum[i] += (double)part[i];
    }
    for (size_t i = 0; i < n_dx; i++)
        dx[i] = (float)t->dx_sum[i];
    subtract_targets(t, target, scale, count);
}

/* Gradients of the output layer's values for `count` rows x, whose logits' gradient is there; those
 * of its pair reach dx, too. */
static void output_gradients(text_train *t, float *grad, float *dx, const float *x, size_t count)
{
    const train_plan *p = t->plan;
    const tacit_linear *l = &t->model->output;
    const tacit_low_rank *pair = text_output_pair(pairs_of(t));
    if (p->output != TRAIN_FROZEN)
        linear_backward_weight(t->pool, l, grad + p->output, t->logits, x, count);
    if (!pair)
        return;
    const linear_pair_gradient d = train_pair_gradient(&p->output_pair, grad);
    linear_backward_pair(t->pool, l, pair, &d, t->logits, x, count, t->scratch);
    linear_add_pair_input(t->pool, l, pair, dx, t->logits, count, t->scratch);
}

/* Sum of the losses. With a `grad` t->d_h receives the gradient of the normed rows. */
static double chunk_losses(text_train *t, const example_view *e)
{
    const tacit_text_model *m = t->model;
    const text_train_rows *rows = e->rows;
    float scale = rows->gradient_scale / (float)rows->n_predicted;
    double sum = 0;
    for (size_t first = 0; first < rows->n_predicted; first += t->chunk) {
        size_t left = rows->n_predicted - first, count = left < t->chunk ? left : t->chunk;
        float *x = e->normed + first * m->embedding, *dx = t->d_h + first * m->embedding;
        linear_forward(t->pool, &m->output, text_output_pair(pairs_of(t)), t->logits, x, count,
                       t->scratch);
        for (size_t i = 0; i < count; i++)
            sum += row_loss(t->logits + i * m->vocab, m->vocab, rows->target[first + i], scale);
        if (!rows->grad)
            continue;
        output_input_gradient(t, dx, rows->target + first, scale, count);
        output_gradients(t, rows->grad, dx, x, count);
    }
    return sum;
}

/* The example's loss and, with a `grad`, the gradient of the top layer's output. */
static double example_loss(text_train *t, const example_view *e)
{
    const tacit_text_model *m = t->model;
    size_t n = e->rows->n_predicted;
    ops_rms_norm_forward(e->normed, e->y, m->output_norm, n, m->embedding, m->rms_eps);
    double loss = chunk_losses(t, e) / (double)n;
    if (!e->rows->grad)
        return loss;
    memset(e->dy, 0, n * m->embedding * sizeof *e->dy);
    ops_rms_norm_backward(e->dy, train_slot(e->rows->grad, t->plan->output_norm), t->d_h, e->y,
                          m->output_norm, n, m->embedding, m->rms_eps);
    return loss;
}

/* ---- backward ---- */

void train_weight_gradients(text_train *t, const layer_visit *v, text_linear which, float *grad,
                            const float *dy, const float *x, size_t rows)
{
    const train_layer *p = v->plan;
    const tacit_linear *l = &v->linear[which];
    const tacit_low_rank *pair = pair_of(t, v, which);
    if (pair) {
        const linear_pair_gradient d = train_pair_gradient(&p->pair[which], grad);
        linear_backward_pair(t->pool, l, pair, &d, dy, x, rows, t->scratch);
    }
    if (p->weight[which] != TRAIN_FROZEN)
        linear_backward_weight(t->pool, l, grad + p->weight[which], dy, x, rows);
    if (p->bias[which] != TRAIN_FROZEN)
        linear_backward_bias(l, grad + p->bias[which], dy, rows);
}

void train_input_gradient(text_train *t, const layer_visit *v, text_linear which, float *dx,
                          const float *dy, size_t rows, bool accumulate)
{
    linear_backward_input(t->pool, &v->linear[which], pair_of(t, v, which), dx, dy, rows,
                          accumulate, t->scratch);
}

/* The gradient of what half of a layer came to: e->dy, or t->d_h, its own by way of the norm `post`
 * of `x`. */
static const float *backward_post_norm(text_train *t, const layer_visit *v, const example_view *e,
                                       text_norm post, const float *x)
{
    const tacit_text_model *m = t->model;
    const float *w = v->layer->norm[post];
    if (!w)
        return e->dy;
    memset(t->d_h, 0, e->m * m->embedding * sizeof *t->d_h);
    ops_rms_norm_backward(t->d_h, train_slot(e->rows->grad, v->plan->norm[post]), e->dy, x, w, e->m,
                          m->embedding, m->rms_eps);
    return t->d_h;
}

/* e->dy: from the gradient of the layer's output to that of `mid`. */
static void backward_feed(text_train *t, const layer_visit *v, example_view *e)
{
    const train_layer *p = v->plan;
    train_acts *a = &e->acts;
    float *grad = e->rows->grad;
    const float *d = backward_post_norm(t, v, e, TEXT_FFN_POST_NORM, a->fed);
    train_weight_gradients(t, v, TEXT_DOWN, grad, d, a->act, e->m);
    if (!p->need_act)
        return;
    train_input_gradient(t, v, TEXT_DOWN, t->d_act, d, e->m, false);
    v->layer->activation->backward(a->gate, a->up, t->d_act, a->gate, a->up, e->m * v->layer->n_ff);
    train_weight_gradients(t, v, TEXT_GATE, grad, a->gate, a->h2, e->m);
    train_weight_gradients(t, v, TEXT_UP, grad, a->up, a->h2, e->m);
    if (!p->need_mid && p->norm[TEXT_FFN_NORM] == TRAIN_FROZEN)
        return;
    train_input_gradient(t, v, TEXT_GATE, t->d_h, a->gate, e->m, false);
    train_input_gradient(t, v, TEXT_UP, t->d_h, a->up, e->m, true);
    ops_rms_norm_backward(e->dy, train_slot(grad, p->norm[TEXT_FFN_NORM]), t->d_h, a->mid,
                          v->layer->norm[TEXT_FFN_NORM], e->m, t->model->embedding,
                          t->model->rms_eps);
}

/* From e->dy, the gradient of the layer's output, to e->dx, that of its input. */
static void backward_layer(text_train *t, const layer_visit *v, example_view *e)
{
    const train_layer *p = v->plan;
    size_t width = t->model->embedding;
    backward_feed(t, v, e);
    if (!p->need_mid)
        return;
    const float *d = backward_post_norm(t, v, e, TEXT_ATTN_POST_NORM, e->acts.mixed);
    v->layer->mixer->train_backward(t, v, e, d);
    if (!p->need_h)
        return;
    /* The residual stream carries on in place, or from the predicting rows to all rows. */
    if (v->top) {
        memset(e->dx, 0, e->n * width * sizeof *e->dx);
        train_scatter_rows(e->dx, e->dy, e->rows->predictor, e->m, width);
    }
    ops_rms_norm_backward(e->dx, train_slot(e->rows->grad, p->norm[TEXT_ATTN_NORM]), t->d_h, e->x,
                          v->layer->norm[TEXT_ATTN_NORM], e->n, width, t->model->rms_eps);
}

/* Without `keep` the activations of the top layer are still those of the forward; the others are
 * computed again. */
static void backward_layers(text_train *t, text_train_rows *example, size_t n)
{
    for (size_t i = t->model->n_layers; i-- > t->plan->first_layer;) {
        if (!t->keep && i + 1 < t->model->n_layers) {
            layer_visit again = visit_layer(t, i, VISIT_FORWARD);
            for_each(t, &again, example, n, forward_acts);
        }
        layer_visit v = visit_layer(t, i, VISIT_BACKWARD);
        for_each(t, &v, example, n, backward_layer);
    }
}

void text_train_run(text_train *t, text_train_rows *example, size_t n)
{
    size_t layers = t->model->n_layers;
    layer_visit v = {.index = layers - 1, .top = true}; /* whose rows are the predicting ones */
    for_each(t, &v, example, n, prepare_rows);
    for (size_t i = 0; i < layers; i++) {
        v = visit_layer(t, i, VISIT_FORWARD);
        for_each(t, &v, example, n, forward_layer);
    }
    for (size_t i = 0, first = 0; i < n; first += example[i++].count) {
        example_view e = view_of(t, &v, &example[i], first);
        example[i].loss = example_loss(t, &e);
    }
    if (n > 0 && example[0].grad)
        backward_layers(t, example, n);
}
