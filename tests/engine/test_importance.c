/* Importance matrices as files: what is written is read again, what others write too, and every
 * kind of damage is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/importance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char path[] = TACIT_BINARY_DIR "/test-importance.gguf";

static void what_is_saved_is_loaded(void **state)
{
    (void)state;
    importance m = {.dataset = strdup("d.jsonl"), .chunks = 3, .chunk_size = 17}, found;
    tacit_error err = {0};
    importance_entry *e = importance_add(&m, "blk.0.attn_q.weight", 4, 1);
    for (size_t i = 0; i < 4; i++)
        e->sum[i] = (double)i * 2.5;
    *e->rows = 10;
    e = importance_add(&m, "blk.0.ffn_gate_exps.weight", 2, 3);
    for (size_t i = 0; i < 6; i++)
        e->sum[i] = (double)i;
    e->rows[0] = 1, e->rows[1] = 0, e->rows[2] = 4;
    assert_int_equal(importance_save(&m, path, &err), TACIT_OK);
    assert_int_equal(importance_load(&found, path, &err), TACIT_OK);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.chunks, 3);
    assert_int_equal(found.chunk_size, 17);
    assert_string_equal(found.dataset, "d.jsonl");
    float mean[4];
    importance_mean(importance_find(&found, "blk.0.attn_q.weight"), 0, mean);
    for (size_t i = 0; i < 4; i++)
        assert_true(mean[i] == (float)i * 0.25f);
    const importance_entry *experts = importance_find(&found, "blk.0.ffn_gate_exps.weight");
    assert_int_equal(experts->matrices, 3);
    importance_mean(experts, 1, mean); /* an expert that no row reached */
    assert_true(mean[0] == 1 && mean[1] == 1);
    importance_mean(experts, 2, mean);
    assert_true(mean[0] == 1 && mean[1] == 1.25f);
    assert_null(importance_find(&found, "output.weight"));
    importance_free(&found);
    importance_free(&m);
}

/* Entries are found whatever their order in the file, and after one was added to what was read. */
static void every_entry_is_found(void **state)
{
    (void)state;
    static const char *const names[] = {"m", "b", "z", "a", "blk.10.x", "blk.2.x", "mm"};
    const size_t count = sizeof names / sizeof *names;
    importance m = {0}, found;
    tacit_error err = {0};
    for (size_t i = 0; i < count; i++)
        assert_non_null(importance_add(&m, names[i], i + 1, 1));
    assert_int_equal(importance_save(&m, path, &err), TACIT_OK);
    assert_int_equal(importance_load(&found, path, &err), TACIT_OK);
    assert_int_equal(found.count, count);
    for (int added = 0; added < 2; added++) {
        for (size_t i = 0; i < count; i++)
            assert_int_equal(importance_find(&found, names[i])->columns, i + 1);
        assert_null(importance_find(&found, "c"));
        assert_int_equal(importance_add(&found, "bb", 99, 1)->columns, 99);
        assert_int_equal(importance_find(&found, "bb")->columns, 99);
    }
    importance_free(&found);
    importance_free(&m);
}

/* One entry of 4 columns as another program may have written it. */
typedef struct foreign {
    const char *type, *sums, *counts; /* NULL: left out */
    tacit_type sums_type;
    uint64_t n_counts;
    float sum, count;
} foreign;

static const foreign sound = {
    "imatrix", "a.weight.in_sum2", "a.weight.counts", TACIT_TYPE_F32, 1, 2, 2};

static tacit_status load_foreign(const foreign *f, importance *out, tacit_error *err)
{
    const float sums[] = {f->sum, 1, 2, 3}, counts[] = {f->count, 1, 1};
    const uint64_t four[] = {4, 1}, some[] = {1, f->n_counts};
    gguf_writer *w = gguf_writer_new();
    uint8_t *data;
    size_t size;
    gguf_file *file;
    if (f->type)
        gguf_put_string(w, "general.type", f->type, strlen(f->type));
    if (f->sums)
        gguf_put_tensor(w, f->sums, 2, four, f->sums_type, sums);
    if (f->counts)
        gguf_put_tensor(w, f->counts, 2, some, TACIT_TYPE_F32, counts);
    assert_int_equal(gguf_write_memory(w, &data, &size, err), TACIT_OK);
    assert_int_equal(gguf_open_memory(&file, data, size, "foreign", err), TACIT_OK);
    tacit_status status = importance_read(out, file, err);
    gguf_close(file);
    gguf_writer_free(w);
    free(data);
    return status;
}

static void expect_refusal(foreign f, const char *reason)
{
    importance m;
    tacit_error err = {0};
    assert_int_equal(load_foreign(&f, &m, &err), TACIT_BAD_INPUT);
    if (!strstr(err.message, reason))
        fail_msg("'%s' does not say '%s'", err.message, reason);
    assert_int_equal(m.count, 0);
    assert_null(m.entry);
}

#define WITH(field, value)                                                                         \
    ({                                                                                             \
        foreign f_ = sound;                                                                        \
        f_.field = value;                                                                          \
        f_;                                                                                        \
    })

static void damage_is_named(void **state)
{
    (void)state;
    importance m;
    tacit_error err;
    assert_int_equal(load_foreign(&sound, &m, &err), TACIT_OK);
    assert_int_equal(m.count, 1);
    importance_free(&m);
    foreign unseen = sound;
    unseen.count = 0;
    assert_int_equal(load_foreign(&unseen, &m, &err), TACIT_OK);
    importance_free(&m);
    expect_refusal(WITH(type, "model"), "tacit calibrate");
    expect_refusal(WITH(type, NULL), "tacit calibrate");
    expect_refusal(WITH(sums, NULL), "a.weight.counts has no sums");
    expect_refusal(WITH(sums, "b.weight.in_sum2"), "b.weight.in_sum2 has no counts");
    expect_refusal(WITH(counts, NULL), "a.weight.in_sum2 has no counts");
    expect_refusal(WITH(sums_type, TACIT_TYPE_F16), "expected f32");
    expect_refusal(WITH(n_counts, 3), "expected 1 counts, one a matrix, found 3");
    expect_refusal(WITH(sum, NAN), "value 0 is nan");
    expect_refusal(WITH(sum, INFINITY), "value 0 is inf");
    expect_refusal(WITH(sum, -1), "value 0 is -1");
    expect_refusal(WITH(count, NAN), "a.weight.counts: value 0 is nan");
    expect_refusal(WITH(count, -2), "a.weight.counts: value 0 is -2");
    foreign tiny = sound;
    tiny.count = 1e-37f, tiny.sum = 1e10f;
    expect_refusal(tiny, "beyond 1e30");
    foreign nothing = sound;
    nothing.sums = nothing.counts = NULL;
    expect_refusal(nothing, "holds no tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(every_entry_is_found),
        cmocka_unit_test(damage_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
