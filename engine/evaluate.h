/* How well a model answers a dataset: greedy answers compared with the reference answers, and the
 * loss of the reference answers. One evaluation drives a pool; the model is shared. */
#ifndef TACIT_ENGINE_EVALUATE_H
#define TACIT_ENGINE_EVALUATE_H

#include "engine/context.h"
#include "engine/dataset.h"
#include "engine/media_layout.h"
#include "engine/row_cache.h"
#include "engine/sample.h"

typedef struct tacit_evaluation_score {
    size_t examples; /* answers: assistant turns */
    size_t correct;  /* greedy answers equal to the reference, white space at both ends removed */
} tacit_evaluation_score;

/* From 0 to 1; 0 without answers. */
double tacit_evaluation_share(tacit_evaluation_score score);

typedef struct tacit_evaluation_kind {
    char name[64]; /* what stands before ':' in record ids */
    tacit_evaluation_score score;
} tacit_evaluation_kind;

#define TACIT_EVALUATION_KINDS 32

typedef struct tacit_evaluation {
    tacit_evaluation_score score;
    size_t records, skipped; /* skipped: bad lines, unreadable media, too long */
    double loss;             /* mean over records of the mean over a record's answer tokens */
    double perplexity;       /* exp of the mean over all answer tokens */
    size_t decoded_tokens;
    double decode_seconds;
    size_t finished[TACIT_FINISHES];                    /* answers by why they ended */
    tacit_evaluation_kind kind[TACIT_EVALUATION_KINDS]; /* in order of appearance */
    size_t n_kinds;
} tacit_evaluation;

typedef struct tacit_evaluation_options {
    const tacit_adapter *adapter; /* NULL: the base */
    media_form form;
    tacit_precision precision;
    size_t limit;           /* records, 0: all */
    size_t max_tokens;      /* of an answer, 0: 64 */
    bool strict;            /* a record that cannot be built is an error */
    tacit_row_cache *cache; /* NULL: a private one of 64 MiB */
    /* Called after each answer where not NULL. `answer` is what the model said. */
    void (*heard)(void *ctx, const tacit_record *record, const char *reference, const char *answer,
                  bool correct);
    void *ctx;
} tacit_evaluation_options;

/* TACIT_BAD_INPUT when no record could be evaluated. `pool` and `options` may be NULL. */
tacit_status tacit_evaluate(tacit_evaluation *out, const tacit_model *model,
                            const tacit_dataset *dataset, const tacit_evaluation_options *options,
                            tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;

#endif
