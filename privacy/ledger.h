/* The server's log in its database: append, prove, sign.
 *
 * All state lies in tables `ledger_*`; this object holds no copy of it, so a rollback of the
 * caller's transaction rolls the log back as well. An append costs O(log n). It belongs to the
 * thread that owns the connection.
 *
 * A device signs a reserve before it asks, so a reserve says what was spent whatever became of the
 * policy since. The policy in force at a reserve's entry is the newest that an earlier entry put
 * there. A reserve is *outdated* when that policy does not allow it (it states a cap above it, is
 * of a plan that it refuses, or ends a window that is full) but the most, term by term, that a
 * policy of this device ever allowed does (tacit_policy_widen). It is logged and charged like any
 * other, in its place in the chain; it takes no part in its round, which its device hears by an
 * acknowledgement without a nonce, and no update under it is ever accepted. Whether it is outdated
 * is fixed with its entry: the same bytes again, a restart or a later policy do not change it.
 *
 * *Resubmission*: a log that goes on from an older copy (privacy/restore.h) lacks entries that its
 * devices have. They bring them again, in the order of their chains. A reserve whose plan was lost
 * with it is logged and charged as it was signed, as an outdated one, if its device was enrolled
 * before the restore and has reserved no plan that was logged after it.
 *
 * Group commit: tacit_database_begin; for each request tacit_database_mark, appends and the
 * caller's own writes, tacit_database_keep; tacit_ledger_checkpoint; tacit_database_commit; only
 * then do replies with proofs leave. */
#ifndef TACIT_PRIVACY_LEDGER_H
#define TACIT_PRIVACY_LEDGER_H

#include "common/database.h"
#include "privacy/budget.h"
#include "privacy/entry.h"
#include "privacy/merkle.h"
#include "privacy/note.h"
#include "privacy/policy.h"
#include "privacy/restore.h"
#include "privacy/window.h"

typedef struct tacit_ledger tacit_ledger;

/* Creates or migrates the tables and verifies the tail: the newest signed checkpoint's signature
 * and root, and the hash of every entry after it. TACIT_INTEGRITY when they do not fit. `origin`
 * is the log's first name; after a restore checkpoints are signed under a later one
 * (tacit_ledger_key). `log_key` signs them and the server's entries, and outlives the ledger. An
 * existing log of another origin or key is TACIT_INTEGRITY. */
tacit_status tacit_ledger_open(tacit_ledger **out, tacit_database *db, const char *origin,
                               const tacit_identity *log_key, tacit_error *err) TACIT_MUST_CHECK;
void tacit_ledger_close(tacit_ledger *ledger);

/* The same log through another connection to its database, for reads that take long while the
 * owner appends: what was committed once never changes. Nothing is checked again and nothing is to
 * be appended through it. Close it before its connection. */
tacit_status tacit_ledger_view(tacit_ledger **out, const tacit_ledger *of, tacit_database *db,
                               tacit_error *err) TACIT_MUST_CHECK;

/* The key and name under which checkpoints verify. */
const tacit_note_key *tacit_ledger_key(const tacit_ledger *ledger);

/* Appends the bytes of a SignedEntry, inside the caller's transaction (TACIT_USAGE outside).
 * The same bytes again change nothing and give the old index. `index` and `leaf` may be NULL. The
 * first entry of a log is a server_start with its origin and key. Refused, with nothing written:
 *   TACIT_BAD_INPUT   malformed
 *   TACIT_INTEGRITY   signature or signer wrong; of a device's entry else: the sequence was used
 *                     with other bytes, or `previous` is not the chain's head: a suspected clone
 *   TACIT_REFUSED     unknown, revoked or frozen device; a reserve that is not of its logged plan,
 *                     states a wrong epsilon, goes beyond the cap that it states, or is what no
 *                     policy of its device ever allowed; an update accepted under an outdated
 *                     reserve; a policy that allows more without the right signature
 *   TACIT_CONFLICT    sequence ahead of the chain (earlier entries first); no server_start yet; a
 *                     round's plan, a plan's reserve, a reserve's spend, an update's digest or
 *                     decision exists already; a plan is of a round before one that is planned
 *   TACIT_NOT_FOUND   the plan, schedule, reserve or spend that it refers to is not logged */
tacit_status tacit_ledger_append(tacit_ledger *ledger, const void *bytes, size_t size,
                                 uint64_t *index, uint8_t leaf[TACIT_HASH_BYTES],
                                 tacit_error *err) TACIT_MUST_CHECK;

/* The same for bytes that tacit_entry_open opened before, on any thread: what takes long, their
 * signature, is not checked again. TACIT_USAGE when `entry` is of other bytes or was only read. */
