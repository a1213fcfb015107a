/* nano's vocabulary: its size and order, and what the engine's tokenizer makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/chat.h"
#include "engine/tokenizer.h"
#include "scenes/scene_senses.h"
#include "scenes/scene_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    scene_vocabulary vocabulary;
    uint8_t *bytes;
    gguf_file *file;
    tacit_tokenizer *tokenizer;
} fixture;

static int make(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    tacit_error err;
    size_t size;
    gguf_writer *w = gguf_writer_new();
    if (!f || !w || scene_vocabulary_make(&f->vocabulary, &err) != TACIT_OK)
        return -1;
    scene_vocabulary_put(&f->vocabulary, w);
    if (gguf_write_memory(w, &f->bytes, &size, &err) != TACIT_OK ||
        gguf_open_memory(&f->file, f->bytes, size, "vocabulary", &err) != TACIT_OK ||
        tacit_tokenizer_load(&f->tokenizer, f->file, &err) != TACIT_OK) {
        fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    gguf_writer_free(w);
    *state = f;
    return 0;
}

static int destroy(void **state)
{
    fixture *f = *state;
    tacit_tokenizer_free(f->tokenizer);
    gguf_close(f->file);
    free(f->bytes);
    scene_vocabulary_free(&f->vocabulary);
    free(f);
    return 0;
}

static size_t count_tokens(const fixture *f, const char *text)
{
    tacit_tokens tokens = {0};
    tacit_error err;
    assert_int_equal(tacit_tokenize(f->tokenizer, text, strlen(text), false, &tokens, &err),
                     TACIT_OK);
    size_t n = tokens.count;
    tacit_tokens_free(&tokens);
    return n;
}

static void has_768_different_tokens(void **state)
{
    const scene_vocabulary *v = &((fixture *)*state)->vocabulary;
    assert_int_equal(v->count, SCENE_VOCABULARY_TOKENS);
    for (size_t i = 0; i < v->count; i++)
        assert_int_equal(scene_vocabulary_find(v, v->token[i]), (int)i);
}

/* Token 256 + k is what merge k joins. */
static void merges_make_the_tokens(void **state)
{
    const scene_vocabulary *v = &((fixture *)*state)->vocabulary;
    for (size_t k = 0; k < v->n_merges; k++) {
        const char *space = strchr(v->merge[k], ' ');
        char joined[256];
        assert_non_null(space);
        snprintf(joined, sizeof joined, "%.*s%s", (int)(space - v->merge[k]), v->merge[k],
                 space + 1);
        assert_string_equal(joined, v->token[256 + k]);
    }
}

static void controls_are_single_tokens(void **state)
{
    fixture *f = *state;
    static const char *const words[] = {"<|im_start|>",
                                        "<|im_end|>",
                                        "<end_of_utterance>",
                                        "<image>",
                                        "<fake_token_around_image>",
                                        "<global-img>",
                                        "<row_1_col_1>",
                                        "<row_4_col_4>",
                                        "<reserved_11>",
                                        "<audio>",
                                        "</audio>",
                                        "<sensor>",
                                        "</sensor>"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_int_not_equal(tacit_tokenizer_find(f->tokenizer, words[i]), -1);
    assert_int_equal(tacit_tokenizer_eos(f->tokenizer),
                     tacit_tokenizer_find(f->tokenizer, "<end_of_utterance>"));
    assert_int_equal(count_tokens(f, "\n"), 1);
    assert_int_equal(count_tokens(f, "\n\n"), 1);
    assert_int_equal(count_tokens(f, "User"), 1);
    assert_int_equal(count_tokens(f, "Assistant"), 1);
    assert_int_equal(count_tokens(f, "1234"), 4);
}

static void template_is_smolvlm(void **state)
{
    fixture *f = *state;
    tacit_chat chat;
    tacit_error err;
    assert_int_equal(tacit_chat_recognise(&chat, tacit_tokenizer_chat_template(f->tokenizer), &err),
                     TACIT_OK);
    assert_string_equal(chat.form.name, "smolvlm");
}

/* After "Assistant:" an answer begins with a space. */
static void labels_are_single_tokens(void **state)
{
    fixture *f = *state;
    static const scene_field fields[] = {SCENE_LAMP, SCENE_TRACE};
    for (int i = 0; i < 2 * SCENE_STATES; i++) {
        char text[SCENE_TEXT_MAX + 1];
        scene_field field = fields[i / SCENE_STATES];
        snprintf(text, sizeof text, " %s", scene_new_label(field, i % SCENE_STATES));
        assert_int_equal(count_tokens(f, text), 1);
        snprintf(text, sizeof text, " %s", scene_base_label(field, i % SCENE_STATES));
        assert_int_equal(count_tokens(f, text), 1);
    }
}

/* Every word of the questions and answers about sounds and signals too. */
static void words_of_senses_are_single_tokens(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < scene_sense_word_count(); i++) {
        char text[SCENE_TEXT_MAX + 1];
        snprintf(text, sizeof text, " %s", scene_sense_word(i));
        if (count_tokens(f, text) != 1)
            fail_msg("'%s' is %zu tokens", text, count_tokens(f, text));
    }
    for (size_t i = 0; i < scene_ask_count(); i++) {
        for (int k = 0; k < SCENE_WORDINGS; k++) {
            const char *text = scene_ask_at(i)->wording[k];
            size_t words = 1;
            for (const char *p = text; *p; p++)
                words += *p == ' ';
            if (count_tokens(f, text) != words + 1) /* the question mark */
                fail_msg("'%s' is %zu tokens, expected %zu", text, count_tokens(f, text),
                         words + 1);
        }
    }
}

static void text_comes_back(void **state)
{
    fixture *f = *state;
    static const char *const texts[] = {"What is the speed?", " 120/80", "\n\nUser: 99 %",
                                        "Gr\xc3\xbc\xc3\x9f"
                                        "e \xf0\x9f\x9a\x97",
                                        "<|im_start|>"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        tacit_tokens tokens = {0};
        tacit_buffer back = {0};
        tacit_error err;
        assert_int_equal(
            tacit_tokenize(f->tokenizer, texts[i], strlen(texts[i]), false, &tokens, &err),
            TACIT_OK);
        for (size_t k = 0; k < tokens.count; k++)
            assert_int_equal(tacit_detokenize(f->tokenizer, tokens.id[k], false, &back, &err),
                             TACIT_OK);
        assert_int_equal(back.size, strlen(texts[i]));
        assert_memory_equal(back.data, texts[i], back.size);
        tacit_tokens_free(&tokens);
        tacit_buffer_free(&back);
    }
}

static void is_deterministic(void **state)
{
    const scene_vocabulary *v = &((fixture *)*state)->vocabulary;
    scene_vocabulary again;
    tacit_error err;
    assert_int_equal(scene_vocabulary_make(&again, &err), TACIT_OK);
    for (size_t i = 0; i < v->count; i++)
        assert_string_equal(v->token[i], again.token[i]);
    scene_vocabulary_free(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_768_different_tokens),
        cmocka_unit_test(merges_make_the_tokens),
        cmocka_unit_test(controls_are_single_tokens),
        cmocka_unit_test(template_is_smolvlm),
        cmocka_unit_test(labels_are_single_tokens),
        cmocka_unit_test(words_of_senses_are_single_tokens),
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(is_deterministic),
    };
    return cmocka_run_group_tests(tests, make, destroy);
}
