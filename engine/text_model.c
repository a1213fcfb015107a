#include "engine/text_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS 1024
#define MAX_EMBEDDING 65536
#define MAX_HEADS 4096
#define MAX_HEAD_DIM 1024
#define MAX_FF (1u << 20)
#define MAX_CONTEXT (1u << 24)
#define MAX_VOCAB (1u << 22)
#define PREFIX "llama."

static const char *const linear_name[TEXT_LINEARS] = {
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
};

const char *text_linear_name(text_linear which)
{
    return linear_name[which];
}

text_linear text_linear_find(const char *name)
{
    int i = 0;
    while (i < TEXT_LINEARS && strcmp(linear_name[i], name) != 0)
        i++;
    return (text_linear)i;
}

/* What loading keeps beside the model: the tensors it has taken, so that one it did not take (and
 * which would change the answers) is noticed. */
typedef struct text_loader {
    tacit_text_model *m;
    const gguf_file *file;
    const gguf_tensor **taken;
    size_t n_taken;
    tacit_error *err;
} text_loader;

static const gguf_tensor *take_tensor(text_loader *t, const char *name)
{
    const gguf_tensor *tensor = gguf_tensor_find(t->file, name);
    for (size_t i = 0; tensor && i < t->n_taken; i++)
        if (t->taken[i] == tensor)
            return tensor;
    if (tensor)
        t->taken[t->n_taken++] = tensor;
    return tensor;
}

static tacit_status missing(text_loader *t, const char *name)
{
    return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: tensor %s is missing; the file is incomplete",
                      gguf_name(t->file), name);
}

static tacit_status check_architecture(text_loader *t)
{
    gguf_string name;
    tacit_status status = gguf_get_string(t->file, "general.architecture", &name, t->err);
    if (status != TACIT_OK)
        return status == TACIT_NOT_FOUND
                   ? tacit_fail(t->err, TACIT_BAD_INPUT,
                                "%s: key general.architecture is missing; expected a text model",
                                gguf_name(t->file))
                   : status;
    if (name.size == 5 && memcmp(name.data, "llama", 5) == 0)
        return TACIT_OK;
    return tacit_fail(
        t->err, TACIT_BAD_INPUT, "%s: architecture '%.*s' is not supported; expected 'llama'%s",
        gguf_name(t->file), (int)(name.size > 64 ? 64 : name.size), name.data,
        name.size == 4 && memcmp(name.data, "clip", 4) == 0 ? "; an encoder goes to --mmproj" : "");
}

static tacit_status get_size(text_loader *t, const char *key, size_t max, size_t *out)
{
    uint64_t v;
    tacit_status status = gguf_get_u64(t->file, key, 1, max, &v, t->err);
    if (status == TACIT_NOT_FOUND)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: key %s is missing", gguf_name(t->file),
                          key);
    if (status == TACIT_OK)
        *out = (size_t)v;
    return status;
}

static tacit_status get_optional_size(text_loader *t, const char *key, size_t max, size_t absent,
                                      size_t *out)
{
    *out = absent;
    return gguf_has_key(t->file, key) ? get_size(t, key, max, out) : TACIT_OK;
}

static tacit_status get_real(text_loader *t, const char *key, double absent, double min, double max,
                             double *out)
{
    *out = absent;
    if (!gguf_has_key(t->file, key))
        return TACIT_OK;
    tacit_status status = gguf_get_f64(t->file, key, out, t->err);
    if (status == TACIT_OK && !(*out >= min && *out <= max))
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s is %g: expected %g to %g",
                          gguf_name(t->file), key, *out, min, max);
    return status;
}

static bool is_array(const gguf_file *file, const char *key)
{
    for (size_t i = 0; i < gguf_key_count(file); i++) {
        gguf_value_type type;
        if (strcmp(gguf_key_at(file, i, &type), key) == 0)
            return type == GGUF_ARRAY;
    }
    return false;
}

