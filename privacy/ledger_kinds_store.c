/* What an entry changes, by its kind: the dispatch over all kinds, and those that the server signs:
 * enrolment, revocation, freezing, schedules, plans, decisions on updates, policies and the log's
 * key. ledger_device_store.c has those that devices sign, ledger_restore_store.c starts and
 * restores. */
#include "privacy/ledger_internal.h"

#include "common/digest.h"
#include "privacy/signed_policy.h"

#include <string.h>

/* --- devices --- */

static tacit_status account_for_enrol(tacit_ledger *ledger, const Tacit__Enrol *enrol,
                                      ledger_account *out, tacit_error *err)
{
    bool known;
    tacit_status status = ledger_account_by_key(ledger, enrol->identity_key, &known, out, err);
    if (status != TACIT_OK)
        return status;
    if (!known) {
        *out = (ledger_account){0};
        memcpy(out->identity_key, enrol->identity_key.data, TACIT_SIGN_KEY_BYTES);
    }
    if (out->revoked || out->frozen)
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: this device was revoked or frozen; that is "
                          "terminal, make a new identity after a purge");
    return TACIT_OK;
}

/* Whether this account declares these bytes for the first time: the signature over a policy says
 * nothing about when, so one that was logged before may be an old one. */
static tacit_status policy_is_new(tacit_ledger *ledger, const ledger_account *a,
                                  ProtobufCBinaryData policy, bool *fresh, tacit_error *err)
{
    bool seen;
    const tacit_span row[] = {{a->identity_key, TACIT_SIGN_KEY_BYTES}, tacit_span_of(policy)};
    tacit_status status = ledger_exists_blobs(
        ledger, "SELECT 1 FROM ledger_policy WHERE identity_key = $1 AND policy = $2", row, 2,
        &seen, err);
    *fresh = !seen;
    if (status == TACIT_OK && !seen)
        status = ledger_run_blobs(
            ledger, "INSERT INTO ledger_policy (identity_key, policy) VALUES ($1, $2)", row, 2,
            err);
    return status;
}

/* Whether this account declares this policy together with this policy key for the first time: with
 * an enrolment of before, a key that the device gave up would come back. */
static tacit_status enrolment_is_new(tacit_ledger *ledger, const ledger_account *a,
                                     const Tacit__Enrol *enrol, bool *fresh, tacit_error *err)
{
    bool seen;
    static const uint8_t none; /* a blob without bytes, where a NULL pointer is no blob */
    const size_t key_size = enrol->policy_key.len;
    const tacit_span row[] = {{a->identity_key, TACIT_SIGN_KEY_BYTES},
                              {key_size ? enrol->policy_key.data : &none, key_size},
                              tacit_span_of(enrol->policy)};
    tacit_status status =
        ledger_exists_blobs(ledger,
                            "SELECT 1 FROM ledger_enrolment WHERE identity_key = $1"
                            " AND policy_key = $2 AND policy = $3",
                            row, 3, &seen, err);
    *fresh = !seen;
    if (status == TACIT_OK && !seen)
        status = ledger_run_blobs(ledger,
                                  "INSERT INTO ledger_enrolment (identity_key, policy_key, policy)"
                                  " VALUES ($1, $2, $3)",
                                  row, 3, err);
    return status;
}

/* What no policy of an account changes. */
static tacit_status keeps_for_life(const ledger_account *a, const tacit_policy *to,
                                   tacit_error *err)
{
    if (to->delta != a->policy.delta)
        return tacit_fail(err, TACIT_REFUSED, "ledger: an account's delta cannot change");
    if (to->unit != a->policy.unit && a->budget.noise_values)
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: this account has reserved for the unit %s; it cannot change to "
                          "%s",
                          tacit_privacy_unit_name(a->policy.unit),
                          tacit_privacy_unit_name(to->unit));
    return TACIT_OK;
}

/* A new account opens under the declared policy; a known one goes on under its own unless the
 * declared one is new or stricter. */
