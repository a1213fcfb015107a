/* A small fleet for the tests of log, account and audit: keys, a schedule of private rounds, plans,
 * and a log built entry by entry without the ledger's code, so that a test can also build logs that
 * the ledger would never accept. Each test program includes it once. */
#ifndef TACIT_TESTS_WORLD_H
#define TACIT_TESTS_WORLD_H

#include "budget_epsilon.h"

#include "common/digest.h"
#include "common/identity.h"
#include "common/message.h"
#include "privacy/entry.h"
#include "privacy/merkle.h"
#include "privacy/note.h"
#include "privacy/policy.h"
#include "privacy/restore.h"
#include "proto/ledger.pb-c.h"
#include "proto/plan.pb-c.h"
#include "proto/update.pb-c.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORLD_ORIGIN "tacit.example/log"
#define WORLD_DEVICES 3
#define WORLD_ROUNDS 3
#define WORLD_VALUES 1000

typedef struct world world;

/* Called with every entry of the standard log before it is signed; false drops the entry. `round`
 * and `device` are -1 where they do not apply. It may push other entries with world_push. */
typedef bool world_hook(world *w, Tacit__Entry *entry, int round, int device);

typedef struct world_device {
    tacit_identity *id;
    uint8_t name[TACIT_DEVICE_BYTES];
    uint64_t sequence;
    uint8_t head[TACIT_HASH_BYTES];
    tacit_budget budget;
    uint8_t *policy;
    size_t policy_size;
    uint8_t reserve[WORLD_ROUNDS][TACIT_HASH_BYTES];
    uint8_t digest[WORLD_ROUNDS][TACIT_HASH_BYTES];
} world_device;

struct world {
    tacit_error err;
    tacit_identity *log, *policy_key, *operator_id, *stranger;
    char origin[TACIT_NOTE_NAME_MAX + 1]; /* in force; a restore moves it */
    uint32_t generation;
    world_device device[WORLD_DEVICES];
    tacit_policy policy;
    uint8_t *schedule, *plan[WORLD_ROUNDS];
    size_t schedule_size, plan_size[WORLD_ROUNDS];
    uint8_t schedule_hash[TACIT_HASH_BYTES], plan_hash[WORLD_ROUNDS][TACIT_HASH_BYTES];
    uint8_t manifest_digest[WORLD_ROUNDS][TACIT_HASH_BYTES];
    bool none; /* the schedule's mechanism */
    void (*edit_schedule)(Tacit__Schedule *);
    void (*edit_plan)(Tacit__Plan *, int round);
    void (*edit_manifest)(world *, Tacit__AdapterManifest *, int round);
    world_hook *hook;
    int last_round; /* rounds that the log holds */
    struct {
        uint8_t *bytes;
        size_t size;
    } entry[512];
    size_t count;
    tacit_merkle_memory tree;
};

#define OK(call) assert_int_equal((call), TACIT_OK)

static inline uint8_t *world_pack(const void *message, size_t *size)
{
    uint8_t *bytes;
    tacit_error err;
    OK(tacit_message_pack(message, TACIT_MESSAGE_ENTRY_MAX, &bytes, size, &err));
    return bytes;
}

static inline ProtobufCBinaryData filled(uint8_t *buffer, size_t size, uint8_t with)
{
    memset(buffer, with, size);
    return tacit_field_of(buffer, size);
}

static inline void world_mechanism(const world *w, Tacit__Mechanism *m)
{
    m->kind = w->none ? TACIT__MECHANISM_KIND__MECHANISM_NONE
                      : TACIT__MECHANISM_KIND__MECHANISM_SUBSAMPLED_GAUSSIAN;
    m->unit = TACIT__UNIT__UNIT_RECORD;
    m->neighbours = TACIT__NEIGHBOURS__NEIGHBOURS_ADD_REMOVE;
    m->clip_norm = w->none ? 0 : 0.5;
    m->b = w->none ? 0 : 100000; /* noise multiplier about 1.296 */
    m->q_num = TACIT_Q_ONE / 20;
    m->steps = 10;
    m->divisor = 16;
    m->unit_examples = 1;
}

