/* `tacit logits`: the scores of the next token, for comparisons with other engines. */
#include "common/json_print.h"
#include "common/memory_limit.h"
#include "common/secret.h"
#include "engine/cmd_prompt.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/sample.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { JSON_BYTES = 400 }; /* of an id and its logit: what jansson takes for an object of two */

typedef struct logits_run {
    cmd_session_options options;
    cmd_prompt prompt;
    uint64_t top;
    bool all, chat, special, json;
    cmd_session session;
    tacit_sampler sampler;  /* sorts */
    sample_candidate *best; /* [top] */
    tacit_input input;
    json_t *positions; /* with --all and --json */
    tacit_error *err;
} logits_run;

/* NULL where one of them is not finite, or for want of memory. */
static json_t *to_json(logits_run *r, const float *logits)
{
    size_t n = tacit_sampler_top(&r->sampler, logits, (size_t)r->top, r->best);
    json_t *list = n > 0 ? json_array() : NULL;
    for (size_t i = 0; list && i < n; i++) {
        json_t *one =
            json_pack("{s:i, s:f}", "id", (int)r->best[i].id, "logit", (double)r->best[i].logit);
        if (json_array_append_new(list, one) == 0)
            continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* One line a position: "ID:LOGIT ID:LOGIT ...". */
static tacit_status print_line(logits_run *r, const float *logits)
{
    size_t n = tacit_sampler_top(&r->sampler, logits, (size_t)r->top, r->best);
    if (n == 0)
        return tacit_fail(r->err, TACIT_FAILED, TACIT_NOT_NUMBERS);
    for (size_t i = 0; i < n; i++)
        printf("%s%d:%.6g", i ? " " : "", (int)r->best[i].id, (double)r->best[i].logit);
    printf("\n");
    return TACIT_OK;
}

static tacit_status take_position(void *ctx, size_t row, const float *logits)
{
    logits_run *r = ctx;
    if (!r->json)
        return print_line(r, logits);
    if (json_array_append_new(r->positions, to_json(r, logits)) == 0)
        return TACIT_OK;
    return tacit_fail(r->err, TACIT_FAILED,
                      "the logits of row %zu are no JSON: one is not finite; leave --json out",
                      row);
}

static tacit_status print_json(logits_run *r, tacit_error *err)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < r->input.count; i++)
        json_array_append_new(ids, json_integer(r->input.row[i].modality == TACIT_MODALITY_TOKEN
                                                    ? r->input.row[i].token
                                                    : -1));
    json_t *found =
        r->all ? json_incref(r->positions) : to_json(r, tacit_context_logits(r->session.context));
    json_t *object = json_pack("{s:o, s:o}", "tokens", ids, "logits", found);
    return tacit_json_print(object, TACIT_JSON_FLOAT_DIGITS, err);
}

/* All of them are held until the end: with --all the whole vocabulary at every position. */
static tacit_status judge_json(const logits_run *r, tacit_error *err)
{
    uint64_t positions = r->all ? r->input.count : 1;
    return r->json ? tacit_memory_judge(positions * r->top * JSON_BYTES, "the logits as JSON",
                                        "take a smaller --top, or leave --json out", err)
                   : TACIT_OK;
}

static tacit_status compute(logits_run *r, tacit_error *err)
{
    tacit_context *c = r->session.context;
    if (r->all)
        return tacit_context_feed_all(c, r->input.row, r->input.count, r->input.media,
                                      r->input.n_media, take_position, r, err);
    return tacit_context_feed(c, r->input.row, r->input.count, r->input.media, r->input.n_media,
                              err);
}

static tacit_status run_all(logits_run *r, tacit_error *err)
{
    const tacit_sampler_spec greedy = {0};
    tacit_status status;
    TACIT_TRY(cmd_session_open(&r->session, &r->options, 0, err), done);
    size_t vocab = tacit_model_vocab(r->session.model);
    if (r->top == 0 || r->top > vocab)
        r->top = vocab;
    TACIT_TRY(tacit_sampler_init(&r->sampler, &greedy, vocab, err), done);
    r->best = malloc((size_t)r->top * sizeof *r->best);
    r->positions = json_array();
    if (!r->best || !r->positions)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu logits", (size_t)r->top);
    if (r->chat)
        TACIT_TRY(cmd_session_chat(&r->session, &r->options, r->prompt.text, &r->input, err), done);
    else
        TACIT_TRY(cmd_session_raw(&r->session, r->prompt.text, r->special, &r->input, err), done);
    TACIT_TRY(judge_json(r, err), done);
    TACIT_TRY(compute(r, err), done);
    if (r->json)
        status = print_json(r, err);
    else if (!r->all)
        status = print_line(r, tacit_context_logits(r->session.context));
done:
    return status;
}

tacit_status cmd_logits(int argc, char **argv, tacit_error *err)
{
    logits_run r = {.top = 10, .err = err};
    bool help;
    const tacit_option table[] = {
        CMD_SESSION_ROWS(&r.options),
        CMD_SESSION_MEDIA_ROWS(&r.options),
        CMD_PROMPT_ROWS(&r.prompt, "the text before"),
        {"top", 0, TACIT_OPTION_U64, &r.top, false, "K", "the K highest alone; 0: all (10)", 0,
         1e9},
        {"all", 0, TACIT_OPTION_FLAG, &r.all, false, NULL, "at every position", 0, 0},
        {"chat", 0, TACIT_OPTION_FLAG, &r.chat, false, NULL,
         "the prompt as a user's turn of the chat template", 0, 0},
        {"special", 0, TACIT_OPTION_FLAG, &r.special, false, NULL,
         "text that spells a control token becomes it", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &r.json, false, NULL, "one JSON object: tokens, logits", 0,
         0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit logits", NULL, 0, 0, "prints the scores of the next token"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    r.chat |= cmd_session_media(&r.options) > 0 || r.options.system;
    status = cmd_prompt_read(&r.prompt, err);
    if (status == TACIT_OK)
        status = run_all(&r, err);
    cmd_prompt_free(&r.prompt);
    json_decref(r.positions);
    tacit_wipe_free(r.best);
    tacit_input_free(&r.input);
    tacit_sampler_fini(&r.sampler);
    cmd_session_close(&r.session);
    return status;
}
