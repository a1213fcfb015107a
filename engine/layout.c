#include "engine/layout.h"

#include "engine/encoder.h"
#include "engine/lora_sites.h"
#include "engine/model_parts.h"
#include "engine/soft_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool layout_is_lora(tacit_trainable_kind kind)
{
    return kind == TACIT_TRAIN_LORA || kind == TACIT_TRAIN_LORA_FFA ||
           kind == TACIT_TRAIN_LORA_CORE;
}

bool layout_is_adapter(tacit_trainable_kind kind)
{
    return layout_is_lora(kind) || kind == TACIT_TRAIN_PROMPT;
}

char layout_base_name(const char *name, char *base, size_t base_size)
{
    static const char *const suffix[] = {".lora_a", ".lora_b", ".lora_core"};
    size_t size = strlen(name);
    for (size_t i = 0; i < sizeof suffix / sizeof suffix[0]; i++) {
        size_t tail = strlen(suffix[i]);
        if (size <= tail || size - tail >= base_size || strcmp(name + size - tail, suffix[i]) != 0)
            continue;
        memcpy(base, name, size - tail);
        base[size - tail] = '\0';
        return suffix[i][strlen(".lora_")];
    }
    return 0;
}

size_t layout_find(const tacit_layout *layout, const char *name)
{
    for (size_t i = 0; i < layout->count; i++)
        if (strcmp(layout->entry[i].name, name) == 0)
            return i;
    return layout->count;
}

/* Entries are counted first and written in a second pass: `entry` is NULL while counting. */
typedef struct layout_cursor {
    tacit_trainable_entry *entry;
    size_t count;
} layout_cursor;

static void put_entry(layout_cursor *c, size_t rows, size_t cols, const char *base,
                      const char *suffix)
{
    if (c->entry) {
        tacit_trainable_entry *e = &c->entry[c->count];
        snprintf(e->name, sizeof e->name, "%s%s", base, suffix);
        e->rows = rows;
        e->cols = cols;
    }
    c->count++;
}

static void put_lora(layout_cursor *c, const lora_sites *sites, tacit_trainable_kind kind)
{
    for (size_t i = 0; i < sites->count; i++) {
        const lora_site *s = &sites->site[i];
        if (kind == TACIT_TRAIN_LORA)
            put_entry(c, s->rank, s->n_in, s->tensor, ".lora_a");
        if (kind == TACIT_TRAIN_LORA_CORE)
            put_entry(c, s->rank, s->rank, s->tensor, ".lora_core");
        else
            put_entry(c, s->n_out, s->rank, s->tensor, ".lora_b");
    }
}

static void put_prompts(layout_cursor *c, const tacit_text_model *text,
                        const tacit_trainable_spec *spec)
{
    soft_prompt prompt[SOFT_PROMPTS];
    soft_prompt_of_spec(prompt, spec);
    for (size_t k = 0; k < SOFT_PROMPTS; k++)
        if (prompt[k].n_rows > 0)
            put_entry(c, prompt[k].n_rows, text->embedding, soft_prompt_name((soft_prompt_place)k),
                      "");
}

static tacit_status check_prompts(const tacit_model *model, const tacit_trainable_spec *spec,
                                  tacit_error *err)
{
    if (spec->virtual_tokens > SOFT_PROMPT_MAX_ROWS ||
        spec->image_virtual_tokens > SOFT_PROMPT_MAX_ROWS)
        return tacit_fail(err, TACIT_USAGE, "soft prompt: %u and %u rows; expected at most %d each",
                          spec->virtual_tokens, spec->image_virtual_tokens, SOFT_PROMPT_MAX_ROWS);
    if (spec->virtual_tokens + spec->image_virtual_tokens == 0)
        return tacit_fail(
            err, TACIT_USAGE,
            "soft prompt: no rows; expected some before the input, or before pictures");
    if (spec->image_virtual_tokens > 0 && !model_encoder_of(model, TACIT_MODALITY_IMAGE))
        return tacit_fail(err, TACIT_USAGE,
                          "soft prompt: rows before pictures, and the model has no image encoder; "
                          "give its file with --mmproj");
    return TACIT_OK;
}

static void put_layer(layout_cursor *c, const tacit_text_model *text, size_t layer)
{
    char base[64];
    const tacit_text_layer *l = &text->layer[layer];
    for (int i = 0; i < TEXT_NORMS; i++) {
        text_norm which = (text_norm)i;
        snprintf(base, sizeof base, "blk.%zu.%s", layer, text_norm_name(which));
        if (l->norm[i])
            put_entry(c, text_norm_rows(text, which), text_norm_size(text, which), base, ".weight");
    }
    for (int i = 0; i < TEXT_LINEARS; i++) {
        const char *name = text_linear_name((text_linear)i);
        if (!text_has_linear(l, (text_linear)i))
            continue;
        snprintf(base, sizeof base, "blk.%zu.%s", layer, name);
        put_entry(c, l->linear[i].n_out, l->linear[i].n_in, base, ".weight");
        if (l->linear[i].bias)
            put_entry(c, 1, l->linear[i].n_out, base, ".bias");
    }
}

