/* A conversation with the server: TLS with the device's certificate, signed requests with durable
 * counters, checked replies. One thread, except client_session_interrupt. */
#ifndef TACIT_CLIENT_SESSION_H
#define TACIT_CLIENT_SESSION_H

#include "client/client.h"
#include "proto/wire.pb-c.h"

typedef struct client_session client_session;

typedef enum session_kind {
    SESSION_DEVICE, /* the main listener, mutual TLS */
    SESSION_EXPIRED /* the enrolment listener, for a device whose certificate has expired */
} session_kind;

/* Connects at the first call. `patience_ms`: how long a call goes on trying. */
tacit_status client_session_open(client_session **out, client *c, session_kind kind,
                                 uint64_t patience_ms, tacit_error *err) TACIT_MUST_CHECK;
void client_session_close(client_session *s); /* NULL is fine */

/* From a signal handler: the call that runs and every later one end with TACIT_AGAIN soon. */
void client_session_interrupt(client_session *s);

/* Connects and agrees on a version; nothing is signed, no counter is used. */
tacit_status client_session_greet(client_session *s, tacit_error *err) TACIT_MUST_CHECK;

/* Sends `message` for `method`; *reply is unpacked as `type` and freed with tacit_message_free.
 * The status is the server's where it answered with an error. */
tacit_status client_session_call(client_session *s, Tacit__Method method, const void *message,
                                 const ProtobufCMessageDescriptor *type, void *reply,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* True when the last failure was about a certificate: trying again will not help. */
bool client_session_was_refused(const client_session *s);

#endif
