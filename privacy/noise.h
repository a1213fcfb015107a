/* Discrete Gaussian noise on the integers: P(x) proportional to 2^(-(x / b)^2), that is
 * exp(-x^2 / (2 sigma^2)) with sigma = b / sqrt(2 ln 2). Canonne, Kamath and Steinke 2020: with
 * integer sensitivity every Renyi divergence is at most that of the continuous Gaussian of the same
 * sigma. Under sampling, integer orders agree exactly (every term of the binomial is such a sum,
 * shifted by integers); at other orders the integrand is analytic to pi z^2 2^16 grid units, so for
 * TACIT_B_MIN and more (z = 0.01, sigma above 655 units) sum and integral differ by a factor within
 * 1 +- e^-129. Delta at one epsilon has a kink that falls between integers: see Domination.
 * Integers only, so the floating-point attacks (Mironov 2012, Haney et al. 2022) do not apply.
 *
 * Domination. Noise on Z^d of sigma units, sigma >= 655, moved by an integer vector of length s, at
 * most 200 sigma: at every epsilon its delta is at most that of a Gaussian of deviation sigma / (1
 * + kappa) moved by s, kappa = 1 / (8 sigma^2), but for 1e-300 (which adds up over compositions).
 * So that pair dominates it, by itself, sampled (delta at alpha is then q or 1 - (1 - q) alpha
 * times the pair's at another alpha), and in compositions (Zhu, Dong and Wang 2022). Two such
 * vectors of other deviations, as a sum and its count are (mechanism.h), compose to a Gaussian of
 * the joint deviation, whose kappa is above either's. For epsilon >= 0; negative ones follow by
 * symmetry:
 *   - let p and q be the densities of N(s, sigma^2) and N(0, sigma^2) along the move, mu = s /
 *     sigma <= 200, g = (p - e^epsilon q)_+. The integral of g is the Gaussian's delta. g has one
 *     kink, of slope J = p s / sigma^2 there, u = epsilon / mu - mu / 2 deviations from the middle
 *     of p and v = u + mu from that of q; for |u| above 40, J is below 1e-300 (for u above 40 delta
 *     is as well);
 *   - by Poisson's formula the sum over Z^d, whose normaliser is above the integral's, exceeds the
 *     integral by at most the transforms at integer k: exp(-2 pi^2 sigma^2 k_across^2) times that
 *     of g at k_along. Two integrations by parts at the kink make the latter J / (4 pi^2 k_along^2)
 *     within a factor 1 + 2 (|u| + |v|) / (pi sigma) <= 1.28 (for u < 0 on the side without the
 *     bulk of p, whose own transform is below e^(-2 pi^2 sigma^2)). k with |k_across| > 1/16 add up
 *     to less than e^-30000 of delta; the others lie 0.99 apart along the move at least: together
 *     at most 1.016 * 1.28 * J / 12 = 1.31 J / 12;
 *   - delta of the Gaussian grows with mu by phi(u), J = mu phi(u) / sigma^2, and phi(u) falls on
 *     the way from mu to mu (1 + kappa) by at most a factor e^(-mu^2 kappa / 2) >= 0.99: the gain
 *     is at least 0.99 kappa mu phi(u) = 1.48 J / 12.
 *
 * Sampling (the form of Ducas et al. 2013 without its inner exponentials): y with
 * P(y) ~ 2^(-y^2) from a table, u uniform in [0, b), x = b y + u, accepted with probability
 * 2^(-(u^2 + 2 b y u) / b^2) = 2^-(i + f): i zero bits, and a 95-bit uniform number not below
 * 2^95 (1 - 2^-f). Random sign; negative zero is refused. A trial is accepted with probability
 * Z = 0.680. Comparisons are made in 64-bit fixed point, in blocks without branches on values or
 * look-ups indexed by them; where the upper 64 bits of a number are too close to decide, which 129
 * of 2^64 words are, the block is done again to 95 bits.
 *
 * Exactness, per value, in total variation against the true distribution. Weights off by D in sum
 * leave the law that they are normalised to within D / Z. Each of the table's 8 steps is off by
 * less than 2^-95 and moves two weights by it, u is exact, acceptance is off by less than
 * (1 + 2^-20) 2^-95 (granularity, and 2^-123 of arithmetic), and the 31 lower bits that table and
 * acceptance share matter to both with a probability under 2^-60 2^-64: D < 2^-90.9. Values of 9 b
 * and beyond, never drawn, have probability below 2^-81: their sum is at most 2 b sum_{y >= 9}
 * 2^(-y^2), of 2.129 b. Together less than 2^-80 = TACIT_NOISE_TV, with the generator's words taken
 * for uniform ones.
 *
 * What timing shows: the number of blocks, that is, how many trials were refused, which is
 * independent of the accepted values; and with probability 2^-57 a trial (2^-49 a block) that a
 * block was done twice. For b of 2^29 and more (noise multipliers above 6,900) a value b y + u
 * whose exponent is within 2^-58 of an integer also has its block done twice; there is none below.
 *
 * Noise is drawn before and apart from the data, so over all values of an account these add up to a
 * distance tau between what runs and what is accounted, on either of two neighbours: P'(S) <= P(S)
 * + tau <= e^epsilon (Q'(S) + tau) + delta + tau. The account therefore adds (1 + e^epsilon) tau to
 * delta. */
#ifndef TACIT_PRIVACY_NOISE_H
#define TACIT_PRIVACY_NOISE_H

#include "privacy/drbg.h"

#define TACIT_NOISE_TV 0x1p-80

/* out[n] of independent noise; b in TACIT_B_MIN..TACIT_B_MAX (any b >= 1 works, for tests). */
void tacit_noise_draw(tacit_drbg *g, uint64_t b, int64_t *out, size_t n);

/* The deviation of the continuous Gaussian that dominates this noise at a deviation of `sigma` grid
 * units, in units; rounded down. `sigma` is at least 655, or the joint one of two noises that are.
 */
double tacit_noise_dominating(double sigma);

/* What the sampler adds to delta at `epsilon` over `values` noise values:
 * (1 + e^epsilon) values TACIT_NOISE_TV. */
double tacit_noise_delta(uint64_t values, double epsilon);

/* The deterministic core, public so that it can be checked against known answers: trial t uses
 * words 4t (y), 4t + 1 (u), 4t + 2 (acceptance), 4t + 3 (bits 0-31: the i zero bits, bits 32-62:
 * the 31 bits below words 4t and 4t + 2, bit 63: the sign). Writes accepted values to out[trials]
 * and returns their number. */
size_t tacit_noise_trials(uint64_t b, const uint64_t *words, size_t trials, int64_t *out);

#endif
