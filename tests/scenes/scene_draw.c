/* Puts a scene together: two layouts of each kind, every element with a little jitter. */
#include "scenes/scene_paint.h"

#include <math.h>
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

/* Places of a kind's elements, by layout. */
typedef struct cluster_layout {
    scene_box speed, left, right, lamp, gear, fuel, pump, bar;
    double arc_x, arc_y;
} cluster_layout;

typedef struct monitor_layout {
    scene_box trace, heart, heart_icon, pulse, oxygen, oxygen_icon, pressure, bell;
} monitor_layout;

static const cluster_layout clusters[SCENE_LAYOUTS] = {
    {.speed = {24, 20, 48, 19},
     .left = {3, 3, 14, 12},
     .right = {79, 3, 14, 12},
     .lamp = {5, 50, 24, 24},
     .gear = {36, 52, 14, 16},
     .fuel = {56, 53, 37, 15},
     .pump = {5, 82, 8, 10},
     .bar = {17, 83, 74, 8},
     .arc_x = 48,
     .arc_y = 44},
    {.speed = {24, 68, 48, 19},
     .left = {3, 81, 14, 12},
     .right = {79, 81, 14, 12},
     .lamp = {67, 22, 24, 24},
     .gear = {46, 26, 14, 16},
     .fuel = {4, 27, 37, 15},
     .pump = {5, 5, 8, 10},
     .bar = {17, 6, 74, 8},
     .arc_x = 48,
     .arc_y = 92},
};

static const monitor_layout monitors[SCENE_LAYOUTS] = {
    {.trace = {3, 5, 52, 24},
     .heart = {58, 8, 36, 17},
     .heart_icon = {60, 1, 7, 7},
     .pulse = {3, 36, 52, 18},
     .oxygen = {58, 40, 36, 15},
     .oxygen_icon = {60, 31, 6, 8},
     .pressure = {3, 68, 62, 15},
     .bell = {69, 65, 24, 24}},
    {.trace = {42, 5, 52, 24},
     .heart = {2, 8, 36, 17},
     .heart_icon = {4, 1, 7, 7},
     .pulse = {3, 72, 52, 18},
     .oxygen = {58, 74, 36, 15},
     .oxygen_icon = {60, 64, 6, 8},
     .pressure = {31, 42, 62, 15},
     .bell = {3, 37, 24, 24}},
};

static scene_box jitter(scene_canvas *c, scene_box box)
{
    box.x += scene_prng_between(&c->prng, -1.5, 1.5);
    box.y += scene_prng_between(&c->prng, -1.5, 1.5);
    return box;
}

static void paint_value(scene_canvas *c, const scene *s, scene_field field, scene_box box,
                        scene_colour colour)
{
    char text[SCENE_TEXT_MAX];
    scene_answer(s, field, text);
    box = jitter(c, box);
    if (s->shown[field])
        scene_paint_text(c, text, box, colour);
}

/* The dial around the speed: a half circle of ticks and a pointer. */
static void paint_dial(scene_canvas *c, int speed, double x, double y)
{
    scene_colour_set(c, SCENE_SECOND);
    cairo_set_line_width(c->cr, 1.5);
    for (int i = 0; i <= 10; i++) {
        double a = M_PI * (1 + i / 10.0);
        cairo_move_to(c->cr, x + 38 * cos(a), y + 38 * sin(a));
        cairo_line_to(c->cr, x + 42 * cos(a), y + 42 * sin(a));
    }
    cairo_stroke(c->cr);
    double a = M_PI * (1 + speed / 200.0);
    scene_colour_set(c, SCENE_LIT);
    cairo_set_line_width(c->cr, 2.5);
    cairo_move_to(c->cr, x + 33 * cos(a), y + 33 * sin(a));
    cairo_line_to(c->cr, x + 43 * cos(a), y + 43 * sin(a));
    cairo_stroke(c->cr);
}

static void paint_bar(scene_canvas *c, int percent, scene_box box)
{
    scene_colour_set(c, SCENE_PANEL);
    cairo_rectangle(c->cr, box.x, box.y, box.w, box.h);
    cairo_fill(c->cr);
    scene_colour_set(c, SCENE_SECOND);
    cairo_rectangle(c->cr, box.x, box.y, box.w * percent / 100, box.h);
    cairo_fill(c->cr);
}

static void paint_cluster(scene_canvas *c, const scene *s)
{
    const cluster_layout *l = &clusters[s->style.layout];
    if (s->style.gauges && s->shown[SCENE_SPEED])
        paint_dial(c, s->value[SCENE_SPEED], l->arc_x, l->arc_y);
    if (s->style.gauges && s->shown[SCENE_FUEL])
        paint_bar(c, s->value[SCENE_FUEL], l->bar);
    if (s->shown[SCENE_FUEL])
        scene_paint_pump(c, l->pump);
    if (s->shown[SCENE_TURN]) {
        scene_paint_arrow(c, true, s->value[SCENE_TURN] == 1, jitter(c, l->left));
        scene_paint_arrow(c, false, s->value[SCENE_TURN] == 2, jitter(c, l->right));
    }
    if (s->shown[SCENE_LAMP])
        scene_paint_lamp(c, s->value[SCENE_LAMP], jitter(c, l->lamp));
    paint_value(c, s, SCENE_SPEED, l->speed, SCENE_DIGITS);
    paint_value(c, s, SCENE_GEAR, l->gear, SCENE_LINE);
    paint_value(c, s, SCENE_FUEL, l->fuel, SCENE_DIGITS);
}

static void paint_monitor(scene_canvas *c, const scene *s)
{
    const monitor_layout *l = &monitors[s->style.layout];
    if (s->shown[SCENE_TRACE])
        scene_paint_trace(c, s->value[SCENE_TRACE], jitter(c, l->trace));
    if (s->style.gauges && s->shown[SCENE_OXYGEN])
        scene_paint_pulse(c, l->pulse);
    if (s->shown[SCENE_HEART])
        scene_paint_heart(c, l->heart_icon);
    if (s->shown[SCENE_OXYGEN])
        scene_paint_drop(c, l->oxygen_icon);
    if (s->shown[SCENE_ALARM])
        scene_paint_bell(c, s->value[SCENE_ALARM], jitter(c, l->bell));
    paint_value(c, s, SCENE_HEART, l->heart, SCENE_DIGITS);
    paint_value(c, s, SCENE_OXYGEN, l->oxygen, SCENE_SECOND);
    paint_value(c, s, SCENE_PRESSURE, l->pressure, SCENE_DIGITS);
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