/* An array of one number a layer. */
static tacit_status get_array(text_loader *t, const char *key, size_t max, size_t *out)
{
    size_t count, layers = t->m->n_layers;
    tacit_error ignored;
    tacit_status status = gguf_get_array(t->file, key, GGUF_U32, &count, &ignored);
    if (status != TACIT_OK)
        status = gguf_get_array(t->file, key, GGUF_I32, &count, t->err);
    if (status != TACIT_OK)
        return status;
    if (count != layers)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s has %zu entries: expected one for each of %zu layers",
                          gguf_name(t->file), key, count, layers);
    for (size_t i = 0; i < layers; i++) {
        double v = gguf_array_number(t->file, key, i);
        if (!(v >= 1 && v <= (double)max))
            return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: %s[%zu] is %g: expected 1 to %zu",
                              gguf_name(t->file), key, i, v, max);
        out[i] = (size_t)v;
    }
    return TACIT_OK;
}

/* A number for all layers or one a layer; `absent` (or NULL: required) where the key is not. */
static tacit_status get_per_layer(text_loader *t, const char *key, size_t max, const size_t *absent,
                                  size_t *out)
{
    size_t layers = t->m->n_layers;
    if (is_array(t->file, key))
        return get_array(t, key, max, out);
    if (absent && !gguf_has_key(t->file, key)) {
        memcpy(out, absent, layers * sizeof *out);
        return TACIT_OK;
    }
    size_t v = 0;
    tacit_status status = get_size(t, key, max, &v);
    for (size_t i = 0; status == TACIT_OK && i < layers; i++)
        out[i] = v;
    return status;
}

static tacit_status set_layer_numbers(text_loader *t, const size_t *heads, const size_t *kv_heads,
                                      const size_t *ff)
{
    tacit_text_model *m = t->m;
    for (size_t i = 0; i < m->n_layers; i++) {
        if (heads[i] % kv_heads[i] != 0)
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: layer %zu has %zu heads and %zu key-value heads: expected a "
                              "multiple",
                              gguf_name(t->file), i, heads[i], kv_heads[i]);
        m->layer[i].n_heads = heads[i];
        m->layer[i].n_kv_heads = kv_heads[i];
        m->layer[i].n_ff = ff[i];
        m->max_heads = heads[i] > m->max_heads ? heads[i] : m->max_heads;
        m->max_kv_heads = kv_heads[i] > m->max_kv_heads ? kv_heads[i] : m->max_kv_heads;
        m->max_ff = ff[i] > m->max_ff ? ff[i] : m->max_ff;
    }
    return TACIT_OK;
}

static tacit_status read_layer_numbers(text_loader *t)
{
    size_t layers = t->m->n_layers;
    tacit_status status;
    size_t *numbers = calloc(3 * layers, sizeof *numbers);
    if (!numbers)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for %zu layers", layers);
    size_t *heads = numbers, *kv_heads = numbers + layers, *ff = numbers + 2 * layers;
    TACIT_TRY(get_per_layer(t, PREFIX "attention.head_count", MAX_HEADS, NULL, heads), done);
    TACIT_TRY(get_per_layer(t, PREFIX "attention.head_count_kv", MAX_HEADS, heads, kv_heads), done);
    TACIT_TRY(get_per_layer(t, PREFIX "feed_forward_length", MAX_FF, NULL, ff), done);
    TACIT_TRY(set_layer_numbers(t, heads, kv_heads, ff), done);
done:
    free(numbers);
    return status;
}

static tacit_status check_experts(text_loader *t)
{
    uint64_t experts = 0;
    if (!gguf_has_key(t->file, PREFIX "expert_count"))
        return TACIT_OK;
    tacit_status status =
        gguf_get_u64(t->file, PREFIX "expert_count", 0, UINT32_MAX, &experts, t->err);
    if (status == TACIT_OK && experts > 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: a mixture of %" PRIu64 " experts is not supported; expected a "
                          "dense model",
                          gguf_name(t->file), experts);
    return status;
}

