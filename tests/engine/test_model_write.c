/* Trained models as files: what is trained comes from the vector, the rest bit for bit from the
 * file, types by the rules, and the saved model computes what the trainer computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/model_write.h"
#include "train_fixture.h"

#include <math.h>

static const char path[] = TACIT_BINARY_DIR "/test-model-write.gguf";

static tacit_model *reload(void)
{
    tacit_error err;
    tacit_model *m = calloc(1, sizeof *m);
    if (gguf_open(&m->text_file, path, &err) != TACIT_OK ||
        text_model_load(&m->text, m->text_file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

static void a_trained_model_computes_the_same_when_loaded(void **state)
{
    (void)state;
    for (int w = 0; w < FIXTURE_WORDS; w++) {
        tacit_model *m = fixture_model(fixture_words[w], true);
        gguf_file *golden = fixture_file("gradients", fixture_words[w]);
        tacit_trainable_spec spec = {.kind = TACIT_TRAIN_ALL};
        tacit_trainer *t = fixture_trainer(m, &spec, 32, NULL);
        tacit_input in = fixture_example(golden, 1);
        float *values = tacit_trainer_values(t);
        const tacit_layout *l = tacit_trainer_layout(t);
        double before, trained, loaded;
        assert_int_equal(tacit_trainer_loss(t, &in, &before, NULL), TACIT_OK);
        for (size_t i = 0; i < l->values; i++)
            values[i] += 0.01f * (float)((int)(i % 7) - 3);
        assert_int_equal(tacit_trainer_loss(t, &in, &trained, NULL), TACIT_OK);
        assert_true(fabs(before - trained) > 1e-4);
        assert_int_equal(tacit_model_save(path, m, 0, l, values, tacit_types_f32, NULL), TACIT_OK);
        tacit_model *saved = reload();
        tacit_trainer *again = fixture_trainer(saved, &spec, 32, NULL);
        assert_memory_equal(tacit_trainer_values(again), values, l->values * sizeof *values);
        assert_int_equal(tacit_trainer_loss(again, &in, &loaded, NULL), TACIT_OK);
        assert_true(loaded == trained);
        tacit_trainer_free(again);
        fixture_model_free(saved);
        fixture_example_free(&in);
        tacit_trainer_free(t);
        gguf_close(golden);
        fixture_model_free(m);
    }
}

static void types_follow_the_rules(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", true);
    tacit_trainable_spec spec = {.kind = TACIT_TRAIN_ALL};
    tacit_trainer *t = fixture_trainer(m, &spec, 8, NULL);
    uint64_t file_type, width;
    gguf_file *f;
    assert_int_equal(tacit_model_save(path, m, 0, tacit_trainer_layout(t), tacit_trainer_values(t),
                                      tacit_types_q8_0, NULL),
                     TACIT_OK);
    assert_int_equal(gguf_open(&f, path, NULL), TACIT_OK);
    assert_int_equal(gguf_tensor_count(f), gguf_tensor_count(m->text_file));
    assert_int_equal(gguf_tensor_find(f, "token_embd.weight")->type, TACIT_TYPE_Q8_0);
    assert_int_equal(gguf_tensor_find(f, "blk.1.ffn_gate.weight")->type, TACIT_TYPE_Q8_0);
    assert_int_equal(gguf_tensor_find(f, "blk.1.attn_q.bias")->type, TACIT_TYPE_F32);
    assert_int_equal(gguf_tensor_find(f, "output_norm.weight")->type, TACIT_TYPE_F32);
    assert_int_equal(gguf_get_u64(f, "general.file_type", 0, 99, &file_type, NULL), TACIT_OK);
    assert_int_equal(file_type, 7);
    assert_int_equal(gguf_get_u64(f, "llama.embedding_length", 0, 99, &width, NULL), TACIT_OK);
    assert_int_equal(width, 32);
    gguf_close(f);
    tacit_trainer_free(t);
    fixture_model_free(m);
}

/* A rule table that names one tensor: every other one keeps type and bytes. */
static void frozen_tensors_keep_their_bytes(void **state)
{
    (void)state;
    static const tacit_type_rule rules[] = {{"blk.0.attn_q", ".weight", 2, TACIT_TYPE_F16},
                                            {NULL, NULL, 0, TACIT_TYPE_F32}};
    tacit_model *m = fixture_model("untied", true);
    tacit_layout nothing = {0};
    gguf_file *f;
    assert_int_equal(tacit_model_save(path, m, 0, &nothing, NULL, rules, NULL), TACIT_OK);
    assert_int_equal(gguf_open(&f, path, NULL), TACIT_OK);
    for (size_t i = 0; i < gguf_tensor_count(f); i++) {
        const gguf_tensor *now = gguf_tensor_at(f, i), *old = gguf_tensor_at(m->text_file, i);
        assert_string_equal(now->name, old->name);
        if (strcmp(now->name, "blk.0.attn_q.weight") == 0) {
            assert_int_equal(now->type, TACIT_TYPE_F16);
            continue;
        }
        assert_int_equal(now->type, old->type);
        assert_memory_equal(now->data, old->data, old->bytes);
    }
    gguf_close(f);
    fixture_model_free(m);
}

static void what_cannot_be_saved_is_refused(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("tied", true);
    tacit_trainable_spec all = {.kind = TACIT_TRAIN_ALL};
    tacit_trainable_spec lora = fixture_spec(TACIT_TRAIN_LORA);
    tacit_trainer *t = fixture_trainer(m, &all, 8, NULL);
    const tacit_layout *l = tacit_trainer_layout(t);
    float *values = tacit_trainer_values(t);
    tacit_layout pairs;
    tacit_error err;
    assert_int_equal(tacit_layout_make(&pairs, m, &lora, NULL), TACIT_OK);
    assert_int_equal(tacit_model_save(path, m, 0, &pairs, values, tacit_types_f32, &err),
                     TACIT_USAGE);
    assert_int_equal(tacit_model_save(path, m, 1, l, values, tacit_types_f32, &err), TACIT_USAGE);
    values[l->entry[1].offset] = INFINITY;
    assert_int_equal(tacit_model_save(path, m, 0, l, values, tacit_types_f32, &err),
                     TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, l->entry[1].name));
    tacit_layout_free(&pairs);
    tacit_trainer_free(t);
    fixture_model_free(m);
}

static int remove_file(void **state)
{
    (void)state;
    remove(path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trained_model_computes_the_same_when_loaded),
        cmocka_unit_test(types_follow_the_rules),
        cmocka_unit_test(frozen_tensors_keep_their_bytes),
        cmocka_unit_test(what_cannot_be_saved_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
