/* tacit-client with a fault of its private step, named by TACIT_STEP_FAULT: for tests that must
 * find it. The program is the product's but for the three functions that the linker puts between.
 */
#include "../client/private_step_faults.h"
#include "client/client_commands.h"
#include "common/log.h"
#include "common/options.h"

#include <stdio.h>
#include <stdlib.h>

static const tacit_command commands[] = {
    {"train", "as tacit-client train, with the fault", cmd_local_train},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *fault = getenv("TACIT_STEP_FAULT");
    if (!fault || !step_fault_set(fault)) {
        fprintf(stderr, "faulty_client: TACIT_STEP_FAULT names no fault\n");
        return 2;
    }
    tacit_log_init("faulty_client", TACIT_LOG_INFO);
    return tacit_commands_main("faulty_client", "a device agent whose private step is broken",
                               commands, argc, argv);
}
