/* Spectrograms and plots of sounds and signals, one row a scene. */
#include "scenes/scene_sheet.h"

#include "scenes/scene_senses.h"

#include <cairo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_WIDTH 480
#define CELL_HEIGHT 150
#define CAPTION 16 /* pixels */
#define BINS 110   /* of 25 Hz each */
#define BIN_HERTZ 25.0
#define WINDOW 640 /* samples: 25 Hz apart is what 40 ms tell apart */

/* Power of one frequency in a Hann window (Goertzel 1958). */
static double power_at(const float *x, double hertz)
{
    double turn = 2 * M_PI * hertz / SCENE_SOUND_RATE, c = 2 * cos(turn), one = 0, two = 0;
    for (int i = 0; i < WINDOW; i++) {
        double w = 0.5 - 0.5 * cos(2 * M_PI * i / WINDOW), now = w * x[i] + c * one - two;
        two = one;
        one = now;
    }
    return one * one + two * two - c * one * two;
}

static void paint_sound(cairo_t *cr, const scene_sound *s, double x, double y)
{
    enum { COLUMNS = CELL_WIDTH / 4 };
    float *samples = malloc(SCENE_SOUND_MAX * sizeof *samples);
    size_t n = samples ? scene_sound_render(s, samples) : 0;
    for (int i = 0; n && i < COLUMNS; i++) {
        const float *at = samples + (size_t)i * (n - WINDOW) / COLUMNS;
        for (int b = 1; b < BINS; b++) {
            double db = 10 * log10(power_at(at, b * BIN_HERTZ) + 1e-9);
            double light = fmin(fmax((db + 25) / 65, 0), 1);
            cairo_set_source_rgb(cr, light, light * light, 0.3 * (1 - light));
            cairo_rectangle(cr, x + i * 4, y + CELL_HEIGHT - b * CELL_HEIGHT / (double)BINS, 4,
                            CELL_HEIGHT / (double)BINS + 1);
            cairo_fill(cr);
        }
    }
    free(samples);
}

/* Channels one below the other, each between its own extremes. */
static void paint_signal(cairo_t *cr, const scene_signal *s, double x, double y)
{
    double value[SCENE_SIGNAL_MAX], step = CELL_HEIGHT / 5.0;
    int row = 0;
    for (int c = 0; c < SCENE_CHANNELS; c++) {
        size_t n = scene_signal_render(s, c, value);
        double low = INFINITY, high = -INFINITY;
        if (scene_channels[c].kind != s->kind)
            continue;
        for (size_t i = 0; i < n; i++) {
            low = fmin(low, value[i]);
            high = fmax(high, value[i]);
        }
        for (size_t i = 0; i < n; i++)
            cairo_line_to(cr, x + 60 + (CELL_WIDTH - 70) * (double)i / (double)n,
                          y + step * (row + 0.95 - 0.9 * (value[i] - low) / (high - low + 1e-9)));
        cairo_set_source_rgb(cr, 0.1, 0.2, 0.6);
        cairo_stroke(cr);
        char text[64];
        snprintf(text, sizeof text, "%s %.4g..%.4g", scene_channels[c].name, n ? low : 0,
                 n ? high : 0);
        cairo_set_source_rgb(cr, 0, 0, 0);
        cairo_move_to(cr, x + 2, y + step * (row + 0.5));
        cairo_show_text(cr, text);
        cairo_new_path(cr);
        row++;
    }
}

/* All answers that apply. */
static void paint_caption(cairo_t *cr, const scene_senses *s, double x, double y)
{
    char text[1024] = "", answer[SCENE_TEXT_MAX], shown[SCENE_TRANSCRIPT_MAX];
    size_t at = 0;
    scene_transcript(&s->picture, shown);
    at += (size_t)snprintf(text, sizeof text, "%s |", shown);
    for (size_t i = 0; i < scene_ask_count(); i++) {
        const scene_ask *ask = scene_ask_at(i);
        if (!scene_ask_applies(ask, s))
            continue;
        ask->answer(s, answer);
        at += (size_t)snprintf(text + at, sizeof text - at, " %s: %s;", ask->name, answer);
    }
    cairo_set_source_rgb(cr, 0, 0, 0);
    cairo_move_to(cr, x, y);
    cairo_show_text(cr, text);
}

tacit_status scene_senses_sheet_write(scene_split split, uint64_t seed, int rows, const char *path,
                                      tacit_error *err)
{
    int height = CELL_HEIGHT + CAPTION;
    cairo_surface_t *sheet =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, 2 * CELL_WIDTH + 8, rows * height);
    cairo_t *cr = cairo_create(sheet);
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    cairo_set_font_size(cr, 9);
    cairo_set_line_width(cr, 1);
    for (int i = 0; i < rows; i++) {
        scene_prng prng = scene_prng_make(seed, "senses-sheet", (uint64_t)i);
        scene_senses s;
        scene_draw_senses(&s, i % 2 ? SCENE_MONITOR : SCENE_CLUSTER, split, &prng);
        paint_sound(cr, &s.sound, 0, i * height);
        paint_signal(cr, &s.signal, CELL_WIDTH + 8, i * height);
        paint_caption(cr, &s, 2, i * height + CELL_HEIGHT + 12);
    }
    cairo_status_t wrote = cairo_surface_write_to_png(sheet, path);
    cairo_destroy(cr);
    cairo_surface_destroy(sheet);
    if (wrote != CAIRO_STATUS_SUCCESS)
        return tacit_fail(err, TACIT_IO, "%s: cairo says: %s; is the folder writable?", path,
                          cairo_status_to_string(wrote));
    return TACIT_OK;
}
