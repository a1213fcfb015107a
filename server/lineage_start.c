#include "server/lineage_start.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "common/text.h"
#include "engine/adapter.h"
#include "engine/plan_spec.h"
#include "engine/soft_prompt.h"
#include "privacy/budget.h"
#include "privacy/entry.h"
#include "privacy/mechanism.h"
#include "privacy/policy.h"
#include "privacy/release.h"
#include "server/device_store.h"
#include "server/round_machine.h"
#include "server/round_steps.h"
#include "server/server_events.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define COHORT_MAX 20000 /* the Aggregate entry lists every accepted reserve: 34 bytes each */

enum {
    AT_ROUNDS,
    AT_STEPS,
    AT_LOCAL_STEPS,
    AT_Q,
    AT_NOISE,
    AT_MECHANISM,
    AT_SEPARATION,
    AT_CLIP,
    AT_QUANTILE,
    AT_QUANTILE_NOISE,
    AT_CLIP_RATE,
    AT_CLIP_MIN,
    AT_CLIP_MAX,
    AT_DIVISOR,
    AT_UNIT,
    AT_UNIT_EXAMPLES,
    AT_RATE,
    AT_OPTIMIZER,
    AT_MOMENTUM,
    AT_DECAY,
    AT_SCHEDULE,
    AT_WARMUP,
    AT_TRAINABLE,
    AT_RANK,
    AT_ALPHA,
    AT_RSLORA,
    AT_TARGETS,
    AT_LAST_LAYERS,
    AT_VIRTUAL_TOKENS,
    AT_IMAGE_VIRTUAL_TOKENS,
    AT_DELTA,
    AT_COHORT,
    AT_QUORUM,
    AT_COLLUDERS,
    AT_TARGET,
    AT_DEADLINE,
    AT_PAD,
    AT_NORM_BOUND,
    AT_MAX_TOKENS,
    AT_SEED
};

const control_option lineage_start_options[] = {
    [AT_ROUNDS] = {"rounds", "N", "rounds of the lineage (1)"},
    [AT_STEPS] = {"steps", "N", "noised steps of a round (20; unit device: 1)"},
    [AT_LOCAL_STEPS] = {"local-steps", "N",
                        "unit device alone: steps of local training before its delta is clipped "
                        "and noised once (20)"},
    [AT_Q] = {"q", "Q",
              "sampling probability of a unit in a step (0.05; unit device and mechanism "
              "tree: 1)"},
    [AT_NOISE] = {"noise-multiplier", "Z", "sigma over the clip norm, of a step as a whole (1)"},
    [AT_MECHANISM] = {"mechanism", "KIND",
                      "gaussian; tree: noise correlated over a round's steps, nothing sampled; or "
                      "none: no clipping, no noise (gaussian)"},
    [AT_SEPARATION] = {"separation", "N",
                       "mechanism tree alone: a unit enters one step in N of a round (all steps: "
                       "each unit once)"},
    [AT_CLIP] = {"clip", "C", "L2 bound of one unit's gradient; unit device: of its delta (1)"},
    [AT_QUANTILE] = {"quantile", "G",
                     "adapts the clip, which starts at C, to this quantile of the units' gradient "
                     "norms, from 0.001 to 0.999 (the clip is fixed)"},
    [AT_QUANTILE_NOISE] = {"quantile-noise", "Z",
                           "noise multiplier of the count that the clip follows; the noise of the "
                           "gradients is raised to pay for it (ten times noise-multiplier)"},
    [AT_CLIP_RATE] = {"clip-rate", "R", "how fast the clip adapts (0.2)"},
    [AT_CLIP_MIN] = {"clip-min", "C", "where the clip stops (a tenth of clip)"},
    [AT_CLIP_MAX] = {"clip-max", "C", "likewise; SGD's norm bound follows it (ten times clip)"},
    [AT_DIVISOR] = {"divisor", "D",
                    "constant that the noised sum is divided by (32; unit device: 1)"},
    [AT_UNIT] = {"unit", "UNIT",
                 "record, subject, or device: all that a device learned, noised once (subject)"},
    [AT_UNIT_EXAMPLES] = {"unit-examples", "N", "most examples of one unit in a step (8)"},
    [AT_RATE] = {"learning-rate", "R", "of the device's optimizer (0.01)"},
    [AT_OPTIMIZER] = {"optimizer", "NAME", "sgd, adam or adamw (adam)"},
    [AT_MOMENTUM] = {"momentum", "M", "of sgd (0.9)"},
    [AT_DECAY] = {"weight-decay", "W", "of adamw (0.01)"},
    [AT_SCHEDULE] = {"schedule", "NAME",
                     "of the learning rate in a round: constant, linear or cosine, both down to "
                     "zero (constant)"},
    [AT_WARMUP] = {"warmup", "N", "first steps of a round, in which the learning rate rises (0)"},
    [AT_TRAINABLE] =
        {"trainable", "SET",
         "ffa: the half B of LoRA pairs; core: what is between frozen halves; prompt: a "
         "soft prompt (ffa)"},
    [AT_RANK] = {"rank", "R", "of the LoRA pair (8)"},
    [AT_ALPHA] = {"alpha", "A", "its scale is alpha / rank (twice the rank)"},
    [AT_RSLORA] = {"rslora", "yes|no", "its scale is alpha / sqrt(rank) instead (no)"},
    [AT_TARGETS] = {"targets", "A,B",
                    "linears of every layer, or names with * and ?; each may be NAME=RANK "
                    "(attn_output,ffn_down)"},
    [AT_LAST_LAYERS] = {"last-layers", "N", "only the last N layers (all)"},
    [AT_VIRTUAL_TOKENS] = {"virtual-tokens", "N", "of a soft prompt, before everything (16)"},
    [AT_IMAGE_VIRTUAL_TOKENS] = {"image-virtual-tokens", "N",
                                 "of a soft prompt, before every picture (0)"},
    [AT_DELTA] = {"delta", "D", "of the guarantee (1e-5)"},
    [AT_COHORT] = {"cohort", "N", "devices of a round (2)"},
    [AT_QUORUM] = {"quorum", "N", "least accepted updates (60 % of the cohort)"},
    [AT_COLLUDERS] = {"assumed-colluders", "N",
                      "unit device alone: devices whose noise does not count for the published "
                      "epsilon, beside the recipient's (0)"},
    [AT_TARGET] = {"target", "N", "accepted updates that end collecting (all that are asked)"},
    [AT_DEADLINE] = {"deadline-seconds", "S", "of collecting (3600)"},
    [AT_PAD] = {"pad-seconds", "S",
                "from a device's reserve to its upload, so that nobody sees how long "
                "training took; devices refuse less than their own minimum, 60 "
                "unless they changed it (60)"},
    [AT_NORM_BOUND] = {"norm-bound", "B", "most L2 norm of a device's delta (derived)"},
    [AT_MAX_TOKENS] = {"max-tokens", "N", "a longer example counts as a zero gradient (512)"},
    [AT_SEED] = {"lineage-seed", "HEX", "32 public bytes that A is drawn from (random)"},
    {NULL, NULL, NULL},
};

