#include "common/identity.h"

#include "common/bytes.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file: magic and NUL, Ed25519 seed, X25519 secret, BLAKE2b-128 of all before it. */
#define IDENTITY_MAGIC "tacit-keys-1"
enum {
    MAGIC_BYTES = sizeof IDENTITY_MAGIC,
    SEED_AT = MAGIC_BYTES,
    EXCHANGE_AT = SEED_AT + crypto_sign_SEEDBYTES,
    CHECK_AT = EXCHANGE_AT + TACIT_EXCHANGE_BYTES,
    CHECK_BYTES = 16,
    FILE_BYTES = CHECK_AT + CHECK_BYTES
};

struct tacit_identity {
    tacit_secret keys; /* Ed25519 secret key, then X25519 secret key */
    uint8_t sign_key[TACIT_SIGN_KEY_BYTES];
    uint8_t exchange_key[TACIT_EXCHANGE_BYTES];
};

static const uint8_t *sign_secret(const tacit_identity *id)
{
    return id->keys.data;
}

static const uint8_t *exchange_secret(const tacit_identity *id)
{
    return id->keys.data + crypto_sign_SECRETKEYBYTES;
}

static void identity_check(const tacit_secret *file, uint8_t out[CHECK_BYTES])
{
    crypto_generichash(out, CHECK_BYTES, file->data, CHECK_AT, NULL, 0);
}

static tacit_status identity_from_file(tacit_identity **out, const tacit_secret *file,
                                       tacit_error *err)
{
    tacit_identity *id = calloc(1, sizeof *id);
    if (!id)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory for an identity");
    tacit_status status =
        tacit_secret_new(&id->keys, crypto_sign_SECRETKEYBYTES + TACIT_EXCHANGE_BYTES, err);
    if (status != TACIT_OK) {
        free(id);
        return status;
    }
    crypto_sign_seed_keypair(id->sign_key, id->keys.data, file->data + SEED_AT);
    uint8_t *exchange = id->keys.data + crypto_sign_SECRETKEYBYTES;
    memcpy(exchange, file->data + EXCHANGE_AT, TACIT_EXCHANGE_BYTES);
    crypto_scalarmult_base(id->exchange_key, exchange);
    *out = id;
    return TACIT_OK;
}

static tacit_status identity_fresh_file(tacit_secret *file, tacit_error *err)
{
    tacit_status status = tacit_secret_random(file, FILE_BYTES, err);
    if (status != TACIT_OK)
        return status;
    memcpy(file->data, IDENTITY_MAGIC, MAGIC_BYTES);
    identity_check(file, file->data + CHECK_AT);
    return TACIT_OK;
}

tacit_status tacit_identity_create(tacit_identity **out, const char *path, tacit_error *err)
{
    tacit_secret file = {0};
    tacit_status status;
    *out = NULL;
    if (access(path, F_OK) == 0)
        return tacit_fail(err, TACIT_CONFLICT,
                          "%s: an identity exists here; it is never overwritten", path);
    TACIT_TRY(identity_fresh_file(&file, err), done);
    TACIT_TRY(tacit_secret_store(&file, path, err), done);
    TACIT_TRY(identity_from_file(out, &file, err), done);
done:
    tacit_secret_free(&file);
    return status;
}

tacit_status tacit_identity_load(tacit_identity **out, const char *path, tacit_error *err)
{
    tacit_secret file = {0};
    uint8_t check[CHECK_BYTES];
    tacit_status status;
    *out = NULL;
    TACIT_TRY(tacit_secret_load(&file, path, FILE_BYTES, FILE_BYTES, err), done);
    identity_check(&file, check);
    if (memcmp(file.data, IDENTITY_MAGIC, MAGIC_BYTES) != 0 ||
        sodium_memcmp(check, file.data + CHECK_AT, CHECK_BYTES) != 0) {
        status = tacit_fail(err, TACIT_INTEGRITY,
                            "%s: not an identity of Tacit, or damaged; restore it from a backup or "
                            "enrol this device anew",
                            path);
        goto done;
    }
    TACIT_TRY(identity_from_file(out, &file, err), done);
done:
    tacit_secret_free(&file);
    return status;
}

tacit_status tacit_identity_ephemeral(tacit_identity **out, tacit_error *err)
{
    tacit_secret file = {0};
    tacit_status status;
    *out = NULL;
    TACIT_TRY(identity_fresh_file(&file, err), done);
    TACIT_TRY(identity_from_file(out, &file, err), done);
done:
    tacit_secret_free(&file);
    return status;
}

void tacit_identity_free(tacit_identity *id)
{
    if (!id)
        return;
    tacit_secret_free(&id->keys);
    free(id);
}

const uint8_t *tacit_identity_sign_key(const tacit_identity *id)
{
    return id->sign_key;
}
const uint8_t *tacit_identity_exchange_key(const tacit_identity *id)
{
    return id->exchange_key;
}

/* domain, NUL, message in one malloc'ed piece: Ed25519 needs it whole. */
static uint8_t *join_domain(const char *domain, const void *message, size_t size, size_t *total)
{
    size_t prefix = domain ? strlen(domain) + 1 : 0;
    if (!tacit_add_size(prefix, size, total))
        return NULL;
    uint8_t *joined = malloc(*total ? *total : 1);
    if (!joined)
        return NULL;
    if (prefix)
        memcpy(joined, domain, prefix);
    if (size)
        memcpy(joined + prefix, message, size);
    return joined;
}

tacit_status tacit_identity_sign(const tacit_identity *id, const char *domain, const void *message,
                                 size_t size, uint8_t signature[TACIT_SIGNATURE_BYTES],
                                 tacit_error *err)
{
    size_t total;
    uint8_t *joined = join_domain(domain, message, size, &total);
    if (!joined)
        return tacit_fail(err, TACIT_NO_MEMORY, "no memory to sign %zu bytes", size);
    crypto_sign_detached(signature, NULL, joined, total, sign_secret(id));
    free(joined);
    return TACIT_OK;
}

bool tacit_signature_holds(const uint8_t key[TACIT_SIGN_KEY_BYTES], const char *domain,
                           const void *message, size_t size,
                           const uint8_t signature[TACIT_SIGNATURE_BYTES])
{
    size_t total;
    uint8_t *joined = join_domain(domain, message, size, &total);
    if (!joined)
        return false;
    bool holds = crypto_sign_verify_detached(signature, joined, total, key) == 0;
    free(joined);
    return holds;
}

tacit_status tacit_identity_exchange(const tacit_identity *id,
                                     const uint8_t peer[TACIT_EXCHANGE_BYTES],
                                     uint8_t shared[TACIT_EXCHANGE_BYTES], tacit_error *err)
{
    if (crypto_scalarmult(shared, exchange_secret(id), peer) != 0) {
        sodium_memzero(shared, TACIT_EXCHANGE_BYTES);
        return tacit_fail(err, TACIT_INTEGRITY,
                          "the peer's X25519 key has small order: nothing can be shared with it");
    }
    return TACIT_OK;
}
