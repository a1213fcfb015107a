/* Each answer is decoded greedily after its own prompt; then the reference conversation is fed for
 * the loss. A context keeps the rows that the next input shares with the last one, so several
 * questions about one picture read it once. */
#include "engine/evaluate.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/secret.h"
#include "engine/example.h"
#include "engine/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MAX_TOKENS 64
#define DEFAULT_CACHE ((size_t)64 << 20)
#define MAX_ANSWER ((size_t)1 << 20)

typedef struct evaluator {
    const tacit_model *model;
    tacit_evaluation_options options;
    tacit_evaluation *out;
    tacit_context *context;
    tacit_row_cache *cache;
    tacit_row *held; /* the rows in the context, and the digests of their media */
    uint8_t (*held_media)[32];
    size_t n_held, held_capacity;
    double record_loss, all_loss; /* sums */
    size_t all_tokens, scored_records;
    tacit_error *err;
} evaluator;

static bool same_row(const evaluator *e, size_t i, const tacit_input *in)
{
    const tacit_row *a = &e->held[i], *b = &in->row[i];
    if (a->modality != b->modality || a->token != b->token || a->position != b->position ||
        a->group != b->group || memcmp(a->shift, b->shift, sizeof a->shift) != 0)
        return false;
    return a->modality == TACIT_MODALITY_TOKEN ||
           memcmp(e->held_media[i], in->media[b->media].digest, sizeof e->held_media[i]) == 0;
}

static tacit_status remember(evaluator *e, const tacit_input *in, size_t from)
{
    if (in->count > e->held_capacity) {
        tacit_row *rows = realloc(e->held, in->count * sizeof *rows);
        if (rows)
            e->held = rows;
        uint8_t(*media)[32] = realloc(e->held_media, in->count * sizeof *media);
        if (media)
            e->held_media = media;
        if (!rows || !media)
            return tacit_fail(e->err, TACIT_NO_MEMORY, "no memory for %zu rows", in->count);
        e->held_capacity = in->count;
    }
    for (size_t i = from; i < in->count; i++) {
        e->held[i] = in->row[i];
        if (in->row[i].modality != TACIT_MODALITY_TOKEN)
            memcpy(e->held_media[i], in->media[in->row[i].media].digest, sizeof e->held_media[i]);
    }
    return TACIT_OK;
}

/* Leaves in the context the rows that `in` begins with too, but for the last row of `in`, whose
 * logits are wanted, and for rows from `limit` on. */
static size_t keep_shared(evaluator *e, const tacit_input *in, size_t limit)
{
    size_t shared = 0;
    while (shared < e->n_held && shared < limit && shared + 1 < in->count &&
           same_row(e, shared, in))
        shared++;
    while (shared > 0 && in->row[shared].group != 0 &&
           in->row[shared - 1].group == in->row[shared].group)
        shared--; /* a mask group is fed whole */
    e->n_held = tacit_context_truncate(e->context, shared);
    return e->n_held;
}

static tacit_status feed_prompt(evaluator *e, const tacit_input *in)
{
    size_t shared = keep_shared(e, in, in->count);
    tacit_status status = remember(e, in, shared);
    if (status == TACIT_OK)
        status = tacit_context_feed(e->context, in->row + shared, in->count - shared, in->media,
                                    in->n_media, e->err);
    if (status == TACIT_OK)
        e->n_held = in->count;
    return status;
}

static tacit_status not_numbers(tacit_error *err)
{
    return tacit_fail(err, TACIT_FAILED, TACIT_NOT_NUMBERS);
}

/* Decodes until an end token; the rows decoded are forgotten again. The last token may stand where
 * the context has no row for it. */
static tacit_status decode_answer(evaluator *e, tacit_buffer *answer, tacit_finish *why)
{
    const tacit_tokenizer *tokenizer = tacit_model_tokenizer(e->model);
    size_t vocab = tacit_model_vocab(e->model), rows = tacit_context_rows(e->context);
    size_t room = tacit_model_context_length(e->model) - rows;
    tacit_status status = TACIT_OK;
    double start = tacit_clock_seconds();
    *why = TACIT_FINISH_LENGTH;
    for (size_t i = 0; i < e->options.max_tokens && status == TACIT_OK; i++) {
        int32_t token = tacit_argmax(tacit_context_logits(e->context), vocab);
        if (token < 0)
            return not_numbers(e->err);
        e->out->decoded_tokens++;
        if (tacit_tokenizer_is_end(tokenizer, token)) {
            *why = TACIT_FINISH_STOP;
            break;
        }
        status = tacit_detokenize(tokenizer, token, false, answer, e->err);
        if (i + 1 == e->options.max_tokens)
            break;
        if (i == room) {
            *why = TACIT_FINISH_CONTEXT;
            break;
        }
        if (status == TACIT_OK)
            status = tacit_context_feed_token(e->context, token, e->err);
    }
    e->out->decode_seconds += tacit_clock_seconds() - start;
    e->n_held = tacit_context_truncate(e->context, rows);
    return status;
}

