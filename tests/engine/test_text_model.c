#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "random_llama.h"

typedef struct refusal {
    const char *why; /* in the message */
    void (*change)(random_llama *m);
    void (*add)(gguf_writer *w);
} refusal;

static void no_context(random_llama *m)
{
    m->without = "llama.context_length";
}
static void no_width(random_llama *m)
{
    m->without = "llama.embedding_length";
}
static void no_layers(random_llama *m)
{
    m->without = "llama.block_count";
}
static void no_heads(random_llama *m)
{
    m->without = "llama.attention.head_count";
}
static void no_ff(random_llama *m)
{
    m->without = "llama.feed_forward_length";
}
static void no_eps(random_llama *m)
{
    m->without = "llama.attention.layer_norm_rms_epsilon";
}
static void no_embedding(random_llama *m)
{
    m->without = "token_embd.weight";
}
static void no_norm(random_llama *m)
{
    m->without = "output_norm.weight";
}
static void no_layer_norm(random_llama *m)
{
    m->without = "blk.1.ffn_norm.weight";
}
static void no_down(random_llama *m)
{
    m->without = "blk.1.ffn_down.weight";
}
static void odd_groups(random_llama *m)
{
    m->kv_heads[0] = 3;
}
static void odd_head(random_llama *m)
{
    m->head = 15;
}
static void extra_tensor(random_llama *m)
{
    m->with = "blk.0.attn_q_norm.weight";
}
static void short_array(random_llama *m)
{
    m->without = "llama.feed_forward_length";
}
static void add_short_array(gguf_writer *w)
{
    const uint32_t one[1] = {96};
    gguf_put_array(w, "llama.feed_forward_length", GGUF_U32, one, 1);
}
static void add_zero_in_array(gguf_writer *w)
{
    const uint32_t two[2] = {96, 0};
    gguf_put_array(w, "llama.feed_forward_length", GGUF_U32, two, 2);
}
static void add_real_array(gguf_writer *w)
{
    const float two[2] = {96, 96};
    gguf_put_array(w, "llama.feed_forward_length", GGUF_F32, two, 2);
}
static void add_experts(gguf_writer *w)
{
    gguf_put_u32(w, "llama.expert_count", 8);
}
static void add_longrope(gguf_writer *w)
{
    gguf_put_string(w, "llama.rope.scaling.type", "longrope", 8);
}
static void add_rope_dimension(gguf_writer *w)
{
    gguf_put_u32(w, "llama.rope.dimension_count", 8);
}
static void add_bad_base(gguf_writer *w)
{
    gguf_put_f32(w, "llama.rope.freq_base", -1);
}
static void add_bad_divisors(gguf_writer *w)
{
    const uint64_t ne[1] = {8};
    const float zero[8] = {1, 1, 1, 0, 1, 1, 1, 1};
    gguf_put_tensor(w, "rope_freqs.weight", 1, ne, TACIT_TYPE_F32, zero);
}
static void add_tokens(gguf_writer *w)
{
    const gguf_string two[2] = {{"a", 1}, {"b", 1}};
    gguf_put_strings(w, "tokenizer.ggml.tokens", two, 2);
}
static void wrong_vocab(random_llama *m)
{
    m->without = "llama.vocab_size";
}
static void wrong_width(random_llama *m)
{
    m->without = "llama.embedding_length";
}
static void add_width(gguf_writer *w)
{
    gguf_put_u32(w, "llama.embedding_length", 32);
}
static void add_huge_width(gguf_writer *w)
{
    gguf_put_u32(w, "llama.embedding_length", 4000000000u);
}

static const refusal refusals[] = {
    {"llama.context_length", no_context, NULL},
    {"llama.embedding_length", no_width, NULL},
    {"llama.block_count", no_layers, NULL},
    {"llama.attention.head_count", no_heads, NULL},
    {"llama.feed_forward_length", no_ff, NULL},
    {"rms_epsilon", no_eps, NULL},
    {"token_embd.weight", no_embedding, NULL},
    {"output_norm.weight", no_norm, NULL},
    {"blk.1.ffn_norm.weight", no_layer_norm, NULL},
    {"blk.1.ffn_down.weight", no_down, NULL},
    {"4 heads and 3 key-value heads", odd_groups, NULL},
    {"even number", odd_head, NULL},
    {"blk.0.attn_q_norm.weight", extra_tensor, NULL},
    {"one for each of 2 layers", short_array, add_short_array},
    {"feed_forward_length[1]", short_array, add_zero_in_array},
    {"feed_forward_length", short_array, add_real_array},
    {"expert_count is 8", NULL, add_experts},
    {"'longrope'", NULL, add_longrope},
    {"rope dimensions 8", NULL, add_rope_dimension},
    {"rope.freq_base", NULL, add_bad_base},
    {"rope_freqs.weight[3]", NULL, add_bad_divisors},
    {"tokenizer has 2 tokens", wrong_vocab, add_tokens},
    {"token_embd.weight", wrong_width, add_width},
    {"embedding_length", wrong_width, add_huge_width},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        random_llama m = random_llama_usual();
        if (refusals[i].change)
            refusals[i].change(&m);
        gguf_writer *w = random_llama_writer(&m);
        if (refusals[i].add)
            refusals[i].add(w);
        random_file f = random_llama_open(w);
        tacit_text_model text;
        tacit_error err = {0};
        assert_int_equal(text_model_load(&text, f.file, &err), TACIT_BAD_INPUT);
        if (!strstr(err.message, refusals[i].why))
            fail_msg("case %zu: '%s' does not name '%s'", i, err.message, refusals[i].why);
        assert_non_null(strstr(err.message, "random"));
        assert_null(text.layer);
        random_file_close(&f);
    }
}

