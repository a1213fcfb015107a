#include "privacy/audit_internal.h"

#include "common/digest.h"
#include "privacy/published.h"
#include "proto/update.pb-c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Published numbers are printed and compared by people: they need not agree to the last bit. */
#define PUBLISHED_TOLERANCE 1e-5

/* --- schedules and plans --- */

tacit_status audit_schedule_logged(audit_work *w, const tacit_entry *e)
{
    ProtobufCBinaryData bytes = e->entry->schedule->schedule;
    Tacit__Schedule *schedule = NULL;
    tacit_error reason;
    bool fresh_hash, fresh_lineage;
    tacit_status status = TACIT_UNPACK(&schedule, tacit__schedule, bytes.data, bytes.len,
                                       TACIT_MESSAGE_ENTRY_MAX, &reason);
    if (status == TACIT_OK)
        status = tacit_schedule_validate(schedule, &reason);
    if (status != TACIT_OK) {
        tacit_message_free(schedule);
        return audit_violation(w, "bad_schedule", "%s", reason.message);
    }
    status = audit_grow(&w->schedules, &w->schedule_capacity, w->schedule_count,
                        sizeof *w->schedules, w->err);
    if (status != TACIT_OK) {
        tacit_message_free(schedule);
        return status;
    }
    audit_schedule *s = &w->schedules[w->schedule_count];
    *s = (audit_schedule){.entry = w->at, .schedule = schedule};
    tacit_digest(s->hash, bytes.data, bytes.len);
    status = audit_map_add(&w->schedule_by_hash, s->hash, TACIT_HASH_BYTES, w->schedule_count,
                           &fresh_hash, w->err);
    if (status == TACIT_OK)
        status = audit_map_add(&w->schedule_by_lineage, schedule->lineage.data,
                               schedule->lineage.len, w->schedule_count, &fresh_lineage, w->err);
    w->schedule_count++;
    if (status == TACIT_OK && !(fresh_hash && fresh_lineage))
        status = audit_violation(w, "duplicate_schedule", "the lineage has a schedule already");
    return status;
}

/* One plan per round id and per position of a schedule. */
static tacit_status plan_register(audit_work *w, size_t plan)
{
    const audit_plan *p = &w->plans[plan];
    uint8_t position[TACIT_HASH_BYTES];
    bool fresh_hash, fresh_round, fresh_position;
    uint8_t bytes[12];
    tacit_store_u64(bytes, p->schedule);
    tacit_store_u32(bytes + 8, p->plan->round_index);
    crypto_hash_sha256(position, bytes, sizeof bytes);
    tacit_status status =
        audit_map_add(&w->plan_by_hash, p->hash, TACIT_HASH_BYTES, plan, &fresh_hash, w->err);
    if (status == TACIT_OK)
        status = audit_map_add(&w->plan_by_round, p->plan->round_id.data, p->plan->round_id.len,
                               plan, &fresh_round, w->err);
    if (status == TACIT_OK)
        status = audit_map_add(&w->plan_by_position, position, sizeof position, plan,
                               &fresh_position, w->err);
    if (status == TACIT_OK && !(fresh_hash && fresh_round && fresh_position))
        status = audit_violation(w, "duplicate_plan", "round %u of its schedule has a plan already",
                                 p->plan->round_index);
    return status;
}

/* Rounds come in the order of their schedule: a version states the rounds up to its own, so a round
 * that was skipped must not be made up for below one that ran. */
static tacit_status plan_in_order(audit_work *w, const Tacit__Plan *plan, audit_schedule *s)
{
    uint64_t next = s->next_round, end = (uint64_t)plan->round_index + 1;
    s->next_round = end > next ? end : next;
    return end < next
               ? audit_violation(w, "plan_off_schedule", "round %u is planned after round %llu",
                                 plan->round_index, (unsigned long long)next - 1)
               : TACIT_OK;
}

static tacit_status plan_take(audit_work *w, Tacit__Plan *plan, ProtobufCBinaryData bytes,
                              size_t schedule)
{
    tacit_status status =
        audit_grow(&w->plans, &w->plan_capacity, w->plan_count, sizeof *w->plans, w->err);
    if (status != TACIT_OK) {
        tacit_message_free(plan);
        return status;
    }
    w->plans[w->plan_count] = (audit_plan){.entry = w->at,
                                           .plan = plan,
                                           .schedule = schedule,
                                           .reserves = AUDIT_NONE,
                                           .publication = AUDIT_NONE};
    tacit_digest(w->plans[w->plan_count].hash, bytes.data, bytes.len);
    return plan_register(w, w->plan_count++);
}

