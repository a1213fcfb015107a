#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "engine/tokenizer.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN TACIT_SOURCE_DIR "/tests/golden/tokenizer/"

typedef struct loaded {
    gguf_file *file;
    tacit_tokenizer *tokenizer;
} loaded;

static loaded load(const char *name)
{
    char path[512];
    loaded l;
    tacit_error err;
    snprintf(path, sizeof path, GOLDEN "%s.gguf", name);
    if (gguf_open(&l.file, path, &err) || tacit_tokenizer_load(&l.tokenizer, l.file, &err))
        fail_msg("%s", err.message);
    return l;
}

static void unload(loaded *l)
{
    tacit_tokenizer_free(l->tokenizer);
    gguf_close(l->file);
}

static int64_t original_id(const gguf_file *file, int32_t id)
{
    if (!gguf_has_key(file, "test.original_id"))
        return id;
    return (int64_t)gguf_array_number(file, "test.original_id", (size_t)id);
}

static void check_ids(const loaded *l, const char *name, size_t text, const json_t *expected,
                      const tacit_tokens *tokens)
{
    bool same = tokens->count == json_array_size(expected);
    for (size_t i = 0; same && i < tokens->count; i++)
        same =
            original_id(l->file, tokens->id[i]) == json_integer_value(json_array_get(expected, i));
    if (same)
        return;
    for (size_t i = 0; i < tokens->count || i < json_array_size(expected); i++)
        print_message("%zu: found %lld expected %lld\n", i,
                      i < tokens->count ? (long long)original_id(l->file, tokens->id[i]) : -1,
                      (long long)json_integer_value(json_array_get(expected, i)));
    fail_msg("%s: text %zu differs", name, text);
}

/* Goldens are what the Python package `tokenizers` makes of the same vocabularies. */
static void check_goldens(const char *name, const char *file, size_t least)
{
    loaded l = load(name);
    tacit_error err;
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", file);
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(golden);
    const json_t *texts = json_object_get(golden, "texts");
    const json_t *expected = json_object_get(golden, name);
    assert_true(json_array_size(texts) > 80);
    size_t compared = 0;
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        for (int special = 0; special < 2; special++) {
            tacit_tokens tokens = {0};
            const json_t *all = json_object_get(expected, special ? "special" : "plain");
            if (!json_is_array(json_array_get(all, i)))
                continue;
            compared++;
            assert_int_equal(tacit_tokenize(l.tokenizer, json_string_value(text),
                                            json_string_length(text), special, &tokens, &err),
                             TACIT_OK);
            check_ids(&l, name, i, json_array_get(all, i), &tokens);
            tacit_tokens_free(&tokens);
        }
    }
    assert_true(compared >= least);
    json_decref(golden);
    unload(&l);
}

static void test_small_gpt2_vocabulary(void **state)
{
    (void)state;
    check_goldens("small_gpt2", "tokens.json", 160);
}

static void test_small_smollm_vocabulary(void **state)
{
    (void)state;
    check_goldens("small_smollm", "tokens.json", 160);
}

static void test_part_of_smollm2(void **state)
{
    (void)state;
    check_goldens("smollm2_part", "tokens.json", 160);
}

static void test_small_llama3_vocabulary(void **state)
{
    (void)state;
    check_goldens("small_llama3", "tokens_more.json", 160);
}

static void test_small_qwen2_vocabulary(void **state)
{
    (void)state;
    check_goldens("small_qwen2", "tokens_more.json", 160);
}

/* Goldens are what SentencePiece itself makes of a vocabulary that it trained. */
static void test_small_sentencepiece_vocabulary(void **state)
{
    (void)state;
    check_goldens("small_spm", "tokens_more.json", 80);
}

/* Any bytes come back, whether they are UTF-8 or not, and never as a control token. */
static void check_round_trip(const tacit_tokenizer *t, const char *text, size_t size)
{
    tacit_error err;
    tacit_tokens tokens = {0};
    tacit_buffer back = {0};
    assert_int_equal(tacit_tokenize(t, text, size, false, &tokens, &err), TACIT_OK);
    for (size_t i = 0; i < tokens.count; i++) {
        assert_false(tacit_tokenizer_is_end(t, tokens.id[i]));
        assert_int_equal(tacit_detokenize(t, tokens.id[i], false, &back, &err), TACIT_OK);
    }
    assert_int_equal(back.size, size);
    if (size)
        assert_memory_equal(back.data, text, size);
    tacit_buffer_free(&back);
    tacit_tokens_free(&tokens);
}

