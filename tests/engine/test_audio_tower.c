#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/pool.h"
#include "common/secret.h"
#include "engine/audio.h"
#include "engine/audio_mel.h"
#include "engine/gelu_erf.h"
#include "engine/kernels.h"
#include "engine/tower_fast.h"

#include <stdint.h>

#include "../golden/audio_torch.h"
#include "reference_audio.h"
#include "sound_bytes.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define MOST_CLIPS 4

static const whisper_spec small = {.n_mel = 6,
                                   .width = 8,
                                   .ff = 12,
                                   .heads = 2,
                                   .layers = 2,
                                   .positions = 7,
                                   .stack = 3,
                                   .middle = 5,
                                   .out = 4,
                                   .linears = TACIT_TYPE_F32,
                                   .kernels = TACIT_TYPE_F32};

typedef struct tower {
    uint8_t *bytes;
    gguf_file *file;
    tacit_audio *a;
} tower;

static tacit_status load(tower *t, gguf_writer *w, tacit_error *err)
{
    size_t size;
    *t = (tower){0};
    if (gguf_write_memory(w, &t->bytes, &size, err) != TACIT_OK ||
        gguf_open_memory(&t->file, t->bytes, size, "tower", err) != TACIT_OK)
        fail_msg("%s", err->message);
    gguf_writer_free(w);
    return audio_load(&t->a, t->file, err);
}

