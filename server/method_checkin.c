/* CHECK_IN: the newest checkpoint with its consistency proof, the newest adapter, and a plan when
 * the device is asked. */
#include "server/methods.h"

#include "common/message.h"
#include "privacy/receipt.h"
#include "proto/plan.pb-c.h"
#include "server/registry_store.h"
#include "server/round_store.h"

#include <stdlib.h>
#include <string.h>

typedef struct checkin {
    Tacit__CheckInRequest *request;
    uint64_t known_size; /* of the checkpoint that the device holds; 0: none */
    bool asked;          /* the plan below is for this device */
    round_row round;
    lineage_row lineage;
    uint8_t *plan_entry;
    size_t plan_entry_size;
    bool has_newest, has_parent;
    adapter_row newest, parent;
} checkin;

tacit_status method_checkin_prepare(gate_call *call, tacit_error *err)
{
    tacit_checkpoint held;
    checkin *c = calloc(1, sizeof *c);
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "check-in: no memory");
    call->own = c;
    tacit_status status =
        TACIT_UNPACK(&c->request, tacit__check_in_request, call->received.request.body.data,
                     call->received.request.body.size, 65536, err);
    if (status != TACIT_OK || c->request->checkpoint.len == 0)
        return status;
    status = tacit_checkpoint_verify(&held, c->request->checkpoint.data, c->request->checkpoint.len,
                                     tacit_ledger_key(call->server->ledger), err);
    if (status == TACIT_OK)
        c->known_size = held.size;
    return status;
}

/* TACIT_NOT_FOUND is an answer here. */
static tacit_status optional(tacit_status status, bool *found)
{
    *found = status == TACIT_OK;
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

/* The round that collects, when this device belongs to its cohort and has not reserved. */
static tacit_status find_round(gate_call *call, checkin *c, tacit_error *err)
{
    tacit_database *db = call->server->db;
    update_row update;
    bool found, member = false, reserved;
    tacit_status status = optional(round_current(db, &c->round, err), &found);
    if (status != TACIT_OK || !found || c->round.state != ROUND_COLLECTING ||
        call->now_ms >= c->round.deadline_ms)
        return status;
    status = round_member_is(db, c->round.round_id, call->device.device, &member, err);
    if (status == TACIT_OK)
        status = optional(
            update_of_device(db, c->round.round_id, call->device.device, &update, err), &reserved);
    if (status != TACIT_OK || !member || reserved)
        return status;
    status = lineage_get(db, c->round.lineage, &c->lineage, err);
    if (status == TACIT_OK)
        status = tacit_ledger_entry(call->server->ledger, c->round.plan_index, &c->plan_entry,
                                    &c->plan_entry_size, err);
    c->asked = status == TACIT_OK;
    return status;
}

/* The adapter that the plan starts from, when it is not the newest. */
static tacit_status find_parent(gate_call *call, checkin *c, tacit_error *err)
{
    Tacit__Plan *plan = NULL;
    tacit_status status = TACIT_UNPACK(&plan, tacit__plan, c->round.plan, c->round.plan_size,
                                       TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK)
        return status;
    uint64_t version = plan->parent_version;
    tacit_message_free(plan);
    bool is_newest = c->has_newest && c->newest.version == version &&
                     memcmp(c->newest.lineage, c->round.lineage, LINEAGE_BYTES) == 0;
    if (version == 0 || is_newest)
        return TACIT_OK;
    status = registry_get(call->server->db, c->round.lineage, version, &c->parent, err);
    c->has_parent = status == TACIT_OK;
    return status;
}

tacit_status method_checkin_act(gate_call *call, tacit_error *err)
{
    checkin *c = call->own;
    tacit_database *db = call->server->db;
    tacit_status status =
        device_seen(db, call->device.device, call->now_ms, c->request->active_version, err);
    if (status == TACIT_OK)
        status = find_round(call, c, err);
    if (status == TACIT_OK)
        status = optional(registry_current(db, NULL, &c->newest, err), &c->has_newest);
    if (status == TACIT_OK && c->asked)
        status = find_parent(call, c, err);
    return status;
}

static tacit_status add_plan(gate_call *call, const checkin *c, const writer_point *point,
                             Tacit__CheckInReply *reply, tacit_proof *proof,
                             ProtobufCBinaryData *fields, tacit_error *err)
{
    tacit_status status =
        tacit_ledger_inclusion(call->server->ledger, c->round.plan_index, point->size, proof, err);
    if (status != TACIT_OK)
        return status;
    tacit_proof_to_fields(proof, fields);
    reply->plan = tacit_field_of(c->round.plan, c->round.plan_size);
    reply->schedule = tacit_field_of(c->lineage.schedule, c->lineage.schedule_size);
    reply->plan_index = c->round.plan_index;
    reply->plan_proof = fields;
    reply->n_plan_proof = proof->count;
    reply->plan_entry = tacit_field_of(c->plan_entry, c->plan_entry_size);
    return TACIT_OK;
}

tacit_status method_checkin_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    checkin *c = call->own;
    Tacit__CheckInReply reply = TACIT__CHECK_IN_REPLY__INIT;
    tacit_proof consistency = {.count = 0}, inclusion;
    ProtobufCBinaryData consistency_fields[TACIT_PROOF_MAX], plan_fields[TACIT_PROOF_MAX];
    tacit_status status = TACIT_OK;
    if (c->known_size > point->size)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "the device holds a checkpoint of %llu entries, this log has %llu: the "
                          "server was restored from an older copy",
                          (unsigned long long)c->known_size, (unsigned long long)point->size);
    if (c->known_size)
        status = tacit_ledger_consistency(call->server->ledger, c->known_size, point->size,
                                          &consistency, err);
    if (status == TACIT_OK && c->asked)
        status = add_plan(call, c, point, &reply, &inclusion, plan_fields, err);
    if (status != TACIT_OK)
        return status;
    tacit_proof_to_fields(&consistency, consistency_fields);
    reply.checkpoint = tacit_field_of(point->checkpoint, strlen(point->checkpoint));
    reply.consistency = consistency_fields;
    reply.n_consistency = consistency.count;
    reply.poll_after_ms = (uint32_t)call->server->config.poll_ms;
    if (c->has_newest) {
        reply.manifest = tacit_field_of(c->newest.manifest, c->newest.manifest_size);
        reply.manifest_signature = tacit_field_of(c->newest.signature, TACIT_SIGNATURE_BYTES);
    }
    if (c->has_parent) {
        reply.parent_manifest = tacit_field_of(c->parent.manifest, c->parent.manifest_size);
        reply.parent_manifest_signature =
            tacit_field_of(c->parent.signature, TACIT_SIGNATURE_BYTES);
    }
    return gate_reply_with(call, &reply, err);
}

void method_checkin_release(gate_call *call)
{
    checkin *c = call->own;
    if (!c)
        return;
    tacit_message_free(c->request);
    round_row_free(&c->round);
    lineage_row_free(&c->lineage);
    adapter_row_free(&c->newest);
    adapter_row_free(&c->parent);
    free(c->plan_entry);
    free(c);
}
