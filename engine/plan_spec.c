#include "engine/plan_spec.h"

#include "engine/soft_prompt.h"

#include <string.h>

#define ALPHA_MAX 1e6
#define WEIGHT_DECAY_MAX 1e3

static bool kind_of(tacit_trainable_kind *out, Tacit__AdapterKind kind)
{
    *out = kind == TACIT__ADAPTER_KIND__ADAPTER_LORA_FFA    ? TACIT_TRAIN_LORA_FFA
           : kind == TACIT__ADAPTER_KIND__ADAPTER_LORA_CORE ? TACIT_TRAIN_LORA_CORE
                                                            : TACIT_TRAIN_PROMPT;
    return *out != TACIT_TRAIN_PROMPT || kind == TACIT__ADAPTER_KIND__ADAPTER_PROMPT;
}

static tacit_status fill_lora(tacit_trainable_spec *out, const Tacit__AdapterSpec *adapter,
                              tacit_error *err)
{
    if (adapter->n_targets < 1 || adapter->n_targets > TACIT_TRAINABLE_TARGETS_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "plan: expected 1 to %d targets, found %zu",
                          TACIT_TRAINABLE_TARGETS_MAX, adapter->n_targets);
    if (adapter->rank < 1 || adapter->rank > TACIT_TRAINABLE_RANK_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "plan: expected a rank from 1 to %d, found %u",
                          TACIT_TRAINABLE_RANK_MAX, adapter->rank);
    if (!(adapter->alpha > 0) || adapter->alpha > ALPHA_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: expected alpha above 0, at most %g, found %g", ALPHA_MAX,
                          adapter->alpha);
    if (adapter->virtual_tokens || adapter->image_virtual_tokens)
        return tacit_fail(err, TACIT_BAD_INPUT, "plan: a LoRA adapter with virtual tokens");
    for (size_t i = 0; i < adapter->n_targets; i++)
        out->target[i] = adapter->targets[i];
    out->n_targets = adapter->n_targets;
    out->rank = adapter->rank;
    out->alpha = adapter->alpha;
    out->rslora = adapter->rslora;
    out->last_layers = adapter->last_layers;
    return TACIT_OK;
}

/* What prompts do not have is zero: a plan does not say what nobody does. */
static tacit_status fill_prompt(tacit_trainable_spec *out, const Tacit__AdapterSpec *adapter,
                                tacit_error *err)
{
    uint64_t rows = (uint64_t)adapter->virtual_tokens + adapter->image_virtual_tokens;
    if (rows < 1 || adapter->virtual_tokens > SOFT_PROMPT_MAX_ROWS ||
        adapter->image_virtual_tokens > SOFT_PROMPT_MAX_ROWS)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: expected 1 to %d virtual tokens, found %u and %u for pictures",
                          SOFT_PROMPT_MAX_ROWS, adapter->virtual_tokens,
                          adapter->image_virtual_tokens);
    if (adapter->n_targets || adapter->rank || adapter->alpha != 0 || adapter->rslora ||
        adapter->last_layers)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: a soft prompt with targets, a rank, alpha or layers");
    out->virtual_tokens = adapter->virtual_tokens;
    out->image_virtual_tokens = adapter->image_virtual_tokens;
    return TACIT_OK;
}

tacit_status tacit_trainable_spec_from_message(tacit_trainable_spec *out,
                                               const Tacit__AdapterSpec *adapter, tacit_error *err)
{
    *out = (tacit_trainable_spec){0};
    if (!adapter || !kind_of(&out->kind, adapter->kind))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: expected an adapter of kind lora-ffa, lora-core or prompt");
    if (adapter->lineage_seed.len != sizeof out->seed)
        return tacit_fail(err, TACIT_BAD_INPUT, "plan: expected a seed of 32 bytes, found %zu",
                          adapter->lineage_seed.len);
    memcpy(out->seed, adapter->lineage_seed.data, sizeof out->seed);
    return (out->kind == TACIT_TRAIN_PROMPT ? fill_prompt : fill_lora)(out, adapter, err);
}

