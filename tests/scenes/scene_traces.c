/* Waveforms: each form is a function of the phase t, in beats, to a height in [-1, 1]. */
#include "scenes/scene_paint.h"

#include <math.h>

#define TRACE_POINTS 112
#define NOISE_KNOTS 15

/* A triangular spike of half width `w` at `at`. */
static double spike(double t, double at, double w)
{
    double d = fabs(t - at) / w;
    return d < 1 ? 1 - d : 0;
}

static double fraction(double t)
{
    return t - floor(t);
}

static double form_peaks(double t)
{
    double f = fraction(t);
    return spike(f, 0.5, 0.11) - 0.3 * spike(f, 0.66, 0.08);
}

static double form_flat(double t)
{
    (void)t;
    return 0;
}

static double form_saw(double t)
{
    return 0.8 - 1.6 * fraction(1.25 * t);
}

static double form_block(double t)
{
    return fraction(0.8 * t) < 0.5 ? 0.8 : -0.6;
}

static double form_gap(double t)
{
    return t > 0.9 && t < 2.9 ? 0 : form_peaks(t);
}

static double form_pairs(double t)
{
    double f = fraction(0.7 * t);
    return spike(f, 0.3, 0.09) + spike(f, 0.56, 0.09);
}

static double form_dips(double t)
{
    return -form_peaks(t);
}

static void noise_knots(double knot[NOISE_KNOTS], scene_prng *prng)
{
    for (int i = 0; i < NOISE_KNOTS; i++)
        knot[i] = scene_prng_between(prng, 0.25, 1.0) * (i % 2 ? 1 : -1);
}

static void polyline(scene_canvas *c, scene_box box, const double *height, scene_colour colour)
{
    for (int i = 0; i < TRACE_POINTS; i++)
        cairo_line_to(c->cr, box.x + box.w * i / (TRACE_POINTS - 1),
                      box.y + box.h * (0.5 - 0.48 * height[i]));
    scene_colour_set(c, colour);
    cairo_set_line_width(c->cr, 2.0);
    cairo_set_line_join(c->cr, CAIRO_LINE_JOIN_ROUND);
    cairo_stroke(c->cr);
}

void scene_paint_trace(scene_canvas *c, int state, scene_box box)
{
    static double (*const form[SCENE_STATES])(double) = {
        form_peaks, form_flat, form_saw, NULL, form_block, form_gap, form_pairs, form_dips};
    double height[TRACE_POINTS], knot[NOISE_KNOTS];
    double phase = scene_prng_between(&c->prng, 0, state == 5 ? 0.3 : 1);
    double beats = scene_prng_between(&c->prng, 3.4, 4.2);
    noise_knots(knot, &c->prng);
    for (int i = 0; i < TRACE_POINTS; i++) {
        double at = (double)i / TRACE_POINTS, k = at * (NOISE_KNOTS - 1);
        int low = (int)k;
        double wild = knot[low] + (knot[low + 1] - knot[low]) * (k - low);
        height[i] = form[state] ? form[state](phase + at * beats) : wild;
    }
    polyline(c, box, height, SCENE_LINE);
}

void scene_paint_pulse(scene_canvas *c, scene_box box)
{
    double height[TRACE_POINTS], phase = scene_prng_unit(&c->prng);
    for (int i = 0; i < TRACE_POINTS; i++) {
        double f = fraction(phase + 3.0 * i / TRACE_POINTS);
        height[i] =
            1.6 * exp(-pow((f - 0.3) / 0.16, 2)) + 0.6 * exp(-pow((f - 0.62) / 0.13, 2)) - 0.8;
    }
    polyline(c, box, height, SCENE_SECOND);
}
