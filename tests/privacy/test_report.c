/* The report of an audit: what it says is the audit's, nothing in a log can act in a browser or a
 * spreadsheet, and the same audit gives the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "audit_run.h"
#include "fleet_log.h"
#include "privacy/report.h"
#include "privacy/schedule_runs.h"

#include <ctype.h>

#define HOSTILE "<script>alert(1)</script>\"'><img src=x onerror=y>&lt;"

/* --- an audited fleet, and a made-up one --- */

typedef struct subject {
    world w;
    exported x;
    tacit_audit audit;
    report r;
} subject;

static const tacit_audit_options with_points = {.keep_points = true};

static void audited(subject *s, void (*more)(world *))
{
    *s = (subject){.r = {0}};
    world_init(&s->w);
    fleet_log(&s->w);
    if (more)
        more(&s->w);
    export_of(&s->w, &s->x);
    run(&s->x, &with_points, &s->audit);
    OK(report_open(&s->r, &s->audit, NULL, &s->w.err));
}

static void done(subject *s)
{
    report_close(&s->r);
    tacit_audit_free(&s->audit);
    export_done(&s->x);
    world_free(&s->w);
}

/* The caller frees. */
static char *text_of(const report *r, void (*write)(markup *, const report *))
{
    markup m = {.status = TACIT_OK};
    tacit_error err;
    write(&m, r);
    OK(markup_end(&m, &err));
    char *text = strndup((const char *)m.out.data, m.out.size);
    assert_int_equal(strlen(text), m.out.size);
    markup_free(&m);
    return text;
}

static char *page_of(const report *r)
{
    return text_of(r, report_page);
}

static size_t times(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

/* Reasons, names and evidence that would act where they are shown. */
static void push_hostile(world *w)
{
    Tacit__Entry r = TACIT__ENTRY__INIT, c = TACIT__ENTRY__INIT;
    Tacit__Revoke revoke = TACIT__REVOKE__INIT;
    Tacit__PolicyChanged change = TACIT__POLICY_CHANGED__INIT;
    tacit_policy lower = w->policy;
    size_t size;
    uint8_t *bytes;
    lower.epsilon_cap = 7;
    OK(tacit_policy_pack(&lower, &bytes, &size, &w->err));
    c.body_case = TACIT__ENTRY__BODY_POLICY_CHANGED;
    c.policy_changed = &change;
    change.who = change.role = change.meaning = change.reason = (char *)(uintptr_t)HOSTILE;
    change.policy = tacit_field_of(bytes, size);
    push_about(w, 1, &c);
    free(bytes);
    r.body_case = TACIT__ENTRY__BODY_REVOKE;
    r.revoke = &revoke;
    revoke.reason = (char *)(uintptr_t)HOSTILE;
    push_about(w, 1, &r);
    world_reserve(w, 1, 1); /* after its revocation: a violation, twice over */
}

/* --- the page as a browser reads it --- */

static const char *const tags[] = {
    "html",   "head",       "meta",  "title",   "style", "body",  "main", "h1",
    "h2",     "p",          "dl",    "dt",      "dd",    "ul",    "li",   "div",
    "figure", "figcaption", "table", "caption", "thead", "tbody", "tr",   "th",
    "td",     "code",       "svg",   "path",    "rect",  "text",  "desc", "wbr"};
static const char *const attributes[] = {
    "lang",     "charset", "http-equiv", "content",         "name",   "class",   "scope",
    "tabindex", "role",    "aria-label", "aria-labelledby", "id",     "viewBox", "d",
    "x",        "y",       "width",      "height",          "rowspan"};

#define IS_IN(list, word) is_in(list, sizeof(list) / sizeof(list)[0], word)

static bool is_in(const char *const list[], size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], word) == 0)
            return true;
    return false;
}

static bool is_void(const char *tag)
{
    static const char *const list[] = {"meta", "path", "rect", "wbr"};
    return IS_IN(list, tag);
}

static const char *word_into(const char *at, char out[64])
{
    size_t n = 0;
    while (*at && (isalnum((unsigned char)*at) || *at == '-')) {
        assert_true(n < 63);
        out[n++] = *at++;
    }
    out[n] = '\0';
    return at;
}

/* Every attribute is one of the list, in double quotes. */
static const char *read_attributes(const char *at)
{
    char word[64];
    while (*at != '>' && *at != '/') {
        while (*at == ' ')
            at++;
        at = word_into(at, word);
        if (!IS_IN(attributes, word))
            fail_msg("attribute '%s' before '%.40s'", word, at);
        assert_true(at[0] == '=' && at[1] == '"');
        at = strchr(at + 2, '"') + 1;
    }
    return at + (*at == '/');
}

