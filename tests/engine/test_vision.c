#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/pool.h"
#include "engine/kernels.h"
#include "engine/tower_fast.h"
#include "engine/vision.h"

#include <stdint.h>

#include "../golden/vision_torch.h"
#include "reference_vision.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static const reference_spec small = {.image = 12,
                                     .patch = 2,
                                     .width = 8,
                                     .ff = 12,
                                     .heads = 2,
                                     .layers = 2,
                                     .scale = 2,
                                     .out = 5,
                                     .linears = TACIT_TYPE_F32};

/* As CLIP's towers are: class token, a norm before the blocks, no bias of the kernel, quick GELU,
 * an image that is no whole number of patches; and as GraniteVision's, several states. */
static const reference_spec small_mlp = {.image = 13,
                                         .patch = 2,
                                         .width = 8,
                                         .ff = 12,
                                         .heads = 2,
                                         .layers = 2,
                                         .out = 5,
                                         .linears = TACIT_TYPE_F32,
                                         .act = REFERENCE_QUICK,
                                         .class_token = true,
                                         .pre_ln = true,
                                         .no_patch_bias = true,
                                         .mlp = true,
                                         .hidden = 7,
                                         .feature = {1, 2},
                                         .features = 2};

/* As SigLIP's are in LLaVA-OneVision. */
static const reference_spec small_siglip = {.image = 13,
                                            .patch = 2,
                                            .width = 8,
                                            .ff = 12,
                                            .heads = 2,
                                            .layers = 2,
                                            .out = 5,
                                            .linears = TACIT_TYPE_F32,
                                            .mlp = true,
                                            .hidden = 7};

static const reference_spec *const smalls[] = {&small, &small_mlp, &small_siglip};

typedef struct tower {
    uint8_t *bytes;
    gguf_file *file;
    tacit_vision *v;
} tower;

