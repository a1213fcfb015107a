/* `tacit run`: answers a prompt. */
#include "common/clock.h"
#include "common/json_print.h"
#include "engine/cmd_answer.h"
#include "engine/cmd_prompt.h"
#include "engine/commands.h"

#include <jansson.h>

typedef struct run {
    cmd_session_options options;
    cmd_answer_options how;
    cmd_prompt prompt;
    bool raw, special, json;
    cmd_session session;
    tacit_input input;
    cmd_answer answer;
    double prefill_seconds;
} run;

static tacit_status prefill(run *r, tacit_error *err)
{
    double start = tacit_clock_seconds();
    tacit_status status = tacit_context_feed(r->session.context, r->input.row, r->input.count,
                                             r->input.media, r->input.n_media, err);
    r->prefill_seconds = tacit_clock_seconds() - start;
    return status;
}

static tacit_status print_json(const run *r, tacit_error *err)
{
    const cmd_answer *a = &r->answer;
    json_t *ids = json_array();
    for (size_t i = 0; i < a->tokens.count; i++)
        json_array_append_new(ids, json_integer(a->tokens.id[i]));
    const char *text = a->text.size ? (const char *)a->text.data : "";
    json_t *object = json_pack("{s:s%, s:o, s:s, s:I, s:f, s:f, s:I}", "text", text, a->text.size,
                               "tokens", ids, "finish_reason", tacit_finish_name(a->finish),
                               "prompt_rows", (json_int_t)r->input.count, "prefill_tokens_per_s",
                               cmd_answer_rate(r->input.count, r->prefill_seconds),
                               "decode_tokens_per_s", cmd_answer_rate(a->tokens.count, a->seconds),
                               "peak_rss_bytes", (json_int_t)cmd_session_peak_rss());
    return tacit_json_print(object, TACIT_JSON_DIGITS, err);
}

static tacit_status run_all(run *r, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(cmd_answer_check(&r->how, err), done);
    TACIT_TRY(cmd_session_open(&r->session, &r->options, 0, err), done);
    TACIT_TRY(cmd_answer_init(&r->answer, &r->session, &r->how, err), done);
    r->answer.shown = !r->json;
    r->answer.special = r->special;
    r->answer.drop_space =
        !r->raw && tacit_tokenizer_adds_space(tacit_model_tokenizer(r->session.model));
    if (r->raw)
        TACIT_TRY(cmd_session_raw(&r->session, r->prompt.text, r->special, &r->input, err), done);
    else
        TACIT_TRY(cmd_session_chat(&r->session, &r->options, r->prompt.text, &r->input, err), done);
    TACIT_TRY(prefill(r, err), done);
    TACIT_TRY(cmd_answer_generate(&r->answer, err), done);
    if (r->json)
        TACIT_TRY(print_json(r, err), done);
done:
    return status;
}

tacit_status cmd_run(int argc, char **argv, tacit_error *err)
{
    run r = {.how = CMD_ANSWER_DEFAULTS};
    bool help;
    const tacit_option table[] = {
        CMD_SESSION_ROWS(&r.options),
        CMD_SESSION_MEDIA_ROWS(&r.options),
        CMD_PROMPT_ROWS(&r.prompt, "what the user says"),
        CMD_ANSWER_ROWS(&r.how),
        {"raw", 0, TACIT_OPTION_FLAG, &r.raw, false, NULL,
         "the prompt as it is, without the chat template", 0, 0},
        {"special", 0, TACIT_OPTION_FLAG, &r.special, false, NULL,
         "read control tokens in a raw prompt, show those of the answer", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &r.json, false, NULL,
         "one JSON object at the end instead of text as it grows", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit run", NULL, 0, 0, "answers a prompt"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    if (r.raw && (cmd_session_media(&r.options) > 0 || r.options.system))
        return tacit_fail(err, TACIT_USAGE,
                          "--system, --image, --audio and --sensor need the chat template; drop "
                          "--raw");
    status = cmd_prompt_read(&r.prompt, err);
    if (status == TACIT_OK)
        status = run_all(&r, err);
    cmd_prompt_free(&r.prompt);
    cmd_answer_fini(&r.answer);
    tacit_input_free(&r.input);
    cmd_session_close(&r.session);
    return status;
}
