/* Random text models in memory, from a description that tests vary: of every architecture. Include
 * after cmocka.h. */
#ifndef TACIT_TESTS_RANDOM_LLAMA_H
#define TACIT_TESTS_RANDOM_LLAMA_H

#include "engine/gguf.h"
#include "engine/model_parts.h"
#include "numbers.h"

#include <stdio.h>
#include <string.h>

typedef struct random_llama {
    const char *arch; /* NULL: llama */
    size_t width, layers, head, vocab, context;
    uint32_t heads[8], kv_heads[8], ff[8];
    bool per_layer; /* arrays in the file instead of single numbers */
    tacit_type type;
    bool untied, biases, divisors;
    bool qkv_biases, head_norms; /* qwen2's and qwen3's */
    double base, factor;         /* 0: not in the file */
    bool post_norms;             /* gemma3's, with the two below */
    size_t window, pattern;
    int32_t section[4];  /* qwen2vl's */
    size_t taps;         /* lfm2's: layers without key-value heads convolve over so many rows */
    const char *scaling; /* of the factor; NULL: linear */
    size_t trained;      /* original context of YaRN */
    /* For refusals: a key or tensor left out, and one more tensor. */
    const char *without, *with;
} random_llama;

static inline random_llama random_llama_usual(void)
{
    return (random_llama){.arch = "llama",
                          .width = 64,
                          .layers = 2,
                          .head = 16,
                          .vocab = 50,
                          .context = 512,
                          .heads = {4, 4},
                          .kv_heads = {2, 2},
                          .ff = {96, 96},
                          .type = TACIT_TYPE_F32};
}

/* The architectures, so that tests can run over them. Heads of qwen3 do not divide the width. */
static const char *const random_archs[] = {"llama", "qwen2", "qwen3", "gemma3", "qwen2vl", "lfm2"};
enum { RANDOM_ARCHS = 6 };

/* Sections of a head of qwen2vl, after the head was changed. */
static inline void random_sections(random_llama *m)
{
    int32_t half = (int32_t)m->head / 2, part = half * 3 / 8;
    const int32_t section[4] = {half - 2 * part, part, part, 0};
    if (strcmp(m->arch, "qwen2vl") == 0)
        memcpy(m->section, section, sizeof section);
}

static inline random_llama random_arch(const char *arch)
{
    random_llama m = random_llama_usual();
    m.arch = arch;
    m.post_norms = strcmp(arch, "gemma3") == 0;
    m.window = m.post_norms ? 20 : 0;
    m.pattern = 2;
    m.qkv_biases = strncmp(arch, "qwen2", 5) == 0;
    m.head_norms = strcmp(arch, "qwen3") == 0 || m.post_norms;
    m.head = m.head_norms ? 24 : m.head;
    m.untied = m.qkv_biases;
    if (strcmp(arch, "lfm2") == 0) {
        m.taps = 3;
        m.layers = 3;
        m.heads[2] = 4;
        m.ff[2] = 96;
        m.kv_heads[0] = 0;
        m.per_layer = m.head_norms = true;
    }
    random_sections(&m);
    return m;
}

/* "ARCH.key", in a buffer of the caller's. */
static inline const char *random_name(char out[96], const random_llama *m, const char *key)
{
    snprintf(out, 96, "%s.%s", m->arch ? m->arch : "llama", key);
    return out;
}

static void random_tensor(gguf_writer *w, const random_llama *m, const char *name, tacit_type type,
                          uint64_t cols, uint64_t rows, float scale, float offset, uint64_t seed)
{
    if (m->without && strcmp(m->without, name) == 0)
        return;
    const uint64_t ne[2] = {cols, rows};
    float *value = numbers_new(cols * rows, scale, seed);
    for (size_t i = 0; i < cols * rows; i++)
        value[i] += offset;
    gguf_put_tensor(w, name, rows > 1 ? 2 : 1, ne, type, value);
    free(value);
}

