#include "engine/fast.h"

#include "engine/kernels.h"
#include "engine/matrix.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DOT_ROWS 3   /* of activations, up to which single dot products are quicker than panels */
#define DOT_COLS 128 /* outputs of one task of dot products */
#define QUANTIZE_ROWS 8
#define PART_ROWS 24

static bool init_values(fast_values *v, size_t blocks)
{
    v->q = malloc(blocks * FAST_BLOCK);
    v->meta = malloc(2 * blocks * sizeof *v->meta);
    v->total = malloc(blocks * sizeof *v->total);
    return v->q && v->meta && v->total;
}

static void fini_values(fast_values *v)
{
    free(v->q);
    free(v->meta);
    free(v->total);
}

bool fast_input_init(fast_input *in, size_t max_rows, size_t max_n_in)
{
    size_t blocks = max_rows * ((max_n_in + FAST_BLOCK - 1) / FAST_BLOCK);
    *in = (fast_input){.max_rows = max_rows, .max_n_in = max_n_in};
    return init_values(&in->value, blocks) && init_values(&in->remainder, blocks);
}

size_t fast_input_bytes(size_t max_rows, size_t max_n_in)
{
    size_t blocks = max_rows * ((max_n_in + FAST_BLOCK - 1) / FAST_BLOCK);
    return 2 * blocks * (FAST_BLOCK + 2 * sizeof(float) + sizeof(int32_t));
}

void fast_input_fini(fast_input *in)
{
    fini_values(&in->value);
    fini_values(&in->remainder);
    memset(in, 0, sizeof *in);
}

typedef struct quantize_job {
    fast_input *in;
    const float *x;
} quantize_job;

/* What rounding left of the blocks from `at` on, block by block. */
static void quantize_remainder(fast_input *in, const float *x, size_t at, size_t blocks)
{
    for (size_t b = at; b < at + blocks; b++) {
        float rest[FAST_BLOCK];
        for (size_t i = 0; i < FAST_BLOCK; i++)
            rest[i] = x[b * FAST_BLOCK + i] -
                      in->value.meta[2 * b] * (float)in->value.q[b * FAST_BLOCK + i];
        kernels()->fast->quantize(in->remainder.q + b * FAST_BLOCK, in->remainder.meta + 2 * b,
                                  in->remainder.total + b, rest, 1);
    }
}

static void quantize_rows(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const quantize_job *job = ctx;
    fast_input *in = job->in;
    size_t row = i * QUANTIZE_ROWS, left = in->rows - row;
    size_t at = row * in->blocks;
    size_t blocks = (left < QUANTIZE_ROWS ? left : QUANTIZE_ROWS) * in->blocks;
    kernels()->fast->quantize(in->value.q + at * FAST_BLOCK, in->value.meta + 2 * at,
                              in->value.total + at, job->x + at * FAST_BLOCK, blocks);
    if (in->refined)
        quantize_remainder(in, job->x, at, blocks);
}

void fast_input_set(tacit_pool *pool, fast_input *in, const float *x, size_t rows, size_t n_in,
                    bool refined)
{
    in->rows = rows;
    in->n_in = n_in;
    in->refined = refined;
    in->blocks = n_in % FAST_BLOCK == 0 ? n_in / FAST_BLOCK : 0;
    quantize_job job = {in, x};
    if (in->blocks > 0)
        tacit_pool_run(pool, (rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS, quantize_rows, &job);
}

static const struct {
    tacit_type type;
    fast_type fast;
} types[] = {
    {TACIT_TYPE_Q8_0, FAST_Q8_0},
    {TACIT_TYPE_Q4_0, FAST_Q4_0},
    {TACIT_TYPE_Q4_1, FAST_Q4_1},
};

static fast_type type_of(const tacit_linear *l)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == l->type->type)
            return types[i].fast;
    return FAST_TYPES;
}

typedef struct fast_job {
    const tacit_linear *l;
    const fast_input *in;
    bool refined;
    float *y;
    size_t rows;
    fast_type type;
    float *scratch;
    size_t thread_floats;
} fast_job;

static float dot_row(const fast_job *job, const fast_values *v, size_t row, size_t col)
{
    size_t at = row * job->in->blocks;
    return kernels()->fast->dot[job->type](
        (const uint8_t *)job->l->weight + col * job->l->row_bytes, v->q + at * FAST_BLOCK,
        v->meta + 2 * at, job->in->blocks);
}

