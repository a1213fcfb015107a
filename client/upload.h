/* Sending the sealed bytes: begin, chunks from the offset that the server has, commit. Everything
 * may be repeated after any interruption of either side; the bytes never change. */
#ifndef TACIT_CLIENT_UPLOAD_H
#define TACIT_CLIENT_UPLOAD_H

#include "client/round_state_store.h"
#include "client/session.h"
#include "proto/wire.pb-c.h"

/* The wall clock at which sealed bytes leave: `pad_seconds` after the reserve, or when that has
 * passed at the next multiple of it. Nothing about the data decides it but whether training kept
 * within the pad. */
uint64_t upload_time(uint64_t reserved_ms, uint32_t pad_seconds, uint64_t now_ms);

/* Tells the server the size, digest and signed spend of a round's sealed bytes, which brings the
 * spend into the log. The reply is freed with tacit_message_free. */
tacit_status upload_announce(client_session *s, const round_state *r, tacit_span spend_entry,
                             Tacit__UploadBeginReply **reply, tacit_error *err) TACIT_MUST_CHECK;

/* Sends the round's sealed bytes and stores the decision: the round is DONE, r->reason is
 * "accepted" or the word of the rejection. TACIT_INTEGRITY when the stored bytes are not those that
 * the spend names. */
tacit_status upload_send(client *c, client_session *s, round_state *r,
                         tacit_error *err) TACIT_MUST_CHECK;

#endif
