/* Logs with one fault each, of entries, devices, policies and accounts (test_audit_rounds.c has
 * those of schedules, rounds and publications); and the log that has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_faults.h"
#include "privacy/receipt.h"

/* --- the clean log --- */

static void test_a_clean_log_passes(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    world_init(&w);
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    if (audit.violation_count)
        print_all("clean", &audit);
    assert_int_equal(audit.violation_count, 0);
    assert_int_equal(audit.device_count, WORLD_DEVICES);
    assert_int_equal(audit.publication_count, WORLD_ROUNDS);
    assert_int_equal(audit.rounds, WORLD_ROUNDS);
    tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                         tacit_sampling_rate(TACIT_Q_ONE / 20), 10 * WORLD_ROUNDS};
    for (size_t d = 0; d < audit.device_count; d++) {
        assert_true(is_cost_of(audit.devices[d].epsilon, event, 1e-5));
        assert_int_equal(audit.devices[d].accepted, WORLD_ROUNDS);
        assert_true(audit.devices[d].epsilon_subject == audit.devices[d].epsilon);
    }
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

/* --- one fault at a time --- */

SPOIL(gap, SPEND, 2, 1, e->sequence += 1)
SPOIL(reused, SPEND, 2, 1, e->sequence -= 1)
SPOIL(previous, SPEND, 2, 1, e->previous = filled(scratch, 32, 1))
SPOIL(insecure, RESERVE, 2, 1, e->reserve->insecure = true)
SPOIL(epsilon, RESERVE, 2, 1, e->reserve->epsilon_after *= 0.9999)
SPOIL(cap_stated, RESERVE, 2, 1, e->reserve->epsilon_cap *= 2)
SPOIL(delta_stated, RESERVE, 2, 1, e->reserve->delta *= 2)
SPOIL(steps, RESERVE, 2, 1, e->reserve->steps = 9)
SPOIL(noise, RESERVE, 2, 1, e->reserve->b += 1)
SPOIL(rate, RESERVE, 2, 1, e->reserve->q_num -= 1)
SPOIL(clip, RESERVE, 2, 1, e->reserve->clip_norm *= 2)
SPOIL(unit, RESERVE, 2, 1, e->reserve->unit = TACIT_UNIT_SUBJECT)
SPOIL(values, RESERVE, 2, 1, e->reserve->values += 1)
SPOIL(other_plan, RESERVE, 2, 1, e->reserve->plan_hash = filled(scratch, 32, 1))

/* Device 1 enrols under a window that its third round fills. */
static bool windowed(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(ENROL, -1, 1)) {
        tacit_policy policy = w->policy;
        policy.window_epsilon = 1.5;
        policy.window_reserves = 3;
        set_enrol_policy(w, e->enrol, 1, &policy);
    }
    return true;
}

SPOIL(enrol_policy, ENROL, -1, 1, e->enrol->policy_signature.data[9] ^= 1)
SPOIL(pseudonym, ENROL, -1, 1, e->device = tacit_field_of(w->device[0].name, 16))
SPOIL(digest, SPEND, 2, 1, e->spend->update_digest = filled(scratch, 32, 0x50))
SPOIL(spend_other, SPEND, 2, 1,
      e->spend->reserve_hash = tacit_field_of(w->device[0].reserve[2], 32))
SPOIL(spend_nothing, SPEND, 2, 1, e->spend->reserve_hash = filled(scratch, 32, 3))
SPOIL(decided_digest, UPDATE, 2, 1, e->update->update_digest = filled(scratch, 32, 3))
SPOIL(decided_round, UPDATE, 2, 1, e->update->round_id = filled(scratch, 16, 0xa1))
SPOIL(decided_device, UPDATE, 2, 1, e->device = tacit_field_of(w->device[0].name, 16))
SPOIL(start_origin, SERVER_START, -1, -1,
      e->server_start->origin = (char *)(uintptr_t) "other.example")
DROP(no_enrol, ENROL, -1, 1)
DROP(no_plan, PLAN, 2, -1)
DROP(no_start, SERVER_START, -1, -1)
DROP(no_reserve, RESERVE, 2, 1)
DROP(no_spend, SPEND, 2, 1)

static bool forged_reserve(world *w, Tacit__Entry *e, int round, int device)
{
    if (!AT(RESERVE, 2, 1))
        return true;
    world_push(w, e, w->stranger, w->device[1].reserve[2]);
    return false;
}