static tacit_status declare_policy(tacit_ledger *ledger, ledger_account *a,
                                   const Tacit__Enrol *enrol, tacit_error *err)
{
    tacit_policy declared;
    bool fresh, opened = a->policy.delta != 0;
    tacit_status status =
        tacit_policy_unpack(&declared, enrol->policy.data, enrol->policy.len, err);
    if (status == TACIT_OK && opened)
        status = keeps_for_life(a, &declared, err);
    if (status == TACIT_OK)
        status = policy_is_new(ledger, a, enrol->policy, &fresh, err);
    if (status != TACIT_OK)
        return status;
    if (!opened)
        tacit_budget_open(&a->budget, declared.epsilon_cap, declared.delta);
    if (!opened || fresh || !tacit_policy_weakens(&a->policy, &declared))
        a->policy = declared;
    return TACIT_OK;
}

static tacit_status device_insert_row(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                      tacit_error *err)
{
    tacit_statement *s;
    tacit_status status =
        tacit_statement_begin(ledger->db, &s,
                              "INSERT INTO ledger_device (device, identity_key, revoked, frozen,"
                              " idx) VALUES ($1, $2, 0, 0, $3)",
                              err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, e->entry->device.data, e->entry->device.len);
    tacit_bind_blob(s, 2, e->entry->enrol->identity_key.data, TACIT_SIGN_KEY_BYTES);
    tacit_bind_u64(s, 3, index);
    return tacit_statement_finish(s, err);
}

/* The same key may come back under a new pseudonym: chain and account go on. */
static tacit_status apply_enrol(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                tacit_error *err)
{
    const Tacit__Enrol *enrol = e->entry->enrol;
    ledger_account a;
    bool key_is_new;
    tacit_status status = account_for_enrol(ledger, enrol, &a, err);
    if (status != TACIT_OK)
        return status;
    if (!tacit_policy_enrol_holds(a.identity_key, enrol->policy, enrol->policy_key,
                                  enrol->policy_signature.data))
        return tacit_fail(err, TACIT_INTEGRITY, "ledger: the device did not sign its policy");
    status = declare_policy(ledger, &a, enrol, err);
    if (status == TACIT_OK)
        status = enrolment_is_new(ledger, &a, enrol, &key_is_new, err);
    if (status != TACIT_OK)
        return status;
    if (key_is_new)
        a.has_policy_key = enrol->policy_key.len == TACIT_SIGN_KEY_BYTES;
    if (key_is_new && a.has_policy_key)
        memcpy(a.policy_key, enrol->policy_key.data, TACIT_SIGN_KEY_BYTES);
    status = ledger_account_write(ledger, &a, err);
    if (status != TACIT_OK)
        return status;
    return ledger_taken(device_insert_row(ledger, e, index, err), "that pseudonym is a device's",
                        err);
}

static tacit_status apply_about_device(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                       tacit_error *err)
{
    (void)index;
    ledger_account a;
    return ledger_account_by_device(ledger, e->entry->device, &a, err);
}

/* Revocation and freezing are of the key: every pseudonym of it. */
static tacit_status mark_device(tacit_ledger *ledger, const tacit_entry *e, const char *sql,
                                tacit_error *err)
{
    ledger_account a;
    tacit_status status = ledger_account_by_device(ledger, e->entry->device, &a, err);
    if (status != TACIT_OK)
        return status;
    const tacit_span key = {a.identity_key, TACIT_SIGN_KEY_BYTES};
    return ledger_run_blobs(ledger, sql, &key, 1, err);
}

static tacit_status apply_revoke(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                 tacit_error *err)
{
    (void)index;
    return mark_device(ledger, e, "UPDATE ledger_device SET revoked = 1 WHERE identity_key = $1",
                       err);
}

static tacit_status apply_clone(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                tacit_error *err)
{
    (void)index;
    return mark_device(ledger, e, "UPDATE ledger_device SET frozen = 1 WHERE identity_key = $1",
                       err);
}

/* --- rounds --- */

