/* RESERVE, ABANDON and RECEIPT: a device's own entries in the log.
 *
 * A device signs and stores a reserve before it asks, so its chain holds the entry whatever the
 * server says: a reserve that comes too late, of local training, or that was signed before the
 * device's cap was lowered (outdated, privacy/ledger.h) is logged all the same. Only one that comes
 * in time and is not outdated takes part; the nonce of the reply tells. */
#include "server/methods.h"

#include "common/killpoint.h"
#include "common/log.h"
#include "common/message.h"
#include "server/log_proof.h"
#include "server/own_entry.h"
#include "server/round_machine.h"
#include "server/round_store.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* An own entry on its way into the log, and where it stands there; the reply proves it. */
typedef struct placed {
    void *request; /* the message that `bytes` are in; NULL for a receipt */
    ProtobufCBinaryData bytes;
    tacit_entry entry; /* opened from `bytes` */
    uint64_t index;
    uint64_t known_size; /* of the checkpoint that the device holds */
    bool takes_part;     /* a reserve that came in time and is not outdated */
    uint8_t nonce[32];   /* of such a reserve */
} placed;

static tacit_status new_placed(gate_call *call, placed **out, tacit_error *err)
{
    *out = calloc(1, sizeof **out);
    call->own = *out;
    return *out ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "no memory");
}

static void free_placed(gate_call *call)
{
    placed *p = call->own;
    if (!p)
        return;
    tacit_entry_close(&p->entry);
    tacit_message_free(p->request);
    sodium_memzero(p, sizeof *p);
    free(p);
}

/* Whether the round still takes this device's reserve. */
static tacit_status is_in_time(gate_call *call, const Tacit__Reserve *reserve, bool *in_time,
                               tacit_error *err)
{
    tacit_database *db = call->server->db;
    round_brief round;
    bool member = false;
    *in_time = false;
    if (!tacit_bytes_are(reserve->round_id, ROUND_ID_BYTES))
        return TACIT_OK; /* local training */
    tacit_status status = round_brief_get(db, reserve->round_id.data, &round, err);
    if (status == TACIT_NOT_FOUND)
        return TACIT_OK;
    if (status == TACIT_OK)
        status = round_member_is(db, round.round_id, call->device.device, &member, err);
    *in_time = status == TACIT_OK && member && round.state == ROUND_COLLECTING &&
               call->now_ms < round.deadline_ms;
    return status;
}

static tacit_status take_part(gate_call *call, placed *p, tacit_error *err)
{
    update_row row = {0};
    memcpy(row.reserve_hash, p->entry.leaf, sizeof row.reserve_hash);
    memcpy(row.round_id, p->entry.entry->reserve->round_id.data, sizeof row.round_id);
    memcpy(row.device, call->device.device, sizeof row.device);
    if (p->takes_part)
        randombytes_buf(row.nonce, sizeof row.nonce);
    memcpy(p->nonce, row.nonce, sizeof p->nonce);
    tacit_status status = update_insert(call->server->db, &row, err);
    /* An outdated reserve is the device's answer to this plan: it is not asked for it again, the
     * round does not wait for it, and no bytes are taken for it. */
    if (status == TACIT_OK && !p->takes_part)
        status = update_end(call->server->db, row.reserve_hash, UPDATE_ABANDONED, "outdated",
                            p->index, err);
    sodium_memzero(&row, sizeof row);
    return status;
}

static tacit_status place_new(gate_call *call, placed *p, tacit_error *err)
{
    bool in_time;
    tacit_ledger_reserve logged;
    tacit_status status = own_entry_append(call, &p->entry, p->bytes, &p->index, err);
    if (status == TACIT_OK)
        status = tacit_ledger_reserve_get(call->server->ledger, p->entry.leaf, &logged, err);
    if (status == TACIT_OK)
        status = is_in_time(call, p->entry.entry->reserve, &in_time, err);
    if (status != TACIT_OK)
        return status;
    p->takes_part = in_time && !logged.outdated;
    if (in_time)
        status = take_part(call, p, err);
    if (status == TACIT_OK)
        tacit_log_info("device %s reserved%s%s; entry %llu", device_called(&call->device).text,
                       p->takes_part ? "" : " without taking part in a round",
                       logged.outdated ? ", under a policy that was tightened since" : "",
                       (unsigned long long)p->index);
    return status;
}

