/* Separable antialiased resampling. Every output pixel is a weighted sum of the source pixels below
 * the filter, which is as wide as the reduction; the sums are taken in 22-bit fixed point along
 * rows, rounded to 8 bits, then along columns, or the other way round. */
#include "engine/image.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FIXED_BITS 22 /* 8 bits of value, 22 of weight, 2 of head room in 32 */

static double filter_bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double filter_bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x);
}

static double filter_lanczos(double x)
{
    return fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
    double (*weight)(double x);
    double support;
} filters[] = {
    [TACIT_IMAGE_BILINEAR] = {filter_bilinear, 1},
    [TACIT_IMAGE_BICUBIC] = {filter_bicubic, 2},
    [TACIT_IMAGE_LANCZOS] = {filter_lanczos, 3},
};

/* The weights of one axis: output i sums `count` source pixels from `first` on. */
typedef struct axis_tap {
    uint32_t first, count;
} axis_tap;

typedef struct axis {
    axis_tap *tap;   /* [out] */
    int32_t *weight; /* [out, width] */
    size_t width;
} axis;

static void axis_free(axis *a)
{
    free(a->tap);
    free(a->weight);
}

/* Weights of one output pixel, normalised in double and then rounded to fixed point. */
static void axis_weights(int32_t *fixed, double *real, axis_tap tap, double center, double shrink,
                         tacit_image_filter filter)
{
    double sum = 0;
    for (uint32_t i = 0; i < tap.count; i++) {
        real[i] = filters[filter].weight(((double)tap.first + i - center + 0.5) * shrink);
        sum += real[i];
    }
    for (uint32_t i = 0; i < tap.count; i++) {
        double w = (sum != 0 ? real[i] / sum : real[i]) * (1 << FIXED_BITS);
        fixed[i] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
    }
}

static tacit_status axis_make(axis *a, uint32_t in, uint32_t out, tacit_image_filter filter,
                              tacit_error *err)
{
    double scale = (double)in / out;
    double stretch = scale > 1 ? scale : 1;
    double support = filters[filter].support * stretch;
    a->width = (size_t)ceil(support) * 2 + 1;
    a->tap = calloc(out, sizeof *a->tap);
    a->weight = calloc(out, a->width * sizeof *a->weight);
    double *real = calloc(a->width, sizeof *real);
    if (!a->tap || !a->weight || !real) {
        free(real);
        axis_free(a);
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to resize %u to %u pixels", in, out);
    }
    for (uint32_t i = 0; i < out; i++) {
        double center = (i + 0.5) * scale;
        double low = center - support + 0.5, high = center + support + 0.5;
        a->tap[i].first = low < 0 ? 0 : (uint32_t)low;
        a->tap[i].count = (high > in ? in : (uint32_t)high) - a->tap[i].first;
        axis_weights(a->weight + i * a->width, real, a->tap[i], center, 1 / stretch, filter);
    }
    free(real);
    return TACIT_OK;
}