static tacit_status apply_schedule(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                   tacit_error *err)
{
    (void)index;
    ProtobufCBinaryData bytes = e->entry->schedule->schedule;
    Tacit__Schedule *schedule;
    tacit_status status = TACIT_UNPACK(&schedule, tacit__schedule, bytes.data, bytes.len,
                                       TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_schedule_validate(schedule, err), done);
    uint8_t hash[TACIT_HASH_BYTES];
    tacit_digest(hash, bytes.data, bytes.len);
    const tacit_span row[] = {
        {hash, sizeof hash}, tacit_span_of(schedule->lineage), tacit_span_of(bytes)};
    status = ledger_run_blobs(
        ledger, "INSERT INTO ledger_schedule (hash, lineage, bytes) VALUES ($1, $2, $3)", row, 3,
        err);
    status = ledger_taken(status, "that lineage has a schedule", err);
done:
    tacit_message_free(schedule);
    return status;
}

static tacit_status plan_insert(tacit_ledger *ledger, const Tacit__Plan *plan,
                                ProtobufCBinaryData bytes, uint64_t index, tacit_error *err)
{
    tacit_statement *s;
    uint8_t hash[TACIT_HASH_BYTES];
    tacit_digest(hash, bytes.data, bytes.len);
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "INSERT INTO ledger_plan (hash, round_id, lineage, round_index, idx, bytes)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, hash, sizeof hash);
    tacit_bind_blob(s, 2, plan->round_id.data, plan->round_id.len);
    tacit_bind_blob(s, 3, plan->lineage.data, plan->lineage.len);
    tacit_bind_u64(s, 4, plan->round_index);
    tacit_bind_u64(s, 5, index);
    tacit_bind_blob(s, 6, bytes.data, bytes.len);
    return ledger_taken(tacit_statement_finish(s, err),
                        "that round, or its place in the schedule, has a plan", err);
}

/* Rounds come in the order of their schedule: a version states the rounds up to its own, so one
 * that was skipped is not made up for below one that ran. */
static tacit_status plan_in_order(tacit_ledger *ledger, const Tacit__Plan *plan, tacit_error *err)
{
    tacit_statement *s;
    bool later = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "SELECT 1 FROM ledger_plan WHERE lineage = $1 AND round_index > $2 LIMIT 1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, plan->lineage.data, plan->lineage.len);
    tacit_bind_u64(s, 2, plan->round_index);
    status = tacit_statement_step(s, &later, err);
    tacit_statement_end(s);
    if (status == TACIT_OK && later)
        status = tacit_fail(err, TACIT_CONFLICT,
                            "ledger: round %u of its schedule is behind one that was planned; go "
                            "on with the next",
                            plan->round_index);
    return status;
}

