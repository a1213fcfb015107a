#include "engine/linear.h"

#include "common/memory_limit.h"
#include "engine/dequant.h"
#include "engine/matrix.h"
#include "engine/matrix_block.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tile is what one thread dequantizes at a time: TILE_ROWS whole rows of W forward, TILE_ROWS by
 * TILE_COLS backward. TILE_COLS is a multiple of every block size. */
#define TILE_ROWS 64
#define TILE_COLS 256
#define PANEL_WORK ((size_t)1 << 18) /* multiplications that are worth a task */

tacit_status linear_init(tacit_linear *l, const gguf_tensor *weight, const float *bias, size_t n_in,
                         size_t n_out, tacit_error *err)
{
    if (weight->ne[0] != n_in || weight->ne[1] != n_out || weight->rows != n_out)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "tensor %s: expected shape [%zu, %zu], found [%" PRIu64 ", %" PRIu64
                          "]%s; the file does not fit its own keys",
                          weight->name, n_in, n_out, weight->ne[0], weight->ne[1],
                          weight->n_dims > 2 ? " and more" : "");
    if (!weight->traits)
        return tacit_type_refuse(NULL, weight->name, weight->type, err);
    *l = (tacit_linear){.weight = weight->data,
                        .type = weight->traits,
                        .row_bytes = weight->row_bytes,
                        .bias = bias,
                        .n_in = n_in,
                        .n_out = n_out};
    return TACIT_OK;
}

void linear_init_f32(tacit_linear *l, const float *weight, const float *bias, size_t n_in,
                     size_t n_out)
{
    *l = (tacit_linear){.weight = weight,
                        .type = tacit_type_find(TACIT_TYPE_F32),
                        .row_bytes = n_in * sizeof(float),
                        .bias = bias,
                        .n_in = n_in,
                        .n_out = n_out};
}

/* W as fp32 in memory, when it needs no dequantizing. A file may place fp32 at any address. */
static const float *plain_weight(const tacit_linear *l)
{
    if (l->expanded)
        return l->expanded;
    bool usable = l->type->type == TACIT_TYPE_F32 && (uintptr_t)l->weight % sizeof(float) == 0;
    return usable ? l->weight : NULL;
}

/* out[rows, cols] = W[row.., col..]; col is a multiple of the block size, so is cols or it ends at
 * n_in. */
static void read_tile(const tacit_linear *l, float *out, size_t row, size_t rows, size_t col,
                      size_t cols)
{
    const uint8_t *from = (const uint8_t *)l->weight + row * l->row_bytes +
                          col / l->type->block_values * l->type->block_bytes;
    for (size_t i = 0; i < rows; i++)
        dequant_row(l->type, out + i * cols, from + i * l->row_bytes, cols);
}

typedef struct expand_job {
    const tacit_linear *l;
    float *out;
} expand_job;

static void expand_rows(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const expand_job *job = ctx;
    size_t row = i * TILE_ROWS, n = job->l->n_out - row;
    read_tile(job->l, job->out + row * job->l->n_in, row, n < TILE_ROWS ? n : TILE_ROWS, 0,
              job->l->n_in);
}

static void expand(tacit_pool *pool, const tacit_linear *l, float *out)
{
    expand_job job = {l, out};
    const float *plain = plain_weight(l);
    if (plain)
        memcpy(out, plain, l->n_in * l->n_out * sizeof *out);
    else
        tacit_pool_run(pool, (l->n_out + TILE_ROWS - 1) / TILE_ROWS, expand_rows, &job);
}

static size_t panel_count(size_t columns)
{
    return (columns + LINEAR_PANEL - 1) / LINEAR_PANEL;
}

/* Panels of the matrix [k, columns] whose element (i, j) is w[i * row + j * col]. */
static float *make_panels(const float *w, size_t row, size_t col, size_t k, size_t columns)
{
    float *panels = calloc(panel_count(columns) * k * LINEAR_PANEL, sizeof *panels);
    for (size_t j = 0; panels && j < columns; j++) {
        float *panel = panels + j / LINEAR_PANEL * k * LINEAR_PANEL + j % LINEAR_PANEL;
        for (size_t i = 0; i < k; i++)
            panel[i * LINEAR_PANEL] = w[i * row + j * col];
    }
    return panels;
}

tacit_status linear_cache_judge(size_t values, tacit_error *err)
{
    return tacit_memory_judge((uint64_t)values * 3 * sizeof(float),
                              "the fp32 copies of a small model's weights", "use a smaller model",
                              err);
}

