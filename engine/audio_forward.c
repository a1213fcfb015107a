#include "engine/audio_fast.h"
#include "engine/gelu_erf.h"
#include "engine/matrix.h"
#include "engine/ops.h"
#include "engine/tower_attention.h"

#include "common/memory_limit.h"

#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES ((size_t)32 << 20)
#define MAX_CLIPS ((size_t)65536)
#define PIECE_ROWS ((size_t)32) /* rows of an element-wise task */
#define SMALLER "take a smaller encoder or fewer threads"

const float *audio_values(const audio_pass *p, size_t i)
{
    return p->weight[i] ? p->weight[i] : p->a->plain[i];
}

tacit_linear audio_linear(const audio_pass *p, size_t i, bool bias)
{
    tacit_linear l = p->a->linear[i];
    const float *b = bias ? audio_values(p, i + 1) : NULL;
    if (p->weight[i])
        linear_init_f32(&l, p->weight[i], b, p->a->tensor[i].cols, p->a->tensor[i].rows);
    l.bias = b;
    return l;
}

float *audio_layer_input(const audio_pass *p, const audio_slot *s, size_t l)
{
    return s->x + l * p->a->shape.positions * p->a->shape.width;
}

tower_block *audio_block_of(const audio_pass *p, const audio_slot *s, size_t l)
{
    return p->keep_all ? &s->block[l] : s->block;
}

static void plan_slot(audio_slot *slot, tower_planner *a, const audio_shape *s, bool train)
{
    size_t n = (size_t)s->positions * s->width, rows = audio_stacked(s, s->positions);
    size_t stacked = rows * s->stack * s->width;
    slot->conv1 = train ? tower_piece(a, 2 * n) : NULL;
    slot->conv2 = train ? tower_piece(a, n) : NULL;
    slot->x = tower_piece(a, train ? (s->layers + 1) * n : n);
    slot->stacked = tower_piece(a, stacked);
    slot->pre = tower_piece(a, stacked);
    slot->hidden = tower_piece(a, rows * 2 * s->middle);
    slot->gated = tower_piece(a, rows * s->middle);
    slot->mid = tower_piece(a, rows * s->middle);
}

static size_t scratch_floats(const audio_pass *p, size_t rank)
{
    size_t most = 0;
    for (size_t i = 0; i < p->a->count; i++) {
        if (!p->a->linear[i].type)
            continue;
        size_t n = linear_scratch(&p->a->linear[i], p->a->shape.positions, rank,
                                  tacit_pool_threads(p->pool));
        most = n > most ? n : most;
    }
    return most;
}

static size_t patch_floats(const audio_shape *s)
{
    return AUDIO_CONV_ROWS * 3 * (s->width > s->n_mel ? s->width : s->n_mel);
}

static void plan_backward(audio_pass *p, tower_planner *a)
{
    const audio_shape *s = &p->a->shape;
    size_t n = (size_t)s->positions * s->width, wide = (size_t)s->positions * s->ff;
    size_t rows = audio_stacked(s, s->positions);
    float **narrow[] = {&p->dx, &p->dnorm, &p->dmixed, &p->dq, &p->dk, &p->dv};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++)
        *narrow[i] = tower_piece(a, n);
    p->dact = tower_piece(a, wide);
    p->dup = tower_piece(a, wide);
    p->dpatch = tower_piece(a, patch_floats(s));
    p->dconv = tower_piece(a, 2 * n);
    p->dstacked = tower_piece(a, rows * s->stack * s->width);
    p->dpre = tower_piece(a, rows * s->stack * s->width);
    p->dhidden = tower_piece(a, rows * 2 * s->middle);
    p->dgated = tower_piece(a, rows * s->middle);
    p->dmid = tower_piece(a, rows * s->middle);
}

/* Lays everything out in `a`; the same calls count and hand out. Without slots and blocks it only
 * counts. */
static void plan(audio_pass *p, tower_planner *a)
{
    audio_slot counted_slot;
    tower_block counted;
    const audio_shape *s = &p->a->shape;
    p->patch = tower_piece(a, patch_floats(s));
    p->conv = tower_piece(a, (size_t)2 * s->positions * s->width);
    size_t threads = tacit_pool_threads(p->pool);
    if (p->fast.packed)
        p->fast.attention =
            tower_piece(a, tower_attention_scratch(s->positions, s->width, s->heads, threads));
    else
        p->scores = tower_piece(a, threads * (p->train ? 2 : 1) * AUDIO_QUERIES * s->positions);
    p->scratch = p->fast.scratch = tower_piece(a, scratch_floats(p, 0));
    size_t blocks = p->keep_all ? s->layers : 1;
    for (size_t i = 0; i < p->slots; i++) {
        plan_slot(p->slot ? &p->slot[i] : &counted_slot, a, s, p->train);
        if (p->slot)
            p->slot[i].block = p->block + (p->keep_all ? i * blocks : 0);
    }
    for (size_t i = 0; i < (p->keep_all ? p->slots : 1) * blocks; i++)
        tower_block_plan(p->block ? &p->block[i] : &counted, a, s->positions, s->width, s->ff,
                         p->train);
    if (p->train)
        plan_backward(p, a);
}

