/* Shared by the files of the ledger alone: ledger_store.c keeps the tree, ledger_kinds_store.c the
 * state that entries of each kind leave behind. */
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

/* The SQL scripts of the component "ledger". */
extern const tacit_migrations ledger_migrations;

/* The log key of the stored log. */
tacit_status ledger_store_key(tacit_ledger *ledger, const uint8_t key[TACIT_SIGN_KEY_BYTES],
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
