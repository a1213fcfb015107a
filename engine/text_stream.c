#include "engine/text_stream.h"

#include "common/text.h"

#include <string.h>

static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};

/* Bytes of the character that starts with `first`; 0 when none does. */
static size_t length_of(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* True when some character begins with these bytes: the missing ones take their least and their
 * most value, one of which is allowed whenever any is. */
static bool may_begin(const uint8_t *held, size_t n)
{
    uint8_t low[4], high[4];
    size_t length = length_of(held[0]);
    if (n > length)
        return false;
    memset(low, 0x80, sizeof low);
    memset(high, 0xbf, sizeof high);
    memcpy(low, held, n);
    memcpy(high, held, n);
    return tacit_utf8_valid(low, length) || tacit_utf8_valid(high, length);
}

static tacit_status put_byte(text_stream *s, uint8_t byte, tacit_buffer *out)
{
    s->held[s->n_held++] = byte;
    if (!may_begin(s->held, s->n_held)) {
        bool again = s->n_held > 1;
        s->n_held = 0;
        tacit_status status = tacit_buffer_append(out, replacement, sizeof replacement);
        if (status != TACIT_OK || !again)
            return status;
        s->held[s->n_held++] = byte; /* it may begin the next character */
        if (!may_begin(s->held, 1)) {
            s->n_held = 0;
            return tacit_buffer_append(out, replacement, sizeof replacement);
        }
    }
    if (s->n_held < length_of(s->held[0]))
        return TACIT_OK;
    size_t n = s->n_held;
    s->n_held = 0;
    return tacit_buffer_append(out, s->held, n);
}

tacit_status text_stream_put(text_stream *s, const uint8_t *data, size_t n, tacit_buffer *out)
{
    tacit_status status = TACIT_OK;
    size_t dropped = s->drop_space && n > 0 && data[0] == ' ';
    s->drop_space &= n == 0;
    for (size_t i = dropped; i < n && status == TACIT_OK; i++)
        status = put_byte(s, data[i], out);
    return status;
}

tacit_status text_stream_end(text_stream *s, tacit_buffer *out)
{
    bool unfinished = s->n_held > 0;
    s->n_held = 0;
    return unfinished ? tacit_buffer_append(out, replacement, sizeof replacement) : TACIT_OK;
}
