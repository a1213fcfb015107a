#include "engine/adapter.h"

#include "common/log.h"
#include "common/memory_limit.h"
#include "common/text.h"
#include "engine/adapter_parts.h"
#include "engine/ffa.h"
#include "engine/layout.h"
#include "engine/lora_sites.h"
#include "engine/model_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTER_FORMAT 1

struct tacit_adapter {
    adapter_keys keys;
    bool core;                        /* of ADAPTER_TYPE_CORE */
    bool prompts;                     /* of ADAPTER_TYPE_PROMPT */
    soft_prompt prompt[SOFT_PROMPTS]; /* rows owned */
    tacit_memory_tally drawn;
    uint8_t digest[TACIT_DIGEST_BYTES];
    adapter_pair *pair;
    size_t count;
};

/* ---- reading ---- */

static tacit_status expect_string(const gguf_file *file, const char *key, const char *expected,
                                  const char *hint, tacit_error *err)
{
    gguf_string found;
    tacit_status status = gguf_get_string(file, key, &found, err);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: no %s; expected '%s': %s", gguf_name(file),
                          key, expected, hint);
    if (status != TACIT_OK)
        return status;
    if (found.size == strlen(expected) && memcmp(found.data, expected, found.size) == 0)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s is '%.*s', expected '%s': %s", gguf_name(file),
                      key, found.size < 64 ? (int)found.size : 64, found.data, expected, hint);
}

/* A hexadecimal key of exactly `size` bytes; *found is false when the file has none. */
static tacit_status read_hex(const gguf_file *file, const char *key, uint8_t *out, size_t size,
                             bool *found, tacit_error *err)
{
    char text[2 * TACIT_DIGEST_BYTES + 1];
    gguf_string value;
    *found = false;
    tacit_status status = gguf_get_string(file, key, &value, err);
    if (status == TACIT_NOT_FOUND)
        return TACIT_OK;
    if (status != TACIT_OK)
        return status;
    *found = true;
    if (value.size == 2 * size) {
        memcpy(text, value.data, value.size);
        text[value.size] = '\0';
        if (tacit_unhex(out, size, text))
            return TACIT_OK;
    }
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s is not %zu hexadecimal digits", gguf_name(file),
                      key, 2 * size);
}

static tacit_status read_u64(const gguf_file *file, const char *key, uint64_t max, uint64_t *out,
                             tacit_error *err)
{
    tacit_status status = gguf_get_u64(file, key, 0, max, out, err);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

static tacit_status check_base(const gguf_file *file, const tacit_model *model,
                               const tacit_adapter_info *info, tacit_error *err)
{
    char expected[2 * TACIT_DIGEST_BYTES + 1], found[2 * TACIT_DIGEST_BYTES + 1];
    if (!info->has_base_digest) {
        tacit_log_warn("%s: no tacit.base_digest: only the shapes tell that it fits this model",
                       gguf_name(file));
        return TACIT_OK;
    }
    const uint8_t *base = tacit_model_base_digest(model);
    if (memcmp(base, info->base_digest, TACIT_DIGEST_BYTES) == 0)
        return TACIT_OK;
    tacit_hex(expected, base, TACIT_DIGEST_BYTES);
    tacit_hex(found, info->base_digest, TACIT_DIGEST_BYTES);
    return tacit_fail(
        err, TACIT_INTEGRITY,
        "%s: trained on the base %s, but this model is %s; load it with its own: the text "
        "model and each --mmproj, in their order",
        gguf_name(file), found, expected);
}

static bool is_string(const gguf_file *file, const char *key, const char *expected)
{
    gguf_string found;
    tacit_error none;
    return gguf_get_string(file, key, &found, &none) == TACIT_OK &&
           found.size == strlen(expected) && memcmp(found.data, expected, found.size) == 0;
}

static tacit_status read_kind(adapter_keys *k, const gguf_file *file, tacit_error *err)
{
    static const char *const types[] = {ADAPTER_TYPE_LORA, ADAPTER_TYPE_TACIT_LORA,
                                        ADAPTER_TYPE_CORE, ADAPTER_TYPE_PROMPT};
    bool found;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (is_string(file, "adapter.type", types[i]))
            k->type = types[i];
    if (!k->type)
        return expect_string(file, "adapter.type", ADAPTER_TYPE_LORA,
                             "of other adapters " ADAPTER_TYPE_TACIT_LORA ", " ADAPTER_TYPE_CORE
                             " and " ADAPTER_TYPE_PROMPT " are known",
                             err);
    if (strcmp(k->type, ADAPTER_TYPE_CORE) != 0)
        return TACIT_OK;
    tacit_status status = read_hex(file, "tacit.seed", k->seed, sizeof k->seed, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_BAD_INPUT,
                            "%s: no tacit.seed, from which the halves of its pairs are drawn",
                            gguf_name(file));
    return status;
}

static tacit_status read_alpha(const gguf_file *file, double *alpha, tacit_error *err)
{
    *alpha = 0;
    tacit_status status = gguf_get_f64(file, "adapter.lora.alpha", alpha, err);
    if (status == TACIT_NOT_FOUND)
        return TACIT_OK;
    if (status == TACIT_OK && (!isfinite(*alpha) || *alpha < 0))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: adapter.lora.alpha is %g; expected a finite number of at least 0",
                          gguf_name(file), *alpha);
    return status;
}

