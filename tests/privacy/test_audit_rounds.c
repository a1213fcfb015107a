/* Logs with one fault each, of schedules, plans, rounds, aggregates and publications (test_audit.c
 * has those of devices and their accounts). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_faults.h"

SPOIL(rejected, UPDATE, 2, 1, e->update->accepted = false;
      e->update->reason = (char *)(uintptr_t) "norm")
SPOIL(quorum_stated, AGGREGATE, 2, -1, e->aggregate->quorum = 3)
SPOIL(aggregate_short, AGGREGATE, 2, -1, e->aggregate->n_reserve_hashes--)
SPOIL(aggregate_other, AGGREGATE, 2, -1, memset(e->aggregate->reserve_hashes[2].data, 0xff, 32))
SPOIL(aggregate_round, AGGREGATE, 2, -1, e->aggregate->round_id = filled(scratch, 16, 0x77))
SPOIL(aggregate_twice, AGGREGATE, 2, -1, e->aggregate->round_id = filled(scratch, 16, 0xa1))
SPOIL(manifest_signature, PUBLISHED, 2, -1, e->published->signature.data[1] ^= 1)
SPOIL(closed_failed, ROUND_CLOSED, 2, -1, e->round_closed->published = false;
      e->round_closed->reason = (char *)(uintptr_t) "quorum")
DROP(no_schedule, SCHEDULE, -1, -1)
DROP(no_aggregate, AGGREGATE, 2, -1)
DROP(no_publication, PUBLISHED, 2, -1)
FORGE(forged_plan, PLAN, 2, -1)
FORGE(forged_aggregate, AGGREGATE, 2, -1)

static bool round_failed(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (AT(ROUND_CLOSED, 2, -1)) {
        e->round_closed->published = false;
        e->round_closed->reason = (char *)(uintptr_t) "gate";
    }
    return !AT(PUBLISHED, 2, -1);
}

/* Two rejected of three: the aggregate of the one is honest and below quorum. */
static bool one_accepted(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (AT(UPDATE, 2, 1) || AT(UPDATE, 2, 2)) {
        e->update->accepted = false;
        e->update->reason = (char *)(uintptr_t) "norm";
    }
    if (AT(AGGREGATE, 2, -1)) {
        e->aggregate->reserve_hashes[0] = tacit_field_of(w->device[0].reserve[2], 32);
        e->aggregate->n_reserve_hashes = 1;
    }
    return true;
}

static bool accepted_late(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(UPDATE, 2, 1))
        return false;
    if (AT(AGGREGATE, 2, -1))
        leave_out(w, e->aggregate, 2);
    if (AT(PUBLISHED, 2, -1)) {
        world_hook *hook = w->hook;
        w->hook = NULL;
        world_decide(w, 2, 1);
        w->hook = hook;
    }
    return true;
}

static bool schedule_twice(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1)) {
        world_hook *hook = w->hook;
        w->hook = NULL;
        world_log_schedule(w);
        w->hook = hook;
    }
    return true;
}

static void push_bad_bytes(world *w, Tacit__Entry__BodyCase kind)
{
    Tacit__Entry e = TACIT__ENTRY__INIT;
    Tacit__ScheduleLogged s = TACIT__SCHEDULE_LOGGED__INIT;
    Tacit__PlanLogged p = TACIT__PLAN_LOGGED__INIT;
    e.body_case = kind;
    s.schedule = tacit_field_of("\x08\x07", 2);
    p.plan = tacit_field_of("\x08\x07", 2);
    if (kind == TACIT__ENTRY__BODY_SCHEDULE)
        e.schedule = &s;
    else
        e.plan = &p;
    world_push(w, &e, w->log, NULL);
}

static bool bad_schedule(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        push_bad_bytes(w, TACIT__ENTRY__BODY_SCHEDULE);
    return true;
}

static bool bad_plan(world *w, Tacit__Entry *e, int round, int device)
{
    if (AT(PLAN, 2, -1))
        push_bad_bytes(w, TACIT__ENTRY__BODY_PLAN);
    return true;
}

static bool rolled_back(world *w, uint64_t from, uint64_t to)
{
    Tacit__Entry r = TACIT__ENTRY__INIT;
    Tacit__AdapterRolledBack b = TACIT__ADAPTER_ROLLED_BACK__INIT;
    r.body_case = TACIT__ENTRY__BODY_ROLLED_BACK;
    r.rolled_back = &b;
    b.lineage = filled(scratch, 16, 0x11);
    b.from_version = from;
    b.to_version = to;
    b.reason = (char *)(uintptr_t) "worse in the field";
    world_push(w, &r, w->log, NULL);
    return true;
}

