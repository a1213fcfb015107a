/* The sensor encoder's numbers: PyTorch in float64, a naive twin in double, central differences,
 * and identities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/secret.h"
#include "engine/sensor.h"

#include <stdint.h>
#include <unistd.h>

#include "../golden/sensor_torch.h"
#include "reference_sensor.h"

enum { PARTS = 5, IN = 24, OUT = 6, MOST = 5 };

typedef struct encoder {
    uint8_t *bytes;
    gguf_file *file;
    tacit_sensor *s;
} encoder;

static encoder make_encoder(tacit_type type)
{
    encoder e = {0};
    size_t size;
    tacit_error err = {0};
    sensor_spec spec = reference_sensor_spec(type, OUT);
    gguf_writer *w = gguf_writer_new();
    reference_put_sensor(w, &spec);
    if (gguf_write_memory(w, &e.bytes, &size, &err) != TACIT_OK ||
        gguf_open_memory(&e.file, e.bytes, size, "sensor", &err) != TACIT_OK ||
        sensor_load(&e.s, e.file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    return e;
}

static void free_encoder(encoder *e)
{
    sensor_free(e->s);
    gguf_close(e->file);
    free(e->bytes);
}

static size_t values_of(const tacit_sensor *s, size_t i)
{
    return sensor_tensor_at(s, i)->rows * sensor_tensor_at(s, i)->cols;
}

static void doubles_of(const tacit_sensor *s, double *out[PARTS])
{
    for (size_t i = 0; i < PARTS; i++) {
        const encoder_tensor *t = sensor_tensor_at(s, i);
        size_t n = values_of(s, i);
        float *values = malloc(n * sizeof *values);
        t->data->traits->to_f32(values, t->data->data, n);
        out[i] = malloc(n * sizeof *out[i]);
        for (size_t j = 0; j < n; j++)
            out[i][j] = (double)values[j];
        free(values);
    }
}

static void free_doubles(double *tensors[PARTS])
{
    for (size_t i = 0; i < PARTS; i++)
        free(tensors[i]);
}

/* Window number `seed` of `patches`. */
static sensor_window window_of(uint32_t seed, size_t patches)
{
    sensor_window w = {.patches = patches, .values = malloc(patches * IN * sizeof(float))};
    for (size_t i = 0; i < patches * IN; i++)
        w.values[i] = 4 * reference_uniform(800 + seed, (uint32_t)i);
    return w;
}

