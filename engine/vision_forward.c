#include "engine/matrix.h"
#include "engine/ops.h"
#include "engine/tower_attention.h"
#include "engine/vision_fast.h"
#include "engine/vision_projector.h"

#include "common/memory_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES ((size_t)32 << 20)
#define MAX_IMAGES ((size_t)65536)
#define FEWER "give fewer pictures, or a smaller tower"

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
    return (size_t)p->v->shape.tokens * p->v->shape.width;
}

static size_t feature_plane(const vision_pass *p)
{
    return (size_t)p->v->shape.patches * p->v->shape.features * p->v->shape.width;
}

float *vision_layer_input(const vision_pass *p, size_t image, size_t l)
{
    return p->x + (image * (p->v->shape.layers + 1) + l) * plane(p);
}

tower_block *vision_block_of(const vision_pass *p, size_t image, size_t l)
{
    return p->keep_all ? &p->block[image * p->v->shape.layers + l] : p->block;
}

static size_t scratch_floats(const vision_pass *p, size_t rank)
{
    size_t most = 0;
    for (size_t i = 0; i < p->v->count; i++) {
        if (!p->v->linear[i].type)
            continue;
        size_t n =
            linear_scratch(&p->v->linear[i], p->v->shape.tokens, rank, tacit_pool_threads(p->pool));
        most = n > most ? n : most;
    }
    return most;
}

static void plan_backward(vision_pass *p, tower_planner *a)
{
    size_t n = plane(p), wide = (size_t)p->v->shape.tokens * p->v->shape.ff;
    float **narrow[] = {&p->dx, &p->dnorm, &p->dmixed, &p->dq, &p->dk, &p->dv};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++)
        *narrow[i] = tower_piece(a, n);
    p->dact = tower_piece(a, wide);
    p->dup = tower_piece(a, wide);
    p->dfeatures = tower_piece(a, feature_plane(p));
}

/* Lays everything out in `a`; the same calls count and hand out. Without blocks it only counts. */
static void plan(vision_pass *p, tower_planner *a)
{
    tower_block counted;
    const vision_shape *s = &p->v->shape;
    size_t images = p->train ? p->max_images : 1;
    size_t blocks = p->keep_all ? images * s->layers : 1;
    size_t scores = (size_t)VISION_QUERIES * s->tokens;
    p->patch = tower_piece(a, (size_t)s->patches * 3 * s->patch_size * s->patch_size);
    p->x = tower_piece(a, p->train ? images * (s->layers + 1) * plane(p) : plane(p));
    if (p->train && p->v->pre_ln != VISION_ABSENT)
        p->embedded = tower_piece(a, images * plane(p));
    p->features = tower_piece(a, images * feature_plane(p));
    p->work = tower_piece(a, p->v->projector->work(p->v, p->train));
    if (p->fast.packed)
        p->fast.attention = tower_piece(
            a, tower_attention_scratch(s->tokens, s->width, s->heads, tacit_pool_threads(p->pool)));
    else
        p->scores = tower_piece(a, tacit_pool_threads(p->pool) * (p->train ? 2 : 1) * scores);
    p->scratch = p->fast.scratch = tower_piece(a, scratch_floats(p, 0));
    for (size_t i = 0; i < blocks; i++)
        tower_block_plan(p->block ? &p->block[i] : &counted, a, s->tokens, s->width, s->ff,
                         p->train);
    if (p->train)
        plan_backward(p, a);
}

static size_t kept_bytes(const tacit_vision *v, size_t images)
{
    tower_planner a = {0};
    tower_block b;
    const vision_shape *s = &v->shape;
    tower_block_plan(&b, &a, s->tokens, s->width, s->ff, true);
    return a.used * sizeof(float) * v->shape.layers * images;
}

static size_t block_count(const vision_pass *p)
{
    return p->keep_all ? p->max_images * p->v->shape.layers : 1;
}

uint64_t vision_pass_bytes(const tacit_vision *v, size_t max_images, bool train, tacit_pool *pool)
{
    vision_pass p = {.v = v, .pool = pool, .max_images = max_images, .train = train};
    tower_planner a = {0};
    p.keep_all = train && kept_bytes(v, max_images) <= KEEP_BYTES;
    plan(&p, &a);
    return tacit_memory_product(a.used, sizeof(float));
}

/* Judges what the plan takes before it is taken. */
static tacit_status make_arena(vision_pass *p, tacit_error *err)
{
    tower_planner a = {0};
    char what[96];
    plan(p, &a);
    size_t bytes = tacit_memory_product(a.used, sizeof(float));
    snprintf(what, sizeof what, "%s %zu pictures of %u x %u pixels at a time",
             p->train ? "training on" : "encoding", p->max_images, p->v->shape.image_size,
             p->v->shape.image_size);
    tacit_status status = tacit_memory_require(bytes, what, FEWER, err);
    if (status != TACIT_OK)
        return status;
    p->arena = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p->arena)
        return tacit_memory_fail(bytes, what, FEWER, err);
    a = (tower_planner){.base = p->arena};
    plan(p, &a);
    return TACIT_OK;
}

