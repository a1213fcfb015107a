/* DIR/local.log, mode 0600: what depends on data (bad lines, losses). It never leaves the device:
 * nothing else writes or reads it, and stderr gets none of it. */
#ifndef TACIT_CLIENT_LOCAL_LOG_H
#define TACIT_CLIENT_LOCAL_LOG_H

#include "common/status.h"

typedef struct local_log {
    int fd; /* -1: nothing is written */
} local_log;

/* A log that cannot be opened is silently none: a full disk must not show outside. `path` NULL
 * likewise. */
void local_log_open(local_log *log, const char *path);
void local_log_close(local_log *log);

/* One line with the time. `log` may be NULL. */
void local_log_add(local_log *log, const char *format, ...) TACIT_PRINTF(2, 3);

#endif
