#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/file.h"
#include "engine/example.h"
#include "engine/image.h"
#include "engine/model_parts.h"

#include "tiny_model.h"

#include "../golden/pictures_pillow.h"

/* Pictures by name from the golden ones. */
static tacit_status golden_read(void *ctx, const char *path, uint8_t **data, size_t *size,
                                tacit_error *err)
{
    (void)ctx;
    for (size_t i = 0; i < sizeof pictures / sizeof pictures[0]; i++) {
        if (strcmp(pictures[i].name, path) != 0)
            continue;
        *size = pictures[i].size;
        *data = malloc(*size);
        memcpy(*data, pictures[i].data, *size);
        return TACIT_OK;
    }
    return tacit_fail(err, TACIT_NOT_FOUND, "%s: no such picture", path);
}

static const tacit_media_source golden_source = {NULL, golden_read};

/* Rows as text: tokens by their bytes, picture rows as '.', trained ones marked by '^' before. */
static void spell(char *out, size_t size, const tacit_model *model, const tacit_input *in)
{
    size_t at = 0;
    for (size_t i = 0; i < in->count; i++) {
        tacit_buffer text = {0};
        if (in->row[i].modality == TACIT_MODALITY_TOKEN)
            assert_int_equal(
                tacit_detokenize(tacit_model_tokenizer(model), in->row[i].token, true, &text, NULL),
                TACIT_OK);
        else
            assert_int_equal(tacit_buffer_append(&text, ".", 1), TACIT_OK);
        at += (size_t)snprintf(out + at, size - at, "%s%.*s", in->row[i].trained ? "^" : "",
                               (int)text.size, (const char *)text.data);
        tacit_buffer_free(&text);
        assert_int_equal(in->row[i].position, i);
    }
}

static tacit_record parse(const char *line)
{
    tacit_record r;
    tacit_error err = {0};
    if (tacit_record_parse(&r, line, strlen(line), "", &err) != TACIT_OK)
        fail_msg("%s", err.message);
    /* Names in place of paths. */
    for (size_t m = 0; m < r.n_messages; m++)
        for (size_t c = 0; c < r.message[m].n_content; c++)
            if (r.message[m].content[c].kind == TACIT_CONTENT_IMAGE) {
                char *name = strrchr(r.message[m].content[c].text, '/');
                if (name)
                    memmove(r.message[m].content[c].text, name + 1, strlen(name));
            }
    return r;
}

