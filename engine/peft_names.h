/* What Hugging Face's models call the linears that low-rank pairs stand beside, and how the rows of
 * their weights lie: one table of names for text models, one for what holds a text model (a model
 * of pictures and text). To add an architecture: a row in peft_names.c. */
#ifndef TACIT_ENGINE_PEFT_NAMES_H
#define TACIT_ENGINE_PEFT_NAMES_H

#include "engine/lora_sites.h"

#define PEFT_MODULE_MAX 192 /* bytes of a module's name with its NUL */
/* A half's tensor is PEFT_TENSOR_PREFIX MODULE ".lora_A.weight". */
#define PEFT_TENSOR_PREFIX "base_model.model."
#define PEFT_TENSOR_NAME_MAX (PEFT_MODULE_MAX + 40)

/* Modules of one text model have several names, of versions of transformers and of what holds it:
 * forms count from 0, which is what export writes; import takes all. */
size_t peft_forms(const tacit_model *m);

/* "model.layers.3.self_attn.q_proj", as in named_modules() of the model. False where there is no
 * such module: another encoder than SmolVLM's, an architecture without a row. */
bool peft_module(char out[PEFT_MODULE_MAX], const tacit_model *m, const lora_site *s, size_t form);

/* By which target_modules may name a linear of all layers at once: the shortest end of its name
 * that is no other's ("q_proj"). NULL where modules must be named whole, since an encoder's have
 * the same ends; for layers alone. */
const char *peft_short_name(const tacit_model *m, text_linear which);

/* Rows of one head where files of the architecture hold q and k with the halves of a head
 * interleaved (llama's), so that rows of B are, too; 0 where rows lie as in transformers. */
size_t peft_head_rows(const tacit_model *m, const lora_site *s);
/* Where the file has what is row `row` of transformers' weight. */
size_t peft_file_row(size_t row, size_t head_rows);

#endif
