#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/text.h"
#include "privacy/merkle.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `test_merkle vectors` prints proofs for tests/interop/check_tiles.go. */

/* The reference tree that implementations of RFC 6962 share (certificate-transparency's
 * merkle_tree_test, transparency-dev/merkle's testonly/constants.go): eight leaves, the root of
 * each prefix, and the proofs given there. */
static const struct {
    const char *bytes;
    size_t size;
} ct_leaves[8] = {
    {"", 0},
    {"\0", 1},
    {"\x10", 1},
    {"\x20\x21", 2},
    {"\x30\x31", 2},
    {"\x40\x41\x42\x43", 4},
    {"\x50\x51\x52\x53\x54\x55\x56\x57", 8},
    {"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f", 16},
};
static const char *const ct_roots[9] = {
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
};
static const struct {
    uint64_t old_size, size;
    const char *hash[3];
} ct_consistency[] = {
    {1,
     8,
     {"96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"}},
    {6,
     8,
     {"0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
      "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
      "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"}},
    {2,
     5,
     {"5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b", NULL}},
    {1, 1, {NULL, NULL, NULL}},
};
static const struct {
    uint64_t index, size;
    const char *hash[3];
} ct_inclusion[] = {
    {0,
     8,
     {"96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"}},
    {5,
     8,
     {"bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
      "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
      "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"}},
    {2, 3, {"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125", NULL, NULL}},
    {1,
     5,
     {"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"}},
    {0, 1, {NULL, NULL, NULL}},
};

static void assert_hash(const uint8_t hash[TACIT_HASH_BYTES], const char *hex)
{
    char text[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(text, hash, TACIT_HASH_BYTES);
    assert_string_equal(text, hex);
}

static void add_leaf(tacit_merkle_memory *m, const void *bytes, size_t size)
{
    tacit_error err;
    uint8_t leaf[TACIT_HASH_BYTES];
    tacit_merkle_store store = tacit_merkle_memory_store(m);
    tacit_merkle_leaf(leaf, bytes, size);
    assert_int_equal(tacit_merkle_append(&store, m->count[0], leaf, &err), TACIT_OK);
}

static void test_roots_of_the_reference_tree(void **state)
{
    (void)state;
    tacit_error err;
    tacit_merkle_memory m = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&m);
    uint8_t root[TACIT_HASH_BYTES];
    for (uint64_t n = 0; n <= 8; n++) {
        assert_int_equal(tacit_merkle_root(&store, n, root, &err), TACIT_OK);
        assert_hash(root, ct_roots[n]);
        if (n < 8)
            add_leaf(&m, ct_leaves[n].bytes, ct_leaves[n].size);
    }
    for (uint64_t n = 0; n <= 8; n++) { /* earlier roots come from the grown tree as well */
        assert_int_equal(tacit_merkle_root(&store, n, root, &err), TACIT_OK);
        assert_hash(root, ct_roots[n]);
    }
    tacit_merkle_memory_free(&m);
}

static void assert_proof(const tacit_proof *proof, const char *const *hash, size_t most)
{
    size_t n = 0;
    while (n < most && hash[n])
        n++;
    assert_int_equal(proof->count, n);
    for (size_t i = 0; i < n; i++)
        assert_hash(proof->hash[i], hash[i]);
}

