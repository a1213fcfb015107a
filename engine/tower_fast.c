#include "engine/tower_fast.h"

#include "engine/kernels.h"
#include "engine/ops.h"
#include "engine/tower_attention.h"

#include "common/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_A_TASK ((size_t)8)
#define NO_EXACT "exact precision does without"

/* Below this width rounding costs as much time as it saves. */
#define NARROW 256

bool tower_refines(const tacit_linear *l)
{
    const fast_kernels *k = kernels()->fast;
    fast_weight w;
    return fast_weight_plan(&w, k, l) > 0 && (k->sums_bytes || fast_takes_tiles(k, w.form));
}

/* Rows that are rounded to blocks of 8 bits, or to bf16, and no more move sharp attention by
 * percents, and weights that files hold in F16 as well when rounded. So rows are refined where that
 * saves time, and all else stays fp32. */
static bool is_refined(const tacit_linear *l, bool product, size_t width)
{
    return product && width >= NARROW && tower_refines(l);
}

/* The most values that are quantized at a time. */
static size_t most_inputs(const tower_fast *f, const tower_fast_spec *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t n = f->refined[i] ? fast_input_values(s->part[i].rows, s->linear[i].n_in) : 0;
        most = n > most ? n : most;
    }
    return most;
}

static tacit_status init_input(tower_fast *f, const tower_fast_spec *s, tacit_error *err)
{
    char what[64];
    size_t inputs = most_inputs(f, s), threads = tacit_pool_threads(f->pool);
    snprintf(what, sizeof what, "quantizing %s", s->what);
    size_t bytes = fast_input_bytes(inputs, threads);
    tacit_status status = tacit_memory_require(bytes, what, NO_EXACT, err);
    if (status == TACIT_OK && !fast_input_init(&f->input, inputs, threads))
        status = tacit_memory_fail(bytes, what, NO_EXACT, err);
    return status;
}

tacit_status tower_fast_init(tower_fast *f, const tower_fast_spec *spec, tacit_pool *pool,
                             tacit_error *err)
{
    *f = (tower_fast){.pool = pool, .refined = calloc(spec->count, sizeof *f->refined)};
    if (!f->refined)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to pack a tower");
    for (size_t i = 0; i < spec->count; i++)
        f->refined[i] = is_refined(&spec->linear[i], spec->part[i].product, spec->width);
    tacit_status status = init_input(f, spec, err);
    if (status == TACIT_OK)
        status = fast_tower_get(spec->packing, &f->packed, spec->linear, f->refined, spec->count,
                                spec->file, pool, err);
    return status;
}

void tower_fast_fini(tower_fast *f)
{
    fast_input_fini(&f->input);
    free(f->refined);
    memset(f, 0, sizeof *f);
}

tower_product tower_product_of(const tower_fast *f, size_t i, tacit_linear linear, bool stands_in)
{
    static const fast_weight none;
    return (tower_product){.linear = linear,
                           .packed = stands_in ? &none : &f->packed[i],
                           .refined = !stands_in && f->refined[i]};
}

/* Makes an input of `rows` that all of to[count] meet, with remainders if any wants them; false
 * when none reads it: then it is one without columns, for which there need be no memory. */
static bool begin_input(tower_fast *f, const tower_product *to, size_t count, size_t rows)
{
    fast_reader reader[FAST_MAX_PRODUCTS];
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        reader[i] = (fast_reader){to[i].packed, to[i].refined};
        any |= to[i].packed->panels != NULL;
    }
    fast_input_begin(&f->input, reader, count, rows, any ? to->linear.n_in : 0);
    return any;
}

/* Products on what was quantized from x: y[i] of to[i]. */
static void multiply(tower_fast *f, const tower_product *to, size_t count, float *const *y,
                     const float *x)
{
    fast_product product[FAST_MAX_PRODUCTS];
    for (size_t i = 0; i < count; i++)
        product[i] = (fast_product){.l = &to[i].linear,
                                    .w = to[i].packed,
                                    .pair = to[i].pair,
                                    .y = y[i],
                                    .refined = to[i].refined};
    fast_forward(f->pool, product, count, &f->input, x, f->scratch);
}

void tower_multiply(tower_fast *f, const tower_product *p, float *y, const float *x, size_t rows)
{
    if (begin_input(f, p, 1, rows))
        fast_input_fill(f->pool, &f->input, x);
    multiply(f, p, 1, &y, x);
}

/* Rows on their way to a product: x += added, y = norm or activation of x, quantized. */
typedef struct step {
    float *x;
    const float *added; /* or NULL */
    float *y;
    const float *norm, *bias; /* or NULL */
    bool activated;
    size_t width;
    const tower_product *to; /* [count], of y */
    size_t count;
} step;

typedef struct step_job {
    tower_fast *f;
    const tower_fast_block *block;
    const step *s;
    bool quantized;
} step_job;

static void run_rows(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const step_job *job = ctx;
    const step *s = job->s;
    const tower_fast_block *block = job->block;
    size_t first = i * ROWS_A_TASK, at = first * s->width;
    size_t n = block->rows - first < ROWS_A_TASK ? block->rows - first : ROWS_A_TASK;
    if (s->added)
        kernels()->axpy(s->x + at, 1, s->added + at, n * s->width);
    if (s->norm)
        ops_layer_norm_forward(s->y + at, s->x + at, s->norm, s->bias, n, s->width, block->epsilon);
    if (s->activated)
        block->activate(s->y + at, s->x + at, n * s->width);
    if (job->quantized)
        fast_input_rows(&job->f->input, s->y + at, first, n);
}

static void run_step(tower_fast *f, const tower_fast_block *block, const step *s)
{
    bool quantized = s->count > 0 && begin_input(f, s->to, s->count, block->rows);
    step_job job = {f, block, s, quantized};
    tacit_pool_run(f->pool, (block->rows + ROWS_A_TASK - 1) / ROWS_A_TASK, run_rows, &job);
}

void tower_fast_forward(tower_fast *f, const tower_fast_block *k, tower_block *b, float *x)
{
    const tower_attention attention = {b->q, b->k, b->v, b->mixed, k->rows, k->width, k->heads};
    const step enter = {.x = x,
                        .y = b->norm1,
                        .norm = k->norm1,
                        .bias = k->norm1_bias,
                        .width = k->width,
                        .to = k->qkv,
                        .count = 3};
    const step mixed = {.x = b->mixed, .y = b->mixed, .width = k->width, .to = &k->out, .count = 1};
    const step middle = {.x = x,
                         .added = b->q,
                         .y = b->norm2,
                         .norm = k->norm2,
                         .bias = k->norm2_bias,
                         .width = k->width,
                         .to = &k->up,
                         .count = 1};
    const step act = {
        .x = b->up, .y = b->act, .activated = true, .width = k->ff, .to = &k->down, .count = 1};
    const step leave = {.x = x, .added = b->q, .width = k->width};
    run_step(f, k, &enter);
    multiply(f, k->qkv, 3, (float *const[]){b->q, b->k, b->v}, b->norm1);
    tower_attend(f->pool, &attention, f->attention);
    run_step(f, k, &mixed);
    multiply(f, &k->out, 1, &b->q, b->mixed);
    run_step(f, k, &middle);
    multiply(f, &k->up, 1, &b->up, b->norm2);
    run_step(f, k, &act);
    multiply(f, &k->down, 1, &b->q, b->act);
    run_step(f, k, &leave);
}
