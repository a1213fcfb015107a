#include "client/receipts.h"

#include "client/round_state_store.h"
#include "client/upload.h"
#include "common/file.h"
#include "common/log.h"
#include "common/message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void receipt_reply_free(receipt_reply *r)
{
    tacit_reservation_free(&r->entry);
    tacit_message_free(r->message);
    *r = (receipt_reply){0};
}

static uint64_t held_size(client *c)
{
    char *note;
    uint64_t size = 0;
    if (tacit_account_last_checkpoint(c->account, &note, &size, NULL) != TACIT_OK)
        return 0;
    free(note);
    return size;
}

/* --- asking --- */

typedef struct placement {
    uint64_t index;
    ProtobufCBinaryData checkpoint;
    const ProtobufCBinaryData *inclusion, *consistency;
    size_t n_inclusion, n_consistency;
} placement;

static tacit_status take_placement(receipt_reply *out, const placement *p, tacit_error *err)
{
    out->receipt = (tacit_receipt){.entry = {out->entry.entry, out->entry.entry_size},
                                   .index = p->index,
                                   .checkpoint = tacit_span_of(p->checkpoint)};
    tacit_status status =
        tacit_proof_from_fields(&out->receipt.inclusion, p->inclusion, p->n_inclusion, err);
    if (status == TACIT_OK)
        status = tacit_proof_from_fields(&out->consistency, p->consistency, p->n_consistency, err);
    return status;
}

static tacit_status submit_reserve(client *c, client_session *s, receipt_reply *out,
                                   tacit_error *err)
{
    Tacit__ReserveRequest request = TACIT__RESERVE_REQUEST__INIT;
    Tacit__ReserveReply *reply;
    request.entry = tacit_field_of(out->entry.entry, out->entry.entry_size);
    request.checkpoint_size = held_size(c);
    tacit_status status =
        client_session_call(s, TACIT__METHOD__METHOD_RESERVE, &request,
                            &tacit__reserve_reply__descriptor, &out->message, err);
    if (status != TACIT_OK)
        return status;
    reply = out->message;
    if (reply->nonce.len != 0 && reply->nonce.len != 32)
        return tacit_fail(err, TACIT_BAD_INPUT, "server: a nonce of %zu bytes", reply->nonce.len);
    out->nonce = reply->nonce.len ? reply->nonce.data : NULL;
    placement p = {reply->index,       reply->checkpoint,  reply->inclusion,
                   reply->consistency, reply->n_inclusion, reply->n_consistency};
    return take_placement(out, &p, err);
}

tacit_status receipt_submit_reserve(client *c, client_session *s,
                                    const uint8_t plan_hash[TACIT_HASH_BYTES], receipt_reply *out,
                                    tacit_error *err)
{
    *out = (receipt_reply){0};
    tacit_status status = tacit_account_find(c->account, plan_hash, &out->entry, err);
    if (status == TACIT_OK)
        status = submit_reserve(c, s, out, err);
    if (status != TACIT_OK)
        receipt_reply_free(out);
    return status;
}

/* TACIT_NOT_FOUND: the log does not have it. */
static tacit_status ask_receipt(client *c, client_session *s, receipt_reply *out, tacit_error *err)
{
    Tacit__ReceiptRequest request = TACIT__RECEIPT_REQUEST__INIT;
    Tacit__ReceiptReply *reply;
    request.leaf_hash = tacit_field_of(out->entry.hash, TACIT_HASH_BYTES);
    request.checkpoint_size = held_size(c);
    tacit_status status =
        client_session_call(s, TACIT__METHOD__METHOD_RECEIPT, &request,
                            &tacit__receipt_reply__descriptor, &out->message, err);
    if (status != TACIT_OK)
        return status;
    reply = out->message;
    placement p = {reply->index,       reply->checkpoint,  reply->inclusion,
                   reply->consistency, reply->n_inclusion, reply->n_consistency};
    return take_placement(out, &p, err);
}

tacit_status receipt_store(client *c, const uint8_t hash[TACIT_HASH_BYTES],
                           const receipt_reply *reply, tacit_error *err)
{
    return tacit_account_acknowledge(c->account, hash, &reply->receipt, &reply->consistency,
                                     &c->enrolment.log, reply->nonce, err);
}

