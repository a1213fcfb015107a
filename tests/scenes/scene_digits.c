#include "scenes/scene_paint.h"

#include <string.h>

#define DEJAVU_CAP 0.73 /* height of digits and capitals over the size of the font */

/* Segments a to g as bits 0 to 6. */
static const uint8_t segments_of[10] = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};

/* Ends of each segment in a cell one wide and two high. */
static const double segment_line[7][4] = {{0, 0, 1, 0}, {1, 0, 1, 1}, {1, 1, 1, 2}, {0, 2, 1, 2},
                                          {0, 1, 0, 2}, {0, 0, 0, 1}, {0, 1, 1, 1}};

void scene_colour_set(scene_canvas *c, scene_colour colour)
{
    uint32_t v = c->palette->rgb[colour];
    cairo_set_source_rgb(c->cr, (v >> 16 & 255) / 255.0, (v >> 8 & 255) / 255.0, (v & 255) / 255.0);
}

static void font_set(scene_canvas *c, double height)
{
    bool plain = c->face->segments;
    cairo_select_font_face(c->cr, plain ? "DejaVu Sans" : c->face->family, CAIRO_FONT_SLANT_NORMAL,
                           c->face->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c->cr, height / DEJAVU_CAP);
}

static double font_width(scene_canvas *c, const char *text)
{
    cairo_text_extents_t e;
    cairo_text_extents(c->cr, text, &e);
    return e.x_advance;
}

/* One seven-segment digit with its lower left corner at the origin, y downwards. */
static void segment_digit(scene_canvas *c, char digit, double width, double height)
{
    double thick = height * (c->face->bold ? 0.17 : 0.11), half = thick / 2;
    double w = width - thick, h = (height - thick) / 2;
    cairo_set_line_width(c->cr, thick);
    cairo_set_line_cap(c->cr, CAIRO_LINE_CAP_BUTT);
    for (int i = 0; i < 7; i++) {
        const double *l = segment_line[i];
        double gap = thick * 0.35, dx = l[0] == l[2] ? 0 : gap, dy = l[1] == l[3] ? 0 : gap;
        if (!(segments_of[digit - '0'] >> i & 1))
            continue;
        cairo_move_to(c->cr, half + l[0] * w + dx, half + l[1] * h + dy - height);
        cairo_line_to(c->cr, half + l[2] * w - dx, half + l[3] * h - dy - height);
    }
    cairo_stroke(c->cr);
}

static double glyph_width(scene_canvas *c, char ch, double height)
{
    char text[2] = {ch, '\0'};
    if (c->face->segments && ch >= '0' && ch <= '9')
        return height * 0.72;
    if (ch == ' ')
        return height * 0.2;
    font_set(c, ch == '%' ? height * 0.6 : height);
    return font_width(c, text);
}

static void glyph_paint(scene_canvas *c, char ch, double height)
{
    char text[2] = {ch, '\0'};
    if (c->face->segments && ch >= '0' && ch <= '9') {
        segment_digit(c, ch, height * 0.56, height);
        return;
    }
    font_set(c, ch == '%' ? height * 0.6 : height);
    cairo_move_to(c->cr, 0, 0);
    cairo_show_text(c->cr, text);
}

void scene_paint_text(scene_canvas *c, const char *text, scene_box box, scene_colour colour)
{
    const scene_style *s = c->style;
    double height = box.h * s->digit_scale, width = 0, stretch = s->stretch;
    for (const char *t = text; *t; t++)
        width += glyph_width(c, *t, height);
    if (width * stretch > box.w)
        stretch = box.w / width;
    cairo_save(c->cr);
    scene_colour_set(c, colour);
    cairo_translate(c->cr, box.x + (box.w - width * stretch) / 2, box.y + (box.h + height) / 2);
    cairo_transform(c->cr, &(cairo_matrix_t){stretch, 0, -s->slant, 1, 0, 0});
    for (const char *t = text; *t; t++) {
        glyph_paint(c, *t, height);
        cairo_translate(c->cr, glyph_width(c, *t, height), 0);
    }
    cairo_restore(c->cr);
}
