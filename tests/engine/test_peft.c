/* Adapters to and from PEFT's files. Oracles: names and permutation written down from transformers'
 * and the converter's definitions, files laid out by hand, and the way there and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "engine/adapter_about.h"
#include "engine/adapter_export.h"
#include "engine/adapter_import.h"
#include "engine/peft_config.h"
#include "engine/peft_names.h"
#include "engine/safetensors.h"
#include "tiny_model.h"
#include "train_fixture.h"

#include <jansson.h>
#include <math.h>

#define FOLDER TACIT_BINARY_DIR "/test-peft"
static const char path[] = FOLDER ".gguf", again[] = FOLDER "-again.gguf";
static const char tensors_path[] = FOLDER "/" PEFT_TENSORS_NAME;
static const char config_path[] = FOLDER "/" PEFT_CONFIG_NAME;

static int make_folder(void **state)
{
    (void)state;
    return tacit_file_make_dir(FOLDER, 0755, NULL) == TACIT_OK ? 0 : -1;
}

/* Saves `spec` with values that are all different, and loads it. */
static tacit_adapter *save(const tacit_model *m, const tacit_trainable_spec *spec)
{
    tacit_layout l;
    tacit_error err;
    tacit_adapter *a = NULL;
    tacit_adapter_info info = {.version = 5, .lineage = {1, 2, 3}};
    if (tacit_layout_make(&l, m, spec, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    float *v = malloc(l.values * sizeof *v);
    for (size_t i = 0; i < l.values; i++)
        v[i] = (float)((int)(i * 37 % 1009) - 500) / 64.0f + (float)i * 0x1p-20f;
    if (tacit_adapter_save(path, m, spec, v, &info, &err) != TACIT_OK ||
        tacit_adapter_load(&a, m, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    free(v);
    tacit_layout_free(&l);
    return a;
}

static void export_to_folder(const tacit_adapter *a, const tacit_model *m)
{
    tacit_error err;
    if (adapter_export_peft(FOLDER, a, m, "some/base", &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

static tacit_status import_folder(const tacit_model *m, tacit_error *err)
{
    adapter_source source;
    size_t pairs;
    tacit_status status = adapter_source_find(&source, FOLDER, err);
    return status == TACIT_OK ? adapter_import(again, &source, m, &pairs, err) : status;
}

static tacit_adapter *import_and_load(const tacit_model *m)
{
    tacit_error err;
    tacit_adapter *a = NULL;
    if (import_folder(m, &err) != TACIT_OK || tacit_adapter_load(&a, m, again, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return a;
}

static void assert_same_pairs(const tacit_adapter *a, const tacit_adapter *b)
{
    assert_int_equal(adapter_pair_count(a), adapter_pair_count(b));
    for (size_t i = 0; i < adapter_pair_count(a); i++) {
        const adapter_pair *p = adapter_pair_at(a, i), *q = adapter_find(b, p->tensor);
        assert_non_null(q);
        assert_true(p->rank == q->rank && p->scale == q->scale);
        assert_memory_equal(p->a, q->a, p->rank * p->n_in * sizeof *p->a);
        assert_memory_equal(p->b, q->b, p->rank * p->n_out * sizeof *p->b);
    }
}

/* ---- there and back ---- */

static void every_architecture_survives_to_the_bit(void **state)
{
    (void)state;
    for (int w = 0; w < FIXTURE_WORDS; w++) {
        tacit_model *m = fixture_model(fixture_words[w], true);
        tacit_trainable_spec spec = {.kind = TACIT_TRAIN_LORA,
                                     .target = {"attn_q=3", "*"},
                                     .n_targets = 2,
                                     .rank = 4,
                                     .alpha = 6};
        tacit_adapter *a = save(m, &spec);
        export_to_folder(a, m);
        tacit_adapter *b = import_and_load(m);
        assert_same_pairs(a, b);
        assert_true(tacit_adapter_get_info(b)->has_base_digest);
        tacit_adapter_free(a);
        tacit_adapter_free(b);
        fixture_model_free(m);
    }
}

/* Row r of a head of transformers' q and k is at 2 r, or behind the first half at 2 r - d + 1:
 * pairs of rotation (r, r + d / 2) become neighbours. V, and k of others, stay. */
static void rows_are_permuted_by_definition(void **state)
{
    (void)state;
    static const struct {
        const char *word, *tensor, *module;
        bool permuted;
    } cases[] = {
        {"untied", "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj", true},
        {"untied", "blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj", true},
        {"untied", "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj", false},
        {"untied", "output.weight", "lm_head", false},
        {"qwen2", "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj", false},
        {"qwen2vl", "blk.1.ffn_up.weight", "model.language_model.layers.1.mlp.up_proj", false},
        {"lfm2", "blk.0.shortconv.in_proj.weight", "model.layers.0.conv.in_proj", false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        tacit_model *m = fixture_model(cases[c].word, true);
        tacit_trainable_spec spec = {.target = {"*"}, .n_targets = 1, .rank = 3, .alpha = 6};
        tacit_adapter *a = save(m, &spec);
        const adapter_pair *p = adapter_find(a, cases[c].tensor);
        safetensors_file *f;
        char name[256];
        export_to_folder(a, m);
        assert_int_equal(safetensors_open(&f, tensors_path, NULL), TACIT_OK);
        snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", cases[c].module);
        const safetensors_tensor *half = safetensors_find(f, name);
        assert_true(p && half && half->shape[0] == 3 && half->shape[1] == p->n_in);
        assert_memory_equal(half->data, p->a, half->bytes);
        snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", cases[c].module);
        half = safetensors_find(f, name);
        assert_true(half && half->shape[0] == p->n_out && half->shape[1] == 3);
        size_t d = m->text.head_dim;
        for (size_t row = 0; row < p->n_out; row++) {
            size_t r = row % d, at = r < d / 2 ? 2 * r : 2 * r - d + 1;
            size_t from = cases[c].permuted ? row - r + at : row;
            assert_memory_equal(half->data + row * 12, p->b + from * 3, 12);
        }
        safetensors_close(f);
        tacit_adapter_free(a);
        fixture_model_free(m);
    }
}

static json_t *read_config(void)
{
    json_error_t e;
    json_t *config = json_load_file(config_path, JSON_REJECT_DUPLICATES, &e);
    if (!config)
        fail_msg("%s", e.text);
    return config;
}

static bool list_has(const json_t *list, const char *word)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), word) == 0)
            return true;
    return false;
}

static void the_configuration_says_what_the_file_says(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec spec = {
        .target = {"attn_q", "blk.1.ffn_down=2", "output"}, .n_targets = 3, .rank = 4, .alpha = 6};
    tacit_adapter *a = save(m, &spec);
    export_to_folder(a, m);
    json_t *c = read_config(), *targets = json_object_get(c, "target_modules");
    assert_string_equal(json_string_value(json_object_get(c, "peft_type")), "LORA");
    assert_string_equal(json_string_value(json_object_get(c, "base_model_name_or_path")),
                        "some/base");
    assert_int_equal(json_integer_value(json_object_get(c, "r")), 4);
    assert_int_equal(json_integer_value(json_object_get(c, "lora_alpha")), 6);
    assert_true(json_is_false(json_object_get(c, "use_rslora")));
    assert_true(json_is_true(json_object_get(c, "inference_mode")));
    assert_int_equal(json_array_size(targets), 3);
    assert_true(list_has(targets, "q_proj") && list_has(targets, "lm_head"));
    assert_true(list_has(targets, "model.layers.1.mlp.down_proj"));
    const json_t *ranks = json_object_get(c, "rank_pattern");
    assert_int_equal(json_object_size(ranks), 1);
    assert_int_equal(json_integer_value(json_object_get(ranks, "model.layers.1.mlp.down_proj")), 2);
    assert_int_equal(json_object_size(json_object_get(c, "alpha_pattern")), 0);
    json_decref(c);
    tacit_adapter_free(a);
    fixture_model_free(m);
}

/* (A, B R) by a sum in long double, from the halves that trainable.h defines; ordinary afterwards.
 */
static void cores_become_pairs(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_CORE);
    tacit_adapter *a = save(m, &spec), *b, *c;
    tacit_error err;
    assert_int_equal(adapter_export_gguf(again, a, m, &err), TACIT_OK);
    assert_int_equal(tacit_adapter_load(&b, m, again, &err), TACIT_OK);
    assert_string_equal(adapter_get_keys(b)->type, ADAPTER_TYPE_LORA);
    assert_int_equal(tacit_adapter_get_info(b)->version, 5);
    for (size_t i = 0; i < adapter_pair_count(a); i++) {
        const adapter_pair *p = adapter_pair_at(a, i), *q = adapter_find(b, p->tensor);
        assert_true(q && !q->core && q->scale == p->scale && q->rank == p->rank);
        assert_memory_equal(p->a, q->a, p->rank * p->n_in * sizeof *p->a);
        for (size_t row = 0; row < p->n_out; row++)
            for (size_t k = 0; k < p->rank; k++) {
                long double sum = 0, size = 0;
                for (size_t j = 0; j < p->rank; j++) {
                    long double part =
                        (long double)p->b[row * p->rank + j] * p->core[j * p->rank + k];
                    sum += part;
                    size += fabsl(part);
                }
                long double off = fabsl(sum - (long double)q->b[row * p->rank + k]);
                assert_true(off <= 1.2e-7L * size);
            }
    }
    export_to_folder(a, m);
    c = import_and_load(m);
    assert_same_pairs(b, c);
    tacit_adapter_free(a);
    tacit_adapter_free(b);
    tacit_adapter_free(c);
    fixture_model_free(m);
}

/* ---- pairs beside encoders ---- */

static void smolvlm_has_names_beside_encoders(void **state)
{
    (void)state;
    tiny_model t = tiny_load_with(true, 24);
    tacit_trainable_spec spec = {.target = {"*", "*.*"}, .n_targets = 2, .rank = 2, .alpha = 4};
    static const char *const names[][2] = {
        {"blk.1.attn_k", "model.text_model.layers.1.self_attn.k_proj"},
        {"v.blk.0.attn_q", "model.vision_model.encoder.layers.0.self_attn.q_proj"},
        {"v.blk.1.attn_k", "model.vision_model.encoder.layers.1.self_attn.k_proj"},
        {"v.blk.0.attn_v", "model.vision_model.encoder.layers.0.self_attn.v_proj"},
        {"v.blk.1.attn_out", "model.vision_model.encoder.layers.1.self_attn.out_proj"},
        {"v.blk.1.ffn_up", "model.vision_model.encoder.layers.1.mlp.fc1"},
        {"v.blk.0.ffn_down", "model.vision_model.encoder.layers.0.mlp.fc2"},
        {"mm.model.fc", "model.connector.modality_projection.proj"}};
    tacit_adapter *a = save(t.model, &spec), *b;
    tacit_error err;
    safetensors_file *f;
    export_to_folder(a, t.model);
    assert_int_equal(safetensors_open(&f, tensors_path, NULL), TACIT_OK);
    assert_int_equal(safetensors_count(f), 2 * (2 * 7 + 2 * 6 + 1));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[256];
        snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", names[i][1]);
        const safetensors_tensor *half = safetensors_find(f, name);
        snprintf(name, sizeof name, "%s.weight", names[i][0]);
        const adapter_pair *p = adapter_find(a, name);
        assert_true(p && half && half->bytes == p->rank * p->n_in * sizeof(float) &&
                    memcmp(half->data, p->a, half->bytes) == 0);
    }
    safetensors_close(f);
    json_t *c = read_config(); /* ends of names would fit both sides */
    assert_true(list_has(json_object_get(c, "target_modules"), names[0][1]));
    json_decref(c);
    b = import_and_load(t.model);
    assert_string_equal(adapter_get_keys(b)->type, ADAPTER_TYPE_TACIT_LORA);
    assert_same_pairs(a, b);
    assert_int_equal(adapter_export_gguf(again, a, t.model, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "beside encoders"));
    tacit_adapter_free(a);
    tacit_adapter_free(b);
    tiny_free(&t);
}

/* ---- scales ---- */

static void patterns_and_scales_are_those_of_peft(void **state)
{
    (void)state;
    static const char text[] =
        "{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":16,\"use_rslora\":%s,"
        "\"rank_pattern\":{\"q_proj\":2,\"layers\\\\.[01]\\\\.self_attn\\\\.v_proj\":4},"
        "\"alpha_pattern\":{\"^model.layers.1.*\":5,\"q_proj\":3.5}}";
    static const struct {
        const char *module;
        uint32_t rank;
        double alpha;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj", 2, 3.5},
        {"model.layers.1.self_attn.q_proj", 2, 5}, /* the first that fits */
        {"model.layers.0.self_attn.v_proj", 4, 16},
        {"model.layers.2.self_attn.v_proj", 8, 16},
        {"model.layers.0.self_attn.xq_proj", 8, 16}, /* ends begin behind a dot */
        {"model.layers.10.self_attn.k_proj", 8, 5},
        {"lm_head", 8, 16},
    };
    for (int rs = 0; rs < 2; rs++) {
        char json[512];
        peft_config *c;
        tacit_error err;
        snprintf(json, sizeof json, text, rs ? "true" : "false");
        if (peft_config_parse(&c, json, strlen(json), "test", &err) != TACIT_OK)
            fail_msg("%s", err.message);
        assert_true(peft_config_weight(c) == (rs ? 16 * sqrt(8) : 16));
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            uint32_t rank;
            double weight;
            assert_int_equal(peft_config_pair(c, cases[i].module, &rank, &weight, &err), TACIT_OK);
            assert_int_equal(rank, cases[i].rank);
            assert_true(weight == (rs ? cases[i].alpha * sqrt(rank) : cases[i].alpha));
        }
        peft_config_free(c);
    }
}

/* A file of others: no alpha, so every pair counts as it is, whatever its rank. */
static void without_alpha_pairs_count_as_they_are(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    const tacit_linear *v = &m->text.layer[0].linear[TEXT_V];
    float values[256];
    gguf_writer *w = gguf_writer_new();
    tacit_adapter *a, *b;
    gguf_put_string(w, "general.architecture", "llama", 5);
    gguf_put_string(w, "general.type", "adapter", 7);
    gguf_put_string(w, "adapter.type", "lora", 4);
    for (size_t i = 0; i < 256; i++)
        values[i] = 1.0f + (float)i;
    for (size_t layer = 0; layer < 2; layer++) {
        char name[64];
        const uint64_t ne[2][2] = {{v->n_in, 2 + layer}, {2 + layer, v->n_out}};
        for (int half = 0; half < 2; half++) {
            snprintf(name, sizeof name, "blk.%zu.attn_v.weight.lora_%c", layer, half ? 'b' : 'a');
            gguf_put_tensor(w, name, 2, ne[half], TACIT_TYPE_F32, values);
        }
    }
    assert_int_equal(gguf_write(w, path, NULL), TACIT_OK);
    gguf_writer_free(w);
    assert_int_equal(tacit_adapter_load(&a, m, path, NULL), TACIT_OK);
    export_to_folder(a, m);
    b = import_and_load(m);
    for (size_t i = 0; i < 2; i++) {
        const adapter_pair *p = adapter_pair_at(a, i), *q = adapter_find(b, p->tensor);
        assert_true(p->scale == 1 && q && q->rank == p->rank);
        for (size_t k = 0; k < p->rank * p->n_out; k++)
            assert_true(fabsf(q->scale * q->b[k] / p->b[k] - 1) < 1e-6f);
    }
    tacit_adapter_free(a);
    tacit_adapter_free(b);
    fixture_model_free(m);
}

/* ---- files laid out by hand ---- */

/* A pair of "blk.0.attn_v" of the tiny model ([32 -> 16] there), in any type; `extra` is JSON of
 * further entries, which begin at byte *end. */
typedef struct laid_out {
    const char *dtype;
    size_t bytes; /* of a value */
    size_t rank_a, rank_b, n_in, n_out;
    const char *module, *half_a, *half_b, *extra;
    size_t more;       /* bytes of what extra describes */
    const void *first; /* the first value's bytes; NULL: zeros */
} laid_out;

static laid_out sound(const tacit_model *m)
{
    const tacit_linear *v = &m->text.layer[0].linear[TEXT_V];
    return (laid_out){.dtype = "F32",
                      .bytes = 4,
                      .rank_a = 2,
                      .rank_b = 2,
                      .n_in = v->n_in,
                      .n_out = v->n_out,
                      .module = "base_model.model.model.layers.0.self_attn.v_proj",
                      .half_a = ".lora_A.weight",
                      .half_b = ".lora_B.weight",
                      .extra = ""};
}

static void lay_out(const laid_out *l)
{
    char header[2048];
    size_t a = l->rank_a * l->n_in * l->bytes, b = l->n_out * l->rank_b * l->bytes;
    int n =
        snprintf(header, sizeof header,
                 "{\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%zu,%zu],\"data_offsets\":[0,%zu]},"
                 "\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%zu,%zu],\"data_offsets\":[%zu,%zu]}%s}",
                 l->module, l->half_a, l->dtype, l->rank_a, l->n_in, a, l->module, l->half_b,
                 l->dtype, l->n_out, l->rank_b, a, a + b, l->extra);
    size_t size = 8 + (size_t)n + a + b + l->more;
    uint8_t *bytes = calloc(1, size);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, (size_t)n);
    if (l->first)
        memcpy(bytes + 8 + n, l->first, l->bytes);
    assert_int_equal(tacit_file_write(tensors_path, bytes, size, 0644, NULL), TACIT_OK);
    free(bytes);
}

static void put_config(const char *more)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4%s%s}",
             *more ? "," : "", more);
    assert_int_equal(tacit_file_write(config_path, text, strlen(text), 0644, NULL), TACIT_OK);
}

