#include "common/link_channel.h"

#include <openssl/err.h>
#include <string.h>

enum { REQ = 0x30, REP = 0x31, GREETING_BYTES = 8, HELLO_MAX_BYTES = 16384 };

#define REQUEST_BIT 0x80000000u

/* Encrypted at a time, so that a record and what goes before it fit into CHANNEL_WIRE_BYTES. */
enum { PIECE_BYTES = 15360, BESIDE_BYTES = CHANNEL_WIRE_BYTES - PIECE_BYTES - 64 };

static void store_be32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void store_greeting(uint8_t to[GREETING_BYTES], bool server)
{
    const uint8_t greeting[GREETING_BYTES] = {0, 'S', 'P', 0, 0, server ? REP : REQ, 0, 0};
    memcpy(to, greeting, sizeof greeting);
}

tacit_status channel_open(link_channel *ch, tacit_tls *tls, bool server, size_t most)
{
    *ch = (link_channel){.tls = tls, .server = server, .most = most + CHANNEL_ID_BYTES};
    ch->ssl = tacit_tls_connect(tls);
    if (!ch->ssl)
        return TACIT_NO_MEMORY;
    (void)channel_input(ch, NULL, 0);
    return TACIT_OK;
}

void channel_close(link_channel *ch)
{
    SSL_free(ch->ssl);
    tacit_buffer_free(&ch->message);
    *ch = (link_channel){0};
}

/* --- What comes in --- */

