/* Epsilon of a lineage in both views: against the server, which sees every device's update, and
 * against those who see published adapters alone.
 *
 * An adapter is post-processing of what the server sees, so the second is never above the first. It
 * is below it where a round sums one clipped and noised vector per device (release.h) and nothing
 * is done per device after the noise. Then who sees the sum sees x_1 + ... + x_n plus noise of
 * sigma sqrt(h), h = n - 1 - t: the recipient may be a device that knows its own noise, and so may
 * t others that it colludes with (the plan's assumed_colluders). Five things make that exact:
 *   - updates are integers of the grid, summed as integers: nothing is rounded in between;
 *   - the plan's norm bound is at least tacit_release_norm_bound, so neither the device's scaling
 *     nor the server's norm check touches a release but with probability 2^-64 a device, which is
 *     charged to delta;
 *   - a sum of h discrete Gaussians on the integers is one of sigma sqrt(h) up to a factor
 *     1 +- 10 h e^(-pi^2 sigma^2) a value (Kairouz, Liu and Steinke 2021; sigma is at least
 *     655 grid units, so the last is e^-4000000);
 *   - who is in the sum does not depend on data: a round is blind, and its uploads leave by the
 *     clock;
 *   - nor on what earlier rounds gave out: h is taken as if it had been fixed with the schedule.
 *     Networks and clocks decide it; a server that chose members by earlier adapters would
 *     break it.
 *
 * The sampler's inexactness is charged for the noise of all h devices.
 *
 * Everywhere else the rule is post-processing and both views are the server's number: with several
 * local noised steps a device's later gradients are functions of its earlier noise, and no noise of
 * others is between the two (tests/privacy/test_published.c holds a case where the summed figure
 * would be wrong). A round that was not summed shows recipients nothing.
 *
 * Pure, any thread. */
#ifndef TACIT_PRIVACY_PUBLISHED_H
#define TACIT_PRIVACY_PUBLISHED_H

#include "common/status.h"
#include "proto/plan.pb-c.h"

#include <stdint.h>

/* One round whose updates were summed. */
typedef struct tacit_summed_round {
    uint32_t index;    /* position in the schedule */
    uint64_t accepted; /* updates in the sum */
    uint32_t assumed_colluders;
    double norm_bound; /* the plan's */
} tacit_summed_round;

typedef struct tacit_published {
    double epsilon_server;    /* +inf for mechanism none */
    double epsilon_published; /* at most epsilon_server */
    /* What gave epsilon_published: "summed-noise", "post-processing", or "none" when nothing finite
     * holds. */
    const char *rule;
} tacit_published;

/* Of a lineage's rounds 0 .. rounds - 1, of which `summed` (n of them, each index once) have a sum;
 * those with a higher index count for nothing. `values`: of the trainable vector. delta is the
 * schedule's. Errors as of tacit_budget_schedule_epsilon; TACIT_USAGE for an index beyond the
 * schedule. */
tacit_status tacit_published_epsilon(tacit_published *out, const Tacit__Schedule *schedule,
                                     size_t rounds, uint64_t values,
                                     const tacit_summed_round *summed, size_t n,
                                     tacit_error *err) TACIT_MUST_CHECK;

#endif
