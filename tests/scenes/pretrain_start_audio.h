/* nano's audio pair before training. */
#ifndef TACIT_SCENES_PRETRAIN_START_AUDIO_H
#define TACIT_SCENES_PRETRAIN_START_AUDIO_H

#include "common/status.h"
#include "engine/types.h"

#include <stdint.h>

/* Writes an audio mmproj with random values drawn from `seed`: width 64, 2 blocks, 48 mel bins,
 * clips of at most 4 s (25 rows) that keep their length. Matrices and kernels are of `type` (F32 to
 * train, F16 in the tree), the rest is F32. */
tacit_status pretrain_write_start_audio(const char *path, tacit_type type, uint64_t seed,
                                        tacit_error *err) TACIT_MUST_CHECK;

#endif