/* Every tag is one of the list and closed where it must be; & begins a reference. */
static void read_page(const char *page)
{
    char open[64][64], word[64];
    size_t depth = 0;
    const char *at = page;
    assert_memory_equal(at, "<!DOCTYPE html>", 15);
    for (at += 15; *at;) {
        if (*at == '&')
            assert_non_null(memchr(at, ';', 7));
        if (*at != '<') {
            at++;
            continue;
        }
        bool closing = at[1] == '/';
        at = word_into(at + 1 + closing, word);
        if (!IS_IN(tags, word))
            fail_msg("tag '%s' before '%.40s'", word, at);
        if (closing) {
            assert_true(depth > 0 && *at == '>');
            assert_string_equal(open[--depth], word);
        } else {
            at = read_attributes(at);
            assert_true(*at == '>' && depth < 63);
            if (!is_void(word))
                strcpy(open[depth++], word);
        }
        at++;
    }
    assert_int_equal(depth, 0);
}

/* What a page could load or run anything with. */
static void assert_loads_nothing(const char *page)
{
    static const char *const words[] = {"<script", "<img",    "<link",   "<iframe",
                                        "src=",    "href=",   "http:",   "https:",
                                        "url(",    "@import", " style=", "javascript"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(page, words[i]))
            fail_msg("the page holds '%s'", words[i]);
}

static void test_the_page_is_well_formed_and_loads_nothing(void **state)
{
    (void)state;
    subject s;
    audited(&s, NULL);
    assert_int_equal(s.audit.violation_count, 0);
    char *page = page_of(&s.r);
    read_page(page);
    assert_loads_nothing(page);
    assert_non_null(strstr(page, "No violation was found. Checks: "));
    free(page);
    done(&s);
}

/* The policy forbids everything but the one style sheet, which it names by its own hash. */
static void test_the_policy_of_the_page_is_strict(void **state)
{
    (void)state;
    subject s;
    audited(&s, NULL);
    char *page = page_of(&s.r), policy[256], base64[64];
    uint8_t digest[crypto_hash_sha256_BYTES];
    const char *begin = strstr(page, "<style>") + 7, *end = strstr(page, "</style>");
    crypto_hash_sha256(digest, (const uint8_t *)begin, (unsigned long long)(end - begin));
    sodium_bin2base64(base64, sizeof base64, digest, sizeof digest, sodium_base64_VARIANT_ORIGINAL);
    snprintf(policy, sizeof policy,
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
             "'sha256-%s'; base-uri 'none'; form-action 'none'\">",
             base64);
    assert_non_null(strstr(page, policy));
    assert_true(strstr(page, policy) < begin);
    free(page);
    done(&s);
}

static void test_what_a_log_says_is_text(void **state)
{
    (void)state;
    subject s;
    audited(&s, push_hostile);
    assert_true(s.audit.violation_count > 0);
    snprintf(s.audit.checkpoint.origin, sizeof s.audit.checkpoint.origin, "%s", HOSTILE);
    s.r.date = HOSTILE;
    free(s.audit.violations[0].detail);
    s.audit.violations[0].detail = strdup(HOSTILE);
    char *page = page_of(&s.r);
    read_page(page);
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "<img"));
    /* origin in title, heading and facts; date; detail; revocation; four words of the policy. */
    assert_int_equal(times(page,
                           "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img src=x "
                           "onerror=y&gt;"),
                     3 + 1 + 1 + 1 + 4);
    free(page);
    done(&s);
}

static void test_violations_come_first(void **state)
{
    (void)state;
    subject s;
    audited(&s, push_hostile);
    char *page = page_of(&s.r), line[64];
    const char *list = strstr(page, "<h2>Violations</h2>"),
               *rest = strstr(page, "<h2>Warnings</h2>");
    assert_true(list && rest && list < rest && rest < strstr(page, "<h2>Who spent what</h2>"));
    snprintf(line, sizeof line, "%zu violations were found", s.audit.violation_count);
    assert_true(strstr(page, line) && strstr(page, line) < list);
    for (size_t i = 0; i < s.audit.violation_count; i++) {
        const char *at = strstr(list, s.audit.violations[i].kind);
        assert_true(at && at < rest);
    }
    free(page);
    done(&s);
}

