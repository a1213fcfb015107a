#include "engine/model_parts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_MMPROJ 8

/* The encoder of one mmproj file joins the model. */
static tacit_status load_encoder(tacit_model *m, const char *path, tacit_error *err)
{
    if (m->vision)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: the model has an image encoder already; give one mmproj for images",
                          path);
    tacit_status status = gguf_open(&m->vision_file, path, err);
    if (status == TACIT_OK)
        status = vision_load(&m->vision, m->vision_file, err);
    if (status != TACIT_OK)
        return status;
    size_t width = vision_get_shape(m->vision)->out_width;
    if (width != m->text.embedding)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: the projector gives rows of %zu values, the text model takes %zu; "
                          "the files belong to different models",
                          path, width, m->text.embedding);
    return TACIT_OK;
}

/* Of the bytes that are open: a file that is put under the path meanwhile is not this model's. */
static tacit_status set_digest(tacit_model *m, const uint8_t *known, tacit_error *err)
{
    uint8_t digest[2][TACIT_DIGEST_BYTES] = {{0}};
    const tacit_span part[2] = {{digest[0], TACIT_DIGEST_BYTES}, {digest[1], TACIT_DIGEST_BYTES}};
    if (known) {
        memcpy(m->base_digest, known, TACIT_DIGEST_BYTES);
        return TACIT_OK;
    }
    tacit_status status = gguf_digest(m->text_file, digest[0], err);
    if (status == TACIT_OK && m->vision_file)
        status = gguf_digest(m->vision_file, digest[1], err);
    tacit_digest_parts(m->base_digest, "tacit-base-1", part, m->vision_file ? 2 : 1);
    return status;
}

tacit_status tacit_model_load(tacit_model **out, const char *text, const char *const *mmproj,
                              size_t n_mmproj, const uint8_t *base_digest, tacit_error *err)
{
    *out = NULL;
    if (n_mmproj > MAX_MMPROJ)
        return tacit_fail(err, TACIT_USAGE, "%zu mmproj files: expected at most %d", n_mmproj,
                          MAX_MMPROJ);
    tacit_model *m = calloc(1, sizeof *m);
    if (!m)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to load %s", text);
    tacit_status status;
    TACIT_TRY(gguf_open(&m->text_file, text, err), failed);
    TACIT_TRY(text_model_load(&m->text, m->text_file, err), failed);
    TACIT_TRY(tacit_tokenizer_load(&m->tokenizer, m->text_file, err), failed);
    for (size_t i = 0; i < n_mmproj; i++)
        TACIT_TRY(load_encoder(m, mmproj[i], err), failed);
    TACIT_TRY(set_digest(m, base_digest, err), failed);
    *out = m;
    return TACIT_OK;
failed:
    tacit_model_free(m);
    return status;
}

void tacit_model_free(tacit_model *m)
{
    if (!m)
        return;
    vision_free(m->vision);
    tacit_tokenizer_free(m->tokenizer);
    text_model_unload(&m->text);
    gguf_close(m->vision_file);
    gguf_close(m->text_file);
    free(m);
}

tacit_status tacit_model_choose_chat(tacit_model *m, const char *name, tacit_error *err)
{
    return tacit_chat_choose(&m->chat, name, err);
}

const tacit_tokenizer *tacit_model_tokenizer(const tacit_model *m)
{
    return m->tokenizer;
}

const uint8_t *tacit_model_base_digest(const tacit_model *m)
{
    return m->base_digest;
}

size_t tacit_model_embedding(const tacit_model *m)
{
    return m->text.embedding;
}

size_t tacit_model_context_length(const tacit_model *m)
{
    return m->text.context_length;
}

size_t tacit_model_vocab(const tacit_model *m)
{
    return m->text.vocab;
}
