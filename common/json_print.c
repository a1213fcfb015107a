#include "common/json_print.h"

#include "common/options.h"
#include "common/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    if (ferror(stdout))
        return tacit_fail(err, TACIT_IO, TACIT_OUTPUT_FAILED);
    if (printed)
        return TACIT_OK;
    return tacit_fail(
        err, TACIT_FAILED,
        "the result is no JSON: a number is not finite, a text is not UTF-8, or there "
        "is no memory; the work is done, and shown without --json");
}

json_t *tacit_json_name_of(const char *name, size_t size)
{
    if (size == 0 || tacit_utf8_valid((const uint8_t *)name, size))
        return json_stringn(size ? name : "", size);
    char *hex = malloc(2 * size + 1);
    if (!hex)
        return NULL;
    tacit_hex(hex, (const uint8_t *)name, size);
    json_t *value = json_string(hex);
    free(hex);
    return value;
}

json_t *tacit_json_name(const char *name)
{
    return tacit_json_name_of(name, strlen(name));
}
