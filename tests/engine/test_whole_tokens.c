#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/whole_tokens.h"

#include <stdlib.h>
#include <string.h>

typedef struct words {
    char text[300][WHOLE_MOST_BYTES];
    uint32_t size[300];
    size_t count;
} words;

/* Token i has id 1000 + i. They come in the order of the list, which is none. */
static whole_tokens make(const words *w)
{
    whole_tokens out;
    whole_token *token = calloc(w->count + 1, sizeof *token);
    for (size_t i = 0; i < w->count; i++)
        token[i] = (whole_token){w->text[i], w->size[i], 1000 + (int32_t)i, 0};
    whole_tokens_make(&out, token, w->count);
    return out;
}

static void add(words *w, const char *text, size_t size)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->size[i] == size && memcmp(w->text[i], text, size) == 0)
            return;
    memcpy(w->text[w->count], text, size);
    w->size[w->count++] = (uint32_t)size;
}

/* By the definition: every length from the longest down, every place from left to right. */
static void naive(const words *w, const char *text, size_t size, int32_t *at)
{
    for (size_t i = 0; i < size; i++)
        at[i] = WHOLE_NONE;
    for (size_t length = WHOLE_MOST_BYTES; length > 0; length--)
        for (size_t i = 0; i + length <= size; i++)
            for (size_t k = 0; k < w->count; k++) {
                bool fits = w->size[k] == length && memcmp(w->text[k], text + i, length) == 0;
                for (size_t j = 0; fits && j < length; j++)
                    fits = at[i + j] == WHOLE_NONE;
                for (size_t j = 0; fits && j < length; j++)
                    at[i + j] = j ? WHOLE_COVERED : 1000 + (int32_t)k;
            }
}

static void find(const whole_tokens *w, const char *text, size_t size, int32_t *at)
{
    int32_t *scratch = malloc((size + 1) * sizeof *scratch);
    assert_int_equal(whole_tokens_find(w, text, size, at, scratch), TACIT_OK);
    free(scratch);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

/* Few letters and words that begin and contain one another, so that much overlaps. */
static void test_the_definition_holds(void **state)
{
    (void)state;
    uint64_t seed = 7;
    size_t found = 0, gave_way = 0;
    for (int round = 0; round < 150; round++) {
        static words w;
        char text[200], word[40];
        int32_t expected[200], at[200];
        unsigned letters = 1 + (unsigned)(next_random(&seed) % 4);
        const char *base = next_random(&seed) % 2 ? "abcd" : "\xff\x80z\x00";
        w.count = 0;
        for (size_t n = next_random(&seed) % 30; n > 0; n--) {
            size_t size = 1 + next_random(&seed) % (round % 2 ? 6 : sizeof word);
            for (size_t i = 0; i < size; i++)
                word[i] = base[next_random(&seed) % letters];
            add(&w, word, size);
        }
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = base[next_random(&seed) % (letters + round % 3 / 2)];
        size_t size = next_random(&seed) % (sizeof text + 1);
        whole_tokens set = make(&w);
        naive(&w, text, size, expected);
        find(&set, text, size, at);
        assert_memory_equal(at, expected, size * sizeof *at);
        for (size_t i = 0; i < size; i++)
            found += at[i] >= 0;
        for (size_t i = 1; i < size; i++)
            gave_way += at[i] >= 0 && at[i - 1] != WHOLE_NONE;
        whole_tokens_free(&set);
    }
    assert_true(found > 2000 && gave_way > 800);
}

/* 255 lengths in a text of a MiB: what tries every length at every place takes minutes. */
static void test_many_lengths_in_a_long_text(void **state)
{
    (void)state;
    static words w;
    const size_t size = (size_t)1 << 20;
    char all[255], *text = malloc(size);
    int32_t *at = malloc(size * sizeof *at);
    memset(all, 'a', sizeof all);
    w.count = 0;
    for (size_t length = 1; length <= sizeof all; length++)
        add(&w, all, length);
    whole_tokens set = make(&w);
    memset(text, 'a', size);
    find(&set, text, size, at);
    for (size_t i = 0; i < size; i++) {
        size_t left = size - i / 255 * 255;
        int32_t begins = 1000 + (int32_t)(left < 255 ? left : 255) - 1;
        assert_int_equal(at[i], i % 255 == 0 ? begins : WHOLE_COVERED);
    }
    for (size_t i = 0; i < size; i++)
        text[i] = i % 2 ? 'b' : 'a'; /* the order ends in the longest, and the shortest is meant */
    find(&set, text, size, at);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(at[i], i % 2 ? WHOLE_NONE : 1000);
    whole_tokens_free(&set);
    free(text);
    free(at);
}

static void test_no_tokens(void **state)
{
    (void)state;
    const words none = {.count = 0};
    whole_tokens set = make(&none);
    int32_t at[3];
    find(&set, "abc", 3, at);
    for (int i = 0; i < 3; i++)
        assert_int_equal(at[i], WHOLE_NONE);
    find(&set, "", 0, at);
    whole_tokens_free(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_definition_holds),
        cmocka_unit_test(test_many_lengths_in_a_long_text),
        cmocka_unit_test(test_no_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
