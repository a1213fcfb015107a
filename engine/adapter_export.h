/* Adapters for other programs: a folder that PEFT loads, or an ordinary LoRA file that llama.cpp
 * does.
 *
 * What is written computes what the adapter does, to the rounding of single precision: a pair
 * B A x alpha / rank stays what it is, a core R between drawn halves becomes (A, B R). Rows of B
 * lie as the other side has them (peft_names.h). TACIT_REFUSED for an adapter with canaries: nobody
 * would see them there. Of the written tensors one is in memory at a time. */
#ifndef TACIT_ENGINE_ADAPTER_EXPORT_H
#define TACIT_ENGINE_ADAPTER_EXPORT_H

#include "engine/adapter.h"

/* Publishes adapter_model.safetensors (F32) and then adapter_config.json in the folder `dir`, which
 * is made where it is not there, once nothing can be refused any more. `base`:
 * base_model_name_or_path, or NULL. TACIT_BAD_INPUT: a pair beside a linear of which no name in
 * transformers is known; it says which, and what to do. */
tacit_status adapter_export_peft(const char *dir, const tacit_adapter *a, const tacit_model *model,
                                 const char *base, tacit_error *err) TACIT_MUST_CHECK;

/* Publishes a GGUF file of adapter.type "lora" with the adapter's own keys of Tacit.
 * TACIT_BAD_INPUT: a pair beside an encoder, which other programs would not find. */
tacit_status adapter_export_gguf(const char *path, const tacit_adapter *a, const tacit_model *model,
                                 tacit_error *err) TACIT_MUST_CHECK;

#endif