static bool revoked(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SPEND, 2, 1))
        push_revoke(w, 1);
    return true;
}

static bool renewed_after(world *w, Tacit__Entry *e, int round, int device)
{
    static uint8_t certificate[32];
    if (AT(ROUND_CLOSED, 2, -1)) {
        Tacit__Entry r = TACIT__ENTRY__INIT;
        Tacit__Renew n = TACIT__RENEW__INIT;
        push_revoke(w, 1);
        r.body_case = TACIT__ENTRY__BODY_RENEW;
        r.renew = &n;
        n.certificate_digest = tacit_field_of(certificate, 32);
        push_about(w, 1, &r);
    }
    return true;
}

static bool frozen(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SPEND, 2, 1))
        push_clone(w, 1);
    return true;
}

static bool lost(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 2, 1)) {
        Tacit__Entry o = TACIT__ENTRY__INIT;
        Tacit__AccountLost b = TACIT__ACCOUNT_LOST__INIT;
        o.body_case = TACIT__ENTRY__BODY_ACCOUNT_LOST;
        o.account_lost = &b;
        b.epsilon_counted = 3;
        slip_own(w, 1, &o, e);
    }
    return true;
}

static bool abandoned(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SPEND, 2, 1)) {
        Tacit__Entry o = TACIT__ENTRY__INIT;
        Tacit__Abandon b = TACIT__ABANDON__INIT;
        o.body_case = TACIT__ENTRY__BODY_ABANDON;
        o.abandon = &b;
        b.reserve_hash = tacit_field_of(w->device[1].reserve[2], 32);
        b.reason = (char *)(uintptr_t) "deadline";
        slip_own(w, 1, &o, e);
    }
    return true;
}

static bool spent_then_abandoned(world *w, Tacit__Entry *e, int round, int device)
{
    static uint8_t own[16];
    if (AT(UPDATE, 2, 1)) {
        Tacit__Entry o = TACIT__ENTRY__INIT, kept = *e;
        Tacit__Abandon b = TACIT__ABANDON__INIT;
        memcpy(own, w->device[1].name, 16);
        o.body_case = TACIT__ENTRY__BODY_ABANDON;
        o.abandon = &b;
        b.reserve_hash = tacit_field_of(w->device[1].reserve[2], 32);
        b.reason = (char *)(uintptr_t) "deadline";
        slip_own(w, 1, &o, e);
        *e = kept;
    }
    return true;
}

static bool reserved_twice(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SPEND, 2, 1)) {
        int d = 1;
        world_hook *hook = w->hook;
        uint8_t kept[TACIT_HASH_BYTES];
        memcpy(kept, w->device[d].reserve[2], sizeof kept);
        w->hook = NULL;
        world_reserve(w, 2, d);
        w->hook = hook;
        memcpy(w->device[d].reserve[2], kept, sizeof kept);
        e->sequence = w->device[d].sequence + 1;
        e->previous = filled(scratch, 32, 0);
        memcpy(scratch, w->device[d].head, 32);
    }
    return true;
}

static bool decided_twice(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(AGGREGATE, 2, -1)) {
        world_hook *hook = w->hook;
        w->hook = NULL;
        Tacit__Entry u = TACIT__ENTRY__INIT;
        Tacit__UpdateDecision b = TACIT__UPDATE_DECISION__INIT;
        u.body_case = TACIT__ENTRY__BODY_UPDATE;
        u.update = &b;
        b.round_id = filled(scratch, 16, 0xa2);
        b.reserve_hash = tacit_field_of(w->device[1].reserve[2], 32);
        b.update_digest = tacit_field_of(w->device[1].digest[2], 32);
        b.reason = (char *)(uintptr_t) "norm";
        push_about(w, 1, &u);
        w->hook = hook;
    }
    return true;
}

static bool plan_after_reserve(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        return false;
    if (AT(RESERVE, 2, 1)) {
        world_hook *hook = w->hook;
        w->hook = NULL;
        world_log_plan(w, 2);
        w->hook = hook;
    }
    return true;
}

static bool garbage(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(ROUND_CLOSED, 2, -1)) {
        uint8_t *bytes = malloc(3);
        memcpy(bytes, "\x0a\x01", 3);
        world_push_bytes(w, bytes, 3);
    }
    return true;
}