static tower make_tower(const reference_spec *spec)
{
    tower t = {0};
    size_t size;
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    reference_keys(w, spec);
    reference_tensors(w, spec);
    if (gguf_write_memory(w, &t.bytes, &size, &err) != TACIT_OK ||
        gguf_open_memory(&t.file, t.bytes, size, "tower", &err) != TACIT_OK ||
        vision_load(&t.v, t.file, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    return t;
}

static void free_tower(tower *t)
{
    vision_free(t->v);
    gguf_close(t->file);
    free(t->bytes);
}

/* Tensors of the file as doubles. */
static double **doubles_of(const tacit_vision *v)
{
    double **out = calloc(vision_tensor_count(v), sizeof *out);
    for (size_t i = 0; i < vision_tensor_count(v); i++) {
        const encoder_tensor *t = vision_tensor_at(v, i);
        size_t n = t->rows * t->cols;
        float *values = malloc(n * sizeof *values);
        t->data->traits->to_f32(values, t->data->data, n);
        out[i] = malloc(n * sizeof **out);
        for (size_t j = 0; j < n; j++)
            out[i][j] = values[j];
        free(values);
    }
    return out;
}

static void free_doubles(double **tensors, const tacit_vision *v)
{
    for (size_t i = 0; i < vision_tensor_count(v); i++)
        free(tensors[i]);
    free(tensors);
}

static float *picture(const vision_shape *s, uint32_t seed)
{
    size_t n = (size_t)3 * s->image_size * s->image_size;
    float *planes = malloc(n * sizeof *planes);
    for (size_t i = 0; i < n; i++)
        planes[i] = reference_uniform(seed, (uint32_t)i) * 2;
    return planes;
}

static float *fixed_d_rows(const vision_shape *s, size_t images)
{
    size_t n = (size_t)s->rows * s->out_width;
    float *d_rows = malloc(images * n * sizeof *d_rows);
    for (size_t i = 0; i < images * n; i++)
        d_rows[i] = reference_uniform(1001, (uint32_t)(i % n));
    return d_rows;
}

static double relative_error(const float *got, const double *expected, size_t n)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - expected[i]) * ((double)got[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(error / (norm > 0 ? norm : 1));
}

/* Gradients of all tensors, each of its own allocation; zeroed. */
static float **new_grads(const tacit_vision *v)
{
    float **grads = calloc(vision_tensor_count(v), sizeof *grads);
    for (size_t i = 0; i < vision_tensor_count(v); i++)
        grads[i] =
            calloc(vision_tensor_at(v, i)->rows * vision_tensor_at(v, i)->cols, sizeof **grads);
    return grads;
}

static void free_grads(float **grads, const tacit_vision *v)
{
    for (size_t i = 0; i < vision_tensor_count(v); i++)
        free(grads[i]);
    free(grads);
}

static void check_rows_against_reference(const reference_spec *spec, double tolerance)
{
    tower t = make_tower(spec);
    const vision_shape *s = vision_get_shape(t.v);
    size_t n = (size_t)s->rows * s->out_width;
    double **tensors = doubles_of(t.v);
    double *expected = malloc(n * sizeof *expected);
    float *rows = malloc(n * sizeof *rows), *planes = picture(s, 7);
    vision_pass *pass;
    reference_tower(spec, tensors, planes, expected);
    for (int train = 0; train < 2; train++) {
        assert_int_equal(
            vision_pass_new(&pass, t.v, 1, train ? PASS_TRAIN : PASS_EXACT, NULL, NULL), TACIT_OK);
        vision_forward(pass, NULL, (const float *const *)&planes, 1, rows);
        double error = relative_error(rows, expected, n);
        if (error > tolerance)
            fail_msg("rows are off by %g (relative), train %d", error, train);
        vision_pass_free(pass);
    }
    free(rows), free(planes), free(expected);
    free_doubles(tensors, t.v);
    free_tower(&t);
}

static void test_rows_agree_with_the_reference(void **state)
{
    (void)state;
    reference_spec spec = small;
    check_rows_against_reference(&spec, 2e-6);
    spec.swapped = true;
    check_rows_against_reference(&spec, 2e-6);
    /* Pixels beyond the last whole patch, as in SmolVLM-2.2B: 384 with patches of 14. */
    spec.image = 20, spec.patch = 3, spec.scale = 3;
    check_rows_against_reference(&spec, 2e-6);
}

static void test_rows_of_mlp_towers(void **state)
{
    (void)state;
    reference_spec spec = small_mlp;
    check_rows_against_reference(&spec, 2e-6);
    spec.features = 1, spec.feature[0] = 1; /* the block behind it does not count */
    check_rows_against_reference(&spec, 2e-6);
    spec.feature[0] = 0;
    check_rows_against_reference(&spec, 2e-6);
    spec.features = 0;
    for (spec.act = REFERENCE_TANH; spec.act <= REFERENCE_SILU; spec.act++)
        check_rows_against_reference(&spec, 2e-6);
    check_rows_against_reference(&small_siglip, 2e-6);
    spec = small_siglip;
    spec.post_ln = true;
    check_rows_against_reference(&spec, 2e-6);
    spec.swapped = true, spec.class_token = true;
    check_rows_against_reference(&spec, 2e-6);
}

/* More patches than attention takes at a time, no multiple of that, and every part of a class token
 * tower in types that are dequantized. */
static void test_rows_of_many_patches(void **state)
{
    (void)state;
    reference_spec spec = small_mlp;
    spec.image = 35, spec.width = 32, spec.ff = 64, spec.hidden = 32, spec.out = 12;
    check_rows_against_reference(&spec, 5e-6);
    spec.linears = TACIT_TYPE_Q8_0;
    check_rows_against_reference(&spec, 2e-5);
    spec.image = 16, spec.features = 0, spec.heads = 4;
    check_rows_against_reference(&spec, 2e-5);
}

static void test_rows_of_quantized_towers(void **state)
{
    (void)state;
    const tacit_type types[] = {TACIT_TYPE_F16, TACIT_TYPE_BF16, TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0,
                                TACIT_TYPE_Q4_1};
    for (size_t i = 0; i < COUNT(types); i++) {
        reference_spec spec = {.image = 24, .patch = 4, .width = 32, .ff = 64, .heads = 4};
        spec.layers = 2, spec.scale = 3, spec.out = 16, spec.linears = types[i];
        check_rows_against_reference(&spec, 1e-5);
    }
}

/* Above the size of towers that keep fp32 copies: weights are dequantized as they are used. */
static void test_rows_of_a_large_tower(void **state)
{
    (void)state;
    reference_spec spec = {.image = 16, .patch = 8, .width = 512, .ff = 2048, .heads = 8};
    spec.layers = 2, spec.scale = 2, spec.out = 64, spec.linears = TACIT_TYPE_Q8_0;
    check_rows_against_reference(&spec, 5e-5);
}

static void compute_fast(const tacit_vision *v, const float *const *weights, const float *planes,
                         size_t threads, float *rows)
{
    tacit_pool *pool;
    vision_pass *pass;
    assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
    assert_int_equal(vision_pass_new(&pass, v, 1, PASS_FAST, pool, NULL), TACIT_OK);
    vision_forward(pass, weights, &planes, 1, rows);
    vision_pass_free(pass);
    tacit_pool_free(pool);
}

/* Fast precision stays within what the design allows it, by far where there are no tiles, and is
 * one: refined rows are off by more than the 2e-6 below which fp32 stays.
 * The same for any threads. */
static void check_fast_rows(const reference_spec *spec, double least, double most)
{
    tower t = make_tower(spec);
    const vision_shape *s = vision_get_shape(t.v);
    size_t n = (size_t)s->rows * s->out_width;
    double **tensors = doubles_of(t.v), *expected = malloc(n * sizeof *expected);
    float *planes = picture(s, 7), *rows = malloc(n * sizeof *rows),
          *again = malloc(n * sizeof *again);
    reference_tower(spec, tensors, planes, expected);
    compute_fast(t.v, NULL, planes, 1, rows);
    compute_fast(t.v, NULL, planes, 3, again);
    assert_memory_equal(rows, again, n * sizeof *rows);
    double error = relative_error(rows, expected, n);
    if (!(error > least && error < most))
        fail_msg("fast rows are off by %g (relative): expected %g to %g", error, least, most);
    free(rows), free(again), free(planes), free(expected);
    free_doubles(tensors, t.v);
    free_tower(&t);
}

static bool refines(tacit_type type)
{
    const tacit_linear l = {.type = tacit_type_find(type), .n_in = 256, .n_out = 256};
    return tower_refines(&l);
}

static void test_fast_rows(void **state)
{
    (void)state;
    const tacit_type types[] = {TACIT_TYPE_F32,  TACIT_TYPE_F16,  TACIT_TYPE_BF16,
                                TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0, TACIT_TYPE_Q5_1};
    reference_spec spec = {.image = 24, .patch = 4, .width = 256, .ff = 256, .heads = 4};
    spec.layers = 3, spec.scale = 3, spec.out = 32, spec.gain = 0.15f;
    for (size_t i = 0; i < COUNT(types); i++) {
        const double least = refines(types[i]) ? 1e-6 : 0;
        const double most = refines(types[i]) ? 2e-4 : 2e-6;
        spec.linears = types[i];
        check_fast_rows(&spec, least, most);
        spec.mlp = true, spec.hidden = 64, spec.class_token = spec.pre_ln = true;
        check_fast_rows(&spec, least, most);
        spec.mlp = spec.class_token = spec.pre_ln = false;
    }
    check_fast_rows(&small, 0, 1e-5); /* no row is whole blocks: nothing is rounded */
    check_fast_rows(&small_mlp, 0, 1e-5);
}

/* As deep as towers are, and with scores of deviation 4, as trained models have: there what rounding
 * took from queries and keys, times many blocks, shows. */
static void test_fast_rows_of_sharp_attention(void **state)
{
    (void)state;
    const tacit_type types[] = {TACIT_TYPE_F16, TACIT_TYPE_Q8_0};
    reference_spec spec = {.image = 24, .patch = 4, .width = 256, .ff = 256, .heads = 4};
    spec.layers = 12, spec.scale = 3, spec.out = 32, spec.gain = 0.18f;
    for (size_t i = 0; i < COUNT(types); i++) {
        spec.linears = types[i];
        check_fast_rows(&spec, refines(types[i]) ? 1e-6 : 0, refines(types[i]) ? 2e-4 : 5e-6);
    }
}

/* In narrow towers rounding saves no time: none is done, though rows are whole blocks. */
static void test_fast_rows_of_narrow_towers(void **state)
{
    (void)state;
    reference_spec spec = {.image = 24, .patch = 4, .width = 128, .ff = 256, .heads = 4};
    spec.layers = 3, spec.scale = 3, spec.out = 32, spec.linears = TACIT_TYPE_Q8_0;
    check_fast_rows(&spec, 0, 2e-5);
}

/* Values that stand in for a rounded weight are used, and not its packed form. */
static void test_fast_stand_ins(void **state)
{
    (void)state;
    reference_spec spec = {.image = 24, .patch = 4, .width = 256, .ff = 128, .heads = 4};
    spec.layers = 2, spec.scale = 3, spec.out = 32, spec.gain = 0.15f;
    spec.linears = TACIT_TYPE_Q8_0;
    tower t = make_tower(&spec);
    const vision_shape *s = vision_get_shape(t.v);
    size_t count = vision_tensor_count(t.v), n = (size_t)s->rows * s->out_width;
    double **tensors = doubles_of(t.v), *expected = malloc(n * sizeof *expected);
    float **values = new_grads(t.v), *planes = picture(s, 7), *rows = malloc(n * sizeof *rows);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < vision_tensor_at(t.v, i)->rows * vision_tensor_at(t.v, i)->cols; j++)
            tensors[i][j] = values[i][j] = 1.5f * (float)tensors[i][j];
    reference_tower(&spec, tensors, planes, expected);
    compute_fast(t.v, (const float *const *)values, planes, 2, rows);
    assert_true(relative_error(rows, expected, n) < 2e-5);
    free(rows), free(planes), free(expected);
    free_grads(values, t.v);
    free_doubles(tensors, t.v);
    free_tower(&t);
}

static void check_against_torch(const reference_spec *spec, const double *expected,
                                const torch_tensor *torch, size_t count)
{
    tower t = make_tower(spec);
    const vision_shape *s = vision_get_shape(t.v);
    float *planes = picture(s, 1000), *d_rows = fixed_d_rows(s, 1), **grads = new_grads(t.v);
    float *rows = malloc(sizeof *rows * s->rows * s->out_width);
    vision_pass *pass;
    assert_int_equal(count, vision_tensor_count(t.v));
    assert_int_equal(vision_pass_new(&pass, t.v, 1, PASS_TRAIN, NULL, NULL), TACIT_OK);
    vision_forward(pass, NULL, (const float *const *)&planes, 1, rows);
    assert_true(relative_error(rows, expected, (size_t)s->rows * s->out_width) < 2e-6);
    vision_backward(pass, d_rows, grads);
    for (size_t i = 0; i < count; i++) {
        double error = relative_error(grads[i], torch[i].values, torch[i].count);
        /* Softmax does not see a bias of k: its gradient is nothing but rounding. */
        bool vanishes = strstr(vision_tensor_at(t.v, i)->name, "attn_k.bias") != NULL;
        for (size_t j = 0; vanishes && j < torch[i].count; j++)
            assert_true(fabsf(grads[i][j]) < 1e-5f);
        if (!vanishes && error > 1e-5)
            fail_msg("%s: gradient off by %g (relative)", vision_tensor_at(t.v, i)->name, error);
    }
    vision_pass_free(pass);
    free(planes), free(d_rows), free(rows);
    free_grads(grads, t.v);
    free_tower(&t);
}

static void test_rows_and_gradients_agree_with_torch(void **state)
{
    (void)state;
    check_against_torch(&small, idefics3_rows, idefics3_gradient, COUNT(idefics3_gradient));
    check_against_torch(&small_mlp, mlp_rows, mlp_gradient, COUNT(mlp_gradient));
}

static double reference_loss(const reference_spec *spec, double *const *tensors,
                             const float *planes, const float *d_rows, size_t n)
{
    double *rows = malloc(n * sizeof *rows), loss = 0;
    reference_tower(spec, tensors, planes, rows);
    for (size_t i = 0; i < n; i++)
        loss += rows[i] * (double)d_rows[i];
    free(rows);
    return loss;
}

/* Central differences of the reference in double, at several values of every tensor. */
static void check_differences(const reference_spec *spec)
{
    tower t = make_tower(spec);
    const vision_shape *s = vision_get_shape(t.v);
    size_t values = (size_t)s->rows * s->out_width;
    float *planes = picture(s, 3), *d_rows = fixed_d_rows(s, 1), **grads = new_grads(t.v);
    float *rows = malloc(sizeof *rows * s->rows * s->out_width);
    double **tensors = doubles_of(t.v);
    vision_pass *pass;
    assert_int_equal(vision_pass_new(&pass, t.v, 1, PASS_TRAIN, NULL, NULL), TACIT_OK);
    vision_forward(pass, NULL, (const float *const *)&planes, 1, rows);
    vision_backward(pass, d_rows, grads);
    for (size_t i = 0; i < vision_tensor_count(t.v); i++) {
        size_t n = vision_tensor_at(t.v, i)->rows * vision_tensor_at(t.v, i)->cols;
        for (size_t j = 0; j < n; j += n / 7 + 1) {
            double value = tensors[i][j], step = 1e-5;
            tensors[i][j] = value + step;
            double above = reference_loss(spec, tensors, planes, d_rows, values);
            tensors[i][j] = value - step;
            double slope =
                (above - reference_loss(spec, tensors, planes, d_rows, values)) / (2 * step);
            tensors[i][j] = value;
            if (fabs(slope - (double)grads[i][j]) > 2e-5 * (1 + fabs(slope)))
                fail_msg("%s[%zu]: gradient %g, difference %g", vision_tensor_at(t.v, i)->name, j,
                         (double)grads[i][j], slope);
        }
    }
    vision_pass_free(pass);
    free(planes), free(d_rows), free(rows);
    free_doubles(tensors, t.v);
    free_grads(grads, t.v);
    free_tower(&t);
}

static void test_gradients_agree_with_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(smalls); i++)
        check_differences(smalls[i]);
    reference_spec spec = small_siglip;
    spec.post_ln = true, spec.act = REFERENCE_ERF;
    check_differences(&spec);
    spec.act = REFERENCE_SILU;
    check_differences(&spec);
    spec.image = 19; /* 81 patches: more than attention takes at a time */
    check_differences(&spec);
}

