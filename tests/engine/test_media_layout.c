#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/media_frames.h"
#include "engine/media_layout.h"

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
    tacit_tokenizer *tokenizer;
    gguf_writer *w = gguf_writer_new();
    tiny_put_vocabulary(w);
    gguf_file *file = open_vocabulary(w, &bytes);
    assert_int_equal(tacit_tokenizer_load(&tokenizer, file, NULL), TACIT_OK);
    for (size_t i = 0; i < COUNT(layouts); i++) {
        char text[512];
        media_form form;
        media_layout l;
        assert_true(media_form_by_name(layouts[i].form, &form));
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
    assert_false(media_form_by_name("llava", &form));
    tacit_tokenizer_free(tokenizer);
    gguf_close(file);
    free(bytes);
}

static const struct {
    uint32_t preproc, width, height;
    media_form form;
    bool tiles;
    uint32_t rows, cols;
} grids[] = {
    {2048, 640, 480, MEDIA_FORM_MTMD, false, 3, 4}, /* the example of formats.md */
    {2048, 512, 512, MEDIA_FORM_MTMD_IK, false, 4, 4},
    {2048, 640, 480, MEDIA_FORM_HF, true, 3, 4},
    {2048, 640, 480, MEDIA_FORM_HF, false, 0, 0},
    {512, 100, 90, MEDIA_FORM_HF, true, 0, 0},
    {512, 100, 90, MEDIA_FORM_MTMD, false, 1, 1},
    {2048, 10000, 1, MEDIA_FORM_MTMD, false, 1, 4},
    {2048, 1, 10000, MEDIA_FORM_MTMD, false, 4, 1},
    {0, 640, 480, MEDIA_FORM_HF, true, 0, 0},
};

static void test_grids(void **state)
{
    (void)state;
    vision_shape s = {.image_size = 512};
    media_grid grid;
    for (size_t i = 0; i < COUNT(grids); i++) {
        s.preproc_size = grids[i].preproc;
        assert_int_equal(media_grid_for(&grid, &s, grids[i].form, grids[i].tiles, grids[i].width,
                                        grids[i].height, NULL),
                         TACIT_OK);
        assert_int_equal(grid.rows, grids[i].rows);
        assert_int_equal(grid.cols, grids[i].cols);
    }
    s.preproc_size = 0;
    assert_int_equal(media_grid_for(&grid, &s, MEDIA_FORM_MTMD, true, 8, 8, NULL), TACIT_BAD_INPUT);
    s.preproc_size = 16384;
    assert_int_equal(media_grid_for(&grid, &s, MEDIA_FORM_MTMD, true, 8, 8, NULL), TACIT_BAD_INPUT);
}

static void test_frames(void **state)
{
    (void)state;
    vision_shape s = {.image_size = 2, .preproc_size = 4, .rows = 1};
    uint8_t rgb[4 * 2 * 3];
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 11);
    tacit_image picture = {4, 2, rgb}, frame[3];
    const media_grid grid = {1, 2};
    assert_int_equal(media_frames_cut(frame, &picture, grid, &s, NULL), TACIT_OK);
    for (int tile = 0; tile < 2; tile++)
        for (int y = 0; y < 2; y++)
            assert_memory_equal(frame[tile].rgb + y * 6, rgb + (y * 4 + tile * 2) * 3, 6);
    assert_int_equal(frame[2].width, 2);
    assert_int_equal(frame[2].height, 2);
    for (int i = 0; i < 3; i++)
        tacit_image_free(&frame[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
