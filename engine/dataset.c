#include "engine/dataset.h"

#include "common/bytes.h"
#include "common/file.h"
#include "common/log.h"
#include "common/memory_limit.h"
#include "common/name_set.h"
#include "common/secret.h"
#include "common/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES ((size_t)1 << 20)
#define FILE_MAX_BYTES ((size_t)1 << 30)
#define TEXT_MAX_ID 256
#define MAX_MESSAGES 1024
#define MAX_CONTENT 256
#define LISTED_LINES ((size_t)1000) /* bad ones: a file of 1 GB may have 500 million */

static const struct {
    const char *name;
    tacit_role role;
} role_names[] = {
    {"system", TACIT_ROLE_SYSTEM},
    {"user", TACIT_ROLE_USER},
    {"assistant", TACIT_ROLE_ASSISTANT},
};

/* A content item of type T carries its value under the key T. */
static const struct {
    const char *name;
    tacit_content_kind kind;
} content_names[] = {
    {"text", TACIT_CONTENT_TEXT},
    {"image", TACIT_CONTENT_IMAGE},
    {"audio", TACIT_CONTENT_AUDIO},
    {"sensor", TACIT_CONTENT_SENSOR},
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* The string under `key`, or NULL when the key is absent. */
static tacit_status optional_string(json_t *object, const char *key, const char **out,
                                    tacit_error *err)
{
    json_t *value = json_object_get(object, key);
    *out = NULL;
    if (!value)
        return TACIT_OK;
    if (!json_is_string(value))
        return tacit_fail(err, TACIT_BAD_INPUT, "'%s' must be a string", key);
    *out = json_string_value(value);
    return TACIT_OK;
}

static tacit_status required_string(json_t *object, const char *key, const char **out,
                                    tacit_error *err)
{
    tacit_status status = optional_string(object, key, out, err);
    if (status == TACIT_OK && !*out)
        status = tacit_fail(err, TACIT_BAD_INPUT, "'%s' is missing", key);
    return status;
}

static tacit_status check_keys(json_t *object, const char *const *allowed, const char *where,
                               tacit_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const char *const *name = allowed;
        while (*name && strcmp(*name, key) != 0)
            name++;
        if (!*name)
            return tacit_fail(err, TACIT_BAD_INPUT, "unknown key '%.64s' in %s", key, where);
    }
    return TACIT_OK;
}

static tacit_status copy_string(char **out, const char *text, tacit_error *err)
{
    *out = strdup(text);
    return *out ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "out of memory");
}

static tacit_status parse_identity(tacit_record *out, json_t *root, tacit_error *err)
{
    const char *id, *subject;
    tacit_status status = required_string(root, "id", &id, err);
    if (status == TACIT_OK)
        status = optional_string(root, "subject", &subject, err);
    if (status != TACIT_OK)
        return status;
    if (!id[0] || strlen(id) > TEXT_MAX_ID)
        return tacit_fail(err, TACIT_BAD_INPUT, "'id' must have 1 to %d bytes", TEXT_MAX_ID);
    if (subject && (!subject[0] || strlen(subject) > TEXT_MAX_ID))
        return tacit_fail(err, TACIT_BAD_INPUT, "'subject' must have 1 to %d bytes", TEXT_MAX_ID);
    status = copy_string(&out->id, id, err);
    return status == TACIT_OK && subject ? copy_string(&out->subject, subject, err) : status;
}

/* Media lie below the dataset's folder, so the lines of a dataset from elsewhere cannot name other
 * files. Links that stand in the folder are followed: who put them there meant it. */
static tacit_status resolve_media(char **out, const char *folder, const char *path,
                                  tacit_error *err)
{
    char full[4096];
    if (!tacit_file_path_is_inside(path))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "media path '%.128s' must be relative and stay inside the folder of the "
                          "dataset",
                          path);
    tacit_status status = tacit_file_join(full, sizeof full, folder, path, err);
    return status == TACIT_OK ? copy_string(out, full, err) : status;
}

