/* Room-private: requests over a local socket, one a connection: u32 LE length and bytes in either
 * direction. Not nng's ipc transport: in 1.5.2 a client that is killed while it connects ends
 * accepting for ever (a broken pipe during nng's greeting reads as "closed" there). */
#ifndef TACIT_COMMON_LINK_LOCAL_H
#define TACIT_COMMON_LINK_LOCAL_H

#include "common/link.h"

#include <stdatomic.h>

/* One attempt. TACIT_UNREACHABLE, TACIT_AGAIN when *stop became true, TACIT_REFUSED when this user
 * may not ask. */
tacit_status local_call(const char *path, const void *request, size_t size, uint32_t reply_ms,
                        atomic_bool *stop, tacit_buffer *reply, tacit_error *err) TACIT_MUST_CHECK;

typedef struct local_server local_server;

/* Binds `path` with mode 0600 and serves with setup's handler, ctx, workers, max_connections (that
 * many wait at most). TACIT_CONFLICT when somebody serves there. */
tacit_status local_server_start(local_server **out, const char *path,
                                const tacit_listener_setup *setup,
                                tacit_error *err) TACIT_MUST_CHECK;
tacit_listener_counts local_server_count(local_server *s);
void local_server_stop(local_server *s); /* waits for handlers; NULL is fine */

#endif
