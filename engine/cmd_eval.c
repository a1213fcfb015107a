#include "common/json_print.h"
#include "common/log.h"
#include "common/text.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/evaluate.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct eval_options {
    const char *model, *adapter, *data, *form, *chat_template;
    tacit_option_list mmproj;
    uint64_t threads, limit, max_tokens;
    bool json, strict, answers, fast;
} eval_options;

/* Everything that the command holds, released together. */
typedef struct eval_run {
    tacit_pool *pool;
    tacit_model *model;
    tacit_adapter *adapter;
    tacit_dataset dataset;
    tacit_evaluation result;
} eval_run;

static void print_answer(void *ctx, const tacit_record *record, const char *reference,
                         const char *answer, bool correct)
{
    (void)ctx;
    fputs(correct ? "right " : "wrong ", stderr);
    tacit_text_print(stderr, record->id, strlen(record->id), false);
    fputs(": expected '", stderr);
    tacit_text_print(stderr, reference, strlen(reference), false);
    fputs("', answered '", stderr);
    tacit_text_print(stderr, answer, strlen(answer), false);
    fputs("'\n", stderr);
}

static double decode_rate(const tacit_evaluation *r)
{
    return r->decode_seconds > 0 ? (double)r->decoded_tokens / r->decode_seconds : 0;
}

static json_t *kinds_json(const tacit_evaluation *r)
{
    json_t *kinds = json_object();
    for (size_t i = 0; i < r->n_kinds; i++)
        json_object_set_new(kinds, r->kind[i].name,
                            json_pack("{s:f,s:I}", "accuracy",
                                      tacit_evaluation_share(r->kind[i].score), "examples",
                                      (json_int_t)r->kind[i].score.examples));
    return kinds;
}

static json_t *finished_json(const tacit_evaluation *r)
{
    json_t *reasons = json_object();
    for (size_t i = 0; i < TACIT_FINISHES; i++)
        json_object_set_new(reasons, tacit_finish_name((tacit_finish)i),
                            json_integer((json_int_t)r->finished[i]));
    return reasons;
}

static tacit_status print_json(const tacit_evaluation *r, tacit_error *err)
{
    json_t *object = json_pack(
        "{s:f,s:f,s:f,s:I,s:I,s:I,s:f,s:I}", "accuracy", tacit_evaluation_share(r->score), "loss",
        r->loss, "perplexity", r->perplexity, "examples", (json_int_t)r->score.examples, "records",
        (json_int_t)r->records, "skipped", (json_int_t)r->skipped, "decode_tokens_per_s",
        decode_rate(r), "peak_rss_bytes", (json_int_t)cmd_session_peak_rss());
    if (object && r->n_kinds > 0)
        json_object_set_new(object, "by_kind", kinds_json(r));
    if (object)
        json_object_set_new(object, "finish_reasons", finished_json(r));
    return tacit_json_print(object, TACIT_JSON_FLOAT_DIGITS, err);
}

/* The name is of the data set. */
static void print_kind(const tacit_evaluation_kind *k)
{
    char name[sizeof k->name];
    memcpy(name, k->name, sizeof name);
    tacit_text_make_plain(name, strlen(name));
    printf("  %-16s%.4f  (%zu of %zu)\n", name, tacit_evaluation_share(k->score), k->score.correct,
           k->score.examples);
}

static void print_text(const tacit_evaluation *r)
{
    printf("accuracy    %.4f  (%zu of %zu answers)\n", tacit_evaluation_share(r->score),
           r->score.correct, r->score.examples);
    for (size_t i = 0; i < r->n_kinds; i++)
        print_kind(&r->kind[i]);
    printf("loss        %.4f\nperplexity  %.4f\n", r->loss, r->perplexity);
    printf("ended       %zu by themselves, %zu by --tokens, %zu by a full context\n",
           r->finished[TACIT_FINISH_STOP], r->finished[TACIT_FINISH_LENGTH],
           r->finished[TACIT_FINISH_CONTEXT]);
    printf("records     %zu%s\n", r->records, r->skipped ? " (some were skipped, see above)" : "");
    printf("decode      %.1f tokens/s\npeak RSS    %.1f MiB\n", decode_rate(r),
           (double)cmd_session_peak_rss() / 1048576);
}

