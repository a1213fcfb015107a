/* Whole files: which tensor gets which type, that the bytes are those of its rows quantized one by
 * one, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/quantize.h"
#include "random_llama.h"

#include <unistd.h>

static const char path[] = TACIT_BINARY_DIR "/test-quantize.gguf";

static const tacit_type_traits *type(const char *name)
{
    const tacit_type_traits *t = tacit_type_by_name(name);
    assert_non_null(t);
    return t;
}

/* Width 256, feed-forward 288 (no multiple of 256) in layer 0 and 72 (none of 32) in layer 1. */
static random_llama usual(void)
{
    random_llama m = random_llama_usual();
    m.width = 256, m.heads[0] = m.heads[1] = 16, m.vocab = 20;
    m.per_layer = true, m.ff[0] = 288, m.ff[1] = 72;
    return m;
}

/* A file with what only text models have, and keys of other kinds. */
static random_file open_text(const random_llama *m)
{
    gguf_writer *w = random_llama_writer(m);
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_u32(w, "general.file_type", 0);
    gguf_put_string(w, "general.name", "random", 6);
    return random_llama_open(w);
}

static gguf_file *quantized_on(const gguf_file *file, const quantize_options *options,
                               size_t threads)
{
    quantize_plan plan;
    tacit_error err = {0};
    gguf_file *out;
    tacit_pool *pool;
    assert_int_equal(tacit_pool_new(&pool, threads, &err), TACIT_OK);
    if (quantize_plan_make(&plan, file, options, &err) != TACIT_OK ||
        quantize_write(&plan, path, pool, NULL, NULL, &err) != TACIT_OK ||
        gguf_open(&out, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    quantize_plan_free(&plan);
    tacit_pool_free(pool);
    return out;
}

static gguf_file *quantized(const gguf_file *file, const quantize_options *options)
{
    return quantized_on(file, options, 2);
}

static void expect_type(const gguf_file *file, const char *tensor, const char *name)
{
    const gguf_tensor *t = gguf_tensor_find(file, tensor);
    assert_non_null(t);
    if (strcmp(tacit_type_ggml_name(t->type), name) != 0)
        fail_msg("%s is %s, expected %s", tensor, tacit_type_ggml_name(t->type), name);
}

static void types_fall_back_where_rows_do_not_divide(void **state)
{
    (void)state;
    static const struct {
        const char *type, *width_288, *width_72, *tied;
        uint64_t file_type;
    } cases[] = {{"q4_k", "q5_0", "f16", "q6_k", 14},  {"q5_k", "q5_1", "f16", "q6_k", 16},
                 {"q6_k", "q8_0", "f16", "q6_k", 18},  {"q4_0", "q4_0", "f16", "q6_k", 2},
                 {"q4_1", "q4_1", "f16", "q6_k", 3},   {"q5_0", "q5_0", "f16", "q6_k", 8},
                 {"q5_1", "q5_1", "f16", "q6_k", 9},   {"q8_0", "q8_0", "f16", "q8_0", 7},
                 {"bf16", "bf16", "bf16", "bf16", 32}, {"f16", "f16", "f16", "f16", 1},
                 {"f32", "f32", "f32", "f32", 0}};
    random_llama m = usual();
    random_file f = open_text(&m);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        quantize_options options = {.type = type(cases[i].type)};
        gguf_file *out = quantized(f.file, &options);
        uint64_t n;
        gguf_string name;
        expect_type(out, "blk.0.attn_q.weight", cases[i].type);
        expect_type(out, "blk.0.ffn_down.weight", cases[i].width_288);
        expect_type(out, "blk.1.ffn_down.weight", cases[i].width_72);
        expect_type(out, "token_embd.weight", cases[i].tied);
        expect_type(out, "blk.1.attn_norm.weight", "f32");
        expect_type(out, "output_norm.weight", "f32");
        assert_int_equal(gguf_tensor_count(out), gguf_tensor_count(f.file));
        assert_int_equal(gguf_get_u64(out, "general.file_type", 0, 99, &n, NULL), TACIT_OK);
        assert_int_equal(n, cases[i].file_type);
        assert_int_equal(gguf_get_u64(out, "general.quantization_version", 0, 99, &n, NULL),
                         TACIT_OK);
        assert_int_equal(n, 2);
        assert_int_equal(gguf_get_string(out, "general.name", &name, NULL), TACIT_OK);
        assert_memory_equal(name.data, "random", 6);
        assert_int_equal(gguf_key_count(out), gguf_key_count(f.file) + 1);
        gguf_close(out);
    }
    random_file_close(&f);
}

static void choices_for_tensors_hold(void **state)
{
    (void)state;
    random_llama m = usual();
    m.untied = true, m.biases = true;
    random_file f = open_text(&m);
    const quantize_rule rules[] = {{"blk.0.attn_?.weight", type("q5_k")},
                                   {"blk.*.attn_*", type("f16")}};
    quantize_options options = {.type = type("q4_0"), .output = type("q5_0")};
    options.rule = rules, options.n_rules = 2;
    gguf_file *out = quantized(f.file, &options);
    expect_type(out, "blk.0.attn_k.weight", "q5_k");
    expect_type(out, "blk.0.attn_output.weight", "f16");
    expect_type(out, "blk.1.attn_k.weight", "f16");
    expect_type(out, "blk.1.attn_k.bias", "f32");
    expect_type(out, "blk.1.ffn_up.weight", "q4_0");
    expect_type(out, "output.weight", "q5_0");
    expect_type(out, "token_embd.weight", "q4_0");
    gguf_close(out);
    options.output = NULL, options.embedding = type("bf16"), options.n_rules = 0;
    out = quantized(f.file, &options);
    expect_type(out, "output.weight", "q6_k");
    expect_type(out, "token_embd.weight", "bf16");
    gguf_close(out);
    random_file_close(&f);
}

/* Of an encoder only linears are converted: not the kernel, of whatever type, nor positions. */
static void encoders_keep_what_is_no_linear(void **state)
{
    (void)state;
    static const struct {
        const char *name, *becomes;
        uint32_t dims;
        uint64_t ne[4];
        tacit_type type;
    } rows[] = {{"v.patch_embd.weight", "f16", 4, {4, 4, 3, 64}, TACIT_TYPE_F16},
                {"v.position_embd.weight", "f32", 2, {64, 9}, TACIT_TYPE_F32},
                {"v.blk.0.attn_q.weight", "q8_0", 2, {64, 64}, TACIT_TYPE_F32},
                {"v.blk.0.attn_q.bias", "f32", 1, {64}, TACIT_TYPE_F32},
                {"v.blk.0.ln1.weight", "f16", 1, {64}, TACIT_TYPE_F16},
                {"a.conv1d.1.weight", "f16", 3, {3, 64, 64}, TACIT_TYPE_F16},
                {"a.blk.0.ffn_up.weight", "q8_0", 2, {64, 32}, TACIT_TYPE_F16},
                {"mm.model.fc.weight", "q8_0", 2, {64, 32}, TACIT_TYPE_F16},
                {"mm.model.mb_block.1.block.0.0.weight", "f16", 4, {3, 3, 1, 64}, TACIT_TYPE_F16},
                {"tacit.other.weight", "f32", 2, {64, 32}, TACIT_TYPE_F32}};
    gguf_writer *w = gguf_writer_new();
    float *values = numbers_new(3 * 64 * 64, 1, 3);
    gguf_put_string(w, "general.architecture", "clip", 4);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        gguf_put_tensor(w, rows[i].name, rows[i].dims, rows[i].ne, rows[i].type, values);
    random_file f = random_llama_open(w);
    quantize_options options = {.type = type("q8_0")};
    gguf_file *out = quantized(f.file, &options);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_type(out, rows[i].name, rows[i].becomes);
    gguf_close(out);
    random_file_close(&f);
    free(values);
}

/* Every row is what its type makes of it alone, under its own weights; threads change nothing. */
static void bytes_are_those_of_single_rows(void **state)
{
    (void)state;
    random_llama m = usual();
    random_file f = open_text(&m);
    importance weights = {0};
    importance_entry *e = importance_add(&weights, "blk.0.ffn_up.weight", 256, 1);
    float mean[256];
    *e->rows = 8;
    for (size_t i = 0; i < 256; i++)
        e->sum[i] = (double)(i % 7) * 4;
    importance_mean(e, 0, mean);
    quantize_options options = {
        .type = type("q4_k"), .weights = &weights, .weights_path = "w.gguf"};
    const gguf_tensor *from = gguf_tensor_find(f.file, "blk.0.ffn_up.weight");
    uint8_t digest[2][TACIT_DIGEST_BYTES], row[144];
    for (size_t threads = 1; threads <= 3; threads += 2) {
        gguf_file *out = quantized_on(f.file, &options, threads);
        const gguf_tensor *to = gguf_tensor_find(out, "blk.0.ffn_up.weight");
        uint64_t n;
        for (size_t r = 0; r < from->rows; r++) {
            type("q4_k")->fit(row, (const float *)(const void *)(from->data + r * from->row_bytes),
                              mean, 256);
            assert_memory_equal(to->data + r * 144, row, 144);
        }
        assert_int_equal(gguf_get_u64(out, "quantize.imatrix.entries_count", 0, 99, &n, NULL),
                         TACIT_OK);
        assert_int_equal(n, 1);
        gguf_digest(out, digest[threads / 2]);
        gguf_close(out);
    }
    assert_memory_equal(digest[0], digest[1], sizeof digest[0]);
    importance_free(&weights);
    random_file_close(&f);
}

/* Stacked matrices of experts: each by the weights of its own. */
static void experts_have_weights_of_their_own(void **state)
{
    (void)state;
    enum { COLUMNS = 256, ROWS = 3, EXPERTS = 2 };
    static const char name[] = "blk.0.ffn_gate_exps.weight";
    const uint64_t ne[] = {COLUMNS, ROWS, EXPERTS};
    random_llama m = usual();
    gguf_writer *w = random_llama_writer(&m);
    float *values = numbers_new(COLUMNS * ROWS * EXPERTS, 1, 9), mean[COLUMNS];
    uint8_t row[144];
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_tensor(w, name, 3, ne, TACIT_TYPE_F32, values);
    random_file f = random_llama_open(w);
    importance weights = {0};
    importance_entry *e = importance_add(&weights, name, COLUMNS, EXPERTS);
    for (size_t i = 0; i < COLUMNS * EXPERTS; i++)
        e->sum[i] = (double)(i < COLUMNS ? i % 7 : 6 - i % 5);
    e->rows[0] = e->rows[1] = 1;
    quantize_options options = {.type = type("q4_k"), .weights = &weights, .weights_path = "w"};
    gguf_file *out = quantized(f.file, &options);
    const gguf_tensor *to = gguf_tensor_find(out, name);
    for (size_t r = 0; r < ROWS * EXPERTS; r++) {
        importance_mean(e, r / ROWS, mean);
        type("q4_k")->fit(row, values + r * COLUMNS, mean, COLUMNS);
        assert_memory_equal(to->data + r * sizeof row, row, sizeof row);
        importance_mean(e, 1 - r / ROWS, mean);
        type("q4_k")->fit(row, values + r * COLUMNS, mean, COLUMNS);
        assert_memory_not_equal(to->data + r * sizeof row, row, sizeof row);
    }
    gguf_close(out);
    importance_free(&weights);
    random_file_close(&f);
    free(values);
}

/* Quantized once, the same type again copies bytes; another type reads what is there. */
static void the_same_type_again_changes_nothing(void **state)
{
    (void)state;
    random_llama m = usual();
    m.type = TACIT_TYPE_Q8_0, m.ff[1] = 96;
    random_file f = open_text(&m);
    quantize_options options = {.type = type("q8_0")};
    quantize_plan plan;
    tacit_error err = {0};
    assert_int_equal(quantize_plan_make(&plan, f.file, &options, &err), TACIT_OK);
    assert_int_equal(plan.requantized, 0);
    quantize_plan_free(&plan);
    gguf_file *out = quantized(f.file, &options);
    for (size_t i = 0; i < gguf_tensor_count(out); i++)
        assert_memory_equal(gguf_tensor_at(out, i)->data, gguf_tensor_at(f.file, i)->data,
                            gguf_tensor_at(f.file, i)->bytes);
    gguf_close(out);
    options.type = type("q5_1");
    assert_int_equal(quantize_plan_make(&plan, f.file, &options, &err), TACIT_OK);
    assert_int_equal(plan.requantized, 2 * (TEXT_DOWN + 1) + 1);
    quantize_plan_free(&plan);
    random_file_close(&f);
}

static void expect_plan_refused(const gguf_file *file, const quantize_options *options,
                                tacit_status expected, const char *reason)
{
    quantize_plan plan;
    tacit_error err = {0};
    assert_int_equal(quantize_plan_make(&plan, file, options, &err), expected);
    if (!strstr(err.message, reason))
        fail_msg("'%s' does not say '%s'", err.message, reason);
    quantize_plan_free(&plan);
}

static random_file open_kind(const char *key, const char *value)
{
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, key, value, strlen(value));
    return random_llama_open(w);
}

