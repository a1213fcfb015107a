/* Room-private: one end of a connection, without the connection: bytes of the peer go in, bytes for
 * the peer and whole messages come out. Who moves the bytes is the caller's (common/link.c for the
 * side that asks, common/link_listener.c for the one that answers).
 *
 * On the wire, inside TLS 1.3: nng's REQ/REP as its SP mapping for TCP writes it. Each side greets
 * with 8 bytes, "\0SP\0", its protocol (0x30 REQ, 0x31 REP), 0; then messages of u64 BE size, u32
 * BE request id with its highest bit set, body. A reply carries its request's id. One request at a
 * time travels on a connection. */
#ifndef TACIT_COMMON_LINK_CHANNEL_H
#define TACIT_COMMON_LINK_CHANNEL_H

#include "common/bytes.h"
#include "common/link.h"
#include "common/tls.h"

#include <openssl/ssl.h>

enum { CHANNEL_ID_BYTES = 4, CHANNEL_WIRE_BYTES = 16384 };

typedef enum channel_state {
    CHANNEL_MORE,    /* wants bytes of the peer */
    CHANNEL_MESSAGE, /* `message` is whole; channel_next goes on */
    CHANNEL_REFUSED, /* TLS failed; what is left to send tells the peer why */
    CHANNEL_BROKEN   /* the peer hung up, or what it sends is not this protocol */
} channel_state;

typedef struct link_channel {
    tacit_tls *tls;
    SSL *ssl;
    bool server;
    bool greeted;        /* handshake done, our greeting is on its way */
    bool ready;          /* and the peer's came */
    bool hello_seen;     /* a server's: the size of the peer's first message is fine */
    bool in_message;     /* the size was read */
    channel_state state; /* REFUSED and BROKEN are final */
    uint8_t head[8];     /* greeting, then size of a message, as far as it came */
    size_t head_size;
    size_t most;          /* bytes of a message, its id included */
    size_t expected;      /* bytes of this one */
    tacit_buffer message; /* id and body, as far as it came */
    tacit_span unsent;    /* body of the message to the peer, what is not encrypted yet */
} link_channel;

/* Takes messages of at most `most` bytes; a client has its first bytes to send at once.
 * TACIT_NO_MEMORY. The tls outlives the channel. */
tacit_status channel_open(link_channel *ch, tacit_tls *tls, bool server,
                          size_t most) TACIT_MUST_CHECK;
void channel_close(link_channel *ch); /* also when zero or never opened well */

/* Takes `size` bytes of the peer and goes as far as they reach. */
channel_state channel_input(link_channel *ch, const void *data, size_t size);
/* Drops the message that channel_input gave and goes on with bytes that came behind it. */
channel_state channel_next(link_channel *ch);

/* Begins a message of at most TACIT_MESSAGE_MAX bytes; only when ready and nothing else is to be
 * sent. The body stays the caller's and must live until channel_output has returned 0. */
void channel_write(link_channel *ch, uint32_t id, const void *body, size_t size);

/* Moves up to CHANNEL_WIRE_BYTES for the peer to `out`; 0: nothing is left, or the channel is
 * BROKEN. What comes out must be sent before more is put in, or a peer that does not read makes it
 * pile up. */
size_t channel_output(link_channel *ch, uint8_t out[CHANNEL_WIRE_BYTES]);

/* Of the whole message. */
uint32_t channel_message_id(const link_channel *ch);
tacit_span channel_message_body(const link_channel *ch);

#endif