static void expect_refused(const tacit_model *m, const char *why)
{
    tacit_error err = {0};
    unlink(again);
    if (import_folder(m, &err) != TACIT_BAD_INPUT || !strstr(err.message, why))
        fail_msg("'%s' does not say '%s'", err.message, why);
    assert_int_not_equal(access(again, F_OK), 0);
}

static void half_precision_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        size_t bytes;
        uint32_t one_and_a_half; /* as the type has it */
    } types[] = {{"F32", 4, 0x3fc00000}, {"F16", 2, 0x3e00}, {"BF16", 2, 0x3fc0}};
    tacit_model *m = fixture_model("untied", true);
    for (size_t i = 0; i < 3; i++) {
        laid_out l = sound(m);
        l.dtype = types[i].dtype, l.bytes = types[i].bytes, l.first = &types[i].one_and_a_half;
        lay_out(&l);
        put_config("\"use_rslora\":true");
        tacit_adapter *a = import_and_load(m);
        const adapter_pair *p = adapter_find(a, "blk.0.attn_v.weight");
        assert_true(p && p->a[0] == 1.5f && p->a[1] == 0 &&
                    fabs((double)p->scale - 4 / sqrt(2)) < 1e-6);
        tacit_adapter_free(a);
    }
    fixture_model_free(m);
}