static void test_any_bytes_round_trip(void **state)
{
    (void)state;
    static const char *const odd[] = {"\xff\xfe",
                                      "a\xc3",
                                      "\xe2\x82 x",
                                      "\xed\xa0\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xc0\xaf",
                                      "  \x80  12\xbf"
                                      "3 <|im_end|>"};
    loaded l = load("small_smollm");
    char bytes[200];
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        check_round_trip(l.tokenizer, odd[i], strlen(odd[i]));
    srand(3);
    for (int trial = 0; trial < 300; trial++) {
        size_t size = (size_t)rand() % sizeof bytes;
        for (size_t i = 0; i < size; i++)
            bytes[i] = (char)(rand() % (trial % 2 ? 256 : 128));
        check_round_trip(l.tokenizer, bytes, size);
    }
    unload(&l);
}

static void test_control_tokens_come_only_when_asked_for(void **state)
{
    (void)state;
    loaded l = load("small_gpt2");
    tacit_error err;
    tacit_tokens tokens = {0};
    tacit_buffer text = {0};
    int32_t end = tacit_tokenizer_find(l.tokenizer, "<|im_end|>");
    assert_true(end >= 0);
    assert_int_equal(tacit_tokenizer_find(l.tokenizer, "<|im_en"), -1);
    assert_int_equal(tacit_tokenizer_eos(l.tokenizer), end);
    assert_int_equal(tacit_tokenizer_bos(l.tokenizer), -1); /* add_bos_token is false */
    assert_true(tacit_tokenizer_is_end(l.tokenizer, end));
    assert_false(tacit_tokenizer_is_end(l.tokenizer, -1));
    assert_false(tacit_tokenizer_is_end(l.tokenizer, INT32_MAX));
    assert_null(tacit_tokenizer_chat_template(l.tokenizer));
    assert_int_equal(tacit_tokenize(l.tokenizer, "a<|im_end|>", 11, true, &tokens, &err), TACIT_OK);
    assert_int_equal(tokens.count, 2);
    assert_int_equal(tokens.id[1], end);
    assert_int_equal(tacit_detokenize(l.tokenizer, end, false, &text, &err), TACIT_OK);
    assert_int_equal(text.size, 0);
    assert_int_equal(tacit_detokenize(l.tokenizer, end, true, &text, &err), TACIT_OK);
    assert_int_equal(text.size, 10);
    assert_int_equal(tacit_detokenize(l.tokenizer, INT32_MAX, true, &text, &err), TACIT_BAD_INPUT);
    assert_int_equal(tacit_detokenize(l.tokenizer, -1, true, &text, &err), TACIT_BAD_INPUT);
    tacit_buffer_free(&text);
    tacit_tokens_free(&tokens);
    unload(&l);
}

/* Merging by the definition: find the lowest rank, leftmost, merge, begin anew. */
static size_t merge_naively(const tacit_tokenizer *t, const gguf_file *file, int32_t *symbol,
                            size_t count)
{
    size_t merges;
    tacit_error err;
    assert_int_equal(gguf_get_array(file, "tokenizer.ggml.merges", GGUF_STRING, &merges, &err), 0);
    for (size_t rank = 0; rank < merges;) {
        gguf_string m = gguf_array_string(file, "tokenizer.ggml.merges", rank);
        char text[256];
        size_t i, left = (size_t)((char *)memchr(m.data + 1, ' ', m.size - 1) - m.data);
        snprintf(text, sizeof text, "%.*s", (int)left, m.data);
        int32_t l = tacit_tokenizer_find(t, text);
        snprintf(text, sizeof text, "%.*s", (int)(m.size - left - 1), m.data + left + 1);
        int32_t r = tacit_tokenizer_find(t, text);
        snprintf(text, sizeof text, "%.*s%.*s", (int)left, m.data, (int)(m.size - left - 1),
                 m.data + left + 1);
        for (i = 0; i + 1 < count && (symbol[i] != l || symbol[i + 1] != r); i++)
            ;
        if (i + 1 >= count) {
            rank++;
            continue;
        }
        symbol[i] = tacit_tokenizer_find(t, text);
        memmove(symbol + i + 1, symbol + i + 2, (count - i - 2) * sizeof *symbol);
        count--;
        rank = 0;
    }
    return count;
}

static void test_merging_agrees_with_its_definition(void **state)
{
    (void)state;
    loaded l = load("small_gpt2");
    tacit_error err;
    char text[64];
    srand(11);
    for (int trial = 0; trial < 200; trial++) {
        tacit_tokens tokens = {0};
        int32_t symbol[64];
        size_t size = 1 + (size_t)rand() % (sizeof text - 1);
        for (size_t i = 0; i < size; i++) { /* letters only: one piece */
            char byte[2] = {text[i] = "theonrsai"[rand() % 9], 0};
            symbol[i] = tacit_tokenizer_find(l.tokenizer, byte);
        }
        size_t count = merge_naively(l.tokenizer, l.file, symbol, size);
        assert_int_equal(tacit_tokenize(l.tokenizer, text, size, false, &tokens, &err), TACIT_OK);
        assert_int_equal(tokens.count, count);
        assert_memory_equal(tokens.id, symbol, count * sizeof *symbol);
        tacit_tokens_free(&tokens);
    }
    unload(&l);
}

