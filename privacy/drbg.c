#include "privacy/drbg.h"

#include <sodium.h>
#include <string.h>
#include <unistd.h>

/* Small enough to stay in the first-level cache while it is used. */
#define BLOCK_BYTES 16384
#define KEY_BYTES 32

struct tacit_drbg {
    uint8_t key[KEY_BYTES];
    uint8_t block[BLOCK_BYTES];
    uint64_t left; /* unread bytes, at the end of `block` */
    int64_t owner; /* process that keyed it */
    uint64_t insecure;
};

_Static_assert(crypto_stream_chacha20_KEYBYTES == KEY_BYTES, "key of ChaCha20");
_Static_assert(crypto_generichash_KEYBYTES == TACIT_DRBG_SEED_BYTES, "key of BLAKE2b");
_Static_assert(sizeof(tacit_drbg) % sizeof(uint64_t) == 0, "sodium_malloc aligns by the size");

/* key = BLAKE2b-256 keyed by `entropy` over label NUL text NUL more[32]. */
static void derive_key(uint8_t key[KEY_BYTES], const uint8_t entropy[TACIT_DRBG_SEED_BYTES],
                       const char *label, const char *text, const uint8_t more[32])
{
    crypto_generichash_state h;
    crypto_generichash_init(&h, entropy, TACIT_DRBG_SEED_BYTES, KEY_BYTES);
    crypto_generichash_update(&h, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&h, (const uint8_t *)text, strlen(text) + 1);
    crypto_generichash_update(&h, more, 32);
    crypto_generichash_final(&h, key, KEY_BYTES);
    sodium_memzero(&h, sizeof h);
}

static void rekey(tacit_drbg *g)
{
    uint8_t entropy[TACIT_DRBG_SEED_BYTES], old[KEY_BYTES];
    randombytes_buf(entropy, sizeof entropy);
    memcpy(old, g->key, sizeof old);
    derive_key(g->key, entropy, "tacit-drbg-refresh-1", "", old);
    sodium_memzero(entropy, sizeof entropy);
    sodium_memzero(old, sizeof old);
    sodium_memzero(g->block, sizeof g->block);
    g->left = 0;
    g->owner = getpid();
}

/* The next block; its first bytes become the key of the one after it and are erased here. */
static void fill_block(tacit_drbg *g)
{
    static const uint8_t zero_nonce[crypto_stream_chacha20_NONCEBYTES];
    crypto_stream_chacha20(g->block, sizeof g->block, zero_nonce, g->key);
    memcpy(g->key, g->block, KEY_BYTES);
    sodium_memzero(g->block, KEY_BYTES);
    g->left = BLOCK_BYTES - KEY_BYTES;
}

tacit_status tacit_drbg_new(tacit_drbg **out, const char *domain,
                            const uint8_t nonce[TACIT_DRBG_NONCE_BYTES], const uint8_t *test_seed,
                            tacit_error *err)
{
    *out = NULL;
    if (sodium_init() < 0)
        return tacit_fail(err, TACIT_FAILED, "random generator: libsodium cannot start");
    tacit_drbg *g = sodium_malloc(sizeof *g);
    if (!g)
        return tacit_fail(err, TACIT_NO_MEMORY, "random generator: no memory for %zu bytes",
                          sizeof *g);
    memset(g, 0, sizeof *g);
    uint8_t entropy[TACIT_DRBG_SEED_BYTES];
    if (test_seed)
        memcpy(entropy, test_seed, sizeof entropy);
    else
        randombytes_buf(entropy, sizeof entropy);
    derive_key(g->key, entropy, "tacit-drbg-1", domain, nonce);
    sodium_memzero(entropy, sizeof entropy);
    g->owner = getpid();
    g->insecure = test_seed != NULL;
    *out = g;
    return TACIT_OK;
}

void tacit_drbg_free(tacit_drbg *g)
{
    sodium_free(g);
}

void tacit_drbg_bytes(tacit_drbg *g, void *out, size_t size)
{
    uint8_t *to = out;
    if (g->owner != getpid())
        rekey(g);
    while (size > 0) {
        if (g->left == 0)
            fill_block(g);
        size_t n = size < g->left ? size : g->left;
        uint8_t *from = g->block + BLOCK_BYTES - g->left;
        memcpy(to, from, n);
        sodium_memzero(from, n);
        g->left -= n;
        to += n;
        size -= n;
    }
}

void tacit_drbg_refresh(tacit_drbg *g)
{
    if (!g->insecure)
        rekey(g);
}

bool tacit_drbg_insecure(const tacit_drbg *g)
{
    return g->insecure;
}
