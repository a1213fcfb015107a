/* `tacit bench`: tokens per second of prefill and decode, milliseconds of encoding media, and
 * memory. Beside figures by the clock stand those by the processor time of all threads, which other
 * programs on the machine disturb less. */
#include "common/clock.h"
#include "common/json_print.h"
#include "common/memory_limit.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/kernels.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef struct phase { /* seconds, the best of all repeats; 0 before the first */
    double clock, processor;
} phase;

typedef struct bench {
    cmd_session_options options;
    uint64_t prompt, decode, repeats, read_mib;
    bool json;
    cmd_session session;
    tacit_row *row;
    uint64_t *plain; /* [read_mib MiB] for the plain read */
    phase loading, prefill, decoding, reading, encoding;
    size_t frames;   /* that are encoded: tiles of pictures, clips, windows */
    size_t peak_rss; /* before the plain read takes memory */
} bench;

/* Tokens that jump about in the vocabulary, the same in every run. */
static int32_t token_at(const bench *b, uint64_t i)
{
    return (int32_t)((i * 7919 + 13) % tacit_model_vocab(b->session.model));
}

static phase now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (phase){tacit_clock_seconds(), (double)t.tv_sec + 1e-9 * (double)t.tv_nsec};
}

static double smaller(double best, double seconds)
{
    return best == 0 || seconds < best ? seconds : best;
}

static void keep_best(phase *best, phase start, phase end)
{
    best->clock = smaller(best->clock, end.clock - start.clock);
    best->processor = smaller(best->processor, end.processor - start.processor);
}

#define MIB ((size_t)1 << 20)

/* One MiB of a plain read, summed so that it is not left out. */
static void read_task(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const uint64_t *from = (const uint64_t *)ctx + i * (MIB / sizeof(uint64_t));
    uint64_t sum[4] = {0};
    for (size_t j = 0; j < MIB / sizeof *from; j += 16)
        for (size_t lane = 0; lane < 16; lane++)
            sum[lane % 4] += from[j + lane];
    volatile uint64_t kept = sum[0] + sum[1] + sum[2] + sum[3];
    (void)kept;
}

/* What a token would take if nothing but memory counted: as many bytes, by the same threads. */
static void measure_read(bench *b)
{
    if (!b->plain)
        return;
    phase start = now();
    tacit_pool_run(b->session.pool, (size_t)b->read_mib, read_task, b->plain);
    keep_best(&b->reading, start, now());
}

static tacit_status prepare_read(bench *b, tacit_error *err)
{
    if (b->read_mib == 0)
        return TACIT_OK;
    static const char what[] = "what is read for comparison", advice[] = "read less";
    size_t bytes = (size_t)b->read_mib * MIB, large = 2 * MIB;
    tacit_status status = tacit_memory_judge(bytes, what, advice, err);
    if (status != TACIT_OK)
        return status;
    b->plain = aligned_alloc(large, (bytes + large - 1) / large * large);
    if (!b->plain)
        return tacit_memory_fail(bytes, what, advice, err);
    /* As the weights have it. */
    (void)madvise(b->plain, bytes, MADV_HUGEPAGE);
    memset(b->plain, 1, bytes);
    return TACIT_OK;
}

/* Media as `run` takes them: read, cut, encoded. */
static tacit_status measure_media(bench *b, tacit_error *err)
{
    tacit_input in;
    if (cmd_session_media(&b->options) == 0)
        return TACIT_OK;
    phase start = now();
    tacit_status status = cmd_session_chat(&b->session, &b->options, "", &in, err);
    if (status != TACIT_OK)
        return status;
    keep_best(&b->encoding, start, now());
    b->frames = 0;
    for (size_t i = 0; i < in.n_media; i++)
        b->frames += in.media[i].modality == TACIT_MODALITY_IMAGE ? in.media[i].dim[0] / 3 : 1;
    tacit_input_free(&in);
    return TACIT_OK;
}

static tacit_status measure(bench *b, tacit_error *err)
{
    tacit_context *c = b->session.context;
    tacit_context_truncate(c, 0);
    phase start = now();
    tacit_status status = tacit_context_feed(c, b->row, (size_t)b->prompt, NULL, 0, err);
    phase middle = now();
    for (uint64_t i = 0; i < b->decode && status == TACIT_OK; i++)
        status = tacit_context_feed_token(c, token_at(b, i + b->prompt), err);
    keep_best(&b->prefill, start, middle);
    keep_best(&b->decoding, middle, now());
    measure_read(b);
    return status == TACIT_OK ? measure_media(b, err) : status;
}

