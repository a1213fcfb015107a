/* `tacit inspect`: one JSON document is built; people get the same, printed as lines. */
#include "common/file.h"
#include "common/json_print.h"
#include "common/memory_limit.h"
#include "common/options.h"
#include "common/text.h"
#include "engine/commands.h"
#include "engine/safetensors.h"
#include "engine/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_TEXT = 72, FIRST_ELEMENTS = 8, TYPE_NUMBERS = 64 };

/* ---- the document ------------------------------------------------------------------------ */

/* JSON has neither inf nor nan. */
static json_t *json_number(double v, bool integer)
{
    if (integer && fabs(v) < 0x1p53)
        return json_integer((json_int_t)v);
    return isfinite(v) ? json_real(v) : json_null();
}

/* Getters of the key's own type: they succeed, but for integers beyond the signed ones. */
static json_t *json_value(const gguf_file *file, const char *key, gguf_value_type type)
{
    gguf_string text;
    bool flag;
    double real;
    int64_t integer;
    uint64_t large;
    if (type == GGUF_STRING && gguf_get_string(file, key, &text, NULL) == TACIT_OK)
        return tacit_json_name_of(text.data, text.size);
    if (type == GGUF_BOOL && gguf_get_bool(file, key, &flag, NULL) == TACIT_OK)
        return json_boolean(flag);
    if (gguf_get_f64(file, key, &real, NULL) == TACIT_OK)
        return json_number(real, false);
    if (gguf_get_i64(file, key, &integer, NULL) == TACIT_OK)
        return json_integer(integer);
    if (gguf_get_u64(file, key, 0, UINT64_MAX, &large, NULL) == TACIT_OK)
        return json_number((double)large, true);
    return json_null();
}

static json_t *json_element(const gguf_file *file, const char *key, gguf_value_type element,
                            size_t i)
{
    if (element == GGUF_STRING) {
        gguf_string text = gguf_array_string(file, key, i);
        return tacit_json_name_of(text.data, text.size);
    }
    double v = gguf_array_number(file, key, i);
    if (element == GGUF_BOOL)
        return json_boolean(v != 0);
    return json_number(v, element != GGUF_F32 && element != GGUF_F64);
}

static json_t *json_key(const gguf_file *file, size_t i)
{
    gguf_value_type type, element;
    size_t count;
    const char *key = gguf_key_at(file, i, &type);
    if (!gguf_array_info(file, key, &element, &count))
        return json_pack("{s:s,s:s,s:o}", "key", key, "type", gguf_value_type_name(type), "value",
                         json_value(file, key, type));
    json_t *first = json_array();
    for (size_t k = 0; k < count && k < FIRST_ELEMENTS; k++)
        json_array_append_new(first, json_element(file, key, element, k));
    return json_pack("{s:s,s:s,s:s,s:I,s:o}", "key", key, "type", "array", "element",
                     gguf_value_type_name(element), "count", (json_int_t)count, "first", first);
}

static json_t *json_keys(const gguf_file *file)
{
    json_t *keys = json_array();
    for (size_t i = 0; i < gguf_key_count(file); i++)
        json_array_append_new(keys, json_key(file, i));
    return keys;
}

static json_t *json_tensors(const gguf_file *file)
{
    json_t *tensors = json_array();
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        char type[TACIT_TYPE_TEXT];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->ne[d]));
        json_array_append_new(tensors, json_pack("{s:s,s:s,s:o,s:I}", "name", t->name, "type",
                                                 tacit_type_text(type, t->type), "shape", shape,
                                                 "bytes", (json_int_t)t->bytes));
    }
    return tensors;
}

/* By type, in the order of their numbers; those of numbers beyond the table are one row. */
static json_t *json_types(const gguf_file *file)
{
    json_int_t tensors[TYPE_NUMBERS] = {0}, bytes[TYPE_NUMBERS] = {0};
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        size_t row = t->type < TYPE_NUMBERS - 1 ? t->type : TYPE_NUMBERS - 1;
        tensors[row]++;
        bytes[row] += (json_int_t)t->bytes;
    }
    json_t *types = json_array();
    for (uint32_t type = 0; type < TYPE_NUMBERS; type++) {
        char text[TACIT_TYPE_TEXT];
        const char *name = type < TYPE_NUMBERS - 1 ? tacit_type_text(text, type) : "higher numbers";
        if (tensors[type])
            json_array_append_new(types, json_pack("{s:s,s:I,s:I}", "type", name, "tensors",
                                                   tensors[type], "bytes", bytes[type]));
    }
    return types;
}