static tacit_status parse_choices(const eval_options *o, tacit_evaluation_options *how,
                                  tacit_error *err)
{
    tacit_status status = media_form_choose(&how->form, o->form, err);
    if (status != TACIT_OK)
        return status;
    how->precision = o->fast ? TACIT_FAST : TACIT_EXACT;
    how->limit = (size_t)o->limit;
    how->max_tokens = (size_t)o->max_tokens;
    how->strict = o->strict;
    how->heard = o->answers ? print_answer : NULL;
    return TACIT_OK;
}

static tacit_status evaluate(eval_run *run, const eval_options *o, tacit_error *err)
{
    tacit_evaluation_options how = {0};
    tacit_status status;
    TACIT_TRY(parse_choices(o, &how, err), done);
    TACIT_TRY(tacit_pool_new(&run->pool, (size_t)o->threads, err), done);
    TACIT_TRY(tacit_status_of_input(tacit_model_load(&run->model, o->model, o->mmproj.item,
                                                     o->mmproj.count, NULL, err),
                                    err),
              done);
    TACIT_TRY(cmd_choose_chat(run->model, o->chat_template, err), done);
    TACIT_TRY(
        tacit_status_of_input(tacit_dataset_load(&run->dataset, o->data, o->strict, err), err),
        done);
    if (o->adapter)
        TACIT_TRY(tacit_status_of_input(
                      tacit_adapter_load(&run->adapter, run->model, o->adapter, err), err),
                  done);
    how.adapter = run->adapter;
    TACIT_TRY(tacit_evaluate(&run->result, run->model, &run->dataset, &how, run->pool, err), done);
    if (run->result.finished[TACIT_FINISH_CONTEXT] > 0)
        tacit_log_warn("%zu answers were ended by the model's context of %zu rows, which was full",
                       run->result.finished[TACIT_FINISH_CONTEXT],
                       tacit_model_context_length(run->model));
    if (o->json)
        status = print_json(&run->result, err);
    else
        print_text(&run->result);
done:
    return status;
}

tacit_status cmd_eval(int argc, char **argv, tacit_error *err)
{
    eval_options o = {.max_tokens = 64};
    bool help = false;
    const tacit_option table[] = {
        CMD_MODEL_ROW(&o.model),
        CMD_MMPROJ_ROW(&o.mmproj, false),
        CMD_ADAPTER_ROW(&o.adapter),
        {"data", 0, TACIT_OPTION_TEXT, &o.data, true, "D.jsonl", "dataset", 0, 0},
        CMD_CHAT_ROW(&o.chat_template),
        CMD_THREADS_ROW(&o.threads),
        {"limit", 0, TACIT_OPTION_U64, &o.limit, false, "N", "records to read; 0: all (0)", 0, 0},
        {"tokens", 'n', TACIT_OPTION_U64, &o.max_tokens, false, "N",
         "most tokens of an answer (64)", 1, 1 << 20},
        CMD_FORM_ROW(&o.form),
        CMD_FAST_ROW(&o.fast),
        {"strict", 0, TACIT_OPTION_FLAG, &o.strict, false, NULL,
         "a bad record is an error, not left out", 0, 0},
        {"answers", 0, TACIT_OPTION_FLAG, &o.answers, false, NULL, "list answers on stderr", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &o.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit eval", NULL, 0, 0,
                               "exact match, loss and perplexity of a model on a dataset"};
    eval_run run = {0};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status == TACIT_OK && !help)
        status = evaluate(&run, &o, err);
    tacit_dataset_free(&run.dataset);
    tacit_adapter_free(run.adapter);
    tacit_model_free(run.model);
    tacit_pool_free(run.pool);
    return status;
}
