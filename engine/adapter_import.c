#include "engine/adapter_import.h"

#include "common/file.h"
#include "engine/adapter_parts.h"
#include "engine/lora_sites.h"
#include "engine/model_parts.h"
#include "engine/peft_config.h"
#include "engine/peft_names.h"
#include "engine/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the files ---- */

static tacit_status refuse_folder(const adapter_source *s, const char *path, tacit_error *err)
{
    char pickled[ADAPTER_SOURCE_PATH];
    tacit_status status = tacit_file_join(pickled, sizeof pickled, path, "adapter_model.bin", err);
    if (status == TACIT_OK && access(pickled, F_OK) == 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: pickled tensors, which may hold programs, are not read; save it "
                          "from PEFT with safe_serialization=True",
                          pickled);
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: there is no such file; expected a folder that PEFT "
                      "saved, or its " PEFT_TENSORS_NAME,
                      s->tensors);
}

static tacit_status find_in_folder(adapter_source *s, const char *path, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(tacit_file_join(s->tensors, sizeof s->tensors, path, PEFT_TENSORS_NAME, err), out);
    TACIT_TRY(tacit_file_join(s->config, sizeof s->config, path, PEFT_CONFIG_NAME, err), out);
    if (access(s->tensors, F_OK) != 0)
        status = refuse_folder(s, path, err);
out:
    return status;
}

tacit_status adapter_source_find(adapter_source *out, const char *path, tacit_error *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return find_in_folder(out, path, err);
    if (strlen(path) >= sizeof out->tensors ||
        folder + sizeof PEFT_CONFIG_NAME > sizeof out->config)
        return tacit_fail(err, TACIT_BAD_INPUT, "%.64s...: path is too long", path);
    snprintf(out->tensors, sizeof out->tensors, "%s", path);
    snprintf(out->config, sizeof out->config, "%.*s" PEFT_CONFIG_NAME, (int)folder, path);
    return TACIT_OK;
}

/* ---- pairs ---- */

/* A half as the file has it, and how it becomes the adapter's. */
typedef struct import_half {
    const char *path;
    const safetensors_tensor *t;
    size_t head_rows;
    float factor;
} import_half;

typedef struct import_pair {
    const lora_site *site;
    char module[PEFT_MODULE_MAX];
    import_half half[2]; /* A, B */
} import_pair;

typedef struct import_state {
    const tacit_model *model;
    const adapter_source *source;
    peft_config *config;
    safetensors_file *file;
    lora_sites sites;
    import_pair *pair; /* [sites.count] at most */
    size_t count;
} import_state;

static void state_free(import_state *s)
{
    free(s->pair);
    lora_sites_free(&s->sites);
    safetensors_close(s->file);
    peft_config_free(s->config);
}

/* All linears that a pair can stand beside. */
static tacit_status list_sites(lora_sites *out, const tacit_model *m, tacit_error *err)
{
    tacit_trainable_spec all = {.kind = TACIT_TRAIN_LORA,
                                .target = {"*", "*.*"}, /* the text model's, encoders' */
                                .n_targets = m->n_encoders > 0 ? 2 : 1,
                                .rank = 1,
                                .alpha = 1};
    return lora_sites_of(out, m, &all, err);
}

static const safetensors_tensor *find_half(const import_state *s, const char *module, char half)
{
    char name[PEFT_TENSOR_NAME_MAX];
    snprintf(name, sizeof name, PEFT_TENSOR_PREFIX "%s.lora_%c.weight", module, half);
    return safetensors_find(s->file, name);
}

static tacit_status refuse_half(const import_state *s, const import_pair *p, tacit_error *err)
{
    char other = p->half[0].t ? 'B' : 'A';
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: tensor %s is alone: expected " PEFT_TENSOR_PREFIX
                      "%s.lora_%c.weight as well; "
                      "the file is not whole",
                      s->source->tensors, p->half[other == 'A'].t->name, p->module, other);
}