/* Runs forward and backward on pictures 0..n-1 with stand-ins for the weights or without. */
static void run_pass(const tower *t, size_t n, size_t max_images, tacit_pool *pool,
                     const float *const *weights, float *rows, float **grads)
{
    const vision_shape *s = vision_get_shape(t->v);
    vision_pass *pass;
    float *pixels[4], *d_rows = fixed_d_rows(s, n);
    for (size_t i = 0; i < n; i++)
        pixels[i] = picture(s, 10 + (uint32_t)i);
    assert_int_equal(vision_pass_new(&pass, t->v, max_images, PASS_TRAIN, pool, NULL), TACIT_OK);
    vision_forward(pass, weights, (const float *const *)pixels, n, rows);
    vision_backward(pass, d_rows, grads);
    vision_pass_free(pass);
    for (size_t i = 0; i < n; i++)
        free(pixels[i]);
    free(d_rows);
}

/* The same numbers whatever the threads, the company, and whether activations are kept or computed
 * again (which 4000 planned pictures bring about). */
static void check_bits(const reference_spec *spec)
{
    tower t = make_tower(spec);
    const vision_shape *s = vision_get_shape(t.v);
    size_t n = (size_t)s->rows * s->out_width, tensors = vision_tensor_count(t.v);
    float *alone = malloc(n * sizeof *alone), *together = malloc(3 * n * sizeof *together);
    float **first = new_grads(t.v), **second = new_grads(t.v);
    run_pass(&t, 1, 1, NULL, NULL, alone, second);
    run_pass(&t, 3, 3, NULL, NULL, together, first);
    assert_memory_equal(alone, together, n * sizeof *alone);
    for (size_t threads = 1; threads <= 3; threads++) {
        tacit_pool *pool;
        float *again = malloc(3 * n * sizeof *again);
        free_grads(second, t.v);
        second = new_grads(t.v);
        assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
        run_pass(&t, 3, threads == 2 ? 4000 : 3, pool, NULL, again, second);
        assert_memory_equal(again, together, 3 * n * sizeof *again);
        for (size_t i = 0; i < tensors; i++)
            assert_memory_equal(first[i], second[i],
                                vision_tensor_at(t.v, i)->rows * vision_tensor_at(t.v, i)->cols *
                                    sizeof(float));
        tacit_pool_free(pool);
        free(again);
    }
    free(alone), free(together);
    free_grads(first, t.v);
    free_grads(second, t.v);
    free_tower(&t);
}

