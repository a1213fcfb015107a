/* Random weights in the exact shapes of public text models, as a GGUF file that other engines load
 * as well: what is measured and compared where the weights themselves are not at hand.
 *
 *   write_shape SHAPE OUT.gguf [--type T] [--embedding-type T] [--layers N] [--vocab N] [--pre P]
 *                              [--seed N]
 *   write_shape list
 *
 * Weights are uniform, scaled so that activations stay of the size that trained models have. T is
 * any type that the engine writes (default q8_0); rows that a block does not divide get the type
 * that llama.cpp's own quantizer falls back to. The vocabulary is every byte, one merge, fillers
 * and three control tokens, so that any text is a token a byte; chats are ChatML. The same call
 * gives the same bytes.
 */
#include "engine/gguf.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BYTES = 256,
    CONTROLS = 3,
    GRID = 6, /* rows, and columns, of tiles of a picture */
    MARKERS = 3 + GRID * GRID,
    LEAST_VOCAB = BYTES + 1 + MARKERS + CONTROLS,
    MOST_LAYERS = 32
};

/* From the models' public configurations. */
typedef struct shape {
    const char *name, *arch, *pre;
    uint32_t width, layers, heads, kv_heads, head, ff, vocab, context;
    float eps, base;
    bool tied, qkv_bias, qk_norm, llama3_factors;
    uint32_t window; /* Gemma 3's, with norms behind the halves of its layers */
    uint32_t taps;   /* LFM2's: layers convolve, but for those whose bit is set in `attends` */
    uint32_t attends;
    int32_t sections[4]; /* Qwen 2 VL's: pairs that turn by time, height and width */
} shape;

static const shape shapes[] = {
    {"smollm2-135m", "llama", "smollm", 576, 30, 9, 3, 64, 1536, 49152, 8192, 1e-5f, 1e5f,
     .tied = true},
    {"smollm2-360m", "llama", "smollm", 960, 32, 15, 5, 64, 2560, 49152, 8192, 1e-5f, 1e5f,
     .tied = true},
    {"llama32-1b", "llama", "llama-bpe", 2048, 16, 32, 8, 64, 8192, 128256, 131072, 1e-5f, 5e5f,
     .tied = true, .llama3_factors = true},
    {"qwen25-05b", "qwen2", "qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, 1e-6f, 1e6f,
     .tied = true, .qkv_bias = true},
    {"qwen2vl-2b", "qwen2vl", "qwen2", 1536, 28, 12, 2, 128, 8960, 151936, 32768, 1e-6f, 1e6f,
     .tied = true, .qkv_bias = true, .sections = {16, 24, 24, 0}},
    {"qwen3-06b", "qwen3", "qwen2", 1024, 28, 16, 8, 128, 3072, 151936, 40960, 1e-6f, 1e6f,
     .tied = true, .qk_norm = true},
    {"gemma3-1b", "gemma3", "gpt-2", 1152, 26, 4, 1, 256, 6912, 262144, 32768, 1e-6f, 1e6f,
     .tied = true, .qk_norm = true, .window = 512},
    {"lfm2-350m", "lfm2", "lfm2", 1024, 16, 16, 8, 64, 4608, 65536, 128000, 1e-5f, 1e6f,
     .tied = true, .qk_norm = true, .taps = 3,
     .attends = 1 << 2 | 1 << 5 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 14},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

typedef struct options {
    shape s;
    const char *out;
    const tacit_type_traits *type, *embedding_type;
    uint64_t seed;
} options;

/* SplitMix64 (Steele et al. 2014). */
static uint64_t next_word(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* `type`, or what its rows become when a block does not divide them. */
static const tacit_type_traits *type_for(const tacit_type_traits *type, uint64_t cols)
{
    static const char *const instead[][2] = {{"q4_k", "q5_0"}, {"q5_k", "q5_1"}, {"q6_k", "q8_0"},
                                             {"q4_0", "f16"},  {"q4_1", "f16"},  {"q5_0", "f16"},
                                             {"q5_1", "f16"},  {"q8_0", "f16"}};
    for (size_t i = 0; i < sizeof instead / sizeof instead[0]; i++)
        if (cols % type->block_values != 0 && strcmp(type->name, instead[i][0]) == 0)
            type = tacit_type_by_name(instead[i][1]);
    return type;
}

/* Values uniform in offset +- amplitude. */
static void put(gguf_writer *w, options *o, const char *name, const tacit_type_traits *type,
                uint64_t cols, uint64_t rows, double amplitude, float offset)
{
    const uint64_t ne[2] = {cols, rows};
    float *value = malloc(cols * rows * sizeof *value);
    if (!value) {
        fprintf(stderr, "write_shape: no memory for %s\n", name);
        exit(1);
    }
    for (uint64_t i = 0; i < cols * rows; i++)
        value[i] =
            offset + (float)amplitude * ((float)(next_word(&o->seed) >> 40) / 8388608.0f - 1.0f);
    gguf_put_tensor(w, name, rows > 1 ? 2 : 1, ne, type->type, value);
    free(value);
}

static void put_vector(gguf_writer *w, options *o, uint32_t layer, const char *part, uint64_t n,
                       double amplitude, float offset)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, part);
    put(w, o, name, tacit_type_find(TACIT_TYPE_F32), n, 1, amplitude, offset);
}

