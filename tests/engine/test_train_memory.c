/* What a training takes: against the parts' own sizes and against what the allocator gave, and
 * whether what a refusal advises holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/adapter.h"
#include "engine/optimizer.h"
#include "engine/text_train.h"
#include "engine/train_memory.h"
#include "engine/train_values.h"

#include "../common/memory_probe.h"
#include "random_llama.h"

#include <malloc.h>
#include <string.h>

static const tacit_optimizer_spec adam = {
    .kind = TACIT_ADAMW, .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8};

typedef struct world {
    random_file file;
    tacit_model *model;
    tacit_trainable_spec spec;
    tacit_training training;
} world;

static void open_world(world *w, tacit_type type, tacit_trainable_kind kind)
{
    random_llama m = random_llama_usual();
    m.type = type;
    m.width = 256;
    m.heads[0] = m.heads[1] = 16, m.kv_heads[0] = m.kv_heads[1] = 8;
    m.ff[0] = m.ff[1] = 512;
    m.vocab = 400;
    m.context = 2048;
    *w = (world){.file = random_llama_open(random_llama_writer(&m))};
    w->model = random_model(&w->file, false);
    w->model->text_file = w->file.file;
    w->spec = (tacit_trainable_spec){.kind = kind,
                                     .target = {"attn_q", "attn_v", "ffn_down"},
                                     .n_targets = 3,
                                     .rank = 8,
                                     .alpha = 16};
    w->training = (tacit_training){.spec = &w->spec, .optimizer = &adam, .max_rows = 300};
}

static void close_world(world *w)
{
    random_model_free(w->model);
    random_file_close(&w->file);
}

static tacit_training_plan plan_of(const world *w)
{
    tacit_training_plan p;
    tacit_error err;
    if (tacit_training_plan_of(&p, w->model, &w->training, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return p;
}

static uint64_t matrix_bytes(const world *w, bool as_fp32)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(w->file.file); i++) {
        const gguf_tensor *t = gguf_tensor_at(w->file.file, i);
        bytes += as_fp32 ? 4 * t->rows * t->ne[0] : t->n_dims > 1 ? t->bytes : 0;
    }
    return bytes;
}

/* rank * (n_in or n_out) of the targets of both layers, in bytes. */
enum {
    A_BYTES = 4 * 2 * 8 * (256 + 256 + 512),
    B_BYTES = 4 * 2 * 8 * (256 + 128 + 256),
    R_BYTES = 4 * 2 * 8 * 3 * 8
};

static void test_what_is_counted(void **state)
{
    (void)state;
    world w;
    tacit_training_plan p;
    open_world(&w, TACIT_TYPE_Q8_0, TACIT_TRAIN_LORA);
    p = plan_of(&w);
    assert_int_equal(p.values, A_BYTES + B_BYTES);
    assert_int_equal(p.optimizer, 2 * (A_BYTES + B_BYTES));
    assert_int_equal(p.gradients, 64 * (A_BYTES + B_BYTES));
    assert_int_equal(p.weights, matrix_bytes(&w, false));
    assert_int_equal(p.encoders, 0);
    assert_int_equal(p.beside, 0);
    assert_int_equal(p.total, p.weights + p.values + p.gradients + p.optimizer + p.working);
    w.training.beside = 40;
    w.training.saves = true;
    assert_int_equal(plan_of(&w).beside, 11 * (A_BYTES + B_BYTES) + (4 << 20));
    assert_int_equal(plan_of(&w).total, p.total + 11 * (A_BYTES + B_BYTES) + (4 << 20));
    w.training.max_rows = 600;
    assert_true(plan_of(&w).working > p.working);
    w.training.optimizer = NULL;
    assert_int_equal(plan_of(&w).optimizer, 0);
    w.spec.kind = TACIT_TRAIN_LORA_FFA;
    p = plan_of(&w);
    assert_int_equal(p.values, A_BYTES + B_BYTES);
    assert_int_equal(p.gradients, 64 * B_BYTES);
    assert_int_equal(p.beside, 11 * B_BYTES + 2 * A_BYTES + (4 << 20));
    w.spec.kind = TACIT_TRAIN_LORA_CORE;
    p = plan_of(&w);
    assert_int_equal(p.values, A_BYTES + B_BYTES + R_BYTES);
    assert_int_equal(p.gradients, 64 * R_BYTES);
    w.spec.kind = TACIT_TRAIN_ALL;
    p = plan_of(&w);
    assert_int_equal(p.values, matrix_bytes(&w, true));
    assert_int_equal(p.weights, 0);
    close_world(&w);
}

