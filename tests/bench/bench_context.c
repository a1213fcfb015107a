/* How far keys and values in F16 and INT8, and integer products, move the next token's distribution
 * with a long text before it: the mean Kullback-Leibler divergence (nats) from fp32 throughout, and
 * the share of positions with the same most likely token. The same words are asked for each time,
 * the last TARGETS of the text's ROWS, behind more and more of the text before them: so what
 * differs between lines is the length of the context and not what is said.
 *
 * usage: bench_context MODEL.gguf TEXT ROWS [THREADS] */
#include "engine/context.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 128 /* rows of one feed: what comes out does not depend on it */
#define TARGETS 256
#define WAYS 5 /* below */

typedef struct way {
    const char *name;
    tacit_context_spec spec;
} way;

static const way ways[WAYS] = {
    {"exact, kv f16", {.precision = TACIT_EXACT, .kv = TACIT_KV_F16}},
    {"exact, kv int8", {.precision = TACIT_EXACT, .kv = TACIT_KV_INT8}},
    {"fast, kv f32", {.precision = TACIT_FAST, .kv = TACIT_KV_F32}},
    {"fast, kv f16", {.precision = TACIT_FAST, .kv = TACIT_KV_F16}},
    {"fast, kv int8", {.precision = TACIT_FAST, .kv = TACIT_KV_INT8}},
};

typedef struct score {
    double divergence;
    size_t same, count;
} score;

typedef struct bench {
    tacit_model *model;
    tacit_pool *pool;
    tacit_context *reference, *other[WAYS];
    size_t vocab;
    float *expected; /* [STEP, vocab] */
    score sum[WAYS];
    size_t at; /* which way is compared */
} bench;

static tacit_status keep(void *ctx, size_t row, const float *logits)
{
    bench *b = ctx;
    memcpy(b->expected + row * b->vocab, logits, b->vocab * sizeof *logits);
    return TACIT_OK;
}

static double log_total(const float *x, size_t n, size_t *most)
{
    double total = 0;
    *most = 0;
    for (size_t i = 1; i < n; i++)
        *most = x[i] > x[*most] ? i : *most;
    for (size_t i = 0; i < n; i++)
        total += exp((double)x[i] - x[*most]);
    return log(total) + x[*most];
}

static tacit_status compare(void *ctx, size_t row, const float *logits)
{
    bench *b = ctx;
    const float *p = b->expected + row * b->vocab;
    size_t best, other;
    double log_p = log_total(p, b->vocab, &best), log_q = log_total(logits, b->vocab, &other);
    double sum = 0;
    for (size_t i = 0; i < b->vocab; i++)
        sum += exp(p[i] - log_p) * ((p[i] - log_p) - (logits[i] - log_q));
    score *s = &b->sum[b->at];
    s->divergence += sum;
    s->same += best == other;
    s->count++;
    return TACIT_OK;
}

static void print_sums(bench *b, size_t before)
{
    for (size_t i = 0; i < WAYS; i++) {
        score *s = &b->sum[i];
        printf("%-15s behind %5zu tokens: KL %.3e, same token %.2f %%\n", ways[i].name, before,
               s->divergence / (double)s->count, 100.0 * (double)s->same / (double)s->count);
        *s = (score){0};
    }
    fflush(stdout);
}

/* Rows of the text before the targets are fed alone, targets are compared. */
static tacit_status step(bench *b, const tacit_row *row, size_t n, bool target, tacit_error *err)
{
    tacit_status status = target
                              ? tacit_context_feed_all(b->reference, row, n, NULL, 0, keep, b, err)
                              : tacit_context_feed(b->reference, row, n, NULL, 0, err);
    for (size_t i = 0; i < WAYS && status == TACIT_OK; i++) {
        b->at = i;
        status = target ? tacit_context_feed_all(b->other[i], row, n, NULL, 0, compare, b, err)
                        : tacit_context_feed(b->other[i], row, n, NULL, 0, err);
    }
    return status;
}

