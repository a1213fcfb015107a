/* Privacy loss distributions of compositions of the (Poisson-subsampled) Gaussian: the tight
 * accountant for a schedule fixed beforehand (it is no filter for adaptive choices; rdp.h is).
 *
 * Each event's loss distribution is placed on a grid of equal steps: the mass between two grid
 * points goes to the two of them so that its weight under both distributions of the pair is kept
 * (the result of "connect the dots", Doroshenko et al. 2022, from direct integrals instead of
 * second differences). That can only raise delta at every epsilon. The sum is taken by Fourier
 * transforms of exponentially tilted masses, whose rounding is relative to the delta sought.
 *
 * The step is the largest whole part of 1e-4 that is at most sqrt(12e-4 v), v the mean one-run
 * variance of the loss, or such that no grid exceeds 2^20 points: the relative excess is about
 * step^2 / (12 v), 1e-4 or less unless the grid's size decided (sigma 1, q 1e-9: 0.7 % in 1e8 runs,
 * 2.5 % in 1e9), and never above that of step 1e-4. (Where even 1e-4 needs more
 * than 2^22 points the step grows; epsilon is in the hundreds there.) All events of q = 1 count as
 * one Gaussian; when there are no others, the result is the exact one of gaussian.h.
 *
 * Tails: a grid covers all but a mass of e^-50 / 2 of each Gaussian's ends, or less where that, for
 * all runs, would be more than a millionth of delta. Losses above the grid count as the highest
 * point or as infinite, so that their weight under both distributions is kept; losses below it are
 * raised to the lowest point. Nothing is dropped.
 *
 * Add-remove takes the worse of the two directions. Replace-one compares (1 - q) N(0) + q N(-1)
 * with (1 - q) N(0) + q N(1). All events of one call must have the same neighbours.
 *
 * Equal events count as one with all their runs, so the answer is the same, bit for bit, however
 * runs of (sigma, q) are split into events and in whatever order they come; only runs of q = 1 may
 * differ in the last bits.
 *
 * Cost grows with the distinct (sigma, q), with the range of one loss, and little with the runs: by
 * default some 4 to 50 ms and 2 to 20 MB for each at usual parameters (sigma 0.8, q 0.02, 2000
 * runs: 37 ms, 12 MB), up to 400 MB for extreme ones; pld_memo.h asks in a tenth of that. Any
 * thread. */
#ifndef TACIT_PRIVACY_PLD_H
#define TACIT_PRIVACY_PLD_H

#include "privacy/event.h"

#include <stddef.h>

/* How losses are placed; 0 for a field, or NULL for all, is the default described above.
 * {.interval = 1e-4} is dp-accounting's grid (Gaussians are placed on it then, too). */
typedef struct tacit_pld_grid {
    double interval; /* step of the grid, at most 1 */
    double tail;     /* mass beyond each end, from TACIT_PLD_TAIL_MIN to TACIT_PLD_TAIL_MAX */
} tacit_pld_grid;

#define TACIT_PLD_TAIL_MIN 1e-300
#define TACIT_PLD_TAIL_MAX 0.25

/* Epsilon at delta in (0, 1); +inf when the infinite loss alone exceeds delta. TACIT_REFUSED for
 * an interval whose grid is larger than memory allows. */
tacit_status tacit_pld_epsilon(const tacit_event *events, size_t n, double delta,
                               const tacit_pld_grid *grid, double *epsilon,
                               tacit_error *err) TACIT_MUST_CHECK;

/* What the step of a grid follows from: about the mean square of the loss of one run, q^2
 * (e^(1 / sigma^2) - 1); 1 / sigma^2 where q = 1. */
double tacit_pld_run_variance(const tacit_event *event);

/* Delta at epsilon >= 0. */
tacit_status tacit_pld_delta(const tacit_event *events, size_t n, double epsilon,
                             const tacit_pld_grid *grid, double *delta,
                             tacit_error *err) TACIT_MUST_CHECK;

#endif
