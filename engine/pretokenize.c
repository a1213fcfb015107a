#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/pretokenize.h"

#include "common/secret.h"
#include "common/text.h"
#include "engine/normal_form.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Words that break before a capital: capitals, then small letters; `tail` may end them. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PATTERN_CASED(tail, digits)                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER    \
    "*" tail "|\\p{N}" digits "| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*|[" SPACES                   \
    "]*[\\r\\n]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"

/* As qwen2's, but marks belong to letters. */
#define PATTERN_QWEN35                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACES        \
    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" SPACES "]*[\\r\\n]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES \
    "]+"

#define PATTERN_DEEPSEEK3                                                                          \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                      \
    "?[\\p{P}\\p{S}]+[\\r\\n]*|[" SPACES "]*[\\r\\n]+|[" SPACES "]+(?![^" SPACES "])|[" SPACES     \
    "]+"

/* deepseek-llm's letters: those with case as Unicode 11 had them, without some. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"         \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                       \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                 \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                 \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}"                 \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}"         \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"                           \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"                 \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"          \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                  \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"         \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}"                  \
    "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                 \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"                 \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"         \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

/* \s+$ in time that grows with the text, whatever it is. */
#define SPACES_AT_END "(?<![" SPACES "])[" SPACES "]++$"

enum { MOST_STAGES = 6 };

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
    {"pixtral", {PATTERN_LLAMA3("{1,3}")}, .ignore_merges = true, .adds_bos = true},
    {"lfm2", {PATTERN_LLAMA3("{1,3}")}, .ignore_merges = true, .adds_bos = true},
    {"tekken", {PATTERN_CASED("", "")}, .ignore_merges = true, .adds_bos = true},
    {"gpt-4o", {PATTERN_CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "{1,3}")}, .nfc = false},
    {"qwen2", {PATTERN_LLAMA3("")}, .nfc = true},
    {"deepseek-r1-qwen", {PATTERN_LLAMA3("")}, .nfc = true},
    {"qwen35", {PATTERN_QWEN35}, .nfc = false},
    {"megrez", {PATTERN_LLAMA3("")}, .nfc = false},
    {"starcoder", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"refact", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"command-r", {"\\p{N}", PATTERN_GPT2}, .nfc = true},
    {"codeshell", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"exaone", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"minerva-7b", {"\\p{N}", PATTERN_GPT2}, .nfc = false},
    {"phi-2", {PATTERN_GPT2}, .nfc = false},
    {"mpt", {PATTERN_GPT2}, .nfc = true},
    {"olmo", {PATTERN_GPT2}, .nfc = true},
    {"falcon", {"[\\p{P}$+<=>^~|`]+", PATTERN_GPT2, "[0-9][0-9][0-9]"}, .nfc = false},
    {"deepseek-coder",
     {"[\\r\\n]", "[" SPACES "]?\\p{L}+", "[" SPACES "]?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"},
     .nfc = false},
    {"deepseek-llm",
     {"[\\r\\n]", "[" SPACES "]?[" CASED_LETTERS "]+",
      "[" SPACES
      "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      SPACES_AT_END, "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"},
     .nfc = false},
    {"deepseek-v3",
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+", PATTERN_DEEPSEEK3},
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
    char known[512];
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

/* In normal form C where the rule wants that; the text is valid UTF-8. */
static tacit_status normalize_and_split(const run *r, const char *text, size_t size)
{
    char *composed;
    size_t n;
    if (!r->patterns->rule->nfc || !may_need_normalizing(text, size))
        return pass_on(r, 0, text, size);
    tacit_status status = normal_form_c(&composed, &n, text, size, r->err);
    if (status == TACIT_OK)
        status = pass_on(r, 0, composed, n);
    tacit_wipe_free(composed);
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
