/* Inside the renderer: faces, palettes and the painters that scene_draw.c puts together. */
#ifndef TACIT_SCENES_PAINT_H
#define TACIT_SCENES_PAINT_H

#include "scenes/scene.h"

#include <cairo.h>

typedef struct scene_face {
    const char *family;
    bool bold;     /* thick strokes where `segments` */
    bool segments; /* seven-segment digits drawn as polygons */
    scene_split split;
} scene_face;

typedef enum scene_colour {
    SCENE_BACKGROUND,
    SCENE_PANEL,
    SCENE_DIGITS,
    SCENE_SECOND,
    SCENE_LINE,
    SCENE_LIT,
    SCENE_COLOURS
} scene_colour;

typedef struct scene_palette {
    uint32_t rgb[SCENE_COLOURS]; /* 0xrrggbb */
    scene_split split;
} scene_palette;

extern const scene_face scene_faces[];
extern const scene_palette scene_palettes[];

/* The surface being painted, with what every painter needs. */
typedef struct scene_canvas {
    cairo_t *cr;
    const scene_style *style;
    const scene_face *face;
    const scene_palette *palette;
    scene_prng prng; /* of jitter */
} scene_canvas;

typedef struct scene_box {
    double x, y, w, h;
} scene_box;

void scene_colour_set(scene_canvas *c, scene_colour colour);

/* scene_digits.c: glyphs in cells `cell` wide that fill the box from its right edge, so that units
 * stand below units in every picture. */
void scene_paint_text(scene_canvas *c, const char *text, scene_box box, double cell,
                      scene_colour colour);

/* scene_icons.c: all fill the box. */
void scene_paint_lamp(scene_canvas *c, int state, scene_box box);
void scene_paint_arrow(scene_canvas *c, bool left, bool lit, scene_box box);
void scene_paint_bell(scene_canvas *c, int alarm, scene_box box);

/* scene_traces.c: the waveform of a state, and the pulse wave below it. */
void scene_paint_trace(scene_canvas *c, int state, scene_box box);
void scene_paint_pulse(scene_canvas *c, scene_box box);

/* scene_camera.c: glare, blur and noise of the style, in place. */
void scene_camera(uint8_t rgb[SCENE_RGB_BYTES], const scene_style *style, scene_prng *prng);

#endif
