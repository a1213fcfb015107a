/* What a plan says to the engine: which values are trained and by which optimizer. Stateless. */
#ifndef TACIT_ENGINE_PLAN_SPEC_H
#define TACIT_ENGINE_PLAN_SPEC_H

#include "engine/optimizer.h"
#include "engine/trainable.h"
#include "proto/plan.pb-c.h"

/* Targets point into `adapter`, which outlives the spec. TACIT_BAD_INPUT names the field: kind,
 * number of targets (1 to TACIT_TRAINABLE_TARGETS_MAX), rank (1 to TACIT_TRAINABLE_RANK_MAX),
 * alpha, seed. */
tacit_status tacit_trainable_spec_from_message(tacit_trainable_spec *out,
                                               const Tacit__AdapterSpec *adapter,
                                               tacit_error *err) TACIT_MUST_CHECK;

/* What a plan says of an optimizer: numbers that the kind does not use are zero. */
void tacit_optimizer_message_of_spec(Tacit__Optimizer *out, const tacit_optimizer_spec *spec);
/* TACIT_BAD_INPUT names the field: kind, learning rate, its course, momentum, betas, epsilon,
 * weight decay. */
tacit_status tacit_optimizer_spec_from_message(tacit_optimizer_spec *out,
                                               const Tacit__Optimizer *optimizer,
                                               tacit_error *err) TACIT_MUST_CHECK;

#endif
