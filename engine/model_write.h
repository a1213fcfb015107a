/* Writing trained models back as GGUF files: keys and tensor names of the file they came from, each
 * tensor in the type that a policy gives it. The model is only read; threads may share it. */
#ifndef TACIT_ENGINE_MODEL_WRITE_H
#define TACIT_ENGINE_MODEL_WRITE_H

#include "engine/model.h"
#include "engine/trainable.h"

/* One rule: a tensor whose name starts with `prefix` and ends in `suffix` (either may be "") and
 * has at least `min_dims` dimensions is written as `type`. The first rule that holds decides; a
 * tensor without a rule keeps its type, and one whose rows are no multiple of the type's block is
 * written as F16. The table ends with a row whose prefix is NULL. */
typedef struct tacit_type_rule {
    const char *prefix, *suffix;
    uint32_t min_dims;
    tacit_type type;
} tacit_type_rule;

/* Linears and embedding Q8_0, kernels of convolutions F16, everything else (norms, biases,
 * positions) F32. */
extern const tacit_type_rule tacit_types_q8_0[];
/* Everything F32: checkpoints of a training run. */
extern const tacit_type_rule tacit_types_f32[];

/* Writes one file of `model` under `path`, atomically: file 0 is the text model, 1 and more its
 * mmproj files in the order of loading. Tensors that `layout` names take their values from
 * `values` [layout->values], the others from the file. `layout` is that of TACIT_TRAIN_ALL or
 * TACIT_TRAIN_PROJECTOR; one of LoRA is refused (TACIT_USAGE), because an adapter is never merged
 * into a quantized base. NaN and inf are refused with the tensor's name. The same arguments give
 * the same bytes. */
tacit_status tacit_model_save(const char *path, const tacit_model *model, size_t file,
                              const tacit_layout *layout, const float *values,
                              const tacit_type_rule *rules, tacit_error *err) TACIT_MUST_CHECK;

/* The most that it takes, one tensor at a time, whichever file and types. */
uint64_t model_save_bytes(const tacit_model *model);

#endif
