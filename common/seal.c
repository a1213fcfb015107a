#include "common/seal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static const char magic[16] = "tacit-sealed-1";
static const char key_domain[] = "tacit-seal-1";
static const char signature_domain[] = "tacit-update-1";

enum {
    EPHEMERAL_AT = sizeof magic,
    STREAM_AT = EPHEMERAL_AT + TACIT_EXCHANGE_BYTES,
    HEADER_BYTES = STREAM_AT + crypto_secretstream_xchacha20poly1305_HEADERBYTES,
    CHUNK_EXTRA = crypto_secretstream_xchacha20poly1305_ABYTES,
    BINDING_BYTES = TACIT_DEVICE_BYTES + 2 * TACIT_DIGEST_BYTES,
    CONTEXT_BYTES = HEADER_BYTES + BINDING_BYTES, /* associated data of every chunk */
    SIGNED_BYTES = BINDING_BYTES + TACIT_EXCHANGE_BYTES + 8 + TACIT_DIGEST_BYTES,
    PREFIX_BYTES = TACIT_SIGNATURE_BYTES + 8, /* before the zstd frame */
    PADDING_HEADER = 8,                       /* magic, size */
    COMPRESSION_LEVEL = 3
};

static void put_binding(uint8_t *to, const tacit_seal_binding *binding)
{
    memcpy(to, binding->device, TACIT_DEVICE_BYTES);
    memcpy(to + TACIT_DEVICE_BYTES, binding->plan_hash, TACIT_DIGEST_BYTES);
    memcpy(to + TACIT_DEVICE_BYTES + TACIT_DIGEST_BYTES, binding->reserve_hash, TACIT_DIGEST_BYTES);
}

static size_t chunks_of(size_t plain)
{
    return (plain + TACIT_SEAL_CHUNK - 1) / TACIT_SEAL_CHUNK;
}

static size_t sealed_size(size_t plain)
{
    return HEADER_BYTES + plain + chunks_of(plain) * CHUNK_EXTRA;
}

/* What the frame of `size` bytes and its padding take together. False when it cannot be counted. */
static bool frames_size(size_t size, size_t *out)
{
    size_t bound = ZSTD_compressBound(size);
    return !ZSTD_isError(bound) && tacit_add_size(bound, PADDING_HEADER, out);
}

size_t tacit_seal_bound(size_t size)
{
    size_t frames, plain;
    return frames_size(size, &frames) && tacit_add_size(frames, PREFIX_BYTES, &plain)
               ? sealed_size(plain)
               : SIZE_MAX;
}

tacit_status tacit_seal_keypair(uint8_t public_key[TACIT_EXCHANGE_BYTES], tacit_secret *secret,
                                tacit_error *err)
{
    tacit_status status = tacit_secret_random(secret, TACIT_EXCHANGE_BYTES, err);
    if (status == TACIT_OK)
        crypto_scalarmult_base(public_key, secret->data);
    return status;
}

/* --- What both sides derive --- */

/* `own` with `peer` gives the point; ephemeral and recipient are the two public keys. */
static tacit_status derive_key(uint8_t key[crypto_secretstream_xchacha20poly1305_KEYBYTES],
                               const uint8_t *own, const uint8_t *peer, const uint8_t *ephemeral,
                               const uint8_t *recipient, const uint8_t *binding, tacit_error *err)
{
    crypto_generichash_state state;
    uint8_t point[crypto_scalarmult_BYTES];
    if (crypto_scalarmult(point, own, peer) != 0) {
        sodium_memzero(point, sizeof point);
        return tacit_fail(err, TACIT_INTEGRITY,
                          "sealed update: an X25519 key of small order shares nothing");
    }
    crypto_generichash_init(&state, point, sizeof point,
                            crypto_secretstream_xchacha20poly1305_KEYBYTES);
    crypto_generichash_update(&state, (const uint8_t *)key_domain, sizeof key_domain - 1);
    crypto_generichash_update(&state, ephemeral, TACIT_EXCHANGE_BYTES);
    crypto_generichash_update(&state, recipient, TACIT_EXCHANGE_BYTES);
    crypto_generichash_update(&state, binding, BINDING_BYTES);
    crypto_generichash_final(&state, key, crypto_secretstream_xchacha20poly1305_KEYBYTES);
    sodium_memzero(&state, sizeof state);
    sodium_memzero(point, sizeof point);
    return TACIT_OK;
}

