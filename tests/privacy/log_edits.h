/* Edits of a world's log on its way into being: what hooks (world.h) of several test programs ask,
 * slip in and leave out. Included after cmocka.h and world.h. */
#ifndef TACIT_TESTS_LOG_EDITS_H
#define TACIT_TESTS_LOG_EDITS_H

#include "privacy/signed_policy.h"
#include "world.h"

/* Bytes that an edited entry points to until it is signed. */
static uint8_t scratch[64];

static inline bool at(const Tacit__Entry *e, Tacit__Entry__BodyCase kind, int round, int device,
                      int r, int d)
{
    return e->body_case == kind && round == r && device == d;
}
#define AT(kind, r, d) at(e, TACIT__ENTRY__BODY_##kind, round, device, r, d)

/* Entries slipped in before a given one. */
static inline void push_about(world *w, int d, Tacit__Entry *e)
{
    e->device = tacit_field_of(w->device[d].name, TACIT_DEVICE_BYTES);
    world_push(w, e, w->log, NULL);
}

static inline void push_revoke(world *w, int d)
{
    Tacit__Entry r = TACIT__ENTRY__INIT;
    Tacit__Revoke b = TACIT__REVOKE__INIT;
    r.body_case = TACIT__ENTRY__BODY_REVOKE;
    r.revoke = &b;
    b.reason = (char *)(uintptr_t) "stolen";
    push_about(w, d, &r);
}

static inline void push_clone(world *w, int d)
{
    Tacit__Entry r = TACIT__ENTRY__INIT;
    Tacit__CloneSuspected b = TACIT__CLONE_SUSPECTED__INIT;
    r.body_case = TACIT__ENTRY__BODY_CLONE_SUSPECTED;
    r.clone_suspected = &b;
    b.evidence = (char *)(uintptr_t) "two bodies";
    push_about(w, d, &r);
}

/* A device-signed entry before the given one, chained rightly. */
static inline void slip_own(world *w, int d, Tacit__Entry *other, Tacit__Entry *e)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    world_hook *hook = w->hook;
    w->hook = NULL;
    world_own(w, other, -1, d, leaf);
    w->hook = hook;
    e->sequence = w->device[d].sequence + 1;
    e->previous = filled(scratch, 32, 0);
    memcpy(scratch, w->device[d].head, 32);
}

static inline void push_change(world *w, int d, const Tacit__PolicyChanged *change)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    e.body_case = TACIT__ENTRY__BODY_POLICY_CHANGED;
    e.policy_changed = (Tacit__PolicyChanged *)(uintptr_t)change;
    push_about(w, d, &e);
}

/* A policy that `key` signed for device `whom`, logged about device `d`. */
static inline void push_signed_policy(world *w, int d, int whom, const tacit_policy *policy,
                                      const tacit_identity *key)
{
    const tacit_policy_words words = {"operator", "operator", "operator", "operator"};
    tacit_signed_policy opened;
    Tacit__PolicyChanged change;
    uint8_t *bytes;
    size_t size;
    OK(tacit_signed_policy_make(policy, tacit_identity_sign_key(w->device[whom].id), &words, key,
                                &bytes, &size, &w->err));
    OK(tacit_signed_policy_open(&opened, bytes, size, &w->err));
    tacit_signed_policy_change(opened.message, &change);
    push_change(w, d, &change);
    tacit_message_free(opened.message);
    free(bytes);
}

/* A policy change; `signer` NULL leaves it unsigned, one that is not the device signs as a policy
 * key does, under a serial that rises with the log. */
static inline void push_policy(world *w, int d, double cap, double delta,
                               const tacit_identity *signer)
{
    static uint8_t signature[TACIT_SIGNATURE_BYTES];
    Tacit__PolicyChanged b = TACIT__POLICY_CHANGED__INIT;
    tacit_policy policy = w->policy;
    policy.epsilon_cap = cap;
    policy.delta = delta;
    if (signer && signer != w->device[d].id) {
        policy.serial += w->count + 1;
        push_signed_policy(w, d, d, &policy, signer);
        return;
    }
    uint8_t *bytes;
    size_t size;
    OK(tacit_policy_pack(&policy, &bytes, &size, &w->err));
    b.who = b.role = b.meaning = b.reason = (char *)(uintptr_t) "operator";
    b.policy = tacit_field_of(bytes, size);
    if (signer) {
        OK(tacit_policy_sign(bytes, size, signer, signature, &w->err));
        b.signature = tacit_field_of(signature, sizeof signature);
    }
    push_change(w, d, &b);
    free(bytes);
}

