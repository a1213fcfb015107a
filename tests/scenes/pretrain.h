/* The parts of tacit-pretrain-nano: the untrained files, the examples and the state of a run. */
#ifndef TACIT_SCENES_PRETRAIN_H
#define TACIT_SCENES_PRETRAIN_H

#include "common/pool.h"
#include "engine/input.h"
#include "engine/model.h"
#include "engine/optimizer.h"
#include "scenes/scene_senses.h"

#define PRETRAIN_BATCH 16     /* examples a step */
#define PRETRAIN_MAX_ROWS 320 /* of one example */

/* The share of a run after which it warms up anew, at a lower rate, with questions that lead to what
 * was not learned before. */
#define PRETRAIN_SECOND 0.8

/* The files of nano: the text model and an encoder of each modality, in the order in which the base
 * digest takes them. */
enum { PRETRAIN_TEXT, PRETRAIN_IMAGE, PRETRAIN_AUDIO, PRETRAIN_SENSOR, PRETRAIN_FILES };

typedef struct pretrain_files {
    const char *path[PRETRAIN_FILES];
} pretrain_files;

/* Writes all files with random values (F32) drawn from `seed`. */
tacit_status pretrain_write_start(const pretrain_files *files, uint64_t seed,
                                  tacit_error *err) TACIT_MUST_CHECK;
/* The sensor encoder alone, of rows `width` wide. */
tacit_status pretrain_write_sensor(const char *path, uint32_t width, uint64_t seed,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* A model of all files whose path is not NULL. */
tacit_status pretrain_load(tacit_model **out, const pretrain_files *files,
                           tacit_error *err) TACIT_MUST_CHECK;

/* Example `index` of the run with `seed`: a scene of split P with several turns, seen, heard,
 * measured or several of these. `progress` in
 * [0, 1] is the share of the run that is over: one-field scenes appear in its first part. */
tacit_status pretrain_example(tacit_input *out, const tacit_model *model, uint64_t seed,
                              uint64_t index, double progress, tacit_error *err) TACIT_MUST_CHECK;

/* One question about held-out scene `index`, without its answer, and the answer. */
tacit_status pretrain_question(tacit_input *out, char answer[SCENE_TEXT_MAX], scene_field *field,
                               const tacit_model *model, scene_split split, uint64_t index,
                               tacit_error *err) TACIT_MUST_CHECK;

/* The same of sounds and signals: question *ask of scene_ask_at about scene `index`, of which the
 * senses in `swapped` come from another scene that answers the same question (controls). */
tacit_status pretrain_sense_question(tacit_input *out, char answer[SCENE_TEXT_MAX], size_t *ask,
                                     const tacit_model *model, scene_split split, uint64_t index,
                                     unsigned swapped, tacit_error *err) TACIT_MUST_CHECK;

#define PRETRAIN_ASKS_MAX 32

typedef struct pretrain_count {
    size_t asked, right;
} pretrain_count;

/* Exact answers by greedy decoding with the files as they were written. */
typedef struct pretrain_report {
    pretrain_count field[SCENE_FIELD_COUNT]; /* of pictures */
    pretrain_count ask[PRETRAIN_ASKS_MAX];   /* by index of scene_ask_at */
    pretrain_count swapped[PRETRAIN_ASKS_MAX]
                          [SCENE_SENSES]; /* bit i of the senses from elsewhere */
    double accuracy;                      /* over all fields */
} pretrain_report;

/* Asks about `n` held-out pictures of a split, about `n_senses` scenes with sounds and signals, and
 * of those that need two senses again with each of the two from another scene. */
tacit_status pretrain_check(pretrain_report *out, const pretrain_files *files, scene_split split,
                            size_t n, size_t n_senses, tacit_pool *pool,
                            tacit_error *err) TACIT_MUST_CHECK;
/* Right answers among all questions that need exactly `needs`. */
pretrain_count pretrain_count_needs(const pretrain_report *r, unsigned needs);

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
