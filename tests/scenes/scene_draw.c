/* Puts a scene together: two layouts of each kind, every element with a little jitter. */
#include "scenes/scene_paint.h"

#include <stdio.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>

/* fontconfig keeps the patterns of the faces it has resolved until the process ends. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig";
}
#endif

#define CELL 16.0 /* of a digit: two patches of the tower */

/* Places of a kind's elements. Digits keep their cells in both layouts; what moves is what people
 * do not read: bars, dial and the second waveform. */
static const scene_box speed_box = {24, 2, 48, 20}, left_box = {1, 3, 20, 18},
                       right_box = {75, 3, 20, 18}, lamp_box = {4, 35, 28, 28},
                       gear_box = {60, 38, 22, 22}, fuel_box = {44, 74, 32, 20},
                       fuel_sign = {78, 78, 14, 12};
static const scene_box trace_box = {2, 2, 44, 22}, heart_box = {48, 3, 48, 20},
                       oxygen_box = {48, 27, 32, 20}, oxygen_sign = {81, 31, 13, 12},
                       systolic_box = {0, 51, 48, 20}, diastolic_box = {0, 74, 48, 20},
                       bell_box = {60, 56, 30, 30};

static const scene_box dial_boxes[SCENE_LAYOUTS] = {{24, 25, 48, 6}, {2, 66, 92, 4}};
static const scene_box bar_boxes[SCENE_LAYOUTS] = {{3, 76, 36, 14}, {38, 40, 12, 22}};
static const scene_box pulse_boxes[SCENE_LAYOUTS] = {{2, 29, 42, 16}, {52, 88, 42, 7}};

static scene_box jitter(scene_canvas *c, scene_box box)
{
    box.x += scene_prng_between(&c->prng, -1, 1);
    box.y += scene_prng_between(&c->prng, -1, 1);
    return box;
}

static void paint_number(scene_canvas *c, int value, scene_box box, scene_colour colour)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    scene_paint_text(c, text, jitter(c, box), CELL, colour);
}

/* A scale of eleven ticks with a pointer. */
static void paint_dial(scene_canvas *c, int speed, scene_box box)
{
    scene_colour_set(c, SCENE_SECOND);
    cairo_set_line_width(c->cr, 1);
    for (int i = 0; i <= 10; i++) {
        cairo_move_to(c->cr, box.x + box.w * i / 10, box.y + box.h / 2);
        cairo_line_to(c->cr, box.x + box.w * i / 10, box.y + box.h);
    }
    cairo_stroke(c->cr);
    scene_colour_set(c, SCENE_LIT);
    cairo_set_line_width(c->cr, 2.5);
    cairo_move_to(c->cr, box.x + box.w * speed / 200, box.y);
    cairo_line_to(c->cr, box.x + box.w * speed / 200, box.y + box.h);
    cairo_stroke(c->cr);
}

/* Fills along the longer side. */
static void paint_bar(scene_canvas *c, int percent, scene_box box)
{
    double part = percent / 100.0;
    scene_colour_set(c, SCENE_PANEL);
    cairo_rectangle(c->cr, box.x, box.y, box.w, box.h);
    cairo_fill(c->cr);
    scene_colour_set(c, SCENE_SECOND);
    if (box.w > box.h)
        cairo_rectangle(c->cr, box.x, box.y, box.w * part, box.h);
    else
        cairo_rectangle(c->cr, box.x, box.y + box.h * (1 - part), box.w, box.h * part);
    cairo_fill(c->cr);
}

static void paint_fuel(scene_canvas *c, const scene *s)
{
    if (s->style.gauges)
        paint_bar(c, s->value[SCENE_FUEL], bar_boxes[s->style.layout]);
    paint_number(c, s->value[SCENE_FUEL], fuel_box, SCENE_SECOND);
    scene_paint_text(c, "%", fuel_sign, fuel_sign.w, SCENE_SECOND);
}

static void paint_cluster(scene_canvas *c, const scene *s)
{
    if (s->shown[SCENE_SPEED]) {
        if (s->style.gauges)
            paint_dial(c, s->value[SCENE_SPEED], dial_boxes[s->style.layout]);
        paint_number(c, s->value[SCENE_SPEED], speed_box, SCENE_DIGITS);
    }
    if (s->shown[SCENE_FUEL])
        paint_fuel(c, s);
    if (s->shown[SCENE_GEAR]) {
        char text[SCENE_TEXT_MAX];
        scene_answer(s, SCENE_GEAR, text);
        scene_paint_text(c, text, jitter(c, gear_box), gear_box.w, SCENE_LINE);
    }
    if (s->shown[SCENE_TURN]) {
        scene_paint_arrow(c, true, s->value[SCENE_TURN] == 1, jitter(c, left_box));
        scene_paint_arrow(c, false, s->value[SCENE_TURN] == 2, jitter(c, right_box));
    }
    if (s->shown[SCENE_LAMP])
        scene_paint_lamp(c, s->value[SCENE_LAMP], jitter(c, lamp_box));
}

