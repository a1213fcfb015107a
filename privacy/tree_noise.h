/* Noise that is correlated over the steps of a round, so that sums over many steps carry little of
 * it: tree aggregation (Dwork et al. 2010; Chan, Shi and Song 2011), as DP-FTRL uses it (Kairouz et
 * al. 2021). No sampling is assumed: a unit enters one step in every `separation`, which one its
 * tag decides.
 *
 *   step t = 1 .. n     g_t: sum of the clipped gradients of the units of the step, grid units
 *   node e = 1 .. n     covers steps (e - low(e), e], low(e) the lowest bit of e; noise v_e, a
 *                       discrete Gaussian of sigma = b / sqrt(2 ln 2), drawn once
 *   N_t = v_t + N_(t - low(t)), N_0 = 0
 *   released at t       y_t = g_t + N_t - N_(t-1)
 *
 * So y_1 + ... + y_t = g_1 + ... + g_t + N_t, and N_t has as many nodes as t has bits set.
 *
 * What it costs. All y are sums of the n node releases z_e = sum of g over e's steps + v_e, and z_e
 * is needed from step e on only: a gradient of step t depends on z_e with e < t alone. Neighbours
 * differ in one unit. Given what was released before step e, its gradients are vectors of at most
 * 2^16, so z_e is moved by at most c_e 2^16, c_e the number of its steps in e. Each z_e is one run
 * of the discrete Gaussian with that shift, whose Renyi divergence of order a is at most
 * a c_e^2 / (2 z^2), z the noise multiplier; adaptively composed they add up to that of K runs of
 * the Gaussian at sensitivity 1,
 *   K = max over offsets s = 1 .. k of  sum over e of  |{s, s + k, s + 2 k, ...} in e|^2.
 * The loss distribution has the same K: z_e is dominated by a Gaussian moved by c_e / z deviations
 * (noise.h; c_e <= 200 z wherever budget.h asks), and Gaussians compose to one moved by the root of
 * the sum of squares, sqrt(K) / z.
 * The maximum is over the patterns that the rule allows, all of them: K is exact. The sampler's
 * inexactness (noise.h) counts for the nodes with c_e > 0, at most K: the noise of the others is
 * the same for both neighbours, whatever its law.
 *
 * The clip norm is the same for all steps: were it to adapt, one node would add up grids of
 * different units. The device unit has no use for it (release.h says why); record and subject do,
 * where they enter few of a round's steps.
 *
 * Node noise is derived from a secret seed of the round, so that a restart goes on with the same
 * nodes; nobody but the device ever has it, and it is erased when the round is sealed. Two copies
 * of a disk that both go on from the middle of a round share it, where sampled rounds would part:
 * the log takes the update of one alone. */
#ifndef TACIT_PRIVACY_TREE_NOISE_H
#define TACIT_PRIVACY_TREE_NOISE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define TACIT_TREE_SEED_BYTES 32

/* K for 1 <= separation <= steps <= TACIT_TREE_STEPS_MAX (mechanism.h): O(steps log steps). */
uint64_t tacit_tree_runs(uint32_t steps, uint32_t separation);

typedef struct tacit_tree_noise tacit_tree_noise;

/* Copies the seed into locked memory. */
tacit_status tacit_tree_noise_new(tacit_tree_noise **out, uint64_t b, size_t values,
                                  const uint8_t seed[TACIT_TREE_SEED_BYTES],
                                  tacit_error *err) TACIT_MUST_CHECK;
void tacit_tree_noise_free(tacit_tree_noise *t);

/* out[values] = N_t - N_(t-1), t >= 1: the same for the same seed, in any order of calls. Draws two
 * nodes a step on average. */
tacit_status tacit_tree_noise_step(tacit_tree_noise *t, uint32_t step, int64_t *out,
                                   tacit_error *err) TACIT_MUST_CHECK;

#endif
