/* Pictures: JPEG (libjpeg-turbo) and PNG (libpng) from memory to RGB8, resizing, and the planes
 * that a vision tower reads. Stateless, so every function may run on any thread. */
#ifndef TACIT_ENGINE_IMAGE_H
#define TACIT_ENGINE_IMAGE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define TACIT_IMAGE_MAX_SIDE 16384u
#define TACIT_IMAGE_MAX_PIXELS ((size_t)64 << 20)
#define TACIT_IMAGE_MAX_FILE ((size_t)64 << 20) /* bytes of an encoded picture */

/* Owns `rgb`: [height, width, 3], rows from the top, no padding. */
typedef struct tacit_image {
    uint32_t width, height;
    uint8_t *rgb;
} tacit_image;

void tacit_image_free(tacit_image *image);

/* Black pixels, judged before they are taken (common/memory_limit.h). `name` is what errors call
 * the picture. */
tacit_status image_blank(tacit_image *out, uint32_t width, uint32_t height, const char *name,
                         tacit_error *err) TACIT_MUST_CHECK;

/* Decodes by content, never by file name. `name` is what errors call it. Grey, palette, alpha
 * (dropped, as Pillow's convert("RGB") does), 16 bits a sample (the high byte) and CMYK are
 * converted; EXIF orientation is not applied, as in Pillow. TACIT_BAD_INPUT: neither JPEG nor PNG,
 * truncated, corrupt, a side of zero or above TACIT_IMAGE_MAX_SIDE, more pixels than
 * TACIT_IMAGE_MAX_PIXELS. Sizes are judged before anything of that size is allocated:
 * TACIT_NO_MEMORY says what the picture needs and what is available. */
tacit_status tacit_image_decode(tacit_image *out, const void *data, size_t size, const char *name,
                                tacit_error *err) TACIT_MUST_CHECK;

typedef enum tacit_image_filter {
    TACIT_IMAGE_BILINEAR, /* triangle, support 1 */
    TACIT_IMAGE_BICUBIC,  /* Keys 1981 with a = -0.5, support 2 */
    TACIT_IMAGE_LANCZOS   /* sinc windowed by sinc, support 3 */
} tacit_image_filter;

/* Antialiased separable resampling with half-pixel centres, rounded to 8 bits between the passes,
 * equal to Pillow 13's: the filter widens with the reduction, weights are rounded to 22-bit fixed
 * point, columns go first where the height shrinks by more than twice what the width does. (Earlier
 * Pillows always take rows first.) A size equal to the source's copies it. TACIT_BAD_INPUT for a
 * side of zero or sizes, also between the passes, above the caps; TACIT_NO_MEMORY. */
tacit_status tacit_image_resize(tacit_image *out, const tacit_image *in, uint32_t width,
                                uint32_t height, tacit_image_filter filter,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Copies the rectangle [y, y + height) x [x, x + width); TACIT_USAGE unless it lies inside. */
tacit_status tacit_image_crop(tacit_image *out, const tacit_image *in, uint32_t x, uint32_t y,
                              uint32_t width, uint32_t height, tacit_error *err) TACIT_MUST_CHECK;

/* planes[3, height, width] = (v / 255 - mean) / std per channel. */
void tacit_image_planes(float *planes, const tacit_image *image, const float mean[3],
                        const float std[3]);

#endif