static size_t kept_bytes(const audio_shape *s)
{
    tower_planner a = {0};
    tower_block block;
    audio_slot slot;
    plan_slot(&slot, &a, s, true);
    for (size_t l = 0; l < s->layers; l++)
        tower_block_plan(&block, &a, s->positions, s->width, s->ff, true);
    return a.used * sizeof(float);
}

/* One slot a chunk when all of them fit, else one that each chunk fills anew. */
static void choose_slots(audio_pass *p)
{
    const audio_shape *s = &p->a->shape;
    size_t chunk = 2 * (size_t)s->positions;
    size_t chunks = p->max_clips * ((s->max_frames + chunk - 1) / chunk);
    p->keep_all = p->train && chunks <= KEEP_BYTES / kept_bytes(s);
    p->slots = p->keep_all ? chunks : 1;
}

static tacit_status no_memory(tacit_error *err)
{
    return tacit_fail(err, TACIT_NO_MEMORY, "no memory to encode sound");
}

/* The arena, when there is room for it. */
static tacit_status allocate_arena(audio_pass *p, tacit_error *err)
{
    tower_planner a = {0};
    plan(p, &a);
    size_t bytes = tacit_memory_product(a.used, sizeof(float));
    tacit_status status = tacit_memory_judge(bytes, "encoding sound", SMALLER, err);
    if (status != TACIT_OK)
        return status;
    p->arena = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p->arena)
        return tacit_memory_fail(bytes, "encoding sound", SMALLER, err);
    a = (tower_planner){.base = p->arena};
    plan(p, &a);
    return TACIT_OK;
}

static size_t block_count(const audio_pass *p)
{
    return p->keep_all ? p->slots * p->a->shape.layers : 1;
}

uint64_t audio_pass_bytes(const tacit_audio *a, size_t max_clips, bool train, tacit_pool *pool)
{
    audio_pass p = {.a = a, .pool = pool, .max_clips = max_clips, .train = train};
    tower_planner planner = {0};
    choose_slots(&p);
    plan(&p, &planner);
    return tacit_memory_product(planner.used, sizeof(float));
}

static tacit_status allocate(audio_pass *p, tacit_error *err)
{
    size_t blocks = block_count(p);
    p->clips = calloc(p->max_clips, sizeof *p->clips);
    p->weight = calloc(p->a->count, sizeof *p->weight);
    p->slot = calloc(p->slots, sizeof *p->slot);
    p->block = calloc(blocks, sizeof *p->block);
    if (!p->clips || !p->weight || !p->slot || !p->block)
        return no_memory(err);
    return allocate_arena(p, err);
}

tacit_status audio_pass_new(audio_pass **out, const tacit_audio *a, size_t max_clips, pass_use use,
                            tacit_pool *pool, tacit_error *err)
{
    *out = NULL;
    if (max_clips == 0 || max_clips > MAX_CLIPS)
        return tacit_fail(err, TACIT_USAGE, "%zu clips at a time: expected 1 to %zu", max_clips,
                          MAX_CLIPS);
    audio_pass *p = calloc(1, sizeof *p);
    if (!p)
        return no_memory(err);
    *p = (audio_pass){.a = a, .pool = pool, .max_clips = max_clips, .train = use == PASS_TRAIN};
    choose_slots(p);
    tacit_status status = use == PASS_FAST ? audio_fast_init(p, err) : TACIT_OK;
    if (status == TACIT_OK)
        status = allocate(p, err);
    if (status != TACIT_OK) {
        audio_pass_free(p);
        return status;
    }
    *out = p;
    return TACIT_OK;
}

void audio_pass_free(audio_pass *p)
{
    if (!p)
        return;
    tower_fast_fini(&p->fast);
    free(p->arena);
    tacit_wipe_free(p->wide_scratch);
    free(p->clips);
    free(p->weight);
    free(p->slot);
    free(p->block);
    free(p);
}