static bool tampered(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(ROUND_CLOSED, 2, -1)) {
        uint8_t *bytes;
        size_t size;
        OK(tacit_entry_sign(e, w->log, &bytes, &size, NULL, &w->err));
        bytes[size - 1] ^= 1; /* of the signature */
        world_push_bytes(w, bytes, size);
        return false;
    }
    return true;
}

static bool doubled(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(ROUND_CLOSED, 2, -1)) {
        size_t size = w->entry[w->count - 1].size;
        uint8_t *bytes = malloc(size);
        memcpy(bytes, w->entry[w->count - 1].bytes, size);
        world_push_bytes(w, bytes, size);
    }
    return true;
}

static bool wrong_rotation(world *w, Tacit__Entry *e, int round, int device)
{
    static uint8_t signature[64];
    if (AT(ROUND_CLOSED, 2, -1)) {
        Tacit__Entry r = TACIT__ENTRY__INIT;
        Tacit__KeyRotated k = TACIT__KEY_ROTATED__INIT;
        r.body_case = TACIT__ENTRY__BODY_KEY_ROTATED;
        r.key_rotated = &k;
        k.old_key = tacit_field_of(tacit_identity_sign_key(w->log), 32);
        k.new_key = tacit_field_of(tacit_identity_sign_key(w->stranger), 32);
        k.signature_old = tacit_field_of(signature, 64);
        k.signature_new = tacit_field_of(signature, 64);
        world_push(w, &r, w->log, NULL);
    }
    return true;
}

/* Device 1 agreed to 2.9 once; the cap was lowered; the same bytes and signature are logged again.
 */
static bool old_policy_again(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1)) {
        push_policy(w, 1, 2.9, 1e-5, w->device[1].id);
        push_policy(w, 1, 2.8, 1e-5, NULL);
        push_policy(w, 1, 2.9, 1e-5, w->device[1].id);
    }
    if (AT(RESERVE, 2, 1))
        e->reserve->epsilon_cap = 2.8;
    return true;
}

/* The key is enrolled again, as it was, after its cap was lowered: the lower one stays. */
static void enrol_again(world *w, int d, uint8_t name)
{
    world_hook *hook = w->hook;
    uint8_t kept[TACIT_DEVICE_BYTES];
    memcpy(kept, w->device[d].name, sizeof kept);
    memset(w->device[d].name, name, TACIT_DEVICE_BYTES);
    w->hook = NULL;
    world_enrol(w, d);
    w->hook = hook;
    memcpy(w->device[d].name, kept, sizeof kept);
}

static bool enrolled_again(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1)) {
        push_policy(w, 1, 2.9, 1e-5, NULL);
        enrol_again(w, 1, 0xee);
    }
    if (AT(RESERVE, 2, 1))
        e->reserve->epsilon_cap = 2.9;
    return true;
}

static bool enrolled_again_to_raise(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1)) {
        push_policy(w, 1, 2.9, 1e-5, NULL);
        enrol_again(w, 1, 0xee);
    }
    return true;
}

SPOIL(policy_key_swapped, ENROL, -1, 1,
      e->enrol->policy_key = tacit_field_of(tacit_identity_sign_key(w->stranger), 32))

static bool cap_raised(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        push_policy(w, 1, 30, 1e-5, NULL);
    return true;
}

static bool cap_raised_by_stranger(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        push_policy(w, 1, 30, 1e-5, w->stranger);
    return true;
}

static bool cap_raised_rightly(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        push_policy(w, 1, 30, 1e-5, w->policy_key);
    return true;
}

/* What the policy key signed first is shown after what it signed later (test_signed_policy.c). */
static bool policy_replayed(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        for (uint64_t serial = 6; serial >= 5; serial--) {
            tacit_policy policy = w->policy;
            policy.serial = serial;
            push_signed_policy(w, 1, 1, &policy, w->policy_key);
        }
    return true;
}

static bool delta_changed(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        push_policy(w, 1, 3, 1e-6, w->device[1].id);
    return true;
}

/* The cap sinks below what is spent; the device goes on and says so. */
static bool cap_lowered(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        push_policy(w, 1, 0.1, 1e-5, NULL);
    if (AT(RESERVE, 2, 1))
        e->reserve->epsilon_cap = 0.1;
    return true;
}

