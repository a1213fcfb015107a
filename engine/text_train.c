#include "engine/text_train.h"

#include "engine/kernels.h"
#include "engine/ops.h"
#include "engine/text_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of logits that exist at a time; the chunk depends on the vocabulary alone. */
#define LOGIT_BYTES ((size_t)8 << 20)
#define VOCAB_WHOLE 4096 /* rows of the output layer whose gradients are summed at once */
#define VOCAB_SLICE 128  /* rows of the output layer whose gradients are summed by themselves */
#define SUM_BLOCK 128    /* exponentials that are summed in single precision */

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
    /* Of all examples of a run, one after the other: */
    float **x;        /* [n_layers]: layer inputs [rows, embedding] */
    train_acts *acts; /* [n_layers], or 1 when recomputed */
    float *queries;   /* top layer: h of the predicting rows */
    float *y, *normed;
    float *stream; /* gradient of the residual stream between two layers */
    float *top;    /* gradient of the top layer's output: of the predicting rows */
    float *rope, *rope_queries;
    size_t *visible; /* top layer: keys that a predicting row sees */
    /* Of the example at hand: */
    float *d_act, *d_attended, *d_k, *d_v, *d_h, *d_queries;
    float *heads_q, *heads_k; /* q and k normed by head and turned; NULL without such norms */
    float *logits, *slice, *scratch;
    double *dx_sum;
    float *expanded; /* the layer at hand, dequantized */
    size_t chunk;
};

/* One visit of a layer: its linears ready to multiply. */
typedef struct layer_visit {
    size_t index;
    const tacit_text_layer *layer;
    const train_layer *plan;
    tacit_linear linear[TEXT_LINEARS];
    bool top;
} layer_visit;

/* One example's part of everything at one layer. */
typedef struct example_view {
    const text_train_rows *rows;
    train_acts acts;
    size_t n, m;  /* rows of keys and values; rows of queries and of the rest */
    float *x, *y; /* the layer's input and output */
    float *dy;    /* gradient of the output, then of `mid` */
    float *dx;    /* gradient of the input: dy's memory but for the top layer */
    float *queries, *rope, *rope_queries, *normed;
    size_t *visible;
} example_view;

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
            layer += is_plain(l) ? 0 : linear_expand_floats(l);
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
    size_t rows = t->max_rows, width = m->embedding, chunk = t->chunk < rows ? t->chunk : rows;
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
    t->stream = take(c, rows * width);
    t->top = take(c, rows * width);
    t->d_act = take(c, rows * m->max_ff);
    t->d_attended = take(c, rows * q);
    t->d_k = take(c, rows * kv);
    t->d_v = take(c, rows * kv);
    if (text_has_head_norms(m)) {
        t->heads_q = take(c, rows * q);
        t->heads_k = take(c, rows * kv);
    }
    t->d_h = take(c, rows * width);
    t->d_queries = take(c, rows * width);
    t->rope = take(c, rows * m->head_dim);
    t->rope_queries = take(c, rows * m->head_dim);
    t->logits = take(c, chunk * m->vocab);
    t->slice = take(c, chunk * (VOCAB_SLICE + width));
    t->dx_sum = (double *)(void *)take(c, 2 * chunk * width);
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