static void test_the_same_audit_gives_the_same_bytes(void **state)
{
    (void)state;
    subject s;
    tacit_audit again;
    report other;
    audited(&s, NULL);
    run(&s.x, &with_points, &again);
    OK(report_open(&other, &again, NULL, &s.w.err));
    char *one = page_of(&s.r), *two = page_of(&other);
    assert_string_equal(one, two);
    assert_null(strstr(one, "Date of the audit"));
    free(two);
    other.date = "30 November 2026";
    two = page_of(&other);
    assert_non_null(strstr(two, "<dt>Date of the audit</dt><dd>30 November 2026</dd>"));
    free(one);
    free(two);
    report_close(&other);
    tacit_audit_free(&again);
    done(&s);
}

/* --- numbers --- */

static void test_every_round_and_device_is_told(void **state)
{
    (void)state;
    subject s;
    audited(&s, NULL);
    const tacit_audit *a = &s.audit;
    assert_int_equal(a->rounds, 4);
    /* Of the log of fleet_log.h, counted by hand. */
    static const struct {
        uint64_t reserved, accepted, rejected;
        bool published;
    } wanted[] = {{3, 3, 0, true}, {3, 2, 1, true}, {3, 2, 0, true}, {2, 0, 0, false}};
    for (size_t i = 0; i < 4; i++) {
        const tacit_audit_round *r = &a->round_list[i];
        assert_int_equal(r->reserved, wanted[i].reserved);
        assert_int_equal(r->accepted, wanted[i].accepted);
        assert_int_equal(r->rejected, wanted[i].rejected);
        assert_true(r->published == wanted[i].published);
        assert_int_equal(r->mechanism.b, 100000);
        /* Both lineages have the schedule of world.h. */
        assert_true(r->epsilon_server == world_epsilon(&s.w, (int)(i % 2) + 1));
    }
    /* A device's last point is what it spent; d reserves: 3 rounds or 4, and local training. */
    static const size_t points[] = {5, 5, 3};
    for (size_t d = 0; d < WORLD_DEVICES; d++) {
        size_t n = s.r.first[d + 1] - s.r.first[d];
        const tacit_audit_point *last = &a->points[s.r.of_device[s.r.first[d + 1] - 1]];
        assert_int_equal(n, points[d]);
        assert_int_equal(last->device, d);
        assert_true(last->epsilon == a->devices[d].epsilon);
    }
    assert_int_equal(s.r.by_share[0], 1); /* device 0 spent as much, of a cap of 10 */
    assert_int_equal(s.r.by_share[2], 0);
    done(&s);
}

/* What was promised before anything was reserved, and how far it went. */
static void test_every_schedule_is_told(void **state)
{
    (void)state;
    subject s;
    audited(&s, NULL);
    assert_int_equal(s.audit.schedule_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const tacit_audit_schedule *c = &s.audit.schedules[i];
        assert_int_equal(c->schedule->n_rounds, WORLD_ROUNDS);
        assert_int_equal(c->values, WORLD_VALUES);
        assert_int_equal(c->planned, 2);
        assert_int_equal(c->planned_to, 2);
        assert_int_equal(c->reserved, 2);
        assert_int_equal(c->summed, i ? 1 : 2); /* the last one is open */
        assert_int_equal(c->published, i ? 1 : 2);
        assert_int_equal(c->failed, 0);
        assert_true(c->epsilon == world_epsilon(&s.w, WORLD_ROUNDS));
        assert_true(c->epsilon_planned == world_epsilon(&s.w, 2));
    }
    char *page = page_of(&s.r), cells[160], one[MARKUP_NUMBER], two[MARKUP_NUMBER];
    snprintf(cells, sizeof cells,
             ">%s</td><td class=\"number\" rowspan=\"1\">%s</td><td class=\"number\" "
             "rowspan=\"1\">%s</td>",
             schedule_accountant_name(s.audit.schedules[0].schedule),
             markup_number(world_epsilon(&s.w, WORLD_ROUNDS), one),
             markup_number(world_epsilon(&s.w, 2), two));
    assert_int_equal(times(page, cells), 2);
    assert_int_equal(times(page, ">1 to 3</td>"), 2);
    assert_int_equal(
        times(page, ">planned 2 of 3, reserved 2, summed 1, published 1, failed 0</td>"), 1);
    assert_true(strstr(page, "<h2>Schedules</h2>") < strstr(page, "<h2>Rounds</h2>"));
    free(page);
    done(&s);
}

static void test_rounds_that_differ_have_rows_of_their_own(void **state)
{
    (void)state;
    subject s;
    audited(&s, NULL);
    s.audit.schedules[0].schedule->rounds[1]->mechanism->b = 90000;
    s.audit.schedules[0].planned = 0;
    s.audit.schedules[0].epsilon = NAN;
    char *page = page_of(&s.r), *csv = text_of(&s.r, report_csv_schedules);
    read_page(page);
    assert_int_equal(times(page, "<th scope=\"rowgroup\" rowspan=\"3\">"), 1);
    assert_int_equal(times(page, "rowspan=\"3\">unknown</td>"), 1);
    assert_int_equal(times(page, "class=\"words\" rowspan=\"3\">no round planned</td>"), 1);
    assert_int_equal(times(csv, "\r\n"), 1 + 3 + 1);
    assert_int_equal(times(csv, ",unknown,"), 3);
    free(page);
    free(csv);
    done(&s);
}