static void test_proofs_of_the_reference_tree(void **state)
{
    (void)state;
    tacit_error err;
    tacit_proof proof;
    tacit_merkle_memory m = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&m);
    for (size_t n = 0; n < 8; n++)
        add_leaf(&m, ct_leaves[n].bytes, ct_leaves[n].size);
    for (size_t i = 0; i < sizeof ct_consistency / sizeof ct_consistency[0]; i++) {
        assert_int_equal(tacit_merkle_consistency(&store, ct_consistency[i].old_size,
                                                  ct_consistency[i].size, &proof, &err),
                         TACIT_OK);
        assert_proof(&proof, ct_consistency[i].hash, 3);
    }
    for (size_t i = 0; i < sizeof ct_inclusion / sizeof ct_inclusion[0]; i++) {
        assert_int_equal(tacit_merkle_inclusion(&store, ct_inclusion[i].index, ct_inclusion[i].size,
                                                &proof, &err),
                         TACIT_OK);
        assert_proof(&proof, ct_inclusion[i].hash, 3);
    }
    assert_int_equal(tacit_merkle_inclusion(&store, 8, 8, &proof, &err), TACIT_USAGE);
    assert_int_equal(tacit_merkle_consistency(&store, 9, 8, &proof, &err), TACIT_USAGE);
    tacit_merkle_memory_free(&m);
}

/* RFC 9162 section 2.1.5, the example in its own letters: seven leaves d0 to d6 with hashes a, b,
 * c, d, e, f, j; g, h, i above (a b), (c d), (e f); k above (g h), l above (i j). A proof is
 * written as the RFC writes it. */
typedef struct rfc_tree {
    uint8_t node[12][TACIT_HASH_BYTES]; /* 'a' to 'l' */
} rfc_tree;

static uint8_t *rfc_node(rfc_tree *t, char letter)
{
    return t->node[letter - 'a'];
}

static void rfc_join(rfc_tree *t, char out, char left, char right)
{
    uint8_t joined[1 + 2 * TACIT_HASH_BYTES] = {1};
    memcpy(joined + 1, rfc_node(t, left), TACIT_HASH_BYTES);
    memcpy(joined + 1 + TACIT_HASH_BYTES, rfc_node(t, right), TACIT_HASH_BYTES);
    crypto_hash_sha256(rfc_node(t, out), joined, sizeof joined);
}

static void rfc_build(rfc_tree *t, tacit_merkle_memory *m)
{
    static const char leaves[] = "abcdefj";
    for (uint8_t i = 0; i < 7; i++) {
        const uint8_t leaf[2] = {0, i};
        crypto_hash_sha256(rfc_node(t, leaves[i]), leaf, sizeof leaf);
        add_leaf(m, leaf + 1, 1);
    }
    rfc_join(t, 'g', 'a', 'b');
    rfc_join(t, 'h', 'c', 'd');
    rfc_join(t, 'i', 'e', 'f');
    rfc_join(t, 'k', 'g', 'h');
    rfc_join(t, 'l', 'i', 'j');
}

static void rfc_proof(rfc_tree *t, const char *letters, const tacit_proof *proof)
{
    assert_int_equal(proof->count, strlen(letters));
    for (size_t i = 0; i < proof->count; i++)
        assert_memory_equal(proof->hash[i], rfc_node(t, letters[i]), TACIT_HASH_BYTES);
}

static void test_the_example_of_rfc_9162(void **state)
{
    (void)state;
    static const struct {
        uint64_t index;
        const char *proof;
    } inclusion[] = {{0, "bhl"}, {3, "cgl"}, {4, "fjk"}, {6, "ik"}};
    static const struct {
        uint64_t old_size;
        const char *proof;
    } consistency[] = {{3, "cdgl"}, {4, "l"}, {6, "ijk"}};
    tacit_error err;
    tacit_proof proof;
    rfc_tree t;
    tacit_merkle_memory m = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&m);
    rfc_build(&t, &m);
    for (size_t i = 0; i < sizeof inclusion / sizeof inclusion[0]; i++) {
        assert_int_equal(tacit_merkle_inclusion(&store, inclusion[i].index, 7, &proof, &err),
                         TACIT_OK);
        rfc_proof(&t, inclusion[i].proof, &proof);
    }
    for (size_t i = 0; i < sizeof consistency / sizeof consistency[0]; i++) {
        assert_int_equal(tacit_merkle_consistency(&store, consistency[i].old_size, 7, &proof, &err),
                         TACIT_OK);
        rfc_proof(&t, consistency[i].proof, &proof);
    }
    tacit_merkle_memory_free(&m);
}