static void test_bitwise_the_same(void **state)
{
    (void)state;
    reference_spec spec = {.image = 24, .patch = 4, .width = 32, .ff = 64, .heads = 4};
    spec.layers = 3, spec.scale = 2, spec.out = 24, spec.linears = TACIT_TYPE_Q8_0;
    check_bits(&spec);
    spec.mlp = spec.class_token = spec.pre_ln = spec.no_patch_bias = true;
    spec.image = 38, spec.hidden = 32, spec.act = REFERENCE_QUICK;
    check_bits(&spec);
}

/* Only what is wanted is computed, and it is the same. */
static void check_partial(const reference_spec *spec)
{
    tower t = make_tower(spec);
    const vision_shape *s = vision_get_shape(t.v);
    size_t tensors = vision_tensor_count(t.v);
    float *rows = malloc(sizeof *rows * s->rows * s->out_width);
    float **all = new_grads(t.v), **wanted = calloc(tensors, sizeof *wanted);
    run_pass(&t, 1, 1, NULL, NULL, rows, all);
    for (size_t i = 0; i < tensors; i++) {
        size_t n = vision_tensor_at(t.v, i)->rows * vision_tensor_at(t.v, i)->cols;
        wanted[i] = calloc(n, sizeof **wanted);
        run_pass(&t, 1, 1, NULL, NULL, rows, wanted);
        assert_memory_equal(wanted[i], all[i], n * sizeof **wanted);
        free(wanted[i]);
        wanted[i] = NULL;
    }
    free(rows), free(wanted);
    free_grads(all, t.v);
    free_tower(&t);
}