/* The accounts of the devices that could take part. */
typedef struct purses {
    size_t devices, fit; /* fit: hold the whole schedule */
    double largest_cap;
    double largest_epsilon; /* of those that fit, after the whole schedule */
} purses;

typedef struct starting {
    control_call *call;
    Tacit__Schedule schedule;
    Tacit__Plan common;
    Tacit__AdapterSpec adapter;
    Tacit__Mechanism mechanism;
    Tacit__Optimizer optimizer;
    Tacit__ScheduledRound round;
    Tacit__ScheduledRound **rounds; /* all point to `round` */
    char *targets;                  /* cut at its commas */
    char *target[TACIT_TRAINABLE_TARGETS_MAX];
    uint8_t seed[32], lineage[LINEAGE_BYTES], schedule_hash[TACIT_DIGEST_BYTES];
    lineage_row row;
    double first_epsilon;     /* what one round costs a device; 0 without noise */
    tacit_ledger_price price; /* of the whole schedule */
    purses purses;
} starting;

#define U64(at, otherwise, min, max, out)                                                          \
    control_u64(s->call, lineage_start_options, at, otherwise, min, max, out, err)
#define F64(at, otherwise, min, max, out)                                                          \
    control_f64(s->call, lineage_start_options, at, otherwise, min, max, out, err)

/* The index of the value among `words`, or of the default when it was not given. */
static tacit_status choose(const starting *s, size_t at, const char *const *words, size_t *out,
                           tacit_error *err)
{
    const char *value = s->call->value[at];
    if (!value)
        return TACIT_OK;
    for (size_t i = 0; words[i]; i++)
        if (strcmp(words[i], value) == 0) {
            *out = i;
            return TACIT_OK;
        }
    return tacit_fail(err, TACIT_USAGE, "%s: expected %s%s%s or %s, found '%s'",
                      lineage_start_options[at].name, words[0], words[2] ? ", " : "",
                      words[2] ? words[1] : "", words[2] ? words[2] : words[1], value);
}

