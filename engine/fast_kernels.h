/* The kernels of packed weights behind fast.h, one table per instruction set (kernels.h chooses).
 *
 * Weights are read in panels: `width` rows of W side by side, made once (fast_pack.h) in a form per
 * bit width. The value of a weight is d u + m with an integer u; blocks are 32 columns. A panel is
 * for each block
 *   quanta [4 bits of u * width bytes], then d [width] as fp16 (two of them where d holds for 16
 *   columns), then m [width] as fp16 where the form has it,
 * filled up to a multiple of 64 bytes: one stream of memory, which processors fetch ahead of its
 * reader as they do not where scales lie apart (on Zen 4 one row then took nearly twice as long).
 * Quanta of a block, with group g the four columns 4 g ..:
 *   8 bits: for each of the 8 groups [width][4] bytes
 *   4 bits: for each g < 4 [width][4] bytes, groups g and g + 4 in the low and the high four bits
 *   5 bits: as 4 bits, then [width][4] bytes: bit j is the fifth bit of group j
 *   6 bits: as 4 bits, then two times [width][4] bytes: bits 2 j and 2 j + 1 of the first are the
 *           upper bits of group j, those of the second of group j + 4
 *  bf16, fp16: no quanta and no scales but values, [32 / 2][width][2] of a block (for tiles)
 *  pairs: as bf16 what values round to, of all blocks; then as much of what rounding left
 * so that one load serves the same columns of every row, and the work is per column of the result.
 *
 * Sums over quanta are exact integers; a column's sum over blocks is one chain of multiply-adds, so
 * a row's result depends neither on other rows nor on threads. Variants differ in rounding only.
 *
 * A table may have tiles: the same panels times many rows whose values have 16 bits, a block of
 * results at a time. Values are bf16 (8 significant bits: each operand is rounded by at most 2^-8
 * of itself, on average by a third of what blocks of 8 bits do to activations; split into two bf16
 * a product is off by at most 2^-15 of itself, for three times the work), or integers with a scale
 * a block, which round activations by 2^-16 of its largest value and weights not at all. */
#ifndef TACIT_ENGINE_FAST_KERNELS_H
#define TACIT_ENGINE_FAST_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAST_BLOCK 32
#define FAST_MAX_WIDTH 16
#define FAST_TILE_ROWS 16
#define FAST_TILE_VALUES 512

/* What a panel holds. Without M: m is -8 d, -16 d with u unsigned; u is signed in FAST_8 (or
 * unsigned and m -128 d where `flips`), and u - 32 counts in FAST_6. */
typedef enum fast_form {
    FAST_8,
    FAST_4,
    FAST_4M,
    FAST_5,
    FAST_5M,
    FAST_6,    /* d for 16 columns */
    FAST_BF16, /* the file's bf16: this and those below for tiles alone */
    FAST_F16,  /* the file's fp16 */
    FAST_PAIR, /* fp32, split into two bf16 */
    FAST_FORMS
} fast_form;

typedef struct fast_form_traits {
    uint8_t bits;
    uint8_t scales; /* d of a block: 1 or 2 */
    bool has_m;
    int16_t offset; /* what is taken from u where there is no m */
} fast_form_traits;

extern const fast_form_traits fast_forms[FAST_FORMS];

/* Activations quantized to 8 bits: row r begins at q + r * step * 32 blocks, its meta at
 * meta + r * step * 2 blocks. Paired rows are followed by their remainders, which are multiplied
 * as well and added. */
typedef struct fast_rows {
    const int8_t *q;   /* never -128 */
    const float *meta; /* of each block: scale, and scale times the sum of the quanta */
    size_t blocks;
    size_t step; /* 1, or 2 where remainders lie between the rows */
    bool paired; /* needs step 2 */
} fast_rows;

/* y[r * y_stride + c] of `rows` activations for `cols` columns: those of the panels from `panel`
 * on, the last one of which may be wider than what is left. */
typedef void fast_multiply(float *y, size_t y_stride, size_t cols, const uint8_t *panel,
                           const fast_rows *a, size_t rows);

/* Activations of 16 bits in tiles of 16 rows by 32 columns, each 1024 bytes on its own: value j of
 * block b of row r is tile[(r / 16 * blocks + b) * 512 + r % 16 * 32 + j]; rows up to a multiple of
 * 16 are there and finite. Of integers the block's scale is scale[r * blocks + b]. */
