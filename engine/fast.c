#include "engine/fast.h"

#include "engine/kernels.h"

#include <stdlib.h>
#include <string.h>

#define QUANTIZE_ROWS 8
#define TASK_BYTES 16384 /* of panels, for few rows: what is worth a task and fits the cache */
#define MANY_ROWS 8      /* from here on a task is */
#define TASK_COLS 32     /* columns */

bool fast_input_init(fast_input *in, size_t max_rows, size_t max_n_in)
{
    size_t blocks = 2 * max_rows * ((max_n_in + FAST_BLOCK - 1) / FAST_BLOCK);
    *in = (fast_input){.max_rows = max_rows, .max_n_in = max_n_in};
    in->q = malloc(blocks * FAST_BLOCK);
    in->meta = malloc(2 * blocks * sizeof *in->meta);
    return in->q && in->meta;
}

size_t fast_input_bytes(size_t max_rows, size_t max_n_in)
{
    size_t blocks = max_rows * ((max_n_in + FAST_BLOCK - 1) / FAST_BLOCK);
    return 2 * blocks * (FAST_BLOCK + 2 * sizeof(float));
}

void fast_input_fini(fast_input *in)
{
    free(in->q);
    free(in->meta);
    memset(in, 0, sizeof *in);
}

/* What rounding left of one row, whose quanta begin at block `at`; its own follow. */
static void quantize_remainder(fast_input *in, const float *x, size_t at)
{
    for (size_t b = at; b < at + in->blocks; b++, x += FAST_BLOCK) {
        float rest[FAST_BLOCK];
        for (size_t i = 0; i < FAST_BLOCK; i++)
            rest[i] = x[i] - in->meta[2 * b] * (float)in->q[b * FAST_BLOCK + i];
        size_t to = b + in->blocks;
        kernels()->fast->quantize(in->q + to * FAST_BLOCK, in->meta + 2 * to, rest, 1);
    }
}

void fast_input_begin(fast_input *in, size_t rows, size_t n_in, bool refined)
{
    in->rows = rows;
    in->n_in = n_in;
    in->refined = refined;
    in->blocks = n_in % FAST_BLOCK == 0 ? n_in / FAST_BLOCK : 0;
}

void fast_input_rows(fast_input *in, const float *x, size_t first, size_t rows)
{
    size_t step = in->refined ? 2 : 1;
    for (size_t r = 0; in->blocks > 0 && r < rows; r++) {
        size_t at = (first + r) * step * in->blocks;
        kernels()->fast->quantize(in->q + at * FAST_BLOCK, in->meta + 2 * at, x + r * in->n_in,
                                  in->blocks);
        if (in->refined)
            quantize_remainder(in, x + r * in->n_in, at);
    }
}

typedef struct quantize_job {
    fast_input *in;
    const float *x;
} quantize_job;

static void quantize_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const quantize_job *job = ctx;
    size_t row = i * QUANTIZE_ROWS, left = job->in->rows - row;
    fast_input_rows(job->in, job->x + row * job->in->n_in, row,
                    left < QUANTIZE_ROWS ? left : QUANTIZE_ROWS);
}

void fast_input_set(tacit_pool *pool, fast_input *in, const float *x, size_t rows, size_t n_in,
                    bool refined)
{
    fast_input_begin(in, rows, n_in, refined);
    quantize_job job = {in, x};
    tacit_pool_run(pool, (rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS, quantize_task, &job);
}

typedef struct multiply_job {
    const fast_product *product[FAST_MAX_PRODUCTS];
    size_t task_cols[FAST_MAX_PRODUCTS]; /* multiples of the panels' width */
    size_t tasks[FAST_MAX_PRODUCTS];
    size_t count;
    const fast_input *in;
} multiply_job;

/* Columns [first, end) of one product. */
static void multiply_cols(const fast_product *p, const fast_input *in, size_t first, size_t end)
{
    const fast_kernels *k = kernels()->fast;
    const fast_rows a = {in->q, in->meta, in->blocks, in->refined ? 2 : 1,
                         in->refined && p->refined};
    const uint8_t *panel = p->w->panels + first / k->width * p->w->panel_bytes;
    float *y = p->y + first;
    k->multiply[p->w->form](y, p->l->n_out, end - first, panel, &a, in->rows);
    for (size_t r = 0; p->l->bias && r < in->rows; r++)
        kernels()->axpy(y + r * p->l->n_out, 1, p->l->bias + first, end - first);
}

static void multiply_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const multiply_job *job = ctx;
    size_t which = 0;
    for (; i >= job->tasks[which]; which++)
        i -= job->tasks[which];
    const fast_product *p = job->product[which];
    size_t first = i * job->task_cols[which], end = first + job->task_cols[which];
    multiply_cols(p, job->in, first, end < p->l->n_out ? end : p->l->n_out);
}

static void add_product(multiply_job *job, const fast_product *p, size_t rows)
{
    size_t width = kernels()->fast->width, i = job->count++;
    size_t panels = rows < MANY_ROWS ? TASK_BYTES / p->w->panel_bytes : TASK_COLS / width;
    job->product[i] = p;
    job->task_cols[i] = width * (panels > 0 ? panels : 1);
    job->tasks[i] = (p->l->n_out + job->task_cols[i] - 1) / job->task_cols[i];
}

void fast_forward(tacit_pool *pool, const fast_product *product, size_t count, const fast_input *in,
                  const float *x, float *scratch)
{
    multiply_job job = {.in = in};
    size_t tasks = 0;
    for (size_t i = 0; i < count; i++) {
        const fast_product *p = &product[i];
        if (!p->w->panels || in->blocks == 0) {
            linear_forward(pool, p->l, p->pair, p->y, x, in->rows, scratch);
            continue;
        }
        add_product(&job, p, in->rows);
        tasks += job.tasks[job.count - 1];
    }
    tacit_pool_run(pool, tasks, multiply_task, &job);
    for (size_t i = 0; i < job.count; i++)
        linear_add_pair(pool, job.product[i]->l, job.product[i]->pair, job.product[i]->y, x,
                        in->rows, scratch);
}