/* clip_norm, b, and what a clip norm that adapts needs. */
static tacit_status fill_noise(starting *s, tacit_error *err)
{
    static const size_t adapts[] = {AT_QUANTILE, AT_QUANTILE_NOISE, AT_CLIP_RATE, AT_CLIP_MIN,
                                    AT_CLIP_MAX};
    double noise, clip;
    tacit_clip_request r;
    tacit_status status;
    TACIT_TRY(F64(AT_NOISE, 1, 0.01, 10000, &noise), done);
    TACIT_TRY(F64(AT_CLIP, 1, TACIT_CLIP_NORM_MIN, TACIT_CLIP_NORM_MAX, &clip), done);
    TACIT_TRY(F64(AT_QUANTILE, 0, TACIT_QUANTILE_MIN, 1 - TACIT_QUANTILE_MIN, &r.quantile), done);
    TACIT_TRY(F64(AT_QUANTILE_NOISE, 0, 0.01, 27000, &r.count_noise), done);
    TACIT_TRY(F64(AT_CLIP_RATE, 0, TACIT_CLIP_RATE_MIN, TACIT_CLIP_RATE_MAX, &r.rate), done);
    TACIT_TRY(F64(AT_CLIP_MIN, 0, TACIT_CLIP_NORM_MIN, TACIT_CLIP_NORM_MAX, &r.min), done);
    TACIT_TRY(F64(AT_CLIP_MAX, 0, TACIT_CLIP_NORM_MIN, TACIT_CLIP_NORM_MAX, &r.max), done);
    if (s->mechanism.kind != TACIT__MECHANISM_KIND__MECHANISM_NONE)
        return tacit_mechanism_set_noise(&s->mechanism, clip, noise, &r, err);
    for (size_t i = 0; i < sizeof adapts / sizeof adapts[0]; i++)
        if (s->call->value[adapts[i]])
            return tacit_fail(err, TACIT_USAGE,
                              "%s: mechanism none does not clip; leave it out or ask for gaussian",
                              lineage_start_options[adapts[i]].name);
done:
    return status;
}

static tacit_status fill_mechanism(starting *s, tacit_error *err)
{
    static const char *const kinds[] = {"none", "gaussian", "tree", NULL}, *const units[] = {
                                                                               "record", "subject",
                                                                               "device", NULL};
    size_t kind = 1, unit = 1;
    double q;
    uint64_t steps, examples, separation;
    tacit_status status;
    TACIT_TRY(choose(s, AT_MECHANISM, kinds, &kind, err), done);
    TACIT_TRY(choose(s, AT_UNIT, units, &unit, err), done);
    bool whole = unit == 2, tree = kind == 2;
    TACIT_TRY(U64(AT_STEPS, whole ? 1 : 20, 1, TACIT_STEPS_MAX, &steps), done);
    TACIT_TRY(F64(AT_Q, whole || tree ? 1 : 0.05, 1e-9, 1, &q), done);
    TACIT_TRY(F64(AT_DIVISOR, whole ? 1 : 32, TACIT_DIVISOR_MIN, TACIT_DIVISOR_MAX,
                  &s->mechanism.divisor),
              done);
    TACIT_TRY(U64(AT_UNIT_EXAMPLES, 8, 1, TACIT_UNIT_EXAMPLES_MAX, &examples), done);
    TACIT_TRY(tacit_q_num_for_rate(&s->mechanism.q_num, q, err), done);
    s->mechanism.unit = (Tacit__Unit)(TACIT__UNIT__UNIT_RECORD + unit);
    s->mechanism.neighbours = TACIT__NEIGHBOURS__NEIGHBOURS_ADD_REMOVE;
    s->mechanism.steps = (uint32_t)steps;
    s->mechanism.unit_examples = (uint32_t)examples;
    TACIT_TRY(U64(AT_SEPARATION, tree ? steps : 0, tree, tree ? steps : 0, &separation), done);
    s->mechanism.minimum_separation = (uint32_t)separation;
    s->mechanism.kind = (Tacit__MechanismKind[]){
        TACIT__MECHANISM_KIND__MECHANISM_NONE,
        TACIT__MECHANISM_KIND__MECHANISM_SUBSAMPLED_GAUSSIAN,
        TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN,
    }[kind];
    status = fill_noise(s, err);
done:
    return status;
}

static tacit_status fill_rate(starting *s, tacit_error *err)
{
    static const char *const rates[] = {"constant", "linear", "cosine", NULL};
    static const Tacit__RateSchedule schedules[] = {TACIT__RATE_SCHEDULE__RATE_CONSTANT,
                                                    TACIT__RATE_SCHEDULE__RATE_LINEAR,
                                                    TACIT__RATE_SCHEDULE__RATE_COSINE};
    size_t rate = 0;
    uint64_t warmup;
    tacit_status status;
    TACIT_TRY(F64(AT_RATE, 0.01, 1e-12, 1e6, &s->optimizer.learning_rate), done);
    TACIT_TRY(choose(s, AT_SCHEDULE, rates, &rate, err), done);
    TACIT_TRY(U64(AT_WARMUP, 0, 1, UINT32_MAX, &warmup), done);
    s->optimizer.rate_schedule = schedules[rate];
    s->optimizer.warmup_steps = (uint32_t)warmup;
done:
    return status;
}

