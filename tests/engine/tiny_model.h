/* A whole tiny multimodal model on disk for tests: byte tokens with SmolVLM's markers and template,
 * a random llama of width 32 and a random tower of 24x24 pixels (reference_vision.h). */
#ifndef TACIT_TESTS_TINY_MODEL_H
#define TACIT_TESTS_TINY_MODEL_H

#include "engine/model.h"

#include <unistd.h>

#include "reference_vision.h"

enum {
    TINY_BLANK_LINE = 256, /* "\n\n" */
    TINY_START,
    TINY_END,
    TINY_IMAGE,
    TINY_AROUND,
    TINY_GLOBAL,
    TINY_TILES, /* <row_1_col_1> and on, four a row */
    TINY_SENSOR = TINY_TILES + 16,
    TINY_SENSOR_END,
    TINY_VOCAB
};

static const char tiny_template[] =
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

/* The character that stands for a byte in GPT-2's vocabularies, as UTF-8. */
static inline void tiny_byte_text(char out[4], unsigned byte)
{
    unsigned code = byte;
    bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    if (!printable) {
        code = 256;
        for (unsigned b = 0; b < byte; b++)
            code += !((b > 32 && b < 127) || (b > 160 && b != 173));
    }
    if (code < 128)
        snprintf(out, 4, "%c", (char)code);
    else
        snprintf(out, 4, "%c%c", (char)(0xc0 | code >> 6), (char)(0x80 | (code & 63)));
}

/* `bos`: the file asks for that token before every text; -1: for none. The template prints
 * <|im_start|> there too. */
static inline void tiny_put_vocabulary_with(gguf_writer *w, int32_t bos)
{
    static char text[TINY_VOCAB][32];
    gguf_string token[TINY_VOCAB];
    int32_t type[TINY_VOCAB];
    static const char *const special[] = {"<|im_start|>", "<end_of_utterance>", "<image>",
                                          "<fake_token_around_image>", "<global-img>"};
    const gguf_string merge = {"\xc4\x8a \xc4\x8a", 5};
    for (unsigned i = 0; i < 256; i++)
        tiny_byte_text(text[i], i);
    snprintf(text[TINY_BLANK_LINE], sizeof text[0], "\xc4\x8a\xc4\x8a");
    for (unsigned i = 0; i < 5; i++)
        snprintf(text[TINY_START + i], sizeof text[0], "%s", special[i]);
    for (unsigned i = 0; i < 16; i++)
        snprintf(text[TINY_TILES + i], sizeof text[0], "<row_%u_col_%u>", i / 4 + 1, i % 4 + 1);
    snprintf(text[TINY_SENSOR], sizeof text[0], "<sensor>");
    snprintf(text[TINY_SENSOR_END], sizeof text[0], "</sensor>");
    for (int i = 0; i < TINY_VOCAB; i++) {
        token[i] = (gguf_string){text[i], strlen(text[i])};
        type[i] = i >= TINY_START ? 3 : 1;
    }
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_string(w, "tokenizer.ggml.pre", "smollm", 6);
    gguf_put_strings(w, "tokenizer.ggml.tokens", token, TINY_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, type, TINY_VOCAB);
    gguf_put_strings(w, "tokenizer.ggml.merges", &merge, 1);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", TINY_END);
    if (bos >= 0)
        gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", bos >= 0);
    gguf_put_string(w, "tokenizer.chat_template", tiny_template, strlen(tiny_template));
}

static inline void tiny_put_vocabulary(gguf_writer *w)
{
    tiny_put_vocabulary_with(w, -1);
}

