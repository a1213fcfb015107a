/* tacit-client train: private training on the device's own data, without a server, under the same
 * account and rules. */
#include "client/client_commands.h"

#include "client/local_evaluation.h"
#include "client/local_plan.h"
#include "client/reservation.h"
#include "client/round_training.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/json_print.h"
#include "common/killpoint.h"
#include "common/log.h"
#include "common/options.h"
#include "common/text.h"
#include "engine/soft_prompt.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t train_stop;

static void on_train_signal(int number)
{
    (void)number;
    train_stop = 1;
}

/* The command line, before it is checked. */
typedef struct train_words {
    const char *dir, *data, *out, *unit, *optimizer, *schedule, *mechanism, *trainable, *targets;
    const char *scores, *eval;
    client_config_choice choice;
    tacit_option_list mmproj;
    double epsilon, noise_multiplier, delta, q, clip, divisor, learning_rate, alpha, momentum,
        decay;
    tacit_clip_request adapt;
    uint64_t steps, warmup, separation, unit_examples, max_tokens, rank, last_layers,
        virtual_tokens, image_virtual_tokens, canaries;
    bool rslora, json;
} train_words;

#define PROGRESS_SECONDS 10
#define DEFAULT_TARGETS "attn_output,ffn_down"

static const train_words defaults = {.unit = "",
                                     .optimizer = "adam",
                                     .momentum = -1, /* not given */
                                     .decay = -1,
                                     .schedule = "constant",
                                     .mechanism = "gaussian",
                                     .trainable = "ffa",
                                     .clip = 1,
                                     .learning_rate = 0.01,
                                     .steps = 100,
                                     .unit_examples = 8,
                                     .max_tokens = 512};

