#include "privacy/account_internal.h"

#include <stdio.h>
#include <string.h>

/* Local training leaves no schedule behind, nor does a plan that a restored log has lost: the
 * reserve is one by itself. */
static tacit_status merge_price(const tacit_entry *e, const account_work *w, tacit_budget *alone,
                                tacit_error *err)
{
    const Tacit__Reserve *r = e->entry->reserve;
    tacit_event event;
    bool unprotected;
    if (w->plan)
        return tacit_budget_add_schedule(alone, w->schedule, w->schedule->n_rounds, r->values,
                                         &unprotected, err);
    if (r->kind == TACIT_MECHANISM_NONE)
        return TACIT_OK;
    tacit_status status = tacit_budget_event(&event, r, err);
    return status == TACIT_OK ? tacit_budget_add(alone, &event, tacit_budget_values(r), true, err)
                              : status;
}

/* The lineage as its first reserve admitted it. */
static tacit_status merge_lineage(tacit_account *account, const account_terms *terms,
                                  const tacit_entry *e, const account_work *w, tacit_error *err)
{
    account_lineage row;
    bool found;
    const uint8_t *lineage = e->entry->reserve->lineage.data;
    tacit_budget alone = tacit_budget_empty_like(&terms->budget);
    tacit_status status = account_lineage_read(account->db, lineage, &row, &found, err);
    if (status != TACIT_OK || row.reserved)
        return status;
    status = merge_price(e, w, &alone, err);
    if (status != TACIT_OK)
        return status;
    if (!found)
        status = tacit_budget_epsilon(&alone, &row.epsilon_cap, err);
    if (status != TACIT_OK)
        return status;
    row.reserved = true;
    memcpy(row.schedule_hash, w->plan ? w->schedule_hash : e->entry->reserve->plan_hash.data,
           TACIT_HASH_BYTES);
    if (alone.schedules && terms->budget.schedules == 0)
        row.filter_epsilon = tacit_budget_filter_epsilon(&alone);
    return account_lineage_write(account->db, lineage, &row, err);
}

static tacit_status merge_charge(tacit_account *account, account_terms *terms, const tacit_entry *e,
                                 tacit_error *err)
{
    const Tacit__Reserve *r = e->entry->reserve;
    tacit_event event;
    double epsilon;
    bool seen;
    if (r->kind == TACIT_MECHANISM_NONE) {
        tacit_budget_add_unprotected(&terms->budget);
        return TACIT_OK;
    }
    tacit_status status =
        account_lineage_seen(account->db, r->lineage.data, e->entry->sequence, &seen, err);
    if (status == TACIT_OK)
        status = tacit_budget_event(&event, r, err);
    if (status == TACIT_OK)
        status = tacit_budget_add(&terms->budget, &event, tacit_budget_values(r), !seen, err);
    if (status == TACIT_OK)
        status = tacit_budget_epsilon(&terms->budget, &epsilon, err);
    if (status == TACIT_OK && !tacit_budget_same(epsilon, r->epsilon_after))
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "account: a reserve of the log states another "
                            "epsilon than its events give");
    return status;
}

static tacit_status merge_open_plan(account_work *w, const tacit_missed_entry *m,
                                    const Tacit__Reserve *r, tacit_error *err)
{
    *w = (account_work){0};
    if (r->round_id.len == 0 || m->plan.size == 0)
        return TACIT_OK;
    const tacit_reserve_request request = {.plan = m->plan, .schedule = m->schedule};
    tacit_status status = account_work_open(w, &request, err);
    if (status == TACIT_OK)
        status = tacit_reserve_follows_plan(r, w->plan, w->plan_hash, err);
    return status;
}

/* Local training has a lineage for itself. Several lost plans may be of one lineage: of which
 * rounds is not known, only that they are different ones. */
static uint32_t unplanned_index(const tacit_entry *e)
{
    return e->entry->reserve->round_id.len ? UINT32_MAX - (uint32_t)(e->entry->sequence & INT32_MAX)
                                           : 0;
}

static tacit_status merge_reserve(tacit_account *account, account_terms *terms,
                                  const tacit_entry *e, const tacit_missed_entry *m,
                                  tacit_error *err)
{
    const Tacit__Reserve *r = e->entry->reserve;
    account_reserve_row row = {0};
    account_work w;
    tacit_status status = merge_open_plan(&w, m, r, err);
    if (status == TACIT_OK)
        status = merge_lineage(account, terms, e, &w, err);
    if (status == TACIT_OK)
        status = merge_charge(account, terms, e, err);
    row.round_index = w.plan ? w.plan->round_index : unplanned_index(e);
    memcpy(row.leaf, e->leaf, sizeof row.leaf);
    memcpy(row.plan_hash, r->plan_hash.data, sizeof row.plan_hash);
    memcpy(row.device, e->entry->device.data, sizeof row.device);
    memcpy(row.lineage, r->lineage.data, sizeof row.lineage);
    account_work_free(&w);
    return status == TACIT_OK ? account_reserve_insert(account->db, &row, err) : status;
}

