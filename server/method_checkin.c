/* CHECK_IN: the newest checkpoint with its consistency proof, the newest adapter, and a plan when
 * the device is asked. */
#include "server/methods.h"

#include "common/log.h"
#include "common/message.h"
#include "proto/plan.pb-c.h"
#include "server/ahead.h"
#include "server/log_proof.h"
#include "server/registry_store.h"
#include "server/round_machine.h"
#include "server/round_store.h"

#include <stdlib.h>
#include <string.h>

typedef struct checkin {
    Tacit__CheckInRequest *request;
    uint64_t known_size; /* of the checkpoint that the device holds; 0: none */
    bool elsewhere;      /* that one is of an earlier origin of this log, or of none */
    tacit_checkpoint held;
    bool asked; /* the plan below is for this device */
    round_row round;
    lineage_row lineage;
    uint8_t *plan_entry;
    size_t plan_entry_size;
    uint8_t *manifest_entry;
    size_t manifest_entry_size;
    bool declined;         /* it was not known before that the device declines the lineage */
    double epsilon_cap;    /* in force for the device, as the log has it */
    uint8_t *policy_entry; /* of its policy key, when the device has not taken it yet */
    size_t policy_entry_size;
    uint64_t policy_index;
    bool has_newest, has_parent;
    adapter_row newest, parent;
} checkin;

/* A device that an earlier origin of this log left behind is told of the newest one alone; what led
 * there it asks for (RESTORED). */
static tacit_status take_held(gate_call *call, checkin *c, tacit_error *err)
{
    const ProtobufCBinaryData note = c->request->checkpoint;
    tacit_note_key log = *tacit_ledger_key(call->server->ledger);
    tacit_status status = tacit_checkpoint_parse(&c->held, note.data, note.len, err);
    if (status != TACIT_OK)
        return status;
    c->elsewhere = strcmp(c->held.origin, log.name) != 0;
    memcpy(log.name, c->held.origin, sizeof log.name);
    status = tacit_checkpoint_verify(&c->held, note.data, note.len, &log, err);
    if (status == TACIT_OK && !c->elsewhere)
        c->known_size = c->held.size;
    return status;
}

tacit_status method_checkin_prepare(gate_call *call, tacit_error *err)
{
    checkin *c = calloc(1, sizeof *c);
    if (!c)
        return tacit_fail(err, TACIT_NO_MEMORY, "check-in: no memory");
    call->own = c;
    tacit_status status =
        TACIT_UNPACK(&c->request, tacit__check_in_request, call->received.request.body.data,
                     call->received.request.body.size, 65536, err);
    return status == TACIT_OK && c->request->checkpoint.len ? take_held(call, c, err) : status;
}

/* TACIT_NOT_FOUND is an answer here. */
static tacit_status optional(tacit_status status, bool *found)
{
    *found = status == TACIT_OK;
    return status == TACIT_NOT_FOUND ? TACIT_OK : status;
}

/* Whether a round collects that this device belongs to and has not reserved for. */
static tacit_status is_asked(gate_call *call, const round_brief *round, bool *asked,
                             tacit_error *err)
{
    tacit_database *db = call->server->db;
    update_row update;
    bool member = false, reserved = true;
    if (round->state != ROUND_COLLECTING || call->now_ms >= round->deadline_ms)
        return TACIT_OK;
    tacit_status status = round_member_is(db, round->round_id, call->device.device, &member, err);
    if (status == TACIT_OK && member)
        status = optional(update_of_device(db, round->round_id, call->device.device, &update, err),
                          &reserved);
    *asked = status == TACIT_OK && member && !reserved;
    return status;
}

static tacit_status find_round(gate_call *call, checkin *c, tacit_error *err)
{
    tacit_database *db = call->server->db;
    round_brief brief;
    bool found;
    tacit_status status = optional(round_brief_current(db, &brief, err), &found);
    if (status == TACIT_OK && found)
        status = is_asked(call, &brief, &c->asked, err);
    if (status != TACIT_OK || !c->asked)
        return status;
    status = round_get(db, brief.round_id, &c->round, err);
    if (status == TACIT_OK)
        status = lineage_get(db, c->round.lineage, &c->lineage, err);
    if (status == TACIT_OK)
        status = tacit_ledger_entry(call->server->ledger, c->round.plan_index, &c->plan_entry,
                                    &c->plan_entry_size, err);
    return status;
}

