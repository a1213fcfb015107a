#include "privacy/canary_scores.h"

#include "common/text.h"
#include "privacy/budget.h"
#include "privacy/release.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "tacit-canary-scores"
#define VERSION 1

tacit_status tacit_canary_scores_new(tacit_canary_scores *out, size_t count, tacit_error *err)
{
    *out = (tacit_canary_scores){.count = count};
    if (count < 1 || count > TACIT_CANARIES_MAX)
        return tacit_fail(err, TACIT_USAGE, "canaries: expected 1 to %u, found %zu",
                          TACIT_CANARIES_MAX, count);
    out->included = calloc(count, sizeof *out->included);
    out->score = calloc(count, sizeof *out->score);
    if (out->included && out->score)
        return TACIT_OK;
    tacit_canary_scores_free(out);
    return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu canaries", count);
}

void tacit_canary_scores_free(tacit_canary_scores *s)
{
    free(s->included);
    free(s->score);
    *s = (tacit_canary_scores){.count = 0};
}

tacit_status tacit_canary_claim(double *epsilon, const tacit_mechanism *m, uint64_t values,
                                double delta, tacit_error *err)
{
    tacit_budget b;
    tacit_event event;
    tacit_status status = tacit_event_from_mechanism(&event, m, 1, err);
    if (status != TACIT_OK)
        return status;
    tacit_budget_open(&b, 1,
                      delta); /* one schedule: the cap, which fixes an order, plays no part */
    status = tacit_budget_add(&b, &event, values, true, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&b, epsilon, err);
    return status;
}

/* --- writing --- */

/* Takes `line` over, NULL included. */
static tacit_status append_line(tacit_buffer *out, json_t *line, tacit_error *err)
{
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    tacit_status status = TACIT_NO_MEMORY;
    json_decref(line);
    if (text) {
        size_t size = strlen(text);
        text[size] = '\n'; /* in the place of the NUL */
        status = tacit_buffer_append(out, text, size + 1);
        free(text);
    }
    return status == TACIT_OK ? TACIT_OK
                              : tacit_fail(err, status, "canary scores: no room to write them");
}

static json_t *head_of(const tacit_canary_scores *s)
{
    const tacit_mechanism *m = &s->mechanism;
    char reserve[2 * TACIT_DIGEST_BYTES + 1];
    tacit_hex(reserve, s->reserve, sizeof s->reserve);
    return json_pack(
        "{s:s, s:i, s:I, s:s, s:I, s:f, s:f, s:{s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:f, s:I}}",
        "format", FORMAT, "version", VERSION, "canaries", (json_int_t)s->count, "reserve", reserve,
        "values", (json_int_t)s->values, "delta", s->delta, "epsilon", s->epsilon, "mechanism",
        "kind", tacit_mechanism_kind_name(m->kind), "unit", tacit_privacy_unit_name(m->unit),
        "neighbours", tacit_neighbours_name(m->neighbours), "clip_norm", m->clip_norm, "b",
        (json_int_t)m->b, "q_num", (json_int_t)m->q_num, "steps", (json_int_t)m->steps, "divisor",
        m->divisor, "unit_examples", (json_int_t)m->unit_examples);
}

tacit_status tacit_canary_scores_write(tacit_buffer *out, const tacit_canary_scores *s,
                                       tacit_error *err)
{
    tacit_status status = append_line(out, head_of(s), err);
    for (size_t i = 0; i < s->count && status == TACIT_OK; i++) {
        if (!isfinite(s->score[i]))
            return tacit_fail(err, TACIT_USAGE, "canary %zu: its score is not finite", i);
        status = append_line(
            out, json_pack("{s:b, s:f}", "included", s->included[i], "score", s->score[i]), err);
    }
    return status;
}

/* --- reading --- */

typedef struct line_reader {
    const char *at;
    size_t left, line;
} line_reader;

static tacit_status next_line(line_reader *r, json_t **out, tacit_error *err)
{
    json_error_t why;
    const char *end = r->left ? memchr(r->at, '\n', r->left) : NULL;
    r->line++;
    if (!end)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "line %zu: expected one that ends in a newline, found %zu bytes", r->line,
                          r->left);
    size_t size = (size_t)(end - r->at);
    *out = json_loadb(r->at, size, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return tacit_fail(err, TACIT_BAD_INPUT, "line %zu: %s", r->line, why.text);
    r->at = end + 1;
    r->left -= size + 1;
    return TACIT_OK;
}

/* The head as it is read, before it is believed. */
typedef struct head {
    const char *format, *reserve, *kind, *unit, *neighbours;
    json_int_t version, canaries, values, b, q_num, steps, unit_examples;
    double delta, epsilon, clip_norm, divisor;
} head;

static tacit_status unpack_head(head *h, json_t *root, tacit_error *err)
{
    json_error_t why;
    int wrong = json_unpack_ex(
        root, &why, JSON_STRICT,
        "{s:s, s:I, s:I, s:s, s:I, s:F, s:F, s:{s:s, s:s, s:s, s:F, s:I, s:I, s:I, s:F, s:I}}",
        "format", &h->format, "version", &h->version, "canaries", &h->canaries, "reserve",
        &h->reserve, "values", &h->values, "delta", &h->delta, "epsilon", &h->epsilon, "mechanism",
        "kind", &h->kind, "unit", &h->unit, "neighbours", &h->neighbours, "clip_norm",
        &h->clip_norm, "b", &h->b, "q_num", &h->q_num, "steps", &h->steps, "divisor", &h->divisor,
        "unit_examples", &h->unit_examples);
    if (wrong)
        return tacit_fail(err, TACIT_BAD_INPUT, "line 1: %s", why.text);
    if (strcmp(h->format, FORMAT) != 0 || h->version != VERSION)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "line 1: expected format " FORMAT " version %d, found %s version %lld",
                          VERSION, h->format, (long long)h->version);
    return TACIT_OK;
}