/* The device signed its reserve of round 2, then the policy was tightened, then the log took it. */
static bool lowered_then_accepted(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 2, 1))
        push_policy(w, 1, 2.9, 1e-5, NULL);
    return true;
}

static bool lowered_below_then_accepted(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 2, 1))
        push_policy(w, 1, 0.1, 1e-5, NULL);
    return true;
}

static bool tightened_then_accepted(world *w, Tacit__Entry *e, int round, int device)
{
    double noise = w->policy.minimum_noise_multiplier;
    if (AT(RESERVE, 2, 1)) {
        w->policy.minimum_noise_multiplier = 2;
        push_policy(w, 1, 3, 1e-5, NULL);
        w->policy.minimum_noise_multiplier = noise;
    }
    return true;
}

/* --- local training: reserves that no plan of the log stands behind --- */

LOCAL(local_whole_device, r->unit = TACIT_UNIT_DEVICE)
LOCAL(local_delta, r->delta /= 2)
LOCAL(local_cap, r->epsilon_cap *= 2)
LOCAL(local_none, r->kind = TACIT_MECHANISM_NONE; r->b = 0; r->clip_norm = 0)
LOCAL(local_long, r->steps = 2000)
LOCAL(local_seed, r->insecure = true)

/* The unit of the policy is the subject's here; the rounds keep it. */
static bool local_unit(world *w, Tacit__Entry *e, int round, int device)
{
    return local_fine(w, e, round, device);
}

static bool local_epsilon(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    if (!AT(PLAN, 2, -1))
        return true;
    world_fill_local(w, &r, 0x33);
    world_price_local(w, &r, 1, true);
    r.epsilon_after *= 0.9999;
    world_push_local(w, 1, &r, leaf);
    return true;
}

/* The first thing that device 1 does is to train alone, in the lineage that a server takes up. */
static bool local_before_schedule(world *w, Tacit__Entry *e, int round, int device)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    if (!AT(SCHEDULE, -1, -1))
        return true;
    world_fill_local(w, &r, 0x11);
    world_price_local(w, &r, 1, true);
    world_push_local(w, 1, &r, leaf);
    return true;
}

static void subject_schedule(Tacit__Schedule *s)
{
    for (size_t i = 0; i < s->n_rounds; i++)
        s->rounds[i]->mechanism->unit = TACIT__UNIT__UNIT_SUBJECT;
}

static void subject_plan(Tacit__Plan *p, int round)
{
    (void)round;
    p->mechanism->unit = TACIT__UNIT__UNIT_SUBJECT;
}

/* --- after a round ended --- */

/* Device 1 reserved while it was offline; its chain reaches the log when the round is over. */
static bool late_reserve(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(RESERVE, 2, 1) || AT(SPEND, 2, 1) || AT(UPDATE, 2, 1))
        return false;
    if (AT(AGGREGATE, 2, -1))
        leave_out(w, e->aggregate, 2);
    if (AT(ROUND_CLOSED, 2, -1)) {
        w->hook = NULL;
        world_push(w, e, w->log, NULL);
        tacit_budget_open(&w->device[1].budget, w->policy.epsilon_cap, w->policy.delta);
        tacit_event event = {TACIT_ADD_REMOVE, tacit_noise_multiplier(100000),
                             tacit_sampling_rate(TACIT_Q_ONE / 20), 10 * (WORLD_ROUNDS - 1)};
        OK(tacit_budget_add(&w->device[1].budget, &event, WORLD_VALUES, true, &w->err));
        world_reserve(w, 2, 1);
        return false;
    }
    return true;
}

static bool accepted_though_revoked(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(UPDATE, 2, 1))
        push_revoke(w, 1);
    return true;
}

/* A later start that names another operator key. */
static bool another_operator(world *w, Tacit__Entry *e, int round, int device)
{
    static char version[] = "0.1.0", origin[] = WORLD_ORIGIN;
    if (AT(PLAN, 2, -1)) {
        Tacit__Entry s = TACIT__ENTRY__INIT;
        Tacit__ServerStart b = TACIT__SERVER_START__INIT;
        s.body_case = TACIT__ENTRY__BODY_SERVER_START;
        s.server_start = &b;
        b.version = version;
        b.origin = origin;
        b.log_key = tacit_field_of(tacit_identity_sign_key(w->log), 32);
        b.operator_key = tacit_field_of(tacit_identity_sign_key(w->stranger), 32);
        world_push(w, &s, w->log, NULL);
    }
    return true;
}

