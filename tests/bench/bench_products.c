/* Where products on tiles (fast_tiles) overtake the integer kernels of the same table, on this
 * processor: bench_products [SECONDS A CASE]. One thread, the shapes of SmolLM2-135M and 360M and
 * of SigLIP-B/16, 32 columns a task as fast.c has it, rounding of the rows counted on both sides;
 * the weight stays in the caches as far as it fits. One line of JSON a case (billions of
 * multiply-adds a second); a table without tiles shows its integer kernels alone. Where tiles stand
 * in the place of remainders they, and where tiles are split these, are to be compared with half of
 * that rate. What it finds is
 * what `from_rows` of the table should be, and whether a machine's tiles are worth it. */
#include "engine/fast_pack.h"
#include "engine/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST_ROWS 512
#define TASK_COLS 32

static const struct {
    size_t n_out, n_in;
} shapes[] = {
    {576, 576},  {1536, 576}, {576, 1536}, {960, 960},  {2560, 960},
    {960, 2560}, {768, 768},  {3072, 768}, {768, 3072},
};
static const tacit_type types[] = {TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0, TACIT_TYPE_Q4_1,
                                   TACIT_TYPE_Q5_0, TACIT_TYPE_BF16, TACIT_TYPE_F32};
static const size_t rows_tried[] = {1, 8, 16, 24, 32, 48, 64, 128, 512};
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

typedef struct bench {
    const fast_kernels *k;
    tacit_linear l;
    fast_weight w;
    float *x, *y;
    int8_t *q;
    float *meta;
    uint16_t *tile, *low;
    void *room;
} bench;

static void by_integers(const bench *b, size_t rows)
{
    size_t blocks = b->w.blocks;
    const fast_rows a = {b->q, b->meta, blocks, 1, false};
    b->k->quantize(b->q, b->meta, b->x, rows * blocks);
    for (size_t c = 0; c < b->l.n_out; c += TASK_COLS)
        b->k->multiply[b->w.form](b->y + c, b->l.n_out, TASK_COLS,
                                  b->w.panels + c / b->k->width * b->w.panel_bytes, &a, rows);
}

static void multiply_tiles(const bench *b, size_t rows, uint16_t *low)
{
    size_t blocks = b->w.blocks;
    const fast_tiled a = {b->tile, low, b->meta, blocks};
    for (size_t r = 0; r < rows; r++) {
        size_t at = fast_tiled_row(r, blocks);
        b->k->tiles->put_row(b->tile + at, low ? low + at : NULL, b->meta + r * blocks,
                             b->x + r * b->l.n_in, blocks);
    }
    for (size_t c = 0; c < b->l.n_out; c += TASK_COLS)
        b->k->tiles->multiply(b->y + c, b->l.n_out, TASK_COLS,
                              b->w.panels + c / b->k->width * b->w.panel_bytes, b->w.form, &a, rows,
                              b->room);
}

static void by_tiles(const bench *b, size_t rows)
{
    multiply_tiles(b, rows, NULL);
}

static void by_split_tiles(const bench *b, size_t rows)
{
    multiply_tiles(b, rows, b->low);
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Multiply-adds a second; the first call warms up. */
static double rate(void (*product)(const bench *b, size_t rows), const bench *b, size_t rows,
                   double seconds)
{
    product(b, rows);
    double start = processor_seconds(), taken;
    size_t times = 0;
    do {
        product(b, rows);
        times++;
        taken = processor_seconds() - start;
    } while (taken < seconds);
    return (double)(rows * b->l.n_in * b->l.n_out) * (double)times / taken;
}

static void report(const bench *b, double seconds)
{
    for (size_t i = 0; i < COUNT(rows_tried); i++) {
        size_t rows = rows_tried[i];
        double integers =
            b->k->multiply[b->w.form] ? rate(by_integers, b, rows, seconds) * 1e-9 : 0;
        bool tiled = fast_takes_tiles(b->k, b->w.form);
        double tiles = tiled ? rate(by_tiles, b, rows, seconds) * 1e-9 : 0;
        double split =
            tiled && b->k->tiles->splits ? rate(by_split_tiles, b, rows, seconds) * 1e-9 : 0;
        printf("{\"kernels\":\"%s\",\"type\":\"%s\",\"n_out\":%zu,\"n_in\":%zu,\"rows\":%zu,"
               "\"integers\":%.1f,\"tiles\":%.1f,\"split\":%.1f}\n",
               kernels()->name, b->l.type->name, b->l.n_out, b->l.n_in, rows, integers, tiles,
               split);
        fflush(stdout);
    }
}

/* False without memory; a type without panels here is passed over. */
static bool run(const tacit_type_traits *type, size_t n_out, size_t n_in, double seconds)
{
    bench b = {.k = kernels()->fast, .l = {.type = type, .n_in = n_in, .n_out = n_out}};
    size_t values = MOST_ROWS * n_in, row_bytes = n_in / type->block_values * type->block_bytes;
    uint8_t *weight = malloc(n_out * row_bytes);
    b.x = malloc((values > n_out * n_in ? values : n_out * n_in) * sizeof *b.x);
    b.y = malloc(MOST_ROWS * n_out * sizeof *b.y);
    b.q = malloc(values);
    b.meta = malloc(values / FAST_BLOCK * 2 * sizeof *b.meta);
    b.tile = aligned_alloc(64, values * sizeof *b.tile);
    b.low = aligned_alloc(64, values * sizeof *b.low);
    b.room = aligned_alloc(64, b.k->tiles ? b.k->tiles->room_bytes : 64);
    b.l.weight = weight;
    b.l.row_bytes = row_bytes;
    size_t bytes = fast_weight_plan(&b.w, b.k, &b.l);
    uint8_t *panels = aligned_alloc(64, bytes + 64);
    bool there = weight && b.x && b.y && b.q && b.meta && b.tile && b.low && b.room && panels;
    for (size_t i = 0; there && i < n_out * n_in; i++)
        b.x[i] = (float)(i * 7919 % 2003) / 1001.0f - 1.0f;
    for (size_t r = 0; there && r < n_out; r++)
        type->from_f32(weight + r * row_bytes, b.x + r * n_in, n_in);
    b.w.panels = panels;
    if (there && bytes > 0 && fast_weight_pack(NULL, &b.w, b.k, &b.l, panels, 0, n_out))
        report(&b, seconds);
    void *const parts[] = {weight, b.x, b.y, b.q, b.meta, b.tile, b.low, b.room, panels};
    for (size_t i = 0; i < COUNT(parts); i++)
        free(parts[i]);
    return there;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.05;
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t t = 0; t < COUNT(types); t++)
            if (!run(tacit_type_find(types[t]), shapes[s].n_out, shapes[s].n_in, seconds)) {
                fprintf(stderr, "bench_products: no memory\n");
                return 1;
            }
    return 0;
}
