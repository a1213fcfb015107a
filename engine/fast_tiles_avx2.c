/* Panels of 8-bit weights times many rows on AVX2, in integers of 16 bits.
 *
 * Products of bytes are summed in pairs to 16 bits there, which few fit into: fast_avx2.c takes a
 * weight as two halves of 4 bits, about as slow as fp32. A product of 16 bits needs no halves and
 * its sum no care, |sum| of a block being at most 32 * 32767 * 128 < 2^27, and it takes activations
 * with 16 bits: nothing is left over that would have to be refined. So a part of some panels is
 * made 16 bits wide once, in pairs of columns, and then meets all rows. */
#include "engine/fast_kernels.h"

#if defined(__x86_64__)
#include "engine/fast_x86.h"

#define WIDTH 8      /* of a panel */
#define GROUP 32     /* bytes of four columns in a panel */
#define ROWS 6       /* of a register tile, by two panels */
#define PAIR_COLS 16 /* columns of the result: two panels side by side */
#define MAX_COLS 64
#define MAX_STEPS 16 /* blocks of a part: two panels take 16 KiB, half of the nearest cache */
#define MOST_QUANTUM 32767.0f

/* Two panels' part of one block. */
#define BLOCK_QUANTA (FAST_BLOCK * PAIR_COLS)

/* A part of the panels: for each two of them [steps][16 pairs of columns][PAIR_COLS][2] quanta and
 * [steps][PAIR_COLS] scales. */
typedef struct wide_panels {
    int16_t quanta[MAX_COLS / PAIR_COLS * MAX_STEPS * BLOCK_QUANTA];
    float scale[MAX_COLS * MAX_STEPS];
} wide_panels;

/* Like SETTLE, and without the copies that the compiler makes of sums. */
#define ADD_IN_PLACE(sum, v) __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(v))

/* A group: columns 0 and 1 of eight rows of W to `quanta`, 2 and 3 to the next pair. */
ALWAYS void widen_group(int16_t *quanta, const uint8_t *w)
{
    const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0,
                                           1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m256i offset = _mm256_set1_epi16(128);
    __m256i bytes = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load_bytes(w), pairs), 0xd8);
    __m256i first = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes));
    __m256i second = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1));
    __m256i *to = (__m256i *)(void *)quanta;
    _mm256_storeu_si256(to, _mm256_sub_epi16(first, offset));
    _mm256_storeu_si256(to + 2, _mm256_sub_epi16(second, offset));
}

/* Blocks [first, first + steps) of the panels of `cols` columns. Where the last is alone, whatever
 * stands beside it is computed and not stored. */
static void widen(wide_panels *to, const uint8_t *panel, size_t cols, size_t first, size_t steps,
                  size_t blocks)
{
    size_t panel_bytes = fast_panel_bytes(FAST_8, WIDTH, blocks);
    for (size_t c = 0; c < cols; c += WIDTH, panel += panel_bytes) {
        size_t pair = c / PAIR_COLS * steps, right = c % PAIR_COLS;
        const uint8_t *w = panel + first * block_stride(GROUP, FAST_8);
        for (size_t b = 0; b < steps; b++, w += block_stride(GROUP, FAST_8)) {
            const uint8_t *d = w + block_bytes(GROUP, FAST_8);
            int16_t *quanta = to->quanta + (pair + b) * BLOCK_QUANTA + 2 * right;
            for (size_t g = 0; g < 8; g++)
                widen_group(quanta + g * 4 * PAIR_COLS, w + g * GROUP);
            __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)d));
            _mm256_storeu_ps(to->scale + (pair + b) * PAIR_COLS + right, scale);
        }
    }
}

/* Up to ROWS rows of one tile and two panels: `steps` blocks from those that the pointers name. */
typedef struct strip {
    const int16_t *a;     /* of the first row; the next block follows by FAST_TILE_VALUES */
    const float *a_scale; /* of the first row; the next row follows by `blocks` */
    const int16_t *w;
    const float *w_scale;
    size_t steps, blocks;
} strip;

ALWAYS void sum_block(__m256i sum[][2], const int16_t *a, const int16_t *w, const size_t rows)
{
    UNROLL for (size_t r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    for (size_t p = 0; p < FAST_BLOCK / 2; p++, a += 2, w += 2 * PAIR_COLS) {
        __m256i left = load_bytes(w), right = load_bytes(w + PAIR_COLS);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            int32_t two;
            memcpy(&two, a + r * FAST_BLOCK, sizeof two);
            __m256i pair = _mm256_set1_epi32(two);
            ADD_IN_PLACE(sum[r][0], _mm256_madd_epi16(left, pair));
            ADD_IN_PLACE(sum[r][1], _mm256_madd_epi16(right, pair));
        }
    }
}

