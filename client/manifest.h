/* Manifests of published adapters: who signed them and that their publication is in the log. */
#ifndef TACIT_CLIENT_MANIFEST_H
#define TACIT_CLIENT_MANIFEST_H

#include "common/bytes.h"
#include "privacy/merkle.h"
#include "privacy/note.h"
#include "proto/update.pb-c.h"

#define MANIFEST_FILE_MAX ((uint64_t)1 << 30) /* largest adapter file that a device takes */

/* Opens the bytes when the log's key signed them. TACIT_INTEGRITY, TACIT_BAD_INPUT. *out is freed
 * with tacit_message_free. */
tacit_status manifest_open(Tacit__AdapterManifest **out, tacit_span manifest, tacit_span signature,
                           const tacit_note_key *log, tacit_error *err) TACIT_MUST_CHECK;

/* A publication as a check-in brings it. */
typedef struct manifest_publication {
    tacit_span manifest, signature;
    tacit_span entry; /* SignedEntry with an AdapterPublished */
    uint64_t index;
    const tacit_proof *inclusion;
    const tacit_checkpoint *checkpoint; /* verified */
} manifest_publication;

/* TACIT_INTEGRITY unless the entry is the log's, publishes exactly this manifest and is covered by
 * the checkpoint. */
tacit_status manifest_check_logged(const manifest_publication *p, const tacit_note_key *log,
                                   tacit_error *err) TACIT_MUST_CHECK;

#endif
