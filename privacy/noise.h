/* Discrete Gaussian noise on the integers: P(x) proportional to 2^(-(x / b)^2), that is
 * exp(-x^2 / (2 sigma^2)) with sigma = b / sqrt(2 ln 2). Canonne, Kamath and Steinke 2020: with
 * integer sensitivity every Renyi divergence is at most that of the continuous Gaussian of the same
 * sigma. Under sampling, integer orders agree exactly (every term of the binomial is such a sum,
 * shifted by integers); at other orders the integrand is analytic to pi z^2 2^16 grid units, so for
 * TACIT_B_MIN and more (z = 0.01, sigma above 655 units) sum and integral differ by a factor within
 * 1 +- e^-129. Accounts are kept in Renyi divergences. Delta at one epsilon, which pld and analytic
 * report, has a kink that falls between integers: one run's may differ either way by a relative
 * t^2 / (12 sigma^2), t the deviations out at which the loss is epsilon: under 2.1e-9 at z = 1 for
 * delta down to 1e-30. Integers only,
 * so the floating-point attacks (Mironov 2012, Haney et al. 2022) do not apply.
 *
 * Sampling (the form of Ducas et al. 2013 without its inner exponentials): y with
 * P(y) ~ 2^(-y^2) from a table, u uniform in [0, b), x = b y + u, accepted with probability
 * 2^(-(u^2 + 2 b y u) / b^2) = 2^-(i + f): i zero bits, and a 64-bit uniform below 2^-f computed
 * in fixed point. Random sign; negative zero is refused. A trial is accepted with probability
 * about 0.68. Trials run in blocks without branches on their values or look-ups indexed by them.
 *
 * Exactness, per value, in total variation against the true distribution: table 9 2^-64 plus the
 * cut at y > 8 (2^-80), u exact, acceptance within a factor 1 +- 2^-58; together at most
 * TACIT_NOISE_TV. Noise is drawn before and apart from the data, so over all values of an account
 * these add up to a distance tau between what runs and what is accounted, on either of two
 * neighbours: P'(S) <= P(S) + tau <= e^epsilon (Q'(S) + tau) + delta + tau. The account therefore
 * adds (1 + e^epsilon) tau to delta. */
#ifndef TACIT_PRIVACY_NOISE_H
#define TACIT_PRIVACY_NOISE_H

#include "privacy/drbg.h"

#define TACIT_NOISE_TV 0x1p-57

/* out[n] of independent noise; b in TACIT_B_MIN..TACIT_B_MAX (any b >= 1 works, for tests). */
void tacit_noise_draw(tacit_drbg *g, uint64_t b, int64_t *out, size_t n);

/* What the sampler adds to delta at `epsilon` over `values` noise values:
 * (1 + e^epsilon) values TACIT_NOISE_TV. */
double tacit_noise_delta(uint64_t values, double epsilon);

/* The deterministic core, public so that it can be checked against known answers: trial t uses
 * words 4t (y), 4t + 1 (u), 4t + 2 (acceptance), 4t + 3 (bits 0-31: the i zero bits, bit 63: the
 * sign). Writes accepted values to out[trials] and returns their number. */
size_t tacit_noise_trials(uint64_t b, const uint64_t *words, size_t trials, int64_t *out);

#endif
