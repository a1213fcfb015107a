/* Sound files from memory to mono samples at 16 kHz: WAV and FLAC, nothing else.
 *
 * What a file says of itself is judged here before a decoder sees it: the container, rate,
 * channels, length, and whether the samples are all there. libsndfile then decodes: of WAV the
 * samples alone (its readers of the container are not used), of FLAC the file. Channels are
 * averaged; another rate is resampled by libsamplerate's best band-limited interpolator (Smith and
 * Gossett 1984). Memory is bounded by the samples that come out, time by those that go in. */
#ifndef TACIT_ENGINE_AUDIO_FILE_H
#define TACIT_ENGINE_AUDIO_FILE_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define AUDIO_FILE_MAX_BYTES ((size_t)64 << 20)
#define AUDIO_FILE_MIN_RATE 1000u /* samples a second */
#define AUDIO_FILE_MAX_RATE 768000u
#define AUDIO_FILE_MAX_CHANNELS 16u
#define AUDIO_FILE_MAX_SAMPLES ((uint64_t)1 << 27) /* of all channels, at the file's rate */

/* samples[count] in about [-1, 1] at AUDIO_RATE, at least one and at most max_samples; the caller
 * frees them with tacit_wipe_free. By content, never by file name; `name` is what errors call the
 * file. WAV: integers of 8 to 32 bits and floats of 32 and 64. FLAC: up to 24 bits.
 * TACIT_BAD_INPUT: another format, truncated or corrupt, nothing to hear, longer than max_samples,
 * numbers above the caps, samples that are not finite or above 2^31. */
tacit_status audio_file_decode(float **samples, size_t *count, const void *data, size_t size,
                               const char *name, size_t max_samples,
                               tacit_error *err) TACIT_MUST_CHECK;

#endif
