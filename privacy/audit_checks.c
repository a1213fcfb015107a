/* The checks of an audit as a reader counts them: every kind of violation fails exactly one of
 * them, and a check that had nothing to look at says so instead of passing. */
#include "privacy/audit_internal.h"

#include <stdlib.h>
#include <string.h>

const char *const tacit_audit_limits[] = {
    "that a device really sampled, clipped and noised as it reserved (only its code and a test of "
    "its noise can show that)",
    "that the data of a device is what its owner believes, or that one subject is on no more "
    "devices than the policy says",
    "that a published file is what its aggregate amounts to (the updates are sealed; a receiver "
    "can check the file's digest alone)",
    "that a disk image was not rolled back in collusion with the server (a TPM counter would)",
    "that the server shows everybody this log: hold receipts of devices against it (--receipt), "
    "and let a witness cosign it",
    NULL,
};

/* --- the table --- */

#define SEEN(what) (UINT64_C(1) << AUDIT_SEEN_##what)
#define KIND(kind) (UINT64_C(1) << TACIT__ENTRY__BODY_##kind)

#define VIOLATIONS_MAX 6 /* with a NULL at the end */

typedef struct check_row {
    const char *name, *holds;
    uint64_t looks_at; /* SEEN and KIND bits; none: `skip` decides */
    const char *noun, *nothing;
    const char *violations[VIOLATIONS_MAX];
    /* The reason why it was not done, or NULL; for what does not follow from counts. */
    const char *(*skip)(const audit_work *w);
} check_row;

static const char *no_log_key(const audit_work *w)
{
    return w->options->log_key ? NULL
                               : "none given (--log-key VKEY); the key in keys.txt is the "
                                 "export's own word";
}

static const char *no_receipts(const audit_work *w)
{
    return w->options->receipt_count ? NULL : "none given (--receipt FILE)";
}

static const char *no_other_checkpoint(const audit_work *w)
{
    return w->options->receipt_count ? NULL
                                     : "no other checkpoint to compare with (--receipt FILE)";
}

static const char *no_witness(const audit_work *w)
{
    return w->out->witnessed ? NULL : "no witness keys are named by policies or --witness";
}

static const char *allowed_without_noise(const audit_work *w)
{
    return w->options->allow_non_private ? "allowed by --allow-non-private" : NULL;
}

