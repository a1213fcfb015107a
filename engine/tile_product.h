/* Products of bf16 matrices on AMX tiles, summed in fp32: the inner loop alone, which does not know
 * where the values came from. Tiles are 16 rows of 64 bytes (palette 1 of Intel's manual, volume 1,
 * "Programming with Intel AMX"); TDPBF16PS sums the even and the odd columns of a tile by
 * themselves, one chain of multiply-adds each, adds both sums and then that to the result. So an
 * element of y depends on its row of a, its column of b and the order of the tiles, and on nothing
 * else. Inputs below 2^-126 count as zero, results below it become zero. */
#ifndef TACIT_ENGINE_TILE_PRODUCT_H
#define TACIT_ENGINE_TILE_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TILE_ROWS 16
#define TILE_COLS 16
#define TILE_DEPTH 32 /* columns of a, rows of b */
#define TILE_VALUES 512

/* a in tiles [16 rows][32], b in tiles [32 / 2][16 columns][2]; tiles that follow each other along
 * the depth are neighbours. Whole tiles are read, also where rows or columns end within one. */
typedef struct tile_operands {
    const uint16_t *a, *b;
    size_t a_next, b_next; /* values from 16 rows of a, 16 columns of b, to the next */
    size_t steps;          /* tiles along the depth */
} tile_operands;

/* Before products on a thread, and after them: a thread that keeps its tiles costs the system their
 * saving, 8 KiB, whenever it stops. */
void tile_begin(void);
void tile_end(void);

/* y[rows, cols] (+)= a b. */
void tile_multiply(float *y, size_t y_stride, size_t rows, size_t cols, const tile_operands *o,
                   bool accumulate);

#endif
