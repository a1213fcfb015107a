/* One device's folder, open: configuration, keys, account, database.
 *
 *   DIR/client.yaml         client_config.h
 *   DIR/identity/           device.key (Ed25519, X25519), tls-N.key and tls-N.pem, root.pem
 *   DIR/client.db           account, rounds, enrolment
 *   DIR/adapters/           HEX.gguf, active.json
 *   DIR/rounds/             ID.jsonl (the snapshot), ID.ckpt, ID.sealed while a round is open
 *   DIR/receipts/           what an auditor may hold against the server's log
 *   DIR/local.log           what depends on data: bad lines, losses; never leaves the device
 *
 * One thread at a time; one process at a time works on a folder (client_open takes its lock). */
#ifndef TACIT_CLIENT_CLIENT_H
#define TACIT_CLIENT_CLIENT_H

#include "client/client_config.h"
#include "client/client_store.h"
#include "common/pool.h"
#include "engine/model.h"
#include "privacy/account.h"

#include <signal.h>

#define CLIENT_PATH_MAX 4096

typedef struct client {
    char dir[CLIENT_PATH_MAX];
    client_config config;     /* its policy is the signed one where that stands in */
    tacit_policy yaml_policy; /* as client.yaml has it */
    int lock;                 /* -1: not held */
    tacit_database *db;
    tacit_identity *identity; /* NULL before the first enrolment or training */
    tacit_account *account;   /* NULL likewise */
    bool enrolled;
    client_enrolment enrolment;
    const volatile sig_atomic_t *stop; /* set by a signal handler; NULL: never */
} client;

typedef enum client_need {
    CLIENT_READS,     /* only looks: no lock, a copy of the database, nothing is written */
    CLIENT_WORKS,     /* takes the lock */
    CLIENT_FEDERATES, /* takes the lock and needs an enrolment (TACIT_CONFLICT without) */
} client_need;

/* Opens DIR. TACIT_NOT_FOUND without client.yaml, TACIT_CONFLICT when another process works on it.
 * A device with keys but without an account gets one whose lifetime cap is spent: whoever drops
 * the account does not win a new budget. Free with client_close. */
tacit_status client_open(client **out, const char *dir, client_need need,
                         tacit_error *err) TACIT_MUST_CHECK;
void client_close(client *c); /* NULL is fine */

/* Makes identity and account where they are missing, under the policy of client.yaml. */
tacit_status client_make_account(client *c, tacit_error *err) TACIT_MUST_CHECK;

/* Puts new keys in the place of keys that never signed an entry. TACIT_CONFLICT when they did. */
tacit_status client_replace_identity(client *c, tacit_error *err) TACIT_MUST_CHECK;

/* When the account of an enrolled device is lost, says so in its chain, once; receipts_sync brings
 * the entry into the log. */
tacit_status client_declare_lost(client *c, tacit_error *err) TACIT_MUST_CHECK;

/* The policy of client.yaml becomes the one in force. One that allows more than was declared, at
 * enrolment or since (declaration.h), is TACIT_REFUSED: the log would show it as raised by nobody.
 */
tacit_status client_apply_policy(client *c, tacit_error *err) TACIT_MUST_CHECK;

/* Whether somebody asked this program to end. */
bool client_stopped(const client *c);

/* DIR/folder/name (folder NULL: DIR/name). */
tacit_status client_path(const client *c, char out[CLIENT_PATH_MAX], const char *folder,
                         const char *name, tacit_error *err) TACIT_MUST_CHECK;
/* DIR/folder/HEX.ending. */
tacit_status client_hex_path(const client *c, char out[CLIENT_PATH_MAX], const char *folder,
                             const uint8_t *id, size_t size, const char *ending,
                             tacit_error *err) TACIT_MUST_CHECK;

/* The digest of the configured model, from the cache or by loading it once. */
tacit_status client_base_digest(client *c, uint8_t digest[TACIT_DIGEST_BYTES],
                                tacit_error *err) TACIT_MUST_CHECK;
/* Whether data and model that client.yaml names can be read; the digest as above. */
tacit_status client_check_files(client *c, uint8_t digest[TACIT_DIGEST_BYTES],
                                tacit_error *err) TACIT_MUST_CHECK;
/* Loads the configured model. The caller's to free. */
tacit_status client_load_model(client *c, tacit_model **out, tacit_error *err) TACIT_MUST_CHECK;

#endif
