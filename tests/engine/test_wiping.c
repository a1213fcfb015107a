/* What is zeroed before it is freed, seen by a sodium_memzero of our own between the program and
 * libsodium's (the linker's --wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/secret.h"
#include "engine/context.h"
#include "engine/example.h"
#include "engine/image.h"
#include "engine/row_cache.h"
#include "engine/sample.h"
#include "engine/trainer.h"

#include "reference_sensor.h"
#include "tiny_model.h"

#include "../golden/pictures_pillow.h"

#define MOST 4096

static struct {
    uintptr_t at;
    size_t size;
} wiped[MOST];
static size_t n_wiped;

void __real_sodium_memzero(void *at, size_t size);
void __wrap_sodium_memzero(void *at, size_t size);

void __wrap_sodium_memzero(void *at, size_t size)
{
    __real_sodium_memzero(at, size);
    for (size_t i = 0; i < size; i++)
        if (((const uint8_t *)at)[i])
            fail_msg("byte %zu of %zu was not zeroed", i, size);
    if (n_wiped < MOST) {
        wiped[n_wiped].at = (uintptr_t)at;
        wiped[n_wiped++].size = size;
    }
}

/* The block at `at`, as an address that was noted before it was freed, was zeroed in whole. */
static void assert_wiped(uintptr_t at, size_t size)
{
    for (size_t i = 0; i < n_wiped; i++)
        if (at >= wiped[i].at && at + size <= wiped[i].at + wiped[i].size)
            return;
    fail_msg("%zu bytes were freed as they were", size);
}

