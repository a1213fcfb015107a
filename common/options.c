#include "common/options.h"

#include "common/map_guard.h"
#include "common/text.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Every command has these. */
static const tacit_option help_row = {.name = "help", .kind = TACIT_OPTION_FLAG};
static const tacit_option version_row = {.name = "version", .kind = TACIT_OPTION_FLAG};

static void print_help(const tacit_usage *usage, const tacit_option *table)
{
    printf("%s: %s\n\nusage: %s%s%s [options]\n", usage->program, usage->summary, usage->program,
           usage->positionals ? " " : "", usage->positionals ? usage->positionals : "");
    for (const tacit_option *row = table; row->name; row++) {
        char left[64];
        int n = row->letter ? snprintf(left, sizeof left, "  -%c, --%s", row->letter, row->name)
                            : snprintf(left, sizeof left, "      --%s", row->name);
        if (row->kind != TACIT_OPTION_FLAG)
            snprintf(left + n, sizeof left - (size_t)n, " %s", row->value ? row->value : "VALUE");
        printf("%-34s %s%s%s\n", left, row->help,
               row->kind == TACIT_OPTION_LIST ? "; may repeat" : "",
               row->required ? " (required)" : "");
    }
    printf("      --help                       this text\n"
           "      --version                    the program's version\n");
}

/* Of a program, or of a command, which has its program's. */
static void print_version(const char *name)
{
    printf("%.*s %s\n", (int)strcspn(name, " "), name, TACIT_VERSION);
}

static const tacit_option *find_long(const tacit_option *table, const char *name, size_t length)
{
    for (const tacit_option *row = table; row->name; row++)
        if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
            return row;
    if (length == 7 && memcmp(name, "version", 7) == 0)
        return &version_row;
    return length == 4 && memcmp(name, "help", 4) == 0 ? &help_row : NULL;
}

static const tacit_option *find_letter(const tacit_option *table, char letter)
{
    for (const tacit_option *row = table; row->name; row++)
        if (row->letter == letter)
            return row;
    return NULL;
}

static tacit_status store_value(const tacit_option *row, const char *value, tacit_error *err)
{
    bool open_range = row->min == 0 && row->max == 0;
    double max = open_range ? 9007199254740992.0 : row->max;
    tacit_option_list *list = row->to;
    char what[64];
    snprintf(what, sizeof what, "--%s", row->name);
    switch (row->kind) {
    case TACIT_OPTION_TEXT:
        *(const char **)row->to = value;
        return TACIT_OK;
    case TACIT_OPTION_U64:
        return tacit_parse_u64(value, what, (uint64_t)row->min, (uint64_t)max, row->to, err);
    case TACIT_OPTION_REAL:
        return tacit_parse_f64(value, what, open_range ? -max : row->min, max, row->to, err);
    case TACIT_OPTION_LIST:
        if (list->count == TACIT_OPTION_LIST_MAX)
            return tacit_fail(err, TACIT_USAGE, "--%s: given more than %d times", row->name,
                              TACIT_OPTION_LIST_MAX);
        list->item[list->count++] = value;
        return TACIT_OK;
    case TACIT_OPTION_FLAG:
        break;
    }
    return tacit_fail(err, TACIT_USAGE, "--%s takes no value", row->name);
}

/* Finds the row of one option argument and, when it is written "--name=value", its value. */
static tacit_status match_option(const tacit_usage *usage, const tacit_option *table,
                                 const char *argument, const tacit_option **row, const char **value,
                                 tacit_error *err)
{
    *value = NULL;
    if (argument[1] == '-') {
        const char *equals = strchr(argument, '=');
        size_t length = equals ? (size_t)(equals - argument) - 2 : strlen(argument) - 2;
        *row = find_long(table, argument + 2, length);
        *value = equals ? equals + 1 : NULL;
    } else {
        *row = argument[2] == '\0' ? find_letter(table, argument[1]) : NULL;
    }
    if (!*row)
        return tacit_fail(err, TACIT_USAGE, "unknown option '%s'; see '%s --help'", argument,
                          usage->program);
    return TACIT_OK;
}

