#include "privacy/audit_internal.h"
#include "privacy/signed_policy.h"

#include "common/digest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- who a device is --- */

tacit_status audit_find_device(audit_work *w, const tacit_entry *e, size_t *device)
{
    if (audit_map_find(&w->names, e->entry->device.data, e->entry->device.len, device))
        return TACIT_OK;
    *device = AUDIT_NONE;
    return audit_violation(w, "unknown_device", "'%s' of a device that is not enrolled",
                           tacit_entry_kind_name(e->entry->body_case));
}

static void pair_key(uint8_t out[TACIT_HASH_BYTES], size_t device, ProtobufCBinaryData other)
{
    uint8_t bytes[8 + TACIT_HASH_BYTES] = {0};
    tacit_store_u64(bytes, device);
    memcpy(bytes + 8, other.data, other.len < TACIT_HASH_BYTES ? other.len : TACIT_HASH_BYTES);
    crypto_hash_sha256(out, bytes, sizeof bytes);
}

/* A new key gets an account; a known one goes on under a new pseudonym. */
static tacit_status device_for_key(audit_work *w, const Tacit__Enrol *enrol, size_t *device,
                                   bool *fresh)
{
    tacit_status status = audit_map_add(&w->keys, enrol->identity_key.data, TACIT_SIGN_KEY_BYTES,
                                        w->device_count, fresh, w->err);
    if (status != TACIT_OK)
        return status;
    if (!*fresh) {
        audit_map_find(&w->keys, enrol->identity_key.data, TACIT_SIGN_KEY_BYTES, device);
        return TACIT_OK;
    }
    status =
        audit_grow(&w->devices, &w->device_capacity, w->device_count, sizeof *w->devices, w->err);
    if (status != TACIT_OK)
        return status;
    *device = w->device_count++;
    w->devices[*device] = (audit_device){.enrolled = w->at};
    memcpy(w->devices[*device].identity_key, enrol->identity_key.data, TACIT_SIGN_KEY_BYTES);
    return TACIT_OK;
}

/* Whether the device is seen to declare these bytes for the first time. Its signature over them
 * says nothing about when: a policy that was logged before may be an old one, logged anew by
 * somebody else. */
static tacit_status policy_is_new(audit_work *w, size_t device, ProtobufCBinaryData policy,
                                  bool *fresh)
{
    uint8_t digest[TACIT_HASH_BYTES], key[TACIT_HASH_BYTES];
    crypto_hash_sha256(digest, policy.data, policy.len);
    pair_key(key, device, tacit_field_of(digest, sizeof digest));
    return audit_set_add(&w->policies, key, fresh, w->err);
}

/* The same of a policy together with the key that may raise it: with an enrolment of before, a key
 * that the device gave up would come back. */
static tacit_status enrolment_is_new(audit_work *w, size_t device, const Tacit__Enrol *enrol,
                                     bool *fresh)
{
    uint8_t digest[TACIT_HASH_BYTES], key[TACIT_HASH_BYTES];
    const tacit_span parts[] = {tacit_span_of(enrol->policy_key), tacit_span_of(enrol->policy)};
    tacit_digest_parts(digest, TACIT_POLICY_KEY_DOMAIN, parts, 2);
    pair_key(key, device, tacit_field_of(digest, sizeof digest));
    return audit_set_add(&w->enrolments, key, fresh, w->err);
}

static void put_in_force(audit_device *d, const tacit_policy *policy)
{
    if (strcmp(d->policy.witness, policy->witness) != 0)
        d->plans_end = 0; /* plans taken before are not the new witness's business */
    d->policy = *policy;
    tacit_policy_widen(&d->widest, policy);
    d->highest_cap = fmax(d->highest_cap, policy->epsilon_cap);
}

