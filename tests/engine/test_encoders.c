/* Several encoders in one model: what a file says it is, what does not belong together, the base
 * digest, the rows and tokens of each medium, and the row cache over all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "common/log.h"
#include "common/secret.h"
#include "engine/example.h"
#include "engine/image.h"
#include "engine/model_parts.h"
#include "engine/row_cache.h"
#include "engine/sensor.h"
#include "engine/support.h"

#include "../golden/pictures_pillow.h"
#include "reference_sensor.h"
#include "tiny_model.h"

enum { WIDTH = 32 };

typedef struct fixture {
    tiny_model tiny;
    char sensor[96], csv[96], picture[96], other[96];
} fixture;

static void write_sensor(const char *path, uint32_t out, const char *begin, const char *end)
{
    sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F32, out);
    tacit_error err = {0};
    spec.begin = begin;
    spec.end = end;
    gguf_writer *w = gguf_writer_new();
    reference_put_sensor(w, &spec);
    if (gguf_write(w, path, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(tacit_file_write(path, text, strlen(text), 0600, NULL), TACIT_OK);
}

static int setup(void **state)
{
    static fixture f;
    tacit_log_init("test", TACIT_LOG_ERROR);
    f.tiny = tiny_load(true);
    snprintf(f.sensor, sizeof f.sensor, "%s/sensor.gguf", f.tiny.folder);
    snprintf(f.csv, sizeof f.csv, "%s/w.csv", f.tiny.folder);
    snprintf(f.picture, sizeof f.picture, "%s/p.jpg", f.tiny.folder);
    snprintf(f.other, sizeof f.other, "%s/other", f.tiny.folder);
    write_sensor(f.sensor, WIDTH, NULL, NULL);
    write_text(f.csv, "time,speed\n0,50\n0.9,60\n");
    if (tacit_file_write(f.picture, jpeg_plain, sizeof jpeg_plain, 0600, NULL) != TACIT_OK)
        return -1;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    unlink(f->sensor);
    unlink(f->csv);
    unlink(f->picture);
    unlink(f->other);
    tiny_free(&f->tiny);
    return 0;
}

static tacit_model *load(const fixture *f, const char *first, const char *second)
{
    const char *const mmproj[] = {first, second};
    tacit_model *m;
    tacit_error err = {0};
    if (tacit_model_load(&m, f->tiny.text, mmproj, 1 + (second != NULL), NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

static void expect_refusal(const fixture *f, const char *first, const char *second,
                           const char *about)
{
    const char *const mmproj[] = {first, second};
    tacit_model *m;
    tacit_error err = {0};
    assert_int_equal(tacit_model_load(&m, f->tiny.text, mmproj, 1 + (second != NULL), NULL, &err),
                     TACIT_BAD_INPUT);
    assert_null(m);
    if (!strstr(err.message, about))
        fail_msg("'%s' does not say '%s'", err.message, about);
}

/* SHA-256 over the files' digests in the order given. */
static void the_base_digest_covers_every_file(void **state)
{
    const fixture *f = *state;
    const char *const orders[][2] = {{f->tiny.vision, NULL},
                                     {f->sensor, NULL},
                                     {f->tiny.vision, f->sensor},
                                     {f->sensor, f->tiny.vision}};
    uint8_t seen[4][TACIT_DIGEST_BYTES];
    for (size_t i = 0; i < 4; i++) {
        uint8_t digest[3][TACIT_DIGEST_BYTES], expected[TACIT_DIGEST_BYTES];
        const tacit_span parts[] = {{digest[0], 32}, {digest[1], 32}, {digest[2], 32}};
        size_t n = 2 + (orders[i][1] != NULL);
        assert_int_equal(tacit_digest_file(digest[0], f->tiny.text, NULL), TACIT_OK);
        for (size_t k = 1; k < n; k++)
            assert_int_equal(tacit_digest_file(digest[k], orders[i][k - 1], NULL), TACIT_OK);
        tacit_digest_parts(expected, "tacit-base-1", parts, n);
        tacit_model *m = load(f, orders[i][0], orders[i][1]);
        memcpy(seen[i], tacit_model_base_digest(m), sizeof seen[i]);
        assert_memory_equal(seen[i], expected, sizeof expected);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(seen[i], seen[k], sizeof seen[i]);
        tacit_model_free(m);
    }
}