static void test_partial_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(smalls); i++)
        check_partial(smalls[i]);
}

/* Stand-ins for every tensor equal to the file's values change nothing; another value does. */
static void check_stand_ins(const reference_spec *spec)
{
    tower t = make_tower(spec);
    const vision_shape *s = vision_get_shape(t.v);
    size_t n = (size_t)s->rows * s->out_width, tensors = vision_tensor_count(t.v);
    float *plain = malloc(n * sizeof *plain), *rows = malloc(n * sizeof *rows);
    float **grads = new_grads(t.v), **weights = new_grads(t.v);
    run_pass(&t, 1, 1, NULL, NULL, plain, grads);
    for (size_t i = 0; i < tensors; i++)
        memcpy(weights[i], vision_tensor_at(t.v, i)->data->data,
               vision_tensor_at(t.v, i)->data->bytes);
    run_pass(&t, 1, 1, NULL, (const float *const *)weights, rows, grads);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(rows[i] - plain[i]) < 1e-5f);
    for (size_t i = 0; i < tensors; i++) {
        float before = weights[i][0];
        bool changed = false;
        weights[i][0] += 0.25f;
        run_pass(&t, 1, 1, NULL, (const float *const *)weights, rows, grads);
        for (size_t j = 0; j < n; j++)
            changed |= fabsf(rows[j] - plain[j]) > 1e-5f;
        if (!changed && !strstr(vision_tensor_at(t.v, i)->name, "attn_k.bias"))
            fail_msg("%s is not used", vision_tensor_at(t.v, i)->name);
        weights[i][0] = before;
    }
    free(plain), free(rows);
    free_grads(grads, t.v);
    free_grads(weights, t.v);
    free_tower(&t);
}