/* A later enrolment goes on under the policy in force unless it is one that is new, or stricter. */
static tacit_status take_policy(audit_work *w, size_t device, const Tacit__Enrol *enrol, bool fresh)
{
    audit_device *d = &w->devices[device];
    tacit_policy policy;
    tacit_error reason;
    bool first_time, key_is_new;
    tacit_status status = policy_is_new(w, device, enrol->policy, &first_time);
    if (status == TACIT_OK)
        status = enrolment_is_new(w, device, enrol, &key_is_new);
    if (status != TACIT_OK)
        return status;
    if (tacit_policy_unpack(&policy, enrol->policy.data, enrol->policy.len, &reason) != TACIT_OK)
        return audit_violation(w, "bad_policy", "%s", reason.message);
    if (!fresh && policy.delta != d->policy.delta)
        return audit_violation(w, "bad_policy", "the account's delta changed from %.6g to %.6g",
                               d->policy.delta, policy.delta);
    if (fresh) {
        d->widest = policy;
        d->unit = policy.unit;
        tacit_budget_open(&d->budget, policy.epsilon_cap, policy.delta);
    }
    if (fresh || first_time || !tacit_policy_weakens(&d->policy, &policy))
        put_in_force(d, &policy);
    if (key_is_new)
        d->has_policy_key = enrol->policy_key.len == TACIT_SIGN_KEY_BYTES;
    if (key_is_new && d->has_policy_key)
        memcpy(d->policy_key, enrol->policy_key.data, TACIT_SIGN_KEY_BYTES);
    if (!tacit_policy_enrol_holds(d->identity_key, enrol->policy, enrol->policy_key,
                                  enrol->policy_signature.data))
        return audit_violation(w, "bad_policy", "the device did not sign its policy%s",
                               d->has_policy_key ? " and policy key" : "");
    return TACIT_OK;
}

tacit_status audit_enrol(audit_work *w, const tacit_entry *e)
{
    const Tacit__Enrol *enrol = e->entry->enrol;
    size_t device;
    bool fresh, added;
    tacit_status status = device_for_key(w, enrol, &device, &fresh);
    if (status == TACIT_OK)
        status = audit_map_add(&w->names, e->entry->device.data, e->entry->device.len, device,
                               &added, w->err);
    if (status != TACIT_OK)
        return status;
    if (!added)
        return audit_violation(w, "duplicate_device", "the pseudonym is taken");
    audit_device *d = &w->devices[device];
    memcpy(d->name, e->entry->device.data, TACIT_DEVICE_BYTES);
    if (d->revoked || d->frozen)
        return audit_violation(w, d->revoked ? "after_revocation" : "after_clone",
                               "the key was enrolled again");
    return take_policy(w, device, enrol, fresh);
}

tacit_status audit_renew(audit_work *w, const tacit_entry *e)
{
    size_t device;
    tacit_status status = audit_find_device(w, e, &device);
    if (status == TACIT_OK && device != AUDIT_NONE && w->devices[device].revoked)
        status = audit_violation(w, "after_revocation", "its certificate was renewed");
    return status;
}

tacit_status audit_revoke(audit_work *w, const tacit_entry *e)
{
    size_t device;
    tacit_status status = audit_find_device(w, e, &device);
    if (status == TACIT_OK && device != AUDIT_NONE)
        w->devices[device].revoked = true;
    return status;
}

tacit_status audit_clone(audit_work *w, const tacit_entry *e)
{
    size_t device;
    tacit_status status = audit_find_device(w, e, &device);
    if (status == TACIT_OK && device != AUDIT_NONE)
        w->devices[device].frozen = true;
    return status;
}

/* Who may let a device do more: itself, in words that are new, or its policy key. */
static tacit_status judge_change(audit_work *w, const audit_device *d, const tacit_policy *to,
                                 const Tacit__PolicyChanged *p, tacit_policy_signer signer,
                                 bool first_time, bool *holds)
{
    double from = d->policy.epsilon_cap, cap = to->epsilon_cap;
    *holds = false;
    if (signer == TACIT_POLICY_BY_KEY && to->serial <= d->policy_serial)
        return audit_violation(
            w, "policy_replayed",
            "cap %.6g to %.6g by '%.60s': the policy key signed serial %llu, the log "
            "has its serial %llu",
            from, cap, p->who, (unsigned long long)to->serial,
            (unsigned long long)d->policy_serial);
    bool weakens = tacit_policy_weakens(&d->policy, to);
    if (weakens && signer == TACIT_POLICY_BY_NOBODY)
        return audit_violation(w, "policy_weakened",
                               "cap %.6g to %.6g by '%.60s' without signature", from, cap, p->who);
    if (weakens && signer == TACIT_POLICY_BY_DEVICE && !first_time)
        return audit_violation(
            w, "policy_weakened",
            "cap %.6g to %.6g by '%.60s' with a policy that was logged before: its "
            "signature may be an old one",
            from, cap, p->who);
    *holds = true;
    return TACIT_OK;
}

/* An unsigned weakening is a violation and does not take effect: what follows is held to the
 * policy that the device agreed to. */
