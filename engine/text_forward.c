#include "engine/text_forward.h"

#include "common/memory_limit.h"
#include "engine/ops.h"
#include "engine/text_mixer.h"

#include <stdlib.h>
#include <string.h>

/* Rows of one task of the small operations. */
#define TASK_ROWS 16

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t scratch_floats(const text_forward *f, size_t max_rank)
{
    const tacit_text_model *m = f->m;
    size_t threads = tacit_pool_threads(f->pool);
    size_t n = linear_scratch(&m->output, f->max_rows, max_rank, threads);
    for (size_t i = 0; i < m->n_layers; i++)
        n = most(n, m->layer[i].mixer->scratch_floats(m, i, threads));
    for (size_t i = 0; i < m->n_layers; i++)
        for (int which = 0; which < TEXT_LINEARS; which++)
            n = most(n, linear_scratch(&m->layer[i].linear[which], f->max_rows, max_rank, threads));
    return n;
}

/* Hands out consecutive parts of one allocation; with memory NULL it only counts. */
static void take(float **out, float *memory, size_t *at, size_t n)
{
    *out = memory ? memory + *at : NULL;
    *at += (n + 15) / 16 * 16;
}

static size_t mixer_floats(const tacit_text_model *m, size_t rows)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_layers; i++)
        n = most(n, m->layer[i].mixer->forward_floats(m, i, rows));
    return n;
}

static size_t place(text_forward *f, size_t max_rank)
{
    const tacit_text_model *m = f->m;
    size_t rows = f->max_rows, at = 0;
    take(&f->h, f->memory, &at, rows * m->embedding);
    take(&f->mix, f->memory, &at, mixer_floats(m, rows));
    take(&f->gate, f->memory, &at, rows * m->max_ff);
    take(&f->up, f->memory, &at, rows * m->max_ff);
    for (size_t i = 0; i < m->n_ropes; i++)
        take(&f->turn[i], f->memory, &at, rows * m->head_dim);
    take(&f->scratch, f->memory, &at, scratch_floats(f, max_rank));
    return at;
}

static size_t widest(const tacit_text_model *m)
{
    return most(most(m->embedding, m->max_ff), m->max_heads * m->head_dim);
}

size_t text_forward_bytes(const tacit_text_model *m, tacit_pool *pool, tacit_precision precision,
                          size_t max_rows, size_t max_rank)
{
    text_forward f = {.m = m, .pool = pool, .max_rows = max_rows};
    size_t values = fast_input_values(max_rows, widest(m)), threads = tacit_pool_threads(pool);
    size_t fast = precision == TACIT_FAST ? fast_input_bytes(values, threads) : 0;
    return place(&f, max_rank) * sizeof(float) + fast;
}

tacit_status text_forward_init(text_forward *f, const tacit_text_model *m, tacit_pool *pool,
                               const fast_model *packed, size_t max_rows, size_t max_rank,
                               tacit_error *err)
{
    *f = (text_forward){.m = m, .pool = pool, .packed = packed, .max_rows = max_rows};
    size_t floats = place(f, max_rank);
    size_t values = fast_input_values(max_rows, widest(m)), threads = tacit_pool_threads(pool);
    f->memory = malloc(floats * sizeof *f->memory);
    if (!f->memory || (packed && !fast_input_init(&f->fast, values, threads))) {
        text_forward_fini(f);
        return tacit_memory_fail(floats * sizeof(float), "computing rows together",
                                 "ask for a smaller chunk", err);
    }
    place(f, max_rank);
    return TACIT_OK;
}

void text_forward_fini(text_forward *f)
{
    fast_input_fini(&f->fast);
    free(f->memory);
    memset(f, 0, sizeof *f);
}

/* What happens to rows between two products, in one visit of each; what is NULL is left out:
 *   added = post norm of added; x += added
 *   y = norm of `from`, or y = activation of y and up
 *   in fast precision, `input` made ready for the linears that read it */
typedef struct forward_step {
    float *x, *added;
    const float *post;
    const float *from, *norm;
    float *y;
    const ops_gated *activation;
    const float *up;
    const float *input;
    size_t width; /* of y and input */
} forward_step;

typedef struct step_job {
    text_forward *f;
    const forward_step *s;
    size_t rows;
} step_job;

