/* The tables of the page. */
#include "privacy/report.h"

#include "common/text.h"
#include "privacy/schedule_runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- cells --- */

#define NUMBER "#" /* begins the head of a column of numbers */

static void table_begin(markup *m, const char *caption, const char *const heads[], size_t n)
{
    markup_format(m,
                  "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table>"
                  "<caption>%s</caption><thead><tr>",
                  caption, caption);
    for (size_t i = 0; i < n; i++) {
        bool number = *heads[i] == NUMBER[0];
        markup_format(m, "<th scope=\"col\"%s>%s</th>", number ? " class=\"number\"" : "",
                      heads[i] + number);
    }
    markup_raw(m, "</tr></thead><tbody>");
}

#define TABLE_BEGIN(m, caption, heads)                                                             \
    table_begin(m, caption, heads, sizeof(heads) / sizeof(heads)[0])

static void table_end(markup *m)
{
    markup_raw(m, "</tbody></table></div>");
}

static void cell(markup *m, const char *text)
{
    markup_raw(m, "<td>");
    markup_text(m, text);
    markup_raw(m, "</td>");
}

/* A word of ours, which may be broken behind an underscore. */
static void cell_word(markup *m, const char *word)
{
    markup_raw(m, "<td>");
    for (const char *c = word; *c; c++)
        markup_format(m, *c == '_' ? "%c<wbr>" : "%c", *c);
    markup_raw(m, "</td>");
}

static void cell_number(markup *m, double v)
{
    char text[MARKUP_NUMBER];
    markup_format(m, "<td class=\"number\">%s</td>", markup_number(v, text));
}

static void cell_count(markup *m, uint64_t v)
{
    markup_format(m, "<td class=\"number\">%llu</td>", (unsigned long long)v);
}

static void cell_entry(markup *m, uint64_t entry)
{
    if (entry == TACIT_AUDIT_NO_ENTRY)
        markup_raw(m, "<td class=\"number\">whole log</td>");
    else
        cell_count(m, entry);
}

static void cell_hex(markup *m, const uint8_t *bytes, size_t size)
{
    char text[2 * TACIT_HASH_BYTES + 1];
    tacit_hex(text, bytes, size);
    markup_format(m, "<td><code%s>%s</code></td>", size > 8 ? " class=\"long\"" : "", text);
}

/* True when there is nothing to show, which is said. */
static bool is_empty(markup *m, size_t n)
{
    if (!n)
        markup_raw(m, "<p>None.</p>\n");
    return !n;
}

static void left_out(markup *m, size_t shown, size_t all, const char *what, const char *where)
{
    if (shown < all)
        markup_format(m, "<p class=\"note\">%zu of %zu %s are shown; all are in %s.</p>", shown,
                      all, what, where);
}

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* --- violations and notes --- */

static const char *meaning_of(const char *kind)
{
    for (const tacit_audit_kind *k = tacit_audit_kinds; k->kind; k++)
        if (strcmp(k->kind, kind) == 0)
            return k->meaning;
    return "";
}

void report_list(markup *m, const char *caption, const tacit_violation *list, size_t count)
{
    static const char *const heads[] = {"Kind", NUMBER "Entry", "What was found", "Meaning",
                                        "Check"};
    size_t shown = at_most(count, REPORT_LIST_MAX);
    if (!count)
        return;
    TABLE_BEGIN(m, caption, heads);
    for (size_t i = 0; i < shown; i++) {
        const char *check = tacit_audit_check_of(list[i].kind);
        markup_format(m, "<tr><th scope=\"row\"><code>%s</code></th>", list[i].kind);
        cell_entry(m, list[i].entry);
        cell(m, list[i].detail);
        cell(m, meaning_of(list[i].kind));
        cell(m, check ? check : "none");
        markup_raw(m, "</tr>");
    }
    table_end(m);
    left_out(m, shown, count, "findings", "the JSON");
}

/* --- checks --- */

static void check_row(markup *m, const tacit_audit_check *c)
{
    const char *outcome = tacit_audit_outcome_name(c->outcome);
    markup_format(m, "<tr class=\"%s\"><th scope=\"row\"><code>%s</code></th>", outcome, c->name);
    markup_format(m, "<td class=\"outcome\">%s</td><td>%s</td>", outcome, c->holds);
    markup_format(m, "<td>%s: %llu</td><td>", c->noun, (unsigned long long)c->examined);
    if (c->outcome == TACIT_AUDIT_SKIPPED)
        markup_text(m, c->reason);
    else if (c->outcome == TACIT_AUDIT_FAIL && c->first_entry != TACIT_AUDIT_NO_ENTRY)
        markup_format(m, "violations: %llu, first at entry %llu", (unsigned long long)c->failures,
                      (unsigned long long)c->first_entry);
    else if (c->outcome == TACIT_AUDIT_FAIL)
        markup_format(m, "violations: %llu", (unsigned long long)c->failures);
    markup_raw(m, "</td></tr>");
}

