#include "common/file.h"
#include "common/json_print.h"
#include "common/log.h"
#include "common/options.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/kernels.h"
#include "engine/quantize.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct quantize_command {
    const char *type, *output, *embedding, *weights;
    tacit_option_list rule;
    uint64_t threads;
    bool json;
} quantize_command;

/* Everything that the command holds, released together. */
typedef struct quantize_state {
    tacit_pool *pool;
    gguf_file *file;
    importance weights;
    quantize_rule rule[TACIT_OPTION_LIST_MAX];
    char *pattern[TACIT_OPTION_LIST_MAX];
    quantize_options options;
    quantize_plan plan;
} quantize_state;

static tacit_status parse_type(const tacit_type_traits **out, const char *option, const char *name,
                               tacit_error *err)
{
    char types[160], lower[16] = "";
    size_t n = name ? strlen(name) : 0;
    for (size_t i = 0; n < sizeof lower && i < n; i++)
        lower[i] = (char)tolower((unsigned char)name[i]);
    *out = name ? tacit_type_by_name(lower) : NULL;
    if (*out || !name)
        return TACIT_OK;
    bool mixture = n > 5 && strstr(lower, "_k_");
    return tacit_fail(
        err, TACIT_USAGE, "--%s %s: expected %s%s", option, name,
        tacit_type_list(types, sizeof types),
        mixture ? "; a mixture is q4_k with --tensor-type for what is to be kept finer" : "");
}

/* PATTERN=TYPE. */
static tacit_status parse_rules(quantize_state *s, const tacit_option_list *list, tacit_error *err)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->item[i], *equals = strrchr(text, '=');
        if (!equals || equals == text)
            return tacit_fail(err, TACIT_USAGE, "--tensor-type %s: expected PATTERN=TYPE", text);
        s->pattern[i] = strndup(text, (size_t)(equals - text));
        if (!s->pattern[i])
            return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %s", text);
        s->rule[i].pattern = s->pattern[i];
        tacit_status status = parse_type(&s->rule[i].type, "tensor-type", equals + 1, err);
        if (status != TACIT_OK)
            return status;
    }
    s->options.rule = s->rule;
    s->options.n_rules = list->count;
    return TACIT_OK;
}

static tacit_status parse_command(quantize_state *s, const quantize_command *c, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(kernels_check(err), done);
    TACIT_TRY(parse_type(&s->options.type, "type", c->type, err), done);
    TACIT_TRY(parse_type(&s->options.output, "output-type", c->output, err), done);
    TACIT_TRY(parse_type(&s->options.embedding, "embedding-type", c->embedding, err), done);
    TACIT_TRY(parse_rules(s, &c->rule, err), done);
done:
    return status;
}

/* ---- what is told ---- */

/* A type that was wanted, what became of it, and how often. */
typedef struct fallback_count {
    const tacit_type_traits *wanted, *to;
    const gguf_tensor *first;
    size_t tensors;
} fallback_count;

enum { MOST_FALLBACKS = 64 }; /* pairs of types that fall back to each other are fewer */

static void count_fallback(fallback_count *found, size_t *n, const quantize_tensor *q)
{
    size_t i = 0;
    while (i < *n && (found[i].to != q->to || found[i].wanted != q->wanted))
        i++;
    if (i == MOST_FALLBACKS)
        return;
    if (i == *n)
        found[(*n)++] = (fallback_count){q->wanted, q->to, q->from, 0};
    found[i].tensors++;
}

/* One line for each pair of types, with how many tensors and the first of them. */
static void warn_of_fallbacks(const quantize_plan *p)
{
    fallback_count found[MOST_FALLBACKS];
    size_t n = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->tensor[i].to && p->tensor[i].to != p->tensor[i].wanted)
            count_fallback(found, &n, &p->tensor[i]);
    for (size_t i = 0; i < n; i++) {
        char more[32] = "";
        if (found[i].tensors > 1)
            snprintf(more, sizeof more, " and %zu more", found[i].tensors - 1);
        tacit_log_warn("%s%s: rows of %llu values are no multiple of %zu, so they become %s "
                       "instead of %s",
                       found[i].first->name, more, (unsigned long long)found[i].first->ne[0],
                       found[i].wanted->block_values, found[i].to->name, found[i].wanted->name);
    }
}

static void warn_of_plan(const quantize_plan *p)
{
    if (p->requantized > 0)
        tacit_log_warn("%zu tensors are quantized already and lose a second time; start from a "
                       "file of f32, f16 or bf16 where there is one",
                       p->requantized);
    if (p->unweighted > 0)
        tacit_log_warn("%zu tensors are not in the importance matrix and are converted without it",
                       p->unweighted);
    warn_of_fallbacks(p);
}

static void show_progress(void *ctx, size_t i)
{
    const quantize_plan *p = ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%zu of %zu tensors%s", i + 1, p->count, i + 1 == p->count ? "\n" : "");
}

static size_t bytes_after(const quantize_tensor *q)
{
    const gguf_tensor *t = q->from;
    return q->to ? t->rows * (t->ne[0] / q->to->block_values * q->to->block_bytes) : t->bytes;
}

