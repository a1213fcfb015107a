/* One thread's means to compute an example: the text model's workspace and the encoders'. */
#ifndef TACIT_ENGINE_TRAIN_WORKER_H
#define TACIT_ENGINE_TRAIN_WORKER_H

#include "engine/encoder.h"
#include "engine/input.h"
#include "engine/soft_prompt.h"
#include "engine/text_train.h"

/* What all workers of a trainer share. */
typedef struct train_setup {
    const tacit_model *model;
    const train_plan *plan;
    const float *values;                  /* the flat vector */
    const tacit_trainable_entry *encoder; /* the encoders' entries, NULL when they are frozen */
    size_t n_encoder;
    bool tower;                 /* the towers are trained, not the projectors alone */
    const lora_sites *sites;    /* of a LoRA layout, else NULL */
    const tacit_low_rank *pair; /* of each site, over the values */
    const tacit_trainable_entry *prompt[SOFT_PROMPTS]; /* of those that are trained, else NULL */
    const train_pair *place;                           /* where their gradients go */
    size_t max_rows;
} train_setup;

typedef struct train_worker train_worker;

/* `setup` outlives the worker. `pool` may be NULL. */
tacit_status train_worker_new(train_worker **out, const train_setup *setup, tacit_pool *pool,
                              tacit_error *err) TACIT_MUST_CHECK;
void train_worker_free(train_worker *w);

/* Refuses (TACIT_BAD_INPUT) an example that cannot be computed. */
tacit_status train_worker_check(train_worker *w, const tacit_input *in,
                                tacit_error *err) TACIT_MUST_CHECK;

/* One example to compute. */
typedef struct train_job {
    const tacit_input *example;
    float gradient_scale;
    float *grad;  /* receives, ADDED, the gradient of gradient_scale * loss; NULL: forward only */
    double *loss; /* written: mean over the example's trained tokens; 0 without any */
} train_job;

#define TRAIN_JOBS_MAX 64

/* Whether several jobs may run together: an adapter under frozen rows. Otherwise one at a time. */
bool train_worker_runs_together(const train_worker *w);

/* Computes n jobs, at most TRAIN_JOBS_MAX, whose rows are at most max_rows together; all with a
 * `grad` or all without. Each is computed as if alone. *failed tells which one an error is about.
 */
tacit_status train_worker_run(train_worker *w, const train_job *job, size_t n, size_t *failed,
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
