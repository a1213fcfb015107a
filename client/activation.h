/* Adapters on the device: fetched by digest, checked, and put in force by one rename. The one in
 * force and the one before it stay on disk, with the parent of an open round. */
#ifndef TACIT_CLIENT_ACTIVATION_H
#define TACIT_CLIENT_ACTIVATION_H

#include "client/checkin.h"

/* DIR/adapters/active.json. */
typedef struct active_adapter {
    bool exists;
    uint64_t version;
    uint8_t lineage[CLIENT_LINEAGE_BYTES];
    uint8_t digest[TACIT_DIGEST_BYTES]; /* the file is adapters/HEX.gguf */
} active_adapter;

/* What is in force; .exists false when nothing is. TACIT_BAD_INPUT for a damaged file. */
tacit_status active_adapter_read(const client *c, active_adapter *current, active_adapter *previous,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Loads the file onto the model to be sure that it is usable, then puts it in force. On failure the
 * one in force stays. */
tacit_status active_adapter_switch(client *c, const active_adapter *next, const tacit_model *model,
                                   tacit_error *err) TACIT_MUST_CHECK;

/* Removes what is neither in force, nor the one before, nor `wanted`, unless a round is open: a
 * server that names one file after the other and finishes none must not fill the disk. */
void active_adapter_make_room(const client *c, const uint8_t wanted[TACIT_DIGEST_BYTES]);

/* DIR/adapters/HEX.gguf when it is there with its digest, else fetched in chunks; an interrupted
 * fetch goes on where it stopped, what is left of others is removed. TACIT_INTEGRITY when what came
 * has another digest. */
tacit_status adapter_fetch(client *c, client_session *s, const uint8_t digest[TACIT_DIGEST_BYTES],
                           uint64_t size, char path[CLIENT_PATH_MAX],
                           tacit_error *err) TACIT_MUST_CHECK;

/* The adapter that the server has in force, if it is another than this device's: checks manifest,
 * publication and file, and switches. *switched says whether it did. */
tacit_status adapter_follow(client *c, client_session *s, const client_checkin *in, bool *switched,
                            tacit_error *err) TACIT_MUST_CHECK;

/* The parent of a checked plan: fetched when it lacks, with a manifest of the server for exactly
 * this lineage, version, base and digest. Nothing to do for version 0. */
tacit_status adapter_fetch_parent(client *c, client_session *s, const client_checkin *in,
                                  const Tacit__Plan *plan, tacit_error *err) TACIT_MUST_CHECK;

#endif
