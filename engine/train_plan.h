/* What of the text model is trained: where each gradient goes in the flat vector, and which
 * gradients of activations that needs. Immutable after train_plan_close and shared by threads. */
#ifndef TACIT_ENGINE_TRAIN_PLAN_H
#define TACIT_ENGINE_TRAIN_PLAN_H

#include "engine/lora_sites.h"
#include "engine/text_model.h"
#include "engine/trainable.h"

#define TRAIN_FROZEN SIZE_MAX /* an offset: this tensor has no gradient */

/* Of a low-rank pair. */
typedef struct train_pair {
    size_t a, b, core;
} train_pair;

/* Where a gradient is added in the flat vector `grad`: NULL for TRAIN_FROZEN. */
float *train_slot(float *grad, size_t offset);
/* Likewise those of a pair. */
linear_pair_gradient train_pair_gradient(const train_pair *p, float *grad);

typedef struct train_layer {
    size_t norm[TEXT_NORMS]; /* offsets in the flat vector, or TRAIN_FROZEN */
    size_t weight[TEXT_LINEARS], bias[TEXT_LINEARS];
    train_pair pair[TEXT_LINEARS];
    /* Which gradients of activations the layer's backward computes. */
    bool need_act;   /* of down's input */
    bool need_mid;   /* of the residual stream between attention and feed-forward */
    bool need_qkv;   /* through the attention, or what the layer mixes rows by */
    bool need_h;     /* of its normed input */
    bool need_input; /* of the layer's input */
} train_layer;

typedef struct train_plan {
    const tacit_text_model *model; /* whose weights are computed with; not owned */
    text_pairs pairs;              /* pair: owned by the plan, [n_layers * TEXT_LINEARS] or NULL */
    size_t embedding, output, output_norm;
    train_pair output_pair;
    bool input_gradient; /* of the rows that enter the first layer */
    size_t first_layer;  /* the backward ends with it; n_layers when no layer is visited */
    train_layer *layer;  /* [n_layers] */
} train_plan;

/* Everything frozen. */
tacit_status train_plan_new(train_plan *p, const tacit_text_model *model,
                            tacit_error *err) TACIT_MUST_CHECK;
/* Notes where the gradients of the layout's tensors go; names of encoders are left alone. */
void train_plan_bind(train_plan *p, const tacit_layout *layout);
/* Where the gradients of every site's pair go: place[sites->count]. */
void train_plan_places(train_pair *place, const lora_sites *sites, const tacit_layout *layout,
                       tacit_trainable_kind kind);
/* The pairs of the text model's sites among those of a LoRA layout, pair[i] that of site i. */
tacit_status train_plan_bind_pairs(train_plan *p, const lora_sites *sites,
                                   const tacit_low_rank *pair, tacit_error *err) TACIT_MUST_CHECK;
/* Derives what the backward needs. */
void train_plan_close(train_plan *p);
void train_plan_free(train_plan *p);

#endif