/* The naive twin: the recursions of RFC 6962 section 2.1 word for word, on all leaves. */
enum { TWIN = 70 };
static uint8_t twin_leaf[TWIN][TACIT_HASH_BYTES];

static size_t twin_split(size_t n)
{
    size_t k = 1;
    while (2 * k < n)
        k *= 2;
    return k;
}

static void twin_root(size_t start, size_t n, uint8_t out[TACIT_HASH_BYTES])
{
    if (n == 1) {
        memcpy(out, twin_leaf[start], TACIT_HASH_BYTES);
        return;
    }
    uint8_t joined[1 + 2 * TACIT_HASH_BYTES] = {1};
    size_t k = twin_split(n);
    twin_root(start, k, joined + 1);
    twin_root(start + k, n - k, joined + 1 + TACIT_HASH_BYTES);
    crypto_hash_sha256(out, joined, sizeof joined);
}

/* A tree that is read once has the roots of one that is kept. */
static void test_the_frontier_has_every_root(void **state)
{
    (void)state;
    tacit_merkle_frontier f = {.size = 0};
    uint8_t root[TACIT_HASH_BYTES], expected[TACIT_HASH_BYTES];
    for (uint8_t i = 0; i < TWIN; i++) {
        const uint8_t leaf[2] = {0, i};
        crypto_hash_sha256(twin_leaf[i], leaf, sizeof leaf);
    }
    tacit_merkle_frontier_root(&f, root);
    assert_hash(root, ct_roots[0]);
    for (size_t n = 1; n <= TWIN; n++) {
        tacit_merkle_frontier_append(&f, twin_leaf[n - 1]);
        tacit_merkle_frontier_root(&f, root);
        twin_root(0, n, expected);
        assert_memory_equal(root, expected, sizeof root);
        assert_int_equal(f.size, n);
    }
}

static void twin_push(tacit_proof *proof, size_t start, size_t n)
{
    twin_root(start, n, proof->hash[proof->count++]);
}

static void twin_path(size_t m, size_t start, size_t n, tacit_proof *proof)
{
    if (n == 1)
        return;
    size_t k = twin_split(n);
    if (m < k) {
        twin_path(m, start, k, proof);
        twin_push(proof, start + k, n - k);
    } else {
        twin_path(m - k, start + k, n - k, proof);
        twin_push(proof, start, k);
    }
}

static void twin_subproof(size_t m, size_t start, size_t n, bool whole, tacit_proof *proof)
{
    if (m == n) {
        if (!whole)
            twin_push(proof, start, n);
        return;
    }
    size_t k = twin_split(n);
    if (m <= k) {
        twin_subproof(m, start, k, whole, proof);
        twin_push(proof, start + k, n - k);
    } else {
        twin_subproof(m - k, start + k, n - k, false, proof);
        twin_push(proof, start, k);
    }
}

static void assert_same_proof(const tacit_proof *a, const tacit_proof *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->hash, b->hash, a->count * TACIT_HASH_BYTES);
}

static void twin_build(tacit_merkle_memory *m)
{
    for (uint8_t i = 0; i < TWIN; i++) {
        const uint8_t leaf[2] = {0, i};
        crypto_hash_sha256(twin_leaf[i], leaf, sizeof leaf);
        add_leaf(m, leaf + 1, 1);
    }
}

/* Every tampering with one proof must be noticed: a bit, a hash more, a hash less, another place,
 * another size. */
