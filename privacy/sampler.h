/* Poisson sampling: every unit on its own, with probability exactly q_num / 2^32, by comparing 32
 * random bits with q_num as integers. The work depends on n_units alone, not on who is drawn.
 * This is the sampling that the accountants assume; shuffled batches of fixed size are not. */
#ifndef TACIT_PRIVACY_SAMPLER_H
#define TACIT_PRIVACY_SAMPLER_H

#include "privacy/drbg.h"

/* Writes the indices of the drawn units in ascending order to drawn[n_units] and their count
 * (perhaps zero) to *n_drawn. Unit i uses bytes 4i to 4i + 3 of the generator, so adding a unit
 * at the end changes no other draw. q_num in 1 to 2^32. */
void tacit_sampler_draw(tacit_drbg *g, uint64_t q_num, size_t n_units, size_t *drawn,
                        size_t *n_drawn);

#endif
