/* What one round does to the data, in the integers that are executed, logged and accounted.
 *
 * One struct, derived from the signed Mechanism message, feeds the sampler, the noise and the
 * ledger event, so that these cannot disagree. The noise multiplier is never stored: b and q_num
 * are, and everybody derives sigma and q from them by the functions below.
 *
 *   grid      clip_norm C is TACIT_GRID_NORM = 2^16 grid units
 *   sigma     b / sqrt(2 ln 2) grid units; noise multiplier z = sigma / 2^16
 *   q         q_num / 2^32
 *
 * A clip norm that follows a quantile of the units' gradient norms (Andrew, Thakkar, McMahan and
 * Ramaswamy 2021; dp_step.h has the rule) takes a second Gaussian of each step's sample: how many
 * drawn units were within the clip, each counted as +1/2 or -1/2, so that one unit moves it by 1/2,
 * which is 2^16 grid units. Sum over its sigma and count over its sigma are one vector that one
 * unit moves by at most sqrt(z^-2 + z_count^-2): a step is one Gaussian of noise multiplier
 *
 *   z_step    (z^-2 + z_count^-2)^(-1/2), z_count from quantile_b as z is from b
 *
 * on one Poisson sample, and that is what accounts, policies and reports are given.
 *
 * Functions here are pure and may be called from any thread. */
#ifndef TACIT_PRIVACY_MECHANISM_H
#define TACIT_PRIVACY_MECHANISM_H

#include "common/status.h"
#include "proto/plan.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

#define TACIT_GRID_NORM 65536     /* C in grid units */
#define TACIT_Q_ONE 4294967296ull /* q_num of q = 1 */

/* b: noise multipliers from 0.01 to 27,830. Below, no guarantee is worth the name (and sigma is
 * far above the few grid units from which discrete and continuous Gaussian agree); above, the
 * sampler's 64-bit arithmetic would end. */
#define TACIT_B_MIN 772ull
#define TACIT_B_MAX 2147483648ull

/* With the device unit what leaves are grid units in 32 bits: noise multipliers to 2,591, so that a
 * value beyond 2^31 is 12 deviations out. */
#define TACIT_B_WHOLE_MAX 200000000ull

#define TACIT_STEPS_MAX 1000000u
#define TACIT_TREE_STEPS_MAX 16384u
#define TACIT_CLIP_NORM_MIN 1e-9
#define TACIT_CLIP_NORM_MAX 1e9
#define TACIT_DIVISOR_MIN 1e-9
#define TACIT_DIVISOR_MAX 1e12
#define TACIT_UNIT_EXAMPLES_MAX 65536u
#define TACIT_QUANTILE_MIN 0.001 /* of quantile_target; at most one less this */
#define TACIT_CLIP_RATE_MIN 1e-6
#define TACIT_CLIP_RATE_MAX 10.0

typedef enum tacit_mechanism_kind {
    TACIT_MECHANISM_NONE = TACIT__MECHANISM_KIND__MECHANISM_NONE,
    TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN = TACIT__MECHANISM_KIND__MECHANISM_SUBSAMPLED_GAUSSIAN,
    TACIT_MECHANISM_TREE_GAUSSIAN = TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN
} tacit_mechanism_kind;

typedef enum tacit_privacy_unit {
    TACIT_UNIT_RECORD = TACIT__UNIT__UNIT_RECORD,
    TACIT_UNIT_SUBJECT = TACIT__UNIT__UNIT_SUBJECT,
    TACIT_UNIT_DEVICE = TACIT__UNIT__UNIT_DEVICE
} tacit_privacy_unit;

typedef enum tacit_neighbours {
    TACIT_ADD_REMOVE = TACIT__NEIGHBOURS__NEIGHBOURS_ADD_REMOVE,
    TACIT_REPLACE_ONE = TACIT__NEIGHBOURS__NEIGHBOURS_REPLACE_ONE
} tacit_neighbours;

typedef struct tacit_mechanism {
    tacit_mechanism_kind kind;
    tacit_privacy_unit unit;
    tacit_neighbours neighbours;
    double clip_norm;       /* C, of the first step where it adapts; 0 with kind NONE */
    uint64_t b;             /* 0 with kind NONE */
    uint64_t q_num;         /* 1 to 2^32 */
    uint32_t steps;         /* noised steps of one round, every one of them taken */
    double divisor;         /* the noised sum is divided by this constant */
    uint32_t unit_examples; /* most examples of one unit that enter a step */
    /* Where the clip norm adapts; all zero: it is fixed. */
    uint64_t quantile_b;    /* noise of the count of units within the clip */
    double quantile_target; /* (0, 1) */
    double clip_rate;
    double clip_min, clip_max;   /* clip_min <= clip_norm <= clip_max, and not both equal */
    uint32_t minimum_separation; /* kind TREE: a unit enters one step in this many; else 0 */
} tacit_mechanism;