typedef struct fast_tiled {
    const uint16_t *tile;
    const uint16_t *low; /* what rounding to bf16 left, in the same order; NULL: it is dropped, and
                          * that of weights with it */
    const float *scale;  /* not read where values are bf16 */
    size_t blocks;
} fast_tiled;

/* Where row r begins in tiles. */
static inline size_t fast_tiled_row(size_t r, size_t blocks)
{
    return r / FAST_TILE_ROWS * blocks * FAST_TILE_VALUES + r % FAST_TILE_ROWS * FAST_BLOCK;
}

/* Products on tiles. Every element of y is one chain of sums, over blocks and, of some of them at a
 * time, over the products that its operands are split into, whatever its row's and column's company
 * is. */
typedef struct fast_tiles {
    bool takes[FAST_FORMS]; /* with FAST_BF16 values are bf16, else integers */
    bool splits;            /* refined products take what rounding left as well */
    bool for_refined;       /* in the place of remainders: slower than `multiply` without them */
    size_t from_rows;       /* from how many rows on it takes less time than `multiply` */
    size_t max_cols;        /* of one call */
    size_t room_bytes;      /* of one call, aligned to 64 */
    /* One row in: block b goes to tile + b * 512. bf16: rounded to nearest even, NaN stays NaN;
     * unless `low` is NULL what that left goes there, rounded alike. Integers: scale[b] = largest
     * magnitude / 32767, rounded to nearest; NaN where a value is not finite. */
    void (*put_row)(uint16_t *tile, uint16_t *low, float *scale, const float *x, size_t blocks);
    /* As fast_multiply, of any form that is taken. */
    void (*multiply)(float *y, size_t y_stride, size_t cols, const uint8_t *panel, fast_form form,
                     const fast_tiled *a, size_t rows, void *room);
} fast_tiles;

typedef struct fast_kernels {
    size_t width;    /* rows of W in a panel: at most FAST_MAX_WIDTH */
    bool flips;      /* 8-bit quanta are stored as value + 128 */
    bool sums_bytes; /* one instruction adds products of bytes to 32 bits: then even a refined
                      * product takes less time than one of fp32 */
    /* 32 * blocks values: scale = largest magnitude / 127, quanta rounded to nearest. A block with
     * a value that is not finite has scale NaN. */
    void (*quantize)(int8_t *q, float *meta, const float *x, size_t blocks);
    fast_multiply *multiply[FAST_FORMS]; /* NULL: tiles alone */
    const fast_tiles *tiles;             /* NULL: none; else `flips` holds */
} fast_kernels;

/* Whether panels of a form may meet tiles. */
static inline bool fast_takes_tiles(const fast_kernels *k, fast_form form)
{
    return k->tiles && k->tiles->takes[form];
}

/* Whether no `multiply` knows the form. */
static inline bool fast_needs_tiles(fast_form form)
{
    return form == FAST_BF16 || form == FAST_F16 || form == FAST_PAIR;
}

/* Bytes of a block's quanta, of a whole block and of a whole panel. */
static inline size_t fast_block_bytes(fast_form form, size_t width)
{
    return 4 * width * fast_forms[form].bits;
}

static inline size_t fast_block_stride(fast_form form, size_t width)
{
    size_t halves = fast_forms[form].scales + (size_t)(fast_forms[form].has_m ? 1 : 0);
    return fast_block_bytes(form, width) + 2 * width * halves;
}

static inline size_t fast_panel_bytes(fast_form form, size_t width, size_t blocks)
{
    return (blocks * fast_block_stride(form, width) + 63) / 64 * 64;
}

extern const fast_kernels fast_kernels_generic;
#if defined(__x86_64__)
extern const fast_kernels fast_kernels_avx2;
extern const fast_tiles fast_tiles_avx2, fast_tiles_avx512;
extern const fast_kernels fast_kernels_avx512;
extern const fast_kernels fast_kernels_amx;
extern const fast_tiles fast_tiles_amx;
#elif defined(__aarch64__)
extern const fast_kernels fast_kernels_neon, fast_kernels_i8mm;
#endif

#endif
