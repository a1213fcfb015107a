#include "privacy/account_internal.h"

#include "common/clock.h"
#include "common/digest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- transactions --- */

tacit_status account_change_begin(tacit_database *db, bool *own, tacit_error *err)
{
    *own = !tacit_database_in_transaction(db);
    return *own ? tacit_database_begin(db, err) : TACIT_OK;
}

tacit_status account_change_end(tacit_database *db, bool own, tacit_status status, tacit_error *err)
{
    if (!own)
        return status;
    if (status == TACIT_OK)
        return tacit_database_commit(db, err);
    tacit_database_rollback(db);
    return status;
}

tacit_status account_terms_need(tacit_account *account, account_terms *terms, tacit_error *err)
{
    bool found;
    tacit_status status = account_terms_read(account->db, terms, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: there is none in this store");
    return status;
}

static tacit_status refuse_lost(const account_terms *terms, tacit_error *err)
{
    if (!terms->lost)
        return TACIT_OK;
    return tacit_fail(
        err, TACIT_REFUSED,
        "account: it is lost (%s), so its lifetime cap of %.6g counts as spent; purge "
        "the data store to open a new one",
        terms->lost_reason, terms->policy.epsilon_cap);
}

/* --- opening: the stored entries are the truth --- */

typedef struct replay {
    tacit_budget budget;
    uint64_t sequence;
    uint8_t head[TACIT_HASH_BYTES];
    account_tally tally;
} replay;

static tacit_status replay_reserve(tacit_database *db, const tacit_entry *e, replay *r,
                                   tacit_error *err)
{
    bool seen;
    tacit_event event;
    double epsilon;
    const Tacit__Reserve *reserve = e->entry->reserve;
    if (reserve->kind == TACIT_MECHANISM_NONE) {
        tacit_budget_add_unprotected(&r->budget);
        return TACIT_OK;
    }
    tacit_status status =
        account_lineage_seen(db, reserve->lineage.data, e->entry->sequence, &seen, err);
    if (status == TACIT_OK)
        status = tacit_budget_event(&event, reserve, err);
    if (status == TACIT_OK)
        status = tacit_budget_add(&r->budget, &event, tacit_budget_values(reserve), !seen, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&r->budget, &epsilon, err);
    if (status == TACIT_OK && !tacit_budget_same(epsilon, reserve->epsilon_after))
        status = tacit_fail(err, TACIT_INTEGRITY, "a reserve states another epsilon");
    return status;
}

static tacit_status replay_entry(tacit_account *account, const account_row *row, replay *r,
                                 tacit_error *err)
{
    tacit_entry e;
    tacit_status status = tacit_entry_open(&e, row->bytes, row->size, err);
    if (status != TACIT_OK)
        return status;
    const uint8_t *key = tacit_identity_sign_key(account->id);
    bool good = e.device_signed && e.entry->sequence == r->sequence + 1 &&
                memcmp(e.leaf, row->leaf, sizeof e.leaf) == 0 &&
                memcmp(e.envelope->signer.data, key, TACIT_SIGN_KEY_BYTES) == 0 &&
                (e.entry->previous.len == 0 ||
                 memcmp(e.entry->previous.data, r->head, sizeof r->head) == 0);
    if (!good)
        status = tacit_fail(err, TACIT_INTEGRITY, "entry %llu does not continue the chain",
                            (unsigned long long)r->sequence + 1);
    if (status == TACIT_OK)
        status = account_rows_match(account->db, &e, &r->tally, err);
    if (status == TACIT_OK && e.entry->body_case == TACIT__ENTRY__BODY_RESERVE)
        status = replay_reserve(account->db, &e, r, err);
    r->sequence++;
    memcpy(r->head, e.leaf, sizeof r->head);
    tacit_entry_close(&e);
    return status;
}

/* Within a relative 2^-29: another libm, or a version with another margin, computes rho anew to
 * within less of the truth (privacy/rdp.h). */
static bool rho_agrees(unsigned __int128 a, unsigned __int128 b)
{
    unsigned __int128 apart = a > b ? a - b : b - a;
    return apart <= ((a < b ? a : b) >> 29) + 2;
}

/* Counts are exact; divergences agree, and *stored keeps the larger of each. */
static bool budget_reconcile(tacit_budget *stored, const tacit_budget *replayed)
{
    bool agree = stored->delta == replayed->delta &&
                 stored->filter_order == replayed->filter_order &&
                 stored->noise_values == replayed->noise_values &&
                 stored->schedules == replayed->schedules &&
                 stored->unprotected == replayed->unprotected && stored->lost == replayed->lost &&
                 tacit_event_list_equal(&stored->events, &replayed->events);
    for (size_t i = 0; i < TACIT_RDP_ORDERS && agree; i++) {
        agree = rho_agrees(stored->spent.rho[i], replayed->spent.rho[i]);
        if (replayed->spent.rho[i] > stored->spent.rho[i])
            stored->spent.rho[i] = replayed->spent.rho[i];
    }
    return agree;
}

static tacit_status account_verify(tacit_account *account, account_terms *terms, tacit_error *err)
{
    replay r = {0};
    bool found = true;
    tacit_budget_open(&r.budget, terms->opening_cap, terms->policy.delta);
    while (found) {
        account_row row;
        tacit_status status =
            account_entry_read(account->db, NULL, r.sequence + 1, &row, &found, err);
        if (status == TACIT_OK && found)
            status = replay_entry(account, &row, &r, err);
        free(row.bytes);
        if (status != TACIT_OK)
            return status;
    }
    if (r.sequence != terms->sequence || memcmp(r.head, terms->head, sizeof r.head) != 0)
        return tacit_fail(err, TACIT_INTEGRITY, "%llu entries are stored, %llu were made",
                          (unsigned long long)r.sequence, (unsigned long long)terms->sequence);
    tacit_status status = account_rows_are(account->db, &r.tally, err);
    if (status != TACIT_OK)
        return status;
    tacit_budget stored = terms->budget;
    if (!budget_reconcile(&stored, &r.budget))
        return tacit_fail(err, TACIT_INTEGRITY, "the stored budget is not that of its entries");
    if (memcmp(&stored.spent, &terms->budget.spent, sizeof stored.spent) == 0)
        return TACIT_OK;
    terms->budget = stored;
    return account_terms_write(account->db, terms, err);
}

/* Damage is a fact to live with, not a failure to open; a full disk or a lock is a failure. */
static bool is_damage(tacit_status status)
{
    return status == TACIT_INTEGRITY || status == TACIT_BAD_INPUT || status == TACIT_REFUSED;
}

static tacit_status account_mark_lost(tacit_account *account, account_terms *terms,
                                      const char *reason, tacit_error *err)
{
    terms->lost = true;
    snprintf(terms->lost_reason, sizeof terms->lost_reason, "%s", reason);
    return account_terms_write(account->db, terms, err);
}

static tacit_status open_checked(tacit_account *account, tacit_error *err)
{
    account_terms terms;
    tacit_error damage;
    bool own;
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK && !terms.lost) {
        status = account_verify(account, &terms, &damage);
        if (is_damage(status))
            status = account_mark_lost(account, &terms, damage.message, err);
        else if (status != TACIT_OK)
            tacit_fail(err, status, "%s", damage.message);
    }
    return account_change_end(account->db, own, status, err);
}

