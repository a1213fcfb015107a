#include "client/client_commands.h"

#include "common/log.h"
#include "common/options.h"

static const tacit_command commands[] = {
    {"enroll", "makes this device's keys and joins a server", cmd_enroll},
    {"run", "takes part in the server's rounds", cmd_agent},
    {"train", "trains on this device alone, under the same account", cmd_local_train},
    {"budget", "shows the account and sets sub-caps; declares or takes a policy, recovers a folder",
     cmd_budget},
    {"status", "shows account, rounds, adapter and certificate of this device", cmd_status},
    {"policy key", "makes the key of who may raise devices' caps; not on the server",
     cmd_policy_key},
    {"policy sign", "signs a policy for one device that pinned the key", cmd_policy_sign},
    {"policy show", "shows what a signed policy says", cmd_policy_show},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    tacit_log_init("tacit-client", TACIT_LOG_INFO);
    return tacit_commands_main("tacit-client",
                               "the device agent: trains adapters locally under differential "
                               "privacy",
                               commands, argc, argv);
}