tacit_status audit_policy_changed(audit_work *w, const tacit_entry *e)
{
    const Tacit__PolicyChanged *p = e->entry->policy_changed;
    size_t device;
    tacit_policy to;
    tacit_error reason;
    bool first_time, holds;
    tacit_status status = audit_find_device(w, e, &device);
    if (status == TACIT_OK && device != AUDIT_NONE)
        status = policy_is_new(w, device, p->policy, &first_time);
    if (status != TACIT_OK || device == AUDIT_NONE)
        return status;
    audit_device *d = &w->devices[device];
    if (tacit_policy_unpack(&to, p->policy.data, p->policy.len, &reason) != TACIT_OK)
        return audit_violation(w, "bad_policy", "%s", reason.message);
    if (to.delta != d->policy.delta)
        return audit_violation(w, "bad_policy", "the account's delta changed from %.6g to %.6g",
                               d->policy.delta, to.delta);
    tacit_policy_signer signer = tacit_policy_change_signer(
        p, to.serial, d->identity_key, d->has_policy_key ? d->policy_key : NULL);
    status = judge_change(w, d, &to, p, signer, first_time, &holds);
    if (status != TACIT_OK || !holds)
        return status;
    if (signer == TACIT_POLICY_BY_KEY)
        d->policy_serial = to.serial;
    put_in_force(d, &to);
    return TACIT_OK;
}

/* --- chains --- */

static tacit_status check_chain(audit_work *w, const tacit_entry *e, audit_device *d)
{
    const Tacit__Entry *entry = e->entry;
    tacit_status status = TACIT_OK;
    if (entry->sequence <= d->sequence)
        status =
            audit_violation(w, "sequence_reused", "sequence %llu after %llu",
                            (unsigned long long)entry->sequence, (unsigned long long)d->sequence);
    else if (entry->sequence > d->sequence + 1)
        status =
            audit_violation(w, "sequence_gap", "sequence %llu after %llu",
                            (unsigned long long)entry->sequence, (unsigned long long)d->sequence);
    else if (d->sequence && memcmp(entry->previous.data, d->head, TACIT_HASH_BYTES) != 0)
        status = audit_violation(w, "broken_chain", "sequence %llu names another previous entry",
                                 (unsigned long long)entry->sequence);
    if (entry->sequence > d->sequence)
        d->sequence = entry->sequence;
    memcpy(d->head, e->leaf, sizeof d->head);
    if (status == TACIT_OK && d->revoked)
        status = audit_violation(w, "after_revocation", "'%s' of a revoked device",
                                 tacit_entry_kind_name(entry->body_case));
    if (status == TACIT_OK && d->frozen)
        status = audit_violation(w, "after_clone", "'%s' of a frozen device",
                                 tacit_entry_kind_name(entry->body_case));
    return status;
}

/* --- reserves --- */

static bool is_local(const Tacit__Reserve *r)
{
    return r->round_id.len == 0;
}

/* The newest reserves of a device, as many as a window looks back at. */
static tacit_status recent_reserves(const audit_device *d, size_t most, tacit_window *out,
                                    tacit_error *err)
{
    tacit_status status = TACIT_OK;
    for (size_t i = d->run_count; i > 0 && status == TACIT_OK; i--)
        for (size_t k = 0; k < d->runs[i - 1].times && out->count < most && status == TACIT_OK; k++)
            status =
                tacit_window_push(out, &d->runs[i - 1].item.event, d->runs[i - 1].item.values, err);
    tacit_window_reverse(out);
    return status;
}

/* What the windows of a policy say to one more reserve of the device: TACIT_REFUSED, or a failure
 * of this machine. */
static tacit_status window_allowed(const audit_device *d, const tacit_policy *policy,
                                   const Tacit__Reserve *r, tacit_error *reason)
{
    tacit_window window = {0};
    if (policy->window_reserves == 0 || r->kind == TACIT_MECHANISM_NONE)
        return TACIT_OK;
    tacit_status status = recent_reserves(d, tacit_window_back(policy), &window, reason);
    size_t from = window.count;
    if (status == TACIT_OK)
        status = tacit_window_push_reserve(&window, r, reason);
    if (status == TACIT_OK)
        status = tacit_window_check(policy, &window, from, "the reserve", reason);
    tacit_window_free(&window);
    return status;
}