tacit_status vision_pass_new(vision_pass **out, const tacit_vision *v, size_t max_images,
                             pass_use use, tacit_pool *pool, tacit_error *err)
{
    tacit_status status = TACIT_NO_MEMORY;
    bool train = use == PASS_TRAIN;
    *out = NULL;
    if (max_images == 0 || max_images > MAX_IMAGES)
        return tacit_fail(err, TACIT_USAGE, "%zu pictures at a time: expected 1 to %zu", max_images,
                          MAX_IMAGES);
    vision_pass *p = calloc(1, sizeof *p);
    if (!p)
        goto fail;
    *p = (vision_pass){.v = v, .pool = pool, .max_images = max_images, .train = train};
    p->keep_all = train && kept_bytes(v, max_images) <= KEEP_BYTES;
    p->pixels = calloc(max_images, sizeof *p->pixels);
    p->weight = calloc(v->count, sizeof *p->weight);
    p->block = calloc(block_count(p), sizeof *p->block);
    if (!p->pixels || !p->weight || !p->block)
        goto fail;
    status = use == PASS_FAST ? vision_fast_init(p, err) : TACIT_OK;
    if (status == TACIT_OK)
        status = make_arena(p, err);
    if (status == TACIT_OK)
        *out = p;
    else
        vision_pass_free(p);
    return status;
fail:
    vision_pass_free(p);
    return tacit_fail(err, status, "no memory to encode %zu pictures at a time", max_images);
}

void vision_pass_free(vision_pass *p)
{
    if (!p)
        return;
    tower_fast_fini(&p->fast);
    free(p->arena);
    tacit_wipe_free(p->wide_scratch);
    free(p->pixels);
    free(p->weight);
    free(p->block);
    free(p);
}

