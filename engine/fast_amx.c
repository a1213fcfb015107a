/* Panels of weights times many rows on AMX tiles (tile_product.h). A part of some panels is made
 * bf16 in the tiles' order once and then meets all rows. Counted in instructions, not measured: for
 * 128 rows that costs about as much as the products, and integer tiles, whose sums would have to be
 * scaled after every 32 columns, more than bf16 ones.
 *
 * Refined products take each operand as two bf16, a value and what rounding it left: three products
 * of theirs (Henry, Tang and Heinecke 2019, arXiv 1904.06376), or two where the weight is a bf16.
 * The fourth, of both remainders, is at most 2^-16 of the term, as much as rounding the remainders
 * of both costs. What is infinite in bf16 leaves NaN. */
#include "engine/fast_kernels.h"
#include "engine/tile_product.h"

#if defined(__x86_64__)
#include "engine/fast_x86.h"

#define WIDTH 16
#define GROUP 64 /* bytes of four columns in a panel */
/* Blocks of a part, those that hold what rounding left among them: with 32 columns 40 KiB, of the
 * nearest cache's 48. */
#define MAX_STEPS 20
#define MAX_COLS 128

_Static_assert(TILE_VALUES == FAST_TILE_VALUES && TILE_ROWS == FAST_TILE_ROWS, "one form of tiles");
_Static_assert(TILE_DEPTH == FAST_BLOCK && TILE_COLS == WIDTH, "a block of a panel is a tile");

/* Vectors of the compiler, so that other processors can run this file too, for its tests. */
typedef uint32_t words __attribute__((vector_size(64)));
typedef int32_t integers __attribute__((vector_size(64)));
typedef float floats __attribute__((vector_size(64)));
typedef float eight __attribute__((vector_size(32)));
typedef uint16_t halves __attribute__((vector_size(32)));

