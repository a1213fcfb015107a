#include "privacy/audit_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tacit_audit_kind tacit_audit_kinds[] = {
    {"malformed_entry", "an entry's bytes are not a valid entry"},
    {"bad_signature", "an entry's signature does not hold"},
    {"wrong_signer", "an entry is signed by a key that may not sign it"},
    {"duplicate_entry", "the same bytes are logged twice"},
    {"wrong_start", "the log does not begin, or go on, with its own origin and key"},
    {"unvouched_restore", "a restore is not signed by the operator key that the log names"},
    {"bad_restore", "a restore does not go on from this log, one generation further"},
    {"lost_entry", "a restore lost an entry of a receipt, and its device never brought it again"},
    {"bad_key_rotation", "a change of the log key is not signed by both keys"},
    {"wrong_log_key", "the log does not end under the key that is trusted"},
    {"bad_checkpoint", "the checkpoint is malformed or not signed by the log"},
    {"root_mismatch", "the entries do not have the root that the checkpoint signs"},
    {"tile_mismatch", "a hash tile of the export is missing or not that of its entries"},
    {"incomplete_export", "the log is shorter than its checkpoint or than a receipt"},
    {"unsigned_tail", "entries after the checkpoint are not covered by any signature"},
    {"bad_receipt", "a receipt does not hold by itself"},
    {"split_view", "a receipt's checkpoint is of another log than the export or another receipt"},
    {"bad_cosignature", "the cosigned checkpoint is malformed, or not cosigned by the witness"},
    {"unwitnessed_plan", "a device took a plan that its policy's witness had not cosigned"},
    {"receipt_missing", "an entry with a receipt is not in the log"},

    {"unknown_device", "an entry is about a device that was not enrolled before"},
    {"duplicate_device", "a pseudonym is enrolled twice"},
    {"bad_policy", "a device's declared policy is not signed by it"},
    {"policy_weakened", "a policy that allows more is not signed by the device or its policy key"},
    {"policy_replayed", "a policy of the policy key was logged again, or after a newer one"},
    {"after_revocation", "a revoked device went on"},
    {"after_clone", "a device went on after it was frozen as a suspected clone"},
    {"sequence_gap", "a device's chain misses entries"},
    {"sequence_reused", "a device's sequence number was used twice"},
    {"broken_chain", "a device's entry does not follow its previous one"},

    {"bad_schedule", "a schedule is malformed"},
    {"duplicate_schedule", "a lineage has two schedules"},
    {"bad_plan", "a plan is malformed"},
    {"duplicate_plan", "a round has two plans"},
    {"plan_without_schedule", "a plan's schedule is not logged before it"},
    {"plan_off_schedule",
     "a plan is not the round that its schedule fixed, or comes behind a later one"},

    {"reserve_without_plan", "a reserve's plan is not logged before it"},
    {"reserve_off_plan", "a reserve is not what its plan says"},
    {"duplicate_reserve", "a device reserved a plan twice"},
    {"local_mechanism", "a local reserve's unit, noise or sampling is none that runs"},
    {"local_schedule", "a local reserve is not a schedule of its own"},
    {"local_update", "an update was signed for local training"},
    {"under_policy", "a device took a plan, or trained alone, as its policy forbids"},
    {"non_private", "an event of mechanism none: epsilon is infinite"},
    {"insecure_seed", "a test-only seed replaced the device's randomness"},
    {"epsilon_mismatch", "a logged epsilon is not what the events amount to"},
    {"cap_mismatch", "a reserve states a cap or delta that is not the device's"},
    {"cap_exceeded", "a device spent more than its cap"},
    {"window_exceeded", "a device's reserves in a row cost more than its window allows"},
    {"schedule_over_cap", "a device began a schedule that does not fit its cap"},
    {"after_account_lost", "a device spent from an account that was lost"},
    {"spend_without_reserve", "a spend or abandon has no reserve of its device"},
    {"duplicate_spend", "a reserve was spent or abandoned twice"},
    {"duplicate_update", "an update's digest appears twice"},

    {"outdated_accepted", "an update was accepted under a reserve beyond the policy in force"},
    {"decision_without_spend", "an update was accepted that its device did not sign"},
    {"decision_mismatch", "a decision is not about the update that the device signed"},
    {"duplicate_decision", "an update was decided twice"},
    {"aggregate_without_plan", "an aggregate or publication is of no known round"},
    {"duplicate_aggregate", "a round was aggregated twice"},
    {"aggregate_mismatch", "an aggregate is not of the accepted updates"},
    {"below_quorum", "an aggregate has fewer updates than the plan's quorum"},
    {"bad_manifest", "a manifest is malformed, not signed or not of its round"},
    {"manifest_without_aggregate", "an adapter was published without an aggregate"},
    {"manifest_chain", "an adapter's version or parent does not continue its lineage"},
    {"manifest_epsilon", "a published epsilon is not what the rounds amount to"},
    {"rollback_unknown", "a rollback names versions that were not published"},
    {"round_state", "a closed round contradicts its publication"},
    {NULL, NULL},
};