static void put_signed(uint8_t to[SIGNED_BYTES], const uint8_t *binding, const uint8_t *recipient,
                       uint64_t size, const uint8_t *frame, size_t frame_size)
{
    memcpy(to, binding, BINDING_BYTES);
    memcpy(to + BINDING_BYTES, recipient, TACIT_EXCHANGE_BYTES);
    tacit_store_u64(to + BINDING_BYTES + TACIT_EXCHANGE_BYTES, size);
    tacit_digest(to + BINDING_BYTES + TACIT_EXCHANGE_BYTES + 8, frame, frame_size);
}

/* --- Sealing --- */

/* A skippable frame of exactly `size` bytes, which is at least its header. */
static void put_padding(uint8_t *to, size_t size)
{
    tacit_store_u32(to, ZSTD_MAGIC_SKIPPABLE_START);
    tacit_store_u32(to + 4, (uint32_t)(size - PADDING_HEADER));
    memset(to + PADDING_HEADER, 0, size - PADDING_HEADER);
}

/* signature | size | frame | padding: malloc'ed, to be wiped by drop_plain. */
static tacit_status make_plain(uint8_t **plain, size_t *plain_size, const void *update, size_t size,
                               const uint8_t *binding, const tacit_identity *signer,
                               const uint8_t *recipient, tacit_error *err)
{
    uint8_t named[SIGNED_BYTES];
    size_t frames, room;
    *plain = NULL;
    if (!frames_size(size, &frames) || frames > UINT32_MAX ||
        !tacit_add_size(frames, PREFIX_BYTES, &room) || !(*plain = malloc(room)))
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to seal %zu bytes", size);
    *plain_size = room;
    uint8_t *frame = *plain + PREFIX_BYTES;
    size_t used = ZSTD_compress(frame, frames - PADDING_HEADER, update, size, COMPRESSION_LEVEL);
    if (ZSTD_isError(used))
        return tacit_fail(err, TACIT_FAILED, "cannot compress %zu bytes: %s", size,
                          ZSTD_getErrorName(used));
    put_padding(frame + used, frames - used);
    tacit_store_u64(*plain + TACIT_SIGNATURE_BYTES, size);
    put_signed(named, binding, recipient, size, frame, frames);
    return tacit_identity_sign(signer, signature_domain, named, sizeof named, *plain, err);
}

static void drop_plain(uint8_t *plain, size_t size)
{
    if (plain)
        sodium_memzero(plain, size);
    free(plain);
}

