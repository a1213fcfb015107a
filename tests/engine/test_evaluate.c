#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/log.h"
#include "engine/evaluate.h"
#include "engine/example.h"
#include "engine/image.h"
#include "engine/model_parts.h"
#include "engine/trainer.h"

#include "tiny_model.h"

#include "../golden/pictures_pillow.h"

enum { RECORDS = 12, LONGEST = 6 };

/* Answers by a context of their own for every record: no shared prefix, no cache across records. */
static void answer_alone(const tacit_model *model, const tacit_record *r, char *out, size_t size)
{
    tacit_input in;
    tacit_context *c;
    tacit_row_cache *cache;
    tacit_buffer text = {0};
    const tacit_tokenizer *tokenizer = tacit_model_tokenizer(model);
    assert_int_equal(tacit_example_prompt(&in, model, r->message, 1, NULL, NULL), TACIT_OK);
    assert_int_equal(tacit_row_cache_new(&cache, model, 0, NULL, NULL, NULL), TACIT_OK);
    assert_int_equal(tacit_row_cache_fill(cache, &in, NULL), TACIT_OK);
    assert_int_equal(tacit_context_new(&c, model, NULL, NULL, NULL), TACIT_OK);
    assert_int_equal(tacit_context_feed(c, in.row, in.count, in.media, in.n_media, NULL), TACIT_OK);
    for (int i = 0; i < LONGEST; i++) {
        const float *logits = tacit_context_logits(c);
        int32_t best = 0;
        for (int32_t t = 0; t < TINY_VOCAB; t++)
            best = logits[t] > logits[best] ? t : best;
        if (tacit_tokenizer_is_end(tokenizer, best))
            break;
        assert_int_equal(tacit_detokenize(tokenizer, best, false, &text, NULL), TACIT_OK);
        assert_int_equal(tacit_context_feed_token(c, best, NULL), TACIT_OK);
    }
    snprintf(out, size, "%.*s", (int)text.size, text.data ? (const char *)text.data : "");
    tacit_buffer_free(&text);
    tacit_context_free(c);
    tacit_row_cache_free(cache);
    tacit_input_free(&in);
}

static char *copy(const char *text)
{
    char *out = strdup(text);
    assert_non_null(out);
    return out;
}

/* Question `i` about a picture (every third record is text alone) and its answer. Two questions
 * about one picture, then about two pictures in turn: the same tokens begin both. */
static tacit_record make_record(const tiny_model *t, size_t i, const char *answer)
{
    char text[128];
    bool picture = i % 3 != 2;
    tacit_record r = {.n_messages = 2, .line = i + 1};
    r.message = calloc(2, sizeof *r.message);
    snprintf(text, sizeof text, "%s:%zu", i % 2 ? "label" : "number", i);
    r.id = copy(text);
    r.message[0] =
        (tacit_message){TACIT_ROLE_USER, calloc(2, sizeof(tacit_content)), picture ? 2 : 1};
    if (picture) {
        snprintf(text, sizeof text, "%s/%zu.jpg", t->folder, i < 3 ? 0 : i % 2);
        r.message[0].content[0] = (tacit_content){TACIT_CONTENT_IMAGE, copy(text)};
    }
    snprintf(text, sizeof text, "question %zu?", i);
    r.message[0].content[picture ? 1 : 0] = (tacit_content){TACIT_CONTENT_TEXT, copy(text)};
    r.message[1] = (tacit_message){TACIT_ROLE_ASSISTANT, calloc(1, sizeof(tacit_content)), 1};
    r.message[1].content[0] = (tacit_content){TACIT_CONTENT_TEXT, copy(answer)};
    return r;
}

/* Records whose even ones expect what the model says, with white space around, the odd ones not. */
static tacit_dataset make_dataset(const tiny_model *t)
{
    tacit_dataset d = {.path = copy("memory"), .count = RECORDS};
    d.record = calloc(RECORDS, sizeof *d.record);
    for (size_t i = 0; i < RECORDS; i++) {
        char answer[64], expected[80];
        d.record[i] = make_record(t, i, "x");
        answer_alone(t->model, &d.record[i], answer, sizeof answer);
        snprintf(expected, sizeof expected, i % 2 ? "not %s" : " %s\n", answer);
        tacit_record_free(&d.record[i]);
        d.record[i] = make_record(t, i, expected);
    }
    return d;
}