static void what_cannot_be_converted_is_named(void **state)
{
    (void)state;
    quantize_options options = {.type = type("q4_0")};
    random_file f = open_kind("general.type", "adapter");
    expect_plan_refused(f.file, &options, TACIT_BAD_INPUT, "an adapter, which stays as it is");
    random_file_close(&f);
    f = open_kind("general.type", "imatrix");
    expect_plan_refused(f.file, &options, TACIT_BAD_INPUT, "found neither");
    random_file_close(&f);

    random_llama m = usual();
    gguf_writer *w = random_llama_writer(&m);
    gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_u32(w, "split.count", 2);
    f = random_llama_open(w);
    expect_plan_refused(f.file, &options, TACIT_BAD_INPUT, "one of 2 parts");
    random_file_close(&f);

    f = open_text(&m);
    const quantize_rule rule = {"blk.*.attn_qkv.weight", type("f16")};
    options.rule = &rule, options.n_rules = 1;
    expect_plan_refused(f.file, &options, TACIT_USAGE, "blk.*.attn_qkv.weight");
    options.n_rules = 0;

    importance weights = {0};
    options.weights = &weights;
    assert_non_null(importance_add(&weights, "blk.9.attn_q.weight", 256, 1));
    expect_plan_refused(f.file, &options, TACIT_BAD_INPUT, "names none of its tensors");
    assert_non_null(importance_add(&weights, "blk.0.attn_q.weight", 255, 1));
    expect_plan_refused(f.file, &options, TACIT_BAD_INPUT, "has 255 columns");
    importance_free(&weights);
    random_file_close(&f);
}

