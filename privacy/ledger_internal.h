/* Shared by the files of the ledger alone: ledger_store.c keeps the tree, ledger_kinds_store.c the
 * state that entries of each kind leave behind, ledger_signed_store.c what policy keys signed,
 * ledger_restore_store.c under which origin the log goes on, ledger_afford_store.c answers what an
 * account holds. */
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

/* What the log knows of a device's account. */
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
