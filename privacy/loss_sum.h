/* The law of a sum of independent privacy losses, each on a grid (privacy/loss_grid.h), by one
 * Fourier transform of exponentially tilted masses: what privacy/pld.c reads epsilon from. Private
 * to the accountants.
 *
 * Add the grids, aim at what is sought, solve. What is computed is never below the exact value for
 * the grids: every mass is raised by what the transforms may be off, and delta by a relative 1e-9
 * and 2^-46 for each loss added, for what the grids' own masses may be off. */
#ifndef TACIT_PRIVACY_LOSS_SUM_H
#define TACIT_PRIVACY_LOSS_SUM_H

#include "privacy/loss_grid.h"

#include <stdbool.h>

typedef struct loss_sum loss_sum;

/* What is sought: epsilon at delta, or delta at epsilon. Where epsilon is sought, the `epsilon`
 * here is one that it is at least (0 holds always); `guess` has the sums guess one instead, which
 * makes for shorter windows. */
typedef struct loss_query {
    bool for_epsilon, guess;
    double delta, epsilon;
} loss_query;

/* An empty sum, at most `most` grids of one step. TACIT_NO_MEMORY. */
tacit_status loss_sum_new(loss_sum **out, size_t most, tacit_error *err) TACIT_MUST_CHECK;
void loss_sum_free(loss_sum *s);

/* Adds `count` times the loss on *grid, which the sum owns from here on, on failure too. */
tacit_status loss_sum_add(loss_sum *s, loss_grid *grid, uint64_t count,
                          tacit_error *err) TACIT_MUST_CHECK;

/* Chooses tilt and window for *q; returns the points that the window needs (+inf: too many). */
double loss_sum_aim(loss_sum *s, const loss_query *q);

/* The answer to *q, the worse one of both sums, which were aimed at it and need at most `points`;
 * `other` may be NULL; else it has as many grids, added with the same counts. TACIT_REFUSED for too
 * many points. *answer is NAN where the guess was wrong: aim again without. */
tacit_status loss_sum_solve(const loss_sum *s, const loss_sum *other, double points,
                            const loss_query *q, double *answer, tacit_error *err) TACIT_MUST_CHECK;

#endif
