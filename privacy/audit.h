/* The offline audit of an exported log: every check that needs no server, each finding a
 * violation {kind, entry, detail}. The list of kinds with their meaning: tacit_audit_kinds.
 *
 * What nobody did wrong but a reader should know is a note, of the same form. One kind is
 * `inherited_adapter`: a lineage goes on from an adapter of another, as its schedule says, and the
 * epsilon of its versions is of its own rounds alone. Another is `restored`: the log went on from
 * an older copy (privacy/restore.h). The third is `outdated_reserve` (privacy/ledger.h): signed
 * under a policy that was in force no more when the log took it. It counts as spent, so an epsilon
 * above its cap may be nobody's fault. An update accepted under it is the violation
 * `outdated_accepted`. What no policy of the device ever allowed is a violation whether an update
 * follows or not. */
#ifndef TACIT_PRIVACY_AUDIT_H
#define TACIT_PRIVACY_AUDIT_H

#include "common/pool.h"
#include "privacy/event_list.h"
#include "privacy/export.h"
#include "proto/plan.pb-c.h"

#define TACIT_AUDIT_NO_ENTRY UINT64_MAX

typedef struct tacit_violation {
    const char *kind; /* a word of tacit_audit_kinds */
    uint64_t entry;   /* index in the log, TACIT_AUDIT_NO_ENTRY when it is of the whole */
    char *detail;     /* one line */
} tacit_violation;

typedef enum tacit_audit_outcome {
    TACIT_AUDIT_PASS,
    TACIT_AUDIT_FAIL,
    TACIT_AUDIT_SKIPPED
} tacit_audit_outcome;

/* What one check came to: a row of the table in audit_checks.c. */
typedef struct tacit_audit_check {
    const char *name;  /* stable snake_case: "signatures" */
    const char *holds; /* what is true when it passes */
    const char *noun;  /* what it looked at: "entries" */
    tacit_audit_outcome outcome;
    uint64_t examined;    /* how many of them */
    uint64_t failures;    /* violations of its kinds */
    uint64_t first_entry; /* the lowest entry among them, TACIT_AUDIT_NO_ENTRY when none has one */
    const char *reason;   /* of TACIT_AUDIT_SKIPPED, else NULL */
} tacit_audit_check;

typedef struct tacit_audit_device {
    uint8_t device[TACIT_DEVICE_BYTES]; /* newest pseudonym of the key */
    double epsilon, cap, delta;
    double epsilon_subject;  /* of devices_per_subject devices that took part in what it did, or in
                              * some of it, together; +inf when lost and they are several */
    tacit_privacy_unit unit; /* of its private reserves; before one, of the policy */
    uint32_t devices_per_subject;
    uint64_t reserves, spends, accepted;
    bool non_private, insecure, revoked, frozen, lost;
    double order; /* Renyi order that epsilon is read at; 0 with one schedule alone, which
                   * is read by its loss distribution */
    tacit_event_list charged; /* what was charged, local training included */
} tacit_audit_device;

/* A point of a device's curve: what a private reserve brought its account to. */
typedef struct tacit_audit_point {
    uint64_t entry;
    size_t device;  /* index into tacit_audit.devices */
    double epsilon; /* recomputed */
} tacit_audit_point;

/* A round: its logged plan and what became of it. */
typedef struct tacit_audit_round {
    uint64_t entry; /* of the plan */
    uint8_t round_id[16], lineage[16];
    uint32_t index; /* position in the lineage's schedule, from 0 */
    tacit_mechanism mechanism;
    double delta;
    uint32_t values, cohort, quorum;
    uint32_t local_steps, assumed_colluders; /* of the device unit, else 0 */
    uint64_t reserved, accepted, rejected;
    bool summed, published, closed;
    /* Of the schedule up to this round, recomputed, in both views. */
    double epsilon_server, epsilon_published;
    char rule[32];
} tacit_audit_round;

/* What somebody did to the log, a device or an adapter beside the rounds: revocations, changes of
 * policy, lost accounts, rollbacks, changes of key, starts, rounds that failed. */
