#include "engine/text_loader.h"
#include "engine/text_mixer.h"

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

static const char *const linear_name[TEXT_LINEARS] = {
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "shortconv.in_proj",
    "shortconv.out_proj",
};

static const char *const norm_name[TEXT_NORMS] = {
    "attn_norm",           "ffn_norm",      "attn_q_norm",    "attn_k_norm",
    "post_attention_norm", "post_ffw_norm", "shortconv.conv",
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

const char *text_linear_names(char *out, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < TEXT_LINEARS && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", linear_name[i]);
    return out;
}

const char *text_norm_name(text_norm which)
{
    return norm_name[which];
}

text_norm text_norm_find(const char *name)
{
    int i = 0;
    while (i < TEXT_NORMS && strcmp(norm_name[i], name) != 0)
        i++;
    return (text_norm)i;
}

size_t text_norm_size(const tacit_text_model *m, text_norm which)
{
    if (which == TEXT_CONV_KERNEL)
        return m->conv_width;
    return which == TEXT_Q_NORM || which == TEXT_K_NORM ? m->head_dim : m->embedding;
}

size_t text_norm_rows(const tacit_text_model *m, text_norm which)
{
    return which == TEXT_CONV_KERNEL ? m->embedding : 1;
}

bool text_has_linear(const tacit_text_layer *l, text_linear which)
{
    return l->linear[which].n_out > 0;
}

bool text_has_norm(const tacit_text_model *m, text_norm which)
{
    bool any = false;
    for (size_t i = 0; i < m->n_layers; i++)
        any = any || m->layer[i].norm[which];
    return any;
}

/* Files that lie beside a text model and are given for it. */
static const struct {
    const char *key, *value;
    const char *what, *where;
} others[] = {
    {"general.type", "adapter", "an adapter", "goes to --adapter"},
    {"general.type", "imatrix", "an importance matrix", "goes to tacit quantize --imatrix"},
    {"general.architecture", "clip", "an encoder", "goes to --mmproj"},
    {"general.architecture", "tacit.sensor", "an encoder", "goes to --mmproj"},
};

static tacit_status refuse_others(text_loader *t)
{
    gguf_string found;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (gguf_get_string(t->file, others[i].key, &found, NULL) == TACIT_OK &&
            found.size == strlen(others[i].value) &&
            memcmp(found.data, others[i].value, found.size) == 0)
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: expected a text model, found %s (%s '%s'), which %s",
                              gguf_name(t->file), others[i].what, others[i].key, others[i].value,
                              others[i].where);
    return TACIT_OK;
}

static tacit_status find_architecture(text_loader *t)
{
    gguf_string name;
    char known[128];
    tacit_status status = refuse_others(t);
    if (status == TACIT_OK)
        status = gguf_get_string(t->file, "general.architecture", &name, t->err);
    if (status != TACIT_OK)
        return status == TACIT_NOT_FOUND
                   ? tacit_fail(t->err, TACIT_BAD_INPUT,
                                "%s: key general.architecture is missing; expected a text model",
                                gguf_name(t->file))
                   : status;
    t->arch = text_arch_find(name.data, name.size);
    if (t->arch) {
        t->m->architecture = t->arch->name;
        return TACIT_OK;
    }
    text_arch_names(known, sizeof known);
    return tacit_fail(t->err, TACIT_BAD_INPUT,
                      "%s: architecture '%.*s' is not supported; supported: %s", gguf_name(t->file),
                      (int)(name.size > 64 ? 64 : name.size), name.data, known);
}