tacit_status audio_adapt(audio_pass *p, const encoder_adapter *adapter, tacit_error *err)
{
    size_t floats = scratch_floats(p, adapter ? adapter->max_rank : 0);
    tacit_status status =
        encoder_adapter_scratch(&p->wide_scratch, adapter, floats, "an adapter of sound", err);
    if (status != TACIT_OK)
        return status;
    if (p->wide_scratch)
        p->scratch = p->fast.scratch = p->wide_scratch;
    p->adapter = adapter;
    return TACIT_OK;
}

void audio_cut_patches(float *patch, const float *x, size_t n, size_t channels, size_t stride,
                       size_t first, size_t rows)
{
    for (size_t r = 0; r < rows; r++, patch += 3 * channels) {
        /* Row 0 of the taps is one before the first input. */
        size_t centre = (first + r) * stride;
        for (size_t tap = 0; tap < 3; tap++) {
            bool inside = centre + tap >= 1 && centre + tap - 1 < n;
            const float *from = inside ? x + (centre + tap - 1) * channels : NULL;
            for (size_t c = 0; c < channels; c++)
                patch[3 * c + tap] = from ? from[c] : 0;
        }
    }
}

/* y[rows, width] = the convolution of x[n, channels] with tensor `kernel`, and its bias. */
static void convolve(audio_pass *p, size_t kernel, float *y, size_t rows, const float *x, size_t n,
                     size_t stride)
{
    size_t width = p->a->shape.width, taps = p->a->tensor[kernel].cols;
    const float *bias = audio_values(p, kernel + 1);
    for (size_t at = 0; at < rows; at += AUDIO_CONV_ROWS) {
        size_t m = rows - at < AUDIO_CONV_ROWS ? rows - at : AUDIO_CONV_ROWS;
        audio_cut_patches(p->patch, x, n, taps / 3, stride, at, m);
        for (size_t r = at; r < at + m; r++)
            memcpy(y + r * width, bias, width * sizeof *y);
        matrix_mul_nt(p->pool, y + at * width, p->patch, audio_values(p, kernel), m, width, taps,
                      true);
    }
}

/* Work on rows that do not see each other, cut across the pool. */
typedef struct row_job {
    float *y;
    const float *x;
    size_t rows, n;
    const float *weight, *bias; /* of a layer norm; NULL: GELU */
    float epsilon;
} row_job;

static void run_piece(void *ctx, size_t i, size_t thread)
{
    const row_job *j = ctx;
    size_t at = i * PIECE_ROWS, rows = j->rows - at < PIECE_ROWS ? j->rows - at : PIECE_ROWS;
    (void)thread;
    if (j->weight)
        ops_layer_norm_forward(j->y + at * j->n, j->x + at * j->n, j->weight, j->bias, rows, j->n,
                               j->epsilon);
    else
        ops_gelu_erf_forward(j->y + at * j->n, j->x + at * j->n, rows * j->n);
}

static void run_rows(audio_pass *p, row_job job)
{
    tacit_pool_run(p->pool, (job.rows + PIECE_ROWS - 1) / PIECE_ROWS, run_piece, &job);
}

static void run_gelu(audio_pass *p, float *y, const float *x, size_t rows, size_t n)
{
    run_rows(p, (row_job){.y = y, .x = x, .rows = rows, .n = n});
}

static void run_norm(audio_pass *p, size_t tensor, float *y, const float *x, size_t rows)
{
    run_rows(p, (row_job){.y = y,
                          .x = x,
                          .rows = rows,
                          .n = p->a->shape.width,
                          .weight = audio_values(p, tensor),
                          .bias = audio_values(p, tensor + 1),
                          .epsilon = p->a->shape.epsilon});
}

static void run_linear(audio_pass *p, size_t tensor, bool bias, float *y, const float *x,
                       size_t rows)
{
    if (p->fast.packed) {
        audio_fast_linear(p, tensor, bias, y, x, rows);
        return;
    }
    tacit_linear linear = audio_linear(p, tensor, bias);
    linear_forward(p->pool, &linear, encoder_pair(p->adapter, tensor), y, x, rows, p->scratch);
}

static void run_part(audio_pass *p, size_t l, audio_part part, float *y, const float *x,
                     size_t rows)
{
    run_linear(p, audio_block_tensor(l, part), audio_has_bias(part), y, x, rows);
}

tower_heads audio_heads(const audio_pass *p, const tower_block *b, size_t positions)
{
    const audio_shape *s = &p->a->shape;
    return (tower_heads){.b = b,
                         .rows = positions,
                         .width = s->width,
                         .heads = s->heads,
                         .queries = AUDIO_QUERIES,
                         .scores = p->scores,
                         .scores_stride = (p->train ? 2 : 1) * AUDIO_QUERIES * s->positions};
}