static tower make_tower(const whisper_spec *spec)
{
    tower t;
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    whisper_keys(w, spec);
    whisper_tensors(w, spec);
    if (load(&t, w, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return t;
}

static void free_tower(tower *t)
{
    audio_free(t->a);
    gguf_close(t->file);
    free(t->bytes);
}

static size_t values_of(const tacit_audio *a, size_t i)
{
    return audio_tensor_at(a, i)->rows * audio_tensor_at(a, i)->cols;
}

/* Tensors of the file as doubles. */
static double **doubles_of(const tacit_audio *a)
{
    double **out = calloc(audio_tensor_count(a), sizeof *out);
    for (size_t i = 0; i < audio_tensor_count(a); i++) {
        const gguf_tensor *data = audio_tensor_at(a, i)->data;
        size_t n = values_of(a, i);
        float *values = malloc(n * sizeof *values);
        data->traits->to_f32(values, data->data, n);
        out[i] = malloc(n * sizeof **out);
        for (size_t j = 0; j < n; j++)
            out[i][j] = (double)values[j];
        free(values);
    }
    return out;
}

static void free_doubles(double **tensors, const tacit_audio *a)
{
    for (size_t i = 0; i < audio_tensor_count(a); i++)
        free(tensors[i]);
    free(tensors);
}

static float *numbers(size_t n, uint32_t seed, float scale)
{
    float *out = malloc(n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = whisper_uniform(seed, (uint32_t)i) * scale;
    return out;
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
static float **new_grads(const tacit_audio *a)
{
    float **grads = calloc(audio_tensor_count(a), sizeof *grads);
    for (size_t i = 0; i < audio_tensor_count(a); i++)
        grads[i] = calloc(values_of(a, i), sizeof **grads);
    return grads;
}

static void free_grads(float **grads, const tacit_audio *a)
{
    for (size_t i = 0; i < audio_tensor_count(a); i++)
        free(grads[i]);
    free(grads);
}

/* Clips of some lengths, their rows and the gradients of those. */
typedef struct clips {
    size_t n;
    audio_clip clip[MOST_CLIPS];
    float *mel[MOST_CLIPS], *rows[MOST_CLIPS], *d_rows[MOST_CLIPS];
} clips;

static clips make_clips(const tacit_audio *a, const size_t *frames, size_t n, uint32_t seed)
{
    clips c = {.n = n};
    const audio_shape *s = audio_get_shape(a);
    for (size_t i = 0; i < n; i++) {
        size_t values = audio_rows(a, frames[i]) * s->out_width;
        c.mel[i] = numbers(frames[i] * s->n_mel, seed + (uint32_t)i, 2);
        c.clip[i] = (audio_clip){c.mel[i], frames[i]};
        c.rows[i] = calloc(values, sizeof *c.rows[i]);
        c.d_rows[i] = numbers(values, 1001, 1);
    }
    return c;
}

static void free_clips(clips *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->mel[i]), free(c->rows[i]), free(c->d_rows[i]);
}

/* Forward and, where gradients are wanted, backward with a pass made for `max_clips`. */
static void run(const tacit_audio *a, clips *c, size_t max_clips, tacit_pool *pool,
                const float *const *weights, float **grads)
{
    audio_pass *pass;
    tacit_error err = {0};
    if (audio_pass_new(&pass, a, max_clips, grads ? PASS_TRAIN : PASS_EXACT, pool, &err) !=
        TACIT_OK)
        fail_msg("%s", err.message);
    audio_forward(pass, weights, c->clip, c->n, c->rows);
    if (grads)
        audio_backward(pass, (const float *const *)c->d_rows, grads);
    audio_pass_free(pass);
}

static void check_rows_against_reference(const whisper_spec *spec, const size_t *frames, size_t n,
                                         double tolerance)
{
    tower t = make_tower(spec);
    const audio_shape *s = audio_get_shape(t.a);
    double **tensors = doubles_of(t.a);
    float **grads = new_grads(t.a);
    clips c = make_clips(t.a, frames, n, 7);
    for (int train = 0; train < 2; train++) {
        run(t.a, &c, n, NULL, NULL, train ? grads : NULL);
        for (size_t i = 0; i < n; i++) {
            size_t values = audio_rows(t.a, frames[i]) * s->out_width;
            double *expected = calloc(values, sizeof *expected);
            assert_int_equal(reference_clip(s, tensors, c.mel[i], frames[i], expected),
                             audio_rows(t.a, frames[i]));
            double error = relative_error(c.rows[i], expected, values);
            if (!(error < tolerance))
                fail_msg("%zu frames, train %d: rows are off by %g (relative)", frames[i], train,
                         error);
            free(expected);
        }
    }
    free_clips(&c);
    free_doubles(tensors, t.a);
    free_grads(grads, t.a);
    free_tower(&t);
}

/* One frame, odd and even numbers, one chunk exactly, a frame more, several chunks. */
static void test_rows_agree_with_the_reference(void **state)
{
    (void)state;
    const size_t first[] = {1, 2, 13, 14}, second[] = {15, 28, 29, 51};
    whisper_spec spec = small;
    check_rows_against_reference(&spec, first, COUNT(first), 2e-6);
    spec.flat_bias = true;
    check_rows_against_reference(&spec, second, COUNT(second), 2e-6);
}

static void test_rows_of_quantized_towers(void **state)
{
    (void)state;
    const size_t frames[] = {37, 60};
    const tacit_type types[] = {TACIT_TYPE_F16, TACIT_TYPE_BF16, TACIT_TYPE_Q8_0, TACIT_TYPE_Q4_0,
                                TACIT_TYPE_Q4_1};
    for (size_t i = 0; i < COUNT(types); i++) {
        whisper_spec spec = {.n_mel = 20, .width = 32, .ff = 64, .heads = 4, .layers = 2};
        spec.positions = 30, spec.stack = 4, spec.middle = 32, spec.out = 16;
        spec.linears = types[i], spec.kernels = i % 2 ? TACIT_TYPE_F32 : TACIT_TYPE_F16;
        check_rows_against_reference(&spec, frames, COUNT(frames), 1e-5);
    }
}

/* More positions than are attended at a time, more outputs than are convolved at a time, and more
 * weights than are kept as copies. */
static void test_rows_of_a_large_tower(void **state)
{
    (void)state;
    const size_t frames[] = {301};
    whisper_spec spec = {.n_mel = 80, .width = 384, .ff = 1536, .heads = 6, .layers = 1};
    spec.positions = 151, spec.stack = 8, spec.middle = 512, spec.out = 64;
    spec.linears = TACIT_TYPE_Q8_0, spec.kernels = TACIT_TYPE_F16;
    check_rows_against_reference(&spec, frames, 1, 5e-5);
}

static void run_fast(const tacit_audio *a, clips *c, size_t threads, const float *const *weights)
{
    audio_pass *pass;
    tacit_pool *pool;
    assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
    assert_int_equal(audio_pass_new(&pass, a, c->n, PASS_FAST, pool, NULL), TACIT_OK);
    audio_forward(pass, weights, c->clip, c->n, c->rows);
    audio_pass_free(pass);
    tacit_pool_free(pool);
}

/* Fast precision stays within what the design allows it and is one: refined rows are off by more
 * than the 2e-6 below which fp32 stays. A clip's rows are the same for any threads, and alone. With `stand_ins` every weight has other values than the file's, its
 * own twice, which nothing is rounded for. */
static void check_fast_rows(const whisper_spec *spec, const size_t *frames, size_t n, double least,
                            double most, bool stand_ins)
{
    tower t = make_tower(spec);
    const audio_shape *s = audio_get_shape(t.a);
    double **tensors = doubles_of(t.a);
    float **weights = new_grads(t.a);
    clips c = make_clips(t.a, frames, n, 7), again = make_clips(t.a, frames, n, 7);
    for (size_t i = 0; i < audio_tensor_count(t.a); i++)
        for (size_t j = 0; j < values_of(t.a, i); j++) {
            tensors[i][j] *= stand_ins ? 2 : 1;
            weights[i][j] = (float)tensors[i][j];
        }
    run_fast(t.a, &c, 1, stand_ins ? (const float *const *)weights : NULL);
    run_fast(t.a, &again, 3, stand_ins ? (const float *const *)weights : NULL);
    clips last = make_clips(t.a, frames + n - 1, 1, 7 + (uint32_t)(n - 1));
    run_fast(t.a, &last, 2, stand_ins ? (const float *const *)weights : NULL);
    for (size_t i = 0; i < n; i++) {
        size_t values = audio_rows(t.a, frames[i]) * s->out_width;
        double *expected = calloc(values, sizeof *expected);
        reference_clip(s, tensors, c.mel[i], frames[i], expected);
        double error = relative_error(c.rows[i], expected, values);
        assert_memory_equal(c.rows[i], again.rows[i], values * sizeof **c.rows);
        if (i == n - 1)
            assert_memory_equal(c.rows[i], last.rows[0], values * sizeof **c.rows);
        if (!(error > least && error < most))
            fail_msg("%zu frames: fast rows are off by %g (relative): expected %g to %g", frames[i],
                     error, least, most);
        free(expected);
    }
    free_clips(&c);
    free_clips(&again);
    free_clips(&last);
    free_doubles(tensors, t.a);
    free_grads(weights, t.a);
    free_tower(&t);
}

static bool refines(tacit_type type)
{
    const tacit_linear l = {.type = tacit_type_find(type), .n_in = 256, .n_out = 256};
    return tower_refines(&l);
}

/* A chunk and a part of one, one part, and rows too few for tiles. */
static void test_fast_rows(void **state)
{
    (void)state;
    const tacit_type types[] = {TACIT_TYPE_F32, TACIT_TYPE_F16, TACIT_TYPE_BF16, TACIT_TYPE_Q8_0,
                                TACIT_TYPE_Q4_0};
    const size_t frames[] = {360, 70}, few[] = {40};
    whisper_spec spec = {.n_mel = 16, .width = 256, .ff = 256, .heads = 4, .layers = 3};
    spec.positions = 150, spec.stack = 4, spec.middle = 64, spec.out = 32, spec.gain = 0.15f;
    for (size_t i = 0; i < COUNT(types); i++) {
        double least = refines(types[i]) ? 1e-6 : 0, most = refines(types[i]) ? 2e-4 : 2e-6;
        spec.linears = types[i];
        check_fast_rows(&spec, few, COUNT(few), least, most, false);
        check_fast_rows(&spec, frames, COUNT(frames), least, most, false);
        check_fast_rows(&spec, frames, COUNT(frames), 0, 1e-5, true);
    }
    check_fast_rows(&small, (const size_t[]){15, 28}, 2, 0, 1e-5, false);
}

static void test_rows_and_gradients_agree_with_torch(void **state)
{
    (void)state;
    const size_t frames[] = {23};
    tower t = make_tower(&small);
    float **grads = new_grads(t.a);
    clips c = make_clips(t.a, frames, 1, 1000);
    assert_int_equal(COUNT(torch_gradient), audio_tensor_count(t.a));
    assert_int_equal(COUNT(torch_rows), audio_rows(t.a, 23) * audio_get_shape(t.a)->out_width);
    run(t.a, &c, 1, NULL, NULL, grads);
    assert_true(relative_error(c.rows[0], torch_rows, COUNT(torch_rows)) < 2e-6);
    for (size_t i = 0; i < audio_tensor_count(t.a); i++) {
        assert_int_equal(torch_gradient[i].count, values_of(t.a, i));
        double error = relative_error(grads[i], torch_gradient[i].values, torch_gradient[i].count);
        if (!(error < 1e-5))
            fail_msg("%s: gradient off by %g (relative)", audio_tensor_at(t.a, i)->name, error);
    }
    free_clips(&c);
    free_grads(grads, t.a);
    free_tower(&t);
}

static double reference_loss(const audio_shape *s, double *const *tensors, const clips *c)
{
    double loss = 0;
    for (size_t i = 0; i < c->n; i++) {
        double *rows = calloc((c->clip[i].n_frames + 2) * s->out_width, sizeof *rows);
        size_t n = reference_clip(s, tensors, c->mel[i], c->clip[i].n_frames, rows) * s->out_width;
        for (size_t j = 0; j < n; j++)
            loss += rows[j] * (double)c->d_rows[i][j];
        free(rows);
    }
    return loss;
}

/* Central differences of the reference in double, at several values of every tensor. */
static void test_gradients_agree_with_differences(void **state)
{
    (void)state;
    const size_t frames[] = {9, 20};
    tower t = make_tower(&small);
    const audio_shape *s = audio_get_shape(t.a);
    double **tensors = doubles_of(t.a);
    float **grads = new_grads(t.a);
    clips c = make_clips(t.a, frames, 2, 3);
    run(t.a, &c, 2, NULL, NULL, grads);
    for (size_t i = 0; i < audio_tensor_count(t.a); i++) {
        size_t n = values_of(t.a, i);
        for (size_t j = 0; j < n; j += n / 7 + 1) {
            double value = tensors[i][j], step = 1e-5;
            tensors[i][j] = value + step;
            double above = reference_loss(s, tensors, &c);
            tensors[i][j] = value - step;
            double slope = (above - reference_loss(s, tensors, &c)) / (2 * step);
            tensors[i][j] = value;
            if (!(fabs(slope - (double)grads[i][j]) < 2e-5 * (1 + fabs(slope))))
                fail_msg("%s[%zu]: gradient %g, difference %g", audio_tensor_at(t.a, i)->name, j,
                         (double)grads[i][j], slope);
        }
    }
    free_clips(&c);
    free_doubles(tensors, t.a);
    free_grads(grads, t.a);
    free_tower(&t);
}

/* The same numbers whatever the threads, the company, and whether activations are kept or computed
 * again (which 4000 planned clips bring about). */
static void test_bitwise_the_same(void **state)
{
    (void)state;
    const size_t frames[] = {61, 300, 17};
    whisper_spec spec = {.n_mel = 20, .width = 32, .ff = 64, .heads = 4, .layers = 3};
    spec.positions = 140, spec.stack = 4, spec.middle = 32, spec.out = 24, spec.max_frames = 300;
    spec.linears = TACIT_TYPE_Q8_0, spec.kernels = TACIT_TYPE_F16;
    tower t = make_tower(&spec);
    float **first = new_grads(t.a), **second = new_grads(t.a);
    clips together = make_clips(t.a, frames, 3, 10), alone = make_clips(t.a, frames, 1, 10);
    run(t.a, &alone, 1, NULL, NULL, NULL);
    run(t.a, &together, 3, NULL, NULL, first);
    size_t row_bytes = audio_get_shape(t.a)->out_width * sizeof(float);
    assert_memory_equal(alone.rows[0], together.rows[0], audio_rows(t.a, frames[0]) * row_bytes);
    for (size_t threads = 1; threads <= 3; threads++) {
        tacit_pool *pool;
        clips again = make_clips(t.a, frames, 3, 10);
        free_grads(second, t.a);
        second = new_grads(t.a);
        assert_int_equal(tacit_pool_new(&pool, threads, NULL), TACIT_OK);
        run(t.a, &again, threads == 2 ? 4000 : 3, pool, NULL, second);
        for (size_t i = 0; i < 3; i++)
            assert_memory_equal(again.rows[i], together.rows[i],
                                audio_rows(t.a, frames[i]) * row_bytes);
        for (size_t i = 0; i < audio_tensor_count(t.a); i++)
            assert_memory_equal(first[i], second[i], values_of(t.a, i) * sizeof(float));
        tacit_pool_free(pool);
        free_clips(&again);
    }
    free_clips(&alone);
    free_clips(&together);
    free_grads(first, t.a);
    free_grads(second, t.a);
    free_tower(&t);
}

/* Only what is wanted is computed, and it is the same. */
static void test_partial_gradients(void **state)
{
    (void)state;
    const size_t frames[] = {23};
    tower t = make_tower(&small);
    size_t tensors = audio_tensor_count(t.a);
    clips c = make_clips(t.a, frames, 1, 5);
    float **all = new_grads(t.a), **wanted = calloc(tensors, sizeof *wanted);
    run(t.a, &c, 1, NULL, NULL, all);
    for (size_t i = 0; i < tensors; i++) {
        wanted[i] = calloc(values_of(t.a, i), sizeof **wanted);
        run(t.a, &c, 1, NULL, NULL, wanted);
        assert_memory_equal(wanted[i], all[i], values_of(t.a, i) * sizeof **wanted);
        free(wanted[i]);
        wanted[i] = NULL;
    }
    free(wanted);
    free_clips(&c);
    free_grads(all, t.a);
    free_tower(&t);
}

/* Stand-ins for every tensor equal to the file's values change nothing; another value does. */
static void test_stand_ins(void **state)
{
    (void)state;
    const size_t frames[] = {12};
    tower t = make_tower(&small);
    size_t n = audio_rows(t.a, frames[0]) * audio_get_shape(t.a)->out_width;
    clips plain = make_clips(t.a, frames, 1, 6), c = make_clips(t.a, frames, 1, 6);
    float **weights = new_grads(t.a);
    run(t.a, &plain, 1, NULL, NULL, NULL);
    for (size_t i = 0; i < audio_tensor_count(t.a); i++)
        memcpy(weights[i], audio_tensor_at(t.a, i)->data->data,
               audio_tensor_at(t.a, i)->data->bytes);
    run(t.a, &c, 1, NULL, (const float *const *)weights, NULL);
    for (size_t j = 0; j < n; j++)
        assert_true(fabsf(c.rows[0][j] - plain.rows[0][j]) < 1e-5f);
    for (size_t i = 0; i < audio_tensor_count(t.a); i++) {
        float before = weights[i][0];
        bool changed = false;
        weights[i][0] += 0.25f;
        run(t.a, &c, 1, NULL, (const float *const *)weights, NULL);
        for (size_t j = 0; j < n; j++)
            changed |= fabsf(c.rows[0][j] - plain.rows[0][j]) > 1e-5f;
        if (!changed)
            fail_msg("%s is not used", audio_tensor_at(t.a, i)->name);
        weights[i][0] = before;
    }
    free_clips(&plain);
    free_clips(&c);
    free_grads(weights, t.a);
    free_tower(&t);
}

static void test_numbers_of_rows(void **state)
{
    (void)state;
    const struct {
        uint32_t positions, stack;
        size_t frames, rows;
    } cases[] = {
        {1500, 8, 1, 1},      {1500, 8, 16, 1},     {1500, 8, 17, 2},     {1500, 8, 2992, 187},
        {1500, 8, 2993, 188}, {1500, 8, 3000, 188}, {1500, 8, 3001, 189}, {1500, 8, 9000, 564},
        {7, 3, 0, 0},         {7, 3, 14, 3},        {7, 1, 15, 8},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        whisper_spec spec = small;
        spec.positions = cases[i].positions, spec.stack = cases[i].stack;
        tower t = make_tower(&spec);
        assert_int_equal(audio_rows(t.a, cases[i].frames), cases[i].rows);
        free_tower(&t);
    }
}

/* A key of the small tower put otherwise. The writer refuses a key put twice and
 * gguf_put_keys_of skips those that are there, so the changed key comes first. */
static tacit_status load_changed(tower *t, tacit_error *err, const char *key, bool is_size,
                                 uint32_t size, float real)
{
    tower sound = make_tower(&small);
    gguf_writer *w = gguf_writer_new();
    if (is_size)
        gguf_put_u32(w, key, size);
    else
        gguf_put_f32(w, key, real);
    gguf_put_keys_of(w, sound.file);
    whisper_tensors(w, &small);
    tacit_status status = load(t, w, err);
    free_tower(&sound);
    return status;
}

static void expect_refusal(tower *t, tacit_status status, const tacit_error *err, const char *word)
{
    if (status != TACIT_BAD_INPUT || !strstr(err->message, word))
        fail_msg("expected a refusal with '%s', found %d: %s", word, status, err->message);
    assert_null(t->a);
    free_tower(t);
}

static void test_wrong_numbers_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *key;
        uint32_t value;
        const char *word;
    } bad[] = {
        {"clip.audio.num_mel_bins", 0, "num_mel_bins"},
        {"clip.audio.num_mel_bins", 7, "a.conv1d.1.weight"},
        {"clip.audio.num_mel_bins", 1u << 30, "num_mel_bins"},
        {"clip.audio.embedding_length", 0, "embedding_length"},
        {"clip.audio.embedding_length", 9, "no multiple of head count"},
        {"clip.audio.embedding_length", 10, "shape"},
        {"clip.audio.embedding_length", UINT32_MAX, "embedding_length"},
        {"clip.audio.feed_forward_length", 13, "ffn_up"},
        {"clip.audio.feed_forward_length", 1u << 31, "feed_forward_length"},
        {"clip.audio.block_count", 1, "not part of"},
        {"clip.audio.block_count", 3, "a.blk.2.ln1.weight is missing"},
        {"clip.audio.block_count", 1u << 20, "block_count"},
        {"clip.audio.attention.head_count", 0, "head_count"},
        {"clip.audio.attention.head_count", 3, "no multiple"},
        {"clip.audio.projector.stack_factor", 0, "stack_factor"},
        {"clip.audio.projector.stack_factor", 4, "norm_pre"},
        {"clip.audio.projector.stack_factor", 65, "stack_factor"},
        {"tacit.audio.max_frames", 1, "max_frames"},
        {"tacit.audio.max_frames", 1u << 31, "max_frames"},
        {"tacit.audio.unpadded", 1, "unpadded"},
    };
    const float epsilons[] = {0, -1e-5f, 0.5f, NAN, INFINITY};
    tower t;
    tacit_error err = {0};
    for (size_t i = 0; i < COUNT(bad); i++) {
        tacit_status status = load_changed(&t, &err, bad[i].key, true, bad[i].value, 0);
        expect_refusal(&t, status, &err, bad[i].word);
    }
    for (size_t i = 0; i < COUNT(epsilons); i++) {
        const char *key = "clip.audio.attention.layer_norm_epsilon";
        tacit_status status = load_changed(&t, &err, key, false, 0, epsilons[i]);
        expect_refusal(&t, status, &err, "layer_norm_epsilon");
    }
}

/* A chunk of 8192 positions is 9.1e9 products a block here (8 + 16 * 8 a pair): two blocks stay
 * below 2e10, three do not, nor do two blocks over two chunks. */
static void test_attention_beyond_the_file_is_refused(void **state)
{
    (void)state;
    whisper_spec spec = small;
    tacit_error err = {0};
    spec.heads = 8;
    spec.positions = 8192;
    spec.max_frames = 16384;
    tower t = make_tower(&spec);
    free_tower(&t);
    spec.layers = 3;
    gguf_writer *w = gguf_writer_new();
    whisper_keys(w, &spec);
    whisper_tensors(w, &spec);
    expect_refusal(&t, load(&t, w, &err), &err, "2.7e+10 products in the attention of 3 blocks");
    spec.layers = 2;
    spec.max_frames = 32768;
    w = gguf_writer_new();
    whisper_keys(w, &spec);
    whisper_tensors(w, &spec);
    expect_refusal(&t, load(&t, w, &err), &err, "a clip of 2 times 8192 tokens");
}

static tacit_status load_without(tower *t, tacit_error *err, const char *left_out)
{
    tower sound = make_tower(&small);
    gguf_writer *w = gguf_writer_new();
    gguf_put_keys_of(w, sound.file);
    for (size_t i = 0; i < gguf_tensor_count(sound.file); i++) {
        const gguf_tensor *g = gguf_tensor_at(sound.file, i);
        if (strcmp(g->name, left_out) != 0)
            gguf_put_tensor_bytes(w, g->name, g->n_dims, g->ne, g->type, g->data, g->bytes);
    }
    tacit_status status = load(t, w, err);
    free_tower(&sound);
    return status;
}

static void test_every_tensor_is_needed(void **state)
{
    (void)state;
    tower sound = make_tower(&small), t;
    tacit_error err = {0};
    for (size_t i = 0; i < audio_tensor_count(sound.a); i++) {
        const char *name = audio_tensor_at(sound.a, i)->name;
        tacit_status status = load_without(&t, &err, name);
        expect_refusal(&t, status, &err, name);
    }
    free_tower(&sound);
}

/* A bias of k, a second head, an odd number of gated outputs: what would be computed wrongly. */
static void test_other_tensors_are_refused(void **state)
{
    (void)state;
    const uint64_t ne[] = {8};
    const float zeros[8] = {0};
    const char *const names[] = {"a.blk.0.attn_k.bias", "mm.a.norm_post.weight", "v.class_embd"};
    tower t;
    tacit_error err = {0};
    for (size_t i = 0; i < COUNT(names); i++) {
        gguf_writer *w = gguf_writer_new();
        whisper_keys(w, &small);
        whisper_tensors(w, &small);
        gguf_put_tensor(w, names[i], 1, ne, TACIT_TYPE_F32, zeros);
        expect_refusal(&t, load(&t, w, &err), &err, names[i]);
    }
}

static tacit_status load_of_kind(tower *t, tacit_error *err, const char *architecture,
                                 const char *key, const char *projector, bool has_encoder)
{
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, "general.architecture", architecture, strlen(architecture));
    gguf_put_string(w, key, projector, strlen(projector));
    gguf_put_bool(w, "clip.has_audio_encoder", has_encoder);
    tower sound = make_tower(&small);
    gguf_put_keys_of(w, sound.file);
    free_tower(&sound);
    whisper_tensors(w, &small);
    return load(t, w, err);
}

