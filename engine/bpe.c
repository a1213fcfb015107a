#include "engine/bpe.h"

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

typedef struct bpe_candidate {
    uint32_t rank;
    uint32_t left; /* node */
    int32_t left_id, right_id, merged;
} bpe_candidate;

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

/* Every merge makes at most two new candidates, so 3 n of them are enough. */
static tacit_status reserve(bpe_scratch *s, size_t n)
{
    if (n <= s->capacity)
        return TACIT_OK;
    if (n > UINT32_MAX / 2)
        return TACIT_BAD_INPUT;
    size_t capacity = 2 * n;
    bpe_scratch_free(s);
    s->node = reallocarray(NULL, capacity, sizeof *s->node);
    s->heap = reallocarray(NULL, 3 * capacity, sizeof *s->heap);
    if (!s->node || !s->heap) {
        bpe_scratch_free(s);
        return TACIT_NO_MEMORY;
    }
    s->capacity = capacity;
    return TACIT_OK;
}

static bool comes_before(const bpe_candidate *a, const bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void heap_push(bpe_candidate *heap, size_t *count, bpe_candidate c)
{
    size_t at = (*count)++;
    while (at > 0 && comes_before(&c, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = c;
}

static bpe_candidate heap_pop(bpe_candidate *heap, size_t *count)
{
    bpe_candidate top = heap[0], last = heap[--*count];
    size_t at = 0;
    for (size_t child = 1; child < *count; child = 2 * at + 1) {
        if (child + 1 < *count && comes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Queues the pair that begins at node `left` when it is a merge. */
static void consider(const bpe_merges *m, const bpe_scratch *s, size_t *count, uint32_t left)
{
    if (left == NO_NODE || s->node[left].next == NO_NODE)
        return;
    int32_t left_id = s->node[left].id, right_id = s->node[s->node[left].next].id;
    const bpe_slot *slot = find_slot(m, pair_of(left_id, right_id));
    if (slot->merged >= 0)
        heap_push(s->heap, count,
                  (bpe_candidate){slot->rank, left, left_id, right_id, slot->merged});
}

/* A candidate is stale when one of its two symbols was merged meanwhile. */
static bool is_current(const bpe_scratch *s, const bpe_candidate *c)
{
    const bpe_node *left = &s->node[c->left];
    return left->id == c->left_id && left->next != NO_NODE && s->node[left->next].id == c->right_id;
}

static void join(bpe_scratch *s, const bpe_candidate *c)
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
        bpe_candidate c = heap_pop(s->heap, &queued);
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
