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

static tacit_status check_one(checker *c, scene_split split, size_t index, pretrain_report *r,
                              tacit_error *err)
{
    char want[SCENE_TEXT_MAX];
    scene_field field;
    tacit_input in = {0};
    tacit_buffer got = {0};
    tacit_status status;
    TACIT_TRY(pretrain_question(&in, want, &field, c->model, split, index, err), out);
    TACIT_TRY(tacit_row_cache_fill(c->cache, &in, err), out);
    TACIT_TRY(answer_greedily(c, &in, &got, err), out);
    const char *text = (const char *)got.data;
    r->asked[field]++;
    r->right[field] += strcmp(text + (text[0] == ' '), want) == 0;
out:
    tacit_input_free(&in);
    tacit_buffer_free(&got);
    return status;
}

tacit_status pretrain_check(pretrain_report *out, const char *text_path, const char *mmproj_path,
                            scene_split split, size_t n, tacit_pool *pool, tacit_error *err)
{
    checker c = {0};
    size_t asked = 0, right = 0;
    tacit_status status;
    *out = (pretrain_report){0};
    TACIT_TRY(tacit_model_load(&c.model, text_path, &mmproj_path, 1, NULL, err), out);
    TACIT_TRY(tacit_context_new(&c.context, c.model, NULL, pool, err), out);
    TACIT_TRY(tacit_row_cache_new(&c.cache, c.model, CACHE_BYTES, NULL, pool, err), out);
    for (size_t i = 0; i < n; i++)
        TACIT_TRY(check_one(&c, split, i, out, err), out);
    for (int f = 0; f < SCENE_FIELD_COUNT; f++) {
        asked += out->asked[f];
        right += out->right[f];
    }
    out->accuracy = asked ? (double)right / (double)asked : 0;
out:
    tacit_row_cache_free(c.cache);
    tacit_context_free(c.context);
    tacit_model_free(c.model);
    return status;
}
