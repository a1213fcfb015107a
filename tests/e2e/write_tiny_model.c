/* write_tiny_model DIR: text.gguf, mmproj.gguf and sensor.gguf, random, for tests of the programs;
 * bos.gguf is text.gguf with a BOS to add. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../engine/reference_sensor.h"
#include "../engine/tiny_model.h"

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

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    reference_spec spec = {.image = 24, .patch = 4, .width = 32, .ff = 64, .heads = 4};
    spec.layers = 2, spec.scale = 2, spec.out = 32, spec.linears = TACIT_TYPE_Q8_0;
    sensor_spec readings = reference_sensor_spec(TACIT_TYPE_F32, 32);
    gguf_writer *text = gguf_writer_new(), *tower = gguf_writer_new(), *bos = gguf_writer_new();
    gguf_writer *sensor = gguf_writer_new();
    tiny_put_text_model(text);
    tiny_put_vocabulary(text);
    tiny_put_text_model(bos);
    tiny_put_vocabulary_with(bos, true);
    reference_keys(tower, &spec);
    reference_tensors(tower, &spec);
    reference_put_sensor(sensor, &readings);
    return write_file(sensor, argv[1], "sensor.gguf") | write_file(text, argv[1], "text.gguf") |
           write_file(tower, argv[1], "mmproj.gguf") | write_file(bos, argv[1], "bos.gguf");
}
