#include "engine/adapter.h"

#include "common/memory_limit.h"
#include "common/text.h"
#include "engine/adapter_parts.h"
#include "engine/layout.h"
#include "engine/model_parts.h"
#include "engine/train_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTER_FORMAT 1

static tacit_status refuse_other_kinds(const tacit_trainable_spec *spec, tacit_error *err)
{
    return layout_is_lora(spec->kind)
               ? TACIT_OK
               : tacit_fail(err, TACIT_USAGE,
                            "adapter: only LoRA has adapter files; save the model instead");
}

static void put_hex(gguf_writer *w, const char *key, const uint8_t *data, size_t size)
{
    char text[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(text, data, size);
    gguf_put_string(w, key, text, 2 * size);
}

static void put_keys(gguf_writer *w, const tacit_model *model, const tacit_trainable_spec *spec,
                     const tacit_adapter_info *info, const tacit_layout *layout)
{
    const char *architecture = model->text.architecture;
    gguf_put_string(w, "general.architecture", architecture, strlen(architecture));
    gguf_put_string(w, "general.type", "adapter", 7);
    gguf_put_string(w, "adapter.type", "lora", 4);
    gguf_put_f32(w, "adapter.lora.alpha", (float)spec->alpha);
    gguf_put_u32(w, "tacit.format", ADAPTER_FORMAT);
    put_hex(w, "tacit.base_digest", tacit_model_base_digest(model), TACIT_DIGEST_BYTES);
    gguf_put_u64(w, "tacit.version", info->version);
    gguf_put_u64(w, "tacit.parent_version", info->parent_version);
    put_hex(w, "tacit.lineage", info->lineage, sizeof info->lineage);
    put_hex(w, "tacit.layout_hash", layout->hash, sizeof layout->hash);
    if (info->canaries)
        gguf_put_u64(w, "tacit.canaries", info->canaries);
}

static tacit_status put_matrix(gguf_writer *w, const char *name, size_t rows, size_t cols,
                               const float *values, tacit_error *err)
{
    const uint64_t ne[2] = {cols, rows};
    for (size_t i = 0; i < rows * cols; i++)
        if (!isfinite(values[i]))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "adapter: %s: value %zu is not finite; nothing was written", name, i);
    gguf_put_tensor(w, name, 2, ne, TACIT_TYPE_F32, values);
    return TACIT_OK;
}

/* FFA's layout names the B halves alone: each A goes before its B. */
static tacit_status put_pairs(gguf_writer *w, const tacit_model *model,
                              const tacit_trainable_spec *spec, const tacit_layout *layout,
                              const float *values, const float *frozen_a, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < layout->count && status == TACIT_OK; i++) {
        const tacit_trainable_entry *e = &layout->entry[i];
        char base[sizeof e->name], name[sizeof e->name + 8];
        size_t layer = 0;
        text_linear which = TEXT_Q;
        if (!layout_base_name(e->name, base, sizeof base) ||
            !layout_parse_linear(base, &layer, &which))
            return tacit_fail(err, TACIT_FAILED, "adapter: unexpected entry %s", e->name);
        if (frozen_a) {
            size_t n_in = model->text.layer[layer].linear[which].n_in;
            snprintf(name, sizeof name, "%s.lora_a", base);
            status = put_matrix(w, name, spec->rank, n_in, frozen_a, err);
            frozen_a += spec->rank * n_in;
        }
        if (status == TACIT_OK)
            status = put_matrix(w, e->name, e->rows, e->cols, values + e->offset, err);
    }
    return status;
}

