#include "engine/adapter_export.h"

#include "common/file.h"
#include "common/memory_limit.h"
#include "common/text.h"
#include "engine/adapter_parts.h"
#include "engine/lora_sites.h"
#include "engine/peft_config.h"
#include "engine/peft_names.h"
#include "engine/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METADATA_KEYS = 3, PATH_BYTES = 4096 };

/* ---- halves of ordinary pairs ---- */

typedef struct export_half {
    const adapter_pair *pair;
    char half;        /* 'a' or 'b' */
    size_t head_rows; /* of peft_file_row; 0: rows stay where they are */
} export_half;

/* Row `row` of B, or of B R: summed in double. */
static void take_b_row(float *out, const adapter_pair *p, size_t row)
{
    const float *b = p->b + row * p->rank;
    for (size_t k = 0; k < p->rank; k++) {
        double sum = 0;
        for (size_t i = 0; p->core && i < p->rank; i++)
            sum += (double)b[i] * (double)p->core[i * p->rank + k];
        out[k] = p->core ? (float)sum : b[k];
    }
}

static tacit_status fill_half(void *ctx, uint8_t *out, size_t bytes, tacit_error *err)
{
    const export_half *h = ctx;
    const adapter_pair *p = h->pair;
    float *values = (void *)out;
    size_t count = bytes / sizeof *values;
    if (h->half == 'a')
        memcpy(values, p->a, bytes);
    for (size_t row = 0; h->half == 'b' && row < p->n_out; row++)
        take_b_row(values + row * p->rank, p, peft_file_row(row, h->head_rows));
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: value %zu of its half %c is not finite; nothing was written",
                              p->tensor, i, h->half == 'a' ? 'A' : 'B');
    return TACIT_OK;
}

static tacit_status refuse(const tacit_adapter *a, tacit_error *err)
{
    if (strcmp(adapter_get_keys(a)->type, ADAPTER_TYPE_PROMPT) == 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "the adapter is a soft prompt, which is no pair of LoRA: other programs "
                          "do not get it from here; tacit runs it as it is");
    uint64_t canaries = tacit_adapter_get_info(a)->canaries;
    return canaries == 0
               ? TACIT_OK
               : tacit_fail(err, TACIT_REFUSED,
                            "the adapter was trained with %" PRIu64
                            " canaries, for an audit: other programs would not see that; export "
                            "one that was trained without",
                            canaries);
}

/* ---- PEFT ---- */

/* Everything that the two files are made of, pair by pair. */
typedef struct peft_folder {
    const tacit_adapter *adapter;
    const tacit_model *model;
    size_t n_pairs;
    lora_site *site;           /* [n_pairs] */
    peft_config_pair_row *row; /* [n_pairs]: `module` is owned */
    export_half *half;         /* [2 * n_pairs] */
    safetensors_new *tensor;   /* [2 * n_pairs]: names are owned */
    const char **target;       /* [n_pairs] at most */
    size_t n_targets;
} peft_folder;

static void folder_free(peft_folder *f)
{
    for (size_t i = 0; f->row && i < f->n_pairs; i++)
        free(f->row[i].module);
    for (size_t i = 0; f->tensor && i < 2 * f->n_pairs; i++)
        free((void *)(uintptr_t)f->tensor[i].name);
    free(f->site);
    free(f->row);
    free(f->half);
    free(f->tensor);
    free(f->target);
}

static tacit_status no_memory(tacit_error *err)
{
    return tacit_fail(err, TACIT_NO_MEMORY, "no memory to export an adapter");
}

static tacit_status folder_alloc(peft_folder *f, const tacit_adapter *a, const tacit_model *model,
                                 tacit_error *err)
{
    size_t n = adapter_pair_count(a);
    *f = (peft_folder){.adapter = a, .model = model, .n_pairs = n};
    f->site = calloc(n, sizeof *f->site);
    f->row = calloc(n, sizeof *f->row);
    f->half = calloc(2 * n, sizeof *f->half);
    f->tensor = calloc(2 * n, sizeof *f->tensor);
    f->target = calloc(n, sizeof *f->target);
    return f->site && f->row && f->half && f->tensor && f->target ? TACIT_OK : no_memory(err);
}

