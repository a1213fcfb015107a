#include "client/local_log.h"

#include "common/clock.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1400, LOG_BYTES = 16 << 20 };

void local_log_open(local_log *log, const char *path)
{
    struct stat st;
    log->fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    /* Bounded: an old log that has grown too long begins anew. */
    if (log->fd >= 0 && fstat(log->fd, &st) == 0 && st.st_size > LOG_BYTES &&
        ftruncate(log->fd, 0) != 0)
        local_log_close(log);
}

void local_log_close(local_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
}

void local_log_add(local_log *log, const char *format, ...)
{
    char line[LINE_BYTES];
    struct tm tm;
    if (!log || log->fd < 0)
        return;
    time_t now = (time_t)(tacit_clock_wall_ms() / 1000);
    size_t used = gmtime_r(&now, &tm) ? strftime(line, 32, "%Y-%m-%dT%H:%M:%SZ ", &tm) : 0;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    if (n < 0)
        return;
    used += (size_t)n < sizeof line - used - 1 ? (size_t)n : sizeof line - used - 2;
    line[used++] = '\n';
    if (write(log->fd, line, used) < 0)
        local_log_close(log);
}