static bool attends(const shape *s, uint32_t layer)
{
    return s->taps == 0 || (s->attends >> layer & 1) != 0;
}

static void put_linear(gguf_writer *w, options *o, uint32_t layer, const char *part, uint64_t n_in,
                       uint64_t n_out, bool bias)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", layer, part);
    put(w, o, name, type_for(o->type, n_in), n_in, n_out, sqrt(3.0 / (double)n_in), 0);
    snprintf(name, sizeof name, "%s.bias", part);
    if (bias)
        put_vector(w, o, layer, name, n_out, 1, 0);
}

static void put_attention(gguf_writer *w, options *o, uint32_t layer)
{
    const shape *s = &o->s;
    uint64_t q = (uint64_t)s->heads * s->head, kv = (uint64_t)s->kv_heads * s->head;
    if (s->qk_norm) {
        put_vector(w, o, layer, "attn_q_norm.weight", s->head, 0.5, 1);
        put_vector(w, o, layer, "attn_k_norm.weight", s->head, 0.5, 1);
    }
    put_linear(w, o, layer, "attn_q", s->width, q, s->qkv_bias);
    put_linear(w, o, layer, "attn_k", s->width, kv, s->qkv_bias);
    put_linear(w, o, layer, "attn_v", s->width, kv, s->qkv_bias);
    put_linear(w, o, layer, "attn_output", q, s->width, false);
}

static void put_convolution(gguf_writer *w, options *o, uint32_t layer)
{
    const shape *s = &o->s;
    char name[64];
    snprintf(name, sizeof name, "blk.%" PRIu32 ".shortconv.conv.weight", layer);
    put(w, o, name, tacit_type_find(TACIT_TYPE_F32), s->taps, s->width, 1, 0);
    put_linear(w, o, layer, "shortconv.in_proj", s->width, 3 * (uint64_t)s->width, false);
    put_linear(w, o, layer, "shortconv.out_proj", s->width, s->width, false);
}

static void put_layer(gguf_writer *w, options *o, uint32_t layer)
{
    const shape *s = &o->s;
    put_vector(w, o, layer, "attn_norm.weight", s->width, 0.3, 1);
    put_vector(w, o, layer, "ffn_norm.weight", s->width, 0.3, 1);
    if (s->window > 0) {
        put_vector(w, o, layer, "post_attention_norm.weight", s->width, 0.3, 1);
        put_vector(w, o, layer, "post_ffw_norm.weight", s->width, 0.3, 1);
    }
    if (attends(s, layer))
        put_attention(w, o, layer);
    else
        put_convolution(w, o, layer);
    put_linear(w, o, layer, "ffn_gate", s->width, s->ff, false);
    put_linear(w, o, layer, "ffn_up", s->width, s->ff, false);
    put_linear(w, o, layer, "ffn_down", s->ff, s->width, false);
}

/* The divisors of Llama 3.1 and 3.2 (factor 32, low 1, high 4, trained on 8192): frequencies of
 * long waves are divided by the factor, those between are blended. */
static void put_factors(gguf_writer *w, const shape *s)
{
    float divisor[64];
    const uint64_t n = s->head / 2;
    for (uint64_t i = 0; i < n; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(s->base, 2.0 * (double)i / s->head);
        double blend = (8192 / wave - 1) / (4 - 1);
        blend = blend < 0 ? 0 : blend > 1 ? 1 : blend;
        divisor[i] = (float)(1 / ((1 - blend) / 32 + blend));
    }
    gguf_put_tensor(w, "rope_freqs.weight", 1, &n, TACIT_TYPE_F32, divisor);
}

