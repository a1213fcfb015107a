/* Random bytes for noise and sampling: ChaCha20 (djb's, 64-bit counter) with fast key erasure.
 *
 * The first key is BLAKE2b-256, keyed with 32 bytes of the kernel's generator, over domain and
 * nonce: neither a weak kernel generator after a snapshot nor a server that chooses the nonce
 * alone determines it. Every block's first 32 bytes become the next key and given bytes are
 * wiped, so a memory image taken later does not reveal noise that was added before. In a forked
 * child the first call makes a key of its own.
 *
 * Not thread-safe: one owner per generator. libsodium aborts the process when the kernel gives no
 * random bytes; there is no way to go on without them. */
#ifndef TACIT_PRIVACY_DRBG_H
#define TACIT_PRIVACY_DRBG_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TACIT_DRBG_NONCE_BYTES 32
#define TACIT_DRBG_SEED_BYTES 32

typedef struct tacit_drbg tacit_drbg;

/* `domain` separates generators that share nonce and seed ("noise", "sampling"); `nonce` is the
 * server's, or zeros in local training. `test_seed` replaces the kernel's bytes and makes every
 * output reproducible: the generator then says so (tacit_drbg_insecure) and the spend must be
 * logged as insecure. NULL in every real use. TACIT_NO_MEMORY when locked memory is refused. */
tacit_status tacit_drbg_new(tacit_drbg **out, const char *domain,
                            const uint8_t nonce[TACIT_DRBG_NONCE_BYTES],
                            const uint8_t *test_seed /* [32] or NULL */,
                            tacit_error *err) TACIT_MUST_CHECK;
void tacit_drbg_free(tacit_drbg *g);

/* Fills `out`; two calls give the same bytes as one call of the summed size. */
void tacit_drbg_bytes(tacit_drbg *g, void *out, size_t size);

/* Mixes fresh kernel bytes into the key and drops what was generated ahead: at every step, so that
 * two copies of one disk or memory image part there. Does nothing under a test seed. */
void tacit_drbg_refresh(tacit_drbg *g);

/* True under a test seed. */
bool tacit_drbg_insecure(const tacit_drbg *g);

#endif