static bool rollback_known(world *w, Tacit__Entry *e, int round, int device)
{
    return AT(ROUND_CLOSED, 2, -1) ? rolled_back(w, 3, 1) : true;
}

static bool rollback_unknown(world *w, Tacit__Entry *e, int round, int device)
{
    return AT(ROUND_CLOSED, 2, -1) ? rolled_back(w, 3, 9) : true;
}

/* --- after a round ended --- */

static void close_as_failed(world *w, int round)
{
    Tacit__Entry c = TACIT__ENTRY__INIT;
    Tacit__RoundClosed b = TACIT__ROUND_CLOSED__INIT;
    c.body_case = TACIT__ENTRY__BODY_ROUND_CLOSED;
    c.round_closed = &b;
    b.round_id = filled(scratch, 16, (uint8_t)(0xa0 + round));
    b.reason = (char *)(uintptr_t) "gate";
    world_push(w, &c, w->log, NULL);
}

/* Closed as failed before the given entry; its own closing is dropped. */
#define CLOSED_BEFORE(name, kind, d)                                                               \
    static bool name(world *w, Tacit__Entry *e, int round, int device)                             \
    {                                                                                              \
        if (AT(kind, 2, d))                                                                        \
            close_as_failed(w, 2);                                                                 \
        return !AT(ROUND_CLOSED, 2, -1);                                                           \
    }
CLOSED_BEFORE(closed_before_publication, PUBLISHED, -1)
CLOSED_BEFORE(closed_before_aggregate, AGGREGATE, -1)
CLOSED_BEFORE(closed_before_decision, UPDATE, 1)

/* --- bytes that only somebody without this code would sign --- */

/* Edits of schedule, plan and manifest. */
static void plan_quieter(Tacit__Plan *p, int round)
{
    if (round == 2)
        p->mechanism->b = 90000;
}

static void plan_rate(Tacit__Plan *p, int round)
{
    if (round == 2)
        p->mechanism->q_num *= 2;
}

static void plan_same_index(Tacit__Plan *p, int round)
{
    if (round == 2)
        p->round_index = 1;
}

static void plan_same_round(Tacit__Plan *p, int round)
{
    if (round == 2)
        memset(p->round_id.data, 0xa1, 16);
}

static void plan_parent(Tacit__Plan *p, int round)
{
    if (round == 2)
        p->parent_digest = filled(scratch, 32, 1);
}

static void plan_quorum(Tacit__Plan *p, int round)
{
    (void)round;
    p->quorum = 1;
}

static void schedule_noise(Tacit__Schedule *s)
{
    for (size_t i = 0; i < s->n_rounds; i++)
        s->rounds[i]->mechanism->b = 70000;
}

static void plan_noise(Tacit__Plan *p, int round)
{
    (void)round;
    p->mechanism->b = 70000;
}

static void schedule_long(Tacit__Schedule *s)
{
    s->rounds[2]->mechanism->steps = 1000;
}

static void plan_long(Tacit__Plan *p, int round)
{
    if (round == 2)
        p->mechanism->steps = 1000;
}

static void manifest_epsilon(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 2)
        m->epsilon_server *= 0.99;
}

static void manifest_published(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 2)
        m->epsilon_published *= 0.5;
}

static void manifest_delta(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 2)
        m->delta *= 0.1;
}

static void manifest_version(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 2)
        m->version = 2;
}

static void manifest_parent(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 2)
        m->parent_version = 1;
}

static void manifest_base(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 2)
        m->base_digest.data[0] ^= 1;
}

static void manifest_round(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    if (round == 2)
        memset(m->round_id.data, 0x77, 16);
}

/* --- whole devices --- */

static void whole_mechanism(Tacit__Mechanism *m)
{
    m->unit = TACIT__UNIT__UNIT_DEVICE;
    m->b = 700000;
    m->q_num = TACIT_Q_ONE;
    m->steps = 1;
    m->divisor = 1;
}

static void whole_schedule(Tacit__Schedule *s)
{
    for (size_t i = 0; i < s->n_rounds; i++)
        whole_mechanism(s->rounds[i]->mechanism);
}

static void whole_plan(Tacit__Plan *p, int round)
{
    (void)round;
    whole_mechanism(p->mechanism);
    p->local_steps = 5;
    p->update_scale = 65536 / p->mechanism->clip_norm;
    p->norm_bound = 1000;
}

static void whole_plan_with_colluder(Tacit__Plan *p, int round)
{
    whole_plan(p, round);
    p->assumed_colluders = 1;
}

