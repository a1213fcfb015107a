#include "common/status.h"

#include "common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Error text goes to terminals and log files: what a peer or a file put in must not steer them. */

/* The name in parentheses: status.h may have a macro of it. */
tacit_status(tacit_fail)(tacit_error *err, tacit_status status, const char *format, ...)
{
    if (!err)
        return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    tacit_text_make_plain(err->message, strlen(err->message));
    return status;
}

tacit_status tacit_fail_context(tacit_error *err, const char *format, ...)
{
    if (!err)
        return TACIT_FAILED;
    char context[TACIT_ERROR_MAX / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
    char before[TACIT_ERROR_MAX];
    memcpy(before, err->message, sizeof before);
    before[sizeof before - sizeof context - 3] = '\0';
    snprintf(err->message, sizeof err->message, "%s: %s", context, before);
    tacit_text_make_plain(err->message, strlen(err->message));
    return err->status;
}

static const struct {
    tacit_status status;
    int exit_code;
    const char *name;
} status_table[] = {
    {TACIT_OK, 0, "ok"},
    {TACIT_FAILED, 1, "failed"},
    {TACIT_USAGE, 2, "usage"},
    {TACIT_BAD_INPUT, 3, "bad_input"},
    {TACIT_REFUSED, 4, "refused"},
    {TACIT_UNREACHABLE, 5, "unreachable"},
    {TACIT_INTEGRITY, 6, "integrity"},
    {TACIT_NO_MEMORY, 1, "no_memory"},
    {TACIT_IO, 1, "io"},
    {TACIT_NOT_FOUND, 1, "not_found"},
    {TACIT_AGAIN, 5, "again"},
    {TACIT_CONFLICT, 1, "conflict"},
};

#define STATUS_COUNT (sizeof status_table / sizeof status_table[0])

tacit_status tacit_status_of_input(tacit_status status, tacit_error *err)
{
    if (status != TACIT_NOT_FOUND && status != TACIT_IO)
        return status;
    if (err)
        err->status = TACIT_BAD_INPUT;
    return TACIT_BAD_INPUT;
}

int tacit_exit_code(tacit_status status)
{
    for (size_t i = 0; i < STATUS_COUNT; i++)
        if (status_table[i].status == status)
            return status_table[i].exit_code;
    return 1;
}

const char *tacit_status_name(tacit_status status)
{
    for (size_t i = 0; i < STATUS_COUNT; i++)
        if (status_table[i].status == status)
            return status_table[i].name;
    return "failed";
}