void report_table_checks(markup *m, const report *r)
{
    static const char *const heads[] = {"Check", "Outcome", "What holds when it passes",
                                        "Looked at", "Remark"};
    TABLE_BEGIN(m, "Every check of this audit", heads);
    for (size_t i = 0; i < r->audit->check_count; i++)
        check_row(m, &r->audit->checks[i]);
    table_end(m);
}

/* --- devices --- */

static void marks_of(markup *m, const tacit_audit_device *d)
{
    const struct {
        bool set;
        const char *word;
    } marks[] = {{d->lost, "account lost"},
                 {d->insecure, "test seed"},
                 {d->non_private, "rounds without noise"},
                 {d->revoked, "revoked"},
                 {d->frozen, "frozen (clone)"},
                 {d->epsilon > d->cap, "above its cap"}};
    bool any = false;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (marks[i].set)
            markup_format(m, "%s%s", any ? ", " : "", marks[i].word);
        any = any || marks[i].set;
    }
    if (d->non_private) {
        char text[MARKUP_NUMBER];
        markup_format(m, "; epsilon of its other rounds: %s", markup_number(d->epsilon, text));
    }
    if (!any)
        markup_raw(m, "none");
}

static void device_row(markup *m, const report *r, size_t device)
{
    const tacit_audit_device *d = &r->audit->devices[device];
    char name[2 * TACIT_DEVICE_BYTES + 1];
    tacit_hex(name, d->device, TACIT_DEVICE_BYTES);
    markup_format(m, "<tr><th scope=\"row\"><code class=\"long\">%s</code></th><td>", name);
    report_chart_device(m, r, device);
    markup_raw(m, "</td>");
    cell_number(m, report_epsilon(d));
    cell_number(m, d->cap);
    cell_number(m, fmax(0, d->cap - report_epsilon(d)));
    cell_number(m, d->delta);
    cell(m, tacit_privacy_unit_name(d->unit));
    if (d->devices_per_subject > 1) {
        char text[MARKUP_NUMBER];
        markup_format(m, "<td class=\"number\">%s on %u devices</td>",
                      markup_number(report_epsilon_subject(d), text), d->devices_per_subject);
    } else {
        cell_number(m, report_epsilon_subject(d));
    }
    cell_count(m, d->reserves);
    cell_count(m, d->accepted);
    markup_raw(m, "<td>");
    marks_of(m, d);
    markup_raw(m, "</td></tr>");
}

void report_table_devices(markup *m, const report *r)
{
    static const char *const heads[] = {"Pseudonym",
                                        "Curve",
                                        NUMBER "Epsilon spent",
                                        NUMBER "Cap",
                                        NUMBER "Left",
                                        NUMBER "Delta",
                                        "Unit",
                                        NUMBER "Epsilon of a subject",
                                        NUMBER "Reserves",
                                        NUMBER "Accepted",
                                        "Marks"};
    size_t shown = at_most(r->audit->device_count, REPORT_DEVICES_MAX);
    if (is_empty(m, shown))
        return;
    TABLE_BEGIN(m, "Devices, the largest share of its cap first", heads);
    for (size_t i = 0; i < shown; i++)
        device_row(m, r, r->by_share[i]);
    table_end(m);
    left_out(m, shown, r->audit->device_count, "devices", "the CSV and the JSON");
}

/* --- schedules --- */

static void cell_clip(markup *m, const tacit_mechanism *k)
{
    char norm[MARKUP_NUMBER], least[MARKUP_NUMBER], most[MARKUP_NUMBER];
    markup_format(m, "<td class=\"number\">%s", markup_number(k->clip_norm, norm));
    if (k->quantile_b)
        markup_format(m, ", then %s to %s by the %.6g quantile", markup_number(k->clip_min, least),
                      markup_number(k->clip_max, most), k->quantile_target);
    markup_raw(m, "</td>");
}

static void cell_spanning(markup *m, size_t rows, double v)
{
    char text[MARKUP_NUMBER];
    markup_format(m, "<td class=\"number\" rowspan=\"%zu\">%s</td>", rows, markup_number(v, text));
}

static void cell_progress(markup *m, size_t rows, const tacit_audit_schedule *s)
{
    markup_format(m, "<td class=\"words\" rowspan=\"%zu\">", rows);
    if (!s->planned)
        markup_raw(m, "no round planned");
    else
        markup_format(
            m, "planned %llu of %zu, reserved %llu, summed %llu, published %llu, failed %llu",
            (unsigned long long)s->planned, s->schedule->n_rounds, (unsigned long long)s->reserved,
            (unsigned long long)s->summed, (unsigned long long)s->published,
            (unsigned long long)s->failed);
    markup_raw(m, "</td>");
}