static void whole_plan_at_small_bound(Tacit__Plan *p, int round)
{
    whole_plan(p, round);
    p->norm_bound = 3;
}

static void whole_plan_without_steps(Tacit__Plan *p, int round)
{
    whole_plan(p, round);
    p->local_steps = round == 2 ? 0 : 5;
}

/* The figure of sums of `h` devices' noise, whatever the log says. */
static void state_summed(Tacit__AdapterManifest *m, uint64_t b, double h, int round)
{
    static char rule[] = "summed-noise";
    tacit_budget sum;
    tacit_error err;
    tacit_event event = {.neighbours = TACIT_ADD_REMOVE,
                         .sigma = tacit_noise_multiplier(b) * sqrt(h),
                         .q = 1,
                         .count = (uint64_t)round + 1};
    tacit_budget_open(&sum, 1, 1e-5);
    OK(tacit_budget_add(&sum, &event, WORLD_VALUES, true, &err));
    m->epsilon_published = budget_epsilon(&sum);
    m->epsilon_rule = rule;
}

/* Three updates, one of them the recipient's. */
static void whole_manifest(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    state_summed(m, 700000, 2, round);
}

static void whole_manifest_of_all(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    state_summed(m, 700000, 3, round);
}

static void summed_records(world *w, Tacit__AdapterManifest *m, int round)
{
    (void)w;
    state_summed(m, 100000, 2, round);
}

/* --- tree noise --- */

static void tree_mechanism(Tacit__Mechanism *m)
{
    m->kind = TACIT__MECHANISM_KIND__MECHANISM_TREE_GAUSSIAN;
    m->b = 700000;
    m->q_num = TACIT_Q_ONE;
    m->minimum_separation = 5;
}

static void tree_schedule(Tacit__Schedule *s)
{
    for (size_t i = 0; i < s->n_rounds; i++)
        tree_mechanism(s->rounds[i]->mechanism);
}

static void tree_plan(Tacit__Plan *p, int round)
{
    (void)round;
    tree_mechanism(p->mechanism);
}

SPOIL(other_separation, RESERVE, 1, 2, e->reserve->minimum_separation = 10)
LOCAL(local_tree, r->kind = TACIT_MECHANISM_TREE_GAUSSIAN; r->b = 700000; r->q_num = TACIT_Q_ONE;
      r->minimum_separation = 2)
#define ANY_UNIT TACIT_UNIT_RECORD