tacit_status linear_cache(tacit_linear *l)
{
    float *expanded = malloc(l->n_in * l->n_out * sizeof *expanded);
    float *panels = NULL, *transposed = NULL;
    if (expanded) {
        expand(NULL, l, expanded);
        panels = make_panels(expanded, l->n_in, 1, l->n_out, l->n_in);
        transposed = make_panels(expanded, 1, l->n_in, l->n_in, l->n_out);
    }
    if (!panels || !transposed) {
        free(expanded);
        free(panels);
        free(transposed);
        return TACIT_NO_MEMORY;
    }
    linear_drop_cache(l);
    l->expanded = expanded;
    l->panels = panels;
    l->transposed = transposed;
    return TACIT_OK;
}

void linear_drop_cache(tacit_linear *l)
{
    free(l->expanded);
    free(l->panels);
    free(l->transposed);
    l->expanded = NULL;
    l->panels = NULL;
    l->transposed = NULL;
}

size_t linear_expand_floats(const tacit_linear *l)
{
    size_t forward = panel_count(l->n_out) * l->n_in, backward = panel_count(l->n_in) * l->n_out;
    return LINEAR_PANEL * (forward > backward ? forward : backward);
}

/* Tile by tile, panel `i` of W^T: LINEAR_PANEL rows of W side by side. */
static void expand_transposed_panel(void *ctx, size_t i, size_t thread)
{
    const expand_job *job = ctx;
    const tacit_linear *l = job->l;
    float tile[LINEAR_PANEL * TILE_COLS], *panel = job->out + i * l->n_in * LINEAR_PANEL;
    size_t row = i * LINEAR_PANEL, left = l->n_out - row;
    size_t rows = left < LINEAR_PANEL ? left : LINEAR_PANEL;
    (void)thread;
    if (rows < LINEAR_PANEL)
        memset(panel, 0, l->n_in * LINEAR_PANEL * sizeof *panel);
    for (size_t col = 0; col < l->n_in; col += TILE_COLS) {
        size_t cols = l->n_in - col < TILE_COLS ? l->n_in - col : TILE_COLS;
        read_tile(l, tile, row, rows, col, cols);
        for (size_t c = 0; c < cols; c++, panel += LINEAR_PANEL)
            for (size_t r = 0; r < rows; r++)
                panel[r] = tile[r * cols + c];
    }
}

/* TILE_ROWS rows of every panel of W. */
static void expand_panel_rows(void *ctx, size_t i, size_t thread)
{
    const expand_job *job = ctx;
    const tacit_linear *l = job->l;
    float tile[TILE_COLS];
    size_t end = (i + 1) * TILE_ROWS < l->n_out ? (i + 1) * TILE_ROWS : l->n_out;
    (void)thread;
    for (size_t row = i * TILE_ROWS; row < end; row++)
        for (size_t col = 0; col < l->n_in; col += TILE_COLS) {
            size_t cols = l->n_in - col < TILE_COLS ? l->n_in - col : TILE_COLS;
            read_tile(l, tile, row, 1, col, cols);
            for (size_t c = 0; c < cols; c += LINEAR_PANEL) {
                size_t n = cols - c < LINEAR_PANEL ? cols - c : LINEAR_PANEL;
                float *to = job->out + ((col + c) / LINEAR_PANEL * l->n_out + row) * LINEAR_PANEL;
                memcpy(to, tile + c, n * sizeof *to);
                memset(to + n, 0, (LINEAR_PANEL - n) * sizeof *to);
            }
        }
}

void linear_expand(tacit_pool *pool, tacit_linear *out, const tacit_linear *l, bool backward,
                   float *buffer)
{
    expand_job job = {l, buffer};
    linear_init_f32(out, NULL, l->bias, l->n_in, l->n_out);
    *(backward ? &out->panels : &out->transposed) = buffer;
    if (backward)
        tacit_pool_run(pool, (l->n_out + TILE_ROWS - 1) / TILE_ROWS, expand_panel_rows, &job);
    else
        tacit_pool_run(pool, panel_count(l->n_out), expand_transposed_panel, &job);
}

void linear_row(const tacit_linear *l, size_t i, float *out)
{
    const float *plain = plain_weight(l);
    if (plain)
        memcpy(out, plain + i * l->n_in, l->n_in * sizeof *out);
    else
        read_tile(l, out, i, 1, 0, l->n_in);
}

static size_t tile_floats(const tacit_linear *l)
{
    return TILE_ROWS * (l->n_in > TILE_COLS ? l->n_in : TILE_COLS);
}