static tacit_status check_required(const tacit_usage *usage, const tacit_option *table,
                                   uint64_t seen, size_t count, tacit_error *err)
{
    for (size_t i = 0; table[i].name; i++)
        if (table[i].required && !(seen >> i & 1))
            return tacit_fail(err, TACIT_USAGE, "--%s is missing; see '%s --help'", table[i].name,
                              usage->program);
    if (count < usage->min_positionals)
        return tacit_fail(err, TACIT_USAGE, "expected %s; see '%s --help'", usage->positionals,
                          usage->program);
    return TACIT_OK;
}

tacit_status tacit_options_parse(const tacit_usage *usage, const tacit_option *table, int argc,
                                 char **argv, const char **positional, size_t *n, bool *help,
                                 tacit_error *err)
{
    size_t count = 0;
    uint64_t seen = 0;
    bool only_positionals = false;
    *help = false;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (only_positionals || argument[0] != '-' || argument[1] == '\0') {
            if (count == usage->max_positionals)
                return tacit_fail(err, TACIT_USAGE, "unexpected argument '%s'; see '%s --help'",
                                  argument, usage->program);
            positional[count++] = argument;
            continue;
        }
        if (strcmp(argument, "--") == 0) {
            only_positionals = true;
            continue;
        }
        const tacit_option *row;
        const char *value;
        tacit_status status = match_option(usage, table, argument, &row, &value, err);
        if (status != TACIT_OK)
            return status;
        if (row == &help_row || row == &version_row) {
            if (row == &help_row)
                print_help(usage, table);
            else
                print_version(usage->program);
            *help = true;
            return TACIT_OK;
        }
        seen |= 1ull << (row - table);
        if (row->kind == TACIT_OPTION_FLAG && !value) {
            *(bool *)row->to = true;
            continue;
        }
        if (row->kind != TACIT_OPTION_FLAG && !value && ++i >= argc)
            return tacit_fail(err, TACIT_USAGE, "--%s needs a value; see '%s --help'", row->name,
                              usage->program);
        status = store_value(row, value ? value : argv[i], err);
        if (status != TACIT_OK)
            return status;
    }
    if (n)
        *n = count;
    return check_required(usage, table, seen, count, err);
}

static void print_commands(FILE *to, const char *program, const char *summary,
                           const tacit_command *table)
{
    fprintf(to, "%s: %s\n\nusage: %s COMMAND [options]\n\n", program, summary, program);
    for (const tacit_command *row = table; row->name; row++)
        fprintf(to, "  %-18s %s\n", row->name, row->summary);
    fprintf(
        to,
        "\n'%s COMMAND --help' explains a command. Exit codes: 0 ok, 1 failed, 2 usage, 3 bad or\n"
        "corrupt input, 4 refused by policy or budget, 5 peer unreachable, 6 integrity.\n",
        program);
}

/* The row named by argv[1], or by argv[1] and argv[2]; *words says how many it took. */
static const tacit_command *find_command(const tacit_command *table, int argc, char **argv,
                                         int *words)
{
    for (const tacit_command *row = table; row->name; row++) {
        size_t first = strcspn(row->name, " ");
        if (strncmp(row->name, argv[1], first) != 0 || argv[1][first] != '\0')
            continue;
        *words = row->name[first] ? 2 : 1;
        if (*words == 1 || (argc > 2 && strcmp(row->name + first + 1, argv[2]) == 0))
            return row;
    }
    return NULL;
}

/* Whether `name` begins with the word and has a second one. */
static bool in_group(const char *name, const char *word)
{
    size_t n = strlen(word);
    return strncmp(name, word, n) == 0 && name[n] == ' ';
}