tacit_status tacit_account_open(tacit_account **out, tacit_database *db, const tacit_identity *id,
                                tacit_error *err)
{
    *out = NULL;
    tacit_status status = tacit_database_migrate(db, &account_migrations, err);
    if (status != TACIT_OK)
        return status;
    tacit_account *account = calloc(1, sizeof *account);
    if (!account)
        return tacit_fail(err, TACIT_NO_MEMORY, "account: no memory to open it");
    account->db = db;
    account->id = id;
    status = open_checked(account, err);
    if (status == TACIT_OK)
        *out = account;
    else
        free(account);
    return status;
}

void tacit_account_close(tacit_account *account)
{
    free(account);
}

tacit_status tacit_account_create(tacit_database *db, const tacit_policy *policy, bool lost,
                                  const tacit_identity *id, tacit_error *err)
{
    (void)id;
    account_terms terms;
    bool own, found;
    tacit_status status = tacit_policy_validate(policy, err);
    if (status == TACIT_OK)
        status = tacit_database_migrate(db, &account_migrations, err);
    if (status == TACIT_OK)
        status = account_change_begin(db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = account_terms_read(db, &terms, &found, err);
    if (status == TACIT_OK && found)
        status = tacit_fail(err, TACIT_CONFLICT,
                            "account: this store has one already; a new one needs a purge of it");
    if (status == TACIT_OK) {
        terms =
            (account_terms){.policy = *policy, .opening_cap = policy->epsilon_cap, .lost = lost};
        tacit_budget_open(&terms.budget, policy->epsilon_cap, policy->delta);
        if (lost)
            snprintf(terms.lost_reason, sizeof terms.lost_reason,
                     "its file was missing or damaged");
        status = account_terms_write(db, &terms, err);
    }
    return account_change_end(db, own, status, err);
}

/* --- terms and status --- */

/* A lost account counts as spent to the cap; to the one that it was opened with when it was lowered
 * since, and to what it is known to hold when that is more: neither is taken back. */
static tacit_status epsilon_reported(const account_terms *terms, double *epsilon, tacit_error *err)
{
    double held;
    tacit_status status = tacit_budget_epsilon(&terms->budget, &held, err);
    double counted = terms->policy.epsilon_cap;
    if (isfinite(terms->opening_cap))
        counted = fmax(counted, terms->opening_cap);
    if (isfinite(held))
        counted = fmax(counted, held);
    *epsilon = terms->lost ? counted : held;
    return status;
}

tacit_status tacit_account_status_get(tacit_account *account, tacit_account_status *out,
                                      tacit_error *err)
{
    account_terms terms;
    tacit_checkpoint checkpoint;
    uint64_t counts[4];
    double epsilon;
    bool found;
    tacit_status status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK)
        status = account_counts(account->db, counts, err);
    if (status == TACIT_OK)
        status = account_checkpoint_read(account->db, 0, true, &checkpoint, NULL, &found, err);
    if (status == TACIT_OK)
        status = epsilon_reported(&terms, &epsilon, err);
    if (status != TACIT_OK)
        return status;
    *out = (tacit_account_status){
        .policy = terms.policy,
        .epsilon = epsilon,
        .remaining = fmax(0, terms.policy.epsilon_cap - epsilon),
        .non_private = terms.budget.unprotected > 0,
        .lost = terms.lost,
        .next_sequence = terms.sequence + 1,
        .reserves = counts[0],
        .spends = counts[1],
        .abandons = counts[2],
        .unacknowledged = counts[3],
        .checkpoint_size = found ? checkpoint.size : 0,
    };
    memcpy(out->lost_reason, terms.lost_reason, sizeof out->lost_reason);
    return TACIT_OK;
}

