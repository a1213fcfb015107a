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

static void bind_layer_entry(train_layer *l, const char *rest, size_t offset)
{
    char part[32];
    const char *dot = strchr(rest, '.');
    if (!dot || (size_t)(dot - rest) >= sizeof part)
        return;
    memcpy(part, rest, (size_t)(dot - rest));
    part[dot - rest] = '\0';
    text_norm norm = text_norm_find(part);
    if (norm != TEXT_NORMS && strcmp(dot, ".weight") == 0)
        l->norm[norm] = offset;
    text_linear which = text_linear_find(part);
    if (which == TEXT_LINEARS)
        return;
    if (strcmp(dot, ".weight") == 0)
        l->weight[which] = offset;
    else if (strcmp(dot, ".bias") == 0)
        l->bias[which] = offset;
    else if (strcmp(dot, ".weight.lora_a") == 0)
        l->a[which] = offset;
    else if (strcmp(dot, ".weight.lora_b") == 0)
        l->b[which] = offset;
}

static void bind_entry(train_plan *p, const tacit_trainable_entry *e)
{
    size_t layer;
    const char *rest;
    if (strcmp(e->name, "token_embd.weight") == 0)
        p->embedding = e->offset;
    else if (strcmp(e->name, "output.weight") == 0)
        p->output = e->offset;
    else if (strcmp(e->name, "output_norm.weight") == 0)
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

void train_plan_close(train_plan *p)
{
    size_t n = p->model->n_layers, first = 0;
    while (!p->input_gradient && first < n && !any_trained(&p->layer[first]))
        first++;
    p->first_layer = first;
    for (size_t i = first; i < n; i++) {
        train_layer *l = &p->layer[i];
        l->need_input = i > first || p->input_gradient;
        l->need_h = l->need_input || l->norm[TEXT_ATTN_NORM] != TRAIN_FROZEN;
        l->need_qkv = l->need_h || is_trained(l, TEXT_Q) || is_trained(l, TEXT_K) ||
                      is_trained(l, TEXT_V) || l->norm[TEXT_Q_NORM] != TRAIN_FROZEN ||
                      l->norm[TEXT_K_NORM] != TRAIN_FROZEN;
        l->need_mid =
            l->need_qkv || is_trained(l, TEXT_O) || l->norm[TEXT_ATTN_POST_NORM] != TRAIN_FROZEN;
        l->need_act = l->need_mid || l->norm[TEXT_FFN_NORM] != TRAIN_FROZEN ||
                      is_trained(l, TEXT_GATE) || is_trained(l, TEXT_UP);
    }
}
