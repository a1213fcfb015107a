/* Rows beside the entries, from which rules are read: that a reserve was spent, on which bytes,
 * that a lineage was begun. The entries are the truth, and rows that say another thing are damage.
 */
#include "privacy/account_internal.h"

#include <math.h>
#include <string.h>

static tacit_status damaged(const tacit_entry *e, const char *what, tacit_error *err)
{
    return tacit_fail(err, TACIT_INTEGRITY, "entry %llu and what is stored of %s disagree",
                      (unsigned long long)e->entry->sequence, what);
}

static bool holds(ProtobufCBinaryData field, const uint8_t *row, size_t size)
{
    return field.len == size && memcmp(field.data, row, size) == 0;
}

static tacit_status match_lineage(tacit_database *db, const tacit_entry *e, tacit_error *err)
{
    account_lineage row;
    bool found;
    tacit_status status =
        account_lineage_read(db, e->entry->reserve->lineage.data, &row, &found, err);
    if (status != TACIT_OK)
        return status;
    bool good = found && row.reserved && row.epsilon_cap >= 0 && row.filter_epsilon >= 0;
    return good ? TACIT_OK : damaged(e, "its lineage", err);
}

static tacit_status match_reserve(tacit_database *db, const tacit_entry *e, tacit_error *err)
{
    const Tacit__Reserve *r = e->entry->reserve;
    account_reserve_row row;
    bool found;
    tacit_status status = account_reserve_by_leaf(db, e->leaf, &row, &found, err);
    if (status != TACIT_OK)
        return status;
    if (!found || !holds(r->plan_hash, row.plan_hash, sizeof row.plan_hash) ||
        !holds(r->lineage, row.lineage, sizeof row.lineage) ||
        !holds(e->entry->device, row.device, sizeof row.device))
        return damaged(e, "its reserve", err);
    return match_lineage(db, e, err);
}

static tacit_status match_ending(tacit_database *db, const tacit_entry *e, tacit_error *err)
{
    bool spend = e->entry->body_case == TACIT__ENTRY__BODY_SPEND, found;
    ProtobufCBinaryData leaf =
        spend ? e->entry->spend->reserve_hash : e->entry->abandon->reserve_hash;
    account_reserve_row row;
    tacit_status status = account_reserve_by_leaf(db, leaf.data, &row, &found, err);
    if (status != TACIT_OK)
        return status;
    bool good =
        found && (spend ? row.spent && memcmp(row.spend_leaf, e->leaf, sizeof e->leaf) == 0
                        : row.abandoned && memcmp(row.abandon_leaf, e->leaf, sizeof e->leaf) == 0);
    if (good && spend)
        good = holds(e->entry->spend->update_digest, row.update_digest, sizeof row.update_digest);
    return good ? TACIT_OK : damaged(e, "the reserve that it ends", err);
}

tacit_status account_rows_match(tacit_database *db, const tacit_entry *e, account_tally *tally,
                                tacit_error *err)
{
    switch (e->entry->body_case) {
    case TACIT__ENTRY__BODY_RESERVE:
        tally->reserves++;
        return match_reserve(db, e, err);
    case TACIT__ENTRY__BODY_SPEND:
        tally->spends++;
        return match_ending(db, e, err);
    case TACIT__ENTRY__BODY_ABANDON:
        tally->abandons++;
        return match_ending(db, e, err);
    default:
        return TACIT_OK;
    }
}

tacit_status account_rows_are(tacit_database *db, const account_tally *tally, tacit_error *err)
{
    uint64_t counts[4];
    tacit_status status = account_counts(db, counts, err);
    if (status == TACIT_OK && (counts[0] != tally->reserves || counts[1] != tally->spends ||
                               counts[2] != tally->abandons))
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "%llu reserves, %llu spends and %llu abandons are stored, the entries "
                            "are %llu, %llu and %llu",
                            (unsigned long long)counts[0], (unsigned long long)counts[1],
                            (unsigned long long)counts[2], (unsigned long long)tally->reserves,
                            (unsigned long long)tally->spends, (unsigned long long)tally->abandons);
    return status;
}