/* Restores of a log that lost nothing: none is vouched for, or is what it says. */
static void skip_a_generation(tacit_restore *r)
{
    r->generation++;
    OK(tacit_restore_origin(r->new_origin, WORLD_ORIGIN, r->generation, NULL));
}

static bool no_operator(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(SERVER_START, -1, -1))
        e->server_start->operator_key.len = 0;
    if (AT(PLAN, 2, -1))
        world_restored(w, w->count, NULL, w->operator_id, NULL);
    return true;
}

static bool restored_by_the_server(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        world_restored(w, w->count, NULL, w->log, NULL);
    return true;
}

static bool generation_skipped(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        world_restored(w, w->count, NULL, w->operator_id, skip_a_generation);
    return true;
}

/* --- bytes that only somebody without this code would sign --- */

/* The entry's own bytes, unchecked, with more behind them. */
static void push_raw(world *w, const Tacit__Entry *e, const char *more, size_t more_size)
{
    uint8_t *inner, *all, *bytes, signature[TACIT_SIGNATURE_BYTES];
    size_t inner_size, size;
    Tacit__Entry copy = *e;
    Tacit__SignedEntry envelope = TACIT__SIGNED_ENTRY__INIT;
    copy.schema = TACIT_ENTRY_SCHEMA;
    OK(tacit_message_pack(&copy, TACIT_MESSAGE_ENTRY_MAX, &inner, &inner_size, &w->err));
    all = malloc(inner_size + more_size);
    memcpy(all, inner, inner_size);
    memcpy(all + inner_size, more, more_size);
    OK(tacit_identity_sign(w->log, TACIT_ENTRY_DOMAIN, all, inner_size + more_size, signature,
                           &w->err));
    envelope.entry = tacit_field_of(all, inner_size + more_size);
    envelope.signer = tacit_field_of(tacit_identity_sign_key(w->log), TACIT_SIGN_KEY_BYTES);
    envelope.signature = tacit_field_of(signature, sizeof signature);
    OK(tacit_message_pack(&envelope, TACIT_MESSAGE_ENTRY_MAX, &bytes, &size, &w->err));
    world_push_bytes(w, bytes, size);
    free(inner);
    free(all);
}

/* A kind from the future: field 99 of the entry, with nothing else in it. */
static bool unknown_kind(world *w, Tacit__Entry *e, int round, int device)
{
    Tacit__Entry nothing = TACIT__ENTRY__INIT;
    if (AT(ROUND_CLOSED, 2, -1))
        push_raw(w, &nothing, "\x9a\x06\x00", 3);
    return true;
}

/* A known kind that carries more than this auditor reads. */
static bool unknown_field(world *w, Tacit__Entry *e, int round, int device)
{
    if (!AT(ROUND_CLOSED, 2, -1))
        return true;
    push_raw(w, e, "\x98\x06\x01", 3);
    return false;
}

static bool update_listed_twice(world *w, Tacit__Entry *e, int round, int device)
{
    if (!AT(AGGREGATE, 2, -1))
        return true;
    e->aggregate->reserve_hashes[2] = e->aggregate->reserve_hashes[1];
    push_raw(w, e, "", 0);
    return false;
}

/* --- tree noise --- */

#define ANY_UNIT TACIT_UNIT_RECORD

