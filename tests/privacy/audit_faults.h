/* Logs that are wrong from the start, one fault each, and what the auditor must find in them. The
 * tables of faults stand in test_audit.c and test_audit_rounds.c. Included after cmocka.h. */
#ifndef TACIT_TESTS_AUDIT_FAULTS_H
#define TACIT_TESTS_AUDIT_FAULTS_H

#include "audit_run.h"
#include "log_edits.h"

/* A hook that spoils one entry in place. */
#define SPOIL(name, kind, r, d, how)                                                               \
    static bool name(world *w, Tacit__Entry *e, int round, int device)                             \
    {                                                                                              \
        (void)w;                                                                                   \
        if (AT(kind, r, d)) {                                                                      \
            how;                                                                                   \
        }                                                                                          \
        return true;                                                                               \
    }

/* A hook that drops one entry. */
#define DROP(name, kind, r, d)                                                                     \
    static bool name(world *w, Tacit__Entry *e, int round, int device)                             \
    {                                                                                              \
        (void)w;                                                                                   \
        return !AT(kind, r, d);                                                                    \
    }

/* A hook that lets another key sign one entry. */
#define FORGE(name, kind, r, d)                                                                    \
    static bool name(world *w, Tacit__Entry *e, int round, int device)                             \
    {                                                                                              \
        if (!AT(kind, r, d))                                                                       \
            return true;                                                                           \
        world_push(w, e, w->stranger, NULL);                                                       \
        return false;                                                                              \
    }

#define ANY_UNIT TACIT_UNIT_RECORD

/* `kind` must be found; every other finding must be among `also`. NULL: the log is fine. */
typedef struct log_fault {
    const char *what;
    const char *kind;
    const char *also;
    world_hook *hook;
    void (*edit_plan)(Tacit__Plan *, int);
    void (*edit_manifest)(world *, Tacit__AdapterManifest *, int);
    void (*edit_schedule)(Tacit__Schedule *);
    double cap;
    bool none;
    tacit_privacy_unit unit; /* the least that the policies take */
} log_fault;

/* The kinds of violation by the table that must have a fault of theirs. */
static const char device_kinds[] =
    "malformed_entry bad_signature duplicate_entry wrong_signer wrong_start "
    "unvouched_restore bad_restore bad_key_rotation unknown_device duplicate_device bad_policy "
    "policy_weakened policy_replayed "
    "outdated_accepted "
    "after_revocation after_clone after_account_lost sequence_gap sequence_reused broken_chain "
    "reserve_without_plan reserve_off_plan duplicate_reserve under_policy non_private "
    "insecure_seed "
    "epsilon_mismatch cap_mismatch cap_exceeded window_exceeded local_mechanism local_schedule "
    "local_update spend_without_reserve duplicate_spend duplicate_update decision_without_spend "
    "decision_mismatch duplicate_decision";
static const char round_kinds[] =
    "bad_schedule duplicate_schedule schedule_over_cap bad_plan duplicate_plan "
    "plan_without_schedule plan_off_schedule aggregate_without_plan duplicate_aggregate "
    "aggregate_mismatch below_quorum bad_manifest manifest_without_aggregate manifest_chain "
    "manifest_epsilon rollback_unknown round_state";
/* Kinds that only the whole log or a receipt can show; each has its own test in
 * test_audit_log.c, test_export.c, test_witness.c or test_audit_restore.c. */
static const char whole_kinds[] =
    "wrong_log_key bad_checkpoint root_mismatch incomplete_export "
    "unsigned_tail bad_receipt split_view receipt_missing tile_mismatch "
    "bad_cosignature unwitnessed_plan lost_entry";

static inline bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *found = strstr(list, word); found; found = strstr(found + 1, word))
        if ((found == list || found[-1] == ' ') && (found[n] == ' ' || found[n] == '\0'))
            return true;
    return false;
}

static inline bool fault_is_caught(const log_fault *f)
{
    world w;
    exported x;
    tacit_audit audit;
    world_init(&w);
    w.hook = f->hook;
    w.edit_plan = f->edit_plan;
    w.edit_manifest = f->edit_manifest;
    w.edit_schedule = f->edit_schedule;
    w.policy.epsilon_cap = f->cap;
    w.policy.unit = f->unit;
    w.none = f->none;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    bool good = f->kind ? has(&audit, f->kind) : audit.violation_count == 0;
    for (size_t i = 0; i < audit.violation_count && f->kind; i++)
        good = good && (strcmp(audit.violations[i].kind, f->kind) == 0 ||
                        listed(f->also, audit.violations[i].kind));
    if (!good)
        print_all(f->what, &audit);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
    return good;
}

static inline void expect_faults_caught(const log_fault *faults, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += !fault_is_caught(&faults[i]);
    assert_int_equal(bad, 0);
}

/* Every kind of the list has a fault in the table. */
static inline void expect_kinds_covered(const char *kinds, const log_fault *faults, size_t n)
{
    for (const tacit_audit_kind *k = tacit_audit_kinds; k->kind; k++) {
        bool covered = !listed(kinds, k->kind);
        for (size_t i = 0; i < n; i++)
            covered = covered || (faults[i].kind && strcmp(faults[i].kind, k->kind) == 0);
        if (!covered)
            fail_msg("no fault for %s", k->kind);
    }
}

#endif