static train_acts acts_from(const train_acts *a, const tacit_text_model *m, size_t row)
{
    size_t q = row * m->max_heads * m->head_dim, kv = row * m->max_kv_heads * m->head_dim;
    size_t x = row * m->embedding, ff = row * m->max_ff;
    return (train_acts){.h = a->h + x,
                        .q = a->q + q,
                        .k = a->k + kv,
                        .v = a->v + kv,
                        .attended = a->attended + q,
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
    e.acts = acts_from(&t->acts[t->keep ? v->index : 0], m, first);
    e.m = v->top ? example->n_predicted : example->count;
    e.x = t->x[v->index] + x;
    e.y = v->top ? t->y + x : t->x[v->index + 1] + x;
    e.dx = t->stream + x;
    e.dy = v->top ? t->top + x : e.dx;
    e.queries = t->queries + x;
    e.normed = t->normed + x;
    e.rope = t->rope + rope;
    e.rope_queries = t->rope_queries + rope;
    e.visible = t->visible + first;
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

static text_attention attention_of(const text_train *t, const layer_visit *v, const example_view *e)
{
    return (text_attention){.n_heads = v->layer->n_heads,
                            .n_kv_heads = v->layer->n_kv_heads,
                            .head_dim = t->model->head_dim,
                            .keys = e->n,
                            .queries = e->m,
                            .visible = v->top ? e->visible : NULL};
}

/* Angles of all rows, and what the top layer needs of the predicting ones. */
static void prepare_rows(text_train *t, const layer_visit *v, example_view *e)
{
    const tacit_text_model *m = t->model;
    (void)v;
    ops_rope_table(e->rope, &m->rope, e->rows->position, e->n);
    gather_rows(e->rope_queries, e->rope, e->rows->predictor, e->rows->n_predicted, m->head_dim);
    for (size_t i = 0; i < e->rows->n_predicted; i++)
        e->visible[i] = e->rows->predictor[i] + 1;
}

/* What the attention reads. */
typedef struct attention_input {
    const float *q, *k;
} attention_input;

/* x [rows, heads, head_dim] normed by head into `to`, and turned there. */
static float *norm_heads(const text_train *t, float *to, const float *x, const float *w,
                         size_t rows, size_t heads, const float *rope)
{
    const tacit_text_model *m = t->model;
    ops_rms_norm_forward(to, x, w, rows * heads, m->head_dim, m->rms_eps);
    ops_rope_forward(to, rope, &m->rope, rows, heads, heads * m->head_dim);
    return to;
}

/* Turns q and k: in place, unless their heads are normed. The backward of a norm reads its input,
 * so q and k stay what the linears gave and are normed and turned beside them, here (`forward`) and
 * again in the backward. */
static attention_input turn_heads(text_train *t, const layer_visit *v, example_view *e,
                                  bool forward)
{
    const tacit_text_layer *l = v->layer;
    const ops_rope *rope = &t->model->rope;
    const float *w[2] = {l->norm[TEXT_Q_NORM], l->norm[TEXT_K_NORM]};
    const float *of_q = v->top ? e->rope_queries : e->rope;
    train_acts *a = &e->acts;
    attention_input in = {.q = a->q, .k = a->k};
    if (w[0])
        in.q = norm_heads(t, t->heads_q, a->q, w[0], e->m, l->n_heads, of_q);
    else if (forward)
        ops_rope_forward(a->q, of_q, rope, e->m, l->n_heads, l->n_heads * rope->head_dim);
    if (w[1])
        in.k = norm_heads(t, t->heads_k, a->k, w[1], e->n, l->n_kv_heads, e->rope);
    else if (forward)
        ops_rope_forward(a->k, e->rope, rope, e->n, l->n_kv_heads, l->n_kv_heads * rope->head_dim);
    return in;
}

/* mid = x + o(attention(q, k, v)) */
static void forward_attention(text_train *t, const layer_visit *v, example_view *e)
{
    const tacit_text_model *m = t->model;
    const tacit_text_layer *l = v->layer;
    train_acts *a = &e->acts;
    size_t width = m->embedding;
    const float *queries = a->h;
    ops_rms_norm_forward(a->h, e->x, l->norm[TEXT_ATTN_NORM], e->n, width, m->rms_eps);
    if (v->top) {
        gather_rows(e->queries, a->h, e->rows->predictor, e->m, width);
        queries = e->queries;
    }
    apply(t, v, TEXT_Q, a->q, queries, e->m);
    apply(t, v, TEXT_K, a->k, a->h, e->n);
    apply(t, v, TEXT_V, a->v, a->h, e->n);
    attention_input in = turn_heads(t, v, e, true);
    text_attention s = attention_of(t, v, e);
    text_attention_forward(t->pool, &s, a->attended, in.q, in.k, a->v, t->scratch);
    apply(t, v, TEXT_O, a->mid, a->attended, e->m);
    for (size_t i = 0; i < e->m; i++)
        ops_add(a->mid + i * width, e->x + (v->top ? e->rows->predictor[i] : i) * width, width);
}

/* Everything up to the input of down. */
static void forward_acts(text_train *t, const layer_visit *v, example_view *e)
{
    train_acts *a = &e->acts;
    forward_attention(t, v, e);
    ops_rms_norm_forward(a->h2, a->mid, v->layer->norm[TEXT_FFN_NORM], e->m, t->model->embedding,
                         t->model->rms_eps);
    apply(t, v, TEXT_GATE, a->gate, a->h2, e->m);
    apply(t, v, TEXT_UP, a->up, a->h2, e->m);
    ops_swiglu_forward(a->act, a->gate, a->up, e->m * v->layer->n_ff);
}

static void forward_layer(text_train *t, const layer_visit *v, example_view *e)
{
    forward_acts(t, v, e);
    apply(t, v, TEXT_DOWN, e->y, e->acts.act, e->m);
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

/* Sum of the losses. With a `grad` t->d_h receives the gradient of the normed rows. */
static double chunk_losses(text_train *t, const example_view *e)
{
    const tacit_text_model *m = t->model;
    const text_train_rows *rows = e->rows;
    float scale = rows->gradient_scale / (float)rows->n_predicted;
    double sum = 0;
    for (size_t first = 0; first < rows->n_predicted; first += t->chunk) {
        size_t left = rows->n_predicted - first, count = left < t->chunk ? left : t->chunk;
        float *x = e->normed + first * m->embedding;
        linear_forward(t->pool, &m->output, NULL, t->logits, x, count, t->scratch);
        for (size_t i = 0; i < count; i++)
            sum += row_loss(t->logits + i * m->vocab, m->vocab, rows->target[first + i], scale);
        if (!rows->grad)
            continue;
        output_input_gradient(t, t->d_h + first * m->embedding, rows->target + first, scale, count);
        if (t->plan->output != TRAIN_FROZEN)
            linear_backward_weight(t->pool, &m->output, rows->grad + t->plan->output, t->logits, x,
                                   count);
    }
    return sum;
}

static float *slot(float *grad, size_t offset)
{
    return offset == TRAIN_FROZEN ? NULL : grad + offset;
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
    ops_rms_norm_backward(e->dy, slot(e->rows->grad, t->plan->output_norm), t->d_h, e->y,
                          m->output_norm, n, m->embedding, m->rms_eps);
    return loss;
}

/* ---- backward ---- */

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

/* e->dy: from the gradient of the layer's output to that of `mid`. */
static void backward_feed(text_train *t, const layer_visit *v, example_view *e)
{
    const train_layer *p = v->plan;
    train_acts *a = &e->acts;
    float *grad = e->rows->grad;
    weight_gradients(t, v, TEXT_DOWN, grad, e->dy, a->act, e->m);
    if (!p->need_act)
        return;
    input_gradient(t, v, TEXT_DOWN, t->d_act, e->dy, e->m, false);
    ops_swiglu_backward(a->gate, a->up, t->d_act, a->gate, a->up, e->m * v->layer->n_ff);
    weight_gradients(t, v, TEXT_GATE, grad, a->gate, a->h2, e->m);
    weight_gradients(t, v, TEXT_UP, grad, a->up, a->h2, e->m);
    if (!p->need_mid && p->norm[TEXT_FFN_NORM] == TRAIN_FROZEN)
        return;
    input_gradient(t, v, TEXT_GATE, t->d_h, a->gate, e->m, false);
    input_gradient(t, v, TEXT_UP, t->d_h, a->up, e->m, true);
    ops_rms_norm_backward(e->dy, slot(grad, p->norm[TEXT_FFN_NORM]), t->d_h, a->mid,
                          v->layer->norm[TEXT_FFN_NORM], e->m, t->model->embedding,
                          t->model->rms_eps);
}

/* d [rows, heads, head_dim]: from the gradient of turned heads to that of what the linear gave, by
 * way of `work`, of the same size. */
static void backward_heads(text_train *t, const layer_visit *v, example_view *e, text_norm which,
                           float *d, float *work)
{
    const tacit_text_model *m = t->model;
    bool is_q = which == TEXT_Q_NORM;
    size_t rows = is_q ? e->m : e->n, heads = is_q ? v->layer->n_heads : v->layer->n_kv_heads;
    size_t n = rows * heads * m->head_dim;
    const float *w = v->layer->norm[which], *x = is_q ? e->acts.q : e->acts.k;
    ops_rope_backward(d, is_q && v->top ? e->rope_queries : e->rope, &m->rope, rows, heads,
                      heads * m->head_dim);
    if (!w)
        return;
    memset(work, 0, n * sizeof *work);
    ops_rms_norm_backward(work, slot(e->rows->grad, v->plan->norm[which]), d, x, w, rows * heads,
                          m->head_dim, m->rms_eps);
    memcpy(d, work, n * sizeof *d);
}

/* t->d_attended, d_k, d_v: gradients of what the linears of q, k and v gave. */
static void backward_attention(text_train *t, const layer_visit *v, example_view *e)
{
    text_attention s = attention_of(t, v, e);
    attention_input in = turn_heads(t, v, e, false);
    input_gradient(t, v, TEXT_O, t->d_attended, e->dy, e->m, false);
    text_attention_backward(t->pool, &s, t->d_attended, t->d_k, t->d_v, t->d_attended, in.q, in.k,
                            e->acts.v, t->scratch);
    backward_heads(t, v, e, TEXT_Q_NORM, t->d_attended, t->heads_q);
    backward_heads(t, v, e, TEXT_K_NORM, t->d_k, t->heads_k);
}

/* t->d_h: the gradient of the normed input of q, k and v. */
static void backward_projections(text_train *t, const layer_visit *v, example_view *e)
{
    input_gradient(t, v, TEXT_K, t->d_h, t->d_k, e->n, false);
    input_gradient(t, v, TEXT_V, t->d_h, t->d_v, e->n, true);
    if (!v->top) {
        input_gradient(t, v, TEXT_Q, t->d_h, t->d_attended, e->n, true);
        return;
    }
    input_gradient(t, v, TEXT_Q, t->d_queries, t->d_attended, e->m, false);
    scatter_rows(t->d_h, t->d_queries, e->rows->predictor, e->m, t->model->embedding);
}

/* From e->dy, the gradient of the layer's output, to e->dx, that of its input. */
static void backward_layer(text_train *t, const layer_visit *v, example_view *e)
{
    const train_layer *p = v->plan;
    train_acts *a = &e->acts;
    float *grad = e->rows->grad;
    size_t width = t->model->embedding;
    backward_feed(t, v, e);
    if (!p->need_mid)
        return;
    weight_gradients(t, v, TEXT_O, grad, e->dy, a->attended, e->m);
    if (!p->need_qkv)
        return;
    backward_attention(t, v, e);
    weight_gradients(t, v, TEXT_Q, grad, t->d_attended, v->top ? e->queries : a->h, e->m);
    weight_gradients(t, v, TEXT_K, grad, t->d_k, a->h, e->n);
    weight_gradients(t, v, TEXT_V, grad, t->d_v, a->h, e->n);
    if (!p->need_h)
        return;
    backward_projections(t, v, e);
    /* The residual stream carries on in place, or from the predicting rows to all rows. */
    if (v->top) {
        memset(e->dx, 0, e->n * width * sizeof *e->dx);
        scatter_rows(e->dx, e->dy, e->rows->predictor, e->m, width);
    }
    ops_rms_norm_backward(e->dx, slot(grad, p->norm[TEXT_ATTN_NORM]), t->d_h, e->x,
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
