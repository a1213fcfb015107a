/* Two by two tiles of results at a time: four products follow each other while each waits for its
 * predecessor, and every tile of a and b that is read serves two. */
#include "engine/tile_product.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))
#define ROW_BYTES 64
#define EDGE (2 * TILE_COLS)

/* What LDTILECFG reads. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "the processor's form");

static const tile_config whole_tiles = {
    .palette = 1,
    .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES,
                  ROW_BYTES},
    .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS,
             TILE_ROWS},
};

void tile_begin(void)
{
    _tile_loadconfig(&whole_tiles);
}

void tile_end(void)
{
    _tile_release();
}

/* Loads of tiles are no accesses in the compiler's eyes: what they read is written before. */
ALWAYS void settle_memory(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Results in tiles 0 to 3, two a row; 4 and 5 are of a, 6 and 7 of b. Numbers are literals. */
ALWAYS void load_results(const float *y, size_t stride, const int high, const int wide)
{
    _tile_loadd(0, y, stride * sizeof *y);
    if (wide > 1)
        _tile_loadd(1, y + TILE_COLS, stride * sizeof *y);
    if (high > 1)
        _tile_loadd(2, y + TILE_ROWS * stride, stride * sizeof *y);
    if (high > 1 && wide > 1)
        _tile_loadd(3, y + TILE_ROWS * stride + TILE_COLS, stride * sizeof *y);
}

ALWAYS void clear_results(const int high, const int wide)
{
    _tile_zero(0);
    if (wide > 1)
        _tile_zero(1);
    if (high > 1)
        _tile_zero(2);
    if (high > 1 && wide > 1)
        _tile_zero(3);
}

ALWAYS void store_results(float *y, size_t stride, const int high, const int wide)
{
    _tile_stored(0, y, stride * sizeof *y);
    if (wide > 1)
        _tile_stored(1, y + TILE_COLS, stride * sizeof *y);
    if (high > 1)
        _tile_stored(2, y + TILE_ROWS * stride, stride * sizeof *y);
    if (high > 1 && wide > 1)
        _tile_stored(3, y + TILE_ROWS * stride + TILE_COLS, stride * sizeof *y);
}

/* y of `high` by `wide` tiles. */
ALWAYS void multiply_block(float *y, size_t stride, const tile_operands *o, const uint16_t *a,
                           const uint16_t *b, bool accumulate, const int high, const int wide)
{
    settle_memory();
    if (accumulate)
        load_results(y, stride, high, wide);
    else
        clear_results(high, wide);
    for (size_t i = 0; i < o->steps; i++, a += TILE_VALUES, b += TILE_VALUES) {
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (wide > 1) {
            _tile_loadd(7, b + o->b_next, ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (high > 1) {
            _tile_loadd(5, a + o->a_next, ROW_BYTES);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (high > 1 && wide > 1)
            _tile_dpbf16ps(3, 5, 7);
    }
    store_results(y, stride, high, wide);
}

static void multiply_any(float *y, size_t stride, const tile_operands *o, const uint16_t *a,
                         const uint16_t *b, bool accumulate, size_t high, size_t wide)
{
    if (high > 1 && wide > 1)
        multiply_block(y, stride, o, a, b, accumulate, 2, 2);
    else if (high > 1)
        multiply_block(y, stride, o, a, b, accumulate, 2, 1);
    else if (wide > 1)
        multiply_block(y, stride, o, a, b, accumulate, 1, 2);
    else
        multiply_block(y, stride, o, a, b, accumulate, 1, 1);
}

static void copy(float *to, size_t to_stride, const float *from, size_t from_stride, size_t rows,
                 size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * to_stride, from + r * from_stride, cols * sizeof *to);
}

/* At most EDGE rows and columns that fill no tiles: beside y, whose neighbours are others'. */
static void multiply_edge(float *y, size_t stride, const tile_operands *o, const uint16_t *a,
                          const uint16_t *b, bool accumulate, size_t rows, size_t cols)
{
    float part[EDGE * EDGE] __attribute__((aligned(64)));
    if (accumulate) {
        memset(part, 0, sizeof part);
        copy(part, EDGE, y, stride, rows, cols);
    }
    multiply_any(part, EDGE, o, a, b, accumulate, rows > TILE_ROWS ? 2 : 1,
                 cols > TILE_COLS ? 2 : 1);
    copy(y, stride, part, EDGE, rows, cols);
}

/* Columns are the inner loop: the rows' tiles of a stay in the nearest cache. */
void tile_multiply(float *y, size_t y_stride, size_t rows, size_t cols, const tile_operands *o,
                   bool accumulate)
{
    const uint16_t *a = o->a;
    for (size_t r = 0; r < rows; r += EDGE, a += 2 * o->a_next) {
        size_t high = rows - r < EDGE ? rows - r : EDGE;
        const uint16_t *b = o->b;
        for (size_t c = 0; c < cols; c += EDGE, b += 2 * o->b_next) {
            size_t wide = cols - c < EDGE ? cols - c : EDGE;
            float *to = y + r * y_stride + c;
            if (high % TILE_ROWS == 0 && wide % TILE_COLS == 0)
                multiply_any(to, y_stride, o, a, b, accumulate, high / TILE_ROWS, wide / TILE_COLS);
            else
                multiply_edge(to, y_stride, o, a, b, accumulate, high, wide);
        }
    }
}
#endif
