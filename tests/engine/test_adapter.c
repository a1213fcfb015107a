/* Adapter files: round trips, the shape the ecosystem expects, and everything that is refused. The
 * oracle of reading is the file as another writer made it (gguf_writer by hand). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/file.h"
#include "engine/adapter_parts.h"
#include "engine/layout.h"
#include "train_fixture.h"

#include <math.h>

static const char path[] = TACIT_BINARY_DIR "/test-adapter.gguf";
static const char other_path[] = TACIT_BINARY_DIR "/test-adapter-2.gguf";

static float *values_of(const tacit_layout *l)
{
    float *v = malloc(l->values * sizeof *v);
    for (size_t i = 0; i < l->values; i++)
        v[i] = (float)((int)(i * 37 % 101) - 50) / 64.0f;
    return v;
}

static void save(const tacit_model *m, const tacit_trainable_spec *spec, const float *values,
                 const char *to)
{
    tacit_error err;
    tacit_adapter_info info = {.version = 5, .parent_version = 4, .lineage = {1, 2, 3}};
    if (tacit_adapter_save(to, m, spec, values, &info, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

static void values_survive_the_file(void **state)
{
    (void)state;
    static const tacit_trainable_kind kinds[2] = {TACIT_TRAIN_LORA, TACIT_TRAIN_LORA_FFA};
    tacit_model *m = fixture_model("untied", true);
    for (int k = 0; k < 2; k++) {
        tacit_trainable_spec spec = fixture_spec(kinds[k]);
        tacit_layout l;
        tacit_adapter *a;
        assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
        float *values = values_of(&l), *back = calloc(l.values, sizeof *back);
        save(m, &spec, values, path);
        assert_int_equal(tacit_adapter_read_values(path, m, &spec, back, NULL), TACIT_OK);
        assert_memory_equal(values, back, l.values * sizeof *values);
        assert_int_equal(tacit_adapter_load(&a, m, path, NULL), TACIT_OK);
        const tacit_adapter_info *info = tacit_adapter_get_info(a);
        assert_int_equal(info->version, 5);
        assert_int_equal(info->parent_version, 4);
        assert_int_equal(info->lineage[1], 2);
        assert_true(info->has_base_digest);
        assert_int_equal(adapter_pair_count(a), 8);
        const adapter_pair *p = adapter_find(a, "blk.1.ffn_down.weight");
        size_t at = layout_find(&l, "blk.1.ffn_down.weight.lora_b");
        assert_memory_equal(p->b, values + l.entry[at].offset, 32 * 4 * sizeof(float));
        assert_true(p->rank == 4 && p->n_in == 64 && p->n_out == 32 && p->scale == 1.5f);
        assert_null(adapter_find(a, "blk.1.ffn_up.weight"));
        tacit_adapter_free(a);
        free(values), free(back);
        tacit_layout_free(&l);
    }
    fixture_model_free(m);
}

static void same_arguments_give_the_same_bytes(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_layout l;
    uint8_t digest[2][TACIT_DIGEST_BYTES];
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *values = values_of(&l);
    save(m, &spec, values, path);
    save(m, &spec, values, other_path);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tacit_digest_file(digest[i], i ? other_path : path, NULL), TACIT_OK);
    assert_memory_equal(digest[0], digest[1], TACIT_DIGEST_BYTES);
    free(values);
    tacit_layout_free(&l);
    fixture_model_free(m);
}

/* The names, shapes and keys that llama.cpp's loader checks. */
static void the_file_is_what_the_ecosystem_reads(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_layout l;
    gguf_file *f;
    gguf_string s;
    double alpha;
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *values = values_of(&l);
    save(m, &spec, values, path);
    assert_int_equal(gguf_open(&f, path, NULL), TACIT_OK);
    assert_int_equal(gguf_get_string(f, "general.type", &s, NULL), TACIT_OK);
    assert_memory_equal(s.data, "adapter", 7);
    assert_int_equal(gguf_get_string(f, "adapter.type", &s, NULL), TACIT_OK);
    assert_memory_equal(s.data, "lora", 4);
    assert_int_equal(gguf_get_string(f, "general.architecture", &s, NULL), TACIT_OK);
    assert_memory_equal(s.data, "llama", 5);
    assert_int_equal(gguf_get_f64(f, "adapter.lora.alpha", &alpha, NULL), TACIT_OK);
    assert_true(alpha == 6);
    assert_int_equal(gguf_tensor_count(f), 16);
    const gguf_tensor *a = gguf_tensor_find(f, "blk.0.ffn_down.weight.lora_a");
    const gguf_tensor *b = gguf_tensor_find(f, "blk.0.ffn_down.weight.lora_b");
    assert_true(a->ne[0] == 64 && a->ne[1] == 4 && b->ne[0] == 4 && b->ne[1] == 32);
    gguf_close(f);
    free(values);
    tacit_layout_free(&l);
    fixture_model_free(m);
}