static uint8_t to_byte(int64_t sum)
{
    int64_t v = (sum + (1 << (FIXED_BITS - 1))) >> FIXED_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* One output pixel: `stride` is the distance of its source pixels in bytes. */
static void sum_pixel(uint8_t *to, const uint8_t *from, size_t stride, const int32_t *weight,
                      uint32_t count)
{
    int64_t r = 0, g = 0, b = 0;
    for (uint32_t i = 0; i < count; i++, from += stride) {
        r += (int64_t)from[0] * weight[i];
        g += (int64_t)from[1] * weight[i];
        b += (int64_t)from[2] * weight[i];
    }
    to[0] = to_byte(r);
    to[1] = to_byte(g);
    to[2] = to_byte(b);
}

static void along_rows(tacit_image *out, const tacit_image *in, const axis *a)
{
    for (uint32_t y = 0; y < out->height; y++) {
        const uint8_t *row = in->rgb + (size_t)y * in->width * 3;
        uint8_t *to = out->rgb + (size_t)y * out->width * 3;
        for (uint32_t x = 0; x < out->width; x++)
            sum_pixel(to + (size_t)x * 3, row + (size_t)a->tap[x].first * 3, 3,
                      a->weight + x * a->width, a->tap[x].count);
    }
}

static void along_columns(tacit_image *out, const tacit_image *in, const axis *a)
{
    size_t pitch = (size_t)in->width * 3;
    for (uint32_t y = 0; y < out->height; y++) {
        const uint8_t *from = in->rgb + a->tap[y].first * pitch;
        for (uint32_t x = 0; x < out->width; x++)
            sum_pixel(out->rgb + y * pitch + (size_t)x * 3, from + (size_t)x * 3, pitch,
                      a->weight + y * a->width, a->tap[y].count);
    }
}

static tacit_status resize_axis(tacit_image *out, const tacit_image *in, uint32_t width,
                                uint32_t height, tacit_image_filter filter, tacit_error *err)
{
    axis a = {0};
    bool rows = width != in->width;
    tacit_status status =
        axis_make(&a, rows ? in->width : in->height, rows ? width : height, filter, err);
    if (status != TACIT_OK)
        return status;
    status = image_blank(out, width, height, "resizing", err);
    if (status == TACIT_OK)
        (rows ? along_rows : along_columns)(out, in, &a);
    axis_free(&a);
    return status;
}

/* Which way first is Pillow 13's choice, and cannot be another: what a pass cuts off at 0 and 255
 * the second one no longer sees. */
static bool columns_first(const tacit_image *in, uint32_t width, uint32_t height)
{
    int64_t fewer_rows = (int64_t)in->height - height, fewer_columns = (int64_t)in->width - width;
    return fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
}

tacit_status tacit_image_resize(tacit_image *out, const tacit_image *in, uint32_t width,
                                uint32_t height, tacit_image_filter filter, tacit_error *err)
{
    *out = (tacit_image){0};
    bool columns = columns_first(in, width, height);
    uint32_t half_width = columns ? in->width : width, half_height = columns ? height : in->height;
    if (width == 0 || height == 0 || width > TACIT_IMAGE_MAX_SIDE ||
        height > TACIT_IMAGE_MAX_SIDE || (size_t)width * height > TACIT_IMAGE_MAX_PIXELS ||
        (size_t)half_width * half_height > TACIT_IMAGE_MAX_PIXELS)
        return tacit_fail(err, TACIT_BAD_INPUT, "cannot resize %u x %u to %u x %u pixels",
                          in->width, in->height, width, height);
    if (width == in->width && height == in->height)
        return tacit_image_crop(out, in, 0, 0, width, height, err);
    if (width == in->width || height == in->height)
        return resize_axis(out, in, width, height, filter, err);
    tacit_image half;
    tacit_status status = resize_axis(&half, in, half_width, half_height, filter, err);
    if (status == TACIT_OK)
        status = resize_axis(out, &half, width, height, filter, err);
    tacit_image_free(&half);
    return status;
}

tacit_status tacit_image_crop(tacit_image *out, const tacit_image *in, uint32_t x, uint32_t y,
                              uint32_t width, uint32_t height, tacit_error *err)
{
    *out = (tacit_image){0};
    if (width == 0 || height == 0 || x > in->width || width > in->width - x || y > in->height ||
        height > in->height - y)
        return tacit_fail(err, TACIT_USAGE, "rectangle outside of a picture of %u x %u", in->width,
                          in->height);
    tacit_status status = image_blank(out, width, height, "cutting", err);
    for (uint32_t row = 0; status == TACIT_OK && row < height; row++)
        memcpy(out->rgb + (size_t)row * width * 3,
               in->rgb + ((size_t)(y + row) * in->width + x) * 3, (size_t)width * 3);
    return status;
}

void tacit_image_planes(float *planes, const tacit_image *image, const float mean[3],
                        const float std[3])
{
    size_t n = (size_t)image->width * image->height;
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < n; i++)
            planes[c * n + i] = ((float)image->rgb[i * 3 + c] / 255.0f - mean[c]) / std[c];
}
