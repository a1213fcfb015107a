#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/media_frames.h"
#include "engine/media_layout.h"

#include "../golden/processor_frames.h"
#include "tiny_model.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static gguf_file *open_vocabulary(gguf_writer *w, uint8_t **bytes)
{
    gguf_file *file;
    size_t size;
    assert_int_equal(gguf_write_memory(w, bytes, &size, NULL), TACIT_OK);
    assert_int_equal(gguf_open_memory(&file, *bytes, size, "vocabulary", NULL), TACIT_OK);
    gguf_writer_free(w);
    return file;
}

/* F for the fake token, frames as numbers. */
static void spell(char *out, size_t size, const media_layout *l)
{
    size_t at = 0;
    for (size_t i = 0; i < l->count; i++) {
        int32_t t = l->step[i].token;
        if (l->step[i].frame >= 0)
            at += (size_t)snprintf(out + at, size - at, "[%d]", l->step[i].frame);
        else if (t == TINY_AROUND)
            at += (size_t)snprintf(out + at, size - at, "F");
        else if (t == TINY_GLOBAL)
            at += (size_t)snprintf(out + at, size - at, "G");
        else if (t >= TINY_TILES)
            at += (size_t)snprintf(out + at, size - at, "%d,%d", (t - TINY_TILES) / 4 + 1,
                                   (t - TINY_TILES) % 4 + 1);
        else
            at += (size_t)snprintf(out + at, size - at, "%s", t == TINY_BLANK_LINE ? "\n\n" : "\n");
    }
}

static tacit_tokenizer *open_tokenizer(gguf_file **file, uint8_t **bytes)
{
    tacit_tokenizer *tokenizer;
    gguf_writer *w = gguf_writer_new();
    tiny_put_vocabulary(w);
    *file = open_vocabulary(w, bytes);
    assert_int_equal(tacit_tokenizer_load(&tokenizer, *file, NULL), TACIT_OK);
    return tokenizer;
}

static const struct {
    const char *form;
    uint32_t rows, cols;
    size_t frames;
    const char *expected;
} layouts[] = {
    {"hf", 0, 0, 1, "FG[0]F"},
    {"hf", 2, 2, 5, "F1,1[0]F1,2[1]\nF2,1[2]F2,2[3]\n\nFG[4]F"},
    {"hf", 1, 3, 4, "F1,1[0]F1,2[1]F1,3[2]\n\nFG[3]F"},
    {"mtmd", 1, 1, 2, "F1,1[0]\n\nFG[1]F"},
    {"mtmd", 2, 1, 3, "F1,1[0]\nF2,1[1]\n\nFG[2]F"},
    {"mtmd-ik", 1, 1, 2, "FF1,1[0]\nFG[1]F"},
    {"mtmd-ik", 2, 2, 5, "FF1,1[0]F1,2[1]\nF2,1[2]F2,2[3]\nFG[4]F"},
};

static void test_forms(void **state)
{
    (void)state;
    uint8_t *bytes;
    gguf_file *file;
    tacit_tokenizer *tokenizer = open_tokenizer(&file, &bytes);
    for (size_t i = 0; i < COUNT(layouts); i++) {
        char text[512];
        media_form form;
        media_layout l;
        assert_int_equal(media_form_choose(&form, layouts[i].form, NULL), TACIT_OK);
        assert_int_equal(
            media_layout_make(&l, tokenizer, form, layouts[i].rows, layouts[i].cols, NULL),
            TACIT_OK);
        spell(text, sizeof text, &l);
        assert_string_equal(text, layouts[i].expected);
        assert_int_equal(l.frames, layouts[i].frames);
        media_layout_free(&l);
    }
    media_layout l;
    tacit_error err = {0};
    const uint32_t bad[][2] = {{0, 1}, {1, 0}, {9, 1}, {1, 9}};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(
            media_layout_make(&l, tokenizer, MEDIA_FORM_HF, bad[i][0], bad[i][1], &err),
            TACIT_USAGE);
    assert_int_equal(media_layout_make(&l, tokenizer, MEDIA_FORM_MTMD, 0, 0, &err), TACIT_USAGE);
    assert_int_equal(media_layout_make(&l, tokenizer, MEDIA_FORM_HF, 1, 5, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "<row_1_col_5>"));
    media_form form;
    assert_int_equal(media_form_choose(&form, "llava", &err), TACIT_USAGE);
    assert_non_null(strstr(err.message, "mtmd-ik"));
    assert_int_equal(media_form_choose(&form, NULL, NULL), TACIT_OK);
    assert_int_equal(form, MEDIA_FORM_HF);
    tacit_tokenizer_free(tokenizer);
    gguf_close(file);
    free(bytes);
}

