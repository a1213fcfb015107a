#include "privacy/verify_schedules.h"

#include "common/text.h"
#include "privacy/mechanism.h"

#include <stdio.h>

static json_t *describe(uint64_t entry, const Tacit__Schedule *s, const tacit_mechanism *m,
                        size_t rounds)
{
    char lineage[2 * 16 + 1] = "";
    if (s->lineage.len == 16)
        tacit_hex(lineage, s->lineage.data, 16);
    json_t *row = json_pack(
        "{s:I, s:s, s:f, s:I, s:s, s:s, s:s, s:f, s:f, s:I, s:f}", "entry", (json_int_t)entry,
        "lineage", lineage, "delta", s->delta, "rounds", (json_int_t)rounds, "mechanism",
        tacit_mechanism_kind_name(m->kind), "unit", tacit_privacy_unit_name(m->unit), "neighbours",
        tacit_neighbours_name(m->neighbours), "sigma", tacit_mechanism_noise_multiplier(m), "q",
        tacit_sampling_rate(m->q_num), "steps", (json_int_t)m->steps, "clip_norm", m->clip_norm);
    if (row && m->quantile_b)
        json_object_update_new(
            row, json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "quantile_target", m->quantile_target,
                           "sigma_gradients", tacit_noise_multiplier(m->b), "sigma_count",
                           tacit_noise_multiplier(m->quantile_b), "clip_rate", m->clip_rate,
                           "clip_min", m->clip_min, "clip_max", m->clip_max));
    if (row && m->minimum_separation)
        json_object_set_new(row, "minimum_separation", json_integer(m->minimum_separation));
    return row;
}

static void add_schedule(json_t *list, uint64_t entry, const Tacit__Schedule *s)
{
    tacit_mechanism current, next;
    size_t rounds = 0;
    for (size_t i = 0; i < s->n_rounds; i++) {
        if (tacit_mechanism_from_message(&next, s->rounds[i]->mechanism, NULL) != TACIT_OK)
            return;
        if (rounds && !tacit_mechanism_equal(&current, &next)) {
            json_array_append_new(list, describe(entry, s, &current, rounds));
            rounds = 0;
        }
        current = next;
        rounds++;
    }
    if (rounds)
        json_array_append_new(list, describe(entry, s, &current, rounds));
}

json_t *schedule_list(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < audit->schedule_count; i++)
        add_schedule(list, audit->schedules[i].entry, audit->schedules[i].schedule);
    return list;
}

static const char *text_of(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static double number_of(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void print_private(const json_t *row)
{
    printf("%s, sigma %.6g, q %.6g, clip %g, unit %s, %s neighbours, delta %g\n",
           text_of(row, "mechanism"), number_of(row, "sigma"), number_of(row, "q"),
           number_of(row, "clip_norm"), text_of(row, "unit"), text_of(row, "neighbours"),
           number_of(row, "delta"));
    if (json_object_get(row, "quantile_target"))
        printf("    the clip adapts to the %g quantile of gradient norms, within %g and %g; sigma "
               "is of gradients (%.6g) and count (%.6g) together\n",
               number_of(row, "quantile_target"), number_of(row, "clip_min"),
               number_of(row, "clip_max"), number_of(row, "sigma_gradients"),
               number_of(row, "sigma_count"));
    if (json_object_get(row, "minimum_separation"))
        printf("    nothing is sampled: a unit enters one step in %.0f, and steps share noise\n",
               number_of(row, "minimum_separation"));
}

void schedule_list_print(const json_t *list)
{
    size_t i;
    json_t *row;
    if (json_array_size(list))
        printf("\nschedules\n");
    json_array_foreach(list, i, row)
    {
        printf("  lineage %.8s (entry %.0f): %.0f round%s of %.0f steps, ", text_of(row, "lineage"),
               number_of(row, "entry"), number_of(row, "rounds"),
               number_of(row, "rounds") == 1 ? "" : "s", number_of(row, "steps"));
        if (number_of(row, "sigma") > 0)
            print_private(row);
        else
            printf("mechanism none: no guarantee\n");
    }
}