/* Writes every chunk behind the header, which `context` starts with. */
static void push_chunks(crypto_secretstream_xchacha20poly1305_state *state, uint8_t *to,
                        const uint8_t *plain, size_t size, const uint8_t context[CONTEXT_BYTES])
{
    for (size_t at = 0; at < size; at += TACIT_SEAL_CHUNK) {
        size_t n = size - at < TACIT_SEAL_CHUNK ? size - at : TACIT_SEAL_CHUNK;
        bool last = at + n == size;
        crypto_secretstream_xchacha20poly1305_push(
            state, to, NULL, plain + at, n, context, CONTEXT_BYTES,
            last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL
                 : crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
        to += n + CHUNK_EXTRA;
    }
}

static tacit_status encrypt(tacit_buffer *out, const uint8_t *plain, size_t size,
                            const uint8_t *binding, const uint8_t *recipient, tacit_error *err)
{
    crypto_secretstream_xchacha20poly1305_state state;
    uint8_t context[CONTEXT_BYTES], key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
    tacit_secret own = {0};
    size_t total = sealed_size(size);
    uint8_t *sealed = malloc(total);
    tacit_status status;
    if (!sealed)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to seal %zu bytes", size);
    memcpy(context, magic, sizeof magic);
    memcpy(context + HEADER_BYTES, binding, BINDING_BYTES);
    TACIT_TRY(tacit_seal_keypair(context + EPHEMERAL_AT, &own, err), done);
    TACIT_TRY(derive_key(key, own.data, recipient, context + EPHEMERAL_AT, recipient, binding, err),
              done);
    crypto_secretstream_xchacha20poly1305_init_push(&state, context + STREAM_AT, key);
    memcpy(sealed, context, HEADER_BYTES);
    push_chunks(&state, sealed + HEADER_BYTES, plain, size, context);
    status = tacit_buffer_append(out, sealed, total);
    if (status != TACIT_OK)
        status = tacit_fail(err, status, "sealed update of %zu bytes: above the cap, or no memory",
                            total);
done:
    sodium_memzero(&state, sizeof state);
    sodium_memzero(key, sizeof key);
    tacit_secret_free(&own);
    free(sealed);
    return status;
}

tacit_status tacit_seal(tacit_buffer *out, const void *update, size_t size,
                        const tacit_seal_binding *binding, const tacit_identity *signer,
                        const uint8_t recipient[TACIT_EXCHANGE_BYTES], tacit_error *err)
{
    uint8_t bound[BINDING_BYTES], *plain = NULL;
    size_t plain_size = 0;
    tacit_status status;
    put_binding(bound, binding);
    TACIT_TRY(make_plain(&plain, &plain_size, update, size, bound, signer, recipient, err), done);
    TACIT_TRY(encrypt(out, plain, plain_size, bound, recipient, err), done);
done:
    drop_plain(plain, plain_size);
    return status;
}

/* --- Opening --- */

/* Bytes of plaintext in a sealed update of `size` bytes; false for sizes that none has. */
static bool plain_size_of(size_t size, size_t *plain)
{
    const size_t chunk = TACIT_SEAL_CHUNK + CHUNK_EXTRA;
    if (size < HEADER_BYTES + CHUNK_EXTRA + PREFIX_BYTES)
        return false;
    size_t body = size - HEADER_BYTES, last = body % chunk;
    size_t chunks = body / chunk + (last != 0);
    if (last != 0 && last <= CHUNK_EXTRA)
        return false;
    *plain = body - chunks * CHUNK_EXTRA;
    return true;
}

static bool pull_chunks(crypto_secretstream_xchacha20poly1305_state *state, uint8_t *plain,
                        size_t plain_size, const uint8_t *from,
                        const uint8_t context[CONTEXT_BYTES])
{
    for (size_t at = 0; at < plain_size; at += TACIT_SEAL_CHUNK) {
        unsigned char tag = 0;
        size_t n = plain_size - at < TACIT_SEAL_CHUNK ? plain_size - at : TACIT_SEAL_CHUNK;
        bool last = at + n == plain_size;
        if (crypto_secretstream_xchacha20poly1305_pull(state, plain + at, NULL, &tag, from,
                                                       n + CHUNK_EXTRA, context,
                                                       CONTEXT_BYTES) != 0 ||
            tag != (last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL
                         : crypto_secretstream_xchacha20poly1305_TAG_MESSAGE))
            return false;
        from += n + CHUNK_EXTRA;
    }
    return true;
}

static tacit_status decrypt(uint8_t *plain, size_t plain_size, const uint8_t *sealed,
                            const uint8_t *binding, const tacit_secret *secret,
                            uint8_t recipient[TACIT_EXCHANGE_BYTES], tacit_error *err)
{
    crypto_secretstream_xchacha20poly1305_state state;
    uint8_t context[CONTEXT_BYTES], key[crypto_secretstream_xchacha20poly1305_KEYBYTES];
    memcpy(context, sealed, HEADER_BYTES);
    memcpy(context + HEADER_BYTES, binding, BINDING_BYTES);
    crypto_scalarmult_base(recipient, secret->data);
    tacit_status status = derive_key(key, secret->data, context + EPHEMERAL_AT,
                                     context + EPHEMERAL_AT, recipient, binding, err);
    if (status != TACIT_OK)
        return status;
    bool ok =
        crypto_secretstream_xchacha20poly1305_init_pull(&state, context + STREAM_AT, key) == 0 &&
        pull_chunks(&state, plain, plain_size, sealed + HEADER_BYTES, context);
    sodium_memzero(&state, sizeof state);
    sodium_memzero(key, sizeof key);
    return ok ? TACIT_OK
              : tacit_fail(err, TACIT_INTEGRITY,
                           "sealed update: altered, cut, or sealed for another device, plan, "
                           "reserve or key");
}

/* One skippable frame of zeros: nothing else travels behind an update. */
static bool is_padding(const uint8_t *bytes, size_t size)
{
    return size >= PADDING_HEADER && tacit_load_u32(bytes) == ZSTD_MAGIC_SKIPPABLE_START &&
           tacit_load_u32(bytes + 4) == size - PADDING_HEADER &&
           sodium_is_zero(bytes + PADDING_HEADER, size - PADDING_HEADER);
}

/* The frame must be exactly one, say its size, and that size must be the signed one: zstd then
 * writes no byte more than was allocated. Behind it is padding alone. */
static tacit_status decompress(tacit_buffer *out, const uint8_t *frame, size_t frames,
                               uint64_t size, tacit_error *err)
{
    size_t frame_size = ZSTD_findFrameCompressedSize(frame, frames);
    if (ZSTD_isError(frame_size) || frame_size > frames ||
        !is_padding(frame + frame_size, frames - frame_size) ||
        ZSTD_getFrameContentSize(frame, frame_size) != size)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "sealed update: not one zstd frame of its size and padding");
    uint8_t *update = malloc(size ? (size_t)size : 1);
    if (!update)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for an update of %llu bytes",
                          (unsigned long long)size);
    size_t got = ZSTD_decompress(update, (size_t)size, frame, frame_size);
    if (ZSTD_isError(got) || got != size) {
        free(update);
        return tacit_fail(err, TACIT_BAD_INPUT, "sealed update: its zstd frame is damaged");
    }
    free(out->data);
    out->data = update;
    out->size = (size_t)size;
    out->capacity = (size_t)(size ? size : 1);
    return TACIT_OK;
}

