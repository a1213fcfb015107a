#include "client/client_commands.h"

#include "common/log.h"
#include "common/options.h"

static const tacit_command commands[] = {
    {"enroll", "make this device's keys and join a server", cmd_enroll},
    {"run", "take part in the server's rounds", cmd_agent},
    {"train", "train on this device alone, under the same account", cmd_local_train},
    {"budget", "sub-caps of this device's account; declare or take a policy, recover a folder",
     cmd_budget},
    {"status", "account, rounds, adapter and certificate of this device", cmd_status},
    {"policy key", "make the key of who may raise devices' caps; not on the server",
     cmd_policy_key},
    {"policy sign", "sign a policy for one device that pinned the key", cmd_policy_sign},
    {"policy show", "show what a signed policy says", cmd_policy_show},
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
