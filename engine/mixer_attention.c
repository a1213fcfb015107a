/* Grouped-query attention as a kind of layer (text_mixer.h):
 *   q, k, v = linear(h); with q_norm and k_norm each head of q and of k is normed; rope(q), rope(k)
 *   mixed = o(attention(q, k, v)): head i of q reads head i / (n_heads / n_kv_heads) of k and v,
 *           scores times `scale`, a row sees what text_place.h says
 * Its state are keys, turned, and values in the cache's pages. */
#include "engine/kv_cache.h"
#include "engine/ops.h"
#include "engine/text_attention.h"
#include "engine/text_forward.h"
#include "engine/text_train_parts.h"

#include <string.h>

static size_t q_width(const tacit_text_model *m, size_t layer)
{
    return m->layer[layer].n_heads * m->head_dim;
}

static size_t kv_width(const tacit_text_model *m, size_t layer)
{
    return m->layer[layer].n_kv_heads * m->head_dim;
}

static tacit_status load(text_loader *t, size_t layer)
{
    size_t d = t->m->embedding, q = q_width(t->m, layer), kv = kv_width(t->m, layer);
    tacit_status status;
    TACIT_TRY(text_load_linear(t, layer, TEXT_Q, d, q), done);
    TACIT_TRY(text_load_linear(t, layer, TEXT_K, d, kv), done);
    TACIT_TRY(text_load_linear(t, layer, TEXT_V, d, kv), done);
    TACIT_TRY(text_load_linear(t, layer, TEXT_O, q, d), done);
    TACIT_TRY(text_load_norm(t, layer, TEXT_Q_NORM), done);
    TACIT_TRY(text_load_norm(t, layer, TEXT_K_NORM), done);
done:
    return status;
}

/* q, k, v and what the attention makes of them, for `rows` rows; `attended` last. */
typedef struct attention_values {
    float *q, *k, *v, *attended;
} attention_values;

static attention_values values_at(float *memory, const tacit_text_model *m, size_t layer,
                                  size_t rows)
{
    size_t q = rows * q_width(m, layer), kv = rows * kv_width(m, layer);
    return (attention_values){memory, memory + q, memory + q + kv, memory + q + 2 * kv};
}

static size_t values_floats(const tacit_text_model *m, size_t layer)
{
    return 2 * q_width(m, layer) + 2 * kv_width(m, layer);
}

/* ---- inference ---- */

static size_t forward_floats(const tacit_text_model *m, size_t layer, size_t rows)
{
    return rows * values_floats(m, layer);
}

static size_t scratch_floats(const tacit_text_model *m, size_t layer, size_t threads)
{
    (void)layer;
    return kv_cache_scratch(m, threads);
}

static void forward(text_forward *f, size_t layer, kv_cache *cache, size_t first, size_t rows)
{
    static const text_linear output[] = {TEXT_O};
    const tacit_text_layer *l = &f->m->layer[layer];
    attention_values a = values_at(f->mix, f->m, layer, rows);
    text_forward_multiply(f, layer, l->mixer->input, l->mixer->inputs,
                          (float *const[]){a.q, a.k, a.v}, f->h, rows);
    text_forward_turn(f, layer, a.q, l->norm[TEXT_Q_NORM], l->n_heads, rows);
    text_forward_turn(f, layer, a.k, l->norm[TEXT_K_NORM], l->n_kv_heads, rows);
    kv_cache_store(cache, layer, first, rows, a.k, a.v);
    kv_cache_attend(f->pool, cache, layer, first, rows, a.attended, a.q, f->scratch);
    text_forward_apply(f, layer, output, 1, (float *const[]){f->h}, a.attended, rows);
}

/* ---- training ---- */

/* Gradients of the values, and q and k normed by head and turned where there are such norms. */
typedef struct attention_work {
    float *d_attended, *d_k, *d_v, *heads_q, *heads_k;
} attention_work;

static bool norms_heads(const tacit_text_layer *l)
{
    return l->norm[TEXT_Q_NORM] || l->norm[TEXT_K_NORM];
}

static attention_work work_at(float *memory, const tacit_text_model *m, size_t layer,
                              const example_view *e)
{
    size_t q = e->n * q_width(m, layer), kv = e->n * kv_width(m, layer);
    float *heads = memory + q + 2 * kv;
    return (attention_work){memory, memory + q, memory + q + kv, heads, heads + q};
}