/* --- bringing entries into the log --- */

static tacit_status submit_alone(client_session *s, const receipt_reply *r, tacit_error *err)
{
    Tacit__AbandonRequest request = TACIT__ABANDON_REQUEST__INIT;
    Tacit__AbandonReply *reply = NULL;
    request.entry = tacit_field_of(r->entry.entry, r->entry.entry_size);
    tacit_status status = client_session_call(s, TACIT__METHOD__METHOD_ABANDON, &request,
                                              &tacit__abandon_reply__descriptor, &reply, err);
    tacit_message_free(reply);
    return status;
}

/* What sync_one has to know about an entry; `reserve` is its own hash or that of the reserve it
 * ends. */
typedef struct entry_kind {
    Tacit__Entry__BodyCase kind;
    uint8_t reserve[TACIT_HASH_BYTES];
} entry_kind;

/* Whether the server took the spend with the announcement of its upload. */
static tacit_status announce_spend(client *c, client_session *s, const receipt_reply *r,
                                   const entry_kind *k, tacit_error *err)
{
    Tacit__UploadBeginReply *reply = NULL;
    round_state round;
    tacit_status status = round_state_find(c->db, k->reserve, &round, err);
    if (status != TACIT_OK)
        return status;
    status =
        upload_announce(s, &round, (tacit_span){r->entry.entry, r->entry.entry_size}, &reply, err);
    tacit_message_free(reply);
    round_state_free(&round);
    return status;
}

/* A spend goes with its upload. One whose round was given up before that is announced alone, and
 * where the server has no such round (any more) it goes by itself: what the chain has after it
 * cannot be logged before it. */
static tacit_status submit_spend(client *c, client_session *s, receipt_reply *r,
                                 const entry_kind *k, tacit_error *err)
{
    tacit_status status = ask_receipt(c, s, r, err);
    if (status != TACIT_NOT_FOUND)
        return status;
    status = announce_spend(c, s, r, k, err);
    if (status == TACIT_NOT_FOUND || status == TACIT_CONFLICT)
        status = submit_alone(s, r, err);
    return status == TACIT_OK ? ask_receipt(c, s, r, err) : status;
}

/* Every kind is sent again until the log's receipt is here; the same bytes twice cost nothing. */
static tacit_status submit(client *c, client_session *s, receipt_reply *r, const entry_kind *k,
                           tacit_error *err)
{
    if (k->kind == TACIT__ENTRY__BODY_RESERVE)
        return submit_reserve(c, s, r, err);
    if (k->kind == TACIT__ENTRY__BODY_SPEND)
        return submit_spend(c, s, r, k, err);
    bool ends = k->kind == TACIT__ENTRY__BODY_ABANDON || k->kind == TACIT__ENTRY__BODY_ACCOUNT_LOST;
    tacit_status status = ends ? submit_alone(s, r, err) : TACIT_OK;
    return status == TACIT_OK ? ask_receipt(c, s, r, err) : status;
}

static tacit_status kind_of(const tacit_reservation *r, entry_kind *out, tacit_error *err)
{
    tacit_entry e;
    tacit_status status = tacit_entry_read(&e, r->entry, r->entry_size, err);
    if (status != TACIT_OK)
        return status;
    out->kind = e.entry->body_case;
    memcpy(out->reserve, r->hash, sizeof out->reserve);
    if (out->kind == TACIT__ENTRY__BODY_SPEND)
        memcpy(out->reserve, e.entry->spend->reserve_hash.data, sizeof out->reserve);
    tacit_entry_close(&e);
    return TACIT_OK;
}

/* True for what the open round sends itself: its reserve, its spend. */
static bool is_of_open_round(client *c, const entry_kind *k)
{
    round_state r;
    round_state_kind stage = k->kind == TACIT__ENTRY__BODY_RESERVE ? ROUND_RESERVED : ROUND_SEALED;
    bool own = k->kind == TACIT__ENTRY__BODY_RESERVE || k->kind == TACIT__ENTRY__BODY_SPEND;
    if (!own || round_state_find(c->db, k->reserve, &r, NULL) != TACIT_OK)
        return false;
    own = r.state == stage && !r.local;
    round_state_free(&r);
    return own;
}