/* One value that no f16 holds, or none at all: nothing is published. */
static void values_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        float value;
        bool fits;
    } cases[] = {{"q8_0", NAN, false},     {"q4_k", INFINITY, false}, {"f16", 1e6f, false},
                 {"q4_0", -70000, false},  {"bf16", 1e6f, true},      {"f16", 65000, true},
                 {"bf16", INFINITY, false}};
    random_llama m = usual();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        random_file f = open_text(&m);
        const gguf_tensor *t = gguf_tensor_find(f.file, "blk.1.attn_v.weight");
        memcpy(f.data + (t->data - f.data) + 4 * 300, &cases[i].value, 4);
        quantize_options options = {.type = type(cases[i].type)};
        quantize_plan plan;
        tacit_error err = {0};
        unlink(path);
        assert_int_equal(quantize_plan_make(&plan, f.file, &options, &err), TACIT_OK);
        tacit_status status = quantize_write(&plan, path, NULL, NULL, NULL, &err);
        assert_int_equal(status, cases[i].fits ? TACIT_OK : TACIT_BAD_INPUT);
        assert_int_equal(access(path, F_OK) == 0, cases[i].fits);
        if (!cases[i].fits)
            assert_non_null(strstr(err.message, "blk.1.attn_v.weight, row 1"));
        quantize_plan_free(&plan);
        random_file_close(&f);
    }
}

