/* That memory is judged before it is taken: every place that judges, one after the other, in the
 * product's own commands on the model of the tree, and in what these do not reach. A call that is
 * left out leaves its words out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../common/memory_probe.h"
#include "common/file.h"
#include "engine/audio_file.h"
#include "engine/audio_mel.h"
#include "engine/commands.h"
#include "engine/context.h"
#include "engine/importance.h"
#include "engine/kv_cache.h"
#include "engine/media_frames.h"
#include "engine/model_parts.h"
#include "engine/model_write.h"
#include "engine/optimizer.h"
#include "engine/row_cache.h"
#include "engine/sensor_csv.h"
#include "engine/sensor_lowpass.h"
#include "engine/tower_fast.h"
#include "reference_vision.h"
#include "sound_bytes.h"
#include "train_fixture.h"

#include <fcntl.h>
#include <png.h>
#include <stdio.h>
#include <unistd.h>

#include <jpeglib.h>

#define NANO TACIT_SOURCE_DIR "/tests/nano/nano.gguf"
#define NANO_IMAGE TACIT_SOURCE_DIR "/tests/nano/mmproj-nano.gguf"
#define NANO_AUDIO TACIT_SOURCE_DIR "/tests/nano/mmproj-nano-audio.gguf"
#define NANO_SENSOR TACIT_SOURCE_DIR "/tests/nano/mmproj-nano-sensor.gguf"

#define COPIES "the fp32 copies of a small model's weights needs"

static char folder[] = "/tmp/tacit-judged-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static int turn;
    char *out = path[turn++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static void put(const char *name, const void *data, size_t size)
{
    tacit_error err = {0};
    if (tacit_file_write(in_folder(name), data, size, 0600, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

/* ---- media ---- */

enum { SIDE = 96 };

static uint8_t pixels[SIDE * SIDE * 3];

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static bytes png_bytes(void)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .width = SIDE, .height = SIDE / 2};
    png_alloc_size_t size = 0;
    image.format = PNG_FORMAT_RGB;
    assert_true(png_image_write_get_memory_size(image, size, 0, pixels, 0, NULL));
    bytes b = {malloc(size), size};
    assert_true(png_image_write_to_memory(&image, b.data, &size, 0, pixels, 0, NULL));
    b.size = size;
    return b;
}

static bytes progressive_jpeg(void)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr manager;
    unsigned long size = 0;
    bytes b = {0};
    info.err = jpeg_std_error(&manager);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &b.data, &size);
    info.image_width = info.image_height = SIDE;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_simple_progression(&info);
    jpeg_start_compress(&info, TRUE);
    for (JSAMPROW row = pixels; info.next_scanline < SIDE; row += 3 * SIDE)
        jpeg_write_scanlines(&info, &row, 1);
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    b.size = size;
    return b;
}

static tacit_status decode(void *ctx, tacit_error *err)
{
    const bytes *b = ctx;
    tacit_image image;
    tacit_status status = tacit_image_decode(&image, b->data, b->size, "x", err);
    tacit_image_free(&image);
    return status;
}

/* The smallest picture that is refused needs its pixels and a byte less than there is. */
static uint64_t fixed(void *ctx)
{
    return *(uint64_t *)ctx;
}

static void test_pictures(void **state)
{
    (void)state;
    bytes png = png_bytes(), jpeg = progressive_jpeg();
    tacit_error err = {0};
    uint64_t there = SIDE * SIDE / 2 * 3;
    MEMORY_PROBE_EXPECT(decode, &png, "x: a picture of 96 x 48 pixels needs 13.5 KiB");
    MEMORY_PROBE_EXPECT(decode, &jpeg, "x: a picture of 96 x 96 pixels",
                        "x: a JPEG of several scans, 96 x 96 pixels, needs 81.0 KiB");
    tacit_memory_inject(fixed, &there);
    assert_int_equal(decode(&png, &err), TACIT_OK);
    there--;
    assert_int_equal(decode(&png, &err), TACIT_NO_MEMORY);
    tacit_memory_inject(NULL, NULL);
    free(png.data);
    free(jpeg.data);
}