static void each_fault_of_the_configuration_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config, *why;
    } cases[] = {
        {"[]", "expected a JSON object"},
        {"{", "adapter_config.json"},
        {"{\"r\":2,\"r\":2}", "duplicate"},
        {"{\"r\":2,\"lora_alpha\":4}", "peft_type"},
        {"{\"peft_type\":\"IA3\",\"r\":2,\"lora_alpha\":4}", "\"IA3\""},
        {"{\"peft_type\":\"LORA\",\"lora_alpha\":4}", "r: expected a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":4}", "r: expected a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":1025,\"lora_alpha\":4}", "r: expected a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":2.0,\"lora_alpha\":4}", "r: expected a rank"},
        {"{\"peft_type\":\"LORA\",\"r\":2}", "lora_alpha: expected a number from 1e-30 to 1e30"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":0}", "lora_alpha"},
        {"{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":NaN}", "adapter_config.json"},
    };
    static const struct {
        const char *more, *why;
    } keys[] = {
        {"\"use_dora\":true", "use_dora is true: DoRA"},
        {"\"bias\":\"all\"", "bias: expected \"none\""},
        {"\"fan_in_fan_out\":true", "fan_in_fan_out"},
        {"\"modules_to_save\":[\"lm_head\"]", "modules_to_save"},
        {"\"trainable_token_indices\":[1]", "trainable_token_indices"},
        {"\"lora_bias\":true", "lora_bias"},
        {"\"layer_replication\":[[0,1]]", "layer_replication"},
        {"\"target_parameters\":[\"x\"]", "target_parameters"},
        {"\"init_lora_weights\":\"pissa_niter_4\"", "init_lora_weights"},
        {"\"loftq_config\":{\"loftq_bits\":4}", "loftq_config"},
        {"\"some_new_key\":{\"a\":1}", "some_new_key is {\"a\":1}: this key of PEFT is not known"},
        {"\"use_rslora\":1", "use_rslora"},
        {"\"rank_pattern\":[]", "rank_pattern: expected an object"},
        {"\"rank_pattern\":{\"q_proj\":0}", "rank_pattern of q_proj"},
        {"\"alpha_pattern\":{\"q_proj\":-1}", "alpha_pattern of q_proj"},
        {"\"alpha_pattern\":{\"(q_proj\":1}", "'(q_proj' is no regular expression"},
        {"\"alpha_pattern\":{\"((.|_)+)+[!?]\":1}", "too many steps"},
    };
    tacit_model *m = fixture_model("untied", true);
    laid_out l = sound(m);
    lay_out(&l);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = cases[i].config;
        assert_int_equal(tacit_file_write(config_path, text, strlen(text), 0644, NULL), TACIT_OK);
        expect_refused(m, cases[i].why);
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        put_config(keys[i].more);
        expect_refused(m, keys[i].why);
    }
    put_config("\"use_dora\":false,\"modules_to_save\":null,\"loftq_config\":{},\"bias\":\"none\","
               "\"init_lora_weights\":\"gaussian\",\"peft_version\":\"0.18\",\"new\":null");
    tacit_adapter_free(import_and_load(m));
    unlink(config_path);
    expect_refused(m, PEFT_CONFIG_NAME);
    fixture_model_free(m);
}