static tacit_status parse(train_words *w, int argc, char **argv, bool *help, tacit_error *err)
{
    const tacit_option table[] = {
        {"dir", 0, TACIT_OPTION_TEXT, &w->dir, true, "DIR", "the device's folder", 0, 0},
        {"data", 0, TACIT_OPTION_TEXT, &w->data, true, "FILE", "JSON Lines to train on", 0, 0},
        {"out", 0, TACIT_OPTION_TEXT, &w->out, true, "FILE", "where the adapter is written", 0, 0},
        {"eval", 0, TACIT_OPTION_TEXT, &w->eval, false, "FILE",
         "held-out JSON Lines, answered before and after", 0, 0},
        {"model", 0, TACIT_OPTION_TEXT, &w->choice.model_text, false, "FILE",
         "text model, for a new client.yaml", 0, 0},
        {"mmproj", 0, TACIT_OPTION_LIST, &w->mmproj, false, "FILE",
         "encoder of the model, for a new client.yaml", 0, 0},
        {"epsilon", 0, TACIT_OPTION_REAL, &w->epsilon, false, "E",
         "epsilon of this training; gives the noise", 1e-3, 1e6},
        {"noise-multiplier", 0, TACIT_OPTION_REAL, &w->noise_multiplier, false, "Z",
         "of a step as a whole, instead of --epsilon (1, or the policy's minimum)", 0.01, 27000},
        {"delta", 0, TACIT_OPTION_REAL, &w->delta, false, "D",
         "at most the account's, which is the default", 1e-300, 0.5},
        {"unit", 0, TACIT_OPTION_TEXT, &w->unit, false, "UNIT",
         "record, subject or device (the policy's)", 0, 0},
        {"mechanism", 0, TACIT_OPTION_TEXT, &w->mechanism, false, "KIND",
         "gaussian; tree: noise correlated over steps, nothing sampled; or none: only where the "
         "policy allows it (gaussian)",
         0, 0},
        {"separation", 0, TACIT_OPTION_U64, &w->separation, false, "N",
         "mechanism tree alone: a unit enters one step in N (all steps: each unit once)", 1,
         TACIT_TREE_STEPS_MAX},
        {"steps", 0, TACIT_OPTION_U64, &w->steps, false, "N",
         "noised steps; with unit device, steps before the one noised release (100)", 1, 1000000},
        {"q", 0, TACIT_OPTION_REAL, &w->q, false, "Q",
         "sampling probability of a unit in a step (0.05; unit device: 1; mechanism tree has none)",
         1e-9, 1},
        {"clip", 0, TACIT_OPTION_REAL, &w->clip, false, "C",
         "L2 bound of one unit's gradient; unit device: of the whole delta (1)", 1e-9, 1e9},
        {"quantile", 0, TACIT_OPTION_REAL, &w->adapt.quantile, false, "G",
         "adapts the clip, which starts at C, to this quantile of the units' gradient norms (the "
         "clip is fixed)",
         TACIT_QUANTILE_MIN, 1 - TACIT_QUANTILE_MIN},
        {"quantile-noise", 0, TACIT_OPTION_REAL, &w->adapt.count_noise, false, "Z",
         "noise multiplier of the count that the clip follows; the noise of the gradients is "
         "raised to pay for it (ten times that of a step)",
         0.01, 27000},
        {"clip-rate", 0, TACIT_OPTION_REAL, &w->adapt.rate, false, "R",
         "how fast the clip adapts (0.2)", TACIT_CLIP_RATE_MIN, TACIT_CLIP_RATE_MAX},
        {"clip-min", 0, TACIT_OPTION_REAL, &w->adapt.min, false, "C",
         "where the clip stops (a tenth of --clip)", TACIT_CLIP_NORM_MIN, TACIT_CLIP_NORM_MAX},
        {"clip-max", 0, TACIT_OPTION_REAL, &w->adapt.max, false, "C", "likewise (ten times --clip)",
         TACIT_CLIP_NORM_MIN, TACIT_CLIP_NORM_MAX},
        {"divisor", 0, TACIT_OPTION_REAL, &w->divisor, false, "D",
         "constant that the noised sum is divided by (32; unit device: 1)", 1e-9, 1e12},
        {"unit-examples", 0, TACIT_OPTION_U64, &w->unit_examples, false, "N",
         "most examples of one unit in a step (8)", 1, 65536},
        {"learning-rate", 0, TACIT_OPTION_REAL, &w->learning_rate, false, "R", "(0.01)", 1e-12,
         1e6},
        {"optimizer", 0, TACIT_OPTION_TEXT, &w->optimizer, false, "NAME",
         "sgd, adam or adamw (adam)", 0, 0},
        {"momentum", 0, TACIT_OPTION_REAL, &w->momentum, false, "M", "of sgd (0.9)", 0, 0.9999},
        {"weight-decay", 0, TACIT_OPTION_REAL, &w->decay, false, "W", "of adamw (0.01)", 0, 1e3},
        {"schedule", 0, TACIT_OPTION_TEXT, &w->schedule, false, "NAME",
         "of the learning rate: constant, linear or cosine, both down to zero (constant)", 0, 0},
        {"warmup", 0, TACIT_OPTION_U64, &w->warmup, false, "N",
         "first steps, in which the learning rate rises (0)", 1, UINT32_MAX},
        {"trainable", 0, TACIT_OPTION_TEXT, &w->trainable, false, "SET",
         "ffa: the half B of LoRA pairs; core: what is between frozen halves; prompt: a soft "
         "prompt (ffa)",
         0, 0},
        {"rank", 0, TACIT_OPTION_U64, &w->rank, false, "R", "of the LoRA pair (8)", 1,
         TACIT_TRAINABLE_RANK_MAX},
        {"alpha", 0, TACIT_OPTION_REAL, &w->alpha, false, "A",
         "its scale is alpha / rank (twice the rank)", 1e-6, 1e6},
        {"rslora", 0, TACIT_OPTION_FLAG, &w->rslora, false, NULL,
         "its scale is alpha / sqrt(rank) instead", 0, 0},
        {"targets", 0, TACIT_OPTION_TEXT, &w->targets, false, "A,B",
         "linears of every layer, or names with * and ?; each may be NAME=RANK "
         "(" DEFAULT_TARGETS ")",
         0, 0},
        {"last-layers", 0, TACIT_OPTION_U64, &w->last_layers, false, "N",
         "only the last N layers (all)", 1, UINT32_MAX},
        {"virtual-tokens", 0, TACIT_OPTION_U64, &w->virtual_tokens, false, "N",
         "of a soft prompt, before everything (16)", 1, SOFT_PROMPT_MAX_ROWS},
        {"image-virtual-tokens", 0, TACIT_OPTION_U64, &w->image_virtual_tokens, false, "N",
         "of a soft prompt, before every picture (0)", 1, SOFT_PROMPT_MAX_ROWS},
        {"max-tokens", 0, TACIT_OPTION_U64, &w->max_tokens, false, "N",
         "a longer example counts as a zero gradient (512)", 1, 1000000},
        {"canaries", 0, TACIT_OPTION_U64, &w->canaries, false, "N",
         "for an audit: units to be found out, each put in by a coin; spoils the adapter", 1,
         TACIT_CANARIES_MAX},
        {"scores", 0, TACIT_OPTION_TEXT, &w->scores, false, "FILE",
         "what is measured of them, for tacit-audit canary", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &w->json, false, NULL, "print JSON", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit-client train", NULL, 0, 0,
                               "trains an adapter on this device alone, under its account"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, help, err);
    if (status == TACIT_OK && !*help && (w->canaries > 0) != (w->scores != NULL))
        status = tacit_fail(err, TACIT_USAGE, "--canaries and --scores belong together");
    return status;
}

/* --- from words to a plan --- */

static tacit_status unit_of(const char *word, tacit_privacy_unit otherwise, tacit_privacy_unit *out,
                            tacit_error *err)
{
    static const tacit_privacy_unit units[] = {TACIT_UNIT_RECORD, TACIT_UNIT_SUBJECT,
                                               TACIT_UNIT_DEVICE};
    *out = otherwise;
    if (!*word)
        return TACIT_OK;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(word, tacit_privacy_unit_name(units[i])) == 0) {
            *out = units[i];
            return TACIT_OK;
        }
    return tacit_fail(err, TACIT_USAGE, "--unit: expected record, subject or device, found '%s'",
                      word);
}