static tacit_status put_half(peft_folder *f, size_t i, char half, tacit_error *err)
{
    char name[PEFT_TENSOR_NAME_MAX];
    const adapter_pair *p = adapter_pair_at(f->adapter, i);
    size_t at = 2 * i + (half == 'b');
    snprintf(name, sizeof name, PEFT_TENSOR_PREFIX "%s.lora_%c.weight", f->row[i].module,
             half == 'a' ? 'A' : 'B');
    f->half[at] = (export_half){p, half, half == 'b' ? peft_head_rows(f->model, &f->site[i]) : 0};
    f->tensor[at] = (safetensors_new){strdup(name), {p->rank, p->n_in}, fill_half, &f->half[at]};
    if (half == 'b')
        f->tensor[at].shape[0] = p->n_out, f->tensor[at].shape[1] = p->rank;
    return f->tensor[at].name ? TACIT_OK : no_memory(err);
}

static tacit_status refuse_unnamed(const tacit_model *m, const adapter_pair *p, tacit_error *err)
{
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: what Hugging Face calls it is not known here (architecture %s; of "
                      "encoders those of SmolVLM are known); train without that target, or keep "
                      "the adapter as it is: tacit runs it",
                      p->tensor, m->text.architecture);
}

static tacit_status put_pair(peft_folder *f, size_t i, tacit_error *err)
{
    char module[PEFT_MODULE_MAX];
    const adapter_pair *p = adapter_pair_at(f->adapter, i);
    double alpha = adapter_get_keys(f->adapter)->alpha;
    if (!lora_site_find(&f->site[i], f->model, p->tensor) ||
        !peft_module(module, f->model, &f->site[i], 0))
        return refuse_unnamed(f->model, p, err);
    f->row[i] = (peft_config_pair_row){.module = strdup(module), .rank = (uint32_t)p->rank};
    f->row[i].alpha = alpha > 0 ? alpha : (double)p->rank;
    if (!f->row[i].module)
        return no_memory(err);
    tacit_status status = put_half(f, i, 'a', err);
    return status == TACIT_OK ? put_half(f, i, 'b', err) : status;
}

/* Whether each layer of the model that has the linear has a pair beside it. */
static bool in_all_layers(const peft_folder *f, text_linear which)
{
    size_t pairs = 0, linears = 0;
    for (size_t i = 0; i < f->n_pairs; i++)
        pairs += f->site[i].place == LORA_LAYER && f->site[i].which == which;
    for (size_t i = 0; i < f->model->text.n_layers; i++)
        linears += text_has_linear(&f->model->text.layer[i], which);
    return pairs == linears;
}

static void put_target(peft_folder *f, const char *name)
{
    for (size_t i = 0; i < f->n_targets; i++)
        if (strcmp(f->target[i], name) == 0)
            return;
    f->target[f->n_targets++] = name;
}

static void put_targets(peft_folder *f)
{
    for (size_t i = 0; i < f->n_pairs; i++) {
        const lora_site *s = &f->site[i];
        const char *name = NULL;
        if (s->place == LORA_LAYER && in_all_layers(f, s->which))
            name = peft_short_name(f->model, s->which);
        put_target(f, name ? name : f->row[i].module);
    }
}

