#include "engine/text_train.h"

#include "engine/ops.h"
#include "engine/text_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of logits that exist at a time; the chunk depends on the vocabulary alone. */
#define LOGIT_BYTES ((size_t)8 << 20)

/* What a layer computes on the way, for `n` rows: inputs of its products. */
typedef struct train_acts {
    float *h, *q, *k, *v, *attended; /* attended: attention's output, input of o */
    float *mid, *h2, *gate, *up, *act;
} train_acts;

struct text_train {
    const train_plan *plan;
    const tacit_text_model *model;
    tacit_pool *pool;
    bool keep;
    size_t max_rows, threads;
    float *arena;
    float **x;        /* [n_layers]: layer inputs [rows, embedding] */
    train_acts *acts; /* [n_layers], or 1 when recomputed */
    float *queries;   /* top layer: h of the predicting rows */
    float *y, *normed;
    float *dy, *dx; /* gradients of a layer's output and input */
    float *d_act, *d_attended, *d_k, *d_v, *d_h, *d_queries;
    float *rope, *rope_queries; /* tables for all rows, for the predicting rows */
    float *logits, *scratch, *expanded;
    size_t *visible; /* top layer: keys that a predicting row sees */
    size_t chunk;
};

/* One visit of a layer: its linears ready to multiply, and which rows attend. */
typedef struct layer_visit {
    size_t index;
    const tacit_text_layer *layer;
    const train_layer *plan;
    tacit_linear linear[TEXT_LINEARS];
    train_acts *acts;
    const text_train_rows *rows;
    bool top;
    size_t n, m; /* rows of keys and values; rows of queries and of the rest */
} layer_visit;

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

static void take_acts(train_cursor *c, train_acts *a, const tacit_text_model *m, size_t rows)
{
    size_t q = m->max_heads * m->head_dim, kv = m->max_kv_heads * m->head_dim;
    train_acts parts;
    parts.h = take(c, rows * m->embedding);
    parts.q = take(c, rows * q);
    parts.k = take(c, rows * kv);
    parts.v = take(c, rows * kv);
    parts.attended = take(c, rows * q);
    parts.mid = take(c, rows * m->embedding);
    parts.h2 = take(c, rows * m->embedding);
    parts.gate = take(c, rows * m->max_ff);
    parts.up = take(c, rows * m->max_ff);
    parts.act = take(c, rows * m->max_ff);
    if (a)
        *a = parts;
}

static size_t acts_floats(const tacit_text_model *m, size_t rows)
{
    train_cursor c = {0};
    take_acts(&c, NULL, m, rows);
    return c.used;
}

static bool keeps_acts(const tacit_text_model *m, const text_train_options *options)
{
    size_t floats = acts_floats(m, options->max_rows) * m->n_layers;
    return !options->recompute && floats * sizeof(float) <= TEXT_TRAIN_KEEP;
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
            layer += is_plain(l) ? 0 : l->n_in * l->n_out;
        }
        most = layer > most ? layer : most;
    }
    return most;
}

static size_t scratch_floats(const train_plan *p, size_t rows, size_t threads)
{
    const tacit_text_model *m = p->model;
    size_t rank = p->pairs.max_rank;
    size_t most = text_attention_scratch(rows, threads);
    size_t output = linear_scratch(&m->output, rows, rank, threads);
    most = output > most ? output : most;
    for (size_t i = 0; i < m->n_layers; i++)
        for (int k = 0; k < TEXT_LINEARS; k++) {
            size_t one = linear_scratch(&m->layer[i].linear[k], rows, rank, threads);
            most = one > most ? one : most;
        }
    return most;
}

static size_t logit_chunk(const tacit_text_model *m)
{
    size_t rows = LOGIT_BYTES / sizeof(float) / m->vocab;
    return rows > 0 ? rows : 1;
}