static void test_other_kinds_are_named(void **state)
{
    (void)state;
    const char *plain = "clip.projector_type", *mixed = "clip.audio.projector_type";
    tower t;
    tacit_error err = {0};
    expect_refusal(&t, load_of_kind(&t, &err, "clip", plain, "qwen2a", true), &err, "'qwen2a'");
    expect_refusal(&t, load_of_kind(&t, &err, "clip", mixed, "voxtral", true), &err, "'voxtral'");
    expect_refusal(&t, load_of_kind(&t, &err, "llama", plain, "ultravox", true), &err, "-m");
    expect_refusal(&t, load_of_kind(&t, &err, "clip", plain, "ultravox", false), &err,
                   "not an audio encoder");
    assert_int_equal(load_of_kind(&t, &err, "clip", mixed, "ultravox", true), TACIT_OK);
    free_tower(&t);
}

static void test_passes_have_a_size(void **state)
{
    (void)state;
    tower t = make_tower(&small);
    audio_pass *pass;
    tacit_error err = {0};
    assert_int_equal(audio_pass_new(&pass, t.a, 0, PASS_EXACT, NULL, &err), TACIT_USAGE);
    assert_int_equal(audio_pass_new(&pass, t.a, 65537, PASS_TRAIN, NULL, &err), TACIT_USAGE);
    free_tower(&t);
}

