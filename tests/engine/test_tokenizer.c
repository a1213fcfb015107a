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
static void check_goldens(const char *name)
{
    loaded l = load(name);
    tacit_error err;
    json_t *golden = json_load_file(GOLDEN "tokens.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(golden);
    const json_t *texts = json_object_get(golden, "texts");
    const json_t *expected = json_object_get(golden, name);
    assert_true(json_array_size(texts) > 80);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        for (int special = 0; special < 2; special++) {
            tacit_tokens tokens = {0};
            const json_t *all = json_object_get(expected, special ? "special" : "plain");
            assert_int_equal(tacit_tokenize(l.tokenizer, json_string_value(text),
                                            json_string_length(text), special, &tokens, &err),
                             TACIT_OK);
            check_ids(&l, name, i, json_array_get(all, i), &tokens);
            tacit_tokens_free(&tokens);
        }
    }
    json_decref(golden);
    unload(&l);
}

static void test_small_gpt2_vocabulary(void **state)
{
    (void)state;
    check_goldens("small_gpt2");
}

static void test_small_smollm_vocabulary(void **state)
{
    (void)state;
    check_goldens("small_smollm");
}

static void test_part_of_smollm2(void **state)
{
    (void)state;
    check_goldens("smollm2_part");
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
    size_t size = 1 << 20;
    char *text = malloc(size);
    loaded l = load("small_smollm");
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        for (size_t i = 0; i < size; i++)
            text[i] = units[u][i % strlen(units[u])];
        check_round_trip(l.tokenizer, text, size);
    }
    free(text);
    unload(&l);
}

/* ---- hostile vocabularies ---------------------------------------------------------------- */

typedef struct vocabulary {
    const char *model, *pre;
    gguf_string token[400];
    int32_t type[400];
    size_t n_tokens, n_types;
    gguf_string merge[8];
    size_t n_merges;
    uint32_t eos;
    bool has_bos, add_bos;
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
    gguf_put_string(w, "tokenizer.ggml.pre", v->pre, strlen(v->pre));
    gguf_put_strings(w, "tokenizer.ggml.tokens", v->token, v->n_tokens);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, v->n_types);
    gguf_put_strings(w, "tokenizer.ggml.merges", v->merge, v->n_merges);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", v->eos);
    if (v->has_bos) {
        gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 3);
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
    v->model = "llama";
}
static void other_pre(vocabulary *v)
{
    v->pre = "llama-bpe";
}

static void token_too_long(vocabulary *v)
{
    static char text[1025];
    memset(text, 'x', sizeof text);
    v->token[5] = (gguf_string){text, sizeof text};
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
        {merge_without_space, "v.gguf: merge 0: expected two parts, found 'ab'"},
        {merge_without_right, "v.gguf: merge 0: expected two parts, found 'a '"},
        {merge_empty, "v.gguf: merge 0: expected two parts, found ''"},
        {merge_unknown_left, "v.gguf: merge 0 ('A b'): its left part is not a token"},
        {merge_unknown_right, "v.gguf: merge 0 ('a B'): its right part is not a token"},
        {merge_unknown_result, "v.gguf: merge 0 ('a c'): its result is not a token"},
        {merge_twice, "v.gguf: merge 1 ('a b') is there twice"},
        {merge_to_control, "v.gguf: merge 0 ('a b'): its result is a control token, which no text "
                           "may become"},
        {other_model, "v.gguf: tokenizer 'llama' is not supported (supported: gpt2, byte-level "
                      "BPE)"},
        {other_pre, "v.gguf: pre-tokenizer 'llama-bpe' is not supported (supported: gpt-2, smollm, "
                    "starcoder, refact, codeshell)"},
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
        cmocka_unit_test(test_any_bytes_round_trip),
        cmocka_unit_test(test_control_tokens_come_only_when_asked_for),
        cmocka_unit_test(test_merging_agrees_with_its_definition),
        cmocka_unit_test(test_long_pieces),
        cmocka_unit_test(test_hostile_vocabularies),
        cmocka_unit_test(test_user_defined_tokens),
        cmocka_unit_test(test_bos_is_reported_only_when_it_is_to_be_added),
        cmocka_unit_test(test_a_text_beyond_the_cap_is_refused),
        cmocka_unit_test(test_threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