/* For edit_schedule and edit_plan: a clip norm that adapts in every round. Noise multipliers are
 * about 1.296 of the gradients and 5.184 of the count. */
static inline void world_adapt(Tacit__Mechanism *m)
{
    m->quantile_b = 400000;
    m->quantile_target = 0.5;
    m->clip_rate = 0.2;
    m->clip_min = 0.05;
    m->clip_max = 5;
}

static inline void world_adapt_schedule(Tacit__Schedule *s)
{
    for (size_t r = 0; r < s->n_rounds; r++)
        world_adapt(s->rounds[r]->mechanism);
}

static inline void world_adapt_plan(Tacit__Plan *p, int round)
{
    (void)round;
    world_adapt(p->mechanism);
}

static inline void world_adapter(Tacit__AdapterSpec *a)
{
    static char *targets[] = {(char *)(uintptr_t) "attn_output", (char *)(uintptr_t) "ffn_down"};
    static uint8_t seed[32] = {9};
    a->kind = TACIT__ADAPTER_KIND__ADAPTER_LORA_FFA;
    a->targets = targets;
    a->n_targets = 2;
    a->rank = 8;
    a->alpha = 16;
    a->lineage_seed = tacit_field_of(seed, 32);
}

static inline void world_schedule(world *w)
{
    Tacit__Schedule s = TACIT__SCHEDULE__INIT;
    Tacit__AdapterSpec adapter = TACIT__ADAPTER_SPEC__INIT;
    Tacit__Mechanism mechanism[WORLD_ROUNDS];
    Tacit__ScheduledRound round[WORLD_ROUNDS], *rounds[WORLD_ROUNDS];
    uint8_t lineage[16], base[32];
    world_adapter(&adapter);
    for (int i = 0; i < WORLD_ROUNDS; i++) {
        mechanism[i] = (Tacit__Mechanism)TACIT__MECHANISM__INIT;
        world_mechanism(w, &mechanism[i]);
        round[i] = (Tacit__ScheduledRound)TACIT__SCHEDULED_ROUND__INIT;
        round[i].mechanism = &mechanism[i];
        rounds[i] = &round[i];
    }
    s.format = 1;
    s.lineage = filled(lineage, 16, 0x11);
    s.base_digest = filled(base, 32, 0xba);
    s.adapter = &adapter;
    s.rounds = rounds;
    s.n_rounds = WORLD_ROUNDS;
    s.delta = w->none ? 0 : 1e-5;
    s.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    if (w->edit_schedule)
        w->edit_schedule(&s);
    w->schedule = world_pack(&s, &w->schedule_size);
    tacit_digest(w->schedule_hash, w->schedule, w->schedule_size);
}

static inline void world_plan(world *w, int round)
{
    Tacit__Plan p = TACIT__PLAN__INIT;
    Tacit__AdapterSpec adapter = TACIT__ADAPTER_SPEC__INIT;
    Tacit__Optimizer optimizer = TACIT__OPTIMIZER__INIT;
    Tacit__Mechanism mechanism = TACIT__MECHANISM__INIT;
    uint8_t id[16], lineage[16], base[32], key[32];
    world_adapter(&adapter);
    world_mechanism(w, &mechanism);
    optimizer.kind = TACIT__OPTIMIZER_KIND__OPTIMIZER_ADAM;
    optimizer.learning_rate = 0.02;
    p.format = 1;
    p.round_id = filled(id, 16, (uint8_t)(0xa0 + round));
    p.lineage = filled(lineage, 16, 0x11);
    p.schedule_hash = tacit_field_of(w->schedule_hash, 32);
    p.round_index = (uint32_t)round;
    p.base_digest = filled(base, 32, 0xba);
    p.parent_version = (uint64_t)round;
    if (round)
        p.parent_digest = tacit_field_of(w->manifest_digest[round - 1], 32);
    p.adapter = &adapter;
    p.trainable_values = WORLD_VALUES;
    p.optimizer = &optimizer;
    p.mechanism = &mechanism;
    p.delta = w->none ? 0 : 1e-5;
    p.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    p.norm_bound = 3;
    p.update_scale = 1 << 20;
    p.cohort = WORLD_DEVICES;
    p.quorum = 2;
    p.target = WORLD_DEVICES;
    p.deadline_ms = 1000;
    p.pad_seconds = 1;
    p.aggregator_key = filled(key, 32, 0xcc);
    p.max_tokens = 256;
    if (w->edit_plan)
        w->edit_plan(&p, round);
    w->plan[round] = world_pack(&p, &w->plan_size[round]);
    tacit_digest(w->plan_hash[round], w->plan[round], w->plan_size[round]);
}