/* A megabyte that is one piece or as many as can be: anything quadratic would take hours. */
static void test_long_pieces(void **state)
{
    (void)state;
    static const char *const units[] = {"a", " ",   "the", "\n",          "\xff",
                                        "!", "ab ", "1",   "\xc3\xa9\xff"};
    static const char *const names[] = {"small_smollm", "small_llama3", "small_qwen2"};
    size_t size = 1 << 20;
    char *text = malloc(size);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        loaded l = load(names[n]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            for (size_t i = 0; i < size; i++)
                text[i] = units[u][i % strlen(units[u])];
            check_round_trip(l.tokenizer, text, size);
        }
        unload(&l);
    }
    free(text);
}

/* ---- hostile vocabularies ---------------------------------------------------------------- */

typedef struct vocabulary {
    const char *model, *pre;
    gguf_string token[400];
    int32_t type[400];
    size_t n_tokens, n_types;
    gguf_string merge[8], chat_template;
    size_t n_merges;
    uint32_t eos;
    bool has_bos, bos_only, add_bos;
    char byte[256][3];
} vocabulary;

#define TEXT(literal) ((gguf_string){literal, sizeof(literal) - 1})

static void add_token(vocabulary *v, gguf_string text, int32_t type)
{
    v->token[v->n_tokens] = text;
    v->type[v->n_tokens++] = type;
    v->n_types = v->n_tokens;
}

/* ASCII letters, "ab", "abc" and one control token: a small sound vocabulary. */
static void sound(vocabulary *v)
{
    *v = (vocabulary){.model = "gpt2", .pre = "gpt-2"};
    for (int c = 'a'; c <= 'z'; c++) {
        v->byte[c][0] = (char)c;
        add_token(v, (gguf_string){v->byte[c], 1}, 1);
    }
    add_token(v, TEXT("ab"), 1);
    add_token(v, TEXT("abc"), 1);
    add_token(v, TEXT("<end>"), 3);
    v->eos = (uint32_t)v->n_tokens - 1;
    v->merge[v->n_merges++] = TEXT("a b");
    v->merge[v->n_merges++] = TEXT("ab c");
}

static tacit_status load_vocabulary(const vocabulary *v, tacit_tokenizer **out, tacit_error *err)
{
    uint8_t *data;
    size_t size;
    gguf_file *file;
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, "tokenizer.ggml.model", v->model, strlen(v->model));
    if (v->pre)
        gguf_put_string(w, "tokenizer.ggml.pre", v->pre, strlen(v->pre));
    gguf_put_strings(w, "tokenizer.ggml.tokens", v->token, v->n_tokens);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, v->n_types);
    gguf_put_strings(w, "tokenizer.ggml.merges", v->merge, v->n_merges);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", v->eos);
    if (v->chat_template.data)
        gguf_put_string(w, "tokenizer.chat_template", v->chat_template.data, v->chat_template.size);
    if (v->has_bos) {
        gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 3);
        if (!v->bos_only)
            gguf_put_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos);
    }
    assert_int_equal(gguf_write_memory(w, &data, &size, err), TACIT_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&file, data, size, "v.gguf", err), TACIT_OK);
    tacit_status status = tacit_tokenizer_load(out, file, err);
    gguf_close(file); /* a tokenizer keeps nothing of its file */
    free(data);
    return status;
}

static void many_tokens_alike(vocabulary *v)
{
    add_token(v, TEXT("q"), 1);
}
static void type_zero(vocabulary *v)
{
    v->type[3] = 0;
}
static void type_seven(vocabulary *v)
{
    v->type[3] = 7;
}
static void type_negative(vocabulary *v)
{
    v->type[3] = INT32_MIN;
}
static void types_short(vocabulary *v)
{
    v->n_types--;
}
static void eos_outside(vocabulary *v)
{
    v->eos = (uint32_t)v->n_tokens;
}
static void no_tokens(vocabulary *v)
{
    v->n_tokens = v->n_types = 0;
}
static void merge_without_space(vocabulary *v)
{
    v->merge[0] = TEXT("ab");
}
static void merge_without_right(vocabulary *v)
{
    v->merge[0] = TEXT("a ");
}
static void merge_empty(vocabulary *v)
{
    v->merge[0] = TEXT("");
}
static void merge_unknown_left(vocabulary *v)
{
    v->merge[0] = TEXT("A b");
}
static void merge_unknown_right(vocabulary *v)
{
    v->merge[0] = TEXT("a B");
}
static void merge_unknown_result(vocabulary *v)
{
    v->merge[0] = TEXT("a c");
}
static void merge_twice(vocabulary *v)
{
    v->merge[1] = TEXT("a b");
}
static void merge_to_control(vocabulary *v)
{
    v->type[26] = 3;
}
static void other_model(vocabulary *v)
{
    v->model = "bert";
}
static void other_pre(vocabulary *v)
{
    v->pre = "viking";
}