/* A reserve whose event is malformed is found elsewhere, and no window can count it. */
static tacit_status remember_run(audit_work *w, audit_device *d, const Tacit__Reserve *r)
{
    tacit_window_item item = {.values = tacit_budget_values(r)};
    tacit_error malformed;
    if (r->kind == TACIT_MECHANISM_NONE ||
        tacit_budget_event(&item.event, r, &malformed) != TACIT_OK)
        return TACIT_OK;
    if (d->run_count && tacit_window_same(&d->runs[d->run_count - 1].item, &item)) {
        d->runs[d->run_count - 1].times++;
        return TACIT_OK;
    }
    tacit_status status =
        audit_grow(&d->runs, &d->run_capacity, d->run_count, sizeof *d->runs, w->err);
    if (status == TACIT_OK)
        d->runs[d->run_count++] = (audit_run){item, 1};
    return status;
}

static bool allows(const tacit_policy *policy, const Tacit__Reserve *r, const Tacit__Plan *plan)
{
    tacit_error reason;
    return r->epsilon_cap <= policy->epsilon_cap && r->delta == policy->delta &&
           (plan ? tacit_policy_check(policy, plan, &reason)
                 : tacit_policy_check_reserve(policy, r, &reason)) == TACIT_OK;
}

/* The policy that the reserve was signed under, as far as a log can tell: the one in force, or what
 * an earlier one allowed when the one in force does not (audit.h). `plan` is NULL for local
 * training and where it is not logged. */
static tacit_status find_terms(audit_work *w, const Tacit__Reserve *r, const Tacit__Plan *plan,
                               const audit_device *d, tacit_policy *terms, bool *outdated)
{
    tacit_error reason;
    *terms = d->policy;
    *outdated = false;
    tacit_status now = window_allowed(d, &d->policy, r, &reason), ever = TACIT_REFUSED;
    if (now == TACIT_REFUSED || !allows(&d->policy, r, plan))
        ever = window_allowed(d, &d->widest, r, &reason);
    if (now == TACIT_NO_MEMORY || ever == TACIT_NO_MEMORY)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for a window");
    *outdated = ever != TACIT_REFUSED && allows(&d->widest, r, plan);
    if (!*outdated)
        return TACIT_OK;
    *terms = d->widest;
    return audit_note(w, "outdated_reserve",
                      "it was signed under an earlier policy (cap %.6g; in force %.6g): charged, "
                      "no update may follow",
                      r->epsilon_cap, d->policy.epsilon_cap);
}

/* Its plan was lost with the entries that a restore lacks. */
static tacit_status check_lost(audit_work *w, const Tacit__Reserve *r, const tacit_policy *terms,
                               const audit_device *d)
{
    tacit_error reason;
    if (!audit_may_resubmit(w, d))
        return audit_violation(w, "reserve_without_plan", "its plan is not logged before it");
    tacit_status found = tacit_policy_check_reserve(terms, r, &reason);
    if (found == TACIT_OK)
        return TACIT_OK;
    return audit_violation(w, found == TACIT_REFUSED ? "under_policy" : "reserve_off_plan", "%s",
                           reason.message);
}

/* Local training has no plan in the log: its reserve alone must be one that the device may make. */
static tacit_status check_local(audit_work *w, const Tacit__Reserve *r, const tacit_policy *terms)
{
    tacit_error reason;
    tacit_status found = tacit_policy_check_reserve(terms, r, &reason);
    if (found == TACIT_REFUSED)
        return audit_violation(w, "under_policy", "%s", reason.message);
    return found == TACIT_OK ? TACIT_OK
                             : audit_violation(w, "local_mechanism", "%s", reason.message);
}

static tacit_status reserve_plan(audit_work *w, const Tacit__Reserve *r, const audit_plan *p,
                                 const tacit_policy *terms, const audit_device *d)
{
    tacit_error reason;
    if (is_local(r))
        return check_local(w, r, terms);
    if (!p)
        return check_lost(w, r, terms, d);
    if (tacit_reserve_follows_plan(r, p->plan, p->hash, &reason) != TACIT_OK)
        return audit_violation(w, "reserve_off_plan", "%s", reason.message);
    if (tacit_policy_check(terms, p->plan, &reason) != TACIT_OK)
        return audit_violation(w, "under_policy", "%s", reason.message);
    return TACIT_OK;
}

static bool same_price(const audit_price *p, const tacit_event *event, uint64_t values)
{
    return p->values == values && p->event.neighbours == event->neighbours &&
           p->event.sigma == event->sigma && p->event.q == event->q &&
           p->event.count == event->count;
}

/* Adds a reserve's event to a budget. What it amounts to alone is kept and joined again, which
 * gives the same integers (privacy/rdp.h). */
