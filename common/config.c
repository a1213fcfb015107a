#include "common/config.h"

#include "common/file.h"
#include "common/text.h"
#include "common/yaml_nodes.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, TEXT_MAX = 4096, COUNT_MAX = 256 };
#define INTEGER_MAX 9007199254740992.0 /* 2^53 */

/* What one value is read with. */
typedef struct place {
    const char *name; /* the file */
    const tacit_config_row *row;
    const yaml_node *node;
    void *to;
} place;

static tacit_status fail_at(const place *p, tacit_error *err, const char *expected)
{
    const char *found =
        p->node->kind == YAML_NODE_SCALAR ? p->node->value : yaml_node_kind_name(p->node->kind);
    return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: %s: expected %s, found '%.80s'", p->name,
                      p->node->line, p->node->path, expected, found);
}

/* The number parsers explain themselves; their line gets the place in front. */
static tacit_status fail_number(const place *p, const tacit_error *why, tacit_error *err)
{
    return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: %s", p->name, p->node->line, why->message);
}

static double low_of(const tacit_config_row *row, double otherwise)
{
    return row->min == 0 && row->max == 0 ? otherwise : row->min;
}

static double high_of(const tacit_config_row *row, double otherwise)
{
    return row->min == 0 && row->max == 0 ? otherwise : row->max;
}

/* --- One value of each kind --- */

static bool is_null(const yaml_node *node)
{
    return node->is_plain && (!*node->value || !strcmp(node->value, "~") ||
                              !strcmp(node->value, "null") || !strcmp(node->value, "Null"));
}

static tacit_status copy_text(const place *p, char **out, tacit_error *err)
{
    size_t size = strlen(p->node->value);
    bool bounded = p->row->kind == TACIT_CONFIG_TEXT;
    if (is_null(p->node))
        return fail_at(p, err, "a text");
    if (!tacit_text_is_plain(p->node->value, size))
        return fail_at(p, err, "a text without control characters");
    if ((double)size < (bounded ? low_of(p->row, 1) : 1) ||
        (double)size > (bounded ? high_of(p->row, TEXT_MAX) : TEXT_MAX))
        return fail_at(p, err, "a text of another length");
    *out = strdup(p->node->value);
    return *out ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", p->name);
}

static tacit_status read_text(const place *p, tacit_error *err)
{
    char **to = p->to, *made = NULL;
    tacit_status status = copy_text(p, &made, err);
    if (status == TACIT_OK) {
        free(*to);
        *to = made;
    }
    return status;
}

static tacit_status read_u64(const place *p, tacit_error *err)
{
    tacit_error why;
    double high = high_of(p->row, INTEGER_MAX);
    uint64_t most = high >= 18446744073709551615.0 ? UINT64_MAX : (uint64_t)high;
    if (tacit_parse_u64(p->node->value, p->node->path, (uint64_t)low_of(p->row, 0), most, p->to,
                        &why) != TACIT_OK)
        return fail_number(p, &why, err);
    return TACIT_OK;
}

static tacit_status read_i64(const place *p, tacit_error *err)
{
    tacit_error why;
    if (tacit_parse_i64(p->node->value, p->node->path, (int64_t)low_of(p->row, -INTEGER_MAX),
                        (int64_t)high_of(p->row, INTEGER_MAX), p->to, &why) != TACIT_OK)
        return fail_number(p, &why, err);
    return TACIT_OK;
}

static tacit_status read_real(const place *p, tacit_error *err)
{
    tacit_error why;
    if (tacit_parse_f64(p->node->value, p->node->path, low_of(p->row, -DBL_MAX),
                        high_of(p->row, DBL_MAX), p->to, &why) != TACIT_OK)
        return fail_number(p, &why, err);
    return TACIT_OK;
}