static void assert_inclusion_is_tight(const uint8_t *leaf, uint64_t index, uint64_t size,
                                      tacit_proof *proof, const uint8_t *root)
{
    tacit_error err;
    assert_int_equal(tacit_merkle_verify_inclusion(leaf, index, size, proof, root, &err), TACIT_OK);
    for (size_t i = 0; i < proof->count; i++) {
        proof->hash[i][i % 32] ^= 0x20;
        assert_int_equal(tacit_merkle_verify_inclusion(leaf, index, size, proof, root, &err),
                         TACIT_INTEGRITY);
        proof->hash[i][i % 32] ^= 0x20;
    }
    memset(proof->hash[proof->count++], 7, TACIT_HASH_BYTES);
    assert_int_equal(tacit_merkle_verify_inclusion(leaf, index, size, proof, root, &err),
                     TACIT_INTEGRITY);
    proof->count--;
    if (proof->count) {
        proof->count--;
        assert_int_equal(tacit_merkle_verify_inclusion(leaf, index, size, proof, root, &err),
                         TACIT_INTEGRITY);
        proof->count++;
    }
    for (uint64_t other = 0; other <= size; other++)
        if (other != index)
            assert_int_equal(tacit_merkle_verify_inclusion(leaf, other, size, proof, root, &err),
                             TACIT_INTEGRITY);
}

static void test_inclusion_equals_the_naive_twin(void **state)
{
    (void)state;
    tacit_error err;
    tacit_merkle_memory m = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&m);
    twin_build(&m);
    for (size_t size = 1; size <= TWIN; size++) {
        uint8_t root[TACIT_HASH_BYTES], expected[TACIT_HASH_BYTES];
        assert_int_equal(tacit_merkle_root(&store, size, root, &err), TACIT_OK);
        twin_root(0, size, expected);
        assert_memory_equal(root, expected, sizeof root);
        for (size_t index = 0; index < size; index++) {
            tacit_proof proof, twin = {.count = 0};
            assert_int_equal(tacit_merkle_inclusion(&store, index, size, &proof, &err), TACIT_OK);
            twin_path(index, 0, size, &twin);
            assert_same_proof(&proof, &twin);
            assert_inclusion_is_tight(twin_leaf[index], index, size, &proof, root);
        }
    }
    tacit_merkle_memory_free(&m);
}

static void assert_consistency_is_tight(uint64_t old_size, const uint8_t *old_root, uint64_t size,
                                        const uint8_t *root, tacit_proof *proof)
{
    tacit_error err;
    uint8_t wrong[TACIT_HASH_BYTES];
    assert_int_equal(tacit_merkle_verify_consistency(old_size, old_root, size, root, proof, &err),
                     TACIT_OK);
    memcpy(wrong, old_root, sizeof wrong);
    wrong[3] ^= 1;
    assert_int_equal(tacit_merkle_verify_consistency(old_size, wrong, size, root, proof, &err),
                     TACIT_INTEGRITY);
    memcpy(wrong, root, sizeof wrong);
    wrong[30] ^= 1;
    assert_int_equal(tacit_merkle_verify_consistency(old_size, old_root, size, wrong, proof, &err),
                     TACIT_INTEGRITY);
    for (size_t i = 0; i < proof->count; i++) {
        proof->hash[i][0] ^= 1;
        assert_int_equal(
            tacit_merkle_verify_consistency(old_size, old_root, size, root, proof, &err),
            TACIT_INTEGRITY);
        proof->hash[i][0] ^= 1;
    }
    memset(proof->hash[proof->count++], 7, TACIT_HASH_BYTES);
    assert_int_equal(tacit_merkle_verify_consistency(old_size, old_root, size, root, proof, &err),
                     TACIT_INTEGRITY);
    proof->count--;
}

