/* The offline audit of an exported log: every check that needs no server, each finding a
 * violation {kind, entry, detail}. The list of kinds with their meaning: tacit_audit_kinds.
 *
 * What nobody did wrong but a reader should know is a note, of the same form. Its one kind is
 * `outdated_reserve` (privacy/ledger.h): signed under a policy that was in force no more when the
 * log took it. It counts as spent, so an epsilon above its cap may be nobody's fault. An update
 * accepted under it is the violation `outdated_accepted`. What no policy of the device ever allowed
 * is a violation whether an update follows or not. */
#ifndef TACIT_PRIVACY_AUDIT_H
#define TACIT_PRIVACY_AUDIT_H

#include "common/pool.h"
#include "privacy/export.h"
#include "proto/plan.pb-c.h"

#define TACIT_AUDIT_NO_ENTRY UINT64_MAX

typedef struct tacit_violation {
    const char *kind; /* a word of tacit_audit_kinds */
    uint64_t entry;   /* index in the log, TACIT_AUDIT_NO_ENTRY when it is of the whole */
    char *detail;     /* one line */
} tacit_violation;

typedef struct tacit_audit_device {
    uint8_t device[TACIT_DEVICE_BYTES]; /* newest pseudonym of the key */
    double epsilon, cap, delta;
    double epsilon_subject;  /* of devices_per_subject such devices together; +inf when lost and
                              * they are several */
    tacit_privacy_unit unit; /* the least of its private reserves; before one, of the policy */
    uint32_t devices_per_subject;
    uint64_t reserves, spends, accepted;
    bool non_private, insecure, revoked, lost;
} tacit_audit_device;

typedef struct tacit_audit_publication {
    uint64_t entry, version;
    uint8_t lineage[16];
    double epsilon_server, epsilon_published, delta; /* recomputed */
    double accuracy;                                 /* as the manifest states it */
    char rule[32];
} tacit_audit_publication;

/* A well-formed schedule, whatever became of it. */
typedef struct tacit_audit_schedule {
    uint64_t entry;
    Tacit__Schedule *schedule;
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
    tacit_audit_schedule *schedules;
    size_t schedule_count;
    uint64_t entries, rounds, receipts;
    tacit_checkpoint checkpoint;
    bool witnessed; /* no witness keys exist in this version */
} tacit_audit;

typedef struct tacit_audit_options {
    bool allow_non_private;     /* mechanism none is no violation */
    const tacit_span *receipts; /* files as read */
    const char *const *receipt_names;
    size_t receipt_count;
    const tacit_note_key *log_key; /* pinned by the auditor; NULL: the export's own */
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

#endif
