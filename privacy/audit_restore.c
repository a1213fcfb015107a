/* A log that went on from an older copy of itself (privacy/restore.h). */
#include "privacy/audit_internal.h"

#include <stdio.h>
#include <string.h>

static bool is_start_or_stop(const tacit_entry *e)
{
    return e && (e->entry->body_case == TACIT__ENTRY__BODY_SERVER_START ||
                 e->entry->body_case == TACIT__ENTRY__BODY_SERVER_STOP);
}

/* The tree before this entry is what a restore keeps where starts and stops of the copy follow it,
 * and the restore. */
void audit_restore_look(audit_work *w, const tacit_entry *e)
{
    bool own = is_start_or_stop(e);
    bool restore = e && e->entry->body_case == TACIT__ENTRY__BODY_RESTORED;
    if ((own || restore) && !w->at_start_or_stop) {
        w->kept_size = w->tree.size;
        tacit_merkle_frontier_root(&w->tree, w->kept_root);
    }
    w->at_start_or_stop = own && w->tree.size > 0; /* a log keeps its first entry at least */
}

const audit_origin *audit_origin_of(const audit_work *w, const char *name)
{
    for (size_t i = 0; i < w->origin_count; i++)
        if (strcmp(w->origins[i].restore.old_origin, name) == 0)
            return &w->origins[i];
    return NULL;
}

static bool is_vouched(const audit_work *w, const Tacit__Restored *body)
{
    return w->has_operator_key &&
           tacit_signature_holds(w->operator_key, TACIT_RESTORE_DOMAIN, body->statement.data,
                                 body->statement.len, body->signature.data);
}

static tacit_status check_follows(audit_work *w, const tacit_restore *r)
{
    char expected[TACIT_NOTE_NAME_MAX + 1];
    uint32_t generation = (uint32_t)w->origin_count + 2;
    tacit_error reason;
    if (r->generation != generation)
        return audit_violation(w, "bad_restore", "generation %u, expected %u", r->generation,
                               generation);
    if (tacit_restore_origin(expected, w->first_origin, generation, &reason) != TACIT_OK ||
        strcmp(r->new_origin, expected) != 0 || strcmp(r->old_origin, w->log_key.name) != 0)
        return audit_violation(w, "bad_restore",
                               "it goes from '%.60s' to '%.60s', the log is '%.60s'", r->old_origin,
                               r->new_origin, w->log_key.name);
    if (memcmp(r->log_key, w->log_key.key, sizeof r->log_key) != 0)
        return audit_violation(w, "bad_restore", "it names another log key");
    if (r->size != w->kept_size || memcmp(r->root, w->kept_root, sizeof r->root) != 0)
        return audit_violation(w, "bad_restore",
                               "it takes over %llu entries that are not the log's",
                               (unsigned long long)r->size);
    return TACIT_OK;
}

/* Whatever is wrong with it, what follows is under the origin that it names. */
static tacit_status leave_origin(audit_work *w, const tacit_restore *r)
{
    tacit_status status =
        audit_grow(&w->origins, &w->origin_capacity, w->origin_count, sizeof *w->origins, w->err);
    if (status != TACIT_OK)
        return status;
    w->origins[w->origin_count++] = (audit_origin){w->at, *r};
    memcpy(w->log_key.name, r->new_origin, sizeof w->log_key.name);
    w->resubmitted = 0;
    return TACIT_OK;
}

tacit_status audit_restored(audit_work *w, const tacit_entry *e)
{
    const Tacit__Restored *body = e->entry->restored;
    tacit_restore r;
    tacit_error reason;
    tacit_status status, found = tacit_restore_read(&r, body, &reason);
    if (!w->has_operator_key)
        status = audit_violation(w, "unvouched_restore", "the log names no operator key");
    else if (!is_vouched(w, body))
        status = audit_violation(w, "unvouched_restore",
                                 "its statement is not signed by the log's operator key");
    else if (found != TACIT_OK)
        status = audit_violation(w, "bad_restore", "%s", reason.message);
    else
        status = check_follows(w, &r);
    return status == TACIT_OK && r.new_origin[0] ? leave_origin(w, &r) : status;
}

bool audit_may_resubmit(const audit_work *w, const audit_device *d)
{
    return w->origin_count && d->enrolled < w->origins[w->origin_count - 1].entry &&
           d->new_plans <= w->origins[w->origin_count - 1].entry;
}

void audit_count_resubmitted(audit_work *w, uint64_t about_entry)
{
    w->resubmitted += w->origin_count && about_entry < w->origins[w->origin_count - 1].entry;
}

tacit_status audit_restore_report(audit_work *w)
{
    tacit_status status = TACIT_OK;
    for (size_t i = 0; i < w->origin_count && status == TACIT_OK; i++) {
        const audit_origin *o = &w->origins[i];
        const tacit_restore *r = &o->restore;
        bool newest = i + 1 == w->origin_count;
        uint64_t lost = r->last.size > r->size ? r->last.size - r->size : 0;
        char again[96] = "";
        if (newest)
            snprintf(again, sizeof again,
                     "; %llu entries of devices about what was before follow it",
                     (unsigned long long)w->resubmitted);
        w->at = o->entry;
        status = audit_note(w, "restored",
                            "'%.60s' goes on as '%.60s' from a log of %llu entries; %llu are "
                            "known to be lost%s",
                            r->old_origin, r->new_origin, (unsigned long long)r->size,
                            (unsigned long long)lost, again);
    }
    return status;
}
