/* Held-out questions answered by the inference path, as a user of the files would ask them. */
#include "scenes/pretrain.h"

#include "engine/context.h"
#include "engine/row_cache.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_TOKENS 16
#define CACHE_BYTES ((size_t)4 << 20)

typedef struct checker {
    tacit_model *model;
    tacit_context *context;
    tacit_row_cache *cache;
} checker;

static int32_t best_token(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Greedy continuation until an end token, as text. */
static tacit_status answer_greedily(checker *c, const tacit_input *in, tacit_buffer *text,
                                    tacit_error *err)
{
    const tacit_tokenizer *tokenizer = tacit_model_tokenizer(c->model);
    tacit_status status;
    tacit_context_truncate(c->context, 0);
    TACIT_TRY(tacit_context_feed(c->context, in->row, in->count, in->media, in->n_media, err), out);
    for (int i = 0; i < ANSWER_TOKENS; i++) {
        int32_t id = best_token(tacit_context_logits(c->context), tacit_model_vocab(c->model));
        if (tacit_tokenizer_is_end(tokenizer, id))
            break;
        TACIT_TRY(tacit_detokenize(tokenizer, id, false, text, err), out);
        TACIT_TRY(tacit_context_feed_token(c->context, id, err), out);
    }
    if (tacit_buffer_append(text, "", 1) != TACIT_OK)
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for an answer");
out:
    return status;
}

static tacit_status check_answer(checker *c, tacit_input *in, const char *want,
                                 pretrain_count *count, tacit_error *err)
{
    tacit_buffer got = {0};
    tacit_status status;
    TACIT_TRY(tacit_row_cache_fill(c->cache, in, err), out);
    TACIT_TRY(answer_greedily(c, in, &got, err), out);
    const char *text = (const char *)got.data;
    count->asked++;
    count->right += strcmp(text + (text[0] == ' '), want) == 0;
out:
    tacit_buffer_free(&got);
    return status;
}

static tacit_status check_field(checker *c, scene_split split, size_t index, pretrain_report *r,
                                tacit_error *err)
{
    char want[SCENE_TEXT_MAX];
    scene_field field;
    tacit_input in = {0};
    tacit_status status = pretrain_question(&in, want, &field, c->model, split, index, err);
    if (status == TACIT_OK)
        status = check_answer(c, &in, want, &r->field[field], err);
    tacit_input_free(&in);
    return status;
}

static tacit_status check_sense(checker *c, scene_split split, size_t index, int swapped,
                                pretrain_report *r, tacit_error *err)
{
    char want[SCENE_TEXT_MAX];
    size_t ask;
    tacit_input in = {0};
    tacit_status status = pretrain_sense_question(&in, want, &ask, c->model, split, index,
                                                  swapped < 0 ? 0 : 1u << swapped, err);
    if (status == TACIT_OK)
        status =
            check_answer(c, &in, want, swapped < 0 ? &r->ask[ask] : &r->swapped[ask][swapped], err);
    tacit_input_free(&in);
    return status;
}

static tacit_status check_senses(checker *c, scene_split split, size_t index, pretrain_report *r,
                                 tacit_error *err)
{
    unsigned needs = scene_ask_at(index % scene_ask_count())->needs;
    tacit_status status = check_sense(c, split, index, -1, r, err);
    for (int i = 0; i < SCENE_SENSES && status == TACIT_OK; i++)
        if ((needs & 1u << i) && needs != 1u << i)
            status = check_sense(c, split, index, i, r, err);
    return status;
}

tacit_status pretrain_load(tacit_model **out, const pretrain_files *files, tacit_error *err)
{
    const char *mmproj[PRETRAIN_FILES];
    size_t n = 0;
    for (int i = PRETRAIN_IMAGE; i < PRETRAIN_FILES; i++)
        if (files->path[i])
            mmproj[n++] = files->path[i];
    return tacit_model_load(out, files->path[PRETRAIN_TEXT], mmproj, n, NULL, err);
}

tacit_status pretrain_check(pretrain_report *out, const pretrain_files *files, scene_split split,
                            size_t n, size_t n_senses, tacit_pool *pool, tacit_error *err)
{
    checker c = {0};
    size_t asked = 0, right = 0;
    tacit_status status;
    *out = (pretrain_report){0};
    TACIT_TRY(pretrain_load(&c.model, files, err), out);
    TACIT_TRY(tacit_context_new(&c.context, c.model, NULL, pool, err), out);
    TACIT_TRY(tacit_row_cache_new(&c.cache, c.model, CACHE_BYTES, NULL, pool, err), out);
    for (size_t i = 0; i < n; i++)
        TACIT_TRY(check_field(&c, split, i, out, err), out);
    for (size_t i = 0; i < n_senses; i++)
        TACIT_TRY(check_senses(&c, split, i, out, err), out);
    for (int f = 0; f < SCENE_FIELD_COUNT; f++) {
        asked += out->field[f].asked;
        right += out->field[f].right;
    }
    out->accuracy = asked ? (double)right / (double)asked : 0;
out:
    tacit_row_cache_free(c.cache);
    tacit_context_free(c.context);
    tacit_model_free(c.model);
    return status;
}

pretrain_count pretrain_count_needs(const pretrain_report *r, unsigned needs)
{
    pretrain_count sum = {0};
    for (size_t i = 0; i < scene_ask_count(); i++) {
        if (scene_ask_at(i)->needs != needs)
            continue;
        sum.asked += r->ask[i].asked;
        sum.right += r->ask[i].right;
    }
    return sum;
}