/* Names, authors and the like are for people: a file of the right width with others, as converters
 * of other hands write them, belongs. */
static void names_of_files_need_not_agree(void **state)
{
    const fixture *f = *state;
    static const char *const keys[] = {"general.name",         "general.basename",
                                       "general.organization", "general.finetune",
                                       "general.size_label",   "general.base_model.0.name"};
    sensor_spec spec = reference_sensor_spec(TACIT_TYPE_F32, WIDTH);
    gguf_writer *w = gguf_writer_new();
    tacit_error err = {0};
    reference_put_sensor(w, &spec);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        gguf_put_string(w, keys[i], "somebody else's", 15);
    gguf_put_u32(w, "general.quantization_version", 2);
    if (gguf_write(w, f->other, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    tacit_model_free(load(f, f->other, f->tiny.vision));
}

static void files_that_do_not_belong_together_are_refused(void **state)
{
    const fixture *f = *state;
    expect_refusal(f, f->sensor, f->sensor, "an encoder for sensor already");
    expect_refusal(f, f->tiny.vision, f->tiny.vision, "an encoder for image already");
    expect_refusal(f, f->tiny.text, NULL, "a text model goes to -m");
    write_sensor(f->other, WIDTH + 16, NULL, NULL);
    expect_refusal(f, f->other, NULL, "rows of 48 values, the text model takes 32");
    write_sensor(f->other, WIDTH - 16, NULL, NULL);
    expect_refusal(f, f->other, NULL, "rows of 16 values, the text model takes 32");
    write_sensor(f->other, WIDTH + 16, NULL, NULL);
    expect_refusal(f, f->tiny.vision, f->other, "different models");
    write_sensor(f->other, WIDTH, "<nowhere>", NULL);
    expect_refusal(f, f->other, NULL, "tacit.media_begin is '<nowhere>'");
    write_sensor(f->other, WIDTH, NULL, "two tokens");
    expect_refusal(f, f->other, NULL, "tacit.media_end is 'two tokens'");
    unlink(f->other);
}

static void write_clip(const char *path, const char *const *claims, size_t n)
{
    const uint64_t ne[] = {8};
    gguf_writer *w = gguf_writer_new();
    gguf_put_string(w, "general.architecture", "clip", 4);
    for (size_t i = 0; i < n; i++)
        gguf_put_bool(w, claims[i], true);
    reference_put(w, 0, "x", 1, ne, TACIT_TYPE_F32, 1, 0);
    assert_int_equal(gguf_write(w, path, NULL), TACIT_OK);
    gguf_writer_free(w);
}

static void a_file_says_what_it_is(void **state)
{
    const fixture *f = *state;
    static const char *const claims[] = {"clip.has_vision_encoder", "clip.has_audio_encoder"};
    write_clip(f->other, claims, 0);
    expect_refusal(f, f->other, NULL, "expected one of clip.has_vision_encoder");
    write_clip(f->other, claims, 1);
    expect_refusal(f, f->other, NULL, "clip.vision.image_size");
    write_clip(f->other, claims, 2);
    expect_refusal(f, f->other, NULL, "an encoder for image and one for audio");
    write_clip(f->other, claims + 1, 1);
    expect_refusal(f, f->other, NULL, "projector");
    unlink(f->other);
}

static void inspection_knows_the_kinds(void **state)
{
    const fixture *f = *state;
    const char *const paths[] = {f->tiny.vision, f->sensor};
    for (size_t i = 0; i < 2; i++) {
        gguf_file *file;
        support_gaps gaps;
        assert_int_equal(gguf_open(&file, paths[i], NULL), TACIT_OK);
        assert_string_equal(support_kind(file), "mmproj");
        assert_int_equal(support_find_gaps(&gaps, file, NULL), TACIT_OK);
        assert_int_equal(gaps.count, 0);
        support_gaps_free(&gaps);
        gguf_close(file);
    }
}

/* ---- examples ---- */

static tacit_status build(const tacit_model *m, tacit_content *content, size_t n,
                          const tacit_example_options *how, tacit_input *in, tacit_error *err)
{
    const tacit_message message = {TACIT_ROLE_USER, content, n};
    return tacit_example_prompt(in, m, &message, 1, how, err);
}

/* The tokens of special meaning, and 's' and 'i' for rows. */
static void spell(char *out, size_t size, const tacit_input *in)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < in->count && at < size; i++) {
        const tacit_row *r = &in->row[i];
        assert_int_equal(r->position, i);
        if (r->modality == TACIT_MODALITY_SENSOR)
            at += (size_t)snprintf(out + at, size - at, "s%d", (int)r->token);
        else if (r->modality == TACIT_MODALITY_IMAGE)
            at += (size_t)snprintf(out + at, size - at, "i");
        else if (r->token == TINY_SENSOR)
            at += (size_t)snprintf(out + at, size - at, "[");
        else if (r->token == TINY_SENSOR_END)
            at += (size_t)snprintf(out + at, size - at, "]");
        else if (r->token == TINY_IMAGE)
            at += (size_t)snprintf(out + at, size - at, "!");
    }
}