tacit_status audit_plan_logged(audit_work *w, const tacit_entry *e)
{
    ProtobufCBinaryData bytes = e->entry->plan->plan;
    Tacit__Plan *plan = NULL;
    size_t schedule;
    tacit_error reason;
    tacit_status status =
        TACIT_UNPACK(&plan, tacit__plan, bytes.data, bytes.len, TACIT_MESSAGE_ENTRY_MAX, &reason);
    if (status == TACIT_OK)
        status = tacit_plan_validate(plan, &reason);
    if (status != TACIT_OK) {
        status = audit_violation(w, "bad_plan", "%s", reason.message);
        goto drop;
    }
    if (!audit_map_find(&w->schedule_by_hash, plan->schedule_hash.data, plan->schedule_hash.len,
                        &schedule)) {
        status =
            audit_violation(w, "plan_without_schedule", "its schedule is not logged before it");
        goto drop;
    }
    audit_schedule *s = &w->schedules[schedule];
    if (tacit_plan_follows_schedule(plan, s->schedule, s->hash, &reason) != TACIT_OK) {
        status = audit_violation(w, "plan_off_schedule", "%s", reason.message);
        if (status != TACIT_OK || plan->round_index >= s->schedule->n_rounds)
            goto drop;
    }
    status = plan_in_order(w, plan, s);
    if (status == TACIT_OK)
        return plan_take(w, plan, bytes, schedule);
drop:
    tacit_message_free(plan);
    return status;
}

audit_plan *audit_find_round(audit_work *w, ProtobufCBinaryData round_id)
{
    size_t plan;
    return audit_map_find(&w->plan_by_round, round_id.data, round_id.len, &plan) ? &w->plans[plan]
                                                                                 : NULL;
}

/* --- decisions --- */

static tacit_status accept_update(audit_work *w, const Tacit__UpdateDecision *u, audit_reserve *r)
{
    audit_plan *p = r->plan == AUDIT_NONE ? NULL : &w->plans[r->plan];
    const audit_device *d = &w->devices[r->device];
    if (d->revoked || d->frozen) {
        tacit_status status = audit_violation(w, d->revoked ? "after_revocation" : "after_clone",
                                              "its update was accepted");
        if (status != TACIT_OK)
            return status;
    }
    if (r->outdated) {
        tacit_status status = audit_violation(
            w, "outdated_accepted", "the policy in force does not allow the reserve at entry %llu",
            (unsigned long long)r->entry);
        if (status != TACIT_OK)
            return status;
    }
    if (!r->spent)
        return audit_violation(w, "decision_without_spend", "the device signed no update for it");
    if (r->abandoned)
        return audit_violation(w, "decision_mismatch", "the reserve was abandoned");
    if (memcmp(r->digest, u->update_digest.data, TACIT_HASH_BYTES) != 0)
        return audit_violation(w, "decision_mismatch",
                               "the digest is not the one the device signed");
    if (!p || p->plan->round_id.len != u->round_id.len ||
        memcmp(p->plan->round_id.data, u->round_id.data, u->round_id.len) != 0)
        return audit_violation(w, "decision_mismatch", "the reserve is of another round");
    if (p->aggregated)
        return audit_violation(w, "aggregate_mismatch", "accepted after the round was aggregated");
    if (p->closed)
        return audit_violation(w, "round_state", "accepted after the round was closed");
    r->accepted = true;
    p->accepted++;
    w->devices[r->device].accepted++;
    return TACIT_OK;
}

/* A decision about a reserve that was never logged, or of which everything was said. */
static tacit_status decide_unkept(audit_work *w, const tacit_entry *e)
{
    const Tacit__UpdateDecision *u = e->entry->update;
    bool added = true;
    if (audit_set_has(&w->ended, u->reserve_hash.data))
        return audit_violation(w, "duplicate_decision", "the update was decided before");
    if (u->accepted)
        return audit_violation(w, "decision_without_spend", "the reserve is not logged");
    tacit_status status = audit_set_add(&w->leaves, e->leaf, &added, w->err);
    if (status == TACIT_OK && !added)
        status = audit_violation(w, "duplicate_entry", "the same bytes are logged before");
    return status;
}

