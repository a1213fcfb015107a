/* Policies that a policy key signs: how somebody who is not at the device, the privacy officer of a
 * hospital or a carmaker, changes what it demands and raises its cap. The device pins the public
 * half when it enrols and signs it with its policy (privacy/policy.h); the private half never is on
 * the server.
 *
 * What prevents a replay. The signature is over the device's identity key, so it is of no use for
 * another device that pinned the same key, whatever pseudonym a server gives either: there is no
 * policy "for all". It is over the policy's serial, and device, log and auditor each take only
 * serials above every one that the policy key signed before, so an older policy is of no use once a
 * newer one was taken, though it never was in the log. It is over the words that the log keeps of
 * it, so that nobody else says why. Serials of policies that the device itself declares are a line
 * of their own.
 *
 * Pure, any thread. */
#ifndef TACIT_PRIVACY_SIGNED_POLICY_H
#define TACIT_PRIVACY_SIGNED_POLICY_H

#include "privacy/policy.h"

#define TACIT_SIGNED_POLICY_MAX 4096                    /* bytes of a file that is read */
#define TACIT_SIGNED_SERIAL_MAX ((uint64_t)1 << 53)     /* serials are 1 to this */
#define TACIT_SIGNED_POLICY_DOMAIN "tacit-policy-for-1" /* signs the digest */

/* Who wants it, as what, what it means and why: plain text of 1 to 255 bytes each. */
typedef struct tacit_policy_words {
    const char *who, *role, *meaning, *reason;
} tacit_policy_words;

/* Signs `policy`, its serial set, for the device of `identity_key`. The packed SignedPolicy is
 * malloc'ed, the caller's. TACIT_BAD_INPUT: the serial is out of range, a word is no plain text, or
 * the policy is none. */
tacit_status tacit_signed_policy_make(const tacit_policy *policy,
                                      const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                                      const tacit_policy_words *words,
                                      const tacit_identity *policy_key, uint8_t **bytes,
                                      size_t *size, tacit_error *err) TACIT_MUST_CHECK;

/* A SignedPolicy that was parsed; free `message` with tacit_message_free. */
typedef struct tacit_signed_policy {
    Tacit__SignedPolicy *message;
    tacit_policy policy;
} tacit_signed_policy;

/* Parses hostile bytes; proves nothing. TACIT_BAD_INPUT. */
tacit_status tacit_signed_policy_open(tacit_signed_policy *out, const void *bytes, size_t size,
                                      tacit_error *err) TACIT_MUST_CHECK;

/* What the log keeps of it; points into `message`. */
void tacit_signed_policy_change(const Tacit__SignedPolicy *message, Tacit__PolicyChanged *out);

/* Whose signature a logged change of policy carries. */
typedef enum tacit_policy_signer {
    TACIT_POLICY_BY_NOBODY, /* none, or one that does not hold */
    TACIT_POLICY_BY_DEVICE,
    TACIT_POLICY_BY_KEY /* the policy key, for this device; the serial is in range */
} tacit_policy_signer;

/* `policy_key` NULL: the device pinned none. `serial` is that of the change's policy. */
tacit_policy_signer tacit_policy_change_signer(const Tacit__PolicyChanged *change, uint64_t serial,
                                               const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                                               const uint8_t *policy_key);

#endif