static tacit_status read_bool(const place *p, tacit_error *err)
{
    bool is_true = strcmp(p->node->value, "true") == 0;
    if (!p->node->is_plain || (!is_true && strcmp(p->node->value, "false") != 0))
        return fail_at(p, err, "true or false");
    *(bool *)p->to = is_true;
    return TACIT_OK;
}

static tacit_status read_word(const place *p, tacit_error *err)
{
    char expected[256] = "one of";
    for (int i = 0; p->row->words[i]; i++) {
        if (strcmp(p->row->words[i], p->node->value) == 0) {
            *(int *)p->to = i;
            return TACIT_OK;
        }
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s %s", i ? "," : "", p->row->words[i]);
    }
    return fail_at(p, err, expected);
}

static const struct {
    yaml_node_kind takes;
    tacit_status (*read)(const place *p, tacit_error *err); /* NULL: LIST and ITEMS */
} kinds[] = {
    [TACIT_CONFIG_TEXT] = {YAML_NODE_SCALAR, read_text},
    [TACIT_CONFIG_U64] = {YAML_NODE_SCALAR, read_u64},
    [TACIT_CONFIG_I64] = {YAML_NODE_SCALAR, read_i64},
    [TACIT_CONFIG_REAL] = {YAML_NODE_SCALAR, read_real},
    [TACIT_CONFIG_BOOL] = {YAML_NODE_SCALAR, read_bool},
    [TACIT_CONFIG_WORD] = {YAML_NODE_SCALAR, read_word},
    [TACIT_CONFIG_LIST] = {YAML_NODE_LIST, NULL},
    [TACIT_CONFIG_ITEMS] = {YAML_NODE_LIST, NULL},
};

/* --- Lists --- */

static void free_list(tacit_config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->item[i]);
    free(list->item);
    *list = (tacit_config_list){0};
}

static tacit_status check_count(const place *p, tacit_error *err)
{
    double count = (double)p->node->count;
    char expected[80];
    if (count >= low_of(p->row, 0) && count <= high_of(p->row, COUNT_MAX))
        return TACIT_OK;
    snprintf(expected, sizeof expected, "%.0f to %.0f entries", low_of(p->row, 0),
             high_of(p->row, COUNT_MAX));
    return fail_at(p, err, expected);
}

static tacit_status find_item(const place *p, const yaml_nodes *nodes, size_t i,
                              yaml_node_kind kind, place *item, tacit_error *err)
{
    char path[YAML_PATH_MAX];
    snprintf(path, sizeof path, "%.240s[%zu]", p->node->path, i);
    *item = *p;
    item->node = yaml_nodes_find(nodes, path);
    if (!item->node)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: %s: unreadable", p->name, p->node->line,
                          path);
    if (item->node->kind != kind)
        return fail_at(item, err, yaml_node_kind_name(kind));
    return TACIT_OK;
}

static tacit_status read_list(const place *p, const yaml_nodes *nodes, tacit_error *err)
{
    tacit_config_list list = {0};
    tacit_status status = check_count(p, err);
    if (status != TACIT_OK)
        return status;
    list.item = calloc(p->node->count + 1, sizeof *list.item);
    if (!list.item)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", p->name);
    for (size_t i = 0; i < p->node->count; i++, list.count++) {
        place item;
        TACIT_TRY(find_item(p, nodes, i, YAML_NODE_SCALAR, &item, err), failed);
        TACIT_TRY(copy_text(&item, &list.item[i], err), failed);
    }
    free_list(p->to);
    *(tacit_config_list *)p->to = list;
    return TACIT_OK;
failed:
    free_list(&list);
    return status;
}

/* --- Tables over nodes --- */

static const char *join_path(char out[YAML_PATH_MAX], const char *prefix, const char *key)
{
    snprintf(out, YAML_PATH_MAX, "%.180s%s%.70s", prefix, *prefix ? "." : "", key);
    return out;
}

