#include "engine/matrix.h"
#include "engine/matrix_block.h"
#include "engine/ops.h"
#include "engine/vision_parts.h"

#include "common/bytes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES ((size_t)32 << 20)

const float *vision_values(const vision_pass *p, size_t i)
{
    return p->weight[i] ? p->weight[i] : p->v->plain[i];
}

tacit_linear vision_linear(const vision_pass *p, size_t i, bool bias)
{
    tacit_linear l = p->v->linear[i];
    const float *b = bias ? vision_values(p, i + 1) : NULL;
    if (p->weight[i])
        linear_init_f32(&l, p->weight[i], b, p->v->tensor[i].cols, p->v->tensor[i].rows);
    l.bias = b;
    return l;
}

static size_t plane(const vision_pass *p)
{
    return (size_t)p->v->shape.patches * p->v->shape.width;
}

float *vision_layer_input(const vision_pass *p, size_t image, size_t l)
{
    return p->x + (image * (p->v->shape.layers + 1) + l) * plane(p);
}

vision_block *vision_block_of(const vision_pass *p, size_t image, size_t l)
{
    return p->keep_all ? &p->block[image * p->v->shape.layers + l] : p->block;
}

/* Hands out pieces of the arena; with base NULL it only counts. Pieces start at cache lines. */
typedef struct planner {
    float *base;
    size_t used; /* floats */
} planner;

static float *piece(planner *a, size_t floats)
{
    float *at = a->base ? a->base + a->used : NULL;
    a->used += (floats + 15) / 16 * 16;
    return at;
}

/* Training keeps every activation apart; inference lets later ones overwrite earlier ones. */
static void plan_block(vision_block *b, planner *a, const vision_shape *s, bool train)
{
    size_t n = (size_t)s->patches * s->width, wide = (size_t)s->patches * s->ff;
    b->norm1 = piece(a, n);
    b->q = piece(a, n);
    b->k = piece(a, n);
    b->v = piece(a, n);
    b->up = piece(a, wide);
    b->mixed = train ? piece(a, n) : b->norm1;
    b->middle = train ? piece(a, n) : b->q;
    b->norm2 = train ? piece(a, n) : b->norm1;
    b->act = train ? piece(a, wide) : b->up;
}

static size_t scratch_floats(const vision_pass *p)
{
    size_t most = 0;
    for (size_t i = 0; i < p->v->count; i++) {
        if (!p->v->linear[i].type)
            continue;
        size_t n =
            linear_scratch(&p->v->linear[i], p->v->shape.patches, 0, tacit_pool_threads(p->pool));
        most = n > most ? n : most;
    }
    return most;
}

static void plan_backward(vision_pass *p, planner *a)
{
    size_t n = plane(p), wide = (size_t)p->v->shape.patches * p->v->shape.ff;
    float **narrow[] = {&p->dx, &p->dnorm, &p->dmixed, &p->dq, &p->dk, &p->dv};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++)
        *narrow[i] = piece(a, n);
    p->dact = piece(a, wide);
    p->dup = piece(a, wide);
}

/* Lays everything out in `a`; the same calls count and hand out. */
static void plan(vision_pass *p, planner *a)
{
    const vision_shape *s = &p->v->shape;
    size_t images = p->train ? p->max_images : 1;
    size_t blocks = p->keep_all ? images * s->layers : 1;
    size_t scores = (size_t)s->patches * s->patches;
    p->patch = piece(a, (size_t)s->patches * 3 * s->patch_size * s->patch_size);
    p->x = piece(a, p->train ? images * (s->layers + 1) * plane(p) : plane(p));
    p->shuffled = piece(a, images * plane(p));
    p->scores = piece(a, tacit_pool_threads(p->pool) * (p->train ? 2 : 1) * scores);
    p->scratch = piece(a, scratch_floats(p));
    for (size_t i = 0; i < blocks; i++)
        plan_block(&p->block[i], a, s, p->train);
    if (p->train)
        plan_backward(p, a);
}

static size_t kept_bytes(const tacit_vision *v, size_t images)
{
    planner a = {0};
    vision_block b;
    plan_block(&b, &a, &v->shape, true);
    return a.used * sizeof(float) * v->shape.layers * images;
}

