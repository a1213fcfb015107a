/* Shared by the files of the account alone: account_store.c holds its rows, account.c its rules,
 * account_receipts.c what the log proved to it, account_merge.c takes what it lacks, account_rows.c
 * says whether rows and entries agree. */
#ifndef TACIT_PRIVACY_ACCOUNT_INTERNAL_H
#define TACIT_PRIVACY_ACCOUNT_INTERNAL_H

#include "privacy/account.h"
#include "privacy/window.h"

struct tacit_account {
    tacit_database *db;
    const tacit_identity *id;
};

/* The one row of the account. */
typedef struct account_terms {
    tacit_policy policy;
    double opening_cap; /* what fixed the filter order */
    tacit_budget budget;
    uint64_t sequence; /* of the newest own entry */
    uint8_t head[TACIT_HASH_BYTES];
    bool lost;
    char lost_reason[128];
} account_terms;

extern const tacit_migrations account_migrations;

tacit_status account_terms_read(tacit_database *db, account_terms *out, bool *found,
                                tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_terms_write(tacit_database *db, const account_terms *terms,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* A transaction of our own, unless the caller has one open: then its commit decides. */
tacit_status account_change_begin(tacit_database *db, bool *own, tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_change_end(tacit_database *db, bool own, tacit_status status,
                                tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_NOT_FOUND when the store has no account. */
tacit_status account_terms_need(tacit_account *account, account_terms *terms,
                                tacit_error *err) TACIT_MUST_CHECK;

/* A plan with its schedule, opened and found to be one. Freed with account_work_free also after a
 * failure. */
typedef struct account_work {
    Tacit__Plan *plan;
    Tacit__Schedule *schedule;
    uint8_t plan_hash[TACIT_HASH_BYTES], schedule_hash[TACIT_HASH_BYTES];
    tacit_mechanism mechanism;
    double lineage_cap; /* of a lineage without a sub-cap of its own; 0: none */
} account_work;

tacit_status account_work_open(account_work *w, const tacit_reserve_request *request,
                               tacit_error *err) TACIT_MUST_CHECK;
void account_work_free(account_work *w);

/* One own entry. `bytes` is malloc'ed by account_entry_read. */
typedef struct account_row {
    uint64_t sequence;
    uint8_t leaf[TACIT_HASH_BYTES];
    uint8_t *bytes;
    size_t size;
    bool acknowledged;
    uint8_t nonce[32];
} account_row;

tacit_status account_entry_insert(tacit_database *db, const account_row *row,
                                  tacit_error *err) TACIT_MUST_CHECK;
/* By leaf hash, or by sequence when `leaf` is NULL. */
tacit_status account_entry_read(tacit_database *db, const uint8_t *leaf, uint64_t sequence,
                                account_row *out, bool *found, tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_entry_receipt(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                   uint8_t **bytes, size_t *size,
                                   tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_entry_acknowledge(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                       tacit_span receipt, const uint8_t *nonce,
                                       tacit_error *err) TACIT_MUST_CHECK;

typedef struct account_reserve_row {
    uint8_t leaf[TACIT_HASH_BYTES], plan_hash[TACIT_HASH_BYTES], device[TACIT_DEVICE_BYTES];
    uint8_t lineage[16];
    uint32_t round_index;
    uint8_t spend_leaf[TACIT_HASH_BYTES], abandon_leaf[TACIT_HASH_BYTES];
    uint8_t update_digest[TACIT_HASH_BYTES];
    bool spent, abandoned;
} account_reserve_row;

tacit_status account_reserve_insert(tacit_database *db, const account_reserve_row *row,
                                    tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_reserve_by_plan(tacit_database *db, const uint8_t plan_hash[TACIT_HASH_BYTES],
                                     account_reserve_row *out, bool *found,
                                     tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_reserve_by_leaf(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                     account_reserve_row *out, bool *found,
                                     tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_reserve_of_round(tacit_database *db, const uint8_t lineage[16],
                                      uint32_t round_index, account_reserve_row *out, bool *found,
                                      tacit_error *err) TACIT_MUST_CHECK;
/* The entry that ended a reserve: a spend with its digest, or an abandon (digest NULL). */
tacit_status account_reserve_end(tacit_database *db, const uint8_t leaf[TACIT_HASH_BYTES],
                                 const uint8_t ending[TACIT_HASH_BYTES], const uint8_t *digest,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Entries by kind, as a replay of them counts. */
typedef struct account_tally {
    uint64_t reserves, spends, abandons;
} account_tally;

/* Counts an own entry and compares the rows that rules are read from with it; TACIT_INTEGRITY. */
tacit_status account_rows_match(tacit_database *db, const tacit_entry *e, account_tally *tally,
                                tacit_error *err) TACIT_MUST_CHECK;
/* After the last entry: there are as many rows as entries; TACIT_INTEGRITY. */
tacit_status account_rows_are(tacit_database *db, const account_tally *tally,
                              tacit_error *err) TACIT_MUST_CHECK;

typedef struct account_lineage {
    double epsilon_cap;
    bool reserved; /* schedule_hash is fixed */
    uint8_t schedule_hash[TACIT_HASH_BYTES];
    double filter_epsilon; /* of the account's first schedule, whole, at the fixed order; else 0 */
} account_lineage;

tacit_status account_lineage_read(tacit_database *db, const uint8_t lineage[16],
                                  account_lineage *out, bool *found,
                                  tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_lineage_write(tacit_database *db, const uint8_t lineage[16],
                                   const account_lineage *row, tacit_error *err) TACIT_MUST_CHECK;
/* All of them: malloc'ed, the caller's. */
tacit_status account_lineage_all(tacit_database *db, tacit_lineage_share **out, size_t *n,
                                 tacit_error *err) TACIT_MUST_CHECK;
/* Sum of the sub-caps of every other lineage. */
tacit_status account_lineage_others(tacit_database *db, const uint8_t lineage[16], double *sum,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* The filter_epsilon of the account's first schedule, 0 when there is none. */
tacit_status account_lineage_first(tacit_database *db, double *filter_epsilon,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Whether the lineage has a reserve before the entry of this sequence. */
tacit_status account_lineage_seen(tacit_database *db, const uint8_t lineage[16], uint64_t sequence,
                                  bool *seen, tacit_error *err) TACIT_MUST_CHECK;

/* Verified checkpoints, all of them: a repeated reply may carry an older one. */
tacit_status account_checkpoint_read(tacit_database *db, uint64_t size, bool newest,
                                     tacit_checkpoint *out, char **note, bool *found,
                                     tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_checkpoint_insert(tacit_database *db, const tacit_checkpoint *checkpoint,
                                       tacit_span note, tacit_error *err) TACIT_MUST_CHECK;

tacit_status account_checkpoint_clear(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;
/* The size of the newest one of at most so many entries, 0: none; and none above a size any more.
 */
tacit_status account_checkpoint_at_most(tacit_database *db, uint64_t most, uint64_t *size,
                                        tacit_error *err) TACIT_MUST_CHECK;
tacit_status account_checkpoint_drop_above(tacit_database *db, uint64_t size,
                                           tacit_error *err) TACIT_MUST_CHECK;

/* What is kept of an origin that the log left. */
tacit_status account_origin_insert(tacit_database *db, uint32_t generation, tacit_span note,
                                   tacit_span entry, tacit_error *err) TACIT_MUST_CHECK;

/* Entries from this sequence on have no receipt any more; nonces stay. */
tacit_status account_entry_forget_receipts(tacit_database *db, uint64_t sequence,
                                           tacit_error *err) TACIT_MUST_CHECK;

/* The newest `most` private reserves, in the account's order, into an empty window. */
tacit_status account_window_tail(tacit_database *db, size_t most, tacit_window *out,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* reserves, spends, abandons, entries without a receipt. */
tacit_status account_counts(tacit_database *db, uint64_t counts[4],
                            tacit_error *err) TACIT_MUST_CHECK;

#endif
