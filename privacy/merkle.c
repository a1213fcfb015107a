#include "privacy/merkle.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static void hash_tagged(uint8_t out[TACIT_HASH_BYTES], uint8_t tag, const void *a, size_t a_size,
                        const void *b, size_t b_size)
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, &tag, 1);
    crypto_hash_sha256_update(&state, a, a_size);
    crypto_hash_sha256_update(&state, b, b_size);
    crypto_hash_sha256_final(&state, out);
}

void tacit_merkle_leaf(uint8_t out[TACIT_HASH_BYTES], const void *entry, size_t size)
{
    hash_tagged(out, 0, entry, size, "", 0);
}

void tacit_merkle_node(uint8_t out[TACIT_HASH_BYTES], const uint8_t left[TACIT_HASH_BYTES],
                       const uint8_t right[TACIT_HASH_BYTES])
{
    hash_tagged(out, 1, left, TACIT_HASH_BYTES, right, TACIT_HASH_BYTES);
}

tacit_status tacit_merkle_append(const tacit_merkle_store *store, uint64_t size,
                                 const uint8_t leaf[TACIT_HASH_BYTES], tacit_error *err)
{
    uint8_t hash[TACIT_HASH_BYTES], left[TACIT_HASH_BYTES];
    memcpy(hash, leaf, sizeof hash);
    tacit_status status = store->write(store->ctx, 0, size, hash, err);
    unsigned level = 0;
    for (uint64_t at = size; status == TACIT_OK && (at & 1); at >>= 1, level++) {
        status = store->read(store->ctx, level, at - 1, left, err);
        if (status != TACIT_OK)
            break;
        tacit_merkle_node(hash, left, hash);
        status = store->write(store->ctx, level + 1, at >> 1, hash, err);
    }
    return status;
}

/* Root of leaves [start, start + n), n > 0, where start is a multiple of the least power of two
 * that is at least n: the complete subtrees of n's binary digits, joined from the right. */
static tacit_status range_root(const tacit_merkle_store *store, uint64_t start, uint64_t n,
                               uint8_t out[TACIT_HASH_BYTES], tacit_error *err)
{
    uint8_t node[TACIT_HASH_BYTES];
    bool first = true;
    for (unsigned level = 0; level < TACIT_MERKLE_LEVELS && n >> level; level++) {
        if (!(n >> level & 1))
            continue;
        uint64_t index = (start >> level) + (n >> level) - 1;
        tacit_status status = store->read(store->ctx, level, index, node, err);
        if (status != TACIT_OK)
            return status;
        if (first)
            memcpy(out, node, TACIT_HASH_BYTES);
        else
            tacit_merkle_node(out, node, out);
        first = false;
    }
    return TACIT_OK;
}

tacit_status tacit_merkle_root(const tacit_merkle_store *store, uint64_t size,
                               uint8_t root[TACIT_HASH_BYTES], tacit_error *err)
{
    if (size)
        return range_root(store, 0, size, root, err);
    crypto_hash_sha256(root, (const uint8_t *)"", 0);
    return TACIT_OK;
}

/* The largest power of two below n, n > 1. */
static uint64_t split_of(uint64_t n)
{
    return (uint64_t)1 << (63 - __builtin_clzll(n - 1));
}

/* Walks from the root towards the leaves and collects siblings in that order; proofs list them
 * the other way round. */
static void reverse(tacit_proof *proof)
{
    uint8_t kept[TACIT_HASH_BYTES];
    for (size_t i = 0, j = proof->count; i + 1 < j; i++, j--) {
        memcpy(kept, proof->hash[i], sizeof kept);
        memcpy(proof->hash[i], proof->hash[j - 1], sizeof kept);
        memcpy(proof->hash[j - 1], kept, sizeof kept);
    }
}

tacit_status tacit_merkle_inclusion(const tacit_merkle_store *store, uint64_t index, uint64_t size,
                                    tacit_proof *proof, tacit_error *err)
{
    proof->count = 0;
    if (index >= size)
        return tacit_fail(err, TACIT_USAGE, "log: entry %llu is not among the first %llu",
                          (unsigned long long)index, (unsigned long long)size);
    tacit_status status = TACIT_OK;
    for (uint64_t start = 0, n = size; n > 1 && status == TACIT_OK;) {
        uint64_t k = split_of(n);
        uint8_t *sibling = proof->hash[proof->count++];
        if (index - start < k) {
            status = range_root(store, start + k, n - k, sibling, err);
            n = k;
        } else {
            status = range_root(store, start, k, sibling, err);
            start += k;
            n -= k;
        }
    }
    reverse(proof);
    return status;
}

