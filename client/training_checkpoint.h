/* A training run on disk between two steps: values and moments bit for bit.
 *
 *   8   "TACITCK2"        32  SHA-256 of the plan      4  steps done (u32)
 *   32  seed of the round's tree noise; zeros for other mechanisms
 *   8   values (u64, n)   4   moments (u32: 1 or 2)    8  the optimizer's step (u64)
 *   4 n values            4 n first moment             4 n second moment where there are two
 *   32  SHA-256 of all the above
 *
 * Numbers are little-endian, values as their bits. */
#ifndef TACIT_CLIENT_TRAINING_CHECKPOINT_H
#define TACIT_CLIENT_TRAINING_CHECKPOINT_H

#include "common/digest.h"
#include "engine/optimizer.h"

#include <stdbool.h>

/* Atomically and durably, mode 0600. */
tacit_status training_checkpoint_write(const char *path, const uint8_t plan_hash[32],
                                       uint32_t steps_done, const uint8_t seed[32],
                                       const float *values, const tacit_optimizer *optimizer,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* *found false when there is no file or it is torn. TACIT_INTEGRITY when it is of another plan or
 * shape. */
tacit_status training_checkpoint_read(const char *path, const uint8_t plan_hash[32],
                                      uint32_t *steps_done, uint8_t seed[32], float *values,
                                      tacit_optimizer *optimizer, bool *found,
                                      tacit_error *err) TACIT_MUST_CHECK;

#endif
