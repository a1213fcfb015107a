/* Adapter files: round trips, the shape the ecosystem expects, and everything that is refused. The
 * oracle of reading is the file as another writer made it (gguf_writer by hand). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/file.h"
#include "common/text.h"
#include "engine/adapter_parts.h"
#include "engine/context.h"
#include "engine/layout.h"
#include "tiny_model.h"
#include "train_fixture.h"

#include <math.h>
#include <pthread.h>

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
    static const tacit_trainable_kind kinds[3] = {TACIT_TRAIN_LORA, TACIT_TRAIN_LORA_FFA,
                                                  TACIT_TRAIN_LORA_CORE};
    tacit_model *m = fixture_model("untied", true);
    for (int k = 0; k < 3; k++) {
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
        size_t at = layout_find(&l, k < 2 ? "blk.1.ffn_down.weight.lora_b"
                                          : "blk.1.ffn_down.weight.lora_core");
        assert_memory_equal(k < 2 ? p->b : p->core, values + l.entry[at].offset,
                            (k < 2 ? 32 * 4 : 16) * sizeof(float));
        assert_true(p->rank == 4 && p->n_in == 64 && p->n_out == 32 && p->scale == 1.5f);
        assert_null(adapter_find(a, "blk.1.ffn_up.weight"));
        tacit_adapter_free(a);
        free(values), free(back);
        tacit_layout_free(&l);
    }
    fixture_model_free(m);
}

static void save_golden(const tacit_model *m, const tacit_trainable_spec *spec,
                        const gguf_file *golden, const char *kind)
{
    tacit_trainer *t = fixture_trainer(m, spec, 32, NULL);
    fixture_values(t, golden, kind);
    save(m, spec, tacit_trainer_values(t), path);
    tacit_trainer_free(t);
}

/* A file of every form computes what training computed: PyTorch's loss, in both precisions as near
 * as the precision allows; the base alone is far from it. */
static void adapters_infer_as_they_train(void **state)
{
    (void)state;
    static const char *const kinds[] = {"lora", "ffa", "core", "mixed", "base"};
    for (int w = 0; w < FIXTURE_LLAMA; w++)
        for (size_t k = 0; k < 5; k++) {
            tacit_model *m = fixture_model(fixture_words[w], true);
            gguf_file *golden = fixture_file("gradients", fixture_words[w]);
            tacit_trainable_spec spec = k == 3 ? fixture_mixed(m) : fixture_spec(TACIT_TRAIN_LORA);
            if (k < 3)
                spec.kind = k == 0   ? TACIT_TRAIN_LORA
                            : k == 1 ? TACIT_TRAIN_LORA_FFA
                                     : TACIT_TRAIN_LORA_CORE;
            tacit_adapter *a = NULL;
            tacit_error err;
            if (k < 4) {
                save_golden(m, &spec, golden, kinds[k]);
                assert_int_equal(tacit_adapter_load(&a, m, path, &err), TACIT_OK);
            }
            for (int precision = TACIT_EXACT; precision <= TACIT_FAST; precision++)
                for (size_t e = 0; e < 2; e++) {
                    char key[32];
                    tacit_input in = fixture_example(golden, e);
                    fixture_loss s = {.in = &in, .vocab = m->text.vocab};
                    tacit_context_spec c_spec = {.precision = (tacit_precision)precision};
                    tacit_context *c;
                    snprintf(key, sizeof key, "%s.loss", k < 4 ? kinds[k] : "all");
                    double expected = gguf_array_number(golden, key, e);
                    assert_int_equal(tacit_context_new(&c, m, &c_spec, NULL, &err), TACIT_OK);
                    assert_int_equal(tacit_context_bind(c, a, &err), TACIT_OK);
                    if (tacit_context_feed_all(c, in.row, in.count, in.media, in.n_media,
                                               fixture_add_loss, &s, &err) != TACIT_OK)
                        fail_msg("%s", err.message);
                    double off = fabs(s.sum / (double)s.trained - expected);
                    if (!(off < (precision == TACIT_EXACT ? 1e-5 : 0.01 * expected)))
                        fail_msg("%s, %s, example %zu: off by %g of %g", fixture_words[w], kinds[k],
                                 e, off, expected);
                    tacit_context_free(c);
                    fixture_example_free(&in);
                }
            tacit_adapter_free(a);
            gguf_close(golden);
            fixture_model_free(m);
        }
}