static void each_fault_of_the_tensors_is_refused(void **state)
{
    (void)state;
    static const float nan_value = NAN, inf_value = INFINITY;
    tacit_model *m = fixture_model("untied", true);
    const laid_out good = sound(m);
    laid_out cases[20];
    const char *why[20];
    size_t n = 0;
#define FAULT(says, field, value) (cases[n] = good, cases[n].field = (value), why[n++] = (says))
    FAULT("has type F64; expected F32, F16 or BF16", dtype, "F64");
    cases[n - 1].bytes = 8;
    FAULT("expected [2, 32]", rank_a, 3);
    FAULT(", 2], by the model", rank_b, 3);
    FAULT("expected [2, 32]", n_in, 31);
    FAULT("by the model and the rank", n_out, good.n_out + 1);
    FAULT("not finite", first, &nan_value);
    FAULT("not finite", first, &inf_value);
    FAULT("of a module that this model lacks", module,
          "base_model.model.model.layers.9.self_attn.v_proj");
    FAULT("of a module that this model lacks", module, "base_model.model.model.embed_tokens");
    FAULT("is no half of a pair", module, "model.layers.0.self_attn.v_proj");
    FAULT("is alone: expected base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight",
          half_a, ".lora_X.weight");
    FAULT("lora_B.weight as well", half_b, ".lora_X.weight");
    FAULT("a pair of an embedding", half_b, ".lora_embedding_B");
    cases[n - 1].half_a = ".lora_embedding_A";
#undef FAULT
    put_config("");
    for (size_t i = 0; i < n; i++) {
        lay_out(&cases[i]);
        expect_refused(m, why[i]);
    }
    laid_out magnitude = good;
    char extra[256];
    size_t end = 2 * (good.n_in + good.n_out) * 4;
    snprintf(extra, sizeof extra,
             ",\"%s.lora_magnitude_vector\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%zu,"
             "%zu]}",
             good.module, end, end + 4);
    magnitude.extra = extra, magnitude.more = 4;
    lay_out(&magnitude);
    expect_refused(m, "a magnitude of DoRA");
    assert_int_equal(tacit_file_write(tensors_path, "\2\0\0\0\0\0\0\0{}", 10, 0644, NULL),
                     TACIT_OK);
    expect_refused(m, "without tensors");
    unlink(tensors_path);
    expect_refused(m, "there is no such file");
    assert_int_equal(tacit_file_write(FOLDER "/adapter_model.bin", "x", 1, 0644, NULL), TACIT_OK);
    expect_refused(m, "pickled");
    unlink(FOLDER "/adapter_model.bin");
    fixture_model_free(m);
}

