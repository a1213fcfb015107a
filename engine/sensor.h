/* The sensor encoder: windows of multichannel series become rows of the text model.
 *
 * The model file is an mmproj of architecture "tacit.sensor", Tacit's own:
 *
 *   tacit.sensor.channels      names, in the order of the model's input
 *   tacit.sensor.units         of each channel ("km/h"), for people; may be absent
 *   tacit.sensor.mean, .std    of each channel over the training data
 *   tacit.sensor.max_gap       of each channel: seconds between two readings that are bridged
 *   tacit.sensor.rate          of the grid, in samples a second
 *   tacit.sensor.patch_length  samples that become one row
 *   tacit.sensor.max_patches   longest window
 *   tacit.sensor.lowpass       whether readings faster than the grid are filtered; absent: not
 *
 * A window is a CSV file (sensor_csv.h). It is laid on the grid t0 + k / rate from its first time
 * t0 to its last. A reading within a thousandth of a step of a grid time stands at it; between two
 * readings of a channel at most max_gap apart its value is interpolated linearly. There is none
 * before the first reading, behind the last, in a wider gap or in a channel that the file lacks. A
 * value v becomes (v - mean) / std, at most SENSOR_LIMIT away from 0. The constants are the
 * model's: a window does not leak through its own normalisation, and absolute levels survive.
 * Readings faster than the grid are low-pass filtered first where the file says so
 * (sensor_lowpass.h); what is missing stays missing, and readings at the grid's rate or slower stay
 * what they are. Without the key tones above half the rate alias unless their source filters them:
 * a file says how its own training saw its readings.
 *
 * Patch p is x[p] of channels * 2 * patch_length values: for channel c the values at
 * (2 c) patch_length + t, and at (2 c + 1) patch_length + t a mask: 1 where there is a value, 0
 * where the value is missing and 0 stands for it, the last patch's unused end included. Then
 *
 *   h[p] = gelu(W x[p] + b) + position[p]      s.patch_embd.weight, .bias, s.position_embd.weight
 *   row[p] = U h[p] + u                        mm.s.fc.weight, .bias: the projector
 *
 * with the tanh form of GELU. Row p covers the times from t0 + p patch_length / rate on.
 *
 * A tacit_sensor is immutable and shared by threads; a sensor_pass holds the buffers of one thread
 * of control. Windows are computed one by one: the rows of one do not depend on the others of a
 * call, gradients are summed in the order of windows, neither depends on the number of threads, bit
 * for bit. */
#ifndef TACIT_ENGINE_SENSOR_H
#define TACIT_ENGINE_SENSOR_H

#include "common/pool.h"
#include "engine/encoder_adapter.h"
#include "engine/encoder_tensor.h"

#include <stdbool.h>

#define SENSOR_ARCHITECTURE "tacit.sensor"
#define SENSOR_MAX_CHANNELS 64
#define SENSOR_MAX_NAME 64
#define SENSOR_LIMIT 32.0 /* standard deviations */
#define SENSOR_MAX_FILE ((size_t)16 << 20)

typedef struct tacit_sensor tacit_sensor;

typedef struct sensor_channel {
    char name[SENSOR_MAX_NAME + 1];
    char unit[SENSOR_MAX_NAME + 1];
    double mean, std;
    double max_gap; /* seconds */
} sensor_channel;

typedef struct sensor_shape {
    double rate; /* samples a second */
    uint32_t channels, patch_length, max_patches;
    uint32_t patch_values; /* channels * 2 * patch_length */
    uint32_t width;
    uint32_t out_width; /* the text model's embedding length */
    bool lowpass;
} sensor_shape;

/* Reads the encoder of `file`, which outlives it. TACIT_BAD_INPUT names the key or tensor that is
 * missing or does not fit: names that are empty, long, twice or "time" or "t"; a mean that is not
 * finite, a std, gap or rate that is not positive; sizes above the caps; a tensor more. */
tacit_status sensor_load(tacit_sensor **out, const gguf_file *file,
                         tacit_error *err) TACIT_MUST_CHECK;
void sensor_free(tacit_sensor *s);

const sensor_shape *sensor_get_shape(const tacit_sensor *s);
const sensor_channel *sensor_channels(const tacit_sensor *s); /* [channels] */

/* The tensors in layout order: the five above, as they stand there. */
size_t sensor_tensor_count(const tacit_sensor *s);
const encoder_tensor *sensor_tensor_at(const tacit_sensor *s, size_t i);

/* A window as the encoder reads it. */
typedef struct sensor_window {
    float *values; /* [patches, patch_values]; freed with tacit_wipe_free */
    size_t patches;
    double start;         /* t0 */
    double patch_seconds; /* patch_length / rate */
} sensor_window;

/* From the bytes of a CSV file. `name` is what errors call it. TACIT_BAD_INPUT: sensor_csv.h's
 * reasons, and a window longer than max_patches. */
tacit_status sensor_prepare(sensor_window *out, const tacit_sensor *s, const void *bytes,
                            size_t size, const char *name, tacit_error *err) TACIT_MUST_CHECK;

typedef struct sensor_pass sensor_pass;

/* Buffers for up to `max_windows` windows a call. `pool` may be NULL; the pass does not own it.
 * What this takes is judged first: TACIT_NO_MEMORY says how much it is and how much there is. */
tacit_status sensor_pass_new(sensor_pass **out, const tacit_sensor *s, size_t max_windows,
                             bool train, tacit_pool *pool, tacit_error *err) TACIT_MUST_CHECK;
void sensor_pass_free(sensor_pass *p);
/* What it takes, whatever the number of windows. */
uint64_t sensor_pass_bytes(const tacit_sensor *s, bool train, tacit_pool *pool);

/* From now on the pairs of `adapter` (encoder_adapter.h) stand beside the file's weights; it
 * outlives its use here. NULL: none. Not beside stand-ins of the same tensors. TACIT_NO_MEMORY: as
 * before. */
tacit_status sensor_adapt(sensor_pass *p, const encoder_adapter *adapter,
                          tacit_error *err) TACIT_MUST_CHECK;

/* rows[i][patches, out_width] of n windows, at most max_windows. `weights` has sensor_tensor_count
 * entries: fp32 values that stand for tensor i, or NULL for the file's; it may be NULL itself. */
void sensor_forward(sensor_pass *p, const float *const *weights, const sensor_window *windows,
                    size_t n, float *const *rows);

/* Adds to grads[i] ([rows, cols] of tensor i) the gradient for d_rows, shaped as rows, for the
 * windows, weights and n of the last sensor_forward, which outlive this call. An entry that is NULL
 * is not wanted. The pass was made with `train`. */
void sensor_backward(sensor_pass *p, const float *const *d_rows, float *const *grads);

#endif