static inline void world_init(world *w)
{
    *w = (world){.last_round = WORLD_ROUNDS, .origin = WORLD_ORIGIN, .generation = 1};
    assert_true(sodium_init() >= 0);
    OK(tacit_identity_ephemeral(&w->log, &w->err));
    OK(tacit_identity_ephemeral(&w->policy_key, &w->err));
    OK(tacit_identity_ephemeral(&w->operator_id, &w->err));
    OK(tacit_identity_ephemeral(&w->stranger, &w->err));
    w->policy = (tacit_policy){.epsilon_cap = 3,
                               .delta = 1e-5,
                               .unit = TACIT_UNIT_RECORD,
                               .minimum_noise_multiplier = 1.0,
                               .minimum_cohort = 2,
                               .minimum_quorum = 2,
                               .devices_per_subject = 1};
    for (int d = 0; d < WORLD_DEVICES; d++) {
        OK(tacit_identity_ephemeral(&w->device[d].id, &w->err));
        memset(w->device[d].name, 0xd0 + d, TACIT_DEVICE_BYTES);
    }
    for (int r = 0; r < WORLD_ROUNDS; r++)
        memset(w->manifest_digest[r], 0xf0 + r, TACIT_HASH_BYTES);
}

/* Schedule and plans are made once policy, `none` and the edits are set. */
static inline void world_plan_all(world *w)
{
    world_schedule(w);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        world_plan(w, r);
    for (int d = 0; d < WORLD_DEVICES; d++) {
        tacit_budget_open(&w->device[d].budget, w->policy.epsilon_cap, w->policy.delta);
        OK(tacit_policy_pack(&w->policy, &w->device[d].policy, &w->device[d].policy_size, &w->err));
    }
}

/* --- another lineage --- */

static uint8_t world_lineage_byte, world_round_byte;

static inline void world_other_schedule(Tacit__Schedule *s)
{
    memset(s->lineage.data, world_lineage_byte, 16);
}

static inline void world_other_plan(Tacit__Plan *p, int round)
{
    memset(p->lineage.data, world_lineage_byte, 16);
    memset(p->round_id.data, world_round_byte + round, 16);
}

/* Schedule and plans once more, as those of lineage `lineage` with the round ids `round` and on. */
static inline void world_next_lineage(world *w, uint8_t lineage, uint8_t round)
{
    world_lineage_byte = lineage;
    world_round_byte = round;
    w->edit_schedule = world_other_schedule;
    w->edit_plan = world_other_plan;
    free(w->schedule);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        free(w->plan[r]);
    world_schedule(w);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        world_plan(w, r);
}

static inline void world_push_bytes(world *w, uint8_t *bytes, size_t size)
{
    uint8_t leaf[TACIT_HASH_BYTES];
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    tacit_merkle_leaf(leaf, bytes, size);
    OK(tacit_merkle_append(&store, w->count, leaf, &w->err));
    assert_true(w->count < sizeof w->entry / sizeof w->entry[0]);
    w->entry[w->count].bytes = bytes;
    w->entry[w->count++].size = size;
}

