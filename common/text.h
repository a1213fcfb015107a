/* Text: hexadecimal, what may be shown, and numbers parsed strictly (whole string, finite, in
 * range, '.' as the decimal point whatever the locale). */
#ifndef TACIT_COMMON_TEXT_H
#define TACIT_COMMON_TEXT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

/* Text that others made and people read, on terminals and in log files: valid UTF-8 without control
 * characters (C0, DEL, and C1, of which U+009B begins a control sequence) and without those that
 * reorder or break a line (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069). */
bool tacit_text_is_plain(const char *text, size_t size);
/* Puts '?' in the place of every byte that keeps `text` from being plain. */
void tacit_text_make_plain(char *text, size_t size);
/* Prints it in that form; with `lines` line ends and tabs stay. What a model or a data set says
 * goes to people this way. */
void tacit_text_print(FILE *to, const char *text, size_t size, bool lines);

/* "45 s", "12 min", "3.4 h": a time that is left, for people. */
enum { TACIT_TEXT_DURATION = 32 };
void tacit_text_duration(char out[TACIT_TEXT_DURATION], double seconds);

#endif