static void take_all(train_cursor *c, text_train *t)
{
    const tacit_text_model *m = t->model;
    size_t rows = t->max_rows, width = m->embedding;
    size_t q = m->max_heads * m->head_dim, kv = m->max_kv_heads * m->head_dim;
    for (size_t i = 0; i < m->n_layers; i++) {
        float *x = take(c, rows * width);
        if (t->x)
            t->x[i] = x;
    }
    for (size_t i = 0; i < (t->keep ? m->n_layers : 1); i++)
        take_acts(c, t->acts ? &t->acts[i] : NULL, m, rows);
    t->queries = take(c, rows * width);
    t->y = take(c, rows * width);
    t->normed = take(c, rows * width);
    t->dy = take(c, rows * width);
    t->dx = take(c, rows * width);
    t->d_act = take(c, rows * m->max_ff);
    t->d_attended = take(c, rows * q);
    t->d_k = take(c, rows * kv);
    t->d_v = take(c, rows * kv);
    t->d_h = take(c, rows * width);
    t->d_queries = take(c, rows * width);
    t->rope = take(c, rows * m->head_dim);
    t->rope_queries = take(c, rows * m->head_dim);
    t->logits = take(c, (t->chunk < rows ? t->chunk : rows) * m->vocab);
    t->scratch = take(c, scratch_floats(t->plan, rows, t->threads));
    t->expanded = take(c, expanded_floats(m));
}

static text_train plan_memory(const train_plan *plan, const text_train_options *options,
                              size_t threads)
{
    return (text_train){.plan = plan,
                        .model = plan->model,
                        .max_rows = options->max_rows,
                        .threads = threads,
                        .keep = keeps_acts(plan->model, options),
                        .chunk =
                            options->logit_rows ? options->logit_rows : logit_chunk(plan->model)};
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
    text_train *t = calloc(1, sizeof *t);
    if (!t)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory");
    *t = plan_memory(plan, options, threads);
    t->pool = pool;
    t->x = calloc(m->n_layers, sizeof *t->x);
    t->acts = calloc(m->n_layers, sizeof *t->acts);
    t->visible = calloc(options->max_rows, sizeof *t->visible);
    t->arena = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!t->x || !t->acts || !t->visible || !t->arena) {
        text_train_free(t);
        return tacit_fail(err, TACIT_NO_MEMORY,
                          "trainer: no memory for %zu bytes of activations (%zu rows); shorten the "
                          "examples",
                          bytes, options->max_rows);
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
    free(t->visible);
    free(t->arena);
    free(t);
}

float *text_train_input(text_train *t)
{
    return t->x[0];
}

const float *text_train_input_gradient(const text_train *t)
{
    return t->dx;
}

/* ---- forward ---- */

/* Weights are dequantized once for all products of the visit. */
static layer_visit visit_layer(text_train *t, const text_train_rows *rows, size_t index)
{
    layer_visit v = {.index = index, .rows = rows, .n = rows->count};
    v.layer = &t->model->layer[index];
    v.plan = &t->plan->layer[index];
    v.acts = &t->acts[t->keep ? index : 0];
    v.top = index + 1 == t->model->n_layers;
    v.m = v.top ? rows->n_predicted : rows->count;
    float *buffer = t->expanded;
    for (int i = 0; i < TEXT_LINEARS; i++) {
        const tacit_linear *l = &v.layer->linear[i];
        v.linear[i] = *l;
        if (is_plain(l))
            continue;
        linear_expand(t->pool, &v.linear[i], l, buffer);
        buffer += l->n_in * l->n_out;
    }
    return v;
}

static const tacit_low_rank *pair_of(const text_train *t, const layer_visit *v, text_linear which)
{
    return t->plan->pairs.pair ? text_pair(&t->plan->pairs, v->index, which) : NULL;
}

