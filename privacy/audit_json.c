#include "privacy/audit_json.h"

#include "common/text.h"

#include <math.h>

static json_t *json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *json_hex(const uint8_t *bytes, size_t size)
{
    char text[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(text, bytes, size);
    return json_string(text);
}

static json_t *json_entry(uint64_t entry)
{
    return entry == TACIT_AUDIT_NO_ENTRY ? json_null() : json_integer((json_int_t)entry);
}

static json_t *json_list(const tacit_violation *found, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:s,s:o,s:s}", "kind", found[i].kind, "entry",
                                        json_entry(found[i].entry), "detail", found[i].detail));
    return list;
}

static json_t *json_checks(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->check_count; i++) {
        const tacit_audit_check *c = &audit->checks[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:s,s:s,s:I,s:s,s:I,s:o,s:s?}", "name", c->name,
                                        "outcome", tacit_audit_outcome_name(c->outcome), "holds",
                                        c->holds, "examined", (json_int_t)c->examined, "of",
                                        c->noun, "failures", (json_int_t)c->failures, "first_entry",
                                        json_entry(c->first_entry), "reason", c->reason));
    }
    return list;
}

/* Null when there are more than a list keeps. */
static json_t *json_charged(const tacit_event_list *events)
{
    json_t *list = events->too_many ? json_null() : json_array();
    for (uint32_t i = 0; i < events->n; i++) {
        const tacit_event *e = &events->item[i];
        json_array_append_new(list, json_pack("{s:s,s:o,s:o,s:I}", "neighbours",
                                              tacit_neighbours_name(e->neighbours), "sigma",
                                              json_number(e->sigma), "q", json_number(e->q),
                                              "steps", (json_int_t)e->count));
    }
    return list;
}

static json_t *json_devices(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->device_count; i++) {
        const tacit_audit_device *d = &audit->devices[i];
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:s,s:I,s:o,s:I,s:I,s:I,s:b,s:b,s:b,s:b,s:b,s:o,s:o}",
                            "device", json_hex(d->device, TACIT_DEVICE_BYTES), "epsilon",
                            json_number(d->epsilon), "epsilon_cap", json_number(d->cap), "delta",
                            json_number(d->delta), "unit", tacit_privacy_unit_name(d->unit),
                            "devices_per_subject", (json_int_t)d->devices_per_subject,
                            "epsilon_subject", json_number(d->epsilon_subject), "reserves",
                            (json_int_t)d->reserves, "spends", (json_int_t)d->spends, "accepted",
                            (json_int_t)d->accepted, "non_private", d->non_private, "insecure",
                            d->insecure, "revoked", d->revoked, "frozen", d->frozen, "account_lost",
                            d->lost, "order", d->order > 0 ? json_number(d->order) : json_null(),
                            "charged", json_charged(&d->charged)));
    }
    return list;
}

static json_t *json_publications(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->publication_count; i++) {
        const tacit_audit_publication *p = &audit->publications[i];
        json_array_append_new(
            list,
            json_pack("{s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:s,s:o}", "entry", (json_int_t)p->entry,
                      "version", (json_int_t)p->version, "parent_version",
                      (json_int_t)p->parent_version, "lineage", json_hex(p->lineage, 16),
                      "file_digest", json_hex(p->file_digest, TACIT_HASH_BYTES), "epsilon_server",
                      json_number(p->epsilon_server), "epsilon_published",
                      json_number(p->epsilon_published), "delta", json_number(p->delta),
                      "epsilon_rule", p->rule, "accuracy", json_number(p->accuracy)));
    }
    return list;
}

static double worst_epsilon(const tacit_audit *audit)
{
    double worst = 0;
    for (size_t i = 0; i < audit->device_count; i++)
        worst = fmax(worst, audit->devices[i].epsilon);
    return worst;
}

