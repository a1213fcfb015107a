#include "scenes/scene_sheet.h"

#include <cairo.h>

#define CAPTION 24 /* pixels */

static tacit_status paste(cairo_t *cr, const scene *s, double x, double y, int zoom,
                          tacit_error *err)
{
    uint8_t rgb[SCENE_RGB_BYTES];
    char text[SCENE_TRANSCRIPT_MAX];
    tacit_status status = scene_draw(s, rgb, err);
    if (status != TACIT_OK)
        return status;
    for (int i = 0; i < SCENE_SIZE * SCENE_SIZE; i++) {
        cairo_set_source_rgb(cr, rgb[i * 3] / 255.0, rgb[i * 3 + 1] / 255.0,
                             rgb[i * 3 + 2] / 255.0);
        cairo_rectangle(cr, x + (i % SCENE_SIZE) * zoom, y + (i / SCENE_SIZE) * zoom, zoom, zoom);
        cairo_fill(cr);
    }
    scene_transcript(s, text);
    cairo_set_source_rgb(cr, 0, 0, 0);
    cairo_set_font_size(cr, 9);
    cairo_move_to(cr, x, y + SCENE_SIZE * zoom + 12);
    cairo_show_text(cr, text);
    return TACIT_OK;
}

tacit_status scene_sheet_write(scene_split split, uint64_t seed, int columns, int rows, int zoom,
                               const char *path, tacit_error *err)
{
    int cell = SCENE_SIZE * zoom + 4;
    cairo_surface_t *sheet =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, columns * cell, rows * (cell + CAPTION));
    cairo_t *cr = cairo_create(sheet);
    tacit_status status = TACIT_OK;
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_NONE);
    for (int i = 0; i < columns * rows && status == TACIT_OK; i++) {
        scene_prng prng = scene_prng_make(seed, "sheet", (uint64_t)i);
        scene s;
        scene_draw_values(&s, i % 2 ? SCENE_MONITOR : SCENE_CLUSTER, &prng);
        scene_draw_style(&s.style, split, &prng);
        status = paste(cr, &s, i % columns * cell, i / columns * (cell + CAPTION), zoom, err);
    }
    cairo_status_t wrote = cairo_surface_write_to_png(sheet, path);
    cairo_destroy(cr);
    cairo_surface_destroy(sheet);
    if (status == TACIT_OK && wrote != CAIRO_STATUS_SUCCESS)
        return tacit_fail(err, TACIT_IO, "%s: cairo says: %s; is the folder writable?", path,
                          cairo_status_to_string(wrote));
    return status;
}
