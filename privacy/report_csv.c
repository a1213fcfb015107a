/* The tables of a report for spreadsheets and scripts. */
#include "privacy/report.h"

#include "common/text.h"
#include "privacy/schedule_runs.h"

#include <math.h>

/* --- devices --- */

void report_csv(markup *m, const report *r)
{
    markup_raw(m, "origin,device,unit,delta,epsilon_cap,epsilon,epsilon_left,devices_per_subject,"
                  "epsilon_subject,reserves,spends,accepted,non_private,insecure,revoked,frozen,"
                  "account_lost\r\n");
    for (size_t i = 0; i < r->audit->device_count; i++) {
        const tacit_audit_device *d = &r->audit->devices[i];
        char name[2 * TACIT_DEVICE_BYTES + 1];
        tacit_hex(name, d->device, TACIT_DEVICE_BYTES);
        markup_cell(m, r->audit->checkpoint.origin);
        markup_cell(m, name);
        markup_cell(m, tacit_privacy_unit_name(d->unit));
        markup_cell_number(m, d->delta);
        markup_cell_number(m, d->cap);
        markup_cell_number(m, report_epsilon(d));
        markup_cell_number(m, fmax(0, d->cap - report_epsilon(d)));
        markup_cell_count(m, d->devices_per_subject);
        markup_cell_number(m, report_epsilon_subject(d));
        markup_cell_count(m, d->reserves);
        markup_cell_count(m, d->spends);
        markup_cell_count(m, d->accepted);
        markup_cell_flag(m, d->non_private);
        markup_cell_flag(m, d->insecure);
        markup_cell_flag(m, d->revoked);
        markup_cell_flag(m, d->frozen);
        markup_cell_flag(m, d->lost);
        markup_record(m);
    }
}

/* --- schedules and rounds --- */

static void hex_cell(markup *m, const uint8_t *bytes, size_t size)
{
    char text[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(text, bytes, size);
    markup_cell(m, text);
}

#define MECHANISM_COLUMNS                                                                          \
    "mechanism,unit,neighbours,sigma,q,steps,clip_norm,quantile_target,clip_min,clip_max,"         \
    "minimum_separation,"

static void mechanism_cells(markup *m, const tacit_mechanism *k)
{
    markup_cell(m, tacit_mechanism_kind_name(k->kind));
    markup_cell(m, tacit_privacy_unit_name(k->unit));
    markup_cell(m, tacit_neighbours_name(k->neighbours));
    markup_cell_number(m, tacit_mechanism_noise_multiplier(k));
    markup_cell_number(m, tacit_sampling_rate(k->q_num));
    markup_cell_count(m, k->steps);
    markup_cell_number(m, k->clip_norm);
    markup_cell_number(m, k->quantile_target);
    markup_cell_number(m, k->clip_min);
    markup_cell_number(m, k->clip_max);
    markup_cell_count(m, k->minimum_separation);
}

static void run_record(markup *m, const report *r, const tacit_audit_schedule *s,
                       const schedule_run *run)
{
    markup_cell(m, r->audit->checkpoint.origin);
    markup_cell_count(m, s->entry);
    hex_cell(m, s->schedule->lineage.data, s->schedule->lineage.len == 16 ? 16 : 0);
    markup_cell_count(m, s->schedule->n_rounds);
    markup_cell_count(m, run->first);
    markup_cell_count(m, run->rounds);
    mechanism_cells(m, &run->mechanism);
    markup_cell_number(m, s->schedule->delta);
    markup_cell(m, schedule_accountant_name(s->schedule));
    markup_cell_number(m, s->epsilon);
    markup_cell_number(m, s->epsilon_planned);
    markup_cell_count(m, s->planned);
    markup_cell_count(m, s->reserved);
    markup_cell_count(m, s->summed);
    markup_cell_count(m, s->published);
    markup_cell_count(m, s->failed);
    markup_record(m);
}

void report_csv_schedules(markup *m, const report *r)
{
    markup_raw(m, "origin,entry,lineage,schedule_rounds,first_round,rounds," MECHANISM_COLUMNS
                  "delta,accountant,epsilon,epsilon_planned,rounds_planned,rounds_reserved,"
                  "rounds_summed,rounds_published,rounds_failed\r\n");
    for (size_t i = 0; i < r->audit->schedule_count; i++) {
        const tacit_audit_schedule *s = &r->audit->schedules[i];
        for (schedule_run run = {.rounds = 0}; schedule_run_next(&run, s->schedule);)
            run_record(m, r, s, &run);
    }
}

void report_csv_rounds(markup *m, const report *r)
{
    markup_raw(m, "origin,entry,round_id,lineage,index," MECHANISM_COLUMNS
                  "delta,local_steps,assumed_colluders,cohort,quorum,reserved,accepted,rejected,"
                  "epsilon_server,epsilon_published,epsilon_rule,summed,published,closed\r\n");
    for (size_t i = 0; i < r->audit->rounds; i++) {
        const tacit_audit_round *round = &r->audit->round_list[i];
        markup_cell(m, r->audit->checkpoint.origin);
        markup_cell_count(m, round->entry);
        hex_cell(m, round->round_id, sizeof round->round_id);
        hex_cell(m, round->lineage, sizeof round->lineage);
        markup_cell_count(m, round->index);
        mechanism_cells(m, &round->mechanism);
        markup_cell_number(m, round->delta);
        markup_cell_count(m, round->local_steps);
        markup_cell_count(m, round->assumed_colluders);
        markup_cell_count(m, round->cohort);
        markup_cell_count(m, round->quorum);
        markup_cell_count(m, round->reserved);
        markup_cell_count(m, round->accepted);
        markup_cell_count(m, round->rejected);
        markup_cell_number(m, round->epsilon_server);
        markup_cell_number(m, round->epsilon_published);
        markup_cell(m, round->rule);
        markup_cell_flag(m, round->summed);
        markup_cell_flag(m, round->published);
        markup_cell_flag(m, round->closed);
        markup_record(m);
    }
}
