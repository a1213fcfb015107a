/* What an adapter's file is, without its model: keys, and its tensors put together by what they
 * stand beside. */
#ifndef TACIT_ENGINE_ADAPTER_ABOUT_H
#define TACIT_ENGINE_ADAPTER_ABOUT_H

#include "engine/adapter_parts.h"

#define ADAPTER_TARGETS_MAX 1024

/* Pairs beside tensors whose names differ in numbers alone, of one rank. */
typedef struct adapter_target {
    char name[GGUF_MAX_NAME + 1]; /* "blk.*.attn_q" */
    uint64_t rank;
    size_t pairs;
} adapter_target;

typedef struct adapter_about {
    adapter_keys keys;
    gguf_string architecture; /* the file's */
    uint64_t values;          /* that the file holds: halves, or cores */
    size_t pairs;
    uint64_t text_rows, image_rows; /* of soft prompts */
    adapter_target *target;         /* in the order of the file */
    size_t n_targets;
} adapter_about;

/* TACIT_BAD_INPUT: no adapter, a tensor that is no part of a pair, or more than ADAPTER_TARGETS_MAX
 * targets. Free with adapter_about_free; what it points to is the file's. */
tacit_status adapter_about_read(adapter_about *out, const gguf_file *file,
                                tacit_error *err) TACIT_MUST_CHECK;
void adapter_about_free(adapter_about *a);

#endif