static void step_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const step_job *job = ctx;
    const forward_step *s = job->s;
    const tacit_text_model *m = job->f->m;
    size_t row = i * TASK_ROWS, left = job->rows - row, n = left < TASK_ROWS ? left : TASK_ROWS;
    size_t at = row * m->embedding, to = row * s->width;
    if (s->post)
        ops_rms_norm_forward(s->added + at, s->added + at, s->post, n, m->embedding, m->rms_eps);
    if (s->added)
        ops_add(s->x + at, s->added + at, n * m->embedding);
    if (s->norm)
        ops_rms_norm_forward(s->y + to, s->from + at, s->norm, n, m->embedding, m->rms_eps);
    if (s->activation)
        s->activation->forward(s->y + to, s->y + to, s->up + to, n * s->width);
    if (s->input)
        fast_input_rows(&job->f->fast, s->input + to, row, n);
}

static void run_step(text_forward *f, const forward_step *s, size_t rows)
{
    step_job job = {f, s, rows};
    tacit_pool_run(f->pool, (rows + TASK_ROWS - 1) / TASK_ROWS, step_task, &job);
}

/* Heads of one tensor to be turned. */
typedef struct turn_job {
    float *x;
    const float *norm, *table;
    size_t rows, heads;
    float eps;
    const ops_rope *rope;
} turn_job;

static void turn_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const turn_job *job = ctx;
    size_t row = i * TASK_ROWS, left = job->rows - row, n = left < TASK_ROWS ? left : TASK_ROWS;
    size_t dim = job->rope->head_dim, stride = job->heads * dim;
    float *x = job->x + row * stride;
    if (job->norm)
        ops_rms_norm_forward(x, x, job->norm, n * job->heads, dim, job->eps);
    ops_rope_forward(x, job->table + row * dim, job->rope, n, job->heads, stride);
}

void text_forward_turn(const text_forward *f, size_t layer, float *x, const float *w, size_t heads,
                       size_t rows)
{
    size_t rope = f->m->layer[layer].rope;
    turn_job job = {.x = x,
                    .norm = w,
                    .table = f->turn[rope],
                    .rows = rows,
                    .heads = heads,
                    .eps = f->m->rms_eps,
                    .rope = &f->m->rope[rope]};
    tacit_pool_run(f->pool, (rows + TASK_ROWS - 1) / TASK_ROWS, turn_task, &job);
}

/* Where fast precision refines: V and the output take part in little of the work and cause half of
 * the error (measured as divergence of the next token's distribution on SmolLM2-135M). What a short
 * convolution reads becomes three factors of one product: refined, it leaves two thirds of the
 * squared error of LFM2-350M's logits. */
static bool is_refined(text_linear which)
{
    return which == TEXT_V || which == TEXT_CONV_IN;
}

static const fast_weight *packed_weight(const text_forward *f, size_t layer, text_linear which)
{
    return &f->packed->layer[layer * TEXT_LINEARS + which];
}

/* Makes f->fast ready for rows that `which` of a layer read. */
static void begin_input(text_forward *f, size_t layer, const text_linear *which, size_t count,
                        size_t rows)
{
    fast_reader to[FAST_MAX_PRODUCTS];
    for (size_t i = 0; i < count; i++)
        to[i] = (fast_reader){packed_weight(f, layer, which[i]), is_refined(which[i])};
    fast_input_begin(&f->fast, to, count, rows, f->m->layer[layer].linear[which[0]].n_in);
}

void text_forward_multiply(text_forward *f, size_t layer, const text_linear *which, size_t count,
                           float *const *y, const float *x, size_t rows)
{
    fast_product product[TEXT_LINEARS];
    if (f->tap)
        f->tap->see(f->tap->ctx, layer, which[0], x, rows);
    for (size_t i = 0; i < count; i++) {
        const tacit_linear *l = &f->m->layer[layer].linear[which[i]];
        const tacit_low_rank *pair = text_pair(f->pairs, layer, which[i]);
        if (!f->packed) {
            linear_forward(f->pool, l, pair, y[i], x, rows, f->scratch);
            continue;
        }
        product[i] = (fast_product){.l = l, .pair = pair, .y = y[i]};
        product[i].w = packed_weight(f, layer, which[i]);
        product[i].refined = is_refined(which[i]);
    }
    if (f->packed)
        fast_forward(f->pool, product, count, &f->fast, x, f->scratch);
}