static tacit_status read_head_dim(text_loader *t)
{
    tacit_text_model *m = t->m;
    size_t heads = m->layer[0].n_heads, value_dim, rope_dim;
    if (!gguf_has_key(t->file, PREFIX "attention.key_length") && m->embedding % heads != 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %zu heads do not divide the embedding length %zu",
                          gguf_name(t->file), heads, m->embedding);
    size_t usual = m->embedding / heads;
    tacit_status status =
        get_optional_size(t, PREFIX "attention.key_length", MAX_HEAD_DIM, usual, &m->head_dim);
    if (status == TACIT_OK)
        status =
            get_optional_size(t, PREFIX "attention.value_length", MAX_HEAD_DIM, usual, &value_dim);
    if (status == TACIT_OK)
        status = get_optional_size(t, PREFIX "rope.dimension_count", MAX_HEAD_DIM, m->head_dim,
                                   &rope_dim);
    if (status != TACIT_OK)
        return status;
    if (value_dim != m->head_dim || rope_dim != m->head_dim || m->head_dim % 2 != 0 ||
        m->head_dim > MAX_HEAD_DIM)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: key length %zu, value length %zu, rope dimensions %zu: expected one "
                          "even number up to %d for all three",
                          gguf_name(t->file), m->head_dim, value_dim, rope_dim, MAX_HEAD_DIM);
    return TACIT_OK;
}

static tacit_status read_numbers(text_loader *t)
{
    tacit_text_model *m = t->m;
    tacit_status status;
    double eps;
    TACIT_TRY(check_experts(t), done);
    TACIT_TRY(get_size(t, PREFIX "context_length", MAX_CONTEXT, &m->context_length), done);
    TACIT_TRY(get_size(t, PREFIX "embedding_length", MAX_EMBEDDING, &m->embedding), done);
    TACIT_TRY(get_size(t, PREFIX "block_count", MAX_LAYERS, &m->n_layers), done);
    m->layer = calloc(m->n_layers, sizeof *m->layer);
    /* Two norms and a bias for every linear of a layer, and the output norm. */
    m->owned = calloc(m->n_layers * (TEXT_LINEARS + 2) + 1, sizeof *m->owned);
    if (!m->layer || !m->owned)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for %zu layers", m->n_layers);
    TACIT_TRY(read_layer_numbers(t), done);
    TACIT_TRY(read_head_dim(t), done);
    TACIT_TRY(get_real(t, PREFIX "attention.layer_norm_rms_epsilon", -1, 0, 1, &eps), done);
    if (eps < 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: key " PREFIX "attention.layer_norm_rms_epsilon is missing",
                          gguf_name(t->file));
    m->rms_eps = (float)eps;
done:
    return status;
}

static tacit_status read_rope_factor(text_loader *t, double *factor)
{
    gguf_string type;
    tacit_status status;
    *factor = 1;
    if (!gguf_has_key(t->file, PREFIX "rope.scaling.type"))
        return get_real(t, PREFIX "rope.scale_linear", 1, 1e-3, 1e6, factor);
    TACIT_TRY(gguf_get_string(t->file, PREFIX "rope.scaling.type", &type, t->err), done);
    if (type.size == 4 && memcmp(type.data, "none", 4) == 0)
        return TACIT_OK;
    if (type.size != 6 || memcmp(type.data, "linear", 6) != 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: rope scaling '%.*s' is not supported; expected 'none' or 'linear'",
                          gguf_name(t->file), (int)(type.size > 64 ? 64 : type.size), type.data);
    TACIT_TRY(get_real(t, PREFIX "rope.scaling.factor", 1, 1e-3, 1e6, factor), done);
done:
    return status;
}

/* A small tensor as fp32 of the model's own; *out is NULL when it is absent and may be. */
static tacit_status own_vector(text_loader *t, const char *name, size_t n, bool required,
                               const float **out)
{
    const gguf_tensor *tensor = take_tensor(t, name);
    *out = NULL;
    if (!tensor)
        return required ? missing(t, name) : TACIT_OK;
    if (tensor->ne[0] != n || tensor->rows != 1 || !tensor->traits)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: tensor %s: expected %zu computable values, found %" PRIu64
                          " x %" PRIu64 " of type %" PRIu32,
                          gguf_name(t->file), name, n, tensor->ne[0], tensor->rows, tensor->type);
    float *values = malloc(n * sizeof *values);
    if (!values)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for tensor %s", name);
    tensor->traits->to_f32(values, tensor->data, n);
    t->m->owned[t->m->n_owned++] = values;
    *out = values;
    return TACIT_OK;
}