/* File types that are mixtures: what other programs call them. */
static const struct {
    uint64_t number;
    const char *name;
} mixtures[] = {{10, "q2_k"},   {11, "q3_k_s"}, {12, "q3_k_m"}, {13, "q3_k_l"}, {15, "q4_k_m"},
                {17, "q5_k_m"}, {25, "iq4_nl"}, {30, "iq4_xs"}, {38, "mxfp4"}};

/* {"number": 7, "name": "q8_0"}: what most values are said to be. null where the file says nothing,
 * the name where nobody here knows the number. */
static json_t *json_file_type(const gguf_file *file)
{
    uint64_t number;
    const char *name = NULL;
    if (gguf_get_u64(file, "general.file_type", 0, INT32_MAX, &number, NULL) != TACIT_OK)
        return json_null();
    for (size_t i = 0; tacit_type_at(i); i++)
        if (tacit_type_at(i)->file_type == number)
            name = tacit_type_at(i)->name;
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
        if (mixtures[i].number == number)
            name = mixtures[i].name;
    return json_pack("{s:I,s:s?}", "number", (json_int_t)number, "name", name);
}

static json_t *json_gaps(const support_gaps *gaps)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gaps->count; i++)
        json_array_append_new(list, json_pack("{s:s,s:o}", "what", gaps->gap[i].what, "why",
                                              tacit_json_name(gaps->gap[i].why)));
    return list;
}

static json_t *optional_text(const gguf_file *file, const char *key)
{
    gguf_string text;
    return gguf_get_string(file, key, &text, NULL) == TACIT_OK
               ? tacit_json_name_of(text.data, text.size)
               : json_null();
}

/* What a tensor of unknown size claims to hold is held against no file: sums end at the largest
 * number that JSON takes here. */
static json_int_t add_values(json_int_t sum, const gguf_tensor *t)
{
    uint64_t values;
    json_int_t more;
    bool fits = !__builtin_mul_overflow(t->ne[0], t->rows, &values) && values <= INT64_MAX &&
                !__builtin_add_overflow(sum, (json_int_t)values, &more);
    return fits ? more : INT64_MAX;
}

static json_t *describe(const gguf_file *file, const support_gaps *gaps)
{
    json_int_t parameters = 0, bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        parameters = add_values(parameters, t);
        bytes += (json_int_t)t->bytes;
    }
    return json_pack(
        "{s:o,s:s,s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:o}", "file", tacit_json_name(gguf_name(file)),
        "kind", support_kind(file), "architecture", optional_text(file, "general.architecture"),
        "name", optional_text(file, "general.name"), "file_type", json_file_type(file),
        "parameters", parameters, "bytes", bytes, "types", json_types(file), "keys",
        json_keys(file), "tensors", json_tensors(file), "unsupported", json_gaps(gaps));
}

/* ---- the same of a safetensors file ------------------------------------------------------- */

static void add_metadata(void *ctx, const char *key, const char *value)
{
    json_array_append_new(ctx,
                          json_pack("{s:s,s:s,s:s}", "key", key, "type", "string", "value", value));
}

static json_t *safetensors_tensors(const safetensors_file *file)
{
    json_t *tensors = json_array();
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor *t = safetensors_at(file, i);
        json_t *shape = json_array();
        for (size_t d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        json_array_append_new(tensors,
                              json_pack("{s:s,s:s,s:o,s:I}", "name", t->name, "type", t->dtype,
                                        "shape", shape, "bytes", (json_int_t)t->bytes));
    }
    return tensors;
}

