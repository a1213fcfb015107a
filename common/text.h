/* Text: hexadecimal, base64, and numbers parsed strictly (whole string, finite, in range, '.' as
 * the decimal point whatever the locale). */
#ifndef TACIT_COMMON_TEXT_H
#define TACIT_COMMON_TEXT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes 2 * size lower-case digits and a NUL; `out` has at least 2 * size + 1 bytes. */
void tacit_hex(char *out, const uint8_t *data, size_t size);

/* Exactly 2 * size hex digits into `out`; false otherwise. */
bool tacit_unhex(uint8_t *out, size_t size, const char *text);

/* Decimal integer in [min, max]: digits only (a leading '-' where min < 0), no spaces, no leading
 * zeros but "0" itself. `what` names the value in the error. */
tacit_status tacit_parse_i64(const char *text, const char *what, int64_t min, int64_t max,
                             int64_t *out, tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_parse_u64(const char *text, const char *what, uint64_t min, uint64_t max,
                             uint64_t *out, tacit_error *err) TACIT_MUST_CHECK;

/* Finite decimal number ("0.5", "1e-5") in [min, max]; no hex floats, no inf, no nan. */
tacit_status tacit_parse_f64(const char *text, const char *what, double min, double max,
                             double *out, tacit_error *err) TACIT_MUST_CHECK;

/* True when `size` bytes are valid UTF-8 (RFC 3629: no surrogates, no overlong forms). */
bool tacit_utf8_valid(const uint8_t *data, size_t size);

#endif
