/* `tacit train`: fine-tunes on a dataset, for engineers. Nothing here is private: devices train
 * through tacit-client. */
#include "common/digest.h"
#include "common/file.h"
#include "common/json_print.h"
#include "common/log.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/layout.h"
#include "engine/model_write.h"
#include "engine/optimizer.h"
#include "engine/row_cache.h"
#include "engine/soft_prompt.h"
#include "engine/train_loop.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW_CACHE_BYTES ((size_t)1 << 30)
#define MAX_EXAMPLES_OF_BATCH 65536
#define ROWS_TOGETHER ((size_t)256) /* short examples share a dequantized layer */

static volatile sig_atomic_t train_stop;

static void on_stop(int number)
{
    (void)number;
    train_stop = 1;
}

typedef struct train_args {
    const char *text, *data, *eval, *trainable, *out, *targets, *optimizer, *types;
    const char *form, *chat_template, *schedule, *checkpoint;
    tacit_option_list mmproj, out_mmproj;
    uint64_t epochs, batch, rank, last_layers, virtual_tokens, image_virtual_tokens, seed, threads,
        max_rows, warmup, patience, checkpoint_steps;
    double alpha, learning_rate, momentum, weight_decay;
    bool rslora, json, strict;
} train_args;

typedef struct training {
    train_args args;
    char targets[1024]; /* args.targets, cut at its commas */
    tacit_trainable_spec spec;
    tacit_pool *pool;
    tacit_model *model;
    tacit_row_cache *cache;
    bool encodes; /* encoders are trained: examples keep their media's values */
    train_examples data, eval;
    tacit_trainer *trainer;
    tacit_optimizer_spec optimizer;
    train_loop loop;
} training;

/* ---- command line ---- */

static const struct {
    const char *name;
    tacit_trainable_kind kind;
    double learning_rate;
} kinds[] = {
    {"lora", TACIT_TRAIN_LORA, 1e-3},           {"ffa", TACIT_TRAIN_LORA_FFA, 1e-3},
    {"core", TACIT_TRAIN_LORA_CORE, 1e-3},      {"prompt", TACIT_TRAIN_PROMPT, 1e-2},
    {"projector", TACIT_TRAIN_PROJECTOR, 1e-3}, {"all", TACIT_TRAIN_ALL, 1e-4},
};

static const struct {
    const char *name;
    const tacit_type_rule *rules;
} type_policies[] = {
    {"keep", (const tacit_type_rule[]){{NULL, NULL, 0, TACIT_TYPE_F32}}},
    {"q8_0", tacit_types_q8_0},
    {"f32", tacit_types_f32},
};