/* Numbers of another kind are refused: whoever gives them expects them to count. */
static tacit_status fill_optimizer(starting *s, tacit_error *err)
{
    static const char *const words[] = {"sgd", "adam", "adamw", NULL};
    static const Tacit__OptimizerKind kinds[] = {TACIT__OPTIMIZER_KIND__OPTIMIZER_SGD,
                                                 TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM,
                                                 TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAMW};
    Tacit__Optimizer *o = &s->optimizer;
    size_t kind = 1;
    tacit_status status;
    TACIT_TRY(choose(s, AT_OPTIMIZER, words, &kind, err), done);
    TACIT_TRY(fill_rate(s, err), done);
    o->kind = kinds[kind];
    bool sgd = kind == 0, adamw = kind == 2;
    if (s->call->value[AT_MOMENTUM] && !sgd)
        return tacit_fail(err, TACIT_USAGE, "momentum: not of optimizer %s; leave it out",
                          words[kind]);
    if (s->call->value[AT_DECAY] && !adamw)
        return tacit_fail(err, TACIT_USAGE, "weight-decay: not of optimizer %s; leave it out",
                          words[kind]);
    o->beta1 = sgd ? 0 : 0.9;
    o->beta2 = sgd ? 0 : 0.999;
    o->epsilon = sgd ? 0 : 1e-8;
    if (sgd)
        TACIT_TRY(F64(AT_MOMENTUM, 0.9, 0, 0.9999, &o->momentum), done);
    if (adamw)
        TACIT_TRY(F64(AT_DECAY, 0.01, 0, 1e3, &o->weight_decay), done);
done:
    return status;
}

static tacit_status split_targets(starting *s, tacit_error *err)
{
    const char *value = s->call->value[AT_TARGETS];
    s->targets = strdup(value ? value : "attn_output,ffn_down");
    if (!s->targets)
        return tacit_fail(err, TACIT_NO_MEMORY, "round start: no memory");
    for (char *part = s->targets, *next = part; next; part = next + 1) {
        next = strchr(part, ',');
        if (next)
            *next = '\0';
        if (s->adapter.n_targets == TACIT_TRAINABLE_TARGETS_MAX)
            return tacit_fail(err, TACIT_USAGE, "targets: more than %d",
                              TACIT_TRAINABLE_TARGETS_MAX);
        s->target[s->adapter.n_targets++] = part;
    }
    s->adapter.targets = s->target;
    return TACIT_OK;
}

/* Options of another set are refused: whoever gives them expects them to count. */
static tacit_status check_set(const starting *s, bool prompt, tacit_error *err)
{
    static const size_t lora[] = {AT_RANK, AT_ALPHA, AT_RSLORA, AT_TARGETS, AT_LAST_LAYERS};
    static const size_t prompts[] = {AT_VIRTUAL_TOKENS, AT_IMAGE_VIRTUAL_TOKENS};
    const size_t *other = prompt ? lora : prompts;
    for (size_t i = 0; i < (prompt ? sizeof lora : sizeof prompts) / sizeof *other; i++)
        if (s->call->value[other[i]])
            return tacit_fail(err, TACIT_USAGE, "%s: not of trainable %s; leave it out",
                              lineage_start_options[other[i]].name,
                              prompt ? "prompt" : "ffa or core");
    return TACIT_OK;
}

static tacit_status fill_lora(starting *s, tacit_error *err)
{
    static const char *const words[] = {"no", "yes", NULL};
    uint64_t rank, layers;
    size_t rslora = 0;
    tacit_status status;
    TACIT_TRY(choose(s, AT_RSLORA, words, &rslora, err), done);
    TACIT_TRY(U64(AT_LAST_LAYERS, 0, 1, UINT32_MAX, &layers), done);
    TACIT_TRY(split_targets(s, err), done);
    TACIT_TRY(U64(AT_RANK, 8, 1, TACIT_TRAINABLE_RANK_MAX, &rank), done);
    TACIT_TRY(F64(AT_ALPHA, 2 * (double)rank, 1e-6, 1e6, &s->adapter.alpha), done);
    s->adapter.rank = (uint32_t)rank;
    s->adapter.rslora = rslora == 1;
    s->adapter.last_layers = (uint32_t)layers;
done:
    return status;
}

