#include "common/status.h"
const char *tacit_server_version(void);
const char *tacit_server_version(void)
{
    return tacit_status_name(TACIT_OK);
}
