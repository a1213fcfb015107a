/* Entries of the log (proto/ledger.proto): building, signing, opening, and what every kind must
 * look like. Who may have signed, chains and budgets are the ledger's and the auditor's business.
 *
 * A leaf is the bytes of a SignedEntry as received; its leaf hash (privacy/merkle.h) names it
 * everywhere: Entry.previous, Spend.reserve_hash, Update.reserve_hash, receipts. */
#ifndef TACIT_PRIVACY_ENTRY_H
#define TACIT_PRIVACY_ENTRY_H

#include "common/identity.h"
#include "common/message.h"
#include "common/status.h"
#include "privacy/merkle.h"
#include "proto/ledger.pb-c.h"

#define TACIT_ENTRY_SCHEMA 1
#define TACIT_ENTRY_DOMAIN "tacit-entry-1"
#define TACIT_POLICY_DOMAIN "tacit-policy-1"
#define TACIT_POLICY_KEY_DOMAIN "tacit-policy-key-1" /* signs policy key || policy */
#define TACIT_MANIFEST_DOMAIN "tacit-manifest-1"
#define TACIT_ROTATE_DOMAIN "tacit-rotate-1" /* signs old key || new key */
#define TACIT_ACCOUNTANT_VERSION "pld-1"

/* An opened entry. `entry` and `leaf` hold as long as it is open. */
typedef struct tacit_entry {
    Tacit__SignedEntry *envelope;
    Tacit__Entry *entry; /* body_case says the kind */
    uint8_t leaf[TACIT_HASH_BYTES];
    bool device_signed;   /* the kind is one that devices sign and chain */
    bool signature_holds; /* it was checked: tacit_entry_open gave it */
} tacit_entry;

/* Parses and validates the bytes and checks the signature by the signer they name. TACIT_BAD_INPUT
 * when malformed, TACIT_INTEGRITY when the signature does not hold. On failure *out is empty. */
tacit_status tacit_entry_open(tacit_entry *out, const void *bytes, size_t size,
                              tacit_error *err) TACIT_MUST_CHECK;

/* The same without the signature check, for bytes that were checked when they were stored. */
tacit_status tacit_entry_read(tacit_entry *out, const void *bytes, size_t size,
                              tacit_error *err) TACIT_MUST_CHECK;

void tacit_entry_close(tacit_entry *e); /* an empty one is fine */

/* Validates `entry` (schema is set here), signs it and packs the SignedEntry. *bytes is malloc'ed,
 * the caller's. `leaf` (may be NULL) receives its hash. */
tacit_status tacit_entry_sign(Tacit__Entry *entry, const tacit_identity *signer, uint8_t **bytes,
                              size_t *size, uint8_t leaf[TACIT_HASH_BYTES],
                              tacit_error *err) TACIT_MUST_CHECK;

/* Field sizes, ranges and words of one entry. TACIT_BAD_INPUT names kind and field. */
tacit_status tacit_entry_validate(const Tacit__Entry *entry, tacit_error *err) TACIT_MUST_CHECK;

/* "enrol", "reserve", ...; "unknown". */
const char *tacit_entry_kind_name(Tacit__Entry__BodyCase kind);
bool tacit_entry_kind_is_device_signed(Tacit__Entry__BodyCase kind);

/* Words that UpdateDecision.reason may hold when an update was rejected: size, decrypt,
 * signature, plan, reserve, duplicate, shape, finite, norm, late. */
bool tacit_entry_is_reject_reason(const char *word);

#endif