tacit_status tacit_merkle_consistency(const tacit_merkle_store *store, uint64_t old_size,
                                      uint64_t size, tacit_proof *proof, tacit_error *err)
{
    proof->count = 0;
    if (old_size > size)
        return tacit_fail(err, TACIT_USAGE, "log: %llu entries are not a prefix of %llu",
                          (unsigned long long)old_size, (unsigned long long)size);
    if (old_size == 0 || old_size == size)
        return TACIT_OK;
    tacit_status status = TACIT_OK;
    uint64_t start = 0, n = size;
    while (start + n != old_size && status == TACIT_OK) {
        uint64_t k = split_of(n);
        uint8_t *sibling = proof->hash[proof->count++];
        if (old_size - start <= k) {
            status = range_root(store, start + k, n - k, sibling, err);
            n = k;
        } else {
            status = range_root(store, start, k, sibling, err);
            start += k;
            n -= k;
        }
    }
    /* What is left ends where the old tree ended; the verifier has it only when it is all of it. */
    if (start && status == TACIT_OK)
        status = range_root(store, start, n, proof->hash[proof->count++], err);
    reverse(proof);
    return status;
}

static bool hashes_equal(const uint8_t a[TACIT_HASH_BYTES], const uint8_t b[TACIT_HASH_BYTES])
{
    return memcmp(a, b, TACIT_HASH_BYTES) == 0;
}

/* Steps over the levels on which the node has no sibling on its right. */
static void climb(uint64_t *at, uint64_t *last)
{
    while (!(*at & 1) && *at) {
        *at >>= 1;
        *last >>= 1;
    }
}

tacit_status tacit_merkle_verify_inclusion(const uint8_t leaf[TACIT_HASH_BYTES], uint64_t index,
                                           uint64_t size, const tacit_proof *proof,
                                           const uint8_t root[TACIT_HASH_BYTES], tacit_error *err)
{
    uint8_t r[TACIT_HASH_BYTES];
    memcpy(r, leaf, sizeof r);
    bool holds = index < size && proof->count <= TACIT_PROOF_MAX;
    uint64_t at = index, last = size - 1;
    for (size_t i = 0; holds && i < proof->count; i++) {
        holds = last != 0;
        if ((at & 1) || at == last) {
            tacit_merkle_node(r, proof->hash[i], r);
            climb(&at, &last);
        } else {
            tacit_merkle_node(r, r, proof->hash[i]);
        }
        at >>= 1;
        last >>= 1;
    }
    if (holds && last == 0 && hashes_equal(r, root))
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY,
                      "log: the proof that entry %llu is in the tree of %llu does not hold",
                      (unsigned long long)index, (unsigned long long)size);
}

static bool consistency_holds(uint64_t old_size, const uint8_t old_root[TACIT_HASH_BYTES],
                              uint64_t size, const uint8_t root[TACIT_HASH_BYTES],
                              const tacit_proof *proof)
{
    uint8_t old_hash[TACIT_HASH_BYTES], hash[TACIT_HASH_BYTES];
    size_t used = 0;
    uint64_t at = old_size - 1, last = size - 1;
    bool whole = (old_size & (old_size - 1)) == 0;
    if (proof->count == 0 || proof->count > TACIT_PROOF_MAX)
        return false;
    memcpy(old_hash, whole ? old_root : proof->hash[used++], sizeof old_hash);
    memcpy(hash, old_hash, sizeof hash);
    for (; at & 1; at >>= 1)
        last >>= 1;
    for (; used < proof->count; used++) {
        if (last == 0)
            return false;
        if ((at & 1) || at == last) {
            tacit_merkle_node(old_hash, proof->hash[used], old_hash);
            tacit_merkle_node(hash, proof->hash[used], hash);
            climb(&at, &last);
        } else {
            tacit_merkle_node(hash, hash, proof->hash[used]);
        }
        at >>= 1;
        last >>= 1;
    }
    return last == 0 && hashes_equal(old_hash, old_root) && hashes_equal(hash, root);
}