static void test_consistency_equals_the_naive_twin(void **state)
{
    (void)state;
    tacit_error err;
    tacit_merkle_memory m = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&m);
    twin_build(&m);
    for (size_t size = 1; size <= TWIN; size++) {
        for (size_t old_size = 0; old_size <= size; old_size++) {
            tacit_proof proof, twin = {.count = 0};
            uint8_t old_root[TACIT_HASH_BYTES], root[TACIT_HASH_BYTES];
            assert_int_equal(tacit_merkle_root(&store, old_size, old_root, &err), TACIT_OK);
            assert_int_equal(tacit_merkle_root(&store, size, root, &err), TACIT_OK);
            assert_int_equal(tacit_merkle_consistency(&store, old_size, size, &proof, &err),
                             TACIT_OK);
            if (old_size)
                twin_subproof(old_size, 0, size, true, &twin);
            assert_same_proof(&proof, &twin);
            if (old_size)
                assert_consistency_is_tight(old_size, old_root, size, root, &proof);
            old_root[0] ^= 1;
            assert_int_equal(
                tacit_merkle_verify_consistency(old_size, old_root, size, root, &proof, &err),
                TACIT_INTEGRITY);
        }
    }
    tacit_merkle_memory_free(&m);
}

static void test_a_shorter_log_continues_nothing(void **state)
{
    (void)state;
    tacit_error err;
    tacit_proof empty = {.count = 0};
    uint8_t root[TACIT_HASH_BYTES] = {1};
    assert_int_equal(tacit_merkle_verify_consistency(5, root, 4, root, &empty, &err),
                     TACIT_INTEGRITY);
    assert_int_equal(tacit_merkle_verify_inclusion(root, 0, 0, &empty, root, &err),
                     TACIT_INTEGRITY);
    assert_int_equal(tacit_merkle_verify_inclusion(root, 0, UINT64_MAX, &empty, root, &err),
                     TACIT_INTEGRITY);
}

/* What a log of `n` entries has to do: a store that counts. */
typedef struct counting {
    tacit_merkle_memory tree;
    unsigned reads, writes;
} counting;

static tacit_status count_read(void *ctx, unsigned level, uint64_t index,
                               uint8_t out[TACIT_HASH_BYTES], tacit_error *err)
{
    counting *c = ctx;
    c->reads++;
    return tacit_merkle_memory_store(&c->tree).read(&c->tree, level, index, out, err);
}

static tacit_status count_write(void *ctx, unsigned level, uint64_t index,
                                const uint8_t hash[TACIT_HASH_BYTES], tacit_error *err)
{
    counting *c = ctx;
    c->writes++;
    return tacit_merkle_memory_store(&c->tree).write(&c->tree, level, index, hash, err);
}

/* An append writes the leaf and the nodes that it completes, one for each time that two divides the
 * new size, and reads their left halves. A root reads a node for each digit 1 of the size, a proof
 * at most two for each digit. */
static void test_work_grows_with_the_logarithm(void **state)
{
    (void)state;
    tacit_error err;
    tacit_proof proof;
    uint8_t hash[TACIT_HASH_BYTES] = {0};
    counting c = {.reads = 0};
    tacit_merkle_store store = {&c, count_read, count_write};
    for (uint64_t n = 1; n <= 5000; n++) {
        unsigned completed = (unsigned)__builtin_ctzll(n), levels = 0;
        c.reads = c.writes = 0;
        memcpy(hash, &n, sizeof n);
        assert_int_equal(tacit_merkle_append(&store, n - 1, hash, &err), TACIT_OK);
        assert_int_equal(c.writes, 1 + completed);
        assert_int_equal(c.reads, completed);
        while (n >> levels)
            levels++;
        c.reads = 0;
        assert_int_equal(tacit_merkle_root(&store, n, hash, &err), TACIT_OK);
        assert_int_equal(c.reads, __builtin_popcountll(n));
        c.reads = 0;
        assert_int_equal(tacit_merkle_inclusion(&store, n / 3, n, &proof, &err), TACIT_OK);
        assert_true(c.reads <= 2 * levels);
        c.reads = 0;
        assert_int_equal(tacit_merkle_consistency(&store, n - n / 3, n, &proof, &err), TACIT_OK);
        assert_true(c.reads <= 2 * levels);
    }
    tacit_merkle_memory_free(&c.tree);
}