/* Signs and appends; `leaf` may be NULL. */
static inline void world_push(world *w, Tacit__Entry *entry, const tacit_identity *signer,
                              uint8_t leaf[TACIT_HASH_BYTES])
{
    uint8_t *bytes;
    size_t size;
    entry->time_ms = 1700000000000 + w->count;
    OK(tacit_entry_sign(entry, signer, &bytes, &size, leaf, &w->err));
    world_push_bytes(w, bytes, size);
}

static inline void world_server(world *w, Tacit__Entry *entry, int round, int device)
{
    if (!w->hook || w->hook(w, entry, round, device))
        world_push(w, entry, w->log, NULL);
}

/* Chains, offers to the hook, signs, appends; the chain moves on only when it was not dropped. */
static inline void world_own(world *w, Tacit__Entry *entry, int round, int d,
                             uint8_t leaf[TACIT_HASH_BYTES])
{
    world_device *device = &w->device[d];
    uint8_t previous[TACIT_HASH_BYTES];
    memcpy(previous, device->head, sizeof previous);
    entry->device = tacit_field_of(device->name, TACIT_DEVICE_BYTES);
    entry->sequence = device->sequence + 1;
    entry->previous = tacit_field_of(previous, device->sequence ? sizeof previous : 0);
    if (w->hook && !w->hook(w, entry, round, d))
        return;
    world_push(w, entry, device->id, leaf);
    device->sequence = entry->sequence;
    memcpy(device->head, leaf, TACIT_HASH_BYTES);
}

static inline void world_enrol(world *w, int d)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Enrol b = TACIT__ENROL__INIT;
    uint8_t signature[TACIT_SIGNATURE_BYTES];
    world_device *device = &w->device[d];
    OK(tacit_policy_enrol_sign(device->policy, device->policy_size,
                               tacit_identity_sign_key(w->policy_key), device->id, signature,
                               &w->err));
    e.device = tacit_field_of(device->name, TACIT_DEVICE_BYTES);
    e.body_case = TACIT__ENTRY__BODY_ENROL;
    e.enrol = &b;
    b.identity_key = tacit_field_of(tacit_identity_sign_key(device->id), 32);
    b.exchange_key = tacit_field_of(tacit_identity_exchange_key(device->id), 32);
    b.policy = tacit_field_of(device->policy, device->policy_size);
    b.policy_signature = tacit_field_of(signature, sizeof signature);
    b.policy_key = tacit_field_of(tacit_identity_sign_key(w->policy_key), 32);
    world_server(w, &e, -1, d);
}

static inline void world_reserve(world *w, int round, int d)
{
    static char version[] = TACIT_ACCOUNTANT_VERSION;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Reserve r = TACIT__RESERVE__INIT;
    Tacit__Plan *p;
    world_device *device = &w->device[d];
    OK(TACIT_UNPACK(&p, tacit__plan, w->plan[round], w->plan_size[round], 1 << 20, &w->err));
    e.body_case = TACIT__ENTRY__BODY_RESERVE;
    e.reserve = &r;
    r.round_id = p->round_id;
    r.plan_hash = tacit_field_of(w->plan_hash[round], 32);
    r.lineage = p->lineage;
    r.kind = p->mechanism->kind;
    r.unit = p->mechanism->unit;
    r.neighbours = p->mechanism->neighbours;
    r.b = p->mechanism->b;
    r.q_num = p->mechanism->q_num;
    r.steps = p->mechanism->steps;
    r.clip_norm = p->mechanism->clip_norm;
    r.minimum_separation = p->mechanism->minimum_separation;
    r.values = p->trainable_values;
    r.quantile_b = p->mechanism->quantile_b;
    r.delta = w->policy.delta;
    r.accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    r.accountant_version = version;
    r.epsilon_cap = w->policy.epsilon_cap;
    if (w->none) {
        r.epsilon_after = INFINITY;
    } else {
        tacit_event event;
        OK(tacit_budget_event(&event, &r, &w->err));
        OK(tacit_budget_add(&device->budget, &event, r.values + (r.quantile_b != 0), round == 0,
                            &w->err));
        r.epsilon_after = budget_epsilon(&device->budget);
    }
    world_own(w, &e, round, d, device->reserve[round]);
    tacit_message_free(p);
}

