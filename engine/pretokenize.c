#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/pretokenize.h"

#include "common/text.h"

#include <pcre2.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The White_Space property; PCRE2's own \s has one character more (U+180E). */
#define SPACES                                                                                     \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"                \
    "\\x{205f}\\x{3000}"

#define PATTERN_GPT2                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|[" SPACES            \
    "]+(?![^" SPACES "])|[" SPACES "]+"

/* `digits` is how many of a number stay together. */
#define PATTERN_LLAMA3(digits)                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^" SPACES      \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACES "]*[\\r\\n]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"

enum { MOST_STAGES = 5 };

/* Each pattern splits the pieces of the one before. */
static const struct rule {
    const char *name;
    const char *pattern[MOST_STAGES];
    bool ignore_merges; /* a piece that is a token is not put together from smaller ones */
    bool adds_bos;
    bool nfc; /* the model's own tokenizer normalizes text; llama.cpp does not */
} rules[] = {
    {"gpt-2", {PATTERN_GPT2}, .nfc = false},
    {"smollm", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"llama-bpe", {PATTERN_LLAMA3("{1,3}")}, .ignore_merges = true, .adds_bos = true},
    {"llama3", {PATTERN_LLAMA3("{1,3}")}, .ignore_merges = true, .adds_bos = true},
    {"llama-v3", {PATTERN_LLAMA3("{1,3}")}, .ignore_merges = true, .adds_bos = true},
    {"falcon3", {PATTERN_LLAMA3("{1,3}")}, .ignore_merges = true, .adds_bos = true},
    {"qwen2", {PATTERN_LLAMA3("")}, .nfc = true},
    {"deepseek-r1-qwen", {PATTERN_LLAMA3("")}, .nfc = true},
    {"megrez", {PATTERN_LLAMA3("")}, .nfc = false},
    {"starcoder", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"refact", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"command-r", {"\\p{N}", PATTERN_GPT2}, .nfc = true},
    {"codeshell", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"exaone", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"minerva-7b", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"mpt", {PATTERN_GPT2}, .nfc = true},
    {"falcon", {"[\\p{P}$+<=>^~|`]+", PATTERN_GPT2, "[0-9][0-9][0-9]"}, .nfc = false},
    {"deepseek-coder",
     {"[\\r\\n]", "[" SPACES "]?\\p{L}+", "[" SPACES "]?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"},
     .nfc = false},
    {"default", {"[\\p{P}$+<=>^~|]+", PATTERN_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, .nfc = false},
};

/* No pattern of the table backtracks by more than one step a character of the text; the limit only
 * stops what a later row might do to hostile text. */
enum { MATCH_LIMIT = 1000000, MATCH_LIMIT_PER_BYTE = 4, HEAP_LIMIT_KIB = 64 * 1024 };

struct pretokenizer {
    const struct rule *rule;
    pcre2_code *code[MOST_STAGES];
    size_t stages;
};

/* What one call needs beside the shared patterns. */
typedef struct run {
    const pretokenizer *patterns;
    pcre2_match_data *match[MOST_STAGES];
    pcre2_match_context *limits;
    tacit_status (*piece)(void *ctx, const char *text, size_t size);
    void *ctx;
    tacit_error *err;
} run;

static const struct rule *find_rule(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strlen(rules[i].name) == size && memcmp(rules[i].name, name, size) == 0)
            return &rules[i];
    return NULL;
}

static tacit_status fail_unknown(const char *name, size_t size, tacit_error *err)
{
    char known[384];
    size_t used = 0;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 rules[i].name);
    return tacit_fail(err, TACIT_BAD_INPUT, "pre-tokenizer '%.*s' is not supported (supported: %s)",
                      (int)(size < 64 ? size : 64), name, known);
}