static void layouts_differ_where_they_should(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA), other = spec;
    tacit_layout a, b;
    assert_int_equal(tacit_layout_make(&a, m, &spec, NULL), TACIT_OK);
    assert_string_equal(a.entry[0].name, "blk.0.attn_output.weight.lora_a");
    assert_string_equal(a.entry[1].name, "blk.0.attn_output.weight.lora_b");
    assert_string_equal(a.entry[8].name, "blk.1.attn_output.weight.lora_a");
    assert_int_equal(a.entry[1].offset, 4 * 32);
    other.target[0] = "ffn_down", other.target[1] = "attn_output"; /* another order */
    assert_int_equal(tacit_layout_make(&b, m, &other, NULL), TACIT_OK);
    assert_int_equal(a.values, b.values);
    assert_memory_not_equal(a.hash, b.hash, sizeof a.hash);
    tacit_layout_free(&b);
    assert_int_equal(tacit_layout_make(&b, m, &spec, NULL), TACIT_OK);
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
    tacit_layout_free(&a);
    tacit_layout_free(&b);
    fixture_model_free(m);
}

/* ---- what is refused ---- */

typedef struct handmade {
    const char *architecture, *type, *kind;
    double alpha; /* negative infinity: no key */
    const char *digest;
    const char *name[3];
    uint64_t ne[3][2];
    float first;          /* value 0 of each tensor */
    const char *expected; /* part of the message */
    tacit_status status;
} handmade;

