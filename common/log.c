#include "common/log.h"

#include "common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Set once at start, read only afterwards. */
static struct {
    char program[32];
    tacit_log_level level;
} log_state = {"tacit", TACIT_LOG_INFO};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void tacit_log_init(const char *program, tacit_log_level level)
{
    snprintf(log_state.program, sizeof log_state.program, "%s", program);
    log_state.level = level;
    const char *wanted = getenv("TACIT_LOG");
    for (int i = 0; wanted && i < 4; i++)
        if (strcmp(wanted, level_names[i]) == 0)
            log_state.level = (tacit_log_level)i;
}

void tacit_log(tacit_log_level level, const char *format, ...)
{
    if (level > log_state.level)
        return;
    char line[2048];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    used += (size_t)snprintf(line + used, sizeof line - used,
                             ".%03ldZ %-5s %s: ", now.tv_nsec / 1000000, level_names[level],
                             log_state.program);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    va_end(args);
    size_t end = used + (n < 0 ? 0 : (size_t)n);
    if (end > sizeof line - 2)
        end = sizeof line - 2;
    tacit_text_make_plain(line + used, end - used);
    line[end] = '\n';
    if (write(STDERR_FILENO, line, end + 1) < 0)
        return; /* nowhere left to report to */
}
