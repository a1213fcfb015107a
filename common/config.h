/* Configuration files in YAML, read strictly by tables. Every key stands in a row; unknown keys,
 * duplicate keys, missing required keys, empty files, anchors, aliases, tags, second documents and
 * values of the wrong kind are errors that name file, line and key. Numbers are parsed by
 * common/text.h (whole string, finite, range, '.' as decimal point). At most 1 MiB.
 *
 *   typedef struct demo { char *server; double epsilon; uint64_t steps; bool fast;
 *                         tacit_config_list names; tacit_config_items models; } demo;
 *   typedef struct demo_model { char *text; tacit_config_list mmproj; } demo_model;
 *   static const tacit_config_row model_rows[] = {
 *       {.key = "text", .kind = TACIT_CONFIG_TEXT, .at = offsetof(demo_model, text),
 *        .required = true},
 *       {.key = "mmproj", .kind = TACIT_CONFIG_LIST, .at = offsetof(demo_model, mmproj)},
 *       {.key = NULL}};
 *   static const tacit_config_row rows[] = {
 *       {.key = "server", .kind = TACIT_CONFIG_TEXT, .at = offsetof(demo, server),
 *        .required = true, .min = 1, .max = 255},
 *       {.key = "policy.epsilon", .kind = TACIT_CONFIG_REAL, .at = offsetof(demo, epsilon),
 *        .required = true, .min = 0.01, .max = 100},
 *       {.key = "models", .kind = TACIT_CONFIG_ITEMS, .at = offsetof(demo, models),
 *        .item_rows = model_rows, .item_size = sizeof(demo_model), .max = 8},
 *       {.key = NULL}};
 *
 * reads
 *
 *   server: tls+tcp://example.org:7443
 *   policy:
 *     epsilon: 8
 *   models:
 *     - text: /m/nano.gguf
 *       mmproj: [/m/nano-mmproj.gguf]
 */
#ifndef TACIT_COMMON_CONFIG_H
#define TACIT_COMMON_CONFIG_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tacit_config_kind {
    TACIT_CONFIG_TEXT, /* char *: malloc'ed, valid UTF-8 without control bytes; min and max are
                        * its length in bytes, both 0: 1 to 4,096 */
    TACIT_CONFIG_U64,  /* uint64_t in [min, max]; both 0: 0 to 2^53 */
    TACIT_CONFIG_I64,  /* int64_t in [min, max]; both 0: -2^53 to 2^53 */
    TACIT_CONFIG_REAL, /* double in [min, max]; both 0: any finite number */
    TACIT_CONFIG_BOOL, /* bool: true or false, no other word */
    TACIT_CONFIG_WORD, /* int: index of the value in `words` */
    TACIT_CONFIG_LIST, /* tacit_config_list: texts; min and max count them, both 0: 0 to 256 */
    TACIT_CONFIG_ITEMS /* tacit_config_items: a sequence of maps read by item_rows (no ITEMS
                        * inside); min and max count them, both 0: 0 to 256 */
} tacit_config_kind;

typedef struct tacit_config_list {
    char **item;
    size_t count;
} tacit_config_list;

typedef struct tacit_config_items {
    void *item; /* `count` structs of item_size bytes, zeroed (and prepared) before they are read */
    size_t count;
} tacit_config_items;

typedef struct tacit_config_row {
    const char *key; /* path of at most four names: "policy.epsilon"; NULL ends the table */
    tacit_config_kind kind;
    size_t at; /* offsetof the target in the struct */
    bool required;
    double min, max;
    const char *const *words; /* WORD: NULL-terminated */
    const struct tacit_config_row *item_rows;
    size_t item_size;
    void (*item_defaults)(void *item); /* ITEMS: sets defaults of one zeroed item, or NULL */
    const char *help;                  /* one line: what the key means */
} tacit_config_row;

/* Reads `path` into `to`. Defaults are what *to holds before: texts and lists must be NULL or
 * malloc'ed. TACIT_NOT_FOUND, TACIT_IO, TACIT_BAD_INPUT. On failure texts and lists are freed and
 * NULL. Not thread-safe on one `to`. */
tacit_status tacit_config_read(const char *path, const tacit_config_row *rows, void *to,
                               tacit_error *err) TACIT_MUST_CHECK;

/* The same from memory; `name` stands for the file in errors. */
tacit_status tacit_config_parse(const char *name, const char *text, size_t size,
                                const tacit_config_row *rows, void *to,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Makes *path (malloc'ed, or NULL), when it is relative, start at `dir`, the file's folder. */
tacit_status tacit_config_anchor(char **path, const char *dir, tacit_error *err) TACIT_MUST_CHECK;

/* Frees every text, list and items of *to that the table names and sets them to NULL. */
void tacit_config_free(const tacit_config_row *rows, void *to);

#endif
