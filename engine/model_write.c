#include "engine/model_write.h"

#include "engine/layout.h"
#include "engine/model_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const tacit_type_rule tacit_types_q8_0[] = {
    {"token_embd", ".weight", 2, TACIT_TYPE_Q8_0},
    {"output", ".weight", 2, TACIT_TYPE_Q8_0},
    {"blk.", ".weight", 2, TACIT_TYPE_Q8_0},
    {"v.blk.", ".weight", 2, TACIT_TYPE_Q8_0},
    {"mm.", ".weight", 2, TACIT_TYPE_Q8_0},
    {"v.patch_embd", ".weight", 2, TACIT_TYPE_F16},
    {"a.blk.", ".weight", 2, TACIT_TYPE_Q8_0},
    {"a.conv1d.", ".weight", 2, TACIT_TYPE_F16},
    {"s.patch_embd", ".weight", 2, TACIT_TYPE_Q8_0},
    {"", "", 0, TACIT_TYPE_F32},
    {NULL, NULL, 0, TACIT_TYPE_F32},
};

const tacit_type_rule tacit_types_f32[] = {
    {"v.patch_embd", ".weight", 2, TACIT_TYPE_F32},
    {"", "", 0, TACIT_TYPE_F32},
    {NULL, NULL, 0, TACIT_TYPE_F32},
};

static bool rule_holds(const tacit_type_rule *rule, const gguf_tensor *t)
{
    size_t size = strlen(t->name), prefix = strlen(rule->prefix), suffix = strlen(rule->suffix);
    return t->n_dims >= rule->min_dims && prefix + suffix <= size &&
           memcmp(t->name, rule->prefix, prefix) == 0 &&
           memcmp(t->name + size - suffix, rule->suffix, suffix) == 0;
}

static const tacit_type_traits *type_for(const tacit_type_rule *rules, const gguf_tensor *t)
{
    uint32_t type = t->type;
    for (const tacit_type_rule *r = rules; r->prefix; r++)
        if (rule_holds(r, t)) {
            type = r->type;
            break;
        }
    const tacit_type_traits *traits = tacit_type_find(type);
    if (traits && t->ne[0] % traits->block_values != 0)
        traits = tacit_type_find(TACIT_TYPE_F16);
    return traits;
}

static tacit_status refuse_not_finite(const char *name, const float *values, size_t n,
                                      tacit_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "model: %s: value %zu is not finite; nothing was written", name, i);
    return TACIT_OK;
}

/* One tensor, made when its turn comes, so that memory holds one of them. */
typedef struct save_job {
    const gguf_file *file;
    const gguf_tensor *from;
    const tacit_type_traits *to; /* NULL: the file's bytes */
    const float *trained;        /* NULL: the file's values */
} save_job;

static void convert_rows(const save_job *job, const float *values, uint8_t *out)
{
    const gguf_tensor *t = job->from;
    size_t n = (size_t)t->ne[0], row_bytes = n / job->to->block_values * job->to->block_bytes;
    for (uint64_t row = 0; row < t->rows; row++)
        job->to->from_f32(out + row * row_bytes, values + row * n, n);
}

static tacit_status fill(void *ctx, uint8_t *out, size_t bytes, tacit_error *err)
{
    const save_job *job = ctx;
    const gguf_tensor *t = job->from;
    float *own = NULL;
    if (!job->to) {
        memcpy(out, t->data, bytes);
        return TACIT_OK;
    }
    tacit_status status =
        job->trained ? refuse_not_finite(t->name, job->trained, (size_t)(t->rows * t->ne[0]), err)
                     : gguf_tensor_values(job->file, t, &own, err);
    if (status == TACIT_OK)
        convert_rows(job, job->trained ? job->trained : own, out);
    free(own);
    return status;
}

static tacit_status plan_tensor(save_job *job, const gguf_file *file, const gguf_tensor *t,
                                const tacit_layout *layout, const float *values,
                                const tacit_type_rule *rules, tacit_error *err)
{
    const tacit_type_traits *to = type_for(rules, t);
    size_t i = layout_find(layout, t->name);
    bool trained = i < layout->count;
    *job = (save_job){.file = file, .from = t};
    if (!trained && (!t->traits || !to || to->type == t->type))
        return TACIT_OK;
    if (!to)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "model: tensor %s: its type %u cannot be written; give it a rule",
                          t->name, t->type);
    job->to = to;
    if (!trained)
        return TACIT_OK;
    const tacit_trainable_entry *e = &layout->entry[i];
    if (e->rows * e->cols != t->rows * t->ne[0])
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "model: %s has %zu values in the file, %zu in the trainable set", t->name,
                          (size_t)(t->rows * t->ne[0]), e->rows * e->cols);
    job->trained = values + e->offset;
    return TACIT_OK;
}

/* general.file_type: that of the type most values have. */
static uint32_t file_type_of(const gguf_file *file, const tacit_type_rule *rules)
{
    uint64_t most = 0, sum[64] = {0};
    uint32_t file_type = 0;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        const tacit_type_traits *traits = type_for(rules, t);
        if (!traits || traits->file_type >= 64)
            continue;
        sum[traits->file_type] += t->rows * t->ne[0];
        if (sum[traits->file_type] > most) {
            most = sum[traits->file_type];
            file_type = traits->file_type;
        }
    }
    return file_type;
}

static const gguf_file *file_of(const tacit_model *model, size_t file)
{
    if (file == 0)
        return model->text_file;
    return file <= model->n_encoders ? model->encoder[file - 1].file : NULL;
}

tacit_status tacit_model_save(const char *path, const tacit_model *model, size_t file,
                              const tacit_layout *layout, const float *values,
                              const tacit_type_rule *rules, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    char base[GGUF_MAX_NAME + 1];
    const gguf_file *source = file_of(model, file);
    if (!source)
        return tacit_fail(err, TACIT_USAGE, "%s: the model has no file %zu", path, file);
    if (layout->count && layout_base_name(layout->entry[0].name, base, sizeof base))
        return tacit_fail(err, TACIT_USAGE,
                          "%s: an adapter is not merged into its base; save it as an adapter",
                          path);
    size_t n = gguf_tensor_count(source);
    save_job *job = calloc(n ? n : 1, sizeof *job);
    gguf_writer *w = gguf_writer_new();
    if (!job)
        status = tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to write it", path);
    gguf_put_u32(w, "general.file_type", file_type_of(source, rules));
    gguf_put_keys_of(w, source);
    for (size_t i = 0; i < n && status == TACIT_OK; i++) {
        const gguf_tensor *t = gguf_tensor_at(source, i);
        status = plan_tensor(&job[i], source, t, layout, values, rules, err);
        gguf_put_tensor_later(w, t->name, t->n_dims, t->ne, job[i].to ? job[i].to->type : t->type,
                              fill, &job[i]);
    }
    if (status == TACIT_OK)
        status = gguf_write(w, path, err);
    gguf_writer_free(w);
    free(job);
    return status;
}

uint64_t model_save_bytes(const tacit_model *model)
{
    uint64_t most = 0;
    for (size_t file = 0; file_of(model, file); file++)
        for (size_t i = 0; i < gguf_tensor_count(file_of(model, file)); i++) {
            const gguf_tensor *t = gguf_tensor_at(file_of(model, file), i);
            uint64_t bytes = 2 * t->rows * t->ne[0] * sizeof(float);
            most = bytes > most ? bytes : most;
        }
    return most;
}