/* Noised steps; with the device unit there is one, after local steps without noise, which the plan
 * of round `r` states (NULL: no plan says). */
static void cell_steps(markup *m, const tacit_mechanism *k, const tacit_audit_round *r)
{
    markup_format(m, "<td class=\"number\">%u", k->steps);
    if (r && r->local_steps)
        markup_format(m, " after %u local, %u colluders assumed", r->local_steps,
                      r->assumed_colluders);
    if (k->minimum_separation)
        markup_format(m, ", a unit in one of every %u", k->minimum_separation);
    markup_raw(m, "</td>");
}

/* From the mechanism's name to its clip norm. */
static void mechanism_cells(markup *m, const tacit_mechanism *k, const tacit_audit_round *r)
{
    cell_word(m, tacit_mechanism_kind_name(k->kind));
    markup_format(m, "<td>%s, %s</td>", tacit_privacy_unit_name(k->unit),
                  tacit_neighbours_name(k->neighbours));
    cell_number(m, tacit_mechanism_noise_multiplier(k));
    cell_number(m, tacit_sampling_rate(k->q_num));
    cell_steps(m, k, r);
    cell_clip(m, k);
}

static void run_cells(markup *m, const schedule_run *run)
{
    if (run->rounds == 1)
        markup_format(m, "<td class=\"number\">%zu</td>", run->first + 1);
    else
        markup_format(m, "<td class=\"number\">%zu to %zu</td>", run->first + 1,
                      run->first + run->rounds);
    mechanism_cells(m, &run->mechanism, NULL);
}

/* At most `most` rows, one a run of equal rounds; the cells of the whole schedule span them. */
static size_t schedule_rows(markup *m, const tacit_audit_schedule *s, size_t most)
{
    size_t rows = at_most(schedule_run_count(s->schedule), most);
    schedule_run run = {.rounds = 0};
    char lineage[2 * 4 + 1] = "";
    tacit_hex(lineage, s->schedule->lineage.data, at_most(s->schedule->lineage.len, 4));
    for (size_t i = 0; i < rows && schedule_run_next(&run, s->schedule); i++) {
        markup_raw(m, "<tr>");
        if (i == 0) {
            markup_format(m, "<th scope=\"rowgroup\" rowspan=\"%zu\"><code>%s</code></th>", rows,
                          lineage);
            markup_format(m, "<td class=\"number\" rowspan=\"%zu\">%llu</td>", rows,
                          (unsigned long long)s->entry);
        }
        run_cells(m, &run);
        if (i == 0) {
            cell_spanning(m, rows, s->schedule->delta);
            markup_format(m, "<td rowspan=\"%zu\">%s</td>", rows,
                          schedule_accountant_name(s->schedule));
            cell_spanning(m, rows, s->epsilon);
            cell_spanning(m, rows, s->epsilon_planned);
            cell_progress(m, rows, s);
        }
        markup_raw(m, "</tr>");
    }
    return rows;
}

void report_table_schedules(markup *m, const report *r)
{
    static const char *const heads[] = {"Lineage",
                                        NUMBER "Entry",
                                        NUMBER "Rounds",
                                        "Mechanism",
                                        "Unit, neighbours",
                                        NUMBER "Sigma",
                                        NUMBER "q",
                                        NUMBER "Steps",
                                        NUMBER "Clip",
                                        NUMBER "Delta",
                                        "Accountant",
                                        NUMBER "Epsilon of the whole",
                                        NUMBER "Epsilon as far as planned",
                                        "How far it went"};
    size_t n = r->audit->schedule_count, shown = 0, rows = 0;
    if (is_empty(m, n))
        return;
    TABLE_BEGIN(m, "Schedules, fixed in the log before their first reserve", heads);
    for (; shown < n && rows < REPORT_ROUNDS_MAX; shown++)
        rows += schedule_rows(m, &r->audit->schedules[shown], REPORT_ROUNDS_MAX - rows);
    table_end(m);
    left_out(m, shown, n, "schedules", "the JSON and their CSV");
    markup_raw(
        m, "<p class=\"note\">A row for each run of equal rounds. The epsilons are what a device "
           "that takes every round reveals to the server, recomputed at the schedule's delta; a "
           "device that skips rounds reveals less. Each local training of a device counts as a "
           "schedule of its own, which its reserve states.</p>\n");
}

/* --- rounds --- */

static const char *ending_of(const tacit_audit_round *r)
{
    if (r->published)
        return "published";
    if (r->closed)
        return "failed";
    return r->summed ? "summed" : "open";
}

