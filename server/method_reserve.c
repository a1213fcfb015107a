/* RESERVE, ABANDON and RECEIPT: a device's own entries in the log. */
#include "server/methods.h"

#include "common/killpoint.h"
#include "common/log.h"
#include "common/message.h"
#include "privacy/entry.h"
#include "privacy/receipt.h"
#include "server/round_machine.h"
#include "server/round_store.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Where an own entry stands in the log; the reply proves it. */
typedef struct placed {
    uint64_t index;
    uint8_t nonce[32]; /* of a reserve */
} placed;

static tacit_status new_placed(gate_call *call, placed **out, tacit_error *err)
{
    *out = calloc(1, sizeof **out);
    call->own = *out;
    return *out ? TACIT_OK : tacit_fail(err, TACIT_NO_MEMORY, "no memory");
}

static void free_placed(gate_call *call)
{
    if (call->own)
        sodium_memzero(call->own, sizeof(placed));
    free(call->own);
}

/* A device entry of the sender's own, of the kind that the method takes. */
static tacit_status open_own_entry(gate_call *call, const ProtobufCBinaryData *bytes,
                                   Tacit__Entry__BodyCase kind, tacit_entry *out, tacit_error *err)
{
    tacit_status status = tacit_entry_open(out, bytes->data, bytes->len, err);
    if (status != TACIT_OK)
        return status;
    const Tacit__Entry *entry = out->entry;
    bool own = entry->device.len == TACIT_DEVICE_BYTES &&
               memcmp(entry->device.data, call->device.device, TACIT_DEVICE_BYTES) == 0;
    if (entry->body_case == kind && own)
        return TACIT_OK;
    tacit_entry_close(out);
    return tacit_fail(err, TACIT_BAD_INPUT, "expected an own '%s' entry",
                      tacit_entry_kind_name(kind));
}

/* A chain that forks is a copy of the device: the log refused the entry, the device is frozen. */
static tacit_status freeze_on_fork(gate_call *call, tacit_status status, tacit_error *err)
{
    if (status != TACIT_INTEGRITY)
        return status;
    tacit_log_warn("device %s: %s; refused", call->device.name, err->message);
    return status;
}

static tacit_status check_round(gate_call *call, const Tacit__Reserve *reserve, round_row *round,
                                tacit_error *err)
{
    bool member = false;
    tacit_database *db = call->server->db;
    if (reserve->round_id.len != ROUND_ID_BYTES)
        return tacit_fail(err, TACIT_BAD_INPUT, "reserve: the round's id has the wrong size");
    tacit_status status = round_get(db, reserve->round_id.data, round, err);
    if (status == TACIT_OK)
        status = round_member_is(db, round->round_id, call->device.device, &member, err);
    if (status == TACIT_OK && !member)
        status = tacit_fail(err, TACIT_REFUSED, "this device was not asked for that round");
    if (status == TACIT_OK &&
        (round->state != ROUND_COLLECTING || call->now_ms >= round->deadline_ms))
        status = tacit_fail(err, TACIT_REFUSED, "the round takes no reserves any more");
    return status;
}

/* Inserts the row of the reserve, or finds it when the same entry came before. */
static tacit_status remember(gate_call *call, const tacit_entry *entry, const round_row *round,
                             placed *p, tacit_error *err)
{
    tacit_database *db = call->server->db;
    update_row row;
    tacit_status status = update_get(db, entry->leaf, &row, err);
    if (status == TACIT_OK)
        memcpy(p->nonce, row.nonce, sizeof p->nonce);
    if (status != TACIT_NOT_FOUND)
        return status;
    row = (update_row){0};
    memcpy(row.reserve_hash, entry->leaf, sizeof row.reserve_hash);
    memcpy(row.round_id, round->round_id, sizeof row.round_id);
    memcpy(row.device, call->device.device, sizeof row.device);
    randombytes_buf(row.nonce, sizeof row.nonce);
    memcpy(p->nonce, row.nonce, sizeof p->nonce);
    return update_insert(db, &row, err);
}

