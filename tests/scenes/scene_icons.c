/* Telltales, arrows and the bell. Each painter works in a unit square scaled to the box. */
#include "scenes/scene_paint.h"

#include <math.h>

static void unit_begin(scene_canvas *c, scene_box box, double line)
{
    cairo_save(c->cr);
    cairo_translate(c->cr, box.x, box.y);
    cairo_scale(c->cr, box.w, box.h);
    cairo_set_line_width(c->cr, line);
    cairo_set_line_cap(c->cr, CAIRO_LINE_CAP_ROUND);
    cairo_set_line_join(c->cr, CAIRO_LINE_JOIN_ROUND);
}

static void line(cairo_t *cr, double x0, double y0, double x1, double y1)
{
    cairo_move_to(cr, x0, y0);
    cairo_line_to(cr, x1, y1);
    cairo_stroke(cr);
}

static void circle(cairo_t *cr, double x, double y, double r)
{
    cairo_new_sub_path(cr);
    cairo_arc(cr, x, y, r, 0, 2 * M_PI);
}

static void drop_path(cairo_t *cr)
{
    cairo_move_to(cr, 0.5, 0.02);
    cairo_curve_to(cr, 0.62, 0.30, 0.86, 0.46, 0.86, 0.66);
    cairo_curve_to(cr, 0.86, 0.86, 0.70, 0.98, 0.5, 0.98);
    cairo_curve_to(cr, 0.30, 0.98, 0.14, 0.86, 0.14, 0.66);
    cairo_curve_to(cr, 0.14, 0.46, 0.38, 0.30, 0.5, 0.02);
    cairo_close_path(cr);
}

static void lamp_oil(cairo_t *cr)
{
    drop_path(cr);
    cairo_fill(cr);
}

static void lamp_battery(cairo_t *cr)
{
    cairo_rectangle(cr, 0.06, 0.28, 0.88, 0.58);
    cairo_stroke(cr);
    cairo_rectangle(cr, 0.16, 0.10, 0.18, 0.18);
    cairo_rectangle(cr, 0.66, 0.10, 0.18, 0.18);
    cairo_fill(cr);
    line(cr, 0.18, 0.57, 0.40, 0.57);
    line(cr, 0.60, 0.57, 0.82, 0.57);
    line(cr, 0.71, 0.46, 0.71, 0.68);
}

static void lamp_hazard(cairo_t *cr)
{
    cairo_move_to(cr, 0.5, 0.08);
    cairo_line_to(cr, 0.95, 0.90);
    cairo_line_to(cr, 0.05, 0.90);
    cairo_close_path(cr);
    cairo_stroke(cr);
    line(cr, 0.5, 0.38, 0.5, 0.60);
    circle(cr, 0.5, 0.76, 0.05);
    cairo_fill(cr);
}

static void lamp_brake(cairo_t *cr)
{
    circle(cr, 0.5, 0.5, 0.27);
    cairo_fill(cr);
    cairo_arc(cr, 0.5, 0.5, 0.44, M_PI * 0.70, M_PI * 1.30);
    cairo_stroke(cr);
    cairo_arc(cr, 0.5, 0.5, 0.44, M_PI * 1.70, M_PI * 2.30);
    cairo_stroke(cr);
}

static void lamp_heat(cairo_t *cr)
{
    circle(cr, 0.36, 0.74, 0.19);
    cairo_fill(cr);
    cairo_rectangle(cr, 0.27, 0.06, 0.18, 0.6);
    cairo_fill(cr);
    for (int i = 0; i < 3; i++)
        line(cr, 0.60, 0.16 + 0.2 * i, 0.88, 0.16 + 0.2 * i);
}

static void lamp_tyre(cairo_t *cr)
{
    cairo_move_to(cr, 0.30, 0.06);
    cairo_curve_to(cr, -0.06, 0.40, 0.04, 0.80, 0.24, 0.86);
    cairo_line_to(cr, 0.76, 0.86);
    cairo_curve_to(cr, 0.96, 0.80, 1.06, 0.40, 0.70, 0.06);
    cairo_stroke(cr);
    line(cr, 0.5, 0.20, 0.5, 0.52);
    circle(cr, 0.5, 0.69, 0.05);
    cairo_fill(cr);
}

static void lamp_wheel(cairo_t *cr)
{
    circle(cr, 0.5, 0.5, 0.43);
    cairo_stroke(cr);
    circle(cr, 0.5, 0.5, 0.12);
    cairo_fill(cr);
    line(cr, 0.10, 0.46, 0.5, 0.5);
    line(cr, 0.90, 0.46, 0.5, 0.5);
    line(cr, 0.5, 0.5, 0.5, 0.9);
}

static void lamp_belt(cairo_t *cr)
{
    circle(cr, 0.58, 0.16, 0.13);
    cairo_fill(cr);
    line(cr, 0.12, 0.10, 0.88, 0.90);
    line(cr, 0.30, 0.92, 0.84, 0.44);
}

void scene_paint_lamp(scene_canvas *c, int state, scene_box box)
{
    static void (*const paint[SCENE_STATES])(cairo_t *) = {lamp_oil,   lamp_battery, lamp_hazard,
                                                           lamp_brake, lamp_heat,    lamp_tyre,
                                                           lamp_wheel, lamp_belt};
    unit_begin(c, box, 0.11);
    scene_colour_set(c, SCENE_LIT);
    paint[state](c->cr);
    cairo_restore(c->cr);
}

void scene_paint_arrow(scene_canvas *c, bool left, bool lit, scene_box box)
{
    static const double point[7][2] = {{0, 0.5}, {0.5, 0},   {0.5, 0.3}, {1, 0.3},
                                       {1, 0.7}, {0.5, 0.7}, {0.5, 1}};
    unit_begin(c, box, 0.08);
    for (int i = 0; i < 7; i++)
        cairo_line_to(c->cr, left ? point[i][0] : 1 - point[i][0], point[i][1]);
    cairo_close_path(c->cr);
    scene_colour_set(c, lit ? SCENE_LINE : SCENE_PANEL);
    cairo_fill(c->cr);
    cairo_restore(c->cr);
}

static void bell_path(cairo_t *cr)
{
    cairo_move_to(cr, 0.22, 0.74);
    cairo_curve_to(cr, 0.32, 0.60, 0.24, 0.20, 0.5, 0.18);
    cairo_curve_to(cr, 0.76, 0.20, 0.68, 0.60, 0.78, 0.74);
    cairo_close_path(cr);
}

void scene_paint_bell(scene_canvas *c, int alarm, scene_box box)
{
    unit_begin(c, box, 0.09);
    scene_colour_set(c, alarm == 0 ? SCENE_SECOND : SCENE_LIT);
    bell_path(c->cr);
    if (alarm == 0)
        cairo_stroke(c->cr);
    else
        cairo_fill(c->cr);
    circle(c->cr, 0.5, 0.84, 0.08);
    cairo_fill(c->cr);
    if (alarm == 0)
        line(c->cr, 0.08, 0.08, 0.92, 0.92);
    for (int i = 0; alarm == 2 && i < 2; i++) {
        double x = i ? 0.98 : 0.02, inner = i ? 0.86 : 0.14;
        line(c->cr, inner, 0.10, x, 0.02);
        line(c->cr, inner, 0.34, x, 0.34);
        line(c->cr, inner, 0.58, x, 0.66);
    }
    cairo_restore(c->cr);
}