static const struct {
    const char *name;
    tacit_optimizer_kind kind;
} optimizers[] = {{"adamw", TACIT_ADAMW}, {"adam", TACIT_ADAM}, {"sgd", TACIT_SGD}};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static tacit_status parse(train_args *a, int argc, char **argv, bool *help, tacit_error *err)
{
    const tacit_option table[] = {
        CMD_MODEL_ROW(&a->text),
        CMD_MMPROJ_ROW(&a->mmproj, false),
        {"data", 0, TACIT_OPTION_TEXT, &a->data, true, "D.jsonl", "conversations", 0, 0},
        {"eval", 0, TACIT_OPTION_TEXT, &a->eval, false, "D.jsonl", "held-out conversations", 0, 0},
        {"trainable", 0, TACIT_OPTION_TEXT, &a->trainable, true, "SET",
         "lora, ffa (LoRA with A frozen), core (a small matrix between frozen halves), prompt "
         "(soft prompts), projector or all",
         0, 0},
        {"out", 'o', TACIT_OPTION_TEXT, &a->out, true, "FILE",
         "adapter (lora, ffa, core, prompt), mmproj (projector) or text model (all)", 0, 0},
        {"out-mmproj", 0, TACIT_OPTION_LIST, &a->out_mmproj, false, "FILE",
         "with all: the trained encoder of each --mmproj; with projector: of all but the first", 0,
         0},
        {"epochs", 0, TACIT_OPTION_U64, &a->epochs, false, "N", "passes (1)", 1, 1e6},
        {"batch", 0, TACIT_OPTION_U64, &a->batch, false, "N", "examples a step (8)", 1,
         MAX_EXAMPLES_OF_BATCH},
        {"learning-rate", 0, TACIT_OPTION_REAL, &a->learning_rate, false, "X",
         "step length (1e-3; 1e-2 for prompt, 1e-4 for all)", 0, 1e3},
        {"rank", 0, TACIT_OPTION_U64, &a->rank, false, "R", "of the adapter (8)", 1,
         TACIT_TRAINABLE_RANK_MAX},
        {"alpha", 0, TACIT_OPTION_REAL, &a->alpha, false, "A",
         "of the adapter, scaled by A / R (twice the rank)", 0, 1e6},
        {"rslora", 0, TACIT_OPTION_FLAG, &a->rslora, false, NULL,
         "the adapter is scaled by A / sqrt(R) instead", 0, 0},
        {"targets", 0, TACIT_OPTION_TEXT, &a->targets, false, "A,B",
         "linears of every layer, or names with * and ?; each may be NAME=RANK "
         "(attn_q,attn_v,attn_output,ffn_down)",
         0, 0},
        {"last-layers", 0, TACIT_OPTION_U64, &a->last_layers, false, "N",
         "adapt only the last N layers (all)", 1, UINT32_MAX},
        {"virtual-tokens", 0, TACIT_OPTION_U64, &a->virtual_tokens, false, "N",
         "rows of the soft prompt before everything (16, unless pictures have some)", 1,
         SOFT_PROMPT_MAX_ROWS},
        {"image-virtual-tokens", 0, TACIT_OPTION_U64, &a->image_virtual_tokens, false, "N",
         "rows of the soft prompt before every picture (0)", 1, SOFT_PROMPT_MAX_ROWS},
        {"optimizer", 0, TACIT_OPTION_TEXT, &a->optimizer, false, "NAME",
         "adamw, adam or sgd (adamw)", 0, 0},
        {"momentum", 0, TACIT_OPTION_REAL, &a->momentum, false, "X", "of sgd (0.9)", 0, 1},
        {"weight-decay", 0, TACIT_OPTION_REAL, &a->weight_decay, false, "X",
         "decay of the values (0)", 0, 1e3},
        {"schedule", 0, TACIT_OPTION_TEXT, &a->schedule, false, "NAME",
         "of the learning rate: constant, linear or cosine, both down to zero (constant)", 0, 0},
        {"warmup", 0, TACIT_OPTION_U64, &a->warmup, false, "N",
         "first steps, in which the learning rate rises (0)", 1, UINT32_MAX},
        {"patience", 0, TACIT_OPTION_U64, &a->patience, false, "N",
         "ends after N epochs without a better loss on --eval, and writes the best epoch's values",
         1, 1e6},
        {"checkpoint", 0, TACIT_OPTION_TEXT, &a->checkpoint, false, "FILE",
         "from which the same command goes on; removed when the result is written", 0, 0},
        {"checkpoint-steps", 0, TACIT_OPTION_U64, &a->checkpoint_steps, false, "N",
         "steps between two checkpoints (100)", 1, UINT32_MAX},
        {"types", 0, TACIT_OPTION_TEXT, &a->types, false, "POLICY",
         "of a saved model's tensors: keep, q8_0 or f32 (keep)", 0, 0},
        CMD_FORM_ROW(&a->form),
        CMD_CHAT_ROW(&a->chat_template),
        {"max-rows", 0, TACIT_OPTION_U64, &a->max_rows, false, "N",
         "longest example; longer ones are left out (the context length)", 1, 1e6},
        {"seed", 0, TACIT_OPTION_U64, &a->seed, false, "S", "of order and adapter (0)", 0, 0},
        CMD_THREADS_ROW(&a->threads),
        {"strict", 0, TACIT_OPTION_FLAG, &a->strict, false, NULL,
         "a bad record is an error, not left out", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &a->json, false, NULL, "one JSON object an epoch", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit train", NULL, 0, 0,
                               "fine-tunes a model on a dataset (not private)"};
    return tacit_options_parse(&usage, table, argc, argv, NULL, NULL, help, err);
}

static tacit_status set_targets(training *t, tacit_error *err)
{
    char *rest = t->targets;
    size_t size = strlen(t->args.targets);
    if (size >= sizeof t->targets)
        return tacit_fail(err, TACIT_USAGE, "--targets is longer than %zu bytes",
                          sizeof t->targets - 1);
    memcpy(t->targets, t->args.targets, size + 1);
    for (char *word; (word = strsep(&rest, ","));) {
        if (t->spec.n_targets == TACIT_TRAINABLE_TARGETS_MAX)
            return tacit_fail(err, TACIT_USAGE, "--targets: more than %d",
                              TACIT_TRAINABLE_TARGETS_MAX);
        t->spec.target[t->spec.n_targets++] = word;
    }
    return TACIT_OK;
}

/* An option that the set has no use for is refused: whoever types it expects it to count. Those
 * that are not given get their defaults. */
static tacit_status check_given(train_args *a, size_t kind, tacit_error *err)
{
    bool adapter = layout_is_adapter(kinds[kind].kind), lora = layout_is_lora(kinds[kind].kind);
    bool prompt = kinds[kind].kind == TACIT_TRAIN_PROMPT;
    const struct {
        const char *name;
        bool given, used;
        const char *of;
    } options[] = {{"targets", a->targets != NULL, lora, "lora, ffa or core"},
                   {"rank", a->rank > 0, lora, "lora, ffa or core"},
                   {"alpha", a->alpha > 0, lora, "lora, ffa or core"},
                   {"rslora", a->rslora, lora, "lora, ffa or core"},
                   {"last-layers", a->last_layers > 0, lora, "lora, ffa or core"},
                   {"virtual-tokens", a->virtual_tokens > 0, prompt, "prompt"},
                   {"image-virtual-tokens", a->image_virtual_tokens > 0, prompt, "prompt"}};
    for (size_t i = 0; i < COUNT(options); i++)
        if (options[i].given && !options[i].used)
            return tacit_fail(err, TACIT_USAGE, "--%s is of an adapter: --trainable %s, not %s",
                              options[i].name, options[i].of, a->trainable);
    if (adapter && a->types)
        return tacit_fail(err, TACIT_USAGE,
                          "--types is of a saved model: --trainable projector or all, not %s",
                          a->trainable);
    if (a->momentum >= 0 && strcmp(a->optimizer, "sgd") != 0)
        return tacit_fail(err, TACIT_USAGE, "--momentum is of --optimizer sgd, not of %s",
                          a->optimizer);
    a->targets = a->targets ? a->targets : "attn_q,attn_v,attn_output,ffn_down";
    a->rank = a->rank > 0 ? a->rank : 8;
    if (prompt && a->virtual_tokens + a->image_virtual_tokens == 0)
        a->virtual_tokens = 16;
    a->types = a->types ? a->types : "keep";
    a->momentum = a->momentum >= 0 ? a->momentum : 0.9;
    return TACIT_OK;
}

static tacit_status set_spec(training *t, tacit_error *err)
{
    train_args *a = &t->args;
    uint8_t number[8];
    tacit_store_u64(number, a->seed);
    const tacit_span part = {number, sizeof number};
    tacit_status status;
    size_t i = 0;
    while (i < COUNT(kinds) && strcmp(kinds[i].name, a->trainable) != 0)
        i++;
    if (i == COUNT(kinds))
        return tacit_fail(err, TACIT_USAGE,
                          "--trainable %s: expected lora, ffa, core, prompt, projector or all",
                          a->trainable);
    t->spec.kind = kinds[i].kind;
    TACIT_TRY(check_given(a, i, err), out);
    t->spec.rank = (uint32_t)a->rank;
    t->spec.rslora = a->rslora;
    t->spec.last_layers = (uint32_t)a->last_layers;
    t->spec.virtual_tokens = (uint32_t)a->virtual_tokens;
    t->spec.image_virtual_tokens = (uint32_t)a->image_virtual_tokens;
    t->spec.alpha = a->alpha > 0 ? a->alpha : 2.0 * (double)a->rank;
    tacit_digest_parts(t->spec.seed, "tacit-train-seed", &part, 1);
    if (a->learning_rate <= 0)
        a->learning_rate = kinds[i].learning_rate;
    return set_targets(t, err);
out:
    return status;
}

static bool is_adapter(const training *t)
{
    return layout_is_adapter(t->spec.kind);
}

static tacit_status find_policy(const training *t, const tacit_type_rule **rules, tacit_error *err)
{
    for (size_t i = 0; i < COUNT(type_policies); i++)
        if (strcmp(type_policies[i].name, t->args.types) == 0) {
            *rules = type_policies[i].rules;
            return TACIT_OK;
        }
    return tacit_fail(err, TACIT_USAGE, "--types %s: expected keep, q8_0 or f32", t->args.types);
}

static tacit_status check_places(const train_args *a, tacit_error *err)
{
    const char *result[2 + TACIT_OPTION_LIST_MAX] = {a->out};
    const char *const source[] = {a->text, a->data, a->eval};
    size_t n = 1 + a->out_mmproj.count;
    memcpy(result + 1, a->out_mmproj.item, a->out_mmproj.count * sizeof *result);
    if (a->checkpoint)
        result[n++] = a->checkpoint;
    tacit_status status = tacit_file_check_results(result, n, source, 3, err);
    return status == TACIT_OK
               ? tacit_file_check_results(result, n, a->mmproj.item, a->mmproj.count, err)
               : status;
}

static tacit_status check_outputs(const training *t, tacit_error *err)
{
    const tacit_type_rule *rules = NULL;
    size_t encoders = is_adapter(t) ? 0 : t->args.mmproj.count;
    if (t->spec.kind == TACIT_TRAIN_PROJECTOR && encoders > 0)
        encoders--; /* the first one's is --out */
    if (encoders != t->args.out_mmproj.count)
        return tacit_fail(
            err, TACIT_USAGE,
            "--out-mmproj: expected %zu times with --trainable %s and %zu of --mmproj, found %zu",
            encoders, t->args.trainable, t->args.mmproj.count, t->args.out_mmproj.count);
    tacit_status status = find_policy(t, &rules, err);
    return status == TACIT_OK ? check_places(&t->args, err) : status;
}

/* ---- report ---- */

static tacit_status report(void *ctx, const train_epoch *e, tacit_error *err)
{
    const training *t = ctx;
    if (!t->args.json) {
        printf("epoch %llu: loss %.4f", (unsigned long long)e->number, e->loss);
        if (t->eval.count)
            printf(", held-out loss %.4f%s", e->eval_loss, e->best ? ", the best" : "");
        printf(", %llu steps, %.0f tokens/s\n", (unsigned long long)e->steps, e->tokens_per_s);
        fflush(stdout);
        return TACIT_OK;
    }
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I}", "epoch", (json_int_t)e->number, "steps",
        (json_int_t)e->steps, "examples", (json_int_t)t->data.count, "skipped",
        (json_int_t)t->data.skipped + (json_int_t)t->eval.skipped, "values",
        (json_int_t)tacit_trainer_layout(t->trainer)->values, "loss", e->loss, "train_tokens_per_s",
        e->tokens_per_s, "peak_rss_bytes", (json_int_t)cmd_session_peak_rss());
    if (o && t->eval.count &&
        (json_object_set_new(o, "eval_loss", json_real(e->eval_loss)) != 0 ||
         json_object_set_new(o, "best", json_boolean(e->best)) != 0)) {
        json_decref(o);
        o = NULL;
    }
    return tacit_json_print(o, TACIT_JSON_DIGITS, err);
}

