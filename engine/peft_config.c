#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/peft_config.h"

#include "common/file.h"
#include "common/text.h"
#include "engine/trainable.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAX = 512, MATCH_STEPS = 10000, HEAP_KIB = 1024 };

/* A row of rank_pattern or alpha_pattern. */
typedef struct pattern {
    const char *key; /* of the JSON */
    pcre2_code *code;
    double value;
} pattern;

typedef struct patterns {
    pattern *row;
    size_t count;
} patterns;

struct peft_config {
    char *name;
    json_t *json;
    uint32_t rank;
    double alpha;
    bool rslora;
    patterns ranks, alphas;
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

/* ---- keys ---- */

typedef struct key_rule {
    const char *key;
    const char *why; /* NULL: read elsewhere, or says nothing of what the tensors compute */
} key_rule;

#define OF_BASE "it belongs to a base that was changed; "
#define MERGED "save it from PEFT as an ordinary LoRA"

static const key_rule rules[] = {
    {"peft_type", NULL},
    {"r", NULL},
    {"lora_alpha", NULL},
    {"use_rslora", NULL},
    {"rank_pattern", NULL},
    {"alpha_pattern", NULL},
    {"bias", NULL},
    {"init_lora_weights", NULL},
    {"target_modules", NULL},
    {"exclude_modules", NULL},
    {"layers_to_transform", NULL},
    {"layers_pattern", NULL},
    {"lora_dropout", NULL},
    {"base_model_name_or_path", NULL},
    {"revision", NULL},
    {"task_type", NULL},
    {"inference_mode", NULL},
    {"auto_mapping", NULL},
    {"peft_version", NULL},
    {"megatron_core", NULL},
    {"qalora_group_size", NULL},
    {"eva_config", NULL},
    {"use_dora", "DoRA's magnitudes are not computed; train without use_dora"},
    {"use_qalora", "QA-LoRA pools inputs; train without use_qalora"},
    {"lora_bias", "pairs have no biases here; train with lora_bias false"},
    {"fan_in_fan_out", "transposed weights are not known here; it is of GPT-2's Conv1D"},
    {"modules_to_save", "whole modules are no low-rank pairs; train without modules_to_save"},
    {"trainable_token_indices", "rows of the embedding are no pairs; train without them"},
    {"target_parameters", "pairs stand beside linears alone; train with target_modules"},
    {"layer_replication", "the base has other layers; merge it in PEFT first"},
    {"loftq_config", OF_BASE MERGED},
    {"corda_config", OF_BASE MERGED},
    {"megatron_config", "layers of Megatron are not known here"},
    {"alora_invocation_tokens", "pairs count for all tokens here; train without it"},
    {"arrow_config", "routing among adapters is not known here"},
};

static bool is_empty(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) ||
           ((json_is_object(v) || json_is_array(v)) &&
            json_object_size(v) + json_array_size(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_number(v) && json_number_value(v) == 0);
}

static const key_rule *find_rule(const char *key)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(rules[i].key, key) == 0)
            return &rules[i];
    return NULL;
}

/* A value as one line of JSON, cut where it is long. */
static const char *value_text(char out[96], const json_t *v)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    size_t size = text ? strlen(text) : 0;
    snprintf(out, 96, "%.80s%s", text ? text : "missing", size > 80 ? "..." : "");
    free(text);
    return out;
}

static tacit_status expected(const peft_config *c, const char *key, const char *what,
                             tacit_error *err)
{
    char found[96];
    return tacit_fail(err, TACIT_BAD_INPUT, "%s: %.64s: expected %s, found %s", c->name, key, what,
                      value_text(found, json_object_get(c->json, key)));
}

static tacit_status check_keys(const peft_config *c, tacit_error *err)
{
    const char *key;
    json_t *value;
    char found[96];
    json_object_foreach(c->json, key, value)
    {
        const key_rule *rule = find_rule(key);
        if ((rule && !rule->why) || is_empty(value))
            continue;
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %.64s is %s: %s", c->name, key,
                          value_text(found, value),
                          rule ? rule->why
                               : "this key of PEFT is not known here, and may change what the "
                                 "tensors mean; update this program, or train without it");
    }
    return TACIT_OK;
}

static tacit_status check_kind(const peft_config *c, tacit_error *err)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal"};
    const char *type = json_string_value(json_object_get(c->json, "peft_type"));
    const json_t *start = json_object_get(c->json, "init_lora_weights");
    const json_t *bias = json_object_get(c->json, "bias");
    bool known = !start || json_is_null(start) || json_is_boolean(start);
    if (!type || strcmp(type, "LORA") != 0)
        return expected(c, "peft_type", "\"LORA\", the kind of adapter that is known here", err);
    if (bias && (!json_is_string(bias) || strcmp(json_string_value(bias), "none") != 0))
        return expected(c, "bias", "\"none\": pairs alone are adapters here; train without biases",
                        err);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        known |= json_is_string(start) && strcmp(json_string_value(start), plain[i]) == 0;
    return known ? TACIT_OK
                 : expected(c, "init_lora_weights",
                            "true, false, \"gaussian\", \"orthogonal\" or \"eva\": other starts "
                            "change the base; " MERGED,
                            err);
}