static void apply(text_train *t, const layer_visit *v, text_linear which, float *y, const float *x,
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

/* to[row[i], :] += from[i, :] */
static void scatter_rows(float *to, const float *from, const size_t *row, size_t count,
                         size_t width)
{
    for (size_t i = 0; i < count; i++)
        ops_add(to + row[i] * width, from + i * width, width);
}

static text_attention attention_of(const text_train *t, const layer_visit *v)
{
    return (text_attention){.n_heads = v->layer->n_heads,
                            .n_kv_heads = v->layer->n_kv_heads,
                            .head_dim = t->model->head_dim,
                            .keys = v->n,
                            .queries = v->m,
                            .visible = v->top ? t->visible : NULL};
}

/* mid = x + o(attention(q, k, v)) */
static void forward_attention(text_train *t, const layer_visit *v, const float *x)
{
    const tacit_text_model *m = t->model;
    const tacit_text_layer *l = v->layer;
    train_acts *a = v->acts;
    size_t width = m->embedding;
    const float *queries = a->h;
    ops_rms_norm_forward(a->h, x, l->attn_norm, v->n, width, m->rms_eps);
    if (v->top) {
        gather_rows(t->queries, a->h, v->rows->predictor, v->m, width);
        queries = t->queries;
    }
    apply(t, v, TEXT_Q, a->q, queries, v->m);
    apply(t, v, TEXT_K, a->k, a->h, v->n);
    apply(t, v, TEXT_V, a->v, a->h, v->n);
    ops_rope_forward(a->q, v->top ? t->rope_queries : t->rope, v->m, l->n_heads, m->head_dim,
                     l->n_heads * m->head_dim);
    ops_rope_forward(a->k, t->rope, v->n, l->n_kv_heads, m->head_dim, l->n_kv_heads * m->head_dim);
    text_attention s = attention_of(t, v);
    text_attention_forward(t->pool, &s, a->attended, a->q, a->k, a->v, t->scratch);
    apply(t, v, TEXT_O, a->mid, a->attended, v->m);
    for (size_t i = 0; i < v->m; i++)
        ops_add(a->mid + i * width, x + (v->top ? v->rows->predictor[i] : i) * width, width);
}

/* Everything up to the input of down. */
static void forward_feed(text_train *t, const layer_visit *v)
{
    train_acts *a = v->acts;
    ops_rms_norm_forward(a->h2, a->mid, v->layer->ffn_norm, v->m, t->model->embedding,
                         t->model->rms_eps);
    apply(t, v, TEXT_GATE, a->gate, a->h2, v->m);
    apply(t, v, TEXT_UP, a->up, a->h2, v->m);
    ops_swiglu_forward(a->act, a->gate, a->up, v->m * v->layer->n_ff);
}

static void forward_layers(text_train *t, const text_train_rows *rows)
{
    const tacit_text_model *m = t->model;
    ops_rope_table(t->rope, rows->position, m->rope_frequency, rows->count, m->head_dim);
    gather_rows(t->rope_queries, t->rope, rows->predictor, rows->n_predicted, m->head_dim);
    for (size_t i = 0; i < rows->n_predicted; i++)
        t->visible[i] = rows->predictor[i] + 1;
    for (size_t i = 0; i < m->n_layers; i++) {
        layer_visit v = visit_layer(t, rows, i);
        float *y = v.top ? t->y : t->x[i + 1];
        forward_attention(t, &v, t->x[i]);
        forward_feed(t, &v);
        apply(t, &v, TEXT_DOWN, y, v.acts->act, v.m);
        ops_add(y, v.acts->mid, v.m * m->embedding);
    }
}

/* ---- loss ---- */

/* Negative log-likelihood of `target`; turns the logits into their gradient times `scale`. */
static double row_loss(float *logits, size_t vocab, int32_t target, float scale)
{
    float most = logits[0], wanted = logits[target];
    size_t at = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > most) {
            most = logits[i];
            at = i;
        }
    ops_softmax_forward(logits, logits, 1, vocab);
    /* The largest probability is one over the sum of exponentials. */
    double loss = ((double)most - (double)wanted) - log((double)logits[at]);
    ops_scale(logits, scale, vocab);
    logits[target] -= scale;
    return loss;
}

