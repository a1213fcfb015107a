/* The front end of Whisper: samples at 16 kHz to log-mel frames (Radford et al. 2022, arXiv
 * 2212.04356, section 2.2, as its reference computes them).
 *
 * Frame t is the power spectrum of 400 samples around sample 160 t under a periodic Hann window,
 * the clip being mirrored at both ends; then triangular filters on Slaney's mel scale, of equal
 * area, from 0 to 8 kHz; log10, floored at 1e-10 and at 8 below the clip's largest value; and
 * (x + 4) / 4. Everything is computed in double. Stateless, so it may run on any thread. */
#ifndef TACIT_ENGINE_AUDIO_MEL_H
#define TACIT_ENGINE_AUDIO_MEL_H

#include "common/status.h"

#include <stddef.h>

#define AUDIO_MEL_MAX_BINS 256u

/* Frames of a clip of `count` samples, filled with silence to a multiple of `multiple` frames: 1
 * for clips that keep their length. At least 2. */
size_t audio_mel_frames(size_t count, size_t multiple);

/* frames[audio_mel_frames(count, multiple), n_mel], which the caller frees with tacit_wipe_free. */
tacit_status audio_mel(float **frames, const float *samples, size_t count, size_t multiple,
                       size_t n_mel, tacit_error *err) TACIT_MUST_CHECK;

#endif