static tacit_status read_rope(text_loader *t)
{
    tacit_text_model *m = t->m;
    tacit_status status;
    size_t half = m->head_dim / 2;
    double base, factor;
    m->rope_frequency = malloc(half * sizeof *m->rope_frequency);
    if (!m->rope_frequency)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for the rope table");
    TACIT_TRY(get_real(t, PREFIX "rope.freq_base", 10000, 1, 1e12, &base), done);
    TACIT_TRY(read_rope_factor(t, &factor), done);
    for (size_t i = 0; i < half; i++)
        m->rope_frequency[i] = pow(base, -2.0 * (double)i / (double)m->head_dim) / factor;
    const gguf_tensor *divisors = take_tensor(t, "rope_freqs.weight");
    if (!divisors)
        return TACIT_OK;
    if (divisors->type != TACIT_TYPE_F32 || divisors->ne[0] != half || divisors->rows != 1)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: tensor rope_freqs.weight: expected %zu values of f32",
                          gguf_name(t->file), half);
    for (size_t i = 0; i < half; i++) {
        float divisor;
        memcpy(&divisor, divisors->data + i * sizeof divisor, sizeof divisor);
        if (!(divisor > 0) || !isfinite(divisor))
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: rope_freqs.weight[%zu] is %g: expected a positive number",
                              gguf_name(t->file), i, (double)divisor);
        m->rope_frequency[i] /= divisor;
    }
done:
    return status;
}

static tacit_status load_linear(text_loader *t, tacit_linear *l, const char *name,
                                const float *bias, size_t n_in, size_t n_out)
{
    const gguf_tensor *tensor = take_tensor(t, name);
    if (!tensor)
        return missing(t, name);
    tacit_status status = linear_init(l, tensor, bias, n_in, n_out, t->err);
    return status == TACIT_OK ? status : tacit_fail_context(t->err, "%s", gguf_name(t->file));
}

static tacit_status load_layer(text_loader *t, size_t i)
{
    tacit_text_model *m = t->m;
    tacit_text_layer *layer = &m->layer[i];
    size_t q = layer->n_heads * m->head_dim, kv = layer->n_kv_heads * m->head_dim;
    size_t d = m->embedding, ff = layer->n_ff;
    const size_t shape[TEXT_LINEARS][2] = {
        [TEXT_Q] = {d, q},     [TEXT_K] = {d, kv},  [TEXT_V] = {d, kv},    [TEXT_O] = {q, d},
        [TEXT_GATE] = {d, ff}, [TEXT_UP] = {d, ff}, [TEXT_DOWN] = {ff, d},
    };
    char name[64];
    tacit_status status = TACIT_OK;
    for (int which = 0; which < TEXT_LINEARS; which++) {
        const float *bias;
        snprintf(name, sizeof name, "blk.%zu.%s.bias", i, linear_name[which]);
        TACIT_TRY(own_vector(t, name, shape[which][1], false, &bias), done);
        snprintf(name, sizeof name, "blk.%zu.%s.weight", i, linear_name[which]);
        TACIT_TRY(
            load_linear(t, &layer->linear[which], name, bias, shape[which][0], shape[which][1]),
            done);
    }
    snprintf(name, sizeof name, "blk.%zu.attn_norm.weight", i);
    TACIT_TRY(own_vector(t, name, d, true, &layer->attn_norm), done);
    snprintf(name, sizeof name, "blk.%zu.ffn_norm.weight", i);
    TACIT_TRY(own_vector(t, name, d, true, &layer->ffn_norm), done);
done:
    return status;
}

/* The rows of the embedding are the vocabulary; the keys that also say its size must agree. */
static tacit_status read_vocab(text_loader *t)
{
    const gguf_tensor *embedding = take_tensor(t, "token_embd.weight");
    if (!embedding)
        return missing(t, "token_embd.weight");
    if (embedding->rows < 1 || embedding->rows > MAX_VOCAB)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: token_embd.weight has %" PRIu64 " rows: expected 1 to %u",
                          gguf_name(t->file), embedding->rows, MAX_VOCAB);
    t->m->vocab = (size_t)embedding->rows;
    size_t said, tokens = t->m->vocab;
    tacit_status status = get_optional_size(t, PREFIX "vocab_size", MAX_VOCAB, t->m->vocab, &said);
    if (status == TACIT_OK && gguf_has_key(t->file, "tokenizer.ggml.tokens"))
        status = gguf_get_array(t->file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, t->err);
    if (status == TACIT_OK && (said != t->m->vocab || tokens != t->m->vocab))
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: token_embd.weight has %zu rows, " PREFIX
                          "vocab_size says %zu and the tokenizer has %zu tokens: expected one "
                          "number",
                          gguf_name(t->file), t->m->vocab, said, tokens);
    return status;
}

