#include "privacy/ledger_internal.h"

#include "common/clock.h"
#include "common/digest.h"
#include "privacy/signed_policy.h"
#include "privacy/window.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is known of the key behind a device, and of the device. */
typedef struct ledger_account {
    uint8_t identity_key[TACIT_SIGN_KEY_BYTES];
    uint64_t sequence;
    uint8_t head[TACIT_HASH_BYTES];
    tacit_policy policy;
    uint8_t policy_key[TACIT_SIGN_KEY_BYTES];
    bool has_policy_key;
    tacit_budget budget;
    bool revoked, frozen;
} ledger_account;

/* --- reading state --- */

static tacit_status account_from_row(tacit_statement *s, ledger_account *out, tacit_error *err)
{
    *out = (ledger_account){0};
    tacit_column_bytes(s, 0, out->identity_key, TACIT_SIGN_KEY_BYTES);
    out->sequence = tacit_column_u64(s, 1);
    tacit_column_bytes(s, 2, out->head, TACIT_HASH_BYTES);
    tacit_span policy = tacit_column_blob(s, 3), key = tacit_column_blob(s, 4);
    out->has_policy_key = key.size == TACIT_SIGN_KEY_BYTES;
    if (out->has_policy_key)
        memcpy(out->policy_key, key.data, key.size);
    out->revoked = tacit_column_i64(s, 6) != 0;
    out->frozen = tacit_column_i64(s, 7) != 0;
    tacit_status status = tacit_policy_unpack(&out->policy, policy.data, policy.size, err);
    if (status != TACIT_OK)
        return status;
    tacit_span budget = tacit_column_blob(s, 5);
    status = tacit_budget_read(&out->budget, budget.data, budget.size, err);
    return status == TACIT_OK ? tacit_statement_check(s, err) : status;
}

static tacit_status account_by_device(tacit_ledger *ledger, ProtobufCBinaryData device,
                                      ledger_account *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT a.identity_key, a.sequence, a.head, a.policy, a.policy_key, a.budget, d.revoked,"
        " d.frozen FROM ledger_device d JOIN ledger_account a USING (identity_key)"
        " WHERE d.device = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, device.data, device.len);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    status = row ? account_from_row(s, out, err)
                 : tacit_fail(err, TACIT_REFUSED, "ledger: unknown device");
done:
    tacit_statement_end(s);
    return status;
}

static tacit_status account_write(tacit_ledger *ledger, const ledger_account *a, tacit_error *err)
{
    tacit_statement *s;
    uint8_t *policy, budget[TACIT_BUDGET_BYTES];
    size_t policy_size;
    tacit_budget_write(&a->budget, budget);
    tacit_status status = tacit_policy_pack(&a->policy, &policy, &policy_size, err);
    if (status != TACIT_OK)
        return status;
    status = tacit_statement_begin(
        ledger->db, &s,
        "INSERT INTO ledger_account (identity_key, sequence, head, policy, policy_key, budget)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (identity_key) DO UPDATE SET"
        " sequence = excluded.sequence, head = excluded.head, policy = excluded.policy,"
        " policy_key = excluded.policy_key, budget = excluded.budget",
        err);
    if (status == TACIT_OK) {
        tacit_bind_blob(s, 1, a->identity_key, TACIT_SIGN_KEY_BYTES);
        tacit_bind_u64(s, 2, a->sequence);
        tacit_bind_blob(s, 3, a->head, TACIT_HASH_BYTES);
        tacit_bind_blob(s, 4, policy, policy_size);
        tacit_bind_blob(s, 5, a->policy_key, a->has_policy_key ? TACIT_SIGN_KEY_BYTES : 0);
        tacit_bind_blob(s, 6, budget, sizeof budget);
        status = tacit_statement_finish(s, err);
    }
    free(policy);
    return status;
}

/* Runs a statement whose parameters are blobs only. */
static tacit_status run_blobs(tacit_ledger *ledger, const char *sql, const tacit_span *blobs,
                              size_t n, tacit_error *err)
{
    tacit_statement *s;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        tacit_bind_blob(s, (int)i + 1, blobs[i].data, blobs[i].size);
    return tacit_statement_finish(s, err);
}

