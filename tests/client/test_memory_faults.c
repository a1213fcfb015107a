/* What lack of memory does to a snapshot and to training, and what is left in memory that is given
 * back. Faults come from the linker's --wrap: allocations of the client's and the engine's archives
 * go through here, and so does the engine's building of an example. Oracles: the same calls without
 * faults, and training on data that cannot be decoded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../engine/tiny_model.h"
#include "client/local_training.h"
#include "engine/adapter.h"
#include "engine/example.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(call) assert_int_equal((call), TACIT_OK)

/* --- faults --- */

static long allocations_left = -1; /* then one fails, or with `for_good` all; -1: none fails */
static bool for_good, fault_met;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *memory);

static bool allocation_fails(void)
{
    if (allocations_left < 0 || allocations_left-- > 0)
        return false;
    allocations_left = for_good ? 0 : -1;
    return fault_met = true;
}

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return allocation_fails() ? NULL : __real_realloc(old, size);
}

static void arm(long left, bool good)
{
    allocations_left = left;
    for_good = good;
    fault_met = false;
}

/* Building the example of this record lacks memory, so many times. */
static const char *starved_record;
static int starved_times;

tacit_status __real_tacit_example_build(tacit_input *out, const tacit_model *model,
                                        const tacit_record *record,
                                        const tacit_example_options *options, tacit_error *err);
tacit_status __wrap_tacit_example_build(tacit_input *out, const tacit_model *model,
                                        const tacit_record *record,
                                        const tacit_example_options *options, tacit_error *err);
tacit_status __wrap_tacit_example_build(tacit_input *out, const tacit_model *model,
                                        const tacit_record *record,
                                        const tacit_example_options *options, tacit_error *err)
{
    if (starved_record && strcmp(record->id, starved_record) == 0 && starved_times-- > 0) {
        *out = (tacit_input){0};
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory, says the test");
    }
    return __real_tacit_example_build(out, model, record, options, err);
}

/* --- what is given back --- */

enum { TRACES = 64, TRACE_BYTES = 24 };
static struct {
    bool on;
    uint8_t bytes[TRACES][TRACE_BYTES];
    size_t n, found, looked_at;
} watch;

static void watch_for(const void *bytes)
{
    static const uint8_t zeros[TRACE_BYTES];
    if (watch.n < TRACES && memcmp(bytes, zeros, TRACE_BYTES) != 0)
        memcpy(watch.bytes[watch.n++], bytes, TRACE_BYTES);
}

void __wrap_free(void *memory)
{
    size_t size = memory && watch.on ? malloc_usable_size(memory) : 0;
    for (size_t i = 0; i < watch.n && size >= TRACE_BYTES; i++)
        watch.found += memmem(memory, size, watch.bytes[i], TRACE_BYTES) != NULL;
    watch.looked_at += size > 0;
    __real_free(memory);
}

/* --- data --- */

static tiny_model tiny;
static char folder[64] = "/tmp/tacit-memory-XXXXXX";
static char data_path[128], checkpoint_path[128];
static const uint8_t nonce[32] = {3}, plan_hash[32] = {9};
static tacit_trainable_spec spec = {
    .kind = TACIT_TRAIN_LORA_FFA, .target = {"attn_output"}, .n_targets = 1, .rank = 2, .alpha = 4};

#define RECORD(id, content)                                                                        \
    "{\"id\":\"" id "\",\"subject\":\"" id "\",\"messages\":[{\"role\":\"user\",\"content\":"      \
    "" content "},{\"role\":\"assistant\",\"content\":\"answer " id "\"}]}\n"
#define TEXT "\"how many of them?\""
#define PICTURE "[{\"type\":\"image\",\"image\":\"missing.png\"}]"

static const char whole[] = RECORD("a", TEXT) RECORD("b", TEXT) RECORD("c", TEXT);
static const char without_b[] = RECORD("a", TEXT) RECORD("b", PICTURE) RECORD("c", TEXT);

