/* Everything that must hold before a device reserves a plan. Nothing here changes anything. */
#ifndef TACIT_CLIENT_PLAN_CHECK_H
#define TACIT_CLIENT_PLAN_CHECK_H

#include "engine/adapter.h"
#include "engine/trainer.h"
#include "privacy/mechanism.h"
#include "privacy/merkle.h"
#include "privacy/note.h"
#include "privacy/policy.h"

#define PLAN_PAD_SECONDS_MAX (30u * 86400u)
#define PLAN_VALUES_MAX (1u << 24) /* 64 MiB an update: more than a server takes */

/* A plan as a server offers it; views of its bytes as received. */
typedef struct plan_offer {
    tacit_span plan, schedule, entry; /* entry: SignedEntry with a PlanLogged */
    uint64_t index;
    const tacit_proof *inclusion;       /* of the entry in `checkpoint` */
    const tacit_checkpoint *checkpoint; /* verified, a successor of every one seen before */
    uint64_t witnessed; /* how many of its entries the policy's witness has cosigned; 0: none */
} plan_offer;

typedef struct plan_terms {
    const tacit_note_key *log; /* pinned */
    const tacit_policy *policy;
    uint64_t minimum_pad_seconds; /* the owner's; plans of mechanism none are free of it */
    uint64_t maximum_steps;       /* of the owner, for one round */
    const uint8_t *base_digest;   /* of this device's model */
} plan_terms;

/* What a good offer says, opened. */
typedef struct checked_plan {
    Tacit__Plan *plan;
    Tacit__Schedule *schedule;
    uint8_t plan_hash[TACIT_DIGEST_BYTES];
    uint64_t logged_ms; /* the server's clock when it logged the plan */
    tacit_mechanism mechanism;
    tacit_trainable_spec spec; /* targets point into `plan` */
    tacit_optimizer_spec optimizer;
} checked_plan;

/* In this order, each with its own line:
 *   TACIT_BAD_INPUT  bytes that are no plan, schedule or entry, or say what cannot be
 *   TACIT_INTEGRITY  the entry is not signed by the log's key, logs other bytes, or is not in the
 *                    log; the plan is not the schedule's round
 *   TACIT_REFUSED    the plan is for a base that this device does not have; the policy (unit,
 *                    noise, delta, cohort, quorum, mechanism none); an upload that would leave too
 *                    early to hide how long training took, or too late; more values than
 *                    PLAN_VALUES_MAX, each of which costs a device some forty bytes of memory
 *   TACIT_AGAIN      the policy's witness has cosigned no checkpoint that covers the plan yet
 * The budget is the account's business, the shapes are plan_check_layout's, memory is
 * plan_check_memory's. */
tacit_status plan_check(checked_plan *out, const plan_offer *offer, const plan_terms *terms,
                        tacit_error *err) TACIT_MUST_CHECK;

/* Opens bytes that passed plan_check before, from the device's own database. */
tacit_status plan_open(checked_plan *out, tacit_span plan, tacit_span schedule,
                       tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_REFUSED unless the model is the plan's base, by its digest, and the plan's number of
 * trainable values is what its adapter has on it.
 * `layout_hash` (may be NULL) receives the layout's. */
tacit_status plan_check_layout(const checked_plan *plan, const tacit_model *model,
                               uint8_t *layout_hash, tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_REFUSED when the plan's training does not fit into the memory that this device has now:
 * what is reserved stays spent, so that must be known before. Says what would fit. Nothing about
 * the data enters: examples count as max_tokens long, and every encoder of the model as used. */
tacit_status plan_check_memory(const checked_plan *plan, const tacit_model *model, uint64_t threads,
                               tacit_error *err) TACIT_MUST_CHECK;

/* What the check takes: of max_tokens and the model's context length the smaller. */
tacit_training plan_training(const checked_plan *plan, const tacit_model *model);

void checked_plan_free(checked_plan *p);

#endif