static tacit_status pad(void *ctx, tacit_error *err)
{
    tacit_image picture = {SIDE, SIDE / 2, pixels}, frame;
    tacit_status status = media_frame_padded(&frame, &picture, ctx, err);
    tacit_image_free(&frame);
    return status;
}

static tacit_status arrange(void *ctx, tacit_error *err)
{
    tacit_image picture = {SIDE, SIDE / 2, pixels};
    tacit_media media = {0};
    tacit_status status = media_prepare_picture(&media, &picture, ctx, true, err);
    free(media.values);
    return status;
}

static void test_frames(void **state)
{
    (void)state;
    vision_shape s = {.image_size = 16, .grid = 2, .patches = 4, .rows = 4, .out_width = 1};
    for (int c = 0; c < 3; c++)
        s.std[c] = 1;
    s.cut = VISION_CUT_PAD;
    MEMORY_PROBE_EXPECT(pad, &s, "padding: a picture of 16 x 96", "padding: a picture of 96 x",
                        "resizing: ", "resizing: ");
    s.cut = VISION_CUT_ANYRES;
    s.pinpoints = 1;
    s.pinpoint[0][0] = s.pinpoint[0][1] = 32;
    MEMORY_PROBE_EXPECT(arrange, &s, "resizing: ", "resizing: ", "padding: a picture of 32 x 32",
                        "cutting: a picture of 16 x 16", "a picture of 5 frames of 16 x 16 needs ");
}

static tacit_status read_csv(void *ctx, tacit_error *err)
{
    static const sensor_channel channel = {.name = "v", .std = 1};
    sensor_series series;
    tacit_status status =
        sensor_csv_read(&series, &channel, 1, ctx, strlen(ctx), "readings.csv", err);
    if (status == TACIT_OK) {
        sensor_lowpass filter;
        status = sensor_lowpass_init(&filter, &series, 0, 1, 1, err);
        sensor_lowpass_fini(&filter);
    }
    if (status == TACIT_OK || series.count > 0)
        sensor_series_free(&series);
    return status;
}

static void test_readings(void **state)
{
    (void)state;
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "time,v\n");
    for (int i = 0; i < 300; i++) /* more than the first lines that there is room for */
        used += (size_t)snprintf(text + used, sizeof text - used, "%d,%d\n", i, i);
    MEMORY_PROBE_EXPECT(
        read_csv, text, "readings.csv: room for 256 lines of 1 channels needs 4.0 KiB",
        "readings.csv: room for 512 lines", "filtering a channel's readings needs 4.7 KiB");
}

static tacit_status hear(void *ctx, tacit_error *err)
{
    const sound_bytes *wav = ctx;
    float *samples = NULL, *frames = NULL;
    size_t count;
    tacit_status status =
        audio_file_decode(&samples, &count, wav->data, wav->size, "x.wav", 160000, err);
    if (status == TACIT_OK)
        status = audio_mel(&frames, samples, count, 1, 80, err);
    free(samples);
    free(frames);
    return status;
}

static void test_sound(void **state)
{
    (void)state;
    static int16_t samples[8000];
    sound_bytes wav = sound_wav16(samples, 8000, 16000);
    MEMORY_PROBE_EXPECT(hear, &wav, "x.wav: room for 4096 samples", "x.wav: room for 12288 samples",
                        "50 frames of 80 mel bins needs 15.6 KiB");
    free(wav.data);
}

/* ---- commands ---- */

typedef struct command {
    tacit_status (*run)(int argc, char **argv, tacit_error *err);
    const char *word[24];
} command;

