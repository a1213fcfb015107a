#include "engine/quantize.h"

#include "common/memory_limit.h"
#include "engine/dequant.h"
#include "engine/support.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUANTIZATION_VERSION 2 /* of the ecosystem's block layouts */
#define TASK_VALUES 32768      /* of the rows that one task converts */

/* ---- what becomes of each tensor ---- */

/* Where names of tensors that are multiplied begin, by kind of file; all end in ".weight". */
static const struct {
    const char *kind, *prefix;
} multiplied[] = {
    {"text", "token_embd."}, {"text", "output."},  {"text", "blk."},
    {"mmproj", "v.blk."},    {"mmproj", "a.blk."}, {"mmproj", "mm."},
};

/* Parts of names below those prefixes that are no linears, or linears too small to lose anything.
 */
static const char *const kept[] = {"norm",  "_gate_inp", "position_embd", "conv1d",
                                   "conv_", ".conv.",    "_conv",         ".ssm_"};

/* What a type becomes where its blocks do not divide the rows. */
static const struct {
    tacit_type from, to;
} fallback[] = {
    {TACIT_TYPE_Q4_K, TACIT_TYPE_Q5_0}, {TACIT_TYPE_Q5_K, TACIT_TYPE_Q5_1},
    {TACIT_TYPE_Q6_K, TACIT_TYPE_Q8_0}, {TACIT_TYPE_Q8_0, TACIT_TYPE_F16},
    {TACIT_TYPE_Q5_1, TACIT_TYPE_F16},  {TACIT_TYPE_Q5_0, TACIT_TYPE_F16},
    {TACIT_TYPE_Q4_1, TACIT_TYPE_F16},  {TACIT_TYPE_Q4_0, TACIT_TYPE_F16},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name), end = strlen(suffix);
    return size >= end && strcmp(name + size - end, suffix) == 0;
}

static bool is_multiplied(const char *kind, const gguf_tensor *t)
{
    bool found = false;
    for (size_t i = 0; i < COUNT(multiplied); i++)
        found |= strcmp(multiplied[i].kind, kind) == 0 &&
                 strncmp(t->name, multiplied[i].prefix, strlen(multiplied[i].prefix)) == 0;
    for (size_t i = 0; i < COUNT(kept); i++)
        found &= !strstr(t->name, kept[i]);
    /* Text models may stack the matrices of their experts; encoders' third dimension is a kernel.
     */
    uint32_t most = strcmp(kind, "text") == 0 ? 3 : 2;
    return found && t->n_dims >= 2 && t->n_dims <= most && has_suffix(t->name, ".weight");
}

static const tacit_type_traits *fitting(const tacit_type_traits *type, const gguf_tensor *t)
{
    for (size_t i = 0; i < COUNT(fallback); i++)
        if (t->ne[0] % type->block_values != 0 && fallback[i].from == type->type)
            type = tacit_type_find(fallback[i].to);
    return type;
}

static double bits_of(const tacit_type_traits *type)
{
    return 8.0 * (double)type->block_bytes / (double)type->block_values;
}

static const tacit_type_traits *type_of_output(const quantize_options *o)
{
    const tacit_type_traits *least = tacit_type_find(TACIT_TYPE_Q6_K);
    return o->output ? o->output : bits_of(o->type) < bits_of(least) ? least : o->type;
}

/* Before blocks and rows are looked at. */
static const tacit_type_traits *wanted_type(const quantize_plan *p, const gguf_tensor *t)
{
    const quantize_options *o = p->options;
    bool is_text = strcmp(support_kind(p->file), "text") == 0;
    for (size_t i = 0; i < o->n_rules; i++)
        if (fnmatch(o->rule[i].pattern, t->name, 0) == 0)
            return o->rule[i].type;
    if (is_text && strcmp(t->name, "output.weight") == 0)
        return type_of_output(o);
    if (is_text && strcmp(t->name, "token_embd.weight") == 0) {
        bool tied = !gguf_tensor_find(p->file, "output.weight");
        return o->embedding ? o->embedding : tied ? type_of_output(o) : o->type;
    }
    return o->type;
}

static tacit_status plan_weights(quantize_plan *p, quantize_tensor *q, tacit_error *err)
{
    const gguf_tensor *t = q->from;
    const importance *weights = p->options->weights;
    const importance_entry *e = weights ? importance_find(weights, t->name) : NULL;
    if (!q->to || !q->to->fit || !weights)
        return TACIT_OK;
    p->unweighted += !e;
    if (e && (e->columns != t->ne[0] || (e->matrices != 1 && e->matrices != t->ne[2])))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: the importance matrix has %zu columns of %zu matrices, the tensor "
                          "%llu of %llu; it is another model's",
                          t->name, e->columns, e->matrices, (unsigned long long)t->ne[0],
                          (unsigned long long)t->ne[2]);
    p->weighted += e != NULL;
    q->weights = e;
    return TACIT_OK;
}