tacit_status tacit_account_set_policy(tacit_account *account, const tacit_policy *policy,
                                      tacit_error *err)
{
    account_terms terms;
    bool own;
    tacit_status status = tacit_policy_validate(policy, err);
    if (status == TACIT_OK)
        status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK && policy->delta != terms.policy.delta)
        status = tacit_fail(err, TACIT_REFUSED,
                            "account: its delta is %.6g for life, the policy says %.6g",
                            terms.policy.delta, policy->delta);
    if (status == TACIT_OK && terms.budget.noise_values && policy->unit != terms.policy.unit)
        status = tacit_fail(err, TACIT_REFUSED,
                            "account: its unit is %s for life, the policy says %s; set it back, or "
                            "purge the store for a new account",
                            tacit_privacy_unit_name(terms.policy.unit),
                            tacit_privacy_unit_name(policy->unit));
    if (status == TACIT_OK) {
        terms.policy = *policy;
        status = account_terms_write(account->db, &terms, err);
    }
    return account_change_end(account->db, own, status, err);
}

static tacit_status lineage_fits(tacit_account *account, const account_terms *terms,
                                 const uint8_t lineage[16], double epsilon_cap, tacit_error *err)
{
    double others;
    tacit_status status = account_lineage_others(account->db, lineage, &others, err);
    if (status == TACIT_OK && !(others + epsilon_cap <= terms->policy.epsilon_cap))
        status = tacit_fail(err, TACIT_REFUSED,
                            "this lineage needs epsilon %.6g at delta %.6g; the schedules of "
                            "others hold %.6g of this device's cap %.6g, spent or not",
                            epsilon_cap, terms->policy.delta, others, terms->policy.epsilon_cap);
    return status;
}

tacit_status tacit_account_set_lineage_cap(tacit_account *account, const uint8_t lineage[16],
                                           double epsilon_cap, tacit_error *err)
{
    account_terms terms;
    account_lineage row;
    bool own, found;
    if (!isfinite(epsilon_cap) || epsilon_cap < 0)
        return tacit_fail(err, TACIT_USAGE, "lineage cap %g is out of range", epsilon_cap);
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK)
        status = account_lineage_read(account->db, lineage, &row, &found, err);
    if (status == TACIT_OK && found && row.reserved)
        status = tacit_fail(err, TACIT_CONFLICT, "this lineage has reserves, its cap stays %.6g",
                            row.epsilon_cap);
    if (status == TACIT_OK)
        status = lineage_fits(account, &terms, lineage, epsilon_cap, err);
    if (status == TACIT_OK) {
        row = (account_lineage){.epsilon_cap = epsilon_cap};
        status = account_lineage_write(account->db, lineage, &row, err);
    }
    return account_change_end(account->db, own, status, err);
}