/* NaN where any logit is. */
static double negative_log_likelihood(const float *logits, size_t n, int32_t token)
{
    int32_t best = tacit_argmax(logits, n);
    double most = best < 0 ? NAN : logits[best], sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - most);
    return log(sum) - ((double)logits[token] - most);
}

typedef struct loss_sum {
    const evaluator *e;
    const tacit_row *row; /* the first one fed */
    size_t left;          /* rows after it */
    double sum;
    size_t tokens;
} loss_sum;

/* The logits of row i predict row i + 1. */
static tacit_status add_loss(void *ctx, size_t i, const float *logits)
{
    loss_sum *s = ctx;
    if (i >= s->left || !s->row[i + 1].trained)
        return TACIT_OK;
    s->sum += negative_log_likelihood(logits, tacit_model_vocab(s->e->model), s->row[i + 1].token);
    s->tokens++;
    return isfinite(s->sum) ? TACIT_OK : not_numbers(s->e->err);
}

static tacit_status score_loss(evaluator *e, const tacit_input *in)
{
    size_t first = 1;
    while (first < in->count && !in->row[first].trained)
        first++;
    size_t shared = keep_shared(e, in, first - 1);
    loss_sum s = {e, in->row + shared, in->count - shared - 1, 0, 0};
    tacit_status status = remember(e, in, shared);
    if (status == TACIT_OK)
        status = tacit_context_feed_all(e->context, in->row + shared, in->count - shared, in->media,
                                        in->n_media, add_loss, &s, e->err);
    if (status != TACIT_OK)
        return status;
    e->n_held = in->count;
    e->record_loss += s.tokens ? s.sum / (double)s.tokens : 0;
    e->all_loss += s.sum;
    e->all_tokens += s.tokens;
    e->scored_records++;
    return TACIT_OK;
}

static const char *trim(char *text)
{
    static const char space[] = " \t\r\n";
    size_t end = strlen(text);
    while (end > 0 && strchr(space, text[end - 1]))
        end--;
    text[end] = '\0';
    return text + strspn(text, space);
}

static tacit_status no_room(tacit_status status, tacit_error *err)
{
    return tacit_fail(err, status,
                      "no room for an answer: at most %zu bytes are kept; ask for fewer tokens",
                      MAX_ANSWER);
}

/* The reference answer: the texts of the turn side by side. */
static tacit_status reference_answer(const tacit_message *message, tacit_buffer *out,
                                     tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < message->n_content && status == TACIT_OK; i++)
        status =
            tacit_buffer_append(out, message->content[i].text, strlen(message->content[i].text));
    if (status == TACIT_OK)
        status = tacit_buffer_append(out, "", 1);
    return status == TACIT_OK ? status : no_room(status, err);
}

static tacit_evaluation_score *score_of_kind(tacit_evaluation *out, const char *id)
{
    size_t size = strcspn(id, ":");
    if (id[size] == '\0' || size == 0 || size >= sizeof out->kind[0].name)
        return NULL;
    for (size_t i = 0; i < out->n_kinds; i++)
        if (strlen(out->kind[i].name) == size && memcmp(out->kind[i].name, id, size) == 0)
            return &out->kind[i].score;
    if (out->n_kinds == TACIT_EVALUATION_KINDS)
        return NULL;
    memcpy(out->kind[out->n_kinds].name, id, size);
    return &out->kind[out->n_kinds++].score;
}

static void count_answer(evaluator *e, const tacit_record *record, char *reference, char *answer)
{
    const char *expected = trim(reference), *said = trim(answer);
    bool correct = strcmp(expected, said) == 0;
    tacit_evaluation_score *kind = score_of_kind(e->out, record->id);
    e->out->score.examples++;
    e->out->score.correct += correct;
    if (kind) {
        kind->examples++;
        kind->correct += correct;
    }
    if (e->options.heard)
        e->options.heard(e->options.ctx, record, expected, said, correct);
}

static tacit_status build_prompt(evaluator *e, const tacit_record *record, size_t turn,
                                 tacit_input *in)
{
    const tacit_example_options how = {.form = e->options.form};
    tacit_status status = tacit_example_prompt(in, e->model, record->message, turn, &how, e->err);
    if (status == TACIT_OK)
        status = tacit_adapter_prepend(e->options.adapter, e->model, in, e->err);
    return status == TACIT_OK ? tacit_row_cache_fill(e->cache, in, e->err) : status;
}