/* The newest adapter and its entry in the log. */
static tacit_status find_newest(gate_call *call, checkin *c, tacit_error *err)
{
    tacit_status status =
        optional(registry_current(call->server->db, NULL, &c->newest, err), &c->has_newest);
    if (status == TACIT_OK && c->has_newest)
        status = tacit_ledger_entry(call->server->ledger, c->newest.entry_index, &c->manifest_entry,
                                    &c->manifest_entry_size, err);
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

#define SEEN_GRAIN_MS 60000 /* how exactly the time of the last visit is kept */

static tacit_status note_visit(gate_call *call, uint64_t active_version, tacit_error *err)
{
    const device_row *d = &call->device;
    if (d->active_version == active_version && call->now_ms >= d->seen_ms &&
        call->now_ms - d->seen_ms < SEEN_GRAIN_MS)
        return TACIT_OK;
    return device_seen(call->server->db, d->device, call->now_ms, active_version, err);
}

/* Whether the log was what the device follows. */
static tacit_status check_left(gate_call *call, const checkin *c, tacit_error *err)
{
    tacit_ledger_restored since[TACIT_RESTORES_MAX];
    size_t n;
    tacit_status status =
        tacit_ledger_restores_since(call->server->ledger, c->held.origin, since, &n, err);
    return status == TACIT_NOT_FOUND
               ? tacit_fail(err, TACIT_INTEGRITY,
                            "the device follows the log '%.100s', this one is '%.100s' and never "
                            "was that",
                            c->held.origin, tacit_ledger_key(call->server->ledger)->name)
               : status;
}

/* What the device declines, or does no more. A hash that is none of the running round's says
 * nothing new. */
static tacit_status note_declined(gate_call *call, checkin *c, tacit_error *err)
{
    const device_row *d = &call->device;
    const ProtobufCBinaryData plan = c->request->declined_plan;
    tacit_database *db = call->server->db;
    if (plan.len == 0)
        return d->has_declined ? device_set_declined(db, d->device, NULL, err) : TACIT_OK;
    if (!c->asked || !tacit_bytes_are(plan, TACIT_DIGEST_BYTES) ||
        memcmp(plan.data, c->round.plan_hash, TACIT_DIGEST_BYTES) != 0 ||
        (d->has_declined && memcmp(d->declined, c->round.lineage, LINEAGE_BYTES) == 0))
        return TACIT_OK;
    c->declined = true;
    tacit_log_info("device %s declines the plan by its own policy or account",
                   device_called(d).text);
    return device_set_declined(db, d->device, c->round.lineage, err);
}

static tacit_status find_policy(gate_call *call, checkin *c, tacit_error *err)
{
    tacit_ledger *ledger = call->server->ledger;
    tacit_ledger_signed newest;
    if (!c->request->pinned_policy_key)
        return TACIT_OK;
    tacit_status status = tacit_ledger_signed_policy(ledger, call->device.device, &newest, err);
    if (status != TACIT_OK || newest.serial <= c->request->policy_serial)
        return status;
    c->policy_index = newest.index;
    return tacit_ledger_entry(ledger, newest.index, &c->policy_entry, &c->policy_entry_size, err);
}

tacit_status method_checkin_act(gate_call *call, tacit_error *err)
{
    checkin *c = call->own;
    tacit_ledger_device logged;
    tacit_status status = note_visit(call, c->request->active_version, err);
    if (status == TACIT_OK && c->elsewhere)
        return check_left(call, c, err);
    if (status == TACIT_OK)
        status = tacit_ledger_device_get(call->server->ledger, call->device.device, &logged, err);
    if (status == TACIT_OK)
        status = find_policy(call, c, err);
    if (status == TACIT_OK)
        status = find_round(call, c, err);
    if (status == TACIT_OK)
        status = note_declined(call, c, err);
    if (status == TACIT_OK)
        status = find_newest(call, c, err);
    if (status == TACIT_OK && c->asked)
        status = find_parent(call, c, err);
    if (status == TACIT_OK)
        c->epsilon_cap = logged.policy.epsilon_cap;
    return status;
}

/* Everything of the reply that the proofs cover; they live as long as it. */
typedef struct checkin_proofs {
    log_proof consistency, plan, manifest, cosigned, policy;
    char note[TACIT_CHECKPOINT_MAX]; /* cosigned */
} checkin_proofs;

/* The newest cosigned checkpoint, for devices that take no plan without one; a restore leaves none.
 */
static tacit_status add_cosigned(gate_call *call, const writer_point *point,
                                 Tacit__CheckInReply *reply, checkin_proofs *proofs,
                                 tacit_error *err)
{
    uint64_t size;
    bool found;
    tacit_status status =
        optional(tacit_ledger_cosigned(call->server->ledger, proofs->note, &size, err), &found);
    tacit_checkpoint cosigned;
    if (status == TACIT_OK && found)
        status = tacit_checkpoint_parse(&cosigned, proofs->note, strlen(proofs->note), err);
    if (status != TACIT_OK || !found ||
        strcmp(cosigned.origin, tacit_ledger_key(call->server->ledger)->name) != 0)
        return status;
    status = log_proof_consistency(&proofs->cosigned, call->server, size, point, err);
    if (status != TACIT_OK)
        return status;
    reply->cosigned = tacit_field_of(proofs->note, strlen(proofs->note));
    reply->cosigned_consistency = proofs->cosigned.fields;
    reply->n_cosigned_consistency = proofs->cosigned.proof.count;
    return TACIT_OK;
}

static tacit_status add_plan(gate_call *call, const checkin *c, const writer_point *point,
                             Tacit__CheckInReply *reply, log_proof *proof, tacit_error *err)
{
    tacit_status status = log_proof_inclusion(proof, call->server, c->round.plan_index, point, err);
    if (status != TACIT_OK)
        return status;
    reply->plan = tacit_field_of(c->round.plan, c->round.plan_size);
    reply->schedule = tacit_field_of(c->lineage.schedule, c->lineage.schedule_size);
    reply->plan_index = c->round.plan_index;
    reply->plan_proof = proof->fields;
    reply->n_plan_proof = proof->proof.count;
    reply->plan_entry = tacit_field_of(c->plan_entry, c->plan_entry_size);
    if (c->has_parent) {
        reply->parent_manifest = tacit_field_of(c->parent.manifest, c->parent.manifest_size);
        reply->parent_manifest_signature =
            tacit_field_of(c->parent.signature, TACIT_SIGNATURE_BYTES);
    }
    return TACIT_OK;
}

static tacit_status add_manifest(gate_call *call, const checkin *c, const writer_point *point,
                                 Tacit__CheckInReply *reply, log_proof *proof, tacit_error *err)
{
    tacit_status status =
        log_proof_inclusion(proof, call->server, c->newest.entry_index, point, err);
    if (status != TACIT_OK)
        return status;
    reply->manifest = tacit_field_of(c->newest.manifest, c->newest.manifest_size);
    reply->manifest_signature = tacit_field_of(c->newest.signature, TACIT_SIGNATURE_BYTES);
    reply->manifest_entry = tacit_field_of(c->manifest_entry, c->manifest_entry_size);
    reply->manifest_index = c->newest.entry_index;
    reply->manifest_proof = proof->fields;
    reply->n_manifest_proof = proof->proof.count;
    return TACIT_OK;
}

static tacit_status add_policy(gate_call *call, const checkin *c, const writer_point *point,
                               Tacit__CheckInReply *reply, log_proof *proof, tacit_error *err)
{
    tacit_status status = log_proof_inclusion(proof, call->server, c->policy_index, point, err);
    if (status != TACIT_OK)
        return status;
    reply->policy_entry = tacit_field_of(c->policy_entry, c->policy_entry_size);
    reply->policy_index = c->policy_index;
    reply->policy_proof = proof->fields;
    reply->n_policy_proof = proof->proof.count;
    return TACIT_OK;
}

tacit_status method_checkin_finish(gate_call *call, const writer_point *point, tacit_error *err)
{
    checkin *c = call->own;
    Tacit__CheckInReply reply = TACIT__CHECK_IN_REPLY__INIT;
    checkin_proofs proofs;
    if (c->known_size > point->size)
        ahead_note(call->server, &c->held, tacit_span_of(c->request->checkpoint), point->size);
    tacit_status status =
        log_proof_consistency(&proofs.consistency, call->server, c->known_size, point, err);
    if (status == TACIT_OK && c->asked)
        status = add_plan(call, c, point, &reply, &proofs.plan, err);
    if (status == TACIT_OK && c->asked && c->request->wants_cosigned)
        status = add_cosigned(call, point, &reply, &proofs, err);
    if (status == TACIT_OK && c->has_newest)
        status = add_manifest(call, c, point, &reply, &proofs.manifest, err);
    if (status == TACIT_OK && c->policy_entry)
        status = add_policy(call, c, point, &reply, &proofs.policy, err);
    if (status != TACIT_OK)
        return status;
    reply.checkpoint = tacit_field_of(point->checkpoint, strlen(point->checkpoint));
    reply.consistency = proofs.consistency.fields;
    reply.n_consistency = proofs.consistency.proof.count;
    reply.poll_after_ms = (uint32_t)call->server->config.poll_ms;
    reply.epsilon_cap = c->epsilon_cap;
    if (c->declined)
        round_machine_wake(call->server->rounds); /* it may have waited for this device */
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
    registry_row_free(&c->newest);
    registry_row_free(&c->parent);
    free(c->plan_entry);
    free(c->manifest_entry);
    free(c->policy_entry);
    free(c);
}
