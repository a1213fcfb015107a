#include "common/yaml_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* An open map or list. In a map `key` is the path of the value that comes next, once a key was
 * read; in a list `index` counts. */
typedef struct level {
    size_t node; /* index of the map or list */
    bool is_map;
    bool has_key;
    char key[YAML_PATH_MAX];
    size_t index;
} level;

typedef struct reader {
    const char *name;
    yaml_nodes *nodes;
    level levels[YAML_DEPTH_MAX];
    size_t depth;
    size_t documents;
} reader;

static size_t line_of(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

const char *yaml_node_kind_name(yaml_node_kind kind)
{
    static const char *const names[] = {"a text", "a map", "a list"};
    return names[kind];
}

const yaml_node *yaml_nodes_find(const yaml_nodes *nodes, const char *path)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (strcmp(nodes->node[i].path, path) == 0)
            return &nodes->node[i];
    return NULL;
}

void yaml_nodes_free(yaml_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        free(nodes->node[i].value);
    free(nodes->node);
    *nodes = (yaml_nodes){0};
}

/* --- Keys --- */

static bool is_key(const char *text, size_t size)
{
    if (size == 0 || size > 64)
        return false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-'))
            return false;
    }
    return true;
}

static tacit_status take_key(reader *r, const yaml_event_t *event, tacit_error *err)
{
    level *top = &r->levels[r->depth - 1];
    const char *text = (const char *)event->data.scalar.value;
    size_t size = event->data.scalar.length;
    const char *parent = r->nodes->node[top->node].path;
    if (!is_key(text, size))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s:%zu: expected a key of letters, digits, '_' and '-', found '%.64s'",
                          r->name, line_of(event), text);
    int n = snprintf(top->key, sizeof top->key, "%s%s%s", parent, *parent ? "." : "", text);
    if (n < 0 || (size_t)n >= sizeof top->key)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: %s: the path is too long", r->name,
                          line_of(event), text);
    const yaml_node *earlier = yaml_nodes_find(r->nodes, top->key);
    if (earlier)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: %s: given twice, first in line %zu",
                          r->name, line_of(event), top->key, earlier->line);
    top->has_key = true;
    return TACIT_OK;
}

/* The path of the value that starts now. */
static tacit_status next_path(reader *r, const yaml_event_t *event, char out[YAML_PATH_MAX],
                              tacit_error *err)
{
    out[0] = 0;
    if (r->depth == 0)
        return TACIT_OK;
    level *top = &r->levels[r->depth - 1];
    if (top->is_map) {
        top->has_key = false;
        memcpy(out, top->key, YAML_PATH_MAX);
        return TACIT_OK;
    }
    yaml_node *list = &r->nodes->node[top->node];
    int n = snprintf(out, YAML_PATH_MAX, "%.240s[%zu]", list->path, top->index++);
    list->count = top->index;
    if (n < 0 || n >= YAML_PATH_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: the path is too long", r->name,
                          line_of(event));
    return TACIT_OK;
}

/* --- Nodes --- */

static tacit_status add_node(reader *r, const yaml_event_t *event, yaml_node_kind kind,
                             yaml_node **out, tacit_error *err)
{
    yaml_nodes *nodes = r->nodes;
    char path[YAML_PATH_MAX];
    tacit_status status = next_path(r, event, path, err);
    if (status != TACIT_OK)
        return status;
    if (nodes->count == YAML_NODES_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: more than %d values", r->name,
                          line_of(event), YAML_NODES_MAX);
    if (nodes->count == nodes->capacity) {
        size_t more = nodes->capacity ? nodes->capacity * 2 : 64;
        yaml_node *grown = realloc(nodes->node, more * sizeof *grown);
        if (!grown)
            return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to read it", r->name);
        nodes->node = grown;
        nodes->capacity = more;
    }
    yaml_node *node = &nodes->node[nodes->count++];
    *node = (yaml_node){.kind = kind, .line = line_of(event)};
    memcpy(node->path, path, sizeof path);
    *out = node;
    return TACIT_OK;
}

