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

/* One seven-segment digit, its lower left corner at the origin, y downwards. */
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

/* One glyph in the middle of its cell, at most as wide as the cell. */
static void paint_glyph(scene_canvas *c, char ch, scene_box cell)
{
    const scene_style *s = c->style;
    bool segments = c->face->segments && ch >= '0' && ch <= '9';
    double height = cell.h * s->digit_scale, width = height * 0.6, left = 0;
    char text[2] = {ch, '\0'};
    cairo_text_extents_t e;
    if (!segments) {
        font_set(c, height);
        cairo_text_extents(c->cr, text, &e);
        width = e.width;
        left = e.x_bearing;
    }
    double stretch = s->stretch, most = cell.w - 1;
    if (width * stretch > most)
        stretch = most / width;
    cairo_save(c->cr);
    cairo_translate(c->cr, cell.x + cell.w / 2, cell.y + (cell.h + height) / 2);
    cairo_transform(c->cr, &(cairo_matrix_t){stretch, 0, -s->slant, 1, s->slant * height / 2, 0});
    cairo_translate(c->cr, -width / 2 - left, 0);
    if (segments) {
        segment_digit(c, ch, width, height);
    } else {
        cairo_move_to(c->cr, 0, 0);
        cairo_show_text(c->cr, text);
        cairo_new_path(c->cr); /* text leaves a current point behind */
    }
    cairo_restore(c->cr);
}

void scene_paint_text(scene_canvas *c, const char *text, scene_box box, double cell,
                      scene_colour colour)
{
    size_t n = strlen(text);
    scene_colour_set(c, colour);
    for (size_t i = 0; i < n; i++)
        paint_glyph(c, text[i],
                    (scene_box){box.x + box.w - cell * (double)(n - i), box.y, cell, box.h});
}