static void test_stand_ins(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(smalls); i++)
        check_stand_ins(smalls[i]);
}

static void test_memory_is_judged_first(void **state)
{
    (void)state;
    reference_spec spec = small_siglip;
    spec.image = 128, spec.width = 64, spec.ff = 64; /* 4096 patches */
    tower t = make_tower(&spec);
    tacit_error err = {0};
    vision_pass *pass;
    assert_int_equal(vision_pass_new(&pass, t.v, 65536, PASS_TRAIN, NULL, &err), TACIT_NO_MEMORY);
    assert_null(pass);
    assert_non_null(strstr(err.message, "GiB are available"));
    assert_int_equal(vision_pass_new(&pass, t.v, 0, PASS_TRAIN, NULL, &err), TACIT_USAGE);
    assert_int_equal(vision_pass_new(&pass, t.v, 65537, PASS_TRAIN, NULL, &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "expected 1 to 65536"));
    assert_int_equal(vision_pass_new(&pass, t.v, 1, PASS_TRAIN, NULL, &err), TACIT_OK);
    vision_pass_free(pass);
    free_tower(&t);
}

/* Files that must be refused: a key of the small tower put otherwise. The writer refuses a key put
 * twice, so the changed key comes first and the others are copied around it. */
static const struct {
    const char *key;
    uint32_t value;
    const char *word;
} bad_sizes[] = {
    {"clip.vision.image_size", 14, "no multiple of scale"},
    {"clip.vision.image_size", 1, "patches"},
    {"clip.vision.image_size", 0, "image_size"},
    {"clip.vision.image_size", 1 << 20, "image_size"},
    {"clip.vision.patch_size", 0, "patch_size"},
    {"clip.vision.patch_size", 4, "no multiple of scale"},
    {"clip.vision.patch_size", 5, "shape"},
    {"clip.vision.patch_size", 6, "shape"},
    {"clip.vision.projector.scale_factor", 5, "no multiple of scale"},
    {"clip.vision.projector.scale_factor", 0, "scale_factor"},
    {"clip.vision.projector.scale_factor", 3, "shape"},
    {"clip.vision.attention.head_count", 3, "no multiple of head count"},
    {"clip.vision.attention.head_count", 0, "head_count"},
    {"clip.vision.embedding_length", 16, "shape"},
    {"clip.vision.feed_forward_length", 13, "shape"},
    {"clip.vision.block_count", 3, "missing"},
    {"clip.vision.block_count", 1, "not part of"},
    {"clip.vision.block_count", 1000000, "block_count"},
};

static tacit_status load_writer(gguf_writer *w, tacit_error *err)
{
    uint8_t *bytes = NULL;
    size_t size;
    gguf_file *file = NULL;
    tacit_vision *v = NULL;
    tacit_status status = gguf_write_memory(w, &bytes, &size, err);
    if (status == TACIT_OK)
        status = gguf_open_memory(&file, bytes, size, "tower", err);
    if (status == TACIT_OK)
        status = vision_load(&v, file, err);
    vision_free(v);
    if (file)
        gguf_close(file);
    free(bytes);
    gguf_writer_free(w);
    return status;
}

/* The small tower with what `w` already holds in place of its own keys. */
static tacit_status load_changed_of(const reference_spec *spec, gguf_writer *w, tacit_error *err)
{
    tower t = make_tower(spec);
    gguf_put_keys_of(w, t.file);
    reference_tensors(w, spec);
    tacit_status status = load_writer(w, err);
    free_tower(&t);
    return status;
}

static tacit_status load_changed(gguf_writer *w, tacit_error *err)
{
    return load_changed_of(&small, w, err);
}

static void expect_refusal(tacit_status status, const tacit_error *err, const char *words,
                           const char *what)
{
    char first[64];
    const char *bar = strchr(words, '|');
    snprintf(first, sizeof first, "%.*s", bar ? (int)(bar - words) : 63, words);
    if (status != TACIT_BAD_INPUT)
        fail_msg("%s was taken", what);
    if (!strstr(err->message, first) && !(bar && strstr(err->message, bar + 1)))
        fail_msg("%s: '%s' does not say '%s'", what, err->message, words);
}

static void test_wrong_numbers_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad_sizes); i++) {
        tacit_error err = {0};
        gguf_writer *w = gguf_writer_new();
        gguf_put_u32(w, bad_sizes[i].key, bad_sizes[i].value);
        expect_refusal(load_changed(w, &err), &err, bad_sizes[i].word, bad_sizes[i].key);
    }
}