static json_t *tensor_json(const quantize_tensor *q)
{
    const gguf_tensor *t = q->from;
    json_t *object = json_pack(
        "{s:s,s:s,s:s,s:I}", "name", t->name, "from", tacit_type_ggml_name(t->type), "to",
        q->to ? q->to->name : tacit_type_ggml_name(t->type), "bytes", (json_int_t)bytes_after(q));
    if (object && q->to) {
        json_object_set_new(object, "rmse", json_real(q->error));
        json_object_set_new(object, "weighted", json_boolean(q->weights != NULL));
        if (q->to != q->wanted)
            json_object_set_new(object, "instead_of", json_string(q->wanted->name));
    }
    return object;
}

static tacit_status print_json(const quantize_plan *p, tacit_error *err)
{
    json_int_t before = 0, after = 0;
    json_t *tensors = json_array();
    for (size_t i = 0; i < p->count; i++) {
        before += (json_int_t)p->tensor[i].from->bytes;
        after += (json_int_t)bytes_after(&p->tensor[i]);
        json_array_append_new(tensors, tensor_json(&p->tensor[i]));
    }
    json_t *object =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:o}", "type", p->options->type->name, "bytes_before",
                  before, "bytes", after, "requantized", (json_int_t)p->requantized, "weighted",
                  (json_int_t)p->weighted, "tensors", tensors);
    return tacit_json_print(object, TACIT_JSON_FLOAT_DIGITS, err);
}

static void print_text(const quantize_plan *p)
{
    size_t before = 0, after = 0;
    for (size_t i = 0; i < p->count; i++) {
        const quantize_tensor *q = &p->tensor[i];
        const char *from = tacit_type_ggml_name(q->from->type);
        before += q->from->bytes;
        after += bytes_after(q);
        if (q->to)
            printf("%-40s %-5s -> %-5s rmse %.3g%s%s\n", q->from->name, from, q->to->name, q->error,
                   q->weights ? ", weighted" : "",
                   q->to != q->wanted ? ", rows do not divide" : "");
    }
    printf("%zu bytes of tensors became %zu\n", before, after);
}

static tacit_status quantize(quantize_state *s, const quantize_command *c, const char *in,
                             const char *out, tacit_error *err)
{
    const char *const source[] = {in, c->weights};
    tacit_status status;
    TACIT_TRY(parse_command(s, c, err), done);
    TACIT_TRY(tacit_file_check_results(&out, 1, source, 2, err), done);
    TACIT_TRY(tacit_pool_new(&s->pool, (size_t)c->threads, err), done);
    TACIT_TRY(tacit_status_of_input(gguf_open(&s->file, in, err), err), done);
    if (c->weights) {
        TACIT_TRY(tacit_status_of_input(importance_load(&s->weights, c->weights, err), err), done);
        s->options.weights = &s->weights;
        s->options.weights_path = c->weights;
    }
    TACIT_TRY(quantize_plan_make(&s->plan, s->file, &s->options, err), done);
    warn_of_plan(&s->plan);
    TACIT_TRY(quantize_write(&s->plan, out, s->pool, show_progress, &s->plan, err), done);
    if (c->json)
        status = print_json(&s->plan, err);
    else
        print_text(&s->plan);
done:
    return status;
}

static void release(quantize_state *s)
{
    quantize_plan_free(&s->plan);
    importance_free(&s->weights);
    gguf_close(s->file);
    tacit_pool_free(s->pool);
    for (size_t i = 0; i < TACIT_OPTION_LIST_MAX; i++)
        free(s->pattern[i]);
    free(s);
}

tacit_status cmd_quantize(int argc, char **argv, tacit_error *err)
{
    quantize_command c = {0};
    bool help = false;
    const char *path[2] = {NULL, NULL};
    size_t n;
    char types[160];
    const tacit_option table[] = {
        {"type", 0, TACIT_OPTION_TEXT, &c.type, true, "T", tacit_type_list(types, sizeof types), 0,
         0},
        {"imatrix", 0, TACIT_OPTION_TEXT, &c.weights, false, "FILE",
         "weighs columns: what tacit calibrate wrote", 0, 0},
        {"output-type", 0, TACIT_OPTION_TEXT, &c.output, false, "T",
         "of the output; without it T, but q6_k at least", 0, 0},
        {"embedding-type", 0, TACIT_OPTION_TEXT, &c.embedding, false, "T", "of the embedding", 0,
         0},
        {"tensor-type", 0, TACIT_OPTION_LIST, &c.rule, false, "PATTERN=T",
         "of tensors whose names match, * for any text; the first that matches counts", 0, 0},
        CMD_THREADS_ROW(&c.threads),
        {"json", 0, TACIT_OPTION_FLAG, &c.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit quantize", "IN.gguf OUT.gguf", 2, 2,
                               "writes a text model or an mmproj with weights of other types"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, path, &n, &help, err);
    if (status != TACIT_OK || help)
        return status;
    quantize_state *s = calloc(1, sizeof *s);
    if (!s)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory");
    status = quantize(s, &c, path[0], path[1], err);
    release(s);
    return status;
}
