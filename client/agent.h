/* The device's loop: check in, verify, reserve, train, seal, upload, activate, wait. Whatever
 * interrupts it, the next run continues from what is stored. */
#ifndef TACIT_CLIENT_AGENT_H
#define TACIT_CLIENT_AGENT_H

#include "client/client.h"

typedef struct agent_setup {
    bool once;            /* end after one completed round or one idle check-in */
    uint64_t patience_ms; /* of one request; the loop tries again anyway */
    bool json;            /* one JSON object per event on stdout (agent_events.h) */
} agent_setup;

/* Runs until c->stop or, with `once`, until there is nothing more to wait for. Ends with
 *   TACIT_REFUSED    once: the plan was refused; always: this device is revoked or frozen
 *   TACIT_INTEGRITY  the server shows another history than before, or altered entries
 *   TACIT_UNREACHABLE, TACIT_IO, ...   once only; otherwise they are logged and tried again */
tacit_status agent_run(client *c, const agent_setup *setup, tacit_error *err) TACIT_MUST_CHECK;

/* From a signal handler: a request that waits ends soon. Set the flag at client.stop as well. */
void agent_interrupt(void);

#endif
