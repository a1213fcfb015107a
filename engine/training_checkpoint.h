/* A training run on disk between two steps: values and moments bit for bit.
 *
 *   8   "TACITCK2"        32  SHA-256 of the plan, or of what else names the run      4  steps done (u32)
 *   8   values (u64, n)   4   moments (u32: 1 or 2)    8  the optimizer's step (u64)
 *   8   clip norm of the next step (f64)
 *   4 n values            4 n first moment             4 n second moment where there are two
 *   ... what belongs to the run beside them (canary_set.h); nothing in a round with a server
 *   32  SHA-256 of all the above
 *
 * Numbers are little-endian, values as their bits. */
#ifndef TACIT_ENGINE_TRAINING_CHECKPOINT_H
#define TACIT_ENGINE_TRAINING_CHECKPOINT_H

#include "common/bytes.h"
#include "common/digest.h"
#include "engine/optimizer.h"

#include <stdbool.h>

/* Where a run stands beside its vectors. */
typedef struct training_place {
    uint32_t steps_done;
    double clip_norm; /* of the next step */
} training_place;

/* Atomically and durably, mode 0600. */
tacit_status training_checkpoint_write(const char *path, const uint8_t plan_hash[32],
                                       training_place place, const float *values,
                                       const tacit_optimizer *optimizer, tacit_span beside,
                                       tacit_error *err) TACIT_MUST_CHECK;

/* *found false when there is no file or it is torn; *place is then left as it was. TACIT_INTEGRITY
 * when it is of another plan or shape. Appends what was written beside to *beside. */
tacit_status training_checkpoint_read(const char *path, const uint8_t plan_hash[32],
                                      training_place *place, float *values,
                                      tacit_optimizer *optimizer, tacit_buffer *beside, bool *found,
                                      tacit_error *err) TACIT_MUST_CHECK;

#endif
