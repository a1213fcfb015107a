/* `tacit adapter info`, `export`, `import`: what an adapter is, and from and to other programs. */
#include "common/file.h"
#include "common/json_print.h"
#include "common/log.h"
#include "common/options.h"
#include "common/text.h"
#include "engine/adapter_about.h"
#include "engine/adapter_export.h"
#include "engine/adapter_import.h"
#include "engine/cmd_session.h"
#include "engine/commands.h"
#include "engine/peft_config.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct adapter_command {
    const char *model, *out, *format, *base;
    tacit_option_list mmproj;
    bool json;
} adapter_command;

static tacit_status load_model(tacit_model **out, const adapter_command *c, tacit_error *err)
{
    return tacit_status_of_input(
        tacit_model_load(out, c->model, c->mmproj.item, c->mmproj.count, NULL, err), err);
}

/* No result stands where something is read from. */
static tacit_status check_results(const adapter_command *c, const char *const *result, size_t n,
                                  const char *const *source, size_t m, tacit_error *err)
{
    tacit_status status = tacit_file_check_results(result, n, source, m, err);
    if (status == TACIT_OK)
        status = tacit_file_check_results(result, n, c->mmproj.item, c->mmproj.count, err);
    return status;
}

/* ---- info ---- */

#define BASE_UNKNOWN "unknown: only shapes tell what it fits"

static const char *base_word(const adapter_about *a, const tacit_model *m)
{
    if (!m || !a->keys.info.has_base_digest)
        return "";
    bool same =
        memcmp(tacit_model_base_digest(m), a->keys.info.base_digest, TACIT_DIGEST_BYTES) == 0;
    return same ? " (this model)" : " (not this model)";
}

static json_t *targets_json(const adapter_about *a)
{
    json_t *list = json_array();
    for (size_t i = 0; i < a->n_targets; i++)
        json_array_append_new(list, json_pack("{s:o,s:I,s:I}", "target",
                                              tacit_json_name(a->target[i].name), "rank",
                                              (json_int_t)a->target[i].rank, "pairs",
                                              (json_int_t)a->target[i].pairs));
    return list;
}

/* Versions beyond what JSON's integers hold here are none that a program ever wrote. */
static json_t *whole_number(uint64_t v)
{
    return v <= INT64_MAX ? json_integer((json_int_t)v) : json_null();
}

static tacit_status info_json(const adapter_about *a, const char *path, const tacit_model *m,
                              tacit_error *err)
{
    const tacit_adapter_info *i = &a->keys.info;
    char base[2 * TACIT_DIGEST_BYTES + 1], lineage[2 * sizeof i->lineage + 1];
    tacit_hex(base, i->base_digest, TACIT_DIGEST_BYTES);
    tacit_hex(lineage, i->lineage, sizeof i->lineage);
    const char *word = base_word(a, m);
    json_t *same = *word ? json_boolean(strcmp(word, " (this model)") == 0) : json_null();
    json_t *o = json_pack(
        "{s:o,s:s,s:o,s:s?,s:o,s:o,s:o,s:s,s:o,s:o,s:I,s:o,s:o,s:o,s:o}", "file",
        tacit_json_name(path), "kind", a->keys.type, "architecture",
        tacit_json_name_of(a->architecture.data, a->architecture.size), "base_digest",
        i->has_base_digest ? base : NULL, "base_is_model", same, "version",
        whole_number(i->version), "parent_version", whole_number(i->parent_version), "lineage",
        lineage, "canaries", whole_number(i->canaries), "alpha",
        a->keys.alpha > 0 ? json_real(a->keys.alpha) : json_null(), "pairs", (json_int_t)a->pairs,
        "values", whole_number(a->values), "targets", targets_json(a), "virtual_tokens",
        whole_number(a->text_rows), "image_virtual_tokens", whole_number(a->image_rows));
    return tacit_json_print(o, TACIT_JSON_FLOAT_DIGITS, err);
}

static void print_line(const char *name, const char *text, size_t size)
{
    printf("%s: ", name);
    tacit_text_print(stdout, text, size, false);
    putchar('\n');
}