/* Where a file's one alpha does not say what a pair is scaled by, B does, and comes back. */
static void ranks_of_their_own_survive_the_file(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    gguf_file *golden = fixture_file("gradients", "untied"), *f;
    tacit_trainable_spec spec = fixture_mixed(m);
    tacit_trainer *t = fixture_trainer(m, &spec, 32, NULL);
    const tacit_layout *l = tacit_trainer_layout(t);
    double alpha;
    fixture_values(t, golden, "mixed");
    const float *values = tacit_trainer_values(t);
    float *back = calloc(l->values, sizeof *back);
    save(m, &spec, values, path);
    assert_int_equal(gguf_open(&f, path, NULL), TACIT_OK);
    assert_int_equal(gguf_get_f64(f, "adapter.lora.alpha", &alpha, NULL), TACIT_OK);
    assert_true(fabs(alpha - 12) < 1e-6); /* 6 sqrt(4) */
    gguf_close(f);
    assert_int_equal(tacit_adapter_read_values(path, m, &spec, back, NULL), TACIT_OK);
    for (size_t i = 0; i < l->values; i++)
        assert_true(fabsf(back[i] - values[i]) <= 2e-7f * fabsf(values[i]));
    size_t q = layout_find(l, "blk.0.ffn_up.weight.lora_b"); /* of the spec's rank: to the bit */
    assert_memory_equal(back + l->entry[q].offset, values + l->entry[q].offset,
                        l->entry[q].rows * l->entry[q].cols * sizeof *back);
    spec.rslora = false;
    tacit_error err;
    assert_int_equal(tacit_adapter_read_values(path, m, &spec, back, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "scaled"));
    free(back);
    tacit_trainer_free(t);
    gguf_close(golden);
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
    /* Another rank: of B alone it is the number of columns, of names and rows nothing tells. */
    spec.kind = TACIT_TRAIN_LORA_FFA;
    assert_int_equal(tacit_layout_make(&a, m, &spec, NULL), TACIT_OK);
    spec.rank++;
    assert_int_equal(tacit_layout_make(&b, m, &spec, NULL), TACIT_OK);
    assert_memory_not_equal(a.hash, b.hash, sizeof a.hash);
    tacit_layout_free(&a);
    tacit_layout_free(&b);
    fixture_model_free(m);
}

/* ---- what is refused ---- */

/* What differs from a sound adapter of blk.1.attn_v; a field left out keeps the sound value. */
typedef struct handmade {
    const char *architecture, *type, *kind; /* "" for no such key */
    double alpha;                           /* 0 for 4, ZERO for 0, INFINITY for no key */
    const char *digest;
    const char *more;  /* a third tensor, [32, 2] */
    bool a_alone;      /* without B */
    uint64_t ne[2][2]; /* of A and B */
    float first;       /* value 0 of each tensor */
    const char *said;  /* part of the message */
    tacit_status status;
} handmade;

#define A "blk.1.attn_v.weight.lora_a"
#define B "blk.1.attn_v.weight.lora_b"
#define ZERO (-0.5)
#define SEVENS "0707070707070707070707070707070707070707070707070707070707070707"
#define EIGHTS "0808080808080808080808080808080808080808080808080808080808080808"

static void put_word(gguf_writer *w, const char *key, const char *word, const char *sound)
{
    if (!word)
        word = sound;
    if (*word)
        gguf_put_string(w, key, word, strlen(word));
}

static void put_values(gguf_writer *w, const char *name, const uint64_t ne[2], float first)
{
    float *values = calloc(ne[0] * ne[1], sizeof *values);
    values[0] = first;
    gguf_put_tensor(w, name, 2, ne, TACIT_TYPE_F32, values);
    free(values);
}