/* Key-value heads: a number, or one a layer where some layers have none. */
static void put_kv_heads(gguf_writer *w, const shape *s)
{
    uint32_t heads[MOST_LAYERS];
    char key[64];
    snprintf(key, sizeof key, "%s.attention.head_count_kv", s->arch);
    for (uint32_t i = 0; i < s->layers; i++)
        heads[i] = attends(s, i) ? s->kv_heads : 0;
    if (s->taps > 0)
        gguf_put_array(w, key, GGUF_U32, heads, s->layers);
    else
        gguf_put_u32(w, key, s->kv_heads);
}

/* What only some architectures have. */
static void put_forms(gguf_writer *w, const shape *s)
{
    char key[64];
    put_kv_heads(w, s);
    snprintf(key, sizeof key, "%s.attention.sliding_window", s->arch);
    if (s->window > 0)
        gguf_put_u32(w, key, s->window);
    snprintf(key, sizeof key, "%s.shortconv.l_cache", s->arch);
    if (s->taps > 0)
        gguf_put_u32(w, key, s->taps);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", s->arch);
    if (s->sections[0] > 0)
        gguf_put_array(w, key, GGUF_I32, s->sections, 4);
}

static void put_keys(gguf_writer *w, const options *o)
{
    const shape *s = &o->s;
    const struct {
        const char *key;
        uint32_t value;
    } number[] = {{"context_length", s->context},
                  {"embedding_length", s->width},
                  {"block_count", s->layers},
                  {"feed_forward_length", s->ff},
                  {"attention.head_count", s->heads},
                  {"attention.key_length", s->head},
                  {"attention.value_length", s->head},
                  {"rope.dimension_count", s->head},
                  {"vocab_size", s->vocab}};
    char key[64];
    gguf_put_string(w, "general.architecture", s->arch, strlen(s->arch));
    gguf_put_string(w, "general.name", s->name, strlen(s->name));
    gguf_put_u32(w, "general.file_type", o->type->file_type);
    gguf_put_u32(w, "general.quantization_version", 2);
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", s->arch, number[i].key);
        gguf_put_u32(w, key, number[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", s->arch);
    gguf_put_f32(w, key, s->eps);
    snprintf(key, sizeof key, "%s.rope.freq_base", s->arch);
    gguf_put_f32(w, key, s->base);
    put_forms(w, s);
}

/* The character that stands for a byte in GPT-2's vocabularies. */
static size_t byte_text(char *out, unsigned byte)
{
    unsigned code = byte;
    if (!((byte > 32 && byte < 127) || (byte > 160 && byte != 173))) {
        code = 256;
        for (unsigned b = 0; b < byte; b++)
            code += !((b > 32 && b < 127) || (b > 160 && b != 173));
    }
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

/* What stands around pictures in SmolVLM's vocabulary. */
static size_t marker_text(char *out, size_t size, uint32_t i)
{
    static const char *const named[] = {"<fake_token_around_image>", "<global-img>", "<image>"};
    if (i < 3)
        return (size_t)snprintf(out, size, "%s", named[i]);
    i -= 3;
    return (size_t)snprintf(out, size, "<row_%" PRIu32 "_col_%" PRIu32 ">", i / GRID + 1,
                            i % GRID + 1);
}

static void put_vocabulary(gguf_writer *w, const shape *s)
{
    static const char *const control[CONTROLS] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    static const gguf_string merge = {"\xc4\x8a \xc4\x8a", 5};
    static const char chat[] =
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
        "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}";
    char(*text)[32] = calloc(s->vocab, sizeof *text);
    gguf_string *token = calloc(s->vocab, sizeof *token);
    int32_t *kind = calloc(s->vocab, sizeof *kind);
    if (!text || !token || !kind) {
        fprintf(stderr, "write_shape: no memory for the vocabulary\n");
        exit(1);
    }
    for (uint32_t i = 0; i < s->vocab; i++) {
        size_t size;
        if (i < BYTES)
            size = byte_text(text[i], i);
        else if (i == BYTES)
            size = (size_t)snprintf(text[i], sizeof text[i], "\xc4\x8a\xc4\x8a");
        else if (i <= BYTES + MARKERS)
            size = marker_text(text[i], sizeof text[i], i - BYTES - 1);
        else if (i >= s->vocab - CONTROLS)
            size =
                (size_t)snprintf(text[i], sizeof text[i], "%s", control[i - (s->vocab - CONTROLS)]);
        else
            size = (size_t)snprintf(text[i], sizeof text[i], "filler%" PRIu32, i);
        token[i] = (gguf_string){text[i], size};
        bool is_marker = i > BYTES && i <= BYTES + MARKERS;
        kind[i] = is_marker || i >= s->vocab - CONTROLS ? 3 : 1;
    }
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_string(w, "tokenizer.ggml.pre", s->pre, strlen(s->pre));
    gguf_put_strings(w, "tokenizer.ggml.tokens", token, s->vocab);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, kind, s->vocab);
    gguf_put_strings(w, "tokenizer.ggml.merges", &merge, 1);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", s->vocab - CONTROLS);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", s->vocab - 1);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_string(w, "tokenizer.chat_template", chat, strlen(chat));
    free(text);
    free(token);
    free(kind);
}

static int write_model(options *o)
{
    const shape *s = &o->s;
    const tacit_type_traits *f32 = tacit_type_find(TACIT_TYPE_F32);
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    /* Logits of a spread of about 2.5, as trained models have it. */
    double spread = 2.5 * sqrt(3.0 / s->width);
    put_keys(w, o);
    put_vocabulary(w, s);
    put(w, o, "token_embd.weight", type_for(o->embedding_type, s->width), s->width, s->vocab,
        spread, 0);
    put(w, o, s->taps > 0 ? "token_embd_norm.weight" : "output_norm.weight", f32, s->width, 1, 0.3,
        1);
    if (!s->tied)
        put(w, o, "output.weight", type_for(o->embedding_type, s->width), s->width, s->vocab,
            spread, 0);
    if (s->llama3_factors)
        put_factors(w, s);
    for (uint32_t i = 0; i < s->layers; i++)
        put_layer(w, o, i);
    tacit_status status = gguf_write(w, o->out, &err);
    gguf_writer_free(w);
    if (status != TACIT_OK)
        fprintf(stderr, "write_shape: %s\n", err.message);
    return status != TACIT_OK;
}

static void usage(FILE *to)
{
    fputs("usage: write_shape SHAPE OUT.gguf [--type T] [--embedding-type T] [--layers N]\n"
          "                   [--vocab N] [--pre P] [--seed N]\nshapes:",
          to);
    for (size_t i = 0; i < SHAPES; i++)
        fprintf(to, " %s", shapes[i].name);
    fputs("\n", to);
}

static void fail_usage(const char *what, const char *found)
{
    fprintf(stderr, "write_shape: %s '%s'\n", what, found);
    usage(stderr);
    exit(2);
}

static uint32_t number(const char *name, const char *text, uint32_t least, uint32_t most)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || v < least || v > most) {
        fprintf(stderr, "write_shape: --%s '%s': expected %" PRIu32 " to %" PRIu32 "\n", name, text,
                least, most);
        exit(2);
    }
    return (uint32_t)v;
}