tacit_status audit_update(audit_work *w, const tacit_entry *e)
{
    const Tacit__UpdateDecision *u = e->entry->update;
    size_t device, reserve;
    tacit_status status = audit_find_device(w, e, &device);
    if (status != TACIT_OK || device == AUDIT_NONE)
        return status;
    if (!audit_map_find(&w->reserve_by_leaf, u->reserve_hash.data, u->reserve_hash.len, &reserve))
        return decide_unkept(w, e);
    audit_reserve *r = &w->reserves[reserve];
    if (r->device != device)
        return audit_violation(w, "decision_mismatch", "the reserve is another device's");
    if (r->decided)
        return audit_violation(w, "duplicate_decision", "the update was decided before");
    r->decided = true;
    if (!u->accepted && r->plan != AUDIT_NONE)
        w->plans[r->plan].rejected++;
    status = u->accepted ? accept_update(w, u, r) : TACIT_OK;
    return status == TACIT_OK ? audit_reserve_retire(w, r) : status;
}

/* --- aggregates --- */

/* The listed hashes are distinct (ascending), so equal counts and all accepted means equal sets. */
static tacit_status check_members(audit_work *w, const Tacit__Aggregate *a, const audit_plan *p)
{
    size_t plan = (size_t)(p - w->plans), reserve;
    for (size_t i = 0; i < a->n_reserve_hashes; i++) {
        ProtobufCBinaryData hash = a->reserve_hashes[i];
        if (!audit_map_find(&w->reserve_by_leaf, hash.data, hash.len, &reserve) ||
            w->reserves[reserve].plan != plan || !w->reserves[reserve].accepted)
            return audit_violation(w, "aggregate_mismatch", "update %zu of %zu was not accepted",
                                   i + 1, a->n_reserve_hashes);
    }
    if (a->n_reserve_hashes != p->accepted)
        return audit_violation(w, "aggregate_mismatch", "%zu updates are summed, %zu were accepted",
                               a->n_reserve_hashes, p->accepted);
    return TACIT_OK;
}

tacit_status audit_aggregate(audit_work *w, const tacit_entry *e)
{
    const Tacit__Aggregate *a = e->entry->aggregate;
    audit_plan *p = audit_find_round(w, a->round_id);
    if (!p)
        return audit_violation(w, "aggregate_without_plan", "no plan of that round is logged");
    if (p->aggregated)
        return audit_violation(w, "duplicate_aggregate", "the round was aggregated before");
    p->aggregated = true;
    if (p->closed) /* its members are not kept */
        return audit_violation(w, "round_state", "aggregated after the round was closed");
    tacit_status status = check_members(w, a, p);
    if (status == TACIT_OK && a->n_reserve_hashes < p->plan->quorum)
        status = audit_violation(w, "below_quorum", "%zu updates, the plan's quorum is %u",
                                 a->n_reserve_hashes, p->plan->quorum);
    if (status == TACIT_OK && a->quorum != p->plan->quorum)
        status = audit_violation(w, "aggregate_mismatch", "it states quorum %u, the plan %u",
                                 a->quorum, p->plan->quorum);
    return status;
}

/* --- publications --- */

static bool same_published(double a, double b)
{
    if (isinf(a) || isinf(b))
        return a == b;
    return fabs(a - b) <= PUBLISHED_TOLERANCE * fmax(fabs(a), fabs(b));
}

/* The rounds of a schedule that the log sums, each with the updates that it accepts; malloc'ed. */
static tacit_status summed_rounds(audit_work *w, size_t schedule, tacit_summed_round **out,
                                  size_t *n)
{
    *n = 0;
    *out = calloc(w->plan_count + 1, sizeof **out);
    if (!*out)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for %zu rounds",
                          w->plan_count);
    for (size_t i = 0; i < w->plan_count; i++) {
        const audit_plan *p = &w->plans[i];
        if (p->schedule == schedule && p->aggregated)
            (*out)[(*n)++] = (tacit_summed_round){p->plan->round_index, p->accepted,
                                                  p->plan->assumed_colluders, p->plan->norm_bound};
    }
    return TACIT_OK;
}

/* Both views, recomputed from what was accepted; without noise both are infinite. */
static tacit_status recompute_epsilon(audit_work *w, const audit_plan *p,
                                      tacit_audit_publication *out)
{
    const Tacit__Schedule *s = w->schedules[p->schedule].schedule;
    tacit_summed_round *summed;
    tacit_published views;
    tacit_error reason;
    size_t n;
    tacit_status status = summed_rounds(w, p->schedule, &summed, &n);
    if (status != TACIT_OK)
        return status;
    if (tacit_published_epsilon(&views, s, p->plan->round_index + 1u, p->plan->trainable_values,
                                summed, n, &reason) != TACIT_OK)
        views = (tacit_published){INFINITY, INFINITY, "none"};
    free(summed);
    out->delta = s->delta;
    out->epsilon_server = views.epsilon_server;
    out->epsilon_published = views.epsilon_published;
    snprintf(out->rule, sizeof out->rule, "%s", views.rule);
    return TACIT_OK;
}