static tacit_status fill_prompt(starting *s, tacit_error *err)
{
    bool of_pictures = s->call->value[AT_IMAGE_VIRTUAL_TOKENS] != NULL;
    uint64_t text, image;
    tacit_status status =
        U64(AT_VIRTUAL_TOKENS, of_pictures ? 0 : 16, 1, SOFT_PROMPT_MAX_ROWS, &text);
    if (status == TACIT_OK)
        status = U64(AT_IMAGE_VIRTUAL_TOKENS, 0, 1, SOFT_PROMPT_MAX_ROWS, &image);
    if (status != TACIT_OK)
        return status;
    if (s->optimizer.weight_decay > 0)
        return tacit_fail(err, TACIT_USAGE,
                          "weight-decay: a soft prompt starts at embeddings and not at zero, where "
                          "decay would take it; give weight-decay 0, or another optimizer");
    s->adapter.virtual_tokens = (uint32_t)text;
    s->adapter.image_virtual_tokens = (uint32_t)image;
    return TACIT_OK;
}

static tacit_status fill_adapter(starting *s, tacit_error *err)
{
    static const char *const sets[] = {"ffa", "core", "prompt", NULL};
    static const Tacit__AdapterKind kinds[] = {TACIT__ADAPTER_KIND__ADAPTER_LORA_FFA,
                                               TACIT__ADAPTER_KIND__ADAPTER_LORA_CORE,
                                               TACIT__ADAPTER_KIND__ADAPTER_PROMPT};
    const char *seed = s->call->value[AT_SEED];
    size_t set = 0;
    tacit_status status;
    TACIT_TRY(choose(s, AT_TRAINABLE, sets, &set, err), done);
    s->adapter.kind = kinds[set];
    bool prompt = s->adapter.kind == TACIT__ADAPTER_KIND__ADAPTER_PROMPT;
    TACIT_TRY(check_set(s, prompt, err), done);
    TACIT_TRY((prompt ? fill_prompt : fill_lora)(s, err), done);
    randombytes_buf(s->seed, sizeof s->seed);
    if (seed && !tacit_unhex(s->seed, sizeof s->seed, seed)) {
        status = tacit_fail(err, TACIT_USAGE, "lineage-seed: expected 64 hex digits");
        goto done;
    }
    s->adapter.lineage_seed = tacit_field_of(s->seed, sizeof s->seed);
done:
    return status;
}

/* The most that a device's delta can honestly measure. Adam moves a value by about the learning
 * rate a step, and decay by its share of what all rounds can have moved it. SGD moves by what a
 * step can hold: four times the divisor's clipped gradients, and the noise's norm with a fifth to
 * spare, summed up through the momentum; where the clip norm adapts, at the largest that it may
 * have. A whole device's release passes untouched, or its published epsilon would be the server's
 * (privacy/published.h). */
static double derive_norm_bound(const starting *s, const tacit_mechanism *m, size_t values)
{
    double steps = s->common.local_steps ? s->common.local_steps : s->mechanism.steps,
           rate = s->optimizer.learning_rate, root = sqrt((double)values);
    if (tacit_mechanism_releases_whole(m))
        return tacit_release_norm_bound(m, values);
    if (s->optimizer.kind != TACIT__OPTIMIZER_KIND__OPTIMIZER_SGD) {
        double moved = s->row.rounds * steps * rate;
        return steps * rate * root * (1 + s->optimizer.weight_decay * moved);
    }
    double clip = fmax(s->mechanism.clip_norm, s->mechanism.clip_max);
    double noise = tacit_noise_multiplier(s->mechanism.b) * clip * root;
    bool tree = s->mechanism.kind == TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN;
    if (tree) /* a step's has as many nodes as the tree is high at most */
        noise *= sqrt(1 + log2(steps));
    double step = 4 * clip + 1.2 * noise / s->mechanism.divisor;
    if (s->mechanism.kind == TACIT__MECHANISM_KIND__MECHANISM_NONE)
        step = root;
    return steps * rate * step / (1 - s->optimizer.momentum);
}

/* A power of two under which the bound itself, in one value, stays below 2^30. */
static double scale_for(double norm_bound)
{
    double scale = exp2(floor(log2(1073741824.0 / norm_bound)));
    return scale > 16777216.0 ? 16777216.0 : scale;
}

