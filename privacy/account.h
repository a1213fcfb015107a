/* The account of a device's data store: one lifetime cap over every lineage, server and local
 * training, in the device's database (tables `account_*`).
 *
 * Reserve, then spend. tacit_account_reserve checks the plan against the policy and the cap and
 * stores the signed entry durably before it returns; the server's acknowledgement is stored by
 * tacit_account_acknowledge before the first gradient is computed; nothing is ever released. Every
 * function that changes something is one BEGIN IMMEDIATE transaction of its own unless the caller
 * has one open, whose commit then decides (and which must roll back after a failure here). Several
 * processes may hold the account: each check reads what the last commit left.
 *
 * The stored entries are the truth: opening recomputes the chain, the signatures and the epsilon
 * from them. An account that does not add up is opened as lost: its lifetime cap counts as spent
 * and every reserve is TACIT_REFUSED. When the database cannot be written nothing is reserved, so
 * nothing may be trained or released (TACIT_IO, TACIT_AGAIN).
 *
 * One thread at a time. */
#ifndef TACIT_PRIVACY_ACCOUNT_H
#define TACIT_PRIVACY_ACCOUNT_H

#include "common/database.h"
#include "common/identity.h"
#include "privacy/budget.h"
#include "privacy/entry.h"
#include "privacy/note.h"
#include "privacy/policy.h"
#include "privacy/receipt.h"
#include "privacy/restore.h"

typedef struct tacit_account tacit_account;

/* Opens a new, empty account under `policy` (its cap and delta are the account's). TACIT_CONFLICT
 * when the store has one: a new account needs a purge of the store. `lost` makes one that is spent
 * from its first moment, for a store whose account file is gone or unreadable. */