void text_forward_apply(text_forward *f, size_t layer, const text_linear *which, size_t count,
                        float *const *y, const float *x, size_t rows)
{
    const forward_step ready = {.input = x, .width = f->m->layer[layer].linear[which[0]].n_in};
    if (f->packed) {
        begin_input(f, layer, which, count, rows);
        run_step(f, &ready, rows);
    }
    text_forward_multiply(f, layer, which, count, y, x, rows);
}

/* A step whose y is the input of `which` of a layer. */
static void step_to(text_forward *f, forward_step s, size_t layer, const text_linear *which,
                    size_t count, size_t rows)
{
    s.width = f->m->layer[layer].linear[which[0]].n_in;
    if (f->packed) {
        s.input = s.y;
        begin_input(f, layer, which, count, rows);
    }
    run_step(f, &s, rows);
}

/* Into f->h what layer i reads: the norm of x, to which what came before is added. */
static void enter(text_forward *f, size_t i, const float *x, forward_step s, size_t rows)
{
    const tacit_text_layer *l = &f->m->layer[i];
    s.from = x;
    s.y = f->h;
    s.norm = l->norm[TEXT_ATTN_NORM];
    step_to(f, s, i, l->mixer->input, l->mixer->inputs, rows);
}

/* From what the layer mixed in f->h to what its feed-forward net came to, there. */
static void feed_forward(text_forward *f, size_t i, float *x, size_t rows)
{
    static const text_linear inputs[] = {TEXT_GATE, TEXT_UP}, output[] = {TEXT_DOWN};
    const tacit_text_layer *l = &f->m->layer[i];
    const forward_step normed = {.x = x,
                                 .added = f->h,
                                 .post = l->norm[TEXT_ATTN_POST_NORM],
                                 .from = x,
                                 .y = f->h,
                                 .norm = l->norm[TEXT_FFN_NORM]};
    const forward_step activated = {.y = f->gate, .up = f->up, .activation = l->activation};
    step_to(f, normed, i, inputs, 2, rows);
    text_forward_multiply(f, i, inputs, 2, (float *const[]){f->gate, f->up}, f->h, rows);
    step_to(f, activated, i, output, 1, rows);
    text_forward_multiply(f, i, output, 1, (float *const[]){f->h}, f->gate, rows);
}

void text_forward_layers(text_forward *f, size_t from, size_t to, kv_cache *cache, size_t first,
                         float *x, size_t rows)
{
    const uint32_t *position = cache->place[first].position;
    forward_step before = {.x = x};
    for (size_t i = 0; i < f->m->n_ropes; i++)
        ops_rope_table(f->turn[i], &f->m->rope[i], position, TEXT_PLACE_STRIDE, rows);
    for (size_t i = from; i < to; i++) {
        enter(f, i, x, before, rows);
        f->m->layer[i].mixer->forward(f, i, cache, first, rows);
        feed_forward(f, i, x, rows);
        before.added = f->h;
        before.post = f->m->layer[i].norm[TEXT_FFN_POST_NORM];
    }
    run_step(f, &before, rows);
}

void text_forward_logits(text_forward *f, float *logits, const float *x, size_t rows)
{
    const forward_step normed = {
        .from = x,
        .norm = f->m->output_norm,
        .y = f->h,
        .width = f->m->embedding,
        .input = f->packed ? f->h : NULL,
    };
    const tacit_low_rank *pair = text_output_pair(f->pairs);
    fast_product product = {.l = &f->m->output, .pair = pair, .y = logits, .refined = true};
    if (f->packed) {
        product.w = &f->packed->output;
        const fast_reader to = {product.w, true};
        fast_input_begin(&f->fast, &to, 1, rows, f->m->embedding);
    }
    run_step(f, &normed, rows);
    if (f->tap)
        f->tap->see(f->tap->ctx, f->m->n_layers, 0, f->h, rows);
    if (f->packed)
        fast_forward(f->pool, &product, 1, &f->fast, f->h, f->scratch);
    else
        linear_forward(f->pool, &f->m->output, pair, logits, f->h, rows, f->scratch);
}