/* ---- the whole ---- */

static tacit_status open_model(training *t, tacit_error *err)
{
    const train_args *a = &t->args;
    tacit_status status = TACIT_OK;
    TACIT_TRY(tacit_pool_new(&t->pool, (size_t)a->threads, err), out);
    TACIT_TRY(
        tacit_status_of_input(
            tacit_model_load(&t->model, a->text, a->mmproj.item, a->mmproj.count, NULL, err), err),
        out);
    TACIT_TRY(cmd_choose_chat(t->model, a->chat_template, err), out);
    t->encodes = tacit_training_encodes(t->model, &t->spec);
    TACIT_TRY(tacit_row_cache_new(&t->cache, t->model, ROW_CACHE_BYTES, NULL, t->pool, err), out);
    train_examples_setup setup = {.model = t->model,
                                  .spec = &t->spec,
                                  .cache = t->encodes ? NULL : t->cache,
                                  .options.max_rows = (size_t)a->max_rows,
                                  .strict = a->strict};
    TACIT_TRY(media_form_choose(&setup.options.form, a->form, err), out);
    TACIT_TRY(train_examples_load(&t->data, a->data, &setup, err), out);
    if (a->eval)
        TACIT_TRY(train_examples_load(&t->eval, a->eval, &setup, err), out);
    tacit_row_cache_free(t->cache); /* the examples have their rows */
    t->cache = NULL;
out:
    return status;
}