static tacit_status compile(pcre2_code **out, const char *pattern, tacit_error *err)
{
    int code;
    size_t at;
    *out = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (!*out)
        return tacit_fail(err, TACIT_FAILED, "pre-tokenizer pattern: PCRE2 error %d at %zu", code,
                          at);
    /* Without memory that may be executed PCRE2 interprets: slower, the same matches. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return TACIT_OK;
}

tacit_status pretokenizer_new(pretokenizer **out, const char *name, size_t size, tacit_error *err)
{
    *out = NULL;
    const struct rule *rule = find_rule(name, size);
    if (!rule)
        return fail_unknown(name, size, err);
    pretokenizer *p = calloc(1, sizeof *p);
    if (!p)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a pre-tokenizer");
    p->rule = rule;
    while (p->stages < MOST_STAGES && rule->pattern[p->stages]) {
        tacit_status status = compile(&p->code[p->stages], rule->pattern[p->stages], err);
        if (status != TACIT_OK) {
            pretokenizer_free(p);
            return status;
        }
        p->stages++;
    }
    *out = p;
    return TACIT_OK;
}

void pretokenizer_free(pretokenizer *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < MOST_STAGES; i++)
        pcre2_code_free(p->code[i]);
    free(p);
}

bool pretokenizer_ignores_merges(const pretokenizer *p)
{
    return p->rule->ignore_merges;
}

bool pretokenizer_adds_bos(const pretokenizer *p)
{
    return p->rule->adds_bos;
}

/* The first match at or after `from`; *begin == size when there is none. */
static tacit_status next_match(const run *r, size_t stage, const char *text, size_t size,
                               size_t from, size_t *begin, size_t *end)
{
    pcre2_match_data *match = r->match[stage];
    int code = pcre2_match(r->patterns->code[stage], (PCRE2_SPTR)text, size, from,
                           PCRE2_NO_UTF_CHECK, match, r->limits);
    *begin = *end = size;
    if (code == PCRE2_ERROR_NOMATCH)
        return TACIT_OK;
    if (code < 0)
        return tacit_fail(r->err, TACIT_FAILED, "cannot split the text into pieces: PCRE2 error %d",
                          code);
    const size_t *bounds = pcre2_get_ovector_pointer(match);
    *begin = bounds[0];
    *end = bounds[1];
    return TACIT_OK;
}

static tacit_status split(const run *r, size_t stage, const char *text, size_t size);

/* NOLINTBEGIN(misc-no-recursion): as deep as the table of patterns is wide, whatever the text */
static tacit_status pass_on(const run *r, size_t stage, const char *text, size_t size)
{
    if (size == 0)
        return TACIT_OK;
    return stage == r->patterns->stages ? r->piece(r->ctx, text, size)
                                        : split(r, stage, text, size);
}

/* Matches and what lies between them go to the next stage. */
static tacit_status split(const run *r, size_t stage, const char *text, size_t size)
{
    size_t begin, end;
    tacit_status status = TACIT_OK;
    for (size_t at = 0; at < size && status == TACIT_OK; at = end) {
        status = next_match(r, stage, text, size, at, &begin, &end);
        if (status == TACIT_OK)
            status = pass_on(r, stage + 1, text + at, begin - at);
        if (status == TACIT_OK)
            status = pass_on(r, stage + 1, text + begin, end - begin);
    }
    return status;
}
/* NOLINTEND(misc-no-recursion) */

/* Bytes of the character at `text`, or 0 when it is no UTF-8. */
static size_t character_size(const char *text, size_t size)
{
    uint8_t lead = (uint8_t)*text;
    size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return n <= size && tacit_utf8_valid((const uint8_t *)text, n) ? n : 0;
}

/* No character below U+0300 is changed or combines; their first bytes are below 0xcc. */
static bool may_need_normalizing(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)text[i] >= 0xcc)
            return true;
    return false;
}

/* Normal form C (Unicode Standard Annex 15) of valid UTF-8. */
static tacit_status normalize_and_split(const run *r, const char *text, size_t size)
{
    utf8proc_uint8_t *composed = NULL;
    if (!r->patterns->rule->nfc || !may_need_normalizing(text, size))
        return pass_on(r, 0, text, size);
    utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size, &composed,
                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    tacit_status status;
    if (n >= 0)
        status = pass_on(r, 0, (const char *)composed, (size_t)n);
    else if (n == UTF8PROC_ERROR_NOMEM)
        status = tacit_fail(r->err, TACIT_NO_MEMORY, "no memory to normalize a text");
    else
        status =
            tacit_fail(r->err, TACIT_FAILED, "cannot normalize the text: %s", utf8proc_errmsg(n));
    if (n > 0)
        sodium_memzero(composed, (size_t)n);
    free(composed);
    return status;
}

/* Patterns see valid UTF-8 only, so that PCRE2 need not check it again at every match; bytes that
 * are none form pieces of their own. */
static tacit_status split_valid_runs(const run *r, const char *text, size_t size)
{
    tacit_status status = TACIT_OK;
    for (size_t at = 0, begin = 0; at < size && status == TACIT_OK; begin = at) {
        size_t n;
        while (at < size && (n = character_size(text + at, size - at)) > 0)
            at += n;
        status = normalize_and_split(r, text + begin, at - begin);
        for (begin = at; at < size && character_size(text + at, size - at) == 0;)
            at++;
        if (status == TACIT_OK && at > begin)
            status = r->piece(r->ctx, text + begin, at - begin);
    }
    return status;
}

static uint32_t match_limit(size_t size)
{
    size_t most = (UINT32_MAX - MATCH_LIMIT) / MATCH_LIMIT_PER_BYTE;
    return MATCH_LIMIT + MATCH_LIMIT_PER_BYTE * (uint32_t)(size < most ? size : most);
}

static bool run_init(run *r, size_t size)
{
    r->limits = pcre2_match_context_create(NULL);
    bool ok = r->limits != NULL;
    for (size_t i = 0; i < r->patterns->stages; i++) {
        r->match[i] = pcre2_match_data_create(1, NULL);
        ok = ok && r->match[i];
    }
    if (ok) {
        pcre2_set_match_limit(r->limits, match_limit(size));
        pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    }
    return ok;
}

static void run_fini(run *r)
{
    for (size_t i = 0; i < MOST_STAGES; i++)
        pcre2_match_data_free(r->match[i]);
    pcre2_match_context_free(r->limits);
}

tacit_status pretokenizer_run(const pretokenizer *p, const char *text, size_t size,
                              tacit_status (*piece)(void *ctx, const char *text, size_t size),
                              void *ctx, tacit_error *err)
{
    run r = {.patterns = p, .piece = piece, .ctx = ctx, .err = err};
    tacit_status status = run_init(&r, size)
                              ? split_valid_runs(&r, text, size)
                              : tacit_fail(err, TACIT_NO_MEMORY, "no memory to split a text");
    run_fini(&r);
    return status;
}