/* From a file's bytes to frames, clips that keep their length and padded ones; frames are those of
 * the same samples. The longest clip passes, a sample more does not. */
static void test_preparing(void **state)
{
    (void)state;
    int16_t samples[14 * AUDIO_HOP * 2 + 1];
    float plain[COUNT(samples)], *frames, *expected;
    size_t n_frames;
    tacit_error err = {0};
    for (size_t i = 0; i < COUNT(samples); i++) {
        samples[i] = (int16_t)(whisper_uniform(9, (uint32_t)i) * 20000);
        plain[i] = (float)samples[i] / 32768;
    }
    for (int padded = 0; padded < 2; padded++) {
        whisper_spec spec = small;
        spec.padded = padded, spec.max_frames = 28;
        tower t = make_tower(&spec);
        assert_int_equal(audio_get_shape(t.a)->max_frames, 28);
        for (size_t n = 1; n <= COUNT(samples) - 1; n += 14 * AUDIO_HOP - 1) {
            sound_bytes wav = sound_wav16(samples, n, AUDIO_RATE);
            size_t multiple = padded ? 14 : 1;
            assert_int_equal(
                audio_prepare(&frames, &n_frames, t.a, wav.data, wav.size, "clip", &err), TACIT_OK);
            assert_int_equal(n_frames, audio_mel_frames(n, multiple));
            assert_true(!padded || n_frames % 14 == 0);
            assert_int_equal(audio_mel(&expected, plain, n, multiple, 6, &err), TACIT_OK);
            assert_memory_equal(frames, expected, n_frames * 6 * sizeof *frames);
            tacit_wipe_free(frames);
            tacit_wipe_free(expected);
            free(wav.data);
        }
        sound_bytes wav = sound_wav16(samples, COUNT(samples), AUDIO_RATE);
        assert_int_equal(audio_prepare(&frames, &n_frames, t.a, wav.data, wav.size, "clip", &err),
                         TACIT_BAD_INPUT);
        assert_non_null(strstr(err.message, "clip: 0.28 s of sound, "));
        assert_null(frames);
        free(wav.data);
        free_tower(&t);
    }
}