/* Norms are copied, and so is what has the type already: no less judged. */
static void values_that_are_copied_are_judged(void **state)
{
    (void)state;
    static const char *const copied[] = {"blk.1.attn_norm.weight", "blk.1.attn_v.weight"};
    random_llama m = usual();
    for (size_t i = 0; i < 2; i++) {
        random_file f = open_text(&m);
        const gguf_tensor *t = gguf_tensor_find(f.file, copied[i]);
        const float none = NAN;
        memcpy(f.data + (t->data - f.data) + 4 * 10, &none, sizeof none);
        quantize_options options = {.type = type(i ? "f32" : "q8_0")};
        quantize_plan plan;
        tacit_error err = {0};
        unlink(path);
        assert_int_equal(quantize_plan_make(&plan, f.file, &options, &err), TACIT_OK);
        assert_int_equal(quantize_write(&plan, path, NULL, NULL, NULL, &err), TACIT_BAD_INPUT);
        assert_int_not_equal(access(path, F_OK), 0);
        assert_non_null(strstr(err.message, copied[i]));
        assert_non_null(strstr(err.message, "not finite"));
        quantize_plan_free(&plan);
        random_file_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_fall_back_where_rows_do_not_divide),
        cmocka_unit_test(choices_for_tensors_hold),
        cmocka_unit_test(encoders_keep_what_is_no_linear),
        cmocka_unit_test(bytes_are_those_of_single_rows),
        cmocka_unit_test(experts_have_weights_of_their_own),
        cmocka_unit_test(the_same_type_again_changes_nothing),
        cmocka_unit_test(what_cannot_be_converted_is_named),
        cmocka_unit_test(values_that_do_not_fit_are_refused),
        cmocka_unit_test(values_that_are_copied_are_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