static tacit_status set_layer_numbers(text_loader *t, const size_t *heads, const size_t *kv_heads,
                                      const size_t *ff)
{
    tacit_text_model *m = t->m;
    for (size_t i = 0; i < m->n_layers; i++) {
        if (kv_heads[i] > 0 && heads[i] % kv_heads[i] != 0)
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
    size_t least = t->arch->convolves ? 0 : 1;
    TACIT_TRY(text_get_per_layer(t, "attention.head_count", 1, MAX_HEADS, NULL, heads), done);
    TACIT_TRY(text_get_per_layer(t, "attention.head_count_kv", least, MAX_HEADS, heads, kv_heads),
              done);
    TACIT_TRY(text_get_per_layer(t, "feed_forward_length", 1, MAX_FF, NULL, ff), done);
    TACIT_TRY(set_layer_numbers(t, heads, kv_heads, ff), done);
done:
    free(numbers);
    return status;
}

/* Keys that would change what is computed, with the values at which they do not. */
static const struct {
    const char *name;
    double neutral, also;
    const char *meaning;
} unused[] = {
    {"expert_count", 0, 0, "a mixture of experts"},
    {"attention.causal", 1, 1, "attention to later tokens"},
    {"attention.scale", 0, 0, "another scale of attention"},
    {"attention.clamp_kqv", 0, 0, "clamping of q, k and v"},
    {"attn_logit_softcapping", 0, 0, "soft-capped attention"},
    {"final_logit_softcapping", 0, 0, "soft-capped logits"},
    {"logit_scale", 0, 1, "scaled logits"},
    {"residual_scale", 0, 1, "a scaled residual stream"},
    {"embedding_scale", 0, 1, "scaled embeddings"},
    {"use_parallel_residual", 0, 0, "attention and feed-forward side by side"},
    {"nextn_predict_layers", 0, 0, "layers that predict later tokens"},
};

static tacit_status get_scalar(const gguf_file *file, const char *key, double *out,
                               tacit_error *err)
{
    int64_t integer = 0;
    bool flag = false;
    tacit_error ignored;
    if (gguf_get_f64(file, key, out, &ignored) == TACIT_OK)
        return TACIT_OK;
    if (gguf_get_bool(file, key, &flag, &ignored) == TACIT_OK) {
        *out = flag;
        return TACIT_OK;
    }
    tacit_status status = gguf_get_i64(file, key, &integer, err);
    *out = (double)integer;
    return status;
}

static tacit_status check_unused(text_loader *t)
{
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++) {
        const char *key = text_key(t, unused[i].name);
        double v;
        if (!gguf_has_key(t->file, key))
            continue;
        tacit_status status = get_scalar(t->file, key, &v, t->err);
        if (status != TACIT_OK)
            return status;
        if (v != unused[i].neutral && v != unused[i].also)
            return tacit_fail(t->err, TACIT_BAD_INPUT,
                              "%s: %s is %g: %s is not supported; expected %g or no such key",
                              gguf_name(t->file), key, v, unused[i].meaning, unused[i].neutral);
    }
    return TACIT_OK;
}

/* A window of attention that the architecture does not have; at least the context it is never in
 * force. */
static tacit_status check_window(text_loader *t)
{
    const char *key = text_key(t, "attention.sliding_window");
    uint64_t window = 0;
    if (t->arch->windows || !gguf_has_key(t->file, key))
        return TACIT_OK;
    tacit_status status = gguf_get_u64(t->file, key, 0, UINT32_MAX, &window, t->err);
    if (status == TACIT_OK && window > 0 && window < t->m->context_length)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %s is %" PRIu64
                          ": attention over a sliding window is not supported; "
                          "expected at least the context of %zu tokens",
                          gguf_name(t->file), key, window, t->m->context_length);
    return status;
}

static tacit_status read_head_dim(text_loader *t)
{
    tacit_text_model *m = t->m;
    size_t heads = m->layer[0].n_heads, value_dim, rope_dim, usual = m->embedding / heads;
    tacit_status status;
    if (!text_has_key(t, "attention.key_length") && m->embedding % heads != 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: %zu heads do not divide the embedding length %zu",
                          gguf_name(t->file), heads, m->embedding);
    TACIT_TRY(text_get_optional_size(t, "attention.key_length", MAX_HEAD_DIM, usual, &m->head_dim),
              done);
    TACIT_TRY(text_get_optional_size(t, "attention.value_length", MAX_HEAD_DIM, usual, &value_dim),
              done);
    TACIT_TRY(
        text_get_optional_size(t, "rope.dimension_count", MAX_HEAD_DIM, m->head_dim, &rope_dim),
        done);
    if (value_dim != m->head_dim || rope_dim != m->head_dim || m->head_dim % 2 != 0 ||
        m->head_dim > MAX_HEAD_DIM)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: key length %zu, value length %zu, rope dimensions %zu: expected one "
                          "even number up to %d for all three in architecture %s",
                          gguf_name(t->file), m->head_dim, value_dim, rope_dim, MAX_HEAD_DIM,
                          t->arch->name);