static tacit_status evaluate_turn(evaluator *e, const tacit_record *record, size_t turn)
{
    tacit_input in = {0};
    tacit_buffer reference = {.cap = MAX_ANSWER, .wiped = true};
    tacit_buffer answer = {.cap = MAX_ANSWER, .wiped = true};
    tacit_finish why;
    tacit_status status;
    TACIT_TRY(build_prompt(e, record, turn, &in), done);
    TACIT_TRY(reference_answer(&record->message[turn], &reference, e->err), done);
    TACIT_TRY(feed_prompt(e, &in), done);
    TACIT_TRY(decode_answer(e, &answer, &why), done);
    e->out->finished[why]++;
    status = tacit_buffer_append(&answer, "", 1);
    if (status != TACIT_OK)
        status = no_room(status, e->err);
    else
        count_answer(e, record, (char *)reference.data, (char *)answer.data);
done:
    tacit_buffer_free(&reference);
    tacit_buffer_free(&answer);
    tacit_input_free(&in);
    return status;
}

static tacit_status evaluate_record(evaluator *e, const tacit_record *record)
{
    const tacit_example_options how = {.form = e->options.form};
    tacit_input in = {0};
    tacit_status status;
    /* The whole conversation is built first: one that cannot be is left out entirely. */
    TACIT_TRY(tacit_example_build(&in, e->model, record, &how, e->err), done);
    TACIT_TRY(tacit_adapter_prepend(e->options.adapter, e->model, &in, e->err), done);
    TACIT_TRY(tacit_row_cache_fill(e->cache, &in, e->err), done);
    for (size_t i = 0; i < record->n_messages; i++)
        if (record->message[i].role == TACIT_ROLE_ASSISTANT)
            TACIT_TRY(evaluate_turn(e, record, i), done);
    status = score_loss(e, &in);
done:
    tacit_input_free(&in);
    return status;
}

static tacit_status evaluate_all(evaluator *e, const tacit_dataset *dataset)
{
    size_t limit = e->options.limit ? e->options.limit : dataset->count;
    for (size_t i = 0; i < dataset->count && i < limit; i++) {
        tacit_status status = evaluate_record(e, &dataset->record[i]);
        e->out->records += status == TACIT_OK;
        if (status == TACIT_OK)
            continue;
        bool of_the_record = status == TACIT_BAD_INPUT || status == TACIT_NOT_FOUND;
        if (e->options.strict || !of_the_record)
            return e->err ? tacit_fail_context(e->err, "%s:%zu", dataset->path,
                                               dataset->record[i].line)
                          : status;
        tacit_log_warn("%s:%zu: %s; record skipped", dataset->path, dataset->record[i].line,
                       e->err->message);
        e->out->skipped++;
    }
    if (e->out->records == 0)
        return tacit_fail(e->err, TACIT_BAD_INPUT, "%s: %s", dataset->path,
                          dataset->count + dataset->bad_lines == 0
                              ? "the file has no records"
                              : "no record could be evaluated, for the reasons above");
    e->out->loss = e->record_loss / (double)e->scored_records;
    e->out->perplexity = e->all_tokens ? exp(e->all_loss / (double)e->all_tokens) : 0;
    return TACIT_OK;
}

double tacit_evaluation_share(tacit_evaluation_score score)
{
    return score.examples ? (double)score.correct / (double)score.examples : 0;
}

tacit_status tacit_evaluate(tacit_evaluation *out, const tacit_model *model,
                            const tacit_dataset *dataset, const tacit_evaluation_options *options,
                            tacit_pool *pool, tacit_error *err)
{
    tacit_error own;
    tacit_row_cache *cache = NULL;
    evaluator e = {.model = model, .out = out, .err = err ? err : &own};
    tacit_context_spec spec = {.max_rows = 0};
    tacit_status status;
    *out = (tacit_evaluation){.skipped = dataset->bad_lines};
    if (options)
        e.options = *options;
    if (e.options.max_tokens == 0)
        e.options.max_tokens = DEFAULT_MAX_TOKENS;
    spec.precision = e.options.precision;
    e.cache = e.options.cache;
    if (!e.cache) {
        TACIT_TRY(tacit_row_cache_new(&cache, model, DEFAULT_CACHE, NULL, pool, e.err), done);
        tacit_row_cache_use(cache, e.options.precision);
        e.cache = cache;
    }
    TACIT_TRY(tacit_row_cache_bind(e.cache, e.options.adapter, e.err), done);
    TACIT_TRY(tacit_context_new(&e.context, model, &spec, pool, e.err), done);
    if (e.options.adapter)
        TACIT_TRY(tacit_context_bind(e.context, e.options.adapter, e.err), done);
    status = evaluate_all(&e, dataset);
done:
    tacit_context_free(e.context);
    tacit_row_cache_free(cache);
    tacit_wipe_free(e.held);
    free(e.held_media);
    return status;
}
