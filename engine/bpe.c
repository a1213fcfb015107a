#include "engine/bpe.h"

#include "engine/merge_queue.h"

#include <sodium.h>
#include <stdlib.h>

/* Open addressing with a secret multiplier, so that a vocabulary cannot be made whose pairs all
 * fall into one slot. */
typedef struct bpe_slot {
    uint64_t pair;
    uint32_t rank;
    int32_t merged; /* -1: empty */
} bpe_slot;

struct bpe_merges {
    bpe_slot *slot;
    unsigned bits;
    uint64_t mask, add, multiply;
};

/* A symbol of the piece; neighbours by index, so that merging is O(1). */
typedef struct bpe_node {
    int32_t id; /* -1 once merged into its left neighbour */
    uint32_t previous, next;
} bpe_node;

enum { NO_NODE = UINT32_MAX };

bpe_merges *bpe_merges_new(size_t count)
{
    bpe_merges *m = calloc(1, sizeof *m);
    if (!m || count > SIZE_MAX / 8 / sizeof *m->slot) {
        free(m);
        return NULL;
    }
    m->bits = 4;
    while (((size_t)1 << m->bits) < 2 * count)
        m->bits++;
    m->mask = ((uint64_t)1 << m->bits) - 1;
    randombytes_buf(&m->add, sizeof m->add);
    randombytes_buf(&m->multiply, sizeof m->multiply);
    m->multiply |= 1;
    m->slot = calloc((size_t)1 << m->bits, sizeof *m->slot);
    if (!m->slot) {
        free(m);
        return NULL;
    }
    for (size_t i = 0; i <= m->mask; i++)
        m->slot[i].merged = -1;
    return m;
}

void bpe_merges_free(bpe_merges *m)
{
    if (m)
        free(m->slot);
    free(m);
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of the pair, or the empty one where it would go: at most half of them are taken. */
static bpe_slot *find_slot(const bpe_merges *m, uint64_t pair)
{
    uint64_t at = (pair + m->add) * m->multiply >> (64 - m->bits);
    while (m->slot[at].merged >= 0 && m->slot[at].pair != pair)
        at = (at + 1) & m->mask;
    return &m->slot[at];
}

bool bpe_merges_add(bpe_merges *m, int32_t left, int32_t right, int32_t merged, uint32_t rank)
{
    bpe_slot *slot = find_slot(m, pair_of(left, right));
    if (slot->merged >= 0)
        return false;
    *slot = (bpe_slot){pair_of(left, right), rank, merged};
    return true;
}

void bpe_scratch_free(bpe_scratch *s)
{
    free(s->node);
    free(s->heap);
    *s = (bpe_scratch){0};
}

uint64_t bpe_scratch_bytes(size_t n)
{
    return 2 * (uint64_t)n * (sizeof(bpe_node) + MERGE_QUEUED_PER_SYMBOL * sizeof(merge_candidate));
}

static tacit_status reserve(bpe_scratch *s, size_t n)
{
    if (n <= s->capacity)
        return TACIT_OK;
    if (n > UINT32_MAX / 2)
        return TACIT_BAD_INPUT;
    size_t capacity = 2 * n;
    bpe_scratch_free(s);
    s->node = reallocarray(NULL, capacity, sizeof *s->node);
    s->heap = reallocarray(NULL, MERGE_QUEUED_PER_SYMBOL * capacity, sizeof *s->heap);
    if (!s->node || !s->heap) {
        bpe_scratch_free(s);
        return TACIT_NO_MEMORY;
    }
    s->capacity = capacity;
    return TACIT_OK;
}

/* Queues the pair that begins at node `left` when it is a merge. */
static void consider(const bpe_merges *m, const bpe_scratch *s, size_t *count, uint32_t left)
{
    if (left == NO_NODE || s->node[left].next == NO_NODE)
        return;
    int32_t left_id = s->node[left].id, right_id = s->node[s->node[left].next].id;
    const bpe_slot *slot = find_slot(m, pair_of(left_id, right_id));
    if (slot->merged >= 0)
        merge_queue_push(s->heap, count,
                         (merge_candidate){slot->rank, left, (uint32_t)left_id, (uint32_t)right_id,
                                           slot->merged});
}

/* A candidate is stale when one of its two symbols was merged meanwhile. */
static bool is_current(const bpe_scratch *s, const merge_candidate *c)
{
    const bpe_node *left = &s->node[c->left];
    return left->id == (int32_t)c->left_was && left->next != NO_NODE &&
           s->node[left->next].id == (int32_t)c->right_was;
}

static void join(bpe_scratch *s, const merge_candidate *c)
{
    bpe_node *left = &s->node[c->left], *right = &s->node[left->next];
    left->id = c->merged;
    left->next = right->next;
    if (right->next != NO_NODE)
        s->node[right->next].previous = c->left;
    right->id = -1;
}

tacit_status bpe_merge(const bpe_merges *m, bpe_scratch *s, int32_t *symbols, size_t *count)
{
    size_t n = *count, queued = 0, kept = 0;
    tacit_status status = reserve(s, n);
    if (status != TACIT_OK || n == 0)
        return status;
    for (size_t i = 0; i < n; i++)
        s->node[i] = (bpe_node){symbols[i], i ? (uint32_t)(i - 1) : NO_NODE,
                                i + 1 < n ? (uint32_t)(i + 1) : NO_NODE};
    for (size_t i = 0; i + 1 < n; i++)
        consider(m, s, &queued, (uint32_t)i);
    while (queued) {
        merge_candidate c = merge_queue_pop(s->heap, &queued);
        if (!is_current(s, &c))
            continue;
        join(s, &c);
        consider(m, s, &queued, s->node[c.left].previous);
        consider(m, s, &queued, c.left);
    }
    for (uint32_t i = 0; i != NO_NODE; i = s->node[i].next)
        symbols[kept++] = s->node[i].id;
    *count = kept;
    return TACIT_OK;
}
