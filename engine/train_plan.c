#include "engine/train_plan.h"

#include "engine/layout.h"

#include <stdlib.h>
#include <string.h>

tacit_status train_plan_new(train_plan *p, const tacit_text_model *model, tacit_error *err)
{
    *p = (train_plan){.model = model, .first_layer = model->n_layers};
    p->embedding = p->output = p->output_norm = TRAIN_FROZEN;
    p->layer = calloc(model->n_layers ? model->n_layers : 1, sizeof *p->layer);
    if (!p->layer)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for %zu layers",
                          model->n_layers);
    for (size_t i = 0; i < model->n_layers; i++) {
        train_layer *l = &p->layer[i];
        for (int k = 0; k < TEXT_NORMS; k++)
            l->norm[k] = TRAIN_FROZEN;
        for (int k = 0; k < TEXT_LINEARS; k++)
            l->weight[k] = l->bias[k] = l->a[k] = l->b[k] = TRAIN_FROZEN;
    }
    return TACIT_OK;
}

void train_plan_free(train_plan *p)
{
    free(p->layer);
    free((void *)(uintptr_t)p->pairs.pair);
    *p = (train_plan){0};
}

/* "blk.N.REST": the layer's number and where REST begins; false for other names. */
static bool split_layer(const char *name, size_t *layer, const char **rest)
{
    if (strncmp(name, "blk.", 4) != 0)
        return false;
    char *end;
    *layer = strtoul(name + 4, &end, 10);
    *rest = end + (*end == '.');
    return true;
}

/* Whether `rest` is NAME.suffix. */
static bool is_part(const char *rest, const char *name, const char *suffix)
{
    size_t size = strlen(name);
    return strncmp(rest, name, size) == 0 && strcmp(rest + size, suffix) == 0;
}

static void bind_linear_entry(train_layer *l, const char *rest, int which, size_t offset)
{
    const struct {
        const char *suffix;
        size_t *to;
    } parts[] = {{".weight", &l->weight[which]},
                 {".bias", &l->bias[which]},
                 {".weight.lora_a", &l->a[which]},
                 {".weight.lora_b", &l->b[which]}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (is_part(rest, text_linear_name((text_linear)which), parts[i].suffix))
            *parts[i].to = offset;
}

static void bind_layer_entry(train_layer *l, const char *rest, size_t offset)
{
    for (int i = 0; i < TEXT_NORMS; i++)
        if (is_part(rest, text_norm_name((text_norm)i), ".weight"))
            l->norm[i] = offset;
    for (int i = 0; i < TEXT_LINEARS; i++)
        bind_linear_entry(l, rest, i, offset);
}

static void bind_entry(train_plan *p, const tacit_trainable_entry *e)
{
    size_t layer;
    const char *rest;
    if (strcmp(e->name, "token_embd.weight") == 0)
        p->embedding = e->offset;
    else if (strcmp(e->name, "output.weight") == 0)
        p->output = e->offset;
    else if (strcmp(e->name, p->model->output_norm_name) == 0)
        p->output_norm = e->offset;
    else if (split_layer(e->name, &layer, &rest) && layer < p->model->n_layers)
        bind_layer_entry(&p->layer[layer], rest, e->offset);
}

/* Pairs over the flat vector, in layout order: by layer, then by target of the spec. */
static void bind_pairs(train_plan *p, const tacit_trainable_spec *spec, const float *values,
                       const float *frozen_a, tacit_low_rank *pairs)
{
    for (size_t layer = 0; layer < p->model->n_layers; layer++)
        for (size_t i = 0; i < spec->n_targets; i++) {
            text_linear which = text_linear_find(spec->target[i]);
            const train_layer *l = &p->layer[layer];
            if (!text_has_linear(&p->model->layer[layer], which))
                continue;
            tacit_low_rank *pair = &pairs[layer * TEXT_LINEARS + which];
            pair->rank = spec->rank;
            pair->scale = (float)((double)(float)spec->alpha / spec->rank);
            pair->b = values + l->b[which];
            pair->a = frozen_a ? frozen_a : values + l->a[which];
            if (frozen_a)
                frozen_a += spec->rank * p->model->layer[layer].linear[which].n_in;
        }
}

tacit_status train_plan_bind(train_plan *p, const tacit_layout *layout,
                             const tacit_trainable_spec *spec, const float *values,
                             const float *frozen_a, tacit_error *err)
{
    for (size_t i = 0; i < layout->count; i++)
        bind_entry(p, &layout->entry[i]);
    if (p->model->tied)
        p->output = p->embedding;
    if (!layout_is_lora(spec->kind))
        return TACIT_OK;
    tacit_low_rank *pairs = calloc(p->model->n_layers * TEXT_LINEARS, sizeof *pairs);
    if (!pairs)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for the adapter's pairs");
    bind_pairs(p, spec, values, frozen_a, pairs);
    p->pairs.pair = pairs;
    p->pairs.max_rank = spec->rank;
    return TACIT_OK;
}

static bool is_trained(const train_layer *l, text_linear which)
{
    return l->weight[which] != TRAIN_FROZEN || l->bias[which] != TRAIN_FROZEN ||
           l->b[which] != TRAIN_FROZEN;
}

static bool any_trained(const train_layer *l)
{
    bool any = false;
    for (int i = 0; i < TEXT_NORMS; i++)
        any = any || l->norm[i] != TRAIN_FROZEN;
    for (int i = 0; i < TEXT_LINEARS; i++)
        any = any || is_trained(l, (text_linear)i);
    return any;
}

static bool any_of(const train_layer *l, const text_linear *which, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any = any || is_trained(l, which[i]);
    return any;
}

void train_plan_close(train_plan *p)
{
    static const text_linear inputs[] = {TEXT_Q, TEXT_K, TEXT_V, TEXT_CONV_IN};
    size_t n = p->model->n_layers, first = 0;
    while (!p->input_gradient && first < n && !any_trained(&p->layer[first]))
        first++;
    p->first_layer = first;
    for (size_t i = first; i < n; i++) {
        train_layer *l = &p->layer[i];
        l->need_input = i > first || p->input_gradient;
        l->need_h = l->need_input || l->norm[TEXT_ATTN_NORM] != TRAIN_FROZEN;
        l->need_qkv = l->need_h || any_of(l, inputs, sizeof inputs / sizeof inputs[0]) ||
                      l->norm[TEXT_Q_NORM] != TRAIN_FROZEN ||
                      l->norm[TEXT_K_NORM] != TRAIN_FROZEN ||
                      l->norm[TEXT_CONV_KERNEL] != TRAIN_FROZEN;
        l->need_mid = l->need_qkv || is_trained(l, TEXT_O) || is_trained(l, TEXT_CONV_OUT) ||
                      l->norm[TEXT_ATTN_POST_NORM] != TRAIN_FROZEN;
        l->need_act = l->need_mid || l->norm[TEXT_FFN_NORM] != TRAIN_FROZEN ||
                      is_trained(l, TEXT_GATE) || is_trained(l, TEXT_UP);
    }
}
