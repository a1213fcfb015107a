#include "common/log.h"
#include "common/options.h"

static const tacit_command commands[] = {
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    tacit_log_init("tacit-client", TACIT_LOG_INFO);
    return tacit_commands_main(
        "tacit-client", "the device agent: trains adapters locally under differential privacy",
        commands, argc, argv);
}