static void token_too_long(vocabulary *v)
{
    static char text[1025];
    memset(text, 'x', sizeof text);
    v->token[5] = (gguf_string){text, sizeof text};
}

static void whole_token_too_long(vocabulary *v)
{
    static char text[257];
    memset(text, 'x', sizeof text);
    add_token(v, (gguf_string){text, 256}, 4);
    add_token(v, (gguf_string){text, 257}, 4);
}
static void template_too_long(vocabulary *v)
{
    static char text[131073];
    memset(text, '<', sizeof text);
    v->chat_template = (gguf_string){text, sizeof text};
}

static void test_hostile_vocabularies(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(vocabulary *v);
        const char *message;
    } cases[] = {
        {many_tokens_alike, "v.gguf: tokens 16 and 29 are both 'q'"},
        {type_zero, "v.gguf: token 3: expected a type from 1 to 6, found 0"},
        {type_seven, "v.gguf: token 3: expected a type from 1 to 6, found 7"},
        {type_negative, "v.gguf: token 3: expected a type from 1 to 6, found -2147483648"},
        {types_short, "v.gguf: expected 29 token types, found 28"},
        {eos_outside, "v.gguf: key 'tokenizer.ggml.eos_token_id': expected a value from 0 to 28, "
                      "found 29"},
        {no_tokens, "v.gguf: expected 1 to 4194304 tokens, found 0"},
        {token_too_long, "v.gguf: token 5: expected at most 1024 bytes, found 1025"},
        {whole_token_too_long, "v.gguf: token 30, which is matched in raw text: expected at most "
                               "256 bytes, found 257"},
        {template_too_long, "v.gguf: key 'tokenizer.chat_template': expected at most 131072 bytes, "
                            "found 131073"},
        {merge_without_space, "v.gguf: merge 0: expected two parts, found 'ab'"},
        {merge_without_right, "v.gguf: merge 0: expected two parts, found 'a '"},
        {merge_empty, "v.gguf: merge 0: expected two parts, found ''"},
        {merge_unknown_left, "v.gguf: merge 0 ('A b'): its left part is not a token"},
        {merge_unknown_right, "v.gguf: merge 0 ('a B'): its right part is not a token"},
        {merge_unknown_result, "v.gguf: merge 0 ('a c'): its result is not a token"},
        {merge_twice, "v.gguf: merge 1 ('a b') is there twice"},
        {merge_to_control, "v.gguf: merge 0 ('a b'): its result is a control token, which no text "
                           "may become"},
        {other_model, "v.gguf: tokenizer 'bert' is not supported (supported: gpt2, byte-level "
                      "BPE; llama, SentencePiece BPE)"},
        {other_pre, "v.gguf: pre-tokenizer 'viking' is not supported (supported: gpt-2, smollm, "
                    "llama-bpe, llama3, llama-v3, falcon3, pixtral, lfm2, tekken, gpt-4o, qwen2, "
                    "deepseek-r1-qwen, qwen35, megrez, starcoder, refact, command-r, codeshell, "
                    "exaone, minerva-7b, phi-2, mpt, olmo, falcon, deepseek-coder, deepseek-llm, "
                    "deepseek-v3, default)"},
    };
    vocabulary *v = malloc(sizeof *v);
    tacit_tokenizer *t;
    tacit_error err;
    sound(v);
    assert_int_equal(load_vocabulary(v, &t, &err), TACIT_OK);
    tacit_tokenizer_free(t);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sound(v);
        cases[i].spoil(v);
        assert_int_equal(load_vocabulary(v, &t, &err), TACIT_BAD_INPUT);
        assert_null(t);
        assert_string_equal(err.message, cases[i].message);
    }
    free(v);
}

static void check_text(const tacit_tokenizer *t, const char *text, bool special,
                       const int32_t *expected, size_t count)
{
    tacit_tokens tokens = {0};
    tacit_error err;
    assert_int_equal(tacit_tokenize(t, text, strlen(text), special, &tokens, &err), TACIT_OK);
    assert_int_equal(tokens.count, count);
    assert_memory_equal(tokens.id, expected, count * sizeof *expected);
    tacit_tokens_free(&tokens);
}

/* User-defined tokens are found in any text, longest first; the one that ends generation counts as
 * a control token whatever the file calls it. */
