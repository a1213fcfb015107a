/* Collecting an importance matrix: the examples of a dataset run through the text model in exact
 * precision, and every linear's input is squared and summed by column. */
#ifndef TACIT_ENGINE_CALIBRATE_H
#define TACIT_ENGINE_CALIBRATE_H

#include "engine/context.h"
#include "engine/dataset.h"
#include "engine/importance.h"
#include "engine/media_layout.h"
#include "engine/row_cache.h"

typedef struct calibrate_options {
    media_form form;
    size_t limit; /* records, 0: all */
    bool strict;  /* a record that cannot be built is an error */
} calibrate_options;

typedef struct calibrate_result {
    size_t records, skipped, rows;
} calibrate_result;

/* Adds every example of the dataset to *out (zero-initialised, the caller's to free, also after a
 * failure): entries for every linear of the layers and for the output, which is
 * "token_embd.weight" where that is the output's weight. Sums are in row order, so they do not
 * depend on the pool's threads. TACIT_BAD_INPUT when no record could be used. */
tacit_status calibrate_run(importance *out, calibrate_result *result, const tacit_model *model,
                           const tacit_dataset *dataset, const calibrate_options *options,
                           tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;

/* The sums alone: a tap for a context over the model (tacit_context_tap). Rows of several inputs
 * add up. */
typedef struct calibrate_sums calibrate_sums;
tacit_status calibrate_sums_new(calibrate_sums **out, importance *to, const tacit_model *model,
                                tacit_error *err) TACIT_MUST_CHECK;
void calibrate_sums_free(calibrate_sums *s);
const tacit_tap *calibrate_sums_tap(const calibrate_sums *s);

#endif
