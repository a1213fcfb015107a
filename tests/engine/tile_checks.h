/* What holds for products on tiles (fast_tiles), on a processor's or on emulated ones. The oracles
 * are integers, which no step may round, and doubles with the error that rounding to bf16, or to
 * integers of 16 bits, may make at most. */
#ifndef TACIT_TESTS_TILE_CHECKS_H
#define TACIT_TESTS_TILE_CHECKS_H

#include "engine/fast_pack.h"
#include "engine/types.h"
#include "numbers.h"

#include <string.h>

#define TILE_MAX_COLS 101
#define TILE_MAX_ROWS 51
#define TILE_LARGEST 5 /* column of a block that makes its scale 1 */

static inline bool tiles_are_bf16(const fast_tiles *t)
{
    return t->takes[FAST_BF16];
}

/* x [rows, 32 blocks] as a fast_tiles wants it; free all. */
typedef struct tiled_rows {
    uint16_t *tile, *low; /* low NULL unless split */
    float *scale;
} tiled_rows;

static inline tiled_rows new_tiled_rows(const fast_tiles *t, const float *x, size_t rows,
                                        size_t blocks, bool split)
{
    size_t whole = (rows + 15) / 16 * 16, bytes = whole * blocks * 64;
    tiled_rows a = {aligned_alloc(64, bytes), split ? aligned_alloc(64, bytes) : NULL,
                    calloc(whole * blocks, sizeof(float))};
    memset(a.tile, 0, bytes);
    if (split)
        memset(a.low, 0, bytes);
    for (size_t r = 0; r < rows; r++) {
        size_t at = fast_tiled_row(r, blocks);
        t->put_row(a.tile + at, split ? a.low + at : NULL, a.scale + r * blocks,
                   x + r * blocks * 32, blocks);
    }
    return a;
}

/* A weight [TILE_MAX_COLS, 32 blocks] of a type, its panels and what it holds. */
typedef struct tiled_weight {
    const fast_kernels *k;
    tacit_linear l;
    fast_weight w;
    uint8_t *bytes, *panels;
    float *value;
} tiled_weight;

/* Scales of 1 (minimums of 1 or -1): then every weight is an integer of at most 8 bits. */
static inline void set_scales_to_one(uint8_t *block, tacit_type type)
{
    static const uint8_t one[] = {0x00, 0x3c}, ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 17, 17, 17, 17};
    bool has_m = type == TACIT_TYPE_Q4_1 || type == TACIT_TYPE_Q5_1 || type == TACIT_TYPE_Q4_K ||
                 type == TACIT_TYPE_Q5_K;
    if (type == TACIT_TYPE_Q6_K) {
        memset(block + 192, 1, 16);
        memcpy(block + 208, one, 2);
        return;
    }
    memcpy(block, one, 2);
    if (has_m)
        memcpy(block + 2, one, 2);
    if (type == TACIT_TYPE_Q4_K || type == TACIT_TYPE_Q5_K)
        memcpy(block + 4, ones, sizeof ones);
}

