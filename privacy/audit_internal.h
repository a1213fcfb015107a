/* Shared by the files of the auditor alone. One walk over the log in order: every entry is checked
 * against what the entries before it left behind (audit_work), then the tree, the checkpoint and
 * the receipts against the whole.
 *
 * Entries are not kept. What is: devices, schedules, plans, publications, the reserves that may
 * still be spent, decided or summed, and of every update some 16-byte fingerprints, by which a
 * second use is found. */
#ifndef TACIT_PRIVACY_AUDIT_INTERNAL_H
#define TACIT_PRIVACY_AUDIT_INTERNAL_H

#include "privacy/audit.h"

#include "common/message.h"
#include "privacy/budget.h"
#include "privacy/entry.h"
#include "privacy/receipt.h"
#include "privacy/restore.h"
#include "privacy/tiles.h"
#include "privacy/window.h"

#include <sodium.h>

/* --- a map from 32 bytes to an index; keyed hashing, since the keys come from outside --- */

typedef struct audit_slot {
    uint8_t key[TACIT_HASH_BYTES];
    size_t value_plus_1; /* 0: empty */
} audit_slot;

typedef struct audit_map {
    audit_slot *slot;
    size_t capacity, count; /* capacity: a power of two or 0 */
    uint8_t secret[crypto_shorthash_KEYBYTES];
} audit_map;

/* Shorter keys are padded with zeros. */
bool audit_map_find(const audit_map *map, const void *key, size_t size, size_t *value);
/* False when the key is there already. */
tacit_status audit_map_add(audit_map *map, const void *key, size_t size, size_t value, bool *added,
                           tacit_error *err) TACIT_MUST_CHECK;
void audit_map_remove(audit_map *map, const void *key, size_t size);
void audit_map_free(audit_map *map);

/* --- a set of 32-byte keys, kept as keyed 128-bit fingerprints (SipHash): two of n different keys
 * are taken for one with probability n^2 / 2^129, and nobody can aim at that --- */

#define AUDIT_MARK_BYTES 16

typedef struct audit_set {
    uint8_t (*slot)[AUDIT_MARK_BYTES]; /* zeros: empty */
    size_t capacity, count;
    uint8_t secret[crypto_shorthash_siphashx24_KEYBYTES];
} audit_set;

bool audit_set_has(const audit_set *set, const uint8_t key[TACIT_HASH_BYTES]);
tacit_status audit_set_add(audit_set *set, const uint8_t key[TACIT_HASH_BYTES], bool *added,
                           tacit_error *err) TACIT_MUST_CHECK;
void audit_set_free(audit_set *set);

/* Room for one more element of `width` bytes. */
tacit_status audit_grow(void *array_pointer, size_t *capacity, size_t count, size_t width,
                        tacit_error *err) TACIT_MUST_CHECK;

/* --- what the walk knows --- */

/* Private reserves in a row that cost the same, for windows. */
typedef struct audit_run {
    tacit_window_item item;
    size_t times;
} audit_run;

typedef struct audit_device {
    uint8_t identity_key[TACIT_SIGN_KEY_BYTES], policy_key[TACIT_SIGN_KEY_BYTES];
    uint8_t name[TACIT_DEVICE_BYTES]; /* newest pseudonym */
    bool has_policy_key, revoked, frozen, lost, insecure;
    tacit_policy policy, widest; /* in force; the most that one ever allowed, term by term */
    tacit_budget budget;
    double highest_cap;    /* of the policies in force so far, and what a lost account stated */
    double first_schedule; /* epsilon of the whole first schedule at the fixed order */
    double lineages;       /* sum of the epsilons of the whole schedules begun, each alone */
    bool private_reserve;  /* there was one */
    tacit_privacy_unit unit;
    uint64_t sequence, reserves, spends, accepted;
    uint64_t policy_serial; /* newest policy that its policy key signed; 0: none */
    uint64_t plans_end;     /* the newest plan that it took is the entry before this; 0: none */
    uint64_t enrolled;      /* entry of its first enrolment */
    uint64_t new_plans;     /* the newest plan it ever reserved is the entry before this; 0: none */
    audit_run *runs;        /* its private reserves in order, equal neighbours together */
    size_t run_count, run_capacity;
    uint8_t head[TACIT_HASH_BYTES];
} audit_device;

typedef struct audit_schedule {
    uint64_t entry;
    Tacit__Schedule *schedule;
    uint8_t hash[TACIT_HASH_BYTES];
    uint64_t last_version; /* newest that the lineage published; 0: none */
    uint64_t next_round;   /* rounds planned so far are below it */
    tacit_budget *whole;   /* what all its rounds amount to, once a device began it; else NULL */
    uint64_t whole_values; /* trainable values that `whole` is for */
} audit_schedule;

