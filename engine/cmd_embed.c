/* `tacit embed`: the rows that media become, for comparisons. */
#include "common/file.h"
#include "common/json_print.h"
#include "common/memory_limit.h"
#include "common/options.h"
#include "common/secret.h"
#include "engine/adapter_parts.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/model_parts.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define JSON_NUMBER_BYTES 48u /* of one in memory, with its place in an array */

typedef struct embed {
    const char *text, *adapter;
    tacit_option_list mmproj, file[ENCODER_KINDS_MAX]; /* of each kind */
    uint64_t threads;
    bool json, fast;
    tacit_model *model;
    tacit_pool *pool;
    json_t *rows, *times; /* NULL without --json */
    tacit_adapter *bound; /* NULL: the base alone */
    const model_encoder *encoder;
    encoder_adapter beside; /* of the encoder */
    void *pass;
    tacit_error *err;
} embed;

/* Takes the value over. */
static tacit_status append(json_t *array, json_t *value, tacit_error *err)
{
    return json_array_append_new(array, value) == 0
               ? TACIT_OK
               : tacit_fail(err, TACIT_NO_MEMORY, "no memory for the rows as JSON");
}

static tacit_status append_number(json_t *array, double v, tacit_error *err)
{
    if (!isfinite(v))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "a row holds %g, for which JSON has no number: the model's weights are "
                          "damaged",
                          v);
    return append(array, json_real(v), err);
}

static tacit_status add_row(embed *e, const float *values, size_t width, tacit_error *err)
{
    json_t *row = json_array();
    tacit_status status = append(e->rows, row, err);
    for (size_t j = 0; j < width && status == TACIT_OK; j++)
        status = append_number(row, (double)values[j], err);
    return status;
}

static tacit_status add_json(embed *e, const tacit_media *media, const float *rows,
                             tacit_error *err)
{
    size_t width = tacit_model_embedding(e->model);
    tacit_status status =
        tacit_memory_require(media->n_rows * (uint64_t)width * JSON_NUMBER_BYTES,
                             "the rows as JSON", "ask for them without --json", err);
    for (size_t i = 0; i < media->n_rows && status == TACIT_OK; i++) {
        status = add_row(e, rows + i * width, width, err);
        if (status == TACIT_OK && media->row_seconds > 0)
            status = append_number(e->times, media->start + (double)i * media->row_seconds, err);
    }
    return status;
}

static void print_rows(const float *rows, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < width; j++)
            printf("%.9g%s", (double)rows[i * width + j], j + 1 < width ? " " : "\n");
}

/* Takes one prepared medium and shows its rows. */
static tacit_status take_media(void *ctx, tacit_media *media)
{
    embed *e = ctx;
    const tacit_media *of = media;
    size_t width = tacit_model_embedding(e->model);
    float *rows;
    tacit_status status = media_rows_alloc(&rows, media, width, e->err);
    if (status == TACIT_OK) {
        e->encoder->kind->forward(e->pass, NULL, &of, 1, &rows);
        if (e->json)
            status = add_json(e, media, rows, e->err);
        else
            print_rows(rows, media->n_rows, width);
    }
    tacit_wipe_free(rows);
    tacit_wipe_free(media->values);
    return status;
}

static tacit_status ignore_token(void *ctx, int32_t id)
{
    (void)ctx;
    (void)id;
    return TACIT_OK;
}

static tacit_status embed_file(embed *e, const char *path, tacit_error *err)
{
    const media_sink sink = {e, ignore_token, take_media};
    const model_encoder *encoder = e->encoder;
    e->err = err;
    media_request request = {
        .name = path, .tokenizer = tacit_model_tokenizer(e->model), .form = MEDIA_FORM_HF_FRAME};
    uint8_t *data = NULL;
    tacit_status status = tacit_status_of_input(
        tacit_file_read(path, encoder->kind->max_file, &data, &request.size, err), err);
    request.data = data;
    if (status == TACIT_OK)
        status = encoder->kind->lay_out(encoder->self, &request, &sink, err);
    tacit_wipe_free(data);
    return status;
}