tacit_status tacit_ledger_append_opened(tacit_ledger *ledger, const tacit_entry *entry,
                                        const void *bytes, size_t size, uint64_t *index,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* Stamps, signs with the log key and appends one of the server's own entries. `index` and `leaf`
 * may be NULL. */
tacit_status tacit_ledger_record(tacit_ledger *ledger, Tacit__Entry *entry, uint64_t *index,
                                 uint8_t leaf[TACIT_HASH_BYTES], tacit_error *err) TACIT_MUST_CHECK;

/* Changes the log key, inside the caller's transaction: logs a KeyRotated entry signed by both, and
 * from then on `new_key` (which outlives the ledger) signs. After a rollback reopen the ledger. */
tacit_status tacit_ledger_rotate(tacit_ledger *ledger, const tacit_identity *new_key,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Goes on as a new origin, in a folder that was restored from an older copy, inside the caller's
 * transaction: logs a `restored` entry that `operator_id` signs, and signs the first checkpoint of
 * the new origin. What the old origin keeps are the entries before the starts and stops at the end,
 * which may be the copy's own. `last_note`: the newest checkpoint known of the old origin, NULL
 * when none is newer than the copy. *index and *done (may be NULL) receive what was logged. After a
 * rollback reopen the ledger.
 *
 * TACIT_REFUSED: the log names no operator key. TACIT_INTEGRITY: it names another one, or
 * `last_note` (TACIT_BAD_INPUT: malformed) is no checkpoint of this log that is as new as the copy.
 */
tacit_status tacit_ledger_restore(tacit_ledger *ledger, const tacit_identity *operator_id,
                                  const char *last_note, tacit_restore *done, uint64_t *index,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* A `restored` entry of the log. */
typedef struct tacit_ledger_restored {
    uint64_t index, size; /* of the entry; what the new origin took over */
} tacit_ledger_restored;
/* Those that led from an earlier origin to the one in force, oldest first. TACIT_NOT_FOUND when
 * `origin` is none of this log's earlier ones. */
tacit_status tacit_ledger_restores_since(tacit_ledger *ledger, const char *origin,
                                         tacit_ledger_restored out[TACIT_RESTORES_MAX], size_t *n,
                                         tacit_error *err) TACIT_MUST_CHECK;

tacit_status tacit_ledger_size(tacit_ledger *ledger, uint64_t *size,
                               tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_ledger_root(tacit_ledger *ledger, uint64_t size, uint8_t root[TACIT_HASH_BYTES],
                               tacit_error *err) TACIT_MUST_CHECK;

/* The bytes of one entry: malloc'ed, the caller's. */
tacit_status tacit_ledger_entry(tacit_ledger *ledger, uint64_t index, uint8_t **bytes, size_t *size,
                                tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_ledger_find(tacit_ledger *ledger, const uint8_t leaf[TACIT_HASH_BYTES],
                               uint64_t *index, tacit_error *err) TACIT_MUST_CHECK;

/* Signs and stores the checkpoint of the current size, inside the caller's transaction; when one
 * of that size is stored already, that one is returned. `note` is NUL-terminated. */
tacit_status tacit_ledger_checkpoint(tacit_ledger *ledger, char note[TACIT_CHECKPOINT_MAX],
                                     uint64_t *size, tacit_error *err) TACIT_MUST_CHECK;
/* The newest stored checkpoint; TACIT_NOT_FOUND before the first. */
tacit_status tacit_ledger_last_checkpoint(tacit_ledger *ledger, char note[TACIT_CHECKPOINT_MAX],
                                          uint64_t *size, tacit_error *err) TACIT_MUST_CHECK;

/* Takes a cosignature of `witness` on a checkpoint of this log that is stored, inside the caller's
 * transaction. TACIT_NOT_FOUND: no such checkpoint was signed; TACIT_INTEGRITY: it is another one,
 * or the cosignature does not hold. */
tacit_status tacit_ledger_cosign(tacit_ledger *ledger, const void *cosigned, size_t size,
                                 const tacit_note_key *witness, tacit_error *err) TACIT_MUST_CHECK;
/* The newest stored checkpoint that a witness cosigned; TACIT_NOT_FOUND before the first. */
tacit_status tacit_ledger_cosigned(tacit_ledger *ledger, char note[TACIT_CHECKPOINT_MAX],
                                   uint64_t *size, tacit_error *err) TACIT_MUST_CHECK;

tacit_status tacit_ledger_inclusion(tacit_ledger *ledger, uint64_t index, uint64_t size,
                                    tacit_proof *proof, tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_ledger_consistency(tacit_ledger *ledger, uint64_t old_size, uint64_t size,
                                      tacit_proof *proof, tacit_error *err) TACIT_MUST_CHECK;

/* What the log says about a device. */
typedef struct tacit_ledger_device {
    uint8_t identity_key[TACIT_SIGN_KEY_BYTES];
    uint64_t next_sequence;         /* 1 before its first own entry */
    uint8_t head[TACIT_HASH_BYTES]; /* leaf hash of its newest own entry; zeros before the first */
    bool revoked, frozen;
    tacit_policy policy; /* in force */
    double epsilon;      /* private events reserved so far; +inf when lost */
    bool non_private;    /* it reserved an event of mechanism none */
} tacit_ledger_device;

tacit_status tacit_ledger_device_get(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                                     tacit_ledger_device *out, tacit_error *err) TACIT_MUST_CHECK;

/* The newest policy of a device's account that its policy key signed (privacy/signed_policy.h). */
typedef struct tacit_ledger_signed {
    uint64_t serial; /* 0: none */
    uint64_t index;  /* of its PolicyChanged entry */
} tacit_ledger_signed;
tacit_status tacit_ledger_signed_policy(tacit_ledger *ledger,
                                        const uint8_t device[TACIT_DEVICE_BYTES],
                                        tacit_ledger_signed *out,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* What a lineage asks of an account next: the next round, or, before a device's first reserve of
 * it, its whole schedule. One price serves many devices; it keeps what it has computed of others.
 */
#define TACIT_LEDGER_KNOWN 32
typedef struct tacit_ledger_price {
    uint8_t lineage[16];
    tacit_budget whole, round;
    tacit_window_item item; /* the round; unused where it is of mechanism none */
    tacit_window schedule;  /* all private rounds of the schedule */
    bool unprotected;       /* mechanism none: it costs nothing here */
    struct {
        uint8_t lineage[16];
        tacit_budget whole;
    } known[TACIT_LEDGER_KNOWN]; /* other lineages' schedules */
    size_t known_count;
} tacit_ledger_price;

/* Of round `index` of a schedule, on `values` trainable values. Free it with
 * tacit_ledger_price_free; after a failure there is nothing to free. */
tacit_status tacit_ledger_price_make(tacit_ledger_price *out, const Tacit__Schedule *schedule,
                                     size_t index, uint64_t values,
                                     tacit_error *err) TACIT_MUST_CHECK;
void tacit_ledger_price_free(tacit_ledger_price *price);

/* What stands in the way of a price, the first of these. */
typedef enum tacit_ledger_limit {
    TACIT_LIMIT_NONE,     /* nothing: the account holds it */
    TACIT_LIMIT_LOST,     /* the account was lost and counts as spent */
    TACIT_LIMIT_CAP,      /* what was reserved and the price together are above the cap */
    TACIT_LIMIT_LINEAGES, /* so are the lineages, each whole and alone, run or not; or the first
                             one at the fixed order, so that no other may follow it */
    TACIT_LIMIT_WINDOW    /* so many reserves in a row would cost more than the window allows */
} tacit_ledger_limit;

typedef struct tacit_ledger_answer {
    tacit_ledger_limit limit;
    double epsilon; /* of the account once it holds the price, as tacit_budget_epsilon reads it;
                       +inf when lost; without the price where that is of mechanism none */
} tacit_ledger_answer;

/* Whether a device's account, as the log has it, holds that, by the rules by which the account
 * itself admits it: events and whole schedules within the cap, the lineages each whole and alone
 * within it together, a first schedule that another one may follow, windows. Only the sub-caps of
 * its owner are not known here. Changes nothing but what `price` remembers. */
tacit_status tacit_ledger_affords(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                                  tacit_ledger_price *price, tacit_ledger_answer *out,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* The bytes of a logged plan and of its schedule: malloc'ed, the caller's. TACIT_NOT_FOUND. */
tacit_status tacit_ledger_planned(tacit_ledger *ledger, const uint8_t plan_hash[TACIT_HASH_BYTES],
                                  uint8_t **plan, size_t *plan_size, uint8_t **schedule,
                                  size_t *schedule_size, tacit_error *err) TACIT_MUST_CHECK;

/* Everything of the server that a reserve refers to, by hash or id. */
typedef struct tacit_ledger_reserve {
    uint64_t index;
    uint8_t leaf[TACIT_HASH_BYTES];
    uint8_t device[TACIT_DEVICE_BYTES];
    uint8_t plan_hash[TACIT_HASH_BYTES];
    uint8_t update_digest[TACIT_HASH_BYTES]; /* zeros until a spend */
    bool spent, abandoned, decided, accepted;
    bool outdated; /* charged, but of no use to its round */
} tacit_ledger_reserve;

tacit_status tacit_ledger_reserve_get(tacit_ledger *ledger, const uint8_t leaf[TACIT_HASH_BYTES],
                                      tacit_ledger_reserve *out, tacit_error *err) TACIT_MUST_CHECK;

#endif