static bool is_rank(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 1 &&
           json_integer_value(v) <= TACIT_TRAINABLE_RANK_MAX;
}

static bool is_alpha(const json_t *v)
{
    return json_is_number(v) && json_number_value(v) >= 1e-30 && json_number_value(v) <= 1e30;
}

static tacit_status read_numbers(peft_config *c, tacit_error *err)
{
    const json_t *rank = json_object_get(c->json, "r");
    const json_t *alpha = json_object_get(c->json, "lora_alpha");
    const json_t *rslora = json_object_get(c->json, "use_rslora");
    if (!is_rank(rank))
        return expected(c, "r", "a rank of 1 to 1024", err);
    if (!is_alpha(alpha))
        return expected(c, "lora_alpha", "a number from 1e-30 to 1e30", err);
    if (rslora && !json_is_boolean(rslora) && !json_is_null(rslora))
        return expected(c, "use_rslora", "true or false", err);
    c->rank = (uint32_t)json_integer_value(rank);
    c->alpha = json_number_value(alpha);
    c->rslora = json_is_true(rslora);
    return TACIT_OK;
}

/* ---- patterns ---- */

/* As PEFT has it: (.*\.)?(KEY)$ from the name's first character on. */
static tacit_status compile(const peft_config *c, pattern *p, tacit_error *err)
{
    char text[KEY_MAX + 16];
    int code;
    size_t at;
    size_t size = strlen(p->key);
    if (size > KEY_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: pattern %.64s...: expected at most %d bytes",
                          c->name, p->key, KEY_MAX);
    snprintf(text, sizeof text, "(.*\\.)?(%s)$", p->key);
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                            PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    return p->code ? TACIT_OK
                   : tacit_fail(err, TACIT_BAD_INPUT,
                                "%s: pattern '%.64s' is no regular expression (PCRE2 error %d)",
                                c->name, p->key, code);
}

static tacit_status read_patterns(peft_config *c, const char *key, patterns *out,
                                  bool (*fits)(const json_t *), const char *what, tacit_error *err)
{
    json_t *object = json_object_get(c->json, key), *value;
    const char *name;
    char found[96];
    if (!object || json_is_null(object))
        return TACIT_OK;
    if (!json_is_object(object) || json_object_size(object) > PEFT_PATTERNS_MAX)
        return expected(c, key, "an object of at most 2048 patterns", err);
    out->row = calloc(json_object_size(object) + 1, sizeof *out->row);
    if (!out->row)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", c->name);
    json_object_foreach(object, name, value)
    {
        pattern *p = &out->row[out->count];
        if (!fits(value))
            return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s of %.64s: expected %s, found %s",
                              c->name, key, name, what, value_text(found, value));
        *p = (pattern){.key = name, .value = json_number_value(value)};
        tacit_status status = compile(c, p, err);
        if (status != TACIT_OK)
            return status;
        out->count++;
    }
    return TACIT_OK;
}

/* The value of the first pattern that fits, or `otherwise`. */
static tacit_status look_up(const peft_config *c, const patterns *p, const char *module,
                            double otherwise, double *out, tacit_error *err)
{
    *out = otherwise;
    for (size_t i = 0; i < p->count; i++) {
        int code = pcre2_match(p->row[i].code, (PCRE2_SPTR)module, strlen(module), 0, 0, c->match,
                               c->limits);
        if (code == PCRE2_ERROR_NOMATCH)
            continue;
        if (code < 0)
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "%s: pattern '%.64s' takes too many steps to judge (PCRE2 error %d); "
                              "write it more simply",
                              c->name, p->row[i].key, code);
        *out = p->row[i].value;
        return TACIT_OK;
    }
    return TACIT_OK;
}

/* ---- reading ---- */

static tacit_status read_json(peft_config *c, const void *text, size_t size, tacit_error *err)
{
    json_error_t where;
    if (size > PEFT_CONFIG_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %zu bytes; expected at most %zu", c->name,
                          size, PEFT_CONFIG_MAX);
    c->json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (!c->json)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s:%d: %s; expected the " PEFT_CONFIG_NAME " of PEFT", c->name,
                          where.line, where.text);
    if (!json_is_object(c->json))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected a JSON object, as PEFT writes",
                          c->name);
    return TACIT_OK;
}

static tacit_status make_limits(peft_config *c, tacit_error *err)
{
    c->match = pcre2_match_data_create(4, NULL);
    c->limits = pcre2_match_context_create(NULL);
    if (!c->match || !c->limits)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", c->name);
    pcre2_set_match_limit(c->limits, MATCH_STEPS);
    pcre2_set_heap_limit(c->limits, HEAP_KIB);
    return TACIT_OK;
}