/* That a row is there already is said in the log's words, not in the database's. */
static tacit_status taken(tacit_status status, const char *what, tacit_error *err)
{
    return status == TACIT_CONFLICT ? tacit_fail(err, status, "ledger: %s already", what) : status;
}

/* True when the query over blob parameters has a row. */
static tacit_status exists_blobs(tacit_ledger *ledger, const char *sql, const tacit_span *blobs,
                                 size_t n, bool *row, tacit_error *err)
{
    tacit_statement *s;
    *row = false;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        tacit_bind_blob(s, (int)i + 1, blobs[i].data, blobs[i].size);
    status = tacit_statement_step(s, row, err);
    tacit_statement_end(s);
    return status;
}

/* The stored bytes of a schedule or plan by hash, unpacked. */
static tacit_status message_by_hash(tacit_ledger *ledger, const char *sql, const char *what,
                                    ProtobufCBinaryData hash,
                                    const ProtobufCMessageDescriptor *kind, ProtobufCMessage **out,
                                    tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *out = NULL;
    tacit_status status = tacit_statement_begin(ledger->db, &s, sql, err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, hash.data, hash.len);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    if (row) {
        tacit_span bytes = tacit_column_blob(s, 0);
        status =
            tacit_message_unpack(out, kind, bytes.data, bytes.size, TACIT_MESSAGE_ENTRY_MAX, err);
    } else {
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: the %s is not logged", what);
    }
done:
    tacit_statement_end(s);
    return status;
}

/* --- the server's kinds --- */

static tacit_status account_for_enrol(tacit_ledger *ledger, const Tacit__Enrol *enrol,
                                      ledger_account *out, tacit_error *err)
{
    tacit_statement *s;
    bool known = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT a.identity_key, a.sequence, a.head, a.policy, a.policy_key, a.budget,"
        " max(d.revoked), max(d.frozen) FROM ledger_account a JOIN ledger_device d USING"
        " (identity_key) WHERE a.identity_key = $1 GROUP BY a.identity_key",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, enrol->identity_key.data, enrol->identity_key.len);
    status = tacit_statement_step(s, &known, err);
    if (status == TACIT_OK && known)
        status = account_from_row(s, out, err);
    tacit_statement_end(s);
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
    tacit_status status =
        exists_blobs(ledger, "SELECT 1 FROM ledger_policy WHERE identity_key = $1 AND policy = $2",
                     row, 2, &seen, err);
    *fresh = !seen;
    if (status == TACIT_OK && !seen)
        status =
            run_blobs(ledger, "INSERT INTO ledger_policy (identity_key, policy) VALUES ($1, $2)",
                      row, 2, err);
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
    tacit_status status = exists_blobs(ledger,
                                       "SELECT 1 FROM ledger_enrolment WHERE identity_key = $1"
                                       " AND policy_key = $2 AND policy = $3",
                                       row, 3, &seen, err);
    *fresh = !seen;
    if (status == TACIT_OK && !seen)
        status = run_blobs(ledger,
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
    status = account_write(ledger, &a, err);
    if (status != TACIT_OK)
        return status;
    return taken(device_insert_row(ledger, e, index, err), "that pseudonym is a device's", err);
}

static tacit_status apply_about_device(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                       tacit_error *err)
{
    (void)index;
    ledger_account a;
    return account_by_device(ledger, e->entry->device, &a, err);
}