tacit_status vision_adapt(vision_pass *p, const encoder_adapter *adapter, tacit_error *err)
{
    size_t floats = scratch_floats(p, adapter ? adapter->max_rank : 0);
    tacit_status status =
        encoder_adapter_scratch(&p->wide_scratch, adapter, floats, "an adapter of pictures", err);
    if (status != TACIT_OK)
        return status;
    if (p->wide_scratch)
        p->scratch = p->fast.scratch = p->wide_scratch;
    p->adapter = adapter;
    return TACIT_OK;
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

tower_heads vision_heads(const vision_pass *p, const tower_block *b)
{
    const vision_shape *s = &p->v->shape;
    return (tower_heads){.b = b,
                         .rows = s->tokens,
                         .width = s->width,
                         .heads = s->heads,
                         .queries = VISION_QUERIES,
                         .scores = p->scores,
                         .scores_stride = (p->train ? 2 : 1) * VISION_QUERIES * (size_t)s->tokens};
}

void vision_multiply(vision_pass *p, size_t i, bool bias, float *y, const float *x, size_t rows)
{
    if (p->fast.packed) {
        vision_fast_linear(p, i, bias, y, x, rows);
        return;
    }
    tacit_linear linear = vision_linear(p, i, bias);
    linear_forward(p->pool, &linear, encoder_pair(p->adapter, i), y, x, rows, p->scratch);
}

static void run_linear(vision_pass *p, size_t l, vision_part part, float *y, const float *x)
{
    vision_multiply(p, vision_block_tensor(p->v, l, part), true, y, x, p->v->shape.tokens);
}

/* Element-wise work of rows, a piece a job: y = activation or norm of x. */
typedef struct row_job {
    const vision_pass *p;
    size_t norm; /* VISION_ABSENT: the activation */
    const vision_activation *activation;
    float *y;
    const float *x;
    size_t rows, width;
} row_job;

#define ROWS_A_JOB 16

static void run_rows(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const row_job *job = ctx;
    size_t from = i * ROWS_A_JOB;
    size_t rows = job->rows - from < ROWS_A_JOB ? job->rows - from : ROWS_A_JOB;
    float *y = job->y + from * job->width;
    const float *x = job->x + from * job->width;
    if (job->norm == VISION_ABSENT)
        job->activation->forward(y, x, rows * job->width);
    else
        ops_layer_norm_forward(y, x, vision_values(job->p, job->norm),
                               vision_values(job->p, job->norm + 1), rows, job->width,
                               job->p->v->shape.epsilon);
}

static void run_row_job(row_job *job)
{
    tacit_pool_run(job->p->pool, (job->rows + ROWS_A_JOB - 1) / ROWS_A_JOB, run_rows, job);
}

void vision_norm(vision_pass *p, size_t weight, float *y, const float *x, size_t rows)
{
    row_job job = {p, weight, NULL, y, x, rows, p->v->shape.width};
    run_row_job(&job);
}

void vision_activate(vision_pass *p, const vision_activation *activation, float *y, const float *x,
                     size_t rows, size_t width)
{
    row_job job = {p, VISION_ABSENT, activation, y, x, rows, width};
    run_row_job(&job);
}

void vision_block_forward(vision_pass *p, size_t l, tower_block *b, const float *x, float *out)
{
    const vision_shape *s = &p->v->shape;
    const tower_heads heads = vision_heads(p, b);
    vision_norm(p, vision_block_tensor(p->v, l, VISION_LN1), b->norm1, x, s->tokens);
    run_linear(p, l, VISION_Q, b->q, b->norm1);
    run_linear(p, l, VISION_K, b->k, b->norm1);
    run_linear(p, l, VISION_V, b->v, b->norm1);
    tower_heads_forward(p->pool, &heads);
    run_linear(p, l, VISION_OUT, b->middle, b->mixed);
    ops_add(b->middle, x, plane(p));
    vision_norm(p, vision_block_tensor(p->v, l, VISION_LN2), b->norm2, b->middle, s->tokens);
    run_linear(p, l, VISION_UP, b->up, b->norm2);
    vision_activate(p, p->v->activation, b->act, b->up, s->tokens, s->ff);
    run_linear(p, l, VISION_DOWN, out, b->act);
    ops_add(out, b->middle, plane(p));
}

void vision_embed(vision_pass *p, float *x, const float *planes)
{
    const tacit_vision *v = p->v;
    const vision_shape *s = &v->shape;
    float *patches = x + (size_t)(s->tokens - s->patches) * s->width;
    vision_cut_patches(s, p->patch, planes);
    memcpy(x, vision_values(p, v->positions), plane(p) * sizeof *x);
    if (v->class_embedding != VISION_ABSENT)
        ops_add(x, vision_values(p, v->class_embedding), s->width);
    for (size_t i = 0; v->patch_bias != VISION_ABSENT && i < s->patches; i++)
        ops_add(patches + i * s->width, vision_values(p, v->patch_bias), s->width);
    matrix_mul_nt(p->pool, patches, p->patch, vision_values(p, v->patch_weight), s->patches,
                  s->width, v->tensor[v->patch_weight].cols, true);
}

bool vision_feature_slot(const vision_shape *s, size_t state, size_t *slot)
{
    for (*slot = 0; *slot < s->features; ++*slot)
        if (s->feature[*slot] == state)
            return true;
    return false;
}

/* Copies the patches' rows of a state to their place among the features, where it is one. */
static void keep_feature(vision_pass *p, float *features, const float *x, size_t state)
{
    const vision_shape *s = &p->v->shape;
    const float *patches = x + (size_t)(s->tokens - s->patches) * s->width;
    size_t slot;
    if (!vision_feature_slot(s, state, &slot))
        return;
    if (p->v->post_ln != VISION_ABSENT) {
        vision_norm(p, p->v->post_ln, features, patches, s->patches);
        return;
    }
    for (size_t i = 0; i < s->patches; i++)
        memcpy(features + (i * s->features + slot) * s->width, patches + i * s->width,
               s->width * sizeof *features);
}

/* The first state, in x. */
static void start(vision_pass *p, size_t image, float *x)
{
    size_t pre_ln = p->v->pre_ln;
    float *embedded = p->embedded ? p->embedded + image * plane(p) : p->block->norm1;
    vision_embed(p, pre_ln == VISION_ABSENT ? x : embedded, p->pixels[image]);
    if (pre_ln != VISION_ABSENT)
        vision_norm(p, pre_ln, x, embedded, p->v->shape.tokens);
}

static void forward_one(vision_pass *p, size_t image, float *rows)
{
    const vision_shape *s = &p->v->shape;
    float *x = p->train ? vision_layer_input(p, image, 0) : p->x;
    float *features = p->features + (p->train ? image : 0) * feature_plane(p);
    size_t last = s->feature[s->features - 1]; /* no block behind it counts */
    start(p, image, x);
    keep_feature(p, features, x, 0);
    for (size_t l = 0; l < last; l++) {
        float *out = p->train ? vision_layer_input(p, image, l + 1) : x;
        if (p->fast.packed)
            vision_fast_block(p, l, p->block, x);
        else
            vision_block_forward(p, l, vision_block_of(p, image, l), x, out);
        x = out;
        keep_feature(p, features, x, l + 1);
    }
    p->v->projector->forward(p, rows, features, p->work);
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
