/* The device unit: what a whole device learned in a round, clipped and noised once. McMahan et al.
 * 2018, with the noise added by each device itself.
 *
 *   x = the delta of local training on the grid, ||x|| <= C = 2^16 (grid.h)
 *   y = x + N, N discrete Gaussian of the plan's full sigma (noise.h)
 *   y leaves as integers of the grid, so a sum of them is x_1 + ... + x_n + N_1 + ... + N_n exactly
 *
 * Neighbours are "the data set replaced by the empty one". An empty store moves nothing (all its
 * gradients are zero and no optimizer of a plan decays weights), so its x is 0 and the sensitivity
 * is C. Whatever a device computes before the clip costs nothing: the plan is free in the number of
 * local steps, their optimizer and their batches.
 *
 * Noise is drawn anew in every round. Correlating it over rounds (a matrix factorisation A = B C of
 * the prefix sums, tree aggregation among them) gains nothing for this unit: a device that takes
 * part p times moves C times the vector of ones, so the sensitivity is ||C 1||, and the error of
 * the p-th sum, ||B_p|| ||C 1|| >= B_p C 1 = p, is at least p times the noise of one release, which
 * independent noise has exactly: sqrt(p) sqrt(p). It helps where a unit is in few of many steps.
 *
 * Pure functions, any thread. */
#ifndef TACIT_PRIVACY_RELEASE_H
#define TACIT_PRIVACY_RELEASE_H

#include "privacy/drbg.h"
#include "privacy/mechanism.h"

/* True when a round's release is one such vector: unit device, with noise. */
bool tacit_mechanism_releases_whole(const tacit_mechanism *m);

/* Grid units in one of the values': the only update_scale that a plan of this mechanism may have,
 * since no other passes the integers on as they are. */
double tacit_release_scale(const tacit_mechanism *m);

/* The least norm bound, in the values' units, under which a release of `values` values passes
 * unchanged but with probability 2^-64: C (1 + z (sqrt(values) + 9.5)). The discrete Gaussian is
 * subgaussian with its own sigma (Canonne, Kamath and Steinke 2020), so ||N|| exceeds
 * sigma (sqrt(values) + sqrt(2 t)) with probability at most e^-t (Hsu, Kakade and Zhang 2012), here
 * 2^-65; the rest is for the arithmetic and for a value of y that 32 bits do not hold, which is
 * below 2^-90 (TACIT_B_WHOLE_MAX). */
double tacit_release_norm_bound(const tacit_mechanism *m, size_t values);

/* out[values] = y for delta[values] (NULL, or not finite: x = 0), clamped to int32. `nonce` and
 * `test_seed` as in dp_step.h. TACIT_USAGE when the mechanism releases no whole vector. */
tacit_status tacit_release_make(int32_t *out, const float *delta, size_t values,
                                const tacit_mechanism *m,
                                const uint8_t nonce[TACIT_DRBG_NONCE_BYTES],
                                const uint8_t *test_seed, tacit_error *err) TACIT_MUST_CHECK;

#endif