static void random_key(gguf_writer *w, const random_llama *m, const char *part,
                       const uint32_t *value)
{
    char key[96];
    random_name(key, m, part);
    if (m->without && strcmp(m->without, key) == 0)
        return;
    if (m->per_layer)
        gguf_put_array(w, key, GGUF_U32, value, m->layers);
    else
        gguf_put_u32(w, key, value[0]);
}

static void random_layer(gguf_writer *w, const random_llama *m, size_t layer)
{
    size_t d = m->width, q = m->heads[layer] * m->head, kv = m->kv_heads[layer] * m->head;
    const struct {
        const char *name;
        size_t in, out;
    } linear[] = {
        {"attn_q", d, q},
        {"attn_k", d, kv},
        {"attn_v", d, kv},
        {"attn_output", q, d},
        {"ffn_gate", d, m->ff[layer]},
        {"ffn_up", d, m->ff[layer]},
        {"ffn_down", m->ff[layer], d},
        {"shortconv.in_proj", d, 3 * d},
        {"shortconv.out_proj", d, d},
    };
    char name[96];
    uint64_t seed = 1000 * (layer + 1);
    bool convolves = m->taps > 0 && m->kv_heads[layer] == 0;
    for (size_t i = 0; i < 9; i++) {
        if (convolves ? i < 4 : i >= 7)
            continue;
        snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, linear[i].name);
        random_tensor(w, m, name, m->type, linear[i].in, linear[i].out,
                      2 / sqrtf((float)linear[i].in), 0, seed + i);
        snprintf(name, sizeof name, "blk.%zu.%s.bias", layer, linear[i].name);
        if (m->biases || (m->qkv_biases && i < 3))
            random_tensor(w, m, name, TACIT_TYPE_F32, linear[i].out, 1, 0.2f, 0, seed + 20 + i);
    }
    snprintf(name, sizeof name, "blk.%zu.attn_norm.weight", layer);
    random_tensor(w, m, name, TACIT_TYPE_F32, d, 1, 0.3f, 1, seed + 40);
    snprintf(name, sizeof name, "blk.%zu.ffn_norm.weight", layer);
    random_tensor(w, m, name, TACIT_TYPE_F32, d, 1, 0.3f, 1, seed + 41);
    snprintf(name, sizeof name, "blk.%zu.post_attention_norm.weight", layer);
    if (m->post_norms)
        random_tensor(w, m, name, TACIT_TYPE_F32, d, 1, 0.3f, 1, seed + 44);
    snprintf(name, sizeof name, "blk.%zu.post_ffw_norm.weight", layer);
    if (m->post_norms)
        random_tensor(w, m, name, TACIT_TYPE_F32, d, 1, 0.3f, 1, seed + 45);
    snprintf(name, sizeof name, "blk.%zu.shortconv.conv.weight", layer);
    if (convolves) {
        random_tensor(w, m, name, TACIT_TYPE_F32, m->taps, d, 1, 0, seed + 46);
        return;
    }
    snprintf(name, sizeof name, "blk.%zu.attn_q_norm.weight", layer);
    if (m->head_norms)
        random_tensor(w, m, name, TACIT_TYPE_F32, m->head, 1, 0.5f, 1, seed + 42);
    snprintf(name, sizeof name, "blk.%zu.attn_k_norm.weight", layer);
    if (m->head_norms)
        random_tensor(w, m, name, TACIT_TYPE_F32, m->head, 1, 0.5f, 1, seed + 43);
}