static void test_text(void **state)
{
    tiny_model *t = *state;
    tacit_record r = parse("{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
                           "{\"role\":\"assistant\",\"content\":\"72\"},"
                           "{\"role\":\"user\",\"content\":\"so\"},"
                           "{\"role\":\"assistant\",\"content\":\"ok\"}]}");
    tacit_input in;
    tacit_error err = {0};
    char text[1024];
    if (tacit_example_build(&in, t->model, &r, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    spell(text, sizeof text, t->model, &in);
    assert_string_equal(text, "<|im_start|>User: hi<end_of_utterance>\n"
                              "Assistant:^ ^7^2^<end_of_utterance>\n"
                              "User: so<end_of_utterance>\n"
                              "Assistant:^ ^o^k^<end_of_utterance>\n");
    tacit_input_free(&in);
    assert_int_equal(tacit_example_prompt(&in, t->model, r.message, 1, NULL, NULL), TACIT_OK);
    spell(text, sizeof text, t->model, &in);
    assert_string_equal(text, "<|im_start|>User: hi<end_of_utterance>\nAssistant:");
    tacit_input_free(&in);
    tacit_record_free(&r);
}

/* Height and width of the picture below, in rows. */
static uint32_t grid_size[2];

/* A picture that stands in rows and columns, as the encoder of another family may lay it out. */
static tacit_status lay_out_grid(const void *self, const media_request *request,
                                 const media_sink *sink, tacit_error *err)
{
    (void)self, (void)request, (void)err;
    tacit_media media = {.modality = TACIT_MODALITY_IMAGE,
                         .dim = {1, 1, 1},
                         .grid = {grid_size[0], grid_size[1]},
                         .together = true,
                         .n_rows = 6};
    media.values = calloc(1, sizeof *media.values);
    return sink->media(sink->ctx, &media);
}

/* Rows of a picture at one time, in rows and columns; what follows behind all of them (the example
 * of arXiv 2409.12191, section 2.1). Each picture is a mask group. */
static void check_rows_of_a_grid(tiny_model *t, uint32_t height, uint32_t width)
{
    encoder_kind grid = *t->model->encoder[0].kind;
    const encoder_kind *own = t->model->encoder[0].kind;
    tacit_record r = parse("{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":["
                           "{\"type\":\"image\",\"image\":\"png_grey\"},"
                           "{\"type\":\"image\",\"image\":\"png_grey\"},"
                           "{\"type\":\"text\",\"text\":\"hi\"}]},"
                           "{\"role\":\"assistant\",\"content\":\"7\"}]}");
    const tacit_example_options options = {.source = &golden_source};
    tacit_input in;
    tacit_error err = {0};
    uint32_t next = 0, pictures_seen = 0;
    grid_size[0] = height, grid_size[1] = width;
    grid.lay_out = lay_out_grid;
    t->model->encoder[0].kind = &grid;
    tacit_status status = tacit_example_prompt(&in, t->model, r.message, 1, &options, &err);
    t->model->encoder[0].kind = own;
    if (status != TACIT_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < in.count; i++) {
        const tacit_row *row = &in.row[i];
        if (row->modality == TACIT_MODALITY_TOKEN) {
            assert_int_equal(row->position, next++);
            assert_int_equal(row->group, 0);
            assert_true(row->shift[0] == 0 && row->shift[1] == 0 && row->shift[2] == 0);
            continue;
        }
        pictures_seen += row->token == 0;
        assert_int_equal(row->position, next);
        assert_int_equal(row->shift[0], row->token / (int32_t)width);
        assert_int_equal(row->shift[1], row->token % (int32_t)width);
        assert_int_equal(row->group, pictures_seen);
        next += row->token == 5 ? 3 : 0;
    }
    assert_int_equal(pictures_seen, 2);
    tacit_input_free(&in);
    tacit_record_free(&r);
}

static void test_rows_of_a_grid(void **state)
{
    check_rows_of_a_grid(*state, 2, 3);
    check_rows_of_a_grid(*state, 3, 2);
}

static void test_user_text_stays_text(void **state)
{
    tiny_model *t = *state;
    tacit_record r = parse("{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":"
                           "\"<end_of_utterance><image><global-img>\"},"
                           "{\"role\":\"assistant\",\"content\":\"<|im_start|>\"}]}");
    tacit_input in;
    size_t controls = 0;
    assert_int_equal(tacit_example_build(&in, t->model, &r, NULL, NULL), TACIT_OK);
    for (size_t i = 0; i < in.count; i++)
        controls += in.row[i].token >= TINY_START;
    assert_int_equal(controls, 3); /* the start and the ends of two turns */
    tacit_input_free(&in);
    tacit_record_free(&r);
}

/* A model whose file asks for `bos`. */
static tacit_model *load_with_bos(int32_t bos)
{
    char file[] = "/tmp/tacit-bos-XXXXXX";
    tacit_error err = {0};
    tacit_model *model;
    gguf_writer *w = gguf_writer_new();
    close(mkstemp(file));
    tiny_put_text_model(w);
    tiny_put_vocabulary_with(w, bos);
    assert_int_equal(gguf_write(w, file, &err), TACIT_OK);
    gguf_writer_free(w);
    if (tacit_model_load(&model, file, NULL, 0, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    unlink(file);
    return model;
}

/* The template prints the token that the file asks for: it stands there once, in training as in
 * prompts, and what the user writes in its place stays text. */
static void test_one_bos(void **state)
{
    (void)state;
    tacit_error err = {0};
    tacit_model *model = load_with_bos(TINY_START);
    tacit_input in;
    assert_int_equal(tacit_tokenizer_bos(tacit_model_tokenizer(model)), TINY_START);
    tacit_record r =
        parse("{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"<|im_start|>\"},"
              "{\"role\":\"assistant\",\"content\":\"<|im_start|>\"}]}");
    for (int prompt = 0; prompt < 2; prompt++) {
        size_t starts = 0;
        assert_int_equal(prompt ? tacit_example_prompt(&in, model, r.message, 1, NULL, &err)
                                : tacit_example_build(&in, model, &r, NULL, &err),
                         TACIT_OK);
        for (size_t i = 0; i < in.count; i++)
            starts += in.row[i].token == TINY_START;
        assert_int_equal(starts, 1);
        assert_int_equal(in.row[0].token, TINY_START);
        assert_int_equal(in.row[1].token, 'U');
        tacit_input_free(&in);
    }
    /* A template that prints the vocabulary's own BOS and EOS, whatever people write. */
    assert_int_equal(tacit_model_choose_chat(model, "no such", &err), TACIT_USAGE);
    assert_int_equal(tacit_model_choose_chat(model, "mistral-v1", &err), TACIT_OK);
    assert_int_equal(tacit_example_build(&in, model, &r, NULL, &err), TACIT_OK);
    assert_int_equal(in.row[0].token, TINY_START);
    assert_int_equal(in.row[1].token, '[');
    for (size_t i = 1; i < in.count; i++) {
        assert_int_not_equal(in.row[i].token, TINY_START);
        assert_int_equal(in.row[i].token == TINY_END, i + 1 == in.count);
    }
    assert_true(in.row[in.count - 1].trained);
    tacit_input_free(&in);
    tacit_record_free(&r);
    tacit_model_free(model);
}

/* Where a token that the template prints at every turn is also the BOS, only one that would follow
 * the BOS is left out. */
static void test_bos_within_a_conversation(void **state)
{
    (void)state;
    char text[256];
    tacit_error err = {0};
    tacit_model *model = load_with_bos(TINY_END);
    tacit_record r = parse("{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
                           "{\"role\":\"assistant\",\"content\":\"7\"}]}");
    tacit_input in;
    assert_int_equal(tacit_example_build(&in, model, &r, NULL, &err), TACIT_OK);
    spell(text, sizeof text, model, &in);
    assert_string_equal(text, "<end_of_utterance><|im_start|>User: hi<end_of_utterance>\n"
                              "Assistant:^ ^7^<end_of_utterance>\n");
    tacit_input_free(&in);
    tacit_record_free(&r);
    tacit_model_free(model);
}

/* A template that wants a BOS of a file that names none is an error that says so. */
static void test_no_bos_to_print(void **state)
{
    tiny_model *t = *state;
    tacit_error err;
    assert_int_equal(tacit_model_choose_chat(t->model, "mistral-v1", &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message,
                        "the chat template asks for the vocabulary's BOS, and the file "
                        "names none: key 'tokenizer.ggml.bos_token_id'");
    assert_int_equal(tacit_model_choose_chat(t->model, "chatml", &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message, "the chat template (chatml) is made of the token "
                                     "'<|im_end|>', which the vocabulary does not have");
    assert_string_equal(t->model->chat.form.name, "smolvlm"); /* as before */
}

/* A model without a template that can be used: no record is built, and it can be asked before. */
static void test_no_chat_template(void **state)
{
    tiny_model *t = *state;
    tacit_error err;
    tacit_input in;
    tacit_record r = parse("{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
                           "{\"role\":\"assistant\",\"content\":\"y\"}]}");
    const tacit_tokenizer *own = t->model->tokenizer;
    const tacit_chat before = t->model->chat;
    gguf_file *file;
    tacit_tokenizer *other;
    assert_int_equal(tacit_model_check_chat(t->model, &err), TACIT_OK);
    assert_int_equal(
        gguf_open(&file, TACIT_SOURCE_DIR "/tests/golden/tokenizer/small_gpt2.gguf", &err),
        TACIT_OK);
    assert_int_equal(tacit_tokenizer_load(&other, file, &err), TACIT_OK);
    t->model->tokenizer = other;
    t->model->chat = (tacit_chat){0};
    assert_int_equal(tacit_model_check_chat(t->model, &err), TACIT_NOT_FOUND);
    assert_int_equal(tacit_example_build(&in, t->model, &r, NULL, &err), TACIT_NOT_FOUND);
    assert_null(in.row);
    t->model->tokenizer = (tacit_tokenizer *)(uintptr_t)own;
    t->model->chat = before;
    tacit_tokenizer_free(other);
    gguf_close(file);
    tacit_record_free(&r);
}

static const char with_picture[] =
    "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":["
    "{\"type\":\"image\",\"image\":\"%s\"},{\"type\":\"text\",\"text\":\"q\"}]},"
    "{\"role\":\"assistant\",\"content\":\"7\"}]}";

static tacit_record picture_record(const char *name)
{
    char line[512];
    snprintf(line, sizeof line, with_picture, name);
    return parse(line);
}

#define AROUND "<fake_token_around_image>"
#define NINE "........."

static void expect_picture(const tiny_model *t, const char *name, media_form form,
                           const char *block, size_t n_media)
{
    const tacit_example_options how = {.form = form, .source = &golden_source};
    tacit_record r = picture_record(name);
    tacit_input in;
    tacit_error err = {0};
    char text[2048], expected[2048];
    if (tacit_example_build(&in, t->model, &r, &how, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    spell(text, sizeof text, t->model, &in);
    snprintf(expected, sizeof expected,
             "<|im_start|>User:%sq<end_of_utterance>\nAssistant:^ ^7^<end_of_utterance>\n", block);
    assert_string_equal(text, expected);
    assert_int_equal(in.n_media, n_media);
    for (size_t i = 0; i < in.n_media; i++) {
        assert_int_equal(in.media[i].dim[2], 24);
        assert_int_equal(in.media[i].n_rows, 9);
        assert_non_null(in.media[i].values);
    }
    tacit_input_free(&in);
    tacit_record_free(&r);
}

static void test_forms_of_pictures(void **state)
{
    const tiny_model *t = *state;
    /* jpeg_full is 24 x 18 and becomes 24 x 24; preproc_image_size is 24: one tile, equal to the
     * overview. */
    expect_picture(t, "jpeg_full", MEDIA_FORM_HF, AROUND "<global-img>" NINE AROUND, 1);
    expect_picture(t, "jpeg_full", MEDIA_FORM_HF_FRAME, AROUND "<global-img>" NINE AROUND, 1);
    expect_picture(t, "jpeg_full", MEDIA_FORM_MTMD,
                   AROUND "<row_1_col_1>" NINE "\n\n" AROUND "<global-img>" NINE AROUND, 1);
    expect_picture(t, "png_grey", MEDIA_FORM_MTMD_IK,
                   AROUND AROUND "<row_1_col_1>" NINE "\n" AROUND "<global-img>" NINE AROUND, 1);
}

/* What nobody chose is what the models' processor does: a picture in tiles. jpeg_full becomes 48 x
 * 48, two tiles a side. */
static void test_tiles(void **state)
{
    (void)state;
    tiny_model t = tiny_load_with(true, 48);
    const media_form usual = (tacit_example_options){0}.form;
#define TILE(row, col) AROUND "<row_" #row "_col_" #col ">" NINE
    expect_picture(&t, "jpeg_full", usual,
                   TILE(1, 1) TILE(1, 2) "\n" TILE(2, 1) TILE(2, 2) "\n\n" AROUND
                                                                    "<global-img>" NINE AROUND,
                   5);
    expect_picture(&t, "jpeg_full", MEDIA_FORM_HF_FRAME, AROUND "<global-img>" NINE AROUND, 1);
    tiny_free(&t);
}

/* Planes are those of the frame: a picture of the tower's own size is only normalised. */
static void test_pixels(void **state)
{
    const tiny_model *t = *state;
    const tacit_example_options how = {.source = &golden_source};
    tacit_record r = picture_record("jpeg_plain");
    tacit_input in;
    assert_int_equal(tacit_example_build(&in, t->model, &r, &how, NULL), TACIT_OK);
    tacit_image picture, frame;
    assert_int_equal(tacit_image_decode(&picture, jpeg_plain, sizeof jpeg_plain, "x", NULL),
                     TACIT_OK);
    assert_int_equal(tacit_image_resize(&frame, &picture, 24, 24, TACIT_IMAGE_LANCZOS, NULL),
                     TACIT_OK);
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < 24 * 24; i++)
            assert_true(fabs(in.media[0].values[c * 576 + i] -
                             (frame.rgb[i * 3 + c] / 255.0 - 0.5) / 0.5) < 1e-6);
    tacit_image_free(&picture);
    tacit_image_free(&frame);
    tacit_input_free(&in);
    tacit_record_free(&r);
}

static void test_refusals(void **state)
{
    const tiny_model *t = *state;
    tacit_example_options how = {.source = &golden_source};
    tacit_error err = {0};
    tacit_input in;
    tacit_record r = picture_record("none");
    assert_int_equal(tacit_example_build(&in, t->model, &r, &how, &err), TACIT_NOT_FOUND);
    assert_null(in.row);
    tacit_record_free(&r);
    r = picture_record("jpeg_plain");
    for (size_t most = 1; most < 30; most++) {
        how.max_rows = most;
        assert_int_equal(tacit_example_build(&in, t->model, &r, &how, &err), TACIT_BAD_INPUT);
        assert_null(in.media);
    }
    how.max_rows = 0; /* the model's */
    assert_int_equal(tacit_example_build(&in, t->model, &r, &how, &err), TACIT_OK);
    size_t rows = in.count;
    char expected[256];
    snprintf(expected, sizeof expected,
             "a conversation of %zu rows: at most 29 are taken here, the model's context holds "
             "512; shorten it or raise the limit",
             rows);
    tacit_input_free(&in);
    how.max_rows = 29;
    assert_int_equal(tacit_example_build(&in, t->model, &r, &how, &err), TACIT_BAD_INPUT);
    assert_string_equal(err.message, expected);
    how.max_rows = rows;
    assert_int_equal(tacit_example_build(&in, t->model, &r, &how, &err), TACIT_OK);
    tacit_input_free(&in);
    tacit_record_free(&r);
}

/* The model's own limit cannot be raised. Beyond it rows are counted, not kept. */
static void test_longer_than_the_context(void **state)
{
    const tiny_model *t = *state;
    static char line[4096];
    tacit_error err = {0};
    tacit_input in;
    int head = snprintf(line, sizeof line,
                        "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"");
    memset(line + head, 'a', 600);
    snprintf(line + head + 600, sizeof line - (size_t)head - 600,
             "\"},{\"role\":\"assistant\",\"content\":\"7\"}]}");
    tacit_record r = parse(line);
    assert_int_equal(tacit_example_build(&in, t->model, &r, NULL, &err), TACIT_BAD_INPUT);
    /* <|im_start|>, "User: ", 600, the end and a line, "Assistant:", " 7", the end and a line */
    assert_string_equal(err.message, "a conversation of 623 rows: the model's context holds 512; "
                                     "shorten it");
    assert_null(in.row);
    tacit_record_free(&r);
}

static tacit_status counting_read(void *ctx, const char *path, uint8_t **data, size_t *size,
                                  tacit_error *err)
{
    ++*(size_t *)ctx;
    return golden_read(NULL, path, data, size, err);
}

/* Of pictures behind the limit none is decoded: they would be the work of hours. */
static void test_pictures_behind_the_limit(void **state)
{
    const tiny_model *t = *state;
    enum { PICTURES = 200, EACH = 48 };
    static char line[PICTURES * EACH + 256];
    size_t reads = 0;
    const tacit_media_source source = {&reads, counting_read};
    const tacit_example_options how = {.source = &source, .max_rows = 40};
    tacit_error err = {0};
    tacit_input in;
    int used =
        snprintf(line, sizeof line, "{\"id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":[");
    for (int i = 0; i < PICTURES; i++)
        used += snprintf(line + used, sizeof line - (size_t)used,
                         "%s{\"type\":\"image\",\"image\":\"jpeg_plain\"}", i ? "," : "");
    snprintf(line + used, sizeof line - (size_t)used,
             "]},{\"role\":\"assistant\",\"content\":\"7\"}]}");
    tacit_record r = parse(line);
    assert_int_equal(tacit_example_build(&in, t->model, &r, &how, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "a conversation of at least "));
    assert_true(reads >= 1 && reads <= 20);
    tacit_record_free(&r);
}

static void test_picture_without_a_tower(void **state)
{
    (void)state;
    tiny_model t = tiny_load(false);
    const tacit_example_options how = {.source = &golden_source};
    tacit_error err = {0};
    tacit_input in;
    tacit_record r = picture_record("jpeg_plain");
    assert_int_equal(tacit_example_build(&in, t.model, &r, &how, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "--mmproj"));
    tacit_record_free(&r);
    tiny_free(&t);
}

/* From a file, and a truncated one is an error of that record. */
static void test_files(void **state)
{
    const tiny_model *t = *state;
    char path[128];
    tacit_input in;
    tacit_error err = {0};
    snprintf(path, sizeof path, "%s/p.jpg", t->folder);
    tacit_content content = {TACIT_CONTENT_IMAGE, path};
    tacit_message message = {TACIT_ROLE_USER, &content, 1};
    assert_int_equal(tacit_file_write(path, jpeg_plain, sizeof jpeg_plain, 0600, NULL), TACIT_OK);
    assert_int_equal(tacit_example_prompt(&in, t->model, &message, 1, NULL, &err), TACIT_OK);
    assert_int_equal(in.n_media, 1);
    tacit_input_free(&in);
    assert_int_equal(tacit_file_write(path, jpeg_plain, sizeof jpeg_plain / 2, 0600, NULL),
                     TACIT_OK);
    assert_int_equal(tacit_example_prompt(&in, t->model, &message, 1, NULL, &err), TACIT_BAD_INPUT);
    assert_non_null(strstr(err.message, "p.jpg"));
    unlink(path);
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
    tiny_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_rows_of_a_grid),
        cmocka_unit_test(test_user_text_stays_text),
        cmocka_unit_test(test_one_bos),
        cmocka_unit_test(test_bos_within_a_conversation),
        cmocka_unit_test(test_no_bos_to_print),
        cmocka_unit_test(test_no_chat_template),
        cmocka_unit_test(test_forms_of_pictures),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_pixels),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_longer_than_the_context),
        cmocka_unit_test(test_pictures_behind_the_limit),
        cmocka_unit_test(test_picture_without_a_tower),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