/* Copies and validates; TACIT_BAD_INPUT names the field, the range and what was found. A plan
 * whose mechanism message is missing is refused too. */
tacit_status tacit_mechanism_from_message(tacit_mechanism *out, const Tacit__Mechanism *message,
                                          tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_mechanism_from_plan(tacit_mechanism *out, const Tacit__Plan *plan,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* Every field in its range. sigma, C or q equal to zero are refused; kind NONE must carry b = 0
 * and C = 0, so that a plan without noise cannot look like one with; the device unit is released
 * once, whole: q = 1, steps = 1, divisor = 1, neighbours add-remove, b at most TACIT_B_WHOLE_MAX
 * (its steps of local training are the plan's local_steps). A clip norm adapts with all five fields
 * of that set or with none, for records and subjects. Kind TREE has unit record or subject,
 * neighbours add-remove, q = 1 (nothing is sampled), at most TACIT_TREE_STEPS_MAX steps, a
 * separation of at most its steps and a fixed clip norm: a node adds up steps, which are of one
 * grid only while C stays. */
tacit_status tacit_mechanism_validate(const tacit_mechanism *m, tacit_error *err) TACIT_MUST_CHECK;

/* All fields equal: what the auditor asks of plan, schedule and reserve. */
bool tacit_mechanism_equal(const tacit_mechanism *a, const tacit_mechanism *b);

/* z = b / (sqrt(2 ln 2) 2^16), rounded down: the accountant is never told of more noise than is
 * added. 0 for b = 0. */
double tacit_noise_multiplier(uint64_t b);

/* z_step of b and quantile_b, rounded down; tacit_noise_multiplier(b) for quantile_b = 0. The one
 * place that puts a price on the count. */
double tacit_step_noise_multiplier(uint64_t b, uint64_t quantile_b);

/* z_step of a mechanism: what its steps are accounted as; 0 with kind NONE. */
double tacit_mechanism_noise_multiplier(const tacit_mechanism *m);

/* Noise values that a step draws over `values` trainable ones: one more where it counts. */
uint64_t tacit_step_noise_values(uint64_t values, uint64_t quantile_b);

/* q_num / 2^32, exact. */
double tacit_sampling_rate(uint64_t q_num);

/* The smallest b whose noise multiplier is at least `noise_multiplier`. TACIT_BAD_INPUT outside
 * the range of b. */
tacit_status tacit_b_for_noise_multiplier(uint64_t *b, double noise_multiplier,
                                          tacit_error *err) TACIT_MUST_CHECK;

/* The smallest b whose steps, with that quantile_b (0: a fixed clip norm), have a z_step of at
 * least `noise_multiplier`: the noise of the sum is raised by what the count costs. TACIT_BAD_INPUT
 * when the count alone has no more noise than that, or outside the range of b. */
tacit_status tacit_b_beside_count(uint64_t *b, uint64_t quantile_b, double noise_multiplier,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* How a clip norm is asked to adapt; 0 in a field: what its comment says. */
typedef struct tacit_clip_request {
    double quantile;    /* quantile_target; 0: the clip norm is fixed, the others must be 0 */
    double count_noise; /* z_count; 0: ten times the step's noise multiplier */
    double rate;        /* clip_rate; 0: 0.2, as Andrew et al. found good everywhere */
    double min, max;    /* 0: a tenth of the clip norm, and ten times it */
} tacit_clip_request;

/* Writes clip_norm, b and what an adaptive clip needs, so that a step has a noise multiplier of at
 * least `noise_multiplier`, the count included. TACIT_USAGE names the option that is missing,
 * TACIT_BAD_INPUT what is out of range. */
tacit_status tacit_mechanism_set_noise(Tacit__Mechanism *out, double clip_norm,
                                       double noise_multiplier, const tacit_clip_request *request,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* The largest q_num with q_num / 2^32 <= q (less sampling costs less); at least 1. */
tacit_status tacit_q_num_for_rate(uint64_t *q_num, double q, tacit_error *err) TACIT_MUST_CHECK;

/* "none", "subsampled_gaussian" or "tree_gaussian"; "record", "subject", "device"; "add-remove",
 * "replace-one". */
const char *tacit_mechanism_kind_name(tacit_mechanism_kind kind);
const char *tacit_privacy_unit_name(tacit_privacy_unit unit);
const char *tacit_neighbours_name(tacit_neighbours neighbours);

#endif
