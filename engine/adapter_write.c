#include "engine/adapter.h"

#include "common/memory_limit.h"
#include "common/text.h"
#include "engine/adapter_parts.h"
#include "engine/layout.h"
#include "engine/lora_sites.h"
#include "engine/model_parts.h"
#include "engine/train_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTER_FORMAT 1
#define WRITE_ELSEWHERE "nothing was written; write it where that much is"

static tacit_status refuse_other_kinds(const tacit_trainable_spec *spec, tacit_error *err)
{
    return layout_is_adapter(spec->kind)
               ? TACIT_OK
               : tacit_fail(
                     err, TACIT_USAGE,
                     "adapter: only LoRA and soft prompts have adapter files; save the model "
                     "instead");
}

static void put_hex(gguf_writer *w, const char *key, const uint8_t *data, size_t size)
{
    char text[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(text, data, size);
    gguf_put_string(w, key, text, 2 * size);
}

void adapter_keys_put(gguf_writer *w, const tacit_model *model, const adapter_keys *keys,
                      const uint8_t *base_digest)
{
    const char *architecture = model->text.architecture;
    gguf_put_string(w, "general.architecture", architecture, strlen(architecture));
    gguf_put_string(w, "general.type", "adapter", 7);
    gguf_put_string(w, "adapter.type", keys->type, strlen(keys->type));
    if (strcmp(keys->type, ADAPTER_TYPE_PROMPT) != 0)
        gguf_put_f32(w, "adapter.lora.alpha", (float)keys->alpha);
    if (strcmp(keys->type, ADAPTER_TYPE_CORE) == 0)
        put_hex(w, "tacit.seed", keys->seed, sizeof keys->seed);
    gguf_put_u32(w, "tacit.format", ADAPTER_FORMAT);
    if (base_digest)
        put_hex(w, "tacit.base_digest", base_digest, TACIT_DIGEST_BYTES);
    gguf_put_u64(w, "tacit.version", keys->info.version);
    gguf_put_u64(w, "tacit.parent_version", keys->info.parent_version);
    put_hex(w, "tacit.lineage", keys->info.lineage, sizeof keys->info.lineage);
    if (keys->info.canaries)
        gguf_put_u64(w, "tacit.canaries", keys->info.canaries);
}

static void put_keys(gguf_writer *w, const tacit_model *model, const tacit_trainable_spec *spec,
                     const tacit_adapter_info *info, const tacit_layout *layout,
                     const lora_sites *sites)
{
    adapter_keys keys = {.type = spec->kind == TACIT_TRAIN_PROMPT      ? ADAPTER_TYPE_PROMPT
                                 : spec->kind == TACIT_TRAIN_LORA_CORE ? ADAPTER_TYPE_CORE
                                 : sites->encoders                     ? ADAPTER_TYPE_TACIT_LORA
                                                                       : ADAPTER_TYPE_LORA,
                         .info = *info,
                         .alpha = (double)lora_file_alpha(spec)};
    memcpy(keys.seed, spec->seed, sizeof keys.seed);
    adapter_keys_put(w, model, &keys, tacit_model_base_digest(model));
    put_hex(w, "tacit.layout_hash", layout->hash, sizeof layout->hash);
}

/* `factor` times a matrix that must be finite. */
static tacit_status put_matrix(gguf_writer *w, const char *name, size_t rows, size_t cols,
                               const float *values, float factor, tacit_error *err)
{
    const uint64_t ne[2] = {cols, rows};
    for (size_t i = 0; i < rows * cols; i++)
        if (!isfinite(values[i]) || !isfinite(factor * values[i]))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "adapter: %s: value %zu is not finite; nothing was written", name, i);
    if (factor == 1.0f) {
        gguf_put_tensor(w, name, 2, ne, TACIT_TYPE_F32, values);
        return TACIT_OK;
    }
    void *scaled;
    tacit_status status = tacit_memory_alloc(&scaled, rows * cols, sizeof *values,
                                             "writing an adapter", WRITE_ELSEWHERE, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < rows * cols; i++)
        ((float *)scaled)[i] = factor * values[i];
    gguf_put_tensor(w, name, 2, ne, TACIT_TYPE_F32, scaled);
    free(scaled);
    return TACIT_OK;
}

static tacit_status put_part(gguf_writer *w, const lora_site *s, const char *suffix, size_t rows,
                             size_t cols, const float *values, float factor, tacit_error *err)
{
    char name[sizeof s->tensor + 16];
    snprintf(name, sizeof name, "%s%s", s->tensor, suffix);
    return put_matrix(w, name, rows, cols, values, factor, err);
}