static void test_user_defined_tokens(void **state)
{
    (void)state;
    vocabulary *v = malloc(sizeof *v);
    tacit_tokenizer *t;
    tacit_error err;
    sound(v);
    add_token(v, TEXT("<u>"), 4);        /* 29 */
    add_token(v, TEXT("<u><u>"), 4);     /* 30 */
    add_token(v, TEXT("<u>z"), 3);       /* 31 */
    add_token(v, TEXT("<|im_end|>"), 4); /* 32 */
    assert_int_equal(load_vocabulary(v, &t, &err), TACIT_OK);
    check_text(t, "a<u>b", false, (int32_t[]){0, 29, 1}, 3);
    check_text(t, "<u><u><u>", false, (int32_t[]){30, 29}, 2);
    check_text(t, "<u>z", false, (int32_t[]){29, 25}, 2);
    check_text(t, "<u>z", true, (int32_t[]){31}, 1);
    check_text(t, "<u><u>z", true, (int32_t[]){30, 25}, 2); /* the longest wins */
    check_text(t, "<|im_end|>", true, (int32_t[]){32}, 1);
    check_text(t, "<|im_end|>", false, (int32_t[]){8, 12, 4, 13, 3}, 5); /* letters that exist */
    assert_true(tacit_tokenizer_is_end(t, 32));
    tacit_tokenizer_free(t);
    free(v);
}

/* User-defined tokens in brackets are control tokens where the template has them, wherever that is:
 * no text becomes one. */
static void test_marks_of_the_template(void **state)
{
    (void)state;
    static const struct {
        gguf_string text;
        bool mark;
    } tokens[] = {
        {TEXT("<a>"), true},  {TEXT("<a><"), true}, {TEXT("<b>"), false}, {TEXT("[c]"), true},
        {TEXT("(d)"), false}, {TEXT("<"), true},    {TEXT("<e"), true},   {TEXT("<e>"), false},
    };
    vocabulary *v = malloc(sizeof *v);
    tacit_tokenizer *t;
    tacit_error err;
    sound(v);
    size_t first = v->n_tokens;
    v->chat_template = TEXT("<a><[c](d)b>[c<e");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        add_token(v, tokens[i].text, 4);
    assert_int_equal(load_vocabulary(v, &t, &err), TACIT_OK);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const gguf_string text = tokens[i].text;
        tacit_tokens found = {0};
        assert_int_equal(tacit_tokenize(t, text.data, text.size, false, &found, &err), TACIT_OK);
        bool whole = found.count == 1 && found.id[0] == (int32_t)(first + i);
        if (whole == tokens[i].mark)
            fail_msg("%s", text.data);
        tacit_tokens_free(&found);
    }
    tacit_tokenizer_free(t);
    free(v);
}

static void test_bos_is_reported_only_when_it_is_to_be_added(void **state)
{
    (void)state;
    vocabulary *v = malloc(sizeof *v);
    tacit_error err;
    for (int c = 0; c < 3; c++) {
        tacit_tokenizer *t;
        sound(v);
        v->has_bos = c > 0;
        v->add_bos = c == 2;
        assert_int_equal(load_vocabulary(v, &t, &err), TACIT_OK);
        assert_int_equal(tacit_tokenizer_bos(t), c == 2 ? 3 : -1);
        check_text(t, "abc", true, (int32_t[]){27}, 1); /* never added here */
        tacit_tokenizer_free(t);
    }
    free(v);
}

/* Whether a BOS is to be added is in the file, else in the pre-tokenizer's name; a file without
 * that is old and is read by the default one. */
static void test_what_the_pre_tokenizer_says(void **state)
{
    (void)state;
    static const struct {
        const char *pre;
        bool says, add;
        int32_t bos;
    } cases[] = {{"llama-bpe", false, false, 3}, {"llama-bpe", true, false, -1},
                 {"qwen2", false, false, -1},    {"qwen2", true, true, 3},
                 {NULL, false, false, -1},       {"falcon3", false, false, 3}};
    vocabulary *v = malloc(sizeof *v);
    tacit_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tacit_tokenizer *t;
        sound(v);
        v->pre = cases[i].pre;
        v->has_bos = true;
        v->bos_only = !cases[i].says;
        v->add_bos = cases[i].add;
        assert_int_equal(load_vocabulary(v, &t, &err), TACIT_OK);
        assert_int_equal(tacit_tokenizer_bos(t), cases[i].bos);
        assert_int_equal(tacit_tokenizer_bos_token(t), 3);
        check_text(t, "abc", false, (int32_t[]){27}, 1);
        tacit_tokenizer_free(t);
    }
    free(v);
}