/* Rows without ITEMS of their own: a table's plain rows, or the rows of one item. */
static tacit_status read_row(const char *name, const yaml_nodes *nodes, const char *prefix,
                             const tacit_config_row *row, void *base, place *p, tacit_error *err)
{
    char path[YAML_PATH_MAX];
    const yaml_node *node = yaml_nodes_find(nodes, join_path(path, prefix, row->key));
    *p = (place){name, row, node, (char *)base + row->at};
    if (!node && row->required)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: %s: missing%s%s", name, path,
                          row->help ? "; it is " : "", row->help ? row->help : "");
    if (!node)
        return TACIT_OK;
    if (node->kind != kinds[row->kind].takes)
        return fail_at(p, err, yaml_node_kind_name(kinds[row->kind].takes));
    if (row->kind == TACIT_CONFIG_LIST)
        return read_list(p, nodes, err);
    return kinds[row->kind].read ? kinds[row->kind].read(p, err) : TACIT_OK;
}

static void free_rows(const tacit_config_row *rows, void *base)
{
    for (const tacit_config_row *row = rows; row->key; row++) {
        void *at = (char *)base + row->at;
        if (row->kind == TACIT_CONFIG_TEXT) {
            free(*(char **)at);
            *(char **)at = NULL;
        } else if (row->kind == TACIT_CONFIG_LIST) {
            free_list(at);
        }
    }
}

static void free_items(const tacit_config_row *row, tacit_config_items *items)
{
    for (size_t i = 0; i < items->count; i++)
        free_rows(row->item_rows, (char *)items->item + i * row->item_size);
    free(items->item);
    *items = (tacit_config_items){0};
}

static tacit_status read_item(const place *p, const yaml_nodes *nodes, size_t i, void *base,
                              tacit_error *err)
{
    place item, unused;
    tacit_status status = find_item(p, nodes, i, YAML_NODE_MAP, &item, err);
    if (status == TACIT_OK && p->row->item_defaults)
        p->row->item_defaults(base);
    for (const tacit_config_row *row = p->row->item_rows; status == TACIT_OK && row->key; row++)
        status = read_row(p->name, nodes, item.node->path, row, base, &unused, err);
    return status;
}

static tacit_status read_items(const place *p, const yaml_nodes *nodes, tacit_error *err)
{
    tacit_config_items items = {0};
    tacit_status status = check_count(p, err);
    if (status != TACIT_OK)
        return status;
    items.item = calloc(p->node->count + 1, p->row->item_size);
    if (!items.item)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", p->name);
    items.count = p->node->count;
    for (size_t i = 0; i < items.count && status == TACIT_OK; i++)
        status = read_item(p, nodes, i, (char *)items.item + i * p->row->item_size, err);
    if (status != TACIT_OK) {
        free_items(p->row, &items);
        return status;
    }
    free_items(p->row, p->to);
    *(tacit_config_items *)p->to = items;
    return TACIT_OK;
}

static tacit_status read_rows(const char *name, const yaml_nodes *nodes,
                              const tacit_config_row *rows, void *to, tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (const tacit_config_row *row = rows; status == TACIT_OK && row->key; row++) {
        place p;
        status = read_row(name, nodes, "", row, to, &p, err);
        if (status == TACIT_OK && p.node && row->kind == TACIT_CONFIG_ITEMS)
            status = read_items(&p, nodes, err);
    }
    return status;
}

/* --- Unknown keys --- */

/* Behind "[3]" at the start of `text`, or NULL. */
static const char *skip_index(const char *text)
{
    if (*text != '[')
        return NULL;
    const char *end = strchr(text, ']');
    return end ? end + 1 : NULL;
}

static bool is_known_plain(const tacit_config_row *row, const yaml_node *node, const char *path)
{
    size_t key = strlen(row->key), size = strlen(path);
    if (node->kind == YAML_NODE_MAP && size < key && strncmp(row->key, path, size) == 0 &&
        (size == 0 || row->key[size] == '.'))
        return true;
    if (strncmp(row->key, path, key) != 0)
        return false;
    if (path[key] == 0)
        return true;
    const char *rest = skip_index(path + key);
    return row->kind == TACIT_CONFIG_LIST && rest && *rest == 0;
}