/* Systolic over diastolic with a line between, as a fraction. */
static void paint_pressure(scene_canvas *c, int value)
{
    paint_number(c, value / 1000, systolic_box, SCENE_DIGITS);
    paint_number(c, value % 1000, diastolic_box, SCENE_DIGITS);
    cairo_set_line_width(c->cr, 1.5);
    cairo_move_to(c->cr, systolic_box.x + 2, 72.5);
    cairo_line_to(c->cr, systolic_box.x + systolic_box.w - 2, 72.5);
    cairo_stroke(c->cr);
}

static void paint_oxygen(scene_canvas *c, const scene *s)
{
    if (s->style.gauges)
        scene_paint_pulse(c, pulse_boxes[s->style.layout]);
    paint_number(c, s->value[SCENE_OXYGEN], oxygen_box, SCENE_SECOND);
    scene_paint_text(c, "%", oxygen_sign, oxygen_sign.w, SCENE_SECOND);
}

static void paint_monitor(scene_canvas *c, const scene *s)
{
    if (s->shown[SCENE_TRACE])
        scene_paint_trace(c, s->value[SCENE_TRACE], jitter(c, trace_box));
    if (s->shown[SCENE_HEART])
        paint_number(c, s->value[SCENE_HEART], heart_box, SCENE_DIGITS);
    if (s->shown[SCENE_OXYGEN])
        paint_oxygen(c, s);
    if (s->shown[SCENE_PRESSURE])
        paint_pressure(c, s->value[SCENE_PRESSURE]);
    if (s->shown[SCENE_ALARM])
        scene_paint_bell(c, s->value[SCENE_ALARM], jitter(c, bell_box));
}

static void fonts_plain(cairo_t *cr)
{
    cairo_font_options_t *options = cairo_font_options_create();
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_set_font_options(cr, options);
    cairo_font_options_destroy(options);
}

static void copy_rgb(uint8_t *rgb, cairo_surface_t *surface)
{
    const uint8_t *data = cairo_image_surface_get_data(surface);
    int stride = cairo_image_surface_get_stride(surface);
    for (int y = 0; y < SCENE_SIZE; y++) {
        for (int x = 0; x < SCENE_SIZE; x++) {
            uint32_t pixel;
            memcpy(&pixel, data + y * stride + x * 4, sizeof pixel);
            uint8_t *to = rgb + (y * SCENE_SIZE + x) * 3;
            to[0] = (uint8_t)(pixel >> 16);
            to[1] = (uint8_t)(pixel >> 8);
            to[2] = (uint8_t)pixel;
        }
    }
}

tacit_status scene_draw(const scene *s, uint8_t rgb[SCENE_RGB_BYTES], tacit_error *err)
{
    cairo_surface_t *surface =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, SCENE_SIZE, SCENE_SIZE);
    cairo_t *cr = cairo_create(surface);
    scene_canvas canvas = {
        .cr = cr,
        .style = &s->style,
        .face = &scene_faces[s->style.face],
        .palette = &scene_palettes[s->style.palette],
        .prng = scene_prng_make(s->detail, "jitter", 0),
    };
    fonts_plain(cr);
    scene_colour_set(&canvas, SCENE_BACKGROUND);
    cairo_paint(cr);
    if (s->kind == SCENE_CLUSTER)
        paint_cluster(&canvas, s);
    else
        paint_monitor(&canvas, s);
    cairo_surface_flush(surface);
    cairo_status_t state = cairo_status(cr);
    if (state == CAIRO_STATUS_SUCCESS)
        copy_rgb(rgb, surface);
    cairo_destroy(cr);
    cairo_surface_destroy(surface);
    if (state != CAIRO_STATUS_SUCCESS)
        return tacit_fail(err, TACIT_FAILED, "drawing a scene: cairo says: %s",
                          cairo_status_to_string(state));
    scene_prng light = scene_prng_make(s->detail, "camera", 0);
    scene_camera(rgb, &s->style, &light);
    return TACIT_OK;
}
