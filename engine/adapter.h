/* Adapters as GGUF files (general.type "adapter", adapter.type "lora", as in the ecosystem, or one
 * of Tacit's own: "tacit.lora", "tacit.core", "tacit.prompt"), with Tacit's keys: tacit.format
 * (u32), tacit.base_digest (hex), tacit.version, tacit.parent_version (u64), tacit.lineage (hex),
 * tacit.layout_hash (hex), and tacit.canaries (u64) where there were some: such an adapter was
 * perturbed on purpose, for an audit. It loads with a warning, and nothing starts from it.
 * Immutable after loading, bound to a context. */
#ifndef TACIT_ENGINE_ADAPTER_H
#define TACIT_ENGINE_ADAPTER_H

#include "engine/input.h"
#include "engine/model.h"
#include "engine/trainable.h"

typedef struct tacit_adapter tacit_adapter;

typedef struct tacit_adapter_info {
    uint64_t version, parent_version;
    uint8_t lineage[16];
    uint8_t base_digest[32];
    bool has_base_digest;
    uint64_t canaries; /* of the training run that made it; 0: none, as it should be */
} tacit_adapter_info;

/* Refuses (TACIT_BAD_INPUT) another architecture, unknown tensors, wrong shapes, a missing half of
 * a pair, NaN and inf; (TACIT_INTEGRITY) another base digest, naming both. A file without
 * tacit.base_digest loads after the shape check with a warning in the log. */
tacit_status tacit_adapter_load(tacit_adapter **out, const tacit_model *model, const char *path,
                                tacit_error *err) TACIT_MUST_CHECK;
void tacit_adapter_free(tacit_adapter *a);
const tacit_adapter_info *tacit_adapter_get_info(const tacit_adapter *a);

/* Puts the adapter's soft prompts into an input of its model, which has none yet (soft_prompt.h);
 * nothing where it has none, or is NULL. */
tacit_status tacit_adapter_prepend(const tacit_adapter *a, const tacit_model *model,
                                   tacit_input *in, tacit_error *err) TACIT_MUST_CHECK;

/* Writes the adapter that `spec` and the flat `values` (layout of that spec) describe. The same
 * arguments give the same bytes. */
tacit_status tacit_adapter_save(const char *path, const tacit_model *model,
                                const tacit_trainable_spec *spec, const float *values,
                                const tacit_adapter_info *info, tacit_error *err) TACIT_MUST_CHECK;

/* Reads the flat vector of `spec` back from a file that tacit_adapter_save wrote; for FFA the
 * file's A must equal the seed's bit for bit. TACIT_REFUSED for one with canaries. values has
 * layout->values entries. */
tacit_status tacit_adapter_read_values(const char *path, const tacit_model *model,
                                       const tacit_trainable_spec *spec, float *values,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* Layout of a spec on a model, from the file's shapes alone. Free with tacit_layout_free. */
tacit_status tacit_layout_make(tacit_layout *out, const tacit_model *model,
                               const tacit_trainable_spec *spec, tacit_error *err) TACIT_MUST_CHECK;
void tacit_layout_free(tacit_layout *l);

#endif