/* A padded file that allows less than one chunk could take no clip at all. */
static void test_padding_needs_room(void **state)
{
    (void)state;
    whisper_spec spec = small;
    gguf_writer *w = gguf_writer_new();
    tower t;
    tacit_error err = {0};
    spec.padded = true, spec.max_frames = 13;
    whisper_keys(w, &spec);
    whisper_tensors(w, &spec);
    expect_refusal(&t, load(&t, w, &err), &err, "one padded chunk");
    spec.max_frames = 30;
    t = make_tower(&spec);
    assert_int_equal(audio_get_shape(t.a)->max_frames, 28);
    free_tower(&t);
}

/* erf of libm in double; both ends, where the value is 0 and x, and everything between. */
static void test_gelu(void **state)
{
    (void)state;
    const size_t n = 24001;
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y), *dx = malloc(n * sizeof *dx);
    float *dy = malloc(n * sizeof *dy);
    for (size_t i = 0; i < n; i++) {
        x[i] = ((float)i - 12000) / 1000;
        dy[i] = whisper_uniform(5, (uint32_t)i);
        dx[i] = 0.5f;
    }
    ops_gelu_erf_forward(y, x, n);
    ops_gelu_erf_backward(dx, dy, x, n);
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i], expected = v * 0.5 * erfc(-v / sqrt(2));
        double slope = 0.5 * erfc(-v / sqrt(2)) + v * exp(-v * v / 2) / sqrt(2 * M_PI);
        if (!(fabs((double)y[i] - expected) <= (1e-6 + 6e-8 * v * v) * fabs(expected) + 1e-37))
            fail_msg("gelu(%g) = %.9g: expected %.9g", v, (double)y[i], expected);
        if (!(fabs((double)dx[i] - 0.5 - slope * (double)dy[i]) < 3e-7))
            fail_msg("gelu'(%g): expected %.9g", v, slope);
    }
    ops_gelu_erf_forward(x, x, n);
    assert_memory_equal(x, y, n * sizeof *x);
    free(x), free(y), free(dx), free(dy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_agree_with_the_reference),
        cmocka_unit_test(test_rows_of_quantized_towers),
        cmocka_unit_test(test_rows_of_a_large_tower),
        cmocka_unit_test(test_fast_rows),
        cmocka_unit_test(test_rows_and_gradients_agree_with_torch),
        cmocka_unit_test(test_gradients_agree_with_differences),
        cmocka_unit_test(test_bitwise_the_same),
        cmocka_unit_test(test_partial_gradients),
        cmocka_unit_test(test_stand_ins),
        cmocka_unit_test(test_numbers_of_rows),
        cmocka_unit_test(test_wrong_numbers_are_refused),
        cmocka_unit_test(test_attention_beyond_the_file_is_refused),
        cmocka_unit_test(test_every_tensor_is_needed),
        cmocka_unit_test(test_other_tensors_are_refused),
        cmocka_unit_test(test_other_kinds_are_named),
        cmocka_unit_test(test_passes_have_a_size),
        cmocka_unit_test(test_preparing),
        cmocka_unit_test(test_padding_needs_room),
        cmocka_unit_test(test_gelu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
