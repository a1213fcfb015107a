/* Training on the device (DESIGN.md, section 5): joins the engine's gradients of single units with
 * privacy's sampling, clipping and noise, and takes exactly the plan's steps whatever the data.
 *
 * Units record and subject, DP-SGD:
 *   each step:  draw noise and sample of the units, canaries behind the data's   (privacy)
 *               one gradient per drawn unit at the current values   (engine)
 *               clip, add   (privacy);   mean   (privacy)   -> optimizer   (engine)
 *               values, moments, step number and clip norm to the checkpoint, durably
 *
 * With tree noise (privacy/tree_noise.h) it is units by their slots instead of a sample, and the
 * seed of the noise lies in the checkpoint from before the first step.
 *
 * There the optimizer starts at zero and sees noised means alone, a clip norm that adapts noised
 * counts (privacy/dp_step.h), so everything in the checkpoint but that seed is post-processing of
 * released values.
 *
 * Unit device, one release of the whole:
 *   each local step:  the gradient of at most unit_examples examples, drawn anew   (engine)
 *                     -> optimizer; values, moments and step number to the checkpoint
 *   at the end:       the delta, clipped and noised once   (privacy/release.h)
 * There the checkpoint holds what was learned without noise. Like the snapshot beside it, it is of
 * the data, never leaves and is gone when the round is sealed. A store without a usable example
 * takes the same steps with gradients of zero, which leave the values where they are.
 *
 * A restart continues after the last whole step, with new noise and sampling for what was not
 * finished; what an earlier attempt noised was never sent. */
#ifndef TACIT_CLIENT_LOCAL_TRAINING_H
#define TACIT_CLIENT_LOCAL_TRAINING_H

#include "client/canary_set.h"
#include "client/snapshot.h"
#include "engine/optimizer.h"
#include "privacy/dp_step.h"

#include <signal.h>

/* A step that was taken. All but its number comes from the device's data, without noise: it is for
 * the person at the device, and for nothing that leaves it. */
typedef struct training_progress {
    uint32_t step, steps;
    size_t drawn;     /* units */
    size_t gradients; /* of them with a gradient */
    size_t clipped;   /* of them above the clip norm; 0 where nothing is clipped */
    double clip_norm; /* 0: nothing is clipped */
    double loss;      /* mean over units whose loss is a number */
} training_progress;

typedef struct training_job {
    const tacit_model *model;
    tacit_pool *pool; /* may be NULL */
    const tacit_mechanism *mechanism;
    uint32_t local_steps; /* of the plan; 0 unless the unit is the device */
    const tacit_trainable_spec *spec;
    const tacit_optimizer_spec *optimizer;
    size_t values;             /* length of the trainable vector that the plan states */
    const char *parent;        /* adapter file to start from; NULL: B = 0 */
    size_t max_rows;           /* longest example */
    client_snapshot *snapshot; /* units of the mechanism's unit */
    canary_set *canaries;      /* NULL: none */
    const uint8_t *nonce;      /* 32 bytes of the acknowledgement */
    const uint8_t *test_seed;  /* NULL; tests: 32 bytes (privacy/dp_step.h) */
    bool insecure;             /* the reserve says that a test seed is set */
    const char *checkpoint;    /* path of the checkpoint file */
    const uint8_t *plan_hash;  /* 32 bytes: a checkpoint of another plan is TACIT_INTEGRITY */
    const volatile sig_atomic_t *stop; /* NULL: never */
    local_log *log;
    /* After every step; may be NULL. */
    void (*progress)(void *ctx, const training_progress *at);
    void *ctx;
} training_job;

/* What training yields: each [values], malloc'ed, the caller's. */
typedef struct training_result {
    float *parent; /* where it started */
    float *trained;
    int32_t *release; /* unit device with noise, else NULL: trained - parent in units of the grid,
                       * as they leave; `trained` is then parent + release and nothing more exact */
} training_result;

/* What a training takes beside the trainer and its optimizer, in bytes for every value: where it
 * started and the mean (4 each), the sum and a unit on the grid (8 and 4), a node of tree noise
 * (8), the checkpoint that is written (12). */
#define LOCAL_TRAINING_VALUE_BYTES 40

/* TACIT_REFUSED for a test seed of which the reserve does not say so. TACIT_AGAIN when `stop`
 * became true: call again to continue, with as many canaries (TACIT_USAGE otherwise; their coins
 * and scores come from the checkpoint). A checkpoint that is torn or of another size counts as
 * none. TACIT_IO when a checkpoint cannot be written, TACIT_NO_MEMORY when there is none for the
 * training itself: nothing is lost, the same call later redoes the step. A unit that there is no
 * memory for counts as zero (snapshot.h). */
tacit_status local_training_run(const training_job *job, training_result *out,
                                tacit_error *err) TACIT_MUST_CHECK;
void training_result_free(training_result *r);

#endif
