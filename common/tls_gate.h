/* Room-private: how a socket of nng 1.5.2 that dials or listens by TLS is closed without losing
 * memory.
 *
 * nng negotiates in steps: a greeting is written, a greeting is read, the connection is given to
 * the socket. Each step ends by queueing a callback that does the next one. If the socket is closed
 * in between, the callback finds an operation that may not start (and is never called again), or
 * nobody to give the connection to; either way nng forgets the connection, and with it the dialer
 * or listener that it belongs to: about 90 KiB, and a busy machine makes it likely.
 *
 * nng calls the TLS engine at the start of each step, so the engine sees where each connection is.
 * A connection is *under way* from the moment the engine ends a step well until nng calls the
 * engine for it again. Closing shuts the gate first: no connection begins, and a step that ends
 * now ends with an error, which nng handles well. Those under way soon arrive, since nothing of
 * that waits for a peer. Then nothing is in between, and it stays so. */
#ifndef TACIT_COMMON_TLS_GATE_H
#define TACIT_COMMON_TLS_GATE_H

#include <nng/nng.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* One per TLS configuration; a configuration is used by one socket at a time. */
typedef struct tls_gate {
    pthread_mutex_t lock; /* everything below */
    pthread_cond_t changed;
    bool shut;
    size_t connections; /* begun and not yet freed */
    size_t under_way;
} tls_gate;

void tls_gate_init(tls_gate *gate);
void tls_gate_fini(tls_gate *gate);

/* By the engine, which holds nng's lock of the connection; they never wait. */
bool tls_gate_enter(tls_gate *gate);   /* a connection begins; false: it may not */
void tls_gate_leave(tls_gate *gate);   /* it is freed */
bool tls_gate_set_off(tls_gate *gate); /* a step ended well; false: it must not, the gate is shut */
void tls_gate_arrive(tls_gate *gate);  /* the next call after tls_gate_set_off */

/* Closes the socket that uses the gate's configuration and returns when nng has freed every one of
 * its connections. Not from a callback of nng. The gate is open again afterwards. */
void tls_gate_close(tls_gate *gate, nng_socket socket);

#endif