static bool last_round_fails(world *w, Tacit__Entry *e, int round, int device)
{
    (void)w;
    if (AT(ROUND_CLOSED, 2, -1)) {
        e->round_closed->published = false;
        e->round_closed->reason = (char *)(uintptr_t) "gate";
    }
    return !AT(PUBLISHED, 2, -1);
}

static void test_rounds_that_fail_count_in_their_schedule(void **state)
{
    (void)state;
    world w;
    exported x;
    tacit_audit audit;
    world_init(&w);
    w.hook = last_round_fails;
    world_plan_all(&w);
    world_log(&w);
    export_of(&w, &x);
    run(&x, NULL, &audit);
    assert_int_equal(audit.violation_count, 0);
    assert_int_equal(audit.schedules[0].published, WORLD_ROUNDS - 1);
    assert_int_equal(audit.schedules[0].failed, 1);
    assert_true(audit.schedules[0].epsilon_planned == audit.schedules[0].epsilon);
    tacit_audit_free(&audit);
    export_done(&x);
    world_free(&w);
}

static void test_the_events_are_told_with_their_words(void **state)
{
    (void)state;
    subject s;
    audited(&s, NULL);
    static const char *const wanted[] = {
        "server_start",
        "version '0.1.0', origin 'tacit.example/log'",
        "policy_changed",
        "cap 10, delta 1e-05, unit record, noise at least 1, cohort 2, quorum 2; by 'operator' "
        "(operator), meaning 'operator', because 'operator'",
        "rolled_back",
        "from version 2 to 1 because 'worse in the field'",
        "revoke",
        "because 'stolen'"};
    assert_int_equal(s.audit.event_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(s.audit.events[i].kind, wanted[2 * i]);
        assert_string_equal(s.audit.events[i].text, wanted[2 * i + 1]);
    }
    assert_memory_equal(s.audit.events[3].device, s.w.device[2].name, TACIT_DEVICE_BYTES);
    done(&s);
}

/* The end of a device's line in its small chart: 26 units of height from the floor to the cap. */
static void test_a_curve_ends_at_what_was_spent(void **state)
{
    (void)state;
    subject s;
    audited(&s, NULL);
    for (size_t d = 0; d < WORLD_DEVICES; d++) {
        markup m = {.status = TACIT_OK};
        report_chart_device(&m, &s.r, d);
        char *svg = strndup((const char *)m.out.data, m.out.size), *at = strstr(svg, "\"worst\"");
        double y = 26, wanted = 2 + 24 * (1 - s.audit.devices[d].epsilon / s.audit.devices[d].cap);
        while ((at = strchr(at, 'V')))
            y = strtod(++at, NULL);
        assert_true(fabs(y - wanted) <= 0.3 + 0.05); /* thinned, and one decimal */
        free(svg);
        markup_free(&m);
    }
    done(&s);
}

/* How far the axis of the chart of the fleet goes. */
static void assert_axis(const report *r, const char *top, bool cap)
{
    markup m = {.status = TACIT_OK};
    char label[32];
    report_chart_curves(&m, r);
    char *svg = strndup((const char *)m.out.data, m.out.size);
    snprintf(label, sizeof label, ">%s %%</text>", top);
    assert_int_equal(times(svg, "class=\"end\""), cap ? 6 : 7);
    assert_non_null(strstr(svg, label));
    assert_int_equal(times(svg, "class=\"cap\""), cap ? 1 : 0);
    assert_int_equal(times(svg, "is above this chart"), cap ? 0 : 1);
    free(svg);
    markup_free(&m);
}