static tacit_status parse_content(tacit_content *out, json_t *item, tacit_role role,
                                  const char *folder, tacit_error *err)
{
    const char *type, *value;
    size_t i = 0;
    if (!json_is_object(item))
        return tacit_fail(err, TACIT_BAD_INPUT, "a content item must be an object");
    tacit_status status = required_string(item, "type", &type, err);
    if (status != TACIT_OK)
        return status;
    while (i < COUNT(content_names) && strcmp(content_names[i].name, type) != 0)
        i++;
    if (i == COUNT(content_names))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "unknown content type '%.32s': expected text, image, audio or sensor",
                          type);
    const char *const allowed[] = {"type", content_names[i].name, NULL};
    status = check_keys(item, allowed, "a content item", err);
    if (status == TACIT_OK)
        status = required_string(item, content_names[i].name, &value, err);
    if (status != TACIT_OK)
        return status;
    out->kind = content_names[i].kind;
    if (out->kind == TACIT_CONTENT_TEXT)
        return copy_string(&out->text, value, err);
    if (role == TACIT_ROLE_ASSISTANT)
        return tacit_fail(err, TACIT_BAD_INPUT, "an assistant turn holds text only, found %s",
                          type);
    return resolve_media(&out->text, folder, value, err);
}

static tacit_status parse_role(tacit_role *out, json_t *message, tacit_error *err)
{
    const char *role;
    tacit_status status = required_string(message, "role", &role, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < COUNT(role_names); i++)
        if (strcmp(role_names[i].name, role) == 0) {
            *out = role_names[i].role;
            return TACIT_OK;
        }
    return tacit_fail(err, TACIT_BAD_INPUT,
                      "unknown role '%.32s': expected system, user or assistant", role);
}

/* "content" is a list of items or, as in the OpenAI API, one string. */
static tacit_status parse_message(tacit_message *out, json_t *message, const char *folder,
                                  tacit_error *err)
{
    static const char *const allowed[] = {"role", "content", NULL};
    if (!json_is_object(message))
        return tacit_fail(err, TACIT_BAD_INPUT, "a message must be an object");
    json_t *content = json_object_get(message, "content");
    bool plain = json_is_string(content);
    size_t count = plain ? 1 : json_array_size(content);
    tacit_status status = check_keys(message, allowed, "a message", err);
    if (status == TACIT_OK)
        status = parse_role(&out->role, message, err);
    if (status != TACIT_OK)
        return status;
    if (count == 0 || count > MAX_CONTENT)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "'content' must be a string or a list of 1 to %d items", MAX_CONTENT);
    out->content = calloc(count, sizeof *out->content);
    if (!out->content)
        return tacit_fail(err, TACIT_NO_MEMORY, "out of memory");
    out->n_content = count;
    if (plain)
        return copy_string(&out->content[0].text, json_string_value(content), err);
    for (size_t i = 0; i < count && status == TACIT_OK; i++)
        status =
            parse_content(&out->content[i], json_array_get(content, i), out->role, folder, err);
    return status;
}

static tacit_status check_turns(const tacit_record *r, tacit_error *err)
{
    bool user = false, assistant = false;
    for (size_t i = 0; i < r->n_messages; i++) {
        user |= r->message[i].role == TACIT_ROLE_USER;
        assistant |= r->message[i].role == TACIT_ROLE_ASSISTANT;
        if (r->message[i].role == TACIT_ROLE_SYSTEM && i > 0)
            return tacit_fail(err, TACIT_BAD_INPUT, "a system message must come first");
    }
    if (!user || !assistant)
        return tacit_fail(err, TACIT_BAD_INPUT, "no %s message", user ? "assistant" : "user");
    return TACIT_OK;
}