static tacit_status merge_ending(tacit_account *account, const tacit_entry *e, tacit_error *err)
{
    account_reserve_row row;
    bool found, spent = e->entry->body_case == TACIT__ENTRY__BODY_SPEND;
    const uint8_t *leaf =
        spent ? e->entry->spend->reserve_hash.data : e->entry->abandon->reserve_hash.data;
    tacit_status status = account_reserve_by_leaf(account->db, leaf, &row, &found, err);
    if (status == TACIT_OK && !found)
        status = tacit_fail(err, TACIT_INTEGRITY, "account: an entry of the log ends no reserve");
    return status == TACIT_OK
               ? account_reserve_end(account->db, leaf, e->leaf,
                                     spent ? e->entry->spend->update_digest.data : NULL, err)
               : status;
}

static tacit_status merge_check(const tacit_account *account, const account_terms *terms,
                                const tacit_entry *e, tacit_error *err)
{
    bool first = terms->sequence == 0;
    if (e->device_signed && e->entry->sequence == terms->sequence + 1 &&
        memcmp(e->envelope->signer.data, tacit_identity_sign_key(account->id),
               TACIT_SIGN_KEY_BYTES) == 0 &&
        (first || memcmp(e->entry->previous.data, terms->head, sizeof terms->head) == 0))
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY,
                      "account: entry %llu of the log does not continue this device's chain",
                      (unsigned long long)terms->sequence + 1);
}

static void merge_loss(account_terms *terms)
{
    terms->lost = true;
    snprintf(terms->lost_reason, sizeof terms->lost_reason, "the log says that it was lost");
}

static tacit_status merge_one(tacit_account *account, account_terms *terms,
                              const tacit_missed_entry *m, tacit_error *err)
{
    tacit_entry e;
    account_row row = {.bytes = (uint8_t *)(uintptr_t)m->entry.data, .size = m->entry.size};
    tacit_status status = tacit_entry_open(&e, m->entry.data, m->entry.size, err);
    if (status != TACIT_OK)
        return status;
    TACIT_TRY(merge_check(account, terms, &e, err), done);
    row.sequence = terms->sequence = e.entry->sequence;
    memcpy(row.leaf, e.leaf, sizeof row.leaf);
    memcpy(terms->head, e.leaf, sizeof terms->head);
    TACIT_TRY(account_entry_insert(account->db, &row, err), done);
    if (e.entry->body_case == TACIT__ENTRY__BODY_RESERVE)
        status = merge_reserve(account, terms, &e, m, err);
    else if (e.entry->body_case == TACIT__ENTRY__BODY_ACCOUNT_LOST)
        merge_loss(terms);
    else
        status = merge_ending(account, &e, err);
done:
    tacit_entry_close(&e);
    return status;
}

/* A reserve that was open elsewhere: nobody knows what was computed under it. */
static tacit_status merge_abandon(tacit_account *account, const tacit_missed_entry *m,
                                  tacit_error *err)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    account_reserve_row row;
    tacit_reservation ending = {0};
    bool found;
    tacit_merkle_leaf(leaf, m->entry.data, m->entry.size);
    tacit_status status = account_reserve_by_leaf(account->db, leaf, &row, &found, err);
    if (status == TACIT_OK && found && !row.spent && !row.abandoned)
        status = tacit_account_abandon(account, leaf, "superseded", &ending, err);
    tacit_reservation_free(&ending);
    return status;
}

static tacit_status merge_all(tacit_account *account, const tacit_missed_entry *missed, size_t n,
                              tacit_error *err)
{
    account_terms terms;
    tacit_status status = account_terms_need(account, &terms, err);
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        status = merge_one(account, &terms, &missed[i], err);
    if (status == TACIT_OK)
        status = account_terms_write(account->db, &terms, err);
    for (size_t i = 0; i < n && status == TACIT_OK; i++)
        status = merge_abandon(account, &missed[i], err);
    return status;
}

tacit_status tacit_account_merge(tacit_account *account, const tacit_missed_entry *missed, size_t n,
                                 tacit_error *err)
{
    bool own;
    tacit_status status = account_change_begin(account->db, &own, err);
    if (status != TACIT_OK)
        return status;
    status = merge_all(account, missed, n, err);
    return account_change_end(account->db, own, status, err);
}