static sensor_pass *new_pass(const tacit_sensor *s, size_t windows, tacit_pool *pool)
{
    sensor_pass *p;
    tacit_error err = {0};
    if (sensor_pass_new(&p, s, windows, true, pool, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return p;
}

static void new_grads(const tacit_sensor *s, float *grads[PARTS])
{
    for (size_t i = 0; i < PARTS; i++)
        grads[i] = calloc(values_of(s, i), sizeof *grads[i]);
}

static void free_grads(float *grads[PARTS])
{
    for (size_t i = 0; i < PARTS; i++)
        free(grads[i]);
}

static void assert_close(const float *got, const double *expected, size_t n, double limit)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - expected[i]) * ((double)got[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    if (!(sqrt(error) <= limit * sqrt(norm)))
        fail_msg("relative error %.3g: expected at most %.3g", sqrt(error / norm), limit);
}

static void rows_and_gradients_are_pytorchs(void **state)
{
    static const double *const rows_torch[] = {sensor_torch_rows_0, sensor_torch_rows_1};
    static const double *const grad_torch[] = {sensor_torch_grad_0, sensor_torch_grad_1,
                                               sensor_torch_grad_2, sensor_torch_grad_3,
                                               sensor_torch_grad_4};
    (void)state;
    encoder e = make_encoder(TACIT_TYPE_F32);
    sensor_pass *p = new_pass(e.s, 2, NULL);
    sensor_window windows[] = {window_of(0, 5), window_of(1, 2)};
    float rows[2][MOST * OUT], d_rows[2][MOST * OUT], *grads[PARTS];
    float *const to[] = {rows[0], rows[1]};
    const float *const from[] = {d_rows[0], d_rows[1]};
    new_grads(e.s, grads);
    sensor_forward(p, NULL, windows, 2, to);
    for (size_t w = 0; w < 2; w++) {
        assert_close(rows[w], rows_torch[w], windows[w].patches * OUT, 1e-6);
        for (size_t i = 0; i < windows[w].patches * OUT; i++)
            d_rows[w][i] = reference_uniform(810 + (uint32_t)w, (uint32_t)i);
    }
    sensor_backward(p, from, grads);
    for (size_t i = 0; i < PARTS; i++)
        assert_close(grads[i], grad_torch[i], values_of(e.s, i), 1e-6);
    free_grads(grads);
    sensor_pass_free(p);
    free(windows[0].values), free(windows[1].values);
    free_encoder(&e);
}

/* Matrices in half precision and in blocks: the twin sees the dequantized values. */
static void rows_follow_the_types(void **state)
{
    static const tacit_type types[] = {TACIT_TYPE_F16, TACIT_TYPE_BF16};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        encoder e = make_encoder(types[k]);
        const sensor_shape *shape = sensor_get_shape(e.s);
        sensor_pass *p = new_pass(e.s, 1, NULL);
        sensor_window w = window_of(3, 4);
        double *tensors[PARTS], expected[4 * OUT];
        float rows[4 * OUT];
        float *const to[] = {rows};
        doubles_of(e.s, tensors);
        reference_sensor(shape, tensors, w.values, 4, expected);
        sensor_forward(p, NULL, &w, 1, to);
        assert_close(rows, expected, 4 * OUT, 1e-6);
        free_doubles(tensors);
        sensor_pass_free(p);
        free(w.values);
        free_encoder(&e);
    }
}

static double naive_loss(const sensor_shape *s, double *const *tensors, const sensor_window *w,
                         size_t n)
{
    double rows[MOST * OUT], sum = 0;
    for (size_t k = 0; k < n; k++) {
        reference_sensor(s, tensors, w[k].values, w[k].patches, rows);
        for (size_t i = 0; i < w[k].patches * OUT; i++)
            sum += rows[i] * rows[i] * (1 + (double)k);
    }
    return sum;
}

/* Trained values stand for the file's; the gradient is that of central differences. */
static void gradients_are_differences(void **state)
{
    (void)state;
    encoder e = make_encoder(TACIT_TYPE_F32);
    const sensor_shape *shape = sensor_get_shape(e.s);
    sensor_pass *p = new_pass(e.s, 2, NULL);
    sensor_window windows[] = {window_of(5, 3), window_of(6, 5)};
    double *tensors[PARTS];
    float rows[2][MOST * OUT], d_rows[2][MOST * OUT], *grads[PARTS], *trained[PARTS];
    float *const to[] = {rows[0], rows[1]};
    const float *const from[] = {d_rows[0], d_rows[1]};
    doubles_of(e.s, tensors);
    new_grads(e.s, grads);
    new_grads(e.s, trained);
    for (size_t i = 0; i < PARTS; i++)
        for (size_t k = 0; k < values_of(e.s, i); k++)
            tensors[i][k] = trained[i][k] = 0.8f * (float)tensors[i][k];
    sensor_forward(p, (const float *const *)trained, windows, 2, to);
    for (size_t w = 0; w < 2; w++)
        for (size_t i = 0; i < windows[w].patches * OUT; i++)
            d_rows[w][i] = 2 * rows[w][i] * (1 + (float)w);
    sensor_backward(p, from, grads);
    for (size_t i = 0; i < PARTS; i++)
        for (size_t k = 0; k < values_of(e.s, i); k += 3) {
            double at = tensors[i][k], h = 1e-5;
            tensors[i][k] = at + h;
            double above = naive_loss(shape, tensors, windows, 2);
            tensors[i][k] = at - h;
            double below = naive_loss(shape, tensors, windows, 2);
            tensors[i][k] = at;
            double expected = (above - below) / (2 * h);
            if (!(fabs((double)grads[i][k] - expected) <= 1e-4 * (1 + fabs(expected))))
                fail_msg("tensor %zu, value %zu: %g, expected %g", i, k, (double)grads[i][k],
                         expected);
        }
    free_doubles(tensors);
    free_grads(grads);
    free_grads(trained);
    sensor_pass_free(p);
    free(windows[0].values), free(windows[1].values);
    free_encoder(&e);
}

/* Rows and gradients of windows: alone, together, and on several threads. */
static void company_changes_no_bit(void **state)
{
    (void)state;
    encoder e = make_encoder(TACIT_TYPE_F32);
    sensor_window windows[] = {window_of(7, 5), window_of(8, 1), window_of(9, 3)};
    float alone[3][MOST * OUT], together[3][MOST * OUT], d_rows[3][MOST * OUT];
    float *const to[] = {together[0], together[1], together[2]};
    const float *const from[] = {d_rows[0], d_rows[1], d_rows[2]};
    for (size_t w = 0; w < 3; w++)
        for (size_t i = 0; i < MOST * OUT; i++)
            d_rows[w][i] = reference_uniform(900 + (uint32_t)w, (uint32_t)i);
    float *one_by_one[PARTS], *at_once[PARTS];
    new_grads(e.s, one_by_one);
    sensor_pass *single = new_pass(e.s, 1, NULL);
    for (size_t w = 0; w < 3; w++) {
        float *const rows[] = {alone[w]};
        sensor_forward(single, NULL, &windows[w], 1, rows);
        sensor_backward(single, from + w, one_by_one);
    }
    for (size_t threads = 1; threads <= 3; threads++) {
        tacit_pool *pool;
        assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
        sensor_pass *p = new_pass(e.s, 3, pool);
        new_grads(e.s, at_once);
        sensor_forward(p, NULL, windows, 3, to);
        sensor_backward(p, from, at_once);
        for (size_t w = 0; w < 3; w++)
            assert_memory_equal(together[w], alone[w], windows[w].patches * OUT * sizeof(float));
        for (size_t i = 0; i < PARTS; i++)
            assert_memory_equal(at_once[i], one_by_one[i], values_of(e.s, i) * sizeof(float));
        free_grads(at_once);
        sensor_pass_free(p);
        tacit_pool_free(pool);
    }
    free_grads(one_by_one);
    sensor_pass_free(single);
    for (size_t w = 0; w < 3; w++)
        free(windows[w].values);
    free_encoder(&e);
}

/* A gradient that nobody wants is not computed, and the others are the same. */
static void unwanted_gradients_are_left_out(void **state)
{
    (void)state;
    encoder e = make_encoder(TACIT_TYPE_F32);
    sensor_pass *p = new_pass(e.s, 1, NULL);
    sensor_window w = window_of(4, 5);
    float rows[MOST * OUT], *all[PARTS], *some[PARTS];
    float *const to[] = {rows};
    const float *const from[] = {rows};
    new_grads(e.s, all);
    sensor_forward(p, NULL, &w, 1, to);
    sensor_backward(p, from, all);
    for (size_t only = 0; only < PARTS; only++) {
        new_grads(e.s, some);
        float *wanted[PARTS] = {NULL};
        wanted[only] = some[only];
        sensor_backward(p, from, wanted);
        assert_memory_equal(some[only], all[only], values_of(e.s, only) * sizeof(float));
        free_grads(some);
    }
    free_grads(all);
    sensor_pass_free(p);
    free(w.values);
    free_encoder(&e);
}

/* ---- files ---- */

static tacit_status load_spec(const sensor_spec *spec, tacit_error *err)
{
    encoder e = {0};
    size_t size;
    gguf_writer *w = gguf_writer_new();
    reference_put_sensor(w, spec);
    tacit_status status = gguf_write_memory(w, &e.bytes, &size, err);
    gguf_writer_free(w);
    if (status == TACIT_OK)
        status = gguf_open_memory(&e.file, e.bytes, size, "sensor", err);
    if (status == TACIT_OK)
        status = sensor_load(&e.s, e.file, err);
    free_encoder(&e);
    return status;
}

static void expect_refusal(const sensor_spec *spec, const char *about)
{
    tacit_error err = {0};
    assert_int_equal(load_spec(spec, &err), TACIT_BAD_INPUT);
    if (!strstr(err.message, about))
        fail_msg("'%s' does not name '%s'", err.message, about);
}

static void unfit_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        sensor_channel channel;
        const char *about;
    } channels[] = {
        {{"speed", "", 0, 1, 1}, "channel 1"},   {{"time", "", 0, 1, 1}, "not time or t"},
        {{"t", "", 0, 1, 1}, "not time or t"},   {{"", "", 0, 1, 1}, "name of its own"},
        {{"a", "", 0, 0, 1}, "std[1]"},          {{"a", "", 0, -1, 1}, "std[1]"},
        {{"a", "", 0, INFINITY, 1}, "std[1]"},   {{"a", "", NAN, 1, 1}, "mean[1]"},
        {{"a", "", 0, 1, 0}, "max_gap[1]"},      {{"a\n", "", 0, 1, 1}, "channels[1]"},
        {{"a", "\x1b[2J", 0, 1, 1}, "units[1]"}, {{"a", "", 1e30, 1, 1}, "mean[1]"},
    };
    sensor_channel pair[2] = {{"speed", "", 0, 1, 1}};
    sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F32, OUT);
    tacit_error err = {0};
    assert_int_equal(load_spec(&spec, &err), TACIT_OK);
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++) {
        pair[1] = channels[i].channel;
        spec.channel = pair;
        spec.channels = 2;
        expect_refusal(&spec, channels[i].about);
    }
    spec = reference_sensor_spec(TACIT_TYPE_F32, OUT);
    spec.rate = 0;
    expect_refusal(&spec, "rate");
    spec.rate = (double)NAN;
    expect_refusal(&spec, "rate");
    spec = reference_sensor_spec(TACIT_TYPE_F32, OUT);
    spec.patch_length = 4096;
    spec.max_patches = 4096;
    spec.width = 1;
    expect_refusal(&spec, "windows of");
}

