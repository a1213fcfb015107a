#include "common/log.h"
#include "common/options.h"

static const tacit_command commands[] = {
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    tacit_log_init("tacit-server", TACIT_LOG_INFO);
    return tacit_commands_main("tacit-server",
                               "the aggregation service: rounds, devices, budgets, adapters",
                               commands, argc, argv);
}
