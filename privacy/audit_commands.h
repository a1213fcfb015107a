/* The subcommands of tacit-audit, one file cmd_NAME.c each; main_audit.c holds the table. */
#ifndef TACIT_PRIVACY_AUDIT_COMMANDS_H
#define TACIT_PRIVACY_AUDIT_COMMANDS_H

#include "common/status.h"

tacit_status cmd_epsilon(int argc, char **argv, tacit_error *err);
tacit_status cmd_calibrate(int argc, char **argv, tacit_error *err);
tacit_status cmd_verify(int argc, char **argv, tacit_error *err);
tacit_status cmd_canary(int argc, char **argv, tacit_error *err);

#endif