static tacit_status check_epsilon(audit_work *w, const Tacit__AdapterManifest *m,
                                  const tacit_audit_publication *r)
{
    if (same_published(m->epsilon_server, r->epsilon_server) &&
        same_published(m->epsilon_published, r->epsilon_published) && m->delta == r->delta &&
        strcmp(m->epsilon_rule, r->rule) == 0)
        return TACIT_OK;
    return audit_violation(
        w, "manifest_epsilon",
        "it states %.6g and %.6g at delta %.6g by '%.40s'; recomputed %.6g and %.6g "
        "at %.6g by '%s'",
        m->epsilon_server, m->epsilon_published, m->delta, m->epsilon_rule, r->epsilon_server,
        r->epsilon_published, r->delta, r->rule);
}

static bool is_initial(const audit_work *w, const audit_plan *p)
{
    ProtobufCBinaryData digest = p->plan->parent_digest,
                        initial = w->schedules[p->schedule].schedule->initial_adapter;
    return initial.len == TACIT_HASH_BYTES && digest.len == TACIT_HASH_BYTES &&
           memcmp(initial.data, digest.data, TACIT_HASH_BYTES) == 0;
}

/* Published before, in the plan's lineage; one of another lineage only as the adapter that the
 * schedule says it starts from. */
static bool known_adapter(const audit_work *w, uint64_t version, const audit_plan *p)
{
    ProtobufCBinaryData digest = p->plan->parent_digest;
    bool from_outside = is_initial(w, p);
    for (size_t i = w->manifest_count; i > 0; i--) {
        const audit_manifest *m = &w->manifests[i - 1];
        if (m->version == version && digest.len == TACIT_HASH_BYTES &&
            memcmp(m->file_digest, digest.data, TACIT_HASH_BYTES) == 0 &&
            (from_outside || memcmp(m->lineage, p->plan->lineage.data, sizeof m->lineage) == 0))
            return true;
    }
    return false;
}

/* Versions rise within a lineage; the parent is the plan's, and was published. */
static tacit_status check_version(audit_work *w, const Tacit__AdapterManifest *m, audit_plan *p)
{
    audit_schedule *s = &w->schedules[p->schedule];
    if (p->published)
        return audit_violation(w, "manifest_chain", "the round was published before");
    p->published = true;
    if (m->version <= s->last_version)
        return audit_violation(w, "manifest_chain", "version %llu is not above %llu",
                               (unsigned long long)m->version, (unsigned long long)s->last_version);
    s->last_version = m->version;
    if (m->parent_version != p->plan->parent_version)
        return audit_violation(w, "manifest_chain", "parent %llu, the plan's is %llu",
                               (unsigned long long)m->parent_version,
                               (unsigned long long)p->plan->parent_version);
    if (m->parent_version && !known_adapter(w, m->parent_version, p))
        return audit_violation(w, "manifest_chain",
                               "parent %llu with that digest was not published in its lineage",
                               (unsigned long long)m->parent_version);
    if (m->parent_version && is_initial(w, p))
        return audit_note(w, "inherited_adapter",
                          "version %llu goes on from version %llu of another lineage: what the "
                          "rounds of that one reveal comes on top of the epsilon stated here",
                          (unsigned long long)m->version, (unsigned long long)m->parent_version);
    return TACIT_OK;
}

static tacit_status take_publication(audit_work *w, const Tacit__AdapterManifest *m,
                                     const audit_plan *p)
{
    tacit_audit_publication r = {.entry = w->at,
                                 .version = m->version,
                                 .parent_version = m->parent_version,
                                 .accuracy = m->evaluation_accuracy};
    memcpy(r.lineage, m->lineage.data, sizeof r.lineage);
    memcpy(r.file_digest, m->file_digest.data, sizeof r.file_digest);
    tacit_status status = recompute_epsilon(w, p, &r);
    if (status == TACIT_OK)
        status = audit_grow(&w->out->publications, &w->publication_capacity,
                            w->out->publication_count, sizeof r, w->err);
    if (status == TACIT_OK)
        status = audit_grow(&w->manifests, &w->manifest_capacity, w->manifest_count,
                            sizeof *w->manifests, w->err);
    if (status != TACIT_OK)
        return status;
    w->out->publications[w->out->publication_count++] = r;
    audit_manifest *kept = &w->manifests[w->manifest_count++];
    *kept = (audit_manifest){.version = m->version};
    memcpy(kept->lineage, m->lineage.data, sizeof kept->lineage);
    memcpy(kept->file_digest, m->file_digest.data, sizeof kept->file_digest);
    return check_epsilon(w, m, &r);
}

