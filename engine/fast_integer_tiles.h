/* Tiles of integers (fast_tiles): panels of 8-bit weights times many rows of 16 bits, for x86
 * variants whose strips are STRIP_COLS columns by up to ROWS rows. A variant says WIDTH, GROUP and
 * ROWS, includes this, defines how a strip is made and multiplied, and includes the rest
 * (fast_integer_strips.h).
 *
 * A product of 16 bits takes activations that need no remainder, and its sum no care, |sum| of a
 * block being at most 32 * 32767 * 128 < 2^27. So a part of some panels is made 16 bits wide once,
 * in pairs of columns, and then meets all rows. */
#ifndef TACIT_ENGINE_FAST_INTEGER_TILES_H
#define TACIT_ENGINE_FAST_INTEGER_TILES_H

#include "engine/fast_x86.h"

#define STRIP_COLS 16 /* columns of the result: one or two panels side by side */
#define MAX_COLS 64
#define MAX_STEPS 16 /* blocks of a part: a strip's take 16 KiB, half of the nearest cache */
#define MOST_QUANTUM 32767.0f
#define BLOCK_QUANTA (FAST_BLOCK * STRIP_COLS) /* of a strip */

/* A part of the panels, for each strip [steps][16 pairs of columns][STRIP_COLS][2] quanta and
 * [steps][STRIP_COLS] scales. */
typedef struct wide_panels {
    int16_t quanta[MAX_COLS / STRIP_COLS * MAX_STEPS * BLOCK_QUANTA];
    float scale[MAX_COLS * MAX_STEPS];
} wide_panels;

/* Up to ROWS rows of one tile and the columns of a strip: `steps` blocks from those that the
 * pointers name. */
typedef struct strip {
    const int16_t *a;     /* of the first row; the next block follows by FAST_TILE_VALUES */
    const float *a_scale; /* of the first row; the next row follows by `blocks` */
    const int16_t *w;
    const float *w_scale;
    size_t steps, blocks;
} strip;

typedef void strip_function(float *y, size_t y_stride, const strip *s, bool accumulate);

#endif
