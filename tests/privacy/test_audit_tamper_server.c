/* A log whose server signs with its own key whatever suits it: entries dropped, moved, repeated,
 * changed, made up. Each row names every kind of violation that the auditor must find, and no
 * other. (test_audit_tamper.c changes files, test_audit_tamper_device.c entries of a device.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tamper.h"

/* --- entries dropped, moved and repeated --- */

static void drop_enrolment(tamper *t)
{
    drop(t, FIND(ENROL, 2, 0));
    server_signs(t);
}

static void drop_reserve(tamper *t)
{
    drop(t, FIND(RESERVE, 1, 1));
    server_signs(t);
}

static void drop_open_reserve(tamper *t)
{
    drop(t, FIND(RESERVE, 0, 3));
    server_signs(t);
}

static void drop_spend(tamper *t)
{
    drop(t, FIND(SPEND, 1, 2));
    server_signs(t);
}

static void drop_decision(tamper *t)
{
    drop(t, FIND(UPDATE, 1, 2));
    server_signs(t);
}

static void reserve_before_its_plan(tamper *t)
{
    move(t, FIND(RESERVE, 0, 2), FIND(PLAN, -1, 2));
    server_signs(t);
}

static void schedule_after_its_plan(tamper *t)
{
    move(t, FIND(SCHEDULE, -1, 1), FIND(PLAN, -1, 2));
    server_signs(t);
}

static void chain_out_of_order(tamper *t)
{
    move(t, FIND(SPEND, 0, 3), FIND(RESERVE, 0, 3));
    server_signs(t);
}

static void reserve_repeated(tamper *t)
{
    repeat(t, FIND(RESERVE, 0, 2), FIND(RESERVE, 1, 3));
    server_signs(t);
}

static void reserve_by_the_server(tamper *t)
{
    size_t i = FIND(RESERVE, 0, 3);
    tacit_entry e = open_entry(t, i);
    put(t, i, e.entry, t->w.log);
    tacit_entry_close(&e);
    server_signs(t);
}

static void decision_by_a_stranger(tamper *t)
{
    size_t i = FIND(UPDATE, 0, 2);
    tacit_entry e = open_entry(t, i);
    put(t, i, e.entry, t->w.stranger);
    tacit_entry_close(&e);
    server_signs(t);
}

static void set_text(char **text, const char *to)
{
    *text = strdup(to); /* it was the default, which nobody frees */
    assert_non_null(*text);
}

/* One entry of the server's, changed and signed again. */
#define SERVER(name, index, how)                                                                   \
    static void name(tamper *t)                                                                    \
    {                                                                                              \
        size_t i = index;                                                                          \
        tacit_entry opened = open_entry(t, i);                                                     \
        Tacit__Entry *e = opened.entry;                                                            \
        how;                                                                                       \
        put(t, i, e, t->w.log);                                                                    \
        tacit_entry_close(&opened);                                                                \
        server_signs(t);                                                                           \
    }

SERVER(policy_key_swapped, FIND(ENROL, 0, 0),
       memcpy(e->enrol->policy_key.data, tacit_identity_sign_key(t->w.stranger), 32))
SERVER(raise_unsigned, FIND(POLICY_CHANGED, 0, 0), e->policy_changed->signature.data[5] ^= 1)
SERVER(raise_reworded, FIND(POLICY_CHANGED, 0, 0), e->policy_changed->reason[0] = 'O')
SERVER(rejected_as_accepted, FIND(UPDATE, 2, 1), e->update->accepted = true;
       e->update->reason[0] = '\0')
SERVER(accepted_as_rejected, FIND(UPDATE, 0, 2), e->update->accepted = false;
       set_text(&e->update->reason, "norm"))
SERVER(another_digest, FIND(UPDATE, 0, 2), e->update->update_digest.data[0] ^= 1)
SERVER(another_quorum, FIND(AGGREGATE, -1, 2), e->aggregate->quorum = 1)
SERVER(sum_of_another_round, FIND(AGGREGATE, -1, 2), memset(e->aggregate->round_id.data, 0x77, 16))
SERVER(sum_of_others, FIND(AGGREGATE, -1, 2),
       memset(e->aggregate->reserve_hashes[1].data, 0xff, 32))
SERVER(rollback_of_nothing, FIND(ROLLED_BACK, -1, 0), e->rolled_back->to_version = 7)
SERVER(closed_as_failed, FIND(ROUND_CLOSED, -1, 2), e->round_closed->published = false;
       set_text(&e->round_closed->reason, "gate"))
