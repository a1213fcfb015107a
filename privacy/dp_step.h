/* The steps of one round of DP-SGD: sampling, clipping, summing and noise behind one object that
 * cannot be used out of order. Abadi et al. 2016, with Poisson sampling, a constant divisor and
 * integer noise.
 *
 *   tacit_dp_new
 *   for each of mechanism.steps steps:
 *       tacit_dp_begin_step   draws the noise of the whole vector, then the sample
 *       tacit_dp_add          once per drawn unit, any order
 *       tacit_dp_end_step     mean = (sum of clipped gradients + noise) / divisor
 *   tacit_dp_free
 *
 * The sum starts as the noise: there is no moment at which memory holds a sum without it. An empty
 * draw is a step like any other. Where the clip norm adapts (Andrew, Thakkar, McMahan and Ramaswamy
 * 2021), a second noised sum counts the drawn units: +1/2 for one whose norm is at most C, -1/2 for
 * any other, on a grid where 1/2 is 2^16 units, from the noise of quantile_b up. The end of a step,
 * after its mean was made at C, sets the clip norm of the next one,
 *
 *   share = noised count / divisor + 1/2
 *   C <- C exp(-clip_rate (share - quantile_target)), within clip_min and clip_max
 *
 * which is post-processing of noised counts. Sum and count are one Gaussian of the step's sample
 * (mechanism.h has its noise multiplier), and noise is drawn in units of C, so the multiplier holds
 * at every C. The share is true where the divisor is the expected number of drawn units; with
 * a target of 1/2 the clip norm goes to the median whatever the divisor, with another one to the
 * quantile 1/2 + (target - 1/2) divisor / expected number.
 *
 * With kind NONE sampling and order of calls are the same and
 * mean = sum / divisor, summed in double in the order of the calls, without clipping and noise.
 *
 * Kind TREE (tree_noise.h) draws nothing by chance: tacit_dp_set_tree comes before the first step,
 * and unit i enters step t = 1, 2, ... when its slot, tags[i] mod minimum_separation, is (t - 1)
 * mod minimum_separation. A step's noise is that of its nodes.
 *
 * One owner, not thread-safe. Any error leaves the object refusing further steps. */
#ifndef TACIT_PRIVACY_DP_STEP_H
#define TACIT_PRIVACY_DP_STEP_H

#include "privacy/drbg.h"
#include "privacy/mechanism.h"
#include "privacy/tree_noise.h"

typedef struct tacit_dp tacit_dp;

/* `values`: length of the flat trainable vector. `nonce`: from the server's acknowledgement of the
 * reserve (zeros in local training). `test_seed`: NULL, or 32 bytes that make the run reproducible
 * and the spend insecure. Copies *mechanism, which must be valid. */
tacit_status tacit_dp_new(tacit_dp **out, const tacit_mechanism *mechanism, size_t values,
                          const uint8_t nonce[TACIT_DRBG_NONCE_BYTES], const uint8_t *test_seed,
                          tacit_error *err) TACIT_MUST_CHECK;
void tacit_dp_free(tacit_dp *dp);

/* Kind TREE alone (else TACIT_USAGE), once, before the first step. `seed`: of the round, secret,
 * the same after a restart; `steps_done`: whole steps taken before it. tags[n_units]: from who a
 * unit is and nothing else, so that a unit more changes no other's; every step must be of as many
 * units. */
tacit_status tacit_dp_set_tree(tacit_dp *dp, const uint8_t seed[TACIT_TREE_SEED_BYTES],
                               uint32_t steps_done, const uint64_t *tags, size_t n_units,
                               tacit_error *err) TACIT_MUST_CHECK;

/* A fresh seed, from the kernel's entropy and the nonce; from `test_seed` when it is not NULL. */
tacit_status tacit_dp_tree_seed(uint8_t seed[TACIT_TREE_SEED_BYTES],
                                const uint8_t nonce[TACIT_DRBG_NONCE_BYTES],
                                const uint8_t *test_seed, tacit_error *err) TACIT_MUST_CHECK;

/* Begins a step over units 0 .. n_units - 1 (n_units may be 0). *drawn points to the ascending
 * indices of the drawn units and stays valid until the next call of begin_step or free.
 * TACIT_REFUSED after the plan's number of steps, TACIT_CONFLICT within a step. */
tacit_status tacit_dp_begin_step(tacit_dp *dp, size_t n_units, const size_t **drawn,
                                 size_t *n_drawn, tacit_error *err) TACIT_MUST_CHECK;

/* grad[values], unclipped, of one drawn unit; NULL, NaN or infinity count as a zero gradient.
 * TACIT_CONFLICT outside a step or for more units than were drawn. */
tacit_status tacit_dp_add(tacit_dp *dp, const float *grad, tacit_error *err) TACIT_MUST_CHECK;

/* Writes mean[values] in the gradient's units. TACIT_CONFLICT unless every drawn unit was added. */
tacit_status tacit_dp_end_step(tacit_dp *dp, float *mean, tacit_error *err) TACIT_MUST_CHECK;

/* The clip norm of the step that runs or comes next. A run that continues starts from a mechanism
 * with this clip_norm. 0 with kind NONE. */
double tacit_dp_clip_norm(const tacit_dp *dp);

/* How many units of the step that runs or ran last were above the clip norm: of the data, without
 * noise, for the person at the device alone. 0 with kind NONE. */
size_t tacit_dp_clipped(const tacit_dp *dp);

/* True under a test seed: the reserve must say `insecure`. */
bool tacit_dp_insecure(const tacit_dp *dp);

/* The running noised sum in grid units [values] (NULL with kind NONE): for tests of sensitivity. */
const int64_t *tacit_dp_noised_sum(const tacit_dp *dp);

/* Likewise the noised count of the step that runs or ran last, 2^16 units for 1/2; 0 where the clip
 * norm is fixed. */
int64_t tacit_dp_noised_count(const tacit_dp *dp);

#endif
