#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/encoder_kind.h"
#include "engine/vision_picture.h"

#include <stdint.h>
#include <string.h>

#include "../golden/vision_joined.h"
#include "reference_vision.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Of make_vision.py: tiles of 8 pixels, 3 x 3 features of 2 values, three tiles' worth at most. */
static vision_shape joined_shape(void)
{
    vision_shape s = {.image_size = 8, .grid = 3, .patches = 9, .rows = 9, .out_width = 2};
    s.cut = VISION_CUT_ANYRES;
    s.newline = true;
    s.max_tiles = 3;
    for (uint32_t h = 8; h <= 24; h += 8)
        for (uint32_t w = 8; w <= 24; w += 8) {
            s.pinpoint[s.pinpoints][0] = w;
            s.pinpoint[s.pinpoints++][1] = h;
        }
    return s;
}

static float *uniform(uint32_t t, size_t n)
{
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        out[i] = reference_uniform(t, (uint32_t)i);
    return out;
}

static void test_joining_agrees_with_torch(void **state)
{
    (void)state;
    const vision_shape s = joined_shape();
    bool scaled = false, whole = false;
    for (size_t i = 0; i < COUNT(joined); i++) {
        vision_arrangement a;
        vision_arrange(&a, &s, joined[i].width, joined[i].height);
        assert_int_equal(a.grid_rows, joined[i].rows);
        assert_int_equal(a.grid_cols, joined[i].cols);
        assert_int_equal(a.total, joined[i].total);
        scaled |= a.out_rows != a.rows;
        whole |= a.out_rows == a.rows;
        float *frames = uniform(1, a.frames * 9 * 2), *newline = uniform(2, 2);
        float *rows = malloc(a.total * 2 * sizeof *rows);
        vision_join(&a, &s, rows, frames, newline);
        for (size_t j = 0; j < a.total * 2; j++)
            if (fabs((double)rows[j] - joined[i].values[j]) > 1e-6)
                fail_msg("case %zu: value %zu is %g, torch has %g", i, j, (double)rows[j],
                         joined[i].values[j]);
        free(frames), free(newline), free(rows);
    }
    assert_true(scaled && whole);
}

/* <d, join(x)> = <join'(d), x>: joining is linear. */
static void test_backward_is_the_adjoint(void **state)
{
    (void)state;
    vision_shape s = joined_shape();
    for (int newline = 0; newline < 2; newline++)
        for (size_t i = 0; i <= COUNT(joined); i++) {
            bool alone = i == COUNT(joined);
            vision_arrangement a;
            s.newline = newline;
            vision_arrange(&a, &s, alone ? 0 : joined[i].width, alone ? 0 : joined[i].height);
            size_t in = a.frames * 9 * 2, out = a.total * 2;
            float *x = uniform(1, in), *line = uniform(2, 2), *d = uniform(3, out);
            float *rows = malloc(out * sizeof *rows), *dx = malloc(in * sizeof *dx);
            float d_line[2] = {0, 0};
            double forward = 0, backward = 0;
            vision_join(&a, &s, rows, x, line);
            vision_join_backward(&a, &s, dx, d_line, d);
            for (size_t j = 0; j < out; j++)
                forward += (double)rows[j] * (double)d[j];
            for (size_t j = 0; j < in; j++)
                backward += (double)dx[j] * (double)x[j];
            for (int j = 0; newline && j < 2; j++)
                backward += (double)d_line[j] * (double)line[j];
            assert_true(fabs(forward - backward) < 1e-5);
            free(x), free(line), free(d), free(rows), free(dx);
        }
}

/* ---- a tower behind it, as the room uses it ---- */

static const reference_spec spec = {.image = 8,
                                    .patch = 2,
                                    .width = 8,
                                    .ff = 12,
                                    .heads = 2,
                                    .layers = 1,
                                    .out = 3,
                                    .mlp = true,
                                    .newline = true,
                                    .hidden = 5,
                                    .linears = TACIT_TYPE_F32,
                                    .aspect = "anyres_max_2",
                                    .pinpoint = {8, 8, 16, 8, 16, 16},
                                    .pinpoints = 6};

enum { MEDIA = 2, PLANES = 3 * 8 * 8, PATCHES = 16, OUT = 3 };

