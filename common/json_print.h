/* What programs print with --json: one object a line (RFC 8259), at once. On a terminal in ASCII
 * alone: U+009B and its like steer terminals and are no control characters to JSON. */
#ifndef TACIT_COMMON_JSON_PRINT_H
#define TACIT_COMMON_JSON_PRINT_H

#include "common/status.h"

#include <jansson.h>

/* Digits that keep every double, and every float. */
#define TACIT_JSON_DIGITS 17
#define TACIT_JSON_FLOAT_DIGITS 9

/* Takes `object`; NULL is one that could not be built, of numbers that are not finite or for want
 * of memory: TACIT_FAILED. An output that cannot be written is no failure here: the program ends
 * with it (options.h). */
tacit_status tacit_json_print(json_t *object, int digits, tacit_error *err) TACIT_MUST_CHECK;

#endif