static tacit_status write_file(client *c, const tacit_reservation *entry,
                               Tacit__Entry__BodyCase kind, tacit_error *err)
{
    char name[96], origin[24] = "", path[CLIENT_PATH_MAX];
    uint8_t *bytes = NULL;
    size_t size;
    if (c->enrolment.log_generation > 1) /* those of the origin before stay */
        snprintf(origin, sizeof origin, "-origin%u", c->enrolment.log_generation);
    snprintf(name, sizeof name, "%06" PRIu64 "-%s%s.receipt", entry->sequence,
             tacit_entry_kind_name(kind), origin);
    tacit_status status = tacit_account_receipt(c->account, entry->hash, &bytes, &size, err);
    if (status == TACIT_OK)
        status = client_path(c, path, "receipts", name, err);
    if (status == TACIT_OK)
        status = tacit_file_write(path, bytes, size, 0600, err);
    free(bytes);
    return status;
}

/* What a server answers that was reached and does not take an entry; everything else is of the way
 * there or of this machine. */
static bool is_refusal(tacit_status status)
{
    return status == TACIT_REFUSED || status == TACIT_CONFLICT || status == TACIT_NOT_FOUND ||
           status == TACIT_BAD_INPUT;
}

static tacit_status fail_refused(const tacit_reservation *entry, const entry_kind *k,
                                 tacit_error *err)
{
    if (err)
        err->status = TACIT_REFUSED;
    tacit_fail_context(err,
                       "the log does not take entry %" PRIu64
                       " (%s) of this device, and none after "
                       "it; nothing more is reserved before the operator has settled that",
                       entry->sequence, tacit_entry_kind_name(k->kind));
    return TACIT_REFUSED;
}

/* One entry: in the log with a stored receipt, or *later. */
static tacit_status sync_one(client *c, client_session *s, receipt_reply *r, const entry_kind *k,
                             bool *later, tacit_error *err)
{
    if (r->entry.acknowledged)
        return TACIT_OK;
    if (is_of_open_round(c, k)) {
        *later = true;
        return TACIT_OK;
    }
    tacit_status status = submit(c, s, r, k, err);
    if (status == TACIT_OK)
        return receipt_store(c, r->entry.hash, r, err);
    return is_refusal(status) ? fail_refused(&r->entry, k, err) : status;
}

static tacit_status keep_one(client *c, uint64_t sequence, tacit_error *err)
{
    tacit_reservation entry;
    entry_kind kind;
    tacit_status status = tacit_account_entry(c->account, sequence, &entry, err);
    if (status == TACIT_OK)
        status = kind_of(&entry, &kind, err);
    if (status == TACIT_OK && entry.acknowledged)
        status = write_file(c, &entry, kind.kind, err);
    tacit_reservation_free(&entry);
    return status;
}

tacit_status receipts_keep(client *c, tacit_error *err)
{
    uint64_t done;
    tacit_status status = client_receipts_get(c->db, &done, err);
    while (status == TACIT_OK)
        status = keep_one(c, ++done, err);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

tacit_status receipts_sync(client *c, client_session *s, tacit_error *err)
{
    uint64_t done;
    bool later = false;
    tacit_status status = client_receipts_get(c->db, &done, err);
    while (status == TACIT_OK && !later) {
        receipt_reply r = {0};
        entry_kind kind = {.kind = TACIT__ENTRY__BODY__NOT_SET};
        status = tacit_account_entry(c->account, done + 1, &r.entry, err);
        if (status == TACIT_NOT_FOUND)
            return TACIT_OK;
        if (status == TACIT_OK)
            status = kind_of(&r.entry, &kind, err);
        if (status == TACIT_OK)
            status = sync_one(c, s, &r, &kind, &later, err);
        if (status == TACIT_OK && !later)
            status = write_file(c, &r.entry, kind.kind, err);
        if (status == TACIT_OK && !later)
            status = client_receipts_put(c->db, ++done, err);
        receipt_reply_free(&r);
    }
    return status;
}