static inline void fill_with_integers(tiled_weight *o, uint64_t seed)
{
    const tacit_type_traits *t = o->l.type;
    size_t n = TILE_MAX_COLS * o->l.n_in, bytes = TILE_MAX_COLS * o->l.row_bytes;
    if (t->block_values == 1) {
        for (size_t i = 0; i < n; i++)
            o->value[i] = (float)(numbers_next(&seed) % 256) - 128;
        t->from_f32(o->bytes, o->value, n);
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        o->bytes[i] = (uint8_t)numbers_next(&seed);
    for (size_t at = 0; at < bytes; at += t->block_bytes) {
        set_scales_to_one(o->bytes + at, t->type);
        if (!tiles_are_bf16(o->k->tiles)) /* 8 bits: meets the largest value */
            o->bytes[at + 2 + TILE_LARGEST] = (uint8_t)(numbers_next(&seed) % 3 - 1);
    }
}

static inline void new_tiled_weight(tiled_weight *o, const fast_kernels *k, tacit_type type,
                                    size_t blocks, bool integers)
{
    const tacit_type_traits *t = tacit_type_find(type);
    size_t n_in = 32 * blocks, n = TILE_MAX_COLS * n_in;
    *o = (tiled_weight){.k = k, .l = {.type = t, .n_in = n_in, .n_out = TILE_MAX_COLS}};
    o->l.row_bytes = n_in / t->block_values * t->block_bytes;
    o->bytes = malloc(TILE_MAX_COLS * o->l.row_bytes);
    o->value = numbers_new(n, 1, 17 + blocks);
    o->l.weight = o->bytes;
    if (integers)
        fill_with_integers(o, 3 + blocks);
    else
        t->from_f32(o->bytes, o->value, n);
    t->to_f32(o->value, o->bytes, n);
    size_t bytes = fast_weight_plan(&o->w, k, &o->l);
    assert_true(bytes > 0);
    o->panels = aligned_alloc(64, bytes);
    assert_true(fast_weight_pack(NULL, &o->w, k, &o->l, o->panels, 0, TILE_MAX_COLS));
}

static inline void free_tiled_weight(tiled_weight *o)
{
    free(o->bytes);
    free(o->value);
    free(o->panels);
}

/* y[rows, TILE_MAX_COLS + 1] by calls of at most `at_once` columns; the last column is nobody's. */
static inline float *tiled_product(const tiled_weight *o, const float *x, size_t rows, size_t cols,
                                   size_t at_once, bool split)
{
    const fast_tiles *t = o->k->tiles;
    size_t stride = TILE_MAX_COLS + 1, blocks = o->w.blocks;
    tiled_rows a = new_tiled_rows(t, x, rows, blocks, split);
    const fast_tiled tiled = {a.tile, a.low, a.scale, blocks};
    void *room = aligned_alloc(64, t->room_bytes);
    float *y = malloc((rows + 1) * stride * sizeof *y);
    for (size_t i = 0; i < (rows + 1) * stride; i++)
        y[i] = 4321;
    for (size_t c = 0; c < cols; c += at_once)
        t->multiply(y + c, stride, cols - c < at_once ? cols - c : at_once,
                    o->panels + c / o->k->width * o->w.panel_bytes, o->w.form, &tiled, rows, room);
    for (size_t r = 0; r <= rows; r++)
        for (size_t c = r < rows ? cols : 0; c < stride; c++)
            assert_true(y[r * stride + c] == 4321);
    free(room);
    free(a.tile);
    free(a.low);
    free(a.scale);
    return y;
}

/* The product in integers. */
static inline int32_t *integer_product(const tiled_weight *o, const float *x)
{
    size_t n_in = o->l.n_in;
    int32_t *sum = calloc(TILE_MAX_ROWS * TILE_MAX_COLS, sizeof *sum);
    for (size_t r = 0; r < TILE_MAX_ROWS; r++)
        for (size_t c = 0; c < TILE_MAX_COLS; c++)
            for (size_t k = 0; k < n_in; k++)
                sum[r * TILE_MAX_COLS + c] +=
                    (int32_t)x[r * n_in + k] * (int32_t)o->value[c * n_in + k];
    return sum;
}

static inline void compare_integers(const tiled_weight *o, const float *y, const int32_t *expected,
                                    size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            float found = y[r * (TILE_MAX_COLS + 1) + c];
            if (found != (float)expected[r * TILE_MAX_COLS + c])
                fail_msg("%s, %zu blocks, row %zu of %zu, column %zu of %zu: found %.9g, "
                         "expected %d",
                         o->l.type->name, o->w.blocks, r, rows, c, cols, (double)found,
                         (int)expected[r * TILE_MAX_COLS + c]);
        }
}

/* Integers whose sums fp32 holds: nothing may be rounded, whatever the order. */
static inline void check_tiled_integers(const fast_kernels *k, tacit_type type, size_t blocks,
                                        bool split)
{
    static const size_t rows[] = {1, 16, 17, 33, TILE_MAX_ROWS};
    static const size_t cols[] = {1, 32, 49, TILE_MAX_COLS};
    tiled_weight o;
    size_t n = TILE_MAX_ROWS * 32 * blocks;
    uint64_t seed = 5;
    float *x = malloc(n * sizeof *x);
    new_tiled_weight(&o, k, type, blocks, true);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(numbers_next(&seed) % 9) - 4;
        if (!tiles_are_bf16(k->tiles) && i % 32 == TILE_LARGEST)
            x[i] = numbers_next(&seed) % 2 ? 32767 : -32767;
    }
    int32_t *expected = integer_product(&o, x);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t j = 0; j < sizeof cols / sizeof cols[0]; j++) {
            float *y = tiled_product(&o, x, rows[i], cols[j], 64, split);
            compare_integers(&o, y, expected, rows[i], cols[j]);
            free(y);
        }
    free(expected);
    free(x);
    free_tiled_weight(&o);
}