static tacit_status write_tensors(const peft_folder *f, const char *path, tacit_error *err)
{
    const tacit_adapter_info *info = tacit_adapter_get_info(f->adapter);
    char version[24], lineage[2 * sizeof info->lineage + 1], base[2 * TACIT_DIGEST_BYTES + 1];
    snprintf(version, sizeof version, "%" PRIu64, info->version);
    tacit_hex(lineage, info->lineage, sizeof info->lineage);
    tacit_hex(base, info->base_digest, TACIT_DIGEST_BYTES);
    const char *const metadata[METADATA_KEYS][2] = {
        {"tacit.version", version}, {"tacit.lineage", lineage}, {"tacit.base_digest", base}};
    return safetensors_write(path, f->tensor, 2 * f->n_pairs, metadata,
                             info->has_base_digest ? METADATA_KEYS : METADATA_KEYS - 1, err);
}

tacit_status adapter_export_peft(const char *dir, const tacit_adapter *a, const tacit_model *model,
                                 const char *base, tacit_error *err)
{
    peft_folder f = {0};
    char tensors[PATH_BYTES], config[PATH_BYTES];
    tacit_status status;
    TACIT_TRY(refuse(a, err), out);
    TACIT_TRY(tacit_file_join(tensors, sizeof tensors, dir, PEFT_TENSORS_NAME, err), out);
    TACIT_TRY(tacit_file_join(config, sizeof config, dir, PEFT_CONFIG_NAME, err), out);
    TACIT_TRY(folder_alloc(&f, a, model, err), out);
    for (size_t i = 0; i < f.n_pairs; i++)
        TACIT_TRY(put_pair(&f, i, err), out);
    put_targets(&f);
    TACIT_TRY(tacit_file_make_dir(dir, 0755, err), out);
    const peft_config_new said = {base, f.target, f.n_targets, f.row, f.n_pairs};
    TACIT_TRY(write_tensors(&f, tensors, err), out);
    TACIT_TRY(peft_config_write(config, &said, err), out);
out:
    folder_free(&f);
    return status;
}

/* ---- GGUF ---- */

static void put_ordinary(gguf_writer *w, const adapter_pair *p, export_half *half)
{
    char name[GGUF_MAX_NAME + 16];
    const uint64_t ne[2][2] = {{p->n_in, p->rank}, {p->rank, p->n_out}};
    for (int i = 0; i < 2; i++) {
        half[i] = (export_half){p, i ? 'b' : 'a', 0};
        snprintf(name, sizeof name, "%s.lora_%c", p->tensor, half[i].half);
        gguf_put_tensor_later(w, name, 2, ne[i], TACIT_TYPE_F32, fill_half, &half[i]);
    }
}

static tacit_status put_ordinary_pairs(gguf_writer *w, const tacit_adapter *a,
                                       const tacit_model *model, export_half *half,
                                       tacit_error *err)
{
    for (size_t i = 0; i < adapter_pair_count(a); i++) {
        const adapter_pair *p = adapter_pair_at(a, i);
        lora_site site;
        if (!lora_site_find(&site, model, p->tensor) || site.place == LORA_ENCODER)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: other programs know no pairs beside encoders; export it for "
                              "PEFT, or train without that target",
                              p->tensor);
        put_ordinary(w, p, half + 2 * i);
    }
    return TACIT_OK;
}

tacit_status adapter_export_gguf(const char *path, const tacit_adapter *a, const tacit_model *model,
                                 tacit_error *err)
{
    adapter_keys keys = *adapter_get_keys(a);
    const uint8_t *base = keys.info.has_base_digest ? keys.info.base_digest : NULL;
    gguf_writer *w = NULL;
    export_half *half = NULL;
    tacit_status status = refuse(a, err);
    if (status != TACIT_OK)
        return status;
    half = calloc(2 * adapter_pair_count(a), sizeof *half);
    if (!half)
        return no_memory(err);
    w = gguf_writer_new();
    keys.type = ADAPTER_TYPE_LORA;
    adapter_keys_put(w, model, &keys, base);
    TACIT_TRY(put_ordinary_pairs(w, a, model, half, err), out);
    TACIT_TRY(gguf_write(w, path, err), out);
out:
    gguf_writer_free(w);
    free(half);
    return status;
}
