/* A log as a fleet leaves it: three devices, two lineages, a rejected update, an abandoned round, a
 * raised cap, local training, a rollback, a revocation, and a round that is still open when the log
 * is exported. Included once by a test program, after cmocka.h; it includes log_edits.h. */
#ifndef TACIT_TESTS_FLEET_H
#define TACIT_TESTS_FLEET_H

#include "log_edits.h"

#define FLEET_CAP 8.0
#define FLEET_RAISED 10.0
#define FLEET_FIRST 0x11
#define FLEET_SECOND 0x22

static uint8_t fleet_lineage, fleet_round;
static tacit_budget fleet_before_last; /* of device 0, whose last entry is local training */

static void fleet_schedule(Tacit__Schedule *s)
{
    memset(s->lineage.data, fleet_lineage, 16);
}

static void fleet_plan(Tacit__Plan *p, int round)
{
    memset(p->lineage.data, fleet_lineage, 16);
    memset(p->round_id.data, fleet_round + round, 16);
}

static void fleet_manifest(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    memset(m->lineage.data, fleet_lineage, 16);
    memset(m->round_id.data, fleet_round + round, 16);
}

/* The world numbers the rounds of one lineage; in the second one they have other ids, and updates
 * other digests. */
static bool fleet_hook(world *w, Tacit__Entry *e, int round, int device)
{
    if (e->body_case == TACIT__ENTRY__BODY_SPEND && fleet_lineage == FLEET_SECOND) {
        memset(w->device[device].digest[round], 0x90 + 8 * round + device, TACIT_HASH_BYTES);
        memset(e->spend->update_digest.data, 0x90 + 8 * round + device, TACIT_HASH_BYTES);
    }
    if (e->body_case == TACIT__ENTRY__BODY_UPDATE)
        memset(e->update->round_id.data, fleet_round + round, 16);
    if (e->body_case == TACIT__ENTRY__BODY_AGGREGATE)
        memset(e->aggregate->round_id.data, fleet_round + round, 16);
    if (e->body_case == TACIT__ENTRY__BODY_ROUND_CLOSED)
        memset(e->round_closed->round_id.data, fleet_round + round, 16);
    if (AT(UPDATE, 1, 2) && fleet_lineage == FLEET_FIRST) {
        e->update->accepted = false;
        e->update->reason = (char *)(uintptr_t) "norm";
    }
    return true;
}

static void fleet_sum(world *w, int round, int without)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Aggregate a = TACIT__AGGREGATE__INIT;
    ProtobufCBinaryData hashes[WORLD_DEVICES];
    uint8_t id[16], result[32];
    size_t n = 0;
    for (int d = 0; d < WORLD_DEVICES; d++)
        if (d != without)
            hashes[n++] = tacit_field_of(w->device[d].reserve[round], 32);
    qsort(hashes, n, sizeof hashes[0], world_by_bytes);
    e.body_case = TACIT__ENTRY__BODY_AGGREGATE;
    e.aggregate = &a;
    a.round_id = filled(id, 16, 0);
    a.reserve_hashes = hashes;
    a.n_reserve_hashes = n;
    a.quorum = 2;
    a.result_digest = filled(result, 32, (uint8_t)(fleet_round + round));
    world_server(w, &e, round, -1);
}

static void fleet_abandon(world *w, int round, int d)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Abandon b = TACIT__ABANDON__INIT;
    uint8_t leaf[TACIT_HASH_BYTES];
    e.body_case = TACIT__ENTRY__BODY_ABANDON;
    e.abandon = &b;
    b.reserve_hash = tacit_field_of(w->device[d].reserve[round], 32);
    b.reason = (char *)(uintptr_t) "deadline";
    world_own(w, &e, round, d, leaf);
}

static void fleet_local(world *w, int d)
{
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    uint8_t leaf[TACIT_HASH_BYTES];
    world_fill_local(w, &r, (uint8_t)(0x33 + d));
    world_price_local(w, &r, d, true);
    world_push_local(w, d, &r, leaf);
}

static void fleet_rollback(world *w)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__AdapterRolledBack b = TACIT__ADAPTER_ROLLED_BACK__INIT;
    uint8_t lineage[16];
    e.body_case = TACIT__ENTRY__BODY_ROLLED_BACK;
    e.rolled_back = &b;
    b.lineage = filled(lineage, 16, FLEET_FIRST);
    b.from_version = 2;
    b.to_version = 1;
    b.reason = (char *)(uintptr_t) "worse in the field";
    world_push(w, &e, w->log, NULL);
}

/* Rounds 0 and 1 of the first lineage; the update of device 2 in round 1 is rejected. */
static void fleet_first_lineage(world *w)
{
    for (int r = 0; r < 2; r++) {
        world_log_plan(w, r);
        for (int d = 0; d < WORLD_DEVICES; d++)
            world_reserve(w, r, d);
        for (int d = 0; d < WORLD_DEVICES; d++)
            world_spend(w, r, d);
        for (int d = 0; d < WORLD_DEVICES; d++)
            world_decide(w, r, d);
        fleet_sum(w, r, r == 1 ? 2 : -1);
        world_publish(w, r);
        world_close_round(w, r);
    }
}

/* A schedule and plans under other ids. */
static void fleet_plan_second(world *w)
{
    fleet_lineage = FLEET_SECOND;
    fleet_round = 0x60;
    free(w->schedule);
    memset(w->manifest_digest[0], 0xe0, TACIT_HASH_BYTES);
    world_schedule(w);
    for (int r = 0; r < WORLD_ROUNDS; r++) {
        free(w->plan[r]);
        world_plan(w, r);
    }
}

/* Round 0, which device 2 abandons, and round 1, still open: device 0 has sent its update, device 1
 * has reserved. */
static void fleet_second_lineage(world *w)
{
    fleet_plan_second(w);
    world_log_schedule(w);
    world_log_plan(w, 0);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_reserve(w, 0, d);
    for (int d = 0; d < 2; d++)
        world_spend(w, 0, d);
    fleet_abandon(w, 0, 2);
    for (int d = 0; d < 2; d++)
        world_decide(w, 0, d);
    fleet_sum(w, 0, 2);
    world_publish(w, 0);
    world_close_round(w, 0);
    push_revoke(w, 2);
    world_log_plan(w, 1);
    world_reserve(w, 1, 0);
    world_spend(w, 1, 0);
    world_reserve(w, 1, 1);
}

static void fleet_log(world *w)
{
    fleet_lineage = FLEET_FIRST;
    fleet_round = 0xa0;
    w->policy.epsilon_cap = FLEET_CAP;
    w->policy.minimum_noise_multiplier = 1.0;
    w->edit_schedule = fleet_schedule;
    w->edit_plan = fleet_plan;
    w->edit_manifest = fleet_manifest;
    w->hook = fleet_hook;
    world_plan_all(w);
    world_start(w);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_enrol(w, d);
    world_log_schedule(w);
    fleet_first_lineage(w);
    push_policy(w, 0, FLEET_RAISED, w->policy.delta, w->policy_key);
    fleet_rollback(w);
    fleet_local(w, 1);
    fleet_second_lineage(w);
    fleet_before_last = w->device[0].budget;
    fleet_local(w, 0);
}

#endif