/* Numbers of another kind are refused: whoever gives them expects them to count. */
static tacit_status optimizer_of(tacit_optimizer_spec *o, const train_words *w, tacit_error *err)
{
    bool sgd = strcmp(w->optimizer, "sgd") == 0, adamw = strcmp(w->optimizer, "adamw") == 0;
    if (!sgd && !adamw && strcmp(w->optimizer, "adam") != 0)
        return tacit_fail(err, TACIT_USAGE, "--optimizer: expected sgd, adam or adamw, found '%s'",
                          w->optimizer);
    if (w->momentum >= 0 && !sgd)
        return tacit_fail(err, TACIT_USAGE, "--momentum is of sgd, not of %s; leave it out",
                          w->optimizer);
    if (w->decay >= 0 && !adamw)
        return tacit_fail(err, TACIT_USAGE, "--weight-decay is of adamw, not of %s; leave it out",
                          w->optimizer);
    *o = (tacit_optimizer_spec){.kind = sgd     ? TACIT_SGD
                                        : adamw ? TACIT_ADAMW
                                                : TACIT_ADAM,
                                .learning_rate = w->learning_rate,
                                .momentum = w->momentum >= 0 ? w->momentum : 0.9,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .epsilon = 1e-8,
                                .weight_decay = w->decay >= 0 ? w->decay : 0.01,
                                .warmup = (uint32_t)w->warmup};
    if (!tacit_rate_kind_find(&o->rate, w->schedule))
        return tacit_fail(err, TACIT_USAGE,
                          "--schedule: expected constant, linear or cosine, found '%s'",
                          w->schedule);
    return TACIT_OK;
}

static tacit_status mechanism_of(local_plan_request *r, const train_words *w, tacit_error *err)
{
    bool tree = strcmp(w->mechanism, "tree") == 0;
    if (w->separation && !tree)
        return tacit_fail(err, TACIT_USAGE,
                          "--separation: only with --mechanism tree; leave it out or give that");
    if (tree && w->q > 0)
        return tacit_fail(err, TACIT_USAGE,
                          "--q: mechanism tree samples nothing; leave it out or give --separation");
    r->separation = !tree ? 0 : (uint32_t)(w->separation ? w->separation : w->steps);
    r->non_private = strcmp(w->mechanism, "none") == 0;
    if (tree || r->non_private || strcmp(w->mechanism, "gaussian") == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_USAGE, "--mechanism: expected gaussian, tree or none, found '%s'",
                      w->mechanism);
}

/* Cuts `text` at its commas, in place. */
static size_t split(char *text, const char *out[TACIT_TRAINABLE_TARGETS_MAX + 1])
{
    size_t n = 0;
    for (char *at = text; at && n <= TACIT_TRAINABLE_TARGETS_MAX;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma++ = '\0';
        out[n++] = at;
        at = comma;
    }
    return n;
}