/* The trainer computes the loss by other code: of records, and of all their tokens. */
static double mean_loss(const tacit_model *model, const tacit_dataset *d, double *of_tokens)
{
    const tacit_trainable_spec spec = {.kind = TACIT_TRAIN_LORA_FFA,
                                       .target = {"ffn_down"},
                                       .n_targets = 1,
                                       .rank = 1,
                                       .alpha = 1};
    tacit_trainer *trainer;
    tacit_row_cache *cache;
    double sum = 0, all = 0;
    size_t tokens = 0;
    assert_int_equal(tacit_trainer_new(&trainer, model, &spec, 256, NULL, NULL), TACIT_OK);
    assert_int_equal(tacit_row_cache_new(&cache, model, 0, NULL, NULL, NULL), TACIT_OK);
    for (size_t i = 0; i < d->count; i++) {
        tacit_input in;
        double loss;
        assert_int_equal(tacit_example_build(&in, model, &d->record[i], NULL, NULL), TACIT_OK);
        assert_int_equal(tacit_row_cache_fill(cache, &in, NULL), TACIT_OK);
        assert_int_equal(tacit_trainer_loss(trainer, &in, &loss, NULL), TACIT_OK);
        sum += loss;
        size_t trained = 0;
        for (size_t k = 1; k < in.count; k++)
            trained += in.row[k].trained;
        all += loss * (double)trained;
        tokens += trained;
        tacit_input_free(&in);
    }
    tacit_row_cache_free(cache);
    tacit_trainer_free(trainer);
    *of_tokens = all / (double)tokens;
    return sum / (double)d->count;
}