tacit_status vision_pass_new(vision_pass **out, const tacit_vision *v, size_t max_images,
                             bool train, tacit_pool *pool, tacit_error *err)
{
    planner a = {0};
    size_t bytes;
    *out = NULL;
    vision_pass *p = calloc(1, sizeof *p);
    if (!p || max_images == 0 || max_images > 65536)
        goto fail;
    *p = (vision_pass){.v = v, .pool = pool, .max_images = max_images, .train = train};
    p->keep_all = train && kept_bytes(v, max_images) <= KEEP_BYTES;
    p->pixels = calloc(max_images, sizeof *p->pixels);
    p->weight = calloc(v->count, sizeof *p->weight);
    p->block = calloc(p->keep_all ? max_images * v->shape.layers : 1, sizeof *p->block);
    if (!p->pixels || !p->weight || !p->block)
        goto fail;
    plan(p, &a);
    if (!tacit_mul_size(a.used, sizeof(float), &bytes) ||
        !(p->arena = aligned_alloc(64, (bytes + 63) / 64 * 64)))
        goto fail;
    a = (planner){.base = p->arena};
    plan(p, &a);
    *out = p;
    return TACIT_OK;
fail:
    vision_pass_free(p);
    return tacit_fail(err, TACIT_NO_MEMORY, "no memory to encode %zu pictures at a time",
                      max_images);
}

void vision_pass_free(vision_pass *p)
{
    if (!p)
        return;
    free(p->arena);
    free(p->pixels);
    free(p->weight);
    free(p->block);
    free(p);
}

void vision_cut_patches(const vision_shape *s, float *patch, const float *planes)
{
    size_t size = s->patch_size, side = s->image_size;
    for (size_t gy = 0; gy < s->grid; gy++)
        for (size_t gx = 0; gx < s->grid; gx++)
            for (size_t row = 0; row < 3 * size; row++, patch += size) {
                size_t channel = row / size, y = gy * size + row % size;
                memcpy(patch, planes + (channel * side + y) * side + gx * size,
                       size * sizeof *patch);
            }
}

/* Calls for every patch: `at` is where its vector lies in the shuffled rows. */
static size_t shuffled_at(const vision_shape *s, size_t y, size_t x)
{
    size_t cell = y / s->scale * (s->grid / s->scale) + x / s->scale;
    size_t inside = y % s->scale * s->scale + x % s->scale;
    return (cell * s->scale * s->scale + inside) * s->width;
}

void vision_shuffle(const vision_shape *s, float *to, const float *x)
{
    for (size_t i = 0; i < s->patches; i++)
        memcpy(to + shuffled_at(s, i / s->grid, i % s->grid), x + i * s->width,
               s->width * sizeof *to);
}

void vision_unshuffle(const vision_shape *s, float *x, const float *from)
{
    for (size_t i = 0; i < s->patches; i++)
        memcpy(x + i * s->width, from + shuffled_at(s, i / s->grid, i % s->grid),
               s->width * sizeof *x);
}

void vision_attend(const vision_shape *s, const vision_block *b, size_t h, float *scores)
{
    size_t n = s->patches, head = s->width / s->heads;
    matrix_block product = {.y = scores,
                            .y_stride = n,
                            .x = b->q + h * head,
                            .x_stride = s->width,
                            .w = b->k + h * head,
                            .w_stride = s->width,
                            .m = n,
                            .n = n,
                            .k = head,
                            .transpose_w = true};
    matrix_block_run(&product);
    ops_scale(scores, 1.0f / sqrtf((float)head), n * n);
    ops_softmax_forward(scores, scores, n, n);
}

typedef struct head_job {
    vision_pass *p;
    vision_block *b;
} head_job;

/* mixed of head h = scores v. */
static void mix_head(void *ctx, size_t h, size_t thread)
{
    const head_job *job = ctx;
    const vision_shape *s = &job->p->v->shape;
    size_t n = s->patches, head = s->width / s->heads;
    float *scores = job->p->scores + thread * (job->p->train ? 2 : 1) * n * n;
    vision_attend(s, job->b, h, scores);
    matrix_block product = {.y = job->b->mixed + h * head,
                            .y_stride = s->width,
                            .x = scores,
                            .x_stride = n,
                            .w = job->b->v + h * head,
                            .w_stride = s->width,
                            .m = n,
                            .n = head,
                            .k = n};
    matrix_block_run(&product);
}