static const check_row rows[] = {
    {"entries",
     "every entry is well formed and logged once",
     SEEN(ENTRY),
     "entries",
     "the log has no entries",
     {"malformed_entry", "duplicate_entry"},
     NULL},
    {"signatures",
     "every entry is signed by the key that may sign it at its index",
     SEEN(ENTRY),
     "entries",
     "the log has no entries",
     {"bad_signature", "wrong_signer"},
     NULL},
    {"start",
     "the log begins, and goes on, under its own origin and key",
     SEEN(ENTRY),
     "entries",
     "the log has no entries",
     {"wrong_start"},
     NULL},
    {"restores",
     "every restore of the log from an older copy goes on from it, vouched for by its operator key",
     KIND(RESTORED),
     "restores",
     "the log was never restored",
     {"unvouched_restore", "bad_restore"},
     NULL},
    {"key_rotations",
     "every change of the log's key is signed by both keys",
     KIND(KEY_ROTATED),
     "changes",
     "the key never changed",
     {"bad_key_rotation"},
     NULL},
    {"log_key",
     "the log is under the key that you trust",
     SEEN(ENTRY),
     "entries",
     "the log has no entries",
     {"wrong_log_key"},
     no_log_key},
    {"checkpoint",
     "the newest checkpoint is signed by the log's key",
     SEEN(CHECKPOINT),
     "checkpoints",
     "there is none",
     {"bad_checkpoint"},
     NULL},
    {"tree",
     "the entries have the root that the checkpoint signs, none missing, none more",
     SEEN(CHECKPOINT),
     "checkpoints",
     "the checkpoint does not hold",
     {"root_mismatch", "tile_mismatch", "incomplete_export", "unsigned_tail"},
     NULL},
    {"consistency",
     "every other checkpoint given is of the same log, and of one another's",
     SEEN(RECEIPT),
     "checkpoints",
     "no other checkpoint could be read",
     {"split_view"},
     no_other_checkpoint},
    {"receipts",
     "what devices were shown is in the log",
     SEEN(RECEIPT),
     "receipts",
     "none could be read",
     {"bad_receipt", "receipt_missing", "lost_entry"},
     no_receipts},
    {"witnesses",
     "witnesses cosigned what devices took, as part of one log",
     SEEN(CHECKPOINT),
     "checkpoints",
     "the checkpoint does not hold",
     {"bad_cosignature", "unwitnessed_plan"},
     no_witness},

    {"devices",
     "every device is enrolled once, and before its entries",
     KIND(ENROL),
     "enrolments",
     "no device is enrolled",
     {"unknown_device", "duplicate_device"},
     NULL},
    {"declared_policies",
     "every device signed the policy that it declared",
     KIND(ENROL) | KIND(POLICY_CHANGED),
     "policies",
     "no policy is declared",
     {"bad_policy"},
     NULL},
    {"policy_changes",
     "nobody but the device or its policy key allowed more",
     KIND(POLICY_CHANGED),
     "changes",
     "no policy was changed",
     {"policy_weakened", "policy_replayed"},
     NULL},
    {"revocations",
     "revoked and frozen devices did nothing more",
     KIND(REVOKE) | KIND(CLONE_SUSPECTED),
     "revocations and freezes",
     "no device was revoked or frozen",
     {"after_revocation", "after_clone"},
     NULL},
    {"chains",
     "every device's entries follow each other without gap or fork",
     SEEN(OWN),
     "entries of devices",
     "no device signed an entry",
     {"sequence_gap", "sequence_reused", "broken_chain"},
     NULL},

    {"schedules",
     "every lineage has one schedule",
     KIND(SCHEDULE),
     "schedules",
     "no schedule is logged",
     {"bad_schedule", "duplicate_schedule"},
     NULL},
    {"plans",
     "every round has one plan",
     KIND(PLAN),
     "plans",
     "no plan is logged",
     {"bad_plan", "duplicate_plan"},
     NULL},
    {"plans_follow_schedules",
     "every plan is what a schedule fixed that was logged before it, so before any reserve",
     KIND(PLAN),
     "plans",
     "no plan is logged",
     {"plan_without_schedule", "plan_off_schedule"},
     NULL},
    {"reserves_equal_plans",
     "every reserve is its plan's, logged before it, and the only one",
     SEEN(PLANNED),
     "reserves of rounds",
     "no round was reserved",
     {"reserve_without_plan", "reserve_off_plan", "duplicate_reserve"},
     NULL},
    {"local_training",
     "local training is priced as a schedule of its own and sends nothing",
     SEEN(LOCAL),
     "reserves of local training",
     "no device trained alone",
     {"local_mechanism", "local_schedule", "local_update"},
     NULL},
    {"policies",
     "no reserve has less noise, a smaller unit or a smaller cohort than its device's "
     "policy asks for",
     KIND(RESERVE),
     "reserves",
     "nothing was reserved",
     {"under_policy", "outdated_accepted"},
     NULL},
    {"epsilons",
     "every logged epsilon is what the events amount to",
     KIND(RESERVE),
     "reserves",
     "nothing was reserved",
     {"epsilon_mismatch"},
     NULL},
    {"caps",
     "no account was above its cap, or its window, at any reserve",
     KIND(RESERVE),
     "reserves",
     "nothing was reserved",
     {"cap_exceeded", "window_exceeded", "schedule_over_cap", "cap_mismatch"},
     NULL},
    {"lost_accounts",
     "nothing was spent from an account that was lost",
     KIND(ACCOUNT_LOST),
     "lost accounts",
     "no account was lost",
     {"after_account_lost"},
     NULL},
    {"non_private",
     "every reserve is of a mechanism with noise",
     KIND(RESERVE),
     "reserves",
     "nothing was reserved",
     {"non_private"},
     allowed_without_noise},
    {"insecure_seeds",
     "no test seed replaced the randomness of a device",
     KIND(RESERVE),
     "reserves",
     "nothing was reserved",
     {"insecure_seed"},
     NULL},

    {"spends",
     "every update is of a reserve of its device, once, with a digest of its own",
     KIND(SPEND) | KIND(ABANDON),
     "updates and abandonments",
     "no update was signed",
     {"spend_without_reserve", "duplicate_spend", "duplicate_update"},
     NULL},
    {"decisions",
     "at most one update is accepted under a reserve, and it is the one signed",
     KIND(UPDATE),
     "decisions",
     "no update was decided",
     {"decision_without_spend", "decision_mismatch", "duplicate_decision"},
     NULL},
    {"aggregates",
     "every sum is of the accepted updates of one known round",
     KIND(AGGREGATE),
     "sums",
     "nothing was summed",
     {"aggregate_without_plan", "duplicate_aggregate", "aggregate_mismatch"},
     NULL},
    {"quorum",
     "every sum has at least the plan's quorum of updates",
     KIND(AGGREGATE),
     "sums",
     "nothing was summed",
     {"below_quorum"},
     NULL},
    {"manifests",
     "every published adapter has a signed manifest of a summed round",
     KIND(PUBLISHED),
     "publications",
     "nothing was published",
     {"bad_manifest", "manifest_without_aggregate"},
     NULL},
    {"manifest_chain",
     "versions rise and every parent was published",
     KIND(PUBLISHED),
     "publications",
     "nothing was published",
     {"manifest_chain"},
     NULL},
    {"published_epsilons",
     "both epsilons of every manifest are what its rounds amount to",
     KIND(PUBLISHED),
     "publications",
     "nothing was published",
     {"manifest_epsilon"},
     NULL},
    {"rollbacks",
     "every rollback is between published versions",
     KIND(ROLLED_BACK),
     "rollbacks",
     "nothing was rolled back",
     {"rollback_unknown"},
     NULL},
    {"round_endings",
     "no closed round went on, or says otherwise than its publication",
     KIND(ROUND_CLOSED),
     "closed rounds",
     "no round was closed",
     {"round_state"},
     NULL},
};

