/* What the loaders of image and audio towers read mmproj files with. Every function fails with
 * TACIT_BAD_INPUT and a message that names file, key or tensor, what was expected and found. */
#ifndef TACIT_ENGINE_MMPROJ_READER_H
#define TACIT_ENGINE_MMPROJ_READER_H

#include "engine/gguf.h"

tacit_status mmproj_missing(const gguf_file *file, const char *key,
                            tacit_error *err) TACIT_MUST_CHECK;

/* A key that must be there, 1 to max. */
tacit_status mmproj_get_size(const gguf_file *file, const char *key, uint32_t max, uint32_t *out,
                             tacit_error *err) TACIT_MUST_CHECK;
/* An epsilon of a norm: above 0, at most 0.1. */
tacit_status mmproj_get_epsilon(const gguf_file *file, const char *key, float *out,
                                tacit_error *err) TACIT_MUST_CHECK;
/* The string must be `expected`; `hint` is what to do about another. */
tacit_status mmproj_expect_string(const gguf_file *file, const char *key, const char *expected,
                                  const char *hint, tacit_error *err) TACIT_MUST_CHECK;

/* The tensor `name`, which must be there, of shape `ne` and of a type that can be computed. */
tacit_status mmproj_find_tensor(const gguf_file *file, const char *name,
                                const uint64_t ne[GGUF_MAX_DIMS], const gguf_tensor **out,
                                tacit_error *err) TACIT_MUST_CHECK;
/* A dimension that the file decides: ne[axis] of tensor `name`, 1 to max. 1 where the tensor is
 * missing, which is reported when it is taken. */
tacit_status mmproj_get_extent(const gguf_file *file, const char *name, int axis, uint64_t max,
                               uint32_t *out, tacit_error *err) TACIT_MUST_CHECK;

/* What one medium makes a tower's attention do: in every layer and set (frame, chunk) each of
 * `tokens` looks at each. */
typedef struct mmproj_attention {
    const char *medium; /* "a picture" */
    uint32_t layers, tokens, width, heads;
    size_t sets; /* of the largest medium */
} mmproj_attention;

/* Refuses towers whose attention is out of proportion to the bytes of their tensors: all other work
 * is tokens times weights, but this grows with the square of a number that a file of some KiB can
 * choose. Up to 2e10 products a medium (a score counts as 16) are always allowed, beyond that two a
 * token and byte; towers that people have stay below a half. */
tacit_status mmproj_check_attention(const gguf_file *file, const mmproj_attention *a,
                                    tacit_error *err) TACIT_MUST_CHECK;

/* The values of a tensor as fp32: the map's where they lie aligned, else a copy, which is also
 * *owned (else NULL). TACIT_NO_MEMORY (gguf_tensor_values). */
tacit_status mmproj_plain_values(const gguf_file *file, const gguf_tensor *tensor,
                                 const float **out, float **owned,
                                 tacit_error *err) TACIT_MUST_CHECK;

#endif