/* Opens the model with another element type written over that of one tensor. */
static random_file open_with_type(const random_llama *m, const char *tensor, uint32_t type)
{
    random_file f = {0};
    size_t size;
    tacit_error err = {0};
    gguf_writer *w = random_llama_writer(m);
    assert_int_equal(gguf_write_memory(w, &f.data, &size, &err), TACIT_OK);
    gguf_writer_free(w);
    uint8_t *at = memmem(f.data, size, tensor, strlen(tensor));
    assert_non_null(at);
    at += strlen(tensor);
    tacit_store_u32(at + 4 + 8 * tacit_load_u32(at), type); /* behind the dimensions */
    if (gguf_open_memory(&f.file, f.data, size, "random", &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return f;
}

/* Types of the format that are not computed here are named with their tensor, and none is taken for
 * another one. Their blocks are smaller than those they stand in for, so the file holds them. */
static void test_types_without_arithmetic(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        const char *name;
    } types[] = {{20, "iq4_nl"}, {39, "mxfp4"}};
    static const char *const tensors[] = {"blk.1.ffn_down.weight", "token_embd.weight"};
    random_llama m = random_llama_usual();
    for (size_t i = 0; i < 4; i++) {
        random_file f = open_with_type(&m, tensors[i / 2], types[i % 2].type);
        tacit_text_model text;
        tacit_error err = {0};
        assert_int_equal(text_model_load(&text, f.file, &err), TACIT_BAD_INPUT);
        if (!strstr(err.message, types[i % 2].name) || !strstr(err.message, tensors[i / 2]))
            fail_msg("'%s' does not name %s and %s", err.message, tensors[i / 2],
                     types[i % 2].name);
        assert_null(text.layer);
        random_file_close(&f);
    }
}

static void test_other_architectures(void **state)
{
    (void)state;
    const char *const names[] = {"gemma2", "clip", ""};
    for (size_t i = 0; i < 3; i++) {
        gguf_writer *w = gguf_writer_new();
        if (names[i][0])
            gguf_put_string(w, "general.architecture", names[i], strlen(names[i]));
        random_file f = random_llama_open(w);
        tacit_text_model text;
        tacit_error err = {0};
        assert_int_equal(text_model_load(&text, f.file, &err), TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, names[i][0] ? names[i] : "general.architecture"));
        random_file_close(&f);
    }
}

static void test_numbers_of_a_usual_file(void **state)
{
    (void)state;
    random_llama m = random_llama_usual();
    m.biases = true;
    random_file f = random_llama_open(random_llama_writer(&m));
    tacit_text_model text;
    tacit_error err = {0};
    assert_int_equal(text_model_load(&text, f.file, &err), TACIT_OK);
    assert_int_equal(text.embedding, 64);
    assert_int_equal(text.vocab, 50);
    assert_int_equal(text.n_layers, 2);
    assert_int_equal(text.context_length, 512);
    assert_int_equal(text.head_dim, 16);
    assert_int_equal(text.max_ff, 96);
    assert_true(text.tied);
    assert_int_equal(text.layer[1].n_heads, 4);
    assert_int_equal(text.layer[1].n_kv_heads, 2);
    assert_int_equal(text.layer[1].linear[TEXT_K].n_out, 32);
    assert_non_null(text.layer[1].linear[TEXT_DOWN].bias);
    assert_non_null(text.layer[0].linear[TEXT_Q].transposed);
    assert_true(fabs(text.rope[0].frequency[1] - pow(10000, -2.0 / 16)) < 1e-12);
    text_model_unload(&text);
    text_model_unload(&text);
    random_file_close(&f);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < TEXT_LINEARS; i++)
        assert_int_equal(text_linear_find(text_linear_name((text_linear)i)), i);
    assert_int_equal(text_linear_find("attn_norm"), TEXT_LINEARS);
    for (int i = 0; i < TEXT_NORMS; i++)
        assert_int_equal(text_norm_find(text_norm_name((text_norm)i)), i);
    assert_int_equal(text_norm_find("attn_q"), TEXT_NORMS);
    tacit_low_rank pair[TEXT_LINEARS * 2] = {[TEXT_LINEARS + TEXT_O] = {.rank = 3}};
    const text_pairs pairs = {.pair = pair};
    assert_ptr_equal(text_pair(&pairs, 1, TEXT_O), &pair[TEXT_LINEARS + TEXT_O]);
    assert_null(text_pair(&pairs, 0, TEXT_O));
    assert_null(text_pair(NULL, 0, TEXT_O));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_types_without_arithmetic),
        cmocka_unit_test(test_other_architectures),
        cmocka_unit_test(test_numbers_of_a_usual_file),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
