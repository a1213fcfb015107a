/* Kinds of layers: how a layer lets rows know of each other. The rest of a layer (norms, residual
 * stream, feed-forward) is common; what is a kind's own is behind the entries of its row, which
 * loading, inference, training, the planning of memory and the cache ask. A further kind is a file
 * mixer_X.c with its row, a line here, and an architecture that gives it to its layers
 * (text_arch.h: `layers`).
 *
 * A kind's linears and small tensors are in the enumerations of text_model.h, by which adapters,
 * training, quantizing and packing go through them; it loads those that its layers have. */
#ifndef TACIT_ENGINE_TEXT_MIXER_H
#define TACIT_ENGINE_TEXT_MIXER_H

#include "engine/text_loader.h"

struct kv_cache;
struct text_forward;
struct text_train;
struct layer_visit;
struct example_view;

#define TEXT_MIXER_INPUTS 3

/* `layer` is an index. Counts of floats are of one layer; memory is planned for the largest. */
struct text_mixer {
    const char *name;
    /* The linears that read the layer's normed input, all at once. */
    text_linear input[TEXT_MIXER_INPUTS];
    size_t inputs;

    tacit_status (*load)(text_loader *t, size_t layer);

    /* Inference (text_forward.h): f->h [rows, embedding], the normed input, ready for the linears
     * named above (text_forward_multiply), becomes what is mixed.
     * State is read from and left in the cache, whose rows first .. first + rows - 1 these are.
     * Work lies in f->mix, `forward_floats` for f->max_rows rows; `scratch_floats` for threads. */
    void (*forward)(struct text_forward *f, size_t layer, struct kv_cache *cache, size_t first,
                    size_t rows);
    size_t (*forward_floats)(const tacit_text_model *m, size_t layer, size_t rows);
    size_t (*scratch_floats)(const tacit_text_model *m, size_t layer, size_t threads);

    /* Training (text_train_parts.h): y [e->m, embedding] from e->acts.h and, of the queries,
     * e->queries; then from dy, the gradient of y, those of the kind's own values, and in t->d_h
     * that of e->acts.h where the plan needs it. What the backward wants of the forward lies in
     * e->acts.mix, `kept_floats` a row; work in t->mix, `work_floats` for an example of rows;
     * t->scratch has `train_scratch_floats`. */
    void (*train_forward)(struct text_train *t, const struct layer_visit *v, struct example_view *e,
                          float *y);
    void (*train_backward)(struct text_train *t, const struct layer_visit *v,
                           struct example_view *e, const float *dy);
    size_t (*kept_floats)(const tacit_text_model *m, size_t layer);
    size_t (*work_floats)(const tacit_text_model *m, size_t layer, size_t rows);
    size_t (*train_scratch_floats)(const tacit_text_model *m, size_t layer, size_t rows,
                                   size_t threads);
};

/* Softmax attention over keys and values of earlier rows. */
extern const text_mixer mixer_attention;
/* A gated convolution over the last few rows. */
extern const text_mixer mixer_shortconv;

#endif