static tacit_status plan_tensor(quantize_plan *p, const char *kind, quantize_tensor *q,
                                tacit_error *err)
{
    const gguf_tensor *t = q->from;
    bool multiplied_by = is_multiplied(kind, t);
    if (multiplied_by)
        q->wanted = wanted_type(p, t);
    else if (strcmp(kind, "text") == 0 && t->n_dims == 1)
        q->wanted = tacit_type_find(TACIT_TYPE_F32);
    if (!q->wanted || q->wanted->type == t->type)
        return TACIT_OK;
    q->to = fitting(q->wanted, t);
    if ((uint32_t)q->to->type == t->type) {
        q->to = NULL;
        return TACIT_OK;
    }
    if (!t->traits) {
        char types[160];
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: tensor %s: type %s cannot be read; expected %s", gguf_name(p->file),
                          t->name, tacit_type_ggml_name(t->type),
                          tacit_type_list(types, sizeof types));
    }
    p->requantized += t->traits->block_values > 1;
    return plan_weights(p, q, err);
}

static tacit_status check_kind(const gguf_file *file, const char *kind, tacit_error *err)
{
    tacit_status status = gguf_check_whole(file, err);
    if (status != TACIT_OK)
        return status;
    if (strcmp(kind, "adapter") == 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: an adapter, which stays as it is: it is small and trained against "
                          "its base; quantize the base instead",
                          gguf_name(file));
    if (strcmp(kind, "other") == 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: expected a text model (with a tokenizer) or an mmproj (architecture "
                          "clip), found neither",
                          gguf_name(file));
    return TACIT_OK;
}

/* A pattern with a typing error would otherwise be obeyed in silence. */
static tacit_status check_rules(const quantize_plan *p, const char *kind, tacit_error *err)
{
    for (size_t i = 0; i < p->options->n_rules; i++) {
        bool matches = false;
        for (size_t t = 0; t < p->count && !matches; t++)
            matches = is_multiplied(kind, p->tensor[t].from) &&
                      fnmatch(p->options->rule[i].pattern, p->tensor[t].from->name, 0) == 0;
        if (!matches)
            return tacit_fail(err, TACIT_USAGE,
                              "%s: no tensor that is converted matches '%s'; tacit inspect lists "
                              "the names",
                              gguf_name(p->file), p->options->rule[i].pattern);
    }
    return TACIT_OK;
}

static tacit_status check_weights(const quantize_plan *p, tacit_error *err)
{
    if (p->unweighted == 0 || p->weighted > 0)
        return TACIT_OK;
    if (strcmp(support_kind(p->file), "text") != 0)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s: an importance matrix is of the linears of a text model, this is an "
                          "encoder; leave it out here",
                          gguf_name(p->file));
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "%s: the importance matrix names none of its tensors; it is another model's",
                      gguf_name(p->file));
}

tacit_status quantize_plan_make(quantize_plan *out, const gguf_file *file,
                                const quantize_options *options, tacit_error *err)
{
    const char *kind = support_kind(file);
    size_t n = gguf_tensor_count(file);
    *out = (quantize_plan){.file = file, .options = options};
    tacit_status status = check_kind(file, kind, err);
    if (status != TACIT_OK)
        return status;
    out->tensor = calloc(n ? n : 1, sizeof *out->tensor);
    if (!out->tensor)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for a plan", gguf_name(file));
    out->count = n;
    for (size_t i = 0; i < n; i++)
        out->tensor[i].from = gguf_tensor_at(file, i);
    status = check_rules(out, kind, err);
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        status = plan_tensor(out, kind, &out->tensor[i], err);
    return status == TACIT_OK ? check_weights(out, err) : status;
}

void quantize_plan_free(quantize_plan *p)
{
    free(p->tensor);
    *p = (quantize_plan){0};
}

/* ---- converting one tensor ---- */

/* Of one quantize_write. */
typedef struct quantize_run {
    quantize_plan *plan;
    tacit_pool *pool;
    void (*seen)(void *ctx, size_t i);
    void *ctx;
    struct fill_job *job; /* one for each tensor */
} quantize_run;

typedef struct fill_job {
    const quantize_run *run;
    quantize_tensor *tensor;
} fill_job;