void audio_block_forward(audio_pass *p, size_t l, size_t positions, tower_block *b, const float *x,
                         float *out)
{
    const audio_shape *s = &p->a->shape;
    tower_heads heads = audio_heads(p, b, positions);
    run_norm(p, audio_block_tensor(l, AUDIO_LN1), b->norm1, x, positions);
    run_part(p, l, AUDIO_Q, b->q, b->norm1, positions);
    run_part(p, l, AUDIO_K, b->k, b->norm1, positions);
    run_part(p, l, AUDIO_V, b->v, b->norm1, positions);
    tower_heads_forward(p->pool, &heads);
    run_part(p, l, AUDIO_OUT, b->middle, b->mixed, positions);
    ops_add(b->middle, x, positions * s->width);
    run_norm(p, audio_block_tensor(l, AUDIO_LN2), b->norm2, b->middle, positions);
    run_part(p, l, AUDIO_UP, b->up, b->norm2, positions);
    run_gelu(p, b->act, b->up, positions, s->ff);
    run_part(p, l, AUDIO_DOWN, out, b->act, positions);
    ops_add(out, b->middle, positions * s->width);
}

/* x[positions, width] = both convolutions and the positions. */
static void embed(audio_pass *p, const audio_chunk *c, float *x)
{
    size_t width = p->a->shape.width;
    float *conv1 = p->train ? c->slot->conv1 : p->conv, *conv2 = p->train ? c->slot->conv2 : x;
    convolve(p, AUDIO_CONV1, conv1, c->frames, c->mel, c->frames, 1);
    run_gelu(p, p->conv, conv1, c->frames, width);
    convolve(p, AUDIO_CONV2, conv2, c->positions, p->conv, c->frames, 2);
    run_gelu(p, x, conv2, c->positions, width);
    ops_add(x, audio_values(p, AUDIO_POSITIONS), c->positions * width);
}

/* From the last block's output to the rows. */
static void project(audio_pass *p, const audio_chunk *c, const float *x, float *rows)
{
    const audio_shape *s = &p->a->shape;
    const audio_slot *t = c->slot;
    size_t tail = p->a->tail, stacked = (size_t)s->stack * s->width, m = s->middle;
    size_t filled = c->positions * s->width;
    run_norm(p, tail + AUDIO_POST_LN, t->stacked, x, c->positions);
    memset(t->stacked + filled, 0, (c->rows * stacked - filled) * sizeof *t->stacked);
    ops_rms_norm_forward(t->pre, t->stacked, audio_values(p, tail + AUDIO_NORM_PRE), c->rows,
                         stacked, AUDIO_PROJECTOR_EPSILON);
    run_linear(p, tail + AUDIO_MLP1, false, t->hidden, t->pre, c->rows);
    for (size_t r = 0; r < c->rows; r++)
        ops_swiglu_forward(t->gated + r * m, t->hidden + (2 * r + 1) * m, t->hidden + 2 * r * m, m);
    ops_rms_norm_forward(t->mid, t->gated, audio_values(p, tail + AUDIO_NORM_MID), c->rows, m,
                         AUDIO_PROJECTOR_EPSILON);
    if (rows)
        run_linear(p, tail + AUDIO_MLP2, false, rows, t->mid, c->rows);
}

void audio_chunk_forward(audio_pass *p, const audio_chunk *c, float *rows)
{
    size_t layers = p->a->shape.layers;
    float *x = audio_layer_input(p, c->slot, 0);
    embed(p, c, x);
    for (size_t l = 0; l < layers; l++) {
        float *out = p->train ? audio_layer_input(p, c->slot, l + 1) : x;
        if (p->fast.packed)
            audio_fast_block(p, l, c->positions, c->slot->block, x);
        else
            audio_block_forward(p, l, c->positions, audio_block_of(p, c->slot, l), x, out);
        x = out;
    }
    project(p, c, x, rows);
}

void audio_forward(audio_pass *p, const float *const *weights, const audio_clip *clips, size_t n,
                   float *const *rows)
{
    audio_chunk c;
    size_t slot = 0;
    p->n = n;
    for (size_t i = 0; i < p->a->count; i++)
        p->weight[i] = weights ? weights[i] : NULL;
    for (size_t i = 0; i < n; i++) {
        float *to = rows[i];
        p->clips[i] = clips[i];
        for (size_t j = 0; audio_chunk_of(p->a, &clips[i], j, &c); j++) {
            c.slot = &p->slot[p->keep_all ? slot++ : 0];
            audio_chunk_forward(p, &c, to);
            to += c.rows * p->a->shape.out_width;
        }
    }
}