/* What the result of an SSL_ function that did not succeed means. */
static channel_state judge(link_channel *ch, int result)
{
    switch (SSL_get_error(ch->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return CHANNEL_MORE;
    case SSL_ERROR_SSL:
        tacit_tls_take_error(ch->tls);
        return CHANNEL_REFUSED;
    default:
        ERR_clear_error();
        return CHANNEL_BROKEN;
    }
}

static bool encrypt(link_channel *ch, const void *data, size_t size)
{
    size_t written = 0;
    ERR_clear_error();
    if (SSL_write_ex(ch->ssl, data, size, &written) == 1)
        return true;
    ERR_clear_error();
    ch->state = CHANNEL_BROKEN;
    ch->unsent = (tacit_span){NULL, 0};
    return false;
}

/* True when the handshake is done. */
static bool shake_hands(link_channel *ch)
{
    uint8_t greeting[GREETING_BYTES];
    if (ch->greeted)
        return true;
    ERR_clear_error();
    int result = SSL_do_handshake(ch->ssl);
    if (result != 1) {
        ch->state = judge(ch, result);
        return false;
    }
    store_greeting(greeting, ch->server);
    ch->greeted = encrypt(ch, greeting, sizeof greeting);
    return ch->greeted;
}

/* The peer's greeting, or the size of a message. */
static channel_state take_head(link_channel *ch)
{
    uint8_t greeting[GREETING_BYTES];
    if (!ch->ready) {
        store_greeting(greeting, !ch->server);
        ch->ready = memcmp(ch->head, greeting, sizeof greeting) == 0;
        return ch->ready ? CHANNEL_MORE : CHANNEL_BROKEN;
    }
    uint64_t size = 0;
    for (int i = 0; i < 8; i++)
        size = size << 8 | ch->head[i];
    if (size < CHANNEL_ID_BYTES || size > ch->most)
        return CHANNEL_BROKEN;
    ch->expected = (size_t)size;
    ch->in_message = true;
    return CHANNEL_MORE;
}

static channel_state take_body(link_channel *ch, const uint8_t *data, size_t size)
{
    if (tacit_buffer_append(&ch->message, data, size) != TACIT_OK)
        return CHANNEL_BROKEN;
    if (ch->message.size < ch->expected)
        return CHANNEL_MORE;
    return channel_message_id(ch) & REQUEST_BIT ? CHANNEL_MESSAGE : CHANNEL_BROKEN;
}

/* Reads decrypted bytes, never beyond the head or the message that they belong to. The message
 * grows with what came: what a peer announces costs it as much as us. False: there are none now. */
static bool read_some(link_channel *ch)
{
    uint8_t data[4096];
    size_t want =
        ch->in_message ? ch->expected - ch->message.size : sizeof ch->head - ch->head_size;
    size_t got = 0;
    ERR_clear_error();
    int result = SSL_read_ex(ch->ssl, data, want < sizeof data ? want : sizeof data, &got);
    if (result != 1) {
        ch->state = judge(ch, result);
        return false;
    }
    if (ch->in_message) {
        ch->state = take_body(ch, data, got);
        return true;
    }
    memcpy(ch->head + ch->head_size, data, got);
    ch->head_size += got;
    if (ch->head_size == sizeof ch->head) {
        ch->head_size = 0;
        ch->state = take_head(ch);
    }
    return true;
}

static channel_state go_on(link_channel *ch)
{
    ch->state = CHANNEL_MORE;
    if (shake_hands(ch))
        while (ch->state == CHANNEL_MORE && read_some(ch))
            continue;
    return ch->state;
}

/* OpenSSL allocates what a hello announces before it came. 5 bytes of a record go before it: type
 * (22), version, size; then its own type (1) and 24 bits of size, all in that record. False: it
 * announces too much, or cuts its head in two. */
static bool hello_is_small(link_channel *ch, const uint8_t *data, size_t size)
{
    if (!ch->server || ch->hello_seen)
        return true;
    size_t left = sizeof ch->head - ch->head_size, n = left < size ? left : size;
    memcpy(ch->head + ch->head_size, data, n);
    ch->head_size += n;
    ch->hello_seen = ch->head_size == sizeof ch->head;
    if (!ch->hello_seen)
        return true;
    ch->head_size = 0;
    size_t record = (size_t)ch->head[3] << 8 | ch->head[4];
    size_t upper = (size_t)ch->head[6] << 8 | ch->head[7]; /* of the 24 bits, the upper 16 */
    return ch->head[0] != 22 || (record >= 4 && upper < HELLO_MAX_BYTES >> 8);
}

channel_state channel_input(link_channel *ch, const void *data, size_t size)
{
    if (ch->state != CHANNEL_MORE)
        return ch->state;
    if (size > 0 && !hello_is_small(ch, data, size))
        return ch->state = CHANNEL_BROKEN;
    if (size > 0 && BIO_write(SSL_get_rbio(ch->ssl), data, (int)size) != (int)size)
        return ch->state = CHANNEL_BROKEN;
    return go_on(ch);
}

channel_state channel_next(link_channel *ch)
{
    if (ch->state != CHANNEL_MESSAGE)
        return ch->state;
    tacit_buffer_free(&ch->message); /* a connection that waits holds nothing */
    ch->in_message = false;
    return go_on(ch);
}

uint32_t channel_message_id(const link_channel *ch)
{
    const uint8_t *id = ch->message.data;
    return (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
}

tacit_span channel_message_body(const link_channel *ch)
{
    return (tacit_span){ch->message.data + CHANNEL_ID_BYTES, ch->message.size - CHANNEL_ID_BYTES};
}

/* --- What goes out --- */

void channel_write(link_channel *ch, uint32_t id, const void *body, size_t size)
{
    uint8_t head[8 + CHANNEL_ID_BYTES] = {0};
    store_be32(head + 4, (uint32_t)(CHANNEL_ID_BYTES + size));
    store_be32(head + 8, id);
    if (encrypt(ch, head, sizeof head))
        ch->unsent = (tacit_span){body, size};
}

size_t channel_output(link_channel *ch, uint8_t out[CHANNEL_WIRE_BYTES])
{
    BIO *bio = SSL_get_wbio(ch->ssl);
    if (ch->state == CHANNEL_BROKEN)
        return 0;
    if (ch->unsent.size > 0 && BIO_ctrl_pending(bio) <= BESIDE_BYTES) {
        size_t n = ch->unsent.size < PIECE_BYTES ? ch->unsent.size : PIECE_BYTES;
        if (!encrypt(ch, ch->unsent.data, n))
            return 0;
        ch->unsent = (tacit_span){ch->unsent.data + n, ch->unsent.size - n};
    }
    int n = BIO_read(bio, out, CHANNEL_WIRE_BYTES);
    return n > 0 ? (size_t)n : 0;
}