static tacit_status load_tensors(text_loader *t)
{
    tacit_text_model *m = t->m;
    tacit_status status;
    TACIT_TRY(read_vocab(t), done);
    TACIT_TRY(
        load_linear(t, &m->token_embedding, "token_embd.weight", NULL, m->embedding, m->vocab),
        done);
    m->tied = !gguf_tensor_find(t->file, "output.weight");
    TACIT_TRY(load_linear(t, &m->output, m->tied ? "token_embd.weight" : "output.weight", NULL,
                          m->embedding, m->vocab),
              done);
    TACIT_TRY(own_vector(t, "output_norm.weight", m->embedding, true, &m->output_norm), done);
    for (size_t i = 0; i < m->n_layers; i++)
        TACIT_TRY(load_layer(t, i), done);
done:
    return status;
}

static bool was_taken(const text_loader *t, const gguf_tensor *tensor)
{
    for (size_t i = 0; i < t->n_taken; i++)
        if (t->taken[i] == tensor)
            return true;
    return false;
}

/* A tensor this forward does not know (a norm of q, an expert) would silently change answers. */
static tacit_status check_all_taken(text_loader *t)
{
    size_t n = gguf_tensor_count(t->file);
    if (t->n_taken == n)
        return TACIT_OK;
    for (size_t i = 0; i < n; i++) {
        const gguf_tensor *tensor = gguf_tensor_at(t->file, i);
        if (!was_taken(t, tensor))
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: tensor %s has no place in the llama architecture; the file is "
                              "of another model",
                              gguf_name(t->file), tensor->name);
    }
    return TACIT_OK;
}

static size_t count_values(const tacit_text_model *m)
{
    size_t n = m->embedding * m->vocab * (m->tied ? 1 : 2);
    for (size_t i = 0; i < m->n_layers; i++)
        for (int which = 0; which < TEXT_LINEARS; which++)
            n += m->layer[i].linear[which].n_in * m->layer[i].linear[which].n_out;
    return n;
}

static tacit_status cache_if_tiny(tacit_text_model *m)
{
    if (count_values(m) > TEXT_CACHE_VALUES)
        return TACIT_OK;
    tacit_status status = linear_cache(&m->output);
    for (size_t i = 0; i < m->n_layers; i++)
        for (int which = 0; which < TEXT_LINEARS && status == TACIT_OK; which++)
            status = linear_cache(&m->layer[i].linear[which]);
    return status;
}

tacit_status text_model_load(tacit_text_model *out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    *out = (tacit_text_model){.architecture = "llama"};
    text_loader t = {.m = out, .file = file, .err = err};
    t.taken = calloc(gguf_tensor_count(file) + 1, sizeof *t.taken);
    if (!t.taken)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to load %s", gguf_name(file));
    TACIT_TRY(check_architecture(&t), done);
    TACIT_TRY(read_numbers(&t), done);
    TACIT_TRY(read_rope(&t), done);
    TACIT_TRY(load_tensors(&t), done);
    TACIT_TRY(check_all_taken(&t), done);
    TACIT_TRY(cache_if_tiny(out), done);
done:
    free(t.taken);
    if (status != TACIT_OK)
        text_model_unload(out);
    return status;
}

void text_model_unload(tacit_text_model *m)
{
    linear_drop_cache(&m->output);
    for (size_t i = 0; m->layer && i < m->n_layers; i++)
        for (int which = 0; which < TEXT_LINEARS; which++)
            linear_drop_cache(&m->layer[i].linear[which]);
    for (size_t i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m->layer);
    free(m->rope_frequency);
    memset(m, 0, sizeof *m);
}

const tacit_low_rank *text_pair(const text_pairs *pairs, size_t layer, text_linear which)
{
    const tacit_low_rank *pair = pairs ? &pairs->pair[layer * TEXT_LINEARS + which] : NULL;
    return pair && pair->rank > 0 ? pair : NULL;
}

void text_embed(const tacit_text_model *m, float *x, const int32_t *token, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        linear_row(&m->token_embedding, (size_t)token[r], x + r * m->embedding);
}