/* Revocation and freezing are of the key: every pseudonym of it. */
static tacit_status mark_device(tacit_ledger *ledger, const tacit_entry *e, const char *sql,
                                tacit_error *err)
{
    ledger_account a;
    tacit_status status = account_by_device(ledger, e->entry->device, &a, err);
    if (status != TACIT_OK)
        return status;
    const tacit_span key = {a.identity_key, TACIT_SIGN_KEY_BYTES};
    return run_blobs(ledger, sql, &key, 1, err);
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
    status =
        run_blobs(ledger, "INSERT INTO ledger_schedule (hash, lineage, bytes) VALUES ($1, $2, $3)",
                  row, 3, err);
    status = taken(status, "that lineage has a schedule", err);
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
    return taken(tacit_statement_finish(s, err),
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
    TACIT_TRY(message_by_hash(ledger, "SELECT bytes FROM ledger_schedule WHERE hash = $1",
                              "schedule of this plan", plan->schedule_hash,
                              &tacit__schedule__descriptor, (ProtobufCMessage **)(void *)&schedule,
                              err),
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
    tacit_status status = account_by_device(ledger, e->entry->device, &a, err);
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
    return run_blobs(ledger,
                     u->accepted
                         ? "UPDATE ledger_reserve SET decided = 1, accepted = 1 WHERE leaf = $1"
                         : "UPDATE ledger_reserve SET decided = 1 WHERE leaf = $1",
                     &leaf, 1, err);
}

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
    tacit_status status = account_by_device(ledger, e->entry->device, &a, err);
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
    return account_write(ledger, &a, err);
}

static tacit_status apply_nothing(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                  tacit_error *err)
{
    (void)ledger;
    (void)e;
    (void)index;
    (void)err;
    return TACIT_OK;
}

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

/* --- the devices' kinds --- */

static tacit_status chain_check(const tacit_entry *e, const ledger_account *a, tacit_error *err)
{
    const Tacit__Entry *entry = e->entry;
    if (a->revoked || a->frozen)
        return tacit_fail(err, TACIT_REFUSED, "ledger: this device is %s",
                          a->revoked ? "revoked" : "frozen as a suspected clone");
    if (memcmp(e->envelope->signer.data, a->identity_key, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "ledger: the entry is not signed by its device");
    if (entry->sequence <= a->sequence)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "ledger: sequence %llu was used with other bytes: a suspected clone",
                          (unsigned long long)entry->sequence);
    if (entry->sequence > a->sequence + 1)
        return tacit_fail(err, TACIT_CONFLICT,
                          "ledger: sequence %llu is ahead of the chain; send entry %llu first",
                          (unsigned long long)entry->sequence, (unsigned long long)a->sequence + 1);
    if (a->sequence && memcmp(entry->previous.data, a->head, TACIT_HASH_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY,
                          "ledger: entry %llu does not follow the chain's head: a suspected clone",
                          (unsigned long long)entry->sequence);
    return TACIT_OK;
}

/* A false claim is refused; TACIT_INTEGRITY of a device's entry is kept for forks of its chain. */
static tacit_status refuse_claim(tacit_status status, tacit_error *err)
{
    if (status != TACIT_INTEGRITY)
        return status;
    if (err)
        err->status = TACIT_REFUSED;
    return TACIT_REFUSED;
}

/* What a policy says to a reserve of this plan; NULL is local training's, which never leaves the
 * device. */
static tacit_status reserve_allowed(const tacit_policy *policy, const Tacit__Reserve *r,
                                    const Tacit__Plan *plan, tacit_error *err)
{
    if (r->kind == TACIT_MECHANISM_NONE && !policy->allow_non_private)
        return tacit_fail(err, TACIT_REFUSED, "ledger: the device's policy forbids mechanism none");
    if (!(r->epsilon_cap <= policy->epsilon_cap))
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: the reserve states a cap of %.6g, the device's cap is %.6g",
                          r->epsilon_cap, policy->epsilon_cap);
    return plan ? tacit_policy_check(policy, plan, err)
                : refuse_claim(tacit_policy_check_reserve(policy, r, err), err);
}

tacit_status ledger_window_allowed(tacit_ledger *ledger,
                                   const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                                   const tacit_policy *policy, const tacit_window *next,
                                   tacit_error *err)
{
    tacit_statement *s;
    tacit_window window = {0};
    bool row = true;
    if (policy->window_reserves == 0)
        return TACIT_OK;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT e.bytes FROM ledger_reserve r JOIN ledger_entry e ON e.idx = r.idx"
        " WHERE r.identity_key = $1 ORDER BY r.idx DESC",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, identity_key, TACIT_SIGN_KEY_BYTES);
    while (status == TACIT_OK && window.count < tacit_window_back(policy)) {
        status = tacit_statement_step(s, &row, err);
        if (status != TACIT_OK || !row)
            break;
        tacit_span bytes = tacit_column_blob(s, 0);
        status = tacit_window_push_entry(&window, bytes.data, bytes.size, err);
    }
    tacit_statement_end(s);
    tacit_window_reverse(&window);
    size_t from = window.count;
    for (size_t i = 0; status == TACIT_OK && i < next->count; i++)
        status = tacit_window_push(&window, &next->item[i].event, next->item[i].values, err);
    if (status == TACIT_OK)
        status = tacit_window_check(policy, &window, from, "ledger: the reserve", err);
    tacit_window_free(&window);
    return status;
}

