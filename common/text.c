#include "common/text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tacit_hex(char *out, const uint8_t *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[data[i] >> 4];
        out[2 * i + 1] = digits[data[i] & 15];
    }
    out[2 * size] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool tacit_unhex(uint8_t *out, size_t size, const char *text)
{
    if (strlen(text) != 2 * size)
        return false;
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_plain_integer(const char *digits)
{
    size_t n = strspn(digits, "0123456789");
    return n > 0 && digits[n] == '\0' && (n == 1 || digits[0] != '0');
}

tacit_status tacit_parse_u64(const char *text, const char *what, uint64_t min, uint64_t max,
                             uint64_t *out, tacit_error *err)
{
    errno = 0;
    unsigned long long v = is_plain_integer(text) ? strtoull(text, NULL, 10) : 0;
    if (!is_plain_integer(text) || errno == ERANGE || v < min || v > max)
        return tacit_fail(err, TACIT_USAGE, "%s: expected an integer from %llu to %llu, found '%s'",
                          what, (unsigned long long)min, (unsigned long long)max, text);
    *out = v;
    return TACIT_OK;
}

tacit_status tacit_parse_i64(const char *text, const char *what, int64_t min, int64_t max,
                             int64_t *out, tacit_error *err)
{
    const char *digits = *text == '-' ? text + 1 : text;
    errno = 0;
    long long v = is_plain_integer(digits) ? strtoll(text, NULL, 10) : 0;
    if (!is_plain_integer(digits) || errno == ERANGE || v < min || v > max)
        return tacit_fail(err, TACIT_USAGE, "%s: expected an integer from %lld to %lld, found '%s'",
                          what, (long long)min, (long long)max, text);
    *out = v;
    return TACIT_OK;
}

tacit_status tacit_parse_f64(const char *text, const char *what, double min, double max,
                             double *out, tacit_error *err)
{
    static locale_t c_locale;
    if (!c_locale)
        c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *end = NULL;
    size_t n = strspn(text, "0123456789+-.eE");
    double v = n && text[n] == '\0' ? strtod_l(text, &end, c_locale) : NAN;
    if (!end || *end != '\0' || end == text || !isfinite(v) || v < min || v > max)
        return tacit_fail(err, TACIT_USAGE, "%s: expected a number from %g to %g, found '%s'", what,
                          min, max, text);
    *out = v;
    return TACIT_OK;
}

/* Length of the sequence that starts with `c` and its smallest code point, or 0. */
static size_t utf8_length(uint8_t c, uint32_t *min, uint32_t *bits)
{
    if (c < 0x80)
        return *min = 0, *bits = c, 1;
    if (c >= 0xc2 && c < 0xe0)
        return *min = 0x80, *bits = c & 0x1fu, 2;
    if (c >= 0xe0 && c < 0xf0)
        return *min = 0x800, *bits = c & 0x0fu, 3;
    if (c >= 0xf0 && c < 0xf5)
        return *min = 0x10000, *bits = c & 0x07u, 4;
    return 0;
}

/* Bytes of the character that `data` begins with and its code point; 0: it begins with none. */
static size_t utf8_next(const uint8_t *data, size_t size, uint32_t *code)
{
    uint32_t min = 0;
    size_t n = utf8_length(data[0], &min, code);
    if (n == 0 || n > size)
        return 0;
    for (size_t k = 1; k < n; k++) {
        if ((data[k] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (data[k] & 0x3fu);
    }
    return *code < min || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000) ? 0 : n;
}

bool tacit_utf8_valid(const uint8_t *data, size_t size)
{
    uint32_t code;
    for (size_t i = 0; i < size;) {
        size_t n = utf8_next(data + i, size - i, &code);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

/* Characters that a terminal obeys or that change the order in which a line is shown. U+009B alone
 * begins a control sequence, as ESC [ does. */
static bool steers(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1f},     {0x7f, 0x9f}, /* C0, DEL, C1 */
        {0x061c, 0x061c}, {0x200e, 0x200f},
        {0x2028, 0x202e}, /* marks, line ends, embeddings and overrides */
        {0x2066, 0x2069}, /* isolates */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

bool tacit_text_is_plain(const char *text, size_t size)
{
    uint32_t code;
    for (size_t i = 0; i < size;) {
        size_t n = utf8_next((const uint8_t *)text + i, size - i, &code);
        if (n == 0 || steers(code))
            return false;
        i += n;
    }
    return true;
}

void tacit_text_make_plain(char *text, size_t size)
{
    uint32_t code;
    for (size_t i = 0; i < size;) {
        size_t n = utf8_next((const uint8_t *)text + i, size - i, &code);
        bool plain = n && !steers(code);
        n = n ? n : 1;
        if (!plain)
            memset(text + i, '?', n);
        i += n;
    }
}

void tacit_text_print(FILE *to, const char *text, size_t size, bool lines)
{
    uint32_t code;
    for (size_t i = 0; i < size;) {
        size_t n = utf8_next((const uint8_t *)text + i, size - i, &code);
        bool kept = n && (!steers(code) || (lines && (code == '\n' || code == '\t')));
        n = n ? n : 1;
        for (size_t k = 0; k < n; k++)
            putc(kept ? text[i + k] : '?', to);
        i += n;
    }
}

void tacit_text_duration(char out[TACIT_TEXT_DURATION], double seconds)
{
    if (!(seconds >= 0 && seconds < 1e9))
        snprintf(out, TACIT_TEXT_DURATION, "long");
    else if (seconds < 89.5)
        snprintf(out, TACIT_TEXT_DURATION, "%.0f s", seconds);
    else if (seconds < 5370)
        snprintf(out, TACIT_TEXT_DURATION, "%.0f min", seconds / 60);
    else
        snprintf(out, TACIT_TEXT_DURATION, "%.1f h", seconds / 3600);
}