static tacit_status put_pairs(gguf_writer *w, const lora_sites *sites, const tacit_low_rank *pair,
                              const tacit_trainable_spec *spec, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < sites->count; i++) {
        const lora_site *s = &sites->site[i];
        const tacit_low_rank *p = &pair[i];
        float factor = lora_file_factor(spec, s->rank);
        if (p->core) {
            TACIT_TRY(put_part(w, s, ".lora_core", s->rank, s->rank, p->core, factor, err), out);
            continue;
        }
        TACIT_TRY(put_part(w, s, ".lora_a", s->rank, s->n_in, p->a, 1, err), out);
        TACIT_TRY(put_part(w, s, ".lora_b", s->n_out, s->rank, p->b, factor, err), out);
    }
out:
    return status;
}

static tacit_status put_prompts(gguf_writer *w, const tacit_layout *layout,
                                const tacit_trainable_spec *spec, const float *values,
                                tacit_error *err)
{
    tacit_status status = TACIT_OK;
    bool prompts = spec->kind == TACIT_TRAIN_PROMPT;
    for (size_t i = 0; prompts && i < layout->count && status == TACIT_OK; i++) {
        const tacit_trainable_entry *e = &layout->entry[i];
        status = put_matrix(w, e->name, e->rows, e->cols, values + e->offset, 1, err);
    }
    return status;
}

/* The pairs of a spec over the flat `values`. */
typedef struct spec_pairs {
    tacit_layout layout;
    lora_sites sites;
    float *frozen;
    tacit_low_rank *pair; /* [sites.count] */
} spec_pairs;

static void pairs_close(spec_pairs *p)
{
    free(p->pair);
    free(p->frozen);
    lora_sites_free(&p->sites);
    tacit_layout_free(&p->layout);
}

/* Closed by the caller, also on failure. */
static tacit_status pairs_open(spec_pairs *p, const tacit_model *model,
                               const tacit_trainable_spec *spec, const float *values,
                               tacit_error *err)
{
    tacit_status status = refuse_other_kinds(spec, err);
    *p = (spec_pairs){0};
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_layout_make(&p->layout, model, spec, err), out);
    if (spec->kind == TACIT_TRAIN_PROMPT)
        return TACIT_OK;
    TACIT_TRY(lora_sites_of(&p->sites, model, spec, err), out);
    TACIT_TRY(train_values_lora(NULL, &p->frozen, &p->sites, &p->layout, spec, err), out);
    p->pair = calloc(p->sites.count, sizeof *p->pair);
    if (!p->pair)
        return tacit_fail(err, TACIT_NO_MEMORY, "adapter: no memory for %zu pairs", p->sites.count);
    train_values_pairs(p->pair, &p->sites, &p->layout, spec->kind, values, p->frozen);
out:
    return status;
}

tacit_status tacit_adapter_save(const char *path, const tacit_model *model,
                                const tacit_trainable_spec *spec, const float *values,
                                const tacit_adapter_info *info, tacit_error *err)
{
    spec_pairs pairs;
    gguf_writer *w = NULL;
    tacit_status status = pairs_open(&pairs, model, spec, values, err);
    if (status == TACIT_OK && info->has_base_digest &&
        memcmp(info->base_digest, tacit_model_base_digest(model), TACIT_DIGEST_BYTES) != 0)
        status = tacit_fail(err, TACIT_INTEGRITY, "%s: the adapter belongs to another base", path);
    if (status != TACIT_OK)
        goto out;
    w = gguf_writer_new();
    put_keys(w, model, spec, info, &pairs.layout, &pairs.sites);
    TACIT_TRY(put_prompts(w, &pairs.layout, spec, values, err), out);
    TACIT_TRY(put_pairs(w, &pairs.sites, pairs.pair, spec, err), out);
    TACIT_TRY(gguf_write(w, path, err), out);
out:
    gguf_writer_free(w);
    pairs_close(&pairs);
    return status;
}

/* ---- the flat vector from a file ---- */