/* The most, term by term, that a policy of this account ever allowed. Every row of ledger_policy
 * was in force from its entry on. */
static tacit_status widest_policy(tacit_ledger *ledger, const ledger_account *a, tacit_policy *out,
                                  tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    *out = a->policy;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s, "SELECT policy FROM ledger_policy WHERE identity_key = $1", err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, a->identity_key, TACIT_SIGN_KEY_BYTES);
    while ((status = tacit_statement_step(s, &row, err)) == TACIT_OK && row) {
        tacit_policy one;
        tacit_span bytes = tacit_column_blob(s, 0);
        status = tacit_policy_unpack(&one, bytes.data, bytes.size, err);
        if (status != TACIT_OK)
            break;
        tacit_policy_widen(out, &one);
    }
    tacit_statement_end(s);
    return status;
}

static tacit_status terms_allow(tacit_ledger *ledger, const ledger_account *a,
                                const tacit_policy *policy, const Tacit__Reserve *r,
                                const Tacit__Plan *plan, tacit_error *err)
{
    tacit_window_item item = {.values = tacit_budget_values(r)};
    const tacit_window next = {&item, 1, 1};
    tacit_status status = reserve_allowed(policy, r, plan, err);
    if (status != TACIT_OK || r->kind == TACIT_MECHANISM_NONE)
        return status;
    status = tacit_budget_event(&item.event, r, err);
    return status == TACIT_OK ? ledger_window_allowed(ledger, a->identity_key, policy, &next, err)
                              : status;
}

/* A device signs a reserve before it asks. What the policy in force refuses was signed in good
 * faith when an earlier policy allowed it; what none ever allowed was not. */
static tacit_status judge_terms(tacit_ledger *ledger, const Tacit__Reserve *r,
                                const Tacit__Plan *plan, const ledger_account *a, bool *outdated,
                                tacit_error *err)
{
    tacit_policy widest;
    tacit_error none;
    *outdated = false;
    tacit_status status = terms_allow(ledger, a, &a->policy, r, plan, err);
    if (status != TACIT_REFUSED)
        return status;
    tacit_status found = widest_policy(ledger, a, &widest, &none);
    if (found != TACIT_OK)
        return tacit_fail(err, found, "%s", none.message);
    /* A unit changes only before the first private reserve, so one of another unit than the one in
     * force would be the first of an account that its policy is not of. */
    *outdated = (r->kind == TACIT_MECHANISM_NONE || r->unit == (uint32_t)a->policy.unit) &&
                terms_allow(ledger, a, &widest, r, plan, &none) == TACIT_OK;
    return *outdated ? TACIT_OK : status;
}

/* Local training: its plan never leaves the device, so the reserve alone must be one that the
 * device may make, in a lineage of its own. What is refused here the auditor would find in an
 * honest server's log. */
static tacit_status judge_local(tacit_ledger *ledger, const Tacit__Reserve *r,
                                const ledger_account *a, bool *outdated, tacit_error *err)
{
    const tacit_span lineage = tacit_span_of(r->lineage), plan = tacit_span_of(r->plan_hash);
    const tacit_span own[] = {{a->identity_key, TACIT_SIGN_KEY_BYTES}, lineage};
    const struct {
        const char *sql;
        const tacit_span *blobs;
        size_t n;
    } others[] = {
        {"SELECT 1 FROM ledger_reserve WHERE identity_key = $1 AND lineage = $2 LIMIT 1", own, 2},
        {"SELECT 1 FROM ledger_schedule WHERE lineage = $1 LIMIT 1", &lineage, 1},
        {"SELECT 1 FROM ledger_plan WHERE hash = $1 LIMIT 1", &plan, 1},
    };
    tacit_status status = judge_terms(ledger, r, NULL, a, outdated, err);
    for (size_t i = 0; i < sizeof others / sizeof others[0] && status == TACIT_OK; i++) {
        bool seen;
        status = exists_blobs(ledger, others[i].sql, others[i].blobs, others[i].n, &seen, err);
        if (status == TACIT_OK && seen)
            status = tacit_fail(err, TACIT_REFUSED,
                                "ledger: local training needs a lineage and a plan of its own");
    }
    return status;
}

