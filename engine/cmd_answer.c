#include "engine/cmd_answer.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "engine/stop_text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

tacit_status cmd_answer_check(const cmd_answer_options *options, tacit_error *err)
{
    for (size_t i = 0; i < options->stop.count; i++) {
        const char *text = options->stop.item[i];
        if (*text == '\0')
            return tacit_fail(err, TACIT_USAGE, "--stop: expected a text, found nothing");
        if (!tacit_utf8_valid((const uint8_t *)text, strlen(text)))
            return tacit_fail(err, TACIT_USAGE,
                              "--stop: expected UTF-8, as answers are; found other bytes");
    }
    return TACIT_OK;
}

tacit_status cmd_answer_init(cmd_answer *a, const cmd_session *session,
                             const cmd_answer_options *options, tacit_error *err)
{
    const tacit_sampler_spec spec = {.temperature = options->temperature,
                                     .top_k = (size_t)options->top_k,
                                     .top_p = options->top_p,
                                     .min_p = options->min_p,
                                     .seed = options->seed};
    a->session = session;
    a->stop = &options->stop;
    a->text.wiped = true;
    a->most = options->tokens;
    return tacit_sampler_init(&a->sampler, &spec, tacit_model_vocab(session->model), err);
}

void cmd_answer_fini(cmd_answer *a)
{
    tacit_buffer_free(&a->text);
    tacit_tokens_free(&a->tokens);
    tacit_sampler_fini(&a->sampler);
}

/* Shows what is new up to `end`, at once: people watch it grow. On a terminal no token steers it;
 * files and pipes get the answer as it is. */
static void show(cmd_answer *a, size_t end)
{
    size_t size = end - a->seen;
    if (!a->shown || size == 0)
        return;
    const char *text = (const char *)a->text.data + a->seen;
    a->seen = end;
    if (isatty(STDOUT_FILENO))
        tacit_text_print(stdout, text, size, true);
    else
        fwrite(text, 1, size, stdout);
    fflush(stdout);
}

/* Appending fails without a word. */
static tacit_status said(tacit_status status, tacit_error *err)
{
    return status == TACIT_OK ? status : tacit_fail(err, status, "no memory for an answer");
}

/* Cuts the text where one that ends it begins; shows what cannot be the begin of one. */
static void look_for_stop(cmd_answer *a, size_t from)
{
    const char *text = (const char *)a->text.data;
    size_t at = stop_text_find(a->stop->item, a->stop->count, text, a->text.size, from);
    a->stopped = at != STOP_TEXT_NONE;
    if (a->stopped)
        a->text.size = at;
    size_t held = stop_text_pending(a->stop->item, a->stop->count, text, a->text.size);
    show(a, a->text.size - (a->stopped ? 0 : held));
}

static tacit_status add_token(cmd_answer *a, text_stream *stream, int32_t token, tacit_error *err)
{
    const tacit_tokenizer *tokenizer = tacit_model_tokenizer(a->session->model);
    tacit_buffer bytes = {.wiped = true};
    size_t from = a->text.size;
    tacit_status status;
    TACIT_TRY(said(tacit_tokens_push(&a->tokens, token), err), done);
    TACIT_TRY(tacit_detokenize(tokenizer, token, a->special, &bytes, err), done);
    TACIT_TRY(said(text_stream_put(stream, bytes.data, bytes.size, &a->text), err), done);
    look_for_stop(a, from);
done:
    tacit_buffer_free(&bytes);
    return status;
}

/* An answer that the context cuts looks like one that ended: it has to be said. */
static void report_full(const cmd_answer *a)
{
    size_t rows = tacit_context_max_rows(a->session->context);
    size_t most = tacit_model_context_length(a->session->model);
    fflush(stdout);
    if (a->finish == TACIT_FINISH_CONTEXT && rows < most)
        tacit_log_warn("the context of %zu rows is full, which ended the answer; --context takes "
                       "up to %zu",
                       rows, most);
    else if (a->finish == TACIT_FINISH_CONTEXT)
        tacit_log_warn("the context of %zu rows, all that the model has, is full, which ended the "
                       "answer",
                       rows);
}

static tacit_status sample(cmd_answer *a, text_stream *stream, tacit_error *err)
{
    const tacit_tokenizer *tokenizer = tacit_model_tokenizer(a->session->model);
    tacit_context *c = a->session->context;
    size_t room = tacit_context_max_rows(c) - tacit_context_rows(c);
    tacit_status status = TACIT_OK;
    for (uint64_t i = 0; i < a->most; i++) {
        int32_t token = tacit_sampler_next(&a->sampler, tacit_context_logits(c));
        if (token < 0)
            return tacit_fail(err, TACIT_FAILED, TACIT_NOT_NUMBERS);
        a->finish = TACIT_FINISH_STOP;
        if (tacit_tokenizer_is_end(tokenizer, token))
            break;
        TACIT_TRY(add_token(a, stream, token, err), done);
        if (a->stopped)
            break;
        a->finish = i + 1 == a->most ? TACIT_FINISH_LENGTH : TACIT_FINISH_CONTEXT;
        if (i + 1 == a->most || i == room)
            break;
        TACIT_TRY(tacit_context_feed_token(c, token, err), done);
    }
done:
    return status;
}

tacit_status cmd_answer_generate(cmd_answer *a, tacit_error *err)
{
    text_stream stream = {.drop_space = a->drop_space};
    double start = tacit_clock_seconds();
    a->tokens.count = 0;
    a->text.size = a->seen = 0;
    a->stopped = false;
    tacit_status status = sample(a, &stream, err);
    if (status != TACIT_OK)
        return status;
    a->seconds = tacit_clock_seconds() - start;
    if (!a->stopped)
        status = said(text_stream_end(&stream, &a->text), err);
    show(a, a->text.size);
    if (a->shown)
        printf("\n");
    report_full(a);
    return status;
}

double cmd_answer_rate(size_t tokens, double seconds)
{
    return seconds > 0 ? (double)tokens / seconds : 0;
}
