/* How trainable values lie in the flat vector, and which tensors may carry a low-rank pair. */
#ifndef TACIT_ENGINE_LAYOUT_H
#define TACIT_ENGINE_LAYOUT_H

#include "engine/adapter.h"
#include "engine/text_model.h"

/* Resolves "blk.N.TARGET.weight" ("blk.3.attn_q.weight"); false for every other name. */
bool layout_parse_linear(const char *tensor, size_t *layer, text_linear *which);

/* True for TACIT_TRAIN_LORA and TACIT_TRAIN_LORA_FFA. */
bool layout_is_lora(tacit_trainable_kind kind);

/* Writes the base tensor's name of a LoRA entry or file tensor into `base` and tells the half, 'a'
 * or 'b'; 0 when the name is not that of a half or does not fit. */
char layout_base_name(const char *name, char *base, size_t base_size);

/* Index of the entry of that name, or layout->count. */
size_t layout_find(const tacit_layout *layout, const char *name);

/* Refuses (TACIT_USAGE) a spec of LoRA whose rank, alpha or targets cannot be. */
tacit_status layout_check_lora(const tacit_trainable_spec *spec, tacit_error *err) TACIT_MUST_CHECK;

#endif