/* What it prints is not looked at. */
static tacit_status run_command(void *ctx, tacit_error *err)
{
    const command *c = ctx;
    char *argv[24] = {NULL};
    int argc = 0, out = dup(STDOUT_FILENO), nothing = open("/dev/null", O_WRONLY);
    fflush(stdout);
    dup2(nothing, STDOUT_FILENO);
    close(nothing);
    for (; c->word[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)c->word[argc];
    tacit_status status = c->run(argc, argv, err);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    return status;
}

/* Nano's own tower is too narrow to be quantized. */
static void put_wide_tower(const char *name)
{
    const reference_spec spec = {.image = 96,
                                 .patch = 32,
                                 .width = 256,
                                 .ff = 256,
                                 .heads = 4,
                                 .layers = 1,
                                 .scale = 3,
                                 .out = 128,
                                 .linears = TACIT_TYPE_Q8_0};
    tacit_error err = {0};
    gguf_writer *w = gguf_writer_new();
    reference_keys(w, &spec);
    reference_tensors(w, &spec);
    if (gguf_write(w, in_folder(name), &err) != TACIT_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
}

static void test_embedding(void **state)
{
    (void)state;
    bytes png = png_bytes();
    static int16_t silence[8000];
    sound_bytes wav = sound_wav16(silence, 8000, 16000);
    put("a.png", png.data, png.size);
    put("a.wav", wav.data, wav.size);
    put_wide_tower("wide.gguf");
    command image = {cmd_embed,
                     {"embed", "-m", NANO, "--mmproj", NANO_IMAGE, "--image", in_folder("a.png"),
                      "--json", "--threads", "1"}};
    command fast = {cmd_embed,
                    {"embed", "-m", NANO, "--mmproj", in_folder("wide.gguf"), "--image",
                     in_folder("a.png"), "--fast", "--threads", "1"}};
    command audio = {cmd_embed,
                     {"embed", "-m", NANO, "--mmproj", NANO_AUDIO, "--audio", in_folder("a.wav"),
                      "--threads", "1"}};
    MEMORY_PROBE_EXPECT(run_command, &image, COPIES, COPIES, "encoding 1 pictures", "a.png needs ",
                        "a.png: a picture of 96 x 48 pixels", "a.png: resizing: a picture of ",
                        "a.png: a picture of 1 frames", "a medium of ", "the rows as JSON");
    const tacit_linear wide = {.type = tacit_type_find(TACIT_TYPE_Q8_0), .n_in = 256, .n_out = 256};
    if (tower_refines(&wide))
        MEMORY_PROBE_EXPECT(run_command, &fast, "quantizing pictures",
                            "packing an encoder's weights", "encoding 1 pictures");
    else
        MEMORY_PROBE_EXPECT(run_command, &fast, "encoding 1 pictures");
    MEMORY_PROBE_EXPECT(run_command, &audio, COPIES, COPIES, "encoding sound", "samples of sound",
                        "a.wav: 50 frames of ", "a medium of ");
    free(png.data);
    free(wav.data);
}

static void test_embedding_readings(void **state)
{
    (void)state;
    gguf_file *file = NULL;
    tacit_error err = {0};
    char text[512];
    assert_int_equal(gguf_open(&file, NANO_SENSOR, &err), TACIT_OK);
    gguf_string name = gguf_array_string(file, "tacit.sensor.channels", 0);
    snprintf(text, sizeof text, "time,%.*s\n0,1\n0.1,2\n0.2,3\n", (int)name.size, name.data);
    gguf_close(file);
    put("a.csv", text, strlen(text));
    command c = {cmd_embed,
                 {"embed", "-m", NANO, "--mmproj", NANO_SENSOR, "--sensor", in_folder("a.csv"),
                  "--threads", "1"}};
    MEMORY_PROBE_EXPECT(
        run_command, &c, COPIES, "mmproj-nano-sensor.gguf: tensor s.patch_embd.bias as fp32 needs",
        "mmproj-nano-sensor.gguf: tensor s.position_embd.weight as fp32 needs", COPIES, COPIES,
        "encoding windows of", "room for 256 lines", "a.csv: a window of ", "a medium of ");
}

static bool is_there(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

/* The strings of a file's vocabulary and merges, which are judged when it is opened. */
enum { STRINGS = 2 };

/* The refusal comes before a file does. */
static void test_quantizing(void **state)
{
    (void)state;
    tacit_error err;
    command c = {cmd_quantize,
                 {"quantize", NANO, in_folder("q.gguf"), "--type", "q8_0", "--threads", "1"}};
    MEMORY_PROBE_EXPECT(run_command, &c, "the largest tensor, ", " of a new file needs ");
    assert_true(is_there("q.gguf"));
    assert_int_equal(unlink(in_folder("q.gguf")), 0);
    assert_int_equal(memory_probe_run(STRINGS, run_command, &c, &err), TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, "the largest tensor, "));
    assert_false(is_there("q.gguf"));
    assert_false(is_there("q.gguf" TACIT_FILE_UNFINISHED));
    assert_int_equal(memory_probe_run(STRINGS + 3, run_command, &c, &err), TACIT_NO_MEMORY);
    assert_non_null(strstr(err.message, " of a new file needs "));
    assert_false(is_there("q.gguf"));
    assert_false(is_there("q.gguf" TACIT_FILE_UNFINISHED));
}

static tacit_status read_importance(void *ctx, tacit_error *err)
{
    importance m;
    tacit_status status = importance_load(&m, ctx, err);
    importance_free(&m);
    return status;
}

/* Of files that are small on a disk and large in memory. */
static void test_tables_of_files(void **state)
{
    (void)state;
    tacit_error err = {0};
    importance m = {0};
    char *path = (char *)(uintptr_t)in_folder("i.gguf");
    command c = {cmd_inspect, {"inspect", NANO}};
    assert_non_null(importance_add(&m, "blk.0.attn_q.weight", 128, 1));
    assert_int_equal(importance_save(&m, path, &err), TACIT_OK);
    importance_free(&m);
    MEMORY_PROBE_EXPECT(read_importance, path,
                        "the importance of blk.0.attn_q.weight needs 1.0 KiB",
                        "the importance of ");
    MEMORY_PROBE_EXPECT(run_command, &c,
                        "the 768 strings of key 'tokenizer.ggml.tokens' needs 12.0",
                        "the 474 strings of key 'tokenizer.ggml.merges' needs ",
                        "nano.gguf: listing its texts needs ");
}

static void test_logits_as_json(void **state)
{
    (void)state;
    command c = {cmd_logits,
                 {"logits", "-m", NANO, "-p", "a", "--all", "--json", "--top", "0", "-t", "1"}};
    MEMORY_PROBE_EXPECT(run_command, &c, "the logits as JSON needs 300.0 KiB");
}

static tacit_status split_long_text(void *ctx, tacit_error *err)
{
    enum { SIZE = 1 << 17 };
    tacit_tokens tokens = {0};
    char *text = malloc(SIZE);
    memset(text, 'a', SIZE);
    tacit_status status = tacit_tokenize(ctx, text, SIZE, false, &tokens, err);
    tacit_tokens_free(&tokens);
    free(text);
    return status;
}

/* A text that nothing divides takes a hundred times its size while it is merged. */
static void test_long_texts(void **state)
{
    (void)state;
    static const char *const names[] = {NANO,
                                        TACIT_SOURCE_DIR "/tests/golden/tokenizer/small_spm.gguf"};
    for (size_t i = 0; i < 2; i++) {
        tacit_error err = {0};
        gguf_file *file;
        tacit_tokenizer *t;
        if (gguf_open(&file, names[i], &err) != TACIT_OK ||
            tacit_tokenizer_load(&t, file, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        MEMORY_PROBE_EXPECT(split_long_text, t, "a text of 131072 bytes needs 2.0 MiB",
                            i == 0 ? "a piece of 131072 bytes" : "a piece of 131075 bytes");
        tacit_tokenizer_free(t);
        gguf_close(file);
    }
}

static void test_training(void **state)
{
    (void)state;
    static const char line[] =
        "{\"id\":\"%d\",\"messages\":[{\"role\":\"user\",\"content\":\"What is the speed?\"},"
        "{\"role\":\"assistant\",\"content\":\"%d\"}]}\n";
    char text[1024];
    int used = snprintf(text, sizeof text, line, 1, 1);
    used += snprintf(text + used, sizeof text - (size_t)used, line, 2, 2);
    put("d.jsonl", text, (size_t)used);
    command lora = {cmd_train,
                    {"train", "-m", NANO, "--data", in_folder("d.jsonl"), "--trainable", "ffa",
                     "--out", in_folder("a.gguf"), "--threads", "1"}};
    command all = {cmd_train,
                   {"train", "-m", NANO, "--data", in_folder("d.jsonl"), "--trainable", "all",
                    "--out", in_folder("m.gguf"), "--threads", "1"}};
    MEMORY_PROBE_EXPECT(run_command, &lora, "d.jsonl needs ", "d.jsonl: its records needs ",
                        "the next of 0 examples needs", "the next of 1 examples needs",
                        "training needs ", "optimizer ", "training needs ",
                        "the frozen part of an adapter needs", "the activations of 256 rows needs",
                        "the state of the optimizer needs", "the frozen part of an adapter needs",
                        "tensor blk.0.", " of a new file needs");
    MEMORY_PROBE_EXPECT(run_command, &all, "training needs ", "optimizer ", "training needs ",
                        "the activations of 256 rows needs", "the state of the optimizer needs",
                        " of a new file needs");
}

/* ---- what the commands do not reach ---- */

static tacit_status feed(void *ctx, tacit_error *err)
{
    const tacit_row row = {.token = 1};
    tacit_context *c;
    tacit_context_spec spec = {.max_rows = 64};
    tacit_status status = tacit_context_new(&c, ctx, &spec, NULL, err);
    if (status == TACIT_OK)
        status = tacit_context_feed(c, &row, 1, NULL, 0, err);
    tacit_context_free(c);
    return status;
}

static void test_contexts(void **state)
{
    (void)state;
    tacit_model *m = fixture_model("untied", false);
    MEMORY_PROBE_EXPECT(feed, m, "the model needs ", "a sequence of 1 rows needs");
    fixture_model_free(m);
}

/* Of a picture's frames, and rows of media in training. */
typedef struct media_world {
    tacit_model *m;
    tacit_input in;
} media_world;

static tacit_status train_on_media(void *ctx, tacit_error *err)
{
    media_world *w = ctx;
    tacit_trainable_spec spec = fixture_spec(TACIT_TRAIN_LORA);
    tacit_trainer *t;
    double loss;
    tacit_status status = tacit_trainer_new(&t, w->m, &spec, w->in.count, NULL, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_trainer_loss(t, &w->in, &loss, err);
    tacit_trainer_free(t);
    return status;
}

static void test_media_of_examples(void **state)
{
    (void)state;
    gguf_file *golden = fixture_file("gradients", "untied");
    media_world w = {.m = fixture_model("untied", false), .in = fixture_example(golden, 0)};
    MEMORY_PROBE_EXPECT(train_on_media, &w, "training needs", "the activations of",
                        "the rows of an example's media needs");
    fixture_example_free(&w.in);
    fixture_model_free(w.m);
    gguf_close(golden);
}

static tacit_status pass_of_two(void *ctx, tacit_error *err)
{
    const model_encoder *e = ctx;
    void *pass;
    tacit_status status = e->kind->pass_new(&pass, e->self, 2, PASS_TRAIN, NULL, err);
    if (status == TACIT_OK)
        e->kind->pass_free(pass);
    return status;
}

static uint64_t allowed;

static uint64_t most_asked(void *ctx)
{
    (void)ctx;
    return allowed;
}

/* What a pass says that it takes is what it asks for: no less does, no more is needed. */
static void test_sizes_of_passes(void **state)
{
    (void)state;
    const char *const files[] = {NANO_IMAGE, NANO_AUDIO, NANO_SENSOR};
    tacit_model *m;
    tacit_error err = {0};
    if (tacit_model_load(&m, NANO, files, 3, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (size_t k = 0; k < 3; k++) {
        model_encoder *e = &m->encoder[k];
        bool image = e->kind == &encoder_image;
        uint64_t whole = e->kind->pass_bytes(e->self, 2, PASS_TRAIN, NULL);
        const vision_shape *s = image ? vision_get_shape(e->self) : NULL;
        allowed = whole - (image ? 2 * s->rows * s->out_width * sizeof(float) : 0);
        tacit_memory_inject(most_asked, NULL);
        assert_int_equal(pass_of_two(e, &err), TACIT_OK);
        allowed--;
        assert_int_equal(pass_of_two(e, &err), TACIT_NO_MEMORY);
        tacit_memory_inject(NULL, NULL);
    }
    MEMORY_PROBE_EXPECT(pass_of_two, &m->encoder[0], "the rows of a picture's frames needs",
                        "training on 2 pictures");
    MEMORY_PROBE_EXPECT(pass_of_two, &m->encoder[1], "encoding sound needs");
    MEMORY_PROBE_EXPECT(pass_of_two, &m->encoder[2], "training on windows of ");
    tacit_model_free(m);
}

/* A cache takes a quarter of what is there, whatever it may take. */
static void test_caches_leave_room(void **state)
{
    (void)state;
    const char *const file = NANO_IMAGE;
    tacit_model *m;
    tacit_row_cache *c;
    tacit_error err = {0};
    if (tacit_model_load(&m, NANO, &file, 1, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    const vision_shape *s = vision_get_shape(m->encoder[0].self);
    size_t values = (size_t)3 * s->image_size * s->image_size;
    size_t rows = (size_t)s->rows * s->out_width * sizeof(float);
    for (int room = 0; room < 2; room++) {
        tacit_media media = {.modality = TACIT_MODALITY_IMAGE,
                             .dim = {3, s->image_size, s->image_size},
                             .n_rows = s->rows,
                             .values = calloc(values, sizeof(float))};
        tacit_input in = {.media = &media, .n_media = 1};
        allowed = 4 * rows - !room;
        tacit_memory_inject(most_asked, NULL);
        assert_int_equal(tacit_row_cache_new(&c, m, SIZE_MAX, NULL, NULL, &err), TACIT_OK);
        tacit_memory_inject(NULL, NULL);
        assert_int_equal(tacit_row_cache_fill(c, &in, &err), TACIT_OK);
        assert_int_equal(tacit_row_cache_get_stats(c).bytes, room ? rows : 0);
        tacit_row_cache_free(c);
        free(media.rows);
    }
    tacit_model_free(m);
}

static tacit_status put_tensors(void *ctx, tacit_error *err)
{
    static const float values[32];
    const uint64_t n = 32;
    gguf_writer *w = gguf_writer_new();
    (void)ctx;
    gguf_put_tensor(w, "a", 1, &n, TACIT_TYPE_F32, values);
    gguf_put_tensor_bytes(w, "b", 1, &n, TACIT_TYPE_F32, values, sizeof values);
    tacit_status status = gguf_write(w, in_folder("t.gguf"), err);
    gguf_writer_free(w);
    return status;
}

static void test_tensors_that_are_put(void **state)
{
    (void)state;
    MEMORY_PROBE_EXPECT(put_tensors, NULL, "tensor a of a new file needs",
                        "tensor b of a new file needs");
}

static int make_folder(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 31);
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    char remove[64];
    (void)state;
    snprintf(remove, sizeof remove, "rm -rf %s", folder);
    return system(remove);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures),          cmocka_unit_test(test_frames),
        cmocka_unit_test(test_readings),          cmocka_unit_test(test_sound),
        cmocka_unit_test(test_embedding),         cmocka_unit_test(test_embedding_readings),
        cmocka_unit_test(test_quantizing),        cmocka_unit_test(test_tables_of_files),
        cmocka_unit_test(test_long_texts),        cmocka_unit_test(test_logits_as_json),
        cmocka_unit_test(test_training),          cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_media_of_examples), cmocka_unit_test(test_sizes_of_passes),
        cmocka_unit_test(test_caches_leave_room), cmocka_unit_test(test_tensors_that_are_put),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
