/* The subcommands of `tacit`, one cmd_*.c each; main_tacit.c has the table. argv[0] is the
 * command's own name. */
#ifndef TACIT_ENGINE_COMMANDS_H
#define TACIT_ENGINE_COMMANDS_H

#include "common/status.h"

tacit_status cmd_adapter_export(int argc, char **argv, tacit_error *err);
tacit_status cmd_adapter_import(int argc, char **argv, tacit_error *err);
tacit_status cmd_adapter_info(int argc, char **argv, tacit_error *err);
tacit_status cmd_chat(int argc, char **argv, tacit_error *err);
tacit_status cmd_bench(int argc, char **argv, tacit_error *err);
tacit_status cmd_logits(int argc, char **argv, tacit_error *err);
tacit_status cmd_run(int argc, char **argv, tacit_error *err);
tacit_status cmd_embed(int argc, char **argv, tacit_error *err);
tacit_status cmd_inspect(int argc, char **argv, tacit_error *err);
tacit_status cmd_quantize(int argc, char **argv, tacit_error *err);
tacit_status cmd_calibrate(int argc, char **argv, tacit_error *err);
tacit_status cmd_sensor_new(int argc, char **argv, tacit_error *err);
tacit_status cmd_eval(int argc, char **argv, tacit_error *err);
tacit_status cmd_tokenize(int argc, char **argv, tacit_error *err);
tacit_status cmd_train(int argc, char **argv, tacit_error *err);

#endif