/* What is trained. Options of another set are refused: whoever gives them expects them to count. */
static tacit_status set_of(local_plan_request *r, const train_words *w, tacit_error *err)
{
    bool prompt = strcmp(w->trainable, "prompt") == 0;
    bool rows = w->virtual_tokens + w->image_virtual_tokens > 0;
    bool lora = w->targets || w->rank > 0 || w->alpha > 0 || w->rslora || w->last_layers > 0;
    r->core = strcmp(w->trainable, "core") == 0;
    if (!prompt && !r->core && strcmp(w->trainable, "ffa") != 0)
        return tacit_fail(err, TACIT_USAGE, "--trainable: expected ffa, core or prompt, found '%s'",
                          w->trainable);
    if (prompt ? lora : rows)
        return tacit_fail(err, TACIT_USAGE, "--trainable %s: leave out %s", w->trainable,
                          prompt ? "--targets, --rank, --alpha, --rslora and --last-layers"
                                 : "--virtual-tokens and --image-virtual-tokens");
    r->rank = w->rank > 0 ? (uint32_t)w->rank : 8;
    r->alpha = w->alpha > 0 ? w->alpha : 2 * (double)r->rank;
    r->rslora = w->rslora;
    r->last_layers = (uint32_t)w->last_layers;
    r->image_virtual_tokens = (uint32_t)w->image_virtual_tokens;
    r->virtual_tokens = (uint32_t)(prompt && !rows ? 16 : w->virtual_tokens);
    return TACIT_OK;
}

static tacit_status fill_request(local_plan_request *r, const train_words *w,
                                 const tacit_policy *policy, tacit_error *err)
{
    double least = policy->minimum_noise_multiplier;
    *r = (local_plan_request){.epsilon = w->epsilon,
                              .noise_multiplier = w->noise_multiplier,
                              .delta = w->delta > 0 ? w->delta : policy->delta,
                              .clip_norm = w->clip,
                              .adapt = w->adapt,
                              .steps = (uint32_t)w->steps,
                              .unit_examples = (uint32_t)w->unit_examples,
                              .max_tokens = (uint32_t)w->max_tokens};
    if (w->epsilon > 0 && w->noise_multiplier > 0)
        return tacit_fail(err, TACIT_USAGE, "give --epsilon or --noise-multiplier, not both");
    if (w->epsilon > policy->epsilon_cap)
        return tacit_fail(err, TACIT_REFUSED, "--epsilon %g is above this device's cap %g",
                          w->epsilon, policy->epsilon_cap);
    if (!(r->noise_multiplier > 0))
        r->noise_multiplier = least > 1 ? least : 1;
    tacit_status status = unit_of(w->unit, policy->unit, &r->unit, err);
    bool whole = r->unit == TACIT_UNIT_DEVICE;
    r->q = w->q > 0 ? w->q : whole ? 1 : 0.05;
    r->divisor = w->divisor > 0 ? w->divisor : whole ? 1 : 32;
    if (status == TACIT_OK)
        status = mechanism_of(r, w, err);
    if (status == TACIT_OK)
        status = optimizer_of(&r->optimizer, w, err);
    if (status == TACIT_OK)
        status = set_of(r, w, err);
    if (status == TACIT_OK && r->non_private &&
        (w->adapt.quantile > 0 || w->adapt.count_noise > 0 || w->adapt.rate > 0 ||
         w->adapt.min > 0 || w->adapt.max > 0))
        status = tacit_fail(err, TACIT_USAGE,
                            "--mechanism none does not clip; leave out --quantile and its options");
    return status;
}

/* --- the work --- */

typedef struct local_work {
    client *client;
    const train_words *words;
    tacit_model *model;
    round_state round;
    checked_plan plan;
    canary_set *canaries;           /* NULL: none */
    double epsilon_after, cap_then; /* the account with this training, and its cap in force */
    tacit_dataset heldout;          /* with --eval */
    local_evaluation judged;
    /* For who watches. */
    double start, told;
    uint32_t first_step; /* of this process, less one */
} local_work;

/* ---- what the person at the device sees ---- */