static void test_answers_and_loss(void **state)
{
    tiny_model *t = *state;
    tacit_dataset d = make_dataset(t);
    tacit_evaluation e;
    tacit_error err = {0};
    const tacit_evaluation_options how = {.max_tokens = LONGEST};
    if (tacit_evaluate(&e, t->model, &d, &how, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(e.records, RECORDS);
    assert_int_equal(e.score.examples, RECORDS);
    assert_int_equal(e.score.correct, RECORDS / 2);
    assert_int_equal(e.n_kinds, 2);
    assert_string_equal(e.kind[0].name, "number");
    assert_int_equal(e.kind[0].score.examples, RECORDS / 2);
    assert_int_equal(e.kind[0].score.correct, RECORDS / 2);
    assert_string_equal(e.kind[1].name, "label");
    assert_int_equal(e.kind[1].score.correct, 0);
    double of_tokens, expected = mean_loss(t->model, &d, &of_tokens);
    assert_true(fabs(e.loss - expected) < 1e-5 * expected);
    assert_true(fabs(of_tokens - expected) > 1e-4 * expected); /* answers are of unlike lengths */
    assert_true(fabs(log(e.perplexity) - of_tokens) < 1e-5 * of_tokens);
    assert_true(e.decoded_tokens >= RECORDS);
    tacit_dataset_free(&d);
}

static void test_cache_limit_and_threads(void **state)
{
    tiny_model *t = *state;
    tacit_dataset d = make_dataset(t);
    tacit_evaluation one, two;
    tacit_row_cache *cache;
    tacit_pool *pool;
    tacit_evaluation_options how = {.max_tokens = LONGEST, .limit = 7};
    assert_int_equal(tacit_pool_new(&pool, 3, NULL), TACIT_OK);
    assert_int_equal(tacit_row_cache_new(&cache, t->model, 1 << 20, NULL, NULL, NULL), TACIT_OK);
    how.cache = cache;
    assert_int_equal(tacit_evaluate(&one, t->model, &d, &how, NULL, NULL), TACIT_OK);
    assert_int_equal(one.records, 7);
    assert_int_equal(tacit_row_cache_get_stats(cache).encoded, 2);
    assert_int_equal(tacit_evaluate(&two, t->model, &d, &how, pool, NULL), TACIT_OK);
    assert_int_equal(tacit_row_cache_get_stats(cache).encoded, 2);
    assert_int_equal(one.score.correct, two.score.correct);
    assert_true(one.loss == two.loss);
    tacit_row_cache_free(cache);
    tacit_pool_free(pool);
    tacit_dataset_free(&d);
}

/* A question that leaves about *left rows of the context; *left becomes how many. */
static tacit_dataset long_question(const tacit_model *model, char letter, size_t *left)
{
    tacit_dataset d = {.path = copy("memory"), .count = 1, .record = calloc(1, sizeof *d.record)};
    size_t rows = 0, letters = 1, most = tacit_model_context_length(model) - *left;
    tacit_record *r = d.record;
    *r = (tacit_record){.id = copy("long"), .n_messages = 2, .line = 1};
    r->message = calloc(2, sizeof *r->message);
    for (int i = 0; i < 2; i++) {
        r->message[i].role = i ? TACIT_ROLE_ASSISTANT : TACIT_ROLE_USER;
        r->message[i].content = calloc(1, sizeof(tacit_content));
        r->message[i].n_content = 1;
        r->message[i].content[0] = (tacit_content){TACIT_CONTENT_TEXT, copy("x")};
    }
    for (; rows < most; letters++) {
        tacit_input in;
        char *text = malloc(2 * letters + 1);
        for (size_t i = 0; i < letters; i++)
            memcpy(text + 2 * i, (const char[]){letter, ' '}, 2);
        text[2 * letters] = '\0';
        free(r->message[0].content[0].text);
        r->message[0].content[0].text = text;
        assert_int_equal(tacit_example_prompt(&in, model, r->message, 1, NULL, NULL), TACIT_OK);
        rows = in.count;
        tacit_input_free(&in);
    }
    *left = tacit_model_context_length(model) - rows;
    assert_true(rows < most + 3);
    return d;
}

/* Every row of the context is used, and the last token stands behind it. */
static void test_answers_that_fill_the_context(void **state)
{
    tiny_model *t = *state;
    size_t filled = 0;
    for (char letter = 'a'; letter < 'k'; letter++) {
        size_t left = 8;
        tacit_dataset d = long_question(t->model, letter, &left);
        tacit_evaluation e;
        tacit_error err = {0};
        const tacit_evaluation_options how = {.max_tokens = 64};
        if (tacit_evaluate(&e, t->model, &d, &how, NULL, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        if (e.finished[TACIT_FINISH_CONTEXT]) {
            assert_int_equal(e.decoded_tokens, left + 1);
            filled++;
        } else
            assert_int_equal(e.finished[TACIT_FINISH_STOP], 1);
        tacit_dataset_free(&d);
    }
    assert_true(filled > 0);
}

static void test_records_that_cannot_be_read(void **state)
{
    tiny_model *t = *state;
    tacit_dataset d = make_dataset(t);
    tacit_evaluation e;
    tacit_error err = {0};
    tacit_evaluation_options how = {.max_tokens = 1};
    char *name = d.record[4].message[0].content[0].text;
    name[strlen(name) - 1] = '?';
    assert_int_equal(tacit_evaluate(&e, t->model, &d, &how, NULL, &err), TACIT_OK);
    assert_int_equal(e.skipped, 1);
    assert_int_equal(e.records, RECORDS - 1);
    how.strict = true;
    assert_int_equal(tacit_evaluate(&e, t->model, &d, &how, NULL, &err), TACIT_NOT_FOUND);
    assert_non_null(strstr(err.message, "memory:5:"));
    how.strict = false;
    d.count = 0;
    assert_int_equal(tacit_evaluate(&e, t->model, &d, &how, NULL, &err), TACIT_BAD_INPUT);
    d.count = RECORDS;
    tacit_dataset_free(&d);
}

/* Nothing is right or wrong where a model's numbers are none; infinite ones have a largest, and no
 * loss. */
static void test_logits_that_are_no_numbers(void **state)
{
    tiny_model *t = *state;
    tacit_dataset d = make_dataset(t);
    tacit_evaluation e;
    tacit_error err = {0};
    float *norm = (float *)(uintptr_t)t->model->text.output_norm, was = norm[3];
    const float wrong[] = {NAN, INFINITY};
    tacit_evaluation_options how = {.max_tokens = 1};
    for (int i = 0; i < 2; i++) {
        norm[3] = wrong[i];
        assert_int_equal(tacit_evaluate(&e, t->model, &d, &how, NULL, &err), TACIT_FAILED);
        assert_non_null(strstr(err.message, "not a number"));
    }
    norm[3] = was;
    assert_int_equal(tacit_evaluate(&e, t->model, &d, &how, NULL, &err), TACIT_OK);
    assert_true(isfinite(e.loss));
    tacit_dataset_free(&d);
}

static int setup(void **state)
{
    static tiny_model t;
    tacit_log_init("test", TACIT_LOG_ERROR);
    t = tiny_load(true);
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%d.jpg", t.folder, i);
        const unsigned char *data = i ? jpeg_full : jpeg_plain;
        if (tacit_file_write(path, data, i ? sizeof jpeg_full : sizeof jpeg_plain, 0600, NULL) !=
            TACIT_OK)
            return -1;
    }
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    tiny_model *t = *state;
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%d.jpg", t->folder, i);
        unlink(path);
    }
    tiny_free(t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_and_loss),
        cmocka_unit_test(test_cache_limit_and_threads),
        cmocka_unit_test(test_answers_that_fill_the_context),
        cmocka_unit_test(test_records_that_cannot_be_read),
        cmocka_unit_test(test_logits_that_are_no_numbers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