static void run_linear(vision_pass *p, size_t l, vision_part part, float *y, const float *x)
{
    tacit_linear linear = vision_linear(p, vision_block_tensor(p->v, l, part), true);
    linear_forward(p->pool, &linear, NULL, y, x, p->v->shape.patches, p->scratch);
}

static void run_norm(vision_pass *p, size_t tensor, float *y, const float *x)
{
    const vision_shape *s = &p->v->shape;
    ops_layer_norm_forward(y, x, vision_values(p, tensor), vision_values(p, tensor + 1), s->patches,
                           s->width, s->epsilon);
}

void vision_block_forward(vision_pass *p, size_t l, vision_block *b, const float *x, float *out)
{
    const vision_shape *s = &p->v->shape;
    head_job job = {p, b};
    run_norm(p, vision_block_tensor(p->v, l, VISION_LN1), b->norm1, x);
    run_linear(p, l, VISION_Q, b->q, b->norm1);
    run_linear(p, l, VISION_K, b->k, b->norm1);
    run_linear(p, l, VISION_V, b->v, b->norm1);
    tacit_pool_run(p->pool, s->heads, mix_head, &job);
    run_linear(p, l, VISION_OUT, b->middle, b->mixed);
    ops_add(b->middle, x, plane(p));
    run_norm(p, vision_block_tensor(p->v, l, VISION_LN2), b->norm2, b->middle);
    run_linear(p, l, VISION_UP, b->up, b->norm2);
    ops_gelu_forward(b->act, b->up, (size_t)s->patches * s->ff);
    run_linear(p, l, VISION_DOWN, out, b->act);
    ops_add(out, b->middle, plane(p));
}

/* x[patches, width] = kernel of each patch + bias + position. */
static void embed(vision_pass *p, float *x, const float *planes)
{
    const vision_shape *s = &p->v->shape;
    const float *bias =
        p->v->patch_bias == VISION_ABSENT ? NULL : vision_values(p, p->v->patch_bias);
    vision_cut_patches(s, p->patch, planes);
    memcpy(x, vision_values(p, p->v->positions), plane(p) * sizeof *x);
    for (size_t i = 0; bias && i < s->patches; i++)
        ops_add(x + i * s->width, bias, s->width);
    matrix_mul_nt(p->pool, x, p->patch, vision_values(p, p->v->patch_weight), s->patches, s->width,
                  p->v->tensor[p->v->patch_weight].cols, true);
}

static void forward_one(vision_pass *p, size_t image, float *rows)
{
    const vision_shape *s = &p->v->shape;
    float *x = p->train ? vision_layer_input(p, image, 0) : p->x;
    float *shuffled = p->shuffled + (p->train ? image : 0) * plane(p);
    tacit_linear projector = vision_linear(p, p->v->projector, false);
    embed(p, x, p->pixels[image]);
    for (size_t l = 0; l < s->layers; l++) {
        float *out = p->train ? vision_layer_input(p, image, l + 1) : x;
        vision_block_forward(p, l, vision_block_of(p, image, l), x, out);
        x = out;
    }
    /* The last block's activations are used up or, in training, have no such buffer to spare. */
    float *normed = p->train ? p->dnorm : p->block->norm1;
    run_norm(p, p->v->post_ln, normed, x);
    vision_shuffle(s, shuffled, normed);
    linear_forward(p->pool, &projector, NULL, rows, shuffled, s->rows, p->scratch);
}

void vision_forward(vision_pass *p, const float *const *weights, const float *const *pixels,
                    size_t n, float *rows)
{
    p->n = n;
    for (size_t i = 0; i < p->v->count; i++)
        p->weight[i] = weights ? weights[i] : NULL;
    for (size_t i = 0; i < n; i++)
        p->pixels[i] = pixels[i];
    for (size_t i = 0; i < n; i++)
        forward_one(p, i, rows + i * p->v->shape.rows * p->v->shape.out_width);
}