static void write_data(const char *text)
{
    FILE *f = fopen(data_path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static tacit_status open_snapshot(client_snapshot **s, tacit_error *err)
{
    snapshot_setup setup = {.path = data_path,
                            .media_folder = folder,
                            .model = tiny.model,
                            .unit = TACIT_UNIT_RECORD,
                            .max_rows = 256,
                            .memory = 1 << 20};
    return snapshot_open(s, &setup, err);
}

static void expect_all_usable(client_snapshot *s)
{
    tacit_error err;
    assert_int_equal(snapshot_units(s), 3);
    for (size_t i = 0; i < 3; i++) {
        snapshot_examples e;
        OK(snapshot_prepare(s, i, 1, &e, &err));
        assert_int_equal(e.count, 1);
        snapshot_release(&e);
    }
}

/* --- opening --- */

/* Whichever allocation fails, the whole opening does, and the next one is whole: no record is
 * silently dropped. */
static void opening_fails_as_a_whole(void **state)
{
    client_snapshot *s = NULL;
    tacit_error err;
    long k = 0;
    (void)state;
    write_data(whole);
    for (;; k++) {
        arm(k, false);
        tacit_status status = open_snapshot(&s, &err);
        bool met = fault_met;
        arm(-1, false);
        if (!met) {
            OK(status);
            break;
        }
        assert_int_equal(status, TACIT_NO_MEMORY);
        assert_null(s);
    }
    assert_true(k >= 5);
    expect_all_usable(s);
    snapshot_close(s);
}

/* --- preparing --- */

/* One allocation fails while nothing else is held: what is kept is given back and the unit is
 * there. While another is held: the caller is told, or the unit is there. It is never judged by it.
 */
static void preparing_survives_every_fault(void **state)
{
    tacit_error err;
    (void)state;
    write_data(whole);
    for (int held = 0; held < 2; held++) {
        bool met = true;
        for (long k = 0; met; k++) {
            client_snapshot *s;
            snapshot_examples other, e;
            OK(open_snapshot(&s, &err));
            if (held)
                OK(snapshot_prepare(s, 0, 1, &other, &err));
            arm(k, false);
            tacit_status status = snapshot_prepare(s, 1, 1, &e, &err);
            met = fault_met;
            arm(-1, false);
            assert_int_equal(status, met && held ? TACIT_NO_MEMORY : TACIT_OK);
            if (status == TACIT_OK) {
                assert_int_equal(e.count, 1);
                snapshot_release(&e);
            }
            if (held)
                snapshot_release(&other);
            expect_all_usable(s);
            snapshot_close(s);
            assert_true(k > 0 || met);
        }
    }
}

/* From some allocation on none succeeds: the unit has no example, now, and that is no error. */
static void a_unit_that_finds_no_memory_is_empty(void **state)
{
    tacit_error err;
    bool met = true;
    size_t empty = 0;
    (void)state;
    write_data(whole);
    for (long k = 0; met; k++) {
        client_snapshot *s;
        snapshot_examples e;
        OK(open_snapshot(&s, &err));
        arm(k, true);
        OK(snapshot_prepare(s, 1, 1, &e, &err));
        met = fault_met;
        arm(-1, false);
        assert_int_equal(e.count, met ? 0 : 1);
        empty += e.count == 0;
        snapshot_release(&e);
        expect_all_usable(s);
        snapshot_close(s);
    }
    assert_true(empty >= 3);
}

/* --- training --- */

typedef struct run {
    tacit_mechanism mechanism;
    tacit_optimizer_spec optimizer;
    training_result result;
    size_t values;
} run;

/* Every unit in every step and no noise: what comes out is determined by the units. */
static void train(run *r, const char *text)
{
    tacit_error err;
    tacit_layout layout;
    write_data(text);
    unlink(checkpoint_path);
    OK(tacit_layout_make(&layout, tiny.model, &spec, &err));
    *r = (run){.mechanism = {.kind = TACIT_MECHANISM_NONE,
                             .unit = TACIT_UNIT_RECORD,
                             .neighbours = TACIT_ADD_REMOVE,
                             .q_num = TACIT_Q_ONE,
                             .steps = 2,
                             .divisor = 4,
                             .unit_examples = 4},
               .optimizer = {.kind = TACIT_SGD, .learning_rate = 0.5},
               .values = layout.values};
    training_job job = {.model = tiny.model,
                        .mechanism = &r->mechanism,
                        .spec = &spec,
                        .optimizer = &r->optimizer,
                        .values = layout.values,
                        .max_rows = 256,
                        .nonce = nonce,
                        .checkpoint = checkpoint_path,
                        .plan_hash = plan_hash};
    OK(open_snapshot(&job.snapshot, &err));
    OK(local_training_run(&job, &r->result, &err));
    snapshot_close(job.snapshot);
    tacit_layout_free(&layout);
}

static bool same_result(const run *a, const run *b)
{
    return memcmp(a->result.trained, b->result.trained, a->values * sizeof(float)) == 0;
}

static void lack_of_memory_is_a_zero_gradient(void **state)
{
    run all, none, starved, late;
    (void)state;
    train(&all, whole);
    train(&none, without_b);
    assert_false(same_result(&all, &none));
    starved_record = "b";
    starved_times = 1000;
    train(&starved, whole);
    assert_true(starved_times < 1000);
    assert_true(same_result(&starved, &none));
    /* Memory that others of the batch held: with them released there is enough, and what the unit
     * gives is what it always gives. */
    starved_times = 1;
    train(&late, whole);
    assert_true(starved_times <= 0);
    assert_true(same_result(&late, &all));
    starved_record = NULL;
    training_result_free(&all.result);
    training_result_free(&none.result);
    training_result_free(&starved.result);
    training_result_free(&late.result);
}

/* --- what is given back is wiped --- */

tacit_status __real_tacit_dp_add(tacit_dp *dp, const float *grad, tacit_error *err);
tacit_status __wrap_tacit_dp_add(tacit_dp *dp, const float *grad, tacit_error *err);
tacit_status __wrap_tacit_dp_add(tacit_dp *dp, const float *grad, tacit_error *err)
{
    if (watch.on && grad)
        watch_for(grad);
    return __real_tacit_dp_add(dp, grad, err);
}

static void private_bytes_are_wiped(void **state)
{
    static const char text[] = RECORD("a", "\"zebra quartz 7431 of ward nine\"");
    run r;
    (void)state;
    memset(&watch, 0, sizeof watch);
    watch_for("zebra quartz 7431 of ward nine");
    watch.on = true;
    train(&r, text);
    watch.on = false;
    assert_true(watch.n >= 3); /* the text and a gradient of each step */
    assert_true(watch.looked_at > 20);
    assert_int_equal(watch.found, 0);
    training_result_free(&r.result);
}

static int set_up(void **state)
{
    (void)state;
    tiny = tiny_load(false);
    if (!mkdtemp(folder))
        return -1;
    snprintf(data_path, sizeof data_path, "%s/data.jsonl", folder);
    snprintf(checkpoint_path, sizeof checkpoint_path, "%s/round.ckpt", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(data_path);
    unlink(checkpoint_path);
    rmdir(folder);
    tiny_free(&tiny);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_fails_as_a_whole),
        cmocka_unit_test(preparing_survives_every_fault),
        cmocka_unit_test(a_unit_that_finds_no_memory_is_empty),
        cmocka_unit_test(lack_of_memory_is_a_zero_gradient),
        cmocka_unit_test(private_bytes_are_wiped),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