static tacit_status apply_plan(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                               tacit_error *err)
{
    ProtobufCBinaryData bytes = e->entry->plan->plan;
    Tacit__Plan *plan;
    Tacit__Schedule *schedule = NULL;
    tacit_status status =
        TACIT_UNPACK(&plan, tacit__plan, bytes.data, bytes.len, TACIT_MESSAGE_ENTRY_MAX, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(tacit_plan_validate(plan, err), done);
    TACIT_TRY(ledger_message_by_hash(ledger, "SELECT bytes FROM ledger_schedule WHERE hash = $1",
                                     "schedule of this plan", plan->schedule_hash,
                                     &tacit__schedule__descriptor,
                                     (ProtobufCMessage **)(void *)&schedule, err),
              done);
    TACIT_TRY(tacit_plan_follows_schedule(plan, schedule, plan->schedule_hash.data, err), done);
    TACIT_TRY(plan_in_order(ledger, plan, err), done);
    status = plan_insert(ledger, plan, bytes, index, err);
done:
    tacit_message_free(schedule);
    tacit_message_free(plan);
    return status;
}

static tacit_status decision_check(const Tacit__UpdateDecision *u, const tacit_ledger_reserve *r,
                                   ProtobufCBinaryData device, tacit_error *err)
{
    if (device.len != sizeof r->device || memcmp(device.data, r->device, sizeof r->device) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "ledger: the decision names another device");
    if (r->decided)
        return tacit_fail(err, TACIT_CONFLICT, "ledger: that update was decided already");
    if (u->accepted && !r->spent)
        return tacit_fail(err, TACIT_NOT_FOUND, "ledger: no spend of that reserve is logged");
    if (u->accepted && r->abandoned)
        return tacit_fail(err, TACIT_CONFLICT, "ledger: that reserve was abandoned");
    if (u->accepted && r->outdated)
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: that reserve was signed under a policy that was in force no "
                          "more; it is charged, and no update under it is accepted");
    if (u->accepted && memcmp(u->update_digest.data, r->update_digest, TACIT_HASH_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "ledger: the update's digest is not the one that the device signed");
    return TACIT_OK;
}

static tacit_status apply_update(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                 tacit_error *err)
{
    (void)index;
    const Tacit__UpdateDecision *u = e->entry->update;
    tacit_ledger_reserve r;
    ledger_account a;
    tacit_status status = ledger_account_by_device(ledger, e->entry->device, &a, err);
    if (status == TACIT_OK && u->accepted && (a.revoked || a.frozen))
        status = tacit_fail(err, TACIT_REFUSED, "ledger: this device is %s",
                            a.revoked ? "revoked" : "frozen as a suspected clone");
    if (status != TACIT_OK)
        return status;
    status = tacit_ledger_reserve_get(ledger, u->reserve_hash.data, &r, err);
    if (status == TACIT_NOT_FOUND && !u->accepted)
        return TACIT_OK; /* rejected for want of a reserve: nothing to mark */
    if (status == TACIT_OK)
        status = decision_check(u, &r, e->entry->device, err);
    if (status != TACIT_OK)
        return status;
    const tacit_span leaf = tacit_span_of(u->reserve_hash);
    return ledger_run_blobs(
        ledger,
        u->accepted ? "UPDATE ledger_reserve SET decided = 1, accepted = 1 WHERE leaf = $1"
                    : "UPDATE ledger_reserve SET decided = 1 WHERE leaf = $1",
        &leaf, 1, err);
}

/* --- policies --- */

/* Who may let a device do more: itself, in words that are new, or its policy key. */
static tacit_status judge_change(const ledger_account *a, const tacit_policy *to,
                                 tacit_policy_signer signer, bool fresh, tacit_error *err)
{
    if (signer == TACIT_POLICY_BY_KEY || !tacit_policy_weakens(&a->policy, to))
        return TACIT_OK;
    if (signer == TACIT_POLICY_BY_NOBODY)
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: a policy that allows more must be signed by the device or, for "
                          "this device, by its policy key");
    if (!fresh)
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: this policy was logged before, so its signature may be an old "
                          "one; sign one that differs, if only in a digit of its cap");
    return TACIT_OK;
}

static tacit_status apply_policy_changed(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                         tacit_error *err)
{
    const Tacit__PolicyChanged *change = e->entry->policy_changed;
    ledger_account a;
    tacit_policy to;
    bool fresh;
    tacit_status status = ledger_account_by_device(ledger, e->entry->device, &a, err);
    if (status == TACIT_OK)
        status = tacit_policy_unpack(&to, change->policy.data, change->policy.len, err);
    if (status == TACIT_OK)
        status = policy_is_new(ledger, &a, change->policy, &fresh, err);
    if (status == TACIT_OK)
        status = keeps_for_life(&a, &to, err);
    if (status != TACIT_OK)
        return status;
    tacit_policy_signer signer = tacit_policy_change_signer(change, to.serial, a.identity_key,
                                                            a.has_policy_key ? a.policy_key : NULL);
    status = judge_change(&a, &to, signer, fresh, err);
    if (status == TACIT_OK && signer == TACIT_POLICY_BY_KEY)
        status = ledger_signed_take(ledger, a.identity_key, to.serial, index, err);
    if (status != TACIT_OK)
        return status;
    a.policy = to;
    return ledger_account_write(ledger, &a, err);
}

/* --- the log's key --- */

