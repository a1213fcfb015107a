/* What a device keeps beside its account in DIR/client.db: who it is to its server, the counter of
 * its requests, digests of model files, adapters that were fetched (tables `client_*`). One thread
 * at a time. */
#ifndef TACIT_CLIENT_CLIENT_STORE_H
#define TACIT_CLIENT_CLIENT_STORE_H

#include "common/database.h"
#include "common/digest.h"
#include "common/identity.h"
#include "privacy/note.h"
#include "privacy/signed_policy.h"

#define CLIENT_LINEAGE_BYTES 16

/* Creates or migrates the tables, those of rounds (round_state_store.h) included. */
tacit_status client_store_open(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;

/* --- enrolment --- */

typedef struct client_enrolment {
    uint8_t device[TACIT_DEVICE_BYTES];
    uint8_t server_key[TACIT_SIGN_KEY_BYTES]; /* of replies, pinned */
    tacit_note_key log;                       /* of checkpoints, entries and manifests, pinned */
    uint8_t operator_key[TACIT_SIGN_KEY_BYTES];
    bool has_operator_key;
    uint8_t policy_key[TACIT_SIGN_KEY_BYTES]; /* whose policies count as the owner's, pinned */
    bool has_policy_key;
    uint32_t log_generation; /* of `log`'s origin: 1, and 1 more for each restore followed */
    uint64_t entry_index;    /* of the Enrol entry */
    uint64_t tls_generation; /* which identity/tls-N.key and .pem are in force */
    uint8_t policy[TACIT_POLICY_MAX_BYTES]; /* serialised DevicePolicy as declared */
    size_t policy_size;
} client_enrolment;

/* TACIT_NOT_FOUND before enrolment. */
tacit_status client_enrolment_get(tacit_database *db, client_enrolment *out,
                                  tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_enrolment_put(tacit_database *db, const client_enrolment *e,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* The next request counter, committed before it is returned; `ctx` is the database. Matches
 * tacit_caller_setup. */
tacit_status client_counter_next(void *ctx, uint64_t *counter, tacit_error *err) TACIT_MUST_CHECK;

/* Own entries up to this sequence have receipts; 0: none. */
tacit_status client_receipts_get(tacit_database *db, uint64_t *sequence,
                                 tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_receipts_put(tacit_database *db, uint64_t sequence,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Whether the policy that was declared last is to be declared again, since a restored server may
 * have lost it. The put is part of the caller's transaction. */
tacit_status client_redeclare_get(tacit_database *db, bool *due, tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_redeclare_put(tacit_database *db, bool due, tacit_error *err) TACIT_MUST_CHECK;

/* The policies that ever were an enrolment's (client_enrolment_put), in their order: own entries
 * may rest on each. The first one after `after` (0: of all); TACIT_NOT_FOUND behind the last. */
typedef struct client_declared {
    uint64_t id;
    uint8_t policy[TACIT_POLICY_MAX_BYTES];
    size_t size;
} client_declared;
tacit_status client_declared_next(tacit_database *db, uint64_t after, client_declared *out,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* Policies of the policy key that the log has below this entry are older than what the owner
 * declared last; CLIENT_ALL_OLDER: all that it has by now. 0: none was declared in it. The put is
 * part of the caller's transaction. */
#define CLIENT_ALL_OLDER ((uint64_t)INT64_MAX)
tacit_status client_declared_end_get(tacit_database *db, uint64_t *end,
                                     tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_declared_end_put(tacit_database *db, uint64_t end,
                                     tacit_error *err) TACIT_MUST_CHECK;

/* Raises the counter: the next one is above this. Part of the caller's transaction. */
tacit_status client_counter_raise(tacit_database *db, uint64_t counter,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* A serial that no policy of this device was signed under, committed before it is returned. */
tacit_status client_policy_serial_next(tacit_database *db, uint64_t *serial,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* The newest policy that the pinned policy key signed and this device took. It stands in for the
 * policy of client.yaml while that still is `over`. */
typedef struct client_signed_policy {
    uint8_t bytes[TACIT_SIGNED_POLICY_MAX]; /* SignedPolicy */
    size_t size;
    uint64_t serial;
    uint8_t over[TACIT_POLICY_MAX_BYTES]; /* serialised; empty: the owner declared another since */
    size_t over_size;
    bool pending; /* not known to be in the log */
} client_signed_policy;

/* All zeros before the first. */
tacit_status client_signed_policy_get(tacit_database *db, client_signed_policy *out,
                                      tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_signed_policy_put(tacit_database *db, const client_signed_policy *p,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* Why the account or the policy refused the last plan that was offered, for its owner; NULL: none
 * was, or one was taken since. */
typedef struct client_refusal {
    char reason[256]; /* empty: none */
    uint64_t time_ms;
} client_refusal;
tacit_status client_refusal_put(tacit_database *db, const char *reason, uint64_t time_ms,
                                tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_refusal_get(tacit_database *db, client_refusal *out,
                                tacit_error *err) TACIT_MUST_CHECK;

/* The cap of client.yaml when it was last put in force; 0: never. A cap that the operator lowered
 * stays until the owner writes another one there. */
tacit_status client_owner_cap_get(tacit_database *db, double *cap,
                                  tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_owner_cap_put(tacit_database *db, double cap,
                                  tacit_error *err) TACIT_MUST_CHECK;

/* --- digests of model files --- */

/* TACIT_NOT_FOUND when files with this fingerprint (paths, inodes, sizes, times) are unknown. */
tacit_status client_base_get(tacit_database *db, const uint8_t fingerprint[TACIT_DIGEST_BYTES],
                             uint8_t digest[TACIT_DIGEST_BYTES], tacit_error *err) TACIT_MUST_CHECK;
tacit_status client_base_put(tacit_database *db, const uint8_t fingerprint[TACIT_DIGEST_BYTES],
                             const uint8_t digest[TACIT_DIGEST_BYTES],
                             tacit_error *err) TACIT_MUST_CHECK;

/* --- adapters that lie in DIR/adapters --- */

typedef struct client_adapter {
    uint8_t file_digest[TACIT_DIGEST_BYTES];
    uint8_t lineage[CLIENT_LINEAGE_BYTES];
    uint64_t version;
    double epsilon_published, delta, accuracy, loss; /* as the manifest says */
} client_adapter;

tacit_status client_adapter_put(tacit_database *db, const client_adapter *a,
                                tacit_error *err) TACIT_MUST_CHECK;
/* The one fetched last; TACIT_NOT_FOUND. */
tacit_status client_adapter_last(tacit_database *db, client_adapter *out,
                                 tacit_error *err) TACIT_MUST_CHECK;
/* TACIT_NOT_FOUND when no adapter with this digest was fetched. */
tacit_status client_adapter_get(tacit_database *db, const uint8_t digest[TACIT_DIGEST_BYTES],
                                client_adapter *out, tacit_error *err) TACIT_MUST_CHECK;

#endif