typedef struct scene {
    uint8_t *bytes;
    gguf_file *file;
    void *vision;
    tacit_media media[MEDIA]; /* a picture of five frames, and one frame alone */
    vision_arrangement at[MEDIA];
    size_t tensors;
} scene;

static scene make_scene(void)
{
    scene s = {0};
    size_t size;
    gguf_writer *w = gguf_writer_new();
    reference_keys(w, &spec);
    reference_tensors(w, &spec);
    assert_int_equal(gguf_write_memory(w, &s.bytes, &size, NULL), TACIT_OK);
    assert_int_equal(gguf_open_memory(&s.file, s.bytes, size, "tower", NULL), TACIT_OK);
    assert_int_equal(encoder_image.load(&s.vision, s.file, NULL), TACIT_OK);
    gguf_writer_free(w);
    s.tensors = encoder_image.tensor_count(s.vision);
    for (uint32_t i = 0; i < MEDIA; i++) {
        tacit_media *m = &s.media[i];
        vision_arrange(&s.at[i], vision_get_shape(s.vision), i ? 0 : 30, i ? 0 : 21);
        *m = (tacit_media){.dim = {(uint32_t)(3 * s.at[i].frames), 8, 8},
                           .n_rows = s.at[i].total,
                           .values = uniform(40 + i, s.at[i].frames * PLANES)};
        m->extent[0] = i ? 0 : 30;
        m->extent[1] = i ? 0 : 21;
        assert_int_equal(encoder_image.check(s.vision, m, NULL), TACIT_OK);
    }
    assert_int_equal(s.at[0].frames, 5);
    assert_true(s.at[0].out_rows < s.at[0].rows);
    return s;
}

static void free_scene(scene *s)
{
    for (int i = 0; i < MEDIA; i++)
        free(s->media[i].values);
    encoder_image.free(s->vision);
    gguf_close(s->file);
    free(s->bytes);
}

/* The rows of all media by the naive tower; tensors as doubles in layout order. */
static void reference_rows(const scene *s, double *const *tensor, float *const *rows)
{
    const vision_shape *shape = vision_get_shape(s->vision);
    float newline[OUT];
    for (int c = 0; c < OUT; c++)
        newline[c] = (float)tensor[s->tensors - 1][c];
    for (int i = 0; i < MEDIA; i++) {
        size_t n = s->at[i].frames * PATCHES * OUT;
        double *exact = malloc(n * sizeof *exact);
        float *frames = malloc(n * sizeof *frames);
        for (size_t f = 0; f < s->at[i].frames; f++)
            reference_tower(&spec, tensor, s->media[i].values + f * PLANES,
                            exact + f * PATCHES * OUT);
        for (size_t j = 0; j < n; j++)
            frames[j] = (float)exact[j];
        vision_join(&s->at[i], shape, rows[i], frames, newline);
        free(exact), free(frames);
    }
}

static void new_rows(const scene *s, float **rows)
{
    for (int i = 0; i < MEDIA; i++)
        rows[i] = calloc(s->at[i].total * OUT, sizeof **rows);
}

static void free_rows(float **rows)
{
    for (int i = 0; i < MEDIA; i++)
        free(rows[i]);
}

static void *run(const scene *s, const float *const *weights, float *const *rows, bool train)
{
    void *pass;
    const tacit_media *media[] = {&s->media[0], &s->media[1]};
    assert_int_equal(encoder_image.pass_new(&pass, s->vision, MEDIA,
                                            train ? PASS_TRAIN : PASS_EXACT, NULL, NULL),
                     TACIT_OK);
    encoder_image.forward(pass, weights, media, MEDIA, rows);
    return pass;
}

static double **doubles_of(const scene *s)
{
    double **out = calloc(s->tensors, sizeof *out);
    for (size_t i = 0; i < s->tensors; i++) {
        encoder_tensor t = encoder_image.tensor_at(s->vision, i);
        const float *values = (const float *)(const void *)t.data->data;
        out[i] = malloc(t.rows * t.cols * sizeof **out);
        for (size_t j = 0; j < t.rows * t.cols; j++)
            out[i][j] = values[j];
    }
    return out;
}

