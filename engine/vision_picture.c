#include "engine/vision_picture.h"

#include "engine/kernels.h"
#include "engine/ops.h"

#include <math.h>
#include <string.h>

/* Numbers here are what the models' processors compute in double, so that every comparison falls
 * alike: a picture must not become another number of rows than the model was trained with. */

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* The size that shows most of the picture, and of those the one that wastes least. */
static const uint32_t *best_size(const vision_shape *s, double width, double height)
{
    const uint32_t *best = s->pinpoint[0];
    double most = 0, least_wasted = INFINITY;
    for (uint32_t i = 0; i < s->pinpoints; i++) {
        double w = s->pinpoint[i][0], h = s->pinpoint[i][1];
        double scale = least(w / width, h / height);
        double shown = least(floor(width * scale) * floor(height * scale), width * height);
        double wasted = w * h - shown;
        if (shown > most || (shown == most && wasted < least_wasted)) {
            best = s->pinpoint[i];
            most = shown;
            least_wasted = wasted;
        }
    }
    return best;
}

/* The picture scaled into w x h pixels, its shape kept. */
static void fit(vision_arrangement *a, uint32_t w, uint32_t h, double width, double height)
{
    double scale_w = w / width, scale_h = h / height;
    a->width = scale_w < scale_h ? w : (uint32_t)least(ceil(width * scale_h), w);
    a->height = scale_w < scale_h ? (uint32_t)least(ceil(height * scale_w), h) : h;
}

/* What of rows x cols features lies on the picture. Integers give what the processors' rounding at
 * seven decimals gives: a quotient is whole or at least 1 / 16384 from it. */
static void unpad(vision_arrangement *a, uint64_t width, uint64_t height)
{
    if (width * a->rows > (uint64_t)a->cols * height) {
        a->top = (a->rows - (uint32_t)(height * a->cols / width)) / 2;
        a->rows -= 2 * a->top;
    } else {
        a->left = (a->cols - (uint32_t)(width * a->rows / height)) / 2;
        a->cols -= 2 * a->left;
    }
}

/* Python's a // b. */
static uint32_t floor_divide(double a, double b)
{
    double whole = (a - fmod(a, b)) / b, down = floor(whole);
    return (uint32_t)(whole - down > 0.5 ? down + 1 : down);
}

static void scale_down(vision_arrangement *a, const vision_shape *s)
{
    a->out_rows = a->rows;
    a->out_cols = a->cols;
    if (s->max_tiles == 0)
        return;
    double ratio = sqrt((double)((uint64_t)a->rows * a->cols) /
                        (double)((uint64_t)s->max_tiles * s->grid * s->grid));
    if (ratio > 1.1) {
        a->out_rows = floor_divide(a->rows, ratio);
        a->out_cols = floor_divide(a->cols, ratio);
    }
}

void vision_arrange(vision_arrangement *out, const vision_shape *s, uint32_t width, uint32_t height)
{
    *out = (vision_arrangement){.frames = 1, .total = (size_t)s->rows + s->newline};
    if (width == 0 || height == 0 || s->cut != VISION_CUT_ANYRES)
        return;
    const uint32_t *size = best_size(s, width, height);
    out->grid_cols = size[0] / s->image_size;
    out->grid_rows = size[1] / s->image_size;
    fit(out, size[0], size[1], width, height);
    out->rows = out->grid_rows * s->grid;
    out->cols = out->grid_cols * s->grid;
    unpad(out, width, height);
    scale_down(out, s);
    out->frames = 1 + (size_t)out->grid_rows * out->grid_cols;
    out->total = s->rows + (size_t)out->out_rows * (out->out_cols + s->newline);
}

/* Where feature (y, x) of what is kept lies among the frames' rows, in floats. */
static size_t feature_at(const vision_arrangement *a, const vision_shape *s, uint32_t y, uint32_t x)
{
    uint32_t row = a->top + y, col = a->left + x;
    size_t frame = 1 + (size_t)(row / s->grid) * a->grid_cols + col / s->grid;
    return (frame * s->rows + row % s->grid * s->grid + col % s->grid) * s->out_width;
}

/* One axis of bilinear scaling with half-pixel centres: two neighbours and the second one's
 * weight. */
typedef struct tap {
    uint32_t at[2];
    float weight;
} tap;

static tap tap_of(uint32_t i, uint32_t out, uint32_t in)
{
    double at = (i + 0.5) * in / out - 0.5;
    uint32_t low = at < 0 ? 0 : (uint32_t)at;
    return (tap){{low, low + 1 < in ? low + 1 : low}, at < 0 ? 0 : (float)(at - low)};
}

/* The up to four features that output (y, x) is made of, with their weights. */
static size_t sources(const vision_arrangement *a, const vision_shape *s, uint32_t y, uint32_t x,
                      size_t at[4], float weight[4])
{
    tap row = tap_of(y, a->out_rows, a->rows), col = tap_of(x, a->out_cols, a->cols);
    size_t n = 0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            float w = (i ? row.weight : 1 - row.weight) * (j ? col.weight : 1 - col.weight);
            if (w == 0)
                continue;
            at[n] = feature_at(a, s, row.at[i], col.at[j]);
            weight[n++] = w;
        }
    return n;
}

void vision_join(const vision_arrangement *a, const vision_shape *s, float *rows,
                 const float *frames, const float *newline)
{
    size_t width = s->out_width, at[4];
    float weight[4];
    memcpy(rows, frames, s->rows * width * sizeof *rows);
    rows += s->rows * width;
    if (a->frames == 1 && s->newline)
        memcpy(rows, newline, width * sizeof *rows);
    for (uint32_t y = 0; y < a->out_rows; y++) {
        for (uint32_t x = 0; x < a->out_cols; x++, rows += width) {
            size_t n = sources(a, s, y, x, at, weight);
            memset(rows, 0, width * sizeof *rows);
            for (size_t i = 0; i < n; i++)
                kernels()->axpy(rows, weight[i], frames + at[i], width);
        }
        if (s->newline) {
            memcpy(rows, newline, width * sizeof *rows);
            rows += width;
        }
    }
}

void vision_join_backward(const vision_arrangement *a, const vision_shape *s, float *d_frames,
                          float *d_newline, const float *d_rows)
{
    size_t width = s->out_width, at[4];
    float weight[4];
    memset(d_frames, 0, a->frames * s->rows * width * sizeof *d_frames);
    memcpy(d_frames, d_rows, s->rows * width * sizeof *d_frames);
    d_rows += s->rows * width;
    if (a->frames == 1 && s->newline && d_newline)
        ops_add(d_newline, d_rows, width);
    for (uint32_t y = 0; y < a->out_rows; y++) {
        for (uint32_t x = 0; x < a->out_cols; x++, d_rows += width) {
            size_t n = sources(a, s, y, x, at, weight);
            for (size_t i = 0; i < n; i++)
                kernels()->axpy(d_frames + at[i], weight[i], d_rows, width);
        }
        if (s->newline) {
            if (d_newline)
                ops_add(d_newline, d_rows, width);
            d_rows += width;
        }
    }
}
