/* One event's privacy loss on a grid: what privacy/pld.c composes. Private to the accountants. */
#ifndef TACIT_PRIVACY_LOSS_GRID_H
#define TACIT_PRIVACY_LOSS_GRID_H

#include "common/status.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Which pair (upper, lower): the loss is log(upper / lower) under upper. s: noise multiplier.
 *   remove   (1-q) N(0) + q N(-1)   against   N(0)
 *   add      N(0)                   against   (1-q) N(0) + q N(1)
 *   replace  (1-q) N(0) + q N(-1)   against   (1-q) N(0) + q N(1) */
typedef enum loss_pair { LOSS_REMOVE, LOSS_ADD, LOSS_REPLACE } loss_pair;

/* mass[i] stands at loss (lowest + i) * step. All masses with the infinite one add up to 1. */
typedef struct loss_grid {
    double step;
    int64_t lowest;
    size_t n;
    double *mass;
    double infinite; /* mass at infinite loss */
} loss_grid;

/* e^(slope i + shift) for i, i + 1, ...: exponentials at every 16th, products in between. */
typedef struct loss_powers {
    double slope, shift, ratio, value;
    int64_t i;
} loss_powers;

static inline loss_powers loss_powers_from(int64_t first, double slope, double shift)
{
    return (loss_powers){slope, shift, exp(slope), exp(slope * (double)first + shift), first};
}

/* The value at i; goes on to i + 1. */
static inline double loss_powers_next(loss_powers *p)
{
    double value = p->value;
    p->i++;
    p->value = p->i % 16 ? value * p->ratio : exp(p->slope * (double)p->i + p->shift);
    return value;
}

#define LOSS_GRID_MAX ((size_t)1 << 23)
#define LOSS_STEP_MAX 500.0 /* e^step and e^-step are numbers, with room for log(1 - q) */

/* What a grid is made of. It covers the losses of all x but for `tail` of N(0, sigma^2) at each
 * end; what lies beyond is split between the highest point and infinity, or is raised to the lowest
 * point. 0 < tail < 1/2. */
typedef struct loss_shape {
    loss_pair pair;
    double sigma, q, step, tail;
} loss_shape;

/* How many points loss_grid_init would make; a double, for it may be beyond any integer. */
double loss_grid_points(const loss_shape *shape);

/* Fills `g`, whose mass loss_grid_fini frees. TACIT_REFUSED beyond LOSS_GRID_MAX points or
 * LOSS_STEP_MAX; TACIT_NO_MEMORY. */
tacit_status loss_grid_init(loss_grid *g, const loss_shape *shape,
                            tacit_error *err) TACIT_MUST_CHECK;
void loss_grid_fini(loss_grid *g);

/* The grids of "remove" and of "add" at little more than the cost of one; shape->pair is ignored.
 */
tacit_status loss_grid_init_both(loss_grid *remove, loss_grid *add, const loss_shape *shape,
                                 tacit_error *err) TACIT_MUST_CHECK;

#endif