/* Puts another policy, signed by its device, into an enrolment. */
static inline void set_enrol_policy(world *w, Tacit__Enrol *enrol, int d,
                                    const tacit_policy *policy)
{
    static uint8_t signature[TACIT_SIGNATURE_BYTES], kept[TACIT_POLICY_MAX_BYTES];
    uint8_t *bytes;
    size_t size;
    OK(tacit_policy_pack(policy, &bytes, &size, &w->err));
    OK(tacit_policy_enrol_sign(bytes, size, enrol->policy_key.data, w->device[d].id, signature,
                               &w->err));
    memcpy(kept, bytes, size);
    enrol->policy = tacit_field_of(kept, size);
    enrol->policy_signature = tacit_field_of(signature, sizeof signature);
    free(bytes);
}

/* Device 1 has no part in this round. */
static inline void leave_out(const world *w, Tacit__Aggregate *a, int round)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_reserve_hashes; i++)
        if (memcmp(a->reserve_hashes[i].data, w->device[1].reserve[round], 32) != 0)
            a->reserve_hashes[n++] = a->reserve_hashes[i];
    a->n_reserve_hashes = n;
}

/* A hook by which device 1 trains alone between rounds 1 and 2, edited. */
#define LOCAL(name, edit)                                                                          \
    static inline bool name(world *w, Tacit__Entry *e, int round, int device)                      \
    {                                                                                              \
        uint8_t leaf[TACIT_HASH_BYTES];                                                            \
        Tacit__Reserve reserve = TACIT__RESERVE__INIT, *r = &reserve;                              \
        if (!AT(PLAN, 2, -1))                                                                      \
            return true;                                                                           \
        world_fill_local(w, r, 0x33);                                                              \
        edit;                                                                                      \
        world_price_local(w, r, 1, true);                                                          \
        world_push_local(w, 1, r, leaf);                                                           \
        return true;                                                                               \
    }

LOCAL(local_fine, (void)0)
LOCAL(local_noise, r->b = 77000; r->q_num = TACIT_Q_ONE / 1000)
LOCAL(local_in_a_schedule, memset(r->lineage.data, 0x11, 16))
LOCAL(local_of_a_plan, r->plan_hash = tacit_field_of(w->plan_hash[0], 32))

/* Two reserves that go by one schedule, priced as the device would price such a schedule. */
static inline bool local_twice(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    if (!AT(PLAN, 2, -1))
        return true;
    for (int i = 0; i < 2; i++) {
        Tacit__Reserve r = TACIT__RESERVE__INIT;
        world_fill_local(w, &r, 0x33);
        r.plan_hash.data[0] ^= (uint8_t)i;
        world_price_local(w, &r, 1, i == 0);
        world_push_local(w, 1, &r, leaf);
    }
    return true;
}

static inline bool local_update(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES], digest[TACIT_HASH_BYTES];
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    Tacit__Entry o = TACIT__ENTRY__INIT;
    Tacit__Spend spend = TACIT__SPEND__INIT;
    if (!AT(PLAN, 2, -1))
        return true;
    world_fill_local(w, &r, 0x33);
    world_price_local(w, &r, 1, true);
    world_push_local(w, 1, &r, leaf);
    o.body_case = TACIT__ENTRY__BODY_SPEND;
    o.spend = &spend;
    spend.reserve_hash = tacit_field_of(leaf, sizeof leaf);
    spend.update_digest = filled(digest, sizeof digest, 0x77);
    w->hook = NULL;
    world_own(w, &o, -1, 1, scratch);
    w->hook = local_update;
    return true;
}

#endif