static tacit_status apply_key_rotated(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                      tacit_error *err)
{
    (void)index;
    const Tacit__KeyRotated *k = e->entry->key_rotated;
    uint8_t both[2 * TACIT_SIGN_KEY_BYTES];
    memcpy(both, k->old_key.data, TACIT_SIGN_KEY_BYTES);
    memcpy(both + TACIT_SIGN_KEY_BYTES, k->new_key.data, TACIT_SIGN_KEY_BYTES);
    if (memcmp(both, ledger->key.key, TACIT_SIGN_KEY_BYTES) != 0 ||
        !tacit_signature_holds(both, TACIT_ROTATE_DOMAIN, both, sizeof both,
                               k->signature_old.data) ||
        !tacit_signature_holds(both + TACIT_SIGN_KEY_BYTES, TACIT_ROTATE_DOMAIN, both, sizeof both,
                               k->signature_new.data))
        return tacit_fail(err, TACIT_INTEGRITY, "ledger: a key rotation must be signed by both");
    return ledger_store_key(ledger, k->new_key.data, err);
}

/* --- dispatch --- */

static tacit_status apply_nothing(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                  tacit_error *err)
{
    (void)ledger;
    (void)e;
    (void)index;
    (void)err;
    return TACIT_OK;
}

static const struct {
    Tacit__Entry__BodyCase kind;
    tacit_status (*apply)(tacit_ledger *, const tacit_entry *, uint64_t, tacit_error *);
} kinds[] = {
    {TACIT__ENTRY__BODY_ENROL, apply_enrol},
    {TACIT__ENTRY__BODY_RENEW, apply_about_device},
    {TACIT__ENTRY__BODY_REVOKE, apply_revoke},
    {TACIT__ENTRY__BODY_SCHEDULE, apply_schedule},
    {TACIT__ENTRY__BODY_PLAN, apply_plan},
    {TACIT__ENTRY__BODY_RESERVE, ledger_apply_by_device},
    {TACIT__ENTRY__BODY_SPEND, ledger_apply_by_device},
    {TACIT__ENTRY__BODY_ABANDON, ledger_apply_by_device},
    {TACIT__ENTRY__BODY_ACCOUNT_LOST, ledger_apply_by_device},
    {TACIT__ENTRY__BODY_CLONE_SUSPECTED, apply_clone},
    {TACIT__ENTRY__BODY_UPDATE, apply_update},
    {TACIT__ENTRY__BODY_AGGREGATE, apply_nothing},
    {TACIT__ENTRY__BODY_PUBLISHED, apply_nothing},
    {TACIT__ENTRY__BODY_ROLLED_BACK, apply_nothing},
    {TACIT__ENTRY__BODY_POLICY_CHANGED, apply_policy_changed},
    {TACIT__ENTRY__BODY_KEY_ROTATED, apply_key_rotated},
    {TACIT__ENTRY__BODY_SERVER_START, ledger_apply_server_start},
    {TACIT__ENTRY__BODY_SERVER_STOP, apply_nothing},
    {TACIT__ENTRY__BODY_ROUND_CLOSED, apply_nothing},
    {TACIT__ENTRY__BODY_RESTORED, ledger_apply_restored},
};

tacit_status ledger_apply(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                          tacit_error *err)
{
    size_t row = 0;
    while (row < sizeof kinds / sizeof kinds[0] && kinds[row].kind != e->entry->body_case)
        row++;
    if (row == sizeof kinds / sizeof kinds[0])
        return tacit_fail(err, TACIT_BAD_INPUT, "ledger: unknown kind of entry");
    if (index == 0 && e->entry->body_case != TACIT__ENTRY__BODY_SERVER_START)
        return tacit_fail(err, TACIT_CONFLICT, "ledger: a log begins with server_start, not '%s'",
                          tacit_entry_kind_name(e->entry->body_case));
    if (kinds[row].apply != ledger_apply_by_device &&
        memcmp(e->envelope->signer.data, ledger->key.key, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "ledger: '%s' is not signed by the log's key",
                          tacit_entry_kind_name(e->entry->body_case));
    return kinds[row].apply(ledger, e, index, err);
}
