#include "engine/train_plan.h"

#include "engine/layout.h"

#include <stdlib.h>
#include <string.h>

static const train_pair frozen_pair = {TRAIN_FROZEN, TRAIN_FROZEN, TRAIN_FROZEN};

tacit_status train_plan_new(train_plan *p, const tacit_text_model *model, tacit_error *err)
{
    *p = (train_plan){.model = model, .first_layer = model->n_layers};
    p->embedding = p->output = p->output_norm = TRAIN_FROZEN;
    p->output_pair = frozen_pair;
    p->layer = calloc(model->n_layers ? model->n_layers : 1, sizeof *p->layer);
    if (!p->layer)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for %zu layers",
                          model->n_layers);
    for (size_t i = 0; i < model->n_layers; i++) {
        train_layer *l = &p->layer[i];
        for (int k = 0; k < TEXT_NORMS; k++)
            l->norm[k] = TRAIN_FROZEN;
        for (int k = 0; k < TEXT_LINEARS; k++)
            l->weight[k] = l->bias[k] = TRAIN_FROZEN, l->pair[k] = frozen_pair;
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

/* What "REST" of "NAME.weightREST" is of a linear; NULL: nothing that is trained. */
static size_t *place_of(const char *rest, size_t *weight, size_t *bias, train_pair *pair)
{
    const struct {
        const char *suffix;
        size_t *to;
    } parts[] = {{".weight", weight},
                 {".bias", bias},
                 {".weight.lora_a", &pair->a},
                 {".weight.lora_b", &pair->b},
                 {".weight.lora_core", &pair->core}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(rest, parts[i].suffix) == 0)
            return parts[i].to;
    return NULL;
}

static void bind_linear_entry(train_layer *l, const char *rest, int which, size_t offset)
{
    const char *name = text_linear_name((text_linear)which);
    size_t size = strlen(name);
    size_t *to = strncmp(rest, name, size) == 0
                     ? place_of(rest + size, &l->weight[which], &l->bias[which], &l->pair[which])
                     : NULL;
    if (to)
        *to = offset;
}

static void bind_layer_entry(train_layer *l, const char *rest, size_t offset)
{
    for (int i = 0; i < TEXT_NORMS; i++)
        if (is_part(rest, text_norm_name((text_norm)i), ".weight"))
            l->norm[i] = offset;
    for (int i = 0; i < TEXT_LINEARS; i++)
        bind_linear_entry(l, rest, i, offset);
}

static void bind_output_entry(train_plan *p, const char *rest, size_t offset)
{
    size_t none;
    size_t *to = place_of(rest, &p->output, &none, &p->output_pair);
    if (to)
        *to = offset;
}

static void bind_entry(train_plan *p, const tacit_trainable_entry *e)
{
    size_t layer;
    const char *rest;
    if (strcmp(e->name, "token_embd.weight") == 0)
        p->embedding = e->offset;
    else if (strncmp(e->name, "output.", 7) == 0)
        bind_output_entry(p, e->name + 6, e->offset);
    else if (strcmp(e->name, p->model->output_norm_name) == 0)
        p->output_norm = e->offset;
    else if (split_layer(e->name, &layer, &rest) && layer < p->model->n_layers)
        bind_layer_entry(&p->layer[layer], rest, e->offset);
}

void train_plan_bind(train_plan *p, const tacit_layout *layout)
{
    for (size_t i = 0; i < layout->count; i++)
        bind_entry(p, &layout->entry[i]);
    if (p->model->tied)
        p->output = p->embedding;
}

float *train_slot(float *grad, size_t offset)
{
    return offset == TRAIN_FROZEN ? NULL : grad + offset;
}

linear_pair_gradient train_pair_gradient(const train_pair *p, float *grad)
{
    return (linear_pair_gradient){train_slot(grad, p->a), train_slot(grad, p->b),
                                  train_slot(grad, p->core)};
}

void train_plan_places(train_pair *place, const lora_sites *sites, const tacit_layout *layout,
                       tacit_trainable_kind kind)
{
    const tacit_trainable_entry *e = layout->entry;
    for (size_t i = 0; i < sites->count; i++) {
        place[i] = frozen_pair;
        if (kind == TACIT_TRAIN_LORA)
            place[i].a = e++->offset;
        *(kind == TACIT_TRAIN_LORA_CORE ? &place[i].core : &place[i].b) = e++->offset;
    }
}

tacit_status train_plan_bind_pairs(train_plan *p, const lora_sites *sites,
                                   const tacit_low_rank *pair, tacit_error *err)
{
    tacit_low_rank *pairs = calloc(p->model->n_layers * TEXT_LINEARS + 1, sizeof *pairs);
    if (!pairs)
        return tacit_fail(err, TACIT_NO_MEMORY, "trainer: no memory for the adapter's pairs");
    for (size_t i = 0; i < sites->count; i++) {
        const lora_site *s = &sites->site[i];
        if (s->place == LORA_LAYER)
            pairs[s->layer * TEXT_LINEARS + s->which] = pair[i];
        else if (s->place == LORA_OUTPUT)
            p->pairs.output = pair[i];
    }
    p->pairs.pair = pairs;
    p->pairs.max_rank = sites->max_rank;
    return TACIT_OK;
}

static bool is_trained(const train_layer *l, text_linear which)
{
    return l->weight[which] != TRAIN_FROZEN || l->bias[which] != TRAIN_FROZEN ||
           l->pair[which].b != TRAIN_FROZEN || l->pair[which].core != TRAIN_FROZEN;
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