static tacit_record picture_record(const tiny_model *t)
{
    static const char line[] =
        "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"image\":"
        "\"p.jpg\"},{\"type\":\"text\",\"text\":\"what?\"}]},{\"role\":\"assistant\",\"content\":"
        "\"seen\"}]}";
    char path[128];
    tacit_record r;
    tacit_error err;
    snprintf(path, sizeof path, "%s/p.jpg", t->folder);
    assert_int_equal(tacit_file_write(path, jpeg_plain, sizeof jpeg_plain, 0600, &err), TACIT_OK);
    if (tacit_record_parse(&r, line, sizeof line - 1, t->folder, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return r;
}

static void test_records_and_inputs(void **state)
{
    tiny_model *t = *state;
    tacit_input in;
    tacit_error err;
    tacit_record r = picture_record(t);
    if (tacit_example_build(&in, t->model, &r, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    uintptr_t row = (uintptr_t)in.row, pixels = (uintptr_t)in.media[0].values;
    uintptr_t question = (uintptr_t)r.message[0].content[1].text;
    size_t rows = in.count * sizeof *in.row;
    size_t planes = (size_t)3 * in.media[0].dim[1] * in.media[0].dim[2] * sizeof(float);
    n_wiped = 0;
    tacit_input_free(&in);
    tacit_record_free(&r);
    assert_wiped(row, rows);
    assert_wiped(pixels, planes);
    assert_wiped(question, sizeof "what?");
}

static void test_pictures(void **state)
{
    (void)state;
    tacit_image image;
    assert_int_equal(tacit_image_decode(&image, jpeg_plain, sizeof jpeg_plain, "p", NULL),
                     TACIT_OK);
    uintptr_t at = (uintptr_t)image.rgb;
    size_t size = (size_t)3 * image.width * image.height;
    n_wiped = 0;
    tacit_image_free(&image);
    assert_wiped(at, size);
}

/* The pixels go as soon as there are rows; rows go with the cache and with the input. */
static void test_row_cache(void **state)
{
    tiny_model *t = *state;
    tacit_input in;
    tacit_row_cache *cache;
    tacit_error err;
    tacit_record r = picture_record(t);
    assert_int_equal(tacit_example_build(&in, t->model, &r, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_row_cache_new(&cache, t->model, 1 << 20, NULL, NULL, &err), TACIT_OK);
    uintptr_t pixels = (uintptr_t)in.media[0].values;
    size_t planes = (size_t)3 * in.media[0].dim[1] * in.media[0].dim[2] * sizeof(float);
    n_wiped = 0;
    assert_int_equal(tacit_row_cache_fill(cache, &in, &err), TACIT_OK);
    assert_wiped(pixels, planes);
    size_t held = tacit_row_cache_get_stats(cache).bytes, found = 0;
    assert_true(held > 0);
    n_wiped = 0;
    tacit_row_cache_free(cache);
    for (size_t i = 0; i < n_wiped; i++)
        found += wiped[i].size >= held;
    assert_int_equal(found, 1);
    uintptr_t rows = (uintptr_t)in.media[0].rows;
    tacit_input_free(&in);
    assert_wiped(rows, held);
    tacit_record_free(&r);
}

/* Rows that make room for others in a full cache. */
static void test_rows_that_leave_the_cache(void **state)
{
    tiny_model *t = *state;
    tacit_input in[2];
    tacit_row_cache *cache;
    tacit_error err;
    tacit_record r = picture_record(t);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tacit_example_build(&in[i], t->model, &r, NULL, &err), TACIT_OK);
    in[1].media[0].digest[0] ^= 1; /* as of another picture */
    size_t rows = in[0].media[0].n_rows * tacit_model_embedding(t->model) * sizeof(float), n = 0;
    assert_int_equal(tacit_row_cache_new(&cache, t->model, rows, NULL, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_row_cache_fill(cache, &in[0], &err), TACIT_OK);
    assert_int_equal(tacit_row_cache_get_stats(cache).bytes, rows);
    n_wiped = 0;
    assert_int_equal(tacit_row_cache_fill(cache, &in[1], &err), TACIT_OK);
    assert_int_equal(tacit_row_cache_get_stats(cache).evicted, 1);
    for (size_t i = 0; i < n_wiped; i++)
        n += wiped[i].size >= rows && wiped[i].size < 2 * rows;
    assert_int_equal(n, 1); /* pixels are more */
    tacit_row_cache_free(cache);
    for (int i = 0; i < 2; i++)
        tacit_input_free(&in[i]);
    tacit_record_free(&r);
}

/* What is said grows in blocks, each of which goes wholly; so do the logits that are drawn from. */
static void test_answers(void **state)
{
    (void)state;
    tacit_buffer said = {.wiped = true};
    const tacit_sampler_spec warm = {.temperature = 1};
    const float logits[64] = {1};
    tacit_sampler s;
    n_wiped = 0;
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(tacit_buffer_append(&said, "private", 7), TACIT_OK);
    size_t grown = n_wiped;
    assert_true(grown >= 4); /* from 256 bytes by doubling */
    uintptr_t at = (uintptr_t)said.data;
    tacit_buffer_free(&said);
    assert_wiped(at, 7000);
    assert_int_equal(tacit_sampler_init(&s, &warm, 64, NULL), TACIT_OK);
    assert_true(tacit_sampler_next(&s, logits) >= 0);
    at = (uintptr_t)s.candidate;
    tacit_sampler_fini(&s);
    assert_wiped(at, 64 * sizeof(sample_candidate));
}

static size_t count_wiped(size_t at_least)
{
    size_t n = 0;
    for (size_t i = 0; i < n_wiped; i++)
        n += wiped[i].size >= at_least;
    return n;
}

/* Times and values of a file, each in the three sizes to which they grew, and libcsv's cell; then
 * what the encoder reads. */
static void test_readings(void **state)
{
    (void)state;
    enum { LINES = 600 };
    char text[LINES * 24];
    size_t used = (size_t)snprintf(text, sizeof text, "t,speed\n"), size;
    uint8_t *bytes;
    gguf_file *file;
    tacit_sensor *sensor;
    sensor_window window;
    tacit_error err = {0};
    sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F32, 8);
    gguf_writer *w = gguf_writer_new();
    reference_put_sensor(w, &spec);
    assert_int_equal(gguf_write_memory(w, &bytes, &size, &err), TACIT_OK);
    assert_int_equal(gguf_open_memory(&file, bytes, size, "sensor", &err), TACIT_OK);
    assert_int_equal(sensor_load(&sensor, file, &err), TACIT_OK);
    for (int i = 0; i < LINES; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%.3f,%d\n", 0.003 * i, i);
    n_wiped = 0;
    if (sensor_prepare(&window, sensor, text, used, "w.csv", &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(count_wiped(1024 * sizeof(double)), 2);
    assert_int_equal(count_wiped(512 * sizeof(double)), 4);
    assert_int_equal(count_wiped(256 * sizeof(double)), 6);
    assert_int_equal(count_wiped(128), 7);
    uintptr_t values = (uintptr_t)window.values;
    tacit_wipe_free(window.values);
    assert_wiped(values, window.patches * 24 * sizeof(float));
    sensor_free(sensor);
    gguf_close(file);
    gguf_writer_free(w);
    free(bytes);
}

static tacit_status note_gradient(void *ctx, size_t unit, const float *grad, double loss)
{
    (void)unit;
    (void)loss;
    *(uintptr_t *)ctx = (uintptr_t)grad;
    return TACIT_OK;
}

static void test_gradients(void **state)
{
    tiny_model *t = *state;
    const tacit_trainable_spec spec = {.kind = TACIT_TRAIN_LORA_FFA,
                                       .target = {"attn_output"},
                                       .n_targets = 1,
                                       .rank = 2,
                                       .alpha = 4};
    tacit_trainer *trainer;
    tacit_input in;
    tacit_error err;
    uintptr_t grad = 0;
    tacit_record r = picture_record(t);
    assert_int_equal(tacit_example_build(&in, t->model, &r, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_trainer_new(&trainer, t->model, &spec, 256, NULL, &err), TACIT_OK);
    const tacit_input *example = &in;
    const tacit_unit unit = {&example, 1};
    assert_int_equal(tacit_trainer_grads(trainer, &unit, 1, note_gradient, &grad, &err), TACIT_OK);
    size_t values = tacit_trainer_layout(trainer)->values;
    n_wiped = 0;
    tacit_trainer_free(trainer);
    assert_wiped(grad, values * sizeof(float));
    tacit_input_free(&in);
    tacit_record_free(&r);
}

static void test_context(void **state)
{
    tiny_model *t = *state;
    tacit_context *c;
    tacit_error err;
    assert_int_equal(tacit_context_new(&c, t->model, NULL, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_context_feed_token(c, 'x', &err), TACIT_OK);
    uintptr_t logits = (uintptr_t)tacit_context_logits(c);
    n_wiped = 0;
    tacit_context_free(c);
    assert_wiped(logits, TINY_VOCAB * sizeof(float));
    size_t page = 0; /* two layers of K and V, 64 rows of one head of 16 */
    for (size_t i = 0; i < n_wiped; i++)
        page += wiped[i].size >= 2 * 2 * 64 * 16 * sizeof(float);
    assert_true(page >= 1);
}

static int setup(void **state)
{
    static tiny_model t;
    t = tiny_load(true);
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    char path[128];
    tiny_model *t = *state;
    snprintf(path, sizeof path, "%s/p.jpg", t->folder);
    unlink(path);
    tiny_free(t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),   cmocka_unit_test(test_records_and_inputs),
        cmocka_unit_test(test_pictures),  cmocka_unit_test(test_rows_that_leave_the_cache),
        cmocka_unit_test(test_row_cache), cmocka_unit_test(test_readings),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_context),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