/* What a checkpoint belongs to. The learning rate and the number of epochs are not of it: whoever
 * goes on may change them. */
static tacit_status set_identity(training *t, tacit_error *err)
{
    const train_args *a = &t->args;
    uint8_t data[TACIT_DIGEST_BYTES], eval[TACIT_DIGEST_BYTES] = {0};
    char words[512];
    tacit_status status = tacit_digest_file(data, a->data, err);
    if (status == TACIT_OK && a->eval)
        status = tacit_digest_file(eval, a->eval, err);
    if (status != TACIT_OK)
        return status;
    int n =
        snprintf(words, sizeof words,
                 "kind %d, alpha %.17g, rslora %d, last layers %u, optimizer %d, batch %llu, "
                 "seed %llu, patience %d, rows %zu, examples %zu, held out %zu, form %s, chat %s",
                 (int)t->spec.kind, t->spec.alpha, t->spec.rslora, t->spec.last_layers,
                 (int)t->optimizer.kind, (unsigned long long)a->batch, (unsigned long long)a->seed,
                 a->patience > 0, t->data.rows, t->data.count, t->eval.count,
                 a->form ? a->form : "", a->chat_template ? a->chat_template : "");
    const tacit_span part[] = {
        {(const uint8_t *)words, (size_t)n < sizeof words ? (size_t)n : sizeof words},
        {tacit_model_base_digest(t->model), TACIT_DIGEST_BYTES},
        {tacit_trainer_layout(t->trainer)->hash, TACIT_DIGEST_BYTES},
        {data, sizeof data},
        {eval, sizeof eval}};
    tacit_digest_parts(t->loop.identity, "tacit-train-checkpoint", part, COUNT(part));
    return TACIT_OK;
}