static tacit_status add_event(audit_work *w, tacit_budget *b, const Tacit__Reserve *r, bool first,
                              tacit_error *reason)
{
    tacit_event event;
    tacit_status status = tacit_budget_event(&event, r, reason);
    if (status != TACIT_OK)
        return status;
    uint64_t values = tacit_budget_values(r);
    size_t i = 0;
    while (i < w->price_count && i < AUDIT_PRICES && !same_price(&w->prices[i], &event, values))
        i++;
    if (i == w->price_count || i == AUDIT_PRICES) {
        audit_price fresh = {.event = event, .values = values};
        status = tacit_budget_add(&fresh.budget, &event, values, false, reason);
        if (status != TACIT_OK)
            return status;
        i = w->price_count++ % AUDIT_PRICES;
        w->prices[i] = fresh;
    }
    status = tacit_budget_join(b, &w->prices[i].budget, reason);
    b->schedules += status == TACIT_OK && first;
    return status;
}

/* The whole of a schedule, which every device that begins it is held to. */
static tacit_status schedule_whole(audit_schedule *s, uint64_t values, tacit_error *reason)
{
    bool unprotected;
    if (s->whole && s->whole_values == values)
        return TACIT_OK;
    tacit_budget *whole = s->whole ? s->whole : malloc(sizeof *whole);
    if (!whole)
        return tacit_fail(reason, TACIT_NO_MEMORY, "audit: no memory for a schedule");
    *whole = (tacit_budget){0};
    tacit_status status = tacit_budget_add_schedule(whole, s->schedule, s->schedule->n_rounds,
                                                    values, &unprotected, reason);
    s->whole = status == TACIT_OK ? whole : NULL;
    s->whole_values = values;
    if (status != TACIT_OK)
        free(whole);
    return status;
}

/* The whole that a first reserve admits: its schedule, or itself when it is local or neither plan
 * nor schedule is logged. */
static tacit_status whole_budget(audit_work *w, const Tacit__Reserve *r, size_t plan,
                                 tacit_budget *whole, tacit_error *reason)
{
    size_t schedule;
    if (plan != AUDIT_NONE)
        schedule = w->plans[plan].schedule;
    else if (is_local(r) ||
             !audit_map_find(&w->schedule_by_lineage, r->lineage.data, r->lineage.len, &schedule))
        return add_event(w, whole, r, true, reason);
    audit_schedule *s = &w->schedules[schedule];
    tacit_status status = schedule_whole(s, r->values, reason);
    return status == TACIT_OK ? tacit_budget_join(whole, s->whole, reason) : status;
}

/* A first reserve admits the whole schedule (privacy/budget.h): it must have fitted, and beside it,
 * for a second schedule, the whole of the first at the fixed order. The lineages, each alone, must
 * fit together as well: their sub-caps add up to at most the cap. */
static tacit_status check_schedule_fits(audit_work *w, audit_device *d, const Tacit__Reserve *r,
                                        size_t plan, double cap)
{
    tacit_error reason;
    tacit_budget whole = tacit_budget_empty_like(&d->budget), all = d->budget;
    if (whole_budget(w, r, plan, &whole, &reason) != TACIT_OK ||
        tacit_budget_join(&all, &whole, &reason) != TACIT_OK)
        return audit_violation(w, "schedule_over_cap", "%s", reason.message);
    double epsilon, lineage;
    tacit_status status = tacit_budget_epsilon(&all, &epsilon, w->err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&whole, &lineage, w->err);
    if (status != TACIT_OK)
        return status;
    if (d->budget.schedules == 0)
        d->first_schedule = tacit_budget_filter_epsilon(&whole);
    else
        epsilon = fmax(epsilon, d->first_schedule);
    d->lineages += lineage;
    if (!(epsilon <= cap))
        return audit_violation(w, "schedule_over_cap",
                               "the whole schedule brings epsilon to %.6g of %.6g", epsilon, cap);
    if (!(d->lineages <= cap))
        return audit_violation(w, "schedule_over_cap",
                               "with it the lineages need %.6g of %.6g, each whole and alone",
                               d->lineages, cap);
    return TACIT_OK;
}

/* Local training makes a lineage of its own for every reserve; one that a schedule has, or that is
 * used again, would be priced as what it is not. */