/* Tensors and bytes of every element type, in the order in which the types appear. */
static json_t *safetensors_types(const safetensors_file *file)
{
    json_t *types = json_array();
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const safetensors_tensor *t = safetensors_at(file, i);
        size_t at = 0;
        while (at < json_array_size(types) &&
               strcmp(json_string_value(json_object_get(json_array_get(types, at), "type")),
                      t->dtype) != 0)
            at++;
        if (at == json_array_size(types))
            json_array_append_new(types, json_pack("{s:s,s:I,s:I}", "type", t->dtype, "tensors",
                                                   (json_int_t)0, "bytes", (json_int_t)0));
        json_t *row = json_array_get(types, at);
        json_t *tensors = json_object_get(row, "tensors"), *bytes = json_object_get(row, "bytes");
        json_integer_set(tensors, json_integer_value(tensors) + 1);
        json_integer_set(bytes, json_integer_value(bytes) + (json_int_t)t->bytes);
    }
    return types;
}

static json_t *describe_safetensors(const safetensors_file *file, const char *path)
{
    json_int_t parameters = 0, bytes = 0;
    json_t *keys = json_array();
    safetensors_each_metadata(file, add_metadata, keys);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        parameters += (json_int_t)safetensors_at(file, i)->values;
        bytes += (json_int_t)safetensors_at(file, i)->bytes;
    }
    return json_pack("{s:o,s:s,s:n,s:n,s:I,s:I,s:o,s:o,s:o,s:[]}", "file", tacit_json_name(path),
                     "kind", "safetensors", "architecture", "name", "parameters", parameters,
                     "bytes", bytes, "types", safetensors_types(file), "keys", keys, "tensors",
                     safetensors_tensors(file), "unsupported");
}

/* ---- for people -------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static long long number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

typedef struct shown_text {
    char text[SHOWN_TEXT];
    size_t used;
} shown_text;

/* Takes what is shown and refuses the rest, which ends the dump. */
static int take_shown(const char *text, size_t size, void *ctx)
{
    shown_text *s = ctx;
    size_t room = sizeof s->text - s->used, n = size < room ? size : room;
    memcpy(s->text + s->used, text, n);
    s->used += n;
    return n < size ? -1 : 0;
}

/* One line: strings escaped as in JSON and cut when they are long. */
static void print_value(const json_t *value)
{
    shown_text s = {.used = 0};
    bool whole = json_dump_callback(value, take_shown, &s,
                                    JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) == 0;
    printf("%.*s%s\n", (int)s.used, s.text, whole ? "" : "...");
}

static void print_key(const json_t *key)
{
    const json_t *value = json_object_get(key, "value");
    char type[48];
    if (value)
        snprintf(type, sizeof type, "%s", text_of(key, "type"));
    else
        snprintf(type, sizeof type, "%s[%lld]", text_of(key, "element"), number_of(key, "count"));
    printf("  %-44s %-14s ", text_of(key, "key"), type);
    print_value(value ? value : json_object_get(key, "first"));
}

static void print_list(const json_t *document, const char *name, void (*print)(const json_t *item))
{
    const json_t *list = json_object_get(document, name);
    if (json_array_size(list))
        printf("%s:\n", name);
    for (size_t i = 0; i < json_array_size(list); i++)
        print(json_array_get(list, i));
}

static void print_type(const json_t *type)
{
    printf("  %-8s %6lld tensors %14lld bytes\n", text_of(type, "type"), number_of(type, "tensors"),
           number_of(type, "bytes"));
}

static void print_tensor(const json_t *tensor)
{
    printf("  %-44s %-8s ", text_of(tensor, "name"), text_of(tensor, "type"));
    print_value(json_object_get(tensor, "shape"));
}

static void print_gap(const json_t *gap)
{
    printf("  %s: %s\n", text_of(gap, "what"), text_of(gap, "why"));
}

static void print_file_type(const json_t *type)
{
    if (json_is_object(type))
        printf("file type: %lld (%s)\n", number_of(type, "number"), text_of(type, "name"));
}

/* The answer that most people look for, before the long lists. What only means something beside a
 * model (adapters, importance matrices) was not judged. */
static void print_support(const json_t *document)
{
    size_t gaps = json_array_size(json_object_get(document, "unsupported"));
    const char *kind = text_of(document, "kind");
    if (gaps > 0)
        printf("supported: not fully, %zu reason%s at the end\n", gaps, gaps > 1 ? "s" : "");
    else if (strcmp(kind, "text") == 0 || strcmp(kind, "mmproj") == 0)
        printf("supported: yes\n");
}