/* The pair of a site under the first form of its name that the file has. */
static tacit_status find_pair(import_state *s, const lora_site *site, tacit_error *err)
{
    import_pair *p = &s->pair[s->count];
    p->site = site;
    for (size_t form = 0; form < peft_forms(s->model); form++) {
        if (!peft_module(p->module, s->model, site, form))
            continue;
        p->half[0].t = find_half(s, p->module, 'A');
        p->half[1].t = find_half(s, p->module, 'B');
        if (!p->half[0].t && !p->half[1].t)
            continue;
        s->count++;
        return p->half[0].t && p->half[1].t ? TACIT_OK : refuse_half(s, p, err);
    }
    return TACIT_OK;
}

static tacit_status check_half(const import_state *s, const safetensors_tensor *t, size_t rows,
                               size_t cols, tacit_error *err)
{
    if (!t->traits)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s has type %s; expected F32, F16 or BF16",
                          s->source->tensors, t->name, t->dtype);
    if (t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols)
        return TACIT_OK;
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: tensor %s is [%llu, %llu]%s; expected [%zu, %zu], by the model and the "
                      "rank of " PEFT_CONFIG_NAME,
                      s->source->tensors, t->name,
                      (unsigned long long)(t->n_dims > 0 ? t->shape[0] : 1),
                      (unsigned long long)(t->n_dims > 1 ? t->shape[1] : 1),
                      t->n_dims == 2 ? "" : " and not of two dimensions", rows, cols);
}

static tacit_status judge_pair(const import_state *s, import_pair *p, tacit_error *err)
{
    uint32_t rank;
    double weight;
    tacit_status status;
    TACIT_TRY(peft_config_pair(s->config, p->module, &rank, &weight, err), out);
    TACIT_TRY(check_half(s, p->half[0].t, rank, p->site->n_in, err), out);
    TACIT_TRY(check_half(s, p->half[1].t, p->site->n_out, rank, err), out);
    for (int i = 0; i < 2; i++) {
        p->half[i].path = s->source->tensors;
        p->half[i].factor = 1;
    }
    p->half[1].factor = (float)(weight / peft_config_weight(s->config));
    p->half[1].head_rows = peft_head_rows(s->model, p->site);
out:
    return status;
}

/* ---- what is left over ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);
    return size >= tail && strcmp(text + size - tail, end) == 0;
}

static const struct {
    const char *part, *why;
} strangers[] = {
    {".lora_magnitude_vector", "a magnitude of DoRA, which is not computed; train without it"},
    {".lora_embedding_", "a pair of an embedding, which is no linear; train without that target"},
    {".lora_A.bias", "a bias; train with lora_bias false"},
    {".lora_B.bias", "a bias; train with lora_bias false"},
    {".modules_to_save", "of a whole module; train without modules_to_save"},
    {".token_adapter", "of trained tokens; train without trainable_token_indices"},
    {".base_layer", "of the base; save the adapter alone"},
};

static tacit_status refuse_stranger(const import_state *s, const char *name, tacit_error *err)
{
    const char *file = s->source->tensors;
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        if (strstr(name, strangers[i].part))
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s is %s", file, name,
                              strangers[i].why);
    if (strncmp(name, PEFT_TENSOR_PREFIX, strlen(PEFT_TENSOR_PREFIX)) != 0 ||
        (!ends_with(name, ".lora_A.weight") && !ends_with(name, ".lora_B.weight")))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s is no half of a pair; expected " PEFT_TENSOR_PREFIX
                          "MODULE.lora_A.weight and .lora_B.weight, as PEFT saves LoRA",
                          file, name);
    bool tied = s->model->text.tied && strstr(name, ".lm_head.");
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: tensor %s is of a module that this model lacks%s",
                      file, name,
                      tied ? ", whose output is its embedding; train without lm_head"
                           : " (or has no pairs beside); give its own base with -m, and what holds "
                             "encoders with --mmproj");
}

static bool is_taken(const import_state *s, const safetensors_tensor *t)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->pair[i].half[0].t == t || s->pair[i].half[1].t == t)
            return true;
    return false;
}

static tacit_status check_strangers(const import_state *s, tacit_error *err)
{
    for (size_t i = 0; i < safetensors_count(s->file); i++)
        if (!is_taken(s, safetensors_at(s->file, i)))
            return refuse_stranger(s, safetensors_at(s->file, i)->name, err);
    return s->count > 0 ? TACIT_OK
                        : tacit_fail(err, TACIT_BAD_INPUT, "%s: an adapter without tensors",
                                     s->source->tensors);
}

/* ---- writing ---- */