static tacit_status enter_lineage(audit_work *w, const Tacit__Reserve *r, size_t device,
                                  bool *first)
{
    uint8_t key[TACIT_HASH_BYTES];
    bool local = is_local(r), added;
    audit_set *own = local ? &w->local_lineage : &w->device_lineage,
              *other = local ? &w->device_lineage : &w->local_lineage;
    pair_key(key, device, r->lineage);
    tacit_status status = audit_set_add(own, key, &added, w->err);
    if (status != TACIT_OK)
        return status;
    *first = local || added;
    bool shared = audit_set_has(other, key);
    bool planned = audit_map_find(&w->schedule_by_lineage, r->lineage.data, r->lineage.len, NULL) ||
                   audit_map_find(&w->plan_by_hash, r->plan_hash.data, r->plan_hash.len, NULL);
    if (shared || (local && (!added || planned)))
        return audit_violation(w, "local_schedule",
                               "the lineage or plan is not local training's alone");
    return TACIT_OK;
}

/* Within `cap`: what the reserve itself states, and no more than the device ever had. */
static tacit_status charge(audit_work *w, const tacit_entry *e, size_t device, size_t plan,
                           double cap)
{
    const Tacit__Reserve *r = e->entry->reserve;
    audit_device *d = &w->devices[device];
    bool first;
    tacit_error reason;
    tacit_status status = enter_lineage(w, r, device, &first);
    if (status == TACIT_OK && first)
        status = check_schedule_fits(w, d, r, plan, cap);
    if (status != TACIT_OK)
        return status;
    if (add_event(w, &d->budget, r, first, &reason) != TACIT_OK)
        return audit_violation(w, "epsilon_mismatch", "%s", reason.message);
    double epsilon;
    status = tacit_budget_epsilon(&d->budget, &epsilon, w->err);
    if (status == TACIT_OK)
        status = audit_keep_point(w, device, epsilon);
    if (status == TACIT_OK && !tacit_budget_same(epsilon, r->epsilon_after))
        status = audit_violation(w, "epsilon_mismatch", "logged %.12g, recomputed %.12g",
                                 r->epsilon_after, epsilon);
    if (status == TACIT_OK && !(epsilon <= cap))
        status = audit_violation(w, "cap_exceeded", "epsilon is %.6g of %.6g at delta %.6g",
                                 epsilon, cap, d->policy.delta);
    return status;
}

static tacit_status check_terms(audit_work *w, const Tacit__Reserve *r, audit_device *d,
                                const tacit_policy *terms)
{
    tacit_status status = TACIT_OK;
    if (r->insecure) {
        d->insecure = true;
        status = audit_violation(w, "insecure_seed", "the noise of this reserve can be predicted");
    }
    if (status == TACIT_OK && d->lost)
        status = audit_violation(w, "after_account_lost", "the account's cap counted as spent");
    if (status == TACIT_OK && (r->epsilon_cap > terms->epsilon_cap || r->delta != terms->delta))
        status =
            audit_violation(w, "cap_mismatch",
                            "it states cap %.6g and delta %.6g, the policy in force %.6g and %.6g",
                            r->epsilon_cap, r->delta, d->policy.epsilon_cap, d->policy.delta);
    return status;
}

static tacit_status check_window(audit_work *w, const Tacit__Reserve *r, const audit_device *d,
                                 const tacit_policy *terms)
{
    tacit_error reason;
    return window_allowed(d, terms, r, &reason) == TACIT_REFUSED
               ? audit_violation(w, "window_exceeded", "%s", reason.message)
               : TACIT_OK;
}

static tacit_status reserve_row(audit_work *w, size_t *row)
{
    *row = w->free_reserve;
    if (*row != AUDIT_NONE) {
        w->free_reserve = w->reserves[*row].next;
        return TACIT_OK;
    }
    *row = w->reserve_count;
    tacit_status status = audit_grow(&w->reserves, &w->reserve_capacity, w->reserve_count,
                                     sizeof *w->reserves, w->err);
    w->reserve_count += status == TACIT_OK;
    return status;
}

tacit_status audit_reserve_retire(audit_work *w, audit_reserve *r)
{
    bool over = r->plan != AUDIT_NONE && w->plans[r->plan].closed;
    bool decided = r->decided && (r->accepted || r->abandoned), added;
    tacit_status status = TACIT_OK;
    if (!over || !(decided || (r->abandoned && !r->spent)))
        return TACIT_OK;
    if (decided)
        status = audit_set_add(&w->ended, r->leaf, &added, w->err);
    audit_map_remove(&w->reserve_by_leaf, r->leaf, sizeof r->leaf);
    r->next = w->free_reserve;
    w->free_reserve = (size_t)(r - w->reserves);
    return status;
}