/* What the log says to a reserve: `outdated` (ledger.h), and whether its plan was lost. */
typedef struct verdict {
    bool outdated, lost_plan;
} verdict;

/* Brought again after a restore: the reserve alone must be one that the device may make, as one of
 * local training. */
static tacit_status judge_lost(tacit_ledger *ledger, const tacit_entry *e, const ledger_account *a,
                               verdict *v, tacit_error *err)
{
    bool may;
    tacit_error none;
    tacit_status status = ledger_plan_may_be_lost(ledger, e, &may, &none);
    if (status != TACIT_OK)
        return tacit_fail(err, status, "%s", none.message);
    if (!may) /* *err says that the plan is not logged */
        return TACIT_NOT_FOUND;
    status = judge_terms(ledger, e->entry->reserve, NULL, a, &v->outdated, err);
    v->outdated = v->lost_plan = true;
    return status;
}

static tacit_status reserve_judge(tacit_ledger *ledger, const tacit_entry *e,
                                  const ledger_account *a, verdict *v, tacit_error *err)
{
    Tacit__Plan *plan;
    const Tacit__Reserve *r = e->entry->reserve;
    *v = (verdict){.outdated = false};
    if (r->round_id.len == 0)
        return judge_local(ledger, r, a, &v->outdated, err);
    tacit_status status = message_by_hash(
        ledger, "SELECT bytes FROM ledger_plan WHERE hash = $1", "plan of this reserve",
        r->plan_hash, &tacit__plan__descriptor, (ProtobufCMessage **)(void *)&plan, err);
    if (status == TACIT_NOT_FOUND)
        return judge_lost(ledger, e, a, v, err);
    if (status != TACIT_OK)
        return status;
    status = refuse_claim(tacit_reserve_follows_plan(r, plan, r->plan_hash.data, err), err);
    if (status == TACIT_OK)
        status = judge_terms(ledger, r, plan, a, &v->outdated, err);
    tacit_message_free(plan);
    return status;
}

/* The first reserve of a lineage admits its whole schedule (privacy/budget.h), which must fit. For
 * a device's first lineage this is all that the auditor asks; beside others he asks more, from what
 * only the account and he keep. */
static tacit_status reserve_schedule_check(tacit_ledger *ledger, const Tacit__Reserve *r,
                                           const ledger_account *a, tacit_error *err)
{
    Tacit__Plan *plan = NULL;
    Tacit__Schedule *schedule = NULL;
    tacit_budget all = a->budget;
    double epsilon;
    bool unprotected;
    tacit_status status = message_by_hash(
        ledger, "SELECT bytes FROM ledger_plan WHERE hash = $1", "plan of this reserve",
        r->plan_hash, &tacit__plan__descriptor, (ProtobufCMessage **)(void *)&plan, err);
    if (status == TACIT_OK)
        status = message_by_hash(ledger, "SELECT bytes FROM ledger_schedule WHERE hash = $1",
                                 "schedule of this reserve", plan->schedule_hash,
                                 &tacit__schedule__descriptor,
                                 (ProtobufCMessage **)(void *)&schedule, err);
    if (status == TACIT_OK)
        status = tacit_budget_add_schedule(&all, schedule, schedule->n_rounds, r->values,
                                           &unprotected, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&all, &epsilon, err);
    if (status == TACIT_OK && !(epsilon <= r->epsilon_cap))
        status =
            tacit_fail(err, TACIT_REFUSED,
                       "ledger: the whole schedule of this reserve brings epsilon to %.6g, its "
                       "own stated cap is %.6g",
                       epsilon, r->epsilon_cap);
    tacit_message_free(schedule);
    tacit_message_free(plan);
    return status;
}

/* The account has what was reserved, whatever the cap is by now; what a reserve says of itself must
 * be true, and within the cap that it states. */
