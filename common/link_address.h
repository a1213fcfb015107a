/* Room-private: addresses of links and listeners. */
#ifndef TACIT_COMMON_LINK_ADDRESS_H
#define TACIT_COMMON_LINK_ADDRESS_H

#include "common/link.h"
#include "common/status.h"

typedef struct link_address {
    char url[512];
    char host[256]; /* without brackets; empty for ipc */
    char port[8];
    bool is_ipc;
    const char *path; /* ipc: into url */
} link_address;

/* `listens` allows port 0 and an empty host or '*'. TACIT_BAD_INPUT names what is expected. */
tacit_status link_address_parse(link_address *out, const char *url, bool listens,
                                tacit_error *err) TACIT_MUST_CHECK;

/* "tcp://HOST:PORT" for nng, which does the TCP alone; into the address. Not for ipc. */
const char *link_address_tcp(const link_address *address);

#endif
