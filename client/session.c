#include "client/session.h"

#include "client/tls_files.h"
#include "common/envelope.h"
#include "common/link.h"
#include "common/message.h"

#include <stdlib.h>

struct client_session {
    tacit_link *link;
    tacit_caller *caller;
};

#define CONNECT_MOST_MS 10000

static tacit_status open_link(client_session *s, client *c, session_kind kind, uint64_t patience_ms,
                              tacit_error *err)
{
    client_tls tls;
    tacit_status status = client_tls_load(&tls, c, err);
    if (status != TACIT_OK)
        return status;
    tacit_link_setup setup = {.url = c->config.server,
                              .certificate_pem = tls.chain,
                              .key_pem = (const char *)tls.key.data,
                              .roots_pem = tls.roots,
                              .connect_ms = CONNECT_MOST_MS};
    if (patience_ms && patience_ms < CONNECT_MOST_MS)
        setup.connect_ms = (uint32_t)patience_ms;
    if (kind == SESSION_EXPIRED) {
        setup.url = c->config.enrol;
        setup.certificate_pem = setup.key_pem = NULL;
    }
    status = tacit_link_open(&s->link, &setup, err);
    client_tls_free(&tls);
    return status;
}

tacit_status client_session_open(client_session **out, client *c, session_kind kind,
                                 uint64_t patience_ms, tacit_error *err)
{
    *out = NULL;
    client_session *s = calloc(1, sizeof *s);
    if (!s)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for a session");
    tacit_status status = open_link(s, c, kind, patience_ms, err);
    tacit_caller_setup setup = {.link = s->link,
                                .identity = c->identity,
                                .device = c->enrolment.device,
                                .server_key = c->enrolment.server_key,
                                .patience_ms = patience_ms,
                                .next_counter = client_counter_next,
                                .ctx = c->db};
    if (status == TACIT_OK)
        status = tacit_caller_new(&s->caller, &setup, err);
    if (status == TACIT_OK)
        *out = s;
    else
        client_session_close(s);
    return status;
}

void client_session_close(client_session *s)
{
    if (!s)
        return;
    tacit_caller_free(s->caller);
    tacit_link_close(s->link);
    free(s);
}

void client_session_interrupt(client_session *s)
{
    tacit_link_interrupt(s->link);
}

bool client_session_was_refused(const client_session *s)
{
    return tacit_link_was_refused(s->link);
}

tacit_status client_session_greet(client_session *s, tacit_error *err)
{
    uint8_t nonce[TACIT_NONCE_BYTES];
    return tacit_caller_nonce(s->caller, nonce, err);
}

tacit_status client_session_call(client_session *s, Tacit__Method method, const void *message,
                                 const ProtobufCMessageDescriptor *type, void *reply,
                                 tacit_error *err)
{
    uint8_t *body = NULL;
    size_t size = 0;
    tacit_answer answer = {0};
    ProtobufCMessage **out = reply;
    tacit_status status;
    *out = NULL;
    TACIT_TRY(tacit_message_pack(message, TACIT_BODY_MAX, &body, &size, err), done);
    TACIT_TRY(tacit_caller_call(s->caller, method, (tacit_span){body, size}, &answer, err), done);
    TACIT_TRY(tacit_message_unpack(out, type, answer.reply.body.data, answer.reply.body.size,
                                   TACIT_MESSAGE_MAX, err),
              done);
done:
    tacit_answer_free(&answer);
    free(body);
    return status;
}