/* Keys that say another shape than the tensors, tensors that are missing or strangers. */
static void tensors_are_judged(void **state)
{
    (void)state;
    static const char *const names[] = {"s.patch_embd.weight", "s.patch_embd.bias",
                                        "s.position_embd.weight", "mm.s.fc.weight", "mm.s.fc.bias"};
    const uint64_t d[] = {8}, in[] = {24, 8}, positions[] = {8, 5}, fc[] = {8, 6}, out[] = {6};
    const uint64_t *const shapes[] = {in, d, positions, fc, out};
    for (size_t wrong = 0; wrong < 2 * PARTS + 1; wrong++) {
        sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F32, OUT);
        encoder e = {0};
        size_t size;
        tacit_error err = {0};
        gguf_writer *w = gguf_writer_new();
        sensor_put_keys(w, &spec);
        for (size_t i = 0; i < PARTS; i++) {
            uint32_t dims = shapes[i] == d || shapes[i] == out ? 1 : 2;
            uint64_t ne[2] = {shapes[i][0] + (wrong == PARTS + i), dims == 2 ? shapes[i][1] : 1};
            if (wrong != i)
                reference_put(w, 0, names[i], dims, ne, TACIT_TYPE_F32, 1, 0);
        }
        if (wrong == 2 * PARTS)
            reference_put(w, 0, "s.extra.weight", 1, d, TACIT_TYPE_F32, 1, 0);
        assert_int_equal(gguf_write_memory(w, &e.bytes, &size, &err), TACIT_OK);
        assert_int_equal(gguf_open_memory(&e.file, e.bytes, size, "f", &err), TACIT_OK);
        assert_int_equal(sensor_load(&e.s, e.file, &err), TACIT_BAD_INPUT);
        const char *about = wrong == 2 * PARTS ? "6 tensors" : names[wrong % PARTS];
        if (!strstr(err.message, about))
            fail_msg("%s", err.message);
        gguf_writer_free(w);
        free_encoder(&e);
    }
}

