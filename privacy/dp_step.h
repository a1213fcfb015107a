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
 * draw is a step like any other. With kind NONE sampling and order of calls are the same and
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

/* True under a test seed: the reserve must say `insecure`. */
bool tacit_dp_insecure(const tacit_dp *dp);

/* The running noised sum in grid units [values] (NULL with kind NONE): for tests of sensitivity. */
const int64_t *tacit_dp_noised_sum(const tacit_dp *dp);

#endif