static bool manifest_of_round(const Tacit__AdapterManifest *m, const audit_plan *p)
{
    const Tacit__Plan *plan = p->plan;
    return m->format == 1 && m->lineage.len == 16 && m->base_digest.len == TACIT_HASH_BYTES &&
           m->file_digest.len == TACIT_HASH_BYTES && m->version >= 1 &&
           memcmp(m->lineage.data, plan->lineage.data, 16) == 0 &&
           memcmp(m->base_digest.data, plan->base_digest.data, TACIT_HASH_BYTES) == 0;
}

static tacit_status check_manifest(audit_work *w, const Tacit__AdapterManifest *m)
{
    audit_plan *p = audit_find_round(w, m->round_id);
    if (!p)
        return audit_violation(w, "aggregate_without_plan", "no plan of that round is logged");
    if (!manifest_of_round(m, p))
        return audit_violation(w, "bad_manifest", "it is not of its round's lineage and base");
    tacit_status status = TACIT_OK;
    if (!p->aggregated)
        status = audit_violation(w, "manifest_without_aggregate", "the round has no aggregate");
    if (status == TACIT_OK && p->closed)
        status = audit_violation(w, "round_state", "published after the round was closed");
    if (status == TACIT_OK)
        status = check_version(w, m, p);
    if (status == TACIT_OK)
        status = take_publication(w, m, p);
    if (status == TACIT_OK)
        p->publication = w->out->publication_count - 1;
    return status;
}

tacit_status audit_published(audit_work *w, const tacit_entry *e)
{
    const Tacit__AdapterPublished *published = e->entry->published;
    ProtobufCBinaryData bytes = published->manifest;
    Tacit__AdapterManifest *m;
    tacit_error reason;
    if (!tacit_signature_holds(w->log_key.key, TACIT_MANIFEST_DOMAIN, bytes.data, bytes.len,
                               published->signature.data))
        return audit_violation(w, "bad_manifest", "the manifest's signature does not hold");
    if (TACIT_UNPACK(&m, tacit__adapter_manifest, bytes.data, bytes.len, TACIT_MESSAGE_ENTRY_MAX,
                     &reason) != TACIT_OK)
        return audit_violation(w, "bad_manifest", "%s", reason.message);
    tacit_status status = check_manifest(w, m);
    tacit_message_free(m);
    return status;
}

tacit_status audit_rolled_back(audit_work *w, const tacit_entry *e)
{
    const Tacit__AdapterRolledBack *r = e->entry->rolled_back;
    bool from = false, to = r->to_version == 0;
    for (size_t i = 0; i < w->manifest_count; i++) {
        if (memcmp(w->manifests[i].lineage, r->lineage.data, 16) != 0)
            continue;
        from = from || w->manifests[i].version == r->from_version;
        to = to || w->manifests[i].version == r->to_version;
    }
    if (from && to)
        return TACIT_OK;
    return audit_violation(w, "rollback_unknown", "from version %llu to %llu",
                           (unsigned long long)r->from_version, (unsigned long long)r->to_version);
}

static tacit_status retire_reserves(audit_work *w, audit_plan *p)
{
    tacit_status status = TACIT_OK;
    for (size_t at = p->reserves, next; at != AUDIT_NONE && status == TACIT_OK; at = next) {
        next = w->reserves[at].next;
        status = audit_reserve_retire(w, &w->reserves[at]);
    }
    p->reserves = AUDIT_NONE;
    return status;
}

tacit_status audit_round_closed(audit_work *w, const tacit_entry *e)
{
    const Tacit__RoundClosed *c = e->entry->round_closed;
    audit_plan *p = audit_find_round(w, c->round_id);
    if (!p)
        return audit_violation(w, "aggregate_without_plan", "no plan of that round is logged");
    if (p->closed)
        return audit_violation(w, "round_state", "the round was closed before");
    p->closed = true;
    if (c->published != p->published) {
        tacit_status status = audit_violation(
            w, "round_state", "it was closed as %s, but it was %s",
            c->published ? "published" : "failed", p->published ? "published" : "not published");
        if (status != TACIT_OK)
            return status;
    }
    return retire_reserves(w, p);
}