static size_t work_floats(const tacit_text_model *m, size_t layer, size_t rows)
{
    size_t q = q_width(m, layer), kv = kv_width(m, layer);
    return rows * (q + 2 * kv + (norms_heads(&m->layer[layer]) ? q + kv : 0));
}

static size_t train_scratch_floats(const tacit_text_model *m, size_t layer, size_t rows,
                                   size_t threads)
{
    (void)m, (void)layer;
    return text_attention_scratch(rows, threads);
}

/* One example at one layer. */
typedef struct attention_visit {
    text_train *t;
    const layer_visit *v;
    example_view *e;
    const tacit_text_layer *layer;
    const ops_rope *rope;
    const float *turn_q, *turn_k; /* ops_rope_table of the queries and of all rows */
    attention_values a;
    attention_work w;
} attention_visit;

static attention_visit visit(text_train *t, const layer_visit *v, example_view *e)
{
    const tacit_text_model *m = t->model;
    size_t rope = v->layer->rope;
    return (attention_visit){.t = t,
                             .v = v,
                             .e = e,
                             .layer = v->layer,
                             .rope = &m->rope[rope],
                             .turn_q = v->top ? e->rope_queries[rope] : e->rope[rope],
                             .turn_k = e->rope[rope],
                             .a = values_at(e->acts.mix, m, v->index, e->n),
                             .w = work_at(t->mix, m, v->index, e)};
}

static text_attention attention_of(const attention_visit *c)
{
    const example_view *e = c->e;
    text_span *span = c->t->span;
    for (size_t i = 0; i < e->m; i++)
        span[i] = text_place_sees(e->rows->place, c->v->top ? e->rows->predictor[i] : i,
                                  c->layer->window);
    return (text_attention){.n_heads = c->layer->n_heads,
                            .n_kv_heads = c->layer->n_kv_heads,
                            .head_dim = c->t->model->head_dim,
                            .keys = e->n,
                            .queries = e->m,
                            .scale = c->layer->scale,
                            .span = span};
}

/* What the attention reads. */
typedef struct attention_input {
    const float *q, *k;
} attention_input;

static void turn(const attention_visit *c, float *x, const float *table, size_t rows, size_t heads)
{
    ops_rope_forward(x, table, c->rope, rows, heads, heads * c->rope->head_dim);
}

/* x [rows, heads, head_dim] normed by head into `to`, and turned there. */
static float *norm_heads(const attention_visit *c, float *to, const float *x, const float *w,
                         const float *table, size_t rows, size_t heads)
{
    const tacit_text_model *m = c->t->model;
    ops_rms_norm_forward(to, x, w, rows * heads, m->head_dim, m->rms_eps);
    turn(c, to, table, rows, heads);
    return to;
}

/* Turns q and k: in place, unless their heads are normed. The backward of a norm reads its input,
 * so q and k stay what the linears gave and are normed and turned beside them, here (`forward`) and
 * again in the backward. */
static attention_input turn_heads(const attention_visit *c, bool forward)
{
    const tacit_text_layer *l = c->layer;
    const float *w[2] = {l->norm[TEXT_Q_NORM], l->norm[TEXT_K_NORM]};
    attention_input in = {.q = c->a.q, .k = c->a.k};
    if (w[0])
        in.q = norm_heads(c, c->w.heads_q, c->a.q, w[0], c->turn_q, c->e->m, l->n_heads);
    else if (forward)
        turn(c, c->a.q, c->turn_q, c->e->m, l->n_heads);
    if (w[1])
        in.k = norm_heads(c, c->w.heads_k, c->a.k, w[1], c->turn_k, c->e->n, l->n_kv_heads);
    else if (forward)
        turn(c, c->a.k, c->turn_k, c->e->n, l->n_kv_heads);
    return in;
}

