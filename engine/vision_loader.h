/* Reading a tower's file: what vision_load.c and the kinds of projectors share. Every function
 * fails with TACIT_BAD_INPUT and a message that names file, key or tensor. */
#ifndef TACIT_ENGINE_VISION_LOADER_H
#define TACIT_ENGINE_VISION_LOADER_H

#include "engine/vision_parts.h"

#define VISION_MAX_IMAGE 4096
#define VISION_MAX_OUT 65536
#define VISION_PREFIX "clip.vision."

typedef struct vision_loader {
    tacit_vision *v;
    const gguf_file *file;
    tacit_error *err;
} vision_loader;

/* A key that must be there, 1 to max. */
tacit_status vision_get_size(vision_loader *t, const char *key, uint32_t max,
                             uint32_t *out) TACIT_MUST_CHECK;
/* `a` is a multiple of `b`, or the message names both. */
tacit_status vision_expect_multiple(vision_loader *t, const char *what, uint32_t a, const char *of,
                                    uint32_t b) TACIT_MUST_CHECK;

/* Appends a tensor of that shape to the layout: values[n]; or a matrix [n_out, n_in] that
 * multiplies rows and so may stay in the file's type. */
tacit_status vision_take_vector(vision_loader *t, const char *name, size_t n) TACIT_MUST_CHECK;
tacit_status vision_take_product(vision_loader *t, const char *name, size_t n_out,
                                 size_t n_in) TACIT_MUST_CHECK;
/* The number of outputs of a matrix of the projector, 1 to VISION_MAX_OUT. */
tacit_status vision_outputs(vision_loader *t, const char *name, uint32_t *out) TACIT_MUST_CHECK;

#endif