/* Sum of the losses. With `grad` t->d_h receives the gradient of the normed rows. */
static double chunk_losses(text_train *t, const text_train_rows *rows, float *grad)
{
    const tacit_text_model *m = t->model;
    float scale = rows->gradient_scale / (float)rows->n_predicted;
    double sum = 0;
    for (size_t first = 0; first < rows->n_predicted; first += t->chunk) {
        size_t left = rows->n_predicted - first, count = left < t->chunk ? left : t->chunk;
        float *x = t->normed + first * m->embedding;
        linear_forward(t->pool, &m->output, NULL, t->logits, x, count, t->scratch);
        for (size_t i = 0; i < count; i++)
            sum += row_loss(t->logits + i * m->vocab, m->vocab, rows->target[first + i], scale);
        if (!grad)
            continue;
        linear_backward_input(t->pool, &m->output, NULL, t->d_h + first * m->embedding, t->logits,
                              count, false, t->scratch);
        if (t->plan->output != TRAIN_FROZEN)
            linear_backward_weight(t->pool, &m->output, grad + t->plan->output, t->logits, x,
                                   count);
    }
    return sum;
}

static double losses(text_train *t, const text_train_rows *rows, float *grad)
{
    const tacit_text_model *m = t->model;
    forward_layers(t, rows);
    ops_rms_norm_forward(t->normed, t->y, m->output_norm, rows->n_predicted, m->embedding,
                         m->rms_eps);
    return chunk_losses(t, rows, grad) / (double)rows->n_predicted;
}

double text_train_loss(text_train *t, const text_train_rows *rows)
{
    return losses(t, rows, NULL);
}

/* ---- backward ---- */

static float *slot(float *grad, size_t offset)
{
    return offset == TRAIN_FROZEN ? NULL : grad + offset;
}

/* Gradients of one linear's own values. */
static void weight_gradients(text_train *t, const layer_visit *v, text_linear which, float *grad,
                             const float *dy, const float *x, size_t rows)
{
    const train_layer *p = v->plan;
    const tacit_linear *l = &v->linear[which];
    if (p->b[which] != TRAIN_FROZEN)
        linear_backward_pair(t->pool, l, pair_of(t, v, which), slot(grad, p->a[which]),
                             grad + p->b[which], dy, x, rows, t->scratch);
    if (p->weight[which] != TRAIN_FROZEN)
        linear_backward_weight(t->pool, l, grad + p->weight[which], dy, x, rows);
    if (p->bias[which] != TRAIN_FROZEN)
        linear_backward_bias(l, grad + p->bias[which], dy, rows);
}

static void input_gradient(text_train *t, const layer_visit *v, text_linear which, float *dx,
                           const float *dy, size_t rows, bool accumulate)
{
    linear_backward_input(t->pool, &v->linear[which], pair_of(t, v, which), dx, dy, rows,
                          accumulate, t->scratch);
}

/* t->dy: from the gradient of the layer's output to that of `mid`. */
static void backward_feed(text_train *t, const layer_visit *v, float *grad)
{
    const train_layer *p = v->plan;
    train_acts *a = v->acts;
    size_t width = t->model->embedding;
    weight_gradients(t, v, TEXT_DOWN, grad, t->dy, a->act, v->m);
    if (!p->need_act)
        return;
    input_gradient(t, v, TEXT_DOWN, t->d_act, t->dy, v->m, false);
    ops_swiglu_backward(a->gate, a->up, t->d_act, a->gate, a->up, v->m * v->layer->n_ff);
    weight_gradients(t, v, TEXT_GATE, grad, a->gate, a->h2, v->m);
    weight_gradients(t, v, TEXT_UP, grad, a->up, a->h2, v->m);
    if (!p->need_mid && p->ffn_norm == TRAIN_FROZEN)
        return;
    input_gradient(t, v, TEXT_GATE, t->d_h, a->gate, v->m, false);
    input_gradient(t, v, TEXT_UP, t->d_h, a->up, v->m, true);
    ops_rms_norm_backward(t->dy, slot(grad, p->ffn_norm), t->d_h, a->mid, v->layer->ffn_norm, v->m,
                          width, t->model->rms_eps);
}