/* A fleet of any size, without a log. */
static void made_up(tacit_audit *a, report *r, size_t devices, size_t reserves)
{
    tacit_error err;
    *a = (tacit_audit){.entries = devices * (reserves + 1),
                       .device_count = devices,
                       .point_count = devices * reserves};
    strcpy(a->checkpoint.origin, "=made.up/log,\"x\"");
    a->devices = calloc(devices, sizeof *a->devices);
    a->points = calloc(devices * reserves, sizeof *a->points);
    for (size_t d = 0; d < devices; d++) {
        a->devices[d] = (tacit_audit_device){.epsilon = 4.0 * (double)(d + 1) / (double)devices,
                                             .cap = 4,
                                             .delta = 1e-5,
                                             .unit = TACIT_UNIT_SUBJECT,
                                             .devices_per_subject = 2,
                                             .epsilon_subject = 7,
                                             .reserves = reserves};
        memset(a->devices[d].device, (int)(d % 251), TACIT_DEVICE_BYTES);
    }
    for (size_t i = 0; i < a->point_count; i++) {
        size_t d = i % devices;
        a->points[i] = (tacit_audit_point){.entry = devices + i,
                                           .device = d,
                                           .epsilon = a->devices[d].epsilon *
                                                      (double)(i / devices + 1) / (double)reserves};
    }
    OK(report_open(r, a, NULL, &err));
}

static void made_up_done(tacit_audit *a, report *r)
{
    report_close(r);
    tacit_audit_free(a);
}

static void test_the_axis_fits_what_was_spent(void **state)
{
    (void)state;
    static const struct {
        double cap; /* of devices that spent 4 at most */
        const char *top;
        bool has_cap;
    } cases[] = {{4, "100", true},  {3.9, "200", true}, {8, "50", false},
                 {100, "5", false}, {1000, "2", false}, {0.1, "200", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tacit_audit a;
        report r;
        made_up(&a, &r, 50, 3);
        for (size_t d = 0; d < 50; d++)
            a.devices[d].cap = cases[i].cap;
        assert_axis(&r, cases[i].top, cases[i].has_cap);
        made_up_done(&a, &r);
    }
}

static void test_the_bars_count_every_device(void **state)
{
    (void)state;
    tacit_audit a;
    report r;
    made_up(&a, &r, 200, 1);
    a.devices[0].epsilon = 5;        /* above its cap */
    a.devices[1].epsilon = INFINITY; /* as far as anybody knows */
    markup m = {.status = TACIT_OK};
    report_chart_shares(&m, &r);
    char *svg = strndup((const char *)m.out.data, m.out.size);
    /* Shares of 0.005 d: 20 in the bin above 0 less the two taken out and less 0.1 itself, and so
     * on; 1 itself belongs to the last tenth. */
    assert_int_equal(times(svg, "class=\"bar\""), 10);
    assert_int_equal(times(svg, "class=\"over\""), 1);
    assert_int_equal(times(svg, ">17</text>"), 1);
    assert_int_equal(times(svg, ">20</text>"), 8 + 1); /* and the label of 20 percent */
    assert_int_equal(times(svg, ">21</text>"), 1);
    assert_int_equal(times(svg, ">2</text>"), 1);
    free(svg);
    markup_free(&m);
    made_up_done(&a, &r);
}

static void test_a_large_fleet_fits_a_page(void **state)
{
    (void)state;
    tacit_audit a;
    report r;
    made_up(&a, &r, 10000, 30);
    char *page = page_of(&r), *csv = text_of(&r, report_csv),
         lines[REPORT_WARNINGS_MAX][REPORT_FIELD_TEXT];
    print_message("page %zu bytes, CSV %zu bytes\n", strlen(page), strlen(csv));
    read_page(page);
    assert_true(strlen(page) < 1000000);
    assert_int_equal(times(page, "class=\"small\""), REPORT_DEVICES_MAX);
    assert_non_null(
        strstr(page, "50 of 10000 devices are shown; all are in the CSV and the JSON."));
    assert_int_equal(times(csv, "\r\n"), 10001);
    assert_true(report_warnings(&r, lines) >= 1);
    assert_non_null(strstr(lines[0], "delta summed over the devices is 0.1, above 0.01"));
    free(page);
    free(csv);
    made_up_done(&a, &r);
}

/* --- the statement --- */

static const char *field_of(const report_field *fields, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].key, key) == 0)
            return fields[i].text;
    fail_msg("no field '%s'", key);
    return "";
}

