#include "client/restoration.h"

#include "client/declaration.h"
#include "client/receipts.h"
#include "client/reservation.h"
#include "common/log.h"
#include "common/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tacit_status check_pinned(const client *c, tacit_error *err)
{
    if (c->enrolment.has_operator_key)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY,
                      "log: the server's goes on as another one than '%s', and this device pinned "
                      "no operator key that could vouch for that when it enrolled",
                      c->enrolment.log.name);
}

static tacit_status ask(client *c, client_session *s, uint64_t checkpoint_size,
                        Tacit__RestoredReply **reply, tacit_error *err)
{
    Tacit__RestoredRequest request = TACIT__RESTORED_REQUEST__INIT;
    char origin[TACIT_NOTE_NAME_MAX + 1];
    memcpy(origin, c->enrolment.log.name, sizeof origin);
    request.origin = origin;
    request.checkpoint_size = checkpoint_size;
    tacit_status status = client_session_call(s, TACIT__METHOD__METHOD_RESTORED, &request,
                                              &tacit__restored_reply__descriptor, reply, err);
    bool answered = status == TACIT_NOT_FOUND || status == TACIT_USAGE || status == TACIT_REFUSED ||
                    status == TACIT_BAD_INPUT || status == TACIT_CONFLICT;
    if (!answered)
        return status;
    if (err)
        err->status = TACIT_INTEGRITY;
    tacit_fail_context(
        err, "log: it goes on as another one than '%s', and nothing vouches for that", origin);
    return TACIT_INTEGRITY;
}

bool client_is_elsewhere(const client *c, ProtobufCBinaryData note)
{
    tacit_checkpoint shown;
    return tacit_checkpoint_parse(&shown, note.data, note.len, NULL) == TACIT_OK &&
           strcmp(shown.origin, c->enrolment.log.name) != 0;
}

static tacit_status read_size(const client *c, const Tacit__RestoredStep *step, uint64_t *size,
                              tacit_error *err)
{
    tacit_entry e;
    tacit_restore r;
    tacit_status status = tacit_entry_open(&e, step->entry.data, step->entry.len, err);
    if (status != TACIT_OK)
        return status;
    if (e.entry->body_case == TACIT__ENTRY__BODY_RESTORED)
        status = tacit_restore_open(&r, e.entry->restored, c->enrolment.operator_key, err);
    else
        status = tacit_fail(err, TACIT_INTEGRITY, "server: what it calls a restore is none");
    if (status == TACIT_OK)
        *size = r.size;
    tacit_entry_close(&e);
    return status;
}

/* The newest checkpoint held that every copy must continue. */
static tacit_status choose_held(client *c, const Tacit__RestoredReply *reply, uint64_t *held,
                                tacit_error *err)
{
    uint64_t least = UINT64_MAX, size;
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < reply->n_steps && status == TACIT_OK; i++) {
        status = read_size(c, reply->steps[i], &size, err);
        if (status == TACIT_OK && size < least)
            least = size;
    }
    return status == TACIT_OK ? tacit_account_held_before(c->account, least, held, err) : status;
}

static tacit_status take_steps(const Tacit__RestoredReply *reply, tacit_restore_step *out,
                               tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < reply->n_steps && status == TACIT_OK; i++) {
        const Tacit__RestoredStep *s = reply->steps[i];
        out[i].entry = (tacit_receipt){.entry = tacit_span_of(s->entry), .index = s->index};
        status =
            tacit_proof_from_fields(&out[i].entry.inclusion, s->inclusion, s->n_inclusion, err);
        if (status == TACIT_OK)
            status = tacit_proof_from_fields(&out[i].growth, s->growth, s->n_growth, err);
    }
    return status;
}

/* Whether a policy was declared since the enrolment: each such one has a serial. */
static bool was_declared_since(tacit_span bytes)
{
    tacit_policy policy;
    return tacit_policy_unpack(&policy, bytes.data, bytes.size, NULL) == TACIT_OK &&
           policy.serial != 0;
}

static tacit_span declared_last(const client *c)
{
    return (tacit_span){c->enrolment.policy, c->enrolment.policy_size};
}

/* What the policies in force rest on may be lost with the rest: both are brought again. */
static tacit_status bring_policies(client *c, tacit_error *err)
{
    client_signed_policy pinned;
    tacit_status status = client_signed_policy_get(c->db, &pinned, err);
    bool stands_in = pinned.size && pinned.over_size,
         redeclared = was_declared_since(declared_last(c));
    if (status == TACIT_OK && stands_in) {
        pinned.pending = true;
        status = client_signed_policy_put(c->db, &pinned, err);
    }
    if (status == TACIT_OK && redeclared)
        status = client_redeclare_put(c->db, true, err);
    if (status == TACIT_OK) /* entries of the log have other places now */
        status =
            client_declared_end_put(c->db, redeclared && !stands_in ? CLIENT_ALL_OLDER : 0, err);
    return status;
}