static void round_row(markup *m, const tacit_audit_round *r)
{
    char lineage[9];
    tacit_hex(lineage, r->lineage, 4);
    markup_format(m, "<tr><th scope=\"row\">%u of <code>%s</code></th>", r->index + 1, lineage);
    cell_count(m, r->entry);
    mechanism_cells(m, &r->mechanism, r);
    cell_number(m, r->delta);
    cell_count(m, r->cohort);
    cell_count(m, r->quorum);
    cell_count(m, r->reserved);
    cell_count(m, r->accepted);
    cell_count(m, r->rejected);
    cell_number(m, r->epsilon_server);
    cell_number(m, r->epsilon_published);
    cell(m, ending_of(r));
    markup_raw(m, "</tr>");
}

void report_table_rounds(markup *m, const report *r)
{
    static const char *const heads[] = {"Round",
                                        NUMBER "Entry",
                                        "Mechanism",
                                        "Unit, neighbours",
                                        NUMBER "Sigma",
                                        NUMBER "q",
                                        NUMBER "Steps",
                                        NUMBER "Clip",
                                        NUMBER "Delta",
                                        NUMBER "Cohort",
                                        NUMBER "Quorum",
                                        NUMBER "Reserved",
                                        NUMBER "Accepted",
                                        NUMBER "Rejected",
                                        NUMBER "Epsilon, server",
                                        NUMBER "Epsilon, published",
                                        "Ended"};
    size_t n = (size_t)r->audit->rounds, shown = at_most(n, REPORT_ROUNDS_MAX);
    if (is_empty(m, n))
        return;
    TABLE_BEGIN(m, "Rounds, with mechanism and parameters", heads);
    for (size_t i = n - shown; i < n; i++)
        round_row(m, &r->audit->round_list[i]);
    table_end(m);
    left_out(m, shown, n, "rounds", "the JSON");
}

/* --- publications --- */

void report_table_publications(markup *m, const report *r)
{
    static const char *const heads[] = {"Version",
                                        NUMBER "Parent",
                                        NUMBER "Entry",
                                        "Lineage",
                                        NUMBER "Epsilon against the server",
                                        NUMBER "Epsilon of the published adapter",
                                        NUMBER "Delta",
                                        "Rule",
                                        NUMBER "Accuracy, as the server states it",
                                        "File (SHA-256)"};
    size_t n = r->audit->publication_count, shown = at_most(n, REPORT_ROUNDS_MAX);
    if (is_empty(m, n))
        return;
    TABLE_BEGIN(m, "Published adapters, both views recomputed", heads);
    for (size_t i = n - shown; i < n; i++) {
        const tacit_audit_publication *p = &r->audit->publications[i];
        markup_format(m, "<tr><th scope=\"row\">%llu</th>", (unsigned long long)p->version);
        cell_count(m, p->parent_version);
        cell_count(m, p->entry);
        cell_hex(m, p->lineage, 4);
        cell_number(m, p->epsilon_server);
        cell_number(m, p->epsilon_published);
        cell_number(m, p->delta);
        cell(m, p->rule);
        cell_number(m, p->accuracy);
        cell_hex(m, p->file_digest, TACIT_HASH_BYTES);
        markup_raw(m, "</tr>");
    }
    table_end(m);
    left_out(m, shown, n, "publications", "the JSON");
}

/* --- events --- */

static void cell_time(markup *m, uint64_t time_ms)
{
    time_t seconds = (time_t)(time_ms / 1000);
    struct tm utc;
    char text[32];
    if (time_ms / 1000 > 253402300799 || !gmtime_r(&seconds, &utc) ||
        !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc))
        snprintf(text, sizeof text, "unknown");
    cell(m, text);
}

void report_table_events(markup *m, const report *r)
{
    static const char *const heads[] = {NUMBER "Entry", "Time (UTC, the signer's clock)", "Event",
                                        "Device", "What the entry says"};
    size_t n = r->audit->event_count, shown = at_most(n, REPORT_LIST_MAX);
    if (is_empty(m, n))
        return;
    TABLE_BEGIN(m, "Revocations, changes of policy, rollbacks, starts, failed rounds", heads);
    for (size_t i = n - shown; i < n; i++) {
        const tacit_audit_event *e = &r->audit->events[i];
        markup_raw(m, "<tr>");
        cell_count(m, e->entry);
        cell_time(m, e->time_ms);
        cell_word(m, e->kind);
        if (e->has_device)
            cell_hex(m, e->device, TACIT_DEVICE_BYTES);
        else
            cell(m, "");
        cell(m, e->text);
        markup_raw(m, "</tr>");
    }
    table_end(m);
    left_out(m, shown, n, "events", "the JSON");
}
