/* Room-private: a YAML file as a flat list of nodes with their paths, read strictly. Keys are ASCII
 * names; duplicates, anchors, aliases, tags, other documents and deep nesting are refused here. */
#ifndef TACIT_COMMON_YAML_NODES_H
#define TACIT_COMMON_YAML_NODES_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

#define YAML_PATH_MAX 256
#define YAML_DEPTH_MAX 6
#define YAML_NODES_MAX 4096

typedef enum yaml_node_kind { YAML_NODE_SCALAR, YAML_NODE_MAP, YAML_NODE_LIST } yaml_node_kind;

typedef struct yaml_node {
    yaml_node_kind kind;
    char path[YAML_PATH_MAX]; /* "policy.epsilon", "models[0].text"; the root map has none */
    size_t line;              /* from 1 */
    size_t count;             /* of a list's items */
    char *value;              /* scalar: NUL-terminated, no NUL inside; else NULL */
    bool is_plain;            /* scalar: written without quotes */
} yaml_node;

typedef struct yaml_nodes {
    yaml_node *node;
    size_t count, capacity;
} yaml_nodes;

/* `name` stands for the file in errors. TACIT_BAD_INPUT. Free with yaml_nodes_free. */
tacit_status yaml_nodes_parse(yaml_nodes *out, const char *name, const char *text, size_t size,
                              tacit_error *err) TACIT_MUST_CHECK;
void yaml_nodes_free(yaml_nodes *nodes);

/* NULL when there is none. */
const yaml_node *yaml_nodes_find(const yaml_nodes *nodes, const char *path);

/* "a text", "a map", "a list" */
const char *yaml_node_kind_name(yaml_node_kind kind);

#endif