/* --- violations --- */

/* A list that grows: violations, or notes. */
typedef struct audit_list {
    tacit_violation **items;
    size_t *count, *capacity;
} audit_list;

static tacit_status list_add(audit_work *w, audit_list list, uint64_t entry, const char *kind,
                             const char *format, va_list args)
{
    char line[512];
    tacit_error cleaned;
    vsnprintf(line, sizeof line, format, args);
    tacit_fail(&cleaned, TACIT_OK, "%s", line); /* control bytes out */
    tacit_status status =
        audit_grow(list.items, list.capacity, *list.count, sizeof(tacit_violation), w->err);
    if (status != TACIT_OK)
        return status;
    char *detail = strdup(cleaned.message);
    if (!detail)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for a violation");
    (*list.items)[(*list.count)++] = (tacit_violation){kind, entry, detail};
    return TACIT_OK;
}

static audit_list violations_of(audit_work *w)
{
    return (audit_list){&w->out->violations, &w->out->violation_count, &w->violation_capacity};
}

tacit_status audit_violation(audit_work *w, const char *kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tacit_status status = list_add(w, violations_of(w), w->at, kind, format, args);
    va_end(args);
    return status;
}

tacit_status audit_violation_at(audit_work *w, uint64_t entry, const char *kind, const char *format,
                                ...)
{
    va_list args;
    va_start(args, format);
    tacit_status status = list_add(w, violations_of(w), entry, kind, format, args);
    va_end(args);
    return status;
}

tacit_status audit_note(audit_work *w, const char *kind, const char *format, ...)
{
    va_list args;
    const audit_list notes = {&w->out->notes, &w->out->note_count, &w->note_capacity};
    va_start(args, format);
    tacit_status status = list_add(w, notes, w->at, kind, format, args);
    va_end(args);
    return status;
}

/* --- the server's own entries --- */

static tacit_status remember_log_key(audit_work *w, const uint8_t key[TACIT_SIGN_KEY_BYTES])
{
    tacit_status status = audit_grow(&w->log_keys, &w->log_key_capacity, w->log_key_count,
                                     TACIT_SIGN_KEY_BYTES, w->err);
    if (status == TACIT_OK)
        memcpy(w->log_keys[w->log_key_count++], key, TACIT_SIGN_KEY_BYTES);
    memcpy(w->log_key.key, key, TACIT_SIGN_KEY_BYTES);
    return status;
}

