/* write_tiny_model DIR: text.gguf, mmproj.gguf, audio.gguf and sensor.gguf, random, for tests of
 * the programs; bos.gguf is text.gguf with a BOS to add, part.gguf says that it is one of two
 * parts. low.wav and high.wav are tones of half a second. vast.png is black: 8192 x 4096 pixels in
 * a few kilobytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../engine/reference_audio.h"
#include "../engine/reference_sensor.h"
#include "../engine/sound_bytes.h"
#include "../engine/tiny_model.h"

#include <png.h>

static int write_file(gguf_writer *w, const char *folder, const char *name)
{
    char path[512];
    tacit_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tacit_status status = gguf_write(w, path, &err);
    gguf_writer_free(w);
    if (status != TACIT_OK)
        fprintf(stderr, "write_tiny_model: %s\n", err.message);
    return status != TACIT_OK;
}

static int write_tone(const char *folder, const char *name, double hertz)
{
    enum { RATE = 16000, SAMPLES = RATE / 2 };
    int16_t samples[SAMPLES];
    char path[512];
    for (size_t i = 0; i < SAMPLES; i++)
        samples[i] = (int16_t)(8000 * sin(2 * M_PI * hertz * (double)i / RATE));
    sound_bytes wav = sound_wav16(samples, SAMPLES, RATE);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    bool whole = f && fwrite(wav.data, 1, wav.size, f) == wav.size;
    whole = f && fclose(f) == 0 && whole;
    free(wav.data);
    return !whole;
}

static int write_vast_picture(const char *folder)
{
    enum { WIDTH = 8192, HEIGHT = 4096 };
    static uint8_t row[WIDTH / 8];
    char path[512];
    snprintf(path, sizeof path, "%s/vast.png", folder);
    FILE *f = fopen(path, "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    bool whole = f && info && !setjmp(png_jmpbuf(png));
    if (whole) {
        png_init_io(png, f);
        png_set_IHDR(png, info, WIDTH, HEIGHT, 1, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
        png_write_info(png, info);
        for (int y = 0; y < HEIGHT; y++)
            png_write_row(png, row);
        png_write_end(png, info);
    }
    png_destroy_write_struct(&png, &info);
    return !(f && fclose(f) == 0 && whole);
}

static gguf_writer *audio_file(void)
{
    const whisper_spec spec = {.n_mel = 16,
                               .width = 16,
                               .ff = 32,
                               .heads = 2,
                               .layers = 1,
                               .positions = 64,
                               .stack = 8,
                               .middle = 16,
                               .out = 32,
                               .linears = TACIT_TYPE_F32,
                               .kernels = TACIT_TYPE_F16};
    gguf_writer *w = gguf_writer_new();
    whisper_keys(w, &spec);
    whisper_tensors(w, &spec);
    return w;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    reference_spec spec = {.image = 24, .patch = 4, .width = 32, .ff = 64, .heads = 4};
    spec.layers = 2, spec.scale = 2, spec.out = 32, spec.linears = TACIT_TYPE_Q8_0;
    sensor_spec readings = reference_sensor_spec(TACIT_TYPE_F32, 32);
    gguf_writer *text = gguf_writer_new(), *tower = gguf_writer_new(), *bos = gguf_writer_new();
    gguf_writer *sensor = gguf_writer_new(), *part = gguf_writer_new();
    tiny_put_text_model(text);
    tiny_put_vocabulary(text);
    tiny_put_text_model(bos);
    tiny_put_vocabulary_with(bos, TINY_START);
    tiny_put_vocabulary(part);
    gguf_put_string(part, "general.architecture", "llama", 5);
    gguf_put_u32(part, "split.count", 2);
    reference_keys(tower, &spec);
    reference_tensors(tower, &spec);
    reference_put_sensor(sensor, &readings);
    return write_vast_picture(argv[1]) | write_tone(argv[1], "low.wav", 300) |
           write_tone(argv[1], "high.wav", 2000) | write_file(audio_file(), argv[1], "audio.gguf") |
           write_file(sensor, argv[1], "sensor.gguf") | write_file(text, argv[1], "text.gguf") |
           write_file(tower, argv[1], "mmproj.gguf") | write_file(bos, argv[1], "bos.gguf") |
           write_file(part, argv[1], "part.gguf");
}