typedef struct audit_plan {
    uint64_t entry;
    Tacit__Plan *plan;
    uint8_t hash[TACIT_HASH_BYTES];
    size_t schedule;
    size_t accepted; /* decisions so far */
    uint64_t reserved, rejected;
    size_t publication; /* its newest in the report; AUDIT_NONE before */
    size_t reserves;    /* the newest of its reserves, AUDIT_NONE: none is kept */
    bool aggregated, published, closed;
} audit_plan;

typedef struct audit_reserve {
    uint64_t entry;
    size_t device;
    size_t plan; /* AUDIT_NONE for local training and where it is not logged */
    size_t next; /* of the same plan, or of the free rows */
    uint8_t leaf[TACIT_HASH_BYTES];
    bool local, outdated;
    bool again; /* about what was before a restore, brought again after it */
    uint8_t digest[TACIT_HASH_BYTES];
    bool spent, abandoned, decided, accepted;
} audit_reserve;

/* What was looked at, for the checks that have nothing else to count by: the numbers below the
 * first kind of entry (TACIT__ENTRY__BODY_ENROL), which are no kinds. */
enum {
    AUDIT_SEEN_ENTRY = 1,   /* whatever its bytes are */
    AUDIT_SEEN_OWN = 2,     /* device-signed */
    AUDIT_SEEN_PLANNED = 3, /* reserves of rounds */
    AUDIT_SEEN_LOCAL = 4,   /* reserves of local training */
    AUDIT_SEEN_RECEIPT = 5,
    AUDIT_SEEN_CHECKPOINT = 6, /* of the export, when it could be read and verified */
    AUDIT_SEEN_KINDS = 64
};

typedef struct audit_manifest {
    uint64_t version;
    uint8_t lineage[16], file_digest[TACIT_HASH_BYTES];
} audit_manifest;

#define AUDIT_NONE SIZE_MAX

/* A place in the log that a checkpoint or a receipt speaks of. */
typedef struct audit_mark {
    uint64_t at;
    bool has_root, has_leaf;
    uint8_t root[TACIT_HASH_BYTES]; /* of the first `at` entries */
    uint8_t leaf[TACIT_HASH_BYTES]; /* of entry `at` */
} audit_mark;

typedef struct audit_receipt {
    tacit_receipt receipt;
    void *message;
    tacit_checkpoint checkpoint; /* as stated; checked where `holds` */
    uint8_t leaf[TACIT_HASH_BYTES];
    bool holds, device_signed;
    bool is_logged; /* its entry is in the log, wherever */
    const struct audit_origin
        *left; /* its checkpoint is of this earlier origin; NULL: the newest */
} audit_receipt;

/* An origin that the log left by a restore. */
typedef struct audit_origin {
    uint64_t entry; /* of the restore */
    tacit_restore restore;
} audit_origin;

/* What one round of an event amounts to: rho is costly, and fleets reserve alike. */
typedef struct audit_price {
    tacit_event event;
    uint64_t values;
    tacit_budget budget;
} audit_price;
#define AUDIT_PRICES 8

typedef struct audit_work {
    tacit_audit *out;
    const tacit_export *log;
    const tacit_audit_options *options;
    tacit_error *err;
    uint64_t at; /* index of the entry being checked */

    tacit_note_key log_key; /* in force at this entry */
    bool started;
    uint8_t (*log_keys)[TACIT_SIGN_KEY_BYTES]; /* all that were ever in force */
    size_t log_key_count, log_key_capacity;

    bool has_operator_key; /* the first that a start named */
    uint8_t operator_key[TACIT_SIGN_KEY_BYTES];
    char first_origin[TACIT_NOTE_NAME_MAX + 1];
    audit_origin *origins; /* those that the log has left, oldest first */
    size_t origin_count, origin_capacity;
    uint64_t resubmitted;  /* entries of devices that came again since the newest restore */
    bool at_start_or_stop; /* the entry before this one is a start or a stop of the server */
    uint64_t kept_size;    /* what a restore here would keep: without such entries at the end */
    uint8_t kept_root[TACIT_HASH_BYTES];

    tacit_merkle_frontier tree;
    tacit_tiles *tiles;
    bool tile_complained;
    audit_mark *marks; /* ascending */
    size_t mark_count, mark_at;
    audit_receipt *receipts;
    audit_map wanted; /* leaf hash -> its first receipt */
    audit_price prices[AUDIT_PRICES];
    size_t price_count;
    audit_device *devices;
    audit_schedule *schedules;
    audit_plan *plans;
    audit_reserve *reserves;
    audit_manifest *manifests;
    size_t free_reserve; /* row to use again, AUDIT_NONE: none */
    size_t device_count, device_capacity, schedule_count, schedule_capacity, plan_count,
        plan_capacity, reserve_count, reserve_capacity, manifest_count, manifest_capacity,
        violation_capacity, note_capacity, publication_capacity, point_capacity, event_capacity;
    uint64_t seen[AUDIT_SEEN_KINDS]; /* entries by kind, and what AUDIT_SEEN_ names */

    audit_map names; /* pseudonym -> device */
    audit_map keys;  /* identity key -> device */
    audit_map schedule_by_hash, schedule_by_lineage;
    audit_map plan_by_hash, plan_by_round, plan_by_position;
    audit_map reserve_by_leaf; /* of the reserves that are kept */
    audit_set ended;           /* leaf hashes of the others that were decided */
    audit_set leaves;          /* leaf hashes of the server's entries, decisions apart */
    audit_set reserved;        /* hash of (device, plan) */
    audit_set device_lineage;  /* hash of (device, lineage) of a schedule */
    audit_set local_lineage;   /* the same of local training */
    audit_set policies;        /* hash of (device, policy) */
    audit_set enrolments;      /* hash of (device, policy key and policy) */
    audit_set digests;         /* update digests */
} audit_work;