static void print_document(const json_t *document)
{
    const char *file = text_of(document, "file");
    printf("file: ");
    tacit_text_print(stdout, file, strlen(file), false);
    printf("\nkind: %s\narchitecture: ", text_of(document, "kind"));
    print_value(json_object_get(document, "architecture"));
    printf("name: ");
    print_value(json_object_get(document, "name"));
    print_file_type(json_object_get(document, "file_type"));
    printf("parameters: %lld\nbytes: %lld\n", number_of(document, "parameters"),
           number_of(document, "bytes"));
    print_support(document);
    print_list(document, "types", print_type);
    print_list(document, "keys", print_key);
    print_list(document, "tensors", print_tensor);
    print_list(document, "unsupported", print_gap);
}

/* The texts that are listed, twice where they are no UTF-8, and once more while that is made. */
static tacit_status judge_texts(const gguf_file *file, tacit_error *err)
{
    uint64_t bytes = 0;
    char what[320];
    for (size_t i = 0; i < gguf_key_count(file); i++) {
        gguf_value_type element = GGUF_U8;
        gguf_string text = {NULL, 0};
        size_t count = 0;
        const char *key = gguf_key_at(file, i, NULL);
        if (gguf_get_string(file, key, &text, NULL) == TACIT_OK)
            bytes += text.size;
        else if (gguf_array_info(file, key, &element, &count) && element == GGUF_STRING)
            for (size_t k = 0; k < count && k < FIRST_ELEMENTS; k++)
                bytes += gguf_array_string(file, key, k).size;
    }
    snprintf(what, sizeof what, "%.256s: listing its texts", gguf_name(file));
    return tacit_memory_judge(4 * bytes, what, "inspect it where that much is", err);
}

static tacit_status describe_gguf_file(json_t **out, const char *path, tacit_error *err)
{
    gguf_file *file = NULL;
    support_gaps gaps = {0};
    tacit_status status;
    TACIT_TRY(gguf_open_to_list(&file, path, err), done);
    TACIT_TRY(judge_texts(file, err), done);
    TACIT_TRY(support_find_gaps(&gaps, file, err), done);
    *out = describe(file, &gaps);
done:
    support_gaps_free(&gaps);
    gguf_close(file);
    return status;
}

static tacit_status describe_safetensors_file(json_t **out, const char *path, tacit_error *err)
{
    safetensors_file *file;
    tacit_status status = safetensors_open(&file, path, err);
    if (status != TACIT_OK)
        return status;
    *out = describe_safetensors(file, path);
    safetensors_close(file);
    return TACIT_OK;
}

/* A header of JSON after its length, where GGUF has its version. A pipe is not waited for. */
static bool is_safetensors(const char *path)
{
    char start[9] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool whole = fd >= 0 && tacit_file_read_at(fd, start, sizeof start, 0);
    if (fd >= 0)
        close(fd);
    return whole && memcmp(start, "GGUF", 4) != 0 && start[8] == '{';
}

static tacit_status inspect(const char *path, bool json, tacit_error *err)
{
    json_t *document = NULL;
    tacit_status status = is_safetensors(path) ? describe_safetensors_file(&document, path, err)
                                               : describe_gguf_file(&document, path, err);
    if (status != TACIT_OK)
        return tacit_status_of_input(status, err);
    if (!document)
        status = tacit_fail(err, TACIT_NO_MEMORY, "no memory to describe %s", path);
    else if (json)
        return tacit_json_print(document, TACIT_JSON_DIGITS, err);
    else
        print_document(document);
    json_decref(document);
    return status;
}

tacit_status cmd_inspect(int argc, char **argv, tacit_error *err)
{
    const char *path = NULL;
    bool json = false, help;
    size_t n;
    const tacit_option table[] = {
        {"json", 0, TACIT_OPTION_FLAG, &json, false, NULL, "one JSON object", 0, 0},
        {.name = NULL},
    };
    const tacit_usage usage = {
        "tacit inspect", "FILE", 1, 1,
        "shows what a GGUF or safetensors file holds and what of it is not supported"};
    tacit_status status = tacit_options_parse(&usage, table, argc, argv, &path, &n, &help, err);
    if (status != TACIT_OK || help)
        return status;
    return inspect(path, json, err);
}
