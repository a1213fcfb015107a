#include "common/file.h"
#include "common/json_print.h"
#include "engine/calibrate.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/kernels.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct calibrate_command {
    const char *model, *data, *out, *form, *chat_template;
    tacit_option_list mmproj;
    uint64_t threads, limit;
    bool json, strict;
} calibrate_command;

/* Everything that the command holds, released together. */
typedef struct calibrate_state {
    tacit_pool *pool;
    tacit_model *model;
    tacit_dataset dataset;
    importance sums;
    calibrate_result result;
} calibrate_state;

static tacit_status parse_choices(const calibrate_command *c, calibrate_options *how,
                                  tacit_error *err)
{
    *how = (calibrate_options){.limit = (size_t)c->limit, .strict = c->strict};
    return media_form_choose(&how->form, c->form, err);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static tacit_status print_result(const calibrate_state *s, bool json, tacit_error *err)
{
    const calibrate_result *r = &s->result;
    if (!json) {
        printf("%zu rows of %zu records, %zu skipped; %zu matrices\n", r->rows, r->records,
               r->skipped, s->sums.count);
        return TACIT_OK;
    }
    json_t *object = json_pack("{s:I,s:I,s:I,s:I}", "records", (json_int_t)r->records, "skipped",
                               (json_int_t)r->skipped, "rows", (json_int_t)r->rows, "matrices",
                               (json_int_t)s->sums.count);
    return tacit_json_print(object, TACIT_JSON_DIGITS, err);
}

static tacit_status check_out(const calibrate_command *c, tacit_error *err)
{
    const char *const source[] = {c->model, c->data};
    tacit_status status = tacit_file_check_results(&c->out, 1, source, 2, err);
    return status == TACIT_OK
               ? tacit_file_check_results(&c->out, 1, c->mmproj.item, c->mmproj.count, err)
               : status;
}

static tacit_status calibrate(calibrate_state *s, const calibrate_command *c, tacit_error *err)
{
    calibrate_options how;
    tacit_status status;
    TACIT_TRY(kernels_check(err), done);
    TACIT_TRY(parse_choices(c, &how, err), done);
    TACIT_TRY(check_out(c, err), done);
    TACIT_TRY(tacit_pool_new(&s->pool, (size_t)c->threads, err), done);
    TACIT_TRY(
        tacit_status_of_input(
            tacit_model_load(&s->model, c->model, c->mmproj.item, c->mmproj.count, NULL, err), err),
        done);
    TACIT_TRY(cmd_choose_chat(s->model, c->chat_template, err), done);
    TACIT_TRY(tacit_status_of_input(tacit_dataset_load(&s->dataset, c->data, c->strict, err), err),
              done);
    TACIT_TRY(calibrate_run(&s->sums, &s->result, s->model, &s->dataset, &how, s->pool, err), done);
    s->sums.dataset = strdup(base_name(c->data));
    TACIT_TRY(importance_save(&s->sums, c->out, err), done);
    TACIT_TRY(print_result(s, c->json, err), done);
done:
    return status;
}

tacit_status cmd_calibrate(int argc, char **argv, tacit_error *err)
{
    calibrate_command c = {0};
    bool help = false;
    const tacit_option table[] = {
        {"model", 'm', TACIT_OPTION_TEXT, &c.model, true, "TEXT.gguf",
         "text model, f32 to bf16 if there is one", 0, 0},
        CMD_MMPROJ_ROW(&c.mmproj, false),
        {"data", 0, TACIT_OPTION_TEXT, &c.data, true, "D.jsonl",
         "dataset: public data like what the model will see", 0, 0},
        {"out", 'o', TACIT_OPTION_TEXT, &c.out, true, "FILE", "the importance matrix", 0, 0},
        CMD_CHAT_ROW(&c.chat_template),
        CMD_THREADS_ROW(&c.threads),
        {"limit", 0, TACIT_OPTION_U64, &c.limit, false, "N", "records to read; 0: all (0)", 0, 0},
        CMD_FORM_ROW(&c.form),
        {"strict", 0, TACIT_OPTION_FLAG, &c.strict, false, NULL,
         "a bad record is an error, not left out", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &c.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit calibrate", NULL, 0, 0,
                               "collects the mean squares of every linear's input, by which "
                               "tacit quantize weighs columns"};
    calibrate_state s = {0};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, NULL, NULL, &help, err);
    if (status == TACIT_OK && !help)
        status = calibrate(&s, &c, err);
    importance_free(&s.sums);
    tacit_dataset_free(&s.dataset);
    tacit_model_free(s.model);
    tacit_pool_free(s.pool);
    return status;
}