/* A file of a few hundred KiB whose attention would take minutes a picture: 4096^2 pairs of patches
 * in a block, each 8 + 16 * 8 products, are 2.28e9; eight blocks stay below 2e10, nine do not, nor
 * do two in each of five frames. */
static void test_attention_beyond_the_file_is_refused(void **state)
{
    (void)state;
    reference_spec spec = small;
    tacit_error err = {0};
    spec.image = 128;
    spec.heads = 8;
    spec.layers = 8;
    assert_int_equal(load_changed_of(&spec, gguf_writer_new(), &err), TACIT_OK);
    gguf_writer *w = gguf_writer_new();
    spec.layers = 9;
    reference_keys(w, &spec);
    reference_tensors(w, &spec);
    expect_refusal(load_writer(w, &err), &err, "2.1e+10 products in the attention of 9 blocks",
                   "nine blocks");
    spec.layers = 2;
    w = gguf_writer_new();
    gguf_put_u32(w, "clip.vision.preproc_image_size", 256);
    expect_refusal(load_changed_of(&spec, w, &err), &err, "a picture of 5 times 4096 tokens",
                   "five frames");
}

static void test_wrong_kinds_are_refused(void **state)
{
    (void)state;
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, "clip.projector_type", "ldpv2", 5);
    expect_refusal(load_changed(w, &err), &err,
                   "clip.projector_type is 'ldpv2': supported are 'idefics3', 'mlp'", "projector");
    /* Newer converters write the key of the modality, alone or beside a word for all of them. */
    w = gguf_writer_new();
    gguf_put_string(w, "clip.vision.projector_type", "ldpv2", 5);
    expect_refusal(load_changed(w, &err), &err,
                   "clip.vision.projector_type is 'ldpv2': supported are 'idefics3', 'mlp'",
                   "projector of the modality");
    w = gguf_writer_new();
    gguf_put_string(w, "clip.projector_type", "mlp", 3);
    expect_refusal(load_changed(w, &err), &err, "mm.0.weight is missing", "no mlp");
    w = gguf_writer_new();
    gguf_put_string(w, "general.architecture", "llama", 5);
    expect_refusal(load_changed(w, &err), &err, "expected 'clip'", "architecture");
    w = gguf_writer_new();
    gguf_put_bool(w, "clip.use_silu", true);
    expect_refusal(load_changed(w, &err), &err, "both true", "two activations");
    w = gguf_writer_new();
    gguf_put_string(w, "tacit.vision.hidden_act", "relu", 4);
    expect_refusal(load_changed(w, &err), &err, "'relu': expected gelu", "activation");
    w = gguf_writer_new();
    gguf_put_bool(w, "clip.has_vision_encoder", false);
    expect_refusal(load_changed(w, &err), &err, "not an image encoder", "audio");
    w = gguf_writer_new();
    gguf_put_f32(w, "clip.vision.attention.layer_norm_epsilon", NAN);
    expect_refusal(load_changed(w, &err), &err, "epsilon", "epsilon");
}

static void test_wrong_channel_numbers_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *key;
        float value[3];
        size_t count;
    } bad[] = {{"clip.vision.image_std", {0.5f, 0, 0.5f}, 3},
               {"clip.vision.image_std", {0.5f, 0.5f, 0}, 2},
               {"clip.vision.image_std", {0.5f, -1, 0.5f}, 3},
               {"clip.vision.image_mean", {0.5f, NAN, 0.5f}, 3},
               {"clip.vision.image_mean", {INFINITY, 0, 0.5f}, 3},
               {"clip.vision.image_mean", {0.5f, 0, 0}, 1}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        tacit_error err = {0};
        gguf_writer *w = gguf_writer_new();
        gguf_put_array(w, bad[i].key, GGUF_F32, bad[i].value, bad[i].count);
        expect_refusal(load_changed(w, &err), &err, bad[i].key, bad[i].key);
    }
}

static void test_other_tensors_are_refused(void **state)
{
    (void)state;
    tacit_error err = {0};
    const uint64_t ne[] = {8};
    gguf_writer *w = gguf_writer_new();
    reference_put(w, 0, "v.class_embd", 1, ne, TACIT_TYPE_F32, 1, 0);
    expect_refusal(load_changed(w, &err), &err, "v.class_embd", "class token");
}

/* Keys of mlp towers. */
static void put_numbers(gguf_writer *w, const char *key, const int32_t *values, size_t count)
{
    gguf_put_array(w, key, GGUF_I32, values, count);
}