static tacit_status check_pair(const char *path, const adapter_pair *p, const lora_site *s,
                               const tacit_trainable_spec *spec, tacit_error *err)
{
    float expected = (float)((double)lora_file_alpha(spec) / s->rank);
    if (p->rank != s->rank)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: the pair of %s has rank %zu, the trainable set says %u", path,
                          p->tensor, p->rank, s->rank);
    if (p->scale != expected)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s is scaled by %g, the trainable set says %g",
                          path, p->tensor, (double)p->scale, (double)expected);
    if ((p->core != NULL) != (spec->kind == TACIT_TRAIN_LORA_CORE))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s has %s core, the trainable set says %s",
                          path, p->tensor, p->core ? "a" : "no", p->core ? "none" : "one");
    return TACIT_OK;
}

static void take_trained(float *to, const float *found, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        to[i] = found[i] / factor;
}

static tacit_status check_drawn(const lora_site *s, char half, const float *drawn,
                                const float *found, size_t n, tacit_error *err)
{
    if (memcmp(drawn, found, n * sizeof *found) == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY,
                      "%s.lora_%c is not the one that the lineage's seed draws", s->tensor, half);
}

static tacit_status take_pair(const spec_pairs *pairs, size_t i, const adapter_pair *found,
                              const tacit_trainable_spec *spec, float *values, tacit_error *err)
{
    const lora_site *s = &pairs->sites.site[i];
    const tacit_low_rank *drawn = &pairs->pair[i];
    bool both = spec->kind == TACIT_TRAIN_LORA;
    const tacit_trainable_entry *e = &pairs->layout.entry[both ? 2 * i : i];
    size_t a = s->rank * s->n_in, b = s->n_out * s->rank;
    float factor = lora_file_factor(spec, s->rank);
    tacit_status status = TACIT_OK;
    if (both)
        take_trained(values + e++->offset, found->a, a, 1);
    else
        TACIT_TRY(check_drawn(s, 'a', drawn->a, found->a, a, err), out);
    if (drawn->core)
        TACIT_TRY(check_drawn(s, 'b', drawn->b, found->b, b, err), out);
    if (drawn->core)
        take_trained(values + e->offset, found->core, (size_t)s->rank * s->rank, factor);
    else
        take_trained(values + e->offset, found->b, b, factor);
out:
    return status;
}

static tacit_status take_pairs(const char *path, const tacit_adapter *a, const spec_pairs *pairs,
                               const tacit_trainable_spec *spec, float *values, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    if (adapter_pair_count(a) != pairs->sites.count)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %zu pairs; the trainable set has %zu", path,
                          adapter_pair_count(a), pairs->sites.count);
    for (size_t i = 0; i < pairs->sites.count; i++) {
        const lora_site *s = &pairs->sites.site[i];
        const adapter_pair *p = adapter_find(a, s->tensor);
        if (!p)
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: no pair for %s", path, s->tensor);
        TACIT_TRY(check_pair(path, p, s, spec, err), out);
        status = take_pair(pairs, i, p, spec, values, err);
        if (status != TACIT_OK)
            return tacit_fail_context(err, "%s", path);
    }
out:
    return status;
}

static tacit_status take_prompts(const char *path, const tacit_adapter *a,
                                 const tacit_trainable_spec *spec, float *values, size_t width,
                                 tacit_error *err)
{
    soft_prompt wanted[SOFT_PROMPTS];
    soft_prompt_of_spec(wanted, spec);
    for (size_t k = 0; k < SOFT_PROMPTS; k++) {
        soft_prompt found = adapter_prompt(a, (soft_prompt_place)k);
        if (found.n_rows != wanted[k].n_rows)
            return tacit_fail(
                err, TACIT_BAD_INPUT, "%s: %s has %zu rows, the trainable set says %zu", path,
                soft_prompt_name((soft_prompt_place)k), found.n_rows, wanted[k].n_rows);
        if (found.n_rows > 0)
            memcpy(values, found.rows, found.n_rows * width * sizeof *values);
        values += found.n_rows * width;
    }
    return TACIT_OK;
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
    spec_pairs pairs;
    tacit_adapter *a = NULL;
    tacit_status status = pairs_open(&pairs, model, spec, values, err);
    if (status != TACIT_OK)
        goto out;
    TACIT_TRY(tacit_adapter_load(&a, model, path, err), out);
    TACIT_TRY(refuse_canaries(path, tacit_adapter_get_info(a), err), out);
    if (spec->kind == TACIT_TRAIN_PROMPT)
        status = take_prompts(path, a, spec, values, model->text.embedding, err);
    else
        status = take_pairs(path, a, &pairs, spec, values, err);
out:
    tacit_adapter_free(a);
    pairs_close(&pairs);
    return status;
}