static tacit_status read_format(const gguf_file *file, tacit_error *err)
{
    uint64_t format = ADAPTER_FORMAT;
    tacit_status status = read_u64(file, "tacit.format", UINT64_MAX, &format, err);
    if (status != TACIT_OK || format == ADAPTER_FORMAT)
        return status;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: tacit.format is %llu, this program knows %d; update it", gguf_name(file),
                      (unsigned long long)format, ADAPTER_FORMAT);
}

tacit_status adapter_keys_read(adapter_keys *out, const gguf_file *file, tacit_error *err)
{
    tacit_adapter_info *info = &out->info;
    tacit_status status = TACIT_OK;
    bool found;
    *out = (adapter_keys){0};
    TACIT_TRY(expect_string(file, "general.type", "adapter", "this is no adapter", err), out);
    TACIT_TRY(read_kind(out, file, err), out);
    TACIT_TRY(read_format(file, err), out);
    TACIT_TRY(read_u64(file, "tacit.version", UINT64_MAX, &info->version, err), out);
    TACIT_TRY(read_u64(file, "tacit.parent_version", UINT64_MAX, &info->parent_version, err), out);
    TACIT_TRY(read_hex(file, "tacit.lineage", info->lineage, sizeof info->lineage, &found, err),
              out);
    TACIT_TRY(read_u64(file, "tacit.canaries", UINT64_MAX, &info->canaries, err), out);
    TACIT_TRY(read_hex(file, "tacit.base_digest", info->base_digest, sizeof info->base_digest,
                       &info->has_base_digest, err),
              out);
    TACIT_TRY(read_alpha(file, &out->alpha, err), out);
    if (info->canaries)
        tacit_log_warn("%s: trained with %llu canaries, for an audit: not an adapter to use",
                       gguf_name(file), (unsigned long long)info->canaries);
out:
    return status;
}

static tacit_status read_info(tacit_adapter *a, const gguf_file *file, const tacit_model *model,
                              tacit_error *err)
{
    adapter_keys keys;
    tacit_status status;
    TACIT_TRY(adapter_keys_read(&keys, file, err), out);
    a->keys = keys;
    a->core = strcmp(a->keys.type, ADAPTER_TYPE_CORE) == 0;
    a->prompts = strcmp(a->keys.type, ADAPTER_TYPE_PROMPT) == 0;
    TACIT_TRY(expect_string(file, "general.architecture", model->text.architecture,
                            "it was made for another kind of model", err),
              out);
    TACIT_TRY(check_base(file, model, &a->keys.info, err), out);
out:
    return status;
}