static void expect_spelling(const fixture *f, const char *begin, const char *end,
                            const char *expected)
{
    tacit_content content[] = {{TACIT_CONTENT_SENSOR, (char *)(uintptr_t)f->csv},
                               {TACIT_CONTENT_TEXT, (char *)(uintptr_t) "faster <sensor>?"}};
    char text[256];
    tacit_input in;
    tacit_error err = {0};
    write_sensor(f->other, WIDTH, begin, end);
    tacit_model *m = load(f, f->other, NULL);
    if (build(m, content, 2, NULL, &in, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    spell(text, sizeof text, &in);
    assert_string_equal(text, expected);
    tacit_input_free(&in);
    tacit_model_free(m);
    unlink(f->other);
}

/* The vocabulary's own markers, those of the file, none; a user's text never becomes one. */
static void markers_stand_around_a_window(void **state)
{
    expect_spelling(*state, NULL, NULL, "[s0s1s2]");
    expect_spelling(*state, "<image>", NULL, "!s0s1s2]");
    expect_spelling(*state, "", "", "s0s1s2");
}

static void media_of_two_kinds_in_one_turn(void **state)
{
    const fixture *f = *state;
    tacit_content content[] = {{TACIT_CONTENT_SENSOR, (char *)(uintptr_t)f->csv},
                               {TACIT_CONTENT_IMAGE, (char *)(uintptr_t)f->picture},
                               {TACIT_CONTENT_TEXT, (char *)(uintptr_t) "?"},
                               {TACIT_CONTENT_SENSOR, (char *)(uintptr_t)f->csv}};
    char text[256];
    tacit_model *m = load(f, f->tiny.vision, f->sensor);
    tacit_input in;
    tacit_error err = {0};
    if (build(m, content, 4, NULL, &in, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    spell(text, sizeof text, &in);
    assert_string_equal(text, "[s0s1s2]iiiiiiiii[s0s1s2]");
    assert_int_equal(in.n_media, 2); /* the same window twice is one */
    assert_int_equal(in.media[0].modality, TACIT_MODALITY_SENSOR);
    assert_int_equal(in.media[0].dim[1], 3);
    assert_true(fabs(in.media[0].row_seconds - 0.4) < 1e-12 && in.media[0].start == 0);
    assert_int_equal(in.media[1].modality, TACIT_MODALITY_IMAGE);
    assert_true(in.media[1].row_seconds == 0);
    tacit_input_free(&in);
    for (size_t most = 1; most < 30; most++) {
        const tacit_example_options how = {.max_rows = most};
        assert_int_equal(build(m, content, 4, &how, &in, &err), TACIT_BAD_INPUT);
        assert_null(in.media);
    }
    tacit_model_free(m);
}

static void a_medium_needs_its_encoder(void **state)
{
    const fixture *f = *state;
    tacit_content sensor = {TACIT_CONTENT_SENSOR, (char *)(uintptr_t)f->csv};
    tacit_content picture = {TACIT_CONTENT_IMAGE, (char *)(uintptr_t)f->picture};
    tacit_content sound = {TACIT_CONTENT_AUDIO, (char *)(uintptr_t)f->csv};
    tacit_input in;
    tacit_error err = {0};
    assert_int_equal(build(f->tiny.model, &sensor, 1, NULL, &in, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "w.csv: the model has no sensor encoder"));
    assert_non_null(strstr(err.message, "--mmproj"));
    assert_int_equal(build(f->tiny.model, &sound, 1, NULL, &in, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "the model has no audio encoder"));
    tacit_model *m = load(f, f->sensor, NULL);
    assert_int_equal(build(m, &picture, 1, NULL, &in, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "no image encoder"));
    sensor.text = (char *)(uintptr_t)f->picture; /* a picture is no CSV */
    assert_int_equal(build(m, &sensor, 1, NULL, &in, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "p.jpg"));
    tacit_model_free(m);
}

/* Other constants, other values: the digest sees media bytes and preprocessing. */
static void digests_follow_the_preprocessing(void **state)
{
    const fixture *f = *state;
    static const char *const texts[] = {"time,speed\n0,50\n0.9,60\n", "t,speed\n0,50\n0.9,60",
                                        "time,speed\n0,50\n0.9,61\n", "time,rpm\n0,50\n0.9,60\n",
                                        "time,speed\n5,50\n5.9,60\n"};
    uint8_t digest[5][32];
    tacit_model *m = load(f, f->sensor, NULL);
    tacit_content content = {TACIT_CONTENT_SENSOR, (char *)(uintptr_t)f->other};
    for (size_t i = 0; i < 5; i++) {
        tacit_input in;
        write_text(f->other, texts[i]);
        assert_int_equal(build(m, &content, 1, NULL, &in, NULL), TACIT_OK);
        memcpy(digest[i], in.media[0].digest, 32);
        tacit_input_free(&in);
    }
    assert_memory_equal(digest[0], digest[1], 32); /* the same readings, spelled otherwise */
    for (size_t i = 2; i < 5; i++)
        assert_memory_not_equal(digest[0], digest[i], 32);
    tacit_model_free(m);
    unlink(f->other);
}

/* ---- the row cache ---- */

/* A picture's nine rows and a window's three. */
static tacit_input both_media(const fixture *f, const tacit_model *m)
{
    tacit_content content[] = {{TACIT_CONTENT_SENSOR, (char *)(uintptr_t)f->csv},
                               {TACIT_CONTENT_IMAGE, (char *)(uintptr_t)f->picture}};
    tacit_input in;
    tacit_error err = {0};
    if (build(m, content, 2, NULL, &in, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return in;
}

/* Rows of the window by the twin in double, of the picture by the tower itself. */
static void expect_rows(const tacit_model *m, const tacit_input *prepared, const tacit_input *in)
{
    const tacit_sensor *s = model_encoder_of(m, TACIT_MODALITY_SENSOR)->self;
    double *tensors[5], expected[3 * WIDTH];
    float picture[9 * WIDTH];
    vision_pass *pass;
    const float *pixels = prepared->media[1].values;
    for (size_t i = 0; i < 5; i++) {
        const encoder_tensor *t = sensor_tensor_at(s, i);
        tensors[i] = malloc(t->rows * t->cols * sizeof(double));
        for (size_t k = 0; k < t->rows * t->cols; k++)
            tensors[i][k] = (double)((const float *)(const void *)t->data->data)[k];
    }
    reference_sensor(sensor_get_shape(s), tensors, prepared->media[0].values, 3, expected);
    for (size_t i = 0; i < 3 * WIDTH; i++)
        assert_true(fabs((double)in->media[0].rows[i] - expected[i]) < 1e-4);
    assert_int_equal(vision_pass_new(&pass, model_vision(m), 1, PASS_EXACT, NULL, NULL), TACIT_OK);
    vision_forward(pass, NULL, &pixels, 1, picture);
    assert_memory_equal(in->media[1].rows, picture, sizeof picture);
    vision_pass_free(pass);
    for (size_t i = 0; i < 5; i++)
        free(tensors[i]);
}

static void rows_of_each_kind_are_cached(void **state)
{
    const fixture *f = *state;
    tacit_model *m = load(f, f->sensor, f->tiny.vision);
    tacit_input prepared = both_media(f, m);
    for (int round = 0; round < 2; round++) {
        tacit_row_cache *c;
        tacit_input in = both_media(f, m);
        tacit_error err = {0};
        assert_int_equal(tacit_row_cache_new(&c, m, 1 << 20, f->other, NULL, &err), TACIT_OK);
        if (tacit_row_cache_fill(c, &in, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        expect_rows(m, &prepared, &in);
        tacit_row_cache_stats stats = tacit_row_cache_get_stats(c);
        assert_int_equal(stats.encoded, round == 0 ? 2 : 0);
        assert_int_equal(stats.hits, round == 0 ? 0 : 2);
        assert_int_equal(stats.bytes, (3 + 9) * WIDTH * sizeof(float));
        tacit_input_free(&in);
        tacit_row_cache_free(c);
    }
    tacit_input_free(&prepared);
    tacit_model_free(m);
    unlink(f->other);
}

/* Room for the window alone: the picture pushes it out and is not held itself. */
static void memory_counts_rows_as_they_are(void **state)
{
    const fixture *f = *state;
    tacit_model *m = load(f, f->sensor, f->tiny.vision);
    tacit_row_cache *c;
    tacit_input in = both_media(f, m);
    assert_int_equal(tacit_row_cache_new(&c, m, 4 * WIDTH * sizeof(float), NULL, NULL, NULL),
                     TACIT_OK);
    assert_int_equal(tacit_row_cache_fill(c, &in, NULL), TACIT_OK);
    assert_int_equal(tacit_row_cache_get_stats(c).bytes, 3 * WIDTH * sizeof(float));
    tacit_input_free(&in);
    tacit_row_cache_free(c);
    tacit_model_free(m);
}

static void media_that_do_not_fit_are_refused(void **state)
{
    const fixture *f = *state;
    tacit_model *m = load(f, f->sensor, f->tiny.vision);
    tacit_row_cache *c;
    tacit_error err = {0};
    tacit_input in = both_media(f, m);
    assert_int_equal(tacit_row_cache_new(&c, m, 0, NULL, NULL, NULL), TACIT_OK);
    in.media[0].dim[2]++;
    assert_int_equal(tacit_row_cache_fill(c, &in, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "patches of 24 values"));
    in.media[0].dim[2]--;
    in.media[0].modality = TACIT_MODALITY_IMAGE; /* a window as a picture */
    assert_int_equal(tacit_row_cache_fill(c, &in, &err), TACIT_BAD_INPUT);
    in.media[0].modality = 99;
    assert_int_equal(tacit_row_cache_fill(c, &in, &err), TACIT_BAD_INPUT);
    tacit_input_free(&in);
    tacit_row_cache_free(c);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_base_digest_covers_every_file),
        cmocka_unit_test(names_of_files_need_not_agree),
        cmocka_unit_test(files_that_do_not_belong_together_are_refused),
        cmocka_unit_test(a_file_says_what_it_is),
        cmocka_unit_test(inspection_knows_the_kinds),
        cmocka_unit_test(markers_stand_around_a_window),
        cmocka_unit_test(media_of_two_kinds_in_one_turn),
        cmocka_unit_test(a_medium_needs_its_encoder),
        cmocka_unit_test(digests_follow_the_preprocessing),
        cmocka_unit_test(rows_of_each_kind_are_cached),
        cmocka_unit_test(memory_counts_rows_as_they_are),
        cmocka_unit_test(media_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