static const log_fault faults[] = {
    {"garbage entry", "malformed_entry", "", garbage, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"flipped signature", "bad_signature", "", tampered, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"entry logged twice", "duplicate_entry", "", doubled, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"reserve by a stranger", "wrong_signer",
     "sequence_gap spend_without_reserve decision_without_spend aggregate_mismatch", forged_reserve,
     NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"no server start", "wrong_start", "", no_start, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"another origin", "wrong_start", "", start_origin, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"restore without operator", "unvouched_restore", "", no_operator, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"restore by the server", "unvouched_restore", "", restored_by_the_server, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"generation skipped", "bad_restore", "", generation_skipped, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"false key rotation", "bad_key_rotation", "", wrong_rotation, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"device not enrolled", "unknown_device", "decision_without_spend aggregate_mismatch", no_enrol,
     NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"pseudonym taken", "duplicate_device",
     "unknown_device decision_without_spend aggregate_mismatch", pseudonym, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"policy unsigned", "bad_policy", "", enrol_policy, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"another policy key", "bad_policy", "", policy_key_swapped, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"an old policy again", "policy_weakened", "", old_policy_again, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"enrolled again", NULL, "", enrolled_again, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"enrolled again to raise the cap", "outdated_accepted", "", enrolled_again_to_raise, NULL,
     NULL, NULL, 3, false, ANY_UNIT},
    {"accepted above a lowered cap", "outdated_accepted", "", lowered_then_accepted, NULL, NULL,
     NULL, 3, false, ANY_UNIT},
    {"accepted above a cap below what was spent", "outdated_accepted", "",
     lowered_below_then_accepted, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"accepted under tightened terms", "outdated_accepted", "", tightened_then_accepted, NULL, NULL,
     NULL, 3, false, ANY_UNIT},
    {"cap raised unsigned", "policy_weakened", "", cap_raised, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"cap raised by a stranger", "policy_weakened", "", cap_raised_by_stranger, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"cap raised by the policy key", NULL, "", cap_raised_rightly, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"an older one of the policy key", "policy_replayed", "", policy_replayed, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"delta changed", "bad_policy", "", delta_changed, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"spend after revocation", "after_revocation", "", revoked, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"renewal after revocation", "after_revocation", "", renewed_after, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"spend after freeze", "after_clone", "", frozen, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"chain with a gap", "sequence_gap", "", gap, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"sequence used twice", "sequence_reused", "", reused, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"another previous", "broken_chain", "", previous, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"plan missing", "reserve_without_plan", "decision_mismatch aggregate_without_plan", no_plan,
     NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"plan after a reserve", "reserve_without_plan", "decision_mismatch aggregate_mismatch",
     plan_after_reserve, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"reserve of another plan", "reserve_without_plan", "decision_mismatch aggregate_mismatch",
     other_plan, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"fewer steps", "reserve_off_plan", "epsilon_mismatch", steps, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"other noise", "reserve_off_plan", "epsilon_mismatch", noise, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"other rate", "reserve_off_plan", "epsilon_mismatch", rate, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"other clip norm", "reserve_off_plan", "", clip, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"other unit", "reserve_off_plan", "under_policy", unit, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"other values", "reserve_off_plan", "epsilon_mismatch", values, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"reserved twice", "duplicate_reserve", "", reserved_twice, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"mechanism none", "non_private", "under_policy", NULL, NULL, NULL, NULL, 3, true, ANY_UNIT},
    {"test seed", "insecure_seed", "", insecure, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"false epsilon", "epsilon_mismatch", "", epsilon, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"cap stated too high", "cap_mismatch", "", cap_stated, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"delta stated", "cap_mismatch", "", delta_stated, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"cap exceeded", "cap_exceeded", "", cap_lowered, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"a full window", "window_exceeded", "", windowed, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"local training", NULL, "", local_fine, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"local, less noise", "under_policy", "", local_noise, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"local, smaller unit", "under_policy", "", local_unit, subject_plan, NULL, subject_schedule, 3,
     false, TACIT_UNIT_SUBJECT},
    {"local, no noise", "non_private", "under_policy", local_none, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"local, sampled device", "local_mechanism", "under_policy", local_whole_device, NULL, NULL,
     NULL, 3, false, ANY_UNIT},
    {"local, other delta", "cap_mismatch", "", local_delta, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"local, higher cap", "cap_mismatch", "", local_cap, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"local, test seed", "insecure_seed", "", local_seed, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"local, false epsilon", "epsilon_mismatch", "", local_epsilon, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"local, over the cap", "schedule_over_cap", "cap_exceeded", local_long, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"local in a server's lineage", "local_schedule", "", local_in_a_schedule, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"local of a server's plan", "local_schedule", "duplicate_reserve", local_of_a_plan, NULL, NULL,
     NULL, 3, false, ANY_UNIT},
    {"local, one lineage twice", "local_schedule", "", local_twice, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"a server takes up a local lineage", "local_schedule", "", local_before_schedule, NULL, NULL,
     NULL, 3, false, ANY_UNIT},
    {"local, an update", "local_update", "", local_update, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"reserve after loss", "after_account_lost", "", lost, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"spend of another's reserve", "spend_without_reserve",
     "decision_without_spend aggregate_mismatch", spend_other, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"spend of nothing", "spend_without_reserve", "decision_without_spend aggregate_mismatch",
     spend_nothing, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"spend after abandon", "duplicate_spend", "decision_without_spend aggregate_mismatch",
     abandoned, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"digest used twice", "duplicate_update", "decision_mismatch aggregate_mismatch", digest, NULL,
     NULL, NULL, 3, false, ANY_UNIT},
    {"accepted without reserve", "decision_without_spend",
     "spend_without_reserve aggregate_mismatch", no_reserve, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"accepted without spend", "decision_without_spend", "aggregate_mismatch", no_spend, NULL, NULL,
     NULL, 3, false, ANY_UNIT},
    {"another digest accepted", "decision_mismatch", "aggregate_mismatch", decided_digest, NULL,
     NULL, NULL, 3, false, ANY_UNIT},
    {"accepted for another round", "decision_mismatch", "aggregate_mismatch", decided_round, NULL,
     NULL, NULL, 3, false, ANY_UNIT},
    {"accepted for another device", "decision_mismatch", "aggregate_mismatch", decided_device, NULL,
     NULL, NULL, 3, false, ANY_UNIT},
    {"accepted after abandon", "decision_mismatch", "aggregate_mismatch", spent_then_abandoned,
     NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"decided twice", "duplicate_decision", "", decided_twice, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"accepted though revoked", "after_revocation", "", accepted_though_revoked, NULL, NULL, NULL,
     3, false, ANY_UNIT},
    {"a late reserve", NULL, "", late_reserve, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"another operator key", "wrong_start", "", another_operator, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"unknown kind", "malformed_entry", "", unknown_kind, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"unknown field", "malformed_entry", "", unknown_field, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"update listed twice", "malformed_entry", "manifest_without_aggregate", update_listed_twice,
     NULL, NULL, NULL, 3, false, ANY_UNIT},
};

