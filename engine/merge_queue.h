/* The queue of pairs that may be merged next, of bpe.c and spm.c: a binary heap, the lowest rank
 * first and of one rank the leftmost pair. Private to the engine room. */
#ifndef TACIT_ENGINE_MERGE_QUEUE_H
#define TACIT_ENGINE_MERGE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct merge_candidate {
    uint32_t rank;
    uint32_t left;                /* index of the left symbol */
    uint32_t left_was, right_was; /* what the two symbols were; the pair is stale otherwise */
    int32_t merged;               /* the token that they make */
} merge_candidate;

/* A merge takes one pair out and puts at most two in, so n symbols never have more than 2 n queued:
 * n - 1 at first, and n - 1 merges that add one each. */
enum { MERGE_QUEUED_PER_SYMBOL = 2 };

static inline bool merge_comes_before(const merge_candidate *a, const merge_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static inline void merge_queue_push(merge_candidate *heap, size_t *count, merge_candidate c)
{
    size_t at = (*count)++;
    while (at > 0 && merge_comes_before(&c, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = c;
}

static inline merge_candidate merge_queue_pop(merge_candidate *heap, size_t *count)
{
    merge_candidate top = heap[0], last = heap[--*count];
    size_t at = 0;
    for (size_t child = 1; child < *count; child = 2 * at + 1) {
        if (child + 1 < *count && merge_comes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!merge_comes_before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

#endif
