/* The parts of tacit-pretrain-nano: the untrained files, the examples and the state of a run. */
#ifndef TACIT_SCENES_PRETRAIN_H
#define TACIT_SCENES_PRETRAIN_H

#include "common/pool.h"
#include "engine/input.h"
#include "engine/model.h"
#include "engine/optimizer.h"
#include "scenes/scene.h"

#define PRETRAIN_BATCH 16     /* examples a step */
#define PRETRAIN_MAX_ROWS 320 /* of one example */

/* Writes the text model and its image pair with random values (F32) drawn from `seed`. */
tacit_status pretrain_write_start(const char *text_path, const char *mmproj_path, uint64_t seed,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* Example `index` of the run with `seed`: a scene of split P with several turns. `progress` in
 * [0, 1] is the share of the run that is over: one-field scenes appear in its first part. */
tacit_status pretrain_example(tacit_input *out, const tacit_model *model, uint64_t seed,
                              uint64_t index, double progress, tacit_error *err) TACIT_MUST_CHECK;

/* One question about held-out scene `index`, without its answer, and the answer. */
tacit_status pretrain_question(tacit_input *out, char answer[SCENE_TEXT_MAX], scene_field *field,
                               const tacit_model *model, scene_split split, uint64_t index,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Exact answers per field on `n` held-out scenes of a split, by greedy decoding with the files as
 * they were written. */
typedef struct pretrain_report {
    size_t asked[SCENE_FIELD_COUNT], right[SCENE_FIELD_COUNT];
    double accuracy; /* over all fields */
} pretrain_report;

tacit_status pretrain_check(pretrain_report *out, const char *text_path, const char *mmproj_path,
                            scene_split split, size_t n, tacit_pool *pool,
                            tacit_error *err) TACIT_MUST_CHECK;

/* Everything that a run continues from. */
typedef struct pretrain_state {
    uint64_t seed;
    uint64_t step;  /* steps done */
    uint64_t steps; /* planned */
    double seconds; /* spent so far */
    size_t count;   /* values */
    float *values;  /* the trainer's */
    float *average; /* [count] exponential average of the values */
    tacit_optimizer optimizer;
} pretrain_state;

/* Atomic; the same state gives the same bytes. */
tacit_status pretrain_state_save(const pretrain_state *s, const char *path,
                                 tacit_error *err) TACIT_MUST_CHECK;
/* Into a state whose arrays are there. TACIT_BAD_INPUT for another seed, length or plan, and for a
 * file whose digest does not hold. */
tacit_status pretrain_state_load(pretrain_state *s, const char *path,
                                 tacit_error *err) TACIT_MUST_CHECK;

#endif