/* One row per number of an optimizer; a kind that does not use it wants zero. */
static tacit_status check_number(const char *name, double v, bool used, double min, double max,
                                 tacit_error *err)
{
    if (used ? v >= min && v <= max : v == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "plan: optimizer's %s: expected %g to %g, found %g",
                      name, used ? min : 0.0, used ? max : 0.0, v);
}

static const tacit_optimizer_kind optimizer_kinds[] = {
    [TACIT__OPTIMIZER_KIND__OPTIMIZER_SGD] = TACIT_SGD,
    [TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM] = TACIT_ADAM,
    [TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW] = TACIT_ADAMW,
};
static const tacit_rate_kind rate_kinds[] = {
    [TACIT__RATE_SCHEDULE__RATE_CONSTANT] = TACIT_RATE_CONSTANT,
    [TACIT__RATE_SCHEDULE__RATE_LINEAR] = TACIT_RATE_LINEAR,
    [TACIT__RATE_SCHEDULE__RATE_COSINE] = TACIT_RATE_COSINE,
};

void tacit_optimizer_message_of_spec(Tacit__Optimizer *out, const tacit_optimizer_spec *spec)
{
    bool adam = spec->kind != TACIT_SGD;
    int kind = TACIT__OPTIMIZER_KIND__OPTIMIZER_SGD, rate = TACIT__RATE_SCHEDULE__RATE_CONSTANT;
    while (kind < TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW && optimizer_kinds[kind] != spec->kind)
        kind++;
    while (rate < TACIT__RATE_SCHEDULE__RATE_COSINE && rate_kinds[rate] != spec->rate)
        rate++;
    *out = (Tacit__Optimizer)TACIT__OPTIMIZER__INIT;
    out->kind = (Tacit__OptimizerKind)kind;
    out->learning_rate = spec->learning_rate;
    out->momentum = adam ? 0 : spec->momentum;
    out->beta1 = adam ? spec->beta1 : 0;
    out->beta2 = adam ? spec->beta2 : 0;
    out->epsilon = adam ? spec->epsilon : 0;
    out->weight_decay = spec->kind == TACIT_ADAMW ? spec->weight_decay : 0;
    out->rate_schedule = (Tacit__RateSchedule)rate;
    out->warmup_steps = spec->warmup;
}

tacit_status tacit_optimizer_spec_from_message(tacit_optimizer_spec *out, const Tacit__Optimizer *o,
                                               tacit_error *err)
{
    if (!o || o->kind < TACIT__OPTIMIZER_KIND__OPTIMIZER_SGD ||
        o->kind > TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW)
        return tacit_fail(err, TACIT_BAD_INPUT, "plan: expected optimizer sgd, adam or adamw");
    if ((unsigned)o->rate_schedule > TACIT__RATE_SCHEDULE__RATE_COSINE)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "plan: expected a learning rate that is constant, linear or cosine");
    tacit_optimizer_kind kind = optimizer_kinds[o->kind];
    bool adam = kind != TACIT_SGD;
    tacit_status status = check_number("learning rate", o->learning_rate, true, 1e-12, 1e6, err);
    if (status == TACIT_OK)
        status = check_number("momentum", o->momentum, !adam, 0, 0.9999, err);
    if (status == TACIT_OK)
        status = check_number("beta1", o->beta1, adam, 0, 0.9999, err);
    if (status == TACIT_OK)
        status = check_number("beta2", o->beta2, adam, 0, 0.999999, err);
    if (status == TACIT_OK)
        status = check_number("epsilon", o->epsilon, adam, TACIT_ADAM_EPSILON_MIN, 1, err);
    if (status == TACIT_OK)
        status = check_number("weight decay", o->weight_decay, kind == TACIT_ADAMW, 0,
                              WEIGHT_DECAY_MAX, err);
    if (status == TACIT_OK)
        *out = (tacit_optimizer_spec){.kind = kind,
                                      .learning_rate = o->learning_rate,
                                      .momentum = o->momentum,
                                      .beta1 = o->beta1,
                                      .beta2 = o->beta2,
                                      .epsilon = o->epsilon,
                                      .weight_decay = o->weight_decay,
                                      .rate = rate_kinds[o->rate_schedule],
                                      .warmup = o->warmup_steps};
    return status;
}
