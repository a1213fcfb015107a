/* From an acknowledged reserve to sealed bytes. */
#ifndef TACIT_CLIENT_ROUND_TRAINING_H
#define TACIT_CLIENT_ROUND_TRAINING_H

#include "client/client.h"
#include "client/local_training.h"
#include "client/plan_check.h"
#include "client/round_state_store.h"

/* Who is told of each step. */
typedef struct round_watch {
    void (*progress)(void *ctx, const training_progress *at);
    void *ctx;
} round_watch;

/* Runs the plan's training for a round, continuing where an earlier run stopped. `nonce`: 32 bytes
 * of the acknowledgement, zeros in local training. `canaries` NULL: none, as in every round with a
 * server. `watch` NULL: the log tells steps by their number alone. TACIT_AGAIN when the agent was
 * told to stop. */
tacit_status round_train(client *c, const round_state *r, const checked_plan *plan,
                         const tacit_model *model, const uint8_t *nonce, canary_set *canaries,
                         const round_watch *watch, training_result *out,
                         tacit_error *err) TACIT_MUST_CHECK;

/* Trains and seals: the sealed bytes are durable, the spend is signed and the round SEALED in one
 * transaction; then snapshot and checkpoint are gone. */
tacit_status round_train_and_seal(client *c, round_state *r, tacit_error *err) TACIT_MUST_CHECK;

#endif