static void dot_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const fast_job *job = ctx;
    size_t n_out = job->l->n_out;
    size_t end = (i + 1) * DOT_COLS < n_out ? (i + 1) * DOT_COLS : n_out;
    for (size_t c = i * DOT_COLS; c < end; c++)
        for (size_t r = 0; r < job->rows; r++) {
            float y = dot_row(job, &job->in->value, r, c);
            if (job->refined)
                y += dot_row(job, &job->in->remainder, r, c);
            job->y[r * n_out + c] = y;
        }
}

/* Floats that a panel of this width takes: one byte a weight, two fp32 a block, and alignment. */
static size_t panel_floats(size_t blocks)
{
    return FAST_PANEL * blocks * (FAST_BLOCK / sizeof(float) + 2) + 16;
}

static fast_panel place_panel(float *memory, size_t blocks)
{
    uintptr_t skew = (uintptr_t)memory % 64;
    float *at = memory + (skew ? (64 - skew) / sizeof *at : 0);
    fast_panel p = {.d = at, .m = at + FAST_PANEL * blocks};
    p.w = (uint8_t *)(at + blocks * 2 * FAST_PANEL);
    return p;
}

/* part[rows, 32] = the panel times rows of activations from `row` on. */
static void multiply_part(const fast_job *job, const fast_panel *p, const fast_values *v,
                          float *part, size_t row, size_t rows)
{
    size_t at = row * job->in->blocks;
    const fast_rows a = {v->q + at * FAST_BLOCK, v->meta + 2 * at, v->total + at, job->in->blocks};
    kernels()->fast->multiply(part, FAST_PANEL, p, &a, rows);
}

/* Products that do not go straight to y: outputs that fill no panel, and remainders to add. */
static void multiply_parts(const fast_job *job, const fast_panel *p, const fast_values *v, float *y,
                           size_t cols, bool add)
{
    float part[PART_ROWS * FAST_PANEL];
    for (size_t row = 0; row < job->rows; row += PART_ROWS) {
        size_t rows = job->rows - row < PART_ROWS ? job->rows - row : PART_ROWS;
        multiply_part(job, p, v, part, row, rows);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++) {
                float *to = y + (row + r) * job->l->n_out + c;
                *to = (add ? *to : 0) + part[r * FAST_PANEL + c];
            }
    }
}

static void panel_task(void *ctx, size_t i, size_t thread)
{
    const fast_job *job = ctx;
    const tacit_linear *l = job->l;
    const fast_values *v = &job->in->value;
    size_t first = i * FAST_PANEL, left = l->n_out - first, blocks = job->in->blocks;
    fast_panel p = place_panel(job->scratch + thread * job->thread_floats, blocks);
    const uint8_t *row[FAST_PANEL];
    /* Past the end the last row is repeated; those results are dropped. */
    for (size_t r = 0; r < FAST_PANEL; r++)
        row[r] = (const uint8_t *)l->weight + (first + (r < left ? r : left - 1)) * l->row_bytes;
    kernels()->fast->pack[job->type](&p, row, blocks);
    const fast_rows a = {v->q, v->meta, v->total, blocks};
    if (left >= FAST_PANEL)
        kernels()->fast->multiply(job->y + first, l->n_out, &p, &a, job->rows);
    else
        multiply_parts(job, &p, v, job->y + first, left, false);
    if (job->refined)
        multiply_parts(job, &p, &job->in->remainder, job->y + first,
                       left < FAST_PANEL ? left : FAST_PANEL, true);
}

static void add_bias(const tacit_linear *l, float *y, size_t rows)
{
    for (size_t r = 0; l->bias && r < rows; r++)
        kernels()->axpy(y + r * l->n_out, 1, l->bias, l->n_out);
}

void fast_linear_forward(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                         float *y, const fast_input *in, bool refined, const float *x, size_t rows,
                         float *scratch)
{
    fast_job job = {.l = l, .in = in, .y = y, .rows = rows, .type = type_of(l)};
    job.refined = refined && in->refined;
    size_t threads = tacit_pool_threads(pool);
    job.scratch = scratch;
    job.thread_floats = linear_scratch(l, 0, 0, threads) / threads;
    bool dots = rows <= DOT_ROWS;
    if (job.type == FAST_TYPES || in->blocks == 0 ||
        (!dots && job.thread_floats < panel_floats(in->blocks))) {
        linear_forward(pool, l, pair, y, x, rows, scratch);
        return;
    }
    if (dots)
        tacit_pool_run(pool, (l->n_out + DOT_COLS - 1) / DOT_COLS, dot_task, &job);
    else
        tacit_pool_run(pool, (l->n_out + FAST_PANEL - 1) / FAST_PANEL, panel_task, &job);
    add_bias(l, y, rows);
    linear_add_pair(pool, l, pair, y, x, rows, scratch);
}