/* The operator key that a start names first is the log's for good. */
static tacit_status check_operator_key(audit_work *w, const Tacit__ServerStart *s)
{
    if (s->operator_key.len == 0)
        return TACIT_OK;
    if (!w->has_operator_key) {
        memcpy(w->operator_key, s->operator_key.data, TACIT_SIGN_KEY_BYTES);
        w->has_operator_key = true;
    }
    return memcmp(s->operator_key.data, w->operator_key, TACIT_SIGN_KEY_BYTES) == 0
               ? TACIT_OK
               : audit_violation(w, "wrong_start", "the server started with another operator key");
}

static tacit_status audit_server_start(audit_work *w, const tacit_entry *e)
{
    const Tacit__ServerStart *s = e->entry->server_start;
    if (strcmp(s->origin, w->log_key.name) != 0)
        return audit_violation(w, "wrong_start", "origin is '%.100s', the log's key is of '%.100s'",
                               s->origin, w->log_key.name);
    if (memcmp(s->log_key.data, w->log_key.key, TACIT_SIGN_KEY_BYTES) != 0)
        return audit_violation(w, "wrong_start", "the server started with another log key");
    return check_operator_key(w, s);
}

static tacit_status audit_key_rotated(audit_work *w, const tacit_entry *e)
{
    const Tacit__KeyRotated *k = e->entry->key_rotated;
    uint8_t both[2 * TACIT_SIGN_KEY_BYTES];
    memcpy(both, k->old_key.data, TACIT_SIGN_KEY_BYTES);
    memcpy(both + TACIT_SIGN_KEY_BYTES, k->new_key.data, TACIT_SIGN_KEY_BYTES);
    if (memcmp(both, w->log_key.key, TACIT_SIGN_KEY_BYTES) != 0 ||
        !tacit_signature_holds(both, TACIT_ROTATE_DOMAIN, both, sizeof both,
                               k->signature_old.data) ||
        !tacit_signature_holds(both + TACIT_SIGN_KEY_BYTES, TACIT_ROTATE_DOMAIN, both, sizeof both,
                               k->signature_new.data))
        return audit_violation(w, "bad_key_rotation",
                               "the log key changed without both signatures");
    return remember_log_key(w, k->new_key.data);
}

static tacit_status audit_server_stop(audit_work *w, const tacit_entry *e)
{
    (void)w;
    (void)e;
    return TACIT_OK;
}

static const struct {
    Tacit__Entry__BodyCase kind;
    tacit_status (*check)(audit_work *w, const tacit_entry *e);
} audit_kinds[] = {
    {TACIT__ENTRY__BODY_ENROL, audit_enrol},
    {TACIT__ENTRY__BODY_RENEW, audit_renew},
    {TACIT__ENTRY__BODY_REVOKE, audit_revoke},
    {TACIT__ENTRY__BODY_SCHEDULE, audit_schedule_logged},
    {TACIT__ENTRY__BODY_PLAN, audit_plan_logged},
    {TACIT__ENTRY__BODY_RESERVE, audit_own},
    {TACIT__ENTRY__BODY_SPEND, audit_own},
    {TACIT__ENTRY__BODY_ABANDON, audit_own},
    {TACIT__ENTRY__BODY_ACCOUNT_LOST, audit_own},
    {TACIT__ENTRY__BODY_CLONE_SUSPECTED, audit_clone},
    {TACIT__ENTRY__BODY_UPDATE, audit_update},
    {TACIT__ENTRY__BODY_AGGREGATE, audit_aggregate},
    {TACIT__ENTRY__BODY_PUBLISHED, audit_published},
    {TACIT__ENTRY__BODY_ROLLED_BACK, audit_rolled_back},
    {TACIT__ENTRY__BODY_POLICY_CHANGED, audit_policy_changed},
    {TACIT__ENTRY__BODY_KEY_ROTATED, audit_key_rotated},
    {TACIT__ENTRY__BODY_SERVER_START, audit_server_start},
    {TACIT__ENTRY__BODY_SERVER_STOP, audit_server_stop},
    {TACIT__ENTRY__BODY_ROUND_CLOSED, audit_round_closed},
    {TACIT__ENTRY__BODY_RESTORED, audit_restored},
};