static inline void tiny_put_text_model(gguf_writer *w)
{
    const uint64_t d[] = {32}, embedding[] = {32, TINY_VOCAB}, q[] = {32, 32}, kv[] = {32, 16},
                   up[] = {32, 64}, down[] = {64, 32};
    const struct {
        const char *name;
        const uint64_t *ne;
        uint32_t dims;
    } rows[] = {{"attn_norm", d, 1}, {"attn_q", q, 2},      {"attn_k", kv, 2},
                {"attn_v", kv, 2},   {"attn_output", q, 2}, {"ffn_norm", d, 1},
                {"ffn_gate", up, 2}, {"ffn_up", up, 2},     {"ffn_down", down, 2}};
    uint32_t seed = 500;
    char name[64];
    gguf_put_string(w, "general.architecture", "llama", 5);
    gguf_put_u32(w, "llama.context_length", 512);
    gguf_put_u32(w, "llama.embedding_length", 32);
    gguf_put_u32(w, "llama.block_count", 2);
    gguf_put_u32(w, "llama.feed_forward_length", 64);
    gguf_put_u32(w, "llama.attention.head_count", 2);
    gguf_put_u32(w, "llama.attention.head_count_kv", 1);
    gguf_put_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    reference_put(w, seed++, "token_embd.weight", 2, embedding, TACIT_TYPE_Q8_0, 2, 0);
    reference_put(w, seed++, "output_norm.weight", 1, d, TACIT_TYPE_F32, 0.5f, 1);
    for (unsigned l = 0; l < 2; l++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            bool norm = rows[i].dims == 1;
            snprintf(name, sizeof name, "blk.%u.%s.weight", l, rows[i].name);
            reference_put(w, seed++, name, rows[i].dims, rows[i].ne,
                          norm ? TACIT_TYPE_F32 : TACIT_TYPE_Q8_0, 0.5f, norm ? 1 : 0);
        }
}

typedef struct tiny_model {
    char folder[64];
    char text[96], vision[96];
    tacit_model *model;
} tiny_model;

/* Writes both files into a new folder below /tmp and loads them; `with_vision` false leaves the
 * tower out. `preproc`: longest edge of pictures, 24 is one tile. */
static inline tiny_model tiny_load_with(bool with_vision, uint32_t preproc)
{
    tiny_model t = {.folder = "/tmp/tacit-tiny-XXXXXX"};
    tacit_error err = {0};
    reference_spec spec = {.image = 24, .patch = 4, .width = 32, .ff = 64, .heads = 4};
    spec.layers = 2, spec.scale = 2, spec.out = 32, spec.linears = TACIT_TYPE_Q8_0;
    spec.preproc = preproc;
    gguf_writer *w = gguf_writer_new();
    assert_non_null(mkdtemp(t.folder));
    snprintf(t.text, sizeof t.text, "%s/text.gguf", t.folder);
    snprintf(t.vision, sizeof t.vision, "%s/mmproj.gguf", t.folder);
    tiny_put_text_model(w);
    tiny_put_vocabulary(w);
    if (gguf_write(w, t.text, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    w = gguf_writer_new();
    reference_keys(w, &spec);
    reference_tensors(w, &spec);
    if (gguf_write(w, t.vision, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    const char *const mmproj = t.vision;
    if (tacit_model_load(&t.model, t.text, &mmproj, with_vision, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return t;
}

static inline tiny_model tiny_load(bool with_vision)
{
    return tiny_load_with(with_vision, 24);
}

/* The text model with an output matrix of its own, so that 'Z' and 'Y' matter as input alone: the
 * embedding of 'Z' is not a number, that of 'Y' infinite; nothing else is touched. */
static inline void tiny_write_poisoned(const char *path)
{
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    gguf_file *file;
    uint8_t *data;
    size_t size;
    const uint64_t ne[] = {32, TINY_VOCAB};
    tiny_put_text_model(w);
    reference_put(w, 900, "output.weight", 2, ne, TACIT_TYPE_Q8_0, 2, 0);
    tiny_put_vocabulary(w);
    assert_int_equal(gguf_write_memory(w, &data, &size, &err), TACIT_OK);
    gguf_writer_free(w);
    assert_int_equal(gguf_open_memory(&file, data, size, "poisoned", &err), TACIT_OK);
    const gguf_tensor *t = gguf_tensor_find(file, "token_embd.weight");
    uint8_t *rows = data + (t->data - data);
    /* the half-precision scale of a row's first block */
    rows['Z' * t->row_bytes] = rows['Y' * t->row_bytes] = 0x00;
    rows['Z' * t->row_bytes + 1] = 0x7e;
    rows['Y' * t->row_bytes + 1] = 0x7c;
    gguf_close(file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    free(data);
}

static inline tiny_model tiny_load_poisoned(void)
{
    tacit_error err = {0};
    tiny_model t = tiny_load(false);
    tacit_model_free(t.model);
    tiny_write_poisoned(t.text);
    if (tacit_model_load(&t.model, t.text, NULL, 0, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return t;
}

static inline void tiny_free(tiny_model *t)
{
    tacit_model_free(t->model);
    unlink(t->text);
    unlink(t->vision);
    rmdir(t->folder);
}

#endif