/* The same entry again is answered as before, whatever became of the round. */
static tacit_status place_again(gate_call *call, placed *p, tacit_error *err)
{
    update_row row;
    tacit_ledger_reserve logged;
    tacit_status status =
        tacit_ledger_reserve_get(call->server->ledger, p->entry.leaf, &logged, err);
    if (status != TACIT_OK || logged.outdated)
        return status;
    status = update_get(call->server->db, p->entry.leaf, &row, err);
    p->takes_part = status == TACIT_OK;
    if (p->takes_part)
        memcpy(p->nonce, row.nonce, sizeof p->nonce);
    sodium_memzero(&row, sizeof row);
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

tacit_status method_reserve_prepare(gate_call *call, tacit_error *err)
{
    Tacit__ReserveRequest *request = NULL;
    placed *p;
    tacit_status status = new_placed(call, &p, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&request, tacit__reserve_request, call->received.request.body.data,
                              call->received.request.body.size, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK)
        return status;
    p->request = request;
    p->bytes = request->entry;
    p->known_size = request->checkpoint_size;
    return own_entry_open(call, p->bytes, OWN_ENTRY(RESERVE), &p->entry, err);
}

tacit_status method_reserve_act(gate_call *call, tacit_error *err)
{
    placed *p = call->own;
    tacit_status status = tacit_ledger_find(call->server->ledger, p->entry.leaf, &p->index, err);
    if (status == TACIT_OK)
        return place_again(call, p, err);
    return status == TACIT_NOT_FOUND ? place_new(call, p, err) : status;
}

tacit_status method_reserve_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    placed *p = call->own;
    Tacit__ReserveReply reply = TACIT__RESERVE_REPLY__INIT;
    log_proofs proofs;
    tacit_status status =
        log_proofs_make(&proofs, call->server, p->index, p->known_size, point, err);
    if (status != TACIT_OK)
        return status;
    LOG_PROOFS_TELL(&reply, &proofs, p->index, point);
    if (p->takes_part)
        reply.nonce = tacit_field_of(p->nonce, sizeof p->nonce);
    return gate_reply_with(call, &reply, err);
}

void method_reserve_release(gate_call *call)
{
    tacit_kill_point("server.reserve_logged");
    round_machine_wake(call->server->rounds);
    free_placed(call);
}

/* The update of an abandoned reserve, unless it was decided before: the log says both then. */
static tacit_status end_update(gate_call *call, const tacit_entry *entry, uint64_t index,
                               tacit_error *err)
{
    const Tacit__Abandon *abandon = entry->entry->abandon;
    if (entry->entry->body_case != TACIT__ENTRY__BODY_ABANDON)
        return TACIT_OK;
    tacit_status status = update_end(call->server->db, abandon->reserve_hash.data, UPDATE_ABANDONED,
                                     "abandoned", index, err);
    if (status == TACIT_OK)
        tacit_log_info("device %s abandoned its reserve: %s", device_called(&call->device).text,
                       abandon->reason);
    return status == TACIT_CONFLICT ? TACIT_OK : status;
}

/* Takes the entry of a lost account as well: it ends all of a device's reserves; and a spend whose
 * upload has no round here any more, since a restored server lost it: the chain goes on over it. */
tacit_status method_abandon_prepare(gate_call *call, tacit_error *err)
{
    Tacit__AbandonRequest *request = NULL;
    placed *p;
    tacit_status status = new_placed(call, &p, err);
    if (status == TACIT_OK)
        status = TACIT_UNPACK(&request, tacit__abandon_request, call->received.request.body.data,
                              call->received.request.body.size, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK)
        return status;
    p->request = request;
    p->bytes = request->entry;
    return own_entry_open(call, p->bytes,
                          OWN_ENTRY(ABANDON) | OWN_ENTRY(ACCOUNT_LOST) | OWN_ENTRY(SPEND),
                          &p->entry, err);
}

tacit_status method_abandon_act(gate_call *call, tacit_error *err)
{
    placed *p = call->own;
    Tacit__AbandonReply reply = TACIT__ABANDON_REPLY__INIT;
    tacit_status status = own_entry_append(call, &p->entry, p->bytes, &reply.index, err);
    if (status == TACIT_OK)
        status = end_update(call, &p->entry, reply.index, err);
    return status == TACIT_OK ? gate_reply_with(call, &reply, err) : status;
}

void method_abandon_release(gate_call *call)
{
    round_machine_wake(call->server->rounds);
    free_placed(call);
}

tacit_status method_receipt_act(gate_call *call, tacit_error *err)
{
    Tacit__ReceiptRequest *request = NULL;
    placed *p;
    tacit_status status = new_placed(call, &p, err);
    if (status != TACIT_OK)
        return status;
    status = TACIT_UNPACK(&request, tacit__receipt_request, call->received.request.body.data,
                          call->received.request.body.size, 1024, err);
    if (status != TACIT_OK)
        return status;
    p->known_size = request->checkpoint_size;
    if (!tacit_bytes_are(request->leaf_hash, TACIT_HASH_BYTES))
        status = tacit_fail(err, TACIT_BAD_INPUT, "receipt: the hash has the wrong size");
    else
        status = tacit_ledger_find(call->server->ledger, request->leaf_hash.data, &p->index, err);
    tacit_message_free(request);
    return status;
}

tacit_status method_receipt_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    placed *p = call->own;
    Tacit__ReceiptReply reply = TACIT__RECEIPT_REPLY__INIT;
    log_proofs proofs;
    tacit_status status =
        log_proofs_make(&proofs, call->server, p->index, p->known_size, point, err);
    if (status != TACIT_OK)
        return status;
    LOG_PROOFS_TELL(&reply, &proofs, p->index, point);
    return gate_reply_with(call, &reply, err);
}

void method_receipt_release(gate_call *call)
{
    free_placed(call);
}