static void test_the_statement_has_every_field(void **state)
{
    (void)state;
    static const char *const keys[] = {"claim",           "privacy_parameters",
                                       "unit_of_privacy", "neighbouring_relation",
                                       "mechanism",       "released",
                                       "composition",     "hyper_parameters",
                                       "verification",    "utility",
                                       "trust_model",     "assumptions",
                                       "protected_from",  "security",
                                       "side_channels",   "data_collection"};
    subject s;
    report_field fields[REPORT_FIELDS_MAX];
    char number[64];
    audited(&s, NULL);
    size_t n = report_statement(&s.r, fields);
    assert_int_equal(n, sizeof keys / sizeof keys[0]);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(field_of(fields, n, keys[i]));
        assert_true(length > 40 && length < REPORT_FIELD_TEXT - 1); /* not cut */
    }
    snprintf(number, sizeof number, "epsilon %.6g at delta 1e-05", s.audit.devices[1].epsilon);
    assert_non_null(strstr(field_of(fields, n, "claim"), number));
    assert_non_null(strstr(field_of(fields, n, "privacy_parameters"), "aps in force: 8 to 10"));
    snprintf(number, sizeof number, "adapters alone: epsilon %.6g at delta 1e-05",
             world_epsilon(&s.w, 2));
    assert_non_null(strstr(field_of(fields, n, "privacy_parameters"), number));
    assert_non_null(strstr(field_of(fields, n, "hyper_parameters"), "reserve (2 schedules)"));
    assert_null(strstr(field_of(fields, n, "assumptions"), "collude with"));
    assert_non_null(strstr(field_of(fields, n, "verification"), "No device said that it drew"));
    assert_non_null(strstr(field_of(fields, n, "unit_of_privacy"), "example: 3 devices"));
    assert_non_null(strstr(field_of(fields, n, "neighbouring_relation"), "Add or remove one"));
    assert_null(strstr(field_of(fields, n, "mechanism"), "device unit"));
    assert_null(strstr(field_of(fields, n, "trust_model"), "without noise"));
    assert_null(strstr(field_of(fields, n, "protected_from"), "Where the published epsilon"));
    snprintf(number, sizeof number, "clip norm): %.6g.", 100000 / sqrt(2 * log(2)) / 65536);
    assert_non_null(strstr(field_of(fields, n, "mechanism"), number));
    done(&s);
}

/* With everything in it that can be in it, no field is cut. */
static void test_the_longest_statement_is_whole(void **state)
{
    (void)state;
    subject s;
    report_field fields[REPORT_FIELDS_MAX];
    audited(&s, push_hostile);
    for (size_t d = 0; d < WORLD_DEVICES; d++) {
        tacit_audit_device *device = &s.audit.devices[d];
        device->devices_per_subject = 4000000000u;
        device->non_private = device->lost = device->insecure = true;
        device->delta = 0.1234567 * (double)(d + 1);
        device->epsilon = INFINITY;
        device->cap = 123456.7 * (double)(d + 1);
        s.audit.round_list[d].mechanism.neighbours = TACIT_REPLACE_ONE;
        s.audit.round_list[d].mechanism.b += d;
        s.audit.round_list[d].mechanism.q_num += d;
        s.audit.round_list[d].local_steps = 20;
        s.audit.round_list[d].mechanism.steps += (uint32_t)d;
    }
    s.audit.round_list[0].mechanism.kind = TACIT_MECHANISM_TREE_GAUSSIAN;
    s.audit.round_list[0].mechanism.minimum_separation = 7;
    s.audit.round_list[1].mechanism.unit = TACIT_UNIT_DEVICE;
    s.audit.round_list[2].mechanism.quantile_b = 1000000;
    s.audit.round_list[2].mechanism.quantile_target = 0.75;
    s.audit.round_list[2].mechanism.clip_min = 0.25;
    s.audit.round_list[2].mechanism.clip_max = 2;
    s.audit.round_list[3].mechanism.kind = TACIT_MECHANISM_NONE;
    s.audit.publications[0].epsilon_published /= 2;
    size_t n = report_statement(&s.r, fields);
    for (size_t i = 0; i < n; i++)
        assert_true(strlen(fields[i].text) < REPORT_FIELD_TEXT - 1);
    assert_non_null(
        strstr(field_of(fields, n, "trust_model"), "In rounds without noise the server"));
    assert_non_null(
        strstr(field_of(fields, n, "protected_from"), "the noise of the other devices"));
    assert_non_null(
        strstr(field_of(fields, n, "mechanism"), "Rounds of the device unit (1): local"));
    assert_non_null(strstr(field_of(fields, n, "mechanism"), "Poisson sampling of units"));
    char *page = page_of(&s.r);
    read_page(page);
    assert_int_equal(times(page, ">0.5, then 0.25 to 2 by the 0.75 quantile<"), 1);
    assert_non_null(strstr(field_of(fields, n, "mechanism"), "In 1 rounds the clip norm follows"));
    assert_int_equal(times(page, " after 20 local, 0 colluders assumed"), 3);
    assert_int_equal(times(page, ", a unit in one of every 7<"), 1);
    assert_non_null(
        strstr(field_of(fields, n, "mechanism"), "Rounds with tree noise (1): no samp"));
    assert_non_null(strstr(field_of(fields, n, "composition"), "A round with tree noise counts"));
    free(page);
    assert_non_null(strstr(field_of(fields, n, "assumptions"), "devices collude with"));
    assert_non_null(strstr(field_of(fields, n, "released"), "but in the rounds of mechanism none"));
    assert_non_null(strstr(field_of(fields, n, "verification"), "which anybody can repeat: 3"));
    assert_non_null(strstr(fields[0].text, "This log has "));
    assert_non_null(strstr(fields[0].text, "Of 3 devices nothing finite can be said"));
    done(&s);
}

