/* The audio tower: a Whisper encoder with the ultravox projector, from an mmproj GGUF file, and the
 * log-mel front end that it was trained with.
 *
 * Two convolutions over mel frames (the second halves their number), learned positions, pre-norm
 * blocks with bidirectional attention and exact GELU, a final layer norm (Radford et al. 2022,
 * arXiv 2212.04356); then `stack` positions side by side, RMSNorm, linear, SwiGLU, RMSNorm, linear
 * to the text model's width (Ultravox 0.5). Activations are fp32 on dequantized weights.
 *
 * A clip is cut into chunks of 2 * positions frames, which do not see each other; the last chunk is
 * as long as it is. Clips and chunks are computed one after the other, so a clip's rows do not
 * depend on the others of a call, gradients are summed in the order of clips, and neither depends
 * on the number of threads, bit for bit. A tacit_audio is immutable and shared by threads; an
 * audio_pass holds the buffers of one thread of control. */
#ifndef TACIT_ENGINE_AUDIO_H
#define TACIT_ENGINE_AUDIO_H

#include "common/pool.h"
#include "common/status.h"
#include "engine/encoder_adapter.h"
#include "engine/encoder_tensor.h"
#include "engine/precision.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIO_RATE 16000u /* samples a second that the front end reads */
#define AUDIO_HOP 160u    /* samples a frame: 10 ms */

typedef struct tacit_audio tacit_audio;

typedef struct audio_shape {
    uint32_t n_mel;
    uint32_t width;
    uint32_t ff;
    uint32_t heads;
    uint32_t layers;
    uint32_t positions;  /* of one chunk: half its frames */
    uint32_t stack;      /* positions that become one row */
    uint32_t middle;     /* width of the projector after SwiGLU */
    uint32_t out_width;  /* the text model's embedding length */
    uint32_t max_frames; /* of a clip; longer ones are refused */
    bool unpadded;       /* clips keep their length; else silence fills the last chunk */
    float epsilon;
} audio_shape;

/* Reads the tower of `file`, which outlives it. Only projector type "ultravox" is known; others
 * are refused by name (TACIT_BAD_INPUT), as is every hyper-parameter or shape that does not fit.
 * Two keys are Tacit's own: tacit.audio.unpadded (true when absent, as Ultravox itself has it) and
 * tacit.audio.max_frames (10 minutes when absent). */
tacit_status audio_load(tacit_audio **out, const gguf_file *file,
                        tacit_error *err) TACIT_MUST_CHECK;
void audio_free(tacit_audio *a);

const audio_shape *audio_get_shape(const tacit_audio *a);

/* The tensors in layout order: conv 1, conv 2 (each kernel [width, 3 * inputs], the three taps of
 * an input side by side, then bias), positions, per block ln1, q, k, v, out, ln2, up, down (each
 * weight, then bias; k has none), post_ln, norm_pre, mlp.1, norm_mid, mlp.2. */
size_t audio_tensor_count(const tacit_audio *a);
const encoder_tensor *audio_tensor_at(const tacit_audio *a, size_t i);

/* Rows that a clip of n_frames becomes: over its chunks the sum of ceil(positions / stack), where a
 * chunk has ceil(frames / 2) positions. */
size_t audio_rows(const tacit_audio *a, size_t n_frames);

/* From the bytes of a WAV or FLAC file (audio_file.h) to log-mel frames [n_frames, n_mel]
 * (audio_mel.h) that the caller frees with tacit_wipe_free. `name` is what errors call the file.
 * TACIT_BAD_INPUT for what cannot be decoded and for clips above max_frames. */
tacit_status audio_prepare(float **frames, size_t *n_frames, const tacit_audio *a,
                           const void *bytes, size_t size, const char *name,
                           tacit_error *err) TACIT_MUST_CHECK;

typedef struct audio_clip {
    const float *mel; /* [n_frames, n_mel] */
    size_t n_frames;  /* 1 to max_frames */
} audio_clip;

typedef struct audio_pass audio_pass;

/* Buffers for up to `max_clips` clips a call, whatever their lengths. For training the activations
 * that audio_backward needs are kept when those of max_clips clips of max_frames fit in 32 MiB;
 * else audio_backward computes them again, bit for bit, chunk by chunk. `pool` may be NULL; the
 * pass does not own it. TACIT_NO_MEMORY says how much is needed, TACIT_USAGE how many clips there
 * may be (65,536). */
tacit_status audio_pass_new(audio_pass **out, const tacit_audio *a, size_t max_clips, pass_use use,
                            tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;
void audio_pass_free(audio_pass *p);
/* What an exact one takes, for training or not. */
uint64_t audio_pass_bytes(const tacit_audio *a, size_t max_clips, bool train, tacit_pool *pool);

/* From now on the pairs of `adapter` (encoder_adapter.h) stand beside the file's weights; it
 * outlives its use here. NULL: none. Not beside stand-ins of the same tensors. TACIT_NO_MEMORY: as
 * before. */
tacit_status audio_adapt(audio_pass *p, const encoder_adapter *adapter,
                         tacit_error *err) TACIT_MUST_CHECK;

/* rows[i][audio_rows(clip i), out_width] of n clips. `weights` has audio_tensor_count entries:
 * fp32 values that stand for tensor i, or NULL for the file's; the array itself may be NULL. n is
 * at most max_clips. */
void audio_forward(audio_pass *p, const float *const *weights, const audio_clip *clips, size_t n,
                   float *const *rows);

/* Adds to grads[i] ([rows, cols] of tensor i) the gradient for d_rows, shaped as rows, for the
 * clips, weights and n of the last audio_forward, which outlive this call. An entry that is NULL is
 * not wanted; the computation ends at the lowest one wanted. */
void audio_backward(audio_pass *p, const float *const *d_rows, float *const *grads);

#endif