size_t linear_scratch(const tacit_linear *l, size_t rows, size_t rank, size_t threads)
{
    return threads * tile_floats(l) + 2 * rows * rank;
}

typedef struct tile_job {
    const tacit_linear *l;
    float *y;       /* y forward, dx backward */
    const float *x; /* x forward, dy backward */
    size_t rows;
    bool accumulate;
    float *tiles;
} tile_job;

static void forward_tile(void *ctx, size_t i, size_t thread)
{
    const tile_job *job = ctx;
    const tacit_linear *l = job->l;
    float *tile = job->tiles + thread * tile_floats(l);
    size_t row = i * TILE_ROWS;
    size_t n = l->n_out - row < TILE_ROWS ? l->n_out - row : TILE_ROWS;
    read_tile(l, tile, row, n, 0, l->n_in);
    matrix_block b = {.y = job->y + row,
                      .y_stride = l->n_out,
                      .x = job->x,
                      .x_stride = l->n_in,
                      .w = tile,
                      .w_stride = l->n_in,
                      .m = job->rows,
                      .n = n,
                      .k = l->n_in,
                      .transpose_w = true};
    matrix_block_run(&b);
}

/* One block of columns of dx, summed over all rows of W in order. */
static void backward_tile(void *ctx, size_t i, size_t thread)
{
    const tile_job *job = ctx;
    const tacit_linear *l = job->l;
    float *tile = job->tiles + thread * tile_floats(l);
    size_t col = i * TILE_COLS;
    size_t cols = l->n_in - col < TILE_COLS ? l->n_in - col : TILE_COLS;
    for (size_t row = 0; row < l->n_out; row += TILE_ROWS) {
        size_t n = l->n_out - row < TILE_ROWS ? l->n_out - row : TILE_ROWS;
        read_tile(l, tile, row, n, col, cols);
        matrix_block b = {.y = job->y + col,
                          .y_stride = l->n_in,
                          .x = job->x + row,
                          .x_stride = l->n_out,
                          .w = tile,
                          .w_stride = cols,
                          .m = job->rows,
                          .n = cols,
                          .k = n,
                          .accumulate = job->accumulate || row > 0};
        matrix_block_run(&b);
    }
}

typedef struct panel_job {
    float *y;
    const float *x, *panels;
    size_t rows, n, k, panels_of_task;
    bool accumulate;
} panel_job;

static void multiply_panels_task(void *ctx, size_t i, size_t thread)
{
    const panel_job *job = ctx;
    size_t end = (i + 1) * job->panels_of_task;
    (void)thread;
    for (size_t p = i * job->panels_of_task; p < end && p * LINEAR_PANEL < job->n; p++) {
        size_t left = job->n - p * LINEAR_PANEL;
        matrix_block b = {.y = job->y + p * LINEAR_PANEL,
                          .y_stride = job->n,
                          .x = job->x,
                          .x_stride = job->k,
                          .w = job->panels + p * job->k * LINEAR_PANEL,
                          .w_stride = LINEAR_PANEL,
                          .m = job->rows,
                          .n = left < LINEAR_PANEL ? left : LINEAR_PANEL,
                          .k = job->k,
                          .accumulate = job->accumulate};
        matrix_block_run(&b);
    }
}

/* y[rows, n] (+)= x[rows, k] times the matrix [k, n] that lies in panels. */
static void multiply_panels(tacit_pool *pool, float *y, const float *x, const float *panels,
                            size_t rows, size_t n, size_t k, bool accumulate)
{
    panel_job job = {.y = y, .x = x, .panels = panels, .rows = rows, .n = n, .k = k};
    size_t work = rows * k * LINEAR_PANEL;
    job.accumulate = accumulate;
    job.panels_of_task = work >= PANEL_WORK ? 1 : 1 + PANEL_WORK / (work + 1);
    size_t tasks = (panel_count(n) + job.panels_of_task - 1) / job.panels_of_task;
    tacit_pool_run(pool, tasks, multiply_panels_task, &job);
}

static void multiply_weight(tacit_pool *pool, const tacit_linear *l, float *y, const float *x,
                            size_t rows, float *scratch)
{
    const float *plain = plain_weight(l);
    if (l->transposed) {
        multiply_panels(pool, y, x, l->transposed, rows, l->n_out, l->n_in, false);
    } else if (plain) {
        matrix_mul_nt(pool, y, x, plain, rows, l->n_out, l->n_in, false);
    } else {
        tile_job job = {.l = l, .y = y, .x = x, .rows = rows, .tiles = scratch};
        tacit_pool_run(pool, (l->n_out + TILE_ROWS - 1) / TILE_ROWS, forward_tile, &job);
    }
}