done:
    return status;
}

/* As most models have them; the architecture changes what it has otherwise. */
static tacit_status set_layers(text_loader *t)
{
    tacit_text_model *m = t->m;
    m->embedding_scale = 1;
    for (size_t i = 0; i < m->n_layers; i++) {
        for (int which = 0; which < TEXT_LINEARS; which++)
            linear_init_f32(&m->layer[i].linear[which], NULL, NULL, 0, 0);
        m->layer[i].mixer = &mixer_attention;
        m->layer[i].scale = 1.0f / sqrtf((float)m->head_dim);
        m->layer[i].activation = t->arch->activation;
    }
    return t->arch->layers ? t->arch->layers(t) : TACIT_OK;
}

static tacit_status read_numbers(text_loader *t)
{
    tacit_text_model *m = t->m;
    tacit_status status;
    double eps;
    TACIT_TRY(check_unused(t), done);
    TACIT_TRY(text_get_size(t, "context_length", MAX_CONTEXT, &m->context_length), done);
    TACIT_TRY(check_window(t), done);
    TACIT_TRY(text_get_size(t, "embedding_length", MAX_EMBEDDING, &m->embedding), done);
    TACIT_TRY(text_get_size(t, "block_count", MAX_LAYERS, &m->n_layers), done);
    m->layer = calloc(m->n_layers, sizeof *m->layer);
    /* The norms and a bias for every linear of a layer, and the output norm. */
    m->owned = calloc(m->n_layers * (TEXT_LINEARS + TEXT_NORMS) + 1, sizeof *m->owned);
    if (!m->layer || !m->owned)
        return tacit_fail(t->err, TACIT_NO_MEMORY, "no memory for %zu layers", m->n_layers);
    TACIT_TRY(read_layer_numbers(t), done);
    TACIT_TRY(read_head_dim(t), done);
    TACIT_TRY(text_get_real(t, "attention.layer_norm_rms_epsilon", -1, 0, 1, &eps), done);
    if (eps < 0)
        return tacit_fail(t->err, TACIT_BAD_INPUT, "%s: key %s is missing", gguf_name(t->file),
                          text_key(t, "attention.layer_norm_rms_epsilon"));
    m->rms_eps = (float)eps;
done:
    return status;
}

/* What every layer has; the rest is its kind's. */
static tacit_status load_layer(text_loader *t, size_t i)
{
    static const text_norm norm[] = {TEXT_ATTN_NORM, TEXT_FFN_NORM, TEXT_ATTN_POST_NORM,
                                     TEXT_FFN_POST_NORM};
    const tacit_text_layer *l = &t->m->layer[i];
    size_t d = t->m->embedding;
    tacit_status status;
    TACIT_TRY(l->mixer->load(t, i), done);
    TACIT_TRY(text_load_linear(t, i, TEXT_GATE, d, l->n_ff), done);
    TACIT_TRY(text_load_linear(t, i, TEXT_UP, d, l->n_ff), done);
    TACIT_TRY(text_load_linear(t, i, TEXT_DOWN, l->n_ff, d), done);
    for (size_t k = 0; k < sizeof norm / sizeof norm[0]; k++)
        TACIT_TRY(text_load_norm(t, i, norm[k]), done);
done:
    return status;
}

/* The rows of the embedding are the vocabulary; the keys that also say its size must agree. */
static tacit_status read_vocab(text_loader *t)
{
    const gguf_tensor *embedding = text_take_tensor(t, "token_embd.weight");
    if (!embedding)
        return text_missing(t, "token_embd.weight");
    if (embedding->rows < 1 || embedding->rows > MAX_VOCAB)
        return tacit_fail(t->err, TACIT_BAD_INPUT,
                          "%s: token_embd.weight has %" PRIu64 " rows: expected 1 to %u",
                          gguf_name(t->file), embedding->rows, MAX_VOCAB);
    t->m->vocab = (size_t)embedding->rows;
    size_t said, tokens = t->m->vocab;
    tacit_status status = text_get_optional_size(t, "vocab_size", MAX_VOCAB, t->m->vocab, &said);
    if (status == TACIT_OK && gguf_has_key(t->file, "tokenizer.ggml.tokens"))
        status = gguf_get_array(t->file, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, t->err);
    if (status == TACIT_OK && (said != t->m->vocab || tokens != t->m->vocab))
        return tacit_fail(
            t->err, TACIT_BAD_INPUT,
            "%s: token_embd.weight has %zu rows, %s says %zu and the tokenizer has %zu "
            "tokens: expected one number",
            gguf_name(t->file), t->m->vocab, text_key(t, "vocab_size"), said, tokens);
    return status;
}

