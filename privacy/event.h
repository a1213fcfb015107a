/* What an accountant accounts: how often which Gaussian mechanism ran. Ledgers store events, not
 * epsilons; every party derives epsilon from them by the same functions. */
#ifndef TACIT_PRIVACY_EVENT_H
#define TACIT_PRIVACY_EVENT_H

#include "privacy/mechanism.h"

/* `count` runs of the Poisson-subsampled Gaussian (q = 1: the Gaussian) with clip norm 1. Tree
 * noise is as many Gaussians as its nodes cost (tree_noise.h). */
typedef struct tacit_event {
    tacit_neighbours neighbours;
    double sigma; /* noise multiplier of a step as a whole (mechanism.h), > 0 and finite */
    double q;     /* (0, 1] */
    uint64_t count;
} tacit_event;

/* What `rounds` rounds of a mechanism amount to: count = rounds * steps; kind TREE: rounds *
 * tacit_tree_runs. Every price, whoever states or checks it, is this one. Of other kinds than TREE
 * only what enters the price is validated, so that an auditor can price what nobody should have
 * run; of TREE everything. */
tacit_status tacit_event_price(tacit_event *out, const tacit_mechanism *m, uint64_t rounds,
                               tacit_error *err) TACIT_MUST_CHECK;

/* The same of a mechanism that is valid as a whole. TACIT_REFUSED for kind NONE, whose epsilon is
 * infinite: no accountant takes it. */
tacit_status tacit_event_from_mechanism(tacit_event *out, const tacit_mechanism *m, uint64_t rounds,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* Ranges: sigma in [1e-3, 1e9], q in (0, 1], count <= 2^40. TACIT_BAD_INPUT says which is off. */
tacit_status tacit_event_validate(const tacit_event *event, tacit_error *err) TACIT_MUST_CHECK;

#endif