/* The files of one kind. */
static tacit_status embed_kind(embed *e, const encoder_kind *kind, const tacit_option_list *files,
                               tacit_error *err)
{
    if (files->count == 0)
        return TACIT_OK;
    e->encoder = model_encoder_of(e->model, kind->modality);
    if (!e->encoder)
        return model_encoder_missing(kind->modality, files->item[0], err);
    tacit_status status = kind->pass_new(&e->pass, e->encoder->self, 1,
                                         e->fast ? PASS_FAST : PASS_EXACT, e->pool, err);
    if (status == TACIT_OK && e->bound)
        status = adapter_beside(&e->beside, e->bound, e->encoder, err);
    if (status == TACIT_OK && e->beside.max_rank > 0)
        status = kind->pass_adapt(e->pass, &e->beside, err);
    for (size_t i = 0; i < files->count && status == TACIT_OK; i++)
        status = embed_file(e, files->item[i], err);
    if (e->pass)
        kind->pass_free(e->pass);
    e->pass = NULL;
    free((void *)(uintptr_t)e->beside.pair);
    e->beside = (encoder_adapter){0};
    return status;
}

static tacit_status print_json(embed *e, tacit_error *err)
{
    json_t *object = json_pack("{s:O}", "rows", e->rows);
    if (object && json_array_size(e->times) > 0)
        json_object_set(object, "seconds", e->times);
    return tacit_json_print(object, TACIT_JSON_FLOAT_DIGITS, err);
}

static tacit_status run(embed *e, tacit_error *err)
{
    tacit_status status;
    TACIT_TRY(
        tacit_status_of_input(
            tacit_model_load(&e->model, e->text, e->mmproj.item, e->mmproj.count, NULL, err), err),
        done);
    if (e->adapter)
        TACIT_TRY(
            tacit_status_of_input(tacit_adapter_load(&e->bound, e->model, e->adapter, err), err),
            done);
    TACIT_TRY(tacit_pool_new(&e->pool, (size_t)e->threads, err), done);
    if (e->json) {
        e->rows = json_array();
        e->times = json_array();
        if (!e->rows || !e->times)
            return tacit_fail(err, TACIT_NO_MEMORY, "no memory for rows");
    }
    for (size_t k = 0; k < encoder_kind_count() && status == TACIT_OK; k++)
        status = embed_kind(e, encoder_kind_at(k), &e->file[k], err);
    if (status == TACIT_OK && e->json)
        status = print_json(e, err);
done:
    return status;
}

/* The list of files of a modality. */
static tacit_option_list *files_of(embed *e, tacit_modality modality)
{
    size_t k = 0;
    while (k + 1 < encoder_kind_count() && encoder_kind_at(k)->modality != modality)
        k++;
    return &e->file[k];
}

tacit_status cmd_embed(int argc, char **argv, tacit_error *err)
{
    embed e = {.threads = 0};
    bool help = false;
    const tacit_option table[] = {
        CMD_MODEL_ROW(&e.text),
        CMD_MMPROJ_ROW(&e.mmproj, true),
        CMD_ADAPTER_ROW(&e.adapter),
        CMD_IMAGE_ROW(files_of(&e, TACIT_MODALITY_IMAGE)),
        CMD_AUDIO_ROW(files_of(&e, TACIT_MODALITY_AUDIO)),
        CMD_SENSOR_ROW(files_of(&e, TACIT_MODALITY_SENSOR)),
        CMD_THREADS_ROW(&e.threads),
        CMD_FAST_ROW(&e.fast),
        {"json", 0, TACIT_OPTION_FLAG, &e.json, false, NULL,
         "one JSON object: rows, and where they have times, seconds", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit embed", NULL, 0, 0,
                               "prints the rows that media become, a picture as one frame"};
    size_t files = 0;
    tacit_status status;
    TACIT_TRY(tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err), done);
    if (help)
        return TACIT_OK;
    for (size_t k = 0; k < encoder_kind_count(); k++)
        files += e.file[k].count;
    if (files == 0)
        return tacit_fail(err, TACIT_USAGE, "name a file by --image, --audio or --sensor");
    status = run(&e, err);
done:
    json_decref(e.rows);
    json_decref(e.times);
    tacit_adapter_free(e.bound);
    tacit_model_free(e.model);
    tacit_pool_free(e.pool);
    return status;
}