static tacit_status fill_whole_device(starting *s, tacit_error *err)
{
    static const size_t own[] = {AT_LOCAL_STEPS, AT_COLLUDERS};
    uint64_t steps, colluders;
    for (size_t i = 0; s->mechanism.unit != TACIT__UNIT__UNIT_DEVICE && i < 2; i++)
        if (s->call->value[own[i]])
            return tacit_fail(err, TACIT_USAGE,
                              "%s: only with unit device; leave it out or give unit device",
                              lineage_start_options[own[i]].name);
    tacit_status status = U64(AT_LOCAL_STEPS, 20, 1, TACIT_STEPS_MAX, &steps);
    if (status == TACIT_OK)
        status = U64(AT_COLLUDERS, 0, 0, COHORT_MAX, &colluders);
    if (status == TACIT_OK && s->mechanism.unit == TACIT__UNIT__UNIT_DEVICE) {
        s->common.local_steps = (uint32_t)steps;
        s->common.assumed_colluders = (uint32_t)colluders;
    }
    return status;
}

static tacit_status fill_limits(starting *s, size_t values, tacit_error *err)
{
    Tacit__Plan *p = &s->common;
    uint64_t cohort, quorum, target, pad, tokens;
    tacit_mechanism m;
    tacit_status status;
    TACIT_TRY(tacit_mechanism_from_message(&m, &s->mechanism, err), done);
    TACIT_TRY(fill_whole_device(s, err), done);
    TACIT_TRY(U64(AT_COHORT, 2, 1, COHORT_MAX, &cohort), done);
    TACIT_TRY(U64(AT_QUORUM, (uint64_t)ceil(0.6 * (double)cohort), 1, cohort, &quorum), done);
    TACIT_TRY(U64(AT_TARGET, UINT32_MAX, quorum, UINT32_MAX, &target), done);
    TACIT_TRY(U64(AT_DEADLINE, 3600, 1, 2592000, &s->row.deadline_s), done);
    TACIT_TRY(U64(AT_PAD, 60, 0, 604800, &pad), done);
    if (pad >= s->row.deadline_s) {
        status = tacit_fail(err, TACIT_USAGE,
                            "pad-seconds %llu is not below deadline-seconds %llu: no update would "
                            "arrive in time",
                            (unsigned long long)pad, (unsigned long long)s->row.deadline_s);
        goto done;
    }
    TACIT_TRY(U64(AT_MAX_TOKENS, 512, 1, 65536, &tokens), done);
    TACIT_TRY(F64(AT_NORM_BOUND, derive_norm_bound(s, &m, values), 1e-9, 1e9, &p->norm_bound),
              done);
    p->update_scale =
        tacit_mechanism_releases_whole(&m) ? tacit_release_scale(&m) : scale_for(p->norm_bound);
    p->cohort = (uint32_t)cohort;
    p->quorum = (uint32_t)quorum;
    p->target = (uint32_t)target;
    p->pad_seconds = (uint32_t)pad;
    p->max_tokens = (uint32_t)tokens;
    p->trainable_values = (uint32_t)values;
done:
    return status;
}

static tacit_status count_values(starting *s, size_t *values, tacit_error *err)
{
    tacit_trainable_spec spec;
    tacit_optimizer_spec optimizer;
    tacit_layout layout = {0};
    tacit_status status = tacit_trainable_spec_from_message(&spec, &s->adapter, err);
    if (status == TACIT_OK)
        status = tacit_optimizer_spec_from_message(&optimizer, &s->optimizer, err);
    if (status == TACIT_OK)
        status = tacit_layout_make(&layout, s->call->server->model, &spec, err);
    if (status == TACIT_OK && layout.values > UINT32_MAX)
        status = tacit_fail(err, TACIT_USAGE, "the adapter has more than 2^32 values");
    *values = layout.values;
    tacit_layout_free(&layout);
    return status;
}

static tacit_status fill_schedule(starting *s, tacit_error *err)
{
    uint64_t rounds;
    const uint8_t *base = tacit_model_base_digest(s->call->server->model);
    double delta;
    tacit_status status = U64(AT_ROUNDS, 1, 1, 1000, &rounds);
    if (status == TACIT_OK)
        status = F64(AT_DELTA, 1e-5, 1e-12, 0.1, &delta);
    if (status != TACIT_OK)
        return status;
    s->rounds = calloc(rounds, sizeof *s->rounds);
    if (!s->rounds)
        return tacit_fail(err, TACIT_NO_MEMORY, "round start: no memory");
    for (size_t i = 0; i < rounds; i++)
        s->rounds[i] = &s->round;
    s->round.mechanism = &s->mechanism;
    s->schedule.format = 1;
    s->schedule.lineage = tacit_field_of(s->lineage, sizeof s->lineage);
    s->schedule.base_digest = tacit_field_of(base, TACIT_DIGEST_BYTES);
    s->schedule.adapter = &s->adapter;
    s->schedule.rounds = s->rounds;
    s->schedule.n_rounds = rounds;
    s->schedule.delta = s->mechanism.kind == TACIT__MECHANISM_KIND__MECHANISM_NONE ? 0 : delta;
    s->schedule.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    s->row.rounds = (uint32_t)rounds;
    return TACIT_OK;
}

