/* The aggregation service of one folder: what all its parts share.
 *
 *   listeners' workers ──request_gate──> methods ──┐
 *   control socket ─────────────control──> verbs ──┤──writer──> database (device, round, registry,
 *   round machine's thread ────────────────────────┘             ledger tables): one thread
 *
 * The writer's thread alone touches `db` and `ledger`. Everything else here is immutable after
 * server_open or says who guards it. */
#ifndef TACIT_SERVER_SERVER_H
#define TACIT_SERVER_SERVER_H

#include "common/certificate.h"
#include "common/database.h"
#include "common/envelope.h"
#include "common/identity.h"
#include "engine/model.h"
#include "privacy/ledger.h"
#include "server/server_config.h"
#include "server/writer.h"

#include <pthread.h>
#include <stdatomic.h>

#define SERVER_PATH_MAX 4096
#define SERVER_UPLOAD_MAX ((uint64_t)64 << 20) /* sealed bytes of one update, of any plan */
#define SERVER_CHUNK_BYTES 131072u             /* 128 KiB */
#define SERVER_UPLOAD_LOCKS 64

typedef struct server {
    char dir[SERVER_PATH_MAX];
    int lock;            /* descriptor of DIR/lock, held while this process serves */
    uint16_t enrol_port; /* set by server_run before anything else asks */
    server_config config;
    tacit_identity *key; /* signs replies, entries, checkpoints, manifests */
    tacit_note_key operator_key;
    uint8_t nonce_key[TACIT_NONCE_KEY_BYTES];
    tacit_model *model; /* the base: shapes for layouts, digest for plans */

    pthread_mutex_t ca_lock; /* guards `ca` */
    tacit_ca *ca;

    /* By a reserve's hash: its file is written, or judged and decided, but never both at once. Held
     * by workers across jobs of the writer, never by the writer. */
    pthread_mutex_t upload_lock[SERVER_UPLOAD_LOCKS];

    tacit_database *db;
    tacit_ledger *ledger;
    server_writer *writer;

    struct round_machine *rounds;
    struct { /* the machine's: what those who watch were told last */
        struct {
            uint8_t lineage[16];
            uint64_t round, devices, unwilling, exhausted;
        } waiting; /* all zero: of no round, since rounds count from 1 */
        uint8_t round_id[16];
        uint32_t state, reserved, accepted, rejected;
    } told;
    struct server_events *events; /* what `watch` follows */
    bool started;                 /* the start is logged, the stop will be */
    uint64_t ahead_size;          /* the writer's: of DIR/ahead.checkpoint, 0: not looked at */
} server;

/* Loads configuration, keys, model and database, migrates, verifies the log's tail and logs the
 * start. TACIT_CONFLICT when another process serves the folder. */
tacit_status server_open(server **out, const char *dir, tacit_error *err) TACIT_MUST_CHECK;
/* The same for a command that works on a folder that nobody serves: no model is loaded and neither
 * start nor stop is logged. */
tacit_status server_open_idle(server **out, const char *dir, tacit_error *err) TACIT_MUST_CHECK;
/* The base of a federation: tacit_model_load, and refused where devices could make no examples of
 * records with it, since they take the chat template of the model's file. */
tacit_status server_model_load(tacit_model **out, const char *text, const char *const *mmproj,
                               size_t n_mmproj, tacit_error *err) TACIT_MUST_CHECK;
void server_close(server *s); /* logs the stop; NULL is fine */

/* Listens and works until *stop becomes true (which a signal handler may set). Writes DIR/address.
 */
tacit_status server_run(server *s, const atomic_bool *stop, tacit_error *err) TACIT_MUST_CHECK;

/* DIR/name. */
tacit_status server_path(const server *s, char out[SERVER_PATH_MAX], const char *name,
                         tacit_error *err) TACIT_MUST_CHECK;

#endif
