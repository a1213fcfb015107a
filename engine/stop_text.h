/* Texts that end an answer ("stop sequences"), looked for in what has been said so far. Answers
 * come in pieces that need not end where such a text begins or ends. */
#ifndef TACIT_ENGINE_STOP_TEXT_H
#define TACIT_ENGINE_STOP_TEXT_H

#include <stddef.h>
#include <stdint.h>

#define STOP_TEXT_NONE SIZE_MAX

/* Where the first of stop[count] (none empty) begins of those that end behind text[from], or
 * STOP_TEXT_NONE. */
size_t stop_text_find(const char *const *stop, size_t count, const char *text, size_t size,
                      size_t from);

/* How many of the text's last bytes may be the begin of one: they are not to be shown yet. */
size_t stop_text_pending(const char *const *stop, size_t count, const char *text, size_t size);

#endif