/* Any values: within what the roundings may do at most, by about what they do on average. */
static inline void check_tiled_rounding(const fast_kernels *k, tacit_type type, size_t blocks,
                                        bool split)
{
    const double scales = tacit_type_find(type)->block_values > 32 ? 1.0 / 2048 : 0;
    const bool bf16 = tiles_are_bf16(k->tiles);
    /* Of each term, and of each weight where values are at most 1. */
    const double most = (split ? 4.01 / 131072 : bf16 ? 4.01 / 512 : 0) + (bf16 ? 8 * scales : 0);
    const double step = bf16 ? 0 : 0.501 / 32767;
    const double usual = split ? (scales > 0 ? 3e-4 : 3e-6) : bf16 ? 1e-3 : 2e-5;
    tiled_weight o;
    size_t n_in = 32 * blocks, stride = TILE_MAX_COLS + 1, at_once = k->tiles->max_cols;
    float *x = numbers_new(TILE_MAX_ROWS * n_in, 1, 8);
    double difference = 0, total = 0;
    new_tiled_weight(&o, k, type, blocks, false);
    float *y = tiled_product(&o, x, TILE_MAX_ROWS, TILE_MAX_COLS, at_once, split);
    for (size_t r = 0; r < TILE_MAX_ROWS; r++)
        for (size_t c = 0; c < TILE_MAX_COLS; c++) {
            double sum = 0, size = 0, weights = 0;
            for (size_t i = 0; i < n_in; i++) {
                double w = (double)o.value[c * n_in + i], term = (double)x[r * n_in + i] * w;
                sum += term;
                size += fabs(term);
                weights += fabs(w);
            }
            double off = y[r * stride + c] - sum;
            if (!(fabs(off) <= most * size + step * weights + 1e-6 * (double)n_in))
                fail_msg("%s, %zu blocks, row %zu, column %zu: found %.9g, expected %.9g of %g",
                         o.l.type->name, blocks, r, c, (double)y[r * stride + c], sum, size);
            difference += off * off;
            total += sum * sum;
        }
    double relative = sqrt(difference / total);
    if (!(relative < 2.5 * usual && relative > 0.5 * usual))
        fail_msg("%s, %zu blocks: off by %g (relative)", o.l.type->name, blocks, relative);
    free(x);
    free(y);
    free_tiled_weight(&o);
}

/* A row alone, and columns by other calls: the same bits. A value that is not finite, in a row or
 * as a scale of the weight, harms its own row or column alone. */
static inline void check_tiled_independence(const fast_kernels *k, tacit_type type, size_t blocks,
                                            bool split)
{
    tiled_weight o;
    size_t n_in = 32 * blocks, stride = TILE_MAX_COLS + 1, at_once = k->tiles->max_cols;
    float *x = numbers_new(TILE_MAX_ROWS * n_in, 1, 9);
    new_tiled_weight(&o, k, type, blocks, false);
    float *y = tiled_product(&o, x, TILE_MAX_ROWS, TILE_MAX_COLS, at_once, split);
    float *narrow = tiled_product(&o, x, TILE_MAX_ROWS, TILE_MAX_COLS, 16, split);
    assert_memory_equal(narrow, y, TILE_MAX_ROWS * stride * sizeof *y);
    free(narrow);
    for (size_t r = 0; r < TILE_MAX_ROWS; r += 10) {
        float *one = tiled_product(&o, x + r * n_in, 1, TILE_MAX_COLS, at_once, split);
        assert_memory_equal(one, y + r * stride, stride * sizeof *y);
        free(one);
    }
    x[3 * n_in + 5] = NAN;
    x[20 * n_in] = INFINITY;
    float *harmed = tiled_product(&o, x, TILE_MAX_ROWS, TILE_MAX_COLS, at_once, split);
    for (size_t r = 0; r < TILE_MAX_ROWS; r++) {
        bool same = memcmp(harmed + r * stride, y + r * stride, TILE_MAX_COLS * sizeof *y) == 0;
        assert_true(same == (r != 3 && r != 20));
        assert_true(same || !isfinite(harmed[r * stride]));
    }
    free(harmed);
    free(x);
    free(y);
    free_tiled_weight(&o);
}

/* A scale of the weight that is NaN, of any payload, makes its column NaN and no other; an infinite
 * one NaN as well where weights are multiplied by it, else infinite. */