static void put_text(layout_cursor *c, const tacit_text_model *text)
{
    put_entry(c, text->vocab, text->embedding, "token_embd", ".weight");
    for (size_t layer = 0; layer < text->n_layers; layer++)
        put_layer(c, text, layer);
    put_entry(c, 1, text->embedding, text->output_norm_name, "");
    if (!text->tied)
        put_entry(c, text->vocab, text->embedding, "output", ".weight");
}

static void put_all(layout_cursor *c, const tacit_model *model, const tacit_trainable_spec *spec,
                    const lora_sites *sites)
{
    if (layout_is_lora(spec->kind)) {
        put_lora(c, sites, spec->kind);
        return;
    }
    if (spec->kind == TACIT_TRAIN_PROMPT) {
        put_prompts(c, &model->text, spec);
        return;
    }
    bool everything = spec->kind == TACIT_TRAIN_ALL;
    if (everything)
        put_text(c, &model->text);
    c->count += encoder_entries(model, everything, c->entry ? c->entry + c->count : NULL);
}

static tacit_status place_entries(tacit_layout *l, tacit_error *err)
{
    size_t at = 0;
    for (size_t i = 0; i < l->count; i++) {
        size_t values;
        l->entry[i].offset = at;
        if (!tacit_mul_size(l->entry[i].rows, l->entry[i].cols, &values) ||
            !tacit_add_size(at, values, &at) || at > SIZE_MAX / sizeof(float) / 4)
            return tacit_fail(err, TACIT_BAD_INPUT, "trainable set: %s overflows the address space",
                              l->entry[i].name);
    }
    l->values = at;
    return TACIT_OK;
}

/* Three parts an entry: name, rows, cols. */
static tacit_status hash_entries(tacit_layout *l, tacit_error *err)
{
    tacit_span *part = calloc(3 * l->count, sizeof *part);
    uint8_t(*number)[2][8] = calloc(l->count, sizeof *number);
    if (part && number) {
        for (size_t i = 0; i < l->count; i++) {
            const tacit_trainable_entry *e = &l->entry[i];
            tacit_store_u64(number[i][0], e->rows);
            tacit_store_u64(number[i][1], e->cols);
            part[3 * i] = (tacit_span){(const uint8_t *)e->name, strlen(e->name)};
            part[3 * i + 1] = (tacit_span){number[i][0], 8};
            part[3 * i + 2] = (tacit_span){number[i][1], 8};
        }
        tacit_digest_parts(l->hash, "tacit-layout-1", part, 3 * l->count);
    }
    bool failed = !part || !number;
    free(part);
    free(number);
    return failed ? tacit_fail(err, TACIT_NO_MEMORY, "trainable set: no memory") : TACIT_OK;
}

tacit_status tacit_layout_make(tacit_layout *out, const tacit_model *model,
                               const tacit_trainable_spec *spec, tacit_error *err)
{
    layout_cursor c = {0};
    lora_sites sites = {0};
    tacit_status status = TACIT_OK;
    *out = (tacit_layout){0};
    if (layout_is_lora(spec->kind))
        TACIT_TRY(lora_sites_of(&sites, model, spec, err), fail);
    if (spec->kind == TACIT_TRAIN_PROMPT)
        TACIT_TRY(check_prompts(model, spec, err), fail);
    put_all(&c, model, spec, &sites);
    if (c.count == 0) {
        status =
            tacit_fail(err, TACIT_USAGE,
                       "trainable set: the model has no projector; name its file with --mmproj");
        goto fail;
    }
    c.entry = calloc(c.count, sizeof *c.entry);
    if (!c.entry) {
        status =
            tacit_fail(err, TACIT_NO_MEMORY, "trainable set: no memory for %zu entries", c.count);
        goto fail;
    }
    out->entry = c.entry;
    out->count = c.count;
    c.count = 0;
    put_all(&c, model, spec, &sites);
    TACIT_TRY(place_entries(out, err), fail);
    TACIT_TRY(hash_entries(out, err), fail);
    lora_sites_free(&sites);
    return TACIT_OK;
fail:
    lora_sites_free(&sites);
    tacit_layout_free(out);
    return status;
}

void tacit_layout_free(tacit_layout *l)
{
    free(l->entry);
    *l = (tacit_layout){0};
}
