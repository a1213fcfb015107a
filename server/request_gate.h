/* From hostile bytes to a method and back: parse, authenticate, judge counter and nonce, run the
 * method, sign the reply. Runs on listener workers; database steps run on the writer's thread. */
#ifndef TACIT_SERVER_REQUEST_GATE_H
#define TACIT_SERVER_REQUEST_GATE_H

#include "server/device_store.h"
#include "server/server.h"

typedef enum gate_listener {
    GATE_DEVICES = 1,  /* mutual TLS */
    GATE_ENROLMENT = 2 /* server-authenticated TLS */
} gate_listener;

/* One request on its way. Methods read `received`, `device` and `now_ms`, append to `body` (the
 * packed reply message) and may hang their own state on `own`, which `release` frees. */
typedef struct gate_call {
    server *server;
    gate_listener listener;
    tacit_received received;
    device_row device; /* of the sender, for methods of enrolled devices */
    uint64_t now_ms;
    tacit_buffer body;
    const char *clone_evidence; /* set by a method that fails: freeze the device, log this */
    void *own;
} gate_call;

/* One method; any step may be NULL. They run in this order and the first failure is the reply. */
typedef struct gate_method {
    uint32_t method;    /* Tacit__Method */
    unsigned listeners; /* gate_listener bits that serve it */
    bool anonymous;     /* no device, no signature of an enrolled one */
    bool changes_state; /* counter and reply are stored with what it changes */
    bool any_counter;   /* for a device that lost its own: the nonce alone says that it is fresh */
    tacit_status (*prepare)(gate_call *call, tacit_error *err); /* worker's thread */
    tacit_status (*act)(gate_call *call, tacit_error *err);     /* writer, within a mark */
    tacit_status (*finish)(gate_call *call, const writer_point *point,
                           tacit_error *err); /* writer, before the commit */
    void (*release)(gate_call *call);
} gate_method;

/* The table of methods (methods.c), ended by method 0. */
extern const gate_method gate_methods[];

/* Serves one request. False closes the connection: the bytes are no request. */
bool gate_serve(server *s, gate_listener listener, const uint8_t *bytes, size_t size,
                tacit_buffer *reply);

/* Packs a reply message into call->body. */
tacit_status gate_reply_with(gate_call *call, const void *message,
                             tacit_error *err) TACIT_MUST_CHECK;

#endif
