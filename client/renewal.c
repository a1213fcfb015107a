/* Renewing the device's certificate: each time with a new TLS key. */
#include "client/enroll.h"

#include "client/session.h"
#include "client/tls_files.h"
#include "common/log.h"
#include "common/message.h"
#include "common/tls.h"

#include <stdlib.h>

static tacit_status ask(client *c, session_kind kind, uint64_t patience_ms,
                        const Tacit__RenewRequest *request, Tacit__RenewReply **reply,
                        tacit_error *err)
{
    client_session *s;
    tacit_status status = client_session_open(&s, c, kind, patience_ms, err);
    if (status != TACIT_OK)
        return status;
    status = client_session_call(s, TACIT__METHOD__METHOD_RENEW, request,
                                 &tacit__renew_reply__descriptor, reply, err);
    client_session_close(s);
    return status;
}

/* The new pair is in force from the commit on; the old files go afterwards. */
static tacit_status put_in_force(client *c, uint64_t n, const Tacit__RenewReply *reply,
                                 tacit_error *err)
{
    client_enrolment next = c->enrolment;
    tacit_status status =
        client_tls_store(c, n, c->enrolment.device, tacit_span_of(reply->certificate),
                         tacit_span_of(reply->root), err);
    if (status != TACIT_OK)
        return status;
    next.tls_generation = n;
    status = tacit_database_begin(c->db, err);
    if (status == TACIT_OK)
        status = client_enrolment_put(c->db, &next, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK) {
        tacit_database_rollback(c->db);
        return status;
    }
    client_tls_drop(c, c->enrolment.tls_generation);
    c->enrolment = next;
    return TACIT_OK;
}

static tacit_status renew(client *c, session_kind kind, uint64_t patience_ms, tacit_error *err)
{
    Tacit__RenewRequest request = TACIT__RENEW_REQUEST__INIT;
    Tacit__RenewReply *reply = NULL;
    uint8_t *csr = NULL;
    size_t size = 0;
    uint64_t n = c->enrolment.tls_generation + 1;
    tacit_status status;
    TACIT_TRY(client_tls_new_key(c, n, &csr, &size, err), done);
    request.csr = tacit_field_of(csr, size);
    TACIT_TRY(ask(c, kind, patience_ms, &request, &reply, err), done);
    TACIT_TRY(put_in_force(c, n, reply, err), done);
done:
    tacit_message_free(reply);
    free(csr);
    return status;
}

tacit_status client_renew_if_due(client *c, uint64_t patience_ms, bool *renewed, tacit_error *err)
{
    tacit_certificate_info info;
    uint64_t now = tacit_tls_now_ms();
    *renewed = false;
    tacit_status status = client_tls_info(c, &info, err);
    if (status != TACIT_OK || !tacit_certificate_is_due(&info, now))
        return status;
    bool expired = now >= info.not_after_ms;
    status = renew(c, expired ? SESSION_EXPIRED : SESSION_DEVICE, patience_ms, err);
    *renewed = status == TACIT_OK;
    if (*renewed)
        tacit_log_info("certificate renewed%s", expired ? " after it had expired" : "");
    return status;
}

tacit_status client_renew_refused(client *c, uint64_t patience_ms, tacit_error *err)
{
    tacit_status status = renew(c, SESSION_EXPIRED, patience_ms, err);
    if (status == TACIT_OK)
        tacit_log_info("certificate renewed after the server had refused it");
    return status;
}