tacit_status tacit_account_lineages(tacit_account *account, tacit_lineage_share **out, size_t *n,
                                    tacit_error *err)
{
    return account_lineage_all(account->db, out, n, err);
}

/* --- chain --- */

void tacit_reservation_free(tacit_reservation *r)
{
    free(r->entry);
    *r = (tacit_reservation){0};
}

/* Signs `entry` as the chain's next, stores it and moves the head; *out gets a copy. */
static tacit_status chain_append(tacit_account *account, account_terms *terms, Tacit__Entry *entry,
                                 tacit_reservation *out, tacit_error *err)
{
    account_row row = {.sequence = terms->sequence + 1};
    uint8_t previous[TACIT_HASH_BYTES];
    memcpy(previous, terms->head, sizeof previous);
    entry->sequence = row.sequence;
    entry->time_ms = tacit_clock_wall_ms();
    entry->previous = tacit_field_of(previous, terms->sequence ? sizeof previous : 0);
    tacit_status status =
        tacit_entry_sign(entry, account->id, &row.bytes, &row.size, row.leaf, err);
    if (status != TACIT_OK)
        return status;
    terms->sequence = row.sequence;
    memcpy(terms->head, row.leaf, sizeof terms->head);
    status = account_entry_insert(account->db, &row, err);
    if (status == TACIT_OK)
        status = account_terms_write(account->db, terms, err);
    *out =
        (tacit_reservation){.entry = row.bytes, .entry_size = row.size, .sequence = row.sequence};
    memcpy(out->hash, row.leaf, sizeof out->hash);
    return status;
}

