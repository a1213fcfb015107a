/* What the walk keeps for the report alone: the events beside the rounds, and the curves. */
#include "privacy/audit_internal.h"

#include "common/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_TEXT 768
#define WORDS "%.120s" /* of somebody else, cut to what a line holds */

tacit_status audit_keep_point(audit_work *w, size_t device, double epsilon)
{
    if (!w->options->keep_points)
        return TACIT_OK;
    tacit_status status = audit_grow(&w->out->points, &w->point_capacity, w->out->point_count,
                                     sizeof *w->out->points, w->err);
    if (status == TACIT_OK)
        w->out->points[w->out->point_count++] =
            (tacit_audit_point){.entry = w->at, .device = device, .epsilon = epsilon};
    return status;
}

static void tell_terms(const tacit_policy *policy, char *out, size_t size)
{
    char window[64] = "";
    if (policy->window_reserves)
        snprintf(window, sizeof window, ", %.6g for %u reserves in a row", policy->window_epsilon,
                 policy->window_reserves);
    snprintf(out, size,
             "cap %.6g%s, delta %.6g, unit %s, noise at least %.6g, cohort %u, quorum %u%s",
             policy->epsilon_cap, window, policy->delta, tacit_privacy_unit_name(policy->unit),
             policy->minimum_noise_multiplier, policy->minimum_cohort, policy->minimum_quorum,
             policy->allow_non_private ? ", without noise allowed" : "");
}

static void tell_policy(const Tacit__PolicyChanged *p, char out[EVENT_TEXT])
{
    tacit_policy policy;
    char terms[224] = "a policy that cannot be read";
    if (tacit_policy_unpack(&policy, p->policy.data, p->policy.len, NULL) == TACIT_OK)
        tell_terms(&policy, terms, sizeof terms);
    snprintf(out, EVENT_TEXT, "%s; by '%.60s' (%.60s), meaning '%.60s', because '" WORDS "'", terms,
             p->who, p->role, p->meaning, p->reason);
}

static void tell_restore(const Tacit__Restored *body, char out[EVENT_TEXT])
{
    tacit_restore r;
    tacit_error malformed;
    if (tacit_restore_read(&r, body, &malformed) == TACIT_OK)
        snprintf(out, EVENT_TEXT,
                 "from an older copy: '" WORDS "' goes on from the first %llu entries of '" WORDS
                 "'",
                 r.new_origin, (unsigned long long)r.size, r.old_origin);
    else
        snprintf(out, EVENT_TEXT, "from an older copy, by a statement that cannot be read");
}

/* False for kinds that the report shows elsewhere. */
static bool tell(const Tacit__Entry *e, char out[EVENT_TEXT])
{
    switch (e->body_case) {
    case TACIT__ENTRY__BODY_REVOKE:
        snprintf(out, EVENT_TEXT, "because '" WORDS "'", e->revoke->reason);
        return true;
    case TACIT__ENTRY__BODY_CLONE_SUSPECTED:
        snprintf(out, EVENT_TEXT, "frozen: '" WORDS "'", e->clone_suspected->evidence);
        return true;
    case TACIT__ENTRY__BODY_ACCOUNT_LOST:
        snprintf(out, EVENT_TEXT, "epsilon %.6g counts as spent", e->account_lost->epsilon_counted);
        return true;
    case TACIT__ENTRY__BODY_POLICY_CHANGED:
        tell_policy(e->policy_changed, out);
        return true;
    case TACIT__ENTRY__BODY_ROLLED_BACK:
        snprintf(out, EVENT_TEXT, "from version %llu to %llu because '" WORDS "'",
                 (unsigned long long)e->rolled_back->from_version,
                 (unsigned long long)e->rolled_back->to_version, e->rolled_back->reason);
        return true;
    case TACIT__ENTRY__BODY_ROUND_CLOSED:
        snprintf(out, EVENT_TEXT, "failed: '" WORDS "'", e->round_closed->reason);
        return !e->round_closed->published;
    case TACIT__ENTRY__BODY_KEY_ROTATED:
        snprintf(out, EVENT_TEXT, "the log has a new key");
        return true;
    case TACIT__ENTRY__BODY_SERVER_START:
        snprintf(out, EVENT_TEXT, "version '%.60s', origin '" WORDS "'", e->server_start->version,
                 e->server_start->origin);
        return true;
    case TACIT__ENTRY__BODY_RESTORED:
        tell_restore(e->restored, out);
        return true;
    default:
        return false;
    }
}

tacit_status audit_keep_event(audit_work *w, const tacit_entry *e)
{
    char text[EVENT_TEXT];
    if (!tell(e->entry, text))
        return TACIT_OK;
    tacit_status status = audit_grow(&w->out->events, &w->event_capacity, w->out->event_count,
                                     sizeof *w->out->events, w->err);
    if (status != TACIT_OK)
        return status;
    tacit_text_make_plain(text, strlen(text));
    tacit_audit_event event = {.entry = w->at,
                               .time_ms = e->entry->time_ms,
                               .kind = tacit_entry_kind_name(e->entry->body_case),
                               .has_device = e->entry->device.len == TACIT_DEVICE_BYTES,
                               .text = strdup(text)};
    if (!event.text)
        return tacit_fail(w->err, TACIT_NO_MEMORY, "audit: no memory for an event");
    if (event.has_device)
        memcpy(event.device, e->entry->device.data, TACIT_DEVICE_BYTES);
    w->out->events[w->out->event_count++] = event;
    return TACIT_OK;
}