SERVER(manifest_unsigned, FIND(PUBLISHED, -1, 2), e->published->signature.data[0] ^= 1)
SERVER(start_of_another_log, FIND(SERVER_START, -1, 0), e->server_start->origin[0] = 'T')

static void sum_one_less(tamper *t)
{
    size_t i = FIND(AGGREGATE, -1, 0);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__Aggregate a = *e.aggregate;
    a.n_reserve_hashes--;
    e.aggregate = &a;
    put(t, i, &e, t->w.log);
    tacit_entry_close(&opened);
    server_signs(t);
}

/* The honest sum of one of two updates; the other is said to be rejected. */
static void sum_below_quorum(tamper *t)
{
    size_t i = FIND(AGGREGATE, -1, 2);
    uint8_t leaf[TACIT_HASH_BYTES];
    leaf_of(t, FIND(RESERVE, 1, 3), leaf);
    accepted_as_rejected(t);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__Aggregate a = *e.aggregate;
    ProtobufCBinaryData one = tacit_field_of(leaf, sizeof leaf);
    a.reserve_hashes = &one;
    a.n_reserve_hashes = 1;
    e.aggregate = &a;
    put(t, i, &e, t->w.log);
    tacit_entry_close(&opened);
}

/* Another entry of the same content, which the server signs at another time. */
static void again(tamper *t, size_t i, size_t at)
{
    tacit_entry e = open_entry(t, i);
    e.entry->time_ms++;
    insert(t, at, signed_bytes(t, e.entry, t->w.log));
    tacit_entry_close(&e);
    server_signs(t);
}

static void decided_again(tamper *t)
{
    again(t, FIND(UPDATE, 0, 2), FIND(AGGREGATE, -1, 2));
}

static void summed_again(tamper *t)
{
    again(t, FIND(AGGREGATE, -1, 2), FIND(PUBLISHED, -1, 2));
}

static void planned_again(tamper *t)
{
    size_t i = FIND(PLAN, -1, 3);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__PlanLogged logged = *e.plan;
    Tacit__Plan *p;
    OK(TACIT_UNPACK(&p, tacit__plan, logged.plan.data, logged.plan.len, 1 << 20, &t->w.err));
    p->deadline_ms += 1000;
    size_t size;
    uint8_t *packed = world_pack(p, &size);
    logged.plan = tacit_field_of(packed, size);
    e.plan = &logged;
    insert(t, i + 1, signed_bytes(t, &e, t->w.log));
    free(packed);
    tacit_message_free(p);
    tacit_entry_close(&opened);
    server_signs(t);
}

static void scheduled_again(tamper *t)
{
    again(t, FIND(SCHEDULE, -1, 1), FIND(PLAN, -1, 2));
}

/* The open round, which device 1 has reserved, with less noise than the schedule has. */
static void quieter_plan(tamper *t)
{
    size_t i = FIND(PLAN, -1, 3);
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__PlanLogged logged = *e.plan;
    Tacit__Plan *p;
    OK(TACIT_UNPACK(&p, tacit__plan, logged.plan.data, logged.plan.len, 1 << 20, &t->w.err));
    p->mechanism->b = 90000;
    size_t size;
    uint8_t *packed = world_pack(p, &size);
    logged.plan = tacit_field_of(packed, size);
    e.plan = &logged;
    put(t, i, &e, t->w.log);
    free(packed);
    tacit_message_free(p);
    tacit_entry_close(&opened);
    server_signs(t);
}

static void raise_again(tamper *t)
{
    world made = {.count = 0};
    made = t->w;
    made.count = 0;
    made.tree = (tacit_merkle_memory){0};
    push_policy(&made, 0, 6, made.policy.delta, NULL); /* lower needs no signature */
    insert(t, t->count, (bytes){made.entry[0].bytes, made.entry[0].size});
    tacit_merkle_memory_free(&made.tree);
    again(t, FIND(POLICY_CHANGED, 0, 0), t->count);
}

/* What the policy key signed for device 0, about device 1, which pinned the same key. */
static void raise_another(tamper *t)
{
    tacit_entry e = open_entry(t, FIND(POLICY_CHANGED, 0, 0));
    memcpy(e.entry->device.data, t->w.device[1].name, TACIT_DEVICE_BYTES);
    insert(t, t->count, signed_bytes(t, e.entry, t->w.log));
    tacit_entry_close(&e);
    server_signs(t);
}