static const struct {
    uint32_t preproc, width, height;
    media_form form;
    uint32_t rows, cols;
} grids[] = {
    {2048, 640, 480, MEDIA_FORM_MTMD, 3, 4}, /* the example of formats.md */
    {2048, 512, 512, MEDIA_FORM_MTMD_IK, 4, 4},  {2048, 640, 480, MEDIA_FORM_HF, 3, 4},
    {2048, 640, 480, MEDIA_FORM_HF_FRAME, 0, 0}, {512, 100, 90, MEDIA_FORM_HF, 0, 0},
    {512, 100, 90, MEDIA_FORM_MTMD, 1, 1},       {2048, 10000, 1, MEDIA_FORM_MTMD, 1, 4},
    {2048, 1, 10000, MEDIA_FORM_MTMD, 4, 1},     {0, 640, 480, MEDIA_FORM_HF, 0, 0},
};

static void test_grids(void **state)
{
    (void)state;
    vision_shape s = {.image_size = 512};
    media_grid grid;
    for (size_t i = 0; i < COUNT(grids); i++) {
        s.preproc_size = grids[i].preproc;
        assert_int_equal(
            media_grid_for(&grid, &s, grids[i].form, grids[i].width, grids[i].height, NULL),
            TACIT_OK);
        assert_int_equal(grid.rows, grids[i].rows);
        assert_int_equal(grid.cols, grids[i].cols);
    }
    s.preproc_size = 0;
    assert_int_equal(media_grid_for(&grid, &s, MEDIA_FORM_MTMD, 8, 8, NULL), TACIT_BAD_INPUT);
    s.preproc_size = 16384;
    assert_int_equal(media_grid_for(&grid, &s, MEDIA_FORM_MTMD, 8, 8, NULL), TACIT_BAD_INPUT);
}

static void test_frames(void **state)
{
    (void)state;
    vision_shape s = {.image_size = 2, .preproc_size = 4, .rows = 1};
    uint8_t rgb[4 * 2 * 3];
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 11);
    tacit_image picture = {4, 2, rgb}, frame[3];
    const media_grid grid = {.rows = 1, .cols = 2};
    assert_int_equal(media_frames_cut(frame, &picture, grid, &s, NULL), TACIT_OK);
    for (int tile = 0; tile < 2; tile++)
        for (int y = 0; y < 2; y++)
            assert_memory_equal(frame[tile].rgb + y * 6, rgb + (y * 4 + tile * 2) * 3, 6);
    assert_int_equal(frame[2].width, 2);
    assert_int_equal(frame[2].height, 2);
    for (int i = 0; i < 3; i++)
        tacit_image_free(&frame[i]);
}

/* ---- against Hugging Face's processors ---- */

static vision_shape smolvlm_shape(uint32_t tile, uint32_t longest)
{
    return (vision_shape){.image_size = tile, .preproc_size = longest, .rows = 1};
}

static vision_shape onevision_shape(uint32_t tile, uint32_t grid, uint32_t sizes)
{
    vision_shape s = {.image_size = tile, .grid = grid, .patches = grid * grid, .out_width = 1};
    s.rows = s.patches;
    s.cut = VISION_CUT_ANYRES;
    s.newline = true;
    s.max_tiles = 9;
    for (uint32_t h = 1; h <= sizes; h++)
        for (uint32_t w = 1; w <= sizes; w++) {
            s.pinpoint[s.pinpoints][0] = w * tile;
            s.pinpoint[s.pinpoints++][1] = h * tile;
        }
    for (int c = 0; c < 3; c++)
        s.mean[c] = s.std[c] = 0.5f;
    return s;
}