static void print_rate(const char *what, uint64_t tokens, phase took)
{
    double n = (double)tokens;
    printf("%-9s %.1f tokens/s of %" PRIu64 "; a processor second: %.1f\n", what, n / took.clock,
           tokens, n / took.processor);
}

static void print_text(const bench *b)
{
    printf("%s, %s, %zu threads\n", kernels()->name, b->options.exact ? "exact" : "fast",
           tacit_pool_threads(b->session.pool));
    print_rate("prefill", b->prompt, b->prefill);
    print_rate("decode", b->decode, b->decoding);
    if (b->frames > 0)
        printf("encoding  %.1f ms, of processors %.1f ms, %zu frames\n", 1e3 * b->encoding.clock,
               1e3 * b->encoding.processor, b->frames);
    printf("load      %.3f s, of processors %.3f s\npeak RSS  %.1f MiB\n", b->loading.clock,
           b->loading.processor, (double)b->peak_rss / 1048576);
}

static tacit_status print(const bench *b, tacit_error *err)
{
    double prefill = (double)b->prompt / b->prefill.clock;
    double decode = (double)b->decode / b->decoding.clock;
    double prefill_cpu = (double)b->prompt / b->prefill.processor;
    double decode_cpu = (double)b->decode / b->decoding.processor;
    size_t threads = tacit_pool_threads(b->session.pool);
    if (!b->json) {
        print_text(b);
        return TACIT_OK;
    }
    json_t *object = json_pack(
        "{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:s, s:s, s:f, s:f, s:I, s:f, s:f, s:I, s:f, s:f}",
        "prefill_tokens_per_s", prefill, "decode_tokens_per_s", decode, "prefill_tokens_per_cpu_s",
        prefill_cpu, "decode_tokens_per_cpu_s", decode_cpu, "prompt_tokens", (json_int_t)b->prompt,
        "decode_tokens", (json_int_t)b->decode, "threads", (json_int_t)threads, "kernels",
        kernels()->name, "precision", b->options.exact ? "exact" : "fast", "load_seconds",
        b->loading.clock, "load_cpu_seconds", b->loading.processor, "peak_rss_bytes",
        (json_int_t)b->peak_rss, "read_seconds", b->reading.clock, "read_cpu_seconds",
        b->reading.processor, "frames", (json_int_t)b->frames, "encode_seconds", b->encoding.clock,
        "encode_cpu_seconds", b->encoding.processor);
    return tacit_json_print(object, TACIT_JSON_DIGITS, err);
}

static tacit_status run_all(bench *b, tacit_error *err)
{
    tacit_status status;
    media_form form;
    phase start = now();
    TACIT_TRY(media_form_choose(&form, b->options.form, err), done); /* before the model is read */
    TACIT_TRY(cmd_session_open(&b->session, &b->options, (size_t)(b->prompt + b->decode), err),
              done);
    keep_best(&b->loading, start, now());
    b->row = calloc((size_t)b->prompt, sizeof *b->row);
    if (!b->row)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu rows", (size_t)b->prompt);
    for (uint64_t i = 0; i < b->prompt; i++) {
        b->row[i].token = token_at(b, i);
        b->row[i].position = (uint32_t)i;
    }
    TACIT_TRY(measure(b, err), done);
    b->peak_rss = cmd_session_peak_rss();
    TACIT_TRY(prepare_read(b, err), done);
    for (uint64_t i = 1; i < b->repeats || (i == 1 && b->plain); i++)
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
        CMD_SESSION_FILE_ROWS(&b.options),
        CMD_FORM_ROW(&b.options.form),
        {"prompt", 'p', TACIT_OPTION_U64, &b.prompt, false, "N", "tokens of the prefill (128)", 1,
         1e6},
        {"decode", 'n', TACIT_OPTION_U64, &b.decode, false, "N", "tokens of the decode (32)", 1,
         1e6},
        {"repeats", 'r', TACIT_OPTION_U64, &b.repeats, false, "N", "the best counts (3)", 1, 1000},
        {"read", 0, TACIT_OPTION_U64, &b.read_mib, false, "MIB",
         "also measure a plain read of so much memory (shown with --json)", 1, 1e6},
        {"json", 0, TACIT_OPTION_FLAG, &b.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit bench", NULL, 0, 0,
                               "measures tokens per second, memory, encoding of media"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status != TACIT_OK || help)
        return status;
    status = run_all(&b, err);
    free(b.row);
    free(b.plain);
    cmd_session_close(&b.session);
    return status;
}