static void test_a_text_beyond_the_cap_is_refused(void **state)
{
    (void)state;
    loaded l = load("small_gpt2");
    tacit_tokens tokens = {0};
    tacit_error err;
    assert_int_equal(tacit_tokenize(l.tokenizer, "x", SIZE_MAX, false, &tokens, &err),
                     TACIT_BAD_INPUT);
    assert_string_equal(err.message, "expected a text of at most 268435456 bytes, found "
                                     "18446744073709551615");
    unload(&l);
}

/* ---- SentencePiece ----------------------------------------------------------------------- */

/* A vocabulary laid out by hand: <unk> <s> </s>, 256 byte tokens unless `bytes` is false, and what
 * the tests name. */
typedef struct spm_vocabulary {
    gguf_string token[400];
    float score[400];
    int32_t type[400];
    size_t n, n_scores;
    char byte[256][7];
    bool typed, no_space, no_scores;
} spm_vocabulary;

static int32_t add_piece(spm_vocabulary *v, const char *text, float score, int32_t type)
{
    v->token[v->n] = (gguf_string){text, strlen(text)};
    v->score[v->n] = score;
    v->type[v->n++] = type;
    v->n_scores = v->n;
    return (int32_t)v->n - 1;
}

static void sound_spm(spm_vocabulary *v, bool bytes)
{
    *v = (spm_vocabulary){.typed = true};
    add_piece(v, "<unk>", 0, 2);
    add_piece(v, "<s>", 0, 3);
    add_piece(v, "</s>", 0, 3);
    for (unsigned b = 0; bytes && b < 256; b++) {
        snprintf(v->byte[b], sizeof v->byte[b], "<0x%02X>", b);
        add_piece(v, v->byte[b], 0, 6);
    }
}

static tacit_status load_spm(const spm_vocabulary *v, tacit_tokenizer **out, tacit_error *err)
{
    uint8_t *data;
    size_t size;
    gguf_file *file;
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, "tokenizer.ggml.model", "llama", 5);
    gguf_put_strings(w, "tokenizer.ggml.tokens", v->token, v->n);
    if (v->typed)
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, v->n);
    if (!v->no_scores)
        gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, v->score, v->n_scores);
    if (v->no_space)
        gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    assert_int_equal(gguf_write_memory(w, &data, &size, err), TACIT_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&file, data, size, "v.gguf", err), TACIT_OK);
    tacit_status status = tacit_tokenizer_load(out, file, err);
    gguf_close(file);
    free(data);
    return status;
}