static void test_smolvlm_sequences(void **state)
{
    (void)state;
    const vision_shape s = smolvlm_shape(512, 2048);
    uint8_t *bytes;
    gguf_file *file;
    tacit_tokenizer *tokenizer = open_tokenizer(&file, &bytes);
    assert_true(COUNT(smolvlm) >= 30);
    for (size_t i = 0; i < COUNT(smolvlm); i++) {
        char text[512];
        media_grid grid;
        media_layout l;
        assert_int_equal(
            media_grid_for(&grid, &s, MEDIA_FORM_HF, smolvlm[i].width, smolvlm[i].height, NULL),
            TACIT_OK);
        if (grid.rows != smolvlm[i].rows || grid.cols != smolvlm[i].cols)
            fail_msg("%u x %u: %u x %u tiles, expected %u x %u", smolvlm[i].width,
                     smolvlm[i].height, grid.rows, grid.cols, smolvlm[i].rows, smolvlm[i].cols);
        assert_int_equal(
            media_layout_make(&l, tokenizer, MEDIA_FORM_HF, grid.rows, grid.cols, NULL), TACIT_OK);
        spell(text, sizeof text, &l);
        assert_string_equal(text, smolvlm[i].sequence);
        media_layout_free(&l);
    }
    tacit_tokenizer_free(tokenizer);
    gguf_close(file);
    free(bytes);
}

static void test_onevision_counts(void **state)
{
    (void)state;
    const vision_shape s = onevision_shape(384, 27, 6);
    for (size_t i = 0; i < COUNT(onevision); i++) {
        vision_arrangement a;
        vision_arrange(&a, &s, onevision[i].width, onevision[i].height);
        if (a.grid_rows != onevision[i].rows || a.grid_cols != onevision[i].cols ||
            a.total != onevision[i].total)
            fail_msg("%u x %u: %u x %u tiles, %zu rows; expected %u x %u, %u", onevision[i].width,
                     onevision[i].height, a.grid_rows, a.grid_cols, a.total, onevision[i].rows,
                     onevision[i].cols, onevision[i].total);
    }
}

/* The pattern of make_pictures.py. */
static tacit_image pattern(uint32_t width, uint32_t height)
{
    tacit_image image = {width, height, malloc((size_t)width * height * 3)};
    assert_non_null(image.rgb);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < 3; c++)
                image.rgb[((size_t)y * width + x) * 3 + c] =
                    (uint8_t)(x * 37 + y * 101 + c * 59 + x * y * 7);
    return image;
}

/* How the processor of a kind cuts a picture. */
typedef size_t (*cutter)(tacit_image *frame, const tacit_image *picture, const vision_shape *s);

static size_t cut_smolvlm(tacit_image *frame, const tacit_image *picture, const vision_shape *s)
{
    media_grid grid;
    assert_int_equal(media_grid_for(&grid, s, MEDIA_FORM_HF, picture->width, picture->height, NULL),
                     TACIT_OK);
    assert_int_equal(media_frames_cut(frame, picture, grid, s, NULL), TACIT_OK);
    return (size_t)grid.rows * grid.cols + 1;
}

static size_t cut_onevision(tacit_image *frame, const tacit_image *picture, const vision_shape *s)
{
    vision_arrangement a;
    vision_arrange(&a, s, picture->width, picture->height);
    assert_int_equal(media_frames_arranged(frame, picture, &a, s, NULL), TACIT_OK);
    return a.frames;
}

static size_t cut_padded(tacit_image *frame, const tacit_image *picture, const vision_shape *s)
{
    assert_int_equal(media_frame_padded(frame, picture, s, NULL), TACIT_OK);
    return 1;
}

static void check_pixels(const processed *expected, size_t count, cutter cut, const vision_shape *s)
{
    for (size_t i = 0; i < count; i++) {
        tacit_image picture = pattern(expected[i].width, expected[i].height);
        tacit_image frame[MEDIA_MAX_FRAMES];
        size_t n = cut(frame, &picture, s), values = (size_t)s->image_size * s->image_size * 3;
        assert_int_equal(n, expected[i].frames);
        for (size_t f = 0; f < n; f++) {
            for (size_t p = 0; p < values; p++)
                if (abs(frame[f].rgb[p] - expected[i].rgb[f * values + p]) > 1)
                    fail_msg("%u x %u, frame %zu: value %zu is %d, the processor has %d",
                             expected[i].width, expected[i].height, f, p, frame[f].rgb[p],
                             expected[i].rgb[f * values + p]);
            tacit_image_free(&frame[f]);
        }
        tacit_image_free(&picture);
    }
}

