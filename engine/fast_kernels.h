/* The integer kernels behind fast.h, one table per instruction set (kernels.h chooses).
 *
 * Blocks of 32 values. The value of a weight is d (u - offset) + m with u unsigned: offset 128, 8
 * or 0 and m zero but for Q4_1. The sums over u and the activations' quanta are exact integers;
 * variants differ in the order of the fp32 sum over blocks only. */
#ifndef TACIT_ENGINE_FAST_KERNELS_H
#define TACIT_ENGINE_FAST_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define FAST_PANEL 32 /* rows of weights in a panel */

typedef enum fast_type { FAST_Q8_0, FAST_Q4_0, FAST_Q4_1, FAST_TYPES } fast_type;

/* 32 rows of W made ready: quanta of four consecutive columns of each row side by side. */
typedef struct fast_panel {
    uint8_t *w;     /* [n_in / 4, 32, 4]; signed bytes where `is_signed` */
    float *d;       /* [blocks, 32] */
    float *m;       /* [blocks, 32]; read when has_m */
    int32_t offset; /* 0 where is_signed */
    int is_signed, has_m;
} fast_panel;

/* Quantized activations of some rows: see fast_input. */
typedef struct fast_rows {
    const int8_t *q;      /* [rows, 32 blocks] */
    const float *meta;    /* [rows, blocks, 2]: scale, and scale times the sum of the quanta */
    const int32_t *total; /* [rows, blocks]: sums of the quanta */
    size_t blocks;
} fast_rows;

typedef struct fast_kernels {
    /* One row of 32 * blocks values: scale = largest magnitude / 127, quanta rounded to nearest.
     * A block with a value that is not finite has scale NaN. */
    void (*quantize)(int8_t *q, float *meta, int32_t *total, const float *x, size_t blocks);
    /* Sum over one row of W times one row of activations. */
    float (*dot[FAST_TYPES])(const uint8_t *row, const int8_t *q, const float *meta, size_t blocks);
    /* Fills the panel from 32 rows of W that start at row[0..31]. */
    void (*pack[FAST_TYPES])(fast_panel *panel, const uint8_t *const *row, size_t blocks);
    /* y[r * y_stride + c] of `rows` activations and the 32 rows of the panel. */
    void (*multiply)(float *y, size_t y_stride, const fast_panel *panel, const fast_rows *a,
                     size_t rows);
} fast_kernels;

extern const fast_kernels fast_kernels_generic;
#if defined(__x86_64__)
extern const fast_kernels fast_kernels_avx2;
extern const fast_kernels fast_kernels_avx512;
#endif

#endif
