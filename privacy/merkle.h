/* The Merkle tree of an append-only log: RFC 6962 section 2.1 hashing with SHA-256 (a leaf is
 * 0x00 || bytes, an inner node 0x01 || left || right), proofs as in RFC 9162 sections 2.1.3 and
 * 2.1.4.
 *
 * The tree's complete nodes are numbered (level, index): level 0 holds the leaf hashes, node
 * (l, i) covers leaves [i 2^l, (i + 1) 2^l). A complete node never changes, so a log stores each
 * once and every proof of every earlier size is made from O(log n) reads. All functions are pure
 * apart from the callbacks they are given; any thread. */
#ifndef TACIT_PRIVACY_MERKLE_H
#define TACIT_PRIVACY_MERKLE_H

#include "common/bytes.h"
#include "common/status.h"

#define TACIT_HASH_BYTES 32
#define TACIT_MERKLE_LEVELS 64
#define TACIT_PROOF_MAX 128 /* hashes: twice the levels bound a consistency proof */

typedef struct tacit_proof {
    uint8_t hash[TACIT_PROOF_MAX][TACIT_HASH_BYTES];
    size_t count;
} tacit_proof;

/* The hash of a leaf over an entry of `size` bytes, and of the node above two others. */
void tacit_merkle_leaf(uint8_t out[TACIT_HASH_BYTES], const void *entry, size_t size);
void tacit_merkle_node(uint8_t out[TACIT_HASH_BYTES], const uint8_t left[TACIT_HASH_BYTES],
                       const uint8_t right[TACIT_HASH_BYTES]);

/* Where complete nodes are kept. Any error of a callback is returned as it is. */
typedef struct tacit_merkle_store {
    void *ctx;
    tacit_status (*read)(void *ctx, unsigned level, uint64_t index, uint8_t out[TACIT_HASH_BYTES],
                         tacit_error *err);
    tacit_status (*write)(void *ctx, unsigned level, uint64_t index,
                          const uint8_t hash[TACIT_HASH_BYTES], tacit_error *err);
} tacit_merkle_store;

/* Adds leaf number `size` (from 0) to a tree of `size` leaves: writes its hash and every node
 * that it completes; on average two writes and one read. */
tacit_status tacit_merkle_append(const tacit_merkle_store *store, uint64_t size,
                                 const uint8_t leaf[TACIT_HASH_BYTES],
                                 tacit_error *err) TACIT_MUST_CHECK;

/* The root of the first `size` leaves; of none it is SHA-256 of nothing. */
tacit_status tacit_merkle_root(const tacit_merkle_store *store, uint64_t size,
                               uint8_t root[TACIT_HASH_BYTES], tacit_error *err) TACIT_MUST_CHECK;

/* That leaf `index` is in the tree of `size` leaves. TACIT_USAGE unless index < size. */
tacit_status tacit_merkle_inclusion(const tacit_merkle_store *store, uint64_t index, uint64_t size,
                                    tacit_proof *proof, tacit_error *err) TACIT_MUST_CHECK;

/* That the tree of `old_size` leaves is a prefix of the one of `size`. Empty for old_size 0 or
 * equal sizes. TACIT_USAGE unless old_size <= size. */
tacit_status tacit_merkle_consistency(const tacit_merkle_store *store, uint64_t old_size,
                                      uint64_t size, tacit_proof *proof,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* TACIT_INTEGRITY when the proof does not hold. Hostile proofs are fine. */
tacit_status tacit_merkle_verify_inclusion(const uint8_t leaf[TACIT_HASH_BYTES], uint64_t index,
                                           uint64_t size, const tacit_proof *proof,
                                           const uint8_t root[TACIT_HASH_BYTES],
                                           tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_merkle_verify_consistency(uint64_t old_size,
                                             const uint8_t old_root[TACIT_HASH_BYTES],
                                             uint64_t size, const uint8_t root[TACIT_HASH_BYTES],
                                             const tacit_proof *proof,
                                             tacit_error *err) TACIT_MUST_CHECK;

/* What is left of a tree that is only read from left to right: the newest complete node of every
 * level whose bit is set in `size`. Append and root cost O(log n) and nothing else is kept.
 * Zero-initialise. */
typedef struct tacit_merkle_frontier {
    uint64_t size; /* leaves */
    uint8_t node[TACIT_MERKLE_LEVELS][TACIT_HASH_BYTES];
} tacit_merkle_frontier;

void tacit_merkle_frontier_append(tacit_merkle_frontier *f, const uint8_t leaf[TACIT_HASH_BYTES]);
void tacit_merkle_frontier_root(const tacit_merkle_frontier *f, uint8_t root[TACIT_HASH_BYTES]);

/* A whole tree in memory. Zero-initialise; free. */
typedef struct tacit_merkle_memory {
    uint8_t (*level[TACIT_MERKLE_LEVELS])[TACIT_HASH_BYTES];
    uint64_t count[TACIT_MERKLE_LEVELS], capacity[TACIT_MERKLE_LEVELS];
} tacit_merkle_memory;

tacit_merkle_store tacit_merkle_memory_store(tacit_merkle_memory *m);
void tacit_merkle_memory_free(tacit_merkle_memory *m);

#endif
