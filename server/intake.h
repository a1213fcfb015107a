/* The intake gate: whether a sealed update may enter the sum. Checks in this order, each with its
 * word for the log: size, decrypt, signature, plan, reserve, duplicate, shape, finite, norm. */
#ifndef TACIT_SERVER_INTAKE_H
#define TACIT_SERVER_INTAKE_H

#include "common/identity.h"
#include "common/secret.h"
#include "common/status.h"
#include "proto/plan.pb-c.h"
#include "proto/update.pb-c.h"
#include "server/round_store.h"

/* What an update is held against. Views; nothing is owned. */
typedef struct intake_terms {
    const Tacit__Plan *plan;
    const uint8_t *plan_hash;
    const uint8_t *layout_hash;
    const uint8_t *signer_key;  /* of the device */
    const tacit_secret *secret; /* of the round's aggregator key */
} intake_terms;

/* An update that passed; `values` has plan->trainable_values entries and points into `message`. */
typedef struct intake_update {
    Tacit__Update *message;
    const uint8_t *values; /* int32 LE */
} intake_update;

/* Judges the sealed bytes of `row`. TACIT_OK with *reason NULL and *out filled when it passed, or
 * with *reason one of the words above and `err` saying why in full. Another status is this
 * machine's own failure. */
tacit_status intake_judge(const intake_terms *terms, const update_row *row, const uint8_t *sealed,
                          size_t size, intake_update *out, const char **reason,
                          tacit_error *err) TACIT_MUST_CHECK;
void intake_update_free(intake_update *u);

/* Bytes of the largest update of this plan: before sealing, and as it travels. */
size_t intake_update_bound(const Tacit__Plan *plan);
size_t intake_sealed_bound(const Tacit__Plan *plan);

#endif
