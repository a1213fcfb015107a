/* A new sensor encoder: the file that training starts from. */
#ifndef TACIT_ENGINE_SENSOR_NEW_H
#define TACIT_ENGINE_SENSOR_NEW_H

#include "engine/sensor.h"

typedef struct sensor_spec {
    const sensor_channel *channel;
    uint32_t channels;
    double rate; /* samples a second */
    uint32_t patch_length, max_patches;
    uint32_t width;
    bool lowpass;            /* readings faster than the grid are filtered */
    uint32_t out_width;      /* the text model's embedding length */
    const char *begin, *end; /* tokens around a window (tacit.media_begin, _end); NULL: not named */
    tacit_type type;         /* of both matrices; F16 where rows are no multiple of its block */
    uint64_t seed;
} sensor_spec;

/* The keys of a file for `spec`. */
void sensor_put_keys(gguf_writer *w, const sensor_spec *spec);
/* The five tensors: weights uniform with variance 1 / n_in, positions with a deviation of 0.02,
 * biases zero; a function of the spec alone. */
void sensor_put_tensors(gguf_writer *w, const sensor_spec *spec);
/* Both, published under `path`. What sensor_load would refuse is TACIT_BAD_INPUT, and nothing is
 * written. */
tacit_status sensor_write_new(const char *path, const sensor_spec *spec,
                              tacit_error *err) TACIT_MUST_CHECK;

#endif
