#include "engine/vision_fast.h"

#include "engine/kernels.h"
#include "engine/ops.h"
#include "engine/tower_attention.h"

#include "common/memory_limit.h"

#include <stdlib.h>

#define ROWS_A_TASK ((size_t)8)

/* What the rows of a weight are in blocks of 8 bits: rounded once, rounded with the remainders as
 * well, or left in fp32. Of the error that rounding everything makes (1.4 % of the rows of a tower
 * of 12 blocks) the feed-forward nets cause four fifths; where their products with remainders would
 * take longer than those of fp32, or their weights would have to be rounded to 8 bits too, they
 * stay exact. Tiles round to 16 bits: there nothing needs to. */
typedef enum rounding { ROUNDED, REFINED, UNROUNDED } rounding;

static bool is_delicate(const tacit_vision *v, size_t i)
{
    size_t part = (i - v->first_block) % VISION_PARTS;
    return i >= v->first_projector || part == VISION_UP || part == VISION_DOWN;
}

static rounding rounding_of(const tacit_vision *v, size_t i)
{
    if (!v->product[i])
        return UNROUNDED;
    bool quantized = v->linear[i].type->block_values > 1;
    if (!is_delicate(v, i) || (kernels()->fast->tiles && !quantized))
        return ROUNDED;
    return quantized && kernels()->fast->sums_bytes ? REFINED : UNROUNDED;
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

/* Makes the input for the products of tensor i, `rows` of it; false when none reads it. */
static bool begin_input(vision_pass *p, size_t i, size_t rows)
{
    const fast_weight *w = packed_weight(p, i);
    fast_input_begin(&p->input, w, rows, p->v->tensor[i].cols, rounding_of(p->v, i) == REFINED);
    return w->panels;
}

/* Rows on their way to a product: x += added, y = norm or activation of x, quantized. */
typedef struct step {
    float *x;
    const float *added; /* or NULL */
    float *y;
    size_t norm; /* VISION_ABSENT: none */
    bool activated;
    size_t width;
    size_t product; /* whose input y is, or VISION_ABSENT */
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
    step_job job = {p, s, s->product != VISION_ABSENT && begin_input(p, s->product, rows)};
    tacit_pool_run(p->pool, (rows + ROWS_A_TASK - 1) / ROWS_A_TASK, run_rows, &job);
}

/* Products of block l on what was quantized from x. */
static void multiply(vision_pass *p, size_t l, const vision_part *part, float *const *y,
                     size_t count, const float *x)
{
    tacit_linear linear[FAST_MAX_PRODUCTS];
    fast_product product[FAST_MAX_PRODUCTS];
    for (size_t i = 0; i < count; i++) {
        size_t tensor = vision_block_tensor(p->v, l, part[i]);
        linear[i] = vision_linear(p, tensor, true);
        product[i] = (fast_product){.l = &linear[i],
                                    .w = packed_weight(p, tensor),
                                    .y = y[i],
                                    .refined = rounding_of(p->v, tensor) == REFINED};
    }
    fast_forward(p->pool, product, count, &p->input, x, p->scratch);
}

static void multiply_one(vision_pass *p, size_t l, vision_part part, float *y, const float *x)
{
    multiply(p, l, &part, &y, 1, x);
}

void vision_fast_block(vision_pass *p, size_t l, tower_block *b, float *x)
{
    static const vision_part qkv[] = {VISION_Q, VISION_K, VISION_V};
    const vision_shape *s = &p->v->shape;
    const size_t base = vision_block_tensor(p->v, l, 0), none = VISION_ABSENT;
    float *const heads[] = {b->q, b->k, b->v};
    const tower_attention attention = {b->q, b->k, b->v, b->mixed, s->tokens, s->width, s->heads};
    const step enter = {x, NULL, b->norm1, base + VISION_LN1, false, s->width, base + VISION_Q};
    const step mixed = {b->mixed, NULL, b->mixed, none, false, s->width, base + VISION_OUT};
    const step middle = {x, b->q, b->norm2, base + VISION_LN2, false, s->width, base + VISION_UP};
    const step act = {b->up, NULL, b->act, none, true, s->ff, base + VISION_DOWN};
    const step leave = {x, b->q, NULL, none, false, s->width, none};
    run_step(p, &enter);
    multiply(p, l, qkv, heads, 3, b->norm1);
    tower_attend(p->pool, &attention, p->attention);
    run_step(p, &mixed);
    multiply_one(p, l, VISION_OUT, b->q, b->mixed);
    run_step(p, &middle);
    multiply_one(p, l, VISION_UP, b->up, b->norm2);
    run_step(p, &act);
    multiply_one(p, l, VISION_DOWN, b->q, b->act);
    run_step(p, &leave);
}

void vision_fast_linear(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows)
{
    tacit_linear linear = vision_linear(p, i, bias);
    bool refined = rounding_of(p->v, i) == REFINED;
    const fast_product product = {
        .l = &linear, .w = packed_weight(p, i), .y = y, .refined = refined};
    if (product.w->panels)
        fast_input_set(p->pool, &p->input, product.w, x, rows, linear.n_in, refined);
    else
        fast_input_begin(&p->input, product.w, rows, linear.n_in, refined);
    fast_forward(p->pool, &product, 1, &p->input, x, p->scratch);
}