static size_t no_tensors(const void *self)
{
    (void)self;
    return 0;
}

static uint64_t most_of_all(const void *self, size_t max_media, pass_use use, tacit_pool *pool)
{
    (void)self, (void)max_media, (void)use, (void)pool;
    return UINT64_MAX - 1;
}

/* What is beyond all numbers fits nowhere. */
static void test_sums_do_not_wrap(void **state)
{
    (void)state;
    const encoder_kind vast = {.tensor_count = no_tensors, .pass_bytes = most_of_all};
    world w;
    tacit_error err;
    open_world(&w, TACIT_TYPE_Q8_0, TACIT_TRAIN_LORA);
    w.model->encoder[0] = w.model->encoder[1] = (model_encoder){.kind = &vast};
    for (w.model->n_encoders = 1; w.model->n_encoders <= 2; w.model->n_encoders++) {
        assert_int_equal(plan_of(&w).encoders, UINT64_MAX);
        assert_int_equal(plan_of(&w).total, UINT64_MAX);
        assert_int_equal(train_memory_check(w.model, &w.training, NULL, (uint64_t)1 << 40, &err),
                         TACIT_NO_MEMORY);
        assert_non_null(strstr(err.message, "training needs 16.0 EiB"));
    }
    w.model->n_encoders = 0;
    w.training.beside = SIZE_MAX / 2;
    assert_int_equal(plan_of(&w).beside, UINT64_MAX);
    assert_int_equal(plan_of(&w).total, UINT64_MAX);
    close_world(&w);
}

static void test_what_cannot_be_trained(void **state)
{
    (void)state;
    world w;
    tacit_training_plan p;
    tacit_error err;
    open_world(&w, TACIT_TYPE_Q8_0, TACIT_TRAIN_LORA);
    w.spec.target[0] = "shortconv.in_proj";
    assert_int_equal(tacit_training_plan_of(&p, w.model, &w.training, NULL, &err), TACIT_USAGE);
    assert_int_equal(tacit_training_check(w.model, &w.training, NULL, &err), TACIT_USAGE);
    close_world(&w);
}

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* A trainer and its optimizer take what the plan says, with room for some kilobytes of tables. */
static void test_the_allocator_gives_what_is_planned(void **state)
{
    (void)state;
    static const tacit_trainable_kind kinds[] = {TACIT_TRAIN_LORA, TACIT_TRAIN_LORA_FFA,
                                                 TACIT_TRAIN_ALL};
    static const tacit_type types[] = {TACIT_TYPE_Q8_0, TACIT_TYPE_F32};
#ifdef TACIT_SANITIZED
    skip(); /* their allocator does not count */
#endif
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < 2; i++) {
            world w;
            tacit_trainer *t;
            tacit_optimizer o;
            tacit_error err = {0};
            tacit_pool *pool;
            tacit_training_plan p;
            open_world(&w, types[i], kinds[k]);
            assert_int_equal(tacit_pool_new(&pool, 2, &err), TACIT_OK);
            assert_int_equal(tacit_training_plan_of(&p, w.model, &w.training, pool, &err),
                             TACIT_OK);
            size_t before = allocated();
            assert_int_equal(tacit_trainer_new(&t, w.model, &w.spec, 300, pool, &err), TACIT_OK);
            assert_int_equal(tacit_optimizer_init(&o, &adam, tacit_trainer_layout(t)->values, &err),
                             TACIT_OK);
            size_t taken = allocated() - before, planned = p.total - p.weights;
            if (taken > planned || planned > taken + (320 << 10))
                fail_msg("kind %zu, type %zu: %zu planned, %zu taken", k, i, planned, taken);
            tacit_optimizer_fini(&o);
            tacit_trainer_free(t);
            tacit_pool_free(pool);
            close_world(&w);
        }
}