static tacit_status open_contexts(bench *b, size_t rows, tacit_error *err)
{
    tacit_context_spec spec = {.precision = TACIT_EXACT, .max_rows = rows, .chunk = STEP};
    tacit_status status = tacit_context_new(&b->reference, b->model, &spec, b->pool, err);
    for (size_t i = 0; i < WAYS && status == TACIT_OK; i++) {
        spec = ways[i].spec;
        spec.max_rows = rows;
        spec.chunk = STEP;
        status = tacit_context_new(&b->other[i], b->model, &spec, b->pool, err);
    }
    b->vocab = tacit_model_vocab(b->model);
    b->expected = malloc(STEP * b->vocab * sizeof *b->expected);
    return b->expected ? status : tacit_fail(err, TACIT_NO_MEMORY, "no memory for logits");
}

/* The targets behind `before` tokens. */
static tacit_status run(bench *b, const int32_t *token, size_t before, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    size_t rows = before + TARGETS;
    tacit_context_truncate(b->reference, 0);
    for (size_t i = 0; i < WAYS; i++)
        tacit_context_truncate(b->other[i], 0);
    for (size_t at = 0; at < rows && status == TACIT_OK; at += STEP) {
        tacit_row row[STEP] = {0};
        for (size_t i = 0; i < STEP; i++)
            row[i] = (tacit_row){.token = token[at + i], .position = (uint32_t)(at + i)};
        status = step(b, row, STEP, at >= before, err);
    }
    if (status == TACIT_OK)
        print_sums(b, before);
    return status;
}

/* Behind 256, 768, 1792, ... tokens, so that contexts end at powers of two. */
static tacit_status run_all(bench *b, const tacit_tokens *tokens, size_t rows, tacit_error *err)
{
    tacit_status status = open_contexts(b, rows, err);
    for (size_t all = 2 * TARGETS; all <= rows && status == TACIT_OK; all *= 2)
        status = run(b, tokens->id + rows - all, all - TARGETS, err);
    return status;
}

static tacit_status read_tokens(bench *b, const char *path, tacit_tokens *out, tacit_error *err)
{
    FILE *f = fopen(path, "re");
    char *text = malloc(1 << 20);
    size_t n = f && text ? fread(text, 1, 1 << 20, f) : 0;
    tacit_status status = tacit_tokenize(tacit_model_tokenizer(b->model), text, n, false, out, err);
    free(text);
    if (f)
        fclose(f);
    return status;
}

int main(int argc, char **argv)
{
    bench b = {0};
    tacit_tokens tokens = {0};
    tacit_error err = {0};
    if (argc < 4) {
        fputs("usage: bench_context MODEL.gguf TEXT ROWS [THREADS]\n", stderr);
        return 2;
    }
    size_t rows = strtoul(argv[3], NULL, 10), threads = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
    tacit_status status;
    TACIT_TRY(tacit_model_load(&b.model, argv[1], NULL, 0, NULL, &err), done);
    TACIT_TRY(tacit_pool_new(&b.pool, threads, &err), done);
    TACIT_TRY(read_tokens(&b, argv[2], &tokens, &err), done);
    if (tokens.count < rows) {
        status = tacit_fail(&err, TACIT_BAD_INPUT, "%s has %zu tokens: expected %zu", argv[2],
                            tokens.count, rows);
        goto done;
    }
    TACIT_TRY(run_all(&b, &tokens, rows, &err), done);
done:
    if (status != TACIT_OK)
        fprintf(stderr, "%s\n", err.message);
    tacit_context_free(b.reference);
    for (size_t i = 0; i < WAYS; i++)
        tacit_context_free(b.other[i]);
    free(b.expected);
    tacit_tokens_free(&tokens);
    tacit_pool_free(b.pool);
    tacit_model_free(b.model);
    return status == TACIT_OK ? 0 : 1;
}