static inline void check_tiled_nan(const fast_kernels *k, bool split)
{
    static const uint16_t strange[] = {0x7fff, 0xffff, 0x7e00, 0x7c00};
    float x[32];
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        tiled_weight o;
        new_tiled_weight(&o, k, TACIT_TYPE_Q8_0, 1, false);
        numbers_fill(x, 32, 1, 4);
        memcpy(o.bytes + 7 * o.l.row_bytes, &strange[i], sizeof strange[i]);
        memset(o.bytes + 7 * o.l.row_bytes + 2, 0, 1); /* inf times zero */
        assert_true(fast_weight_pack(NULL, &o.w, k, &o.l, o.panels, 0, TILE_MAX_COLS));
        float *y = tiled_product(&o, x, 1, TILE_MAX_COLS, k->tiles->max_cols, split);
        bool infinite = strange[i] == 0x7c00 && !tiles_are_bf16(k->tiles);
        for (size_t c = 0; c < TILE_MAX_COLS; c++)
            assert_true((infinite ? isinf(y[c]) != 0 : isnan(y[c]) != 0) == (c == 7));
        free(y);
        free_tiled_weight(&o);
    }
}

/* Integers of 16 bits: halves of the step around each value, a scale of a 32767th of the largest.
 */
static inline void check_put_integers(const fast_tiles *t)
{
    const float strange[] = {NAN, -NAN, INFINITY, -INFINITY};
    float x[96], scale[3];
    int16_t tile[1536];
    numbers_fill(x, 96, 3, 1);
    memset(x + 32, 0, 32 * sizeof *x);
    x[64] = -100;
    memset(tile, 0x5a, sizeof tile);
    t->put_row((uint16_t *)tile, NULL, scale, x, 3);
    for (size_t i = 0; i < 1536; i++) {
        size_t b = i / 512, at = b * 32 + i % 512;
        if (i % 512 >= 32)
            assert_int_equal(tile[i], 0x5a5a);
        else
            assert_true(fabs(x[at] - (double)scale[b] * tile[i]) <= 0.501 * (double)scale[b]);
    }
    assert_int_equal(tile[1024], -32767);
    assert_true(scale[1] == 0 && fabsf(scale[2] * 32767 - 100) < 1e-4f);
    for (size_t i = 0; i < 4; i++) {
        x[40] = strange[i];
        t->put_row((uint16_t *)tile, NULL, scale, x, 3);
        assert_true(isnan(scale[1]) && !isnan(scale[0]) && !isnan(scale[2]));
    }
}

/* The nearest bf16 by its definition: of the two around a value the nearer, of two as near the
 * even. What that leaves of a value, and the nearest of it. */
static inline void check_put_bf16(const fast_tiles *t)
{
    float x[64];
    uint16_t tile[1024], low[1024];
    uint64_t seed = 6;
    for (size_t times = 0; times < 200; times++) {
        for (size_t i = 0; i < 64; i++) {
            uint32_t bits = (uint32_t)numbers_next(&seed);
            if (i % 4 == 0)
                bits = (bits & 0xffff0000) | 0x8000; /* halfway */
            memcpy(&x[i], &bits, sizeof bits);
        }
        x[1] = NAN, x[2] = -INFINITY, x[3] = 0, x[5] = -0.0f;
        memset(tile, 0x5a, sizeof tile);
        memset(low, 0x5a, sizeof low);
        t->put_row(tile, times % 2 ? low : NULL, NULL, x, 2);
        for (size_t i = 0; i < 64; i++) {
            uint16_t got = tile[i / 32 * 512 + i % 32], down;
            uint32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            down = (uint16_t)(bits >> 16);
            if (isnan(x[i])) {
                assert_true(isnan(tacit_bf16_to_f32(got)));
                continue;
            }
            uint32_t behind = bits & 0xffff;
            bool up = behind > 0x8000 || (behind == 0x8000 && down % 2 == 1);
            assert_int_equal(got, down + up);
            float left = x[i] - tacit_bf16_to_f32(got);
            uint16_t rest = low[i / 32 * 512 + i % 32];
            if (times % 2 && isfinite(left))
                assert_true(fabsf(tacit_bf16_to_f32(rest) - left) <= fabsf(left) / 256 + 0x1p-134f);
        }
        for (size_t i = 0; i < 1024; i++) {
            assert_true(i % 512 < 32 || tile[i] == 0x5a5a);
            assert_true((times % 2 && i % 512 < 32) || low[i] == 0x5a5a);
        }
    }
}

#endif