/* Every ten seconds, and the last one. None of it leaves the device: stderr is of who trains. */
static void tell_step(void *ctx, const training_progress *at)
{
    local_work *w = ctx;
    char left[TACIT_TEXT_DURATION], clipped[64] = "";
    double now = tacit_clock_seconds();
    if (w->told == 0)
        w->first_step = at->step - 1;
    if (now - w->told < PROGRESS_SECONDS && at->step != at->steps && w->told != 0)
        return;
    w->told = now;
    tacit_text_duration(left,
                        (now - w->start) / (at->step - w->first_step) * (at->steps - at->step));
    if (at->clip_norm > 0 && at->gradients)
        snprintf(clipped, sizeof clipped, ", %.0f %% clipped to %.4g",
                 100.0 * (double)at->clipped / (double)at->gradients, at->clip_norm);
    tacit_log_info("step %u of %u: %zu units with a gradient, mean loss %.4f%s, %s left", at->step,
                   at->steps, at->gradients, at->loss, clipped, left);
}

static tacit_status load_heldout(local_work *w, tacit_error *err)
{
    if (!w->words->eval)
        return TACIT_OK;
    tacit_status status =
        tacit_status_of_input(tacit_dataset_load(&w->heldout, w->words->eval, false, err), err);
    if (status == TACIT_OK && w->heldout.count == 0)
        status = tacit_fail(err, TACIT_BAD_INPUT, "%s: the file has no records", w->words->eval);
    return status;
}

/* By inference with what was written, not by the loss of training. */
static tacit_status judge(local_work *w, tacit_error *err)
{
    tacit_pool *pool = NULL;
    tacit_status status;
    if (!w->words->eval)
        return TACIT_OK;
    TACIT_TRY(tacit_pool_new(&pool, w->client->config.threads, err), done);
    TACIT_TRY(local_evaluation_run(&w->judged, w->model, w->words->out, &w->heldout, pool, err),
              done);
done:
    tacit_pool_free(pool);
    return status;
}

static json_t *judged_json(const local_evaluation *e)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "examples", (json_int_t)e->examples,
                     "accuracy", e->accuracy, "loss", e->loss, "accuracy_base", e->accuracy_base,
                     "loss_base", e->loss_base, "loss_exact", e->loss_exact);
}

static tacit_status make_canaries(local_work *w, tacit_error *err)
{
    const Tacit__Plan *plan = w->plan.plan;
    if (w->words->canaries == 0)
        return TACIT_OK;
    return canary_set_new(&w->canaries, (size_t)w->words->canaries, &w->plan.mechanism,
                          plan->trainable_values, plan->delta, NULL, err);
}

static tacit_status reserve_new(local_work *w, tacit_error *err)
{
    client *c = w->client;
    local_plan_request request;
    tacit_buffer plan = {.cap = TACIT_MESSAGE_ENTRY_MAX},
                 schedule = {.cap = TACIT_MESSAGE_ENTRY_MAX};
    const char *target[TACIT_TRAINABLE_TARGETS_MAX + 1];
    char *targets = strdup(w->words->targets ? w->words->targets : DEFAULT_TARGETS);
    tacit_status status = TACIT_NO_MEMORY;
    if (!targets)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory");
    TACIT_TRY(fill_request(&request, w->words, &c->config.policy, err), done);
    request.targets = target;
    request.n_targets = split(targets, target);
    TACIT_TRY(local_plan_make(&plan, &schedule, &request, &c->config.policy, w->model, err), done);
    TACIT_TRY(plan_open(&w->plan, (tacit_span){plan.data, plan.size},
                        (tacit_span){schedule.data, schedule.size}, err),
              done);
    TACIT_TRY(plan_check_memory(&w->plan, w->model, c->config.threads, err), done);
    TACIT_TRY(make_canaries(w, err), done); /* before anything is spent */
    TACIT_TRY(reservation_make(c, &w->plan, (tacit_span){plan.data, plan.size},
                               (tacit_span){schedule.data, schedule.size}, true, &w->round, err),
              done);
done:
    tacit_buffer_free(&plan);
    tacit_buffer_free(&schedule);
    free(targets);
    return status;
}