/* Sizes near 2^63 overflow nothing: a store that makes every node up shows the indices asked. */
static tacit_status made_up(void *ctx, unsigned level, uint64_t index,
                            uint8_t out[TACIT_HASH_BYTES], tacit_error *err)
{
    (void)err;
    uint64_t size = *(uint64_t *)ctx;
    assert_true(index < size >> level);
    memset(out, (int)(level + index), TACIT_HASH_BYTES);
    return TACIT_OK;
}

static void test_huge_sizes_stay_in_bounds(void **state)
{
    (void)state;
    tacit_error err;
    tacit_proof proof;
    uint64_t size = INT64_MAX - 1;
    tacit_merkle_store store = {&size, made_up, NULL};
    assert_int_equal(tacit_merkle_inclusion(&store, size - 1, size, &proof, &err), TACIT_OK);
    assert_in_range(proof.count, 32, 64);
    assert_int_equal(tacit_merkle_consistency(&store, size / 3, size, &proof, &err), TACIT_OK);
    assert_in_range(proof.count, 32, TACIT_PROOF_MAX - 1);
}

/* --- material for tests/interop --- */

static void print_hash(const uint8_t hash[TACIT_HASH_BYTES], char after)
{
    char text[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(text, hash, TACIT_HASH_BYTES);
    printf("%s%c", text, after);
}

static void print_proof(const char *kind, uint64_t size, uint64_t other,
                        const uint8_t root[TACIT_HASH_BYTES], const uint8_t hash[TACIT_HASH_BYTES],
                        const tacit_proof *proof)
{
    printf("%s %llu %llu ", kind, (unsigned long long)size, (unsigned long long)other);
    print_hash(root, ' ');
    print_hash(hash, proof->count ? ' ' : '\n');
    for (size_t i = 0; i < proof->count; i++)
        print_hash(proof->hash[i], i + 1 < proof->count ? ' ' : '\n');
}

/* Every proof of every tree of at most TWIN leaves, and some of trees near powers of two. */
static int print_vectors(void)
{
    tacit_error err;
    tacit_proof proof;
    tacit_merkle_memory m = {0};
    tacit_merkle_store store = tacit_merkle_memory_store(&m);
    uint8_t root[TACIT_HASH_BYTES], old_root[TACIT_HASH_BYTES];
    for (uint32_t i = 0; i < 4100; i++)
        add_leaf(&m, &i, sizeof i);
    for (uint64_t size = 1; size <= m.count[0]; size += size < TWIN ? 1 : 403) {
        uint64_t step = size <= TWIN ? 1 : 1 + size / 13;
        assert_int_equal(tacit_merkle_root(&store, size, root, &err), TACIT_OK);
        for (uint64_t at = 0; at < size; at += step) {
            assert_int_equal(tacit_merkle_inclusion(&store, at, size, &proof, &err), TACIT_OK);
            print_proof("inclusion", size, at, root, m.level[0][at], &proof);
            assert_int_equal(tacit_merkle_root(&store, at + 1, old_root, &err), TACIT_OK);
            assert_int_equal(tacit_merkle_consistency(&store, at + 1, size, &proof, &err),
                             TACIT_OK);
            print_proof("consistency", size, at + 1, root, old_root, &proof);
        }
    }
    tacit_merkle_memory_free(&m);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roots_of_the_reference_tree),
        cmocka_unit_test(test_proofs_of_the_reference_tree),
        cmocka_unit_test(test_the_example_of_rfc_9162),
        cmocka_unit_test(test_the_frontier_has_every_root),
        cmocka_unit_test(test_inclusion_equals_the_naive_twin),
        cmocka_unit_test(test_consistency_equals_the_naive_twin),
        cmocka_unit_test(test_a_shorter_log_continues_nothing),
        cmocka_unit_test(test_work_grows_with_the_logarithm),
        cmocka_unit_test(test_huge_sizes_stay_in_bounds),
    };
    if (argc > 1 && strcmp(argv[1], "vectors") == 0)
        return print_vectors();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
