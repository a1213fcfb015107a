#include "common/json_print.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

tacit_status tacit_json_print(json_t *object, int digits, tacit_error *err)
{
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(digits);
    if (isatty(STDOUT_FILENO))
        flags |= JSON_ENSURE_ASCII;
    bool printed = object && json_dumpf(object, stdout, flags) == 0;
    json_decref(object);
    if (printed)
        putchar('\n');
    fflush(stdout);
    if (printed || ferror(stdout))
        return TACIT_OK;
    return tacit_fail(err, TACIT_FAILED,
                      "cannot print the result: a number is not finite, or there is no memory");
}