static vision_shape padded_shape(uint32_t size)
{
    vision_shape s = {.image_size = size, .mean = {0.48145466f, 0.4578275f, 0.40821073f}};
    s.std[0] = s.std[1] = s.std[2] = 0.27f;
    s.cut = VISION_CUT_PAD;
    s.rows = 1;
    return s;
}

static void test_pixels_of_frames(void **state)
{
    (void)state;
    const vision_shape tiles = smolvlm_shape(8, 24), anyres = onevision_shape(8, 2, 3);
    const vision_shape pad = padded_shape(8);
    check_pixels(small_smolvlm, COUNT(small_smolvlm), cut_smolvlm, &tiles);
    check_pixels(small_onevision, COUNT(small_onevision), cut_onevision, &anyres);
    check_pixels(small_padded, COUNT(small_padded), cut_padded, &pad);
}

/* The whole of a picture for an mlp tower: planes behind each other. */
static void test_whole_pictures(void **state)
{
    (void)state;
    const vision_shape s = onevision_shape(8, 2, 3);
    tacit_image picture = pattern(20, 9), frame[MEDIA_MAX_FRAMES];
    tacit_media alone, among;
    size_t n = cut_onevision(frame, &picture, &s), plane = 8 * 8;
    assert_int_equal(media_prepare_picture(&alone, &picture, &s, true, NULL), TACIT_OK);
    assert_int_equal(media_prepare_picture(&among, &picture, &s, false, NULL), TACIT_OK);
    assert_int_equal(alone.dim[0], 3 * n);
    assert_int_equal(alone.extent[0], 20);
    assert_int_equal(alone.extent[1], 9);
    for (size_t f = 0; f < n; f++) {
        for (size_t i = 0; i < 3 * plane; i++) {
            float v = (float)frame[f].rgb[i % plane * 3 + i / plane] / 255.0f;
            assert_true(fabsf(alone.values[f * 3 * plane + i] - (v - 0.5f) / 0.5f) < 1e-6f);
        }
        tacit_image_free(&frame[f]);
    }
    assert_int_equal(among.dim[0], 3);
    assert_int_equal(among.extent[0], 0);
    assert_int_equal(among.n_rows, s.rows + 1);
    assert_memory_not_equal(alone.digest, among.digest, sizeof alone.digest);
    free(alone.values), free(among.values);
    tacit_image_free(&picture);
}

static void key_of_black(uint8_t key[32], uint32_t width, uint32_t height, const vision_shape *s)
{
    tacit_image picture = {width, height, calloc(height, (size_t)width * 3)};
    tacit_media media;
    assert_int_equal(media_prepare_picture(&media, &picture, s, true, NULL), TACIT_OK);
    memcpy(key, media.digest, sizeof media.digest);
    free(media.values);
    tacit_image_free(&picture);
}

/* Keys of caches tell apart what is read otherwise though its frames are the same bytes: pictures
 * of other extent, other means and deviations. */
static void test_keys_of_pictures(void **state)
{
    (void)state;
    vision_shape s = onevision_shape(8, 2, 3);
    uint8_t key[32], other[32];
    key_of_black(key, 20, 9, &s);
    key_of_black(other, 20, 9, &s);
    assert_memory_equal(key, other, sizeof key);
    key_of_black(other, 20, 10, &s);
    assert_memory_not_equal(key, other, sizeof key);
    for (int c = 0; c < 3; c++) {
        vision_shape mean = s, std = s;
        mean.mean[c] += 0.125f;
        std.std[c] += 0.125f;
        key_of_black(other, 20, 9, &mean);
        assert_memory_not_equal(key, other, sizeof key);
        key_of_black(other, 20, 9, &std);
        assert_memory_not_equal(key, other, sizeof key);
    }
}