/* Packs the schedule and what its plans share. */
static tacit_status pack(starting *s, tacit_error *err)
{
    Tacit__Plan *p = &s->common;
    tacit_status status = tacit_message_pack(&s->schedule, TACIT_MESSAGE_ENTRY_MAX / 2,
                                             &s->row.schedule, &s->row.schedule_size, err);
    if (status != TACIT_OK)
        return status;
    tacit_digest(s->row.schedule_hash, s->row.schedule, s->row.schedule_size);
    memcpy(s->row.lineage, s->lineage, LINEAGE_BYTES);
    memcpy(s->schedule_hash, s->row.schedule_hash, sizeof s->schedule_hash);
    p->format = 1;
    p->lineage = s->schedule.lineage;
    p->schedule_hash = tacit_field_of(s->schedule_hash, sizeof s->schedule_hash);
    p->base_digest = s->schedule.base_digest;
    p->adapter = &s->adapter;
    p->optimizer = &s->optimizer;
    p->delta = s->schedule.delta;
    p->accountant = s->schedule.accountant;
    s->row.state = LINEAGE_RUNNING;
    s->row.created_ms = tacit_clock_wall_ms();
    return tacit_message_pack(p, TACIT_MESSAGE_ENTRY_MAX, &s->row.common, &s->row.common_size, err);
}

static tacit_status look_into(void *ctx, const device_row *row, tacit_error *err)
{
    starting *s = ctx;
    tacit_ledger *ledger = s->call->server->ledger;
    tacit_ledger_device logged;
    tacit_ledger_answer answer;
    if (row->revoked || row->frozen)
        return TACIT_OK;
    tacit_status status = tacit_ledger_device_get(ledger, row->device, &logged, err);
    if (status != TACIT_OK || logged.revoked || logged.frozen)
        return status;
    s->purses.devices++;
    s->purses.largest_cap = fmax(s->purses.largest_cap, logged.policy.epsilon_cap);
    status = tacit_ledger_affords(ledger, row->device, &s->price, &answer, err);
    if (status == TACIT_OK && answer.limit == TACIT_LIMIT_NONE) {
        s->purses.fit++;
        s->purses.largest_epsilon = fmax(s->purses.largest_epsilon, answer.epsilon);
    }
    return status;
}

/* A lineage whose first round nobody can pay for would wait for its deadline, round after round. */
static tacit_status check_purses(starting *s, tacit_error *err)
{
    const purses *p = &s->purses;
    tacit_status status = device_each(s->call->server->db, look_into, s, err);
    if (status != TACIT_OK || p->devices == 0 || s->first_epsilon <= p->largest_cap)
        return status;
    return tacit_fail(
        err, TACIT_USAGE,
        "steps: one round of %u steps costs epsilon %g, the largest cap of %zu active "
        "devices is %g; lower steps or q, or raise noise-multiplier",
        s->mechanism.steps, s->first_epsilon, p->devices, p->largest_cap);
}

/* Whom the lineage finds: a promise of one empty account says little of those that hold something.
 * Without noise, or where nobody fits, there is no largest epsilon. */
static tacit_status describe_purses(const starting *s, tacit_error *err)
{
    const purses *p = &s->purses;
    bool any = p->fit > 0 && s->mechanism.kind != TACIT__MECHANISM_KIND__MECHANISM_NONE;
    json_t *more = json_pack("{s:I, s:I, s:o}", "active_devices", (json_int_t)p->devices,
                             "devices_that_fit", (json_int_t)p->fit, "epsilon_largest",
                             server_json_number(any ? p->largest_epsilon : INFINITY));
    bool added = more && json_object_update(s->call->result, more) == 0;
    json_decref(more);
    return added ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "round start: no memory");
}

static tacit_status store(void *ctx, tacit_error *err)
{
    starting *s = ctx;
    server *sv = s->call->server;
    lineage_row running = {0};
    Tacit__ScheduleLogged body = TACIT__SCHEDULE_LOGGED__INIT;
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    tacit_status status = lineage_running(sv->db, &running, err);
    lineage_row_free(&running);
    if (status == TACIT_OK)
        return tacit_fail(err, TACIT_CONFLICT,
                          "a lineage is running; wait for its end or use 'round cancel'");
    if (status == TACIT_NOT_FOUND)
        status = check_purses(s, err);
    if (status == TACIT_OK)
        status = describe_purses(s, err);
    if (status != TACIT_OK)
        return status;
    body.schedule = tacit_field_of(s->row.schedule, s->row.schedule_size);
    entry.body_case = TACIT__ENTRY__BODY_SCHEDULE;
    entry.schedule = &body;
    status = tacit_ledger_record(sv->ledger, &entry, NULL, NULL, err);
    return status == TACIT_OK ? lineage_insert(sv->db, &s->row, err) : status;
}

