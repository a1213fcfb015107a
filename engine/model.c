#include "engine/model_parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MMPROJ 8
#define MAX_MARKER 128

/* A marker that the file names must be one token of the vocabulary: a text model without it is
 * another's. The kind's own marker stands where the vocabulary has it. */
static tacit_status find_marker(const tacit_model *m, const gguf_file *file, const char *key,
                                const char *usual, int32_t *out, tacit_error *err)
{
    char text[MAX_MARKER + 1] = "";
    gguf_string named = {NULL, 0};
    *out = -1;
    if (!m->tokenizer)
        return TACIT_OK;
    tacit_status status = gguf_get_string(file, key, &named, err);
    if (status == TACIT_NOT_FOUND) {
        *out = usual ? tacit_tokenizer_find(m->tokenizer, usual) : -1;
        return TACIT_OK;
    }
    if (status != TACIT_OK || named.size == 0)
        return status;
    if (named.size <= MAX_MARKER)
        memcpy(text, named.data, named.size);
    if (strlen(text) == named.size)
        *out = tacit_tokenizer_find(m->tokenizer, text);
    if (*out >= 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: %s is '%.*s', which is no token of the text model; the files belong to "
                      "different models",
                      gguf_name(file), key,
                      (int)(named.size > MAX_MARKER ? MAX_MARKER : named.size), named.data);
}

static tacit_status check_encoder(tacit_model *m, model_encoder *e, tacit_error *err)
{
    size_t width = e->kind->width(e->self);
    if (width != m->text.embedding)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: the projector gives rows of %zu values, the text model takes %zu; "
                          "the files belong to different models",
                          gguf_name(e->file), width, m->text.embedding);
    tacit_status status =
        find_marker(m, e->file, "tacit.media_begin", e->kind->begin, &e->begin, err);
    if (status == TACIT_OK)
        status = find_marker(m, e->file, "tacit.media_end", e->kind->end, &e->end, err);
    return status;
}

tacit_status model_add_encoder(tacit_model *m, gguf_file *file, tacit_error *err)
{
    const encoder_kind *kind;
    tacit_status status;
    model_encoder e = {.file = file};
    TACIT_TRY(encoder_kind_of_file(&kind, file, err), failed);
    const model_encoder *other = model_encoder_of(m, kind->modality);
    if (other) {
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "%s: there is an encoder for %s already, %s; give one file of a kind",
                            gguf_name(file), kind->word, gguf_name(other->file));
        goto failed;
    }
    e.kind = kind;
    TACIT_TRY(kind->load(&e.self, file, err), failed);
    TACIT_TRY(check_encoder(m, &e, err), failed);
    m->encoder[m->n_encoders++] = e;
    return TACIT_OK;
failed:
    if (e.self)
        e.kind->free(e.self);
    gguf_close(file);
    return status;
}

void model_remove_encoders(tacit_model *m)
{
    for (size_t i = 0; i < m->n_encoders; i++) {
        m->encoder[i].kind->free(m->encoder[i].self);
        gguf_close(m->encoder[i].file);
    }
    m->n_encoders = 0;
}

const model_encoder *model_encoder_of(const tacit_model *m, tacit_modality modality)
{
    for (size_t i = 0; i < m->n_encoders; i++)
        if (m->encoder[i].kind->modality == modality)
            return &m->encoder[i];
    return NULL;
}

tacit_status model_encoder_missing(tacit_modality modality, const char *medium, tacit_error *err)
{
    const encoder_kind *kind = encoder_kind_of_modality(modality);
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: the model has no %s encoder; give its file with --mmproj (of a device: "
                      "model.mmproj in client.yaml)",
                      medium, kind ? kind->word : "such");
}

const tacit_vision *model_vision(const tacit_model *m)
{
    const model_encoder *e = model_encoder_of(m, TACIT_MODALITY_IMAGE);
    return e ? e->self : NULL;
}