/* A device with a round without noise has no epsilon, however little its other rounds cost. */
static void test_rounds_without_noise_leave_no_number(void **state)
{
    (void)state;
    tacit_audit a;
    report r;
    report_field fields[REPORT_FIELDS_MAX];
    made_up(&a, &r, 4, 1);
    report_close(&r);
    a.devices[0].non_private = true; /* it spent least: 1 of 4 */
    OK(report_open(&r, &a, NULL, &(tacit_error){0}));
    assert_int_equal(r.by_share[0], 0);
    assert_true(isinf(report_share(&a.devices[0])) && isinf(report_epsilon(&a.devices[0])));
    size_t n = report_statement(&r, fields);
    assert_non_null(strstr(field_of(fields, n, "claim"), "Of 1 device nothing finite"));
    assert_non_null(strstr(field_of(fields, n, "claim"), "each of the other 3 devices"));
    assert_non_null(strstr(field_of(fields, n, "claim"), "epsilon 4 at delta"));
    assert_non_null(strstr(field_of(fields, n, "privacy_parameters"), "by a device is infinite"));
    char *page = page_of(&r), *csv = text_of(&r, report_csv);
    assert_int_equal(times(page, ">rounds without noise; epsilon of its other rounds: 1<"), 1);
    assert_int_equal(times(csv, ",infinite,0,2,infinite,"), 1);
    free(page);
    free(csv);
    made_up_done(&a, &r);
}

/* --- CSV --- */

/* One record of RFC 4180: fields into `out`, the place behind it. */
static const char *read_record(const char *at, char out[32][128], size_t *n)
{
    *n = 0;
    for (;;) {
        size_t used = 0;
        bool quoted = *at == '"';
        for (at += quoted; *at; at++) {
            if (quoted && *at == '"' && at[1] != '"')
                break;
            if (!quoted && (*at == ',' || *at == '\r'))
                break;
            at += quoted && *at == '"';
            assert_true(used < 127);
            out[*n][used++] = *at;
        }
        at += quoted;
        out[(*n)++][used] = '\0';
        assert_true(*n < 32);
        if (*at == ',') {
            at++;
            continue;
        }
        assert_true(at[0] == '\r' && at[1] == '\n');
        return at + 2;
    }
}

/* Copies of the worst account are no bound on two that differ: the statement must not say so. */
static void test_the_statement_speaks_of_like_devices_alone(void **state)
{
    (void)state;
    tacit_audit a;
    report r;
    report_field fields[REPORT_FIELDS_MAX];
    made_up(&a, &r, 3, 1);
    size_t n = report_statement(&r, fields);
    const char *unit = field_of(fields, n, "unit_of_privacy");
    assert_non_null(strstr(unit, "none of which took part in more than that one did, all of them "
                                 "together come to epsilon 7 at most"));
    assert_non_null(strstr(unit, "took part in different things this says nothing"));
    made_up_done(&a, &r);
}

static void test_the_csv_reads_back(void **state)
{
    (void)state;
    tacit_audit a;
    report r;
    static char head[32][128], row[32][128];
    size_t columns, n, d = 0;
    made_up(&a, &r, 5, 1);
    a.devices[3].epsilon = 4.5;
    a.devices[4].epsilon_subject = INFINITY;
    a.devices[4].lost = true;
    char *csv = text_of(&r, report_csv);
    const char *at = read_record(csv, head, &columns);
    assert_int_equal(columns, 17);
    assert_string_equal(head[1], "device");
    assert_string_equal(head[5], "epsilon");
    for (; *at; d++) {
        at = read_record(at, row, &n);
        assert_int_equal(n, columns);
        assert_string_equal(row[0], "'=made.up/log,\"x\"");
        assert_string_equal(row[2], "subject");
        assert_true(fabs(strtod(row[5], NULL) - a.devices[d].epsilon) < 1e-11);
        assert_true(fabs(strtod(row[6], NULL) - fmax(0, 4 - a.devices[d].epsilon)) < 1e-11);
        assert_string_equal(row[8], d == 4 ? "infinite" : "7");
        assert_string_equal(row[16], d == 4 ? "true" : "false");
        for (size_t i = 0; i < n; i++)
            assert_null(strchr("=+-@\t\r", row[i][0] ? row[i][0] : 'x'));
    }
    assert_int_equal(d, 5);
    free(csv);
    made_up_done(&a, &r);
}