static void write_handmade(const handmade *h)
{
    gguf_writer *w = gguf_writer_new();
    tacit_error err;
    if (h->architecture)
        gguf_put_string(w, "general.architecture", h->architecture, strlen(h->architecture));
    if (h->type)
        gguf_put_string(w, "general.type", h->type, strlen(h->type));
    if (h->kind)
        gguf_put_string(w, "adapter.type", h->kind, strlen(h->kind));
    if (!isinf(h->alpha))
        gguf_put_f32(w, "adapter.lora.alpha", (float)h->alpha);
    if (h->digest)
        gguf_put_string(w, "tacit.base_digest", h->digest, strlen(h->digest));
    for (int i = 0; i < 3 && h->name[i]; i++) {
        float *values = calloc(h->ne[i][0] * h->ne[i][1], sizeof *values);
        values[0] = h->first;
        gguf_put_tensor(w, h->name[i], 2, h->ne[i], TACIT_TYPE_F32, values);
        free(values);
    }
    if (gguf_write(w, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
}

#define A "blk.1.attn_v.weight.lora_a"
#define B "blk.1.attn_v.weight.lora_b"
#define SEVENS "0707070707070707070707070707070707070707070707070707070707070707"
#define EIGHTS "0808080808080808080808080808080808080808080808080808080808080808"
#define GOOD_SHAPES                                                                                \
    {                                                                                              \
        {32, 2},                                                                                   \
        {                                                                                          \
            2, 16                                                                                  \
        }                                                                                          \
    }

static void foreign_and_hostile_files(void **state)
{
    (void)state;
    static const handmade cases[] = {
        {"llama", "adapter", "lora", 4, NULL, {A, B}, GOOD_SHAPES, 1, NULL, TACIT_OK},
        {"llama", "adapter", "lora", 4, SEVENS, {A, B}, GOOD_SHAPES, 1, NULL, TACIT_OK},
        {"llama", "adapter", "lora", 0, NULL, {A, B}, GOOD_SHAPES, 1, NULL, TACIT_OK},
        {"llama", "adapter", "lora", -INFINITY, NULL, {A, B}, GOOD_SHAPES, 1, NULL, TACIT_OK},
        {"qwen2", "adapter", "lora", 4, NULL, {A, B}, GOOD_SHAPES, 1, "qwen2", TACIT_BAD_INPUT},
        {NULL, "adapter", "lora", 4, NULL, {A, B}, GOOD_SHAPES, 1, "architecture", TACIT_BAD_INPUT},
        {"llama", "model", "lora", 4, NULL, {A, B}, GOOD_SHAPES, 1, "adapter", TACIT_BAD_INPUT},
        {"llama", NULL, "lora", 4, NULL, {A, B}, GOOD_SHAPES, 1, "general.type", TACIT_BAD_INPUT},
        {"llama", "adapter", "ia3", 4, NULL, {A, B}, GOOD_SHAPES, 1, "ia3", TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", -1, NULL, {A, B}, GOOD_SHAPES, 1, "alpha", TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", NAN, NULL, {A, B}, GOOD_SHAPES, 1, "alpha", TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", 4, EIGHTS, {A, B}, GOOD_SHAPES, 1, EIGHTS, TACIT_INTEGRITY},
        {"llama", "adapter", "lora", 4, EIGHTS, {A, B}, GOOD_SHAPES, 1, SEVENS, TACIT_INTEGRITY},
        {"llama", "adapter", "lora", 4, "07", {A, B}, GOOD_SHAPES, 1, "digits", TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", 4, NULL, {A}, GOOD_SHAPES, 1, "other half", TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", 4, NULL, {NULL}, GOOD_SHAPES, 1, "without", TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", 4, NULL, {A, B}, {{31, 2}, {2, 16}}, 1, A, TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", 4, NULL, {A, B}, {{2, 32}, {2, 16}}, 1, A, TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", 4, NULL, {A, B}, {{32, 2}, {2, 17}}, 1, B, TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B},
         {{32, 2}, {3, 16}},
         1,
         "rank",
         TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B},
         {{32, 1025}, {1025, 16}},
         1,
         "rank",
         TACIT_BAD_INPUT},
        {"llama", "adapter", "lora", 4, NULL, {A, B}, GOOD_SHAPES, NAN, "finite", TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B},
         GOOD_SHAPES,
         INFINITY,
         "finite",
         TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B, "blk.2.attn_v.weight.lora_a"},
         {{32, 2}, {2, 16}, {32, 2}},
         1,
         "blk.2",
         TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B, "blk.0.attn_norm.weight"},
         {{32, 2}, {2, 16}, {32, 1}},
         1,
         "attn_norm",
         TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B, "token_embd.weight.lora_a"},
         {{32, 2}, {2, 16}, {32, 2}},
         1,
         "token_embd",
         TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B, "blk.01.attn_v.weight.lora_a"},
         {{32, 2}, {2, 16}, {32, 2}},
         1,
         "blk.01",
         TACIT_BAD_INPUT},
        {"llama",
         "adapter",
         "lora",
         4,
         NULL,
         {A, B, "blk.0.attn_v.weight.lora_c"},
         {{32, 2}, {2, 16}, {32, 2}},
         1,
         "lora_c",
         TACIT_BAD_INPUT},
    };
    tacit_model *m = fixture_model("tied", true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_adapter *a;
        tacit_error err = {0};
        write_handmade(&cases[i]);
        tacit_status status = tacit_adapter_load(&a, m, path, &err);
        if (status != cases[i].status)
            fail_msg("case %zu: status %d: %s", i, (int)status, err.message);
        if (status != TACIT_OK) {
            if (!strstr(err.message, cases[i].expected))
                fail_msg("case %zu: '%s' does not say '%s'", i, err.message, cases[i].expected);
            continue;
        }
        float scale = cases[i].alpha > 0 ? 2.0f : 1.0f; /* alpha 0 or absent: no scaling */
        assert_true(adapter_pair_at(a, 0)->scale == scale);
        assert_int_equal(tacit_adapter_get_info(a)->has_base_digest, cases[i].digest != NULL);
        tacit_adapter_free(a);
    }
    fixture_model_free(m);
}