static bool has_pair(const tacit_low_rank *pair)
{
    return pair && pair->rank > 0;
}

static void scale_all(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* low[rows, rank] = scale x A^T, or scale dy B: what both halves of a pair meet. */
static void meet_a(tacit_pool *pool, const tacit_low_rank *pair, float *low, const float *x,
                   size_t rows, size_t n_in)
{
    matrix_mul_nt(pool, low, x, pair->a, rows, pair->rank, n_in, false);
    scale_all(low, pair->scale, rows * pair->rank);
}

static void meet_b(tacit_pool *pool, const tacit_low_rank *pair, float *low, const float *dy,
                   size_t rows, size_t n_out)
{
    matrix_mul_nn(pool, low, dy, pair->b, rows, pair->rank, n_out, false);
    scale_all(low, pair->scale, rows * pair->rank);
}

void linear_add_pair(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair, float *y,
                     const float *x, size_t rows, float *scratch)
{
    if (!has_pair(pair))
        return;
    float *low = scratch; /* [rows, rank] */
    meet_a(pool, pair, low, x, rows, l->n_in);
    if (pair->core) {
        float *before = low;
        low += rows * pair->rank;
        matrix_mul_nt(pool, low, before, pair->core, rows, pair->rank, pair->rank, false);
    }
    matrix_mul_nt(pool, y, low, pair->b, rows, l->n_out, pair->rank, true);
}

void linear_add_pair_input(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                           float *dx, const float *dy, size_t rows, float *scratch)
{
    if (!has_pair(pair))
        return;
    float *low = scratch;
    meet_b(pool, pair, low, dy, rows, l->n_out);
    if (pair->core) {
        float *before = low;
        low += rows * pair->rank;
        matrix_mul_nn(pool, low, before, pair->core, rows, pair->rank, pair->rank, false);
    }
    matrix_mul_nn(pool, dx, low, pair->a, rows, l->n_in, pair->rank, true);
}

void linear_forward(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair, float *y,
                    const float *x, size_t rows, float *scratch)
{
    multiply_weight(pool, l, y, x, rows, scratch);
    for (size_t r = 0; l->bias && r < rows; r++)
        for (size_t i = 0; i < l->n_out; i++)
            y[r * l->n_out + i] += l->bias[i];
    linear_add_pair(pool, l, pair, y, x, rows, scratch);
}

void linear_backward_input(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                           float *dx, const float *dy, size_t rows, bool accumulate, float *scratch)
{
    const float *plain = plain_weight(l);
    if (l->panels) {
        multiply_panels(pool, dx, dy, l->panels, rows, l->n_in, l->n_out, accumulate);
    } else if (plain) {
        matrix_mul_nn(pool, dx, dy, plain, rows, l->n_in, l->n_out, accumulate);
    } else {
        tile_job job = {
            .l = l, .y = dx, .x = dy, .rows = rows, .accumulate = accumulate, .tiles = scratch};
        tacit_pool_run(pool, (l->n_in + TILE_COLS - 1) / TILE_COLS, backward_tile, &job);
    }
    linear_add_pair_input(pool, l, pair, dx, dy, rows, scratch);
}

void linear_backward_weight(tacit_pool *pool, const tacit_linear *l, float *dw, const float *dy,
                            const float *x, size_t rows)
{
    matrix_mul_tn(pool, dw, dy, x, l->n_out, l->n_in, rows, true);
}

void linear_backward_bias(const tacit_linear *l, float *dbias, const float *dy, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < l->n_out; i++)
            dbias[i] += dy[r * l->n_out + i];
}

void linear_backward_pair(tacit_pool *pool, const tacit_linear *l, const tacit_low_rank *pair,
                          const linear_pair_gradient *d, const float *dy, const float *x,
                          size_t rows, float *scratch)
{
    float *low = scratch, *back = scratch + rows * pair->rank;
    if (d->b || d->core)
        meet_a(pool, pair, low, x, rows, l->n_in);
    if (d->b)
        matrix_mul_tn(pool, d->b, dy, low, l->n_out, pair->rank, rows, true);
    if (d->core) {
        matrix_mul_nn(pool, back, dy, pair->b, rows, pair->rank, l->n_out, false);
        matrix_mul_tn(pool, d->core, back, low, pair->rank, pair->rank, rows, true);
    }
    if (!d->a)
        return;
    meet_b(pool, pair, low, dy, rows, l->n_out);
    matrix_mul_tn(pool, d->a, low, x, pair->rank, l->n_in, rows, true);
}