static void a_tied_output_has_no_pair(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    laid_out l = sound(m);
    l.module = "base_model.model.lm_head";
    lay_out(&l);
    put_config("");
    expect_refused(m, "whose output is its embedding");
    fixture_model_free(m);
}

/* ---- what is written ---- */

static tacit_status fill_ones(void *ctx, uint8_t *out, size_t bytes, tacit_error *err)
{
    (void)ctx;
    (void)err;
    memset(out, 1, bytes);
    return TACIT_OK;
}

static void the_writer_is_strict(void **state)
{
    (void)state;
    static const char long_name[SAFETENSORS_MAX_NAME + 2] = {[0 ... SAFETENSORS_MAX_NAME] = 'a'};
    static const safetensors_new bad[] = {
        {"a", {2, 3}, fill_ones, NULL},          {"", {2, 3}, fill_ones, NULL},
        {"\x1b[2J", {2, 3}, fill_ones, NULL},    {"b", {0, 3}, fill_ones, NULL},
        {"b", {UINT64_MAX, 3}, fill_ones, NULL}, {"b", {(uint64_t)1 << 61, 1}, fill_ones, NULL},
        {long_name, {1, 1}, fill_ones, NULL},    {"__metadata__", {1, 1}, fill_ones, NULL}};
    static const char *const metadata[][2] = {{"k", "v"}};
    tacit_error err;
    safetensors_file *f;
    unlink(tensors_path);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const safetensors_new two[] = {{"a", {1, 5}, fill_ones, NULL}, bad[i]};
        assert_int_equal(safetensors_write(tensors_path, two, 2, NULL, 0, &err), TACIT_USAGE);
        assert_int_not_equal(access(tensors_path, F_OK), 0);
    }
    const safetensors_new two[] = {{"b", {1, 5}, fill_ones, NULL}, {"a", {2, 3}, fill_ones, NULL}};
    assert_int_equal(safetensors_write(tensors_path, two, 2, metadata, 1, &err), TACIT_OK);
    assert_int_equal(safetensors_open(&f, tensors_path, &err), TACIT_OK);
    assert_string_equal(safetensors_at(f, 0)->name, "b");
    assert_int_equal(safetensors_at(f, 1)->shape[1], 3);
    assert_int_equal((uintptr_t)safetensors_at(f, 0)->data % 8, 0);
    assert_string_equal(safetensors_metadata(f, "format"), "pt");
    assert_string_equal(safetensors_metadata(f, "k"), "v");
    safetensors_close(f);
}