static void test_rows_of_pictures(void **state)
{
    (void)state;
    scene s = make_scene();
    float *rows[MEDIA], *expected[MEDIA];
    double **tensor = doubles_of(&s);
    new_rows(&s, rows);
    new_rows(&s, expected);
    reference_rows(&s, tensor, expected);
    for (int train = 0; train < 2; train++) {
        encoder_image.pass_free(run(&s, NULL, rows, train));
        for (int i = 0; i < MEDIA; i++)
            for (size_t j = 0; j < s.at[i].total * OUT; j++)
                assert_true(fabsf(rows[i][j] - expected[i][j]) < 2e-5f);
    }
    free_rows(rows);
    free_rows(expected);
    for (size_t i = 0; i < s.tensors; i++)
        free(tensor[i]);
    free(tensor);
    free_scene(&s);
}

/* What d_rows asks of the frames and the newline; joining is linear, and its adjoint tested above.
 */
typedef struct asked {
    float *frames[MEDIA];
    float newline[OUT];
} asked;

static asked ask(const scene *s, float *const *d_rows)
{
    asked a = {0};
    for (int i = 0; i < MEDIA; i++) {
        a.frames[i] = malloc(s->at[i].frames * PATCHES * OUT * sizeof(float));
        vision_join_backward(&s->at[i], vision_get_shape(s->vision), a.frames[i], a.newline,
                             d_rows[i]);
    }
    return a;
}

static double loss_of(const scene *s, const asked *a, double *const *tensor)
{
    double rows[PATCHES * OUT], loss = 0;
    for (int c = 0; c < OUT; c++)
        loss += tensor[s->tensors - 1][c] * (double)a->newline[c];
    for (int i = 0; i < MEDIA; i++)
        for (size_t f = 0; f < s->at[i].frames; f++) {
            reference_tower(&spec, tensor, s->media[i].values + f * PLANES, rows);
            for (size_t j = 0; j < PATCHES * OUT; j++)
                loss += rows[j] * (double)a->frames[i][f * PATCHES * OUT + j];
        }
    return loss;
}

/* Central differences of the naive tower, at some values of every tensor. */
static void check_differences(const scene *s, const asked *a, double **tensor, float *const *grads)
{
    for (size_t i = 0; i < s->tensors; i++) {
        encoder_tensor t = encoder_image.tensor_at(s->vision, i);
        for (size_t j = 0; j < t.rows * t.cols; j += t.rows * t.cols / 3 + 1) {
            double value = tensor[i][j], step = 1e-5;
            tensor[i][j] = value + step;
            double above = loss_of(s, a, tensor);
            tensor[i][j] = value - step;
            double slope = (above - loss_of(s, a, tensor)) / (2 * step);
            tensor[i][j] = value;
            if (fabs(slope - (double)grads[i][j]) > 5e-5 * (1 + fabs(slope)))
                fail_msg("%s[%zu]: gradient %g, difference %g", t.name, j, (double)grads[i][j],
                         slope);
        }
    }
}

static void test_gradients_of_pictures(void **state)
{
    (void)state;
    scene s = make_scene();
    float *rows[MEDIA], *d_rows[MEDIA], **grads = calloc(s.tensors, sizeof *grads);
    double **tensor = doubles_of(&s);
    new_rows(&s, rows);
    for (uint32_t i = 0; i < MEDIA; i++)
        d_rows[i] = uniform(60 + i, s.at[i].total * OUT);
    for (size_t i = 0; i < s.tensors; i++) {
        encoder_tensor t = encoder_image.tensor_at(s.vision, i);
        grads[i] = calloc(t.rows * t.cols, sizeof **grads);
    }
    asked a = ask(&s, d_rows);
    void *pass = run(&s, NULL, rows, true);
    encoder_image.backward(pass, (const float *const *)d_rows, grads);
    check_differences(&s, &a, tensor, grads);
    for (size_t i = 0; i < s.tensors; i++)
        free(grads[i]), free(tensor[i]);
    encoder_image.pass_free(pass);
    free_rows(rows);
    free_rows(d_rows);
    free_rows(a.frames);
    free(grads), free(tensor);
    free_scene(&s);
}

