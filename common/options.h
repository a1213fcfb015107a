/* Command lines from tables: subcommands, long options, --help and --version (of a program and of
 * each command) come from the same rows. Long options only, plus one-letter forms where a row gives
 * one; "--name value" and
 * "--name=value"; positional arguments are counted. */
#ifndef TACIT_COMMON_OPTIONS_H
#define TACIT_COMMON_OPTIONS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tacit_option_kind {
    TACIT_OPTION_FLAG, /* bool */
    TACIT_OPTION_TEXT, /* const char *: points into argv */
    TACIT_OPTION_U64,  /* uint64_t in [min, max] */
    TACIT_OPTION_REAL, /* double in [min, max] */
    TACIT_OPTION_LIST  /* tacit_option_list: may be repeated */
} tacit_option_kind;

#define TACIT_OPTION_LIST_MAX 1024

typedef struct tacit_option_list {
    const char *item[TACIT_OPTION_LIST_MAX];
    size_t count;
} tacit_option_list;

/* One row. A table ends with a row whose name is NULL. Defaults are what *to holds before. */
typedef struct tacit_option {
    const char *name; /* without "--" */
    char letter;      /* 0: none */
    tacit_option_kind kind;
    void *to;
    bool required;
    const char *value; /* what stands for the value in the help, for instance "FILE" */
    const char *help;
    double min, max; /* U64 and REAL; both 0: 0 to 2^53 */
} tacit_option;

typedef struct tacit_usage {
    const char *program;     /* "tacit run" */
    const char *positionals; /* "MODEL.gguf", or NULL when there are none */
    size_t min_positionals, max_positionals;
    const char *summary;
} tacit_usage;

/* Parses argv[1..argc). `positional` receives at most max_positionals pointers and *n their count
 * (both may be NULL without positionals). Returns TACIT_OK, TACIT_USAGE with the reason in `err`,
 * or sets *help when --help or --version was found (what was asked for is on stdout then). */
tacit_status tacit_options_parse(const tacit_usage *usage, const tacit_option *table, int argc,
                                 char **argv, const char **positional, size_t *n, bool *help,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* One subcommand; `run` gets argv[0] = its own name and returns a status whose text is in `err`. */
typedef struct tacit_command {
    const char *name; /* one word, or two: "token create" */
    const char *summary;
    tacit_status (*run)(int argc, char **argv, tacit_error *err);
} tacit_command;

#define TACIT_OUTPUT_FAILED "cannot write to standard output; free its disk or name another place"

/* main() of a program: finds the row, runs it, prints "program: error" on failure, returns the
 * exit code. Understands --help and --version, --help behind the first word of several rows, and
 * "help COMMAND". Output that did not arrive is a failure (exit 1). The table ends with name NULL.
 */
int tacit_commands_main(const char *program, const char *summary, const tacit_command *table,
                        int argc, char **argv);

#endif
