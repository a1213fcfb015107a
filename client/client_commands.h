/* The commands of tacit-client, one file each. */
#ifndef TACIT_CLIENT_CLIENT_COMMANDS_H
#define TACIT_CLIENT_CLIENT_COMMANDS_H

#include "common/status.h"

tacit_status cmd_enroll(int argc, char **argv, tacit_error *err);
tacit_status cmd_agent(int argc, char **argv, tacit_error *err);
tacit_status cmd_local_train(int argc, char **argv, tacit_error *err);
tacit_status cmd_budget(int argc, char **argv, tacit_error *err);
tacit_status cmd_status(int argc, char **argv, tacit_error *err);
tacit_status cmd_policy_key(int argc, char **argv, tacit_error *err);
tacit_status cmd_policy_sign(int argc, char **argv, tacit_error *err);
tacit_status cmd_policy_show(int argc, char **argv, tacit_error *err);

#endif