/* A writer that a test may add to before it is written. */
static inline gguf_writer *random_llama_writer(const random_llama *m)
{
    gguf_writer *w = gguf_writer_new();
    char key[96];
    const struct {
        const char *key;
        size_t value;
    } number[] = {{"context_length", m->context},      {"embedding_length", m->width},
                  {"block_count", m->layers},          {"attention.key_length", m->head},
                  {"attention.value_length", m->head}, {"vocab_size", m->vocab}};
    const char *arch = m->arch ? m->arch : "llama";
    gguf_put_string(w, "general.architecture", arch, strlen(arch));
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++)
        if (!m->without || strcmp(m->without, random_name(key, m, number[i].key)) != 0)
            gguf_put_u32(w, random_name(key, m, number[i].key), (uint32_t)number[i].value);
    random_key(w, m, "attention.head_count", m->heads);
    random_key(w, m, "attention.head_count_kv", m->kv_heads);
    random_key(w, m, "feed_forward_length", m->ff);
    random_name(key, m, "attention.layer_norm_rms_epsilon");
    if (!m->without || strcmp(m->without, key) != 0)
        gguf_put_f32(w, key, 1e-5f);
    if (m->base > 0)
        gguf_put_f32(w, random_name(key, m, "rope.freq_base"), (float)m->base);
    if (m->factor > 0) {
        const char *scaling = m->scaling ? m->scaling : "linear";
        gguf_put_string(w, random_name(key, m, "rope.scaling.type"), scaling, strlen(scaling));
        gguf_put_f32(w, random_name(key, m, "rope.scaling.factor"), (float)m->factor);
    }
    if (m->window > 0) {
        gguf_put_u32(w, random_name(key, m, "attention.sliding_window"), (uint32_t)m->window);
        gguf_put_u32(w, random_name(key, m, "attention.sliding_window_pattern"),
                     (uint32_t)m->pattern);
    }
    if (m->section[0] > 0)
        gguf_put_array(w, random_name(key, m, "rope.dimension_sections"), GGUF_I32, m->section, 4);
    if (m->trained > 0)
        gguf_put_u32(w, random_name(key, m, "rope.scaling.original_context_length"),
                     (uint32_t)m->trained);
    random_tensor(w, m, "token_embd.weight", m->type, m->width, m->vocab, 1, 0, 1);
    random_name(key, m, "shortconv.l_cache");
    if (m->taps > 0 && (!m->without || strcmp(m->without, key) != 0))
        gguf_put_u32(w, key, (uint32_t)m->taps);
    const char *norm = m->taps > 0 ? "token_embd_norm.weight" : "output_norm.weight";
    random_tensor(w, m, norm, TACIT_TYPE_F32, m->width, 1, 0.3f, 1, 2);
    if (m->untied)
        random_tensor(w, m, "output.weight", m->type, m->width, m->vocab, 1, 0, 3);
    if (m->divisors)
        random_tensor(w, m, "rope_freqs.weight", TACIT_TYPE_F32, m->head / 2, 1, 0.5f, 1.6f, 4);
    if (m->with)
        random_tensor(w, m, m->with, TACIT_TYPE_F32, m->width, 1, 1, 0, 5);
    for (size_t i = 0; i < m->layers; i++)
        random_layer(w, m, i);
    return w;
}

typedef struct random_file {
    uint8_t *data;
    gguf_file *file;
} random_file;

/* Frees the writer. */
static inline random_file random_llama_open(gguf_writer *w)
{
    random_file f = {0};
    size_t size;
    tacit_error err = {0};
    if (gguf_write_memory(w, &f.data, &size, &err) != TACIT_OK ||
        gguf_open_memory(&f.file, f.data, size, "random", &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    return f;
}

static inline void random_file_close(random_file *f)
{
    gguf_close(f->file);
    free(f->data);
}

/* A model without a tokenizer. `cached` false drops the fp32 copies, so that every weight goes
 * through tiles. */
static inline tacit_model *random_model(const random_file *f, bool cached)
{
    tacit_model *m = calloc(1, sizeof *m);
    tacit_error err = {0};
    if (text_model_load(&m->text, f->file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    if (!cached)
        linear_drop_cache(&m->text.output);
    for (size_t i = 0; !cached && i < m->text.n_layers; i++)
        for (int k = 0; k < TEXT_LINEARS; k++)
            linear_drop_cache(&m->text.layer[i].linear[k]);
    return m;
}

static inline void random_model_free(tacit_model *m)
{
    text_model_unload(&m->text);
    free(m);
}

#endif