static tacit_status store(client *c, const tacit_restore_proof *proof, bool newest, uint64_t *again,
                          tacit_error *err)
{
    client_enrolment next = c->enrolment;
    uint64_t done;
    tacit_status status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_account_follow_restore(c->account, proof, next.operator_key, &next.log,
                                           &next.log_generation, again, err),
              done);
    if (newest)
        TACIT_TRY(reservation_supersede(c, false, err), done);
    TACIT_TRY(client_enrolment_put(c->db, &next, err), done);
    TACIT_TRY(client_receipts_get(c->db, &done, err), done);
    if (*again <= done)
        TACIT_TRY(client_receipts_put(c->db, *again - 1, err), done);
    TACIT_TRY(bring_policies(c, err), done);
    TACIT_TRY(tacit_database_commit(c->db, err), done);
    c->enrolment = next;
    return TACIT_OK;
done:
    tacit_database_rollback(c->db);
    return status;
}

static tacit_status follow(client *c, const Tacit__RestoredReply *reply, uint64_t held, bool newest,
                           uint64_t *again, tacit_error *err)
{
    tacit_restore_proof proof = {
        .count = reply->n_steps, .checkpoint = tacit_span_of(reply->checkpoint), .held_size = held};
    tacit_restore_step *steps = calloc(reply->n_steps + 1, sizeof *steps);
    proof.step = steps;
    tacit_status status = steps ? tacit_proof_from_fields(&proof.consistency, reply->consistency,
                                                          reply->n_consistency, err)
                                : tacit_fail(err, TACIT_NO_MEMORY,
                                             "restore: no memory for %zu steps", reply->n_steps);
    if (status == TACIT_OK)
        status = take_steps(reply, steps, err);
    if (status == TACIT_OK)
        status = receipts_keep(c, err);
    if (status == TACIT_OK)
        status = store(c, &proof, newest, again, err);
    free(steps);
    return status;
}

tacit_status client_follow_restore(client *c, client_session *s, bool newest, tacit_error *err)
{
    Tacit__RestoredReply *first = NULL, *reply = NULL;
    tacit_account_status now;
    uint64_t held, again = 0;
    tacit_status status;
    TACIT_TRY(check_pinned(c, err), done);
    TACIT_TRY(ask(c, s, 0, &first, err), done);
    TACIT_TRY(choose_held(c, first, &held, err), done);
    TACIT_TRY(ask(c, s, held, &reply, err), done);
    TACIT_TRY(follow(c, reply, held, newest, &again, err), done);
    TACIT_TRY(reservation_sweep(c, err), done);
    TACIT_TRY(tacit_account_status_get(c->account, &now, err), done);
    tacit_log_warn("the server was restored from a backup, as its operator's key vouches: this "
                   "device follows '%s' now and brings %" PRIu64 " of its entries there again",
                   c->enrolment.log.name, now.next_sequence - again);
done:
    tacit_message_free(first);
    tacit_message_free(reply);
    return status;
}

/* `index`: of the entry that declares it again. Where the log did not take it, all that this device
 * has seen of the log is older. */
static tacit_status put_redeclared(client *c, bool taken, uint64_t index, tacit_error *err)
{
    client_signed_policy pinned;
    tacit_account_status now;
    tacit_status status = tacit_account_status_get(c->account, &now, err);
    if (status == TACIT_OK)
        status = client_signed_policy_get(c->db, &pinned, err);
    if (status == TACIT_OK)
        status = client_redeclare_put(c->db, false, err);
    if (status == TACIT_OK && !(pinned.size && pinned.over_size))
        status = client_declared_end_put(c->db, taken ? index + 1 : now.checkpoint_size, err);
    return status;
}

/* Those before the last one, in their order: entries that were signed under one of them are taken
 * by a log that knows it. One that the log has is refused, and let be. */
static tacit_status declare_earlier(client *c, client_session *s, tacit_error *err)
{
    client_declared d = {.id = 0};
    const tacit_span last = declared_last(c);
    uint64_t index;
    tacit_status status = client_declared_next(c->db, 0, &d, err);
    for (; status == TACIT_OK; status = client_declared_next(c->db, d.id, &d, err)) {
        const tacit_span policy = {d.policy, d.size};
        bool is_last = d.size == last.size && memcmp(d.policy, last.data, d.size) == 0;
        if (is_last || !was_declared_since(policy))
            continue;
        status = client_declare_again(c, s, policy, &index, err);
        if (status != TACIT_OK && status != TACIT_REFUSED)
            return status;
    }
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

tacit_status client_redeclare(client *c, client_session *s, bool *done, tacit_error *err)
{
    uint64_t index = 0;
    tacit_status status = client_redeclare_get(c->db, done, err);
    if (status != TACIT_OK || !*done)
        return status;
    status = declare_earlier(c, s, err);
    if (status != TACIT_OK)
        return status;
    status = client_declare_again(c, s, declared_last(c), &index, err);
    bool taken = status == TACIT_OK;
    if (status == TACIT_REFUSED) {
        tacit_log_warn("%s", err ? err->message : "the log does not take the policy again");
        status = TACIT_OK;
    }
    if (status == TACIT_OK)
        status = tacit_database_begin(c->db, err);
    if (status != TACIT_OK)
        return status;
    status = put_redeclared(c, taken, index, err);
    if (status == TACIT_OK)
        status = tacit_database_commit(c->db, err);
    if (status != TACIT_OK)
        tacit_database_rollback(c->db);
    return status;
}