static bool is_known(const tacit_config_row *rows, const yaml_node *node)
{
    for (const tacit_config_row *row = rows; row->key; row++) {
        size_t key = strlen(row->key);
        if (is_known_plain(row, node, node->path))
            return true;
        if (row->kind != TACIT_CONFIG_ITEMS || strncmp(row->key, node->path, key) != 0)
            continue;
        const char *rest = skip_index(node->path + key);
        if (rest && *rest == 0)
            return true;
        for (const tacit_config_row *inner = row->item_rows; rest && *rest == '.' && inner->key;
             inner++)
            if (is_known_plain(inner, node, rest + 1))
                return true;
    }
    return false;
}

/* True for a value that stands where rows expect a map: "policy: 3". */
static bool stands_for_map(const tacit_config_row *rows, const char *path)
{
    size_t size = strlen(path);
    for (const tacit_config_row *row = rows; row->key; row++)
        if (strncmp(row->key, path, size) == 0 && row->key[size] == '.')
            return true;
    return false;
}

static tacit_status refuse_unknown(const char *name, const yaml_nodes *nodes,
                                   const tacit_config_row *rows, tacit_error *err)
{
    for (size_t i = 0; i < nodes->count; i++) {
        const yaml_node *node = &nodes->node[i];
        if (is_known(rows, node))
            continue;
        place p = {.name = name, .node = node};
        if (stands_for_map(rows, node->path))
            return fail_at(&p, err, yaml_node_kind_name(YAML_NODE_MAP));
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s:%zu: %s: unknown key; remove it or check its spelling", name,
                          node->line, node->path);
    }
    return TACIT_OK;
}

/* --- Files --- */

void tacit_config_free(const tacit_config_row *rows, void *to)
{
    free_rows(rows, to);
    for (const tacit_config_row *row = rows; row->key; row++)
        if (row->kind == TACIT_CONFIG_ITEMS)
            free_items(row, (tacit_config_items *)(void *)((char *)to + row->at));
}

tacit_status tacit_config_parse(const char *name, const char *text, size_t size,
                                const tacit_config_row *rows, void *to, tacit_error *err)
{
    yaml_nodes nodes = {0};
    tacit_status status;
    if (size > FILE_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: expected at most %d bytes, found %zu", name,
                          FILE_MAX, size);
    TACIT_TRY(yaml_nodes_parse(&nodes, name, text, size, err), done);
    TACIT_TRY(refuse_unknown(name, &nodes, rows, err), done);
    TACIT_TRY(read_rows(name, &nodes, rows, to, err), done);
done:
    yaml_nodes_free(&nodes);
    if (status != TACIT_OK)
        tacit_config_free(rows, to);
    return status;
}

tacit_status tacit_config_read(const char *path, const tacit_config_row *rows, void *to,
                               tacit_error *err)
{
    uint8_t *text;
    size_t size;
    tacit_status status = tacit_file_read(path, FILE_MAX, &text, &size, err);
    if (status != TACIT_OK) {
        tacit_config_free(rows, to);
        return status;
    }
    status = tacit_config_parse(path, (const char *)text, size, rows, to, err);
    free(text);
    return status;
}

tacit_status tacit_config_anchor(char **path, const char *dir, tacit_error *err)
{
    char joined[4096];
    if (!*path || **path == '/')
        return TACIT_OK;
    tacit_status status = tacit_file_join(joined, sizeof joined, dir, *path, err);
    if (status != TACIT_OK)
        return status;
    char *copy = strdup(joined);
    if (!copy)
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory", joined);
    free(*path);
    *path = copy;
    return TACIT_OK;
}