static tacit_status fill_half(void *ctx, uint8_t *out, size_t bytes, tacit_error *err)
{
    const import_half *h = ctx;
    float *values = (void *)out;
    size_t rows = (size_t)h->t->shape[0], cols = (size_t)h->t->shape[1];
    for (size_t row = 0; row < rows; row++)
        h->t->traits->to_f32(values + peft_file_row(row, h->head_rows) * cols,
                             h->t->data + row * cols * h->t->traits->block_bytes, cols);
    for (size_t i = 0; i < bytes / sizeof *values; i++) {
        values[i] *= h->factor;
        if (!isfinite(values[i]))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: tensor %s: a value is not finite; nothing was written", h->path,
                              h->t->name);
    }
    return TACIT_OK;
}

static void put_pair(gguf_writer *w, import_pair *p)
{
    char name[sizeof p->site->tensor + 16];
    for (int i = 0; i < 2; i++) {
        const safetensors_tensor *t = p->half[i].t;
        const uint64_t ne[2] = {t->shape[1], t->shape[0]};
        snprintf(name, sizeof name, "%s.lora_%c", p->site->tensor, i ? 'b' : 'a');
        gguf_put_tensor_later(w, name, 2, ne, TACIT_TYPE_F32, fill_half, &p->half[i]);
    }
}

static tacit_status write_adapter(const import_state *s, const char *path, tacit_error *err)
{
    adapter_keys keys = {.type = ADAPTER_TYPE_LORA, .alpha = peft_config_weight(s->config)};
    for (size_t i = 0; i < s->count; i++)
        if (s->pair[i].site->place == LORA_ENCODER)
            keys.type = ADAPTER_TYPE_TACIT_LORA;
    gguf_writer *w = gguf_writer_new();
    adapter_keys_put(w, s->model, &keys, tacit_model_base_digest(s->model));
    for (size_t i = 0; i < s->count; i++)
        put_pair(w, &s->pair[i]);
    tacit_status status = gguf_write(w, path, err);
    gguf_writer_free(w);
    return status;
}

static tacit_status open_source(import_state *s, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(tacit_status_of_input(safetensors_open(&s->file, s->source->tensors, err), err), out);
    TACIT_TRY(tacit_status_of_input(peft_config_read(&s->config, s->source->config, err), err),
              out);
    TACIT_TRY(list_sites(&s->sites, s->model, err), out);
    s->pair = calloc(s->sites.count, sizeof *s->pair);
    if (!s->pair)
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory for %zu pairs", s->sites.count);
out:
    return status;
}

tacit_status adapter_import(const char *path, const adapter_source *source,
                            const tacit_model *model, size_t *pairs, tacit_error *err)
{
    import_state s = {.model = model, .source = source};
    tacit_status status;
    TACIT_TRY(open_source(&s, err), out);
    for (size_t i = 0; i < s.sites.count; i++)
        TACIT_TRY(find_pair(&s, &s.sites.site[i], err), out);
    TACIT_TRY(check_strangers(&s, err), out);
    for (size_t i = 0; i < s.count; i++)
        TACIT_TRY(judge_pair(&s, &s.pair[i], err), out);
    TACIT_TRY(write_adapter(&s, path, err), out);
    *pairs = s.count;
out:
    state_free(&s);
    return status;
}