static tacit_status set_optimizer(training *t, tacit_error *err)
{
    const train_args *a = &t->args;
    t->optimizer = (tacit_optimizer_spec){.learning_rate = a->learning_rate,
                                          .momentum = a->momentum,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .epsilon = 1e-8,
                                          .weight_decay = a->weight_decay};
    size_t i = 0;
    while (i < COUNT(optimizers) && strcmp(optimizers[i].name, a->optimizer) != 0)
        i++;
    if (i == COUNT(optimizers))
        return tacit_fail(err, TACIT_USAGE, "--optimizer %s: expected adamw, adam or sgd",
                          a->optimizer);
    t->optimizer.kind = optimizers[i].kind;
    t->optimizer.warmup = (uint32_t)a->warmup;
    if (!tacit_rate_kind_find(&t->optimizer.rate, a->schedule))
        return tacit_fail(err, TACIT_USAGE, "--schedule %s: expected constant, linear or cosine",
                          a->schedule);
    return TACIT_OK;
}

/* The options of the loop, before any file is read. */
static tacit_status set_loop(training *t, tacit_error *err)
{
    const train_args *a = &t->args;
    t->loop = (train_loop){.optimizer = &t->optimizer,
                           .data = &t->data,
                           .eval = &t->eval,
                           .epochs = a->epochs,
                           .batch = a->batch,
                           .seed = a->seed,
                           .patience = a->patience,
                           .checkpoint = a->checkpoint,
                           .checkpoint_steps = a->checkpoint_steps > 0 ? a->checkpoint_steps : 100,
                           .stop = &train_stop,
                           .report = report,
                           .ctx = t};
    if (a->patience > 0 && !a->eval)
        return tacit_fail(err, TACIT_USAGE, "--patience is of held-out data: give --eval");
    if (a->checkpoint_steps > 0 && !a->checkpoint)
        return tacit_fail(err, TACIT_USAGE, "--checkpoint-steps: give --checkpoint FILE, too");
    return set_optimizer(t, err);
}