static const tacit_type_traits *type_named(const char *name)
{
    const tacit_type_traits *type = tacit_type_by_name(name);
    if (!type || !type->from_f32)
        fail_usage("no type", name);
    return type;
}

static void set_option(options *o, int option, const char *value)
{
    switch (option) {
    case 't':
        o->type = type_named(value);
        break;
    case 'e':
        o->embedding_type = type_named(value);
        break;
    case 'l':
        o->s.layers = number("layers", value, 1, o->s.layers);
        break;
    case 'v':
        o->s.vocab = number("vocab", value, LEAST_VOCAB, o->s.vocab);
        break;
    case 'p':
        o->s.pre = value;
        break;
    case 's':
        o->seed = number("seed", value, 0, UINT32_MAX);
        break;
    default:
        usage(stderr);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"type", required_argument, NULL, 't'},
                                          {"embedding-type", required_argument, NULL, 'e'},
                                          {"layers", required_argument, NULL, 'l'},
                                          {"vocab", required_argument, NULL, 'v'},
                                          {"pre", required_argument, NULL, 'p'},
                                          {"seed", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    options o = {.type = tacit_type_by_name("q8_0"), .seed = 1};
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (size_t i = 0; i < SHAPES; i++)
            puts(shapes[i].name);
        return 0;
    }
    if (argc < 3) {
        usage(stderr);
        return 2;
    }
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, argv[1]) == 0)
            o.s = shapes[i];
    if (!o.s.name)
        fail_usage("no shape", argv[1]);
    o.out = argv[2];
    optind = 3;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        set_option(&o, option, optarg);
    if (optind != argc)
        fail_usage("unexpected argument", argv[optind]);
    o.embedding_type = o.embedding_type ? o.embedding_type : o.type;
    return write_model(&o);
}
