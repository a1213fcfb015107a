/* Sealed updates: compressed, signed by the device, encrypted to the key of one round's aggregator,
 * and bound to device, plan and reserve. What is sealed is opaque here (a serialised Update).
 *
 * Format (all integers little-endian, n = bytes of the frames):
 *
 *   16  "tacit-sealed-1", two NULs
 *   32  ephemeral X25519 public key
 *   24  header of crypto_secretstream_xchacha20poly1305
 *   chunks of 64 KiB plaintext + 17 bytes; the last is 1 to 64 KiB + 17 and carries TAG_FINAL
 *
 *   plaintext: 64 Ed25519 signature | 8 size of the update (u64) | n one zstd frame and one
 *              skippable frame of zeros (RFC 8878, magic 0x184D2A50)
 *
 * The skippable frame fills up what compression saved: how many bytes are sealed follows from the
 * size of the update alone (tacit_seal_bound), never from what it says. A noised update hardly
 * shrinks, one that says nothing shrinks to nothing, and both are seen to have the same length.
 *
 *   key        BLAKE2b-256(key = X25519(ephemeral, recipient), "tacit-seal-1" | ephemeral |
 *              recipient | device | plan hash | reserve hash); an all-zero X25519 is refused
 *   associated data of each chunk: the 72 header bytes | device | plan hash | reserve hash
 *   signature  domain "tacit-update-1" over device | plan hash | reserve hash | recipient |
 *              update size (u64) | SHA-256 of the frames
 *
 * The signature inside names the recipient (no surreptitious forwarding); a sealed update that
 * opens is complete (TAG_FINAL), in order, of this device, plan and reserve. Keys are wiped.
 * Sealing the same update twice gives different bytes: seal once, store, send those. Thread-safe.
 */
#ifndef TACIT_COMMON_SEAL_H
#define TACIT_COMMON_SEAL_H

#include "common/bytes.h"
#include "common/digest.h"
#include "common/identity.h"
#include "common/secret.h"
#include "common/status.h"

#define TACIT_SEAL_CHUNK 65536u

/* The bytes that an update of `size` bytes takes when tacit_seal seals it. */
size_t tacit_seal_bound(size_t size);

typedef struct tacit_seal_binding {
    const uint8_t *device;       /* TACIT_DEVICE_BYTES */
    const uint8_t *plan_hash;    /* TACIT_DIGEST_BYTES */
    const uint8_t *reserve_hash; /* TACIT_DIGEST_BYTES */
} tacit_seal_binding;

/* A round's aggregator key: 32 secret bytes and the public key that the plan carries. */
tacit_status tacit_seal_keypair(uint8_t public_key[TACIT_EXCHANGE_BYTES], tacit_secret *secret,
                                tacit_error *err) TACIT_MUST_CHECK;

/* Appends the sealed bytes, tacit_seal_bound(size) of them, to `out`, whose cap holds.
 * TACIT_INTEGRITY for a recipient key of small order, TACIT_NO_MEMORY. */
tacit_status tacit_seal(tacit_buffer *out, const void *update, size_t size,
                        const tacit_seal_binding *binding, const tacit_identity *signer,
                        const uint8_t recipient[TACIT_EXCHANGE_BYTES],
                        tacit_error *err) TACIT_MUST_CHECK;

/* Opens hostile bytes into `out`, which is emptied first; out->cap, which must not be 0, is the
 * most that the update may have and is checked before anything of that size is allocated.
 * TACIT_BAD_INPUT: not this format, truncated or above the cap. TACIT_INTEGRITY: altered, or of
 * another device, plan, reserve, recipient or signer. Nothing is left in `out` on failure. */
tacit_status tacit_seal_open(tacit_buffer *out, const uint8_t *sealed, size_t size,
                             const tacit_seal_binding *binding,
                             const uint8_t signer_key[TACIT_SIGN_KEY_BYTES],
                             const tacit_secret *recipient, tacit_error *err) TACIT_MUST_CHECK;

#endif