static tacit_status reserve_charge(tacit_ledger *ledger, const Tacit__Reserve *r, const verdict *v,
                                   ledger_account *a, tacit_error *err)
{
    bool seen;
    double epsilon;
    tacit_event event;
    if (a->budget.lost)
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: the device declared its account lost; its cap counts as spent");
    if (r->kind == TACIT_MECHANISM_NONE) {
        tacit_budget_add_unprotected(&a->budget);
        return TACIT_OK;
    }
    const tacit_span key[] = {{a->identity_key, TACIT_SIGN_KEY_BYTES}, tacit_span_of(r->lineage)};
    tacit_status status = exists_blobs(
        ledger, "SELECT 1 FROM ledger_reserve WHERE identity_key = $1 AND lineage = $2 LIMIT 1",
        key, 2, &seen, err);
    if (status == TACIT_OK && !seen && r->round_id.len && !v->lost_plan)
        status = reserve_schedule_check(ledger, r, a, err);
    if (status == TACIT_OK)
        status = tacit_budget_event(&event, r, err);
    if (status == TACIT_OK)
        status = tacit_budget_add(&a->budget, &event, tacit_budget_values(r), !seen, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&a->budget, &epsilon, err);
    if (status != TACIT_OK)
        return status;
    if (!(epsilon <= r->epsilon_cap))
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: the reserve brings epsilon to %.6g, its own stated cap is %.6g",
                          epsilon, r->epsilon_cap);
    if (r->delta != a->policy.delta || !tacit_budget_same(epsilon, r->epsilon_after))
        return tacit_fail(err, TACIT_REFUSED,
                          "ledger: the reserve states epsilon %.12g, its events give %.12g",
                          r->epsilon_after, epsilon);
    return TACIT_OK;
}

static tacit_status reserve_insert(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                   const ledger_account *a, const verdict *v, tacit_error *err)
{
    tacit_statement *s;
    const Tacit__Reserve *r = e->entry->reserve;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "INSERT INTO ledger_reserve (leaf, idx, device, identity_key, plan_hash, lineage,"
        " abandoned, decided, accepted, outdated, lost_plan)"
        " VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, $7, $8)",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, e->leaf, TACIT_HASH_BYTES);
    tacit_bind_u64(s, 2, index);
    tacit_bind_blob(s, 3, e->entry->device.data, e->entry->device.len);
    tacit_bind_blob(s, 4, a->identity_key, TACIT_SIGN_KEY_BYTES);
    tacit_bind_blob(s, 5, r->plan_hash.data, r->plan_hash.len);
    tacit_bind_blob(s, 6, r->lineage.data, r->lineage.len);
    tacit_bind_i64(s, 7, v->outdated);
    tacit_bind_i64(s, 8, v->lost_plan);
    return taken(tacit_statement_finish(s, err), "the device reserved that plan", err);
}

static tacit_status device_reserve(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                   ledger_account *a, tacit_error *err)
{
    verdict v;
    tacit_status status = reserve_judge(ledger, e, a, &v, err);
    if (status == TACIT_OK)
        status = reserve_charge(ledger, e->entry->reserve, &v, a, err);
    if (status == TACIT_OK)
        status = reserve_insert(ledger, e, index, a, &v, err);
    return status;
}

/* The reserve that a spend or abandon names must be the device's own. */
static tacit_status own_reserve(tacit_ledger *ledger, const tacit_entry *e,
                                ProtobufCBinaryData leaf, tacit_ledger_reserve *out,
                                tacit_error *err)
{
    tacit_status status = tacit_ledger_reserve_get(ledger, leaf.data, out, err);
    if (status != TACIT_OK)
        return status;
    if (memcmp(out->device, e->entry->device.data, TACIT_DEVICE_BYTES) != 0)
        return tacit_fail(err, TACIT_REFUSED, "ledger: the reserve belongs to another device");
    return TACIT_OK;
}