/* A new entry of the server's before another one. */
static void insert_made(tamper *t, size_t at, void (*push)(world *))
{
    world made = t->w;
    made.count = 0;
    made.tree = (tacit_merkle_memory){0};
    made.hook = NULL;
    push(&made);
    assert_int_equal(made.count, 1);
    insert(t, at, (bytes){made.entry[0].bytes, made.entry[0].size});
    tacit_merkle_memory_free(&made.tree);
    server_signs(t);
}

static void push_delta(world *w)
{
    push_policy(w, 0, FLEET_RAISED, 1e-4, w->policy_key);
}

static void another_delta(tamper *t)
{
    insert_made(t, t->count, push_delta);
}

static void push_stranger_policy(world *w)
{
    push_policy(w, 1, 100, w->policy.delta, w->stranger);
}

static void raise_by_a_stranger(tamper *t)
{
    insert_made(t, t->count, push_stranger_policy);
}

static void push_clone_of_1(world *w)
{
    push_clone(w, 1);
}

static void frozen_and_went_on(tamper *t)
{
    insert_made(t, FIND(RESERVE, 1, 4), push_clone_of_1);
}

static void push_false_rotation(world *w)
{
    static uint8_t signature[TACIT_SIGNATURE_BYTES];
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__KeyRotated k = TACIT__KEY_ROTATED__INIT;
    e.body_case = TACIT__ENTRY__BODY_KEY_ROTATED;
    e.key_rotated = &k;
    k.old_key = tacit_field_of(tacit_identity_sign_key(w->log), 32);
    k.new_key = tacit_field_of(tacit_identity_sign_key(w->stranger), 32);
    k.signature_old = k.signature_new = tacit_field_of(signature, sizeof signature);
    world_push(w, &e, w->log, NULL);
}

static void false_rotation(tamper *t)
{
    insert_made(t, t->count, push_false_rotation);
}

static void push_restore(world *w)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Restored r = TACIT__RESTORED__INIT;
    uint8_t nothing[TACIT_SIGNATURE_BYTES] = {1};
    e.body_case = TACIT__ENTRY__BODY_RESTORED;
    e.restored = &r;
    r.statement = r.signature = tacit_field_of(nothing, sizeof nothing);
    world_push(w, &e, w->log, NULL);
}

/* test_audit_restore.c tampers with logs that were restored. */
static void restored_midway(tamper *t)
{
    insert_made(t, t->count, push_restore);
}

static void revoked_before_it_sent(tamper *t)
{
    move(t, FIND(REVOKE, 2, 0), FIND(ABANDON, 2, 0));
    server_signs(t);
}

static void enrolled_twice(tamper *t)
{
    again(t, FIND(ENROL, 1, 0), t->count);
}

/* The newest manifest, changed and signed again by `key`. */
static void edit_manifest(tamper *t, const tacit_identity *key,
                          void (*edit)(Tacit__AdapterManifest *))
{
    size_t i = FIND(PUBLISHED, -1, 1), size;
    tacit_entry opened = open_entry(t, i);
    Tacit__Entry e = *opened.entry;
    Tacit__AdapterPublished p = *e.published;
    Tacit__AdapterManifest *m;
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    OK(TACIT_UNPACK(&m, tacit__adapter_manifest, p.manifest.data, p.manifest.len, 1 << 20,
                    &t->w.err));
    edit(m);
    uint8_t *packed = world_pack(m, &size);
    OK(tacit_identity_sign(key, TACIT_MANIFEST_DOMAIN, packed, size, signature, &t->w.err));
    p.manifest = tacit_field_of(packed, size);
    p.signature = tacit_field_of(signature, sizeof signature);
    e.published = &p;
    put(t, i, &e, t->w.log);
    free(packed);
    tacit_message_free(m);
    tacit_entry_close(&opened);
    server_signs(t);
}