tacit_status tacit_adapter_save(const char *path, const tacit_model *model,
                                const tacit_trainable_spec *spec, const float *values,
                                const tacit_adapter_info *info, tacit_error *err)
{
    tacit_layout layout = {0};
    void *first = NULL;
    float *frozen_a = NULL;
    gguf_writer *w = NULL;
    tacit_status status = refuse_other_kinds(spec, err);
    if (status != TACIT_OK)
        return status;
    if (info->has_base_digest &&
        memcmp(info->base_digest, tacit_model_base_digest(model), TACIT_DIGEST_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "%s: the adapter belongs to another base", path);
    TACIT_TRY(tacit_layout_make(&layout, model, spec, err), out);
    TACIT_TRY(tacit_memory_alloc(&first, layout.values, sizeof *values, "writing an adapter",
                                 "nothing was written; write it where that much is", err),
              out);
    w = gguf_writer_new();
    TACIT_TRY(train_values_lora(first, &frozen_a, model, &layout, spec, err), out);
    put_keys(w, model, spec, info, &layout);
    TACIT_TRY(put_pairs(w, model, spec, &layout, values, frozen_a, err), out);
    TACIT_TRY(gguf_write(w, path, err), out);
out:
    gguf_writer_free(w);
    free(first);
    free(frozen_a);
    tacit_layout_free(&layout);
    return status;
}

/* ---- the flat vector from a file ---- */

static tacit_status copy_half(const char *path, const adapter_pair *p, char half, size_t rows,
                              size_t cols, float *to, tacit_error *err)
{
    size_t expected_rows = half == 'a' ? p->rank : p->n_out;
    size_t expected_cols = half == 'a' ? p->n_in : p->rank;
    if (rows != expected_rows || cols != expected_cols)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: %s.lora_%c has rank %zu, the trainable set another", path, p->tensor,
                          half, p->rank);
    memcpy(to, half == 'a' ? p->a : p->b, rows * cols * sizeof *to);
    return TACIT_OK;
}

static tacit_status check_scale(const char *path, const adapter_pair *p,
                                const tacit_trainable_spec *spec, tacit_error *err)
{
    float expected = (float)((double)(float)spec->alpha / spec->rank);
    if (p->scale == expected)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s is scaled by %g, the trainable set says %g",
                      path, p->tensor, (double)p->scale, (double)expected);
}

static tacit_status copy_pairs(const char *path, const tacit_adapter *a,
                               const tacit_trainable_spec *spec, const tacit_layout *layout,
                               const float *frozen_a, float *values, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    size_t expected = layout->count / (spec->kind == TACIT_TRAIN_LORA ? 2 : 1);
    if (adapter_pair_count(a) != expected)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %zu pairs; the trainable set has %zu", path,
                          adapter_pair_count(a), expected);
    for (size_t i = 0; i < layout->count; i++) {
        const tacit_trainable_entry *e = &layout->entry[i];
        char base[sizeof e->name];
        char half = layout_base_name(e->name, base, sizeof base);
        const adapter_pair *p = adapter_find(a, base);
        if (!p)
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: no pair for %s", path, base);
        TACIT_TRY(check_scale(path, p, spec, err), out);
        TACIT_TRY(copy_half(path, p, half, e->rows, e->cols, values + e->offset, err), out);
        if (!frozen_a)
            continue;
        size_t size = spec->rank * p->n_in;
        if (memcmp(frozen_a, p->a, size * sizeof *frozen_a) != 0)
            return tacit_fail(err, TACIT_INTEGRITY,
                              "%s: %s.lora_a is not the one that the lineage's seed draws", path,
                              base);
        frozen_a += size;
    }
out:
    return status;
}

static tacit_status refuse_canaries(const char *path, const tacit_adapter_info *info,
                                    tacit_error *err)
{
    if (info->canaries == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_REFUSED,
                      "%s: it was trained with %llu canaries, for an audit; train without them to "
                      "get an adapter to build on",
                      path, (unsigned long long)info->canaries);
}

tacit_status tacit_adapter_read_values(const char *path, const tacit_model *model,
                                       const tacit_trainable_spec *spec, float *values,
                                       tacit_error *err)
{
    tacit_layout layout = {0};
    tacit_adapter *a = NULL;
    float *frozen_a = NULL;
    tacit_status status = refuse_other_kinds(spec, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_layout_make(&layout, model, spec, err), out);
    TACIT_TRY(tacit_adapter_load(&a, model, path, err), out);
    TACIT_TRY(refuse_canaries(path, tacit_adapter_get_info(a), err), out);
    TACIT_TRY(train_values_lora(values, &frozen_a, model, &layout, spec, err), out);
    TACIT_TRY(copy_pairs(path, a, spec, &layout, frozen_a, values, err), out);
out:
    tacit_adapter_free(a);
    free(frozen_a);
    tacit_layout_free(&layout);
    return status;
}
