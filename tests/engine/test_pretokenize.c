/* Pieces are those of PyPI's `tokenizers` with the models' own patterns (make_tokenizer.py), and
 * long runs of anything come apart in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "engine/pretokenize.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN TACIT_SOURCE_DIR "/tests/golden/tokenizer/splits.json"

typedef struct pieces {
    const char *next; /* where the next piece must begin */
    size_t size[1024], count;
} pieces;

static tacit_status take(void *ctx, const char *text, size_t size)
{
    pieces *p = ctx;
    assert_true(size > 0);
    assert_memory_equal(text, p->next, size); /* a copy where texts are normalized */
    p->next += size;
    if (p->count < 1024)
        p->size[p->count] = size;
    p->count++;
    return TACIT_OK;
}

static pretokenizer *open_by_name(const char *name)
{
    pretokenizer *p;
    tacit_error err = {0};
    if (pretokenizer_new(&p, name, strlen(name), &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return p;
}

static void check_text(const pretokenizer *p, const char *name, const json_t *text, size_t index,
                       const json_t *expected)
{
    static pieces found;
    tacit_error err = {0};
    found.next = json_string_value(text);
    found.count = 0;
    const char *end = found.next + json_string_length(text);
    if (pretokenizer_run(p, found.next, json_string_length(text), take, &found, &err) != TACIT_OK)
        fail_msg("%s: text %zu: %s", name, index, err.message);
    assert_ptr_equal(found.next, end);
    bool same = found.count == json_array_size(expected);
    for (size_t i = 0; same && i < found.count; i++)
        same = (json_int_t)found.size[i] == json_integer_value(json_array_get(expected, i));
    for (size_t i = 0; !same && (i < found.count || i < json_array_size(expected)); i++)
        print_message("%zu: found %lld expected %lld\n", i,
                      i < found.count ? (long long)found.size[i] : -1,
                      (long long)json_integer_value(json_array_get(expected, i)));
    if (!same)
        fail_msg("%s: text %zu is cut otherwise: %s", name, index, json_string_value(text));
}

static void pieces_are_the_models_own(void **state)
{
    (void)state;
    json_t *golden = json_load_file(GOLDEN, JSON_ALLOW_NUL, NULL);
    const json_t *texts = json_object_get(golden, "texts");
    const char *name;
    json_t *expected;
    size_t names = 0;
    assert_true(json_array_size(texts) > 80);
    json_object_foreach(golden, name, expected)
    {
        if (strcmp(name, "texts") == 0)
            continue;
        names++;
        pretokenizer *p = open_by_name(name);
        assert_int_equal(json_array_size(expected), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(texts); i++)
            check_text(p, name, json_array_get(texts, i), i, json_array_get(expected, i));
        pretokenizer_free(p);
    }
    assert_int_equal(names, 6);
    json_decref(golden);
}

/* Runs that make a careless pattern try every length at every place. */
static void long_runs_come_apart(void **state)
{
    (void)state;
    static const char *const names[] = {
        "gpt-2",  "smollm", "llama-bpe",    "qwen2",       "tekken",  "gpt-4o",
        "qwen35", "falcon", "deepseek-llm", "deepseek-v3", "default", "deepseek-coder"};
    static const char *const units[] = {"a",
                                        "A",
                                        " ",
                                        "\n",
                                        "!",
                                        "1",
                                        "\xe4\xb8\xad",
                                        "\xcc\x81",
                                        " \xe4\xb8\xad",
                                        "A\xe4\xb8\xad",
                                        "'s",
                                        "/\r"};
    const size_t size = (size_t)1 << 17;
    char *text = malloc(size + 3);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        pretokenizer *p = open_by_name(names[n]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++)
            for (int ends = 0; ends < 2; ends++) {
                pieces found = {.next = text};
                tacit_error err = {0};
                size_t length = size / strlen(units[u]) * strlen(units[u]);
                for (size_t i = 0; i < length; i++)
                    text[i] = units[u][i % strlen(units[u])];
                memcpy(text + length, "\xe4\xb8\xad", 3); /* something else at its end */
                length += ends ? 3 : 0;
                if (pretokenizer_run(p, text, length, take, &found, &err) != TACIT_OK)
                    fail_msg("%s, a run of '%s': %s", names[n], units[u], err.message);
                assert_ptr_equal(found.next, text + length);
            }
        pretokenizer_free(p);
    }
    free(text);
}

static tacit_status gather(void *ctx, const char *text, size_t size)
{
    return tacit_buffer_append(ctx, text, size);
}

/* Marks that normal form C has to bring into order, however many follow each other: the dots come
 * before the accents, and the first of them joins the letter. */
static void runs_of_marks_are_ordered(void **state)
{
    (void)state;
    static const char accent[] = "\xcc\x81", dot[] = "\xcc\xa3", joined[] = "\xe1\xba\xa1";
    const size_t n = (size_t)1 << 18;
    char *text = malloc(1 + 4 * n);
    tacit_buffer found = {0};
    tacit_error err = {0};
    text[0] = 'a';
    for (size_t i = 0; i < n; i++) {
        memcpy(text + 1 + 2 * i, accent, 2);
        memcpy(text + 1 + 2 * (n + i), dot, 2);
    }
    pretokenizer *p = open_by_name("qwen2");
    if (pretokenizer_run(p, text, 1 + 4 * n, gather, &found, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(found.size, 3 + 2 * (n - 1) + 2 * n);
    assert_memory_equal(found.data, joined, 3);
    for (size_t i = 0; i < 2 * n - 1; i++)
        assert_memory_equal(found.data + 3 + 2 * i, i < n - 1 ? dot : accent, 2);
    pretokenizer_free(p);
    tacit_buffer_free(&found);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_models_own),
        cmocka_unit_test(long_runs_come_apart),
        cmocka_unit_test(runs_of_marks_are_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