static void values_of_another_set_are_refused(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_layout l;
    tacit_error err;
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *values = values_of(&l), *back = calloc(2 * l.values, sizeof *back);
    save(m, &spec, values, path);
    tacit_trainable_spec other = spec;
    other.seed[0] ^= 1;
    assert_int_equal(tacit_adapter_read_values(path, m, &other, back, &err), TACIT_INTEGRITY);
    other = spec;
    other.alpha = 7;
    assert_int_equal(tacit_adapter_read_values(path, m, &other, back, &err), TACIT_BAD_INPUT);
    other = spec;
    other.rank = 2, other.alpha = 3; /* the same scale */
    assert_int_equal(tacit_adapter_read_values(path, m, &other, back, &err), TACIT_BAD_INPUT);
    other = spec;
    other.n_targets = 3;
    assert_int_equal(tacit_adapter_read_values(path, m, &other, back, &err), TACIT_BAD_INPUT);
    other = spec;
    other.target[3] = "ffn_up";
    assert_int_equal(tacit_adapter_read_values(path, m, &other, back, &err), TACIT_BAD_INPUT);
    other = spec;
    other.kind = TACIT_TRAIN_ALL;
    assert_int_equal(tacit_adapter_read_values(path, m, &other, back, &err), TACIT_USAGE);
    free(values), free(back);
    tacit_layout_free(&l);
    fixture_model_free(m);
}

static void values_that_are_no_numbers_are_not_written(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_adapter_info info = {0};
    tacit_layout l;
    tacit_error err;
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *values = values_of(&l);
    values[l.values - 1] = NAN;
    remove(path);
    assert_int_equal(tacit_adapter_save(path, m, &spec, values, &info, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "blk.1.attn_v.weight.lora_b"));
    assert_int_equal(fopen(path, "r") == NULL, 1);
    values[l.values - 1] = 0;
    info.has_base_digest = true; /* of another base: zeros */
    assert_int_equal(tacit_adapter_save(path, m, &spec, values, &info, &err), TACIT_INTEGRITY);
    free(values);
    tacit_layout_free(&l);
    fixture_model_free(m);
}

/* Every truncation of a good file is an error and nothing else. */
static void torn_files_are_refused(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_layout l;
    uint8_t *bytes;
    size_t size;
    spec.n_targets = 1;
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *values = values_of(&l);
    save(m, &spec, values, path);
    assert_int_equal(tacit_file_read(path, 1 << 20, &bytes, &size, NULL), TACIT_OK);
    for (size_t n = 0; n < size - 32; n += 97) {
        tacit_adapter *a;
        FILE *f = fopen(other_path, "wb");
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        fclose(f);
        assert_int_equal(tacit_adapter_load(&a, m, other_path, NULL), TACIT_BAD_INPUT);
    }
    free(bytes), free(values);
    tacit_layout_free(&l);
    fixture_model_free(m);
}

static int remove_files(void **state)
{
    (void)state;
    remove(path);
    remove(other_path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_survive_the_file),
        cmocka_unit_test(same_arguments_give_the_same_bytes),
        cmocka_unit_test(the_file_is_what_the_ecosystem_reads),
        cmocka_unit_test(layouts_differ_where_they_should),
        cmocka_unit_test(foreign_and_hostile_files),
        cmocka_unit_test(values_of_another_set_are_refused),
        cmocka_unit_test(values_that_are_no_numbers_are_not_written),
        cmocka_unit_test(torn_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, remove_files);
}