/* Values that were read must be finite. */
static tacit_status refuse_not_finite(const gguf_file *file, const gguf_tensor *t, const float *out,
                                      tacit_error *err)
{
    for (uint64_t i = 0; i < t->rows * t->ne[0]; i++)
        if (!isfinite(out[i]))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: tensor %s: value %llu is not finite; refused", gguf_name(file),
                              t->name, (unsigned long long)i);
    return TACIT_OK;
}

/* The linear that a tensor of the file adapts, and what of the pair it is. */
static tacit_status find_site(const tacit_adapter *a, const gguf_file *file,
                              const tacit_model *model, const gguf_tensor *t, lora_site *site,
                              char *part, tacit_error *err)
{
    char base[GGUF_MAX_NAME + 1], names[160];
    *part = layout_base_name(t->name, base, sizeof base);
    if (*part && (*part == 'c') == a->core && lora_site_find(site, model, base))
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: tensor %s adapts nothing of this model; expected blk.N.NAME.weight%s "
                      "with N below %zu and NAME of a linear that the layer has, of %s%s",
                      gguf_name(file), t->name,
                      a->core ? ".lora_core" : ", then .lora_a or .lora_b,", model->text.n_layers,
                      text_linear_names(names, sizeof names),
                      "; or the same of an encoder's linear, or of an output of its own");
}

static tacit_status check_shape(const gguf_file *file, const gguf_tensor *t, char part,
                                const lora_site *s, tacit_error *err)
{
    uint64_t rank = part == 'a' ? t->ne[1] : t->ne[0];
    uint64_t expected = part == 'a' ? s->n_in : part == 'b' ? s->n_out : rank;
    uint64_t found = part == 'a' ? t->ne[0] : t->ne[1];
    if (!t->traits)
        return tacit_type_refuse(gguf_name(file), t->name, t->type, err);
    if (t->n_dims != 2 || found != expected || rank < 1 || rank > TACIT_TRAINABLE_RANK_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s is [%llu, %llu]; expected %s with a rank of 1 to %d and "
                          "%llu values",
                          gguf_name(file), t->name, (unsigned long long)t->ne[0],
                          (unsigned long long)t->ne[1],
                          part == 'a'   ? "[n_in, rank]"
                          : part == 'b' ? "[rank, n_out]"
                                        : "[rank, rank]",
                          TACIT_TRAINABLE_RANK_MAX, (unsigned long long)expected);
    return TACIT_OK;
}

static adapter_pair *pair_for(tacit_adapter *a, const lora_site *s)
{
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->pair[i].tensor, s->tensor) == 0)
            return &a->pair[i];
    char *name = strdup(s->tensor);
    if (!name)
        return NULL;
    adapter_pair *p = &a->pair[a->count++];
    *p = (adapter_pair){.tensor = name, .n_in = s->n_in, .n_out = s->n_out};
    return p;
}

/* The halves around a core; `ordinal`: of its tensor in the file, which lists them as the layout
 * does. */
static tacit_status draw_halves(tacit_adapter *a, const gguf_file *file, adapter_pair *p,
                                size_t ordinal, tacit_error *err)
{
    size_t bytes = p->rank * (p->n_in + p->n_out) * sizeof *p->a;
    tacit_status status = tacit_memory_tally_add(&a->drawn, bytes, "the drawn halves of an adapter",
                                                 "use one of a smaller rank", err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "%s", gguf_name(file));
    p->a = malloc(p->rank * p->n_in * sizeof *p->a);
    p->b = malloc(p->n_out * p->rank * sizeof *p->b);
    if (!p->a || !p->b)
        return tacit_memory_fail(bytes, "the drawn halves of an adapter",
                                 "use one of a smaller rank", err);
    ffa_fill(p->a, p->rank, p->n_in, a->keys.seed, ordinal);
    ffa_fill(p->b, p->n_out, p->rank, a->keys.seed, FFA_B | ordinal);
    return TACIT_OK;
}