/* A reserve of a plan of before the restore, or of one that the log lacks. */
static bool is_again(const audit_work *w, const Tacit__Reserve *r, size_t device, size_t plan)
{
    return !is_local(r) && audit_may_resubmit(w, &w->devices[device]) &&
           (plan == AUDIT_NONE || w->plans[plan].entry < w->origins[w->origin_count - 1].entry);
}

static tacit_status take_reserve(audit_work *w, const tacit_entry *e, size_t device, size_t plan,
                                 bool outdated)
{
    bool added;
    size_t row;
    uint8_t key[TACIT_HASH_BYTES];
    tacit_status status = reserve_row(w, &row);
    if (status == TACIT_OK)
        status = audit_map_add(&w->reserve_by_leaf, e->leaf, TACIT_HASH_BYTES, row, &added, w->err);
    if (status != TACIT_OK)
        return status;
    w->reserves[row] = (audit_reserve){.entry = w->at,
                                       .device = device,
                                       .plan = plan,
                                       .next = AUDIT_NONE,
                                       .local = is_local(e->entry->reserve),
                                       .outdated = outdated,
                                       .again = is_again(w, e->entry->reserve, device, plan)};
    memcpy(w->reserves[row].leaf, e->leaf, TACIT_HASH_BYTES);
    if (plan != AUDIT_NONE && !w->plans[plan].closed) {
        w->reserves[row].next = w->plans[plan].reserves;
        w->plans[plan].reserves = row;
    }
    if (plan != AUDIT_NONE && w->devices[device].plans_end <= w->plans[plan].entry)
        w->devices[device].plans_end = w->plans[plan].entry + 1;
    if (plan != AUDIT_NONE && w->devices[device].new_plans <= w->plans[plan].entry)
        w->devices[device].new_plans = w->plans[plan].entry + 1;
    w->resubmitted += w->reserves[row].again;
    w->devices[device].reserves++;
    w->seen[is_local(e->entry->reserve) ? AUDIT_SEEN_LOCAL : AUDIT_SEEN_PLANNED]++;
    if (plan != AUDIT_NONE)
        w->plans[plan].reserved++;
    pair_key(key, device, e->entry->reserve->plan_hash);
    status = audit_set_add(&w->reserved, key, &added, w->err);
    if (status == TACIT_OK && !added)
        status = audit_violation(w, "duplicate_reserve", "the device reserved this plan before");
    return status;
}

/* Nothing is charged for it: the account is marked, and the audit fails unless it is allowed. */
static tacit_status take_unprotected(audit_work *w, const Tacit__Reserve *r, size_t device)
{
    bool first;
    tacit_budget_add_unprotected(&w->devices[device].budget);
    tacit_status status = enter_lineage(w, r, device, &first);
    if (status != TACIT_OK || w->options->allow_non_private)
        return status;
    return audit_violation(w, "non_private", "%s without noise; epsilon is infinite",
                           is_local(r) ? "local training" : "a round");
}

static size_t find_plan(const audit_work *w, const Tacit__Reserve *r)
{
    size_t plan;
    bool found = !is_local(r) &&
                 audit_map_find(&w->plan_by_hash, r->plan_hash.data, r->plan_hash.len, &plan);
    return found ? plan : AUDIT_NONE;
}

/* Epsilons for different units do not add up (policy.h): an account is of its first one. */
static tacit_status note_unit(audit_work *w, audit_device *d, tacit_privacy_unit unit)
{
    if (d->private_reserve && d->unit != unit)
        return audit_violation(w, "under_policy",
                               "its unit is %s, that of the account so far is %s",
                               tacit_privacy_unit_name(unit), tacit_privacy_unit_name(d->unit));
    d->unit = unit;
    d->private_reserve = true;
    return TACIT_OK;
}

static tacit_status audit_reserve_entry(audit_work *w, const tacit_entry *e, size_t device)
{
    const Tacit__Reserve *r = e->entry->reserve;
    audit_device *d = &w->devices[device];
    size_t plan = find_plan(w, r);
    const audit_plan *p = plan == AUDIT_NONE ? NULL : &w->plans[plan];
    tacit_policy terms;
    bool outdated;
    tacit_status status = find_terms(w, r, p ? p->plan : NULL, d, &terms, &outdated);
    if (status == TACIT_OK)
        status = reserve_plan(w, r, p, &terms, d);
    if (status == TACIT_OK)
        status = check_terms(w, r, d, &terms);
    if (status == TACIT_OK)
        status = check_window(w, r, d, &terms);
    if (status == TACIT_OK)
        status = remember_run(w, d, r);
    if (status == TACIT_OK)
        status = take_reserve(w, e, device, plan, outdated);
    if (status != TACIT_OK)
        return status;
    if (r->kind == TACIT_MECHANISM_NONE)
        return take_unprotected(w, r, device);
    status = note_unit(w, d, (tacit_privacy_unit)r->unit);
    if (status != TACIT_OK)
        return status;
    return charge(w, e, device, plan, fmin(r->epsilon_cap, terms.epsilon_cap));
}

