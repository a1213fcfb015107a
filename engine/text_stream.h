/* Bytes of tokens in, whole UTF-8 characters out: a character may begin in one token and end in a
 * later one. What is not UTF-8 (RFC 3629) becomes U+FFFD, so the output is always valid text. */
#ifndef TACIT_ENGINE_TEXT_STREAM_H
#define TACIT_ENGINE_TEXT_STREAM_H

#include "common/bytes.h"

typedef struct text_stream {
    bool drop_space; /* a space that comes first was put there by the tokenizer: it is left out */
    uint8_t held[4]; /* the beginning of a character */
    size_t n_held;
} text_stream;

/* Appends to `out` the characters that `data` completes. Zero-initialise the stream. */
tacit_status text_stream_put(text_stream *s, const uint8_t *data, size_t n,
                             tacit_buffer *out) TACIT_MUST_CHECK;
/* Appends U+FFFD when a character was left unfinished. */
tacit_status text_stream_end(text_stream *s, tacit_buffer *out) TACIT_MUST_CHECK;

#endif
