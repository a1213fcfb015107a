#include "privacy/signed_policy.h"

#include "common/digest.h"
#include "common/message.h"
#include "common/text.h"
#include "privacy/entry.h"

#include <stdlib.h>
#include <string.h>

#define SIGNED_FORMAT 1
#define WORD_MAX 255

static tacit_span span_of_text(const char *text)
{
    return (tacit_span){(const uint8_t *)text, strlen(text)};
}

static void digest_of(uint8_t out[TACIT_DIGEST_BYTES], const Tacit__PolicyChanged *change,
                      const uint8_t identity_key[TACIT_SIGN_KEY_BYTES])
{
    const tacit_span parts[] = {
        {identity_key, TACIT_SIGN_KEY_BYTES}, span_of_text(change->who),
        span_of_text(change->role),           span_of_text(change->meaning),
        span_of_text(change->reason),         tacit_span_of(change->policy),
    };
    tacit_digest_parts(out, TACIT_SIGNED_POLICY_DOMAIN, parts, sizeof parts / sizeof parts[0]);
}

static bool serial_fits(uint64_t serial)
{
    return serial >= 1 && serial <= TACIT_SIGNED_SERIAL_MAX;
}

static bool word_fits(const char *text)
{
    size_t size = strlen(text);
    return size >= 1 && size <= WORD_MAX && tacit_text_is_plain(text, size);
}

static tacit_status check_shape(const Tacit__SignedPolicy *m, const tacit_policy *policy,
                                tacit_error *err)
{
    const struct {
        const char *name, *text;
    } words[] = {
        {"who", m->who}, {"role", m->role}, {"meaning", m->meaning}, {"reason", m->reason}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!word_fits(words[i].text))
            return tacit_fail(err, TACIT_BAD_INPUT,
                              "signed policy: %s: expected 1 to %d bytes of plain text, found %zu",
                              words[i].name, WORD_MAX, strlen(words[i].text));
    if (!tacit_bytes_are(m->identity_key, TACIT_SIGN_KEY_BYTES) ||
        !tacit_bytes_are(m->signature, TACIT_SIGNATURE_BYTES))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "signed policy: identity_key and signature: expected 32 and 64 bytes, "
                          "found %zu and %zu",
                          m->identity_key.len, m->signature.len);
    if (!serial_fits(policy->serial))
        return tacit_fail(err, TACIT_BAD_INPUT,
                          "signed policy: serial: expected 1 to 2^53, found %llu",
                          (unsigned long long)policy->serial);
    return TACIT_OK;
}

tacit_status tacit_signed_policy_make(const tacit_policy *policy,
                                      const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                                      const tacit_policy_words *words,
                                      const tacit_identity *policy_key, uint8_t **bytes,
                                      size_t *size, tacit_error *err)
{
    Tacit__SignedPolicy m = TACIT__SIGNED_POLICY__INIT;
    Tacit__PolicyChanged change;
    uint8_t digest[TACIT_DIGEST_BYTES], signature[TACIT_SIGNATURE_BYTES] = {0}, *packed;
    size_t packed_size;
    tacit_status status = tacit_policy_pack(policy, &packed, &packed_size, err);
    if (status != TACIT_OK)
        return status;
    m.format = SIGNED_FORMAT;
    m.identity_key = tacit_field_of(identity_key, TACIT_SIGN_KEY_BYTES);
    m.who = (char *)(uintptr_t)words->who;
    m.role = (char *)(uintptr_t)words->role;
    m.meaning = (char *)(uintptr_t)words->meaning;
    m.reason = (char *)(uintptr_t)words->reason;
    m.policy = tacit_field_of(packed, packed_size);
    m.signature = tacit_field_of(signature, sizeof signature);
    TACIT_TRY(check_shape(&m, policy, err), done);
    tacit_signed_policy_change(&m, &change);
    digest_of(digest, &change, identity_key);
    TACIT_TRY(tacit_identity_sign(policy_key, TACIT_SIGNED_POLICY_DOMAIN, digest, sizeof digest,
                                  signature, err),
              done);
    status = tacit_message_pack(&m, TACIT_SIGNED_POLICY_MAX, bytes, size, err);
done:
    free(packed);
    return status;
}

tacit_status tacit_signed_policy_open(tacit_signed_policy *out, const void *bytes, size_t size,
                                      tacit_error *err)
{
    Tacit__SignedPolicy *m;
    *out = (tacit_signed_policy){0};
    tacit_status status =
        TACIT_UNPACK(&m, tacit__signed_policy, bytes, size, TACIT_SIGNED_POLICY_MAX, err);
    if (status != TACIT_OK)
        return tacit_fail_context(err, "signed policy");
    if (m->format != SIGNED_FORMAT)
        status = tacit_fail(err, TACIT_BAD_INPUT, "signed policy: expected format %d, found %u",
                            SIGNED_FORMAT, m->format);
    if (status == TACIT_OK)
        status = tacit_policy_unpack(&out->policy, m->policy.data, m->policy.len, err);
    if (status == TACIT_OK)
        status = check_shape(m, &out->policy, err);
    if (status == TACIT_OK)
        out->message = m;
    else
        tacit_message_free(m);
    return status;
}

void tacit_signed_policy_change(const Tacit__SignedPolicy *message, Tacit__PolicyChanged *out)
{
    *out = (Tacit__PolicyChanged)TACIT__POLICY_CHANGED__INIT;
    out->who = message->who;
    out->role = message->role;
    out->meaning = message->meaning;
    out->reason = message->reason;
    out->policy = message->policy;
    out->signature = message->signature;
}

tacit_policy_signer tacit_policy_change_signer(const Tacit__PolicyChanged *change, uint64_t serial,
                                               const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                                               const uint8_t *policy_key)
{
    uint8_t digest[TACIT_DIGEST_BYTES];
    if (change->signature.len != TACIT_SIGNATURE_BYTES)
        return TACIT_POLICY_BY_NOBODY;
    if (tacit_signature_holds(identity_key, TACIT_POLICY_DOMAIN, change->policy.data,
                              change->policy.len, change->signature.data))
        return TACIT_POLICY_BY_DEVICE;
    if (!policy_key || !serial_fits(serial))
        return TACIT_POLICY_BY_NOBODY;
    digest_of(digest, change, identity_key);
    return tacit_signature_holds(policy_key, TACIT_SIGNED_POLICY_DOMAIN, digest, sizeof digest,
                                 change->signature.data)
               ? TACIT_POLICY_BY_KEY
               : TACIT_POLICY_BY_NOBODY;
}