static inline void world_spend(world *w, int round, int d)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Spend s = TACIT__SPEND__INIT;
    uint8_t leaf[TACIT_HASH_BYTES];
    memset(w->device[d].digest[round], 0x40 + 8 * round + d, TACIT_HASH_BYTES);
    e.body_case = TACIT__ENTRY__BODY_SPEND;
    e.spend = &s;
    s.reserve_hash = tacit_field_of(w->device[d].reserve[round], 32);
    s.update_digest = tacit_field_of(w->device[d].digest[round], 32);
    world_own(w, &e, round, d, leaf);
}

static inline void world_decide(world *w, int round, int d)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__UpdateDecision u = TACIT__UPDATE_DECISION__INIT;
    uint8_t id[16];
    e.device = tacit_field_of(w->device[d].name, TACIT_DEVICE_BYTES);
    e.body_case = TACIT__ENTRY__BODY_UPDATE;
    e.update = &u;
    u.round_id = filled(id, 16, (uint8_t)(0xa0 + round));
    u.reserve_hash = tacit_field_of(w->device[d].reserve[round], 32);
    u.update_digest = tacit_field_of(w->device[d].digest[round], 32);
    u.accepted = true;
    world_server(w, &e, round, d);
}

static inline int world_by_bytes(const void *a, const void *b)
{
    return memcmp(((const ProtobufCBinaryData *)a)->data, ((const ProtobufCBinaryData *)b)->data,
                  TACIT_HASH_BYTES);
}

static inline void world_aggregate(world *w, int round)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Aggregate a = TACIT__AGGREGATE__INIT;
    ProtobufCBinaryData hashes[WORLD_DEVICES + 1];
    uint8_t id[16], result[32];
    for (int d = 0; d < WORLD_DEVICES; d++)
        hashes[d] = tacit_field_of(w->device[d].reserve[round], 32);
    qsort(hashes, WORLD_DEVICES, sizeof hashes[0], world_by_bytes);
    e.body_case = TACIT__ENTRY__BODY_AGGREGATE;
    e.aggregate = &a;
    a.round_id = filled(id, 16, (uint8_t)(0xa0 + round));
    a.reserve_hashes = hashes;
    a.n_reserve_hashes = WORLD_DEVICES;
    a.quorum = 2;
    a.result_digest = filled(result, 32, (uint8_t)round);
    world_server(w, &e, round, -1);
}

static inline double world_epsilon(world *w, int rounds)
{
    double epsilon;
    Tacit__Schedule *s;
    OK(TACIT_UNPACK(&s, tacit__schedule, w->schedule, w->schedule_size, 1 << 20, &w->err));
    OK(tacit_budget_schedule_epsilon(&epsilon, s, (size_t)rounds, WORLD_VALUES, &w->err));
    tacit_message_free(s);
    return epsilon;
}

static inline void world_publish(world *w, int round)
{
    static char rule[] = "post-processing", none[] = "none";
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__AdapterPublished b = TACIT__ADAPTER_PUBLISHED__INIT;
    Tacit__AdapterManifest m = TACIT__ADAPTER_MANIFEST__INIT;
    uint8_t id[16], lineage[16], base[32], signature[TACIT_SIGNATURE_BYTES];
    m.format = 1;
    m.lineage = filled(lineage, 16, 0x11);
    m.version = (uint64_t)round + 1;
    m.parent_version = (uint64_t)round;
    m.base_digest = filled(base, 32, 0xba);
    m.file_digest = tacit_field_of(w->manifest_digest[round], 32);
    m.file_bytes = 4096;
    m.round_id = filled(id, 16, (uint8_t)(0xa0 + round));
    m.evaluation_loss = 1.5;
    m.evaluation_accuracy = 0.5;
    m.epsilon_server = world_epsilon(w, round + 1);
    m.epsilon_published = m.epsilon_server;
    m.delta = w->none ? 0 : 1e-5;
    m.epsilon_rule = w->none ? none : rule;
    if (w->edit_manifest)
        w->edit_manifest(w, &m, round);
    size_t size;
    uint8_t *bytes = world_pack(&m, &size);
    OK(tacit_identity_sign(w->log, TACIT_MANIFEST_DOMAIN, bytes, size, signature, &w->err));
    e.body_case = TACIT__ENTRY__BODY_PUBLISHED;
    e.published = &b;
    b.manifest = tacit_field_of(bytes, size);
    b.signature = tacit_field_of(signature, sizeof signature);
    world_server(w, &e, round, -1);
    free(bytes);
}

