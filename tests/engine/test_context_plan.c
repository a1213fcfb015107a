#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/context_plan.h"
#include "engine/fast_model.h"
#include "engine/kv_cache.h"
#include "random_llama.h"

#include <string.h>

typedef struct world {
    random_file file;
    tacit_model *model;
} world;

static world open_world(void)
{
    random_llama m = random_llama_usual();
    m.type = TACIT_TYPE_Q8_0;
    m.context = 4096;
    world w = {.file = random_llama_open(random_llama_writer(&m))};
    w.model = random_model(&w.file, false);
    return w;
}

static void close_world(world *w)
{
    random_model_free(w->model);
    random_file_close(&w->file);
}

static void assert_packer_takes(world *w, uint64_t bytes)
{
    fast_packing *packing = fast_packing_new();
    const fast_model *packed;
    tacit_error err = {0};
    assert_non_null(packing);
    assert_int_equal(fast_packing_get(packing, &packed, &w->model->text, NULL, NULL, &err),
                     TACIT_OK);
    assert_int_equal(packed->bytes, bytes);
    fast_packing_free(packing);
}

/* Weights are the bytes of the matrices in the file, the rest what the parts say of themselves. */
static void test_what_is_counted(void **state)
{
    (void)state;
    world w = open_world();
    uint64_t matrices = 0;
    for (size_t i = 0; i < gguf_tensor_count(w.file.file); i++) {
        const gguf_tensor *t = gguf_tensor_at(w.file.file, i);
        matrices += t->n_dims > 1 ? t->bytes : 0;
    }
    tacit_context_spec spec = {.max_rows = 1000, .kv = TACIT_KV_INT8};
    tacit_context_plan p = tacit_context_plan_of(w.model, &spec, NULL);
    assert_int_equal(p.weights, matrices);
    assert_int_equal(p.keys_values, kv_cache_bytes(&w.model->text, TACIT_KV_INT8, 1000, 128));
    assert_int_equal(p.total, p.weights + p.keys_values + p.working);
    assert_int_equal(p.mapped, p.weights);
    spec.chunk = 512;
    assert_true(tacit_context_plan_of(w.model, &spec, NULL).working > p.working);
    spec.precision = TACIT_FAST;
    assert_true(tacit_context_plan_of(w.model, &spec, NULL).working > p.working);
    p = tacit_context_plan_of(w.model, NULL, NULL);
    assert_int_equal(p.keys_values, kv_cache_bytes(&w.model->text, TACIT_KV_F32, 4096, 128));
    close_world(&w);
}

/* In fast precision panels are counted in place of the file's bytes: as many as packing takes, of
 * Q4_K 160 bytes for its 144, of Q6_K 224 for 210; of F32, which stays as it is, the file's. */
static void test_packed_weights_are_counted(void **state)
{
    (void)state;
    const struct {
        tacit_type type;
        uint64_t file, packed; /* bytes of 256 values */
    } of[] = {{TACIT_TYPE_Q4_K, 144, 160},
              {TACIT_TYPE_Q5_K, 176, 192},
              {TACIT_TYPE_Q6_K, 210, 224},
              {TACIT_TYPE_F32, 1024, 1024}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        for (int untied = 0; untied < 2; untied++) {
            random_llama m = random_llama_usual();
            m.width = m.ff[0] = m.ff[1] = 256; /* and widths of panels divide all rows */
            m.heads[0] = m.heads[1] = 16, m.kv_heads[0] = m.kv_heads[1] = 4;
            m.vocab = 64;
            m.type = of[i].type;
            m.untied = untied;
            world w = {.file = random_llama_open(random_llama_writer(&m))};
            w.model = random_model(&w.file, false);
            const uint64_t layers = 2 * (2 * 256 + 2 * 64 + 3 * 256), vocab = 64;
            tacit_context_spec spec = {.max_rows = 64};
            assert_int_equal(tacit_context_plan_of(w.model, &spec, NULL).weights,
                             (layers + vocab * (untied ? 2 : 1)) * of[i].file);
            spec.precision = TACIT_FAST;
            tacit_context_plan plan = tacit_context_plan_of(w.model, &spec, NULL);
            uint64_t fast = plan.weights;
            assert_int_equal(fast, (layers + vocab) * of[i].packed + untied * vocab * of[i].file);
            uint64_t packed = of[i].type == TACIT_TYPE_F32 ? 0 : (layers + vocab) * of[i].packed;
            assert_int_equal(plan.mapped, fast - packed);
            assert_packer_takes(&w, packed);
            close_world(&w);
        }
}

/* What the message names does fit, and a page more does not. */
static void assert_advice_holds(world *w, tacit_context_spec spec, tacit_kv_type kv, size_t rows,
                                uint64_t available)
{
    tacit_error err = {0};
    spec.kv = kv;
    assert_int_equal(context_plan_check(w->model, &spec, rows, NULL, available, &err), TACIT_OK);
    assert_int_equal(
        context_plan_check(w->model, &spec, rows + KV_PAGE_ROWS, NULL, available, &err),
        TACIT_NO_MEMORY);
}

static void test_what_would_fit(void **state)
{
    (void)state;
    world w = open_world();
    tacit_context_spec spec = context_plan_complete(w.model, NULL);
    tacit_context_plan p = tacit_context_plan_of(w.model, NULL, NULL);
    tacit_error err = {0};
    assert_int_equal(context_plan_check(w.model, &spec, spec.max_rows, NULL, p.total, &err),
                     TACIT_OK);
    uint64_t half = p.total - p.keys_values / 2 - 1;
    assert_int_equal(context_plan_check(w.model, &spec, spec.max_rows, NULL, half, &err),
                     TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "keys and values of 4096 rows in f32"));
    assert_non_null(strstr(err.message, ": 1984 rows fit in f32, 4096 in int8"));
    assert_advice_holds(&w, spec, TACIT_KV_F32, 1984, half);
    assert_int_equal(context_plan_check(w.model, &spec, 1, NULL, p.weights + p.working, &err),
                     TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "not even one page of 64 rows fits"));
    spec.kv = TACIT_KV_INT8;
    p = tacit_context_plan_of(w.model, &spec, NULL);
    assert_int_equal(context_plan_check(w.model, &spec, spec.max_rows, NULL, p.total - 1, &err),
                     TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "available: 4032 rows fit"));
    assert_advice_holds(&w, spec, TACIT_KV_INT8, 4032, p.total - 1);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_counted),
        cmocka_unit_test(test_packed_weights_are_counted),
        cmocka_unit_test(test_what_would_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