static void write_handmade(const handmade *h)
{
    static const uint64_t sound[2][2] = {{32, 2}, {2, 16}};
    gguf_writer *w = gguf_writer_new();
    tacit_error err;
    put_word(w, "general.architecture", h->architecture, "llama");
    put_word(w, "general.type", h->type, "adapter");
    put_word(w, "adapter.type", h->kind, "lora");
    put_word(w, "tacit.base_digest", h->digest, "");
    if (!isinf(h->alpha))
        gguf_put_f32(w, "adapter.lora.alpha",
                     h->alpha == ZERO ? 0 : (float)(h->alpha != 0 ? h->alpha : 4));
    put_values(w, A, h->ne[0][0] ? h->ne[0] : sound[0], h->first);
    if (!h->a_alone)
        put_values(w, B, h->ne[1][0] ? h->ne[1] : sound[1], h->first);
    if (h->more)
        put_values(w, h->more, sound[0], h->first);
    if (gguf_write(w, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
}

/* alpha 0 or none means a scale of 1 in these files (in PEFT's it would mean 0). */
static void sound_files_of_others(void **state)
{
    (void)state;
    static const handmade cases[] = {
        {.first = 1},
        {.digest = SEVENS},
        {.alpha = ZERO},
        {.alpha = INFINITY},
    };
    static const float scales[] = {2, 2, 1, 1}; /* alpha / rank */
    tacit_model *m = fixture_model("tied", true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_adapter *a;
        tacit_error err;
        write_handmade(&cases[i]);
        if (tacit_adapter_load(&a, m, path, &err) != TACIT_OK)
            fail_msg("case %zu: %s", i, err.message);
        assert_true(adapter_pair_at(a, 0)->scale == scales[i]);
        assert_int_equal(tacit_adapter_get_info(a)->has_base_digest, cases[i].digest != NULL);
        tacit_adapter_free(a);
    }
    fixture_model_free(m);
}

/* Each pair's scale follows from its own rank, as peft's rank patterns come out in these files. */
static void every_pair_has_its_own_rank(void **state)
{
    (void)state;
    static const uint64_t ranks[] = {2, 1, 4};
    gguf_writer *w = gguf_writer_new();
    tacit_adapter *a;
    tacit_error err;
    put_word(w, "general.architecture", NULL, "llama");
    put_word(w, "general.type", NULL, "adapter");
    put_word(w, "adapter.type", NULL, "lora");
    gguf_put_f32(w, "adapter.lora.alpha", 4);
    static const char *const names[][2] = {
        {A, B},
        {"blk.0.attn_v.weight.lora_a", "blk.0.attn_v.weight.lora_b"},
        {"blk.0.attn_k.weight.lora_a", "blk.0.attn_k.weight.lora_b"}};
    for (size_t i = 0; i < 3; i++) {
        put_values(w, names[i][0], (const uint64_t[]){32, ranks[i]}, 1);
        put_values(w, names[i][1], (const uint64_t[]){ranks[i], 16}, 1);
    }
    assert_int_equal(gguf_write(w, path, &err), TACIT_OK);
    gguf_writer_free(w);
    tacit_model *m = fixture_model("tied", true);
    if (tacit_adapter_load(&a, m, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(adapter_pair_at(a, i)->rank, ranks[i]);
        assert_true(adapter_pair_at(a, i)->scale == 4.0f / (float)ranks[i]);
    }
    tacit_adapter_free(a);
    fixture_model_free(m);
}

/* Cores without a seed, or among pairs of the ecosystem, mean nothing. */
static void cores_are_files_of_their_own(void **state)
{
    (void)state;
    static const char *const said[] = {"tacit.seed", "lora_core", "lora_a", "[rank, rank]"};
    tacit_model *m = fixture_model("tied", true);
    for (int fault = 0; fault < 4; fault++) {
        gguf_writer *w = gguf_writer_new();
        tacit_adapter *a;
        tacit_error err = {0};
        put_word(w, "general.architecture", NULL, "llama");
        put_word(w, "general.type", NULL, "adapter");
        put_word(w, "adapter.type", NULL, fault == 1 ? "lora" : "tacit.core");
        gguf_put_f32(w, "adapter.lora.alpha", 4);
        if (fault != 0)
            put_word(w, "tacit.seed", NULL, SEVENS);
        put_values(w, fault == 2 ? "blk.0.attn_q.weight.lora_a" : "blk.0.attn_q.weight.lora_core",
                   (const uint64_t[]){2, fault == 3 ? 3 : 2}, 1);
        assert_int_equal(gguf_write(w, path, &err), TACIT_OK);
        gguf_writer_free(w);
        assert_int_equal(tacit_adapter_load(&a, m, path, &err), TACIT_BAD_INPUT);
        if (!strstr(err.message, said[fault]))
            fail_msg("fault %d: '%s'", fault, err.message);
    }
    fixture_model_free(m);
}

static const handmade refused[] = {
    {.architecture = "qwen2", .said = "qwen2"},
    {.architecture = "", .said = "architecture"},
    {.type = "model", .said = "adapter"},
    {.type = "", .said = "general.type"},
    {.kind = "ia3", .said = "ia3"},
    {.alpha = -1, .said = "alpha"},
    {.alpha = NAN, .said = "alpha"},
    {.digest = EIGHTS, .said = EIGHTS, .status = TACIT_INTEGRITY},
    {.digest = EIGHTS, .said = SEVENS, .status = TACIT_INTEGRITY},
    {.digest = "07", .said = "digits"},
    {.a_alone = true, .said = "other half"},
    {.ne = {{31, 2}}, .said = A},
    {.ne = {{2, 32}}, .said = A},
    {.ne = {{32, 2}, {2, 17}}, .said = B},
    {.ne = {{32, 2}, {3, 16}}, .said = "rank"},
    {.ne = {{32, 1025}, {1025, 16}}, .said = "rank"},
    {.first = NAN, .said = "finite"},
    {.first = INFINITY, .said = "finite"},
    {.more = "blk.2.attn_v.weight.lora_a", .said = "blk.2"},
    {.more = "blk.0.attn_norm.weight", .said = "attn_norm"},
    {.more = "token_embd.weight.lora_a", .said = "token_embd"},
    {.more = "blk.01.attn_v.weight.lora_a", .said = "blk.01"},
    {.more = "blk.0.attn_v.weight.lora_c", .said = "lora_c"},
};

static void foreign_and_hostile_files(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        tacit_adapter *a;
        tacit_error err = {0};
        tacit_status expected = refused[i].status ? refused[i].status : TACIT_BAD_INPUT;
        write_handmade(&refused[i]);
        tacit_status status = tacit_adapter_load(&a, m, path, &err);
        if (status != expected || !strstr(err.message, refused[i].said))
            fail_msg("case %zu: status %d: '%s', expected %d and '%s'", i, (int)status, err.message,
                     (int)expected, refused[i].said);
    }
    fixture_model_free(m);
}

static void an_empty_adapter_is_refused(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    gguf_writer *w = gguf_writer_new();
    tacit_adapter *a;
    tacit_error err;
    put_word(w, "general.architecture", NULL, "llama");
    put_word(w, "general.type", NULL, "adapter");
    put_word(w, "adapter.type", NULL, "lora");
    assert_int_equal(gguf_write(w, path, &err), TACIT_OK);
    gguf_writer_free(w);
    assert_int_equal(tacit_adapter_load(&a, m, path, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "without tensors"));
    fixture_model_free(m);
}

/* Two models of one shape, a bit of one weight apart, by the digests of their files. */
static void an_adapter_of_a_twin_base_is_refused(void **state)
{
    (void)state;
    tiny_model first = tiny_load(false), second = tiny_load(false);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_layout l;
    tacit_error err;
    tacit_adapter *a;
    char digest[2][2 * TACIT_DIGEST_BYTES + 1];
    const gguf_tensor *t = gguf_tensor_find(second.model->text_file, "blk.0.ffn_up.weight");
    uint8_t *bytes;
    size_t size;
    assert_int_equal(tacit_file_read(second.text, 1 << 24, &bytes, &size, &err), TACIT_OK);
    size_t place = size;
    for (size_t i = 0; i + t->bytes <= size && place == size; i++)
        if (memcmp(bytes + i, t->data, t->bytes) == 0)
            place = i;
    assert_true(place < size);
    bytes[place + 2] ^= 1; /* the first weight after the block's scale */
    tacit_model_free(second.model);
    assert_int_equal(tacit_file_write(second.text, bytes, size, 0600, &err), TACIT_OK);
    free(bytes);
    if (tacit_model_load(&second.model, second.text, NULL, 0, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);

    assert_int_equal(tacit_layout_make(&l, first.model, &spec, NULL), TACIT_OK);
    float *values = values_of(&l);
    save(first.model, &spec, values, path);
    assert_int_equal(tacit_adapter_load(&a, second.model, path, &err), TACIT_INTEGRITY);
    tacit_hex(digest[0], tacit_model_base_digest(first.model), TACIT_DIGEST_BYTES);
    tacit_hex(digest[1], tacit_model_base_digest(second.model), TACIT_DIGEST_BYTES);
    assert_non_null(strstr(err.message, digest[0]));
    assert_non_null(strstr(err.message, digest[1]));
    assert_int_equal(tacit_adapter_load(&a, first.model, path, &err), TACIT_OK);
    tacit_adapter_free(a);
    free(values);
    tacit_layout_free(&l);
    tiny_free(&first);
    tiny_free(&second);
}

/* ---- a file that is replaced while it is read ---- */

typedef struct replacing {
    const tacit_model *model;
    const tacit_trainable_spec *spec;
    const float *values[2];
    _Atomic bool stop;
} replacing;

static void *replace_again_and_again(void *ctx)
{
    replacing *r = ctx;
    for (int i = 0; !r->stop; i = !i)
        save(r->model, r->spec, r->values[i], path);
    return NULL;
}

/* The digest is that of the values that were loaded, whichever of the two files it was. */
static void the_digest_belongs_to_the_values(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_layout l;
    uint8_t digest[2][TACIT_DIGEST_BYTES];
    pthread_t writer;
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *values[2] = {values_of(&l), values_of(&l)};
    for (int i = 0; i < 2; i++) {
        values[i][0] = (float)i + 1;
        save(m, &spec, values[i], path);
        assert_int_equal(tacit_digest_file(digest[i], path, NULL), TACIT_OK);
    }
    replacing r = {.model = m, .spec = &spec, .values = {values[0], values[1]}};
    assert_int_equal(pthread_create(&writer, NULL, replace_again_and_again, &r), 0);
    for (int i = 0; i < 400; i++) {
        tacit_adapter *a;
        assert_int_equal(tacit_adapter_load(&a, m, path, NULL), TACIT_OK);
        int which = adapter_find(a, "blk.0.attn_output.weight")->b[0] == 2;
        assert_memory_equal(adapter_digest(a), digest[which], TACIT_DIGEST_BYTES);
        tacit_adapter_free(a);
    }
    r.stop = true;
    pthread_join(writer, NULL);
    free(values[0]), free(values[1]);
    tacit_layout_free(&l);
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

/* It says so, loads for those who look at it, and is nothing to build on. */
static void an_adapter_with_canaries_is_marked(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA_FFA);
    tacit_adapter_info info = {.version = 1};
    tacit_layout l;
    tacit_error err;
    assert_int_equal(tacit_layout_make(&l, m, &spec, NULL), TACIT_OK);
    float *values = values_of(&l);
    for (uint64_t canaries = 0; canaries < 2000; canaries += 1000) {
        tacit_adapter *a;
        gguf_file *f;
        uint64_t found = 0;
        info.canaries = canaries;
        assert_int_equal(tacit_adapter_save(path, m, &spec, values, &info, &err), TACIT_OK);
        assert_int_equal(gguf_open(&f, path, NULL), TACIT_OK);
        assert_int_equal(gguf_get_u64(f, "tacit.canaries", 0, UINT64_MAX, &found, NULL),
                         canaries ? TACIT_OK : TACIT_NOT_FOUND);
        assert_int_equal(found, canaries);
        gguf_close(f);
        assert_int_equal(tacit_adapter_load(&a, m, path, &err), TACIT_OK);
        assert_int_equal(tacit_adapter_get_info(a)->canaries, canaries);
        tacit_adapter_free(a);
        assert_int_equal(tacit_adapter_read_values(path, m, &spec, values, &err),
                         canaries ? TACIT_REFUSED : TACIT_OK);
    }
    assert_non_null(strstr(err.message, "1000 canaries"));
    free(values);
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
        cmocka_unit_test(adapters_infer_as_they_train),
        cmocka_unit_test(ranks_of_their_own_survive_the_file),
        cmocka_unit_test(cores_are_files_of_their_own),
        cmocka_unit_test(same_arguments_give_the_same_bytes),
        cmocka_unit_test(the_file_is_what_the_ecosystem_reads),
        cmocka_unit_test(layouts_differ_where_they_should),
        cmocka_unit_test(sound_files_of_others),
        cmocka_unit_test(every_pair_has_its_own_rank),
        cmocka_unit_test(foreign_and_hostile_files),
        cmocka_unit_test(an_empty_adapter_is_refused),
        cmocka_unit_test(an_adapter_of_a_twin_base_is_refused),
        cmocka_unit_test(the_digest_belongs_to_the_values),
        cmocka_unit_test(values_of_another_set_are_refused),
        cmocka_unit_test(an_adapter_with_canaries_is_marked),
        cmocka_unit_test(values_that_are_no_numbers_are_not_written),
        cmocka_unit_test(torn_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, remove_files);
}