/* t->d_attended, d_k, d_v: gradients of q, k and v before their rotation. */
static void backward_attention(text_train *t, const layer_visit *v)
{
    const tacit_text_layer *l = v->layer;
    train_acts *a = v->acts;
    size_t dim = t->model->head_dim;
    text_attention s = attention_of(t, v);
    input_gradient(t, v, TEXT_O, t->d_attended, t->dy, v->m, false);
    text_attention_backward(t->pool, &s, t->d_attended, t->d_k, t->d_v, t->d_attended, a->q, a->k,
                            a->v, t->scratch);
    ops_rope_backward(t->d_attended, v->top ? t->rope_queries : t->rope, v->m, l->n_heads, dim,
                      l->n_heads * dim);
    ops_rope_backward(t->d_k, t->rope, v->n, l->n_kv_heads, dim, l->n_kv_heads * dim);
}

/* t->d_h: the gradient of the normed input of q, k and v. */
static void backward_projections(text_train *t, const layer_visit *v)
{
    input_gradient(t, v, TEXT_K, t->d_h, t->d_k, v->n, false);
    input_gradient(t, v, TEXT_V, t->d_h, t->d_v, v->n, true);
    if (!v->top) {
        input_gradient(t, v, TEXT_Q, t->d_h, t->d_attended, v->n, true);
        return;
    }
    input_gradient(t, v, TEXT_Q, t->d_queries, t->d_attended, v->m, false);
    scatter_rows(t->d_h, t->d_queries, v->rows->predictor, v->m, t->model->embedding);
}

/* The residual stream carries the gradient of `mid` to the layer's input: in place, or from the
 * predicting rows to all rows below the top layer. */
static void carry_residual(text_train *t, const layer_visit *v)
{
    size_t width = t->model->embedding;
    if (v->top) {
        memset(t->dx, 0, v->n * width * sizeof *t->dx);
        scatter_rows(t->dx, t->dy, v->rows->predictor, v->m, width);
    } else {
        float *same = t->dx;
        t->dx = t->dy;
        t->dy = same;
    }
}

/* From t->dy, the gradient of the layer's output, to t->dx, that of its input. */
static void backward_layer(text_train *t, const layer_visit *v, float *grad)
{
    const train_layer *p = v->plan;
    train_acts *a = v->acts;
    backward_feed(t, v, grad);
    if (!p->need_mid)
        return;
    weight_gradients(t, v, TEXT_O, grad, t->dy, a->attended, v->m);
    if (!p->need_qkv)
        return;
    backward_attention(t, v);
    weight_gradients(t, v, TEXT_Q, grad, t->d_attended, v->top ? t->queries : a->h, v->m);
    weight_gradients(t, v, TEXT_K, grad, t->d_k, a->h, v->n);
    weight_gradients(t, v, TEXT_V, grad, t->d_v, a->h, v->n);
    if (!p->need_h)
        return;
    backward_projections(t, v);
    carry_residual(t, v);
    ops_rms_norm_backward(t->dx, slot(grad, p->attn_norm), t->d_h, t->x[v->index],
                          v->layer->attn_norm, v->n, t->model->embedding, t->model->rms_eps);
}

/* The layer with its activations as the forward left them. Without `keep` those of the top layer
 * are still there and the others are computed again. */
static layer_visit revisit_layer(text_train *t, const text_train_rows *rows, size_t index)
{
    layer_visit v = visit_layer(t, rows, index);
    if (!t->keep && !v.top) {
        forward_attention(t, &v, t->x[index]);
        forward_feed(t, &v);
    }
    return v;
}

double text_train_backward(text_train *t, const text_train_rows *rows, float *grad)
{
    const tacit_text_model *m = t->model;
    double loss = losses(t, rows, grad);
    memset(t->dy, 0, rows->n_predicted * m->embedding * sizeof *t->dy);
    ops_rms_norm_backward(t->dy, slot(grad, t->plan->output_norm), t->d_h, t->y, m->output_norm,
                          rows->n_predicted, m->embedding, m->rms_eps);
    for (size_t i = m->n_layers; i-- > t->plan->first_layer;) {
        layer_visit v = revisit_layer(t, rows, i);
        backward_layer(t, &v, grad);
        float *below = t->dx;
        t->dx = t->dy;
        t->dy = below;
    }
    float *input = t->dy;
    t->dy = t->dx;
    t->dx = input;
    return loss;
}