static tacit_status read_part(tacit_adapter *a, const gguf_file *file, const tacit_model *model,
                              const gguf_tensor *t, tacit_error *err)
{
    lora_site site;
    char part;
    float *values;
    tacit_status status = find_site(a, file, model, t, &site, &part, err);
    if (status == TACIT_OK)
        status = check_shape(file, t, part, &site, err);
    if (status != TACIT_OK)
        return status;
    size_t rank = (size_t)(part == 'a' ? t->ne[1] : t->ne[0]);
    adapter_pair *p = pair_for(a, &site);
    if (!p)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for tensor %s", gguf_name(file),
                          t->name);
    status = gguf_tensor_values(file, t, &values, err);
    if (status != TACIT_OK)
        return status;
    *(part == 'a' ? &p->a : part == 'b' ? &p->b : &p->core) = values;
    if (p->rank && p->rank != rank)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s has rank %zu, its other half rank %zu", gguf_name(file),
                          t->name, rank, p->rank);
    p->rank = rank;
    if (a->core)
        status = draw_halves(a, file, p, a->count - 1, err);
    return status == TACIT_OK ? refuse_not_finite(file, t, values, err) : status;
}

static tacit_status read_pairs(tacit_adapter *a, const gguf_file *file, const tacit_model *model,
                               tacit_error *err)
{
    double alpha = a->keys.alpha;
    size_t n = gguf_tensor_count(file);
    tacit_status status = TACIT_OK;
    /* Every pair has one tensor of its own at least, so n bounds their number. */
    a->count = 0;
    a->pair = calloc(n ? n : 1, sizeof *a->pair);
    if (!a->pair)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for %zu tensors", gguf_name(file),
                          n);
    for (size_t i = 0; i < n; i++) {
        status = read_part(a, file, model, gguf_tensor_at(file, i), err);
        if (status != TACIT_OK)
            return status;
    }
    for (size_t i = 0; i < a->count; i++) {
        adapter_pair *p = &a->pair[i];
        if (!p->a || !p->b)
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s.lora_%c has no other half",
                              gguf_name(file), p->tensor, p->a ? 'a' : 'b');
        p->scale = alpha > 0 ? (float)(alpha / (double)p->rank) : 1.0f;
    }
    if (a->count == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: an adapter without tensors", gguf_name(file));
    return TACIT_OK;
}

static tacit_status read_prompt(tacit_adapter *a, const gguf_file *file, const tacit_model *model,
                                const gguf_tensor *t, tacit_error *err)
{
    size_t place = 0;
    float *rows;
    while (place < SOFT_PROMPTS && strcmp(t->name, soft_prompt_name((soft_prompt_place)place)) != 0)
        place++;
    if (place == SOFT_PROMPTS)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s: expected %s or %s", gguf_name(file),
                          t->name, soft_prompt_name(SOFT_PROMPT_TEXT),
                          soft_prompt_name(SOFT_PROMPT_IMAGE));
    if (!t->traits)
        return tacit_type_refuse(gguf_name(file), t->name, t->type, err);
    if (t->n_dims > 2 || t->ne[0] != model->text.embedding || t->rows < 1 ||
        t->rows > SOFT_PROMPT_MAX_ROWS)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s is [%llu, %llu]; expected [%zu, rows] with 1 to %d rows",
                          gguf_name(file), t->name, (unsigned long long)t->ne[0],
                          (unsigned long long)t->rows, model->text.embedding, SOFT_PROMPT_MAX_ROWS);
    tacit_status status = gguf_tensor_values(file, t, &rows, err);
    if (status != TACIT_OK)
        return status;
    a->prompt[place] = (soft_prompt){(size_t)t->rows, rows};
    return refuse_not_finite(file, t, rows, err);
}

