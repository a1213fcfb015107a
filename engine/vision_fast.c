#include "engine/vision_fast.h"

#include "engine/kernels.h"
#include "engine/ops.h"
#include "engine/tower_attention.h"

#include "common/memory_limit.h"

#include <stdlib.h>

#define ROWS_A_TASK ((size_t)8)

/* What the rows of a weight are in blocks of 8 bits: rounded once, rounded with the remainders as
 * well, or left in fp32. Queries and keys are rounded once: with random weights what that does to
 * attention is all but lost among its many rows. So are, in files of blocks, the values and the
 * attention's output: errors of rows average out over what is mixed. Those of weights do not, so
 * other files' stay exact. What feed-forward nets and the projector are off by stays in the rows:
 * where their products with remainders would take longer than those of fp32, or their weights would
 * have to be rounded too, they stay exact. Tiles round to 16 bits: there nothing needs to. */
typedef enum rounding { ROUNDED, REFINED, UNROUNDED } rounding;

/* Below this width rounding costs as much time as it saves. */
#define NARROW 256

/* Where one instruction adds products of bytes, and where there is nothing to add to tiles. */
static bool refining_saves_time(const tacit_vision *v, size_t i)
{
    const fast_kernels *k = kernels()->fast;
    fast_weight w;
    return fast_weight_plan(&w, k, &v->linear[i]) > 0 &&
           (k->sums_bytes || fast_takes_tiles(k, w.form));
}

static rounding rounding_of(const tacit_vision *v, size_t i)
{
    if (!v->product[i] || v->shape.width < NARROW)
        return UNROUNDED;
    bool quantized = v->linear[i].type->block_values > 1;
    bool in_block = i >= v->first_block && i < v->first_projector;
    size_t part = (i - v->first_block) % VISION_PARTS;
    if (fast_takes_tiles(kernels()->fast, FAST_16) && !quantized)
        return ROUNDED;
    if (in_block && (part == VISION_Q || part == VISION_K))
        return ROUNDED;
    if (in_block && quantized && (part == VISION_V || part == VISION_OUT))
        return ROUNDED;
    return quantized && refining_saves_time(v, i) ? REFINED : UNROUNDED;
}

/* The most values that are quantized at a time. */
static size_t most_inputs(const tacit_vision *v)
{
    const vision_shape *s = &v->shape;
    size_t most = 0;
    for (size_t i = 0; i < v->count; i++) {
        size_t rows = i < v->first_projector ? s->tokens : s->rows;
        size_t n = rounding_of(v, i) == UNROUNDED ? 0 : fast_input_values(rows, v->tensor[i].cols);
        most = n > most ? n : most;
    }
    return most;
}

static tacit_status pack(vision_pass *p, tacit_error *err)
{
    const tacit_vision *v = p->v;
    bool *wanted = calloc(v->count, sizeof *wanted);
    if (!wanted)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to pack a tower");
    for (size_t i = 0; i < v->count; i++)
        wanted[i] = rounding_of(v, i) != UNROUNDED;
    tacit_status status =
        fast_tower_get(v->packing, &p->packed, v->linear, wanted, v->count, v->file, p->pool, err);
    free(wanted);
    return status;
}

tacit_status vision_fast_init(vision_pass *p, tacit_error *err)
{
    size_t inputs = most_inputs(p->v), threads = tacit_pool_threads(p->pool);
    tacit_status status =
        tacit_memory_require(fast_input_bytes(inputs, threads), "quantizing pictures",
                             "exact precision does without", err);
    if (status == TACIT_OK && !fast_input_init(&p->input, inputs, threads))
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for the quantized rows of a picture");
    return status == TACIT_OK ? pack(p, err) : status;
}

void vision_fast_fini(vision_pass *p)
{
    fast_input_fini(&p->input);
}

/* The packed weight of tensor i, without panels where it is not rounded or other values stand in.
 */
static const fast_weight *packed_weight(const vision_pass *p, size_t i)
{
    static const fast_weight none;
    return p->weight[i] ? &none : &p->packed[i];
}

/* The weights that one input meets. */
typedef struct readers {
    size_t tensor[FAST_MAX_PRODUCTS], count;
} readers;

/* Makes an input of `rows`, with remainders if any reader wants them; false when none reads it:
 * then it is one without columns, for which there need be no memory. */
