/* The commands of tacit-server that are not the operator's verbs, and those verbs' front end. */
#ifndef TACIT_SERVER_COMMANDS_SERVER_H
#define TACIT_SERVER_COMMANDS_SERVER_H

#include "common/options.h"
#include "server/control.h"

tacit_status cmd_init(int argc, char **argv, tacit_error *err);
tacit_status cmd_serve(int argc, char **argv, tacit_error *err);
tacit_status cmd_restore(int argc, char **argv, tacit_error *err);

/* The verb that argv[1], or argv[1] and argv[2], name; *words says how many. NULL: none. */
const control_verb *operator_find(int argc, char **argv, int *words);
/* Parses the verb's options from argv[1..], asks the running server, prints the answer. */
tacit_status operator_run(const control_verb *verb, int argc, char **argv, tacit_error *err);

#endif