static tacit_status check_range(const char *key, json_int_t v, json_int_t least, json_int_t most,
                                tacit_error *err)
{
    if (v >= least && v <= most)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "line 1: %s: expected %lld to %lld, found %lld", key,
                      (long long)least, (long long)most, (long long)v);
}

static tacit_status check_word(const char *key, const char *word, const char *expected,
                               tacit_error *err)
{
    if (strcmp(word, expected) == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "line 1: %s: expected %s, found '%s'", key, expected,
                      word);
}

static tacit_status take_mechanism(tacit_mechanism *m, const head *h, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(check_word("kind", h->kind, "subsampled_gaussian", err), out);
    TACIT_TRY(check_word("neighbours", h->neighbours, "add-remove", err), out);
    TACIT_TRY(check_range("b", h->b, 0, UINT32_MAX, err), out);
    TACIT_TRY(check_range("q_num", h->q_num, 0, TACIT_Q_ONE, err), out);
    TACIT_TRY(check_range("steps", h->steps, 0, UINT32_MAX, err), out);
    TACIT_TRY(check_range("unit_examples", h->unit_examples, 0, UINT32_MAX, err), out);
    *m = (tacit_mechanism){.kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN,
                           .unit = TACIT_UNIT_RECORD,
                           .neighbours = TACIT_ADD_REMOVE,
                           .clip_norm = h->clip_norm,
                           .b = (uint64_t)h->b,
                           .q_num = (uint64_t)h->q_num,
                           .steps = (uint32_t)h->steps,
                           .divisor = h->divisor,
                           .unit_examples = (uint32_t)h->unit_examples};
    while (m->unit <= TACIT_UNIT_DEVICE && strcmp(h->unit, tacit_privacy_unit_name(m->unit)) != 0)
        m->unit++;
    status = tacit_mechanism_validate(m, err);
    if (status == TACIT_OK && tacit_mechanism_releases_whole(m))
        status = tacit_fail(err, TACIT_BAD_INPUT, "unit: expected record or subject, found device");
    if (status != TACIT_OK)
        status = tacit_fail_context(err, "line 1");
out:
    return status;
}

static tacit_status take_head(tacit_canary_scores *s, const head *h, tacit_error *err)
{
    tacit_status status;
    double cost = 0;
    tacit_mechanism mechanism;
    TACIT_TRY(check_range("canaries", h->canaries, 1, TACIT_CANARIES_MAX, err), out);
    TACIT_TRY(check_range("values", h->values, h->canaries, UINT32_MAX, err), out);
    TACIT_TRY(take_mechanism(&mechanism, h, err), out);
    if (!(h->delta > 0 && h->delta < 1) || !(h->epsilon >= 0))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "line 1: expected delta between 0 and 1 and epsilon at least 0, found %g "
                          "and %g",
                          h->delta, h->epsilon);
    TACIT_TRY(tacit_canary_claim(&cost, &mechanism, (uint64_t)h->values, h->delta, err), out);
    if (!tacit_budget_same(cost, h->epsilon))
        return tacit_fail(err, TACIT_INTEGRITY,
                          "line 1: it claims epsilon %.10g, its mechanism costs %.10g at delta %g: "
                          "the claim was not made by this accountant, or the file was changed",
                          h->epsilon, cost, h->delta);
    TACIT_TRY(tacit_canary_scores_new(s, (size_t)h->canaries, err), out);
    s->mechanism = mechanism;
    s->values = (uint64_t)h->values;
    s->delta = h->delta;
    s->epsilon = h->epsilon;
    if (!tacit_unhex(s->reserve, sizeof s->reserve, h->reserve))
        status = tacit_fail(err, TACIT_BAD_INPUT, "line 1: reserve: expected %d hex digits",
                            2 * TACIT_DIGEST_BYTES);
out:
    return status;
}

static tacit_status read_head(tacit_canary_scores *s, line_reader *r, tacit_error *err)
{
    json_t *root = NULL;
    head h;
    tacit_status status = next_line(r, &root, err);
    if (status == TACIT_OK)
        status = unpack_head(&h, root, err);
    if (status == TACIT_OK)
        status = take_head(s, &h, err);
    json_decref(root);
    return status;
}

static tacit_status read_canary(tacit_canary_scores *s, size_t i, line_reader *r, tacit_error *err)
{
    json_t *root = NULL;
    json_error_t why;
    int included = 0;
    tacit_status status = next_line(r, &root, err);
    if (status == TACIT_OK && json_unpack_ex(root, &why, JSON_STRICT, "{s:b, s:F}", "included",
                                             &included, "score", &s->score[i]) != 0)
        status = tacit_fail(err, TACIT_BAD_INPUT, "line %zu: %s", r->line, why.text);
    s->included[i] = included != 0;
    json_decref(root);
    return status;
}

tacit_status tacit_canary_scores_read(tacit_canary_scores *out, const void *bytes, size_t size,
                                      tacit_error *err)
{
    line_reader r = {.at = bytes, .left = size};
    *out = (tacit_canary_scores){.count = 0};
    if (size > TACIT_CANARY_FILE_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "expected at most %zu bytes, found %zu",
                          TACIT_CANARY_FILE_MAX, size);
    tacit_status status = read_head(out, &r, err);
    for (size_t i = 0; i < out->count && status == TACIT_OK; i++)
        status = read_canary(out, i, &r, err);
    if (status == TACIT_OK && r.left)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "line %zu: expected the end after %zu canaries, found %zu more bytes",
                            r.line + 1, out->count, r.left);
    if (status != TACIT_OK)
        tacit_canary_scores_free(out);
    return status;
}
