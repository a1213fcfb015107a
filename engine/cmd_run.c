/* `tacit run`: answers a prompt. */
#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "engine/cmd_prompt.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/sample.h"
#include "engine/text_stream.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

typedef struct run {
    cmd_session_options options;
    cmd_prompt prompt;
    uint64_t n, top_k, seed;
    double temperature, top_p;
    bool raw, special, json;
    cmd_session session;
    tacit_sampler sampler;
    tacit_input input;
    tacit_tokens answer;
    tacit_buffer text;
    text_stream stream;
    double prefill_seconds, decode_seconds;
    tacit_finish finish;
} run;

/* Shows what is new since `from`, at once: people watch it grow. On a terminal no token steers it;
 * files and pipes get the answer as it is. */
static void show(const run *r, size_t from)
{
    const char *text = (const char *)r->text.data + from;
    size_t size = r->text.size - from;
    if (r->json)
        return;
    if (isatty(STDOUT_FILENO))
        tacit_text_print(stdout, text, size, true);
    else
        fwrite(text, 1, size, stdout);
    fflush(stdout);
}

static tacit_status add_token(run *r, int32_t token, tacit_error *err)
{
    tacit_buffer bytes = {0};
    size_t from = r->text.size;
    tacit_status status;
    TACIT_TRY(tacit_tokens_push(&r->answer, token), done);
    TACIT_TRY(
        tacit_detokenize(tacit_model_tokenizer(r->session.model), token, r->special, &bytes, err),
        done);
    TACIT_TRY(text_stream_put(&r->stream, bytes.data, bytes.size, &r->text), done);
    if (r->text.size > from)
        show(r, from);
done:
    tacit_buffer_free(&bytes);
    return status;
}

static tacit_status prefill(run *r, tacit_error *err)
{
    double start = tacit_clock_seconds();
    tacit_status status = tacit_context_feed(r->session.context, r->input.row, r->input.count,
                                             r->input.media, r->input.n_media, err);
    r->prefill_seconds = tacit_clock_seconds() - start;
    return status;
}

/* An answer that the context cuts looks like one that ended: it has to be said. */
static void report_full(const run *r)
{
    size_t rows = tacit_context_max_rows(r->session.context);
    size_t most = tacit_model_context_length(r->session.model);
    fflush(stdout);
    if (r->finish == TACIT_FINISH_CONTEXT && rows < most)
        tacit_log_warn("the context of %zu rows is full, which ended the answer; --context takes "
                       "up to %zu",
                       rows, most);
    else if (r->finish == TACIT_FINISH_CONTEXT)
        tacit_log_warn("the context of %zu rows, all that the model has, is full, which ended the "
                       "answer",
                       rows);
}

/* Until an end token, --tokens, or the end of the context. */
static tacit_status generate(run *r, tacit_error *err)
{
    const tacit_tokenizer *tokenizer = tacit_model_tokenizer(r->session.model);
    tacit_context *c = r->session.context;
    size_t room = tacit_context_max_rows(c) - tacit_context_rows(c);
    double start = tacit_clock_seconds();
    tacit_status status = TACIT_OK;
    for (uint64_t i = 0; i < r->n; i++) {
        int32_t token = tacit_sampler_next(&r->sampler, tacit_context_logits(c));
        if (token < 0)
            return tacit_fail(err, TACIT_FAILED, "the model's logits are not numbers");
        r->finish = TACIT_FINISH_STOP;
        if (tacit_tokenizer_is_end(tokenizer, token))
            break;
        TACIT_TRY(add_token(r, token, err), done);
        r->finish = i + 1 == r->n ? TACIT_FINISH_LENGTH : TACIT_FINISH_CONTEXT;
        if (i + 1 == r->n || i == room)
            break;
        TACIT_TRY(tacit_context_feed_token(c, token, err), done);
    }
    r->decode_seconds = tacit_clock_seconds() - start;
    size_t from = r->text.size;
    TACIT_TRY(text_stream_end(&r->stream, &r->text), done);
    if (r->text.size > from)
        show(r, from);
    if (!r->json)
        printf("\n");
    report_full(r);
done:
    return status;
}

static double rate(size_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}

static tacit_status print_json(const run *r, tacit_error *err)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < r->answer.count; i++)
        json_array_append_new(ids, json_integer(r->answer.id[i]));
    const char *text = r->text.size ? (const char *)r->text.data : "";
    json_t *object = json_pack("{s:s%, s:o, s:s, s:I, s:f, s:f, s:I}", "text", text, r->text.size,
                               "tokens", ids, "finish_reason", tacit_finish_name(r->finish),
                               "prompt_rows", (json_int_t)r->input.count, "prefill_tokens_per_s",
                               rate(r->input.count, r->prefill_seconds), "decode_tokens_per_s",
                               rate(r->answer.count, r->decode_seconds), "peak_rss_bytes",
                               (json_int_t)cmd_session_peak_rss());
    int failed = !object || json_dumpf(object, stdout, JSON_COMPACT) != 0;
    json_decref(object);
    printf("\n");
    return failed ? tacit_fail(err, TACIT_FAILED, "cannot print the answer") : TACIT_OK;
}

static tacit_status run_all(run *r, tacit_error *err)
{
    const tacit_sampler_spec spec = {.temperature = r->temperature,
                                     .top_k = (size_t)r->top_k,
                                     .top_p = r->top_p,
                                     .seed = r->seed};
    tacit_status status;
    TACIT_TRY(cmd_session_open(&r->session, &r->options, 0, err), done);
    TACIT_TRY(tacit_sampler_init(&r->sampler, &spec, tacit_model_vocab(r->session.model), err),
              done);
    r->stream.drop_space =
        !r->raw && tacit_tokenizer_adds_space(tacit_model_tokenizer(r->session.model));
    if (r->raw)
        TACIT_TRY(cmd_session_raw(&r->session, r->prompt.text, r->special, &r->input, err), done);
    else
        TACIT_TRY(cmd_session_chat(&r->session, &r->options, r->prompt.text, &r->input, err), done);
    TACIT_TRY(prefill(r, err), done);
    TACIT_TRY(generate(r, err), done);
    if (r->json)
        TACIT_TRY(print_json(r, err), done);
done:
    return status;
}

tacit_status cmd_run(int argc, char **argv, tacit_error *err)
{
    run r = {.n = 256, .temperature = 0, .top_p = 1};
    bool help;
    const tacit_option table[] = {
        CMD_SESSION_ROWS(&r.options),
        CMD_SESSION_MEDIA_ROWS(&r.options),
        CMD_PROMPT_ROWS(&r.prompt, "what the user says"),
        {"tokens", 'n', TACIT_OPTION_U64, &r.n, false, "N", "most tokens of the answer (256)", 1,
         1e6},
        {"temp", 0, TACIT_OPTION_REAL, &r.temperature, false, "T",
         "temperature; 0 takes the most likely token (0)", 0, 100},
        {"top-k", 0, TACIT_OPTION_U64, &r.top_k, false, "K",
         "only the K most likely tokens; 0: all (0)", 0, 1e9},
        {"top-p", 0, TACIT_OPTION_REAL, &r.top_p, false, "P",
         "only the most likely tokens that reach P together (1)", 0, 1},
        {"seed", 0, TACIT_OPTION_U64, &r.seed, false, "S", "of the sampling (0)", 0, 0},
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
    tacit_buffer_free(&r.text);
    tacit_tokens_free(&r.answer);
    tacit_input_free(&r.input);
    tacit_sampler_fini(&r.sampler);
    cmd_session_close(&r.session);
    return status;
}