/* A first word that needs a second one: its commands when none is given or help is asked for. */
static int answer_group(const char *program, const tacit_command *table, int argc, char **argv)
{
    bool help = argc > 2 && strcmp(argv[2], "--help") == 0;
    if (argc > 2 && strcmp(argv[2], "--version") == 0) {
        print_version(program);
        return 0;
    }
    if (argc > 2 && !help) {
        fprintf(stderr, "%s: unknown command '%s %s'; see '%s %s --help'\n", program, argv[1],
                argv[2], program, argv[1]);
        return tacit_exit_code(TACIT_USAGE);
    }
    FILE *to = help ? stdout : stderr;
    fprintf(to, "usage: %s %s COMMAND [options]\n\n", program, argv[1]);
    for (const tacit_command *row = table; row->name; row++)
        if (in_group(row->name, argv[1]))
            fprintf(to, "  %-18s %s\n", row->name, row->summary);
    fprintf(to, "\n'%s %s COMMAND --help' explains a command.\n", program, argv[1]);
    return help ? 0 : tacit_exit_code(TACIT_USAGE);
}

static int answer_unknown(const char *program, const tacit_command *table, int argc, char **argv)
{
    for (const tacit_command *row = table; row->name; row++)
        if (in_group(row->name, argv[1]))
            return answer_group(program, table, argc, argv);
    fprintf(stderr, "%s: unknown command '%s'; see '%s --help'\n", program, argv[1], program);
    return tacit_exit_code(TACIT_USAGE);
}

/* A program that was started without one of these would open its own files under their numbers and
 * then print into them. What is printed for nobody is an error, as on a full disk. A limit on the
 * size of files is an error of the write that meets it, not the end of the process. */
static bool settle(void)
{
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO) {
        if (fd == STDOUT_FILENO) {
            int full = open("/dev/full", O_WRONLY);
            if (full >= 0 && (dup2(full, fd) < 0 || close(full) != 0))
                return false;
        }
        fd = open("/dev/null", O_RDWR);
    }
    if (fd >= 0)
        close(fd);
    return fd >= 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR;
}

/* What was printed has to have arrived: a command that flushed meanwhile left the mark of a
 * failure. */
static int finish_output(const char *program, int code)
{
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed || code != 0)
        return code;
    fprintf(stderr, "%s: %s\n", program, TACIT_OUTPUT_FAILED);
    return tacit_exit_code(TACIT_IO);
}

static int run_command(const char *program, const tacit_command *row, int argc, char **argv)
{
    map_guard_start(program);
    if (!settle()) {
        fprintf(stderr, "%s: /dev/null cannot be opened; mount /dev, or allow more open files\n",
                program);
        return tacit_exit_code(TACIT_FAILED);
    }
    tacit_error err = {0};
    tacit_status status = row->run(argc, argv, &err);
    if (status != TACIT_OK && err.message[0])
        fprintf(stderr, "%s: %s\n", program, err.message);
    return tacit_exit_code(status);
}

static int answer(const char *program, const char *summary, const tacit_command *table, int argc,
                  char **argv)
{
    int words = 1;
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        print_commands(argc < 2 ? stderr : stdout, program, summary, table);
        return argc < 2 ? tacit_exit_code(TACIT_USAGE) : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        print_version(program);
        return 0;
    }
    const tacit_command *row = find_command(table, argc, argv, &words);
    return row ? run_command(program, row, argc - words, argv + words)
               : answer_unknown(program, table, argc, argv);
}

/* "help", "help COMMAND", "help FIRST SECOND": the same with --help behind it. */
static int answer_help(const char *program, const char *summary, const tacit_command *table,
                       int argc, char **argv)
{
    char help[] = "--help", *line[5] = {argv[0]};
    int n = 1;
    for (int i = 2; i < argc && n < 3; i++)
        line[n++] = argv[i];
    line[n++] = help;
    return answer(program, summary, table, n, line);
}

int tacit_commands_main(const char *program, const char *summary, const tacit_command *table,
                        int argc, char **argv)
{
    bool help = argc > 1 && strcmp(argv[1], "help") == 0;
    return finish_output(program,
                         (help ? answer_help : answer)(program, summary, table, argc, argv));
}
