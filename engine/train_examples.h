/* A dataset as examples for `tacit train`: those that cannot be built are left out. */
#ifndef TACIT_ENGINE_TRAIN_EXAMPLES_H
#define TACIT_ENGINE_TRAIN_EXAMPLES_H

#include "common/memory_limit.h"
#include "engine/example.h"
#include "engine/row_cache.h"
#include "engine/trainable.h"

typedef struct train_examples {
    tacit_input *input;
    size_t count, skipped, rows, longest;
    tacit_memory_tally taken;
} train_examples;

/* What an example is of; borrowed. */
typedef struct train_examples_setup {
    const tacit_model *model;
    const tacit_trainable_spec *spec; /* whose soft prompts examples get */
    tacit_row_cache *cache;           /* gives rows of media; NULL: examples keep values instead */
    tacit_example_options options;
    bool strict; /* a bad record is an error */
} train_examples_setup;

/* Frees with train_examples_free, after a failure, too. TACIT_BAD_INPUT when there is none. */
tacit_status train_examples_load(train_examples *out, const char *path,
                                 const train_examples_setup *setup,
                                 tacit_error *err) TACIT_MUST_CHECK;
void train_examples_free(train_examples *set);

#endif
