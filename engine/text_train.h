/* Loss and gradients of the text model for one example at a time, forward and backward by hand.
 *
 * Rows after the last predicted token are not computed, and of the last layer only what the
 * predicting rows need. Layer inputs are kept; the other activations are kept too when they fit in
 * TEXT_TRAIN_KEEP bytes, else computed again bit for bit from the layer's input. Logits exist for a
 * chunk of predicting rows at a time. The bits of a gradient depend on the example, the values and
 * the model alone: not on max_rows, on the pool or on what was computed before. */
#ifndef TACIT_ENGINE_TEXT_TRAIN_H
#define TACIT_ENGINE_TEXT_TRAIN_H

#include "common/pool.h"
#include "engine/text_place.h"
#include "engine/train_plan.h"

#define TEXT_TRAIN_KEEP ((size_t)32 << 20)

/* The rows of one example as the text model sees them. */
typedef struct text_train_rows {
    size_t count;            /* rows that are computed */
    const text_place *place; /* [count] (text_places_set) */
    size_t n_predicted;      /* at least 1 */
    const size_t *predictor; /* [n_predicted], ascending: the row before the predicted token */
    const int32_t *target;   /* [n_predicted], in [0, vocab) */
    float gradient_scale;    /* the gradient is that of gradient_scale * loss */
    float *grad;             /* the flat vector that it is ADDED to; NULL: forward only */
    double loss; /* written: mean negative log-likelihood (natural log) of the predicted tokens */
} text_train_rows;

typedef struct text_train text_train;

typedef struct text_train_options {
    size_t max_rows;   /* of all examples of one call together */
    bool recompute;    /* do not keep activations even where they fit */
    size_t logit_rows; /* predicting rows whose logits exist at a time; 0: by the vocabulary */
} text_train_options;

/* A workspace: one arena. The plan outlives it; `pool` may be NULL. */
tacit_status text_train_new(text_train **out, const train_plan *plan,
                            const text_train_options *options, tacit_pool *pool,
                            tacit_error *err) TACIT_MUST_CHECK;
void text_train_free(text_train *t);

/* Bytes of the arena that text_train_new would take. */
size_t text_train_bytes(const train_plan *plan, const text_train_options *options, size_t threads);

/* [max_rows, embedding]: the caller writes the examples' rows here, one after the other, before
 * each call of text_train_run. */
float *text_train_input(text_train *t);

/* Computes n examples layer by layer, so that a dequantized layer serves all of them. Each is
 * computed by itself: its bits are those that it has alone. Examples that share a `grad` are added
 * in their order, tensor by tensor. Either all or none have a `grad`. */
void text_train_run(text_train *t, text_train_rows *example, size_t n);

/* After a run with plan->input_gradient and `grad`: the gradient of the rows, laid out as they. */
const float *text_train_input_gradient(const text_train *t);

#endif