static void canaries_are_not_exported(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
    tacit_adapter_info info = {.canaries = 3};
    tacit_layout l;
    tacit_adapter *a;
    tacit_error err;
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *v = calloc(l.values, sizeof *v);
    assert_int_equal(tacit_adapter_save(path, m, &spec, v, &info, &err), TACIT_OK);
    assert_int_equal(tacit_adapter_load(&a, m, path, &err), TACIT_OK);
    assert_int_equal(adapter_export_peft(FOLDER, a, m, NULL, &err), TACIT_REFUSED);
    assert_int_equal(adapter_export_gguf(again, a, m, &err), TACIT_REFUSED);
    assert_non_null(strstr(err.message, "3 canaries"));
    tacit_adapter_free(a);
    free(v);
    tacit_layout_free(&l);
    fixture_model_free(m);
}

static void what_a_file_is_can_be_told_without_its_model(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec spec = {
        .target = {"attn_q", "blk.1.ffn_down=2", "output"}, .n_targets = 3, .rank = 4, .alpha = 6};
    tacit_adapter_free(save(m, &spec));
    gguf_file *f;
    adapter_about about;
    assert_int_equal(gguf_open(&f, path, NULL), TACIT_OK);
    assert_int_equal(adapter_about_read(&about, f, NULL), TACIT_OK);
    assert_int_equal(about.n_targets, 3);
    assert_string_equal(about.target[0].name, "blk.*.attn_q");
    assert_true(about.target[0].pairs == 2 && about.target[0].rank == 4);
    assert_string_equal(about.target[1].name, "blk.*.ffn_down");
    assert_true(about.target[1].pairs == 1 && about.target[1].rank == 2);
    assert_string_equal(about.target[2].name, "output");
    const tacit_text_model *t = &m->text;
    size_t q = t->layer[0].linear[TEXT_Q].n_in + t->layer[0].linear[TEXT_Q].n_out;
    size_t down = t->layer[1].linear[TEXT_DOWN].n_in + t->layer[1].linear[TEXT_DOWN].n_out;
    assert_int_equal(about.values, 8 * q + 2 * down + 4 * (t->embedding + t->vocab));
    assert_true(about.pairs == 4 && about.keys.alpha == 6 && about.keys.info.version == 5);
    adapter_about_free(&about);
    gguf_close(f);
    assert_int_equal(gguf_open(&f, TACIT_SOURCE_DIR "/tests/golden/tiny-tied.gguf", NULL),
                     TACIT_OK);
    assert_int_equal(adapter_about_read(&about, f, NULL), TACIT_BAD_INPUT);
    gguf_close(f);
    fixture_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_survives_to_the_bit),
        cmocka_unit_test(rows_are_permuted_by_definition),
        cmocka_unit_test(the_configuration_says_what_the_file_says),
        cmocka_unit_test(cores_become_pairs),
        cmocka_unit_test(smolvlm_has_names_beside_encoders),
        cmocka_unit_test(patterns_and_scales_are_those_of_peft),
        cmocka_unit_test(without_alpha_pairs_count_as_they_are),
        cmocka_unit_test(half_precision_is_read),
        cmocka_unit_test(each_fault_of_the_configuration_is_refused),
        cmocka_unit_test(each_fault_of_the_tensors_is_refused),
        cmocka_unit_test(a_tied_output_has_no_pair),
        cmocka_unit_test(the_writer_is_strict),
        cmocka_unit_test(canaries_are_not_exported),
        cmocka_unit_test(what_a_file_is_can_be_told_without_its_model),
    };
    return cmocka_run_group_tests(tests, make_folder, NULL);
}