static inline void world_start(world *w)
{
    static char version[] = "0.1.0", origin[] = WORLD_ORIGIN;
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__ServerStart s = TACIT__SERVER_START__INIT;
    e.body_case = TACIT__ENTRY__BODY_SERVER_START;
    e.server_start = &s;
    s.version = version;
    s.origin = origin;
    s.log_key = tacit_field_of(tacit_identity_sign_key(w->log), 32);
    s.operator_key = tacit_field_of(tacit_identity_sign_key(w->operator_id), 32);
    world_server(w, &e, -1, -1);
}

static inline void world_log_schedule(world *w)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__ScheduleLogged s = TACIT__SCHEDULE_LOGGED__INIT;
    e.body_case = TACIT__ENTRY__BODY_SCHEDULE;
    e.schedule = &s;
    s.schedule = tacit_field_of(w->schedule, w->schedule_size);
    world_server(w, &e, -1, -1);
}

static inline void world_log_plan(world *w, int round)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__PlanLogged p = TACIT__PLAN_LOGGED__INIT;
    e.body_case = TACIT__ENTRY__BODY_PLAN;
    e.plan = &p;
    p.plan = tacit_field_of(w->plan[round], w->plan_size[round]);
    world_server(w, &e, round, -1);
}

static inline void world_close_round(world *w, int round)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__RoundClosed c = TACIT__ROUND_CLOSED__INIT;
    uint8_t id[16];
    e.body_case = TACIT__ENTRY__BODY_ROUND_CLOSED;
    e.round_closed = &c;
    c.round_id = filled(id, 16, (uint8_t)(0xa0 + round));
    c.published = true;
    world_server(w, &e, round, -1);
}

/* --- local training: reserves that no plan of the log stands behind --- */

static inline void world_fill_local(world *w, Tacit__Reserve *r, uint8_t lineage)
{
    static char version[] = TACIT_ACCOUNTANT_VERSION;
    static uint8_t lineages[16], plan[TACIT_HASH_BYTES];
    r->plan_hash = filled(plan, sizeof plan, (uint8_t)(lineage ^ 0x0f));
    r->lineage = filled(lineages, sizeof lineages, lineage);
    r->kind = TACIT_MECHANISM_SUBSAMPLED_GAUSSIAN;
    r->unit = TACIT_UNIT_RECORD;
    r->neighbours = TACIT_ADD_REMOVE;
    r->b = 200000;
    r->q_num = TACIT_Q_ONE / 20;
    r->steps = 4;
    r->clip_norm = 0.5;
    r->values = WORLD_VALUES;
    r->delta = w->policy.delta;
    r->accountant = TACIT__ACCOUNTANT_KIND__ACCOUNTANT_PLD;
    r->accountant_version = version;
    r->epsilon_cap = w->policy.epsilon_cap;
}

/* States what the events amount to, unless this accountant has no number for them. */
static inline void world_price_local(world *w, Tacit__Reserve *r, int d, bool first)
{
    tacit_event event;
    tacit_budget *b = &w->device[d].budget;
    if (r->kind == TACIT_MECHANISM_NONE) {
        r->epsilon_after = INFINITY;
        return;
    }
    OK(tacit_budget_event(&event, r, &w->err));
    (void)!tacit_budget_add(b, &event, r->values, first, &w->err);
    r->epsilon_after = budget_epsilon(b);
}