/* --- an entry --- */

/* Whether `name` is `first`, or may be what a restore made of it. */
static bool may_follow(const char *name, const char *first)
{
    size_t n = strlen(first);
    return strncmp(name, first, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

/* The first entry says under which origin and key the log began; what follows must lead to the
 * trusted ones. */
static tacit_status audit_first(audit_work *w, const tacit_entry *e)
{
    w->started = true;
    memcpy(w->first_origin, w->log_key.name, sizeof w->first_origin);
    if (e->entry->body_case != TACIT__ENTRY__BODY_SERVER_START) {
        tacit_status status = audit_violation(w, "wrong_start", "the first entry is '%s'",
                                              tacit_entry_kind_name(e->entry->body_case));
        return status == TACIT_OK ? remember_log_key(w, w->log->log_key.key) : status;
    }
    const Tacit__ServerStart *s = e->entry->server_start;
    if (may_follow(w->log_key.name, s->origin))
        snprintf(w->log_key.name, sizeof w->log_key.name, "%s", s->origin);
    memcpy(w->first_origin, w->log_key.name, sizeof w->first_origin);
    return remember_log_key(w, s->log_key.data);
}

/* Of a device's entries its chain says it (audit_own), of decisions the reserve. */
static tacit_status find_duplicate(audit_work *w, const tacit_entry *e, bool *duplicate)
{
    bool added = true;
    tacit_status status = TACIT_OK;
    if (!e->device_signed && e->entry->body_case != TACIT__ENTRY__BODY_UPDATE)
        status = audit_set_add(&w->leaves, e->leaf, &added, w->err);
    *duplicate = !added;
    return status;
}

static tacit_status check_parsed(audit_work *w, const tacit_entry *e)
{
    bool duplicate = false;
    tacit_status status = find_duplicate(w, e, &duplicate);
    if (status == TACIT_OK && !w->started)
        status = audit_first(w, e);
    if (status != TACIT_OK)
        return status;
    if (duplicate)
        return audit_violation(w, "duplicate_entry", "the same bytes are logged before");
    w->seen[e->entry->body_case]++;
    w->seen[AUDIT_SEEN_OWN] += e->device_signed;
    if (!e->device_signed &&
        memcmp(e->envelope->signer.data, w->log_key.key, TACIT_SIGN_KEY_BYTES) != 0)
        return audit_violation(w, "wrong_signer", "'%s' is not signed by the log's key",
                               tacit_entry_kind_name(e->entry->body_case));
    status = audit_keep_event(w, e);
    for (size_t i = 0; i < sizeof audit_kinds / sizeof audit_kinds[0] && status == TACIT_OK; i++)
        if (audit_kinds[i].kind == e->entry->body_case)
            return audit_kinds[i].check(w, e);
    return status;
}

/* --- the walk --- */

/* Entries are opened by several threads, a part of a bundle at a time, then each is checked in its
 * turn. The limits bound what their messages take, whatever the entries are. */
#define OPEN_TOGETHER 64
#define OPEN_BYTES ((size_t)1 << 20)

typedef struct opened {
    tacit_entry entry;
    uint8_t leaf[TACIT_HASH_BYTES];
    tacit_status status;
    tacit_error reason;
} opened;

typedef struct opening {
    const tacit_span *bytes;
    opened *out;
} opening;

static void open_one(void *ctx, size_t i, size_t thread)
{
    (void)thread;
    const opening *o = ctx;
    tacit_merkle_leaf(o->out[i].leaf, o->bytes[i].data, o->bytes[i].size);
    o->out[i].status =
        tacit_entry_open(&o->out[i].entry, o->bytes[i].data, o->bytes[i].size, &o->out[i].reason);
}

static tacit_status check_entry(audit_work *w, const opened *o)
{
    w->seen[AUDIT_SEEN_ENTRY]++;
    audit_restore_look(w, o->status == TACIT_OK ? &o->entry : NULL);
    tacit_status status = audit_whole_leaf(w, o->leaf);
    if (status != TACIT_OK)
        return status;
    if (o->status == TACIT_NO_MEMORY)
        return tacit_fail(w->err, o->status, "%s", o->reason.message);
    if (o->status != TACIT_OK)
        return audit_violation(w,
                               o->status == TACIT_INTEGRITY ? "bad_signature" : "malformed_entry",
                               "%s", o->reason.message);
    return check_parsed(w, &o->entry);
}

static tacit_status check_some(audit_work *w, const tacit_span *bytes, size_t count, opened *out)
{
    opening o = {bytes, out};
    tacit_status status = TACIT_OK;
    tacit_pool_run(w->options->pool, count, open_one, &o);
    for (size_t i = 0; i < count; i++) {
        if (status == TACIT_OK)
            status = check_entry(w, &out[i]);
        w->at += status == TACIT_OK;
        tacit_entry_close(&out[i].entry);
    }
    return status;
}

/* How many entries from number `from` of a bundle are opened together; at least one. */
static size_t part_of(const tacit_export_cursor *c, size_t from)
{
    size_t n = 1, bytes = c->entry[from].size;
    while (n < OPEN_TOGETHER && from + n < c->count && bytes < OPEN_BYTES)
        bytes += c->entry[from + n++].size;
    return n;
}

static tacit_status check_all(audit_work *w, tacit_export_cursor *c, opened *out)
{
    tacit_status status = tacit_export_next(c, w->err);
    while (status == TACIT_OK && c->count) {
        for (size_t i = 0, n; i < c->count && status == TACIT_OK; i += n) {
            n = part_of(c, i);
            status = check_some(w, c->entry + i, n, out);
        }
        if (status == TACIT_OK)
            status = tacit_export_next(c, w->err);
    }
    return status;
}

static tacit_status walk(audit_work *w)
{
    tacit_export_cursor cursor = tacit_export_cursor_over(w->log);
    opened *out = calloc(OPEN_TOGETHER, sizeof *out);
    tacit_status status =
        out ? check_all(w, &cursor, out) : tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory");
    free(out);
    tacit_export_cursor_free(&cursor);
    w->out->entries = w->at;
    if (status == TACIT_OK && w->at == 0)
        status =
            audit_violation_at(w, TACIT_AUDIT_NO_ENTRY, "wrong_start", "the log has no entries");
    return status;
}

/* --- the report --- */

/* A lost account may have spent up to any cap that it ever had: a later, lower one, or one below
 * what is logged, takes nothing back. */
static tacit_status device_epsilon(const audit_device *d, double *epsilon, tacit_error *err)
{
    tacit_status status = tacit_budget_epsilon(&d->budget, epsilon, err);
    *epsilon = d->lost ? fmax(d->highest_cap, *epsilon) : *epsilon;
    return status;
}

/* A lost account is known by one epsilon at delta alone, and copies of that do not compose at the
 * same delta: nothing finite can be said of a subject on several such devices. */
static tacit_status subject_epsilon(const audit_device *d, double *epsilon, tacit_error *err)
{
    uint32_t devices = d->policy.devices_per_subject;
    *epsilon = INFINITY;
    if (d->lost)
        return devices > 1 ? TACIT_OK : device_epsilon(d, epsilon, err);
    return tacit_budget_epsilon_times(&d->budget, devices, epsilon, err);
}

static tacit_status report_devices(audit_work *w)
{
    tacit_audit *out = w->out;
    out->devices = calloc(w->device_count ? w->device_count : 1, sizeof *out->devices);
    if (!out->devices)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for the report");
    for (size_t i = 0; i < w->device_count; i++) {
        const audit_device *d = &w->devices[i];
        double epsilon, of_subject;
        tacit_status status = device_epsilon(d, &epsilon, w->err);
        if (status == TACIT_OK)
            status = subject_epsilon(d, &of_subject, w->err);
        if (status != TACIT_OK)
            return status;
        tacit_audit_device *r = &out->devices[out->device_count++];
        *r = (tacit_audit_device){
            .epsilon = epsilon,
            .cap = d->policy.epsilon_cap,
            .delta = d->policy.delta,
            .epsilon_subject = of_subject,
            .unit = d->unit,
            .devices_per_subject = d->policy.devices_per_subject,
            .reserves = d->reserves,
            .spends = d->spends,
            .accepted = d->accepted,
            .non_private = d->budget.unprotected > 0,
            .insecure = d->insecure,
            .revoked = d->revoked,
            .frozen = d->frozen,
            .lost = d->lost,
            .order = d->budget.schedules > 1 ? tacit_rdp_orders[d->budget.filter_order] : 0,
            .charged = d->budget.events,
        };
        memcpy(r->device, d->name, sizeof r->device);
    }
    return TACIT_OK;
}

static void work_free(audit_work *w)
{
    audit_map *maps[] = {&w->names,
                         &w->keys,
                         &w->schedule_by_hash,
                         &w->plan_by_hash,
                         &w->plan_by_round,
                         &w->schedule_by_lineage,
                         &w->plan_by_position,
                         &w->reserve_by_leaf};
    audit_set *sets[] = {&w->ended,         &w->leaves,   &w->reserved,   &w->device_lineage,
                         &w->local_lineage, &w->policies, &w->enrolments, &w->digests};
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        audit_map_free(maps[i]);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        audit_set_free(sets[i]);
    for (size_t i = 0; i < w->schedule_count; i++) {
        tacit_message_free(w->schedules[i].schedule);
        free(w->schedules[i].whole);
    }
    for (size_t i = 0; i < w->plan_count; i++)
        tacit_message_free(w->plans[i].plan);
    audit_whole_free(w);
    free(w->log_keys);
    free(w->origins);
    for (size_t i = 0; i < w->device_count; i++)
        free(w->devices[i].runs);
    free(w->devices);
    free(w->schedules);
    free(w->plans);
    free(w->reserves);
    free(w->manifests);
}

tacit_status tacit_audit_run(tacit_audit *out, const tacit_export *log,
                             const tacit_audit_options *options, tacit_error *err)
{
    *out = (tacit_audit){0};
    audit_work w = {
        .out = out, .log = log, .options = options, .err = err, .free_reserve = AUDIT_NONE};
    w.log_key = log->log_key;
    tacit_status status = audit_whole_begin(&w);
    if (status == TACIT_OK)
        status = walk(&w);
    if (status == TACIT_OK)
        status = audit_whole_end(&w);
    if (status == TACIT_OK)
        status = report_devices(&w);
    if (status == TACIT_OK)
        status = audit_restore_report(&w);
    if (status == TACIT_OK)
        status = audit_report_rounds(&w);
    if (status == TACIT_OK)
        status = audit_report_schedules(&w);
    if (status == TACIT_OK)
        status = audit_judge(&w);
    out->rounds = w.plan_count;
    work_free(&w);
    if (status != TACIT_OK)
        tacit_audit_free(out);
    return status;
}

static void list_free(tacit_violation *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(items[i].detail);
    free(items);
}

void tacit_audit_free(tacit_audit *audit)
{
    list_free(audit->violations, audit->violation_count);
    list_free(audit->notes, audit->note_count);
    for (size_t i = 0; i < audit->schedule_count; i++)
        tacit_message_free(audit->schedules[i].schedule);
    free(audit->schedules);
    free(audit->devices);
    free(audit->publications);
    free(audit->checks);
    free(audit->points);
    free(audit->round_list);
    for (size_t i = 0; i < audit->event_count; i++)
        free(audit->events[i].text);
    free(audit->events);
    *audit = (tacit_audit){0};
}
