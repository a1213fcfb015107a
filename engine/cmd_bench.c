/* `tacit bench`: tokens per second of prefill and decode, and memory. */
#include "common/clock.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/kernels.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct bench {
    cmd_session_options options;
    uint64_t prompt, decode, repeats;
    bool json;
    cmd_session session;
    tacit_row *row;
    double prefill_seconds, decode_seconds, load_seconds; /* the best of all repeats */
} bench;

/* Tokens that jump about in the vocabulary, the same in every run. */
static int32_t token_at(const bench *b, uint64_t i)
{
    return (int32_t)((i * 7919 + 13) % tacit_model_vocab(b->session.model));
}

static void keep_best(double *best, double seconds)
{
    if (*best == 0 || seconds < *best)
        *best = seconds;
}

static tacit_status measure(bench *b, tacit_error *err)
{
    tacit_context *c = b->session.context;
    tacit_context_truncate(c, 0);
    double start = tacit_clock_seconds();
    tacit_status status = tacit_context_feed(c, b->row, (size_t)b->prompt, NULL, 0, err);
    double middle = tacit_clock_seconds();
    for (uint64_t i = 0; i < b->decode && status == TACIT_OK; i++)
        status = tacit_context_feed_token(c, token_at(b, i + b->prompt), err);
    keep_best(&b->prefill_seconds, middle - start);
    keep_best(&b->decode_seconds, tacit_clock_seconds() - middle);
    return status;
}

static tacit_status print(const bench *b, tacit_error *err)
{
    double prefill = (double)b->prompt / b->prefill_seconds;
    double decode = (double)b->decode / b->decode_seconds;
    size_t threads = tacit_pool_threads(b->session.pool);
    if (!b->json) {
        printf("prefill %.1f tokens/s, decode %.1f tokens/s, %zu threads, %s, %s, load %.3f s, "
               "peak RSS %.1f MiB\n",
               prefill, decode, threads, kernels()->name, b->options.exact ? "exact" : "fast",
               b->load_seconds, (double)cmd_session_peak_rss() / 1048576);
        return TACIT_OK;
    }
    json_t *object =
        json_pack("{s:f, s:f, s:I, s:I, s:I, s:s, s:s, s:f, s:I}", "prefill_tokens_per_s", prefill,
                  "decode_tokens_per_s", decode, "prompt_tokens", (json_int_t)b->prompt,
                  "decode_tokens", (json_int_t)b->decode, "threads", (json_int_t)threads, "kernels",
                  kernels()->name, "precision", b->options.exact ? "exact" : "fast", "load_seconds",
                  b->load_seconds, "peak_rss_bytes", (json_int_t)cmd_session_peak_rss());
    int failed = !object || json_dumpf(object, stdout, JSON_COMPACT) != 0;
    json_decref(object);
    printf("\n");
    return failed ? tacit_fail(err, TACIT_FAILED, "cannot print the result") : TACIT_OK;
}

static tacit_status run_all(bench *b, tacit_error *err)
{
    tacit_status status;
    double start = tacit_clock_seconds();
    TACIT_TRY(cmd_session_open(&b->session, &b->options, (size_t)(b->prompt + b->decode), err),
              done);
    b->load_seconds = tacit_clock_seconds() - start;
    b->row = calloc((size_t)b->prompt, sizeof *b->row);
    if (!b->row)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu rows", (size_t)b->prompt);
    for (uint64_t i = 0; i < b->prompt; i++) {
        b->row[i].token = token_at(b, i);
        b->row[i].position = (uint32_t)i;
    }
    for (uint64_t i = 0; i < b->repeats; i++)
        TACIT_TRY(measure(b, err), done);
    status = print(b, err);
done:
    return status;
}

tacit_status cmd_bench(int argc, char **argv, tacit_error *err)
{
    bench b = {.prompt = 128, .decode = 32, .repeats = 3};
    bool help;
    const tacit_option table[] = {
        CMD_SESSION_ROWS(&b.options),
        {"prompt", 'p', TACIT_OPTION_U64, &b.prompt, false, "N", "tokens of the prefill (128)", 1,
         1e6},
        {"decode", 'n', TACIT_OPTION_U64, &b.decode, false, "N", "tokens of the decode (32)", 1,
         1e6},
        {"repeats", 'r', TACIT_OPTION_U64, &b.repeats, false, "N", "the best counts (3)", 1, 1000},
        {"json", 0, TACIT_OPTION_FLAG, &b.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit bench", NULL, 0, 0, "measures tokens per second and memory"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    status = run_all(&b, err);
    free(b.row);
    cmd_session_close(&b.session);
    return status;
}
