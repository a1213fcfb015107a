#include "common/digest.h"

#include "common/file.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <string.h>

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

void tacit_digest_large(uint8_t out[TACIT_DIGEST_BYTES], const void *data, size_t size)
{
    /* It fails where memory is short, or where a policy of the system has no SHA-256. */
    if (EVP_Digest(data, size, out, NULL, EVP_sha256(), NULL) != 1)
        tacit_digest(out, data, size);
}

tacit_status tacit_digest_file(uint8_t out[TACIT_DIGEST_BYTES], const char *path, tacit_error *err)
{
    tacit_file_map map;
    tacit_status status = tacit_file_map_open(&map, path, err);
    if (status != TACIT_OK)
        return status;
    tacit_digest_large(out, map.data, map.size);
    tacit_file_map_close(&map);
    return TACIT_OK;
}
