#include "common/log.h"
#include "server/commands_server.h"

#include <stdio.h>

#define COMMANDS_MAX 32

/* Never called: main answers the operator's verbs itself, their rows are here for the help. */
static tacit_status cmd_verb(int argc, char **argv, tacit_error *err)
{
    (void)argc;
    return tacit_fail(err, TACIT_USAGE, "unknown command '%s'", argv[0]);
}

int main(int argc, char **argv)
{
    static const char program[] = "tacit-server";
    tacit_command commands[COMMANDS_MAX] = {
        {"init", "makes a server's folder", cmd_init},
        {"run", "serves a folder until it is told to stop", cmd_serve},
        {"restore", "lets a folder that was restored from a backup go on", cmd_restore},
    };
    const size_t own = 3;
    int words = 0;
    tacit_log_init(program, TACIT_LOG_INFO);
    const control_verb *verb = operator_find(argc, argv, &words);
    if (verb) {
        tacit_error err = {0};
        tacit_status status = operator_run(verb, argc - words, argv + words, &err);
        if (status != TACIT_OK)
            fprintf(stderr, "%s: %s\n", program, err.message);
        if (fflush(stdout) != 0 && status == TACIT_OK) {
            fprintf(stderr, "%s: cannot write to standard output\n", program);
            status = TACIT_IO;
        }
        return tacit_exit_code(status);
    }
    for (size_t i = 0; control_verbs[i].name && i + own + 1 < COMMANDS_MAX; i++)
        commands[i + own] =
            (tacit_command){control_verbs[i].name, control_verbs[i].summary, cmd_verb};
    return tacit_commands_main(program,
                               "the aggregation service: rounds, devices, budgets, adapters",
                               commands, argc, argv);
}