static tacit_status add_scalar(reader *r, const yaml_event_t *event, tacit_error *err)
{
    yaml_node *node;
    size_t size = event->data.scalar.length;
    tacit_status status = add_node(r, event, YAML_NODE_SCALAR, &node, err);
    if (status != TACIT_OK)
        return status;
    if (strlen((const char *)event->data.scalar.value) != size)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: %s: a NUL in a text", r->name, node->line,
                          node->path);
    node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->value = strdup((const char *)event->data.scalar.value);
    return node->value ? TACIT_OK
                       : tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to read it", r->name);
}

static tacit_status open_level(reader *r, const yaml_event_t *event, bool is_map, tacit_error *err)
{
    yaml_node *node;
    if (r->depth == YAML_DEPTH_MAX)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: nested deeper than %d levels", r->name,
                          line_of(event), YAML_DEPTH_MAX);
    if (r->depth == 0 && !is_map)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: expected \"key: value\" lines", r->name,
                          line_of(event));
    tacit_status status = add_node(r, event, is_map ? YAML_NODE_MAP : YAML_NODE_LIST, &node, err);
    if (status == TACIT_OK)
        r->levels[r->depth++] = (level){.node = r->nodes->count - 1, .is_map = is_map};
    return status;
}

static bool wants_key(const reader *r)
{
    return r->depth && r->levels[r->depth - 1].is_map && !r->levels[r->depth - 1].has_key;
}

/* An anchor or a tag, which a configuration has no use for. */
static bool is_decorated(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor || event->data.scalar.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor || event->data.mapping_start.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor || event->data.sequence_start.tag;
    default:
        return event->type == YAML_ALIAS_EVENT;
    }
}

static tacit_status take_event(reader *r, const yaml_event_t *event, tacit_error *err)
{
    bool is_start =
        event->type == YAML_MAPPING_START_EVENT || event->type == YAML_SEQUENCE_START_EVENT;
    if (is_decorated(event))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "%s:%zu: anchors, aliases and tags are not used here; write the value "
                          "out",
                          r->name, line_of(event));
    if (event->type == YAML_DOCUMENT_START_EVENT && r->documents++)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: a second document; one is expected",
                          r->name, line_of(event));
    if (event->type == YAML_SCALAR_EVENT && wants_key(r))
        return take_key(r, event, err);
    if (is_start && wants_key(r))
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: expected a key", r->name, line_of(event));
    if (is_start)
        return open_level(r, event, event->type == YAML_MAPPING_START_EVENT, err);
    if (event->type == YAML_SCALAR_EVENT && r->depth == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: expected \"key: value\" lines", r->name,
                          line_of(event));
    if (event->type == YAML_SCALAR_EVENT)
        return add_scalar(r, event, err);
    if (event->type == YAML_MAPPING_END_EVENT || event->type == YAML_SEQUENCE_END_EVENT)
        r->depth--;
    return TACIT_OK;
}

static tacit_status read_events(reader *r, yaml_parser_t *parser, tacit_error *err)
{
    for (bool done = false; !done;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return tacit_fail(err, TACIT_BAD_INPUT, "%s:%zu: not YAML: %s", r->name,
                              parser->problem_mark.line + 1,
                              parser->problem ? parser->problem : "unreadable");
        tacit_status status = take_event(r, &event, err);
        done = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (status != TACIT_OK)
            return status;
    }
    if (r->nodes->count == 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "%s: the file is empty", r->name);
    return TACIT_OK;
}

tacit_status yaml_nodes_parse(yaml_nodes *out, const char *name, const char *text, size_t size,
                              tacit_error *err)
{
    yaml_parser_t parser;
    reader r = {.name = name, .nodes = out};
    *out = (yaml_nodes){0};
    if (!yaml_parser_initialize(&parser))
        return tacit_fail(err, TACIT_NO_MEMORY, "%s: no memory to read it", name);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    tacit_status status = read_events(&r, &parser, err);
    yaml_parser_delete(&parser);
    if (status != TACIT_OK)
        yaml_nodes_free(out);
    return status;
}