tacit_status tacit_merkle_verify_consistency(uint64_t old_size,
                                             const uint8_t old_root[TACIT_HASH_BYTES],
                                             uint64_t size, const uint8_t root[TACIT_HASH_BYTES],
                                             const tacit_proof *proof, tacit_error *err)
{
    uint8_t empty[TACIT_HASH_BYTES];
    crypto_hash_sha256(empty, (const uint8_t *)"", 0);
    bool holds;
    if (old_size == 0)
        holds = proof->count == 0 && hashes_equal(old_root, empty);
    else if (old_size == size)
        holds = proof->count == 0 && hashes_equal(old_root, root);
    else
        holds = old_size < size && consistency_holds(old_size, old_root, size, root, proof);
    if (holds)
        return TACIT_OK;
    return tacit_fail(err, TACIT_INTEGRITY,
                      "log: the tree of %llu entries does not continue the one of %llu: the log "
                      "was rewritten or split; keep both checkpoints as evidence",
                      (unsigned long long)size, (unsigned long long)old_size);
}

/* --- a tree that is read once --- */

void tacit_merkle_frontier_append(tacit_merkle_frontier *f, const uint8_t leaf[TACIT_HASH_BYTES])
{
    uint8_t hash[TACIT_HASH_BYTES];
    unsigned level = 0;
    memcpy(hash, leaf, sizeof hash);
    for (; f->size >> level & 1; level++)
        tacit_merkle_node(hash, f->node[level], hash);
    memcpy(f->node[level], hash, sizeof hash);
    f->size++;
}

static tacit_status frontier_read(void *ctx, unsigned level, uint64_t index,
                                  uint8_t out[TACIT_HASH_BYTES], tacit_error *err)
{
    (void)index;
    (void)err;
    memcpy(out, ((const tacit_merkle_frontier *)ctx)->node[level], TACIT_HASH_BYTES);
    return TACIT_OK;
}

/* The nodes that the root is made of are exactly those of the frontier. */
void tacit_merkle_frontier_root(const tacit_merkle_frontier *f, uint8_t root[TACIT_HASH_BYTES])
{
    const tacit_merkle_store store = {(void *)(uintptr_t)f, frontier_read, NULL};
    (void)!tacit_merkle_root(&store, f->size, root, NULL);
}

/* --- a tree in memory --- */

static tacit_status memory_read(void *ctx, unsigned level, uint64_t index,
                                uint8_t out[TACIT_HASH_BYTES], tacit_error *err)
{
    const tacit_merkle_memory *m = ctx;
    if (level >= TACIT_MERKLE_LEVELS || index >= m->count[level])
        return tacit_fail(err, TACIT_NOT_FOUND, "log: no node %llu at level %u",
                          (unsigned long long)index, level);
    memcpy(out, m->level[level][index], TACIT_HASH_BYTES);
    return TACIT_OK;
}

static tacit_status memory_write(void *ctx, unsigned level, uint64_t index,
                                 const uint8_t hash[TACIT_HASH_BYTES], tacit_error *err)
{
    tacit_merkle_memory *m = ctx;
    if (level >= TACIT_MERKLE_LEVELS || index != m->count[level])
        return tacit_fail(err, TACIT_USAGE, "log: node %llu at level %u is out of order",
                          (unsigned long long)index, level);
    if (index == m->capacity[level]) {
        uint64_t capacity = index ? 2 * index : 16;
        size_t bytes;
        void *grown = tacit_mul_size(capacity, TACIT_HASH_BYTES, &bytes)
                          ? realloc(m->level[level], bytes)
                          : NULL;
        if (!grown)
            return tacit_fail(err, TACIT_NO_MEMORY, "log: no memory for %llu nodes",
                              (unsigned long long)capacity);
        m->level[level] = grown;
        m->capacity[level] = capacity;
    }
    memcpy(m->level[level][m->count[level]++], hash, TACIT_HASH_BYTES);
    return TACIT_OK;
}

tacit_merkle_store tacit_merkle_memory_store(tacit_merkle_memory *m)
{
    return (tacit_merkle_store){m, memory_read, memory_write};
}

void tacit_merkle_memory_free(tacit_merkle_memory *m)
{
    for (size_t i = 0; i < TACIT_MERKLE_LEVELS; i++)
        free(m->level[i]);
    *m = (tacit_merkle_memory){0};
}