/* LLaVA-NeXT's processors, its authors' and Hugging Face's, ask no picture whether it is alone. */
static void test_pictures_of_llava_next(void **state)
{
    (void)state;
    vision_shape s = onevision_shape(8, 2, 3);
    tacit_image picture = pattern(20, 9);
    tacit_media alone, among;
    vision_arrangement a;
    s.max_tiles = 0;
    vision_arrange(&a, &s, 20, 9);
    assert_int_equal(media_prepare_picture(&alone, &picture, &s, true, NULL), TACIT_OK);
    assert_int_equal(media_prepare_picture(&among, &picture, &s, false, NULL), TACIT_OK);
    assert_true(a.frames > 2);
    assert_int_equal(among.dim[0], 3 * a.frames);
    assert_int_equal(among.extent[0], 20);
    assert_int_equal(among.extent[1], 9);
    assert_int_equal(among.n_rows, a.total);
    assert_memory_equal(alone.digest, among.digest, sizeof alone.digest);
    free(alone.values), free(among.values);
    tacit_image_free(&picture);
}

/* Extreme shapes stay within memory that a frame is worth. */
static void test_extreme_pictures(void **state)
{
    (void)state;
    const vision_shape anyres = onevision_shape(384, 27, 6), pad = padded_shape(336);
    const vision_shape tiles = smolvlm_shape(512, 2048);
    const uint32_t sizes[][2] = {{16384, 1}, {1, 4096}, {1, 1}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        tacit_image picture = pattern(sizes[i][0], sizes[i][1]), frame[MEDIA_MAX_FRAMES];
        const vision_shape *shape[] = {&tiles, &anyres, &pad};
        const cutter cut[] = {cut_smolvlm, cut_onevision, cut_padded};
        for (size_t c = 0; c < COUNT(cut); c++) {
            size_t n = cut[c](frame, &picture, shape[c]);
            assert_in_range(n, 1, MEDIA_MAX_FRAMES);
            for (size_t f = 0; f < n; f++) {
                assert_int_equal(frame[f].width, shape[c]->image_size);
                assert_int_equal(frame[f].height, shape[c]->image_size);
                tacit_image_free(&frame[f]);
            }
        }
        tacit_image_free(&picture);
    }
}

/* Writes what a picture of the pattern becomes: a line of numbers and the tokens, then pixels. */
static int print_frames(const char *family, uint32_t width, uint32_t height)
{
    tacit_image picture = pattern(width, height), frame[MEDIA_MAX_FRAMES];
    vision_shape s = smolvlm_shape(512, 2048);
    size_t n = 0, total = 0;
    if (strcmp(family, "onevision") == 0) {
        vision_arrangement a;
        s = onevision_shape(384, 27, 6);
        vision_arrange(&a, &s, width, height);
        total = a.total;
        n = cut_onevision(frame, &picture, &s);
        printf("%u %u %zu %u %u\n", a.grid_rows, a.grid_cols, total, a.out_rows, a.out_cols);
    } else if (strcmp(family, "llava") == 0) {
        s = padded_shape(336);
        n = cut_padded(frame, &picture, &s);
        printf("0 0 576\n");
    } else {
        media_grid grid;
        assert_int_equal(media_grid_for(&grid, &s, MEDIA_FORM_HF, width, height, NULL), TACIT_OK);
        n = cut_smolvlm(frame, &picture, &s);
        printf("%u %u\n", grid.rows, grid.cols);
    }
    for (size_t f = 0; f < n; f++) {
        fwrite(frame[f].rgb, 3, (size_t)s.image_size * s.image_size, stdout);
        tacit_image_free(&frame[f]);
    }
    tacit_image_free(&picture);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_smolvlm_sequences),
        cmocka_unit_test(test_onevision_counts),
        cmocka_unit_test(test_pixels_of_frames),
        cmocka_unit_test(test_keys_of_pictures),
        cmocka_unit_test(test_whole_pictures),
        cmocka_unit_test(test_pictures_of_llava_next),
        cmocka_unit_test(test_extreme_pictures),
    };
    if (argc == 5 && strcmp(argv[1], "frames") == 0)
        return print_frames(argv[2], (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