tacit_status tacit_account_create(tacit_database *db, const tacit_policy *policy, bool lost,
                                  const tacit_identity *id, tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_NOT_FOUND when there is none. `id` signs the entries and outlives the account. */
tacit_status tacit_account_open(tacit_account **out, tacit_database *db, const tacit_identity *id,
                                tacit_error *err) TACIT_MUST_CHECK;
void tacit_account_close(tacit_account *account);

typedef struct tacit_account_status {
    tacit_policy policy;
    double epsilon;   /* private events reserved so far; when lost, the cap (not a lowered one) */
    double remaining; /* cap less epsilon, at least 0: for people, a plan's cost is not additive */
    bool non_private; /* an event of mechanism none was reserved: epsilon of its lineage is inf */
    bool lost;
    char lost_reason[128];
    uint64_t next_sequence;
    uint64_t reserves, spends, abandons, unacknowledged;
    uint64_t checkpoint_size; /* last verified checkpoint of the log; 0: none */
} tacit_account_status;

tacit_status tacit_account_status_get(tacit_account *account, tacit_account_status *out,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* The policy in force changes by a local act of the device's owner. Delta cannot change,
 * nor the unit once something private was reserved: epsilons for different units do not add up.
 * Raising the cap does not bring a lost account back. */
tacit_status tacit_account_set_policy(tacit_account *account, const tacit_policy *policy,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* A sub-cap for one lineage, before its first reserve; the sub-caps of all lineages add up to at
 * most the cap (TACIT_REFUSED). A lineage without one may use what the others leave: its sub-cap
 * is the cost of its whole schedule. */
tacit_status tacit_account_set_lineage_cap(tacit_account *account, const uint8_t lineage[16],
                                           double epsilon_cap, tacit_error *err) TACIT_MUST_CHECK;

typedef struct tacit_reserve_request {
    const uint8_t *device; /* pseudonym, TACIT_DEVICE_BYTES; zeros for local training */
    tacit_span plan;       /* Plan bytes as received (local training: as made) */
    tacit_span schedule;   /* Schedule bytes that the plan follows */
    bool local;            /* no server: the entry carries no round id */
    bool insecure;         /* a test-only seed is set */
    double lineage_cap;    /* sub-cap of a lineage that has none of its own; 0: the cap */
} tacit_reserve_request;

/* An entry that was stored durably. `entry` is malloc'ed, the caller's; tacit_reservation_free. */
typedef struct tacit_reservation {
    uint8_t hash[TACIT_HASH_BYTES]; /* leaf hash of the entry */
    uint8_t *entry;                 /* SignedEntry bytes, sent unchanged however often */
    size_t entry_size;
    uint64_t sequence;
    double epsilon_after; /* +inf for mechanism none */
    bool existed;         /* the plan had been reserved before: nothing new was spent */
    bool acknowledged;
    uint8_t nonce[32]; /* of the acknowledgement; zeros before it */
} tacit_reservation;

void tacit_reservation_free(tacit_reservation *r);

/* Reserves the plan's full cost. In this order: schedule and plan well formed and equal
 * (TACIT_BAD_INPUT, TACIT_INTEGRITY), policy (TACIT_REFUSED), whole schedule within the lineage's
 * sub-cap and the cap when it is the first of its lineage, this event within the cap
 * (TACIT_REFUSED: "plan needs epsilon 9.1 in all at delta 1e-05, this device's cap is 8; ...").
 * The same plan again returns the stored entry and spends nothing; after its spend or abandon it
 * is TACIT_CONFLICT. Another plan of a round that was reserved is TACIT_REFUSED. */
tacit_status tacit_account_reserve(tacit_account *account, const tacit_reserve_request *request,
                                   tacit_reservation *out, tacit_error *err) TACIT_MUST_CHECK;

/* The reservation of a plan; TACIT_NOT_FOUND. */
tacit_status tacit_account_find(tacit_account *account, const uint8_t plan_hash[TACIT_HASH_BYTES],
                                tacit_reservation *out, tacit_error *err) TACIT_MUST_CHECK;

/* Whether a reserve has its spend or abandon; TACIT_NOT_FOUND when it is no own one. */
tacit_status tacit_account_is_ended(tacit_account *account,
                                    const uint8_t reserve_hash[TACIT_HASH_BYTES], bool *ended,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* What the newest window_reserves - 1 private reserves cost, read as the window is: the next one
 * comes on top. 0 without a window. */
tacit_status tacit_account_window(tacit_account *account, double *epsilon,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* The log's newest checkpoint with the proof that it follows the last one held. TACIT_INTEGRITY
 * when the signature or the proof fails or it is older: then nothing may be trained. The first
 * checkpoint is taken as it is (trust on first use, right after enrolment). */
tacit_status tacit_account_checkpoint(tacit_account *account, tacit_span note,
                                      const tacit_proof *consistency, const tacit_note_key *log,
                                      tacit_error *err) TACIT_MUST_CHECK;
/* Forgets the checkpoints of a log that this account was never used in, so that it can join another
 * one. TACIT_CONFLICT when it has own entries: its chain stays where it is. */
tacit_status tacit_account_leave_log(tacit_account *account, tacit_error *err) TACIT_MUST_CHECK;
/* A log that goes on as another origin from an older copy of itself (privacy/restore.h): what led
 * from the origin that this account follows to the one of `checkpoint`, all proved in it. */
typedef struct tacit_restore_step {
    tacit_receipt entry; /* of kind `restored`; its checkpoint is not looked at */
    tacit_proof growth;  /* consistency from the statement's size */
} tacit_restore_step;

typedef struct tacit_restore_proof {
    const tacit_restore_step *step; /* oldest first */
    size_t count;                   /* at least 1 */
    tacit_span checkpoint;          /* note of the newest origin */
    uint64_t held_size;             /* as tacit_account_held_before gives it */
    tacit_proof consistency;        /* from that checkpoint */
} tacit_restore_proof;

/* The newest checkpoint held that is of at most `most` entries; size 0: none. */
tacit_status tacit_account_held_before(tacit_account *account, uint64_t most, uint64_t *size,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* Follows the log to its new origin. `log` and `generation` say which one the account follows, and
 * are changed with it; `operator_key` was pinned with them. In the caller's transaction when one is
 * open. The checkpoints held of what the new origin did not take over are dropped, the last one is
 * kept as evidence with the entries; own entries from *again on (none: the next sequence) lose
 * their receipts and are to be brought into the log again.
 *
 * TACIT_INTEGRITY, and nothing changes, unless every statement is signed by the operator key and
 * leads one generation further from this very origin under the same log key, the copy continues
 * the checkpoint of held_size, the new checkpoint continues each copy, and what the old origin is
 * said to have last signed does not contradict what this account saw. */
tacit_status tacit_account_follow_restore(tacit_account *account, const tacit_restore_proof *proof,
                                          const uint8_t operator_key[TACIT_SIGN_KEY_BYTES],
                                          tacit_note_key *log, uint32_t *generation,
                                          uint64_t *again, tacit_error *err) TACIT_MUST_CHECK;

/* The last verified note: malloc'ed, NUL-terminated; TACIT_NOT_FOUND before the first. */
tacit_status tacit_account_last_checkpoint(tacit_account *account, char **note, uint64_t *size,
                                           tacit_error *err) TACIT_MUST_CHECK;

/* Stores the receipt of an own entry after verifying it: the entry is ours, it is included in the
 * receipt's checkpoint, and that checkpoint follows the last one held (`consistency`; empty when
 * it is the same). For a reserve `nonce` (32 bytes, else NULL) is stored with it. Idempotent: a
 * second acknowledgement keeps the first nonce. */
tacit_status tacit_account_acknowledge(tacit_account *account,
                                       const uint8_t entry_hash[TACIT_HASH_BYTES],
                                       const tacit_receipt *receipt, const tacit_proof *consistency,
                                       const tacit_note_key *log, const uint8_t *nonce,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* The device-signed entry over the sealed bytes of a reservation. The same digest again gives the
 * stored entry; another digest is TACIT_CONFLICT: only those bytes are ever sent. */
tacit_status tacit_account_spend(tacit_account *account,
                                 const uint8_t reserve_hash[TACIT_HASH_BYTES],
                                 const uint8_t update_digest[TACIT_HASH_BYTES],
                                 tacit_reservation *out, tacit_error *err) TACIT_MUST_CHECK;

/* Gives a reservation up; nothing comes back. `reason` is a word that no data decides:
 * "deadline", "cancelled", "revoked", "superseded". */
tacit_status tacit_account_abandon(tacit_account *account,
                                   const uint8_t reserve_hash[TACIT_HASH_BYTES], const char *reason,
                                   tacit_reservation *out, tacit_error *err) TACIT_MUST_CHECK;

/* The AccountLost entry of a lost account, made once; TACIT_CONFLICT when it is not lost. When the
 * chain is gone with the account, `sequence` and `head` continue it where the server's log ended
 * (sequence 0: the own chain is intact). */
tacit_status tacit_account_lost_entry(tacit_account *account,
                                      const uint8_t device[TACIT_DEVICE_BYTES], uint64_t sequence,
                                      const uint8_t *head, tacit_reservation *out,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* An own entry that the log has and this store lacks, with what a reserve refers to. */
typedef struct tacit_missed_entry {
    tacit_span entry;          /* SignedEntry bytes */
    tacit_span plan, schedule; /* of a reserve with a round; else empty, and where a restored log
                                * has lost them: then the lineage takes no further plan here */
} tacit_missed_entry;

/* Takes the entries that this store lacks because it was restored from an older copy: `missed`
 * continue the own chain, oldest first, and the newest one is known to be in the log. Afterwards
 * the account holds the union of what either knew. Everything is charged as it was signed, whatever
 * the caps say; reserves among them that nothing ended are abandoned here, since what was computed
 * under them is not known. TACIT_INTEGRITY when they do not continue the chain, are not signed by
 * this device, or do not add up: nothing is taken then. */
tacit_status tacit_account_merge(tacit_account *account, const tacit_missed_entry *missed, size_t n,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* A lineage and what it may take, for people. */
typedef struct tacit_lineage_share {
    uint8_t lineage[16];
    double epsilon_cap;
    bool reserved; /* a round of it was reserved: the sub-cap stays */
} tacit_lineage_share;

/* The sub-caps of all lineages: malloc'ed, the caller's. */
tacit_status tacit_account_lineages(tacit_account *account, tacit_lineage_share **out, size_t *n,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* Own entries in order, for a log that lacks them: entry `sequence` (from 1); TACIT_NOT_FOUND
 * after the last. */
tacit_status tacit_account_entry(tacit_account *account, uint64_t sequence, tacit_reservation *out,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* The stored receipt of an own entry, packed: malloc'ed, the caller's; TACIT_NOT_FOUND. */
tacit_status tacit_account_receipt(tacit_account *account,
                                   const uint8_t entry_hash[TACIT_HASH_BYTES], uint8_t **bytes,
                                   size_t *size, tacit_error *err) TACIT_MUST_CHECK;

#endif