static tacit_status parse_messages(tacit_record *out, json_t *root, const char *folder,
                                   tacit_error *err)
{
    json_t *messages = json_object_get(root, "messages");
    size_t count = json_array_size(messages);
    tacit_status status = TACIT_OK;
    if (count == 0 || count > MAX_MESSAGES)
        return tacit_fail(err, TACIT_BAD_INPUT, "'messages' must be a list of 1 to %d messages",
                          MAX_MESSAGES);
    out->message = calloc(count, sizeof *out->message);
    if (!out->message)
        return tacit_fail(err, TACIT_NO_MEMORY, "out of memory");
    out->n_messages = count;
    for (size_t i = 0; i < count && status == TACIT_OK; i++)
        status = parse_message(&out->message[i], json_array_get(messages, i), folder, err);
    return status == TACIT_OK ? check_turns(out, err) : status;
}

tacit_status tacit_record_parse(tacit_record *out, const char *line, size_t size,
                                const char *folder, tacit_error *err)
{
    static const char *const allowed[] = {"id", "subject", "messages", NULL};
    json_error_t reason;
    memset(out, 0, sizeof *out);
    if (size > LINE_MAX_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT, "line of %zu bytes: at most %zu are allowed", size,
                          LINE_MAX_BYTES);
    /* jansson refuses NUL in strings and keys, invalid UTF-8 and nesting above 2048 by itself. */
    json_t *root = json_loadb(line, size, JSON_REJECT_DUPLICATES, &reason);
    if (!root)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "not JSON: %s (column %d); expected one object a line", reason.text,
                          reason.column);
    tacit_status status = json_is_object(root)
                              ? check_keys(root, allowed, "a record", err)
                              : tacit_fail(err, TACIT_BAD_INPUT, "a record must be an object");
    if (status == TACIT_OK)
        status = parse_identity(out, root, err);
    if (status == TACIT_OK)
        status = parse_messages(out, root, folder, err);
    json_decref(root);
    if (status != TACIT_OK)
        tacit_record_free(out);
    return status;
}

static void free_message(tacit_message *m)
{
    for (size_t i = 0; i < m->n_content; i++)
        tacit_wipe_free(m->content[i].text);
    free(m->content);
}

void tacit_record_free(tacit_record *r)
{
    for (size_t i = 0; i < r->n_messages; i++)
        free_message(&r->message[i]);
    free(r->message);
    tacit_wipe_free(r->id);
    tacit_wipe_free(r->subject);
    memset(r, 0, sizeof *r);
}

void tacit_dataset_free(tacit_dataset *d)
{
    for (size_t i = 0; i < d->count; i++)
        tacit_record_free(&d->record[i]);
    free(d->record);
    free(d->path);
    memset(d, 0, sizeof *d);
}

static const char *id_at(const void *dataset, size_t number)
{
    return ((const tacit_dataset *)dataset)->record[number].id;
}

static tacit_status read_record(tacit_dataset *d, tacit_name_set *ids, tacit_span line,
                                size_t number, const char *folder, tacit_error *err)
{
    tacit_record *record = &d->record[d->count];
    tacit_status status =
        tacit_record_parse(record, (const char *)line.data, line.size, folder, err);
    if (status != TACIT_OK)
        return status;
    size_t same = tacit_name_set_find(ids, record->id);
    if (same != TACIT_NAME_UNKNOWN)
        status = tacit_fail(err, TACIT_BAD_INPUT, "id '%s' was used in line %zu already",
                            record->id, d->record[same].line);
    else if (!tacit_name_set_add(ids, d->count))
        status = tacit_fail(err, TACIT_NO_MEMORY, "out of memory for ids");
    if (status != TACIT_OK) {
        tacit_record_free(record);
        return status;
    }
    record->line = number;
    d->count++;
    return TACIT_OK;
}

static bool is_blank(tacit_span line)
{
    for (size_t i = 0; i < line.size; i++)
        if (!memchr(" \t\r", line.data[i], 3))
            return false;
    return true;
}