tacit_status method_reserve_act(gate_call *call, tacit_error *err)
{
    Tacit__ReserveRequest *request = NULL;
    tacit_entry entry = {0};
    round_row round = {0};
    placed *p;
    tacit_status status = new_placed(call, &p, err);
    TACIT_TRY(status, done);
    TACIT_TRY(TACIT_UNPACK(&request, tacit__reserve_request, call->received.request.body.data,
                           call->received.request.body.size, TACIT_MESSAGE_ENTRY_MAX, err),
              done);
    TACIT_TRY(open_own_entry(call, &request->entry, TACIT__ENTRY__BODY_RESERVE, &entry, err), done);
    /* The same entry again is answered whatever became of the round. */
    if (tacit_ledger_find(call->server->ledger, entry.leaf, &p->index, err) != TACIT_OK) {
        TACIT_TRY(check_round(call, entry.entry->reserve, &round, err), done);
        status = tacit_ledger_append(call->server->ledger, request->entry.data, request->entry.len,
                                     &p->index, NULL, err);
        TACIT_TRY(freeze_on_fork(call, status, err), done);
    }
    TACIT_TRY(remember(call, &entry, &round, p, err), done);
    tacit_log_info("device %s reserved; entry %llu", call->device.name,
                   (unsigned long long)p->index);
done:
    round_row_free(&round);
    tacit_entry_close(&entry);
    tacit_message_free(request);
    return status;
}

tacit_status method_reserve_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    placed *p = call->own;
    Tacit__ReserveReply reply = TACIT__RESERVE_REPLY__INIT;
    tacit_proof proof;
    ProtobufCBinaryData fields[TACIT_PROOF_MAX];
    tacit_status status =
        tacit_ledger_inclusion(call->server->ledger, p->index, point->size, &proof, err);
    if (status != TACIT_OK)
        return status;
    tacit_proof_to_fields(&proof, fields);
    reply.index = p->index;
    reply.checkpoint = tacit_field_of(point->checkpoint, strlen(point->checkpoint));
    reply.inclusion = fields;
    reply.n_inclusion = proof.count;
    reply.nonce = tacit_field_of(p->nonce, sizeof p->nonce);
    return gate_reply_with(call, &reply, err);
}

void method_reserve_release(gate_call *call)
{
    tacit_kill_point("server.reserve_logged");
    round_machine_wake(call->server->rounds);
    free_placed(call);
}

tacit_status method_abandon_act(gate_call *call, tacit_error *err)
{
    Tacit__AbandonRequest *request = NULL;
    Tacit__AbandonReply reply = TACIT__ABANDON_REPLY__INIT;
    tacit_entry entry = {0};
    uint64_t index = 0;
    tacit_status status =
        TACIT_UNPACK(&request, tacit__abandon_request, call->received.request.body.data,
                     call->received.request.body.size, TACIT_MESSAGE_ENTRY_MAX, err);
    TACIT_TRY(status, done);
    TACIT_TRY(open_own_entry(call, &request->entry, TACIT__ENTRY__BODY_ABANDON, &entry, err), done);
    status = tacit_ledger_append(call->server->ledger, request->entry.data, request->entry.len,
                                 &index, NULL, err);
    TACIT_TRY(freeze_on_fork(call, status, err), done);
    status = update_end(call->server->db, entry.entry->abandon->reserve_hash.data, UPDATE_ABANDONED,
                        "abandoned", index, err);
    if (status == TACIT_CONFLICT) /* it was decided before: the log says both */
        status = TACIT_OK;
    TACIT_TRY(status, done);
    tacit_log_info("device %s abandoned its reserve: %s", call->device.name,
                   entry.entry->abandon->reason);
    reply.index = index;
    status = gate_reply_with(call, &reply, err);
done:
    tacit_entry_close(&entry);
    tacit_message_free(request);
    return status;
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
    if (request->leaf_hash.len != TACIT_HASH_BYTES)
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
    tacit_proof proof;
    ProtobufCBinaryData fields[TACIT_PROOF_MAX];
    tacit_status status =
        tacit_ledger_inclusion(call->server->ledger, p->index, point->size, &proof, err);
    if (status != TACIT_OK)
        return status;
    tacit_proof_to_fields(&proof, fields);
    reply.index = p->index;
    reply.checkpoint = tacit_field_of(point->checkpoint, strlen(point->checkpoint));
    reply.inclusion = fields;
    reply.n_inclusion = proof.count;
    return gate_reply_with(call, &reply, err);
}

void method_receipt_release(gate_call *call)
{
    free_placed(call);
}
