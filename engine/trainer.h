/* Gradients of training examples with respect to the trainable values.
 *
 * The base stays quantized; gradients flow through its dequantized values. A unit's gradient is the
 * mean over its examples, an example's loss the mean over its own trained tokens (natural log). It
 * is computed alone: bitwise independent of the other units, their order and the thread count.
 * One trainer per thread of control; it drives the pool. */
#ifndef TACIT_ENGINE_TRAINER_H
#define TACIT_ENGINE_TRAINER_H

#include "common/pool.h"
#include "engine/adapter.h"
#include "engine/input.h"
#include "engine/optimizer.h"

typedef struct tacit_trainer tacit_trainer;

typedef struct tacit_unit {
    const tacit_input *const *example;
    size_t n_examples;
} tacit_unit;

/* Called once per unit, in order. `grad` has layout->values entries and is valid during the call
 * only; it may hold NaN or inf. A status other than TACIT_OK ends tacit_trainer_grads with it;
 * where an example fails, only whole units before it have been handed on. */
typedef tacit_status (*tacit_gradient_sink)(void *ctx, size_t unit, const float *grad, double loss);

/* What a trainer is to do, and what its caller takes beside it. */
typedef struct tacit_training {
    const tacit_trainable_spec *spec;
    const tacit_optimizer_spec *optimizer; /* NULL: none */
    size_t max_rows;                       /* longest example */
    size_t beside;                         /* bytes of the caller's own for every trainable value */
    bool saves; /* an adapter or a model is written while the trainer is there */
} tacit_training;

/* What that takes, in bytes: the weights of the files as far as every step reads them, the values
 * (with the frozen half of an adapter), gradients of units in flight, the optimizer's state, the
 * workspaces for max_rows rows, the encoders' for one medium of each kind, and what the caller
 * takes. Saturates. */
typedef struct tacit_training_plan {
    uint64_t weights, values, gradients, optimizer, working, encoders, beside, total;
} tacit_training_plan;

/* Whether such a training computes encoders in every step: then examples come with the values of
 * their media, else encoder rows do. */
bool tacit_training_encodes(const tacit_model *model, const tacit_trainable_spec *spec);

/* Puts the rows of the soft prompts that are trained into an example that has none (soft_prompt.h);
 * nothing where none are. */
tacit_status tacit_training_prepend(const tacit_model *model, const tacit_trainable_spec *spec,
                                    tacit_input *example, tacit_error *err) TACIT_MUST_CHECK;

/* `pool` may be NULL; nothing of that size is allocated. TACIT_USAGE for a spec that the model
 * cannot follow. */
tacit_status tacit_training_plan_of(tacit_training_plan *out, const tacit_model *model,
                                    const tacit_training *training, tacit_pool *pool,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_NO_MEMORY when the plan is more than is available (common/memory_limit.h): the message says
 * what it comes to and what would fit. For whoever must know before anything is taken. */
tacit_status tacit_training_check(const tacit_model *model, const tacit_training *training,
                                  tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;

/* max_rows: longest example accepted; memory is planned and judged from it here, as by
 * tacit_training_check without an optimizer. */
tacit_status tacit_trainer_new(tacit_trainer **out, const tacit_model *model,
                               const tacit_trainable_spec *spec, size_t max_rows, tacit_pool *pool,
                               tacit_error *err) TACIT_MUST_CHECK;
void tacit_trainer_free(tacit_trainer *t);

const tacit_layout *tacit_trainer_layout(const tacit_trainer *t);
/* The flat vector [layout->values], the caller's to change between calls: LoRA starts at A from
 * the seed and B = 0, the other kinds at the file's values. */
float *tacit_trainer_values(tacit_trainer *t);

/* Hands the gradients of n units to `sink`, unit by unit; one without examples has a gradient of
 * zeros. TACIT_BAD_INPUT names unit and example that tacit_trainer_check would refuse. */
tacit_status tacit_trainer_grads(tacit_trainer *t, const tacit_unit *units, size_t n,
                                 tacit_gradient_sink sink, void *ctx,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Refuses (TACIT_BAD_INPUT) an example that tacit_trainer_grads would refuse: too long, a position
 * beyond the model's context, a token or media row that does not exist, a trained row without one
 * before it, values of a medium missing. An example without trained tokens is no error: its loss
 * and gradient are zero. */
tacit_status tacit_trainer_check(tacit_trainer *t, const tacit_input *example,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Mean loss of one example, forward only. */
tacit_status tacit_trainer_loss(tacit_trainer *t, const tacit_input *example, double *loss,
                                tacit_error *err) TACIT_MUST_CHECK;

#endif