#define ROWS (sizeof rows / sizeof rows[0])

static const check_row *row_of(const char *kind)
{
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < VIOLATIONS_MAX && rows[i].violations[k]; k++)
            if (strcmp(rows[i].violations[k], kind) == 0)
                return &rows[i];
    return NULL;
}

const char *const *tacit_audit_check_kinds(const char *check)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, check) == 0)
            return rows[i].violations;
    return NULL;
}

const char *tacit_audit_check_of(const char *kind)
{
    const check_row *row = row_of(kind);
    return row ? row->name : NULL;
}

const char *tacit_audit_outcome_name(tacit_audit_outcome outcome)
{
    static const char *const names[] = {"pass", "fail", "skipped"};
    return names[outcome];
}

/* --- the outcomes --- */

static void count_failures(const audit_work *w, tacit_audit_check *checks)
{
    for (size_t i = 0; i < w->out->violation_count; i++) {
        const tacit_violation *v = &w->out->violations[i];
        const check_row *row = row_of(v->kind);
        if (!row)
            continue;
        tacit_audit_check *c = &checks[row - rows];
        c->failures++;
        if (v->entry < c->first_entry)
            c->first_entry = v->entry;
    }
}

static void judge(const audit_work *w, const check_row *row, tacit_audit_check *c)
{
    for (size_t k = 0; k < AUDIT_SEEN_KINDS; k++)
        if (row->looks_at & UINT64_C(1) << k)
            c->examined += w->seen[k];
    c->outcome = TACIT_AUDIT_PASS;
    if (c->failures) {
        c->outcome = TACIT_AUDIT_FAIL;
        return;
    }
    c->reason = row->skip ? row->skip(w) : NULL;
    if (!c->reason && !c->examined)
        c->reason = row->nothing;
    if (c->reason)
        c->outcome = TACIT_AUDIT_SKIPPED;
}

tacit_status audit_judge(audit_work *w)
{
    tacit_audit_check *checks = calloc(ROWS, sizeof *checks);
    if (!checks)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for the checks");
    w->out->checks = checks;
    w->out->check_count = ROWS;
    for (size_t i = 0; i < ROWS; i++)
        checks[i] = (tacit_audit_check){.name = rows[i].name,
                                        .holds = rows[i].holds,
                                        .noun = rows[i].noun,
                                        .first_entry = TACIT_AUDIT_NO_ENTRY};
    count_failures(w, checks);
    for (size_t i = 0; i < ROWS; i++)
        judge(w, &rows[i], &checks[i]);
    return TACIT_OK;
}