#define MANIFEST(name, how)                                                                        \
    static void name##_edit(Tacit__AdapterManifest *m)                                             \
    {                                                                                              \
        how;                                                                                       \
    }                                                                                              \
    static void name(tamper *t)                                                                    \
    {                                                                                              \
        edit_manifest(t, t->w.log, name##_edit);                                                   \
    }

MANIFEST(less_against_the_server, m->epsilon_server *= 0.9)
MANIFEST(less_published, m->epsilon_published *= 0.5)
MANIFEST(another_parent, m->parent_version = 0)
MANIFEST(version_again, m->version = 1)
MANIFEST(of_another_base, m->base_digest.data[0] ^= 1)

static const struct row rows[] = {
    {"an enrolment dropped", drop_enrolment, "aggregate_mismatch split_view unknown_device", NULL},
    {"a reserve dropped", drop_reserve,
     "aggregate_mismatch decision_without_spend epsilon_mismatch sequence_gap "
     "spend_without_reserve",
     NULL},
    {"a reserve of the open round dropped", drop_open_reserve,
     "epsilon_mismatch sequence_gap spend_without_reserve", NULL},
    {"an update dropped", drop_spend, "aggregate_mismatch decision_without_spend sequence_gap",
     NULL},
    {"a decision dropped", drop_decision, "aggregate_mismatch", NULL},
    {"a reserve before its plan", reserve_before_its_plan,
     "aggregate_mismatch decision_mismatch reserve_without_plan", NULL},
    {"a schedule after its plan", schedule_after_its_plan,
     "aggregate_without_plan decision_mismatch plan_without_schedule reserve_without_plan", NULL},
    {"a chain out of order", chain_out_of_order,
     "broken_chain sequence_gap sequence_reused spend_without_reserve", NULL},
    {"a reserve repeated", reserve_repeated, "duplicate_entry", NULL},
    {"a reserve signed by the server", reserve_by_the_server,
     "epsilon_mismatch sequence_gap spend_without_reserve wrong_signer", NULL},
    {"a decision signed by a stranger", decision_by_a_stranger, "aggregate_mismatch wrong_signer",
     NULL},
    {"a policy key swapped", policy_key_swapped, "bad_policy policy_weakened split_view", NULL},
    {"a cap raised without the signature", raise_unsigned, "policy_weakened", NULL},
    {"a rejected update called accepted", rejected_as_accepted, "aggregate_mismatch", NULL},
    {"a summed update called rejected", accepted_as_rejected, "aggregate_mismatch", NULL},
    {"another digest accepted", another_digest, "aggregate_mismatch decision_mismatch", NULL},
    {"another quorum stated", another_quorum, "aggregate_mismatch", NULL},
    {"a sum of another round", sum_of_another_round,
     "aggregate_without_plan manifest_without_aggregate", NULL},
    {"a sum of something else", sum_of_others, "aggregate_mismatch", NULL},
    {"a sum of one update less", sum_one_less, "aggregate_mismatch split_view", NULL},
    {"a sum below the quorum", sum_below_quorum, "below_quorum", NULL},
    {"an update decided again", decided_again, "duplicate_decision", NULL},
    {"a round summed again", summed_again, "duplicate_aggregate", NULL},
    {"a round planned again", planned_again, "duplicate_plan", NULL},
    {"a lineage scheduled again", scheduled_again, "duplicate_schedule", NULL},
    {"a plan with less noise", quieter_plan, "plan_off_schedule reserve_without_plan", NULL},
    {"an old policy again", raise_again, "policy_replayed", NULL},
    {"a policy of another device", raise_another, "policy_weakened", NULL},
    {"a signed policy's reason rewritten", raise_reworded, "policy_weakened", NULL},
    {"a delta changed", another_delta, "bad_policy", NULL},
    {"a cap raised by a stranger", raise_by_a_stranger, "policy_weakened", NULL},
    {"a frozen device went on", frozen_and_went_on, "after_clone", NULL},
    {"a key changed by one side", false_rotation, "bad_key_rotation", NULL},
    {"a restore midway", restored_midway, "unvouched_restore", NULL},
    {"a revoked device went on", revoked_before_it_sent, "after_revocation", NULL},
    {"a pseudonym given again", enrolled_twice, "duplicate_device", NULL},
    {"a rollback of nothing", rollback_of_nothing, "rollback_unknown", NULL},
    {"a published round closed as failed", closed_as_failed, "round_state", NULL},
    {"a manifest's signature", manifest_unsigned, "bad_manifest round_state", NULL},
    {"less against the server", less_against_the_server, "manifest_epsilon", NULL},
    {"less published", less_published, "manifest_epsilon", NULL},
    {"another parent", another_parent, "manifest_chain", NULL},
    {"a version again", version_again, "manifest_chain rollback_unknown", NULL},
    {"a manifest of another base", of_another_base, "bad_manifest rollback_unknown round_state",
     NULL},
    {"the start of another log", start_of_another_log, "split_view wrong_start", NULL},
};

static void test_every_tampering_of_a_server_is_found_and_named(void **state)
{
    all_are_found(rows, sizeof rows / sizeof rows[0], *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_tampering_of_a_server_is_found_and_named,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