static void a_new_file_loads_and_is_reproducible(void **state)
{
    (void)state;
    char folder[] = "/tmp/tacit-sensor-XXXXXX", path[2][64];
    sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F16, 32);
    uint8_t digest[2][TACIT_DIGEST_BYTES];
    gguf_file *file;
    tacit_sensor *s;
    tacit_error err = {0};
    spec.seed = 7;
    spec.begin = "<sensor>";
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d.gguf", folder, i);
        if (sensor_write_new(path[i], &spec, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        assert_int_equal(tacit_digest_file(digest[i], path[i], &err), TACIT_OK);
    }
    assert_memory_equal(digest[0], digest[1], sizeof digest[0]);
    assert_int_equal(gguf_open(&file, path[0], &err), TACIT_OK);
    assert_int_equal(sensor_load(&s, file, &err), TACIT_OK);
    const sensor_channel *c = sensor_channels(s);
    assert_string_equal(c[1].name, "rpm");
    assert_string_equal(c[1].unit, "1/min");
    assert_true(c[1].mean == 2000 && c[1].std == 500 && fabs(c[1].max_gap - 0.3) < 1e-7);
    sensor_free(s);
    gguf_close(file);
    spec.rate = -1;
    unlink(path[0]);
    assert_int_equal(sensor_write_new(path[0], &spec, &err), TACIT_BAD_INPUT);
    assert_int_equal(access(path[0], F_OK), -1);
    spec.channels = 1u << 31;
    assert_int_equal(sensor_write_new(path[0], &spec, &err), TACIT_BAD_INPUT);
    unlink(path[1]);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_gradients_are_pytorchs),
        cmocka_unit_test(rows_follow_the_types),
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(company_changes_no_bit),
        cmocka_unit_test(unwanted_gradients_are_left_out),
        cmocka_unit_test(unfit_files_are_refused),
        cmocka_unit_test(tensors_are_judged),
        cmocka_unit_test(a_new_file_loads_and_is_reproducible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