/* An account holds finite numbers alone: `epsilon` is what `rounds` rounds cost. */
static tacit_status check_cost(const starting *s, uint32_t rounds, double epsilon, tacit_error *err)
{
    if (isfinite(epsilon))
        return TACIT_OK;
    return tacit_fail(
        err, TACIT_USAGE,
        "steps: %u rounds of %u steps over %u values cannot be accounted for at delta "
        "%g, epsilon is infinite; lower steps, rounds or q, or raise noise-multiplier",
        rounds, s->mechanism.steps, s->common.trainable_values, s->schedule.delta);
}

/* Epsilon after each round. All rounds of this lineage are alike, so what one costs is computed
 * once and composed; rho is costly. */
static tacit_status add_costs(starting *s, json_t *costs, tacit_error *err)
{
    tacit_mechanism m;
    tacit_event event;
    tacit_budget one;
    bool is_private = s->mechanism.kind != TACIT__MECHANISM_KIND__MECHANISM_NONE;
    tacit_status status = tacit_mechanism_from_message(&m, &s->mechanism, err);
    tacit_budget_open(&one, 1, s->schedule.delta);
    if (status == TACIT_OK && is_private)
        status = tacit_event_from_mechanism(&event, &m, 1, err);
    if (status == TACIT_OK && is_private)
        status = tacit_budget_add(&one, &event,
                                  tacit_step_noise_values(s->common.trainable_values, m.quantile_b),
                                  true, err);
    for (uint32_t r = 1; status == TACIT_OK && r <= s->row.rounds; r++) {
        double epsilon = INFINITY;
        if (is_private)
            status = tacit_budget_epsilon_times(&one, r, &epsilon, err);
        if (status == TACIT_OK && is_private)
            status = check_cost(s, r, epsilon, err);
        if (is_private && r == 1)
            s->first_epsilon = epsilon;
        json_array_append_new(costs, server_json_number(epsilon));
    }
    return status;
}

/* What the operator reads: the cost of the lineage, round by round. */
static tacit_status describe(starting *s, tacit_error *err)
{
    char hex[2 * LINEAGE_BYTES + 1];
    json_t *costs = json_array();
    tacit_hex(hex, s->lineage, sizeof s->lineage);
    tacit_status status = add_costs(s, costs, err);
    if (status != TACIT_OK) {
        json_decref(costs);
        return status;
    }
    s->call->result = json_pack(
        "{s:s, s:I, s:I, s:f, s:f, s:o}", "lineage", hex, "rounds", (json_int_t)s->row.rounds,
        "trainable_values", (json_int_t)s->common.trainable_values, "norm_bound",
        s->common.norm_bound, "delta", s->schedule.delta, "epsilon_after_round", costs);
    return s->call->result ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "round start: no memory");
}

tacit_status lineage_start(control_call *call, tacit_error *err)
{
    starting state = {.call = call,
                      .schedule = TACIT__SCHEDULE__INIT,
                      .common = TACIT__PLAN__INIT,
                      .adapter = TACIT__ADAPTER_SPEC__INIT,
                      .mechanism = TACIT__MECHANISM__INIT,
                      .optimizer = TACIT__OPTIMIZER__INIT,
                      .round = TACIT__SCHEDULED_ROUND__INIT};
    starting *s = &state;
    size_t values = 0;
    tacit_status status;
    randombytes_buf(s->lineage, sizeof s->lineage);
    TACIT_TRY(fill_mechanism(s, err), done);
    TACIT_TRY(fill_optimizer(s, err), done);
    TACIT_TRY(fill_adapter(s, err), done);
    TACIT_TRY(count_values(s, &values, err), done);
    TACIT_TRY(fill_schedule(s, err), done);
    TACIT_TRY(fill_limits(s, values, err), done); /* they need the number of rounds */
    TACIT_TRY(round_check_room(call->server, &s->common, err), done);
    TACIT_TRY(tacit_schedule_validate(&s->schedule, err), done);
    TACIT_TRY(pack(s, err), done);
    TACIT_TRY(describe(s, err), done);
    TACIT_TRY(tacit_ledger_price_make(&s->price, &s->schedule, 0, values, err), done);
    TACIT_TRY(writer_run(call->server->writer, store, NULL, s, err), done);
    round_announce_lineage(call->server, &s->row);
    tacit_log_info("started a lineage of %u rounds over %zu values", s->row.rounds, values);
    round_machine_wake(call->server->rounds);
done:
    tacit_ledger_price_free(&s->price);
    lineage_row_free(&s->row);
    free(s->rounds);
    free(s->targets);
    return status;
}
