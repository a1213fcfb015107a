#include "privacy/verify_schedules.h"

#include "common/text.h"
#include "privacy/schedule_runs.h"

#include <math.h>
#include <stdio.h>

static json_t *json_finite(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* What holds of the whole schedule, in each of its rows. */
static json_t *describe_whole(const tacit_audit_schedule *s)
{
    char lineage[2 * 16 + 1] = "";
    if (s->schedule->lineage.len == 16)
        tacit_hex(lineage, s->schedule->lineage.data, 16);
    return json_pack("{s:I, s:s, s:f, s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "entry",
                     (json_int_t)s->entry, "lineage", lineage, "delta", s->schedule->delta,
                     "accountant", schedule_accountant_name(s->schedule), "schedule_rounds",
                     (json_int_t)s->schedule->n_rounds, "epsilon", json_finite(s->epsilon),
                     "rounds_planned", (json_int_t)s->planned, "rounds_reserved",
                     (json_int_t)s->reserved, "rounds_summed", (json_int_t)s->summed,
                     "rounds_published", (json_int_t)s->published, "rounds_failed",
                     (json_int_t)s->failed, "epsilon_planned", json_finite(s->epsilon_planned));
}

static json_t *describe(const tacit_audit_schedule *s, const schedule_run *run)
{
    const tacit_mechanism *m = &run->mechanism;
    json_t *row = describe_whole(s);
    if (row)
        json_object_update_new(
            row,
            json_pack("{s:I, s:I, s:s, s:s, s:s, s:f, s:f, s:I, s:f}", "first_round",
                      (json_int_t)run->first, "rounds", (json_int_t)run->rounds, "mechanism",
                      tacit_mechanism_kind_name(m->kind), "unit", tacit_privacy_unit_name(m->unit),
                      "neighbours", tacit_neighbours_name(m->neighbours), "sigma",
                      tacit_mechanism_noise_multiplier(m), "q", tacit_sampling_rate(m->q_num),
                      "steps", (json_int_t)m->steps, "clip_norm", m->clip_norm));
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

json_t *schedule_list(const tacit_audit *audit)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < audit->schedule_count; i++)
        for (schedule_run run = {.rounds = 0};
             schedule_run_next(&run, audit->schedules[i].schedule);)
            json_array_append_new(list, describe(&audit->schedules[i], &run));
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

static void print_epsilon(const char *what, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    if (json_is_null(value))
        printf("%s infinite", what);
    else
        printf("%s %.6g", what, json_number_value(value));
}

/* After the last of its rows: what was promised as a whole, and how far it went. */
static void print_progress(const json_t *row)
{
    printf("    in all %.0f round%s", number_of(row, "schedule_rounds"),
           number_of(row, "schedule_rounds") == 1 ? "" : "s");
    if (number_of(row, "rounds_planned") == 0) {
        printf(", none planned yet\n");
        return;
    }
    print_epsilon(": epsilon", row, "epsilon");
    printf(" (%s)", text_of(row, "accountant"));
    print_epsilon("; as far as planned", row, "epsilon_planned");
    printf("\n    planned %.0f, reserved %.0f, summed %.0f, published %.0f, failed %.0f\n",
           number_of(row, "rounds_planned"), number_of(row, "rounds_reserved"),
           number_of(row, "rounds_summed"), number_of(row, "rounds_published"),
           number_of(row, "rounds_failed"));
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
        const json_t *next = json_array_get(list, i + 1);
        if (!next || number_of(next, "entry") != number_of(row, "entry"))
            print_progress(row);
    }
}