static tacit_status device_spend(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                 ledger_account *a, tacit_error *err)
{
    (void)index;
    (void)a;
    const Tacit__Spend *spend = e->entry->spend;
    tacit_ledger_reserve r;
    tacit_status status = own_reserve(ledger, e, spend->reserve_hash, &r, err);
    if (status != TACIT_OK)
        return status;
    if (r.spent || r.abandoned)
        return tacit_fail(err, TACIT_CONFLICT, "ledger: that reserve was %s already",
                          r.spent ? "spent" : "abandoned");
    const tacit_span plan = {r.plan_hash, TACIT_HASH_BYTES};
    bool planned;
    status = exists_blobs(ledger,
                          "SELECT 1 FROM ledger_plan WHERE hash = $1 UNION ALL"
                          " SELECT 1 FROM ledger_reserve WHERE plan_hash = $1 AND lost_plan = 1",
                          &plan, 1, &planned, err);
    if (status == TACIT_OK && !planned)
        status =
            tacit_fail(err, TACIT_REFUSED, "ledger: nothing of local training leaves a device");
    if (status != TACIT_OK)
        return status;
    const tacit_span row[] = {tacit_span_of(spend->update_digest),
                              tacit_span_of(spend->reserve_hash)};
    status = run_blobs(ledger, "UPDATE ledger_reserve SET update_digest = $1 WHERE leaf = $2", row,
                       2, err);
    return taken(status, "an update with that digest was spent", err);
}

static tacit_status device_abandon(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                   ledger_account *a, tacit_error *err)
{
    (void)index;
    (void)a;
    tacit_ledger_reserve r;
    const tacit_span leaf = tacit_span_of(e->entry->abandon->reserve_hash);
    tacit_status status = own_reserve(ledger, e, e->entry->abandon->reserve_hash, &r, err);
    if (status != TACIT_OK)
        return status;
    if (r.abandoned || r.accepted)
        return tacit_fail(err, TACIT_CONFLICT, "ledger: that reserve was %s already",
                          r.accepted ? "accepted" : "abandoned");
    return run_blobs(ledger, "UPDATE ledger_reserve SET abandoned = 1 WHERE leaf = $1", &leaf, 1,
                     err);
}

static tacit_status device_account_lost(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                        ledger_account *a, tacit_error *err)
{
    (void)ledger;
    (void)e;
    (void)index;
    (void)err;
    a->budget.lost = true;
    return TACIT_OK;
}

/* --- dispatch --- */

static const struct {
    Tacit__Entry__BodyCase kind;
    tacit_status (*by_server)(tacit_ledger *, const tacit_entry *, uint64_t, tacit_error *);
    tacit_status (*by_device)(tacit_ledger *, const tacit_entry *, uint64_t, ledger_account *,
                              tacit_error *);
} kinds[] = {
    {TACIT__ENTRY__BODY_ENROL, apply_enrol, NULL},
    {TACIT__ENTRY__BODY_RENEW, apply_about_device, NULL},
    {TACIT__ENTRY__BODY_REVOKE, apply_revoke, NULL},
    {TACIT__ENTRY__BODY_SCHEDULE, apply_schedule, NULL},
    {TACIT__ENTRY__BODY_PLAN, apply_plan, NULL},
    {TACIT__ENTRY__BODY_RESERVE, NULL, device_reserve},
    {TACIT__ENTRY__BODY_SPEND, NULL, device_spend},
    {TACIT__ENTRY__BODY_ABANDON, NULL, device_abandon},
    {TACIT__ENTRY__BODY_ACCOUNT_LOST, NULL, device_account_lost},
    {TACIT__ENTRY__BODY_CLONE_SUSPECTED, apply_clone, NULL},
    {TACIT__ENTRY__BODY_UPDATE, apply_update, NULL},
    {TACIT__ENTRY__BODY_AGGREGATE, apply_nothing, NULL},
    {TACIT__ENTRY__BODY_PUBLISHED, apply_nothing, NULL},
    {TACIT__ENTRY__BODY_ROLLED_BACK, apply_nothing, NULL},
    {TACIT__ENTRY__BODY_POLICY_CHANGED, apply_policy_changed, NULL},
    {TACIT__ENTRY__BODY_KEY_ROTATED, apply_key_rotated, NULL},
    {TACIT__ENTRY__BODY_SERVER_START, ledger_apply_server_start, NULL},
    {TACIT__ENTRY__BODY_SERVER_STOP, apply_nothing, NULL},
    {TACIT__ENTRY__BODY_ROUND_CLOSED, apply_nothing, NULL},
    {TACIT__ENTRY__BODY_RESTORED, ledger_apply_restored, NULL},
};

