#include "engine/vision_fast.h"

#include "engine/kernels.h"
#include "engine/ops.h"
#include "engine/tower_attention.h"

#include "common/memory_limit.h"

#define ROWS_A_TASK ((size_t)8)

/* Rows that product i has at most, times its columns: what is quantized at a time. */
static size_t most_inputs(const tacit_vision *v)
{
    const vision_shape *s = &v->shape;
    size_t most = 0;
    for (size_t i = 0; i < v->count; i++) {
        size_t rows = i < v->first_projector ? s->tokens : s->rows;
        size_t n = v->linear[i].type ? rows * v->tensor[i].cols : 0;
        most = n > most ? n : most;
    }
    return most;
}

tacit_status vision_fast_init(vision_pass *p, tacit_error *err)
{
    const tacit_vision *v = p->v;
    size_t inputs = most_inputs(v);
    tacit_status status = tacit_memory_require(fast_input_bytes(1, inputs), "quantizing pictures",
                                               "exact precision does without", err);
    if (status == TACIT_OK && !fast_input_init(&p->input, 1, inputs))
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for the quantized rows of a picture");
    if (status == TACIT_OK)
        status = fast_tower_get(v->packing, &p->packed, v->linear, v->count, v->file, p->pool, err);
    return status;
}

void vision_fast_fini(vision_pass *p)
{
    fast_input_fini(&p->input);
}

/* Where the remainders of rounding count: what they cost is as much again of the product. */
static bool is_refined(vision_part part)
{
    (void)part;
    return false;
}

/* Rows on their way to a product: x += added, y = norm or activation of x, quantized. */
typedef struct step {
    vision_pass *p;
    float *x;
    const float *added; /* or NULL */
    float *y;
    size_t norm; /* VISION_ABSENT: none */
    bool activated, quantized;
    size_t width;
} step;

static void run_rows(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const step *s = ctx;
    vision_pass *p = s->p;
    size_t rows = p->v->shape.tokens, first = i * ROWS_A_TASK, at = first * s->width;
    size_t n = rows - first < ROWS_A_TASK ? rows - first : ROWS_A_TASK;
    if (s->added)
        kernels()->axpy(s->x + at, 1, s->added + at, n * s->width);
    if (s->norm != VISION_ABSENT)
        ops_layer_norm_forward(s->y + at, s->x + at, vision_values(p, s->norm),
                               vision_values(p, s->norm + 1), n, s->width, p->v->shape.epsilon);
    if (s->activated)
        p->v->activation->forward(s->y + at, s->x + at, n * s->width);
    if (s->quantized)
        fast_input_rows(&p->input, s->y + at, first, n);
}

static void run_step(step s, bool refined)
{
    size_t rows = s.p->v->shape.tokens;
    if (s.quantized)
        fast_input_begin(&s.p->input, rows, s.width, refined);
    tacit_pool_run(s.p->pool, (rows + ROWS_A_TASK - 1) / ROWS_A_TASK, run_rows, &s);
}

/* The packed weight of tensor i, unless other values stand in. */
static const fast_weight *packed_weight(const vision_pass *p, size_t i)
{
    static const fast_weight none;
    return p->weight[i] ? &none : &p->packed[i];
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
                                    .refined = is_refined(part[i])};
    }
    fast_forward(p->pool, product, count, &p->input, x, p->scratch);
}

static void multiply_one(vision_pass *p, size_t l, vision_part part, float *y, const float *x)
{
    multiply(p, l, &part, &y, 1, x);
}

void vision_fast_block(vision_pass *p, size_t l, vision_block *b, float *x)
{
    static const vision_part qkv[] = {VISION_Q, VISION_K, VISION_V};
    const vision_shape *s = &p->v->shape;
    const step plain = {.p = p, .norm = VISION_ABSENT, .width = s->width};
    float *const heads[] = {b->q, b->k, b->v};
    step now = plain;
    now.x = x;
    now.y = b->norm1;
    now.norm = vision_block_tensor(p->v, l, VISION_LN1);
    now.quantized = true;
    run_step(now, is_refined(VISION_Q) || is_refined(VISION_K) || is_refined(VISION_V));
    multiply(p, l, qkv, heads, 3, b->norm1);

    const tower_attention attention = {b->q, b->k, b->v, b->mixed, s->tokens, s->width, s->heads};
    tower_attend(p->pool, &attention, p->attention);
    fast_input_set(p->pool, &p->input, b->mixed, s->tokens, s->width, is_refined(VISION_OUT));
    multiply_one(p, l, VISION_OUT, b->q, b->mixed);

    now.added = b->q;
    now.norm = vision_block_tensor(p->v, l, VISION_LN2);
    run_step(now, is_refined(VISION_UP));
    multiply_one(p, l, VISION_UP, b->up, b->norm1);

    now = plain;
    now.width = s->ff;
    now.x = now.y = b->up;
    now.activated = now.quantized = true;
    run_step(now, is_refined(VISION_DOWN));
    multiply_one(p, l, VISION_DOWN, b->q, b->up);

    now = plain;
    now.x = x;
    now.added = b->q;
    run_step(now, false);
}

void vision_fast_linear(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows)
{
    tacit_linear linear = vision_linear(p, i, bias);
    const fast_product product = {.l = &linear, .w = packed_weight(p, i), .y = y};
    fast_input_set(p->pool, &p->input, x, rows, linear.n_in, false);
    fast_forward(p->pool, &product, 1, &p->input, x, p->scratch);
}
