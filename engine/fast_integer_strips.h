/* The rest of fast_integer_tiles.h: included behind the variant's
 *   widen_block(quanta, scale, block): one block of a panel, to WIDTH of a strip's columns
 *   multiply_strip(y, y_stride, strip, accumulate, rows): y += or =, `rows` a constant
 *   strips[ROWS]: multiply_strip for each number of rows */
#ifndef TACIT_ENGINE_FAST_INTEGER_STRIPS_H
#define TACIT_ENGINE_FAST_INTEGER_STRIPS_H

/* Blocks [first, first + steps) of the panels of `cols` columns. Where panels end within a strip,
 * whatever stands beside them is computed and not stored. */
static void widen(wide_panels *to, const uint8_t *panel, size_t cols, size_t first, size_t steps,
                  size_t blocks)
{
    size_t panel_bytes = fast_panel_bytes(FAST_8, WIDTH, blocks);
    for (size_t c = 0; c < cols; c += WIDTH, panel += panel_bytes) {
        size_t at = c / STRIP_COLS * steps, right = c % STRIP_COLS;
        for (size_t b = 0; b < steps; b++)
            widen_block(to->quanta + (at + b) * BLOCK_QUANTA + 2 * right,
                        to->scale + (at + b) * STRIP_COLS + right,
                        panel + (first + b) * block_stride(GROUP, FAST_8));
    }
}

/* As a strip function, of `cols` < STRIP_COLS columns. */
static void multiply_edge(float *y, size_t y_stride, size_t cols, const strip *s, bool accumulate,
                          size_t rows)
{
    float all[ROWS * STRIP_COLS] = {0};
    for (size_t r = 0; accumulate && r < rows; r++)
        memcpy(all + r * STRIP_COLS, y + r * y_stride, cols * sizeof *y);
    strips[rows - 1](all, STRIP_COLS, s, accumulate);
    for (size_t r = 0; r < rows; r++)
        memcpy(y + r * y_stride, all + r * STRIP_COLS, cols * sizeof *y);
}

/* Up to 16 rows of a tile, in strips of nearly equal height. */
static void multiply_tile(float *y, size_t y_stride, size_t cols, strip s, bool accumulate,
                          size_t rows)
{
    size_t count = (rows + ROWS - 1) / ROWS;
    for (size_t i = 0, done = 0; i < count; i++) {
        size_t n = (rows - done + count - i - 1) / (count - i);
        if (cols >= STRIP_COLS)
            strips[n - 1](y, y_stride, &s, accumulate);
        else
            multiply_edge(y, y_stride, cols, &s, accumulate, n);
        done += n;
        y += n * y_stride;
        s.a += n * FAST_BLOCK;
        s.a_scale += n * s.blocks;
    }
}

static void multiply(float *y, size_t y_stride, size_t cols, const uint8_t *panel, fast_form form,
                     const fast_tiled *a, size_t rows, void *room)
{
    (void)form; /* no other is taken */
    wide_panels *wide = room;
    size_t blocks = a->blocks, parts = (blocks + MAX_STEPS - 1) / MAX_STEPS;
    size_t step = (blocks + parts - 1) / parts;
    for (size_t at = 0; at < blocks; at += step) {
        size_t steps = blocks - at < step ? blocks - at : step;
        widen(wide, panel, cols, at, steps, blocks);
        for (size_t r = 0; r < rows; r += FAST_TILE_ROWS)
            for (size_t c = 0; c < cols; c += STRIP_COLS) {
                size_t from = c / STRIP_COLS * steps, left = rows - r;
                strip s = {.steps = steps, .blocks = blocks};
                s.a = (const int16_t *)a->tile +
                      (r / FAST_TILE_ROWS * blocks + at) * FAST_TILE_VALUES;
                s.a_scale = a->scale + r * blocks + at;
                s.w = wide->quanta + from * BLOCK_QUANTA;
                s.w_scale = wide->scale + from * STRIP_COLS;
                multiply_tile(y + r * y_stride + c, y_stride, cols - c, s, at > 0,
                              left < FAST_TILE_ROWS ? left : FAST_TILE_ROWS);
            }
    }
}

static void put_row(uint16_t *tile, uint16_t *low, float *scale, const float *x, size_t blocks)
{
    (void)low; /* not wanted: `splits` is false */
    for (size_t b = 0; b < blocks; b++, x += FAST_BLOCK, tile += FAST_TILE_VALUES) {
        __m256i r[4];
        scale[b] = round_block(r, x, MOST_QUANTUM);
        for (int i = 0; i < 2; i++) {
            /* Packing works within 128-bit halves. */
            __m256i both = _mm256_packs_epi32(r[2 * i], r[2 * i + 1]);
            __m256i *to = (__m256i *)(void *)(tile + 16 * i);
            _mm256_storeu_si256(to, _mm256_permute4x64_epi64(both, 0xd8));
        }
    }
}

#define INTEGER_TILES                                                                              \
    .takes = {[FAST_8] = true}, .max_cols = MAX_COLS,                                              \
    .room_bytes = (sizeof(wide_panels) + 63) / 64 * 64, .put_row = put_row, .multiply = multiply

#endif