/* --- the rounds for the report --- */

static tacit_status report_round(audit_work *w, const audit_plan *p, tacit_audit_round *out)
{
    const Tacit__Plan *plan = p->plan;
    tacit_audit_publication views = {0};
    tacit_error reason;
    *out = (tacit_audit_round){
        .entry = p->entry,
        .index = plan->round_index,
        .values = plan->trainable_values,
        .cohort = plan->cohort,
        .quorum = plan->quorum,
        .local_steps = plan->local_steps,
        .assumed_colluders = plan->assumed_colluders,
        .reserved = p->reserved,
        .accepted = p->accepted,
        .rejected = p->rejected,
        .summed = p->aggregated,
        .published = p->published,
        .closed = p->closed,
    };
    memcpy(out->round_id, plan->round_id.data, sizeof out->round_id);
    memcpy(out->lineage, plan->lineage.data, sizeof out->lineage);
    /* It was validated before it was taken. */
    if (tacit_mechanism_from_plan(&out->mechanism, plan, &reason) != TACIT_OK)
        return tacit_fail(w->err, TACIT_FAILED, "audit: %s", reason.message);
    tacit_status status = TACIT_OK;
    if (p->publication != AUDIT_NONE)
        views = w->out->publications[p->publication];
    else
        status = recompute_epsilon(w, p, &views);
    out->delta = views.delta;
    out->epsilon_server = views.epsilon_server;
    out->epsilon_published = views.epsilon_published;
    memcpy(out->rule, views.rule, sizeof out->rule);
    return status;
}

tacit_status audit_report_rounds(audit_work *w)
{
    tacit_status status = TACIT_OK;
    w->out->round_list = calloc(w->plan_count + 1, sizeof *w->out->round_list);
    if (!w->out->round_list)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for %zu rounds",
                          w->plan_count);
    for (size_t i = 0; i < w->plan_count && status == TACIT_OK; i++)
        status = report_round(w, &w->plans[i], &w->out->round_list[i]);
    return status;
}

/* --- the schedules for the report --- */

static void count_plan(const audit_plan *p, tacit_audit_schedule *s)
{
    s->values = p->plan->trainable_values;
    s->planned++;
    s->reserved += p->reserved > 0;
    s->summed += p->aggregated;
    s->published += p->published;
    s->failed += p->closed && !p->published;
    if (s->planned_to <= p->plan->round_index)
        s->planned_to = p->plan->round_index + UINT64_C(1);
}

/* Of its first `rounds` rounds; +inf where the accountant takes none of it. */
static tacit_status price_rounds(audit_work *w, const tacit_audit_schedule *s, uint64_t rounds,
                                 double *epsilon)
{
    tacit_error reason;
    tacit_status status =
        tacit_budget_schedule_epsilon(epsilon, s->schedule, (size_t)rounds, s->values, &reason);
    if (status == TACIT_NO_MEMORY)
        return tacit_fail(w->err, status, "%s", reason.message);
    if (status != TACIT_OK)
        *epsilon = INFINITY;
    return TACIT_OK;
}

static tacit_status price_schedule(audit_work *w, tacit_audit_schedule *s)
{
    s->epsilon = NAN;
    s->epsilon_planned = 0;
    if (!s->planned)
        return TACIT_OK;
    tacit_status status = price_rounds(w, s, s->schedule->n_rounds, &s->epsilon);
    return status == TACIT_OK ? price_rounds(w, s, s->planned_to, &s->epsilon_planned) : status;
}

tacit_status audit_report_schedules(audit_work *w)
{
    tacit_audit *out = w->out;
    out->schedules = calloc(w->schedule_count + 1, sizeof *out->schedules);
    if (!out->schedules)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for %zu schedules",
                          w->schedule_count);
    for (size_t i = 0; i < w->plan_count; i++)
        count_plan(&w->plans[i], &out->schedules[w->plans[i].schedule]);
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < w->schedule_count; i++) {
        tacit_audit_schedule *s = &out->schedules[i];
        s->entry = w->schedules[i].entry;
        s->schedule = w->schedules[i].schedule;
        w->schedules[i].schedule = NULL;
        if (status == TACIT_OK)
            status = price_schedule(w, s);
    }
    out->schedule_count = w->schedule_count;
    return status;
}
