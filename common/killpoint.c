#include "common/killpoint.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tacit_kill_point(const char *name)
{
    static atomic_ulong passed;
    const char *wanted = getenv("TACIT_KILL_AT");
    size_t length = strlen(name);
    if (!wanted || strncmp(wanted, name, length) != 0)
        return;
    if (wanted[length] != '\0' && wanted[length] != ':')
        return;
    unsigned long at = wanted[length] == ':' ? strtoul(wanted + length + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&passed, 1) + 1 == at)
        kill(getpid(), SIGKILL);
}