tacit_status peft_config_parse(peft_config **out, const void *text, size_t size, const char *name,
                               tacit_error *err)
{
    tacit_status status = TACIT_OK;
    peft_config *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c || !(c->name = strdup(name))) {
        free(c);
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", name);
    }
    TACIT_TRY(read_json(c, text, size, err), fail);
    TACIT_TRY(check_kind(c, err), fail);
    TACIT_TRY(check_keys(c, err), fail);
    TACIT_TRY(read_numbers(c, err), fail);
    TACIT_TRY(make_limits(c, err), fail);
    TACIT_TRY(read_patterns(c, "rank_pattern", &c->ranks, is_rank, "a rank of 1 to 1024", err),
              fail);
    TACIT_TRY(
        read_patterns(c, "alpha_pattern", &c->alphas, is_alpha, "a number from 1e-30 to 1e30", err),
        fail);
    *out = c;
    return TACIT_OK;
fail:
    peft_config_free(c);
    return status;
}

tacit_status peft_config_read(peft_config **out, const char *path, tacit_error *err)
{
    uint8_t *text;
    size_t size;
    *out = NULL;
    tacit_status status = tacit_file_read(path, PEFT_CONFIG_MAX, &text, &size, err);
    if (status != TACIT_OK)
        return status;
    status = peft_config_parse(out, text, size, path, err);
    free(text);
    return status;
}

static void free_patterns(patterns *p)
{
    for (size_t i = 0; i < p->count; i++)
        pcre2_code_free(p->row[i].code);
    free(p->row);
}

void peft_config_free(peft_config *c)
{
    if (!c)
        return;
    free_patterns(&c->ranks);
    free_patterns(&c->alphas);
    pcre2_match_data_free(c->match);
    pcre2_match_context_free(c->limits);
    json_decref(c->json);
    free(c->name);
    free(c);
}

static double weight_of(const peft_config *c, uint32_t rank, double alpha)
{
    return c->rslora ? alpha * sqrt(rank) : alpha;
}

tacit_status peft_config_pair(const peft_config *c, const char *module, uint32_t *rank,
                              double *weight, tacit_error *err)
{
    double r, alpha;
    tacit_status status;
    TACIT_TRY(look_up(c, &c->ranks, module, c->rank, &r, err), done);
    TACIT_TRY(look_up(c, &c->alphas, module, c->alpha, &alpha, err), done);
    *rank = (uint32_t)r;
    *weight = weight_of(c, *rank, alpha);
done:
    return status;
}

double peft_config_weight(const peft_config *c)
{
    return weight_of(c, c->rank, c->alpha);
}

/* ---- writing ---- */

/* A whole number is written as one. */
static json_t *number(double v)
{
    return v == floor(v) && fabs(v) < 0x1p53 ? json_integer((json_int_t)v) : json_real(v);
}

/* The pair whose rank and alpha most have, the first of those. */
static const peft_config_pair_row *usual_pair(const peft_config_new *n)
{
    size_t most = 0, best = 0;
    for (size_t i = 0; i < n->n_pairs; i++) {
        size_t same = 0;
        for (size_t k = 0; k < n->n_pairs; k++)
            same += n->pair[k].rank == n->pair[i].rank && n->pair[k].alpha == n->pair[i].alpha;
        if (same > most)
            best = i, most = same;
    }
    return &n->pair[best];
}

static json_t *make_config(const peft_config_new *n)
{
    const peft_config_pair_row *usual = usual_pair(n);
    json_t *targets = json_array(), *ranks = json_object(), *alphas = json_object();
    for (size_t i = 0; i < n->n_targets; i++)
        json_array_append_new(targets, json_string(n->target[i]));
    for (size_t i = 0; i < n->n_pairs; i++) {
        const peft_config_pair_row *p = &n->pair[i];
        if (p->rank != usual->rank)
            json_object_set_new(ranks, p->module, json_integer(p->rank));
        if (p->alpha != usual->alpha)
            json_object_set_new(alphas, p->module, number(p->alpha));
    }
    return json_pack("{s:s,s:s,s:s?,s:i,s:o,s:b,s:o,s:o,s:o,s:s,s:b,s:b,s:b,s:n,s:f,s:b}",
                     "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path",
                     n->base, "r", (int)usual->rank, "lora_alpha", number(usual->alpha),
                     "use_rslora", 0, "target_modules", targets, "rank_pattern", ranks,
                     "alpha_pattern", alphas, "bias", "none", "inference_mode", 1, "fan_in_fan_out",
                     0, "use_dora", 0, "modules_to_save", "lora_dropout", 0.0, "init_lora_weights",
                     1);
}

tacit_status peft_config_write(const char *path, const peft_config_new *n, tacit_error *err)
{
    json_t *config = make_config(n);
    char *text = config
                     ? json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17))
                     : NULL;
    tacit_status status =
        text ? tacit_file_write(path, text, strlen(text), 0644, err)
             : tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory for it, or a name that is not UTF-8",
                          path);
    free(text);
    json_decref(config);
    return status;
}
