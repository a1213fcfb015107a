/* A plan that the device makes for itself: training without a server runs by the same rules and is
 * charged to the same account. Nothing of it derives from the data. */
#ifndef TACIT_CLIENT_LOCAL_PLAN_H
#define TACIT_CLIENT_LOCAL_PLAN_H

#include "client/plan_check.h"
#include "common/bytes.h"

typedef struct local_plan_request {
    bool non_private;    /* mechanism none */
    uint32_t separation; /* above 0: tree noise, a unit in one step of this many; q is not used */
    double epsilon;      /* of this training alone: gives the noise; 0: noise_multiplier counts */
    double noise_multiplier; /* of a step as a whole; used when epsilon is 0 */
    double delta;
    tacit_privacy_unit unit;
    double q, clip_norm, divisor;
    tacit_clip_request adapt; /* all zero: the clip norm is fixed */
    uint32_t steps;           /* noised ones; with unit device, local ones before the one release */
    uint32_t unit_examples, max_tokens;
    tacit_optimizer_spec optimizer;
    const char *const *targets;
    size_t n_targets;
    uint32_t rank;
    double alpha;
    bool core, rslora;
    uint32_t last_layers; /* 0: all */
    /* Above 0: a soft prompt instead; nothing of LoRA counts. */
    uint32_t virtual_tokens, image_virtual_tokens;
} local_plan_request;

/* Packs schedule (one round) and plan for `model`; both malloc'ed in the buffers' manner. Cohort
 * and quorum are what `policy` asks for, since nobody else is asked. TACIT_BAD_INPUT and
 * TACIT_USAGE name what is out of range. */
tacit_status local_plan_make(tacit_buffer *plan, tacit_buffer *schedule,
                             const local_plan_request *request, const tacit_policy *policy,
                             const tacit_model *model, tacit_error *err) TACIT_MUST_CHECK;

#endif