static tacit_span next_line(tacit_cursor *c)
{
    size_t left = tacit_cursor_left(c);
    const uint8_t *from = c->data + c->at;
    const uint8_t *end = memchr(from, '\n', left);
    tacit_span line = tacit_cursor_take(c, end ? (size_t)(end - from) : left);
    if (end)
        (void)tacit_cursor_u8(c);
    return line;
}

/* Where the text begins: editors of some systems put a byte order mark before it (RFC 8259, 8.1).
 */
static size_t skip_mark(const uint8_t *data, size_t size)
{
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf};
    return size >= sizeof mark && memcmp(data, mark, sizeof mark) == 0 ? sizeof mark : 0;
}

static size_t count_lines(const uint8_t *data, size_t size)
{
    size_t lines = 1;
    for (const uint8_t *at = data; (at = memchr(at, '\n', (size_t)(data + size - at))); at++)
        lines++;
    return lines;
}

static tacit_status read_lines(tacit_dataset *d, tacit_name_set *ids, tacit_cursor text,
                               const char *folder, bool strict, tacit_error *err)
{
    for (size_t number = 1; tacit_cursor_left(&text) > 0; number++) {
        tacit_error reason = {0};
        tacit_span line = next_line(&text);
        if (is_blank(line))
            continue;
        tacit_status status = read_record(d, ids, line, number, folder, &reason);
        if (status == TACIT_OK)
            continue;
        if (strict || status != TACIT_BAD_INPUT)
            return tacit_fail(err, status, "%s:%zu: %s", d->path, number, reason.message);
        if (d->bad_lines++ < LISTED_LINES)
            tacit_log_warn("%s:%zu: %s; line skipped", d->path, number, reason.message);
    }
    if (d->bad_lines > LISTED_LINES)
        tacit_log_warn("%s: %zu more lines skipped, which are not listed", d->path,
                       d->bad_lines - LISTED_LINES);
    return TACIT_OK;
}

/* The folder part of a path; "." when there is none. */
static tacit_status folder_of(char **out, const char *path, tacit_error *err)
{
    const char *slash = strrchr(path, '/');
    tacit_status status = copy_string(out, slash ? path : ".", err);
    if (status == TACIT_OK && slash)
        (*out)[slash == path ? 1 : slash - path] = '\0';
    return status;
}

/* Records are small blocks by the thousand: their texts, and as much for what is around them. */
static tacit_status judge_records(const char *path, size_t size, size_t lines, tacit_error *err)
{
    char what[320];
    snprintf(what, sizeof what, "%.256s: its records", path);
    return tacit_memory_judge(2 * (uint64_t)size + lines * (uint64_t)sizeof(tacit_record), what,
                              "give a smaller file", err);
}

tacit_status tacit_dataset_load(tacit_dataset *out, const char *path, bool strict, tacit_error *err)
{
    uint8_t *data = NULL;
    size_t size = 0, lines;
    char *folder = NULL;
    tacit_name_set ids;
    tacit_status status;
    memset(out, 0, sizeof *out);
    tacit_name_set_init(&ids, id_at, out);
    TACIT_TRY(tacit_file_read(path, FILE_MAX_BYTES, &data, &size, err), done);
    TACIT_TRY(copy_string(&out->path, path, err), done);
    TACIT_TRY(folder_of(&folder, path, err), done);
    lines = count_lines(data, size);
    TACIT_TRY(judge_records(path, size, lines, err), done);
    out->record = calloc(lines, sizeof *out->record);
    if (!out->record) {
        status = tacit_fail(err, TACIT_NO_MEMORY, "%s: out of memory for %zu lines", path, lines);
        goto done;
    }
    size_t begin = skip_mark(data, size);
    tacit_cursor text = tacit_cursor_over(data + begin, size - begin);
    status = read_lines(out, &ids, text, folder, strict, err);
done:
    if (status != TACIT_OK)
        tacit_dataset_free(out);
    tacit_name_set_fini(&ids);
    free(folder);
    tacit_wipe_free(data);
    return status;
}
