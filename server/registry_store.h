/* Published adapters in the database (table `registry_adapter`); their files lie in DIR/adapters
 * under the hex of their digest. Everything here runs on the writer's thread. */
#ifndef TACIT_SERVER_REGISTRY_STORE_H
#define TACIT_SERVER_REGISTRY_STORE_H

#include "common/database.h"
#include "common/digest.h"
#include "common/identity.h"
#include "server/round_store.h"

tacit_status registry_store_open(tacit_database *db, tacit_error *err) TACIT_MUST_CHECK;

typedef struct adapter_row {
    uint8_t lineage[LINEAGE_BYTES];
    uint64_t version, parent_version;
    uint8_t file_digest[TACIT_DIGEST_BYTES];
    uint8_t *manifest; /* AdapterManifest bytes as signed */
    size_t manifest_size;
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    uint64_t published_ms;
    uint64_t entry_index; /* of the AdapterPublished entry */
    bool current; /* what devices are told to fetch: the newest, or the target of a rollback */
} adapter_row;

void registry_row_free(adapter_row *row);
/* Makes it the lineage's current one. */
tacit_status registry_insert(tacit_database *db, const adapter_row *row,
                             tacit_error *err) TACIT_MUST_CHECK;
/* The current one of a lineage, or with `lineage` NULL of the lineage that published last.
 * TACIT_NOT_FOUND when nothing was published. */
tacit_status registry_current(tacit_database *db, const uint8_t *lineage, adapter_row *out,
                              tacit_error *err) TACIT_MUST_CHECK;
tacit_status registry_get(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                          uint64_t version, adapter_row *out, tacit_error *err) TACIT_MUST_CHECK;
/* By the digest of its file, which is how devices ask for it. */
tacit_status registry_find(tacit_database *db, const uint8_t file_digest[TACIT_DIGEST_BYTES],
                           adapter_row *out, tacit_error *err) TACIT_MUST_CHECK;
/* One above the highest version of the lineage that was ever published. */
tacit_status registry_next_version(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                                   uint64_t *version, tacit_error *err) TACIT_MUST_CHECK;
tacit_status registry_set_current(tacit_database *db, const uint8_t lineage[LINEAGE_BYTES],
                                  uint64_t version, tacit_error *err) TACIT_MUST_CHECK;
tacit_status registry_each(tacit_database *db,
                           tacit_status (*each)(void *ctx, const adapter_row *row,
                                                tacit_error *err),
                           void *ctx, tacit_error *err) TACIT_MUST_CHECK;

#endif