static inline void world_push_local(world *w, int d, Tacit__Reserve *r,
                                    uint8_t leaf[TACIT_HASH_BYTES])
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    world_hook *hook = w->hook;
    e.body_case = TACIT__ENTRY__BODY_RESERVE;
    e.reserve = r;
    w->hook = NULL;
    world_own(w, &e, -1, d, leaf);
    w->hook = hook;
}

/* The standard log: start, enrolments, schedule, and every round from plan to publication. */
static inline void world_log(world *w)
{
    world_start(w);
    for (int d = 0; d < WORLD_DEVICES; d++)
        world_enrol(w, d);
    world_log_schedule(w);
    for (int r = 0; r < w->last_round; r++) {
        world_log_plan(w, r);
        for (int d = 0; d < WORLD_DEVICES; d++)
            world_reserve(w, r, d);
        for (int d = 0; d < WORLD_DEVICES; d++)
            world_spend(w, r, d);
        for (int d = 0; d < WORLD_DEVICES; d++)
            world_decide(w, r, d);
        world_aggregate(w, r);
        world_publish(w, r);
        world_close_round(w, r);
    }
}

static inline void world_checkpoint(world *w, uint64_t size, char note[TACIT_CHECKPOINT_MAX])
{
    tacit_checkpoint c = {.size = size};
    memcpy(c.origin, w->origin, sizeof c.origin);
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    OK(tacit_merkle_root(&store, size, c.root, &w->err));
    OK(tacit_checkpoint_sign(&c, w->log, note, &w->err));
}

/* The log goes on as its next origin from its first `kept` entries: what follows them stays where
 * it is (starts and stops), the restore comes behind. `last`: the newest note of the origin before;
 * NULL: of what is kept. `edit` changes what `signer` signs. */
static inline void world_restored(world *w, uint64_t kept, const char *last,
                                  const tacit_identity *signer, void (*edit)(tacit_restore *))
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__Restored b = TACIT__RESTORED__INIT;
    tacit_restore r = {.generation = w->generation + 1, .size = kept};
    uint8_t *statement, signature[TACIT_SIGNATURE_BYTES];
    size_t size;
    char note[TACIT_CHECKPOINT_MAX];
    tacit_merkle_store store = tacit_merkle_memory_store(&w->tree);
    OK(tacit_merkle_root(&store, kept, r.root, &w->err));
    memcpy(r.old_origin, w->origin, sizeof r.old_origin);
    OK(tacit_restore_origin(r.new_origin, WORLD_ORIGIN, r.generation, &w->err));
    memcpy(r.log_key, tacit_identity_sign_key(w->log), sizeof r.log_key);
    if (last)
        snprintf(note, sizeof note, "%s", last);
    else
        world_checkpoint(w, kept, note);
    if (edit)
        edit(&r);
    OK(tacit_restore_sign(&r, (tacit_span){(const uint8_t *)note, strlen(note)}, signer, &statement,
                          &size, signature, &w->err));
    e.body_case = TACIT__ENTRY__BODY_RESTORED;
    e.restored = &b;
    b.statement = tacit_field_of(statement, size);
    b.signature = tacit_field_of(signature, sizeof signature);
    world_push(w, &e, w->log, NULL);
    free(statement);
    memcpy(w->origin, r.new_origin, sizeof w->origin);
    w->generation = r.generation;
}

static inline tacit_note_key world_log_key(world *w)
{
    tacit_note_key key;
    OK(tacit_note_key_make(&key, w->origin, tacit_identity_sign_key(w->log), &w->err));
    return key;
}

static inline void world_free(world *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->entry[i].bytes);
    for (int r = 0; r < WORLD_ROUNDS; r++)
        free(w->plan[r]);
    for (int d = 0; d < WORLD_DEVICES; d++) {
        tacit_identity_free(w->device[d].id);
        free(w->device[d].policy);
    }
    free(w->schedule);
    tacit_identity_free(w->log);
    tacit_identity_free(w->policy_key);
    tacit_identity_free(w->operator_id);
    tacit_identity_free(w->stranger);
    tacit_merkle_memory_free(&w->tree);
}

#endif
