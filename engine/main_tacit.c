#include "common/log.h"
#include "common/options.h"
#include "engine/commands.h"

static const tacit_command commands[] = {
    {"embed", "prints the rows that a picture becomes", cmd_embed},
    {"inspect", "shows what a model file holds and what of it is not supported", cmd_inspect},
    {"tokenize", "prints the token ids of a text", cmd_tokenize},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    tacit_log_init("tacit", TACIT_LOG_INFO);
    return tacit_commands_main("tacit", "inspects, runs, evaluates and trains multimodal models",
                               commands, argc, argv);
}
