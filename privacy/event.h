/* What an accountant accounts: how often which Gaussian mechanism ran. Ledgers store events, not
 * epsilons; every party derives epsilon from them by the same functions. */
#ifndef TACIT_PRIVACY_EVENT_H
#define TACIT_PRIVACY_EVENT_H

#include "privacy/mechanism.h"

/* `count` runs of the Poisson-subsampled Gaussian (q = 1: the Gaussian) with clip norm 1. Tree noise
 * is as many Gaussians as its nodes cost (tree_noise.h). */
typedef struct tacit_event {
    tacit_neighbours neighbours;
    double sigma; /* noise multiplier, > 0 and finite */
    double q;     /* (0, 1] */
    uint64_t count;
} tacit_event;

/* `rounds` rounds of a mechanism: count = rounds * steps (kind TREE: times what a round costs). TACIT_REFUSED for kind NONE, whose
 * epsilon is infinite: no accountant takes it. */
tacit_status tacit_event_from_mechanism(tacit_event *out, const tacit_mechanism *m, uint64_t rounds,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* Ranges: sigma in [1e-3, 1e9], q in (0, 1], count <= 2^40. TACIT_BAD_INPUT says which is off. */
tacit_status tacit_event_validate(const tacit_event *event, tacit_error *err) TACIT_MUST_CHECK;

#endif