static tacit_status apply_by_device(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                    size_t row, tacit_error *err)
{
    ledger_account a;
    tacit_status status = account_by_device(ledger, e->entry->device, &a, err);
    if (status == TACIT_OK)
        status = chain_check(e, &a, err);
    if (status == TACIT_OK)
        status = kinds[row].by_device(ledger, e, index, &a, err);
    if (status != TACIT_OK)
        return status;
    a.sequence = e->entry->sequence;
    memcpy(a.head, e->leaf, sizeof a.head);
    return account_write(ledger, &a, err);
}

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
    if (kinds[row].by_device)
        return apply_by_device(ledger, e, index, row, err);
    if (memcmp(e->envelope->signer.data, ledger->key.key, TACIT_SIGN_KEY_BYTES) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "ledger: '%s' is not signed by the log's key",
                          tacit_entry_kind_name(e->entry->body_case));
    return kinds[row].by_server(ledger, e, index, err);
}

/* --- questions --- */

tacit_status ledger_budget_get(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                               ledger_budget *out, tacit_error *err)
{
    ledger_account a;
    tacit_status status =
        account_by_device(ledger, tacit_field_of(device, TACIT_DEVICE_BYTES), &a, err);
    if (status != TACIT_OK)
        return status;
    *out = (ledger_budget){.budget = a.budget, .policy = a.policy};
    memcpy(out->identity_key, a.identity_key, sizeof out->identity_key);
    return TACIT_OK;
}

tacit_status tacit_ledger_device_get(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                                     tacit_ledger_device *out, tacit_error *err)
{
    ledger_account a;
    double epsilon;
    tacit_status status =
        account_by_device(ledger, tacit_field_of(device, TACIT_DEVICE_BYTES), &a, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&a.budget, &epsilon, err);
    if (status != TACIT_OK)
        return status;
    *out = (tacit_ledger_device){
        .next_sequence = a.sequence + 1,
        .revoked = a.revoked,
        .frozen = a.frozen,
        .policy = a.policy,
        .epsilon = epsilon,
        .non_private = a.budget.unprotected > 0,
    };
    memcpy(out->identity_key, a.identity_key, sizeof out->identity_key);
    memcpy(out->head, a.head, sizeof out->head);
    return TACIT_OK;
}

tacit_status tacit_ledger_reserve_get(tacit_ledger *ledger, const uint8_t leaf[TACIT_HASH_BYTES],
                                      tacit_ledger_reserve *out, tacit_error *err)
{
    tacit_statement *s;
    bool row = false;
    tacit_status status = tacit_statement_begin(
        ledger->db, &s,
        "SELECT idx, device, plan_hash, update_digest, abandoned, decided, accepted, outdated"
        " FROM ledger_reserve WHERE leaf = $1",
        err);
    if (status != TACIT_OK)
        return status;
    tacit_bind_blob(s, 1, leaf, TACIT_HASH_BYTES);
    TACIT_TRY(tacit_statement_step(s, &row, err), done);
    if (!row) {
        status = tacit_fail(err, TACIT_NOT_FOUND, "ledger: the reserve is not logged");
        goto done;
    }
    *out = (tacit_ledger_reserve){.index = tacit_column_u64(s, 0)};
    memcpy(out->leaf, leaf, sizeof out->leaf);
    tacit_column_bytes(s, 1, out->device, sizeof out->device);
    tacit_column_bytes(s, 2, out->plan_hash, sizeof out->plan_hash);
    out->spent = !tacit_column_is_null(s, 3);
    if (out->spent)
        tacit_column_bytes(s, 3, out->update_digest, sizeof out->update_digest);
    out->abandoned = tacit_column_i64(s, 4) != 0;
    out->decided = tacit_column_i64(s, 5) != 0;
    out->accepted = tacit_column_i64(s, 6) != 0;
    out->outdated = tacit_column_i64(s, 7) != 0;
    status = tacit_statement_check(s, err);
done:
    tacit_statement_end(s);
    return status;
}