static tacit_status load_encoder(tacit_model *m, const char *path, tacit_error *err)
{
    gguf_file *file;
    tacit_status status = gguf_open(&file, path, err);
    if (status != TACIT_OK)
        return status;
    status = gguf_check_whole(file, err);
    if (status == TACIT_OK)
        return model_add_encoder(m, file, err);
    gguf_close(file);
    return status;
}

struct model_digest {
    pthread_mutex_t lock;
    bool known;
    uint8_t value[TACIT_DIGEST_BYTES];
};

static tacit_status set_digest(tacit_model *m, const uint8_t *known, tacit_error *err)
{
    if (known) {
        memcpy(m->base_digest, known, TACIT_DIGEST_BYTES);
        return TACIT_OK;
    }
    m->digest = calloc(1, sizeof *m->digest);
    if (!m->digest)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for the digest of a model");
    pthread_mutex_init(&m->digest->lock, NULL);
    return TACIT_OK;
}

static void free_digest(model_digest *d)
{
    if (d)
        pthread_mutex_destroy(&d->lock);
    free(d);
}

/* Of the bytes that are open: a file that is put under the path meanwhile is not this model's. */
static void compute_digest(const tacit_model *m, uint8_t out[TACIT_DIGEST_BYTES])
{
    uint8_t digest[1 + ENCODER_KINDS_MAX][TACIT_DIGEST_BYTES];
    tacit_span part[1 + ENCODER_KINDS_MAX];
    for (size_t i = 0; i <= m->n_encoders; i++) {
        gguf_digest(i ? m->encoder[i - 1].file : m->text_file, digest[i]);
        part[i] = (tacit_span){digest[i], TACIT_DIGEST_BYTES};
    }
    tacit_digest_parts(out, "tacit-base-1", part, 1 + m->n_encoders);
}

const uint8_t *tacit_model_base_digest(const tacit_model *m)
{
    model_digest *d = m->digest;
    if (!d)
        return m->base_digest;
    pthread_mutex_lock(&d->lock);
    if (!d->known)
        compute_digest(m, d->value);
    d->known = true;
    pthread_mutex_unlock(&d->lock);
    return d->value;
}

static tacit_status read_chat(tacit_chat *out, const tacit_tokenizer *t, tacit_error *err)
{
    tacit_status status = tacit_chat_recognise(out, tacit_tokenizer_chat_template(t), err);
    return status == TACIT_OK ? tacit_chat_check_tokens(out, t, err) : status;
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
    m->packing = fast_packing_new();
    tacit_status status;
    TACIT_TRY(gguf_open(&m->text_file, text, err), failed);
    TACIT_TRY(gguf_check_whole(m->text_file, err), failed);
    TACIT_TRY(text_model_load(&m->text, m->text_file, err), failed);
    TACIT_TRY(tacit_tokenizer_load(&m->tokenizer, m->text_file, err), failed);
    if (read_chat(&m->chat, m->tokenizer, NULL) != TACIT_OK)
        m->chat = (tacit_chat){0}; /* raw text needs none: tacit_model_check_chat says why */
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
    model_remove_encoders(m);
    tacit_tokenizer_free(m->tokenizer);
    fast_packing_free(m->packing);
    text_model_unload(&m->text);
    gguf_close(m->text_file);
    free_digest(m->digest);
    free(m);
}

tacit_status tacit_model_choose_chat(tacit_model *m, const char *name, tacit_error *err)
{
    tacit_chat chosen;
    tacit_status status = tacit_chat_choose(&chosen, name, err);
    if (status == TACIT_OK)
        status = tacit_chat_check_tokens(&chosen, m->tokenizer, err);
    if (status == TACIT_OK)
        m->chat = chosen;
    return status;
}

tacit_status tacit_model_check_chat(const tacit_model *m, tacit_error *err)
{
    tacit_chat unused;
    return m->chat.form.name ? TACIT_OK : read_chat(&unused, m->tokenizer, err);
}

const tacit_tokenizer *tacit_model_tokenizer(const tacit_model *m)
{
    return m->tokenizer;
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