typedef struct convert_job {
    const quantize_tensor *q;
    uint8_t *out;
    size_t row_bytes, rows_of_task;
    float *value; /* [threads, 2, ne0]: a row, and what is read of it again */
    float *mean;  /* [matrices, ne0]: weights of columns, or NULL */
    double *loss; /* [rows]: squared change; not finite where a value is not, or does not fit */
} convert_job;

/* Infinite where x holds what the type cannot: all but two have halves for scales. */
static double squared_change(const tacit_type_traits *to, const float *x, const float *y, size_t n)
{
    double sum = 0;
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)y[i];
        most = fmaxf(most, fabsf(x[i]));
        sum += e * e;
    }
    bool wide = to->type == TACIT_TYPE_F32 || to->type == TACIT_TYPE_BF16;
    return wide || most <= 65504 ? sum : INFINITY;
}

static void convert_row(const convert_job *job, size_t row, float *x, float *y)
{
    const gguf_tensor *t = job->q->from;
    const tacit_type_traits *to = job->q->to;
    size_t n = (size_t)t->ne[0];
    uint8_t *out = job->out + row * job->row_bytes;
    dequant_row(t->traits, x, t->data + row * t->row_bytes, n);
    if (to->fit) {
        size_t matrix = job->q->weights && job->q->weights->matrices > 1 ? row / t->ne[1] : 0;
        to->fit(out, x, job->mean ? job->mean + matrix * n : NULL, n);
    } else {
        to->from_f32(out, x, n);
    }
    dequant_row(to, y, out, n);
    job->loss[row] = squared_change(to, x, y, n);
}

static void convert_rows(void *ctx, size_t i, size_t thread)
{
    const convert_job *job = ctx;
    size_t n = (size_t)job->q->from->ne[0], end = (i + 1) * job->rows_of_task;
    float *x = job->value + thread * 2 * n;
    for (size_t row = i * job->rows_of_task; row < end && row < job->q->from->rows; row++)
        convert_row(job, row, x, x + n);
}

static tacit_status sum_losses(const convert_job *job, quantize_tensor *q, tacit_error *err)
{
    double sum = 0;
    for (size_t row = 0; row < q->from->rows; row++) {
        if (!isfinite(job->loss[row]))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "tensor %s, row %zu: a value is not finite, or beyond what %s holds; "
                              "nothing was written",
                              q->from->name, row, q->to->name);
        sum += job->loss[row];
    }
    q->error = sqrt(sum / ((double)q->from->rows * (double)q->from->ne[0]));
    return TACIT_OK;
}

/* What a tensor takes while it is written: its new bytes, and the working memory of its conversion.
 */
static uint64_t bytes_of(const quantize_tensor *q, size_t threads)
{
    uint64_t n = q->from->ne[0], rows = q->from->rows;
    if (!q->to)
        return q->from->bytes;
    uint64_t matrices = q->weights ? q->weights->matrices : 0;
    return rows * (n / q->to->block_values * q->to->block_bytes) + rows * sizeof(double) +
           (2 * threads + matrices) * n * sizeof(float);
}

/* One tensor is held at a time: the largest decides, before anything is written. */
static tacit_status judge_memory(const quantize_plan *p, size_t threads, tacit_error *err)
{
    const quantize_tensor *largest = NULL;
    uint64_t most = 0;
    char what[GGUF_MAX_NAME + 64];
    for (size_t i = 0; i < p->count; i++)
        if (bytes_of(&p->tensor[i], threads) > most) {
            largest = &p->tensor[i];
            most = bytes_of(largest, threads);
        }
    if (!largest)
        return TACIT_OK;
    snprintf(what, sizeof what, "the largest tensor, %s as %s,", largest->from->name,
             largest->to ? largest->to->name : tacit_type_ggml_name(largest->from->type));
    return tacit_memory_judge(most, what,
                              "nothing was written; convert it where that much is, or to a "
                              "smaller type",
                              err);
}

static bool take_memory(convert_job *job, size_t threads)
{
    const quantize_tensor *q = job->q;
    size_t n = (size_t)q->from->ne[0];
    job->value = reallocarray(NULL, threads * 2 * n, sizeof *job->value);
    job->loss = calloc(q->from->rows, sizeof *job->loss);
    if (q->weights)
        job->mean = reallocarray(NULL, q->weights->matrices * n, sizeof *job->mean);
    for (size_t m = 0; job->mean && m < q->weights->matrices; m++)
        importance_mean(q->weights, m, job->mean + m * n);
    return job->value && job->loss && (job->mean || !q->weights);
}

