/* Logging to stderr, one line an event: time, level, program, text. Lines for people: no secrets,
 * no user data, control bytes replaced. Colour and progress bars belong to terminals only. */
#ifndef TACIT_COMMON_LOG_H
#define TACIT_COMMON_LOG_H

#include "common/status.h"

typedef enum tacit_log_level {
    TACIT_LOG_ERROR = 0,
    TACIT_LOG_WARN = 1,
    TACIT_LOG_INFO = 2,
    TACIT_LOG_DEBUG = 3
} tacit_log_level;

/* Sets the program's name in every line and the most detailed level printed. TACIT_LOG in the
 * environment (error|warn|info|debug) overrides `level`. Call once at start, before threads. */
void tacit_log_init(const char *program, tacit_log_level level);

/* Thread-safe: one write(2) a line. */
void tacit_log(tacit_log_level level, const char *format, ...) TACIT_PRINTF(2, 3);

#define tacit_log_error(...) tacit_log(TACIT_LOG_ERROR, __VA_ARGS__)
#define tacit_log_warn(...) tacit_log(TACIT_LOG_WARN, __VA_ARGS__)
#define tacit_log_info(...) tacit_log(TACIT_LOG_INFO, __VA_ARGS__)
#define tacit_log_debug(...) tacit_log(TACIT_LOG_DEBUG, __VA_ARGS__)

#endif
