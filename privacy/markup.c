#include "privacy/markup.h"

#include "common/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE 1024

static void append(markup *m, const char *text, size_t size)
{
    m->out.cap = MARKUP_CAP;
    if (m->status == TACIT_OK)
        m->status = tacit_buffer_append(&m->out, text, size);
}

void markup_raw(markup *m, const char *text)
{
    append(m, text, strlen(text));
}

void markup_format(markup *m, const char *format, ...)
{
    char line[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    markup_raw(m, line);
}

static const char *reference_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

static void append_plain(markup *m, const char *line)
{
    for (const char *c = line; *c; c++) {
        const char *reference = reference_of(*c);
        if (reference)
            markup_raw(m, reference);
        else
            append(m, c, 1);
    }
}

void markup_text(markup *m, const char *text)
{
    markup_text_format(m, "%s", text);
}

void markup_text_format(markup *m, const char *format, ...)
{
    char line[LINE];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tacit_text_make_plain(line, strlen(line));
    append_plain(m, line);
}

/* --- CSV --- */

static bool is_formula(const char *text)
{
    return *text && strchr("=+-@\t\r", *text);
}

void markup_cell(markup *m, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        markup_raw(m, "\"");
    if (is_formula(text))
        markup_raw(m, "'");
    for (const char *c = text; *c; c++)
        append(m, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    markup_raw(m, quoted ? "\"," : ",");
}

void markup_cell_number(markup *m, double v)
{
    char text[MARKUP_NUMBER];
    if (isfinite(v))
        snprintf(text, sizeof text, "%.12g", v);
    else
        markup_number(v, text);
    markup_raw(m, text);
    markup_raw(m, ",");
}

void markup_cell_count(markup *m, uint64_t v)
{
    markup_format(m, "%llu,", (unsigned long long)v);
}

void markup_cell_flag(markup *m, bool v)
{
    markup_raw(m, v ? "true," : "false,");
}

void markup_record(markup *m)
{
    if (m->status == TACIT_OK && m->out.size)
        m->out.size--;
    markup_raw(m, "\r\n");
}

/* --- both --- */

const char *markup_number(double v, char out[MARKUP_NUMBER])
{
    if (isnan(v))
        snprintf(out, MARKUP_NUMBER, "unknown");
    else if (isinf(v))
        snprintf(out, MARKUP_NUMBER, "infinite");
    else
        snprintf(out, MARKUP_NUMBER, "%.6g", v);
    return out;
}

tacit_status markup_end(const markup *m, tacit_error *err)
{
    if (m->status == TACIT_OK)
        return TACIT_OK;
    return tacit_fail(err, m->status == TACIT_NO_MEMORY ? TACIT_NO_MEMORY : TACIT_FAILED,
                      "report: %s after %zu bytes",
                      m->status == TACIT_NO_MEMORY ? "no memory" : "too long", m->out.size);
}

void markup_free(markup *m)
{
    tacit_buffer_free(&m->out);
}
