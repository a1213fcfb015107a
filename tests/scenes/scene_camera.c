/* What lies between a display and its picture. Integer arithmetic, so that the bytes do not depend
 * on how a compiler contracts floating point. */
#include "scenes/scene_paint.h"

#include <string.h>

static int clamp(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* A bright spot that fades out with the square of the distance. */
static void add_glare(uint8_t *rgb, double strength, scene_prng *prng)
{
    int cx = scene_prng_range(prng, 8, SCENE_SIZE - 9),
        cy = scene_prng_range(prng, 8, SCENE_SIZE - 9);
    int radius = scene_prng_range(prng, 18, 36), peak = (int)(strength * 256);
    for (int y = 0; y < SCENE_SIZE; y++) {
        for (int x = 0; x < SCENE_SIZE; x++) {
            int d2 = (x - cx) * (x - cx) + (y - cy) * (y - cy), r2 = radius * radius;
            uint8_t *p = rgb + (y * SCENE_SIZE + x) * 3;
            if (d2 >= r2)
                continue;
            int weight = peak * (r2 - d2) / r2;
            for (int k = 0; k < 3; k++)
                p[k] = (uint8_t)(p[k] + (255 - p[k]) * weight / 256);
        }
    }
}

/* Mixes every pixel with the mean of its 3x3 neighbourhood. */
static void add_blur(uint8_t *rgb, double radius)
{
    static const int step = SCENE_SIZE * 3;
    uint8_t from[SCENE_RGB_BYTES];
    int mix = (int)(radius * 256);
    memcpy(from, rgb, sizeof from);
    for (int y = 1; y < SCENE_SIZE - 1; y++) {
        for (int i = 3; i < step - 3; i++) {
            const uint8_t *p = from + y * step + i;
            int sum = 0;
            for (int dy = -step; dy <= step; dy += step)
                sum += p[dy - 3] + p[dy] + p[dy + 3];
            rgb[y * step + i] = (uint8_t)((p[0] * (256 - mix) + sum * mix / 9) / 256);
        }
    }
}

/* The sum of four uniform bytes: nearly normal, standard deviation 147.8. */
static void add_noise(uint8_t *rgb, double deviation, scene_prng *prng)
{
    int scale = (int)(deviation * 65536 / 147.8);
    for (int i = 0; i < SCENE_RGB_BYTES; i += 2) {
        uint64_t bits = scene_prng_u64(prng);
        for (int k = 0; k < 2; k++, bits >>= 32) {
            int sum = (int)(bits & 255) + (int)(bits >> 8 & 255) + (int)(bits >> 16 & 255) +
                      (int)(bits >> 24 & 255) - 510;
            rgb[i + k] = (uint8_t)clamp(rgb[i + k] + sum * scale / 65536);
        }
    }
}

void scene_camera(uint8_t rgb[SCENE_RGB_BYTES], const scene_style *style, scene_prng *prng)
{
    if (style->glare > 0)
        add_glare(rgb, style->glare, prng);
    if (style->blur > 0)
        add_blur(rgb, style->blur);
    if (style->noise > 0)
        add_noise(rgb, style->noise, prng);
}