static bool begin_input(vision_pass *p, const readers *to, size_t rows)
{
    const fast_weight *w[FAST_MAX_PRODUCTS];
    bool any = false, refined = false;
    for (size_t i = 0; i < to->count; i++) {
        w[i] = packed_weight(p, to->tensor[i]);
        any |= w[i]->panels != NULL;
        refined |= w[i]->panels && rounding_of(p->v, to->tensor[i]) == REFINED;
    }
    size_t cols = any ? p->v->tensor[to->tensor[0]].cols : 0;
    fast_input_begin(&p->input, w, to->count, rows, cols, refined);
    return any;
}

/* Rows on their way to a product: x += added, y = norm or activation of x, quantized. */
typedef struct step {
    float *x;
    const float *added; /* or NULL */
    float *y;
    size_t norm; /* VISION_ABSENT: none */
    bool activated;
    size_t width;
    const readers *to; /* of y, or NULL */
} step;

typedef struct step_job {
    vision_pass *p;
    const step *s;
    bool quantized;
} step_job;

static void run_rows(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const step_job *job = ctx;
    const step *s = job->s;
    vision_pass *p = job->p;
    size_t rows = p->v->shape.tokens, first = i * ROWS_A_TASK, at = first * s->width;
    size_t n = rows - first < ROWS_A_TASK ? rows - first : ROWS_A_TASK;
    if (s->added)
        kernels()->axpy(s->x + at, 1, s->added + at, n * s->width);
    if (s->norm != VISION_ABSENT)
        ops_layer_norm_forward(s->y + at, s->x + at, vision_values(p, s->norm),
                               vision_values(p, s->norm + 1), n, s->width, p->v->shape.epsilon);
    if (s->activated)
        p->v->activation->forward(s->y + at, s->x + at, n * s->width);
    if (job->quantized)
        fast_input_rows(&p->input, s->y + at, first, n);
}

static void run_step(vision_pass *p, const step *s)
{
    size_t rows = p->v->shape.tokens;
    step_job job = {p, s, s->to && begin_input(p, s->to, rows)};
    tacit_pool_run(p->pool, (rows + ROWS_A_TASK - 1) / ROWS_A_TASK, run_rows, &job);
}

/* Products on what was quantized from x: y[i] of reader i. */
static void multiply(vision_pass *p, const readers *to, float *const *y, const float *x)
{
    tacit_linear linear[FAST_MAX_PRODUCTS];
    fast_product product[FAST_MAX_PRODUCTS];
    for (size_t i = 0; i < to->count; i++) {
        linear[i] = vision_linear(p, to->tensor[i], true);
        product[i] = (fast_product){.l = &linear[i],
                                    .w = packed_weight(p, to->tensor[i]),
                                    .y = y[i],
                                    .refined = rounding_of(p->v, to->tensor[i]) == REFINED};
    }
    fast_forward(p->pool, product, to->count, &p->input, x, p->scratch);
}

void vision_fast_block(vision_pass *p, size_t l, tower_block *b, float *x)
{
    const vision_shape *s = &p->v->shape;
    const size_t base = vision_block_tensor(p->v, l, 0), none = VISION_ABSENT;
    const readers qkv = {{base + VISION_Q, base + VISION_K, base + VISION_V}, 3};
    const readers out = {{base + VISION_OUT}, 1}, up = {{base + VISION_UP}, 1};
    const readers down = {{base + VISION_DOWN}, 1};
    const tower_attention attention = {b->q, b->k, b->v, b->mixed, s->tokens, s->width, s->heads};
    const step enter = {x, NULL, b->norm1, base + VISION_LN1, false, s->width, &qkv};
    const step mixed = {b->mixed, NULL, b->mixed, none, false, s->width, &out};
    const step middle = {x, b->q, b->norm2, base + VISION_LN2, false, s->width, &up};
    const step act = {b->up, NULL, b->act, none, true, s->ff, &down};
    const step leave = {x, b->q, NULL, none, false, s->width, NULL};
    run_step(p, &enter);
    multiply(p, &qkv, (float *const[]){b->q, b->k, b->v}, b->norm1);
    tower_attend(p->pool, &attention, p->attention);
    run_step(p, &mixed);
    multiply(p, &out, &b->q, b->mixed);
    run_step(p, &middle);
    multiply(p, &up, &b->up, b->norm2);
    run_step(p, &act);
    multiply(p, &down, &b->q, b->act);
    run_step(p, &leave);
}

void vision_fast_linear(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows)
{
    const readers to = {{i}, 1};
    tacit_linear linear = vision_linear(p, i, bias);
    const fast_product product = {
        .l = &linear, .w = packed_weight(p, i), .y = y, .refined = rounding_of(p->v, i) == REFINED};
    if (begin_input(p, &to, rows))
        fast_input_fill(p->pool, &p->input, x);
    fast_forward(p->pool, &product, 1, &p->input, x, p->scratch);
}