static void info_text(const adapter_about *a, const char *path, const tacit_model *m)
{
    const tacit_adapter_info *i = &a->keys.info;
    char base[2 * TACIT_DIGEST_BYTES + 1] = BASE_UNKNOWN, lineage[2 * sizeof i->lineage + 1];
    if (i->has_base_digest)
        tacit_hex(base, i->base_digest, TACIT_DIGEST_BYTES);
    tacit_hex(lineage, i->lineage, sizeof i->lineage);
    print_line("file", path, strlen(path));
    printf("kind: %s\n", a->keys.type);
    print_line("architecture", a->architecture.data, a->architecture.size);
    printf("base: %s%s\n", base, base_word(a, m));
    printf("version: %" PRIu64 ", made from %" PRIu64 "\nlineage: %s\n", i->version,
           i->parent_version, lineage);
    if (i->canaries)
        printf("canaries: %" PRIu64 " (for an audit, not to be used)\n", i->canaries);
    if (a->text_rows + a->image_rows > 0) {
        printf("rows before everything: %" PRIu64 "\nrows before a picture: %" PRIu64
               "\nvalues: %" PRIu64 "\n",
               a->text_rows, a->image_rows, a->values);
        return;
    }
    if (a->keys.alpha > 0)
        printf("alpha: %.9g\n", a->keys.alpha);
    else
        printf("alpha: none, pairs count as they are\n");
    printf("pairs: %zu\nvalues: %" PRIu64 "\ntargets:\n", a->pairs, a->values);
    for (size_t k = 0; k < a->n_targets; k++) {
        printf("  ");
        tacit_text_print(stdout, a->target[k].name, strlen(a->target[k].name), false);
        printf(": %zu of rank %" PRIu64 "\n", a->target[k].pairs, a->target[k].rank);
    }
}

/* Beside the model that it says it is of, or may be of, it must load. */
static tacit_status check_fit(const gguf_file *file, const adapter_about *a, const tacit_model *m,
                              tacit_error *err)
{
    tacit_adapter *loaded = NULL;
    if (strcmp(base_word(a, m), " (not this model)") == 0)
        return TACIT_OK;
    tacit_status status = adapter_from_file(&loaded, m, file, err);
    tacit_adapter_free(loaded);
    return status;
}

static tacit_status show_info(const adapter_command *c, const char *path, tacit_error *err)
{
    gguf_file *file = NULL;
    tacit_model *model = NULL;
    adapter_about about = {0};
    tacit_status status;
    TACIT_TRY(tacit_status_of_input(gguf_open(&file, path, err), err), out);
    TACIT_TRY(adapter_about_read(&about, file, err), out);
    if (c->model) {
        TACIT_TRY(load_model(&model, c, err), out);
        TACIT_TRY(check_fit(file, &about, model, err), out);
    }
    if (c->json)
        status = info_json(&about, path, model, err);
    else
        info_text(&about, path, model);
out:
    adapter_about_free(&about);
    tacit_model_free(model);
    gguf_close(file);
    return status;
}