json_t *audit_json(const tacit_audit *audit, json_t *schedules)
{
    return json_pack(
        "{s:s,s:s,s:I,s:I,s:o,s:I,s:I,s:s,s:I,s:o,s:o,s:o,s:O,s:o,s:o,s:o}", "audit",
        audit->violation_count ? "violations" : "ok", "origin", audit->checkpoint.origin, "entries",
        (json_int_t)audit->entries, "checkpoint_size", (json_int_t)audit->checkpoint.size, "root",
        json_hex(audit->checkpoint.root, TACIT_HASH_BYTES), "rounds", (json_int_t)audit->rounds,
        "receipts", (json_int_t)audit->receipts, "witness", audit->witness, "witnessed",
        (json_int_t)audit->witnessed, "epsilon_max", json_number(worst_epsilon(audit)), "checks",
        json_checks(audit), "devices", json_devices(audit), "schedules", schedules, "publications",
        json_publications(audit), "violations",
        json_list(audit->violations, audit->violation_count), "notes",
        json_list(audit->notes, audit->note_count));
}

/* --- what a report adds --- */

static json_t *json_round(const tacit_audit_round *r)
{
    const tacit_mechanism *m = &r->mechanism;
    json_t *round = json_pack(
        "{s:I,s:o,s:o,s:I,s:s,s:s,s:s,s:o,s:o,s:I,s:o,s:o}", "entry", (json_int_t)r->entry,
        "round_id", json_hex(r->round_id, sizeof r->round_id), "lineage",
        json_hex(r->lineage, sizeof r->lineage), "index", (json_int_t)r->index, "mechanism",
        tacit_mechanism_kind_name(m->kind), "unit", tacit_privacy_unit_name(m->unit), "neighbours",
        tacit_neighbours_name(m->neighbours), "sigma",
        json_number(tacit_mechanism_noise_multiplier(m)), "q",
        json_number(tacit_sampling_rate(m->q_num)), "steps", (json_int_t)m->steps, "clip_norm",
        json_number(m->clip_norm), "delta", json_number(r->delta));
    json_t *result =
        json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:b,s:o,s:o,s:s}", "local_steps",
                  (json_int_t)r->local_steps, "assumed_colluders", (json_int_t)r->assumed_colluders,
                  "cohort", (json_int_t)r->cohort, "quorum", (json_int_t)r->quorum, "reserved",
                  (json_int_t)r->reserved, "accepted", (json_int_t)r->accepted, "rejected",
                  (json_int_t)r->rejected, "summed", r->summed, "published", r->published, "closed",
                  r->closed, "epsilon_server", json_number(r->epsilon_server), "epsilon_published",
                  json_number(r->epsilon_published), "epsilon_rule", r->rule);
    json_t *more = json_pack("{s:I,s:o,s:o,s:o,s:o,s:I}", "quantile_b", (json_int_t)m->quantile_b,
                             "quantile_target", json_number(m->quantile_target), "clip_rate",
                             json_number(m->clip_rate), "clip_min", json_number(m->clip_min),
                             "clip_max", json_number(m->clip_max), "minimum_separation",
                             (json_int_t)m->minimum_separation);
    json_object_update(round, more);
    json_decref(more);
    json_object_update(round, result);
    json_decref(result);
    return round;
}

static json_t *json_rounds(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->rounds; i++)
        json_array_append_new(list, json_round(&audit->round_list[i]));
    return list;
}

static json_t *json_events(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->event_count; i++) {
        const tacit_audit_event *e = &audit->events[i];
        json_array_append_new(
            list, json_pack("{s:I,s:I,s:s,s:o,s:s}", "entry", (json_int_t)e->entry, "time_ms",
                            (json_int_t)e->time_ms, "kind", e->kind, "device",
                            e->has_device ? json_hex(e->device, TACIT_DEVICE_BYTES) : json_null(),
                            "text", e->text));
    }
    return list;
}

static json_t *json_curves(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < audit->device_count; i++)
        json_array_append_new(list, json_array());
    for (size_t i = 0; i < audit->point_count; i++) {
        const tacit_audit_point *p = &audit->points[i];
        json_array_append_new(json_array_get(list, p->device),
                              json_pack("[I,o]", (json_int_t)p->entry, json_number(p->epsilon)));
    }
    return list;
}

bool audit_json_extend(json_t *root, const tacit_audit *audit)
{
    return json_object_set_new(root, "round_list", json_rounds(audit)) == 0 &&
           json_object_set_new(root, "events", json_events(audit)) == 0 &&
           json_object_set_new(root, "curves", json_curves(audit)) == 0;
}
