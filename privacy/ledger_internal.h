/* Shared by the files of the ledger alone: ledger_store.c keeps the tree, ledger_kinds_store.c the
 * state that entries of each kind leave behind, ledger_device_store.c that of the kinds that
 * devices sign, ledger_account_store.c the accounts that all of them read, ledger_signed_store.c
 * what policy keys signed, ledger_restore_store.c under which origin the log goes on,
 * ledger_afford_store.c answers what an account holds. */
#ifndef TACIT_PRIVACY_LEDGER_INTERNAL_H
#define TACIT_PRIVACY_LEDGER_INTERNAL_H

#include "privacy/ledger.h"

struct tacit_ledger {
    tacit_database *db;
    const tacit_identity *log_id;
    tacit_note_key key; /* origin and public key */
};

/* Checks the entry against everything logged before it and records what it changes, as entry
 * number `index`. */
tacit_status ledger_apply(tacit_ledger *ledger, const tacit_entry *entry, uint64_t index,
                          tacit_error *err) TACIT_MUST_CHECK;

/* Of the kinds that devices sign: checked against the chain of its device, which it is the head of
 * then. */
tacit_status ledger_apply_by_device(tacit_ledger *ledger, const tacit_entry *entry, uint64_t index,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* Of kinds `server_start` and `restored`. */
tacit_status ledger_apply_server_start(tacit_ledger *ledger, const tacit_entry *entry,
                                       uint64_t index, tacit_error *err) TACIT_MUST_CHECK;
tacit_status ledger_apply_restored(tacit_ledger *ledger, const tacit_entry *entry, uint64_t index,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* The origin's name in force, once the first one is checked. */
tacit_status ledger_load_generation(tacit_ledger *ledger, tacit_error *err) TACIT_MUST_CHECK;

/* Whether a reserve of this device may be of a plan that the log lacks (ledger.h, resubmission). */
tacit_status ledger_plan_may_be_lost(tacit_ledger *ledger, const tacit_entry *reserve, bool *may,
                                     tacit_error *err) TACIT_MUST_CHECK;

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

/* TACIT_REFUSED for an unknown device. */
tacit_status ledger_account_by_device(tacit_ledger *ledger, ProtobufCBinaryData device,
                                      ledger_account *out, tacit_error *err) TACIT_MUST_CHECK;

/* Revoked or frozen where any pseudonym of the key is. *out is set where it is *known. */
tacit_status ledger_account_by_key(tacit_ledger *ledger, ProtobufCBinaryData identity_key,
                                   bool *known, ledger_account *out,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Opens the account or replaces what was known; revoked and frozen are of ledger_device. */
tacit_status ledger_account_write(tacit_ledger *ledger, const ledger_account *a,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* Runs a statement whose parameters are blobs only. */
tacit_status ledger_run_blobs(tacit_ledger *ledger, const char *sql, const tacit_span *blobs,
                              size_t n, tacit_error *err) TACIT_MUST_CHECK;

/* True when the query over blob parameters has a row. */
tacit_status ledger_exists_blobs(tacit_ledger *ledger, const char *sql, const tacit_span *blobs,
                                 size_t n, bool *row, tacit_error *err) TACIT_MUST_CHECK;

/* That a row is there already is said in the log's words, not in the database's: `status` is what
 * the statement gave. */
tacit_status ledger_taken(tacit_status status, const char *what, tacit_error *err) TACIT_MUST_CHECK;

/* The stored bytes of a schedule or plan by hash, unpacked; the caller frees it with
 * tacit_message_free. TACIT_NOT_FOUND names `what`. */
tacit_status ledger_message_by_hash(tacit_ledger *ledger, const char *sql, const char *what,
                                    ProtobufCBinaryData hash,
                                    const ProtobufCMessageDescriptor *kind, ProtobufCMessage **out,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* What the log answers others of a device's account. */
typedef struct ledger_budget {
    uint8_t identity_key[TACIT_SIGN_KEY_BYTES];
    tacit_budget budget;
    tacit_policy policy; /* in force */
} ledger_budget;

/* TACIT_REFUSED for an unknown device. */
tacit_status ledger_budget_get(tacit_ledger *ledger, const uint8_t device[TACIT_DEVICE_BYTES],
                               ledger_budget *out, tacit_error *err) TACIT_MUST_CHECK;

/* Whether the windows of a policy allow these reserves, at least one, behind those that the log has
 * of this key: TACIT_REFUSED says why not. */
tacit_status ledger_window_allowed(tacit_ledger *ledger,
                                   const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                                   const tacit_policy *policy, const tacit_window *next,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Takes entry `index` as the newest policy that the policy key of this account signed. It comes
 * after every one before it, whatever it allows: TACIT_REFUSED. */
tacit_status ledger_signed_take(tacit_ledger *ledger,
                                const uint8_t identity_key[TACIT_SIGN_KEY_BYTES], uint64_t serial,
                                uint64_t index, tacit_error *err) TACIT_MUST_CHECK;

/* The SQL scripts of the component "ledger". */
extern const tacit_migrations ledger_migrations;

/* The log key of the stored log. */
tacit_status ledger_store_key(tacit_ledger *ledger, const uint8_t key[TACIT_SIGN_KEY_BYTES],
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