static tacit_status check(const world *w, uint64_t available, tacit_error *err)
{
    *err = (tacit_error){0};
    return train_memory_check(w->model, &w->training, NULL, available, err);
}

/* The number behind the words in a message. */
static size_t number_after(const char *message, const char *words)
{
    const char *at = strstr(message, words);
    if (!at)
        fail_msg("no '%s' in: %s", words, message);
    return strtoul(at + strlen(words), NULL, 10);
}

static void test_what_would_fit(void **state)
{
    (void)state;
    world w;
    tacit_error err;
    open_world(&w, TACIT_TYPE_Q8_0, TACIT_TRAIN_LORA);
    w.training.max_rows = 2000;
    w.spec.rank = 64;
    tacit_training_plan p = plan_of(&w);
    uint64_t less = p.total - p.working / 4;
    assert_int_equal(check(&w, p.total, &err), TACIT_OK);
    assert_int_equal(check(&w, less, &err), TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "training needs "));
    assert_non_null(strstr(err.message, "working memory for 2000 rows "));
    assert_non_null(strstr(err.message, " would fit"));
    size_t rows = number_after(err.message, "examples of at most ");
    assert_in_range(rows, 1000, 1999);
    w.training.max_rows = rows;
    assert_int_equal(check(&w, less, &err), TACIT_OK);
    w.training.max_rows = rows + 1;
    assert_int_equal(check(&w, less, &err), TACIT_NO_MEMORY);
    w.training.max_rows = 2000;
    less = p.total - p.optimizer / 2;
    assert_int_equal(check(&w, less, &err), TACIT_NO_MEMORY);
    uint32_t rank = (uint32_t)number_after(err.message, "rank ");
    assert_in_range(rank, 1, 63);
    w.spec.rank = rank;
    assert_int_equal(check(&w, less, &err), TACIT_OK);
    w.spec.rank = rank + 1;
    assert_int_equal(check(&w, less, &err), TACIT_NO_MEMORY);
    close_world(&w);
}

/* Where every tensor does not fit, an adapter may; where nothing fits, nothing is advised. */
static void test_other_kinds(void **state)
{
    (void)state;
    world w;
    tacit_error err;
    open_world(&w, TACIT_TYPE_Q8_0, TACIT_TRAIN_ALL);
    tacit_training_plan p = plan_of(&w);
    uint64_t less = p.total - p.optimizer;
    assert_int_equal(check(&w, less, &err), TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "a LoRA adapter of rank 8 on attn_q and others would fit"));
    assert_int_equal(check(&w, 1000, &err), TACIT_NO_MEMORY);
    assert_null(strstr(err.message, "would fit"));
    assert_non_null(strstr(err.message, "use a smaller model"));
    w.spec.kind = TACIT_TRAIN_LORA;
    w.spec.target[0] = "attn_q", w.spec.target[1] = "attn_v", w.spec.n_targets = 2;
    assert_int_equal(check(&w, less, &err), TACIT_OK);
    close_world(&w);
}

static uint64_t fixed(void *ctx)
{
    return *(uint64_t *)ctx;
}

/* A trainer is refused by the plan, and the optimizer's state is none of its business. */
static void test_a_trainer_is_judged(void **state)
{
    (void)state;
    world w;
    tacit_trainer *t;
    tacit_error err = {0};
    open_world(&w, TACIT_TYPE_Q8_0, TACIT_TRAIN_LORA);
    w.training.optimizer = NULL;
    uint64_t there = plan_of(&w).total;
    tacit_memory_inject(fixed, &there);
    assert_int_equal(tacit_trainer_new(&t, w.model, &w.spec, 300, NULL, &err), TACIT_OK);
    tacit_trainer_free(t);
    there--;
    assert_int_equal(tacit_trainer_new(&t, w.model, &w.spec, 300, NULL, &err), TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "training needs "));
    tacit_memory_inject(NULL, NULL);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_counted),
        cmocka_unit_test(test_sums_do_not_wrap),
        cmocka_unit_test(test_what_cannot_be_trained),
        cmocka_unit_test(test_the_allocator_gives_what_is_planned),
        cmocka_unit_test(test_what_would_fit),
        cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_a_trainer_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
