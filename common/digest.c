#include "common/digest.h"

#include "common/file.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#define SLICE_BYTES ((size_t)4 << 20)

void tacit_digest(uint8_t out[TACIT_DIGEST_BYTES], const void *data, size_t size)
{
    crypto_hash_sha256(out, data, size);
}

void tacit_digest_parts(uint8_t out[TACIT_DIGEST_BYTES], const char *domain,
                        const tacit_span *parts, size_t count)
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, (const uint8_t *)domain, strlen(domain) + 1);
    for (size_t i = 0; i < count; i++) {
        uint8_t length[8];
        tacit_store_u64(length, parts[i].size);
        crypto_hash_sha256_update(&state, length, sizeof length);
        crypto_hash_sha256_update(&state, parts[i].data, parts[i].size);
    }
    crypto_hash_sha256_final(&state, out);
}

/* False where memory is short, or where a policy of the system has no SHA-256. */
static bool digest_slices(uint8_t out[TACIT_DIGEST_BYTES], const uint8_t *data, size_t size,
                          tacit_digest_done *done, void *ctx)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool well = hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;
    for (size_t at = 0, n; well && at < size; at += n) {
        n = size - at < SLICE_BYTES ? size - at : SLICE_BYTES;
        well = EVP_DigestUpdate(hash, data + at, n) == 1;
        if (done)
            done(ctx, data + at, n);
    }
    well = well && EVP_DigestFinal_ex(hash, out, NULL) == 1;
    EVP_MD_CTX_free(hash);
    return well;
}

void tacit_digest_large(uint8_t out[TACIT_DIGEST_BYTES], const void *data, size_t size,
                        tacit_digest_done *done, void *ctx)
{
    if (digest_slices(out, data, size, done, ctx))
        return;
    tacit_digest(out, data, size);
    if (done)
        done(ctx, data, size);
}

tacit_status tacit_digest_file(uint8_t out[TACIT_DIGEST_BYTES], const char *path, tacit_error *err)
{
    tacit_file_map map;
    tacit_status status = tacit_file_map_open(&map, path, err);
    if (status != TACIT_OK)
        return status;
    tacit_digest_large(out, map.data, map.size, NULL, NULL);
    tacit_file_map_close(&map);
    return TACIT_OK;
}
