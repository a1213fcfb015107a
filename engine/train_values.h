/* Where training starts: the flat vector's first values, and a text model that computes with it. */
#ifndef TACIT_ENGINE_TRAIN_VALUES_H
#define TACIT_ENGINE_TRAIN_VALUES_H

#include "engine/lora_sites.h"
#include "engine/model.h"
#include "engine/text_model.h"
#include "engine/trainable.h"

/* Values of the text model's tensors in a layout of TACIT_TRAIN_ALL, dequantized from the file. */
tacit_status train_values_text(float *values, const tacit_model *model, const tacit_layout *layout,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Floats of a LoRA layout that are drawn and not trained: of FFA every A, of the core form A and B.
 */
size_t train_values_frozen(const lora_sites *sites, tacit_trainable_kind kind);

/* LoRA: what is drawn from the seed, zeros for the rest. `layout` is that of the sites. What is not
 * trained goes into *frozen, malloc'ed, site after site; with nothing of the kind *frozen stays as
 * it is. With `values` NULL that is all. */
tacit_status train_values_lora(float *values, float **frozen, const lora_sites *sites,
                               const tacit_layout *layout, const tacit_trainable_spec *spec,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Where soft prompts start (trainable.h). */
void train_values_prompts(float *values, const tacit_model *model, const tacit_layout *layout,
                          const tacit_trainable_spec *spec);

/* The pair of every site, over both vectors, which outlive them: pair[sites->count]. */
void train_values_pairs(tacit_low_rank *pair, const lora_sites *sites, const tacit_layout *layout,
                        tacit_trainable_kind kind, const float *values, const float *frozen);

/* `out` computes as the text model does, with every weight in `values` (layout of
 * TACIT_TRAIN_ALL), which outlives it. It shares the rest with the model; release it with
 * train_model_unbind. */
tacit_status train_model_bind(tacit_text_model *out, const tacit_model *model,
                              const tacit_layout *layout, const float *values,
                              tacit_error *err) TACIT_MUST_CHECK;
/* The same without any values: for sizes. */
tacit_status train_model_shape(tacit_text_model *out, const tacit_model *model,
                               tacit_error *err) TACIT_MUST_CHECK;
void train_model_unbind(tacit_text_model *m);

#endif
