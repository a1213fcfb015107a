#include "engine/support.h"

#include "engine/chat.h"
#include "engine/encoder_kind.h"
#include "engine/text_model.h"
#include "engine/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_string(const gguf_file *file, const char *key, const char *value)
{
    gguf_string found;
    return gguf_get_string(file, key, &found, NULL) == TACIT_OK && found.size == strlen(value) &&
           memcmp(found.data, value, found.size) == 0;
}

const char *support_kind(const gguf_file *file)
{
    if (is_string(file, "general.type", "adapter"))
        return "adapter";
    if (encoder_kind_is_encoder_file(file))
        return "mmproj";
    return gguf_has_key(file, "tokenizer.ggml.model") ? "text" : "other";
}

/* ---- the checks: each returns what loading would say ------------------------------------- */

static tacit_status check_text(const gguf_file *file, tacit_error *err)
{
    tacit_text_model model;
    tacit_status status = text_model_load(&model, file, err);
    if (status == TACIT_OK)
        text_model_unload(&model);
    return status;
}

static tacit_status check_encoder(const gguf_file *file, tacit_error *err)
{
    const encoder_kind *kind;
    void *encoder;
    tacit_status status = encoder_kind_of_file(&kind, file, err);
    if (status == TACIT_OK)
        status = kind->load(&encoder, file, err);
    if (status == TACIT_OK)
        kind->free(encoder);
    return status;
}

static tacit_status check_tokenizer(const gguf_file *file, tacit_error *err)
{
    tacit_tokenizer *t;
    tacit_status status = tacit_tokenizer_load(&t, file, err);
    tacit_tokenizer_free(t);
    return status;
}

/* A tokenizer that does not load is a gap of its own. */
static tacit_status check_chat_tokens(const tacit_chat *chat, const gguf_file *file,
                                      tacit_error *err)
{
    tacit_tokenizer *t;
    tacit_status status = TACIT_OK;
    if (tacit_tokenizer_load(&t, file, NULL) == TACIT_OK)
        status = tacit_chat_check_tokens(chat, t, err);
    tacit_tokenizer_free(t);
    return status;
}

static tacit_status check_chat(const gguf_file *file, tacit_error *err)
{
    gguf_string text = {NULL, 0};
    tacit_chat chat;
    if (gguf_has_key(file, "tokenizer.chat_template")) {
        tacit_status status = gguf_get_string(file, "tokenizer.chat_template", &text, err);
        if (status != TACIT_OK)
            return status;
    }
    char *copy = text.data ? strndup(text.data, text.size) : NULL;
    tacit_status status =
        text.data && !copy ? TACIT_NO_MEMORY : tacit_chat_recognise(&chat, copy, err);
    free(copy);
    return status == TACIT_OK ? check_chat_tokens(&chat, file, err) : status;
}

static const struct check {
    const char *kind; /* of files; NULL: all */
    const char *what;
    tacit_status (*run)(const gguf_file *file, tacit_error *err);
} checks[] = {
    {NULL, "file", gguf_check_whole},       {"text", "text model", check_text},
    {"text", "tokenizer", check_tokenizer}, {"text", "chat template", check_chat},
    {"mmproj", "encoder", check_encoder},
};

static tacit_status add_gap(support_gaps *g, const char *what, const char *why)
{
    support_gap *grown = reallocarray(g->gap, g->count + 1, sizeof *grown);
    if (!grown)
        return TACIT_NO_MEMORY;
    g->gap = grown;
    grown += g->count++;
    *grown = (support_gap){.what = what};
    snprintf(grown->why, sizeof grown->why, "%s", why);
    return TACIT_OK;
}

enum { LISTED_TYPES = 16 };

typedef struct type_count {
    uint32_t type;
    size_t tensors;
} type_count;

/* Tensors of types without functions, by type; those of more types than are listed are counted in
 * *further. */
static size_t count_types(const gguf_file *file, type_count out[LISTED_TYPES], size_t *further)
{
    size_t n = 0;
    *further = 0;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        size_t at = 0;
        if (t->traits)
            continue;
        while (at < n && out[at].type != t->type)
            at++;
        if (at == n && n < LISTED_TYPES)
            out[n++] = (type_count){t->type, 0};
        if (at < n)
            out[at].tensors++;
        else
            ++*further;
    }
    return n;
}

/* One gap for each type without functions, with how many tensors have it. */
static tacit_status find_types(support_gaps *g, const gguf_file *file)
{
    type_count found[LISTED_TYPES];
    char why[256], types[160], text[TACIT_TYPE_TEXT];
    size_t further, n = count_types(file, found, &further);
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < n && status == TACIT_OK; i++) {
        snprintf(why, sizeof why, "%zu tensors are of %s, which cannot be computed (%s can)",
                 found[i].tensors, tacit_type_text(text, found[i].type),
                 tacit_type_list(types, sizeof types));
        status = add_gap(g, "type", why);
    }
    if (status == TACIT_OK && further > 0) {
        snprintf(why, sizeof why, "%zu tensors are of further types", further);
        status = add_gap(g, "type", why);
    }
    return status;
}

tacit_status support_find_gaps(support_gaps *out, const gguf_file *file, tacit_error *err)
{
    const char *kind = support_kind(file);
    *out = (support_gaps){0};
    tacit_status status = find_types(out, file);
    for (size_t i = 0; i < sizeof checks / sizeof *checks && status == TACIT_OK; i++) {
        tacit_error reason = {0};
        if (checks[i].kind && strcmp(checks[i].kind, kind) != 0)
            continue;
        if (checks[i].run(file, &reason) != TACIT_OK)
            status = add_gap(out, checks[i].what, reason.message);
    }
    return status == TACIT_OK ? status
                              : tacit_fail(err, status, "no memory to inspect %s", gguf_name(file));
}

void support_gaps_free(support_gaps *g)
{
    free(g->gap);
    *g = (support_gaps){0};
}