static void test_wrong_mlp_keys_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int32_t value[4];
        size_t count;
        const char *word;
    } bad[] = {
        {"clip.vision.feature_layer", {3}, 1, "feature_layer[0] is 3"},
        {"clip.vision.feature_layer", {-1}, 1, "feature_layer[0] is -1"},
        {"clip.vision.feature_layer", {1, 1}, 2, "feature_layer[1] is 1"},
        {"clip.vision.feature_layer", {2, 1}, 2, "feature_layer[1] is 1"},
        {"clip.vision.feature_layer", {2}, 1, "shape"},
        {"clip.vision.image_grid_pinpoints", {13}, 1, "1 numbers"},
        {"clip.vision.image_grid_pinpoints", {13, 14}, 2, "is 14"},
        {"clip.vision.image_grid_pinpoints", {13, 0}, 2, "is 0"},
        {"clip.vision.image_grid_pinpoints", {13, -13}, 2, "is -13"},
        {"clip.vision.image_grid_pinpoints", {13, 13 * 9}, 2, "is 117"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        tacit_error err = {0};
        gguf_writer *w = gguf_writer_new();
        put_numbers(w, bad[i].key, bad[i].value, bad[i].count);
        expect_refusal(load_changed_of(&small_mlp, w, &err), &err, bad[i].word, bad[i].word);
    }
    static const char *const aspects[] = {"anyres",       "square",        "anyres_max_",
                                          "anyres_max_0", "anyres_max_9x", "anyres_max_1000"};
    for (size_t i = 0; i < COUNT(aspects); i++) {
        tacit_error err = {0};
        gguf_writer *w = gguf_writer_new();
        gguf_put_string(w, "clip.vision.image_aspect_ratio", aspects[i], strlen(aspects[i]));
        expect_refusal(load_changed_of(&small_mlp, w, &err), &err,
                       "pinpoints is missing|pad, anyres", aspects[i]);
    }
}

static void test_wrong_mlp_files_are_refused(void **state)
{
    (void)state;
    tacit_error err = {0};
    const uint64_t ne[] = {8};
    const int32_t sizes[] = {13, 26}, many[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    gguf_writer *w = gguf_writer_new();
    reference_put(w, 0, "mm.3.weight", 1, ne, TACIT_TYPE_F32, 1, 0);
    expect_refusal(load_changed_of(&small_mlp, w, &err), &err, "mm.3.weight", "mlp_norm");
    w = gguf_writer_new();
    reference_put(w, 0, "v.post_ln.weight", 1, ne, TACIT_TYPE_F32, 1, 0);
    expect_refusal(load_changed_of(&small_mlp, w, &err), &err, "before the last norm", "post_ln");
    w = gguf_writer_new();
    put_numbers(w, "clip.vision.feature_layer", many, 9);
    expect_refusal(load_changed_of(&small_mlp, w, &err), &err, "at most 8", "many layers");
    w = gguf_writer_new();
    put_numbers(w, "clip.vision.image_grid_pinpoints", sizes, 2);
    gguf_put_string(w, "clip.vision.mm_patch_merge_type", "flat", 4);
    expect_refusal(load_changed_of(&small_mlp, w, &err), &err, "'flat': expected spatial_unpad",
                   "flat");
    const int32_t vast[] = {4096, 16384, 8192, 16384}; /* 64 Mi pixels, and twice that */
    w = gguf_writer_new();
    gguf_put_u32(w, "clip.vision.image_size", 2048);
    gguf_put_u32(w, "clip.vision.patch_size", 32);
    put_numbers(w, "clip.vision.image_grid_pinpoints", vast, 4);
    expect_refusal(load_changed_of(&small_mlp, w, &err), &err,
                   "pinpoints[2]: 8192 x 16384 pixels: expected at most 67108864", "vast");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_agree_with_the_reference),
        cmocka_unit_test(test_rows_of_mlp_towers),
        cmocka_unit_test(test_rows_of_many_patches),
        cmocka_unit_test(test_rows_of_quantized_towers),
        cmocka_unit_test(test_rows_of_a_large_tower),
        cmocka_unit_test(test_fast_rows),
        cmocka_unit_test(test_fast_rows_of_sharp_attention),
        cmocka_unit_test(test_fast_rows_of_narrow_towers),
        cmocka_unit_test(test_fast_stand_ins),
        cmocka_unit_test(test_rows_and_gradients_agree_with_torch),
        cmocka_unit_test(test_gradients_agree_with_differences),
        cmocka_unit_test(test_bitwise_the_same),
        cmocka_unit_test(test_partial_gradients),
        cmocka_unit_test(test_stand_ins),
        cmocka_unit_test(test_memory_is_judged_first),
        cmocka_unit_test(test_wrong_numbers_are_refused),
        cmocka_unit_test(test_attention_beyond_the_file_is_refused),
        cmocka_unit_test(test_wrong_kinds_are_refused),
        cmocka_unit_test(test_wrong_channel_numbers_are_refused),
        cmocka_unit_test(test_other_tensors_are_refused),
        cmocka_unit_test(test_wrong_mlp_keys_are_refused),
        cmocka_unit_test(test_wrong_mlp_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