/* The training that was interrupted goes on, whatever the command line says now: it is paid for. */
static tacit_status resume_or_reserve(local_work *w, tacit_error *err)
{
    client *c = w->client;
    tacit_reservation reserved = {0};
    tacit_account_status account;
    tacit_status status = round_state_open(c->db, true, &w->round, err);
    if (status == TACIT_NOT_FOUND && !c->enrolled)
        tacit_log_warn("%s is not enrolled: after this training it cannot join a server any more",
                       c->dir);
    if (status == TACIT_NOT_FOUND)
        status = reserve_new(w, err);
    else if (status == TACIT_OK) {
        tacit_log_info("continuing the training that was interrupted, by its own plan");
        status = plan_open(&w->plan, (tacit_span){w->round.plan, w->round.plan_size},
                           (tacit_span){w->round.schedule, w->round.schedule_size}, err);
        if (status == TACIT_OK)
            status = make_canaries(w, err);
    }
    if (status == TACIT_OK)
        status = tacit_account_find(c->account, w->plan.plan_hash, &reserved, err);
    w->epsilon_after = reserved.epsilon_after;
    tacit_reservation_free(&reserved);
    if (status == TACIT_OK)
        status = tacit_account_status_get(c->account, &account, err);
    if (status == TACIT_OK)
        w->cap_then = account.policy.epsilon_cap;
    return status;
}

static tacit_status save(local_work *w, const training_result *result, tacit_error *err)
{
    tacit_adapter_info info = {
        .version = 1, .has_base_digest = true, .canaries = w->words->canaries};
    memcpy(info.base_digest, tacit_model_base_digest(w->model), sizeof info.base_digest);
    memcpy(info.lineage, w->plan.plan->lineage.data, sizeof info.lineage);
    return tacit_adapter_save(w->words->out, w->model, &w->plan.spec, result->trained, &info, err);
}

static tacit_status save_scores(const local_work *w, tacit_error *err)
{
    if (!w->canaries)
        return TACIT_OK;
    tacit_buffer bytes = {.cap = TACIT_CANARY_FILE_MAX};
    tacit_canary_scores scores = *canary_set_scores(w->canaries);
    memcpy(scores.reserve, w->round.reserve_hash, sizeof scores.reserve);
    tacit_status status = tacit_canary_scores_write(&bytes, &scores, err);
    if (status == TACIT_OK)
        status = tacit_file_write(w->words->scores, bytes.data, bytes.size, 0600, err);
    tacit_buffer_free(&bytes);
    return status;
}