static tacit_status read_prompts(tacit_adapter *a, const gguf_file *file, const tacit_model *model,
                                 tacit_error *err)
{
    tacit_status status = TACIT_OK;
    size_t n = gguf_tensor_count(file);
    if (n == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: an adapter without tensors", gguf_name(file));
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        status = read_prompt(a, file, model, gguf_tensor_at(file, i), err);
    return status;
}

tacit_status adapter_from_file(tacit_adapter **out, const tacit_model *model, const gguf_file *file,
                               tacit_error *err)
{
    tacit_status status = TACIT_OK;
    tacit_adapter *a = calloc(1, sizeof *a);
    if (!a)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", gguf_name(file));
    TACIT_TRY(read_info(a, file, model, err), fail);
    TACIT_TRY((a->prompts ? read_prompts : read_pairs)(a, file, model, err), fail);
    *out = a;
    return TACIT_OK;
fail:
    tacit_adapter_free(a);
    return status;
}

tacit_status tacit_adapter_load(tacit_adapter **out, const tacit_model *model, const char *path,
                                tacit_error *err)
{
    gguf_file *file = NULL;
    tacit_adapter *a = NULL;
    tacit_status status = gguf_open(&file, path, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(adapter_from_file(&a, model, file, err), out);
    gguf_digest(file, a->digest);
    *out = a;
    a = NULL;
out:
    tacit_adapter_free(a);
    gguf_close(file);
    return status;
}

void tacit_adapter_free(tacit_adapter *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->count; i++) {
        free((void *)(uintptr_t)a->pair[i].tensor);
        free(a->pair[i].a);
        free(a->pair[i].b);
        free(a->pair[i].core);
    }
    free(a->pair);
    for (size_t k = 0; k < SOFT_PROMPTS; k++)
        free((void *)(uintptr_t)a->prompt[k].rows);
    free(a);
}

const tacit_adapter_info *tacit_adapter_get_info(const tacit_adapter *a)
{
    return &a->keys.info;
}

const adapter_keys *adapter_get_keys(const tacit_adapter *a)
{
    return &a->keys;
}

const adapter_pair *adapter_find(const tacit_adapter *a, const char *tensor)
{
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->pair[i].tensor, tensor) == 0)
            return &a->pair[i];
    return NULL;
}

tacit_low_rank adapter_low_rank(const tacit_adapter *a, const char *tensor)
{
    const adapter_pair *p = a ? adapter_find(a, tensor) : NULL;
    return p ? (tacit_low_rank){.a = p->a,
                                .b = p->b,
                                .rank = p->rank,
                                .scale = p->scale,
                                .core = p->core}
             : (tacit_low_rank){0};
}

tacit_status adapter_beside(encoder_adapter *out, const tacit_adapter *a, const model_encoder *e,
                            tacit_error *err)
{
    size_t n = e->kind->tensor_count(e->self);
    tacit_low_rank *pair = calloc(n, sizeof *pair);
    *out = (encoder_adapter){.pair = pair};
    if (!pair)
        return tacit_fail(err, TACIT_NO_MEMORY, "adapter: no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++) {
        pair[i] = adapter_low_rank(a, e->kind->tensor_at(e->self, i).name);
        out->max_rank = pair[i].rank > out->max_rank ? pair[i].rank : out->max_rank;
    }
    return TACIT_OK;
}

soft_prompt adapter_prompt(const tacit_adapter *a, soft_prompt_place place)
{
    return a->prompt[place];
}

tacit_status tacit_adapter_prepend(const tacit_adapter *a, const tacit_model *model,
                                   tacit_input *in, tacit_error *err)
{
    return a ? soft_prompt_insert(in, a->prompt, model->text.embedding, a->digest, err) : TACIT_OK;
}

size_t adapter_pair_count(const tacit_adapter *a)
{
    return a->count;
}

const adapter_pair *adapter_pair_at(const tacit_adapter *a, size_t i)
{
    return &a->pair[i];
}

const uint8_t *adapter_digest(const tacit_adapter *a)
{
    return a->digest;
}