static tacit_status convert(quantize_tensor *q, uint8_t *out, tacit_pool *pool, tacit_error *err)
{
    size_t n = (size_t)q->from->ne[0], rows = (size_t)q->from->rows;
    convert_job job = {.q = q, .out = out};
    job.row_bytes = n / q->to->block_values * q->to->block_bytes;
    job.rows_of_task = n < TASK_VALUES ? TASK_VALUES / n : 1;
    size_t threads = tacit_pool_threads(pool);
    tacit_status status = TACIT_OK;
    if (!take_memory(&job, threads))
        status = tacit_memory_fail(bytes_of(q, threads), q->from->name, "nothing was written", err);
    if (status == TACIT_OK) {
        tacit_pool_run(pool, (rows + job.rows_of_task - 1) / job.rows_of_task, convert_rows, &job);
        status = sum_losses(&job, q, err);
    }
    free(job.value);
    free(job.loss);
    free(job.mean);
    return status;
}

/* What is copied is judged like what is converted: a file with values that are none is of no use.
 */
static tacit_status copy(const quantize_tensor *q, uint8_t *out, size_t bytes, tacit_error *err)
{
    const gguf_tensor *t = q->from;
    size_t n = (size_t)t->ne[0];
    memcpy(out, t->data, bytes);
    if (!t->traits)
        return TACIT_OK;
    float *x = malloc(n * sizeof *x);
    if (!x)
        return tacit_memory_fail(n * sizeof *x, t->name, "nothing was written", err);
    tacit_status status = TACIT_OK;
    for (size_t row = 0; row < t->rows && status == TACIT_OK; row++) {
        dequant_row(t->traits, x, t->data + row * t->row_bytes, n);
        for (size_t i = 0; i < n && status == TACIT_OK; i++)
            if (!isfinite(x[i]))
                status = tacit_fail(
                    err, TACIT_BAD_INPUT,
                    "tensor %s, row %zu: a value is not finite; nothing was written", t->name, row);
    }
    free(x);
    return status;
}

static tacit_status fill(void *ctx, uint8_t *out, size_t bytes, tacit_error *err)
{
    const fill_job *job = ctx;
    quantize_tensor *q = job->tensor;
    tacit_status status = TACIT_OK;
    if (q->to)
        status = convert(q, out, job->run->pool, err);
    else
        status = copy(q, out, bytes, err);
    if (status == TACIT_OK && job->run->seen)
        job->run->seen(job->run->ctx, (size_t)(q - job->run->plan->tensor));
    return status;
}

/* ---- the file ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Keys under which the ecosystem keeps what the weights were. */
static void put_weights_keys(gguf_writer *w, const quantize_options *o)
{
    const char *path = o->weights_path ? base_name(o->weights_path) : "";
    if (!o->weights)
        return;
    gguf_put_string(w, "quantize.imatrix.file", path, strlen(path));
    if (o->weights->dataset)
        gguf_put_string(w, "quantize.imatrix.dataset", o->weights->dataset,
                        strlen(o->weights->dataset));
    gguf_put_i32(w, "quantize.imatrix.entries_count", (int32_t)o->weights->count);
    gguf_put_i32(w, "quantize.imatrix.chunks_count", (int32_t)(o->weights->chunks & INT32_MAX));
}

static void put_all(gguf_writer *w, const quantize_plan *p, const quantize_run *run)
{
    gguf_put_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    gguf_put_u32(w, "general.file_type", p->options->type->file_type);
    put_weights_keys(w, p->options);
    gguf_put_keys_of(w, p->file);
    for (size_t i = 0; i < p->count; i++) {
        const gguf_tensor *t = p->tensor[i].from;
        uint32_t type = p->tensor[i].to ? (uint32_t)p->tensor[i].to->type : t->type;
        run->job[i] = (fill_job){run, &p->tensor[i]};
        gguf_put_tensor_later(w, t->name, t->n_dims, t->ne, type, fill, &run->job[i]);
    }
}

tacit_status quantize_write(quantize_plan *p, const char *path, tacit_pool *pool,
                            void (*seen)(void *ctx, size_t i), void *ctx, tacit_error *err)
{
    quantize_run run = {.plan = p, .pool = pool, .seen = seen, .ctx = ctx};
    tacit_status status = judge_memory(p, tacit_pool_threads(pool), err);
    if (status != TACIT_OK)
        return status;
    gguf_writer *w = gguf_writer_new();
    run.job = calloc(p->count ? p->count : 1, sizeof *run.job);
    if (run.job) {
        put_all(w, p, &run);
        status = gguf_write(w, path, err);
    } else {
        status = tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to write it", path);
    }
    gguf_writer_free(w);
    free(run.job);
    return status;
}
