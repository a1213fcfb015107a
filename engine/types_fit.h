/* Least squares over a block: the step (and offset) and whole numbers that stand for its values.
 *
 * Both search: round the values by several steps around the one that spans them, solve for the
 * best step given the whole numbers, keep the best, and repeat from its solution while it gets
 * better. What is left to gain is a few percent of the error, where weights differ a lot
 * (tests/engine/test_types_fit.c compares with trying every choice, and with fine grids). Values
 * whose weight is 0 do not count at all. */
#ifndef TACIT_ENGINE_TYPES_FIT_H
#define TACIT_ENGINE_TYPES_FIT_H

#include <stddef.h>

#define TYPES_FIT_MOST 32 /* values of one call */

/* The step d (of either sign) of values near d q, q whole in [low, high], low < 0 < high, that
 * makes sum w (x - d q)^2 small. 0 when all x or all w are 0. x is finite and below 1e18, w finite
 * and not negative. */
float types_fit_step(const float *x, const float *w, size_t n, float low, float high);

/* Step *d >= 0 and offset *m of values near d q + m, q whole in [0, high]. With `not_above` m is
 * held at or below 0. */
void types_fit_step_offset(const float *x, const float *w, size_t n, float high, int not_above,
                           float *d, float *m);

/* q[i] = the whole number in [low, high] nearest to (x[i] - m) / d, or to 0 where d is 0. */
void types_fit_round(float *q, const float *x, size_t n, float d, float m, float low, float high);

/* sum w (x - d q - m)^2 of that q. */
float types_fit_error(const float *x, const float *w, size_t n, float d, float m, float low,
                      float high);

#endif
