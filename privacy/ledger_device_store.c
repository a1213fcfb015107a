/* Entries that devices sign: whether one follows its device's chain, whether the account may make a
 * reserve (under the policy in force, one of before, or after a restore) and what it is charged;
 * what ends a reserve: spend and abandon; a lost account. */
#include "privacy/ledger_internal.h"

#include "privacy/window.h"

#include <string.h>

/* --- the chain --- */

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
        status =
            ledger_exists_blobs(ledger, others[i].sql, others[i].blobs, others[i].n, &seen, err);
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

/* The lineages of rounds are none of local training, whichever came first: what its reserve admits
 * is itself alone. */
static tacit_status lineage_not_local(tacit_ledger *ledger, const Tacit__Reserve *r,
                                      const ledger_account *a, tacit_error *err)
{
    bool local;
    const tacit_span own[] = {{a->identity_key, TACIT_SIGN_KEY_BYTES}, tacit_span_of(r->lineage)};
    tacit_status status = ledger_exists_blobs(
        ledger,
        "SELECT 1 FROM ledger_reserve r WHERE identity_key = $1 AND lineage = $2 AND lost_plan = 0"
        " AND NOT EXISTS (SELECT 1 FROM ledger_plan p WHERE p.hash = r.plan_hash) LIMIT 1",
        own, 2, &local, err);
    if (status == TACIT_OK && local)
        status = tacit_fail(err, TACIT_REFUSED,
                            "ledger: the lineage of this reserve is local training's");
    return status;
}

/* Brought again after a restore: the reserve alone must be one that the device may make, as one of
 * local training, and what the auditor finds of it must be good: a schedule that the copy does have
 * is admitted whole. */
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
    if (status == TACIT_OK)
        status = lineage_not_local(ledger, e->entry->reserve, a, err);
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
    tacit_status status = ledger_message_by_hash(
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
                                           const ledger_account *a, bool lost, tacit_error *err)
{
    Tacit__Schedule *schedule = NULL;
    tacit_budget all = a->budget;
    double epsilon;
    bool unprotected;
    tacit_status status = ledger_message_by_hash(
        ledger, "SELECT bytes FROM ledger_schedule WHERE lineage = $1", "schedule of this reserve",
        r->lineage, &tacit__schedule__descriptor, (ProtobufCMessage **)(void *)&schedule, err);
    if (status == TACIT_NOT_FOUND && lost) /* with its plan */
        return TACIT_OK;
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
    tacit_status status = ledger_exists_blobs(
        ledger, "SELECT 1 FROM ledger_reserve WHERE identity_key = $1 AND lineage = $2 LIMIT 1",
        key, 2, &seen, err);
    if (status == TACIT_OK && !seen && r->round_id.len)
        status = reserve_schedule_check(ledger, r, a, v->lost_plan, err);
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
    return ledger_taken(tacit_statement_finish(s, err), "the device reserved that plan", err);
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
    status =
        ledger_exists_blobs(ledger,
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
    status = ledger_run_blobs(
        ledger, "UPDATE ledger_reserve SET update_digest = $1 WHERE leaf = $2", row, 2, err);
    return ledger_taken(status, "an update with that digest was spent", err);
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
    return ledger_run_blobs(ledger, "UPDATE ledger_reserve SET abandoned = 1 WHERE leaf = $1",
                            &leaf, 1, err);
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
    tacit_status (*apply)(tacit_ledger *, const tacit_entry *, uint64_t, ledger_account *,
                          tacit_error *);
} kinds[] = {
    {TACIT__ENTRY__BODY_RESERVE, device_reserve},
    {TACIT__ENTRY__BODY_SPEND, device_spend},
    {TACIT__ENTRY__BODY_ABANDON, device_abandon},
    {TACIT__ENTRY__BODY_ACCOUNT_LOST, device_account_lost},
};

tacit_status ledger_apply_by_device(tacit_ledger *ledger, const tacit_entry *e, uint64_t index,
                                    tacit_error *err)
{
    size_t row = 0;
    while (row < sizeof kinds / sizeof kinds[0] && kinds[row].kind != e->entry->body_case)
        row++;
    if (row == sizeof kinds / sizeof kinds[0])
        return tacit_fail(err, TACIT_BAD_INPUT, "ledger: unknown kind of entry");
    ledger_account a;
    tacit_status status = ledger_account_by_device(ledger, e->entry->device, &a, err);
    if (status == TACIT_OK)
        status = chain_check(e, &a, err);
    if (status == TACIT_OK)
        status = kinds[row].apply(ledger, e, index, &a, err);
    if (status != TACIT_OK)
        return status;
    a.sequence = e->entry->sequence;
    memcpy(a.head, e->leaf, sizeof a.head);
    return ledger_account_write(ledger, &a, err);
}
