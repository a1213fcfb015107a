/* Writing HTML and CSV around the words of others. Every string that is not of this program's own
 * text goes through markup_text or markup_cell, which leave no character that a browser or a
 * spreadsheet would act on; markup_raw and markup_format are for what we write ourselves.
 *
 * The first failure sticks: later calls do nothing, and markup_end returns it. */
#ifndef TACIT_PRIVACY_MARKUP_H
#define TACIT_PRIVACY_MARKUP_H

#include "common/bytes.h"

#define MARKUP_CAP ((size_t)256 << 20)

typedef struct markup {
    tacit_buffer out;
    tacit_status status;
} markup;

/* Our own text; the format takes numbers and words of ours alone. */
void markup_raw(markup *m, const char *text);
void markup_format(markup *m, const char *format, ...) TACIT_PRINTF(2, 3);

/* Text for HTML, also within a quoted attribute: & < > " ' become references, and what is not
 * plain (common/text.h) becomes '?'. */
void markup_text(markup *m, const char *text);
void markup_text_format(markup *m, const char *format, ...) TACIT_PRINTF(2, 3);

/* One field of RFC 4180, quoted where it must be, with a comma after it. Where a spreadsheet would
 * take it for a formula (it begins with = + - @, a tab or a carriage return) an apostrophe comes
 * first. */
void markup_cell(markup *m, const char *text);
void markup_cell_number(markup *m, double v); /* "infinite", "unknown" where it is not finite */
void markup_cell_count(markup *m, uint64_t v);
void markup_cell_flag(markup *m, bool v);
/* Ends the record: CRLF in the place of the last comma. */
void markup_record(markup *m);

/* A number as people read it: six significant digits, "infinite", "unknown". */
#define MARKUP_NUMBER 32
const char *markup_number(double v, char out[MARKUP_NUMBER]);

/* What was written, or why not; in both cases the caller frees with markup_free. */
tacit_status markup_end(const markup *m, tacit_error *err) TACIT_MUST_CHECK;
void markup_free(markup *m);

#endif