static const log_fault faults[] = {
    {"plan by a stranger", "wrong_signer",
     "reserve_without_plan decision_mismatch aggregate_without_plan", forged_plan, NULL, NULL, NULL,
     3, false, ANY_UNIT},
    {"aggregate by a stranger", "wrong_signer", "manifest_without_aggregate", forged_aggregate,
     NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"malformed schedule", "bad_schedule", "", bad_schedule, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"two schedules", "duplicate_schedule", "", schedule_twice, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"malformed plan", "bad_plan", "", bad_plan, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"schedule missing", "plan_without_schedule",
     "reserve_without_plan decision_mismatch aggregate_without_plan", no_schedule, NULL, NULL, NULL,
     3, false, ANY_UNIT},
    {"plan with less noise", "plan_off_schedule", "", NULL, plan_quieter, NULL, NULL, 3, false,
     ANY_UNIT},
    {"plan with more sampling", "plan_off_schedule", "", NULL, plan_rate, NULL, NULL, 3, false,
     ANY_UNIT},
    {"two plans of a round", "duplicate_plan", "decision_mismatch aggregate_without_plan", NULL,
     plan_same_round, NULL, NULL, 3, false, ANY_UNIT},
    {"two plans of a position", "duplicate_plan", "manifest_epsilon", NULL, plan_same_index, NULL,
     NULL, 3, false, ANY_UNIT},
    {"noise under policy", "under_policy", "", NULL, plan_noise, NULL, schedule_noise, 30, false,
     ANY_UNIT},
    {"quorum under policy", "under_policy", "aggregate_mismatch", NULL, plan_quorum, NULL, NULL, 3,
     false, ANY_UNIT},
    {"schedule over cap", "schedule_over_cap", "cap_exceeded", NULL, plan_long, NULL, schedule_long,
     3, false, ANY_UNIT},
    {"aggregate of another round", "aggregate_without_plan", "manifest_without_aggregate",
     aggregate_round, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"aggregated twice", "duplicate_aggregate", "manifest_without_aggregate", aggregate_twice, NULL,
     NULL, NULL, 3, false, ANY_UNIT},
    {"update left out", "aggregate_mismatch", "", aggregate_short, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"update made up", "aggregate_mismatch", "", aggregate_other, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"rejected update summed", "aggregate_mismatch", "", rejected, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"accepted after the sum", "aggregate_mismatch", "", accepted_late, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"other quorum stated", "aggregate_mismatch", "", quorum_stated, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"below quorum", "below_quorum", "", one_accepted, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"tree noise", NULL, "", NULL, tree_plan, NULL, tree_schedule, 3, false, ANY_UNIT},
    {"tree noise, another separation", "reserve_off_plan", "epsilon_mismatch", other_separation,
     tree_plan, NULL, tree_schedule, 3, false, ANY_UNIT},
    {"local tree noise", NULL, "", local_tree, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"whole devices", NULL, "", NULL, whole_plan, whole_manifest, whole_schedule, 3, false,
     TACIT_UNIT_DEVICE},
    {"whole devices at the server's number", NULL, "", NULL, whole_plan_at_small_bound, NULL,
     whole_schedule, 3, false, TACIT_UNIT_DEVICE},
    {"whole devices, no colluders counted", "manifest_epsilon", "", NULL, whole_plan_with_colluder,
     whole_manifest, whole_schedule, 3, false, TACIT_UNIT_DEVICE},
    {"whole devices, scaled down", "manifest_epsilon", "", NULL, whole_plan_at_small_bound,
     whole_manifest, whole_schedule, 3, false, TACIT_UNIT_DEVICE},
    {"whole devices, recipient's noise counted", "manifest_epsilon", "", NULL, whole_plan,
     whole_manifest_of_all, whole_schedule, 3, false, TACIT_UNIT_DEVICE},
    {"records by the rule of sums", "manifest_epsilon", "", NULL, NULL, summed_records, NULL, 3,
     false, ANY_UNIT},
    {"whole devices without local steps", "bad_plan",
     "reserve_without_plan decision_mismatch aggregate_without_plan manifest_without_aggregate",
     NULL, whole_plan_without_steps, whole_manifest, whole_schedule, 3, false, TACIT_UNIT_DEVICE},
    {"manifest signature", "bad_manifest", "round_state", manifest_signature, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"manifest of another base", "bad_manifest", "round_state", NULL, NULL, manifest_base, NULL, 3,
     false, ANY_UNIT},
    {"manifest of no round", "aggregate_without_plan", "round_state", NULL, NULL, manifest_round,
     NULL, 3, false, ANY_UNIT},
    {"published without aggregate", "manifest_without_aggregate", "", no_aggregate, NULL, NULL,
     NULL, 3, false, ANY_UNIT},
    {"version used twice", "manifest_chain", "", NULL, NULL, manifest_version, NULL, 3, false,
     ANY_UNIT},
    {"other parent version", "manifest_chain", "", NULL, NULL, manifest_parent, NULL, 3, false,
     ANY_UNIT},
    {"parent never published", "manifest_chain", "", NULL, plan_parent, NULL, NULL, 3, false,
     ANY_UNIT},
    {"server epsilon too low", "manifest_epsilon", "", NULL, NULL, manifest_epsilon, NULL, 3, false,
     ANY_UNIT},
    {"published epsilon too low", "manifest_epsilon", "", NULL, NULL, manifest_published, NULL, 3,
     false, ANY_UNIT},
    {"other delta published", "manifest_epsilon", "", NULL, NULL, manifest_delta, NULL, 3, false,
     ANY_UNIT},
    {"published after it failed", "round_state", "", closed_before_publication, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"aggregated after it failed", "round_state", "", closed_before_aggregate, NULL, NULL, NULL, 3,
     false, ANY_UNIT},
    {"accepted after it failed", "round_state", "aggregate_mismatch", closed_before_decision, NULL,
     NULL, NULL, 3, false, ANY_UNIT},
    {"rollback", NULL, "", rollback_known, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"rollback to nothing", "rollback_unknown", "", rollback_unknown, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"closed as failed", "round_state", "", closed_failed, NULL, NULL, NULL, 3, false, ANY_UNIT},
    {"closed as published", "round_state", "", no_publication, NULL, NULL, NULL, 3, false,
     ANY_UNIT},
    {"a failed round", NULL, "", round_failed, NULL, NULL, NULL, 3, false, ANY_UNIT},
};

static void test_every_fault_is_caught_as_what_it_is(void **state)
{
    (void)state;
    expect_faults_caught(faults, sizeof faults / sizeof faults[0]);
}

static void test_every_kind_has_a_fault(void **state)
{
    (void)state;
    expect_kinds_covered(round_kinds, faults, sizeof faults / sizeof faults[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_fault_is_caught_as_what_it_is),
        cmocka_unit_test(test_every_kind_has_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