static tacit_tokenizer *must_load_spm(const spm_vocabulary *v)
{
    tacit_tokenizer *t;
    tacit_error err;
    if (load_spm(v, &t, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return t;
}

static void check_decoded(const tacit_tokenizer *t, const int32_t *id, size_t n, const char *text)
{
    tacit_buffer out = {0};
    tacit_error err;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tacit_detokenize(t, id[i], false, &out, &err), TACIT_OK);
    assert_int_equal(out.size, strlen(text));
    assert_memory_equal(out.data, text, out.size);
    tacit_buffer_free(&out);
}

/* Scores decide, not lengths or order; equal scores are merged from the left. */
static void test_spm_merges_by_score(void **state)
{
    (void)state;
    spm_vocabulary *v = malloc(sizeof *v);
    sound_spm(v, true);
    v->no_space = true;
    int32_t a = add_piece(v, "a", -1, 1), b = add_piece(v, "b", -2, 1),
            c = add_piece(v, "c", -3, 1);
    int32_t ab = add_piece(v, "ab", -5, 1), bc = add_piece(v, "bc", -4, 1);
    int32_t aa = add_piece(v, "aa", -9, 1), xy = add_piece(v, "xy", -8, 1);
    int32_t abcd = add_piece(v, "abbc", -20, 1);
    tacit_tokenizer *t = must_load_spm(v);
    check_text(t, "abc", false, (int32_t[]){a, bc}, 2);
    check_text(t, "ab", false, (int32_t[]){ab}, 1);
    check_text(t, "aaa", false, (int32_t[]){aa, a}, 2);
    check_text(t, "abbc", false, (int32_t[]){abcd}, 1);
    check_text(t, "cb", false, (int32_t[]){c, b}, 2);
    check_text(t, "xy", false, (int32_t[]){xy}, 1); /* of characters that are no tokens */
    check_text(t, "x", false, (int32_t[]){3 + 'x'}, 1);
    check_text(t, "\xc3\xa9", false, (int32_t[]){3 + 0xc3, 3 + 0xa9}, 2);
    check_text(t, "a\xff\xc3", false, (int32_t[]){a, 3 + 0xff, 3 + 0xc3}, 3);
    tacit_tokenizer_free(t);
    free(v);
}

static void test_spm_spaces(void **state)
{
    (void)state;
    spm_vocabulary *v = malloc(sizeof *v);
    tacit_error err;
    sound_spm(v, true);
    int32_t a = add_piece(v, "a", -1, 1), s = add_piece(v, "\xe2\x96\x81", -2, 1);
    int32_t sa = add_piece(v,
                           "\xe2\x96\x81"
                           "a",
                           -3, 1),
            u = add_piece(v, "<u>", 0, 4);
    tacit_tokenizer *t = must_load_spm(v);
    check_text(t, "a", false, (int32_t[]){sa}, 1);
    check_text(t, " a", false, (int32_t[]){s, sa}, 2);
    check_text(t, "aa", false, (int32_t[]){sa, a}, 2);
    check_text(t, "", false, NULL, 0);
    /* after whole tokens too, as files of the ecosystem are read */
    check_text(t, "a<u>a", false, (int32_t[]){sa, u, sa}, 3);
    check_text(t, "<s>a</s>", true, (int32_t[]){1, sa, 2}, 3);
    /* Text behind a picture is such a text too: Hugging Face's test of LLaVA on Mistral expects
     * 32000 28705 13 for "<image>\n", the space and the byte of a line break. */
    check_text(t, "\na", false, (int32_t[]){s, 3 + '\n', a}, 3);
    tacit_tokens more = {0};
    assert_int_equal(tacit_tokenize_more(t, "a<u>a", 5, false, &more, &err), TACIT_OK);
    assert_int_equal(more.count, 3);
    assert_int_equal(more.id[0], a);
    assert_int_equal(more.id[2], sa);
    tacit_tokens_free(&more);
    assert_true(tacit_tokenizer_adds_space(t));
    check_decoded(t, (int32_t[]){sa, a, s, u, 3 + '!', 1, 0}, 7, " aa <u>!");
    tacit_tokenizer_free(t);
    v->no_space = true;
    t = must_load_spm(v);
    check_text(t, "a<u>a", false, (int32_t[]){a, u, a}, 3);
    assert_false(tacit_tokenizer_adds_space(t));
    tacit_tokenizer_free(t);
    free(v);
}

/* Merging never ends in a control, unknown or byte token, whatever people spell. */
static void test_spm_text_never_becomes_a_control_token(void **state)
{
    (void)state;
    spm_vocabulary *v = malloc(sizeof *v);
    for (int typed = 0; typed < 2; typed++) {
        sound_spm(v, true);
        v->typed = typed;
        v->no_space = true;
        static const char *const parts[] = {"<",     "/", "s", ">", "</", "s>",  "</s",
                                            "<s",    "0", "x", "A", "<0", "<0x", "<0x0",
                                            "<0x0A", "u", "n", "k", "<u", "<un", "<unk"};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            add_piece(v, parts[i], -(float)i, 1);
        tacit_tokenizer *t = must_load_spm(v);
        tacit_tokens tokens = {0};
        tacit_error err;
        static const char text[] = "</s> <s> <unk> <0x0A>";
        assert_int_equal(tacit_tokenize(t, text, strlen(text), false, &tokens, &err), TACIT_OK);
        for (size_t i = 0; i < tokens.count; i++) {
            assert_true(tokens.id[i] > 2);
            assert_int_not_equal(tokens.id[i], 3 + 0x0a);
        }
        tacit_tokens_free(&tokens);
        check_text(t, "</s>", true, (int32_t[]){2}, 1);
        assert_int_equal(tacit_tokenizer_bos(t), 1); /* the trainer's ids where the file has none */
        assert_true(tacit_tokenizer_is_end(t, 2));
        tacit_tokenizer_free(t);
    }
    free(v);
}

/* Without byte tokens a run of unknown characters is one unknown token. */
static void test_spm_unknown_characters(void **state)
{
    (void)state;
    spm_vocabulary *v = malloc(sizeof *v);
    sound_spm(v, false);
    v->no_space = true;
    int32_t a = add_piece(v, "a", -1, 1);
    tacit_tokenizer *t = must_load_spm(v);
    check_text(t, "a\xc3\xa9\xc3\xa9za\xff", false, (int32_t[]){a, 0, a, 0}, 4);
    tacit_tokenizer_free(t);
    free(v);
}

/* Unused tokens take part in merging and come apart again, each into what it was made of. */
static void test_spm_unused_tokens(void **state)
{
    (void)state;
    spm_vocabulary *v = malloc(sizeof *v);
    sound_spm(v, true);
    v->no_space = true;
    int32_t a = add_piece(v, "a", -9, 1), b = add_piece(v, "b", -9, 1);
    add_piece(v, "ab", -1, 5);
    add_piece(v, "abab", -2, 5);
    int32_t aba = add_piece(v, "aba", -3, 1);
    tacit_tokenizer *t = must_load_spm(v);
    check_text(t, "ab", false, (int32_t[]){a, b}, 2);
    check_text(t, "abab", false, (int32_t[]){a, b, a, b}, 4);
    check_text(t, "aba", false, (int32_t[]){aba}, 1);
    tacit_tokenizer_free(t);
    free(v);
}

static void test_spm_long_texts(void **state)
{
    (void)state;
    size_t size = 1 << 20;
    char *text = malloc(size);
    static const char *const units[] = {"a", " ", "the ", "\xff", "\xc3\xa9", "<u>"};
    loaded l = load("small_spm");
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        tacit_tokens tokens = {0};
        tacit_buffer back = {0};
        tacit_error err;
        for (size_t i = 0; i < size; i++)
            text[i] = units[u][i % strlen(units[u])];
        assert_int_equal(tacit_tokenize_more(l.tokenizer, text, size, false, &tokens, &err), 0);
        for (size_t i = 0; i < tokens.count; i++)
            assert_int_equal(tacit_detokenize(l.tokenizer, tokens.id[i], false, &back, &err), 0);
        if (u < 5) { /* user-defined tokens get a space between */
            assert_int_equal(back.size, size);
            assert_memory_equal(back.data, text, size);
        }
        tacit_buffer_free(&back);
        tacit_tokens_free(&tokens);
    }
    free(text);
    unload(&l);
}

