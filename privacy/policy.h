/* What a device demands of a plan, what it allows to be spent, and whether plan, schedule and
 * reserve say the same. Pure, any thread. */
#ifndef TACIT_PRIVACY_POLICY_H
#define TACIT_PRIVACY_POLICY_H

#include "common/identity.h"
#include "common/status.h"
#include "privacy/mechanism.h"
#include "privacy/note.h"
#include "proto/ledger.pb-c.h"
#include "proto/plan.pb-c.h"

#define TACIT_POLICY_MAX_BYTES 512
#define TACIT_WINDOW_RESERVES_MAX 1000u

/* proto/ledger.proto DevicePolicy as a plain struct. */
typedef struct tacit_policy {
    double epsilon_cap; /* lifetime, over all lineages, servers and local training; > 0 */
    double delta;       /* the account's one delta, in (0, 1) */
    /* Of every plan that is taken, not the least of them: a release of a whole device moves by up
     * to 2 C when one subject goes, by C when everything does; and a subject's clipped gradient
     * moves by up to 2 C when one of its records goes. */
    tacit_privacy_unit unit;
    double minimum_noise_multiplier;
    uint32_t minimum_cohort;
    uint32_t minimum_quorum;
    bool allow_non_private;
    uint32_t devices_per_subject; /* >= 1 */
    char witness[TACIT_VKEY_MAX]; /* whose cosignature a plan's checkpoint needs; "": nobody's */
    double window_epsilon; /* most that window_reserves reserves in a row may cost; 0: no window */
    uint32_t window_reserves; /* at most TACIT_WINDOW_RESERVES_MAX; 0 with window_epsilon */
    uint64_t serial;          /* tells policies of one device apart; demands nothing */
} tacit_policy;

tacit_status tacit_policy_validate(const tacit_policy *policy, tacit_error *err) TACIT_MUST_CHECK;

/* The signed form: packed bytes, the caller's to free, and back. */
tacit_status tacit_policy_pack(const tacit_policy *policy, uint8_t **bytes, size_t *size,
                               tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_policy_unpack(tacit_policy *out, const void *bytes, size_t size,
                                 tacit_error *err) TACIT_MUST_CHECK;

/* Ed25519 over "tacit-policy-1" NUL bytes. */
tacit_status tacit_policy_sign(const void *bytes, size_t size, const tacit_identity *id,
                               uint8_t signature[TACIT_SIGNATURE_BYTES],
                               tacit_error *err) TACIT_MUST_CHECK;

/* An enrolment's policy signature. With a policy key it is over "tacit-policy-key-1" NUL key bytes,
 * so that nobody but the device names the key that may raise its caps; without one (`policy_key`
 * NULL, or empty) it is tacit_policy_sign's. */
tacit_status tacit_policy_enrol_sign(const void *bytes, size_t size,
                                     const uint8_t policy_key[TACIT_SIGN_KEY_BYTES],
                                     const tacit_identity *id,
                                     uint8_t signature[TACIT_SIGNATURE_BYTES],
                                     tacit_error *err) TACIT_MUST_CHECK;
bool tacit_policy_enrol_holds(const uint8_t identity_key[TACIT_SIGN_KEY_BYTES],
                              ProtobufCBinaryData policy, ProtobufCBinaryData policy_key,
                              const uint8_t signature[TACIT_SIGNATURE_BYTES]);

/* TACIT_REFUSED with one clear line: "plan's noise multiplier 0.5 is below this device's minimum
 * 0.8". Unit, noise, cohort, quorum, delta, and mechanism none. Not the budget: that is the
 * account's. A malformed mechanism is TACIT_BAD_INPUT. */
tacit_status tacit_policy_check(const tacit_policy *policy, const Tacit__Plan *plan,
                                tacit_error *err) TACIT_MUST_CHECK;

/* What a reserve logs of the mechanism that ran; unchecked. Divisor and unit_examples, which it
 * does not log, are 1. */
tacit_mechanism tacit_reserve_mechanism(const Tacit__Reserve *reserve);

/* The same of a reserve by itself, for local training, whose plan is not in the log: what it logs
 * is a mechanism that runs (TACIT_BAD_INPUT) and one that the policy allows (TACIT_REFUSED). */
tacit_status tacit_policy_check_reserve(const tacit_policy *policy, const Tacit__Reserve *reserve,
                                        tacit_error *err) TACIT_MUST_CHECK;

/* True when `to` allows anything that `from` does not: only the device itself or its pinned policy
 * key may sign such a change. Another delta always counts. Windows are compared term by term: more
 * epsilon, fewer reserves or none at all allow more. */
bool tacit_policy_weakens(const tacit_policy *from, const tacit_policy *to);

/* Lets *widest allow whatever `policy` allows, term by term; the delta, which never changes, stays.
 * Of all policies of a device: the most that one of them ever allowed of each term. */
void tacit_policy_widen(tacit_policy *widest, const tacit_policy *policy);

/* Structure of a schedule and a plan: sizes, ranges, mechanisms. TACIT_BAD_INPUT names the field.
 */
tacit_status tacit_schedule_validate(const Tacit__Schedule *schedule,
                                     tacit_error *err) TACIT_MUST_CHECK;
tacit_status tacit_plan_validate(const Tacit__Plan *plan, tacit_error *err) TACIT_MUST_CHECK;

/* The plan is round `plan->round_index` of the schedule with this SHA-256: hash, lineage, base,
 * adapter, mechanism, delta, accountant. TACIT_INTEGRITY names the first difference. */
tacit_status tacit_plan_follows_schedule(const Tacit__Plan *plan, const Tacit__Schedule *schedule,
                                         const uint8_t schedule_hash[32],
                                         tacit_error *err) TACIT_MUST_CHECK;

/* The reserve is of this plan and logs what it executes. TACIT_INTEGRITY names the difference. */
tacit_status tacit_reserve_follows_plan(const Tacit__Reserve *reserve, const Tacit__Plan *plan,
                                        const uint8_t plan_hash[32],
                                        tacit_error *err) TACIT_MUST_CHECK;

#endif
