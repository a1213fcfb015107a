/* Adapters of PEFT as files for the engine.
 *
 * Both files are hostile: what safetensors.h and peft_config.h refuse, and (TACIT_BAD_INPUT)
 * tensors of modules that the model lacks or that are no halves of a pair, missing halves, shapes
 * and ranks other than the model's and the configuration's, types other than F32, F16 and BF16, NaN
 * and inf. The errors name file and tensor. */
#ifndef TACIT_ENGINE_ADAPTER_IMPORT_H
#define TACIT_ENGINE_ADAPTER_IMPORT_H

#include "engine/adapter.h"

#define ADAPTER_SOURCE_PATH 4096

/* The two files that `path` stands for: a folder that PEFT saved, or its adapter_model.safetensors
 * with the configuration beside it. */
typedef struct adapter_source {
    char tensors[ADAPTER_SOURCE_PATH], config[ADAPTER_SOURCE_PATH];
} adapter_source;

/* TACIT_BAD_INPUT where neither is there, or tensors are pickled. */
tacit_status adapter_source_find(adapter_source *out, const char *path,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Publishes it as an adapter for `model`, by whose base digest it is known from then on. Rows of B
 * lie as the model's file has them, and B is scaled so that alpha / rank of the file counts as
 * PEFT's scale does; where no pattern says otherwise B stays what it is to the bit. *pairs: how
 * many there are. Of the written tensors one is in memory at a time. */
tacit_status adapter_import(const char *path, const adapter_source *source,
                            const tacit_model *model, size_t *pairs,
                            tacit_error *err) TACIT_MUST_CHECK;

#endif
