#include "engine/fast.h"

#include "engine/kernels.h"
#include "engine/matrix.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DOT_ROWS 3   /* of activations, up to which single dot products are quicker than panels */
#define DOT_COLS 128 /* outputs of one task of dot products */
#define QUANTIZE_ROWS 8

bool fast_input_init(fast_input *in, size_t max_rows, size_t max_n_in)
{
    size_t blocks = (max_n_in + FAST_BLOCK - 1) / FAST_BLOCK;
    *in = (fast_input){.max_rows = max_rows, .max_n_in = max_n_in};
    in->q = malloc(max_rows * blocks * FAST_BLOCK);
    in->meta = malloc(2 * max_rows * blocks * sizeof *in->meta);
    in->total = malloc(max_rows * blocks * sizeof *in->total);
    return in->q && in->meta && in->total;
}

void fast_input_fini(fast_input *in)
{
    free(in->q);
    free(in->meta);
    free(in->total);
    memset(in, 0, sizeof *in);
}

typedef struct quantize_job {
    fast_input *in;
    const float *x;
} quantize_job;

static void quantize_rows(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const quantize_job *job = ctx;
    fast_input *in = job->in;
    size_t end = (i + 1) * QUANTIZE_ROWS < in->rows ? (i + 1) * QUANTIZE_ROWS : in->rows;
    for (size_t r = i * QUANTIZE_ROWS; r < end; r++)
        kernels()->fast->quantize(in->q + r * in->n_in, in->meta + 2 * r * in->blocks,
                                  in->total + r * in->blocks, job->x + r * in->n_in, in->blocks);
}

void fast_input_set(tacit_pool *pool, fast_input *in, const float *x, size_t rows, size_t n_in)
{
    in->rows = rows;
    in->n_in = n_in;
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
    float *y;
    size_t rows;
    fast_type type;
    float *scratch;
    size_t thread_floats;
} fast_job;

static void dot_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const fast_job *job = ctx;
    const tacit_linear *l = job->l;
    const fast_input *in = job->in;
    size_t end = (i + 1) * DOT_COLS < l->n_out ? (i + 1) * DOT_COLS : l->n_out;
    for (size_t c = i * DOT_COLS; c < end; c++)
        for (size_t r = 0; r < job->rows; r++)
            job->y[r * l->n_out + c] = kernels()->fast->dot[job->type](
                (const uint8_t *)l->weight + c * l->row_bytes, in->q + r * in->n_in,
                in->meta + 2 * r * in->blocks, in->blocks);
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
    p.w = (uint8_t *)(at + 2 * FAST_PANEL * blocks);
    return p;
}

static void panel_task(void *ctx, size_t i, size_t thread)
{
    const fast_job *job = ctx;
    const tacit_linear *l = job->l;
    const fast_input *in = job->in;
    size_t first = i * FAST_PANEL, left = l->n_out - first;
    fast_panel p = place_panel(job->scratch + thread * job->thread_floats, in->blocks);
    const uint8_t *row[FAST_PANEL];
    /* Past the end the last row is repeated; those results are dropped. */
    for (size_t r = 0; r < FAST_PANEL; r++)
        row[r] = (const uint8_t *)l->weight + (first + (r < left ? r : left - 1)) * l->row_bytes;
    kernels()->fast->pack[job->type](&p, row, in->blocks);
    fast_rows a = {in->q, in->meta, in->total, in->blocks};
    if (left >= FAST_PANEL) {
        kernels()->fast->multiply(job->y + first, l->n_out, &p, &a, job->rows);
        return;
    }
    for (size_t r = 0; r < job->rows; r++) {
        float part[FAST_PANEL];
        fast_rows one = {in->q + r * in->n_in, in->meta + 2 * r * in->blocks,
                         in->total + r * in->blocks, in->blocks};
        kernels()->fast->multiply(part, FAST_PANEL, &p, &one, 1);
        memcpy(job->y + r * l->n_out + first, part, left * sizeof *part);
    }
}

static void add_bias(const tacit_linear *l, float *y, size_t rows)
{
    for (size_t r = 0; l->bias && r < rows; r++)
        kernels()->axpy(y + r * l->n_out, 1, l->bias, l->n_out);
}

void fast_linear_forward(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                         float *y, const fast_input *in, const float *x, size_t rows,
                         float *scratch)
{
    fast_job job = {.l = l, .in = in, .y = y, .rows = rows, .type = type_of(l)};
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
