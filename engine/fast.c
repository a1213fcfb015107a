#include "engine/fast.h"

#include "common/cpu_cache.h"
#include "engine/kernels.h"

#include <stdlib.h>
#include <string.h>

#define QUANTIZE_ROWS 8
#define TASK_BYTES 16384     /* of panels, for few rows: at least, what is worth a task */
#define STRETCH_BYTES 65536  /* and at most: read on end, memory gives more */
#define MANY_ROWS 8          /* from here on a task is */
#define TASK_COLS 32         /* columns */
#define TASKS_A_THREAD 4     /* at least, of tiles */
#define STRETCHES_A_THREAD 2 /* at least, for few rows */

/* What is read again and again, weights by every row or rows by every task, may fill so much of the
 * second cache. */
static size_t near_bytes(void)
{
    return tacit_cpu_cache_l2() / 2;
}

static size_t whole(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

size_t fast_input_values(size_t rows, size_t n_in)
{
    return whole(rows, FAST_TILE_ROWS) * whole(n_in, FAST_BLOCK);
}

static bool splits(void)
{
    const fast_tiles *tiles = kernels()->fast->tiles;
    return tiles && tiles->splits;
}

/* Quanta and remainders take as much as values of 16 bits; these have remainders where they are
 * split. */
static size_t value_bytes(size_t values)
{
    return whole((splits() ? 4 : 2) * values, 64);
}

static size_t metas(size_t values)
{
    return 2 * 2 * (values / FAST_BLOCK);
}

static size_t rooms_bytes(size_t threads)
{
    const fast_tiles *tiles = kernels()->fast->tiles;
    return tiles ? threads * tiles->room_bytes : 0;
}

bool fast_input_init(fast_input *in, size_t values, size_t threads)
{
    size_t rooms = rooms_bytes(threads);
    *in = (fast_input){.meta = malloc(metas(values) * sizeof *in->meta)};
    void *memory = aligned_alloc(64, value_bytes(values));
    in->q = memory;
    in->tiles = memory;
    in->room = rooms > 0 ? aligned_alloc(64, rooms) : NULL;
    return in->q && in->meta && (in->room || rooms == 0);
}

size_t fast_input_bytes(size_t values, size_t threads)
{
    return value_bytes(values) + metas(values) * sizeof(float) + rooms_bytes(threads);
}

void fast_input_fini(fast_input *in)
{
    free(in->q);
    free(in->meta);
    free(in->room);
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

/* Where every packed weight takes them and is the better for it, and the rows are many or a weight
 * knows nothing else. */
static bool wants_tiles(const fast_reader *to, size_t count, size_t rows)
{
    const fast_kernels *k = kernels()->fast;
    bool wanted = k->tiles && rows >= k->tiles->from_rows;
    for (size_t i = 0; i < count; i++) {
        const fast_weight *w = to[i].w;
        if (!w->panels)
            continue;
        if (!fast_takes_tiles(k, w->form) || (k->tiles->for_refined && !to[i].refined))
            return false;
        wanted |= !k->multiply[w->form];
    }
    return wanted;
}

/* Rows that only fill up the last tiles. */
static void clear_behind(fast_input *in)
{
    for (size_t r = in->rows; r < whole(in->rows, FAST_TILE_ROWS); r++)
        for (size_t b = 0; b < in->blocks; b++) {
            size_t at = fast_tiled_row(r, in->blocks) + b * FAST_TILE_VALUES;
            memset(in->tiles + at, 0, FAST_BLOCK * sizeof *in->tiles);
            if (in->low)
                memset(in->low + at, 0, FAST_BLOCK * sizeof *in->low);
            in->meta[r * in->blocks + b] = 0;
        }
}

void fast_input_begin(fast_input *in, const fast_reader *to, size_t count, size_t rows, size_t n_in)
{
    in->rows = rows;
    in->n_in = n_in;
    in->refined = false;
    for (size_t i = 0; i < count; i++)
        in->refined |= to[i].refined && to[i].w->panels;
    in->blocks = n_in % FAST_BLOCK == 0 ? n_in / FAST_BLOCK : 0;
    in->tiled = in->blocks > 0 && wants_tiles(to, count, rows);
    bool split = in->tiled && in->refined && splits();
    in->low = split ? in->tiles + fast_input_values(rows, n_in) : NULL;
    if (in->tiled)
        clear_behind(in);
}

static void quantize_row(fast_input *in, const float *x, size_t row)
{
    size_t at = row * (in->refined ? 2 : 1) * in->blocks;
    kernels()->fast->quantize(in->q + at * FAST_BLOCK, in->meta + 2 * at, x, in->blocks);
    if (in->refined)
        quantize_remainder(in, x, at);
}

static void put_tiled_row(fast_input *in, const float *x, size_t row)
{
    size_t at = fast_tiled_row(row, in->blocks);
    kernels()->fast->tiles->put_row(in->tiles + at, in->low ? in->low + at : NULL,
                                    in->meta + row * in->blocks, x, in->blocks);
}

void fast_input_rows(fast_input *in, const float *x, size_t first, size_t rows)
{
    for (size_t r = 0; in->blocks > 0 && r < rows; r++) {
        const float *row = x + r * in->n_in;
        if (in->tiled)
            put_tiled_row(in, row, first + r);
        else
            quantize_row(in, row, first + r);
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

void fast_input_fill(tacit_pool *pool, fast_input *in, const float *x)
{
    quantize_job job = {in, x};
    tacit_pool_run(pool, (in->rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS, quantize_task, &job);
}

typedef struct multiply_job {
    const fast_product *product[FAST_MAX_PRODUCTS];
    size_t task_cols[FAST_MAX_PRODUCTS]; /* multiples of the panels' width */
    size_t tasks[FAST_MAX_PRODUCTS];
    size_t count;
    const fast_input *in;
} multiply_job;

/* Columns [first, end) of one product, by one thread of the pool. */
static void multiply_cols(const fast_product *p, const fast_input *in, size_t first, size_t end,
                          size_t thread)
{
    const fast_kernels *k = kernels()->fast;
    const fast_rows a = {in->q, in->meta, in->blocks, in->refined ? 2 : 1,
                         in->refined && p->refined};
    const uint8_t *panel = p->w->panels + first / k->width * p->w->panel_bytes;
    float *y = p->y + first;
    if (in->tiled) {
        const fast_tiled tiled = {in->tiles, p->refined ? in->low : NULL, in->meta, in->blocks};
        k->tiles->multiply(y, p->l->n_out, end - first, panel, p->w->form, &tiled, in->rows,
                           in->room + thread * k->tiles->room_bytes);
    } else
        k->multiply[p->w->form](y, p->l->n_out, end - first, panel, &a, in->rows);
    for (size_t r = 0; p->l->bias && r < in->rows; r++)
        kernels()->axpy(y + r * p->l->n_out, 1, p->l->bias + first, end - first);
}

static void multiply_task(void *ctx, size_t i, size_t thread)
{
    const multiply_job *job = ctx;
    size_t which = 0;
    for (; i >= job->tasks[which]; which++)
        i -= job->tasks[which];
    const fast_product *p = job->product[which];
    size_t first = i * job->task_cols[which], end = first + job->task_cols[which];
    multiply_cols(p, job->in, first, end < p->l->n_out ? end : p->l->n_out, thread);
}

/* Columns of a task. Wide ones read the rows, where these fill no cache, less often. */
static size_t tiled_cols(const fast_product *p, const fast_input *in, size_t threads)
{
    bool is_near = in->rows * in->n_in * sizeof *in->tiles <= near_bytes();
    size_t cols = TASK_COLS;
    while (!is_near && 2 * cols <= kernels()->fast->tiles->max_cols &&
           p->l->n_out / (2 * cols) >= TASKS_A_THREAD * threads)
        cols *= 2;
    return cols;
}

/* Bytes of panels that a task reads for few rows. */
static size_t stretch_bytes(const fast_product *p, size_t threads)
{
    size_t panels = whole(p->l->n_out, kernels()->fast->width) / kernels()->fast->width;
    size_t bytes = panels * p->w->panel_bytes / (STRETCHES_A_THREAD * threads);
    return bytes < TASK_BYTES ? TASK_BYTES : bytes > STRETCH_BYTES ? STRETCH_BYTES : bytes;
}

static size_t cols_of_task(const fast_product *p, const fast_input *in, size_t threads)
{
    if (in->tiled)
        return tiled_cols(p, in, threads);
    bool many = in->rows >= MANY_ROWS;
    size_t width = kernels()->fast->width;
    size_t panels = (many ? near_bytes() : stretch_bytes(p, threads)) / p->w->panel_bytes;
    if (many && panels > TASK_COLS / width)
        panels = TASK_COLS / width;
    return width * (panels > 0 ? panels : 1);
}

static void add_product(multiply_job *job, const fast_product *p, size_t threads)
{
    size_t i = job->count++;
    job->product[i] = p;
    job->task_cols[i] = cols_of_task(p, job->in, threads);
    job->tasks[i] = (p->l->n_out + job->task_cols[i] - 1) / job->task_cols[i];
}

static bool is_packed(const fast_product *p, const fast_input *in)
{
    return p->w->panels && in->blocks > 0 && (in->tiled || kernels()->fast->multiply[p->w->form]);
}

void fast_forward(tacit_pool *pool, const fast_product *product, size_t count, const fast_input *in,
                  const float *x, float *scratch)
{
    multiply_job job = {.in = in};
    size_t tasks = 0;
    for (size_t i = 0; i < count; i++) {
        const fast_product *p = &product[i];
        if (!is_packed(p, in)) {
            linear_forward(pool, p->l, p->pair, p->y, x, in->rows, scratch);
            continue;
        }
        add_product(&job, p, tacit_pool_threads(pool));
        tasks += job.tasks[job.count - 1];
    }
    tacit_pool_run(pool, tasks, multiply_task, &job);
    for (size_t i = 0; i < job.count; i++)
        linear_add_pair(pool, job.product[i]->l, job.product[i]->pair, job.product[i]->y, x,
                        in->rows, scratch);
}