static tacit_status reservation_load(tacit_account *account, const uint8_t *leaf, uint64_t sequence,
                                     tacit_reservation *out, tacit_error *err)
{
    account_row row;
    tacit_entry e;
    bool found;
    *out = (tacit_reservation){0};
    tacit_status status = account_entry_read(account->db, leaf, sequence, &row, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: no such entry");
    if (status != TACIT_OK)
        return status;
    *out = (tacit_reservation){.entry = row.bytes,
                               .entry_size = row.size,
                               .sequence = row.sequence,
                               .existed = true,
                               .acknowledged = row.acknowledged};
    memcpy(out->hash, row.leaf, sizeof out->hash);
    memcpy(out->nonce, row.nonce, sizeof out->nonce);
    status = tacit_entry_read(&e, row.bytes, row.size, err);
    if (status == TACIT_OK && e.entry->body_case == TACIT__ENTRY__BODY_RESERVE)
        out->epsilon_after = e.entry->reserve->epsilon_after;
    tacit_entry_close(&e);
    return status;
}

tacit_status tacit_account_entry(tacit_account *account, uint64_t sequence, tacit_reservation *out,
                                 tacit_error *err)
{
    return reservation_load(account, NULL, sequence, out, err);
}

tacit_status tacit_account_find(tacit_account *account, const uint8_t plan_hash[TACIT_HASH_BYTES],
                                tacit_reservation *out, tacit_error *err)
{
    account_reserve_row row;
    bool found;
    *out = (tacit_reservation){0};
    tacit_status status = account_reserve_by_plan(account->db, plan_hash, &row, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: that plan was not reserved");
    return status == TACIT_OK ? reservation_load(account, row.leaf, 0, out, err) : status;
}

tacit_status tacit_account_is_ended(tacit_account *account,
                                    const uint8_t reserve_hash[TACIT_HASH_BYTES], bool *ended,
                                    tacit_error *err)
{
    account_reserve_row row;
    bool found;
    tacit_status status = account_reserve_by_leaf(account->db, reserve_hash, &row, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: no such reserve");
    *ended = status == TACIT_OK && (row.spent || row.abandoned);
    return status;
}

tacit_status tacit_account_window(tacit_account *account, double *epsilon, tacit_error *err)
{
    account_terms terms;
    tacit_window window = {0};
    *epsilon = 0;
    tacit_status status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK)
        status = account_window_tail(account->db, tacit_window_back(&terms.policy), &window, err);
    if (status == TACIT_OK && window.count)
        status = tacit_window_worst(epsilon, &terms.policy, &window, window.count - 1, err);
    tacit_window_free(&window);
    return status;
}

/* --- reserve --- */

void account_work_free(account_work *w)
{
    tacit_message_free(w->plan);
    tacit_message_free(w->schedule);
}

tacit_status account_work_open(account_work *w, const tacit_reserve_request *request,
                               tacit_error *err)
{
    *w = (account_work){.lineage_cap = request->lineage_cap};
    tacit_status status;
    TACIT_TRY(TACIT_UNPACK(&w->plan, tacit__plan, request->plan.data, request->plan.size,
                           TACIT_MESSAGE_ENTRY_MAX, err),
              done);
    TACIT_TRY(TACIT_UNPACK(&w->schedule, tacit__schedule, request->schedule.data,
                           request->schedule.size, TACIT_MESSAGE_ENTRY_MAX, err),
              done);
    tacit_digest(w->plan_hash, request->plan.data, request->plan.size);
    tacit_digest(w->schedule_hash, request->schedule.data, request->schedule.size);
    TACIT_TRY(tacit_schedule_validate(w->schedule, err), done);
    TACIT_TRY(tacit_plan_validate(w->plan, err), done);
    TACIT_TRY(tacit_plan_follows_schedule(w->plan, w->schedule, w->schedule_hash, err), done);
    status = tacit_mechanism_from_plan(&w->mechanism, w->plan, err);
done:
    return status;
}

static tacit_status refuse_cap(double epsilon, const char *what, double cap,
                               const account_terms *terms, tacit_error *err)
{
    return tacit_fail(err, TACIT_REFUSED,
                      "%s needs epsilon %.6g in all at delta %.6g, this device's cap is %.6g; "
                      "ask the operator for fewer steps, rounds or more noise",
                      what, epsilon, terms->policy.delta, cap);
}

static tacit_status refuse_sub_cap(double epsilon, double most, const account_terms *terms,
                                   tacit_error *err)
{
    return tacit_fail(err, TACIT_REFUSED,
                      "plan's schedule needs epsilon %.6g at delta %.6g alone, the sub-cap of its "
                      "lineage is %.6g; ask the operator for fewer steps, rounds or more noise",
                      epsilon, terms->policy.delta, most);
}

/* A second schedule needs a first that fits the cap at the fixed order as a whole: only then is
 * that order a bound on every way the account may go from here (privacy/budget.h). */
static tacit_status second_may_follow(tacit_account *account, const account_terms *terms,
                                      tacit_error *err)
{
    double first;
    tacit_status status = account_lineage_first(account->db, &first, err);
    if (status == TACIT_OK && !(first <= terms->policy.epsilon_cap))
        status = refuse_cap(first,
                            "another schedule beside the account's first one (read at one "
                            "order for both, the first one whole)",
                            terms->policy.epsilon_cap, terms, err);
    return status;
}

/* The windows that this round ends, or, when `whole`, those of every round of its schedule: one
 * that could not go on to its end is not begun. */
static tacit_status window_allows(tacit_account *account, const account_terms *terms,
                                  const account_work *w, bool whole, tacit_error *err)
{
    const tacit_policy *policy = &terms->policy;
    uint64_t values = w->plan->trainable_values;
    tacit_window window = {0};
    tacit_event event;
    if (policy->window_reserves == 0 || w->mechanism.kind == TACIT_MECHANISM_NONE)
        return TACIT_OK;
    tacit_status status = account_window_tail(account->db, tacit_window_back(policy), &window, err);
    size_t from = window.count;
    if (status == TACIT_OK && whole)
        status = tacit_window_push_schedule(&window, w->schedule, values, err);
    else if (status == TACIT_OK)
        status = tacit_event_from_mechanism(&event, &w->mechanism, 1, err);
    if (status == TACIT_OK && !whole)
        status = tacit_window_push(&window, &event,
                                   tacit_step_noise_values(values, w->mechanism.quantile_b), err);
    if (status == TACIT_OK)
        status = tacit_window_check(policy, &window, from, whole ? "plan's schedule" : "plan", err);
    tacit_window_free(&window);
    return status;
}

/* The first reserve of a lineage admits its whole schedule, so that skipping rounds is all that
 * may still be decided (privacy/budget.h). */
static tacit_status lineage_admit(tacit_account *account, const account_terms *terms,
                                  const account_work *w, const account_lineage *row, bool has_cap,
                                  tacit_error *err)
{
    bool unprotected;
    double needed, needed_in_all;
    tacit_budget alone = tacit_budget_empty_like(&terms->budget), all = terms->budget;
    tacit_status status = tacit_budget_add_schedule(&alone, w->schedule, w->schedule->n_rounds,
                                                    w->plan->trainable_values, &unprotected, err);
    if (status == TACIT_OK)
        status = tacit_budget_join(&all, &alone, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&alone, &needed, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&all, &needed_in_all, err);
    if (status != TACIT_OK)
        return status;
    bool any = alone.schedules > 0;
    account_lineage admitted = {.epsilon_cap = has_cap ? row->epsilon_cap : needed,
                                .reserved = true};
    memcpy(admitted.schedule_hash, w->schedule_hash, TACIT_HASH_BYTES);
    if (any && terms->budget.schedules == 0)
        admitted.filter_epsilon = tacit_budget_filter_epsilon(&alone);
    double most = !has_cap && w->lineage_cap > 0 ? w->lineage_cap : admitted.epsilon_cap;
    if (any && !(needed <= most))
        return refuse_sub_cap(needed, most, terms, err);
    if (any && !(needed_in_all <= terms->policy.epsilon_cap))
        return refuse_cap(needed_in_all, "plan's schedule", terms->policy.epsilon_cap, terms, err);
    if (any && terms->budget.schedules > 0)
        status = second_may_follow(account, terms, err);
    if (status == TACIT_OK)
        status = window_allows(account, terms, w, true, err);
    if (status == TACIT_OK)
        status = lineage_fits(account, terms, w->plan->lineage.data, admitted.epsilon_cap, err);
    if (status == TACIT_OK)
        status = account_lineage_write(account->db, w->plan->lineage.data, &admitted, err);
    return status;
}

static tacit_status lineage_enter(tacit_account *account, const account_terms *terms,
                                  const account_work *w, tacit_error *err)
{
    account_lineage row;
    account_reserve_row other;
    bool found, taken;
    tacit_status status =
        account_lineage_read(account->db, w->plan->lineage.data, &row, &found, err);
    if (status != TACIT_OK)
        return status;
    if (!found || !row.reserved)
        return lineage_admit(account, terms, w, &row, found, err);
    if (memcmp(row.schedule_hash, w->schedule_hash, TACIT_HASH_BYTES) != 0)
        return tacit_fail(
            err, TACIT_INTEGRITY,
            "plan's lineage was begun under another schedule; a lineage keeps the one "
            "that was logged before its first reserve");
    status = account_reserve_of_round(account->db, w->plan->lineage.data, w->plan->round_index,
                                      &other, &taken, err);
    if (status == TACIT_OK && taken)
        status = tacit_fail(err, TACIT_REFUSED,
                            "plan's round %u was reserved under another plan already",
                            w->plan->round_index);
    return status;
}

static tacit_status charge(tacit_account *account, account_terms *terms, const account_work *w,
                           double *epsilon_after, tacit_error *err)
{
    tacit_event event;
    bool seen;
    if (w->mechanism.kind == TACIT_MECHANISM_NONE) {
        tacit_budget_add_unprotected(&terms->budget);
        *epsilon_after = INFINITY;
        return TACIT_OK;
    }
    tacit_status status =
        account_lineage_seen(account->db, w->plan->lineage.data, terms->sequence + 1, &seen, err);
    if (status == TACIT_OK)
        status = tacit_event_from_mechanism(&event, &w->mechanism, 1, err);
    if (status == TACIT_OK)
        status = tacit_budget_add(
            &terms->budget, &event,
            tacit_step_noise_values(w->plan->trainable_values, w->mechanism.quantile_b), !seen,
            err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&terms->budget, epsilon_after, err);
    if (status != TACIT_OK)
        return status;
    if (!(*epsilon_after <= terms->policy.epsilon_cap))
        return refuse_cap(*epsilon_after, "plan", terms->policy.epsilon_cap, terms, err);
    return TACIT_OK;
}

static void fill_reserve(Tacit__Reserve *r, const account_work *w, const account_terms *terms,
                         const tacit_reserve_request *request, double epsilon_after)
{
    static char version[] = TACIT_ACCOUNTANT_VERSION;
    if (!request->local)
        r->round_id = w->plan->round_id;
    r->plan_hash = tacit_field_of(w->plan_hash, sizeof w->plan_hash);
    r->lineage = w->plan->lineage;
    r->kind = w->mechanism.kind;
    r->unit = w->mechanism.unit;
    r->neighbours = w->mechanism.neighbours;
    r->b = w->mechanism.b;
    r->q_num = w->mechanism.q_num;
    r->steps = w->mechanism.steps;
    r->clip_norm = w->mechanism.clip_norm;
    r->values = w->plan->trainable_values;
    r->quantile_b = w->mechanism.quantile_b;
    r->minimum_separation = w->mechanism.minimum_separation;
    r->delta = terms->policy.delta;
    r->accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    r->accountant_version = version;
    r->epsilon_after = epsilon_after;
    r->epsilon_cap = terms->policy.epsilon_cap;
    r->insecure = request->insecure;
}

static tacit_status reserve_store(tacit_account *account, account_terms *terms,
                                  const account_work *w, const tacit_reserve_request *request,
                                  double epsilon_after, tacit_reservation *out, tacit_error *err)
{
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__Reserve reserve = TACIT__RESERVE__INIT;
    entry.device = tacit_field_of(request->device, TACIT_DEVICE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_RESERVE;
    entry.reserve = &reserve;
    fill_reserve(&reserve, w, terms, request, epsilon_after);
    tacit_status status = chain_append(account, terms, &entry, out, err);
    if (status != TACIT_OK)
        return status;
    out->epsilon_after = epsilon_after;
    account_reserve_row row = {.round_index = w->plan->round_index};
    memcpy(row.leaf, out->hash, sizeof row.leaf);
    memcpy(row.plan_hash, w->plan_hash, sizeof row.plan_hash);
    memcpy(row.device, request->device, sizeof row.device);
    memcpy(row.lineage, w->plan->lineage.data, sizeof row.lineage);
    return account_reserve_insert(account->db, &row, err);
}

static tacit_status reserve_existing(tacit_account *account, const account_reserve_row *row,
                                     tacit_reservation *out, tacit_error *err)
{
    if (row->spent || row->abandoned)
        return tacit_fail(err, TACIT_CONFLICT, "account: the reserve of that plan was %s already",
                          row->spent ? "spent" : "abandoned");
    return reservation_load(account, row->leaf, 0, out, err);
}

static tacit_status reserve_locked(tacit_account *account, const account_work *w,
                                   const tacit_reserve_request *request, tacit_reservation *out,
                                   tacit_error *err)
{
    account_terms terms;
    account_reserve_row existing;
    bool found;
    double epsilon_after;
    tacit_status status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK)
        status = refuse_lost(&terms, err);
    if (status == TACIT_OK)
        status = account_reserve_by_plan(account->db, w->plan_hash, &existing, &found, err);
    if (status != TACIT_OK)
        return status;
    if (found)
        return reserve_existing(account, &existing, out, err);
    TACIT_TRY(tacit_policy_check(&terms.policy, w->plan, err), done);
    TACIT_TRY(lineage_enter(account, &terms, w, err), done);
    TACIT_TRY(window_allows(account, &terms, w, false, err), done);
    TACIT_TRY(charge(account, &terms, w, &epsilon_after, err), done);
    TACIT_TRY(reserve_store(account, &terms, w, request, epsilon_after, out, err), done);
done:
    return status;
}

tacit_status tacit_account_reserve(tacit_account *account, const tacit_reserve_request *request,
                                   tacit_reservation *out, tacit_error *err)
{
    account_work w;
    bool own;
    *out = (tacit_reservation){0};
    tacit_status status = account_work_open(&w, request, err);
    if (status == TACIT_OK)
        status = account_change_begin(account->db, &own, err);
    if (status == TACIT_OK) {
        status = reserve_locked(account, &w, request, out, err);
        status = account_change_end(account->db, own, status, err);
    }
    if (status != TACIT_OK)
        tacit_reservation_free(out);
    account_work_free(&w);
    return status;
}

/* --- what follows a reserve --- */

/* Opens an own reserve for its ending; *done when it has this very ending already. */
static tacit_status ending_begin(tacit_account *account, const uint8_t reserve_hash[32],
                                 const uint8_t *digest, account_reserve_row *row,
                                 account_terms *terms, bool *done, tacit_error *err)
{
    bool found;
    *done = false;
    tacit_status status = account_terms_need(account, terms, err);
    if (status == TACIT_OK)
        status = account_reserve_by_leaf(account->db, reserve_hash, row, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_NOT_FOUND, "account: no such reserve");
    if (status != TACIT_OK)
        return status;
    *done = digest ? row->spent && memcmp(row->update_digest, digest, TACIT_HASH_BYTES) == 0
                   : row->abandoned;
    if (*done)
        return TACIT_OK;
    if (digest && (row->spent || row->abandoned))
        return tacit_fail(err, TACIT_CONFLICT,
                          "account: that reserve was %s; only its own sealed bytes are ever sent",
                          row->spent ? "spent on other bytes" : "abandoned");
    return TACIT_OK;
}

static tacit_status ending_store(tacit_account *account, account_terms *terms,
                                 const account_reserve_row *row, Tacit__Entry *entry,
                                 const uint8_t *digest, tacit_reservation *out, tacit_error *err)
{
    entry->device = tacit_field_of(row->device, TACIT_DEVICE_BYTES);
    tacit_status status = chain_append(account, terms, entry, out, err);
    if (status == TACIT_OK)
        status = account_reserve_end(account->db, row->leaf, out->hash, digest, err);
    return status;
}

static tacit_status ending_run(tacit_account *account, const uint8_t reserve_hash[32],
                               const uint8_t *digest, Tacit__Entry *entry, tacit_reservation *out,
                               tacit_error *err)
{
    account_terms terms;
    account_reserve_row row;
    bool own, done;
    *out = (tacit_reservation){0};
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = ending_begin(account, reserve_hash, digest, &row, &terms, &done, err);
    if (status == TACIT_OK && done)
        status = reservation_load(account, digest ? row.spend_leaf : row.abandon_leaf, 0, out, err);
    else if (status == TACIT_OK)
        status = ending_store(account, &terms, &row, entry, digest, out, err);
    status = account_change_end(account->db, own, status, err);
    if (status != TACIT_OK)
        tacit_reservation_free(out);
    return status;
}

tacit_status tacit_account_spend(tacit_account *account, const uint8_t reserve_hash[32],
                                 const uint8_t update_digest[32], tacit_reservation *out,
                                 tacit_error *err)
{
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__Spend spend = TACIT__SPEND__INIT;
    entry.body_case = TACIT__ENTRY__BODY_SPEND;
    entry.spend = &spend;
    spend.reserve_hash = tacit_field_of(reserve_hash, TACIT_HASH_BYTES);
    spend.update_digest = tacit_field_of(update_digest, TACIT_HASH_BYTES);
    return ending_run(account, reserve_hash, update_digest, &entry, out, err);
}

tacit_status tacit_account_abandon(tacit_account *account, const uint8_t reserve_hash[32],
                                   const char *reason, tacit_reservation *out, tacit_error *err)
{
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__Abandon abandon = TACIT__ABANDON__INIT;
    entry.body_case = TACIT__ENTRY__BODY_ABANDON;
    entry.abandon = &abandon;
    abandon.reserve_hash = tacit_field_of(reserve_hash, TACIT_HASH_BYTES);
    abandon.reason = (char *)(uintptr_t)reason;
    return ending_run(account, reserve_hash, NULL, &entry, out, err);
}

static tacit_status lost_store(tacit_account *account, account_terms *terms,
                               const uint8_t device[TACIT_DEVICE_BYTES], uint64_t sequence,
                               const uint8_t *head, tacit_reservation *out, tacit_error *err)
{
    Tacit__Entry entry = TACIT__ENTRY__INIT;
    Tacit__AccountLost lost = TACIT__ACCOUNT_LOST__INIT;
    if (!terms->lost)
        return tacit_fail(err, TACIT_CONFLICT, "account: it is not lost");
    if (sequence) {
        terms->sequence = sequence - 1;
        memset(terms->head, 0, sizeof terms->head);
        if (sequence > 1)
            memcpy(terms->head, head, sizeof terms->head);
    }
    entry.device = tacit_field_of(device, TACIT_DEVICE_BYTES);
    entry.body_case = TACIT__ENTRY__BODY_ACCOUNT_LOST;
    entry.account_lost = &lost;
    tacit_status status = epsilon_reported(terms, &lost.epsilon_counted, err);
    return status == TACIT_OK ? chain_append(account, terms, &entry, out, err) : status;
}

tacit_status tacit_account_lost_entry(tacit_account *account,
                                      const uint8_t device[TACIT_DEVICE_BYTES], uint64_t sequence,
                                      const uint8_t *head, tacit_reservation *out, tacit_error *err)
{
    account_terms terms;
    bool own;
    *out = (tacit_reservation){0};
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = account_terms_need(account, &terms, err);
    if (status == TACIT_OK)
        status = lost_store(account, &terms, device, sequence, head, out, err);
    status = account_change_end(account->db, own, status, err);
    if (status != TACIT_OK)
        tacit_reservation_free(out);
    return status;
}
