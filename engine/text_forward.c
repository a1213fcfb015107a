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
    size_t n = linear_scratch(&m->output, 1, 0, threads);
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

typedef struct row_job {
    void (*op)(const struct row_job *job, size_t row, size_t rows);
    float *y;
    const float *x, *w;
    size_t rows, n, heads;
    float eps;
    const ops_rope *rope;
    const ops_gated *activation;
} row_job;

static void row_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const row_job *job = ctx;
    size_t row = i * TASK_ROWS, left = job->rows - row;
    job->op(job, row, left < TASK_ROWS ? left : TASK_ROWS);
}

static void for_rows(const text_forward *f, row_job job)
{
    tacit_pool_run(f->pool, (job.rows + TASK_ROWS - 1) / TASK_ROWS, row_task, &job);
}

static void norm_rows(const row_job *job, size_t row, size_t rows)
{
    ops_rms_norm_forward(job->y + row * job->n, job->x + row * job->n, job->w, rows, job->n,
                         job->eps);
}

/* y: heads side by side; w: a norm of each head, or NULL. */
static void rotate_rows(const row_job *job, size_t row, size_t rows)
{
    size_t dim = job->rope->head_dim, stride = job->heads * dim;
    float *y = job->y + row * stride;
    if (job->w)
        ops_rms_norm_forward(y, y, job->w, rows * job->heads, dim, job->eps);
    ops_rope_forward(y, job->x + row * dim, job->rope, rows, job->heads, stride);
}

static void activate_rows(const row_job *job, size_t row, size_t rows)
{
    size_t at = row * job->n;
    job->activation->forward(job->y + at, job->y + at, job->x + at, rows * job->n);
}

static void add_rows(const row_job *job, size_t row, size_t rows)
{
    ops_add(job->y + row * job->n, job->x + row * job->n, rows * job->n);
}

static void norm(const text_forward *f, float *y, const float *x, const float *w, size_t rows)
{
    row_job job = {.op = norm_rows, .y = y, .x = x, .w = w, .rows = rows, .n = f->m->embedding};
    job.eps = f->m->rms_eps;
    for_rows(f, job);
}

void text_forward_turn(const text_forward *f, size_t layer, float *x, const float *w, size_t heads,
                       size_t rows)
{
    size_t rope = f->m->layer[layer].rope;
    row_job job = {.op = rotate_rows, .y = x, .w = w, .rows = rows, .heads = heads};
    job.x = f->turn[rope];
    job.eps = f->m->rms_eps;
    job.rope = &f->m->rope[rope];
    for_rows(f, job);
}

/* Where fast precision refines: V and the output take part in little of the work and cause half of
 * the error (measured as divergence of the next token's distribution on SmolLM2-135M). */
static bool is_refined(text_linear which)
{
    return which == TEXT_V;
}

void text_forward_apply(text_forward *f, size_t layer, const text_linear *which, size_t count,
                        float *const *y, const float *x, size_t rows)
{
    const tacit_linear *linear = f->m->layer[layer].linear;
    fast_product product[TEXT_LINEARS];
    bool refined = false;
    if (f->tap)
        f->tap->see(f->tap->ctx, layer, which[0], x, rows);
    for (size_t i = 0; i < count; i++) {
        const tacit_linear *l = &linear[which[i]];
        const tacit_low_rank *pair = text_pair(f->pairs, layer, which[i]);
        if (!f->packed) {
            linear_forward(f->pool, l, pair, y[i], x, rows, f->scratch);
            continue;
        }
        product[i] = (fast_product){.l = l, .pair = pair, .y = y[i]};
        product[i].w = &f->packed->layer[layer * TEXT_LINEARS + which[i]];
        product[i].refined = is_refined(which[i]);
        refined |= product[i].refined;
    }
    if (!f->packed)
        return;
    fast_input_set(f->pool, &f->fast, product[0].w, x, rows, linear[which[0]].n_in, refined);
    fast_forward(f->pool, product, count, &f->fast, x, f->scratch);
}

/* x += f->h, what half of a layer came to, by way of its post norm where it has one. */
static void add(const text_forward *f, const tacit_text_layer *l, text_norm post, float *x,
                size_t rows)
{
    row_job job = {.op = add_rows, .y = x, .x = f->h, .rows = rows, .n = f->m->embedding};
    if (l->norm[post])
        norm(f, f->h, f->h, l->norm[post], rows);
    for_rows(f, job);
}

static void feed_forward(text_forward *f, size_t layer, float *x, size_t rows)
{
    static const text_linear inputs[] = {TEXT_GATE, TEXT_UP}, output[] = {TEXT_DOWN};
    const tacit_text_layer *l = &f->m->layer[layer];
    norm(f, f->h, x, l->norm[TEXT_FFN_NORM], rows);
    text_forward_apply(f, layer, inputs, 2, (float *const[]){f->gate, f->up}, f->h, rows);
    row_job job = {.op = activate_rows, .y = f->gate, .x = f->up, .rows = rows, .n = l->n_ff};
    job.activation = l->activation;
    for_rows(f, job);
    text_forward_apply(f, layer, output, 1, (float *const[]){f->h}, f->gate, rows);
    add(f, l, TEXT_FFN_POST_NORM, x, rows);
}

void text_forward_layers(text_forward *f, size_t from, size_t to, kv_cache *cache, size_t first,
                         float *x, size_t rows)
{
    const uint32_t *position = cache->place[first].position;
    for (size_t i = 0; i < f->m->n_ropes; i++)
        ops_rope_table(f->turn[i], &f->m->rope[i], position, TEXT_PLACE_STRIDE, rows);
    for (size_t i = from; i < to; i++) {
        const tacit_text_layer *l = &f->m->layer[i];
        norm(f, f->h, x, l->norm[TEXT_ATTN_NORM], rows);
        l->mixer->forward(f, i, cache, first, rows);
        add(f, l, TEXT_ATTN_POST_NORM, x, rows);
        feed_forward(f, i, x, rows);
    }
}

void text_forward_logits(text_forward *f, float *logits, const float *x, size_t rows)
{
    norm(f, f->h, x, f->m->output_norm, rows);
    if (f->tap)
        f->tap->see(f->tap->ctx, f->m->n_layers, 0, f->h, rows);
    if (!f->packed) {
        linear_forward(f->pool, &f->m->output, NULL, logits, f->h, rows, f->scratch);
        return;
    }
    fast_product product = {.l = &f->m->output, .w = &f->packed->output, .y = logits};
    product.refined = true;
    fast_input_set(f->pool, &f->fast, product.w, f->h, rows, f->m->embedding, true);
    fast_forward(f->pool, &product, 1, &f->fast, f->h, f->scratch);
}