tacit_status cmd_adapter_info(int argc, char **argv, tacit_error *err)
{
    adapter_command c = {0};
    const char *path = NULL;
    size_t n;
    bool help = false;
    const tacit_option table[] = {
        {"model", 'm', TACIT_OPTION_TEXT, &c.model, false, "TEXT.gguf",
         "tells whether the adapter is this model's, and then whether it fits", 0, 0},
        CMD_MMPROJ_ROW(&c.mmproj, false),
        {"json", 0, TACIT_OPTION_FLAG, &c.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit adapter info", "A.gguf", 1, 1,
                               "tells what an adapter is: its base, origin, ranks and targets"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, &path, &n, &help, err);
    if (status == TACIT_OK && !help && c.mmproj.count > 0 && !c.model)
        status = tacit_fail(err, TACIT_USAGE, "--mmproj belongs to a model; name it with -m");
    return status == TACIT_OK && !help ? show_info(&c, path, err) : status;
}

/* ---- export ---- */

static tacit_status report(const adapter_command *c, const char *format, size_t pairs,
                           tacit_error *err)
{
    if (c->json)
        return tacit_json_print(json_pack("{s:o,s:s,s:I}", "out", tacit_json_name(c->out), "format",
                                          format, "pairs", (json_int_t)pairs),
                                TACIT_JSON_FLOAT_DIGITS, err);
    printf("%zu pairs written to ", pairs);
    tacit_text_print(stdout, c->out, strlen(c->out), false);
    printf(" (%s)\n", format);
    return TACIT_OK;
}

static tacit_status export_folder(const adapter_command *c, const char *adapter,
                                  const tacit_adapter *a, const tacit_model *m, tacit_error *err)
{
    char tensors[ADAPTER_SOURCE_PATH], config[ADAPTER_SOURCE_PATH];
    const char *const result[] = {tensors, config}, *const source[] = {c->model, adapter};
    tacit_status status;
    TACIT_TRY(tacit_file_join(tensors, sizeof tensors, c->out, PEFT_TENSORS_NAME, err), out);
    TACIT_TRY(tacit_file_join(config, sizeof config, c->out, PEFT_CONFIG_NAME, err), out);
    if (access(c->out, F_OK) == 0) /* else nothing that is read can lie in it */
        TACIT_TRY(check_results(c, result, 2, source, 2, err), out);
    TACIT_TRY(adapter_export_peft(c->out, a, m, c->base, err), out);
    if (!c->base)
        tacit_log_info("%s names no base model; --base NAME says which one PEFT is to load",
                       config);
out:
    return status;
}

static tacit_status export_adapter(const adapter_command *c, const char *path, tacit_error *err)
{
    const char *const source[] = {c->model, path};
    tacit_model *model = NULL;
    tacit_adapter *adapter = NULL;
    bool gguf = strcmp(c->format, "gguf") == 0;
    tacit_status status = TACIT_OK;
    if (gguf)
        TACIT_TRY(check_results(c, &c->out, 1, source, 2, err), out);
    TACIT_TRY(load_model(&model, c, err), out);
    TACIT_TRY(tacit_status_of_input(tacit_adapter_load(&adapter, model, path, err), err), out);
    if (gguf)
        TACIT_TRY(adapter_export_gguf(c->out, adapter, model, err), out);
    else
        TACIT_TRY(export_folder(c, path, adapter, model, err), out);
    status = report(c, c->format, adapter_pair_count(adapter), err);
out:
    tacit_adapter_free(adapter);
    tacit_model_free(model);
    return status;
}

static tacit_status check_export(const adapter_command *c, tacit_error *err)
{
    bool peft = strcmp(c->format, "peft") == 0;
    if (!peft && strcmp(c->format, "gguf") != 0)
        return tacit_fail(err, TACIT_USAGE, "--format %s: expected peft or gguf", c->format);
    if (c->base && !peft)
        return tacit_fail(err, TACIT_USAGE, "--base is of --format peft");
    if (c->base && !tacit_utf8_valid((const uint8_t *)c->base, strlen(c->base)))
        return tacit_fail(err, TACIT_USAGE, "--base: expected a name in UTF-8");
    return TACIT_OK;
}

tacit_status cmd_adapter_export(int argc, char **argv, tacit_error *err)
{
    adapter_command c = {.format = "peft"};
    const char *path = NULL;
    size_t n;
    bool help = false;
    const tacit_option table[] = {
        CMD_MODEL_ROW(&c.model),
        CMD_MMPROJ_ROW(&c.mmproj, false),
        {"out", 'o', TACIT_OPTION_TEXT, &c.out, true, "PLACE",
         "folder for PEFT, which is made where it is not there; file for gguf", 0, 0},
        {"format", 0, TACIT_OPTION_TEXT, &c.format, false, "FORMAT",
         "peft, or gguf: an ordinary LoRA, also from a core (peft)", 0, 0},
        {"base", 0, TACIT_OPTION_TEXT, &c.base, false, "NAME",
         "the base as Hugging Face names it, for PEFT's configuration", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &c.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {"tacit adapter export", "A.gguf", 1, 1,
                               "writes an adapter for Hugging Face PEFT or llama.cpp"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, &path, &n, &help, err);
    if (status == TACIT_OK && !help)
        status = check_export(&c, err);
    return status == TACIT_OK && !help ? export_adapter(&c, path, err) : status;
}

/* ---- import ---- */

static tacit_status import_adapter(const adapter_command *c, const char *path, tacit_error *err)
{
    adapter_source from;
    const char *const source[] = {c->model, from.tensors, from.config};
    tacit_model *model = NULL;
    size_t pairs;
    tacit_status status;
    TACIT_TRY(adapter_source_find(&from, path, err), out);
    TACIT_TRY(check_results(c, &c->out, 1, source, 3, err), out);
    TACIT_TRY(load_model(&model, c, err), out);
    TACIT_TRY(adapter_import(c->out, &from, model, &pairs, err), out);
    status = report(c, "gguf", pairs, err);
out:
    tacit_model_free(model);
    return status;
}

tacit_status cmd_adapter_import(int argc, char **argv, tacit_error *err)
{
    adapter_command c = {0};
    const char *path = NULL;
    size_t n;
    bool help = false;
    const tacit_option table[] = {
        CMD_MODEL_ROW(&c.model),
        CMD_MMPROJ_ROW(&c.mmproj, false),
        {"out", 'o', TACIT_OPTION_TEXT, &c.out, true, "A.gguf", "adapter to write", 0, 0},
        {"json", 0, TACIT_OPTION_FLAG, &c.json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {
        "tacit adapter import", "DIR", 1, 1,
        "makes an adapter of what PEFT saved: a folder, or its " PEFT_TENSORS_NAME};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, &path, &n, &help, err);
    return status == TACIT_OK && !help ? import_adapter(&c, path, err) : status;
}