/* Each number stands under its head. */
static void test_the_other_tables_read_back(void **state)
{
    (void)state;
    static char head[32][128], row[32][128];
    static const struct {
        void (*write)(markup *, const report *);
        const char *number, *count; /* columns */
        size_t rows;
    } tables[] = {{report_csv_schedules, "epsilon", "rounds_planned", 2},
                  {report_csv_rounds, "epsilon_server", "reserved", 4}};
    subject s;
    audited(&s, NULL);
    for (size_t t = 0; t < 2; t++) {
        size_t columns, n, number = 0, count = 0, rows = 0;
        char *csv = text_of(&s.r, tables[t].write);
        const char *at = read_record(csv, head, &columns);
        while (strcmp(head[number], tables[t].number) != 0)
            assert_true(++number < columns);
        while (strcmp(head[count], tables[t].count) != 0)
            assert_true(++count < columns);
        for (; *at; rows++) {
            at = read_record(at, row, &n);
            assert_int_equal(n, columns);
            double wanted =
                t ? s.audit.round_list[rows].epsilon_server : s.audit.schedules[rows].epsilon;
            assert_true(fabs(strtod(row[number], NULL) - wanted) < 1e-9);
            assert_int_equal(strtoull(row[count], NULL, 10),
                             t ? s.audit.round_list[rows].reserved : 2);
        }
        assert_int_equal(rows, tables[t].rows);
        free(csv);
    }
    done(&s);
}

static void test_no_cell_is_a_formula(void **state)
{
    (void)state;
    static const char *const cells[][2] = {
        {"=1+1", "'=1+1,"},         {"+1", "'+1,"},          {"-1", "'-1,"},
        {"@SUM(A1)", "'@SUM(A1),"}, {"\t=1", "'\t=1,"},      {"\r=1", "\"'\r=1\","},
        {"a,b", "\"a,b\","},        {"a\"b", "\"a\"\"b\","}, {"=\"a\"", "\"'=\"\"a\"\"\","},
        {"a\nb", "\"a\nb\","},      {"plain", "plain,"},     {"", ","}};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        markup m = {.status = TACIT_OK};
        markup_cell(&m, cells[i][0]);
        assert_int_equal(m.out.size, strlen(cells[i][1]));
        assert_memory_equal(m.out.data, cells[i][1], m.out.size);
        markup_free(&m);
    }
}

static void test_text_is_escaped_and_plain(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"a<b>&\"'", "a&lt;b&gt;&amp;&quot;&#39;"},
        {"\x1b[31m", "?[31m"},
        {"\xe2\x80\xae evil", "??? evil"}, /* turns the line around */
        {"\xff", "?"},
        {"Zürich", "Zürich"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        markup m = {.status = TACIT_OK};
        markup_text(&m, texts[i][0]);
        assert_int_equal(m.out.size, strlen(texts[i][1]));
        assert_memory_equal(m.out.data, texts[i][1], m.out.size);
        markup_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_page_is_well_formed_and_loads_nothing),
        cmocka_unit_test(test_the_policy_of_the_page_is_strict),
        cmocka_unit_test(test_what_a_log_says_is_text),
        cmocka_unit_test(test_violations_come_first),
        cmocka_unit_test(test_the_same_audit_gives_the_same_bytes),
        cmocka_unit_test(test_every_round_and_device_is_told),
        cmocka_unit_test(test_every_schedule_is_told),
        cmocka_unit_test(test_rounds_that_differ_have_rows_of_their_own),
        cmocka_unit_test(test_rounds_that_fail_count_in_their_schedule),
        cmocka_unit_test(test_the_events_are_told_with_their_words),
        cmocka_unit_test(test_a_curve_ends_at_what_was_spent),
        cmocka_unit_test(test_the_axis_fits_what_was_spent),
        cmocka_unit_test(test_the_bars_count_every_device),
        cmocka_unit_test(test_a_large_fleet_fits_a_page),
        cmocka_unit_test(test_the_statement_has_every_field),
        cmocka_unit_test(test_the_longest_statement_is_whole),
        cmocka_unit_test(test_rounds_without_noise_leave_no_number),
        cmocka_unit_test(test_the_statement_speaks_of_like_devices_alone),
        cmocka_unit_test(test_the_csv_reads_back),
        cmocka_unit_test(test_the_other_tables_read_back),
        cmocka_unit_test(test_no_cell_is_a_formula),
        cmocka_unit_test(test_text_is_escaped_and_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