/* Adds a violation at the current entry (audit_violation) or at another place. Statuses of all
 * functions here: TACIT_OK, or TACIT_NO_MEMORY, which ends the audit. */
tacit_status audit_violation(audit_work *w, const char *kind, const char *format, ...)
    TACIT_PRINTF(3, 4) TACIT_MUST_CHECK;
tacit_status audit_violation_at(audit_work *w, uint64_t entry, const char *kind, const char *format,
                                ...) TACIT_PRINTF(4, 5) TACIT_MUST_CHECK;

/* Adds a note at the current entry: what is no violation. */
tacit_status audit_note(audit_work *w, const char *kind, const char *format, ...)
    TACIT_PRINTF(3, 4) TACIT_MUST_CHECK;

/* Keeps for the report what an entry tells of itself; a point of a device's curve. */
tacit_status audit_keep_event(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_keep_point(audit_work *w, size_t device, double epsilon) TACIT_MUST_CHECK;

/* Tells every check's outcome, when everything was looked at. */
tacit_status audit_judge(audit_work *w) TACIT_MUST_CHECK;

/* The device an entry names; NULL after a violation was added. */
tacit_status audit_find_device(audit_work *w, const tacit_entry *e,
                               size_t *device) TACIT_MUST_CHECK;
audit_plan *audit_find_round(audit_work *w, ProtobufCBinaryData round_id);

/* Checks of one entry, by kind. */
tacit_status audit_enrol(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_renew(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_revoke(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_clone(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_policy_changed(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_own(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK; /* device-signed */

/* audit_restore.c: for every entry before it is counted in the tree; of kind `restored`; which
 * origin of this log a note is of (NULL: the newest, or none); whether a device may still bring
 * again what a restore lost; that it did; for the report. */
void audit_restore_look(audit_work *w, const tacit_entry *e);
tacit_status audit_restored(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
const audit_origin *audit_origin_of(const audit_work *w, const char *name);
bool audit_may_resubmit(const audit_work *w, const audit_device *d);
void audit_count_resubmitted(audit_work *w, uint64_t about_entry);
tacit_status audit_restore_report(audit_work *w) TACIT_MUST_CHECK;

tacit_status audit_schedule_logged(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_plan_logged(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_update(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_aggregate(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_published(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_rolled_back(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
tacit_status audit_round_closed(audit_work *w, const tacit_entry *e) TACIT_MUST_CHECK;
/* The rounds and the schedules for the report, after the walk; the report owns the latter then. */
tacit_status audit_report_rounds(audit_work *w) TACIT_MUST_CHECK;
tacit_status audit_report_schedules(audit_work *w) TACIT_MUST_CHECK;

/* A reserve that nothing can be said about any more leaves no more than its fingerprint. */
tacit_status audit_reserve_retire(audit_work *w, audit_reserve *r) TACIT_MUST_CHECK;

/* Tree, checkpoint and receipts: before the walk (receipts are read, places of interest noted), for
 * each entry's leaf hash, and after it. TACIT_BAD_INPUT: a receipt is unreadable. */
tacit_status audit_whole_begin(audit_work *w) TACIT_MUST_CHECK;
tacit_status audit_whole_leaf(audit_work *w, const uint8_t leaf[TACIT_HASH_BYTES]) TACIT_MUST_CHECK;
tacit_status audit_whole_end(audit_work *w) TACIT_MUST_CHECK;
void audit_whole_free(audit_work *w);

#endif
