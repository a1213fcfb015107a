/* What programs print with --json: one object a line (RFC 8259), at once. On a terminal in ASCII
 * alone: U+009B and its like steer terminals and are no control characters to JSON. */
#ifndef TACIT_COMMON_JSON_PRINT_H
#define TACIT_COMMON_JSON_PRINT_H

#include "common/status.h"

#include <jansson.h>

/* Digits that keep every double, and every float. */
#define TACIT_JSON_DIGITS 17
#define TACIT_JSON_FLOAT_DIGITS 9

/* Takes `object`; NULL is one that could not be built, of numbers that are not finite, texts that
 * are not UTF-8 or for want of memory: TACIT_FAILED. TACIT_IO where the output takes no more. */
tacit_status tacit_json_print(json_t *object, int digits, tacit_error *err) TACIT_MUST_CHECK;

/* A name that others chose, of a file for instance: one that is not UTF-8 is given as the
 * hexadecimal digits of its bytes. NULL for want of memory. */
json_t *tacit_json_name(const char *name);
json_t *tacit_json_name_of(const char *name, size_t size);

#endif
