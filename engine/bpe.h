/* Merging of byte-pair symbols by rank. Private to the engine room. */
#ifndef TACIT_ENGINE_BPE_H
#define TACIT_ENGINE_BPE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The merges of a vocabulary: a pair of token ids gives the merged id, and the pair with the
 * lowest rank is merged first. Immutable once filled. */
typedef struct bpe_merges bpe_merges;

/* Room for `count` merges; NULL without memory. */
bpe_merges *bpe_merges_new(size_t count);
void bpe_merges_free(bpe_merges *m);

/* False when the pair is there already. At most `count` of bpe_merges_new may be added. */
bool bpe_merges_add(bpe_merges *m, int32_t left, int32_t right, int32_t merged, uint32_t rank);

/* Scratch space that several pieces share. Zero-initialise, free with bpe_scratch_free. */
typedef struct bpe_scratch {
    struct bpe_node *node;
    struct merge_candidate *heap;
    size_t capacity; /* symbols */
} bpe_scratch;

void bpe_scratch_free(bpe_scratch *s);
/* What bpe_merge takes for a piece of n symbols. */
uint64_t bpe_scratch_bytes(size_t n);

/* Merges the `*count` symbols in place until no pair of neighbours is a merge: always the pair of
 * lowest rank, the leftmost one of several. O(n log n) for a piece of n symbols. */
tacit_status bpe_merge(const bpe_merges *m, bpe_scratch *s, int32_t *symbols,
                       size_t *count) TACIT_MUST_CHECK;

#endif