static tacit_status finish(local_work *w, tacit_error *err)
{
    client *c = w->client;
    w->round.state = ROUND_DONE;
    snprintf(w->round.reason, sizeof w->round.reason, "written");
    tacit_status status = tacit_database_begin(c->db, err);
    if (status == TACIT_OK)
        status = round_state_update(c->db, &w->round, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    else
        reservation_clean(c, &w->round);
    return status;
}

static tacit_status print_result(const local_work *w, tacit_error *err)
{
    const tacit_mechanism *m = &w->plan.mechanism;
    uint32_t local = w->plan.plan->local_steps, steps = local ? local : m->steps;
    if (!w->words->json) {
        printf("%s: %u steps, noise multiplier %.4g, epsilon of the account now %.4g of %.4g\n",
               w->words->out, steps, tacit_mechanism_noise_multiplier(m), w->epsilon_after,
               w->cap_then);
        if (w->canaries)
            printf("%s: scores of %llu canaries, which spoil the adapter; this training claims "
                   "epsilon %.4g\n",
                   w->words->scores, (unsigned long long)w->words->canaries,
                   canary_set_scores(w->canaries)->epsilon);
        if (w->words->eval)
            printf("%s: accuracy %.4g (%.4g before), loss %.4f (%.4f before; exact %.4f), %zu "
                   "answers\n",
                   w->words->eval, w->judged.accuracy, w->judged.accuracy_base, w->judged.loss,
                   w->judged.loss_base, w->judged.loss_exact, w->judged.examples);
        return TACIT_OK;
    }
    json_t *root =
        json_pack("{s:o, s:I, s:I, s:f, s:o, s:f, s:s}", "out", tacit_json_name(w->words->out),
                  "steps", (json_int_t)steps, "values", (json_int_t)w->plan.plan->trainable_values,
                  "sigma", tacit_mechanism_noise_multiplier(m), "epsilon",
                  isfinite(w->epsilon_after) ? json_real(w->epsilon_after) : json_null(),
                  "epsilon_cap", w->cap_then, "unit", tacit_privacy_unit_name(m->unit));
    json_t *canaries =
        !w->canaries ? json_object()
                     : json_pack("{s:I, s:o, s:f}", "canaries", (json_int_t)w->words->canaries,
                                 "scores", tacit_json_name(w->words->scores), "epsilon_claimed",
                                 canary_set_scores(w->canaries)->epsilon);
    bool whole = root && json_object_update_new(root, canaries) == 0;
    if (whole && w->words->eval)
        whole = json_object_set_new(root, "eval", judged_json(&w->judged)) == 0;
    if (!whole) {
        json_decref(root);
        root = NULL;
    }
    return tacit_json_print(root, TACIT_JSON_DIGITS, err);
}

/* Data and media are those of the command line, not of client.yaml. */
static tacit_status set_data(client *c, const char *data, tacit_error *err)
{
    char *copy = realpath(data, NULL);
    if (!copy || access(copy, R_OK) != 0) {
        free(copy);
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: cannot read the data", data);
    }
    free(c->config.data);
    c->config.data = copy;
    return TACIT_OK;
}

/* Before anything is spent on what could not be written, or over what is read. */
static tacit_status check_results(const local_work *w, tacit_error *err)
{
    const client_config *config = &w->client->config;
    const char *const result[] = {w->words->out, w->words->scores};
    const char *const source[] = {config->data, config->model_text, w->words->eval};
    tacit_status status = tacit_file_check_results(result, 2, source, 3, err);
    return status == TACIT_OK
               ? tacit_file_check_results(result, 2, (const char *const *)config->model_mmproj.item,
                                          config->model_mmproj.count, err)
               : status;
}

static tacit_status train(local_work *w, tacit_error *err)
{
    static const uint8_t no_nonce[32];
    client *c = w->client;
    training_result result = {0};
    const round_watch watch = {tell_step, w};
    tacit_status status;
    TACIT_TRY(set_data(c, w->words->data, err), done);
    TACIT_TRY(check_results(w, err), done);
    TACIT_TRY(load_heldout(w, err), done);
    TACIT_TRY(client_make_account(c, err), done);
    TACIT_TRY(client_apply_policy(c, err), done);
    TACIT_TRY(reservation_sweep(c, err), done);
    TACIT_TRY(client_load_model(c, &w->model, err), done);
    TACIT_TRY(resume_or_reserve(w, err), done);
    w->start = tacit_clock_seconds();
    TACIT_TRY(
        round_train(c, &w->round, &w->plan, w->model, no_nonce, w->canaries, &watch, &result, err),
        done);
    tacit_kill_point("client.trained");
    TACIT_TRY(save(w, &result, err), done);
    TACIT_TRY(save_scores(w, err), done);
    TACIT_TRY(finish(w, err), done);
    TACIT_TRY(judge(w, err), done);
    status = print_result(w, err);
done:
    training_result_free(&result);
    return status;
}

tacit_status cmd_local_train(int argc, char **argv, tacit_error *err)
{
    train_words words = defaults;
    local_work w = {.words = &words};
    tacit_privacy_unit unit;
    bool help = false;
    tacit_status status = parse(&words, argc, argv, &help, err);
    if (status != TACIT_OK || help)
        return status;
    words.choice.mmproj = words.mmproj.item;
    words.choice.n_mmproj = words.mmproj.count;
    words.choice.data = words.data;
    words.choice.data_once = true;
    words.choice.unit = *words.unit ? words.unit : NULL;
    signal(SIGTERM, on_train_signal);
    signal(SIGINT, on_train_signal);
    TACIT_TRY(unit_of(words.unit, TACIT_UNIT_SUBJECT, &unit, err), done);
    TACIT_TRY(tacit_file_make_dir(words.dir, 0700, err), done);
    TACIT_TRY(client_config_create(words.dir, &words.choice, err), done);
    TACIT_TRY(client_open(&w.client, words.dir, CLIENT_WORKS, err), done);
    w.client->stop = &train_stop;
    TACIT_TRY(train(&w, err), done);
done:
    checked_plan_free(&w.plan);
    canary_set_free(w.canaries);
    round_state_free(&w.round);
    tacit_model_free(w.model);
    tacit_dataset_free(&w.heldout);
    client_close(w.client);
    return status;
}