static tacit_status load_tensors(text_loader *t)
{
    tacit_text_model *m = t->m;
    tacit_status status;
    TACIT_TRY(read_vocab(t), done);
    TACIT_TRY(
        text_take_linear(t, &m->token_embedding, "token_embd.weight", NULL, m->embedding, m->vocab),
        done);
    m->tied = !gguf_tensor_find(t->file, "output.weight");
    TACIT_TRY(text_take_linear(t, &m->output, m->tied ? "token_embd.weight" : "output.weight", NULL,
                               m->embedding, m->vocab),
              done);
    m->output_norm_name = t->arch->output_norm ? t->arch->output_norm : "output_norm.weight";
    TACIT_TRY(
        text_own_vector(t, m->output_norm_name, 1, m->embedding, TEXT_REQUIRED, &m->output_norm),
        done);
    for (size_t i = 0; i < m->n_layers; i++)
        TACIT_TRY(load_layer(t, i), done);
done:
    return status;
}

static size_t count_values(const tacit_text_model *m)
{
    size_t n = m->embedding * m->vocab * (m->tied ? 1 : 2);
    for (size_t i = 0; i < m->n_layers; i++)
        for (int which = 0; which < TEXT_LINEARS; which++)
            n += m->layer[i].linear[which].n_in * m->layer[i].linear[which].n_out;
    return n;
}

static tacit_status cache_if_tiny(tacit_text_model *m, tacit_error *err)
{
    size_t values = count_values(m);
    if (values > TEXT_CACHE_VALUES)
        return TACIT_OK;
    tacit_status status = linear_cache_judge(values, err);
    if (status != TACIT_OK)
        return status;
    status = linear_cache(&m->output);
    for (size_t i = 0; i < m->n_layers; i++)
        for (int which = 0; which < TEXT_LINEARS && status == TACIT_OK; which++)
            if (text_has_linear(&m->layer[i], (text_linear)which))
                status = linear_cache(&m->layer[i].linear[which]);
    return status == TACIT_OK
               ? status
               : tacit_fail(err, status, "no memory for the fp32 copies of the weights");
}

tacit_status text_model_load(tacit_text_model *out, const gguf_file *file, tacit_error *err)
{
    tacit_status status;
    *out = (tacit_text_model){0};
    text_loader t = {.m = out, .file = file, .err = err};
    t.taken = calloc(gguf_tensor_count(file) + 1, sizeof *t.taken);
    if (!t.taken)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to load %s", gguf_name(file));
    TACIT_TRY(find_architecture(&t), done);
    TACIT_TRY(read_numbers(&t), done);
    TACIT_TRY(text_read_rope(&t), done);
    TACIT_TRY(set_layers(&t), done);
    TACIT_TRY(load_tensors(&t), done);
    TACIT_TRY(text_check_all_taken(&t), done);
    TACIT_TRY(cache_if_tiny(out, err), done);
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
    for (size_t i = 0; i < m->n_ropes; i++) {
        free((void *)(uintptr_t)m->rope[i].frequency);
        free((void *)(uintptr_t)m->rope[i].axis);
    }
    memset(m, 0, sizeof *m);
}

const tacit_low_rank *text_pair(const text_pairs *pairs, size_t layer, text_linear which)
{
    const tacit_low_rank *pair = pairs ? &pairs->pair[layer * TEXT_LINEARS + which] : NULL;
    return pair && pair->rank > 0 ? pair : NULL;
}

const tacit_low_rank *text_output_pair(const text_pairs *pairs)
{
    return pairs && pairs->output.rank > 0 ? &pairs->output : NULL;
}

void text_embed(const tacit_text_model *m, float *x, const int32_t *token, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        linear_row(&m->token_embedding, (size_t)token[r], x + r * m->embedding);
    if (m->embedding_scale != 1)
        ops_scale(x, m->embedding_scale, rows * m->embedding);
}
