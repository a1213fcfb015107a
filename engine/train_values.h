/* Where training starts: the flat vector's first values, and a text model that computes with it. */
#ifndef TACIT_ENGINE_TRAIN_VALUES_H
#define TACIT_ENGINE_TRAIN_VALUES_H

#include "engine/model.h"
#include "engine/text_model.h"
#include "engine/trainable.h"

/* Values of the text model's tensors in a layout of TACIT_TRAIN_ALL, dequantized from the file. */
tacit_status train_values_text(float *values, const tacit_model *model, const tacit_layout *layout,
                               tacit_error *err) TACIT_MUST_CHECK;

/* Values of all frozen halves A of an FFA layout. */
size_t train_values_frozen(const tacit_model *model, const tacit_layout *layout,
                           const tacit_trainable_spec *spec);

/* LoRA: every A from the seed and B = 0. A goes into `values`, or for FFA into *frozen_a, malloc'ed
 * and in layout order. */
tacit_status train_values_lora(float *values, float **frozen_a, const tacit_model *model,
                               const tacit_layout *layout, const tacit_trainable_spec *spec,
                               tacit_error *err) TACIT_MUST_CHECK;

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
