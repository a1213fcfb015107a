/* Faces and palettes of the three style splits, and the ranges from which a split draws. */
#include "scenes/scene_paint.h"

#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))

const scene_face scene_faces[] = {
    /* P */
    {"DejaVu Sans", false, false, SCENE_PRETRAIN},
    {"DejaVu Sans", true, false, SCENE_PRETRAIN},
    {"DejaVu Sans Mono", true, false, SCENE_PRETRAIN},
    {"", true, true, SCENE_PRETRAIN},
    /* H */
    {"DejaVu Serif", true, false, SCENE_REHEARSAL},
    {"", false, true, SCENE_REHEARSAL},
    /* F */
    {"DejaVu Sans Mono", false, false, SCENE_FLEET},
    {"DejaVu Serif", false, false, SCENE_FLEET},
};

/* background, panel, digits, second colour, line, lamp */
const scene_palette scene_palettes[] = {
    {{0x101418, 0x1c242c, 0xf4f6f8, 0x6fc3ff, 0x39d98a, 0xffb020}, SCENE_PRETRAIN},
    {{0x000000, 0x141414, 0x5dff6a, 0x35d0ff, 0xffe14d, 0xff5a4d}, SCENE_PRETRAIN},
    {{0x0a1630, 0x12244a, 0xffffff, 0x7df0e0, 0x9bff6b, 0xff9f40}, SCENE_PRETRAIN},
    {{0xe8ecef, 0xffffff, 0x14181c, 0x0050a0, 0x007848, 0xc03020}, SCENE_PRETRAIN},
    {{0x24120a, 0x3a2012, 0xffc56b, 0xff8a50, 0xffe9b0, 0xff5040}, SCENE_PRETRAIN},
    {{0xd8d2c0, 0xeae6d8, 0x2a2018, 0x7a3010, 0x205080, 0xa02060}, SCENE_PRETRAIN},
    {{0x1a1028, 0x2c1c44, 0xe8dcff, 0xff7ad0, 0x70e0ff, 0xffd050}, SCENE_PRETRAIN},
    {{0x303438, 0x44494e, 0xffffff, 0xb8ff70, 0xffd860, 0xff7060}, SCENE_PRETRAIN},
    {{0x062018, 0x0c3426, 0xb8ffe0, 0xffe070, 0x60b0ff, 0xff8060}, SCENE_REHEARSAL},
    {{0xc8d8e8, 0xdfeaf4, 0x102050, 0x803060, 0x106030, 0xb04000}, SCENE_REHEARSAL},
    {{0x400c18, 0x5c1826, 0xffe8e0, 0xffc080, 0x90ffd0, 0xffff70}, SCENE_REHEARSAL},
    {{0x101010, 0x282420, 0xff9a3c, 0xffd0a0, 0xc0c0ff, 0x60ff90}, SCENE_REHEARSAL},
    {{0x001c2c, 0x002f48, 0xffe98a, 0x8affc0, 0xff9ad0, 0xff6a30}, SCENE_FLEET},
    {{0xf0e4d0, 0xfff6e6, 0x3c1450, 0x006868, 0x903000, 0x2040c0}, SCENE_FLEET},
    {{0x202a12, 0x32401e, 0xe6ffb0, 0xffb0a0, 0x90e8ff, 0xffe040}, SCENE_FLEET},
    {{0x2c2c3c, 0x404056, 0xa8d8ff, 0xffc890, 0xb0ffa0, 0xff80a0}, SCENE_FLEET},
};

/* What a split's styles range over. */
typedef struct style_range {
    double slant_low, slant_high;
    double stretch_low, stretch_high;
    double scale_low, scale_high;
    double glare, blur, noise; /* largest */
    int quality_low, quality_high;
} style_range;

static const style_range ranges[] = {
    [SCENE_PRETRAIN] = {-0.05, 0.15, 0.88, 1.08, 0.92, 1.08, 0.35, 0.5, 6, 82, 95},
    [SCENE_REHEARSAL] = {-0.20, 0.20, 0.68, 0.90, 0.74, 0.92, 0.50, 0.8, 14, 60, 85},
    [SCENE_FLEET] = {-0.20, 0.20, 0.68, 0.90, 0.74, 0.92, 0.50, 0.8, 14, 60, 85},
};

static int draw_face(scene_split split, scene_prng *prng)
{
    int list[COUNT_OF(scene_faces)], n = 0;
    for (size_t i = 0; i < COUNT_OF(scene_faces); i++)
        if (scene_faces[i].split == split)
            list[n++] = (int)i;
    return list[scene_prng_range(prng, 0, n - 1)];
}

static int draw_palette(scene_split split, scene_prng *prng)
{
    int list[COUNT_OF(scene_palettes)], n = 0;
    for (size_t i = 0; i < COUNT_OF(scene_palettes); i++)
        if (scene_palettes[i].split == split)
            list[n++] = (int)i;
    return list[scene_prng_range(prng, 0, n - 1)];
}

void scene_draw_style(scene_style *style, scene_split split, scene_prng *prng)
{
    const style_range *r = &ranges[split];
    *style = (scene_style){
        .face = draw_face(split, prng),
        .palette = draw_palette(split, prng),
        .layout = scene_prng_range(prng, 0, SCENE_LAYOUTS - 1),
        .slant = scene_prng_between(prng, r->slant_low, r->slant_high),
        .stretch = scene_prng_between(prng, r->stretch_low, r->stretch_high),
        .digit_scale = scene_prng_between(prng, r->scale_low, r->scale_high),
        .glare = scene_prng_between(prng, 0, r->glare),
        .blur = scene_prng_between(prng, 0, r->blur),
        .noise = scene_prng_between(prng, 0, r->noise),
        .jpeg_quality = scene_prng_range(prng, r->quality_low, r->quality_high),
        .gauges = scene_prng_chance(prng, 0.7),
    };
}

bool scene_style_in_split(const scene_style *style, scene_split split)
{
    return scene_faces[style->face].split == split && scene_palettes[style->palette].split == split;
}