static void test_hostile_spm_vocabularies(void **state)
{
    (void)state;
    static const char *const malformed[] = {"<0x-1>", "<0x0g>", "<0xFFF>", "<0x0a>", "<0x >",
                                            "<0X41>", "<0x41",  "",        "0x41"};
    spm_vocabulary *v = malloc(sizeof *v);
    tacit_tokenizer *t;
    tacit_error err;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        char expected[256];
        sound_spm(v, false);
        add_piece(v, malformed[i], 0, 6);
        assert_int_equal(load_spm(v, &t, &err), TACIT_BAD_INPUT);
        snprintf(expected, sizeof expected,
                 "v.gguf: token 3: expected a byte token from <0x00> to <0xFF>, found '%s'",
                 malformed[i]);
        assert_string_equal(err.message, expected);
        v->type[3] = 1; /* as an ordinary token it is plain text */
        assert_int_equal(load_spm(v, &t, &err), TACIT_OK);
        tacit_tokenizer_free(t);
    }
    sound_spm(v, true);
    v->n_scores = 7;
    assert_int_equal(load_spm(v, &t, &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message, "v.gguf: expected 259 token scores, found 7");
    sound_spm(v, true);
    v->score[9] = __builtin_nanf("");
    assert_int_equal(load_spm(v, &t, &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message,
                        "v.gguf: token 9: expected a score, found one that is not a number");
    sound_spm(v, true);
    v->no_scores = true;
    assert_int_not_equal(load_spm(v, &t, &err), TACIT_OK);
    assert_non_null(strstr(err.message, "tokenizer.ggml.scores"));
    free(v);
}

static void *tokenize_many(void *ctx)
{
    const tacit_tokenizer *t = ctx;
    for (int i = 0; i < 50; i++)
        check_round_trip(t, "It's 72 beats per minute, they'll say.", 38);
    return NULL;
}

static void test_threads_share_a_tokenizer(void **state)
{
    (void)state;
    loaded l = load("small_smollm");
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, tokenize_many, l.tokenizer), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_gpt2_vocabulary),
        cmocka_unit_test(test_small_smollm_vocabulary),
        cmocka_unit_test(test_part_of_smollm2),
        cmocka_unit_test(test_small_llama3_vocabulary),
        cmocka_unit_test(test_small_qwen2_vocabulary),
        cmocka_unit_test(test_small_sentencepiece_vocabulary),
        cmocka_unit_test(test_spm_merges_by_score),
        cmocka_unit_test(test_spm_spaces),
        cmocka_unit_test(test_spm_text_never_becomes_a_control_token),
        cmocka_unit_test(test_spm_unknown_characters),
        cmocka_unit_test(test_spm_unused_tokens),
        cmocka_unit_test(test_spm_long_texts),
        cmocka_unit_test(test_hostile_spm_vocabularies),
        cmocka_unit_test(test_any_bytes_round_trip),
        cmocka_unit_test(test_control_tokens_come_only_when_asked_for),
        cmocka_unit_test(test_merging_agrees_with_its_definition),
        cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_hostile_vocabularies),
        cmocka_unit_test(test_user_defined_tokens),
        cmocka_unit_test(test_marks_of_the_template),
        cmocka_unit_test(test_bos_is_reported_only_when_it_is_to_be_added),
        cmocka_unit_test(test_what_the_pre_tokenizer_says),
        cmocka_unit_test(test_a_text_beyond_the_cap_is_refused),
        cmocka_unit_test(test_threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
