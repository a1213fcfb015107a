#include "common/log.h"
#include "common/options.h"
#include "privacy/audit_commands.h"

static const tacit_command commands[] = {
    {"epsilon", "the epsilon of a list of mechanisms", cmd_epsilon},
    {"calibrate", "the smallest noise multiplier within a budget", cmd_calibrate},
    {"verify", "an exported log, checked without its server", cmd_verify},
    {"canary", "a run with canaries, held against its claim", cmd_canary},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    tacit_log_init("tacit-audit", TACIT_LOG_INFO);
    return tacit_commands_main("tacit-audit",
                               "computes privacy budgets and verifies exported ledgers", commands,
                               argc, argv);
}