static void train_forward(text_train *t, const layer_visit *v, example_view *e, float *y)
{
    attention_visit c = visit(t, v, e);
    train_apply(t, v, TEXT_Q, c.a.q, v->top ? e->queries : e->acts.h, e->m);
    train_apply(t, v, TEXT_K, c.a.k, e->acts.h, e->n);
    train_apply(t, v, TEXT_V, c.a.v, e->acts.h, e->n);
    attention_input in = turn_heads(&c, true);
    text_attention s = attention_of(&c);
    text_attention_forward(t->pool, &s, c.a.attended, in.q, in.k, c.a.v, t->scratch);
    train_apply(t, v, TEXT_O, y, c.a.attended, e->m);
}

/* d [rows, heads, head_dim]: from the gradient of turned heads to that of what the linear gave, by
 * way of `work`, of the same size. */
static void backward_heads(const attention_visit *c, text_norm which, float *d, float *work)
{
    const tacit_text_model *m = c->t->model;
    bool is_q = which == TEXT_Q_NORM;
    size_t rows = is_q ? c->e->m : c->e->n;
    size_t heads = is_q ? c->layer->n_heads : c->layer->n_kv_heads;
    size_t n = rows * heads * m->head_dim;
    const float *w = c->layer->norm[which], *x = is_q ? c->a.q : c->a.k;
    ops_rope_backward(d, is_q ? c->turn_q : c->turn_k, c->rope, rows, heads, heads * m->head_dim);
    if (!w)
        return;
    memset(work, 0, n * sizeof *work);
    ops_rms_norm_backward(work, train_slot(c->e->rows->grad, c->v->plan->norm[which]), d, x, w,
                          rows * heads, m->head_dim, m->rms_eps);
    memcpy(d, work, n * sizeof *d);
}

/* Gradients of what the linears of q, k and v gave. */
static void backward_attention(const attention_visit *c, const float *dy)
{
    const attention_work *w = &c->w;
    text_attention s = attention_of(c);
    attention_input in = turn_heads(c, false);
    train_input_gradient(c->t, c->v, TEXT_O, w->d_attended, dy, c->e->m, false);
    text_attention_backward(c->t->pool, &s, w->d_attended, w->d_k, w->d_v, w->d_attended, in.q,
                            in.k, c->a.v, c->t->scratch);
    backward_heads(c, TEXT_Q_NORM, w->d_attended, w->heads_q);
    backward_heads(c, TEXT_K_NORM, w->d_k, w->heads_k);
}

/* t->d_h: the gradient of the normed input of q, k and v. */
static void backward_projections(const attention_visit *c)
{
    text_train *t = c->t;
    const example_view *e = c->e;
    train_input_gradient(t, c->v, TEXT_K, t->d_h, c->w.d_k, e->n, false);
    train_input_gradient(t, c->v, TEXT_V, t->d_h, c->w.d_v, e->n, true);
    if (!c->v->top) {
        train_input_gradient(t, c->v, TEXT_Q, t->d_h, c->w.d_attended, e->n, true);
        return;
    }
    train_input_gradient(t, c->v, TEXT_Q, t->d_queries, c->w.d_attended, e->m, false);
    train_scatter_rows(t->d_h, t->d_queries, e->rows->predictor, e->m, t->model->embedding);
}

static void train_backward(text_train *t, const layer_visit *v, example_view *e, const float *dy)
{
    attention_visit c = visit(t, v, e);
    float *grad = e->rows->grad;
    train_weight_gradients(t, v, TEXT_O, grad, dy, c.a.attended, e->m);
    if (!v->plan->need_qkv)
        return;
    backward_attention(&c, dy);
    train_weight_gradients(t, v, TEXT_Q, grad, c.w.d_attended, v->top ? e->queries : e->acts.h,
                           e->m);
    train_weight_gradients(t, v, TEXT_K, grad, c.w.d_k, e->acts.h, e->n);
    train_weight_gradients(t, v, TEXT_V, grad, c.w.d_v, e->acts.h, e->n);
    if (v->plan->need_h)
        backward_projections(&c);
}

const text_mixer mixer_attention = {
    .name = "attention",
    .input = {TEXT_Q, TEXT_K, TEXT_V},
    .inputs = 3,
    .load = load,
    .forward = forward,
    .forward_floats = forward_floats,
    .scratch_floats = scratch_floats,
    .train_forward = train_forward,
    .train_backward = train_backward,
    .kept_floats = values_floats,
    .work_floats = work_floats,
    .train_scratch_floats = train_scratch_floats,
};