static void test_every_fault_is_caught_as_what_it_is(void **state)
{
    (void)state;
    expect_faults_caught(faults, sizeof faults / sizeof faults[0]);
}

static void test_every_kind_has_a_fault(void **state)
{
    (void)state;
    expect_kinds_covered(device_kinds, faults, sizeof faults / sizeof faults[0]);
}

static void test_every_kind_is_listed(void **state)
{
    (void)state;
    for (const tacit_audit_kind *k = tacit_audit_kinds; k->kind; k++)
        if (!listed(device_kinds, k->kind) && !listed(round_kinds, k->kind) &&
            !listed(whole_kinds, k->kind))
            fail_msg("no fault for %s", k->kind);
}

/* Device 1 signs a policy of another unit, then trains alone under it. */
static bool another_unit(world *w, Tacit__Entry *e, int round, int device)
{
    if (!AT(PLAN, 2, -1))
        return true;
    w->policy.unit = TACIT_UNIT_RECORD;
    push_policy(w, 1, w->policy.epsilon_cap, w->policy.delta, w->device[1].id);
    w->policy.unit = TACIT_UNIT_SUBJECT;
    return local_fine(w, e, round, device);
}

/* Epsilons for different units do not add up: an account has the unit of its first reserve, and a
 * policy that changes afterwards changes nothing about that. */
static void test_an_account_has_one_unit(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    world_init(&w);
    w.policy.unit = TACIT_UNIT_SUBJECT;
    w.edit_schedule = subject_schedule;
    w.edit_plan = subject_plan;
    w.hook = another_unit;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    if (audit.violation_count != 2)
        print_all("another unit", &audit);
    assert_int_equal(audit.violation_count, 2);
    assert_string_equal(audit.violations[1].kind, "outdated_accepted"); /* of a subject's plan */
    assert_string_equal(audit.violations[0].kind, "under_policy");
    assert_non_null(strstr(audit.violations[0].detail,
                           "unit is record, that of the account so far is subject"));
    assert_int_equal(find_device(&audit, &w, 0).unit, TACIT_UNIT_SUBJECT);
    assert_int_equal(find_device(&audit, &w, 1).unit, TACIT_UNIT_SUBJECT);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_clean_log_passes),
        cmocka_unit_test(test_every_fault_is_caught_as_what_it_is),
        cmocka_unit_test(test_every_kind_has_a_fault),
        cmocka_unit_test(test_every_kind_is_listed),
        cmocka_unit_test(test_an_account_has_one_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
