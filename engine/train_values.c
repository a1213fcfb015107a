#include "engine/train_values.h"

#include "common/memory_limit.h"
#include "engine/ffa.h"
#include "engine/layout.h"
#include "engine/model_parts.h"
#include "engine/soft_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tacit_status train_values_text(float *values, const tacit_model *model, const tacit_layout *layout,
                               tacit_error *err)
{
    const gguf_file *file = model->text_file;
    for (size_t i = 0; i < layout->count; i++) {
        const tacit_trainable_entry *e = &layout->entry[i];
        const gguf_tensor *t = gguf_tensor_find(file, e->name);
        if (!t)
            continue; /* an encoder's */
        if (!t->traits || t->ne[0] != e->cols || t->rows != e->rows)
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s is not %zu rows of %zu values",
                              gguf_name(file), e->name, e->rows, e->cols);
        for (size_t r = 0; r < e->rows; r++)
            t->traits->to_f32(values + e->offset + r * e->cols, t->data + r * t->row_bytes,
                              e->cols);
    }
    return TACIT_OK;
}

/* What of a pair is drawn and not trained. */
static size_t frozen_floats(tacit_trainable_kind kind, const lora_site *s)
{
    size_t a = s->rank * s->n_in, b = s->n_out * s->rank;
    return kind == TACIT_TRAIN_LORA ? 0 : kind == TACIT_TRAIN_LORA_FFA ? a : a + b;
}

size_t train_values_frozen(const lora_sites *sites, tacit_trainable_kind kind)
{
    size_t values = 0;
    for (size_t i = 0; i < sites->count; i++)
        values += frozen_floats(kind, &sites->site[i]);
    return values;
}

tacit_status train_values_lora(float *values, float **frozen, const lora_sites *sites,
                               const tacit_layout *layout, const tacit_trainable_spec *spec,
                               tacit_error *err)
{
    size_t count = train_values_frozen(sites, spec->kind);
    if (count > 0) {
        void *memory;
        tacit_status status =
            tacit_memory_alloc(&memory, count, sizeof **frozen, "the frozen part of an adapter",
                               "take a smaller rank or fewer targets", err);
        *frozen = memory;
        if (status != TACIT_OK)
            return status;
    }
    float *drawn = *frozen;
    if (values)
        memset(values, 0, layout->values * sizeof *values);
    for (size_t i = 0; i < sites->count; i++) {
        const lora_site *s = &sites->site[i];
        bool trained = spec->kind == TACIT_TRAIN_LORA; /* A, the first of two entries a site */
        float *a = !trained ? drawn : values ? values + layout->entry[2 * i].offset : NULL;
        if (a)
            ffa_fill(a, s->rank, s->n_in, spec->seed, i);
        if (spec->kind == TACIT_TRAIN_LORA_CORE)
            ffa_fill(drawn + s->rank * s->n_in, s->n_out, s->rank, spec->seed, FFA_B | i);
        drawn += frozen_floats(spec->kind, s);
    }
    return TACIT_OK;
}

void train_values_prompts(float *values, const tacit_model *model, const tacit_layout *layout,
                          const tacit_trainable_spec *spec)
{
    const tacit_text_model *text = &model->text;
    for (size_t i = 0; i < layout->count; i++) {
        const tacit_trainable_entry *e = &layout->entry[i];
        bool of_pictures = strcmp(e->name, soft_prompt_name(SOFT_PROMPT_IMAGE)) == 0;
        for (size_t r = 0; r < e->rows; r++) {
            int32_t token = (int32_t)(ffa_word(spec->seed, of_pictures, r) * text->vocab >> 32);
            text_embed(text, values + e->offset + r * e->cols, &token, 1);
        }
    }
}

void train_values_pairs(tacit_low_rank *pair, const lora_sites *sites, const tacit_layout *layout,
                        tacit_trainable_kind kind, const float *values, const float *frozen)
{
    const tacit_trainable_entry *e = layout->entry;
    for (size_t i = 0; i < sites->count; i++) {
        const lora_site *s = &sites->site[i];
        tacit_low_rank p = {.rank = s->rank, .scale = s->scale};
        p.a = kind == TACIT_TRAIN_LORA ? values + e++->offset : frozen;
        if (kind == TACIT_TRAIN_LORA_CORE) {
            p.b = frozen + s->rank * s->n_in;
            p.core = values + e++->offset;
        } else {
            p.b = values + e++->offset;
        }
        frozen += frozen_floats(kind, s);
        pair[i] = p;
    }
}

static const float *value_of(const tacit_layout *layout, const float *values, const char *name)
{
    size_t i = layout_find(layout, name);
    return i < layout->count ? values + layout->entry[i].offset : NULL;
}

static void bind_layer(tacit_text_layer *l, size_t index, const tacit_layout *layout,
                       const float *values)
{
    char name[64];
    for (int i = 0; i < TEXT_NORMS; i++) {
        snprintf(name, sizeof name, "blk.%zu.%s.weight", index, text_norm_name((text_norm)i));
        l->norm[i] = value_of(layout, values, name);
    }
    for (int i = 0; i < TEXT_LINEARS; i++) {
        const char *which = text_linear_name((text_linear)i);
        tacit_linear *linear = &l->linear[i];
        snprintf(name, sizeof name, "blk.%zu.%s.bias", index, which);
        const float *bias = value_of(layout, values, name);
        snprintf(name, sizeof name, "blk.%zu.%s.weight", index, which);
        linear_init_f32(linear, value_of(layout, values, name), bias, linear->n_in, linear->n_out);
    }
}

/* A copy with layers of its own. */
static tacit_status copy_model(tacit_text_model *out, const tacit_model *model, tacit_error *err)
{
    *out = model->text;
    out->owned = NULL;
    out->n_owned = 0;
    out->layer = malloc(out->n_layers * sizeof *out->layer);
    if (!out->layer)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for %zu layers", out->n_layers);
    memcpy(out->layer, model->text.layer, out->n_layers * sizeof *out->layer);
    return TACIT_OK;
}

tacit_status train_model_shape(tacit_text_model *out, const tacit_model *model, tacit_error *err)
{
    tacit_status status = copy_model(out, model, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < out->n_layers; i++)
        for (int k = 0; k < TEXT_LINEARS; k++) {
            tacit_linear *l = &out->layer[i].linear[k];
            linear_init_f32(l, NULL, NULL, l->n_in, l->n_out);
        }
    linear_init_f32(&out->output, NULL, NULL, out->embedding, out->vocab);
    return TACIT_OK;
}

tacit_status train_model_bind(tacit_text_model *out, const tacit_model *model,
                              const tacit_layout *layout, const float *values, tacit_error *err)
{
    tacit_status status = copy_model(out, model, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < out->n_layers; i++)
        bind_layer(&out->layer[i], i, layout, values);
    const float *embedding = value_of(layout, values, "token_embd.weight");
    linear_init_f32(&out->token_embedding, embedding, NULL, out->embedding, out->vocab);
    const float *output = out->tied ? embedding : value_of(layout, values, "output.weight");
    linear_init_f32(&out->output, output, NULL, out->embedding, out->vocab);
    out->output_norm = value_of(layout, values, out->output_norm_name);
    return TACIT_OK;
}

void train_model_unbind(tacit_text_model *m)
{
    free(m->layer);
    *m = (tacit_text_model){0};
}
