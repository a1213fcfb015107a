/* How trainable values lie in the flat vector. */
#ifndef TACIT_ENGINE_LAYOUT_H
#define TACIT_ENGINE_LAYOUT_H

#include "engine/adapter.h"

/* True for TACIT_TRAIN_LORA, TACIT_TRAIN_LORA_FFA and TACIT_TRAIN_LORA_CORE. */
bool layout_is_lora(tacit_trainable_kind kind);

/* True for those and TACIT_TRAIN_PROMPT: what is trained is kept beside a base that stays as it is.
 */
bool layout_is_adapter(tacit_trainable_kind kind);

/* Writes the base tensor's name of a LoRA entry or file tensor into `base` and tells the part: 'a',
 * 'b', or 'c' for the core between them; 0 when the name is not that of a part or does not fit. */
char layout_base_name(const char *name, char *base, size_t base_size);

/* Index of the entry of that name, or layout->count. */
size_t layout_find(const tacit_layout *layout, const char *name);

#endif