static tacit_status open_trainer(training *t, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    size_t context = tacit_model_context_length(t->model);
    size_t rows = ROWS_TOGETHER < context ? ROWS_TOGETHER : context;
    rows = t->data.longest > rows ? t->data.longest : rows;
    rows = t->eval.longest > rows ? t->eval.longest : rows;
    const tacit_training whole = {.spec = &t->spec,
                                  .optimizer = &t->optimizer,
                                  .max_rows = rows,
                                  .beside = train_loop_value_bytes(&t->loop),
                                  .saves = true};
    TACIT_TRY(tacit_training_check(t->model, &whole, t->pool, err), out);
    TACIT_TRY(tacit_trainer_new(&t->trainer, t->model, &t->spec, rows, t->pool, err), out);
    t->loop.trainer = t->trainer;
    TACIT_TRY(set_identity(t, err), out);
out:
    return status;
}

static tacit_status save(const training *t, tacit_error *err)
{
    const tacit_layout *layout = tacit_trainer_layout(t->trainer);
    const float *values = tacit_trainer_values(t->trainer);
    const tacit_type_rule *rules = NULL;
    tacit_adapter_info info = {0};
    if (is_adapter(t))
        return tacit_adapter_save(t->args.out, t->model, &t->spec, values, &info, err);
    tacit_status status = find_policy(t, &rules, err);
    size_t first = t->spec.kind == TACIT_TRAIN_ALL ? 0 : 1;
    if (status == TACIT_OK)
        status = tacit_model_save(t->args.out, t->model, first, layout, values, rules, err);
    for (size_t i = 0; i < t->args.out_mmproj.count && status == TACIT_OK; i++)
        status = tacit_model_save(t->args.out_mmproj.item[i], t->model, first + 1 + i, layout,
                                  values, rules, err);
    return status;
}

static void close_training(training *t)
{
    tacit_trainer_free(t->trainer);
    train_examples_free(&t->data);
    train_examples_free(&t->eval);
    tacit_row_cache_free(t->cache);
    tacit_model_free(t->model);
    tacit_pool_free(t->pool);
}

tacit_status cmd_train(int argc, char **argv, tacit_error *err)
{
    training t = {.args = {.epochs = 1,
                           .batch = 8,
                           .momentum = -1, /* not given */
                           .schedule = "constant",
                           .optimizer = "adamw"}};
    bool help = false;
    uint64_t best_epoch;
    tacit_status status = parse(&t.args, argc, argv, &help, err);
    if (status != TACIT_OK || help)
        return status;
    TACIT_TRY(set_spec(&t, err), out);
    TACIT_TRY(set_loop(&t, err), out);
    TACIT_TRY(check_outputs(&t, err), out);
    signal(SIGTERM, on_stop);
    signal(SIGINT, on_stop);
    TACIT_TRY(open_model(&t, err), out);
    TACIT_TRY(open_trainer(&t, err), out);
    TACIT_TRY(train_loop_run(&t.loop, &best_epoch, err), out);
    if (t.args.patience)
        tacit_log_info("the values are those behind epoch %llu", (unsigned long long)best_epoch);
    TACIT_TRY(save(&t, err), out);
    if (t.args.checkpoint)
        unlink(t.args.checkpoint); /* gone already if nothing was written to it */
out:
    close_training(&t);
    return status;
}