typedef struct tacit_audit_event {
    uint64_t entry, time_ms; /* the signer's clock */
    const char *kind;        /* tacit_entry_kind_name */
    bool has_device;
    uint8_t device[TACIT_DEVICE_BYTES];
    char *text; /* one line; words in it are the signer's */
} tacit_audit_event;

typedef struct tacit_audit_publication {
    uint64_t entry, version, parent_version;
    uint8_t lineage[16], file_digest[TACIT_HASH_BYTES];
    double epsilon_server, epsilon_published, delta; /* recomputed */
    double accuracy;                                 /* as the manifest states it */
    char rule[32];
} tacit_audit_publication;

/* A well-formed schedule, and how far it went. Epsilons are recomputed, at the schedule's delta,
 * against the server, for a device that takes every round: +inf with a round of mechanism none. */
typedef struct tacit_audit_schedule {
    uint64_t entry;
    Tacit__Schedule *schedule;
    uint64_t values; /* trainable values, as its plans state them; 0: no plan is logged */
    /* Rounds that have a plan, a reserve of some device, a sum, a publication, an end without. */
    uint64_t planned, reserved, summed, published, failed;
    uint64_t planned_to;    /* its last plan is of the round before this position */
    double epsilon;         /* of the whole; NaN without a plan, which would state the values */
    double epsilon_planned; /* of rounds 0 .. planned_to - 1 */
} tacit_audit_schedule;

typedef struct tacit_audit {
    tacit_violation *violations;
    size_t violation_count;
    tacit_violation *notes;
    size_t note_count;
    tacit_audit_device *devices;
    size_t device_count;
    tacit_audit_publication *publications;
    size_t publication_count;
    tacit_audit_check *checks; /* every row of the table, in its order */
    size_t check_count;
    tacit_audit_point *points; /* in the order of the log, where options keep them */
    size_t point_count;
    tacit_audit_round *round_list; /* `rounds` of them, in the order of the log */
    tacit_audit_event *events;
    size_t event_count;
    tacit_audit_schedule *schedules;
    size_t schedule_count;
    uint64_t entries, rounds, receipts;
    tacit_checkpoint checkpoint;
    char witness[TACIT_NOTE_NAME_MAX + 1]; /* who cosigned; "": nobody that anybody here named */
    uint64_t witnessed;                    /* so many entries */
} tacit_audit;

typedef struct tacit_audit_options {
    bool allow_non_private;     /* mechanism none is no violation */
    const tacit_span *receipts; /* files as read */
    const char *const *receipt_names;
    size_t receipt_count;
    const tacit_note_key *log_key; /* pinned by the auditor; NULL: the export's own */
    const tacit_note_key *witness; /* must have cosigned the export's `cosigned`; NULL: need not */
    bool keep_points;              /* for curves: some 24 bytes for each reserve */
    tacit_pool *pool;              /* checks signatures; NULL: the caller's thread alone */
} tacit_audit_options;

/* Runs every check. TACIT_OK with violations is the normal outcome of a bad log; other statuses
 * mean that the audit could not be done (no memory, unreadable receipt or bundle). The export
 * streams: memory grows with devices, rounds and, by some 50 to 100 bytes each, updates. */
tacit_status tacit_audit_run(tacit_audit *out, const tacit_export *log,
                             const tacit_audit_options *options, tacit_error *err) TACIT_MUST_CHECK;
void tacit_audit_free(tacit_audit *audit);

typedef struct tacit_audit_kind {
    const char *kind;
    const char *meaning;
} tacit_audit_kind;

/* Ends with a row whose kind is NULL. */
extern const tacit_audit_kind tacit_audit_kinds[];

/* The name of the one check that a kind of violation fails; NULL for a word that is no kind. */
const char *tacit_audit_check_of(const char *kind);
/* The kinds that fail a check, ending with NULL; NULL for a name that is none. */
const char *const *tacit_audit_check_kinds(const char *check);

/* "pass", "fail", "skipped". */
const char *tacit_audit_outcome_name(tacit_audit_outcome outcome);

/* What no log can prove, for whoever reads the result; ends with NULL. */
extern const char *const tacit_audit_limits[];

#endif
