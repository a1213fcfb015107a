/* The report of an audit: one page of HTML without scripts that loads nothing, and tables of the
 * devices, schedules and rounds as CSV. The same audit gives the same bytes: no clock is read.
 * Everything in a log is hostile text (markup.h). */
#ifndef TACIT_PRIVACY_REPORT_H
#define TACIT_PRIVACY_REPORT_H

#include "privacy/audit.h"
#include "privacy/markup.h"

/* Most rows that the page shows; the others are in the CSV and the JSON, and the page says so. */
#define REPORT_DEVICES_MAX 50
#define REPORT_ROUNDS_MAX 5000
#define REPORT_LIST_MAX 500

typedef struct report {
    const tacit_audit *audit;
    const char *date; /* as the auditor gave it, or NULL */

    size_t *by_share;          /* devices, the largest share of its cap first */
    size_t *first, *of_device; /* points of device d: of_device[first[d] .. first[d + 1]) */
} report;

tacit_status report_open(report *r, const tacit_audit *audit, const char *date,
                         tacit_error *err) TACIT_MUST_CHECK;
void report_close(report *r);

/* What an account spent, and as many as one subject may be on: +inf with a round without noise,
 * which the audit counts apart. */
double report_epsilon(const tacit_audit_device *d);
double report_epsilon_subject(const tacit_audit_device *d);

/* What an account spent of its cap: 1 is all of it, +inf where nothing finite is known. */
double report_share(const tacit_audit_device *d);

/* The whole page. */
void report_page(markup *m, const report *r);

/* One row for each device in the order of enrolment, under a header (RFC 4180):
 * origin,device,unit,delta,epsilon_cap,epsilon,epsilon_left,devices_per_subject,epsilon_subject,
 * reserves,spends,accepted,non_private,insecure,revoked,frozen,account_lost */
void report_csv(markup *m, const report *r);

/* One row for each run of equal rounds of a schedule:
 * origin,entry,lineage,schedule_rounds,first_round,rounds,mechanism,unit,neighbours,sigma,q,steps,
 * clip_norm,quantile_target,clip_min,clip_max,minimum_separation,delta,accountant,epsilon,
 * epsilon_planned,rounds_planned,rounds_reserved,rounds_summed,rounds_published,rounds_failed */
void report_csv_schedules(markup *m, const report *r);

/* One row for each round, in the order of the plans:
 * origin,entry,round_id,lineage,index,mechanism,unit,neighbours,sigma,q,steps,clip_norm,
 * quantile_target,clip_min,clip_max,minimum_separation,delta,local_steps,assumed_colluders,cohort,
 * quorum,reserved,accepted,rejected,epsilon_server,epsilon_published,epsilon_rule,summed,published,
 * closed */
void report_csv_rounds(markup *m, const report *r);

/* --- parts of the page --- */

/* The statement of the guarantee in words, a field at a time, in the order in which NIST SP 800-226
 * goes from the parameters down to the collection of data. */
#define REPORT_FIELD_TEXT 2048
typedef struct report_field {
    const char *key, *title; /* "unit_of_privacy", "Unit of privacy" */
    char text[REPORT_FIELD_TEXT];
} report_field;

#define REPORT_FIELDS_MAX 16
size_t report_statement(const report *r, report_field fields[REPORT_FIELDS_MAX]);

/* What a reader must not overlook; each one line. */
#define REPORT_WARNINGS_MAX 8
size_t report_warnings(const report *r, char lines[REPORT_WARNINGS_MAX][REPORT_FIELD_TEXT]);

/* Charts, as SVG within the page. */
void report_chart_curves(markup *m, const report *r);
void report_chart_shares(markup *m, const report *r);
void report_chart_device(markup *m, const report *r, size_t device);

/* Tables of the page. */
void report_table_devices(markup *m, const report *r);
void report_table_schedules(markup *m, const report *r);
void report_table_rounds(markup *m, const report *r);
void report_table_publications(markup *m, const report *r);
void report_table_events(markup *m, const report *r);
void report_table_checks(markup *m, const report *r);
void report_list(markup *m, const char *caption, const tacit_violation *list, size_t count);

#endif