static tacit_status open_plain(tacit_buffer *out, const uint8_t *plain, size_t plain_size,
                               const uint8_t *binding, const uint8_t *recipient,
                               const uint8_t *signer_key, tacit_error *err)
{
    uint8_t named[SIGNED_BYTES];
    const uint8_t *frame = plain + PREFIX_BYTES;
    size_t frame_size = plain_size - PREFIX_BYTES;
    uint64_t size = tacit_load_u64(plain + TACIT_SIGNATURE_BYTES);
    put_signed(named, binding, recipient, size, frame, frame_size);
    if (!tacit_signature_holds(signer_key, signature_domain, named, sizeof named, plain))
        return tacit_fail(err, TACIT_INTEGRITY,
                          "sealed update: the device's signature inside does not hold");
    if (size > out->cap)
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "sealed update: expected at most %zu bytes inside, found %llu", out->cap,
                          (unsigned long long)size);
    return decompress(out, frame, frame_size, size, err);
}

tacit_status tacit_seal_open(tacit_buffer *out, const uint8_t *sealed, size_t size,
                             const tacit_seal_binding *binding,
                             const uint8_t signer_key[TACIT_SIGN_KEY_BYTES],
                             const tacit_secret *recipient, tacit_error *err)
{
    uint8_t bound[BINDING_BYTES], recipient_key[TACIT_EXCHANGE_BYTES], *plain = NULL;
    size_t plain_size = 0;
    tacit_status status;
    out->size = 0;
    if (out->cap == 0 || recipient->size != TACIT_EXCHANGE_BYTES)
        return tacit_fail(err, TACIT_USAGE, "opening a sealed update needs a cap and a key");
    if (!plain_size_of(size, &plain_size) || memcmp(sealed, magic, sizeof magic) != 0)
        return tacit_fail(err, TACIT_BAD_INPUT, "not a sealed update of this format, or cut");
    if (size > tacit_seal_bound(out->cap))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "sealed update: expected at most %zu bytes, found %zu",
                          tacit_seal_bound(out->cap), size);
    plain = malloc(plain_size);
    if (!plain)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to open %zu bytes", size);
    put_binding(bound, binding);
    TACIT_TRY(decrypt(plain, plain_size, sealed, bound, recipient, recipient_key, err), done);
    TACIT_TRY(open_plain(out, plain, plain_size, bound, recipient_key, signer_key, err), done);
done:
    drop_plain(plain, plain_size);
    return status;
}