ALWAYS words load_words(const void *p)
{
    words w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* With one kind of NaN, which rounding keeps. */
ALWAYS floats with_plain_nan(floats v)
{
    words number = (words)(v == v);
    return (floats)(((words)v & number) | (0x7fc00000 & ~number));
}

ALWAYS eight load_eight_halves(const uint8_t *p)
{
    return (eight)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS floats load_scales(const uint8_t *p)
{
    eight low = load_eight_halves(p), high = load_eight_halves(p + 16);
    return with_plain_nan(
        __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

/* A bf16 is the upper half of an fp32; weights are rounded to the nearest, halves away from zero:
 * an addition less than to even. */
ALWAYS words rounded(floats v)
{
    return (words)v + 0x8000;
}

/* Byte `i` of each word as a weight. */
ALWAYS floats weight_of(words w, const int i, floats d, floats m)
{
    words u = i == 3 ? w >> 24 : w >> 8 * i & 255;
    return __builtin_convertvector((integers)u, floats) * d + m;
}

/* What rounding leaves. */
ALWAYS floats rest_of(floats v)
{
    return v - (floats)(rounded(v) & 0xffff0000);
}

/* Two columns of 16 rows of W: a row of a tile. */
ALWAYS void put_pair(uint16_t *to, floats first, floats second)
{
    words pair = rounded(first) >> 16 | (rounded(second) & 0xffff0000);
    memcpy(to, &pair, sizeof pair);
}

/* Four columns, and with `low` what rounding leaves of them. */
ALWAYS void put_group(uint16_t *tile, uint16_t *low, words w, floats d, floats m)
{
    UNROLL for (int i = 0; i < 2; i++)
    {
        floats first = weight_of(w, 2 * i, d, m), second = weight_of(w, 2 * i + 1, d, m);
        put_pair(tile + 32 * i, first, second);
        if (low)
            put_pair(low + 32 * i, rest_of(first), rest_of(second));
    }
}

/* The quanta of group g of a block, as bytes. */
ALWAYS words load_group(const uint8_t *w, const int g, const fast_form form)
{
    if (form == FAST_8)
        return load_words(w + g * GROUP);
    const int upper = g < 4 ? 0 : 4;
    words v = load_words(w + g % 4 * GROUP) >> upper & 0x0f0f0f0f;
    if (form == FAST_5 || form == FAST_5M)
        v |= (load_words(w + 4 * GROUP) >> g & 0x01010101) << 4;
    if (form == FAST_6)
        v |= (load_words(w + (4 + g / 4) * GROUP) >> 2 * (g % 4) & 0x03030303) << 4;
    return v;
}

/* The m of a block whose d is at `scales`. */
ALWAYS floats least_of(const uint8_t *scales, floats d, const fast_form form)
{
    const float offset = form == FAST_8 ? 128 : form == FAST_4 ? 8 : form == FAST_5 ? 16 : 32;
    return form == FAST_4M || form == FAST_5M ? load_scales(scales + 2 * WIDTH) : d * -offset;
}

ALWAYS void put_block(uint16_t *tile, uint16_t *low, const uint8_t *w, const fast_form form)
{
    const uint8_t *scales = w + block_bytes(GROUP, form);
    floats d = load_scales(scales), m = least_of(scales, d, form);
    UNROLL for (int g = 0; g < 8; g++)
    {
        if (form == FAST_6 && g == 4) {
            d = load_scales(scales + 2 * WIDTH);
            m = least_of(scales, d, form);
        }
        put_group(tile + 64 * g, low ? low + 64 * g : NULL, load_group(w, g, form), d, m);
    }
}

/* Blocks [first, first + count) of a panel; `low` as in put_group. */
ALWAYS void put_panel(uint16_t *tile, uint16_t *low, const uint8_t *panel, size_t first,
                      size_t count, const fast_form form)
{
    panel += first * block_stride(GROUP, form);
    for (size_t b = 0; b < count; b++, panel += block_stride(GROUP, form)) {
        if (low)
            put_block(tile + b * TILE_VALUES, low + b * TILE_VALUES, panel, form);
        else
            put_block(tile + b * TILE_VALUES, NULL, panel, form);
    }
}

/* The first or the second of 16 pairs of fp16. */
ALWAYS floats of_halves(words pairs, const int second)
{
    halves h = __builtin_convertvector(second ? pairs >> 16 : pairs & 0xffff, halves);
    uint8_t bytes[sizeof h];
    memcpy(bytes, &h, sizeof h);
    return load_scales(bytes);
}

/* As put_panel, of fp16. */
static void put_FAST_F16(uint16_t *tile, uint16_t *low, const uint8_t *panel, size_t first,
                         size_t count)
{
    panel += first * TILE_VALUES * sizeof *tile; /* without scales */
    for (size_t i = 0; i < TILE_DEPTH / 2 * count; i++) {
        words pairs = load_words(panel + i * sizeof pairs);
        floats even = of_halves(pairs, 0), odd = of_halves(pairs, 1);
        put_pair(tile + 32 * i, even, odd);
        if (low)
            put_pair(low + 32 * i, rest_of(even), rest_of(odd));
    }
}

typedef void put_function(uint16_t *tile, uint16_t *low, const uint8_t *panel, size_t first,
                          size_t count);

#define DEFINE(FORM)                                                                               \
    static void put_##FORM(uint16_t *tile, uint16_t *low, const uint8_t *panel, size_t first,      \
                           size_t count)                                                           \
    {                                                                                              \
        put_panel(tile, low, panel, first, count, FORM);                                           \
    }
DEFINE(FAST_8)
DEFINE(FAST_4)
DEFINE(FAST_4M)
DEFINE(FAST_5)
DEFINE(FAST_5M)
DEFINE(FAST_6)

static put_function *const put[FAST_FORMS] = {
    [FAST_8] = put_FAST_8,     [FAST_4] = put_FAST_4,   [FAST_4M] = put_FAST_4M,
    [FAST_5] = put_FAST_5,     [FAST_5M] = put_FAST_5M, [FAST_6] = put_FAST_6,
    [FAST_F16] = put_FAST_F16,
};

/* Some blocks of some panels in tiles. */
typedef struct tiled_weights {
    const uint16_t *high, *low; /* low NULL: there is nothing, or it is not wanted */
    size_t next;                /* values from a panel to the next */
} tiled_weights;

/* Blocks [first, first + steps) of the panels of `cols` columns: made in `room`, or the panels
 * themselves. */
static tiled_weights tile_weights(const uint8_t *panel, fast_form form, size_t cols, size_t first,
                                  size_t steps, size_t blocks, bool split, uint16_t *room)
{
    size_t panel_bytes = fast_panel_bytes(form, WIDTH, blocks);
    if (!put[form]) {
        const uint16_t *high = (const uint16_t *)(const void *)panel + first * TILE_VALUES;
        const uint16_t *low = split && form == FAST_PAIR ? high + blocks * TILE_VALUES : NULL;
        return (tiled_weights){high, low, panel_bytes / sizeof *high};
    }
    size_t next = steps * TILE_VALUES;
    uint16_t *low = split ? room + MAX_COLS / WIDTH * next : NULL;
    for (size_t i = 0; i * WIDTH < cols; i++)
        put[form](room + i * next, low ? low + i * next : NULL, panel + i * panel_bytes, first,
                  steps);
    return (tiled_weights){room, low, next};
}

static void multiply(float *y, size_t y_stride, size_t cols, const uint8_t *panel, fast_form form,
                     const fast_tiled *a, size_t rows, void *room)
{
    size_t blocks = a->blocks, most = a->low ? MAX_STEPS / 2 : MAX_STEPS;
    size_t parts = (blocks + most - 1) / most, step = (blocks + parts - 1) / parts;
    tile_begin();
    for (size_t at = 0; at < blocks; at += step) {
        tile_operands o = {.a_next = blocks * TILE_VALUES};
        o.steps = blocks - at < step ? blocks - at : step;
        tiled_weights w =
            tile_weights(panel, form, cols, at, o.steps, blocks, a->low != NULL, room);
        o.b_next = w.next;
        o.a = a->tile + at * TILE_VALUES;
        o.b = w.high;
        tile_multiply(y, y_stride, rows, cols, &o, at > 0);
        if (w.low) {
            o.b = w.low;
            tile_multiply(y, y_stride, rows, cols, &o, true);
        }
        if (a->low) {
            o.a = a->low + at * TILE_VALUES;
            o.b = w.high;
            tile_multiply(y, y_stride, rows, cols, &o, true);
        }
    }
    tile_end();
}

/* Rounded to the nearest even, in the upper half. */
ALWAYS words rounded_to_even(floats v)
{
    words bits = (words)with_plain_nan(v);
    return bits + 0x7fff + (bits >> 16 & 1);
}

ALWAYS void put_halves(uint16_t *to, words upper)
{
    halves h = __builtin_convertvector(upper >> 16, halves);
    memcpy(to, &h, sizeof h);
}

static void put_row(uint16_t *tile, uint16_t *low, float *scale, const float *x, size_t blocks)
{
    (void)scale;
    for (size_t i = 0; i < 2 * blocks; i++, x += 16) {
        size_t at = i / 2 * TILE_VALUES + i % 2 * 16;
        floats v = (floats)load_words(x);
        words high = rounded_to_even(v);
        put_halves(tile + at, high);
        if (low)
            put_halves(low + at, rounded_to_even(v - (floats)(high & 0xffff0000)));
    }
}

const fast_tiles fast_tiles_amx = {
    .takes = {true, true, true, true, true, true, true, true, true},
    .splits = true,
    .from_rows = 32, /* counted, not measured: bench_products tells on a processor that has tiles */
    .max_cols = MAX_COLS,
    .room_bytes = (size_t)MAX_COLS * MAX_STEPS * TILE_DEPTH * sizeof(uint16_t),
    .put_row = put_row,
    .multiply = multiply,
};
#endif
