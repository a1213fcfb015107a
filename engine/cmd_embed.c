#include "common/file.h"
#include "common/options.h"
#include "engine/commands.h"
#include "engine/media_frames.h"
#include "engine/model_parts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static tacit_status print_json(const float *rows, size_t n, size_t width, tacit_error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array();
        for (size_t j = 0; j < width; j++)
            json_array_append_new(row, json_real((double)rows[i * width + j]));
        json_array_append_new(list, row);
    }
    json_t *object = json_pack("{s:o}", "rows", list);
    int failed = !object || json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0;
    json_decref(object);
    printf("\n");
    return failed ? tacit_fail(err, TACIT_FAILED, "cannot print the rows: a value is not finite")
                  : TACIT_OK;
}

static tacit_status print_text(const float *rows, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < width; j++)
            printf("%.9g%s", (double)rows[i * width + j], j + 1 < width ? " " : "\n");
    return TACIT_OK;
}

/* The picture as one frame. */
static tacit_status read_frame(tacit_media *out, const tacit_vision *vision, const char *path,
                               tacit_error *err)
{
    const media_grid overview_alone = {0, 0};
    const vision_shape *shape = vision_get_shape(vision);
    uint8_t *data = NULL;
    size_t size;
    tacit_image picture = {0}, frame = {0};
    tacit_status status;
    TACIT_TRY(
        tacit_status_of_input(tacit_file_read(path, TACIT_IMAGE_MAX_FILE, &data, &size, err), err),
        done);
    TACIT_TRY(tacit_image_decode(&picture, data, size, path, err), done);
    TACIT_TRY(media_frames_cut(&frame, &picture, overview_alone, shape, err), done);
    status = media_prepare(out, &frame, shape, err);
done:
    tacit_image_free(&frame);
    tacit_image_free(&picture);
    free(data);
    return status;
}

static tacit_status embed(const tacit_vision *vision, const char *path, size_t threads, bool json,
                          tacit_error *err)
{
    const vision_shape *shape = vision_get_shape(vision);
    tacit_media media = {0};
    tacit_pool *pool = NULL;
    vision_pass *pass = NULL;
    tacit_status status;
    float *rows = malloc((size_t)shape->rows * shape->out_width * sizeof *rows);
    if (!rows)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for %u rows", shape->rows);
    TACIT_TRY(read_frame(&media, vision, path, err), done);
    TACIT_TRY(tacit_pool_new(&pool, threads, err), done);
    TACIT_TRY(vision_pass_new(&pass, vision, 1, false, pool, err), done);
    const float *pixels = media.pixels;
    vision_forward(pass, NULL, &pixels, 1, rows);
    status = json ? print_json(rows, shape->rows, shape->out_width, err)
                  : print_text(rows, shape->rows, shape->out_width);
done:
    vision_pass_free(pass);
    tacit_pool_free(pool);
    free(media.pixels);
    free(rows);
    return status;
}

tacit_status cmd_embed(int argc, char **argv, tacit_error *err)
{
    const char *text = NULL, *mmproj = NULL, *image = NULL;
    uint64_t threads = 0;
    bool json = false, help = false;
    const tacit_option table[] = {
        {"model", 'm', TACIT_OPTION_TEXT, &text, true, "TEXT.gguf", "text model", 0, 0},
        {"mmproj", 0, TACIT_OPTION_TEXT, &mmproj, true, "FILE", "image encoder", 0, 0},
        {"image", 0, TACIT_OPTION_TEXT, &image, true, "FILE", "JPEG or PNG", 0, 0},
        {"threads", 't', TACIT_OPTION_U64, &threads, false, "N",
         "threads; 0: all that this process may use", 0, 1024},
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object: rows", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit embed", NULL, 0, 0,
                               "prints the rows that a picture becomes, one frame"};
    tacit_model *model = NULL;
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), done);
    if (help)
        return TACIT_OK;
    TACIT_TRY(tacit_status_of_input(tacit_model_load(&model, text, &mmproj, 1, NULL, err), err),
              done);
    status = embed(model->vision, image, (size_t)threads, json, err);
done:
    tacit_model_free(model);
    return status;
}