static void test_the_newline_may_be_stood_in_for(void **state)
{
    (void)state;
    scene s = make_scene();
    const float line[OUT] = {5, 6, 7};
    const float **weights = calloc(s.tensors, sizeof *weights);
    float *rows[MEDIA];
    new_rows(&s, rows);
    assert_string_equal(encoder_image.tensor_at(s.vision, s.tensors - 1).name,
                        "model.image_newline");
    assert_true(encoder_image.tensor_at(s.vision, s.tensors - 1).projector);
    weights[s.tensors - 1] = line;
    encoder_image.pass_free(run(&s, weights, rows, false));
    for (int i = 0; i < MEDIA; i++)
        assert_memory_equal(rows[i] + (s.at[i].total - 1) * OUT, line, sizeof line);
    free_rows(rows);
    free(weights);
    free_scene(&s);
}

static void test_media_of_other_pictures_are_refused(void **state)
{
    (void)state;
    scene s = make_scene();
    tacit_error err = {0};
    for (int change = 0; change < 4; change++) {
        tacit_media m = s.media[0];
        if (change == 0)
            m.n_rows--;
        else if (change == 1)
            m.dim[0] = 3;
        else if (change == 2)
            m.extent[0] = m.extent[1] = 0;
        else
            m.dim[1] = 4;
        assert_int_equal(encoder_image.check(s.vision, &m, &err), TACIT_BAD_INPUT);
    }
    free_scene(&s);
}

/* LLaVA-NeXT's sizes as its files have them, width before height. A square picture of a tile's size
 * or less is shown as large, and wastes as much, in both of the first two: the first is taken, as
 * in the model's own code, which compares with "less than" (Liu et al. 2024). */
static void test_equal_sizes(void **state)
{
    (void)state;
    vision_shape s = {.image_size = 336, .grid = 24, .patches = 576, .rows = 576, .out_width = 2};
    const uint32_t sizes[5][2] = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
    s.cut = VISION_CUT_ANYRES;
    s.newline = true;
    s.pinpoints = 5;
    memcpy(s.pinpoint, sizes, sizeof sizes);
    for (uint32_t side = 100; side <= 336; side += 118) {
        vision_arrangement a;
        vision_arrange(&a, &s, side, side);
        assert_true(a.grid_cols == 1 && a.grid_rows == 2);
    }
}

/* LLaVA-OneVision's own numbers on both sides of 1.1, the ratio from which on features are scaled
 * down: a picture 1500 wide in 4 x 3 tiles has 108 columns of them and by its height 73, 75 or 79
 * rows, ratios of 1.096, 1.111 and 1.140 to 9 tiles (Li et al. 2024, arXiv 2408.03326; the numbers
 * are what transformers 4.47 gives). */
static void test_ratios_that_are_scaled_down(void **state)
{
    (void)state;
    static const struct {
        uint32_t height, rows, out_rows, out_cols;
    } cases[] = {{1000, 73, 73, 108}, {1040, 75, 67, 97}, {1100, 79, 69, 94}};
    vision_shape s = {.image_size = 384, .grid = 27, .patches = 729, .rows = 729, .out_width = 2};
    s.cut = VISION_CUT_ANYRES;
    s.newline = true;
    s.max_tiles = 9;
    for (uint32_t h = 1; h <= 6; h++)
        for (uint32_t w = 1; w <= 6; w++) {
            s.pinpoint[s.pinpoints][0] = 384 * w;
            s.pinpoint[s.pinpoints++][1] = 384 * h;
        }
    for (size_t i = 0; i < COUNT(cases); i++) {
        vision_arrangement a;
        vision_arrange(&a, &s, 1500, cases[i].height);
        assert_int_equal(a.rows, cases[i].rows);
        assert_int_equal(a.cols, 108);
        assert_int_equal(a.out_rows, cases[i].out_rows);
        assert_int_equal(a.out_cols, cases[i].out_cols);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ratios_that_are_scaled_down),
        cmocka_unit_test(test_equal_sizes),
        cmocka_unit_test(test_joining_agrees_with_torch),
        cmocka_unit_test(test_backward_is_the_adjoint),
        cmocka_unit_test(test_rows_of_pictures),
        cmocka_unit_test(test_gradients_of_pictures),
        cmocka_unit_test(test_the_newline_may_be_stood_in_for),
        cmocka_unit_test(test_media_of_other_pictures_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
