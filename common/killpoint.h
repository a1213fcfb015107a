/* Named points at which a test may kill the process, to prove that nothing acknowledged is lost.
 * Whoever can set the environment of a process can kill it anyway, so this is always compiled. */
#ifndef TACIT_COMMON_KILLPOINT_H
#define TACIT_COMMON_KILLPOINT_H

/* Raises SIGKILL when TACIT_KILL_AT in the environment equals `name`, or "name:N" on its N-th
 * passing (from 1). Does nothing otherwise. Thread-safe. */
void tacit_kill_point(const char *name);

#endif