/* --- endings --- */

static tacit_status find_own_reserve(audit_work *w, ProtobufCBinaryData leaf, size_t device,
                                     audit_reserve **out)
{
    size_t found;
    *out = NULL;
    if (audit_map_find(&w->reserve_by_leaf, leaf.data, leaf.len, &found) &&
        w->reserves[found].device == device) {
        *out = &w->reserves[found];
        return TACIT_OK;
    }
    if (leaf.len == TACIT_HASH_BYTES && audit_set_has(&w->ended, leaf.data))
        return audit_violation(w, "duplicate_spend",
                               "the reserve's round is over and it was decided");
    return audit_violation(w, "spend_without_reserve", "no reserve of this device has that hash");
}

static tacit_status audit_spend(audit_work *w, const tacit_entry *e, size_t device)
{
    const Tacit__Spend *s = e->entry->spend;
    audit_reserve *r;
    bool added;
    tacit_status status = find_own_reserve(w, s->reserve_hash, device, &r);
    if (status != TACIT_OK || !r)
        return status;
    if (r->spent || r->abandoned)
        return audit_violation(w, "duplicate_spend", "the reserve was %s before",
                               r->spent ? "spent" : "abandoned");
    if (r->local)
        return audit_violation(w, "local_update", "nothing of local training leaves a device");
    audit_count_resubmitted(w, r->again ? 0 : r->entry);
    r->spent = true;
    memcpy(r->digest, s->update_digest.data, sizeof r->digest);
    w->devices[device].spends++;
    status = audit_set_add(&w->digests, s->update_digest.data, &added, w->err);
    if (status == TACIT_OK && !added)
        status = audit_violation(w, "duplicate_update", "the digest was used before");
    return status;
}

static tacit_status audit_abandon(audit_work *w, const tacit_entry *e, size_t device)
{
    audit_reserve *r;
    tacit_status status = find_own_reserve(w, e->entry->abandon->reserve_hash, device, &r);
    if (status != TACIT_OK || !r)
        return status;
    if (r->abandoned || r->accepted)
        return audit_violation(w, "duplicate_spend", "the reserve was %s before",
                               r->accepted ? "accepted" : "abandoned");
    audit_count_resubmitted(w, r->again ? 0 : r->entry);
    r->abandoned = true;
    return audit_reserve_retire(w, r);
}

/* The newest entry of a chain again, or a reserve. Any other that is logged twice uses its sequence
 * number twice and ends what has ended. */
static bool is_logged_before(const audit_work *w, const tacit_entry *e, const audit_device *d)
{
    return (d->sequence && memcmp(e->leaf, d->head, sizeof d->head) == 0) ||
           audit_map_find(&w->reserve_by_leaf, e->leaf, sizeof e->leaf, NULL) ||
           audit_set_has(&w->ended, e->leaf);
}

tacit_status audit_own(audit_work *w, const tacit_entry *e)
{
    size_t device;
    tacit_status status = audit_find_device(w, e, &device);
    if (status != TACIT_OK || device == AUDIT_NONE)
        return status;
    audit_device *d = &w->devices[device];
    if (memcmp(e->envelope->signer.data, d->identity_key, TACIT_SIGN_KEY_BYTES) != 0)
        return audit_violation(w, "wrong_signer", "'%s' is not signed by its device",
                               tacit_entry_kind_name(e->entry->body_case));
    if (is_logged_before(w, e, d))
        return audit_violation(w, "duplicate_entry", "the same bytes are logged before");
    status = check_chain(w, e, d);
    if (status != TACIT_OK)
        return status;
    switch (e->entry->body_case) {
    case TACIT__ENTRY__BODY_RESERVE:
        return audit_reserve_entry(w, e, device);
    case TACIT__ENTRY__BODY_SPEND:
        return audit_spend(w, e, device);
    case TACIT__ENTRY__BODY_ABANDON:
        return audit_abandon(w, e, device);
    default: /* the account is lost */
        d->lost = true;
        d->highest_cap = fmax(d->highest_cap, e->entry->account_lost->epsilon_counted);
        return audit_keep_point(w, device, d->highest_cap);
    }
}
