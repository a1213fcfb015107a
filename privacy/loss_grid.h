/* One event's privacy loss on a grid: what privacy/pld.c composes. Private to the accountants. */
#ifndef TACIT_PRIVACY_LOSS_GRID_H
#define TACIT_PRIVACY_LOSS_GRID_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* Which pair (upper, lower): the loss is log(upper / lower) under upper. s: noise multiplier.
 *   remove   (1-q) N(0) + q N(-1)   against   N(0)
 *   add      N(0)                   against   (1-q) N(0) + q N(1)
 *   replace  (1-q) N(0) + q N(-1)   against   (1-q) N(0) + q N(1) */
typedef enum loss_pair { LOSS_REMOVE, LOSS_ADD, LOSS_REPLACE } loss_pair;

/* mass[i] stands at loss (lowest + i) * step. */
typedef struct loss_grid {
    double step;
    int64_t lowest;
    size_t n;
    double *mass;
    double infinite; /* mass at infinite loss */
} loss_grid;

#define LOSS_GRID_MAX ((size_t)1 << 23)

/* How many points loss_grid_init would make; a double, for it may be beyond any integer. */
double loss_grid_points(loss_pair kind, double sigma, double q, double step);

/* Fills `g`, whose mass loss_grid_fini frees. TACIT_REFUSED beyond LOSS_GRID_MAX points;
 * TACIT_NO_MEMORY. */
tacit_status loss_grid_init(loss_grid *g, loss_pair kind, double sigma, double q, double step,
                            tacit_error *err) TACIT_MUST_CHECK;
void loss_grid_fini(loss_grid *g);

#endif