ALWAYS void multiply_strip(float *y, size_t y_stride, const strip *s, bool accumulate,
                           const size_t rows)
{
    __m256 total[ROWS][2];
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (size_t i = 0; i < 2; i++) total[r][i] =
        accumulate ? _mm256_loadu_ps(y + r * y_stride + i * WIDTH) : _mm256_setzero_ps();
    for (size_t b = 0; b < s->steps; b++) {
        __m256i sum[ROWS][2];
        sum_block(sum, s->a + b * FAST_TILE_VALUES, s->w + b * BLOCK_QUANTA, rows);
        __m256 left = _mm256_loadu_ps(s->w_scale + b * PAIR_COLS);
        __m256 right = _mm256_loadu_ps(s->w_scale + b * PAIR_COLS + WIDTH);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            __m256 scale = _mm256_broadcast_ss(s->a_scale + r * s->blocks + b);
            total[r][0] = _mm256_fmadd_ps(_mm256_mul_ps(scale, left), _mm256_cvtepi32_ps(sum[r][0]),
                                          total[r][0]);
            total[r][1] = _mm256_fmadd_ps(_mm256_mul_ps(scale, right),
                                          _mm256_cvtepi32_ps(sum[r][1]), total[r][1]);
        }
    }
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (size_t i = 0; i < 2; i++)
        _mm256_storeu_ps(y + r * y_stride + i * WIDTH, total[r][i]);
}

typedef void strip_function(float *y, size_t y_stride, const strip *s, bool accumulate);

#define DEFINE(ROWS_NOW)                                                                           \
    __attribute__((noinline)) static void strip_##ROWS_NOW(float *y, size_t y_stride,              \
                                                           const strip *s, bool accumulate)        \
    {                                                                                              \
        multiply_strip(y, y_stride, s, accumulate, ROWS_NOW);                                      \
    }
DEFINE(1)
DEFINE(2)
DEFINE(3)
DEFINE(4)
DEFINE(5)
DEFINE(6)
static strip_function *const strips[ROWS] = {strip_1, strip_2, strip_3, strip_4, strip_5, strip_6};

/* As a strip function, of `cols` < PAIR_COLS columns. */
static void multiply_edge(float *y, size_t y_stride, size_t cols, const strip *s, bool accumulate,
                          size_t rows)
{
    float all[ROWS * PAIR_COLS] = {0};
    for (size_t r = 0; accumulate && r < rows; r++)
        memcpy(all + r * PAIR_COLS, y + r * y_stride, cols * sizeof *y);
    strips[rows - 1](all, PAIR_COLS, s, accumulate);
    for (size_t r = 0; r < rows; r++)
        memcpy(y + r * y_stride, all + r * PAIR_COLS, cols * sizeof *y);
}

/* Up to 16 rows of a tile, in strips of nearly equal height, by two panels. */
static void multiply_tile(float *y, size_t y_stride, size_t cols, strip s, bool accumulate,
                          size_t rows)
{
    size_t count = (rows + ROWS - 1) / ROWS;
    for (size_t i = 0, done = 0; i < count; i++) {
        size_t n = (rows - done + count - i - 1) / (count - i);
        if (cols >= PAIR_COLS)
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
            for (size_t c = 0; c < cols; c += PAIR_COLS) {
                size_t pair = c / PAIR_COLS * steps, left = rows - r;
                strip s = {.steps = steps, .blocks = blocks};
                s.a = (const int16_t *)a->tile +
                      (r / FAST_TILE_ROWS * blocks + at) * FAST_TILE_VALUES;
                s.a_scale = a->scale + r * blocks + at;
                s.w = wide->quanta + pair * BLOCK_QUANTA;
                s.w_scale = wide->scale + pair * PAIR_COLS;
                multiply_tile(y + r * y_stride + c, y_stride, cols - c, s, at > 0,
                              left < FAST_TILE_ROWS ? left : FAST_TILE_ROWS);
            }
    }
}

static void put_row(uint16_t *tile, float *scale, const float *x, size_t blocks)
{
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

const fast_tiles fast_tiles_avx2 = {
    .takes = {[FAST_8] = true},
    .from_rows = 24,
    .max_cols = MAX_COLS,
    .room_bytes = (sizeof(wide_panels) + 63) / 64 * 64,
    .put_row = put_row,
    .multiply = multiply,
};
#endif
